"""Attached collections whose columns say who may see a row: what someone may not see does not exist for them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import pointsman
from pointsman import Document, InputError, RetrievalWorkflow, UnmetNeedError, Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, random_case
from pointsman.evaluation.leaktest import LeakReport, ShippedEmbedder, TwinPair
from pointsman.store.external.attachment import ATTACHED, Attachment
from pointsman.store.postgres.attached_table import TableStore
from pointsman.store.store_values import NEAR, SPREAD_NOTE, StoreQuery
from pointsman.values.views import ACCESS, AccessColumns, View, permissions_of

if TYPE_CHECKING:
    from pointsman.store.external.attachment import AttachedStore
    from postgres_kit import PostgresServer

EMBEDDER = HashingEmbedder()
ANNA = ["user:anna", "group:rail"]
ACCESS_OPTION = {"access": "readers,-barred"}
UNSEEN: tuple[Any, ...] = ([], None, 5, True, {"group:rail": 1}, ["group:rail", 7], [["group:rail"]])
"""What a column may have that allows nobody."""

Row = Mapping[str, Any]
Attach = Callable[[Workspace, str, Sequence[Row]], None]


def readers_of(document: Document) -> dict[str, Any]:
    """What a row's two columns have for the access of a document, in one of the ways in which they may say it."""
    chance = random.Random(document.id)
    permissions = permissions_of(document.metadata)
    if permissions is None or not permissions.allow:
        return {"readers": chance.choice(UNSEEN), "barred": None}
    allow, deny = sorted(permissions.allow), sorted(permissions.deny)
    return {
        "readers": allow[0] if len(allow) == 1 and chance.random() < 0.5 else allow,
        "barred": deny[0] if len(deny) == 1 and chance.random() < 0.5 else deny or None,
    }


def row_of(document: Document) -> Row:
    metadata = {name: value for name, value in document.metadata.items() if name != ACCESS}
    return {**metadata, **readers_of(document), "id": document.id, "text": document.text}


def write_table(url: str, table: str, rows: Sequence[Row], vectors: np.ndarray, *, in_json: bool = False) -> None:
    """Make a table of somebody else; who may see a row is said by columns, or by keys of its JSON column."""
    import psycopg
    from psycopg.types.json import Jsonb

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension if not exists vector")
        columns = "" if in_json else ", readers jsonb, barred jsonb"
        connection.execute(
            f"create table {table} (id text primary key, text text, meta jsonb, v vector({vectors.shape[1]}){columns})"
        )
        for row, vector in zip(rows, vectors, strict=True):
            column_names = {"id", "text"} if in_json else {"id", "text", "readers", "barred"}
            meta = Jsonb({name: row[name] for name in row if name not in column_names})
            access = (
                [] if in_json else [None if row[name] is None else Jsonb(row[name]) for name in ("readers", "barred")]
            )
            marks = ", ".join(["%s"] * (4 + len(access)))
            connection.execute(
                f"insert into {table} values ({marks})", (row["id"], row["text"], meta, str(vector.tolist()), *access)
            )
        connection.execute(f"create index on {table} using hnsw (v vector_cosine_ops)")


def attach_table(workspace: Workspace, name: str, url: str, rows: Sequence[Row], *, in_json: bool = False) -> None:
    """Attach a new table with these rows."""
    table = f"orders_{uuid.uuid4().hex}"
    vectors = EMBEDDER.embed_documents([row["text"] for row in rows]).reshape(-1, EMBEDDER.dimensions)
    write_table(url, table, [{"readers": None, "barred": None, **row} for row in rows], vectors, in_json=in_json)
    columns: dict[str, Any] = {"id": "id", "text": "text", "vector": "v", "metadata": ["meta"]}
    workspace.attach(name, url, table=table, **columns, **ACCESS_OPTION)


# ── twins ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class AttachedTwins(TwinPair):
    """Two workspaces with attached collections, one of them with the rows that an asker may not see."""

    def __init__(self, case: TwinCase, attach: Attach) -> None:
        self._attach = attach
        super().__init__(case, "access", ShippedEmbedder())

    def _copy(self, scratch: Any, embedder: Any, *, hidden: bool) -> Workspace:
        backend, workflow = self._stack.enter_context(scratch()), RetrievalWorkflow(timeout=None)
        workspace: Workspace = self._stack.enter_context(Workspace(backend, embedder=embedder, workflow=workflow))
        visible_ids = self._finally_visible()
        workspace.dataset("own").add([{"id": "own", "text": "The switch at the station."}], access=["everyone"])
        for name in self.case.techniques:
            documents: dict[str, Document] = {}
            for write in self.case.writes:
                if write.dataset == name:
                    documents.update((document.id, document) for document in write.documents)
                    for id_ in write.deleted:
                        documents.pop(id_, None)
                    for id_, access in write.access:
                        if id_ in documents:
                            metadata = {**documents[id_].metadata, ACCESS: access.to_metadata()}
                            documents[id_] = Document(id_, documents[id_].text, metadata)
            rows = [row_of(document) for id_, document in documents.items() if hidden or id_ in visible_ids[name]]
            self._attach(workspace, name, rows)
        workspace.switch_access(on=True)
        return workspace


def differences(attach: Attach, pairs: int, questions: int, seed: int) -> LeakReport:
    report, chance = LeakReport(), random.Random(seed)
    for _ in range(pairs):
        case = random_case(random.Random(chance.random()), questions)
        with AttachedTwins(case, attach) as twins:
            twins.compare(report, {"with hidden documents": [], "without": []})
    return report


@pytest.mark.parametrize("in_json", [False, True], ids=["columns", "json"])
def test_answers_over_a_table_are_equal_to_the_byte_at_every_door(postgres: PostgresServer, in_json: bool) -> None:
    def attach(workspace: Workspace, name: str, rows: Sequence[Row]) -> None:
        attach_table(workspace, name, postgres.url, rows, in_json=in_json)

    report = differences(attach, 6, 12, seed=6)
    assert report.comparisons == 72
    assert report.differing == 0, report.leaks[:3]


def test_without_the_columns_the_same_comparison_finds_leaks(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableStore, "_access", lambda *_: "true")

    def attach(workspace: Workspace, name: str, rows: Sequence[Row]) -> None:
        attach_table(workspace, name, postgres.url, rows)

    assert differences(attach, 2, 12, seed=5).differing > 3


# ── who sees what ────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS: list[Row] = [
    {"id": "rail", "text": "signal at the yard", "readers": ["group:rail", "user:carl"], "year": 2020},
    {"id": "all", "text": "timetable of the yard", "readers": "everyone", "barred": [], "year": 2021},
    {"id": "pay", "text": "zanzibarko salary", "readers": ["group:money"], "year": 2022},
    {
        "id": "barred",
        "text": "timetable for all but anna",
        "readers": ["everyone"],
        "barred": "user:anna",
        "year": 2023,
    },
    {"id": "odd", "text": "signal whose barred list is none", "readers": ["everyone"], "barred": [1], "year": 2024},
    *({"id": f"unseen{number}", "text": "signal", "readers": value} for number, value in enumerate(UNSEEN)),
    {"id": "silent", "text": "signal of nobody"},
]
FOR_ANNA, FOR_EVERYONE = {"rail", "all"}, {"all", "barred"}


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path) -> Iterator[Workspace]:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("own").add([Document("own", "signal of our own")], access=["everyone"])
        attach_table(workspace, "orders", postgres.url, ROWS)
        workspace.switch_access(on=True)
        yield workspace


def ids(workspace: Workspace, query: str, principals: Sequence[str], **options: Any) -> set[str]:
    answer = workspace.search(query, 50, principals=principals, refuse=False, datasets="orders", **options)
    assert not answer.degraded
    return {hit.id for hit in answer}


def test_rows_exist_for_whom_their_columns_name(shop: Workspace) -> None:
    assert shop.names() == ["orders", "own"]
    assert ids(shop, "signal timetable", ANNA) == FOR_ANNA
    assert ids(shop, "signal timetable", []) == FOR_EVERYONE
    assert ids(shop, "signal timetable", ["group:money"]) == {*FOR_EVERYONE, "pay"}
    joint_answer = shop.search("signal", 50, principals=ANNA, refuse=False)
    assert {hit.dataset for hit in joint_answer} == {"orders", "own"}
    with pytest.raises(InputError, match="access is on"):
        shop.search("signal")
    with pytest.raises(InputError, match="access is on"):
        shop.dataset("orders").search("signal")
    view = shop.dataset("orders").in_view(ANNA)
    assert (len(view), sorted(view.ids())) == (2, sorted(FOR_ANNA))
    assert [view.get(id_) for id_ in ("pay", "barred", "silent")] == [None] * 3
    assert view.count("year >= 2021") == 1
    assert len(view.store.vectors()) == 2
    with pytest.raises(UnmetNeedError, match="'days'"):
        shop.search("signal", principals=ANNA, datasets="orders", as_of="2026-03-01")


def test_the_columns_are_not_shown_and_no_filter_refers_to_them(shop: Workspace) -> None:
    answer = shop.search("signal timetable", 50, principals=ANNA, refuse=False, datasets="orders")
    assert {frozenset(hit.document.metadata) for hit in answer} == {frozenset({"year"})}
    unfiltered = shop.search(
        "signal", 50, principals=ANNA, refuse=False, datasets="orders", filters="readers exists or barred exists"
    )
    assert not unfiltered.hits


def test_statistics_are_those_of_the_rows_that_exist(shop: Workspace) -> None:
    view = shop.dataset("orders").in_view(ANNA).store
    statistics = view.statistics()
    assert statistics.documents == 2
    record = shop.backend.records(ATTACHED)["orders"].value
    stored_spread = json.loads(record)["spread"]
    mean = json.loads(statistics.notes[SPREAD_NOTE])[0]
    visible_vectors = EMBEDDER.embed_documents([row["text"] for row in ROWS if row["id"] in FOR_ANNA])
    assert mean == pytest.approx(float((visible_vectors @ visible_vectors.T).mean()), abs=1e-6)
    assert mean != pytest.approx(stored_spread[0], abs=1e-3)


def test_best_cosines_are_those_of_searches(shop: Workspace) -> None:
    store = shop.dataset("orders").in_view([*ANNA, "group:money"]).store
    questions = EMBEDDER.embed_queries(["signal", "timetable of the yard", "zanzibarko", "elsewhere"])
    lists = store.search([StoreQuery(None, question, 1) for question in questions])
    assert store.best_cosines(questions) == [
        score for ranked in lists for _, score in next(iter(ranked.rankings.values()))
    ]
    assert np.isnan(shop.dataset("orders").in_view(["user:eve"]).store.best_cosines(questions[:0] * 0)).all()


def test_while_access_is_off_the_columns_decide_nothing(shop: Workspace) -> None:
    shop.switch_access(on=False)
    answer = shop.search("signal", 50, refuse=False, datasets="orders")
    assert len(answer.hits) == len(ROWS)
    assert not any({"readers", "barred"} & hit.document.metadata.keys() for hit in answer)


def test_a_change_of_a_table_counts_from_the_next_search_on(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    table = f"orders_{uuid.uuid4().hex}"
    rows = [{"readers": None, "barred": None, **row} for row in ROWS]
    write_table(postgres.url, table, rows, EMBEDDER.embed_documents([row["text"] for row in rows]))
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        columns: dict[str, Any] = {"id": "id", "text": "text", "vector": "v"}
        dataset = workspace.attach("orders", postgres.url, table=table, **columns, **ACCESS_OPTION)
        workspace.switch_access(on=True)
        states = [dataset.in_view(ANNA).store.state]  # type: ignore[attr-defined]
        for change, expected in (
            (f"update {table} set readers = '[\"group:money\"]' where id = 'rail'", {"all"}),
            (f"update {table} set text = text || '!' where id = 'all'", {"all"}),
            (f"delete from {table} where id = 'all'", set()),
        ):
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(change)
            assert ids(workspace, "signal timetable", ANNA) == expected
            states.append(dataset.in_view(ANNA).store.state)  # type: ignore[attr-defined]
        assert len(set(states)) == len(states)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"update {table} set text = 'other' where id = 'pay'")
        assert dataset.in_view(ANNA).store.state == states[-1]  # type: ignore[attr-defined]


def test_all_vectors_of_a_view_are_compared_and_none_chosen_by_an_index(postgres: PostgresServer) -> None:
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(400, 16)).astype(np.float32)
    rows = [
        {"id": f"{n:03}", "text": "x", "readers": ["group:rail" if n % 40 == 0 else "group:money"], "barred": None}
        for n in range(len(vectors))
    ]
    table = f"orders_{uuid.uuid4().hex}"
    write_table(postgres.url, table, rows, vectors)
    attachment = Attachment(postgres.url, table, "id", "text", "v", access=AccessColumns("readers"))
    store: AttachedStore = attachment.open()
    query = vectors[1] / np.linalg.norm(vectors[1])
    view = store.in_view(View.of(ANNA), lambda _: {})
    (answer,) = view.search([StoreQuery(None, query, 50)])
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    expected = sorted((float(cosines[n]) for n in range(0, 400, 40)), reverse=True)
    assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(expected, abs=1e-6)
    store.close()


def texts_in(column: object) -> set[str] | None:
    """The texts that a column has; None if it is neither a text nor a list of texts."""
    texts = [column] if isinstance(column, str) else column
    return set(texts) if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else None


def admits(view: View, allow: object, deny: object) -> bool:
    """Whether a row with these values of its two columns exists in a view."""
    allowed_names, denied_names = texts_in(allow), set() if deny is None else texts_in(deny)
    if allowed_names is None or denied_names is None or view.principals is None:
        return False
    return not allowed_names.isdisjoint(view.principals) and denied_names.isdisjoint(view.identity)


principals = st.sampled_from(["group:rail", "group:money", "user:anna", "everyone", "", "group:"])
columns_of_rows = st.recursive(
    st.one_of(principals, st.none(), st.integers(0, 3), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(principals, inner, max_size=2)),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def conditions(postgres: PostgresServer) -> Iterator[Any]:
    """Asks PostgreSQL which rows a view admits."""
    import psycopg

    table = f"orders_{uuid.uuid4().hex}"
    write_table(postgres.url, table, [], np.zeros((0, 2), np.float32))
    store: Any = Attachment(postgres.url, table, "id", "text", access=AccessColumns("readers", "barred")).open()
    with psycopg.connect(postgres.url, autocommit=True) as connection:

        def rows_admitted_by(rows: Sequence[tuple[Any, Any]], view: View) -> list[bool]:
            from psycopg.types.json import Jsonb

            connection.execute(f"truncate {table}")
            for number, row in enumerate(rows):
                values = [None if value is None else Jsonb(value) for value in row]
                connection.execute(
                    f"insert into {table} (id, text, readers, barred) values (%s, '', %s, %s)", (str(number), *values)
                )
            ids_in_view = set(store.in_view(view, lambda _: {}).ids())
            return [str(number) in ids_in_view for number in range(len(rows))]

        yield rows_admitted_by
    store.close()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(columns_of_rows, columns_of_rows), min_size=1, max_size=12),
    asker=st.sets(st.sampled_from(["group:rail", "group:money", "user:anna"])),
)
def test_columns_admit_whom_they_name(conditions: Any, rows: Any, asker: set[str]) -> None:
    view = View.of(asker)
    assert conditions(rows, view) == [admits(view, allow, deny) for allow, deny in rows]


# ── what cannot keep to it ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url", ["chroma://127.0.0.1:1", "meilisearch://127.0.0.1:1", "opensearch://127.0.0.1:1", "faiss:orders.faiss"]
)
def test_other_kinds_are_refused_by_the_name_of_the_capability(tmp_path: Path, url: str) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        columns = {"id": "id", "text": "document", "vector": "embedding"}
        with pytest.raises(UnmetNeedError, match="lacks the capability 'views': it chooses candidates"):
            workspace.attach("orders", url, table="orders", **columns, access="readers")
        assert workspace.names() == []


def test_what_a_table_cannot_say_is_refused_with_the_reason(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    name = uuid.uuid4().hex
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create extension if not exists vector")
        connection.execute(
            f"create table t_{name} (id int primary key, text text, readers text[], n int, padded char(9), v vector)"
        )
        connection.execute(f"create view v_{name} as select * from t_{name}")
    plain: dict[str, Any] = {"table": f"t_{name}", "id": "id", "text": "text"}
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        for change, message in (
            ({"access": "absent"}, "no column 'absent'; it has id, text, readers"),
            ({"access": "n"}, "'n' of .* is integer; who may see a row is said by a column of text"),
            ({"access": "padded"}, r"'padded' of .* is character\(9\)"),
            ({"access": "readers,-n"}, "'n' of .* is integer"),
            ({"access": "readers", "table": f"v_{name}"}, "lacks the capability 'views': only a table says"),
            ({"access": "readers", "vector": "v"}, "may have any number of dimensions"),
            ({"access": "readers", "metadata": ["readers"]}, "'readers' says who may see a row"),
            ({"access": "text"}, "'text' says who may see a row"),
            ({"access": "a,b"}, "access is COLUMN, or COLUMN,-COLUMN"),
            ({"access": {"allow": "a", "write": "b"}}, "the name of a column, or a mapping"),
            ({"access": {"allow": "a", "deny": 5}}, "the name of a column with principals"),
        ):
            with pytest.raises(InputError, match=message):
                workspace.attach("orders", postgres.url, **{**plain, **change})
        assert workspace.names() == []
        workspace.attach("orders", postgres.url, **plain, access={"allow": "readers"})
        assert workspace.names() == ["orders"]


def test_a_collection_without_columns_does_not_exist_for_writers_either(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = f"orders_{uuid.uuid4().hex}"
    write_table(postgres.url, name, [], np.zeros((0, EMBEDDER.dimensions), np.float32))
    columns: dict[str, Any] = {"table": name, "id": "id", "text": "text", "vector": "v"}
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.attach("orders", postgres.url, **columns)
        workspace.switch_access(on=True)
        assert workspace.names() == []
        for ask in (workspace.drop, workspace.repair, workspace.status):
            with pytest.raises(InputError, match="no dataset named 'orders'"):
                ask("orders")
        workspace.attach("more", postgres.url, **columns, access={"allow": "readers", "deny": "barred"})
        assert workspace.names() == ["more"]


def test_a_table_that_does_not_answer_in_time_is_left_out(shop: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    release = Event()
    monkeypatch.setattr(TableStore, "in_view", lambda *_: release.wait(60))
    monkeypatch.setattr("pointsman.workspace.workspace_lifecycle._VIEW_SECONDS", 0.05)
    answer = shop.search("signal", principals=ANNA, refuse=False)
    release.set()
    assert {hit.dataset for hit in answer} == {"own"}
    assert any("has not said within 0.05 s" in note for note in answer.degraded)


def test_columns_are_given_as_a_text_a_mapping_or_themselves() -> None:
    columns = AccessColumns("readers", "barred")
    assert AccessColumns.of(columns) is columns
    assert AccessColumns.of("readers,-barred") == AccessColumns.of({"allow": "readers", "deny": "barred"}) == columns


def test_columns_are_named_on_the_command_line_and_stay_in_the_record(postgres: PostgresServer, tmp_path: Path) -> None:
    name, place = f"orders_{uuid.uuid4().hex}", str(tmp_path / "work")
    write_table(postgres.url, name, [], np.zeros((0, EMBEDDER.dimensions), np.float32))
    options = ("--table", name, "--id", "id", "--text", "text", "--vector", "v", "--workspace", place)
    arguments = ("attach", "orders", postgres.url, *options, "--access", "readers,-barred", "--json")
    answer = CliRunner().invoke(app, arguments, env={"POINTSMAN_EMBEDDER": "hashing"})
    assert answer.exit_code == 0, answer.output
    with pointsman.open(place, embedder=EMBEDDER) as workspace:
        record = workspace.backend.records(ATTACHED)["orders"].value
        assert Attachment.from_json(record, "orders").access == AccessColumns("readers", "barred")
        record_of_before = json.loads(record)
        del record_of_before["access"]
        assert Attachment.from_json(json.dumps(record_of_before), "orders").access is None
