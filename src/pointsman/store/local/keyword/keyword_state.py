"""One state of a keyword index, or of some of its documents, with what is counted of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tantivy

from pointsman.store.bm25 import BM25, idf, query_terms
from pointsman.store.local.keyword.keyword_schema import CODES, MARKER, SCHEMA, all_addresses, both
from pointsman.store.local.keyword.term_codes import TermCodes

if TYPE_CHECKING:
    from numpy.typing import NDArray


WEIGHTS_APART = 0.0003  # an error of a word's weight that is tolerated in the choice of candidates
_COUNTS = 100_000  # terms of which is known how many documents have them …
_COUNTS_OF_PART = 500  # … and of which it is of a part: there may be a thousand parts
_RANGES = 16  # ranges of keys in which documents of a part are counted; each takes 4 µs


class KeywordState:
    """One searcher and the values computed for it; a reload replaces it as a whole, so threads never see a mix."""

    def __init__(self, searcher: tantivy.Searcher, seq: int, codes: TermCodes) -> None:
        self.searcher, self.seq, self.codes = searcher, seq, codes
        self.size = self.documents = max(searcher.num_docs - 1 - bool(codes), 0)  # all but those of the index itself
        self.tolerance = WEIGHTS_APART
        self._most_counts = _COUNTS
        self.frequencies: dict[str, int] = {}
        self.weights: dict[str, float] = {}
        self.counted = 0  # documents in tantivy's statistics, including markers and deleted ones; 0: not read yet
        self.counted_length = 1.0  # their mean length
        self._some_dead = True

    @cached_property
    def average_length(self) -> float:
        """The mean length of the living documents, in tokens."""
        total = self.searcher.aggregate(tantivy.Query.all_query(), {"sum": {"sum": {"field": "length"}}})["sum"]
        return float(total["value"]) / max(self.documents, 1) or 1.0

    def ratios(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return BM25 of a word that occurs once in a document of each length, over tantivy's score of it.

        If a word occurs more often, the ratio is nearer to 1; so, between 1 and this, is that of a whole query.
        """
        norms_of_tantivy = BM25(self.counted_length).norms(_in_a_byte(lengths))
        return (1 + norms_of_tantivy) / (1 + BM25(self.average_length).norms(lengths))

    @property
    def greatest_ratio(self) -> float:
        """No document's score is more than this many times tantivy's."""
        return max(1.0, self.average_length / self.counted_length)

    def learn(self, term: str) -> bool:
        """Read tantivy's statistics through a term; return False when no living document contains it."""
        if not self.counted:
            query = term_query(term)
            hits = self.searcher.search(query, 1, count=False).hits
            if not hits:
                return False
            explanation = json.loads(query.explain(self.searcher, hits[0][1]).to_json())
            numbers = {detail["description"]: detail["value"] for detail in _explanation_parts(explanation)}
            self.counted_length = float(numbers["avgdl, average length of field"])
            self.counted = int(numbers["N, total number of docs"])
            own_count = self.searcher.doc_freq("key", MARKER) + self.searcher.doc_freq("key", CODES)
            self._some_dead = self.counted > self.documents + own_count
        return True

    def count(self, term: str) -> int:
        """Return the number of living documents that contain a term."""
        n = self.frequencies.get(term)
        if n is None:
            if len(self.frequencies) >= self._most_counts:
                self.frequencies.clear()
            n = self.frequencies[term] = self._count(term)
        return n

    def _count(self, term: str) -> int:
        n = self.searcher.doc_freq("body", term)
        if n and (not self.learn(term) or self._some_dead):  # the dictionary's number includes deleted documents
            n = self.searcher.search(term_query(term), 1, count=True).count or 0  # type: ignore[attr-defined]  # stubs lack it
        return n

    def frequency(self, text: str) -> int:
        """Return how many documents contain the rarest word of a text; 0 if a word is in none or the text has none."""
        return min(map(self.count, query_terms(text)), default=0)

    def idfs(self, terms: Iterable[str]) -> list[float]:
        """Return Lucene's idf of each term over the living documents."""
        return [idf(self.documents, frequency) for frequency in list(map(self.count, terms))]

    def weight(self, term: str) -> float:
        """Return the factor that corrects tantivy's score of a term for the deleted documents it counts."""
        weight = self.weights.get(term)
        if weight is None:
            if len(self.weights) >= self._most_counts:
                self.weights.clear()
            frequency = self.searcher.doc_freq("body", term) if self._some_dead else self.count(term)
            weight = self.idfs([term])[0] / idf(self.counted, frequency) if frequency and self.learn(term) else 1.0
            # Scaled terms cost tantivy half as much time again, so negligible corrections are skipped.
            weight = self.weights[term] = 1.0 if abs(weight - 1) < self.tolerance else weight
        return weight

    # ── for parts of the documents ───────────────────────────────────────────────────────────────────────────────

    def postings(self, term: str) -> NDArray[np.int64]:
        """Return the keys of the living documents that contain a term, in no order."""
        limit = max(1, self.searcher.doc_freq("body", term))
        query = tantivy.Query.const_score_query(term_query(term), 0.0)  # to score and sort them takes as long again
        addresses = [address for _, address in self.searcher.search(query, limit, count=False).hits]
        return np.array(self.searcher.fast_field_values("key", addresses), np.int64)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The length of each document by its key, in tokens; 0 for a key without a document."""
        addresses = all_addresses(self.searcher)
        keys = np.array(self.searcher.fast_field_values("key", addresses), np.int64)
        lengths = np.zeros(int(keys.max(initial=0)) + 1, np.int32)
        living = keys >= 0
        lengths[keys[living]] = np.array(self.searcher.fast_field_values("length", addresses), object)[living]
        return lengths


class IndexSubset(KeywordState):
    """A snapshot in which only some documents exist: every number is theirs, and every score is exact.

    Args:
        snapshot: the snapshot.
        keys: the keys of the documents, ascending.
    """

    def __init__(self, snapshot: KeywordState, keys: NDArray[np.int64]) -> None:
        super().__init__(snapshot.searcher, snapshot.seq, snapshot.codes)
        self._snapshot, self.keys, self.documents, self.tolerance = snapshot, keys, len(keys), 0.0
        self._most_counts = _COUNTS_OF_PART
        self._exists = np.zeros(max(len(snapshot.lengths), int(keys.max(initial=0)) + 1), np.bool_)
        self._exists[keys] = True
        indexed_keys = np.flatnonzero(snapshot.lengths)
        edges = np.flatnonzero(np.diff(self._exists[indexed_keys], prepend=False, append=False))
        gaps = edges[1:-1].reshape(-1, 2)  # other documents between these
        widest = np.sort(np.argsort(gaps[:, 1] - gaps[:, 0])[1 - _RANGES :])
        ends = np.append(indexed_keys, len(self._exists))[[*edges[:1], *gaps[widest].ravel(), *edges[-1:]]].tolist()
        ends = ends or [0, 1]  # keys begin at 1, and tantivy needs a range
        self._ranges = [{"from": start, "to": end} for start, end in zip(ends[::2], ends[1::2], strict=True)]
        self._are_exact = len(gaps) < _RANGES
        self._span = tantivy.Query.range_query(SCHEMA, "key", tantivy.FieldType.Integer, ends[0], ends[-1])

    def is_of(self, snapshot: KeywordState) -> bool:
        """Whether this is a subset of a snapshot."""
        return self._snapshot is snapshot

    @cached_property
    def average_length(self) -> float:
        """The mean length of these documents, in tokens."""
        lengths = self._snapshot.lengths
        total = lengths[self.keys[self.keys < len(lengths)]].sum(dtype="int64")
        return float(total) / max(self.documents, 1) or 1.0

    def _count(self, term: str) -> int:
        by_key = {"keys": {"range": {"field": "key", "ranges": self._ranges}}}
        # A word that only other documents have takes as long as one that is nowhere.
        buckets = self.searcher.aggregate(both(self._span, term_query(term)), by_key)["keys"]["buckets"]
        n = sum(bucket["doc_count"] for bucket in buckets[1::2])  # the others are between the ranges
        return int(self._exists[self._snapshot.postings(term)].sum()) if n and not self._are_exact else n

    def learn(self, term: str) -> bool:
        """See `KeywordState`; also False when only other documents contain the term."""
        return self.count(term) > 0 and super().learn(term)


def term_query(term: str) -> tantivy.Query:
    """Return a query for the documents that contain a term."""
    return tantivy.Query.term_query(SCHEMA, "body", term, index_option="freq")


@cache
def empty_state() -> KeywordState:
    """Return the state of an index that is not there."""
    return KeywordState(tantivy.Index(SCHEMA).searcher(), -1, TermCodes())


def _in_a_byte(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return lengths as tantivy has them: exact to 39, then 4 significant bits (Lucene's `SmallFloat.intToByte4`)."""
    excess = np.maximum(lengths - 24, 0)
    dropped_bits = np.maximum(np.frexp(excess)[1] - 4, 0)
    stored: NDArray[np.int64] = lengths - (excess & ((1 << dropped_bits) - 1))
    return stored


def _explanation_parts(explanation: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a tantivy explanation and all its nested parts."""
    yield explanation
    for detail in explanation.get("details", ()):
        yield from _explanation_parts(detail)
