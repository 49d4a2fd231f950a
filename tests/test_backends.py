"""Where workspaces live: the same promises of a folder and of a database (B2, B6)."""

from __future__ import annotations

import os
import re
import threading
import uuid
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pointsman import Dataset, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.backend import NEW, Backend
from pointsman.store.backend_urls import open_backend
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.tools import errors
from pointsman.tools.system.locations import is_url
from pointsman.values.registry import STORES
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ODD_NAMES = ("rails", "铁路", "железо-1", "a.b_c", "x" * 64)
HOSTILE = ("'; drop schema pointsman cascade; --", '"', "%s %(a)s", "a\\b", "../x", "{name}", "ё/信号", " ")


@pytest.fixture(params=["folder", "postgresql", "opensearch"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    """Opens the same new workspace again and again."""
    if request.param == "folder":
        yield lambda: open_backend(tmp_path / "it")
        return
    name = f"t{uuid.uuid4().hex[:12]}"
    server = request.getfixturevalue({"postgresql": "postgres"}.get(request.param, request.param))
    url = f"{server.url}?schema={name}" if request.param == "postgresql" else f"{server.url}/{name}?replicas=0"
    backends: list[Backend] = []

    def connect() -> Backend:
        backends.append(open_backend(url))
        return backends[-1]

    yield connect
    for backend in backends:
        backend.close()


class TestBackend:
    def test_keeps_the_protocol(self, reopen: Callable[[], Backend]) -> None:
        assert isinstance(reopen(), Backend)

    def test_nothing_is_there_before_something_is_written(self, reopen: Callable[[], Backend], tmp_path: Path) -> None:
        backend = reopen()
        assert (backend.datasets(), backend.open("rails"), backend.record("policy"), backend.records("keys")) == (
            [],
            None,
            None,
            {},
        )
        with pytest.raises(errors.UnknownNameError, match="rails"):
            backend.drop("rails")
        with pytest.raises(errors.UnknownNameError, match="rails"):
            backend.describe("rails", "x")
        assert not (tmp_path / "it").exists()

    def test_a_record_says_when_its_dataset_was_created(
        self, reopen: Callable[[], Backend], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moment = 1_700_000_000
        monkeypatch.setattr(
            "pointsman.workspace.dataset.dataset_lifecycle.time", SimpleNamespace(time=lambda: moment + 0.7)
        )
        with closing(Dataset("rails", backend=reopen(), embedder=HashingEmbedder())) as dataset:
            dataset.make()
            moment += 9  # what happens later changes nothing
            dataset.describe("about rails")
        reopen().create("roads", {}).close()  # as earlier versions did
        assert {record.name: record.settings.get("created_at") for record in reopen().datasets()} == {
            "rails": 1_700_000_000,
            "roads": None,
        }

    def test_datasets_come_and_go(self, reopen: Callable[[], Backend]) -> None:
        backend, second = reopen(), reopen()
        for name in ODD_NAMES:
            fields = {"description": f"о {name}", "indexing_technique": "keyword", "bm25_k1": 0.9}
            made = backend.create(name, fields)
            made.write([Document("1", name)])
            made.close()  # of a folder, only one may write at a time
        assert [dataset.name for dataset in second.datasets()] == sorted(ODD_NAMES)
        assert [dataset.name for dataset in reopen().datasets()] == sorted(ODD_NAMES)
        record = next(dataset for dataset in second.datasets() if dataset.name == "铁路")
        assert (record.description, record.indexing_technique, record.settings["bm25_k1"]) == ("о 铁路", "keyword", 0.9)
        second.describe("铁路", "signals \0 and lamps")
        assert (
            next(dataset for dataset in backend.datasets() if dataset.name == "铁路").description
            == "signals \0 and lamps"
        )
        for name in ODD_NAMES:
            store = second.open(name)
            assert store is not None
            assert store.get(["1"]) == [Document("1", name)]
            store.close()
        second.drop("rails")
        assert backend.open("rails") is None
        new_store = backend.create("rails", {})
        assert new_store.info.identity not in {record.identity, ""}
        assert new_store.count() == 0
        new_store.close()

    def test_making_one_that_exists_opens_it(self, reopen: Callable[[], Backend]) -> None:
        first, second = (
            reopen().create("rails", {"description": "one"}),
            reopen().create("rails", {"description": "two"}),
        )
        assert first.info.identity == second.info.identity
        assert [dataset.description for dataset in reopen().datasets()] == ["one"]
        first.close()
        second.close()

    def test_records(self, reopen: Callable[[], Backend]) -> None:
        backend, other = reopen(), reopen()
        first = backend.put_record("policy", "", "{}", NEW)
        assert other.record("policy") is not None
        with pytest.raises(errors.ConflictError, match="policy"):
            other.put_record("policy", "", "{1}", NEW)
        second = other.put_record("policy", "", "ё\0", first)
        assert second not in {first, NEW}
        with pytest.raises(errors.ConflictError):
            backend.put_record("policy", "", "late", first)
        record = backend.record("policy")
        assert record is not None
        assert (record.value, record.version) == ("ё\0", second)
        backend.put_record("policy", "", "whatever is there")
        assert backend.put_record("policy", "", None) == NEW
        assert other.record("policy") is None
        with pytest.raises(errors.ConflictError):
            backend.put_record("policy", "", "x", second)

    def test_hostile_names_and_values_are_data(self, reopen: Callable[[], Backend]) -> None:
        backend = reopen()
        for name in HOSTILE:
            backend.put_record("keys", name, name)
            backend.put_record("key", name, "another kind")
        assert {name: record.value for name, record in backend.records("keys").items()} == {
            name: name for name in HOSTILE
        }
        for kind, name in (("Keys", ""), ("", "x"), ("keys/..", "x"), ("keys", "a\nb"), ("keys", "x" * 129)):
            with pytest.raises(errors.InputError, match="record"):
                backend.put_record(kind, name, "x")

    def test_of_many_who_change_a_record_one_wins(self, reopen: Callable[[], Backend]) -> None:
        backends = [reopen() for _ in range(4)]
        backends[0].put_record("counter", "", "0")
        tries = 0

        def count(backend: Backend) -> None:
            nonlocal tries
            for _ in range(10):
                while True:
                    tries += 1
                    record = backend.record("counter")
                    assert record is not None
                    try:
                        backend.put_record("counter", "", str(int(record.value) + 1), record.version)
                    except errors.ConflictError:
                        continue
                    break

        threads = [threading.Thread(target=count, args=(backend,)) for backend in backends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        record = backends[0].record("counter")
        assert record is not None
        assert record.value == "40"
        assert tries >= 40


class TestLocalBackend:
    """A folder is the workspace that `Workspace` has always made, and the other way round."""

    def test_reads_what_a_workspace_has_made(self, tmp_path: Path) -> None:
        with Workspace(tmp_path / "it", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails", description="signals").add([Document("1", "lamp")])
        (tmp_path / "it" / "policy.json").write_text("{}", "utf-8")
        (tmp_path / "it" / "datasets" / ".gone").mkdir()
        backend = LocalBackend(tmp_path / "it")
        assert [(dataset.name, dataset.description) for dataset in backend.datasets()] == [("rails", "signals")]
        store = backend.open("rails")
        assert store is not None
        assert store.info.embedder == HashingEmbedder().name
        assert store.get(["1"]) == [Document("1", "lamp")]
        store.close()
        policy = backend.record("policy")
        assert policy is not None
        assert policy.value == "{}"

    def test_a_workspace_reads_what_it_has_made(self, tmp_path: Path) -> None:
        backend = LocalBackend(tmp_path / "it")
        store = backend.create("rails", {"description": "signals", "indexing_technique": "keyword"})
        store.write([Document("1", "lamp")])
        store.close()
        backend.put_record("keys", "", "{}")
        with Workspace(tmp_path / "it") as workspace:
            assert workspace.names() == ["rails"]
            dataset = workspace.dataset("rails")
            assert (dataset.description, dataset.indexing_technique) == ("signals", "keyword")
            assert [hit.id for hit in workspace.search("lamp", strategy="bm25", refuse=False)] == ["1"]
        assert (tmp_path / "it" / "keys.json").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("content", ["{", '{"format": 99}', "[]"])
    def test_what_it_does_not_know_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "workspace.json").write_text(content, "utf-8")
        with pytest.raises(errors.StoreError, match=re.escape(str(tmp_path))):
            LocalBackend(tmp_path)

    def test_another_folder_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x", "utf-8")
        for path in (tmp_path, tmp_path / "file"):
            with pytest.raises(errors.InputError, match="not a workspace"):
                LocalBackend(path)

    @pytest.mark.parametrize("name", ["workspace.json.4711-1.tmp", "workspace.json"])
    def test_a_workspace_that_another_process_is_making_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        exists = Path.exists

        def made_just_after(path: Path) -> bool:
            is_there = exists(path)
            if path.name == "workspace.json":
                (tmp_path / name).write_text('{"format": 1}', "utf-8")
            return is_there

        monkeypatch.setattr(Path, "exists", made_just_after)
        backend = LocalBackend(tmp_path)
        monkeypatch.undo()
        backend.make()
        assert LocalBackend(tmp_path).datasets() == []

    @pytest.mark.parametrize("name", ["workspace.json", "policy.json", "datasets/rails/manifest.json"])
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path, name: str) -> None:
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add([Document("1", "lamp")])
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
        with pytest.raises(errors.StoreError, match=f"{name}: it is not a regular file"):
            LocalBackend(tmp_path).record("policy") or LocalBackend(tmp_path).about("rails")

    def test_a_damaged_record_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "policy.json").write_bytes(b"\xff")
        (tmp_path / "datasets").mkdir()
        with pytest.raises(errors.CorruptStoreError, match=r"policy\.json"):
            LocalBackend(tmp_path).record("policy")


class TestUrls:
    @pytest.mark.parametrize("url", ["mysql://db/x", "s3:bucket", "postgresq://db"])
    def test_an_unknown_scheme_names_the_known_ones(self, url: str, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(errors.UnknownNameError, match=r"file.*postgresql"):
            open_backend(url)
        assert list(tmp_path.iterdir()) == []

    def test_paths_are_no_urls(self, tmp_path: Path) -> None:
        assert [is_url(path) for path in ("rails", "./a:b", "/tmp/x", "C:\\rails", Path("x:y"))] == [False] * 5
        for url in (f"file:{tmp_path}/a%20b", f"file://{tmp_path}/a%20b", tmp_path / "a b"):
            backend = open_backend(url)
            assert isinstance(backend, LocalBackend)
            assert backend.path == tmp_path / "a b"

    def test_others_add_a_scheme(self, monkeypatch: Any, tmp_path: Path) -> None:
        monkeypatch.setattr(STORES, "_factories", dict(STORES._factories))
        STORES.register("elsewhere", lambda url: LocalBackend(tmp_path / url.partition("//")[2]))
        assert open_backend("elsewhere://x").url == str(tmp_path / "x")

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://u:s3cret@[::1/db",
            "postgresql://u:s3cret@h/db?nonsense=1",
            "postgresql://u:s3cret@h/db?schema=a;b",
            "postgresql://u:s3cret@h/db?connections=0",
            "opensearch://u:s3cret@[::1",
            "opensearch://u:s3cret@127.0.0.1:port",
            "opensearch://u:s3cret@127.0.0.1/Prefix",
            "opensearch://u:s3cret@127.0.0.1/?shards=many",
            "opensearch://u:s3cret@127.0.0.1/?nonsense=1",
            "opensearch://u:s3cret@db.example.org:9200/",
        ],
    )
    def test_what_cannot_be_read_is_refused_without_its_password(self, url: str) -> None:
        pytest.importorskip("psycopg")
        pytest.importorskip("opensearchpy")
        with pytest.raises(errors.InputError) as error_info:
            open_backend(url)
        assert "s3cret" not in str(error_info.value)
        assert error_info.value.__cause__ is None

    def test_this_machine_has_many_addresses(self) -> None:
        pytest.importorskip("opensearchpy")
        url = "opensearch://127.0.0.2:9200,[::1]:9201,localhost:9200/rails"
        with closing(open_backend(url)) as backend:
            assert backend.url == url
