"""A dataset in OpenSearch as it is read: searches, documents, vectors and statistics."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.backend import check_format, settings_of
from pointsman.store.base_store import Store
from pointsman.store.bm25 import BM25, idf, query_terms, rarest
from pointsman.store.opensearch.opensearch_queries import (
    FLOAT,
    FORMAT,
    MOST,
    candidate_count,
    clause,
    constants,
    coordinates,
    exactly,
    holding,
    key_of,
    near,
    unpacked,
    words,
)
from pointsman.store.prepared_documents import UNREADABLE, direction, metadata_of, position, storable, unreadable
from pointsman.store.store_values import (
    MATCHED,
    NEAR,
    SCALES_OF,
    WORDS,
    WORDS_FIRST,
    Capability,
    Lists,
    Page,
    Scores,
    Statistics,
    StoreInfo,
    StoreQuery,
)
from pointsman.tools.batching import batched
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.opensearch.opensearch_client import Cluster
    from pointsman.values.filters import Filter

_CAPABILITIES: Final = frozenset(Capability) - {
    *(Capability.LOCAL, Capability.CHANGES, Capability.VIEWS, Capability.DAYS, Capability.RECORDS)
}
_FRESH_SECONDS: Final = 1.0  # age up to which statistics are reused
_SAME_LENGTH: Final = 0.001  # relative change of the mean length up to which a search is not repeated
BATCH_DOCUMENTS: Final = 500  # documents in one request
SHOWN_FIELDS: Final = {"includes": ["id", "text", "metadata"]}
RESCORED_FIELDS: Final = {"includes": ["id", "text", "metadata", "stored_vector"]}
_HOLDING: Final = "holding"  # the search that counts documents with words, beside those of the lists
BARE: Final[Mapping[str, Any]] = {"term": {"embedded": False}}
"""The query for documents without a vector."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The cluster's scores, measured on connecting: its BM25 relative to ours, and its scores for cosines 0 and 1."""

    bm25: float
    orthogonal: float
    equal: float

    def cosine(self, score: float) -> float:
        """Convert a score to a cosine."""
        return (score - self.orthogonal) / (self.equal - self.orthogonal)


class _Bulk(threading.local):
    """The group of writes of a thread: how many `writer` blocks are open, and whether any of them has written."""

    depth = 0
    has_written = False


class OpenSearchReader(Store):
    """What is read of a dataset in OpenSearch.

    Args:
        cluster: the cluster.
        alias: alias of its index.
        catalogue: the index that contains its record.
        record: the ``_id`` of that record.
        record_fields: the record.
        factors: the cluster's score factors.

    Raises:
        FormatVersionError: the dataset was written by a newer Pointsman.
    """

    def __init__(
        self,
        cluster: Cluster,
        alias: str,
        catalogue: str,
        record: str,
        record_fields: Mapping[str, Any],
        factors: Factors,
    ) -> None:
        check_format(cluster.label, record_fields["format"], FORMAT)
        self._cluster, self._alias, self._catalogue, self._record = cluster, alias, catalogue, record
        self._identity, self._factors = record_fields["identity"], factors
        self._scales = SCALES_OF[record_fields["technique"]]
        self._embedder: str | None = record_fields.get("embedder")
        self._dimensions: int | None = record_fields.get("dimensions")
        self._statistics: tuple[float, Statistics] | None = None
        self._constants = constants(settings_of(record_fields["name"], record_fields["settings"]))
        self._kind: str = record_fields.get("vectors", FLOAT)
        self._mean_length: tuple[float, float] | None = None  # when it was measured
        self._bulk = _Bulk()

    def __repr__(self) -> str:
        return f"OpenSearchStore({self._cluster.label!r}, {self._alias!r})"

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        return StoreInfo("opensearch", self._identity, self._embedder, self._dimensions, self._scales, _CAPABILITIES)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; scores are only those of each list's own candidates."""
        answers = self._answers(store_queries)
        lengths = [
            answer for group in answers for answer in group.values() if "length" in answer.get("aggregations", {})
        ]
        if lengths and self._note_lengths(lengths[0]):
            answers = self._answers(store_queries)
        return [self._lists(query, group) for query, group in zip(store_queries, answers, strict=True)]

    def _answers(self, store_queries: Sequence[StoreQuery]) -> list[dict[str, Any]]:
        """Return the cluster's answers to each query, by list."""
        queries = [self._queries(store_query) for store_query in store_queries]
        answers = iter(self._search_each([query for group in queries for query in group.values()]))
        return [{name: next(answers) for name in group} for group in queries]

    def _queries(self, store_query: StoreQuery) -> dict[str, dict[str, Any]]:
        """Return the searches for a query, by list, and the one that counts documents."""
        terms, vector = self._query(store_query)
        filters = [] if store_query.filters is None else [clause(store_query.filters)]
        size = min(store_query.depth, MOST)
        queries: dict[str, dict[str, Any]] = {}
        if size > 0 and terms:
            bm25, fresh = self._bm25()
            queries[WORDS] = {
                "size": size,
                "_source": SHOWN_FIELDS,
                "query": words(terms, filters),
                "rescore": exactly(terms, size, bm25),
                "track_total_hits": False,
            }
            queries[_HOLDING] = holding(terms, lengths=not fresh)
        if size > 0 and vector is not None:
            count, fields = (size, SHOWN_FIELDS) if self._kind == FLOAT else (candidate_count(size), RESCORED_FIELDS)
            queries[NEAR] = {
                "size": count,
                "_source": fields,
                "query": near(coordinates(vector, self._kind), count, filters),
                "track_total_hits": False,
            }
        return queries

    def _bm25(self) -> tuple[BM25, bool]:
        """Return the constants of the formula, and whether the mean length among them is recent."""
        if self._mean_length is None:
            self._note_lengths(self._search_index(holding((), lengths=True)))
        time_measured, mean = self._mean_length or (0.0, 1.0)
        return BM25(mean, *self._constants), time.monotonic() - time_measured < _FRESH_SECONDS

    def _note_lengths(self, answer: Mapping[str, Any]) -> bool:
        """Keep the mean length; return whether it has changed enough to show in scores."""
        old_mean = 0.0 if self._mean_length is None else self._mean_length[1]
        mean: float = answer["aggregations"]["length"]["value"] or 1.0
        self._mean_length = time.monotonic(), mean
        return abs(mean - old_mean) > _SAME_LENGTH * mean

    def _query(self, store_query: StoreQuery) -> tuple[dict[str, int], NDArray[np.float32] | None]:
        """Return the words and the vector to search by; empty and None if there are none.

        Raises:
            InputError: the vector is invalid.
        """
        terms = query_terms(store_query.text) if store_query.text is not None and WORDS in self._scales else {}
        if store_query.vector is None or NEAR not in self._scales:
            return terms, None
        if self._dimensions is None:
            self.statistics()  # another process may have written the first vectors
        if self._dimensions is None:
            return terms, None
        vector = direction(store_query.vector, self._dimensions)
        return terms, vector if vector.any() else None

    def _lists(self, store_query: StoreQuery, answers: Mapping[str, Any]) -> Lists:
        rankings: dict[str, list[tuple[Any, float | None]]] = {}
        documents: dict[Any, Document] = {}
        degraded: list[str] = []
        if store_query.text is not None and WORDS in self._scales:
            rankings[WORDS] = []
        if store_query.vector is not None and self._dimensions is not None and NEAR in self._scales:
            rankings[NEAR] = []
        weights = _weights(store_query, answers[_HOLDING]) if _HOLDING in answers else None
        if WORDS in rankings and not query_terms(store_query.text or ""):
            weights = []
        for name, answer in answers.items():
            if name == _HOLDING:
                continue
            hits = answer["hits"]["hits"]
            scored_hits = [
                (-score, hit["_id"], hit["_source"])
                for score, hit in zip(self._scores(name, hits, store_query), hits, strict=True)
            ]
            best = sorted(scored_hits, key=itemgetter(0, 1))[: store_query.depth]
            rankings[name] = [(key, -score) for score, key, _ in best]
            documents |= {key: document_from(source) for _, key, source in best}
            shards = answer["_shards"]
            # A shard without any live copy counts in `total`, but neither in `successful` nor in `failed`.
            silent = shards["total"] - shards["successful"]
            if silent or answer.get("timed_out"):
                degraded.append(f"{silent} of {shards['total']} parts of the {name} list did not answer")
        scores: dict[str, dict[Any, float]] = {
            name: {key: score for key, score in ranking if score is not None} for name, ranking in rankings.items()
        }
        if WORDS in rankings and weights is not None:
            scores[MATCHED] = _matched(answers[WORDS], weights) if WORDS in answers else {}
        if weights is None:
            return Lists(rankings, scores, documents, tuple(degraded))
        return Lists(rankings, scores, documents, tuple(degraded), sum(weights))

    def _scores(self, name: str, hits: Sequence[Mapping[str, Any]], store_query: StoreQuery) -> list[float]:
        """Return the scores of hits: the cluster's on our scale, or the cosines of the vectors stored beside them."""
        if name == WORDS:
            return [hit["_score"] / self._factors.bm25 for hit in hits]
        if self._kind == FLOAT or store_query.vector is None or self._dimensions is None:
            return [self._factors.cosine(hit["_score"]) for hit in hits]
        vector = direction(store_query.vector, self._dimensions)
        return [float(unpacked(hit["_source"]["stored_vector"]) @ vector) for hit in hits]

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        requests: list[tuple[int, str, dict[str, Any]]] = []
        results: list[dict[str, dict[Any, float]]] = []
        for number, (query, candidates) in enumerate(zip(store_queries, keys, strict=True)):
            terms, vector = self._query(query)
            result: dict[str, dict[Any, float]] = {}
            if query.text is not None and WORDS in self._scales:
                result[WORDS] = dict.fromkeys(candidates, 0.0)
                result[MATCHED] = dict.fromkeys(candidates, 0.0)
            if query.vector is not None and NEAR in self._scales:
                result[NEAR] = dict.fromkeys(candidates, float("nan"))
            results.append(result)
            if terms and candidates:
                requests.append((number, _HOLDING, holding(terms)))
            for batch in batched(candidates, MOST):
                candidate_filter = [{"ids": {"values": list(batch)}}]
                size = len(batch)
                if terms:
                    rescoring = exactly(terms, size, self._bm25()[0])
                    by_words = {"query": words(terms, candidate_filter), "rescore": rescoring}
                    requests.append((number, WORDS, {"size": size, "_source": False, **by_words}))
                if vector is not None:
                    by_vectors = near(coordinates(vector, self._kind), size, candidate_filter)
                    fields = False if self._kind == FLOAT else ["stored_vector"]
                    requests.append((number, NEAR, {"size": size, "_source": fields, "query": by_vectors}))
        self._add_scores(results, requests, store_queries)
        return list(results)

    def _add_scores(
        self, results: Sequence[dict[str, Any]], requests: Sequence[Any], store_queries: Sequence[StoreQuery]
    ) -> None:
        """Add the cluster's answers to requests: a query's number, the name of one of its lists, and the search."""
        weights: list[float] = []
        answers = self._search_each([search for _, _, search in requests])
        for (number, name, _), answer in zip(requests, answers, strict=True):
            if name == _HOLDING:
                weights = _weights(store_queries[number], answer)  # those of the searches that follow
                continue
            hits = answer["hits"]["hits"]
            scores = self._scores(name, hits, store_queries[number])
            results[number][name] |= zip((hit["_id"] for hit in hits), scores, strict=True)
            if name == WORDS:
                results[number][MATCHED] |= _matched(answer, weights)

    def _search_each(self, searches: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the answers to searches, in one request.

        Frequencies are those of all shards, and the same search goes to the same copies, as copies may differ in
        statistics.
        """
        if not searches:
            return []
        lines: list[Mapping[str, Any]] = []
        for search in searches:
            preference = hashlib.blake2b(repr(search["query"]).encode("utf-8", "replace"), digest_size=6).hexdigest()
            lines += [{"search_type": "dfs_query_then_fetch", "preference": preference}, search]
        return self._cluster.search_many(f"/{self._alias}", lines)

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        records = self._records(list(dict.fromkeys(keys)), SHOWN_FIELDS)
        return [document_from(records[key]["_source"]) if key in records else None for key in keys]

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        return self.fetch([key_of(id_) if storable(id_) else "" for id_ in ids])

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`."""
        keys_by_id = {id_: key_of(id_) for id_ in ids if storable(id_)}
        records = self._records(list(keys_by_id.values()), False)
        return {id_: key for id_, key in keys_by_id.items() if key in records}

    def _records(self, keys: Sequence[str], fields: object) -> dict[str, Any]:
        """Return the stored records of these keys, even if not yet visible to searches; skip unknown keys."""
        records: dict[str, Any] = {}
        for batch in batched([key for key in keys if key], BATCH_DOCUMENTS):
            request = {"docs": [{"_id": key, "_source": fields} for key in batch]}
            answers = self._cluster.get_records(f"/{self._alias}", request)
            records.update({record["_id"]: record for record in answers if record["found"]})
        return records

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        last = position(after)
        hits = self._in_order(last, min(limit + 1, MOST), filters, SHOWN_FIELDS)
        documents = [document_from(hit["_source"]) for hit in hits[:limit]]
        return Page(documents, str(hits[limit - 1]["sort"][0]) if len(hits) > limit else None)

    def _in_order(self, last: int, size: int, filters: Filter | None, fields: object) -> list[Any]:
        body: dict[str, Any] = {
            "size": size,
            "_source": fields,
            "sort": [{"order": "asc"}],
            "search_after": [last],
            "track_total_hits": False,
            "query": {"match_all": {}} if filters is None else {"bool": {"filter": [clause(filters)]}},
        }
        hits: list[Any] = self._search_index(body)["hits"]["hits"]
        return hits

    def _search_index(self, body: Mapping[str, Any]) -> Any:
        """Search and require a complete answer."""
        return self._cluster.ask("POST", f"/{self._alias}/_search", body, allow_partial_search_results=False)

    def _all_hits(self, filters: Filter | None, fields: object) -> Iterator[Any]:
        last, size = 0, 1000
        while hits := self._in_order(last, size, filters, fields):
            yield from hits
            last = hits[-1]["sort"][0]

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`."""
        if source is None:
            return [hit["_source"]["id"] for hit in self._all_hits(filters, ["id"])]
        from pointsman.values.filters import Equals

        of_source = Equals("source", source)
        return super().ids(source=source, filters=of_source if filters is None else of_source & filters)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        query = {"match_all": {}} if filters is None else {"bool": {"filter": [clause(filters)]}}
        return int(self._search_index({"size": 0, "track_total_hits": True, "query": query})["hits"]["total"]["value"])

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`."""
        dimensions = self._dimensions_now()
        fields = ["stored_vector"]
        if dimensions is None:
            return np.zeros((0, 0), np.float32)
        if keys is not None:
            records = self._records(list(dict.fromkeys(keys)), fields)
            hits = [records[key] for key in keys if key in records]
        else:
            sampling = {"random_score": {"seed": 7, "field": "order"}}
            query = {"function_score": {"query": {"term": {"embedded": True}}, **sampling, "boost_mode": "replace"}}
            hits = self._search_index({"size": min(sample, MOST), "_source": fields, "query": query})["hits"]["hits"]
        rows = [unpacked(hit["_source"]["stored_vector"]) for hit in hits if "stored_vector" in hit["_source"]]
        return np.array(rows, np.float32).reshape(-1, dimensions)

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""

        def count(tokens: list[str]) -> dict[str, int]:
            searches = [{"size": 0, "track_total_hits": True, "query": {"term": {"tokens": token}}} for token in tokens]
            totals = [answer["hits"]["total"]["value"] for answer in self._search_each(searches)]
            return dict(zip(tokens, totals, strict=True))

        return rarest(words, count)

    def statistics(self) -> Statistics:
        """See `Store`; statistics are reused for a second."""
        cached = self._statistics
        if cached is not None and time.monotonic() - cached[0] < _FRESH_SECONDS:
            return cached[1]
        time_now, record = time.monotonic(), self._record_fields()
        self._embedder, self._dimensions = record.get("embedder"), record.get("dimensions")
        notes, due = dict(record["notes"]), 0
        if WORDS_FIRST in notes:
            answer = self._search_index({"size": 0, "track_total_hits": True, "query": BARE})
            due = int(answer["hits"]["total"]["value"])
        statistics = Statistics(record["seq"], self.count() if due else None, notes, due)
        self._statistics = time_now, statistics
        return statistics

    def _dimensions_now(self) -> int | None:
        """Return the dimensions of the vectors, None if there are none; another process may just have stored them."""
        if self._dimensions is None:
            self._statistics = None  # they may be a second old
            self.statistics()
        return self._dimensions

    def _forget(self) -> None:
        """Measure statistics again after a write."""
        self._statistics = self._mean_length = None

    def _record_fields(self) -> dict[str, Any]:
        """Return the current record of the dataset."""
        answer = self._cluster.ask("GET", f"/{self._catalogue}/_doc/{self._record}", accepted=(404,))
        if answer is None:
            raise self._cluster.gone()
        record: dict[str, Any] = answer["_source"]
        return record


def documents_from(ids: Iterable[str], records: Mapping[str, Any]) -> list[Document | None]:
    """Return the documents of these ids among records by key, None for those that are not there."""
    keys = [key_of(id_) if storable(id_) else "" for id_ in ids]
    return [document_from(records[key]["_source"]) if key in records else None for key in keys]


def document_from(source: Mapping[str, Any]) -> Document:
    """Return the document in a record.

    Raises:
        CorruptStoreError: someone has changed the record to what is none.
    """
    try:
        return Document(source["id"], source["text"], metadata_of(source["metadata"]))
    except (*UNREADABLE, KeyError) as error:
        raise unreadable(source.get("id"), error) from error


def _weights(store_query: StoreQuery, answer: Mapping[str, Any]) -> list[float]:
    """Return the idf of each of a query's words over the existing documents, times how often it occurs in the look."""
    documents, buckets = answer["hits"]["total"]["value"], answer["aggregations"]["words"]["buckets"]
    counts = query_terms(store_query.text or "").values()
    return [n * idf(documents, buckets[str(number)]["doc_count"]) for number, n in enumerate(counts)]


def _matched(answer: Mapping[str, Any], weights: Sequence[float]) -> dict[Any, float]:
    """Return the sum of the weights of the words that each hit of a `words` search has."""
    return {
        hit["_id"]: sum(weights[int(number)] for number in hit.get("matched_queries", ()))
        for hit in answer["hits"]["hits"]
    }
