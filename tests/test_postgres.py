"""PostgreSQL keeps what the protocol promises, against a real server (B3, B6)."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import threading
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import trio

from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, bm25, odd_documents, vector_of, vectors_of
from pointsman.store.store_values import NEAR, WORDS, Capability, StoreQuery
from pointsman.tools import errors
from pointsman.values.filters import And, Equals, Not, Range
from pointsman.values.types import Document
from proxy_kit import PostgresProxy
from store_orders import OrderedStoreConformance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pointsman.store.postgres import PostgresBackend, PostgresStore
    from postgres_kit import PostgresServer

DESCRIPTION = {"description": "", "indexing_technique": "hybrid"}


def open_backend(server: PostgresServer, schema: str = "tests") -> PostgresBackend:
    from pointsman.store.postgres import PostgresBackend

    return PostgresBackend(f"{server.url}?schema={schema}")


@pytest.fixture
def backend(postgres: PostgresServer) -> Iterator[PostgresBackend]:
    with open_backend(postgres) as backend:
        yield backend


@pytest.fixture
def store(backend: PostgresBackend) -> PostgresStore:
    return backend.create(uuid.uuid4().hex, DESCRIPTION)


def name_of(backend: PostgresBackend, store: Any) -> str:
    return next(dataset.name for dataset in backend.datasets() if dataset.identity == store.info.identity)


class TestPostgresStore(OrderedStoreConformance):
    backend: ClassVar[PostgresBackend]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _backend(cls, postgres: PostgresServer) -> Iterator[None]:
        cls.backend = open_backend(postgres, "conformance")
        yield
        cls._filled_store = None
        cls.backend.close()

    def make_store(self) -> PostgresStore:
        return self.backend.create(uuid.uuid4().hex, DESCRIPTION)

    def again(self, store: Any) -> PostgresStore:
        second_store = self.backend.open(name_of(self.backend, store))
        assert second_store is not None
        return second_store


class TestPostgresIndex(TestPostgresStore):
    """The same with an HNSW index, and with lists that are read until enough of them are allowed, from the start."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _from_the_start(cls) -> Iterator[None]:
        from pointsman.store.postgres import statements

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statements, "FEW", 10)
            patch.setattr(statements, "EXACT_ROWS", 100)
            yield

    def test_there_is_an_index(self) -> None:
        store: Any = self.make()
        index = f'"conformance".d{store.tables.number}_vec_hnsw'
        rows = store._rows(f"select indisvalid from pg_index where indexrelid = '{index}'::regclass")
        assert rows == [(True,)]


class TestRoundTrips:
    """Over a line of 50 ms (B1)."""

    def test_a_search_is_one(self, postgres: PostgresServer, store: PostgresStore, backend: PostgresBackend) -> None:
        documents = odd_documents(60)
        store.write(documents, vectors_of(documents), EMBEDDER)
        with PostgresProxy(postgres.port) as proxy:
            from pointsman.store.postgres import PostgresBackend

            with PostgresBackend(
                f"postgresql://pointsman@127.0.0.1:{proxy.port}/postgres?schema=tests"
            ) as slow_backend:
                slow_store = slow_backend.open(name_of(backend, store))
                assert slow_store is not None
                store_query = StoreQuery("red signal lamp", vector_of("red signal lamp"), 50, Not(Equals("rare", True)))
                slow_store.search([store_query])
                proxy.reset()
                start = time.perf_counter()
                answer = slow_store.search([store_query])[0]
                seconds = time.perf_counter() - start
                assert proxy.round_trips == 1
                assert seconds >= 0.05
                keys = {key for ranking in answer.rankings.values() for key, _ in ranking}
                assert set(answer.documents) == set(answer.scores[WORDS]) == set(answer.scores[NEAR]) == keys
                proxy.reset()
                slow_store.search([store_query] * 50)
                assert proxy.round_trips <= 2
                proxy.reset()
                slow_store.score([store_query] * 50, [list(keys)] * 50)
                assert proxy.round_trips <= 2
                for call in (
                    lambda: slow_store.fetch(list(keys)),
                    lambda: slow_store.get(["d1"]),
                    slow_store.page,
                    slow_store.count,
                    lambda: slow_store.frequencies(["lamp"]),
                    lambda: slow_store.statistics() and slow_store.statistics(),
                ):
                    proxy.reset()
                    call()
                    assert proxy.round_trips == 1

    def test_awaited_searches_wait_together(self, postgres: PostgresServer, store: PostgresStore, backend: Any) -> None:
        store.write([Document("1", "lamp")])
        with PostgresProxy(postgres.port, 0.1) as proxy:
            from pointsman.store.postgres import PostgresBackend

            with PostgresBackend(
                f"postgresql://pointsman@127.0.0.1:{proxy.port}/postgres?schema=tests"
            ) as slow_backend:
                slow_store = slow_backend.open(name_of(backend, store))
                assert slow_store is not None

                async def search() -> None:
                    await asyncio.gather(*(slow_store.asearch([StoreQuery("lamp")]) for _ in range(8)))
                    threads = threading.active_count()
                    proxy.hold(8)
                    answers = await asyncio.gather(*(slow_store.asearch([StoreQuery("lamp")]) for _ in range(8)))
                    assert all(len(answer[0].rankings[WORDS]) == 1 for answer in answers)
                    assert threading.active_count() == threads

                asyncio.run(search())
                assert proxy.have_met.is_set()


class TestAsync:
    def test_a_cancelled_search_stops_on_the_server(self, store: PostgresStore, backend: PostgresBackend) -> None:
        store.write([Document("1", "lamp")])

        async def slow(connection: Any) -> None:
            await connection.execute("select pg_sleep(30) /* cancelled */")

        async def cancel() -> None:
            task = asyncio.create_task(store.connections.arun(slow))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len((await store.asearch([StoreQuery("lamp")]))[0].rankings[WORDS]) == 1

        asyncio.run(cancel())
        active = (
            "select count(*) from pg_stat_activity "
            "where query like '%% cancelled %%' and state = 'active' and pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + 60
        while store._rows(active)[0][0] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert store._rows(active)[0][0] == 0

    def test_many_event_loops_leave_nothing_open(self, store: PostgresStore) -> None:
        store.write([Document("1", "lamp")])
        for _ in range(20):
            assert len(asyncio.run(store.asearch([StoreQuery("lamp")]))[0].rankings[WORDS]) == 1
        assert len(store.connections._loops) == 1

    def test_another_kind_of_event_loop(self, store: PostgresStore) -> None:
        store.write([Document("1", "lamp")], vectors_of([Document("1", "lamp")]), EMBEDDER)
        key = store.keys(["1"])["1"]

        async def all_three() -> Any:
            return (
                await store.asearch([StoreQuery("lamp")]),
                await store.ascore([StoreQuery("lamp")], [[key]]),
                await store.afetch([key]),
            )

        answers, scores, documents = trio.run(all_three)
        assert [key for key, _ in answers[0].rankings[WORDS]] == [key]
        assert (set(scores[0][WORDS]), documents[0].id) == ({key}, "1")


def note_attempts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to connect from now on."""
    from pointsman.store.postgres.bounded_connections import BoundedConnection

    attempts, connect = list[Any](), BoundedConnection.connect

    def note_attempt(*arguments: Any, **options: Any) -> Any:
        attempts.append(options)
        return connect(*arguments, **options)

    monkeypatch.setattr(BoundedConnection, "connect", note_attempt)
    return attempts


class TestAway:
    """A server that is not there, or goes away (B6)."""

    URL = "postgresql://ann:s3cret%21@127.0.0.1:1/db"

    def test_it_is_named_and_the_password_is_not(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("psycopg")
        from pointsman.store.postgres import PostgresBackend

        attempts = note_attempts(monkeypatch)
        backend = PostgresBackend(self.URL)
        with caplog.at_level(logging.DEBUG), pytest.raises(errors.StoreUnavailableError) as error_info:
            backend.datasets()
        assert len(attempts) > 1
        text = " ".join(
            (
                str(error_info.value),
                repr(error_info.value),
                repr(backend),
                backend.url,
                caplog.text,
                str(error_info.value.__cause__),
            )
        )
        assert "postgresql://ann@127.0.0.1:1/db" in text
        assert "s3cret" not in text
        attempts.clear()
        with pytest.raises(errors.StoreUnavailableError):
            backend.datasets()
        assert len(attempts) == 1  # who asks again at once is told at once

    def test_a_wrong_password_is_told_at_once(self, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
        from pointsman.store.postgres import PostgresBackend

        attempts = note_attempts(monkeypatch)
        with pytest.raises(errors.StoreUnavailableError, match="nobody"):
            PostgresBackend(postgres.url.replace("pointsman@", "nobody:s3cret@")).datasets()
        assert len(attempts) == 1

    def test_a_server_that_is_killed_and_comes_back(self, postgres: PostgresServer, store: PostgresStore) -> None:
        """What was acknowledged is there, nothing is doubled, and who was searching goes on."""
        acknowledged_documents: dict[str, Document] = {}
        stop = threading.Event()
        failures: list[BaseException] = []

        def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                documents = [Document(f"{writer} {number + n}", f"lamp {number + n}") for n in range(5)]
                try:
                    store.write(documents, vectors_of(documents), EMBEDDER)
                except errors.StoreUnavailableError:
                    continue
                except BaseException as error:  # noqa: BLE001  (told below)
                    failures.append(error)
                    return
                acknowledged_documents.update((document.id, document) for document in documents)
                number += 5

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
        for thread in writers:
            thread.start()
        chance = random.Random(3)
        for _ in range(3):
            time.sleep(chance.uniform(0.1, 0.5))
            postgres.kill()
            postgres.start()
            assert store.search([StoreQuery("lamp")])[0].rankings[WORDS] is not None
        stop.set()
        for thread in writers:
            thread.join()
        assert not failures, failures[0]
        ids = store.ids()
        assert len(ids) == len(set(ids)) == store.count()
        assert store.get(list(acknowledged_documents)) == list(acknowledged_documents.values())
        documents_back = store.get(ids)
        expected = bm25([document for document in documents_back if document is not None], "lamp 5")
        ranking = store.search([StoreQuery("lamp 5", depth=len(ids))])[0].rankings[WORDS]
        scores = {store.fetch([key])[0].id: score for key, score in ranking[:20]}  # type: ignore[union-attr]
        assert scores == {id_: pytest.approx(expected[id_], rel=1e-9) for id_ in scores}


def _write_there(url: str, name: str, writer: int, count: int) -> None:
    from pointsman.store.postgres import PostgresBackend

    with PostgresBackend(url) as backend:
        store = backend.open(name)
        assert store is not None
        for number in range(0, count, 5):
            documents = [Document(f"{writer} {number + n}", f"signal {writer} shared") for n in range(5)]
            store.write(documents, vectors_of(documents), EMBEDDER)
            store.write([Document("same", f"signal {writer} {number}")], vectors_of([Document("same", "x")]), EMBEDDER)
        store.delete([f"{writer} 0"])


def _fork_there(url: str, name: str) -> tuple[list[str], int, list[str]]:
    """The ids as seen before a fork, the status of the child, which is 0 if it sees the same, and the ids after it."""
    from pointsman.store.postgres import PostgresBackend

    with PostgresBackend(url) as backend:
        store = backend.open(name)
        assert store is not None
        ids_before = store.ids()
        child = os.fork()
        if not child:
            os._exit(0 if store.ids() == ids_before else 1)
        return ids_before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.ids()


class TestUrl:
    @pytest.mark.parametrize(
        "form",
        [
            "POSTGRES://pointsman@LOCALHOST:{port}/postgres?schema=urls",
            "postgresql:///postgres?host=127.0.0.1&port={port}&user=pointsman&schema=urls",
            "postgresql://?host=127.0.0.1&port={port}&user=pointsman&schema=urls&dbname=postgres",
            "postgresql://pointsman@127.0.0.1:{port}/postgres?options=-c%20application_name%3Dwith%2520space&schema=urls",
            "postgresql://pointsman@127.0.0.1:{port}/postgres?schema=urls&application_name=a+b&connections=1",
        ],
    )
    def test_every_form_that_libpq_reads(self, form: str, postgres: PostgresServer) -> None:
        from pointsman.store.postgres import PostgresBackend

        with PostgresBackend(form.format(port=postgres.port)) as backend:
            assert backend.datasets() == []

    def test_other_options_reach_libpq_as_they_are_written(self, postgres: PostgresServer) -> None:
        from pointsman.store.postgres import PostgresBackend

        with PostgresBackend(f"{postgres.url}?application_name=a%20b+c&schema=urls") as backend:
            assert backend._rows("show application_name") == [("a b+c",)]

    def test_an_unknown_option_is_named(self) -> None:
        from pointsman.store.postgres import PostgresBackend

        with pytest.raises(errors.InputError, match="unknown option conections"):
            PostgresBackend("postgresql://db/rails?conections=3")

    def test_a_service_file_may_name_any_machine_so_certificates_are_checked(
        self, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from pointsman.store.postgres import PostgresBackend

        file = tmp_path / "services"
        file.write_text(f"[rails]\nhost=127.0.0.1\nport={postgres.port}\nuser=pointsman\ndbname=postgres\n", "utf-8")
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        with PostgresBackend("postgresql://?service=rails&sslmode=disable") as backend:
            assert backend.datasets() == []
        with PostgresBackend("postgresql://?service=rails") as backend:
            backend._connections._patience = 0.0
            with pytest.raises(errors.StoreUnavailableError, match="SSL"):
                backend.datasets()

    def test_an_address_in_brackets_stays_in_brackets(self) -> None:
        from pointsman.store.postgres import PostgresBackend

        with PostgresBackend("postgresql://u:secret@[::1]:5433,db:5432/rails") as backend:
            assert backend.url == "postgresql://u@[::1]:5433,db:5432/rails?schema=pointsman"


class TestManyWriters:
    def test_processes_write_at_once(self, postgres: PostgresServer, store: PostgresStore, backend: Any) -> None:
        url, name = f"{postgres.url}?schema=tests", name_of(backend, store)
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_write_there, args=(url, name, writer, 40)) for writer in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        assert store.count() == len(store.ids()) == 3 * 39 + 1
        assert store.frequencies(["shared"]) == [3 * 39]
        documents = list(store.documents())
        expected = bm25(documents, "signal shared 2")
        answer = store.search([StoreQuery("signal shared 2", depth=1000)])[0]
        scores = {answer.documents[key].id: score for key, score in answer.rankings[WORDS]}
        assert scores == {id_: pytest.approx(score, rel=1e-9) for id_, score in expected.items()}
        assert store.statistics().documents == len(documents)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
    def test_a_fork_has_connections_of_its_own(
        self, postgres: PostgresServer, store: PostgresStore, backend: Any
    ) -> None:
        store.write([Document("1", "lamp")])
        url, name = f"{postgres.url}?schema=tests", name_of(backend, store)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:  # threads of other tests: none
            assert process.submit(_fork_there, url, name).result(60) == (["1"], 0, ["1"])


class TestKeeping:
    def test_words_made_by_other_rules_are_made_anew(self, backend: PostgresBackend, store: PostgresStore) -> None:
        documents = odd_documents(40)
        store.write(documents)
        store.connections.run(lambda c: c.execute(b"update tests.dataset set analyzer = 'old', tokens = 1"))
        store.connections.run(lambda c: c.execute(f"truncate {store.tables.posting}".encode()))
        reopened_store = backend.open(name_of(backend, store))
        assert reopened_store is not None
        answer = reopened_store.search([StoreQuery("signal lamp", depth=100)])[0]
        expected = bm25(documents, "signal lamp")
        assert {answer.documents[key].id: score for key, score in answer.rankings[WORDS]} == {
            id_: pytest.approx(score, rel=1e-9) for id_, score in expected.items()
        }

    def test_what_a_newer_version_has_written_is_refused(self, backend: PostgresBackend, store: PostgresStore) -> None:
        name = name_of(backend, store)
        store.connections.run(lambda c: c.execute(b"update tests.dataset set format = 3 where name = %s", (name,)))
        with pytest.raises(errors.FormatVersionError, match="format 3"):
            backend.open(name)

    def test_a_dataset_that_was_made_anew(self, backend: PostgresBackend, store: PostgresStore) -> None:
        name = name_of(backend, store)
        backend.drop(name)
        anew = backend.create(name, DESCRIPTION)
        anew.write([Document("1", "lamp")])
        with pytest.raises(errors.ReplacedError, match="open it again"):
            store.search([StoreQuery("lamp")])
        with pytest.raises(errors.ReplacedError, match="open it again"):
            store.write([Document("2", "x")])
        with pytest.raises(errors.ReplacedError, match="open it again") as error_info:
            store.count()
        from pointsman.service.server.protocol.problems import of_error

        problem = of_error(error_info.value)  # what a service answers that has not heard of it yet
        assert (problem.slug, problem.status) == ("locked", 503)
        assert "deleted or recreated this dataset; try again" in problem.detail

    def test_a_role_that_only_reads_can_search(
        self, postgres: PostgresServer, store: PostgresStore, backend: Any
    ) -> None:
        """As docs/stores.md grants it."""
        documents = odd_documents(20)
        store.write(documents, vectors_of(documents), EMBEDDER)
        store.connections.run(
            lambda c: c.execute(
                b"do $$ begin create role reader login; exception when duplicate_object then null; end $$;"
                b"grant usage on schema tests to reader; grant select on all tables in schema tests to reader"
            )
        )
        from pointsman.store.postgres import PostgresBackend

        with PostgresBackend(f"{postgres.url.replace('pointsman@', 'reader@')}?schema=tests") as reading:
            readable_store = reading.open(name_of(backend, store))
            assert readable_store is not None
            assert readable_store.search([StoreQuery("signal", vector_of("x"), 5, Equals("language", "en"))])[
                0
            ].documents
            for call in (
                lambda: readable_store.write([Document("x", "x")]),
                lambda: readable_store.delete(["d1"]),
                readable_store.drop,
            ):
                with pytest.raises(errors.StoreError, match="connect as a role that may do this"):
                    call()
        assert store.count() == len(documents)

    def test_a_role_that_writes_needs_no_more_than_its_schema(self, postgres: PostgresServer) -> None:
        """As docs/stores.md grants it: it makes its schema, and can neither read nor change what is beside it."""
        import psycopg

        from pointsman.store.postgres import PostgresBackend

        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("create extension if not exists vector")
            connection.execute("create table if not exists public.others (secret text)")
            connection.execute("create role writer login")
            connection.execute("grant create on database postgres to writer")
        url = f"{postgres.url.replace('pointsman@', 'writer@')}?schema=writers"
        with PostgresBackend(url) as backend:
            store = backend.create("rails", {})
            store.write([Document("1", "a lamp")], vectors_of([Document("1", "a lamp")]), EMBEDDER)
            assert store.search([StoreQuery("lamp", vector_of("lamp"))])[0].documents
            assert store.delete(["1"]) == 1
            for sql in (b"select * from public.others", b"drop table public.others", b"drop schema tests cascade"):
                with pytest.raises(errors.StoreError):
                    backend._connections.run(lambda connection, sql=sql: connection.execute(sql))  # type: ignore[misc]
            backend.drop("rails")

    def test_techniques(self, backend: PostgresBackend) -> None:
        document = Document("1", "lamp")
        words = backend.create(uuid.uuid4().hex, {"indexing_technique": "keyword"})
        words.write([document])
        assert set(words.search([StoreQuery("lamp", vector_of("lamp"))])[0].rankings) == {WORDS}
        dense = backend.create(uuid.uuid4().hex, {"indexing_technique": "vector"})
        dense.write([document], vectors_of([document]), EMBEDDER)
        answer = dense.search([StoreQuery("lamp", vector_of("lamp"))])[0]
        assert set(answer.rankings) == {NEAR}
        assert answer.documents[answer.rankings[NEAR][0][0]] == document
        assert not dense.info.can(Capability.LOCAL)

    def test_bm25_settings_are_honoured(self, backend: PostgresBackend) -> None:
        documents = odd_documents(40)
        store = backend.create(uuid.uuid4().hex, {"indexing_technique": "keyword", "bm25_k1": 0.5, "bm25_b": 0.2})
        store.write(documents)
        answer = store.search([StoreQuery("signal lamp", depth=100)])[0]
        expected = bm25(documents, "signal lamp", 0.5, 0.2)
        assert {answer.documents[key].id: score for key, score in answer.rankings[WORDS]} == {
            id_: pytest.approx(score, rel=1e-9) for id_, score in expected.items()
        }

    def test_deleting_by_a_filter_in_parts(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        from pointsman.store.postgres import postgres_store as module

        monkeypatch.setattr(module, "BATCH_DOCUMENTS", 7)
        store.write([Document(str(n), "lamp", {"n": n}) for n in range(50)])
        assert store.delete(filters=And((Range("n", gte=10), Range("n", lt=40)))) == 30
        assert (store.count(), store.frequencies(["lamp"])) == (20, [20])

    def test_bounds_beyond_what_doubles_tell_apart(self, store: PostgresStore) -> None:
        """The double 1e300 is some 5e283 above the integer 10**300."""
        store.write([Document("double", "lamp", {"n": 1e300}), Document("integer", "lamp", {"n": 10**300})])
        assert store.ids(filters=Range("n", gt=1e300)) == []
        assert store.ids(filters=Range("n", gte=1e300)) == ["double"]
        assert store.ids(filters=Range("n", lt=1e300)) == ["integer"]
        assert store.ids(filters=Range("n", lte=10**300)) == ["integer"]

    def test_unchanged_needs_the_vector_too(self, store: PostgresStore) -> None:
        document = Document("1", "lamp")
        store.write([document])
        assert store.unchanged([document]) == [False]
        store.write([document], vectors_of([document]), EMBEDDER)
        assert store.unchanged([document, Document("2", "x")]) == [True, False]
        assert np.allclose(store.vectors(), np.zeros((0, 16)))


@pytest.mark.parametrize("metadata", ["[" * 100_000, "{", "5", '{"a": }'])
def test_damaged_row_is_an_error_that_names_the_document(
    store: PostgresStore, postgres: PostgresServer, metadata: str
) -> None:
    import psycopg

    store.write([Document("a", "signal", {"n": 1})])
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"update {store.tables.body} set metadata = %s".encode(), (metadata,))
    for read in (
        lambda: store.get(["a"]),
        lambda: store.search([StoreQuery("signal")]),
        lambda: list(store.documents()),
    ):
        with pytest.raises(errors.CorruptStoreError, match="the row of document 'a' is damaged"):
            read()


def test_recovering_server_is_asked_again_although_it_was_away_just_now() -> None:
    import psycopg

    from pointsman.store.postgres.postgres_connections import Connections
    from pointsman.tools.network.retries import Retries

    connections, moment = Connections("postgresql://127.0.0.1:1/none"), time.monotonic()
    recovering = psycopg.OperationalError("connection failed: FATAL:  the database system is starting up")
    refusal = psycopg.OperationalError("connection failed: Connection refused")

    def attempts(start: float) -> Retries:
        retries = Retries(start + 5, first=0.05, longest=1.0)
        retries.start = start
        return retries

    assert connections._pause_after(recovering, attempts(moment), moment + 1) > 0
    for error, start in ((recovering, moment - 6), (refusal, moment)):
        with pytest.raises(errors.StoreUnavailableError):
            connections._pause_after(error, attempts(start), moment + 1)
