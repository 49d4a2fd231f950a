"""Parses JSON strictly: a text has one meaning, and every value can be stored and sent back."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.tools.network.json_bounds import MAX_VALUES, has_too_many_values

MAX_DEPTH: Final = 64
"""Nesting depth of objects and lists in a JSON body."""

_LARGE: Final = 100_000  # bytes; from this size on, parsing would noticeably delay other requests
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json(body: bytes) -> object:
    """Parse a JSON body strictly: a text has one meaning, and every value can be stored and sent back.

    Raises:
        Problem: ``malformed``: not UTF-8 or not JSON (``NaN`` and ``Infinity`` are not); ``invalid-input``: a repeated
            name in an object, a number that is too large, lone surrogates, more than `MAX_DEPTH` levels, or more than
            `pointsman.tools.network.json_bounds.MAX_VALUES` values.
    """
    if len(body) > MAX_VALUES and has_too_many_values(body):
        raise HttpProblem(
            "invalid-input", f"the JSON has more than {MAX_VALUES:,} values; send them in several requests"
        )
    try:
        value: object = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise HttpProblem("malformed", f"the body is not UTF-8: byte {error.start} is invalid") from error
    except json.JSONDecodeError as error:
        message = f"the body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise HttpProblem("malformed", message) from error
    except ValueError as error:  # Python does not parse integers of more than some thousand digits
        raise HttpProblem("invalid-input", "a number in the JSON is too large") from error
    except RecursionError as error:  # beyond some hundred levels
        raise _too_deep() from error
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise _too_deep()
    if _SURROGATE.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise HttpProblem(
                "invalid-input", "a text in the JSON has a lone surrogate, which is not a character"
            ) from error
    return value


async def read_json(body: bytes) -> Any:
    """Parse a JSON body; a large one outside the event loop.

    Raises:
        Problem: as `parse_json`.
    """
    return await asyncio.to_thread(parse_json, body) if len(body) > _LARGE else parse_json(body)


def _deeper(value: object, depth: int) -> bool:
    """Whether a value is nested more than ``depth`` levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _too_deep() -> HttpProblem:
    return HttpProblem("invalid-input", f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise HttpProblem("invalid-input", f"the name {duplicate!r:.80} occurs twice in one object of the JSON")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise HttpProblem("invalid-input", "a number in the JSON is too large")
    return value


def _no_constant(name: str) -> None:
    raise HttpProblem("malformed", f"the body is not JSON: {name} is not a number there")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_no_constant)


async def json_lines(chunks: AsyncIterable[bytes], *, max_line_bytes: int) -> AsyncIterator[tuple[int, object]]:
    """Yield the values of a body with one JSON text per line, with line numbers from 1; empty lines are skipped.

    Args:
        chunks: the body as it arrives, such as ``request.stream()``; at most one line of it is held in memory.
        max_line_bytes: of one line.

    Raises:
        Problem: ``too-large``, or as `parse_json`; with the member ``line``.
    """
    number, pending = 0, bytearray()
    async for chunk in _with_end(chunks):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            pending += chunk[start:end]
            start, number = end + 1, number + 1
            _check_line(pending, number, max_line_bytes)
            line = bytes(pending).strip()
            pending.clear()
            if line:
                try:
                    value = await read_json(line)
                except HttpProblem as problem:
                    raise HttpProblem(problem.slug, f"line {number}: {problem.detail}", line=number) from problem
                yield number, value
        pending += chunk[start:]
        _check_line(pending, number + 1, max_line_bytes)


async def _with_end(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
    yield b"\n"  # the last line may lack its line end


def _check_line(line: bytearray, number: int, max_bytes: int) -> None:
    if len(line) > max_bytes:
        raise HttpProblem(
            "too-large", f"line {number} is longer than {max_bytes:,} bytes", line=number, limit=max_bytes
        )
