"""Whether the words of real files are stored: each format's recall against an independent extraction, and its speed.

    python benchmarks/files.py FOLDER [--show] [--pypdf]

Reads every file below FOLDER as `pointsman index` does, and a second time with another program: pdftotext (else pypdf)
for PDF; LibreOffice (else pandoc) for RTF; pandoc for HTML in UTF-8, EPUB, OpenDocument text, reStructuredText,
Markdown, notebooks and Word; python-pptx for presentations, openpyxl for workbooks; Python's own modules for mail, CSV
and text. Files that the other program cannot read, or has no words of, are not compared. A file is complete if .95 of
the different words of the other extraction are stored; it is silent if nothing is stored of it and nobody is told.
``--pypdf`` sets pypdf and PDFium side by side on the PDFs: seconds and words of both. Pandoc is found on the PATH or in
the package `pypandoc-binary`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import logging
import re
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from email import message_from_bytes, policy
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pointsman.ingest import FileReader, FoundFile

WORD = re.compile(r"[^\W_\u3040-\u9fff]{2,}|[\u3040-\u9fff]")
PANDOC = {
    "html": "html", "htm": "html", "epub": "epub", "rtf": "rtf", "odt": "odt", "rst": "rst", "md": "commonmark_x",
    "ipynb": "ipynb", "docx": "docx",
}  # fmt: skip
SECONDS = 30
MEMORY = 3 << 30  # bytes for the other libraries, which some workbooks of a few kilobytes would fill
COMPLETE = 0.95


class Reading(NamedTuple):
    """What was stored of a file: its words, why it or a part of it was left out, and the seconds that it took."""

    words: set[str]
    reasons: list[str]
    seconds: float


def words_of(text: str) -> set[str]:
    """Return the different words of a text; each Chinese character is one."""
    return set(WORD.findall(text.replace("\u00ad", "").lower()))


def stored(reader: FileReader, path: Path) -> Reading:
    """Read a file as it is indexed."""
    start, texts, reasons = time.perf_counter(), [], []
    for part in reader.read(FoundFile(path, path.name, path.stat().st_size)):
        reasons += [problem.reason for problem in part.problems]
        for document in part.documents:
            headings = document.metadata.get("headings") or []
            fields = [str(value) for value in document.metadata.values()] if path.suffix in (".csv", ".md") else []
            texts += [document.text, document.title, *map(str, headings), *fields]
    seconds = time.perf_counter() - start
    return Reading(words_of("\n".join(texts)), reasons, seconds)


def independent(path: Path) -> str:
    """Return the text of a file as another program reads it; empty if there is none for its format.

    Raises:
        Exception: any, as libraries meet damaged files.
    """
    ending = path.suffix[1:].lower()
    if ending == "pdf":
        return output("pdftotext", str(path), "-") if shutil.which("pdftotext") else pypdf_text(path)
    if ending == "rtf" and shutil.which("soffice"):  # pandoc reads other encodings than Windows-1252 wrong
        return libreoffice_text(path)
    if ending in ("html", "htm"):
        path.read_text("utf-8")  # pandoc knows no other encoding
    if ending in PANDOC and (pandoc := pandoc_path()):
        return output(pandoc, "--from", PANDOC[ending], "--to", "plain", "--wrap", "none", str(path))
    if by_library := {"pptx": slides_text, "xlsx": sheets_text, "eml": mail_text}.get(ending):
        return by_library(path)
    if ending == "csv":
        return "\n".join(" ".join(row) for row in csv.reader(io.StringIO(path.read_text("utf-8"))))
    return path.read_text("utf-8") if ending == "txt" else ""


def pandoc_path() -> str | None:
    """Return where pandoc is, if it is installed."""
    if on_path := shutil.which("pandoc"):
        return on_path
    with contextlib.suppress(ImportError, OSError):
        return str(import_module("pypandoc").get_pandoc_path())
    return None


def output(*command: str) -> str:
    """Return what a program prints.

    Raises:
        subprocess.SubprocessError: It fails, or takes too long.
    """
    return subprocess.run(command, capture_output=True, check=True, timeout=SECONDS).stdout.decode("utf-8", "replace")


def libreoffice_text(path: Path) -> str:
    """Return the text of a document by LibreOffice."""
    with tempfile.TemporaryDirectory() as folder:
        settings = f"-env:UserInstallation=file://{tempfile.gettempdir()}/files-libreoffice"
        form = ("--headless", "--convert-to", "txt:Text (encoded):UTF8", "--outdir", folder)
        output("soffice", settings, *form, str(path.absolute()))
        return (Path(folder) / f"{path.stem}.txt").read_text("utf-8", "replace")


def pypdf_text(path: Path) -> str:
    """Return the text of a PDF by pypdf."""
    from pypdf import PdfReader

    return "\n".join(page.extract_text() for page in PdfReader(path).pages)


def pdfium_text(path: Path) -> str:
    """Return the text of a PDF by PDFium, in the order of the file."""
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    return "\n".join(page.get_textpage().get_text_range() for page in document)


def sheets_text(path: Path) -> str:
    """Return the texts in the cells of a workbook, by openpyxl."""
    from openpyxl import load_workbook

    rows = (row for sheet in load_workbook(path, data_only=True) for row in sheet.iter_rows(values_only=True))
    return "\n".join(cell for row in rows for cell in row if isinstance(cell, str))


def slides_text(path: Path) -> str:
    """Return the text of a presentation's slides and notes, by python-pptx."""
    from pptx import Presentation

    texts = []
    for slide in Presentation(str(path)).slides:
        shapes = [*slide.shapes, *(slide.notes_slide.shapes if slide.has_notes_slide else ())]
        texts += [shape.text_frame.text for shape in shapes if shape.has_text_frame and not is_number(shape)]
        texts += [cell.text for shape in shapes if shape.has_table for row in shape.table.rows for cell in row.cells]
    return "\n".join(texts)


def is_number(shape: Any) -> bool:
    """Whether a shape holds the number of its slide."""
    from pptx.enum.shapes import PP_PLACEHOLDER

    return bool(shape.is_placeholder and shape.placeholder_format.type == PP_PLACEHOLDER.SLIDE_NUMBER)


class _PageWords(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002  (the base class's)
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        self.texts += [] if self._hidden else [data]


def mail_text(path: Path) -> str:
    """Return the subject and the text parts of a message, by Python's own parsers."""
    message = message_from_bytes(path.read_bytes(), policy=policy.default)
    texts = [str(message["subject"] or "")]
    body = message.get_body(("plain", "html"))
    if body is not None:
        content = body.get_content()
        if body.get_content_type() == "text/html":
            page = _PageWords()
            page.feed(content)
            content = " ".join(page.texts)
        texts.append(content)
    return "\n".join(texts)


def compare(folder: Path, *, show: bool) -> None:
    """Print a line for each format."""
    rows: dict[str, list[tuple[Path, Reading, set[str]]]] = defaultdict(list)
    with FileReader() as reader:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                try:
                    expected = words_of(independent(path))
                except Exception:  # noqa: BLE001  (any error of the other program: nothing to compare with, and counted so)
                    expected = set()
                rows[path.suffix[1:].lower()].append((path, stored(reader, path), expected))
    print("format  files  read  refused  silent  compared  recall  complete  ms a file  MB/s")
    total = 0
    for ending, readings in sorted(rows.items(), key=lambda item: -len(item[1])):
        total += len(readings)
        read = [row for row in readings if row[1].words]
        silent = [row for row in readings if not row[1].words and not row[1].reasons and row[2]]
        compared = [(path, reading, expected) for path, reading, expected in read if expected]
        recalls = [len(reading.words & expected) / len(expected) for _, reading, expected in compared]
        seconds, size = sum(row[1].seconds for row in readings), sum(row[0].stat().st_size for row in readings)
        figures = (
            f"{sum(recalls) / len(recalls):6.3f}  {sum(recall >= COMPLETE for recall in recalls) / len(recalls):8.3f}"
            if recalls else f"{'-':>6}  {'-':>8}"
        )  # fmt: skip
        refused = sum(not row[1].words and bool(row[1].reasons) for row in readings)
        print(f"{ending:6} {len(readings):6} {len(read):5} {refused:8} {len(silent):7} {len(compared):9}  {figures}"
              f"  {1000 * seconds / len(readings):9.1f}  {size / seconds / 1e6:4.1f}")  # fmt: skip
        if show:
            for (path, reading, expected), recall in zip(compared, recalls, strict=True):
                if recall < COMPLETE:
                    missing = sorted(expected - reading.words)[:12]
                    print(f"    {recall:.3f} {path.name}: {' '.join(missing)} | {'; '.join(reading.reasons)[:200]}")
            for path, _, _ in silent:
                print(f"    silent: {path.name}")
    print(f"{total} files")


def beside_pypdf(folder: Path) -> None:
    """Print the seconds and words of pypdf and PDFium on the PDFs that both can read."""
    seconds, words = {"pypdf": 0.0, "PDFium": 0.0}, {"pypdf": 0, "PDFium": 0}
    files = complete = 0
    for path in sorted(folder.rglob("*.pdf")):
        texts, times = {}, {}
        for name, extract in (("pypdf", pypdf_text), ("PDFium", pdfium_text)):
            start = time.perf_counter()
            try:
                texts[name] = words_of(extract(path))
            except Exception:  # noqa: BLE001  (any error: the file is not compared)
                break
            times[name] = time.perf_counter() - start
        if len(texts) == 2 and texts["pypdf"]:
            files += 1
            complete += len(texts["pypdf"] & texts["PDFium"]) >= COMPLETE * len(texts["pypdf"])
            for name in seconds:
                seconds[name] += times[name]
                words[name] += len(texts[name])
    figures = (f"{name} {seconds[name]:.1f} s, {words[name]} words" for name in seconds)
    print(f"{files} PDFs with words: {', '.join(figures)}; PDFium has .95 of pypdf's words in {complete}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", action="store_true", help="print the files that are not complete, with missing words")
    parser.add_argument("--pypdf", action="store_true", help="compare pypdf and PDFium instead")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if arguments.pypdf:
        beside_pypdf(arguments.folder)
    else:
        compare(arguments.folder, show=arguments.show)


if __name__ == "__main__":
    main()
