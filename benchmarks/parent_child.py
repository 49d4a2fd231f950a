"""What ``parent_child`` gains on long documents: how often the right document is among the hits, and at what length.

    python benchmarks/parent_child.py [SET…] [--queries 300]

Four sets of long documents are made of public collections, each of small passages that name their document:

``articles``   XQuAD's paragraphs in English, Chinese and Russian, five by five: it took five of each article, in their
               order. 144 articles; a question's own is relevant in all three languages.
``papers``     abstracts of Cranfield, a document each: the shortest of the three, with many relevant ones to a query.
``abstracts``  SciFact's relevant abstracts and as many others, evenly drawn, as make 600.
``pages``      DomainRAG's passages that share a title, as one page, in the order of the file. These passages are as the
               collection has them, about 470 Chinese characters, some overlapping; gaps on a page stay.

The first three are cut by our own chunker, without overlap, at 128 estimated tokens: 60 to 100 English words. Relevant
is the document of a relevant passage. Four ways to search, all through ``workspace.search``, without refusal, and with
the same ranking of both lists, that of ``auto`` with the least effort, as ``parent_child`` ranks by that:

``flat``          the passages as they are ranked
``parent_child``  the passages by that strategy, as it comes
``parent always`` the same with ``least=1, share=0``: every hit becomes its document
``whole``         whole documents: words of all of it, a vector of its first 512 tokens

Columns: recall and nDCG of *documents* among the first 5 and 10 *hits*, where flat passages of one document take
several places; the same among the first 5 and 10 *different documents* of 100 hits, which is what a caller gets who
folds flat hits himself; how many different documents five hits have, and how many characters they are to read. Below,
differences with p of Fisher's paired randomisation test; ``flat, as long`` reads flat passages until they are as long
as the five hits of the other way, at most 100.

Collections come from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository; the first run embeds
some thousand passages. Exit status 1: on some set recall@5 or recall@10 of ``parent_child`` among hits is significantly
below that of flat passages (p < .05).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from pointsman import Document, Hit, ParentChildStrategy, Workspace, register_strategy
from pointsman.evaluation import TestCollection, compare, measure, read_collection
from pointsman.ingest import chunk
from pointsman.ingest.source import Section, Source
from pointsman.models import CachedEmbedder, default_embedder

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
TOKENS = 128
ABSTRACTS = 600
LEAST_OVERLAP = 20  # characters that two passages of a page must share to be taken for overlapping

WAYS = {
    "flat": ("passages", "auto"),
    "parent_child": ("passages", "parent_child"),
    "parent always": ("passages", "parent_always"),
    "whole": ("whole", "auto"),
}


class ParentAlways(ParentChildStrategy):
    """One child is enough for its parent."""

    name = "parent_always"

    def __init__(self, *sources: Any, **options: Any) -> None:
        super().__init__(*sources, least=1, share=0.0, **options)


@dataclass(frozen=True)
class LongSet:
    """Long documents by id, their passages, and which of them answer a query."""

    documents: Mapping[str, Document]
    passages: Sequence[Document]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]


@dataclass
class Found:
    """What one way has found: documents by query, in the order of its hits."""

    ranked: dict[int, dict[str, list[str]]] = field(default_factory=lambda: {5: {}, 10: {}, 100: {}})
    different: dict[str, int] = field(default_factory=dict)
    length: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)  # of each of 100 hits
    figures: dict[str, Mapping[str, float]] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; all unless named")
    parser.add_argument("--queries", type=int, default=300, help="of each set at most, evenly drawn (default: 300)")
    options = parser.parse_args()
    if unknown := set(options.sets) - set(SETS):
        parser.error(f"no set named {', '.join(sorted(unknown))}")
    names = options.sets or list(SETS)
    if absent := [SETS[name][0] for name in names if not (DATA / SETS[name][0]).is_dir()]:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    register_strategy(ParentAlways)
    embedder = CachedEmbedder(default_embedder())
    held = True
    for name in names:
        folder, make = SETS[name]
        held &= report(name, make(evenly(read_collection(DATA / folder), options.queries)), embedder)
    return 0 if held else 1


# ── long documents ───────────────────────────────────────────────────────────────────────────────────────────────────


def evenly(collection: TestCollection, most: int) -> TestCollection:
    """All documents, and at most so many queries."""
    names = drawn(list(collection.queries), most)
    return TestCollection(
        collection.name,
        collection.documents,
        {name: collection.queries[name] for name in names},
        {name: collection.qrels[name] for name in names},
    )


def drawn(names: Sequence[str], most: int) -> list[str]:
    """So many of them, spread evenly."""
    return [names[int(place * len(names) / most)] for place in range(most)] if len(names) > most else list(names)


def articles(collection: TestCollection) -> LongSet:
    """Paragraphs ``en-p0`` to ``en-p4`` are one article, and so on."""
    parents = {}
    for paragraph in collection.documents:
        language, number = paragraph.id.split("-p")
        parents[paragraph.id] = f"{language}-article {int(number) // 5}"
    texts: dict[str, list[str]] = {}
    for paragraph in collection.documents:
        texts.setdefault(parents[paragraph.id], []).append(paragraph.text)
    long = [Document(name, "\n\n".join(parts)) for name, parts in texts.items()]
    return cut(long, collection, parents)


def papers(collection: TestCollection) -> LongSet:
    return cut(collection.documents, collection, {})


def abstracts(collection: TestCollection) -> LongSet:
    relevant = {name for grades in collection.qrels.values() for name, grade in grades.items() if grade > 0}
    others = [document.id for document in collection.documents if document.id not in relevant]
    chosen = relevant | set(drawn(others, max(0, ABSTRACTS - len(relevant))))
    return cut([document for document in collection.documents if document.id in chosen], collection, {})


def pages(collection: TestCollection) -> LongSet:
    by_title: dict[str, list[Document]] = {}
    for passage in collection.documents:
        by_title.setdefault(passage.title, []).append(passage)
    parents = {passage.id: f"page {title}" for title, those in by_title.items() for passage in those}
    long = [Document(f"page {title}", joined(those), {"title": title}) for title, those in by_title.items()]
    passages = [
        Document(one.id, one.text, {"title": title, "source": title, "position": place, "parent": f"page {title}"})
        for title, those in by_title.items()
        for place, one in enumerate(those)
    ]
    return LongSet({one.id: one for one in long}, passages, collection.queries, of_parents(collection, parents))


def cut(long: Sequence[Document], collection: TestCollection, parents: Mapping[str, str]) -> LongSet:
    """Documents with the passages that the chunker makes of them, and the judgments of what they are made of."""
    passages: list[Document] = []
    for one in long:
        source = Source(one.id, one.title, (Section((), one.text, 0),), one.text, "txt", record_id=one.id)
        passages += chunk(source, TOKENS, overlap=0)
    return LongSet({one.id: one for one in long}, passages, collection.queries, of_parents(collection, parents))


def of_parents(collection: TestCollection, parents: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Judgments of passages as those of their documents; of several the best."""
    judged: dict[str, dict[str, int]] = {}
    for query, grades in collection.qrels.items():
        judged[query] = {}
        for name, grade in grades.items():
            parent = parents.get(name, name)
            judged[query][parent] = max(grade, judged[query].get(parent, 0))
    return judged


def joined(passages: Sequence[Document]) -> str:
    """The texts in order, without repeating what one has of the one before."""
    text = passages[0].text
    for passage in passages[1:]:
        most = min(len(text), len(passage.text))
        shared = next((n for n in range(most, LEAST_OVERLAP - 1, -1) if text.endswith(passage.text[:n])), 0)
        text += passage.text[shared:] if shared else "\n" + passage.text
    return text


SETS: Mapping[str, tuple[str, Callable[[TestCollection], LongSet]]] = {
    "articles": ("xl_xquad_en_zh_ru", articles),
    "papers": ("en_cranfield", papers),
    "abstracts": ("en_scifact", abstracts),
    "pages": ("zh_domainrag", pages),
}


# ── searching ────────────────────────────────────────────────────────────────────────────────────────────────────────


def report(name: str, long: LongSet, embedder: CachedEmbedder) -> bool:
    began = perf_counter()
    with tempfile.TemporaryDirectory() as folder, Workspace(folder, embedder=embedder) as workspace:
        workspace.dataset("passages").add(long.passages)
        workspace.dataset("whole").add(long.documents.values())
        indexed = perf_counter() - began
        found = {way: search(workspace, long, *how) for way, how in WAYS.items()}
    about = f"{len(long.documents)} documents, {len(long.passages)} passages, {len(long.queries)} queries"
    size = fmean(len(one.text) for one in long.documents.values()), fmean(len(one.text) for one in long.passages)
    print(f"── {name}: {about}; {size[0]:.0f} and {size[1]:.0f} characters on average")
    print(f"   indexed in {indexed:.0f} s, {perf_counter() - began:.0f} s in all\n")
    print(f"{'':14}{'among hits':>27}{'among documents':>27}")
    columns = ("R@5", "R@10", "nDCG@10") * 2 + ("docs in 5", "chars in 5")
    print(f"{'':14}" + "".join(f"{column:>{width(column)}}" for column in columns))
    for way, one in found.items():
        cells = [
            fmean(one.figures[f"{among} {column}"].values()) for among in ("hits", "docs") for column in columns[:3]
        ]
        row = "".join(f"{cell:{width(column)}.4f}" for cell, column in zip(cells, columns, strict=False))
        print(f"{way:14}{row}{fmean(one.different.values()):11.2f}{fmean(one.length.values()):12.0f}")
    print()
    return differences(long, found)


def width(column: str) -> int:
    return max(9, len(column) + 2)


def search(workspace: Workspace, long: LongSet, dataset: str, strategy: str) -> Found:
    found = Found()
    for query, text in long.queries.items():
        for k, ranked in found.ranked.items():
            hits = workspace.search(text, k, datasets=dataset, strategy=strategy, effort="fast", refuse=False).hits
            ranked[query] = list(map(document_of, hits))
            if k == 5:
                found.different[query] = len(set(ranked[query]))
                found.length[query] = sum(len(hit.text) for hit in hits)
            if k == 100:
                found.lengths[query] = [len(hit.text) for hit in hits]
    for k in (5, 10):
        hits_of = {query: in_their_places(documents) for query, documents in found.ranked[k].items()}
        for among, ranked_ in (("hits", hits_of), ("docs", found.ranked[100])):
            measured = measure(long.qrels, ranked_, k).per_query
            found.figures[f"{among} R@{k}"] = measured[f"recall@{k}"]
            found.figures[f"{among} nDCG@{k}"] = measured[f"ndcg@{k}"]
    return found


def in_their_places(documents: Sequence[str]) -> list[str]:
    """The ids; where one is repeated, a hit that finds nothing new stands in its place."""
    first: dict[str, int] = {}
    return [
        name if first.setdefault(name, place) == place else f"{name}, again at {place}"
        for place, name in enumerate(documents)
    ]


def document_of(hit: Hit) -> str:
    """The id of the document that a hit is, or is part of."""
    return str(hit.metadata.get("parent", hit.id))


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def differences(long: LongSet, found: Mapping[str, Found]) -> bool:
    held = True
    for first, second in (
        ("parent_child", "flat"),
        ("parent always", "flat"),
        ("parent_child", "whole"),
        ("flat", "whole"),
    ):
        for among in ("hits", "docs"):
            cells = []
            for column in (f"{among} R@5", f"{among} R@10", f"{among} nDCG@10"):
                test = compare(found[first].figures[column], found[second].figures[column])
                cells.append(f"{column[5:]} {test.difference:+.4f} (p {test.p:.4f})")
                lost = test.difference < 0 and test.p < 0.05
                held &= not (lost and (first, second, among) == ("parent_child", "flat", "hits") and "R@" in column)
            print(f"{first} - {second}, among {among}: {', '.join(cells)}")
    for way in ("parent_child", "parent always"):
        equal = measure(long.qrels, dict(as_long(found["flat"], found[way].length)), 100).per_query["recall@100"]
        test = compare(found[way].figures["hits R@5"], equal)
        print(f"{way} - flat, as long: R {test.difference:+.4f} (p {test.p:.4f}); flat has {fmean(equal.values()):.4f}")
    print(flush=True)
    return held


def as_long(flat: Found, limits: Mapping[str, int]) -> Iterator[tuple[str, Sequence[str]]]:
    """The documents of the flat hits that fit into so many characters, by query."""
    for query, documents in flat.ranked[100].items():
        fit, used = [], 0
        for document, length in zip(documents, flat.lengths[query], strict=True):
            used += length
            if used > limits[query]:
                break
            fit.append(document)
        yield query, fit


if __name__ == "__main__":
    sys.exit(main())
