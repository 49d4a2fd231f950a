"""Connections that send nothing, send slowly, send half, or do not read: closed in time, and never in the way."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

import pointsman
from patience_kit import holds_with_time
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run.branches import SourceBranch, _in_waves
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access.api_keys import KeyStore, keys_of
from pointsman.service.server.http_protocol import OpenConnections
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.request_body import Bodies
from pointsman.tools.parallel_calls import DualCall, SearchDeadline, Threads, run
from pointsman.tools.system import file_descriptors
from pointsman.tools.system.file_descriptors import descriptor_limit, raise_descriptor_limit
from pointsman.values.views import Permissions
from pointsman.workspace.open_datasets import OpenDatasets
from serving import serving

if TYPE_CHECKING:
    from starlette.types import Message

    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset

PATIENT = 60.0  # seconds; only a test that fails takes so long
LIMITS = Limits(
    requests_per_minute=0, head_seconds=0.3, idle_seconds=0.3, body_seconds=0.3, write_seconds=0.3, max_documents=100
)
PATIENT_LIMITS = Limits(requests_per_minute=0)
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pointsman.Workspace]:
    with pointsman.open(tmp_path_factory.mktemp("connections"), embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document(f"d{number}", "railway " * 20_000) for number in range(40)])
        workspace.dataset("drafts").make()
        yield workspace


@pytest.fixture(scope="module")
def patient_address(workspace: pointsman.Workspace) -> Iterator[tuple[str, int]]:
    """A service that waits for as long as a busy machine takes."""
    with serving(create_app(workspace, limits=PATIENT_LIMITS), PATIENT_LIMITS) as url:
        split_url = urlsplit(url)
        yield split_url.hostname or "", split_url.port or 0


@pytest.fixture(scope="module")
def address(workspace: pointsman.Workspace) -> Iterator[tuple[str, int]]:
    with serving(create_app(workspace, limits=LIMITS), LIMITS) as url:
        split_url = urlsplit(url)
        yield split_url.hostname or "", split_url.port or 0


def connect(address: tuple[str, int], first: bytes = b"") -> socket.socket:
    connection = socket.create_connection(address, timeout=PATIENT)
    connection.sendall(first)
    return connection


def received_until_closed(connection: socket.socket, drip: bytes = b"") -> bytes:
    """Read until the service closes the connection; meanwhile send one byte of the drip again and again."""
    answer, deadline = b"", time.monotonic() + PATIENT
    if drip:
        connection.settimeout(0.05)
    with connection:
        while time.monotonic() < deadline:
            try:
                if drip:
                    connection.sendall(drip)
                chunk = connection.recv(65536)
            except TimeoutError:
                if not drip:
                    break
                continue
            except OSError:  # reset
                return answer
            if not chunk:
                return answer
            answer += chunk
    raise AssertionError("the connection stays open")


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
@pytest.mark.parametrize("pieces", [1, 2, 200])
def test_letters_of_an_address_are_read_as_they_are(
    patient_address: tuple[str, int], encoding: str, pieces: int
) -> None:
    """As ``curl`` sends them, at once or in pieces; headers stay as they are."""
    line = "GET /api/retrieval/recommend_strategy?query=什么是环保设备 HTTP/1.1\r\n".encode(encoding)
    request = line + b"Host: localhost\r\nX-Note: \xff\r\nConnection: close\r\n\r\n"
    length = -(-len(request) // pieces)
    with connect(patient_address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), length):
            connection.sendall(request[start : start + length])
            time.sleep(0.0005)
        answer = received_until_closed(connection)
    status, reason = (b"200", b'"recommended_strategy"') if encoding == "utf-8" else (b"400", b"is not UTF-8")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert reason in answer


HEAD = b"POST /api/retrieval/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),
        (b"GET /hea", b""),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b""),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"x"),
        (b"", b"\r\n"),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b""),
        (HEAD + b"Content-Length: 100000\r\n\r\n{", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET", b" "),
    ],
    ids=str,
)
def test_a_connection_that_does_not_go_on_is_closed(address: tuple[str, int], first: bytes, drip: bytes) -> None:
    received_until_closed(connect(address, first), drip)
    for _ in range(100):  # a busy machine may take longer than a head may
        with suppress(httpx.TransportError):
            assert httpx.get(f"http://{address[0]}:{address[1]}/health").status_code == 200
            break
    else:
        pytest.fail("the service answers nobody any more")


def test_a_body_that_drips_is_answered_with_the_limit(address: tuple[str, int]) -> None:
    answer = received_until_closed(connect(address, HEAD + b"Content-Length: 1000\r\n\r\n{"))
    assert b"400 Bad Request" in answer
    assert b"did not arrive within 0.3 seconds" in answer


def test_a_client_that_does_not_read_its_answer_is_cut(address: tuple[str, int]) -> None:
    def check(pause: float) -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENT)
        connection.connect(address)
        connection.sendall(b"GET /api/datasets/notes/documents?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = connection.recv(1000)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        time.sleep(pause)  # what is tested: it does not read for longer than allowed
        assert len(received_until_closed(connection)) < length

    holds_with_time(check, 3 * LIMITS.write_seconds, 10, 40)


def test_requests_with_pauses_below_the_limits_are_answered(workspace: pointsman.Workspace) -> None:
    """Together they last longer than the connection may be idle."""
    limits = replace(PATIENT_LIMITS, idle_seconds=1.0)
    own_workspace = pointsman.open(workspace.path, embedder=HashingEmbedder())
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(create_app(own_workspace, limits=limits), limits) as url:
        split_url = urlsplit(url)
        with connect((split_url.hostname or "", split_url.port or 0)) as connection:
            for _ in range(5):
                connection.sendall(request[:10])
                connection.sendall(request[10:])
                answer = b""
                while not answer.endswith(b'{"status":"ok"}'):
                    chunk = connection.recv(10_000)
                    assert chunk, "it was closed"
                    answer += chunk
                time.sleep(0.25)


# ── how many ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stub:
    """A connection for `OpenConnections`: answering a request, or waiting for one."""

    def __init__(self, *, answering: bool = False) -> None:
        self.answering, self.open = answering, True

    def cut(self) -> None:
        self.open = False


def stubs(connections: OpenConnections, *addresses: str, answering: bool = False) -> list[Any]:
    admitted_stubs: list[Any] = [Stub(answering=answering) for _ in addresses]
    for stub, address in zip(admitted_stubs, addresses, strict=True):
        stub.open = connections.admit(stub, address)
    return admitted_stubs


def test_beyond_its_share_an_address_loses_its_connection_that_waits_longest() -> None:
    connections = OpenConnections(Limits(max_connections=6))
    other_stubs = stubs(connections, "b")
    first, second, third, fourth = stubs(connections, "a", "a", "a", "a")
    assert [stub.open for stub in (first, second, third, fourth, *other_stubs)] == [False, True, True, True, True]
    assert len(connections) == 4
    connections.remove(first)  # asyncio reports it afterwards
    assert len(connections) == 4


def test_a_connection_that_is_being_answered_does_not_make_way() -> None:
    connections = OpenConnections(Limits(max_connections=4))
    busy = stubs(connections, "a", "a", answering=True)
    (refused,) = stubs(connections, "a")
    assert not refused.open
    assert all(stub.open for stub in busy)
    connections.remove(busy[0])
    assert stubs(connections, "a")[0].open


def test_when_all_are_taken_the_one_that_waits_longest_of_any_address_makes_way() -> None:
    connections = OpenConnections(Limits(max_connections=4))
    waiting = stubs(connections, "a", "b", "c", "d")
    (last,) = stubs(connections, "e")
    assert [stub.open for stub in (*waiting, last)] == [False, True, True, True, True]


def test_by_default_connections_take_half_of_the_descriptors() -> None:
    assert OpenConnections(Limits()).limit == descriptor_limit() // 2


def test_silent_connections_beyond_the_limit_do_not_keep_a_client_out(workspace: pointsman.Workspace) -> None:
    limits = replace(LIMITS, max_connections=20, head_seconds=PATIENT)
    own_workspace = pointsman.open(workspace.path, embedder=HashingEmbedder())
    with serving(create_app(own_workspace, limits=limits), limits) as url:
        split_url = urlsplit(url)
        silent = [connect((split_url.hostname or "", split_url.port or 0)) for _ in range(100)]
        answers = [httpx.get(f"{url}/api/datasets/notes/count", timeout=PATIENT) for _ in range(20)]
        assert [answer.status_code for answer in answers] == [200] * 20
        for connection in silent:
            connection.close()


# ── bodies that are not HTTP ─────────────────────────────────────────────────────────────────────────────────────────


def requests_by_status(url: str) -> dict[str, float]:
    lines = [line for line in httpx.get(f"{url}/metrics").text.splitlines() if line.startswith("pointsman_requests_t")]
    counts: dict[str, float] = {}
    for line in lines:
        status = line.split('status="')[1].split('"')[0]
        counts[status] = counts.get(status, 0) + float(line.rsplit(" ", 1)[1])
    return counts


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-1\r\n{}\r\n", b"5\r\n{}\r\n\r\n\r\n", b"\x00\xff\r\n", b"ffffffffffffffffffff1\r\n"]
)
def test_a_malformed_chunk_is_answered_and_counted_as_malformed(
    patient_address: tuple[str, int], chunk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://{patient_address[0]}:{patient_address[1]}"
    counts_before = requests_by_status(url)
    answer = received_until_closed(connect(patient_address, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"problems/malformed" in answer
    counts_after = requests_by_status(url)
    assert counts_after.get("400", 0) == counts_before.get("400", 0) + 1
    assert [counts_after.get(status, 0) - counts_before.get(status, 0) for status in ("500", "503")] == [0, 0]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_malformed_chunk_in_a_stream_is_its_last_line_and_the_lines_before_it_are_stored(
    patient_address: tuple[str, int], workspace: pointsman.Workspace
) -> None:
    lines = b"".join(b'{"id": "m%d", "text": "x"}\n' % number for number in range(70))
    head = b"POST /api/datasets/drafts/documents HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    answer = received_until_closed(connect(patient_address, head + b"%x\r\n%b\r\n" % (len(lines), lines) + b"zz\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    last = json.loads([line for line in answer.splitlines() if line.startswith(b"{")][-1])
    assert (last["done"], last["problem"]["type"]) == (70, "/problems/malformed")
    assert workspace.dataset("drafts").get_many(["m0", "m69"]) != [None, None]


def test_a_malformed_chunk_of_an_unknown_client_is_refused_like_any_request(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        keys_of(workspace.backend).create("a")
        with serving(create_app(workspace, limits=PATIENT_LIMITS), PATIENT_LIMITS) as url:
            split_url = urlsplit(url)
            request = HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
            answer = received_until_closed(connect((split_url.hostname or "", split_url.port or 0), request))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.count(b"HTTP/1.1") == 1


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


PAUSE = 0.02  # seconds between two pieces of a body


def stream(chunks: Iterator[bytes], limits: Limits) -> int:
    """Read a streamed body through the limits; returns the number of its bytes."""

    async def run() -> int:
        size = 0

        async def app(_: Any, receive: Callable[[], Any], __: Any) -> None:
            nonlocal size
            while True:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return

        async def receive() -> Message:
            chunk = next(chunks, None)
            if chunk is None:
                return {"type": "http.request", "body": b"", "more_body": False}
            await anyio.sleep(PAUSE)
            return {"type": "http.request", "body": chunk, "more_body": True}

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/datasets/notes/documents",
            "headers": [(b"content-type", b"application/x-ndjson"), (b"transfer-encoding", b"chunked")],
        }

        async def send(_: Message) -> None:
            raise AssertionError("the application answers")

        await Bodies(app, limits)(scope, receive, send)
        return size

    return anyio.run(run)


def test_a_line_that_drips_ends_the_stream_though_every_pause_is_short() -> None:
    with pytest.raises(HttpProblem, match=r"a line of it, did not arrive within 0\.2 seconds"):
        stream(iter([b"x"] * 1000), Limits(body_seconds=0.2))


def test_lines_that_arrive_in_time_may_take_longer_together() -> None:
    assert stream(iter([b"x\n"] * 60), Limits(body_seconds=1.0)) == 120
    assert 60 * PAUSE > 1.0


def test_a_stream_that_takes_too_long_is_told_to_send_the_rest_in_another_request() -> None:
    with pytest.raises(HttpProblem, match=r"longer than 0\.1 seconds; send the rest in another request") as error_info:
        stream(iter([b"x\n"] * 1000), Limits(stream_seconds=0.1))
    assert error_info.value.members == {"limit": 0.1}


def test_a_stream_may_be_without_limits() -> None:
    assert stream(iter([b"x\n"] * 5), Limits(stream_seconds=None, max_ingest_bytes=None)) == 10


@pytest.mark.parametrize("end", ["revoked", "first key"])
def test_a_key_is_checked_again_at_every_batch_of_a_stream(tmp_path: Path, end: str) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").make()
        keys = KeyStore(tmp_path / "keys.json")
        key = keys.create("writer") if end == "revoked" else None
        with serving(create_app(workspace, limits=Limits(requests_per_minute=0))) as url:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENT)
            connection.putrequest("POST", "/api/datasets/notes/documents")
            headers = {**LINES, "Transfer-Encoding": "chunked", **({"X-API-Key": key.text} if key else {})}
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(batch(0))
            response = connection.getresponse()  # which begins once the first batch is stored
            assert json.loads(response.readline())["done"] == 64
            if key is None:
                keys.create("first")
            else:
                keys.revoke(key.key.id)
            connection.send(batch(1))
            (last,) = [json.loads(line) for line in response]
            connection.close()
            assert (last["done"], last["problem"]["type"]) == (64, "/problems/unauthorized")
            assert len(workspace.dataset("notes")) == 64


def batch(number: int) -> bytes:
    """Return 64 documents as a chunk of a streamed body."""
    lines = b"".join(b'{"id": "%d-%d", "text": "x"}\n' % (number, line) for line in range(64))
    return b"%x\r\n%b\r\n" % (len(lines), lines)


# ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def at_most_four_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_descriptors, "most_open_datasets", lambda: 4)


def datasets(folder: Path, count: int) -> pointsman.Workspace:
    workspace = pointsman.open(folder, embedder=HashingEmbedder())
    for number in range(count):
        workspace.dataset(f"d{number}").add([Document("x", f"number {number}"), Document("y", "another text")])
    return workspace


def opened_names(workspace: pointsman.Workspace) -> list[str]:
    return [name for name, dataset in workspace._datasets.items() if dataset.opened]


@pytest.fixture
def opened_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many datasets were open, each time that one had been opened."""
    counts: list[int] = []
    opened = OpenDatasets.opened

    def open_and_count(self: OpenDatasets, dataset: StoredDataset) -> None:
        opened(self, dataset)
        counts.append(sum(known.opened for known in self._datasets))

    monkeypatch.setattr(OpenDatasets, "opened", open_and_count)
    return counts


@pytest.mark.usefixtures("at_most_four_open")
@pytest.mark.parametrize("is_async", [False, True])
def test_datasets_are_searched_in_turn_and_opened_again(
    tmp_path: Path, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, close_surplus, workspace = 0, OpenDatasets.close_surplus, datasets(tmp_path, 12)

    def close_and_count(self: OpenDatasets) -> None:
        nonlocal most
        close_surplus(self)
        most = max(most, len(opened_names(workspace)))

    with workspace:
        assert opened_names(workspace) == ["d8", "d9", "d10", "d11"]
        monkeypatch.setattr(OpenDatasets, "close_surplus", close_and_count)
        if is_async:
            answer = asyncio.run(workspace.asearch("number 3", 12, refuse=False))
        else:
            answer = workspace.search("number 3", 12, refuse=False)
        (note,) = answer.degraded
        assert note == (
            "12 datasets are searched in turn, 4 at once, and none is calibrated: raise the limit of open files, "
            "or name fewer"
        )
        assert 4 <= most <= 4 + 4, "four are used at once, and each may be opened before another one is closed"
        assert answer.hits[0].dataset == "d3"
        assert {hit.dataset for hit in answer.hits} == {f"d{number}" for number in range(12)}
        assert workspace.dataset("d0").get_many(["x"])[0] == Document("x", "number 0")
        workspace.dataset("d0").delete(["y"])
        assert [len(workspace.dataset(f"d{number}")) for number in range(12)] == [1, *[2] * 11]
        assert len(opened_names(workspace)) <= 4, "what a search had to leave open is closed as others are opened"


@pytest.mark.usefixtures("at_most_four_open")
@pytest.mark.parametrize("options", [{}, {"as_of": "2024-06-01"}])
def test_views_are_searched_in_turn_and_what_was_hidden_meanwhile_stays_hidden(
    tmp_path: Path, options: dict[str, Any], opened_counts: list[int]
) -> None:
    asker = ["group:rail"]
    with datasets(tmp_path, 12) as workspace:
        for number in range(12):
            dataset = workspace.dataset(f"d{number}")
            dataset.set_access({"x": Permissions(frozenset(asker)), "y": Permissions(frozenset({"group:money"}))})
        workspace.switch_access(on=True)

        def answer() -> pointsman.RetrievalContext:
            return workspace.search("number another text", 24, refuse=False, principals=asker, **options)

        opened_counts.clear()
        first = answer()
        assert [(note[:44], len(first.degraded)) for note in first.degraded] == [
            ("12 datasets are searched in turn, 4 at once,", 1)
        ]
        assert len(opened_counts) >= 12 - 4, "they were closed and opened again"
        assert max(opened_counts) <= 4 + 4, "four are used at once, and each may be opened before another one is closed"
        assert {(hit.dataset, hit.id) for hit in first.hits} == {(f"d{number}", "x") for number in range(12)}
        assert answer().to_dict()["hits"] == first.to_dict()["hits"]
        workspace.dataset("d3").set_access({"x": Permissions(frozenset({"group:money"}))})
        assert {hit.dataset for hit in answer().hits} == {f"d{number}" for number in range(12) if number != 3}


@pytest.mark.usefixtures("at_most_four_open")
def test_views_in_turn_answer_as_views_that_are_all_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with datasets(tmp_path, 12) as workspace:
        for number in range(12):
            groups = frozenset({f"group:{number % 3}"})
            workspace.dataset(f"d{number}").set_access(
                {"x": Permissions(groups), "y": Permissions(frozenset({"group:0"}))}
            )
        workspace.switch_access(on=True)
        answers = []
        for most in (4, 40):
            monkeypatch.setattr(file_descriptors, "most_open_datasets", lambda most=most: most)
            for asker in ("group:0", "group:1"):
                hits = workspace.search("number 3 text", 24, refuse=False, principals=[asker]).to_dict()["hits"]
                answers.append((asker, hits))
        assert answers[:2] == answers[2:]


@pytest.mark.usefixtures("at_most_four_open")
def test_a_dataset_that_is_made_anew_in_mid_search_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the keys of the one would be read from the other."""
    replaced, search = list[str](), SourceBranch.search

    def search_and_replace(self: SourceBranch, *arguments: Any) -> Any:
        results = search(self, *arguments)
        if self.name == "d3" and not replaced:
            twelve.dataset("d3").release()  # as others are opened
            with pointsman.open(tmp_path, embedder=HashingEmbedder()) as writer:
                writer.drop("d3")
                writer.dataset("d3").add([Document("x", "wheat"), Document("new", "number 3")])
            replaced.append(self.name)
        return results

    monkeypatch.setattr(SourceBranch, "search", search_and_replace)
    with datasets(tmp_path, 12) as twelve:
        answer = twelve.search("number 3", 1, refuse=False)
        assert replaced
        assert [(hit.dataset, hit.id) for hit in answer.hits] == [("d3", "new")]


class UnknownEmbedder(HashingEmbedder):
    """A fake embedder that nothing is calibrated for."""

    @property
    def name(self) -> str:
        """A name that no calibration names."""
        return "unknown"


@pytest.mark.usefixtures("at_most_four_open")
def test_a_search_in_turn_starts_no_calibrations_and_opens_nothing_for_them(
    tmp_path: Path, opened_counts: list[int]
) -> None:
    with pointsman.open(tmp_path, embedder=UnknownEmbedder()) as workspace:
        for number in range(12):
            workspace.dataset(f"d{number}").add([Document("x", f"number {number}")])
    with pointsman.open(tmp_path, embedder=UnknownEmbedder()) as workspace:
        opened_counts.clear()
        assert len(workspace._sources(SearchRequest.of("number 3", 5, {}))) == 12
        assert not opened_counts
        assert workspace.search("number 3", refuse=False).hits
        assert not workspace._calibrations.known
        assert workspace.search("number 3", refuse=False, datasets=["d3"]).hits
        assert workspace._calibrations.known == {"d3"}


def test_datasets_that_no_time_is_left_for_are_late_and_have_not_failed() -> None:
    calls: list[DualCall[Any]] = [DualCall(partial(list, [n]), partial(anyio.sleep, 0)) for n in range(5)]
    limits = iter([3.0, 0.0])
    outcomes = run(_in_waves(calls, 2, Threads(), 9.0, lambda: next(limits)))
    assert [limit for _, limit in outcomes] == [9.0, 9.0, 3.0, 3.0, 0.0]
    assert [str(outcome.answer) for outcome, _ in outcomes] == ["[0]", "[1]", "[2]", "[3]", "None"]
    assert isinstance(outcomes[-1][0].error, TimeoutError)


@pytest.mark.usefixtures("at_most_four_open")
def test_what_is_not_reached_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with datasets(tmp_path, 12) as workspace:
        limits = iter([30.0, 30.0, 30.0])  # for embedding, and for two waves
        monkeypatch.setattr(SearchDeadline, "for_branches", lambda *_, **__: next(limits, 0.0))
        answer = workspace.search("number 3", 12, refuse=False)
        assert len({hit.dataset for hit in answer.hits}) == 8
        assert [note[:45] for note in answer.degraded] == [
            "12 datasets are searched in turn, 4 at once, ",
            "4 of 12 datasets were not searched, as no tim",
        ]
        assert sum(span.error is not None for span in answer.trace.spans if span.stage == "retrieve") == 4


@pytest.mark.usefixtures("at_most_four_open")
def test_what_fits_is_not_searched_in_turn(tmp_path: Path) -> None:
    with datasets(tmp_path, 12) as workspace:
        names = [f"d{number}" for number in range(4)]
        assert not workspace.search("number 3", 12, refuse=False, datasets=names).degraded


@pytest.mark.usefixtures("at_most_four_open")
def test_a_dataset_in_use_is_not_closed(tmp_path: Path) -> None:
    with datasets(tmp_path, 4) as workspace:
        reading = iter(workspace.dataset("d0"))
        first = next(reading)
        with workspace.dataset("d1").writing():
            for number in range(4, 12):
                workspace.dataset(f"d{number}").add([Document("x", "text")])
            assert {"d0", "d1"} <= set(opened_names(workspace))
            workspace.dataset("d1").add([Document("z", "written in the block")])
        assert [first.id, *(document.id for document in reading)] == ["x", "y"]
        workspace.dataset("d2").add([Document("z", "opens it")])
        assert "d0" not in opened_names(workspace)


def test_more_datasets_than_descriptors_are_searched_and_keys_are_checked(tmp_path: Path) -> None:
    with datasets(tmp_path, 60):
        pass
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (250, 250))
import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access.api_keys import keys_of
with pointsman.open(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    for _ in range(2):
        answer = workspace.search("number", 60, refuse=False)
        print(len({hit.dataset for hit in answer.hits}), len(answer.degraded))
    print(keys_of(workspace.backend).empty())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env={**os.environ})
    assert process.stdout.splitlines() == ["60 1", "60 1", "True"]


def test_the_soft_limit_of_descriptors_is_raised_as_far_as_allowed() -> None:
    program = """
import resource
from pointsman.tools.system.file_descriptors import descriptor_limit, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 900))
print(descriptor_limit(), raise_descriptor_limit(), descriptor_limit())
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["200", "900", "900"]
    assert raise_descriptor_limit() >= descriptor_limit()
