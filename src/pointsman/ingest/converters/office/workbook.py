"""Workbooks: Excel's present form by its XML, its older ones by calamine."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from pointsman.ingest.converters.office.archive import Archive, document_title, drawing_blocks, whole_number
from pointsman.ingest.converters.office.number_formats import BUILT_IN_FORMATS, FIRST_DAY, shown
from pointsman.ingest.converters.paragraphs import MOST_COLUMNS
from pointsman.ingest.source_text import Block, ParsedDocument, Row, outline, table_blocks
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BY_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_XML_SHEET = "{urn:schemas-microsoft-com:office:spreadsheet}"
_XML_INDEX = f"{_XML_SHEET}Index"  # of a row or cell that is not the next one
_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^>]{0,200}?ref=[\"']([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})[\"']")
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_HEADER_TAGS = tuple(f"{_SHEET}{which}{part}" for which in ("odd", "even", "first") for part in ("Header", "Footer"))
_HEADER_CODE = re.compile(r"&(?:\"[^\"]{0,200}\"|K[0-9A-Fa-f]{6}|\d{1,3}|.)")


def xlsx(path: str, data: bytes) -> ParsedDocument:
    """Convert sheets to pages, each under its name: groups of numbered rows under the header, then comments."""
    archive = Archive(data, "Excel workbook")
    return outline(path, "xlsx", _workbook_blocks(archive), title=document_title(archive))


def _workbook_blocks(archive: Archive) -> Iterator[Block]:
    book = "xl/workbook.xml"
    relations = archive.relations(book)
    sheets: list[tuple[str, str]] = []
    begin = FIRST_DAY
    for element in archive.ends(book, f"{_SHEET}sheet", f"{_SHEET}workbookPr"):
        if element.tag.endswith("Pr") and element.get("date1904") in ("1", "true"):
            begin = datetime(1904, 1, 1)  # noqa: DTZ001  (cells have no time zone)
        elif not element.tag.endswith("Pr"):
            is_hidden = "" if element.get("state", "visible") == "visible" else " (hidden sheet)"
            sheets.append((element.get("name", "") + is_hidden, relations.get(element.get(_BY_ID, ""), "")))
    cells = _Cells(_shared_strings(archive), _formats(archive), begin)
    for page, (name, member) in enumerate(sheets, start=1):
        if member in archive.names:
            yield Block(1, name, page=page)
            headers: dict[str, None] = {}
            yield from table_blocks(_sheet_rows(archive, member, cells, headers), page=page)
            yield from (Block(0, text, page=page, is_alone=True) for text in headers)
            yield from _beside_cells(archive, member, page)


def _beside_cells(archive: Archive, sheet: str, page: int) -> Iterator[Block]:
    """Yield the comments on a sheet, and the words of its drawings."""
    for member in archive.relations(sheet).values():
        if member not in archive.names:
            continue
        if re.search(r"/comments?[^/]*\.xml$", member):
            for comment in archive.ends(member, f"{_SHEET}comment"):
                yield Block(0, f"Comment on {comment.get('ref', '')}: {_string(comment)}", page=page)
        elif "/drawings/drawing" in member:
            yield from drawing_blocks(archive, member, page=page)
            for chart in archive.relations(member).values():
                if chart in archive.names and ("/charts/chart" in chart or "/diagrams/data" in chart):
                    yield from drawing_blocks(archive, chart, page=page)


def _shared_strings(archive: Archive) -> list[str]:
    member = "xl/sharedStrings.xml"
    if member not in archive.names:
        return []
    return [_string(element) for element in archive.ends(member, "{*}si")]  # some programs write no namespace


def _string(element: _Element) -> str:
    """Return the text of a string item, without the phonetic readings above Chinese characters."""
    text = "".join(
        node.text or ""
        for node in element.iter("{*}t")
        if (parent := node.getparent()) is None or not parent.tag.endswith("rPh")
    )
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text


def _formats(archive: Archive) -> list[str]:
    """Return for each style the number format of its cells."""
    member = "xl/styles.xml"
    if member not in archive.names:
        return []
    codes = dict(BUILT_IN_FORMATS)
    styles: list[str] = []
    for element in archive.ends(member, f"{_SHEET}numFmt", f"{_SHEET}cellXfs"):
        if element.tag.endswith("numFmt"):
            codes[element.get("numFmtId", "")] = element.get("formatCode", "")[:1000]
        else:
            styles = [codes.get(style.get("numFmtId", ""), "") for style in element.iter(f"{_SHEET}xf")]
    return styles


def _sheet_rows(archive: Archive, member: str, cells: _Cells, headers: dict[str, None]) -> Iterator[Row]:
    """Yield the rows of a sheet, and add the headers and footers of its pages, which stand below them."""
    tall = _tall_areas(archive, member)
    spanning: dict[int, tuple[str, int]] = {}  # by column: the text of a cell, and the last row that it spans
    number = 0
    for row in archive.ends(member, f"{_SHEET}row", *_HEADER_TAGS):
        if row.tag in _HEADER_TAGS:
            headers[" ".join(_HEADER_CODE.sub(_without_code, row.text or "").split())] = None
            continue
        number = int(row.get("r", "")) if row.get("r", "").isdecimal() else number + 1
        texts: list[str] = []
        for cell in row.iter(f"{_SHEET}c"):
            column = _column(cell.get("r", "")) or len(texts) + 1
            texts += [""] * (min(column, MOST_COLUMNS) - len(texts) - 1)
            texts.append(" ".join(cells.text(cell).split()))
        for column, (text, last) in list(spanning.items()):
            if number > last:
                del spanning[column]
            elif column <= MOST_COLUMNS:
                texts += [""] * (column - len(texts))
                texts[column - 1] = texts[column - 1] or text
        for column, last in tall.get(number, ()):
            if column <= len(texts) and texts[column - 1]:
                spanning[column] = texts[column - 1], last
        yield Row(tuple(texts), min(number, 1 << 30))


def _without_code(code: re.Match[str]) -> str:
    """Return what a code stands for: before the left, middle and right a space, for ``&&`` one mark, else nothing."""
    return {"&&": "&", "&L": " ", "&C": " ", "&R": " "}.get(code[0], "")


def _tall_areas(archive: Archive, member: str) -> dict[int, list[tuple[int, int]]]:
    """Return the merged cells that span rows: by first row, their columns and last rows.

    They stand below the rows of a sheet, and are needed above.
    """
    areas: dict[int, list[tuple[int, int]]] = {}
    with archive.open(member) as stream:
        tail = b""
        while block := stream.read(1 << 20):
            tail += block
            for first_column, top, _, bottom in _MERGED.findall(tail) if b"mergeCell" in tail else ():
                if int(bottom) > int(top):
                    areas.setdefault(int(top), []).append((_column(first_column.decode()), int(bottom)))
            tail = tail[-300:]
    return areas


def _column(reference: str) -> int:
    """Return the number of a cell's column, from 1: 28 for ``AB7``; 0 if the reference has none."""
    number = 0
    for letter in reference[:3]:
        if "A" <= letter <= "Z":
            number = 26 * number + ord(letter) - 64
    return number


class _Cells:
    """Writes cells as the sheet shows them."""

    def __init__(self, strings: list[str], formats: list[str], begin: datetime) -> None:
        self._strings, self._formats, self._begin = strings, formats, begin

    def text(self, cell: _Element) -> str:
        """Return the text of a cell; of a formula whose result is not stored, the formula."""
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _string(cell)
        parts = {part.tag: part.text or "" for part in cell}
        value = parts.get(f"{_SHEET}v", "")
        if not value:
            formula = parts.get(f"{_SHEET}f")
            return f"={formula}" if formula else ""
        if kind == "s":
            return self._strings[int(value)] if value.isdecimal() and int(value) < len(self._strings) else ""
        if kind != "n":
            return ("TRUE" if value == "1" else "FALSE") if kind == "b" else value
        style = cell.get("s", "")
        has_format = style.isdecimal() and int(style) < len(self._formats)
        return shown(value, self._formats[int(style)] if has_format else "", self._begin)


def xml_sheets(book: _Element) -> Iterator[Block]:
    """Yield the sheets of a workbook that is one XML file (Excel 2003) as pages, as `xlsx` does; without formats."""
    for page, sheet in enumerate(book.iter(f"{_XML_SHEET}Worksheet"), start=1):
        yield Block(1, sheet.get(f"{_XML_SHEET}Name", ""), page=page)
        yield from table_blocks(_xml_rows(sheet), page=page)


def _xml_rows(sheet: _Element) -> Iterator[Row]:
    number = 0
    for row in sheet.iter(f"{_XML_SHEET}Row"):
        number = number + 1 if row.get(_XML_INDEX) is None else whole_number(row, _XML_INDEX, 1 << 30)
        cells: list[str] = []
        for cell in row.iter(f"{_XML_SHEET}Cell"):
            cells += [""] * (whole_number(cell, _XML_INDEX, MOST_COLUMNS) - 1 - len(cells))
            words = " ".join(map(_xml_text, cell.iter(f"{_XML_SHEET}Data")))
            cells.append(" ".join(words.removesuffix("T00:00:00.000").split()))
        yield Row(tuple(cells[:MOST_COLUMNS]), number)


def _xml_text(content: _Element) -> str:
    text = str(content.xpath("string()"))
    return shown(text, "", FIRST_DAY) if content.get(f"{_XML_SHEET}Type") == "Number" else text


def old_workbook(path: str, data: bytes, kind: str) -> ParsedDocument:
    """Convert the sheets of an ``xls`` or ``xlsb`` workbook to pages, as `xlsx` does; without comments and drawings.

    Raises:
        InputError: The workbook is damaged or protected by a password.
    """
    from python_calamine import CalamineError, CalamineWorkbook  # few files need it

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        blocks: list[Block] = []
        for page, name in enumerate(book.sheet_names, start=1):
            sheet = book.get_sheet_by_name(name)
            first = sheet.start[0] + 1 if sheet.start else 1
            rows = (
                Row(tuple(" ".join(_plain_value(value).split()) for value in row[:MOST_COLUMNS]), number)
                for number, row in enumerate(sheet.iter_rows(), start=first if sheet.start else 1)
            )
            blocks += [Block(1, name, page=page), *table_blocks(rows, page=page)]
    except CalamineError as error:
        if "assword" in str(error):
            raise InputError("encrypted workbook, protected by a password; remove its password first") from error
        raise InputError(f"damaged workbook: {error}") from error
    return outline(path, kind, blocks)


def _plain_value(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else f"{value:.15g}"
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    return str(value).upper() if isinstance(value, bool) else str(value)
