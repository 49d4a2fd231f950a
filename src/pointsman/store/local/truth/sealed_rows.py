"""Rows of a truth as they are stored: each with a checksum, which is verified when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import xxhash

from pointsman.store.local.truth.packing import pack_vectors, unpack_text, unpack_vectors
from pointsman.store.prepared_documents import UNREADABLE, document_of, documents_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.types import Document


NO_VECTOR: Final = b""
"""In place of a vector: the document has none, and loses the one that it had."""
DIGEST, _ROW_CHECK = 16, 6  # bytes; lengths that one flipped bit cannot turn into one another
# With its checksum a vector, packed or not, has three bytes more than a multiple of four: no one bit makes that none.
_PACKED_CHECK, _VECTOR_CHECK = 5, 7
NUMBER: Final = 4
"""Bytes per number in a vector."""


def row_check(key: int, seq: int, id_: str, metadata: str, content: bytes) -> bytes:
    """Return the checksum of a row without its text, which ``content``, the digest, covers."""
    return xxhash.xxh3_64_digest(f"{key}\n{seq}\n{len(id_)}\n{id_}{metadata}".encode() + content)[:_ROW_CHECK]


def seal_vectors(vectors: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return keys and vectors as they are stored: packed, each with a checksum of that and its key."""
    contents = pack_vectors([vector for _, vector in vectors])
    return [(key, content + _vector_check(key, content)) for (key, _), content in zip(vectors, contents, strict=True)]


def _vector_check(key: int, content: bytes) -> bytes:
    length = _PACKED_CHECK if len(content) % NUMBER else _VECTOR_CHECK
    return xxhash.xxh3_64_digest(b"%d\n" % key + content)[:length]


def document_in(row: Sequence[Any]) -> Document:
    """Return the document in the columns of `ROW` after verifying its checksums.

    Raises:
        ValueError: the row differs from what was written.
    """
    try:
        return document_of(*_content_of_row(row))
    except UNREADABLE as error:
        raise ValueError(f"document {row[0]!r:.80}, key {row[-1]!r:.20}: {error}") from error


def documents_in(rows: Sequence[Sequence[Any]]) -> list[Document]:
    """Return `document_in` of each row."""
    try:
        return documents_of([_content_of_row(row) for row in rows])
    except UNREADABLE:
        return list(map(document_in, rows))  # its error names the document


def _content_of_row(row: Sequence[Any]) -> tuple[str, str | None, str, bytes]:
    """Return what `document_of` takes, after verifying the checksum of the row."""
    id_, text, metadata, digests, seq, key = row
    if isinstance(text, bytes):
        text = unpack_text(text)
    content, check = digests[:DIGEST], digests[DIGEST:]
    if check != row_check(key, seq, id_, metadata, content):
        raise ValueError("the row does not match its checksum")
    return id_, text, metadata, content


def id_in(row: Sequence[Any]) -> str:
    """Return the id in the columns of `ROW_WITHOUT_TEXT` after verifying its checksum; nothing else is decoded.

    Raises:
        ValueError: the row differs from what was written.
    """
    id_, _, metadata, digests, seq, key = row
    try:
        content, check = digests[:DIGEST], digests[DIGEST:]
        if len(content) == DIGEST and check == row_check(key, seq, id_, metadata, content):
            return str(id_)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"document {id_!r:.80}, key {key!r:.20}: {error}") from error
    raise ValueError(f"document {id_!r:.80}, key {key!r:.20}: the row does not match its checksum")


def vectors_in(rows: Sequence[tuple[int, object]], size: int = 0) -> list[bytes]:
    """Return the vectors in rows, each a key and what is stored of it, after verifying their checksums.

    Args:
        rows: keys and what is stored.
        size: bytes that every vector has; 0: not known, but it has some.

    Raises:
        ValueError: a vector differs from what was written, or is no vector.
    """
    vectors = unpack_vectors([_content(key, raw) for key, raw in rows])
    for (key, _), vector in zip(rows, vectors, strict=True):
        if len(vector) != (size or len(vector)) or not vector:
            raise ValueError(f"the vector of key {key!r:.20} has {len(vector)} bytes, not {size or 'some'}")
    return vectors


def _content(key: int, raw: object) -> bytes:
    """Return a vector, which may be packed, after verifying its checksum."""
    if isinstance(raw, bytes) and isinstance(key, int):
        for length in (_PACKED_CHECK, _VECTOR_CHECK):
            content = raw[:-length]
            if raw[-length:] == _vector_check(key, content):
                return content
    raise ValueError(f"the vector of key {key!r:.20} does not match its checksum")


ROW = "id, text, metadata, digest, seq, key"
ROW_WITHOUT_TEXT = "id, NULL, metadata, digest, seq, key"
