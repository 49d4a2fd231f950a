"""Where prepared files live, and how one is written so that no reader ever meets half of it."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import xxhash

log = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE: Final = "POINTSMAN_CACHE"
_DIGEST_BYTES: Final = 16


def cache_directory() -> Path:
    """The folder for everything that can be made again: ``$POINTSMAN_CACHE``, else this user's cache folder.

    The folder need not exist yet; whoever writes into it creates it.
    """
    configured = os.environ.get(ENVIRONMENT_VARIABLE)
    if configured:
        return Path(configured).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("pointsman")


def artefact(path: Path, build: Callable[[], bytes]) -> bytes:
    """The bytes kept in ``path``; built and written there when absent or damaged.

    A file ends in a checksum of what precedes it. It is written under a temporary name, synced and renamed, so
    processes preparing at once each put down a whole file, and the last one stays. Where the folder cannot be
    written the bytes are used all the same, and the log says so.

    Args:
        path: The file.
        build: Makes the bytes.

    Returns:
        The bytes, without the checksum.
    """
    cached = _read(path)
    if cached is not None:
        return cached
    content = build()
    try:
        _write(path, content)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s), so every process rebuilds it; set %s to a writable folder",
            path,
            error,
            ENVIRONMENT_VARIABLE,
        )
    return content


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s cannot be read (%s); rebuilding it", path, error)
        return None
    content, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if xxhash.xxh3_128_digest(content) != digest:
        log.warning("%s is damaged; rebuilding it", path)
        return None
    return content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.write(xxhash.xxh3_128_digest(content))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
