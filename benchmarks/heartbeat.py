"""How long a first search keeps the event loop from other work: ``python benchmarks/heartbeat.py [--documents 20000]``.

A task beats every millisecond while `Workspace.asearch` answers its first question, with vectors that were imported
(so that their background has still to be measured) and an embedder that sleeps ten seconds for each batch. Prints when
the answer came under a limit of half a second, what it says is missing, and the longest pause between two beats. Exit
status 1: it came later than 1.5 seconds, or the loop paused for 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pointsman
from pointsman import Document, RetrievalContext
from pointsman.embedders.scripted_embedders import HashingEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LIMIT, LATEST, PAUSE = 0.5, 1.5, 0.05  # seconds


class SleepingEmbedder(HashingEmbedder):
    """Takes ``seconds`` for each batch."""

    seconds = 0.0

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `HashingEmbedder`."""
        time.sleep(self.seconds)
        return super().embed_queries(texts)


async def longest_pause(search: asyncio.Task[RetrievalContext]) -> float:
    """Beat until the search ends; return the longest time between two beats."""
    longest, last = 0.0, perf_counter()
    while not search.done():
        await asyncio.sleep(0.001)
        now = perf_counter()
        longest, last = max(longest, now - last), now
    return longest


async def first_search(workspace: pointsman.Workspace) -> tuple[RetrievalContext, float, float]:
    """Return the answer, the seconds it took, and the longest pause."""
    began = perf_counter()
    search = asyncio.create_task(workspace.asearch("how does a railway switch guide trains?", 5, timeout=LIMIT))
    pause = await longest_pause(search)
    return await search, perf_counter() - began, pause


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    count: int = parser.parse_args().documents
    embedder = SleepingEmbedder()
    with tempfile.TemporaryDirectory() as folder:
        documents = [Document(f"d{number}", f"a railway switch guides trains to {number}") for number in range(count)]
        with pointsman.open(Path(folder) / "work", embedder=embedder) as workspace:
            vectors = embedder.embed_documents([document.text for document in documents])
            workspace.dataset("rails").add(documents, vectors=vectors)
        embedder.seconds = 10.0
        with pointsman.open(Path(folder) / "work", embedder=embedder) as workspace:
            answer, seconds, pause = asyncio.run(first_search(workspace))
    print(f"answered after {seconds * 1000:.0f} ms (limit {LIMIT * 1000:.0f}) with {len(answer.hits)} hits")
    print("".join(f"  {note}\n" for note in answer.degraded), end="")
    print(f"longest pause of the event loop: {pause * 1000:.1f} ms")
    return int(seconds > LATEST or pause > PAUSE)


if __name__ == "__main__":
    sys.exit(main())
