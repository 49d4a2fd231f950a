"""Becoming the writer for a while: taking turns between threads and processes, and dying in between."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman import Dataset, Document, Workspace
from pointsman.errors import LockedError, StoreError, UnknownNameError
from pointsman.models.scripted import HashingEmbedder
from pointsman.store.backend import DatasetRecord
from pointsman.store.local.collection import Collection
from pointsman.store.prepared import prepare
from store_kit import add, corpus, opened, sound

TURNS = Path(__file__).with_name("store_turns.py")


def dataset(path: Path, name: str = "notes") -> Dataset:
    """A dataset of this workspace, opened a second time within this process: for the lock, another process's."""
    return Workspace(path, embedder=HashingEmbedder()).dataset(name)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Dataset, Dataset]]:
    one, other = dataset(tmp_path), dataset(tmp_path)
    yield one, other
    one.close()
    other.close()


def document(id_: str, text: str = "rail signal") -> Document:
    return Document(id_, f"{text} {id_}")


def found(where: Dataset, text: str) -> list[str]:
    """The ids that both lists agree to hold for a word."""
    by_words = {hit.id for hit in where.retriever("bm25").retrieve(text, 100)}
    near = {hit.id for hit in where.retriever("vector").retrieve(text, 1000)}
    assert by_words <= near
    return sorted(by_words)


class TestBlock:
    def test_others_may_write_after_it(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair
        for number in range(5):
            for who in pair:
                with who.writing():
                    assert who.add([document(f"{number}-{pair.index(who)}")]).added == 1
            assert len(found(one, "signal")) == len(found(other, "signal")) == 2 * number + 2
        for who in pair:
            sound(who._local.collection)

    def test_without_it_a_write_does_not_wait_and_lets_others_write_after_it(
        self, pair: tuple[Dataset, Dataset]
    ) -> None:
        one, other = pair
        one.add([document("a")])
        assert other.add([document("b")]).added == 1
        assert one.delete("b") == 1
        other.rebuild()
        with other.writing(), pytest.raises(LockedError, match="being written to"):
            one.add([document("c")])
        assert one.add([document("c")]).added == 1
        assert found(other, "signal") == ["a", "c"]

    def test_all_that_writes_works_inside(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair
        with one.writing():
            one.add([document("a"), document("b")])
            assert one.delete(["a"]) == 1
            one.rebuild()
            assert found(one, "signal") == ["b"]
            with pytest.raises(LockedError):
                other.delete(["b"])
        assert found(other, "signal") == ["b"]
        with other.writing():
            assert other.delete("b") == 1
        assert found(one, "signal") == []

    def test_a_block_in_a_block(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair
        with one.writing():
            with one.writing(), one.writing(wait=5):
                one.add([document("a")])
            with pytest.raises(LockedError):
                other.add([document("b")])
        assert other.add([document("b")]).added == 1

    def test_an_error_inside_releases_too(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair

        def fail() -> None:
            with one.writing():
                one.add([document("a")])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert other.add([document("b")]).added == 1
        assert found(other, "signal") == ["a", "b"]

    def test_dropping_inside(self, tmp_path: Path) -> None:
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes")
            with notes.writing():
                notes.add([document("a")])
                workspace.drop("notes")
            assert workspace.names() == []
            assert workspace.dataset("notes").add([document("b")]).added == 1

    def test_closing_inside(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair
        with one.writing():
            one.add([document("a")])
            one.close()
        assert other.add([document("b")]).added == 1

    def test_readers_keep_what_they_have_in_memory(self, pair: tuple[Dataset, Dataset]) -> None:
        one, _ = pair
        with one.writing():
            one.add([document(str(number)) for number in range(50)])
        found(one, "signal")
        keyword, vectors = one._local.collection.keyword, one._local.collection.vectors
        assert vectors is not None
        index, base = keyword._index, vectors._state
        assert index is not None
        with one.writing():
            one.add([document("new")])
        assert keyword._index is index
        assert keyword._writer is None
        assert vectors._state is not None
        assert base is not None
        assert vectors._state.base is base.base
        assert "new" in found(one, "signal")


class TestWaiting:
    def test_it_waits_for_another_process(self, tmp_path: Path) -> None:
        with dataset(tmp_path) as one, dataset(tmp_path) as other:
            inside, done = threading.Event(), threading.Event()

            def write() -> None:
                with one.writing():
                    one.add([document("a")])
                    inside.set()
                    done.wait(60)

            thread = threading.Thread(target=write)
            thread.start()
            assert inside.wait(60)
            began = time.monotonic()
            with pytest.raises(LockedError, match="being written to"), other.writing(wait=0.2):
                pytest.fail("it is locked")
            assert time.monotonic() - began >= 0.2
            threading.Timer(0.1, done.set).start()
            with other.writing(wait=60):
                assert other.add([document("b")]).added == 1
            thread.join()
            assert found(one, "signal") == ["a", "b"]

    def test_threads_are_inside_together_and_the_last_one_releases(self, pair: tuple[Dataset, Dataset]) -> None:
        one, other = pair
        barrier, errors = threading.Barrier(4), []

        def write(number: int) -> None:
            try:
                with one.writing(wait=60):
                    barrier.wait(60)  # all four are inside
                    one.add([document(f"t{number}")])
                    if number:
                        return
                    time.sleep(0.05)
                    with pytest.raises(LockedError):
                        other.add([document("b")])
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert other.add([document("b")]).added == 1
        assert len(found(one, "signal")) == 5

    def test_who_writes_without_a_pause_lets_others_in(self, pair: tuple[Dataset, Dataset]) -> None:
        """Threads whose blocks overlap for ever would keep another process out if they did not line up behind it."""
        one, other = pair
        stop, entered, errors = threading.Event(), threading.Condition(), []
        blocks = 0

        def write(name: str) -> None:
            nonlocal blocks
            number = 0
            try:
                while not stop.is_set():
                    number += 1
                    with one.writing(wait=60):
                        one.add([document(f"{name}{number}")])
                        with entered:
                            blocks += 1
                            mine = blocks
                            entered.notify_all()
                            entered.wait_for(lambda: blocks > mine or stop.is_set(), 0.2)  # noqa: B023  # ours
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        try:
            for number in range(5):
                with other.writing(wait=20):
                    other.add([document(f"b{number}")])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors
        assert other.delete([f"b{number}" for number in range(5)]) == 5
        sound(other._local.collection)

    def test_a_block_in_a_block_does_not_line_up_behind_who_waits_for_its_end(
        self, pair: tuple[Dataset, Dataset]
    ) -> None:
        one, other = pair

        def write() -> None:
            with other.writing(wait=60):
                other.add([document("b")])

        with one.writing():
            one.add([document("a")])
            thread = threading.Thread(target=write)
            thread.start()
            while not one._local.collection._lock.wanted:
                time.sleep(0.005)
            with one.writing(wait=5):
                one.add([document("c")])
        thread.join()
        assert found(one, "signal") == ["a", "b", "c"]

    def test_what_others_have_indexed_is_not_indexed_again(
        self, pair: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = pair
        with one.writing():
            one.add([document("a")])
        with other.writing():
            other.add([document("b")])

        def again(*_: object) -> None:
            pytest.fail("it is in the index")

        monkeypatch.setattr(one._local.collection.keyword, "_write", again)
        with one.writing():
            assert one.delete(["unknown"]) == 0
        assert found(one, "signal") == ["a", "b"]

    def test_processes_take_turns(self, tmp_path: Path) -> None:
        names = ["a", "b", "c"]
        command = [sys.executable, "-W", "error", str(TURNS), str(tmp_path)]
        processes = [subprocess.Popen([*command, name, "20"]) for name in names]
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        with dataset(tmp_path) as notes:
            assert sorted(notes.ids()) == sorted(f"{name}{number}" for name in names for number in range(20))
            assert len(found(notes, "signal")) == 60
            sound(notes._local.collection)

    def test_who_dies_inside_or_in_line_holds_nobody_up(self, tmp_path: Path) -> None:
        with dataset(tmp_path) as notes, notes.writing():
            notes.add([document("first")])
        command = [sys.executable, "-W", "error", str(TURNS), str(tmp_path)]
        for number in range(3):
            processes = [
                subprocess.Popen([*command, f"{name}{number}-", "1000"], stdout=subprocess.PIPE, text=True)
                for name in "ab"
            ]
            acknowledged = []
            for process in processes:
                assert process.stdout is not None
                acknowledged += [process.stdout.readline().strip() for _ in range(2)]
            for process in processes:
                process.kill()
            for process in processes:
                assert process.stdout is not None
                acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
                process.stdout.close()
                process.wait()
            with dataset(tmp_path) as notes:
                with notes.writing(wait=30):
                    notes.add([document(f"after{number}")])
                ids = set(notes.ids())
                assert set(acknowledged) <= ids
                assert f"after{number}" in ids
                sound(notes._local.collection)


class TestClosedMeanwhile:
    """Closing waits for the thread that writes, which must not wait for what closing holds."""

    @pytest.mark.parametrize("how", ["close", "follow"])
    def test_by_another_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        monkeypatch.setattr("pointsman.dataset.documents.BATCH", 2)
        notes, begun, closing = dataset(tmp_path), threading.Event(), threading.Event()

        def documents() -> Iterator[Document]:
            yield from (document("a"), document("b"))
            begun.set()
            assert closing.wait(60)
            time.sleep(0.1)  # until the other thread waits
            yield from (document("c"), document("d"))

        added = []
        thread = threading.Thread(target=lambda: added.append(notes.add(documents()).added), daemon=True)
        thread.start()
        assert begun.wait(60)
        closing.set()
        if how == "close":
            notes.close()
        else:
            notes.follow(DatasetRecord("notes", "", "hybrid", "another"))
        thread.join(60)
        assert added == [4]
        with dataset(tmp_path) as again:
            assert sorted(again.ids()) == list("abcd")
            sound(again._local.collection)
        notes.close()


class TestGoneMeanwhile:
    def test_a_deleted_dataset_is_not_written_to(self, pair: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        one, other = pair
        with one.writing():
            one.add([document("a")])
        with other.writing():
            other._local.collection.remove()
        with pytest.raises(UnknownNameError, match="notes"), one.writing():
            pytest.fail("it is gone")
        with pytest.raises(StoreError, match="deleted"):
            one.add([document("b")])
        assert Workspace(tmp_path).names() == []

    def test_one_made_anew_is_opened_anew(self, pair: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        one, other = pair
        with one.writing():
            one.add([document("a")])
        with other.writing():
            other._local.collection.remove()
        with dataset(tmp_path) as again, again.writing():
            again.add([document("b")])
            again.describe("another one")
        with pytest.raises(StoreError, match="recreated"):
            one.add([document("c")])  # into files that nobody would ever see
        with one.writing():
            one.add([document("c")])
        assert one.description == "another one"
        assert found(one, "signal") == ["b", "c"]
        with dataset(tmp_path) as again:
            assert found(again, "signal") == ["b", "c"]


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
    monkeypatch.setattr("pointsman.store.local.keyword._RELOADS", 3)
    with dataset(tmp_path) as writing, dataset(tmp_path) as reading:
        for number in range(12):
            with writing.writing():
                writing.add([document(str(number))])
            for one in (writing, reading):
                assert len(found(one, "signal")) == number + 1
        assert all(one._local.collection.keyword._reloads <= 3 for one in (writing, reading))
        sound(writing._local.collection)
