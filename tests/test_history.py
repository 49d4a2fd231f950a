"""What a dataset keeps of its former versions: every state of the last days can be restored, to the byte."""

from __future__ import annotations

import random
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from history_kit import State, change, state_of
from pointsman.store import history
from pointsman.store.base_store import EmptyStore
from pointsman.store.local.local_store import LocalStore
from pointsman.store.store_values import StoreQuery
from pointsman.tools.errors import UnmetNeedError
from pointsman.values.filters import Equals, Not
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator


def store_at(folder: Path) -> LocalStore:
    return LocalStore(folder, {"name": "notes", "description": "", "indexing_technique": "hybrid"})


@pytest.fixture(params=["folder", "postgresql"])
def kept_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store that can keep versions."""
    if request.param == "folder":
        store = store_at(tmp_path / "notes")
        yield store
        store.close()
        return
    from pointsman.store.postgres import PostgresBackend

    address = f"{request.getfixturevalue('postgres').url}?schema=history_{uuid.uuid4().hex}"
    with PostgresBackend(address) as backend:
        yield backend.create("notes", {"description": "", "indexing_technique": "hybrid"})


@pytest.mark.parametrize("seed", range(2))
def test_every_kept_state_can_be_restored_in_any_order(kept_store: Any, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        change(kept_store, chance)
    kept_store.keep_versions(90)
    states: dict[tuple[int, str], State] = {}
    for _ in range(60):
        recorded_state = kept_store.statistics().recorded_state
        states[recorded_state.sequence, recorded_state.notes] = state_of(kept_store)
        change(kept_store, chance)
    recorded_state = kept_store.statistics().recorded_state
    states[recorded_state.sequence, recorded_state.notes] = state_of(kept_store)
    past_store = kept_store.past_store("notes", {"k1": 1.2, "b": 0.75})
    for name in chance.sample(sorted(states), len(states)):
        restored_store = past_store.at(*name)
        assert state_of(restored_store) == states[name]
        if isinstance(restored_store, LocalStore):
            assert restored_store.verify().problems == ()
    past_store.close()
    if isinstance(kept_store, LocalStore):
        assert kept_store.verify().problems == ()


def test_state_before_the_first_vectors_has_none(kept_store: Any) -> None:
    kept_store.keep_versions(90)
    kept_store.write([Document("a", "one")])
    states = [kept_store.statistics().recorded_state]
    kept_store.write([Document("a", "one")], np.eye(1, 8, dtype=np.float32), "hash", stored_only=True)
    states.append(kept_store.statistics().recorded_state)
    past_store = kept_store.past_store("notes", {"k1": 1.2, "b": 0.75})
    for index in (0, 1, 0, 1):
        info = past_store.at(states[index].sequence, states[index].notes).info
        assert (info.embedder, info.dimensions) == ((None, None) if index == 0 else ("hash", 8))
    past_store.close()


def scores_of(store: Any, queries: list[StoreQuery]) -> list[str]:
    """Both lists and all scores of each query, to the last digit; as texts, for NaN does not equal itself."""
    return [
        repr([sorted(lists.rankings.items()), [(name, sorted(lists.scores[name].items())) for name in lists.scores]])
        for lists in store.search(queries)
    ]


def test_restored_state_scores_as_it_did(kept_store: Any) -> None:
    chance = random.Random(7)
    kept_store.keep_versions(90)
    queries = [
        StoreQuery(text, np.array([chance.gauss(0, 1) for _ in range(8)], np.float32), 5, filters)
        for text in ("text of d1", "text text d3", "text 9")
        for filters in (None, Equals("year", 2010), Not(Equals("year", 2010)))
    ]
    answers = {}
    for _ in range(40):
        recorded_state = kept_store.statistics().recorded_state
        answers[recorded_state.sequence, recorded_state.notes] = scores_of(kept_store, queries)
        change(kept_store, chance)
    past_store = kept_store.past_store("notes", {"k1": 1.2, "b": 0.75})
    for name in chance.sample(sorted(answers), len(answers)):
        assert scores_of(past_store.at(*name), queries) == answers[name]
    past_store.close()


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
