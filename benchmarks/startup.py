"""What starting costs, each in fresh processes, and how much is installed.

    python benchmarks/startup.py [--runs 15] [--install]

Prints medians of the time on the clock and of the processor time, in seconds. On a machine that others use too, go by
the processor time: nothing here waits for anything else. The interpreter's own start is measured alike and taken off
the imports. With ``--install`` this checkout is installed into a virtual environment of its own, without extras; its
size and its packages are printed, and everything else is measured there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
QUESTION = "how much may a hotel cost?"
console = Console(width=100)


class Seconds(NamedTuple):
    """The time of one process and its children, in seconds: on the clock and of the processors."""

    clock: float
    processor: float


def seconds(*commands: list[str], folder: Path, cache: Path | None = None) -> Seconds:
    """Run commands one after the other, and return what they took together."""
    environment = os.environ | ({"POINTSMAN_CACHE": str(cache)} if cache else {})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else whatever pip did not compile is compiled in every process
    clock = processor = 0.0
    for command in commands:
        began = perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        clock += perf_counter() - began
        processor += usage.ru_utime + usage.ru_stime
    return Seconds(clock, processor)


def medians(command: list[str], folder: Path, runs: int) -> Seconds:
    taken = [seconds(command, folder=folder) for _ in range(runs + 1)][1:]  # the first one fills caches
    return Seconds(median(one.clock for one in taken), median(one.processor for one in taken))


def install(folder: Path) -> Path:
    """Install this checkout into an environment of its own, print its size, and return its programs."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    command = [str(environment / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    began = perf_counter()
    subprocess.run([*command, str(ROOT)], check=True)
    console.print(f"installation, wheels as they are in pip's cache: {perf_counter() - began:.1f} s")
    (packages,) = environment.glob("lib/python*/site-packages")
    sizes = {
        f"{package.metadata['Name']} {package.version}": sum(
            on_disk(Path(str(package.locate_file(file)))) for file in package.files or ()
        )
        for package in distributions(path=[str(packages)])
    }
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
        console.print(f"  {size / 1e6:6.1f} MB  {name}", highlight=False)
    whole = sum(map(on_disk, environment.rglob("*")))
    console.print(f"{len(sizes)} packages; the environment takes {whole / 1024**2:.0f} MB on disk (450 allowed)")
    return environment / "bin"


def on_disk(path: Path) -> int:
    """Bytes that a file or folder takes, in whole blocks; 0 for what is not there."""
    return path.lstat().st_blocks * 512 if path.is_symlink() or path.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--install", action="store_true", help="into an environment of its own first")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        programs = install(folder) if arguments.install else Path(sys.executable).parent
        measure(programs, folder, arguments.runs)


def measure(programs: Path, folder: Path, runs: int) -> None:
    """Print the table of times."""
    python, pointsman = str(programs / "python"), str(programs / "pointsman")
    (folder / "files").mkdir()
    (folder / "files" / "travel.md").write_text("# Travel\n\n## Hotels\n\nA night may cost 120 euros at most.\n")
    for page in (ROOT / "docs").glob("*.md"):
        (folder / "files" / page.name).write_bytes(page.read_bytes())
    table = Table("what", "on the clock, s", "processor, s", "reach", "met on the clock")

    def row(what: str, taken: Seconds, reach: float | None = None) -> None:
        met = "" if reach is None else "yes" if taken.clock <= reach else "no"
        table.add_row(what, f"{taken.clock:.2f}", f"{taken.processor:.2f}", f"{reach} s" if reach else "", met)

    ask = [pointsman, "search", QUESTION]
    one = [pointsman, "index", "files/travel.md", "--dataset", "one", "--workspace", "one"]
    first = seconds(one, [*ask, "--workspace", "one"], folder=folder, cache=folder / "cache")
    subprocess.run([pointsman, "index", "files", "--dataset", "files"], check=True, cwd=folder, capture_output=True)
    bare = medians([python, "-c", "pass"], folder, runs)
    row("python -c pass", bare)
    for what, command, reach in (
        ("import pointsman", "import pointsman", 0.15),
        ("from pointsman import Workspace", "from pointsman import Workspace", None),
    ):
        taken = medians([python, "-c", command], folder, runs)
        row(what, Seconds(taken.clock - bare.clock, taken.processor - bare.processor), reach)
    row("pointsman --help", medians([pointsman, "--help"], folder, runs), 0.4)
    row("pointsman --version", medians([pointsman, "--version"], folder, runs))
    row("pointsman search, 30 files", medians(ask, folder, runs), 1.0)
    row("first answer: index a file and search, nothing cached", first, 7.0)
    console.print(table)
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
