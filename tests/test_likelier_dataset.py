"""Of several datasets the one whose first hit is far likelier to be relevant comes first, and the answer says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pointsman
from pointsman import Document, RetrievalContext, Workspace
from pointsman.retrieval.run.candidates import StoreResults, first_of_others
from pointsman.store.store_values import Lists, StoreQuery

HANDBOOK = (
    "Employees may carry five days of unused leave over into the next year.",
    "The company pays 300 dollars for a desk and a chair in the first year.",
    "Cats are insured at a discount through the pet plan.",
    "Send your timesheet at the end of every pay period.",
    "The office in Boston is closed on Fridays in summer.",
    "A parking permit costs 40 dollars a month.",
    "New laptops are ordered by the operations team.",
    "Report a lost badge to security at once.",
    "Conferences are paid once a year, with hotel and train.",
    "Interns get a mentor in their first week.",
)
KITCHEN = (
    "洗土豆时要去掉发芽的部分。",
    "米饭要先浸泡二十分钟再煮。",
    "炒青菜要用大火快炒，出锅前放盐。",
    "鱼要先用料酒和姜片腌制去腥。",
    "饺子馅里放白菜、猪肉和葱。",
    "煮面时水开后下锅，煮三分钟。",
    "西红柿炒鸡蛋先炒鸡蛋。",
    "红烧肉要炒糖色，再小火炖一小时。",
    "凉拌黄瓜加蒜末、醋和香油。",
    "蛋糕要用低筋面粉，烤箱预热到一百八十度。",
    "盐要放多少，要看菜有多少。",
    "面粉一共要多少，看给几个人吃。",
    "停车以后记得关火。",
    "猫不能吃洋葱和巧克力。",
    "没用完的米饭可以留到明天吃。",
    "丢掉的菜叶可以喂兔子。",
    "第一年学做菜，先学炒青菜。",
    "一年之中，冬天的白菜最甜。",
    "多少钱的锅都可以，不粘就行。",
)
ENGLISH_ANSWER = "实习第一周有人带吗"  # whether interns have a mentor; the kitchen has a first year
CHINESE_ANSWER = "没用完的米饭能留吗"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with pointsman.open(tmp_path_factory.mktemp("datasets")) as workspace:
        for name, texts in (("handbook", HANDBOOK), ("kitchen", KITCHEN)):
            workspace.dataset(name).add([Document(f"{name}-{number}", text) for number, text in enumerate(texts)])
        yield workspace


def reasons(answer: RetrievalContext) -> list[str]:
    return [decision.reason for decision in answer.decisions if decision.what == "dataset"]


def likelihoods(answer: RetrievalContext) -> dict[str, float]:
    """The relevance of the first hit of each dataset."""
    return {hit.dataset or "": hit.relevance or 0.0 for hit in reversed(answer.hits)}


def test_a_far_likelier_dataset_comes_first_and_the_answer_says_why(workspace: Workspace) -> None:
    answer = workspace.search(ENGLISH_ANSWER, 3)
    assert [hit.dataset for hit in answer.hits] == ["handbook", "kitchen", "kitchen"]
    assert answer.hits[0].id == "handbook-9"
    chances = likelihoods(answer)
    assert chances["handbook"] > 0.5
    assert chances["kitchen"] < 0.05
    (reason,) = reasons(answer)
    assert reason == (
        f"handbook 排在前面：其首条结果的相关度为 {chances['handbook']:.2f}，kitchen 的为 {chances['kitchen']:.2f}"
    )
    assert any(span.stage == "dataset" for span in answer.trace.spans)


def test_without_it_the_scores_decide_and_a_requested_method_keeps_their_order(workspace: Workspace) -> None:
    answer = workspace.search("笔记本电脑由谁订购", 3, strategy="hybrid")
    assert [hit.dataset for hit in answer.hits][:2] == ["kitchen", "handbook"]
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert reasons(answer) == []
    assert workspace.search("笔记本电脑由谁订购", 3).hits[0].dataset == "handbook"


def test_the_language_of_the_question_keeps_its_place_unless_it_surely_has_no_answer(workspace: Workspace) -> None:
    answer = workspace.search("停车证多少钱", 3)  # what a parking permit costs; the kitchen has parking, and money
    chances = likelihoods(answer)
    assert chances["handbook"] > chances["kitchen"] > 0.05
    assert answer.hits[0].dataset == "kitchen"
    assert reasons(answer) == []


@pytest.mark.parametrize("question", [CHINESE_ANSWER, "how much is a parking permit"])
def test_what_is_first_already_stays_so_and_nothing_is_parts(workspace: Workspace, question: str) -> None:
    answer = workspace.search(question, 3)
    assert (answer.hits[0].relevance or 0) > 0.9
    assert reasons(answer) == []


def test_one_dataset_alone_is_ordered_by_its_scores(workspace: Workspace) -> None:
    answer = workspace.search(ENGLISH_ANSWER, 3, datasets=["kitchen"], refuse=False)
    assert [hit.dataset for hit in answer.hits] == ["kitchen"] * 3
    assert reasons(answer) == []


def test_a_dataset_that_no_list_brings_among_the_first_ones_is_seen(tmp_path: Path) -> None:
    """Sixty Chinese notes stand before the handbook's answer, whose score is lower."""
    with pointsman.open(tmp_path) as workspace:
        workspace.dataset("handbook").add([Document(f"h{number}", text) for number, text in enumerate(HANDBOOK)])
        notes = [f"第一周要看第{number}章，有人会带书来，实习前看完。" for number in range(60)]
        workspace.dataset("notes").add([Document(f"n{number}", text) for number, text in enumerate(notes)])
        question = "猫的保险有人看吗"  # whether cats are insured
        assert {hit.dataset for hit in workspace.search(question, 15, strategy="hybrid", refuse=False).hits} == {
            "notes"
        }
        for k in (1, 3, 15):
            answer = workspace.search(question, k)
            assert answer.hits[0].id == "h2"
            assert len(reasons(answer)) == 1
            assert len({hit.key for hit in answer.hits}) == len(answer.hits) == k
            assert {hit.dataset for hit in answer.hits[1:]} <= {"notes"}


def test_sync_and_async_many_and_one_are_the_same(workspace: Workspace) -> None:
    def parts(answer: RetrievalContext) -> list[Any]:
        return [[(hit.key, hit.relevance) for hit in answer.hits], reasons(answer), answer.verdict]

    questions = [ENGLISH_ANSWER, CHINESE_ANSWER]
    answers = [parts(workspace.search(question, 3)) for question in questions]
    assert [parts(answer) for answer in workspace.search_many(questions, 3)] == answers
    assert [parts(asyncio.run(workspace.asearch(question, 3))) for question in questions] == answers


def test_of_many_datasets_ten_are_looked_at_beside_the_first_ones() -> None:
    """Each of them costs a look at its documents."""
    readings: list[Any] = [SimpleNamespace(name=f"d{number}", info=None, statistics=None) for number in range(30)]
    query = StoreQuery("railway")
    results = {number: StoreResults(reading, query, Lists({})) for number, reading in enumerate(readings)}
    ranking = [((number, position), 1.0) for position in range(3) for number in range(30)]
    assert list(first_of_others(ranking, 5, results)) == [f"d{number}" for number in range(5, 15)]
    assert first_of_others(ranking, 30, results) == {}
    assert first_of_others(ranking, 28, results) == {"d28": ((28, 0), 1.0), "d29": ((29, 0), 1.0)}
