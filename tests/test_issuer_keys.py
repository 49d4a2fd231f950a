"""Keys of an identity provider that are fetched: nothing is accepted by others, and nothing is fetched too often."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from typer.testing import CliRunner

from pointsman import Document, Workspace
from pointsman.cli.core_commands import app as cli
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access import issuer_keys
from pointsman.service.server.access.issuer_keys import (
    FAILED_PAUSE,
    LIMIT,
    PAUSE,
    RENEW,
    IssuerKeys,
    discover,
    fetch_keys,
)
from pointsman.service.server.access.signed_tokens import Issuer, TokenTrust
from pointsman.tools.errors import CorruptStoreError, InputError, StoreUnavailableError
from serving import serving
from test_views_http import (
    AUDIENCE,
    CURVE,
    ISSUER,
    KEYS,
    OTHER,
    PEM,
    RSA,
    bearer,
    by_hand,
    claims,
    key_of,
    public,
    token_of,
)

Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(value: Any, status: int = 200, **headers: str) -> Answer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.end_headers()
        handler.wfile.write(body)

    return send


class Provider:
    """An identity provider on this machine: what it answers at each path, and how often it was asked."""

    def __init__(self) -> None:
        provider = self
        self.answers: dict[str, Answer] = {"/jwks": answer({"keys": KEYS})}
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                try:
                    provider.answers.get(self.path, answer({}, 404))(self)
                except (BrokenPipeError, ConnectionResetError):  # the client has had enough
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name there)
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.address}/jwks"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "_SECONDS", 0.5)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of fetched keys, whose initial value is that of no attempt."""
    clock = Clock()
    monkeypatch.setattr(IssuerKeys.__init__, "__kwdefaults__", {"clock": clock})
    return clock


@pytest.fixture
def workspace(tmp_path: Path, provider: Provider) -> Iterator[Workspace]:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("rail", "signal of the yard")], access=["group:rail"])
        workspace.dataset("notes").add([Document("pay", "signal of the salary")], access=["group:money"])
        workspace.switch_access(on=True)
        TokenTrust(workspace.backend).trust(Issuer(ISSUER, AUDIENCE, (), keys_url=provider.url))
        yield workspace


@pytest.fixture
def url(workspace: Workspace) -> Iterator[str]:
    with serving(create_app(workspace, limits=Limits(requests_per_minute=0))) as url:
        yield url


def search(url: str, token: str) -> httpx.Response:
    body = {"query": "signal", "refuse": False}
    return httpx.post(f"{url}/api/search", json=body, headers=bearer(token), timeout=60)


def ids_in(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [hit["id"] for hit in response.json()["hits"]]


FORGED: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: by_hand({"alg": "none", "kid": "rsa"}, claims(), lambda _: b""),
    "no algorithm, in capitals": lambda: by_hand({"alg": "None", "kid": "rsa"}, claims(), lambda _: b""),
    "signed by the provider's key as a secret": lambda: by_hand(
        {"alg": "HS256", "kid": "rsa"}, claims(), lambda text: hmac.digest(PEM, text, hashlib.sha256)
    ),
    "signed by the published set as a secret": lambda: by_hand(
        {"alg": "HS256", "kid": "rsa"},
        claims(),
        lambda text: hmac.digest(json.dumps(KEYS[0]).encode(), text, hashlib.sha256),
    ),
    "signed by an empty secret": lambda: by_hand(
        {"alg": "HS256"}, claims(), lambda text: hmac.digest(b"", text, hashlib.sha256)
    ),
    "a list as the key's id": lambda: by_hand({"alg": "RS256", "kid": ["rsa"]}, claims(), lambda _: b"x"),
    "another address of keys": lambda: by_hand(
        {"alg": "RS256", "kid": "rsa", "jku": "http://127.0.0.1:9/"}, claims(), lambda _: b"x"
    ),
    "its own key": lambda: by_hand(
        {"alg": "RS256", "kid": "rsa", "jwk": public(OTHER, "RS256", "rsa")}, claims(), lambda _: b"x"
    ),
    "another key": lambda: token_of(OTHER),
    "another key without an id": lambda: token_of(OTHER, kid=None),
    "an algorithm of another key": lambda: token_of(OTHER, "RS256", "curve"),
    "a key of another algorithm": lambda: token_of(CURVE, "ES256", "rsa"),
    "another issuer": lambda: token_of(iss="https://other.example.org"),
    "another audience": lambda: token_of(aud="other"),
    "expired": lambda: token_of(exp=int(time.time()) - 60),
    "without an end": lambda: token_of(exp=None),
    "its end as a text": lambda: token_of(exp=str(int(time.time()) + 600)),
    "its end as a truth": lambda: token_of(exp=True),
    "its beginning as a text": lambda: token_of(nbf=str(int(time.time()) - 60)),
    "its making as a text": lambda: token_of(iat=str(int(time.time()) - 60)),
    "its making as a list": lambda: token_of(iat=[int(time.time()) - 60]),
}
"""Tokens that must not get in; each is made when it is sent, so that none is refused only for its age."""


class TestService:
    def test_keys_are_fetched_once_for_many_tokens(self, url: str, provider: Provider) -> None:
        assert provider.asked == []
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: ids_in(search(url, token_of())), range(24))) == [["rail"]] * 24
        assert ids_in(search(url, token_of(CURVE, "ES256", "curve"))) == ["rail"]
        assert provider.asked == ["/jwks"]

    def test_a_new_key_counts_once_it_is_published(self, url: str, provider: Provider, clock: Clock) -> None:
        new = token_of(OTHER, "RS256", "new")
        assert ids_in(search(url, token_of())) == ["rail"]
        provider.answers["/jwks"] = answer({"keys": [public(OTHER, "RS256", "new")]})
        assert search(url, new).status_code == 401, "an unknown key is asked for at most once in half a minute"
        clock.time += PAUSE
        assert ids_in(search(url, new)) == ["rail"]
        assert search(url, token_of()).status_code == 401, "the old key is gone"
        assert len(provider.asked) == 2

    def test_a_withdrawn_key_is_used_for_a_limited_time(self, url: str, provider: Provider, clock: Clock) -> None:
        assert ids_in(search(url, token_of())) == ["rail"]
        provider.answers["/jwks"] = answer({"keys": KEYS[1:]})
        clock.time += RENEW - 1
        assert ids_in(search(url, token_of())) == ["rail"]
        clock.time += 2
        assert ids_in(search(url, token_of())) == ["rail"], "nobody waits for keys that are renewed in time"
        until = time.monotonic() + 60
        while search(url, token_of()).status_code != 401:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert len(provider.asked) == 2

    def test_unknown_keys_ask_the_provider_only_so_often(self, url: str, provider: Provider, clock: Clock) -> None:
        tokens = [token_of(OTHER, "RS256", f"made up {number}") for number in range(60)]
        clock.time += PAUSE
        with ThreadPoolExecutor(8) as pool:
            assert {response.status_code for response in pool.map(lambda token: search(url, token), tokens)} == {401}
        assert len(provider.asked) == 1
        assert ids_in(search(url, token_of())) == ["rail"], "others are answered"
        clock.time += PAUSE
        assert search(url, tokens[0]).status_code == 401
        assert search(url, tokens[1]).status_code == 401
        assert len(provider.asked) == 2

    @pytest.mark.parametrize("how", FORGED)
    def test_forged_tokens(self, url: str, how: str, provider: Provider) -> None:
        response = search(url, FORGED[how]())
        assert response.status_code == 401
        assert "a valid key is required" in response.text
        assert len(provider.asked) <= 1

    def test_while_the_provider_is_away_nothing_is_accepted(
        self, workspace: Workspace, url: str, provider: Provider, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        provider.answers["/jwks"] = answer({}, 500)
        clock.time += FAILED_PAUSE
        response = search(url, token_of())
        assert response.status_code == 503
        assert "keys cannot be checked; see the log" in response.text
        assert f"{provider.url}: status 500" in caplog.text
        assert len(provider.asked) == 2, "one more attempt"
        assert {search(url, token_of()).status_code for _ in range(5)} == {503}
        assert len(provider.asked) == 2, "nobody asks again within some seconds"
        provider.answers["/jwks"] = answer({"keys": KEYS})
        clock.time += FAILED_PAUSE
        assert ids_in(search(url, token_of())) == ["rail"]
        provider.answers["/jwks"] = answer({}, 500)
        clock.time += LIMIT - 1
        assert ids_in(search(url, token_of())) == ["rail"]
        clock.time += 2
        assert search(url, token_of()).status_code == 503, "keys are not used for ever"

    def test_other_keys_work_while_the_provider_is_away(
        self, workspace: Workspace, url: str, provider: Provider
    ) -> None:
        provider.answers["/jwks"] = answer({}, 500)
        assert ids_in(search(url, key_of(workspace, "group:money"))) == ["pay"]
        assert provider.asked == []

    def test_a_slow_provider_holds_up_only_tokens(
        self, workspace: Workspace, url: str, provider: Provider, quick: None
    ) -> None:
        key, release = key_of(workspace, "group:money"), threading.Event()

        def wait(_: BaseHTTPRequestHandler) -> None:
            release.wait(20)

        provider.answers["/jwks"] = wait
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(search, url, token_of()) for _ in range(4)]
            until = time.monotonic() + 60
            while not provider.asked:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert ids_in(search(url, key)) == ["pay"]
            assert {future.result().status_code for future in waiting} == {503}
        release.set()

    def test_trust_that_ends_is_noticed(self, workspace: Workspace, url: str) -> None:
        key_of(workspace)
        assert ids_in(search(url, token_of())) == ["rail"]
        TokenTrust(workspace.backend).trust(None)
        time.sleep(0.6)
        assert search(url, token_of()).status_code == 401


class TestFetching:
    def problem_of(self, provider: Provider, url: str | None = None) -> str:
        with pytest.raises((InputError, StoreUnavailableError)) as caught:
            fetch_keys(url or provider.url)
        return str(caught.value)

    def test_a_redirect_is_not_followed(self, provider: Provider) -> None:
        provider.answers["/jwks"] = answer({}, 302, Location=f"{provider.address}/other")
        provider.answers["/other"] = answer({"keys": KEYS})
        assert "redirects are not followed" in self.problem_of(provider)
        assert provider.asked == ["/jwks"]

    def test_a_huge_answer(self, provider: Provider) -> None:
        provider.answers["/jwks"] = answer(b"[" * 10_000_000)
        assert "larger than 1 MB" in self.problem_of(provider)

    def test_the_largest_answer_is_read(self, provider: Provider) -> None:
        body = json.dumps({"keys": KEYS}).encode()
        provider.answers["/jwks"] = answer(body + b" " * (2**20 - len(body)))
        assert fetch_keys(provider.url)
        provider.answers["/jwks"] = answer(body + b" " * (2**20 + 1 - len(body)))
        assert "larger than 1 MB" in self.problem_of(provider)

    def test_an_answer_without_an_end(self, provider: Provider, quick: None) -> None:
        def drip(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.end_headers()
            until = time.monotonic() + 60
            while time.monotonic() < until:
                handler.wfile.write(b" ")
                time.sleep(0.05)

        provider.answers["/jwks"] = drip
        start = time.monotonic()
        assert "no answer in time" in self.problem_of(provider)
        assert time.monotonic() - start < 30

    def test_a_compressed_answer(self, provider: Provider) -> None:
        provider.answers["/jwks"] = answer(b"x", 200, Content_Encoding="gzip")
        assert "it is compressed" in self.problem_of(provider)

    def test_nobody_listens(self, provider: Provider) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            assert "ConnectError" in self.problem_of(provider, f"http://127.0.0.1:{unused.getsockname()[1]}/jwks")

    def test_it_comes_back(self, provider: Provider) -> None:
        def first(handler: BaseHTTPRequestHandler) -> None:
            provider.answers["/jwks"] = answer({"keys": KEYS})
            answer({}, 503)(handler)

        provider.answers["/jwks"] = first
        assert len(fetch_keys(provider.url)) == len(KEYS)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (b"", "is not JSON"),
            (b"[" * 100_000, "is not JSON"),
            (b'{"keys": ' + b"9" * 10_000 + b"}", "is not JSON"),
            (b"\xff\xfe", "is not JSON"),
            ([], "is not a JSON object"),
            ({}, "has no JSON Web Key Set with 1 to 100 keys"),
            ({"keys": []}, "has no JSON Web Key Set with 1 to 100 keys"),
            ({"keys": {"kty": "RSA"}}, "has no JSON Web Key Set"),
            ({"keys": KEYS * 40}, "has no JSON Web Key Set with 1 to 100 keys"),
            ({"keys": [None, 1, "x", [], {}]}, "has no public key of RSA"),
            ({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}]}, "has no public key of RSA"),
            ({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}, "has no public key of RSA"),
            ({"keys": [{"kty": "RSA", "n": 5, "e": []}]}, "has no public key of RSA"),
            ({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}, "has no public key of RSA"),
            ({"keys": [{**KEYS[0], "d": "AQAB"}]}, "has no public key of RSA"),
            ({"keys": [{**KEYS[0], "use": "enc"}]}, "has no public key of RSA"),
            ({"keys": [public(rsa.generate_private_key(65537, 1024), "RS256", "weak")]}, "has no public key of RSA"),
        ],
    )
    def test_hostile_sets(self, provider: Provider, value: Any, message: str) -> None:
        provider.answers["/jwks"] = answer(value)
        assert message in self.problem_of(provider)

    def test_keys_that_cannot_be_used_do_not_cost_the_others(
        self, provider: Provider, caplog: pytest.LogCaptureFixture
    ) -> None:
        secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
        provider.answers["/jwks"] = answer({"keys": [secret, {**KEYS[1], "use": "enc"}, *KEYS]})
        assert fetch_keys(provider.url) == KEYS
        assert "secrets are refused" in caplog.text

    @pytest.mark.parametrize("url", ["http://login.example.org/jwks", "ftp://x/jwks", "file:///etc/passwd", "jwks"])
    def test_only_https_or_this_machine(self, url: str) -> None:
        with pytest.raises(InputError, match="https"):
            Issuer(ISSUER, AUDIENCE, (), keys_url=url)

    def test_keys_or_an_address_and_not_both(self, provider: Provider) -> None:
        with pytest.raises(InputError, match="and not both"):
            Issuer(ISSUER, AUDIENCE, KEYS, keys_url=provider.url)
        with pytest.raises(CorruptStoreError, match="the record of the trusted issuer is damaged"):
            Issuer.from_json(json.dumps({"issuer": ISSUER, "audience": AUDIENCE, "keys": [], "keys_url": "http://x/"}))


class TestDiscovery:
    PATH = "/.well-known/openid-configuration"

    def test_the_command_finds_the_keys(self, tmp_path: Path, provider: Provider) -> None:
        provider.answers[self.PATH] = answer({"issuer": provider.address, "jwks_uri": provider.url})
        with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("notes").add([Document("rail", "signal")])
        command = ["tokens", "trust", provider.address, "--audience", AUDIENCE, "--workspace", str(tmp_path / "work")]
        result = CliRunner().invoke(cli, [*command, "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == {
            "issuer": provider.address, "audience": AUDIENCE, "keys": 3, "keys_url": provider.url, "groups": "groups"
        }  # fmt: skip
        with Workspace(tmp_path / "work") as workspace:
            issuer = TokenTrust(workspace.backend).issuer()
        assert issuer == Issuer(provider.address, AUDIENCE, [], keys_url=provider.url)

    def test_keys_at_an_address(self, tmp_path: Path, provider: Provider) -> None:
        with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("notes").add([Document("rail", "signal")])
        command = ["tokens", "trust", ISSUER, "--audience", AUDIENCE, "--workspace", str(tmp_path / "work")]
        result = CliRunner().invoke(cli, [*command, "--keys", provider.url])
        assert f"with 3 public keys, fetched from {provider.url}" in result.stdout
        refused = CliRunner().invoke(cli, [*command, "--keys", "http://login.example.org/jwks"])
        assert "https:// address, or http:// of this machine" in str(refused.exception)

    @pytest.mark.parametrize(
        ("configuration", "message"),
        [
            ({"issuer": "https://other.example.org", "jwks_uri": "https://x/"}, "is the configuration of"),
            ({"issuer": ..., "jwks_uri": "http://login.example.org/jwks"}, "jwks_uri is an https:// address"),
            ({"issuer": ..., "jwks_uri": 5}, "names no jwks_uri"),
            ({"issuer": ...}, "names no jwks_uri"),
        ],
    )
    def test_configurations_that_are_refused(
        self, provider: Provider, configuration: dict[str, Any], message: str
    ) -> None:
        if configuration["issuer"] is ...:
            configuration = {**configuration, "issuer": provider.address}
        provider.answers[self.PATH] = answer(configuration)
        with pytest.raises(InputError, match=message):
            discover(provider.address)

    def test_an_issuer_without_tls(self) -> None:
        with pytest.raises(InputError, match="https:// address, or http:// of this machine"):
            discover("http://login.example.org")


def test_the_key_of_the_file_counts_until_it_is_replaced(workspace: Workspace, url: str, provider: Provider) -> None:
    trust = TokenTrust(workspace.backend)
    trust.trust(Issuer(ISSUER, AUDIENCE, [public(RSA, "RS256", "rsa")]))
    time.sleep(0.6)
    assert ids_in(search(url, token_of())) == ["rail"]
    assert provider.asked == []
    trust.trust(Issuer(ISSUER, AUDIENCE, (), keys_url=provider.url))
    time.sleep(0.6)
    provider.answers["/jwks"] = answer({"keys": [public(OTHER, "RS256", "rsa")]})
    assert search(url, token_of()).status_code == 401
    assert len(provider.asked) == 1
