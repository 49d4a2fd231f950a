"""Searches that tell how they get on (R9)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from patience_kit import holds_with_time
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.journal import listening
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.tools.errors import RetrievalError
from pointsman.values.types import Document, Hit, Plan, Query, Span

News = Plan | Span


class Stub(BaseRetriever):
    """Answers when it is let, or fails."""

    def __init__(self, name: str, gate: threading.Event | None = None, *, fails: bool = False) -> None:
        self.name, self._gate, self._fails = name, gate, fails

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        if self._gate is not None:
            assert self._gate.wait(30)
        if self._fails:
            raise OSError("the line is dead")
        return [Hit(Document(f"{self.name}-{rank}", "text"), 1.0 / rank) for rank in (1, 2)]


@pytest.fixture
def news() -> Iterator[list[News]]:
    events: list[News] = []
    with listening(events.append):
        yield events


def stages(news: Sequence[News]) -> list[str]:
    return ["plan!" if isinstance(event, Plan) else event.stage for event in news]


def test_the_plan_comes_first_and_every_stage_in_its_order(news: list[News]) -> None:
    answer = RetrievalWorkflow(policy=None).search("q", [Stub("a"), Stub("b")])
    assert stages(news) == ["plan!", "plan", "retrieve", "retrieve", "fuse", "fetch", "refuse"]
    assert news[0] == answer.plan
    events = [event for event in news if isinstance(event, Span) and event.stage != "retrieve"]
    assert events == [span for span in answer.trace.spans if span.stage != "retrieve"]


def test_a_branch_is_told_of_when_it_ends_not_when_all_do() -> None:
    gate, events = threading.Event(), list[News]()

    def listen(event: News) -> None:
        events.append(event)
        if isinstance(event, Span) and event.detail.startswith("quick"):
            gate.set()  # the slow one waits for this

    with listening(listen):
        answer = RetrievalWorkflow(policy=None).search("q", [Stub("slow", gate), Stub("quick")])
    branches = [event.detail for event in events if isinstance(event, Span) and event.stage == "retrieve"]
    assert [detail.partition(":")[0] for detail in branches] == ["quick", "slow"]
    assert not answer.degraded


async def _search() -> None:
    await RetrievalWorkflow(policy=None).asearch("q", [Stub("a"), Stub("b", fails=True)])


def test_a_branch_that_fails_is_told_of_with_its_cause_also_when_awaited(news: list[News]) -> None:
    import anyio

    anyio.run(_search)
    errors = {event.detail: event.error for event in news if isinstance(event, Span) and event.stage == "retrieve"}
    assert errors == {"a": None, "b": "OSError: the line is dead"}


def test_one_that_is_late_is_told_of_at_the_deadline(news: list[News]) -> None:
    def check(limit: float) -> None:
        news.clear()
        answer = RetrievalWorkflow(policy=None).search("q", [Stub("slow", gate), Stub("quick")], timeout=limit)
        errors = {event.detail: event.error for event in news if isinstance(event, Span) and event.stage == "retrieve"}
        assert errors["quick"] is None
        assert "TimeoutError" in str(errors["slow"])
        assert answer.degraded

    gate = threading.Event()
    holds_with_time(check)
    gate.set()


def test_a_search_that_fails_has_told_what_it_did(news: list[News]) -> None:
    with pytest.raises(RetrievalError):
        RetrievalWorkflow(policy=None).search("q", [Stub("a", fails=True), Stub("b", fails=True)])
    assert stages(news) == ["plan!", "plan", "retrieve", "retrieve"]


def test_a_listener_that_fails_is_logged_and_the_search_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def listen(event: News) -> None:
        raise RuntimeError("nobody is home")

    with listening(listen):
        answer = RetrievalWorkflow(policy=None).search("q", [Stub("a")])
    assert len(answer.hits) == 2
    assert "nobody is home" in caplog.text


def test_outside_of_the_block_nobody_is_told(news: list[News]) -> None:
    events: list[News] = []
    with listening(events.append):
        pass
    RetrievalWorkflow(policy=None).search("q", [Stub("a")])
    assert not events
    assert news
