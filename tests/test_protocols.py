"""X2: Dify's external knowledge API and searching OpenAI's vector stores, over the real service."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from clauses_kit import CLAUSES, QUESTION, REASON
from pointsman.service.server.access.api_keys import FILE, KeyStore
from pointsman.service.server.routes import dify, vector_stores
from pointsman.tools.errors import FilterError
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
def rails_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("protocols") / "workspace").ready() as service:
        assert service.post("/api/datasets", {"name": "rails"})[0] == 201
        assert service.add("rails", DOCUMENTS)[0] == 200
        yield service


@pytest.fixture(scope="module")
def client(rails_service: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="unused", base_url=f"http://127.0.0.1:{rails_service.port}/v1", max_retries=0) as client:
        yield client


# ── Dify ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(service: Served, **body: Any) -> tuple[int, Any]:
    setting = {"top_k": 10, "score_threshold": 0.0}
    return service.post(
        "/retrieval", {"knowledge_id": "rails", "query": "signal train", "retrieval_setting": setting, **body}
    )


def test_dify_gets_records(rails_service: Served) -> None:
    status, answer = ask(rails_service)
    assert status == 200
    assert 1 <= len(answer["records"]) <= 10
    for record in answer["records"]:
        assert set(record) == {"content", "score", "title", "metadata"}
        assert isinstance(record["score"], float)
        assert record["metadata"]["document_id"].startswith("doc/")
        assert record["title"] == record["metadata"]["source"]
    scores = [record["score"] for record in answer["records"]]
    assert scores == sorted(scores, reverse=True)
    assert (
        ask(rails_service, retrieval_setting={"top_k": 1, "score_threshold": None})[1]["records"]
        == answer["records"][:1]
    )


def test_the_number_of_records_never_grows_with_the_threshold(rails_service: Served) -> None:
    highest = ask(rails_service)[1]["records"][0]["score"]
    draw = random.Random(7)
    thresholds = sorted(draw.uniform(0, 1.2 * highest) for _ in range(1_000))
    counts = [
        len(ask(rails_service, retrieval_setting={"top_k": 10, "score_threshold": threshold})[1]["records"])
        for threshold in thresholds
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


def test_dify_may_send_null_for_whatever_is_not_set(rails_service: Served) -> None:
    records = ask(rails_service, retrieval_setting={"top_k": 5, "score_threshold": 0.0})[1]["records"]
    conditions: list[Any] = [None, {"logical_operator": None, "conditions": None}, {"conditions": []}]
    for setting in (None, {"top_k": None, "score_threshold": None}):
        for condition in conditions:
            answer = ask(rails_service, retrieval_setting=setting, metadata_condition=condition)
            assert answer == (200, {"records": records})


def test_dify_is_told_of_a_refusal_and_gets_the_nearest_passages(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    texts = ("A switch guides trains to their track.", "Bread is baked at 230 degrees.", "The office opens at nine.")
    pointsman.open(workspace).dataset("notes").add([{"id": text[:5], "text": text} for text in texts])
    with Served(workspace, embedder="default").ready() as service:
        body = {"knowledge_id": "notes", "query": "Who won the chess championship in Samarkand?"}
        refused = service.post("/api/search", {"query": body["query"], "datasets": ["notes"]})[1]["refused"]
        (record,) = service.post("/retrieval", body)[1]["records"]
        assert record["title"] == "Probably no answer here. Nearest:"
        assert record["content"].startswith(record["title"])
        assert refused["nearest"]["text"] in record["content"]
        assert record["score"] == refused["nearest"]["relevance"]
        assert record["metadata"]["refused"] == refused["reason"]
        assert record["metadata"]["document_ids"] == [hit["id"] for hit in refused["near_misses"]]
        setting = {"top_k": 3, "score_threshold": min(1.0, record["score"] + 0.01)}
        assert service.post("/retrieval", {**body, "retrieval_setting": setting})[1]["records"] == []


CONDITIONS: list[tuple[str, Any, Any]] = [
    ("contains", "itch", lambda metadata: "itch" in metadata.get("kind", "")),
    ("not contains", "itch", lambda metadata: "itch" not in metadata.get("kind", "")),
    ("start with", "kit", lambda metadata: metadata.get("kind", "").startswith("kit")),
    ("end with", "il", lambda metadata: metadata.get("kind", "").endswith("il")),
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


@pytest.mark.parametrize(("operator", "value", "expected"), CONDITIONS, ids=lambda parameter: str(parameter)[:20])
def test_dify_filters_by_metadata(operator: str, value: Any, expected: Any) -> None:
    rule = dify.MetadataRule(name="kind", comparison_operator=operator, value=value)
    condition = dify._of_dify(dify.MetadataCondition(conditions=[rule]))
    assert condition is not None
    for document in DOCUMENTS:
        metadata: Any = document["metadata"]
        assert condition.matches(metadata) is expected(metadata)


@given(st.sampled_from(NUMBERS), st.integers(0, 40), st.booleans())
def test_numbers_of_dify_may_be_texts(case: tuple[str, Any], n: int, as_text: bool) -> None:
    operator, expected = case
    rule = dify.MetadataRule(name="n", comparison_operator=operator, value="7" if as_text else 7)
    assert dify._rule(rule).matches({"n": n}) is expected(n)


def test_conditions_act_in_the_search_and_what_cannot_be_said_is_refused(rails_service: Served) -> None:
    rules = [
        {"name": ["kind", "other"], "comparison_operator": "is", "value": "kitchen"},
        {"name": "n", "comparison_operator": "<", "value": "10"},
    ]
    condition = {"logical_operator": "and", "conditions": rules}
    records = ask(rails_service, query="bread", metadata_condition=condition)[1]["records"]
    assert records
    assert all(record["metadata"]["kind"] == "kitchen" and record["metadata"]["n"] < 10 for record in records)
    for operator, value in (("contains", 7), ("end with", 7), ("matches", "a"), (">", "many"), ("in", 7), ("is", None)):
        rule = {"name": "kind", "comparison_operator": operator, "value": value}
        status, answer = ask(rails_service, metadata_condition={"conditions": [rule]})
        assert (status, answer["error_code"]) == (422, 422)
        assert answer["error_msg"]


def test_errors_have_difys_codes(rails_service: Served, tmp_path: Path) -> None:
    status, answer = ask(rails_service, knowledge_id="nothing")
    assert (status, answer["error_code"]) == (404, 2001)
    assert "nothing" in answer["error_msg"]
    assert ask(rails_service, query="")[1]["error_code"] == 422
    workspace = tmp_path / "workspace"
    pointsman.open(workspace).make()
    key = KeyStore(workspace / FILE).create("reader", datasets=["rails"], scopes=["read"]).text
    with Served(workspace).ready() as service:
        status, answer = ask(service)
        assert (status, answer["status"], answer["error_code"]) == (403, 403, 1001)
        # Dify checks an address and a key by a request without a body, and takes anything but 403, 404 and 502 as right
        wrong = {"Authorization": "Bearer dify-key"}
        status, answer = service.request("POST", "/retrieval", None, wrong)
        assert (status, answer["error_code"]) == (403, 1002)
        assert service.request("POST", "/retrieval", None, {"Authorization": "Basic dify-key"})[1]["error_code"] == 1001
        assert service.request("POST", "/retrieval", None, {"Authorization": f"Bearer {key}"})[0] == 422
        body = {"knowledge_id": "rails", "query": "x", "retrieval_setting": {"top_k": 1, "score_threshold": 0}}
        status, answer = service.request("POST", "/retrieval", body, {"Authorization": f"Bearer {key}"})
        assert (status, answer["error_code"]) == (404, 2001)


# ── OpenAI ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_openai_client_searches(client: openai.OpenAI) -> None:
    page = client.vector_stores.search("rails", query="bread", max_num_results=5)
    results = list(page)
    assert 1 <= len(results) <= 5
    assert all(result.content[0].text.startswith("bread") for result in results)
    assert results[0].filename.endswith(".md")
    assert results[0].attributes is not None
    assert "tags" not in results[0].attributes
    assert [result.score for result in results] == sorted((result.score for result in results), reverse=True)
    results_of_both = list(client.vector_stores.search("rails", query=["bread", "signal train"], max_num_results=40))
    assert {result.content[0].text.split()[0] for result in results_of_both} == {"bread", "signal"}
    assert len({result.file_id for result in results_of_both}) == len(results_of_both)


def test_the_openai_client_filters_and_ranks(client: openai.OpenAI) -> None:
    results = client.vector_stores.search(
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
    numbers = {int((result.attributes or {})["n"]) for result in results}
    assert numbers
    assert all(n >= 10 and n % 2 == 0 and n != 12 for n in numbers)
    all_of_them = list(client.vector_stores.search("rails", query="bread", ranking_options={"ranker": "none"}))
    threshold = max(all_of_them[0].score, 0.01)  # scores of this embedder are no probabilities, and may be below 0
    results_above = client.vector_stores.search(
        "rails", query="bread", ranking_options={"ranker": "none", "score_threshold": threshold}
    )
    assert [result.file_id for result in results_above] == [
        result.file_id for result in all_of_them if result.score >= threshold
    ]


def test_the_openai_client_understands_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no dataset named 'nothing'"):
        client.vector_stores.search("nothing", query="bread")
    with pytest.raises(openai.BadRequestError, match="a filter has a key"):
        client.vector_stores.search("rails", query="bread", filters={"type": "like", "key": "n", "value": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "filters",
    [
        *({}, [], {"type": "and"}, {"type": "and", "filters": [7]}, {"type": "eq"}),
        *({"type": "in", "key": "a", "value": 1}, {"type": ["and"], "filters": []}, {"type": {}, "key": "a"}),
        *({"type": None, "key": "a"}, {"type": 7, "key": "a"}, {"type": "eq", "key": ["a"]}),
    ],
)
def test_malformed_filters_are_refused(filters: Any) -> None:
    with pytest.raises(FilterError):
        vector_stores.filter_of_openai(filters, 1)


def test_a_filter_without_end_is_refused() -> None:
    filters: dict[str, Any] = {"type": "and", "filters": []}
    for _ in range(100):
        filters = {"type": "or", "filters": [filters]}
    with pytest.raises(FilterError, match="nested at most"):
        vector_stores.filter_of_openai(filters, 1)


# ── every call of OpenAI's client ────────────────────────────────────────────────────────────────────────────────────

_VALUES: dict[str, Any] = {
    "vector_store_id": "rails", "file_id": "doc/1", "query": "signal",
    "filters": {"type": "eq", "key": "kind", "value": "rail"}, "max_num_results": 3, "rewrite_query": True,
    "ranking_options": {"ranker": "none", "score_threshold": 0.0},
}  # fmt: skip
_SEARCH = "vector_stores.search"
_OF_WRITING: dict[str, Any] = {
    "name": "written", "file": ("a.txt", b"text"), "files": [("a.txt", b"text")], "file_ids": ["file_1"],
    "purpose": "assistants", "batch_id": "batch_1", "attributes": {"topic": "bridge"},
}  # fmt: skip


def _calls(client: openai.OpenAI) -> Iterator[tuple[str, Any, list[str]]]:
    """The methods of the installed client, with the names of their parameters."""
    for path in ("vector_stores", "vector_stores.files", "vector_stores.file_batches", "files"):
        resource: Any = client
        for name in path.split("."):
            resource = getattr(resource, name)
        for name, method in inspect.getmembers(resource, inspect.ismethod):
            if not name.startswith("_"):
                parameters = inspect.signature(method).parameters
                yield (
                    f"{path}.{name}",
                    method,
                    [name for name in parameters if not name.startswith("extra_") and name != "timeout"],
                )


def _outcome(call: str, method: Any, arguments: dict[str, Any]) -> str:
    """What becomes of a call: "works", or the message of the error in OpenAI's shape."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a method that the client is giving up
            answer = method(**arguments)
        if call.endswith((".list", ".search", ".content")) and hasattr(answer, "data"):
            list(answer)
    except openai.APIStatusError as error:
        refusal = error
    else:
        return "works"
    body: Any = refusal.response.json()
    assert set(body["error"]) == {"message", "type", "code", "param"}, call
    assert refusal.status_code in {400, 404, 405, 415}, call
    return str(body["error"]["message"])


def test_every_parameter_of_a_search_by_openais_client_works(client: openai.OpenAI) -> None:
    """By introspection of the installed client: a new parameter fails here until it is decided on."""
    (method, parameters) = next((method, parameters) for call, method, parameters in _calls(client) if call == _SEARCH)
    missing_values = [name for name in parameters if name not in _VALUES]
    assert not missing_values, f"a search takes {missing_values}: decide whether they work here"
    assert len(parameters) >= 6
    for parameter in parameters:
        arguments = {name: _VALUES[name] for name in {"vector_store_id", "query", parameter}}
        assert _outcome(_SEARCH, method, arguments) == "works", parameter


def test_whatever_else_openais_client_asks_for_is_refused_with_the_remedy(
    rails_service: Served, client: openai.OpenAI
) -> None:
    refused_count = 0
    for call, method, parameters in _calls(client):
        if call in {_SEARCH, "files.wait_for_processing"}:  # the latter repeats another
            continue
        mandatory = {
            parameter.name
            for parameter in inspect.signature(method).parameters.values()
            if parameter.name in parameters
            and (parameter.default is inspect.Parameter.empty or parameter.name == "file_ids")
        }
        values = {**_VALUES, **_OF_WRITING}
        message = _outcome(call, method, {name: values[name] for name in mandatory})
        assert "pointsman index" in message, call
        assert "POST /api/datasets/NAME/documents" in message, call
        assert "upload" in message or "GET /api/datasets/NAME/documents" in message, call
        refused_count += 1
    assert refused_count > 25
    datasets = rails_service.request("GET", "/api/datasets")[1]["datasets"]
    assert [(dataset["name"], dataset["documents"]) for dataset in datasets] == [("rails", len(DOCUMENTS))]


def test_both_protocols_say_what_is_superseded_and_what_did_not_work(
    rails_service: Served, client: openai.OpenAI
) -> None:
    rails_service.post("/api/datasets", {"name": "contracts"})
    rails_service.add("contracts", CLAUSES)
    results = client.vector_stores.search("contracts", query=QUESTION)
    notes = {result.file_id: (result.attributes or {}).get("not_in_force") for result in results}
    setting = {"knowledge_id": "contracts", "query": QUESTION, "retrieval_setting": {"top_k": 9}}
    records = rails_service.post("/retrieval", setting)[1]["records"]
    notes_of_records = {record["metadata"]["document_id"]: record["metadata"].get("not_in_force") for record in records}
    assert notes["clause"] == notes_of_records["clause"] == REASON
    assert notes["amendment"] is notes_of_records["amendment"] is None
    filters: Any = {"type": "eq", "key": "colour", "value": "red"}
    page: Any = client.vector_stores.search("contracts", query=QUESTION, filters=filters)
    assert (page.data, page.refused) == ([], ["No results"])
    assert "colour" in page.degraded[0]
    rails_service.request("DELETE", "/api/datasets/contracts")


def test_unknown_parameters_are_errors_in_openais_shape(rails_service: Served) -> None:
    status, answer = rails_service.post("/v1/vector_stores/rails/search", {"query": "bread", "top_k": 3})[:2]
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert "top_k" in answer["error"]["message"]
