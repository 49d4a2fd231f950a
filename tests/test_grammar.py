"""One grammar for all that looks for words: the rule of matching, the lists, and what stands on them."""

from __future__ import annotations

from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammar_kit import CASES, right
from pointsman import ToolMetadata, keyword_match_rule, recommend, router_select, semantic_query_rule
from pointsman.retrieval.plan.transform import subquestions
from pointsman.text.grammar import (
    AMOUNT,
    COMPARISON,
    CONVERSATIONAL,
    EXACT,
    FOR_MEANING,
    FOR_WORDS,
    FUNCTION,
    IMAGE,
    MEANING,
    NOW,
    QUESTION,
    REFERENCE,
    TIME,
    Words,
    asks,
    count,
    plain,
)
from pointsman.values.types import Query

LISTS = [
    AMOUNT,
    IMAGE,
    COMPARISON,
    CONVERSATIONAL,
    EXACT,
    FOR_MEANING,
    FOR_WORDS,
    FUNCTION,
    MEANING,
    NOW,
    QUESTION,
    REFERENCE,
    TIME,
]
CUES = [AMOUNT, IMAGE, COMPARISON, CONVERSATIONAL, EXACT, MEANING, NOW, QUESTION, TIME]

LOOKALIKES = [
    *(
        "解释器",
        "解释器的实现",
        "准确率",
        "提高准确率",
        "精确度",
        "意义重大",
        "比较器",
        "对比度",
        "差异化经营",
        "比较级",
    ),
    *(
        "无论如何",
        "哪吒",
        "吗啡",
        "司法解释",
        "比较好",
        "因为",
        "技术语言",
        "好几年",
        "多大期",
        "图书馆",
        "试图",
        "图像识别",
    ),
    *(
        "somewhat",
        "whatsoever",
        "comparable",
        "indifferent",
        "terminal",
        "inexact",
        "nowadays2",
        "howl",
        "imagery",
        "docker image",
    ),
    *("что-то", "кое-что", "потому что", "что касается", "какао", "обработка изображений", "сравнимо", "неточность"),
]
MATCHES = [
    (MEANING, "请解释一下垃圾回收", "解释"),
    (MEANING, "解释器官移植", "解释"),  # 器官 is a word of its own
    (MEANING, "这句话的意义是什么", "意义"),
    (EXACT, "精确匹配", "精确"),
    (EXACT, "the exact-match operator", "exact"),
    (EXACT, "по ключевым словам", "ключевым словам"),
    (COMPARISON, "比较性能", "比较"),
    (COMPARISON, "比较大学和高中", "比较大学"),
    (COMPARISON, "Pros & Cons", "pros & cons"),
    (COMPARISON, "pros and\ncons", "pros and cons"),
    (COMPARISON, "苹果VS香蕉", "vs"),
    (COMPARISON, "兩種方法的區別", "区别"),
    (COMPARISON, "Ёмкость: сравнение", "сравнение"),
    (QUESTION, "天空為什麼是藍色的", "为什么"),
    (QUESTION, "ЧТО-ТО или что", "что"),
    (TIME, "в прошлом году", "в прошлом году".removeprefix("в ")),
    (TIME, "the Latest release", "latest"),
    (TIME, "最近的新闻", "最近"),
    (TIME, "two weeks ago", "two weeks ago"),
    (FUNCTION, "кот в шляпе", "в"),
    (FUNCTION, "猫的历史", "的"),
    (IMAGE, "покажи рисунок кота", "рисунок"),
    (IMAGE, "故宫的圖", "图"),
    (AMOUNT, "В каком году", "в каком году"),
    (AMOUNT, "它有多高", "多高"),
    (FOR_MEANING, "семантического поиска", "семантического"),
]


@pytest.mark.parametrize("text", LOOKALIKES)
def test_a_word_inside_another_is_not_found(text: str) -> None:
    assert [words.first(plain(text)) for words in CUES] == [None] * len(CUES)
    query = Query(text)
    choices = [ToolMetadata("keyword search", ""), ToolMetadata("vector search", "")]
    assert [rule(query, c) for rule in (keyword_match_rule, semantic_query_rule) for c in choices] == [0.0] * 4
    assert recommend(query).strategy in {"multi_query", "hybrid"}
    assert router_select(text)["reasons"] in (["short_or_entity_numeric"], ["default_dense"])


@pytest.mark.parametrize(("words", "text", "expected"), MATCHES)
def test_words_are_found_as_they_stand(words: Words, text: str, expected: str) -> None:
    match = words.first(plain(text))
    assert match is not None
    assert match.text == expected
    assert plain(text)[match.start : match.end] == match.text


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("really ?!", "?"),
        ("небо голубое？", "?"),
        ("and in which year did it open", "in which"),
        ("isn't it late", "isn't it"),
        ("а где это", "где"),
        ("можно ли есть снег", "можно ли"),
        ("которая из них", "которая"),
        ("这台机器怎么用", "怎么"),
        ("今天的会议取消了吗", "吗"),
        ("Will Smith filmography", ""),
        ("I know what you did", ""),
        ("電影 How to Train Your Dragon 的票房", ""),
        ("", ""),
    ],
)
def test_what_asks(text: str, cue: str) -> None:
    assert asks(plain(text)) == cue


def test_words_are_counted_in_every_language() -> None:
    assert [count(text) for text in ("", "state-of-the-art don't", "机器学习", "用python写", "环保设备维护手册")] == [
        0,
        2,
        3,
        3,
        5,
    ]


@given(st.text())
def test_the_plain_form_keeps_every_place_and_is_its_own(text: str) -> None:
    plain_text = plain(text)
    assert len(plain_text) == len(text)
    assert plain(plain_text) == plain_text


FRAGMENTS = st.lists(st.sampled_from([*LOOKALIKES, *(text for _, text, _ in MATCHES), " ", "-", "，", "x"]), max_size=8)


@given(FRAGMENTS.map("".join) | FRAGMENTS.map(" ".join) | st.text())
def test_matches_are_in_order_apart_and_at_the_ends_of_words(text: str) -> None:
    text = plain(text)
    for words in LISTS:
        matches = words.all(text)
        assert [match.text for match in matches] == [text[match.start : match.end] for match in matches]
        assert all(first.end <= second.start for first, second in pairwise(matches))
        assert words.first(text) == (matches[0] if matches else None)


@pytest.mark.parametrize("unit", ["что-то ", "потому ", "解释器", "因", "what ", "pros and ", "a", "近几", "\x00"])
def test_a_long_text_takes_no_longer_than_its_length(unit: str) -> None:
    text = plain(unit * (50_000 // len(unit)))
    start = process_time()  # not hurt by other programs
    for words in LISTS:
        words.all(text)
    assert process_time() - start < 15  # some .5; in quadratic time this would run for many minutes


@pytest.mark.parametrize("case", [case for case in CASES if not case["held_out"]], ids=lambda case: case["id"])
def test_questions_taken_apart(case: dict[str, Any]) -> None:
    assert right(case), subquestions(case["text"])


def test_held_out_questions_taken_apart() -> None:
    """Twenty a language, a third of them held out."""
    assert all(sum(case["language"] == language for case in CASES) == 20 for language in ("en", "ru", "zh"))
    held_out = [case for case in CASES if case["held_out"]]
    assert len(held_out) == 21
    assert sum(map(right, held_out)) >= 19
