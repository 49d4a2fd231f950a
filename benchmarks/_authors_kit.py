"""What the rows of `authors.py` share: commands typed at a terminal, and fakes of servers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


def typed(*words: str, **variables: str) -> str:
    """Return what a command prints, as typed at a terminal: its output, or its error."""
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing", "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, "-m", "pointsman", *words]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return answer.stdout or answer.stderr


@contextmanager
def fake_server(answer_to: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Serve JSON on this machine, made of each request's body; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(answer_to(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def chat_answer(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an answer in OpenAI's form, of 50 tokens read and 9 written."""
    message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}
    head = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
    return {**head, "choices": [message], "usage": usage}
