"""One dataset in OpenSearch."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.store.opensearch import opensearch_queries as queries
from pointsman.store.prepared_documents import (
    Batch,
    MetadataChange,
    Prepared,
    check_embedder,
    directions,
    prepare,
    storable,
)
from pointsman.store.store_values import NEAR, MetadataResult
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.batching import batched
from pointsman.tools.errors import ConflictError, StoreError
from pointsman.values.types import AddResult, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.filters import Filter

from pointsman.store.opensearch.opensearch_reader import (
    BARE,
    BATCH_DOCUMENTS,
    SHOWN_FIELDS,
    OpenSearchReader,
    document_from,
    documents_from,
)

_TOGETHER_BYTES: Final = 8_000_000
_TRIES: Final = 20  # attempts of a write when others change the same documents
_ORDER_BITS: Final = 20  # bits for the number of a document within a write


class OpenSearchStore(OpenSearchReader):
    """A dataset in OpenSearch; keys are its ``_id``. `OpenSearchBackend` opens it.

    A search is one request for all lists, and one for the scores of documents that only the other list contains. Words
    are scored by BM25 with the statistics of all shards and exact lengths; until segments are merged, frequencies
    include deleted documents (`compact` merges). When a write returns, it is durable on every copy in use,
    and visible to searches.
    """

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, batch: Batch) -> AddResult:
        self.note_versions(item.document.metadata for item in batch.items)
        batch = batch.directed()
        if not batch.items:
            return AddResult()
        if batch.vectors is not None:
            self._fix_embedder(batch.embedder, batch.vectors.shape[1])
        total, rows = AddResult(), batch.rows()
        for indices in _batches_by_size(batch.items):
            pairs = [(batch.items[index], rows[index]) for index in indices]
            total += self._upsert(pairs, stored_only=batch.stored_only, skip_identical=batch.skip_identical)
        return total

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Group several writes; they become visible to searches at their end, or every half a minute."""
        self._bulk.depth += 1
        try:
            yield
        finally:
            self._bulk.depth -= 1
            if not self._bulk.depth and self._bulk.has_written:
                self._bulk.has_written = False
                self._refresh()
                self._note_change()

    def _refresh(self) -> None:
        self._cluster.ask("POST", f"/{self._alias}/_refresh")

    def _upsert(
        self, pairs: Sequence[tuple[Prepared, NDArray[np.float32] | None]], *, stored_only: bool, skip_identical: bool
    ) -> AddResult:
        """Write documents and their vectors, if any, and retry those that others have changed meanwhile."""
        pending = {queries.key_of(item.document.id): (item, vector, _digest(item, vector)) for item, vector in pairs}
        total = AddResult()
        for _ in range(_TRIES):
            records = self._records(list(pending), ["digest", "vector_digest", "order"])
            stored = {key: record["_source"] for key, record in records.items()}
            if stored_only:
                pending = {
                    key: entry
                    for key, entry in pending.items()
                    if key in stored and stored[key]["digest"] == entry[2][0]
                }
            fresh = {
                key: entry
                for key, entry in pending.items()
                if key not in stored or not (skip_identical and _has_digest(stored[key], entry[2]))
            }
            total += AddResult(unchanged=len(pending) - len(fresh))
            if not fresh:
                return total
            begin = self._advance()["seq"] << _ORDER_BITS
            lines: list[Mapping[str, Any]] = []
            for number, (key, (item, vector, digest)) in enumerate(fresh.items()):
                order = stored[key]["order"] if key in stored else begin + number
                lines += [_action(key, records.get(key)), _body(item, vector, digest, order, self._kind)]
            conflicts, count_added, count_updated = self._bulk_write(lines, records)
            total += AddResult(count_added, count_updated)
            pending = {key: entry for key, entry in fresh.items() if key in conflicts}
            if not pending:
                return total
        raise self._busy()

    def _change_metadata(self, change: MetadataChange) -> MetadataResult:
        self.note_versions(change.values.values())
        if change.vectors:
            self._fix_embedder(change.embedder, len(next(iter(change.vectors.values()))))
        records = self._editable(change.values)
        change.edits(documents_from(change.values, records))  # all are checked before the first is written
        results = [
            self._edit(replace(change, values={id_: change.values[id_] for id_ in ids}), records)
            for ids in batched(change.values, BATCH_DOCUMENTS)
        ]
        return MetadataResult(
            sum((result.counts for result in results), AddResult()),
            tuple(dict.fromkeys(text for result in results for text in result.texts)),
            tuple(id_ for result in results for id_ in result.remaining),
        )

    def _edit(self, change: MetadataChange, records: Mapping[str, Any]) -> MetadataResult:
        """Change documents whose records have been read, and read them again if others have changed them meanwhile."""
        counts = AddResult()
        missing: dict[str, str] = {}  # by id, the searchable text without a vector
        for _ in range(_TRIES):
            lines: list[Mapping[str, Any]] = []
            for edit in change.edits(documents_from(change.values, records)):
                record = records[queries.key_of(edit.id)]
                blob = record["_source"].get("stored_vector")
                vector = None if blob is None else queries.unpacked(blob)
                if vector is not None and edit.retitled:
                    if edit.searchable not in change.vectors:
                        missing[edit.id] = edit.searchable
                        continue
                    [vector] = directions(change.vectors[edit.searchable][None], [edit.prepared])
                digest = _digest(edit.prepared, vector)
                if record["_source"]["digest"] == digest[0]:
                    counts += AddResult(unchanged=1)
                else:
                    body = _body(edit.prepared, vector, digest, record["_source"]["order"], self._kind)
                    lines += [_action(queries.key_of(edit.id), record), body]
            conflicts: set[str] = set()
            if lines:
                self._advance()
                conflicts, _, count_updated = self._bulk_write(lines, records)
                counts += AddResult(updated=count_updated)
            if not conflicts:
                return MetadataResult(counts, tuple(missing.values()), tuple(missing))
            values = {id_: values for id_, values in change.values.items() if queries.key_of(id_) in conflicts}
            change, records = replace(change, values=values), self._editable(values)
        raise self._busy()

    def _editable(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return the records of documents, by key, with all that is needed to write them again."""
        fields = ["id", "text", "metadata", "digest", "order", "stored_vector"]
        return self._records([queries.key_of(id_) for id_ in ids if storable(id_)], fields)

    def _busy(self) -> ConflictError:
        return ConflictError(f"{self._cluster.label}: other processes keep writing the same documents; try again")

    def _bulk_write(self, lines: Sequence[Mapping[str, Any]], records: Mapping[str, Any]) -> tuple[set[str], int, int]:
        """Send the actions; return the keys that others have changed meanwhile, and the numbers added and updated."""
        refresh = not self._bulk.depth
        answer = self._cluster.ask_many(f"/{self._alias}/_bulk", lines, refresh=refresh, require_alias=True)
        conflicts: set[str] = set()
        count_added = count_updated = 0
        for item in answer["items"]:
            (outcome,) = item.values()
            if outcome["status"] == 409:
                conflicts.add(outcome["_id"])
            elif "error" in outcome:
                raise self._cluster.complaint(outcome["error"], outcome["status"])
            elif outcome["_id"] in records:
                count_updated += 1
            else:
                count_added += 1
        if count_added or count_updated:
            self._bulk.has_written = True
            self._note_change()
        return conflicts, count_added, count_updated

    def _note_change(self) -> None:
        """Increment the sequence number once a write is visible: what was computed meanwhile then has an older one."""
        self._advance()
        self._forget()

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
        check_embedder("this dataset", (record["embedder"], record["dimensions"]), name, dimensions)
        if self._dimensions is None:
            self._cluster.add_field(self._alias, "vector", queries.vector_field(dimensions, self._kind))
            self._embedder, self._dimensions = name, dimensions

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        records = self._records([queries.key_of(item.document.id) for item in items], ["digest", "vector_digest"])
        return [
            (record := records.get(queries.key_of(item.document.id))) is not None
            and record["_source"]["digest"] == item.digest.hex()
            and (NEAR not in self._scales or record["_source"].get("vector_digest") is not None)
            for item in items
        ]

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        body = {"size": min(limit, queries.MOST), "_source": SHOWN_FIELDS, "sort": [{"order": "asc"}], "query": BARE}
        return [document_from(hit["_source"]) for hit in self._search_index(body)["hits"]["hits"]]

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """See `Store`."""
        if ids is None and filters is None:
            return 0
        number = 0
        if ids is None:
            number = self._delete_matching([queries.clause(filters)] if filters is not None else [])
        else:
            keys = [queries.key_of(id_) for id_ in dict.fromkeys(ids) if storable(id_)]
            for batch in batched(keys, BATCH_DOCUMENTS):
                if filters is not None:
                    number += self._delete_matching([queries.clause(filters), {"ids": {"values": list(batch)}}])
                else:
                    number += self._delete_keys(batch)
        if number:
            self._note_change()
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
        number = 0
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
        self._cluster.add_field(self._alias, "length", queries.LENGTH)
        with self.writer():
            for batch in batched(self._all_hits(None, True), BATCH_DOCUMENTS):
                items = [prepare(document_from(hit["_source"])) for hit in batch]
                lines: list[Mapping[str, Any]] = []
                for hit, item in zip(batch, items, strict=True):
                    blob = hit["_source"].get("stored_vector")
                    vector = None if blob is None else queries.unpacked(blob)
                    body = _body(item, vector, _digest(item, vector), hit["sort"][0], self._kind)
                    lines += [{"index": {"_id": hit["_id"]}}, body]
                self._bulk_write(lines, {hit["_id"]: hit for hit in batch})
        self._update({"doc": {"analyzer": queries.DERIVED}})
        self._forget()

    def compact(self) -> None:
        """Merge segments to remove deleted documents, so that frequencies count only existing ones; takes a while."""
        self._cluster.ask("POST", f"/{self._alias}/_flush", force=True, wait_if_ongoing=True, request_timeout=600)
        self._cluster.ask("POST", f"/{self._alias}/_forcemerge", max_num_segments=1, request_timeout=3600)
        self._refresh()

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
    item: Prepared, vector: NDArray[np.float32] | None, digest: tuple[str, str | None], order: int, kind: str
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
        "facts": queries.facts_of(document),
        "embedded": vector is not None,
    }
    if vector is not None:
        body |= {
            "vector": queries.coordinates(vector, kind),
            "stored_vector": queries.packed(vector),
            "vector_digest": digest[1],
        }
    return body


def _batches_by_size(items: Sequence[Prepared]) -> Iterator[list[int]]:
    """Yield the indices of documents to send in one request."""
    batch: list[int] = []
    size = 0
    for index, item in enumerate(items):
        weight = 12 * len(item.document.text) + 12 * len(item.metadata) + 10_000
        if batch and (len(batch) >= BATCH_DOCUMENTS or size + weight > _TOGETHER_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += weight
    if batch:
        yield batch
