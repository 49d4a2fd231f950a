"""Hostile schemas and arguments of foreign tools: ``python benchmarks/hostile_schemas.py [--pairs 10000]``.

The pairs come in slices, each with a server and a `pointsman` of its own; totals are printed after every slice. Beside
each runs its twin, which stands in front of a server with one harmless tool and is pinged as well: how long its slowest
`ping` took is what the machine, busy with other programs, does to a process that has nothing to do.

A real ``pointsman mcp --tools`` stands in front of a server whose tools have generated hostile schemas: references that
double, comparisons of all pairs, catastrophic patterns, deep nesting, long enumerations, values of wrong types, lone
surrogates, NaN; a tenth also as ``outputSchema``. Every tool is called with arguments as hostile, one after the other;
some, ``--exhausting`` of them, would keep a validator busy for minutes to years. A second server answers with eight
megabytes of tiny values, as a list of tools, as a structured result and as a text. Meanwhile `ping` is sent without a
pause, also while the tools are listed and checked. Both sides are plain JSON lines, since an SDK would not send these.

Exit status 1: a `ping` took a second or longer, a call that can be read had no answer, or the process ended.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from mcp import types

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import raw_tool_server
from hostile_schemas_kit import Pair, doubling_references, hostile

PAUSE: Final = 0.02  # seconds between two pings
PATIENCE: Final = 120.0  # seconds for one answer
STARTING: Final = "it is being started"
LISTING: Final = 300.0  # seconds until the tools of a slice are listed and checked
KINDS: Final = ("memory", "cannot be offered", "no tool", "do not fit", "longer than", "too deeply", "called")


class Agent:
    """A program that speaks with the server under test in lines of JSON, and pings it all the time."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "pointsman", "mcp", "--tools", str(config), "--embedder", "hashing"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.log: list[bytes] = []
        self.pings: list[float] = []
        self._waiting: dict[int, queue.Queue[Any]] = {}
        self._numbers, self._lock = count(), threading.Lock()
        self._ended = threading.Event()
        for work in (self._read, self._read_log):
            threading.Thread(target=work, daemon=True).start()

    def start(self) -> None:
        """Say hello, and begin to ping."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
        self.ask("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        threading.Thread(target=self._ping, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request, and return the response."""
        number = next(self._numbers)
        answer = self._waiting[number] = queue.Queue(1)
        self.send(request(number, method, params))
        try:
            return answer.get(timeout=PATIENCE)
        finally:
            del self._waiting[number]

    def close(self) -> int:
        """Close the connection, and return the exit status."""
        self._ended.set()
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.close()
        return self.process.wait(30)

    def _ping(self) -> None:
        while not self._ended.wait(PAUSE):
            began = time.perf_counter()
            try:
                self.ask("ping")
            except (OSError, ValueError, queue.Empty):
                if self._ended.is_set():
                    return
            self.pings.append(time.perf_counter() - began)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if waiting := self._waiting.get(message.get("id")):
                waiting.put(message)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)


def request(number: int, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Return a request in the protocol's form."""
    return {"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})}


def is_readable(message: Any) -> bool:
    """Whether the SDK can read it at all: Unicode, and nested less than two hundred times."""
    try:
        types.jsonrpc_message_adapter.validate_json(json.dumps(message))
    except (ValueError, RecursionError):
        return False
    return True


def definitions(pairs: list[Pair], random: Random) -> list[Any]:
    """Return the tools."""
    tools = []
    for number, (schema, _) in enumerate(pairs):
        named = {**schema, "type": "object"} if isinstance(schema, dict) and random.random() < 0.9 else schema
        tool: dict[str, Any] = {"name": f"t{number}", "inputSchema": named}
        if random.random() < 0.1:
            tool["outputSchema"] = {**doubling_references(random.randrange(8, 40))[0], "type": "object"}
        tools.append(tool)
    return tools


def attack(agent: Agent, pairs: list[Pair]) -> Counter[str]:
    """Call every tool; returns the kinds of answers."""
    answers: Counter[str] = Counter()
    for number, (_, value) in enumerate(pairs):
        params = {"name": "call_tool", "arguments": {"name": f"hostile/t{number}", "arguments": value}}
        if not is_readable(request(0, "tools/call", params)):
            agent.send(request(-number - 1, "tools/call", params))
            answers["a line that is no message"] += 1
            continue
        try:
            text = json.dumps(agent.ask("tools/call", params))
        except queue.Empty:
            answers["NO ANSWER"] += 1
            continue
        answers[next((kind for kind in KINDS if kind in text), "another error")] += 1
    return answers


def until_listed(agent: Agent) -> dict[str, Any]:
    """Wait until the hostile server's tools are listed; returns the last answer, which says if it has been given up."""
    end = time.monotonic() + LISTING
    while True:
        found = agent.ask("tools/call", {"name": "find_tools", "arguments": {"query": "x"}})
        content: dict[str, Any] = found["result"]["structuredContent"]
        if content["away"].get("hostile") != STARTING or time.monotonic() > end:
            return content
        time.sleep(0.5)


@dataclass
class Totals:
    """What the slices gave.

    Attributes:
        answers: calls by kind of answer.
        pings: seconds of each.
        twin_pings: the same for twins.
        tools: tools offered and left out.
        problems: what breaks the promise.
    """

    answers: Counter[str] = field(default_factory=Counter)
    pings: list[float] = field(default_factory=list)
    twin_pings: list[float] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        pings = sorted(self.pings)
        return (
            f"{self.answers.total()} calls; {self.tools['offered']} tools offered, {self.tools['left out']} left out; "
            f"{len(pings)} pings, median {pings[len(pings) // 2]:.4f} s, p99 {pings[int(0.99 * len(pings))]:.3f} s, "
            f"the slowest {pings[-1]:.3f} s, "
            f"of a twin {max(self.twin_pings):.3f} s; {len(self.problems)} problems"
        )

    def attack(self, pairs: list[Pair], random: Random, folder: Path) -> None:
        """Offer and call one slice of tools."""
        servers = {"hostile": definitions(pairs, random), "crowded": crowded_tools(), "page": crowded_page()}
        agent = Agent(configuration(folder / "agent.json", servers))
        harmless = [{"name": "harmless", "inputSchema": {"type": "object"}}]
        twin = Agent(configuration(folder / "twin.json", {"hostile": harmless}))
        agent.start()
        twin.start()
        listing = until_listed(agent)
        self.tools.update({"offered": listing["total"], "left out": listing["left_out"]})
        if set(listing["away"]) - {"page"}:
            self.problems.append(f"not listed: {listing['away']}")
        self.answers += attack(agent, pairs)
        for tool in crowded_tools():
            agent.ask("tools/call", {"name": "call_tool", "arguments": {"name": f"crowded/{tool['name']}"}})
        if agent.process.poll() is not None:
            self.problems.append("the process ended")
        pings, twin_pings = list(agent.pings), list(twin.pings)
        if status := agent.close():
            self.problems.append(f"exit status {status}")
        twin.close()
        if max(pings) >= 1:
            self.problems.append(
                f"a ping took {max(pings):.3f} s; the slowest of its twin took {max(twin_pings):.3f} s"
            )
        self.pings += pings
        self.twin_pings += twin_pings


def crowded_tools() -> list[Any]:
    """Return tools whose results are eight megabytes of empty lists."""
    crowd: list[Any] = [[]] * 1_950_000
    results = {
        "structured": {"content": [], "structuredContent": {"x": crowd}},
        "text": {"content": [{"type": "text", "text": json.dumps(crowd)}], "structuredContent": {}},
    }
    return [{"name": name, "inputSchema": {"type": "object"}, "result": result} for name, result in results.items()]


def crowded_page() -> list[Any]:
    """Return a tool whose definition is eight megabytes of empty lists."""
    return [{"name": "crowded", "inputSchema": {"type": "object", "x": [[]] * 1_950_000}}]


def configuration(path: Path, servers: dict[str, list[Any]]) -> Path:
    """Write the configuration of servers with these tools; returns its path."""
    entries = {}
    for name, tools in servers.items():
        file = path.with_suffix(f".{name}")
        file.write_text(json.dumps(tools), "utf-8")
        args = [raw_tool_server.__file__, str(file)]
        entries[name] = {"command": sys.executable, "args": args, "env": dict(os.environ)}
    path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--slice", type=int, default=500, help="pairs for one process")
    parser.add_argument("--first", type=int, default=0, help="continue after so many pairs")
    parser.add_argument("--exhausting", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=23)
    options = parser.parse_args()
    totals = Totals()
    for start in range(options.first, options.pairs, options.slice):
        random, count = Random(f"{options.seed} {start}"), min(options.slice, options.pairs - start)
        pairs = [hostile(random, exhausting=options.exhausting) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            totals.attack(pairs, random, Path(folder))
        print(totals, flush=True)
    for kind, times in totals.answers.most_common():
        print(f"{times:6} {kind}")
    for problem in totals.problems:
        print(f"PROBLEM {problem}")
    sys.exit(bool(totals.problems) or totals.answers["NO ANSWER"] > 0)


if __name__ == "__main__":
    main()
