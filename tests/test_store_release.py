"""Becoming the writer for a while: taking turns between threads and processes, and dying in between."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman import Dataset, Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.backend import DatasetRecord
from pointsman.store.local.collection import Collection
from pointsman.store.local.keyword import keyword_index
from pointsman.store.local.keyword.keyword_files import segments
from pointsman.store.prepared_documents import prepare
from pointsman.tools.errors import LockedError, StoreError, UnknownNameError
from pointsman.values.filters import Range
from store_kit import (
    WORDS,
    add,
    collection_of,
    corpus,
    held_files,
    opened,
    sound,
    unit,
    wait_until_let_go,
    write_files_early,
)

TURNS = Path(__file__).with_name("store_turns.py")


def dataset(path: Path, name: str = "notes") -> Dataset:
    """A dataset of this workspace, opened a second time within this process: for the lock, another process's."""
    return Workspace(path, embedder=HashingEmbedder()).dataset(name)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Dataset, Dataset]]:
    first, second = dataset(tmp_path), dataset(tmp_path)
    yield first, second
    first.close()
    second.close()


def document(id_: str, text: str = "rail signal") -> Document:
    return Document(id_, f"{text} {id_}")


def ids_found(target: Dataset, text: str) -> list[str]:
    """The ids that both lists agree to hold for a word."""
    by_words = {hit.id for hit in target.retriever("bm25").retrieve(text, 100)}
    ids_by_vector = {hit.id for hit in target.retriever("vector").retrieve(text, 1000)}
    assert by_words <= ids_by_vector
    return sorted(by_words)


class TestBlock:
    def test_others_may_write_after_it(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair
        for number in range(5):
            for writer in pair:
                with writer.writing():
                    assert writer.add([document(f"{number}-{pair.index(writer)}")]).added == 1
            assert len(ids_found(first, "signal")) == len(ids_found(second, "signal")) == 2 * number + 2
        for writer in pair:
            sound(collection_of(writer))

    def test_without_it_a_write_does_not_wait_and_lets_others_write_after_it(
        self, pair: tuple[Dataset, Dataset]
    ) -> None:
        first, second = pair
        first.add([document("a")])
        assert second.add([document("b")]).added == 1
        assert first.delete("b") == 1
        second.rebuild()
        with second.writing(), pytest.raises(LockedError, match="being written to"):
            first.add([document("c")])
        assert first.add([document("c")]).added == 1
        assert ids_found(second, "signal") == ["a", "c"]

    def test_all_that_writes_works_inside(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair
        with first.writing():
            first.add([document("a"), document("b")])
            assert first.delete(["a"]) == 1
            first.rebuild()
            assert ids_found(first, "signal") == ["b"]
            with pytest.raises(LockedError):
                second.delete(["b"])
        assert ids_found(second, "signal") == ["b"]
        with second.writing():
            assert second.delete("b") == 1
        assert ids_found(first, "signal") == []

    def test_a_block_in_a_block(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair
        with first.writing():
            with first.writing(), first.writing(wait=5):
                first.add([document("a")])
            with pytest.raises(LockedError):
                second.add([document("b")])
        assert second.add([document("b")]).added == 1

    def test_an_error_inside_releases_too(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair

        def fail() -> None:
            with first.writing():
                first.add([document("a")])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert second.add([document("b")]).added == 1
        assert ids_found(second, "signal") == ["a", "b"]

    def test_dropping_inside(self, tmp_path: Path) -> None:
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes")
            with notes.writing():
                notes.add([document("a")])
                workspace.drop("notes")
            assert workspace.names() == []
            assert workspace.dataset("notes").add([document("b")]).added == 1

    def test_closing_inside(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair
        with first.writing():
            first.add([document("a")])
            first.close()
        assert second.add([document("b")]).added == 1

    def test_readers_keep_what_they_have_in_memory(self, pair: tuple[Dataset, Dataset]) -> None:
        first, _ = pair
        with first.writing():
            first.add([document(str(number)) for number in range(50)])
        ids_found(first, "signal")
        keyword, vectors = collection_of(first).keyword, collection_of(first).vectors
        assert vectors is not None
        index, base = keyword._index, vectors._state
        assert index is not None
        with first.writing():
            first.add([document("new")])
        assert keyword._index is index
        assert keyword._writer is None
        assert vectors._state is not None
        assert base is not None
        assert vectors._state.base is base.base
        assert "new" in ids_found(first, "signal")


class TestWaiting:
    def test_it_waits_for_another_process(self, tmp_path: Path) -> None:
        with dataset(tmp_path) as first, dataset(tmp_path) as second:
            is_inside, may_leave = threading.Event(), threading.Event()

            def write() -> None:
                with first.writing():
                    first.add([document("a")])
                    is_inside.set()
                    may_leave.wait(60)

            thread = threading.Thread(target=write)
            thread.start()
            assert is_inside.wait(60)
            start = time.monotonic()
            with pytest.raises(LockedError, match="being written to"), second.writing(wait=0.2):
                pytest.fail("it is locked")
            assert time.monotonic() - start >= 0.2
            threading.Timer(0.1, may_leave.set).start()
            with second.writing(wait=60):
                assert second.add([document("b")]).added == 1
            thread.join()
            assert ids_found(first, "signal") == ["a", "b"]

    def test_threads_are_inside_together_and_the_last_one_releases(self, pair: tuple[Dataset, Dataset]) -> None:
        first, second = pair
        barrier, errors = threading.Barrier(4), []

        def write(number: int) -> None:
            try:
                with first.writing(wait=60):
                    barrier.wait(60)  # all four are inside
                    first.add([document(f"t{number}")])
                    if number:
                        return
                    time.sleep(0.05)
                    with pytest.raises(LockedError):
                        second.add([document("b")])
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert second.add([document("b")]).added == 1
        assert len(ids_found(first, "signal")) == 5

    def test_who_writes_without_a_pause_lets_others_in(self, pair: tuple[Dataset, Dataset]) -> None:
        """Threads whose blocks overlap for ever would keep another process out if they did not line up behind it."""
        first, second = pair
        stop, entry, errors = threading.Event(), threading.Condition(), []
        blocks = 0

        def write(name: str) -> None:
            nonlocal blocks
            number = 0
            try:
                while not stop.is_set():
                    number += 1
                    with first.writing(wait=60):
                        first.add([document(f"{name}{number}")])
                        with entry:
                            blocks += 1
                            own_block = blocks
                            entry.notify_all()
                            entry.wait_for(lambda: blocks > own_block or stop.is_set(), 0.2)  # noqa: B023  # ours
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        try:
            for number in range(5):
                with second.writing(wait=20):
                    second.add([document(f"b{number}")])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors
        assert second.delete([f"b{number}" for number in range(5)]) == 5
        sound(collection_of(second))

    def test_a_block_in_a_block_does_not_line_up_behind_who_waits_for_its_end(
        self, pair: tuple[Dataset, Dataset]
    ) -> None:
        first, second = pair

        def write() -> None:
            with second.writing(wait=60):
                second.add([document("b")])

        with first.writing():
            first.add([document("a")])
            thread = threading.Thread(target=write)
            thread.start()
            while not collection_of(first)._lock.wanted:
                time.sleep(0.005)
            with first.writing(wait=5):
                first.add([document("c")])
        thread.join()
        assert ids_found(first, "signal") == ["a", "b", "c"]

    def test_what_others_have_indexed_is_not_indexed_again(
        self, pair: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = pair
        with first.writing():
            first.add([document("a")])
        with second.writing():
            second.add([document("b")])

        def index_again(*_: object) -> None:
            pytest.fail("it is in the index")

        monkeypatch.setattr(collection_of(first).keyword, "_write", index_again)
        with first.writing():
            assert first.delete(["unknown"]) == 0
        assert ids_found(first, "signal") == ["a", "b"]

    def test_processes_take_turns(self, tmp_path: Path) -> None:
        names = ["a", "b", "c"]
        command = [sys.executable, "-W", "error", str(TURNS), str(tmp_path)]
        processes = [subprocess.Popen([*command, name, "20"]) for name in names]
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        with dataset(tmp_path) as notes:
            assert sorted(notes.ids()) == sorted(f"{name}{number}" for name in names for number in range(20))
            assert len(ids_found(notes, "signal")) == 60
            sound(collection_of(notes))

    def test_who_dies_inside_or_in_line_holds_nobody_up(self, tmp_path: Path) -> None:
        with dataset(tmp_path) as notes, notes.writing():
            notes.add([document("first")])
        command = [sys.executable, "-W", "error", str(TURNS), str(tmp_path)]
        for number in range(3):
            processes = [
                subprocess.Popen([*command, f"{name}{number}-", "1000"], stdout=subprocess.PIPE, text=True)
                for name in "ab"
            ]
            acknowledged_ids = []
            for process in processes:
                assert process.stdout is not None
                acknowledged_ids += [process.stdout.readline().strip() for _ in range(2)]
            for process in processes:
                process.kill()
            for process in processes:
                assert process.stdout is not None
                acknowledged_ids += [line.strip() for line in process.stdout if line.endswith("\n")]
                process.stdout.close()
                process.wait()
            with dataset(tmp_path) as notes:
                with notes.writing(wait=30):
                    notes.add([document(f"after{number}")])
                ids = set(notes.ids())
                assert set(acknowledged_ids) <= ids
                assert f"after{number}" in ids
                sound(collection_of(notes))


class TestClosedMeanwhile:
    """Closing waits for the thread that writes, which must not wait for what closing holds."""

    @pytest.mark.parametrize("method", ["close", "follow"])
    def test_by_another_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        monkeypatch.setattr("pointsman.workspace.dataset.documents.BATCH", 2)
        notes, write_started, closing = dataset(tmp_path), threading.Event(), threading.Event()

        def documents() -> Iterator[Document]:
            yield from (document("a"), document("b"))
            write_started.set()
            assert closing.wait(60)
            time.sleep(0.1)  # until the other thread waits
            yield from (document("c"), document("d"))

        counts = []
        thread = threading.Thread(target=lambda: counts.append(notes.add(documents()).added), daemon=True)
        thread.start()
        assert write_started.wait(60)
        closing.set()
        if method == "close":
            notes.close()
        else:
            notes.follow(DatasetRecord("notes", "", "hybrid", "another"))
        thread.join(60)
        assert counts == [4]
        with dataset(tmp_path) as reader:
            assert sorted(reader.ids()) == list("abcd")
            sound(collection_of(reader))
        notes.close()


class TestGoneMeanwhile:
    def test_a_deleted_dataset_is_not_written_to(self, pair: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        first, second = pair
        with first.writing():
            first.add([document("a")])
        with second.writing():
            collection_of(second).remove()
        with pytest.raises(UnknownNameError, match="notes"), first.writing():
            pytest.fail("it is gone")
        with pytest.raises(StoreError, match="deleted"):
            first.add([document("b")])
        assert Workspace(tmp_path).names() == []

    def test_one_made_anew_is_opened_anew(self, pair: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        first, second = pair
        with first.writing():
            first.add([document("a")])
        with second.writing():
            collection_of(second).remove()
        with dataset(tmp_path) as new_dataset, new_dataset.writing():
            new_dataset.add([document("b")])
            new_dataset.describe("another one")
        with pytest.raises(StoreError, match="recreated"):
            first.add([document("c")])  # into files that nobody would ever see
        with first.writing():
            first.add([document("c")])
        assert first.description == "another one"
        assert ids_found(first, "signal") == ["b", "c"]
        with dataset(tmp_path) as new_dataset:
            assert ids_found(new_dataset, "signal") == ["b", "c"]


def test_a_reader_that_heals_lets_the_writer_on(tmp_path: Path) -> None:
    """A reader that finds the indexes behind brings them up to date, and releases what it took for that."""
    store = opened(tmp_path)
    add(store, corpus(20))
    store.close()
    behind = Collection(tmp_path / "dataset")
    assert not behind._lock.held
    # as if its writer had died before the indexes were written
    behind.truth.upsert([prepare(Document(corpus(1)[0].id, "zebra"))])
    reader = opened(tmp_path)
    assert len(reader.keyword.search("zebra", 5)) == 1
    assert not reader._lock.held
    add(behind, corpus(3, prefix="n"))
    assert [key for key, _ in reader.keyword.search("zebra", 5)] == [1]
    behind.close()
    reader.close()


def test_an_index_is_opened_again_after_many_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tantivy keeps some memory of each commit as long as the index is open."""
    monkeypatch.setattr("pointsman.store.local.keyword.keyword_index._RELOADS", 3)
    with dataset(tmp_path) as writing, dataset(tmp_path) as reading:
        for number in range(12):
            with writing.writing():
                writing.add([document(str(number))])
            for handle in (writing, reading):
                assert len(ids_found(handle, "signal")) == number + 1
        assert all(collection_of(handle).keyword._reloads <= 3 for handle in (writing, reading))
        sound(collection_of(writing))


def test_a_closed_dataset_holds_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither open nor mapped: else its disk could not be unmounted before the garbage collector comes by."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("this system does not list the files that a process maps")
    write_files_early(10, monkeypatch.setattr)
    since_2000 = Range("year", gte=2000)
    gc.collect()
    gc.disable()
    try:
        store = opened(tmp_path)
        for seed in range(3):
            add(store, corpus(100, seed=seed, prefix=f"{seed}-"))
            assert store.keyword.search("rail lamp guard", 10)
            assert store.vectors is not None
            assert store.vectors.search(unit("q"), 10)
            assert len(store.columns.allowed(since_2000)) > 0
        store.close()
        store = opened(tmp_path)  # its columns are mapped now, not computed
        assert len(store.columns.allowed(since_2000)) > 0
        assert len(held_files(tmp_path)) > 3
        store.close()
        wait_until_let_go(tmp_path)
    finally:
        gc.enable()


@pytest.mark.parametrize(("long_write", "segment_count"), [(100, 1), (10_000, 3)])
def test_what_a_long_write_leaves_to_merge_no_later_one_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long_write: int, segment_count: int
) -> None:
    """Small segments are merged once there are eight: with a document added later, or at the end of a long write."""
    monkeypatch.setattr(keyword_index, "_LONG_WRITE", long_write)
    collection = opened(tmp_path)
    with collection.writing():
        for seed in range(3):
            add(collection, corpus(120, seed, f"s{seed}-"))
    folder = tmp_path / "dataset" / "keyword"
    assert len(segments(folder)) == segment_count
    add(collection, corpus(4, prefix="later"))
    assert len(segments(folder)) == segment_count + 1
    assert len(collection.keyword.search(" ".join(WORDS), 1000)) == 364
    sound(collection)
    collection.close()
