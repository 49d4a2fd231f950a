"""Office formats, books, e-mail and notebooks (K1), and that every passage can be found again in its file (C1)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from office_files import OFFICE, opendocument, zipped
from pointsman.ingest import ParsedDocument, Problem, chunk, convert, read_paths, text_of
from pointsman.ingest.convert import _TEXT_FORMATS
from pointsman.ingest.source_text import Block, outline
from pointsman.tools.errors import InputError

RUSSIAN = "Стрелочник переводит стрелки. Каждый поезд идёт по нужному пути.\n\n" * 30
PROSE = "The switch guides the train. Nobody has to think about it again.\n\n" * 40
TEXTS = {
    "plain.txt": f"\n\n  {PROSE}".encode(),
    "windows.txt": PROSE.replace("\n", "\r\n").encode(),
    "koi8.txt": RUSSIAN.encode("koi8-r"),
    "utf16.txt": RUSSIAN.encode("utf-16"),
    "a.md": f"---\ntitle: T\n---\n# One\n\n{PROSE}\n## Two [link](http://x)\n\n- a [b](c)\n- d\n\n{RUSSIAN}".encode(),
    "a.rst": f"One\n===\n\n{PROSE}\n\nTwo\n---\n\n:func:`x` {RUSSIAN}".encode(),
    "a.html": f"<html><body><h1>One</h1>\n<p>{PROSE}</p>\n<h2>Two</h2>\n<p>{RUSSIAN}</p></body></html>".encode(),
    "a.py": ("import os\n\n\n" + "def first():\n    return 1\n\n\n" * 60).encode(),
    "a.log": ("2026-01-01 12:00:00 INFO the switch guides the train\n" * 100).encode(),
    "a.jsonl": b"".join(json.dumps({"id": f"d{n}", "text": PROSE[: 100 * n]}).encode() + b"\n" for n in range(1, 20)),
    "a.json": json.dumps([{"name": f"N{n}", "size": [n, n]} for n in range(5)]).encode(),
    "a.csv": ("name,text\n" + "".join(f'n{n},"two\nlines {n}"\n' for n in range(9))).encode(),
}


def convert_one(name: str, data: bytes) -> ParsedDocument:
    (source,) = (item for item in convert(name, data) if isinstance(item, ParsedDocument))
    for section in source.sections:
        assert source.text[section.start : section.start + len(section.text)] == section.text
    return source


def outline_of(source: ParsedDocument) -> list[tuple[tuple[str, ...], str]]:
    return [(section.heading_path, section.text) for section in source.sections]


@pytest.mark.parametrize("name", [*TEXTS, *OFFICE])
def test_every_passage_is_found_again_in_its_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(TEXTS[name] if name in TEXTS else OFFICE[name]())
    documents = [document for item in read_paths([path], max_tokens=64, overlap=16) for document in item.documents]
    assert documents
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    text = text_of(path, sha256=sha256)
    for document in documents:
        assert text[document.metadata["start"] : document.metadata["end"]] == document.text
        assert document.metadata["sha256"] == sha256
        assert (
            "page" in document.metadata
            or "line" in document.metadata
            or name[2:] in ("docx", "odt", "epub", "eml", "json")
        )


@pytest.mark.parametrize("name", ["plain.txt", "koi8.txt", "utf16.txt", "a.py", "a.log"])
def test_the_text_of_a_text_is_its_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(TEXTS[name])
    encoding = {"koi8.txt": "koi8-r", "utf16.txt": "utf-16"}.get(name, "utf-8")
    assert text_of(path) == path.read_text(encoding)


@pytest.mark.parametrize(
    "name", ["plain.txt", "windows.txt", "koi8.txt", "a.md", "a.rst", "a.html", "a.py", "a.log", "a.jsonl", "a.csv"]
)
def test_a_passage_stands_on_its_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(TEXTS[name])
    lines = TEXTS[name].decode("koi8-r" if name == "koi8.txt" else "utf-8").splitlines()
    for item in read_paths([path], max_tokens=64, overlap=0):
        for document in item.documents:
            line = document.metadata["line"]
            excerpt = "\n".join(lines[line - 1 : document.metadata.get("last_line", line)])
            words = [word for word in document.text.split() if word.isalpha()]
            assert words
            assert [word for word in words if word not in excerpt] == []
            if document.metadata["kind"] in ("txt", "py"):  # here a line of the text is one of the file
                assert excerpt.strip().startswith(document.text[:20])
                assert excerpt.strip().endswith(document.text[-20:])


def test_word() -> None:
    source = convert_one("a.docx", OFFICE["a.docx"]())
    assert source.title == "Справочник"
    assert outline_of(source) == [
        (("Железная дорога",), "Поезд идёт по рельсам."),
        (("Железная дорога", "道岔"), "道岔引导列车。\n\nЧасть | Число\nСтрелка | 12\nСигнал\n\nA tab\there."),
    ]


def test_word_keeps_what_stands_in_links_and_forms_and_drops_what_was_moved_away() -> None:
    name = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'

    def run(text: str) -> str:
        return f"<w:r><w:t>{text}</w:t></w:r>"

    body = (
        f"<w:sdt><w:sdtContent><w:p><w:hyperlink>{run('Linked')}</w:hyperlink>{run(' text')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><w:moveFrom>{run('away ')}</w:moveFrom>{run('Stays')}<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>"
        f"<w:p><mc:AlternateContent><mc:Choice>{run('Box')}</mc:Choice><mc:Fallback>{run('Box')}</mc:Fallback></mc:AlternateContent></w:p>"
    )
    footnotes = f"<w:footnotes {name}><w:footnote><w:p>{run('A note.')}</w:p></w:footnote></w:footnotes>"
    document = f"<w:document {name} {mc}><w:body>{body}</w:body></w:document>"
    source = convert_one("a.docx", zipped({"word/document2.xml": document, "word/footnotes.xml": footnotes}))
    assert source.text == "Linked text\n\nStays\n\nBox\n\nA note."


@pytest.mark.parametrize("length", [0, 1 << 20])
def test_word_reads_each_run_once_and_in_its_place(length: int) -> None:
    def run(text: str, properties: str = "") -> str:
        return f"<w:r><w:rPr><w:b/>{properties}</w:rPr><w:t>{text}</w:t></w:r>"

    visible = '<w:vanish w:val="0"/>'
    stops = '<w:tabs><w:tab w:val="left" w:pos="720"/></w:tabs>'
    style = '<w:pStyle w:val="2"/><w:pPrChange><w:pPr><w:pStyle w:val="1"/></w:pPr></w:pPrChange>'
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('Bild')}</w:p></w:txbxContent></w:pict><w:t>Rahmen</w:t></w:r>"
    ruby = f"<w:r><w:ruby><w:rt>{run('かん')}</w:rt><w:rubyBase>{run('漢')}</w:rubyBase></w:ruby></w:r>"
    body = (
        f"<w:p><w:pPr>{style}</w:pPr>{run('Kapitel')}</w:p><w:p><w:pPr>{stops}</w:pPr>{run('Путь')}</w:p><w:p>{box}</w:p>"
        f"<w:p>{ruby}{run('字')}</w:p><w:p><w:ins><w:smartTag>{run('Zug')}</w:smartTag></w:ins><w:r><w:tab/><w:t>7</w:t></w:r></w:p>"
        f"<w:p>{run('secret', '<w:vanish/>')}{run('seen', visible)}<w:ins>{run('тайна', '<w:vanish/>')}</w:ins></w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{run('A')}</w:p></w:tc></w:tr></w:tbl><!--{'x' * length}-->"
    )
    name = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    styles = "".join(f'<w:style w:styleId="{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2))
    members = {"word/document.xml": f"<w:document {name}><w:body>{body}</w:body></w:document>"}
    source, problem = convert("a.docx", zipped(members | {"word/styles.xml": f"<w:styles {name}>{styles}</w:styles>"}))
    assert isinstance(source, ParsedDocument)
    assert isinstance(problem, Problem)
    assert source.text.split("\n\n") == ["Kapitel", "Путь", "Bild", "Rahmen", "かん漢字", "Zug\t7", "seen", "A"]
    assert source.sections[0].heading_path == ("Kapitel",)
    assert problem.reason.startswith("2 pieces of hidden text")


def test_excel_rows_stand_below_their_header_and_know_their_numbers() -> None:
    source = convert_one("a.xlsx", OFFICE["a.xlsx"]())
    assert source.title == "Stock"
    assert source.sections[-1].heading_path == ("Люди",)
    assert source.sections[-1].text == "Имя | Родился | Женат\nАнна | 1990-05-17 12:30:00 | TRUE"
    assert "Switch 39 | 39 | 2024-03-12 | 49.5" in source.text
    assert "\n |  |  |  |  | Far away" in source.text
    passages = chunk(source, max_tokens=256)
    assert all(
        "Part | Number | Bought | Price" in passage.text for passage in passages if passage.metadata["page"] == 1
    )
    (twelve,) = (passage for passage in passages if "Switch 12 |" in passage.text)
    assert (twelve.metadata["line"], twelve.metadata["last_line"]) == (12, 21)
    assert [passage.metadata["page"] for passage in passages[-2:]] == [1, 2]
    assert passages[-1].metadata["title"] == "Stock › Люди"


@pytest.mark.parametrize(("sheet", "title"), [("Sheet", "stock"), ("Лист1", "stock"), ("Yard", "Yard")])
def test_a_workbook_whose_sheet_nobody_named_is_called_by_its_file(sheet: str, title: str) -> None:
    source = outline("parts/stock.xlsx", "xlsx", [Block(1, sheet), Block(0, "Part | Number")])
    assert source.title == title
    assert source.sections[0].heading_path == (sheet,)
    assert outline("notes.md", "md", [Block(1, sheet), Block(0, "A sheet.")]).title == sheet


def test_powerpoint_slides_are_pages() -> None:
    source = convert_one("a.pptx", OFFICE["a.pptx"]())
    assert outline_of(source) == [
        (("Railway switches",), "They guide trains.\n\nEach has two rails.\n\nSay this slowly."),
        (("信号",), "Signal | Meaning\nred | stop"),
    ]
    assert len(source.pages) == 2
    assert source.text[source.pages[1] :].startswith("信号")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.odt", [(("Путь",), "Сноска.\n\nОдин  два\tтри четыре пять.\n\nA | B")]),
        ("a.ods", [(("First",), "Name | Age\nAnna | 5"), (("空",), "空")]),
        ("a.odp", [(("Slide 1",), "Text 1."), (("Slide 2",), "Text 2.")]),
    ],
)
def test_opendocument(name: str, expected: list[tuple[tuple[str, ...], str]]) -> None:
    source = convert_one(name, OFFICE[name]())
    assert source.title == "Open"
    assert outline_of(source) == expected


def test_repeated_rows_of_a_sheet_are_counted_not_written() -> None:
    passage, _ = chunk(convert_one("a.ods", OFFICE["a.ods"]()))
    assert (passage.metadata["line"], passage.metadata["last_line"]) == (1, 1_000_002)


def test_a_book_is_read_in_its_order_and_a_missing_chapter_is_reported() -> None:
    source, *problems = reversed(list(convert("a.epub", OFFICE["a.epub"]())))
    assert isinstance(source, ParsedDocument)
    assert source.title == "Дорога"
    assert outline_of(source) == [(("Первая",), "Поезд идёт."), (("第二",), "火车停了。")]
    assert problems == [Problem("a.epub", "chapter 'OEBPS/gone.xhtml': damaged EPUB book: it has no OEBPS/gone.xhtml")]


def test_mail_has_sender_date_text_once_and_attachments() -> None:
    source, row, problem = convert("a.eml", OFFICE["a.eml"]())
    assert isinstance(source, ParsedDocument)
    assert isinstance(row, ParsedDocument)
    assert problem == Problem("a.eml", "attachment 'junk.bin': binary data, not text")
    assert source.title == "Стрелка 12"
    assert source.metadata["date"] == "2024-03-04T10:15:00+03:00"
    assert source.metadata["from"] == "Анна <anna@example.org>"
    assert source.text.count("Проверьте стрелку.") == 1
    assert (row.member, row.title, row.text) == ("таблица.csv", "Стрелка 12 › таблица.csv", "a: 1\nb: 2")
    passages = chunk(source)
    assert passages[0].metadata["from"] == "Анна <anna@example.org>"


def test_mail_in_html_only_and_headers_that_are_wrong() -> None:
    data = b"Subject: =?no-such-code?b?eA==?=\nDate: never\nContent-Type: text/html; charset=nope\n\n<p>Only <b>this</b>.</p>"
    source = convert_one("a.eml", data)
    assert source.text.endswith("Only this.")
    assert source.metadata == {"date": "never"}


@pytest.mark.parametrize(
    ("title", "encoding", "declared"),
    [
        ("Осмотр моста", "utf-8", "us-ascii"),
        ("Осмотр моста", "cp1251", "windows-1251"),
        ("Осмотр моста", "koi8-r", "koi8-r"),
        ("桥梁检查，堃号", "gbk", "gb2312"),
        ("Überprüfung – Gleis 3", "cp1252", "iso-8859-1"),
    ],
)
def test_a_subject_and_a_sender_without_encoded_words(title: str, encoding: str, declared: str) -> None:
    head = f"From: {title} <a@example.org>\nTo: =?utf-8?B?0K8=?= {title}\nSubject: {title}\n"
    data = f"{head}Content-Type: text/plain; charset={declared}\nContent-Transfer-Encoding: 8bit\n\n{title}.\n"
    source = convert_one("a.eml", data.encode(encoding))
    assert source.title == title
    assert source.metadata["from"] == f"{title} <a@example.org>"
    assert source.metadata["to"] == f"Я {title}"
    assert source.text.endswith(f"{title}.")


def test_encoded_words_in_an_encoding_larger_than_its_name() -> None:
    data = b"Subject: Re:\n =?gb2312?B?6UbW/bO1vOQ=?= =?iso-8859-1?Q?_it=92s?=\n\nx"
    assert convert_one("a.eml", data).title == "Re: 镕铸车间 it’s"


def test_an_empty_plain_part_gives_way_to_the_html_part() -> None:
    head = b"Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n"
    tail = b"\n--b\nContent-Type: text/html\n\n<p>Only the page.</p>\n--b--\n"
    assert convert_one("a.eml", head + b" \n" + tail).text.endswith("Only the page.")
    assert convert_one("a.eml", head + b"Only  the\npage." + tail).text.endswith("Only  the\npage.")


@pytest.mark.parametrize("charset", ["undefined", "punycode", "idna", "hex", "ut\xff-8", "no-such", "x" * 5000])
@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: text/plain; charset={}\n\n",
        "Subject: =?{}?q?Hi?=\n\n",
        "Content-Disposition: attachment; filename*={}''a.txt\n\n",
        "Content-Type: text/html\n\n<meta charset={}><p>",
    ],
)
def test_mail_in_encodings_that_do_not_exist_keeps_its_words(head: str, charset: str) -> None:
    data = (head.format(charset) + "Switch caf\xe9").encode("latin-1")
    sources = [item for item in convert("a.eml", data) if isinstance(item, ParsedDocument)]
    assert "Switch caf" in sources[-1].text


def test_a_part_of_a_mail_that_is_no_text_leaves_the_others() -> None:
    sections = [b"Content-Type: text/plain\n\nWords.", b"Content-Type: text/plain\n\n\x00\x01\xff\x02\x03"]
    head = b"Content-Type: multipart/mixed; boundary=b\n\n"
    problem, source = convert("a.eml", head + b"".join(b"--b\n" + section + b"\n" for section in sections) + b"--b--\n")
    assert problem == Problem("a.eml", "a part of the message: binary data, not text")
    assert isinstance(source, ParsedDocument)
    assert "Words." in source.text


def test_an_attachment_that_breaks_its_parser_leaves_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    head = "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nWords.\n--b\n"
    attachment = "Content-Disposition: attachment; filename=a.md\n\n# Broken\n--b--\n"

    def converter(*_: object) -> object:
        raise KeyError("section")

    monkeypatch.setitem(_TEXT_FORMATS, "md", converter)
    source, problem = convert("a.eml", (head + attachment).encode())
    assert problem == Problem("a.eml", "attachment 'a.md': cannot be converted: KeyError: 'section'")
    assert isinstance(source, ParsedDocument)
    assert "Words." in source.text


def test_notebook_cells_are_pages() -> None:
    source = convert_one("a.ipynb", OFFICE["a.ipynb"]())
    assert source.title == "Trains"
    assert outline_of(source) == [(("Trains",), "They run on rails.\n\nprint(2 + 2)\n\n4\n\n'four'")]
    assert source.text[source.pages[1] :].startswith("print(2 + 2)")


@pytest.mark.parametrize("name", [name for name in OFFICE if name not in ("a.eml", "a.ipynb")])
def test_the_content_overrules_the_ending(name: str) -> None:
    assert convert_one("a.txt", OFFICE[name]()).kind == name[2:]


TABLE = "<table><tr><th>Насос</th><th>Цена</th></tr><tr><td>Н-7</td><td>120</td></tr></table>"
PAGE = f"<html><head><meta charset=windows-1251></head><body>{TABLE}</body></html>"
LETTER = "From: Анна <anna@example.org>\nSubject: Pumps\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n"
SAVED = b"Date: Mon, 1 Jan 2024\nMessage-ID: <1@x>\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n"


@pytest.mark.parametrize(
    ("name", "data", "kind", "words"),
    [
        ("report.xls", TABLE.encode(), "html", "Насос | Цена"),
        ("отчёт.xls", PAGE.encode("cp1251"), "html", "Насос | Цена"),
        ("export.xls", "泵\t价格\n甲泵\t120\n".encode(), "tsv", "泵: 甲泵"),
        ("unicode.xls", "Pump\tPrice\nP-7\t120\n".encode("utf-16"), "tsv", "Pump: P-7"),
        ("page.doc", b"\xef\xbb\xbf\r\n" + PAGE.replace("windows-1251", "utf-8").encode(), "html", "Насос | Цена"),
        ("statement.pdf", b"<!DOCTYPE html><p>Your session has expired.", "html", "Your session has expired."),
        ("wiki.doc", SAVED + b"--b\nContent-Type: text/html\n\n<p>The pump P-7.\n--b--\n", "mhtml", "The pump P-7."),
        ("old.doc", b'<?xml version="1.0"?><w><p>The pump P-7.</p></w>', "xml", "The pump P-7."),
        ("readme.doc", "Насос стоит.".encode(), "txt", "Насос стоит."),
        ("mail.msg", f"{LETTER}Насос стоит.".encode(), "eml", "Насос стоит."),
        ("1700000000.M1P2.host:2,S", f"Received: by x\n\tfrom y\n{LETTER}Насос стоит.".encode(), "eml", "Насос стоит."),
        ("mark.eml", f"\ufeff\r\n{LETTER}Насос стоит.".encode(), "eml", "Насос стоит."),
        ("notes", b"Plan: buy a pump\nMessage: the pump is old\n\nIt leaks.", "txt", "It leaks."),
    ],
)
def test_text_under_the_name_of_another_program(name: str, data: bytes, kind: str, words: str) -> None:
    source = convert_one(name, data)
    assert source.kind == kind
    assert words in source.text


WORD_2003 = """<?xml version="1.0" encoding="windows-1251"?><?mso-application progid="Word.Document"?>
<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml" xmlns:wx="http://x/auxHint">
<w:fonts><w:font w:name="Courier"/></w:fonts>
<w:styles><w:style w:styleId="1"><w:name w:val="heading 1"/></w:style></w:styles>
<w:body><wx:sect><wx:sub-section><w:p><w:pPr><w:pStyle w:val="1"/></w:pPr><w:r><w:t>Насосы</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Н-7</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>120</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
</wx:sub-section></wx:sect></w:body></w:wordDocument>"""
EXCEL_2003 = """<?xml version="1.0"?>
<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">
<Styles><Style ss:ID="s62"><Font ss:FontName="Arial"/></Style></Styles>
<Worksheet ss:Name="泵"><Table><Row><Cell><Data ss:Type="String">泵号</Data></Cell><Cell/><Cell><Data>日期</Data></Cell></Row>
<Row ss:Index="4"><Cell ss:Index="2"><Data ss:Type="Number">1.1000000000000001</Data></Cell>
<Cell ss:Index="x"><Data ss:Type="String">00123</Data></Cell><Cell><Data ss:Type="DateTime">2024-03-04T00:00:00.000</Data></Cell></Row></Table></Worksheet></Workbook>"""


def flat(parts: dict[str, str]) -> str:
    sections = (f'<p:part p:name="/{name}"><p:xmlData>{text}</p:xmlData></p:part>' for name, text in parts.items())
    picture = '<p:part p:name="/word/media/a.png"><p:binaryData>AAAA</p:binaryData></p:part>'
    package = 'xmlns:p="http://schemas.microsoft.com/office/2006/xmlPackage"'
    return f'<?xml version="1.0"?><p:package {package}>{"".join(sections)}{picture}</p:package>'


def test_an_office_document_that_is_one_xml_file_is_read_as_what_it_is() -> None:
    source = convert_one("приказ.doc", WORD_2003.encode("cp1251"))
    assert (source.kind, outline_of(source)) == ("docx", [(("Насосы",), "Н-7 | 120")])
    passage = convert_one("export.xls", EXCEL_2003.encode())
    assert outline_of(passage) == [(("泵",), "泵号 |  | 日期\n | 1.1 | 00123 | 2024-03-04")]
    assert chunk(passage)[0].metadata["last_line"] == 4
    namespace = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    document = f"<w:document {namespace}><w:body><w:p><w:r><w:t>Pump P-7</w:t></w:r></w:p></w:body></w:document>"
    assert convert_one("flat.xml", flat({"word/document.xml": document}).encode()).text == "Pump P-7"


@pytest.mark.parametrize("text", [flat({})[:-20], flat({}).replace("AAAA", "A"), flat({"a": ""})])
def test_xml_that_looks_like_an_office_document_is_read_as_xml(text: str) -> None:
    assert {item.kind for item in convert("a.xml", text.encode()) if isinstance(item, ParsedDocument)} == {"xml"}


@pytest.mark.parametrize("start", [b"a:\n", b"a:\n ", b"-----", b"<", b"\t", b"mime-version", b"a"])
def test_a_format_is_told_by_the_first_characters_alone(start: bytes) -> None:
    assert convert_one("a", start * 20_000 + b"The pump.").kind == "txt"


@pytest.mark.parametrize("kind", ["pgp-signature", "pgp-keys", "pkcs7-signature", "x-pkcs7-signature"])
def test_a_signature_is_no_part_that_is_missing(kind: str) -> None:
    signature = f"--b\nContent-Type: application/{kind}; name=s\nContent-Transfer-Encoding: base64\n\nAAEC/w==\n"
    head = "Content-Type: multipart/signed; boundary=b\n\n--b\nContent-Type: text/plain\n\nWords.\n"
    assert convert_one("a.eml", f"{head}{signature}--b--\n".encode()).text == "Words."


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [
        ("application/pkcs7-mime", "MIIB", "a part of the message: encrypted, or signed as a whole"),
        ("application/octet-stream; name=e.asc", "-----BEGIN PGP MESSAGE-----\nhQ", "'e.asc': encrypted with PGP"),
        ("application/ms-tnef; name=winmail.dat", 'x\x9f>"\0', "'winmail.dat': a TNEF (winmail.dat) archive"),
    ],
)
def test_what_is_sealed_in_a_mail_is_said(kind: str, content: str, reason: str) -> None:
    data = (
        f"Subject: Pumps\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: {kind}\n\n{content}\n--b--\n"
    )
    reasons = [item.reason for item in convert("a.eml", data.encode("latin-1")) if isinstance(item, Problem)]
    assert [reason in words for words in reasons] == [True]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an old Word document; save it as .docx"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "damaged workbook"),
        ("a.xlsx", b"just text", "damaged Excel workbook"),
        ("a.pptx", zipped({"ppt/presentation.xml": "<a>"}), "damaged PowerPoint presentation"),
        ("a.epub", zipped({"x": "y"}), "it has no META-INF/container.xml"),
        ("a.odt", opendocument("text", "<office:text>")[:-40], "damaged OpenDocument file"),
        ("a.ipynb", b"[]", "no notebook"),
        ("a.ipynb", b'{"cells": 7}', "no notebook"),
        ("a.eml", b"\n\nno header", "not an e-mail"),
        ("a.zip", zipped({"x": "y"})[:20], "damaged ZIP archive"),
        ("a.jar", zipped({"x": "y"}), "a ZIP archive; unpack it"),
    ],
)
def test_what_cannot_be_read_says_why(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(convert(name, data))


@pytest.mark.parametrize(("level", "path"), [("", ("Путь",)), ("x", ("Путь",)), ("٣", ("Путь",)), ("99", ("Путь",))])
def test_a_heading_of_open_text_with_an_odd_level_is_a_heading(level: str, path: tuple[str, ...]) -> None:
    body = f'<office:text><text:h text:outline-level="{level}">Путь</text:h><text:p>Поезд идёт.</text:p></office:text>'
    source = convert_one("a.odt", opendocument("text", body))
    assert [section.heading_path for section in source.sections] == [path]
    assert source.text == "Путь\n\nПоезд идёт."
