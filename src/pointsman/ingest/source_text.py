"""The results of converters: the text of one document, its sections, and what could not be read."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from pointsman.text import repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_LINE_END = re.compile(r"\r\n?")
_SPACE = re.compile(r"[\x0b\x0c\u2028\u2029]")  # an editor's count of lines, and a table's rows, go on over these
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][0-9A-B])")  # colours, links
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_ASCII_SPACES = bytes.maketrans(b"\x0b\x0c", b"  ")
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROL.match(chr(code)))
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_CJK = r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
_CJK_WRAP = re.compile(rf"(?<={_CJK})[ \t]*\n[ \t]*(?={_CJK})")
_IDEOGRAPH = r"[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
_LINE_WRAP = re.compile(rf"(?<=[^\n]{{25}})(?<={_IDEOGRAPH})\n[ \t]*(?={_IDEOGRAPH})")  # a short line is one of its own


@dataclass(frozen=True, slots=True)
class Problem:
    """A file, or a part of one, that was not indexed, and the reason."""

    path: str
    reason: str


TOO_DEEP = "nested too deep to be read; save its inner parts as files of their own"
"""What is told of a file whose parts hold parts, hundreds of levels down."""


def text_digest(text: str, size: int = 6) -> str:
    """Return a fingerprint of ``size`` bytes in hexadecimal."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True)
class Section:
    """The text below one heading; ``source.text[start:start + len(text)] == text``.

    Attributes:
        heading_path: The enclosing headings, the outermost first.
        text: The text below them, or the innermost heading itself if it has no text.
        start: Where the text begins in the text of the source.
        own_headings: How many headings at the end of the path stand directly above the text, in no other section.
        headings_start: Where the first of these begins in the text of the source; None if there are none.
    """

    heading_path: tuple[str, ...]
    text: str
    start: int
    own_headings: int = 0
    headings_start: int | None = None

    @property
    def begin(self) -> int:
        """Where it begins with its own headings."""
        return self.start if self.headings_start is None else self.headings_start


class Lines(NamedTuple):
    """Lines of the file, counted from 1, from which a source's text comes, starting at ``offset`` in the text.

    ``exact`` means that each line of the text is a line of the file.
    """

    offset: int
    first: int
    last: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: its path, its id, and its size in bytes.

    ``alone`` means that it is the only file to index: then its records keep their own ids.
    """

    path: Path
    id: str
    size: int
    is_single: bool = False


class Block(NamedTuple):
    """A block of a document that becomes part of a `ParsedDocument`.

    Attributes:
        level: Level of a heading, from 1; 0 for text.
        text: The text as read; it is cleaned later.
        lines: First and last line of the file that it comes from.
        exact: Whether each of its lines is a line of the file.
        page: Page or slide, from 1; 0 in formats without pages.
        is_alone: Whether it is a separate section, not to be joined to the text around it.
        line_starts: Where lines of the file begin in the text, as (offset, line); of a text that is not exact.
        runs_on: Whether it goes on with the sentence in which the block before it ends.
    """

    level: int
    text: str
    lines: tuple[int, int] | None = None
    exact: bool = True
    page: int = 0
    is_alone: bool = False
    line_starts: tuple[tuple[int, int], ...] = ()
    runs_on: bool = False


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """One extracted document.

    Attributes:
        path: Its stable id: POSIX, relative to the indexed root.
        title: Its title, or an empty string.
        sections: Its text by heading, in order, without overlap.
        text: All extracted text, to which the offsets of sections and chunks refer.
        kind: Its format, such as ``md`` or ``pdf``.
        metadata: JSON-serialisable values that every chunk carries.
        record_id: The id contained in a record; a record that fits one chunk keeps it.
        record_digest: What names a record without an id within its file, else empty.
        pages: Where each page starts in ``text``, for formats with pages.
        lines: Which lines of the file the text comes from, in order, for formats with lines.
        is_code: Whether its units are lines instead of sentences.
        offset: Where ``text`` begins in the text of the whole file; see `text_of`.
        sha256: Digest of the file's bytes, in hexadecimal; empty if it does not come from a file.
        member: Its name in the file, if it is a file within another, such as ``docs/guide.md`` in an archive.
        image: The picture that it is, as JPEG, if pictures are wanted; then it is one passage.
    """

    path: str
    title: str
    sections: tuple[Section, ...]
    text: str
    kind: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    record_id: str | None = None
    pages: tuple[int, ...] = ()
    lines: tuple[Lines, ...] = ()
    is_code: bool = False
    offset: int = 0
    sha256: str = ""
    record_digest: str = ""
    member: str = ""
    image: bytes = b""

    @property
    def record_name(self) -> str | None:
        """The id of the record, or its path and digest; None for a source that is not a record."""
        if self.record_id is None and self.record_digest:
            return f"{self.path}#{self.record_digest}"
        return self.record_id

    def shorten(self, length: int) -> ParsedDocument:
        """Return the source cut after ``length`` characters."""
        sections = tuple(
            replace(section, text=section.text[: max(length - section.start, 0)]) for section in self.sections
        )
        return replace(self, text=self.text[:length], sections=sections)


def clean(text: str) -> str:
    r"""Normalise line ends to ``\n``, and remove control characters; a lone surrogate becomes U+FFFD.

    The commands of a terminal go, too: logs and notebooks hold those for colours.

    >>> clean("a\r\nb\x00c")
    'a\nbc'
    """
    text = _LINE_END.sub("\n", text) if "\r" in text else text
    text = _TERMINAL.sub("", text) if "\x1b" in text else text
    if text.isascii():  # most blocks are, and this is ten times faster
        return text.encode("ascii").translate(_ASCII_SPACES, _ASCII_CONTROLS).decode("ascii")
    text = _CONTROL.sub("", _SPACE.sub(" ", text))
    return repair(text)


_CODED = "[A-Za-z0-9+/]"
_IS_BASE64 = rf"(?={_CODED}*[a-z])(?={_CODED}*[A-Z])(?={_CODED}*[0-9])"  # no digest, no long word
_ENCODED = re.compile(
    rf"^[ \t]*{_IS_BASE64}{_CODED}{{60,}}\n(?:[ \t]*{_CODED}{{60,}}={{0,2}}\n)+"
    rf"(?:[ \t]*(?:{_CODED}{{16,}}={{0,2}}|{_CODED}{{2,}}==?)$)?|"
    rf"(?<!{_CODED}){_IS_BASE64}{_CODED}{{200,}}={{0,2}}|"
    r"^(?P<quote>[> ]*)begin 0?[0-7]{3} \S.*\n(?:(?P=quote)[ -`]{1,62}\n|[> ]*\n)++(?P=quote)end[ \t]*$",
    re.MULTILINE,
)
_MAY_BE_ENCODED = re.compile(rf"^[> ]*begin [0-7]|{_CODED}{{60}}", re.MULTILINE)


def without_encoded(text: str) -> tuple[str, str]:
    """Return a text without the files that are written into it, its lines kept, and a remark on what is left out."""
    if not _MAY_BE_ENCODED.search(text):
        return text, ""
    text, pieces = _ENCODED.subn(lambda piece: "\n" * piece[0].count("\n"), text)
    return text, f"{pieces} pieces in base64 or uuencode are left out; decode them to index them" if pieces else ""


def unescape_entities(text: str) -> str:
    """Replace references to characters, such as ``&rsquo;``, in a markup that has them from HTML.

    >>> unescape_entities("GSA&rsquo;s R&amp;D &#8212; AT&T ?a=1&copy=2")
    'GSA’s R&D — AT&T ?a=1&copy=2'
    """
    return _ENTITY.sub(lambda entity: " ".join(html.unescape(entity[0]).split("\n")), text) if "&" in text else text


def join_wrapped(text: str) -> str:
    r"""Remove line ends between Chinese characters, where they separate nothing.

    >>> join_wrapped("铁路道\n岔 and\nmore")
    '铁路道岔 and\nmore'
    """
    return text if text.isascii() else _CJK_WRAP.sub("", text)


def unwrapped(text: str) -> tuple[str, list[tuple[int, int]]]:
    r"""Join long lines that end between two Chinese or Japanese characters, as an editor breaks them within a word.

    Lines that end with punctuation stay: they may be meant, and no word is lost by them.

    Returns:
        The text, and where each line that was joined to another begins in it, with the line's number, from 0.

    >>> unwrapped("第一\n行\n当你的设备损坏或者丢失的时候，这些备份无法保护你，请把它们移\n  除。")
    ('第一\n行\n当你的设备损坏或者丢失的时候，这些备份无法保护你，请把它们移除。', [(35, 3)])
    """
    if text.isascii():
        return text, []
    pieces: list[str] = []
    starts: list[tuple[int, int]] = []
    position = length = line = 0
    for wrap in _LINE_WRAP.finditer(text):
        pieces.append(text[position : wrap.start()])
        length += len(pieces[-1])
        line += text.count("\n", position, wrap.end())
        starts.append((length, line))
        position = wrap.end()
    return "".join([*pieces, text[position:]]), starts


def stem(path: str) -> str:
    """Return the name of a file without its extension, as the title of documents without one."""
    return PurePosixPath(path).stem


_MADE_BY_PROGRAM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{20,}")
_LONGEST_NAME = 60


@lru_cache(maxsize=64)
def numbered_title(title: str, path: str) -> str:
    """Return the title of a file, followed by the file's name if that has a number which the title lacks.

    Minutes are often called by their date, bylaws and invoices by their number, in the name of the file alone.

    >>> numbered_title("Withdrawals", "eips/eip-7002.md"), numbered_title("Minutes 2018", "2018.pdf")
    ('Withdrawals (eip-7002)', 'Minutes 2018')
    """
    name = " ".join(_MADE_BY_PROGRAM.sub("", stem(path)).replace("_", " ").split())
    title_words = set(re.findall(r"\w+", title.casefold()))
    numbers = {word for word in re.findall(r"\w+", name.casefold()) if any(map(str.isdecimal, word))}
    return title if len(name) > _LONGEST_NAME or numbers <= title_words else f"{title} ({name})"


_UNNAMED_SHEET = re.compile(r"(sheet|tabelle|лист|工作表) ?\d{0,3}", re.IGNORECASE)
LONGEST_HEADING = 200
"""Longest heading, in characters; anything longer becomes text, whatever its markup."""


_PROGRAM = re.compile(r"Microsoft (?:Office )?(?:Word|Excel|PowerPoint|Publisher|Visio) - ")
_PROGRAMS_TITLE = re.compile(
    r"\W*(?:anonymous|unspecified|unknown|document|документ|文档|powerpoint presentation|презентация powerpoint|"
    r"powerpoint 演示文稿|(?:untitled|без имени|без названия|无标题|未命名)(?: ?(?:document|page|文档|页面))?|"
    r"(?:document|slide|layout|presentation|new page|документ|слайд|презентация|文档|幻灯片|演示文稿) ?\d+)"
    r"(?:[- ]\d+)?\W*",
    re.IGNORECASE,
)


def stated_title(title: str) -> str:
    """Return the title in the properties of a file, without the program's name; empty if a program wrote it by itself.

    >>> stated_title("Microsoft Word - Fees 2024"), stated_title("PowerPoint Presentation")
    ('Fees 2024', '')
    """
    title = " ".join(title.split())
    return "" if _PROGRAMS_TITLE.fullmatch(title) else _PROGRAM.sub("", title)


def outline(
    path: str, kind: str, blocks: Iterable[Block], *, title: str = "", metadata: Mapping[str, Any] | None = None
) -> ParsedDocument:
    """Assemble a source from headings (level 1 and up) and blocks of text (level 0), in order.

    A heading without text or headings below it becomes a section of its own words, so nothing is lost. The title is the
    given one, else the first heading unless it is the name that a program gives to a sheet, else the name of the file.
    """
    texts: list[str] = []
    lines: list[Lines] = []
    pages: list[int] = []
    spans: list[_Span] = []
    stack: list[tuple[int, str]] = []
    bare: tuple[int, int] | None = None  # range of the latest heading as long as nothing is below it
    run: list[int] = []  # where the latest headings begin, as long as no section has them
    position = 0
    names: tuple[str, ...] = ()
    open_ended = False  # whether the next text may extend the latest range
    for block in blocks:
        raw = clean(block.text)
        is_as_in_file = block.lines and block.exact and not block.level
        text, joined_lines = unwrapped(raw.strip()) if is_as_in_file else (raw.strip(), [])
        if block.runs_on and texts and text:
            texts[-1] = join_wrapped(f"{texts[-2][-1]}\n{text[0]}")[1:-1]
            position += len(texts[-1]) - 2
        while len(pages) < block.page:
            pages.append(position)
        if not text:
            continue
        texts += text, "\n\n"
        start, end = position, position + len(text)
        position = end + 2
        lines += _lines_of(block, raw, start, joined_lines)
        if block.level and len(text) <= LONGEST_HEADING:
            text = " ".join(text.split())
            if bare and block.level <= stack[-1][0]:
                spans.append(_Span(names, *bare, run))
                run = []
            while stack and stack[-1][0] >= block.level:
                stack.pop()
            stack.append((block.level, text))
            names = tuple(name for _, name in stack)
            is_unnamed_sheet = kind in ("xlsx", "ods") and _UNNAMED_SHEET.fullmatch(text)
            title = title or (stem(path) if is_unnamed_sheet else text)
            bare = (start, end)
            run.append(start)
        elif open_ended and bare is None and not block.is_alone and spans[-1].names is names:
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(_Span(names, start, end, run))
            bare, run = None, []
        open_ended = bool(spans) and not block.is_alone
    if bare:
        spans.append(_Span(names, *bare, run))
    full = "".join(texts[:-1])
    return ParsedDocument(
        path=path,
        title=" ".join(clean(title).split())[:LONGEST_HEADING] or stem(path),
        sections=tuple(
            Section(span.names, full[span.start : span.end], span.start, len(span.run), *span.run[:1]) for span in spans
        ),
        text=full,
        kind=kind,
        metadata=dict(metadata or {}),
        pages=tuple(pages),
        lines=tuple(lines),
    )


def _lines_of(block: Block, raw: str, start: int, joined_lines: list[tuple[int, int]]) -> Iterator[Lines]:
    """Yield the lines of a block whose cleaned text begins at ``start``; see `unwrapped`."""
    if block.lines:
        first, last = block.lines
        skipped = raw[: len(raw) - len(raw.lstrip())].count("\n") if block.exact else 0
        for offset, line in [(0, 0), *joined_lines]:
            yield Lines(start + offset, min(first + skipped + line, last), last, block.exact)
        for offset, line in block.line_starts:
            yield Lines(start + offset, line, line, exact=False)


class _Span(NamedTuple):
    """A future section: its heading path, its range in the text, and where the headings directly above it begin."""

    names: tuple[str, ...]
    start: int
    end: int
    run: list[int]


class Row(NamedTuple):
    """A row of a table: its cells, and its number in the sheet, from 1, if known."""

    cells: tuple[str, ...]
    number: int | None = None


def table_blocks(rows: Iterable[Row], *, page: int = 0) -> Iterator[Block]:
    """Yield a table as blocks of one passage each, one line per row, below the table's first row, its header.

    A header longer than the rows of a block is only above the first one, and so is a row that holds a sentence.
    """
    header: str | None = None
    waiting: Block | None = None  # the latest block, until it is known whether another one follows
    for lines, numbers in _stretches(rows):
        text = "\n".join(lines)
        if header and len(header) <= max(len(text), 200):
            text = f"{header}\n{text}"
        if header is None:
            header = "" if _SENTENCE_CELL.search(lines[0]) else lines[0]
        if waiting:
            yield waiting._replace(is_alone=True)
        line_range = (numbers[0], numbers[-1]) if numbers else None
        waiting = Block(0, text, line_range, exact=False, page=page, is_alone=waiting is not None)
    if waiting:
        yield waiting


def _stretches(rows: Iterable[Row]) -> Iterator[tuple[list[str], list[int]]]:
    """Yield groups of a table's lines up to a length, with their numbers if known."""
    lines: list[str] = []
    numbers: list[int] = []
    length = 0
    for row in rows:
        line = " | ".join(row.cells).rstrip(" |")
        if not line:
            continue
        if length + len(line) > _STRETCH and lines:
            yield lines, numbers
            length, lines, numbers = 0, [], []
        lines.append(line)
        length += len(line)
        if row.number is not None:
            numbers.append(row.number)
    if lines:
        yield lines, numbers


_SENTENCE_CELL = re.compile(r"[^|]{20,}[.!?。！？](?: \||\Z)")
_STRETCH = 350  # characters of rows: with the header less than a passage, even for digits
