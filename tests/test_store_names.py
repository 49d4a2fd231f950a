"""A name stands for a whole dataset or for none, whoever makes, describes and drops it at once."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Self

import pytest

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local import collection as collection_module
from pointsman.store.local import files_and_locks as files
from pointsman.store.local import manifest as manifest_module
from pointsman.store.local.collection import Collection
from pointsman.store.local.files_and_locks import collect_leftovers, directory_aside, steady
from pointsman.store.local.manifest import create_collection, drop_collection
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.tools.errors import CorruptStoreError, LockedError, ReplacedError, UnknownNameError
from store_kit import add, corpus, opened, sound
from two_kit import Two, Workers


def test_three_workers_and_one_name(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")
    three = Workers(tmp_path, seed=5)
    try:
        for number in range(8):
            three.interleave(number)
    finally:
        three.close()
    assert not three.problems, "\n".join(three.problems)
    assert sum(count for outcome, count in three.outcomes.items() if outcome.endswith(" 200")) > 20


@pytest.mark.parametrize("path", ["store", "workspace"])
def test_two_processes_and_one_name(tmp_path: Path, path: str) -> None:
    two = Two(tmp_path, 3, path)
    for number in range(20):
        two.interleave(number)
    two.close()
    assert two.problems == []
    assert sum(count for outcome, count in two.outcomes.items() if outcome.endswith("done")) > 50


class TestMaking:
    def test_it_is_whole_at_once(self, tmp_path: Path) -> None:
        assert create_collection(tmp_path / "x", {"name": "x"})
        assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["documents.sqlite", "manifest.json"]
        assert [path.name for path in tmp_path.iterdir()] == ["x"]

    def test_what_is_there_stays(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        add(store, corpus(3))
        assert not create_collection(tmp_path / "dataset", {"name": "another"})
        assert len(store.truth) == 3
        store.close()

    def test_a_folder_without_a_manifest_becomes_a_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "dataset").mkdir()
        (tmp_path / "dataset" / "writer.lock").touch()
        store = opened(tmp_path)
        add(store, corpus(3))
        sound(store)
        store.close()

    def test_a_file_of_that_name(self, tmp_path: Path) -> None:
        (tmp_path / "dataset").write_text("noise")
        from pointsman.tools.errors import StoreError

        with pytest.raises(StoreError, match="not a directory"):
            opened(tmp_path)


class AtLine:
    """Runs something in between: before one of the lines that a module executes, counted from 0."""

    def __init__(self, line: int, files_of_code: set[str], action: Callable[[], object]) -> None:
        self.line, self.count = line, 0
        self._files_of_code, self._action = files_of_code, action

    def __enter__(self) -> Self:
        self._former = sys.gettrace()
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._former)

    def _enter_function(self, frame: FrameType, _event: str, _argument: object) -> Any:
        return self._enter_line if frame.f_code.co_filename in self._files_of_code else None

    def _enter_line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            if self.count == self.line:
                self._action()
            self.count += 1
        return self._enter_line


def lines_of(module: ModuleType) -> set[str]:
    assert module.__file__ is not None
    return {module.__file__}


def do_at_each_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[[Path], object],
    action: Callable[[Path], object],
    modules: set[str],
) -> int:
    """Do something as often as it has lines, each time with an action in between; return the number of lines."""
    monkeypatch.setattr(files, "_HOLD_SECONDS", 0.0)  # nobody else is there who would release anything
    monkeypatch.setattr(files, "_HEALING_SECONDS", 0.0)
    line = 0
    while True:
        folder = tmp_path / f"{line}"
        folder.mkdir()
        actions = list[Path]()

        def act(folder: Path = folder, actions: list[Path] = actions) -> None:
            actions.append(folder)
            with suppress(LockedError):
                action(folder)

        with AtLine(line, modules, act):
            do(folder)
        if not actions:
            return line
        shutil.rmtree(folder, ignore_errors=True)  # tantivy may still write to an index that was just closed
        line += 1


class TestAnotherProcessInBetween:
    """Whatever another process does between two lines of making or describing, it is no failure of the disk."""

    MAKING = lines_of(files) | lines_of(manifest_module)

    def test_it_collects_leftovers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def make(folder: Path) -> None:
            assert create_collection(folder / "x", {"name": "x"})
            assert [path.name for path in folder.iterdir()] == ["x"]

        assert do_at_each_line(tmp_path, monkeypatch, make, collect_leftovers, self.MAKING) > 50

    def test_it_drops_what_is_made_and_described(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def make(folder: Path) -> None:
            with suppress(LockedError), closing(Collection(folder / "x", about={"name": "x"})) as collection:
                collection.describe(description="new")

        def drop(folder: Path) -> None:
            drop_collection(folder / "x")

        modules = self.MAKING | lines_of(collection_module)
        assert do_at_each_line(tmp_path, monkeypatch, make, drop, modules) > 100


class TestDropping:
    def make(self, path: Path) -> None:
        store = opened(path)
        add(store, corpus(20))
        store.close()

    def damage_manifest(self, path: Path) -> None:
        (path / "manifest.json").write_text("{")

    def damage_documents(self, path: Path) -> None:
        (path / "documents.sqlite").write_bytes(b"noise" * 3000)

    def lose_documents(self, path: Path) -> None:
        (path / "documents.sqlite").unlink()

    def newer_format(self, path: Path) -> None:
        (path / "manifest.json").write_text('{"format": 99}')

    def lose_all(self, path: Path) -> None:
        shutil.rmtree(path)
        path.mkdir()

    def noise(self, path: Path) -> None:
        shutil.rmtree(path)
        (path / "writer.lock" / "deep").mkdir(parents=True)

    def a_file(self, path: Path) -> None:
        shutil.rmtree(path)
        path.write_text("noise")

    def a_link(self, path: Path) -> None:
        shutil.move(path, path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))

    @pytest.mark.parametrize(
        "damage",
        [
            damage_manifest,
            damage_documents,
            lose_documents,
            newer_format,
            lose_all,
            noise,
            a_file,
            a_link,
        ],
    )
    def test_whatever_has_the_name(self, tmp_path: Path, damage: Callable[[TestDropping, Path], None]) -> None:
        self.make(tmp_path)
        damage(self, tmp_path / "dataset")
        assert drop_collection(tmp_path / "dataset")
        assert not os.path.lexists(tmp_path / "dataset")
        assert not drop_collection(tmp_path / "dataset")
        assert (tmp_path / "elsewhere").exists() == (damage is TestDropping.a_link)  # a link goes, not what it names
        self.make(tmp_path)
        with opened(tmp_path).truth._connection() as connection:
            assert connection.execute("SELECT count(*) FROM documents").fetchone() == (20,)

    def test_not_while_another_process_writes(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        add(store, corpus(3))
        with store.writing():
            with pytest.raises(LockedError):
                drop_collection(tmp_path / "dataset")
            with pytest.raises(LockedError):
                opened(tmp_path).remove()
        store.remove()
        assert list(tmp_path.iterdir()) == []

    def test_one_who_has_it_open_is_told(self, tmp_path: Path) -> None:
        self.make(tmp_path)
        store = opened(tmp_path)
        store.keyword.search("rail", 5)
        assert drop_collection(tmp_path / "dataset")
        self.make(tmp_path)
        time.sleep(0.05)  # searches look fifty times a second
        for action in (
            lambda: store.keyword.search("rail", 5),
            lambda: store.keyword.search("rail", 5),  # at once again: not out of the old one
            lambda: store.describe(description="x"),
            lambda: store.delete(["d1"]),
            store.truth._connect,
            store.remove,
        ):
            with pytest.raises(ReplacedError, match="open it again"):
                action()
        store.close()
        reopened_store = opened(tmp_path)
        assert len(reopened_store.truth) == 20
        assert "description" not in reopened_store.manifest
        sound(reopened_store)
        reopened_store.close()

    def test_a_name_too_long_to_be_made_longer(self, tmp_path: Path) -> None:
        directory = tmp_path / ("я" * 120)
        Collection(directory).close()
        assert drop_collection(directory)
        assert list(tmp_path.iterdir()) == []


class TestLeftovers:
    def test_what_the_dead_have_left_is_collected(self, tmp_path: Path) -> None:
        for name in (f".pointsman-{'0' * 32}.new", f".pointsman-{'1' * 32}.removed", ".notes.123.removed"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "documents.sqlite").touch()
        other_names = [".hidden", "notes", ".pointsman-x.new", f".pointsman-{'0' * 32}"]
        for name in other_names:
            (tmp_path / name).mkdir()
        assert collect_leftovers(tmp_path) == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(other_names)

    def test_what_the_living_are_at_stays(self, tmp_path: Path) -> None:
        with directory_aside(tmp_path) as temporary:
            assert collect_leftovers(tmp_path) == 0
            assert temporary.is_dir()
        assert not temporary.exists()

    @pytest.mark.parametrize("drop", [False, True])
    def test_making_and_dropping_collect_them(self, tmp_path: Path, drop: bool) -> None:
        store = opened(tmp_path)
        leftover = tmp_path / f".pointsman-{'0' * 32}.removed"
        leftover.mkdir()
        if drop:
            store.remove()
        else:
            store.close()
            Collection(tmp_path / "another").close()
        assert not leftover.exists()


def test_who_opens_waits_for_who_renames(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with steady(tmp_path / "x") as first, steady(tmp_path / "x") as second:
        assert first
        assert second
    with steady(tmp_path / "nothing") as is_there:
        assert not is_there


def test_damage_is_no_other_dataset(tmp_path: Path) -> None:
    """What the others of a race see as another dataset is damage where nobody has raced."""
    for name in ("one", "two"):
        Collection(tmp_path / name).close()
    shutil.copy(tmp_path / "two" / "documents.sqlite", tmp_path / "one" / "documents.sqlite")
    with pytest.raises(CorruptStoreError, match="different datasets"):
        Collection(tmp_path / "one")


def absent_at_first(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """The first lock of a directory finds none, as when it is made a moment later, and may be deleted in the next."""
    lock_descriptor, asked = files._locked_descriptor, list[Path]()

    def find_none_at_first(path: Path, operation: int) -> int | None:
        if path == directory:
            asked.append(path)
        return None if asked == [path] else lock_descriptor(path, operation)

    monkeypatch.setattr(files, "_locked_descriptor", find_none_at_first)


def test_description_is_only_written_into_a_directory_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pointsman.open(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails", description="before").add([Document("1", "signal")])
        absent_at_first(monkeypatch, workspace.path / "datasets" / "rails")
        with pytest.raises(UnknownNameError, match="rails"):
            workspace.backend.describe("rails", "after")
        assert [record.description for record in workspace.backend.datasets()] == ["before"]


def test_collection_is_only_opened_in_a_directory_that_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Collection(tmp_path / "rails").close()
    held, opened_while_held, steady = list[bool](), list[bool](), files.steady

    @contextmanager
    def absent_once(directory: Path, *, alone: bool = False) -> Iterator[bool]:
        with steady(directory, alone=alone) as exists:
            held.append(exists and bool(held))
            yield held[-1]

    def open_truth(path: Path, *, create: bool = True) -> WritableTruth:
        opened_while_held.append(held[-1])
        return WritableTruth(path, create=create)

    monkeypatch.setattr(files, "steady", absent_once)
    monkeypatch.setattr(manifest_module, "WritableTruth", open_truth)
    with closing(Collection(tmp_path / "rails")) as collection:
        assert len(collection.truth) == 0
    assert held[0] is False
    assert opened_while_held == [True]
