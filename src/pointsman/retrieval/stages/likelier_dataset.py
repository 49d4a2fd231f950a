"""Which of several datasets holds the answer: one whose first hit is far likelier to be relevant comes first.

Scores of different datasets can be compared only roughly: words are as rare as each dataset makes them, and cosines are
lower across languages, even after `pointsman.retrieval.run.judging.raised_cosines`. Relevance is calibrated dataset by
dataset.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.refine.refuse import READ
from pointsman.retrieval.stages.lists_to_hits import RankedHits, in_new_order
from pointsman.values.types import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.types import Hit

TIMES_AS_LIKELY: Final = 7.0
"""How many times as high the odds of another dataset's first hit must be for it to come first. Of twelve folders, each
asked beside two or three others, 5 to 12 do the same (``benchmarks/verdicts.py``)."""

SURELY_NOT: Final = 0.05
"""A dataset in the language of the question is passed by one in another language only if its own first hit is less
likely than this: of 537 right first hits, three are. Relevance across languages is less reliable, and of many datasets
one seems relevant by chance: without this, of 360 questions of eight folders among thirteen, nine right files fewer
would be shown first; with it, none."""

_LOWEST: Final = 0.01  # a lower relevance is not told from none


def put_likelier_first(ranked_hits: RankedHits) -> RankedHits:
    """Put the first hit of the far likeliest dataset before all others, if ``auto`` searches."""
    inquiry, ranking = ranked_hits.fused_lists.inquiry, ranked_hits.ranking
    candidates, decisions = ranked_hits.fused_lists.candidates, ranked_hits.decisions
    if candidates is None or not inquiry.recipe.weighs:
        return ranked_hits
    start, likeliest = perf_counter(), max(_first_of_each(ranking.hits), key=_odds, default=None)
    hits = tuple(hit for hit in ranking.hits if hit.dataset not in candidates.others)
    if likeliest is not None and hits and _is_passed(ranked_hits, hits[0], likeliest):
        reason = (
            f"{likeliest.dataset} comes first: its first hit has relevance {likeliest.relevance:.2f}, that of "
            f"{hits[0].dataset} {hits[0].relevance:.2f}"
        )
        decisions = (*decisions, Decision("dataset", str(likeliest.dataset), "default", reason))
        hits = (likeliest, *[hit for hit in hits if hit is not likeliest])
        ranking = in_new_order(inquiry, "dataset", start, ranking, hits, reason)
    best = ranked_hits.judgements.best_evaluation(hits[:READ])
    best_relevance, needed = (None, 0.0) if best is None else (best.best, best.minimum)
    ranking = replace(ranking, hits=hits, best=best_relevance, needed=needed)
    return replace(ranked_hits, ranking=ranking, decisions=decisions)


def _is_passed(ranked_hits: RankedHits, first: Hit, other: Hit) -> bool:
    """Whether the first hit of another dataset is so much likelier than the first one that it comes before it."""
    if first.relevance is None or other.dataset == first.dataset or _odds(other) <= TIMES_AS_LIKELY * _odds(first):
        return False
    return first.relevance < SURELY_NOT or _is_across(ranked_hits, first) or not _is_across(ranked_hits, other)


def _first_of_each(hits: Sequence[Hit]) -> list[Hit]:
    """Return the first hit of each dataset whose hits are judged."""
    firsts: dict[str | None, Hit] = {}
    for hit in hits:
        if hit.relevance is not None:
            firsts.setdefault(hit.dataset, hit)
    return list(firsts.values())


def _is_across(ranked_hits: RankedHits, hit: Hit) -> bool:
    """Whether a hit's dataset is in another language than the question."""
    inquiry = ranked_hits.fused_lists.inquiry
    background = inquiry.readings[hit.dataset or ""].background
    return background is not None and background.across(script_of(inquiry.query.text))


def _odds(hit: Hit) -> float:
    relevance = min(max(hit.relevance or 0.0, _LOWEST), 1 - _LOWEST)
    return relevance / (1 - relevance)
