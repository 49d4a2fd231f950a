"""Word documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from pointsman.ingest.converters.office.archive import (
    FORMULA,
    Archive,
    document_title,
    drawing_blocks,
    formula_text,
)
from pointsman.ingest.converters.office.list_numbers import ListNumbers
from pointsman.ingest.converters.paragraphs import Paragraphs, superscript_mark
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.source_text import Block, Problem, clean, outline
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

    from pointsman.ingest.conversion import Conversion, Converted

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_BY_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)
_TAGS = tuple(_WORD + name for name in ("p", "tbl", "tr", "tc"))
_TEXT = (*(_WORD + name for name in ("t", "tab", "br", "cr", "noBreakHyphen")), f"{_DRAWING}docPr", FORMULA)
_CHARACTERS = dict(zip(_TEXT[1:5], "\t\n\n-", strict=True))
_SKIPPED = (
    f"{_WORD}moveFrom",
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same text again
)
_BESIDE_TEXT = re.compile(r"word/(?:header|footer)\d*\.xml")
_NAME, _VALUE, _STYLE_ID = f"{_WORD}name", f"{_WORD}val", f"{_WORD}styleId"
_PARAGRAPH_PROPERTIES, _STYLE, _NUMBERING = f"{_WORD}pPr", f"{_WORD}pStyle", f"{_WORD}numPr"
_RUN, _RUN_PROPERTIES, _LETTERS = f"{_WORD}r", f"{_WORD}rPr", f"{_WORD}t"


def docx(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Convert paragraphs, headings by style, tables by rows; then notes, comments, charts, headers and footers."""
    archive = Archive(data, "Word document")
    reader = _WordReader(archive, conversion)
    yield outline(path, "docx", reader.blocks(), title=document_title(archive))
    yield from (Problem(path, problem) for problem in reader.problems())


class _WordReader:
    """Reads the parts of one document, and records what is left out."""

    def __init__(self, archive: Archive, conversion: Conversion) -> None:
        mains = [name for name in archive.names if re.fullmatch(r"word/document\d*\.xml", name)]
        if not mains:
            raise InputError("damaged Word document: it has no word/document.xml")
        self._archive, self._conversion, self._main = archive, conversion, mains[0]
        self._hidden_runs: set[_Element | None] = set()
        self._raised_runs: set[_Element | None] = set()
        self._hidden = 0
        self._unread: list[str] = []

    @cached_property
    def _relations(self) -> dict[str, str]:
        return self._archive.relations(self._main)

    @cached_property
    def _numbers(self) -> _Numbers:
        return _Numbers(self._archive)

    def blocks(self) -> Iterator[Block]:
        names = set(self._archive.names)
        for name in (self._main, "word/footnotes.xml", "word/endnotes.xml"):
            if name in names:
                yield from self._part(name)
        if "word/comments.xml" in names:
            for comment in self._archive.ends("word/comments.xml", f"{_WORD}comment"):
                text = " ".join(node.text or "" for node in comment.iter(f"{_WORD}t"))
                yield Block(0, f"Comment by {comment.get(f'{_WORD}author') or 'somebody'}: {text}")
        drawings = {name for name in names if "/charts/chart" in name or "/diagrams/data" in name}
        for name in self._relations.values() if drawings else ():
            if name in drawings:
                yield from drawing_blocks(self._archive, name)
        texts: dict[str, None] = {}  # a document may have one header for each of its parts
        for name in sorted(filter(_BESIDE_TEXT.fullmatch, names)):
            texts |= dict.fromkeys(block.text for block in self._part(name))
        yield from (Block(0, text, is_alone=True) for text in texts)

    def problems(self) -> Iterator[str]:
        if self._hidden:
            yield f"{self._hidden} pieces of hidden text are left out; show them in Word to index them"
        yield from self._unread

    @cached_property
    def _styles(self) -> dict[str, tuple[int, tuple[str, int] | None]]:
        """Heading levels and lists by style id. Word stores built-in styles under English names."""
        styles: dict[str, tuple[int, tuple[str, int] | None]] = {}
        has_styles = "word/styles.xml" in self._archive.names
        for style in self._archive.ends("word/styles.xml", f"{_WORD}style") if has_styles else ():
            name, properties = _child(style, _NAME), _child(style, _PARAGRAPH_PROPERTIES)
            title = "" if name is None else name.get(_VALUE, "")
            heading = _HEADING_STYLE.fullmatch(title)
            level = int(heading[1]) + 1 if heading else int(title == "Title")
            styles[style.get(_STYLE_ID, "")] = level, None if properties is None else _numbering_of(properties)
        return styles

    def _part(self, member: str) -> Iterator[Block]:
        text = Paragraphs()
        tags = (*_TAGS, f"{_WORD}altChunk", f"{_WORD}vanish", f"{_WORD}vertAlign")
        for event, element in self._archive.elements(member, *tags, skipped=_SKIPPED):
            tag = element.tag.removeprefix(_WORD)
            if tag == "p":
                yield from text.paragraph(self._paragraph(element, text)) if event == "end" else ()
            elif tag in ("vanish", "vertAlign"):
                properties, form = element.getparent(), element.get(_VALUE, "1")
                if properties is not None and form not in ("0", "false", "baseline", "subscript"):
                    (self._hidden_runs if tag == "vanish" else self._raised_runs).add(properties.getparent())
            elif tag == "altChunk":
                name = self._relations.get(element.get(_BY_ID, ""), "")
                yield from self._imported_files(name) if event == "end" else ()
            elif event == "start":
                yield from text.open(tag)
            elif tag == "tc":
                properties = _child(element, f"{_WORD}tcPr")
                values = {} if properties is None else {node.tag: node.get(_VALUE, "") for node in properties}
                width, merge = values.get(f"{_WORD}gridSpan", ""), values.get(f"{_WORD}vMerge")
                columns, rows = int(width) if width.isdecimal() else 1, 1 << 30 if merge == "restart" else 1
                yield from text.close(tag, columns=columns, rows=rows, is_covered=merge not in (None, "restart"))
            else:
                yield from text.close(tag)

    def _paragraph(self, paragraph: _Element, text: Paragraphs) -> int:
        """Add the text of a paragraph with its number, and return its level as a heading."""
        level, numbering = 0, None
        segments: list[str] = []
        for child in paragraph:
            tag = child.tag
            if tag == _PARAGRAPH_PROPERTIES:
                style = _child(child, _STYLE)
                if style is not None:
                    level, numbering = self._styles.get(style.get(_VALUE, ""), (0, None))
                numbering = _numbering_of(child) or numbering
            elif tag != _RUN or child in self._hidden_runs:
                segments += self._texts(child) if len(child) else ()
            else:
                is_raised = child in self._raised_runs
                for node in child:
                    if node.tag == _LETTERS:
                        letters = node.text or ""
                        segments.append(superscript_mark("".join(segments[-9:]), letters) if is_raised else "")
                        segments.append(letters)
                    elif node.tag in _CHARACTERS:
                        segments.append(_CHARACTERS[node.tag])
                    elif len(node) and node.tag != _RUN_PROPERTIES:
                        segments += self._texts(node)
        for runs in filter(None, (self._hidden_runs, self._raised_runs)):
            runs.difference_update(paragraph.iter())  # those of a paragraph around this one are still to be met
        words = "".join(segments)
        text.add(self._numbers.next(*numbering) if numbering and words.strip() else "")
        text.add(words)
        return level

    def _texts(self, element: _Element) -> Iterator[str]:
        """Yield what is shown of an element other than a plain run."""
        for node in element.iter(*_TEXT):
            if self._hidden_runs and node.getparent() in self._hidden_runs:
                self._hidden += node.tag == _LETTERS
            elif node.tag == f"{_DRAWING}docPr":
                yield f" {description} " if (description := node.get("descr")) else ""
            else:
                yield _CHARACTERS.get(node.tag) or formula_text(node)

    def _imported_files(self, name: str) -> Iterator[Block]:
        """Yield the text of an imported part, which Word shows as if it were its own."""
        if name.lower().endswith((".html", ".htm", ".xhtml")) and name in self._archive.names:
            part, label = self._archive.read(name), f"imported part {name!r:.100}"
            _, blocks = html_blocks(clean(self._conversion.decode(part, label, may_declare=True)))
            yield from (block._replace(lines=None, line_starts=()) for block in blocks)
        else:
            self._unread.append(f"an imported part, {name!r:.100}, is not read; save the document anew in Word")


def _child(element: _Element, tag: str) -> _Element | None:
    return next(element.iterchildren(tag), None)


def _numbering_of(properties: _Element) -> tuple[str, int] | None:
    """Return the list and the level that paragraphs with these properties belong to."""
    numbering = _child(properties, _NUMBERING)
    if numbering is None:
        return None
    values = {node.tag.removeprefix(_WORD): node.get(_VALUE, "") for node in numbering}
    level = values.get("ilvl", "0")
    return values.get("numId", ""), int(level) if level in set("012345678") else 0


class _Numbers:
    """Counts the numbers that Word shows before the paragraphs of its lists."""

    def __init__(self, archive: Archive) -> None:
        self._numbers = ListNumbers()
        self._lists: dict[str, str] = {}
        if "word/numbering.xml" not in archive.names:
            return
        for element in archive.ends("word/numbering.xml", f"{_WORD}abstractNum", f"{_WORD}num"):
            if element.tag == f"{_WORD}num":
                abstract = element.find(f"{_WORD}abstractNumId")
                identity = "" if abstract is None else abstract.get(_VALUE, "")
                name = element.get(f"{_WORD}numId", "")
                starts = element.find(f"{_WORD}lvlOverride/{_WORD}startOverride") is not None
                self._lists[name] = f"{identity}/{name}" if starts else identity
            else:
                self._numbers.levels[element.get(f"{_WORD}abstractNumId", "")] = {
                    int(level.get(f"{_WORD}ilvl", "0")): _level(level)
                    for level in element.iter(f"{_WORD}lvl")
                    if level.get(f"{_WORD}ilvl", "").isdecimal()
                }

    def next(self, name: str, level: int) -> str:
        """Return the next number of a list, such as ``2.1. ``; empty for bullets."""
        return self._numbers.next(self._lists.get(name, ""), level)


def _level(level: _Element) -> tuple[int, str, str]:
    values = {node.tag.removeprefix(_WORD): node.get(_VALUE, "") for node in level}
    start = values.get("start", "1")
    begin = int(start) if start.isdecimal() and len(start) < 6 else 1
    return begin, values.get("numFmt", ""), values.get("lvlText", "")
