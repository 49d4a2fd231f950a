"""A large base has its vectors rounded, and answers as if it had them: exact scores are read from the truth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pointsman.store.local.truth import truth_rows
from pointsman.store.local.truth.truth_rows import Truth
from pointsman.store.local.vectors import vector_index, vector_state
from pointsman.store.local.vectors.vector_rows import ExactRows, RoundedRows, among_best, rounded_rows
from pointsman.tools.errors import CorruptStoreError
from pointsman.values.filters import Range
from store_kit import DIMENSIONS, add, corpus, opened, scan_codes_early, sound, unit, units

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection

COUNT = 400
ALL = Range("number", gte=0)
SOME = Range("number", lt=300)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_codes_early(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    collection = opened(tmp_path)
    add(collection, corpus(COUNT))
    yield collection
    collection.close()


def state(store: Collection) -> vector_state.VectorState:
    assert store.vectors is not None
    return store.vectors._current()


def answers(store: Collection) -> list[object]:
    assert store.vectors is not None
    keys = list(range(1, COUNT, 7))
    return [
        answer
        for seed in range(8)
        for answer in (
            *(store.vectors.search(unit(seed), 12, condition) for condition in (None, ALL, SOME)),
            store.vectors.query(unit(seed), repeatable=True).search(12),
            store.vectors.score(unit(seed), keys),
            store.vectors.query(unit(seed), store.vectors.subset(np.arange(1, COUNT, 2, dtype=np.int64))).search(12),
        )
    ]


def in_truth(tmp_path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(tmp_path / "dataset" / "documents.sqlite")) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def test_answers_are_those_of_a_base_that_has_its_vectors_as_they_are(
    store: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded_answers = answers(store)
    assert isinstance(state(store).base.rows, RoundedRows)
    monkeypatch.setattr(vector_index, "_ROUNDED_ROWS", COUNT)
    twin = opened(tmp_path / "twin")
    add(twin, corpus(COUNT))
    assert isinstance(state(twin).base.rows, ExactRows)
    exact_answers = answers(twin)
    assert rounded_answers == exact_answers
    assert twin.vectors is not None
    assert store.vectors is not None
    assert twin.vectors.vectors(40).tolist() == store.vectors.vectors(40).tolist()
    assert twin.vectors.of([9, 3]).tolist() == store.vectors.of([9, 3]).tolist()
    twin.close()


@pytest.mark.usefixtures("store")
def test_a_vector_takes_a_byte_for_each_number(tmp_path: Path) -> None:
    size = (tmp_path / "dataset" / "vectors.bin").stat().st_size
    assert size < COUNT * (DIMENSIONS + 8 + 4) + 1000 < COUNT * (4 * DIMENSIONS)


def test_rounded_rows_are_off_by_less_than_their_errors() -> None:
    random = np.random.default_rng(2)
    matrix = random.standard_normal((3000, 64)).astype(np.float32) + 9 * np.eye(64, dtype=np.float32)[5]
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    centre = matrix.mean(axis=0)
    rows, all_rows = RoundedRows(np.arange(3000), centre, *rounded_rows(matrix, centre), 1, NoReader()), np.arange(3000)
    assert np.abs(rows.approximations(all_rows) - matrix).max() <= rows.steps.max() * 0.501
    for vector in matrix[:50]:
        exact = matrix @ vector
        for scores in (rows.dots(all_rows, vector), rows.scan(vector)):
            errors = rows.errors(all_rows)
            assert (np.abs(scores - exact) <= errors).all()
            assert 0 < np.abs(scores - exact).max() <= 0.01


class NoReader:
    """Reads nothing, as if all vectors were gone."""

    def vectors_of(self, keys: Sequence[int], seq: int) -> tuple[list[int], bytes]:
        return [], b""


def test_equal_vectors_are_all_candidates() -> None:
    matrix = np.repeat(unit("same")[None], 90, axis=0)
    centre = np.zeros(DIMENSIONS, np.float32)
    rows, all_rows = RoundedRows(np.arange(90), centre, *rounded_rows(matrix, centre), 1, NoReader()), np.arange(90)
    best, _ = among_best(rows, all_rows, rows.dots(all_rows, matrix[0]), matrix[0], 3, 0.0)
    assert best.tolist() == all_rows.tolist()


def test_a_vector_that_another_process_has_just_replaced_or_removed_is_taken_as_rounded(
    store: Collection, tmp_path: Path
) -> None:
    query = units(corpus(COUNT))[7]
    assert store.vectors is not None
    old_state = store.vectors.query(query)
    old_cosines = dict(old_state.search(COUNT))
    second = opened(tmp_path)
    add(second, corpus(20, seed=8))  # the first twenty
    second.delete(["d20", "d21"])
    second.close()
    new_cosines = dict(old_state.search(COUNT))
    assert new_cosines.keys() == old_cosines.keys()
    assert [new_cosines[key] for key in range(23, COUNT)] == [old_cosines[key] for key in range(23, COUNT)]
    assert new_cosines[8] != old_cosines[8]
    assert list(new_cosines.values()) == pytest.approx(list(old_cosines.values()), abs=0.02)
    store.refresh()
    ((key, cosine),) = store.vectors.search(units(corpus(20, seed=8))[7], 1)
    assert key == 8
    assert cosine == pytest.approx(1.0)
    assert not {21, 22} & {key for key, _ in store.vectors.search(query, COUNT)}
    sound(store)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM vectors WHERE key = 8", "the vector of key 8 is not there"),
        ("UPDATE vectors SET vector = zeroblob(length(vector)) WHERE key = 8", "key 8 does not match its checksum"),
        ("UPDATE vectors SET vector = zeroblob(9) WHERE key = 8", "key 8 does not match its checksum"),
        (
            "UPDATE vectors SET vector = (SELECT vector FROM vectors v WHERE v.key = 9) WHERE key = 8",
            "key 8 does not match its checksum",
        ),
    ],
)
def test_a_lost_or_damaged_vector_is_reported(store: Collection, tmp_path: Path, statement: str, message: str) -> None:
    in_truth(tmp_path, statement)
    assert store.vectors is not None
    assert len(store.vectors.search(units(corpus(COUNT))[300], 1)) == 1  # it is not among the best here
    with pytest.raises(CorruptStoreError, match=message):
        store.vectors.search(units(corpus(COUNT))[7], 1)


def test_a_base_that_becomes_small_has_its_vectors_again(store: Collection, tmp_path: Path) -> None:
    store.delete([f"d{number}" for number in range(COUNT - 40)])
    assert isinstance(state(store).base.rows, ExactRows)
    assert not state(store).dead
    sound(store)
    store.close()
    second = opened(tmp_path)
    documents = corpus(COUNT)[-40:]
    assert second.vectors is not None
    found = second.vectors.of(list(second.truth.keys([document.id for document in documents]).values()))
    assert found.tolist() == units(documents).tolist()
    second.close()


def test_a_large_base_of_an_earlier_version_is_searched_until_it_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_ROUNDED_ROWS", COUNT)
    store = opened(tmp_path)
    add(store, corpus(COUNT))
    store.close()
    monkeypatch.setattr(vector_index, "_ROUNDED_ROWS", 50)
    second = opened(tmp_path)
    assert isinstance(state(second).base.rows, ExactRows)
    exact_answers = answers(second)
    add(second, corpus(150, seed=3, prefix="more"))
    assert isinstance(state(second).base.rows, RoundedRows)
    second.delete([f"more{number}" for number in range(150)])
    assert answers(second) == exact_answers
    sound(second)
    second.close()


def test_vectors_of_many_keys_in_any_order(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth_rows, "_PAGE", 30)
    keys = np.random.default_rng(4).permutation(np.arange(1, COUNT + 1)).tolist()
    read_keys, content = store.truth.vectors_of(keys, store.truth.sequence())
    assert read_keys == sorted(keys)
    assert np.frombuffer(content, np.float32).reshape(COUNT, -1).tolist() == units(corpus(COUNT)).tolist()
    rows = np.array(keys) - 1
    assert state(store).base.rows.exact(rows).tolist() == units(corpus(COUNT))[rows].tolist()


def test_many_vectors_are_read_as_one_row(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each row of an answer, Python lets go of its lock, and other threads may keep it for milliseconds."""
    monkeypatch.setattr(Truth, "_rows", None)
    assert len(store.truth.vectors_of(range(1, 301), 0)[0]) == 300
