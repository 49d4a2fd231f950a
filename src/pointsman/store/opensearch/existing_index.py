"""An existing index, searched unchanged and never written to.

Types, dimensions and the distance of the vectors are read from its mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pointsman.store.external.attachment import (
    TEXT,
    AttachedStore,
    CollectionFacts,
    as_written,
    lists_of,
    unit_rows,
    unknown_keys,
)
from pointsman.store.opensearch.opensearch_client import Cluster, ClusterAddress
from pointsman.store.opensearch.opensearch_queries import NOTHING, combined, near
from pointsman.store.prepared_documents import position
from pointsman.store.store_values import NEAR, Capability, Lists, Page, StoreQuery
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.filters import Exists, Filter, PartOfText, Range
from pointsman.values.types import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.external.attachment import Attachment
    from pointsman.store.opensearch.opensearch_queries import Condition
    from pointsman.values.filters import Typed

_NUMBERS: Final = frozenset(
    {"long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long"}
)
_KINDS: Final = {**dict.fromkeys(_NUMBERS, "number"), "boolean": "boolean", "keyword": "string", "date": "string"}


@dataclass(frozen=True, slots=True)
class _Fields:
    """What the mapping defines.

    Attributes:
        index: the name or alias.
        exact: for each key of the metadata, the field with its unanalysed values, and their kind.
        facts: for `AttachedStore.info`.
    """

    index: str
    exact: Mapping[str, tuple[str, str]]
    facts: CollectionFacts


class IndexStore(AttachedStore):
    """An index as a read-only store.

    Args:
        attachment: the location of the index, and the roles of its fields.

    Raises:
        InputError: the URL is invalid.
    """

    kind = "opensearch index"

    def __init__(self, attachment: Attachment) -> None:
        address = ClusterAddress(attachment.url)
        name = attachment.table
        if (
            not name
            or name.startswith(("_", "-", "+"))
            or any(character in name for character in '\\/*?"<>| ,#:%')
            or name == ".."
        ):
            raise InputError(f"an index name has no spaces, wildcards or slashes, not {name!r:.80}")
        super().__init__(attachment)
        self._cluster = Cluster(address.client(), address.label, address.user[1] if address.user else "")

    @property
    def _facts(self) -> CollectionFacts:
        return self._fields.facts

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; one request for all queries."""
        lines: list[Mapping[str, Any]] = []
        for store_query in store_queries:
            for query in self._queries(store_query).values():
                body = {"query": query, "size": store_query.depth, "_source": self._source}
                lines += [{"search_type": "dfs_query_then_fetch"}, body]
        if not lines:
            return [Lists({}) for _ in store_queries]
        answers = iter(self._cluster.search_many(f"/{self._fields.index}", lines))
        return [
            self._lists(store_query, {name: next(answers) for name in self._queries(store_query)})
            for store_query in store_queries
        ]

    def _documents_with(self, ids: Sequence[str]) -> list[Document]:
        return list(map(self._document, self._hits(self._with_ids(ids), size=max(1, len(ids)))))

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`; OpenSearch returns at most 10,000 documents in this way."""
        begin, query = position(after), self._filter(filters)
        hits = self._hits(query, size=limit, **{"from": begin, "sort": [{self.attachment.id: "asc"}]})
        return Page(list(map(self._document, hits)), str(begin + limit) if len(hits) == limit else None)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        body = {"query": self._filter(filters)}
        return int(self._cluster.ask("POST", f"/{self._fields.index}/_count", body)["count"])

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`; scaled to length 1."""
        name = self.attachment.vector
        if name is None or not self._fields.facts.readable:
            raise self._cannot(Capability.VECTORS)
        condition = self._filter(None) if keys is None else self._with_ids(keys)
        query = {"bool": {"filter": [{"exists": {"field": name}}, condition]}}
        size = sample or (len(keys) if keys is not None else 10_000)
        spread = {"function_score": {"query": query, "random_score": {"seed": 1, "field": "_seq_no"}}}
        hits = self._hits(spread if sample else query, size=max(1, size), _source=[name, self.attachment.id])
        vectors = {self._id(hit): _value_at(hit["_source"], name) for hit in hits}
        return unit_rows(vectors, keys, self._fields.facts.dimensions)

    def close(self) -> None:
        """See `Store`."""
        self._cluster.close()

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _source(self) -> list[str]:
        return [name for name in (self.attachment.text, *self.attachment.metadata, self.attachment.id) if name != "_id"]

    def _queries(self, store_query: StoreQuery) -> dict[str, dict[str, Any]]:
        """Return the query for each list."""
        filters = (
            [] if store_query.filters is None and self.attachment.id == "_id" else [self._filter(store_query.filters)]
        )
        queries: dict[str, dict[str, Any]] = {}
        if store_query.text is not None:
            match = {"match": {self.attachment.text: {"query": store_query.text}}}
            queries[TEXT] = {"bool": {"must": [match], "filter": filters}}
        if store_query.vector is not None and self.attachment.vector is not None:
            queries[NEAR] = near(store_query.vector.tolist(), store_query.depth, filters, self.attachment.vector)
        return queries

    def _lists(self, store_query: StoreQuery, answers: Mapping[str, Any]) -> Lists:
        notes = list(unknown_keys(store_query.filters, self._fields.exact))
        # A shard without any live copy counts in `total`, but neither in `successful` nor in `failed`.
        silent_counts = [answer["_shards"]["total"] - answer["_shards"]["successful"] for answer in answers.values()]
        notes += [f"{count} shards did not answer" for count in silent_counts if count]
        rows_of_lists = {
            name: [(self._id(hit), hit["_score"], self._document(hit)) for hit in answer["hits"]["hits"]]
            for name, answer in answers.items()
        }
        return lists_of(rows_of_lists, store_query.depth, self._with_place(notes))

    def _hits(self, query: Mapping[str, Any], *, size: int, **more: Any) -> list[Any]:
        body = {"query": query, "size": size, "_source": self._source, **more}
        answer = self._cluster.ask("POST", f"/{self._fields.index}/_search", body)
        return list(answer["hits"]["hits"])

    def _with_ids(self, ids: Sequence[str]) -> dict[str, Any]:
        if self.attachment.id == "_id":
            return {"ids": {"values": list(ids)}}
        return {"terms": {self.attachment.id: [id_ for id_ in ids if id_]}}

    def _id(self, hit: Mapping[str, Any]) -> str:
        return str(hit["_id"] if self.attachment.id == "_id" else _values_of(hit["_source"], self.attachment.id)[0])

    def _document(self, hit: Mapping[str, Any]) -> Document:
        source = hit["_source"]
        metadata = {name: value for name in self.attachment.metadata if (value := _value_at(source, name)) is not None}
        return Document(self._id(hit), "\n".join(map(str, _values_of(source, self.attachment.text))), metadata)

    def _filter(self, filters: Filter | None) -> dict[str, Any]:
        """Return a filter as a query; an unknown key matches nothing, and `search` reports it."""
        condition = {"match_all": {}} if filters is None else combined(filters, self._of_field)
        if self.attachment.id == "_id":
            return condition
        return {
            "bool": {"filter": [condition, {"range": {self.attachment.id: {"gt": ""}}}]}
        }  # without an id: no document

    def _of_field(self, condition: Condition) -> dict[str, Any]:
        match condition:
            case PartOfText():
                raise UnmetNeedError(f"{self.attachment.place}: attached indexes do not support substring filters")
            case Range():
                return self._range_clause(condition)
            case Exists(key):
                return {"exists": {"field": self._fields.exact[key][0]}} if key in self._fields.exact else NOTHING
            case _:
                return self._any_of(condition.key, as_written(condition))

    def _any_of(self, key: str, values: Sequence[Typed]) -> dict[str, Any]:
        name, kind = self._fields.exact.get(key, ("", ""))
        able = [value for value_kind, value in values if value_kind == kind]
        return {"terms": {name: able}} if able else NOTHING

    def _range_clause(self, condition: Range) -> dict[str, Any]:
        name, kind = self._fields.exact.get(condition.key, ("", ""))
        interval = condition.interval
        if interval.kind != kind:
            return NOTHING
        bounds = {}
        if interval.low is not None:
            bounds["gte" if interval.low_included else "gt"] = interval.low
        if interval.high is not None:
            bounds["lte" if interval.high_included else "lt"] = interval.high
        return {"range": {name: bounds}}

    @cached_property
    def _fields(self) -> _Fields:
        """Return what the cluster reports about the index.

        Raises:
            InputError: there is no such index or field, or it is of a type that cannot be used.
        """
        attachment, label = self.attachment, self._cluster.label
        answer = self._cluster.ask("GET", f"/{attachment.table}/_mapping", accepted=(404,))
        if answer is None:
            raise InputError(f"{label} has no index {attachment.table!r}")
        types = _types(next(iter(answer.values()))["mappings"].get("properties", {}))
        self._check_names((attachment.text, attachment.vector, *attachment.metadata), types, "field")
        if attachment.id != "_id" and types.get(attachment.id, {}).get("type") != "keyword":
            raise InputError(f"the id of index {attachment.table!r} is '_id' or a keyword field, not {attachment.id!r}")
        exact = {
            name: exact_field for name in attachment.metadata if (exact_field := _exact(name, types[name])) is not None
        }
        fingerprint = (
            f"{label} {attachment.table} {sorted(answer)} {attachment.id} {attachment.text} {attachment.vector}"
        )
        if attachment.vector is None:
            return _Fields(attachment.table, exact, CollectionFacts(fingerprint, None, readable=False))
        field_type = types[attachment.vector]
        if field_type.get("type") != "knn_vector" or "dimension" not in field_type:
            raise InputError(f"field {attachment.vector!r} of {attachment.table!r} is not a knn_vector")
        probe = {"query": {"exists": {"field": attachment.vector}}, "size": 1, "_source": [attachment.vector]}
        hits = self._cluster.ask("POST", f"/{attachment.table}/_search", probe)["hits"]["hits"]
        readable = bool(hits) and _value_at(hits[0].get("_source") or {}, attachment.vector) is not None
        return _Fields(attachment.table, exact, CollectionFacts(fingerprint, int(field_type["dimension"]), readable))


def _types(properties: Mapping[str, Any], prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Return fields by their dotted names."""
    types: dict[str, Mapping[str, Any]] = {}
    for name, field_type in properties.items():
        types[prefix + name] = field_type
        types |= _types(field_type.get("properties", {}), f"{prefix}{name}.")
    return types


def _exact(name: str, mapping: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the field with unanalysed values, and their kind: for a text, its keyword field."""
    if mapping.get("type") in _KINDS:
        return name, _KINDS[mapping["type"]]
    for subfield_name, subfield in mapping.get("fields", {}).items():
        if subfield.get("type") == "keyword":
            return f"{name}.{subfield_name}", "string"
    return None


def _values_of(source: Mapping[str, Any], name: str) -> list[Any]:
    """Return the values of a field, which may have several."""
    value = _value_at(source, name)
    return [element for element in (value if isinstance(value, list) else [value]) if element is not None]


def _value_at(source: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, whose name may contain dots, in a document."""
    if name in source:
        return source[name]
    head, _, remainder = name.partition(".")
    inner = source.get(head)
    return _value_at(inner, remainder) if remainder and isinstance(inner, Mapping) else None
