"""The texts of a store, or of an even sample of a large one, to learn its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pointsman.store.base_store import Store

MOST_CHARACTERS: Final = 20_000_000
"""Characters read of a dataset, at some 11 million a second; of a larger dataset, every n-th document is read."""
_PROBE: Final = 64
"""The number of documents from which the text length of a dataset is estimated."""


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
