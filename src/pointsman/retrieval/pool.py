"""The candidates of one question: what each list found, with *both* raw scores where words and vectors were searched.

Fusing ranks, or scores normalised per query, throws away how good a list is in absolute terms. With both raw scores at
hand for the whole union the calibrated sum needs no normalisation, and how deep the lists go does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic

from pointsman.errors import UnknownNameError
from pointsman.protocols import Key
from pointsman.retrieval.fusion import KAPPA, METHODS, RRF_K, FusionMethod, calibrated_sum, fuse, rank_sum

if TYPE_CHECKING:
    from pointsman.retrieval.calibration import CosineSpread

Ranking = Sequence[tuple[Key, Any]]
"""Keys with their scores, best first; a list without scores has None."""
Part = Callable[[str, Key, "int | None"], "float | None"]
"""What a list, by its name, added to the fused score of a key that has this rank there."""

DEPTH = 100
"""How many candidates each list brings."""

LISTS = {"bm25": (True, False), "vector": (False, True), "hybrid": (True, True), **dict.fromkeys(METHODS, (True, True))}
"""Ranking method -> whether it needs the keyword list and the vector list."""

SCALES = {"bm25": "bm25", "vector": "cosine"}
"""What the scores of a list are, by the list's name, where it is known."""

OWN = frozenset(SCALES)
"""Lists of our own indexes, whose raw scores can be added on one scale."""

VARIANTS = "calibrated with variants"
"""The scale of calibrated sums to which variants of the query have added."""

BY_RANK = frozenset({"rrf", "weighted_rrf", "round_robin"})
"""Methods that look at ranks only: their scores say nothing about how relevant something is."""


@dataclass(frozen=True, slots=True)
class Fused(Generic[Key]):
    """One list out of several.

    Attributes:
        ranking: best first.
        scale: what the scores are; see `pointsman.types.Ranked`.
        part: what a list added to a key's score; None where that is nothing.
    """

    ranking: Ranking[Key]
    scale: str
    part: Part[Key]


@dataclass(frozen=True, slots=True)
class Pool(Generic[Key]):
    """What was found.

    Attributes:
        lists: by name, best first; ``"bm25"`` and ``"vector"`` are those of the built-in indexes.
        scores: by the same names, the raw score of everything in any list, where a list can score what only others
            have found; a cosine is NaN where a document has no vector.
    """

    lists: Mapping[str, Ranking[Key]] = field(default_factory=dict)
    scores: Mapping[str, Mapping[Key, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many different candidates there are."""
        if len(self.lists) == 1:
            return len(next(iter(self.lists.values())))
        return len({key for ranking in self.lists.values() for key, _ in ranking})

    def fused(
        self, method: str | FusionMethod, spread: CosineSpread | None = None, weights: Mapping[str, float] | None = None
    ) -> Fused[Key]:
        """One list out of all.

        Args:
            method: ``"bm25"``, ``"vector"``, ``"hybrid"`` (the calibrated sum where both raw scores are known; beside
                foreign lists it counts as one list in a reciprocal rank fusion), a name of
                `pointsman.retrieval.fusion.METHODS`, or a function like those.
            spread: where cosines lie under this embedder; the calibrated sum needs it.
            weights: by list name, 1 unless named; 0 leaves a list out.

        Raises:
            UnknownNameError: there is no such method.
            InputError: a weight cannot be used.
        """
        weights = weights or {}
        if callable(method):
            given = [weights.get(name, 1.0) for name in self.lists] if weights else None
            ranking = fuse(list(self.lists.values()), method, given)
            return Fused(ranking, getattr(method, "__name__", type(method).__name__), _no_part)
        if method in SCALES and (method in self.lists or not self.lists):
            return self._alone(method)
        if method == "hybrid":
            if spread is not None and self.lists.keys() >= SCALES.keys() <= self.scores.keys():
                own = self._calibrated(spread, weights)
                return own if self.lists.keys() <= OWN else self._beside(own, weights)
            if len(self.lists) <= 1:
                return self._alone(next(iter(self.lists), ""))
            method = "rrf"
        elif method in SCALES:  # the lists that there are have no such scores
            method = "rrf"
        if method not in METHODS:
            raise UnknownNameError("ranking method", method, tuple(LISTS))
        names = list(self.lists)
        if method == "rrf" and not weights:  # the usual way of foreign lists, and the quickest
            ranking = rank_sum([[key for key, _ in self.lists[name]] for name in names])
            return Fused(ranking, method, _part(method, self.lists, weights))
        # Score-based methods see every candidate in every list that can score it.
        lists = [
            self.lists[name] if method in BY_RANK or name not in self.scores else _complete(self.scores[name])
            for name in names
        ]
        given = [weights.get(name, 1.0) for name in names] if weights else None
        return Fused(fuse(lists, method, given), method, _part(method, dict(zip(names, lists, strict=True)), weights))

    def evidence(self, spread: CosineSpread, weights: Mapping[str, float] | None = None) -> dict[Key, float]:
        """The calibrated sum of every candidate, or what there is of it where only one of the two was searched.

        A document without a vector counts as one at chance distance.
        """
        weights = weights or {}
        words, near = weights.get("bm25", 1.0), weights.get("vector", 1.0) * KAPPA / spread.sigma
        total: dict[Key, float] = {key: words * score for key, score in self.scores.get("bm25", {}).items()}
        for key, cosine in self.scores.get("vector", {}).items():
            total[key] = total.get(key, 0.0) + (0.0 if math.isnan(cosine) else near * (cosine - spread.mean))
        return total

    def _alone(self, name: str) -> Fused[Key]:
        ranking = self.lists.get(name, ())
        return Fused(ranking, SCALES.get(name, name or "none"), _no_part)

    def _beside(self, own: Fused[Key], weights: Mapping[str, float]) -> Fused[Key]:
        """The calibrated sum and foreign lists: one vote each, by rank."""
        foreign = {name: ranking for name, ranking in self.lists.items() if name not in OWN}
        lists = [[(key, None) for key, _ in ranking] for ranking in (own.ranking, *foreign.values())]
        by_rank = _part("rrf", self.lists, weights)

        def part(source: str, key: Key, rank: int | None) -> float | None:
            return by_rank(source, key, rank) if source in foreign else None

        return Fused(fuse(lists, "rrf", [1.0, *(weights.get(name, 1.0) for name in foreign)]), "rrf", part)

    def _calibrated(self, spread: CosineSpread, weights: Mapping[str, float]) -> Fused[Key]:
        bm25, cosine = self.scores["bm25"], self.scores["vector"]
        keys = list(dict.fromkeys(chain(bm25, cosine)))
        above = [cosine.get(key, math.nan) - spread.mean for key in keys]
        words, near = weights.get("bm25", 1.0), weights.get("vector", 1.0)
        ranking = calibrated_sum(
            keys,
            [bm25.get(key, 0.0) for key in keys],
            above,
            sigma=spread.sigma,
            weight_bm25=words,
            weight_cosine=near,
        )

        vector_share = near * KAPPA / spread.sigma

        def part(source: str, key: Key, _: int | None) -> float | None:
            if source == "bm25":
                return words * bm25.get(key, 0.0)
            if source != "vector":
                return None
            return vector_share * (cosine[key] - spread.mean) if key in cosine else None

        return Fused(ranking, "calibrated", part)


def merge(pools: Mapping[int, Pool[Any]]) -> Pool[tuple[int, Any]]:
    """The candidates of several sources as one pool; a key is then the source's number and the key in it.

    Raw scores of one kind are compared across sources. Where one source has no list of a kind, its documents have no
    word of the query there (BM25 0), or no vector (cosine NaN).
    """
    own = [name for name in SCALES if any(name in pool.lists for pool in pools.values())]
    others = [name for pool in pools.values() for name in pool.lists if name not in SCALES]
    lists = {
        name: [((n, key), score) for n, pool in pools.items() for key, score in pool.lists.get(name, ())]
        for name in (*own, *others)
    }
    if len(pools) > 1:
        lists = {name: _best_first(ranking) if name in SCALES else ranking for name, ranking in lists.items()}
    return Pool(lists, {name: _scores(pools, name) for name in own})


def _no_part(_: str, __: object, ___: int | None) -> None:
    """Nothing is added where there is one list."""


def _part(method: str, lists: Mapping[str, Ranking[Key]], weights: Mapping[str, float]) -> Part[Key]:
    if method in BY_RANK:
        offset = 0 if method == "round_robin" else RRF_K

        def by_rank(source: str, _: Key, rank: int | None) -> float | None:
            return weights.get(source, 1.0) / (offset + rank) if rank else None

        return by_rank
    alone: dict[str, dict[Key, float]] = {}  # by list; made when somebody asks

    def part(source: str, key: Key, _: int | None) -> float | None:
        if source not in alone:
            alone[source] = dict(fuse([lists[source]], method, [weights.get(source, 1.0)]))
        return alone[source].get(key)

    return part


def _scores(pools: Mapping[int, Pool[Any]], name: str) -> dict[tuple[int, Any], float]:
    merged: dict[tuple[int, Any], float] = {}
    absent = 0.0 if name == "bm25" else math.nan
    for n, pool in pools.items():
        scores = pool.scores.get(name)
        if scores is not None:
            merged.update([((n, key), score) for key, score in scores.items()])
        else:
            merged.update(((n, key), absent) for others in pool.scores.values() for key in others)
    return merged


def _complete(scores: Mapping[Key, float]) -> Ranking[Key]:
    """Every candidate that a list can score; a document without a vector is not in the vector's list."""
    return _best_first([(key, score) for key, score in scores.items() if not math.isnan(score)])


def _best_first(ranking: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    return sorted(ranking, key=lambda item: -item[1])  # stable: ties keep the order they came in
