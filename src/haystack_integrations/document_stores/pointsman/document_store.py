"""A Pointsman dataset as a Haystack document store."""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from haystack import Document, default_from_dict, default_to_dict
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

import pointsman
from haystack_integrations.document_stores.pointsman.filters import filter_of
from pointsman import Dataset, InputError, PointsmanError, UnmetNeedError
from pointsman import Document as OurDocument
from pointsman.integrations.framework_sources import given_or_named, with_notes
from pointsman.tools.sync_and_async import async_twin
from pointsman.tools.system.locations import is_service, redacted
from pointsman.values.filters import And, Filter
from pointsman.values.retrieval_context import Verdict
from pointsman.values.types import Hit

Filters = dict[str, Any] | None

_EXTRA: Final = "_haystack"
"""The metadata key for a document's other fields: a mapping that filters ignore."""

_opening = threading.RLock()  # of the module, as a store with a lock of its own could not be copied


class PointsmanDocumentStore:
    """A dataset as a document store: searched by words, by vectors, and by both together.

    Args:
        location: a workspace: a folder, or the URL of a database such as ``postgresql://user@host/database`` or of a
            Pointsman service, whose key is in ``POINTSMAN_API_KEY``; by default, a temporary folder that is deleted
            with the object.
        dataset: its name in the workspace.
        embedder: embeds documents that come without an embedding, and questions: ``"default"`` or another name that
            `pointsman.load_embedder` knows. Without one, all vectors come from Haystack's components, and documents
            without an embedding are found by their words; but a service embeds by itself.
        vectors: a name for the vectors of those components; later, vectors with another name are rejected.
        wait: seconds to wait while another process writes.

    Raises:
        UnmetNeedError: there is an embedder, and the location is a service, which embeds by itself.
    """

    def __init__(
        self,
        location: str | Path | None = None,
        dataset: str = "haystack",
        embedder: str | None = None,
        vectors: str = "haystack",
        wait: float = 30.0,
    ) -> None:
        if location is not None and not isinstance(location, str | Path):
            raise TypeError(f"location is a folder or the URL of a database, not a {type(location).__name__}")
        self._is_service = location is not None and is_service(location)
        if self._is_service and embedder is not None:
            raise UnmetNeedError(f"{redacted(str(location))} is a service, which embeds by itself; leave out embedder")
        self.location = None if location is None else str(location)
        self.name, self.embedder, self.vectors, self.wait = dataset, embedder, vectors, wait
        self._workspace: pointsman.Workspace | None = None
        self._dataset: Dataset | None = None

    @property
    def dataset(self) -> Dataset:
        """The dataset; opened on first use."""
        with _opening:
            if self._dataset is None:
                own_embedder = None if self._is_service else given_or_named(self.embedder, self.vectors)
                if self.location is None:
                    self._dataset = Dataset(self.name, embedder=own_embedder)
                else:
                    self._workspace = pointsman.open(self.location, embedder=own_embedder)
                    self._dataset = self._workspace.dataset(self.name)
            return self._dataset

    @property
    def embeds(self) -> bool:
        """Whether documents and questions that come without a vector are embedded."""
        return self._is_service or self.embedder is not None

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        return default_to_dict(
            self,
            location=self.location,
            dataset=self.name,
            embedder=self.embedder,
            vectors=self.vectors,
            wait=self.wait,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PointsmanDocumentStore":
        """Rebuild the store from the output of `to_dict`."""
        return default_from_dict(cls, data)

    def close(self) -> None:
        """Release files and connections; the next use opens them again."""
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = self._dataset = None
        elif self._dataset is not None:
            self._dataset.close()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def count_documents(self) -> int:
        """Returns the number of documents."""
        return self.dataset.count()

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Returns the number of matching documents."""
        return self.dataset.count(_filter(filters))

    def filter_documents(self, filters: Filters = None) -> list[Document]:
        """Returns the matching documents with their embeddings; all documents without filters."""
        return [
            document
            for page in _pages(self.dataset, _filter(filters))
            for document in _with_embeddings(self.dataset, page)
        ]

    def hits_to_documents(
        self,
        hits: Sequence[Hit],
        *,
        return_embedding: bool = False,
        degraded: Sequence[str] = (),
        verdict: Verdict | None = None,
    ) -> list[Document]:
        """Returns the hits of a search as documents with scores, and with embeddings if they are asked for.

        Where it applies, their metadata has ``verdict`` and ``not_in_force``, and the first one's has ``degraded``.
        """
        if not return_embedding:
            return documents_of(hits, degraded, verdict)
        documents = _with_embeddings(self.dataset, [hit.document for hit in hits])
        notes = with_notes(hits, degraded, verdict)
        return [_of_hit(document, *noted_hit) for document, noted_hit in zip(documents, notes, strict=True)]

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Returns the number of distinct values in the matching documents, by field."""
        return {
            name.removeprefix("meta."): len(_values(self.dataset, name, _filter(filters))) for name in metadata_fields
        }

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Returns the names of all metadata fields, with the type of their first value."""
        info: dict[str, dict[str, str]] = {}
        for page in _pages(self.dataset, None):
            for document in page:
                for name, value in document.metadata.items():
                    if name != _EXTRA and name not in info:
                        info[name] = {"type": _TYPES.get(type(value), "object")}
        return info

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Returns the smallest and largest number, or the first and last text, of a field; None if it has none."""
        values = _values(self.dataset, metadata_field, None)
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        texts = [value for value in values if isinstance(value, str)]
        return {"min": min(numbers or texts, default=None), "max": max(numbers or texts, default=None)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        """Returns a page of the distinct values of a field, in order, and their total number.

        Args:
            metadata_field: its name.
            search_term: a substring of the values, ignoring case.
            from_: the start of the page.
            size: values per page.
            filters: which documents are eligible.
        """
        values = _values(self.dataset, metadata_field, _filter(filters))
        if search_term is not None:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        values.sort(key=lambda value: (isinstance(value, str), value, type(value).__name__))
        return values[from_ : from_ + size], len(values)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents.

        Args:
            documents: what to write.
            policy: what happens to ids that are known or given twice; by default they are rejected, as by ``FAIL``.

        Returns:
            The number of documents written.

        Raises:
            ValueError: an item is not a document, or there is no such policy.
            DuplicateDocumentError: an id is known or given twice, and the policy is ``FAIL``; nothing is written.
            DocumentStoreError: a document cannot be stored.
        """
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError(f"write_documents takes a list of Documents, not {documents!r:.80}")
        policy = DuplicatePolicy(policy)
        with _translating_errors():
            with self.dataset.writing(self.wait):
                new = documents
                if policy is not DuplicatePolicy.OVERWRITE:
                    existing = self.dataset.get_many([document.id for document in documents])
                    new, duplicate_ids = _first_of_each(
                        documents,
                        {existing_document.id for existing_document in existing if existing_document is not None},
                    )
                    if duplicate_ids and policy is not DuplicatePolicy.SKIP:
                        ids = ", ".join(sorted(duplicate_ids)[:5])
                        raise DuplicateDocumentError(f"these ids exist already, or are given twice: {ids}")
                own_documents = [_own_document(document) for document in new]
                self._add(own_documents, [document.embedding for document in new])
            return len(new)

    def _add(self, documents: list[OurDocument], vectors: Sequence[Any]) -> None:
        self.dataset.add(documents, vectors=vectors, embed=self.embeds)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        if document_ids:
            with _translating_errors(), self.dataset.writing(self.wait):
                self.dataset.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete everything."""
        with _translating_errors(), self.dataset.writing(self.wait):
            self.dataset.delete(filters=And(()))

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the matching documents; returns their number."""
        with _translating_errors(), self.dataset.writing(self.wait):
            return self.dataset.delete(filters=_filter(filters) or And(()))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set metadata of the matching documents, keeping their other metadata; returns the number of documents."""
        count = 0
        with _translating_errors(), self.dataset.writing(self.wait):
            matching = [document for page in _pages(self.dataset, _filter(filters)) for document in page]
            for start in range(0, len(matching), _BATCH):
                batch = matching[start : start + _BATCH]
                new_documents = [
                    OurDocument(document.id, document.text, {**document.metadata, **meta}) for document in batch
                ]
                self._add(new_documents, self.dataset.get_vectors([document.id for document in batch]))
                count += len(batch)
        return count

    # ── async versions ───────────────────────────────────────────────────────────────────────────────────────────

    count_documents_async = async_twin(count_documents, "{}_async")
    count_documents_by_filter_async = async_twin(count_documents_by_filter, "{}_async")
    filter_documents_async = async_twin(filter_documents, "{}_async")
    count_unique_metadata_by_filter_async = async_twin(count_unique_metadata_by_filter, "{}_async")
    get_metadata_fields_info_async = async_twin(get_metadata_fields_info, "{}_async")
    get_metadata_field_min_max_async = async_twin(get_metadata_field_min_max, "{}_async")
    get_metadata_field_unique_values_async = async_twin(get_metadata_field_unique_values, "{}_async")
    write_documents_async = async_twin(write_documents, "{}_async")
    delete_documents_async = async_twin(delete_documents, "{}_async")
    delete_all_documents_async = async_twin(delete_all_documents, "{}_async")
    delete_by_filter_async = async_twin(delete_by_filter, "{}_async")
    update_by_filter_async = async_twin(update_by_filter, "{}_async")


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_BATCH: Final = 1000
_TYPES: Final[Mapping[type, str]] = {str: "keyword", bool: "boolean", int: "long", float: "double", list: "list"}


def _filter(filters: Filters) -> Filter | None:
    return filter_of(filters) if filters else None


def _pages(dataset: Dataset, filters: Filter | None) -> Iterator[list[OurDocument]]:
    cursor: int | None = 0
    while cursor is not None:
        page, cursor = dataset.page(cursor, _BATCH, filters=filters)
        yield page


def _values(dataset: Dataset, name: str, filters: Filter | None) -> list[Any]:
    """The distinct values of a field, counting the items of lists; 1, 1.0 and True are distinct."""
    name = name.removeprefix("meta.")
    values: dict[tuple[type, Any], None] = {}
    for page in _pages(dataset, filters):
        for document in page:
            value = document.metadata.get(name)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (str, int, float)):
                    values[type(item), item] = None
    return [value for _, value in values]


def _first_of_each(documents: Sequence[Document], known_ids: set[str]) -> tuple[list[Document], set[str]]:
    """Returns the first document of each id that is not known, and the other documents' ids."""
    first: dict[str, Document] = {}
    duplicate_ids: set[str] = set()
    for document in documents:
        if document.id in known_ids or document.id in first:
            duplicate_ids.add(document.id)
        else:
            first[document.id] = document
    return list(first.values()), duplicate_ids


def _own_document(document: Document) -> OurDocument:
    """Converts a document to a Pointsman document; its other fields are stored beside the metadata.

    Raises:
        InputError: its embedding is not a list of finite numbers.
    """
    values = {"blob": document.blob, "sparse_embedding": document.sparse_embedding}
    extra: dict[str, Any] = {name: value.to_dict() for name, value in values.items() if value is not None}
    if document.score is not None:
        extra["score"] = document.score
    if document.content is None:
        extra["content"] = None
    if document.embedding is not None:
        extra["length"] = _length(document)
    if _EXTRA in document.meta:
        extra["own"] = document.meta[_EXTRA]
    metadata = {**document.meta, _EXTRA: extra} if extra else document.meta
    return OurDocument(document.id, document.content or "", metadata)


def _length(document: Document) -> float:
    """Returns the length of a document's embedding.

    Raises:
        InputError: it is not a list of finite numbers.
    """
    try:
        length = float(np.linalg.norm(np.asarray(document.embedding, np.float64)))
    except (TypeError, ValueError):
        length = math.nan
    if not math.isfinite(length):
        raise InputError(f"document {document.id!r:.80}: an embedding is a list of finite numbers")
    return length


def _haystack_document(document: OurDocument, vector: Any) -> Document:
    metadata = dict(document.metadata)
    try:
        return _rebuilt(document, metadata, metadata.pop(_EXTRA, {}), vector)
    except (AttributeError, KeyError, TypeError, ValueError):  # other programs may write anything under that key
        return _rebuilt(document, dict(document.metadata), {}, vector)


def _rebuilt(document: OurDocument, metadata: dict[str, Any], extra: Mapping[str, Any], vector: Any) -> Document:
    """Returns a document from its metadata and its other fields.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: the fields are not those of a document.
    """
    if "own" in extra:
        metadata[_EXTRA] = extra["own"]
    content, blob, sparse = extra.get("content"), extra.get("blob"), extra.get("sparse_embedding")
    if content is not None:
        raise TypeError("a text is stored as the document's own")
    score, length = extra.get("score"), float(extra.get("length", 1.0))
    return Document(
        id=document.id,
        content=None if "content" in extra else document.text,
        meta=metadata,
        score=None if score is None else float(score),
        blob=None if blob is None else ByteStream.from_dict(blob),
        sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
        embedding=None if vector is None else (np.asarray(vector, np.float64) * length).tolist(),
    )


def _with_embeddings(dataset: Dataset, documents: Iterable[OurDocument]) -> list[Document]:
    documents = list(documents)
    vectors = dataset.get_vectors([document.id for document in documents])
    return [_haystack_document(document, vector) for document, vector in zip(documents, vectors, strict=True)]


def documents_of(hits: Sequence[Hit], degraded: Sequence[str] = (), verdict: Verdict | None = None) -> list[Document]:
    """Returns hits as documents with scores, without embeddings; see `PointsmanDocumentStore.hits_to_documents`."""
    noted_hits = with_notes(hits, degraded, verdict)
    return [_of_hit(_haystack_document(hit.document, None), hit, notes) for hit, notes in noted_hits]


def _of_hit(document: Document, hit: Hit, notes: Mapping[str, Any]) -> Document:
    return replace(document, meta={**document.meta, **notes}, score=float(hit.score))


@contextmanager
def _translating_errors() -> Iterator[None]:
    """Converts Pointsman errors to Haystack's."""
    try:
        yield
    except InputError as error:
        raise DocumentStoreError(str(error)) from error
    except PointsmanError as error:
        raise DocumentStoreError(f"{type(error).__name__}: {error}") from error
