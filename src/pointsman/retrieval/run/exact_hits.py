"""Things that a question names exactly: what holds one comes first, and a near miss is told as one.

`pointsman.text.designations` says what a question names; this module knows which hits hold it, and asks the datasets
of a search for what no list has found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.run.judging import with_relevance
from pointsman.store.store_values import StoreQuery
from pointsman.text.designations import holds_one
from pointsman.values.types import Document, Provenance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pointsman.retrieval.run.candidates import StoreResults
    from pointsman.text.notations import Designation
    from pointsman.values.filters import Filter
    from pointsman.values.types import Hit, HitKey

STAGE: Final = "exact"

NEAR_MISS: Final = 0.3
"""The highest relevance of a hit that lacks what the question names exactly: more would be a false promise."""

_READ: Final = 300
"""Documents of each dataset that are read for a name that no list has found, the best for its words alone."""


def holder_keys(hits: Iterable[Hit], names: Sequence[Designation]) -> set[HitKey]:
    """Return the keys of the hits that hold one of the names."""
    return {hit.key for hit in hits if holds_one(hit.document.full_text, names)}


def names_without_hit(names: Sequence[Designation], hits: Sequence[Hit]) -> list[Designation]:
    """Return the names that no hit holds."""
    texts = [hit.document.full_text for hit in hits]
    return [name for name in names if not any(map(name.is_in, texts))]


def look_up(names: Sequence[Designation], results: StoreResults, filters: Filter | None) -> dict[Any, Document]:
    """Search a dataset for the words of names alone; return documents that hold one, by the store's keys."""
    store, documents = results.reading.store, dict[Any, Document]()
    for name, lists in zip(
        names, store.search([StoreQuery(name.words, depth=_READ, filters=filters) for name in names]), strict=True
    ):
        keys = [key for ranking in lists.rankings.values() for key, _ in ranking]
        documents |= {
            key: document
            for key, document in zip(keys, store.fetch(keys), strict=True)
            if document is not None and name.is_in(document.full_text)
        }
    return documents


def holders_first(hits: Sequence[Hit], holders: Collection[HitKey]) -> list[Hit]:
    """Return hits, those with these keys first; the provenance of those that move says why they stand there."""
    holding_hits = [hit for hit in hits if hit.key in holders]
    unmoved_keys = {hit.key for hit in hits[: len(holding_hits)]}
    return [
        *(
            hit
            if hit.key in unmoved_keys
            else replace(hit, provenance=(*hit.provenance, Provenance(STAGE, rank, None)))
            for rank, hit in enumerate(holding_hits, 1)
        ),
        *(hit for hit in hits if hit.key not in holders),
    ]


def limit_near_misses(
    relevance: Mapping[HitKey, float], hits: Sequence[Hit], holders: Collection[HitKey], limit: float = NEAR_MISS
) -> tuple[dict[HitKey, float], list[Hit]]:
    """Limit the relevance of all but the holders of a name.

    Returns:
        The relevance by hit, and the hits with theirs.
    """
    levels = {key: level if key in holders else min(level, limit) for key, level in relevance.items()}
    return levels, [
        hit if hit.key in holders or hit.relevance is None else with_relevance(hit, min(hit.relevance, limit))
        for hit in hits
    ]


def absence(names: Sequence[Designation], nearest: Hit) -> str:
    """Say that names stand in no document."""
    subject = " and ".join(name.text for name in names)
    note = f"{subject:.200} stands in no document that was searched"
    if len(names) > 1:
        note = f"{subject:.200} stand in no document that was searched"
    return f"{note}; the nearest is {nearest.caption:.80}"
