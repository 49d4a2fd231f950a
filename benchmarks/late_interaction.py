"""What late interaction costs a search: ``python benchmarks/late_interaction.py [--passages 10000] [--questions 60]``.

Vectors are given, as in `pair.py`. Each question is cold, and is asked by default, with ``rerank="late"`` and, apart,
its ten first texts are embedded; whichever comes first in turn. Prints the milliseconds of each, and what late
interaction adds over embedding the ten texts (asked for: at most 1.2 times).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pointsman
from _passages import VectorOfText, passages, questions, vectors
from pair import timed


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--passages", type=int, default=10_000)
    arguments.add_argument("--questions", type=int, default=60)
    options = arguments.parse_args()
    embedder = pointsman.default_embedder()
    milliseconds: dict[str, list[float]] = {"default": [], "late": [], "ten texts embedded": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        pointsman.open(Path(folder) / "index", embedder=VectorOfText()) as workspace,
    ):
        workspace.dataset("passages").add(list(passages(options.passages)), vectors=vectors(options.passages))
        for text in questions(10, "warm-up late"):
            workspace.search(text)
            workspace.search(text, rerank="late")
        for number, text in enumerate(questions(options.questions, "late")):
            texts = [hit.document.full_text for hit in workspace.search(f"{text} …", 10, refuse="never")]
            calls: list[tuple[str, Callable[[], object]]] = [
                ("default", lambda text=text: workspace.search(text)),  # type: ignore[misc]
                ("late", lambda text=text: workspace.search(text, rerank="late")),  # type: ignore[misc]
                ("ten texts embedded", lambda texts=texts: embedder.embed_documents(texts)),  # type: ignore[misc]
            ]
            for name, call in calls[number % 3 :] + calls[: number % 3]:
                milliseconds[name].append(timed(call))
    figures = {name: np.percentile(taken, [50, 95]) for name, taken in milliseconds.items()}
    for name, (median, late) in figures.items():
        print(f"{name:20}{median:9.1f} p50{late:9.1f} p95 ms")
    added = (figures["late"] - figures["default"]) / figures["ten texts embedded"]
    print(f"late - default, in times that the ten texts are embedded: {added[0]:.2f} p50, {added[1]:.2f} p95")
    return 0


if __name__ == "__main__":
    sys.exit(main())
