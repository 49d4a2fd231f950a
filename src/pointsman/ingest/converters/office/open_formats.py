"""Open formats: OpenDocument (LibreOffice) and EPUB books."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from itertools import chain, count
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pointsman.ingest.converters.office.archive import Archive, document_title, whole_number
from pointsman.ingest.converters.office.list_numbers import ListNumbers
from pointsman.ingest.converters.paragraphs import FORMS, Paragraphs, mathml_text, superscript_mark
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, outline
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

    from pointsman.ingest.conversion import Conversion, Converted

_ODF = {
    "text": "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}",
    "table": "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}",
    "draw": "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}",
    "office": "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}",
    "style": "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}",
}
_ODF_LETTERS, _ODF_POSITION = f"{_ODF['style']}text-properties", f"{_ODF['style']}text-position"
_ODF_OBJECT, _ODF_HREF = f"{_ODF['draw']}object", "{http://www.w3.org/1999/xlink}href"
_FORMULA = "{http://www.w3.org/1998/Math/MathML}math"
_ODF_PAGE, _ODF_TABLE, _ODF_ROW = f"{_ODF['draw']}page", f"{_ODF['table']}table", f"{_ODF['table']}table-row"
_ODF_HEADING, _ODF_PARAGRAPH = f"{_ODF['text']}h", f"{_ODF['text']}p"
_ODF_COVERED = f"{_ODF['table']}covered-table-cell"
_ODF_CELLS = (f"{_ODF['table']}table-cell", _ODF_COVERED)
_ODF_TAGS = (_ODF_HEADING, _ODF_PARAGRAPH, _ODF_PAGE, _ODF_TABLE, _ODF_ROW, *_ODF_CELLS)
_ODF_LIST, _ODF_ITEM = f"{_ODF['text']}list", f"{_ODF['text']}list-item"
_ODF_LIST_STYLES = (f"{_ODF['text']}list-style", f"{_ODF['text']}outline-style")
_ODF_SKIPPED = (f"{_ODF['text']}tracked-changes", f"{_ODF['office']}master-styles")
_ODF_MARKS = (f"{_ODF['text']}note-citation", f"{_ODF['office']}annotation")  # their paragraphs are read by themselves
_ODF_CHARACTERS = {f"{_ODF['text']}tab": "\t", f"{_ODF['text']}line-break": "\n"}
_ODF_SPACES = f"{_ODF['text']}s"
# Words beside the number of a page, which say nothing without it.
_PAGING = frozenset({"page", "of", "seite", "von", "стр", "страница", "лист", "из", *"第共页頁"})
_ODF_HEADER_ENDS = (b"header>", b"footer>", b"-left>", b"-first>", b"\x00")  # the last one in UTF-16


def opendocument(path: str, data: bytes, kind: str) -> ParsedDocument:
    """Convert text (``odt``), sheets (``ods``) or slides (``odp``): headings, paragraphs, tables by rows, headers.

    A flat file, one XML document, is read as if it were the only part of an archive.
    """
    if not data.startswith(b"PK"):
        packed_bytes = io.BytesIO()
        with zipfile.ZipFile(packed_bytes, "w") as flat:
            flat.writestr("content.xml", data)
        data = packed_bytes.getvalue()
    archive = Archive(data, "OpenDocument file")
    blocks = chain(_odf_blocks(archive, kind), _odf_headers(archive))
    return outline(path, kind, blocks, title=document_title(archive, "meta.xml"))


def _odf_headers(archive: Archive) -> Iterator[Block]:
    """Yield the headers and footers of pages, each text once, without numbers of pages and placeholders such as ???."""
    member = "styles.xml" if "styles.xml" in archive.names else "content.xml"
    data = archive.read(member)
    pages = data[max(data.find(b"master-styles"), 0) :]
    if not any(mark in pages for mark in _ODF_HEADER_ENDS):
        return  # most have none, and large styles
    tags = [f"{_ODF['style']}{place}{of}" for place in ("header", "footer") for of in ("", "-left", "-first")]
    texts: dict[str, None] = {}
    for element in archive.ends(member, *tags):
        for field in element.iter(f"{_ODF['text']}page-number", f"{_ODF['text']}page-count"):
            field.text = ""
        lines = map(_odf_text, element.iter(_ODF_PARAGRAPH, _ODF_HEADING))
        texts["\n".join(line for line in lines if set(re.findall(r"[a-zа-яё]+|[^\W0]", line.lower())) - _PAGING)] = None
    yield from (Block(0, text, is_alone=True) for text in texts)


def _odf_blocks(archive: Archive, kind: str, member: str = "content.xml") -> Iterator[Block]:
    """Yield the blocks of a part; where another document stands in it, such as a chart, those of that one."""
    text, lists = Paragraphs(), _lists_of(archive, member)
    page = number = 0
    page_tag = _ODF_TABLE if kind == "ods" else _ODF_PAGE
    tags = (
        *_ODF_TAGS,
        _ODF_LETTERS,
        _ODF_LIST,
        _ODF_ITEM,
        *_ODF_LIST_STYLES,
        *([_ODF_OBJECT] if member == "content.xml" else ()),
    )
    raised_styles: set[str | None] = set()
    for event, element in archive.elements(member, *tags, skipped=_ODF_SKIPPED):
        tag = element.tag
        is_start = event == "start"
        lists.begin(element) if is_start else lists.end(element)
        if tag in (_ODF_PARAGRAPH, _ODF_HEADING):
            yield from () if is_start else _paragraph(text, element, page, raised_styles, lists.labels.pop(element))
        elif tag in _ODF_CELLS:
            yield from text.open("tc") if is_start else _close_cell(text, element)
        elif tag == _ODF_ROW and not is_start:
            number += whole_number(element, _ODF_EQUAL_ROWS, 1 << 30)
            yield from text.close("tr", number=number if kind == "ods" else None)
        elif tag == _ODF_LETTERS:
            raised_styles |= _raised_style(element)
        elif tag == _ODF_OBJECT:
            yield from _inner_document(archive, element, page) if is_start else ()
        elif is_start:
            if tag == page_tag:
                page, number = page + 1, 0
                yield Block(1, element.get(tag.partition("}")[0] + "}name", ""), page=page)
            yield from text.open("tbl") if tag == _ODF_TABLE else ()
        elif tag == _ODF_TABLE:
            yield from text.close("tbl", page=page)


class _Lists:
    """Follows the lists of a document, and counts what Writer shows before their paragraphs, and before headings.

    Attributes:
        labels: What stands before the paragraphs that have begun.
    """

    def __init__(self) -> None:
        self._numbers, self._ordinals = ListNumbers(), count(1)
        self._open_lists: list[str] = []  # the outermost first
        self._latest_lists: dict[str, str] = {}  # of each style, and of each name that a list has
        self._item_level: int | None = None  # of an item that has begun, until its first paragraph does
        self.labels: dict[_Element, str] = {}

    def begin(self, element: _Element) -> None:
        """Take note of an element that begins."""
        if element.tag == _ODF_LIST:
            parent_list = self._open_lists[-1] if self._open_lists else ""
            style = element.get(_ODF_STYLE_NAME) or parent_list.partition("/")[0]
            continued_style = style if element.get(f"{_ODF['text']}continue-numbering") == "true" else ""
            new_list = f"{style}/{next(self._ordinals)}"
            identity = self._latest_lists.get(element.get(f"{_ODF['text']}continue-list", continued_style), new_list)
            identity = parent_list if parent_list.partition("/")[0] == style else identity
            self._latest_lists[style] = self._latest_lists[element.get(_XML_ID, style)] = identity
            self._open_lists.append(identity)
        elif element.tag == _ODF_ITEM:
            self._item_level = len(self._open_lists) - 1
            if element.get(_ODF_START):
                self._numbers.start(self._open_lists[-1], self._item_level, whole_number(element, _ODF_START, 9999))
        elif element.tag in (_ODF_PARAGRAPH, _ODF_HEADING):
            level, identity = self._item_level, (self._open_lists or [""])[-1]
            if level is None and element.tag == _ODF_HEADING and not element.get(f"{_ODF['text']}is-list-header"):
                level, identity = whole_number(element, _ODF_LEVEL, 99) - 1, _ODF_OUTLINE
            self.labels[element] = "" if level is None else self._numbers.next(identity, level)
            self._item_level = None

    def end(self, element: _Element) -> None:
        """Take note of an element that ends."""
        if element.tag == _ODF_LIST:
            self._open_lists.pop()
        elif element.tag == _ODF_ITEM:
            self._item_level = None
        elif element.tag in _ODF_LIST_STYLES:
            levels = {whole_number(level, f"{_ODF['text']}level", 10) - 1: _list_level(level) for level in element}
            self._numbers.levels[element.get(f"{_ODF['style']}name", _ODF_OUTLINE)] = levels


def _lists_of(archive: Archive, member: str) -> _Lists:
    """Return what follows the lists of a part; only the document itself has those of its styles."""
    lists = _Lists()
    if member == "content.xml" and "styles.xml" in archive.names:
        for style in archive.ends("styles.xml", *_ODF_LIST_STYLES):
            lists.end(style)
    return lists


_ODF_STYLE_NAME, _ODF_START, _ODF_OUTLINE = f"{_ODF['text']}style-name", f"{_ODF['text']}start-value", "Outline"
_XML_ID = "{http://www.w3.org/XML/1998/namespace}id"


def _list_level(level: _Element) -> tuple[int, str, str]:
    prefix, form, suffix = (level.get(f"{_ODF['style']}num-{name}", "") for name in ("prefix", "format", "suffix"))
    last = whole_number(level, f"{_ODF['text']}level", 10)
    first = last - whole_number(level, f"{_ODF['text']}display-levels", last) + 1
    numbers = ".".join(f"%{number}" for number in range(first, last + 1))
    return whole_number(level, _ODF_START, 9999), FORMS.get(form[:1], "decimal"), f"{prefix}{numbers}{suffix}"


def _raised_style(letters: _Element) -> set[str | None]:
    style = letters.getparent()
    is_raised = not letters.get(_ODF_POSITION, "0").startswith(("sub", "-", "0"))
    return {style.get(f"{_ODF['style']}name")} if is_raised and style is not None else set()


def _paragraph(text: Paragraphs, element: _Element, page: int, raised: set[str | None], label: str) -> Iterator[Block]:
    for span in element.iter(f"{_ODF['text']}span") if raised else ():
        if span.get(f"{_ODF['text']}style-name") in raised and span.text:
            sibling, parent = span.getprevious(), span.getparent()
            words = sibling.tail or sibling.text if sibling is not None else parent.text if parent is not None else ""
            span.text = superscript_mark(words or "", span.text) + span.text
    words = _comment_author(element) + _odf_text(element)
    text.add(label + words if words.strip() else words)
    return text.paragraph(whole_number(element, _ODF_LEVEL, 99) if element.tag == _ODF_HEADING else 0, page=page)


def _close_cell(text: Paragraphs, cell: _Element) -> Iterator[Block]:
    tall, repeated = whole_number(cell, _ODF_TALL, 1 << 20), whole_number(cell, _ODF_EQUAL, 1 << 20)
    return text.close("tc", rows=tall, repeated=repeated, is_covered=cell.tag == _ODF_COVERED)


_ODF_COUNT = f"{_ODF['text']}c"
_ODF_LEVEL, _ODF_TALL = f"{_ODF['text']}outline-level", f"{_ODF['table']}number-rows-spanned"
_ODF_EQUAL, _ODF_EQUAL_ROWS = f"{_ODF['table']}number-columns-repeated", f"{_ODF['table']}number-rows-repeated"


def _inner_document(archive: Archive, holder: _Element, page: int) -> Iterator[Block]:
    """Yield the blocks of a document within another; a formula becomes text of the paragraph in which it stands."""
    member = posixpath.normpath(f"{holder.get(_ODF_HREF, '')}/content.xml")
    if member not in archive.names or member in archive.opened:  # each once: many places may name one
        return
    formulas = [item.findtext(".//{*}annotation") or mathml_text(item) for item in archive.ends(member, _FORMULA)]
    frame = holder.getparent()
    if not formulas:
        yield from (block._replace(level=0, page=page) for block in _odf_blocks(archive, "chart", member))
    elif frame is None or next(frame.iterancestors(_ODF_PARAGRAPH, _ODF_HEADING), None) is None:
        yield Block(0, "\n".join(formulas), page=page)
    else:
        frame.text = " ".join(formulas)


def _odf_text(paragraph: _Element) -> str:
    if len(paragraph) == 0:
        return paragraph.text or ""
    if next(paragraph.iterdescendants(*_ODF_MARKS, *_ODF_CHARACTERS, _ODF_SPACES), None) is None:
        return "".join(map(str, paragraph.itertext()))
    from lxml import etree  # only these formats need it

    texts: list[str] = []
    mark_depth = 0  # of marks
    for event, node in etree.iterwalk(paragraph, ("start", "end")):
        is_mark = node.tag in _ODF_MARKS
        if is_mark and event == "start":
            mark_depth += 1
        elif event == "start" and not mark_depth:
            if node.tag == _ODF_SPACES:
                texts.append(" " * whole_number(node, _ODF_COUNT, 100))
            texts.append(_ODF_CHARACTERS.get(node.tag, "") + (node.text or ""))
        elif event == "end":
            mark_depth -= is_mark
            if node is not paragraph and not mark_depth:
                texts.append(node.tail or "")
    return "".join(texts)


def _comment_author(paragraph: _Element) -> str:
    """Return what stands before the paragraph of a comment; nothing before others."""
    parent = paragraph.getparent()
    if parent is None or not parent.tag.endswith("}annotation"):
        return ""
    return f"Comment by {parent.findtext('{http://purl.org/dc/elements/1.1/}creator') or 'somebody'}: "


def epub(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield the chapters of a book in reading order; an unreadable chapter is reported, the others are kept."""
    archive = Archive(data, "EPUB book")
    containers = archive.ends("META-INF/container.xml", "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile")
    package = next((element.get("full-path", "") for element in containers), "")
    opf = "{http://www.idpf.org/2007/opf}"
    items: dict[str, str] = {}
    chapters: list[str] = []
    for element in archive.ends(package, f"{opf}item", f"{opf}itemref"):
        if element.tag == f"{opf}item":
            target = posixpath.join(posixpath.dirname(package), unquote(element.get("href", "")))
            items[element.get("id", "")] = posixpath.normpath(target)
        else:
            chapters.append(items.get(element.get("idref", ""), ""))
    blocks: list[Block] = []
    for chapter in dict.fromkeys(chapters):
        try:
            _, chapter_blocks = html_blocks(
                clean(conversion.decode(archive.read(chapter), f"chapter {chapter!r:.200}", may_declare=True))
            )
            blocks += [block._replace(lines=None) for block in chapter_blocks]
        except InputError as error:
            yield Problem(path, f"chapter {chapter!r:.200}: {error}")
    if not blocks:
        raise InputError("EPUB book without text")
    yield outline(path, "epub", blocks, title=document_title(archive, package))
