"""Documents and vectors checked and brought into the form that every store keeps, before any of them is written."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman._values import plain
from pointsman.errors import InputError
from pointsman.text import DEFAULT_ANALYZER, repair
from pointsman.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_TERMS: Final = 512
_ID_BYTES: Final = 1024
_DEEPEST: Final = 64
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # the stubs lack it


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document checked and serialised, ready to be written."""

    document: Document
    metadata: str
    digest: bytes


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode
_encode_plain = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False, default=plain).encode


def digest(text: str, metadata: str) -> bytes:
    """Tells one content from another: 16 bytes of BLAKE2b over the text and its metadata as they are stored."""
    return hashlib.blake2b(f"{len(text)}\n{text}{metadata}".encode(), digest_size=16).digest()


def prepare(document: Document) -> Prepared:
    """Check a document and make it storable.

    Lone surrogates, which no UTF-8 store can hold, become U+FFFD in text and metadata; in an id they are refused,
    since an id must come back as it was given. Dates, UUIDs, decimals and numpy's scalars become JSON.

    Raises:
        InputError: the id is too long or not encodable, or the metadata is not JSON, has a key that is no text, or is
            nested deeper than 64.
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
            except TypeError:  # rarely: values that JSON has not
                metadata = repair(_encode_plain(dict(document.metadata)))
        if text is not document.text or metadata is not raw:
            document = Document(document.id, text, metadata_of(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"document {document.id!r}: metadata is not JSON: {error}") from error
    return Prepared(document, metadata, digest(text, metadata))


def _check_nesting(metadata: Mapping[str, Any]) -> None:
    """Refuse what would not come back as it was given.

    Raises:
        ValueError: it is nested too deeply.
        TypeError: a key is no text; JSON would make one of it.
    """
    level: list[Any] = [metadata]
    for _ in range(_DEEPEST):
        for value in level:
            if isinstance(value, Mapping):
                for key in value:
                    if not isinstance(key, str):
                        raise TypeError(f"the key {key!r:.80} is not a text")
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(child, Mapping | list | tuple)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {_DEEPEST}")


def storable(text: str) -> bool:
    r"""Whether a text can be stored as it is; an id that cannot is no document's.

    >>> storable("信号"), storable("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def metadata_of(text: str) -> Any:
    """What our own encoder has written; a quarter of the time of ``json.loads``, which looks for white space first."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    if end != len(text):
        raise ValueError(f"its metadata is not JSON: {text!r:.80}")
    return value


def query_terms(text: str) -> dict[str, int]:
    """The tokens that a query asks for, and how often; the first 512, so that a pasted page stays affordable.

    >>> query_terms("signal lamp, signals")
    {'signal': 2, 'lamp': 1}
    """
    counts = Counter(DEFAULT_ANALYZER.query_tokens(text))
    return dict(itertools.islice(counts.items(), MOST_TERMS))


def idf(documents: int, holding: int) -> float:
    """Lucene's idf of a word that ``holding`` of so many documents have: ln(1 + (N - n + 1/2) / (n + 1/2)).

    >>> round(idf(10, 1), 3), round(idf(10, 0), 3)
    (1.992, 3.091)
    """
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def directions(vectors: NDArray[np.float32], prepared: Sequence[Prepared]) -> NDArray[np.float32]:
    """Vectors checked and, where they are not yet, brought to length 1."""
    try:
        rows = np.ascontiguousarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"vectors are a matrix of numbers, one row for each document: {error}") from error
    if rows.ndim != 2 or len(rows) != len(prepared) or not rows.shape[1]:
        raise InputError(f"vectors of shape {rows.shape} for {len(prepared)} documents; expected one row for each")
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    wrong = ~(np.isfinite(lengths) & (lengths > 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        what = "is all zeros" if lengths[first] == 0 else "has values that are not finite numbers"
        raise InputError(
            f"the vector of document {prepared[first].document.id!r} {what}; "
            "check the embedder, or leave the document out"
        )
    return rows if np.abs(lengths - 1).max(initial=0) < 1e-6 else rows / lengths[:, None]


def direction(vector: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """A query's vector, checked, at length 1 (or 0: that of a query without a word points nowhere and finds nothing).

    Raises:
        InputError: the vector has another length than those stored, or is not finite.
    """
    vector = np.ascontiguousarray(vector, np.float32)
    if vector.shape != (dimensions,):
        raise InputError(f"a query vector has shape ({dimensions},) here, not {vector.shape}")
    length = float(np.sqrt(vector @ vector))
    if not math.isfinite(length):
        raise InputError("the query vector has values that are not finite numbers; check the embedder")
    return vector if abs(length - 1) < 1e-6 or not length else vector / np.float32(length)


def position(after: str | None) -> int:
    """The number after which a page begins.

    Raises:
        InputError: it is none.
    """
    try:
        number = int(after or 0)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise InputError(f"a page begins after what the page before said, or after nothing, not after {after!r:.80}")
    return number
