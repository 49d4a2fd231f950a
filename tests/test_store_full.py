"""A full disk: searching goes on, what was acknowledged stays, and writing works again once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from disk_kit import NoSmallDiskError, fill, small_disk
from pointsman import Client, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.collection import Collection
from pointsman.store.local.manifest import drop_collection
from pointsman.tools.errors import StorageFullError, StoreError
from pointsman.values.types import Document
from store_kit import add, corpus, opened, sound, unit, wait_until_let_go, write_files_early

SIZE = 12 << 20


@pytest.fixture(scope="module")
def whole_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        with small_disk(tmp_path_factory.mktemp("disk"), SIZE) as disk:
            yield disk
    except NoSmallDiskError as error:
        pytest.skip(str(error))


@pytest.fixture
def disk(whole_disk: Path) -> Iterator[Path]:
    yield whole_disk
    for path in whole_disk.iterdir():
        path.unlink() if path.is_file() else shutil.rmtree(path)


def answers(store: Collection) -> tuple[list[int], list[int], list[Document | None]]:
    assert store.vectors is not None
    words = store.keyword.search("rail lamp guard", 10)
    neighbours = store.vectors.search(unit("q"), 10)
    documents = store.truth.fetch([key for key, _ in words])
    return [key for key, _ in words], [key for key, _ in neighbours], documents


@pytest.mark.parametrize("close", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("leave", [0, 8_192, 40_000, 100_000, 250_000, 700_000])
def test_searching_goes_on_and_writing_says_what_was_kept(
    disk: Path, leave: int, close: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files_early(10, monkeypatch.setattr)
    store = opened(disk)
    expected = {document.id: document.text for document in corpus(100)}
    add(store, corpus(100))
    answer = answers(store)
    if close:
        store.close()
    filler = fill(disk, leave)
    if close:
        store = opened(disk)
    assert answers(store) == answer
    refused = 0
    for number in range(12):
        documents = corpus(80, seed=number, prefix=f"n{number}-")
        message = ""
        try:
            add(store, documents)
        except StorageFullError as error:
            message = str(error)
        if message:
            refused += 1
            assert "free some space" in message
            ids = set(store.truth.ids())
            stored_documents = [document for document in documents if document.id in ids]
            assert len(stored_documents) in {0, 80}
            assert ("the documents are stored" in message) == bool(stored_documents), message
            documents = stored_documents
        expected |= {document.id: document.text for document in documents}
        assert len(answers(store)[1]) == 10
        reader = opened(disk)  # one that has it open from now on
        assert {document.id: document.text for document in reader.truth.documents()} == expected
        reader.close()
        if refused == 3:
            break
    assert refused
    store.close()
    store = opened(disk)
    assert {document.id: document.text for document in store.truth.documents()} == expected
    assert len(answers(store)[1]) == 10
    filler.unlink()
    add(store, [Document("after", "the tunnel after it")])
    assert {document.id: document.text for document in store.truth.documents()} == expected | {
        "after": "the tunnel after it"
    }
    sound(store)
    store.close()
    reopened_store = opened(disk)
    sound(reopened_store)
    reopened_store.close()


def test_threads_that_open_it_at_once_do_not_hold_one_another_up(disk: Path) -> None:
    store = opened(disk)
    add(store, corpus(50))
    store.close()
    fill(disk, 0)

    def read(_: int) -> int:
        reader = opened(disk)
        try:
            return len(reader.truth)
        finally:
            reader.close()

    with ThreadPoolExecutor(4) as threads:  # two that waited for one another would end with LockedError
        assert list(threads.map(read, range(20))) == [50] * 20


def test_a_service_says_that_the_disk_is_full_and_goes_on_searching(disk: Path) -> None:
    pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")
    from pointsman.service.server import create_app
    from serving import serving

    texts = [{"id": document.id, "text": document.text} for document in corpus(40)]
    request = {"query": "rail lamp guard", "refuse": False, "k": 10}
    app = create_app(Workspace(disk / "workspace", embedder=HashingEmbedder()))
    with serving(app) as address, Client(address) as client:
        notes = client.dataset("notes")
        notes.add(texts)
        expected = httpx.post(f"{address}/api/search", json=request).json()["hits"]
        filler = fill(disk, 0)
        refused = 0
        for number in range(5):
            new_documents = [{"id": f"n{number}-{text['id']}", "text": text["text"]} for text in texts]
            answer = httpx.post(f"{address}/api/datasets/notes/documents", json={"documents": new_documents})
            refused += answer.status_code == 507
            assert answer.status_code in {200, 507}, answer.text
            if answer.status_code == 507:
                assert answer.json()["type"] == "/problems/storage-full"
                assert str(disk) not in answer.text
                assert "kept" in answer.json()["detail"] or "are stored" in answer.json()["detail"]
        assert refused
        with pytest.raises(StorageFullError, match="no room is left"):  # noqa: PT012  (a few may still find room)
            for number in range(20):
                notes.add([{"id": f"c{number}-{text['id']}", "text": text["text"]} for text in texts])
        response = httpx.post(f"{address}/api/search", json=request)
        assert response.status_code == 200
        assert len(response.json()["hits"]) == len(expected) == 10
        filler.unlink()
        assert notes.add([{"id": "after", "text": "the tunnel after it"}]).added == 1
        assert notes.verify().problems == ()


def test_what_is_full_can_be_dropped(disk: Path) -> None:
    for name in ("one", "two"):
        store = Collection(disk / name)
        add(store, corpus(50))
        store.close()
    fill(disk, 0)
    Collection(disk / "one").remove()
    assert drop_collection(disk / "two")
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_disk_that_cannot_be_written_to_is_searched(disk: Path) -> None:
    for name in ("closed", "made before its index"):
        store = Collection(disk / name)
        add(store, corpus(50))
        answer = answers(store)
        store.close()
    shutil.rmtree(disk / "made before its index" / "keyword")
    wait_until_let_go(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        store = Collection(disk / "closed")
        assert answers(store) == answer
        with pytest.raises(StoreError, match="cannot be written to"):
            add(store, corpus(51))
        assert answers(store) == answer
        store.close()
        store = Collection(disk / "made before its index")
        with pytest.raises(StoreError, match="cannot be written to"):  # not: no hits
            store.keyword.search("rail", 5)
        store.close()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """Without a disk of its own: the same errors, in a process that may not write more to one file."""
    code = f"""
import resource, sys
from pathlib import Path
from pointsman.tools.errors import StoreError
from store_kit import add, corpus, opened, sound
store = opened(Path({str(tmp_path)!r}))
add(store, corpus(50))
count = 50
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
refused = 0
for number in range(40):
    try:
        add(store, corpus(50, seed=number, prefix=f"n{{number}}-"))
    except StoreError:  # SQLite calls this an error of the disk
        refused += 1
    count = len(store.keyword.search("rail lamp guard", 10))
    assert count == 10, count
count = len(store.truth)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
add(store, corpus(1, prefix="after"))
assert len(store.truth) == count + 1
sound(store)
print(refused)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, "-W", "error", "-c", code]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert outcome.returncode == 0, outcome.stderr
    assert int(outcome.stdout) > 0
