"""Combines the results of a query and of its variants into one ranking.

Variants add to the query's own evidence, and cannot outvote it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.candidates import Results, VariantResults
from pointsman.retrieval.fusion import METHODS, RRF_K, fuse
from pointsman.retrieval.pool import OWN, SCALES, VARIANTS, Fused, Pool

if TYPE_CHECKING:
    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.retrieval.transform.base import Variant

PARTS: Final = frozenset({"subquestion", "bridge"})
"""Kinds of variants that ask for a part of the query; a document need not answer more than one."""

Beside = Sequence[tuple[str, "Variant", Results]]
"""Variants: label, variant, and its results."""


def keys_beside(own: Results | None, beside: Beside) -> list[Any]:
    """All candidates, without repeats."""
    everywhere = [*([own] if own is not None else []), *(results for _, _, results in beside)]
    return list(
        dict.fromkeys(key for results in everywhere for ranking in results.pool.lists.values() for key, _ in ranking)
    )


def can_add(own: Results | None, beside: Beside, method: str, spread: CosineSpread | None) -> bool:
    """Whether the evidence for a query and its variants is on one scale, so that it can be added up."""
    if own is None or spread is None or method != "hybrid":
        return False
    return all(_is_raw(results) for results in (own, *(results for _, _, results in beside))) and (
        own.pool.lists.keys() >= SCALES.keys()
    )


def by_rank(
    own: Results | None,
    whole: Results | None,
    beside: Beside,
    method: str,
    spread: CosineSpread | None,
    weights: Mapping[str, float],
) -> tuple[Results, Fused[Any]]:
    """Reciprocal rank fusion of the query's ranking and those of its variants.

    Args:
        own: the results of the query itself, if it was answered.
        whole: the same with scores for candidates that only variants have found.
        beside: the results of at least one variant.
        method: how the lists of each are fused.
        spread: the scale of cosines, if there is one.
        weights: by list name.
    """
    main = (own.pool if own is not None else Pool()).fused(method, spread, weights)
    method = method if method in METHODS else "hybrid"  # a variant may have been searched by other lists
    parts = {label: results.pool.fused(method, spread, weights) for label, _, results in beside}
    total = sum(variant.weight for _, variant, _ in beside)
    shares = {label: variant.weight / max(total, 1.0) for label, variant, _ in beside}
    rankings = [main.ranking, *(part.ranking for part in parts.values())]
    ranking = fuse([[(key, None) for key, _ in keys] for keys in rankings], "rrf", [1.0, *shares.values()])
    results = VariantResults(whole, {label: (parts[label].ranking, results) for label, _, results in beside})

    def part(source: str, _: Any, rank: int | None) -> float | None:
        return shares[source] / (RRF_K + rank) if rank and source in shares else None

    return results, Fused(ranking, "rrf", part)


def added_up(
    own: Results, beside: Beside, spread: CosineSpread, weights: Mapping[str, float]
) -> tuple[Results, Fused[Any]]:
    """Adds up the calibrated sums for the query and its variants; each must have scored every candidate.

    A document answers one sub-question, so of those the best counts; of other variants, the weighted mean does.
    Measured on multi-hop questions: with RRF the sub-questions outvote the whole (nDCG@10 .707 to .560 on MuSiQue),
    with this sum the result improves.
    """
    keys = keys_beside(own, beside)
    evidence = {label: results.pool.evidence(spread, weights) for label, _, results in beside}
    kinds = {label: variant for label, variant, _ in beside}
    parts = [label for label, variant in kinds.items() if variant.kind in PARTS]
    others = [label for label in kinds if label not in parts]
    groups = (bool(parts) + bool(others)) or 1
    share = max((kinds[label].weight for label in parts), default=0.0) / groups
    total = groups * max(1.0, sum(kinds[label].weight for label in others))
    base = own.pool.evidence(spread, weights)
    scores = {}
    for key in keys:
        score = base.get(key, 0.0)
        if parts:
            score += min(share, 1.0) * max(evidence[label].get(key, 0.0) for label in parts)
        score += sum(kinds[label].weight * evidence[label].get(key, 0.0) for label in others) / total
        scores[key] = score
    ranking = sorted(scores.items(), key=lambda item: -item[1])
    lists = {}
    for label, _, results in beside:
        mine = {key for ranking in results.pool.lists.values() for key, _ in ranking}
        pairs = [(key, score) for key, score in evidence[label].items() if key in mine]
        lists[label] = (sorted(pairs, key=lambda item: -item[1]), results)
    plain = own.pool.fused("hybrid", spread, weights).part

    def part(source: str, key: Any, _: int | None) -> float | None:
        if source in others:
            return kinds[source].weight * evidence[source].get(key, 0.0) / total
        if source in parts:
            best = max(parts, key=lambda label: evidence[label].get(key, 0.0))
            return min(share, 1.0) * evidence[source].get(key, 0.0) if source == best else 0.0
        return plain(source, key, None)

    return VariantResults(own, lists), Fused(ranking, VARIANTS, part)


def _is_raw(results: Results) -> bool:
    """Whether all scores are those of the built-in lists."""
    pool = results.pool
    return bool(pool.lists) and pool.lists.keys() == pool.scores.keys() <= OWN
