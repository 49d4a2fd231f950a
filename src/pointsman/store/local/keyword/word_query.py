"""A search by words: tantivy's best hits, scored again by the formula, with filters applied before the cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import tantivy

from pointsman.store.bm25 import BM25, K1, B, query_terms
from pointsman.store.local.keyword.facet_terms import narrowing
from pointsman.store.local.keyword.keyword_schema import SCHEMA, both, query_among
from pointsman.store.local.keyword.keyword_state import WEIGHTS_APART, IndexSubset, KeywordState, term_query
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.store.local.columns.metadata_columns import Columns, MatchingRows
    from pointsman.values.filters import Filter, PartOfText, Range, Typed

_KEY_COST = 10  # a key that is listed in a query costs as much as reading so many hits, …
_NARROWED_COST = 1 / 8  # … and an allowed document in a query that terms of metadata narrow down
_DEEPEST = 1000  # candidates scored by the formula if its constants are not tantivy's, and at most otherwise
_TIES = 6  # extra documents read to settle ties at the cut


class WordQuery:
    """The words of one query, analysed once, in one state of the index.

    Attributes:
        terms: the words, and how often each occurs in the query.
        idf: the sum of their idf, counting repeated words again and including absent ones.
        matched: by key of a document that was scored, the sum of the idf of the words that it has, counting repeats.
    """

    def __init__(
        self,
        snapshot: KeywordState,
        text: str,
        columns: Columns | None,
        k1: float,
        b: float,
        *,
        repeatable: bool = False,
    ) -> None:
        self._snapshot, self._columns, self.terms = snapshot, columns, query_terms(text)
        self._constants, self._repeatable = (k1, b), repeatable
        self._keys = snapshot.keys if isinstance(snapshot, IndexSubset) else None
        self._query = _any_of(snapshot, self.terms) if any(map(snapshot.learn, self.terms)) else None
        self._weights = list(map(mul, self.terms.values(), snapshot.idfs(self.terms)))
        self.idf = math.fsum(self._weights)
        self.matched: dict[int, float] = {}

    def search(self, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """See `KeywordIndex.search`."""
        if k < 1 or self._query is None:
            return []
        matching_rows: MatchingRows | None = None
        if filters is not None:
            if self._columns is None:
                raise InputError("this keyword index was opened without metadata; it cannot filter")
            matching_rows = self._columns.matching_rows(filters)
        if self._keys is not None or self._repeatable:
            return self._search_exactly(self._query, k, matching_rows)
        # Read deeper, within limits, until no further document can be among the best.
        depth = _first_depth(k) if self._constants == (K1, B) else max(_DEEPEST, 10 * k)
        while True:
            hits = self._top(self._query, depth, matching_rows)
            best = self._best(hits, k)
            end = len(hits) < depth or depth >= max(_DEEPEST, 4 * k)
            if end or hits.scores[-1] * self._snapshot.greatest_ratio < best[-1][1]:
                return best
            depth *= 4

    def _search_exactly(self, query: tantivy.Query, k: int, matching: MatchingRows | None) -> list[tuple[int, float]]:
        """Return the best hits without a limit to the depth: neither hidden documents nor the order of writes count."""
        keys = self._keys
        if matching is not None:
            keys = matching.keys if keys is None else np.intersect1d(keys, matching.keys, assume_unique=True)
        size = self._snapshot.documents if keys is None else len(keys)
        allowed_keys = None if keys is None else _AllowedKeys(keys, matching)
        depth = _first_depth(k) if self._constants == (K1, B) else max(size, 1)
        while True:
            hits = self._top(query, depth, allowed_keys)
            best = self._best(hits, k)
            if len(hits) < depth or depth >= size:
                return best
            highest_unread = hits.scores[-1] * self._snapshot.greatest_ratio * (1 + WEIGHTS_APART)
            if highest_unread < best[-1][1]:
                return best
            depth *= 4

    def score(self, keys: Sequence[int]) -> list[float]:
        """See `KeywordIndex.score`."""
        if not keys or self._query is None:
            return [0.0] * len(keys)
        unscored_query = tantivy.Query.const_score_query(self._query, 0.0)  # the formula scores all hits
        hits, _ = _read(self._snapshot, query_among(keys, unscored_query), len(keys))
        scores = dict(self._best(hits, len(hits)))
        return [scores.get(key, 0.0) for key in keys]

    def _best(self, hits: _TantivyHits, k: int) -> list[tuple[int, float]]:
        """Return the best ``k`` hits, scored by the formula; those that cannot be among them are left out before."""
        if k < len(hits) and self._constants == (K1, B):
            ratios = self._snapshot.ratios(hits.lengths)
            bar = np.partition(hits.scores * np.minimum(1.0, ratios), -k)[-k] * (1 - WEIGHTS_APART)
            hits = hits.at(np.flatnonzero(hits.scores * np.maximum(1.0, ratios) >= bar))
        doc, keys = self._snapshot.searcher.doc, hits.keys
        contents: list[Any] = [doc(address).get_first("counts") for address in hits.addresses]
        counts = self._snapshot.codes.counts(self.terms, contents)
        scores = BM25(self._snapshot.average_length, *self._constants).scores(self._weights, counts, hits.lengths)
        matched = np.zeros(len(hits))
        for weight, row in zip(self._weights, counts > 0, strict=True):
            matched += weight * row
        self.matched.update(zip(keys.tolist(), matched.tolist(), strict=True))
        best_rows = np.lexsort((keys, -scores))[:k]
        return list(zip(keys[best_rows].tolist(), scores[best_rows].tolist(), strict=True))

    def _top(self, query: tantivy.Query, k: int, allowed: MatchingRows | _AllowedKeys | None) -> _TantivyHits:
        """Return at least the best ``k`` hits by tantivy's scores, ties by key."""
        # Read a few extra hits, so that documents tied with the last one are ordered by key. If still more tie, tantivy
        # picks those stored first: short queries over even chunks tie by the hundred, and reading to the end of the tie
        # would cost ten times the search.
        snapshot, limit = self._snapshot, k + _TIES
        if allowed is None:
            return _read(snapshot, query, min(limit, snapshot.documents + 1))[0].best_first(k)
        allowed_count = allowed.count  # others may write, and change it
        if not allowed_count:
            return _read(snapshot, tantivy.Query.empty_query(), 1)[0]
        # The best k allowed documents are the first k allowed ones of the whole ranking. Read until they are found,
        # unless that is so deep that it is cheaper to search among the allowed ones alone.
        depth = min(int((limit + 4 * math.sqrt(limit)) * snapshot.size / allowed_count), snapshot.size)
        listed_cost = _KEY_COST * allowed_count
        filters, narrower = allowed.filter, None
        if filters is not None and 2 * limit + _NARROWED_COST * allowed_count < min(depth, listed_cost):
            narrower, filters = narrowing(SCHEMA, filters, allowed.values), None
        if narrower is not None:
            query, depth = both(narrower, query), 2 * limit
        elif listed_cost <= depth:
            keys = allowed.keys.tolist()
            return _read(snapshot, query_among(keys, query), max(1, len(keys)))[0].best_first(k)
        while True:
            depth = min(depth, snapshot.size) + 1
            hits, count = _read(snapshot, query, depth, allowed)
            if len(hits) >= limit or count < depth:
                return hits.best_first()
            # What is allowed has the words less often than others have, as documents of another language do.
            narrower = None if filters is None else narrowing(SCHEMA, filters, allowed.values)
            filters = None  # it narrows down once
            if narrower is None:
                depth *= 4
            else:
                query, depth = both(narrower, query), 2 * limit


def _any_of(snapshot: KeywordState, terms: Mapping[str, int]) -> tantivy.Query:
    """Return a disjunction; a repeated word counts as often as it occurs in the query, as in Lucene."""
    should, scale = tantivy.Occur.Should, tantivy.Query.boost_query
    clauses = []
    for term, count in terms.items():
        if not snapshot.learn(term):
            continue
        weight = count * snapshot.weight(term)
        clauses.append((should, term_query(term) if weight == 1 else scale(term_query(term), weight)))
    return tantivy.Query.boolean_query(clauses)


def _first_depth(k: int) -> int:
    """Return how many hits are read at first: a fifth fewer would not do for 3 of 10 cold questions."""
    return k + max(_TIES, 2 * k // 3)


class _AllowedKeys:
    """Documents by their keys, ascending, perhaps some of those that match a filter; used like those."""

    def __init__(self, keys: NDArray[np.int64], matching: MatchingRows | None) -> None:
        self.keys, self.count, self._matching = keys, len(keys), matching
        self.filter = None if matching is None else matching.filter

    def values(self, condition: Range | PartOfText, limit: int) -> list[Typed] | None:
        """See `MatchingRows.values`."""
        return None if self._matching is None else self._matching.values(condition, limit)

    def mask(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some keys are among these, of which there is at least one."""
        rows = np.minimum(np.searchsorted(self.keys, keys), self.count - 1)
        return np.asarray(self.keys[rows] == keys)


@dataclass(slots=True, eq=False)
class _TantivyHits:
    """Documents that tantivy found, in one order: their keys, scores, lengths in words, and addresses in the index.

    A score omits the constant factor k1 + 1, as in Lucene: κ was measured so.
    """

    keys: NDArray[np.int64]
    scores: NDArray[np.float64]
    lengths: NDArray[np.int64]
    addresses: list[tantivy.DocAddress]

    def __len__(self) -> int:
        return len(self.addresses)

    def at(self, rows: NDArray[np.int64]) -> _TantivyHits:
        """Return the hits at some positions, in their order."""
        addresses = list(map(self.addresses.__getitem__, rows.tolist()))
        return _TantivyHits(self.keys[rows], self.scores[rows], self.lengths[rows], addresses)

    def best_first(self, k: int | None = None) -> _TantivyHits:
        """Return the best ``k`` hits, ties by key; None: all of them."""
        return self.at(np.lexsort((self.keys, -self.scores))[:k])


def _read(
    snapshot: KeywordState, query: tantivy.Query, limit: int, allowed: MatchingRows | _AllowedKeys | None = None
) -> tuple[_TantivyHits, int]:
    """Return the allowed ones among the first ``limit`` hits, nearly best first, and how many hits there were."""
    searcher = snapshot.searcher
    top = searcher.search(query, limit, count=False).hits
    addresses = [address for _, address in top]
    scores = np.array([score for score, _ in top], np.float64) / (K1 + 1)
    keys = np.array(searcher.fast_field_values("key", addresses), np.int64)
    if allowed is not None and top:
        rows = np.flatnonzero(allowed.mask(keys))
        keys, scores, addresses = keys[rows], scores[rows], list(map(addresses.__getitem__, rows.tolist()))
    lengths = np.array(searcher.fast_field_values("length", addresses), np.int64)
    return _TantivyHits(keys, scores, lengths, addresses), len(top)
