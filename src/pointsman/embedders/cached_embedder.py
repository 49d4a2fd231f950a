"""Caches embeddings on disk, so that no text is embedded twice."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import xxhash

from pointsman.embedders.base_embedder import BaseEmbedder, Progress, text_list, truncated_at
from pointsman.embedders.e5.prepared_files import cache_directory
from pointsman.embedders.named_embedders import as_embedder
from pointsman.tools.system.sqlite_errors import SQLITE_ERRORS, damage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_FILE: Final = "embeddings-1.sqlite3"  # the number is the format version
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used);
"""
_LOOKUP: Final = 500  # keys per statement; every SQLite accepts 999
_STORE: Final = 2048  # texts embedded between two writes, so that little is lost if the process dies
_USE_SECONDS: Final = 3600  # "last used" is rounded to the hour, so that most look-ups write nothing
_DIGEST: Final = 8


class CachedEmbedder(BaseEmbedder):
    """Adds a disk cache to any embedder, keyed by its name, query or document, and the text's hash.

    One SQLite file serves all embedders, threads and processes of a machine. Vectors are returned bit-identical.
    Problems with the file never stop the work: a damaged one is moved aside and recreated, an unwritable one is not
    used, and both are logged. Vectors of an embedder without its own name (`EmbedFunction`) are not cached, as they
    could not be told apart from those of another one.
    """

    def __init__(
        self, embedder: Embedder | str, directory: str | Path | None = None, max_bytes: int = 2 * 1024**3
    ) -> None:
        """Wrap an embedder; the file is opened on first use.

        Args:
            embedder: Computes the vectors that are not cached.
            directory: Folder of the file; default: ``cache_directory()``.
            max_bytes: Approximate maximum size of the file; the least recently used vectors are deleted first.
        """
        self._embedder = embedder = as_embedder(embedder)
        self._file = _VectorFile(Path(directory or cache_directory()) / _FILE, max_bytes)
        parameters = inspect.signature(embedder.embed_documents).parameters
        self._tells_progress = "on_progress" in parameters
        self._is_identified = getattr(embedder, "identified", True)
        self.cosine_spread = getattr(embedder, "cosine_spread", None)

    @property
    def embedder(self) -> Embedder:
        """The embedder that computes the vectors."""
        return self._embedder

    @property
    def name(self) -> str:
        """Name of the wrapped embedder: the vectors are the same."""
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        """Length of a vector of the wrapped embedder."""
        return self._embedder.dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised; only new texts are embedded."""
        return self._embed("query", text_list(texts), None)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised; only new texts are embedded."""
        return self._embed("document", text_list(texts), on_progress)

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        """See `BaseEmbedder`; as the wrapped embedder says."""
        return truncated_at(self._embedder, text, as_query=as_query)

    def _embed(self, kind: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        if not self._is_identified:
            return self._compute(kind, texts, on_progress)
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        positions: dict[bytes, list[int]] = {}
        for position, key in enumerate(self._keys(kind, texts)):
            positions.setdefault(key, []).append(position)
        vectors_by_key = self._file.look_up(list(positions), self.dimensions)
        for key, vector in vectors_by_key.items():
            vectors[positions[key]] = vector
        cached_count = sum(len(positions[key]) for key in vectors_by_key)
        if on_progress is not None and cached_count:
            on_progress(cached_count)
        missing = [key for key in positions if key not in vectors_by_key]
        for start in range(0, len(missing), _STORE):
            keys = missing[start : start + _STORE]
            new = self._compute(kind, [texts[positions[key][0]] for key in keys], on_progress)
            for key, vector in zip(keys, new, strict=True):
                vectors[positions[key]] = vector
            self._file.store(keys, new)
        if on_progress is not None and len(texts) > cached_count + len(missing):
            on_progress(len(texts) - cached_count - len(missing))  # repeated new texts
        return vectors

    def _compute(self, kind: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        if kind == "query":
            vectors = self._embedder.embed_queries(texts)
        elif on_progress is not None and self._tells_progress:
            return self._embedder.embed_documents(texts, on_progress=on_progress)  # type: ignore[call-arg]
        else:
            vectors = self._embedder.embed_documents(texts)
        if on_progress is not None:
            on_progress(len(texts))
        return vectors

    def _keys(self, kind: str, texts: list[str]) -> list[bytes]:
        start = hashlib.blake2b(f"{kind}\0{self.name}\0".encode(), digest_size=16)
        keys = []
        for text in texts:
            digest = start.copy()
            digest.update(text.encode("utf-8", "surrogatepass"))
            keys.append(digest.digest())
        return keys


class _VectorFile:
    """The SQLite file. All its failures are handled here, as its content can always be recomputed."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened_by = 0  # process id: a connection must not be used across a fork
        self._inode = 0
        self.clock: Callable[[], float] = time.time

    def look_up(self, keys: list[bytes], dimensions: int) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are stored and undamaged."""
        return self._attempt(lambda connection: self._read(connection, keys, dimensions), {}) if keys else {}

    def store(self, keys: list[bytes], vectors: NDArray[np.float32]) -> None:
        self._attempt(lambda connection: self._write(connection, keys, vectors), None)

    def _read(
        self, connection: sqlite3.Connection, keys: list[bytes], dimensions: int
    ) -> dict[bytes, NDArray[np.float32]]:
        hour = self._hour()
        vectors, stale = {}, []
        for start in range(0, len(keys), _LOOKUP):
            batch = keys[start : start + _LOOKUP]
            batch_keys = set(batch)
            marks = ",".join("?" * len(batch))
            query = f"SELECT key, vector, used FROM vectors WHERE key IN ({marks})"  # noqa: S608 - only marks
            for key, blob, hour_of_use in connection.execute(query, batch):
                if key not in batch_keys or not isinstance(blob, bytes) or len(blob) != 4 * dimensions + _DIGEST:
                    continue  # damaged: recomputed and overwritten
                values = blob[:-_DIGEST]
                if _checksum(key, values) == blob[-_DIGEST:]:
                    vectors[key] = np.frombuffer(values, "<f4")
                    if hour_of_use != hour:
                        stale.append((hour, key))
        if stale:
            with connection:
                connection.executemany("UPDATE vectors SET used = ? WHERE key = ?", stale)
        return vectors

    def _write(self, connection: sqlite3.Connection, keys: list[bytes], vectors: NDArray[np.float32]) -> None:
        hour = self._hour()
        blobs = [vector.astype("<f4").tobytes() for vector in vectors]
        rows = [(key, blob + _checksum(key, blob), hour) for key, blob in zip(keys, blobs, strict=True)]
        with connection:
            connection.executemany("INSERT OR REPLACE INTO vectors (key, vector, used) VALUES (?, ?, ?)", rows)
        self._evict(connection)

    def _evict(self, connection: sqlite3.Connection) -> None:
        """Delete the least recently used vectors until a tenth is free, so that this is rare."""
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        if (pages - free) * page <= self._max_bytes:
            return
        (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
        surplus = max(1, count - int(count * 0.9 * self._max_bytes / ((pages - free) * page)))
        with connection:
            connection.execute(
                "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY used, rowid LIMIT ?)",
                (surplus,),
            )

    def _hour(self) -> int:
        return int(self.clock() // _USE_SECONDS)

    def _attempt(self, action: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        with self._lock:
            try:
                return action(self._open())
            except (*SQLITE_ERRORS, OSError) as error:
                if (problem := damage(error)) is not None:
                    self._set_aside(problem)
                else:  # locked for long, full or read-only disk
                    log.warning("the embedding cache %s cannot be used now: %s", self._path, error)
            return otherwise

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._opened_by == os.getpid():
            return self._connection
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=10, check_same_thread=False)
        try:
            connection.execute("PRAGMA page_size = 8192")  # five vectors of 384 a page instead of two in 4096
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # what a power failure loses is recomputed
            connection.executescript(_SCHEMA)
            self._inode = self._path.stat().st_ino
        except BaseException:
            connection.close()
            raise
        self._connection, self._opened_by = connection, os.getpid()
        weakref.finalize(self, connection.close)  # when the cache is collected, at the latest at process exit
        return connection

    def _set_aside(self, problem: str) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            if self._inode and self._path.stat().st_ino != self._inode:
                return  # another process has already recreated it
            damaged_path = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
            self._path.rename(damaged_path)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as trouble:
            log.warning("the embedding cache %s is damaged (%s) and cannot be moved: %s", self._path, problem, trouble)
        else:
            log.warning(
                "the embedding cache %s is damaged (%s); set aside as %s", self._path, problem, damaged_path.name
            )
        finally:
            self._inode = 0


def _checksum(key: bytes, values: bytes) -> bytes:
    """Checksum that includes the key, so that no row passes for another."""
    return xxhash.xxh64_digest(key + values)
