"""Indexing on a Dask cluster: the same passages and vectors as here, whatever dies on the way (B5)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cluster_kit import DaskProcesses
from pointsman import Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders import HashingEmbedder
from pointsman.tools.errors import InputError, MissingDependencyError, ServiceError, UnmetNeedError
from pointsman.values.views import ACCESS
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.indexing.indexing_cluster import DaskCluster

if TYPE_CHECKING:
    from pointsman.ingest import ReadResult
    from pointsman.workspace.indexing.index_report import IndexProgress

pytest.importorskip("distributed")

TEXTS = [f"lamp number {n} shines over track {n % 7}. " * 40 for n in range(60)]


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    with DaskProcesses(tmp_path_factory.mktemp("dask")) as processes:
        processes.wait_for_workers(2)
        yield processes


@pytest.fixture
def address(dask: DaskProcesses) -> str:
    return dask.address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    for number, text in enumerate(TEXTS):
        (files / f"{number:02}.txt").write_text(text)
    return files


def opened(path: Path) -> Workspace:
    return Workspace(path, embedder=HashingEmbedder())


def content(workspace: Workspace) -> dict[str, tuple[str, bytes | None]]:
    dataset = workspace.dataset("notes", create=False)
    ids = dataset.ids()
    vectors = dataset.get_vectors(ids)
    texts = [document.text for document in dataset.get_many(ids) if document is not None]
    return {
        id_: (text, None if vector is None else vector.tobytes())
        for id_, text, vector in zip(ids, texts, vectors, strict=True)
    }


def test_a_cluster_stores_what_one_machine_stores(tmp_path: Path, folder: Path, address: str) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 no more")
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        expected = index_paths(local_workspace.dataset("notes"), [folder])
        reports: list[IndexProgress] = []
        with DaskCluster(address, embedder="hashing") as cluster:
            report = index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=reports.append)
        assert report == expected
        assert report.problems
        assert content(workspace) == content(local_workspace)
        assert (reports[-1].share_read, reports[-1].vectors_due) == (1, 0)
        assert reports[-1].passages == reports[-1].vectors == report.passages.added


def test_again_nothing_is_stored_or_embedded_and_what_vanished_is_deleted(
    tmp_path: Path, folder: Path, address: str
) -> None:
    with opened(tmp_path / "there") as workspace, DaskCluster(address, embedder="hashing") as cluster:
        first = index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        (folder / "00.txt").unlink()
        second = index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        assert second.deleted > 0
        assert second.passages.added == second.passages.updated == second.vectors_due == 0
        assert second.passages.unchanged == first.passages.added - second.deleted


def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(
    tmp_path: Path, folder: Path, dask: DaskProcesses
) -> None:
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        index_paths(local_workspace.dataset("notes"), [folder])
        workers = dask.worker_ids()

        def kill(progress: IndexProgress) -> None:
            if workers and progress.vectors:
                os.kill(workers.pop(), signal.SIGKILL)

        with DaskCluster(dask.address, embedder="hashing") as cluster:
            report = index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=kill)
        assert len(workers) < 2
        assert report.vectors_due == 0
        assert content(workspace) == content(local_workspace)


def test_a_scheduler_that_is_killed_keeps_what_is_stored_and_indexing_again_continues(
    tmp_path: Path, folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.workspace.indexing.indexing_cluster._TIMEOUT", 1.0)
    (tmp_path / "dask").mkdir()
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        index_paths(local_workspace.dataset("notes"), [folder])
        with DaskProcesses(tmp_path / "dask", workers=1) as doomed:
            cluster = DaskCluster(doomed.address, embedder="hashing", patience=0.1)

            def end(progress: IndexProgress) -> None:
                if progress.vectors_due:
                    doomed.close()

            with pytest.raises(ServiceError, match="indexing again continues"):
                index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=end)
            cluster.close()
        stored = workspace.dataset("notes", create=False)
        assert len(stored) == len(content(local_workspace))
        assert stored.vectors_due > 0
        with DaskCluster(address, embedder="hashing") as other:
            report = index_paths(stored, [folder], cluster=other)
        assert report.passages.added == 0
        assert content(workspace) == content(local_workspace)


def test_workers_with_another_embedder_are_refused(tmp_path: Path, folder: Path, address: str) -> None:
    with opened(tmp_path / "there") as workspace, DaskCluster(address, embedder="colours") as cluster:
        with pytest.raises(InputError, match="give the same to both"):
            index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        assert workspace.dataset("notes").vectors_due == len(workspace.dataset("notes"))


def test_what_a_cluster_cannot_index_is_refused(tmp_path: Path, folder: Path, address: str) -> None:
    with opened(tmp_path / "there") as workspace, DaskCluster(address, embedder="hashing") as cluster:
        dataset = workspace.dataset("near", indexing_technique="vector")
        with pytest.raises(UnmetNeedError, match="searched by vectors alone"):
            index_paths(dataset, [folder], cluster=cluster)


@pytest.mark.parametrize("wrong", ["", "localhost", "http://localhost:1"])
def test_an_address_that_is_none_is_named(wrong: str) -> None:
    with pytest.raises(InputError, match="is not the address of a scheduler"):
        DaskCluster(wrong)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.workspace.indexing.indexing_cluster._TIMEOUT", 0.2)
    with pytest.raises(ServiceError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        DaskCluster("tcp://127.0.0.1:9")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"pointsman\[cluster\]"):
        DaskCluster("tcp://127.0.0.1:9")


def test_the_command_line_indexes_on_a_cluster(tmp_path: Path, folder: Path, address: str) -> None:
    place = str(tmp_path / "there")
    arguments = ["index", str(folder), "-d", "notes", "-w", place, "--embedder", "hashing", "--cluster", address]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    with opened(tmp_path / "there") as workspace:
        assert all(vector is not None for _, vector in content(workspace).values())
        assert np.isfinite(workspace.search("lamp number 3", refuse=False).hits[0].score)
    watching = CliRunner().invoke(app, [*arguments, "--watch"])
    assert isinstance(watching.exception, InputError)


# ── what workers return ──────────────────────────────────────────────────────────────────────────────────────────────


class Lying(DaskCluster):
    """A cluster whose workers return something else; a fake, since real ones compute what they are asked."""

    def __init__(self, reading: Any = None, vectors: Any = None) -> None:
        self._address, self._embedder, self._reading, self._vectors = "tcp://nowhere:1", "hashing", reading, vectors

    def _in_order(self, tasks: Iterable[Any]) -> Iterator[Any]:
        for task in tasks:
            result = task.function(*task.arguments)
            if isinstance(result, list):
                yield result if self._reading is None else self._reading(result)
            else:
                yield result if self._vectors is None else self._vectors(result)


def change_passage(results: list[list[ReadResult]], **values: Any) -> list[list[ReadResult]]:
    """Change the first passage."""
    result = results[0][0]
    document = result.documents[0]
    fields = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)} | values
    passage: Any = SimpleNamespace(**fields)
    return [[replace(result, documents=(passage, *result.documents[1:])), *results[0][1:]], *results[1:]]


def change_metadata(results: list[list[ReadResult]], **values: Any) -> list[list[ReadResult]]:
    return change_passage(results, metadata={**results[0][0].documents[0].metadata, **values})


READINGS: dict[str, Callable[[list[list[ReadResult]]], Any]] = {
    "nothing": lambda results: [],
    "no list": lambda results: "passages",
    "a file too many": lambda results: [*results, results[0]],
    "a file too few": lambda results: results[:-1],
    "files in another order": lambda results: results[::-1],
    "no results": lambda results: [[7], *results[1:]],
    "no list of results": lambda results: [None, *results[1:]],
    "another file's result": lambda results: [[replace(results[0][0], path="01.txt")], *results[1:]],
    "a picture": lambda results: [[replace(results[0][0], image=b"x")], *results[1:]],
    "another file's passage": lambda results: change_passage(results, id="01.txt#0"),
    "an id that is no text": lambda results: change_passage(results, id=7),
    "a text that is none": lambda results: change_passage(results, text=b"x"),
    "metadata that is none": lambda results: change_passage(results, metadata=[1]),
    "metadata of objects": lambda results: change_metadata(results, key=object()),
    "another source": lambda results: change_metadata(results, source="/etc/passwd"),
    "access": lambda results: change_metadata(results, **{ACCESS: {"allow": ["everyone"]}}),
}


@pytest.mark.parametrize("lie", READINGS)
def test_passages_that_were_not_asked_for_are_refused_and_nothing_of_them_is_stored(
    tmp_path: Path, folder: Path, lie: str
) -> None:
    with opened(tmp_path / "there") as workspace:
        dataset = workspace.dataset("notes")
        with pytest.raises(ServiceError, match=r"a worker at tcp://nowhere:1 returned .*; nothing of it is stored"):
            index_paths(dataset, [folder], cluster=Lying(reading=READINGS[lie]))
        documents = [document for document in dataset if "passwd" in str(document) or ACCESS in document.metadata]
        assert not documents
        report = index_paths(dataset, [folder], cluster=Lying())
        with opened(tmp_path / "here") as local_workspace:
            index_paths(local_workspace.dataset("notes"), [folder])
            assert content(workspace) == content(local_workspace), "as if it had never lied"
        assert not report.problems


VECTORS: dict[str, Callable[[Any], Any]] = {
    "five dimensions": lambda vectors: vectors[:, :5],
    "a vector too few": lambda vectors: vectors[:-1],
    "a vector too many": lambda vectors: np.concatenate([vectors, vectors[:1]]),
    "doubles": lambda vectors: vectors.astype(np.float64),
    "no number": lambda vectors: np.where(vectors == vectors[0, 0], np.float32(np.nan), vectors),
    "infinity": lambda vectors: np.where(vectors == vectors[0, 0], np.float32(np.inf), vectors),
    "no array": lambda vectors: SimpleNamespace(shape=vectors.shape, dtype=vectors.dtype),
    "nothing": lambda vectors: None,
}


@pytest.mark.parametrize("lie", VECTORS)
def test_vectors_that_were_not_asked_for_are_refused_and_the_dataset_stays_usable(
    tmp_path: Path, folder: Path, lie: str
) -> None:
    with opened(tmp_path / "there") as workspace:
        dataset = workspace.dataset("notes")
        with pytest.raises(ServiceError, match=r"a worker at tcp://nowhere:1 returned .*; nothing of it is stored"):
            index_paths(dataset, [folder], cluster=Lying(vectors=VECTORS[lie]))
        assert index_paths(dataset, [folder], cluster=Lying()).vectors_due == 0
        assert workspace.search("lamp over track", strategy="vector", refuse=False).hits
        assert dataset.verify().problems == ()
