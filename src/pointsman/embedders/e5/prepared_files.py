"""The cache of prepared files, written atomically so that no reader sees a partial file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import xxhash

from pointsman.tools.system.replaced_files import replacing

log = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE: Final = "POINTSMAN_CACHE"
_DIGEST_BYTES: Final = 16


def cache_directory() -> Path:
    """Return the folder for everything that can be regenerated: ``$POINTSMAN_CACHE``, else the user's cache folder.

    The folder need not exist; writers create it.
    """
    setting = os.environ.get(ENVIRONMENT_VARIABLE)
    if setting:
        return Path(setting).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("pointsman")


def artefact(path: Path, build: Callable[[], bytes]) -> bytes:
    """Return the bytes stored in ``path``; if absent or damaged, they are built and written there.

    A file ends with a checksum of its content. It is written under a temporary name, synced and renamed, so concurrent
    processes each write a complete file, and the last one stays. If the folder is not writable, the bytes are used
    anyway, and this is logged.

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
    with replacing(path) as file:
        file.write(content)
        file.write(xxhash.xxh3_128_digest(content))
