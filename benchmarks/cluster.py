"""Indexing by workers that are killed at random: ``python benchmarks/cluster.py``.

Workers run on this machine as processes of their own. First one worker and then all index the same files, which gives
the speed-up to compare with the number of cores. Then workers are killed with ``SIGKILL`` at random moments, and
started again at the same address, ``--kills`` times in all, over as many runs into fresh datasets as that takes. Each
dataset must hold every passage once, with the vector that one process computes.

Exit status 1: a passage or vector was missing, doubled or different.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from _passages import passages

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cluster_kit import KEY, WorkerProcesses
from pointsman import Workspace
from pointsman.embedders import load_embedder
from pointsman.ingest import FileReader, FoundFile, find_files
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.indexing.indexing_cluster import IndexingCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.workspace.dataset import Dataset

DATASET = "passages"


def write_files(folder: Path, count: int) -> None:
    """Write files of ten passages each."""
    folder.mkdir()
    texts = [document.text for document in passages(count)]
    for first in range(0, count, 10):
        (folder / f"{first:07}.txt").write_text("\n\n".join(texts[first : first + 10]), "utf-8")


def reading_rate(files: Path) -> float:
    """Return how many passages are read and split in a second of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with FileReader() as reader:
        text_files = [file for file in find_files([files]) if isinstance(file, FoundFile)]
        count = sum(len(part.documents) for file in text_files for part in reader.read(file))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return count / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def content(dataset: Dataset) -> dict[str, tuple[str, bytes]]:
    """Return the text and the vector of each passage."""
    ids = dataset.ids()
    assert len(ids) == len(set(ids)) == len(dataset)
    stored = zip(ids, dataset.get_many(ids), dataset.get_vectors(ids), strict=True)
    return {
        id_: (document.text, b"" if vector is None else vector.tobytes())
        for id_, document, vector in stored
        if document is not None
    }


def killing(workers: WorkerProcesses, stop: threading.Event, chance: random.Random, limit: int) -> int:
    """Kill a worker every now and then, at most ``limit`` times; return how many were killed."""
    count = 0
    while count < limit and not stop.wait(chance.uniform(0.2, 2.0)):
        workers.restart(chance.randrange(len(workers.processes)))
        count += 1
    return count


def indexed(
    folder: Path,
    files: Path,
    workers: WorkerProcesses,
    embedder: str,
    when_connected: Callable[[], None] = lambda: None,
) -> tuple[float, dict[str, tuple[str, bytes]]]:
    """Index files on a cluster into a fresh dataset; return the seconds and what is stored."""
    with Workspace(folder, embedder=load_embedder(embedder)) as workspace:
        dataset = workspace.dataset(DATASET)
        began = perf_counter()
        with IndexingCluster(workers.addresses, KEY) as cluster:
            when_connected()
            index_paths(dataset, [files], cluster=cluster)
        return perf_counter() - began, content(dataset)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--embedder", default="default")
    arguments = parser.parse_args()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="pointsman-cluster-") as scratch:
        root = Path(scratch)
        write_files(root / "files", arguments.passages)
        print(f"reading and splitting alone: {reading_rate(root / 'files'):.0f} passages a second of processor time")
        seconds: dict[int, float] = {}
        for workers in dict.fromkeys((1, arguments.workers)):
            with WorkerProcesses(root / "files", workers, arguments.embedder) as processes:
                seconds[workers], expected = indexed(
                    root / f"whole-{workers}", root / "files", processes, arguments.embedder
                )
        count = len(expected)
        print(f"{count} passages: 1 worker {count / seconds[1]:.1f}/s", end="")
        print(f", {arguments.workers} workers {count / seconds[arguments.workers]:.1f}/s", end="")
        print(f": {seconds[1] / seconds[arguments.workers]:.2f} times on {os.cpu_count()} cores")
        return _kill(root, expected, chance, arguments)


def _kill(
    root: Path, expected: dict[str, tuple[str, bytes]], chance: random.Random, arguments: argparse.Namespace
) -> int:
    killed = run = wrong = 0
    while killed < arguments.kills:
        run += 1
        with WorkerProcesses(root / "files", arguments.workers, arguments.embedder) as processes:
            stop, counts = threading.Event(), list[int]()
            limit = arguments.kills - killed
            killer = threading.Thread(
                target=lambda: counts.append(killing(processes, stop, chance, limit))  # noqa: B023  (joined below)
            )
            try:
                _, stored = indexed(
                    root / f"run-{run}", root / "files", processes, arguments.embedder, when_connected=killer.start
                )
            finally:
                stop.set()
                killer.join()
        killed += counts[0]
        differing = sum(stored.get(id_) != expected.get(id_) for id_ in stored.keys() | expected.keys())
        wrong += differing
        print(
            f"run {run}: {counts[0]} workers killed, {len(stored)} passages, {differing} missing or wrong", flush=True
        )
    print(f"{killed} workers killed: {wrong} passages missing, doubled or wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
