"""The text of a file, put together out of its passages: what the offsets of a citation count in.

The file itself is not read: it may have changed since, or be on another machine, and where a file is said to be is
metadata that anybody who writes to a dataset can choose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pointsman._batched import batched
from pointsman.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from pointsman.store.base import Store
    from pointsman.types import Document

MOST_CHARACTERS = 100_000_000
"""Of a text, at once: offsets are metadata, and what lies between passages takes memory too."""

_FETCHED = 1000  # passages at a time


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that citations point into, or a part of it.

    Attributes:
        source: the file, or the id of a document that is from no file.
        hash: SHA-256 of the file's bytes when it was indexed; None where it is from no file.
        start: where ``text`` begins in the whole.
        length: characters of the whole.
        text: the characters from ``start`` on. What stands in no passage, such as the blanks between two of them, is
            filled in with headings where they are sure to be right, else with blanks.
    """

    source: str
    hash: str | None
    start: int
    length: int
    text: str

    @property
    def end(self) -> int:
        """After the last character of ``text``, in the whole."""
        return self.start + len(self.text)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        about = {"source": self.source, "hash": self.hash, "start": self.start, "end": self.end}
        return {**about, "length": self.length, "text": self.text}


class _Piece(NamedTuple):
    start: int
    text: str
    headings: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def source_text(
    store: Store,
    source: str,
    *,
    hash: str | None = None,  # noqa: A002  (the citation's word)
    start: int = 0,
    end: int | None = None,
) -> SourceText:
    """The text of a source, so that ``text[citation.start : citation.end] == citation.quote``.

    Args:
        store: of the dataset.
        source: as the citation has it.
        hash: as the citation has it; without it, of the content that most of the stored passages are from.
        start: of the part that is wanted.
        end: after it; what goes beyond the end of the text is left out.

    Raises:
        UnknownNameError: nothing of this source, or of it with this hash, is stored.
        InputError: the places are out of range, or so far apart that nobody can want it.
    """
    if start < 0 or (end is not None and end < start):
        raise InputError(f"a part of a text is from 0 or more up to no less, not {start} to {end}")
    versions: dict[str | None, list[_Piece]] = defaultdict(list)
    for document in _passages(store, source):
        piece, version = _piece(document)
        if piece is not None:
            versions[version].append(piece)
    if not versions and hash is None and (alone := store.get([source])[0]) is not None:
        versions[None].append(_Piece(0, alone.text, ()))
    digest = hash if hash is not None else max(versions, key=lambda digest: len(versions[digest]), default=None)
    if not versions:
        raise UnknownNameError("source", source)
    if digest not in versions:
        raise UnknownNameError(f"version of {source!r}", str(digest), tuple(digest for digest in versions if digest))
    pieces = sorted(versions[digest])
    length = max(piece.end for piece in pieces)
    stop = length if end is None else min(end, length)
    if stop - start > MOST_CHARACTERS:
        raise InputError(f"{stop - start} characters are more than {MOST_CHARACTERS}; ask for a part")
    return SourceText(source, digest, min(start, length), length, _joined(pieces, start, stop))


def _passages(store: Store, source: str) -> Iterable[Document]:
    for ids in batched(store.ids(source=source), _FETCHED):
        yield from (document for document in store.get(list(ids)) if document is not None)


def _piece(document: Document) -> tuple[_Piece | None, str | None]:
    """What a document holds of its file, and the file's hash; None where its offsets are none of its text."""
    metadata = document.metadata
    start, end, sha256, headings = (metadata.get(name) for name in ("start", "end", "sha256", "headings"))
    version = sha256 if isinstance(sha256, str) else None
    if not isinstance(start, int) or isinstance(start, bool) or start < 0 or end != start + len(document.text):
        return None, version
    names = tuple(map(str, headings)) if isinstance(headings, list) else ()
    return _Piece(start, document.text, names), version


def _joined(pieces: Sequence[_Piece], start: int, stop: int) -> str:
    """The characters from ``start`` to ``stop``; pieces are in order, and may overlap."""
    parts: list[str] = []
    position = 0  # up to here the text is known
    for piece in pieces:
        if position >= stop:
            break
        low, high = max(position, start), min(piece.start, stop)
        if low < high:
            parts.append(_between(piece, position, low, high))
        low, high = max(position, start, piece.start), min(piece.end, stop)
        if low < high:
            parts.append(piece.text[low - piece.start : high - piece.start])
        position = max(position, piece.end)
    return "".join(parts)


def _between(piece: _Piece, begin: int, low: int, high: int) -> str:
    """The characters from ``low`` to ``high`` between ``begin`` and a piece: its headings if they fit exactly."""
    size = piece.start - begin
    for first in range(len(piece.headings)):
        text = "\n\n".join([*([""] if begin else []), *piece.headings[first:], ""])
        if len(text) == size:
            return text[low - begin : high - begin]
    return ("\n" if size == 2 else " ") * (high - low)
