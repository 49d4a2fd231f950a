"""Even samples: a dataset's first documents are often alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pointsman.store.base import Store

T = TypeVar("T")

MOST_CHARACTERS: Final = 20_000_000
"""Characters read of a dataset, at some 11 million a second; of a larger dataset, every n-th document is read."""
_PROBE: Final = 64
"""The number of documents from which the text length of a dataset is estimated."""


def evenly(items: Sequence[T], count: int | None) -> list[T]:
    """Return at most ``count`` items, evenly spaced, in order; all of them if ``count`` is None.

    >>> evenly(["a", "b", "c", "d"], 2)
    ['a', 'c']
    """
    if count is None or len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def texts(store: Store, limit: int = MOST_CHARACTERS) -> Iterator[str]:
    """Yield the texts of the documents; of an even sample if they are estimated to exceed ``limit`` characters."""
    probe, count = [document.searchable for document in store.sample(_PROBE)], store.count()
    size = sum(map(len, probe)) / max(1, len(probe)) * count
    documents = store.documents() if size <= limit else store.sample(max(1, int(count * limit / size)))
    characters = 0
    for document in documents:
        characters += len(document.searchable)
        if characters > 2 * limit:
            return
        yield document.searchable
