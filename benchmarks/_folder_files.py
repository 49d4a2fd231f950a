"""Writes the folders that `folders.py` asks questions of: some forty files each, in the formats that people keep.

``folders/NAME.txt`` holds the texts of a folder, one file after another, each under a line ``=== path``. In documents
of words and slides a line that begins with ``#`` is a heading; in tables ``|`` separates cells. A path followed by
``< kind:name`` is taken from this machine: the description or licence of an installed distribution, or the source or
documentation of a module of the standard library.
"""

from __future__ import annotations

import importlib
import io
import json
import pydoc
import textwrap
from collections.abc import Iterator
from email.message import EmailMessage
from html import escape
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent / "folders"


class Question(NamedTuple):
    """A question of a folder and the files that answer it; none if nothing does."""

    text: str
    files: frozenset[str]


def questions(name: str) -> list[Question]:
    """The questions of a folder."""
    lines = (HERE / f"{name}.tsv").read_text("utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [Question(text, frozenset() if files == "-" else frozenset(files.split("|"))) for text, files in rows]


def write_folder(name: str, target: Path) -> int:
    """Write the files of a folder below ``target``; returns their number."""
    count = 0
    for path, text in _texts(name):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_encoded(file.suffix, text))
        count += 1
    return count


def _texts(name: str) -> Iterator[tuple[str, str]]:
    for block in (HERE / f"{name}.txt").read_text("utf-8").split("=== ")[1:]:
        head, _, text = block.partition("\n")
        path, _, origin = head.partition(" < ")
        yield path, _from_machine(*origin.split(":")) if origin else text


def _from_machine(kind: str, name: str) -> str:
    if kind in {"source", "documentation"}:
        module = importlib.import_module(name)
        if kind == "source":
            assert module.__file__ is not None, name
            return Path(module.__file__).read_text("utf-8")
        return pydoc.plain(pydoc.render_doc(module))[:20_000]
    package = distribution(name)
    if kind == "distribution":
        return (package.read_text("METADATA") or "").partition("\n\n")[2]
    file = next(file for file in package.files or () if "licen" in file.name.lower())
    return file.read_text("utf-8")


def _encoded(suffix: str, text: str) -> bytes:
    writer = {
        ".docx": _docx,
        ".pptx": _pptx,
        ".xlsx": _xlsx,
        ".pdf": _pdf,
        ".html": _html,
        ".eml": _eml,
        ".ipynb": _ipynb,
    }.get(suffix)
    return text.encode() if writer is None else writer(text)


def _docx(text: str) -> bytes:
    import docx

    document = docx.Document()
    for line in text.splitlines():
        if line.startswith("# "):
            document.add_heading(line[2:], level=1)
        elif line:
            document.add_paragraph(line)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _pptx(text: str) -> bytes:
    import pptx

    deck = pptx.Presentation()
    for block in f"\n{text}".split("\n# ")[1:]:
        title, _, body = block.partition("\n")
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body.strip()
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def _xlsx(text: str) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for line in text.splitlines():
        book.active.append([cell.strip() for cell in line.split("|")])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _html(text: str) -> bytes:
    lines = [
        f"<h1>{escape(line[2:])}</h1>" if line.startswith("# ") else f"<p>{escape(line)}</p>"
        for line in text.splitlines()
        if line
    ]
    return f"<!doctype html><html><body>{''.join(lines)}</body></html>".encode()


def _eml(text: str) -> bytes:
    head, _, body = text.partition("\n\n")
    message = EmailMessage()
    for line in head.splitlines():
        name, _, value = line.partition(": ")
        message[name] = value
    message.set_content(body or "(empty)")
    return message.as_bytes()


def _ipynb(text: str) -> bytes:
    cells = [
        {"cell_type": "code", "source": line.strip("`"), "outputs": []}
        if line.startswith("`")
        else {"cell_type": "markdown", "source": line}
        for line in text.splitlines()
        if line
    ]
    return json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}).encode()


def _pdf(text: str) -> bytes:
    """One page of Latin text, each line wrapped at 90 characters."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, 90)]
    shown = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").encode("cp1252") for line in lines]
    content = b"BT /F1 11 Tf 14 TL 60 760 Td " + b" ".join(b"(%b) Tj T*" % line for line in shown) + b" ET"
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<</Type/Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources <</Font <</F1 3 0 R>> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
    ]
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(bodies, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, start))
    return out.getvalue()
