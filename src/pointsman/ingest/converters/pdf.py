"""PDF: the text of its pages, what is written into forms and notes, and the words on scanned pages."""

from __future__ import annotations

import ctypes
import io
import re
import threading
import time
import unicodedata
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pointsman.ingest.converters import pictures as _pictures
from pointsman.ingest.converters.pdf_layout import CELL_END, Piece, page_lines, without_running_lines
from pointsman.ingest.source_text import Block, Problem, clean, join_wrapped, outline, stated_title
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

    from pointsman.ingest.conversion import Conversion, Converted

_HYPHEN = re.compile(r"(?<=[a-zа-яё])(?:[-\u00ad]\n|[\ufffe\x02]\n?)(?=[a-zа-яё])")
_WORD_IN_TWO, _COMPOUND = re.compile(r"\b(\w+)\ue000(?=(\w+))"), re.compile(r"\b\w+-\w+")
_OTHER_HYPHEN = re.compile(r"[\ufffe\x02]\n?")
_SENTENCE_START = re.compile(r".*(?:[.!?。！？]\s|\n\n)", re.DOTALL)
_STOPS = ".!?。！？…:：;；"
_PAGES_IN_LIMIT = 100  # pages that may take `FileLimits.seconds`
_FEW_LETTERS = 120  # a page with no more beside a large picture is a scan with a stamp, a number or a heading
_SAMPLES = 100  # characters of a page whose font is asked which letters they are; and pieces of text
_MOST_UNREAD = 0.3  # of a page's pieces of text; some are blanks
_MOST_SCRIPTS = 10  # of the letters of a page; numbers that are taken for letters are of more
_pdfium = threading.RLock()  # the library serves one thread at a time


def pdf(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Return the text of all pages as one section, with the offsets of the pages; bad pages are reported one by one.

    A page that is a picture, whatever is stamped on it, is read as one if an OCR engine is available. Each hundred
    pages may take ``limits.seconds``; what was read until then is kept.
    """
    import pypdfium2  # only PDF needs it

    with _pdfium:
        try:
            document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            if "assword" in str(error):
                raise InputError("encrypted PDF, protected by a password; remove its password first") from error
            raise InputError(f"damaged or unsupported PDF: {error}") from error
        with closing(document):
            items = list(_PdfReader(path, document, data, conversion).read())
    yield from items


class _PdfReader:
    """Reads the pages of one PDF, and records what was not read."""

    def __init__(self, path: str, document: PdfDocument, data: bytes, conversion: Conversion) -> None:
        self._path, self._document, self._data = path, document, data
        self._limits, self._before_picture = conversion.limits, conversion.before_picture
        self._scans = self._wide_pages = 0
        self._reasons: dict[str, list[int]] = {}
        self._pypdf: Any = None

    def read(self) -> Converted:
        count = len(self._document)
        if count > self._limits.pages:
            yield Problem(self._path, f"{count} pages; only the first {self._limits.pages} are read")
        if self._document.get_formtype():
            self._document.init_forms()
        pages: list[list[Piece]] = []
        start = time.process_time()
        for number in range(1, min(count, self._limits.pages) + 1):
            if number % _PAGES_IN_LIMIT == 1:
                self._before_picture()
                start = time.process_time()
            elif time.process_time() - start > 0.8 * self._limits.seconds:
                yield Problem(
                    self._path,
                    f"{_PAGES_IN_LIMIT} pages take more than {self._limits.seconds} s; only the first {number - 1} of "
                    f"{count} are read; raise the limit seconds to index it all",
                )
                break
            pages.append(self._lines(number))
        blocks = list(_blocks(without_running_lines(pages, are_slides=2 * self._wide_pages > len(pages))))
        problems = [*self._problems(), *self._attachments()]
        if not any(block.text for block in blocks):
            raise InputError(f"PDF without text; {'; '.join(problems) or 'its pages are empty'}")
        yield from (Problem(self._path, reason) for reason in problems)
        compounds = {compound.lower() for block in blocks for compound in _COMPOUND.findall(block.text)}

        def word_start(word: re.Match[str]) -> str:  # a word that the end of a line parts
            return word[1] + "-" * (f"{word[1]}-{word[2]}".lower() in compounds)

        blocks = [block._replace(text=_WORD_IN_TWO.sub(word_start, block.text)) for block in blocks]
        title = stated_title(self._document.get_metadata_value("Title"))
        yield outline(self._path, "pdf", blocks, title=title)

    def _lines(self, number: int) -> list[Piece]:
        try:
            return self._lines_of_text(number)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (a damaged page may raise any exception; it is reported)
            self._reasons.setdefault(f"{type(error).__name__}: {error}", []).append(number)
            return []

    def _lines_of_text(self, number: int) -> list[Piece]:
        with closing(self._document[number - 1]) as page:
            text_page = page.get_textpage()
            self._wide_pages += page.get_width() > page.get_height()
            if _is_unmapped(text_page):
                return self._scan(page, number, [], "its font does not say which letters its characters are")
            lines = page_lines(text_page, self._annotations(page), is_upright=page.get_rotation() == 0)
            if _is_unread(page, text_page, lines):
                lines = self._by_pypdf(number, lines)
            letters = sum(sum(map(str.isalnum, line.text)) for line in lines)
            if letters <= _FEW_LETTERS and (covered_area := _covered_share(page)) > (0.3 if letters else 0.02):
                return self._scan(page, number, lines, "is a picture" if covered_area else "")
            return lines

    def _by_pypdf(self, number: int, lines: list[Piece]) -> list[Piece]:
        """Return the lines of a page whose fonts PDFium cannot read, such as Chinese ones that are not embedded.

        If pypdf cannot either, what PDFium read is returned, and the reason is kept.
        """
        from pypdf import PdfReader  # few files need it

        try:
            if self._pypdf is None:
                self._pypdf = PdfReader(io.BytesIO(self._data))
                self._pypdf.decrypt("") if self._pypdf.is_encrypted else None
            pypdf_text = self._pypdf.pages[number - 1].extract_text()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (as in `_lines`)
            reason = f"a part of its text cannot be read ({type(error).__name__}: {error})"
            self._reasons.setdefault(reason, []).append(number)
            return lines
        text = "".join(line.text for line in lines)
        letters, pypdf_letters = ([*filter(str.isalnum, words)] for words in (text, pypdf_text))
        if len(pypdf_letters) <= 1.5 * len(letters) or {*pypdf_letters} <= {*letters}:
            return lines  # what PDFium did not read are blanks, or letters drawn twice
        scripts = {unicodedata.name(char, "").partition(" ")[0] for char in set(pypdf_text) if char.isalpha()}
        if len(scripts) <= _MOST_SCRIPTS:
            return [Piece(0, 0, 0, 0, pypdf_text)]
        self._reasons.setdefault("a font does not say which letters its characters are", []).append(number)
        return lines

    def _scan(self, page: PdfPage, number: int, lines: list[Piece], reason: str) -> list[Piece]:
        """Return the lines on a page that is a picture, below those that are text; if not read, the reason is kept."""
        self._scans += 1
        if not _pictures.any_engine():
            self._reasons.setdefault(reason, []).append(number)
        elif self._scans <= self._limits.pictures:
            self._before_picture()
            scale = min(200 / 72, _pictures.LONGEST_SIDE / max(page.get_size()))
            words, problem = _pictures.read_words(page.render(scale=scale).to_pil().convert("RGB"))
            if problem:
                self._reasons.setdefault(problem, []).append(number)
            text = "\n".join(line.text for line in lines)
            return [*lines, *(Piece(0, 0, 0, 0, line) for line in words.text.split("\n") if line not in text)]
        return lines

    def _annotations(self, page: PdfPage) -> list[Piece]:
        """Return the values of a page's form fields, and its notes, where they stand."""
        from pypdfium2 import raw

        text_fields = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
        ignored_kinds = (raw.FPDF_ANNOT_WIDGET, raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)
        spans: list[Piece] = []
        for index in range(min(raw.FPDFPage_GetAnnotCount(page), 10_000)):
            annotation = raw.FPDFPage_GetAnnot(page, index)
            box = raw.FS_RECTF()
            raw.FPDFAnnot_GetRect(annotation, box)
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            form = self._document.formenv
            if kind == raw.FPDF_ANNOT_WIDGET and form:
                is_text = raw.FPDFAnnot_GetFormFieldType(form, annotation) in text_fields
                text = _wide(raw.FPDFAnnot_GetFormFieldValue, form, annotation) if is_text else ""
            else:
                text = "" if kind in ignored_kinds else _wide(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
            raw.FPDFPage_CloseAnnot(annotation)
            if text := clean(text).strip():
                spans.append(Piece(box.left, box.bottom, box.right, box.top, text))
        return spans

    def _problems(self) -> Iterator[str]:
        """Yield what was not read, and why."""
        for reason, numbers in self._reasons.items():
            first = f", the first is page {numbers[0]}"
            if reason == "is a picture":
                are = "page is a picture" if len(numbers) == 1 else "pages are pictures"
                yield f"{len(numbers)} {are}{first * (len(self._document) > len(numbers))}; {_pictures.INSTALL}"
            else:
                yield f"{f'{len(numbers)} pages{first}' if len(numbers) > 1 else f'page {numbers[0]}'}: {reason}"
        if _pictures.any_engine() and self._scans > self._limits.pictures:
            yield f"{self._scans} pages are pictures; only {self._limits.pictures} are read"

    def _attachments(self) -> Iterator[str]:
        count = self._document.count_attachments()
        if count:
            attachments = map(self._document.get_attachment, range(min(count, 5)))
            names = ", ".join(repr(attachment.get_name()[:80]) for attachment in attachments)
            yield f"{count} attached files are not read ({names}); save them beside it to index them"


def _wide(function: Callable[..., int], *arguments: Any) -> str:
    """Return a text of the library, which writes UTF-16 into a buffer."""
    from pypdfium2.raw import FPDF_WCHAR

    size = min(function(*arguments, None, 0), 1 << 20)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(FPDF_WCHAR)), size)
    return buffer.raw.decode("utf-16-le", "replace").rstrip("\x00")


def _is_unmapped(page: PdfTextPage) -> bool:
    """Whether the font of most characters does not say which letters they are."""
    from pypdfium2.raw import FPDFText_HasUnicodeMapError

    count = page.count_chars()
    sample = range(0, count, max(count // _SAMPLES, 1))
    errors = sum(FPDFText_HasUnicodeMapError(page, index) == 1 for index in sample)
    return bool(errors * 2 > len(sample))


def _is_unread(page: PdfPage, text_page: PdfTextPage, lines: list[Piece]) -> bool:
    """Whether there are pieces of text in which PDFium finds no character, as of fonts that are not embedded."""
    from pypdfium2 import raw

    if not any(line.text.strip() for line in lines):
        return any(page.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT], max_depth=2))
    count = raw.FPDFPage_CountObjects(page)
    objects = [raw.FPDFPage_GetObject(page, index) for index in range(0, count, max(count // _SAMPLES, 1))]
    texts = [item for item in objects if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_TEXT]
    unread_count = sum(
        raw.FPDFTextObj_GetText(item, text_page, None, 0) <= 2  # the two bytes that end a text
        and not raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(item))
        for item in texts
    )
    return bool(unread_count > _MOST_UNREAD * len(texts))


def _covered_share(page: PdfPage) -> float:
    """Return the part of a page that pictures cover."""
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    width, height = page.get_size()
    boxes = [picture.get_bounds() for picture in page.get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3)]
    covered_area = sum((right - left) * (top - bottom) for left, bottom, right, top in boxes)
    return float(covered_area / max(width * height, 1))


def _blocks(pages: Iterable[tuple[list[str], list[str]]]) -> Iterator[Block]:
    """Yield the text of pages, of which are given their own lines and the running ones, which part few sentences."""
    texts = [
        (_flowing_text(lines), "\n".join(_flowing_text([line]) for line in kept_lines)) for lines, kept_lines in pages
    ]
    joints = [False, *(_runs_on(first[0], second[0]) for first, second in pairwise(texts)), False]
    for number, (text, kept_text) in enumerate(texts, start=1):
        are_above = not joints[number - 1] or joints[number]
        parts = (kept_text, text) if are_above else (text, kept_text)
        runs_on = joints[number - 1] and not (kept_text and are_above)
        yield Block(0, "\n".join(filter(None, parts)), page=number, runs_on=runs_on)


def _flowing_text(lines: list[str]) -> str:
    """Return lines as one text, in which words that the ends of lines part are joined or marked."""
    text = "\n".join(lines).replace("\r\n", "\n").replace(CELL_END, " ")
    text = _OTHER_HYPHEN.sub("-\n", _HYPHEN.sub("\ue000", text))
    return join_wrapped(clean(text).strip())


def _runs_on(before: str, after: str) -> bool:
    """Whether the sentence in which a page ends goes on in the next page's text."""
    if not before or not after or before[-1] in _STOPS or not any(stop in after[:1000] for stop in _STOPS):
        return False
    lines = before.rsplit("\n", 20)[-20:]
    fills_line = len(lines[-1]) > 0.8 * max(map(len, lines))
    first_words = _SENTENCE_START.sub("", before)
    if after[0].islower():
        return first_words[:1].isupper() or len(lines) > 1
    is_cjk = "\u3400" <= before[-1] <= "\ufaff" and "\u3400" <= after[0] <= "\ufaff"
    return fills_line and (
        (is_cjk and len(first_words) >= 10) or before[-1] in ",，、(" or (len(lines) > 2 and len(lines[-1]) > 50)
    )
