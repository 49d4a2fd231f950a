"""The service's log: one JSON object per line on standard error, with the id of the request.

Queries, documents, headers and keys are not logged. An exception is logged with its type and stack, without the values
of variables. Its message may quote what was sent, so it is logged only if the error is one of ours or the system's, or
at level ``debug``. `redact` is applied to each line as a second line of defence.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import sys
import traceback
from contextvars import ContextVar
from time import gmtime, localtime, strftime
from typing import Any, Final

from pointsman.tools.errors import PointsmanError
from pointsman.tools.printable import UNSAFE, printable

request_id: ContextVar[str | None] = ContextVar("pointsman_request_id", default=None)
"""The id of the request being answered, also visible in threads that work for it."""

LEVELS: Final = ("debug", "info", "warning", "error")

_OWN_LOGGERS: Final = ("pointsman",)
_SERVERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio")
_LONGEST: Final = 2000  # characters of a log message, and of an exception's message
_MOST_FRAMES: Final = 30
_MOST_CAUSES: Final = 8
_MASK: Final = "[hidden]"

_SECRETS: Final = re.compile(
    r"(?P<key>ptm_[0-9a-fA-F]{8})_[\w\-]+"
    r"|(?P<name>\b(?:authorization|cookie|[\w\-]{0,40}api[_-]?key|[\w\-]{0,40}(?:token|secret|password|passwd))"
    r"[\"']{0,2}\s{0,9}[:=]\s{0,9})(?P<quote>[\"']?)(?:(?:bearer|basic|token)\s+)?[^\s\"',;&}\])]{4,}"
    r"|\b(?P<scheme>Bearer|Basic(?=\s+[a-zA-Z]{0,99}[0-9+/=]))\s+[\w.~+/=\-]{6,}"
    r"|\bsk-[\w\-]{12,}"
    r"|(?P<address>[a-z][a-z0-9+.\-]{1,20}://)[^\s/@]{1,200}@",
    re.IGNORECASE,
)
_SUSPICIOUS: Final = re.compile(r"ptm_|bearer|basic|authoriz|cookie|api.?key|token|secret|passw|sk-|@", re.IGNORECASE)


def redact(text: str) -> str:
    """Remove what looks like a key, a token, or a password in a URL from a text.

    Example:
        >>> redact("Authorization: Bearer abcdefgh12345678, api_key=abcdef")
        'Authorization: [hidden], api_key=[hidden]'
    """
    return _SECRETS.sub(_mask, text) if _SUSPICIOUS.search(text) else text


def _mask(match: re.Match[str]) -> str:
    if match["key"]:
        return f"{match['key']}_{_MASK}"
    if match["scheme"]:
        return f"{match['scheme']} {_MASK}"
    if match["name"]:
        return f"{match['name']}{match['quote']}{_MASK}"
    if match["address"]:
        return f"{match['address']}{_MASK}@"
    return _MASK


def trace_text(error: BaseException, *, with_causes: bool = False) -> str:
    """Format an exception as its type, what may be logged of its message, its stack and its causes; without secrets.

    Args:
        error: the exception.
        with_causes: include the messages of all exceptions, not only those of ours and the system's.
    """
    lines: list[str] = []
    members: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in members and len(members) < _MOST_CAUSES:
        if members:
            lines.append("which came from:")
        members.add(id(current))
        lines.append(_headline(current, with_causes=with_causes))
        if isinstance(current, BaseExceptionGroup):
            lines += [
                f"  of which {_headline(cause, with_causes=with_causes)}" for cause in current.exceptions[:_MOST_CAUSES]
            ]
        frames = traceback.extract_tb(current.__traceback__)[-_MOST_FRAMES:]
        lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return redact("\n".join(lines))


def _headline(error: BaseException, *, with_causes: bool) -> str:
    kind = type(error).__qualname__
    if not (with_causes or isinstance(error, (PointsmanError, OSError, sqlite3.Error))):
        return kind
    return f"{kind}: {str(error)[:_LONGEST]}" if str(error) else kind


class LineFormatter(logging.Formatter):
    """Formats a log record as one line: a JSON object, or plain text for people.

    A record may have a mapping ``fields``, whose items become members of the object.

    Args:
        as_json: whether to write JSON instead of ``time level: message``, with the local time.
        with_causes: whether to include the messages of all exceptions.
    """

    def __init__(self, *, as_json: bool = True, with_causes: bool = False) -> None:
        super().__init__()
        self._json, self._with_causes = as_json, with_causes
        self._second = (0, "")  # the formatted time, cached for each second

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its line end."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError) as error:  # wrong logging arguments lose only themselves
            message = f"{record.msg} ({error})"
        exception = None
        if record.exc_info and record.exc_info[1] is not None:
            exception = trace_text(record.exc_info[1], with_causes=self._with_causes)
        fields: dict[str, Any] = getattr(record, "fields", None) or {}
        id_ = fields.get("request_id") or request_id.get()
        if not self._json:
            return self._plain(record, redact(message), id_, fields, exception)
        line: dict[str, Any] = {
            "time": self._time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(message[:_LONGEST]),
        }
        if id_:
            line["request_id"] = id_
        if fields:
            line.update(fields)
        if exception:
            line["exception"] = exception
        return line_of(line)

    def _plain(
        self,
        record: logging.LogRecord,
        message: str,
        request: str | None,
        fields: dict[str, Any],
        exception: str | None,
    ) -> str:
        new = {name: value for name, value in fields.items() if name != "request_id" and str(value) not in message}
        told_fields = " ".join(f"{name}={value}" for name, value in new.items())
        clock = strftime("%H:%M:%S", localtime(record.created))
        level = "" if record.levelno == logging.INFO else record.levelname.lower() + ":"
        columns = (clock, level, message, told_fields, request)
        line = " ".join(_one_line(field) for field in columns if field)
        return f"{line}\n{printable(exception)}" if exception else line

    def _time(self, creation_time: float) -> str:
        second, text = self._second
        if second != int(creation_time):
            second = int(creation_time)
            text = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
            self._second = (second, text)
        return f"{text}.{int((creation_time - second) * 1000):03d}Z"


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNSAFE_CHARACTERS: Final = re.compile(f"[{UNSAFE}]")  # JSON escapes some of them by itself


def line_of(value: object) -> str:
    """Encode a value as one line of JSON, escaping everything that controls a terminal or ends a line."""
    return _UNSAFE_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", _encode(value))


def _one_line(text: str) -> str:
    """Remove line breaks, so that a text cannot pass for a separate line."""
    return printable(_BREAKS.sub(" ", text), one_line=True)


class _Handler(logging.StreamHandler[Any]):
    """Writes to the current standard error."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        """Ignore the value: standard error is looked up for each record."""


def configure_logging(level: str = "info", json: bool = True) -> None:
    """Send our log and the HTTP server's to standard error, one line per record; may be called repeatedly.

    Args:
        level: one of `LEVELS`; ``"debug"`` also logs the messages of foreign exceptions, which may quote what was sent.
        json: JSON, or text for people.

    Raises:
        ValueError: the level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"a log level is one of {', '.join(LEVELS)}, not {level!r:.40}")
    handler = _Handler()
    handler.setFormatter(LineFormatter(as_json=json, with_causes=level == "debug"))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, _Handler) or type(old) is logging.StreamHandler:  # not those of a test or host program
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
    for name in _SERVERS:
        server = logging.getLogger(name)
        server.handlers.clear()
        server.propagate = True
        server.setLevel(logging.INFO if name.startswith("uvicorn") else logging.WARNING)
    access = logging.getLogger("uvicorn.access")  # we log every request ourselves
    access.handlers.clear()
    access.propagate, access.disabled = False, True
    logging.captureWarnings(capture=True)
