"""Values computed from all documents of a store, cached until these change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.store.base_store import Store

T = TypeVar("T")


class Latest(Generic[T]):
    """Cached values of the most recently used stores; thread-safe.

    Args:
        capacity: maximum total weight of the cached values; the most recently used value is always kept.
        weight: returns the weight of a value.
    """

    def __init__(self, capacity: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._capacity, self._weight = capacity, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, store: Store, build: Callable[[], T]) -> T:
        """Return the value for a store's current state; it is rebuilt if the store has changed."""
        identity, sequence = store.info.identity, store.statistics().sequence
        with self._lock:  # concurrent callers that need the same value build it only once
            value = self._values.get(identity)
            if value is None or value[0] != sequence:
                value = sequence, build()
            self._values[identity] = value
            self._values.move_to_end(identity)
            while (
                len(self._values) > 1
                and sum(self._weight(value) for _, value in self._values.values()) > self._capacity
            ):
                self._values.popitem(last=False)
        return value[1]
