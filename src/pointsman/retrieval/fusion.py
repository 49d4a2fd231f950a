"""Fusion: several rankings in, one out. Pure functions over keys and scores; the input is never changed.

A ranking is a sequence of ``(key, score)``, best first; a score may be None. These rules hold in every
method:

- **One vote per list and key**: the first occurrence counts, and ranks are counted without repeats.
- **A list without scores is normal input.** If any score is None, the list has only ranks; a method that
  needs scores uses the reciprocal ranks 1, 1/2, 1/3 … instead.
- **Weights** are finite and not negative, one per list, 1 by default; weight zero removes a list entirely.
- **Order**: by fused score; ties in the order in which the keys occur when the lists are read side by
  side, rank by rank (so by best rank, then by the first list that has it). Sums are exactly rounded, so
  neither the order of the lists nor that of a set decides anything else.
- **Zero variance**: a list whose scores are all equal gives each of its members the constant that its
  method states.

>>> fuse([[("a", 9.1), ("b", 4.0)], [("b", 0.83), ("c", 0.80)]], "rrf")
[('b', 0.03252247488101534), ('a', 0.01639344262295082), ('c', 0.016129032258064516)]

`calibrated_sum` is the default if both raw scores are known for every candidate; it takes those, not
lists.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic

from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.protocols import Key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RRF_K = 60
"""The constant of reciprocal rank fusion, as in its paper."""

KAPPA = 3.3
"""How many units of BM25 (in Lucene's form) one σ of cosine is worth in the calibrated sum."""

AHEAD = 100.0
"""What a document that holds the word of a question of one word gets in the calibrated sum beside its BM25: more than
cosines can differ."""

_UNIT = [1 / (RRF_K + rank) for rank in range(1, 1001)]  # the value of each rank at weight 1

Ranking = Sequence[tuple[Key, float | None]]
FusionMethod = Callable[..., list[tuple[Any, float]]]
"""``method(lists, weights=None, **options)``; the options are the method's own."""


def reciprocal_rank(
    lists: Sequence[Ranking[Key]], weights: Sequence[float] | None = None, *, k: float = RRF_K
) -> list[tuple[Key, float]]:
    """RRF: the sum of ``weight / (k + rank)``, ranks from 1; scores are ignored.

    Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009, https://doi.org/10.1145/1571941.1572114 (k = 60). With weights it is weighted RRF.

    >>> reciprocal_rank([[("a", None), ("b", None)], [("b", None)]], weights=[1, 2], k=1)  # b: 1/3 + 2/2
    [('b', 1.3333333333333333), ('a', 0.5)]
    """
    if not (math.isfinite(k) and k >= 0):
        raise InputError(f"k of reciprocal rank fusion is a finite number from 0 up, not {k!r}; 60 is usual")
    rankings = _read(lists, weights)
    return rank_sum([keys for _, keys, _ in rankings], [weight for weight, _, _ in rankings], k=k)


def rank_sum(
    lists: Sequence[Sequence[Key]], weights: Sequence[float] | None = None, *, k: float = RRF_K
) -> list[tuple[Key, float]]:
    """`reciprocal_rank` for lists of bare keys without repeats; skips the checks.

    >>> rank_sum([["a", "b"], ["b"]], k=1)
    [('b', 0.8333333333333333), ('a', 0.5)]
    """
    shares = [
        _UNIT[: len(keys)]
        if weight == 1 and k == RRF_K and len(keys) <= len(_UNIT)
        else [weight / rank for rank in _ranks(k + 1, keys)]
        for keys, weight in zip(lists, weights or [1.0] * len(lists), strict=True)
    ]
    return (_order_of_sums if len(lists) > 2 else _add_contributions)(lists, shares)


def min_max(lists: Sequence[Ranking[Key]], weights: Sequence[float] | None = None) -> list[tuple[Key, float]]:
    """The weighted sum of scores scaled to 0…1 in each list; 0 for missing keys, 1 at zero variance.

    Fox and Shaw's CombSUM over Lee's normalisation, "Analyses of multiple evidence combination", SIGIR 1997,
    https://doi.org/10.1145/258525.258587; as a convex combination in Bruch, Gai and Ingber, "An analysis of
    fusion functions for hybrid retrieval", TOIS 2023, https://arxiv.org/abs/2210.11934.

    >>> min_max([[("a", 10.0), ("b", 5.0), ("c", 0.0)], [("b", 0.9), ("a", 0.5)]])
    [('b', 1.5), ('a', 1.0), ('c', 0.0)]
    """

    def stretch(scores: list[float]) -> list[float]:
        low, high = min(scores), max(scores)
        return [1.0 if high == low else (score - low) / (high - low) for score in scores]

    return _sum_of_contributions(_read(lists, weights), stretch)


def z_score(lists: Sequence[Ranking[Key]], weights: Sequence[float] | None = None) -> list[tuple[Key, float]]:
    """The weighted sum of z-scores; the list's lowest for missing keys, 0 at zero variance.

    Montague and Aslam, "Relevance score normalization for metasearch", CIKM 2001 (zero mean, unit variance),
    https://doi.org/10.1145/502585.502657. Why the lowest: a key that is absent scored no higher than the
    list's last, and an average score (0) would be a reward.

    >>> z_score([[("a", 4.0), ("b", 2.0)], [("b", 1.0), ("c", 0.5)]])  # ±1 in each; a: 1 - 1, b: -1 + 1
    [('a', 0.0), ('b', 0.0), ('c', -2.0)]
    """

    def standardise(scores: list[float]) -> list[float]:
        mean, deviation = _moments(scores)
        return [(score - mean) / deviation if deviation else 0.0 for score in scores]

    return _sum_of_contributions(_read(lists, weights), standardise, absent=min)


def distribution_based(
    lists: Sequence[Ranking[Key]], weights: Sequence[float] | None = None
) -> list[tuple[Key, float]]:
    """DBSF: mean ± 3 deviations are scaled to 0…1, clamped and summed; 0 for missing keys, 0.5 at zero variance.

    Mazzeschi, "Distribution-based score fusion", 2023,
    https://medium.com/plain-simple-software/distribution-based-score-fusion-dbsf-a-new-approach-to-vector-search-ranking-f87c37488b18.
    The deviation is that of the list itself (of a population).

    >>> distribution_based([[("a", 4.0), ("b", 2.0)], [("b", 0.7)]])  # 1/2 ± 1/6; alone: 1/2
    [('b', 0.8333333333333334), ('a', 0.6666666666666666)]
    """

    def clamp(scores: list[float]) -> list[float]:
        mean, deviation = _moments(scores)
        if not deviation:
            return [0.5] * len(scores)
        return [min(1.0, max(0.0, 0.5 + (score - mean) / (6 * deviation))) for score in scores]

    return _sum_of_contributions(_read(lists, weights), clamp)


def round_robin(lists: Sequence[Ranking[Key]], weights: Sequence[float] | None = None) -> list[tuple[Key, float]]:
    """Takes keys from each list in turn; a key scores its best ``weight / rank``, so weight 2 has two turns.

    The interleaving of Voorhees, Gupta and Johnson-Laird, "The collection fusion problem", TREC-3, 1994.
    Equal weights: all firsts in the order of the lists, then all seconds …

    >>> round_robin([[("a", 9.0), ("b", 8.0)], [("c", 0.9), ("a", 0.8)]])
    [('a', 1.0), ('c', 1.0), ('b', 0.5)]
    """
    rankings = _read(lists, weights)
    return _order_of_sums(
        [keys for _, keys, _ in rankings],
        [[weight / rank for rank in _ranks(1, keys)] for weight, keys, _ in rankings],
        total=max,
    )


@dataclass(frozen=True, slots=True)
class CosineSpread:
    """How cosines between queries and *random* documents are distributed.

    Attributes:
        mean: the level of a meaningless cosine; subtracting it changes no order, but makes scores readable.
        sigma: the σ of the calibrated sum: the standard deviation over random documents.
    """

    mean: float
    sigma: float

    @classmethod
    def measured(cls, queries: NDArray[np.float32], documents: NDArray[np.float32]) -> CosineSpread:
        """The mean over queries of the mean and of the standard deviation of their cosines to the documents.

        Args:
            queries: shape ``(n, dimensions)``, L2-normalised.
            documents: shape ``(m, dimensions)``, L2-normalised, drawn at random.
        """
        cosines = queries @ documents.T
        return cls(float(cosines.mean()), float(cosines.std(axis=1).mean()))

    @classmethod
    def shared(cls, spreads: Iterable[CosineSpread | None]) -> CosineSpread | None:
        """One scale for several sources: scores can be compared only if they are added up alike.

        Sources without vectors (None) are ignored; returns None if there are no others.
        """
        known_spreads = [spread for spread in spreads if spread is not None]
        if not known_spreads:
            return None
        means, sigmas = [spread.mean for spread in known_spreads], [spread.sigma for spread in known_spreads]
        return cls(sum(means) / len(means), sum(sigmas) / len(sigmas) or 1.0)


def calibrated_sum(
    keys: Sequence[Key],
    bm25: Sequence[float],
    cosine: Sequence[float],
    *,
    sigma: float,
    kappa: float = KAPPA,
    weight_bm25: float = 1.0,
    weight_cosine: float = 1.0,
) -> list[tuple[Key, float]]:
    """``bm25 + (kappa / sigma) · cosine`` over candidates with both raw scores: absolute evidence, one scale.

    Nothing is normalised per query, so a weak list stays weak and the depth of the pool does not matter. A
    candidate without a vector (cosine NaN) gets the lowest cosine among the candidates, or 0 if none has
    one. Ties stay in the order of ``keys``; a repeated key counts once, where it is first.

    Args:
        keys: The union of the keys in all lists.
        bm25: Raw BM25 by candidate, 0 if no query word occurs.
        cosine: The cosine of query and document by candidate, NaN if a document has no vector.
        sigma: The standard deviation of cosines between queries and random documents under this embedder.
        kappa: How many units of BM25 one such deviation is worth.
        weight_bm25: Multiplies the keyword part; 0 leaves it out.
        weight_cosine: Multiplies the vector part; 0 leaves it out.

    >>> calibrated_sum(["a", "b", "c"], [8.0, 0.0, 6.0], [0.80, 0.86, float("nan")], sigma=0.02, kappa=3)
    [('b', 129.0), ('a', 128.0), ('c', 126.0)]
    """
    if not len(keys) == len(bm25) == len(cosine):
        raise InputError(
            f"every candidate has both scores: {len(keys)} keys, {len(bm25)} of BM25, {len(cosine)} cosines"
        )
    for name, value in (("sigma", sigma), ("kappa", kappa)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} of the calibrated sum is a finite number above 0, not {value!r}")
    _check_weights((weight_bm25, weight_cosine), 2)
    words, vectors = [float(score) for score in bm25], [float(score) for score in cosine]
    _check_finite(words, "the BM25 scores", keys)
    finite = [score for score in vectors if not math.isnan(score)]
    _check_finite(
        finite, "the cosines", [key for key, score in zip(keys, vectors, strict=True) if not math.isnan(score)]
    )
    lowest, scale = min(finite, default=0.0), weight_cosine * kappa / sigma
    scores: dict[Key, float] = {}
    for key, word, vector in zip(keys, words, vectors, strict=True):
        if key not in scores:
            scores[key] = weight_bm25 * word + scale * (lowest if math.isnan(vector) else vector)
    return sorted(scores.items(), key=_score, reverse=True)


METHODS: dict[str, FusionMethod] = {
    "rrf": reciprocal_rank,
    "weighted_rrf": reciprocal_rank,
    "min_max": min_max,
    "z_score": z_score,
    "dbsf": distribution_based,
    "round_robin": round_robin,
}

LISTS = {"bm25": (True, False), "vector": (False, True), "hybrid": (True, True), **dict.fromkeys(METHODS, (True, True))}
"""Ranking method -> whether it needs the keyword list and the vector list."""

SCALES = {"bm25": "bm25", "vector": "cosine"}
"""The scale of a list's scores, by the list's name, for our own lists."""

OWN = frozenset(SCALES)
"""The lists of our own indexes, whose raw scores can be added on one scale."""

VARIANTS = "calibrated with variants"
"""The scale of calibrated sums that include variants of the query."""

BY_RANK = frozenset({"rrf", "weighted_rrf", "round_robin"})
"""Methods that use ranks only: their scores say nothing about relevance."""

Share = Callable[[str, Sequence[Any], Sequence["int | None"]], Sequence["float | None"]]
"""The share of a list (by name) in the fused scores of keys that have these ranks in it."""


@dataclass(frozen=True, slots=True)
class Fused(Generic[Key]):
    """One ranking made of several lists.

    Attributes:
        ranking: best first.
        scale: what the scores are; see `pointsman.values.types.Ranked`.
        share: the share of each list in the scores.
    """

    ranking: Sequence[tuple[Key, Any]]
    scale: str
    share: Share


def no_share(_: str, keys: Sequence[Any], __: Sequence[int | None]) -> list[None]:
    """The `Share` of a single list: nothing was fused."""
    return [None] * len(keys)


def share_by(method: str, lists: Mapping[str, Sequence[tuple[Any, Any]]], weights: Mapping[str, float]) -> Share:
    """Return the `Share` of a method of `METHODS` over these lists."""
    if method in BY_RANK:
        offset = 0 if method == "round_robin" else RRF_K

        def share_of_ranks(source: str, _: Sequence[Any], ranks: Sequence[int | None]) -> list[float | None]:
            weight = weights.get(source, 1.0)
            return [weight / (offset + rank) if rank else None for rank in ranks]

        return share_of_ranks

    def share_of_scores(source: str, keys: Sequence[Any], _: Sequence[int | None]) -> list[float | None]:
        scores_of_list = dict(fuse([lists[source]], method, [weights.get(source, 1.0)]))
        return [scores_of_list.get(key) for key in keys]

    return share_of_scores


def fuse(
    lists: Sequence[Ranking[Key]],
    method: str | FusionMethod = "rrf",
    weights: Sequence[float] | None = None,
    **options: Any,
) -> list[tuple[Key, float]]:
    """Fuse with a named method or a user-defined function.

    Args:
        lists: rankings, each best first: keys with their scores, which are None in a list without scores.
        method: a name of `METHODS`, or a function that takes lists and weights as these do.
        weights: one per list; 1 by default.
        options: the method's own options.

    Raises:
        UnknownNameError: No method has this name.
        InputError: Weights, scores or options are invalid, or the function did not return a ranking.
    """
    if callable(method):
        if weights is not None:
            _check_weights(weights, len(lists))
        return _sound(method(lists, weights, **options), method, {key for ranking in lists for key, _ in ranking})
    function = METHODS.get(method)
    if function is None:
        raise UnknownNameError("fusion method", method, tuple(METHODS))
    if options:
        try:
            inspect.signature(function).bind(lists, weights, **options)
        except TypeError as error:
            raise InputError(f"fusion method {method!r}: {error}") from None
    return function(lists, weights, **options)


def _sound(ranking: Any, method: FusionMethod, known_keys: set[Any]) -> list[tuple[Any, float]]:
    """Check the result of a user-defined function."""
    name = getattr(method, "__name__", type(method).__name__)
    try:
        pairs = [(key, float(score)) for key, score in ranking]
    except (TypeError, ValueError) as error:
        raise InputError(f"the fusion {name} returns pairs of key and score, best first: {error}") from None
    if len({key for key, _ in pairs}) < len(pairs) or not all(math.isfinite(score) for _, score in pairs):
        raise InputError(f"the fusion {name} returns each key once, with a finite score")
    if (unknown_key := next((key for key, _ in pairs if key not in known_keys), None)) is not None:
        raise InputError(f"the fusion {name} returned {unknown_key!r:.80}, which is a key of none of the lists")
    return pairs


# --- shared by the methods ----------------------------------------------------------------------------------

_Read = tuple[float, list[Key], "list[float] | None"]  # weight, keys without repeats, scores or None


def _read(lists: Sequence[Ranking[Key]], weights: Sequence[float] | None) -> list[_Read[Key]]:
    """The lists with a weight above zero, checked, with one vote per key."""
    weights = [1.0] * len(lists) if weights is None else weights
    _check_weights(weights, len(lists))
    result: list[_Read[Key]] = []
    for number, (ranking, weight) in enumerate(zip(lists, weights, strict=True), 1):
        if not weight or not ranking:
            continue
        try:
            votes = dict(ranking)
        except (TypeError, ValueError) as error:
            raise InputError(f"list {number} is a ranking, pairs of key and score, best first: {error}") from None
        if len(votes) < len(ranking):
            votes = dict(reversed(ranking))  # the first occurrence overwrites the others …
            votes = {key: votes[key] for key, _ in ranking}  # … and gives the order
        scores = [score for score in votes.values() if score is not None]
        keys = list(votes)
        if len(scores) == len(keys):
            _check_finite(scores, f"list {number}", keys)
            result.append((weight, keys, scores))
        else:
            result.append((weight, keys, None))
    return result


def _check_weights(weights: Sequence[float], lists: int) -> None:
    if len(weights) != lists:
        raise InputError(f"{len(weights)} weights for {lists} lists; give one for each, 0 to leave a list out")
    for weight in weights:
        if not (_is_finite(weight) and weight >= 0):
            raise InputError(f"a weight is a finite number from 0 up, not {weight!r}")


def _check_finite(scores: Sequence[float], location: str, keys: Sequence[object]) -> None:
    try:
        if all(map(math.isfinite, scores)):  # the usual case, and several times as fast
            return
    except (TypeError, OverflowError):  # see `_is_finite`
        pass
    for score, key in zip(scores, keys, strict=True):
        if not _is_finite(score):
            raise InputError(f"{location}: the score of {key!r:.80} is {score!r}; a score is a finite number, or None")


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except (TypeError, OverflowError):  # no number, or an integer beyond the doubles
        return False


def _ranks(first: float, keys: Sequence[Key]) -> Iterable[float]:
    """``first``, ``first + 1`` … for each key."""
    return [first + rank for rank in range(len(keys))]


def _moments(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; exactly 0 if all scores are equal, however the mean is rounded."""
    if min(scores) == max(scores):
        return scores[0], 0.0
    mean = math.fsum(scores) / len(scores)
    return mean, math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))


def _sum_of_contributions(
    rankings: Sequence[_Read[Key]],
    normalise: Callable[[list[float]], list[float]],
    absent: Callable[[list[float]], float] | None = None,
) -> list[tuple[Key, float]]:
    """The weighted sum of normalised scores; ``absent`` gives a list's score for keys that it lacks, by default 0."""
    contributions, floors = [], []
    for weight, keys, raw in rankings:
        scores = [1 / rank for rank in _ranks(1, keys)] if raw is None else raw
        # scores near the largest double must not overflow; scaling affects no method here, and powers of two are exact
        _, exponent = math.frexp(max(map(abs, scores)))
        normal = normalise([math.ldexp(score, -exponent) for score in scores])
        floor = absent(normal) if absent else 0.0
        floors.append(weight * floor)
        contributions.append([weight * (score - floor) for score in normal])
    return _order_of_sums(
        [keys for _, keys, _ in rankings],
        contributions,
        total=(lambda summands: math.fsum(chain(summands, floors))) if absent else math.fsum,
    )


_NO_KEY: Any = object()


def _order_of_sums(
    lists: Sequence[Sequence[Key]],
    contributions: Sequence[Sequence[float]],
    total: Callable[[Iterable[float]], float] = math.fsum,
) -> list[tuple[Key, float]]:
    """The union by total; the sort is stable, so ties keep the order of the lists read side by side."""
    scores_of_key: dict[Key, list[float]] = dict.fromkeys(chain.from_iterable(zip_longest(*lists, fillvalue=_NO_KEY)))  # type: ignore[assignment]  # filled below
    scores_of_key.pop(_NO_KEY, None)
    for keys, values in zip(lists, contributions, strict=True):
        for key, value in zip(keys, values, strict=True):
            key_parts = scores_of_key[key]
            if key_parts is None:
                scores_of_key[key] = [value]
            else:
                key_parts.append(value)
    return sorted(((key, total(votes)) for key, votes in scores_of_key.items()), key=_score, reverse=True)


def _add_contributions(
    lists: Sequence[Sequence[Key]], contributions: Sequence[Sequence[float]]
) -> list[tuple[Key, float]]:
    """`_order_of_sums` for sums over at most two lists, where one addition is exact enough and many times faster."""
    totals: dict[Key, float] = dict.fromkeys(chain.from_iterable(zip_longest(*lists, fillvalue=_NO_KEY)), 0.0)
    totals.pop(_NO_KEY, None)
    for keys, values in zip(lists, contributions, strict=True):
        for key, value in zip(keys, values):  # noqa: B905  (as many values as keys by construction)
            totals[key] += value
    return sorted(totals.items(), key=_score, reverse=True)


_score = itemgetter(1)
