"""Files and folders that must not be read: nothing that is in them is taken for gone, and the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import measured
from pointsman.tools.errors import InputError, RetrievalError, StoreError
from pointsman.workspace.copies.backup import backup
from pointsman.workspace.indexing.folder_sync import watch_paths
from rights_kit import rights_hold, with_rights


@pytest.fixture
def workspace_folder(tmp_path: Path) -> Path:
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        for name in ("day", "night"):
            workspace.dataset(name).add([Document(name, f"the rail by {name}")])
    return tmp_path / "w"


def open_workspace(path: Path) -> Workspace:
    return Workspace(path, embedder=HashingEmbedder())


def _answers(workspace_folder: Path) -> tuple[list[str], list[str], tuple[str, ...], str]:
    with open_workspace(workspace_folder) as workspace:
        answer = workspace.search("rail", refuse=False)
        with pytest.raises(RetrievalError) as error_info:
            workspace.search("rail", datasets=["night"])
        return workspace.names(), [hit.id for hit in answer.hits], answer.degraded, str(error_info.value)


@pytest.mark.parametrize("file", ["datasets/night", "datasets/night/manifest.json"])
def test_a_dataset_that_must_not_be_read_is_not_taken_for_gone(workspace_folder: Path, file: str) -> None:
    (workspace_folder / file).chmod(0)
    names, hits, degraded, refusal = with_rights(_answers, workspace_folder)
    assert (names, hits) == (["day", "night"], ["day"])
    for line in (*degraded, refusal):
        assert "night" in line
        assert "Permission denied; check its owner" in line
    assert len(degraded) == 1
    with rights_hold(), pytest.raises(StoreError, match="Permission denied"):
        backup(workspace_folder, workspace_folder.parent / "copy")
    assert not (workspace_folder.parent / "copy").exists()
    (workspace_folder / file).chmod(0o700)


def test_what_is_backed_up_is_whole(workspace_folder: Path) -> None:
    (workspace_folder / "evaluations").mkdir(mode=0)
    with rights_hold(), pytest.raises(StoreError, match=r"evaluations cannot be read"):
        backup(workspace_folder, workspace_folder.parent / "copy")
    assert not (workspace_folder.parent / "copy").exists()


@pytest.mark.parametrize("file", [".", "datasets", "datasets/night", "workspace.json", "policy.json"])
def test_every_operation_says_so(workspace_folder: Path, file: str) -> None:
    operations: list[Callable[[Workspace], object]] = [
        Workspace.names,
        Workspace.stored_policy,
        lambda workspace: workspace.search("rail"),
        lambda workspace: workspace.status("night"),
        lambda workspace: workspace.dataset("night").add([Document("new", "rail")]),
        lambda workspace: workspace.drop("night"),
        lambda workspace: backup(workspace_folder, workspace_folder.parent / "copy"),
    ]
    open_workspace(workspace_folder).keep(measured())
    (workspace_folder / file).chmod(0)
    reports = []
    with rights_hold():
        for operation in operations:
            try:
                operation(open_workspace(workspace_folder))
            except StoreError as error:
                reports.append("Permission denied; check its owner" in str(error))
    assert reports
    assert all(reports)


def test_nothing_is_written_where_that_is_forbidden(workspace_folder: Path) -> None:
    for path in [workspace_folder, *workspace_folder.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    with rights_hold(), open_workspace(workspace_folder) as workspace:
        assert len(workspace.search("rail", refuse=False).hits) == 2
        with pytest.raises(StoreError, match="cannot be read or written to: Permission denied"):
            workspace.dataset("day").add([Document("new", "rail")])
        assert workspace.dataset("day").verify().problems == ()


class TestIndexing:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in ("a.md", "inner/b.md", "inner/deep/c.md", "z.md"):
            path = tmp_path / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {name}\n\nThe rail of {path.stem}.\n")
        return tmp_path / "files"

    @pytest.mark.parametrize(("rights", "problem_paths"), [(0, ["inner"]), (0o400, ["inner/b.md", "inner/deep"])])
    def test_the_rest_is_indexed_and_what_is_stored_stays(
        self, folder: Path, rights: int, problem_paths: list[str]
    ) -> None:
        (folder / "inner").chmod(rights)
        with rights_hold(), open_workspace(folder.parent / "w") as workspace:
            report = workspace.index(folder, "fresh")
            assert (report.files, [problem.path for problem in report.problems]) == (2, problem_paths)
            (folder / "inner").chmod(0o700)
            assert workspace.index(folder, "files").passages.added == 4
            (folder / "inner").chmod(rights)
            second_report = workspace.index(folder, "files")
            assert (second_report.files, second_report.deleted, len(workspace.dataset("files"))) == (2, 0, 4)
            assert {problem.reason for problem in second_report.problems} == {"cannot be read: Permission denied"}
        (folder / "inner").chmod(0o700)

    def test_a_folder_that_is_given_must_be_readable(self, folder: Path) -> None:
        folder.chmod(0)
        with rights_hold(), open_workspace(folder.parent / "w") as workspace:
            for path in (folder, folder / "inner"):
                with pytest.raises(InputError, match=r"cannot be read: permission denied|no file or folder"):
                    workspace.index(path)
        folder.chmod(0o700)

    def test_a_disk_that_fails_deletes_nothing(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_workspace(folder.parent / "w") as workspace:
            workspace.index(folder, "files")

            def fail(path: str) -> object:
                raise OSError(5, "Input/output error", path)

            monkeypatch.setattr("os.scandir", fail)
            report = workspace.index(folder, "files")
            assert (report.files, report.deleted, len(workspace.dataset("files"))) == (0, 0, 4)
            assert [(problem.path, problem.reason) for problem in report.problems] == [
                (".", "cannot be read: Input/output error")
            ]

    def test_while_it_is_watched(self, folder: Path) -> None:
        pytest.importorskip("watchfiles")
        with rights_hold(), open_workspace(folder.parent / "w") as workspace:
            dataset = workspace.dataset("files")
            stop = threading.Event()
            rounds = watch_paths(dataset, [folder], stop=stop)
            assert next(rounds).passages.added == 4
            (folder / "inner").chmod(0)
            (folder / "z.md").unlink()
            report = next(rounds)
            while not report.deleted:
                report = next(rounds)
            assert {document.metadata["source"] for document in dataset} == {"a.md", "inner/b.md", "inner/deep/c.md"}
            stop.set()
            assert list(rounds) == []
        (folder / "inner").chmod(0o700)


def test_a_path_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        Workspace(tmp_path / "latin\udce9")
