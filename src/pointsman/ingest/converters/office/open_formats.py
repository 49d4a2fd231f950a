"""Open formats: OpenDocument (LibreOffice) and EPUB books."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pointsman.ingest.converters.office.archive import Archive, document_title
from pointsman.ingest.converters.paragraphs import Paragraphs
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.encoding import PartDecoder
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, outline
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

_ODF = {
    "text": "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}",
    "table": "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}",
    "draw": "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}",
    "office": "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}",
}
_ODF_OBJECT, _ODF_HREF = f"{_ODF['draw']}object", "{http://www.w3.org/1999/xlink}href"
_ODF_TABLES = {"table": "tbl", "table-row": "tr", "table-cell": "tc", "covered-table-cell": "tc"}
_ODF_SKIPPED = (f"{_ODF['text']}tracked-changes", f"{_ODF['office']}master-styles")
_ODF_MARKS = (f"{_ODF['text']}note-citation", f"{_ODF['office']}annotation")  # their paragraphs are read by themselves
_ODF_CHARACTERS = {f"{_ODF['text']}tab": "\t", f"{_ODF['text']}line-break": "\n"}


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
    """Yield the headers and footers of pages, each text once."""
    member = "styles.xml" if "styles.xml" in archive.names else "content.xml"
    style = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
    tags = [f"{style}{place}{of}" for place in ("header", "footer") for of in ("", "-left", "-first")]
    texts: dict[str, None] = {}
    for event, element in archive.elements(member, *tags):
        if event == "end":
            paragraphs = element.iter(f"{_ODF['text']}p", f"{_ODF['text']}h")
            texts["\n".join(_odf_text(paragraph) for paragraph in paragraphs)] = None
    yield from (Block(0, text, is_alone=True) for text in texts)


def _odf_blocks(archive: Archive, kind: str, member: str = "content.xml") -> Iterator[Block]:
    """Yield the blocks of a part; where another document stands in it, such as a chart, those of that one."""
    text = Paragraphs()
    skipped = page = number = 0
    tags = [_ODF["text"] + name for name in ("h", "p")]
    tags += [_ODF["table"] + name for name in _ODF_TABLES]
    marks = [f"{_ODF['draw']}page", *([_ODF_OBJECT] if member == "content.xml" else [])]
    for event, element in archive.elements(member, *tags, *marks, inline=_ODF_SKIPPED):
        tag = element.tag.rpartition("}")[2]
        if element.tag in _ODF_SKIPPED:
            skipped += 1 if event == "start" else -1
        elif skipped:
            continue
        elif tag == "object":
            yield from _inner_document(archive, element.get(_ODF_HREF, ""), page) if event == "start" else ()
        elif tag in ("h", "p"):
            if event == "end":
                text.add(_comment_author(element) + _odf_text(element))
                level = element.get(f"{_ODF['text']}outline-level", "1") if tag == "h" else "0"
                yield from text.paragraph(int(level) if level.isdecimal() and len(level) < 3 else 1, page=page)
        elif event == "start" and tag == ("table" if kind == "ods" else "page"):
            page, number = page + 1, 0
            yield Block(1, element.get(element.tag.partition("}")[0] + "}name", ""), page=page)
        if event == "start":
            yield from text.open(_ODF_TABLES.get(tag, ""))
        else:
            if tag == "table-row":
                repeat = element.get(f"{_ODF['table']}number-rows-repeated", "1")
                number += int(repeat) if repeat.isdecimal() and len(repeat) < 9 else 1
            rows = number if kind == "ods" else None
            spans = [element.get(f"{_ODF['table']}number-{name}", "1") for name in _ODF_SPANS]
            tall, repeated = (min(int(span), 1 << 20) if span.isdecimal() else 1 for span in spans)
            yield from text.close(
                _ODF_TABLES.get(tag, ""), page=page, number=rows, rows=tall, repeated=repeated,
                is_covered=tag == "covered-table-cell",
            )  # fmt: skip


def _inner_document(archive: Archive, folder: str, page: int) -> Iterator[Block]:
    member = posixpath.normpath(f"{folder}/content.xml")
    if member in archive.names and member not in archive.opened:  # each once: many places may name one
        yield from (block._replace(level=0, page=page) for block in _odf_blocks(archive, "chart", member))


def _odf_text(paragraph: _Element) -> str:
    from lxml import etree  # only these formats need it

    texts: list[str] = []
    mark_depth = 0  # of marks
    for event, node in etree.iterwalk(paragraph, ("start", "end")):
        is_mark = node.tag in _ODF_MARKS
        if is_mark and event == "start":
            mark_depth += 1
        elif event == "start" and not mark_depth:
            if node.tag == f"{_ODF['text']}s":
                count = node.get(f"{_ODF['text']}c", "1")
                texts.append(" " * min(int(count) if count.isdecimal() else 1, 100))
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


_ODF_SPANS = ("rows-spanned", "columns-repeated")


def epub(path: str, data: bytes, encoding: str | None) -> Iterator[ParsedDocument | Problem]:
    """Yield the chapters of a book in reading order; an unreadable chapter is reported, the others are kept.

    ``encoding`` is that of `PartDecoder`.
    """
    decoder = PartDecoder(encoding)
    archive = Archive(data, "EPUB book")
    containers = archive.elements("META-INF/container.xml", "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile")
    package = next((element.get("full-path", "") for _, element in containers), "")
    opf = "{http://www.idpf.org/2007/opf}"
    items: dict[str, str] = {}
    chapters: list[str] = []
    for event, element in archive.elements(package, f"{opf}item", f"{opf}itemref"):
        if event == "start" and element.tag == f"{opf}item":
            target = posixpath.join(posixpath.dirname(package), unquote(element.get("href", "")))
            items[element.get("id", "")] = posixpath.normpath(target)
        elif event == "start":
            chapters.append(items.get(element.get("idref", ""), ""))
    blocks: list[Block] = []
    for chapter in dict.fromkeys(chapters):
        try:
            _, chapter_blocks = html_blocks(
                clean(decoder.decode(archive.read(chapter), f"chapter {chapter!r:.200}", may_declare=True))
            )
            blocks += [block._replace(lines=None) for block in chapter_blocks]
        except InputError as error:
            yield Problem(path, f"chapter {chapter!r:.200}: {error}")
    if not blocks:
        raise InputError("EPUB book without text")
    yield outline(path, "epub", blocks, title=document_title(archive, package))
    yield from (Problem(path, remark) for remark in decoder.remarks)
