"""Embeds each query once: many in one batch, and once for all concurrent callers."""

from __future__ import annotations

import os
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any

from pointsman.tools.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder

_PATIENCE = 10.0  # seconds; an embedder needs milliseconds for a query and some seconds to load


def _rows_for(texts: Sequence[str], rows: Any, dimensions: int) -> NDArray[np.float32]:
    """Check that there is one usable vector per text, as waiting callers rely on it, and return the rows.

    Raises:
        ModelError: the rows are not usable.
    """
    import numpy as np

    shape = (len(texts), dimensions)
    if not isinstance(rows, np.ndarray) or rows.shape != shape:
        description = f"an array of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ModelError(f"the embedder gave {description} for {len(texts)} texts; an array of shape {shape} is wanted")
    if not np.isfinite(rows).all():
        raise ModelError("the embedder gave a vector with a non-finite number")
    for text, row in zip(texts, rows, strict=True):
        if not row.any() and text.strip():
            raise ModelError(f"the embedder gave a vector of zeros for {text!r:.80}")
    return rows


class _Embedding:
    """A query's vector or error, available once ``is_ready`` is set; checking that needs no lock."""

    def __init__(self) -> None:
        self.is_ready = threading.Event()
        self.vector: NDArray[np.float32] | None = None
        self.truncated_at: int | None = None
        self.error: BaseException | None = None
        self._deadline, self._process = monotonic() + _PATIENCE, os.getpid()

    def seconds_left(self) -> float:
        """Return the seconds left to wait; 0 in a forked child, where the thread that computes it does not exist."""
        return max(0.0, self._deadline - monotonic()) if self._process == os.getpid() else 0.0


class QueryVectors:
    """Embeds each query once: the latest are remembered, and concurrent callers wait for a pending embedding.

    An embedding that is pending for ten seconds, or was pending in the parent before a fork, is started again.

    Args:
        embedder: returns the embedder; called on first use.
        size: maximum number of vectors remembered.

    Attributes:
        seconds: what embedding has taken so far.
    """

    def __init__(self, embedder: Callable[[], Embedder], size: int = 1024) -> None:
        self._embedder, self._size = embedder, size
        self._entries: dict[str, _Embedding] = {}
        self._lock = threading.Lock()
        self.seconds = 0.0
        _all_query_vectors.add(self)

    def __call__(self, text: str) -> NDArray[np.float32]:
        """Return the query's vector, shape ``(dimensions,)``."""
        self.prepare([text])
        return self._wait(text)

    def __contains__(self, text: str) -> bool:
        """Whether a query's vector is remembered."""
        embedding = self._entries.get(text)
        return embedding is not None and embedding.is_ready.is_set() and embedding.vector is not None

    def truncated_at(self, text: str) -> int | None:
        """Return how many characters of a query its vector holds; None if all, or if that is not known."""
        embedding = self._entries.get(text)
        return None if embedding is None else embedding.truncated_at

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed the texts that are not remembered, in one batch, and wait for those that others are embedding.

        Raises:
            ModelError: the embedder did not return one usable vector per text.
            Exception: whatever the embedder raises; nothing is remembered in either case.
        """
        own_entries: dict[str, _Embedding] = {}
        foreign_entries: list[_Embedding] = []
        with self._lock:
            for text in texts:
                entry = self._entries.pop(text, None)
                if entry is None or not (entry.is_ready.is_set() or entry.seconds_left()):
                    entry = own_entries[text] = _Embedding()
                elif not entry.is_ready.is_set():
                    foreign_entries.append(entry)
                self._entries[text] = entry  # move to the end: the least recently used come first
            while len(self._entries) > max(self._size, len(texts)):
                del self._entries[next(iter(self._entries))]
        if own_entries:
            self._embed_mine(own_entries)
        for entry in foreign_entries:
            entry.is_ready.wait(entry.seconds_left())

    def _embed_mine(self, entries: Mapping[str, _Embedding]) -> None:
        from pointsman.embedders.base_embedder import truncated_at

        try:
            for (text, waiting), vector in zip(entries.items(), self._embed(list(entries)), strict=True):
                waiting.truncated_at = truncated_at(self._embedder(), text, as_query=True)
                waiting.vector = vector
        except BaseException as error:
            with self._lock:
                for text, waiting in entries.items():
                    waiting.error = error
                    if self._entries.get(text) is waiting:  # and not restarted by another thread
                        del self._entries[text]
            raise
        finally:
            for waiting in entries.values():
                waiting.is_ready.set()

    def unlock(self) -> None:
        """Replace the lock, for a forked process in which the old one cannot be released."""
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Forget all vectors: each query is embedded again."""
        with self._lock:
            self._entries.clear()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        embedder = self._embedder()
        start = monotonic()
        rows = _rows_for(texts, embedder.embed_queries(texts), embedder.dimensions)
        self.seconds += monotonic() - start
        return rows

    def _wait(self, text: str) -> NDArray[np.float32]:
        with self._lock:
            entry = self._entries.get(text)
        if entry is not None and (entry.is_ready.is_set() or entry.is_ready.wait(entry.seconds_left())):
            if entry.error is not None:
                raise entry.error
            if entry.vector is not None:
                return entry.vector
        vector: NDArray[np.float32] = self._embed([text])[0]  # evicted, failed or still pending
        return vector


_all_query_vectors: weakref.WeakSet[QueryVectors] = weakref.WeakSet()


def _unlock_query_vectors() -> None:
    """In a forked child, a thread that no longer exists may hold the locks."""
    for query_vectors in _all_query_vectors:
        query_vectors.unlock()


if hasattr(os, "register_at_fork"):  # absent on platforms without fork
    os.register_at_fork(after_in_child=_unlock_query_vectors)
