"""The service under load, at 100,000 passages: ``python benchmarks/server_load.py [--minutes 1] [--workspace DIR]``.

Builds a workspace of 100,000 passages (or takes the one at DIR, if there is one; see `benchmarks/store.py` for what the
passages are), starts ``pointsman serve`` over it as a process of its own, and measures

- the start, to the first answer of a search;
- one search after another over one connection, in turns with the library's own search in this process: what HTTP adds;
- many at once, by wrk (Debian package ``wrk``), where the query's vector is known, and where it has to be made;
- the service's memory before and after;
- SIGTERM while 64 clients search and add: what was acknowledged, and what became of it.

Client, library and service share one machine; the figures are those of all of them together.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from time import perf_counter, sleep

import httpx
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pointsman import Document, Workspace
from server_kit import Served, ask
from store import clustered, passages, queries

NAME = "passages"
PATH = "/api/search"
SEQUENTIAL = 400  # searches one after another, of each kind
TURN = 25  # of them at a stretch by the library, then by the service; the first two of each do not count
CLIENTS = 64
OPEN = ("--limit", "queue=1000", "--limit", "queue_seconds=30", "--log-level", "warning")

LUA = """
local queries = {%s}
local number, thread = 0, 0
function setup(one) thread = thread + 1; one:set("seed", thread * 1000000) end
function request()
  number = number + 1
  local query = queries[(seed + number * 7919) %% #queries + 1]
  if %s then query = query .. " " .. (seed + number) end
  local body = '{"k": 5, "refuse": false, "query": "' .. query .. '"}'
  return wrk.format("POST", "%s", {["Content-Type"] = "application/json"}, body)
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("\\nRESULT %%d %%.3f %%.3f %%.3f %%d %%d\\n", summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--passages", type=int, default=100_000)
    arguments.add_argument("--workspace", type=Path)
    arguments.add_argument("--minutes", type=float, default=1.0, help="of wrk with vectors known; a third without")
    arguments.add_argument("--connections", type=int, default=16)
    arguments.add_argument("--workers", type=int, default=1)
    options = arguments.parse_args()
    table = Table("what", "figure", "reach", "met", title=f"{options.passages:,} passages, {options.workers} worker(s)")
    with _folder(options.workspace) as folder:
        asked = build(folder, options.passages)
        serving = ["--workers", str(options.workers), *OPEN]
        starting(table, folder, serving, asked[0])
        with Served(folder, *serving, embedder="default") as served:
            served.ready()
            if options.workers == 1:
                overhead(table, served, folder, asked)
            load(table, served, asked, options)
        stopping(table, folder, serving, asked)
    Console().print(table)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made) / "workspace"


def build(folder: Path, number: int) -> list[str]:
    """Make the workspace unless it is there, and questions out of its passages."""
    with Workspace(folder) as workspace:
        dataset = workspace.dataset(NAME, description="passages of mixed collections")
        if not len(dataset):
            dataset.add(passages(number), vectors=clustered(number))
        if "added" in workspace.names():
            workspace.drop("added")
        workspace.dataset("added", indexing_technique="keyword")
        chosen = random.Random(1).sample(range(number), min(number, 2000))
        found = [dataset.get(f"passage-{one}") for one in chosen]
        return [re.sub(r"[^\w ]", " ", text) for text in queries([one for one in found if one is not None], 6)]


def row(table: Table, what: str, figure: str, reach: str = "", met: bool | None = None) -> None:
    table.add_row(what, figure, reach, "" if met is None else "[green]yes" if met else "[red]no")


def body(query: str) -> dict[str, object]:
    return {"query": query, "k": 5, "refuse": False}


def percentile(taken: Sequence[float], share: float) -> float:
    return sorted(taken)[min(len(taken) - 1, int(share * len(taken)))]


def starting(table: Table, folder: Path, serving: Sequence[str], query: str) -> None:
    """From the start of the process to the first search answered, three times; files are in the system's cache."""
    taken = []
    for _ in range(3):
        with Served(folder, *serving, embedder="default") as served:
            while not served.port:
                sleep(0.005)
            while True:
                with suppress(OSError, http.client.HTTPException):
                    status, answer = served.post(PATH, body(query))
                    assert status == 200, answer
                    break
                sleep(0.005)
            taken.append(perf_counter() - served.began)
            served.stop()
    figure = ", ".join(f"{one:.2f}" for one in taken)
    row(table, "start to the first search answered, three times", f"{figure} s", "< 3 s", max(taken) < 3)


def overhead(table: Table, served: Served, folder: Path, asked: Sequence[str]) -> None:
    """The same searches by the library here and by the service, in turns."""
    fresh = count()
    with Workspace(folder) as workspace, closing(served.connection()) as connection:

        def library(query: str) -> float:
            began = perf_counter()
            workspace.search(query, 5, refuse=False)
            return (perf_counter() - began) * 1000

        def service(query: str) -> float:
            began = perf_counter()
            status, answer = ask(connection, "POST", PATH, body(query))
            taken = (perf_counter() - began) * 1000
            assert status == 200, answer
            return taken

        for query in asked:  # every vector is known from here on, and every cache warm
            library(query), service(query)
        for what, unknown, number in (("vector known", False, SEQUENTIAL), ("vector made", True, SEQUENTIAL // 4)):
            ours: list[float] = []
            theirs: list[float] = []
            for start in range(0, number, TURN):
                chosen = [asked[place % len(asked)] for place in range(start, start + TURN)]
                for search, times in ((library, ours), (service, theirs)):
                    found = [search(f"{query} {next(fresh)}" if unknown else query) for query in chosen]
                    times.extend(found[2:])  # by then it has the processor's caches for itself
            for who, times in (("library", ours), ("HTTP", theirs)):
                half, most = percentile(times, 0.5), percentile(times, 0.99)
                row(table, f"one after another, {what}, {who}", f"p50 {half:.2f} ms, p99 {most:.2f} ms")
            added = percentile(theirs, 0.5) - percentile(ours, 0.5)
            row(table, f"HTTP adds, {what}, p50", f"{added:.2f} ms", "<= 2 ms", added <= 2)


def load(table: Table, served: Served, asked: Sequence[str], options: argparse.Namespace) -> None:
    """Many at once, by wrk; and how memory goes."""
    if shutil.which("wrk") is None:
        row(table, "many at once", "not measured: wrk is not installed (apt-get install wrk)")
        return
    before = memory(served)
    row(table, "memory of the service, warm", f"{before:.0f} MB")
    for what, unknown, seconds in (
        ("vectors known", False, 60 * options.minutes),
        ("vectors made", True, 20 * options.minutes),
    ):
        requests, taken, half, most, failed, broken = wrk(served, asked, unknown, seconds, options.connections)
        figure = f"{requests / taken:.0f} requests/s, p50 {half:.1f} ms, p99 {most:.1f} ms"
        row(table, f"{options.connections} connections, {what}, {taken:.0f} s", figure)
        row(table, "  of which not answered with 200", f"{failed + broken:.0f}", "0", failed + broken == 0)
    after = memory(served)
    row(table, "memory of the service, afterwards", f"{after:.0f} MB ({after - before:+.0f})")


def wrk(served: Served, asked: Sequence[str], unknown: bool, seconds: float, connections: int) -> list[float]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua", encoding="utf-8") as file:
        listed = ", ".join(json.dumps(query, ensure_ascii=False) for query in asked)
        file.write(LUA % (listed, "true" if unknown else "false", PATH))
        file.flush()
        length = f"{max(1, round(seconds))}s"
        command = ["wrk", "-t1", f"-c{connections}", f"-d{length}", "--timeout", "30s", "-s", file.name]
        command.append(f"http://127.0.0.1:{served.port}")
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"^RESULT (.*)$", printed, re.MULTILINE)
    if found is None:
        sys.exit(f"wrk has printed something else:\n{printed}")
    return [float(one) for one in found[1].split()]


def memory(served: Served) -> float:
    """Resident megabytes of the service and its workers."""
    process = psutil.Process(served.process.pid)
    return float(sum(one.memory_info().rss for one in [process, *process.children(recursive=True)])) / 1e6


def stopping(table: Table, folder: Path, serving: Sequence[str], asked: Sequence[str]) -> None:
    """SIGTERM while 64 clients search and add."""
    with Served(folder, *serving, embedder="default") as served:
        served.ready()
        statuses, acknowledged, cut = asyncio.run(_used(served, asked))
        served.wait()
    with Workspace(folder) as workspace:
        added = workspace.dataset("added", create=False)
        lost = acknowledged - set(added.ids())
        problems = added.verify().problems
        workspace.drop("added")
    told = ", ".join(f"{number} with {status}" for status, number in sorted(statuses.items()))
    worse = sum(number for status, number in statuses.items() if status >= 500)
    row(table, f"SIGTERM with {CLIENTS} clients: requests answered", told, "no 5xx", worse == 0)
    row(table, "  requests that met a closed door, or a connection closed while idle", str(cut))
    row(table, "  documents acknowledged / lost", f"{len(acknowledged)} / {len(lost)}", "0 lost", not lost)
    row(table, "  verify afterwards", f"{len(problems)} problems", "0", not problems)


async def _used(served: Served, asked: Sequence[str]) -> tuple[Counter[int], set[str], int]:
    statuses: Counter[int] = Counter()
    acknowledged: set[str] = set()
    cut = 0

    async def use(client: httpx.AsyncClient, number: int) -> None:
        nonlocal cut
        for turn in count():
            id_ = f"{os.getpid()}-{number}-{turn}"
            document = Document(id_, f"fresh {asked[number]} {turn}")
            try:
                if (turn + number) % 4:
                    answer = await client.post(PATH, json=body(asked[(number + turn) % len(asked)]))
                else:
                    value = {"documents": [{"id": document.id, "text": document.text}]}
                    answer = await client.post("/api/datasets/added/documents", json=value)
                    if answer.status_code == 200:
                        acknowledged.add(id_)
            except httpx.TransportError:
                cut += 1
                return
            statuses[answer.status_code] += 1

    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    address = f"http://127.0.0.1:{served.port}"
    async with (
        httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(CLIENTS):
            group.create_task(use(client, number))
        await asyncio.sleep(5)
        served.process.send_signal(signal.SIGTERM)
    return statuses, acknowledged, cut


if __name__ == "__main__":
    main()
