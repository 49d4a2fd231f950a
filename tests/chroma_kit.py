"""A real Chroma for the tests, in a virtual environment of its own: `make test` installs its 500 MB once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

_SECONDS = 60.0


class NoChromaError(Exception):
    """There is none to be had here."""


class ChromaServer:
    """A server on a free port of 127.0.0.1, in a folder of its own that goes with it."""

    def __init__(self) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pointsman-tests" / "chroma-1.5"
        if not (cache / "complete").exists():
            raise NoChromaError(f"no Chroma at {cache}; `make {cache}/complete` installs it")
        self.folder = Path(tempfile.mkdtemp(prefix="pointsman-chroma-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        programs = (cache / "bin" / "python", cache / "bin" / "chroma")
        self._command = [*map(str, programs), "run", "--path", str(self.folder / "data")]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Of its database."""
        return f"chroma://127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        """Of its interface."""
        return f"http://127.0.0.1:{self.port}/api/v2"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, "--host", "127.0.0.1", "--port", str(self.port)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
            )
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{self.http}/heartbeat", timeout=5).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return
        raise NoChromaError(f"no answer from Chroma: {(self.folder / 'log').read_text()[-500:]}")

    def kill(self) -> None:
        """End it as a power failure would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, and take its folder away."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
