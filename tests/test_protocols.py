"""X2: Dify's external knowledge API and OpenAI's vector stores, over the real service."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from pointsman.errors import FilterError
from pointsman.server.keys import FILE, KeyStore
from pointsman.server.routes import protocols
from server_kit import Served

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = [
    {
        "id": f"doc/{n}",
        "text": f"signal {n} stops train {n % 7}" if n % 2 else f"bread {n} is baked in oven {n % 5}",
        "metadata": {"n": n, "kind": "rail" if n % 2 else "kitchen", "source": f"{n}.md", "tags": ["a", str(n)]},
    }
    for n in range(40)
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("protocols") / "workspace").ready() as one:
        assert one.post("/api/datasets", {"name": "rails"})[0] == 201
        assert one.add("rails", DOCUMENTS)[0] == 200
        yield one


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="unused", base_url=f"http://127.0.0.1:{served.port}/v1", max_retries=0) as one:
        yield one


# ── Dify ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(served: Served, **body: Any) -> tuple[int, Any]:
    setting = {"top_k": 10, "score_threshold": 0.0}
    return served.post(
        "/retrieval", {"knowledge_id": "rails", "query": "signal train", "retrieval_setting": setting, **body}
    )


def test_dify_gets_records(served: Served) -> None:
    status, answer = ask(served)
    assert status == 200
    assert 1 <= len(answer["records"]) <= 10
    for record in answer["records"]:
        assert set(record) == {"content", "score", "title", "metadata"}
        assert isinstance(record["score"], float)
        assert record["metadata"]["document_id"].startswith("doc/")
        assert record["title"] == record["metadata"]["source"]
    scores = [record["score"] for record in answer["records"]]
    assert scores == sorted(scores, reverse=True)
    assert ask(served, retrieval_setting={"top_k": 1, "score_threshold": None})[1]["records"] == answer["records"][:1]


def test_the_number_of_records_never_grows_with_the_threshold(served: Served) -> None:
    highest = ask(served)[1]["records"][0]["score"]
    draw = random.Random(7)
    thresholds = sorted(draw.uniform(0, 1.2 * highest) for _ in range(1_000))
    counts = [
        len(ask(served, retrieval_setting={"top_k": 10, "score_threshold": one})[1]["records"]) for one in thresholds
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


def test_dify_may_send_null_for_whatever_is_not_set(served: Served) -> None:
    records = ask(served, retrieval_setting={"top_k": 5, "score_threshold": 0.0})[1]["records"]
    conditions: list[Any] = [None, {"logical_operator": None, "conditions": None}, {"conditions": []}]
    for setting in (None, {"top_k": None, "score_threshold": None}):
        for condition in conditions:
            answer = ask(served, retrieval_setting=setting, metadata_condition=condition)
            assert answer == (200, {"records": records})


def test_dify_is_told_of_a_refusal_and_gets_the_nearest_passages(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    texts = ("A switch guides trains to their track.", "Bread is baked at 230 degrees.", "The office opens at nine.")
    pointsman.open(workspace).dataset("notes").add([{"id": text[:5], "text": text} for text in texts])
    with Served(workspace, embedder="default").ready() as one:
        body = {"knowledge_id": "notes", "query": "Who won the chess championship in Samarkand?"}
        refused = one.post("/api/search", {"query": body["query"], "datasets": ["notes"]})[1]["refused"]
        (record,) = one.post("/retrieval", body)[1]["records"]
        assert record["title"] == "Probably no answer here. Nearest:"
        assert record["content"].startswith(record["title"])
        assert refused["nearest"]["text"] in record["content"]
        assert record["score"] == refused["nearest"]["relevance"]
        assert record["metadata"]["refused"] == refused["reason"]
        assert record["metadata"]["document_ids"] == [hit["id"] for hit in refused["near_misses"]]
        setting = {"top_k": 3, "score_threshold": min(1.0, record["score"] + 0.01)}
        assert one.post("/retrieval", {**body, "retrieval_setting": setting})[1]["records"] == []


CONDITIONS: list[tuple[str, Any, Any]] = [
    ("contains", "itch", lambda one: "itch" in one.get("kind", "")),
    ("not contains", "itch", lambda one: "itch" not in one.get("kind", "")),
    ("start with", "kit", lambda one: one.get("kind", "").startswith("kit")),
    ("end with", "il", lambda one: one.get("kind", "").endswith("il")),
    ("is", "rail", lambda meta: meta["kind"] == "rail"),
    ("is not", "rail", lambda meta: meta["kind"] != "rail"),
    ("in", ["rail", "x"], lambda meta: meta["kind"] == "rail"),
    ("in", "x, rail", lambda meta: meta["kind"] == "rail"),
    ("not in", ["rail"], lambda meta: meta["kind"] != "rail"),
    ("empty", None, lambda meta: False),
    ("not empty", None, lambda meta: True),
    ("null", None, lambda meta: False),
    ("not null", None, lambda meta: True),
    ("before", "l", lambda meta: meta["kind"] < "l"),
    ("after", "l", lambda meta: meta["kind"] > "l"),
]
NUMBERS: list[tuple[str, Any]] = [
    ("=", lambda n: n == 7),
    ("≠", lambda n: n != 7),
    (">", lambda n: n > 7),
    ("<", lambda n: n < 7),
    ("≥", lambda n: n >= 7),
    ("≤", lambda n: n <= 7),
]


@pytest.mark.parametrize(("operator", "value", "expected"), CONDITIONS, ids=lambda one: str(one)[:20])
def test_dify_filters_by_metadata(operator: str, value: Any, expected: Any) -> None:
    rule = protocols.MetadataRule(name="kind", comparison_operator=operator, value=value)
    wanted = protocols._of_dify(protocols.MetadataCondition(conditions=[rule]))
    assert wanted is not None
    for document in DOCUMENTS:
        metadata: Any = document["metadata"]
        assert wanted.matches(metadata) is expected(metadata)


@given(st.sampled_from(NUMBERS), st.integers(0, 40), st.booleans())
def test_numbers_of_dify_may_be_texts(one: tuple[str, Any], n: int, as_text: bool) -> None:
    operator, expected = one
    rule = protocols.MetadataRule(name="n", comparison_operator=operator, value="7" if as_text else 7)
    assert protocols._rule(rule).matches({"n": n}) is expected(n)


def test_conditions_act_in_the_search_and_what_cannot_be_said_is_refused(served: Served) -> None:
    rules = [
        {"name": ["kind", "other"], "comparison_operator": "is", "value": "kitchen"},
        {"name": "n", "comparison_operator": "<", "value": "10"},
    ]
    condition = {"logical_operator": "and", "conditions": rules}
    found = ask(served, query="bread", metadata_condition=condition)[1]["records"]
    assert found
    assert all(record["metadata"]["kind"] == "kitchen" and record["metadata"]["n"] < 10 for record in found)
    for operator, value in (("contains", 7), ("end with", 7), ("matches", "a"), (">", "many"), ("in", 7), ("is", None)):
        rule = {"name": "kind", "comparison_operator": operator, "value": value}
        status, answer = ask(served, metadata_condition={"conditions": [rule]})
        assert (status, answer["error_code"]) == (422, 422)
        assert answer["error_msg"]


def test_errors_have_difys_codes(served: Served, tmp_path: Path) -> None:
    status, answer = ask(served, knowledge_id="nothing")
    assert (status, answer["error_code"]) == (404, 2001)
    assert "nothing" in answer["error_msg"]
    assert ask(served, query="")[1]["error_code"] == 422
    workspace = tmp_path / "workspace"
    pointsman.open(workspace).make()
    key = KeyStore(workspace / FILE).create("reader", datasets=["rails"], scopes=["read"]).text
    with Served(workspace).ready() as one:
        status, answer = ask(one)
        assert (status, answer["status"], answer["error_code"]) == (403, 403, 1001)
        # Dify checks an address and a key by a request without a body, and takes anything but 403, 404 and 502 as right
        wrong = {"Authorization": "Bearer dify-key"}
        status, answer = one.request("POST", "/retrieval", None, wrong)
        assert (status, answer["error_code"]) == (403, 1002)
        assert one.request("POST", "/retrieval", None, {"Authorization": "Basic dify-key"})[1]["error_code"] == 1001
        assert one.request("POST", "/retrieval", None, {"Authorization": f"Bearer {key}"})[0] == 422
        body = {"knowledge_id": "rails", "query": "x", "retrieval_setting": {"top_k": 1, "score_threshold": 0}}
        status, answer = one.request("POST", "/retrieval", body, {"Authorization": f"Bearer {key}"})
        assert (status, answer["error_code"]) == (404, 2001)


# ── OpenAI ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_openai_client_searches(client: openai.OpenAI) -> None:
    page = client.vector_stores.search("rails", query="bread", max_num_results=5)
    found = list(page)
    assert 1 <= len(found) <= 5
    assert all(one.content[0].text.startswith("bread") for one in found)
    assert found[0].filename.endswith(".md")
    assert found[0].attributes is not None
    assert "tags" not in found[0].attributes
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    several = list(client.vector_stores.search("rails", query=["bread", "signal train"], max_num_results=40))
    assert {one.content[0].text.split()[0] for one in several} == {"bread", "signal"}
    assert len({one.file_id for one in several}) == len(several)


def test_the_openai_client_filters_and_ranks(client: openai.OpenAI) -> None:
    found = client.vector_stores.search(
        "rails",
        query="bread",
        filters={
            "type": "and",
            "filters": [
                {"type": "gte", "key": "n", "value": 10},
                {"type": "in", "key": "kind", "value": ["kitchen"]},
                {"type": "ne", "key": "n", "value": 12},
            ],
        },
        max_num_results=50,
    )
    numbers = {int((one.attributes or {})["n"]) for one in found}
    assert numbers
    assert all(n >= 10 and n % 2 == 0 and n != 12 for n in numbers)
    all_of_them = list(client.vector_stores.search("rails", query="bread", ranking_options={"ranker": "none"}))
    least = max(all_of_them[0].score, 0.01)  # scores of this embedder are no probabilities, and may be below 0
    above = client.vector_stores.search(
        "rails", query="bread", ranking_options={"ranker": "none", "score_threshold": least}
    )
    assert [one.file_id for one in above] == [one.file_id for one in all_of_them if one.score >= least]


def test_the_openai_client_lists_stores_and_files(client: openai.OpenAI) -> None:
    assert [one.id for one in client.vector_stores.list()] == ["rails"]
    store = client.vector_stores.retrieve("rails")
    assert (store.name, store.status, store.file_counts.completed) == ("rails", "completed", 40)
    files = list(client.vector_stores.files.list("rails", limit=15))  # three pages
    assert [one.id for one in files] == [document["id"] for document in DOCUMENTS]
    backwards = list(client.vector_stores.files.list("rails", limit=15, order="desc"))
    assert [one.id for one in backwards] == [document["id"] for document in reversed(DOCUMENTS)]
    one = client.vector_stores.files.retrieve("doc/3", vector_store_id="rails")
    assert (one.id, one.status, (one.attributes or {})["n"]) == ("doc/3", "completed", 3)
    (text,) = client.vector_stores.files.content("doc/3", vector_store_id="rails")
    assert text.text == "signal 3 stops train 3"


def test_every_file_that_is_listed_can_be_fetched(served: Served, client: openai.OpenAI) -> None:
    ids = ["5°C", "§ 5", "€5", "🚂", "a→b", "½", "a×b", "❤️", "हिन्दी", "a\u00a0b", "“q”", "a?b#c", "a%2fb", "道岔"]
    served.post("/api/datasets", {"name": "odd", "indexing_technique": "keyword"})
    served.add("odd", [{"id": id_, "text": f"text {number}"} for number, id_ in enumerate(ids)])
    try:
        listed = [one.id for one in client.vector_stores.files.list("odd", limit=50)]
        assert listed == ids
        for number, id_ in enumerate(listed):
            assert client.vector_stores.files.retrieve(id_, vector_store_id="odd").id == id_
            (text,) = client.vector_stores.files.content(id_, vector_store_id="odd")
            assert text.text == f"text {number}"
    finally:
        served.request("DELETE", "/api/datasets/odd")


def test_the_openai_client_understands_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no dataset named 'nothing'"):
        client.vector_stores.search("nothing", query="bread")
    with pytest.raises(openai.NotFoundError, match="no document"):
        client.vector_stores.files.retrieve("nothing", vector_store_id="rails")
    with pytest.raises(openai.UnprocessableEntityError, match="a filter has a key"):
        client.vector_stores.search("rails", query="bread", filters={"type": "like", "key": "n", "value": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "filters",
    [{}, {"type": "and"}, {"type": "and", "filters": [7]}, {"type": "eq"}, {"type": "in", "key": "a", "value": 1}, []],
)
def test_malformed_filters_are_refused(filters: Any) -> None:
    with pytest.raises(FilterError):
        protocols._of_openai(filters, 1)


def test_a_filter_without_end_is_refused() -> None:
    filters: dict[str, Any] = {"type": "and", "filters": []}
    for _ in range(100):
        filters = {"type": "or", "filters": [filters]}
    with pytest.raises(FilterError, match="nested at most"):
        protocols._of_openai(filters, 1)
