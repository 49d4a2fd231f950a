"""Two tenants on one service: for a key, what is outside its datasets does not exist.

Everything is asked of two services that are alike but for one thing: in one of them there is the other tenant's
dataset, in the other there is not. Whatever a key for something else can tell apart is a leak, be it a text, a count,
a score or an error.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
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
from pointsman.models.scripted import HashingEmbedder
from pointsman.server import KeyStore, Limits, create_app
from pointsman.settings import Settings
from serving import serving

OWN, THEIRS, ABSENT = "own", "own-quokka", "nothing"
COUNT = 37  # of their documents

VECTOR = HashingEmbedder().embed_queries(["signal"])[0].tolist()
MARKS = ("quokka", "zanzib", "ledger")
"""Of their dataset's name, description, ids, texts and metadata."""


def fill(workspace: pointsman.Workspace, *, theirs: bool) -> None:
    own = workspace.dataset(OWN, description="Trains and railways")
    own.add(
        [
            Document(f"own-{n}", f"A railway switch guides train {n} to another track. " + "Rails. " * n, {"year": n})
            for n in range(30)
        ]
    )
    workspace.dataset("empty", description="Empty").add([])
    if theirs:
        other = workspace.dataset(THEIRS, description="Zanzibar ledgers of trains and railways")
        other.add(
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
    for space, theirs in zip(spaces, (True, False), strict=True):
        fill(space, theirs=theirs)
    store = KeyStore(folders[0] / "keys.json")
    keys = {
        "own": store.create("tenant", datasets=[OWN, "empty", "later"]).text,
        "reader": store.create("reader", datasets=[OWN], scopes=["read"]).text,
        "writer": store.create("writer", datasets=[OWN], scopes=["write"]).text,
        "theirs": store.create("other", datasets=[THEIRS, "quokka-words"]).text,
        "all": store.create("operator").text,
    }
    shutil.copy(folders[0] / "keys.json", folders[1])
    with ExitStack() as stack:
        made = []
        for folder, space in zip(folders, spaces, strict=True):
            app = create_app(space, settings=Settings(), limits=Limits(requests_per_minute=0))
            address = stack.enter_context(serving(app))
            client = stack.enter_context(httpx.Client(base_url=address, timeout=60))
            made.append(World(client, app, folder, keys))
        yield made[0], made[1]


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
    {"dataset": THEIRS},
    "ledger = ",
]
PLACES: list[list[str] | None] = [
    None,
    [OWN],
    [THEIRS],
    [OWN, THEIRS],
    [ABSENT],
    [],
    ["own*"],
    ["*"],
    ["later"],
    ["empty"],
]
STRATEGIES = [
    "auto", "bm25", "vector", "hybrid", "rrf", "z_score", "min_max", "dbsf", "round_robin", "sparse", "parent_child",
    "multi_query", "decomposition", "hyde", "query2doc", "compression", THEIRS,
]  # fmt: skip


def bodies() -> list[dict[str, Any]]:
    """Searches: each option with all its values, the others as they usually are."""
    found: list[dict[str, Any]] = [{"query": query, "trace": "lists"} for query in QUERIES]
    found += [{"query": QUERY, "filters": one, "trace": "lists"} for one in FILTERS]
    found += [{"query": QUERY, "datasets": one, "trace": "lists"} for one in PLACES]
    found += [{"query": QUERY, "strategy": one, "trace": "lists"} for one in STRATEGIES]
    found += [{"query": QUERIES[1], "effort": one, "trace": "lists"} for one in ("fast", "balanced", "thorough")]
    found += [{"query": QUERY, "k": 200, "refuse": False, "rerank": one} for one in (True, False)]
    found += [{"query": QUERY, "history": [{"role": "user", "text": "Zanzibar"}], "trace": "stages"}]
    return found


FILE = "own-1"


def named(method: str, path: str, **more: Any) -> list[Request]:
    """The request for each dataset's name, of whatever kind."""
    names = (OWN, THEIRS, ABSENT, "later", "empty", "..", f"../{THEIRS}", f"%2e%2e%2f{THEIRS}", THEIRS.upper(), "*")
    return [Request(method, path.replace("{name}", name), **more) for name in names]


def document(id_: str) -> dict[str, Any]:
    return {"id": id_, "text": "A new railway.", "metadata": {"year": 1}}


def requests() -> dict[tuple[str, str], list[Request]]:
    """What is asked of each route. A route that is missing here fails the test: add it, with what might leak."""
    search, many = "/api/search", "/api/search_many"
    one, documents = "/api/datasets/{name}", "/api/datasets/{name}/documents"
    stores, store = "/v1/vector_stores", "/v1/vector_stores/{name}"
    batches, model = f"{store}/file_batches", HashingEmbedder().name
    ids = ["quokka-1", "own-1", "nobody"]
    texts = ["A railway switch.", "Zanzibar ledger 7341", THEIRS, ABSENT]
    upload = {"file_id": "quokka-1", "attributes": {"ledger": "zanzibar"}}
    lines = {"content-type": "application/x-ndjson"}
    policy = {"chosen": "default"}
    made = {
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
        ("POST", many): [
            Request(
                "POST", many, {name: value for name, value in body.items() if name != "query"} | {"queries": QUERIES}
            )
            for body in bodies()
        ],
        ("GET", "/api/retrieval/recommend_strategy"): [
            Request("GET", "/api/retrieval/recommend_strategy", params={"query": query}) for query in QUERIES
        ],
        ("POST", "/api/route"): [
            Request("POST", "/api/route", {"query": query, "datasets": place}) for query in QUERIES for place in PLACES
        ],
        ("POST", "/api/explain"): [
            Request("POST", "/api/explain", {"query": QUERY, "document_id": id_, **place, **inside})
            for id_ in ("own-1", "quokka-1", "nobody")
            for place in ({}, {"dataset": OWN}, {"dataset": THEIRS}, {"dataset": ABSENT})
            for inside in ({}, {"datasets": [THEIRS]}, {"datasets": [OWN], "filters": {"ledger": "zanzibar"}})
        ],
        ("GET", "/api/strategies"): [Request("GET", "/api/strategies")],
        ("GET", "/api/datasets"): [Request("GET", "/api/datasets")],
        ("POST", "/api/datasets"): [
            Request("POST", "/api/datasets", {"name": name, **more})
            for name in (THEIRS, ABSENT, OWN, "later", "../own")
            for more in ({}, {"description": "Trains"}, {"indexing_technique": "keyword"})
        ],
        ("GET", one): named("GET", one),
        ("GET", documents): [
            *named("GET", documents),
            *named("GET", documents, params={"after": "5", "limit": "3"}),
            *named("GET", documents, params={"after": "-1"}),
        ],
        ("GET", "/api/datasets/{name}/document"): [
            request
            for id_ in ("own-1", "quokka-1", "nobody")
            for request in named("GET", "/api/datasets/{name}/document", params={"id": id_})
        ],
        ("GET", "/api/datasets/{name}/ids"): [
            *named("GET", "/api/datasets/{name}/ids"),
            *named("GET", "/api/datasets/{name}/ids", params={"source": "quokka"}),
        ],
        ("GET", "/api/datasets/{name}/text"): [
            request
            for source in ("own-1", "quokka-1", "nobody")
            for request in named("GET", "/api/datasets/{name}/text", params={"source": source})
        ],
        ("POST", "/api/verify"): [
            Request("POST", "/api/verify", {"answer": '"Zanzibar ledger 7341" [1].', "hits": hits})
            for dataset in (OWN, THEIRS, ABSENT)
            for hits in ([], [{"dataset": dataset, "id": "own-1"}], [{"dataset": dataset, "id": "quokka-1"}])
        ],
        ("GET", "/api/datasets/{name}/count"): [
            *named("GET", "/api/datasets/{name}/count"),
            *named("GET", "/api/datasets/{name}/count", params={"filters": 'source = "quokka"'}),
        ],
        ("POST", "/api/datasets/{name}/nearest"): named(
            "POST", "/api/datasets/{name}/nearest", json={"vector": VECTOR}
        ),
        ("POST", "/api/datasets/{name}/vectors"): [
            *named("POST", "/api/datasets/{name}/vectors", json={"ids": ids}),
            *named("POST", "/api/datasets/{name}/vectors", json={"ids": []}),
        ],
        ("GET", "/api/datasets/{name}/metadata_keys"): named("GET", "/api/datasets/{name}/metadata_keys"),
        ("POST", documents): [
            *named("POST", documents, json={"documents": [document("quokka-1"), document("own-1")]}),
            *named("POST", documents, json={"documents": []}),
            *named("POST", documents, content=f"{json.dumps(document('quokka-2'))}\n" * 3 + "{", headers=lines),
        ],
        ("PATCH", documents): [
            *named("PATCH", documents, json={"metadata": {"quokka-1": {"year": 2}}}),
            *named("PATCH", documents, json={"metadata": {"own-3": {"year": 7342}, "own-4": {}}, "replace": True}),
            *named("PATCH", documents, json={"metadata": {}}),
        ],
        ("DELETE", documents): named("DELETE", documents, json={"ids": ["quokka-1", "own-2"]})
        + named("DELETE", documents, json={"filters": 'source = "quokka-9"'}),
        ("POST", "/api/datasets/{name}/verify"): named("POST", "/api/datasets/{name}/verify"),
        ("POST", "/retrieval"): [
            Request(
                "POST",
                "/retrieval",
                {"knowledge_id": name, "query": query, "retrieval_setting": {"top_k": 9, "score_threshold": least}},
            )
            for name in (OWN, THEIRS, ABSENT, "*", "")
            for query in QUERIES[:3]
            for least in (0.0, 0.5)
        ],
        ("GET", stores): [
            Request("GET", stores, params=params)
            for params in ({}, {"after": THEIRS}, {"limit": "1"}, {"order": "desc", "after": OWN})
        ],
        ("POST", stores): [
            Request("POST", stores, {"name": name, **more})
            for name in (THEIRS, ABSENT, OWN, "later", "../own", THEIRS.upper())
            for more in (
                {},
                {"description": "Trains", "metadata": {"kind": "rail"}},
                {"file_ids": ["quokka-1"]},
                {"expires_after": {"anchor": "last_active_at", "days": 1}},
                {"chunking_strategy": {"type": "static"}},
            )
        ],
        ("GET", store): named("GET", store),
        ("POST", store): [
            *named("POST", store, json={"metadata": {"kind": "rail"}}),
            *named("POST", store, json={}),
            *(Request("POST", f"{stores}/{OWN}", {"name": name}) for name in (OWN, THEIRS, ABSENT)),
        ],
        ("POST", f"{store}/search"): [
            *named("POST", f"{store}/search", json={"query": QUERIES[:2], "max_num_results": 50}),
            *named(
                "POST",
                f"{store}/search",
                json={"query": QUERY, "filters": {"type": "eq", "key": "ledger", "value": "zanzibar"}},
            ),
        ],
        ("GET", f"{store}/files"): [
            *named("GET", f"{store}/files"),
            *named("GET", f"{store}/files", params={"after": "quokka-1", "limit": "3"}),
        ],
        ("GET", f"{store}/files/{{file_id}}"): [
            *named("GET", f"{store}/files/{FILE}"),
            *named("GET", f"{store}/files/quokka-1"),
            *named("GET", f"{store}/files/quokka-1/content"),
        ],
        ("POST", f"{store}/files/{{file_id}}"): [
            *named("POST", f"{store}/files/{FILE}", json={"attributes": {"kind": "rail", "year": 1}}),
            *named("POST", f"{store}/files/quokka-7", json={"attributes": {"ledger": "own"}}),
            *named("POST", f"{store}/files/quokka-7", json={"attributes": None}),
        ],
        ("POST", f"{store}/files"): named("POST", f"{store}/files", json=upload),
        ("POST", batches): named("POST", batches, json={"file_ids": ids}),
        ("GET", f"{batches}/{{rest}}"): [
            *named("GET", f"{batches}/{FILE}"),
            *named("GET", f"{batches}/quokka-1/files"),
        ],
        ("POST", f"{batches}/{{rest}}"): [
            *named("POST", f"{batches}/{FILE}"),
            *named("POST", f"{batches}/quokka-1/cancel"),
        ],
        ("GET", "/v1/files"): [Request("GET", "/v1/files", params=params) for params in ({}, {"after": "quokka-1"})],
        ("POST", "/v1/files"): [Request("POST", "/v1/files", upload)],
        ("POST", "/v1/uploads"): [Request("POST", "/v1/uploads", {"filename": name}) for name in (THEIRS, ABSENT)],
        ("GET", "/v1/files/{rest}"): [
            Request("GET", f"/v1/files/{id_}{end}") for id_ in (*ids, OWN, THEIRS, ABSENT) for end in ("", "/content")
        ],
        ("GET", "/v1/models"): [Request("GET", "/v1/models")],
        ("GET", "/v1/models/{name}"): [
            Request("GET", f"/v1/models/{model}"),
            Request("GET", f"/v1/models/{model}/query"),
            *named("GET", "/v1/models/{name}"),
        ],
        ("POST", "/v1/embeddings"): [
            Request("POST", "/v1/embeddings", {"input": given, "model": name})
            for name in (model, f"{model}/query", THEIRS, ABSENT)
            for given in (QUERY, texts)
        ],
        ("POST", "/v1/rerank"): [
            Request("POST", "/v1/rerank", {"query": query, "documents": texts, **more})
            for more in ({}, {"top_n": 1}, {"model": THEIRS}, {"model": ABSENT})
            for query in QUERIES[:4]
        ],
        ("POST", "/v2/rerank"): [
            Request("POST", "/v2/rerank", {"query": query, "documents": texts, **more})
            for more in ({}, {"top_n": 1}, {"model": THEIRS}, {"model": ABSENT})
            for query in QUERIES[:4]
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
        ("DELETE", "/v1/files/{rest}"): [Request("DELETE", f"/v1/files/{id_}") for id_ in (*ids, THEIRS, ABSENT)],
        ("DELETE", f"{store}/files/{{file_id}}"): [
            *named("DELETE", f"{store}/files/{FILE}"),
            *named("DELETE", f"{store}/files/quokka-7"),
        ],
        ("DELETE", store): named("DELETE", store),
        ("DELETE", one): named("DELETE", one),  # the last ones, as they take away what the others are about
    }
    console = [
        Request("GET", path) for path in ("/", "/console", "/console/", f"/console/{THEIRS}", "/console/../api/me")
    ]
    return {**made, ("GET", "<console>"): console}


def routes(world: World) -> set[tuple[str, str]]:
    """Every route of the application, not only those of its description."""
    app = world.app
    while not hasattr(app, "routes"):
        app = app._app
    found: set[tuple[str, str]] = set()

    def walk(several: list[Any]) -> None:
        for route in several:
            path = getattr(route, "path", "")
            if hasattr(route, "original_router"):  # so FastAPI keeps those of a router
                walk(route.original_router.routes)
            elif isinstance(route, Mount) and route.routes:
                walk(list(route.routes))
            elif path == "/" or path.startswith("/console"):
                found.add(("GET", "<console>"))
            elif isinstance(route, Route):
                path = path.replace(":path}", "}")  # as the description has it
                found.update((method, path) for method in route.methods or () if method not in {"HEAD", "OPTIONS"})
            else:
                raise AssertionError(f"a route of an unknown kind: {route}")

    walk(app.routes)
    return found


ROUTES = requests()
_DOORS = ("/api/", "/v1/", "/v2/", "/retrieval")


def test_every_route_is_covered(worlds: tuple[World, World]) -> None:
    described = {
        (method.upper(), path)
        for path, methods in worlds[0].ask("all", Request("GET", "/api/openapi.json")).json()["paths"].items()
        for method in methods
    }
    assert (described | routes(worlds[0])) - set(ROUTES) == set(), "a new route: say above what is asked of it"
    assert set(ROUTES) - described - routes(worlds[0]) <= {("GET", "<console>")}


VOLATILE = {"latency_ms", "milliseconds", "started", "instance", "bytes"}
"""Times, the request's id, and the size of files on disk, which is not the same twice even for the same documents."""


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: "…" if name in VOLATILE else steady(one) for name, one in value.items()}
        if isinstance(found.get("spans"), list):
            found["spans"] = sorted(found["spans"], key=json.dumps)  # side by side: in any order
        return found
    return [steady(one) for one in value] if isinstance(value, list) else value


def told(response: httpx.Response) -> dict[str, Any]:
    """What a response tells, without what differs from one time to the next."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    body: Any = response.text
    if kind in {"application/json", "application/problem+json"}:
        body = steady(response.json())
        if response.request.url.path == "/v2/rerank" and response.is_success:
            body["id"] = uuid.UUID(body["id"]).version  # 4: drawn anew for each answer
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


@pytest.mark.parametrize(("key", "route"), CASES, ids=lambda one: one if isinstance(one, str) else " ".join(one))
def test_nothing_tells_the_other_tenant_from_nobody(
    worlds: tuple[World, World], key: str, route: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pointsman")
    same(worlds, key, ROUTES[route] if key == "own" else ROUTES[route][:8])
    logged = [f"{one.getMessage()} {getattr(one, 'fields', '')}" for one in caplog.records]
    assert [one for one in logged if any(mark in one.lower() for mark in (*MARKS, *worlds[0].keys.values()))] == []


def same(worlds: tuple[World, World], key: str, several: list[Request]) -> None:
    """Check that both services answer alike; then what is in the answer was in the request, or is the key's to see."""
    for request in several:
        one, other = (world.ask(key, request) for world in worlds)
        assert one.status_code < 500, f"{request}: {one.text}"
        assert told(one) == told(other), request
        assert str(worlds[0].folder) not in one.text, request
        assert "Traceback" not in one.text, request
        assert one.headers["x-content-type-options"] == "nosniff"


def path_of(route: tuple[str, str], name: str) -> str:
    return route[1].replace("{name}", name).replace("{file_id}", FILE).replace("{rest}", FILE)


@pytest.mark.parametrize("route", [route for route in ROUTES if "{name}" in route[1]], ids=" ".join)
def test_what_is_theirs_reads_like_what_is_not_there(worlds: tuple[World, World], route: tuple[str, str]) -> None:
    """Not forbidden: not found, in the same words."""
    theirs, absent = (
        [request for request in ROUTES[route] if request.path == path_of(route, name)] for name in (THEIRS, ABSENT)
    )
    assert theirs
    for one, other in zip(theirs, absent, strict=True):
        found, wanted = (told(worlds[0].ask("own", request)) for request in (one, other))
        assert json.dumps(found).replace(THEIRS, ABSENT) == json.dumps(wanted)
        assert found["status"] in {404, 422}


def test_the_other_tenants_documents_are_as_they_were_and_theirs_to_see(worlds: tuple[World, World]) -> None:
    """Also shows that the tests above could have found something."""
    kept = worlds[0].ask("theirs", Request("GET", f"/api/datasets/{THEIRS}/documents")).json()["documents"]
    assert [one["id"] for one in kept] == [f"quokka-{n}" for n in range(COUNT)]
    assert all(one["text"].startswith("Zanzibar ledger") for one in kept)
    listed = worlds[0].ask("theirs", Request("GET", "/api/datasets")).json()["datasets"]
    assert [(one["name"], one["documents"]) for one in listed] == [(THEIRS, COUNT), ("quokka-words", 1)]
    search = Request("POST", "/api/search", {"query": QUERY, "k": 200, "refuse": False})
    for key, seen, hidden in (("theirs", THEIRS, OWN), ("own", OWN, THEIRS), ("all", THEIRS, ABSENT), ("all", OWN, "")):
        found = {hit["dataset"] for hit in worlds[0].ask(key, search).json()["hits"]}
        assert seen in found
        assert hidden not in found
    assert told(worlds[0].ask("all", search)) != told(worlds[1].ask("all", search))


def test_what_concerns_all_needs_a_key_for_all(worlds: tuple[World, World]) -> None:
    for route in (("GET", "/metrics"), ("GET", "/api/evaluations"), ("GET", "/api/policy"), ("PUT", "/api/policy"),
                  ("DELETE", "/api/policy")):  # fmt: skip
        for key in ("own", "reader", "writer", "theirs"):
            assert worlds[0].ask(key, ROUTES[route][0]).status_code == 403, route
    counted = worlds[0].ask("all", Request("GET", "/metrics"))
    assert counted.status_code == 200
    assert not any(mark in counted.text.lower() for mark in MARKS)


def test_scopes(worlds: tuple[World, World]) -> None:
    """Of its own dataset a reader may change nothing, and a writer read nothing."""
    reads = {
        ("POST", "/api/search"), ("POST", "/api/stream"), ("POST", "/api/search_many"),
        ("POST", "/api/retrieval/search"),
        ("POST", "/api/route"), ("POST", "/api/explain"), ("GET", "/api/datasets"),
        ("GET", "/api/retrieval/recommend_strategy"), ("GET", "/api/strategies"),
        ("GET", "/api/datasets/{name}"), ("GET", "/api/datasets/{name}/documents"),
        ("GET", "/api/datasets/{name}/document"), ("GET", "/api/datasets/{name}/ids"),
        ("GET", "/api/datasets/{name}/count"), ("GET", "/api/datasets/{name}/text"),
        ("POST", "/api/datasets/{name}/nearest"),
        ("POST", "/api/datasets/{name}/verify"), ("POST", "/api/verify"),
        ("POST", "/retrieval"), ("GET", "/v1/vector_stores"), ("GET", "/v1/vector_stores/{name}"),
        ("POST", "/v1/vector_stores/{name}/search"), ("GET", "/v1/vector_stores/{name}/files"),
        ("GET", "/v1/vector_stores/{name}/files/{file_id}"),
        ("POST", "/api/datasets/{name}/vectors"), ("GET", "/api/datasets/{name}/metadata_keys"),
        ("GET", "/v1/models"), ("GET", "/v1/models/{name}"), ("POST", "/v1/embeddings"),
        ("POST", "/v1/rerank"), ("POST", "/v2/rerank"),
    }  # fmt: skip
    writes = {
        ("POST", "/api/datasets/{name}/documents"), ("DELETE", "/api/datasets/{name}/documents"),
        ("DELETE", "/api/datasets/{name}"), ("POST", "/v1/vector_stores"),
    }  # fmt: skip
    both = {  # what is unknown is refused, or the answer shows what is stored, which tells what is known
        ("PATCH", "/api/datasets/{name}/documents"),
        ("POST", "/v1/vector_stores/{name}"), ("DELETE", "/v1/vector_stores/{name}"),
        ("POST", "/v1/vector_stores/{name}/files/{file_id}"), ("DELETE", "/v1/vector_stores/{name}/files/{file_id}"),
    }  # fmt: skip
    neither = {  # not there for anyone: files are not uploaded
        ("GET", "/v1/files"), ("POST", "/v1/files"), ("POST", "/v1/uploads"),
        ("GET", "/v1/files/{rest}"), ("DELETE", "/v1/files/{rest}"),
        ("POST", "/v1/vector_stores/{name}/files"), ("POST", "/v1/vector_stores/{name}/file_batches"),
        ("GET", "/v1/vector_stores/{name}/file_batches/{rest}"),
        ("POST", "/v1/vector_stores/{name}/file_batches/{rest}"),
    }  # fmt: skip
    for route in neither:
        for key in ("own", "reader", "writer", "theirs", "all"):
            assert {worlds[0].ask(key, request).status_code for request in ROUTES[route]} == {404}, route
    for route in both:
        assert {worlds[0].ask(key, ROUTES[route][0]).status_code for key in ("reader", "writer")} == {403}, route
    for route in reads:
        assert worlds[0].ask("writer", ROUTES[route][0]).status_code == 403, route
        assert worlds[0].ask("reader", ROUTES[route][0]).status_code == 200, route
    for route in writes:
        assert worlds[0].ask("reader", ROUTES[route][0]).status_code == 403, route
    assert worlds[0].ask("reader", Request("POST", "/api/datasets", {"name": OWN})).status_code == 403
    everything = reads | writes | both | neither | {("POST", "/api/datasets")}
    closed = {route for route in ROUTES if route[1].startswith(_DOORS) and route not in everything}
    assert closed == {
        ("GET", "/api/me"), ("GET", "/api/openapi.json"), ("GET", "/api/evaluations"), ("GET", "/api/policy"),
        ("PUT", "/api/policy"), ("DELETE", "/api/policy"),
    }, "a new route: is it for readers or for writers?"  # fmt: skip


def test_without_a_key_there_is_nothing_but_the_door(worlds: tuple[World, World]) -> None:
    open_ = {("GET", "/health"), ("GET", "/ready"), ("GET", "<console>")}
    for route, several in ROUTES.items():
        if route not in open_:
            for given in ({}, {"X-API-Key": "ptm_00000000_" + "A" * 43}):
                request = several[0]
                answer = worlds[0].client.request(
                    request.method, request.path, params=request.params, headers=given, json=request.json
                )
                challenge = answer.headers.get("www-authenticate")
                expected = (403, None) if route == ("POST", "/retrieval") else (401, "Bearer")
                assert (answer.status_code, challenge) == expected, route


def test_z_deleting_ones_own_leaves_the_others(worlds: tuple[World, World]) -> None:
    """The last one: it deletes."""
    deletions = [route for route in ROUTES if route[0] == "DELETE" and route[1] != "/api/policy"]
    assert deletions[-2:] == [("DELETE", "/v1/vector_stores/{name}"), ("DELETE", "/api/datasets/{name}")]
    for route in deletions:
        for key in ("own", "writer"):
            same(worlds, key, ROUTES[route])
        if route == deletions[-2]:  # made again, for the other way to delete them
            assert worlds[0].ask("own", Request("GET", "/api/datasets")).json() == {"datasets": []}
            names = (OWN, "empty", "later", THEIRS, ABSENT)
            same(worlds, "own", [Request("POST", "/v1/vector_stores", {"name": name}) for name in names])
            listed = worlds[0].ask("own", Request("GET", "/api/datasets")).json()["datasets"]
            assert {one["name"] for one in listed} == {OWN, "empty", "later"}
    assert worlds[0].ask("own", Request("GET", "/api/datasets")).json() == {"datasets": []}
    assert worlds[0].ask("own", Request("POST", "/api/search", {"query": QUERY})).status_code == 200
    found = worlds[0].ask("theirs", Request("GET", f"/api/datasets/{THEIRS}")).json()
    assert found["documents"] == COUNT
