"""A Chroma collection, searched unchanged and never written to.

Chroma compares vectors and has no keyword index, so a collection has one list. Its dimensions and its distance are read
from the server. A filter is sent only as far as the server certainly lets all matching documents through; the rest is
evaluated here, over as many of the nearest documents as necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.store.external.attachment import (
    AttachedStore,
    CollectionFacts,
    Row,
    lists_of,
    matching,
    narrowed,
    page_of,
    unit_rows,
    unknown_keys,
)
from pointsman.store.external.database_http import HostAddress, Server
from pointsman.store.prepared_documents import storable
from pointsman.store.store_values import NEAR, Lists, Page, StoreQuery
from pointsman.text.unicode import canonical_forms
from pointsman.tools.errors import InputError
from pointsman.values.filters import Equals, Filter, In
from pointsman.values.types import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.external.attachment import Attachment
    from pointsman.values.filters import Typed

ID: Final = "id"
TEXT: Final = "document"
VECTOR: Final = "embedding"

_PORT: Final = 8000
_MAX: Final = 16_384
"""Number of nearest documents that a filter is applied to at most."""
_BATCH_ROWS: Final = 1000
"""Documents per response."""
_SCORES: Final[dict[str, Callable[[float], float]]] = {
    "cosine": lambda d: 1 - d,
    "ip": lambda d: 1 - d,
    "l2": lambda d: -d,
}
"""The conversion to a score by the name of a distance; ``l2`` distances are squared."""
_EXACT: Final = 2.0**53  # above this, not every integer is a double
_DOCUMENTS: Final = ["documents", "metadatas"]


@dataclass(frozen=True, slots=True)
class _Collection:
    """What the server reports about the collection."""

    path: str
    space: str
    dimensions: int | None


class ChromaStore(AttachedStore):
    """A collection as a read-only store; keys are ids.

    Args:
        attachment: the URL is ``chroma+https://:token@host:8000/database?tenant=…``, or ``chroma://`` without TLS;
            ``table`` is the collection, ``text`` is ``"document"`` or a key of the metadata.

    Raises:
        InputError: the URL is invalid, or Chroma has no such field.
    """

    kind = "chroma collection"
    by_words = False

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        if attachment.id != ID or attachment.vector != VECTOR:
            raise InputError(
                f"in Chroma the id is {ID!r} and the vector {VECTOR!r}, not {attachment.id!r:.80} and "
                f"{attachment.vector!r:.80}; only vectors are searched"
            )
        if not attachment.table or not storable(attachment.table):
            raise InputError(f"a collection of Chroma is named by a text, not {attachment.table!r:.80}")
        address = HostAddress(attachment.url, _PORT, {"tenant"})
        tenant = quote(address.options.get("tenant", "default_tenant"), safe="")
        database = quote(address.path[0] if address.path else "default_database", safe="")
        self._root = f"/api/v2/tenants/{tenant}/databases/{database}/collections"
        self._server = Server(address, {"X-Chroma-Token": address.key} if address.key else {})
        self._read: _Collection | None = None

    @property
    def _facts(self) -> CollectionFacts:
        location = f"{self._server.label} {self._collection.path} {self.attachment.text}"
        return CollectionFacts(location, self._collection.dimensions, readable=True)

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; queries with the same depth and filter share a request."""
        answers: dict[int, Lists] = {}
        groups: dict[tuple[int, str], list[int]] = {}
        for number, query in enumerate(store_queries):
            if query.vector is None or self._collection.dimensions is None:
                answers[number] = Lists({} if query.vector is None else {NEAR: []})
            else:
                groups.setdefault((query.depth, str(query.filters)), []).append(number)
        for numbers in groups.values():
            rankings = self._nearest([store_queries[number] for number in numbers])
            answers.update(zip(numbers, rankings, strict=True))
        return [answers[number] for number in range(len(store_queries))]

    def _nearest(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """Return the nearest documents for queries with the same depth and filter."""
        first = store_queries[0]
        body: dict[str, Any] = {
            "query_embeddings": [query.vector.tolist() for query in store_queries if query.vector is not None],
            "include": [*_DOCUMENTS, "distances"],
            **_where_clause(first.filters),
        }

        def ask(size: int) -> list[list[Row]]:
            answer = self._ask("query", {**body, "n_results": size})
            score = _SCORES[self._collection.space]
            groups = map(self._documents, answer["ids"], answer["documents"], answer["metadatas"])
            return [
                [(document.id, score(distance), document) for document, distance in zip(group, distances, strict=True)]
                for group, distances in zip(groups, answer["distances"], strict=True)
            ]

        lists, notes = matching(first.filters, first.depth, _MAX, ask)
        if fields := self.attachment.metadata:
            notes += unknown_keys(first.filters, fields)
        return [lists_of({NEAR: rows}, first.depth, self._with_place(notes)) for rows in lists]

    def _documents_with(self, ids: Sequence[str]) -> list[Document]:
        able = [id_ for id_ in ids if storable(id_)]
        return self._get(ids=able) if able else []

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        return page_of(lambda offset, size: self._get(offset=offset, limit=size), after, limit, filters)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is not None:
            return super().count(filters)
        return int(self._server.ask("GET", f"{self._collection.path}/count"))

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`; scaled to length 1."""
        total = self.count()
        requests: list[dict[str, Any]]
        if keys is not None:
            requests = [{"ids": list(keys)}] if keys else []
        elif sample and sample < total:
            count = min(sample, 8)
            size = sample // count
            requests = [
                {"limit": size, "offset": number * (total - size) // max(count - 1, 1)} for number in range(count)
            ]
        else:
            requests = [{"limit": _BATCH_ROWS, "offset": begin} for begin in range(0, total, _BATCH_ROWS)]
        vectors: dict[str, Sequence[float]] = {}
        for request in requests:
            answer = self._ask("get", {"include": ["embeddings"], **request})
            vectors.update(zip(answer["ids"], answer["embeddings"], strict=True))
        return unit_rows(vectors, keys, self._collection.dimensions)

    def close(self) -> None:
        """See `Store`."""
        self._server.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, verb: str, body: Mapping[str, Any]) -> Any:
        return self._server.ask("POST", f"{self._collection.path}/{verb}", body)

    def _get(self, **query: Any) -> list[Document]:
        answer = self._ask("get", {"include": _DOCUMENTS, **query})
        return self._documents(answer["ids"], answer["documents"], answer["metadatas"])

    def _documents(self, ids: Sequence[str], texts: Sequence[Any], metadatas: Sequence[Any]) -> list[Document]:
        visible_names, text = self.attachment.metadata, self.attachment.text
        documents = []
        for id_, words, value in zip(ids, texts, metadatas, strict=True):
            metadata = value if isinstance(value, Mapping) else {}
            visible = {name: metadata[name] for name in visible_names or metadata if name in metadata}
            documents.append(Document(id_, str((words if text == TEXT else metadata.get(text)) or ""), visible))
        return documents

    @property
    def _collection(self) -> _Collection:
        """What the server reports about the collection; requested again while it has no vectors."""
        if self._read is None or self._read.dimensions is None:
            name = self.attachment.table
            description = self._server.ask("GET", f"{self._root}/{quote(name, safe='')}", accepted=(404,))
            if description is None:
                raise InputError(f"{self._server.label} has no collection {name!r:.80}")
            settings = description.get("configuration_json") or {}
            kinds = [settings[kind] for kind in ("hnsw", "spann") if settings.get(kind)]
            space = kinds[0].get("space", "l2") if kinds else "l2"
            if space not in _SCORES:
                raise InputError(f"{self.attachment.place} compares by {space!r:.40}, which is not supported")
            self._read = _Collection(f"{self._root}/{description['id']}", space, description.get("dimension"))
        return self._read


def _where_clause(filters: Filter | None) -> dict[str, Any]:
    """Return the part of a request that excludes documents which certainly do not match."""
    condition = narrowed(filters, _condition, _join_conditions)
    return {} if condition is None else {"where": condition}


def _join_conditions(word: str, conditions: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"${word}": conditions}


def _condition(leaf: Filter) -> dict[str, Any] | None:
    """Return the condition for a part on one key; Chroma's comparisons ignore lists, so ranges are evaluated here."""
    if not isinstance(leaf, Equals | In) or leaf.key.startswith(("$", "#", "chroma:")) or not leaf.key.isascii():
        return None
    values = [leaf.typed] if isinstance(leaf, Equals) else sorted(leaf.typed, key=str)
    conditions: list[dict[str, Any]] = []
    for value in values:
        forms = _forms(value)
        if not forms:
            return None
        equal_forms = forms if isinstance(forms[0], str) else forms[:1]
        conditions += [
            *({leaf.key: {"$eq": form}} for form in equal_forms),
            *({leaf.key: {"$contains": form}} for form in forms),
        ]
    return {"$or": conditions} if conditions else None


def _forms(value: Typed) -> list[Any]:
    """Return the forms in which Chroma may store a value, two for whole numbers; none if it cannot be queried."""
    kind, content = value
    if kind == "boolean":
        return [bool(content)]
    if kind == "string":
        return [*canonical_forms(content)] if "\0" not in content and storable(content) else []
    if not abs(content) < _EXACT:
        return []
    return [int(content), float(content)] if content.is_integer() else [content]
