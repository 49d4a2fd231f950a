"""PDF and Word documents."""

from __future__ import annotations

import io
import re
import zipfile
from typing import TYPE_CHECKING

from pointsman.errors import InputError
from pointsman.ingest.source import Problem, Section, Source, clean, join_wrapped, outline, stem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docx.table import Table
    from docx.text.paragraph import Paragraph

MAX_UNPACKED = 128 << 20
"""How much a Word document may unpack to, in bytes; a few kilobytes of zip can hold gigabytes of zeros."""

_HYPHEN = re.compile(r"(?<=[a-zа-яё])[-\u00ad]\n(?=[a-zа-яё])")
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)


def pdf(path: str, data: bytes) -> Iterator[Source | Problem]:
    """The text of all pages as one section, with the offsets of the pages; a bad page is reported alone."""
    from pypdf import PdfReader  # only PDF needs it
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError("encrypted PDF; remove its password first")
        count = len(reader.pages)
    except PyPdfError as error:
        raise InputError(f"damaged or unsupported PDF: {error}") from error
    pages: list[str] = []
    starts: list[int] = []
    position = 0
    for number in range(1, count + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception as error:  # noqa: BLE001  (a damaged page raises whatever its bytes lead to; it is reported)
            yield Problem(path, f"page {number}: {type(error).__name__}: {error}")
            text = ""
        pages.append(_HYPHEN.sub("", join_wrapped(clean(text).strip())))
        starts.append(position)
        position += len(pages[-1]) + 2
    full = "\n\n".join(pages)
    if not full.strip():
        raise InputError("PDF without text; if it holds scanned pages, run OCR on it first")
    title = reader.metadata.title if reader.metadata else None
    yield Source(
        path=path,
        title=" ".join(clean(title).split()) if isinstance(title, str) and title.strip() else stem(path),
        sections=(Section((), full, 0),),
        text=full,
        kind="pdf",
        pages=tuple(starts),
    )


def docx(path: str, data: bytes) -> Source:
    """Paragraphs, headings by their styles, and tables, in order."""
    from docx import Document  # only Word documents need it
    from docx.table import Table

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise InputError(f"damaged Word document: {error}") from error
    if size > MAX_UNPACKED:  # the declared size binds: zipfile reads no further than it
        raise InputError(f"Word document unpacks to {size >> 20} MB, more than {MAX_UNPACKED >> 20} MB")
    document = Document(io.BytesIO(data))
    blocks = [
        (0, _table_text(item)) if isinstance(item, Table) else (_level(item), item.text)
        for item in document.iter_inner_content()
    ]
    return outline(path, "docx", blocks, title=document.core_properties.title or "")


def _level(paragraph: Paragraph) -> int:
    """The level of a heading, 0 for other paragraphs. Word stores built-in styles under English names."""
    style = (paragraph.style.name if paragraph.style else None) or ""
    if style == "Title":
        return 1
    found = _HEADING_STYLE.fullmatch(style)
    return int(found[1]) + 1 if found else 0


def _table_text(table: Table) -> str:
    rows = []
    for row in table.rows:
        cells = {cell._tc: cell.text.strip() for cell in row.cells}  # noqa: SLF001  (merged cells repeat)
        rows.append(" | ".join(cells.values()))
    return "\n".join(rows)
