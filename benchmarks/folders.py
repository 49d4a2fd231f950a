"""Whether a person's own folder is searched well: the right file first, and refusing only what has no answer.

    python benchmarks/folders.py [FOLDER…] [--each] [--minimums]

Four folders of some forty mixed files in three languages, 60 questions each whose file is known and 15 that nothing
answers: asked alone, and beside two other datasets (another folder, and 1,000 passages of Python's documentation).
``theatre`` is not looked at question by question: it reports. Also printed is how far questions lie from unrelated ones
in the direction of the documents, in σ; ``relevance.py directions`` prints the same of collections.

``--each`` prints every question that goes wrong, ``--minimums`` how many of all questions would be refused wrongly, and
how many without an answer answered, if answers were refused below another relevance than that of the product.
Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Literal

import pointsman
from _folder_files import Question, questions, write_folder
from pointsman.ingest import standard_library_documents
from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.run.reading import Reading
from pointsman.workspace.calibration.fitting import MINIMUM

FOLDERS = {"company": "household", "household": "company", "laboratory": "company", "theatre": "household"}
"""By name, the folder that stands beside it."""
STRATEGIES: tuple[Literal["bm25", "vector", "auto"], ...] = ("bm25", "vector", "auto")
LOW = 0.3
MINIMUMS = (0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3)


@dataclass
class Counts:
    """Of one folder's questions by one strategy.

    Attributes:
        right: questions whose first hit is in the right file, refusals aside.
        refused: questions that have an answer and are refused.
        answered: questions without an answer that are answered.
        low: right first hits with a relevance below `LOW`.
        confidences: of each question, whether it has an answer, and the confidence; 1 if its words alone save it.
    """

    right: int = 0
    refused: int = 0
    answered: int = 0
    low: int = 0
    confidences: list[tuple[bool, float]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.right:8}{self.refused:9}{self.answered:10}{self.low:8}"


def measure(
    workspace: pointsman.Workspace,
    name: str,
    datasets: Sequence[str],
    strategy: Literal["bm25", "vector", "auto"],
    *,
    each: bool = False,
) -> Counts:
    """Ask all questions of a folder."""
    counts = Counts()
    asked = questions(name)
    answers = [workspace.search(question.text, 5, strategy=strategy, datasets=list(datasets)) for question in asked]
    for question, answer in zip(asked, answers, strict=True):
        hits = answer.refused.near_misses if answer.refused else answer.hits
        first = hits[0] if hits else None
        is_saved = answer.refused is None and (answer.confidence or 0.0) < MINIMUM
        counts.confidences.append((bool(question.files), 1.0 if is_saved else answer.confidence or 0.0))
        if not question.files:
            counts.answered += answer.refused is None
            if each and answer.refused is None:
                _print("answered", question, first, answer)
            continue
        right = first is not None and first.dataset == name and first.metadata["source"] in question.files
        low = right and first is not None and first.relevance is not None and first.relevance < LOW
        counts.right += right
        counts.refused += answer.refused is not None
        counts.low += low
        problems = {"wrong": not right, "refused": answer.refused is not None, "low": low}
        if each and any(problems.values()):
            _print(" ".join(what for what, so in problems.items() if so), question, first, answer)
    return counts


def print_minimums(where: str, confidences: Sequence[tuple[bool, float]]) -> None:
    """Print what other minimums would refuse and answer."""
    refused = [sum(has and value < minimum for has, value in confidences) for minimum in MINIMUMS]
    answered = [sum(not has and value >= minimum for has, value in confidences) for minimum in MINIMUMS]
    count = sum(has for has, _ in confidences)
    print(f"{where}: {count} questions with an answer and {len(confidences) - count} without")
    for name, row in {"minimum": MINIMUMS, "refused": refused, "answered": answered}.items():
        print(f"  {name:10}" + "".join(f"{value:6g}" for value in row))


def directions(workspace: pointsman.Workspace, name: str) -> str:
    """How far the questions of a folder lie towards its documents, in σ."""
    reading = Reading(workspace.dataset(name))
    reading.read()
    reading.measure()
    background = reading.background
    assert background is not None, "the default embedder has one"
    places: dict[bool, list[float]] = {True: [], False: []}
    for question in questions(name):
        vector = reading.vector_of(question.text)
        assert vector is not None, "there are vectors"
        places[bool(question.files)].append(background.nearness(vector) - background.chance[script_of(question.text)])
    return f"σ towards the documents: {mean(places[True]):.1f} with an answer, {mean(places[False]):.1f} without"


def _print(what: str, question: Question, first: pointsman.Hit | None, answer: pointsman.RetrievalContext) -> None:
    shown = "no hit" if first is None else f"{first.dataset} {first.metadata.get('source')} {first.relevance}"
    print(f"    {what:14} {question.text} -> {shown}; confidence {answer.confidence}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=f"of {', '.join(FOLDERS)}; default: all")
    parser.add_argument("--each", action="store_true", help="print every question that goes wrong")
    parser.add_argument("--minimums", action="store_true", help="print what other minimums would refuse")
    options = parser.parse_intermixed_args()
    if unknown := set(options.folders) - set(FOLDERS):
        parser.error(f"no folder named {', '.join(sorted(unknown))}")
    names = options.folders or list(FOLDERS)
    met, confidences = True, dict[str, list[tuple[bool, float]]]()
    with tempfile.TemporaryDirectory() as directory, pointsman.open(Path(directory) / "index") as workspace:
        for name in dict.fromkeys([*names, *(FOLDERS[name] for name in names)]):
            count = write_folder(name, Path(directory) / name)
            report = workspace.index(Path(directory) / name, name)
            print(f"{name}: {count} files, {len(workspace.dataset(name))} passages; problems: {report.problems}")
        python = workspace.dataset("python")
        python.add(standard_library_documents(1000))
        python.embed()
        for name in names:
            print(f"\n{name}: {directions(workspace, name)}")
            print(f"{'':22}{'right':>8}{'refused':>9}{'answered':>10}{'low':>8}")
            for where, datasets in {"alone": [name], "beside two": [name, FOLDERS[name], "python"]}.items():
                counts = {
                    strategy: measure(workspace, name, datasets, strategy, each=options.each and strategy == "auto")
                    for strategy in STRATEGIES
                }
                for strategy, row in counts.items():
                    print(f"{where + ', ' + strategy:22}{row}")
                auto = counts["auto"]
                confidences.setdefault(where, []).extend(auto.confidences)
                best = max(counts["bm25"].right, counts["vector"].right)
                met &= held(auto.right >= best, f"right file first {auto.right}, at least {best}")
                met &= held(auto.refused <= 1, f"wrongly refused {auto.refused}, at most 1 in 60")
                met &= held(auto.answered <= 3, f"unanswerable answered {auto.answered}, at most 3 of 15")
                met &= held(auto.low <= 3, f"right first hits told under {LOW:.0%}: {auto.low}, at most 3")
        for where, pairs in confidences.items() if options.minimums else ():
            print_minimums(where, pairs)
    return 0 if met else 1


def held(good: bool, what: str) -> bool:
    print(f"{'ok    ' if good else 'MISSED'} {what}")
    return good


if __name__ == "__main__":
    sys.exit(main())
