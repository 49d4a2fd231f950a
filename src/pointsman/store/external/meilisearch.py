"""A Meilisearch index, searched unchanged and never written to. Experimental.

It follows the documented HTTP API of Meilisearch 1.16 and has never been run against a server. Meilisearch ranks by
its own buckets, so its lists are fused by rank. Its filters ignore case and treat ``"1"`` as 1: the server gets a
filter that certainly lets all matching documents through, and the results are filtered again here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.store.external.attachment import (
    TEXT,
    AttachedStore,
    CollectionFacts,
    Row,
    as_written,
    lists_of,
    matching,
    narrowed,
    page_of,
    unit_rows,
    unknown_keys,
)
from pointsman.store.external.database_http import HostAddress, Server
from pointsman.store.prepared_documents import storable
from pointsman.store.store_values import NEAR, Capability, Lists, Page, StoreQuery
from pointsman.text import repair
from pointsman.tools.errors import InputError
from pointsman.values.filters import Equals, Exists, Filter, In, Range
from pointsman.values.types import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.external.attachment import Attachment
    from pointsman.values.filters import Typed

_PORT: Final = 7700
_EXACT: Final = 2.0**53
_LONGEST: Final = 100
"""Maximum characters of a value in a filter; Meilisearch cuts long values."""


@dataclass(frozen=True, slots=True)
class _IndexFacts:
    """What the server reports about the index.

    Attributes:
        filterable: the fields available to filters.
        dimensions: of the embedder's vectors; None if not reported.
        most: maximum number of results.
    """

    filterable: frozenset[str]
    dimensions: int | None
    most: int


class MeilisearchStore(AttachedStore):
    """An index as a read-only store; keys are ids.

    Args:
        attachment: the URL is ``meilisearch+https://:key@host:7700``, or ``meilisearch://`` without TLS; ``table`` is
            the index, ``id`` the primary key, ``vector`` the name of an embedder of the index.

    Raises:
        InputError: the URL is invalid.
    """

    kind = "meilisearch index"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        if not attachment.table or not storable(attachment.table):
            raise InputError(f"an index of Meilisearch is named by a text, not {attachment.table!r:.80}")
        address = HostAddress(attachment.url, _PORT)
        self._server = Server(address, {"Authorization": f"Bearer {address.key}"} if address.key else {})
        self._path = f"/indexes/{quote(attachment.table, safe='')}"

    @property
    def _facts(self) -> CollectionFacts:
        attachment = self.attachment
        fingerprint = f"{self._server.label} {attachment.table} {attachment.id} {attachment.text} {attachment.vector}"
        return CollectionFacts(fingerprint, self._index.dimensions, readable=attachment.vector is not None)

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; one request for both lists of a query, unless its filter needs another one."""
        return [self._search(query) for query in store_queries]

    def _search(self, store_query: StoreQuery) -> Lists:
        queries = self._queries(store_query)
        if not queries:
            return Lists({})

        def ask(size: int) -> list[list[Row]]:
            body = {"queries": [{**query, "limit": size} for query in queries.values()]}
            results = self._server.ask("POST", "/multi-search", body)["results"]
            return [
                [
                    (str(hit[self.attachment.id]), float(hit["_rankingScore"]), self._document(hit))
                    for hit in result["hits"]
                ]
                for result in results
            ]

        lists, notes = matching(store_query.filters, store_query.depth, self._index.most, ask)
        notes += unknown_keys(store_query.filters, self.attachment.metadata)
        return lists_of(dict(zip(queries, lists, strict=True)), store_query.depth, self._with_place(notes))

    def _documents_with(self, ids: Sequence[str]) -> list[Document]:
        able = [id_ for id_ in ids if storable(id_)]
        return list(map(self._document, self._fetch(ids=able, limit=len(able)))) if able else []

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        fetch = self._fetch
        return page_of(
            lambda offset, size: list(map(self._document, fetch(offset=offset, limit=size))), after, limit, filters
        )

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is not None:
            return super().count(filters)
        return int(self._server.ask("GET", f"{self._path}/stats")["numberOfDocuments"])

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`; scaled to length 1. A sample consists of the first documents."""
        name = self.attachment.vector
        if name is None:
            raise self._cannot(Capability.VECTORS)
        query = {"limit": sample or self.count()} if keys is None else {"ids": list(keys), "limit": len(keys)}
        hits = self._fetch(retrieveVectors=True, **query) if query["limit"] else []
        vectors = {str(hit[self.attachment.id]): row for hit in hits if (row := _vector(hit, name)) is not None}
        return unit_rows(vectors, keys, self._index.dimensions)

    def close(self) -> None:
        """See `Store`."""
        self._server.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _fields(self) -> list[str]:
        return list(dict.fromkeys((self.attachment.id, self.attachment.text, *self.attachment.metadata)))

    def _queries(self, store_query: StoreQuery) -> dict[str, dict[str, Any]]:
        """Return the query for each list."""
        common: dict[str, Any] = {
            "indexUid": self.attachment.table,
            "attributesToRetrieve": self._fields,
            "showRankingScore": True,
        }
        filters = narrowed(
            store_query.filters, self._condition, lambda word, operands: f"({f' {word.upper()} '.join(operands)})"
        )
        if filters is not None:
            common["filter"] = filters
        queries: dict[str, dict[str, Any]] = {}
        if store_query.text is not None:
            queries[TEXT] = {**common, "q": repair(store_query.text)}
        if store_query.vector is not None and self.attachment.vector is not None:
            hybrid = {"embedder": self.attachment.vector, "semanticRatio": 1.0}
            queries[NEAR] = {**common, "vector": store_query.vector.tolist(), "hybrid": hybrid}
        return queries

    def _condition(self, leaf: Filter) -> str | None:
        """Return the condition for a part on one key; values with a quote or a backslash are compared here."""
        key = getattr(leaf, "key", "")
        if key not in self._index.filterable or not _simple(key):
            return None
        match leaf:
            case Exists():
                return f'"{key}" EXISTS'
            case Equals() | In():
                values = [_literal(value) for value in as_written(leaf)]
                able = sorted(value for value in values if value is not None)
                return f'"{key}" IN [{", ".join(able)}]' if able and len(able) == len(values) else None
            case Range(interval=interval) if interval.kind == "number":
                bounds = [(">=", interval.low), ("<=", interval.high)]
                able = [
                    f'"{key}" {sign} {bound!r}' for sign, bound in bounds if bound is not None and abs(bound) < _EXACT
                ]
                return f"({' AND '.join(able)})" if able else None
            case _:
                return None

    def _fetch(self, **query: Any) -> list[Any]:
        fields = {} if "retrieveVectors" in query else {"fields": self._fields}
        return list(self._server.ask("POST", f"{self._path}/documents/fetch", {**fields, **query})["results"])

    def _document(self, value: Mapping[str, Any]) -> Document:
        metadata = {name: value[name] for name in self.attachment.metadata if value.get(name) is not None}
        return Document(str(value[self.attachment.id]), str(value.get(self.attachment.text) or ""), metadata)

    @cached_property
    def _index(self) -> _IndexFacts:
        """Return what the server reports about the index.

        Raises:
            InputError: there is no such index, field or embedder.
        """
        attachment, label = self.attachment, self._server.label
        description = self._server.ask("GET", self._path, accepted=(404,))
        if description is None:
            raise InputError(f"{label} has no index {attachment.table!r:.80}")
        if description.get("primaryKey") not in {None, attachment.id}:
            raise InputError(
                f"the id of index {attachment.table!r} is {description['primaryKey']!r}, not {attachment.id!r:.80}"
            )
        fields = self._server.ask("GET", f"{self._path}/stats")["fieldDistribution"]
        self._check_names((attachment.text, *attachment.metadata) if fields else (), fields, "field")
        settings = self._server.ask("GET", f"{self._path}/settings")
        embedders = settings.get("embedders") or {}
        self._check_names([attachment.vector], embedders, "embedder")
        dimensions = None if attachment.vector is None else embedders[attachment.vector].get("dimensions")
        names = frozenset(name for name in settings.get("filterableAttributes") or () if isinstance(name, str))
        limit = int((settings.get("pagination") or {}).get("maxTotalHits") or 1000)
        return _IndexFacts(names & set(attachment.metadata), dimensions, limit)


def _literal(value: Typed) -> str | None:
    """Return a value in Meilisearch's filter syntax; None if it cannot be queried."""
    kind, content = value
    if kind == "boolean":
        return "true" if content else "false"
    if kind == "string":
        return f'"{content}"' if _simple(content) else None
    return repr(content) if abs(content) < _EXACT else None


def _simple(text: str) -> bool:
    """Whether a text can be quoted without escapes."""
    return bool(text) and len(text) <= _LONGEST and text.isprintable() and '"' not in text and "\\" not in text


def _vector(document: Mapping[str, Any], embedder: str) -> Sequence[float] | None:
    """Return the first vector of a document by an embedder; None if it has none."""
    stored_vectors = (document.get("_vectors") or {}).get(embedder)
    rows = stored_vectors.get("embeddings") if isinstance(stored_vectors, Mapping) else stored_vectors
    if not rows:
        return None
    return rows[0] if isinstance(rows[0], Sequence) else rows
