"""Whether words should count for less where few of a question's words are matched.

    python benchmarks/word_weights.py [NAME…]

The questions of `verdicts.py` whose answers are known, of the same folders and collections. Of each, the 100 first
candidates of the calibrated sum are ordered again, with BM25 multiplied by a weight: a constant, a power of the
coverage (the share of the question's words, by idf, that the candidate that matches most of them has), a power of the
share that the candidate itself has, or 0 and ½ below a coverage. Prints how many are right first by each, beside
those of `auto`, of vectors alone, and of whichever of these two is right.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pointsman
from _checkouts import CHECKOUTS, why_missing, write_checkout
from _data import DATA
from _folder_files import write_folder
from folders import FOLDERS
from pointsman.retrieval.request import RegisteredStrategy
from pointsman.store.bm25 import query_terms
from pointsman.text import DEFAULT_ANALYZER
from verdicts import COLLECTIONS, NAMES, Asked, further, of_folder, write_collection

POWERS, BARS, CONSTANTS = (0.25, 0.5, 1.0, 2.0), (0.2, 0.3, 0.4, 0.5), (0.6, 0.8, 1.2, 1.5)


class Candidate(NamedTuple):
    """A candidate: whether it answers, its BM25, its cosine on the same scale, and the share of words that it has."""

    answers: bool
    bm25: float
    cosine: float
    share: float


class Asking(NamedTuple):
    """What came of one question: its candidates, and whether `auto` and vectors alone are right first."""

    candidates: list[Candidate]
    by_auto: bool
    by_vectors: bool


Weight = Callable[[float, float], float]
"""The weight of a candidate's words, by the coverage of the question and by its own share."""


def weights() -> dict[str, Weight]:
    """The weights that are tried, by what they are called."""
    tried: dict[str, Weight] = {f"{constant:g}": lambda _, __, c=constant: c for constant in (1.0, *CONSTANTS, 0.0)}  # type: ignore[misc]
    for power in POWERS:
        tried[f"coverage ^ {power:g}"] = lambda coverage, _, p=power: coverage**p  # type: ignore[misc]
        tried[f"own share ^ {power:g}"] = lambda _, share, p=power: share**p  # type: ignore[misc]
    for bar in BARS:
        tried[f"0 below {bar:g}"] = lambda coverage, _, b=bar: float(coverage >= b)  # type: ignore[misc]
        tried[f"½ below {bar:g}"] = lambda coverage, _, b=bar: 1.0 if coverage >= b else 0.5  # type: ignore[misc]
    return tried


def is_right(asking: Asking, weight: Weight) -> bool:
    """Whether the first candidate is right, in the order with this weight."""
    coverage = max((candidate.share for candidate in asking.candidates), default=0.0)
    return max(
        asking.candidates,
        key=lambda candidate: weight(coverage, candidate.share) * candidate.bm25 + candidate.cosine,
        default=Candidate(answers=False, bm25=0.0, cosine=0.0, share=0.0),
    ).answers


def ask(workspace: pointsman.Workspace, name: str, asked: Iterable[Asked]) -> Iterator[Asking]:
    """Ask the questions of a dataset that have an answer."""
    terms_of = {document.id: set(DEFAULT_ANALYZER.tokens(document.full_text)) for document in workspace.dataset(name)}
    frequencies = Counter(term for terms in terms_of.values() for term in terms)
    for question in asked:
        if not question.answers:
            continue

        def answers(hit: Any, wanted: frozenset[str] = question.answers) -> bool:
            return bool({hit.id, hit.metadata.get("source")} & wanted)

        def first(strategy: str, text: str = question.text) -> bool:
            hits = workspace.search(
                text, 1, datasets=[name], refuse="never", strategy=RegisteredStrategy(strategy)
            ).hits
            return bool(hits) and answers(hits[0])

        idf = {
            term: count * math.log(1 + (len(terms_of) - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
            for term, count in query_terms(question.text).items()
        }
        candidates = []
        for hit in workspace.search(question.text, 100, datasets=[name], refuse="never", strategy="hybrid").hits:
            sources = {part.source: part for part in hit.provenance}
            share = sum(idf[term] for term in idf.keys() & terms_of[hit.id]) / (sum(idf.values()) or 1.0)
            bm25, cosine = (sources[source].normalised or 0.0 for source in ("bm25", "vector"))
            candidates.append(Candidate(answers(hit), bm25, cosine, share))
        yield Asking(candidates, first("auto"), first("vector"))


def askings(names: Iterable[str]) -> Iterator[tuple[str, list[Asking]]]:
    """Index and ask; the group and what came of its questions."""
    with tempfile.TemporaryDirectory() as directory, pointsman.open(Path(directory) / "index") as workspace:
        for name in names:
            folder = Path(directory) / name
            if name in COLLECTIONS:
                if (DATA / name).is_dir():
                    yield "collections", list(ask(workspace, name, write_collection(workspace, name)))
                else:
                    print(f"{name}: left out, it is not in {DATA}")
                continue
            if name in CHECKOUTS and (reason := why_missing(name)):
                print(f"{name}: left out, {reason}")
                continue
            (write_folder if name in FOLDERS else write_checkout)(name, folder)
            workspace.index(folder, name)
            yield "folders" if name in FOLDERS else "strangers", list(ask(workspace, name, of_folder(name)))
            yield "across languages", list(ask(workspace, name, further("across.tsv", name)))
            yield "paraphrases", list(ask(workspace, name, further("paraphrases.tsv", name)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no folder or collection named {', '.join(sorted(unknown))}")
    groups: dict[str, list[Asking]] = {}
    for group, asked in askings(options.names or NAMES):
        groups.setdefault(group, []).extend(asked)
    groups = {group: asked for group, asked in groups.items() if asked}
    print(f"{'right first':18}" + "".join(f"{group:>18}" for group in groups))
    rows: dict[str, Callable[[Asking], bool]] = {
        "questions": lambda _: True,
        "auto": lambda asking: asking.by_auto,
        "vectors": lambda asking: asking.by_vectors,
        "either": lambda asking: asking.by_auto or asking.by_vectors,
        **{name: lambda asking, w=weight: is_right(asking, w) for name, weight in weights().items()},  # type: ignore[misc]
    }
    for name, counts in rows.items():
        print(f"{name:18}" + "".join(f"{sum(map(counts, asked)):18}" for asked in groups.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
