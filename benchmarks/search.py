"""What one search costs beside the index calls in it: ``python benchmarks/search.py``.

Ten documents, a warm workspace, the hashing embedder: nothing but the way through the library. Prints the median of
`Workspace.search` over that of the two bare index calls in the same run, how many files of the library a search
enters, and how many SQL statements it asks.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from types import FrameType
from typing import Any

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.local_store import LocalStore
from pointsman.store.local.truth.truth_rows import Truth

QUESTION = "how does a railway switch guide trains?"


def entered(search: Callable[[], Any]) -> tuple[int, int]:
    """How many files and functions of the library a call enters, in any thread."""
    files: Counter[str] = Counter()
    functions = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/pointsman/" in code.co_filename and "/src/" in code.co_filename:
            files[code.co_filename] += 1
            functions.add((code.co_filename, code.co_name))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        search()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(files), len(functions)


def statements(search: Callable[[], Any]) -> int:
    """How many SQL statements a call asks."""
    count = 0
    originals = {name: getattr(Truth, name) for name in ("_row", "_rows")}

    def counted(name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            return originals[name](*arguments)

        return ask

    for name in originals:
        setattr(Truth, name, counted(name))
    try:
        search()
    finally:
        for name, original in originals.items():
            setattr(Truth, name, original)
    return count


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
    embedder = HashingEmbedder()
    with tempfile.TemporaryDirectory() as folder, pointsman.open(Path(folder) / "work", embedder=embedder) as workspace:
        notes = workspace.dataset("notes")
        notes.add([Document(f"d{number}", f"a railway switch guides trains to track {number}") for number in range(10)])
        store = notes.make()
        assert isinstance(store, LocalStore)
        collection = store.collection
        vectors, vector = collection.vectors, embedder.embed_queries([QUESTION])[0]
        assert vectors is not None
        ways: dict[str, Callable[[], Any]] = {
            "workspace.search": lambda: workspace.search(QUESTION, 5),
            'effort="fast", rerank=False': lambda: workspace.search(QUESTION, 5, effort="fast", rerank=False),
            "the same, refuse=False": lambda: workspace.search(QUESTION, 5, effort="fast", rerank=False, refuse=False),
        }
        print(f"{'':30}{'p50':>9}{'ratio':>7}{'files':>7}{'functions':>11}{'SQL':>5}")
        for name, search in ways.items():
            search()
            files, functions = entered(search)
            asked = statements(search)
            bare, spent = milliseconds(
                lambda: (collection.keyword.search(QUESTION, 100), vectors.search(vector, 100)), search
            )
            print(f"{name:30}{spent:6.2f} ms{spent / bare:7.1f}{files:7}{functions:11}{asked:5}")
        print(f"{'the two bare index calls':30}{bare:6.2f} ms{1:7.1f}")


if __name__ == "__main__":
    main()
