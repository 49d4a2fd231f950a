"""PDF: the text of its pages."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from pointsman.errors import InputError
from pointsman.ingest.source import Block, Problem, Source, clean, join_wrapped, outline

if TYPE_CHECKING:
    from collections.abc import Iterator

_HYPHEN = re.compile(r"(?<=[a-zа-яё])[-\u00ad]\n(?=[a-zа-яё])")


def pdf(path: str, data: bytes, most_pages: int) -> Iterator[Source | Problem]:
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
    if count > most_pages:
        yield Problem(path, f"{count} pages; only the first {most_pages} are read")
    blocks: list[Block] = []
    for number in range(1, min(count, most_pages) + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (a damaged page raises whatever its bytes lead to; it is reported)
            yield Problem(path, f"page {number}: {type(error).__name__}: {error}")
            text = ""
        blocks.append(Block(0, _HYPHEN.sub("", join_wrapped(clean(text).strip())), page=number))
    if not any(block.text for block in blocks):
        raise InputError("PDF without text; if it holds scanned pages, run OCR on it first")
    title = reader.metadata.title if reader.metadata else None
    yield outline(path, "pdf", blocks, title=title if isinstance(title, str) else "")
