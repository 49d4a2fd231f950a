"""Timing peers in environments of their own; shared by the benchmarks that compare."""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from pointsman.embedders import cache_directory


def ask_peer(name: str, packages: Sequence[str], code: str, *arguments: str, timeout: float = 300) -> Any:
    """What a script prints as JSON on its last line, run where these packages are installed from PyPI.

    The environment stays in the cache directory. None, with the reason printed, where it cannot be had.
    """
    home = cache_directory() / "benchmark-peers" / name
    python = home / "bin" / "python"
    try:
        if not (home / "installed").exists():
            venv.create(home, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
            (home / "installed").touch()
        command = [str(python), "-c", code, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout)
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        print(f"{name:18} skipped: {why[-1] if why else error!r:.200}")
        return None


def seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def microseconds(call: Callable[[], object], times: int = 5000) -> float:
    """The median of so many calls."""
    return median(seconds(call) for _ in range(times)) * 1e6
