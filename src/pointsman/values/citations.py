"""Locates hits, writes them as numbered sources of a prompt, and checks an answer against them.

``cite`` locates a hit, ``to_prompt`` writes hits for a language model, and ``verify`` looks up every quote and number
of its answer in them, without a model. All three treat document text as data: no text in a document can pass for
another source.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Final, Literal, Protocol

from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import form_of

Style = Literal["quoted", "xml"]
PageKind = Literal["page", "sheet", "slide", "cell", "record", "message"]

PAGE_KINDS: Final[Mapping[str, PageKind]] = {
    "xlsx": "sheet", "ods": "sheet", "pptx": "slide", "odp": "slide", "ipynb": "cell", "json": "record",
    "mbox": "message",
}  # fmt: skip
"""What a page is called in formats that do not have pages, by a document's ``kind``."""

NAMES: Final = frozenset({
    "title", "name", "имя", "название", "наименование", "заголовок", "名称", "名字", "姓名", "标题",
})  # fmt: skip
"""Fields whose value is what a person calls a record of a table or of JSON, in lower case."""

_RECORDS: Final = frozenset({"csv", "tsv", "json", "jsonl"})
"""The ``kind`` of documents that are records."""

_PAGE_KEYS: Final = {"json": "record", "mbox": "message"}
"""The key of a page's number in metadata, by a document's ``kind``; elsewhere it is ``page``."""

_CAPTION_CHARS: Final = 60


class _Text(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def title(self) -> str: ...


class _Named(_Text, Protocol):
    @property
    def id(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


class _HasParts(Protocol):
    @property
    def spans(self) -> tuple[tuple[int, int], ...]: ...


class Hit(Protocol):
    """Protocol of what can be cited, such as `pointsman.values.types.Hit`."""

    @property
    def id(self) -> str:
        """The document's id."""
        ...

    @property
    def dataset(self) -> str | None:
        """The dataset of the document."""
        ...

    @property
    def text(self) -> str:
        """The text to cite."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The document's metadata."""
        ...

    @property
    def document(self) -> _Text:
        """The document as it is stored."""
        ...

    @property
    def excerpt(self) -> _HasParts | None:
        """The parts that compression kept."""
        ...


@dataclass(frozen=True, slots=True)
class Citation:
    """The location of a hit.

    Attributes:
        source: the file name given at indexing; the document's id if it is not from a file.
        hash: SHA-256 of the file's bytes, in hexadecimal digits; None if it is not from a file.
        page: the number of the page, sheet, slide, notebook cell, JSON record or message of a mailbox where it begins,
            from 1. Of a hit that spans pages, it is that of the sentence that surely answers the question, if one does;
            see `answer_span`.
        page_end: the number of the one where it ends.
        page_kind: which of these it is; None without ``page``.
        lines: its first and last line in the file, or row in the sheet, from 1.
        start: offset of its first character in the source's text (`Dataset.text`): ``text[start:end]`` is the quote.
            None if the document has a source but no position in it.
        end: offset after its last character.
        quote: the quoted text. If compression omitted parts, ``start`` and ``end`` enclose all of them.
        title: the document's title and the enclosing headings, or an empty string.
        id: the document's id.
        dataset: the document's dataset.
        note: why the document is not in force, or an empty string.
        member: the name of the file within ``source`` from which it is: an attachment, or a file in an archive.
    """

    source: str
    hash: str | None
    page: int | None
    page_kind: PageKind | None
    lines: tuple[int, int] | None
    start: int | None
    end: int | None
    quote: str
    title: str
    id: str
    dataset: str | None
    note: str = ""
    page_end: int | None = None
    member: str | None = None

    FORM: ClassVar = ("place", "source", "hash", "member", "page", "page_end", "page_kind", "lines", "start", "end")

    @property
    def place(self) -> str:
        """The place in words, such as ``guide.md, lines 12-18``."""
        return str(self)

    def __str__(self) -> str:
        """Return a text such as ``guide.md, lines 2-8``, ``book.pdf, pages 3-4`` or ``prices.xlsx, sheet 2, row 5``."""
        pages = None if self.page is None else (self.page, self.page_end or self.page)
        return _place(self.source, self.member, pages, self.page_kind, self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON form."""
        fields = ("quote", "title", "id", "dataset")
        return {**self.where(), **{name: getattr(self, name) for name in fields}}

    def where(self) -> dict[str, Any]:
        """Return what it adds to its hit, in JSON form: its ``place``, file, page, lines and offsets."""
        return form_of(self)


def cite(hit: Hit) -> Citation:
    """Return the location of a hit, as far as its document's metadata contains it.

    >>> from pointsman.values.types import Document, Hit
    >>> metadata = {"source": "guide.md", "line": 12, "last_line": 18, "start": 300, "end": 320}
    >>> str(cite(Hit(Document("guide.md#1", "Switches guide trains", metadata), 1.0)))
    'guide.md, lines 12-18'
    """
    metadata = hit.metadata
    source, sha256 = metadata.get("source"), metadata.get("sha256")
    start, end = _number(metadata.get("start")), _number(metadata.get("end"))
    if not (isinstance(source, str) and source):  # it is not from a file, so its own text is the source
        source, start, end = hit.id, 0, len(hit.document.text)
    span = getattr(hit, "answer", None)
    if hit.excerpt is not None and hit.excerpt.spans:
        span = hit.excerpt.spans[0][0], hit.excerpt.spans[-1][1]
        start, end = (None, None) if start is None else (start + span[0], start + span[1])
    pages = _pages(metadata, span)
    return Citation(
        source=source,
        hash=sha256 if isinstance(sha256, str) else None,
        page=pages and pages[0],
        page_end=pages and pages[1],
        page_kind=pages and page_kind(metadata.get("kind")),
        lines=_lines(metadata),
        start=start if end is not None else None,
        end=end if start is not None else None,
        quote=hit.text,
        title=hit.document.title,
        id=hit.id,
        dataset=hit.dataset,
        note=str(getattr(hit, "not_in_force", None) or ""),
        member=_member(metadata),
    )


def name_of(document: _Named) -> str:
    """Return what a person calls the whole that a document is of: its title, its record, or its file, or ""."""
    if title := document.title.strip():
        return title
    source = document.metadata.get("source")
    file = PurePath(source).name if isinstance(source, str) else ""
    return _name_of_record(document.metadata) or file if file.strip() else ""


def caption_of(document: _Named, file_name: str | None = None) -> str:
    """Return what a person calls a document: its title, or its file and where it stands there, or its first words.

    With the name of a file, it is that of one among others that would be called the same.

    A record of a table or of JSON is called by its field of `NAMES`, if it has one.

    >>> from pointsman.values.types import Document
    >>> caption_of(Document("1", "A red signal stops trains.", {"title": "Signals", "source": "book/signals.md"}))
    'Signals'
    >>> caption_of(Document("2", "A red signal stops trains.", {"source": "book/signals.md", "line": 3}))
    'signals.md, line 3'
    >>> caption_of(Document("3", "Name: Ann", {"source": "staff.csv", "kind": "csv", "line": 4, "Name": "Ann"}))
    'Ann'
    >>> caption_of(Document("4", "A red signal stops trains. A green one lets them pass, until the evening comes."))
    'A red signal stops trains. A green one lets them pass, …'
    >>> caption_of(Document("5", "A red signal stops trains.", {"title": "Signals"}), "book/signals.md")
    'Signals (book/signals.md)'
    """
    metadata = document.metadata
    if name := document.title if document.title.strip() else _name_of_record(metadata):
        return f"{name} ({_one_line(file_name)})" if file_name else name
    if file := file_name or name_of(document):
        return _place(file, _member(metadata), _pages(metadata), page_kind(metadata.get("kind")), _lines(metadata))
    words = " ".join(document.text[: 10 * _CAPTION_CHARS].split())
    if len(words) <= _CAPTION_CHARS:
        return words or document.id
    beginning = words[: _CAPTION_CHARS - 1]
    return f"{beginning.rpartition(' ')[0] or beginning} …"


def _name_of_record(metadata: Mapping[str, Any]) -> str:
    if metadata.get("kind") not in _RECORDS:
        return ""
    values = (value for name, value in metadata.items() if name.lower() in NAMES and isinstance(value, str))
    return next((text for value in values if 0 < len(text := " ".join(value.split())) <= _CAPTION_CHARS), "")


def answer_span(document: _Named, question: str) -> tuple[int, int] | None:
    """Return where the sentences begin and end that may answer a question, if one surely does and pages are spanned.

    That one shares six different words or more with it, and two thirds of its words; others may answer it, too, if they
    share more than a fifth of that. None otherwise: then all pages are cited. Chosen with 7,924 English and Chinese
    questions, of which none was answered elsewhere; with the end of a page in the last sentence of the paragraph that
    answers, none of 6,939 others in three languages, either, and one page is cited for .17 of them
    (``benchmarks/places.py --squad``).
    """
    if _number(document.metadata.get("page_break")) is None:
        return None
    words = set(DEFAULT_ANALYZER.query_tokens(question))
    spans = sentences(document.text)
    counts = [len(words.intersection(DEFAULT_ANALYZER.tokens(document.text[start:end]))) for start, end in spans]
    largest_count = max(counts, default=0)
    if largest_count < max(6, len(words) * 2 / 3):
        return None
    near_spans = [span for span, count in zip(spans, counts, strict=True) if count * 5 > largest_count]
    return near_spans[0][0], near_spans[-1][1]


def _pages(metadata: Mapping[str, Any], span: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Return the numbers of its first and last page, or of what stands for pages in the format.

    With a span of its text, they are those of that part, as far as it is known where its pages begin.
    """
    pages = _range(metadata, _PAGE_KEYS.get(str(metadata.get("kind")), "page"), "page_end")
    page_break = _number(metadata.get("page_break"))
    if pages is None or span is None or page_break is None:
        return pages
    return (pages[0], pages[0]) if span[1] <= page_break else (pages[0] + (span[0] >= page_break), pages[1])


def _lines(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    return _range(metadata, "line", "last_line")


def _range(metadata: Mapping[str, Any], first_key: str, last_key: str) -> tuple[int, int] | None:
    first = _number(metadata.get(first_key))
    return None if first is None else (first, max(_number(metadata.get(last_key)) or first, first))


def _member(metadata: Mapping[str, Any]) -> str | None:
    member = metadata.get("member")
    return member if isinstance(member, str) and member.strip() else None


def _place(
    source: str, member: str | None, pages: tuple[int, int] | None, kind: PageKind | None, lines: tuple[int, int] | None
) -> str:
    """Return a place in words."""
    ranges = ((kind, pages), ("row" if kind == "sheet" else "line", lines))
    locations = [
        f"{unit}s {numbers[0]}-{numbers[1]}" if numbers[1] > numbers[0] else f"{unit} {numbers[0]}"
        for unit, numbers in ranges
        if numbers
    ]
    return ", ".join([*map(_one_line, filter(None, (source, member))), *locations])


def page_kind(kind: object) -> PageKind:
    """Return what a page of a document of this ``kind`` is called.

    >>> page_kind("xlsx"), page_kind("pdf")
    ('sheet', 'page')
    """
    return PAGE_KINDS.get(kind, "page") if isinstance(kind, str) else "page"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def about_tokens(text: str) -> int:
    """Estimate tokens as one per three bytes of UTF-8: more than tokenizers produce for English, Chinese or Russian.

    >>> about_tokens("Railway switches guide trains.")
    10
    """
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def to_prompt(hits: Iterable[Hit], *, max_tokens: int = 3000, style: Style = "quoted") -> str:
    """Write hits as numbered sources for a language model, best first, up to a number of tokens.

    A source has the number of its hit, from 1, as in `verify`. The last source that fits is cut at the end of a
    sentence; those after it are omitted.

    Args:
        hits: a context, or its hits.
        max_tokens: limit for the whole text, by `about_tokens`.
        style: ``"quoted"``: a line with number and place, then the text with ``>`` before each line; ``"xml"``:
            ``<source id="1" place="…">`` around it.

    Raises:
        InputError: the style is unknown, or ``max_tokens`` is below 1.
    """
    if style not in _STYLES:
        raise InputError(f"style is one of {', '.join(_STYLES)}, not {style!r}")
    if not isinstance(max_tokens, int) or max_tokens < 1:
        raise InputError(f"max_tokens is 1 or more, not {max_tokens!r:.80}")
    blocks: list[str] = []
    remaining = max_tokens
    for number, hit in enumerate(hits, start=1):
        block = _STYLES[style](number, cite(hit), hit.text)
        cost = about_tokens(block) + 1  # plus the separator before it
        if cost > remaining:
            blocks += _shorten(number, hit, _STYLES[style], remaining)
            break
        blocks.append(block)
        remaining -= cost
    return "\n\n".join(blocks)


def _shorten(number: int, hit: Hit, write: Callable[[int, Citation, str], str], tokens: int) -> list[str]:
    """Return the source with as many whole sentences as fit; an empty list if not even the first one fits."""
    ends = [end for _, end in sentences(hit.text)]

    def source(end: int) -> str:
        return write(number, cite(hit), hit.text[:end])

    count = bisect_right(ends, tokens, key=lambda end: about_tokens(source(end)) + 1)
    return [source(ends[count - 1])] if count else []


def _quote_passage(number: int, citation: Citation, text: str) -> str:
    title = f" ({_one_line(citation.title)})" if citation.title else ""
    # Every line is marked, including those that only some programs see as lines, so none can pass for a heading.
    note = f", {_one_line(citation.note)}" if citation.note else ""
    return "\n".join([f"[{number}] {citation}{title}{note}", *(f"> {line}" for line in text.splitlines())])


def _xml(number: int, citation: Citation, text: str) -> str:
    location, title, note = (_escape(_one_line(value)) for value in (str(citation), citation.title, citation.note))
    attributes = (f' title="{title}"' if title else "") + (f' note="{note}"' if note else "")
    return f'<source id="{number}" place="{location}"{attributes}>\n{_escape(text)}\n</source>'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _one_line(text: str) -> str:
    return " ".join(_CONTROL.sub(" ", text).split())


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STYLES: dict[str, Callable[[int, Citation, str], str]] = {"quoted": _quote_passage, "xml": _xml}


# ── checking an answer against the hits ──────────────────────────────────────────────────────────────────────────────
