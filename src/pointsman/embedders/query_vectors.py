"""Embeds each query once: many in one batch, and once for all concurrent callers."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future, wait
from time import monotonic
from typing import TYPE_CHECKING, Any

from pointsman.tools.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder

    _Embedding = Future[tuple[NDArray[np.float32], int | None]]

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


class QueryVectors:
    """Embeds each query once: the latest are remembered, and concurrent callers wait for a pending embedding.

    An embedding that is pending for ten seconds is started again; a forked process starts with none.

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
        entry = self._entries.get(text)
        if entry is not None and entry.done():
            return entry.result()[0]
        vector: NDArray[np.float32] = self._embed([text])[0]  # evicted, failed or still pending
        return vector

    def __contains__(self, text: str) -> bool:
        """Whether a query's vector is remembered."""
        entry = self._entries.get(text)
        return entry is not None and entry.done() and entry.exception() is None

    def truncated_at(self, text: str) -> int | None:
        """Return how many characters of a query its vector holds; None if all, or if that is not known."""
        entry = self._entries.get(text)
        return None if entry is None or not entry.done() or entry.exception() else entry.result()[1]

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed the texts that are not remembered, in one batch, and wait for those that others are embedding.

        Raises:
            ModelError: the embedder did not return one usable vector per text.
            Exception: whatever the embedder raises; nothing is remembered in either case.
        """
        own_entries: dict[str, _Embedding] = {}
        foreign_entries: dict[str, _Embedding] = {}
        with self._lock:
            for text in texts:
                entry = self._entries.pop(text, None)
                if entry is None:
                    entry = own_entries[text] = Future()
                elif not entry.done() and text not in own_entries:
                    foreign_entries[text] = entry
                self._entries[text] = entry  # move to the end: the least recently used come first
            while len(self._entries) > max(self._size, len(texts)):
                del self._entries[next(iter(self._entries))]
        if own_entries:
            self._embed_mine(own_entries)
        if foreign_entries:
            wait(foreign_entries.values(), _PATIENCE)
            self._drop({text: entry for text, entry in foreign_entries.items() if not entry.done()})

    def _embed_mine(self, entries: Mapping[str, _Embedding]) -> None:
        from pointsman.embedders.base_embedder import truncated_at

        try:
            for (text, entry), vector in zip(entries.items(), self._embed(list(entries)), strict=True):
                entry.set_result((vector, truncated_at(self._embedder(), text, as_query=True)))
        except BaseException as error:
            self._drop(entries)
            for entry in entries.values():
                if not entry.done():
                    entry.set_exception(error)
            raise

    def _drop(self, entries: Mapping[str, _Embedding]) -> None:
        """Forget these, unless another thread has started them again."""
        with self._lock:
            for text, entry in entries.items():
                if self._entries.get(text) is entry:
                    del self._entries[text]

    def start_anew(self) -> None:
        """Forget all, with a new lock, in a forked process: the threads that hold the old one don't exist there."""
        self._lock, self._entries = threading.Lock(), {}

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


_all_query_vectors: weakref.WeakSet[QueryVectors] = weakref.WeakSet()


def _start_anew() -> None:
    """In a forked child, a thread that no longer exists may hold the locks."""
    for query_vectors in _all_query_vectors:
        query_vectors.start_anew()


if hasattr(os, "register_at_fork"):  # absent on platforms without fork
    os.register_at_fork(after_in_child=_start_anew)
