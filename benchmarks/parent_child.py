"""What ``parent_child`` gains on long documents: how often the right document is among the hits, and at what length.

    python benchmarks/parent_child.py [SET…] [--queries 300]

Four sets of long documents are made of public collections, each of small passages that name their document:

``articles``   XQuAD's paragraphs in English, Chinese and Russian, five by five: it took five of each article, in their
               order. 144 articles; a question's own is relevant in all three languages.
``papers``     abstracts of Cranfield, a document each: the shortest ones, with many relevant to a query.
``abstracts``  SciFact's relevant abstracts and as many others, evenly drawn, as make 600.
``pages``      DomainRAG's passages that share a title, as one page, in the order of the file. These passages are as the
               collection has them, about 470 Chinese characters, some overlapping; gaps on a page stay.

The first three are cut by our own chunker, without overlap, at 128 estimated tokens: 52 to 68 English words on
average. Relevant is the document of a relevant passage. Five ways to search, all through ``workspace.search``,
without refusal, and with the same ranking of both lists, that of ``auto`` with the least effort, as ``parent_child``
ranks by that:

``flat``          the passages as they are ranked: those of one document take several places
``flat, folded``  what a caller makes of 100 flat passages: of each document the first
``parent_child``  the passages by that strategy, as it comes
``parent always`` the same with ``least=1, share=0``: every hit becomes its document
``whole``         whole documents: words of all of it, a vector of its first 512 tokens

Columns: recall of documents among the first 5 and 10 hits, nDCG@10 of documents, a hit that repeats one counting as
wrong; how many different documents five hits have, how many characters they are to read, and the median milliseconds
of a search for them (of 100, where they are folded), the query's vector known. Below, differences with p of Fisher's
paired randomisation test; ``flat, as long`` reads flat passages, at most 100, until they are as long as the five hits
of the other way.

Collections come from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository; the first run embeds
some thousand passages. Exit status 1: on some set recall@5 or recall@10 of ``parent_child`` is significantly below that
of flat passages (p < .05).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import perf_counter
from typing import Any

from _data import DATA
from pointsman import Document, Hit, ParentChildStrategy, RegisteredStrategy, Workspace, register_strategy
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import TestCollection, compare, measure, read_collection
from pointsman.ingest import chunk
from pointsman.ingest.source_text import ParsedDocument, Section

TOKENS = 128
ABSTRACTS = 600
LEAST_OVERLAP = 20  # characters that two passages of a page must share to be taken for overlapping

WAYS = {
    "flat": ("passages", "auto"),
    "parent_child": ("passages", "parent_child"),
    "parent always": ("passages", "parent_always"),
    "whole": ("whole", "auto"),
}


ORDER = ("flat", "flat, folded", "parent_child", "parent always", "whole")
FIGURES = ("R@5", "R@10", "nDCG@10")
PAIRS = (
    ("parent_child", "flat"),
    ("parent_child", "flat, folded"),
    ("parent_child", "whole"),
    ("parent always", "flat, folded"),
    ("flat, folded", "whole"),
)


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
    """What one way has found, by query: figures by name; different documents, characters and time of five hits."""

    figures: dict[str, Mapping[str, float]] = field(default_factory=dict)
    different: dict[str, int] = field(default_factory=dict)
    length: dict[str, int] = field(default_factory=dict)
    milliseconds: list[float] = field(default_factory=list)


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
        source = ParsedDocument(one.id, one.title, (Section((), one.text, 0),), one.text, "txt", record_id=one.id)
        passages += chunk(source, max_tokens=TOKENS, overlap=0)
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

Ranking = dict[str, list[Hit]]
"""Hits by query."""


def report(name: str, long: LongSet, embedder: CachedEmbedder) -> bool:
    began = perf_counter()
    with tempfile.TemporaryDirectory() as folder, Workspace(folder, embedder=embedder) as workspace:
        workspace.dataset("passages").add(long.passages)
        workspace.dataset("whole").add(long.documents.values())
        indexed = perf_counter() - began
        for text in long.queries.values():
            workspace.search(text, 1)  # embeds it
        deep, deep_taken = search(workspace, long, 100, *WAYS["flat"])
        found = {way: measured(workspace, long, *how) for way, how in WAYS.items()}
    folded = {query: first_of_each(hits) for query, hits in deep.items()}
    found["flat, folded"] = figures(long, folded, folded, deep_taken)
    about = f"{len(long.documents)} documents, {len(long.passages)} passages, {len(long.queries)} queries"
    size = fmean(len(one.text) for one in long.documents.values()), fmean(len(one.text) for one in long.passages)
    print(f"── {name}: {about}; {size[0]:.0f} and {size[1]:.0f} characters on average")
    print(f"   indexed in {indexed:.0f} s, {perf_counter() - began:.0f} s in all\n")
    print(f"{'':16}" + "".join(f"{column:>9}" for column in FIGURES) + f"{'docs in 5':>11}{'chars in 5':>12}{'ms':>8}")
    for way in ORDER:
        one = found[way]
        row = "".join(f"{fmean(one.figures[column].values()):9.4f}" for column in FIGURES)
        read = f"{fmean(one.different.values()):11.2f}{fmean(one.length.values()):12.0f}"
        print(f"{way:16}{row}{read}{median(one.milliseconds):8.1f}")
    print()
    return differences(long, found, deep)


def search(workspace: Workspace, long: LongSet, k: int, dataset: str, strategy: str) -> tuple[Ranking, list[float]]:
    """``k`` hits for every query, and the milliseconds that each search took."""
    found, taken = {}, []
    for query, text in long.queries.items():
        began = perf_counter()
        answer = workspace.search(
            text, k, datasets=dataset, strategy=RegisteredStrategy(strategy), effort="fast", refuse=False
        )
        taken.append((perf_counter() - began) * 1e3)
        found[query] = list(answer.hits)
    return found, taken


def measured(workspace: Workspace, long: LongSet, dataset: str, strategy: str) -> Found:
    five, taken = search(workspace, long, 5, dataset, strategy)
    ten, _ = search(workspace, long, 10, dataset, strategy)
    return figures(long, five, ten, taken)


def figures(long: LongSet, five: Ranking, ten: Ranking, taken: list[float]) -> Found:
    """What the answers to searches for five and ten hits are worth."""
    found = Found(milliseconds=taken)
    of_five, of_ten = (
        measure(long.qrels, {query: in_their_places(hits[:k]) for query, hits in ranking.items()}, k).per_query
        for k, ranking in ((5, five), (10, ten))
    )
    found.figures = dict(zip(FIGURES, (of_five["recall@5"], of_ten["recall@10"], of_ten["ndcg@10"]), strict=True))
    for query, hits in five.items():
        found.different[query] = len({document_of(hit) for hit in hits[:5]})
        found.length[query] = sum(len(hit.text) for hit in hits[:5])
    return found


def first_of_each(hits: Sequence[Hit]) -> list[Hit]:
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(document_of(hit), hit)
    return list(first.values())


def in_their_places(hits: Sequence[Hit]) -> list[str]:
    """The documents' ids; where one is repeated, something that is nowhere relevant stands in its place."""
    names = list(map(document_of, hits))
    return [name if name not in names[:place] else f"{name}, again at {place}" for place, name in enumerate(names)]


def document_of(hit: Hit) -> str:
    """The id of the document that a hit is, or is part of."""
    return str(hit.metadata.get("parent", hit.id))


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def differences(long: LongSet, found: Mapping[str, Found], deep: Ranking) -> bool:
    held = True
    for first, second in PAIRS:
        cells = []
        for column in FIGURES:
            test = compare(found[first].figures[column], found[second].figures[column])
            cells.append(f"{column} {test.difference:+.4f} (p {test.p:.4f})")
            if (first, second) == ("parent_child", "flat") and column != "nDCG@10":
                held &= not (test.difference < 0 and test.p < 0.05)
        print(f"{f'{first} - {second}':28} {', '.join(cells)}")
    for way in ("parent_child", "parent always"):
        fit = {
            query: [document_of(hit) for hit in as_long(hits, found[way].length[query])] for query, hits in deep.items()
        }
        equal = measure(long.qrels, fit, 100).per_query["recall@100"]
        test = compare(found[way].figures["R@5"], equal)
        told = f"recall {test.difference:+.4f} (p {test.p:.4f}); flat has {fmean(equal.values()):.4f}"
        print(f"{f'{way} - flat, as long':28} {told}")
    print(flush=True)
    return held


def as_long(hits: Sequence[Hit], limit: int) -> Iterator[Hit]:
    """The first hits that fit into so many characters."""
    used = 0
    for hit in hits:
        used += len(hit.text)
        if used > limit:
            return
        yield hit


if __name__ == "__main__":
    sys.exit(main())
