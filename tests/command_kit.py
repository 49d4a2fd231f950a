"""``pointsman`` and other programs in processes of their own, without the second that importing takes each time.

A first process imports what most programs need, and forks a child for each: the child has arguments, a folder, an
environment and standard streams of its own. Its threads, exit handlers and objects come to their ends; modules are not
taken apart, which takes 70 ms. Tests of how an interpreter starts (its encoding, its module path, what it imports) or
ends need ``python -m pointsman`` itself.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

COMMAND: Final = "from pointsman.cli import main; main()"

_IMPORTED: Final = (
    *(
        "numpy",
        "numpy.ma",
        "numpy.random",
        "pydantic.types",
        "rich.progress",
        "rich.table",
        "Stemmer",
        "tantivy",
        "typer",
    ),
    *(
        "pointsman.values.citations",
        "pointsman.cli.exit_with_error",
        "pointsman.evaluation",
        "pointsman.workspace.indexing.folder_sync",
    ),
    *(
        "pointsman.embedders.cached_embedder",
        "pointsman.embedders.e5.e5_embedder",
        "pointsman.embedders.scripted_embedders",
        "pointsman.service.opening",
        "pointsman.retrieval.refine.rerank.chosen_reranker",
    ),
    *(
        "pointsman.retrieval.search",
        "pointsman.retrieval.plan.transform.automatic_additions",
        "pointsman.store.local.local_store",
    ),
)
_STREAMS: Final = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


def run_command(
    *arguments: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    standard_input: bytes = b"",
) -> subprocess.CompletedProcess[str]:
    """What has become of ``pointsman`` with these arguments; folder and environment are the tests' own unless given.

    Raises:
        subprocess.TimeoutExpired: It takes longer than two minutes.
    """
    return run_program(COMMAND, *arguments, folder=folder, environment=environment, standard_input=standard_input)


def run_program(
    code: str,
    *arguments: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    standard_input: bytes = b"",
    modules: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """What has become of Python source, like `run_command`; ``modules`` are those that many such programs need."""
    argv = ["pointsman", *arguments]
    with tempfile.TemporaryDirectory(prefix="pointsman-program-") as streams:
        Path(streams, "stdin").write_bytes(standard_input)
        Path(streams, "stdout").touch()
        Path(streams, "stderr").touch()
        program = {
            "code": code,
            "arguments": argv,
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "streams": streams,
        }
        exit_code = _first_process(modules).run(program)
        output, errors = (Path(streams, name).read_text("utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(argv, exit_code, output, errors)


class _FirstProcess:
    """The process that the others are forked from, one after the other; it ends when its standard input does."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.end)

    def run(self, program: dict[str, Any], seconds: float = 600.0) -> int:
        """The exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(program).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
            _first_process.cache_clear()
            raise subprocess.TimeoutExpired(program["arguments"], seconds)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        with self._process:
            self._process.kill()


@cache
def _first_process(modules: tuple[str, ...]) -> _FirstProcess:
    return _FirstProcess(modules)


def _fork() -> None:
    """In the first process: fork for each line of standard input and print the exit code."""
    for line in sys.stdin.buffer:
        child = os.fork()
        if not child:
            names: dict[str, Any] = {"__name__": "__main__"}
            _end(_run(_become(json.loads(line)), names), names)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(source: str, names: dict[str, Any]) -> int:
    """In a child: run a program to its last line, and give its exit code."""
    try:
        exec(compile(source, "<string>", "exec"), names)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001  (it ends the program, like every other)
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(exit_code: int, names: dict[str, Any]) -> NoReturn:
    """What the interpreter does at its end, as far as a program can tell; `multiprocessing` ends its processes so."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    names.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _prepare_once() -> None:
    """Have done here what each command would do anew: read what the commands take, and make the tables of words."""
    import typer.main

    typer.main.get_command = cache(typer.main.get_command)
    from typer.testing import CliRunner

    from pointsman.cli.core_commands import app
    from pointsman.embedders.e5.e5_embedder import default_embedder
    from pointsman.text.tokens import DEFAULT_ANALYZER

    CliRunner().invoke(app, ["config"])
    assert DEFAULT_ANALYZER.fingerprint
    default_embedder().embed_queries(["open"])  # it has no threads of its own that a fork would lose


def _become(program: Mapping[str, Any]) -> str:
    for number, (name, flags) in enumerate(_STREAMS):
        descriptor = os.open(Path(program["streams"], name), flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  (the other one has read ahead)
    sys.argv[:] = program["arguments"]
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["folder"])
    return str(program["code"])


if __name__ == "__main__":
    del sys.path[0]  # the folder of the tests
    for module in (*_IMPORTED, *sys.argv[1:]):
        import_module(module)
    _prepare_once()
    gc.freeze()  # no child need look through all that at its end
    _fork()
