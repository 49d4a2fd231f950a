"""Why an answer has fewer hits than ``k``: coverage, a least relevance, and filters with keys that no document has."""

from __future__ import annotations

import difflib
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.run.candidates import StoreResults
from pointsman.values.filters import And, Exists, Or
from pointsman.values.metadata import ID, TEXT, folded
from pointsman.values.reasons import Reason
from pointsman.values.types import Decision, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.retrieval.run.candidates import Results
    from pointsman.retrieval.run.journal import Journal
    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter
    from pointsman.values.types import Hit, HitKey, Query, Ranked

_NOTED_KEYS: Final = 3
"""How many unknown keys of one filter are named; each is compared with every known key."""


def cut_to_cover(
    coverage: float,
    hits: tuple[Hit, ...],
    recipe: Recipe,
    names: Sequence[str],
    query: Query,
    journal: Journal,
    *,
    refused: bool,
) -> tuple[tuple[Hit, ...], float | None, Decision]:
    """Return the fewest hits that hold an answer with a probability, the probability if it is promised, and why.

    Otherwise the first ``k`` hits and None; ``degraded`` says why. Arguments are those of `hits_to_cover`, and the
    journal of the search.
    """
    start, k = perf_counter(), recipe.k
    promise = hits_to_cover(coverage, hits, recipe, names, query, refused=refused, degraded=bool(journal.degraded))
    if isinstance(promise, str):
        decision = Decision("coverage", "none", "calibration", promise)
        journal.degrade(f"coverage: {promise}; the answer has at most {k} hits")
        hits, promised_coverage = hits[:k], None
    else:
        detail = f"{promise} of {len(hits)} hits hold an answer with the probability {coverage:g}"
        decision = Decision("coverage", f"{coverage:g}", "request", detail)
        hits, promised_coverage = hits[:promise], coverage
    journal.span("coverage", decision.reason, start, len(hits))
    return hits, promised_coverage, decision


def hits_to_cover(
    coverage: float,
    hits: Sequence[Hit],
    recipe: Recipe,
    names: Sequence[str],
    query: Query,
    *,
    refused: bool,
    degraded: bool,
) -> int | str:
    """Return how many hits hold an answer with a probability, or why that is unknown.

    Args:
        coverage: the probability.
        hits: best first.
        recipe: how they were searched.
        names: of the sources that were searched.
        query: as asked.
        refused: whether the answer is refused.
        degraded: whether anything did not work as requested.
    """
    calibration = recipe.fitted.get(names[0]) if len(names) == 1 else None
    promise = None if calibration is None else calibration.coverage
    chances = [hit.relevance for hit in hits if hit.relevance is not None]
    obstacles = {
        "the answer is refused": refused,
        f"it holds for one dataset, and {len(names)} are searched": len(names) != 1,
        "this dataset has not been calibrated with labels": promise is None,
        "the labelled queries were searched without filters and without a least relevance": query.filters is not None
        or recipe.has_least_relevance,
        f"the labelled queries were searched differently: {promise and promise.way}": promise
        and promise.way != recipe.way,
        "some hits have no relevance": len(chances) < len(hits),
        "this search did not work as those of the labelled queries did": degraded,
    }
    if (
        obstacle := next((obstacle for obstacle, is_so in obstacles.items() if is_so), None)
    ) is not None or promise is None:
        return str(obstacle)
    count = promise.count(chances, coverage)
    return f"by the labels, {promise.most:.2f} is the most that can be promised" if count is None else count


def relevant_enough(
    option: str, minimum: float, hits: tuple[Hit, ...], ranking: Ranked, journal: Journal
) -> tuple[tuple[Hit, ...], Refusal | None]:
    """Return the hits that reach the relevance ``minimum``, which an option asks for, or a refusal if none does."""
    start = perf_counter()
    if unjudged_count := sum(hit.relevance is None for hit in hits):
        journal.degrade(f"{option}: {unjudged_count} hits have no relevance and are kept: no calibration applies")
    reasons, refusal = too_irrelevant(hits, minimum)
    remaining = tuple(hit for hit in hits if hit.key not in reasons)
    journal.ranked(option, replace(ranking, hits=remaining, dropped=reasons, degraded=()))
    journal.span(option, f"{len(reasons)} of {len(hits)} are below {minimum:g}", start, len(remaining))
    return remaining, refusal


def too_irrelevant(hits: Sequence[Hit], minimum: float) -> tuple[Mapping[HitKey, str], Refusal | None]:
    """Return the hits with less relevance than ``minimum``, each with the reason, and a refusal if these are all."""
    reasons = {
        hit.key: f"its relevance {hit.relevance:.2f} is below {minimum:g}"
        for hit in hits
        if hit.relevance is not None and hit.relevance < minimum
    }
    if not hits or any(hit.key not in reasons for hit in hits):
        return reasons, None
    nearest = hits[0]
    reason = Reason.of(
        "too_irrelevant", id=f"{nearest.id!r:.80}", chance=f"{nearest.relevance:.2f}", wanted=f"{minimum:g}"
    )
    return reasons, Refusal(reason, nearest, nearest.relevance, minimum, "relevance", tuple(hits))


def unknown_keys(filters: Filter, results: Iterable[Results]) -> Iterator[str]:
    """Yield a note for each key of a filter that no searched document has, with the nearest key that there is.

    Nothing if the keys of a branch are unknown: those of a retriever, or of a store that would have to ask its server.
    """
    known_keys: set[str] = set()
    for result in results:
        keys = result.reading.store.metadata_keys() if isinstance(result, StoreResults) else None
        if keys is None:
            return
        known_keys.update(keys)
    if not known_keys:  # there are no documents, or none with metadata
        return
    missing_keys = [
        key for key in dict.fromkeys(_needed_keys(filters)) if key not in known_keys and key not in (ID, TEXT)
    ]
    for key in missing_keys[:_NOTED_KEYS]:
        yield absence_of(key, known_keys, "filters")


def has_key(store: Store, key: str) -> bool:
    """Whether a document of a store has a key; one whose keys are not at hand is asked for one document with it."""
    names = store.metadata_keys()
    return key in names if names is not None else bool(store.page(None, 1, Exists(key)).documents)


def absence_of(key: str, known_keys: Iterable[str], option: str) -> str:
    """Return the note that no searched document has a key which an option names, with the nearest known one."""
    nearest = _nearest(key, sorted(known_keys))
    note = f"{option}: no document that was searched has the key {key!r:.80}"
    return f"{note}; did you mean {nearest!r:.80}?" if nearest else note


def _needed_keys(filters: Filter) -> Iterator[str]:
    """Yield the keys that a filter wants a value of; a negation is met by documents without the key."""
    if isinstance(filters, And | Or):
        for operand in filters.parts:
            yield from _needed_keys(operand)
    elif isinstance(key := getattr(filters, "key", None), str):
        yield key


def _nearest(key: str, names: Sequence[str]) -> str | None:
    """The known key that is most similar, whatever its case."""
    by_folded = {folded(name): name for name in names}
    nearest = difflib.get_close_matches(folded(key), by_folded, 1)
    return by_folded[nearest[0]] if nearest else None
