"""Numbers of lists and headings, which programs count and no file holds, stand in the text as a reader sees them."""

from __future__ import annotations

import io

import pytest

from office_files import zipped
from pointsman.ingest import ParsedDocument, convert
from pointsman.ingest.converters.office.list_numbers import ListNumbers

PARTS = ("office", "text", "style")


def numbered_text(data: bytes) -> str:
    (source,) = convert("a.odt", data)
    assert isinstance(source, ParsedDocument)
    return source.text.replace("\n\n", "|")


def open_text(body: str, automatic: str = "", common: str = "") -> bytes:
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in PARTS)
    content = (
        f"<office:document-content {spaces}><office:automatic-styles>{automatic}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
    )
    styles = f"<office:document-styles {spaces}><office:styles>{common}</office:styles></office:document-styles>"
    return zipped({"content.xml": content, "styles.xml": styles}, "application/vnd.oasis.opendocument.text")


def open_list(style: str, *items: str, attributes: str = "") -> str:
    elements = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f'<text:list text:style-name="{style}" {attributes}>{elements}</text:list>'


def open_style(name: str, *levels: str) -> str:
    elements = "".join(
        f'<text:list-level-style-number text:level="{number}" style:num-format="{form}" style:num-suffix="{suffix}"/>'
        for number, (form, suffix) in enumerate(map(tuple, levels), start=1)
    )
    return f'<text:list-style style:name="{name}">{elements}</text:list-style>'


@pytest.mark.parametrize(
    ("level", "numbers"),
    [
        ("1.", ["1.", "2."]),
        ("a)", ["a)", "b)"]),
        ("I.", ["I.", "II."]),
        ("а)", ["а)", "б)"]),
        ("一、", ["一、", "二、"]),
    ],
)
def test_numbers_of_lists_in_open_text_are_read_as_writer_shows_them(level: str, numbers: list[str]) -> None:
    p = "<text:p>{}</text:p>".format
    nested_list = p("Билет") + open_list("L1", p("взрослый"), p("детский") + p("до 7 лет"))
    whole_list = open_list("L1", nested_list, p("Багаж"))
    styles = open_style("L1", level, "1."), open_style("L1", "i.")  # the document's own goes before the common one
    expected = f"{numbers[0]} Билет|1. взрослый|2. детский|до 7 лет|{numbers[1]} Багаж"
    assert numbered_text(open_text(whole_list, *styles)) == expected
    note = "<text:note><text:note-body><text:p>票价</text:p></text:note-body></text:note>"
    assert f"{numbers[0]} Тариф" in numbered_text(open_text(open_list("L1", p(f"Тариф{note}")), *styles)).split("|")


def test_lists_in_open_text_begin_anew_or_go_on_as_they_say() -> None:
    p = "<text:p>{}</text:p>".format
    style = open_style("L1", "1.")
    body = (
        open_list("L1", p("a"), p("b"), attributes='xml:id="one"') + p("between") + open_list("L1", p("c"))
        + open_list("L1", p("d"), attributes='text:continue-numbering="true"')
        + open_list("L1", p("e"), attributes='text:continue-list="one"')
        + open_list("L1", p("f")).replace("<text:list-item>", '<text:list-item text:start-value="7">')
        + open_list("none", p("g"))
    )  # fmt: skip
    assert numbered_text(open_text(body, style)) == "1. a|2. b|between|1. c|2. d|3. e|7. f|g"


def test_headings_of_open_text_are_numbered_by_its_outline() -> None:
    levels = "".join(
        f'<text:outline-level-style text:level="{level}" style:num-format="{form}" text:display-levels="{level}"/>'
        for level, form in ((1, "1"), (2, "1"), (3, ""))
    )
    headings = ((1, "Общее"), (2, "Срок"), (2, "Цена"), (3, "Скидки"), (1, "付款"), (2, "方式"))
    body = "".join(f'<text:h text:outline-level="{level}">{words}</text:h>' for level, words in headings)
    labels = numbered_text(open_text(body, common=f"<text:outline-style>{levels}</text:outline-style>"))
    assert labels == "1 Общее|1.1 Срок|1.2 Цена|Скидки|2 付款|2.1 方式"


@pytest.mark.parametrize(
    ("form", "text", "labels"),
    [
        ("chineseCountingThousand", "第%1章", ["第一章", "第十章", "第十一章", "第二十章", "第一百零五章"]),
        ("russianLower", "%1)", ["а)", "к)", "л)", "ф)", "хххх)"]),
        ("decimalEnclosedCircleChinese", "%1", ["①", "⑩", "⑪", "⑳", "105"]),
        ("lowerRoman", "(%1)", ["(i)", "(x)", "(xi)", "(xx)", "(cv)"]),
        ("upperLetter", "%1.", ["A.", "J.", "K.", "T.", "AAAAA."]),
    ],
)
def test_numbers_of_lists_in_word_are_read_in_the_letters_and_numerals_of_its_languages(
    form: str, text: str, labels: list[str]
) -> None:
    numbers = ListNumbers()
    numbers.levels["legal"] = {0: (1, form, text)}
    list_labels = [numbers.next("legal", 0) for _ in range(105)]
    assert [list_labels[number - 1] for number in (1, 10, 11, 20, 105)] == [f"{words} " for words in labels]


def slide_text(*paragraphs: tuple[str, int, str], shapes: int = 1) -> str:
    """The text of a slide with paragraphs: the kind of their numbers, with the first one, their level and words."""
    from pptx import Presentation
    from pptx.util import Cm

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    for _ in range(shapes):
        frame = slide.shapes.add_textbox(0, 0, Cm(9), Cm(9)).text_frame
        for number, (kind, level, words) in enumerate(paragraphs):
            paragraph = frame.add_paragraph() if number else frame.paragraphs[0]
            paragraph.text, paragraph.level = words, level
            form, _, first = kind.partition(" ")
            if form:
                mark = paragraph._p.get_or_add_pPr().makeelement(f"{DRAWING}buAutoNum", {"type": form})
                paragraph._p.get_or_add_pPr().append(mark)
                if first:
                    mark.set("startAt", first)
    file = io.BytesIO()
    deck.save(file)
    (source,) = convert("a.pptx", file.getvalue())
    assert isinstance(source, ParsedDocument)
    return source.text.replace("\n\n", "|")


DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("arabicPeriod", ["1.", "2."]),
        ("arabicPlain 9", ["9", "10"]),
        ("alphaLcParenR", ["a)", "b)"]),
        ("alphaUcParenBoth", ["(A)", "(B)"]),
        ("romanUcPeriod 3", ["III.", "IV."]),
        ("circleNumDbPlain", ["①", "②"]),
        ("ea1ChsPeriod", ["一.", "二."]),
        ("", ["", ""]),
    ],
)
def test_automatic_numbers_of_slides_are_read(kind: str, numbers: list[str]) -> None:
    text = slide_text((kind, 0, "Билет"), (kind, 0, "票价"))
    assert text == "|".join(
        f"{number} {words}".strip() for number, words in zip(numbers, ("Билет", "票价"), strict=True)
    )


def test_automatic_numbers_go_on_over_inner_lists_and_begin_anew_after_other_text() -> None:
    point, letter = "arabicPeriod", "alphaLcPeriod"
    text = slide_text(
        (point, 0, "A"), (letter, 1, "B"), (letter, 1, "C"), (point, 0, ""), (point, 0, "D"), (letter, 1, "E"),
        ("", 0, "F"), (point, 0, "G"), (letter, 0, "H"),
    )  # fmt: skip
    assert text == "1. A|a. B|b. C|2. D|a. E|F|1. G|a. H"


def test_each_shape_counts_its_own_paragraphs() -> None:
    assert slide_text(("arabicPeriod", 0, "A"), ("arabicPeriod", 0, "B"), shapes=2) == "1. A|2. B|1. A|2. B"
