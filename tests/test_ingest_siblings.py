"""What a reader sees in Office files and PDFs, in other words and languages than those of the collection of hard files."""

from __future__ import annotations

import io
import json
import re
import zipfile
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from hostile_files_kit import pdf_of, stream
from office_files import zipped
from pointsman.ingest import ParsedDocument, Problem, convert
from pointsman.ingest.converters.office.number_formats import shown
from pointsman.ingest.converters.pdf_layout import CELL_END, Piece, _lines, _rows
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def text_of_file(name: str, document: Any) -> str:
    buffer = io.BytesIO()
    document.save(buffer)
    return "\n".join(item.text for item in convert(name, buffer.getvalue()) if isinstance(item, ParsedDocument))


def test_word_shows_headers_numbers_and_both_directions_of_merged_cells() -> None:
    from docx import Document

    document = Document()
    document.sections[0].header.paragraphs[0].text = "Договор № 17"
    document.sections[0].footer.paragraphs[0].text = "第 3 版"
    for step in ("Открыть", "Закрыть"):
        document.add_paragraph(step, style="List Number")
    table = document.add_table(rows=3, cols=3)
    for row, texts in enumerate((("Депо", "План", ""), ("Тверь", "1", "2"), ("", "3", "4"))):
        for column, cell in enumerate(texts):
            table.cell(row, column).text = cell
    table.cell(0, 1).merge(table.cell(0, 2))
    table.cell(1, 0).merge(table.cell(2, 0))
    text = text_of_file("a.docx", document)
    assert "1. Открыть\n\n2. Закрыть" in text
    assert "Депо | План\nТверь | 1 | 2\nТверь | 3 | 4" in text
    assert "Договор № 17" in text
    assert "第 3 版" in text


def test_excel_shows_comments_merged_rows_and_formulas_without_a_result() -> None:
    from openpyxl import Workbook
    from openpyxl.comments import Comment

    book = Workbook()
    for row in (("区域", "城市"), ("北", "哈尔滨"), (None, "长春"), ("合计", "=COUNTA(B2:B3)")):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    book.active["B2"].comment = Comment("冬季加倍", "王")
    text = text_of_file("a.xlsx", book)
    assert "北 | 哈尔滨\n北 | 长春\n合计 | =COUNTA(B2:B3)" in text
    assert "Comment on B2: 冬季加倍" in text


@pytest.mark.parametrize("offset", [1, 10, 20, 30])
def test_an_area_of_merged_cells_is_found_where_it_is_declared_across_two_blocks(offset: int) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (("Depot", "Gleis"), ("Nord", "1"), (None, "2")):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    buffer = io.BytesIO()
    book.save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = parts["xl/worksheets/sheet1.xml"]
    before = len(sheet.partition("<mergeCell ")[0])  # a megabyte is read at a time
    spaces = " " * ((1 << 20) - before - offset)
    parts["xl/worksheets/sheet1.xml"] = sheet.replace("<mergeCells", f"{spaces}<mergeCells")
    items = convert("a.xlsx", zipped(parts))
    assert "Nord | 1\nNord | 2" in "\n".join(item.text for item in items if isinstance(item, ParsedDocument))


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        ("0.125", "0.0%", "12.5%"),
        ("-3", "0.00", "-3.00"),
        ("7", "000", "007"),
        ("1234567.5", '#,##0.00 "₽"', "1,234,567.50 ₽"),
        ("99", "[$€-407]#,##0", "€99"),
        ("-5", '0;"minus "0', "minus 5"),
        ("2.5", "[h]:mm:ss", "60:00"),
        ("1234567", "0.0,", "1234.6"),
        ("45000", "dd.mm.yyyy", "2023-03-15"),
        ("9007199254740993", "", "9007199254740993"),
        ("0.1", "General", "0.1"),
        ("no number", "0", "no number"),
    ],
)
def test_a_number_is_written_as_the_sheet_shows_it(value: str, code: str, expected: str) -> None:
    assert shown(value, code, datetime(1899, 12, 30)) == expected  # noqa: DTZ001  (cells have no time zone)


def rows_of(*lines: tuple[str, str]) -> list[list[Piece]]:
    return [
        [Piece(50, 700 - 15 * n, 50 + 5 * len(left), 710 - 15 * n, left), Piece(300, 700 - 15 * n, 300 + 5 * len(right), 710 - 15 * n, right)]
        for n, (left, right) in enumerate(lines)
    ]  # fmt: skip


def test_columns_of_prose_are_read_one_after_the_other_and_rows_of_a_table_are_kept() -> None:
    prose = rows_of(
        ("Стрелочник переводит", "Дежурный по станции"),
        ("стрелку утром и вечером,", "звонит соседу раз в час"),
        ("если поезд опаздывает.", "и пишет в журнал."),
    )
    assert [line.text for line in _lines(prose)][:4] == [
        "Стрелочник переводит",
        "стрелку утром и вечером,",
        "если поезд опаздывает.",
        "Дежурный по станции",
    ]
    table = rows_of(("Деталь", "2026"), ("Болт", "12"), ("Гайка", "7"))
    assert [line.text.split(CELL_END) for line in _lines(table)] == [["Деталь", "2026"], ["Болт", "12"], ["Гайка", "7"]]


TABLES: list[list[tuple[str, ...]]] = [
    [
        ("07/01/2015", "09/02/2015", "Long Beach Medical Center", "90", "Closure"),
        ("07/02/2015", "08/07/2015", "Signal Works", "1,060", "Layoff"),
        ("06/30/2015", "09/15/2015", "Points and Crossings of the North", "7", "Layoff"),
        ("07/08/2015", "09/06/2015", "Ballast", "129", "Closure"),
    ],
    [
        ("Стрелка левая", "СП-6", "1 250,00 ₽", "12 шт."),
        ("Рельс Р65, второй сорт", "Р-65", "96 400,50 ₽", "3 шт."),
        ("Болт", "М24", "85,10 ₽", "400 шт."),
        ("Накладка двухголовая для стыка", "1Р65", "2 310,00 ₽", "8 шт."),
    ],
    [
        ("道岔 左开", "2026-03-01", "12,500.00"),
        ("钢轨", "2026-03-14", "964.50"),
        ("螺栓 高强度", "2026-04-02", "8.10"),
        ("枕木", "2026-05-20", "330.00"),
    ],
]
PROSE = [
    ("The pointsman turns the", "On Sundays the lamps"),
    ("points in the morning and", "are cleaned by whoever"),
    ("writes down 3 times when", "has the shift, at 10 or"),
    ("the train was late.", "after the last train."),
]


def page_of(*orders: list[tuple[float, float, str]]) -> str:
    """The text of a page on which texts are drawn at their places, in the order given."""
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    for left, bottom, text in (cell for order in orders for cell in order):
        canvas.setFont("STSong-Light" if any("\u3400" < char < "\u9fff" for char in text) else "DejaVu", 8)
        canvas.drawString(left, bottom, text)
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    return source.text


def by_columns(table: Sequence[tuple[str, ...]], top: float, width: float) -> list[tuple[float, float, str]]:
    return [
        (40 + width * column, top - 16 * row, cells[column])
        for column in range(len(table[0]))
        for row, cells in enumerate(table)
    ]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("order", ["columns", "rows from below, the first column before", "columns of two tables"])
def test_rows_of_a_table_are_kept_whose_cells_the_file_has_in_another_order(
    table: list[tuple[str, ...]], order: str
) -> None:
    cells = by_columns(table, 700, 150)
    if order.startswith("rows"):
        count = len(table)
        cells = [*cells[:count], *sorted(cells[count:], key=lambda cell: (cell[1], cell[0]))]
    second = by_columns(table, 400, 150) if order.endswith("tables") else []
    rows = [" ".join(cells) for cells in table]
    long_line = "Between the two tables stands a sentence that is longer than any of the cells of a table."
    text = page_of(cells, [(40, 500, long_line)] if second else [], second)
    assert text.split("\n") == ([*rows, long_line, *rows] if second else rows)


def test_columns_of_prose_stay_columns_alone_and_above_a_table() -> None:
    prose = by_columns(PROSE, 700, 260)
    lines = [line for column in range(2) for line in (cells[column] for cells in PROSE)]
    assert page_of(prose).split("\n") == lines
    for table in TABLES[:2]:
        text = page_of(prose, by_columns(table, 500, 150))
        assert text.split("\n") == [*lines, *(" ".join(cells) for cells in table)]


def test_numbers_of_lines_in_a_margin_are_no_column_of_a_table() -> None:
    numbers = [(20.0, 700.0 - 16 * row, str(row + 1)) for row in range(8)]
    sentences = [(60.0, 700.0 - 16 * row, text) for row, (text, _) in enumerate(PROSE * 2)]
    lines = page_of(numbers, sentences).split("\n")
    assert [line for line in lines if not line.isdigit()] == [text for text, _ in PROSE * 2]


def test_columns_of_dates_and_times_are_no_prose() -> None:
    times = [(f"2026-03-{day} 09:15", f"2026-04-{day} 18:40") for day in range(11, 16)]
    assert [tuple(line.text.split(CELL_END)) for line in _lines(rows_of(*times))] == times


@pytest.mark.parametrize("size", [7, 12, 19])
def test_words_of_letters_that_are_placed_one_by_one(size: int) -> None:
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    canvas.setFont("Helvetica", size)
    rows = [
        ("Weiche 7. offen, seit 9:30 - Typ jq.", "Anna"),
        ("Lager: 3,5 mm; geprueft.", "Gleis 12."),
        ("iiii. llll.", "ok"),
    ]
    for number, cells in enumerate(rows):
        for text, left in zip(cells, (60.0, 60 + 25.0 * size), strict=True):
            for count, letter in enumerate(text):
                offset = canvas.stringWidth(text[:count], "Helvetica", size)
                canvas.drawString(left + offset, 700 - 2 * size * number, letter)
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert source.text.split("\n") == [" ".join(cells) for cells in rows]


@pytest.mark.parametrize("gap", [0.13, 0.16, 0.2])
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "line",
    ["the City of Rivergrove is to make its future plans", "стрелочник переводит стрелку утром", "η πόλη του 2017"],
)
def test_words_with_narrow_gaps_and_no_space_character_are_parted(line: str, columns: int, gap: float) -> None:
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    canvas.setFont("DejaVu", 8)
    for row in range(3):
        for column in range(columns):
            x = 40.0 + 270 * column
            for word in line.split():
                canvas.drawString(x, 780 - 14 * row, word)
                x += pdfmetrics.stringWidth(word, "DejaVu", 8) + gap * 8
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert source.text.split() == line.split() * 3 * columns


def test_a_small_letter_below_a_tall_line_begins_a_new_one() -> None:
    tall = [Piece(72, 589, 495, 604.6, "divided by the (minimum"), Piece(495, 589, 500, 604.6, ")")]
    rows = _rows(iter([*tall, Piece(73, 580, 78, 585.5, "\nn"), Piece(79, 580, 84, 585.5, "u")]))
    assert [[cell.text for cell in row] for row in rows] == [["divided by the (minimum)"], ["nu"]]
    stop = _rows(iter([*tall, Piece(501, 589, 502, 590.5, "\n.")]))
    assert [[cell.text for cell in row] for row in stop] == [["divided by the (minimum)."]]


@pytest.mark.parametrize("slope", [0.3, -0.3])
def test_letters_of_a_leaning_line_stay_in_one_row(slope: float) -> None:
    letters = [Piece(72 + 6 * n, 600 + slope * n, 77 + 6 * n, 608 + slope * n, char) for n, char in enumerate("a" * 60)]
    assert [[cell.text for cell in row] for row in _rows(iter(letters))] == [["a" * 60]]


@pytest.mark.parametrize(
    ("encoding", "ordering", "text", "codec"),
    [
        ("GBK-EUC-H", "GB1", "道岔每年润滑两次", "gbk"),
        ("ETen-B5-H", "CNS1", "道岔每年潤滑兩次", "big5"),
        ("90ms-RKSJ-H", "Japan1", "線路点検は年二回", "cp932"),
    ],
)
def test_letters_one_by_one_in_a_font_that_is_not_embedded_are_read(
    encoding: str, ordering: str, text: str, codec: str
) -> None:
    letters = "".join(
        f"q 1 0 0 1 {72 + 14 * number} 644 cm BT 3 Tr /F1 12 Tf <{letter.encode(codec).hex()}> Tj ET Q\n"
        for number, letter in enumerate(text)
    )
    page = pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            f"<< /Type /Font /Subtype /Type0 /BaseFont /SimSun /Encoding /{encoding} /DescendantFonts [6 0 R] >>".encode(),
            (
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 5 0 R"
                b" /Resources << /Font << /F1 3 0 R /F2 8 0 R >> >> >>"
            ),
            stream(f"BT /F2 12 Tf 72 700 Td (No. 12) Tj ET\n{letters}".encode()),
            f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /SimSun /CIDSystemInfo << /Registry (Adobe)"
            f" /Ordering ({ordering}) /Supplement 2 >> /DW 1000 /FontDescriptor 7 0 R >>".encode(),
            (
                b"<< /Type /FontDescriptor /FontName /SimSun /Flags 32 /FontBBox [-8 -145 1000 859] /ItalicAngle 0"
                b" /Ascent 859 /Descent -141 /CapHeight 684 /StemV 88 >>"
            ),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ]
    )
    (source,) = convert("a.pdf", page)
    assert isinstance(source, ParsedDocument)
    assert "".join(source.text.split()) == f"No.12{text}"


@pytest.mark.parametrize(
    "lines",
    [
        ("Wheels are greased twice a year, officially.", "Aardvarks see a bookkeeper"),
        ("Рельсы меняют ночью, а стрелки утром", "Длинный ввод: Анна и Алла"),
        ("道岔每年润滑两次", "列车晚点十分钟"),
    ],
)
@pytest.mark.parametrize("drawing", ["letters", "lines", "page"])
def test_letters_that_are_drawn_twice_to_be_bold_are_read_once(lines: tuple[str, ...], drawing: str) -> None:
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    font = "STSong-Light" if lines[0] > "\u3400" else "DejaVu"
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    canvas.setFont(font, 12)
    shifts = (0.0, 0.7 if drawing == "letters" else 0.3)
    if drawing == "page":
        for _ in shifts:
            for row, line in enumerate(lines):
                canvas.drawString(72, 700 - 30 * row, line)
    for row, line in enumerate(lines if drawing != "page" else ()):
        strings = line if drawing == "letters" and font == "DejaVu" else [line]
        x = 72.0
        for string in strings:
            for shift in shifts:
                canvas.drawString(x + shift, 700 - 30 * row - shift, string)
            x += pdfmetrics.stringWidth(string, font, 12)
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    if lines[0] < "\u3400":
        assert source.text.split() == " ".join(lines).split()
    assert "".join(source.text.split()) == "".join("".join(lines).split())


def test_what_stands_twice_on_a_page_at_two_places_is_read_twice() -> None:
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    lines = (
        "Lever frame Lever frame",
        "YYMMDDhhmmss aabbccdd 0000 1111",
        "____________ Lever ____",
        "Lever frame",
        "llll iiii ........",
    )
    for row, line in enumerate(lines):
        canvas.drawString(72, 700 - 8 * row, line)
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert source.text.split() == " ".join(lines).split()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("Real-time signals need infor-", "mation in real-", "time, said the well-", "read pointsman."),
         "Real-time signals need information in real-time, said the wellread pointsman."),
        (("Поезд шёл юго-западнее, стре-", "лочник шёл юго-", "западнее, а кто-", "то спал."),
         "Поезд шёл юго-западнее, стрелочник шёл юго-западнее, а ктото спал."),
        (("Ein S-Bahn-Zug hat zwei-", "mal zwei-teilig an-", "gehalten, Typ zwei-", "teilig."),
         "Ein S-Bahn-Zug hat zweimal zwei-teilig angehalten, Typ zwei-teilig."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pages", [1, 2])
def test_a_compound_keeps_its_hyphen_at_the_end_of_a_line_if_the_document_writes_it_so(
    lines: tuple[str, ...], text: str, pages: int
) -> None:
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    for page in range(pages):
        canvas.setFont("DejaVu", 12)
        if page == 0 and pages == 2:
            canvas.drawString(72, 700, "Real-time, юго-западнее, zwei-teilig.")
            canvas.showPage()
            continue
        for row, line in enumerate(lines):
            canvas.drawString(72, 700 - 15 * row, line)
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert " ".join(source.text.split()).endswith(text)


@pytest.mark.parametrize("letter_space", [0.0, 1.2])
def test_a_word_is_not_parted_where_letters_are_kerned_or_stand_apart(letter_space: float) -> None:
    from reportlab.pdfgen.canvas import Canvas

    line = "For Very good AVATARS: Type 1 offers Wood-fired Toys"
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    canvas.setFont("Helvetica", 12)
    x = 40.0
    for letter in line:
        canvas.drawString(x, 780, letter)
        kern = 1.1 if letter in "FVAWT" else 0.0  # the next letter stands nearer to these
        x += canvas.stringWidth(letter, "Helvetica", 12) + letter_space - kern
    canvas.save()
    (source,) = convert("a.pdf", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert source.text.split() == line.split()


def test_rtf_and_a_page_title_that_says_nothing() -> None:
    (source,) = (
        item for item in convert("note.rtf", rb"{\rtf1\ansi\ansicpg1251 \'cf\'ee\'e5\'e7\'e4 7\par \u36947?\u23700?}")
    )
    assert isinstance(source, ParsedDocument)
    assert (source.text, source.title) == ("Поезд 7\n道岔", "note")


PROGRAMS_TITLES = [
    *(
        "(anonymous)",
        "Untitled",
        "untitled-3",
        "Untitled Document",
        "Document",
        "Document1",
        "PowerPoint Presentation",
        "Slide 1",
    ),
    *("Документ 2", "Презентация PowerPoint", "без имени", "无标题文档", "演示文稿1", "PowerPoint 演示文稿"),
]
TITLES = {
    "Microsoft Word - Fees Res 300.2024": "Fees Res 300.2024",
    "Microsoft PowerPoint - Стрелки": "Стрелки",
    "Document types": "Document types",
    "Unknown pleasures": "Unknown pleasures",
    "文档管理": "文档管理",
}


@pytest.mark.parametrize("title", [*PROGRAMS_TITLES, *TITLES])
@pytest.mark.parametrize("kind", ["pdf", "docx", "html"])
def test_a_title_is_that_of_a_person_not_of_a_program(kind: str, title: str) -> None:
    import docx
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    if kind == "pdf":
        canvas = Canvas(buffer)
        canvas.setTitle(title)
        canvas.drawString(72, 700, "Points are oiled.")
        canvas.save()
    elif kind == "docx":
        document = docx.Document()
        document.core_properties.title = title
        document.add_paragraph("Points are oiled.")
        document.save(buffer)
    else:
        buffer.write(
            f"<html><head><title>\n {title} </title></head><body><p>Points are oiled.</p></body></html>".encode()
        )
    (source,) = convert(f"fees.{kind}", buffer.getvalue())
    assert isinstance(source, ParsedDocument)
    assert source.title == TITLES.get(title, "fees")


@pytest.mark.parametrize(
    "ending",
    [
        "pdf",
        "docx",
        "xlsx",
        "pptx",
        "odt",
        "ods",
        "rtf",
        "msg",
        "epub",
        "eml",
        "mbox",
        "png",
        "jpg",
        "xls",
        "xlsb",
        "zip",
        "doc",
        "ppt",
    ],
)
def test_a_file_of_no_bytes_is_called_empty(ending: str) -> None:
    with pytest.raises(InputError, match="an empty file, of 0 bytes"):
        list(convert(f"a.{ending}", b""))


@pytest.mark.parametrize("ending", ["txt", "md", "py", "csv", "json", "html"])
def test_a_text_of_no_bytes_is_no_problem(ending: str) -> None:
    assert list(convert(f"a.{ending}", b"")) == []


def opened_with_one_cell(error: str) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["Part", "Price"])
    book.active.append(["frog", error])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize("error", ["#VALUE!", "#REF!", "#NAME?", "#DIV/0!", "#N/A"])
def test_errors_of_a_sheet_are_shown_as_the_sheet_shows_them(error: str) -> None:
    (source,) = convert("a.xlsx", opened_with_one_cell(error))
    assert isinstance(source, ParsedDocument)
    assert f"frog | {error}" in source.text


MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("<m:f><m:num>{a}</m:num><m:den>{b}</m:den></m:f>", "speed a/b here"),
        ("<m:sSup><m:e>{a}</m:e><m:sup>{b}</m:sup></m:sSup>", "speed a^b here"),
        ("<m:sSub><m:e>{a}</m:e><m:sub>{b}</m:sub></m:sSub>", "speed a_b here"),
        ("<m:nary><m:sub>{a}</m:sub><m:sup></m:sup><m:e>{b}</m:e></m:nary>", "speed ∫_a b here"),
        (
            '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{a}{eq}</m:sub><m:sup>{b}</m:sup><m:e>{a}</m:e></m:nary>',
            "speed ∑_(a=)^b a here",
        ),
        ("<m:rad><m:radPr/><m:deg/><m:e>{a}{eq}{b}</m:e></m:rad>", "speed √(a=b) here"),
        ("<m:rad><m:deg>{b}</m:deg><m:e>{a}</m:e></m:rad>", "speed √[b]a here"),
        ("<m:f><m:num>{a}{eq}</m:num><m:den>{b}</m:den></m:f>", "speed (a=)/b here"),
        ("<m:d><m:dPr/><m:e>{a}</m:e><m:e>{b}</m:e></m:d>", "speed (a|b) here"),
        ('<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr><m:e>{a}</m:e></m:d>', "speed [a here"),
        ("<m:sSubSup><m:e>{a}</m:e><m:sub>{b}</m:sub><m:sup>{a}</m:sup></m:sSubSup>", "speed a_b^a here"),
        (
            "<m:func><m:fName><m:limLow><m:e>{a}</m:e><m:lim>{b}</m:lim></m:limLow></m:fName><m:e>{b}</m:e></m:func>",
            "speed a_b b here",
        ),
        ("<m:m><m:mr><m:e>{a}</m:e><m:e>{b}</m:e></m:mr><m:mr><m:e>{b}</m:e></m:mr></m:m>", "speed a b; b here"),
    ],
)
def test_formulas_of_word_and_powerpoint_are_read(formula: str, expected: str) -> None:
    import docx
    import pptx
    from lxml import etree

    letters = {name: f"<m:r><m:t>{letter}</m:t></m:r>" for name, letter in {"a": "a", "b": "b", "eq": "="}.items()}
    math = f'<m:oMath xmlns:m="{MATH}">{formula.format(**letters)}</m:oMath>'
    document = docx.Document()
    paragraph = document.add_paragraph("speed ")
    paragraph._p.append(etree.fromstring(math))
    paragraph.add_run(" here")
    assert expected in text_of_file("a.docx", document)
    deck = pptx.Presentation()
    box = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(0, 0, 99, 99)
    box.text_frame.text = "speed "
    office = "http://schemas.microsoft.com/office/drawing/2010/main"
    box.text_frame.paragraphs[0]._p.append(etree.fromstring(f'<a14:m xmlns:a14="{office}">{math}</a14:m>'))
    box.text_frame.paragraphs[0].add_run().text = " here"
    assert expected in text_of_file("a.pptx", deck)


def test_footers_and_dates_of_slides_are_read_once() -> None:
    import pptx
    from lxml import etree
    from pptx.oxml.ns import qn

    deck = pptx.Presentation()
    for number in range(3):
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_textbox(0, 0, 99, 99).text_frame.text = f"Slide text {number}"
        for kind, words in (("ftr", "Confidential: Ann Smith"), ("dt", "4 March 2024"), ("sldNum", f"page{number}")):
            shape = slide.shapes.add_textbox(0, 0, 99, 99)
            shape.text_frame.text = words
            properties = shape._element.find(f"{qn('p:nvSpPr')}/{qn('p:nvPr')}")
            etree.SubElement(properties, qn("p:ph")).set("type", kind)
    text = text_of_file("a.pptx", deck)
    assert [text.count(words) for words in ("Confidential: Ann Smith", "4 March 2024", "page1")] == [1, 1, 0]
    assert text.index("Slide text 0") < text.index("Confidential") < text.index("Slide text 1")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("key", ["id", "_id"])
def test_the_id_of_a_row_is_a_word_of_it(key: str, name: str) -> None:
    separator = "," if name == "a.csv" else "\t"
    rows = f"{key},part\nF-17,frog\nC-20,clip\n".replace(",", separator)
    sources = [item for item in convert(name, rows.encode()) if isinstance(item, ParsedDocument)]
    assert [(source.text, source.record_id) for source in sources] == [
        (f"{key}: F-17\npart: frog", "F-17"),
        (f"{key}: C-20\npart: clip", "C-20"),
    ]


def test_the_results_of_a_notebook_are_read_whole_or_told() -> None:
    words = " ".join(f"word{number}" for number in range(2500))  # some 22,000 characters
    output = {"output_type": "stream", "text": words}
    cells = [
        {"cell_type": "code", "source": "print()", "outputs": [{**output, "text": text}]}
        for text in (words[:9000], words)
    ]
    source, problem = sorted(
        convert("a.ipynb", json.dumps({"cells": cells}).encode()), key=lambda item: type(item).__name__
    )
    assert isinstance(source, ParsedDocument)
    assert isinstance(problem, Problem)
    assert words[:9000] in source.text
    assert words[:20_000] in source.text
    assert problem.reason == f"cell 2: a result of {len(words)} characters; only the first 20000 are read"


@pytest.mark.parametrize(
    "lines", [("السكة الحديدية", "القطار السريع"), ("תחנת הרכבת", "הקטר הישן"), ("ایستگاه راه آهن", "قطار شهری")]
)
def test_a_page_that_is_written_from_right_to_left_keeps_its_words(lines: tuple[str, str]) -> None:
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.setFont("DejaVu", 11)
    for row in range(8):
        for column, line in enumerate(lines):  # letters are placed one by one, from right to left
            right = 500.0 - 250 * column
            for letter in line:
                right -= pdfmetrics.stringWidth(letter, "DejaVu", 11)
                canvas.drawString(right, 780 - 14 * row, letter)
    canvas.save()
    items = list(convert("a.pdf", out.getvalue()))
    assert isinstance(items[0], ParsedDocument)
    assert set(" ".join(lines).split()) <= set(items[0].text.split())


@pytest.mark.parametrize("words", ["Rates & fares 2024", "Тарифы 2024 года", "票价表二零二四"])
@pytest.mark.parametrize("place", ["oddHeader", "evenFooter", "firstHeader"])
def test_headers_and_footers_of_sheets_are_read(place: str, words: str) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["Part", "Price"])
    header = getattr(book.active, place)
    header.left.text, header.center.text, header.right.text = "&P", words.replace("&", "&&"), "Ann"
    header.center.font, header.center.size, header.center.color = "Arial,Bold", 12, "FF0000"
    text = text_of_file("a.xlsx", book)
    assert f"{words} Ann" in text
    assert "&" not in text.replace(words, "")


def text_of_bytes(name: str, data: bytes) -> str:
    (source,) = convert(name, data)
    assert isinstance(source, ParsedDocument)
    return source.text


CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"
NEW_CHART = "http://schemas.microsoft.com/office/drawing/2014/chartex"


def document_with_chart(name: str, chart: str) -> bytes:
    """Return a Word document that holds a chart."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    link = f'<Relationship Id="r1" Target="charts/{name}"/>'
    return zipped({
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body/></w:document>',
        "word/_rels/document.xml.rels":
            f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{link}</Relationships>',
        f"word/charts/{name}": chart,
    })  # fmt: skip


@pytest.mark.parametrize("words", ["Fares", "Тарифы", "票价"])
def test_charts_of_the_new_form_are_tables(words: str) -> None:
    points = "".join(f'<c:pt idx="{index}">{words} {index % 2}</c:pt>' for index in range(4))
    numbers = "".join(f'<c:pt idx="{index}">{70 + index}</c:pt>' for index in (0, 1, 3))
    chart = (
        f'<c:chartSpace xmlns:c="{NEW_CHART}"><c:chartData><c:data id="0"><c:strDim type="cat"><c:lvl>{points}</c:lvl>'
        f'</c:strDim><c:numDim type="val"><c:lvl>{numbers}</c:lvl></c:numDim></c:data></c:chartData><c:chart><c:title>'
        f"<c:tx><c:txData><c:v>All {words}</c:v></c:txData></c:tx></c:title><c:plotArea><c:plotAreaRegion><c:series>"
        "<c:tx><c:txData><c:v>North</c:v></c:txData></c:tx></c:series></c:plotAreaRegion></c:plotArea></c:chart>"
        "</c:chartSpace>"
    )
    text = text_of_bytes("a.docx", document_with_chart("chartEx1.xml", chart))
    assert text.split("\n") == [f"All {words}", "", "| North", f"{words} 0 | 70", f"{words} 1 | 71", f"{words} 1 | 73"]


def test_of_a_chart_no_value_is_lost_where_categories_are_equal_or_of_two_levels() -> None:
    def points(*texts: str) -> str:
        return "".join(f'<c:pt idx="{index}"><c:v>{text}</c:v></c:pt>' for index, text in enumerate(texts) if text)

    levels = f"<c:lvl>{points('Q1', 'Q2', 'Q1', 'Q1')}</c:lvl><c:lvl>{points('2024', '', '2025')}</c:lvl>"
    series = "".join(
        f"<c:ser><c:tx><c:strRef><c:strCache>{points(name)}</c:strCache></c:strRef></c:tx><c:cat><c:multiLvlStrRef>"
        f"<c:multiLvlStrCache>{levels}</c:multiLvlStrCache></c:multiLvlStrRef></c:cat><c:val><c:numRef><c:numCache>"
        f"{points(*values)}</c:numCache></c:numRef></c:val></c:ser>"
        for name, values in (("North", ("1", "2", "", "4")), ("South", ("5", "", "7", "8")))
    )
    chart = f'<c:chartSpace xmlns:c="{CHART}"><c:chart><c:plotArea>{series}</c:plotArea></c:chart></c:chartSpace>'
    rows = text_of_bytes("a.docx", document_with_chart("chart1.xml", chart)).split("\n")
    assert rows == ["| North | South", "2024 Q1 | 1 | 5", "Q2 | 2", "2025 Q1 |  | 7", "Q1 | 4 | 8"]


@pytest.mark.parametrize(
    ("code", "number", "words"),
    [("General", "2.3999999999999977", "2.4"), ("0.0%", "0.16400000000000001", "16.4%"), ("yyyy\\.mm\\.dd", "45000", "2023-03-15"), ("", "0.1", "0.1")],
)  # fmt: skip
def test_numbers_of_a_chart_are_read_as_it_shows_them(code: str, number: str, words: str) -> None:
    form = f"<c:formatCode>{code}</c:formatCode>" if code else ""
    chart = (
        f'<c:chartSpace xmlns:c="{CHART}"><c:ser><c:tx><c:v>Тариф</c:v></c:tx><c:cat><c:strCache><c:pt idx="0"><c:v>007.10</c:v>'
        f'</c:pt></c:strCache></c:cat><c:val><c:numCache>{form}<c:pt idx="0"><c:v>{number}</c:v></c:pt></c:numCache></c:val></c:ser>'
        "</c:chartSpace>"
    )
    assert text_of_bytes("a.docx", document_with_chart("chart1.xml", chart)) == f"| Тариф\n007.10 | {words}"


@pytest.mark.parametrize("words", ["Draft of ACME", "Проект 12", "第三版"])
@pytest.mark.parametrize(
    "placeholder",
    ["???", "Page <t:page-number>1</t:page-number> / <t:page-count>99</t:page-count>", "??? (???)</t:p><t:p>00/00/0000, 00:00:00",
     "第<t:page-number>3</t:page-number>页", "Страница <t:page-number>1</t:page-number> из <t:page-count>9</t:page-count>"],
)  # fmt: skip
def test_numbers_of_pages_and_placeholders_of_an_open_document_are_no_words(placeholder: str, words: str) -> None:
    names = {name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("text", "style", "office")}
    styles = (
        f'<o:document-styles xmlns:o="{names["office"]}" xmlns:t="{names["text"]}" xmlns:s="{names["style"]}"><o:master-styles>'
        f"<s:master-page><s:header><t:p>{words} <t:page-number>4</t:page-number></t:p></s:header><s:footer><t:p>{placeholder}</t:p>"
        "</s:footer></s:master-page></o:master-styles></o:document-styles>"
    )
    content = f'<o:document-content xmlns:o="{names["office"]}"/>'
    files = {"content.xml": content, "styles.xml": styles}
    assert text_of_bytes("a.ods", zipped(files, "application/vnd.oasis.opendocument.spreadsheet")) == words


@pytest.mark.parametrize("words", ["alpha over beta", "{тариф} over {2}", "票价 times 2"])
def test_a_formula_of_an_open_document_is_read_as_its_author_wrote_it(words: str) -> None:
    names = {name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("text", "drawing", "office")}
    content = (
        f'<o:document-content xmlns:o="{names["office"]}" xmlns:t="{names["text"]}" xmlns:d="{names["drawing"]}" '
        'xmlns:x="http://www.w3.org/1999/xlink"><o:body><o:text><t:p>Area: <d:frame><d:object x:href="./Object 1"/>'
        "</d:frame>, as told.</t:p></o:text></o:body></o:document-content>"
    )
    formula = (
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow><mi>x</mi></mrow>'
        f'<annotation encoding="StarMath 5.0">{words}</annotation></semantics></math>'
    )
    files = {"content.xml": content, "Object 1/content.xml": formula}
    assert (
        text_of_bytes("a.odt", zipped(files, "application/vnd.oasis.opendocument.text")) == f"Area: {words}, as told."
    )
    files["Object 1/content.xml"] = re.sub("<annotation.*</annotation>", "", formula)  # as other programs save it
    assert text_of_bytes("a.odt", zipped(files, "application/vnd.oasis.opendocument.text")) == "Area: x, as told."
    files["content.xml"] = content.replace("t:p>", "d:page>")
    assert text_of_bytes("a.odp", zipped(files, "application/vnd.oasis.opendocument.presentation")) == "x"


@pytest.mark.parametrize("words", ["Fares by year", "Тарифы по годам", "各年票价"])
@pytest.mark.parametrize("kind", ["text", "spreadsheet", "presentation"])
def test_charts_of_open_documents_are_read_where_they_stand(kind: str, words: str) -> None:
    names = ["text", "table", "draw", "office", "chart"]
    spaces = [f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names]
    head = (
        " ".join(spaces).replace("xmlns:draw:1.0", "xmlns:drawing:1.0") + ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    )
    chart = (
        f"<office:document-content {head}><office:body><office:chart><chart:chart><chart:title><text:p>{words}</text:p>"
        "</chart:title><table:table><table:table-row><table:table-cell><text:p>north</text:p></table:table-cell>"
        "<table:table-cell><text:p>7.5</text:p></table:table-cell></table:table-row></table:table>"
        "</chart:chart></office:chart></office:body></office:document-content>"
    )
    frame = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
    body = {
        "text": f"<text:p>First. {frame}</text:p>",
        "spreadsheet": f'<table:table table:name="One"><table:shapes>{frame}</table:shapes></table:table>',
        "presentation": f'<draw:page draw:name="One">{frame}</draw:page><draw:page draw:name="Two"/>',
    }[kind]
    content = f"<office:document-content {head}><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    data = zipped({"content.xml": content, "Object 1/content.xml": chart}, f"application/vnd.oasis.opendocument.{kind}")
    (source,) = convert("a.odt", data)
    assert isinstance(source, ParsedDocument)
    assert words in source.text
    assert "north | 7.5" in source.text
    if kind == "presentation":
        assert source.text.index(words) < source.pages[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [("Rates 2024", "Rates 2024"), ("Тарифы", "\\'d2\\'e0\\'f0\\'e8\\'f4\\'fb"), ("票价", "\\u31080?\\u20215?")],
)
@pytest.mark.parametrize(
    "group", ["\\header \\pard", "\\footerf{}", "\\footnote\\pard\\plain", "\\*\\annotation{\\*\\atnref 1}"]
)
def test_headers_footnotes_and_comments_of_rtf_are_read_beside_the_text(group: str, words: str, code: str) -> None:
    note = f"{{{group} {code} \\{{7\\}}\\par}}"
    data = f"{{\\rtf1\\ansi\\ansicpg1251 {note}The frog is worn{note} out.\\par Next.}}".encode()
    (source,) = convert("a.rtf", data)
    assert isinstance(source, ParsedDocument)
    assert [line.strip() for line in source.text.split("\n") if line.strip()] == [
        "The frog is worn out.",
        "Next.",
        f"{words} {{7}}",
    ]


@pytest.mark.parametrize(
    "data", [rb"{\rtf1 Words. {\header unclosed", rb"{\rtf1 Words. {\footnote a}", rb"{\rtf1 Words.}{\header }"]
)
def test_damaged_notes_of_rtf_leave_its_text(data: bytes) -> None:
    (source,) = (item for item in convert("a.rtf", data) if isinstance(item, ParsedDocument))
    assert "Words." in source.text


def test_an_object_of_an_open_document_is_read_once_and_never_in_itself() -> None:
    names = " ".join(
        f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{m}:1.0"' for n, m in (("text", "text"), ("draw", "drawing"))
    )
    frame = '<draw:object xlink:href="./Object 1"/><draw:object xlink:href="."/>'
    part = f'<x {names} xmlns:xlink="http://www.w3.org/1999/xlink"><text:p>Words. {frame}</text:p></x>'
    data = zipped({"content.xml": part.replace(frame, frame * 1000), "Object 1/content.xml": part.replace("Words", "Chart")},
                  "application/vnd.oasis.opendocument.text")  # fmt: skip
    (source,) = convert("a.odt", data)
    assert isinstance(source, ParsedDocument)
    assert source.text == "Chart.\n\nWords."
