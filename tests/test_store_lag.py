"""An answer out of a store that is behind says so, and what one process heals all the others see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pointsman.store.local import index_status
from pointsman.store.local.collection import Collection
from pointsman.store.local.keyword import keyword_index
from pointsman.values.types import Document
from store_kit import add, corpus, opened, sound

if TYPE_CHECKING:
    from pointsman.store.local.keyword.term_codes import TermCodes

WORKER = Path(__file__).with_name("lag_worker.py")


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Path:
    store = opened(tmp_path)
    add(store, corpus(300))
    store.close()
    return tmp_path


def damage(path: Path, damage_kind: str) -> None:
    """Take the keyword index away, or spoil it."""
    index = path / "dataset" / "keyword"
    if damage_kind == "missing":
        shutil.rmtree(index)
    else:
        for file in index.glob("*.idx"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 0x55
            (copy := file.with_suffix(".aside")).write_bytes(content)
            copy.replace(file)  # the file that is open stays: who truncates what is mapped ends the process


@pytest.mark.parametrize("damage_kind", ["missing", "damaged"])
def test_while_another_builds_the_index(
    dataset_folder: Path, damage_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postings, build_started, go_on = keyword_index._postings, threading.Event(), threading.Event()

    def slowly(key: int, document: Document, codes: TermCodes) -> object:
        build_started.set()
        assert go_on.wait(60)
        return postings(key, document, codes)

    damage(dataset_folder, damage_kind)
    monkeypatch.setattr(keyword_index, "_postings", slowly)
    healer: list[Collection] = []
    thread = threading.Thread(target=lambda: healer.append(opened(dataset_folder)))
    thread.start()
    assert build_started.wait(60)
    reader = opened(dataset_folder)
    for _ in range(3):
        assert reader.keyword.search("rail lamp guard", 5) == []
        lag = reader.lagging()
        assert lag is not None
        assert "keyword index of 'dataset' is not there yet" in lag
        assert reader.lagging(words=False) is None
    go_on.set()
    thread.join()
    assert len(reader.keyword.search("rail lamp guard", 5)) == 5
    assert reader.lagging() is None
    for store in (reader, *healer):
        sound(store)
        store.close()


def test_who_has_the_index_open_goes_on_in_it(dataset_folder: Path) -> None:
    reader = opened(dataset_folder)
    answer = reader.keyword.search("rail lamp guard", 5)
    for damage_kind in ("damaged", "missing"):
        damage(dataset_folder, damage_kind)
        assert reader.keyword.search("rail lamp guard", 5) == answer
        assert reader.lagging() is None
    add(reader, [Document("new", "tunnel")])
    assert reader.lagging() is None
    sound(reader)
    reader.close()
    reopened_store = opened(dataset_folder)
    assert len(reopened_store.keyword.search("tunnel", 1000)) > 0
    sound(reopened_store)
    reopened_store.close()


def test_behind_for_longer_than_a_moment(dataset_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = opened(dataset_folder), opened(dataset_folder)
    assert reader.lagging() is None
    monkeypatch.setattr(Collection, "_derive", lambda _: None)
    add(writer, corpus(7, prefix="n"))
    reader.keyword.search("rail", 5)
    assert reader.lagging() is None  # its writer may be about to
    monkeypatch.setattr(index_status, "_LAG_SECONDS", 0.0)
    lag = reader.lagging()
    assert lag is not None
    assert "keyword index of 'dataset' lacks the last 7 changes" in lag
    monkeypatch.undo()
    writer.close()
    add(reader, [Document("last", "rail")])
    assert reader.lagging() is None
    sound(reader)
    reader.close()


def test_a_clock_that_jumps(dataset_folder: Path) -> None:
    """Nobody goes by the age of a file alone."""
    writer, reader = opened(dataset_folder), opened(dataset_folder)
    for number, moment in enumerate((10**9, 0, 2**31, 10**9)):
        add(writer, [Document(f"new{number}", f"tunnel{number}")])
        writer.describe(description=f"{number}")
        for path in dataset_folder.rglob("*"):
            os.utime(path, (moment, moment))
        assert len(reader.keyword.search(f"tunnel{number}", 5)) == 1
        reopened_store = opened(dataset_folder)
        assert reopened_store.manifest["description"] == f"{number}"
        sound(reopened_store)
        reopened_store.close()
    for store in (writer, reader):
        sound(store)
        store.close()


def test_an_empty_dataset_is_not_behind(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.lagging() is None
    add(store, corpus(2))
    store.delete(["d0", "d1"])
    assert store.lagging() is None
    store.close()


@pytest.fixture
def racers(dataset_folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-W", "error", str(WORKER), str(dataset_folder)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    yield processes
    for process in processes:
        process.communicate()


@pytest.mark.parametrize("damage_kind", ["missing", "damaged"])
def test_a_race_of_three_processes(dataset_folder: Path, damage_kind: str, racers: list[subprocess.Popen[str]]) -> None:
    """All three find the index unusable at once; every answer is full or says that it is not, and soon all are full."""
    for number in range(4):
        damage(dataset_folder, damage_kind)
        for process in racers:
            assert process.stdin is not None
            process.stdin.write(f"{time.monotonic() + 0.2}\n")
            process.stdin.flush()
        for process in racers:
            assert process.stdout is not None
            silent, last = process.stdout.readline().split()
            assert silent == "0", f"round {number}: {silent} answers without a hit that say nothing"
            assert last == "5", f"round {number}: in the end {last} hits"
    store = opened(dataset_folder)
    sound(store)
    store.close()
