"""The columns of metadata as a file: opened without reading metadata, kept in step, and never trusted when damaged."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pointsman.store.local.arrays_file import check_arrays
from pointsman.store.local.columns import followed_columns
from pointsman.store.local.columns.followed_columns import COLUMNS
from pointsman.store.local.index_status import compare
from pointsman.store.local.truth.truth_rows import Truth
from pointsman.values.filters import And, Equals, Exists, Filter, In, Not, Range, StartsWith
from pointsman.values.types import Document
from store_kit import add, corpus, opened, sound

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection

FILTERS: list[Filter] = [
    Equals("number", 7),
    Range("year", gte=2000, lt=2010),
    In("tags", ("a", "c")),
    Equals("tags", "b"),
    Equals("rare", True),
    Equals("big", 2**70 + 1),
    Exists("late"),
    Not(Exists("tags")),
    Equals("long", "x" * 200),
    StartsWith("long", "x" * 50),
    And((Range("number", gte=3), Not(Equals("rare", True)))),
]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_columns, "_COLUMNS_AGAIN", 20)


def with_odd_values(documents: list[Document]) -> list[Document]:
    """Add values that columns keep in special ways to every third document."""
    odd = {"big": 2**70 + 1, "long": "x" * 200, "late": "é \ud83d\ude00", "mixed": [1, "1", True, 2.5]}
    return [
        Document(document.id, document.text, {**document.metadata, **(odd if number % 3 == 0 else {})})
        for number, document in enumerate(documents)
    ]


def assert_filters_agree_with_documents(store: Collection) -> None:
    store.refresh()
    metadata = dict(store.truth.metadata())
    for condition in FILTERS:
        expected = {key for key, values in metadata.items() if condition.matches(values)}
        assert set(store.columns.allowed(condition).tolist()) == expected, filter


def test_columns_are_opened_without_reading_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    add(store, with_odd_values(corpus(100)))
    store.close()
    store = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Truth, "metadata", None)
        assert len(store.columns.allowed(Equals("number", 7))) == 1
    assert_filters_agree_with_documents(store)
    sound(store)
    store.close()


def test_a_long_write_leaves_few_changes_to_replay(tmp_path: Path) -> None:
    store = opened(tmp_path)

    def rows_in_file() -> int:
        return store.columns.file.numbers().get("rows", 0)

    documents = corpus(240)
    with store.writing():
        for start in range(0, 200, 10):
            add(store, documents[start : start + 10])
        assert 0 < rows_in_file() < 200
    assert rows_in_file() == 200
    with store.writing():
        add(store, documents[200:215])
    assert rows_in_file() == 200  # too few
    with store.writing():
        add(store, documents[215:])
    assert rows_in_file() == 240
    assert_filters_agree_with_documents(store)
    sound(store)
    store.close()


def test_a_small_dataset_has_no_file_of_columns(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(10))
    assert len(store.columns.allowed(Equals("number", 7))) == 1
    assert not (tmp_path / "dataset" / COLUMNS).exists()
    store.close()


@pytest.mark.parametrize("seed", range(4))
def test_changes_after_the_file_was_written_are_replayed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    contents = set()
    for _ in range(8):
        store = opened(tmp_path)
        for _ in range(chance.randrange(1, 4)):
            documents = with_odd_values(corpus(chance.randrange(1, 40), chance.randrange(99), chance.choice("de")))
            add(store, documents)
            store.delete([f"{chance.choice('de')}{chance.randrange(40)}" for _ in range(chance.randrange(5))])
            if chance.random() < 0.5:
                assert_filters_agree_with_documents(store)
        store.close()
        path = tmp_path / "dataset" / COLUMNS
        contents.add(path.read_bytes() if path.exists() else b"")
        other_collection = opened(tmp_path)
        assert_filters_agree_with_documents(other_collection)
        other_collection.close()
    assert len(contents) > 2


def flip_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [flip_bit, lambda content: content[:-40], lambda _: b"", lambda _: b"PMCOLUMN" + b"\xff" * 100],
    ids=["flipped", "cut", "empty", "nonsense"],
)
def test_a_damaged_file_is_not_used_and_is_written_again(
    tmp_path: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    add(store, with_odd_values(corpus(100)))
    store.close()
    path = tmp_path / "dataset" / COLUMNS
    path.write_bytes(damage(path.read_bytes()))
    store = opened(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert_filters_agree_with_documents(store)
    assert "metadata is read from the documents" in caplog.text
    add(store, corpus(1, prefix="new"))
    check_arrays(path)
    sound(store)
    store.close()


def test_verifying_writes_a_damaged_file_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, with_odd_values(corpus(100)))
    path = tmp_path / "dataset" / COLUMNS
    path.write_bytes(flip_bit(path.read_bytes()))
    indexes = store.keyword, store.columns, store.vectors
    problems = compare(tmp_path / "dataset", store.truth, *indexes).problems
    assert f"{COLUMNS} is damaged: its checksum is wrong" in problems
    sound(store)
    check_arrays(path)
    store.close()


def test_a_file_of_another_dataset_or_of_a_later_state_is_not_used(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = opened(tmp_path / name)
        add(store, with_odd_values(corpus(100, seed=len(name), prefix=name)))
        store.close()
    first, two = (tmp_path / name / "dataset" for name in ("one", "two"))
    shutil.copy(two / COLUMNS, first / COLUMNS)
    store = opened(tmp_path / "one")
    assert_filters_agree_with_documents(store)
    store.close()
    shutil.copytree(tmp_path / "two", tmp_path / "earlier")
    store = opened(tmp_path / "two")
    add(store, corpus(90, seed=5, prefix="x"))
    store.close()
    shutil.copy(two / COLUMNS, tmp_path / "earlier" / "dataset" / COLUMNS)
    store = opened(tmp_path / "earlier")
    assert_filters_agree_with_documents(store)
    store.close()


def test_rebuilding_writes_the_file_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, with_odd_values(corpus(100)))
    path = tmp_path / "dataset" / COLUMNS
    path.write_bytes(flip_bit(path.read_bytes()))
    store.rebuild()
    sound(store)
    assert_filters_agree_with_documents(store)
    store.close()


def test_a_writer_counts_only_what_it_has_written_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each document added to a large dataset would count thousands; the file is written when it was before."""
    store = opened(tmp_path)
    add(store, corpus(100))
    counts: list[int] = []
    changed_since = type(store.truth).changed_since

    def count_changes(truth: Any, seq: int, most: int) -> int:
        counts.append(changed_since(truth, seq, most))
        return counts[-1]

    monkeypatch.setattr(type(store.truth), "changed_since", count_changes)
    file = tmp_path / "dataset" / COLUMNS
    content, documents = file.read_bytes(), corpus(160)
    for number in range(100, 148):
        add(store, documents[number : number + 1])
    assert max(counts[1:]) == 1
    for n in range(30):  # the same one again and again
        add(store, [Document("again", "the same", {"n": n})])
    assert file.read_bytes() == content, "49 documents have changed, fewer than half of 100"
    add(store, documents[148:149])
    assert file.read_bytes() != content
    store.close()
