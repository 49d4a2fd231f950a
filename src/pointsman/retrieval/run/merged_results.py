"""The results of several branches together: those of retrievers, list by list, beside those of stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.fusion import SCALES
from pointsman.retrieval.run.candidates import (
    Fetched,
    KeyOf,
    Place,
    Pool,
    Results,
    ScoreGap,
    StoreResults,
    best_first,
    is_of_store,
)
from pointsman.store.store_values import MATCHED, NEAR
from pointsman.values.types import Hit, HitKey

if TYPE_CHECKING:
    from pointsman.values.filters import Filter


def merge(pools: Mapping[int, Pool[Any]]) -> Pool[tuple[int, Any]]:
    """Merge the candidates of several sources into one pool; its keys are pairs of source number and key.

    Raw scores on one scale are compared across sources. If a source lacks a list, its documents count there as
    having no word of the query (BM25 0) or no vector (cosine NaN).
    """
    own_lists = [name for name in SCALES if any(name in pool.lists for pool in pools.values())]
    foreign_lists = [name for pool in pools.values() for name in pool.lists if name not in SCALES]
    lists = {
        name: [((n, key), score) for n, pool in pools.items() for key, score in pool.lists.get(name, ())]
        for name in (*own_lists, *foreign_lists)
    }
    if len(pools) > 1:
        lists = {name: best_first(ranking) if name in SCALES else ranking for name, ranking in lists.items()}
    scores = {name: _scores(pools, name) for name in own_lists}
    if any(MATCHED in pool.scores for pool in pools.values()):
        scores[MATCHED] = _scores(pools, MATCHED)
    return Pool(lists, scores, any(pool.vectors_due for pool in pools.values()))


def _scores(pools: Mapping[int, Pool[Any]], name: str) -> dict[tuple[int, Any], float]:
    scores_by_key: dict[tuple[int, Any], float] = {}
    absent = math.nan if name == NEAR else 0.0
    for n, pool in pools.items():
        scores = pool.scores.get(name)
        if scores is not None:
            scores_by_key.update([((n, key), score) for key, score in scores.items()])
        else:
            scores_by_key.update(((n, key), absent) for other_scores in pool.scores.values() for key in other_scores)
    return scores_by_key


class RetrieverResults(Results):
    """Hits of any retriever, under its name; their scores are on its own scale."""

    __slots__ = ("hits",)

    def __init__(self, pool: Pool[Any], hits: Mapping[str, Sequence[Hit]], degraded: tuple[str, ...] = ()) -> None:
        super().__init__(pool, shared=True, degraded=degraded)
        self.hits = hits

    @classmethod
    def of(
        cls, name: str, hits: Sequence[Hit], key: KeyOf | None = None, filters: Filter | None = None
    ) -> RetrieverResults:
        """Check the answer of a retriever, and wrap it.

        Args:
            name: of its list.
            hits: best first.
            key: what makes two hits the same document; dataset and id unless given.
            filters: those of the query; hits outside are left out, as a retriever may not know filters.

        Raises:
            TypeError: the retriever returned something other than hits.
        """
        if not isinstance(hits, Sequence) or isinstance(hits, str | bytes):
            raise TypeError(f"a retriever returns a list of hits, {name!r} returned {type(hits).__name__}")
        degraded = tuple(getattr(hits, "degraded", ()))
        try:
            if filters is not None:
                matching_hits = [hit for hit in hits if filters.matches(hit.document.fields)]
                if count_outside := len(hits) - len(matching_hits):
                    degraded += (
                        f"{name}: {count_outside} of its {len(hits)} hits are outside the filter and are left out",
                    )
                hits = matching_hits
            # an id alone is hashed faster than a pair
            keys: list[Any] = [
                hit.document.id if hit.dataset is None else (hit.dataset, hit.document.id) for hit in hits
            ]
            scores: list[Any] = [hit.score for hit in hits]
        except AttributeError:
            foreign_hit = next((hit for hit in hits if not isinstance(hit, Hit)), None)
            kind = "hits without documents" if foreign_hit is None else type(foreign_hit).__name__
            raise TypeError(f"a retriever returns hits, {name!r} returned {kind}") from None
        if key is not None:
            keys = list(map(key, hits))
        if len(set(keys)) < len(keys):  # one vote per list: the first of a kind stays
            first = dict(zip(reversed(keys), reversed(hits), strict=True))
            keys = list(dict.fromkeys(keys))
            hits = [first[hit_key] for hit_key in keys]
            scores = [hit.score for hit in hits]
        if _finite(scores):
            scores = list(map(float, scores))  # a NumPy scalar is no JSON value
        else:  # the order is still usable
            scores = [None] * len(keys)
            degraded = (*degraded, f"{name}: its scores are not all finite numbers; only its order counts")
        return cls(Pool({name: list(zip(keys, scores, strict=True))}), {name: hits}, degraded)

    @classmethod
    def together(cls, results_of_each: Sequence[Results], degraded: tuple[str, ...]) -> RetrieverResults:
        """Combine several results into one, list by list."""
        lists = {name: ranking for results in results_of_each for name, ranking in results.pool.lists.items()}
        hits = {
            name: hits
            for results in results_of_each
            if isinstance(results, RetrieverResults)
            for name, hits in results.hits.items()
        }
        return cls(Pool(lists), hits, degraded)

    def fetch(self, keys: Sequence[Any], list_positions: Sequence[Place]) -> list[Fetched]:  # noqa: ARG002
        """See `Results`."""
        return [self.hits[name][rank - 1] for name, rank in list_positions]

    def ids(self, keys: Sequence[Any]) -> list[HitKey | None]:
        """See `Results`."""
        first: dict[Any, HitKey] = {}
        for name, hits in self.hits.items():
            for (key, _), hit in zip(self.pool.lists[name], hits, strict=True):
                first.setdefault(key, hit.key)
        return [first.get(key) for key in keys]


class MergedResults(Results):
    """Results of stores, by number and raw score, beside results of retrievers, list by list.

    A document that both a store and a retriever return is one document, under the store's key.
    """

    __slots__ = ("_other_results", "_stores")

    def __init__(
        self,
        stores: Mapping[int, Results],
        other_results: Results | None,
        degraded: tuple[str, ...],
        raised: Mapping[int, float],
        store_keys: Mapping[Any, Any],
    ) -> None:
        merged_pool = merge({number: results.pool for number, results in stores.items()})
        lists = dict(merged_pool.lists)
        if other_results is not None:
            lists |= {
                name: [(store_keys.get(key, key), score) for key, score in ranking] if store_keys else ranking
                for name, ranking in other_results.pool.lists.items()
            }
        super().__init__(replace(merged_pool, lists=lists, raised=raised), degraded=degraded)
        self._stores, self._other_results = stores, other_results
        self.scorable_lists = {source for results in stores.values() for source in results.scorable_lists}

    def fetch(self, keys: Sequence[Any], list_positions: Sequence[Place]) -> list[Fetched]:
        """See `Results`."""
        place_of = dict(zip(keys, list_positions, strict=True))
        return self._ask_each(
            keys,
            lambda results, store_keys: results.fetch(store_keys, [("", 0)] * len(store_keys)),
            lambda results, store_keys: results.fetch(store_keys, [place_of[key] for key in store_keys]),
        )

    def ids(self, keys: Sequence[Any]) -> list[HitKey | None]:
        """See `Results`."""
        return self._ask_each(
            keys,
            lambda results, store_keys: results.ids(store_keys),
            lambda results, store_keys: results.ids(store_keys),
        )

    def _ask_each(
        self,
        keys: Sequence[Any],
        ask_store: Callable[[Results, Sequence[Any]], Sequence[Any]],
        ask_others: Callable[[Results, Sequence[Any]], Sequence[Any]],
    ) -> list[Any]:
        """Ask each branch for its own keys, all at once, and put the answers into the order of ``keys``."""
        answers: dict[Any, Any] = {}
        for number, results in self._stores.items():
            store_keys = [key for key in keys if is_of_store(key, number)]
            answers.update(zip(store_keys, ask_store(results, [key for _, key in store_keys]), strict=True))
        if self._other_results is not None:
            other_keys = [key for key in keys if key not in answers]
            answers.update(zip(other_keys, ask_others(self._other_results, other_keys), strict=True))
        return [answers.get(key) for key in keys]

    def missing(self, keys: Sequence[Any]) -> list[ScoreGap]:
        """See `Results`."""
        return [
            ScoreGap(gap.results, number, gap.keys)
            for number, results in self._stores.items()
            for gap in results.missing([key[1] for key in keys if is_of_store(key, number)])
        ]

    def score(self, source: str, key: HitKey) -> float | None:
        """See `Results`."""
        scores = [results.score(source, key) for results in self._stores.values()]
        return max((score for score in scores if score is not None), default=None)


def keys_in_stores(results: Mapping[int, Results]) -> dict[Any, Any]:
    """Ask the stores for their keys of those results of retrievers that are documents of theirs.

    Args:
        results: by the branch's number.

    Returns:
        The key in `MergedResults` by the retriever's key.

    Raises:
        StoreError: a store could not be asked.
    """
    lists = [
        ranking
        for store_results in results.values()
        if store_results.shared
        for ranking in store_results.pool.lists.values()
    ]
    store_keys: dict[Any, Any] = {}
    for number, store_results in results.items() if lists else ():
        name = store_results.reading.name if isinstance(store_results, StoreResults) else None
        foreign_keys = [key for ranking in lists for key, _ in ranking if name is not None and _names(key, name)]
        keys = store_results.keys([key[1] for key in foreign_keys]) if foreign_keys else {}
        store_keys.update((key, (number, keys[key[1]])) for key in foreign_keys if key[1] in keys)
    return store_keys


def _names(key: Any, dataset: str) -> bool:
    """Whether a retriever's key names a document of this dataset."""
    return isinstance(key, tuple) and len(key) == 2 and key[0] == dataset and isinstance(key[1], str)


def together(
    results: Mapping[int, Results],
    *,
    raised: Mapping[int, float] | None = None,
    store_keys: Mapping[Any, Any] | None = None,
) -> Results:
    """Combine the results of several branches; keys of stores then name their branch, even if only one answered.

    Args:
        results: by the branch's number, at least one.
        raised: by number, what is added to cosines before they are compared; see `Pool`.
        store_keys: of `keys_in_stores`.
    """
    all_results = list(results.values())
    if len(all_results) == 1 and all_results[0].shared:
        return all_results[0]
    degraded = tuple(note for source_results in all_results for note in source_results.degraded)
    if all(source_results.shared for source_results in all_results):
        return RetrieverResults.together(all_results, degraded)
    stores = {number: source_results for number, source_results in results.items() if not source_results.shared}
    shared_results = [source_results for source_results in all_results if source_results.shared]
    retriever_results = RetrieverResults.together(shared_results, ()) if shared_results else None
    return MergedResults(stores, retriever_results, degraded, raised or {}, store_keys or {})


def _finite(scores: Sequence[Any]) -> bool:
    try:
        return math.isfinite(math.fsum(scores)) or all(map(math.isfinite, scores))  # usually the sum suffices
    except (TypeError, ValueError, OverflowError):
        return all(isinstance(score, (int, float)) and math.isfinite(score) for score in scores)
