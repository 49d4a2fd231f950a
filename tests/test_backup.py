"""Backups of a workspace in use, and what comes back of them; hostile and damaged ones."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import measured
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, InputError, PointsmanError
from pointsman.workspace.copies.backup import MANIFEST, _checksum, backup, restore

WORKER = Path(__file__).with_name("backup_worker.py")
TEXTS = {
    "en": "The signal lamp shows red when a train must stop.",
    "ru": "Светофор показывает красный, когда поезд должен остановиться.",
    "zh": "列车必须停车时，信号灯显示红色。",
}


def open_workspace(path: Path) -> Workspace:
    return Workspace(path, embedder=HashingEmbedder())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace and its backup, made once; every test has copies of its own."""
    folder = tmp_path_factory.mktemp("template")
    with open_workspace(folder / "ws") as workspace:
        for name in ("notes", "заметки", "笔记.v2"):
            workspace.dataset(name, description=f"about {name}").add(
                [
                    Document(f"{lang}{n}", f"{text} {n}", {"lang": lang})
                    for lang, text in TEXTS.items()
                    for n in range(9)
                ]
            )
        workspace.dataset("words", indexing_technique="keyword").add([Document("one", "rail")])
        workspace.keep(measured())
        (workspace.path / "keys.json").write_text('{"keys": []}')
        (workspace.path / "keys.json").chmod(0o600)
        (workspace.path / "evaluations" / "deep er").mkdir(parents=True)
        (workspace.path / "evaluations" / "2026-01-01.json").write_text("{}")
        (workspace.path / "evaluations" / "deep er" / "two.json").write_text("[]")
        backup(workspace, folder / "backup")
    return folder


@pytest.fixture
def workspace(template: Path, tmp_path: Path) -> Iterator[Workspace]:
    shutil.copytree(template / "ws", tmp_path / "ws")
    with open_workspace(tmp_path / "ws") as workspace:
        yield workspace


@pytest.fixture
def saved_backup(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template / "backup", tmp_path / "backup")


def answers(workspace: Workspace) -> list[Any]:
    queries = [*TEXTS.values(), "красный", "红色", "train 3"]
    rows = []
    for name in workspace.names():
        dataset = workspace.dataset(name)
        for method in ("bm25", "vector") if dataset.indexing_technique == "hybrid" else ("bm25",):
            for query in queries:
                hits = dataset.retriever(method).retrieve(query, 10)
                rows.append([(hit.id, pytest.approx(hit.score, abs=1e-5), hit.text, hit.metadata) for hit in hits])
    return rows


class TestRoundTrip:
    def test_everything_comes_back(self, workspace: Workspace, tmp_path: Path) -> None:
        steps: list[tuple[int, int, str]] = []
        report = backup(workspace, tmp_path / "b", on_progress=lambda *step: steps.append(step))
        assert report.datasets == {"notes": 27, "words": 1, "заметки": 27, "笔记.v2": 27}
        assert [step[2] for step in steps] == [*workspace.names(), ""]
        assert steps[-1][:2] == (4, 4)
        restoration = restore(tmp_path / "b", tmp_path / "again")
        assert restoration.verified
        assert restoration.datasets == report.datasets
        assert (restoration.files, restoration.bytes, restoration.time) == (report.files, report.bytes, report.time)
        with open_workspace(tmp_path / "again") as restored_workspace:
            assert answers(restored_workspace) == answers(workspace)
            assert restored_workspace.dataset("заметки").description == "about заметки"
            assert restored_workspace.dataset("words").indexing_technique == "keyword"
            assert restored_workspace.dataset("notes").add([Document("new", "rail")]).added == 1
        for name in ("workspace.json", "policy.json", "keys.json", "evaluations/deep er/two.json"):
            assert (tmp_path / "again" / name).read_bytes() == (workspace.path / name).read_bytes()
        assert (tmp_path / "again" / "keys.json").stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "b", "ws"]  # nothing is left beside them

    def test_without_verifying_the_indexes_come_with_the_first_search(self, saved_backup: Path, tmp_path: Path) -> None:
        assert not restore(saved_backup, tmp_path / "again", verify=False).verified
        assert not (tmp_path / "again" / "datasets" / "notes" / "keyword").exists()
        with open_workspace(tmp_path / "again") as restored_workspace:
            assert restored_workspace.dataset("notes").retriever("bm25").retrieve("красный", 1)

    def test_a_backup_of_a_backup_restored(self, saved_backup: Path, tmp_path: Path) -> None:
        restore(saved_backup, tmp_path / "one")
        backup(tmp_path / "one", tmp_path / "second")
        assert restore(tmp_path / "second", tmp_path / "two").datasets["notes"] == 27

    def test_an_empty_workspace(self, tmp_path: Path) -> None:
        with open_workspace(tmp_path / "ws") as original:
            original.keep(measured())
            backup(original, tmp_path / "b")
        restore(tmp_path / "b", tmp_path / "again")
        with open_workspace(tmp_path / "again") as restored_workspace:
            assert restored_workspace.names() == []

    def test_links_and_strangers_are_left_out(self, workspace: Workspace, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        (workspace.path / "evaluations" / "link.json").symlink_to(tmp_path / "secret")
        (workspace.path / "stranger").write_text("x")
        backup(workspace, tmp_path / "b")
        assert not (tmp_path / "b" / "evaluations" / "link.json").exists()
        assert not (tmp_path / "b" / "stranger").exists()


class TestWhileInUse:
    def test_another_process_writes_meanwhile(self, workspace: Workspace, tmp_path: Path) -> None:
        command = [sys.executable, "-W", "error", str(WORKER), "write", str(workspace.path)]
        workspace.dataset("notes").close()  # it has been the writer
        acknowledged_ids: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            output = writer.stdout
            assert output is not None
            reader = threading.Thread(target=lambda: acknowledged_ids.extend(map(str.strip, output)))
            reader.start()
            for number in range(3):
                while len(acknowledged_ids) < 5 * (number + 1):
                    time.sleep(0.01)
                ids_before = list(acknowledged_ids)
                report = backup(workspace.path, tmp_path / f"b{number}")
                restoration = restore(tmp_path / f"b{number}", tmp_path / f"r{number}")
                with open_workspace(tmp_path / f"r{number}") as restored_workspace:
                    notes = restored_workspace.dataset("notes")
                    assert set(ids_before) <= set(notes.ids())
                    assert len(notes) == report.datasets["notes"] == restoration.datasets["notes"]
                    assert not notes.verify().problems
                    last = ids_before[-1].replace("w", "number")
                    assert [hit.id for hit in notes.retriever("bm25").retrieve(last, 1)] == [ids_before[-1]]
            writer.kill()
            reader.join()
        assert writer.returncode == -9, "the backups have stopped the writer"

    def test_a_dataset_deleted_meanwhile(self, workspace: Workspace, tmp_path: Path) -> None:
        def delete(_count: int, _total: int, name: str) -> None:
            if name == "notes":
                with open_workspace(workspace.path) as other_workspace:
                    workspace.dataset("notes").release()
                    other_workspace.drop("notes")

        report = backup(workspace, tmp_path / "b", on_progress=delete)
        assert report.skipped == ("notes",)
        assert "notes" not in report.datasets
        assert "notes" not in restore(tmp_path / "b", tmp_path / "again").datasets

    def test_killed_backups_restore_nothing(self, workspace: Workspace, tmp_path: Path) -> None:
        workspace.close()
        target, chance = tmp_path / "backups", random.Random(5)
        command = [sys.executable, "-W", "error", str(WORKER), "backup", str(workspace.path), str(target)]
        for _ in range(3):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(chance.uniform(0.02, 0.3))
                process.kill()
            for path in list(target.iterdir() if target.exists() else ()):
                if path.is_dir() and path.name.startswith(".") and not (path / MANIFEST).exists():
                    with pytest.raises(InputError, match="not a backup"):
                        restore(path, tmp_path / "never")
                elif path.is_dir():
                    restore(path, tmp_path / "whole")
                    shutil.rmtree(tmp_path / "whole")
            assert not (tmp_path / "never").exists()
            complete = [path for path in target.iterdir() if not path.name.startswith(".")]
            for path in complete:
                shutil.rmtree(path)
        backup(workspace.path, target / "0")  # what was left there is in nobody's way
        assert [path.name for path in target.iterdir() if path.name.startswith(".0")] == []

    def test_of_two_into_the_same_folder_the_first_that_ends_stays(self, workspace: Workspace, tmp_path: Path) -> None:
        def back_up_again(_count: int, total: int, name: str) -> None:
            if name == "notes":
                assert backup(workspace, tmp_path / "b").datasets["notes"] == 27

        with pytest.raises(InputError, match="not a new or empty folder"):
            backup(workspace, tmp_path / "b", on_progress=back_up_again)
        assert restore(tmp_path / "b", tmp_path / "again").datasets["notes"] == 27
        assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "b", "ws"]


class TestRefusals:
    def test_targets(self, workspace: Workspace, saved_backup: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        (tmp_path / "empty").mkdir()
        for target in (workspace.path, saved_backup, workspace.path / "workspace.json", tmp_path / "link"):
            with pytest.raises(InputError, match=r"empty|inside"):
                backup(workspace, target)
            with pytest.raises(InputError, match="empty"):
                restore(saved_backup, target)
        with pytest.raises(InputError, match="inside"):
            backup(workspace, workspace.path / "backup")
        with pytest.raises(InputError, match="no workspace"):
            backup(tmp_path / "empty", tmp_path / "b")
        assert restore(saved_backup, tmp_path / "empty").verified

    def test_no_backup(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(InputError, match="pointsman backup"):
                restore(path, tmp_path / "again")

    @pytest.mark.parametrize("damage", ["flip", "cut", "remove", "grow", "folder", "link"])
    @pytest.mark.parametrize(
        "name", ["datasets/notes/documents.sqlite", "datasets/notes/manifest.json", "policy.json", "keys.json"]
    )
    def test_damaged_files(self, saved_backup: Path, tmp_path: Path, name: str, damage: str) -> None:
        path = saved_backup / name
        content = path.read_bytes()
        middle = len(content) // 2
        path.unlink()
        if damage == "flip":
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        elif damage == "cut":
            path.write_bytes(content[:middle])
        elif damage == "grow":
            path.write_bytes(content + b" ")
        elif damage == "folder":
            path.mkdir()
        elif damage == "link":
            (tmp_path / "elsewhere").write_bytes(content)
            path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError if damage == "link" else CorruptStoreError, match=name.rpartition("/")[2]):
            restore(saved_backup, tmp_path / "again")
        assert not (tmp_path / "again").exists()

    def test_every_byte_of_the_manifest_counts(self, saved_backup: Path, tmp_path: Path) -> None:
        content = (saved_backup / MANIFEST).read_bytes()
        for position in random.Random(3).sample(range(len(content)), 150):
            damaged_content = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
            try:
                is_same = json.loads(damaged_content) == json.loads(content)
            except ValueError:
                is_same = False
            if is_same:
                continue
            (saved_backup / MANIFEST).write_bytes(damaged_content)
            with pytest.raises(PointsmanError):
                restore(saved_backup, tmp_path / "again", verify=False)
            assert not (tmp_path / "again").exists()

    def test_a_folder_that_is_linked(self, saved_backup: Path, tmp_path: Path) -> None:
        shutil.move(saved_backup / "datasets", tmp_path / "elsewhere")
        (saved_backup / "datasets").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="link"):
            restore(saved_backup, tmp_path / "again")

    def test_another_format(self, saved_backup: Path, tmp_path: Path) -> None:
        rewrite(saved_backup, lambda value: value.update(format=2))
        with pytest.raises(FormatVersionError, match="format 2"):
            restore(saved_backup, tmp_path / "again")

    @pytest.mark.parametrize(
        "path",
        [
            "../outside",
            "/etc/passwd",
            "evaluations/../../outside",
            "evaluations/../workspace.json",
            "evaluations//x",
            "evaluations/.hidden",
            "evaluations/x\0y",
            "evaluations\\..\\x",
            "evaluations",
            "datasets/../documents.sqlite",
            "datasets/./documents.sqlite",
            "datasets/.notes/documents.sqlite",
            "datasets/notes/writer.lock",
            "datasets/notes/keyword/meta.json",
            "datasets/notes/../../x",
            "stranger.json",
            "backup.json",
            "",
            "evaluations/" + "a/" * 20 + "b",
            "evaluations/" + "n" * 300,
            None,
            7,
            ["evaluations/x"],
        ],
    )
    def test_hostile_names(self, saved_backup: Path, tmp_path: Path, path: Any) -> None:
        (saved_backup / "evaluations" / "x").write_text("x")
        (tmp_path / "outside").write_text("x")
        entry = {"path": path, "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        rewrite(saved_backup, lambda value: value["files"].append(entry))
        entries_before = sorted(tmp_path.iterdir())
        with pytest.raises(InputError, match="not a workspace file"):
            restore(saved_backup, tmp_path / "again")
        assert sorted(tmp_path.iterdir()) == entries_before

    @pytest.mark.parametrize(
        "change",
        [
            lambda value: value["files"].append(value["files"][0]),
            lambda value: value["datasets"].update(other=1),
            lambda value: value["datasets"].pop("notes"),
            lambda value: value["datasets"].update({"../x": 1}),
            lambda value: value["datasets"].update(notes=-1),
            lambda value: value["datasets"].update(notes=True),
            lambda value: value["datasets"].update(notes=28),
            lambda value: value.update(datasets=[]),
            lambda value: value.update(files=None),
            lambda value: value.update(files={}),
            lambda value: value.update(time="yesterday"),
            lambda value: value["files"][0].update(size=-1),
            lambda value: value["files"][0].update(sha256="x"),
            lambda value: value["files"][0].pop("sha256"),
            lambda value: value.pop("files"),
        ],
    )
    def test_manifests_that_are_none(
        self, saved_backup: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
    ) -> None:
        rewrite(saved_backup, change)
        with pytest.raises((InputError, CorruptStoreError)):
            restore(saved_backup, tmp_path / "again")
        assert not (tmp_path / "again").exists()

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"format": 1}'])
    def test_manifests_that_are_not_even_that(self, saved_backup: Path, tmp_path: Path, content: bytes) -> None:
        (saved_backup / MANIFEST).write_bytes(content)
        with pytest.raises(CorruptStoreError, match="another backup"):
            restore(saved_backup, tmp_path / "again")

    def test_documents_that_are_not_as_written(self, saved_backup: Path, tmp_path: Path) -> None:
        """Checksums of the files are right, and what is in them is not: verification tells."""
        path = saved_backup / "datasets" / "notes" / "documents.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("UPDATE documents SET text = 'forged' WHERE key = 1")
        connection.close()
        content = path.read_bytes()

        def change(value: dict[str, Any]) -> None:
            [entry] = [file for file in value["files"] if file["path"] == "datasets/notes/documents.sqlite"]
            entry.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())

        rewrite(saved_backup, change)
        with pytest.raises(CorruptStoreError, match=r"'notes'.*does not match its checksum"):
            restore(saved_backup, tmp_path / "again")
        assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def rewrite(saved_backup: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who knows how its checksum is made."""
    value = json.loads((saved_backup / MANIFEST).read_bytes())
    change(value)
    value["checksum"] = _checksum(value)
    (saved_backup / MANIFEST).write_text(json.dumps(value))


class TestCommandLine:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys, typer; from pointsman.cli.commands.backup_command import backup, restore\n"
            "from pointsman.tools.errors import *\n"
            "app = typer.Typer(pretty_exceptions_enable=False); app.command()(backup); app.command()(restore)\n"
            "try: app()\nexcept PointsmanError as error: sys.exit(str(error))"
        )
        return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)

    def test_there_and_back(self, workspace: Workspace, tmp_path: Path) -> None:
        target, restored_path = str(tmp_path / "b"), str(tmp_path / "again")
        backup_process = self.run("backup", target, "--workspace", str(workspace.path), "--json")
        assert backup_process.returncode == 0, backup_process.stderr
        assert json.loads(backup_process.stdout)["datasets"]["notes"] == 27
        restore_process = self.run("restore", target, "--workspace", restored_path)
        assert restore_process.returncode == 0, restore_process.stderr
        assert "82 documents of 4 datasets restored" in " ".join(restore_process.stdout.split())
        assert "verified" in restore_process.stdout
        refused = self.run("restore", target, "--workspace", restored_path, "--json")
        assert refused.returncode == 1
        assert "not a new or empty folder" in refused.stderr
