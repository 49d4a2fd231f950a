"""`BM25IndexManager`: a separate keyword index for any store with a change log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from pointsman._twins import async_twin
from pointsman.errors import InputError, LockedError
from pointsman.store.local.files import WriterLock, make_directory
from pointsman.store.local.keyword import KeywordIndex
from pointsman.types import Hit

log = logging.getLogger(__name__)


class _Awaitable:
    """A result that may also be awaited, as in ``await manager.search(…)``."""

    def __await__(self) -> Generator[Any, None, Self]:
        """Return the result itself without waiting."""
        return self
        yield


class Ranking(_Awaitable, list[Hit]):
    """Hits that may also be awaited."""


class SequenceNumber(_Awaitable, int):
    """A sequence number that may also be awaited."""


class BM25IndexManager:
    """Keeps a BM25 index on disk in step with a vector store.

    Args:
        index_path: the directory of the index.
        vector_store: its source: a dataset in a folder, or any `pointsman.store.local.keyword.DocumentSource`.
        bm25_k1: term frequency saturation, applied exactly.
        bm25_b: length normalisation, applied exactly.
        bm25_auto_sync: update the index before every search; if another process maintains it, read what that process
            has written.

    Raises:
        InputError: ``vector_store`` is neither, or a constant is out of range.
    """

    def __init__(
        self,
        index_path: str | Path,
        vector_store: Any,
        *,
        bm25_k1: float = 1.2,
        bm25_b: float = 0.75,
        bm25_auto_sync: bool = True,
    ) -> None:
        store = getattr(vector_store, "store", vector_store)  # if a dataset
        vector_store = getattr(getattr(store, "collection", None), "truth", vector_store)
        for name in ("identity", "sequence", "changes", "fetch"):
            if not hasattr(vector_store, name):
                raise InputError(
                    f"vector_store is a dataset in a folder, or a DocumentSource; {type(vector_store).__name__} has "
                    f"no {name!r}"
                )
        self.index_path = Path(index_path)
        make_directory(self.index_path)
        self.vector_store = vector_store
        self._index = KeywordIndex(
            self.index_path / "index",
            vector_store,
            k1=bm25_k1,
            b=bm25_b,
            refresh=self._auto_sync if bm25_auto_sync else None,
        )
        self._lock = WriterLock(self.index_path)
        self._guard = threading.Lock()

    def build_from_vector_store(self) -> SequenceNumber:
        """Rebuild the index; return the sequence number reached, which may also be awaited.

        Raises:
            LockedError: another process is writing to this index.
        """
        return SequenceNumber(self._write(anew=True))

    def sync_incremental(self) -> SequenceNumber:
        """Apply adds, updates and deletes since the last sync, at a cost proportional to their number.

        Returns:
            The sequence number reached, which may also be awaited.

        Raises:
            LockedError: another process is writing to this index.
        """
        if self._index.applied == self.vector_store.sequence():
            return SequenceNumber(self._index.applied)
        return SequenceNumber(self._write(anew=False))

    def search(self, query: str, k: int = 5) -> Ranking:
        """Return up to ``k`` hits with raw BM25 scores, best first; the result may also be awaited."""
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise InputError(f"the number of results is an int from 1 up, not {k!r:.80}")
        ranking = self._index.search(query, k)
        documents = self.vector_store.fetch([key for key, _ in ranking])
        pairs = zip(documents, ranking, strict=True)
        return Ranking(Hit(document, score) for document, (_, score) in pairs if document)

    abuild_from_vector_store = async_twin(build_from_vector_store)

    async_incremental = async_twin(sync_incremental)

    asearch = async_twin(search)

    def close(self) -> None:
        """Close the files."""
        self._index.close()
        self._lock.release()

    aclose = async_twin(close)

    def _auto_sync(self) -> None:
        try:
            self.sync_incremental()
        except LockedError as error:
            log.debug("not synchronised here: %s", error)
            self._index.reload()

    def _write(self, *, anew: bool) -> int:
        with self._guard:
            self._lock.acquire()
            if anew:
                self._index.clear()
            self._index.catch_up()
            return self._index.applied
