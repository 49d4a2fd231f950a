"""Kept versions in PostgreSQL: written with what they belong to, by any number of programs, killed or not."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pointsman
from history_kit import change, state_of
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store import history as common
from pointsman.store.postgres import PostgresBackend
from pointsman.store.postgres import postgres_history as history
from pointsman.store.store_values import StoreQuery
from pointsman.tools.errors import NotHeldError, StoreError
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postgres_kit import PostgresServer

WORKER = Path(__file__).with_name("history_worker.py")
DESCRIPTION = {"description": "", "indexing_technique": "hybrid"}
BM25 = {"k1": 1.2, "b": 0.75}


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url}?schema=history_{uuid.uuid4().hex}"


@pytest.fixture
def backend(url: str) -> Iterator[PostgresBackend]:
    with PostgresBackend(url) as backend:
        yield backend


@pytest.fixture
def store(backend: PostgresBackend) -> Any:
    return backend.create("notes", DESCRIPTION)


def tables_of(store: Any) -> set[str]:
    sql = "select tablename::text from pg_tables where schemaname = %(schema)s"
    return {name.partition("_")[2] for (name,) in store._rows(sql, schema=store.tables.schema)}


def complaints(store: Any) -> list[str]:
    """What is wrong with the order of kept rows, and with the moments."""
    tables = store.tables
    rows = store._rows(
        f"select id, seq, until, lead(seq) over (partition by id order by seq) from (select id, seq, until from "
        f"{tables.history} union all select id, seq, null from {tables.doc}) v order by id, seq"
    )
    problems = [
        f"version {seq} of {id_} ends at {last_seq}, and the next begins at {next_seq}"
        for id_, seq, last_seq, next_seq in rows
        if (last_seq is not None and seq >= last_seq) or (next_seq is not None and last_seq != next_seq)
    ]
    last, retention = store._rows(f"select seq, kept from {tables.row}")[0]
    moments = store._rows(f"select count(*) from {tables.moment} where seq >= {retention['from']}")[0][0]
    if moments != last - retention["from"] + 1:
        problems.append(f"{moments} moments of {last - retention['from'] + 1} writes")
    return problems


def check_no_temporary_tables(postgres: PostgresServer) -> None:
    temporary_tables = b"select from pg_class where relpersistence = 't' and relkind = 'r'"
    deadline = time.monotonic() + 60
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        while connection.execute(temporary_tables).fetchall():  # the server ends a session after its client
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_plain_dataset_has_no_further_table_and_sends_no_further_statement(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    for kind in (psycopg.Cursor, psycopg.AsyncCursor):
        execute = kind.execute

        def execute_and_note(self: Any, query: Any, *args: Any, _execute: Any = execute, **options: Any) -> Any:
            statements.append(query.decode() if isinstance(query, bytes) else str(query))
            return _execute(self, query, *args, **options)

        monkeypatch.setattr(kind, "execute", execute_and_note)
    store.write([Document("a", "one")])
    statements.clear()
    store.write([Document("a", "two")])
    assert len(statements) == 16
    statements.clear()
    store.search([StoreQuery("two")])
    assert len(statements) == 1
    statements.clear()
    store.annotate(mood="calm")
    assert len(statements) == 1
    store.delete(["a"])
    assert not [sql for sql in statements if any(f"_{name}" in sql for name in ("history", "moment", "former"))]
    assert tables_of(store).isdisjoint({"history", "moment", "former"})
    assert store.statistics().recorded_state is None


def test_switching_off_deletes_what_was_kept_and_dropping_too(store: Any, backend: PostgresBackend) -> None:
    store.keep_versions(30)
    store.write([Document("a", "one")])
    store.write([Document("a", "two")])
    assert store._rows(f"select text from {store.tables.history}") == [("one",)]
    key = store.statistics().recorded_state.key
    store.keep_versions(40)
    assert store.statistics().recorded_state.key == key, "another number of days is no new beginning"
    store.keep_versions(0)
    assert tables_of(store).isdisjoint({"history", "moment", "former"})
    store.write([Document("a", "three")])
    store.keep_versions(30)
    assert store.statistics().recorded_state.key != key
    backend.drop("notes")
    assert not [name for name in tables_of(store) if name not in {"", "version"}]


def test_what_has_expired_is_deleted_by_later_writes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 86_400.0
    clock = [1_000_000 * day]
    monkeypatch.setattr("time.time", lambda: clock[0])
    store.keep_versions(30)
    for number in range(5):
        store.write([Document("a", f"version {number}")])
        clock[0] += 10 * day
    history_rows = f"select seq from {store.tables.history} order by seq"
    assert [seq for (seq,) in store._rows(history_rows)] == [1, 2, 3, 4]
    notes = store.statistics().recorded_state.notes
    past_store = store.past_store("notes", BM25)
    with pytest.raises(NotHeldError, match=r"for 30 days, from write 1 of .*, and the answer is from write 0"):
        past_store.at(0, notes)
    assert [document.text for document in past_store.at(1, notes).documents()] == ["version 0"]
    monkeypatch.setattr(common, "PURGED_TOGETHER", 1)
    clock[0] += 100 * day
    counts = []
    for number in range(5):
        store.write([Document("b", f"later {number}")])
        counts.append(len(store._rows(f"select from {store.tables.history} where key = 'a'")))
    assert counts == [3, 2, 1, 0, 0]
    with pytest.raises(NotHeldError, match="and the answer is from write 4"):
        past_store.at(4, notes)
    sequence = store.statistics().sequence
    assert {document.text for document in past_store.at(sequence, notes).documents()} == {"version 4", "later 4"}
    past_store.close()


def test_copy_of_a_state_that_has_expired_goes_on_to_others(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1e9]
    monkeypatch.setattr("time.time", lambda: clock[0])
    store.keep_versions(1)
    store.write([Document("a", "one"), Document("b", "deleted while the copy has it")])
    notes = store.statistics().recorded_state.notes
    past_store = store.past_store("notes", BM25)
    assert len(list(past_store.at(1, notes).documents())) == 2
    store.delete(["b"])
    clock[0] += 9 * 86_400
    for number in range(3):
        store.write([Document("a", f"later {number}")])
        clock[0] += 60.0
    assert store._rows(f"select from {store.tables.history} where key = 'b'") == []
    for sequence, text in ((5, "later 2"), (4, "later 1")):
        assert [document.text for document in past_store.at(sequence, notes).documents()] == [text]
    past_store.close()


@pytest.mark.parametrize("method", ["write", "set_metadata", "delete"])
def test_what_is_rolled_back_is_not_kept(store: Any, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    store.keep_versions(30)
    store.write([Document("a", "one")])
    state_before = state_of(store), store.statistics().recorded_state
    with monkeypatch.context() as patch:

        def failing(*_: Any) -> None:
            raise RuntimeError("the program ends here")

        patch.setattr(history, "note_write", failing)
        arguments: Any = {"write": [Document("a", "two")], "set_metadata": {"a": {"n": 1}}, "delete": ["a"]}[method]
        with pytest.raises(RuntimeError):
            getattr(store, method)(arguments)
    assert store._rows(f"select from {store.tables.history}") == []
    assert (state_of(store), store.statistics().recorded_state) == state_before
    assert complaints(store) == []


def test_write_on_a_connection_that_is_lost_is_kept_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep_versions(30)
    store.write([Document("a", "one")])
    note_write = history.note_write
    losses: list[bool] = []

    def losing(cursor: Any, *arguments: Any) -> None:
        note_write(cursor, *arguments)
        if not losses:
            losses.append(True)
            cursor.execute("select pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(history, "note_write", losing)
    store.write([Document("a", "two")])
    assert losses
    assert store._rows(f"select text, seq, until from {store.tables.history}") == [("one", 1, 2)]
    assert complaints(store) == []


def test_programs_that_write_at_once_agree_on_every_state(store: Any, url: str) -> None:
    store.keep_versions(30)
    notes = store.statistics().recorded_state.notes
    rounds, writers = 15, 3

    def write(name: str) -> None:
        with PostgresBackend(url) as own_backend:
            own_store: Any = own_backend.open("notes")
            for number in range(rounds):
                documents = [Document(f"{name}-{n}", f"{name} in round {number}") for n in range(2)]
                own_store.write([*documents, Document("both", name)])

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = store.statistics().sequence
    assert last == rounds * writers
    assert complaints(store) == []
    past_store, rounds_by_writer = store.past_store("notes", BM25), dict.fromkeys((f"w{n}" for n in range(writers)), -1)
    for sequence in range(1, last + 1):
        texts = {document.id: document.text for document in past_store.at(sequence, notes).documents()}
        writer = texts["both"]  # the last one to write
        rounds_by_writer[writer] += 1
        for name, number in rounds_by_writer.items():
            texts_of_writer = [texts.get(f"{name}-{n}") for n in range(2)]
            assert texts_of_writer == ([None] * 2 if number < 0 else [f"{name} in round {number}"] * 2)
    assert state_of(past_store.at(last, notes)) == state_of(store)
    past_store.close()


def test_kept_versions_are_whole_after_each_kill(store: Any, url: str) -> None:
    store.keep_versions(30)
    chance = random.Random("kill")
    texts_by_write: dict[int, str] = {}
    for turn in range(4):
        command = [sys.executable, str(WORKER), url, str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randrange(2, 9))]
            timer = threading.Timer(chance.uniform(0, 0.05), process.kill)
            timer.start()
            lines += process.stdout.read().splitlines(keepends=True)
            timer.join()
        assert process.returncode == -9, "the writer ended by itself; its error is above"
        for line in lines:
            if line.endswith("\n"):
                written_as, text = line.split()
                texts_by_write[int(written_as)] = text
        assert complaints(store) == []
    past_store, notes = store.past_store("notes", BM25), store.statistics().recorded_state.notes
    assert len(texts_by_write) >= 8
    for sequence, text in texts_by_write.items():
        texts = {document.text for document in past_store.at(sequence, notes).documents()}
        assert texts == {text}, "every write replaces all documents"
    past_store.close()


def test_lost_copy_is_made_again(store: Any) -> None:
    store.keep_versions(30)
    for number in range(3):
        store.write([Document("a", f"version {number}")])
    notes = store.statistics().recorded_state.notes
    past_store = store.past_store("notes", BM25)
    copy = past_store.at(1, notes)
    process = copy._rows("select pg_backend_pid()")[0][0]
    store._rows("select pg_terminate_backend(%(process)s)", process=process)
    with pytest.raises(StoreError):
        copy.count()
    assert [document.text for document in past_store.at(1, notes).documents()] == ["version 0"]
    past_store.close()


def test_replay_leaves_no_table_and_needs_no_right_to_write(postgres: PostgresServer, url: str) -> None:
    role = f"reader_{uuid.uuid4().hex}"
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes", versions="9 days").add([Document("a", "The signal of the yard is green.")])
        answer = workspace.search("signal of the yard")
        workspace.dataset("notes").add([Document("a", "The signal is red."), Document("b", "A yard.")])
        schema = url.partition("schema=")[2]
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create role {role} login".encode())
            connection.execute(f'grant usage on schema "{schema}" to {role}'.encode())
            connection.execute(f'grant select on all tables in schema "{schema}" to {role}'.encode())
        with pointsman.open(url.replace("//pointsman@", f"//{role}@"), embedder=HashingEmbedder()) as reading:
            answer_again = reading.replay(str(answer.receipt))
            assert [(hit.text, hit.score) for hit in answer_again] == [(hit.text, hit.score) for hit in answer]
        check_no_temporary_tables(postgres)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"drop owned by {role}".encode())
            connection.execute(f"drop role {role}".encode())


def test_random_changes_leave_versions_in_order(store: Any) -> None:
    chance = random.Random("order")
    store.keep_versions(30)
    for _ in range(80):
        change(store, chance)
    store.rebuild()
    assert complaints(store) == []
