"""Queries become vectors, each once: one batch for many, and one embedding for all who ask at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any

from pointsman.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder

_PATIENCE = 10.0  # seconds; an embedder takes milliseconds for a query, and some seconds to load


def _rows_for(texts: Sequence[str], rows: Any, dimensions: int) -> NDArray[np.float32]:
    """The rows, if there is one usable vector for each text; every wait for one of them hangs on that.

    Raises:
        ModelError: there is not.
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
    """A query's vector, or the error in its place, once it is ``finished``; no lock is needed to see whether it is."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.vector: NDArray[np.float32] | None = None
        self.error: BaseException | None = None
        self._until, self._process = monotonic() + _PATIENCE, os.getpid()

    def left(self) -> float:
        """Seconds for which it is still waited for; the thread that works on it is not there in a forked child."""
        return max(0.0, self._until - monotonic()) if self._process == os.getpid() else 0.0


class QueryVectors:
    """Embeds queries, each once: the latest are remembered, and who asks for one that is on its way waits for it.

    One that is on its way for ten seconds, or was in the process that this one was forked from, is begun anew.

    Args:
        embedder: gives the embedder; called when the first query comes.
        size: how many are remembered.
    """

    def __init__(self, embedder: Callable[[], Embedder], size: int = 1024) -> None:
        self._embedder, self._size = embedder, size
        self._known: dict[str, _Embedding] = {}
        self._lock = threading.Lock()
        _all_query_vectors.add(self)

    def __call__(self, text: str) -> NDArray[np.float32]:
        """The query's vector, shape ``(dimensions,)``."""
        self.prepare([text])
        return self._wait(text)

    def __contains__(self, text: str) -> bool:
        """Whether a query's vector is at hand."""
        embedding = self._known.get(text)
        return embedding is not None and embedding.finished.is_set() and embedding.vector is not None

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed those that are not known, in one batch.

        Raises:
            ModelError: the embedder gave something else than one vector for each.
            Exception: whatever the embedder raises; nothing is remembered in either case.
        """
        mine: dict[str, _Embedding] = {}
        with self._lock:
            for text in texts:
                entry = self._known.pop(text, None)
                if entry is None or not (entry.finished.is_set() or entry.left()):
                    entry = mine[text] = _Embedding()
                self._known[text] = entry  # at the end: the least lately used are in front
            while len(self._known) > max(self._size, len(texts)):
                del self._known[next(iter(self._known))]
        if not mine:
            return
        try:
            for waiting, vector in zip(mine.values(), self._embed(list(mine)), strict=True):
                waiting.vector = vector
        except BaseException as error:
            with self._lock:
                for text, waiting in mine.items():
                    waiting.error = error
                    if self._known.get(text) is waiting:  # and not begun anew by somebody else
                        del self._known[text]
            raise
        finally:
            for waiting in mine.values():
                waiting.finished.set()

    def unlock(self) -> None:
        """Take a new lock; for a process in which nobody can hold the old one any more."""
        self._lock = threading.Lock()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        embedder = self._embedder()
        return _rows_for(texts, embedder.embed_queries(texts), embedder.dimensions)

    def _wait(self, text: str) -> NDArray[np.float32]:
        with self._lock:
            entry = self._known.get(text)
        if entry is not None and (entry.finished.is_set() or entry.finished.wait(entry.left())):
            if entry.error is not None:
                raise entry.error
            if entry.vector is not None:
                return entry.vector
        vector: NDArray[np.float32] = self._embed([text])[0]  # forgotten, failed or hanging meanwhile
        return vector


_all_query_vectors: weakref.WeakSet[QueryVectors] = weakref.WeakSet()


def _unlock_query_vectors() -> None:
    """In a forked child a thread that is not there may hold the locks."""
    for each in _all_query_vectors:
        each.unlock()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_unlock_query_vectors)
