"""Processes that convert files stay for the next reader, which would start one like it.

Starting one takes longer than reading the files of most tests. A reader itself reads thousands of files in one process,
which keeps nothing of them; a process that failed, or was left with answers that nobody has read, never stays.
"""

from __future__ import annotations

import atexit
import json
from typing import TYPE_CHECKING, Final

from pointsman.ingest import reader
from pointsman.ingest.reader import FileReader, _ConverterWorker
from pointsman.tools.system.processes import bare_environment, import_path, python_command

if TYPE_CHECKING:
    import pytest

    from pointsman.ingest.reading_limits import FileLimits

_IDLE_LIMIT: Final = 2
_idle: list[_LastingConverter] = []
close_with_its_process: Final = FileReader.close
"""What closing a reader does outside of the tests."""


class _LastingConverter(_ConverterWorker):
    """One that knows how it was started."""

    def __init__(self, limits: FileLimits) -> None:
        self.start = _start(limits)
        super().__init__(limits)


def _start(limits: FileLimits) -> tuple[object, ...]:
    """What a process depends on: its limits, its command, and its environment."""
    command = python_command("", json.dumps(import_path()))
    return limits, *command, *sorted(bare_environment().items())


def _idle_or_new(limits: FileLimits) -> _LastingConverter:
    start = _start(limits)
    for converter in [waiting for waiting in _idle if waiting.start == start]:
        _idle.remove(converter)
        if converter._process.poll() is None:
            return converter
    return _LastingConverter(limits)


def _close(file_reader: FileReader) -> None:
    converter, file_reader._worker = file_reader._worker, None
    if isinstance(converter, _LastingConverter):
        _idle.append(converter)
        while len(_idle) > _IDLE_LIMIT:
            _idle.pop(0).end()
    elif converter is not None:
        converter.end()


def end_idle_converters() -> None:
    """End those that stay."""
    while _idle:
        _idle.pop().end()


def keep_converters(patch: pytest.MonkeyPatch) -> None:
    """Let processes stay from now on."""
    patch.setattr(reader, "_ConverterWorker", _idle_or_new)
    patch.setattr(FileReader, "close", _close)
    atexit.register(end_idle_converters)
