"""A store that simulates a remote one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman.store.base import BaseStore, Capability, Lists, Look, MetadataResult, Page, Statistics, StoreInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.store.base import Scores, Store
    from pointsman.types import AddResult, Document, Metadata

T = TypeVar("T")


class SlowStore(BaseStore):
    """Simulates a remote store: each round trip takes a fixed time, and is counted.

    For tests of how many round trips a search makes: a store without `Capability.LOCAL` gets at most two.

    Args:
        store: the store that does the work.
        seconds: the duration of a round trip.
        documents: return the documents of all candidates with a search, as server stores do.

    Attributes:
        calls: by method name, the number of calls that cost a round trip.

    Example:
        >>> from pointsman.testing import SlowStore
        >>> slow = SlowStore(store, seconds=0.05)  # doctest: +SKIP
        >>> slow.search([Look("signal")]), slow.round_trips  # doctest: +SKIP
    """

    def __init__(self, store: Store, seconds: float = 0.05, *, documents: bool = True) -> None:
        self.store, self.seconds, self._documents = store, seconds, documents
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._known: tuple[float, Statistics] | None = None

    @property
    def round_trips(self) -> int:
        """The number of round trips since the last `reset`."""
        return self.calls.total()

    def reset(self) -> None:
        """Set the counts to zero."""
        with self._lock:
            self.calls.clear()

    def _far(self, name: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.calls[name] += 1
        time.sleep(self.seconds)
        return call()

    @property
    def info(self) -> StoreInfo:
        """The wrapped store's, without `Capability.LOCAL`."""
        info = self.store.info
        return replace(info, kind=f"slow {info.kind}", capabilities=info.capabilities - {Capability.LOCAL})

    def search(self, looks: Sequence[Look]) -> list[Lists]:
        """See `Store`."""
        return self._far("search", lambda: self._with_documents(self.store.search(looks)))

    def _with_documents(self, answers: list[Lists]) -> list[Lists]:
        if not self._documents:
            return answers
        keys = list({key: None for answer in answers for ranking in answer.rankings.values() for key, _ in ranking})
        documents = {
            key: document for key, document in zip(keys, self.store.fetch(keys), strict=True) if document is not None
        }
        return [
            Lists(
                answer.rankings,
                answer.scores,
                {key: documents[key] for ranking in answer.rankings.values() for key, _ in ranking if key in documents},
                answer.degraded,
            )
            for answer in answers
        ]

    def score(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        return self._far("score", lambda: self.store.score(looks, keys))

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        return self._far("fetch", lambda: self.store.fetch(keys))

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`."""
        return self._far("keys", lambda: self.store.keys(ids))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        return self._far("get", lambda: self.store.get(ids))

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        return self._far("page", lambda: self.store.page(after, limit, filters))

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`."""
        return self._far("ids", lambda: self.store.ids(source=source, filters=filters))

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        return self._far("count", lambda: self.store.count(filters))

    def write(
        self,
        documents: Sequence[Document],
        vectors: NDArray[np.float32] | None = None,
        embedder: str | None = None,
        *,
        stored_only: bool = False,
    ) -> AddResult:
        """See `Store`."""
        self._known = None
        options = {"stored_only": True} if stored_only else {}
        return self._far("write", lambda: self.store.write(documents, vectors, embedder, **options))

    def set_metadata(
        self,
        changes: Mapping[str, Metadata],
        vectors: Mapping[str, NDArray[np.float32]] | None = None,
        embedder: str | None = None,
        *,
        replace: bool = False,
    ) -> MetadataResult:
        """See `Store`."""
        self._known = None
        return self._far("set_metadata", lambda: self.store.set_metadata(changes, vectors, embedder, replace=replace))

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        return self._far("bare", lambda: self.store.bare(limit))

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        return self._far("unchanged", lambda: self.store.unchanged(documents))

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """See `Store`."""
        self._known = None
        return self._far("delete", lambda: self.store.delete(ids, filters))

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`."""
        return self._far("vectors", lambda: self.store.vectors(keys, sample=sample))

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        return self._far("frequencies", lambda: self.store.frequencies(words))

    def statistics(self) -> Statistics:
        """See `Store`; cached for a second."""
        cached = self._known
        if cached is None or time.monotonic() - cached[0] > 1:
            self._known = cached = (time.monotonic(), self._far("statistics", self.store.statistics))
        return cached[1]

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        self._known = None
        self._far("annotate", lambda: self.store.annotate(**notes))

    def drop(self) -> None:
        """See `Store`."""
        self._far("drop", self.store.drop)

    def close(self) -> None:
        """See `Store`."""
        self.store.close()
