"""Cancel calls of a server at random moments, then ask once more: ``python … stdio|http SEED COUNT PROGRAM ARGUMENT…``.

Speaks the protocol by itself, so that it works with every version of the SDK: line by line over standard input and
output, or over HTTP, at the address that the program prints. There half of the calls are cancelled by closing the
connection, and half by a notification, before which the answer may come.

Prints the server's exit code and whether the last call was answered; over HTTP also how many sockets it had open before
the calls and after them.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

VERSION = "2025-06-18"
INITIALIZE = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "canceller", "version": "1"}}
SEARCH = {"name": "search", "arguments": {"query": "railway switch"}}


def message_of(method: str, parameters: dict[str, Any], id_: int | None = None) -> str:
    message = {"jsonrpc": "2.0", "method": method, "params": parameters, **({} if id_ is None else {"id": id_})}
    return json.dumps(message)


def over_stdio(moments: random.Random, count: int, command: list[str]) -> dict[str, Any]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    answers: dict[object, Any] = {}
    arrived = threading.Condition()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            with arrived:
                answers[message.get("id")] = message
                arrived.notify_all()

    errors: list[str] = []
    threads = [threading.Thread(target=read), threading.Thread(target=lambda: errors.extend(process.stderr or []))]
    for thread in threads:
        thread.start()

    def send(method: str, parameters: dict[str, Any], id_: int | None = None) -> None:
        assert process.stdin is not None
        process.stdin.write(message_of(method, parameters, id_) + "\n")
        process.stdin.flush()

    def wait(id_: int) -> Any:
        with arrived:
            assert arrived.wait_for(lambda: id_ in answers or process.poll() is not None, 120), "no answer"
        return answers.get(id_)

    send("initialize", INITIALIZE, 0)
    wait(0)
    send("notifications/initialized", {})
    try:
        for number in range(1, count + 1):
            send("tools/call", SEARCH, number)
            time.sleep(moments.random() * 0.02)
            send("notifications/cancelled", {"requestId": number, "reason": "timeout"})
        send("tools/call", SEARCH, count + 1)
        last = wait(count + 1)
        process.stdin.close()
    except BrokenPipeError:
        last = None
    code = process.wait(60)
    for thread in threads:
        thread.join()
    return {"exit": code, "answered": bool(last and "result" in last), "errors": "".join(errors)}


class HttpClient:
    def __init__(self, address: str) -> None:
        self.host, _, port = address.removeprefix("http://").partition(":")
        self.port = int(port)

    def begin(self, method: str, parameters: dict[str, Any], id_: int | None = None) -> HTTPConnection:
        """Send a request on a connection of its own; the caller reads the answer, or closes it."""
        connection = HTTPConnection(self.host, self.port, timeout=120)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
        }
        connection.request("POST", "/mcp", message_of(method, parameters, id_), headers)
        return connection

    def call(self, method: str, parameters: dict[str, Any], id_: int | None = None) -> str:
        connection = self.begin(method, parameters, id_)
        try:
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def sockets_of(pid: int) -> int:
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def over_http(moments: random.Random, count: int, command: list[str]) -> dict[str, Any]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    address = None
    while address is None:
        line = process.stdout.readline()
        assert line, f"the server ended: {lines}"
        lines.append(line)
        address = re.search(r"http://[0-9.]+:\d+", line)
    thread = threading.Thread(target=lambda: lines.extend(process.stdout or []))
    thread.start()
    client = HttpClient(address[0])
    client.call("initialize", INITIALIZE, 0)
    client.call("tools/call", SEARCH, 1)
    sockets_before = sockets_of(process.pid)
    for number in range(2, count + 2):
        connection = client.begin("tools/call", SEARCH, number)
        time.sleep(moments.random() * 0.01)
        if moments.random() < 0.5:
            client.call("notifications/cancelled", {"requestId": number, "reason": "timeout"})
            with suppress(HTTPException, OSError):  # a cancelled call may end without an answer
                connection.getresponse().read()
        connection.close()
    last = json.loads(re.sub(r"(?s)^.*?data: ", "", client.call("tools/call", SEARCH, count + 2)))
    deadline = time.monotonic() + 60
    while (sockets_after := sockets_of(process.pid)) > sockets_before and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    thread.join()
    sockets = {"sockets_before": sockets_before, "sockets_after": sockets_after}
    return {"exit": code, "answered": "result" in last, **sockets, "errors": "".join(lines)}


def main(transport: str, seed: int, count: int, command: list[str]) -> None:
    speak = {"stdio": over_stdio, "http": over_http}[transport]
    sys.stdout.write(json.dumps(speak(random.Random(seed), count, command)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
