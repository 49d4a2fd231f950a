"""What starting costs, each in fresh processes: ``python benchmarks/startup.py [--runs 15]``.

Medians of wall time and the least of them; the interpreter's own start is measured alike and taken off the imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

SCRIPT = Path(sys.executable).with_name("pointsman")


def seconds(command: list[str], runs: int) -> list[float]:
    taken = []
    for _ in range(runs + 1):
        began = perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(perf_counter() - began)
    return taken[1:]  # the first one fills caches


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=15)
    runs = arguments.parse_args().runs
    table = Table("what", "median", "least", "reach", "met")
    bare = seconds([sys.executable, "-c", "pass"], runs)
    table.add_row("python -c pass", f"{median(bare):.3f} s", f"{min(bare):.3f} s")
    for what, command, reach, base in (
        ("import pointsman", [sys.executable, "-c", "import pointsman"], 0.15, bare),
        ("from pointsman import Workspace", [sys.executable, "-c", "from pointsman import Workspace"], None, bare),
        ("pointsman --help", [str(SCRIPT), "--help"], 0.4, [0.0]),
        ("pointsman --version", [str(SCRIPT), "--version"], None, [0.0]),
    ):
        taken = [one - median(base) for one in seconds(command, runs)]
        met = "" if reach is None else "[green]yes" if median(taken) < reach else "[red]no"
        table.add_row(what, f"{median(taken):.3f} s", f"{min(taken):.3f} s", f"< {reach} s" if reach else "", met)
    Console().print(table)


if __name__ == "__main__":
    main()
