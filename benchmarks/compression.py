"""How much of the evidence is left when texts are compressed to a third of their characters.

    python benchmarks/compression.py [SET…] [--share 0.333] [--top-k 5] [--no-embedder] [--seed 0]

What counts as evidence, by set:

- ``en_xquad``, ``zh_xquad``, ``ru_xquad``, ``zh_cmrc2018``: the words of the answer in the paragraph. Our copies of
  these sets hold no answers, so they were marked for this benchmark, before anything was measured on them: for the
  questions on 22 paragraphs (the same in each language) and on 16, drawn at random. ``compression_answers.tsv`` has 97
  for each language and 60.
- ``mh_hotpotqa``: the published answer where it stands in a supporting paragraph; without yes/no questions, and one
  half of the others, as compression was tuned on the other half.
- ``en_wikiqa``: the sentences judged correct, of all those judged for a question, put together as one text; the test
  questions, as compression was tuned on the training ones.

Evidence is kept where it stands whole within one kept span: 1 or 0 for a question (one occurrence of the answer is
enough), in ``en_wikiqa`` the share of its correct sentences. Below that, without anybody's marks: the share of the
characters that come from relevant paragraphs, before and after.

The texts: *alone*, the relevant paragraphs and nothing else; *retrieved*, the first hits of hybrid search, for the
questions whose evidence is among them; *shuffled*, the same hits in random order, as if their ranking told nothing.

The columns: *first* cuts each text after its first third; *top* reads down the ranking until the budget is spent;
*random* takes sentences at random (mean of five draws); *words* is `ExtractiveCompressor`; *+cosine* is the same with
the default embedder; *ceiling* is what whole sentences can reach: evidence in one longer than the budget is lost.
p: Fisher's paired randomisation test of words against the better of first and top, and of +cosine against words.

Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository. Exit status 1: a
floor missed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import TYPE_CHECKING

from _data import DATA
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import TestCollection, compare, indexed, read_collection
from pointsman.retrieval.refine.compress import ExtractiveCompressor, TextBudget
from pointsman.retrieval.refine.compress.spans import Span, fill, units_of
from pointsman.text import sentences
from pointsman.values.types import Document, Hit, Query, Ranked

if TYPE_CHECKING:
    from pointsman.values.protocols import Embedder
    from pointsman.workspace.dataset import Dataset

ANSWERS = Path(__file__).with_name("compression_answers.tsv")
SETS = ("en_xquad", "zh_xquad", "ru_xquad", "zh_cmrc2018", "mh_hotpotqa", "en_wikiqa")
DRAWS = 5
FLOOR = 0.9
FLOORS = ("en_xquad", "zh_xquad", "ru_xquad", "zh_cmrc2018")  # of retrieved texts, by words
MOST = 200  # questions with an embedder: a model does some 30 to 100 sentences a second

Kept = list[tuple[int, Span]]
"""What is kept: the hit's place and a span of its text."""


@dataclass(frozen=True)
class Case:
    """A question, the texts that are compressed, and where the evidence stands in them."""

    name: str
    query: str
    hits: tuple[Hit, ...]
    evidence: tuple[tuple[int, Span], ...]
    every: bool = False  # whether every piece of evidence counts, or one is enough

    def budget(self, share: float) -> int:
        """Characters that may stay."""
        return max(1, int(sum(len(hit.document.text) for hit in self.hits) * share))

    def kept(self, parts: Kept) -> float:
        """How much of the evidence is within these parts, 0 to 1."""
        found = [
            any(place == at and first <= start and end <= last for place, (first, last) in parts)
            for at, (start, end) in self.evidence
        ]
        return mean(found) if self.every else float(any(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; all of them unless given")
    parser.add_argument("--share", type=float, default=1 / 3, help="of the characters that may stay (default: a third)")
    parser.add_argument("--top-k", type=int, default=5, help="retrieved texts (default: 5)")
    parser.add_argument("--no-embedder", action="store_true", help="words alone")
    parser.add_argument("--seed", type=int, default=0, help="of random sentences and of samples (default: 0)")
    options = parser.parse_args()
    names = options.sets or list(SETS)
    if unknown := [name for name in names if name not in SETS or not (DATA / name).is_dir()]:
        print(f"no such set, or not in {DATA}: {', '.join(unknown)}; known: {', '.join(SETS)}", file=sys.stderr)
        return 2
    embedder = CachedEmbedder(default_embedder())
    print(f"share of the evidence kept in {options.share:.3f} of the characters\n")
    columns = ("first", "top", "random", "words", "+cosine", "ceiling")
    print(
        f"{'set':12} {'texts':10}{'n':>4}" + "".join(f"{name:>9}" for name in columns) + "   p words:cut  +cosine:words"
    )
    held, shares = True, []
    for name in names:
        collection = read_collection(DATA / name)
        for texts, cases in ways(collection, embedder, options.top_k):
            found = measured(cases, options, None if options.no_embedder else embedder)
            print(f"{name:12} {texts:10}{len(cases):4}" + told(found, columns), flush=True)
            held &= texts != "retrieved" or name not in FLOORS or mean(found["words"].values()) >= FLOOR
            if texts == "retrieved":
                shares.append(relevant_share(collection, embedder, options))
    if shares:
        print(
            "\nof all characters, those from relevant paragraphs: before, after (words), after a cut like 'first'; ms"
        )
        print("\n".join(shares))
    print(f"\n{'ok' if held else 'MISSED'}: {FLOOR} of the evidence in retrieved texts by words: {', '.join(FLOORS)}")
    return 0 if held else 1


def told(found: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    means = {name: mean(values.values()) for name, values in found.items()}
    line = "".join(f"{means[name]:9.3f}" if name in means else f"{'-':>9}" for name in columns)
    better = max(("first", "top"), key=means.__getitem__)
    line += f"   {compare(found['words'], found[better]).p:11.4f}"
    return line + (f"  {compare(found['+cosine'], found['words']).p:13.4f}" if "+cosine" in found else "")


# ── questions and their evidence ─────────────────────────────────────────────────────────────────────────────────────


def ways(collection: TestCollection, embedder: Embedder, top_k: int) -> Iterator[tuple[str, list[Case]]]:
    """The cases of a set: its relevant paragraphs alone, and among what is retrieved."""
    if collection.name == "en_wikiqa":
        yield "alone", sampled(list(judged_sentences(collection)))
        return
    answers = marked(collection)
    documents = {document.id: document for document in collection.documents}
    relevant = {query: [name for name, grade in collection.qrels[query].items() if grade > 0] for query in answers}
    alone = {query: [documents[name] for name in relevant[query]] for query in answers}
    yield "alone", list(cases(collection, answers, alone, relevant))
    with indexed(collection, embedder, lambda *_: None) as workspace:
        (dataset,) = workspace
        retrieved = {query: retrieve(dataset, collection.queries[query], top_k) for query in answers}
    yield "retrieved", list(cases(collection, answers, retrieved, relevant))
    shuffled = {query: random.Random(query).sample(those, len(those)) for query, those in retrieved.items()}
    yield "shuffled", list(cases(collection, answers, shuffled, relevant))


def retrieve(dataset: Dataset, query: str, top_k: int) -> list[Document]:
    return [hit.document for hit in dataset.retriever().retrieve(query, top_k)]


def marked(collection: TestCollection) -> dict[str, str]:
    """The answers by question."""
    if collection.name == "mh_hotpotqa":
        return {query: answer for query, answer in published(collection.name) if not tuned_on(query)}
    with ANSWERS.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["set"] == collection.name]
    texts = {document.id: document.text for document in collection.documents}
    return {row["query-id"]: texts[row["document-id"]][int(row["start"]) : int(row["end"])] for row in rows}


def published(name: str) -> Iterator[tuple[str, str]]:
    for line in (DATA / name / "queries.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        answer = record["metadata"]["answer"]
        if answer not in ("yes", "no"):
            yield record["_id"], answer


def tuned_on(query: str) -> bool:
    return hashlib.md5(query.encode()).digest()[0] % 2 == 1


def cases(
    collection: TestCollection,
    answers: Mapping[str, str],
    documents: Mapping[str, Sequence[Document]],
    relevant: Mapping[str, Sequence[str]],
) -> Iterator[Case]:
    """A case for each question whose evidence is among its documents."""
    for query, answer in answers.items():
        edge = r"(?<!\w){}(?!\w)" if re.fullmatch(r"\w.*\w|\w", answer) and answer.isascii() else "{}"
        pattern = re.compile(edge.format(re.escape(answer)))
        found = tuple(
            (place, match.span())
            for place, document in enumerate(documents[query])
            if document.id in relevant[query]
            for match in pattern.finditer(document.text)
        )
        if found:
            yield Case(query, collection.queries[query], hits_of(documents[query]), found)


def judged_sentences(collection: TestCollection) -> Iterator[Case]:
    """All sentences judged for a question as one text; they come from one page, in its order."""
    documents = {document.id: document for document in collection.documents}
    for query, grades in collection.qrels.items():
        if not query.startswith("test-") or len(grades) < 4:
            continue
        text, evidence = "", []
        for name in sorted(grades, key=lambda name: int(name[1:])):
            sentence = documents[name].text.strip()
            start = len(text)
            text += sentence[:1].upper() + sentence[1:] + " "
            if grades[name] > 0:
                evidence.append((0, (start, len(text) - 1)))
        yield Case(query, collection.queries[query], hits_of([Document(query, text)]), tuple(evidence), every=True)


def hits_of(documents: Sequence[Document]) -> tuple[Hit, ...]:
    return tuple(Hit(document, 1 / rank) for rank, document in enumerate(documents, 1))


def sampled(found: list[Case], seed: int = 1) -> list[Case]:
    return found if len(found) <= MOST else random.Random(seed).sample(found, MOST)


# ── ways to shorten ──────────────────────────────────────────────────────────────────────────────────────────────────


def measured(
    found: Sequence[Case], options: argparse.Namespace, embedder: Embedder | None
) -> dict[str, dict[str, float]]:
    """The evidence kept by each way to shorten, by question."""
    ways_: dict[str, Callable[[Case], float]] = {
        "first": lambda case: case.kept(first(case, options.share)),
        "top": lambda case: case.kept(top(case, options.share)),
        "random": lambda case: mean(case.kept(drawn(case, options.share, options.seed + n)) for n in range(DRAWS)),
        "words": lambda case: case.kept(extracted(case, options.share, None)),
        "ceiling": lambda case: case.kept(all_that_fit(case, options.share)),
    }
    if embedder is not None:
        ways_["+cosine"] = lambda case: case.kept(extracted(case, options.share, embedder))
    return {name: {case.name: way(case) for case in found} for name, way in ways_.items()}


def first(case: Case, share: float) -> Kept:
    return [(place, (0, int(len(hit.document.text) * share))) for place, hit in enumerate(case.hits)]


def top(case: Case, share: float) -> Kept:
    left, parts = case.budget(share), []
    for place, hit in enumerate(case.hits):
        parts.append((place, (0, min(left, len(hit.document.text)))))
        left -= parts[-1][1][1]
    return parts


def drawn(case: Case, share: float, seed: int) -> Kept:
    units = units_of(case.hits)
    random.Random(f"{seed} {case.name}").shuffle(units)
    excerpts = fill(units, case.hits, TextBudget(case.budget(share)), {})
    return [(place, span) for place, excerpt in enumerate(excerpts) if excerpt for span in excerpt.spans]


def all_that_fit(case: Case, share: float) -> Kept:
    """Every sentence that is not longer than the budget: no compressor can keep them all, but it could keep any."""
    return [
        (place, (start, end))
        for place, hit in enumerate(case.hits)
        for start, end in sentences(hit.document.text)
        if end - start <= case.budget(share)
    ]


def extracted(case: Case, share: float, embedder: Embedder | None) -> Kept:
    budget = case.budget(share)
    compressor = ExtractiveCompressor(embedder, max_chars=budget)
    found = compressor.refine(Query(case.query), Ranked(case.hits, "bm25"), len(case.hits))
    assert not found.degraded, found.degraded
    assert sum(len(hit.text) for hit in found.hits) <= budget
    places = {hit.key: place for place, hit in enumerate(case.hits)}
    return [
        (places[hit.key], span)
        for hit in found.hits
        for span in (hit.excerpt.spans if hit.excerpt else [(0, len(hit.document.text))])
    ]


# ── without marks ────────────────────────────────────────────────────────────────────────────────────────────────────


def relevant_share(collection: TestCollection, embedder: Embedder, options: argparse.Namespace) -> str:
    """For all questions: what share of the characters is from relevant paragraphs, before and after."""
    names = [query for query in collection.queries if collection.name != "mh_hotpotqa" or not tuned_on(query)]
    names = names if len(names) <= 5 * MOST else random.Random(1).sample(names, 5 * MOST)
    rows, times = [], []
    with indexed(collection, embedder, lambda *_: None) as workspace:
        (dataset,) = workspace
        for query in names:
            case = Case(
                query,
                collection.queries[query],
                hits_of(retrieve(dataset, collection.queries[query], options.top_k)),
                (),
            )
            good = {place for place, hit in enumerate(case.hits) if collection.qrels[query].get(hit.id, 0) > 0}
            began = perf_counter()
            kept = extracted(case, options.share, None)
            times.append(perf_counter() - began)
            whole = [(place, (0, len(hit.document.text))) for place, hit in enumerate(case.hits)]
            rows.append([of(good, parts) for parts in (whole, kept, first(case, options.share))])
    before, after, cut = (mean(column) for column in zip(*rows, strict=True))
    return f"{collection.name:12} {len(names):5} {before:7.3f} {after:7.3f} {cut:7.3f} {1000 * median(times):7.2f}"


def of(good: set[int], parts: Kept) -> float:
    lengths = [(place in good, end - start) for place, (start, end) in parts]
    return sum(length for relevant, length in lengths if relevant) / max(1, sum(length for _, length in lengths))


if __name__ == "__main__":
    sys.exit(main())
