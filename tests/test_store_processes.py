"""Several processes, several threads, and processes that die."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kill_kit import WORKER, Killing
from pointsman.store.local.collection import Collection
from pointsman.store.local.files_and_locks import ExclusiveLock
from pointsman.store.local.vectors import vector_index
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.tools.errors import StoreError
from pointsman.values.types import Document
from store_kit import add, corpus, opened, sound, unit


def worker(role: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(WORKER), role, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_eight_kills(tmp_path: Path) -> None:
    """benchmarks/kill.py has as many as it is told to."""
    killing = Killing(tmp_path, seed=7)
    for number in range(8):
        killing.once(number)
    assert killing.acknowledged > 8
    assert killing.cut_short > 0


def test_kept_versions_are_whole_after_each_kill(tmp_path: Path) -> None:
    killing = Killing(tmp_path / "killed", seed=8, days=30)
    for number in range(4):
        killing.once(number)
    assert len(killing.states) > 2
    store = opened(tmp_path / "killed")
    store.save(tmp_path / "copy" / "dataset")
    past, sequence = opened(tmp_path / "copy"), store.truth.sequence()
    for earlier, writes in sorted(killing.states.items(), reverse=True):
        with past.writer():
            past.truth.become(store.truth.states(sequence, earlier), {})
        sequence = earlier
        assert {document.id: document.metadata["write"] for document in past.truth.documents()} == writes
    past.close()
    store.close()


def test_one_writer_any_number_of_readers(tmp_path: Path) -> None:
    with worker("hold", tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            with worker("try", tmp_path) as process:
                answer = process.communicate()[0]
        finally:
            holder.kill()
        assert f"being written to by another process (process {holder.pid})" in answer
        assert "reading goes on meanwhile" in answer
        assert int(answer.split()[0]) > 10  # it could search
    with worker("try", tmp_path) as process:
        assert process.communicate()[0] == "wrote\n"


def test_readers_during_writes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, [Document("first", "track")])
    readers = [worker("read", tmp_path) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
    for number in range(25):
        add(store, [Document(f"{number}-{index}", f"track {index}") for index in range(20)])
        add(store, [Document(f"{number}-0", "track changed")])
        time.sleep(0.02)
    store.rebuild()
    add(store, [Document("last", "the last track")])
    for reader in readers:
        answer, _ = reader.communicate()
        assert reader.returncode == 0
        document_count, searches = map(int, answer.split())
        assert document_count == 502
        assert searches > 1
    sound(store)
    store.close()


def test_a_writer_waits_for_a_reader_that_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reader = opened(tmp_path), opened(tmp_path)
    add(store, corpus(3))
    healing, heal = threading.Event(), Collection._heal_quietly

    def slowly(collection: Collection) -> None:
        healing.set()
        time.sleep(0.1)
        heal(collection)

    index = reader.vectors
    monkeypatch.setattr(VectorIndex, "wants_base", property(lambda vectors: vectors is index))
    monkeypatch.setattr(Collection, "_heal_quietly", slowly)
    searching = threading.Thread(target=reader.keyword.search, args=("rail", 1))
    searching.start()
    assert healing.wait(60)
    add(store, [Document("late", "rail")])
    searching.join()
    assert len(store.truth) == 4
    for handle in (reader, store):
        handle.close()


def test_a_fork_keeps_no_lock_and_takes_none_away(tmp_path: Path) -> None:
    lock, second_lock = ExclusiveLock(tmp_path / "lock"), ExclusiveLock(tmp_path / "lock")
    assert lock.acquire()
    assert lock._descriptor is not None
    (start_read, begin), (ends, end) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:  # the child: it gives its copy of the lock up, and keeps a copy of the descriptor
        try:
            os.close(end)
            os.dup(lock._descriptor)
            lock.release()
            os.write(begin, b"x")
            os.read(ends, 1)
        finally:
            os._exit(0)
    try:
        assert os.read(start_read, 1) == b"x"
        assert not second_lock.acquire()
        lock.release()
        assert second_lock.acquire()
        second_lock.release()
    finally:
        for descriptor in (start_read, begin, ends, end):
            os.close(descriptor)
        os.waitpid(process, 0)


def test_threads_search_while_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pointsman.values.filters import Range

    monkeypatch.setattr(vector_index, "_REBASE_ROWS", 30)
    store = opened(tmp_path)
    add(store, corpus(50))
    stop = threading.Event()
    errors: list[BaseException] = []

    def search() -> None:
        try:
            while not stop.is_set():
                assert store.vectors is not None
                assert len(store.keyword.search("rail lamp guard", 30)) == 30
                assert len(store.keyword.search("rail lamp guard", 10, Range("number", gte=20))) == 10
                assert len(store.vectors.search(unit("q"), 10, Range("number", gte=20))) == 10
                assert len(store.vectors.score(unit("q"), [1, 2, 3])) == 3
        except BaseException as error:  # noqa: BLE001  # told below
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(15):
        add(store, corpus(60, seed=number))
        store.delete([f"d{index}" for index in range(number)])
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    sound(store)
    store.close()


def test_threads_write_one_after_another(tmp_path: Path) -> None:
    store = opened(tmp_path)

    def write(number: int) -> None:
        add(store, corpus(10, seed=number, prefix=f"t{number}-"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.truth) == 60
    sound(store)
    store.close()


def test_columns_that_load_during_a_write_miss_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pointsman.values.filters import Equals

    store = opened(tmp_path)
    add(store, [Document("a", "rail", {"colour": "red"})])
    metadata = store.truth.metadata

    def interrupt() -> object:
        rows = list(metadata())
        add(store, [Document("b", "rail", {"colour": "red"})])
        return iter(rows)

    monkeypatch.setattr(store.truth, "metadata", interrupt)
    store.keyword.search("rail", 5, Equals("colour", "red"))
    monkeypatch.undo()
    assert len(store.keyword.search("rail", 5, Equals("colour", "red"))) == 2
    store.close()


def test_several_processes_make_one_dataset_at_once(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from pointsman.store.local.collection import Collection
store = Collection(Path({str(tmp_path / "dataset")!r}), about={{"name": "x"}})
print(store.truth.identity, store.manifest["identity"])
store.close()
"""
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE) for _ in range(6)
    ]
    answers = {word for process in processes for word in process.communicate()[0].split()}
    assert [process.returncode for process in processes] == [0] * 6
    assert len(answers) == 1


def test_a_fork_is_told_to_open_its_own(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(3))
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:  # the child: nothing may escape from here
        try:
            store.keyword.search("rail", 1)
        except StoreError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert "open datasets after forking" in answer.read()
    sound(store)
    store.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user who may not write")
def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Reading works, or an error says what is the matter."""
    store = opened(tmp_path)
    add(store, corpus(5))
    store.close()
    code = f"""
import os
from pathlib import Path
from pointsman.tools.errors import StoreError
from pointsman.store.local.collection import Collection
from pointsman.text import DEFAULT_ANALYZER
DEFAULT_ANALYZER.fingerprint  # that user may not read this Python's modules either
os.setuid(65534)
try:
    store = Collection(Path({str(tmp_path / "dataset")!r}))
    print(len(store.truth), len(store.keyword.search("rail lamp guard", 9)))
except StoreError as error:
    print(error)
"""
    private = [folder for folder in tmp_path.parents if folder.stat().st_mode & 0o777 == 0o700]  # made for the run
    folders = [*private, tmp_path, tmp_path / "dataset", tmp_path / "dataset" / "keyword"]
    modes = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o555)
    try:
        answer = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert "cannot be read or written to" in answer
