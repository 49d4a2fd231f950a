"""Workspaces copied between backends arrive whole, whatever happens on the way (B7)."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import pointsman
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, odd_documents, vector_of, vectors_of
from pointsman.retrieval.judge.kept_calibrations import Calibration, change_calibrations, stored_calibrations
from pointsman.store.backend_urls import open_backend
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.store.store_values import StoreQuery
from pointsman.tools import errors
from pointsman.values.types import Document
from pointsman.workspace.copies.copying import content_of, copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opensearch_kit import Cluster
    from pointsman.store.backend import Backend
    from postgres_kit import PostgresServer

ODD = [Document("nul\0 / 信号", "a \0 b 🚂", {"a": [1, None, {"б": True}], "\0": -0.0, "title": "x" * 500})]


class CutShortError(Exception):
    """As a power failure would."""


def fill_backend(path: Path, documents: list[Document], bare: int = 7) -> LocalBackend:
    """A workspace with three datasets: with vectors but for some documents, with words alone, and empty."""
    backend = LocalBackend(path)
    store = backend.create("rails", {"description": "信号", "bm25_k1": 0.9})
    store.write(documents[bare:], vectors_of(documents[bare:]), EMBEDDER)
    store.write(documents[:bare])
    store.annotate(spread="0.8 0.1")
    store.close()
    words = backend.create("words", {"indexing_technique": "keyword"})
    words.write(documents[:9])
    words.close()
    backend.create("empty", {}).close()
    backend.put_record("policy", "", '{"fitted": true}')
    backend.put_record("keys", "", "secret")
    return backend


def assert_same(first: Backend, second: Backend) -> None:
    for record in first.datasets():
        left, right = first.open(record.name), second.open(record.name)
        assert left is not None
        assert right is not None
        assert content_of(left) == content_of(right)
        by_id = {document.id: document for document in right.documents()}
        assert by_id == {document.id: document for document in left.documents()}
        assert dict(right.statistics().notes) == dict(left.statistics().notes)
        left.close()
        right.close()
    records = [replace(record, identity="") for record in first.datasets()]
    assert [replace(record, identity="") for record in second.datasets()] == records


def killed_at(batch_number: int) -> Callable[[str, int, int], None]:
    """Progress that ends the copy after so many batches."""
    batches = 0

    def interrupt(name: str, count: int, total: int) -> None:
        nonlocal batches
        batches += 1
        if batches > batch_number:
            raise CutShortError

    return interrupt


def test_from_a_folder_around_the_world(
    tmp_path: Path, postgres: PostgresServer, opensearch: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder, PostgreSQL, OpenSearch, folder; each copy is cut short again and again."""
    monkeypatch.setattr("pointsman.workspace.copies.copying.BATCH", 25)
    name = f"c{uuid.uuid4().hex[:12]}"
    first = fill_backend(tmp_path / "first", [*ODD, *odd_documents(120)])
    backends = [first]
    for url in (f"{postgres.url}?schema={name}", f"{opensearch.url}/{name}?replicas=0", str(tmp_path / "last")):
        target: Any = open_backend(url)
        cuts = 0
        while True:
            try:
                reports = copy(backends[-1], target, on_progress=killed_at(2))
                break
            except CutShortError:
                cuts += 1
        assert cuts >= 2
        assert [report.name for report in reports] == ["empty", "rails", "words"]
        backends.append(target)
    for backend in backends[1:]:
        assert_same(first, backend)
        record = backend.record("policy")
        assert record is not None
        assert record.value == '{"fitted": true}'
        assert backend.record("keys") is None
        backend.close()


def test_words_and_vectors_are_found_there(tmp_path: Path) -> None:
    first, second = fill_backend(tmp_path / "first", odd_documents(60)), LocalBackend(tmp_path / "second")
    (report,) = copy(first, second, ["rails"])
    assert (report.name, report.content.documents, report.content.vectors) == ("rails", 60, 53)
    assert [dataset.name for dataset in second.datasets()] == ["rails"]
    assert second.record("policy") is None
    store_query = StoreQuery("signal lamp", vector_of("x"), 10)
    answers = []
    for backend in (first, second):
        store = backend.open("rails")
        assert store is not None
        rankings = store.search([store_query])[0].rankings
        answers.append({name: [store.fetch([key])[0] for key, _ in ranking] for name, ranking in rankings.items()})
        store.close()
    assert answers[0] == answers[1]


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    first, second = fill_backend(tmp_path / "first", odd_documents(20)), LocalBackend(tmp_path / "second")
    second.create("rails", {}).close()
    store = second.open("rails")
    assert store is not None
    store.write([Document("own", "x")])
    store.close()
    with pytest.raises(errors.InputError, match="'rails' already"):
        copy(first, second, ["rails"])
    with pytest.raises(errors.UnknownNameError, match="nowhere"):
        copy(first, second, ["nowhere"])
    reports = copy(first, second, ["words"])
    assert copy(first, second, ["words"]) == reports  # is there already, and the same
    store = second.open("words")
    assert store is not None
    store.write([Document("own", "x")])
    store.close()
    with pytest.raises(errors.InputError, match="'words' already"):
        copy(first, second, ["words"])
    second.drop("words")
    assert copy(first, second, ["words"]) == reports


def test_nothing_is_copied_onto_itself(tmp_path: Path) -> None:
    first = fill_backend(tmp_path / "first", odd_documents(9))
    for name in ("rails", "empty"):
        with pytest.raises(errors.InputError, match=f"'{name}' at .*is the one to be copied.*name another place"):
            copy(first, LocalBackend(tmp_path / "first"), [name])


def test_what_the_target_has_fitted_is_kept(tmp_path: Path) -> None:
    first, second = fill_backend(tmp_path / "first", odd_documents(9)), LocalBackend(tmp_path / "second")
    change_calibrations(
        first, lambda calibrations: calibrations.update(rails=Calibration("new"), gone=Calibration("stale"))
    )
    change_calibrations(
        second, lambda calibrations: calibrations.update(rails=Calibration("old"), own=Calibration("own"))
    )
    second.put_record("policy", "", '{"fitted": "here"}')
    copy(first, second)
    assert stored_calibrations(second) == {"rails": Calibration("new"), "own": Calibration("own")}
    record = second.record("policy")
    assert record is not None
    assert record.value == '{"fitted": "here"}'


def test_a_dataset_takes_its_calibration_along(tmp_path: Path) -> None:
    first, second = fill_backend(tmp_path / "first", odd_documents(9)), LocalBackend(tmp_path / "second")
    change_calibrations(
        first, lambda calibrations: calibrations.update(rails=Calibration("new"), words=Calibration("other"))
    )
    copy(first, second, ["rails"])
    assert stored_calibrations(second) == {"rails": Calibration("new")}
    assert second.record("policy") is None
    change_calibrations(first, lambda calibrations: calibrations.pop("rails"))
    copy(first, second, ["rails"])
    assert stored_calibrations(second) == {}, "it was removed, so the copy refuses by it no longer"


def test_what_is_written_meanwhile_is_copied_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.workspace.copies.copying.BATCH", 10)
    documents = odd_documents(60)
    first, second = fill_backend(tmp_path / "first", documents), LocalBackend(tmp_path / "second")
    times = 0

    def interfere(name: str, count: int, total: int) -> None:
        nonlocal times
        times += 1
        if times == 4:
            store = first.open("rails")
            assert store is not None
            store.write([Document("late", "lamp")], vectors_of([Document("late", "lamp")]), EMBEDDER)
            changed_document = Document(documents[20].id, "changed")
            store.write([changed_document], vectors_of([changed_document]), EMBEDDER)
            store.delete([documents[15].id])
            store.close()

    copy(first, second, ["rails"], on_progress=interfere)
    store = second.open("rails")
    assert store is not None
    assert store.get(["late", documents[15].id]) == [Document("late", "lamp"), None]
    store.close()
    first_again = first.open("rails")
    second_again = second.open("rails")
    assert first_again is not None
    assert second_again is not None
    assert content_of(first_again) == content_of(second_again)
    first_again.close()
    second_again.close()


def test_what_arrives_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pointsman.store.local.local_store import LocalStore

    first, second = fill_backend(tmp_path / "first", odd_documents(20)), LocalBackend(tmp_path / "second")
    write = LocalStore.write

    def careless(self: LocalStore, documents: Any, *arguments: Any) -> Any:
        return write(
            self,
            [Document(document.id, document.text.replace("a", "e"), document.metadata) for document in documents],
            *arguments,
        )

    monkeypatch.setattr(LocalStore, "write", careless)
    with pytest.raises(errors.StoreError, match="differs between its source"):
        copy(first, second)


def test_the_digest_tells_everything_apart(tmp_path: Path) -> None:
    document, second = Document("1", "lamp", {"a": 1}), Document("2", "post")
    variants = [
        ([document, second], vectors_of([document, second])),
        ([document, Document("2", "posts")], vectors_of([document, second])),
        ([Document("1", "lamp", {"a": 2}), second], vectors_of([document, second])),
        ([document, Document("3", "post")], vectors_of([document, second])),
        ([document, second], vectors_of([second, document])),
        ([document, second], None),
        ([document], vectors_of([document])),
    ]
    digests = set()
    for number, (documents, vectors) in enumerate(variants):
        store = LocalBackend(tmp_path / str(number)).create("x", {})
        store.write(documents, vectors, None if vectors is None else EMBEDDER)
        digests.add(content_of(store))
        store.close()
    assert len(digests) == len(variants)
    store = LocalBackend(tmp_path / "turned").create("x", {})
    store.write([second, document], vectors_of([second, document]), EMBEDDER)
    assert content_of(store) in digests
    store.close()


def test_kept_versions_are_not_copied_and_that_is_said(tmp_path: Path, postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=c{uuid.uuid4().hex[:12]}"
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("kept", versions="9 days").add([Document("a", "one")])
        workspace.dataset("kept").add([Document("a", "two")])
        workspace.dataset("plain").add([Document("a", "one")])
    shown = CliRunner().invoke(app, ["copy", url, str(tmp_path / "copy")])
    assert shown.exit_code == 0, shown.output
    assert "the versions that kept keeps were not copied" in " ".join(shown.output.split())
    with closing(open_backend(url)) as source, closing(open_backend(str(tmp_path / "copy"))) as target:
        assert [(report.name, report.kept_days) for report in copy(source, target)] == [("kept", 9), ("plain", 0)]
        store = target.open("kept")
        assert store is not None
        assert store.statistics().recorded_state is None
        store.close()
