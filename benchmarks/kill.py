"""Kill a writer again and again, and check the dataset each time: ``python benchmarks/kill.py [--kills 200]``.

A process adds, updates and deletes documents without end and says what it is about to do and what has returned; it gets
SIGKILL at a random moment. Then the dataset is opened: everything acknowledged must be there exactly, nothing
acknowledged as deleted may be back, the one call that was cut short is there as a whole or not at all, both indexes
find every document, and ``verify`` has nothing to say. The first disagreement ends the run with an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kill_kit import Killing


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    console, began = Console(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(Path(folder), options.seed)
        for number in track(range(options.kills), "killing", console=console):
            killing.once(number)
    console.print(
        f"{options.kills} kills in {time.monotonic() - began:.0f} s: "
        f"{killing.acknowledged} calls acknowledged, all kept; "
        f"{killing.cut_short} cut short, of which {killing.kept} had been committed; verify found no disagreement"
    )


if __name__ == "__main__":
    main()
