"""Combines the results of a query and of its variants into one ranking.

Variants add to the query's own evidence, and cannot outvote it together: whatever they are, the first hit of the query
by itself stays among the first three. Those that a language model wrote and that have nothing to do with the query are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import METHODS, OWN, RRF_K, SCALES, VARIANTS, Fused, fuse
from pointsman.retrieval.run.branches import complete
from pointsman.retrieval.run.candidates import Pool, Results, StoreResults, best_place, provenance
from pointsman.store.store_values import MATCHED
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.retrieval.run.candidates import Fetched, Place, Ranking
    from pointsman.retrieval.run.variant import Variant
    from pointsman.tools.parallel_calls import Mode
    from pointsman.values.types import HitKey

PARTS: Final = frozenset({"subquestion", "bridge"})
"""Kinds of variants that ask for a part of the query; a document need not answer more than one."""

LEAST_DEVIATIONS: Final = 1.0
"""Standard deviations above the cosine of random documents; chosen on MuSiQue, CMRC 2018, a Russian FAQ and CACM."""

LOWEST_PLACE: Final = 3
"""The lowest place to which variants may move the first hit of the query by itself."""

_FIRST_OF_VARIANT: Final = 3
_FIRST_OF_QUERY: Final = 10

Beside = Sequence[tuple[str, "Variant", Results]]
"""Variants: label, variant, and its results."""


class VariantResults(Results):
    """The results of a query together with the rankings of its variants, each as a separate list.

    Args:
        main_results: of the query itself, with scores for candidates that only a variant has found.
        variants: by label, the ranking and the results it is from.
    """

    __slots__ = ("_all_results", "_main_results")

    def __init__(self, main_results: Results | None, variants: Mapping[str, tuple[Ranking[Any], Results]]) -> None:
        self._main_results = main_results
        self._all_results = [
            *([main_results] if main_results is not None else []),
            *(results for _, results in variants.values()),
        ]
        pool: Pool[Any] = main_results.pool if main_results is not None else Pool()
        lists = {**pool.lists, **{label: ranking for label, (ranking, _) in variants.items()}}
        super().__init__(Pool(lists, pool.scores), shared=self._all_results[0].shared)
        self.scorable_lists = () if main_results is None else main_results.scorable_lists

    def fetch(self, keys: Sequence[Any], list_positions: Sequence[Place]) -> list[Fetched]:  # noqa: ARG002
        """See `Results`."""
        answers: dict[Any, Fetched] = {}
        for results in self._all_results:
            steps_by_key = provenance(results.pool, [key for key in keys if answers.get(key) is None])
            own_keys = [key for key, steps in steps_by_key.items() if steps]
            answers.update(
                zip(own_keys, results.fetch(own_keys, [best_place(steps_by_key[key]) for key in own_keys]), strict=True)
            )
        return [answers.get(key) for key in keys]

    def ids(self, keys: Sequence[Any]) -> list[HitKey | None]:
        """See `Results`."""
        answers = [results.ids(keys) for results in self._all_results]
        return [next((id_ for id_ in row if id_ is not None), None) for row in zip(*answers, strict=True)]

    def score(self, source: str, key: HitKey) -> float | None:
        """See `Results`."""
        return None if self._main_results is None else self._main_results.score(source, key)


def keys_beside(main_results: Results | None, variant_results: Beside) -> list[Any]:
    """All candidates, without repeats."""
    all_results = [
        *([main_results] if main_results is not None else []),
        *(results for _, _, results in variant_results),
    ]
    return list(
        dict.fromkeys(key for results in all_results for ranking in results.pool.lists.values() for key, _ in ranking)
    )


UNRELATED: Final = "what the language model wrote has nothing to do with the question"


def is_unrelated(
    query: str, variant: Variant, main_results: Mapping[int, Results], results: Mapping[int, Results]
) -> bool:
    """Whether a text that a language model wrote has nothing to do with the query.

    It has to do with it if it shares a content word, if one of its first hits is among the query's own first hits, or
    if its vector is nearer to the query's than those of most random documents are. Measured on HotpotQA, WikiQA,
    DomainRAG and XQuAD in Russian: by the vector alone, 0, 0, 6 and 2 % of the answering passages would be left out,
    and 93, 64, 100 and 99 % of error messages and chatter.

    Args:
        query: the text of the query.
        variant: what the model wrote.
        main_results: the query's results, by branch number.
        results: the variant's results, by the same numbers.
    """
    if _content_words(query) & _content_words(variant.text.replace(query, "")):
        return False
    if _first_hits(results, _FIRST_OF_VARIANT) & _first_hits(main_results, _FIRST_OF_QUERY):
        return False
    deviations = [
        _cosine_in_deviations(main_results.get(number), variant_results) for number, variant_results in results.items()
    ]
    return all(deviation is None or deviation < LEAST_DEVIATIONS for deviation in deviations)


def _first_hits(results: Mapping[int, Results], count: int) -> set[tuple[int, Any]]:
    """The first hits of every list, by branch number and key."""
    return {
        (number, key)
        for number, source_results in results.items()
        for ranking in source_results.pool.lists.values()
        for key, _ in ranking[:count]
    }


def _content_words(text: str) -> set[str]:
    return {token for token in DEFAULT_ANALYZER.query_tokens(text) if len(token) > 1}


def _cosine_in_deviations(main_results: Results | None, results: Results) -> float | None:
    """The cosine of two queries of a source, in standard deviations above that of query and random document."""
    if not isinstance(main_results, StoreResults) or not isinstance(results, StoreResults):
        return None
    spread, query_vector, variant_vector = results.spread, main_results.store_query.vector, results.store_query.vector
    if spread is None or query_vector is None or variant_vector is None or not spread.sigma > 0:
        return None
    return (float(query_vector @ variant_vector) - spread.mean) / spread.sigma


async def combine(
    main_results: Results | None,
    variant_results: Beside,
    method: str,
    spread: CosineSpread | None,
    weights: Mapping[str, float],
    mode: Mode,
    *,
    only_ranks: bool,
) -> tuple[Results, Fused[Any]]:
    """Return the results of a query and its variants together, and their ranking; takes one round trip to each store.

    Args:
        main_results: the results of the query itself, if it was answered.
        variant_results: the results of at least one variant.
        method: how the lists of each are fused.
        spread: the scale of cosines, if there is one.
        weights: by list name.
        mode: how to wait.
        only_ranks: fuse by ranks even if evidence could be added up.
    """
    if main_results is None:
        return by_rank(main_results, main_results, variant_results, method, spread, weights)
    keys = keys_beside(main_results, variant_results)
    if spread is None or only_ranks or not can_add(main_results, variant_results, method, spread):
        [all_results] = await complete([main_results], keys, mode)
        results, fusion = by_rank(main_results, all_results, variant_results, method, spread, weights)
    else:
        all_results, *other_results = await complete(
            [main_results, *(results for _, _, results in variant_results)], keys, mode
        )
        variant_results = [
            (label, variant, results)
            for (label, variant, _), results in zip(variant_results, other_results, strict=True)
        ]
        results, fusion = added_up(all_results, variant_results, spread, weights)
    if not any(variant.by_model for _, variant, _ in variant_results):
        return results, fusion
    return results, with_first_kept(fusion, main_results.pool.fused(method, spread, weights))


def with_first_kept(fused: Fused[Any], main_fusion: Fused[Any]) -> Fused[Any]:
    """The fused ranking, in which the first hit of the query by itself has at least the third place.

    If variants push it further down, it takes the third place, with the score of the hit that it moves down.
    """
    ranking = list(fused.ranking)
    if not main_fusion.ranking or len(ranking) <= LOWEST_PLACE:
        return fused
    first = main_fusion.ranking[0][0]
    if any(key == first for key, _ in ranking[:LOWEST_PLACE]):
        return fused
    other_pairs = [(key, score) for key, score in ranking if key != first]
    other_pairs.insert(LOWEST_PLACE - 1, (first, other_pairs[LOWEST_PLACE - 1][1]))
    return replace(fused, ranking=other_pairs)


def can_add(main_results: Results | None, variant_results: Beside, method: str, spread: CosineSpread | None) -> bool:
    """Whether the evidence for a query and its variants is on one scale, so that it can be added up."""
    if main_results is None or spread is None or method != "hybrid":
        return False
    return all(_is_raw(results) for results in (main_results, *(results for _, _, results in variant_results))) and (
        main_results.pool.lists.keys() >= SCALES.keys()
    )


def by_rank(
    main_results: Results | None,
    all_results: Results | None,
    variant_results: Beside,
    method: str,
    spread: CosineSpread | None,
    weights: Mapping[str, float],
) -> tuple[Results, Fused[Any]]:
    """Reciprocal rank fusion of the query's ranking and those of its variants.

    Args:
        main_results: the results of the query itself, if it was answered.
        all_results: the same with scores for candidates that only variants have found.
        variant_results: the results of at least one variant.
        method: how the lists of each are fused.
        spread: the scale of cosines, if there is one.
        weights: by list name.
    """
    main = (main_results.pool if main_results is not None else Pool()).fused(method, spread, weights)
    method = method if method in METHODS else "hybrid"  # a variant may have been searched by other lists
    fused_by_label = {label: results.pool.fused(method, spread, weights) for label, _, results in variant_results}
    total = sum(variant.weight for _, variant, _ in variant_results)
    shares = {label: variant.weight / max(total, 1.0) for label, variant, _ in variant_results}
    rankings = [main.ranking, *(fusion.ranking for fusion in fused_by_label.values())]
    ranking = fuse([[(key, None) for key, _ in keys] for keys in rankings], "rrf", [1.0, *shares.values()])
    results = VariantResults(
        all_results, {label: (fused_by_label[label].ranking, results) for label, _, results in variant_results}
    )

    def share_of_ranks(source: str, _: Sequence[Any], ranks: Sequence[int | None]) -> list[float | None]:
        return [shares[source] / (RRF_K + rank) if rank and source in shares else None for rank in ranks]

    return results, Fused(ranking, "rrf", share_of_ranks)


def added_up(
    main_results: Results, variant_results: Beside, spread: CosineSpread, weights: Mapping[str, float]
) -> tuple[Results, Fused[Any]]:
    """Adds up the calibrated sums for the query and its variants; each must have scored every candidate.

    A document answers one sub-question, so of those the best counts; of other variants, the weighted mean does.
    Measured on multi-hop questions: with RRF the sub-questions outvote the whole (nDCG@10 .707 to .560 on MuSiQue),
    with this sum the result improves.
    """
    keys = keys_beside(main_results, variant_results)
    evidence = {label: results.pool.evidence(spread, weights) for label, _, results in variant_results}
    kinds = {label: variant for label, variant, _ in variant_results}
    aspects = [label for label, variant in kinds.items() if variant.kind in PARTS]
    other_labels = [label for label in kinds if label not in aspects]
    groups = (bool(aspects) + bool(other_labels)) or 1
    share = max((kinds[label].weight for label in aspects), default=0.0) / groups
    total = groups * max(1.0, sum(kinds[label].weight for label in other_labels))
    base = main_results.pool.evidence(spread, weights)
    scores = {}
    for key in keys:
        score = base.get(key, 0.0)
        if aspects:
            score += min(share, 1.0) * max(evidence[label].get(key, 0.0) for label in aspects)
        score += sum(kinds[label].weight * evidence[label].get(key, 0.0) for label in other_labels) / total
        scores[key] = score
    ranking = sorted(scores.items(), key=lambda item: -item[1])
    lists = {}
    for label, _, results in variant_results:
        own_keys = {key for ranking in results.pool.lists.values() for key, _ in ranking}
        pairs = [(key, score) for key, score in evidence[label].items() if key in own_keys]
        lists[label] = (sorted(pairs, key=lambda item: -item[1]), results)
    plain = main_results.pool.fused("hybrid", spread, weights).share

    def share_of(source: str, keys: Sequence[Any], ranks: Sequence[int | None]) -> Sequence[float | None]:
        if source in other_labels:
            return [kinds[source].weight * evidence[source].get(key, 0.0) / total for key in keys]
        if source not in aspects:
            return plain(source, keys, ranks)
        best = [max(aspects, key=lambda label: evidence[label].get(key, 0.0)) for key in keys]
        return [
            min(share, 1.0) * evidence[source].get(key, 0.0) if source == label else 0.0
            for key, label in zip(keys, best, strict=True)
        ]

    return VariantResults(main_results, lists), Fused(ranking, VARIANTS, share_of)


def _is_raw(results: Results) -> bool:
    """Whether all scores are those of the built-in lists."""
    pool = results.pool
    return bool(pool.lists) and pool.lists.keys() == pool.scores.keys() - {MATCHED} <= OWN
