"""A file system of a few megabytes that can be filled, for tests and benchmarks of full disks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoSmallDiskError(Exception):
    """A small disk cannot be mounted here."""


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A file system of this many bytes at a folder.

    Raises:
        NoSmallDiskError: it cannot be mounted.
    """
    mount = shutil.which("mount")
    if mount is None or os.getuid() != 0:
        raise NoSmallDiskError("only root can mount a small disk")
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if (outcome := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        raise NoSmallDiskError(f"a small disk cannot be mounted here: {outcome.stderr}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk but for so many bytes; gives the file to delete."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            file.truncate(max(0, file.tell() - leave))
    return filler
