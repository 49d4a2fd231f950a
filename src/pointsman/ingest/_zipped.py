"""Formats that are XML or HTML in a zip file: read as a stream, so a bomb costs what the limits say and no more."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from pointsman.errors import InputError
from pointsman.ingest.source import Block, Row, Source, outline, table_blocks

if TYPE_CHECKING:
    from lxml.etree import _Element

MAX_UNPACKED = 128 << 20
"""How much a part of a document may unpack to, in bytes; a few kilobytes of zip can hold gigabytes of zeros."""

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)


class Archive:
    """A zip file whose parts are read up to a limit."""

    def __init__(self, data: bytes, what: str) -> None:
        self._what = what
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise InputError(f"damaged {what}: {error}") from error
        self.names = self._zip.namelist()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A part of the document as a stream.

        Raises:
            InputError: It is not there, damaged, encrypted, or too large.
        """
        try:
            size = self._zip.getinfo(name).file_size
            if size > MAX_UNPACKED:  # the declared size binds: zipfile reads no further than it
                raise InputError(f"{self._what} unpacks to {size >> 20} MB, more than {MAX_UNPACKED >> 20} MB")
            with self._zip.open(name) as stream:
                yield stream
        except KeyError as error:
            raise InputError(f"damaged {self._what}: it has no {name}") from error
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise InputError(f"damaged or encrypted {self._what}: {error}") from error

    def read(self, name: str) -> bytes:
        """The whole content of a part; see `open`."""
        with self.open(name) as stream:
            return stream.read()

    def elements(self, name: str, *tags: str) -> Iterator[tuple[str, _Element]]:
        """Beginnings and ends of elements in order; an element is emptied after its end, so memory stays bounded.

        Raises:
            InputError: see `open`; or the part is no XML.
        """
        from lxml import etree  # only such formats need it

        with self.open(name) as stream:
            # Entities stay as they are: a document type may define some that grow into gigabytes.
            walk = etree.iterparse(
                stream, ("start", "end"), tag=tags or None, resolve_entities=False, no_network=True, huge_tree=True
            )
            try:
                for event, element in walk:
                    yield event, element
                    if event == "end":
                        element.clear(keep_tail=True)
                        parent = element.getparent()
                        if parent is not None and element.getprevious() is not None:
                            del parent[0]
            except etree.XMLSyntaxError as error:
                raise InputError(f"damaged {self._what}: {error}") from error


def docx(path: str, data: bytes) -> Source:
    """Paragraphs, headings by their styles, tables by rows, foot- and endnotes last."""
    archive = Archive(data, "Word document")
    return outline(path, "docx", _word_blocks(archive), title=_core_title(archive))


def _core_title(archive: Archive) -> str:
    name = "docProps/core.xml"
    if name not in archive.names:
        return ""
    titles = archive.elements(name, "{http://purl.org/dc/elements/1.1/}title")
    return next((element.text or "" for event, element in titles if event == "end"), "")


def _word_blocks(archive: Archive) -> Iterator[Block]:
    levels = _word_levels(archive) if "word/styles.xml" in archive.names else {}
    parts = [name for name in archive.names if re.fullmatch(r"word/document\d*\.xml", name)]
    if not parts:
        raise InputError("damaged Word document: it has no word/document.xml")
    for name in (parts[0], "word/footnotes.xml", "word/endnotes.xml"):
        if name in archive.names:
            yield from _word_part(archive, name, levels)


def _word_levels(archive: Archive) -> dict[str, int]:
    """The levels of headings by the ids of their styles. Word stores built-in styles under English names."""
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


def _word_part(archive: Archive, part: str, levels: dict[str, int]) -> Iterator[Block]:
    text = _Paragraphs()
    skipped = 0
    for event, element in archive.elements(part, *(_WORD + name for name in ("p", "tbl", "tr", "tc")), *_WORD_SKIPPED):
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
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same text once more
)


class _Paragraphs:
    """Running text to blocks; a table's cells to lines, whatever its cells say about their width.

    Tables within cells become part of the cell.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._cells: list[list[str]] = []  # of the cells that are open, the outermost first
        self._row: list[str] = []
        self._rows: list[Row] = []
        self._tables = 0

    def add(self, text: str) -> None:
        self._text.append(text)

    def paragraph(self, level: int = 0, *, page: int = 0) -> Iterator[Block]:
        """The end of a paragraph, or of a heading."""
        text = "".join(self._text)
        self._text.clear()
        if self._cells:
            self._cells[-1].append(text)
        elif text.strip():
            yield Block(level, text, page=page)

    def open(self, kind: str) -> Iterator[Block]:
        """The beginning of a table (``tbl``) or a cell (``tc``); others change nothing."""
        if kind == "tc":
            self._cells.append([])
        elif kind == "tbl":
            yield from self.paragraph()
            self._tables += 1

    def close(self, kind: str, *, page: int = 0) -> Iterator[Block]:
        """The end of a table, a row (``tr``) or a cell; others change nothing."""
        if kind == "tc" and self._cells:
            text = " ".join(" ".join(self._cells.pop()).split())
            if self._cells:
                self._cells[-1].append(text)
            else:
                self._row.append(text)
        elif kind == "tr" and self._row and not self._cells:
            self._rows.append(Row(tuple(self._row)))
            self._row.clear()
        elif kind == "tbl":
            self._tables -= 1
            if not self._tables:
                yield from table_blocks(self._rows, page=page)
                self._rows = []
