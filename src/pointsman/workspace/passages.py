"""Reassembles the text of a file from its passages; citation offsets refer to this text.

The file itself is not read: it may have changed or be on another machine, and its path is metadata that anybody with
write access to a dataset can choose.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.json_forms import form_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pointsman.store.base_store import Store
    from pointsman.values.types import Document

MOST_CHARACTERS = 100_000_000
"""Limit for one text: offsets are metadata, and gaps between passages take memory too."""

_PAGE_SIZE = 1000  # passages per request


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that citations point into, or a part of it.

    Attributes:
        source: the file, or the id of a document that is not from a file.
        hash: SHA-256 of the file's bytes when it was indexed; None if it is not from a file.
        start: offset of ``text`` in the whole text.
        length: characters of the whole text.
        text: the characters from ``start`` on. Gaps between passages are filled with headings if these are certain to
            be right, else with spaces.
    """

    source: str
    hash: str | None
    start: int
    length: int
    text: str

    FORM: ClassVar = ("source", "hash", "start", "end", "length", "text")

    @property
    def end(self) -> int:
        """Offset after the last character of ``text`` in the whole text."""
        return self.start + len(self.text)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON form."""
        return form_of(self)


class _TextPiece(NamedTuple):
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
    """Return the text of a source, so that ``text[citation.start : citation.end] == citation.quote``.

    Args:
        store: the dataset's store.
        source: the citation's source.
        hash: the citation's hash; None selects the content that most of the stored passages come from.
        start: start of the requested part.
        end: end of the requested part; it may exceed the end of the text.

    Raises:
        UnknownNameError: no document of this source, or of this source with this hash, is stored.
        InputError: an offset is out of range, or the part is too long.
    """
    if start < 0 or (end is not None and end < start):
        raise InputError(f"a part of a text is from 0 or more up to no less, not {start} to {end}")
    versions: dict[str | None, list[_TextPiece]] = defaultdict(list)
    for document in _passages(store, source):
        passage, version = _passage_of(document)
        if passage is not None:
            versions[version].append(passage)
    if not versions and hash is None and (document_without_source := store.get([source])[0]) is not None:
        versions[None].append(_TextPiece(0, document_without_source.text, ()))
    digest = hash if hash is not None else max(versions, key=lambda digest: len(versions[digest]), default=None)
    if not versions:
        raise UnknownNameError("source", source)
    if digest not in versions:
        raise UnknownNameError(f"version of {source!r}", str(digest), tuple(digest for digest in versions if digest))
    passages = sorted(versions[digest])
    length = max(passage.end for passage in passages)
    stop = length if end is None else min(end, length)
    if stop - start > MOST_CHARACTERS:
        raise InputError(f"{stop - start} characters are more than {MOST_CHARACTERS}; ask for a part")
    return SourceText(source, digest, min(start, length), length, _join(passages, start, stop))


def _passages(store: Store, source: str) -> Iterable[Document]:
    for ids in batched(store.ids(source=source), _PAGE_SIZE):
        yield from (document for document in store.get(list(ids)) if document is not None)


def _passage_of(document: Document) -> tuple[_TextPiece | None, str | None]:
    """Return a document's piece of its file (None if its offsets do not match its text), and the file's hash."""
    metadata = document.metadata
    start, end, sha256, headings = (metadata.get(name) for name in ("start", "end", "sha256", "headings"))
    version = sha256 if isinstance(sha256, str) else None
    if not isinstance(start, int) or isinstance(start, bool) or start < 0 or end != start + len(document.text):
        return None, version
    names = tuple(map(str, headings)) if isinstance(headings, list) else ()
    return _TextPiece(start, document.text, names), version


def _join(passages: Sequence[_TextPiece], start: int, stop: int) -> str:
    """Return the characters from ``start`` to ``stop``; pieces are in order and may overlap."""
    texts: list[str] = []
    position = 0  # the text is complete up to here
    for passage in passages:
        if position >= stop:
            break
        low, high = max(position, start), min(passage.start, stop)
        if low < high:
            texts.append(_overlap(passage, position, low, high))
        low, high = max(position, start, passage.start), min(passage.end, stop)
        if low < high:
            texts.append(passage.text[low - passage.start : high - passage.start])
        position = max(position, passage.end)
    return "".join(texts)


def _overlap(passage: _TextPiece, begin: int, low: int, high: int) -> str:
    """Fill ``low`` to ``high`` in the gap between ``begin`` and a piece: with its headings if they fit exactly."""
    size = passage.start - begin
    for first in range(len(passage.headings)):
        text = "\n\n".join([*([""] if begin else []), *passage.headings[first:], ""])
        if len(text) == size:
            return text[low - begin : high - begin]
    return ("\n" if size == 2 else " ") * (high - low)
