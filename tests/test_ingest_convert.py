"""Converters: each format, each encoding, and files that want to do harm."""

from __future__ import annotations

import collections
import io
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.ingest import ParsedDocument, Problem, convert, converters, read_paths
from pointsman.ingest.convert import format_of
from pointsman.ingest.encoding import decode_file
from pointsman.tools.errors import InputError

RUSSIAN = "Стрелочник переводит стрелки: каждый поезд идёт по нужному пути. Это короткий текст на русском языке."
SIMPLIFIED_CHINESE = "扳道工负责扳动铁路道岔，让每一列火车都走上正确的轨道。这是一段简短的中文文字。"
TRADITIONAL = "扳道工負責扳動鐵路道岔，讓每一列火車都走上正確的軌道。這是一段簡短的中文文字。"


def convert_one(path: str, data: bytes | str) -> ParsedDocument:
    """The only source in a file, its sections checked against its text."""
    (source,) = convert(path, data.encode() if isinstance(data, str) else data)
    assert isinstance(source, ParsedDocument)
    for section in source.sections:
        assert source.text[section.start : section.start + len(section.text)] == section.text
    return source


def outline_of(source: ParsedDocument) -> list[tuple[tuple[str, ...], str]]:
    return [(section.heading_path, section.text) for section in source.sections]


def minimal_pdf(*pages: str) -> bytes:
    """A PDF of one line of Latin text a page, written by hand."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        bodies.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content))
    buffer = io.BytesIO()
    buffer.write(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(bodies, start=1):
        offsets.append(buffer.tell())
        buffer.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    start = buffer.tell()
    buffer.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1))
    buffer.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    buffer.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, start))
    return buffer.getvalue()


def word() -> bytes:
    import docx

    document = docx.Document()
    document.add_heading("Железная дорога", level=1)
    document.add_paragraph("Поезд идёт по рельсам.")
    document.add_heading("道岔", level=2)
    document.add_paragraph("道岔引导列车。")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ["Часть", "Число", "Стрелка", "12"], strict=True):
        cell.text = text
    document.core_properties.title = "Справочник"
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def test_plain_text_is_titled_by_its_name() -> None:
    source = convert_one("notes/Ideas.txt", "One.\r\n\r\nTwo\x00 three.\x07")
    assert (source.title, source.text, source.kind) == ("Ideas", "One.\n\nTwo three.", "txt")


def test_markdown_headings_make_sections() -> None:
    source = convert_one(
        "a.md",
        "# Guide\nIntro with a [link](http://x.y) and ![a picture](z.png).\n\n"
        "[![Build](https://ci/badge.svg)](https://ci)\n\n## Install\n```sh\n# not a heading\npip [a](b)\n```\n"
        "### Bare\n## Use\nGo.\n\nSetext\n======\nEnd.\n",
    )
    assert source.title == "Guide"
    assert outline_of(source) == [
        (("Guide",), "Intro with a link and a picture."),
        (("Guide", "Install"), "```sh\n# not a heading\npip [a](b)\n```"),
        (("Guide", "Install", "Bare"), "Bare"),
        (("Guide", "Use"), "Go."),
        (("Setext",), "End."),
    ]


def test_markdown_front_matter_gives_the_title_and_html_blocks_their_text() -> None:
    source = convert_one(
        "a.md", '---\ntitle: "Правила"\ntags: x\n---\n<p align="center"><b>Сильно</b> сказано</p>\n\nТекст.\n'
    )
    assert source.title == "Правила"
    assert source.text == "tags: x\n\nСильно сказано\n\nТекст."


def test_restructured_text_levels_follow_their_order() -> None:
    source = convert_one(
        "a.rst",
        "======\n Title\n======\nSee :func:`~os.walk` and `the site <https://x>`_.\n\n"
        ".. image:: a.png\n   :alt: signs\n\nPart\n----\nText.\n\n指南\n~~~~\n内容。\n\nNext\n----\nMore.\n",
    )
    assert outline_of(source) == [
        (("Title",), "See os.walk and the site.\n\nsigns"),
        (("Title", "Part"), "Text."),
        (("Title", "Part", "指南"), "内容。"),
        (("Title", "Next"), "More."),
    ]


def test_directives_of_restructured_text_are_what_a_reader_sees() -> None:
    source = convert_one(
        "a.rst",
        "Signals\n=======\n.. note:: Red stops.\n\n.. warning::\n   :class: wide\n\n   Осторожно, поезд.\n\n"
        ".. code-block:: cpp\n   :linenos:\n\n   int speed::limit = 40;\n\n.. versionadded:: 2.6\n\n"
        ".. py:function:: halt(train)\n   :noindex:\n\n   :param train: which one\n\n"
        ".. rubric:: 注意事项\n\nSee a :: b.\n",
    )
    assert [line for line in source.text.split("\n") if line.strip()] == [
        "Signals",
        "Note: Red stops.",
        "Warning:",
        "   Осторожно, поезд.",
        "   int speed::limit = 40;",
        "Added in version: 2.6",
        "halt(train)",
        "   :param train: which one",
        "注意事项",
        "See a :: b.",
    ]
    assert source.text.split("\n").index("halt(train)") == 17 - 1, "each stands on the line that it has in the file"


def test_a_list_table_of_restructured_text_is_a_table() -> None:
    source = convert_one(
        "a.rst",
        "Before.\n\n.. list-table:: 车站\n   :header-rows: 1\n\n   * - Station\n     - Опоздание\n"
        "   * - :ref:`Oak <oak>`\n     - four\n       minutes\n   * - 站台\n     -\n   * - Elm\n     - none - yet\n\n"
        "After.\n",
    )
    assert source.text == (
        "Before.\n\n车站\n\nStation | Опоздание\nOak | four minutes\n站台\nElm | none - yet\n\nAfter."
    )


def test_html_keeps_headings_and_text_only() -> None:
    source = convert_one(
        "a.html",
        "<!doctype html><html><head><title>Page &amp; more</title><style>x{}</style></head><body>"
        "<nav>Menu</nav><script>alert(1)</script><h1>Начало</h1><p>Первый<br>второй &lt;текст&gt;</p>"
        "<h2><span>道</span>岔</h2><div>列车\n停靠</div><pre>a\n  b</pre><!-- hidden -->"
        "<table><tr><td>one</td><td>two</td></tr></table></body></html>",
    )
    assert source.title == "Page & more"
    assert outline_of(source) == [
        (("Начало",), "Первый\nвторой <текст>"),
        (("Начало", "道岔"), "列车停靠\n\na\n  b\n\none two"),
    ]


def test_pdf_pages_are_known() -> None:
    from pointsman.ingest import chunk

    source = convert_one(
        "a.pdf",
        minimal_pdf("The first page is about trains and rails.", "The second page is about switches and signals."),
    )
    assert source.text == "The first page is about trains and rails.\n\nThe second page is about switches and signals."
    passages = chunk(source, max_tokens=16, overlap=0)
    text = dict.fromkeys((1, 2), "")
    for passage in passages:
        text[passage.metadata["page"]] += passage.text + " "
    assert "trains" in text[1]
    assert "switches" in text[2]


def test_docx_headings_and_tables() -> None:
    source = convert_one("a.docx", word())
    assert source.title == "Справочник"
    assert outline_of(source) == [
        (("Железная дорога",), "Поезд идёт по рельсам."),
        (("Железная дорога", "道岔"), "道岔引导列车。\n\nЧасть | Число\nСтрелка | 12"),
    ]


def test_json_lines_are_records_and_bad_lines_are_named() -> None:
    lines = [
        {"_id": "d1", "title": "Tit", "text": "First.", "metadata": {"year": 2020, "deep": {"a": 1}}, "tags": ["a"]},
        "{broken",
        [1],
        {"id": 7, "content": "Second.", "text": ""},
        {"name": "Стрелка", "size": {"length": 3}},
        {"_id": "d1", "text": "Again."},
        {"text": "", "title": ""},
        {"_id": "d8", "text": "", "title": "Only a title"},
    ]
    data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    items = list(convert("c.jsonl", data.encode()))
    sources = [item for item in items if isinstance(item, ParsedDocument)]
    problems = [item.reason for item in items if isinstance(item, Problem)]
    assert [(item.record_id, item.title, item.text) for item in sources] == [
        ("d1", "Tit", "First."),
        ("7", "", "Second."),
        (None, "", "name: Стрелка\nsize › length: 3"),
        ("d8", "Only a title", "Only a title"),
    ]
    assert dict(sources[0].metadata) == {"year": 2020, "tags": ["a"]}
    assert [source.lines[0].first for source in sources] == [1, 4, 5, 8]
    assert [reason.partition(":")[0] for reason in problems] == ["line 2", "line 3", "line 6", "line 7"]


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ('[{"text": "a"}, {"text": "b"}]', ["a", "b"]),
        ('{"text": "a", "n": 1}', ["a"]),
        ('{"tool": {"name": "x", "on": true}, "list": [1, "y"]}', ["tool › name: x\ntool › on: true\nlist: 1, y"]),
        ('["a", "b"]', ["a, b"]),
    ],
)
def test_json(data: str, texts: list[str]) -> None:
    assert [item.text for item in convert("a.json", data.encode()) if isinstance(item, ParsedDocument)] == texts


@pytest.mark.parametrize(
    ("name", "data", "texts"),
    [
        ("a.csv", "id;title;text\n1;A;Hello; \n2;B;Bye", ["Hello", "Bye"]),
        ("a.tsv", "name\tage\nАнна\t5\n", ["name: Анна\nage: 5"]),
        ("a.csv", "word\nodin\ndva\n", ["word: odin", "word: dva"]),
        ("a.csv", 'text,n\n"two\nlines",1\n,\n', ["two\nlines"]),
        ("a.csv", "text\na\x00b\n", ["ab"]),
        ("a.csv", "text,n\n" + "x" * 300_000 + ",1\n", ["x" * 300_000]),
    ],
)
def test_tables(name: str, data: str, texts: list[str]) -> None:
    import csv

    limit_before = csv.field_size_limit()
    assert [item.text for item in convert(name, data.encode()) if isinstance(item, ParsedDocument)] == texts
    assert csv.field_size_limit() == limit_before


def test_python_is_cut_at_definitions() -> None:
    methods = "".join(f"    def method_{number}(self):\n        return {number}\n\n" for number in range(20))
    run = "# why\n@decorator\ndef run(x):\n    return x"
    text = f'"""Doc."""\nimport os\n\n\n{run}\n\n\nclass Big:\n    """Large."""\n\n{methods}'
    source = convert_one("pkg/mod.py", text)
    sections = dict(reversed(outline_of(source)))
    assert sections[()] == '"""Doc."""\nimport os'
    assert sections["run",] == run
    assert sections["Big", "method_3"] == "    def method_3(self):\n        return 3"
    assert "Large" in sections["Big",]


@pytest.mark.parametrize(
    "text", ["def broken(:\n    pass\n\nx = 1\n", "(" * 50_000, "-" * 100_000 + "1", "a" + ".b" * 100_000, "x = '\\d'"]
)
def test_python_that_cannot_be_parsed_is_kept_as_text(text: str) -> None:
    source = convert_one("a.py", text)
    assert "\n".join(section.text for section in source.sections).split() == text.split()


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.go", "package main\n\nfunc Run(x int) {\n\n  y()\n}\n\ntype T struct {\n}\n", [(), ("Run",), ("T",)]),
        ("a.toml", "[tool.ruff]\nline = 1\n\n[tool.mypy]\nstrict = true\n", [("tool.ruff",), ("tool.mypy",)]),
        ("a.sql", "CREATE TABLE users (id int);\n\nselect 1;\n", [("users",), ()]),
    ],
)
def test_other_code_is_cut_at_empty_lines(name: str, text: str, names: list[tuple[str, ...]]) -> None:
    source = convert_one(name, text)
    assert [section.heading_path for section in source.sections] == names
    assert source.text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((RUSSIAN, name) for name in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1251", "koi8-r")),
        *((SIMPLIFIED_CHINESE, name) for name in ("utf-8", "utf-8-sig", "utf-16", "gb18030", "utf-32")),
        (SIMPLIFIED_CHINESE + "\n第二行 2.", "utf-16-le"),
        (TRADITIONAL, "big5"),
        ("Der Weichenwärter stellt die Weichen, damit jeder Zug fährt. Größe.", "cp1252"),
    ],
)
def test_encodings_are_told(text: str, encoding: str) -> None:
    assert decode_file(text.encode(encoding))[0] == text
    assert decode_file((text * 300).encode(encoding))[0] == text * 300


def test_a_declared_encoding_is_believed_where_it_fits() -> None:
    page = '<html><head><meta charset="koi8-r"></head><body>Да</body></html>'
    assert convert_one("a.html", page.encode("koi8-r")).text == "Да"
    wrong = page.replace("koi8-r", "no-such-encoding").replace("Да", RUSSIAN)
    assert convert_one("a.html", wrong.encode("cp1251")).text == RUSSIAN


@pytest.mark.parametrize(
    ("text", "encoding", "label"),
    [
        ("“Brake” – it’s 5 €…", "cp1252", "iso-8859-1"),
        ("Café ‘north’ ™", "cp1252", "Latin1"),
        (RUSSIAN, "koi8-r", "us-ascii"),
        ("堃号道岔，镕铸车间", "gbk", "gb2312"),
        ("𠮷岔", "gb18030", "gbk"),
        ("①髙橋の転轍機", "cp932", "shift_jis"),
        ("뢔뷁 선로", "cp949", "euc-kr"),
        ("caf\xe9 \x81", "latin-1", "iso-8859-1"),
    ],
)
def test_a_declared_encoding_that_is_too_small(text: str, encoding: str, label: str) -> None:
    page = f'<html><head><meta charset="{label}"></head><body>{text}</body></html>'
    assert decode_file(page.encode(encoding), may_declare=True)[0] == page


def test_a_damaged_byte_does_not_change_the_encoding() -> None:
    data = (SIMPLIFIED_CHINESE * 5).encode()
    assert decode_file(data[:300] + b"\xff" + data[300:])[0].replace("\ufffd", "") == SIMPLIFIED_CHINESE * 5


def test_the_content_overrules_the_name() -> None:
    assert convert_one("a.txt", minimal_pdf("Hidden.")).kind == "pdf"
    assert convert_one("page", "<!DOCTYPE html><p>Text").kind == "html"
    assert convert_one("README", "Text").kind == "txt"


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * (150 << 20))
    return buffer.getvalue()


def encrypted_pdf() -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(minimal_pdf("Secret."))))
    writer.encrypt("password", algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


HOSTILE: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "random.txt": (random.Random(7).randbytes(5000), "binary"),
    "program.txt": (Path(sys.executable).resolve().read_bytes()[:20_000], "binary"),
    "truncated.pdf": (minimal_pdf("x" * 50)[:60], "PDF"),
    "fake.pdf": (b"just text", "PDF"),
    "encrypted.pdf": (encrypted_pdf(), "password"),
    "empty.pdf": (minimal_pdf(""), "empty"),
    "fake.docx": (b"just text", "Word"),
    "broken.docx": (word()[:3000], "Word"),
    "bomb.docx": (bomb, "unpacks to 150 MB"),
    "deep.json": (b"[" * 100_000, "deep"),
    "deep.jsonl": (b"[" * 100_000 + b"\n", "line 1: JSON nested too deep"),
    "deep.ipynb": (b'{"cells": ' + b"[" * 100_000, "nested too deep to be read"),
    "deep.eml": (b"Content-Type: message/rfc822\n\n" * 5000 + b"words", "nested too deep to be read; save"),
    "deep.mht": (b"Content-Type: message/rfc822\n\n" * 5000 + b"words", "nested too deep to be read; save"),
    "deep.fodt": (b"<office>" + b"<text>" * 5000 + b"x" + b"</text>" * 5000 + b"</office>", "file nested too deep"),
    "number.json": (b"[" + b"9" * 10_000 + b"]", "cannot be read"),
    "deep.html": (b"<div>" * 100_000 + b"x", "HTML nested too deep"),
    "nothing.html": (b"<html><script>1</script></html>", "without text"),
    "torn.txt": (b"\xff\xfe\x00", "damaged"),
}


def test_a_message_nested_too_deep_does_not_hide_the_next_one() -> None:
    envelope = b"From a@example.org Mon Jan  1 00:00:00 2024\n"
    deep = b"Content-Type: message/rfc822\n\n" * 5000 + b"words\n\n"
    problem, message = convert("box.mbox", envelope + deep + envelope + b"Subject: Rails\n\nGood.\n")
    assert isinstance(problem, Problem)
    assert problem.reason.startswith("message 1: nested too deep")
    assert isinstance(message, ParsedDocument)
    assert message.title == "Rails"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_reported_and_the_rest_goes_in(name: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[name]
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data())
    (tmp_path / "zz.txt").write_text("Good.")
    items = list(read_paths([tmp_path]))
    assert [(problem.path, reason in problem.reason) for item in items for problem in item.problems] == [(name, True)]
    assert [document.text for item in items for document in item.documents] == ["Good."]


@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        "a.md",
        "a.rst",
        "a.html",
        "a.py",
        "a.js",
        "a.csv",
        "a.adoc",
        "a.org",
        "a.tex",
        "a.ics",
        "a.srt",
        "a.xml",
    ],
)
def test_one_endless_line_is_no_trouble(name: str, tmp_path: Path) -> None:
    units = ["слово ", "x", "道", "[", "](", "<", "`a", "# ", "> ", "- ", "&#x", "|", "=-"]
    for number, unit in enumerate(units):
        (tmp_path / f"{number}-{name}").write_text(unit * (50_000 // len(unit)))
    outcomes = collections.Counter[str]()
    for item in read_paths([tmp_path]):
        outcomes[item.path] += len(item.documents) + len(item.problems)
    assert all(outcomes[f"{number}-{name}"] for number in range(len(units))), outcomes


def test_a_good_page_survives_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from pypdfium2 import PdfTextPage

    original = PdfTextPage.get_text_range

    def fail_on_first(self: PdfTextPage) -> Any:
        if "First" in (text := original(self)):
            raise KeyError("/Font")
        return text

    monkeypatch.setattr(PdfTextPage, "get_text_range", fail_on_first)
    problem, source = convert("a.pdf", minimal_pdf("First.", "Second."))
    assert problem == Problem("a.pdf", "page 1: KeyError: '/Font'")
    assert isinstance(source, ParsedDocument)
    assert source.text.strip() == "Second."


def test_unusable_files_raise_from_convert() -> None:
    with pytest.raises(InputError, match="binary"):
        list(convert("a.txt", b"a\x00\x01\x02\x03" * 50))


def test_a_zip_is_called_by_the_list_of_its_parts_not_by_a_document_stored_within() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("ppt/embeddings/inner.docx", word())
        archive.writestr("ppt/presentation.xml", "<p/>")
    assert format_of("slides", buffer.getvalue()) == "pptx"
    assert format_of("slides", buffer.getvalue()[:-22]) == "docx"  # without the list: what it looks like
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("notes/inner.docx", word())
    assert format_of("files.zip", plain.getvalue()) == "zip"


@pytest.mark.parametrize("package", [converters, converters.office], ids=["converters", "office"])
def test_every_converter_that_is_called_can_be_loaded_first(package: Any) -> None:
    """They are loaded when the first file of their format is read, whichever that is."""
    name = package.__name__.rpartition(".")[2]
    source = Path(sys.modules[format_of.__module__].__file__ or "").read_text("utf-8")
    calls = re.findall(rf"(?<![\w.]){name}\.([a-z_]+)\.", source)
    assert len(set(calls)) > 3
    assert set(calls) <= set(package.__all__)
