"""Collections that exist already, searched beside our own (B4)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import pointsman
from patience_kit import holds_with_time
from pointsman import InputError, UnmetNeedError, parse_filter
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app
from pointsman.store.external.attachment import ATTACHED, BOTH, TEXT, Attachment
from pointsman.store.opensearch.existing_index import IndexStore
from pointsman.store.store_values import NEAR, Scale, StoreQuery
from pointsman.tools.errors import StoreError, StoreUnavailableError, UnknownNameError
from pointsman.values.filters import Equals, Exists, Filter, In, Range
from pointsman.values.types import Document
from pointsman.workspace.copies.backup import backup, restore
from postgres_kit import give_up_soon
from serving import serving
from store_kit import WORDS, corpus, nested_conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opensearch_kit import Cluster
    from pointsman import Workspace
    from postgres_kit import PostgresServer

EMBEDDER = HashingEmbedder()
ROWS = 120
METADATA = ("year", "lang", "price", "done", "tags", "more")
COLUMNS: dict[str, Any] = {"id": "number", "text": "Body text", "vector": "v", "metadata": METADATA}


def orders() -> list[dict[str, Any]]:
    """Rows of somebody's table: numbers, texts, a JSON column, and what is missing here and there."""
    chance = random.Random(11)
    rows = []
    for number in range(ROWS):
        words = " ".join(chance.choices(WORDS, k=6))
        row: dict[str, Any] = {
            "number": number,
            "Body text": f"order {number}: {words}",
            "year": chance.choice([2019, 2020, 2021, None]),
            "lang": chance.choice(["ru", "en", "it's 100%", None]),
            "price": round(chance.uniform(0, 90), 2),
            "done": chance.random() < 0.5,
            "tags": chance.choice([["a", "b"], ["b"], [], None]),
            "more": {"colour": chance.choice(["red", "blue", 7, None]), "sizes": chance.sample([1, 2, 3.5], 2)},
        }
        rows.append(row)
    return rows


def metadata_of(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: row[name] for name in METADATA if name != "more"}
    return {name: value for name, value in {**plain, **row["more"]}.items() if value is not None}


@pytest.fixture(scope="module")
def table(postgres: PostgresServer) -> str:
    """The URL of a database with a table that is not ours."""
    import psycopg
    from psycopg.types.json import Jsonb

    rows = orders()
    vectors = EMBEDDER.embed_documents([row["Body text"] for row in rows])
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create extension if not exists vector")
        connection.execute("create schema shop")
        connection.execute(
            f'create table shop."Orders 100%" (number bigint primary key, "Body text" text, year int, lang text, '
            f"price numeric, done bool, tags text[], more jsonb, v vector({EMBEDDER.dimensions}))".encode()
        )
        for row, vector in zip(rows, vectors, strict=True):
            connection.execute(
                'insert into shop."Orders 100%%" values (%s, %s, %s, %s, %s, %s, %s, %s, %s)',
                (*(row[name] for name in list(row)[:7]), Jsonb(row["more"]), str(vector.tolist())),
            )
        connection.execute("""create index on shop."Orders 100%" using gin (to_tsvector('english', "Body text"))""")
        connection.execute('create index on shop."Orders 100%" using hnsw (v vector_cosine_ops)')
    return postgres.url


def attachment_of(url: str, **change: Any) -> Attachment:
    return Attachment(**{"url": url, "table": "shop.Orders 100%", "embedder": EMBEDDER.name, **COLUMNS, **change})


values = st.sampled_from([2019, 2020, 2021, 7, 1, 3.5, "ru", "en", "it's 100%", "a", "b", "red", "\0", True, False])
keys = st.sampled_from(["year", "lang", "price", "done", "tags", "colour", "sizes", "absent"])


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    bounds: Any = st.floats(0, 2100) if draw(st.booleans()) else st.sampled_from("abers")
    names = draw(st.sampled_from([("gt",), ("gte",), ("lt",), ("lte",), ("gt", "lte"), ("gte", "lt")]))
    return Range(draw(keys), **{name: draw(bounds) for name in names})


trees = nested_conditions(
    st.one_of(
        st.builds(Equals, keys, values),
        st.builds(In, keys, st.lists(values, max_size=3).map(tuple)),
        st.builds(Exists, keys),
        ranges(),
    ),
    max_leaves=6,
)


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_types_dimensions_and_distance_are_read_from_the_database(table: str) -> None:
    store = attachment_of(table).open()
    assert (store.info.kind, store.info.dimensions, store.info.embedder) == (
        "postgresql table",
        EMBEDDER.dimensions,
        EMBEDDER.name,
    )
    assert set(store.info.scales.values()) == {Scale.FOREIGN, Scale.RANK}
    rows = orders()
    (document, absent) = store.get(["7", "not a number"])
    assert document == Document("7", rows[7]["Body text"], metadata_of(rows[7]))
    assert absent is None
    assert store.count() == ROWS
    page = store.page(None, 50)
    second_page = store.page(page.next, 200)
    assert [document.id for document in (*page.documents, *second_page.documents)] == [str(n) for n in range(ROWS)]
    assert second_page.next is None
    with pytest.raises(UnmetNeedError, match="write"):
        store.write([Document("x", "y")])
    store.close()


def test_the_lists_are_those_of_the_database(table: str) -> None:
    store = attachment_of(table).open()
    vectors = EMBEDDER.embed_documents([row["Body text"] for row in orders()])
    query = EMBEDDER.embed_queries(["steam engine lamps"])[0]
    words, lists, hybrid = store.search(
        [
            StoreQuery("steam engine lamps", None, 10),
            StoreQuery(None, query, 10),
            StoreQuery("steam engine lamps", query, 10),
        ]
    )
    assert list(hybrid.rankings) == [BOTH]
    assert {key for key, _ in hybrid.rankings[BOTH]} <= {
        *(key for key, _ in words.rankings[TEXT]),
        *(key for key, _ in lists.rankings[NEAR]),
    }
    keys = [int(key) for key, _ in lists.rankings[NEAR]]
    exact = vectors @ query
    assert np.allclose([score or 0.0 for _, score in lists.rankings[NEAR]], exact[keys], atol=1e-5)
    assert np.allclose(sorted(exact, reverse=True)[:10], exact[keys], atol=1e-6)
    # The index is in English, so "lamps" finds "lamp"; one word is enough.
    assert words.rankings[TEXT]
    for key, _ in words.rankings[TEXT]:
        assert {"steam", "engine", "lamp"} & set(words.documents[key].text.split())
    assert np.allclose(store.vectors(["3", "1"]), vectors[[3, 1]], atol=1e-6)
    store.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=trees)
def test_filters_mean_in_a_table_what_they_mean_here(table_store: Any, condition: Filter) -> None:
    matching = {str(row["number"]) for row in orders() if condition.matches(metadata_of(row))}
    assert table_store.count(condition) == len(matching)
    query = EMBEDDER.embed_queries(["lamp"])[0]
    vectors, words = table_store.search(
        [StoreQuery(None, query, ROWS, condition), StoreQuery("lamp", None, ROWS, condition)]
    )
    assert {key for key, _ in vectors.rankings[NEAR]} == matching
    assert {key for key, _ in words.rankings[TEXT]} <= matching


@pytest.fixture(scope="module")
def table_store(table: str) -> Iterator[Any]:
    store = attachment_of(table).open()
    yield store
    store.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "shop.nothing"}, "no table 'shop.nothing'"),
        ({"table": 'shop.Orders 100%"; drop table x; --'}, "no table"),
        ({"text": "body"}, "no column 'body'; it has number, Body text"),
        ({"metadata": ("year", "x'); drop table y; --")}, "no column"),
        ({"vector": "price"}, "not a pgvector type"),
        ({"id": ""}, "no column|1 to 63 bytes"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(table: str, change: dict[str, Any], message: str) -> None:
    with closing(attachment_of(table, **change).open()) as store, pytest.raises(InputError, match=message):
        _ = store.info


def test_nothing_can_be_changed_over_its_connections(table: str) -> None:

    store: Any = attachment_of(table).open()
    with pytest.raises(pointsman.StoreError, match="read-only"):
        store._connections.run(lambda connection: connection.execute('delete from shop."Orders 100%%"', {}))
    assert store.count() == ROWS
    store.close()


def test_view_whose_function_switches_reading_only_off_changes_nothing(postgres: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            """
            create table victim (n int); insert into victim values (1);
            create function hostile() returns text language plpgsql as $$ begin
              perform set_config('default_transaction_read_only', 'off', false);
              perform set_config('statement_timeout', '0', false);
              begin perform set_config('transaction_read_only', 'off', false); exception when others then null; end;
              begin delete from victim; exception when others then null; end;
              return 'signal'; end $$;
            create view trap as select 'a'::text as id, hostile() as words, 7 as "$price";
            """
        )
    store: Any = Attachment(postgres.url, "trap", id="id", text="words", metadata=("$price",)).open()
    for _ in range(3):
        assert store.get(["a"]) == [Document("a", "signal", {"$price": 7})]
    settings = store._connections.run(
        lambda connection: (
            connection.execute("show default_transaction_read_only").fetchone()
            + connection.execute("show statement_timeout").fetchone()
        )
    )
    assert settings == ("on", "1min")
    assert store.count(parse_filter({"$price": {"gte": 5}})) == 1
    assert store.count(parse_filter({"$price": 8})) == 0
    store.close()
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("select count(*) from victim").fetchone() == (1,)


# ── in a workspace ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_b4_a_table_is_searched_beside_our_own_and_fused_by_rank(table: str, tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(80))
        dataset = workspace.attach("orders", table, table="shop.Orders 100%", description="what was ordered", **COLUMNS)
        assert workspace.names() == ["orders", "rails"]
        assert len(dataset) == ROWS
        with pytest.raises(UnmetNeedError, match="write"):
            dataset.add([Document("x", "y")])
        with pytest.raises(InputError, match="detach"):
            workspace.drop("orders")
        with pytest.raises(InputError, match="already"):
            workspace.attach("rails", table, table="shop.Orders 100%", **COLUMNS)

        answer = workspace.search("steam engine lamp", 10, strategy="hybrid", refuse=False, rerank=False)
        assert {hit.dataset for hit in answer} == {"orders", "rails"}
        assert f"orders {BOTH}" in {step.source for hit in answer for step in hit.provenance}
        order_hits = dataset.search("order 17", 5, refuse=False)
        assert all(hit.dataset == "orders" for hit in order_hits)
        russian_hits = workspace.search(
            "lamp", 5, filters='lang == "ru" and year >= 2020', datasets=["orders"], refuse=False
        )
        assert russian_hits
        assert all(hit.metadata["lang"] == "ru" and hit.metadata["year"] >= 2020 for hit in russian_hits)

        odd = workspace.search("lamp", 5, filters="colour == 'red'", datasets=["orders"], refuse=False)
        assert not odd.degraded  # it may be in the JSON column
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as reopened_workspace:
        assert reopened_workspace.dataset("orders", create=False).description == "what was ordered"
        assert reopened_workspace.status("orders")["documents"] == ROWS
        reopened_workspace.detach("orders")
        assert reopened_workspace.names() == ["rails"]
        with pytest.raises(UnknownNameError):
            reopened_workspace.detach("orders")


def test_what_could_not_be_asked_is_said(table: str, tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.attach("orders", table, table="shop.Orders 100%", id="number", text="Body text", metadata=["year"])
        answer = workspace.search("lamp", 5, filters="colour == 'red' or year >= 2000", refuse=False)
        assert answer
        assert any("'colour'" in note for note in answer.degraded)
        assert workspace.dataset("orders").indexing_technique == "keyword"


@pytest.mark.parametrize("strategy", ["bm25", "vector", "hybrid", "auto", "multi_query"])
def test_every_strategy_answers_with_both(strategy: Any, table: str, tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("own").add(corpus(20))
        workspace.attach("orders", table, table="shop.Orders 100%", **COLUMNS)
        workspace.attach("again", table, table="shop.Orders 100%", **COLUMNS)
        (answer,) = workspace.search_many(["signal lamp"], 9, strategy=strategy, refuse=False)
        for context in (answer, workspace.search("signal lamp", 9, strategy=strategy, refuse=False)):
            assert {hit.dataset for hit in context} == {"own", "orders", "again"}
            assert all(hit.provenance for hit in context)


def test_rows_without_an_id_or_direction_stand_in_nobodys_way(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg
    from psycopg.types.json import Jsonb

    odd = ["a\xa0b", "信\u3000号", "tab\tline\n", "\u200b", "plain"]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            "create extension if not exists vector; drop table if exists loose; "
            "create table loose (id text, note text, v vector, year int, more jsonb)"
        )
        for id_ in (*odd, "zero", "", None):
            vector = EMBEDDER.embed(f"rail {id_}") * (id_ != "zero")
            row = (id_, f"rail {id_}", str(vector.tolist()), 2001, Jsonb({"year": 7, "colour": "red"}))
            connection.execute("insert into loose values (%s, %s, %s::vector, %s, %s)", row)
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("own").add([{"id": "ours", "text": "rail of ours"}])
        columns: dict[str, Any] = {"id": "id", "text": "note", "vector": "v", "metadata": ("year", "more")}
        loose = workspace.attach("loose", postgres.url, table="loose", **columns)
        assert sorted(loose.ids()) == sorted([*odd, "zero"])
        assert [document.id for document in loose.store.get([*odd, "\ud800", "\0"]) if document] == odd
        near = workspace.search("rail plain", 20, strategy="vector", refuse=False)
        assert {hit.id for hit in near} == {*odd, "ours"}
        assert all(step.score == step.score for hit in near for step in hit.provenance)
        answer = workspace.search("rail", 20, refuse=False)
        assert {hit.id for hit in answer} == {*odd, "zero", "ours"}
        assert (
            loose.store.count(parse_filter("year = 2001 and colour = red")) == len(odd) + 1
        )  # the column, not the key


def test_another_embedder_is_an_error_that_names_both(table: str, tmp_path: Path) -> None:
    other_embedder = HashingEmbedder(dimensions=EMBEDDER.dimensions * 2)
    with pointsman.open(tmp_path / "work", embedder=other_embedder) as workspace:
        with pytest.raises(
            InputError, match=f"{EMBEDDER.dimensions} dimensions.*{other_embedder.name}.*{other_embedder.dimensions}"
        ):
            workspace.attach("orders", table, table="shop.Orders 100%", **COLUMNS)
        assert workspace.names() == []
        workspace.backend.put_record(ATTACHED, "orders", attachment_of(table).to_json())
    with pointsman.open(tmp_path / "work", embedder=other_embedder) as workspace:
        workspace.dataset("rails").add(corpus(20))
        answer = workspace.search("lamp", 5, refuse=False)
        notes = " ".join(answer.degraded)
        assert EMBEDDER.name in notes
        assert other_embedder.name in notes


def test_while_its_server_is_away_the_others_are_searched_and_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch)
    secret = "s3cr3t-Pa55"
    unreachable_table = Attachment(f"postgresql://shop:{secret}@127.0.0.1:1/shop", "orders", "id", "text")
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(40))
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1") as error:
            workspace.attach("orders", unreachable_table.url, table="orders", id="id", text="text")
        workspace.backend.put_record(ATTACHED, "orders", unreachable_table.to_json())
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        answer = workspace.search("rail lamp", 5, refuse=False)
        assert {hit.dataset for hit in answer} == {"rails"}
        assert any("orders" in note for note in answer.degraded)
        for text in (
            str(error.value),
            repr(unreachable_table),
            repr(workspace.dataset("orders").store),
            *answer.degraded,
        ):
            assert secret not in text


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ("{", "record of the attached collection 'orders' is invalid"),
        (Attachment("foo://x", "orders", "id", "text").to_json(), "attached by URLs of"),
        (Attachment("faiss:x", "x", "id", "text", "v", spec="nonsense:x").to_json(), "nonsense"),
    ],
)
def test_a_record_that_cannot_be_used_stands_in_the_way_of_nothing_else(
    tmp_path: Path, record: str, error: str
) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(20))
        workspace.dataset("more").add(corpus(5))
        workspace.backend.put_record(ATTACHED, "orders", record)
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        answer = workspace.search("rail lamp", 5, refuse=False)
        assert answer
        assert any(note.startswith("orders: ") and error in note for note in answer.degraded)
        with pytest.raises(StoreError, match=error):
            workspace.status("orders")
        workspace.drop("more")
        assert backup(workspace, tmp_path / "backup").datasets == {"rails": 20}
        assert restore(tmp_path / "backup", tmp_path / "restored").datasets == {"rails": 20}
        workspace.detach("orders")
        assert not workspace.search("rail lamp", 5, refuse=False).degraded


class Unreachable:
    """A server that takes a second and a half to fail, or until it is released."""

    def __init__(self) -> None:
        self.requests, self.completions, self.seconds, self.release = 0, 0, 1.5, threading.Event()

    def fail(self) -> Any:
        self.requests += 1
        self.release.wait(self.seconds)
        self.completions += 1
        raise StoreUnavailableError("opensearch://127.0.0.1:1 does not answer")


@pytest.fixture
def unreachable() -> Iterator[Unreachable]:
    server = Unreachable()
    yield server
    server.release.set()


@pytest.fixture
def unreachable_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreachable: Unreachable
) -> Iterator[Workspace]:
    """A workspace with a dataset, and with an index whose server takes a second and a half to fail."""

    monkeypatch.setattr(IndexStore, "_fields", property(lambda _: unreachable.fail()))
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails", indexing_technique="keyword").add(corpus(40))
        workspace.backend.put_record(
            ATTACHED, "orders", Attachment("opensearch://127.0.0.1:1", "orders", "id", "text").to_json()
        )
        yield workspace


@pytest.mark.parametrize(
    "search",
    [
        lambda workspace, **options: workspace.search("rail lamp", **options),
        lambda workspace, **options: asyncio.run(workspace.asearch("rail lamp", **options)),
        lambda workspace, **options: workspace.search_many(["rail lamp", "signal"], **options)[0],
    ],
    ids=["search", "asearch", "search_many"],
)
def test_a_server_that_is_away_does_not_hold_a_search_up_beyond_its_time(
    unreachable_workspace: Workspace, unreachable: Unreachable, search: Callable[..., Any]
) -> None:
    def check(limit: float) -> None:
        answer = search(unreachable_workspace, timeout=limit, refuse=False)
        assert unreachable.requests
        assert not unreachable.completions
        assert {hit.dataset for hit in answer} == {"rails"}
        assert any(note.startswith("orders: ") for note in answer.degraded)

    unreachable.seconds = 600
    holds_with_time(check, 0.5, 5, 30)


def test_a_server_that_is_away_is_asked_for_its_columns_once_in_a_while(
    unreachable_workspace: Workspace, unreachable: Unreachable
) -> None:
    store = unreachable_workspace.dataset("orders").store
    for _ in range(9):
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            _ = store.info
    assert unreachable.requests == 1


def test_while_a_server_is_away_routes_and_lists_hold_the_others(unreachable_workspace: Workspace) -> None:
    decision = unreachable_workspace.route("rail lamp").decision
    assert decision is not None
    assert [dataset.name for dataset in decision.datasets] == ["rails", "orders"]
    assert "orders cannot be read (StoreUnavailableError)" in decision.reason
    with serving(create_app(unreachable_workspace)) as address, httpx.Client(base_url=address, timeout=60) as client:
        route = client.post("/api/route", json={"query": "rail lamp"})
        assert route.json()["decision"]["datasets"] == ["rails", "orders"]


def test_attached_and_detached_from_the_command_line(table: str, tmp_path: Path) -> None:
    from pointsman.cli.core_commands import app

    workspace_options = ("--workspace", str(tmp_path / "work"), "--json")
    columns = ("--table", "shop.Orders 100%", "--id", "number", "--text", "Body text", "--metadata", "year")

    def run(*arguments: str) -> Any:
        process = CliRunner().invoke(
            app, [*arguments, *workspace_options], env={"POINTSMAN_EMBEDDER": "hashing"}, catch_exceptions=False
        )
        assert process.exit_code == 0, process.output
        return json.loads(process.stdout)

    (tmp_path / "note.md").write_text("A steam engine.")
    run("index", str(tmp_path / "note.md"), "-d", "notes")
    assert run("attach", "orders", table, *columns, "--vector", "v") == {"dataset": "orders", "documents": ROWS}
    assert [row["name"] for row in run("datasets")] == ["notes", "orders"]
    assert run("search", "lamp", "-d", "orders", "--filter", "year == 2020", "--refuse", "never")["hits"]
    assert [row["documents"] for row in run("status")["datasets"]] == [1, ROWS]
    assert run("detach", "orders") == {"detached": "orders"}
    assert [row["name"] for row in run("datasets")] == ["notes"]


# ── OpenSearch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_b4_an_index_of_opensearch_is_searched_beside_our_own(opensearch: Cluster, tmp_path: Path) -> None:
    from opensearchpy import OpenSearch

    client = OpenSearch(opensearch.url.replace("opensearch://", "http://").split(",")[0], timeout=60)
    vector = {
        "type": "knn_vector",
        "dimension": EMBEDDER.dimensions,
        "method": {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"},
    }
    keyword, text = {"type": "keyword"}, {"type": "text", "fields": {"raw": {"type": "keyword"}}}
    properties = {"body": {"type": "text"}, "v": vector, "year": {"type": "integer"}, "lang": keyword, "tags": text}
    client.indices.create(
        index="shop", body={"settings": {"index": {"knn": True}}, "mappings": {"properties": properties}}
    )
    rows = orders()
    for row, one in zip(rows, EMBEDDER.embed_documents([row["Body text"] for row in rows]), strict=True):
        body = row["Body text"].split(": ") if row["number"] == 3 else row["Body text"]  # one of several values
        source = {"body": body, "v": one.tolist(), **{name: row[name] for name in ("year", "lang", "tags")}}
        client.index(index="shop", body={k: v for k, v in source.items() if v is not None}, id=str(row["number"]))
    client.indices.refresh(index="shop")
    client.close()
    columns: dict[str, Any] = {"id": "_id", "text": "body", "vector": "v", "metadata": ("year", "lang", "tags")}
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(80))
        dataset = workspace.attach("orders", opensearch.url, table="shop", **columns)
        assert len(dataset) == ROWS
        document = dataset.get("7")
        assert document is not None
        assert document.text == rows[7]["Body text"]
        tagged_document = dataset.get("3")
        assert tagged_document is not None
        assert tagged_document.text == rows[3]["Body text"].replace(": ", "\n")
        for expression in (
            "year >= 2020",
            "lang == 'ru'",
            "not lang == 'ru'",
            "tags == 'a' and year == 2021",
            "exists(year)",
        ):
            condition = parse_filter(expression)
            assert dataset.count(expression) == sum(condition.matches(metadata_of(row)) for row in rows), expression
            near = dataset.store.search([StoreQuery(None, EMBEDDER.embed_queries(["lamp"])[0], ROWS, condition)])[0]
            assert all(condition.matches(near.documents[key].metadata) for key, _ in near.rankings[NEAR])
            assert near.rankings[NEAR]
        answer = workspace.search("steam engine lamp", 10, strategy="hybrid", refuse=False, rerank=False)
        assert {hit.dataset for hit in answer} == {"orders", "rails"}
        odd = workspace.search("lamp", 5, datasets=["orders"], filters="price > 1 or year > 2000", refuse=False)
        assert any("'price'" in note for note in odd.degraded)
        by_tag = workspace.attach("tagged", opensearch.url, table="shop", **{**columns, "id": "lang"})
        assert set(by_tag.ids()) == {row["lang"] for row in rows if row["lang"]}  # without a value there is no document
        assert len(by_tag) == sum(row["lang"] is not None for row in rows)
        store_queries = [StoreQuery("order", None, ROWS), StoreQuery(None, EMBEDDER.embed_queries(["order"])[0], ROWS)]
        for name, lists in zip((TEXT, NEAR), by_tag.store.search(store_queries), strict=True):
            assert sorted(key for key, _ in lists.rankings[name]) == sorted(set(by_tag.ids()))  # each once
        assert by_tag.store.get(["", "nobody"]) == [None, None]
        workspace.detach("tagged")
        with pytest.raises(InputError, match="no index 'nothing'"):
            workspace.attach("other", opensearch.url, table="nothing", **columns)
        with pytest.raises(InputError, match="no field 'text'"):
            workspace.attach("other", opensearch.url, table="shop", **{**columns, "text": "text"})
        with pytest.raises(InputError, match="not a knn_vector"):
            workspace.attach("other", opensearch.url, table="shop", **{**columns, "vector": "year"})
