"""Small files of each format, written by the libraries that people's programs write them with, or by hand."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import date, datetime
from email.message import EmailMessage


def zipped(parts: dict[str, str], first: str | None = None) -> bytes:
    """A zip file; ``first`` is its media type, stored in front as OpenDocument and EPUB want it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if first:
            archive.writestr("mimetype", first, compress_type=zipfile.ZIP_STORED)
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def docx() -> bytes:
    import docx as library

    document = library.Document()
    document.add_heading("Железная дорога", level=1)
    document.add_paragraph("Поезд идёт по рельсам.")
    document.add_heading("道岔", level=2)
    document.add_paragraph("道岔引导列车。")
    table = document.add_table(rows=3, cols=2)
    for cell, text in zip(table._cells, ["Часть", "Число", "Стрелка", "12", "Сигнал", ""], strict=True):
        cell.text = text
    table.cell(2, 0).merge(table.cell(2, 1))
    document.add_paragraph("A tab\there.")
    document.core_properties.title = "Справочник"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def xlsx() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    stock = book.active
    stock.title = "Stock"
    stock.append(["Part", "Number", "Bought", "Price"])
    for number in range(40):
        stock.append([f"Switch {number}", number, date(2024, 3, 1 + number % 28), 10.5 + number])
    stock["F50"] = "Far away"
    other = book.create_sheet("Люди")
    moment = datetime(1990, 5, 17, 12, 30)  # noqa: DTZ001  (cells know no time zone)
    other.append(["Имя", "Родился", "Женат"])
    other.append(["Анна", moment, True])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def pptx() -> bytes:
    import pptx as library

    deck = library.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Railway switches"
    slide.placeholders[1].text = "They guide trains.\nEach has two rails."
    slide.notes_slide.notes_text_frame.text = "Say this slowly."
    blank = deck.slides.add_slide(deck.slide_layouts[6])
    box = blank.shapes.add_textbox(0, 0, 100, 100)
    box.text_frame.text = "信号"
    table = blank.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for number, text in enumerate(["Signal", "Meaning", "red", "stop"]):
        table.cell(number // 2, number % 2).text = text
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


_NAMES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for name, space in {"office": "office", "text": "text", "table": "table", "draw": "drawing"}.items()
)


def opendocument(kind: str, body: str) -> bytes:
    meta = (
        f'<office:document-meta {_NAMES} xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<office:meta><dc:title>Open</dc:title></office:meta></office:document-meta>"
    )
    content = f"<office:document-content {_NAMES}><office:body>{body}</office:body></office:document-content>"
    return zipped({"content.xml": content, "meta.xml": meta}, f"application/vnd.oasis.opendocument.{kind}")


def odt() -> bytes:
    return opendocument(
        "text",
        "<office:text><text:tracked-changes><text:p>Deleted.</text:p></text:tracked-changes>"
        '<text:h text:outline-level="1">Путь</text:h><text:p>Один<text:s text:c="2"/>два'
        "<text:tab/>три <text:span>четыре</text:span> пять."
        "<text:note><text:p>Сноска.</text:p></text:note></text:p>"
        "<table:table><table:table-row><table:table-cell><text:p>A</text:p></table:table-cell>"
        '<table:table-cell table:number-columns-repeated="1000000000"><text:p>B</text:p></table:table-cell>'
        "</table:table-row></table:table></office:text>",
    )


def ods() -> bytes:
    def row(*cells: str) -> str:
        inside = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        return f"<table:table-row>{inside}</table:table-row>"

    empty = '<table:table-row table:number-rows-repeated="1000000"><table:table-cell/></table:table-row>'
    sheets = f'<table:table table:name="First">{row("Name", "Age")}{empty}{row("Anna", "5")}</table:table>'
    return opendocument(
        "spreadsheet", f'<office:spreadsheet>{sheets}<table:table table:name="空"/></office:spreadsheet>'
    )


def odp() -> bytes:
    page = '<draw:page draw:name="Slide {0}"><draw:frame><text:p>Text {0}.</text:p></draw:frame></draw:page>'
    slides = page.format(1) + page.format(2)
    return opendocument("presentation", f"<office:presentation>{slides}</office:presentation>")


def epub() -> bytes:
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        '<dc:title>Дорога</dc:title></metadata><manifest><item id="b" href="two%20.xhtml"/><item id="a" '
        'href="../one.xhtml"/><item id="c" href="gone.xhtml"/></manifest><spine><itemref idref="a"/>'
        '<itemref idref="b"/><itemref idref="c"/></spine></package>'
    )
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>{}</h1><p>{}</p></body></html>'
    return zipped(
        {
            "META-INF/container.xml": container,
            "OEBPS/book.opf": package,
            "one.xhtml": page.format("Первая", "Поезд идёт."),
            "OEBPS/two .xhtml": page.format("第二", "火车停了。"),
        },
        "application/epub+zip",
    )


def eml() -> bytes:
    message = EmailMessage()
    message["Subject"] = "Стрелка 12"
    message["From"] = "Анна <anna@example.org>"
    message["To"] = "depot@example.org"
    message["Date"] = "Mon, 04 Mar 2024 10:15:00 +0300"
    message.set_content("Проверьте стрелку.\n", charset="koi8-r")
    message.add_alternative("<p>Проверьте <b>стрелку</b>.</p>", subtype="html")
    message.add_attachment("a,b\n1,2\n", filename="таблица.csv")
    message.add_attachment(b"\x00\x01\x02" * 100, maintype="application", subtype="octet-stream", filename="junk.bin")
    return message.as_bytes()


def ipynb() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# Trains\n", "They run on [rails](http://x)."]},
        {
            "cell_type": "code",
            "source": "print(2 + 2)",
            "outputs": [
                {"output_type": "stream", "text": ["4\n"]},
                {"data": {"text/plain": "'four'", "image/png": "x"}},
            ],
        },
    ]
    return json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}).encode()


OFFICE = {
    "a.docx": docx, "a.xlsx": xlsx, "a.pptx": pptx, "a.odt": odt, "a.ods": ods, "a.odp": odp, "a.epub": epub,
    "a.eml": eml, "a.ipynb": ipynb,
}  # fmt: skip
