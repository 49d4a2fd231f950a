"""Markdown, notebooks, reStructuredText and HTML: headings are kept, decoration is dropped."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, join_wrapped, outline
from pointsman.tools.errors import InputError
from pointsman.values.views import VALIDITY_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.{0,20000}?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"""^title[ \t]*:[ \t]*["']?(.+?)["']?[ \t]*$""", re.MULTILINE)
_FRONT_VALIDITY = re.compile(
    rf"""^({"|".join(VALIDITY_KEYS)})[ \t]*:[ \t]*["']?([^\n]{{1,1000}}?)["']?[ \t]*$""", re.MULTILINE
)
# Lengths are bounded so that a hostile line of brackets costs linear time.
_BADGE = re.compile(r"\[!\[[^\[\]\n]{0,300}\]\([^()\s]{0,1000}\)\]\([^()\s]{0,1000}\)")
_LINK = re.compile(r"""!?\[([^\[\]\n]{0,500})\]\([^()\s]{0,1000}(?:[ ]"[^"\n]{0,300}")?\)""")

_RST_LINE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*")
_RST_SILENT = re.compile(r"\.\.[ ](?:\|[^|\n]{1,200}\|[ ])?(?:image|figure|raw|contents|toctree|meta)::|\.\.[ ]_")
_RST_ROLE = re.compile(r":[A-Za-z][\w:.+-]{0,60}:`[~!]?([^`<>\n]{1,300}?)(?:[ ]<[^`<>\n]{0,300}>)?`")
_RST_SUBSTITUTION = re.compile(r"\|\w[\w.-]{0,60}\|_{0,2}")  # nearly always stands for a picture
_RST_LINK = re.compile(r"`([^`<>\n]{1,300}?)[ \n]<[^`<>\n]{0,1000}>`__?")

_SKIPPED_TAGS = (
    "script",
    "style",
    "nav",
    "noscript",
    "template",
    "svg",
    "iframe",
    "object",
    "button",
    "select",
    "footer",
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure form "  # noqa: SIM905  (a list would fill pages)
    "header hr html legend li main ol p pre section summary table tbody tfoot thead tr ul".split()
)
_LAST_LINE = 65_000  # the parser counts lines only up to 65,535
_BREAK = "\x00"  # stands for <br> while white space is collapsed


def markdown(path: str, text: str) -> ParsedDocument:
    """Split by headings; the text stays Markdown, without badges, link targets and raw HTML."""
    title, skipped, metadata = "", 0, dict[str, str]()
    if front := _FRONT_MATTER.match(text):
        title_line = _FRONT_TITLE.search(front[1])
        title = title_line[1] if title_line else ""
        metadata = dict(_FRONT_VALIDITY.findall(front[1]))
        skipped = front[0].count("\n")
        text = text[front.end() :]
    return outline(path, "md", _markdown_blocks(text, skipped), title=title, metadata=metadata)


def _markdown_blocks(text: str, skipped: int) -> Iterator[Block]:
    """Yield the blocks of Markdown; ``skipped`` lines of the file precede ``text``."""
    from markdown_it import MarkdownIt  # only Markdown needs it

    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])  # only block structure is needed
    lines = text.split("\n")
    tokens = parser.parse(text)
    position = 0
    for index, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        first, last = token.map
        if first < position:
            continue
        if first > position:
            yield Block(0, _plain("\n".join(lines[position:first])), (skipped + position + 1, skipped + first))
        level, block = _markdown_block(token, tokens[index + 1 : index + 2], "\n".join(lines[first:last]))
        yield Block(level, block, (skipped + first + 1, skipped + last), token.type != "html_block")
        position = last
    if position < len(lines):
        yield Block(0, _plain("\n".join(lines[position:])), (skipped + position + 1, skipped + len(lines)))


def _markdown_block(token: Token, following: list[Token], raw: str) -> tuple[int, str]:
    if token.type == "heading_open":
        return int(token.tag[1:]), re.sub(r"[*`]|<[^<>]{0,200}>", "", _plain(following[0].content))
    if token.type == "html_block":
        _, blocks = html_blocks(raw)
        return 0, "\n".join(block.text for block in blocks)
    return 0, raw if token.type in ("fence", "code_block") else _plain(raw)


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", _BADGE.sub("", text))


def restructured_text(path: str, text: str) -> ParsedDocument:
    """Split by underlined headings, whose levels follow the order in which the underline styles first appear."""
    return outline(path, "rst", _rst_blocks(text.split("\n")))


def _rst_blocks(lines: list[str]) -> Iterator[Block]:
    styles: list[str] = []
    index = begin = 0
    while index < len(lines):
        if heading := _rst_heading(lines, index):
            name, style, height = heading
            yield from _rst_body(lines, begin, index)
            if style not in styles:
                styles.append(style)
            begin = index + height
            yield Block(styles.index(style) + 1, _rst_plain(name), (index + 1, begin))
            index = begin
        elif _RST_SILENT.match(lines[index]):
            yield from _rst_body(lines, begin, index)
            index += 1
            while index < len(lines) and lines[index].startswith((" ", "\t")):
                index += 1
            begin = index
        else:
            index += 1
    yield from _rst_body(lines, begin, index)


def _rst_body(lines: list[str], begin: int, end: int) -> Iterator[Block]:
    if begin < end:
        yield Block(0, _rst_plain("\n".join(lines[begin:end])), (begin + 1, end))


def _rst_heading(lines: list[str], index: int) -> tuple[str, str, int] | None:
    """Return title, style and number of lines of the heading that starts at ``index``."""
    line, *following = (item.rstrip() for item in lines[index : index + 3])
    if len(following) == 2 and _RST_LINE.fullmatch(line) and following[1] == line and following[0].strip():
        return following[0].strip(), line[0] * 2, 3
    if not following or not line or line[0].isspace() or _RST_LINE.fullmatch(line):
        return None
    # Chinese characters are two columns wide, and authors count them either way.
    if _RST_LINE.fullmatch(following[0]) and len(following[0]) >= min(len(line), 4):
        return line, following[0][0], 2
    return None


def _rst_plain(text: str) -> str:
    return _RST_LINK.sub(r"\1", _RST_ROLE.sub(r"\1", _RST_SUBSTITUTION.sub("", text)))


def html(path: str, text: str) -> ParsedDocument:
    """Split by ``h1`` to ``h6``; scripts, styles and navigation are dropped, entities are decoded."""
    title, blocks = html_blocks(text)
    if not blocks:
        raise InputError("HTML without text; if a script renders the page, save it from a browser")
    return outline(path, "html", blocks, title=title)


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
        raise InputError("HTML nested too deeply for its parser; flatten the page")
    if root is None:
        return "", []
    title = " ".join("".join(map(str, element.itertext())) for element in root.iterfind("head/title"))
    etree.strip_elements(root, "head", *_SKIPPED_TAGS, with_tail=False)
    collector = _Collector(text.split("\n"))
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "start":
            collector.open(element.tag, element.text or "", element.sourceline or 0)
        else:
            collector.close(element.tag, element.tail or "")
    collector.flush()
    last = text.count("\n") + 1
    if last > _LAST_LINE:
        return title, collector.blocks
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

    def open(self, tag: str, text: str, line: int) -> None:
        if tag in _HEADINGS or (tag in _BLOCKS and not self._in_heading):
            self.flush()
            self._line = max(line, self._line)
        self._in_heading = self._in_heading or tag in _HEADINGS
        self._buffer.append(_BREAK if tag == "br" else "  " if tag in ("td", "th") else "")
        self._buffer.append(text)

    def close(self, tag: str, tail: str) -> None:
        if tag in _HEADINGS:
            self.flush(_HEADINGS[tag])
            self._in_heading = False
        elif tag in _BLOCKS and not self._in_heading:
            self.flush(verbatim=tag == "pre")
        self._buffer.append(tail)

    def flush(self, level: int = 0, *, verbatim: bool = False) -> None:
        raw = text = "".join(self._buffer)
        self._buffer.clear()
        if not verbatim:
            lines = join_wrapped(text).replace("\n", " ").split(_BREAK)
            text = "\n".join(" ".join(line.split()) for line in lines)
        if text.strip():
            starts = () if verbatim else self._line_starts(raw, text)
            self.blocks.append(Block(level, text.replace(_BREAK, "\n"), line_starts=starts))
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


def notebook(path: str, text: str, most_cells: int) -> Iterator[ParsedDocument | Problem]:
    """Convert a Jupyter notebook: cells become pages with Markdown and its headings, code, and printed text.

    Raises:
        InputError: The file is not a notebook.
    """
    try:
        content = json.loads(text)
        cells = content["cells"] if "cells" in content else content["worksheets"][0]["cells"]
        language = content.get("metadata", {}).get("kernelspec", {}).get("language", "")
        if not isinstance(cells, list):
            raise TypeError("its cells are not a list")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"no notebook: {type(error).__name__}: {error}") from error
    if len(cells) > most_cells:
        yield Problem(path, f"{len(cells)} cells; only the first {most_cells} are read")
    blocks: list[Block] = []
    for page, cell in enumerate(cells[:most_cells], start=1):
        if not isinstance(cell, dict):
            continue
        source = _join(cell.get("source", cell.get("input")))
        if cell.get("cell_type") in ("markdown", "heading"):
            blocks += [block._replace(lines=None, page=page) for block in _markdown_blocks(clean(source), 0)]
        else:
            blocks.append(Block(0, source, page=page))
            outputs = cell.get("outputs")
            texts = map(_output, outputs if isinstance(outputs, list) else ())
            blocks += [Block(0, text[:_LONGEST_OUTPUT], page=page) for text in texts]
    metadata = {"language_of_code": language} if isinstance(language, str) and language else {}
    yield outline(path, "ipynb", blocks, metadata=metadata)


_LONGEST_OUTPUT = 2000  # characters printed by one cell


def _join(value: object) -> str:
    """Return a string, or join a list of strings."""
    if isinstance(value, list):
        return "".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


def _output(output: object) -> str:
    if not isinstance(output, dict):
        return ""
    data = output.get("data")
    return _join(output.get("text")) or (_join(data.get("text/plain")) if isinstance(data, dict) else "")
