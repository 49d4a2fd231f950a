"""Checks schemas and arguments of foreign tools in another process, with bounds of time, memory and size."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from pointsman.integrations.mcp import schema_worker
from pointsman.tools.errors import InputError
from pointsman.tools.system.processes import NEUTRAL_FOLDER, bare_environment, import_path, python_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import Process

MAX_CHARS: Final = 1_000_000
"""Characters of arguments, as JSON."""

_STARTING: Final = 60.0  # seconds; machines are busy
_SECONDS: Final = 20.0  # on the clock, for what the limit of processor time does not end
_ANSWER_BYTES: Final = 1_000_000
_RUN: Final = "import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"


class SchemaChecker:
    """Checks one request at a time in a process of its own, which starts when it is needed, and again after its end.

    Use it as an async context manager; at the end the process is terminated.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock()
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def check_schema(self, schema: Any) -> None:
        """Check that a value is a JSON schema.

        Raises:
            InputError: it is not, or checking it takes too much time or memory.
        """
        wrong = await self._ask({"schema": schema}, "the schema")
        if wrong:
            raise InputError(f"its schema is invalid: {wrong[0]}")

    async def check_arguments(self, name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Check arguments against a tool's schema; the keyword ``patternProperties`` is left to the tool.

        Raises:
            InputError: they do not fit, the message says where; or checking them takes too much time or memory.
        """
        wrong = await self._ask({"schema": schema, "arguments": arguments}, f"the arguments of {name}")
        if wrong:
            raise InputError(f"these arguments do not fit {name}: {'; '.join(wrong)}")

    async def _ask(self, request: dict[str, Any], subject: str) -> list[str]:
        try:
            line = json.dumps(request).encode()
        except (RecursionError, ValueError) as error:
            raise InputError(f"{subject} are nested too deeply, or are not JSON") from error
        if len(line) > MAX_CHARS:
            raise InputError(f"{subject} and the schema are longer than {MAX_CHARS:,} characters")
        async with self._turn:
            has_answer = False
            try:
                process, answers = await self._running()
                with anyio.fail_after(_SECONDS):
                    assert process.stdin is not None
                    await process.stdin.send(line + b"\n")
                    wrong: list[str] = json.loads(await answers.receive_until(b"\n", _ANSWER_BYTES))
                has_answer = True
            except (TimeoutError, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                raise InputError(
                    f"{subject} cannot be checked: that takes more than {schema_worker.CPU_SECONDS} seconds of "
                    f"processor time, or {schema_worker.MEMORY // 2**20} MB; nothing was called"
                ) from error
            finally:
                if not has_answer:  # also if the call was cancelled: the answer to come would be taken for the next one
                    await self._end()
        return wrong

    async def _running(self) -> tuple[Process, BufferedByteReceiveStream]:
        if self._process is None or self._answers is None:
            self._process = await anyio.open_process(
                [*python_command(_RUN, json.dumps(import_path())), schema_worker.__file__],
                stderr=subprocess.DEVNULL,
                env=bare_environment(),
                cwd=NEUTRAL_FOLDER,
            )
            assert self._process.stdout is not None
            self._answers = BufferedByteReceiveStream(self._process.stdout)
            with anyio.fail_after(_STARTING):
                await self._answers.receive_until(b"\n", _ANSWER_BYTES)
        return self._process, self._answers

    async def _end(self) -> None:
        process, self._process, self._answers = self._process, None, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.aclose()
