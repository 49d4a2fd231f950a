"""Kill the service while documents stream in, again and again: ``python benchmarks/server_kill.py [--kills 20]``.

`pointsman serve` takes documents as lines over one request and answers with totals of what is durable; it gets SIGKILL
at a random moment. Then the workspace is opened: every document acknowledged must be there as it was sent, whatever
else is there must be whole, and ``verify`` has nothing to say. The first disagreement ends the run with an error.
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

from server_kill_kit import ServerKilling


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    console, began = Console(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        killing = ServerKilling(Path(folder) / "workspace", options.seed, "--workers", str(options.workers))
        for _ in track(range(options.kills), "killing", console=console):
            killing.once()
    console.print(
        f"{options.kills} kills of {options.workers} worker(s) in {time.monotonic() - began:.0f} s: "
        f"{killing.acknowledged} documents acknowledged, all kept, {killing.found} found, each as sent; "
        "verify found no disagreement"
    )


if __name__ == "__main__":
    main()
