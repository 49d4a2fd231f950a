"""What a question names exactly, by a code or a number: what holds it comes first, and the rest are near misses.

Each stage is a function from a value to a value, as in `pointsman.retrieval.stages.lists_to_hits`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from pointsman.retrieval.run import exact_hits
from pointsman.retrieval.run.branches import complete
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.judging import NOTHING
from pointsman.retrieval.stages.lists_to_hits import RankedHits, in_new_order
from pointsman.text.designations import other_months
from pointsman.values.types import Hit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.run.judging import Judgements
    from pointsman.retrieval.stages.lists_to_hits import FusedLists
    from pointsman.text.notations import Designation


async def tell_near_misses(ranked_hits: RankedHits, names: Sequence[Designation]) -> RankedHits:
    """Find what holds what the question names exactly, put it first, and limit the relevance of the rest."""
    fused_lists, ranking, judgements = ranked_hits.fused_lists, ranked_hits.ranking, ranked_hits.judgements
    inquiry = fused_lists.inquiry
    if not ranking.hits:
        return ranked_hits
    start, hits = perf_counter(), ranking.hits
    if missing := exact_hits.names_without_hit(names, hits):
        try:
            new_hits, new_judgements = await _look_up(fused_lists, missing, hits[0].score)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            inquiry.journal.failed(exact_hits.STAGE, start, error, "what no list has found is missing")
        else:
            hits, judgements = (*new_hits, *hits), judgements.or_better(new_judgements)
            if absent := [name for name in exact_hits.names_without_hit(missing, new_hits) if name.is_certain]:
                inquiry.journal.degrade(exact_hits.absence(absent, ranking.hits[0]))
    holders = exact_hits.holder_keys(hits, names)
    if not holders and not any(name.is_certain for name in names):
        return ranked_hits
    levels = [hit.relevance for hit in hits if hit.key in holders and hit.relevance is not None]
    limit = min([exact_hits.NEAR_MISS, *levels])
    relevance, hits_with_relevance = exact_hits.limit_near_misses(judgements.relevance, hits, holders, limit)
    hits = tuple(exact_hits.holders_first(hits_with_relevance, holders))
    reason = f"what holds {', '.join(name.text for name in names):.200} comes first"
    return RankedHits(
        fused_lists,
        in_new_order(inquiry, exact_hits.STAGE, start, ranking, hits, reason),
        replace(judgements, relevance=relevance),
    )


async def _look_up(
    fused_lists: FusedLists, names: Sequence[Designation], score: float
) -> tuple[tuple[Hit, ...], Judgements]:
    """Find documents that hold one of the names; returns them as hits with this score, best first, and judges them."""
    from pointsman.retrieval.stages.judged_variants import judged_alone  # few questions need it

    search_plan, query, judgements = fused_lists.retrieval.rewriting.search_plan, fused_lists.query, NOTHING
    mode, new_hits = search_plan.inquiry.mode, list[Hit]()
    for number, results in fused_lists.retrieval.answers[0].results.items():
        if isinstance(results, StoreResults):
            documents = await mode.blocking(partial(exact_hits.look_up, names, results, query.filters))
            new_hits += [Hit(document, score, results.reading.name) for document in documents.values()]
            [scored_results] = await complete([results], list(documents), mode)
            new_judgements = judged_alone(search_plan, number, scored_results, query, documents, many=False)
            judgements = judgements.or_better(new_judgements)
    return tuple(sorted(judgements.of(new_hits), key=lambda hit: -(hit.relevance or 0))), judgements


def tell_other_months(ranked_hits: RankedHits, months: frozenset[tuple[int | None, int]]) -> RankedHits:
    """Tell hits that have dates of other months alone as near misses, if a hit has one of these; their order stays."""
    ranking, relevance = ranked_hits.ranking, ranked_hits.judgements.relevance
    has_others = {hit.key: other_months(hit.document.full_text, months) for hit in ranking.hits}
    if False not in has_others.values():
        return ranked_hits
    holders = (relevance.keys() | has_others.keys()) - {key for key, other in has_others.items() if other}
    relevance, hits = exact_hits.limit_near_misses(relevance, ranking.hits, holders)
    judgements = replace(ranked_hits.judgements, relevance=relevance)
    return replace(ranked_hits, ranking=replace(ranking, hits=tuple(hits)), judgements=judgements)


def put_exact_first(ranked_hits: RankedHits, names: Sequence[Designation]) -> RankedHits:
    """Put what holds what the question names exactly first, whatever refiners made of it."""
    hits = ranked_hits.ranking.hits
    hits = tuple(exact_hits.holders_first(hits, exact_hits.holder_keys(hits, names)))
    return replace(ranked_hits, ranking=replace(ranked_hits.ranking, hits=hits))
