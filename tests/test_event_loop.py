"""What an asynchronous search does on the event loop: it computes, and neither reads, nor writes, nor waits."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import pointsman
from patience_kit import holds_with_time
from pointsman import Document, Query, RetrievalWorkflow, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval import engine as engine_module
from pointsman.retrieval.decisions.asynchronous_search import carry_out
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run.journal import listening
from pointsman.retrieval.search import search
from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import Tasks, Threads
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.trace import StageRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.types import Hit

T = TypeVar("T")

OUTSIDE_CALLS = ("sqlite3", "_sqlite3", "posix", "tantivy", "faiss", "_io", "time.sleep")
"""Where functions are that read, write or wait; the loop's own sockets wake it up."""
IN_MEMORY = ("posix.fspath", "posix.getpid", "_io.StringIO", "_io.BytesIO")


class HeldEmbedder(HashingEmbedder):
    """Embeds documents at once, and queries as soon as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_embed = threading.Event()
        self.may_embed.set()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.may_embed.wait(60)
        return super().embed_queries(texts)


def outside_calls(search: Callable[[], Awaitable[T]]) -> tuple[T, list[str]]:
    """Run a search on an event loop; return its answer, and which functions the loop's thread has called to do I/O."""
    calls: list[str] = []

    def profile(_: Any, event: str, function: Any) -> None:
        if event == "c_call":
            module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
            name = f"{module}.{getattr(function, '__qualname__', function)}"
            if name.startswith(OUTSIDE_CALLS) and not name.startswith(IN_MEMORY):
                calls.append(name)

    async def run() -> T:
        await in_thread(lambda: None)  # the first thread of a process imports anyio's backend
        gc.disable()  # finalizers of what other tests left behind would be noted, too
        sys.setprofile(profile)
        try:
            return await search()
        finally:
            sys.setprofile(None)
            gc.enable()

    return asyncio.run(run()), calls


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace that nothing has read yet, with a dataset whose vectors were imported and one that was embedded."""
    embedder = HeldEmbedder()
    documents = [Document(f"d{number}", f"a railway switch guides trains to track {number}") for number in range(50)]
    with Workspace(tmp_path, embedder=embedder) as writing:
        vectors = embedder.embed_documents([document.text for document in documents])
        writing.dataset("rails").add(documents, vectors=vectors)
        writing.dataset("drinks").add([Document("tea", "Green tea is brewed below boiling point.")])
    with Workspace(tmp_path, embedder=embedder) as workspace:
        yield workspace
        embedder.may_embed.set()


@pytest.mark.parametrize("question", ["railway switch", "railway swich", "чай"])
def test_first_search_leaves_reading_to_threads(workspace: Workspace, question: str) -> None:
    answer, calls = outside_calls(lambda: workspace.asearch(question, 5, refuse=False))
    assert answer.hits
    assert calls == []


def test_first_search_of_several_questions_leaves_reading_to_threads(workspace: Workspace) -> None:
    answers, calls = outside_calls(lambda: workspace.asearch_many(["railway switch", "green tea"], 5))
    assert len(answers) == 2
    assert calls == []


def test_search_beside_a_retriever_leaves_reading_to_threads(workspace: Workspace) -> None:
    rails = workspace.dataset("rails")
    words = rails.retriever("bm25")

    class OtherRetriever(pointsman.BaseRetriever):
        async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
            return await words.aretrieve(query, top_k)

    answer, calls = outside_calls(lambda: RetrievalWorkflow().asearch("railway switch", [rails, OtherRetriever()], 5))
    assert len({hit.id for hit in answer}) == len(answer.hits) == 5  # what both have found is one document
    assert calls == []


def test_first_search_with_a_slow_embedder_answers_by_words_and_says_so(workspace: Workspace) -> None:
    embedder = workspace.dataset("rails").embedder
    assert isinstance(embedder, HeldEmbedder)
    embedder.may_embed.clear()
    calls: list[str] = []

    def check(limit: float) -> None:
        answer, new_calls = outside_calls(lambda: workspace.asearch("railway switch", 5, timeout=limit, refuse=False))
        calls.extend(new_calls)  # those of the first search count in any case
        assert len(answer.hits) == 5
        assert [note for note in answer.degraded if note.startswith("rails: TimeoutError")], answer.degraded

    holds_with_time(check)
    assert calls == []


class TestManyAtOnce:
    """Searches that only compute leave the loop to others; which thread computes what is told by no clock."""

    @pytest.fixture
    def rails_workspace(self, tmp_path: Path) -> Iterator[Workspace]:
        with Workspace(tmp_path) as workspace:
            workspace.dataset("rails").add([Document(str(number), f"switch {number} is red") for number in range(9)])
            workspace.search("red switch")  # measures the background
            yield workspace

    def test_they_compute_beside_the_loop_a_few_at_once(
        self, rails_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: set[int] = set()
        running, most_running = 0, 0
        original = StageRecord.__init__

        def note(record: StageRecord, *values: Any, **fields: Any) -> None:
            threads.add(threading.get_ident())
            original(record, *values, **fields)

        def count_search(recipes: Any, *values: Any) -> Any:
            async def flow() -> Any:
                nonlocal running, most_running
                running += 1
                most_running = max(most_running, running)
                try:
                    return await search(recipes, *values)
                finally:
                    running -= 1

            return flow()

        monkeypatch.setattr(StageRecord, "__init__", note)
        monkeypatch.setattr(engine_module, "search", count_search)
        questions = [f"which switch is red, number {number}" for number in range(20)]

        async def ask() -> list[Any]:
            return await asyncio.gather(*(rails_workspace.asearch(question) for question in questions))

        answers = asyncio.run(ask())
        assert threading.get_ident() not in threads
        assert 1 <= most_running <= 4
        expected = [[hit.id for hit in rails_workspace.search(question)] for question in questions]
        assert [[hit.id for hit in answer] for answer in answers] == expected

    def test_errors_context_and_progress_are_those_of_a_search_on_the_loop(self, rails_workspace: Workspace) -> None:
        with pytest.raises(InputError, match="nonsense"):
            asyncio.run(rails_workspace.asearch("red", filters="nonsense >"))
        spans: list[Any] = []

        async def ask() -> Any:
            with listening(spans.append):
                return await rails_workspace.asearch("red switch")

        assert asyncio.run(ask()).hits
        assert spans

    def test_waiting_for_a_turn_counts_against_the_time(self, rails_workspace: Workspace) -> None:
        seconds: list[float | None] = []

        async def search_batch(_: Any, __: Any, mode: Any, left: float | None = None) -> list[Any]:
            assert isinstance(mode, Threads)
            seconds.append(left)
            begun.release()
            may_end.wait(30)
            return ["answer"]

        may_end, begun = threading.Event(), threading.Semaphore(0)
        recipe = rails_workspace.engine.resolve(
            SearchRequest.of("red", 3, {"timeout": 0.2}), rails_workspace.datasets()
        )

        async def ask() -> list[Any]:
            calls = [asyncio.create_task(carry_out(lambda: recipe, search_batch, Query("red"))) for _ in range(5)]
            for _ in range(4):
                await in_thread(begun.acquire)
            await asyncio.sleep(0.3)
            may_end.set()
            return await asyncio.gather(*calls)

        assert asyncio.run(ask()) == ["answer"] * 5
        assert seconds[4] == pytest.approx(0.001)

    def test_a_cancelled_search_keeps_no_turn(self, rails_workspace: Workspace) -> None:
        may_end, begun = threading.Event(), threading.Semaphore(0)

        async def search_batch(*_: Any) -> list[Any]:
            begun.release()
            may_end.wait(30)
            return ["answer"]

        recipe = rails_workspace.engine.resolve(SearchRequest.of("red", 3, {}), rails_workspace.datasets())

        async def ask() -> Any:
            calls = [asyncio.create_task(carry_out(lambda: recipe, search_batch, Query("red"))) for _ in range(4)]
            for _ in calls:
                await in_thread(begun.acquire)
            for call in calls:
                call.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
            return await asyncio.wait_for(rails_workspace.asearch("red switch"), 30)

        try:
            assert asyncio.run(ask()).hits
        finally:
            may_end.set()

    def test_what_asks_others_stays_on_the_loop(self, workspace: Workspace) -> None:
        """An embedder that does not say that it only computes may wait for a server, and must hold no turn."""
        modes: list[Any] = []

        async def search_batch(_: Any, __: Any, mode: Any, *___: Any) -> list[Any]:
            modes.append(mode)
            return ["answer"]

        recipe = workspace.engine.resolve(SearchRequest.of("red", 3, {}), workspace.datasets())
        answer: Any = asyncio.run(carry_out(lambda: recipe, search_batch, Query("red")))
        assert (answer, type(modes[0])) == ("answer", Tasks)
