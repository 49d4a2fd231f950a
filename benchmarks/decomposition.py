"""Which questions the rules take apart, and how near their sub-questions come to people's.

    python benchmarks/decomposition.py [-v] [--half 0|1]

Reads questions alone: no index, no model. Collections come from ``$POINTSMAN_TEST_DATA``, else from
``../shared/data`` beside the repository. *Simple* sets should hardly be touched; *complex* ones mostly. Where a set has
sub-questions written by people, each is compared with the likest of ours and the other way round: F1 of their words
without stop words, averaged (recall: over theirs, precision: over ours). The baseline is the question itself as its
only part.

Rules were made while looking at aux_strategyqa and at the even questions (half 0) of the others; half 1 is to report.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter

from _data import DATA
from pointsman.retrieval.plan.transform.decompose_by_rules import chain, subquestions
from pointsman.text import DEFAULT_ANALYZER

SIMPLE = ("en_scifact", "zh_cmrc2018", "ru_faq_java", "xl_debian_ru")
COMPLEX = ("mh_hotpotqa", "mh_musique_train100", "aux_strategyqa")


@dataclass(frozen=True)
class Question:
    """A question, and its parts as people wrote them, where they did."""

    text: str
    parts: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*SIMPLE, *COMPLEX], metavar="SET")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every question that was taken apart")
    parser.add_argument("--half", type=int, choices=(0, 1), help="even or odd questions alone")
    arguments = parser.parse_args()
    absent = [name for name in arguments.sets if not (DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    print(
        f"{'set':22}{'half':>5}{'questions':>10}{'apart':>8}{'chains':>8}{'ms':>8}   recall / precision / F1 "
        f"of parts, of the question itself"
    )
    for name in arguments.sets:
        every = read(DATA / name)
        for half in (0, 1) if arguments.half is None else (arguments.half,):
            report(name, half, every[half::2], verbose=arguments.verbose)
    return 0


def read(folder: Path) -> list[Question]:
    path = next(path for path in (folder / "queries.jsonl", folder / "questions.jsonl") if path.is_file())
    questions = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        parts = row.get("decomposition") or row.get("metadata", {}).get("decomposition") or []
        texts = [part if isinstance(part, str) else part["question"] for part in parts]
        questions.append(Question(row["text"], tuple(texts)))
    return questions


def report(name: str, half: int, questions: Sequence[Question], *, verbose: bool) -> None:
    began = perf_counter()
    found = [subquestions(question.text) for question in questions]
    milliseconds = (perf_counter() - began) / len(questions) * 1000
    chains = sum(len(chain(question.text)) > 1 for question in questions)
    line = f"{name:22}{half:5}{len(questions):10}{sum(map(bool, found)) / len(questions):8.3f}"
    line += f"{chains / len(questions):8.3f}{milliseconds:8.3f}"
    gold = [
        (question, parts or (question.text,))
        for question, parts in zip(questions, found, strict=True)
        if question.parts
    ]
    if gold:
        line += f"   {overlap([(q.parts, parts) for q, parts in gold])}"
        line += f"   {overlap([(q.parts, (q.text,)) for q, _ in gold])}"
        apart = [(question, parts) for question, parts in gold if len(parts) > 1]
        if apart:
            line += f"   taken apart alone: {overlap([(q.parts, parts) for q, parts in apart])}"
            line += f"   {overlap([(q.parts, (q.text,)) for q, _ in apart])}"
    print(line, flush=True)
    if verbose:
        for question, parts in zip(questions, found, strict=True):
            if parts:
                print(f"    {question.text}")
                for part in parts:
                    print(f"        - {part}")


def overlap(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    recall = fmean(fmean(max(f1(theirs, ours) for ours in mine) for theirs in gold) for gold, mine in pairs)
    precision = fmean(fmean(max(f1(theirs, ours) for theirs in gold) for ours in mine) for gold, mine in pairs)
    both = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
    return f"{recall:.3f} / {precision:.3f} / {both:.3f}"


def f1(one: str, other: str) -> float:
    """Of the words of two texts, as often as they occur; «#1», which stands for an answer, is none."""
    mine, theirs = (Counter(DEFAULT_ANALYZER.query_tokens(re.sub(r"#\d+|>>", " ", text))) for text in (one, other))
    shared = (mine & theirs).total()
    return 2 * shared / (mine.total() + theirs.total()) if shared else 0.0


if __name__ == "__main__":
    sys.exit(main())
