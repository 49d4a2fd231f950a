"""The keyword index of one dataset: BM25 by tantivy over this library's tokens, derived from the truth.

Every commit includes a marker document with the sequence number it has applied and the identity of the dataset, so
the number and the postings reach the disk together or not at all. Catching up deletes and adds by key and is
therefore idempotent.

tantivy fixes k1 = 1.2 and b = 0.75, rounds document lengths to one byte, takes the mean of the rounded lengths for the
mean length, and counts deleted documents until a merge happens to remove them. Here documents are scored by the formula
with the documents that there are: each term's weight is corrected by the count of living documents, and the hits that
can be among the best are scored again, from the counts of their terms. These counts are stored beside each document's
postings (`pointsman.store.local.keyword.term_codes` says how), so they are committed, checked, merged and deleted with
them,
and no text is analysed in a search. If other constants are requested, a deeper candidate list is scored again in the
same way. When deleted documents outnumber living ones, the index is rebuilt; the deletions amortise it.

An index is built in a temporary directory that then replaces the old one, so readers never see a partial index.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import tantivy

from pointsman.store.bm25 import BM25, K1, B, idf, query_terms
from pointsman.store.local.files_and_locks import (
    collect_leftovers,
    directory_aside,
    file_stamp,
    full,
    make_directory,
    replace_directory,
    room,
    store_error,
)
from pointsman.store.local.keyword.facet_terms import FIELD as FACETS
from pointsman.store.local.keyword.facet_terms import facets, narrowing
from pointsman.store.local.keyword.keyword_files import damaged_files, note_checksums, segments
from pointsman.store.local.keyword.term_codes import TermCodes
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError, PointsmanError, StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.local.columns.metadata_columns import Columns, MatchingRows
    from pointsman.store.local.truth.truth_rows import DocumentChange
    from pointsman.values.filters import Filter, PartOfText, Range, Typed
    from pointsman.values.types import Document

log = logging.getLogger(__name__)

_FORMAT = 4
_READABLE = (3, _FORMAT)  # the earlier one has no codes of terms
_MARKER, _CODES = -1, -2  # keys of documents of the index itself: the marker, and the codes of terms if there are any
_HEAP_BYTES = 96_000_000
_KEY_COST = 10  # a key that is listed in a query costs as much as reading so many hits, …
_NARROWED_COST = 1 / 8  # … and an allowed document in a query that terms of metadata narrow down
_DEEPEST = 1000  # candidates scored by the formula if its constants are not tantivy's, and at most otherwise
_TIES = 6  # extra documents read to settle ties at the cut
_WEIGHTS_APART = 0.0003  # an error of a word's weight that is tolerated in the choice of candidates
_COMPACT = 1000  # with fewer deleted documents than this, rebuilding the index never pays
_RELOADS = 500  # after so many the index is opened again
# The one kind of file whose name two writes can share: a segment's, with the number of the operation.
_IN_THE_WAY = re.compile(r"""FileAlreadyExists\("([0-9a-f]{32}\.[0-9]+\.del)"\)""")
_POSTINGS = 8_000_000  # keys of documents that are kept for the words of queries
_STORED_BLOCK = 1024  # bytes of counts compressed together: reading one document decompresses as many
_EXACT_TO = 40  # lengths below are exact in tantivy's one byte


class DocumentSource(Protocol):
    """The source of a keyword index: a truth with a sequence number and a log."""

    @property
    def identity(self) -> str:
        """Identifies the source; an index with a different identity is foreign and is rebuilt."""
        ...

    def sequence(self) -> int:
        """Return the number of the last change."""
        ...

    def changes(self, sequence: int) -> Iterator[Sequence[DocumentChange]]:
        """Yield the last change of every key after ``sequence``, in batches."""
        ...

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Return documents by key, None for deleted ones."""
        ...


class _IndexSnapshot:
    """One searcher and the values computed for it; a reload replaces it as a whole, so threads never see a mix."""

    def __init__(self, searcher: tantivy.Searcher, seq: int, codes: TermCodes) -> None:
        self.searcher, self.seq, self.codes = searcher, seq, codes
        self.size = self.documents = max(searcher.num_docs - 1 - bool(codes), 0)  # all but those of the index itself
        self.tolerance = _WEIGHTS_APART
        self.frequencies: dict[str, int] = {}
        self.weights: dict[str, float] = {}
        self.counted = 0  # documents in tantivy's statistics, including markers and deleted ones; 0: not read yet
        self.counted_length = 1.0  # their mean length
        self._some_dead = True
        self._ratios: dict[int, float] = {}
        self._postings: dict[str, NDArray[np.int64]] = {}
        self._postings_size = 0

    @cached_property
    def average_length(self) -> float:
        """The mean length of the living documents, in tokens."""
        total = self.searcher.aggregate(tantivy.Query.all_query(), {"sum": {"sum": {"field": "length"}}})["sum"]
        return float(total["value"]) / max(self.documents, 1) or 1.0

    def ratio(self, length: int) -> float:
        """Return BM25 of a word that occurs once in a document of this length, over tantivy's score of it.

        If a word occurs more often, the ratio is nearer to 1; so, between 1 and this, is that of a whole query.
        """
        ratio = self._ratios.get(length)
        if ratio is None:
            norm_of_tantivy = BM25(self.counted_length).norm(_in_a_byte(length))
            ratio = self._ratios[length] = (1 + norm_of_tantivy) / (1 + BM25(self.average_length).norm(length))
        return ratio

    @property
    def greatest_ratio(self) -> float:
        """No document's score is more than this many times tantivy's."""
        return max(1.0, self.average_length / self.counted_length)

    def learn(self, term: str) -> bool:
        """Read tantivy's statistics through a term; return False when no living document contains it."""
        if not self.counted:
            query = _term(term)
            hits = self.searcher.search(query, 1, count=False).hits
            if not hits:
                return False
            explanation = json.loads(query.explain(self.searcher, hits[0][1]).to_json())
            numbers = {detail["description"]: detail["value"] for detail in _explanation_parts(explanation)}
            self.counted_length = float(numbers["avgdl, average length of field"])
            self.counted = int(numbers["N, total number of docs"])
            own_count = self.searcher.doc_freq("key", _MARKER) + self.searcher.doc_freq("key", _CODES)
            self._some_dead = self.counted > self.documents + own_count
        return True

    def count(self, term: str) -> int:
        """Return the number of living documents that contain a term."""
        n = self.frequencies.get(term)
        if n is None:  # counted by a search when the dictionary's number includes deleted documents
            if len(self.frequencies) > 100_000:
                self.frequencies.clear()
            n = self.searcher.doc_freq("body", term)
            if n and (not self.learn(term) or self._some_dead):
                n = self.searcher.search(_term(term), 1, count=True).count or 0  # type: ignore[attr-defined]  # stubs lack it
            self.frequencies[term] = n
        return n

    def frequency(self, text: str) -> int:
        """Return how many documents contain the rarest word of a text; 0 if a word is in none or the text has none."""
        return min(map(self.count, query_terms(text)), default=0)

    def idf(self, term: str) -> float:
        """Return Lucene's idf of a term over the living documents."""
        return idf(self.documents, self.count(term))

    def weight(self, term: str) -> float:
        """Return the factor that corrects tantivy's score of a term for the deleted documents it counts."""
        weight = self.weights.get(term)
        if weight is None:
            if len(self.weights) > 100_000:
                self.weights.clear()
            frequency = self.searcher.doc_freq("body", term)
            weight = self.idf(term) / idf(self.counted, frequency) if frequency and self.learn(term) else 1.0
            # Scaled terms cost tantivy half as much time again, so negligible corrections are skipped.
            weight = self.weights[term] = 1.0 if abs(weight - 1) < self.tolerance else weight
        return weight

    def occurs(self, term: str) -> bool:  # noqa: ARG002  (a part of the documents has to count)
        """Whether a term may occur in a document."""
        return True

    # ── for parts of the documents ───────────────────────────────────────────────────────────────────────────────

    def postings(self, term: str) -> NDArray[np.int64]:
        """Return the keys of the living documents that contain a term, in no order."""
        import numpy as np

        keys = self._postings.get(term)
        if keys is None:
            limit = max(1, self.searcher.doc_freq("body", term))
            query = tantivy.Query.const_score_query(_term(term), 0.0)  # to score and sort them takes as long again
            addresses = [address for _, address in self.searcher.search(query, limit, count=False).hits]
            keys = np.array(self.searcher.fast_field_values("key", addresses), np.int64)
            if self._postings_size > _POSTINGS:
                self._postings, self._postings_size = {}, 0
            self._postings[term] = keys
            self._postings_size += len(keys) + 50
        return keys

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The length of each document by its key, in tokens; 0 for a key without a document."""
        import numpy as np

        addresses = _all_addresses(self.searcher)
        keys = np.array(self.searcher.fast_field_values("key", addresses), np.int64)
        lengths = np.zeros(int(keys.max(initial=0)) + 1, np.int32)
        living = keys >= 0
        lengths[keys[living]] = np.array(self.searcher.fast_field_values("length", addresses), object)[living]
        return lengths


class IndexSubset(_IndexSnapshot):
    """A snapshot in which only some documents exist: every number is theirs, and every score is exact.

    Args:
        snapshot: the snapshot.
        keys: the keys of the documents, ascending.
    """

    def __init__(self, snapshot: _IndexSnapshot, keys: NDArray[np.int64]) -> None:
        import numpy as np

        super().__init__(snapshot.searcher, snapshot.seq, snapshot.codes)
        self._snapshot, self.keys, self.documents, self.tolerance = snapshot, keys, len(keys), 0.0
        self._exists = np.zeros(max(len(snapshot.lengths), int(keys.max(initial=0)) + 1), np.bool_)
        self._exists[keys] = True

    def is_of(self, snapshot: _IndexSnapshot) -> bool:
        """Whether this is a subset of a snapshot."""
        return self._snapshot is snapshot

    @cached_property
    def average_length(self) -> float:
        """The mean length of these documents, in tokens."""
        lengths = self._snapshot.lengths
        total = lengths[self.keys[self.keys < len(lengths)]].sum(dtype="int64")
        return float(total) / max(self.documents, 1) or 1.0

    def count(self, term: str) -> int:
        """Return the number of these documents that contain a term."""
        n = self.frequencies.get(term)
        if n is None:
            if len(self.frequencies) > 100_000:
                self.frequencies.clear()
            n = self.frequencies[term] = int(self._exists[self._snapshot.postings(term)].sum())
        return n

    def occurs(self, term: str) -> bool:
        """Whether a term occurs in any of these documents."""
        return self.count(term) > 0


class WordQuery:
    """The words of one query, analysed once, in one state of the index.

    Attributes:
        terms: the words, and how often each occurs in the query.
        idf: the sum of their idf, counting repeated words again and including absent ones.
        matched: by key of a document that was scored, the sum of the idf of the words that it has, counting repeats.
    """

    __slots__ = (
        "_columns",
        "_constants",
        "_keys",
        "_query",
        "_repeatable",
        "_snapshot",
        "_weights",
        "idf",
        "matched",
        "terms",
    )

    def __init__(
        self,
        snapshot: _IndexSnapshot,
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
        self._weights = [count * snapshot.idf(term) for term, count in self.terms.items()]
        self.idf = math.fsum(self._weights)
        self.matched: dict[int, float] = {}

    def search(self, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """See `KeywordIndex.search`."""
        if k < 1 or self._query is None:
            return []
        allowed: MatchingRows | None = None
        if filters is not None:
            if self._columns is None:
                raise InputError("this keyword index was opened without metadata; it cannot filter")
            allowed = self._columns.matching_rows(filters)
        if self._keys is not None or self._repeatable:
            return self._search_exactly(self._query, k, allowed)
        # Read deeper, within limits, until no further document can be among the best.
        depth = _first_depth(k) if self._constants == (K1, B) else max(_DEEPEST, 10 * k)
        while True:
            hits = self._top(self._query, depth, allowed)
            best = self._best(hits, k)
            end = len(hits) < depth or depth >= max(_DEEPEST, 4 * k)
            if end or hits[-1].score * self._snapshot.greatest_ratio < best[-1][1]:
                return best
            depth *= 4

    def _search_exactly(self, query: tantivy.Query, k: int, matching: MatchingRows | None) -> list[tuple[int, float]]:
        """Return the best hits without a limit to the depth: neither hidden documents nor the order of writes count."""
        import numpy as np

        keys = self._keys
        if matching is not None:
            keys = matching.keys if keys is None else np.intersect1d(keys, matching.keys, assume_unique=True)
        size = self._snapshot.documents if keys is None else len(keys)
        allowed = None if keys is None else _AllowedKeys(keys, matching)
        depth = _first_depth(k) if self._constants == (K1, B) else max(size, 1)
        while True:
            hits = self._top(query, depth, allowed)
            best = self._best(hits, k)
            if len(hits) < depth or depth >= size:
                return best
            highest_unread = hits[-1].score * self._snapshot.greatest_ratio * (1 + _WEIGHTS_APART)
            if highest_unread < best[-1][1]:
                return best
            depth *= 4

    def score(self, keys: Sequence[int]) -> list[float]:
        """See `KeywordIndex.score`."""
        if not keys or self._query is None:
            return [0.0] * len(keys)
        hits, _ = _read(self._snapshot, _query_among(keys, self._query), len(keys))
        scores = dict(self._best(hits, len(hits)))
        return [scores.get(key, 0.0) for key in keys]

    def _best(self, hits: Sequence[_Hit], k: int) -> list[tuple[int, float]]:
        """Return the best ``k`` hits, scored by the formula; those that cannot be among them are left out before."""
        if k < len(hits) and self._constants == (K1, B):
            ratios = [self._snapshot.ratio(hit.length) for hit in hits]
            lower_bounds = sorted(
                (hit.score * min(1.0, ratio) for hit, ratio in zip(hits, ratios, strict=True)), reverse=True
            )
            bar = lower_bounds[k - 1] * (1 - _WEIGHTS_APART)
            hits = [hit for hit, ratio in zip(hits, ratios, strict=True) if hit.score * max(1.0, ratio) >= bar]
        formula = BM25(self._snapshot.average_length, *self._constants)
        counts = self._counts(hits)
        scores = formula.scores(self._weights, counts, [hit.length for hit in hits])
        for hit, own_counts in zip(hits, counts, strict=True):
            self.matched[hit.key] = sum(compress(self._weights, own_counts))
        ranking = sorted([(-score, hit.key) for hit, score in zip(hits, scores, strict=True)])
        return [(key, -score) for score, key in ranking[:k]]

    def _counts(self, hits: Sequence[_Hit]) -> list[list[int]]:
        """Return how often each word occurs in each document, from the counts stored with its postings."""
        doc = self._snapshot.searcher.doc
        contents: list[Any] = [doc(hit.address).get_first("counts") for hit in hits]
        return self._snapshot.codes.counts(self.terms, contents)

    def _top(self, query: tantivy.Query, k: int, allowed: MatchingRows | _AllowedKeys | None) -> list[_Hit]:
        """Return at least the best ``k`` hits by tantivy's scores, ties by key."""
        # Read a few extra hits, so that documents tied with the last one are ordered by key. If still more tie, tantivy
        # picks those stored first: short queries over even chunks tie by the hundred, and reading to the end of the tie
        # would cost ten times the search.
        snapshot, limit = self._snapshot, k + _TIES
        if allowed is None:
            return _sort_hits(_read(snapshot, query, min(limit, snapshot.documents + 1))[0])[:k]
        allowed_count = allowed.count  # others may write, and change it
        if not allowed_count:
            return []
        # The best k allowed documents are the first k allowed ones of the whole ranking. Read until they are found,
        # unless that is so deep that it is cheaper to search among the allowed ones alone.
        depth = min(int((limit + 4 * math.sqrt(limit)) * snapshot.size / allowed_count), snapshot.size)
        listed_cost = _KEY_COST * allowed_count
        filters, narrower = allowed.filter, None
        if filters is not None and 2 * limit + _NARROWED_COST * allowed_count < min(depth, listed_cost):
            narrower, filters = narrowing(_SCHEMA, filters, allowed.values), None
        if narrower is not None:
            query, depth = _both(narrower, query), 2 * limit
        elif listed_cost <= depth:
            keys = allowed.keys.tolist()
            return _sort_hits(_read(snapshot, _query_among(keys, query), max(1, len(keys)))[0])[:k]
        while True:
            depth = min(depth, snapshot.size) + 1
            hits, count = _read(snapshot, query, depth, allowed)
            if len(hits) >= limit or count < depth:
                return _sort_hits(hits)
            # What is allowed has the words less often than others have, as documents of another language do.
            narrower = None if filters is None else narrowing(_SCHEMA, filters, allowed.values)
            filters = None  # it narrows down once
            if narrower is None:
                depth *= 4
            else:
                query, depth = _both(narrower, query), 2 * limit


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("key", indexed=True, fast=True)  # signed: deletes by an unsigned term delete nothing
    builder.add_integer_field("length", fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq", stored=False)
    builder.add_text_field(FACETS, tokenizer_name="whitespace", index_option="basic", stored=False)
    builder.add_bytes_field("counts", stored=True, indexed=False, fast=False)
    builder.add_text_field("marker", tokenizer_name="raw", index_option="basic", stored=True)
    return builder.build()


class KeywordIndex:
    """BM25 over one source; only ``catch_up`` needs the writer lock.

    Args:
        directory: location of the index; created if missing.
        source: the truth.
        columns: answers filters; without it a filtered search raises `InputError`.
        k1: term frequency saturation of BM25.
        b: length normalisation of BM25, 0 to 1.
        refresh: called before every search, to bring the index up to date.
    """

    def __init__(
        self,
        directory: Path,
        source: DocumentSource,
        *,
        columns: Columns | None = None,
        k1: float = K1,
        b: float = B,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        if not (math.isfinite(k1) and k1 >= 0):
            raise InputError(f"bm25_k1 is a number from 0 up, not {k1!r}")
        if not 0 <= b <= 1:
            raise InputError(f"bm25_b is a number from 0 to 1, not {b!r}")
        self._directory, self._source, self._columns = directory, source, columns
        self._origin = f"{DEFAULT_ANALYZER.fingerprint} {source.identity}"
        self._writer_codes = TermCodes()  # those of the last write of this object, and what it has learnt since
        self._k1, self._b = k1, b
        self._refresh = refresh or (lambda: None)
        self._index: tantivy.Index | None = None
        self._writer: tantivy.IndexWriter | None = None
        self._snapshot: _IndexSnapshot | None = None  # may outlive its files while they are rebuilt
        self._applied_sequence = -1
        self._reloads = 0  # since the index was opened
        self._looked_at: object = None  # the state of the files that `_applied_sequence` describes
        self._mirror: Path | None = None  # directory of links through which the index is read
        self._anew = False  # the next catch-up starts from an empty index
        self._writes = False  # this object is writing: until it is done, its searches ignore the state on disk
        self._told_missing = False
        self.trouble: StoreError | None = None
        """Why the last update failed; if no index exists, searches raise it."""
        self._guard = threading.Lock()

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """Return at most ``k`` keys with BM25 scores, best first, ties by key; filters act before the cut."""
        self._refresh()
        return self.query(query).search(k, filters)

    def score(self, query: str, keys: Sequence[int]) -> list[float]:
        """Return the same scores for given keys, in their order; 0 for documents without any word of the query."""
        self._refresh()
        return self.query(query).score(keys)

    def frequencies(self, texts: Sequence[str]) -> list[int]:
        """Return how many documents contain the rarest word of each text, without looking for changes by others."""
        return list(map(self._current().frequency, texts))

    def query(self, text: str, subset: IndexSubset | None = None, *, repeatable: bool = False) -> WordQuery:
        """Return a query of the index as it is, or of a part of it, without looking for changes by others.

        One that is ``repeatable`` finds the same in any index of the same documents, however it came about.
        """
        snapshot = self._current() if subset is None else subset
        return WordQuery(snapshot, text, self._columns, self._k1, self._b, repeatable=repeatable)

    def subset(self, keys: NDArray[np.int64], former: IndexSubset | None = None) -> IndexSubset:
        """Return the index as it is, as if only some documents existed.

        Args:
            keys: their keys, ascending.
            former: returned if it is still current.
        """
        snapshot = self._current()
        if former is not None and former.is_of(snapshot) and former.keys is keys:
            return former
        return IndexSubset(snapshot, keys)

    # ── keeping up ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def applied(self) -> int:
        """The sequence number of the index on disk; -1 when there is no usable index."""
        if self._looked_at is None:
            self.reload()
        return self._applied_sequence

    @property
    def shown(self) -> int:
        """The sequence number of the state that searches see; -1 while they return nothing for lack of an index."""
        return -1 if self._snapshot is None else self._snapshot.seq

    def reload(self) -> None:
        """Load what a writer has committed since."""
        with self._guard:
            stamp = file_stamp(self._directory / "meta.json")
            if stamp == self._looked_at or self._writes:
                return
            self._looked_at = stamp
            if self._index is not None:
                try:
                    self._reloads += 1
                    if self._due and self._writer is None:
                        self._index = self._open()
                    else:
                        self._index.reload()
                    self._load_snapshot(self._index)
                except BaseException as error:
                    if not _of_tantivy(error):
                        raise
                    log.info("keyword index %s is being reopened (%s)", self._directory, error)
                else:
                    return
            self._load()

    @property
    def _due(self) -> bool:
        """Whether to open the index again: tantivy keeps some 1.7 kB of each commit until then."""
        return self._reloads >= _RELOADS

    def catch_up(self) -> None:
        """Apply what the source has logged since the last call; the caller holds the writer lock.

        A damaged, foreign or missing index is rebuilt from the source, and the reason is logged.

        Raises:
            StoreError: the index cannot be written; the documents are safe, and the next attempt continues from there.
        """
        self.reload()  # whoever wrote to it last: what is written now has to be in the codes that the index has
        start = self.applied
        target = self._source.sequence()  # read first: what is written meanwhile is applied again next time
        if start == target and not self._anew:
            return
        try:
            try:
                self._apply(start, target)
            except BaseException as error:
                if not (_of_tantivy(error) and self._removed_leftover(error)):
                    raise
                self._apply(start, target)
        except BaseException as error:
            if _of_tantivy(error):
                raise self._unwritten(error) from error
            raise
        note_checksums(self._directory)
        self.reload()

    def _apply(self, sequence: int, target: int) -> None:
        try:
            self._writes = True
            # An index ahead of its truth belongs to another state of it.
            if self._anew or not 0 <= sequence <= target or self._wasteful:
                self._build(target)
            else:
                self._write(sequence, target)
        except BaseException:
            self._drop_writer()  # its uncommitted changes must not reach a later commit
            raise
        finally:
            self._writes = False

    def _removed_leftover(self, error: BaseException) -> bool:
        """Remove the file of deletions that a write interrupted before its commit left, if that is in the way."""
        match = _IN_THE_WAY.search(str(error))
        if match is not None:
            log.info("keyword index %s: removing %s, left by an interrupted write", self._directory, match[1])
            (self._directory / match[1]).unlink(missing_ok=True)
        return match is not None

    def _unwritten(self, error: BaseException) -> StoreError:
        note = "the documents are stored; the index will be updated as soon as it can be written"
        cause = _as_os_error(error)
        if cause.errno is None and not room(self._directory.parent):  # tantivy does not report why a thread died
            return full(self._directory, note)
        return store_error(self._directory, cause, note)

    def clear(self) -> None:
        """Make the next ``catch_up`` rebuild the index, whatever its state; until then searches use the current one."""
        self._anew = True

    def release(self) -> None:
        """Let another process write; searches continue on the open files."""
        if self._writer is not None:
            self._drop_writer()
            note_checksums(self._directory)  # including those of merged segments
            if self._due:
                self._looked_at = None
            self.reload()

    def close(self) -> None:
        """Close the files; committed changes are kept."""
        self.release()
        with self._guard:
            self._drop_mirror()
            self._index = self._snapshot = self._looked_at = None
            self._applied_sequence = -1

    def keys(self) -> Iterator[int]:
        """Return every key in the index, to compare it with the truth."""
        searcher = self._current().searcher
        keys: Any = searcher.fast_field_values("key", _all_addresses(searcher))
        return (key for key in keys if key >= 0)

    def _current(self) -> _IndexSnapshot:
        if self._snapshot is None:
            self.reload()
        if self._snapshot is not None:
            return self._snapshot
        if self.trouble is not None and self._source.sequence():
            raise self.trouble
        if self._source.sequence() and not self._told_missing:
            self._told_missing = True
            log.warning(
                "keyword index %s does not exist yet; nothing is found until its writer has built it", self._directory
            )
        return _empty_snapshot()

    def _load(self) -> None:
        """Open the index on disk if it is intact and belongs to this source; called with the guard held."""
        self._index, self._applied_sequence = None, -1
        while (state := file_stamp(self._directory / "meta.json")) != "absent":
            try:
                for path in damaged_files(self._directory):
                    raise ValueError(f"{path.name} is damaged or belongs to another index")
                index = self._open()
                if index.schema != _SCHEMA:
                    raise ValueError("meta.json has an unexpected schema")
                self._load_snapshot(index)
            except BaseException as error:
                if not _of_tantivy(error):
                    raise
                if _as_os_error(error).errno in _PASSING:  # no reason to rebuild the index
                    self._looked_at = None
                    if self._snapshot is None:
                        raise store_error(self._directory, _as_os_error(error)) from error
                    return
                if file_stamp(self._directory / "meta.json") != state:
                    continue  # a writer replaced files during the check
                log.warning("keyword index %s cannot be used (%.200s); rebuilding it", self._directory, error)
            else:
                self._index = index
            return

    @property
    def _wasteful(self) -> bool:
        """Whether most documents in the index are deleted."""
        dead, alive = 0, 0
        for segment in segments(self._directory):
            deleted = (segment["deletes"] or {}).get("num_deleted_docs", 0)
            dead, alive = dead + deleted, alive + segment["max_doc"] - deleted
        return dead > max(alive, _COMPACT)

    def _build(self, target: int) -> None:
        """Build a new index beside the current one, then replace the current one."""
        self._drop_writer()
        folder = self._directory.parent
        make_directory(folder)
        collect_leftovers(folder)
        with directory_aside(folder) as directory:
            writer = _new_index(directory).writer(_HEAP_BYTES, 1)
            try:
                self._fill(writer, TermCodes(), 0, target)
            finally:
                writer.wait_merging_threads()
            note_checksums(directory)
            with self._guard:
                self._index = None
                self._anew, self._applied_sequence, self._looked_at = False, -1, None
            replace_directory(self._directory, directory)

    def _open(self) -> tantivy.Index:
        """Open the index on disk; if nothing can be written beside it, not even a lock, through links to its files."""
        self._reloads = 0
        try:
            return tantivy.Index.open(str(self._directory))
        except (ValueError, OSError) as error:
            if _as_os_error(error).errno not in _UNWRITABLE:
                raise
        self._drop_mirror()
        self._mirror = Path(tempfile.mkdtemp(prefix="pointsman-"))
        weakref.finalize(self, shutil.rmtree, self._mirror, ignore_errors=True)
        for path in self._directory.iterdir():
            if path.suffix != ".lock":
                (self._mirror / path.name).symlink_to(path.absolute())
        return tantivy.Index.open(str(self._mirror))

    def _drop_mirror(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            shutil.rmtree(mirror, ignore_errors=True)  # open files stay open

    def _load_snapshot(self, index: tantivy.Index) -> None:
        searcher = index.searcher()
        hits = searcher.search(_key(_MARKER), 1, count=False).hits
        if not hits:
            raise ValueError("its first build was not completed")
        marker, _, seq = str(searcher.doc(hits[0][1])["marker"][0]).partition("\n")
        if marker not in [f"{number} {self._origin}" for number in _READABLE]:
            raise ValueError(f"it belongs to {marker!r}, not to '{_FORMAT} {self._origin}'")
        codes, content = self._snapshot.codes if self._snapshot else TermCodes(), _codes_in(searcher)
        if codes.content != content:
            codes = TermCodes(content)
        self._snapshot, self._applied_sequence = _IndexSnapshot(searcher, int(seq), codes), int(seq)

    def _write(self, sequence: int, target: int) -> None:
        writer = self._open_writer()
        writer.delete_documents_by_term("key", _MARKER)
        codes, content = self._writer_codes, self._current().codes.content
        self._fill(writer, codes if codes.content == content else TermCodes(content), sequence, target)

    def _fill(self, writer: tantivy.IndexWriter, codes: TermCodes, sequence: int, target: int) -> None:
        """Add what was logged after ``sequence``, and commit.

        Args:
            writer: of the index.
            codes: those that the index has; what is learnt is committed, too.
            sequence: the last number that the index has applied.
            target: the number to note.
        """
        self._writer_codes, content = codes, codes.content
        for batch in self._source.changes(sequence):
            for change in batch:
                if sequence:  # before the first change there is nothing to delete
                    writer.delete_documents_by_term("key", change.key)
                if change.document is not None:
                    writer.add_document(_postings(change.key, change.document, codes))
        marker = tantivy.Document()
        marker.add_integer("key", _MARKER)
        marker.add_text("marker", f"{_FORMAT} {self._origin}\n{target}")
        writer.add_document(marker)
        if codes.content != content:
            writer.delete_documents_by_term("key", _CODES)
            document = tantivy.Document()
            document.add_integer("key", _CODES)
            document.add_bytes("counts", codes.content)
            writer.add_document(document)
        writer.commit()

    def _open_writer(self) -> tantivy.IndexWriter:
        with self._guard:
            if self._writer is None:
                if self._mirror is not None:
                    self._index = None
                    self._drop_mirror()
                    if (self._directory / "meta.json").exists():
                        self._index = tantivy.Index.open(str(self._directory))
                if self._index is None:
                    make_directory(self._directory)
                    self._index = tantivy.Index(_SCHEMA, path=str(self._directory))
                self._writer = self._index.writer(_HEAP_BYTES, 1)
                self._writer.garbage_collect_files()  # after a kill, leftover delete files would block the writer
            return self._writer

    def _drop_writer(self) -> None:
        with self._guard:
            writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.wait_merging_threads()
            except ValueError as error:  # it has died; the reason was reported when it did
                log.debug("the writer of %s had ended already (%s)", self._directory, error)


@cache
def _empty_snapshot() -> _IndexSnapshot:
    return _IndexSnapshot(tantivy.Index(_SCHEMA).searcher(), -1, TermCodes())


def _all_addresses(searcher: tantivy.Searcher) -> list[tantivy.DocAddress]:
    """Return where all documents of an index are, those of the index itself included."""
    hits = searcher.search(tantivy.Query.all_query(), max(searcher.num_docs, 1), count=False).hits
    return [address for _, address in hits]


def _codes_in(searcher: tantivy.Searcher) -> bytes:
    """Return the terms that have codes in an index."""
    hits = searcher.search(_key(_CODES), 1, count=False).hits
    content: Any = searcher.doc(hits[0][1]).get_first("counts") if hits else b""
    return bytes(content)


_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def _of_tantivy(error: BaseException) -> bool:
    """Whether an error was raised by tantivy or the system underneath; tantivy panics on some kinds of damage."""
    if isinstance(error, PointsmanError):
        return False
    return isinstance(error, ValueError | OSError | KeyError | TypeError) or type(error).__name__ == "PanicException"


def _as_os_error(error: BaseException) -> OSError:
    """Return the operating system error that tantivy's message describes; without an errno if it describes none."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)|code: (\d+), kind:", str(error))
    if number is None:
        return OSError(str(error)[:300])
    return OSError(code := int(number[1] or number[2]), os.strerror(code))


def _postings(key: int, document: Document, codes: TermCodes) -> tantivy.Document:
    tokens = DEFAULT_ANALYZER.tokens(document.searchable)
    posting = tantivy.Document()
    posting.add_integer("key", key)
    posting.add_integer("length", len(tokens))
    posting.add_text("body", " ".join(tokens))
    posting.add_bytes("counts", codes.encode(tokens))
    posting.add_text(FACETS, facets(document.metadata))
    return posting


def _new_index(directory: Path) -> tantivy.Index:
    """Create an index whose stored counts are compressed in small blocks; tantivy takes that from its own file only."""
    index = tantivy.Index(_SCHEMA, path=str(directory))
    path = directory / "meta.json"
    meta = json.loads(path.read_text())
    if "docstore_blocksize" not in meta.get("index_settings", {}):
        return index
    meta["index_settings"]["docstore_blocksize"] = _STORED_BLOCK
    path.write_text(json.dumps(meta))
    return tantivy.Index.open(str(directory))


_SCHEMA = _schema()


def _term(term: str) -> tantivy.Query:
    return tantivy.Query.term_query(_SCHEMA, "body", term, index_option="freq")


def _key(key: int) -> tantivy.Query:
    return tantivy.Query.term_query(_SCHEMA, "key", key)


def _any_of(snapshot: _IndexSnapshot, terms: Mapping[str, int]) -> tantivy.Query:
    """Return a disjunction; a repeated word counts as often as it occurs in the query, as in Lucene."""
    should, scale = tantivy.Occur.Should, tantivy.Query.boost_query
    clauses = []
    for term, count in terms.items():
        if not snapshot.occurs(term):
            continue
        weight = count * snapshot.weight(term)
        clauses.append((should, _term(term) if weight == 1 else scale(_term(term), weight)))
    return tantivy.Query.boolean_query(clauses)


def _query_among(keys: Sequence[int], query: tantivy.Query) -> tantivy.Query:
    """Restrict a query to these keys; a disjunction of keys is faster than tantivy's own term set."""
    return _both(tantivy.Query.boolean_query([(tantivy.Occur.Should, _key(key)) for key in keys]), query)


def _both(condition: tantivy.Query, query: tantivy.Query) -> tantivy.Query:
    """Restrict a query to what another one finds, whose scores do not count."""
    must = tantivy.Occur.Must
    return tantivy.Query.boolean_query([(must, tantivy.Query.const_score_query(condition, 0.0)), (must, query)])


def _in_a_byte(length: int) -> int:
    """Return a length as tantivy stores it: exact to 39, then 4 significant bits (Lucene's `SmallFloat.intToByte4`)."""
    if length < _EXACT_TO:
        return length
    excess = length - 24
    shift = excess.bit_length() - 4
    return 24 + (excess >> shift << shift)


def _explanation_parts(explanation: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a tantivy explanation and all its nested parts."""
    yield explanation
    for detail in explanation.get("details", ()):
        yield from _explanation_parts(detail)


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
        import numpy as np

        rows = np.minimum(np.searchsorted(self.keys, keys), self.count - 1)
        return np.asarray(self.keys[rows] == keys)


class _Hit(NamedTuple):
    """A document that tantivy found; its score omits the constant factor k1 + 1, as in Lucene: κ was measured so."""

    key: int
    score: float
    length: int
    address: tantivy.DocAddress


def _read(
    snapshot: _IndexSnapshot, query: tantivy.Query, limit: int, allowed: MatchingRows | _AllowedKeys | None = None
) -> tuple[list[_Hit], int]:
    """Return the allowed ones among the first ``limit`` hits, nearly best first, and how many hits there were."""
    import numpy as np

    hits = snapshot.searcher.search(query, limit, count=False).hits
    keys: Any = snapshot.searcher.fast_field_values("key", [address for _, address in hits])
    count = len(hits)
    if allowed is not None and count:
        matching = np.flatnonzero(allowed.mask(np.array(keys, np.int64))).tolist()
        hits, keys = [hits[row] for row in matching], [keys[row] for row in matching]
    addresses = [address for _, address in hits]
    lengths: Any = snapshot.searcher.fast_field_values("length", addresses)
    scores = [hit[0] / (K1 + 1) for hit in hits]
    return list(map(_Hit, keys, scores, lengths, addresses)), count


def _sort_hits(hits: list[_Hit]) -> list[_Hit]:
    hits.sort(key=attrgetter("key"))
    hits.sort(key=attrgetter("score"), reverse=True)  # stable: ties stay in the order of their keys
    return hits
