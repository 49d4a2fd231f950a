"""Two processes and one name: make, add, describe, search, drop and restore in random orders, at once.

    python benchmarks/two_processes.py [--interleavings 1000] [--on store|workspace|service]

Each process runs a random script of five steps with random pauses, over and over, and goes on with what it has open.
After each pair of scripts the dataset is opened by a third process. Promised, and checked:

- the loser of a race is told so (``LockedError``, ``ReplacedError``, ``UnknownNameError``) and nothing else is raised;
- what was acknowledged to be in the dataset that there is now is in it, its stores agree, and nothing is gone that
  nobody has dropped;
- no file is left of what was dropped or half made.

On a service, three clients do it through three workers, each request over a connection of its own: no answer of 500,
nothing acknowledged lost, and every dataset verifies.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from two_kit import Two, Workers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interleavings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=("store", "workspace", "service"), default="store")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        service = options.on == "service"
        two = Workers(Path(folder), options.seed) if service else Two(Path(folder), options.seed, options.on)
        for number in range(options.interleavings):
            two.interleave(number)
        two.close()
    for outcome, count in sorted(two.outcomes.items()):
        print(f"{count:6} {outcome}")
    for problem in two.problems[:20]:
        print(f"VIOLATION {problem[:300]}")
    print(f"{options.interleavings} interleavings in {time.monotonic() - began:.0f} s: {len(two.problems)} violations")
    return 1 if two.problems else 0


if __name__ == "__main__":
    sys.exit(main())
