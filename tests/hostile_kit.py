"""Requests of somebody who means no good, and what has to come back: for a test and for a benchmark.

Each goes over a raw socket to the real service, byte by byte as written here, so that no client library tidies it up.
"""

from __future__ import annotations

import io
import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, Literal

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import KeyStore

OWN_DATASET, OTHER_DATASET = "own", "theirs"
SECRET: Final = "zanzibar"
"""Stands in every document of the other tenant's dataset, and in its description."""

OPTIONS: Final = ("--limit", "body_seconds=2", "--limit", "max_ingest_bytes=2000000")
"""Of the service: short waits, so that a test can wait for them."""

Outcome = Literal["problem", "stream", "protocol"]
"""What has to come back: a problem document; a problem document, or a stream of lines that ends in one where some lines
were good; or whatever the HTTP server itself says to what is no HTTP: a 4xx, or the end of the connection."""


@dataclass(frozen=True)
class Attack:
    """A request, and the statuses that it may end in."""

    kind: str
    name: str
    data: bytes = field(repr=False)
    statuses: tuple[int, ...]
    outcome: Outcome = "problem"


@dataclass(frozen=True)
class Keys:
    """The keys to the service that is attacked."""

    own_key: str
    reader: str
    other_key: str
    revoked_key: str
    expired_key: str


def prepare(folder: Path) -> Keys:
    """A workspace of two tenants, and their keys."""
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        workspace.dataset(OWN_DATASET, description="Railways").add(
            [Document(f"own-{n}", f"A railway switch guides train {n}.", {"year": 2000 + n}) for n in range(20)]
        )
        workspace.dataset(OTHER_DATASET, description=SECRET).add(
            [Document(f"theirs-{n}", f"The {SECRET} railway switch {n}.", {"year": n}) for n in range(20)]
        )
    store = KeyStore(folder / "keys.json")
    yesterday = KeyStore(folder / "keys.json", clock=lambda: datetime.now(UTC) - timedelta(days=2))
    grant = store.create("revoked", datasets=[OWN_DATASET])
    store.revoke(grant.key.id)
    return Keys(
        store.create("own", datasets=[OWN_DATASET]).text,
        store.create("reader", datasets=[OWN_DATASET], scopes=["read"]).text,
        store.create("theirs", datasets=[OTHER_DATASET]).text,
        grant.text,
        yesterday.create("expired", datasets=[OWN_DATASET], expires=datetime.now(UTC) - timedelta(days=1)).text,
    )


Header = tuple[str, str | bytes]


def head(method: str, target: str | bytes, headers: Sequence[Header]) -> bytes:
    lines = [method.encode() + b" " + (target.encode() if isinstance(target, str) else target) + b" HTTP/1.1"]
    lines += [name.encode() + b": " + (value.encode() if isinstance(value, str) else value) for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Attacks:
    """All of them, for a service with these keys."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def request(
        self,
        method: str,
        target: str | bytes,
        body: Any = None,
        *,
        key: str | None = "own_key",
        host: str | None = "localhost",
        kind: str | None = "application/json",
        extra_headers: Sequence[Header] = (),
    ) -> bytes:
        """A request that is as it should be, but for what is given; a body of bytes goes as it is."""
        headers: list[Header] = [] if host is None else [("Host", host)]
        headers.append(("Connection", "close"))
        if key is not None:
            headers.append(("Authorization", f"Bearer {getattr(self._keys, key)}"))
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers.append(("Content-Length", str(len(data))))
            headers += [("Content-Type", kind)] if kind is not None else []
        return head(method, target, [*headers, *extra_headers]) + data

    def search(self, body: Any, **options: Any) -> bytes:
        """A search with this body."""
        return self.request("POST", "/api/search", body, **options)

    def make_all(self) -> list[Attack]:
        """All of them, each with a name of its own within its kind."""
        makers: list[Callable[[], Iterator[Attack]]] = [
            self.json, self.shapes, self.filters, self.sizes, self.paths, self.ids, self.bad_keys, self.tenants,
            self.types, self.methods, self.hosts, self.sites, self.heads, self.bodies, self.protocol,
        ]  # fmt: skip
        attacks = [attack for make in makers for attack in make()]
        names = Counter((attack.kind, attack.name) for attack in attacks)
        assert max(names.values()) == 1, names.most_common(1)
        return attacks

    def json(self) -> Iterator[Attack]:
        """What is no JSON, or means two things."""
        start = b'{"query": "railway", '
        bodies: dict[str, bytes] = {
            "empty": b"", "blank": b" \n ", "cut short": b'{"query": "rail',
            "two values": b'{"query": "a"}{"query": "b"}',
            "comment": b'{"query": "a" /* b */}', "single quotes": b"{'query': 'a'}",
            "trailing comma": b'{"query": "a",}',
            "no quotes": b"{query: 1}", "NaN": start + b'"timeout": NaN}', "Infinity": start + b'"timeout": Infinity}',
            "-Infinity": start + b'"timeout": -Infinity}', "a bare NaN": b"NaN", "hexadecimal": start + b'"k": 0x10}',
            "leading zero": start + b'"k": 010}', "plus": start + b'"k": +5}',
            "control character": b'{"query": "a\x01b"}',
            "NUL": b'{"query": "a\x00b"}', "NUL after": b'{"query": "a"}\x00', "BOM": b'\xef\xbb\xbf{"query": "a"}',
            "UTF-16": '{"query": "a"}'.encode("utf-16"), "UTF-32": '{"query": "a"}'.encode("utf-32"),
            "Latin-1": '{"query": "é"}'.encode("latin-1"), "Windows-1251": '{"query": "поезд"}'.encode("cp1251"),
            "GB18030": '{"query": "列车"}'.encode("gb18030"), "overlong slash": b'{"query": "\xc0\xaf"}',
            "encoded surrogate": b'{"query": "\xed\xa0\x80"}', "cut character": b'{"query": "\xe5\x88"}',
            "beyond Unicode": b'{"query": "\xf5\x80\x80\x80"}', "form": b"query=railway&k=5",
            "XML": b"<query>a</query>",
            "pickle": b"\x80\x04\x95\x0b\x00\x00\x00", "bad escape": b'{"query": "\\x41"}', "open depth": b"[" * 200,
        }  # fmt: skip
        for name, body in bodies.items():
            yield Attack("JSON", name, self.search(body), (400, 422))
        refused: dict[str, bytes] = {
            "name twice": b'{"query": "a", "query": "b"}', "name twice, escaped": b'{"query": "a", "\\u0071uery": "b"}',
            "deep name twice": start + b'"filters": {"a": {"eq": 1, "eq": 2}}}', "65 lists": b"[" * 65 + b"]" * 65,
            "65 objects": b'{"a":' * 65 + b"1" + b"}" * 65, "100,000 lists": b"[" * 100_000 + b"]" * 100_000,
            "100,000 open objects": b'{"a":' * 100_000,
            "deep filter": start + b'"filters": ' + b'{"not":' * 200 + b"1" + b"}" * 200 + b"}",
            "huge number": start + b'"timeout": 1e999}', "huge whole number": start + b'"k": ' + b"9" * 5000 + b"}",
            "lone surrogate": b'{"query": "\\ud800"}', "surrogates in the wrong order": b'{"query": "\\udc00\\ud800"}',
            "lone surrogate in a filter": start + b'"filters": {"a": "\\udfff"}}',
            "a list": b'[{"query": "a"}]', "a text": b'"railway"',
            "null": b"null", "true": b"true", "a number": b"5", "empty list": b"[]",
        }  # fmt: skip
        for name, body in refused.items():
            yield Attack("JSON", name, self.search(body), (400, 422))

    def shapes(self) -> Iterator[Attack]:
        """Values of the wrong kind, and out of all bounds."""
        wrong: dict[str, list[Any]] = {
            "query": [None, 5, True, [], {}, ["a"], "a" * 4001, "道" * 4001],
            "k": [None, "5", 5.5, True, [5], 0, -1, 201, 2**31, 2**63, 10**30],
            "strategy": [None, 5, "", "nothing", "../bm25", "__import__('os')", "a" * 65, "bm25\n"],
            "rerank": ["true", 1, []],
            "refuse": ["no", 0.5],
            "effort": ["most", "", 5, None],
            "timeout": ["1", 0, -1, 601, 1e308, True],
            "trace": ["all", True, None],
            "datasets": ["own", [5], [[]], {}, [""], ["a" * 65], ["own"] * 1001],
            "history": ["a", [5], [{}], [{"role": "user"}], [{"role": "user", "text": 5}], [{"role": "", "text": "a"}],
                        [{"role": "user", "text": "a", "more": 1}], [{"role": "user", "text": "a"}] * 101,
                        [{"role": "user", "text": "a" * 4001}]],
        }  # fmt: skip
        for name, values in wrong.items():
            for number, value in enumerate(values):
                label = f"{name} {number}: {value!r:.30}"
                yield Attack("shape", label, self.search({"query": "railway", name: value}), (422,))
        for name in ("more", "__proto__", "constructor", "__class__", "llm", "workspace", "K", "query ", "embedder"):
            yield Attack("shape", f"unknown name {name!r}", self.search({"query": "railway", name: {}}), (422,))
        path = "/api/search_many"
        for number, queries in enumerate(([], "railway", [5], [None], ["a"] * 101, ["a" * 4001])):
            yield Attack("shape", f"queries {number}", self.request("POST", path, {"queries": queries}), (422,))
        for name, value in {
            "name": [5, "", "a" * 65, None],
            "indexing_technique": ["x", 5],
            "description": [5, []],
        }.items():
            for number, item in enumerate(value):
                request = self.request("POST", "/api/datasets", {"name": OWN_DATASET, name: item})
                yield Attack("shape", f"dataset's {name} {number}", request, (422,))
        for number, item in enumerate(
            (5, [5], [{}], [{"id": "a"}], [{"text": "a"}], [{"id": 5, "text": "a"}], [{"id": "", "text": "a"}],
             [{"id": "a", "text": None}], [{"id": "a", "text": "a", "metadata": []}],
             [{"id": "a", "text": "a", "vector": [1]}], [{"id": "a" * 1025, "text": "a"}])
        ):  # fmt: skip
            request = self.request("POST", f"/api/datasets/{OWN_DATASET}/documents", {"documents": item})
            yield Attack("shape", f"documents {number}", request, (422,))
        for number, query in enumerate(("", "?query=" + "a" * 4001, "?q=a", "?query=%ff", "?query=%ed%a0%80")):
            request = self.request("GET", f"/api/retrieval/recommend_strategy{query}")
            yield Attack("shape", f"recommend {number}", request, (400, 422))
        for query in (
            "limit=0",
            "limit=-1",
            "limit=1001",
            "limit=a",
            "limit=1e3",
            "after=-1",
            "after=a",
            f"after={2**64}",
        ):
            request = self.request("GET", f"/api/datasets/{OWN_DATASET}/documents?{query}")
            yield Attack("shape", query, request, (422,))

    def filters(self) -> Iterator[Attack]:
        """Filters that would be something else."""
        texts = (
            "year = 1; drop table documents", "year = 1 --", "1 = 1", "' or '1'='1",
            "year = 1 union select * from keys",
            "year in (select 1)", "year = (", "((((year = 1", ")", "year", "= 1", "year = ", "year == 1 ==",
            "year = 1 or",
            "not", "and and", "year like '%'", "year ~ '.*'", "__import__('os').system('id')", "${7*7}", "{{7*7}}",
            "year = 1 /* */", "year\x00= 1", "*:*", "year:[1 TO 2]", "_exists_:year",
            "(" * 5000 + "year = 1" + ")" * 5000,
            "not " * 3000 + "year = 1", "year = 1" + " or year = 1" * 1000, "a" * 10_001,
        )  # fmt: skip
        for number, text in enumerate(texts):
            yield Attack(
                "filter", f"{number}: {text[:30]!r}", self.search({"query": "railway", "filters": text}), (422,)
            )
        mappings: tuple[Any, ...] = (
            {"year": {"$where": "1"}}, {"year": {"regex": ".*"}},
            {"year": {"gte": {}}}, {"year": {"in": 5}}, {"year": {"in": [[1]]}}, {"year": {"eq": {"eq": 1}}},
            {"and": {"year": 1}}, {"year": {"exists": "yes"}}, {"year": {"gt": True}},
            {"year": {}}, [{"year": 1}], 5, True,
        )  # fmt: skip
        for number, mapping in enumerate(mappings):
            request = self.search({"query": "railway", "filters": mapping})
            yield Attack("filter", f"mapping {number}: {mapping}", request, (422,))

    def sizes(self) -> Iterator[Attack]:
        """Too much of something."""
        documents = f"/api/datasets/{OWN_DATASET}/documents"
        large = json.dumps({"query": "a" * 1_000_001}).encode()
        yield Attack("size", "body", self.search(large), (413,))
        yield Attack("size", "body of 8 MB", self.search(b" " * 8_000_000), (413,))
        chunk = b"%x\r\n" % len(large) + large + b"\r\n0\r\n\r\n"
        chunked_headers = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")]
        yield Attack(
            "size", "chunked body", self.request("POST", "/api/search", extra_headers=chunked_headers) + chunk, (413,)
        )
        small = b"10\r\n" + b" " * 16 + b"\r\n"
        request = self.request("POST", "/api/search", extra_headers=chunked_headers) + small * 65_000 + b"0\r\n\r\n"
        yield Attack("size", "body in chunks of 16 bytes", request, (400, 413))  # or it takes too long
        for length in ("1000001", "99999999999", "999999999999999999"):
            request = self.request(
                "POST", "/api/search", extra_headers=[("Content-Length", length), chunked_headers[1]]
            )
            yield Attack("size", f"announces {length}", request, (413,))
        yield Attack("size", "policy", self.request("PUT", "/api/policy", large), (413,))
        too_many = [{"id": str(n), "text": "a"} for n in range(1001)]
        yield Attack("size", "1001 documents", self.request("POST", documents, {"documents": too_many}), (413, 422))
        ids = self.request("DELETE", documents, {"ids": ["a"] * 100_001})
        yield Attack("size", "100,001 ids", ids, (413, 422))
        kind = "application/x-ndjson"
        line = json.dumps({"id": "a", "text": "a" * 1_000_001}).encode() + b"\n"
        yield Attack("size", "line", self.request("POST", documents, line, kind=kind), (413,), "stream")
        yield Attack(
            "size", "line without end", self.request("POST", documents, b"a" * 1_500_000, kind=kind), (413,), "stream"
        )
        request_with_length = self.request("POST", documents, b" " * 2_000_001, kind=kind)
        yield Attack("size", "stream", request_with_length, (413,))
        lines = b"".join(b"%x\r\n" % 100_001 + b" " * 100_000 + b"\n\r\n" for _ in range(25)) + b"0\r\n\r\n"
        chunked_request = (
            self.request("POST", documents, extra_headers=[chunked_headers[0], ("Content-Type", kind)]) + lines
        )
        yield Attack("size", "chunked stream", chunked_request, (413,), "stream")
        for size in (40_001, 60_000):
            yield Attack("size", f"address of {size}", self.request("GET", "/api/me?" + "a" * size), (413,))
        yield Attack("size", "path", self.request("GET", "/" + "a" * 40_001), (413,))
        yield Attack("size", "address beyond all", self.request("GET", "/" + "a" * 200_000), (400, 431), "protocol")
        for size in (16_384, 50_000):
            yield Attack(
                "size", f"header of {size}", self.request("GET", "/api/me", extra_headers=[("X", "a" * size)]), (413,)
            )
        request = self.request("GET", "/api/me", extra_headers=[(f"X-{n}", "a" * 100) for n in range(200)])
        yield Attack("size", "200 headers", request, (413,))
        request = self.request("GET", "/api/me", extra_headers=[("X", "a" * 200_000)])
        yield Attack("size", "header beyond all", request, (400, 431), "protocol")

    def paths(self) -> Iterator[Attack]:
        """Names that would be places on disk."""
        names = (
            "..", ".", "%2e%2e", "%2e", "..%2f", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fkeys.json",
            "..%5c..%5cetc",
            "%5c%5cserver%5cshare", "%2fetc%2fpasswd", "C%3a%5c", "own%00", "own%00.json", "%00",
            "own%0d%0aX-Injected:1",
            "own%0a", "%1b%5b31m", "own%20", "%20own", "own%2fmanifest.json", "own/../theirs", "own%2f..%2ftheirs",
            ".own",
            "own.", "..own", "a" * 65, "b" * 5000, "*", "own*", "%2a", "own%3f", "own;a=b", "own%23", "~root", "$HOME",
            "$(id)", "%60id%60", "{name}", "%7b%7b7*7%7d%7d", "%c0%ae%c0%ae", "%c0%af", "%ff", "%ed%a0%80", "%", "%zz",
            "%u002e",
            "%252e%252e", "%e2%80%ae", "%ef%bc%8e%ef%bc%8e", "%ef%bc%8f", "-rf", "OWN", "nothing",
        )  # fmt: skip
        for name in names:
            request = self.request("GET", f"/api/datasets/{name}")
            yield Attack("path", f"GET {name[:40]}", request, (400, 404, 405, 422))
        for name in names[:24]:
            request = self.request("DELETE", f"/api/datasets/{name}")
            yield Attack("path", f"DELETE {name[:40]}", request, (400, 404, 405, 422))
            request = self.request("POST", f"/api/datasets/{name}/documents", {"documents": [{"id": "a", "text": "a"}]})
            yield Attack("path", f"POST {name[:40]}", request, (400, 404, 405, 415, 422))
        given = (
            "..",
            "../x",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "a\0b",
            "a\nb",
            ".a",
            "a.",
            " a",
            "a ",
            "",
            "*",
            "\u202ea",
            "．．",
        )
        for name in given:
            request = self.request("POST", "/api/datasets", {"name": name})
            yield Attack("path", f"make {name!r}", request, (403, 422))
            yield Attack("path", f"search {name!r}", self.search({"query": "a", "datasets": [name]}), (404, 422))
        other_paths = (
            "/etc/passwd", "//etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
            "/console/../../etc/passwd",
            "/console/%2e%2e/%2e%2e/app.py", "/console/..%2f..%2fserver%2fkeys.py", "/console/%00",
            "/console//etc/passwd",
            "/console/....//....//app.py", "/console/..%5c..%5capp.py", "/.git/config", "/.env", "/api", "/api/",
            "/api/keys",
            "/api/datasets/", "/docs/", "/redoc", "/openapi.json", "/metrics/", "/api/../metrics", "/keys.json",
            "/admin",
            "//evil.example/%2e%2e", "/api/datasets//documents", "/api//me", "/API/ME", "/api/me/", "/api/me%2f",
            "/api/me;x",
        )  # fmt: skip
        for path in other_paths:
            yield Attack("path", path, self.request("GET", path), (400, 404, 405, 422))

    def ids(self) -> Iterator[Attack]:
        """Ids that would be something else."""
        for id_ in (
            "", "..%2f..%2fetc%2fpasswd", "theirs-1", "%00", "own-1%00", "%0d%0aSet-Cookie:a=b", "' or 1=1 --", "*",
            "%25",
            "own-_", "a" * 2000, "%ff", "%ed%a0%80", "-1", "null", "own-1&dataset=theirs&id=theirs-1", "%F0%9F%92%A9",
        ):  # fmt: skip
            request = self.request("GET", f"/api/datasets/{OWN_DATASET}/document?id={id_.replace(' ', '+')}")
            yield Attack("id", f"GET {id_[:40]}", request, (400, 404, 422))
        for id_ in ("theirs-1", "../own-1", "nobody\r\nX-Injected: 1", "a" * 5000):
            for dataset in (OTHER_DATASET, "nothing"):
                request = self.request(
                    "POST", "/api/explain", {"query": "railway", "document_id": id_, "dataset": dataset}
                )
                yield Attack("id", f"explain {id_[:30]!r} in {dataset}", request, (404, 422))
        for number, ids in enumerate((5, "own-1", [5], [None], [""], [["own-1"]], {"own-1": 1})):
            request = self.request("DELETE", f"/api/datasets/{OWN_DATASET}/documents", {"ids": ids})
            yield Attack("id", f"delete {number}", request, (422,))

    def bad_keys(self) -> Iterator[Attack]:
        """Keys that are none."""
        keys = self._keys
        good = keys.own_key
        attempts: dict[str, list[Header]] = {
            "none": [], "empty": [("Authorization", "")], "scheme alone": [("Authorization", "Bearer")],
            "no scheme": [("Authorization", good)], "Basic": [("Authorization", f"Basic {good}")],
            "Basic of it": [("Authorization", "Basic b3duOm93bg==")],
            "Digest": [("Authorization", 'Digest username="own"')],
            "cut": [("Authorization", f"Bearer {good[:-1]}")], "longer": [("Authorization", f"Bearer {good}A")],
            "other case": [("Authorization", f"Bearer {good.swapcase()}")], "id alone": [("X-API-Key", good[:12])],
            "zeros": [("X-API-Key", f"{good[:13]}{'A' * 43}")], "unknown": [("X-API-Key", "ptm_00000000_" + "A" * 43)],
            "another's secret": [("X-API-Key", good[:13] + keys.other_key[13:])],
            "revoked": [("X-API-Key", keys.revoked_key)],
            "expired": [("X-API-Key", keys.expired_key)], "twice": [("X-API-Key", good)] * 2,
            "two": [("X-API-Key", good), ("X-API-Key", keys.other_key)],
            "two headers": [("X-API-Key", good), ("Authorization", f"Bearer {keys.other_key}")],
            "list": [("Authorization", f"Bearer {good}, Bearer {good}")],
            "in quotes": [("Authorization", f'Bearer "{good}"')],
            "cookie": [("Cookie", f"key={good}; X-API-Key={good}")],
            "undefined": [("Authorization", "Bearer undefined")],
            "SQL": [("X-API-Key", "' or '1'='1")], "bytes": [("X-API-Key", b"\xff\xfe" * 20)],
            "star": [("X-API-Key", "*")],
            "JWT without signature": [("Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.")],
            "long": [("Authorization", "Bearer " + "A" * 10_000)], "via proxy": [("X-Forwarded-For", "127.0.0.1")],
            "claims to be local": [("X-Real-IP", "127.0.0.1"), ("Forwarded", "for=127.0.0.1;host=localhost")],
            "claims to be somebody": [("X-Remote-User", "admin"), ("Remote-User", "admin")],
        }  # fmt: skip
        for name, headers in attempts.items():
            request = self.request("GET", "/api/datasets", key=None, extra_headers=headers)
            yield Attack("key", name, request, (401,))
        for target in (f"/api/me?api_key={good}", f"/api/me?access_token={good}", f"/api/me?X-API-Key={good}"):
            yield Attack("key", f"in the address: {target[:18]}", self.request("GET", target, key=None), (401,))
        for method, target in (
            ("GET", "/metrics"), ("GET", "/api/openapi.json"), ("GET", "/api/policy"),
            ("DELETE", f"/api/datasets/{OWN_DATASET}"),
            ("GET", "/nowhere"), ("OPTIONS", "/api/datasets"), ("TRACE", "/"), ("POST", "/health"), ("DELETE", "/"),
            ("POST", f"/api/datasets/{OWN_DATASET}/verify"), ("GET", "/console/../api/me"),
            ("GET", "/health/../api/me"),
            ("GET", "/health;/../api/me"), ("GET", "/%61pi/me"), ("GET", "//api/me"), ("GET", "/api/me?/health"),
        ):  # fmt: skip
            request = self.request(method, target, key=None)
            yield Attack("key", f"no key: {method} {target}", request, (401, 404))

    def tenants(self) -> Iterator[Attack]:
        """With a good key, for what is not its own."""
        theirs = f"/api/datasets/{OTHER_DATASET}"
        document = {"documents": [{"id": "own-1", "text": "a"}]}
        requests: list[tuple[str, str, Any]] = [
            ("GET", theirs, None), ("DELETE", theirs, None), ("GET", f"{theirs}/documents", None),
            ("GET", f"{theirs}/document?id=theirs-1", None), ("POST", f"{theirs}/documents", document),
            ("DELETE", f"{theirs}/documents", {"ids": ["theirs-1"]}), ("POST", f"{theirs}/verify", None),
            ("POST", "/api/datasets", {"name": OTHER_DATASET}),
            ("POST", "/api/datasets", {"name": OTHER_DATASET, "description": "mine"}),
            ("POST", "/api/datasets", {"name": "new"}), ("GET", "/metrics", None), ("GET", "/api/evaluations", None),
            ("GET", "/api/policy", None), ("DELETE", "/api/policy", None),
        ]  # fmt: skip
        for path in ("search", "stream", "explain"):
            for datasets in ([OTHER_DATASET], [OWN_DATASET, OTHER_DATASET]):
                body = {"query": "railway", "datasets": datasets}
                if path == "explain":
                    body["document_id"] = "theirs-1"
                requests.append(("POST", f"/api/{path}", body))
        requests.append(("POST", "/api/search_many", {"queries": ["railway"], "datasets": [OTHER_DATASET]}))
        requests.append(("POST", "/api/route", {"query": "railway", "datasets": [OTHER_DATASET]}))
        for number, (method, target, value) in enumerate(requests):
            request = self.request(method, target, value)
            yield Attack("tenant", f"{number}: {method} {target}", request, (403, 404))
        for method, target, value in (
            ("POST", f"/api/datasets/{OWN_DATASET}/documents", document),
            ("DELETE", f"/api/datasets/{OWN_DATASET}", None),
            ("DELETE", f"/api/datasets/{OWN_DATASET}/documents", {"ids": ["own-1"]}),
            ("POST", "/api/datasets", {"name": OWN_DATASET}),
        ):  # fmt: skip
            request = self.request(method, target, value, key="reader")
            yield Attack("tenant", f"reader: {method} {target}", request, (403,))

    def types(self) -> Iterator[Attack]:
        """Bodies that say they are something else."""
        body = {"query": "railway"}
        for kind in (
            None, "", "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded",
            "multipart/form-data",
            "multipart/form-data; boundary=a", "text/json", "application/xml", "application/jsonp",
            "application/json-seq",
            "application/json, text/plain", "application/json; charset=utf-16", "application/json; charset=utf-7",
            "application/json;charset=utf-8;charset=utf-16", "application/x-ndjson", "*/*", "application/*", "json",
            "application/json\t;x", "application/vnd.api+json", "image/png",
        ):  # fmt: skip
            yield Attack("type", repr(kind), self.search(body, kind=kind), (415,))
        two_types = self.search(body, extra_headers=[("Content-Type", "text/plain")])
        yield Attack("type", "two", two_types, (415,))
        for coding in ("gzip", "br", "deflate", "zstd", "identity, gzip", "x"):
            request = self.search(body, extra_headers=[("Content-Encoding", coding)])
            yield Attack("type", f"encoded {coding}", request, (415,))

    def methods(self) -> Iterator[Attack]:
        """Methods that a route does not have."""
        for method in (
            "GET",
            "PUT",
            "PATCH",
            "DELETE",
            "TRACE",
            "OPTIONS",
            "FOO",
            "get",
            "PROPFIND",
            "PURGE",
            "M" * 200,
        ):
            request = self.request(method, "/api/search")
            yield Attack("method", f"{method[:20]} search", request, (404, 405))
        for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"):
            yield Attack("method", f"{method} me", self.request(method, "/api/me"), (404, 405))
        for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
            request = self.request("POST", f"/api/datasets/{OWN_DATASET}", extra_headers=[(name, "DELETE")])
            yield Attack("method", name, request, (404, 405))
        yield Attack("method", "CONNECT", self.request("CONNECT", "evil.example:443"), (400, 404, 405), "protocol")
        yield Attack("method", "asterisk", self.request("OPTIONS", "*"), (404, 405))

    def hosts(self) -> Iterator[Attack]:
        """Hosts that this is not."""
        for host in (
            "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io", "localhost@evil.example",
            "evil.example@localhost", "localhost:80@evil.example", "localhost/evil.example", "localhost, evil.example",
            "0.0.0.0", "127.1", "2130706433", "0x7f000001", "[::2]", "[::ffff:127.0.0.1]", "[::1", "localhost:",
            "localhost:a",
            "localhost:999999", "", "*", "local%68ost", "xn--lcalhost-54a", "localhost\\evil", "a" * 300,
            "169.254.169.254",
        ):  # fmt: skip
            yield Attack("host", repr(host[:40]), self.request("GET", "/api/me", host=host), (421,))
        for name in ("X-Forwarded-Host", "X-Host", "Forwarded"):
            request = self.request("GET", "/api/me", host="evil.example", extra_headers=[(name, "localhost")])
            yield Attack("host", f"{name} says localhost", request, (421,))
        request = self.request("GET", "/", host="evil.example", key=None)
        yield Attack("host", "console", request, (421,))
        for target in ("http://evil.example/api/me", "http://localhost@evil.example/api/me"):
            yield Attack("host", target, self.request("GET", target), (400, 404, 421))

    def sites(self) -> Iterator[Attack]:
        """What a browser would send for a page of another site."""
        for name, headers in {
            "Origin": [("Origin", "http://evil.example")], "null": [("Origin", "null")],
            "port": [("Origin", "http://localhost:3")],
            "scheme": [("Origin", "chrome-extension://abc")], "file": [("Origin", "file://")],
            "empty": [("Origin", "")],
            "suffix": [("Origin", "http://localhost.evil.example")],
            "user": [("Origin", "http://localhost@evil.example")],
            "two": [("Origin", "http://localhost"), ("Origin", "http://evil.example")],
            "cross-site": [("Sec-Fetch-Site", "cross-site")], "same-site": [("Sec-Fetch-Site", "same-site")],
            "odd": [("Sec-Fetch-Site", "x")],
            "both": [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")],
        }.items():  # fmt: skip
            yield Attack("site", f"POST {name}", self.search({"query": "railway"}, extra_headers=headers), (403,))
            request = self.request("DELETE", f"/api/datasets/{OWN_DATASET}", extra_headers=headers)
            yield Attack("site", f"DELETE {name}", request, (403,))
        for mode in ("no-cors", "cors", "websocket"):
            headers = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", mode)]
            yield Attack("site", f"GET {mode}", self.request("GET", "/api/datasets", extra_headers=headers), (403,))
        preflight = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "DELETE")]
        yield Attack(
            "site",
            "preflight",
            self.request("OPTIONS", f"/api/datasets/{OWN_DATASET}", extra_headers=preflight),
            (403, 404, 405),
        )

    def heads(self) -> Iterator[Attack]:
        """Headers that would come back, or mean something to somebody behind."""
        ids: dict[str, str | bytes] = {
            "long": "a" * 65, "blank": "a b", "markup": "<script>alert(1)</script>", "bytes": b"\xff\xfe",
            "JSON": '","a":"b',
            "log line": '\\n{"level": "info"}', "percent": "%0d%0aX-Injected:1", "empty": "",
            "escape": "${jndi:ldap://a}",
            "Chinese": "道岔",
        }  # fmt: skip
        for name, value in ids.items():
            request = self.request("GET", "/api/nothing", extra_headers=[("X-Request-Id", value)])
            yield Attack("head", f"request id: {name}", request, (404,))
        two_ids = [("X-Request-Id", "a"), ("X-Request-Id", "b\tc")]
        yield Attack("head", "request id: two", self.request("GET", "/api/nothing", extra_headers=two_ids), (404,))
        for name, value in {
            "Upgrade": "websocket", "Range": "bytes=0-99999999999", "Expect": "x", "TE": "trailers",
            "Accept": "a/" * 500,
            "Accept-Language": "../../etc", "If-None-Match": "*", "Cookie": "a=b; " * 200, "Via": "1.1 a",
            "Max-Forwards": "0",
            "traceparent": "x" * 200, "X-Original-URL": "/api/me", "X-Rewrite-URL": "/metrics",
            "User-Agent": "() { :;}; id",
        }.items():  # fmt: skip
            request = self.request("GET", "/api/nothing", extra_headers=[(name, value)])
            yield Attack("head", name, request, (404,))
        request = self.request(
            "GET", "/api/me", key=None, extra_headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")]
        )
        yield Attack("head", "h2c", request, (401,))

    def bodies(self) -> Iterator[Attack]:
        """Bodies that do not come as announced."""
        short = self.request("POST", "/api/search", extra_headers=[("Content-Type", "application/json")])
        for name, headers, body in (
            ("never comes", [("Content-Length", "20")], b""),
            ("ends early", [("Content-Length", "20")], b'{"query":'),
            ("chunks never end", [("Transfer-Encoding", "chunked")], b"1\r\n{\r\n"),
            ("a chunk is cut", [("Transfer-Encoding", "chunked")], b"ff\r\n{"),
        ):
            pairs = [(key, value) for key, value in headers]
            request = short[:-2] + b"".join(f"{key}: {value}\r\n".encode() for key, value in pairs) + b"\r\n" + body
            yield Attack("body", name, request, (400,))
        kind = "application/x-ndjson"
        target = f"/api/datasets/{OWN_DATASET}/documents"
        good = b'{"id": "own-1", "text": "A railway switch guides train 1.", "metadata": {"year": 2001}}\n'
        for name, lines in {
            "no JSON": b"{\n", "a list": b"[]\n", "name twice": b'{"id": "a", "id": "b", "text": "a"}\n',
            "UTF-8": b"\xff\n",
            "more": b'{"id": "a", "text": "a", "b": 1}\n', "NaN": b'{"id": "a", "text": "a", "metadata": {"a": NaN}}\n',
            "deep": b'{"id": "a", "text": "a", "metadata": ' + b'{"a":' * 99 + b"1" + b"}" * 99 + b"}\n",
            "long id": json.dumps({"id": "a" * 1025, "text": "a"}).encode(),
            "surrogate": b'{"id": "\\ud800", "text": "a"}\n',
            "empty id": b'{"id": "", "text": "a"}\n', "cut": b'{"id": "a", "te',
        }.items():  # fmt: skip
            yield Attack(
                "body", f"line: {name}", self.request("POST", target, good + lines, kind=kind), (400, 422), "stream"
            )

    def protocol(self) -> Iterator[Attack]:
        """What is no HTTP, or two requests in the shape of one."""
        key = f"Authorization: Bearer {self._keys.own_key}\r\n".encode()
        search = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + key
        inner = b"DELETE /api/datasets/own HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n"
        body = b'{"query": "railway"}'
        chunk = b"%x\r\n" % len(body) + body + b"\r\n"
        length = b"Content-Length: %d\r\n" % len(body)
        chunks = b"Transfer-Encoding: chunked\r\n\r\n"
        get = b"GET /api/me HTTP/1.1\r\n"
        requests: dict[str, bytes] = {
            "CL.TE": search + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
            "TE.CL": search + chunks[:-2] + b"Content-Length: 4\r\n\r\n" + chunk + b"0\r\n\r\n" + inner,
            "TE.TE": search + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + inner,
            "CL.CL": search + length + b"Content-Length: 0\r\n\r\n" + body + inner,
            "CL list": search + b"Content-Length: 20, 0\r\n\r\n" + body + inner,
            "TE: xchunked": search + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
            "TE: gzip, chunked": search + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + inner,
            "TE: identity": search + b"Transfer-Encoding: identity\r\n" + length + b"\r\n" + body + inner,
            "TE with a tab": search + b"Transfer-Encoding:\tchunked\r\n" + length + b"\r\n0\r\n\r\n" + inner,
            "space before the colon": search + b"Transfer-Encoding : chunked\r\n" + length + b"\r\n0\r\n\r\n" + inner,
            "vertical tab": search + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + inner,
            "folded": search + b"Transfer-Encoding:\r\n chunked\r\n" + length + b"\r\n0\r\n\r\n" + inner,
            "CR alone": search + b"X: a\rTransfer-Encoding: chunked\r\n" + length + b"\r\n0\r\n\r\n" + inner,
            "chunk size of no number": search + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + inner,
            "negative chunk": search + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + inner,
            "0x chunk": search + b"Transfer-Encoding: chunked\r\n\r\n0x14\r\n" + body + b"\r\n0\r\n\r\n" + inner,
            "huge chunk size": search + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n" + inner,
            "long chunk extension": search + chunks + b"1;" + b"a" * 100_000 + b"\r\n" + inner,
            "chunk longer than said": search + chunks + b"1\r\n" + body + b"\r\n0\r\n\r\n" + inner,
            "negative length": search + b"Content-Length: -1\r\n\r\n" + inner,
            "length +20": search + b"Content-Length: +20\r\n\r\n" + body + inner,
            "length 0x14": search + b"Content-Length: 0x14\r\n\r\n" + body + inner,
            "length in other digits": search + "Content-Length: ٢٠\r\n\r\n".encode() + body + inner,
            "endless length": search + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n" + body + inner,
        }  # fmt: skip
        for name, data in requests.items():
            yield Attack("smuggling", name, data, (400, 411, 413, 415, 422, 501), "protocol")
        no_http: dict[str, bytes] = {
            "no host": get + key + b"\r\n",
            "two hosts": get + b"Host: localhost\r\nHost: localhost\r\n" + key + b"\r\n",
            "two different hosts": get + b"Host: localhost\r\nHost: evil.example\r\n" + key + b"\r\n",
            "NUL in a header": get + b"Host: localhost\r\nX: a\x00b\r\n" + key + b"\r\n",
            "NUL in the name": get + b"Host: localhost\r\nX\x00: a\r\n" + key + b"\r\n",
            "NUL in the address": b"GET /api/me\x00 HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n",
            "blank in the address": b"GET /api/me x HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n",
            "bytes in the address": b"GET /api/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n",
            "tabs in the first line": b"GET\t/api/me\tHTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n",
            "no name": get + b"Host: localhost\r\n: a\r\n" + key + b"\r\n",
            "no colon": get + b"Host: localhost\r\nnonsense\r\n" + key + b"\r\n",
            "blank in a name": get + b"Host: localhost\r\nX Y: a\r\n" + key + b"\r\n",
            "blank before all": b" " + get + b"Host: localhost\r\n" + key + b"\r\n",
            "folded first": get + b" Host: localhost\r\n" + key + b"\r\n",
            "CR in a value": get + b"Host: localhost\r\nX: a\rb\r\n" + key + b"\r\n",
            "HTTP/0.9": b"GET /api/me\r\n", "HTTP/9.9": b"GET /api/me HTTP/9.9\r\nHost: localhost\r\n\r\n",
            "http/1.1": b"GET /api/me http/1.1\r\nHost: localhost\r\n\r\n", "no version": b"GET /api/me HTTP/\r\n\r\n",
            "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9,
            "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 64,
            "SSH": b"SSH-2.0-OpenSSH_9.6\r\n", "Redis": b"*1\r\n$4\r\nPING\r\n",
            "bytes": bytes(range(256)) * 4 + b"\r\n\r\n",
            "nothing but ends of lines": b"\r\n" * 5000, "endless first line": b"G" * 200_000,
            "method of bytes": b"\xff\xfe / HTTP/1.1\r\n\r\n",
            "100,000 headers": get + b"Host: localhost\r\n" + b"X: a\r\n" * 100_000 + b"\r\n",
        }  # fmt: skip
        for name, data in no_http.items():
            yield Attack("no HTTP", name, data, (400, 401, 404, 421, 431, 505), "protocol")


# ── sending and judging ──────────────────────────────────────────────────────────────────────────────────────────────

_MOMENT: Final = 0.2  # seconds
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESPONSE: Final = re.compile(rb"HTTP/1\.[01] \d{3} ")


@dataclass(frozen=True)
class Verdict:
    """What came back, and what is wrong with that; ``how`` it was refused."""

    attack: Attack
    status: int | None
    outcome: str
    faults: tuple[str, ...]


def send(address: tuple[str, int], attack: Attack, timeout: float = 20.0) -> bytes:
    """Everything that came back until the connection ended.

    What is no HTTP may leave the server waiting for more: then, after a moment, it is told that there is none.
    """
    answer = b""
    with socket.create_connection(address, timeout=timeout) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough: what it said may still be there
            connection.sendall(attack.data)
        if attack.outcome == "protocol":
            connection.settimeout(_MOMENT)
        while True:
            try:
                chunk = connection.recv(65536)
            except TimeoutError:
                if attack.outcome != "protocol" or connection.gettimeout() == timeout:
                    raise
                connection.settimeout(timeout)
                connection.shutdown(socket.SHUT_WR)
                continue
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                return answer
            answer += chunk


def judge(attack: Attack, answer: bytes, secrets: Mapping[str, str]) -> Verdict:
    """Whether what came back is as it has to be, and gives nothing away."""
    faults = [f"shows {name}" for name, text in secrets.items() if text.encode() in answer]
    if len(_RESPONSE.findall(answer)) > 1:
        faults.append("more than one response")
    if not answer:
        return Verdict(attack, None, "closed", (*faults, *(["no answer"] if attack.outcome != "protocol" else [])))
    try:
        response, body = _parse(answer)
    except HTTPException as error:
        return Verdict(attack, None, "nonsense", (*faults, f"no response: {error!r}"))
    is_problem = response.getheader("Content-Type") == "application/problem+json"
    in_stream = attack.outcome == "stream" and not is_problem
    if response.status not in attack.statuses and not in_stream:
        faults.append(f"status {response.status}, not {attack.statuses}: {body[:200]!r}")
    faults += [f"header {name}" for name in ("X-Injected", "Set-Cookie", "Server") if response.getheader(name)]
    if attack.outcome == "protocol" and not is_problem:
        return Verdict(attack, response.status, "by the HTTP server", tuple(faults))
    faults += _faults_of_document(attack, response, body, in_stream=in_stream)
    for name in ("X-Content-Type-Options", "Content-Security-Policy"):
        if not response.getheader(name):
            faults.append(f"no header {name}")
    if not _REQUEST_ID.fullmatch(response.getheader("X-Request-Id", "")):
        faults.append(f"request id {response.getheader('X-Request-Id')!r}")
    outcome = "problem in the stream" if in_stream else "problem"
    return Verdict(attack, response.status, outcome, tuple(faults))


def _faults_of_document(attack: Attack, response: HTTPResponse, body: bytes, *, in_stream: bool) -> Iterator[str]:
    """What is wrong with a problem document, which is the body, or in the last line of a stream."""
    kind = response.getheader("Content-Type")
    try:
        if in_stream:
            document = json.loads(body.splitlines()[-1])["problem"]
            if document["status"] not in attack.statuses:
                yield f"status {document['status']} in the stream, not {attack.statuses}: {document['detail']}"
        else:
            document = json.loads(body)
            if document["status"] != response.status or kind != "application/problem+json":
                yield f"no problem document: {kind} {body[:200]!r}"
        if not (document["type"].startswith("/problems/") and document["title"] and document["detail"]):
            yield f"a poor problem document: {document}"
        if len(document["detail"]) > 1000:
            yield f"a long detail: {document['detail'][:200]}"
    except (ValueError, LookupError, TypeError):
        yield f"no problem document: {kind} {body[:200]!r}"


def assault(address: tuple[str, int], attacks: Sequence[Attack], secrets: Mapping[str, str]) -> Iterator[Verdict]:
    """Send them all, some at a time, and judge what comes back."""

    def judge_one(attack: Attack) -> Verdict:
        try:
            return judge(attack, send(address, attack), secrets)
        except OSError as error:
            return Verdict(attack, None, "no answer", (f"no answer: {error!r}",))

    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(judge_one, attacks)


class _ReceivedBytes:
    """What `HTTPResponse` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parse(answer: bytes) -> tuple[HTTPResponse, bytes]:
    response = HTTPResponse(_ReceivedBytes(answer))  # type: ignore[arg-type]  # it wants nothing else of a socket
    response.begin()
    return response, response.read()


def secrets(folder: Path, keys: Keys) -> dict[str, str]:
    """What must never come back."""
    return {
        "the other tenant's texts": SECRET,
        "the place on disk": str(folder),
        "a traceback": "Traceback",
        "the place of the code": "site-packages",
        "a source file": ".py",
        **{f"the key {name}": text for name, text in vars(keys).items()},
    }


def half_open(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Connections that have begun a request and do not go on (Slowloris)."""
    connections = []
    for number in range(count):
        connection = socket.create_connection(address, timeout=10)
        connection.sendall(b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nX-%d: " % number)
        connections.append(connection)
    return connections
