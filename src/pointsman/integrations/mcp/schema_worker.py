"""The process that checks JSON schemas and arguments of foreign tools: it may be terminated at any moment.

A schema of a few lines can keep a validator busy for hours, and Python's lock with it. So no foreign schema is
evaluated in the process of the server; `pointsman.integrations.mcp.checking.SchemaChecker` is the other side. A request
is a line of JSON with ``schema`` and perhaps ``arguments``, its answer a line with a list of what is wrong.

This file is run as a script, so that nothing else of this package has to be imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import re2
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

CPU_SECONDS: Final = 2
"""Processor time for one request; the system ends the process after it."""

MEMORY: Final = 512 * 1024 * 1024
"""Bytes that the process may use."""

_COMPLAINTS: Final = 5
_MESSAGE_CHARS: Final = 200


def main() -> None:
    """Answer requests from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    answers.write(b"[]\n")  # ready
    answers.flush()
    _limit_memory()
    for line in sys.stdin.buffer:
        _limit_seconds()
        request = json.loads(line)
        if "arguments" in request:
            wrong = complaints_about_arguments(request["schema"], request["arguments"])
        else:
            wrong = complaints_about_schema(request["schema"])
        answers.write(json.dumps(wrong).encode() + b"\n")
        answers.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows: the other side's clock remains
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds() -> None:
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds_used = int(usage.ru_utime + usage.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds_used + CPU_SECONDS + 1, resource.RLIM_INFINITY))


def complaints_about_schema(schema: Any) -> list[str]:
    """Return why a JSON schema cannot be used; an empty list if it can.

    >>> complaints_about_schema({"type": "object"})
    []
    """
    validator = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    return _complaints(validator.iter_errors(schema), "the schema")


def complaints_about_arguments(schema: Any, arguments: Any) -> list[str]:
    """Return what is wrong with the arguments; the keyword ``patternProperties`` is not evaluated.

    >>> complaints_about_arguments({"properties": {"a": {"type": "number"}}}, {"a": "b"})
    ["a: 'b' is not of type 'number'"]
    """
    validator = _Validator(_checkable(schema), registry=Registry())  # references are never fetched
    return _complaints(validator.iter_errors(arguments), "the arguments")


def _complaints(errors: Iterator[ValidationError], root: str) -> list[str]:
    try:
        return [
            f"{'.'.join(map(str, error.absolute_path))[:_MESSAGE_CHARS] or root}: {error.message[:_MESSAGE_CHARS]}"
            for error in islice(errors, _COMPLAINTS)
        ]
    except (Unresolvable, RecursionError):
        return ["the schema has references that cannot be resolved"]
    except Exception as error:  # noqa: BLE001  (what else a validator does with values that nobody expected)
        return [f"the schema cannot be evaluated: {type(error).__name__}"]


def _pattern(_: Any, pattern: str, instance: object, __: Any) -> Any:
    """Validate the keyword `pattern` in linear time."""
    if isinstance(instance, str):
        try:
            matches = re2.search(pattern, instance)
        except re2.error:
            return  # of another dialect; the tool itself validates it
        if not matches:
            yield ValidationError(f"{instance!r:.80} does not match {pattern!r:.80}")


_Validator: Final = extend(Draft202012Validator, {"pattern": _pattern})


def _checkable(schema: Any) -> Any:
    """Return a schema without ``patternProperties``, whose expressions would be matched with backtracking."""
    if isinstance(schema, list):
        return [_checkable(element) for element in schema]
    if not isinstance(schema, Mapping):
        return schema
    keywords_dropped = {"patternProperties", "additionalProperties"} if "patternProperties" in schema else set()
    return {name: _checkable(value) for name, value in schema.items() if name not in keywords_dropped}


if __name__ == "__main__":
    main()
