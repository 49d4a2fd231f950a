"""The audit log: one line for each request that shows documents, whatever shows them, or nothing is shown."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from pointsman import Document, EnhancedRetrievalService, Settings, Workspace
from pointsman.cli.core_commands import app as cli
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp.tool_calls import Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.access.signed_tokens import Issuer, TokenTrust
from pointsman.tools.audit_log import KIND
from pointsman.tools.errors import AuditError, CorruptStoreError, UnmetNeedError
from pointsman.workspace.copies.backup import backup, restore
from server_kit import Served
from test_views_http import AUDIENCE, ISSUER, KEYS, bearer, token_of

QUESTION = "signal of the salary"
YARD = {"source": "yard.md", "start": 0, "end": 18, "sha256": "0" * 64}
ALL = ["all", "denied", "pay", "rail"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def workspace(tmp_path: Path, log: Path) -> Iterator[Workspace]:
    settings = Settings(audit_log=str(log))
    with Workspace(tmp_path / "work", embedder=HashingEmbedder(), settings=settings) as workspace:
        notes = workspace.dataset("notes", versions="90 days")
        notes.add([Document("rail", "signal of the yard", YARD)], access=["group:rail"])
        notes.add([Document("pay", "signal of the salary")], access=["group:money"])
        notes.add([Document("denied", "signal for rail")], access={"allow": ["group:rail"], "deny": ["user:anna"]})
        notes.add([Document("all", "signal for everyone")], access=["everyone"])
        yield workspace


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with TestClient(create_app(workspace, limits=Limits(requests_per_minute=0)), base_url="http://localhost") as client:
        yield client


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text("ascii").splitlines()] if log.exists() else []


def only_line(log: Path) -> dict[str, Any]:
    (line,) = lines(log)
    return line


def shown_ids(line: dict[str, Any]) -> list[str]:
    return sorted(line["shown"].get("notes", ()))


def test_it_is_off_unless_a_setting_names_a_file(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder(), settings=Settings()) as workspace:
        workspace.dataset("notes").add([Document("pay", "signal of the salary")])
        assert workspace.search(QUESTION).hits
        assert workspace.dataset("notes").get("pay") is not None
        assert workspace.engine.audit is None
        assert workspace.backend.record(KIND) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]


def test_a_line_says_who_asked_when_and_what_was_shown(workspace: Workspace, log: Path) -> None:
    answer = workspace.search(QUESTION, refuse=False)
    line = only_line(log)
    assert line["time"].endswith("Z")
    assert (line["door"], line["operation"], line["key"], line["principals"]) == ("python", "search", None, None)
    assert line["who"]
    assert line["datasets"] == ["notes"]
    assert shown_ids(line) == ALL == sorted(hit.id for hit in answer)
    (question,) = line["questions"]
    digest = workspace.audit_log.digest
    assert answer.receipt is not None
    assert question == {"digest": digest(QUESTION), "refused": False, "receipt": digest(answer.receipt)}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_what_a_refusal_shows_is_shown(tmp_path: Path, log: Path) -> None:
    with Workspace(tmp_path / "work", settings=Settings(audit_log=str(log))) as workspace:
        workspace.dataset("notes").add([Document("rail", "Signals stop trains."), Document("pay", "Salaries rise.")])
        answer = workspace.search("how do I bake sourdough bread")
    assert answer.refused is not None
    line = only_line(log)
    assert line["questions"][0]["refused"] is True
    assert shown_ids(line) == sorted(hit.id for hit in answer.refused.near_misses) != []


def test_no_question_is_in_the_log_and_none_can_be_guessed_from_it(
    workspace: Workspace, log: Path, tmp_path: Path
) -> None:
    answer = workspace.search(QUESTION)
    text = log.read_text()
    assert QUESTION not in text
    assert str(answer.receipt) not in text
    assert hashlib.sha256(QUESTION.encode()).hexdigest()[:16] not in text
    record = workspace.backend.record(KIND)
    assert record is not None
    assert record.value not in text
    with Workspace(workspace.path, embedder=HashingEmbedder()) as again:
        assert again.audit_log.digest(QUESTION) == only_line(log)["questions"][0]["digest"]
    with Workspace(tmp_path / "other") as other:
        assert other.audit_log.digest(QUESTION) != only_line(log)["questions"][0]["digest"]


def test_the_command_line_finds_a_question_in_the_log(workspace: Workspace, log: Path) -> None:
    workspace.search(QUESTION)
    command = ["audit", "digest", QUESTION, "--workspace", str(workspace.path), "--json"]
    result = CliRunner().invoke(cli, command)
    assert json.loads(result.stdout) == {"digest": only_line(log)["questions"][0]["digest"]}


def test_a_restored_workspace_has_the_same_digests(workspace: Workspace, tmp_path: Path) -> None:
    digest = workspace.audit_log.digest(QUESTION)
    backup(workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    with Workspace(tmp_path / "again") as again:
        assert again.audit_log.digest(QUESTION) == digest
    assert stat.S_IMODE((tmp_path / "again" / "audit.json").stat().st_mode) == 0o600


def test_a_damaged_key_is_no_new_key(workspace: Workspace, log: Path) -> None:
    workspace.backend.put_record(KIND, "", "c2hvcnQ=")
    with pytest.raises(CorruptStoreError, match="the key of the audit log's digests is damaged"):
        workspace.search(QUESTION)
    assert not lines(log)


class TestPython:
    READS: tuple[tuple[str, Callable[[Workspace], Any], list[str]], ...] = (
        ("search", lambda w: w.search(QUESTION, refuse=False), ALL),
        ("search", lambda w: w.dataset("notes").search(QUESTION, refuse=False), ALL),
        ("search", lambda w: asyncio.run(w.asearch(QUESTION, refuse=False)), ALL),
        ("search", lambda w: asyncio.run(w.dataset("notes").asearch(QUESTION, refuse=False)), ALL),
        ("search_many", lambda w: w.search_many([QUESTION, "yard"], refuse=False), ALL),
        ("search_many", lambda w: asyncio.run(w.asearch_many([QUESTION], refuse=False)), ALL),
        ("search", lambda w: RetrievalWorkflow().search(QUESTION, w.datasets(), refuse=False), ALL),
        ("search", lambda w: w.search(QUESTION, refuse=False, strategy="multi_query"), ALL),
        ("search", lambda w: w.search(QUESTION, refuse=False, strategy="parent_child"), ALL),
        ("search", lambda w: EnhancedRetrievalService(w.settings, w).search_sync(QUESTION, refuse=False), ALL),
        ("search", lambda w: EnhancedRetrievalService(Settings(), w).search_sync(QUESTION, refuse=False), ALL),
        ("retrieve", lambda w: w.dataset("notes").retriever("hybrid").retrieve(QUESTION), ALL),
        ("search_vector", lambda w: w.dataset("notes").search_vector(w.embedder.embed_queries(["x"])[0], 10), ALL),
        ("get", lambda w: w.dataset("notes").get("pay"), ["pay"]),
        ("get", lambda w: asyncio.run(w.dataset("notes").aget("pay")), ["pay"]),
        ("get_many", lambda w: w.dataset("notes").get_many(["pay", "none", "all"]), ["all", "pay"]),
        ("get_vectors", lambda w: w.dataset("notes").get_vectors(["pay"]), ["pay"]),
        ("page", lambda w: w.dataset("notes").page(0, 2), ["pay", "rail"]),
        ("text", lambda w: w.dataset("notes").text("yard.md"), ["rail"]),
        ("text", lambda w: w.dataset("notes").text("pay"), ["pay"]),
    )  # fmt: skip

    @pytest.mark.parametrize(("operation", "read", "ids"), READS)
    def test_each_call_writes_one_line(
        self, workspace: Workspace, log: Path, operation: str, read: Callable[[Workspace], Any], ids: list[str]
    ) -> None:
        read(workspace)
        line = only_line(log)
        assert (line["operation"], line["door"], shown_ids(line)) == (operation, "python", ids)

    def test_what_shows_nothing_writes_nothing(self, workspace: Workspace, log: Path) -> None:
        notes = workspace.dataset("notes")
        assert notes.get("none") is None
        assert "pay" in notes
        assert (len(notes), notes.count(), len(notes.ids())) == (4, 4, 4)
        notes.set_metadata({"pay": {"year": 2026}})
        workspace.route(QUESTION)
        assert not lines(log)

    def test_indexing_and_calibrating_show_nobody_anything(
        self, workspace: Workspace, log: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "files").mkdir()
        for number in range(30):
            (tmp_path / "files" / f"{number}.md").write_text(f"# Line {number}\n\nThe yard {number} has a signal.")
        workspace.index(tmp_path / "files", "files")
        workspace.index(tmp_path / "files", "files")
        questions = {str(number): f"which yard has signal {number}" for number in range(25)}
        ids = workspace.dataset("files").ids()
        workspace.calibrate("files", questions, {number: {ids[int(number)]: 1} for number in questions})
        workspace.wait_for_calibrations()
        assert not lines(log)

    def test_principals_are_those_of_the_search(self, workspace: Workspace, log: Path) -> None:
        workspace.switch_access(on=True)
        workspace.search(QUESTION, principals=["group:money"], refuse=False)
        assert only_line(log)["principals"] == ["group:money"]
        assert shown_ids(only_line(log)) == ["all", "pay"]

    def test_a_replay_is_one_line(self, workspace: Workspace, log: Path) -> None:
        receipt = workspace.search(QUESTION, refuse=False).receipt
        assert receipt is not None
        workspace.dataset("notes").delete(["pay"])
        workspace.replay(receipt)
        first, second = lines(log)
        assert (second["operation"], shown_ids(second)) == ("replay", ALL)
        assert second["questions"][0]["digest"] == first["questions"][0]["digest"]

    def test_changed_settings_count_at_once(self, workspace: Workspace, log: Path, tmp_path: Path) -> None:
        workspace.settings = workspace.settings.updated(audit_log="")
        workspace.search(QUESTION)
        workspace.dataset("notes").get("pay")
        assert not lines(log)
        workspace.settings = workspace.settings.updated(audit_log=str(tmp_path / "second.jsonl"))
        workspace.search(QUESTION)
        workspace.dataset("notes").get("pay")
        assert len(lines(tmp_path / "second.jsonl")) == 2

    def test_a_service_without_a_workspace_is_refused(self, log: Path) -> None:
        with pytest.raises(UnmetNeedError, match="no workspace or dataset of one is searched"):
            EnhancedRetrievalService(Settings(audit_log=str(log)), [Document("pay", "signal of the salary")])


class TestHttp:
    REQUESTS: tuple[tuple[str, str, str, dict[str, Any] | None, list[str]], ...] = (
        ("search", "POST", "/api/search", {"query": QUESTION, "refuse": False}, ALL),
        ("search_many", "POST", "/api/search_many", {"queries": [QUESTION, "yard"], "refuse": False}, ALL),
        ("stream", "POST", "/api/stream", {"query": QUESTION, "refuse": False}, ALL),
        ("explain", "POST", "/api/explain", {"query": QUESTION, "document_id": "pay", "refuse": False}, ALL),
        ("retrieval_search", "POST", "/api/retrieval/search", {"query": QUESTION, "refuse": False}, ALL),
        ("dify_retrieval", "POST", "/retrieval", {"knowledge_id": "notes", "query": QUESTION}, ALL),
        ("search_vector_store", "POST", "/v1/vector_stores/notes/search", {"query": QUESTION}, ALL),
        ("list_documents", "GET", "/api/datasets/notes/documents?limit=2", None, ["pay", "rail"]),
        ("get_document", "GET", "/api/datasets/notes/document?id=pay", None, ["pay"]),
        ("get_text", "GET", "/api/datasets/notes/text?source=yard.md", None, ["rail"]),
        ("get_vectors", "POST", "/api/datasets/notes/vectors", {"ids": ["pay"]}, ["pay"]),
    )  # fmt: skip

    @pytest.mark.parametrize(("operation", "method", "path", "body", "ids"), REQUESTS)
    def test_each_request_writes_one_line(
        self,
        workspace: Workspace,
        client: TestClient,
        log: Path,
        operation: str,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        ids: list[str],
    ) -> None:
        key = keys_of(workspace.backend).create("reader", scopes=["read"])
        answer = client.request(method, path, json=body, headers=bearer(key.text))
        assert answer.status_code == 200, answer.text
        line = only_line(log)
        assert (line["door"], line["operation"]) == ("http", operation)
        assert shown_ids(line) == ids
        if operation not in {"get_vectors", "get_text"} and not path.endswith(
            "/content"
        ):  # these do not repeat the ids
            assert [id_ for id_ in ALL if f'"{id_}"' in answer.text] == ids
        assert (line["who"], line["key"]) == ("reader", key.key.id)
        assert line["request"] == answer.headers["x-request-id"]

    def test_nearest_documents_are_shown(self, workspace: Workspace, client: TestClient, log: Path) -> None:
        vector = [float(number) for number in workspace.embedder.embed_queries(["signal"])[0]]
        assert client.post("/api/datasets/notes/nearest", json={"vector": vector}).status_code == 200
        assert (only_line(log)["operation"], shown_ids(only_line(log))) == ("nearest_documents", ALL)

    def test_a_checked_answer_says_what_it_cites(self, client: TestClient, log: Path) -> None:
        body = {
            "answer": 'It says "signal of the salary".',
            "hits": [{"dataset": "notes", "id": "all"}, {"dataset": "notes", "id": "pay"}],
        }
        assert client.post("/api/verify", json=body).json()["supported"] is True
        line = only_line(log)
        assert line["cited"] == {"notes": ["pay"]}
        assert shown_ids(line) == ["all", "pay"]

    def test_a_replay_over_http(self, client: TestClient, log: Path) -> None:
        receipt = client.post("/api/search", json={"query": QUESTION, "refuse": False}).json()["receipt"]
        assert client.post("/api/replay", json={"receipt": receipt}).status_code == 200
        assert [line["operation"] for line in lines(log)] == ["search", "replay"]
        assert shown_ids(lines(log)[1]) == ALL

    def test_tokens_and_narrowed_principals(self, workspace: Workspace, client: TestClient, log: Path) -> None:
        workspace.switch_access(on=True)
        TokenTrust(workspace.backend).trust(Issuer(ISSUER, AUDIENCE, KEYS))
        body = {"query": QUESTION, "refuse": False}
        assert client.post("/api/search", json=body, headers=bearer(token_of())).status_code == 200
        narrow = {**body, "principals": ["group:rail"]}
        assert client.post("/api/search", json=narrow, headers=bearer(token_of())).status_code == 200
        first, second = lines(log)
        assert (first["who"], first["principals"]) == ("anna", ["group:rail", "user:anna"])
        assert first["key"].startswith("token-")
        assert shown_ids(first) == ["all", "rail"]
        assert second["principals"] == ["group:rail"]

    def test_what_is_refused_or_shows_nothing_writes_nothing(
        self, workspace: Workspace, client: TestClient, log: Path
    ) -> None:
        assert client.post("/api/search", json={"query": QUESTION, "datasets": ["none"]}).status_code == 404
        assert client.get("/api/datasets/notes/document?id=none").status_code == 404
        assert client.get("/api/datasets").status_code == 200
        assert client.get("/api/datasets/notes/ids").status_code == 200
        assert client.get("/health").status_code == 200
        keys_of(workspace.backend).create("reader")
        assert client.post("/api/search", json={"query": QUESTION}).status_code == 401
        assert not lines(log)

    @pytest.mark.parametrize(("operation", "method", "path", "body", "ids"), REQUESTS)
    def test_nothing_is_shown_if_it_cannot_be_written(
        self,
        client: TestClient,
        log: Path,
        operation: str,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        ids: list[str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        log.mkdir()
        answer = client.request(method, path, json=body)
        assert "the audit log cannot be written, so nothing is shown" in answer.text, operation
        assert answer.status_code == (200 if operation == "stream" else 503)
        assert not any(text in answer.text for text in ("yard", "salary", "everyone")), ids
        assert str(log) not in answer.text
        assert str(log) in caplog.text


class TestMcp:
    def call(self, workspace: Workspace, tool: str, arguments: dict[str, Any]) -> Any:
        access = Access("id", "agent", None, read=True, write=False)
        calls = Calls(Library(workspace, None, ("auto",), 5.0), Gate(Limits()), lambda _: access)

        async def call() -> Any:
            return await calls.call(tool, arguments, {})

        return anyio.run(call)

    CALLS: tuple[tuple[str, dict[str, Any], list[str]], ...] = (
        ("search", {"query": QUESTION, "refuse": False}, ALL),
        ("fetch", {"id": "notes/pay"}, ["pay"]),
        ("read", {"id": "notes/pay"}, ["pay"]),
        ("outline", {"dataset": "notes"}, ALL),
        ("outline", {"dataset": "notes", "source": "yard.md"}, ["rail"]),
        ("grep", {"pattern": "signal", "k": 2}, ["pay", "rail"]),
        ("verify", {"answer": 'It is "signal of the salary".', "ids": ["notes/all", "notes/pay"]}, ["all", "pay"]),
        ("explain", {"query": QUESTION, "id": "notes/pay", "refuse": False}, ALL),
        ("list_datasets", {}, ["rail"]),  # the only one with metadata
    )

    def test_examples_of_keys_are_recorded_each_time_and_only_where_they_are_shown(
        self, workspace: Workspace, log: Path
    ) -> None:
        workspace.dataset("prices").add(
            [Document(f"{n}", "A price.", {"price": n}) for n in range(9)], access=["everyone"]
        )
        for _ in range(2):
            self.call(workspace, "list_datasets", {"contains": "prices"})
        assert [line["shown"] for line in lines(log)] == [{"prices": ["0", "1", "2"]}] * 2

    @pytest.mark.parametrize(("tool", "arguments", "ids"), CALLS)
    def test_each_call_writes_one_line(
        self, workspace: Workspace, log: Path, tool: str, arguments: dict[str, Any], ids: list[str]
    ) -> None:
        result = self.call(workspace, tool, arguments)
        assert not result.get("isError"), result
        line = only_line(log)
        assert (line["door"], line["operation"], line["who"], line["key"]) == ("mcp", tool, "agent", "id")
        assert shown_ids(line) == ids
        assert line["cited"] == ({"notes": ["pay"]} if tool == "verify" else {})

    @pytest.mark.parametrize(("tool", "arguments", "ids"), CALLS)
    def test_nothing_is_shown_if_it_cannot_be_written(
        self, workspace: Workspace, log: Path, tool: str, arguments: dict[str, Any], ids: list[str]
    ) -> None:
        log.mkdir()
        result = self.call(workspace, tool, arguments)
        assert result["isError"], ids
        assert "the audit log cannot be written" in str(result)
        assert "salary" not in str(result)

    def test_read_shows_only_what_fits(self, tmp_path: Path, workspace: Workspace, log: Path) -> None:
        (tmp_path / "long.md").write_text("# Long\n\n" + "A signal stops the train. " * 400)
        workspace.index(tmp_path / "long.md", "files")
        first = workspace.dataset("files").ids()[0]
        self.call(workspace, "read", {"id": f"files/{first}", "before": 0, "after": 1, "max_chars": 20_000})
        assert len(only_line(log)["shown"]["files"]) == 2 < len(workspace.dataset("files"))


class TestFile:
    def test_a_place_that_cannot_be_written_is_named(self, workspace: Workspace, log: Path) -> None:
        log.mkdir()
        for read in (lambda: workspace.search(QUESTION), lambda: workspace.dataset("notes").get("pay")):
            with pytest.raises(AuditError, match=r"the audit log '.*audit.jsonl' cannot be written \(.*directory\)"):
                read()

    def test_a_folder_that_is_missing(self, workspace: Workspace, tmp_path: Path) -> None:
        workspace.settings = workspace.settings.updated(audit_log=str(tmp_path / "none" / "log"))
        with pytest.raises(AuditError, match="No such file or directory"):
            workspace.search(QUESTION)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
    def test_a_pipe_that_nobody_reads_is_not_waited_for(self, workspace: Workspace, log: Path) -> None:
        os.mkfifo(log)
        with pytest.raises(AuditError, match="not a regular file"):
            workspace.search(QUESTION)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_a_device_is_no_log(self, workspace: Workspace) -> None:
        workspace.settings = workspace.settings.updated(audit_log="/dev/full")
        with pytest.raises(AuditError, match="not a regular file"):
            workspace.search(QUESTION)

    def test_a_line_that_was_cut_does_not_spoil_the_next_one(self, workspace: Workspace, log: Path) -> None:
        log.write_bytes(b'{"time":"2026-')
        workspace.search(QUESTION)
        cut, line = log.read_text().splitlines()
        assert cut == '{"time":"2026-'
        assert json.loads(line)["operation"] == "search"

    def test_a_renamed_log_is_made_anew(self, workspace: Workspace, log: Path) -> None:
        workspace.search(QUESTION)
        log.rename(log.with_suffix(".1"))
        workspace.search(QUESTION)
        assert (len(lines(log)), len(lines(log.with_suffix(".1")))) == (1, 1)

    def test_ids_cannot_break_a_line(self, workspace: Workspace, log: Path) -> None:
        id_ = 'a\u2028\u0085"}, {"who": "eve"'
        workspace.dataset("notes").add([Document(id_, "signal")])
        workspace.dataset("notes").get(id_)
        assert log.read_bytes().count(b"\n") == 1
        assert only_line(log)["shown"] == {"notes": [id_]}

    def test_the_error_survives_pickling(self) -> None:
        error = pickle.loads(pickle.dumps(AuditError("/var/log/x", "read-only")))
        assert (error.path, error.reason, str(error)) == (
            "/var/log/x",
            "read-only",
            str(AuditError("/var/log/x", "read-only")),
        )


def test_processes_and_services_write_whole_lines(tmp_path: Path) -> None:
    log, path = tmp_path / "audit.jsonl", tmp_path / "work"
    with Workspace(path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document(f"signal-{number}", "signal " * 50) for number in range(40)])
    each, programs = 25, 3
    worker = Path(__file__).with_name("audit_worker.py")
    environ = {"POINTSMAN_AUDIT_LOG": str(log)}
    with Served(path, "--workers", "2", environ=environ).ready() as service:
        running = [
            subprocess.Popen([sys.executable, str(worker), str(path), str(log), f"signal {name}", str(each)])
            for name in range(programs)
        ]

        def ask(number: int) -> int:
            status, _ = service.request("POST", "/api/search", {"query": f"signal {number}", "k": 40, "refuse": False})
            return int(status)

        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(ask, range(60))) == {200}
        assert [program.wait(120) for program in running] == [0] * programs
    written = lines(log)
    assert len(written) == 60 + each * programs
    assert sum(line["door"] == "http" for line in written) == 60
    assert all(len(line["shown"]["notes"]) == 40 for line in written if line["door"] == "http")
    assert len({line["request"] for line in written if line["door"] == "http"}) == 60
    assert len({line["questions"][0]["digest"] for line in written if line["door"] == "python"}) == each * programs


def test_commands_are_recorded(workspace: Workspace, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_AUDIT_LOG", str(log))
    place = ["--workspace", str(workspace.path), "--embedder", "hashing"]
    assert CliRunner().invoke(cli, ["search", QUESTION, *place]).exit_code == 0
    assert CliRunner().invoke(cli, ["text", "yard.md", "--dataset", "notes", *place[:2]]).exit_code == 0
    assert [(line["door"], line["operation"]) for line in lines(log)] == [
        ("command line", "search"), ("command line", "text")
    ]  # fmt: skip
