"""Filling in from the history by rules: a table of dialogues, and laws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from pointsman import Document
from pointsman.embedders import HashingEmbedder
from pointsman.retrieval.plan.transform import RuleDisambiguator
from pointsman.text import fold
from pointsman.values.types import Message, Query


def dialogues(name: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return read


DIALOGUES = dialogues("dialogues.json")
HELD_OUT = dialogues("dialogues_held_out.json")
rules = RuleDisambiguator()


def query_of(dialogue: dict[str, Any]) -> Query:
    history = tuple(Message(message["role"], message["text"]) for message in dialogue["history"])
    return Query(dialogue["query"], history=history)


def holds(text: str, word: str, language: str, *, as_word: bool) -> bool:
    """Whether a word stands in a text, in whatever case; at the beginning of a word at least where words have one."""
    if language == "zh":
        return fold(word) in fold(text)
    end = r"(?!\w)" if as_word else ""
    return re.search(rf"(?<!\w){re.escape(fold(word))}{end}", fold(text)) is not None


def missing_words(dialogue: dict[str, Any]) -> str:
    """What is wrong with the answer to a dialogue; empty where nothing is."""
    query = query_of(dialogue)
    transformation = rules.transform(query)
    text, language = transformation.query.text, dialogue["language"]
    if dialogue["unchanged"]:
        return "" if transformation.query is query else f"changed: {text}"
    if (
        transformation.query.history != query.history
        or transformation.variants
        or repr(text) not in transformation.detail
    ):
        return f"not merely the text: {transformation}"
    absent = [word for word in dialogue["must"] if not holds(text, word, language, as_word=False)]
    present = [word for word in dialogue["absent"] if holds(text, word, language, as_word=True)]
    return f"{text}: without {absent}, with {present}" if absent or present or text == query.text else ""


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue["id"])
def test_dialogues(dialogue: dict[str, Any]) -> None:
    assert missing_words(dialogue) == ""


def test_dialogues_held_out() -> None:
    """Twelve that the rules were not made for: ten are understood; to be made better, not to be fitted to."""
    assert len(HELD_OUT) == 12
    assert sum(not missing_words(dialogue) for dialogue in HELD_OUT) >= 10


SEEDS = [
    ("鲁迅写了什么?", "", "他什么时候出生的?", "鲁迅什么时候出生的?"),
    ("《战争与和平》的作者是谁？", "", "他什么时候去世的？", "《战争与和平》的作者什么时候去世的？"),
    ("谁写了《战争与和平》？", "列夫·托尔斯泰。", "他什么时候去世的？", "列夫·托尔斯泰什么时候去世的？"),
    ("谁写了《战争与和平》？", "", "他什么时候去世的？", "《战争与和平》的作者什么时候去世的？"),
    ("谁写了《战争与和平》？", "列夫·托尔斯泰。", "它有多少页？", "《战争与和平》有多少页？"),
    ("介绍一下北京。", "北京是首都。", "有多少人口？", "北京有多少人口？"),
    ("上海有多少人口？", "", "面积呢？", "上海的面积"),
    ("上海有多少人口？", "", "怎么做红烧肉？", "怎么做红烧肉？"),
    ("Who is the author of War and Peace?", "", "When was he born?", "When was author of War and Peace born?"),
    ("How heavy is the iPhone 15 Pro Max?", "", "Is it waterproof?", "Is iPhone 15 Pro Max waterproof?"),
    ("Кто автор романа «Война и мир»?", "", "Когда он родился?", "Когда автор романа «Война и мир» родился?"),
    ("Сколько стоит iPhone 15?", "", "А сколько он весит?", "Сколько iPhone 15 весит?"),
    ("Как сбросить пароль?", "", "А логин?", "Как сбросить логин?"),
    ("How do I reset my password?", "", "And my username?", "How do I reset my username?"),
    ("Как сбросить пароль?", "", "А почему?", "Почему: Как сбросить пароль?"),
    ("Кто такая Анна Каренина?", "", "Когда она родилась?", "Когда Анна Каренина родилась?"),
    ("What does the iPhone 15 cost?", "", "and its battery?", "iPhone 15's battery?"),
    ("Tell me about green tea", "", "And coffee?", "Tell me about coffee?"),
    ("How much does the premium plan cost?", "", "What about the basic plan?", "How much does the basic plan cost?"),
    ("Сколько стоит премиум-тариф?", "", "А базовый?", "Сколько стоит базовый тариф?"),
    ("绿茶是什么", "", "怎么冲泡它？", "怎么冲泡绿茶？"),
    ("Who wrote Emma?", "Jane Austen", "Is it raining?", "Is it raining?"),
    ("Is the weather fine?", "", "Can it be that the server is down?", "Can it be that the server is down?"),
]


@pytest.mark.parametrize(("question", "reply", "query", "expected"), SEEDS)
def test_the_seeds_own_and_their_like(question: str, reply: str, query: str, expected: str) -> None:
    """R8: who made it and not what was made, 15 stays, and what was left out is put in."""
    history = (Message("user", question), *([Message("assistant", reply)] if reply else []))
    assert rules.transform(Query(query, history=history)).query.text == expected


UNSURE = [
    ("Who wrote Anna Karenina?", "", "And when did he die?"),
    ("Кто написал Анну Каренину?", "", "Когда он умер?"),
    ("Is the Gold level or the Silver level cheaper?", "That depends.", "How much is it?"),
    ("How do I install Redis on Ubuntu?", "", "What about Fedora?"),
    ("How far is the beach from the hotel?", "300 metres.", "And the airport?"),
    ("May I sublet the flat?", "With permission.", "Who gives it?"),
    ("How do I sort a list in Python?", "", "And in reverse?"),
    ("年假和病假有什么区别？", "", "它有几天？"),
    ("房间几点可以入住？", "", "那退房呢？"),
    ("健身房有淋浴吗？", "有。", "它几点关门？"),
    ("Что лучше, роутер или модем?", "", "Сколько он стоит?"),
    ("Когда открыта библиотека?", "", "А столовая?"),
    ("Сколько дней отпуска положено?", "", "А стажёрам?"),
]


@pytest.mark.parametrize(("question", "reply", "query"), UNSURE)
def test_what_is_not_sure_is_left_alone_and_searched_in_its_conversation(question: str, reply: str, query: str) -> None:
    history = (Message("user", question), *([Message("assistant", reply)] if reply else []))
    transformation = rules.transform(Query(query, history=history))
    assert transformation.query.text == query
    assert [(variant.text, variant.kind) for variant in transformation.variants] == [
        (f"{question} {query}", "conversation")
    ]
    assert repr(query) in transformation.detail


@pytest.mark.parametrize(
    ("question", "query", "expected"),
    [
        ("Does the policy cover water damage?", "And theft?", "Does the policy cover theft?"),
        ("Do you insure holiday homes?", "What about caravans?", "Do you insure caravans?"),
        ("What does the red light mean?", "And the blue one?", "What does the blue light mean?"),
        ("Is parental leave paid?", "And study leave?", "Is study leave paid?"),
        ("What does the Falcon car insurance cost?", "And the Kestrel car insurance?", "Kestrel car insurance cost?"),
        ("怎么在macOS上安装云盘？", "Windows上呢？", "怎么在Windows上安装云盘？"),
        ("北京明天的天气怎么样？", "上海呢？", "上海明天的天气怎么样？"),
        ("去日本需要签证吗？", "去泰国呢？", "去泰国需要签证吗？"),
        ("До какого числа принимают заявления на бюджетные места?", "А на платные?", "заявления на платные места?"),
        ("Поддерживает ли роутер «Орион» IPv6?", "А «Лира»?", "Поддерживает ли роутер «Лира» IPv6?"),
        ("Какой процент по вкладу «Весна»?", "А по «Осени»?", "Какой процент по вкладу «Осени»?"),
    ],
)
def test_the_only_part_that_is_alike_is_replaced(question: str, query: str, expected: str) -> None:
    text = rules.transform(Query(query, history=(Message("user", question),))).query.text
    assert text.endswith(expected), text


def test_a_long_question_needs_no_conversation() -> None:
    history = (Message("user", "Does the policy cover water damage?"),)
    query = Query("Which documents prove ownership of stolen jewellery?", history=history)
    transformation = rules.transform(query)
    assert transformation.query is query
    assert not transformation.variants


def test_an_unclear_follow_up_finds_what_its_conversation_is_about(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        texts = {"leave": "Annual leave: ten days.", "visa": "A visa: ten euros."}
        workspace.dataset("notes").add([Document(name, text) for name, text in texts.items()])
        for about in texts:
            history = (Message("user", f"What is there to know about the {about} or its price?"),)
            hits = workspace.search(Query("How much is it?", history=history), strategy="bm25", refuse="never").hits
            assert hits[0].id == about


def test_ten_dialogues_a_language() -> None:
    for language in ("en", "zh", "ru"):
        dialogues = [dialogue for dialogue in DIALOGUES if dialogue["language"] == language]
        assert len(dialogues) == 10
        assert sum(dialogue["unchanged"] for dialogue in dialogues) >= 3


def test_without_history_nothing_happens() -> None:
    for text in ("How old is he?", "那上海呢？", "А в Москве?"):
        query = Query(text)
        assert rules.transform(query).query is query


@pytest.mark.parametrize(
    "text", ["How old is he?", "它是什么？", "Сколько ему лет?", "And in Paris?", "那上海呢？", "А в Москве?"]
)
def test_an_empty_history_offers_nothing(text: str) -> None:
    query = Query(text, history=(Message("user", ""), Message("assistant", "…")))
    assert rules.transform(query).query is query


def test_another_version_takes_the_place_of_the_same_thing() -> None:
    history = (Message("user", "Does Python 2 differ from Java 8?"), Message("assistant", "Yes."))
    assert (
        rules.transform(Query("what about Python 3?", history=history)).query.text
        == "Does Python 3 differ from Java 8?"
    )


def test_the_latest_turn_counts() -> None:
    history = (
        Message("user", "Who wrote Emma?"),
        Message("assistant", "Jane Austen."),
        Message("user", "Who wrote Jane Eyre?"),
        Message("assistant", "Charlotte Brontë wrote it."),
    )
    assert "Emma" not in rules.transform(Query("When was it published?", history=history)).query.text


@pytest.mark.parametrize(
    ("turns", "question"),
    [
        (("Hello", "Hi! How can I help?"), "Why doesn't it work?"),
        (("Thanks!", "You're welcome."), "Why doesn't it work?"),
        (("谢谢", "不客气"), "它为什么不行？"),
        (("好的，谢谢你！", "没问题。"), "为什么不行？"),
        (("Спасибо!", "Пожалуйста."), "А почему она не работает?"),
        (("谢谢你好" * 1000 + "x", "不客气"), "Why doesn't it work?"),
    ],
)
def test_a_greeting_or_a_thanks_is_never_what_a_question_is_about(turns: tuple[str, str], question: str) -> None:
    user, assistant = turns
    history = (Message("user", user), Message("assistant", assistant))
    query = Query(question, history=history)
    assert rules.transform(query).query is query


@pytest.mark.parametrize(
    ("answer", "thanks", "question", "expected"),
    [
        ("Good question. Hold the button.", "Perfect, thanks!", "Who sells it?", "Who sells router?"),
        ("Maybe. Press the button.", "", "Who sells it?", "Who sells router?"),
        ("Возможно, он перегрелся.", "", "А где его купить?", "Где роутер купить?"),
        ("Нажмите кнопку.", "Спасибо большое", "А где его купить?", "Где роутер купить?"),
    ],
)
def test_a_hedge_or_an_order_is_no_name(answer: str, thanks: str, question: str, expected: str) -> None:
    asked = "Как сбросить роутер?" if question[0] >= "А" else "How do I reset the router?"
    turns = [("user", asked), ("assistant", answer)]
    turns += [("user", thanks), ("assistant", "You're welcome!")] if thanks else []
    history = tuple(Message(*turn) for turn in turns)
    assert rules.transform(Query(question, history=history)).query.text == expected


def test_a_name_alone_is_an_answer() -> None:
    history = (Message("user", "What is the capital of France?"), Message("assistant", "Paris."))
    assert rules.transform(Query("How big is it?", history=history)).query.text != "How big is it?"


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue["id"])
def test_once_is_enough(dialogue: dict[str, Any]) -> None:
    completion = rules.transform(query_of(dialogue)).query
    assert rules.transform(completion).query is completion


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system", ""]),
        st.one_of(st.text(max_size=60), st.sampled_from([d["query"] for d in DIALOGUES])),
    ),
    max_size=4,
)


@given(TURNS, st.one_of(st.text(max_size=60), st.sampled_from([dialogue["query"] for dialogue in DIALOGUES])))
def test_any_history_and_query(turns: list[tuple[str, str]], text: str) -> None:
    query = Query(text, history=tuple(Message(*turn) for turn in turns))
    transformation = rules.transform(query)
    assert query.text == text
    assert transformation.query is query or (
        transformation.query.text.strip() and transformation.query.history == query.history
    )


@pytest.mark.parametrize("unit", ["A b ", "«", "他的", "Ab и ", "the a of ", "(", "A_", "Что "])
def test_time_is_bounded(unit: str) -> None:
    huge = unit * (1_000_000 // len(unit))
    start = process_time()  # not hurt by other programs
    for text in ("How old is he?", "And in Paris?", "它呢？", "А его столица?", "А в Москве?", huge):
        rules.transform(Query(text, history=(Message("user", huge), Message("assistant", huge))))
    assert process_time() - start < 5  # quadratic or worse would take minutes
