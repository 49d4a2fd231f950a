"""A question after a conversation: what is searched beside it, what its hits are judged by, and laws."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from pointsman import Document, RetrievalContext
from pointsman.retrieval.plan.transform import RuleDisambiguator
from pointsman.retrieval.run.variant import Variant
from pointsman.values.types import Message, Query

rules = RuleDisambiguator()

FOLLOW_UPS = [
    ("Does the policy cover water damage?", "And theft?"),
    ("Who wrote Anna Karenina?", "When did he die?"),
    ("Is the Gold level or the Silver level cheaper?", "How much is it?"),
    ("How do I reset the router?", "Why?"),
    ("Who teaches the evening course on bookkeeping?", "Which languages and subjects did she study in Berlin in 2010?"),
    ("Кто написал Анну Каренину?", "Когда он умер?"),
    ("Как сбросить пароль?", "А почему?"),
    ("上海有多少人口？", "面积呢？"),
    ("介绍一下北京。", "为什么？"),
    ("Wie setze ich den Router zurück?", "Und das Passwort?"),
]


@pytest.mark.parametrize(("question", "query"), FOLLOW_UPS)
def test_a_follow_up_is_left_as_it_is_and_searched_with_the_question_before_it(question: str, query: str) -> None:
    history = (Message("user", question), Message("assistant", "It is told on page 12."))
    transformation = rules.transform(Query(query, history=history))
    assert transformation.query.text == query
    assert transformation.variants == (Variant(f"{question} {query}", "conversation", means_the_same=True),)
    assert repr(query) in transformation.detail
    assert question in transformation.detail


def test_a_long_question_that_refers_to_nothing_needs_no_conversation() -> None:
    history = (Message("user", "Does the policy cover water damage?"),)
    query = Query("Which documents prove ownership of stolen jewellery?", history=history)
    transformation = rules.transform(query)
    assert transformation.query is query
    assert not transformation.variants


@pytest.mark.parametrize("text", ["How old is he?", "那上海呢？", "А в Москве?"])
@pytest.mark.parametrize("history", [(), (Message("user", ""), Message("assistant", "…")), (Message("system", "Hi"),)])
def test_without_a_question_before_it_nothing_happens(history: tuple[Message, ...], text: str) -> None:
    query = Query(text, history=history)
    transformation = rules.transform(query)
    assert transformation.query is query
    assert not transformation.variants


@pytest.mark.parametrize(
    ("user", "assistant", "question"),
    [
        ("Hello", "Hi! How can I help?", "Why doesn't it work?"),
        ("Thanks!", "You're welcome.", "Why doesn't it work?"),
        ("谢谢", "不客气", "它为什么不行？"),
        ("好的，谢谢你！", "没问题。", "为什么不行？"),
        ("Спасибо!", "Пожалуйста.", "А почему она не работает?"),
    ],
)
def test_a_greeting_or_a_thanks_is_never_what_a_question_is_about(user: str, assistant: str, question: str) -> None:
    courtesies = (Message("user", user), Message("assistant", assistant))
    assert not rules.transform(Query(question, history=courtesies)).variants
    router = (Message("user", "Router Orion"), Message("assistant", "A router."))
    (variant,) = rules.transform(Query(question, history=(*router, *courtesies))).variants
    assert variant.text == f"Router Orion {question}"


def test_the_latest_question_counts() -> None:
    turns = ("Who wrote Emma?", "Jane Austen.", "Who wrote Jane Eyre?", "Charlotte Brontë wrote it.")
    history = tuple(Message("assistant" if number % 2 else "user", text) for number, text in enumerate(turns))
    (variant,) = rules.transform(Query("When was it published?", history=history)).variants
    assert variant.text == "Who wrote Jane Eyre? When was it published?"


MATTERS = {
    "library": "The library is open Monday to Saturday from 9 to 18; a library card is free.",
    "pool": "The swimming pool is open daily from 7 to 21; lockers need a coin.",
    "mayor": "Mayor Anna Kerrigan was elected in May 2023.",
    "permit": "A residents' parking permit costs 60 pounds a year.",
    "bins": "Bins in Elm Street are collected on Tuesdays.",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> pointsman.Workspace:
    workspace = pointsman.open(tmp_path_factory.mktemp("conversation"))
    dataset = workspace.dataset("town", indexing_technique="keyword")
    dataset.add([Document(name, text) for name, text in MATTERS.items()])
    return workspace


def answer(workspace: pointsman.Workspace, earlier: str, text: str) -> RetrievalContext:
    return workspace.search(Query(text, history=(Message("user", earlier),)), datasets=["town"])


def relevance(answer: RetrievalContext, document: str) -> float:
    hits = answer.refused.near_misses if answer.refused else answer.hits
    return next((hit.relevance or 0.0 for hit in hits if hit.id == document), 0.0)


def test_a_question_without_words_of_its_own_is_judged_by_its_conversation(workspace: pointsman.Workspace) -> None:
    earlier = "Who was elected mayor in May 2023?"
    for text in ("Why?", "And how?", "А почему?", "为什么？"):
        context = answer(workspace, earlier, text)
        assert [hit.id for hit in context.hits][:1] == ["mayor"]
        assert relevance(context, "mayor") > 0.5, text


def test_a_passage_with_the_words_of_the_question_itself_is_judged_by_the_conversation_too(
    workspace: pointsman.Workspace,
) -> None:
    without_history = workspace.search("How much does it cost?", datasets=["town"])
    context = answer(workspace, "Where do I get a residents' parking permit?", "How much does it cost?")
    assert context.hits[0].id == "permit"
    assert relevance(context, "permit") > relevance(without_history, "permit")


@pytest.mark.parametrize("text", ["And pizza?", "Does it sell pizza?", "А пицца?", "那披萨呢？"])
def test_what_the_passage_does_not_speak_of_is_at_most_a_near_miss(workspace: pointsman.Workspace, text: str) -> None:
    context = answer(workspace, "When is the library open on Saturday?", text)
    assert context.verdict != "answered"
    assert relevance(context, "library") <= 0.3


def test_another_subject_is_judged_as_if_nothing_had_been_said(workspace: pointsman.Workspace) -> None:
    without_history = workspace.search("Pizza recipe?", datasets=["town"])
    context = answer(workspace, "When is the library open on Saturday?", "Pizza recipe?")
    assert context.verdict == without_history.verdict == "refused"


def test_several_datasets_are_limited_each_by_its_own_passages(workspace: pointsman.Workspace) -> None:
    """Two datasets may have a document of one id: the words of one say nothing about the other."""
    pizza = {"library": "Pizza of the library: the library sells pizza when it is open on Saturday."}
    workspace.dataset("kiosk", indexing_technique="keyword").add([Document(*item) for item in pizza.items()])
    history = (Message("user", "When is the library open on Saturday?"),)
    context = workspace.search(Query("And pizza?", history=history), datasets=["town", "kiosk"], refuse="never")
    levels = {(hit.dataset, hit.id): hit.relevance or 0.0 for hit in context.hits}
    assert levels["kiosk", "library"] > 0.3
    assert levels["town", "library"] <= 0.3


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system", ""]),
        st.one_of(st.text(max_size=60), st.sampled_from([text for pair in FOLLOW_UPS for text in pair])),
    ),
    max_size=4,
)


@given(TURNS, st.one_of(st.text(max_size=60), st.sampled_from([query for _, query in FOLLOW_UPS])))
def test_a_question_is_never_reworded(turns: list[tuple[str, str]], text: str) -> None:
    query = Query(text, history=tuple(Message(*turn) for turn in turns))
    transformation = rules.transform(query)
    assert transformation.query is query
    assert all(variant.text.endswith(text) for variant in transformation.variants)


@pytest.mark.parametrize("unit", ["A b ", "«", "他的", "Ab и ", "the a of ", "(", "A_", "Что ", "谢谢你好"])
def test_time_is_bounded(unit: str) -> None:
    huge = unit * (1_000_000 // len(unit))
    start = process_time()  # not hurt by other programs
    for text in ("How old is he?", "And in Paris?", "它呢？", "А его столица?", "А в Москве?", huge):
        rules.transform(Query(text, history=(Message("user", huge), Message("assistant", huge))))
    assert process_time() - start < 5  # quadratic or worse would take minutes
