"""What is computed from all documents of a store, kept until they change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.store.base import Store

T = TypeVar("T")


class Latest(Generic[T]):
    """Values by store, of the stores asked about last; any number of threads may ask.

    Args:
        most: what all that is kept may weigh together; the value asked for last is kept whatever it weighs.
        weight: of a value.
    """

    def __init__(self, most: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._most, self._weight = most, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def of(self, store: Store, build: Callable[[], T]) -> T:
        """The value of a store as it is; built anew where the store has changed."""
        identity, sequence = store.info.identity, store.statistics().sequence
        with self._lock:  # two that need the same value do not both build it
            value = self._values.get(identity)
            if value is None or value[0] != sequence:
                value = sequence, build()
            self._values[identity] = value
            self._values.move_to_end(identity)
            while len(self._values) > 1 and sum(self._weight(value) for _, value in self._values.values()) > self._most:
                self._values.popitem(last=False)
        return value[1]
