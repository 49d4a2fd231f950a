"""A workspace, dataset or retriever is pickled as its place, without handles and keys, and opens there."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import Dataset, Document, Settings, SimpleHybridRetriever
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm import ScriptedLLM
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from postgres_kit import PostgresServer

DOCUMENTS = [Document("a", "the rail is straight"), Document("b", "a red signal lamp")]
KEY = "sk-a-key-that-nobody-may-read"


def ids_of(subject: Any, question: str) -> list[str]:
    hits = subject.retrieve(question, 2) if hasattr(subject, "retrieve") else subject.search(question, 2, refuse=False)
    return [hit.id for hit in hits]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pointsman.Workspace:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    workspace = pointsman.open(tmp_path / "ws", embedder="hashing", settings=Settings(llm_provider="openai"))
    workspace.dataset("rails", description="About rails").add(DOCUMENTS)
    return workspace


def test_it_opens_where_it_was(workspace: pointsman.Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dataset = workspace.dataset("rails")
    subjects = [workspace, dataset, dataset.retriever("hybrid"), SimpleHybridRetriever(dataset.retriever("bm25"))]
    blobs = [pickle.dumps(subject) for subject in subjects]
    monkeypatch.chdir(tmp_path)  # a place that was given relative to a folder is the same elsewhere
    for subject, blob in zip(subjects, blobs, strict=True):
        copy = pickle.loads(blob)
        assert KEY.encode() not in blob
        assert len(blob) < 20_000
        assert ids_of(copy, "red lamp") == ids_of(subject, "red lamp") != []
    copy = pickle.loads(blobs[0])
    assert copy.settings == workspace.settings
    assert copy.embedder.name == workspace.embedder.name
    assert pickle.loads(blobs[1]).description == "About rails"
    together = pickle.loads(pickle.dumps([workspace, dataset]))
    assert together[1].workspace is together[0]


def test_a_relative_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pointsman.open("ws", embedder="hashing").dataset("rails").add(DOCUMENTS)
    blob = pickle.dumps(pointsman.open("ws", embedder="hashing"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(blob).names() == ["rails"]


def test_another_process_searches(workspace: pointsman.Workspace) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for subject in (workspace, workspace.dataset("rails"), workspace.dataset("rails").retriever()):
            assert pool.submit(ids_of, subject, "red lamp").result(120) == ids_of(subject, "red lamp")


def test_a_dataset_in_a_folder_of_its_own(tmp_path: Path) -> None:
    with Dataset("rails", "About rails", "keyword", path=tmp_path, bm25_k1=0.9) as dataset:
        dataset.add(DOCUMENTS)
        copy = pickle.loads(pickle.dumps(dataset))
        assert (copy.name, copy.description, copy.indexing_technique) == ("rails", "About rails", "keyword")
        assert [hit.score for hit in copy.search("red lamp")] == [hit.score for hit in dataset.search("red lamp")]


def test_one_that_is_not_made_yet(tmp_path: Path) -> None:
    dataset = pointsman.open(tmp_path).dataset("later", indexing_technique="keyword")
    copy = pickle.loads(pickle.dumps(dataset))
    copy.add(DOCUMENTS)
    assert copy.indexing_technique == "keyword"
    assert dataset.count() == 2


def test_in_postgresql(postgres: PostgresServer) -> None:
    with pointsman.open(f"{postgres.url}?schema=pickled", embedder="hashing") as workspace:
        workspace.dataset("rails").add(DOCUMENTS)
        copy = pickle.loads(pickle.dumps(workspace.dataset("rails")))
        with copy.workspace:
            assert ids_of(copy, "red lamp") == ids_of(workspace.dataset("rails"), "red lamp")


def test_no_password_is_pickled(postgres: PostgresServer) -> None:
    address = postgres.url.replace("pointsman@", f"pointsman:{KEY}@")
    with pointsman.open(f"{address}?schema=pickled") as workspace:
        assert KEY.encode() not in pickle.dumps(workspace)


def test_what_cannot_be_pickled_says_so(tmp_path: Path, workspace: pointsman.Workspace) -> None:
    objects: dict[str, Any] = {
        "embedder": HashingEmbedder(),
        "workflow": pointsman.RetrievalWorkflow(),
        "llm": ScriptedLLM(["a"]),
    }
    for name, value in objects.items():
        with pytest.raises(TypeError, match=rf"cannot be pickled: it was opened with objects \({name}\)"):
            pickle.dumps(pointsman.open(tmp_path / "objects", **{name: value}))
    with pytest.raises(TypeError, match=r"objects \(backend\)"):
        pickle.dumps(pointsman.open(LocalBackend(tmp_path / "objects")))
    with pytest.raises(TypeError, match="it has no folder"):
        pickle.dumps(Dataset("rails"))
    with pytest.raises(TypeError, match="it was made with objects"):
        pickle.dumps(Dataset("rails", path=tmp_path / "rails", embedder=HashingEmbedder()))
    with pytest.raises(TypeError, match="it is a view"):
        pickle.dumps(workspace.dataset("rails").in_view(["ann"]))
    workspace.close()
    with pytest.raises(InputError, match="is closed"):
        pickle.dumps(workspace)
