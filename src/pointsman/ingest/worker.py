"""The process that reads files: it converts its input, and may be terminated at any moment.

A request is one line of JSON, the answers are lines of JSON; `FileReader` is the other side. Whatever a file does to
this process, from exhausting its time or memory to crashing it, does not affect the process that sent the request.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.ingest.chunk import passages
from pointsman.ingest.convert import RECORD_KINDS, convert, joined_text
from pointsman.ingest.reading_limits import FileLimits
from pointsman.ingest.source_text import Problem
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pointsman.ingest.conversion import Converted

_BATCH = 200  # passages in one line

Answer = dict[str, Any]
"""``documents`` ([id, text, metadata]), ``problems`` ([path, reason]) or ``text``; ``image``, the picture that its last
document is, as JPEG in base64; ``end`` in a file's last one; empty ones mean that work is in progress."""


def main() -> None:
    """Answer requests from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process, which then terminates this one
    limits = FileLimits(**json.loads(sys.stdin.buffer.readline()))
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        _allow_seconds(limits.seconds)

        def send(answer: Answer) -> None:
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()

        def before_picture() -> None:
            _allow_seconds(limits.seconds)
            send({})

        for answer in _answers(json.loads(line), limits, before_picture):
            send(answer)
            if answer.get("last"):
                return


def _allow_seconds(seconds: int) -> None:
    """Let the system terminate this process if one file takes longer."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds + 1, resource.RLIM_INFINITY)
    )


def _answers(request: dict[str, Any], limits: FileLimits, before_picture: Callable[[], None]) -> Iterator[Answer]:
    """Yield the answers, with ``last`` if this process has used so much memory that a fresh one is better."""
    path = request["id"]
    try:
        data = Path(request["path"]).read_bytes()
        wants_text, encoding = request["wanted"] == "text", request["encoding"]
        images = bool(request.get("images")) and not wants_text
        items = convert(path, data, limits, before_picture, images=images, encoding=encoding)
        if wants_text:
            yield {"text": joined_text(items)}
        else:
            yield from _passages(request, items)
        reason = None
    except InputError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except MemoryError:
        yield {"problems": [[path, out_of_memory(limits)]], "stopped": True, "end": True, "last": True}
        return
    except Exception as error:  # noqa: BLE001  (a hostile file may make a parser raise any exception; it is reported)
        reason = f"cannot be converted: {type(error).__name__}: {error}"[:1000]
    problems = [[path, reason]] if reason else []
    yield {"problems": problems, "stopped": bool(reason), "end": True, "last": _peak() > limits.memory // 2}


def out_of_memory(limits: FileLimits) -> str:
    """Return the reason reported for a file that needs more memory than allowed."""
    return f"needs more than {limits.memory >> 20} MB of memory; raise the limit memory to index it"


def _passages(request: dict[str, Any], items: Converted) -> Iterator[Answer]:
    answer: Answer = {"documents": [], "problems": []}
    for name, value, image in _parts(request, items):
        answer[name].append(value)
        if image:
            answer["image"] = b64encode(image).decode()
        if image or len(answer[name]) == _BATCH:
            yield answer
            answer = {"documents": [], "problems": []}
    if any(answer.values()):
        yield answer


def _parts(request: dict[str, Any], items: Converted) -> Iterator[tuple[str, list[Any], bytes]]:
    """Yield what an answer has under a name, and the picture that it is of."""
    for item in items:
        if isinstance(item, Problem):
            yield "problems", [item.path, item.reason], b""
            continue
        own_id = item.record_id is not None and item.kind in RECORD_KINDS and not request["alone"]
        source = replace(item, record_id=f"{item.path}#{item.record_id}") if own_id else item
        for document in passages(source, request["max_tokens"], request["overlap"]):
            yield "documents", [document.id, document.text, dict(document.metadata)], item.image


def _peak() -> int:
    """Return the peak memory of this process in bytes; ``ru_maxrss`` would include the process it was forked from."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) << 10
    raise OSError("/proc/self/status has no line VmHWM")


if __name__ == "__main__":
    main()
