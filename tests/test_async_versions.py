"""Everything that a user can call has an async version, whose name begins with ``a``."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

import pointsman
from pointsman import (
    BM25IndexManager,
    Client,
    Dataset,
    Document,
    EnhancedRetrievalService,
    RetrievalWorkflow,
    RouterRetriever,
    SimpleHybridRetriever,
    Workspace,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.client import RemoteDataset
from pointsman.tools.errors import UnknownNameError

NEED_NONE = {
    # what a search asks its sources, and what calibration and tuning leave behind
    "Workspace": {"keep_calibration", "keep_reranking", "source", "stored_calibrations", "stored_policy"},
    "Dataset": {
        *("can", "candidates", "check_keeps", "close_unless_used", "follow", "keeps", "lists_for", "retriever"),
        *("check_searchable", "for_request", "release", "with_store", "writing"),
    },
    "RemoteDataset": {"writing"},  # a context manager
    "EnhancedRetrievalService": {"lack", "llm", "search_sync", "strategy"},  # `search` itself is awaited
}


@pytest.mark.parametrize(
    "kind",
    [
        *(Workspace, Dataset, Client, RemoteDataset, EnhancedRetrievalService, BM25IndexManager),
        *(SimpleHybridRetriever, RouterRetriever, RetrievalWorkflow),
    ],
)
def test_there_is_one(kind: type) -> None:
    methods = {name: method for name, method in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
    synchronous = {name for name, method in methods.items() if not inspect.iscoroutinefunction(method)}
    lacking = {name for name in synchronous if not inspect.iscoroutinefunction(methods.get(f"a{name}"))}
    assert lacking == NEED_NONE.get(kind.__name__, set())
    for name in synchronous - lacking:
        parameters, twin = list(inspect.signature(methods[name]).parameters), methods[f"a{name}"]
        assert list(inspect.signature(twin).parameters) == parameters or twin.__code__.co_name != "twin", name


def test_they_do_the_same(tmp_path: Path) -> None:
    class Louder(Dataset):
        def describe(self, description: str) -> None:
            super().describe(description.upper())

    async def use() -> None:
        (tmp_path / "note.txt").write_text("A railway switch.", "utf-8")
        with pointsman.open(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
            report = await workspace.aindex(str(tmp_path / "note.txt"), "notes")
            assert report.files == 1
            notes = await workspace.adataset("notes")
            assert (await notes.acount(), await notes.aids()) == (1, notes.ids())
            assert (await workspace.astatus("notes"))["documents"] == 1
            assert await workspace.anames() == ["notes"]
            with pytest.raises(UnknownNameError, match="knots"):
                await workspace.adrop("knots")
            await workspace.adrop("notes")
            assert workspace.names() == []
        louder = Louder("x", embedder=HashingEmbedder())
        louder.add([Document("a", "b")])
        await louder.adescribe("loud")  # a subclass's own method
        assert louder.description == "LOUD"

    asyncio.run(use())
