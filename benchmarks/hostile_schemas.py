"""Hostile schemas and arguments of foreign tools: ``python benchmarks/hostile_schemas.py [--pairs 10000]``.

A real ``pointsman mcp --tools`` stands in front of a server whose tools have generated hostile schemas: references that
double, comparisons of all pairs, catastrophic patterns, deep nesting, long enumerations, values of wrong types, lone
surrogates, NaN; a tenth also as ``outputSchema``. Every tool is called with arguments as hostile, one after the other;
some, ``--exhausting`` of them, would keep a validator busy for minutes to years. Meanwhile `ping` is sent without a
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--exhausting", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=23)
    options = parser.parse_args()
    random = Random(options.seed)
    pairs = [hostile(random, exhausting=options.exhausting) for _ in range(options.pairs)]
    with tempfile.TemporaryDirectory() as folder:
        servers = {}
        file = Path(folder) / "tools.json"
        file.write_text(json.dumps(definitions(pairs, random)), "utf-8")
        args = [raw_tool_server.__file__, str(file)]
        servers["hostile"] = {"command": sys.executable, "args": args, "env": dict(os.environ)}
        config = Path(folder) / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}), "utf-8")
        agent = Agent(config)
        agent.start()
        while (found := agent.ask("tools/call", {"name": "find_tools", "arguments": {"query": "x"}}))["result"][
            "structuredContent"
        ]["away"].get("hostile"):
            time.sleep(0.5)
        listed = found["result"]["structuredContent"]
        until_listed = len(agent.pings)
        print(f"{listed['total']} tools offered, {listed['left_out']} left out; away: {listed['away']}")
        print(f"while listing: {until_listed} pings, the slowest {max(agent.pings):.3f} s")
        answers = attack(agent, pairs)
        running, pings, status = agent.process.poll() is None, list(agent.pings), agent.close()
    for kind, times in answers.most_common():
        print(f"{times:6} {kind}")
    print(
        f"{answers.total()} calls; {len(pings)} pings, median {sorted(pings)[len(pings) // 2]:.4f} s, "
        f"p99 {sorted(pings)[int(0.99 * len(pings))]:.3f} s, the slowest {max(pings):.3f} s; exit status {status}"
    )
    sys.exit(max(pings) >= 1 or answers["NO ANSWER"] > 0 or not running)


if __name__ == "__main__":
    main()
