"""Open formats: OpenDocument (LibreOffice) and EPUB books."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pointsman.ingest.converters.archive import Archive, Paragraphs, document_title
from pointsman.ingest.converters.markup import html_blocks
from pointsman.ingest.encoding import decode
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
_ODF_TABLES = {"table": "tbl", "table-row": "tr", "table-cell": "tc"}
_ODF_SKIPPED = (f"{_ODF['text']}tracked-changes", f"{_ODF['office']}annotation")
_ODF_CHARACTERS = {f"{_ODF['text']}tab": "\t", f"{_ODF['text']}line-break": "\n"}


def opendocument(path: str, data: bytes, kind: str) -> ParsedDocument:
    """Convert text (``odt``), sheets (``ods``) or slides (``odp``): headings, paragraphs, tables by rows."""
    archive = Archive(data, "OpenDocument file")
    return outline(path, kind, _odf_blocks(archive, kind), title=document_title(archive, "meta.xml"))


def _odf_blocks(archive: Archive, kind: str) -> Iterator[Block]:
    text = Paragraphs()
    skipped = page = number = 0
    tags = [_ODF["text"] + name for name in ("h", "p")]
    tags += [_ODF["table"] + name for name in _ODF_TABLES]
    for event, element in archive.elements("content.xml", *tags, f"{_ODF['draw']}page", inline=_ODF_SKIPPED):
        tag = element.tag.rpartition("}")[2]
        if element.tag in _ODF_SKIPPED:
            skipped += 1 if event == "start" else -1
        elif skipped:
            continue
        elif tag in ("h", "p"):
            if event == "end":
                text.add(_odf_text(element))
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
            yield from text.close(_ODF_TABLES.get(tag, ""), page=page, number=rows)


def _odf_text(paragraph: _Element) -> str:
    from lxml import etree  # only these formats need it

    texts: list[str] = []
    for event, node in etree.iterwalk(paragraph, ("start", "end")):
        if event == "start":
            if node.tag == f"{_ODF['text']}s":
                count = node.get(f"{_ODF['text']}c", "1")
                texts.append(" " * min(int(count) if count.isdecimal() else 1, 100))
            texts.append(_ODF_CHARACTERS.get(node.tag, "") + (node.text or ""))
        elif node is not paragraph:
            texts.append(node.tail or "")
    return "".join(texts)


def epub(path: str, data: bytes) -> Iterator[ParsedDocument | Problem]:
    """Yield the chapters of a book in reading order; an unreadable chapter is reported, the others are kept."""
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
            _, chapter_blocks = html_blocks(clean(decode(archive.read(chapter), may_declare=True)))
            blocks += [block._replace(lines=None) for block in chapter_blocks]
        except InputError as error:
            yield Problem(path, f"chapter {chapter!r:.200}: {error}")
    if not blocks:
        raise InputError("EPUB book without text")
    yield outline(path, "epub", blocks, title=document_title(archive, package))
