"""A FAISS file with a file of its documents, searched unchanged and never written to.

The documents are lines of JSON with an id, a text and, as metadata, any other keys. The first line belongs to the first
vector; if the index has its own ids (``IndexIDMap``), a vector belongs to the document whose id is the same number.
Both files are read on first use, and again when one of them has changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np

from pointsman.store.external.attachment import AttachedStore, AttachedView, CollectionFacts, Row, matching, unit_rows
from pointsman.store.prepared_documents import direction, position
from pointsman.store.store_values import NEAR, Capability, Lists, Page, StoreQuery
from pointsman.tools.errors import CorruptStoreError, InputError, StoreUnavailableError
from pointsman.tools.system.locations import with_home
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.store.external.attachment import Attachment
    from pointsman.values.filters import Filter
    from pointsman.values.views import View

log = logging.getLogger(__name__)

_ROWS: Final = 4096
"""Rows that are compared with a query at a time."""
_ROUNDING: Final = 1e-4
"""By less than this do two ways to multiply vectors differ, as a share of their squared lengths."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The contents of both files.

    Attributes:
        stamp: changes when one of the files changes.
        index: the FAISS index.
        documents: by id, in the order of their lines.
        ids: by the label of their vectors.
        cosine: whether scores grow with similarity; otherwise they are squared distances.
        readable: whether the index returns its vectors.
        access: what the lines say of who may see them, as JSON, with the ids of those that say it; empty without
            columns for it.
    """

    stamp: tuple[tuple[int, int], ...]
    index: Any
    documents: Mapping[str, Document]
    ids: Mapping[int, str]
    cosine: bool
    readable: bool
    access: Mapping[str, Sequence[str]]

    def part_with(self, ids: frozenset[str], vectors: NDArray[np.float32]) -> _Files:
        """Return the part with these documents, as if there had never been others.

        Args:
            ids: of the documents.
            vectors: of all documents, shape ``(documents, dimensions)``, in the order of ``self.ids``.
        """
        names = list(self.ids.values())
        rows = [row for row, id_ in enumerate(names) if id_ in ids]
        return replace(
            self,
            index=_ExactRows(vectors[rows], is_product=self.cosine),
            documents={id_: document for id_, document in self.documents.items() if id_ in ids},
            ids={number: names[row] for number, row in enumerate(rows)},
            readable=True,
        )


class _ExactRows:
    """Vectors that are compared one by one, with the methods of an index of FAISS that are called here.

    What comes out for a row depends on no other row.

    Args:
        vectors: shape ``(rows, dimensions)``.
        is_product: whether they are compared by inner product; otherwise by squared distance.
    """

    def __init__(self, vectors: NDArray[np.float32], *, is_product: bool) -> None:
        self._vectors, self._is_product = vectors, is_product
        self.ntotal, self.d = vectors.shape
        self._squares = np.einsum("ij,ij->i", vectors, vectors)

    def search(self, queries: NDArray[np.float32], size: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Return scores and numbers of the best rows, best first, for one query, shape ``(1, dimensions)``."""
        numbers = self._candidates(queries[0], size)
        scores = np.empty(len(numbers), np.float32)
        for start in range(0, len(numbers), _ROWS):
            rows = self._vectors[numbers[start : start + _ROWS]]
            terms = rows * queries[0] if self._is_product else (rows - queries[0]) ** 2
            terms.sum(axis=1, out=scores[start : start + _ROWS])
        order = np.argsort(-scores if self._is_product else scores, kind="stable")[:size]
        return scores[order][None], numbers[order][None]

    def _candidates(self, query: NDArray[np.float32], size: int) -> NDArray[np.intp]:
        """Return the numbers of the rows that may be among the best, ascending.

        A matrix product rounds by the position of a row, so it only chooses them, with some to spare.
        """
        row_numbers = np.arange(self.ntotal)
        if size >= self.ntotal:
            return row_numbers
        products = self._vectors @ query
        likeness = products if self._is_product else 2 * products - self._squares
        length = np.sqrt(self._squares.max()) + np.sqrt(query @ query)
        lowest = np.partition(likeness, -size)[-size] - np.float32(_ROUNDING) * length * length
        return np.flatnonzero(likeness >= lowest) if np.isfinite(lowest) else row_numbers

    def reconstruct(self, number: int) -> NDArray[np.float32]:
        """Return the vector of a row."""
        row: NDArray[np.float32] = self._vectors[number]
        return row


class FaissStore(AttachedStore):
    """Two files as a read-only store; keys are ids.

    Args:
        attachment: ``url`` is ``faiss:`` with the path of the index, ``table`` the path of the documents, relative to
            the index's folder unless absolute; ``id`` and ``text`` are keys of its lines. Only read indexes from
            sources you trust: FAISS checks little of what it reads.

    Raises:
        InputError: a path or a name is missing.
    """

    kind = "faiss file"
    by_words = False
    further = frozenset({Capability.LOCAL})
    views_obstacle = ""

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        path = unquote(attachment.url.partition(":")[2])
        if not path or not attachment.table or attachment.vector is None:
            raise InputError(
                "a FAISS file is attached as faiss:PATH with the file of its documents as the table and vector='vector'"
            )
        self._path = with_home(path)
        self._listing = self._path.parent / attachment.table
        self._reading = threading.Lock()
        self._read: _Files | None = None
        self._vectors: tuple[object, NDArray[np.float32]] | None = None

    def __repr__(self) -> str:
        return f"FaissStore({str(self._path)!r}, {str(self._listing)!r})"

    @property
    def _facts(self) -> CollectionFacts:
        """See `AttachedStore`.

        Raises:
            StoreUnavailableError: a file is missing, or cannot be read.
            CorruptStoreError: a file is damaged, or the two do not belong together.
        """
        files = self._files
        return CollectionFacts(f"{self._path.absolute()} {files.stamp}", files.index.d, files.readable)

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; filters are evaluated here, over as many of the nearest documents as necessary."""
        return [self._search(query) for query in store_queries]

    def _search(self, store_query: StoreQuery) -> Lists:
        files = self._files
        if store_query.vector is None:
            return Lists({})
        vector = direction(store_query.vector, files.index.d)
        if not vector.any():
            return Lists({NEAR: []})

        def ask(size: int) -> list[list[Row]]:
            scores, labels = files.index.search(vector[None], size)
            pairs = zip(labels[0].tolist(), scores[0].tolist(), strict=True)
            hits = [
                (files.ids[label], score if files.cosine else -score) for label, score in pairs if label in files.ids
            ]
            return [[(id_, score, files.documents[id_]) for id_, score in hits]]

        (rows,), _ = matching(store_query.filters, store_query.depth, max(files.index.ntotal, 1), ask)
        return Lists({NEAR: [(key, score) for key, score, _ in rows]}, {}, {key: document for key, _, document in rows})

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        return [self._files.documents.get(id_) for id_ in ids]

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        begin = position(after)
        documents = list(self._files.documents.values())
        page: list[Document] = []
        for number in range(begin, len(documents)):
            if filters is None or filters.matches(documents[number].fields):
                if len(page) == limit:
                    return Page(page, str(number))
                page.append(documents[number])
        return Page(page, None)

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`; scaled to length 1."""
        files = self._files
        if not files.readable:
            raise self._cannot(Capability.VECTORS)
        labels = {id_: label for label, id_ in files.ids.items()}
        ids = list(labels) if keys is None else [key for key in keys if key in labels]
        if sample and sample < len(ids):
            ids = [ids[number * len(ids) // sample] for number in range(sample)]
        rows = {id_: files.index.reconstruct(labels[id_]).tolist() for id_ in ids}
        return unit_rows(rows, ids, files.index.d)

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> FaissView:
        """See `Store`; the documents that the keys for access admit.

        Raises:
            UnmetNeedError: the index holds no exact vectors.
        """
        columns, files = self.columns_for(view), self._files
        ids: list[str] = []
        for text, names in files.access.items():
            if columns.admit(view, *json.loads(text)):
                ids += names
        return FaissView(self, files, frozenset(ids), notes)

    def vectors_of(self, files: _Files) -> NDArray[np.float32]:
        """Return all vectors as they were added, shape ``(documents, dimensions)``.

        Raises:
            UnmetNeedError: the index holds codes of them, or lists, that depend on all of them.
        """
        with self._reading:
            if self._vectors is None or self._vectors[0] is not files.index:
                self._vectors = files.index, self._flat_vectors(files.index)
            return self._vectors[1]

    def _flat_vectors(self, index: Any) -> NDArray[np.float32]:
        import faiss

        base = faiss.downcast_index(index.index) if hasattr(index, "id_map") else index
        storage = faiss.downcast_index(base.storage) if isinstance(base, faiss.IndexHNSWFlat) else base
        if not isinstance(storage, faiss.IndexFlat):
            raise self.no_views(f"a {type(base).__name__} arranges its vectors by all of them; an IndexFlat does not")
        vectors: NDArray[np.float32] = storage.reconstruct_n(0, storage.ntotal)
        return vectors

    def close(self) -> None:
        """See `Store`."""
        with self._reading:
            self._read = self._vectors = None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _files(self) -> _Files:
        with self._reading:
            try:
                stamp = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in (self._path, self._listing))
                if self._read is None or self._read.stamp != stamp:
                    self._read = self._reads(stamp)
            except CorruptStoreError as error:
                if self._attachment.access is None:
                    raise
                log.warning("%s", error)  # it may tell of what someone may not see
                message = f"{self._attachment.place} is damaged; the log says how"
                raise CorruptStoreError(message) from None
            except OSError as error:
                message = f"{error.filename or self._path} cannot be read: {error.strerror}"
                raise StoreUnavailableError(message) from error
            return self._read

    def _reads(self, stamp: tuple[tuple[int, int], ...]) -> _Files:
        import faiss

        try:
            index = faiss.read_index(str(self._path))
        except RuntimeError as error:
            raise CorruptStoreError(f"{self._path} is not a readable FAISS index; create it again") from error
        documents: dict[str, Document] = {}
        access_of: dict[str, str] = {}
        for document, text in self._lines():
            documents[document.id], access_of[document.id] = document, text
        access: dict[str, list[str]] = {}
        for id_, text in access_of.items():
            access.setdefault(text, []).append(id_)
        if hasattr(index, "id_map"):
            ids = {label: str(label) for label in faiss.vector_to_array(index.id_map).tolist()}
        else:
            ids = dict(enumerate(documents))
        if len(ids) != index.ntotal or len(ids) != len(documents) or not set(ids.values()) <= documents.keys():
            raise CorruptStoreError(
                f"{self._path} has {index.ntotal} vectors, {self._listing} {len(documents)} documents; "
                "each vector needs its document"
            )
        readable = True
        try:
            if ids:
                index.reconstruct(next(iter(ids)))
        except RuntimeError:  # an index that cannot return its vectors
            readable = False
        by_product = index.metric_type == faiss.METRIC_INNER_PRODUCT
        return _Files(stamp, index, documents, ids, by_product, readable, access)

    def _lines(self) -> list[tuple[Document, str]]:
        """Return the documents, and what each says of who may see it, as JSON."""
        id_, text, visible_names = self._attachment.id, self._attachment.text, self._attachment.metadata
        columns = self._attachment.access
        documents = []
        for number, line in enumerate(self._listing.read_bytes().splitlines(), 1):
            try:
                value = json.loads(line)
                name, words = str(value.pop(id_)), str(value.pop(text))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise CorruptStoreError(
                    f"{self._listing}, line {number}: this is not a JSON object with {id_!r:.40} and {text!r:.40}"
                ) from error
            access = None if columns is None else [value.pop(columns.allow, None), value.pop(columns.deny, None)]
            metadata = {key: value[key] for key in value if not visible_names or key in visible_names}
            documents.append((Document(name, words, metadata), json.dumps(access)))
        return documents


class FaissView(AttachedView, FaissStore):
    """The documents of a FAISS file that exist in a view, compared one by one.

    Args:
        store: the files as a store.
        files: their contents.
        ids: of the documents that exist.
        notes: measures what `Statistics.notes` says of the documents.

    Raises:
        UnmetNeedError: the index holds no exact vectors.
    """

    _store: FaissStore

    def __init__(
        self, store: FaissStore, files: _Files, ids: frozenset[str], notes: Callable[[Store], Mapping[str, str]]
    ) -> None:
        self.measure_by(store, notes)
        self._all_files, self._ids, self._vectors_of_all = files, ids, store.vectors_of(files)
        self._files_in_view: _Files | None = None
        names = "\0".join(id_ for id_ in files.documents if id_ in ids)
        self._state = hashlib.blake2b(f"{files.stamp} {names}".encode("utf-8", "replace"), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"FaissView({self._store!r}, state={self.state!r})"

    @property
    def _files(self) -> _Files:
        with self._measuring:
            if self._files_in_view is None:
                self._files_in_view = self._all_files.part_with(self._ids, self._vectors_of_all)
            return self._files_in_view

    def _document_count(self) -> int:
        return len(self._ids)

    def _vector_count(self) -> int:
        return len(self._ids)
