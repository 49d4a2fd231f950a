"""A FAISS file with a file of its documents, searched unchanged and never written to.

The documents are lines of JSON with an id, a text and, as metadata, any other keys. The first line belongs to the first
vector; if the index has its own ids (``IndexIDMap``), a vector belongs to the document whose id is the same number.
Both files are read on first use, and again when one of them has changed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pointsman.store.external.attachment import (
    AttachedStore,
    CollectionFacts,
    Row,
    lists_of,
    matching,
    page_of,
    unit_rows,
)
from pointsman.store.prepared_documents import direction
from pointsman.store.store_values import NEAR, Capability, Lists, Page, StoreQuery
from pointsman.tools.errors import CorruptStoreError, InputError, StoreUnavailableError
from pointsman.tools.system.locations import with_home
from pointsman.values.types import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.external.attachment import Attachment
    from pointsman.values.filters import Filter


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
    """

    stamp: tuple[tuple[int, int], ...]
    index: Any
    documents: Mapping[str, Document]
    ids: Mapping[int, str]
    cosine: bool
    readable: bool


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
        return lists_of({NEAR: rows}, store_query.depth)

    def _documents_with(self, ids: Sequence[str]) -> list[Document]:
        documents = self._files.documents
        return [documents[id_] for id_ in ids if id_ in documents]

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        documents = list(self._files.documents.values())
        return page_of(lambda begin, size: documents[begin : begin + size], after, limit, filters)

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

    def close(self) -> None:
        """See `Store`."""
        with self._reading:
            self._read = None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _files(self) -> _Files:
        with self._reading:
            try:
                stamp = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in (self._path, self._listing))
                if self._read is None or self._read.stamp != stamp:
                    self._read = self._reads(stamp)
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
        documents = {document.id: document for document in self._lines()}
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
        return _Files(stamp, index, documents, ids, by_product, readable)

    def _lines(self) -> list[Document]:
        id_, text, visible_names = self.attachment.id, self.attachment.text, self.attachment.metadata
        documents = []
        for number, line in enumerate(self._listing.read_bytes().splitlines(), 1):
            try:
                value = json.loads(line)
                name, words = str(value.pop(id_)), str(value.pop(text))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise CorruptStoreError(
                    f"{self._listing}, line {number}: this is not a JSON object with {id_!r:.40} and {text!r:.40}"
                ) from error
            metadata = {key: value[key] for key in value if not visible_names or key in visible_names}
            documents.append(Document(name, words, metadata))
        return documents
