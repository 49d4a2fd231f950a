"""Concurrent writers of two documents: add, replace, embed later, set_metadata with titles, delete, read; all at once.

    python benchmarks/orders.py [--at folder|postgresql|opensearch] [--by threads|processes|services]
                                [--interleavings 10000] [--minutes 60] [--seed 1]

Three writers run a random script of two steps each, over and over: threads that share a dataset, processes with a
workspace each, or clients of a service with three workers. What every step was answered, and the text, metadata and
vector that are left, must be what some order of the steps gives (linearizability). So nothing that was acknowledged is
lost, nothing that was deleted comes back, and no vector belongs to another text. A folder is verified every 500 times.

Exit status 1: an outcome is that of no order.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from orders_kit import KINDS, Orders


@contextlib.contextmanager
def workspace(at: str) -> Iterator[str]:
    """A workspace in a temporary folder, or on a server started for it."""
    if at == "folder":
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/workspace"
        return
    if at == "postgresql":
        from postgres_kit import PostgresServer

        server = PostgresServer()
        try:
            yield server.url
        finally:
            server.stop()
        return
    from opensearch_kit import Cluster

    cluster = Cluster(1)
    try:
        yield f"{cluster.url}/orders?shards=1&replicas=0"
    finally:
        cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", choices=("folder", "postgresql", "opensearch"), default="folder")
    parser.add_argument("--by", choices=tuple(KINDS), default="threads")
    parser.add_argument("--interleavings", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="end after so many, and tell how far it came")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with workspace(options.at) as place:
        orders, began = Orders(place, options.by, options.seed), time.monotonic()
        count = 0
        while count < options.interleavings and time.monotonic() < began + 60 * options.minutes:
            orders.interleave(count)
            count += 1
        orders.close()
    for answer, times in sorted(orders.answers.items()):
        print(f"{times:7} {answer}")
    for violation in orders.violations[:20]:
        print(f"VIOLATION {violation[:1000]}")
    seconds = time.monotonic() - began
    print(
        f"{count} interleavings by {options.by} at {options.at} in {seconds:.0f} s: {len(orders.violations)} violations"
    )
    return 1 if orders.violations else 0


if __name__ == "__main__":
    sys.exit(main())
