"""What access, receipts, uploads and views have to hold: each case, and whether it does, in a folder.

Run: python benchmarks/walls.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong. What views cost in
memory, and twins in PostgreSQL, ``benchmarks/views.py`` measures; a stopped PostgreSQL and workers that lie are tried
by ``tests/test_stopped_store.py`` and ``tests/test_cluster.py``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

import pointsman
from _cases import outcome, print_cases
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, Write
from pointsman.evaluation.leaktest import LeakReport, ShippedEmbedder, TwinPair
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.values.views import ACCESS

Case = Callable[[Path], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


def hidden_times(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 6: what hidden documents say of time is in no trace."""
    for metadata in ({"valid_from": "2020-01-01"}, {"valid_from": "2020-01-01", "version_of": "a"}):
        documents = (
            Document("a", "signal lamp", {ACCESS: {"allow": ["everyone"]}}),
            Document("b", "signal lamp, latest", {ACCESS: {"allow": ["group:law"]}, **metadata}),
        )
        question = {"query": "latest signal lamp", "k": 5, "refuse": False}
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), (("search", question),))
        with TwinPair(case, "access", ShippedEmbedder()) as twins:
            twins.compare(report := LeakReport(), {"with": [], "without": []})
        yield f"Python: {', '.join(metadata)}", (report.comparisons, report.differing) == (1, 0)


def kept_calibrations(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 8: receipts outlive the calibrations of their answers."""
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes", versions="30 days").add([Document("a", "signal lamp")])
        answers = []
        for origin in ("the first labels", "the second labels", "the third labels"):
            workspace.keep_calibration("notes", Calibration(origin, documents=1))
            answers.append(workspace.search("signal", refuse=False))
        for answer in answers:
            yield "Python: replay", workspace.replay(str(answer.receipt)).to_dict()["hits"] == answer.to_dict()["hits"]


def alone_or_among_others(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 13: the default embedder gives a text the same vector, alone or among others."""
    embedder = pointsman.default_embedder()
    texts = [f"signal lamp number {number}" for number in range(20)]
    alone = np.concatenate([embedder.embed_queries([text]) for text in texts])
    yield "Python: 20 questions", bool(np.array_equal(embedder.embed_queries(texts), alone))


ROWS: Final[dict[int, Case]] = {
    6: hidden_times,
    8: kept_calibrations,
    13: alone_or_among_others,
}


def main(chosen: list[str]) -> int:
    """Try the rows; return 1 if one is wrong."""
    wrong = 0
    for row in map(int, chosen) if chosen else sorted(ROWS):
        with tempfile.TemporaryDirectory() as folder:
            wrong += print_cases(row, ROWS[row](Path(folder)))
    return outcome(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
