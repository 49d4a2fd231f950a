"""Access by document in PostgreSQL: exact, and noticed by every service over one database."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pointsman
from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leaktest import leaktest
from pointsman.service.server import create_app
from pointsman.store.store_values import StoreQuery
from pointsman.values.views import View
from serving import serving

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from revocation import Answer, Revocation, fill, judge, measure

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

ANNA = ["user:anna", "group:rail"]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url}?schema=views_{uuid.uuid4().hex}"


@pytest.fixture
def workspace(url: str) -> Iterator[Workspace]:
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document(f"rail-{n}", f"signal number {n} at the yard") for n in range(5)], access=["group:rail"])
        dataset.add([Document(f"pay-{n}", f"zanzibarko salary number {n}") for n in range(5)], access=["group:money"])
        dataset.add([Document("all", "timetable of the yard")], access=["everyone"])
        dataset.add([Document("none", "timetable that nobody may see")])
        workspace.switch_access(on=True)
        yield workspace


def ids(workspace: Workspace, query: str, principals: Sequence[str], **options: Any) -> set[str]:
    return {hit.id for hit in workspace.search(query, 50, principals=principals, refuse=False, **options)}


def test_answers_with_and_without_hidden_documents_are_equal_to_the_byte(workspace: Workspace) -> None:
    schemas = "select count(*) from pg_namespace where starts_with(nspname, 'pointsman_scratch')"
    store: Any = workspace.dataset("notes").store
    report = leaktest(workspace, pairs=1, questions=12, seed=4)
    assert report.comparisons == 12
    assert report.differing == 0, report.leaks[:3]
    assert store._rows(schemas) == [(0,)], "the copies are deleted"


def test_a_filter_used_as_a_wall_is_found_to_leak(workspace: Workspace) -> None:
    report = leaktest(workspace, pairs=1, questions=12, seed=4, wall="filter")
    assert report.differing > 3


def test_what_is_hidden_is_neither_counted_nor_read(workspace: Workspace) -> None:
    view = workspace.dataset("notes").in_view(ANNA)
    assert len(view) == 6
    assert view.ids() == [*(f"rail-{n}" for n in range(5)), "all"]
    assert view.get("pay-1") is None
    assert view.store.keys(["pay-1", "all"]).keys() == {"all"}
    assert view.store.frequencies(["zanzibarko", "timetable"]) == [0, 1]
    hidden_keys = list(workspace.dataset("notes").store.keys(["pay-1"]).values())
    assert view.store.fetch(hidden_keys) == [None]
    assert not len(view.store.vectors(hidden_keys))
    assert view.store.score([StoreQuery("salary")], [hidden_keys]) == [{"bm25": {}, "matched": {}}]
    assert "_access" not in view.get("all").metadata  # type: ignore[union-attr]


def test_a_source_is_looked_up_among_what_is_visible(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the time would tell of a source that only hidden documents name."""
    dataset = workspace.dataset("notes")
    hidden = [Document(f"s{n}", f"salary {n}", {"source": "pay.md", "start": 0, "end": 8}) for n in range(3000)]
    dataset.add(hidden, access=["group:money"])
    sources = {
        "own": "yard.md",
        "quoted": 'a"b\\c\x01\x00\n/é.md',
        "long": "x" * 900,
        "as long": "x" * 899 + "y",
        "wide": "信号" * 300,
    }
    dataset.add([Document(id_, "signal", {"source": source}) for id_, source in sources.items()], access=["group:rail"])
    dataset.add(Document("list", "signal", {"origin": ["yard.md"]}), access=["group:rail"])
    view = dataset.in_view(ANNA)
    for id_, source in sources.items():
        assert view.ids(source=source) == [id_]
    assert view.ids(source="yard.md", filters="start = 0") == []
    assert view.ids(source="\ud800") == []
    psycopg = pytest.importorskip("psycopg")
    store: Any = view.store
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(f"analyze {store.tables.doc}")
    statements: list[tuple[str, dict[str, Any]]] = []
    real = type(store)._rows

    def note(self: Any, sql: str, **parameters: Any) -> Any:
        statements.append((sql, parameters))
        return real(self, sql, **parameters)

    monkeypatch.setattr(type(store), "_rows", note)
    pages = {}
    for source in ("pay.md", "absent.md"):
        statements.clear()
        assert view.ids(source=source) == []
        (sql, parameters), *others = statements
        assert not others
        ((plan,),) = real(store, f"explain (analyze, buffers, format json) {sql}", **parameters)
        pages[source] = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
        assert "Rows Removed by Filter" not in str(plan), plan
    assert pages["pay.md"] == pages["absent.md"] < 20


def test_access_that_is_changed_here_counts_from_the_next_search_on(workspace: Workspace) -> None:
    dataset = workspace.dataset("notes")
    assert ids(workspace, "salary", ANNA).isdisjoint({"pay-0", "pay-1"})
    dataset.set_access({"pay-0": ["user:anna"], "rail-0": None})
    seen = ids(workspace, "salary signal", ANNA)
    assert "pay-0" in seen
    assert "rail-0" not in seen
    dataset.delete(["pay-0"])
    assert "pay-0" not in ids(workspace, "salary", ANNA)


def test_a_view_that_was_taken_before_shows_nothing_that_was_taken_away_since(workspace: Workspace) -> None:
    dataset = workspace.dataset("notes")
    view = dataset.in_view(ANNA)
    dataset.set_access({"rail-0": ["group:money"]})
    assert "rail-0" not in view.ids()
    lists = view.store.search([StoreQuery("signal", depth=50)])[0]
    assert {document.id for document in lists.documents.values()} == {f"rail-{n}" for n in range(1, 5)}


def test_another_process_takes_documents_away(workspace: Workspace, url: str) -> None:
    with pointsman.open(url, embedder=HashingEmbedder()) as other:
        assert "rail-1" in ids(other, "signal", ANNA)
        workspace.dataset("notes").set_access({"rail-1": None})
        assert "rail-1" not in ids(other, "signal", ANNA), "the database says so, whatever is remembered"


def test_equal_permissions_are_one_signature(workspace: Workspace) -> None:
    store: Any = workspace.dataset("notes").store
    store_in_view = store.in_view(View.of(ANNA), lambda _: {})
    rows = store._rows(f"select documents, tokens from {store.tables.signature} where documents > 0")
    assert len(rows) == 4
    assert sum(documents for documents, _ in rows) == 12
    assert store_in_view.state == store.in_view(View.of([*ANNA, "user:other"]), lambda _: {}).state
    workspace.dataset("notes").set_access({"pay-0": None})
    assert store_in_view.state == store.in_view(View.of(ANNA), lambda _: {}).state, "nothing of the view has changed"
    workspace.dataset("notes").set_access({"rail-0": None})
    assert store_in_view.state != store.in_view(View.of(ANNA), lambda _: {}).state


def test_a_deleted_dataset_leaves_no_table(workspace: Workspace) -> None:
    store: Any = workspace.dataset("notes").store
    workspace.drop("notes")
    tables = f"starts_with(relname, 'd{store.tables.number}_') and relnamespace = '{store.tables.schema}'::regnamespace"
    assert store._rows(f"select relname from pg_class where {tables}") == []


def test_revoked_documents_are_in_no_answer_of_any_service_after_a_second(url: str) -> None:
    with ExitStack() as stack:
        workspaces = [stack.enter_context(pointsman.open(url, embedder=HashingEmbedder())) for _ in range(2)]
        keys = fill(workspaces[0])
        places = [stack.enter_context(serving(create_app(workspace))) for workspace in workspaces]
        for seconds in (1, 10, 30):  # the longer ones if the machine is too busy for a search in the first
            outcome = measure(places, *keys, seconds=seconds, clients=2)
            assert outcome.failures == 0
            assert outcome.wrong == 0
            if outcome.checked:
                break
    assert outcome.checked > 0


def test_an_answer_with_a_revoked_document_is_counted() -> None:
    taken_away = Revocation(frozenset({"a"}), 10.0, 20.0)
    early, late, given_back = (Answer(begun, begun + 0.1, frozenset({"a", "b"})) for begun in (10.5, 12.0, 19.95))
    outcome = judge([early, late, given_back, Answer(13.0, 13.1, frozenset({"b"}))], [taken_away])
    assert (outcome.checked, outcome.wrong) == (2, 1)
    assert outcome.slowest == pytest.approx(2.0)


def test_a_day_has_its_documents_and_its_statistics(url: str) -> None:
    old, new = Document("old", "the notice period is one month"), Document("new", "the notice period is two months")
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("contracts")
        dataset.add([Document(old.id, old.text, {"valid_from": "2025-01-01", "valid_to": "2025-12-31"})])
        dataset.add([Document(new.id, new.text, {"valid_from": "2026-01-01"})], access=["group:law"])
        for day, id_ in (("2025-06-01", "old"), ("2026-06-01", "new")):
            assert {hit.id for hit in workspace.search("notice period", as_of=day, refuse=False)} == {id_}
        workspace.switch_access(on=True)
        assert ids(workspace, "notice period", ["group:law"], as_of="2026-06-01") == {"new"}
        assert not ids(workspace, "notice period", ["group:law"], as_of="2025-06-01")


def test_best_cosines_are_those_of_searches_and_are_computed_once_for_each_signature(url: str) -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((120, 16)).astype(np.float32)
    rows[::7] = rows[0]
    questions = random.standard_normal((9, 16)).astype(np.float32)
    questions /= np.linalg.norm(questions, axis=1, keepdims=True)
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes", indexing_technique="vector")
        dataset.add(
            [Document(f"{n}", "text", {"_access": {"allow": [f"group:{n % 12}"]}}) for n in range(120)], vectors=rows
        )
        workspace.switch_access(on=True)
        store: Any = dataset.store
        signatures = []

        def check(groups: Sequence[int]) -> None:
            view = dataset.in_view([f"group:{number}" for number in groups]).store
            lists = view.search([StoreQuery(None, question, 1) for question in questions])
            assert view.best_cosines(questions) == [ranked.rankings["vector"][0][1] for ranked in lists]
            signatures.append(len(store.cosines_of_signatures))

        for groups in (range(5), range(3, 8), range(2, 7)):
            check(groups)
        assert signatures == [5, 8, 8]
        dataset.set_access({"0": ["group:7"]})
        check(range(5))
        dataset.delete(["7", "19"])
        check(range(3, 8))
        dataset.add([Document("new", "x", {"_access": {"allow": ["group:3"]}})], vectors=questions[:1])
        check(range(5))
        zero = questions[:2] * np.array([[1], [0]], np.float32)
        assert np.isnan(dataset.in_view(["group:3"]).store.best_cosines(zero)).tolist() == [False, True]
        assert np.isnan(dataset.in_view(["group:none"]).store.best_cosines(questions)).all()
