"""The results of a question: candidates by key, and the branches that turn keys into documents.

Candidates are all lists, with *both* raw scores where words and vectors were searched. Fusing ranks, or scores
normalised per query, discards how good a list is in absolute terms. With both raw scores for the whole union, the
calibrated sum needs no normalisation, and the depth of the lists does not matter.

A key has a meaning only in the `Results` it came from: in those of one store it is the store's own, in those of
retrievers a document's id, in those of several branches ``(number of the branch, key)`` for stores. Numbers and names
cannot be confused, so a store's keys may be of any type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias

from pointsman.retrieval.fusion import (
    AHEAD,
    BY_RANK,
    KAPPA,
    LISTS,
    METHODS,
    OWN,
    SCALES,
    Fused,
    FusionMethod,
    calibrated_sum,
    fuse,
    no_share,
    rank_sum,
    share_by,
)
from pointsman.store.store_values import MATCHED, NEAR, WORDS, Scale
from pointsman.tools.errors import UnknownNameError
from pointsman.values.protocols import Key
from pointsman.values.types import Hit, HitKey, Provenance

if TYPE_CHECKING:
    from pointsman.retrieval.fusion import CosineSpread, Share
    from pointsman.retrieval.run.reading import Reading
    from pointsman.store.store_values import Lists, Scores, StoreQuery
    from pointsman.values.types import Document

Place = tuple[str, int]
"""A list's name and a rank in it, from 1."""
KeyOf = Callable[[Hit], Hashable]
Fetched: TypeAlias = "tuple[str, Document] | Hit | None"
"""A dataset's name and its document; the hit of a retriever; None for a document that is gone."""
Ranking = Sequence[tuple[Key, Any]]
"""Keys with their scores, best first; a list without scores has None."""

DEPTH = 100
"""The number of candidates in each list."""


@dataclass(frozen=True, slots=True)
class Pool(Generic[Key]):
    """Candidates, list by list.

    Attributes:
        lists: by name, best first; ``"bm25"`` and ``"vector"`` are those of the built-in indexes.
        scores: by the same names, raw scores of every candidate, if a list can also score those that only other
            lists hold; the cosine of a document without a vector is NaN.
        vectors_due: whether documents without a vector are only waiting for it.
        raised: by source number, what is added to its cosines before they are compared with those of other sources;
            see `pointsman.retrieval.run.judging.raised_cosines`.
        holders: candidates that hold the word of a question of one word; a calibrated sum puts them before all others,
            see `pointsman.retrieval.run.judging.holders_of_word`.
    """

    lists: Mapping[str, Ranking[Key]] = field(default_factory=dict)
    scores: Mapping[str, Mapping[Key, float]] = field(default_factory=dict)
    vectors_due: bool = False
    raised: Mapping[int, float] = field(default_factory=dict)
    holders: Collection[Key] = frozenset()

    def __len__(self) -> int:
        """The number of distinct candidates."""
        if len(self.lists) == 1:
            return len(next(iter(self.lists.values())))
        return len({key for ranking in self.lists.values() for key, _ in ranking})

    def fused(
        self, method: str | FusionMethod, spread: CosineSpread | None = None, weights: Mapping[str, float] | None = None
    ) -> Fused[Key]:
        """Fuse all lists into one ranking.

        Args:
            method: ``"bm25"``, ``"vector"``, ``"hybrid"`` (the calibrated sum if both raw scores are known); beside
                foreign lists each of these counts as one list in a reciprocal rank fusion; a name of
                `pointsman.retrieval.fusion.METHODS`, or a function like those.
            spread: where cosines lie under this embedder; the calibrated sum needs it.
            weights: by list name, 1 unless named; 0 leaves a list out.

        Raises:
            UnknownNameError: there is no such method.
            InputError: a weight is invalid.
        """
        weights = weights or {}
        if callable(method):
            factors = [weights.get(name, 1.0) for name in self.lists] if weights else None
            ranking = fuse(list(self.lists.values()), method, factors)
            return Fused(ranking, getattr(method, "__name__", type(method).__name__), no_share)
        if method in SCALES and (method in self.lists or not self.lists):
            own_ranking = self._one_list(method)
            return own_ranking if self.lists.keys() <= OWN else self._with_other_lists(own_ranking, weights)
        if method == "hybrid":
            if spread is not None and self.lists.keys() >= SCALES.keys() <= self.scores.keys():
                own_ranking = self._calibrated_fusion(spread, weights)
                return own_ranking if self.lists.keys() <= OWN else self._with_other_lists(own_ranking, weights)
            if len(self.lists) <= 1:
                return self._one_list(next(iter(self.lists), ""))
            method = "rrf"
        elif method in SCALES:  # no list here has such scores
            method = "rrf"
        if method not in METHODS:
            raise UnknownNameError("ranking method", method, tuple(LISTS))
        names = list(self.lists)
        if method == "rrf" and not weights:  # usual for foreign lists, and the quickest way
            ranking = rank_sum([[key for key, _ in self.lists[name]] for name in names])
            return Fused(ranking, method, share_by(method, self.lists, weights))
        # Score-based methods see every candidate in every list that can score it.
        lists = [
            self.lists[name] if method in BY_RANK or name not in self.scores else _complete(self.scores[name])
            for name in names
        ]
        factors = [weights.get(name, 1.0) for name in names] if weights else None
        return Fused(
            fuse(lists, method, factors), method, share_by(method, dict(zip(names, lists, strict=True)), weights)
        )

    def span(self, spread: CosineSpread) -> float:
        """How many σ the best cosine lies above chance; 0 if no vectors were searched."""
        ranking = self.lists.get("vector")
        return max(0.0, (ranking[0][1] - spread.mean) / spread.sigma) if ranking else 0.0

    def evidence(self, spread: CosineSpread, weights: Mapping[str, float] | None = None) -> dict[Key, float]:
        """The calibrated sum of every candidate; only one term if only words or only vectors were searched.

        A document without a vector counts as if its cosine were at chance level; if one is due, see `_missing_cosine`.
        """
        weights = weights or {}
        words, vector_weight = weights.get("bm25", 1.0), weights.get("vector", 1.0) * KAPPA / spread.sigma
        bm25 = self.scores.get("bm25", {})
        total: dict[Key, float] = {key: words * score for key, score in self._with_holders_ahead(bm25).items()}
        cosines = self.scores.get("vector", {})
        missing_cosine = self._missing_cosine(cosines.values(), spread.mean)
        for key, cosine in cosines.items():
            excess = (missing_cosine if math.isnan(cosine) else cosine) - spread.mean + self._raised_cosine(key)
            total[key] = total.get(key, 0.0) + vector_weight * excess
        return total

    def _with_holders_ahead(self, bm25: Mapping[Key, float]) -> Mapping[Key, float]:
        """Return the scores of words, those of `holders` raised above any cosine."""
        return {**bm25, **{key: bm25.get(key, 0.0) + AHEAD for key in self.holders}} if self.holders else bm25

    def _raised_cosine(self, key: Any) -> float:
        """Return what is added to a key's cosine; keys name their source if there are several."""
        return self.raised.get(key[0], 0.0) if self.raised else 0.0

    def _missing_cosine(self, cosines: Iterable[float], otherwise: float) -> float:
        """Return the value of a missing cosine: the best one of the pool while vectors are pending, else ``otherwise``.

        Words then rank the documents that wait for a vector, and vectors rank the others. With the lowest or the mean
        value instead, documents that already have a vector would win: with half of the vectors, nDCG@10 is .57 and .75
        instead of .97 on XQuAD in English, where words alone reach .98.
        """
        present = [cosine for cosine in cosines if not math.isnan(cosine)] if self.vectors_due else []
        return max(present, default=otherwise)

    def _one_list(self, name: str) -> Fused[Key]:
        """A single list as it is; one without scores gets those of its ranks."""
        ranking = self.lists.get(name, ())
        if any(score is None for _, score in ranking):
            return Fused(fuse([ranking], "rrf"), "rrf", share_by("rrf", {name: ranking}, {}))
        return Fused(ranking, SCALES.get(name, name or "none"), no_share)

    def _with_other_lists(self, main_fusion: Fused[Key], weights: Mapping[str, float]) -> Fused[Key]:
        """The calibrated sum and foreign lists: one vote each, by rank."""
        foreign = {name: ranking for name, ranking in self.lists.items() if name not in OWN}
        lists = [[(key, None) for key, _ in ranking] for ranking in (main_fusion.ranking, *foreign.values())]
        share_of_ranks = share_by("rrf", self.lists, weights)

        def share(source: str, keys: Sequence[Key], ranks: Sequence[int | None]) -> Sequence[float | None]:
            return (share_of_ranks if source in foreign else no_share)(source, keys, ranks)

        return Fused(fuse(lists, "rrf", [1.0, *(weights.get(name, 1.0) for name in foreign)]), "rrf", share)

    def _calibrated_fusion(self, spread: CosineSpread, weights: Mapping[str, float]) -> Fused[Key]:
        bm25, cosine = self._with_holders_ahead(self.scores["bm25"]), self.scores["vector"]
        keys = list(dict.fromkeys(chain(bm25, cosine)))
        missing_cosine = self._missing_cosine(cosine.values(), math.nan)  # NaN counts as the lowest
        cosines = [cosine.get(key, math.nan) for key in keys]
        excess = [(missing_cosine if math.isnan(value) else value) - spread.mean for value in cosines]
        if self.raised:
            excess = [value + self._raised_cosine(key) for key, value in zip(keys, excess, strict=True)]
        words, vector_weight = weights.get("bm25", 1.0), weights.get("vector", 1.0)
        ranking = calibrated_sum(
            keys,
            [bm25.get(key, 0.0) for key in keys],
            excess,
            sigma=spread.sigma,
            weight_bm25=words,
            weight_cosine=vector_weight,
        )

        def share(source: str, keys: Sequence[Key], ranks: Sequence[int | None]) -> Sequence[float | None]:
            if source == "bm25":
                return [words * bm25.get(key, 0.0) for key in keys]
            if source != "vector":
                return no_share(source, keys, ranks)
            factor, mean = vector_weight * KAPPA / spread.sigma, spread.mean
            excess = {key: cosine[key] - mean for key in keys if key in cosine}
            if self.raised:
                excess = {key: cosine[key] - mean + self._raised_cosine(key) for key in excess}
            return [factor * excess[key] if key in excess else None for key in keys]

        return Fused(ranking, "calibrated", share)


def _complete(scores: Mapping[Key, float]) -> Ranking[Key]:
    """Every candidate that a list can score, best first; documents without a vector are not in the vector list."""
    return best_first([(key, score) for key, score in scores.items() if not math.isnan(score)])


def best_first(ranking: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Return candidates by descending score; ties keep their order."""
    return sorted(ranking, key=lambda item: -item[1])  # stable: ties keep their order


class Results:
    """Candidates of one branch, or of several together.

    Attributes:
        pool: the lists, with all scores that are known.
        shared: whether a key stands for the same document in every branch, as with retrievers.
        degraded: what did not work as requested.
        scorable_lists: the lists that `score` knows.
        size: the number of distinct candidates that came.
    """

    __slots__ = ("degraded", "pool", "scorable_lists", "shared", "size")

    def __init__(self, pool: Pool[Any], *, shared: bool = False, degraded: tuple[str, ...] = ()) -> None:
        self.pool, self.shared, self.degraded, self.size = pool, shared, degraded, len(pool)
        self.scorable_lists: Collection[str] = ()

    def fetch(self, keys: Sequence[Any], list_positions: Sequence[Place]) -> list[Fetched]:
        """What keys stand for; `build_hits` makes hits of it.

        ``list_positions`` names the list that ranks each key highest, and the rank: where lists hold their own
        versions of a document, that list's version is returned.
        """
        raise NotImplementedError

    def ids(self, keys: Sequence[Any]) -> list[HitKey | None]:
        """Dataset and id of the document of each key; None for documents that are gone."""
        return [key_of(version) for version in self.fetch(keys, [("", 0)] * len(keys))]

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002  (here and below: stores know more)
        """A store's keys for document ids; ids that do not exist are left out."""
        return {}

    def missing(self, keys: Sequence[Any]) -> list[ScoreGap]:  # noqa: ARG002
        """Which of these keys, results of another query, which store still has to score."""
        return []

    def score(self, source: str, key: HitKey) -> float | None:  # noqa: ARG002
        """The score that a list would give a document outside it; None if it cannot be computed."""
        return None

    def with_scores(self, added: Scores) -> Results:
        """A copy with additional raw scores, by list and key."""
        scores = {source: {**added.get(source, {}), **scores} for source, scores in self.pool.scores.items()}
        return self.with_pool(replace(self.pool, scores=scores))

    def with_pool(self, pool: Pool[Any]) -> Results:
        """A copy with another pool over the same keys."""
        results = copy(self)
        results.pool = pool
        return results


@dataclass(frozen=True, slots=True)
class ScoreGap:
    """Keys that a store has to score for a look.

    Attributes:
        results: the results whose look it is.
        number: of the branch; None if there is only one.
        keys: the store's own.
    """

    results: StoreResults
    number: int | None
    keys: Sequence[Any]


class StoreResults(Results):
    """The results of a source's store; documents are fetched only for the answer.

    Args:
        reading: of the dataset whose store was searched.
        store_query: the look that was searched for.
        lists: the lists that the store returned.
        degraded: what did not work as requested.

    Attributes:
        embedder: the name of the embedder behind the cosines; None if there are none.
        idf: that of `Lists`.
    """

    __slots__ = ("documents", "embedder", "idf", "reading", "store_query")

    def __init__(self, reading: Reading, store_query: StoreQuery, lists: Lists, degraded: tuple[str, ...] = ()) -> None:
        super().__init__(_pool(reading, lists), degraded=(*degraded, *lists.degraded))
        self.reading, self.store_query, self.documents = reading, store_query, lists.documents
        self.idf = lists.idf
        self.scorable_lists = SCALES.keys() & self.pool.scores.keys()
        info = reading.info
        self.embedder = info.embedder if info is not None and "vector" in self.pool.lists else None

    @property
    def spread(self) -> CosineSpread | None:
        """The distribution of cosines in the source, as of this search; None if its scores are not our cosines."""
        info = self.reading.info
        return self.reading.spread if info is not None and info.scales.get(NEAR) is Scale.COSINE else None

    def fetch(self, keys: Sequence[Any], list_positions: Sequence[Place]) -> list[Fetched]:  # noqa: ARG002
        """See `Results`."""
        name = self.reading.name
        return [None if document is None else (name, document) for document in self.fetch_documents(keys)]

    def fetch_documents(self, keys: Sequence[Any]) -> list[Document | None]:
        """The documents with these keys; those that came with the lists are not asked for again."""
        if not self.documents:
            return self.reading.store.fetch(keys)
        missing = [key for key in keys if key not in self.documents]
        documents = dict(zip(missing, self.reading.store.fetch(missing), strict=True)) if missing else {}
        return [self.documents.get(key) or documents.get(key) for key in keys]

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Results`."""
        return self.reading.store.keys(ids)

    def missing(self, keys: Sequence[Any]) -> list[ScoreGap]:
        """See `Results`."""
        present = self.pool.scores
        unscored_keys = [key for key in keys if any(key not in scores for scores in present.values())]
        return [ScoreGap(self, None, unscored_keys)] if unscored_keys else []

    def score(self, source: str, key: HitKey) -> float | None:
        """See `Results`."""
        if key[0] not in {self.reading.name, None} or source not in self.scorable_lists:
            return None
        own_key = self.keys([key[1]]).get(key[1])
        scores = {} if own_key is None else self.reading.store.score([self.store_query], [[own_key]])[0]
        score = scores.get(source, {}).get(own_key)
        return None if score is None or math.isnan(score) else score


def _pool(reading: Reading, lists: Lists) -> Pool[Any]:
    """Name each list by its scale; a list whose scores are on another scale also carries its source's name."""
    statistics, scales = reading.statistics, {} if reading.info is None else reading.info.scales
    due = statistics is not None and statistics.vectors_due > 0
    if all(scales.get(name) == SCALES.get(name) for name in lists.rankings):
        return Pool(lists.rankings, lists.scores, due)
    names = {
        name: name if scales.get(name) == SCALES.get(name) else f"{reading.name} {name}" for name in lists.rankings
    }
    own_names = {name for name, its_new_name in names.items() if its_new_name == name}
    if WORDS in own_names:
        own_names.add(MATCHED)
    return Pool(
        {names[name]: ranking for name, ranking in lists.rankings.items()},
        {name: scores for name, scores in lists.scores.items() if name in own_names},
        due,
    )


def hits_of(results: Results, fusion: Fused[Any], count: int) -> list[Hit]:
    """The first hits of a fused ranking with their provenance: rank, raw and normalised score in every list.

    A document that has been deleted meanwhile is left out.
    """
    top = fusion.ranking[:count]
    keys = [key for key, _ in top]
    provenance_of = provenance(results.pool, keys, fusion.share)
    return build_hits(results, top, fetch(results, keys, provenance_of), provenance_of)


def fetch(results: Results, keys: Sequence[Any], steps: Mapping[Any, Sequence[Provenance]]) -> list[Fetched]:
    """What keys stand for, in the version of the list that ranks each highest."""
    return results.fetch(keys, [best_place(steps[key]) for key in keys])


def is_of_store(key: Any, number: int) -> bool:
    """Whether a key belongs to this store; a retriever's key is an id, or a dataset's name and an id."""
    return type(key) is tuple and type(key[0]) is int and key[0] == number


_MOST_OTHERS: Final = 10  # each is fetched from another dataset


def first_of_others(
    ranking: Sequence[tuple[Any, Any]], depth: int, results: Mapping[int, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the first candidate, with its score, of datasets that have none among the first ones of a ranking.

    Of many such datasets, the ten whose candidates score highest.

    Args:
        ranking: keys and scores, best first.
        depth: how many are the first ones.
        results: of each source, by the number in the keys.
    """
    first_numbers = {key[0] for key, _ in ranking[:depth] if type(key) is tuple}
    missing = {
        number: each.reading.name
        for number, each in results.items()
        if isinstance(each, StoreResults) and number not in first_numbers
    }
    candidates: dict[str, tuple[Any, Any]] = {}
    for key, score in ranking[depth:]:
        if not missing or len(candidates) == _MOST_OTHERS:
            break
        if type(key) is tuple and key[0] in missing:
            candidates[missing.pop(key[0])] = key, score
    return candidates


def key_of(version: Fetched) -> HitKey | None:
    """Dataset and id of a fetched document; None if it is gone."""
    if version is None:
        return None
    return version.key if isinstance(version, Hit) else (version[0], version[1].id)


def build_hits(
    results: Results,
    top: Sequence[tuple[Any, Any]],
    versions: Sequence[Fetched],
    steps_by_key: Mapping[Any, list[Provenance]],
    relevance: Mapping[HitKey, float] | None = None,
) -> list[Hit]:
    """Build the hits of a ranking; documents that are gone are left out.

    Args:
        results: the ranking's.
        top: keys and scores, best first.
        versions: of each key, as fetched.
        steps_by_key: of each key, its ranks and scores in the lists.
        relevance: the relevance of all hits that have one; None: that of retrievers' hits is kept.
    """
    has_several_lists = len(results.pool.lists) > 1
    hits = []
    for rank, ((key, score), version) in enumerate(zip(top, versions, strict=True), 1):
        if version is None:
            continue
        steps = steps_by_key[key]
        if has_several_lists:
            steps.append(Provenance("fuse", rank, score))
        if not isinstance(version, Hit):
            dataset, document = version
            chance = None if relevance is None else relevance.get((dataset, document.id))
            hits.append(Hit(document, score, dataset, tuple(steps), None, chance))
            continue
        if version.provenance:  # a retriever built from others brings its own
            own_sources = {step.source for step in steps}
            steps = [*(step for step in version.provenance if step.source not in own_sources), *steps]
        chance = version.relevance if relevance is None else relevance.get(version.key)
        if type(version) is Hit:  # several times as fast as `replace`
            hits.append(Hit(version.document, score, version.dataset, tuple(steps), version.excerpt, chance))
        else:
            hits.append(replace(version, score=score, provenance=tuple(steps), relevance=chance))
    return hits


def best_place(steps: Sequence[Provenance]) -> Place:
    """The list and rank where a document stands highest; the higher score decides between equal ranks."""
    best, best_rank, high = "", 0, 0.0
    for source, rank, score, _ in steps:
        if rank and (not best_rank or rank < best_rank or (rank == best_rank and score is not None and score > high)):
            best, best_rank, high = source, rank, -math.inf if score is None else score
    return best, best_rank


def provenance(pool: Pool[Any], keys: Sequence[Any], share: Share = no_share) -> dict[Any, list[Provenance]]:
    """Rank, raw and normalised score of these keys in each list; a rank is None where only another list has the key."""
    steps_by_key: dict[Any, list[Provenance]] = {key: [] for key in keys}
    for source, ranking in pool.lists.items():
        standing = _standing(ranking, pool.scores.get(source, {}), steps_by_key)
        shares = share(source, list(standing), [rank for rank, _ in standing.values()])
        for (key, (rank, score)), value in zip(standing.items(), shares, strict=True):
            steps_by_key[key].append(Provenance(source, rank, score, value))
    return steps_by_key


def _standing(
    ranking: Ranking[Any], scores: Mapping[Any, float], keys: Collection[Any]
) -> dict[Any, tuple[int | None, float | None]]:
    """Rank and score in a list of those keys that are in it, or that it has scored."""
    standing: dict[Any, tuple[int | None, float | None]] = {}
    remaining = set(keys)
    for rank, (key, score) in enumerate(ranking, 1):
        if key in remaining:
            remaining.discard(key)
            standing[key] = rank, score
            if not remaining:
                return standing
    for key in remaining & scores.keys():
        if not math.isnan(score := scores[key]):
            standing[key] = None, score
    return standing
