"""PDF: the text of its pages, and the words on scanned pages."""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pointsman.ingest.converters import pictures as _pictures
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, join_wrapped, outline
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pypdf import PageObject

    from pointsman.ingest.reading_limits import FileLimits

_HYPHEN = re.compile(r"(?<=[a-zа-яё])[-\u00ad]\n(?=[a-zа-яё])")


def pdf(
    path: str, data: bytes, limits: FileLimits, before_picture: Callable[[], None]
) -> Iterator[ParsedDocument | Problem]:
    """Return the text of all pages as one section, with the offsets of the pages; bad pages are reported one by one.

    A page without text is read as a picture if an OCR engine is available.
    """
    from pypdf import PdfReader  # only PDF needs it
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError("encrypted PDF; remove its password first")
        count = len(reader.pages)
    except PyPdfError as error:
        raise InputError(f"damaged or unsupported PDF: {error}") from error
    if count > limits.pages:
        yield Problem(path, f"{count} pages; only the first {limits.pages} are read")
    scans = _Scans(limits.pictures, before_picture)
    blocks: list[Block] = []
    for number in range(1, min(count, limits.pages) + 1):
        try:
            page = reader.pages[number - 1]
            text = _HYPHEN.sub("", join_wrapped(clean(page.extract_text()).strip())) or scans.text_of(page, number)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (a damaged page may raise any exception; it is reported)
            yield Problem(path, f"page {number}: {type(error).__name__}: {error}")
            text = ""
        blocks.append(Block(0, text, page=number))
    problems = list(scans.problems())
    if not any(block.text for block in blocks):
        raise InputError(f"PDF without text; {'; '.join(problems) or 'its pages are empty'}")
    yield from (Problem(path, reason) for reason in problems)
    title = reader.metadata.title if reader.metadata else None
    yield outline(path, "pdf", blocks, title=title if isinstance(title, str) else "")


class _Scans:
    """Reads pages that are pictures, up to a limit, and records what was not read."""

    def __init__(self, max_scans: int, before_picture: Callable[[], None]) -> None:
        self._max_scans, self._before_picture = max_scans, before_picture
        self._count = 0
        self._reasons: dict[str, int] = {}

    def text_of(self, page: PageObject, number: int) -> str:
        """Return the words on a page that is a picture; empty if it is not one, or may not or cannot be read."""
        picture = _largest_picture(page)
        if picture is None:
            return ""
        self._count += 1
        if self._count > self._max_scans or not _pictures.any_engine():
            return ""
        self._before_picture()
        words, reason = _pictures.read_words(_pictures.open_picture(picture))
        if reason:
            self._reasons.setdefault(reason, number)
        return words.text

    def problems(self) -> Iterator[str]:
        """Yield what was not read, and why."""
        yield from (f"page {number}: {reason}" for reason, number in self._reasons.items())
        if not _pictures.any_engine() and self._count:
            yield f"{self._count} pages are pictures; {_pictures.INSTALL}"
        elif self._count > self._max_scans:
            yield f"{self._count} pages are pictures; only {self._max_scans} are read"


def _largest_picture(page: PageObject) -> bytes | None:
    """Return the largest picture on a page, as a file; None if there is none, or Pillow is not installed."""
    if find_spec("PIL") is None:
        return None
    largest = max(page.images, key=lambda image: len(image.data), default=None)
    return largest.data if largest is not None else None
