"""Hits that stand above others which are more relevant: the answer says why, once, in the language of the question."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from command_kit import run_command
from pointsman import BaseReranker, Document, Hit, RetrievalContext
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.run.journal import Journal
from pointsman.values.types import Ranked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pointsman.values.types import Query

TEXTS = (
    "The signal lamp of yard nine is red.",
    "A red lamp tells the driver to stop; a green lamp tells the driver to go on.",
    "Lamps of signals are cleaned every month.",
    "The yard master cleans the lamps of the yard, and the yard of lamps, in May.",
    "Trains stop at signals.",
    "The driver of the train reports a broken lamp to the yard master.",
    "Green is the colour of the yard's fence.",
    "Every month the master of yard nine writes a report about signals, drivers and trains.",
    "信号灯每月清洗一次。",
    "Лампы сигналов чистят каждый месяц.",
)
QUESTIONS = (
    *(
        "who cleans the lamps",
        "what does a red lamp tell the driver",
        "broken lamp",
        "report about signals",
        "yard nine",
    ),
    *("when are lamps of signals cleaned", "colour of the fence", "where do trains stop", "master of the yard"),
    *("谁清洗信号灯", "когда чистят лампы сигналов"),
)


class Reversed(BaseReranker):
    """Puts the last hit first."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [float(number) for number in range(len(texts))]


class ReversingRefiner(BaseRefiner):
    """A user's stage, named as no stage of ours is."""

    stage = "other"

    def refine(self, query: Query, ranking: Ranked, k: int) -> Ranked:
        return replace(ranking, hits=ranking.hits[::-1])


def is_against_rank(answer: RetrievalContext) -> bool:
    hits = answer.refused.near_misses if answer.refused else answer.hits
    levels = [hit.relevance for hit in hits if hit.relevance is not None]
    return any(first < second for first, second in pairwise(levels))


def order_codes(answer: RetrievalContext) -> list[str]:
    return [statement.code for statement in answer.reasons if statement.code.startswith("order_")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("order")
    with pointsman.open(folder) as workspace:
        workspace.dataset("yard").add([Document(str(number), text) for number, text in enumerate(TEXTS)])
    return folder


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Any:
    with pointsman.open(folder) as workspace:
        yield workspace


@pytest.mark.parametrize("refuse", [True, False])
@pytest.mark.parametrize("options", [{}, {"rerank": False}, {"strategy": "vector"}, {"strategy": "bm25"}], ids=str)
def test_a_reason_is_given_exactly_where_relevance_runs_against_rank(
    workspace: pointsman.Workspace, options: dict[str, Any], refuse: bool
) -> None:
    answers = [workspace.search(question, 8, refuse=refuse, **options) for question in QUESTIONS]
    for answer in answers:
        assert bool(order_codes(answer)) == is_against_rank(answer), answer.query.text
    if not refuse and not options:
        assert {is_against_rank(answer) for answer in answers} == {True, False}, "the questions try both"


def test_the_reason_names_the_stage(folder: Path, workspace: pointsman.Workspace) -> None:
    question, codes = "when are lamps of signals cleaned", []
    for workflow in (
        pointsman.RetrievalWorkflow(reranker=Reversed()),
        pointsman.RetrievalWorkflow(refiners=[ReversingRefiner()]),
        pointsman.RetrievalWorkflow(reranker=Reversed(), refiners=[ReversingRefiner(), ReversingRefiner()]),
    ):
        with pointsman.open(folder, workflow=workflow) as own_workspace:
            answer = own_workspace.search(question, 8, refuse=False)
            codes.append(order_codes(answer))
            assert answer.reasons[-1].in_words() in answer.reason
    assert codes == [["order_rerank"], ["order_other"], ["order_other"]]
    answer = workspace.search(question, 8, strategy="bm25", rerank=False, refuse=False)
    assert order_codes(answer) in ([], ["order_retrieve"])


@pytest.mark.parametrize("stage", ["versions", "exact", "recency", "diversify", "rerank"])
def test_a_stage_counts_as_the_cause_from_when_its_order_stayed(stage: str) -> None:
    low, high = (Hit(Document(id_, "text"), 1.0, relevance=level) for id_, level in (("low", 0.2), ("high", 0.6)))
    journal = Journal()
    journal.fused_hits = high, low
    for name, hits in (("fuse", ()), ("refine", (high, low)), (stage, (low, high)), ("refuse", (low, high))):
        journal.ranked(name, Ranked(hits, "none"))
    (reason,) = journal.order_reasons([low, high])
    assert [statement.code for statement in reason.statements] == [f"order_{stage}"]
    assert journal.order_reasons([high, low]) == []
    journal.fused_hits = low, high
    journal.records[1:2] = []
    expected = stage if stage == "rerank" else "fuse"  # the stage left them as they were
    assert [statement.code for statement in journal.order_reasons([low, high])[0].statements] == [f"order_{expected}"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("when are lamps of signals cleaned", "relevance judges each hit by itself"),
        ("何时清洗信号灯", "相关度则单独评判每条结果"),
        ("когда чистят лампы сигналов", "вероятность считается для каждого результата отдельно"),
    ],
)
def test_every_door_says_it_in_the_language_of_the_question(folder: Path, question: str, words: str) -> None:
    import httpx
    from mcp import Client as McpClient

    from pointsman.integrations.mcp import create_server
    from pointsman.service.server import create_app

    with pointsman.open(folder, workflow=pointsman.RetrievalWorkflow(reranker=Reversed())) as workspace:
        answer = workspace.search(question, 8, refuse=False)
        assert answer.reason.endswith(words)
        assert asyncio.run(workspace.asearch(question, 8, refuse=False)).reason == answer.reason

        async def ask() -> tuple[Any, Any]:
            service = httpx.ASGITransport(create_app(workspace))
            async with httpx.AsyncClient(transport=service, base_url="http://localhost") as client:
                form = (await client.post("/api/search", json={"query": question, "k": 8, "refuse": False})).json()
            async with McpClient(create_server(workspace)) as client_of_mcp:
                arguments = {"query": question, "k": 8, "refuse": False}
                return form, (await client_of_mcp.call_tool("search", arguments)).structured_content

        by_http, by_mcp = asyncio.run(ask())
        assert by_http["reasons"][-1]["code"] == "order_rerank"
        assert by_http["reason"] == by_mcp["reason"] == answer.reason


def test_the_command_line_says_it_below_the_hits(folder: Path, workspace: pointsman.Workspace) -> None:
    for question in QUESTIONS:
        answer = workspace.search(question, 8)
        printed = run_command("search", question, "-k", "8", "-w", str(folder)).stdout
        words = [statement.in_words(answer.language) for statement in answer.reasons if "order_" in statement.code]
        assert all(printed.count(sentence) == 1 for sentence in words)
        assert printed.count("relevance judges each hit") == len(words) * (answer.language == "en")
