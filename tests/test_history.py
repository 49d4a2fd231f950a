"""What a dataset keeps of its former versions: every state of the last days can be restored, to the byte."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pointsman.errors import UnmetNeedError
from pointsman.store import history
from pointsman.store.base import EmptyStore
from pointsman.store.local.store import LocalStore
from pointsman.types import Document

State = list[tuple[str, str, dict[str, Any], bytes | None]]


def store_at(folder: Path) -> LocalStore:
    return LocalStore(folder, {"name": "notes", "description": "", "indexing_technique": "hybrid"})


def state_of(store: LocalStore) -> State:
    """Every document with its metadata and vector, in the order of their keys."""
    documents = list(store.documents())
    keys = store.keys([document.id for document in documents])
    vectors = {id_: store.vectors([key]) for id_, key in keys.items()}
    return [
        (
            document.id,
            document.text,
            dict(document.metadata),
            vectors[document.id][0].tobytes() if len(vectors[document.id]) else None,
        )
        for document in documents
    ]


def change(store: LocalStore, chance: random.Random) -> None:
    """Add, replace, edit or delete some documents, or change a note."""
    ids = [f"d{chance.randrange(12)}" for _ in range(chance.randrange(1, 4))]
    documents = [Document(id_, f"text {chance.randrange(99)} of {id_}") for id_ in dict.fromkeys(ids)]
    match chance.randrange(6):
        case 0:
            store.delete(ids)
        case 1:
            stored_ids = list(store.keys(ids))
            store.set_metadata({id_: {"year": chance.randrange(2000, 2030)} for id_ in stored_ids})
        case 2:
            store.write(documents)
        case 3:
            store.annotate(mood=str(chance.randrange(9)))
        case _:
            rows = np.array([[chance.gauss(0, 1) for _ in range(8)] for _ in documents], np.float32)
            store.write(documents, rows, "hash")


@pytest.mark.parametrize("seed", range(4))
def test_every_kept_state_can_be_restored_in_any_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = store_at(tmp_path / "notes")
    for _ in range(10):
        change(store, chance)
    store.keep_versions(90)
    states: dict[int, State] = {}
    for _ in range(60):
        states[store.statistics().sequence] = state_of(store)
        change(store, chance)
    states[store.statistics().sequence] = state_of(store)
    assert store.verify().problems == ()
    copy = tmp_path / "copy"
    store.collection.save(copy)
    past, current = store_at(copy), store.statistics().sequence
    for sequence in chance.sample(sorted(states), len(states)):
        with past.collection.writer():
            past.collection.truth.become(store.collection.truth.states(current, sequence), {})
        current = sequence
        assert state_of(past) == states[sequence]
        assert past.verify().problems == ()
    past.close()
    store.close()


def test_former_notes_go_back_one_change_at_a_time(tmp_path: Path) -> None:
    store = store_at(tmp_path / "notes")
    store.annotate(mood="calm")
    store.keep_versions(90)
    store.annotate(mood="glad", place="here")
    store.annotate(mood="tired")
    notes = store.collection.truth.former_notes()
    assert notes[0] == {"mood": "tired", "place": "here"}
    assert {"mood": "glad", "place": "here"} in notes
    assert notes[-1] == {"mood": "calm"}
    store.close()


def test_plain_dataset_keeps_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path / "notes")
    store.write([Document("a", "one")])
    store.write([Document("a", "two")])
    with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "history" not in names
    assert store.statistics().recorded_state is None
    store.close()


def test_switching_off_deletes_what_was_kept(tmp_path: Path) -> None:
    store = store_at(tmp_path / "notes")
    store.keep_versions(30)
    store.write([Document("a", "one")])
    store.write([Document("a", "two")])
    store.keep_versions(0)
    assert store.collection.truth.kept_versions() is None
    assert store.verify().problems == ()
    with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'history'").fetchall()
    store.close()


def test_what_has_expired_is_deleted_by_later_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, day = store_at(tmp_path / "notes"), 86_400.0
    clock = [1_000_000 * day]
    monkeypatch.setattr("time.time", lambda: clock[0])
    store.keep_versions(30)
    for number in range(5):
        store.write([Document("a", f"version {number}")])
        clock[0] += 10 * day
    retention = store.collection.truth.kept_versions()
    assert retention is not None
    assert retention.first_sequence == 1  # on day 40 the first version, of day 0, had been replaced 30 days before
    with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
        assert [seq for (seq,) in connection.execute("SELECT seq FROM history ORDER BY seq")] == [1, 2, 3, 4]
    assert store.verify().problems == ()
    clock[0] += 100 * day
    store.write([Document("b", "later")])
    store.write([Document("c", "later still")])
    with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM history").fetchone() == (0,)
    assert store.verify().problems == ()
    store.close()


def test_purging_deletes_a_bounded_number_of_rows_in_each_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path / "notes")
    store.keep_versions(30)
    store.write([Document(f"d{number}", "one") for number in range(30)])
    store.write([Document(f"d{number}", "two") for number in range(30)])
    monkeypatch.setattr(history, "PURGED_TOGETHER", 10)
    monkeypatch.setattr("time.time", lambda: 4e9)
    counts = []
    for number in range(4):
        store.write([Document("other", f"write {number}")])
        with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
            counts.append(connection.execute("SELECT count(*) FROM history WHERE id <> 'other'").fetchone()[0])
    assert counts[0] >= 20
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE history SET text = 'forged'",
        "UPDATE history SET until = until + 100 WHERE seq = 2",
        "DELETE FROM moments WHERE seq = 2",
    ],
)
def test_verify_finds_damage_in_kept_versions(tmp_path: Path, damage: str) -> None:
    store = store_at(tmp_path / "notes")
    store.keep_versions(30)
    for number in range(3):
        store.write([Document("a", f"version {number}")])
    assert store.verify().problems == ()
    store.close()
    with sqlite3.connect(tmp_path / "notes" / "documents.sqlite") as connection:
        connection.execute(damage)
    store = store_at(tmp_path / "notes")
    assert store.verify().problems
    store.close()


def test_stores_that_keep_no_versions_say_so() -> None:
    with pytest.raises(UnmetNeedError, match="keeps no versions"):
        EmptyStore({}).keep_versions(30)
