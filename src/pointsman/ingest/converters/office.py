"""Word documents, PowerPoint presentations and Excel workbooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pointsman.ingest.converters.archive import Archive, Paragraphs, document_title
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, Row, outline, table_blocks
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAW = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BY_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)


def docx(path: str, data: bytes) -> ParsedDocument:
    """Convert paragraphs, headings by style, tables by rows, and last foot- and endnotes."""
    archive = Archive(data, "Word document")
    return outline(path, "docx", _word_blocks(archive), title=document_title(archive))


def _word_blocks(archive: Archive) -> Iterator[Block]:
    levels = _word_levels(archive) if "word/styles.xml" in archive.names else {}
    main_documents = [name for name in archive.names if re.fullmatch(r"word/document\d*\.xml", name)]
    if not main_documents:
        raise InputError("damaged Word document: it has no word/document.xml")
    for name in (main_documents[0], "word/footnotes.xml", "word/endnotes.xml"):
        if name in archive.names:
            yield from _word_part(archive, name, levels)


def _word_levels(archive: Archive) -> dict[str, int]:
    """Return heading levels by style id. Word stores built-in styles under English names."""
    levels: dict[str, int] = {}
    style = ""
    for event, element in archive.elements("word/styles.xml", f"{_WORD}style", f"{_WORD}name"):
        if event == "start" and element.tag == f"{_WORD}style":
            style = element.get(f"{_WORD}styleId", "")
        elif event == "start":
            name = element.get(f"{_WORD}val", "")
            if heading := _HEADING_STYLE.fullmatch(name):
                levels[style] = int(heading[1]) + 1
            elif name == "Title":
                levels[style] = 1
    return levels


def _word_part(archive: Archive, member: str, levels: dict[str, int]) -> Iterator[Block]:
    text = Paragraphs()
    skipped = 0
    tags = tuple(_WORD + name for name in ("p", "tbl", "tr", "tc"))
    for event, element in archive.elements(member, *tags, inline=_WORD_SKIPPED):
        tag = element.tag.removeprefix(_WORD)
        if element.tag in _WORD_SKIPPED:
            skipped += 1 if event == "start" else -1
        elif skipped:
            continue
        elif tag == "p":
            if event == "end":
                level = 0
                for node in element.iter(*_WORD_TEXT):
                    level = levels.get(node.get(f"{_WORD}val", ""), level) if node.tag == _WORD_TEXT[0] else level
                    text.add(_WORD_CHARACTERS.get(node.tag, node.text or ""))
                yield from text.paragraph(level)
        else:
            yield from text.open(tag) if event == "start" else text.close(tag)


_WORD_TEXT = tuple(_WORD + name for name in ("pStyle", "t", "tab", "br", "cr", "noBreakHyphen"))
_WORD_CHARACTERS = dict(zip(_WORD_TEXT[2:], "\t\n\n-", strict=True))
_WORD_SKIPPED = (
    f"{_WORD}moveFrom",
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same text again
)


def pptx(path: str, data: bytes, most_pages: int) -> Iterator[ParsedDocument | Problem]:
    """Convert slides to pages: the title as heading, text, tables, and the speaker's notes."""
    archive = Archive(data, "PowerPoint presentation")
    relations = archive.relations("ppt/presentation.xml")
    slides = [
        relations.get(element.get(_BY_ID, ""), "")
        for event, element in archive.elements("ppt/presentation.xml", f"{_SLIDE}sldId")
        if event == "start"
    ]
    if len(slides) > most_pages:
        yield Problem(path, f"{len(slides)} slides; only the first {most_pages} are read")
    blocks: list[Block] = []
    for page, slide in enumerate(slides[:most_pages], start=1):
        if slide not in archive.names:
            yield Problem(path, f"slide {page} is not in the file")
            continue
        slide_blocks = sorted(_slide_blocks(archive, slide, page), key=lambda block: not block.level)
        if slide_blocks and not slide_blocks[0].level:
            slide_blocks[0] = slide_blocks[0]._replace(level=1)  # otherwise its text would belong to the previous slide
        notes = [name for name in archive.relations(slide).values() if "notesSlide" in name and name in archive.names]
        blocks += slide_blocks + [
            block for name in notes for block in _slide_blocks(archive, name, page, shape_type="body")
        ]
    yield outline(path, "pptx", blocks, title=document_title(archive))


def _slide_blocks(archive: Archive, slide: str, page: int, *, shape_type: str | None = None) -> Iterator[Block]:
    text = Paragraphs()
    holder = ""  # the role of the current shape
    tags = (f"{_SLIDE}sp", f"{_SLIDE}ph", *(_DRAW + name for name in ("p", "tbl", "tr", "tc")))
    for event, element in archive.elements(slide, *tags):
        tag = element.tag.rpartition("}")[2]
        if tag == "sp":
            holder = ""
        elif tag == "ph":
            holder = element.get("type", "body")
        elif holder in ("sldNum", "dt", "ftr") or (shape_type and holder != shape_type):
            continue
        elif tag == "p":
            if event == "end":
                for node in element.iter(f"{_DRAW}t", f"{_DRAW}br"):
                    text.add("\n" if node.tag.endswith("br") else node.text or "")
                yield from text.paragraph(1 if holder in ("title", "ctrTitle") else 0, page=page)
        else:
            yield from text.open(tag) if event == "start" else text.close(tag, page=page)


def xlsx(path: str, data: bytes) -> ParsedDocument:
    """Convert sheets to pages, each under its name: groups of numbered rows under the header."""
    archive = Archive(data, "Excel workbook")
    return outline(path, "xlsx", _workbook_blocks(archive), title=document_title(archive))


def _workbook_blocks(archive: Archive) -> Iterator[Block]:
    book = "xl/workbook.xml"
    relations = archive.relations(book)
    sheets: list[tuple[str, str]] = []
    begin = datetime(1899, 12, 30)  # noqa: DTZ001  (cells have no time zone)
    for event, element in archive.elements(book, f"{_SHEET}sheet", f"{_SHEET}workbookPr"):
        if event == "start" and element.tag.endswith("Pr") and element.get("date1904") in ("1", "true"):
            begin = datetime(1904, 1, 1)  # noqa: DTZ001  (as above)
        elif event == "start" and not element.tag.endswith("Pr"):
            sheets.append((element.get("name", ""), relations.get(element.get(_BY_ID, ""), "")))
    strings = _shared_strings(archive)
    dates = _date_styles(archive)
    for page, (name, member) in enumerate(sheets, start=1):
        if member in archive.names:
            yield Block(1, name, page=page)
            yield from table_blocks(_sheet_rows(archive, member, strings, dates, begin), page=page)


def _shared_strings(archive: Archive) -> list[str]:
    member = "xl/sharedStrings.xml"
    if member not in archive.names:
        return []
    items = archive.elements(member, f"{_SHEET}si")
    return [_string(element) for event, element in items if event == "end"]


def _string(element: _Element) -> str:
    """Return the text of a string item, without the phonetic readings above Chinese characters."""
    return "".join(
        node.text or ""
        for node in element.iter(f"{_SHEET}t")
        if (parent := node.getparent()) is None or parent.tag != f"{_SHEET}rPh"
    )


def _date_styles(archive: Archive) -> list[bool]:
    """Return for each style whether its cells are dates."""
    member = "xl/styles.xml"
    if member not in archive.names:
        return []
    formats: dict[str, bool] = {}
    styles: list[bool] = []
    for event, element in archive.elements(member, f"{_SHEET}numFmt", f"{_SHEET}cellXfs"):
        if event == "end" and element.tag.endswith("numFmt"):
            code = _QUOTATIONS.sub("", element.get("formatCode", "")[:1000])
            formats[element.get("numFmtId", "")] = any(char in "ymdhs" for char in code.lower())
        elif event == "end":
            ids = (style.get("numFmtId", "") for style in element.iter(f"{_SHEET}xf"))
            styles = [formats.get(format_id, format_id in _DATE_FORMATS) for format_id in ids]
    return styles


_QUOTATIONS = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.|_.|\*.|General', re.IGNORECASE)  # not codes in a number format
_DATE_FORMATS = frozenset(map(str, (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))))


def _sheet_rows(archive: Archive, member: str, strings: list[str], dates: list[bool], begin: datetime) -> Iterator[Row]:
    number = 0
    for event, row in archive.elements(member, f"{_SHEET}row"):
        if event == "start":
            continue
        number = int(row.get("r", "")) if row.get("r", "").isdecimal() else number + 1
        cells: list[str] = []
        for cell in row.iter(f"{_SHEET}c"):
            column = _column(cell.get("r", ""))
            cells += [""] * (min(column, _MOST_COLUMNS) - len(cells) - 1)
            cells.append(" ".join(_cell(cell, strings, dates, begin).split()))
        yield Row(tuple(cells), min(number, 1 << 30))


_MOST_COLUMNS = 1000  # up to this number, empty cells keep the columns aligned


def _column(reference: str) -> int:
    """Return the number of a cell's column, from 1: 28 for ``AB7``; 0 if the reference has none."""
    number = 0
    for letter in reference[:3]:
        if "A" <= letter <= "Z":
            number = 26 * number + ord(letter) - 64
    return number


def _cell(cell: _Element, strings: list[str], dates: list[bool], begin: datetime) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return _string(cell)
    value = cell.findtext(f"{_SHEET}v") or ""
    if kind == "s":
        return strings[int(value)] if value.isdecimal() and int(value) < len(strings) else ""
    if kind != "n" or not value:
        return {"b": "TRUE" if value == "1" else "FALSE", "e": ""}.get(kind, value)
    style = cell.get("s", "")
    return _number(value, begin if style.isdecimal() and int(style) < len(dates) and dates[int(style)] else None)


def _number(value: str, begin: datetime | None) -> str:
    """Format a number, or the date that many days after the start of the workbook's calendar."""
    try:
        amount = float(value)
    except ValueError:
        return value
    if begin and 0 <= amount < 2_958_466:
        return _date(begin + timedelta(days=amount), amount)
    return f"{amount:.15g}"


def _date(moment: datetime, serial: float) -> str:
    moment = (moment + timedelta(microseconds=500)).replace(microsecond=0)  # days are binary fractions
    if serial < 1:
        return moment.time().isoformat()
    return (moment.date() if serial == int(serial) else moment).isoformat().replace("T", " ")
