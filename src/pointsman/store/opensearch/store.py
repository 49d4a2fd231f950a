"""One dataset in OpenSearch."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman._batched import batched
from pointsman.errors import ConflictError, FormatVersionError, InputError, StoreError
from pointsman.models.base import mixed_embedders
from pointsman.store.backend import settings_of
from pointsman.store.base import (
    NEAR,
    SCALES_OF,
    WORDS,
    WORDS_FIRST,
    BaseStore,
    Capability,
    Lists,
    MetadataResult,
    Page,
    Scores,
    Statistics,
    StoreInfo,
    StoreQuery,
)
from pointsman.store.bm25 import BM25, idf, query_terms
from pointsman.store.opensearch.queries import (
    DERIVED,
    FORMAT,
    LENGTH,
    MOST,
    clause,
    constants,
    exactly,
    facts_of,
    holding,
    key_of,
    near,
    packed,
    unpacked,
    vector_field,
    words,
)
from pointsman.store.prepared import (
    UNREADABLE,
    Prepared,
    direction,
    directions,
    edits,
    metadata_of,
    position,
    prepare,
    storable,
    unreadable,
)
from pointsman.text import DEFAULT_ANALYZER
from pointsman.types import AddResult, Document, Metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.store.opensearch.cluster import Cluster

_CAPABILITIES: Final = frozenset(Capability) - {
    *(Capability.LOCAL, Capability.CHANGES, Capability.VIEWS, Capability.DAYS, Capability.RECORDS)
}
_FRESH_SECONDS: Final = 1.0  # age up to which statistics are reused
_SAME_LENGTH: Final = 0.001  # relative change of the mean length up to which a search is not repeated
_BATCH_DOCUMENTS: Final = 500  # documents in one request
_TOGETHER_BYTES: Final = 8_000_000
_TRIES: Final = 20  # attempts of a write when others change the same documents
_SHOWN_FIELDS: Final = {"includes": ["id", "text", "metadata"]}
_HOLDING: Final = "holding"  # the search that counts documents with words, beside those of the lists
_ORDER_BITS: Final = 20  # bits for the number of a document within a write
_BARE: Final[Mapping[str, Any]] = {"term": {"embedded": False}}
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


class OpenSearchStore(BaseStore):
    """A dataset in OpenSearch; keys are its ``_id``. `OpenSearchBackend` opens it.

    A search is one request for all lists, and one for the scores of documents that only the other list contains. Words
    are scored by BM25 with the statistics of all shards and exact lengths; until segments are merged, frequencies
    include deleted documents (`compact` merges). When a write returns, it is durable on every copy in use,
    and visible to searches.

    Args:
        cluster: the cluster.
        alias: alias of its index.
        catalogue: the index that contains its record.
        record: the ``_id`` of that record.
        about: the record.
        factors: the cluster's score factors.

    Raises:
        FormatVersionError: the dataset was written by a newer Pointsman.
    """

    def __init__(
        self, cluster: Cluster, alias: str, catalogue: str, record: str, about: Mapping[str, Any], factors: Factors
    ) -> None:
        if about["format"] != FORMAT:
            raise FormatVersionError(
                f"{cluster.label}: the dataset is in format {about['format']}, this version of pointsman knows format "
                f"{FORMAT}; open it with the version that wrote it"
            )
        self._cluster, self._alias, self._catalogue, self._record = cluster, alias, catalogue, record
        self._identity, self._scales, self._factors = about["identity"], SCALES_OF[about["technique"]], factors
        self._embedder: str | None = about.get("embedder")
        self._dimensions: int | None = about.get("dimensions")
        self._statistics: tuple[float, Statistics] | None = None
        self._constants = constants(settings_of(about["name"], about["settings"]))
        self._mean_length: tuple[float, float] | None = None  # when it was measured
        self._bulk = threading.local()
        if about["analyzer"] != DERIVED:
            self.rebuild()

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
        """Return the cluster's answers to each look, by list."""
        queries = [self._queries(store_query) for store_query in store_queries]
        answers = iter(self._search_each([query for group in queries for query in group.values()]))
        return [{name: next(answers) for name in group} for group in queries]

    def _queries(self, store_query: StoreQuery) -> dict[str, dict[str, Any]]:
        """Return the searches for a look, by list, and the one that counts documents."""
        terms, vector = self._query(store_query)
        filters = [] if store_query.filters is None else [clause(store_query.filters)]
        size = min(store_query.depth, MOST)
        queries: dict[str, dict[str, Any]] = {}
        if size > 0 and terms:
            bm25, fresh = self._bm25()
            queries[WORDS] = {
                "size": size,
                "_source": _SHOWN_FIELDS,
                "query": words(terms, filters),
                "rescore": exactly(terms, size, bm25),
                "track_total_hits": False,
            }
            queries[_HOLDING] = holding(terms, lengths=not fresh)
        if size > 0 and vector is not None:
            queries[NEAR] = {
                "size": size,
                "_source": _SHOWN_FIELDS,
                "query": near(vector, size, filters),
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
        weight = self._idf(store_query, answers[_HOLDING]) if _HOLDING in answers else None
        if WORDS in rankings and not query_terms(store_query.text or ""):
            weight = 0.0
        for name, answer in answers.items():
            if name == _HOLDING:
                continue
            hits = answer["hits"]["hits"]
            pairs = [(-self._score(name, hit["_score"]), hit["_id"]) for hit in hits]
            rankings[name] = [(key, -score) for score, key in sorted(pairs)]
            documents |= {hit["_id"]: _document(hit["_source"]) for hit in hits}
            shards = answer["_shards"]
            # A shard without any live copy counts in `total`, but neither in `successful` nor in `failed`.
            silent = shards["total"] - shards["successful"]
            if silent or answer.get("timed_out"):
                degraded.append(f"{silent} of {shards['total']} parts of the {name} list did not answer")
        scores: dict[str, dict[Any, float]] = {
            name: {key: score for key, score in ranking if score is not None} for name, ranking in rankings.items()
        }
        return Lists(rankings, scores, documents, tuple(degraded), weight)

    def _idf(self, store_query: StoreQuery, answer: Mapping[str, Any]) -> float:
        """Return the sum of the idf of a look's words over the existing documents."""
        documents, buckets = answer["hits"]["total"]["value"], answer["aggregations"]["words"]["buckets"]
        counts = query_terms(store_query.text or "").values()
        return sum(n * idf(documents, buckets[str(number)]["doc_count"]) for number, n in enumerate(counts))

    def _score(self, name: str, score: float) -> float:
        return score / self._factors.bm25 if name == WORDS else self._factors.cosine(score)

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        searches: list[dict[str, Any]] = []
        requests: list[tuple[int, str]] = []
        results: list[dict[str, dict[Any, float]]] = []
        for number, (query, candidates) in enumerate(zip(store_queries, keys, strict=True)):
            terms, vector = self._query(query)
            result: dict[str, dict[Any, float]] = {}
            if query.text is not None and WORDS in self._scales:
                result[WORDS] = dict.fromkeys(candidates, 0.0)
            if query.vector is not None and NEAR in self._scales:
                result[NEAR] = dict.fromkeys(candidates, float("nan"))
            results.append(result)
            for batch in batched(candidates, MOST):
                candidate_filter = [{"ids": {"values": list(batch)}}]
                size = len(batch)
                if terms:
                    rescoring = exactly(terms, size, self._bm25()[0])
                    search = {
                        "size": size,
                        "_source": False,
                        "query": words(terms, candidate_filter),
                        "rescore": rescoring,
                    }
                    searches.append(search)
                    requests.append((number, WORDS))
                if vector is not None:
                    searches.append({"size": size, "_source": False, "query": near(vector, size, candidate_filter)})
                    requests.append((number, NEAR))
        for (number, name), answer in zip(requests, self._search_each(searches), strict=True):
            results[number][name] |= {hit["_id"]: self._score(name, hit["_score"]) for hit in answer["hits"]["hits"]}
        return list(results)

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
        records = self._records(list(dict.fromkeys(keys)), _SHOWN_FIELDS)
        return [_document(records[key]["_source"]) if key in records else None for key in keys]

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
        for batch in batched([key for key in keys if key], _BATCH_DOCUMENTS):
            answer = self._cluster.ask(
                "POST", f"/{self._alias}/_mget", {"docs": [{"_id": key, "_source": fields} for key in batch]}
            )
            for record in answer["docs"]:
                if "error" in record:
                    raise self._cluster.complaint(record["error"], 404)
                if record["found"]:
                    records[record["_id"]] = record
        return records

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        last = position(after)
        hits = self._in_order(last, min(limit + 1, MOST), filters, _SHOWN_FIELDS)
        documents = [_document(hit["_source"]) for hit in hits[:limit]]
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
        from pointsman.filters import Equals

        of_source = Equals("source", source)
        hits = self._all_hits(of_source if filters is None else of_source & filters, _SHOWN_FIELDS)
        documents = (_document(hit["_source"]) for hit in hits)
        return [document.id for document in documents if document.metadata.get("source") == source]

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        query = {"match_all": {}} if filters is None else {"bool": {"filter": [clause(filters)]}}
        return int(self._search_index({"size": 0, "track_total_hits": True, "query": query})["hits"]["total"]["value"])

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        documents: Sequence[Document],
        vectors: NDArray[np.float32] | None = None,
        embedder: str | None = None,
        *,
        stored_only: bool = False,
        has_vector: NDArray[np.bool_] | None = None,
    ) -> AddResult:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        self.note_versions(item.document.metadata for item in items)
        rows = None if vectors is None else directions(vectors, items, has_vector)
        if not items:
            return AddResult()
        if rows is not None:
            self._fix_embedder(embedder or "", rows.shape[1])

        def vector_of(index: int) -> NDArray[np.float32] | None:
            return None if rows is None or (has_vector is not None and not has_vector[index]) else rows[index]

        total = AddResult()
        for batch in _batches_by_size(items):
            total += self._write([(items[index], vector_of(index)) for index in batch], stored_only=stored_only)
        return total

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Group several writes; they become visible to searches at their end."""
        self._bulk.depth = getattr(self._bulk, "depth", 0) + 1
        try:
            yield
        finally:
            self._bulk.depth -= 1
            if not self._bulk.depth:
                self._refresh()

    def _refresh(self) -> None:
        self._cluster.ask("POST", f"/{self._alias}/_refresh")

    def _write(
        self, pairs: Sequence[tuple[Prepared, NDArray[np.float32] | None]], *, stored_only: bool = False
    ) -> AddResult:
        """Write documents and their vectors, if any, and retry those that others have changed meanwhile."""
        pending = [(item, vector, _digest(item, vector)) for item, vector in pairs]
        total = AddResult()
        for _ in range(_TRIES):
            records = self._records(
                [key_of(item.document.id) for item, _, _ in pending], ["digest", "vector_digest", "order"]
            )
            if stored_only:
                pending = [
                    (item, vector, digest)
                    for item, vector, digest in pending
                    if (record := records.get(key_of(item.document.id))) is not None
                    and record["_source"]["digest"] == digest[0]
                ]
            fresh = []
            for item, vector, digest in pending:
                record = records.get(key_of(item.document.id))
                if record is None or not _has_digest(record["_source"], digest):
                    fresh.append((item, vector, digest))
            total += AddResult(unchanged=len(pending) - len(fresh))
            if not fresh:
                return total
            begin = self._advance()["seq"] << _ORDER_BITS
            lines: list[Mapping[str, Any]] = []
            for number, (item, vector, digest) in enumerate(fresh):
                record = records.get(key_of(item.document.id))
                order = begin + number if record is None else record["_source"]["order"]
                lines += [_action(key_of(item.document.id), record), _body(item, vector, digest, order)]
            conflicts, count_added, count_updated = self._bulk_write(lines, records)
            total += AddResult(count_added, count_updated)
            pending = [entry for entry in fresh if key_of(entry[0].document.id) in conflicts]
            if not pending:
                return total
        raise self._busy()

    def set_metadata(
        self,
        changes: Mapping[str, Metadata],
        vectors: Mapping[str, NDArray[np.float32]] | None = None,
        embedder: str | None = None,
        *,
        replace: bool = False,
    ) -> MetadataResult:
        """See `Store`; each document is written on the condition that it is still the one read, or else read again."""
        vectors = vectors or {}
        self.note_versions(changes.values())
        if vectors:
            self._fix_embedder(embedder or "", len(next(iter(vectors.values()))))
        records = self._editable(changes)
        edits(changes, _documents(changes, records), replace=replace)  # all are checked before the first is written
        results = []
        for batch in batched(changes, _BATCH_DOCUMENTS):
            values = {id_: changes[id_] for id_ in batch}
            results.append(self._edit(values, records, vectors, replace=replace))
        return MetadataResult(
            sum((result.counts for result in results), AddResult()),
            tuple(dict.fromkeys(text for result in results for text in result.texts)),
            tuple(id_ for result in results for id_ in result.remaining),
        )

    def _edit(
        self,
        changes: Mapping[str, Metadata],
        records: Mapping[str, Any],
        vectors: Mapping[str, NDArray[np.float32]],
        *,
        replace: bool,
    ) -> MetadataResult:
        """Change documents whose records have been read, and read them again if others have changed them meanwhile."""
        counts = AddResult()
        missing: dict[str, str] = {}  # by id, the searchable text without a vector
        for _ in range(_TRIES):
            lines: list[Mapping[str, Any]] = []
            for edit in edits(changes, _documents(changes, records), replace=replace):
                record = records[key_of(edit.id)]
                blob = record["_source"].get("stored_vector")
                vector = None if blob is None else unpacked(blob)
                if vector is not None and edit.retitled:
                    if edit.searchable not in vectors:
                        missing[edit.id] = edit.searchable
                        continue
                    [vector] = directions(vectors[edit.searchable][None], [edit.prepared])
                digest = _digest(edit.prepared, vector)
                if record["_source"]["digest"] == digest[0]:
                    counts += AddResult(unchanged=1)
                else:
                    body = _body(edit.prepared, vector, digest, record["_source"]["order"])
                    lines += [_action(key_of(edit.id), record), body]
            conflicts: set[str] = set()
            if lines:
                self._advance()
                conflicts, _, count_updated = self._bulk_write(lines, records)
                counts += AddResult(updated=count_updated)
            if not conflicts:
                return MetadataResult(counts, tuple(missing.values()), tuple(missing))
            changes = {id_: values for id_, values in changes.items() if key_of(id_) in conflicts}
            records = self._editable(changes)
        raise self._busy()

    def _editable(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return the records of documents, by key, with all that is needed to write them again."""
        fields = ["id", "text", "metadata", "digest", "order", "stored_vector"]
        return self._records([key_of(id_) for id_ in ids if storable(id_)], fields)

    def _busy(self) -> ConflictError:
        return ConflictError(f"{self._cluster.label}: other processes keep writing the same documents; try again")

    def _bulk_write(self, lines: Sequence[Mapping[str, Any]], records: Mapping[str, Any]) -> tuple[set[str], int, int]:
        """Send the actions; return the keys that others have changed meanwhile, and the numbers added and updated."""
        refresh = not getattr(self._bulk, "depth", 0)
        answer = self._cluster.ask_many(f"/{self._alias}/_bulk", lines, refresh=refresh, require_alias=True)
        conflicts: set[str] = set()
        count_added = count_updated = 0
        for item in answer["items"]:
            (outcome,) = item.values()
            if outcome["status"] == 409:
                conflicts.add(outcome["_id"])
            elif "error" in outcome:
                raise self._cluster.complaint(outcome["error"], outcome["status"])
            else:
                count_added, count_updated = (
                    count_added + (outcome["_id"] not in records),
                    count_updated + (outcome["_id"] in records),
                )
        if count_added or count_updated:
            self._advance()  # again, once visible to searches: anything computed meanwhile then has an older number
            self._forget()
        return conflicts, count_added, count_updated

    def _advance(self) -> dict[str, Any]:
        """Increment the sequence number; return the dataset's record."""
        script = {"lang": "painless", "source": "ctx._source.seq += 1"}
        return self._update({"script": script})

    def _update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._cluster.ask(
            "POST",
            f"/{self._catalogue}/_update/{self._record}",
            {**body, "_source": True},
            accepted=(404,),
            retry_on_conflict=_TRIES,
        )
        if answer is None:
            raise self._cluster.gone()
        record: dict[str, Any] = answer["get"]["_source"]
        return record

    def _fix_embedder(self, name: str, dimensions: int) -> None:
        """Set the dataset's embedder with its first vectors.

        Raises:
            InputError: the dataset has vectors of another embedder.
        """
        record = self._record_fields()
        if record.get("dimensions") is None:
            first = (
                "if (ctx._source.dimensions == null) "
                "{ctx._source.embedder = params.embedder; ctx._source.dimensions = params.dimensions}"
            )
            parameters = {"embedder": name, "dimensions": dimensions}
            record = self._update({"script": {"lang": "painless", "source": first, "params": parameters}})
        if record["embedder"] != name:
            raise mixed_embedders("this dataset", record["embedder"], name)
        if record["dimensions"] != dimensions:
            raise InputError(
                f"this dataset holds vectors of {record['dimensions']} dimensions, not of {dimensions}; "
                "open it with the embedder that made them, or index the documents into a new dataset"
            )
        if self._dimensions is None:
            self._cluster.add_field(self._alias, "vector", vector_field(dimensions))
            self._embedder, self._dimensions = name, dimensions

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        records = self._records([key_of(item.document.id) for item in items], ["digest", "vector_digest"])
        return [
            (record := records.get(key_of(item.document.id))) is not None
            and record["_source"]["digest"] == item.digest.hex()
            and (NEAR not in self._scales or record["_source"].get("vector_digest") is not None)
            for item in items
        ]

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        body = {"size": min(limit, MOST), "_source": _SHOWN_FIELDS, "sort": [{"order": "asc"}], "query": _BARE}
        return [_document(hit["_source"]) for hit in self._search_index(body)["hits"]["hits"]]

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """See `Store`."""
        if ids is None and filters is None:
            return 0
        number = 0
        if ids is None:
            number = self._delete_matching([clause(filters)] if filters is not None else [])
        else:
            keys = [key_of(id_) for id_ in dict.fromkeys(ids) if storable(id_)]
            for batch in batched(keys, _BATCH_DOCUMENTS):
                if filters is not None:
                    number += self._delete_matching([clause(filters), {"ids": {"values": list(batch)}}])
                else:
                    number += self._delete_keys(batch)
        if number:
            self._advance()
            self._forget()
        return number

    def _delete_keys(self, keys: Sequence[str]) -> int:
        lines = [{"delete": {"_id": key}} for key in keys]
        answer = self._cluster.ask_many(f"/{self._alias}/_bulk", lines, refresh=True, require_alias=True)
        for item in answer["items"]:
            if "error" in item["delete"]:
                raise self._cluster.complaint(item["delete"]["error"], item["delete"]["status"])
        return len([item for item in answer["items"] if item["delete"]["result"] == "deleted"])

    def _delete_matching(self, filters: Sequence[Mapping[str, Any]]) -> int:
        """Delete matching documents, repeating those that others have changed meanwhile."""
        number: int = 0
        body = {"query": {"bool": {"filter": list(filters)}}}
        for _ in range(_TRIES):
            answer = self._cluster.ask(
                "POST", f"/{self._alias}/_delete_by_query", body, refresh=True, conflicts="proceed", request_timeout=600
            )
            if answer["failures"]:
                raise StoreError(f"{self._cluster.label}: {answer['failures'][0]!s:.300}")
            number += int(answer["deleted"])
            if not answer["version_conflicts"]:
                return number
        raise self._busy()

    def rebuild(self) -> None:
        """Recompute words and facts from the documents; nothing is embedded again."""
        self._cluster.add_field(self._alias, "length", LENGTH)
        for batch in batched(self._all_hits(None, True), _BATCH_DOCUMENTS):
            items = [prepare(_document(hit["_source"])) for hit in batch]
            lines: list[Mapping[str, Any]] = []
            for hit, item in zip(batch, items, strict=True):
                blob = hit["_source"].get("stored_vector")
                vector = None if blob is None else unpacked(blob)
                lines += [{"index": {"_id": hit["_id"]}}, _body(item, vector, _digest(item, vector), hit["sort"][0])]
            self._bulk_write(lines, {hit["_id"]: hit for hit in batch})
        self._update({"doc": {"analyzer": DERIVED}})
        self._forget()

    def compact(self) -> None:
        """Merge segments to remove deleted documents, so that frequencies count only existing ones; takes a while."""
        self._cluster.ask("POST", f"/{self._alias}/_flush", force=True, wait_if_ongoing=True, request_timeout=600)
        self._cluster.ask("POST", f"/{self._alias}/_forcemerge", max_num_segments=1, request_timeout=3600)
        self._refresh()

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
        tokens = [list(query_terms(word)) for word in words]
        terms = sorted({token for word_tokens in tokens for token in word_tokens})
        searches = [{"size": 0, "track_total_hits": True, "query": {"term": {"tokens": token}}} for token in terms]
        totals: list[int] = [answer["hits"]["total"]["value"] for answer in self._search_each(searches)]
        frequencies = dict(zip(terms, totals, strict=True))
        return [min((frequencies[token] for token in word_tokens), default=0) for word_tokens in tokens]

    def statistics(self) -> Statistics:
        """See `Store`; statistics are reused for a second."""
        cached = self._statistics
        if cached is not None and time.monotonic() - cached[0] < _FRESH_SECONDS:
            return cached[1]
        time_now, record = time.monotonic(), self._record_fields()
        self._embedder, self._dimensions = record.get("embedder"), record.get("dimensions")
        notes, due = dict(record["notes"]), 0
        if WORDS_FIRST in notes:
            answer = self._search_index({"size": 0, "track_total_hits": True, "query": _BARE})
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

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        self._update({"doc": {"notes": notes}})
        self._statistics = None

    # ── lifecycle ────────────────────────────────────────────────────────────────────────────────────────────────

    def drop(self) -> None:
        """See `Store`."""
        self._cluster.ask("DELETE", f"/{self._catalogue}/_doc/{self._record}", accepted=(404,), refresh=True)
        indexes = self._cluster.ask("GET", f"/_alias/{self._alias}", accepted=(404,)) or {}
        for index in indexes:
            self._cluster.ask("DELETE", f"/{index}", accepted=(404,))
        self._statistics = None

    def close(self) -> None:
        """See `Store`; the connections belong to the backend, which closes them."""


def _documents(ids: Iterable[str], records: Mapping[str, Any]) -> list[Document | None]:
    """Return the documents of these ids among records by key, None for those that are not there."""
    keys = [key_of(id_) if storable(id_) else "" for id_ in ids]
    return [_document(records[key]["_source"]) if key in records else None for key in keys]


def _document(source: Mapping[str, Any]) -> Document:
    """Return the document in a record.

    Raises:
        CorruptStoreError: someone has changed the record to what is none.
    """
    try:
        return Document(source["id"], source["text"], metadata_of(source["metadata"]))
    except (*UNREADABLE, KeyError) as error:
        raise unreadable(source.get("id"), error) from error


def _digest(item: Prepared, vector: NDArray[np.float32] | None) -> tuple[str, str | None]:
    """Return the digests that identify a document and its vector."""
    if vector is None:
        return item.digest.hex(), None
    return item.digest.hex(), hashlib.blake2b(vector.astype("<f4").tobytes(), digest_size=8).hexdigest()


def _has_digest(source: Mapping[str, Any], digest: tuple[str, str | None]) -> bool:
    """Whether the stored document equals this one; the vector is compared only if one is given."""
    return source["digest"] == digest[0] and (digest[1] is None or source.get("vector_digest") == digest[1])


def _action(key: str, record: Any) -> dict[str, Any]:
    """Return the action that writes under this key, on the condition that the record is unchanged since it was read."""
    if record is None:
        return {"create": {"_id": key}}
    return {"index": {"_id": key, "if_seq_no": record["_seq_no"], "if_primary_term": record["_primary_term"]}}


def _body(
    item: Prepared, vector: NDArray[np.float32] | None, digest: tuple[str, str | None], order: int
) -> dict[str, Any]:
    """Return the whole document: partial updates are impossible, as derived fields are not stored."""
    document = item.document
    tokens = DEFAULT_ANALYZER.tokens(document.searchable)
    body: dict[str, Any] = {
        "id": document.id,
        "text": document.text,
        "metadata": item.metadata,
        "digest": digest[0],
        "order": order,
        "tokens": " ".join(tokens),
        "length": len(tokens),
        "facts": facts_of(document),
        "embedded": vector is not None,
    }
    if vector is not None:
        body |= {"vector": vector.tolist(), "stored_vector": packed(vector), "vector_digest": digest[1]}
    return body


def _batches_by_size(items: Sequence[Prepared]) -> Iterator[list[int]]:
    """Yield the indices of documents to send in one request."""
    batch: list[int] = []
    size = 0
    for index, item in enumerate(items):
        weight = 12 * len(item.document.text) + 12 * len(item.metadata) + 10_000
        if batch and (len(batch) >= _BATCH_DOCUMENTS or size + weight > _TOGETHER_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += weight
    if batch:
        yield batch
