"""Keys to the HTTP service: made, kept, checked and withdrawn; and what a request with one may do."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers
from typer.testing import CliRunner

import pointsman
from pointsman.service.server.access.api_keys import ApiKey, KeyStore
from pointsman.service.server.access.request_access import Access, authenticate
from pointsman.service.server.protocol.problems import HttpProblem, of_error
from pointsman.store.local.files_and_locks import open_regular
from pointsman.tools.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    LockedError,
    StoreError,
    UnknownNameError,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def keys(path: Path) -> KeyStore:
    return KeyStore(path)


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_order_in_which_a_program_writes_a_key_s_fields_is_no_damage(keys: KeyStore, path: Path) -> None:
    text = keys.create("the search team").text

    def reordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: reordered(value[name]) for name in reversed(value)}
        return [reordered(item) for item in value] if isinstance(value, list) else value

    before = path.read_text("utf-8")
    path.write_text(json.dumps(reordered(json.loads(before))), "utf-8")
    assert path.read_text("utf-8") != before
    assert KeyStore(path).check(text) is not None


def test_a_key_is_shown_once_and_only_its_hash_is_kept(keys: KeyStore, path: Path) -> None:
    grant = keys.create("Ivan 伊万", datasets=["notes"], scopes=["read"])
    assert re.fullmatch(r"ptm_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", grant.text)
    assert grant.text.split("_")[1] == grant.key.id
    assert keys.check(grant.text) == grant.key == keys.list()[0]
    assert (grant.key.name, grant.key.datasets, grant.key.scopes) == ("Ivan 伊万", ("notes",), ("read",))
    secret = grant.text.split("_", 2)[2]
    assert secret not in path.read_text("utf-8")
    for text in (repr(grant), str(grant), repr(keys), repr(keys.list()), repr(vars(keys)), f"{grant.key}"):
        assert secret not in text
        assert json.loads(path.read_text("utf-8"))["keys"][0]["sha256"] not in text


def test_only_the_owner_may_read_the_file(keys: KeyStore, path: Path) -> None:
    umask_at_start = os.umask(0)
    try:
        key = keys.create("a").key
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        keys.revoke(key.id)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(umask_at_start)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["keys.json", "keys.lock"]  # nothing is left aside


def test_revoked_expired_and_not_yet(path: Path) -> None:
    clock = Clock()
    keys = KeyStore(path, clock=clock)
    lasting = keys.create("lasting")
    ending = keys.create("ending", expires=START + DAY)
    clock.time = START + DAY - timedelta(microseconds=1)
    assert keys.check(ending.text) == ending.key
    clock.time = START + DAY
    assert keys.check(ending.text) is None
    assert keys.check(lasting.text) == lasting.key
    revocation = keys.revoke(lasting.key.id)
    assert revocation.revocation_time == START + DAY
    assert keys.check(lasting.text) is None
    clock.time += DAY
    assert keys.revoke(lasting.key.id) == revocation  # it was withdrawn when it was
    assert keys.list() == [revocation, ending.key]
    with pytest.raises(UnknownNameError, match="no key named 'ffff'"):
        keys.revoke("ffff")


def test_changes_of_another_store_work_at_once(path: Path) -> None:
    """The server holds one store, the command line another."""
    server, console = KeyStore(path), KeyStore(path)
    assert server.empty()
    for number in range(20):
        grant = console.create(f"key {number}")
        assert not server.empty()
        assert server.check(grant.text) == grant.key
        console.revoke(grant.key.id)
        assert server.check(grant.text) is None
    assert server.list() == console.list()
    assert len(server.list()) == 20


def test_an_unchanged_file_is_not_read_again(keys: KeyStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = keys.create("a")
    assert keys.check(grant.text)
    reads: list[Path] = []

    def note_read(keys_file: Path) -> IO[bytes]:
        reads.append(keys_file)
        return open_regular(keys_file)

    monkeypatch.setattr("pointsman.service.server.access.api_keys.open_regular", note_read)
    for _ in range(50):
        assert keys.check(grant.text)
    assert reads == []
    os.utime(path, ns=(1, 1))
    assert keys.check(grant.text)
    assert reads == [path]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "1 to 64 printable"),
        ({"name": "  "}, "1 to 64 printable"),
        ({"name": "a" * 65}, "1 to 64 printable"),
        ({"name": "a\nb"}, "1 to 64 printable"),
        ({"name": "a\x1b[31m"}, "1 to 64 printable"),
        ({"name": "\u202eadmin"}, "1 to 64 printable"),
        ({"name": "\ud800"}, "1 to 64 printable"),
        ({"name": 5}, "1 to 64 printable"),
        ({"datasets": []}, "at least one"),
        ({"datasets": ["*", "notes"]}, "give it alone"),
        ({"datasets": ["../notes"]}, "a dataset's name"),
        ({"datasets": ["no*tes"]}, "a dataset's name"),
        ({"datasets": [""]}, "a dataset's name"),
        ({"scopes": []}, "at least one"),
        ({"scopes": ["admin"]}, "scopes"),
        ({"expires": datetime(2099, 1, 1)}, "time zone"),  # noqa: DTZ001  (that is what is wrong with it)
        ({"expires": "2099-01-01"}, "time zone"),
        ({"expires": START - DAY}, "in the future"),
        ({"expires": START}, "in the future"),
    ],
)
def test_what_no_key_can_be(path: Path, fields: dict[str, Any], message: str) -> None:
    keys = KeyStore(path, clock=Clock())
    with pytest.raises(InputError, match=re.escape(message)):
        keys.create(**{"name": "a", **fields})
    assert not path.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"{}",
        lambda data: b"[]",
        lambda data: b"null",
        lambda data: b'{"keys": []}',
        lambda data: b'{"format": 1}',
        lambda data: b'{"format": 1, "keys": null}',
        lambda data: b'{"format": 1, "keys": [null]}',
        lambda data: b'{"format": 1, "keys": [{}]}',
        lambda data: b'{"format": 1, "keys": [[]]}',
        lambda data: b'{"format": true, "keys": "ab"}',
        lambda data: b"[" * 200_000,
        lambda data: data[:-5],
        lambda data: b"\xff\xfe" + data,
        lambda data: data.replace(b'"sha256"', b'"sha"'),
        lambda data: re.sub(rb'"sha256": "..', b'"sha256": "', data),
        lambda data: re.sub(rb'"id": "..', b'"id": "', data),
        lambda data: re.sub(rb'"id": ".*"', b'"id": 5', data),
        lambda data: data.replace(b'"*"', b'"/"'),
        lambda data: data.replace(b'"read"', b'"all"'),
        lambda data: re.sub(rb'"created": ".*"', b'"created": null', data),
        lambda data: re.sub(rb'"created": ".*"', b'"created": "yesterday"', data),
        lambda data: re.sub(rb'"created": ".*"', b'"created": "2026-01-01T00:00:00"', data),
        lambda data: data.replace(b'"revoked": null', b'"revoked": true'),
        lambda data: data.replace(b'"expires": null', b'"expires": 5'),
        lambda data: re.sub(rb'"datasets": \[[^]]*\]', b'"datasets": "abc"', data),
        lambda data: re.sub(rb'"scopes": \[[^]]*\]', b'"scopes": "read"', data),
        lambda data: re.sub(rb'"keys": \[(.*)\]', rb'"keys": [\1,\1]', data, flags=re.DOTALL),
    ],
)
def test_a_damaged_file_lets_nobody_in(keys: KeyStore, path: Path, damage: Callable[[bytes], bytes]) -> None:
    grant = keys.create("a")
    data = path.read_bytes()
    content = damage(data)
    assert content != data
    path.write_bytes(content)
    for store in (keys, KeyStore(path)):
        for attempt in (lambda s: s.check(grant.text), KeyStore.empty, KeyStore.list, lambda s: s.create("b")):
            with pytest.raises(StoreError, match=r"keys\.json"):
                attempt(store)
        for loopback in (True, False):
            with pytest.raises(HttpProblem) as error_info:
                authenticate(bearer(grant.text), store, loopback=loopback)
            assert (error_info.value.slug, error_info.value.status) == ("unavailable", 503)
            assert str(path) not in error_info.value.detail
    assert path.read_bytes() == content  # what is left of it is still there to be mended
    path.write_bytes(data)
    assert keys.check(grant.text) == grant.key


def test_what_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "keys.json").mkdir()
    with pytest.raises(CorruptStoreError, match="cannot be read"):
        KeyStore(tmp_path / "keys.json").empty()
    (tmp_path / "file").write_text("")
    with pytest.raises(CorruptStoreError, match="cannot be read"):
        KeyStore(tmp_path / "file" / "keys.json").empty()


def test_a_newer_format_lets_nobody_in(keys: KeyStore, path: Path) -> None:
    grant = keys.create("a")
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 3'))
    with pytest.raises(FormatVersionError, match=r"keys\.json is in format 3"):
        keys.check(grant.text)


def test_a_file_that_is_gone_does_not_open_the_service(keys: KeyStore, path: Path) -> None:
    grant = keys.create("a")
    assert not keys.empty()
    data = path.read_bytes()
    path.unlink()
    for _ in range(2):
        with pytest.raises(CorruptStoreError, match="is missing"):
            keys.empty()
        with pytest.raises(CorruptStoreError, match="is missing"):
            keys.create("b")
    path.write_bytes(data)
    assert keys.check(grant.text) == grant.key


@pytest.mark.parametrize("emptiness", ["no file", "no keys", "revoked"])
def test_once_there_were_keys_no_key_means_nobody(tmp_path: Path, emptiness: str) -> None:
    """While the service runs, and after it was started again."""
    path = tmp_path / "keys.json"
    running = KeyStore(path)
    assert authenticate([], running, loopback=True) == Access.open()
    grant = running.create("a")
    if emptiness == "no file":
        path.unlink()
    elif emptiness == "no keys":
        path.write_text('{"format": 1, "keys": []}')
    else:
        running.revoke(grant.key.id)
    for keys in (running, KeyStore(path)):
        for headers in ([], [(b"x-api-key", grant.text.encode())]):
            with pytest.raises(HttpProblem) as error_info:
                authenticate(headers, keys, loopback=True)
            assert error_info.value.slug in {"unauthorized", "unavailable"}


def test_an_operator_may_open_a_workspace_that_has_keys(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    grant = keys.create("a", scopes="read")
    assert authenticate([], keys, loopback=True, keyless=True) == Access.open()
    assert not authenticate([(b"x-api-key", grant.text.encode())], keys, loopback=True, keyless=True).write
    refused: list[tuple[list[tuple[bytes, bytes]], bool]] = [
        ([(b"x-api-key", b"ptm_wrong")], True),
        ([(b"x-forwarded-for", b"10.0.0.1")], True),
        ([], False),
    ]
    for headers, loopback in refused:
        with pytest.raises(HttpProblem, match="valid key"):
            authenticate(headers, keys, loopback=loopback, keyless=True)


def test_an_error_does_not_grow_with_every_request(keys: KeyStore, path: Path) -> None:
    path.write_bytes(b"?")
    for _ in range(5):
        with pytest.raises(CorruptStoreError) as error_info:
            keys.empty()
    assert len(error_info.traceback) <= 3


def _create_some(path: str, name: str, count: int) -> None:
    store = KeyStore(path)
    for number in range(count):
        store.create(f"{name} {number}")


def test_processes_and_threads_lose_none_of_each_others_keys(path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_create_some, args=(str(path), "process", 10))
    process.start()
    store = KeyStore(path)
    threads = [threading.Thread(target=_create_some, args=(str(path), f"thread {n}", 5)) for n in range(2)]
    threads += [threading.Thread(target=lambda: [store.create("shared") for _ in range(5)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process.join(60)
    assert process.exitcode == 0
    assert len(store.list()) == 30
    assert len({key.id for key in store.list()}) == 30


def test_a_writer_that_does_not_end(keys: KeyStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    keys.create("a")
    monkeypatch.setattr("pointsman.store.local.folder_backend._PATIENCE", 0.05)
    with FileLock(path.with_suffix(".lock")), pytest.raises(LockedError, match="another process"):
        keys.create("b")
    keys.create("c")


def test_a_crash_while_writing_leaves_the_old_keys(keys: KeyStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = keys.create("a")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="is full"):
        keys.create("b")
    monkeypatch.undo()
    assert keys.list() == [grant.key]
    assert keys.check(grant.text) == grant.key


dataset_names = st.text(st.characters(categories=["L", "Nd"], include_characters="_-"), min_size=1, max_size=20)
key_names = st.text(min_size=1, max_size=64).filter(lambda text: bool(text.strip()) and text.isprintable())
zones = st.sampled_from([UTC, timezone(timedelta(hours=8)), timezone(-timedelta(hours=3, minutes=30))])


@settings(max_examples=40, deadline=None)
@given(
    name=key_names,
    datasets=st.one_of(st.just(["*"]), st.lists(dataset_names, min_size=1, max_size=4)),
    scopes=st.lists(st.sampled_from(["read", "write"]), min_size=1),
    expires=st.none() | st.datetimes(datetime(2026, 3, 3), datetime(2090, 1, 1), timezones=zones),  # noqa: DTZ001
)
def test_round_trip(name: str, datasets: list[str], scopes: list[str], expires: datetime | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        keys = KeyStore(Path(folder, "keys.json"), clock=Clock())
        grant = keys.create(name, datasets=datasets, scopes=scopes, expires=expires)
        reopened_store = KeyStore(Path(folder, "keys.json"), clock=Clock())
        assert reopened_store.list() == [grant.key]
        assert reopened_store.check(grant.text) == grant.key
        assert (grant.key.name, set(grant.key.datasets), set(grant.key.scopes)) == (name, set(datasets), set(scopes))
        assert grant.key.expires == expires


@pytest.fixture(scope="module")
def two_keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyStore, str, str]:
    store = KeyStore(tmp_path_factory.mktemp("keys") / "keys.json")
    return store, store.create("a").text, store.create("b").text


@given(st.data())
def test_no_variant_of_a_key_passes(two_keys: tuple[KeyStore, str, str], data: st.DataObject) -> None:
    store, text, other_text = two_keys
    variant = data.draw(
        st.one_of(
            st.integers(0, len(text) - 1).map(lambda end: text[:end]),
            st.integers(1, len(text)).map(lambda start: text[start:]),
            st.integers(0, len(text) - 1).map(lambda index: text[:index] + text[index + 1 :]),
            st.tuples(st.integers(0, len(text) - 1), st.characters()).map(
                lambda edit: text[: edit[0]] + edit[1] + text[edit[0] + 1 :]
            ),
            st.tuples(st.integers(0, len(text)), st.characters()).map(
                lambda edit: text[: edit[0]] + edit[1] + text[edit[0] :]
            ),
            st.sampled_from(
                [text.upper(), text.lower(), text.swapcase(), text * 2, f" {text}", f"{text}\n", f"{text}\0"]
            ),
            st.integers(0, len(text) - 1).map(lambda index: text[:index] + other_text[index:]),
            st.text(),
        )
    )
    passes = store.check(variant)
    assert (passes is not None) == (variant in {text, other_text})


def test_the_last_character_counts_whole(two_keys: tuple[KeyStore, str, str]) -> None:
    """Two of its bits stand for none of the 32 bytes: who decoded the secret would take four texts for one."""
    store, text, _ = two_keys
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert [letter for letter in alphabet if store.check(text[:-1] + letter)] == [text[-1]]


# ── who asks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Raw = list[tuple[bytes, bytes]]


def bearer(text: str) -> Raw:
    return [(b"host", b"localhost"), (b"authorization", b"Bearer " + text.encode())]


def refusal(headers: Raw, keys: KeyStore, *, loopback: bool = True) -> tuple[str, int, str, dict[str, str]]:
    with pytest.raises(HttpProblem) as error_info:
        authenticate(headers, keys, loopback=loopback)
    problem = error_info.value
    return problem.slug, problem.status, problem.detail, problem.headers


def test_either_header_or_both_alike(keys: KeyStore) -> None:
    text = keys.create("a", datasets=["notes"], scopes=["read"]).text
    expected = Access(keys.list()[0].id, "a", frozenset({"notes"}), read=True, write=False)
    key = text.encode()
    for headers in (
        bearer(text),
        [(b"authorization", b"bearer " + key)],
        [(b"authorization", b"BEARER  " + key)],
        [(b"x-api-key", key)],
        [(b"x-api-key", key), (b"authorization", b"Bearer " + key)],
    ):
        for loopback in (True, False):
            assert authenticate(headers, keys, loopback=loopback) == expected
            assert authenticate(Headers(raw=headers), keys, loopback=loopback) == expected


def test_every_refusal_reads_the_same(keys: KeyStore, path: Path) -> None:
    valid, other_key, revoked_key = (keys.create(name).text.encode() for name in ("valid", "other", "gone"))
    keys.revoke(revoked_key.decode()[4:12])
    earlier_store = KeyStore(path, clock=lambda: datetime.now(UTC) - DAY)
    expired_key = earlier_store.create("expired", expires=datetime.now(UTC) - DAY / 2).text.encode()
    header = b"authorization"
    attempts: list[Raw] = [
        [],
        [(header, b"")],
        [(header, b"Bearer")],
        [(header, b"Bearer ")],
        [(header, valid)],
        [(header, b"Basic " + valid)],
        [(header, b"Bearer\t" + valid)],
        [(header, b"Bearer " + valid[:-1])],
        [(header, b"Bearer " + valid + b"x")],
        [(header, b"Bearer " + valid + b", Bearer " + valid)],
        [(header, b"Bearer ptm_00000000_" + b"A" * 43)],
        [(header, b"Bearer " + revoked_key)],
        [(header, b"Bearer " + expired_key)],
        [(header, b"Bearer " + b"\xff" * 56)],
        [(header, b"Bearer " + b"A" * 100_000)],
        [(header, b"Bearer " + valid), (header, b"Bearer " + valid)],
        [(header, b"Bearer " + valid), (b"x-api-key", other_key)],
        [(header, b"Basic YTpi"), (b"x-api-key", valid)],
        [(b"x-api-key", valid), (b"x-api-key", valid)],
        [(b"x-api-key", b"Bearer " + valid)],
        [(b"x-api-key", b"")],
        [(b"cookie", b"key=" + valid)],
    ]
    refusals = {repr(refusal(headers, keys, loopback=loopback)) for headers in attempts for loopback in (True, False)}
    assert len(refusals) == 1
    slug, status, detail, headers = refusal([], keys)
    assert (slug, status, headers) == ("unauthorized", 401, {"WWW-Authenticate": "Bearer"})
    assert "ptm_" not in detail


def test_without_keys_only_this_machine_gets_in(keys: KeyStore) -> None:
    assert authenticate([], keys, loopback=True) == Access.open()
    assert authenticate(bearer("anything"), keys, loopback=True) == Access.open()
    assert refusal([], keys, loopback=False)[:2] == ("unauthorized", 401)


FORWARDING_HEADERS = """
    Forwarded Via X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Server
    X-Forwarded-Prefix X-Forwarded-Scheme X-Forwarded-Ssl X-Forwarded-User X-Forwarded-Client-Cert X-Forwarded
    X_Forwarded_For X-Real-IP X-Real-Port CF-Connecting-IP CF-Connecting-IPv6 CF-Ray CF-Visitor CF-IPCountry
    CDN-Loop True-Client-IP Fastly-Client-IP Fastly-FF Fastly-SSL X-Client-IP Client-IP X-Cluster-Client-IP
    X-Original-For X-Original-Host X-Original-URL X-Original-Forwarded-For X-ProxyUser-Ip Fly-Client-IP
    Fly-Forwarded-Proto Front-End-Https X-Envoy-External-Address X-Envoy-Original-Path X-Azure-ClientIP
    X-Azure-FDID X-Azure-Ref X-Appengine-User-IP X-AppEngine-Country X-Amzn-Trace-Id X-Amz-Cf-Id
    CloudFront-Viewer-Address X-Vercel-Forwarded-For X-Goog-Authenticated-User-Email X-Arr-Log-Id X-ARR-SSL
    X-Remote-IP X-Remote-Addr X-Originating-IP X-Rewrite-Url X-Scheme X-Url-Scheme X-SSL-Client-Cert
    WL-Proxy-Client-IP Proxy-Client-IP Akamai-Origin-Hop X-Nf-Client-Connection-Ip Incap-Client-IP
    Ali-CDN-Real-IP X-Sucuri-ClientIP X-Auth-Request-User Remote-User Do-Connecting-IP
    Ngrok-Auth-User-Id Tailscale-User-Login
"""


@pytest.mark.parametrize("name", FORWARDING_HEADERS.split())
def test_without_keys_any_forwarding_header_closes_the_service(keys: KeyStore, name: str) -> None:
    raw = name.lower().encode()
    assert refusal([(raw, b"203.0.113.5")], keys)[0] == "unauthorized"  # who knows who is behind the proxy
    assert refusal([(raw, b"")], keys)[0] == "unauthorized"
    with pytest.raises(HttpProblem, match="valid key"):
        authenticate([(raw, b"https")], keys, loopback=True, keyless=True)


def test_headers_of_ordinary_clients_do_not_close_the_service(keys: KeyStore) -> None:
    ordinary = """
        Accept Accept-Encoding Accept-Language Cache-Control Connection Content-Length Content-Type Cookie DNT Host
        If-None-Match Max-Forwards Origin Pragma Priority Range Referer Sec-Ch-Ua Sec-Fetch-Mode Sec-Fetch-Site TE
        Traceparent Tracestate Upgrade-Insecure-Requests User-Agent X-Request-Id X-Requested-With Mcp-Session-Id
        Mcp-Protocol-Version Last-Event-ID Idempotency-Key OpenAI-Organization X-Stainless-Lang X-Stainless-Arch
    """
    headers = [(name.lower().encode(), b"1") for name in ordinary.split()]
    assert authenticate(headers, keys, loopback=True) == Access.open()


def test_the_first_key_closes_it_and_a_revoked_one_keeps_it_closed(keys: KeyStore) -> None:
    assert authenticate([], keys, loopback=True) == Access.open()
    grant = keys.create("a")
    assert refusal([], keys)[0] == "unauthorized"
    keys.revoke(grant.key.id)
    assert refusal([], keys)[0] == "unauthorized"
    assert refusal(bearer(grant.text), keys)[0] == "unauthorized"


# ── what it may do ───────────────────────────────────────────────────────────────────────────────────────────────────


def access(datasets: set[str] | None, *, read: bool = True, write: bool = True) -> Access:
    return Access("0123abcd", "a", None if datasets is None else frozenset(datasets), read=read, write=write)


def test_chosen_datasets() -> None:
    names = ["a", "b", "c"]
    assert access(None).choose(None, names) == names
    assert access({"c", "a", "z"}).choose(None, names) == ["a", "c"]
    assert access({"c", "a"}).choose(["c", "a", "c"], names) == ["c", "a"]
    assert access({"c", "a"}).choose([], names) == []
    assert access({"z"}).choose(None, names) == []
    assert access({"a", "b"}).visible(["b", "x", "a"]) == ["b", "a"]
    assert access(None).sees("x")
    assert not access({"a"}).sees("A")


def test_a_dataset_out_of_scope_reads_like_one_that_is_not_there() -> None:
    with pytest.raises(HttpProblem) as out_of_scope:
        access({"a", "c"}).choose(["a", "secret"], ["a", "b", "secret", "c"])
    with pytest.raises(HttpProblem) as absent:
        access({"a", "c"}).choose(["a", "secret"], ["a", "c"])
    assert vars(out_of_scope.value) == vars(absent.value)
    assert out_of_scope.value.args == absent.value.args
    assert (out_of_scope.value.slug, out_of_scope.value.status) == ("not-found", 404)
    assert out_of_scope.value.detail == "there is no dataset named 'secret'; known: a, c"
    with pytest.raises(HttpProblem, match="there is none yet"):
        access({"z"}).choose(["secret"], ["secret"])
    problem = of_error(UnknownNameError("dataset", "x", ("secret",)))  # in between; the error does not know the key
    assert (problem.status, problem.detail) == (404, "there is no dataset named 'x'")
    assert "known" not in problem.members
    with pytest.raises(HttpProblem) as long:
        access(None).choose(["x" * 10_000], ["a"])
    assert len(long.value.detail) < 200


@given(
    scope=st.none() | st.sets(st.sampled_from("abcdef")),
    names=st.lists(st.sampled_from("abcdef"), unique=True),
    names_asked=st.none() | st.lists(st.sampled_from("abcdefg")),
)
def test_nothing_out_of_scope_is_ever_chosen(
    scope: set[str] | None, names: list[str], names_asked: list[str] | None
) -> None:
    granted_access = access(scope)
    try:
        names_chosen = granted_access.choose(names_asked, names)
    except HttpProblem as problem:
        assert names_asked is not None
        names_in_detail = set(problem.detail.partition("known: ")[2].split(", ")) - {""}
        assert names_in_detail == {name for name in names if scope is None or name in scope}
        return
    assert all(name in names and (scope is None or name in scope) for name in names_chosen)
    assert names_asked is None or set(names_chosen) == set(names_asked)


def test_scopes() -> None:
    def slug(check: Callable[[], None]) -> str | None:
        try:
            check()
        except HttpProblem as problem:
            return problem.slug
        return None

    full, partial, reader = access(None), access({"a"}), access(None, write=False)
    assert slug(lambda: full.require_write("x")) is None
    assert slug(lambda: partial.require_write("a")) is None
    assert slug(lambda: partial.require_write("b")) == "forbidden"
    assert slug(lambda: reader.require_write("a")) == "forbidden"
    assert slug(full.require_all) is None
    assert slug(lambda: full.require_all(write=True)) is None
    assert slug(reader.require_all) is None
    assert slug(lambda: reader.require_all(write=True)) == "forbidden"
    assert slug(partial.require_all) == "forbidden"
    assert slug(access(None, read=False).require_read) == "forbidden"
    assert slug(reader.require_read) is None


def test_an_access_comes_from_its_key() -> None:
    key = ApiKey("0123abcd", "a", ("*",), ("write",), START)
    assert Access.of(key) == Access("0123abcd", "a", None, read=False, write=True)
    assert Access.of(ApiKey("0123abcd", "a", ("x", "y"), ("read",), START)).datasets == frozenset({"x", "y"})
    assert Access.open() == Access(None, "", None, read=True, write=True)


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


class Cli:
    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    def __call__(self, *arguments: str) -> str:
        from pointsman.cli.commands.keys_command import app

        invocation = CliRunner().invoke(app, [*arguments, "--workspace", str(self.workspace)], catch_exceptions=False)
        assert invocation.exit_code == 0, invocation.output
        return invocation.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "workspace")


def test_create_list_and_revoke(cli: Cli) -> None:
    grant = cli.json(
        "create", "ci", "--dataset", "notes", "-d", "заметки", "--allow-missing", "--read-only", "--expires", "30d"
    )
    store = KeyStore(cli.workspace / "keys.json")
    key = store.check(grant["text"])
    assert key is not None
    assert (key.name, key.datasets, key.scopes) == ("ci", ("notes", "заметки"), ("read",))
    assert key.expires is not None
    assert timedelta(days=29, hours=23) < key.expires - datetime.now(UTC) <= timedelta(days=30)
    (key_row,) = cli.json("list")
    assert key_row == {name: value for name, value in grant.items() if name != "text"}
    assert key_row["revoked"] is None
    assert cli.json("revoke", key.id)["revoked"] is not None
    assert store.check(grant["text"]) is None
    assert cli.json("list")[0]["revoked"] is not None


def test_a_key_for_a_dataset_that_does_not_exist(cli: Cli) -> None:
    with pointsman.open(cli.workspace) as workspace:
        workspace.dataset("mine").make()
    with pytest.raises(InputError, match=r"no dataset named 'mien'; did you mean 'mine'.*--allow-missing"):
        cli("create", "ci", "-d", "mien")
    assert cli.json("list") == []
    assert cli.json("create", "ci", "-d", "mine")["datasets"] == ["mine"]
    assert cli.json("create", "ci", "-d", "mien", "--allow-missing")["datasets"] == ["mien"]


def test_for_people(cli: Cli) -> None:
    output = cli("create", "browser")
    (text,) = re.findall(r"^ptm_\w{8}_[\w-]{43}$", output, flags=re.MULTILINE)  # on a line of its own, unbroken
    assert "once" in output
    output = cli("list")
    assert "browser" in output
    assert text.split("_", 2)[2] not in output
    assert "works" in output
    assert cli("revoke", text[4:12]).strip() == f"key {text[4:12]} (browser) revoked"
    assert "revoked" in cli("list")


def test_keys_before_the_first_dataset(cli: Cli) -> None:
    cli("create", "first")
    with pointsman.open(cli.workspace) as workspace:  # a folder with nothing but keys in it would be none
        assert workspace.names() == []


@pytest.mark.parametrize("expires", ["", "0d", "-1d", "d", "3x", "1.5d", "tomorrow", "2020-01-01", "9999999d", "٣d"])
def test_times_that_are_none(cli: Cli, expires: str) -> None:
    with pytest.raises(InputError, match=r"expires|future"):
        cli("create", "a", "--expires", expires)


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        ("12h", START + timedelta(hours=12)),
        ("2w", START + timedelta(days=14)),
        ("1y", START + timedelta(days=365)),
        ("2030-05-01", datetime(2030, 5, 1, tzinfo=UTC)),
        ("2030-05-01T12:00", datetime(2030, 5, 1, 12, tzinfo=UTC)),
        ("2030-05-01T12:00+03:00", datetime(2030, 5, 1, 9, tzinfo=UTC)),
    ],
)
def test_times(expires: str, expected: datetime) -> None:
    from pointsman.cli.commands.keys_command import expiry

    assert expiry(expires, START) == expected


@pytest.mark.parametrize("command", [["list"], ["revoke", "0123abcd"]])
def test_no_workspace(cli: Cli, command: list[str]) -> None:
    with pytest.raises(InputError, match="there is no workspace"):
        cli(*command)
    assert not cli.workspace.exists()
