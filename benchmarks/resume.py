"""A long ``add`` that is killed again and again, and goes on behind its own report.

    python benchmarks/resume.py [--documents 200000] [--kills 5] [--batch 2000]

A process adds documents with ``add(batch_size=, on_commit=)`` and writes down what it was told; it gets SIGKILL at a
random moment. The next one goes on behind what was written down last. At the end every document is there once, as it
was given, and the dataset verifies; embedded twice is only what was committed and not yet told, or not yet committed.

Exit status 1: something is missing, or more than two batches a kill were embedded twice.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.embedders.base_embedder import Progress
    from pointsman.values.types import AddResult

WORDS = ("signal", "lamp", "train", "brake", "lever", "points", "track", "bridge", "driver", "guard")


def documents(start: int, end: int) -> Iterator[Document]:
    """Documents that follow from their numbers."""
    for number in range(start, end):
        text = f"note {number} " + " ".join(WORDS[number // 10**place % 10] for place in range(6))
        yield Document(f"d{number}", text)


class CountingEmbedder(HashingEmbedder):
    """Notes in a file how many texts it was given."""

    def __init__(self, notes: Path) -> None:
        super().__init__(16)
        self._notes = notes

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """As ever, and counted."""
        with self._notes.open("a") as file:
            file.write(f"{len(texts)}\n")
        return super().embed_documents(texts, on_progress=on_progress)


def work(folder: Path, total: int, batch: int) -> None:
    """Go on behind what was written down."""
    report = folder / "report"
    done = int(report.read_text().split()[-1]) if report.exists() else 0
    with Workspace(folder / "w", embedder=CountingEmbedder(folder / "embedded")) as workspace, report.open("a") as file:

        def told(so_far: AddResult) -> None:
            file.write(f"{done + so_far.added + so_far.unchanged + so_far.updated}\n")
            file.flush()

        workspace.dataset("notes").add(documents(done, total), batch_size=batch, on_commit=told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work), options.documents, options.batch)
        return 0
    chance, began = random.Random(1), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, __file__, "--work", name, "--documents", f"{options.documents}"]
        command += ["--batch", f"{options.batch}"]
        kills = 0
        while True:
            environment = {**os.environ, "POINTSMAN_CACHE": str(folder / "cache")}  # the vectors of this run alone
            with subprocess.Popen(command, env=environment) as process:
                before = _told(folder)
                steps = chance.randrange(1, 1 + max(1, options.documents // options.batch // (options.kills + 1)))
                while kills < options.kills and process.poll() is None:
                    if _told(folder) >= before + steps:
                        time.sleep(chance.uniform(0, 0.2))
                        process.kill()
                        kills += 1
                        break
                    time.sleep(0.01)
                if process.wait() == 0:
                    break
        seconds = time.monotonic() - began
        with Workspace(folder / "w", embedder=HashingEmbedder(16)) as workspace:
            notes = workspace.dataset("notes", create=False)
            report = notes.verify()
            wanted = {one.id: one.text for one in documents(0, options.documents)}
            same = {one.id: one.text for one in notes} == wanted
        embedded = sum(map(int, (folder / "embedded").read_text().split()))
    twice = embedded - options.documents
    print(
        f"{options.documents:,} documents in batches of {options.batch:,}, {kills} kills, {seconds:.0f} s: "
        f"{report.documents:,} there, {'all as given' if same else 'NOT as given'}, {len(report.problems)} problems, "
        f"{twice:,} embedded twice"
    )
    return 0 if same and not report.problems and twice <= 2 * options.batch * kills else 1


def _told(folder: Path) -> int:
    report = folder / "report"
    return len(report.read_text().split()) if report.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
