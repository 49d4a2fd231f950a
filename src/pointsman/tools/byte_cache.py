"""What is kept in memory to answer sooner, within one limit of bytes for the whole process.

``cachetools`` is not used: its caches each have a limit of their own, and none may be used by two threads.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DEFAULT_LIMIT: Final = 48 << 20
_ENTRY: Final = 400
"""Bytes counted for an entry besides its value."""


@dataclass(slots=True)
class _Budget:
    """Which entries all caches have, the least recently used first; each cache holds its own values."""

    limit: int = DEFAULT_LIMIT
    used: int = 0
    entries: OrderedDict[tuple[int, Hashable], tuple[weakref.ref[ByteCache[Any, Any]], int]] = field(
        default_factory=OrderedDict
    )
    lock: Any = field(default_factory=threading.RLock)

    def remove(self, name: tuple[int, Hashable]) -> Any:
        if (entry := self.entries.pop(name, None)) is None:
            return None
        cache, size = entry[0](), entry[1]
        self.used -= size
        return None if cache is None else cache._lose(name[1])  # noqa: SLF001  (one mechanism, two classes)

    def fit(self, at_least: int = 0) -> list[Any]:
        """Remove entries until the others fit, and return them, so that they are freed outside the lock."""
        evicted_values = []
        while self.used > self.limit and len(self.entries) > at_least:
            evicted_values.append(self.remove(next(iter(self.entries))))
        return evicted_values

    def forget(self, cache: int, keys: set[Any]) -> None:
        """Remove the entries of a cache, which has these keys."""
        with self.lock:
            evicted_values = [self.remove((cache, key)) for key in list(keys)]
        del evicted_values


_budget = _Budget()
if hasattr(os, "register_at_fork"):  # a thread that does not exist in the child may hold the lock
    os.register_at_fork(after_in_child=lambda: setattr(_budget, "lock", threading.RLock()))


def set_limit(limit: int) -> None:
    """Set how many bytes all caches of this process may take together."""
    with _budget.lock:
        _budget.limit = limit
        evicted_values = _budget.fit()
    del evicted_values


def use() -> dict[str, int]:
    """Return how many bytes all caches of this process take, ``cached``, and may take, ``cache_limit``."""
    return {"cached": _budget.used, "cache_limit": _budget.limit}


class ByteCache(Generic[K, V]):
    """Values by key; of all caches of the process, what was used least recently goes first. Thread-safe.

    A value larger than the limit is kept until the next one comes. The values of a cache end with it.

    Args:
        size_of: returns the bytes that a value takes, and its key.
        most: the largest number of values; None for no limit but that of bytes.

    Example:
        >>> cache = ByteCache[str, bytes](len)
        >>> cache["a"] = b"1"
        >>> cache.get("a"), cache.get("b")
        (b'1', None)
    """

    def __init__(self, size_of: Callable[[V], int], most: int | None = None) -> None:
        self._size_of, self._number, self._most = size_of, id(self), most
        self._values: OrderedDict[K, V] = OrderedDict()  # the least recently used first
        self._keys: set[K] = set()  # handed over without the values, one of which may hold the cache
        weakref.finalize(self, _budget.forget, self._number, self._keys).atexit = False

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as used; None if there is none."""
        with _budget.lock:
            if key not in self._values:
                return None
            _budget.entries.move_to_end((self._number, key))
            self._values.move_to_end(key)
            return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        name, size = (self._number, key), self._size_of(value) + _ENTRY
        with _budget.lock:
            former = _budget.remove(name)
            _budget.entries[name], self._values[key] = (weakref.ref(self), size), value
            self._keys.add(key)
            _budget.used += size
            evicted_values = _budget.fit(1)
            while self._most is not None and len(self._values) > self._most:
                evicted_values.append(_budget.remove((self._number, next(iter(self._values)))))
        del former, evicted_values

    def clear(self) -> None:
        """Remove all values."""
        _budget.forget(self._number, self._keys)

    def _lose(self, key: K) -> V | None:
        self._keys.discard(key)
        return self._values.pop(key, None)
