"""Three verdicts: answered, unsure and refused; what each door says, and what ``refuse`` takes (M4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pointsman
from doors_kit import World, world
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval import receipts
from pointsman.retrieval.refine.refuse import UNSURE_BELOW, Refuser
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.values.reasons import messages
from pointsman.values.retrieval_context import NEAREST, UNSURE, RetrievalContext
from pointsman.values.trace import Trace
from pointsman.values.types import ODDS, Document, Hit, Plan, Query, Ranked, Refusal
from pointsman.values.wire import notes_of

ANSWERED = ODDS["possible"]
LEAVE = "Every employee has 28 vacation days per year; ask your manager two weeks ahead."
TEXTS = {
    "leave": LEAVE,
    "password": "To reset your password open the login page and follow the link in the mail.",
    "office": "The Berlin office is led by its director, who books the meeting rooms.",
    "refund": "Goods can be returned within 30 days for a full refund.",
}


def answer_of(*relevance: float | None, refused: Refusal | None = None) -> RetrievalContext:
    hits = tuple(Hit(Document(str(rank), LEAVE), 1.0, "d", (), relevance=value) for rank, value in enumerate(relevance))
    return RetrievalContext(Query("q"), hits, Plan(("d",), "hybrid", "why"), Trace(), refused)


@pytest.mark.parametrize(("relevance", "verdict"), [
    ((ANSWERED,), "answered"), ((0.99, 0.01), "answered"), ((ANSWERED - 0.01,), "unsure"), ((0.1, 0.9), "unsure"),
    ((None, 0.9), None), ((), None),
])  # fmt: skip
def test_the_first_hit_decides(relevance: tuple[float | None, ...], verdict: str | None) -> None:
    answer = answer_of(*relevance)
    assert answer.verdict == verdict
    form = answer.to_dict()
    assert form["verdict"] == verdict
    assert RetrievalContext.from_dict(form).verdict == verdict
    assert answer.to_prompt().startswith(UNSURE) == (verdict == "unsure")


@pytest.mark.parametrize(("relevance", "odds"), [
    (1.0, "strong"), (0.84, "strong"), (0.839, "possible"), (0.76, "possible"), (0.759, "nearest"), (0.0, "nearest"),
    (None, None),
])  # fmt: skip
def test_odds_are_a_word_for_the_relevance(relevance: float | None, odds: str | None) -> None:
    [hit] = answer_of(relevance)
    assert hit.odds == odds
    form = hit.to_dict(1)
    assert form["odds"] == odds
    assert Hit.from_dict(form).odds == odds
    assert notes_of(hit).get("odds") == odds


def test_odds_take_no_value_of_a_document() -> None:
    assert "odds" not in notes_of(Hit(Document("1", LEAVE, {"odds": "3:1"}), 1.0, relevance=0.9))


def test_a_digest_of_an_answer_is_that_of_versions_without_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "_digest", str)
    hit = Hit(Document("1", LEAVE), 1.0, "d", (), relevance=0.9)
    for answer in (answer_of(0.9, 0.2), answer_of(refused=Refusal("why", hit, near_misses=(hit,)))):
        assert '"relevance": 0.9' in receipts.digest_of_answer(answer)
        assert "odds" not in receipts.digest_of_answer(answer)


def test_a_digest_of_an_answer_is_the_same_in_whatever_order_fields_stand() -> None:
    answers = [
        replace(answer_of(), hits=(Hit(Document("1", LEAVE, dict(fields)), 1.0, "d"),))
        for fields in ([("year", 2020), ("team", "hr")], [("team", "hr"), ("year", 2020)])
    ]
    assert receipts.digest_of_answer(answers[0]) == receipts.digest_of_answer(answers[1])


def test_a_refusal_is_a_verdict() -> None:
    hit = Hit(Document("1", LEAVE), 1.0, "d", (), relevance=0.9)
    answer = answer_of(refused=Refusal("why", hit, near_misses=(hit,)))
    assert answer.verdict == "refused"
    assert answer.to_prompt().startswith(NEAREST)
    assert answer_of(refused=Refusal("No results")).heading is None


def test_a_heading_counts_against_the_limit_of_a_prompt() -> None:
    answer = answer_of(0.2, 0.2)
    short_prompt = answer.to_prompt(max_tokens=25)
    assert short_prompt.startswith(UNSURE)
    assert len(short_prompt) < len(answer.to_prompt())


# ── what refuse takes ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pointsman.Workspace]:
    with pointsman.open(tmp_path_factory.mktemp("office")) as workspace:
        workspace.dataset("d").add([Document(id_, text) for id_, text in TEXTS.items()])
        workspace.dataset("d").embed()
        yield workspace


@pytest.mark.parametrize(("name", "value"), [("never", False), ("elsewhere", True), ("elsewhere", None)])
def test_names_of_what_is_refused(office: pointsman.Workspace, name: Any, value: bool | None) -> None:
    for question in ("how many vacation days do I get", "who won the world cup in 1998"):
        by_name, by_value = office.search(question, refuse=name), office.search(question, refuse=value)
        assert by_name.verdict == by_value.verdict
        assert [hit.id for hit in by_name] == [hit.id for hit in by_value]


def test_an_answer_is_told_and_what_is_elsewhere_is_refused(office: pointsman.Workspace) -> None:
    assert office.search("how many vacation days do I get").verdict == "answered"
    refused = office.search("who won the football world cup in 1998")
    assert (refused.verdict, refused.hits) == ("refused", ())
    assert office.search("who won the football world cup in 1998", refuse="never").verdict == "unsure"


def test_a_refuser_of_what_is_unsure_needs_more() -> None:
    hit = Hit(Document("1", LEAVE), 1.0, "d", (), relevance=0.08)
    ranking = Ranked((hit,), "calibrated", best=0.08, needed=0.05)
    query = Query("may the director bring a dog")
    assert Refuser().refine(query, ranking, 5).refused is None
    assert Refuser(at_least=UNSURE_BELOW).refine(query, ranking, 5).refused is not None


def test_an_unknown_name_is_refused_by_name(office: pointsman.Workspace) -> None:
    name: Any = "unsre"
    with pytest.raises(PointsmanError, match=r"unsre.*unsure"):
        office.search("vacation", refuse=name)
    with pytest.raises(InputError, match="at_least"):
        Refuser(at_least=2)


# ── every door ───────────────────────────────────────────────────────────────────────────────────────────────────────

ANSWERED_QUESTION = "vacation days per year for every employee"
UNSURE_QUESTION = "may I bring my dog to the director"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("doors")
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("d").add([Document(id_, text) for id_, text in TEXTS.items()])
    with world(folder, "default") as doors_world:
        yield doors_world


@pytest.mark.parametrize("question", [ANSWERED_QUESTION, UNSURE_QUESTION])
def test_every_door_says_it(doors: World, question: str) -> None:
    options: dict[str, Any] = {"strategy": "bm25", "refuse": "never"}  # words are judged whatever the embedder
    answer = doors.here.search(question, 2, **options)
    assert answer.verdict == ("unsure" if question == UNSURE_QUESTION else "answered")
    assert doors.client.search(question, 2, **options).verdict == answer.verdict
    body = {"query": question, "k": 2, **options}
    assert doors.http.post("/api/search", json=body).json()["verdict"] == answer.verdict
    arguments = ["search", question, "-k", "2", "--strategy", "bm25", "--refuse", "never"]
    printed_text = CliRunner().invoke(app, arguments, env={**doors.environ, "COLUMNS": "200"}).output
    assert printed_text.count(UNSURE) == (answer.verdict == "unsure")
    form = json.loads(CliRunner().invoke(app, [*arguments, "--json"], env=doors.environ).output)
    assert form["verdict"] == answer.verdict
    called = doors.portal.call(doors.mcp.call_tool, "search", body).structured_content
    assert called is not None
    assert called["verdict"] == answer.verdict
    odds = [hit.odds for hit in answer]
    assert None not in odds
    assert [hit.odds for hit in doors.client.search(question, 2, **options)] == odds
    for hits in (doors.http.post("/api/search", json=body).json()["hits"], form["hits"], called["results"]):
        assert [hit["odds"] for hit in hits] == odds
    words = [messages()[f"odds_{word}"][0] for word in odds]
    assert [word for line in printed_text.splitlines() for word in set(words) if f"  {word} " in line] == words
    knowledge = {"knowledge_id": "d", "query": question, "retrieval_setting": {"top_k": 2, "score_threshold": 0}}
    records = doors.http.post("/retrieval", json=knowledge).json()["records"]
    usual_verdict = doors.here.search(question, 2).verdict
    assert {record["metadata"]["verdict"] for record in records} == {usual_verdict}
    assert [record["metadata"].get("odds") for record in records] == [
        hit.odds for hit in doors.here.search(question, 2)
    ]
    assert records[0]["title"].startswith(UNSURE) == (usual_verdict == "unsure")


def test_documents_of_frameworks_carry_it(doors: World) -> None:
    langchain = pytest.importorskip("langchain_core")
    assert langchain
    from pointsman.integrations.langchain import PointsmanRetriever

    retriever = PointsmanRetriever(source=doors.here, k=2, options={"strategy": "bm25"})
    documents = retriever.invoke(ANSWERED_QUESTION)
    assert {document.metadata["verdict"] for document in documents} == {"answered"}
    assert documents[0].metadata["odds"] in {"strong", "possible"}


@pytest.mark.parametrize("question", [ANSWERED_QUESTION, UNSURE_QUESTION, "vacation manager refund director mail"])
def test_odds_follow_the_order_or_the_answer_says_why(doors: World, question: str) -> None:
    for strategy in ("bm25", "vector", "hybrid"):
        answer = doors.here.search(question, 4, strategy=strategy, refuse="never")
        levels = [list(ODDS).index(hit.odds) for hit in answer if hit.odds is not None]
        codes = {statement.code for statement in answer.reasons}
        assert levels == sorted(levels) or any(code.startswith("order_") for code in codes)


def test_console_messages_are_complete() -> None:
    messages = Path(pointsman.__file__).parent / "service" / "console" / "messages.mjs"
    assert f'"ask.unsure": ["{UNSURE}"' in messages.read_text("utf-8")
