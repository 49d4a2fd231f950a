"""Written conditions, obeyed: what the syntax excludes is in no hit, whatever list, variant or refiner brought it.

What a filter matches is listed if no list has found anything.

`pointsman.text.written_syntax` reads the syntax. Documents are checked after they were fetched, so that all stores,
lists and strategies obey alike.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.refine.refuse import MATCHES_FILTER
from pointsman.retrieval.stages.question_to_lists import SYNTAX_DEPTH
from pointsman.text.written_syntax import listed
from pointsman.values.types import Hit, Ranked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.retrieval.run.candidates import Fetched
    from pointsman.retrieval.stages.lists_to_hits import FusedLists, RankedHits
    from pointsman.values.types import Document, HitKey

STAGE: Final = "syntax"

_LISTED: Final = 100
"""How many documents of each dataset are listed that match a filter alone."""


def admit(fused_lists: FusedLists, versions: Sequence[Fetched]) -> Sequence[Fetched]:
    """Return the fetched documents, with None for what the syntax leaves out and for what no later stage needs.

    If no document holds what is required, ``"auto"`` answers with the nearest, and says so.
    """
    inquiry, candidates = fused_lists.inquiry, fused_lists.candidates
    conditions, recipe, journal = inquiry.written_query, inquiry.recipe, inquiry.journal
    if conditions is None or candidates is None:
        return versions
    start = perf_counter()
    texts = [None if version is None else _document(version).headed_text for version in versions]
    lacks_excluded = [text is not None and conditions.excludes(text) is None for text in texts]
    admissions = [lacks and conditions.admits(text or "") for lacks, text in zip(lacks_excluded, texts, strict=True)]
    count = len(texts) - texts.count(None)
    if count and not any(admissions):
        condition = f"none of the {count} best candidates meets {conditions!s:.200}"
        if conditions.required_terms and recipe.syntax == "auto" and any(lacks_excluded):
            journal.degrade(
                f"{condition}; the nearest are shown, which do not hold {listed(conditions.required_terms)}"
            )
            admissions = lacks_excluded
        else:
            journal.degrade(f"{condition}; syntax='plain' searches for the question as written")
    elif sum(admissions) < recipe.k and count >= SYNTAX_DEPTH:
        journal.degrade(
            f"{sum(admissions)} of the {count} best candidates meet {conditions!s:.200}; no others were read"
        )
    reason = f"{count - sum(admissions)} of {count} candidates are left out by {conditions!s:.200}"
    journal.span(STAGE, reason, start, sum(admissions))
    limit = len(texts)
    if recipe.grouping is None and fused_lists.in_force is None:  # these choose among all
        limit = recipe.depth_of(candidates.scale)
    results: list[Fetched] = []
    for version, is_admitted in zip(versions, admissions, strict=True):
        is_needed = is_admitted and limit > 0
        results.append(version if is_needed else None)
        limit -= is_needed
    return results


def leave_out_excluded(ranked_hits: RankedHits) -> RankedHits:
    """Leave out hits that hold something excluded, as refiners may have read on around a passage."""
    conditions = ranked_hits.fused_lists.inquiry.written_query
    if conditions is None:
        return ranked_hits
    return _without(
        ranked_hits,
        {
            hit.key: f"it holds {term}, which the question excludes"
            for hit in ranked_hits.ranking.hits
            if (term := conditions.excludes(hit.document.headed_text)) is not None
        },
    )


def leave_out_unmet(ranked_hits: RankedHits) -> RankedHits:
    """Leave out what came beside the lists and does not meet the syntax: newer versions, and what names led to."""
    conditions, hits = ranked_hits.fused_lists.inquiry.written_query, ranked_hits.ranking.hits
    if conditions is None:
        return ranked_hits
    unmet = {
        hit.key: f"it does not meet {conditions!s:.200}"
        for hit in hits
        if not conditions.admits(hit.document.headed_text)
    }
    if len(unmet) == len(hits):
        return leave_out_excluded(ranked_hits)
    ranking = replace(ranked_hits.ranking, condition=listed(conditions.required_terms))
    return _without(replace(ranked_hits, ranking=ranking), unmet)


async def list_filtered(ranked_hits: RankedHits) -> RankedHits:
    """Answer with what the filter of a question matches, where no list has found anything.

    Unless a strategy was requested by name, and nothing is to be refused: then its empty list is the answer.
    """
    fused_lists = ranked_hits.fused_lists
    inquiry, filters = fused_lists.inquiry, fused_lists.query.filters
    names = fused_lists.retrieval.rewriting.search_plan.names
    readings = [inquiry.readings[name] for name in names if name in inquiry.readings]
    start, conditions, recipe = perf_counter(), inquiry.written_query, inquiry.recipe
    if recipe.method != "auto" and not any(refiner.stage == "refuse" for refiner in recipe.refiners):
        return ranked_hits

    def read() -> tuple[Hit, ...]:
        return tuple(
            Hit(document, 0.0, reading.name)
            for reading in readings
            for document in reading.store.page(None, _LISTED, filters).documents
            if conditions is None or conditions.admits(document.headed_text)
        )

    try:
        hits = await inquiry.mode.blocking(read)
    except Exception as error:  # noqa: BLE001  (reported in the answer)
        inquiry.journal.failed("filter", start, error, "what the filter matches is not listed")
        return ranked_hits
    if not hits:
        return ranked_hits
    ranking = Ranked(hits, "none", degraded=(MATCHES_FILTER,))
    inquiry.journal.ranked("filter", ranking)
    inquiry.journal.span("filter", "no list has found anything; what the filter matches", start, len(hits))
    return replace(ranked_hits, ranking=ranking)


def _without(ranked_hits: RankedHits, dropped: Mapping[HitKey, str]) -> RankedHits:
    """The ranking without some hits, with the reasons by their keys."""
    ranking = ranked_hits.ranking
    if not dropped:
        return ranked_hits
    hits = tuple(hit for hit in ranking.hits if hit.key not in dropped)
    ranking = replace(ranking, hits=hits, dropped={**ranking.dropped, **dropped})
    ranked_hits.fused_lists.inquiry.journal.ranked(STAGE, ranking)
    return replace(ranked_hits, ranking=ranking)


def _document(version: Hit | tuple[object, Document]) -> Document:
    return version.document if isinstance(version, Hit) else version[1]
