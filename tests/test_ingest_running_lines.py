"""Lines that run over the pages of a PDF: they are read once, and the sentences that they part are whole."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import pytest

from hostile_files_kit import pdf_of, stream
from pointsman.ingest import ParsedDocument, convert
from pointsman.ingest.converters.pdf_layout import Piece, without_running_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

Line = tuple[float, float, str]
"""Where a line stands, from the lower left corner, and its text."""

LANGUAGES = {
    "en": (
        ("Annual report 2019", "Chapter 3 · {}", "Page {} of 9"),
        "The pointsman of gate {} turns the lever every morning and",
        "writes down the trains that were late on that day, in a book. Then he rests.",
        " ",
    ),
    "ru": (
        ("Годовой отчёт за 2019 год", "Глава 3 · {}", "Стр. {} из 9"),
        "Стрелочник у ворот {} переводит стрелку каждое утро и",
        "записывает в книгу поезда, которые в этот день опоздали. Потом он отдыхает.",
        " ",
    ),
    "zh": (
        ("2019年年度报告", "第三章 - {}", "第 {} 页 共 9 页"),
        "第{}号道岔的扳道工每天早晨扳动拉杆，让列车驶上正确的轨道，",
        "并把当天晚点的列车一一记在本子上。然后他去休息。",
        "",
    ),
}
SIZE = (595.0, 842.0)


def pdf(*pages: Sequence[Line], size: tuple[float, float] = SIZE, heights: dict[str, float] | None = None) -> bytes:
    """A PDF of these lines; ``heights`` says which texts are not of 10 points."""
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=size)
    for page in pages:
        for left, bottom, text in page:
            is_chinese = any("\u3400" < char < "\u9fff" for char in text)
            canvas.setFont("STSong-Light" if is_chinese else "DejaVu", (heights or {}).get(text, 10))
            canvas.drawString(left, bottom, text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def read(*pages: Sequence[Line], size: tuple[float, float] = SIZE, **heights: float) -> list[str]:
    """The text of each page."""
    (source,) = convert("a.pdf", pdf(*pages, size=size, heights=heights))
    assert isinstance(source, ParsedDocument)
    assert len(source.pages) == len(pages)
    return [
        source.text[start:end].strip("\n")
        for start, end in zip(source.pages, (*source.pages[1:], len(source.text)), strict=True)
    ]


def body(*texts: str, top: float = 740) -> list[Line]:
    return [(60, top - 14 * row, text) for row, text in enumerate(texts)]


def prose(number: int, count: int = 6) -> list[Line]:
    return body(*(f"Sentence {number}-{row} says something of its own about the line." for row in range(count)))


def stands_once(texts: Sequence[str], words: str) -> bool:
    return sum(text.count(words) for text in texts) == 1


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("order", ["as they stand", "heads and feet first", "heads and feet last"])
def test_heads_and_feet_are_read_once_and_sentences_between_pages_are_whole(language: str, order: str) -> None:
    (head, chapter, foot), start, ending, space = LANGUAGES[language]
    pages = []
    for number in range(1, 6):
        heads = [(60.0, 800.0, head), (300.0, 800.0, chapter.format(number))]
        feet = [(250.0, 40.0, foot.format(number))]
        lines = body(*([ending] if number > 1 else []), *[start.format(number + 10)] * 3)
        pages.append(
            [*heads, *lines, *feet]
            if order.startswith("as")
            else [*heads, *feet, *lines]
            if order.endswith("first")
            else [*lines, *heads, *feet]
        )
    texts = read(*pages)
    joined = "\n".join(texts)
    for line in (head, chapter.split(" ")[0], foot.split("{}")[1]):
        assert joined.count(line) == 1, line
    for number in range(1, 5):
        sentence = f"{start.format(number + 10)}{space}{ending}"
        assert sentence in (" " if space else "").join(joined.split()) or sentence in joined.replace("\n", space)
    assert texts[1].startswith(ending)


def test_the_first_page_on_which_a_line_stands_keeps_it() -> None:
    title = body("The lines of the valley")
    pages = [title, *([(60.0, 800.0, "Annual report 2019"), *prose(number)] for number in range(2, 7))]
    texts = read(*pages)
    assert texts[0] == "The lines of the valley"
    assert texts[1].split("\n")[0] == "Annual report 2019"
    assert stands_once(texts, "Annual report 2019")


@pytest.mark.parametrize("language", LANGUAGES)
def test_heads_of_even_and_odd_pages(language: str) -> None:
    (head, chapter, _), *_ = LANGUAGES[language]
    pages = [
        [(60.0, 800.0, f"{number}"), (300.0, 800.0, head), *prose(number)]
        if number % 2
        else [(60.0, 800.0, chapter.split(" ")[0]), (400.0, 800.0, f"{number}"), *prose(number)]
        for number in range(1, 8)
    ]
    texts = read(*pages)
    assert stands_once(texts, head)
    assert stands_once(texts, chapter.split(" ")[0])
    for number, text in enumerate(texts[2:], start=3):
        assert text.split("\n") == [line for _, _, line in prose(number)]


def test_a_chapter_head_that_changes_stays_findable() -> None:
    chapters = ["Signals", "Signals", "Signals", "Levers", "Levers", "Levers", "Gates"]
    pages = [[(60.0, 800.0, f"{name} · {page}"), *prose(page)] for page, name in enumerate(chapters, start=41)]
    texts = read(*pages)
    assert all(stands_once(texts, f"{name} ·") for name in ("Signals", "Levers", "Gates"))
    assert texts[3].startswith("Levers · 44")


@pytest.mark.parametrize("language", LANGUAGES)
def test_of_two_pages_nothing_is_taken(language: str) -> None:
    (head, _, foot), *_ = LANGUAGES[language]
    pages = [[(60.0, 800.0, head), *prose(number), (60.0, 40.0, foot.format(number))] for number in (1, 2)]
    for number, text in enumerate(read(*pages), start=1):
        assert text.split("\n")[0] == head
        assert "".join(text.split("\n")[-1].split()) == "".join(foot.format(number).split())


def test_numbers_of_pages_alone_go() -> None:
    marks = ("{}", "- {} -", "— {} —", "{}/4")
    for mark in marks:
        texts = read(*([*prose(number), (290.0, 40.0, mark.format(number))] for number in range(1, 5)))
        kept = [line for number in range(1, 5) for _, _, line in prose(number)]
        assert "\n".join(texts).split("\n") == kept or mark == "{}/4", mark
        assert sum(text.count("\n") for text in texts) <= len(kept) - 3


@pytest.mark.parametrize(
    "line",
    ["Sold: {} lamps", "Invoice No. {}", "{} 1{} {}9", "Chapter {}", "INV-{}", "On {}/5/2024"],
)
def test_a_number_that_may_be_of_something_else_than_pages_stays(line: str) -> None:
    lines = [line.replace("{}", str(number)) for number in range(1, 6)]
    texts = read(*([(60.0, 800.0, text), *prose(number)] for number, text in enumerate(lines)))
    assert [text.split("\n")[0] for text in texts] == lines


@pytest.mark.parametrize("label", ["Invoice No.", "Счёт №", "发票号", "Invoice:"])
def test_an_invoice_number_beside_its_label_stays(label: str) -> None:
    pages = [[(60.0, 800.0, label), (300.0, 800.0, f"{1000 + n}"), *prose(n)] for n in range(4)]
    assert [text.split("\n")[0] for text in read(*pages)] == [f"{label} {1000 + n}" for n in range(4)]


def test_a_number_that_does_not_go_on_with_the_pages_stays() -> None:
    numbers = ("7", "3", "12", "8", "40")
    texts = read(*([*prose(page), (290.0, 40.0, number)] for page, number in enumerate(numbers)))
    assert [text.split("\n")[-1] for text in texts] == [*numbers]


def test_a_paragraph_that_repeats_stays() -> None:
    words = "Whoever turns the lever looks whether the signal is set, and says so. " * 4
    pages = [
        [Piece(60, 40, 500, 50, words), *(Piece(60, 600 - 20 * n, 300, 610 - 20 * n, "text") for n in range(9))]
    ] * 4
    assert all(lines[0] == words and not kept_lines for lines, kept_lines in without_running_lines(pages))


def test_lines_of_which_no_place_is_known_are_neither_running_lines_nor_text_beside_them() -> None:
    scan = [Piece(0, 0, 0, 0, text) for text in ("Rail Ltd.", "Annual report", "words of a scan")]
    pages = [
        [
            Piece(60, 40, 100, 50, "Rail Ltd."),
            *scan,
            *(Piece(60, y, 300, y + 10, f"{page} {y}") for y in range(500, 700, 20)),
        ]
        for page in range(4)
    ]
    for number, (lines, kept_lines) in enumerate(without_running_lines(pages)):
        assert lines[:3] == [line.text for line in scan]
        assert kept_lines == ["Rail Ltd."] * (number == 0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_head_that_is_kept_parts_no_sentence(language: str) -> None:
    (head, *_), start, ending, _ = LANGUAGES[language]
    pages = [
        body(*[start.format(1)] * 3),
        [(60.0, 800.0, head), *body(ending, ending.replace(" ", "-"))],
        *([(60.0, 800.0, head), *prose(number)] for number in range(3, 6)),
    ]
    texts = read(*pages)
    assert texts[1].startswith(ending)
    assert texts[1].split("\n")[-1] == head
    assert stands_once(texts, head)


def test_heads_above_letters_of_which_no_height_is_known() -> None:
    words = ("列车", "道岔", "信号", "拉杆", "车库")
    pages = [
        [(60.0, 800.0, "2019年年度报告"), *body(f"{word}晚点", f"扳道工看{word}", f"{word}亮了")] for word in words
    ]
    assert stands_once(read(*pages), "2019年年度报告")


def test_heads_that_do_not_stand_at_the_very_same_height() -> None:
    texts = read(*([(60.0, 800.0 + 4 * (number % 2), "Annual report"), *prose(number)] for number in range(4)))
    assert stands_once(texts, "Annual report")


def test_a_foot_below_a_few_lines_far_from_one_another() -> None:
    pages = [
        [*((60.0, 700 - 150.0 * row, f"A lamp {page} {row}") for row in range(4)), (60.0, 200.0, "Rail Ltd.")]
        for page in range(4)
    ]
    assert stands_once(read(*pages), "Rail Ltd.")


TABLES = {
    "en": ("Item", "Made in", "Price"),
    "ru": ("Товар", "Страна", "Цена"),
    "zh": ("商品", "产地", "价格"),
}


@pytest.mark.parametrize("language", TABLES)
@pytest.mark.parametrize("pitch", [13, 24])
@pytest.mark.parametrize("has_head", [False, True])
def test_the_header_of_a_table_that_goes_on_stays_on_each_page(language: str, pitch: int, has_head: bool) -> None:
    pages = []
    for page in range(4):
        rows = [TABLES[language], *((f"lamp {page}{row}", "Chur", f"{3 * row + page}.50") for row in range(8))]
        head = [(60.0, 800.0, "Price list 2024")] if has_head else []
        cells = [(60.0 + 150 * cell, 740.0 - pitch * row, rows[row][cell]) for row in range(9) for cell in range(3)]
        pages.append([*head, *cells])
    texts = read(*pages)
    header = " ".join(TABLES[language])
    for page, text in enumerate(texts):
        assert text.split("\n")[page == 0 and has_head] == header
    assert "\n".join(texts).count("Price list 2024") == has_head


def test_the_header_of_a_table_with_other_gaps_than_the_page_and_of_its_last_row_alone_stays() -> None:
    pages = []
    for page in range(4):
        rows = [TABLES["en"], *((f"lamp {page}{row}", "Chur", f"{3 * row + page}.50") for row in range(5))]
        rows = rows[:2] if page == 3 else rows
        cells = [
            (60.0 + 150 * cell, 740.0 - 36 * row, line[cell]) for row, line in enumerate(rows) for cell in range(3)
        ]
        lines_below = body(*(text for _, _, text in prose(page, 12)), top=500)
        pages.append([*cells, *(lines_below if page < 3 else [])])
    assert all(text.startswith("Item Made in Price\n") for text in read(*pages))


def test_a_heading_of_the_body_that_repeats_stays() -> None:
    pages = [body("Example", *(line for _, _, line in prose(number))) for number in range(5)]
    assert all(text.startswith("Example\n") for text in read(*pages))


def test_a_heading_that_stands_where_other_pages_have_text_stays() -> None:
    pages = [prose(number, 20) for number in range(6)]
    pages += [[*body("Categorical Variable"), *body(f"Whether {name}.", top=710)] for name in ("one", "two", "three")]
    assert sum(text.startswith("Categorical Variable\n") for text in read(*pages)) == 3


def test_a_head_is_taken_from_a_page_that_begins_with_a_table_too() -> None:
    rows = [("lamp", "Chur", "3.50"), ("rail", "Bern", "4.50"), ("gate", "Basel", "7.50")]
    table = [(60.0 + 150 * cell, 770.0 - 30 * row, rows[row][cell]) for row in range(3) for cell in range(3)]
    head: list[Line] = [(60, 800, "Annual report"), (210, 800, "2019"), (360, 800, "Rail Ltd.")]
    texts = read(*([*head, *(table if number == 4 else prose(number))] for number in range(1, 6)))
    assert stands_once(texts, "Annual report 2019 Rail Ltd.")
    assert texts[3] == "\n".join(" ".join(cells) for cells in rows)


@pytest.mark.parametrize("size", [SIZE, (842.0, 595.0)])
def test_the_title_of_forms_and_of_slides_stays(size: tuple[float, float]) -> None:
    top = size[1] - 60
    pages = [
        [
            (60.0, top, "Report of damage"),
            *body(f"Lamp {number}", "It is broken.", top=top - 60),
            (60.0, 30.0, "Rail Ltd."),
        ]
        for number in range(4)
    ]
    texts = read(*pages, size=size, **{"Report of damage": 20})
    assert all("Report of damage" in text for text in texts)
    assert stands_once(texts, "Rail Ltd.")


def test_rows_of_figures_at_the_ends_of_pages_stay() -> None:
    pages = [[*prose(number), (60.0, 600.0, f"{number} {number * 7} 20{number}9")] for number in range(1, 6)]
    for number, text in enumerate(read(*pages), start=1):
        assert text.split("\n")[-1] == f"{number} {number * 7} 20{number}9"


def test_equal_pages_stay_as_they_are() -> None:
    page = [(60.0, 800.0, "Annual report"), (60.0, 700.0, "Left blank on purpose"), (60.0, 40.0, "Rail Ltd.")]
    assert read(*[page] * 6) == ["Annual report\nLeft blank on purpose\nRail Ltd."] * 6


def test_titles_of_slides_stay_whose_letters_are_no_larger() -> None:
    pages = [
        [(60.0, 540.0, "Results"), *body(f"Lamp {page}", "It is bright.", top=440), (60.0, 30.0, "Rail Ltd.")]
        for page in range(4)
    ]
    texts = read(*pages, size=(842.0, 595.0))
    assert all("Results" in text for text in texts)
    assert stands_once(texts, "Rail Ltd.")


def test_a_page_with_nothing_but_running_lines_is_no_error() -> None:
    head = (60.0, 800.0, "Annual report")
    texts = read([head, *prose(1)], [head], [head, *prose(3)])
    assert texts[1] == ""
    assert stands_once(texts, "Annual report")


@pytest.mark.parametrize("lines", [50_000, 400])
def test_many_identical_lines_are_read_in_time(lines: int) -> None:
    content = b"BT /F1 2 Tf 9 TL 10 800 Td " + b"(same line) Tj T* " * lines + b"ET"
    count = 4
    kids = b" ".join(b"%d 0 R" % (5 + number) for number in range(count))
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R"
        b" /Resources << /Font << /F1 3 0 R >> >> >>"
    )
    data = pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            stream(content),
            *[page] * count,
        ]
    )
    start = time.process_time()
    sources = [item for item in convert("a.pdf", data) if isinstance(item, ParsedDocument)]
    assert time.process_time() - start < 20
    assert "same line" in sources[0].text


def test_ten_thousand_pages_are_compared_in_time() -> None:
    lines = [Piece(60, 800 - 20 * row, 300, 810 - 20 * row, "12 34 · 56 · 78\x1f9\x1f9\x1f9") for row in range(30)]
    start = time.process_time()
    assert len(list(without_running_lines([lines] * 10_000))) == 10_000
    assert time.process_time() - start < 20
