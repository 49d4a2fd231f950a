"""HTML: headings, text and tables are kept, and what forms and pictures say; scripts and navigation are dropped."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pointsman.ingest.converters.paragraphs import FORMS, Paragraphs, list_number, read_formulas, superscript_mark
from pointsman.ingest.source_text import TOO_DEEP, Block, ParsedDocument, join_wrapped, outline, stated_title
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

_SKIPPED_TAGS = ("script", "style", "nav", "template", "iframe", "object", "head", "desc", "metadata")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "  # noqa: SIM905  (a list would fill pages)
    "footer form header hr html legend li main noscript ol p pre section summary svg table tbody text tfoot thead tr "
    "ul".split()
)
_SPACED = frozenset({"td", "th", "option", "textarea", "input", "button", "img"})
_UNSEEN_INPUTS = frozenset({"hidden", "password", "checkbox", "radio", "color", "range"})
_ARTICLES = frozenset(
    {"article", "aside", "blockquote", "figure", "main", "section"}
)  # their footers belong to the text
_LONGEST_CELL = 1000  # characters; a table with longer ones arranges the page
_MOST_SPANNED = 65_534  # rows, as browsers limit it
_LAST_LINE = 65_000  # the parser counts lines only up to 65,535
_BREAK = "\x00"  # stands for <br> while white space is collapsed


def html(path: str, text: str) -> ParsedDocument:
    """Split by ``h1`` to ``h6``; scripts, styles, navigation and a page's own footer are dropped.

    Raises:
        InputError: The page has no text, or see `html_blocks`.
    """
    title, blocks = html_blocks(text)
    if not blocks and path.lower().endswith(".svg"):
        raise InputError("a drawing without words")
    if not blocks:
        raise InputError(
            "HTML without text: scripts, navigation and footers are not read; if a script renders the page, save it "
            "from a browser"
        )
    return outline(path, "html", blocks, title=stated_title(title))


def html_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title of a page and its blocks; a block's lines end where the next one begins.

    Raises:
        InputError: Elements are nested so deeply that the parser gave up, and text would be lost.
    """
    from lxml import etree  # only HTML needs it

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    if not text.strip():
        return "", []
    try:
        root = etree.fromstring(text.encode("utf-8", errors="replace"), parser)
    except etree.XMLSyntaxError as error:
        raise InputError(f"HTML that cannot be parsed: {error}") from error
    if any("depth" in entry.message for entry in parser.error_log):
        raise InputError(f"HTML {TOO_DEEP}")
    if root is None:
        return "", []
    title = " ".join("".join(map(str, element.itertext())) for element in root.iterfind("head/title"))
    footers = [
        element
        for element in root.iter("footer")
        if not any(ancestor.tag in _ARTICLES for ancestor in element.iterancestors())
    ]
    for element in footers:
        element.tag = "template"  # a page's own footer is skipped
    read_formulas(root)
    etree.strip_elements(root, *_SKIPPED_TAGS, with_tail=False)
    collector = _Collector(text.split("\n"))
    collector.read(root)
    last = text.count("\n") + 1
    if last > _LAST_LINE:
        return title, [block._replace(lines=None) for block in collector.blocks]
    lines = pairwise([*collector.begins, last])
    return title, [
        block._replace(lines=line_range, exact=False) for block, line_range in zip(collector.blocks, lines, strict=True)
    ]


class _Collector:
    """Collects running text and breaks it where block elements begin and end."""

    def __init__(self, source_lines: list[str]) -> None:
        self._source_lines = source_lines
        self.blocks: list[Block] = []
        self.begins: list[int] = []  # the line on which each block begins, or an earlier one
        self._line = 1
        self._buffer: list[str] = []
        self._in_heading = False
        self._number = ""  # of the item of a list that begins, until its text is there
        self._lists: list[tuple[int, int, str]] = []  # the next number of open lists, its step and its form, if any

    def read(self, root: _Element) -> None:
        """Collect the text of an element, and end the last block."""
        from lxml import etree  # only HTML needs it

        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                self._close(element)
                continue
            self._open(element)
            if element.tag == "table" and _is_data(element):
                self._table(element)
                walk.skip_subtree()
        self._flush()

    def _open(self, element: _Element) -> None:
        tag = element.tag
        if tag in _HEADINGS or (tag in _BLOCKS and not self._in_heading):
            self._flush()
            self._line = max(_line_of(element), self._line)
        self._in_heading = self._in_heading or tag in _HEADINGS
        if tag in ("ol", "ul"):
            step, form = -1 if "reversed" in element.attrib else 1, FORMS.get(element.get("type", "1"), "decimal")
            first = 1 if step > 0 else sum(1 for _ in element.iterchildren("li"))
            self._lists.append((_whole_number(element.get("start"), first), step, form if tag == "ol" else ""))
        elif tag == "li" and self._lists and self._lists[-1][2]:
            number, step, form = self._lists[-1]
            number = _whole_number(element.get("value"), number)
            is_known = number <= 26 or not form.endswith("Letter")  # after z, browsers go on in another way than Word
            self._number = f"{list_number(number, form)}. " if is_known else ""
            self._lists[-1] = number + step, step, form
        self._buffer.append(_BREAK if tag == "br" else "  " if tag in _SPACED else "")
        if tag == "sup":
            self._buffer.append(superscript_mark("".join(self._buffer[-9:]), next(map(str, element.itertext()), "")))
        self._buffer.append(_words(element))

    def _close(self, element: _Element) -> None:
        tag = element.tag
        if tag in _HEADINGS:
            self._flush(_HEADINGS[tag])
            self._in_heading = False
        elif tag in _BLOCKS and not self._in_heading:
            self._flush(verbatim=tag == "pre")
        if tag in ("ol", "ul"):
            self._lists.pop()
        elif tag == "li":
            self._number = ""
        self._buffer.append("  " if tag in _SPACED else "")
        self._buffer.append(element.tail or "")

    def _table(self, table: _Element) -> None:
        for caption in table.iterchildren("caption"):
            self._buffer.append(_inner_text(caption))
            self._flush()
        for block in _table_rows(table):
            self.blocks.append(block)
            self.begins.append(max(block.lines[0] if block.lines else 0, self._line))
            self._line = self.begins[-1]

    def _flush(self, level: int = 0, *, verbatim: bool = False) -> None:
        raw = text = "".join(self._buffer)
        self._buffer.clear()
        if not verbatim:
            text = "\n".join(map(_one_line, text.split(_BREAK)))
        if text.strip():
            number, self._number = self._number, ""
            starts = () if verbatim or number or "\n" not in raw else self._line_starts(raw, text)
            self.blocks.append(Block(level, number + text.replace(_BREAK, "\n"), line_starts=starts))
            self.begins.append(self._line)

    def _line_starts(self, raw: str, text: str) -> tuple[tuple[int, int], ...]:
        """Return where the lines of the file begin in a paragraph; empty if they cannot be told for certain.

        What is not shown between its words, such as a comment of several lines, makes the count wrong; then a line of
        the file does not hold the words that it should.
        """
        starts: list[tuple[int, int]] = []
        offset = 0
        for number, part in enumerate(raw.split("\n")):
            words = part.split()
            if not words:
                continue
            line = self._line + number
            if line > len(self._source_lines) or words[0] not in self._source_lines[line - 1]:
                return ()
            offset = text.find(words[0], offset)
            starts.append((offset, line))
            offset += len(" ".join(words))
        return tuple(starts) if len(starts) > 1 and starts[0][0] == 0 and offset == len(text) else ()


def _one_line(text: str) -> str:
    return " ".join(join_wrapped(text).split())


def _words(element: _Element) -> str:
    """Return what is seen where an element begins: its text, what a picture shows, or what stands in a field."""
    if element.tag == "img":
        return element.get("alt") or ""
    if element.tag == "input":
        is_seen = element.get("type", "text").lower() not in _UNSEEN_INPUTS
        return element.get("alt") or element.get("value") or "" if is_seen else ""
    return element.text or ""


def _line_of(element: _Element) -> int:
    line = element.sourceline
    return line if isinstance(line, int) else 0


def _whole_number(value: str | None, default: int) -> int:
    return int(value) if value and len(value) < 10 and value.removeprefix("-").isdecimal() else default


def _is_data(table: _Element) -> bool:
    """Whether a table has rows of cells that belong together; others arrange the parts of a page."""
    if table.get("role") in ("presentation", "none") or len(table) == 0:
        return False
    if next(table.iterdescendants("table", "pre", *_HEADINGS), None) is not None:
        return False
    rows = 0
    for row in table.iterdescendants("tr"):
        cells = list(row.iterchildren("td", "th"))
        rows += len(cells) > 1
        if any(sum(map(len, cell.itertext())) > _LONGEST_CELL for cell in cells):
            return False
    return rows > 1


def _inner_text(element: _Element) -> str:
    if len(element) == 0:
        return _one_line(element.text or "")
    collector = _Collector([])
    collector.read(element)
    return " ".join(block.text for block in collector.blocks)


def _table_rows(table: _Element) -> list[Block]:
    """Return a table as blocks, each under its header; their lines are those on which their rows begin."""
    paragraphs = Paragraphs()
    blocks = list(paragraphs.open("tbl"))
    columns_left = 10_000  # a page of cells that claim to span a thousand columns each would be stored as bars
    for row in table.iterdescendants("tr"):
        for cell in row.iterchildren("td", "th"):
            paragraphs.cover()
            columns, rows = (_whole_number(cell.get(name), 1) for name in ("colspan", "rowspan"))
            columns = max(min(columns, columns_left), 1)
            columns_left += 5 - columns
            blocks += paragraphs.open("tc")
            paragraphs.add(_inner_text(cell))
            blocks += paragraphs.paragraph()
            rows = min(rows, _MOST_SPANNED) if rows > 0 else _MOST_SPANNED
            blocks += paragraphs.close("tc", columns=columns, rows=rows)
        paragraphs.cover()
        blocks += paragraphs.close("tr", number=_line_of(row))
    return [*blocks, *paragraphs.close("tbl")]
