"""Documents made of XML or HTML in a zip file: read as streams, so that a zip bomb stays within the limits."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from pointsman.ingest.source_text import Block, Row, table_blocks
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element

MAX_UNPACKED = 128 << 20
"""Bytes to which a document may unpack; a few kilobytes of zip can hold gigabytes of zeros."""

_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_DC_TITLE = "{http://purl.org/dc/elements/1.1/}title"


class Archive:
    """A zip file whose parts are read up to a limit."""

    def __init__(self, data: bytes, description: str) -> None:
        self._description, self._size = description, 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise InputError(f"damaged {description}: {error}") from error
        self.names = self._zip.namelist()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a part of the document as a stream.

        Raises:
            InputError: The part is missing, damaged, encrypted, or too large.
        """
        try:
            self._size += self._zip.getinfo(name).file_size
            if self._size > MAX_UNPACKED:  # the declared size is binding: zipfile does not read beyond it
                raise InputError(
                    f"{self._description} unpacks to {self._size >> 20} MB, more than {MAX_UNPACKED >> 20} MB"
                )
            with self._zip.open(name) as stream:
                yield stream
        except KeyError as error:
            raise InputError(f"damaged {self._description}: it has no {name}") from error
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise InputError(f"damaged or encrypted {self._description}: {error}") from error

    def relations(self, member: str) -> dict[str, str]:
        """Return the parts to which a part of an Office document refers, by relationship id."""
        folder, name = posixpath.split(member)
        rels = posixpath.join(folder, "_rels", f"{name}.rels")
        if rels not in self.names:
            return {}
        targets = {}
        for event, element in self.elements(rels, f"{_RELATIONS}Relationship"):
            if event == "end" and element.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, element.get("Target", "")))
                targets[element.get("Id", "")] = target.lstrip("/")
        return targets

    def read(self, name: str) -> bytes:
        """Return the whole content of a part; see `open`."""
        with self.open(name) as stream:
            return stream.read()

    def elements(self, name: str, *tags: str, inline: tuple[str, ...] = ()) -> Iterator[tuple[str, _Element]]:
        """Yield starts and ends of elements in order; an element is emptied after its end, so memory stays bounded.

        Args:
            name: Name of the part.
            tags: Tags of the elements.
            inline: Tags of elements within these that are also reported and emptied, while the text around them still
                has to be read.

        Raises:
            InputError: see `open`; or the part is not XML.
        """
        from lxml import etree  # only these formats need it

        with self.open(name) as stream:
            # Entities are not expanded: a document type may define some that grow into gigabytes.
            walk = etree.iterparse(
                stream, ("start", "end"), tag=(*tags, *inline), resolve_entities=False, no_network=True, huge_tree=True
            )
            try:
                for event, element in walk:
                    yield event, element
                    if event == "end":
                        element.clear(keep_tail=True)
                        parent, sibling = element.getparent(), element.getprevious()
                        if parent is not None and sibling is not None and sibling.tag in tags and element.tag in tags:
                            parent.remove(sibling)
            except etree.XMLSyntaxError as error:
                raise InputError(f"damaged {self._description}: {error}") from error


def document_title(archive: Archive, member: str = "docProps/core.xml") -> str:
    """Return the title in the properties of a document, or an empty text."""
    if member not in archive.names:
        return ""
    titles = archive.elements(member, _DC_TITLE)
    return next((element.text or "" for event, element in titles if event == "end"), "")


class Paragraphs:
    """Turns running text into blocks, and a table's cells into lines; column spans are ignored.

    Nested tables become part of their cell.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._cells: list[list[str]] = []  # open cells, the outermost first
        self._row: list[str] = []
        self._rows: list[Row] = []
        self._tables = 0

    def add(self, text: str) -> None:
        """Add running text."""
        self._text.append(text)

    def paragraph(self, level: int = 0, *, page: int = 0) -> Iterator[Block]:
        """End a paragraph or heading."""
        text = "".join(self._text)
        self._text.clear()
        if self._cells:
            self._cells[-1].append(text)
        elif text.strip():
            yield Block(level, text, page=page)

    def open(self, kind: str) -> Iterator[Block]:
        """Begin a table (``tbl``) or a cell (``tc``); other elements have no effect."""
        if kind == "tc":
            self._cells.append([])
        elif kind == "tbl":
            yield from self.paragraph()
            self._tables += 1

    def close(self, kind: str, *, page: int = 0, number: int | None = None) -> Iterator[Block]:
        """End a table, a row (``tr``) or a cell; other elements have no effect."""
        if kind == "tc" and self._cells:
            text = " ".join(" ".join(self._cells.pop()).split())
            if self._cells:
                self._cells[-1].append(text)
            else:
                self._row.append(text)
        elif kind == "tr" and self._row and not self._cells:
            self._rows.append(Row(tuple(self._row), number))
            self._row.clear()
        elif kind == "tbl" and self._tables:
            self._tables -= 1
            if not self._tables:
                yield from table_blocks(self._rows, page=page)
                self._rows = []
