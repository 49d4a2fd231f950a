"""Cancel calls of a stdio server at random moments, then ask once more: ``python … SEED COUNT PROGRAM ARGUMENT…``.

Speaks the protocol by itself, line by line, so that it works with every version of the SDK. Prints the server's exit
code and whether the last call was answered.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from typing import Any


def main(seed: int, count: int, command: list[str]) -> None:
    moments = random.Random(seed)
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
        message = {"jsonrpc": "2.0", "method": method, "params": parameters, **({} if id_ is None else {"id": id_})}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()

    def wait(id_: int) -> Any:
        with arrived:
            assert arrived.wait_for(lambda: id_ in answers or process.poll() is not None, 120), "no answer"
        return answers.get(id_)

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "canceller", "version": "1"}}
    send("initialize", client, 0)
    wait(0)
    send("notifications/initialized", {})
    search = {"name": "search", "arguments": {"query": "railway switch"}}
    try:
        for number in range(1, count + 1):
            send("tools/call", search, number)
            time.sleep(moments.random() * 0.02)
            send("notifications/cancelled", {"requestId": number, "reason": "timeout"})
        send("tools/call", search, count + 1)
        last = wait(count + 1)
        process.stdin.close()
    except BrokenPipeError:
        last = None
    code = process.wait(60)
    for thread in threads:
        thread.join()
    outcome = {"exit": code, "answered": bool(last and "result" in last), "errors": "".join(errors)}
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
