"""Files that are replaced as a whole, and stay so after a crash."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary file, sync, and rename; after a crash either the old or the new file is there."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}.tmp")  # another thread may be writing too
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals inside a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
