"""What is checked before anything acts on a request: its head, where it comes from, how often, and its body."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.service.server.access.hosts_and_sites import CrossSite, TrustedHosts
from pointsman.service.server.access.rate_limits import Gate, Guard, RateLimit
from pointsman.service.server.access.request_access import Access, access_of
from pointsman.service.server.protocol import strict_json
from pointsman.service.server.protocol.headers import RequestHead, SecurityHeaders
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.request_body import Bodies
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.protocol.strict_json import MAX_DEPTH, json_lines, parse_json
from pointsman.service.server.request_checks import secure
from pointsman.tools.errors import InputError
from pointsman.tools.network.json_bounds import MAX_VALUES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def run(awaitable: Awaitable[Any]) -> Any:
    async def wait_for() -> Any:
        return await awaitable

    return asyncio.run(wait_for())


def problem_of(call: Callable[[], object]) -> HttpProblem | None:
    try:
        call()
    except HttpProblem as problem:
        return problem
    return None


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        values = [value for header_name, value in self.headers if header_name == name]
        assert len(values) < 2, f"{name} stands there {len(values)} times"
        return values[0] if values else None

    @property
    def problem(self) -> str:
        assert self.header("content-type") == "application/problem+json"
        body = json.loads(self.body)
        assert body["status"] == self.status
        return str(body["type"].removeprefix("/problems/"))


class Service:
    """An application that answers with the body it was sent, and notes what reached it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.scopes: list[Scope] = []
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": body})


def scope_of(
    method: str = "GET",
    path: str = "/api/datasets",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    **options: Any,
) -> Scope:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "client": ("203.0.113.5", 4711),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
        **options,
    }


async def ask(app: ASGIApp, scope: Scope, chunks: list[bytes] | None = None, *, forever: bool = False) -> Answer:
    """The answer to a request whose body comes in these parts; ``forever`` leaves its end out."""
    incoming: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks or []]
    if not forever:
        incoming.append({"type": "http.request", "body": b"", "more_body": False})
    answer = Answer()

    async def receive() -> Message:
        if incoming:
            return incoming.pop(0)
        if forever:
            await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not answer.status, "a second response"
            answer.status = message["status"]
            answer.headers = [(name.decode().lower(), value.decode()) for name, value in message["headers"]]
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


def post(path: str = "/api/datasets", **headers: str) -> Scope:
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return scope_of("POST", path, {"content-type": "application/json", **all_headers})


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "limits",
    [
        {"max_k": 0},
        {"max_k": -1},
        {"max_k": True},
        {"max_k": "5"},
        {"max_k": None},
        {"max_k": 5.0},
        {"max_body_bytes": 0},
        {"max_ingest_bytes": 0},
        {"queue": -1},
        {"queue_seconds": math.nan},
        {"queue_seconds": math.inf},
        {"body_seconds": 0},
        {"requests_per_minute": -1},
        {"burst": 0},
        {"concurrency": 0},
    ],
)
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(limits))):
        Limits(**limits)


def test_limits_that_may_be_off() -> None:
    limits = Limits(requests_per_minute=0, queue=0, queue_seconds=0, max_ingest_bytes=None, burst=None)
    assert (limits.requests_per_minute, limits.queue, limits.queue_seconds, limits.max_ingest_bytes) == (0, 0, 0, None)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4)
    ),
)


@given(values, st.booleans())
def test_what_is_json_is_read_as_json_reads_it(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=200) | st.text(alphabet='[]{}",:\\u0dD8a1e9.-NaInfity \n', max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_a_problem(body: bytes) -> None:
    problem = problem_of(lambda: parse_json(body))
    if problem is None:
        json.dumps(parse_json(body), allow_nan=False, ensure_ascii=False).encode()  # it can be sent back
    else:
        assert problem.slug in {"malformed", "invalid-input"}


@pytest.mark.parametrize(
    ("body", "slug", "message"),
    [
        (b"", "malformed", "line 1, column 1"),
        (b" \n", "malformed", "not JSON"),
        (b"{", "malformed", "not JSON"),
        (b'{"a": 1,}', "malformed", "not JSON"),
        (b"{'a': 1}", "malformed", "not JSON"),
        (b'{"a": 1} {"b": 2}', "malformed", "Extra data"),
        (b'{"a": NaN}', "malformed", "NaN is not a number"),
        (b'{"a": -Infinity}', "malformed", "-Infinity is not a number"),
        (b'{"a": "\n"}', "malformed", "control character"),
        (b'{"a": "\x00"}', "malformed", "control character"),
        (b'{"a": "\\x00"}', "malformed", "escape"),
        (b'\xef\xbb\xbf{"a": 1}', "malformed", "not JSON"),
        (b'{"a": "\xff"}', "malformed", "byte 7"),
        (b'{"a": "\xc0\xaf"}', "malformed", "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "malformed", "not UTF-8"),
        ('{"a": "ж"}'.encode("cp1251"), "malformed", "not UTF-8"),
        ('{"a": "道"}'.encode("gb18030"), "malformed", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "malformed", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16-le"), "malformed", "not JSON"),
        (b'{"a": 1, "a": 2}', "invalid-input", "'a' occurs twice"),
        (b'{"a": 1, "\\u0061": 2}', "invalid-input", "'a' occurs twice"),
        (b'[{"b": {"c": 1, "d": 2, "c": 1}}]', "invalid-input", "'c' occurs twice"),
        (b'{"a": 1e999}', "invalid-input", "too large"),
        (b'{"a": -1e999}', "invalid-input", "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "invalid-input", "too large"),
        (b'{"a": "\\ud800"}', "invalid-input", "surrogate"),
        (b'{"\\uDFFF": 1}', "invalid-input", "surrogate"),
        (b'["\\udc00\\ud800"]', "invalid-input", "surrogate"),
        (b"[" * 65 + b"]" * 65, "invalid-input", "64 levels"),
        (b"[" * 100_000, "invalid-input", "64 levels"),
        (b"[" * 65, "malformed", "not JSON"),
        (b"[" * 300 + b"]" * 300, "invalid-input", "64 levels"),
        (b"[" * 64 + b"{}" + b"]" * 64, "invalid-input", "64 levels"),
        (b'{"b": 1, "a":' * 65 + b"1" + b"}" * 65, "invalid-input", "64 levels"),
        (b'{"a":' * 100_000, "invalid-input", "64 levels"),
        (b'["]' + b"[" * 100 + b'",' + b"[" * 65 + b"]" * 66, "invalid-input", "64 levels"),
        (b'"\\"' + b"[" * 65, "malformed", "not JSON"),
    ],
)
def test_what_is_no_json_here(body: bytes, slug: str, message: str) -> None:
    with pytest.raises(HttpProblem, match=re.escape(message)) as error_info:
        parse_json(body)
    assert error_info.value.slug == slug
    assert len(error_info.value.detail) < 200


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": "\\ud83d\\ude80 \\ud800\\udc00"}', {"a": "🚀 𐀀"}),
        (b'{"a": "\\u0000"}', {"a": "\0"}),
        (b'["\\\\u0000", {"a\\\\u0000": "\\\\ud800"}]', ["\\u0000", {"a\\u0000": "\\ud800"}]),
        ('{"запрос": "道岔"}'.encode(), {"запрос": "道岔"}),
    ],
)
def test_what_only_looks_wrong(body: bytes, value: object) -> None:
    assert parse_json(body) == value


def test_as_deep_as_allowed_and_brackets_in_texts() -> None:
    nested_list = parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    for _ in range(MAX_DEPTH - 1):
        assert isinstance(nested_list, list)
        (nested_list,) = nested_list
    assert nested_list == []
    text = '[[{"' * 500
    assert parse_json(json.dumps({"a": text, "b": [{}] * 100, "c": '\\"'}).encode()) == {
        "a": text,
        "b": [{}] * 100,
        "c": '\\"',
    }


def test_too_many_values_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"query": "tea", "filters": [' + b"[]," * MAX_VALUES + b"[]]}"
    monkeypatch.setattr(strict_json, "_DECODER", None)
    problem = problem_of(lambda: parse_json(body))
    assert problem is not None
    assert (problem.slug, problem.detail) == (
        "invalid-input",
        "the JSON has more than 100,000 values; send them in several requests",
    )


def test_long_texts_are_no_values() -> None:
    text = "[,{" * MAX_VALUES
    assert parse_json(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_others_are_answered_while_a_large_body_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Parsing does not end before another request has been answered: on the event loop it never would."""
    parsing, reply = threading.Event(), threading.Event()

    def slow_parse(body: bytes) -> object:
        parsing.set()
        assert reply.wait(30), "nobody else was answered"
        return parse_json(body)

    monkeypatch.setattr(strict_json, "parse_json", slow_parse)
    document = {"id": "a", "text": "a red signal " * 10_000}
    body = document if kind == "application/x-ndjson" else {"documents": [document]}

    async def ask(workspace: Workspace) -> tuple[int, int]:
        transport = httpx.ASGITransport(create_app(workspace))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            request = client.post(
                "/api/datasets/rails/documents", content=json.dumps(body).encode(), headers={"content-type": kind}
            )
            writing = asyncio.create_task(request)
            assert await asyncio.to_thread(parsing.wait, 30)
            health = await client.get("/health")
            reply.set()
            return health.status_code, (await writing).status_code

    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").make()
        assert run(ask(workspace)) == (200, 200)


@given(values, st.integers(1, 9))
def test_lines_however_they_are_cut(value: object, size: int) -> None:
    body = b"\n".join([json.dumps(value).encode(), b"", b" \t\r", b"[1]\r", b'{"a": 2}'])

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def read() -> list[tuple[int, object]]:
        return [value async for value in json_lines(chunks(), max_line_bytes=10_000)]

    assert run(read()) == [(1, value), (4, [1]), (5, {"a": 2})]


@pytest.mark.parametrize(
    ("body", "slug", "line"),
    [
        (b"[1]\n[2\n", "malformed", 2),
        (b'[1]\n\n{"a": 1, "a": 1}', "invalid-input", 3),
        (b"[1]\n" + b"x" * 101 + b"\n", "too-large", 2),
        (b"[1]\n" + b"x" * 100_000, "too-large", 2),
        (b"x" * 101, "too-large", 1),
        (b"\xff\n", "malformed", 1),
    ],
)
def test_a_line_that_is_wrong(body: bytes, slug: str, line: int) -> None:
    taken_count = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal taken_count
        for start in range(0, len(body), 50):
            taken_count += 1
            yield body[start : start + 50]

    async def read() -> None:
        async for _ in json_lines(chunks(), max_line_bytes=100):
            pass

    with pytest.raises(HttpProblem) as error_info:
        run(read())
    assert (error_info.value.slug, error_info.value.members["line"]) == (slug, line)
    assert taken_count <= 4  # it does not read on to the end of a line that is too long


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SMALL = Limits(max_body_bytes=100, max_ingest_bytes=1000)
BRIEF = replace(SMALL, body_seconds=0.05)
INGEST = "/api/datasets/notes/documents"


def bodies(
    scope: Scope, chunks: list[bytes] | None = None, limits: Limits = SMALL, **options: Any
) -> tuple[Answer, Service]:
    service = Service()
    return run(ask(Bodies(service, limits), scope, chunks, **options)), service


def test_a_body_comes_whole() -> None:
    for scope in (
        post(content_length="6"),
        post(transfer_encoding="chunked"),
        post(content_type="application/json; charset=utf-8", content_length="6"),
        post(content_type='Application/JSON;charset="UTF-8"', content_length="6"),
        post(content_length="6", content_encoding="identity"),
        scope_of("PUT", "/api/policy", {"content-type": "application/json", "content-length": "6"}),
        scope_of("DELETE", INGEST, {"content-type": "application/json", "content-length": "6"}),
    ):
        answer, service = bodies(scope, [b"[1", b", ", b"2]"])
        assert (answer.status, service.bodies) == (200, [b"[1, 2]"])
    for scope in (scope_of("POST"), scope_of("POST", headers={"content-length": "0"}), scope_of()):
        answer, service = bodies(scope)
        assert (answer.status, service.bodies) == (200, [b""])


def test_a_body_that_nothing_announces_is_not_read() -> None:
    _, service = bodies(scope_of("POST", http_version="2"), [b"x" * 10_000])
    assert service.bodies == [b""]


def test_the_largest_body_and_one_byte_more() -> None:
    for headers in ({"content_length": "100"}, {"transfer_encoding": "chunked"}):
        assert bodies(post(**headers), [b"x" * 60, b"x" * 40])[0].status == 200
    for headers in ({"content_length": "101"}, {"transfer_encoding": "chunked"}, {"content_length": "100"}):
        answer, service = bodies(post(**headers), [b"x" * 60, b"x" * 41], forever=True)
        assert (answer.status, answer.problem) == (413, "too-large")
        assert answer.header("connection") == "close"
        assert json.loads(answer.body)["limit"] == 100
        assert service.scopes == []


def test_a_body_that_never_ends() -> None:
    answer, service = bodies(post(INGEST, transfer_encoding="chunked"), [b"x"], BRIEF, forever=True)
    assert (answer.status, answer.problem, service.scopes) == (400, "malformed", [])
    scope = post(INGEST, content_type="application/x-ndjson", transfer_encoding="chunked")
    with pytest.raises(HttpProblem, match=r"within 0\.05 seconds") as error_info:
        bodies(scope, [b"x"], BRIEF, forever=True)
    assert (error_info.value.slug, error_info.value.headers) == ("malformed", {"Connection": "close"})


def test_a_client_that_goes_before_its_body_is_there() -> None:
    async def hang_up() -> Answer:
        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            raise AssertionError(message)

        await Bodies(service, SMALL)(post(content_length="5"), receive, send)
        return Answer()

    service = Service()
    run(hang_up())
    assert service.scopes == []


def test_a_streamed_body_is_counted_as_it_comes() -> None:
    kind = {"content_type": "application/x-ndjson"}
    answer, service = bodies(post(INGEST, **kind, transfer_encoding="chunked"), [b"x" * 500] * 2)
    assert (answer.status, len(service.bodies[0])) == (200, 1000)
    with pytest.raises(HttpProblem) as error_info:
        bodies(post(INGEST, **kind, transfer_encoding="chunked"), [b"x" * 500] * 3)
    assert (error_info.value.slug, error_info.value.members) == ("too-large", {"limit": 1000})
    answer, service = bodies(post(INGEST, **kind, content_length="1001"), [])
    assert (answer.status, service.scopes) == (413, [])
    unlimited = Service()
    free = Bodies(unlimited, Limits(max_ingest_bytes=None))
    run(ask(free, post(INGEST, **kind, transfer_encoding="chunked"), [b"x" * 1_000_000] * 5))
    assert len(unlimited.bodies[0]) == 5_000_000


JSON_TYPE = ("content-type", "application/json")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("content-length", "5"), ("content-length", "5")], 400),
        ([("content-length", "5"), ("content-length", "6")], 400),
        ([("content-length", "5, 5")], 400),
        ([("content-length", "+5")], 400),
        ([("content-length", "-5")], 400),
        ([("content-length", "0x5")], 400),
        ([("content-length", "5 ")], 400),
        ([("content-length", "")], 400),
        ([("content-length", "٥".encode().decode("latin-1"))], 400),
        ([("content-length", "9" * 30)], 400),
        ([("content-length", "5"), ("transfer-encoding", "chunked")], 400),
        ([("content-length", "0"), ("transfer-encoding", "chunked")], 400),
        ([("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], 400),
        ([("transfer-encoding", "gzip, chunked")], 400),
        ([("transfer-encoding", "identity")], 400),
        ([("transfer-encoding", "xchunked")], 400),
        ([("transfer-encoding", "")], 400),
        ([("content-length", "999999999999999999")], 413),
    ],
)
def test_lengths_that_can_be_read_in_two_ways(headers: list[tuple[str, str]], status: int) -> None:
    answer, service = bodies(scope_of("POST", headers=[JSON_TYPE, *headers]), [b"12345"])
    assert (answer.status, service.scopes) == (status, [])
    assert answer.header("connection") == "close"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "FOO"])
def test_methods_without_body_have_it_read_all_the_same(method: str) -> None:
    """What stays on the connection would be taken for the next request."""
    chunks: list[bytes] = [b"{", b"}"]
    answer, service = bodies(scope_of(method, headers=[JSON_TYPE, ("content-length", "2")]), chunks)
    assert (answer.status, len(service.scopes)) == (200, 1)
    big = [JSON_TYPE, ("content-length", "999999999")]
    answer, service = bodies(scope_of(method, headers=big), [b"{}"])
    assert answer.status == 413


@pytest.mark.parametrize(
    ("path", "types", "is_accepted"),
    [
        (INGEST, ["application/json"], True),
        (INGEST, ["application/x-ndjson"], True),
        (INGEST, ["application/x-ndjson; charset=UTF-8"], True),
        ("/api/datasets/заметки/documents", ["application/x-ndjson"], True),
        ("/api/datasets", ["application/x-ndjson"], False),
        ("/api/datasets/a/b/documents", ["application/x-ndjson"], False),
        (INGEST + "/", ["application/x-ndjson"], False),
        (INGEST, [], False),
        (INGEST, [""], False),
        (INGEST, ["text/plain"], False),
        (INGEST, ["application/x-www-form-urlencoded"], False),
        (INGEST, ["multipart/form-data; boundary=x"], False),
        (INGEST, ["text/json"], False),
        (INGEST, ["application/jsonp"], False),
        (INGEST, ["application/json, text/plain"], False),
        (INGEST, ["text/plain; application/json"], False),
        (INGEST, ["application/json; charset=utf-16"], False),
        (INGEST, ["application/json; charset=utf-8; charset=utf-7"], False),
        (INGEST, ["application/json; boundary=x"], False),
        (INGEST, ["application/json;"], False),
        (INGEST, ["application/json", "application/json"], False),
        (INGEST, ["application/json", "text/plain"], False),
    ],
)
def test_types(path: str, types: list[str], is_accepted: bool) -> None:
    headers = [("content-type", kind) for kind in types]
    answer, service = bodies(scope_of("POST", path, [*headers, ("content-length", "2")]), [b"{}"])
    if is_accepted:
        assert (answer.status, service.bodies) == (200, [b"{}"])
    else:
        assert (answer.status, answer.problem, service.scopes) == (415, "unsupported-media-type", [])


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "", "identity, gzip"])
def test_no_compressed_bodies(encoding: str) -> None:
    assert bodies(post(content_length="2", content_encoding=encoding), [b"{}"])[0].status == 415


# ── head, host, site ─────────────────────────────────────────────────────────────────────────────────────────────────


def passes(make: Callable[[ASGIApp], ASGIApp], scope: Scope) -> str:
    """``"passes"``, or the problem."""
    service = Service()
    answer = run(ask(make(service), scope))
    assert bool(service.scopes) == (answer.status == 200)
    return "passes" if answer.status == 200 else answer.problem


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (scope_of(path="/api/datasets/заметки", raw_path="/api/datasets/заметки".encode()), "passes"),
        (scope_of(path="/a b"), "passes"),
        (scope_of(query_string=b"query=%D0%B6+%E9%81%93&x"), "passes"),
        (scope_of(query_string=b"query=100%"), "passes"),
        (scope_of(path="/" + "a" * 199), "passes"),
        (scope_of(path="/" + "a" * 200), "too-large"),
        (scope_of(path="/" + "a" * 100, query_string=b"b" * 100), "too-large"),
        (scope_of(headers={"x": "a" * 299}), "passes"),
        (scope_of(headers={"x": "a" * 300}), "too-large"),
        (scope_of(headers=[("x", "a")] * 151), "too-large"),
        (scope_of(query_string=b"query=%ff"), "malformed"),
        (scope_of(query_string=b"query=%ED%A0%80"), "malformed"),
        (scope_of(query_string=b"query=\xff"), "malformed"),
        (scope_of(path="/\ufffd", raw_path=b"/%ff"), "malformed"),
        (scope_of(path="/\0", raw_path=b"/%00"), "malformed"),
        (scope_of(path="/a\r\nb", raw_path=b"/a%0d%0ab"), "malformed"),
        (scope_of(path="/a\u202eb", raw_path="/a\u202eb".encode()), "malformed"),
        (scope_of(path="/a\x1b[31m", raw_path=b"/a%1b[31m"), "malformed"),
    ],
)
def test_heads(scope: Scope, expected: str) -> None:
    assert passes(lambda app: RequestHead(app, Limits(max_url_bytes=200, max_header_bytes=300)), scope) == expected


@pytest.mark.parametrize(
    ("host", "hosts", "is_trusted"),
    [
        (["localhost"], [], True),
        (["LOCALHOST:8000"], [], True),
        (["localhost."], [], True),
        (["127.0.0.1"], [], True),
        (["127.0.0.1:65535"], [], True),
        (["[::1]:8000"], [], True),
        (["[::1]"], [], True),
        ([], [], False),
        ([""], [], False),
        ([":8000"], [], False),
        (["evil.example"], [], False),
        (["localhost.evil.example"], [], False),
        (["127.0.0.1.nip.io"], [], False),
        (["localhost:8000.evil.example"], [], False),
        (["evil.example@localhost"], [], False),
        (["localhost@evil.example"], [], False),
        (["localhost/evil.example"], [], False),
        (["localhost evil.example"], [], False),
        (["localhost,evil.example"], [], False),
        (["localhost:"], [], False),
        (["localhost:123456"], [], False),
        (["localhost:٨"], [], False),
        (["[::1"], [], False),
        (["::1"], [], False),
        (["[::2]"], [], False),
        (["[::ffff:127.0.0.1]"], [], False),
        (["0.0.0.0"], [], False),
        (["127.1"], [], False),
        (["2130706433"], [], False),
        (["localhost..", ], [], False),
        (["localhost", "localhost"], [], False),
        (["localhost", "evil.example"], [], False),
        (["evil.example", "localhost"], [], False),
        (["a" * 10_000], [], False),
        (["search.example"], ["search.example"], True),
        (["Search.Example.:80"], ["SEARCH.example"], True),
        (["x.search.example"], ["search.example"], False),
        (["a.b.example"], ["*.b.example"], True),
        (["b.example"], ["*.b.example"], False),
        (["ab.example"], ["*.b.example"], False),
        (["anything.example"], ["*"], True),
        (["any thing"], ["*"], False),
        ([], ["*"], False),
        (["[2001:db8::5]:80"], ["2001:DB8:0::5"], True),
        (["192.0.2.7:80"], ["192.0.2.7"], True),
        (["localhost"], ["search.example"], True),
    ],
)  # fmt: skip
def test_hosts(host: list[str], hosts: list[str], is_trusted: bool) -> None:
    headers = [("host", value.encode().decode("latin-1")) for value in host]
    outcome = passes(lambda app: TrustedHosts(app, hosts), scope_of(headers=headers))
    assert outcome == ("passes" if is_trusted else "misdirected")
    for probe in ("/health", "/ready"):
        assert passes(lambda app: TrustedHosts(app, hosts), scope_of(path=probe, headers=headers)) == "passes"


@pytest.mark.parametrize(
    "host", ["", "http://a.example", "a.example:80", "a b", "a.*.example", "**", "*example", "a/b"]
)
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(InputError, match="a host is"):
        TrustedHosts(Service(), [host])


SITE, MODE = "sec-fetch-site", "sec-fetch-mode"


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("POST", {}, "passes"),
        ("POST", {"origin": "http://localhost:8000"}, "passes"),
        ("POST", {"origin": "HTTP://LocalHost:8000"}, "passes"),
        ("POST", {"origin": "https://intranet.example"}, "passes"),
        ("POST", {"origin": "https://intranet.example:443", SITE: "cross-site"}, "passes"),
        ("POST", {SITE: "same-origin"}, "passes"),
        ("POST", {SITE: "none"}, "passes"),
        ("POST", {SITE: "same-origin", "origin": "https://changed.by.proxy.example"}, "passes"),
        ("POST", {"origin": "http://localhost"}, "forbidden"),
        ("POST", {"origin": "http://localhost:3000"}, "forbidden"),
        ("POST", {"origin": "http://localhost:80001"}, "forbidden"),
        ("POST", {"origin": "http://localhost:8000.evil.example"}, "forbidden"),
        ("POST", {"origin": "http://localhost:8000@evil.example"}, "forbidden"),
        ("POST", {"origin": "http://evil.example/http://localhost:8000"}, "forbidden"),
        ("POST", {"origin": "http://intranet.example"}, "forbidden"),
        ("POST", {"origin": "https://x.intranet.example"}, "forbidden"),
        ("POST", {"origin": "null"}, "forbidden"),
        ("POST", {"origin": ""}, "forbidden"),
        ("POST", {"origin": "file://"}, "forbidden"),
        ("POST", {"origin": "chrome-extension://localhost:8000"}, "forbidden"),
        ("POST", {SITE: "cross-site"}, "forbidden"),
        ("POST", {SITE: "same-site"}, "forbidden"),
        ("POST", {SITE: "anything"}, "forbidden"),
        ("POST", {SITE: "same-site", "origin": "http://localhost:3000"}, "forbidden"),
        ("PUT", {"origin": "http://evil.example"}, "forbidden"),
        ("DELETE", {"origin": "http://evil.example"}, "forbidden"),
        ("FOO", {"origin": "http://evil.example"}, "forbidden"),
        ("GET", {"origin": "http://evil.example"}, "passes"),
        ("GET", {SITE: "same-site", MODE: "cors"}, "passes"),
        ("GET", {SITE: "cross-site", MODE: "navigate"}, "passes"),
        ("GET", {SITE: "cross-site", MODE: "no-cors"}, "forbidden"),
        ("GET", {SITE: "cross-site", MODE: "cors", "origin": "http://evil.example"}, "forbidden"),
        ("GET", {SITE: "cross-site"}, "forbidden"),
        ("GET", {SITE: "none", MODE: "navigate"}, "passes"),
    ],
)
def test_sites(method: str, headers: dict[str, str], expected: str) -> None:
    scope = scope_of(method, headers={"host": "localhost:8000", **headers})
    assert passes(lambda app: CrossSite(app, ["https://intranet.example/"]), scope) == expected


def test_own_origin_on_the_usual_ports_and_two_origins() -> None:
    for origin, host in (("http://a.example", "a.example:80"), ("https://a.example:443", "A.example"),
                         ("https://[::1]", "[::1]:443")):  # fmt: skip
        assert passes(CrossSite, scope_of("POST", headers={"host": host, "origin": origin})) == "passes"
    two = [("host", "a.example"), ("origin", "http://a.example"), ("origin", "http://evil.example")]
    assert passes(CrossSite, scope_of("POST", headers=two)) == "forbidden"
    for origin in ("localhost", "ftp://a.example", "https://a.example/path", "*", ""):
        with pytest.raises(InputError, match="an origin looks like"):
            CrossSite(Service(), [origin])


# ── headers of answers ───────────────────────────────────────────────────────────────────────────────────────────────


def test_every_answer_tells_the_browser_to_keep_still() -> None:
    for path in ("/api/me", "/metrics", "/nowhere", "/consolation"):
        answer = run(ask(SecurityHeaders(Service()), scope_of(path=path)))
        assert answer.header("content-security-policy") == "default-src 'none'; frame-ancestors 'none'"
        assert answer.header("cache-control") == "no-store"
    for path in ("/", "/console", "/console/app.js"):
        answer = run(ask(SecurityHeaders(Service()), scope_of(path=path)))
        policy = answer.header("content-security-policy") or ""
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "connect-src 'self'" in policy
        assert answer.header("cache-control") == "no-cache"
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("cross-origin-opener-policy") == "same-origin"
    assert answer.header("cross-origin-resource-policy") == "same-origin"
    assert "camera=()" in (answer.header("permissions-policy") or "")
    assert answer.header("access-control-allow-origin") is None


def test_what_a_route_sets_stands() -> None:
    service = Service()
    service.headers = [(b"Cache-Control", b"max-age=60"), (b"x-own", b"1")]
    answer = run(ask(SecurityHeaders(service), scope_of()))
    assert (answer.header("cache-control"), answer.header("x-own")) == ("max-age=60", "1")
    assert service.headers == [(b"Cache-Control", b"max-age=60"), (b"x-own", b"1")]


def test_no_websockets() -> None:
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        messages.append(message)

    service = Service()
    run(SecurityHeaders(service)({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert (messages, service.scopes) == ([{"type": "websocket.close"}], [])


# ── how often ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


def wait(rate: RateLimit, client: str) -> int:
    problem = problem_of(lambda: rate.take(client))
    if problem is None:
        return 0
    assert (problem.slug, problem.status) == ("too-many-requests", 429)
    return int(problem.headers["Retry-After"])


def test_a_bucket_empties_and_fills() -> None:
    clock = Clock()
    rate = RateLimit(Limits(requests_per_minute=30, burst=3), clock=clock)  # one every two seconds
    assert [wait(rate, "a") for _ in range(5)] == [0, 0, 0, 2, 2]
    assert wait(rate, "b") == 0  # each has its own
    clock.time += 1
    assert wait(rate, "a") == 1
    clock.time += 1
    assert [wait(rate, "a"), wait(rate, "a")] == [0, 2]
    clock.time += 3600
    assert [wait(rate, "a") for _ in range(4)] == [0, 0, 0, 2]


@given(st.lists(st.floats(0, 10), max_size=200), st.integers(1, 600), st.integers(1, 20))
def test_never_more_than_the_rate(pauses: list[float], per_minute: int, burst: int) -> None:
    clock = Clock()
    rate = RateLimit(Limits(requests_per_minute=per_minute, burst=burst), clock=clock)
    allowed_count = 0
    for pause in pauses:
        clock.time += pause
        allowed_count += not wait(rate, "a")
    assert allowed_count <= burst + sum(pauses) * per_minute / 60 + 1e-6


def test_who_waits_as_told_is_let_in() -> None:
    clock = Clock()
    rate = RateLimit(Limits(requests_per_minute=7, burst=1), clock=clock)
    for _ in range(20):
        clock.time += wait(rate, "a")
        assert wait(rate, "a") in {0, 9}
        seconds = wait(rate, "a")
        clock.time += seconds
        assert wait(rate, "a") == 0


def test_no_limit_and_only_so_many_clients() -> None:
    free = RateLimit(Limits(requests_per_minute=0))
    assert all(wait(free, "a") == 0 for _ in range(5000))
    assert len(free) == 0
    rate = RateLimit(Limits(max_clients=10, requests_per_minute=1, burst=1))
    for number in range(1000):
        wait(rate, f"client {number}")
    assert len(rate) == 10
    assert wait(rate, "client 999") > 0
    assert Limits().burst is None
    default = RateLimit(Limits(requests_per_minute=60), clock=Clock())
    assert [wait(default, "a") for _ in range(11)] == [0] * 10 + [1]


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


def test_the_guard_notes_who_asks(keys: KeyStore) -> None:
    service = Service()
    guard = Guard(service, keys, Limits(), loopback=True)
    assert run(ask(guard, scope_of())).status == 200
    assert access_of(service.scopes[-1]) == Access.open()
    grant = keys.create("a", datasets=["notes"])
    answer = run(ask(guard, scope_of()))
    assert (answer.status, answer.problem, answer.header("www-authenticate")) == (401, "unauthorized", "Bearer")
    assert run(ask(guard, scope_of(headers={"x-api-key": grant.text}))).status == 200
    scope = service.scopes[-1]
    assert access_of(scope) == Access.of(grant.key)
    assert scope["state"]["key_id"] == grant.key.id


def test_the_guard_closes_everything_it_does_not_know(keys: KeyStore) -> None:
    keys.create("a")
    service = Service()
    guard = Guard(service, keys, Limits(), loopback=True)
    for path in ("/health", "/ready", "/", "/docs", "/console", "/console/", "/console/app.js"):
        assert run(ask(guard, scope_of(path=path))).status == 200
        with pytest.raises(HttpProblem, match="valid key"):
            access_of(service.scopes[-1])
        assert run(ask(guard, scope_of("POST", path))).status == 401
    for path in ("/metrics", "/api/me", "/api/openapi.json", "/docs/", "/new", "//", "/consoles", "/health/", "/Health",
                 "/ready/../api/me", "", "*", "/api/console/"):  # fmt: skip
        assert run(ask(guard, scope_of(path=path))).status == 401
    assert run(ask(guard, scope_of(path="/pre/console/", root_path="/pre"))).status == 200
    assert run(ask(guard, scope_of(path="/pre/api/me", root_path="/pre"))).status == 401
    assert run(ask(guard, scope_of(path="/console/x", root_path="/console"))).status == 401


def test_the_guard_counts_by_key_and_guessers_by_address(keys: KeyStore) -> None:
    key, other_key = (keys.create(name).text for name in ("one", "other"))
    guard = Guard(Service(), keys, Limits(requests_per_minute=1, burst=2), loopback=True)

    def status(key: str, address: str = "203.0.113.5", path: str = "/api/me") -> int:
        scope = scope_of(path=path, headers={"x-api-key": key}, client=(address, 1))
        answer: Answer = run(ask(guard, scope))
        assert (answer.header("retry-after") is not None) == (answer.status == 429)
        return answer.status

    assert [status(key), status(key, "198.51.100.1"), status(key), status(other_key)] == [200, 200, 429, 200]
    assert [status("wrong"), status("wrong"), status("wrong"), status(other_key)] == [401, 401, 429, 200]
    assert [status("wrong", f"2001:db8::{n}") for n in range(3)] == [401, 401, 429]  # one network, one guesser
    assert status("wrong", "2001:db8:0:1::") == 401
    assert [status("", path="/health") for _ in range(5)] == [200] * 5


def test_the_guard_counts_by_address_where_there_are_no_keys(keys: KeyStore) -> None:
    guard = Guard(Service(), keys, Limits(requests_per_minute=1, burst=1), loopback=True)
    clients = [("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.2", 1), None, None, ("fe80::1%eth0", 1), ("odd:name", 1)]
    statuses = [run(ask(guard, scope_of(client=client))).status for client in clients]
    assert statuses == [200, 429, 200, 200, 429, 200, 200]


# ── how many at once ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_gate_holds_so_many_and_turns_the_rest_away() -> None:
    async def visit() -> None:
        gate = Gate(Limits(concurrency=2, queue=3, queue_seconds=30))
        leave = asyncio.Event()
        order: list[int] = []
        peak = 0

        async def search(number: int) -> None:
            nonlocal peak
            async with gate:
                peak = max(peak, gate.running)
                order.append(number)
                await leave.wait()

        tasks = [asyncio.create_task(search(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert (gate.running, gate.waiting, order) == (2, 3, [0, 1])
        with pytest.raises(HttpProblem) as error_info:
            async with gate:
                raise AssertionError
        assert (error_info.value.slug, error_info.value.headers) == ("too-many-requests", {"Retry-After": "1"})
        leave.set()
        await asyncio.gather(*tasks)
        assert (gate.running, gate.waiting, order, peak) == (0, 0, [0, 1, 2, 3, 4], 2)

    run(visit())


def test_the_gate_waits_only_so_long() -> None:
    async def visit() -> None:
        gate = Gate(Limits(concurrency=1, queue=3, queue_seconds=0.01))
        async with gate:
            with pytest.raises(HttpProblem):
                await gate.__aenter__()
            assert (gate.running, gate.waiting) == (1, 0)
        async with gate:
            assert gate.running == 1
        impatient = Gate(Limits(concurrency=1, queue=0))
        async with impatient:
            with pytest.raises(HttpProblem):
                await impatient.__aenter__()

    run(visit())


def test_an_error_inside_makes_way() -> None:
    async def visit() -> None:
        gate = Gate(Limits(concurrency=1))
        for _ in range(3):
            with pytest.raises(ValueError, match="x"):
                async with gate:
                    raise ValueError("x")
        assert gate.running == 0

    run(visit())


def test_a_turn_that_comes_as_one_gives_up() -> None:
    async def visit() -> None:
        gate = Gate(Limits(concurrency=1, queue=3, queue_seconds=60))

        async def search() -> None:
            async with gate:
                pass

        for let_in_first in (True, False):
            await gate.__aenter__()
            impatient, next_one = asyncio.create_task(search()), asyncio.create_task(search())
            await asyncio.sleep(0)
            assert gate.waiting == 2
            if let_in_first:
                await gate.__aexit__()  # its turn comes, and before it knows of that it is cancelled
                impatient.cancel()
            else:
                impatient.cancel()  # it is cancelled, and before it knows of that its turn comes
                await gate.__aexit__()
            outcomes = await asyncio.wait_for(asyncio.gather(impatient, next_one, return_exceptions=True), 10)
            assert isinstance(outcomes[0], asyncio.CancelledError)
            assert outcomes[1] is None
            assert (gate.running, gate.waiting) == (0, 0)

    run(visit())


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["come", "go", "cancel", "turn"])), max_size=60))
def test_whoever_gives_up_loses_no_place(moves: list[tuple[int, str]]) -> None:
    """Visitors come, leave, and are cancelled in any order, also in the very moment in which they are let in."""

    async def visit() -> None:
        gate = Gate(Limits(concurrency=2, queue=4, queue_seconds=60))
        tasks: dict[int, asyncio.Task[None]] = {}
        leaving: dict[int, asyncio.Event] = {}
        running = 0

        async def search(leave: asyncio.Event) -> None:
            nonlocal running
            try:
                async with gate:
                    running += 1
                    assert running <= 2
                    try:
                        await leave.wait()
                    finally:
                        running -= 1
            except HttpProblem:
                pass

        for number, move in moves:
            if move == "come" and (number not in tasks or tasks[number].done()):
                leaving[number] = asyncio.Event()
                tasks[number] = asyncio.create_task(search(leaving[number]))
            elif move == "go" and number in leaving:
                leaving[number].set()
            elif move == "cancel" and number in tasks:
                tasks[number].cancel()
            elif move == "turn":
                await asyncio.sleep(0)
        for event in leaving.values():
            event.set()
        outcomes = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert (gate.running, gate.waiting, running) == (0, 0, 0)

    run(visit())


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_checks_in_their_order(keys: KeyStore) -> None:
    text = keys.create("a").text
    service = Service()
    app = secure(
        service, keys=keys, limits=Limits(max_body_bytes=10), loopback=True, hosts=["search.example"], origins=[]
    )
    good = {"host": "search.example", "authorization": f"Bearer {text}", "content-type": "application/json"}
    answer = run(ask(app, scope_of("POST", headers={**good, "content-length": "2"}), [b"{}"]))
    assert (answer.status, answer.body) == (200, b"{}")
    wrong: list[tuple[dict[str, str], int]] = [
        ({"content-length": "11"}, 413),
        ({"content-type": "text/plain", "content-length": "11"}, 415),
        ({"authorization": "Bearer x", "content-type": "text/plain", "content-length": "11"}, 401),
        ({"origin": "http://evil.example", "authorization": "Bearer x"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example", "authorization": "Bearer x"}, 421),
        ({"x-large": "a" * 20_000, "host": "evil.example", "origin": "http://evil.example"}, 413),
    ]
    for headers, status in wrong:
        scope = scope_of("POST", headers={**good, **headers}, state={"request_id": "abc"})
        answer = run(ask(app, scope, [b"x" * 11]))
        assert (answer.status, len(service.scopes)) == (status, 1)
        assert answer.problem
        assert "abc" in json.loads(answer.body)["instance"]
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("cache-control") == "no-store"


def test_the_life_of_the_service_passes(keys: KeyStore) -> None:
    scope_types: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope_types.append(scope["type"])

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    run(secure(app, keys=keys, limits=Limits(), loopback=True)({"type": "lifespan"}, receive, send))
    assert scope_types == ["lifespan"]


# ── pages of allowed origins ─────────────────────────────────────────────────────────────────────────────────────────

PATHS = ["/api/search", "/api/retrieval/search", "/api/datasets/rails", "/v1/vector_stores/rails/search", "/mcp"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("written", ["https://app.example", "HTTPS://App.example:443/"])
def test_preflights_of_allowed_origins_are_answered(tmp_path: Path, path: str, written: str) -> None:
    from pointsman.integrations.mcp import create_http_app

    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        make = create_http_app if path == "/mcp" else create_app
        app = make(workspace, origins=[written])

        async def preflight(origin: str, method: str) -> httpx.Response:
            head = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
            head |= {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization"}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                return await client.options(path, headers=head)

        for method in ("POST", "GET", "DELETE"):
            answer = run(preflight("https://app.example", method))
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert answer.headers["access-control-allow-headers"] == "authorization"
            assert method in answer.headers["access-control-allow-methods"]
        for origin in ("https://evil.example", "http://app.example", "https://app.example.evil.example", "null"):
            refused = run(preflight(origin, "POST"))
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers


def test_pages_of_allowed_origins_read_answers_and_refusals(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        app = create_app(workspace, origins=["https://app.example"], keys=KeyStore(tmp_path / "keys.json"))

        async def ask_for(path: str, origin: str | None, **options: Any) -> httpx.Response:
            head = {} if origin is None else {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                return await client.get(path, headers={**head, **options})

        for path, status in (("/api/datasets", 200), ("/nowhere", 404)):
            answer = run(ask_for(path, "https://app.example"))
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
                status,
                "https://app.example",
            )
        assert run(ask_for("/api/datasets", "https://evil.example")).status_code == 403
        assert "access-control-allow-origin" not in run(ask_for("/api/datasets", None)).headers
