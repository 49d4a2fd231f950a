"""Real workers on this machine, each a process that can be killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Self

KEY = "a key of the tests' workers"


class WorkerProcesses:
    """Processes of ``pointsman worker``, of one task each.

    Args:
        folder: whose files they read.
        count: number of processes.
        embedder: their embedder.
    """

    def __init__(self, folder: Path, count: int = 2, embedder: str = "hashing") -> None:
        command = [sys.executable, "-m", "pointsman", "worker", str(folder), "--tasks", "1", "--embedder", embedder]
        self._command = command
        self.processes = [self._start("0") for _ in range(count)]
        self.addresses = [_address(process) for process in self.processes]

    def _start(self, port: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"POINTSMAN_WORKER_KEY": KEY}
        return subprocess.Popen([*self._command, "--port", port], stderr=subprocess.PIPE, env=environment)

    def restart(self, number: int) -> None:
        """Kill a process, and start another one at its address."""
        _end(self.processes[number])
        self.processes[number] = self._start(self.addresses[number].rpartition(":")[2])

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            _end(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], 120)[0], "a worker does not start"
    line = process.stderr.readline().decode()
    assert "listens at" in line, line
    return line.split()[-1]
