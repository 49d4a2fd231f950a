"""Chroma, FAISS files and Meilisearch as vector and keyword stores, and as collections beside our own (B4, S10)."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner, Result

import pointsman
from fake_meilisearch import FakeMeilisearch
from pointsman import InputError, KeywordRetriever, UnmetNeedError, VectorRetriever, parse_filter
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import measured
from pointsman.service.server import create_app
from pointsman.store.external.attachment import ATTACHED, Attachment, as_written, matching, narrowed
from pointsman.store.local.local_store import LocalStore
from pointsman.store.store_values import NEAR, StoreQuery
from pointsman.tools.errors import CorruptStoreError, StoreError, StoreUnavailableError
from pointsman.values.filters import And, Equals, Exists, Filter, In, Not, Or, Range
from pointsman.values.types import Document, Query
from serving import serving
from store_kit import corpus
from test_attach import EMBEDDER, ROWS, metadata_of, orders, trees

if TYPE_CHECKING:
    from chroma_kit import ChromaServer
    from opensearch_kit import Cluster
    from pointsman.store.external.attachment import AttachedStore
    from postgres_kit import PostgresServer

KEY = "k3y-s3cret"
TEXTS = [row["Body text"] for row in orders()]
METADATA = [{key: value for key, value in metadata_of(row).items() if value != []} for row in orders()]
METADATA = [
    {**metadata, "place": unicodedata.normalize("NFD" if number % 2 else "NFC", "Łódź, Übung")}
    for number, metadata in enumerate(METADATA)
]
VECTORS = EMBEDDER.embed_documents(TEXTS)
COSINES = VECTORS @ EMBEDDER.embed_queries(["steam engine lamp"])[0]
CHROMA: dict[str, Any] = {"id": "id", "text": "document", "vector": "embedding"}
FAISS: dict[str, Any] = {"table": "orders.jsonl", "id": "id", "text": "text", "vector": "vector"}
MEILI: dict[str, Any] = {
    "table": "shop",
    "id": "number",
    "text": "body",
    "vector": "mine",
    "metadata": ("year", "lang", "price", "done", "tags"),
}


# ── what all of them do with filters ─────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=300, deadline=None)
@given(condition=trees)
def test_what_a_database_is_asked_lets_through_all_that_match(condition: Filter) -> None:
    """With conditions on some kinds of parts only, as a database has them."""

    def leaf(condition: Filter) -> Filter | None:
        return condition if isinstance(condition, Equals | Exists) else None

    narrow = narrowed(
        condition, leaf, lambda word, operands: And(tuple(operands)) if word == "and" else Or(tuple(operands))
    )
    for metadata in METADATA:
        if condition.matches(metadata):
            assert narrow is None or narrow.matches(metadata)


def test_a_filter_that_is_rare_is_looked_for_further_away() -> None:
    rows = [(str(n), -float(n), Document(str(n), "", {"n": n})) for n in range(1000)]
    sizes: list[int] = []

    def ask(size: int) -> list[list[Any]]:
        sizes.append(size)
        return [rows[:size]]

    lists, notes = matching(Range("n", gte=990), 5, 5000, ask)
    assert ([key for key, _, _ in lists[0]], notes) == (["990", "991", "992", "993", "994"], [])
    assert sizes[0] == 5
    assert 995 <= sizes[-1] <= 5000, "it ends as soon as five are found, and stays below the limit"
    assert sum(sizes[:-1]) < sizes[-1], "all that is asked for in vain is less than what is asked for last"
    assert "first 500 documents only" in matching(Range("n", gte=990), 5, 500, ask)[1][0]
    sizes.clear()
    assert len(matching(None, 5, 5000, ask)[0][0]) == 5
    assert sizes == [5]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_engine_that_compares_code_points_is_asked_for_both_forms(form: Literal["NFC", "NFD"]) -> None:
    composed, apart = (unicodedata.normalize(other_form, "Übung") for other_form in ("NFC", "NFD"))
    asked = unicodedata.normalize(form, "Übung")
    assert set(as_written(Equals("place", asked))) == {("string", composed), ("string", apart)}
    assert set(as_written(In("place", (asked, "x")))) == {("string", composed), ("string", apart), ("string", "x")}


# ── Chroma ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_collection(server: ChromaServer, name: str, space: str = "cosine", vectors: Any = VECTORS) -> None:
    root = f"{server.http}/tenants/default_tenant/databases/default_database/collections"
    with httpx.Client(timeout=60) as client:
        response = client.post(root, json={"name": name, "configuration": {"hnsw": {"space": space}}})
        body = {
            "ids": [str(number) for number in range(ROWS)],
            "embeddings": vectors.tolist(),
            "documents": TEXTS,
            "metadatas": METADATA,
        }
        client.post(f"{root}/{response.raise_for_status().json()['id']}/add", json=body).raise_for_status()


@pytest.fixture(scope="module")
def orders_in_chroma(chroma: ChromaServer) -> str:
    make_collection(chroma, "orders")
    return chroma.url


@pytest.fixture(scope="module")
def chroma_store(orders_in_chroma: str) -> Iterator[AttachedStore]:
    with closing(attachment_of(orders_in_chroma, table="orders", **CHROMA).open()) as store:
        yield store


def attachment_of(url: str, **change: Any) -> Attachment:
    return Attachment(**{"url": url, "embedder": EMBEDDER.name, **change})


@pytest.mark.parametrize("space", ["cosine", "ip", "l2"])
def test_a_collection_of_chroma_is_read_by_its_own_distance(chroma: ChromaServer, space: str) -> None:
    lengths = np.linspace(0.5, 2, ROWS)[:, None]  # tells the three apart
    make_collection(chroma, f"by-{space}", space, VECTORS * lengths)
    query = EMBEDDER.embed_queries(["steam engine lamp"])[0]
    with closing(attachment_of(chroma.url, table=f"by-{space}", **CHROMA).open()) as store:
        assert (store.info.dimensions, store.count(), store.technique) == (EMBEDDER.dimensions, ROWS, "vector")
        (answer,) = store.search([StoreQuery("lamp", query, ROWS)])
        assert list(answer.rankings) == [NEAR]
        right = {
            "cosine": COSINES,
            "ip": COSINES * lengths[:, 0],
            "l2": -np.sum((VECTORS * lengths - query) ** 2, axis=1),
        }[space]
        for key, score in answer.rankings[NEAR]:
            assert score == pytest.approx(right[int(key)], abs=1e-4)
        assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(sorted(right, reverse=True), abs=1e-4)


def test_documents_of_chroma_come_as_they_are(chroma_store: AttachedStore) -> None:
    document, absent, odd = chroma_store.get(["7", "no such id", "\ud800"])
    assert document == Document("7", TEXTS[7], METADATA[7])
    assert absent is odd is None
    first = chroma_store.page(None, 50)
    second_page = chroma_store.page(first.next, 200)
    assert sorted(int(document.id) for document in (*first.documents, *second_page.documents)) == list(range(ROWS))
    assert second_page.next is None
    assert np.allclose(chroma_store.vectors(["3", "1"]), VECTORS[[3, 1]], atol=1e-6)
    assert chroma_store.vectors(sample=20).shape[1] == EMBEDDER.dimensions
    with pytest.raises(UnmetNeedError, match="write"):
        chroma_store.write([Document("x", "y")])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=trees)
def test_filters_mean_in_chroma_what_they_mean_here(chroma_store: AttachedStore, condition: Filter) -> None:
    matching_ = {str(number) for number in range(ROWS) if condition.matches(METADATA[number])}
    query = EMBEDDER.embed_queries(["lamp"])[0]
    all_lists, short_lists = chroma_store.search(
        [StoreQuery(None, query, ROWS, condition), StoreQuery(None, query, 3, condition)]
    )
    assert {key for key, _ in all_lists.rankings[NEAR]} == matching_
    assert len(short_lists.rankings[NEAR]) == min(3, len(matching_))
    assert not all_lists.degraded


def test_odd_filters_in_chroma(chroma_store: AttachedStore) -> None:
    query = EMBEDDER.embed_queries(["lamp"])[0]
    odd = [
        Equals("$and", "x"),
        Equals("#document", TEXTS[3]),
        Equals("lang", "\0"),
        Equals("lang", "\ud800"),
        Equals("price", float("inf")),
        Equals("year", 2.0**60),
        Equals("place", METADATA[0]["place"]),
        In("place", (METADATA[1]["place"], "elsewhere")),
        In("year", (2020, "2020", True)),
        And((Exists("year"), Not(Equals("year", 2020)))),
        Or(()),
    ]
    for condition in odd:
        (answer,) = chroma_store.search([StoreQuery(None, query, ROWS, condition)])
        right = {str(number) for number in range(ROWS) if condition.matches(METADATA[number])}
        assert {key for key, _ in answer.rankings[NEAR]} == right, condition


def test_fifty_looks_at_chroma_are_one_request(chroma_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = EMBEDDER.embed_queries([f"lamp {number}" for number in range(50)])
    chroma_store.search([StoreQuery(None, queries[0], 5)])  # asks what the collection is, once
    paths: list[str] = []
    send = chroma_store._server.ask

    def note_path(method: str, path: str, *arguments: Any, **options: Any) -> Any:
        paths.append(path)
        return send(method, path, *arguments, **options)

    monkeypatch.setattr(chroma_store._server, "ask", note_path)
    answers = chroma_store.search([StoreQuery(None, query, 5, Equals("lang", "ru")) for query in queries])
    assert len(paths) == 1
    for query, answer in zip(queries, answers, strict=True):
        mask = np.array([metadata.get("lang") == "ru" for metadata in METADATA])
        right = sorted((VECTORS @ query)[mask], reverse=True)[:5]
        assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(right, abs=1e-4)


def test_b4_a_collection_of_chroma_is_searched_beside_our_own(orders_in_chroma: str, tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(80))
        dataset = workspace.attach("orders", orders_in_chroma, table="orders", **CHROMA)
        assert (len(dataset), dataset.indexing_technique) == (ROWS, "vector")
        answer = workspace.search("steam engine lamp", 10, refuse=False, rerank=False)
        assert {hit.dataset for hit in answer} == {"orders", "rails"}
        some = workspace.search("lamp", 5, filters="lang == 'ru' and year >= 2020", datasets=["orders"], refuse=False)
        assert some
        assert all(hit.metadata["lang"] == "ru" and hit.metadata["year"] >= 2020 for hit in some)
        with pytest.raises(UnmetNeedError, match="'vector' search only"):
            workspace.search("lamp", 5, datasets=["orders"], strategy="bm25")
        for change, message in (
            ({"table": "nothing"}, "no collection 'nothing'"),
            ({"id": "number"}, "the id is 'id'"),
            ({"vector": None}, "only vectors are searched"),
        ):
            with pytest.raises(InputError, match=message):
                workspace.attach("other", orders_in_chroma, **{"table": "orders", **CHROMA, **change})
    other_embedder = HashingEmbedder(dimensions=EMBEDDER.dimensions * 2)
    both = f"{EMBEDDER.dimensions} dimensions.*{other_embedder.name}.*{other_embedder.dimensions}"
    with (
        pointsman.open(tmp_path / "other", embedder=other_embedder) as workspace,
        pytest.raises(InputError, match=both),
    ):
        workspace.attach("orders", orders_in_chroma, table="orders", **CHROMA)


def test_without_a_server_the_others_are_searched_and_no_key_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.store.external.database_http.PATIENCE", 0.5)
    for scheme, columns in (("chroma", {"table": "orders", **CHROMA}), ("meilisearch", MEILI)):
        unreachable = attachment_of(f"{scheme}://:{KEY}@127.0.0.1:1", **columns)
        with pointsman.open(tmp_path / scheme, embedder=EMBEDDER) as workspace:
            workspace.dataset("rails").add(corpus(40))
            workspace.backend.put_record(ATTACHED, "orders", unreachable.to_json())
        with pointsman.open(tmp_path / scheme, embedder=EMBEDDER) as workspace:
            answer = workspace.search("rail lamp", 5, refuse=False)
            assert {hit.dataset for hit in answer} == {"rails"}
            assert any("orders" in note and "127.0.0.1:1" in note for note in answer.degraded)
            with pytest.raises(StoreUnavailableError, match=rf"{scheme}://127\.0\.0\.1:1 does not answer") as error:
                workspace.dataset("orders").store.get(["1"])
            texts = (str(error.value), repr(unreachable), repr(workspace.dataset("orders").store), *answer.degraded)
            assert all(KEY not in text for text in texts)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("chroma://db.example.org", "use chroma\\+https://"),
        ("meilisearch://db.example.org:7700", "use meilisearch\\+https://"),
        ("chroma://127.0.0.1:99999", "cannot be read"),
        ("chroma:///", "cannot be read"),
        ("chroma://127.0.0.1?tennant=x", "unknown options tennant"),
        ("qdrant://127.0.0.1", "chroma, chroma\\+https, faiss, meilisearch"),
    ],
)
def test_urls_that_cannot_be_used(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        attachment_of(url, table="orders", **CHROMA).open()


# ── FAISS files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_files(folder: Path, index: Any) -> str:
    import faiss

    if not index.is_trained:
        index.train(VECTORS)
    if hasattr(index, "id_map"):
        index.add_with_ids(VECTORS, np.arange(ROWS))
    else:
        index.add(VECTORS)
    folder.mkdir(exist_ok=True)
    faiss.write_index(index, str(folder / "orders.faiss"))
    lines = [
        json.dumps({"id": str(number), "text": TEXTS[number], **METADATA[number]}, ensure_ascii=False)
        for number in range(ROWS)
    ]
    (folder / "orders.jsonl").write_text("\n".join(lines), "utf-8")
    return f"faiss:{folder / 'orders.faiss'}"


def indexes() -> dict[str, Callable[[], Any]]:
    import faiss

    return {
        "flat": lambda: faiss.IndexFlatIP(EMBEDDER.dimensions),
        "l2": lambda: faiss.IndexFlatL2(EMBEDDER.dimensions),
        "hnsw": lambda: faiss.IndexHNSWFlat(EMBEDDER.dimensions, 32, faiss.METRIC_INNER_PRODUCT),
        "ids": lambda: faiss.IndexIDMap(faiss.IndexFlatIP(EMBEDDER.dimensions)),
    }


@pytest.mark.parametrize("kind", ["flat", "l2", "hnsw", "ids"])
def test_a_file_of_faiss_is_searched_as_it_is(tmp_path: Path, kind: str) -> None:
    url = write_files(tmp_path, indexes()[kind]())
    query = EMBEDDER.embed_queries(["steam engine lamp"])[0]
    with closing(attachment_of(url, **FAISS).open()) as store:
        assert (store.info.dimensions, store.count()) == (EMBEDDER.dimensions, ROWS)
        (answer,) = store.search([StoreQuery("lamp", query, ROWS)])
        assert len(answer.rankings[NEAR]) >= (ROWS if kind != "hnsw" else ROWS * 0.95)
        for key, score in answer.rankings[NEAR]:
            expected = 2 * COSINES[int(key)] - 2 if kind == "l2" else COSINES[int(key)]
            assert score == pytest.approx(expected, abs=1e-4)
        assert store.get(["7", "x"]) == [Document("7", TEXTS[7], METADATA[7]), None]
        if kind == "ids":  # it does not give its vectors back
            with pytest.raises(UnmetNeedError, match="vectors"):
                store.vectors()
        else:
            assert np.allclose(store.vectors(["3", "1"]), VECTORS[[3, 1]], atol=1e-6)
        (empty,) = store.search([StoreQuery(None, query * 0, 5)])
        assert empty.rankings[NEAR] == []


@pytest.fixture(scope="module")
def faiss_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedStore]:
    url = write_files(tmp_path_factory.mktemp("faiss"), indexes()["flat"]())
    with closing(attachment_of(url, **FAISS).open()) as store:
        yield store


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=trees)
def test_filters_act_before_the_cut_in_a_file_of_faiss(faiss_store: AttachedStore, condition: Filter) -> None:
    numbers = [number for number in range(ROWS) if condition.matches(METADATA[number])]
    (answer,) = faiss_store.search([StoreQuery(None, EMBEDDER.embed_queries(["steam engine lamp"])[0], 3, condition)])
    right = sorted((float(COSINES[number]) for number in numbers), reverse=True)[:3]
    assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(right, abs=1e-5)
    assert faiss_store.count(condition) == len(numbers)


def test_attached_collections_do_not_exist_while_access_is_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = write_files(tmp_path / "files", indexes()["flat"]())
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(20), access=["everyone"])
        workspace.attach("orders", url, **FAISS)
        attached = workspace.dataset("orders")
        workspace.switch_access(on=True)
        assert "while access is on, attached collections do not exist: orders" in caplog.text
        assert workspace.names() == ["rails"]
        answer = workspace.search("steam engine lamp", 10, refuse=False, principals=[])
        assert {hit.dataset for hit in answer} == {"rails"}
        for ask in (
            lambda: workspace.search("lamp", datasets="orders", principals=[]),
            lambda: workspace.dataset("orders"),
            lambda: workspace.status("orders"),
        ):
            with pytest.raises(InputError, match="no dataset named 'orders'"):
                ask()
        with pytest.raises(UnmetNeedError, match="lacks the capability 'views'"):
            attached.search("lamp", principals=[])
        with pytest.raises(InputError, match="access is on"):
            attached.search("lamp")
        with pytest.raises(UnmetNeedError, match="an attached collection says nothing of who may see"):
            workspace.attach("more", url, **FAISS)
        assert list(workspace.backend.records(ATTACHED)) == ["orders"], "nothing was stored"
        workspace.switch_access(on=False)
        assert workspace.names() == ["orders", "rails"]


def test_b4_a_file_of_faiss_is_searched_beside_our_own(tmp_path: Path) -> None:
    url = write_files(tmp_path / "files", indexes()["flat"]())
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(80))
        workspace.attach("orders", url, **FAISS)
        answer = workspace.search("steam engine lamp", 10, refuse=False, rerank=False)
        assert {hit.dataset for hit in answer} == {"orders", "rails"}
        lines = (tmp_path / "files" / "orders.jsonl").read_text("utf-8").splitlines()
        (tmp_path / "files" / "orders.jsonl").write_text("\n".join(lines[:-1]), "utf-8")
        with pytest.raises(CorruptStoreError, match="each vector needs its document"):
            workspace.dataset("orders").store.get(["1"])
        (tmp_path / "files" / "orders.jsonl").write_text("not JSON", "utf-8")
        with pytest.raises(CorruptStoreError, match="line 1"):
            workspace.dataset("orders").store.get(["1"])
        (tmp_path / "files" / "orders.faiss").write_bytes(b"IxFI" + b"\xff" * 40)
        with pytest.raises(CorruptStoreError, match="not a readable FAISS index"):
            workspace.dataset("orders").store.get(["1"])
        (tmp_path / "files" / "orders.faiss").unlink()
        with pytest.raises(StoreUnavailableError, match=r"orders\.faiss cannot be read"):
            workspace.dataset("orders").store.get(["1"])


def test_the_description_of_an_attached_collection_is_given_when_it_is_attached(tmp_path: Path) -> None:
    url = write_files(tmp_path / "files", indexes()["flat"]())
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.attach("orders", url, **FAISS, description="what was ordered")
        for describe in (
            lambda: workspace.dataset("orders", description="other"),
            lambda: workspace.dataset("orders").describe("other"),
        ):
            with pytest.raises(UnmetNeedError, match="attach it again with description='other'"):
                describe()
        assert workspace.dataset("orders", description="what was ordered").description == "what was ordered"
        with serving(create_app(workspace)) as address, httpx.Client(base_url=address, timeout=60) as client:
            answer = client.post("/api/datasets", json={"name": "orders", "description": "other"})
            assert (answer.status_code, answer.json()["error"]) == (409, "UnmetNeedError")
            assert client.get("/api/datasets/orders").json()["description"] == "what was ordered"


def test_while_a_file_of_faiss_is_away_the_others_are_searched_and_the_answer_says_so(tmp_path: Path) -> None:
    url = write_files(tmp_path / "files", indexes()["flat"]())
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(20))
        workspace.attach("orders", url, **FAISS)
        with pytest.raises(StoreUnavailableError, match=r"none\.jsonl cannot be read"):
            workspace.attach("more", url, **{**FAISS, "table": "none.jsonl"})
        (tmp_path / "files" / "orders.faiss").unlink()
        answer = workspace.search("steam engine lamp", 9, refuse=False)
        assert {hit.dataset for hit in answer} == {"rails"}
        assert any("orders" in note for note in answer.degraded)
        with serving(create_app(workspace)) as address, httpx.Client(base_url=address, timeout=60) as client:
            answers = [
                client.post("/api/search", json={"query": "steam engine lamp", "refuse": False}),
                client.get("/api/datasets"),
                client.get("/api/datasets/orders"),
                client.post("/api/search", json={"query": "steam", "datasets": ["orders"]}),
            ]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 503]
        assert {hit["dataset"] for hit in answers[0].json()["hits"]} == {"rails"}
        assert [description["problem"] for description in answers[1].json()["datasets"]] == [
            "StoreUnavailableError",
            None,
        ]
        assert all(str(tmp_path) not in answer.text for answer in answers)
    for command in ("datasets", "status"):
        env = {"POINTSMAN_EMBEDDER": "hashing", "COLUMNS": "200"}
        process = CliRunner().invoke(app, [command, "-w", str(tmp_path / "work")], env=env)
        assert process.exit_code == 1
        assert re.search(r"rails +20 ", process.stdout)
        assert re.search(r"orders: .*orders\.faiss cannot be read", process.stdout)


def test_a_workspace_with_an_attached_collection_is_backed_up_verified_and_rebuilt(tmp_path: Path) -> None:
    url = write_files(tmp_path / "files", indexes()["flat"]())
    work = tmp_path / "work"
    with pointsman.open(work, embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(20))
        for name in ("orders", "заказы"):
            workspace.attach(name, url, **FAISS)
        workspace.keep(measured())

    def run(*arguments: str, path: Path = work) -> Result:
        return CliRunner().invoke(app, [*arguments, "-w", str(path), "--json"], env={"POINTSMAN_EMBEDDER": "hashing"})

    assert list(json.loads(run("verify").stdout)) == ["rails"]
    assert json.loads(run("rebuild").stdout) == {"rebuilt": ["rails"]}
    for command in (["verify"], ["rebuild"]):
        refused = run(*command, "orders")
        assert isinstance(refused.exception, InputError)
        assert str(refused.exception) == "'orders' is attached; it maintains itself"
    with pointsman.open(work, embedder=EMBEDDER) as workspace, serving(create_app(workspace)) as address:
        process = CliRunner().invoke(app, ["verify", "-w", address, "--json"])
        refused = CliRunner().invoke(app, ["verify", "orders", "-w", address])
    assert (process.exit_code, list(json.loads(process.stdout))) == (0, ["rails"])
    assert str(refused.exception) == "'orders' is attached; it maintains itself"
    assert json.loads(run("backup", str(tmp_path / "backup")).stdout)["datasets"] == {"rails": 20}
    assert run("restore", str(tmp_path / "backup"), path=tmp_path / "restored").exit_code == 0
    with pointsman.open(tmp_path / "restored", embedder=EMBEDDER) as restored_workspace:
        assert restored_workspace.names() == ["orders", "rails", "заказы"]
        assert {hit.dataset for hit in restored_workspace.search("steam engine lamp", 9, refuse=False)} >= {
            "orders",
            "rails",
        }


# ── Meilisearch: a fake, since no server was to be had ───────────────────────────────────────────────────────────────


@pytest.fixture
def meilisearch() -> Iterator[FakeMeilisearch]:
    rows = [
        {
            "number": number,
            "body": TEXTS[number],
            **METADATA[number],
            "_vectors": {"mine": {"embeddings": [VECTORS[number].tolist()], "regenerate": False}},
        }
        for number in range(ROWS)
    ]
    with FakeMeilisearch(rows, EMBEDDER.dimensions, KEY).serving() as fake:
        yield fake


def test_b4_an_index_in_the_shape_of_meilisearch_is_searched_beside_our_own(
    meilisearch: FakeMeilisearch, tmp_path: Path
) -> None:
    with pointsman.open(tmp_path / "work", embedder=EMBEDDER) as workspace:
        workspace.dataset("rails").add(corpus(80))
        dataset = workspace.attach("orders", meilisearch.url, **MEILI)
        assert len(dataset) == ROWS
        metadata = {key: value for key, value in METADATA[7].items() if key in MEILI["metadata"]}
        assert dataset.store.get(["7", "no"]) == [Document("7", TEXTS[7], metadata), None]
        assert [document.id for document in dataset.store.documents()] == [str(number) for number in range(ROWS)]
        assert np.allclose(dataset.store.vectors(["3", "1"]), VECTORS[[3, 1]], atol=1e-6)
        answer = workspace.search("steam engine lamp", 10, strategy="hybrid", refuse=False, rerank=False)
        assert {hit.dataset for hit in answer} == {"orders", "rails"}
        for text in ("year >= 2020", "not lang == 'ru'", "tags == 'a' and year == 2021", "exists(year)"):
            condition = parse_filter(text)
            right = {str(number) for number in range(ROWS) if condition.matches(METADATA[number])}
            (near,) = dataset.store.search([StoreQuery(None, VECTORS[0], ROWS, condition)])
            assert {key for key, _ in near.rankings[NEAR]} == right, text
        odd = workspace.search("lamp", 5, datasets=["orders"], filters="colour == 'red' or year > 2000", refuse=False)
        assert any("'colour'" in note for note in odd.degraded)
        for change, message in (
            ({"table": "nothing"}, "no index 'nothing'"),
            ({"id": "sku"}, "is 'number', not 'sku'"),
            ({"text": "title"}, "no field 'title'"),
            ({"vector": "theirs"}, "no embedder 'theirs'; it has mine"),
        ):
            with pytest.raises(InputError, match=message):
                workspace.attach("other", meilisearch.url, **{**MEILI, **change})
        with pytest.raises(StoreError, match="rejects this API key") as error:
            workspace.attach("other", meilisearch.url.replace(KEY, "0ther"), **MEILI)
        assert "0ther" not in str(error.value)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (parse_filter("lang == ru"), '"lang" IN ["ru"]'),
        (parse_filter("lang in [ru, en] and year >= 2020"), '("lang" IN ["en", "ru"] AND ("year" >= 2020.0))'),
        (
            parse_filter("2019 < year < 2021 or done == true"),
            '(("year" >= 2019.0 AND "year" <= 2021.0) OR "done" IN [true])',
        ),
        (parse_filter("exists(tags)"), '"tags" EXISTS'),
        (parse_filter("not lang == ru"), None),
        (parse_filter("price > 3"), None),  # the index cannot filter by it
        (parse_filter("lang == ru or price > 3"), None),
        (Equals("lang", 'x" OR "a" EXISTS'), None),
        (Equals("lang", "back\\slash"), None),
        (Equals("year", 2.0**60), None),
        (Range("year", gt=float("inf")), None),
    ],
)
def test_what_meilisearch_is_asked_to_filter_by(
    meilisearch: FakeMeilisearch, condition: Filter, expected: str | None
) -> None:
    with closing(attachment_of(meilisearch.url, **MEILI).open()) as store:
        store.search([StoreQuery("lamp", VECTORS[0], 10, condition)])
    assert {query.get("filter") for query in meilisearch.asked} == {expected}


# ── every store as the vector store, the keyword store and the document store of a retriever ─────────────────────────


@pytest.fixture(params=["folder", "postgresql", "opensearch", "chroma", "faiss", "meilisearch"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The same documents in each."""
    documents = [Document(str(number), TEXTS[number], METADATA[number]) for number in range(ROWS)]
    name: str = request.param
    backend: Any = None
    if name == "folder":
        store: Any = LocalStore(tmp_path / "store", {"indexing_technique": "hybrid"})
    elif name == "postgresql":
        from pointsman.store.postgres import PostgresBackend

        server: PostgresServer = request.getfixturevalue("postgres")
        backend = PostgresBackend(f"{server.url}?schema=retrievers")
        store = backend.create("one", {})
    elif name == "opensearch":
        from pointsman.store.opensearch import OpenSearchBackend

        cluster: Cluster = request.getfixturevalue("opensearch")
        backend = OpenSearchBackend(f"{cluster.url}/retrievers")
        store = backend.create("one", {})
    elif name == "chroma":
        store = attachment_of(request.getfixturevalue("orders_in_chroma"), table="orders", **CHROMA).open()
    elif name == "faiss":
        store = attachment_of(write_files(tmp_path, indexes()["flat"]()), **FAISS).open()
    else:
        store = attachment_of(request.getfixturevalue("meilisearch").url, **MEILI).open()
    if name in {"folder", "postgresql", "opensearch"}:
        store.write(documents, VECTORS, EMBEDDER.name)
    with closing(store):
        yield store
    if backend is not None:
        backend.close()


def test_s10_retrievers_take_any_store(any_store: Any) -> None:
    dense = VectorRetriever(any_store, any_store, EMBEDDER)
    hits = dense.retrieve("steam engine lamp", 7)
    assert [COSINES[int(hit.id)] for hit in hits] == pytest.approx(sorted(COSINES, reverse=True)[:7], abs=1e-4)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.text == TEXTS[int(hit.id)] for hit in hits)
    hits_since_2020 = dense.retrieve(Query("lamp", parse_filter("year >= 2020")), 5)
    assert len(hits_since_2020) == 5
    assert all(hit.metadata["year"] >= 2020 for hit in hits_since_2020)
    words = KeywordRetriever(any_store, any_store)
    if any_store.info.kind in {"chroma collection", "faiss file"}:
        with pytest.raises(UnmetNeedError, match="no list by words"):
            words.retrieve("lamp")
        return
    word_hits = words.retrieve(Query("lamp", parse_filter("year == 2020")), 5)
    assert word_hits
    assert all("lamp" in hit.text and hit.metadata["year"] == 2020 for hit in word_hits)


@pytest.fixture
def other_folder(tmp_path: Path) -> Iterator[LocalStore]:
    """The same documents under other internal keys, after others that are not in any other store."""
    with closing(LocalStore(tmp_path / "other", {"indexing_technique": "hybrid"})) as store:
        documents = [Document(str(number), TEXTS[number], METADATA[number]) for number in reversed(range(ROWS))]
        strangers = [Document(f"stranger {number}", "a zebra") for number in range(20)]
        store.write([*strangers, *documents])
        yield store


def test_documents_of_another_store_are_looked_up_by_id(any_store: Any, other_folder: LocalStore) -> None:
    for index, documents in ((any_store, other_folder), (other_folder, any_store)):
        words = KeywordRetriever(index, documents)
        if index.info.kind in {"chroma collection", "faiss file"}:
            hits = VectorRetriever(index, documents, EMBEDDER).retrieve("steam engine lamp", 5)
        else:
            hits = words.retrieve("lamp", 5)
        assert len(hits) == 5
        assert all(hit.text == TEXTS[int(hit.id)] for hit in hits)


class IntegerIndex:
    """An index with keys of its own."""

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        return [(3, 1.0)]

    def score(self, query: str, keys: Any) -> list[float]:
        return [0.0 for _ in keys]


def test_keys_that_are_no_ids_are_not_looked_up_in_a_store(other_folder: LocalStore) -> None:
    with pytest.raises(InputError, match="the key 3 of an index is not the id of a document"):
        KeywordRetriever(IntegerIndex(), other_folder).retrieve("lamp")
