"""Attack the real service with every hostile request there is: ``python benchmarks/hostile.py [--rounds 1]``.

Each goes over a raw socket, byte by byte: oversized, deep, malformed, traversing, injecting, smuggling, with wrong
keys, and with good ones for what is another tenant's. Each has to end in a 4xx problem document, or, where it is no
HTTP, be refused by the HTTP server; nothing of the other tenant, of keys or of the machine may come back; and
afterwards the service has to answer as before. Exit status 1: something else happened.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hostile_kit import OPTIONS, OWN_DATASET, Attacks, assault, half_open, prepare, secrets
from server_kit import Served

HOW = ("problem", "problem in the stream", "by the HTTP server", "closed")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--half-open", type=int, default=500, metavar="N", help="connections that do not go on")
    options = arguments.parse_args()
    console, failed = Console(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys = prepare(folder)
        with Served(folder, *OPTIONS) as served:
            served.ready()
            address, hidden = ("127.0.0.1", served.port), secrets(folder, keys)
            memory = resident(served.process.pid)
            table = Table("kind", "requests", *HOW, "faults", box=None)
            began = time.perf_counter()
            verdicts = [
                one for _ in range(options.rounds) for one in assault(address, Attacks(keys).make_all(), hidden)
            ]
            took = time.perf_counter() - began
            for kind in dict.fromkeys(one.attack.kind for one in verdicts):
                those = [one for one in verdicts if one.attack.kind == kind]
                how, faults = Counter(one.outcome for one in those), sum(bool(one.faults) for one in those)
                table.add_row(kind, str(len(those)), *(str(how[one] or "") for one in HOW), str(faults))
            how = Counter(one.outcome for one in verdicts)
            faulty = [one for one in verdicts if one.faults]
            table.add_row("all", str(len(verdicts)), *(str(how[one]) for one in HOW), str(len(faulty)), style="bold")
            console.print(table)
            for one in faulty:
                console.print(
                    f"{one.attack.kind}: {one.attack.name}: {', '.join(one.faults)}", style="red", markup=False
                )
            waiting = half_open(address, options.half_open)
            began = time.perf_counter()
            status, answer = served.request(
                "POST", "/api/search", {"query": "railway switch"}, {"X-API-Key": keys.own_key}
            )
            beside = time.perf_counter() - began
            for connection in waiting:
                connection.close()
            healthy = status == 200 and {hit["dataset"] for hit in answer["hits"]} == {OWN_DATASET}
            errors = [line for line in served.lines() if line["level"] in {"error", "critical"}]
            console.print(f"{len(verdicts)} requests in {took:.1f} s; errors in the log: {len(errors)}")
            console.print(
                f"a search beside {len(waiting)} connections that do not go on: {status}, {beside * 1000:.0f} ms"
            )
            console.print(
                f"resident memory {memory / 1e6:.0f} MB before, {resident(served.process.pid) / 1e6:.0f} MB after"
            )
            failed = len(faulty) + len(errors) + (not healthy)
            served.stop()
    if failed:
        sys.exit(1)


def resident(process: int) -> int:
    """Bytes of a process in memory."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
