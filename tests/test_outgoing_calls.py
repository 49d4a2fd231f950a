"""Every outgoing HTTP call of ours: one deadline over connect, head and body; retries; one rule for proxies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpcore
import httpx
import openai  # noqa: F401  (to import it can take longer than the limits here)
import pytest

from pointsman import Client, Document, Settings, Workspace
from pointsman.embedders.openai_embedder import OpenAIEmbedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.openai_llm import OpenAILLM
from pointsman.retrieval.refine.rerank.http_reranker import HTTPReranker
from pointsman.service.client.client_connections import Request
from pointsman.service.client.service_calls import Service
from pointsman.service.server.access import issuer_keys
from pointsman.store.external import database_http
from pointsman.store.opensearch import opensearch_client
from pointsman.tools.errors import InputError, PointsmanError, UnmetNeedError
from pointsman.tools.network.http_calls import AsyncBoundedTransport, BoundedTransport, proxy_of
from pointsman.tools.network.retries import Retries
from pointsman.workspace.indexing import indexing_cluster
from pointsman.workspace.indexing.indexing_cluster import IndexingCluster

Part = Literal["connect", "head", "body", "body of known length"]
PARTS: tuple[Part, ...] = ("connect", "head", "body", "body of known length")
SECONDS = 1.0


@dataclass
class SlowServer:
    """A server that accepts, and then sends a byte every 100 ms, so that no single read is late."""

    part: Part
    connections: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                self.connections.append(connection)
                threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        with contextlib.suppress(OSError):
            if self.part.startswith("body"):
                connection.sendall(head + (b"Content-Length: 90000\r\n\r\n" if "known" in self.part else b"\r\n"))
            elif self.part == "head":
                connection.sendall(head + b"X-Long: ")
            while self.part != "connect" and not self._ended.wait(0.1):
                connection.sendall(b" ")

    def close(self) -> None:
        self._ended.set()
        self._socket.close()
        for connection in self.connections:
            connection.close()


def run_search(url: str) -> object:
    with Client(url, timeout=SECONDS) as client:
        return client.search("x")


async def arun_search(url: str) -> object:
    async with Client(url, timeout=SECONDS) as client:
        return await client.asearch("x")


def lines_of(url: str) -> object:
    service = Service(url, None, SECONDS, 0, insecure=False, transport=None)
    *_, ending = service.link.lines(Request("POST", "/lines", b""), SECONDS)
    assert not isinstance(ending, bytes)
    raise service.error(ending)


def of_database(url: str) -> object:
    address = database_http.HostAddress(url.replace("http", "chroma"), 8000)
    return database_http.Server(address, {}).ask("GET", "/api/v2/heartbeat")


def of_cluster(url: str) -> object:
    return opensearch_client.Cluster(
        opensearch_client.ClusterAddress(url.replace("http", "opensearch")).client(), url
    ).ask("GET", "/")


CALLS: dict[str, Callable[[str], object]] = {
    "client": run_search,
    "client, async": lambda url: asyncio.run(arun_search(url)),
    "client, of a dataset": lambda url: Client(url, timeout=SECONDS).dataset("notes").count(),
    "client, line by line": lines_of,
    "rerank API": lambda url: HTTPReranker(url, timeout=SECONDS, retries=0).score("x", ["y"]),
    "OpenAI's embeddings": lambda url: OpenAIEmbedder("m", url, timeout=SECONDS, max_retries=0).embed_queries(["x"]),
    "OpenAI's completions": lambda url: OpenAILLM("m", url, timeout=SECONDS, max_retries=0).complete("x"),
    "keys of an issuer": lambda url: issuer_keys.fetch_keys(f"{url}/jwks"),
    "configuration of an issuer": issuer_keys.discover,
    "database": of_database,
    "cluster": of_cluster,
    "worker": lambda url: IndexingCluster([url], "a key of sixteen characters"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_ends_in_time_however_slowly_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, call: str, part: Part
) -> None:
    monkeypatch.setattr(issuer_keys, "_SECONDS", SECONDS)
    monkeypatch.setattr(database_http, "_SECONDS", SECONDS)
    monkeypatch.setattr(indexing_cluster, "_TIMEOUT", SECONDS)
    monkeypatch.setattr(database_http, "PATIENCE", 0.0)
    monkeypatch.setattr(opensearch_client, "_SECONDS", SECONDS)
    monkeypatch.setattr(opensearch_client, "PATIENCE", 0.0)
    server = SlowServer(part)
    try:
        start = time.monotonic()
        with pytest.raises(PointsmanError):
            CALLS[call](server.url)
        assert 0.4 < time.monotonic() - start < SECONDS + 30
    finally:
        server.close()


def test_a_name_that_is_not_resolved_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real, held = socket.getaddrinfo, threading.Event()

    def slow(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "slow.example":
            held.wait(60)
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    start = time.monotonic()
    with pytest.raises(PointsmanError, match="no connection"):
        Client("http://slow.example", timeout=SECONDS, insecure=True, retries=0).search("x")
    held.set()
    assert time.monotonic() - start < SECONDS + 30


class TestClosing:
    """A client that is closed while another thread or task connects leaves no connection open."""

    def test_in_another_thread(self) -> None:
        is_connecting, client_closed = threading.Event(), threading.Event()

        class Connections(httpcore.SyncBackend):
            def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
                stream = super().connect_tcp(*arguments, **options)
                is_connecting.set()
                assert client_closed.wait(60)
                return stream

        server, transport = SlowServer("connect"), BoundedTransport(None)
        network: Any = transport._pool._network_backend
        network._backend = Connections()
        client = httpx.Client(transport=transport, timeout=10)
        with ThreadPoolExecutor() as threads:
            call = threads.submit(client.get, server.url)
            assert is_connecting.wait(60)
            client.close()
            client_closed.set()
            with pytest.raises(httpx.ConnectError, match="closed while it connected"):
                call.result()
        assert server.connections[0].recv(1) == b""
        server.close()

    def test_in_another_task(self) -> None:
        is_connecting, client_closed = asyncio.Event(), asyncio.Event()

        class Connections(httpcore.AnyIOBackend):
            async def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.AsyncNetworkStream:
                stream = await super().connect_tcp(*arguments, **options)
                is_connecting.set()
                await client_closed.wait()
                return stream

        async def close_while_connecting() -> None:
            transport = AsyncBoundedTransport(None)
            network: Any = transport._pool._network_backend
            network._backend = Connections()
            client = httpx.AsyncClient(transport=transport, timeout=10)
            call = asyncio.create_task(client.get(server.url))
            await is_connecting.wait()
            await client.aclose()
            client_closed.set()
            with pytest.raises(httpx.ConnectError, match="closed while it connected"):
                await call

        server = SlowServer("connect")
        asyncio.run(close_while_connecting())
        assert server.connections[0].recv(1) == b""
        server.close()


class TestRetries:
    def test_pauses_double_up_to_the_longest(self) -> None:
        retries = Retries(time.monotonic() + 100, first=1.0, longest=4.0)
        pauses = [retries.pause() for _ in range(5)]
        for pause, most in zip(pauses, [1, 2, 4, 4, 4], strict=True):
            assert pause is not None
            assert most / 2 <= pause <= most

    @pytest.mark.parametrize(("asked", "granted"), [(0.0, True), (3.0, True), (3.9, True), (4.1, False), (99.0, False)])
    def test_what_the_server_asks_for_is_waited_or_nothing_is(self, asked: float, granted: bool) -> None:
        assert Retries(time.monotonic() + 100, first=1.0, longest=4.0).pause(asked) == (asked if granted else None)

    def test_no_pause_goes_beyond_the_end(self) -> None:
        assert Retries(time.monotonic() + 1, first=0.1, longest=60.0).pause(1.5) is None
        assert Retries(time.monotonic() - 1, first=0.1, longest=60.0).pause() is None

    def test_attempts_are_counted(self) -> None:
        retries = Retries(time.monotonic() + 100, first=0.1, longest=1.0, most=2)
        assert [retries.pause() is None for _ in range(4)] == [False, False, True, True]
        assert retries.attempt == 3


class TestProxies:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.5.0.1", "db.localhost"])
    @pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "ftp://x:1", "http://x:port"])
    def test_this_machine_is_reached_directly(self, host: str, proxy: str) -> None:
        variables = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"), proxy)
        assert proxy_of(f"http://{host}:8080", variables) is None
        assert proxy_of(f"https://{host}", variables | {"NO_PROXY": "[::1]"}) is None

    @pytest.mark.parametrize(
        ("url", "variables", "proxy"),
        [
            ("http://a.example", {}, None),
            ("http://a.example", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
            ("https://a.example", {"HTTP_PROXY": "http://p:1"}, None),
            ("https://a.example", {"HTTP_PROXY": "http://p:1", "ALL_PROXY": "http://q:2"}, "http://q:2"),
            ("http://a.example", {"HTTP_PROXY": "http://p:1", "http_proxy": "http://q:2"}, "http://q:2"),
            ("http://a.example", {"HTTP_PROXY": "p:1"}, "http://p:1"),
            ("http://a.example", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
            ("http://a.example", {"ALL_PROXY": "http://p:1", "NO_PROXY": "example"}, None),
            ("http://a.example", {"ALL_PROXY": "http://p:1", "no_proxy": ".example, b.org"}, None),
            ("http://a.example", {"ALL_PROXY": "http://p:1", "no_proxy": "*"}, None),
            ("http://a.example:81", {"ALL_PROXY": "http://p:1", "no_proxy": "a.example:80"}, "http://p:1"),
            ("http://a.example", {"ALL_PROXY": "http://p:1", "NO_PROXY": "[::1]"}, "http://p:1"),
            ("http://[2001:db8::1]", {"ALL_PROXY": "http://p:1", "NO_PROXY": "[2001:db8::1]"}, None),
            ("http://[2001:db8::2]:8", {"ALL_PROXY": "http://p:1", "NO_PROXY": "[2001:db8::1]"}, "http://p:1"),
        ],
    )
    def test_the_proxy_of_an_address(self, url: str, variables: dict[str, str], proxy: str | None) -> None:
        chosen = proxy_of(url, variables)
        assert (None if chosen is None else str(chosen.url)) == proxy

    @pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
    @pytest.mark.parametrize(
        ("proxy", "reason"),
        [
            ("socks5://user:secret@p.example:1080", "socksio"),
            ("ftp://user:secret@p.example:1", "begins with http://"),
            ("http://user:secret@p.example:port", "port"),
            ("http://", "no host"),
        ],
    )
    def test_what_cannot_be_used_is_named(self, variable: str, proxy: str, reason: str) -> None:
        with pytest.raises(InputError, match=f"in the variable {variable} cannot be used.*{reason}") as caught:
            proxy_of("http://a.example", {variable: proxy})
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("proxy", ["socks5://p.example:1080", "ftp://p.example:1"])
    @pytest.mark.parametrize(
        "make",
        [
            lambda: Client("http://a.example", insecure=True),
            lambda: HTTPReranker("http://a.example"),
            lambda: OpenAIEmbedder("m", "http://a.example"),
            lambda: OpenAILLM("m", "http://a.example"),
            lambda: issuer_keys.fetch_keys("https://a.example/jwks"),
            lambda: database_http.Server(database_http.HostAddress("chroma://a.example:1?insecure=true", 1), {}),
        ],
    )
    def test_every_call_says_so(self, monkeypatch: pytest.MonkeyPatch, proxy: str, make: Callable[[], object]) -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "no_proxy", "NO_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ALL_PROXY", proxy)
        with pytest.raises(InputError, match=r"p\.example:1.*ALL_PROXY"):
            make()

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "ftp://x:1"])
    def test_every_call_reaches_this_machine(
        self, monkeypatch: pytest.MonkeyPatch, call: str, proxy: str, refusing: Iterator[Any]
    ) -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("NO_PROXY", "[::1]")
        url, paths = refusing
        with pytest.raises(PointsmanError):
            CALLS[call](url)
        assert paths


@pytest.fixture
def refusing() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine that answers everything with 404, and what it was asked for."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(404)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET  # noqa: N815  (its name there)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name there)
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    server.server_close()


def test_a_client_of_ones_own_transport_has_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://x:1")
    transport = httpx.MockTransport(lambda _: httpx.Response(404))
    with Client("http://a.example", insecure=True, transport=transport) as client, pytest.raises(PointsmanError):
        client.search("x")


@pytest.mark.parametrize("proxy", ["socks5://p.example:1", "ftp://p.example:1", "http://p.example:port"])
def test_a_search_goes_on_where_no_proxy_reaches_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    settings = Settings(llm_base_url="http://a.example/v1", llm_model="m", reranker="http://a.example")
    with Workspace(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        workspace.dataset("notes").add(Document("a", "rail signal"))
        assert [hit.id for hit in workspace.search("rail", refuse=False)] == ["a"]
        with pytest.raises(UnmetNeedError, match=r"p\.example.*ALL_PROXY"):
            workspace.search("rail", strategy="hyde")
