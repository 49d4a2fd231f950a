"""Checks documents and vectors and converts them to the form that every store keeps, before anything is written."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.embedders.base_embedder import mixed_embedders
from pointsman.text import repair
from pointsman.tools.errors import CorruptStoreError, InputError
from pointsman.values.metadata import NUMBER, RESERVED, TEXTS, plain
from pointsman.values.types import Document, Metadata
from pointsman.values.views import ACCESS, VALIDITY_KEYS, Permissions, check_validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ID_BYTES: Final = 1024
_DEEPEST: Final = 64
_ALWAYS_RESERVED: Final = frozenset({"source", "title"})
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # the stubs lack it


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked and serialised document, ready to be written."""

    document: Document
    metadata: str
    digest: bytes


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode
_encode_plain = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False, default=plain).encode


def digest(text: str, metadata: str) -> bytes:
    """Return the fingerprint of a document's content: 16 bytes of BLAKE2b over text and metadata as stored."""
    return hashlib.blake2b(f"{len(text)}\n{text}{metadata}".encode(), digest_size=16).digest()


def document_of(id_: str, text: str | None, metadata: str, content: bytes) -> Document:
    """Return a document as it was stored, after comparing it with its fingerprint.

    Args:
        id_: its id.
        text: its text; None if it was not read, and then nothing is compared.
        metadata: as `prepare` serialised it.
        content: its `digest`.

    Raises:
        ValueError: the content differs from what was stored, or the metadata is not JSON.
    """
    return documents_of([(id_, text, metadata, content)])[0]


def documents_of(rows: Sequence[tuple[str, str | None, str, bytes]]) -> list[Document]:
    """Return documents as they were stored, each from what `document_of` takes.

    Raises:
        ValueError: as `document_of` does, for one of them.
    """
    for _, text, metadata, content in rows:
        if text is not None and digest(text, metadata) != content:
            raise ValueError("the content does not match its checksum")
    metadata_of_each = [metadata_of(metadata) for _, _, metadata, _ in rows]
    return [
        Document(id_, text or "", metadata) for (id_, text, _, _), metadata in zip(rows, metadata_of_each, strict=True)
    ]


def prepare(document: Document) -> Prepared:
    """Check a document and return it in storable form.

    Lone surrogates, which no UTF-8 store can hold, become U+FFFD in text and metadata; in an id they are rejected,
    since an id must be returned unchanged. Dates, UUIDs, decimals and numpy scalars become JSON.

    Raises:
        InputError: the id is too long or not encodable, or the metadata is not JSON, has a key that is not a string,
            is nested deeper than 64 levels, or has another type than `RESERVED` says.
    """
    try:
        if len(document.id.encode()) > _ID_BYTES:
            raise InputError(
                f"document id of {len(document.id)} characters: at most {_ID_BYTES} bytes, {document.id!r:.60}…"
            )
    except UnicodeEncodeError as error:
        raise InputError(f"document id {document.id!r} has a lone surrogate; ids must be valid Unicode") from error
    text = repair(document.text)
    try:
        _check_nesting(document.metadata)
        raw = metadata = "{}"
        if document.metadata:
            try:
                raw = _encode(dict(document.metadata))
                metadata = repair(raw)
            except TypeError:  # rare: values that JSON lacks
                metadata = repair(_encode_plain(dict(document.metadata)))
        if text is not document.text or metadata is not raw:
            document = Document(document.id, text, metadata_of(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"document {document.id!r}: metadata is not JSON: {error}") from error
    _check_reserved(document)
    return Prepared(document, metadata, digest(text, metadata))


@dataclass(frozen=True, slots=True)
class Edit:
    """A document with changed metadata.

    Attributes:
        prepared: the document as it is to be stored.
        retitled: whether its searchable text has changed, and with it the vector, if it has one.
    """

    prepared: Prepared
    retitled: bool

    @property
    def id(self) -> str:
        """The document's id."""
        return self.prepared.document.id

    @property
    def searchable(self) -> str:
        """The document's searchable text."""
        return self.prepared.document.searchable


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """New metadata of stored documents; see `Store.set_metadata`."""

    values: Mapping[str, Metadata]
    vectors: Mapping[str, NDArray[np.float32]]
    embedder: str
    replaces: bool

    def edits(self, stored: Sequence[Document | None]) -> list[Edit]:
        """Apply the change to documents as they are stored now, in the same order.

        Raises:
            InputError: a document is None, since it is not stored, or its metadata cannot be stored.
        """
        result = []
        for (id_, values), document in zip(self.values.items(), stored, strict=True):
            if document is None:
                raise InputError(f"there is no document {id_!r:.80}")
            metadata = dict(values) if self.replaces else {**document.metadata, **values}
            item = prepare(
                Document(id_, document.text, {key: value for key, value in metadata.items() if value is not None})
            )
            result.append(Edit(item, item.document.searchable != document.searchable))
        return result

    def missing(self, edits: Sequence[Edit]) -> tuple[str, ...]:
        """Return the searchable texts of documents that have no vector here."""
        return tuple(dict.fromkeys(edit.searchable for edit in edits if edit.searchable not in self.vectors))


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents to be written in one step; see `Store.write`."""

    items: list[Prepared]
    vectors: NDArray[np.float32] | None
    embedder: str = ""
    has_vector: NDArray[np.bool_] | None = None
    stored_only: bool = False
    skip_identical: bool = True

    def directed(self) -> Batch:
        """Return it with vectors of length 1; see `directions`."""
        if self.vectors is None:
            return self
        return replace(self, vectors=directions(self.vectors, self.items, self.has_vector))

    def rows(self) -> list[NDArray[np.float32] | None]:
        """Return the vector of each document; None for one without."""
        if self.vectors is None:
            return [None] * len(self.items)
        if self.has_vector is None:
            return list(self.vectors)
        return [row if is_given else None for row, is_given in zip(self.vectors, self.has_vector, strict=True)]


def _check_reserved(document: Document) -> None:
    """Check the metadata that Pointsman reads itself.

    Raises:
        InputError: a value has another type.
    """
    metadata = document.metadata
    if metadata.get(ACCESS) is not None:
        try:
            Permissions.of(metadata[ACCESS] if isinstance(metadata[ACCESS], Mapping) else None)
        except InputError as error:
            raise InputError(f"document {document.id!r:.80}: the metadata {ACCESS!r}: {error}") from error
    if not metadata.keys().isdisjoint(VALIDITY_KEYS):
        try:
            check_validity(metadata)
        except InputError as error:
            raise InputError(f"document {document.id!r:.80}: {error}; store other values under another key") from error
    has_source = metadata.get("source") is not None
    for key in RESERVED.keys() & metadata.keys() if has_source else _ALWAYS_RESERVED & metadata.keys():
        value, kind = metadata[key], RESERVED[key]
        if value is not None and not _is_of(kind, value):
            circumstance = "" if key in _ALWAYS_RESERVED else " of a document with a source"
            raise InputError(
                f"document {document.id!r:.80}: the metadata {key!r}{circumstance} is {kind}, not {value!r:.80}; "
                "store other values under another key"
            )


def _is_of(kind: str, value: object) -> bool:
    if kind == NUMBER:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    if kind == TEXTS:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def _check_nesting(metadata: Mapping[str, Any]) -> None:
    """Reject metadata that would not be returned unchanged.

    Raises:
        ValueError: it is nested too deeply.
        TypeError: a key is not a string; JSON would convert it to one.
    """
    level: list[Any] = [metadata]
    for _ in range(_DEEPEST):
        for value in level:
            if isinstance(value, dict | Mapping):  # a dict is recognised several times as fast
                for key in value:
                    if not isinstance(key, str):
                        raise TypeError(f"the key {key!r:.80} is not a text")
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict | Mapping) else value)
            if not isinstance(child, str) and isinstance(child, Mapping | list | tuple)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {_DEEPEST}")


def storable(text: str) -> bool:
    r"""Whether a text can be stored unchanged, as every document id can.

    >>> storable("信号"), storable("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def metadata_of(text: str) -> Any:
    """Decode JSON of our own encoder, in a quarter of the time of ``json.loads``, which first skips white space."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    if end != len(text):
        raise ValueError(f"its metadata is not JSON: {text!r:.80}")
    return value


UNREADABLE: Final = (ValueError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading a row, a record or a file of ours raises if something else is in it."""


def unreadable(id_: object, error: Exception) -> CorruptStoreError:
    """Return the error for a row, or a record, that is no document."""
    return CorruptStoreError(
        f"the row of document {id_!r:.80} is damaged ({error!s:.200}); delete the document and add it again, or "
        "restore it from a backup"
    )


def directions(
    vectors: NDArray[np.float32], items: Sequence[Prepared], has_vector: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """Check vectors, one row per document, and return them normalised to length 1.

    Args:
        vectors: shape ``(documents, dimensions)``.
        items: the documents.
        has_vector: shape ``(documents,)``: whose rows are vectors; by default all. The other rows are returned as they
            are.

    Raises:
        InputError: there is not one row for each document, or one is all zeros or not finite.
    """
    try:
        rows = np.ascontiguousarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"vectors are a matrix of numbers, one row for each document: {error}") from error
    if rows.ndim != 2 or len(rows) != len(items) or not rows.shape[1]:
        raise InputError(f"vectors of shape {rows.shape} for {len(items)} documents; expected one row for each")
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if has_vector is not None:
        lengths[~has_vector] = 1
    wrong = ~(np.isfinite(lengths) & (lengths > 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        complaint = "is all zeros" if lengths[first] == 0 else "has values that are not finite numbers"
        raise InputError(
            f"the vector of document {items[first].document.id!r} {complaint}; "
            "check the embedder, or leave the document out"
        )
    return rows if np.abs(lengths - 1).max(initial=0) < 1e-6 else rows / lengths[:, None]


def check_embedder(
    dataset: str, stored_vectors: tuple[str | None, int | None], embedder: str, dimensions: int | None = None
) -> None:
    """Check that vectors go with those that a dataset has.

    Args:
        dataset: its name, for messages.
        stored_vectors: embedder and dimensions of its vectors; None before the first.
        embedder: of the vectors to be written.
        dimensions: of these; None: not known yet.

    Raises:
        InputError: they are from another embedder, or of other dimensions.
    """
    if stored_vectors[0] not in {None, embedder}:
        raise mixed_embedders(dataset, stored_vectors[0], embedder)
    if None not in (stored_vectors[1], dimensions) and stored_vectors[1] != dimensions:
        raise InputError(
            f"{dataset} holds vectors of {stored_vectors[1]} dimensions, not of {dimensions}; "
            "open it with the embedder that made them, or index the documents into a new dataset"
        )


def direction(vector: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """Check a query vector and normalise it to length 1 (or 0 for a query without words, which finds nothing).

    Raises:
        InputError: its dimension differs from the stored vectors', or it is not finite.
    """
    vector = np.ascontiguousarray(vector, np.float32)
    if vector.shape != (dimensions,):
        raise InputError(f"a query vector has shape ({dimensions},) here, not {vector.shape}")
    length = float(np.sqrt(vector @ vector))
    if not math.isfinite(length):
        raise InputError("the query vector has values that are not finite numbers; check the embedder")
    return vector if abs(length - 1) < 1e-6 or not length else vector / np.float32(length)


def position(after: str | None) -> int:
    """Return the number after which a page begins.

    Raises:
        InputError: ``after`` is not such a number.
    """
    try:
        number = int(after or 0)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise InputError(f"after is the cursor returned with the previous page, or None, not {after!r:.80}")
    return number
