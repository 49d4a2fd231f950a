"""Two processes and one name: make, add, describe, search, drop and restore in random orders, at once.

    python benchmarks/two_processes.py [--interleavings 1000] [--on store|workspace|service]
    python benchmarks/two_processes.py --on storm [--at folder|postgresql] [--seconds 60]

Each process runs a random script of five steps with random pauses, over and over, and goes on with what it has open.
After each pair of scripts the dataset is opened by a third process. Promised, and checked:

- the loser of a race is told so (``LockedError``, ``ReplacedError``, ``UnknownNameError``) and nothing else is raised;
- what was acknowledged to be in the dataset that there is now is in it, its stores agree, and nothing is gone that
  nobody has dropped;
- no file is left of what was dropped or half made.

On a service, three clients do it through three workers, each request over a connection of its own: no answer of 500,
nothing acknowledged lost, and every dataset verifies.

In a storm, two clients of a service with three workers make, fill and drop one dataset without a pause, and three
others search it: every search finds the dataset as it is, or is answered that there is none.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from server_kit import Served
from two_kit import Two, Workers, request_of


def storm(at: str, seconds: float) -> int:
    """Make, fill and drop a dataset while others search it; print the answers by status."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        workspace: Path | str = Path(folder) / "workspace"
        if at == "postgresql":
            from postgres_kit import PostgresServer

            server = PostgresServer()
            stack.callback(server.stop)
            workspace = server.url
        served = stack.enter_context(Served(workspace, "--workers", "3", "--log-level", "error").ready())
        statuses: Counter[str] = Counter()
        end = time.monotonic() + seconds

        def repeat(*operations: str) -> None:
            while time.monotonic() < end:
                for operation in operations:
                    status, _ = served.request(*request_of(operation, "a"))
                    statuses[f"{operation}: {status}"] += 1

        writers = [threading.Thread(target=repeat, args=("make", "add", "drop")) for _ in range(2)]
        readers = [threading.Thread(target=repeat, args=("search",)) for _ in range(3)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in (*writers, *readers):
            thread.join()
        served.stop()
    for status, count in sorted(statuses.items()):
        print(f"{count:6} {status}")
    searches = {status: count for status, count in statuses.items() if status.startswith("search")}
    failed = sum(searches.values()) - searches.get("search: 200", 0) - searches.get("search: 404", 0)
    print(f"{sum(searches.values())} searches in a storm at {at}: {failed} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interleavings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=("store", "workspace", "service", "storm"), default="store")
    parser.add_argument("--at", choices=("folder", "postgresql"), default="folder", help="where a storm is")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a storm")
    options = parser.parse_args()
    if options.on == "storm":
        return storm(options.at, options.seconds)
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
