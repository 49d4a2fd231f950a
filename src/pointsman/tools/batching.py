"""Cutting an iterable into batches; ``itertools.batched`` only comes with Python 3.12."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items; the last one may be shorter.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def batched_by(items: Iterable[T], size: int, weight: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items, or of fewer as soon as their weights add up to ``limit``.

    >>> list(batched_by(["a", "bcde", "f", "g", "h"], 3, len, 4))
    [['a', 'bcde'], ['f', 'g', 'h']]
    """
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += weight(item)
        if len(batch) >= size or total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
