"""What one search costs beside the index calls in it: ``python benchmarks/search.py [CHECKOUT]``.

Ten documents, a warm workspace of one dataset, an embedder of one's own: nothing but the way through the library. For a
plain search, one where access is on, and one with an unknown word, prints how many files of the library it enters, how
many moves it makes (two calls in a row, in one thread, in different files), how many functions it enters, how many
calls it makes, and how many SQL statements it asks; then the median of `Workspace.search` over that of the two bare
index calls in the same run. With CHECKOUT, the same of the library in another working tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np

import pointsman
from pointsman import Document, Workspace
from profile_kit import Profile

QUESTION, UNKNOWN = "railway switch", "railway swich"
STAFF = ["group:staff"]


class Letters:
    """Vectors of the counts of letters."""

    name, dimensions = "letters", 26

    def embed_documents(self, texts: Sequence[str]) -> Any:
        """Return one row for each text."""
        counts = [[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        return np.array(counts, np.float32) / np.linalg.norm(counts, axis=1, keepdims=True)

    embed_queries = embed_documents


@contextmanager
def searches() -> Iterator[tuple[dict[str, Callable[[], Any]], Workspace]]:
    """Yield the searches by name, each of them warm, and the plain workspace."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        embedder = Letters()
        workspace, restricted = (
            stack.enter_context(pointsman.open(folder / name, embedder=embedder)) for name in ("open", "restricted")
        )
        documents = [Document(f"d{number}", f"a railway switch guides trains to {number}") for number in range(10)]
        workspace.dataset("notes").add(documents)
        restricted.dataset("notes").add(documents, access=STAFF)
        restricted.dataset("notes").add([Document("pay", "what the switch tender earns")], access=["group:office"])
        restricted.switch_access(on=True)
        ways: dict[str, Callable[[], Any]] = {
            "plain": lambda: workspace.search(QUESTION, 4),
            'effort="fast", rerank=False': lambda: workspace.search(QUESTION, 4, effort="fast", rerank=False),
            "access on": lambda: restricted.search(QUESTION, 4, principals=STAFF),
            "unknown word": lambda: workspace.search(UNKNOWN, 4),
        }
        for search in ways.values():
            for _ in range(3):  # the first one also measures the dataset's background
                search()
        yield ways, workspace


def milliseconds(*calls: Callable[[], Any], times: int = 1000) -> list[float]:
    """The median of each call; they take turns, so that whatever else the machine does slows all of them alike."""
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(times):
        for call, each in zip(calls, spent, strict=True):
            began = perf_counter()
            call()
            each.append(perf_counter() - began)
    return [median(each) * 1e3 for each in spent]


def main() -> None:
    """Measure, and print."""
    print(f"{Path(pointsman.__file__).parent}")
    with searches() as (ways, workspace):
        dataset = workspace.dataset("notes")
        store: Any = dataset.make()
        collection = store.collection
        vectors, vector = collection.vectors, dataset.embedder.embed_queries([QUESTION])[0]
        print(f"{'':30}{'files':>6}{'moves':>7}{'functions':>11}{'calls':>7}{'SQL':>5}{'p50':>10}{'ratio':>7}")
        for name, search in ways.items():
            profile = Profile(search)
            statements = profile.calls["Truth._row"] + profile.calls["Truth._rows"]
            counts = f"{len(profile.files):6}{profile.moves:7}{len(profile.calls):11}{profile.calls.total():7}"
            bare, spent = milliseconds(
                lambda: (collection.keyword.search(QUESTION, 100), vectors.search(vector, 100)), search
            )
            print(f"{name:30}{counts}{statements:5}{spent:7.2f} ms{spent / bare:7.1f}")
        print(f"{'the two bare index calls':66}{bare:7.2f} ms{1:7.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        source = Path(sys.argv[1]).resolve() / "src"
        sys.exit(
            subprocess.run(
                [sys.executable, __file__], env={**os.environ, "PYTHONPATH": str(source)}, check=False
            ).returncode
        )
    main()
