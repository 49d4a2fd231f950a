"""Why nothing matched a filter: a key that no document has, often a misspelt one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from pointsman._values import ID, TEXT, folded
from pointsman.filters import And, Or
from pointsman.retrieval.candidates import StoreResults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pointsman.filters import Filter
    from pointsman.retrieval.candidates import Results

_NOTED: Final = 3
"""How many unknown keys of one filter are named; each is compared with every known key."""


def unknown_keys(filters: Filter, results: Iterable[Results]) -> Iterator[str]:
    """Yield a note for each key of a filter that no searched document has, with the nearest key that there is.

    Nothing if the keys of a branch are unknown: those of a retriever, or of a store that would have to ask its server.
    """
    known: set[str] = set()
    for result in results:
        keys = result.reading.store.metadata_keys() if isinstance(result, StoreResults) else None
        if keys is None:
            return
        known.update(keys)
    if not known:  # there are no documents, or none with metadata
        return
    unknown = [key for key in dict.fromkeys(_needed(filters)) if key not in known and key not in (ID, TEXT)]
    for key in unknown[:_NOTED]:
        nearest = _nearest(key, sorted(known))
        hint = f"; did you mean {nearest!r:.80}?" if nearest else ""
        yield f"filters: no document that was searched has the key {key!r:.80}{hint}"


def _needed(filters: Filter) -> Iterator[str]:
    """Yield the keys that a filter wants a value of; a negation is met by documents without the key."""
    if isinstance(filters, And | Or):
        for part in filters.parts:
            yield from _needed(part)
    elif isinstance(key := getattr(filters, "key", None), str):
        yield key


def _nearest(key: str, names: Sequence[str]) -> str | None:
    """The known key that is most similar, whatever its case."""
    by_folded = {folded(name): name for name in names}
    nearest = difflib.get_close_matches(folded(key), by_folded, 1)
    return by_folded[nearest[0]] if nearest else None
