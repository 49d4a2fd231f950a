"""The same program on a folder and on a server (B2)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import pointsman
from pointsman import Policy, UnknownNameError
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.system.locations import redacted
from pointsman.values.settings import describe
from server_kit import Served
from store_kit import corpus

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

QUESTIONS = ("rail lamp", "signal of the yard", "the train", "whistel")


def ranking(answer: Any) -> list[tuple[str | None, str, float]]:
    return [(hit.dataset, hit.id, round(hit.score, 2)) for hit in answer.hits]


def test_an_unknown_scheme_is_an_error_that_names_the_known_ones() -> None:
    for url in ("mongodb://somewhere/db", "localhost:8080", "htp://localhost"):
        with pytest.raises(UnknownNameError, match=r"no URL scheme.*known: file, http, https, .*postgresql"):
            pointsman.open(url)
    with pytest.raises(InputError, match=r"workspace\.attach"):
        pointsman.open("chroma://127.0.0.1")
    with pytest.raises(InputError, match=r"a Pointsman service; open it with pointsman\.open"):
        pointsman.Workspace("http://127.0.0.1:8080")


@pytest.mark.parametrize("url", ["file:", "file://", "file://rails", "file://server/share/rails"])
def test_a_file_url_without_a_folder_of_this_machine_is_no_other_folder(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="names no folder of this machine"):
        pointsman.open(url)


def test_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("file:rails", "rails"),
        ("FILE:./a%20b", "a b"),
        ("file:rails?schema=x#y", "rails?schema=x#y"),
        (f"file:{tmp_path}/it", f"{tmp_path}/it"),
        (f"file://{tmp_path}/a%20b?c", f"{tmp_path}/a b?c"),
        (f"file://localhost{tmp_path}/it/", f"{tmp_path}/it"),
    ):
        with pointsman.open(url) as workspace:
            assert workspace.backend.url == path


def test_b2_the_same_answers_on_a_folder_and_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=workspace_url"
    embedder = HashingEmbedder()
    with (
        pointsman.open(tmp_path / "work", embedder=embedder) as local,
        pointsman.open(url, embedder=embedder) as remote,
    ):
        for workspace in (local, remote):
            workspace.dataset("rails", description="about rails").add(corpus(80))
            workspace.dataset("yards").add(corpus(40, seed=3, prefix="y"))
        assert remote.names() == local.names() == ["rails", "yards"]
        for question in QUESTIONS:
            for strategy in ("hybrid", "vector", "bm25"):
                local_answer, remote_answer = (
                    w.search(question, 5, strategy=strategy, refuse=False) for w in (local, remote)
                )
                assert {hit.id for hit in remote_answer} == {hit.id for hit in local_answer}, (question, strategy)
            answer = remote.search(question, 5, filters="number >= 20", refuse=False)
            assert all(hit.metadata["number"] >= 20 for hit in answer)
            assert ranking(asyncio.run(remote.asearch(question, 5, refuse=False))) == ranking(
                remote.search(question, 5, refuse=False)
            )
        assert remote.search("whistel", 3).query.text == "whistle"
        remote.keep(Policy(name="tuned", vector_weight=2.0))
        with pointsman.open(url, embedder=embedder) as reopened_workspace:
            assert reopened_workspace.workflow.policy == remote.workflow.policy
            assert reopened_workspace.dataset("rails", create=False).description == "about rails"
            reopened_workspace.drop("yards")
            assert reopened_workspace.names() == ["rails"]
            with pytest.raises(UnmetNeedError, match="folders only"):
                _ = reopened_workspace.path


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


def cli(*arguments: str, code: int = 0) -> str:
    """What a command prints on standard output, or its error where it ends with a code."""
    from pointsman.cli.core_commands import app

    process = CliRunner().invoke(app, arguments, env={"POINTSMAN_EMBEDDER": "hashing"})
    if code:
        assert isinstance(process.exception, pointsman.PointsmanError), process.output
        return str(process.exception)
    assert process.exit_code == 0, (process.output, process.exception)
    return process.stdout


@pytest.fixture
def notes(tmp_path: Path) -> str:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "signals.md").write_text("# Signals\n\nA red lamp stops the train.\n")
    (folder / "yard.md").write_text("# Yard\n\nThe lever in the yard moves the points.\n")
    return str(folder)


def use_commands(url: str, notes: str) -> None:
    """Index, search, list and delete at a place, as its options say."""
    workspace_options = ("--workspace", url, "--json")
    assert json.loads(cli("index", notes, "-d", "notes", *workspace_options))["added"] == 2
    assert json.loads(cli("index", notes, "-d", "notes", *workspace_options))["added"] == 0
    (row,) = json.loads(cli("datasets", *workspace_options))
    assert (row["name"], row["documents"]) == ("notes", 2)
    (hit, *_) = json.loads(cli("search", "which lamp stops a train", "--refuse", "never", *workspace_options))["hits"]
    assert "red lamp" in hit["text"]
    assert json.loads(cli("route", "which lamp stops a train", *workspace_options))["plan"]["datasets"]
    assert [row["documents"] for row in json.loads(cli("status", *workspace_options))["datasets"]] == [2]
    assert cli("status", "--workspace", url)
    assert json.loads(cli("delete", "-d", "notes", "--source", "yard.md", *workspace_options))["deleted"] == 1
    assert json.loads(cli("delete", "-d", "notes", "--all", "--yes", *workspace_options))["dropped"]
    assert json.loads(cli("datasets", *workspace_options)) == []


def test_b2_every_command_takes_the_url_of_a_database(postgres: PostgresServer, notes: str, tmp_path: Path) -> None:
    url = f"{postgres.url}?schema=commands"
    use_commands(url, notes)
    cli("index", notes, "-d", "notes", "--workspace", url)
    grant = json.loads(cli("keys", "create", "ci", "-d", "notes", "--workspace", url, "--json"))
    assert [key["id"] for key in json.loads(cli("keys", "list", "--workspace", url, "--json"))] == [grant["id"]]
    assert json.loads(cli("keys", "revoke", grant["id"], "--workspace", url, "--json"))["revoked"]
    assert "maintains itself" in cli("rebuild", "--workspace", url, code=1)
    assert "pointsman copy" in cli("backup", str(tmp_path / "copy"), "--workspace", url, code=2)
    copy_path = str(tmp_path / "there")
    assert json.loads(cli("copy", url, copy_path, "--json"))["datasets"][0]["documents"] == 2
    with pointsman.open(copy_path, embedder=HashingEmbedder()) as workspace:
        assert len(workspace.dataset("notes", create=False)) == 2


def test_b2_evaluations_and_a_tuned_policy_are_kept_in_a_database(postgres: PostgresServer, tmp_path: Path) -> None:
    from pointsman.workspace.past_runs import latest

    url = f"{postgres.url}?schema=evaluations"
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "tea"}\n{"_id": "b", "text": "coffee"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "tea"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    cli("eval", str(tmp_path), "--strategies", "bm25", "--workspace", url)
    with pointsman.open(url) as workspace:
        (run,) = latest(workspace.backend)
        assert run["strategies"]["bm25"]["ndcg@10"] == 1.0
        workspace.backend.put_record("evaluations", "00000000T000000", "no JSON")
        assert len(latest(workspace.backend)) == 1


def test_b2_the_commands_over_a_service(notes: str, tmp_path: Path) -> None:
    with Served(tmp_path / "served") as service:
        service.ready()
        url = f"http://127.0.0.1:{service.port}"
        use_commands(url, notes)
        with pointsman.open(url) as client:
            assert isinstance(client, pointsman.Client)
            assert client.names() == []
        for command in (
            ("rebuild", "--workspace", url),
            ("mcp", "--workspace", url),
            ("serve", "--workspace", url),
            ("keys", "list", "--workspace", url),
            ("copy", url, str(tmp_path / "other")),
            ("backup", str(tmp_path / "other"), "--workspace", url),
        ):
            assert "service" in cli(*command, code=2) or "pointsman copy" in cli(*command, code=2), command


SECRET = "s3cr3t-Pa55"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://rail:{SECRET}@127.0.0.1:1/rails",
        f"postgresql://rail@127.0.0.1:1/rails?password={SECRET}",
        f"postgresql://rail:{SECRET}@127.0.0.1:1/rails?schema=no-schema",
        f"postgresql://rail:{SECRET}@127.0.0.1:port/rails",
        f"postgresql://rail:a/{SECRET}@127.0.0.1:1/rails",
        f"postgresql://rail:a@{SECRET}@127.0.0.1:1/rails",
        f"postgresql://rail:a?{SECRET}=1@127.0.0.1:1/rails",
        f"postgresql://rail@x:{SECRET}@127.0.0.1:1/rails",
        f"opensearch://rail:{SECRET}@127.0.0.1:1/rails",
        f"opensearch://rail:{SECRET}@127.0.0.1:1/rails?colour=red",
        f"mongodb://rail:{SECRET}@127.0.0.1:1/rails",
        f"https://rail:{SECRET}@127.0.0.1:1/rails",
    ],
)
def test_no_error_shows_a_password(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pointsman.store.opensearch import opensearch_client as cluster
    from pointsman.store.postgres.postgres_connections import Connections

    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    assert Connections.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Connections.__init__.__kwdefaults__, "patience", 0.2)
    errors = [
        cli("search", "rail", "--workspace", url, code=1),
        cli("keys", "list", "--workspace", url, code=1),
        cli("serve", "--workspace", url, "--port", "0", code=1),
        cli("backup", str(tmp_path / "copy"), "--workspace", url, code=1),
        cli("copy", url, str(tmp_path / "copy"), code=1),
    ]
    settings = pointsman.Settings(workspace=url)
    settings_text = json.dumps(describe(settings))
    for text in (*errors, repr(settings), settings_text, redacted(url)):
        assert SECRET not in text


def test_redacted_leaves_the_rest_of_a_url() -> None:
    assert redacted("postgresql://a@b/c?schema=d") == "postgresql://a@b/c?schema=d"
    assert (
        redacted("opensearch+https://a:b@c:9200,d:9200/e?shards=3") == "opensearch+https://a@c:9200,d:9200/e?shards=3"
    )
    assert redacted("postgresql://a:p@ss@b/c") == "postgresql://a@b/c"
    assert redacted("postgresql://a:p/s@b/c?d=e@f") == "postgresql://a@b/c?d=e@f"
    assert redacted("postgresql://a@x:p?s#@b/c") == "postgresql://a@x@b/c"
    for url in ("http://localhost:8080/@a", "postgresql://a@b:5432,d:5433/e?user=f@g", "postgresql://a@[::1]:1/d@e"):
        assert redacted(url) == url
    assert redacted("C:\\a:b@c") == "C:\\a:b@c"


def test_a_file_url_is_its_folder_to_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("Every train on the right track.", "utf-8")
    cli("index", "files", "--dataset", "rails", "--workspace", "file:work")
    cli("backup", "kept", "--workspace", "file:work")
    cli("restore", "kept", "--workspace", f"file://{tmp_path}/again")
    cli("copy", "file:again", "FILE:third")
    assert json.loads(cli("status", "--json", "--workspace", "file:third"))["workspace"] == str(tmp_path / "third")
    for command in (("search", "train"), ("status",), ("keys", "list"), ("verify",), ("backup", "x")):
        assert "no workspace at 'typo'" in cli(*command, "--workspace", "file:typo", code=2), command
    assert "no workspace at 'typo'" in cli("copy", "file:typo", "x", code=2)
    monkeypatch.setenv("POINTSMAN_WORKSPACE", "file:typo")
    assert "no workspace at 'typo'" in cli("search", "train", code=2)
