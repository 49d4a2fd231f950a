from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.text import sentences

# "|" stands where one sentence ends and the next begins; it is no part of the text
ENGLISH = [
    "One sentence.",
    "No stop at all",
    "First. |Second.",
    "Really? |Yes! |Good.",
    "Dr. Smith met Mrs. Jones. |They talked.",
    "Use a tool, e.g. Grep, for this. |It is fast.",
    "See Fig. 3 and No. 5 for details. |Then go on.",
    "It was No. |He left.",
    "J. R. R. Tolkien wrote it. |I read it.",
    "J.R.R. Tolkien wrote it. |I read it.",
    "It was by A. Smith. |We agree.",
    "He takes vitamin C. |The doctor agrees.",
    "The U.S. Army came. |It left.",
    "She lives in the U.S. |The house is old.",
    "Apple Inc. Chairman Levinson spoke. |He sat.",
    "He works at Apple Inc. |He likes it.",
    "Pi is 3.14 or so. |Version 1.2.3 came in 2020. |It works.",
    "See https://example.com/a.html?q=1. |Then click.",
    "Wait... what? |Nothing.",
    "Well... |The end.",
    'He said "Stop." |She stopped.',
    '"Stop!" he said. |She stopped.',
    "(This is an aside.) |This is not.",
    "It works (really!) and well. |Good.",
    "At 5 p.m. the train left. |At 6 p.m. |We followed.",
    "Cats, dogs, etc. |They are pets.",
    "Smith et al. (2020) found it. |We did not.",
    "It was cited.[1] |Next came more.[2][3] |End.",
    "Call os.path.join here. |It joins.",
    "He lived from 1892 to 1973. |In 1954 he published it.",
    "A title\n|The text begins here. |It goes on.",
    "A line of a paragraph that was wrapped by an editor at\nSeventy columns goes on here. |Next.",
    "One paragraph\n\n|another paragraph",
    "Items:\n|- first\n|- second thing\n  goes on\n|- third",
    "1. Open it.\n|2. Close it.",
    "# Heading\n|text follows",
    "import os\n|x = os.getcwd()\n|print(x)",
    "Dr.\nSmith came.",
    "St. Petersburg is cold. |Mt. Everest is colder.",
    "What?! |No way!!! |Yes.",
]
RUSSIAN = [
    "Одно предложение.",
    "Первое. |Второе.",
    "Правда? |Да! |Хорошо.",
    "Он пришёл, т.е. Явился сам. |Все ждали.",
    "Книги, журналы и т. д. |Потом он ушёл.",
    "Книги, журналы и т.д. |Потом он ушёл.",
    "Книги и т. п. вещи лежали. |Он ушёл.",
    "Он родился в 1799 г. |Потом переехал.",
    "Он родился в 1799 г. в Москве. |Умер в 1837 г.",
    "Он живёт в г. Москва. |Там хорошо.",
    "Библиотека им. Ленина открыта. |Приходите.",
    "А. С. Пушкин родился в Москве. |Он поэт.",
    "А.С. Пушкин родился в Москве. |Он поэт.",
    "Это написал Л. Н. Толстой. |Он писатель.",
    "См. рис. 3 и табл. 5. |Там всё есть.",
    "Читайте стр. 10. |Потом стр. 11.",
    "Число 3.14 известно. |Версия 1.2.3 вышла.",
    "— Что? — спросил он. |— Ничего.",
    "— Иди сюда! — крикнула она. |Он пошёл.",
    "«Стой!» — крикнул он. |Она остановилась.",
    "Он сказал: «Стой». |Она остановилась.",
    "Он спросил: «Кто там?» |Никто не ответил.",
    "Ну… |Не знаю.",
    "Ну… не знаю. |Может быть.",
    "Ну... не знаю. |Может быть.",
    "Проф. Иванов читал лекцию. |Все слушали.",
    "Ул. Ленина длинная. |По ней ходят.",
    "Заголовок\n|Текст начинается здесь. |И идёт дальше.",
    "Список:\n|- первый\n|- второй",
    "Первый абзац\n\n|второй абзац",
    "Это «Java 8». |А это нет.",
    "Что такое JVM? |Это виртуальная машина.",
    "Смотрите https://example.ru/a.html. |Там всё.",
    "Это стоит 5 тыс. рублей. |Дорого.",
]
CHINESE = [
    "一句话。",
    "没有标点",
    "第一句。|第二句。",
    "真的吗？|是的！|好。",
    "他来了；|她走了。",
    "他说：“我来了。”|她笑了。",
    "“你好！”他说。|她笑了。",
    "“你是谁？”老人问道。|没有人回答。",
    "「你好。」|他笑了。",
    "『走吧！』|大家走了。",
    "他（真的吗？）走了。|她没走。",
    "（见图一。）|下一句。",
    "他……走了。|她没走。",
    "什么？！|不会吧！！|好。",
    "价格是3.14元。|版本1.2.3发布了。",
    "我喜欢AI.|他也喜欢。",
    "他用Python写程序。|It works. |很好！",
    "访问https://example.com/a.html了解。|谢谢。",
    "标题\n|正文从这里开始。|继续。",
    "第一段\n\n|第二段",
    "步骤：\n|1. 打开文件。\n|2. 关闭文件。",
    "一、打开文件\n|二、关闭文件",
    "- 第一项\n|- 第二项",
    "这一行在编辑器里被折断了所以它的长度超过了二十五个字，\n下一行接着说。|完了。",
    "《红楼梦》很长。|我读过。",
    "傳統漢字也行。|真的嗎？|是。",
    "“走吧。”|“好。”",
    "他问：“去吗？”|她点头。",
    "全角！|半角! |混合？|对。",
    "日本語です。|そうですか。",
    "（一）总则\n|（二）分则",
]
CASES = [*(("en", c) for c in ENGLISH), *(("ru", c) for c in RUSSIAN), *(("zh", c) for c in CHINESE)]


@pytest.mark.parametrize(("language", "case"), CASES)
def test_sentences_end_where_a_reader_would_end_them(language: str, case: str) -> None:
    text = case.replace("|", "")
    assert [text[a:b] for a, b in sentences(text)] == [sentence.strip() for sentence in case.split("|")]


FRAGMENTS = st.lists(
    st.sampled_from([
        ".", "!", "?", "…", "。", "！", "？", "；", " ", "\n", "\r\n",
        "\t", "\u2028", "\x85", '"', "”", ")", "（", "「", "」",
        "[1]", "- ", "1. ", "# ", "Dr", "e.g", "т", "г", "U.S",
        "A", "the", "The", "Он", "он", "他说", "中文", "x = 1", "{",
        ",", "3", "—",
    ])
).map("".join)  # fmt: skip


@given(st.one_of(st.text(), FRAGMENTS))
def test_offsets_are_ordered_disjoint_bare_and_lose_nothing(text: str) -> None:
    end = 0
    for start, stop in sentences(text):
        assert text[end:start].strip() == ""
        assert start < stop
        assert text[start:stop] == text[start:stop].strip()
        end = stop
    assert text[end:].strip() == ""


@given(FRAGMENTS, FRAGMENTS)
def test_an_empty_line_always_ends_a_sentence(first: str, second: str) -> None:
    text = f"{first}\n\n{second}"
    gap = len(first)
    assert all(b <= gap or a >= gap for a, b in sentences(text))


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        ". ",
        "a. ",
        "!",
        '"',
        '.")',
        "\n",
        "a\n",
        " ",
        "a",
        "。",
        "”",
        "1.",
        "- ",
        "…",
        "他。”",
        "(",
        "\r",
        "[1]",
        "{",
        "=",
        "x =",
    ],
)
def test_long_runs_of_anything_are_split(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    spans = sentences(text)
    assert sum(b - a for a, b in spans) <= len(text)
    assert spans == sorted(spans)
