"""Numbers of lists and headings, which programs count and no file holds, stand in the text as a reader sees them."""

from __future__ import annotations

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
