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
from pointsman import Document, Query, RetrievalWorkflow, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.sync_and_async import in_thread

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
    answer, calls = outside_calls(lambda: workspace.asearch("railway switch", 5, timeout=3, refuse=False))
    assert len(answer.hits) == 5
    assert [note for note in answer.degraded if note.startswith("rails: TimeoutError")], answer.degraded
    assert calls == []
