"""What a converter gives: the text of one document, its sections, and what could not be read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pointsman.text import repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LINE_END = re.compile(r"\r\n?|[\u2028\u2029]")
_SPACE = re.compile(r"[\x0b\x0c]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_CJK = r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
_CJK_WRAP = re.compile(rf"(?<={_CJK})[ \t]*\n[ \t]*(?={_CJK})")


@dataclass(frozen=True, slots=True)
class Problem:
    """A file, or a part of one, that was not indexed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Section:
    """The text below one heading; ``source.text[start:start + len(text)] == text``."""

    heading_path: tuple[str, ...]
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Source:
    """One document, extracted.

    Attributes:
        path: Its stable id: POSIX, relative to the indexed root.
        title: Its title, or an empty string.
        sections: Its text by heading, in order, without overlap.
        text: Everything extracted; sections and chunks point into it.
        kind: Its format, such as ``md`` or ``pdf``.
        metadata: JSON-serialisable values that every chunk carries.
        record_id: The id that a record brought along; a record that fits one chunk keeps it.
        pages: Where each page starts in ``text``, for formats that have pages.
        is_code: Whether lines, not sentences, are its units.
    """

    path: str
    title: str
    sections: tuple[Section, ...]
    text: str
    kind: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    record_id: str | None = None
    pages: tuple[int, ...] = ()
    is_code: bool = False


def clean(text: str) -> str:
    r"""Line ends as ``\n``, without control characters; a lone surrogate becomes U+FFFD.

    >>> clean("a\r\nb\x00c")
    'a\nbc'
    """
    text = _LINE_END.sub("\n", text)
    text = _CONTROL.sub("", _SPACE.sub(" ", text))
    return repair(text)


def join_wrapped(text: str) -> str:
    r"""Remove line ends between Chinese characters, where a line end separates nothing.

    >>> join_wrapped("铁路道\n岔 and\nmore")
    '铁路道岔 and\nmore'
    """
    return _CJK_WRAP.sub("", text)


def stem(path: str) -> str:
    """The name of a file without its ending, for documents that say no title."""
    return PurePosixPath(path).stem


def outline(
    path: str,
    kind: str,
    blocks: Iterable[tuple[int, str]],
    *,
    title: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Source:
    """Assemble a source from headings (level 1 and up) and blocks of text (level 0), in order.

    A heading that has neither text nor headings below it becomes a section of its own words, so nothing is lost.
    The title is the one given, else the first heading, else the name of the file.
    """
    parts: list[str] = []
    spans: list[tuple[tuple[str, ...], int, int]] = []
    stack: list[tuple[int, str]] = []
    bare: tuple[int, int] | None = None  # span of the latest heading while nothing stands below it
    position = 0

    def names() -> tuple[str, ...]:
        return tuple(name for _, name in stack)

    for level, raw in blocks:
        text = clean(raw).strip()
        if not text:
            continue
        parts.append(text)
        start, end = position, position + len(text)
        position = end + 2  # parts are joined by an empty line
        if level:
            text = " ".join(text.split())
            if bare and level <= stack[-1][0]:
                spans.append((names(), *bare))
            while stack and stack[-1][0] >= level:
                stack.pop()
            stack.append((level, text))
            title = title or text
            bare = (start, end)
        elif spans and bare is None and spans[-1][0] == names():
            spans[-1] = (spans[-1][0], spans[-1][1], end)
        else:
            spans.append((names(), start, end))
            bare = None
    if bare:
        spans.append((names(), *bare))
    full = "\n\n".join(parts)
    return Source(
        path=path,
        title=" ".join(clean(title).split()) or stem(path),
        sections=tuple(Section(names, full[start:end], start) for names, start, end in spans),
        text=full,
        kind=kind,
        metadata=dict(metadata or {}),
    )
