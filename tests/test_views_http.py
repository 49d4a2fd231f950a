"""Over HTTP and MCP, only a key or a signed token says who asks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from starlette.testclient import TestClient
from typer.testing import CliRunner

from pointsman import Document, Workspace
from pointsman.cli.core_commands import app as cli
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp.tool_calls import Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.service.client import Client as RemoteClient
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.access.signed_tokens import KIND, Issuer, TokenTrust, read_keys
from pointsman.tools.errors import CorruptStoreError, InputError
from serving import serving

ISSUER, AUDIENCE = "https://login.example.org", "pointsman"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()
PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def public(key: Any, algorithm: str, kid: str) -> dict[str, Any]:
    form = json.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key()))
    return {**form, "kid": kid, "alg": algorithm}


KEYS = [public(RSA, "RS256", "rsa"), public(CURVE, "ES256", "curve"), public(EDWARDS, "EdDSA", "edwards")]


def claims(**more: Any) -> dict[str, Any]:
    return {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "groups": ["rail"], "exp": int(time.time()) + 600, **more
    }  # fmt: skip


def token_of(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **more: Any) -> str:
    payload = {name: value for name, value in claims(**more).items() if value is not None}
    return jwt.encode(payload, key, algorithm, headers=None if kid is None else {"kid": kid})


def by_hand(header: Mapping[str, Any], payload: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A token that no library would make."""
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, payload))
    signature = base64.urlsafe_b64encode(sign(head + b"." + body)).rstrip(b"=")
    return b".".join([head, body, signature]).decode()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document("rail", "signal of the yard")], access=["group:rail"])
        dataset.add([Document("pay", "signal of the salary")], access=["group:money"])
        dataset.add(
            [Document("denied", "signal for rail without anna")],
            access={"allow": ["group:rail"], "deny": ["user:anna"]},
        )
        dataset.add([Document("all", "signal for everyone")], access=["everyone"])
        workspace.switch_access(on=True)
        TokenTrust(workspace.backend).trust(Issuer(ISSUER, AUDIENCE, KEYS))
        yield workspace


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    limits = Limits(requests_per_minute=0)
    client = TestClient(create_app(workspace, limits=limits), base_url="http://localhost")
    yield client
    client.close()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def hits(client: TestClient, token: str, **body: Any) -> set[str]:
    answer = client.post("/api/search", json={"query": "signal", "refuse": False, **body}, headers=bearer(token))
    assert answer.status_code == 200, answer.json()
    return {hit["id"] for hit in answer.json()["hits"]}


def key_of(workspace: Workspace, *principals: str) -> str:
    return keys_of(workspace.backend).create("k", scopes=["read"], principals=principals).text


def test_a_client_says_who_may_see_what_it_writes(workspace: Workspace, client: TestClient, tmp_path: Path) -> None:
    writer = keys_of(workspace.backend).create("w").text
    with serving(create_app(workspace)) as url, RemoteClient(url, writer) as remote:
        notes = remote.dataset("notes")
        notes.add([Document("new", "signal of the new line")], access=["group:money"])
        notes.set_access({"rail": None, "denied": ["everyone"]})
        with pytest.raises(InputError, match="by the ids of documents"):
            notes.set_access(["group:money"])  # type: ignore[arg-type]
        assert hits(client, key_of(workspace, "group:money")) == {"pay", "all", "new", "denied"}
        assert hits(client, key_of(workspace, "group:rail")) == {"all", "denied"}


def test_a_client_indexes_a_folder_with_rules(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "hr").mkdir(parents=True)
    (folder / "hr" / "pay.md").write_text("signal of the salary")
    (folder / "rail.md").write_text("signal of the yard")
    with (
        Workspace(tmp_path / "indexed", embedder=HashingEmbedder()) as workspace,
        serving(create_app(workspace)) as url,
        RemoteClient(url) as remote,
    ):
        assert remote.index(folder, "files", access=["hr=group:hr", "everyone"]).passages.added == 2
        workspace.switch_access(on=True)
        answer = workspace.search("signal", principals=[], refuse=False)
        assert [hit.document.metadata["source"] for hit in answer] == ["rail.md"]
        assert len(workspace.search("signal", principals=["group:hr"], refuse=False).hits) == 2


class TestKeys:
    def test_a_key_asks_as_its_principals(self, workspace: Workspace, client: TestClient) -> None:
        assert hits(client, key_of(workspace, "group:money")) == {"pay", "all"}
        assert hits(client, key_of(workspace)) == {"all"}

    def test_the_body_narrows_and_never_widens(self, workspace: Workspace, client: TestClient) -> None:
        key = key_of(workspace, "group:rail", "group:money", "user:anna")
        assert hits(client, key) == {"rail", "pay", "all"}
        assert hits(client, key, principals=["group:rail"]) == {"rail", "all"}, "anna stays denied"
        body = {"query": "signal", "principals": ["group:law"]}
        answer = client.post("/api/search", json=body, headers=bearer(key))
        assert answer.status_code == 403
        assert "does not ask as 'group:law'" in answer.json()["detail"]

    @pytest.mark.parametrize("principals", [None, ["group:money"]])
    def test_a_key_that_does_not_say_who_asks_reads_nothing(
        self, workspace: Workspace, client: TestClient, principals: list[str] | None
    ) -> None:
        key = keys_of(workspace.backend).create("operator").text
        body = {"query": "signal", "principals": principals}
        reads = [
            client.post("/api/search", json=body, headers=bearer(key)),
            client.post("/api/search/batch", json={**body, "queries": ["signal"]}, headers=bearer(key)),
            client.post("/api/explain", json={**body, "document_id": "pay"}, headers=bearer(key)),
            *(
                client.get(path, headers=bearer(key))
                for path in (
                    "/api/datasets",
                    "/api/datasets/notes",
                    "/api/datasets/notes/count",
                    "/api/datasets/notes/ids",
                    "/api/datasets/notes/documents",
                    "/api/datasets/notes/document?id=pay",
                    "/api/datasets/notes/text?source=pay",
                )
            ),
        ]
        for answer in reads:
            assert answer.status_code in {403, 404, 422}, answer.url
            assert "salary" not in answer.text
        assert reads[0].status_code == 403

    def test_nobody_reads_without_a_key_not_even_on_this_machine(self, client: TestClient) -> None:
        assert client.post("/api/search", json={"query": "signal"}).status_code == 401
        assert client.post("/api/search", json={"query": "signal", "principals": ["group:rail"]}).status_code == 401

    def test_not_even_where_neither_keys_nor_tokens_are_known(self, workspace: Workspace, client: TestClient) -> None:
        TokenTrust(workspace.backend).trust(None)
        for body in ({"query": "signal"}, {"query": "signal", "principals": ["group:rail"]}):
            assert client.post("/api/search", json=body).status_code == 403

    def test_a_key_with_principals_never_writes(self, workspace: Workspace, client: TestClient) -> None:
        with pytest.raises(InputError, match="only reads"):
            keys_of(workspace.backend).create("k", principals=["group:rail"])
        headers = bearer(key_of(workspace, "group:rail"))
        new = {"documents": [{"id": "pay", "text": "overwritten"}]}
        assert client.post("/api/datasets/notes/documents", json=new, headers=headers).status_code == 403
        answer = client.request("DELETE", "/api/datasets/notes/documents", json={"ids": ["pay"]}, headers=headers)
        assert answer.status_code == 403
        assert client.get("/metrics", headers=headers).status_code == 403

    def test_a_key_without_principals_learns_nothing_by_writing(self, workspace: Workspace, client: TestClient) -> None:
        headers, path = bearer(keys_of(workspace.backend).create("operator").text), "/api/datasets/notes/documents"
        pay = workspace.dataset("notes").get("pay")
        assert pay is not None
        for id_, text in (("pay", pay.text), ("pay", "another guess"), ("absent", "a guess")):
            added = client.post(path, json={"documents": [{"id": id_, "text": text}]}, headers=headers)
            assert (added.status_code, added.json()) == (
                200,
                {"added": None, "updated": None, "unchanged": None, "truncations": None},
            )
        for id_ in ("pay", "unknown"):
            for change in ({"_access": {"allow": ["group:rail"]}}, {"year": 2026}):
                changed = client.patch(path, json={"metadata": {id_: change}}, headers=headers)
                assert (changed.status_code, set(changed.json().values())) == (200, {None})
            deleted = client.request("DELETE", path, json={"ids": [id_]}, headers=headers)
            assert (deleted.status_code, deleted.json()) == (200, {"deleted": None})
        status = client.post("/api/datasets", json={"name": "notes"}, headers=headers).json()
        assert {status[name] for name in ("documents", "bytes", "sequence", "vectors_due", "memory")} == {None}

    def test_a_status_names_the_date_of_what_is_visible(self, workspace: Workspace, client: TestClient) -> None:
        workspace.dataset("notes").add(
            [Document("dated", "signal with a date", {"paid": "2026-05-14"})], access=["group:money"]
        )
        for group, date_column, code in (
            ("rail", "none: no field holds dates", "date_none"),
            ("money", "paid: guessed", "date_guessed"),
        ):
            headers = bearer(key_of(workspace, f"group:{group}"))
            status = client.get("/api/datasets/notes", headers=headers).json()
            assert status["date_column"] == date_column
            assert [reason["code"] for reason in status["date_column_reasons"]] == [code]

    def test_what_is_refused_has_changed_nothing(self, workspace: Workspace, client: TestClient) -> None:
        plain = bearer(keys_of(workspace.backend).create("operator").text)
        requests: list[tuple[str, str, dict[str, Any]]] = [
            ("DELETE", "/api/datasets/notes/documents", {"filters": "year > 0"}),
            ("POST", "/api/datasets", {"name": "notes", "description": "another"}),
            ("DELETE", "/api/datasets/notes", {}),
        ]

        def state() -> Any:
            notes = workspace.dataset("notes", create=False)
            return workspace.names(), list(notes), notes.description

        first_state = state()
        for headers in (bearer(key_of(workspace, "group:rail")), bearer(token_of()), plain):
            for method, path, body in requests if headers is not plain else requests[:1]:
                answer = client.request(method, path, json=body or None, headers=headers)
                assert answer.status_code == 403, (method, path, answer.text)
                assert state() == first_state, (method, path)

    def test_a_key_without_principals_writes(self, workspace: Workspace, client: TestClient) -> None:
        headers = bearer(keys_of(workspace.backend).create("operator").text)
        new = {"documents": [{"id": "new", "text": "new", "metadata": {"_access": {"allow": ["group:rail"]}}}]}
        assert client.post("/api/datasets/notes/documents", json=new, headers=headers).status_code == 200
        assert "new" in hits(client, key_of(workspace, "group:rail"), k=10)

    def test_principals_are_kept_in_the_file(self, workspace: Workspace) -> None:
        keys_of(workspace.backend).create("plain")
        key = keys_of(workspace.backend).check(key_of(workspace, "group:rail"))
        assert key is not None
        assert key.principals == ("group:rail",)

    def test_they_are_useless_where_access_is_off(self, workspace: Workspace, client: TestClient) -> None:
        workspace.switch_access(on=False)
        for headers in (bearer(key_of(workspace, "group:rail")), bearer(token_of())):
            answer = client.post("/api/search", json={"query": "signal"}, headers=headers)
            assert answer.status_code == 403
            assert "access is off" in answer.json()["detail"]


class TestTokens:
    @pytest.mark.parametrize(("key", "algorithm", "kid"), [
        (RSA, "RS256", "rsa"), (CURVE, "ES256", "curve"), (EDWARDS, "EdDSA", "edwards"), (RSA, "RS256", None),
    ])  # fmt: skip
    def test_a_token_asks_as_its_user_and_groups(
        self, client: TestClient, key: Any, algorithm: str, kid: str | None
    ) -> None:
        assert hits(client, token_of(key, algorithm, kid)) == {"rail", "all"}
        assert hits(client, token_of(key, algorithm, kid, sub="boris")) == {"rail", "all", "denied"}
        assert hits(client, token_of(key, algorithm, kid, groups=None)) == {"all"}

    def test_none_gets_in_that_the_issuer_did_not_sign_for_us_and_now(self, client: TestClient) -> None:
        def secret_signature(secret: bytes) -> Callable[[bytes], bytes]:
            return lambda text: hmac.digest(secret, text, hashlib.sha256)

        head, _, signature = token_of().split(".")
        wrong = {
            "expired": token_of(exp=int(time.time()) - 60),
            "never expires": token_of(exp=None),
            "not valid yet": token_of(nbf=int(time.time()) + 600),
            "for another": token_of(aud="another"),
            "for nobody": token_of(aud=None),
            "of another issuer": token_of(iss="https://evil.example.org"),
            "of no issuer": token_of(iss=None),
            "of nobody": token_of(sub=None),
            "a group that is no text": token_of(groups=["rail", {"name": "money"}]),
            "a group that is no principal": token_of(groups=["x" * 300]),
            "forged": token_of(OTHER),
            "forged, unknown key": token_of(OTHER, kid="unknown"),
            "forged, no key": token_of(OTHER, kid=None),
            "another key of the issuer": token_of(CURVE, "ES256", "rsa"),
            "an algorithm that the key does not name": token_of(RSA, "RS512"),
            "another algorithm of the kind": token_of(RSA, "PS256"),
            "changed signature": token_of()[:-8] + "AAAAAAAA",
            "changed claims": f"{head}.{token_of(groups=['money']).split('.')[1]}.{signature}",
            "none": by_hand({"alg": "none"}, claims(), lambda _: b""),
            "None with a key": by_hand({"alg": "None", "kid": "rsa"}, claims(), lambda _: b""),
            "the public key as a secret": by_hand({"alg": "HS256"}, claims(), secret_signature(PEM)),
            "the same with its id": by_hand({"alg": "HS256", "kid": "rsa"}, claims(), secret_signature(PEM)),
            "an empty secret": by_hand({"alg": "HS256"}, claims(), secret_signature(b"")),
            "a key of its own": by_hand(
                {"alg": "RS256", "jwk": public(OTHER, "RS256", "x")},
                claims(),
                lambda text: jwt.get_algorithm_by_name("RS256").sign(text, OTHER),
            ),
            "no JSON": "a.b.c",
            "empty parts": "..",
            "empty objects": "e30.e30.e30",
            "four parts": token_of() + ".x",
            "too long": "x" * 15_000,
        }
        for name, token in wrong.items():
            answer = client.post("/api/search", json={"query": "signal"}, headers=bearer(token))
            assert answer.status_code == 401, (name, answer.json())
        assert hits(client, token_of()) == {"rail", "all"}, "a good one still does"

    def test_a_token_goes_nowhere_else_than_into_the_header(self, client: TestClient) -> None:
        answer = client.post("/api/search", json={"query": "signal"}, headers={"X-API-Key": token_of()})
        assert answer.status_code == 401

    def test_the_body_never_widens_a_token(self, client: TestClient) -> None:
        body = {"query": "signal", "principals": ["group:money"]}
        assert client.post("/api/search", json=body, headers=bearer(token_of())).status_code == 403

    def test_a_token_never_writes(self, client: TestClient) -> None:
        new = {"documents": [{"id": "pay", "text": "overwritten"}]}
        assert client.post("/api/datasets/notes/documents", json=new, headers=bearer(token_of())).status_code == 403

    def test_an_issuer_that_is_forgotten_is_not_trusted(self, workspace: Workspace, client: TestClient) -> None:
        keys_of(workspace.backend).create("k")
        assert hits(client, token_of()) == {"rail", "all"}
        TokenTrust(workspace.backend).trust(None)
        time.sleep(0.6)  # the time for which a service trusts what it has read
        answer = client.post("/api/search", json={"query": "signal"}, headers=bearer(token_of()))
        assert answer.status_code == 401

    def test_a_damaged_record_admits_nobody(self, workspace: Workspace) -> None:
        workspace.backend.put_record(KIND, "", '{"issuer": 5}')
        with pytest.raises(CorruptStoreError, match="store it again"):
            TokenTrust(workspace.backend).check(token_of().encode())

    @pytest.mark.parametrize(("key", "kind"), [(RSA, "RSA"), (CURVE, "EC"), (EDWARDS, "OKP")])
    def test_keys_in_pem_are_read(self, key: Any, kind: str) -> None:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        pem = key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()
        assert [public_key["kty"] for public_key in read_keys(pem)] == [kind]

    @pytest.mark.parametrize("text", [
        "", "{}", "[]", '{"keys": [5]}', "-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----",
        json.dumps({"kty": "oct", "k": "c2VjcmV0"}),
        jwt.get_algorithm_by_name("RS256").to_jwk(RSA),
        RSA.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                          serialization.NoEncryption()).decode(),
    ], ids=["empty", "object", "list", "number", "damaged PEM", "secret", "private JWK", "private PEM"])  # fmt: skip
    def test_only_public_keys_are_trusted(self, text: str) -> None:
        with pytest.raises(InputError):
            Issuer(ISSUER, AUDIENCE, read_keys(text))

    def test_the_command_trusts_keys_in_pem(self, workspace: Workspace, client: TestClient, tmp_path: Path) -> None:
        (tmp_path / "key.pem").write_bytes(PEM)
        arguments = ["--audience", "another", "--keys", str(tmp_path / "key.pem"), "--workspace", str(workspace.path)]
        result = CliRunner().invoke(cli, ["tokens", "trust", ISSUER, *arguments])
        assert result.exit_code == 0, result.output
        assert hits(client, token_of(aud="another", kid=None)) == {"rail", "all"}


class TestMcp:
    @staticmethod
    def ask(workspace: Workspace, principals: frozenset[str] | None, tool: str, **arguments: Any) -> Any:
        access = replace(Access.open(), principals=principals)
        calls = Calls(Library(workspace, None, ("auto",), 5.0), Gate(Limits()), lambda _: access)

        async def call() -> Any:
            return await calls.call(tool, arguments, {})

        return anyio.run(call)

    @pytest.mark.parametrize(("tool", "arguments"), [
        ("search", {"query": "salary"}), ("fetch", {"id": "notes/pay"}), ("read", {"id": "notes/pay"}),
        ("outline", {"dataset": "notes"}), ("grep", {"pattern": "salary"}), ("list_datasets", {}),
        ("route", {"query": "salary"}), ("explain", {"query": "salary", "id": "notes/pay"}),
        ("verify", {"answer": "the signal of the salary", "ids": ["notes/pay"]}),
    ])  # fmt: skip
    def test_no_tool_shows_what_is_hidden_or_answers_whom_it_does_not_know(
        self, workspace: Workspace, tool: str, arguments: dict[str, Any]
    ) -> None:
        unknown = self.ask(workspace, None, tool, **arguments)
        assert unknown["isError"], unknown
        assert "access is on" in str(unknown)
        hidden = str(self.ask(workspace, frozenset({"group:rail"}), tool, **arguments))
        assert "of the salary" not in hidden.replace("the signal of the salary", "")
        shown = self.ask(workspace, frozenset({"group:money"}), tool, **arguments)
        assert not shown.get("isError"), shown

    def test_grep_of_one_asker_is_not_remembered_for_another(self, workspace: Workspace) -> None:
        access = [replace(Access.open(), principals=frozenset({name})) for name in ("group:money", "group:rail")]
        current = iter(access)
        calls = Calls(Library(workspace, None, ("auto",), 5.0), Gate(Limits()), lambda _: next(current))

        async def call() -> Any:
            return await calls.call("grep", {"pattern": "salary"}, {})

        assert "notes/pay" in str(anyio.run(call))
        assert "notes/pay" not in str(anyio.run(call))


class TestCommands:
    def test_access_is_switched_set_and_searched(self, tmp_path: Path) -> None:
        work = ["--workspace", str(tmp_path / "work"), "--embedder", "hashing"]
        (tmp_path / "files" / "hr").mkdir(parents=True)
        (tmp_path / "files" / "hr" / "pay.md").write_text("The salary of the driver.\n")
        (tmp_path / "files" / "yard.md").write_text("The signal of the yard.\n")

        def run(*arguments: str) -> Any:
            result = CliRunner().invoke(cli, [*arguments, "--json"])
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout)

        rules = ["--access", "hr=group:hr", "--access", "everyone"]
        run("index", str(tmp_path / "files"), "--dataset", "files", *rules, *work)
        place = work[:2]
        assert run("access", "on", *place) == {"access": True}
        search = ["search", "salary", *work, "--refuse", "never"]
        assert "access is on" in str(CliRunner().invoke(cli, search).exception)
        assert {hit["metadata"]["source"] for hit in run(*search, "--principals", "group:hr")["hits"]} == {
            "hr/pay.md", "yard.md",
        }  # fmt: skip
        assert [hit["metadata"]["source"] for hit in run(*search, "--principals", "user:x")["hits"]] == ["yard.md"]
        assert run("access", "set", "group:law", "--source", "yard.md", *place) == {"updated": 1}
        assert run(*search, "--principals", "user:x")["hits"] == []
        report = run("leaktest", "--pairs", "1", "--questions", "4", *place)
        assert (report["differing"], report["comparisons"]) == (0, 4)
        assert run("access", "off", *place) == {"access": False}
        key = run("keys", "create", "anna", "--principal", "user:anna", "--principal", "group:hr", *place)
        assert (key["scopes"], key["principals"]) == (["read"], ["group:hr", "user:anna"])
