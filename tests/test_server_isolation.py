"""Two tenants on one service: for a key, what is outside its datasets does not exist.

Everything is asked of two services that are alike but for one thing: in one of them there is the other tenant's
dataset, in the other there is not. Whatever a key for something else can tell apart is a leak, be it a text, a count,
a score or an error.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import KeyStore, Limits, create_app
from pointsman.values.settings import Settings
from serving import serving

OWN_DATASET, OTHER_DATASET, ABSENT = "own", "own-quokka", "nothing"
COUNT = 37  # of their documents

VECTOR = HashingEmbedder().embed_queries(["signal"])[0].tolist()
MARKS = ("quokka", "zanzib", "ledger")
"""Of their dataset's name, description, ids, texts and metadata."""


def fill(workspace: pointsman.Workspace, *, with_other_tenant: bool) -> None:
    own_dataset = workspace.dataset(OWN_DATASET, description="Trains and railways")
    own_dataset.add(
        [
            Document(f"own-{n}", f"A railway switch guides train {n} to another track. " + "Rails. " * n, {"year": n})
            for n in range(30)
        ]
    )
    workspace.dataset("empty", description="Empty").add([])
    if with_other_tenant:
        other_dataset = workspace.dataset(OTHER_DATASET, description="Zanzibar ledgers of trains and railways")
        other_dataset.add(
            [
                Document(
                    f"quokka-{n}",
                    f"Zanzibar ledger {n}: a railway switch guides train 7341 to another track, quokkaburra.",
                    {"ledger": "zanzibar", "year": 7341},
                )
                for n in range(COUNT)
            ]
        )
        words = workspace.dataset("quokka-words", description="Only words", indexing_technique="keyword")
        words.add([Document("quokka-0", "Zanzibar words: a railway switch.", {"ledger": "zanzibar"})])


@dataclass
class World:
    """A service, and the keys to it."""

    client: httpx.Client
    app: Any
    folder: Path
    keys: dict[str, str] = field(repr=False)

    def ask(self, key: str, request: Request) -> httpx.Response:
        headers = {"X-API-Key": self.keys[key], **request.headers}
        return self.client.request(
            request.method, request.path, params=request.params, headers=headers,
            json=request.json, content=request.content,
        )  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A request to a route; ``{name}`` in the path is filled in."""

    method: str
    path: str
    json: Any = None
    params: Mapping[str, str] = field(default_factory=dict)
    content: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.params or ''} {self.json or self.content or ''}"


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    """With their dataset, and without."""
    folders = [tmp_path_factory.mktemp("with"), tmp_path_factory.mktemp("without")]
    spaces = [pointsman.open(folder, embedder=HashingEmbedder()) for folder in folders]
    for space, with_other_tenant in zip(spaces, (True, False), strict=True):
        fill(space, with_other_tenant=with_other_tenant)
    store = KeyStore(folders[0] / "keys.json")
    keys = {
        "own": store.create("tenant", datasets=[OWN_DATASET, "empty", "later"]).text,
        "reader": store.create("reader", datasets=[OWN_DATASET], scopes=["read"]).text,
        "writer": store.create("writer", datasets=[OWN_DATASET], scopes=["write"]).text,
        "theirs": store.create("other", datasets=[OTHER_DATASET, "quokka-words"]).text,
        "all": store.create("operator").text,
    }
    shutil.copy(folders[0] / "keys.json", folders[1])
    with ExitStack() as stack:
        made_worlds = []
        for folder, space in zip(folders, spaces, strict=True):
            app = create_app(space, settings=Settings(), limits=Limits(requests_per_minute=0))
            address = stack.enter_context(serving(app))
            client = stack.enter_context(httpx.Client(base_url=address, timeout=60))
            made_worlds.append(World(client, app, folder, keys))
        yield made_worlds[0], made_worlds[1]


# ── every route ──────────────────────────────────────────────────────────────────────────────────────────────────────

QUERY = "which railway switch guides trains to a track?"
QUERIES = [
    QUERY,
    "quokkabura zanzibr",
    "ledger 7341",
    "compare a switch and a rail, and what guides train 5",
    "",
    "道岔 列车",
]
FILTERS: list[Any] = [
    None,
    {"year": 7341},
    {"ledger": "zanzibar"},
    "year >= 5 or ledger exists",
    "not (year = 3)",
    {"ledger": {"exists": False}},
    {"dataset": OTHER_DATASET},
    "ledger = ",
]
DATASET_CHOICES: list[list[str] | None] = [
    None,
    [OWN_DATASET],
    [OTHER_DATASET],
    [OWN_DATASET, OTHER_DATASET],
    [ABSENT],
    [],
    ["own*"],
    ["*"],
    ["later"],
    ["empty"],
]
STRATEGIES = [
    "auto", "bm25", "vector", "hybrid", "rrf", "z_score", "min_max", "dbsf", "round_robin", "sparse", "parent_child",
    "multi_query", "decomposition", "hyde", "query2doc", "compression", OTHER_DATASET,
]  # fmt: skip


def bodies() -> list[dict[str, Any]]:
    """Searches: each option with all its values, the others as they usually are."""
    search_bodies: list[dict[str, Any]] = [{"query": query, "trace": "lists"} for query in QUERIES]
    search_bodies += [{"query": QUERY, "filters": condition, "trace": "lists"} for condition in FILTERS]
    search_bodies += [{"query": QUERY, "datasets": names, "trace": "lists"} for names in DATASET_CHOICES]
    search_bodies += [{"query": QUERY, "strategy": strategy, "trace": "lists"} for strategy in STRATEGIES]
    search_bodies += [
        {"query": QUERIES[1], "effort": effort, "trace": "lists"} for effort in ("fast", "balanced", "thorough")
    ]
    search_bodies += [{"query": QUERY, "k": 200, "refuse": False, "rerank": rerank} for rerank in (True, False)]
    search_bodies += [{"query": QUERY, "history": [{"role": "user", "text": "Zanzibar"}], "trace": "stages"}]
    return search_bodies


FILE = "own-1"
"""A form that has no file."""


def requests_by_name(method: str, path: str, **options: Any) -> list[Request]:
    """The request for each dataset's name, of whatever kind."""
    names = (
        OWN_DATASET,
        OTHER_DATASET,
        ABSENT,
        "later",
        "empty",
        "..",
        f"../{OTHER_DATASET}",
        f"%2e%2e%2f{OTHER_DATASET}",
        OTHER_DATASET.upper(),
        "*",
    )
    return [Request(method, path.replace("{name}", name), **options) for name in names]


def document(id_: str) -> dict[str, Any]:
    return {"id": id_, "text": "A new railway.", "metadata": {"year": 1}}


def receipt_of(dataset: str) -> str:
    """A well-formed receipt of an answer from a dataset, sealed by someone who guesses."""
    from pointsman.retrieval.receipts import Receipt, SourceState

    source = SourceState(dataset, "0" * 32, 1, "0" * 16)
    return Receipt("0.1.0", 0, "2026-01-01", {"text": QUERY}, {}, (), {}, "", "", "", (source,), "").seal(b"guess")


def requests() -> dict[tuple[str, str], list[Request]]:
    """What is asked of each route. A route that is missing here fails the test: add it, with what might leak."""
    search, many_path = "/api/search", "/api/search_many"
    dataset_path, documents = "/api/datasets/{name}", "/api/datasets/{name}/documents"
    store = "/v1/vector_stores/{name}"
    ids = ["quokka-1", "own-1", "nobody"]
    lines = {"content-type": "application/x-ndjson"}
    policy = {"chosen": "default"}
    by_route = {
        ("POST", search): [Request("POST", search, body) for body in bodies()],
        ("POST", "/api/retrieval/search"): [
            Request(
                "POST",
                "/api/retrieval/search",
                {name: value for name, value in body.items() if name in {"query", "k", "strategy", "filters"}},
            )
            for body in bodies()
        ],
        ("POST", "/api/stream"): [Request("POST", "/api/stream", body) for body in bodies()],
        ("POST", many_path): [
            Request(
                "POST",
                many_path,
                {name: value for name, value in body.items() if name != "query"} | {"queries": QUERIES},
            )
            for body in bodies()
        ],
        ("GET", "/api/retrieval/recommend_strategy"): [
            Request("GET", "/api/retrieval/recommend_strategy", params={"query": query}) for query in QUERIES
        ],
        ("POST", "/api/route"): [
            Request("POST", "/api/route", {"query": query, "datasets": names})
            for query in QUERIES
            for names in DATASET_CHOICES
        ],
        ("POST", "/api/explain"): [
            Request("POST", "/api/explain", {"query": QUERY, "document_id": id_, **target, **scope})
            for id_ in ("own-1", "quokka-1", "nobody")
            for target in ({}, {"dataset": OWN_DATASET}, {"dataset": OTHER_DATASET}, {"dataset": ABSENT})
            for scope in (
                {},
                {"datasets": [OTHER_DATASET]},
                {"datasets": [OWN_DATASET], "filters": {"ledger": "zanzibar"}},
            )
        ],
        ("POST", "/api/replay"): [
            Request("POST", "/api/replay", {"receipt": receipt}) for receipt in (receipt_of(OTHER_DATASET), "r1.x.y")
        ],
        ("GET", "/api/strategies"): [Request("GET", "/api/strategies")],
        ("GET", "/api/datasets"): [Request("GET", "/api/datasets")],
        ("POST", "/api/datasets"): [
            Request("POST", "/api/datasets", {"name": name, **fields})
            for name in (OTHER_DATASET, ABSENT, OWN_DATASET, "later", "../own")
            for fields in ({}, {"description": "Trains"}, {"indexing_technique": "keyword"})
        ],
        ("GET", dataset_path): requests_by_name("GET", dataset_path),
        ("GET", documents): [
            *requests_by_name("GET", documents),
            *requests_by_name("GET", documents, params={"after": "5", "limit": "3"}),
            *requests_by_name("GET", documents, params={"after": "-1"}),
        ],
        ("GET", "/api/datasets/{name}/document"): [
            request
            for id_ in ("own-1", "quokka-1", "nobody")
            for request in requests_by_name("GET", "/api/datasets/{name}/document", params={"id": id_})
        ],
        ("GET", "/api/datasets/{name}/ids"): [
            *requests_by_name("GET", "/api/datasets/{name}/ids"),
            *requests_by_name("GET", "/api/datasets/{name}/ids", params={"source": "quokka"}),
        ],
        ("GET", "/api/datasets/{name}/text"): [
            request
            for source in ("own-1", "quokka-1", "nobody")
            for request in requests_by_name("GET", "/api/datasets/{name}/text", params={"source": source})
        ],
        ("POST", "/api/verify"): [
            Request("POST", "/api/verify", {"answer": '"Zanzibar ledger 7341" [1].', "hits": hits})
            for dataset in (OWN_DATASET, OTHER_DATASET, ABSENT)
            for hits in ([], [{"dataset": dataset, "id": "own-1"}], [{"dataset": dataset, "id": "quokka-1"}])
        ],
        ("GET", "/api/datasets/{name}/count"): [
            *requests_by_name("GET", "/api/datasets/{name}/count"),
            *requests_by_name("GET", "/api/datasets/{name}/count", params={"filters": 'source = "quokka"'}),
        ],
        ("POST", "/api/datasets/{name}/nearest"): requests_by_name(
            "POST", "/api/datasets/{name}/nearest", json={"vector": VECTOR}
        ),
        ("POST", "/api/datasets/{name}/vectors"): [
            *requests_by_name("POST", "/api/datasets/{name}/vectors", json={"ids": ids}),
            *requests_by_name("POST", "/api/datasets/{name}/vectors", json={"ids": []}),
        ],
        ("GET", "/api/datasets/{name}/metadata_keys"): requests_by_name("GET", "/api/datasets/{name}/metadata_keys"),
        ("POST", documents): [
            *requests_by_name("POST", documents, json={"documents": [document("quokka-1"), document("own-1")]}),
            *requests_by_name("POST", documents, json={"documents": []}),
            *requests_by_name(
                "POST", documents, content=f"{json.dumps(document('quokka-2'))}\n" * 3 + "{", headers=lines
            ),
        ],
        ("PATCH", documents): [
            *requests_by_name("PATCH", documents, json={"metadata": {"quokka-1": {"year": 2}}}),
            *requests_by_name(
                "PATCH", documents, json={"metadata": {"own-3": {"year": 7342}, "own-4": {}}, "replace": True}
            ),
            *requests_by_name("PATCH", documents, json={"metadata": {}}),
        ],
        ("DELETE", documents): requests_by_name("DELETE", documents, json={"ids": ["quokka-1", "own-2"]})
        + requests_by_name("DELETE", documents, json={"filters": 'source = "quokka-9"'}),
        ("POST", "/api/datasets/{name}/verify"): requests_by_name("POST", "/api/datasets/{name}/verify"),
        ("POST", "/retrieval"): [
            Request(
                "POST",
                "/retrieval",
                {"knowledge_id": name, "query": query, "retrieval_setting": {"top_k": 9, "score_threshold": threshold}},
            )
            for name in (OWN_DATASET, OTHER_DATASET, ABSENT, "*", "")
            for query in QUERIES[:3]
            for threshold in (0.0, 0.5)
        ],
        ("POST", f"{store}/search"): [
            *requests_by_name("POST", f"{store}/search", json={"query": QUERIES[:2], "max_num_results": 50}),
            *requests_by_name(
                "POST",
                f"{store}/search",
                json={"query": QUERY, "filters": {"type": "eq", "key": "ledger", "value": "zanzibar"}},
            ),
        ],
        ("GET", "/health"): [Request("GET", "/health")],
        ("GET", "/ready"): [Request("GET", "/ready")],
        ("GET", "/metrics"): [Request("GET", "/metrics")],
        ("GET", "/api/me"): [Request("GET", "/api/me")],
        ("GET", "/api/evaluations"): [Request("GET", "/api/evaluations")],
        ("GET", "/api/policy"): [Request("GET", "/api/policy")],
        ("PUT", "/api/policy"): [Request("PUT", "/api/policy", policy)],
        ("DELETE", "/api/policy"): [Request("DELETE", "/api/policy")],
        ("GET", "/api/openapi.json"): [Request("GET", "/api/openapi.json")],
        ("DELETE", dataset_path): requests_by_name(
            "DELETE", dataset_path
        ),  # the last ones, as they take away what the others are about
    }
    console = [
        Request("GET", path)
        for path in ("/", "/docs", "/console", "/console/", f"/console/{OTHER_DATASET}", "/console/../api/me")
    ]
    return {**by_route, ("GET", "<console>"): console}


def routes(world: World) -> set[tuple[str, str]]:
    """Every route of the application, not only those of its description."""
    app = world.app
    while not hasattr(app, "routes"):
        app = app._app
    known_routes: set[tuple[str, str]] = set()

    def walk(entries: list[Any]) -> None:
        for route in entries:
            path = getattr(route, "path", "")
            if hasattr(route, "original_router"):  # so FastAPI keeps those of a router
                walk(route.original_router.routes)
            elif isinstance(route, Mount) and route.routes:
                walk(list(route.routes))
            elif path in {"/", "/docs"} or path.startswith("/console"):
                known_routes.add(("GET", "<console>"))
            elif isinstance(route, Route):
                path = path.replace(":path}", "}")  # as the description has it
                known_routes.update(
                    (method, path) for method in route.methods or () if method not in {"HEAD", "OPTIONS"}
                )
            else:
                raise AssertionError(f"a route of an unknown kind: {route}")

    walk(app.routes)
    return known_routes


ROUTES = requests()
_DOORS = ("/api/", "/v1/", "/v2/", "/retrieval")


def test_memory_is_told_to_keys_for_all_datasets(worlds: tuple[World, World]) -> None:
    world, _ = worlds
    for path in ("/api/datasets", f"/api/datasets/{OWN_DATASET}"):
        answers = {key: world.ask(key, Request("GET", path)).json() for key in ("all", "own", "reader")}
        statuses = {key: answer.get("datasets", [answer])[0] for key, answer in answers.items()}
        assert statuses["all"]["memory"].keys() == {"resident", "files", "cached", "cache_limit"}
        assert statuses["own"]["memory"] is statuses["reader"]["memory"] is None
    creation = world.ask("own", Request("POST", "/api/datasets", {"name": OWN_DATASET}))
    assert creation.json()["memory"] is None


def test_every_route_is_covered(worlds: tuple[World, World]) -> None:
    routes_in_openapi = {
        (method.upper(), path)
        for path, methods in worlds[0].ask("all", Request("GET", "/api/openapi.json")).json()["paths"].items()
        for method in methods
    }
    assert (routes_in_openapi | routes(worlds[0])) - set(ROUTES) == set(), "a new route: say above what is asked of it"
    assert set(ROUTES) - routes_in_openapi - routes(worlds[0]) <= {("GET", "<console>")}


VOLATILE = {"latency_ms", "milliseconds", "started", "created_at", "instance", "bytes", "bytes_by_part"}
"""Times, the request's id, and the size of files on disk, which is not the same twice even for the same documents."""


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        stable = {name: "…" if name in VOLATILE else steady(item) for name, item in value.items()}
        if isinstance(stable.get("spans"), list):
            stable["spans"] = sorted(stable["spans"], key=json.dumps)  # side by side: in any order
        return stable
    return [steady(item) for item in value] if isinstance(value, list) else value


def comparable(response: httpx.Response) -> dict[str, Any]:
    """What a response tells, without what differs from one time to the next."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    body: Any = response.text
    if kind in {"application/json", "application/problem+json"}:
        body = steady(response.json())
    elif kind == "application/x-ndjson":
        body = [steady(json.loads(line)) for line in response.text.splitlines()]
    elif kind == "text/event-stream":
        events = [block.split("\n") for block in response.text.strip().split("\n\n")]
        body = sorted(json.dumps([name, steady(json.loads(data[6:]))]) for name, data in events)
    headers = {
        name: value
        for name, value in response.headers.items()
        if name not in {"x-request-id", "content-length", "date"}
    }
    return {"status": response.status_code, "headers": headers, "body": body}


CASES = [
    (key, route) for key in ("own", "reader", "writer") for route in ROUTES if key == "reader" or route[0] != "DELETE"
]
"""A reader may delete nothing; the others do so in the last test."""


@pytest.mark.parametrize(
    ("key", "route"), CASES, ids=lambda case_part: case_part if isinstance(case_part, str) else " ".join(case_part)
)
def test_nothing_tells_the_other_tenant_from_nobody(
    worlds: tuple[World, World], key: str, route: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pointsman")
    assert_same_answers(worlds, key, ROUTES[route] if key == "own" else ROUTES[route][:8])
    lines = [f"{record.getMessage()} {getattr(record, 'fields', '')}" for record in caplog.records]
    assert [line for line in lines if any(mark in line.lower() for mark in (*MARKS, *worlds[0].keys.values()))] == []


def assert_same_answers(worlds: tuple[World, World], key: str, requests: list[Request]) -> None:
    """Check that both services answer alike; then what is in the answer was in the request, or is the key's to see."""
    for request in requests:
        answer, answer_without_other = (world.ask(key, request) for world in worlds)
        assert answer.status_code < 500, f"{request}: {answer.text}"
        assert comparable(answer) == comparable(answer_without_other), request
        assert str(worlds[0].folder) not in answer.text, request
        assert "Traceback" not in answer.text, request
        assert answer.headers["x-content-type-options"] == "nosniff"


def path_of(route: tuple[str, str], name: str) -> str:
    return route[1].replace("{name}", name).replace("{batch_id}", FILE)


@pytest.mark.parametrize("route", [route for route in ROUTES if "{name}" in route[1]], ids=" ".join)
def test_what_is_theirs_reads_like_what_is_not_there(worlds: tuple[World, World], route: tuple[str, str]) -> None:
    """Not forbidden: not found, in the same words."""
    their_requests, absent = (
        [request for request in ROUTES[route] if request.path == path_of(route, name)]
        for name in (OTHER_DATASET, ABSENT)
    )
    assert their_requests
    for their_request, absent_request in zip(their_requests, absent, strict=True):
        answer, expected = (comparable(worlds[0].ask("own", request)) for request in (their_request, absent_request))
        assert json.dumps(answer).replace(OTHER_DATASET, ABSENT) == json.dumps(expected)
        assert answer["status"] in {404, 422}


def test_the_other_tenants_documents_are_as_they_were_and_theirs_to_see(worlds: tuple[World, World]) -> None:
    """Also shows that the tests above could have found something."""
    documents = worlds[0].ask("theirs", Request("GET", f"/api/datasets/{OTHER_DATASET}/documents")).json()["documents"]
    assert [document["id"] for document in documents] == [f"quokka-{n}" for n in range(COUNT)]
    assert all(document["text"].startswith("Zanzibar ledger") for document in documents)
    datasets = worlds[0].ask("theirs", Request("GET", "/api/datasets")).json()["datasets"]
    assert [(dataset["name"], dataset["documents"]) for dataset in datasets] == [
        (OTHER_DATASET, COUNT),
        ("quokka-words", 1),
    ]
    search = Request("POST", "/api/search", {"query": QUERY, "k": 200, "refuse": False})
    for key, visible, invisible in (
        ("theirs", OTHER_DATASET, OWN_DATASET),
        ("own", OWN_DATASET, OTHER_DATASET),
        ("all", OTHER_DATASET, ABSENT),
        ("all", OWN_DATASET, ""),
    ):
        names = {hit["dataset"] for hit in worlds[0].ask(key, search).json()["hits"]}
        assert visible in names
        assert invisible not in names
    assert comparable(worlds[0].ask("all", search)) != comparable(worlds[1].ask("all", search))


def test_what_concerns_all_needs_a_key_for_all(worlds: tuple[World, World]) -> None:
    for route in (("GET", "/metrics"), ("GET", "/api/evaluations"), ("GET", "/api/policy"), ("PUT", "/api/policy"),
                  ("DELETE", "/api/policy")):  # fmt: skip
        for key in ("own", "reader", "writer", "theirs"):
            assert worlds[0].ask(key, ROUTES[route][0]).status_code == 403, route
    metrics = worlds[0].ask("all", Request("GET", "/metrics"))
    assert metrics.status_code == 200
    assert not any(mark in metrics.text.lower() for mark in MARKS)


def test_scopes(worlds: tuple[World, World]) -> None:
    """Of its own dataset a reader may change nothing, and a writer read nothing."""
    reads = {
        ("POST", "/api/search"), ("POST", "/api/stream"), ("POST", "/api/search_many"),
        ("POST", "/api/retrieval/search"),
        ("POST", "/api/route"), ("POST", "/api/explain"), ("POST", "/api/replay"), ("GET", "/api/datasets"),
        ("GET", "/api/retrieval/recommend_strategy"), ("GET", "/api/strategies"),
        ("GET", "/api/datasets/{name}"), ("GET", "/api/datasets/{name}/documents"),
        ("GET", "/api/datasets/{name}/document"), ("GET", "/api/datasets/{name}/ids"),
        ("GET", "/api/datasets/{name}/count"), ("GET", "/api/datasets/{name}/text"),
        ("POST", "/api/datasets/{name}/nearest"),
        ("POST", "/api/datasets/{name}/verify"), ("POST", "/api/verify"),
        ("POST", "/retrieval"), ("POST", "/v1/vector_stores/{name}/search"),
        ("POST", "/api/datasets/{name}/vectors"), ("GET", "/api/datasets/{name}/metadata_keys"),
    }  # fmt: skip
    writes = {
        ("POST", "/api/datasets/{name}/documents"), ("DELETE", "/api/datasets/{name}/documents"),
        ("DELETE", "/api/datasets/{name}"), ("PATCH", "/api/datasets/{name}/documents"),
    }  # fmt: skip
    for route in reads:
        assert worlds[0].ask("writer", ROUTES[route][0]).status_code == 403, route
        status = 404 if route == ("POST", "/api/replay") else 200  # the receipt is of what the reader does not see
        assert worlds[0].ask("reader", ROUTES[route][0]).status_code == status, route
    for route in writes:
        assert worlds[0].ask("reader", ROUTES[route][0]).status_code == 403, route
    assert worlds[0].ask("reader", Request("POST", "/api/datasets", {"name": OWN_DATASET})).status_code == 403
    everything = reads | writes | {("POST", "/api/datasets")}
    closed = {route for route in ROUTES if route[1].startswith(_DOORS) and route not in everything}
    assert closed == {
        ("GET", "/api/me"), ("GET", "/api/openapi.json"), ("GET", "/api/evaluations"), ("GET", "/api/policy"),
        ("PUT", "/api/policy"), ("DELETE", "/api/policy"),
    }, "a new route: is it for readers or for writers?"  # fmt: skip


def test_without_a_key_there_is_nothing_but_the_door(worlds: tuple[World, World]) -> None:
    open_ = {("GET", "/health"), ("GET", "/ready"), ("GET", "<console>")}
    for route, requests in ROUTES.items():
        if route not in open_:
            for headers in ({}, {"X-API-Key": "ptm_00000000_" + "A" * 43}):
                request = requests[0]
                answer = worlds[0].client.request(
                    request.method, request.path, params=request.params, headers=headers, json=request.json
                )
                challenge = answer.headers.get("www-authenticate")
                expected = (403, None) if route == ("POST", "/retrieval") else (401, "Bearer")
                assert (answer.status_code, challenge) == expected, route


def test_z_deleting_ones_own_leaves_the_others(worlds: tuple[World, World]) -> None:
    """The last one: it deletes."""
    deletions = [route for route in ROUTES if route[0] == "DELETE" and route[1] != "/api/policy"]
    assert deletions[-1] == ("DELETE", "/api/datasets/{name}")
    for route in deletions:
        for key in ("own", "writer"):
            assert_same_answers(worlds, key, ROUTES[route])
    assert worlds[0].ask("own", Request("GET", "/api/datasets")).json() == {"datasets": []}
    assert worlds[0].ask("own", Request("POST", "/api/search", {"query": QUERY})).status_code == 200
    dataset = worlds[0].ask("theirs", Request("GET", f"/api/datasets/{OTHER_DATASET}")).json()
    assert dataset["documents"] == COUNT
