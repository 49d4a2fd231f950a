"""Follow-up questions: which find the right document, and of which it is told that an answer was found.

Run: python benchmarks/follow_ups.py [--half A|B|C] [--show]. follow_ups.txt has 301 follow-ups in English, Chinese and
Russian; how a follow-up is judged was chosen by those of half A, and those of B and C were not looked at; one
condition was added after their first figures (`docs/strategies.md`). Each
conversation is followed by *aliens*, too (*And pizza?*; hardly any of the documents speaks of such things), and by
questions on a *new* subject: those of A were looked at, those that follow B and C were written before they were
measured. Exits with 1 if the right document is first for fewer than .95, or more than .27 of the aliens are answered.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pointsman
from pointsman import Document, Query
from pointsman.values.types import Message

os.environ.setdefault("HF_HUB_OFFLINE", "1")

FILE: Final = Path(__file__).parent / "follow_ups.txt"
LEAST_FIRST: Final = 0.95
MOST_ALIENS: Final = 0.27


@dataclass
class Corpus:
    """A few documents of one matter, and follow-ups about it, each with the document that answers it, if one does."""

    name: str
    language: str
    half: str
    documents: list[Document] = field(default_factory=list)
    follow_ups: list[tuple[Query, str]] = field(default_factory=list)
    others: dict[str, list[str]] = field(default_factory=dict)


def corpora() -> list[Corpus]:
    """Read the corpora of the file."""
    corpora: list[Corpus] = []
    others: dict[tuple[str, bool], dict[str, list[str]]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        kind, *parts = line.split("|")
        if kind in {"alien", "new"}:
            language, half, text = parts
            others.setdefault((language, half == "A"), {}).setdefault(kind, []).append(text)
        elif kind == "corpus":
            name, language, half = parts
            corpora.append(Corpus(name, language, half, others=others[language, half == "A"]))
        elif kind == "doc":
            corpora[-1].documents.append(Document(parts[0], parts[1]))
        elif kind == "ask":
            turns = [
                Message("assistant" if number % 2 else "user", text)
                for number, text in enumerate(parts[0].split(" ‖ "))
            ]
            corpora[-1].follow_ups.append((Query(parts[1], history=tuple(turns)), parts[2]))
    return corpora


def measure(corpus: Corpus, workspace: Any, *, show: bool) -> Counter[str]:
    """Search every follow-up of a corpus, and what else may follow each of its conversations."""
    dataset = workspace.dataset(corpus.name)
    dataset.add(corpus.documents)
    counts: Counter[str] = Counter()
    for query, document in corpus.follow_ups:
        context = workspace.search(query, datasets=[corpus.name])
        first = context.hits[0].id if context.hits else "nothing"
        counts["all"] += 1
        counts["reworded"] += context.query.text != query.text
        counts["answerable"] += bool(document)
        counts["first"] += first == document
        counts["first and answered"] += first == document and context.verdict == "answered"
        if show and document and (first != document or context.verdict != "answered"):
            history = " ‖ ".join(message.text for message in query.history)
            print(f"    {context.verdict:9}{history} | {query.text}  [{first}, not {document}]")
    for messages in dict.fromkeys(query.history for query, _ in corpus.follow_ups):
        for kind, texts in corpus.others.items():
            for text in texts:
                verdict = workspace.search(Query(text, history=messages), datasets=[corpus.name]).verdict
                counts[kind] += 1
                counts[f"{kind} {verdict}"] += 1
                if show and verdict == "answered":
                    print(f"    {kind:9}{messages[0].text} | {text}")
    return counts


def main(arguments: list[str]) -> int:
    """Print a line for each language and half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("A", "B", "C"), help="only this half")
    parser.add_argument("--show", action="store_true", help="print each that is not right")
    options = parser.parse_args(arguments)
    workspace = pointsman.open(Path(tempfile.mkdtemp()) / "workspace")
    totals: dict[str, Counter[str]] = {}
    for corpus in corpora():
        if options.half in {None, corpus.half}:
            counts = measure(corpus, workspace, show=options.show)
            for key in (f"{corpus.half} {corpus.language}", corpus.half, "all"):
                totals.setdefault(key, Counter()).update(counts)
    print("half   follow-ups  reworded  right first  and answered  aliens answered  refused  new answered  refused")
    for key, counts in sorted(totals.items(), key=lambda item: (len(item[0]) > 1, item[0])):
        print(
            f"{key:7}{counts['all']:10}{counts['reworded']:10}{counts['first'] / counts['answerable']:13.3f}"
            f"{counts['first and answered'] / counts['answerable']:14.3f}"
            f"{counts['alien answered'] / counts['alien']:17.3f}{counts['alien refused'] / counts['alien']:9.3f}"
            f"{counts['new answered'] / counts['new']:14.3f}{counts['new refused'] / counts['new']:9.3f}"
        )
    total = totals["all"]
    is_found = total["first"] >= LEAST_FIRST * total["answerable"]
    return int(not is_found or total["alien answered"] > MOST_ALIENS * total["alien"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
