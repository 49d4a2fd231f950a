"""A store that simulates a remote one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman.store.base_store import Store
from pointsman.store.store_values import Capability, Lists, Statistics, StoreInfo, StoreQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


T = TypeVar("T")


def _far_away(name: str) -> Any:
    """Return a method that calls the one of this name of the wrapped store, which takes a round trip."""

    @wraps(getattr(Store, name), updated=())  # the method is not abstract
    def method(self: SlowStore, *args: Any, **options: Any) -> Any:
        return self._call_later(name, lambda: getattr(self.store, name)(*args, **options))

    return method


def _changing(name: str) -> Any:
    """Return such a method for one that changes the store, and so its statistics."""
    call = _far_away(name)

    @wraps(call)
    def method(self: SlowStore, *args: Any, **options: Any) -> Any:
        self._statistics_at = None
        return call(self, *args, **options)

    return method


class SlowStore(Store):
    """Simulates a remote store: each round trip takes a fixed time, and is counted.

    For tests of how many round trips a search makes: a store without `Capability.LOCAL` gets at most two.

    Args:
        store: the store that does the work.
        seconds: the duration of a round trip.
        documents: return the documents of all candidates with a search, as server stores do.

    Attributes:
        calls: by method name, the number of calls that cost a round trip.

    Example:
        >>> from slow_store import SlowStore
        >>> slow = SlowStore(store, seconds=0.05)  # doctest: +SKIP
        >>> slow.search([Look("signal")]), slow.round_trips  # doctest: +SKIP
    """

    def __init__(self, store: Store, seconds: float = 0.05, *, documents: bool = True) -> None:
        self.store, self.seconds, self._documents = store, seconds, documents
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._statistics_at: tuple[float, Statistics] | None = None

    @property
    def round_trips(self) -> int:
        """The number of round trips since the last `reset`."""
        return self.calls.total()

    def reset(self) -> None:
        """Set the counts to zero."""
        with self._lock:
            self.calls.clear()

    def _call_later(self, name: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.calls[name] += 1
        time.sleep(self.seconds)
        return call()

    @property
    def info(self) -> StoreInfo:
        """The wrapped store's, without `Capability.LOCAL`."""
        info = self.store.info
        return replace(info, kind=f"slow {info.kind}", capabilities=info.capabilities - {Capability.LOCAL})

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        return self._call_later("search", lambda: self._with_documents(self.store.search(store_queries)))

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

    fetch, score, keys, get = map(_far_away, ("fetch", "score", "keys", "get"))
    page, ids, count, bare = map(_far_away, ("page", "ids", "count", "bare"))
    unchanged, vectors, frequencies, drop = map(_far_away, ("unchanged", "vectors", "frequencies", "drop"))
    in_view, best_cosines = map(_far_away, ("in_view", "best_cosines"))
    write, set_metadata, delete, annotate = map(_changing, ("write", "set_metadata", "delete", "annotate"))

    def statistics(self) -> Statistics:
        """See `Store`; cached for a second."""
        cached = self._statistics_at
        if cached is None or time.monotonic() - cached[0] > 1:
            self._statistics_at = cached = (time.monotonic(), self._call_later("statistics", self.store.statistics))
        return cached[1]

    def close(self) -> None:
        """See `Store`."""
        self.store.close()
