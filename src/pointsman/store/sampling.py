"""Even samples: a dataset's first documents are often alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def evenly(items: Sequence[T], count: int | None) -> list[T]:
    """Return at most ``count`` items, evenly spaced, in order; all of them if ``count`` is None.

    >>> evenly(["a", "b", "c", "d"], 2)
    ['a', 'c']
    """
    if count is None or len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]
