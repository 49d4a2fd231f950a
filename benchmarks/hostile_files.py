"""Files that explode, each read within its limits: worst time, memory and growth of each format.

    python benchmarks/hostile_files.py [--megabytes 10] [--kind docx]

``s`` is the whole reading, from asking to the last passage, ``cpu s`` what the converting process took. ``MB`` is the
larger of the greatest resident size of that process and of what reading adds to this one. ``growth`` is what would be
stored, texts and all that passages repeat of titles, headings and fields, over the larger of file and text; ``small``
is the rest of the metadata: ids, paths, digests and numbers, in bytes a passage.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hostile_files_kit import HOSTILE
from pointsman.ingest import FileReader, FoundFile

SMALL = ("source", "sha256", "kind", "start", "end", "parent", "position", "page", "line", "last_line", "language")


class Figures(NamedTuple):
    """What one file costs."""

    seconds: float
    cpu: float
    megabytes: float
    growth: float
    small: float


def peak_of_children(stop: threading.Event, peaks: list[int]) -> None:
    """The greatest resident size of this process's children, looked at every 20 ms."""
    me = psutil.Process()
    while not stop.wait(0.02):
        for child in me.children():
            try:
                peaks[0] = max(peaks[0], child.memory_info().rss)
            except psutil.NoSuchProcess:
                continue


def length(value: object) -> int:
    if isinstance(value, dict):
        return sum(len(key) + length(item) for key, item in value.items())
    return sum(map(length, value)) if isinstance(value, list) else len(str(value).encode("utf-8", "replace"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--kind", choices=sorted(HOSTILE), action="append")
    parser.add_argument("--each", action="store_true", help="print a line for each file")
    arguments = parser.parse_args()
    size = int(arguments.megabytes * 1_000_000)
    print(f"{'format':7}{'files':>6}{'s':>7}{'cpu s':>7}{'MB':>7}{'growth':>8}{'small':>7}  not read to the end")
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.kind or HOSTILE:
            worst = Figures(0, 0, 0, 0, 0)
            reasons: Counter[str] = Counter()
            for number, generate in enumerate(HOSTILE[kind]):
                path = Path(folder, f"{number:02}.{kind}")
                path.write_bytes(generate(size))
                figures, problems = measure(path)
                path.unlink()
                reasons.update(problems)
                worst = Figures(*map(max, worst, figures))
                if arguments.each:
                    print(f"{number:13}{line(figures)}  {'; '.join(problems)[:90]}", flush=True)
            stopped = ", ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
            print(f"{kind:7}{len(HOSTILE[kind]):6}{line(worst)}  {stopped}", flush=True)


def line(figures: Figures) -> str:
    return f"{figures.seconds:7.1f}{figures.cpu:7.1f}{figures.megabytes:7.0f}{figures.growth:8.2f}{figures.small:7.0f}"


def measure(path: Path) -> tuple[Figures, list[str]]:
    """What reading a file costs, and why it was not read to its end, if it was not."""
    stop, peaks = threading.Event(), [0]
    watcher = threading.Thread(target=peak_of_children, args=(stop, peaks))
    watcher.start()
    began, before = time.monotonic(), psutil.Process().memory_info().rss
    cpu = children_seconds()
    copied = small = count = grown = 0
    end = path.stat().st_size
    reasons = []
    with FileReader() as reader:
        for part in reader.read(FoundFile(path, path.name, end)):
            for document in part.documents:
                count += 1
                end = max(end, document.metadata["end"])
                metadata = dict(document.metadata)
                present = [key for key in SMALL if key in metadata]
                small += len(document.id) + sum(len(key) + length(metadata.pop(key)) for key in present)
                copied += length(document.text) + length(metadata)
            grown = max(grown, psutil.Process().memory_info().rss - before)
            if part.is_stopped and part.problems:
                reasons.append(part.problems[-1].reason.partition(":")[0].partition(";")[0][:60])
    seconds = time.monotonic() - began
    stop.set()
    watcher.join()
    cpu = children_seconds() - cpu
    return Figures(seconds, cpu, max(peaks[0], grown) / 1e6, copied / end, small / max(count, 1)), reasons


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
