"""Rerank servers of every shape, and with every fault, each a real one on this machine."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.refine.rerank import HTTPReranker
from pointsman.retrieval.refine.rerank.text_length import shortened
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Document, Hit, Query, Ranked

KEY = "secret-key-123"
Answer = tuple[int, Any, dict[str, str]]


def ok(body: Any) -> Answer:
    return 200, body, {}


def words(query: str, text: str) -> float:
    """What these servers score: the words of the query that are in the text."""
    return float(sum(word in text for word in query.split()))


def ranked_by(query: str, texts: list[str]) -> list[tuple[int, float]]:
    return sorted(((index, words(query, text)) for index, text in enumerate(texts)), key=lambda item: -item[1])


def cohere(request: dict[str, Any]) -> Answer:
    ranking = ranked_by(request["query"], request["documents"])
    results = [{"index": index, "relevance_score": score} for index, score in ranking]
    return ok({"id": "07734bd2", "results": results, "meta": {"api_version": {"version": "2"}}})


def jina(request: dict[str, Any]) -> Answer:
    ranking = ranked_by(request["query"], request["documents"])
    results = [
        {"index": index, "relevance_score": score, "document": {"text": request["documents"][index]}}
        for index, score in ranking
    ]
    return ok({"model": request.get("model"), "usage": {"total_tokens": 9}, "results": results})


def infinity(request: dict[str, Any]) -> Answer:
    ranking = ranked_by(request["query"], request["documents"])
    results = [
        {"index": index, "relevance_score": score, "document": request["documents"][index]} for index, score in ranking
    ]
    return ok({"object": "rerank", "results": results, "id": "x", "created": 1})


def tei(request: dict[str, Any]) -> Answer:
    if "texts" not in request:
        return 422, "Failed to deserialize the JSON body: missing field `texts`", {}
    return ok([{"index": index, "score": score} for index, score in ranked_by(request["query"], request["texts"])])


class Server:
    """Answers each path as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.paths: dict[str, Callable[[dict[str, Any]], Answer]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout: ClassVar[float] = 5

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(content)
                outer.requests.append((self.path, request, dict(self.headers)))
                respond = outer.paths.get(self.path) or outer.paths.get("*")
                status, body, headers = respond(request) if respond else (404, "page not found", {})
                if status == 0:  # hang up
                    self.close_connection = True
                    return
                data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else _json(body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # the client has had enough

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Callable[..., HTTPReranker]]:
    rerankers: list[HTTPReranker] = []

    def make(path: str = "", **settings: Any) -> HTTPReranker:
        rerankers.append(HTTPReranker(server.url + path, **settings))
        return rerankers[-1]

    yield make
    for reranker in rerankers:
        reranker.close()


TEXTS = ["moon and cheese", "rails and trains", "trains", "铁路 trains", "рельсы rails trains now"]
QUERY = "rails trains now"
SCORES = [0.0, 2.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("path", "api", "served_path", "speaks"),
    [
        ("", "cohere", "/v2/rerank", cohere),
        ("/v2/rerank", "auto", "/v2/rerank", cohere),
        ("/v2", "auto", "/v2/rerank", cohere),
        ("", "auto", "/v2/rerank", cohere),
        ("", "jina", "/v1/rerank", jina),
        ("/v1/rerank", "auto", "/v1/rerank", jina),
        ("/v1/", "auto", "/v1/rerank", infinity),
        ("", "auto", "/v1/rerank", infinity),
        ("/rerank", "jina", "/rerank", infinity),
        ("/rerank", "auto", "/rerank", infinity),
        ("/rerank", "auto", "/rerank", tei),
        ("", "tei", "/rerank", tei),
        ("", "auto", "/rerank", tei),
        ("/behind/proxy", "auto", "/behind/proxy/v1/rerank", jina),
        ("/behind/proxy/rerank", "tei", "/behind/proxy/rerank", tei),
    ],
)
def test_every_shape(
    server: Server, client: Callable[..., HTTPReranker], path: str, api: str, served_path: str, speaks: Any
) -> None:
    def strict(request: dict[str, Any]) -> Answer:
        if speaks is not tei and "documents" not in request:
            return 422, {"detail": [{"msg": "Field required"}]}, {}
        return speaks(request)  # type: ignore[no-any-return]

    server.paths[served_path] = strict
    reranker = client(path, api=api, model="tiny", api_key=KEY)
    assert reranker.score(QUERY, TEXTS) == SCORES
    documents = [Document(str(index), text) for index, text in enumerate(TEXTS)]
    best = reranker.rerank(QUERY, documents, 2)
    assert [(d.id, d.metadata["score"]) for d in best] == [("4", 3.0), ("1", 2.0)]
    assert asyncio.run(client(path, api=api, model="tiny").arerank(QUERY, documents, 2)) == best
    requests_before = len(server.requests)
    assert reranker.score("rails", TEXTS[:2]) == [0.0, 1.0]
    assert len(server.requests) == requests_before + 1, "what was understood is remembered"
    path, request, headers = server.requests[0]
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert request["query"] == QUERY
    assert KEY not in json.dumps(request)
    last = server.requests[requests_before][1]
    assert last == (
        {"query": "rails", "texts": TEXTS[:2], "truncate": True}
        if speaks is tei
        else {"query": "rails", "documents": TEXTS[:2], "top_n": 2, "model": "tiny"}
        | ({} if speaks is cohere else {"return_documents": False})
    )


def test_no_key_no_header(server: Server, client: Callable[..., HTTPReranker]) -> None:
    server.paths["*"] = jina
    client("/v1").score(QUERY, TEXTS)
    assert "Authorization" not in server.requests[0][2]
    assert "model" not in server.requests[0][1]


def test_no_documents_need_no_call(server: Server, client: Callable[..., HTTPReranker]) -> None:
    assert client("/v1").rerank(QUERY, []) == []
    assert client("/v1").score(QUERY, []) == []
    assert server.requests == []


def test_batches(server: Server, client: Callable[..., HTTPReranker]) -> None:
    server.paths["/rerank"] = tei
    texts = [f"rails {n}" if n % 7 == 0 else f"moon {n}" for n in range(70)]
    expected = [words("rails", text) for text in texts]
    assert client(api="tei").score("rails", texts) == expected
    assert [len(request["texts"]) for _, request, _ in server.requests] == [32, 32, 6]
    server.requests.clear()
    assert client(api="tei", batch_size=50).score("rails", texts) == expected
    assert [len(request["texts"]) for _, request, _ in server.requests] == [50, 20]


def test_what_is_sent_is_cut_and_clean(server: Server, client: Callable[..., HTTPReranker]) -> None:
    server.paths["*"] = cohere
    reranker = client("/v2", max_chars=30, max_tokens_per_doc=64)
    reranker.score(
        "a \ud800 query\0", ["", "nul\0 and \ud83d", "A sentence of moderate length. Another one", "月" * 40]
    )
    request = server.requests[0][1]
    assert request["query"] == "a � query "
    assert request["documents"] == [" ", "nul  and �", "A sentence of moderate length.", "月" * 10]
    assert request["max_tokens_per_doc"] == 64
    client("/v2", max_chars=None).score("q", ["x" * 20_000])
    assert server.requests[1][1]["documents"] == ["x" * 20_000]
    names = {client("/v2", **settings).name for settings in ({}, {"max_chars": 3}, {"model": "m"}, {"max_chars": None})}
    assert len(names) == 4


def result(index: Any, score: Any = 0.5, field: str = "relevance_score") -> dict[str, Any]:
    return {"index": index, field: score}


BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "missing": ({"results": [result(0)]}, "1 results for 2 documents"),
    "none": ({"results": []}, "0 results for 2 documents"),
    "twice": ({"results": [result(0), result(0)]}, "two results have the index 0"),
    "too many": ({"results": [result(0), result(1), result(2)]}, "has the index 2"),
    "negative": ({"results": [result(0), result(-1)]}, "has the index -1"),
    "text index": ({"results": [result(0), result("1")]}, "has the index '1'"),
    "float index": ({"results": [result(0), result(1.0)]}, "has the index 1.0"),
    "true index": ({"results": [result(0), result(True)]}, "has the index True"),
    "no index": ({"results": [{"score": 1.0}, {"score": 0.5}]}, "has the index None"),
    "no score": ({"results": [{"index": 0}, {"index": 1}]}, "has the score None"),
    "text score": ({"results": [result(0), result(1, "0.5")]}, "has the score '0.5'"),
    "null score": ({"results": [result(0), result(1, None)]}, "has the score None"),
    "true score": ({"results": [result(0), result(1, True)]}, "has the score True"),
    "nan": (b'{"results": [{"index": 0, "score": 1}, {"index": 1, "score": NaN}]}', "has the score nan"),
    "huge": (b'[{"index": 0, "score": 1}, {"index": 1, "score": 1' + b"0" * 400 + b"}]", "has the score 1000"),
    "infinite": (b'[{"index": 0, "score": 1}, {"index": 1, "score": -Infinity}]', "has the score -inf"),
    "beyond floats": (b'[{"index": 0, "score": 1}, {"index": 1, "score": 1%s}]' % (b"0" * 400), "has the score 1000"),
    "digits without end": (b'[{"index": 0, "score": 1%s}]' % (b"0" * 10_000), "not JSON"),
    "results of text": ({"results": ["a", "b"]}, "a result is not an object"),
    "results as object": ({"results": {"0": 0.5, "1": 0.2}}, "no list of results"),
    "other JSON": ({"choices": []}, "no list of results"),
    "null": (b"null", "no list of results"),
    "a number": (b"7", "no list of results"),
    "HTML": (b"<html><body>Welcome</body></html>", "not JSON: <html>"),
    "empty": (b"", "not JSON: nothing"),
    "cut off": (b'{"results": [{"index": 0', "not JSON"),
    "deep": (b"[" * 100_000, "not JSON"),
    "not UTF-8": (b'{"results": "\xff\xfe"}', "not JSON"),
}


@pytest.mark.parametrize("fault", BAD_ANSWERS)
def test_an_answer_that_cannot_be_used_is_not_used(
    server: Server, client: Callable[..., HTTPReranker], fault: str
) -> None:
    body, cause = BAD_ANSWERS[fault]
    server.paths["*"] = lambda _: ok(body)
    reranker = client("/v1/rerank", api_key=KEY)
    with pytest.raises(ModelError, match="returned no usable answer") as error_info:
        reranker.score("q", ["a", "b"])
    assert cause in str(error_info.value)
    assert len(str(error_info.value)) < 400
    assert len(server.requests) == 1, "it would answer the same again"
    degrades(reranker, cause)


def degrades(reranker: HTTPReranker, cause: str) -> None:
    original = Ranked((Hit(Document("a", "x"), 1.0), Hit(Document("b", "y"), 0.5)), "rrf")
    for outcome in (reranker.refine(Query("q"), original, 2), asyncio.run(reranker.arefine(Query("q"), original, 2))):
        assert (outcome.hits, outcome.scale) == (original.hits, "rrf")
        assert cause in outcome.degraded[0]
        assert KEY not in outcome.degraded[0]


FAULTS: dict[str, tuple[Answer, str, int]] = {
    "unauthorised": ((401, f"bad key {KEY}", {}), "status 401: bad key [key]", 1),
    "forbidden": ((403, "no", {}), "status 403", 1),
    "wrong request": ((400, "query too long", {}), "/v1/rerank as jina: status 400: query too long", 1),
    "not found": ((404, "<html>nothing here</html>", {}), "status 404", 1),
    "redirect": ((302, "", {"Location": "/elsewhere"}), "redirects (status 302)", 1),
    "moved": ((308, "", {"Location": "/elsewhere"}), "redirects (status 308)", 1),
    "busy": ((429, "slow down", {}), "status 429: slow down (attempt 3)", 3),
    "busy for long": ((429, "slow down", {"Retry-After": "3600"}), "asks to wait 3600 s (attempt 1)", 1),
    "broken": ((500, "oops", {}), "status 500: oops (attempt 3)", 3),
    "overloaded": ((503, "", {"Retry-After": "0"}), "status 503: nothing (attempt 3)", 3),
    "hangs up": ((0, "", {}), "(attempt 3)", 3),
    "cut off": ((200, b'{"results"', {"Content-Length": "100", "Connection": "close"}), "(attempt 3)", 3),
    "no content": ((204, b"", {}), "status 204", 1),
    "compressed": ((200, gzip.compress(b"[]"), {"Content-Encoding": "gzip"}), "is compressed", 1),
    "huge": ((200, b" " * (17 * 2**20), {}), "larger than 16 MB", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_fails(
    server: Server, client: Callable[..., HTTPReranker], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer, cause, attempts = FAULTS[fault]
    server.paths["*"] = lambda _: answer
    reranker = client("/v1/rerank", api_key=KEY, timeout=20)
    with pytest.raises(ModelError) as error_info:
        reranker.score("q", ["a", "b"])
    assert cause in str(error_info.value)
    assert len(server.requests) == attempts
    assert {path for path, _, _ in server.requests} == {"/v1/rerank"}
    for text in (str(error_info.value), repr(reranker), reranker.name, repr(error_info.value.__cause__), caplog.text):
        assert KEY not in text
    fast = client("/v1/rerank", api_key=KEY, retries=0)
    degrades(fast, cause.replace("attempt 3", "attempt 1"))


def test_what_may_succeed_later_is_sent_again(server: Server, client: Callable[..., HTTPReranker]) -> None:
    date = email.utils.formatdate(time.time() - 5, usegmt=True)
    replies: list[Answer] = [(503, "", {"Retry-After": date}), (429, "", {"Retry-After": "nonsense"})]
    server.paths["*"] = lambda request: replies.pop(0) if replies else jina(request)
    assert client("/v1").score(QUERY, TEXTS) == SCORES
    assert len(server.requests) == 3


def test_retry_after_is_kept_to(server: Server, client: Callable[..., HTTPReranker]) -> None:
    replies: list[Answer] = [(503, "", {"Retry-After": "1"})]
    server.paths["*"] = lambda request: replies.pop(0) if replies else jina(request)
    start = time.monotonic()
    assert client("/v1").score(QUERY, TEXTS) == SCORES
    assert time.monotonic() - start >= 1


def test_the_time_is_bounded_whatever_the_server_does(server: Server, client: Callable[..., HTTPReranker]) -> None:
    release = threading.Event()

    def slow(_: dict[str, Any]) -> Answer:
        release.wait(60)
        return ok([])

    server.paths["*"] = slow
    reranker = client("/v1", timeout=0.3)
    start = time.monotonic()
    with pytest.raises(ModelError, match="no answer in time"):
        reranker.score("q", ["a"])
    degrades(reranker, "in")  # "in time" by the client, or "within" by the stage: whichever sees it first
    assert time.monotonic() - start < 30  # only a clock tells that time is bounded; without a bound it is a minute
    release.set()
    server.paths["*"] = lambda _: (503, "", {"Retry-After": "5"})
    with pytest.raises(ModelError, match="asks to wait 5 s"):
        reranker.score("q", ["a"])


def test_a_body_that_drips_is_left() -> None:
    """Each byte comes before any single read times out."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    reranker = HTTPReranker(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=0.5)
    with pytest.raises(ModelError, match="in time"):
        reranker.score("q", ["a"])
    stop.set()
    thread.join()
    listener.close()
    reranker.close()


def test_nobody_there(client: Callable[..., HTTPReranker]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    reranker = HTTPReranker(f"http://127.0.0.1:{port}/v1", api_key=KEY, retries=1)
    with pytest.raises(ModelError, match=r"ConnectError.*attempt 2"):
        reranker.score("q", ["a"])
    reranker.close()


def test_the_key_stays_with_the_server(server: Server, client: Callable[..., HTTPReranker]) -> None:
    other_server = Server()
    server.paths["*"] = lambda _: (307, "", {"Location": f"{other_server.url}/v1/rerank"})
    with pytest.raises(ModelError, match="redirects"):
        client("/v1", api_key=KEY).score("q", ["a"])
    assert other_server.requests == []
    other_server.close()


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("localhost:8080", {}, "must begin with http"),
        ("ftp://host", {}, "must begin with http"),
        ("http://", {}, "must begin with http"),
        ("http://[", {}, "not a valid address"),
        ("http://host:port", {}, "not a valid address"),
        ("https://me:hunter2@host", {}, "contains a user or password"),
        ("http://example.com/v1", {"api_key": KEY}, "without encryption"),
        ("http://10.0.0.7/v1", {"api_key": KEY}, "without encryption"),
        ("http://127.0.0.1.example.com", {"api_key": KEY}, "without encryption"),
        ("https://host", {"api_key": "two\nlines"}, "one line"),
        ("https://host", {"api_key": ""}, "one line"),
        ("https://host", {"api": "openai"}, "api is one of"),
        ("https://host", {"retries": -1}, "retries"),
        ("https://host", {"max_chars": 0}, "max_chars"),
        ("https://host", {"batch_size": 0}, "batch_size"),
    ],
)
def test_settings_are_checked(url: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error_info:
        HTTPReranker(url, **settings)
    assert "hunter2" not in str(error_info.value)
    assert KEY not in str(error_info.value)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("https://example.com", {}),
        ("http://localhost:8080", {}),
        ("http://127.0.0.1", {}),
        ("http://[::1]:8080", {}),
        ("http://vllm:8000", {"insecure": True}),
    ],
)
def test_a_key_over_a_safe_way(url: str, settings: dict[str, Any]) -> None:
    reranker = HTTPReranker(url, api_key=KEY, **settings)
    assert reranker.name.partition("@")[2].startswith(url)
    assert KEY not in reranker.name + repr(reranker)


def test_an_address_may_hold_more_than_a_path(server: Server, client: Callable[..., HTTPReranker]) -> None:
    server.paths["/v1/rerank?key=hidden"] = jina
    reranker = client("/v1/rerank?key=hidden")
    assert reranker.score(QUERY, TEXTS) == SCORES
    assert "hidden" not in reranker.name + repr(reranker)


def test_many_threads_share_a_client(server: Server, client: Callable[..., HTTPReranker]) -> None:
    server.paths["*"] = jina
    reranker = client("/v1", cache=False)
    wrong: list[Any] = []

    def work(word: str) -> None:
        for _ in range(5):
            scores = list(reranker.score(word, TEXTS))
            if scores != [words(word, text) for text in TEXTS]:
                wrong.append(scores)

    threads = [threading.Thread(target=work, args=(word,)) for word in ("rails", "trains", "moon", "now")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ── shortening ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("short", 10, "short"),
        ("One came. Two went away.", 24, "One came. Two went away."),
        ("One came. Two went away.", 10, "One came."),
        ("One came. Two went away.", 20, "One came. Two went"),
        ("Пришёл один поезд. Другой ушёл.", 22, "Пришёл один поезд."),
        ("来了一列火车。另一列开走了。", 24, "来了一列火车。"),
        ("没有标点的一句很长的话", 12, "没有标点"),
        ("x" * 100, 10, "x" * 10),
        ("word " + "x" * 100, 20, "word"),
        ("word " + "x" * 100, 90, "word " + "x" * 85),
        ("", 5, ""),
        ("月", 2, ""),
    ],
)
def test_a_text_is_cut_between_sentences_or_words(text: str, limit: int, expected: str) -> None:
    assert shortened(text, limit) == expected


@given(st.text(alphabet="ab .。中я\n!", max_size=60), st.integers(1, 70))
def test_what_is_cut_is_a_beginning_that_fits(text: str, limit: int) -> None:
    cut = shortened(text, limit)
    assert text.startswith(cut)
    assert sum(3 if character in "。中" else 1 for character in cut) <= limit
    if 3 * len(text) <= limit:
        assert cut == text
