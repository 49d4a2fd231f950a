"""A real Dask cluster on this machine: a scheduler and worker processes, each of which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Self

_QUIET = {"DASK_DISTRIBUTED__DASHBOARD__LINK": "", "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "True"}


class DaskProcesses:
    """A scheduler and workers of one thread each, which a nanny starts again when they die.

    Args:
        folder: for their files and logs.
        workers: number of worker processes.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._file = folder / "scheduler.json"
        self._log: IO[bytes] = (folder / "dask.log").open("wb")
        self._folder = folder
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self._file))
        deadline = monotonic() + 60
        while not self._file.exists() or not self._file.read_text():
            assert monotonic() < deadline, "the scheduler does not start"
            sleep(0.05)
        self.address: str = json.loads(self._file.read_text())["address"]
        self._workers = self._start(
            "worker", self.address, "--nworkers", str(workers), "--nthreads", "1", "--host", "127.0.0.1",
            "--no-dashboard", "--local-directory", str(folder), "--memory-limit", "0",
        )  # fmt: skip

    def _start(self, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        if command == "scheduler":
            arguments = (*arguments, "--host", "127.0.0.1")
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments],
            stdout=self._log, stderr=self._log, env=os.environ | _QUIET, cwd=self._folder, start_new_session=True,
        )  # fmt: skip

    def worker_ids(self) -> list[int]:
        """Return the process ids of the workers that are there now."""
        from distributed import Client

        with Client(self.address, timeout=30, set_as_default=False) as client:
            return sorted(client.run(os.getpid).values())

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers have announced themselves."""
        from distributed import Client

        with Client(self.address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=120)

    def close(self) -> None:
        """End all processes."""
        for process in (self._workers, self.scheduler):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
