"""A file keeps the source under which it was first stored, whichever path it is indexed by."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import httpx
import pytest

import pointsman
from command_kit import run_command
from pointsman import Document, Hit, RetrievalContext, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.tools.errors import InputError
from pointsman.values.retrieval_context import with_places
from pointsman.values.types import Refusal
from pointsman.workspace.indexing.folder_sync import watch_paths
from serving import serving

if TYPE_CHECKING:
    from pointsman.workspace.indexing.index_report import IndexReport

TEXTS = {
    "README.md": "How to begin.",
    "handbook/holidays.md": "Thirty days of holidays.",
    "handbook/travel.md": "Trains are paid for, second class.",
    "handbook/deep/signals.md": "A red signal stops trains.",
    "notes.md": "Bring a lamp.",
}


def write(folder: Path, texts: dict[str, str] = TEXTS) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write(tmp_path / "files")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return pointsman.open(tmp_path / "ws", embedder=HashingEmbedder())


def sources(workspace: Workspace) -> list[str]:
    """The source of each passage; there is one passage a file."""
    return sorted(str(document.metadata["source"]) for document in workspace.dataset("files"))


def changes(report: IndexReport) -> tuple[int, int, int, int]:
    passages = report.passages
    return passages.added, passages.updated, passages.unchanged, report.deleted


def test_a_folder_inside_an_indexed_one_is_the_same_files(files: Path, workspace: Workspace) -> None:
    workspace.index(files)
    assert changes(workspace.index(files / "handbook")) == (0, 0, 3, 0)
    assert sources(workspace) == sorted(TEXTS)
    write(files, {"handbook/new.md": "New.", "handbook/travel.md": "Trains, first class."})
    (files / "handbook" / "holidays.md").unlink()
    report = workspace.index(files / "handbook")
    assert changes(report) == (2, 0, 1, 2)
    assert "handbook/new.md" in sources(workspace)
    assert changes(workspace.index(files)) == (0, 0, 5, 0), "a new file belongs to the folder first indexed"


def test_the_folder_around_an_indexed_one_leaves_its_sources(files: Path, workspace: Workspace) -> None:
    workspace.index(files / "handbook")
    assert sources(workspace) == ["deep/signals.md", "holidays.md", "travel.md"]
    assert changes(workspace.index(files)) == (2, 0, 3, 0)
    all_sources = ["deep/signals.md", "files/README.md", "files/notes.md", "holidays.md", "travel.md"]
    assert sources(workspace) == all_sources
    write(files, {"handbook/deep/new.md": "New.", "more/new.md": "More."})
    assert changes(workspace.index(files)) == (2, 0, 5, 0)
    assert sources(workspace) == sorted([*all_sources, "deep/new.md", "files/more/new.md"])
    for path in (files / "handbook" / "deep", files / "handbook", files):
        assert workspace.index(path).passages.added == 0
    (files / "handbook" / "travel.md").unlink()
    assert workspace.index(files).deleted == 1
    shutil.rmtree(files / "handbook")
    assert workspace.index(files).deleted == 3


def test_two_folders_of_the_same_names_are_told_apart(tmp_path: Path, workspace: Workspace) -> None:
    first = write(tmp_path / "pa", {"README.md": "The first project.", "a.md": "A."})
    second = write(tmp_path / "pb", {"README.md": "The second project.", "b.md": "B."})
    workspace.index(first)
    workspace.index(second)
    all_sources = ["README.md", "a.md", "pb/README.md", "pb/b.md"]
    assert sources(workspace) == all_sources
    for paths in ([first, second], [second], [second, first], [first]):
        assert workspace.index(paths).passages.added == 0
        assert sources(workspace) == all_sources
    assert workspace.dataset("files").text("README.md").text == "The first project."
    (first / "README.md").unlink()
    assert workspace.index([first, second]).deleted == 1
    assert sources(workspace) == all_sources[1:]


def test_folders_of_the_same_name_get_longer_ones(tmp_path: Path, workspace: Workspace) -> None:
    folders = [write(tmp_path / name / "docs", {"a.md": f"Of {name}."}) for name in ("one", "two", "three")]
    for folder in folders:
        workspace.index(folder)
    assert sources(workspace) == ["a.md", "docs/a.md", "three/docs/a.md"]
    assert workspace.index(folders).passages.unchanged == 3


def test_a_name_that_a_folder_gets_later_is_not_mixed_up(tmp_path: Path, workspace: Workspace) -> None:
    first, second = write(tmp_path / "pa", {"a.md": "A."}), write(tmp_path / "pb", {"b.md": "B."})
    workspace.index(first)
    workspace.index(second)
    write(first, {"pb/b.md": "Another.", "pb/c.md": "C."})
    report = workspace.index(first)
    (problem,) = report.problems
    assert problem.path == "pb/b.md"
    assert str(second / "b.md") in problem.reason
    assert str(first / "pb" / "b.md") in problem.reason
    assert sources(workspace) == ["a.md", "pb/b.md", "pb/c.md"]
    assert workspace.dataset("files").text("pb/b.md").text == "B."
    assert len(workspace.index([first, second]).problems) == 1
    assert sources(workspace) == ["a.md", "pb/b.md", "pb/c.md"]


def test_a_folder_is_one_however_its_path_is_written(
    files: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.index(files)
    (tmp_path / "link").symlink_to(files)
    monkeypatch.chdir(files / "handbook")
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = (
        ".",
        "..",
        "../",
        "../../files",
        "./../../files/.",
        f"{files}/",
        "~/files",
        "~/link",
        tmp_path / "link",
    )
    for path in (*spellings, "../../link/handbook", "deep/", "deep/signals.md", "deep/../travel.md"):
        report = workspace.index(path)
        assert changes(report)[:2] == (0, 0), path
        assert report.deleted == 0, path
    assert sources(workspace) == sorted(TEXTS)
    workspace.index(["..", "deep", files, "travel.md"])
    assert sources(workspace) == sorted(TEXTS)


def test_a_new_folder_given_with_one_inside_it(files: Path, workspace: Workspace) -> None:
    workspace.index([files / "handbook", files])
    assert sources(workspace) == sorted(TEXTS)


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("name", ["files", "renamed"])
def test_the_same_folder_elsewhere_is_recognised(
    files: Path, workspace: Workspace, tmp_path: Path, is_gone: bool, name: str
) -> None:
    workspace.index(files)
    checkout = write(tmp_path / "checkout" / name, {**TEXTS, "notes.md": "Bring two lamps."})
    if is_gone:
        shutil.rmtree(files)
    report = workspace.index(checkout)
    assert sources(workspace) == sorted(TEXTS)
    assert changes(report) == (1, 4, 0, 1)
    (note,) = report.notes
    assert note.startswith(f"{checkout} is taken for {files}, indexed before: 4 of 5 files are the same")
    second_report = workspace.index(checkout)
    assert changes(second_report) == (0, 0, 5, 0)
    assert second_report.notes == ()


def test_a_recognised_folder_can_be_kept_apart(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.index(files)
    copy = tmp_path / "v2"
    shutil.copytree(files, copy)
    report = workspace.index([files, copy])
    assert report.notes == ()
    assert sources(workspace) == sorted([*TEXTS, *(f"v2/{name}" for name in TEXTS)])
    for path in (files, copy, copy / "handbook"):
        assert changes(workspace.index(path))[:2] == (0, 0)


def test_folders_that_share_files_are_not_merged(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.index(files)
    other_folder = write(tmp_path / "other", {**TEXTS, "notes.md": "Other notes.", "handbook/travel.md": "By bus."})
    report = workspace.index(other_folder)
    assert sources(workspace) == sorted([*TEXTS, *(f"other/{name}" for name in TEXTS)])
    (note,) = report.notes
    assert note.startswith(f"{other_folder} is indexed beside {files}: only 3 of 5 files are the same")
    assert f"pointsman delete --under {files}" in note
    licence = write(tmp_path / "third", {"LICENSE": "Free.", "a.md": "A", "b.md": "B", "README.md": TEXTS["README.md"]})
    assert workspace.index(licence).notes == ()


def test_equal_bytes_under_other_names_are_no_folder(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.index(files)
    write(tmp_path / "moved", {f"chapters/{name}": text for name, text in TEXTS.items()})
    assert workspace.index(tmp_path / "moved").passages.added == len(TEXTS)


def test_files_without_text_do_not_hide_that_a_folder_is_the_same(
    files: Path, workspace: Workspace, tmp_path: Path
) -> None:
    for number in range(20):
        (files / f"{number}.bin").write_bytes(b"\0\1")
    workspace.index(files)
    shutil.copytree(files, tmp_path / "checkout")
    assert workspace.index(tmp_path / "checkout").notes
    assert sources(workspace) == sorted(TEXTS)


def test_a_folder_inside_one_that_was_recognised(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.index(files)
    shutil.copytree(files, tmp_path / "checkout")
    workspace.index(tmp_path / "checkout")
    assert changes(workspace.index(tmp_path / "checkout" / "handbook")) == (0, 0, 3, 0)
    assert changes(workspace.index(files)) == (0, 5, 0, 0), "and back again"
    assert sources(workspace) == sorted(TEXTS)


def test_names_in_nfd_and_nfc_are_one(workspace: Workspace, tmp_path: Path) -> None:
    nfc, nfd = (normalize(form, "Übungen/größe.md") for form in ("NFC", "NFD"))
    first = write(tmp_path / "linux", {nfc: "A rail.", "a.md": "A.", "b.md": "B."})
    workspace.index(first)
    second = write(tmp_path / "macos", {nfd: "A rail.", "a.md": "A.", "b.md": "B."})
    report = workspace.index(second)
    assert sources(workspace) == sorted(["a.md", "b.md", nfc])
    assert report.deleted == 0
    assert changes(workspace.index(second)) == (0, 0, 3, 0)
    write(second, {nfc: "Another file."})
    workspace.index(second)
    assert len(workspace.dataset("files")) == len(list(second.rglob("*.md"))), "two names in most file systems"


def test_a_single_file_is_the_same_by_itself_and_in_its_folder(files: Path, workspace: Workspace) -> None:
    (files / "rows.jsonl").write_text('{"_id": "own", "text": "A record."}\n')
    rows = files / "rows.jsonl"
    workspace.index(rows)
    workspace.index(files / "handbook" / "travel.md")
    assert sources(workspace) == ["rows.jsonl", "travel.md"]
    assert "own" in workspace.dataset("files")
    workspace.index(files)
    new_sources = [f"files/{name}" for name in TEXTS if name != "handbook/travel.md"]
    assert sources(workspace) == sorted([*new_sources, "rows.jsonl", "travel.md"])
    assert "own" in workspace.dataset("files")
    assert changes(workspace.index(rows)) == (0, 0, 1, 0)
    assert changes(workspace.index(files / "README.md")) == (0, 0, 1, 0)
    assert changes(workspace.index([rows, files / "handbook" / "travel.md"])) == (0, 0, 2, 0)


def test_records_of_a_folder_keep_their_ids_when_their_file_is_given(files: Path, workspace: Workspace) -> None:
    (files / "rows.jsonl").write_text('{"_id": "own", "text": "A record."}\n')
    workspace.index(files)
    assert changes(workspace.index(files / "rows.jsonl")) == (0, 0, 1, 0)


def test_a_moved_file_is_recognised_by_its_name_and_bytes(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path, {"one/report.md": "A report.", "two/report.md": "A report.", "two/copy.md": "A report."})
    workspace.index(tmp_path / "one" / "report.md")
    assert changes(workspace.index(tmp_path / "two" / "copy.md")) == (1, 0, 0, 0), "another name is another file"
    assert workspace.index(tmp_path / "two" / "report.md").passages.updated == 1
    assert sources(workspace) == ["copy.md", "report.md"]


def test_sources_that_others_gave_are_left_alone(files: Path, workspace: Workspace) -> None:
    workspace.dataset("files").add([Document("own", "A note.", {"source": "README.md"})])
    workspace.index(files)
    assert sources(workspace) == sorted(["README.md", *(f"files/{name}" for name in TEXTS)])


def test_what_is_left_out_keeps_its_source_until_pruned(files: Path, workspace: Workspace) -> None:
    workspace.index(files / "handbook")
    workspace.index(files, exclude="deep/")
    (files / ".gitignore").write_text("handbook/\n")
    report = workspace.index(files)
    assert report.stored_omissions == ("deep/signals.md", "holidays.md", "travel.md")
    assert report.deleted == 0
    assert workspace.index(files / "handbook").passages.unchanged == 3, "what is given is read"
    (files / "handbook" / "travel.md").unlink()
    report = workspace.index(files)
    assert (report.deleted, report.stored_omissions) == (1, ("deep/signals.md", "holidays.md"))
    assert workspace.index(files, prune=True).deleted == 2
    assert sources(workspace) == ["files/README.md", "files/notes.md"]


def test_what_a_checkout_leaves_out_is_named(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.index(files)
    shutil.copytree(files, tmp_path / "checkout")
    report = workspace.index(tmp_path / "checkout", exclude="notes.md")
    assert report.notes
    assert (report.deleted, report.stored_omissions) == (0, ("notes.md",))
    assert workspace.index(tmp_path / "checkout").passages.updated == 1
    assert sources(workspace) == sorted(TEXTS)


def test_what_cannot_be_read_keeps_what_is_stored(
    files: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.index(files / "handbook" / "deep")
    workspace.index(files)

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:  # a fake: the tests run as root, who can read everything
        if path == str(files / "handbook"):
            raise PermissionError(13, "Permission denied", path)
        return real_scandir(path)

    real_scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    report = workspace.index(files)
    assert report.deleted == 0
    assert [problem.path for problem in report.problems] == ["files/handbook", "."]


def test_a_store_of_before_is_put_in_order(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    """Roots without a name, as they were stored before: sources given by several paths, and the same file doubles."""
    other_folder = write(tmp_path / "other", {"a.md": "A."})
    dataset = workspace.dataset("files")
    workspace.index([files, other_folder])
    dataset.set_metadata(
        {document.id: {"root": str(files if "files/" in document.id else other_folder)} for document in dataset}
    )
    old_sources = sources(workspace)
    assert workspace.index(files).passages.added == 0
    assert sources(workspace) == old_sources
    doubles = [
        Document(f"{name.removeprefix('handbook/')}#x", text, {"source": name.removeprefix("handbook/")})
        for name, text in TEXTS.items()
        if name.startswith("handbook/")
    ]
    dataset.add([Document(d.id, d.text, {**d.metadata, "root": str(files / "handbook")}) for d in doubles])
    assert len(dataset) == 9
    workspace.index(files)
    assert len(dataset) == 6


def captions(workspace: Workspace, question: str) -> list[str]:
    return sorted(hit.caption for hit in workspace.search(question, 10, refuse=False).hits)


def test_captions_are_longer_where_files_would_look_alike(tmp_path: Path, workspace: Workspace) -> None:
    for name in ("pa", "pb", "pc"):
        folder = write(
            tmp_path / name, {"README.md": f"The railway project {name}.", f"{name}.md": f"A switch {name}."}
        )
        workspace.index(folder)
    all_files = ["README (README.md)", "README (pb/README.md)", "README (pc/README.md)", "pa", "pb", "pc"]
    assert captions(workspace, "railway project switch") == all_files
    (only_one,) = workspace.search("railway project", 1, refuse=False).hits
    assert only_one.caption == "README"
    answer = workspace.search("railway project", filters='source endswith "README.md"', refuse=False)
    assert RetrievalContext.from_dict(answer.to_dict()).hits == answer.hits
    citations = {str(hit.citation) for hit in answer.hits}
    assert len(citations) == len(answer.hits)
    refusal = Refusal("Nothing is near.", near_misses=answer.hits)
    refused = RetrievalContext.from_dict(replace(answer, hits=(), refused=refusal).to_dict()).refused
    assert refused is not None
    assert sorted(hit.caption for hit in refused.near_misses) == all_files[:3]


def test_captions_of_records_and_of_files_without_a_title_are_told_apart() -> None:
    rows = [Document(name, "A row.", {"source": name, "kind": "csv", "name": "Ann"}) for name in ("a.csv", "b.csv")]
    logs = [Document(name, "A line.", {"source": f"{name}/today.log", "line": 3}) for name in ("a", "b/a", "c")]
    hits = tuple(Hit(document, 1.0) for document in (*rows, *logs))
    assert [hit.caption for hit in with_places(hits, "row")] == [
        *("Ann (a.csv)", "Ann (b.csv)"),
        *("a/today.log, line 3", "b/a/today.log, line 3", "c/today.log, line 3"),
    ]


@pytest.fixture(scope="module")
def folder_indexed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files, a link to them, and the workspace that they were indexed in, closed."""
    folder = tmp_path_factory.mktemp("indexed")
    with pointsman.open(folder / "ws", embedder=HashingEmbedder()) as workspace:
        workspace.index(write(folder / "files"))
    (folder / "link").symlink_to(folder / "files")
    shutil.copytree(folder / "ws", folder / "ws of the index")
    return folder


@pytest.fixture
def indexed_folder(folder_indexed_once: Path) -> Path:
    """The same folder with the workspace as it was indexed, whatever an earlier test has deleted there."""
    shutil.rmtree(folder_indexed_once / "ws")
    shutil.copytree(folder_indexed_once / "ws of the index", folder_indexed_once / "ws")
    return folder_indexed_once


@pytest.mark.parametrize(
    ("under", "count"),
    [
        ("handbook", 3),
        ("handbook/", 3),
        ("/handbook", 3),
        ("handbook/deep", 1),
        ("handbook/deep/../deep", 1),
        ("./files/handbook", 3),
        ("files/handbook/", 3),
        ("files/handbook/travel.md", 1),
        ("files", 5),
        ("../{base}/files", 5),
        ("~/files/handbook", 3),
        ("{folder}/files/handbook/", 3),
        ("{folder}/files/../files", 5),
        ("link/handbook", 3),
        ("{folder}/link", 5),
        (".", 5),
        ("{folder}", 5),
        ("hand", 0),
        ("files/hand", 0),
        ("{folder}/file", 0),
        ("*", 0),
    ],
)
@pytest.mark.parametrize("door", ["Python", "command", "client"])
def test_the_files_of_a_folder_are_deleted_however_it_is_named(
    under: str, count: int, door: str, indexed_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = pointsman.open(indexed_folder / "ws", embedder=HashingEmbedder())
    monkeypatch.chdir(indexed_folder)
    monkeypatch.setenv("HOME", str(indexed_folder))
    under = under.format(folder=indexed_folder, base=indexed_folder.name)
    if door == "command":
        process = run_command("delete", "--under", under, "-w", "ws", "--json", folder=indexed_folder)
        assert json.loads(process.stdout)["deleted"] == count
        assert process.returncode == (0 if count else 1)
    elif door == "Python":
        assert workspace.dataset("files").delete(under=under) == count
    else:
        with serving(create_app(workspace)) as address, Client(address) as client:
            assert client.dataset("files").delete(under=under) == count
        workspace = pointsman.open(indexed_folder / "ws", embedder=HashingEmbedder())
    assert len(workspace.dataset("files")) == 5 - count


@pytest.mark.parametrize("under", ["", " ", "/", "//", "/.."])
def test_the_folder_of_everything_is_not_deleted(under: str, files: Path, workspace: Workspace) -> None:
    workspace.index(files)
    with serving(create_app(workspace)) as address, Client(address) as client:
        for dataset in (workspace.dataset("files"), client.dataset("files")):
            with pytest.raises(InputError, match="under names a folder"):
                dataset.delete(under=under)
        answer = httpx.request("DELETE", f"{address}/api/datasets/files/documents", json={"under": under})
        assert answer.status_code == 422
        assert "under names a folder" in answer.text
        assert len(workspace.dataset("files")) == 5


def test_a_folder_restricts_what_else_is_asked_for(files: Path, workspace: Workspace) -> None:
    workspace.index(files)
    dataset = workspace.dataset("files")
    ids = {str(document.metadata["source"]): document.id for document in dataset}
    assert dataset.delete([ids["notes.md"], ids["handbook/travel.md"], "unknown"], under="handbook") == 1
    assert dataset.delete(filters='source endswith "signals.md"', under=files / "handbook") == 1
    assert dataset.delete([], under="handbook") == 0
    assert sources(workspace) == ["README.md", "handbook/holidays.md", "notes.md"]


def test_a_service_looks_into_no_folder_of_its_own(
    files: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.index(files)
    monkeypatch.chdir(files.parent)
    with serving(create_app(workspace)) as address:

        def delete(under: str) -> httpx.Response:
            return httpx.request("DELETE", f"{address}/api/datasets/files/documents", json={"under": under}, timeout=60)

        for under in ("~/files", "./files", "../files", "handbook/../..", "."):
            assert delete(under).status_code == 422, under
        assert delete("files").json() == {"deleted": 0}
        assert delete("handbook").json() == {"deleted": 3}
        assert delete(str(files)).json() == {"deleted": 2}


def test_a_client_keeps_sources_as_a_folder_does(files: Path, workspace: Workspace, tmp_path: Path) -> None:
    with serving(create_app(workspace)) as address, Client(address) as client:
        assert changes(client.index(files)) == (5, 0, 0, 0)
        assert changes(client.index(files / "handbook")) == (0, 0, 3, 0)
        other_folder = write(tmp_path / "other", {"README.md": "Another beginning."})
        assert changes(client.index(other_folder)) == (1, 0, 0, 0)
        shutil.copytree(files, tmp_path / "checkout")
        report = client.index(tmp_path / "checkout")
        assert changes(report) == (0, 5, 0, 0)
        assert len(report.notes) == 1
        assert sources(workspace) == sorted([*TEXTS, "other/README.md"])
        hits = client.search("beginning", 10, refuse=False).hits
        assert {hit.caption for hit in hits} >= {"README (README.md)", "README (other/README.md)"}


def test_the_command_says_what_it_took_a_folder_for(files: Path, tmp_path: Path) -> None:
    options = ("-d", "files", "-w", str(tmp_path / "ws"), "--technique", "keyword")
    run_command("index", str(files), *options)
    shutil.copytree(files, tmp_path / "checkout")
    process = run_command("index", str(tmp_path / "checkout"), *options)
    assert process.stdout.count(f"checkout is taken for {files}, indexed before: 5 of 5 files are the same") == 1
    form = json.loads(run_command("index", str(files), *options, "--json").stdout)
    assert (form["updated"], len(form["notes"])) == (5, 1)
    assert json.loads(run_command("index", str(files), *options, "--json").stdout)["notes"] == []


def readers(workspace: Workspace) -> dict[str, Any]:
    documents = list(workspace.dataset("files"))
    return {str(d.metadata["source"]): (d.metadata.get("_access") or {}).get("allow") for d in documents}


def test_rules_of_access_are_for_paths_in_the_folder_that_is_given(files: Path, workspace: Workspace) -> None:
    workspace.index(files)
    report = workspace.index(files / "handbook", access=["deep=group:drivers", "*.md=everyone"])
    assert report.problems == ()
    assert readers(workspace)["handbook/deep/signals.md"] == ["group:drivers"]
    assert readers(workspace)["handbook/travel.md"] == ["everyone"]
    assert readers(workspace)["notes.md"] is None
    workspace.index([files / "notes.md", files / "handbook"], access=["notes.md=group:a", "handbook/deep=group:b"])
    assert readers(workspace)["notes.md"] == ["group:a"]
    assert readers(workspace)["handbook/deep/signals.md"] == ["group:b"]


def test_watching_keeps_sources(files: Path, workspace: Workspace) -> None:
    workspace.index(files)
    stop = threading.Event()
    reports = watch_paths(workspace.dataset("files"), [files / "handbook"], stop=stop)
    assert changes(next(reports)) == (0, 0, 3, 0)
    write(files, {"handbook/new.md": "New.", "handbook/travel.md": "By bus."})
    (files / "handbook" / "deep" / "signals.md").unlink()
    while not sources(workspace).count("handbook/new.md") or "handbook/deep/signals.md" in sources(workspace):
        next(reports)
    stop.set()
    list(reports)
    assert sources(workspace) == sorted({*TEXTS, "handbook/new.md"} - {"handbook/deep/signals.md"})
