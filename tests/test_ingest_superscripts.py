"""Superscripts and formulas: a number that hangs on a word does not change it, and no sign of a formula is lost."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from office_files import zipped
from pointsman.ingest import ParsedDocument, convert

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
ROWS = [
    # words, a superscript, the ending; what is stored
    ("The fee is $500", "1", " a year", "The fee is $500^1 a year"),
    ("up to 10", "2", " bar", "up to 10^2 bar"),
    ("about 10", "-3", " g", "about 10^-3 g"),
    ("Costs", "12", " of the depot", "Costs^12 of the depot"),
    ("Вода", "3", " дорожает", "Вода^3 дорожает"),
    ("费用", "2", " 上涨", "费用^2 上涨"),
    ("площадь 25 м", "2", ", ширина", "площадь 25 м2, ширина"),
    ("25 km", "2", " wide", "25 km2 wide"),
    ("August 18", "th", ", 1903", "August 18th, 1903"),
    ("The end.", "4", " Next", "The end.4 Next"),
    ("surname", "[5]", " here", "surname[5] here"),
]


def text_of(name: str, data: bytes) -> str:
    return "\n".join(item.text for item in convert(name, data) if isinstance(item, ParsedDocument))


def file_bytes(document: Any) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def word_file(words: str, superscript: str, ending: str) -> bytes:
    from docx import Document

    document = Document()
    paragraph = document.add_paragraph(words)
    paragraph.add_run(superscript).font.superscript = True
    paragraph.add_run(ending)
    return file_bytes(document)


def slides_file(words: str, superscript: str, ending: str) -> bytes:
    from pptx import Presentation
    from pptx.util import Inches

    document = Presentation()
    frame = document.slides.add_slide(document.slide_layouts[6]).shapes.add_textbox(0, 0, Inches(5), Inches(2))
    for text in (words, superscript, ending):
        run = frame.text_frame.paragraphs[0].add_run()
        run.text = text
        if text is superscript:
            run._r.get_or_add_rPr().set("baseline", "30000")
    return file_bytes(document)


def page_file(words: str, superscript: str, ending: str) -> bytes:
    return f"<html><body><p>{words}<sup><a href='#n'>{superscript}</a></sup>{ending}</p></body></html>".encode()


def cell_file(words: str, superscript: str, ending: str) -> bytes:
    row = f"<tr><td>{words}<sup>{superscript}</sup>{ending}</td><td>1</td></tr>"
    return f"<html><body><table><tr><th>a</th><th>b</th></tr>{row}{row}</table></body></html>".encode()


def writer_file(words: str, superscript: str, ending: str) -> bytes:
    names = ("office", "text", "style")
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names)
    style = '<style:style style:name="T1"><style:text-properties style:text-position="super 58%"/></style:style>'
    content = (
        f"<office:document-content {spaces}><office:automatic-styles>{style}</office:automatic-styles><office:body>"
        f'<office:text><text:p>{words}<text:span text:style-name="T1">{superscript}</text:span>{ending}</text:p>'
        "</office:text></office:body></office:document-content>"
    )
    return zipped({"content.xml": content}, "application/vnd.oasis.opendocument.text")


@pytest.mark.parametrize(("words", "superscript", "ending", "expected"), ROWS)
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.docx", word_file),
        ("a.pptx", slides_file),
        ("a.html", page_file),
        ("b.html", cell_file),
        ("a.odt", writer_file),
    ],
)
def test_a_raised_number_does_not_change_the_word_or_number_before_it(
    name: str, file: Any, words: str, superscript: str, ending: str, expected: str
) -> None:
    assert expected in text_of(name, file(words, superscript, ending))


def test_many_superscripts_take_time_in_proportion() -> None:
    begin = time.process_time()
    text = text_of("a.html", ("<p>" + "word<sup>1</sup>" * 20_000 + "<sup>" * 200).encode())
    assert text.count("^1") == 20_000
    assert time.process_time() - begin < 5
