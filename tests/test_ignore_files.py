"""What is read of a folder: its ignore files, what the caller includes and excludes, and what is said of the others."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from command_kit import run_command
from pointsman import Dataset
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.ingest import FoundFile, Omission, Problem, find_files, read_paths
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.tools.errors import InputError
from pointsman.workspace.indexing.folder_sync import index_paths
from serving import serving

if TYPE_CHECKING:
    from pointsman.workspace.indexing.index_report import IndexReport

Files = dict[str, str]


def write(root: Path, files: Files) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def texts(root: Path, *names: str) -> Path:
    return write(root, {name: f"The text of {name}." for name in names})


def ids(root: Path | list[Path], **options: object) -> list[str]:
    paths = root if isinstance(root, list) else [root]
    return [item.id for item in find_files(paths, **options) if isinstance(item, FoundFile)]  # type: ignore[arg-type]


def omissions(root: Path, **options: object) -> dict[str, str]:
    items = find_files([root], **options)  # type: ignore[arg-type]
    return {item.id: item.reason for item in items if isinstance(item, Omission)}


def problems(root: Path, **options: object) -> list[tuple[str, str]]:
    items = find_files([root], **options)  # type: ignore[arg-type]
    return [(item.path, item.reason) for item in items if isinstance(item, Problem)]


def words_only(tmp_path: Path) -> Dataset:
    return Dataset("words", indexing_technique="keyword", path=tmp_path / "words")


def sources(dataset: Dataset) -> list[str]:
    return sorted({str(document.metadata["source"]) for document in dataset})


CASES: dict[str, tuple[Files, list[str], list[str]]] = {
    "a name, at any depth": ({".gitignore": "*.log\n"}, ["a.log", "b/c.log"], ["a.md", "b/c.md"]),
    "anchored at the folder of the ignore file": ({".gitignore": "/a.md\n"}, ["a.md"], ["b/a.md"]),
    "a folder, and no file of this name": ({".gitignore": "build/\n"}, ["build/a.md", "b/build/c.md"], ["c/build"]),
    "a negated pattern": ({".gitignore": "*.md\n!keep.md\n"}, ["a.md", "b/a.md"], ["keep.md", "b/keep.md"]),
    "what is in an ignored folder is not included again": ({".gitignore": "a/\n!a/b.md\n"}, ["a/b.md"], ["b.md"]),
    "what is in a folder whose contents are ignored is": ({".gitignore": "a/*\n!a/b.md\n"}, ["a/c.md"], ["a/b.md"]),
    "the deeper file outranks": ({".gitignore": "*.md\n", "b/.gitignore": "!a.md\n"}, ["a.md", "b/c.md"], ["b/a.md"]),
    ".ignore outranks .gitignore": ({".gitignore": "*.md\n", ".ignore": "!a.md\n"}, ["b.md"], ["a.md"]),
    ".ignore alone": ({".ignore": "*.md\n"}, ["a.md"], ["a.txt"]),
    "any number of folders": ({".gitignore": "a/**/c.md\n"}, ["a/c.md", "a/x/y/c.md"], ["c.md", "b/a/c.md"]),
    "comments, blank lines, escapes": ({".gitignore": "# a.md\n\n\\#b.md\n\\!c.md\n"}, ["#b.md", "!c.md"], ["a.md"]),
    "line ends of Windows, byte order mark": ({".gitignore": "\ufeff*.log\r\nb/\r\n"}, ["a.log", "b/a.md"], ["a.md"]),
    "a backslash escapes, it separates nothing": ({".gitignore": "a\\*.md\n"}, ["a*.md"], ["ab.md", "a/b.md"]),
    "sets of letters": ({".gitignore": "[Bb]in\n"}, ["bin/a.md", "Bin/a.md"], ["sbin/a.md"]),
    "spaces at the end": ({".gitignore": "a.md   \nb.md\\ \n"}, ["a.md", "b.md "], ["b.md"]),
    "words of other scripts": ({".gitignore": "черновик*\n草稿/\n"}, ["черновик 1.md", "草稿/一.md"], ["чистовик.md"]),
}


@pytest.mark.parametrize("case", CASES)
def test_ignore_files_are_read_as_git_reads_them(case: str, tmp_path: Path) -> None:
    ignore_files, ignored, read = CASES[case]
    texts(write(tmp_path, ignore_files), *ignored, *read)
    assert ids(tmp_path) == sorted(read, key=os.fsencode)
    assert set(omissions(tmp_path).values()) == {"ignored", "hidden"}
    assert set(ids(tmp_path, ignore_files=False)) == {*ignored, *read}
    if ".ignore" not in ignore_files:  # which Git does not know
        assert files_of_git(tmp_path) == set(read)


STEPS = ("a", "b", "ab", "*", "a*", "*b", "[ab]", "a.md", "*.log", "**", "ü", "*a*")


def patterns(generator: random.Random, count: int) -> str:
    lines = []
    for _ in range(count):
        steps = [generator.choice(STEPS) for _ in range(generator.randint(1, 3))]
        steps = ["*"] if steps == ["**"] else steps
        lines.append(generator.choice(("", "", "!")) + generator.choice(("", "/")) + "/".join(steps))
        lines[-1] += generator.choice(("", "/"))
    return "\n".join(lines)


def fill(folder: Path, generator: random.Random, depth: int = 0) -> None:
    for name in ("a", "b", "ab", "a.md", "b.log", "ü"):
        if depth < 2 and name.isascii() and "." not in name and generator.random() < 0.8:
            (folder / name).mkdir()
            fill(folder / name, generator, depth + 1)
        else:
            (folder / name).write_text("A text.")
    if not depth or generator.random() < 0.4:
        (folder / ".gitignore").write_text(patterns(generator, generator.randint(1, 4)))


def files_of_git(folder: Path) -> set[str]:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q", folder], check=True, env=environment)
    command = ["git", "-C", str(folder), "ls-files", "-z", "--others", "--exclude-standard"]
    listing = subprocess.run(command, check=True, capture_output=True, env=environment)
    names = {name.decode() for name in listing.stdout.split(b"\0") if name}
    return {name for name in names if not Path(name).name.startswith(".")}


@pytest.mark.parametrize("number", range(40))
def test_what_is_read_is_what_git_lists(number: int, tmp_path: Path) -> None:
    fill(tmp_path, random.Random(number))
    assert set(ids(tmp_path)) == files_of_git(tmp_path)


def test_names_are_equal_as_people_see_them(tmp_path: Path) -> None:
    nfd, nfc = (normalize(form, "Übung.md") for form in ("NFD", "NFC"))
    for number, (pattern, name) in enumerate([(nfd, nfc), (nfc, nfd)]):
        folder = texts(tmp_path / str(number), name, "a.md")
        write(folder, {".gitignore": f"{pattern}\n"})
        assert ids(folder) == ["a.md"]
        assert ids(folder, ignore_files=False, exclude=[pattern]) == ["a.md"]
        assert ids(folder, ignore_files=False, include=[pattern]) == [name]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.log")).write_text("A text.")
    (tmp_path / os.fsdecode(b"good\xff.md")).write_text("A text.")
    (tmp_path / ".gitignore").write_bytes(b"bad\xff.*\n")
    assert ids(tmp_path) == ["good\\xff.md"]


def test_ignore_files_of_parents_count_up_to_the_repository(tmp_path: Path) -> None:
    texts(tmp_path / "repo" / "docs", "a.md", "draft.md", "old/b.md", "log/c.md")
    write(tmp_path, {".gitignore": "a.md\n", "repo/.gitignore": "draft.md\n/docs/old/\nlog/\n"})
    assert ids(tmp_path / "repo" / "docs") == []
    write(tmp_path, {"repo/.git/HEAD": "ref: refs/heads/main\n"})
    assert ids(tmp_path / "repo" / "docs") == ["a.md"]
    assert ids(tmp_path / "repo" / "docs", ignore_files=False) == ["a.md", "draft.md", "log/c.md", "old/b.md"]


def test_what_is_given_is_read_even_if_it_is_ignored(tmp_path: Path) -> None:
    texts(write(tmp_path, {".gitignore": "build/\n*.log\n"}), "build/a.md", "build/b.log", "c.log")
    assert ids(tmp_path / "build") == ["a.md"]
    assert ids(tmp_path / "c.log") == ["c.log"]
    write(tmp_path / "tool", {".gitignore": "*\n", "x/a.md": "A text."})  # as tools write it into their own folders
    assert ids(tmp_path / "tool" / "x") == ["a.md"]
    write(tmp_path / "list", {".gitignore": "*\n!*/\n!*.md\n", "x/a.md": "A text.", "x/b.txt": "A text."})
    assert ids(tmp_path / "list" / "x") == ["a.md"]


def test_links_are_ignored_as_what_they_are(tmp_path: Path) -> None:
    root = texts(tmp_path / "root", "a.md")
    texts(tmp_path, "secret.md")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / "folder").symlink_to(tmp_path)
    assert [path for path, _ in problems(root)] == ["folder", "link.md"]
    write(root, {".gitignore": "link.md\nfolder\n"})
    assert problems(root) == []
    assert omissions(root) == {"link.md": "ignored", "folder": "ignored", ".gitignore": "hidden"}
    (root / ".gitignore").unlink()
    write(tmp_path, {"shared": "a.md\n"})
    (root / ".gitignore").symlink_to(tmp_path / "shared")
    assert ids(root) == []


@pytest.mark.parametrize("name", [".gitignore", ".ignore"])
def test_an_ignore_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    texts(tmp_path, "b/a.md")
    path = tmp_path / "b" / name
    os.mkfifo(path)  # opening it would block forever
    assert problems(tmp_path) == [(f"b/{name}", "not a regular file; it leaves nothing out")]
    path.unlink()
    path.symlink_to(path)
    ((file_name, reason),) = problems(tmp_path)
    assert file_name == f"b/{name}"
    assert "cannot be read" in reason
    path.unlink()
    path.write_bytes("a.md\n".encode("utf-16"))
    assert problems(tmp_path) == [(f"b/{name}", "not UTF-8 text; it leaves nothing out until it is saved as UTF-8")]
    path.write_bytes(b"a.md\n" * 60_000)
    ((_, reason),) = problems(tmp_path)
    assert "more than the limit" in reason
    path.write_text("!\nno.md\n\\\n")
    assert problems(tmp_path) == [(f"b/{name}", "no pattern in line 1 ('!') and line 3 ('\\\\'); the others count")]
    assert ids(tmp_path) == ["b/a.md"]
    write(tmp_path, {f"b/{name}": "a.md\n"})
    assert problems(tmp_path) == []


def test_patterns_are_matched_in_linear_time(tmp_path: Path) -> None:
    """Python's regular expressions would never come to the end of this one."""
    texts(tmp_path, "a" * 250, "b.md")
    write(tmp_path, {".gitignore": "*a*a*a*a*a*a*a*a*b\n"})
    assert len(ids(tmp_path)) == 2
    assert len(ids(tmp_path, exclude=["*a*a*a*a*a*a*a*a*b"])) == 2


@given(st.lists(st.text(st.sampled_from("ab*?[]!\\/.- \u0308#\x00\r{}()+^$|é:"), max_size=12), max_size=5))
def test_any_line_is_a_pattern_or_named(lines: list[str]) -> None:
    from pointsman.ingest.file_patterns import FilePatterns

    patterns = FilePatterns(lines)
    assert patterns.invalid_lines <= set(range(1, len(lines) + 1))
    for name in ("a", "a/b", "b/", "é", "a\nb", "*", "[a]"):
        assert patterns.decision(name) in {True, False, None}


def test_what_the_caller_excludes_and_includes(tmp_path: Path) -> None:
    texts(tmp_path, "a.md", "a.txt", "drafts/a.md", "b/drafts/c.md", "b/a.md")
    assert ids(tmp_path, exclude=["drafts/"]) == ["a.md", "a.txt", "b/a.md"]
    assert ids(tmp_path, exclude=["/drafts", "*.txt"]) == ["a.md", "b/a.md", "b/drafts/c.md"]
    assert ids(tmp_path, exclude=["*.md", "!/a.md"]) == ["a.md", "a.txt"]
    assert ids(tmp_path, include=["*.txt", "/b/"]) == ["a.txt", "b/a.md", "b/drafts/c.md"]
    assert ids(tmp_path, include=["b/"], exclude=["drafts"]) == ["b/a.md"]
    assert ids([tmp_path / "a.md", tmp_path / "b"], exclude=["*.md", "!c.md"]) == ["b/drafts/c.md"]
    assert ids([tmp_path / "b", tmp_path / "drafts"], include=["/a.md"]) == ["b/a.md", "drafts/a.md"]
    assert ids(tmp_path, include="a.*", exclude="b") == ["a.md", "a.txt", "drafts/a.md"]
    assert omissions(tmp_path, include=["*.txt"], exclude=["b"]) == {
        "a.md": "not included",
        "b/": "excluded",
        "drafts/a.md": "not included",
    }


def test_a_pattern_that_names_nothing_is_said(tmp_path: Path) -> None:
    texts(tmp_path, "a.md")
    assert problems(tmp_path, exclude=["b.md", "c.md"]) == [
        ("exclude: b.md, c.md", "nothing matches what is to be excluded")
    ]
    assert problems(tmp_path, include=["*.mdx"]) == [("include: *.mdx", "no file matches what is to be included")]


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize("pattern", ["", "  ", "!", "# a", "/", 3, None])
def test_what_cannot_be_a_pattern_is_refused(name: str, pattern: object, tmp_path: Path) -> None:
    texts(tmp_path, "a.md")
    with pytest.raises(InputError, match=f"{name} takes patterns of paths as in .gitignore, such as '\\*.md', not"):
        find_files([tmp_path], **{name: [pattern]})  # type: ignore[arg-type]


def test_everything_left_out_is_told_of_with_its_reason(tmp_path: Path) -> None:
    texts(tmp_path, "a.md", "b.log", ".env", ".git/config", "node_modules/c.md", "mine/pyvenv.cfg", "old/d.md")
    write(tmp_path, {".gitignore": "*.log\nold/\n"})
    expected = {
        ".env": "hidden", ".git/": "hidden", ".gitignore": "hidden", "b.log": "ignored", "old/": "ignored",
        "node_modules/": "skipped", "mine/": "skipped",
    }  # fmt: skip
    assert omissions(tmp_path) == expected
    assert [item.path for item in read_paths([tmp_path])] == ["a.md"]
    report = index_paths(words_only(tmp_path.parent), [tmp_path])
    assert report.omissions == {"hidden": 3, "ignored": 2, "skipped": 2}


# ── what is stored already ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return texts(tmp_path / "files", "a.md", "b.log", "old/c.md", "old/d.md")


ALL = ["a.md", "b.log", "old/c.md", "old/d.md"]


def ignored_in(folder: Path) -> dict[str, object]:
    write(folder, {".gitignore": "*.log\nold/\n"})
    return {}


Change = Callable[[Path], dict[str, object]]
LEFT_OUT: dict[str, Change] = {
    "by an ignore file": ignored_in,
    "by exclude": lambda _: {"exclude": ["*.log", "old"]},
    "by include": lambda _: {"include": ["a.*"]},
}


@pytest.mark.parametrize("change", LEFT_OUT)
def test_what_was_stored_and_is_left_out_now_stays_until_it_is_pruned(
    change: str, folder: Path, tmp_path: Path
) -> None:
    dataset = words_only(tmp_path)
    index_paths(dataset, folder)
    options = LEFT_OUT[change](folder)
    for _ in range(2):
        report = index_paths(dataset, folder, **options)  # type: ignore[arg-type]
        assert (report.stored_omissions, report.deleted) == (("b.log", "old/c.md", "old/d.md"), 0)
        assert sources(dataset) == ALL
    (folder / "old" / "d.md").unlink()  # what is gone is gone, wherever it was
    report = index_paths(dataset, folder, **options)  # type: ignore[arg-type]
    assert (report.stored_omissions, report.deleted) == (("b.log", "old/c.md"), 1)
    report = index_paths(dataset, folder, prune=True, **options)  # type: ignore[arg-type]
    assert (report.stored_omissions, report.deleted) == ((), 2)
    assert sources(dataset) == ["a.md"]


def test_hidden_files_that_were_stored_stay_too(tmp_path: Path) -> None:
    folder, dataset = texts(tmp_path / "files", "a.md", ".b.md", ".c/d.md"), words_only(tmp_path)
    index_paths(dataset, folder, hidden=True)
    report = index_paths(dataset, folder)
    assert (report.stored_omissions, report.deleted) == ((".b.md", ".c/d.md"), 0)
    assert index_paths(dataset, folder, prune=True).deleted == 2


def test_an_option_that_does_not_exist_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'excludes'.*did you mean 'exclude'"):
        index_paths(words_only(tmp_path), folder, excludes=["a"])  # type: ignore[call-arg]


def test_every_door_takes_the_same(folder: Path, tmp_path: Path) -> None:
    write(folder, {".gitignore": "*.log\n"})
    with pointsman.open(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
        report = workspace.index(folder, exclude=["old/c.md"])
        dataset = workspace.dataset("files")
        assert [document.id.partition("#")[0] for document in dataset] == ["a.md", "old/d.md"]
        assert workspace.index(folder, exclude=["old"]).stored_omissions == ("old/d.md",)
        assert workspace.index(folder, exclude=["old"], prune=True).deleted == 1
        assert workspace.index(folder, ignore_files=False, include=["*.log"], prune=True).files == 1
        assert len(dataset) == 1
    assert report.omissions == {"hidden": 1, "ignored": 1, "excluded": 1}
    with (
        pointsman.open(tmp_path / "served", embedder=HashingEmbedder()) as workspace,
        serving(create_app(workspace)) as address,
        Client(address) as client,
    ):
        reports = [client.index(folder), client.index(folder, ignore_files=False)]
        assert [report.files for report in reports] == [3, 4]
        assert client.index(folder).stored_omissions == ("b.log",)
        assert client.index(folder, prune=True).deleted == 1


def test_the_command_says_once_what_is_left_out(folder: Path) -> None:
    write(folder, {".gitignore": "*.log\n"})
    command = ["index", str(folder), "-d", "files", "--technique", "keyword", "-w", str(folder.parent / "ws")]
    answer = run_command(*command, "--exclude", "old")
    assert answer.stdout.count("\n") == 2
    assert (
        "left out (a folder counts once): 1 by --exclude, 1 hidden (--hidden), 1 by ignore files (--no-ignore)"
        in answer.stdout
    )
    assert "Files read: 4" in run_command(*command, "--no-ignore").stdout
    answer = run_command(*command, "--include", "a.*", "--include", "*.log")
    assert "left out now, but still stored: b.log, old/c.md, old/d.md; --prune deletes them" in answer.stdout
    assert answer.stdout.count("old/c.md") == 1
    report = json.loads(run_command(*command, "--prune", "--json").stdout)
    assert report["omissions"] == {"hidden": 1, "ignored": 1}
    assert (report["stored_omissions"], report["deleted"]) == ([], 1)


def test_a_folder_of_which_all_is_left_out_says_why(tmp_path: Path) -> None:
    folder = write(texts(tmp_path / "files", "a.md"), {".gitignore": "*\n"})
    answer = run_command("index", str(folder), "-d", "files", "--technique", "keyword", "-w", str(tmp_path / "ws"))
    assert answer.returncode == 1
    assert "1 by ignore files (--no-ignore)" in answer.stdout
    assert "no readable files in" in answer.stderr


def test_a_yes_deletes_what_is_left_out_now(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from pointsman.cli.core_commands import app

    monkeypatch.setattr("pointsman.cli.core_commands.can_ask", lambda: True)
    command = ["index", str(folder), "-d", "files", "--technique", "keyword", "-w", str(tmp_path / "ws")]
    CliRunner().invoke(app, command)
    write(folder, {".gitignore": "*.log\n"})
    answer = CliRunner().invoke(app, command, input="n\n")
    assert "Delete what is stored of 1 file, left out now?" in answer.stderr
    with pointsman.open(tmp_path / "ws") as workspace:
        assert sources(workspace.dataset("files")) == ALL
    CliRunner().invoke(app, command, input="y\n")
    with pointsman.open(tmp_path / "ws") as workspace:
        assert sources(workspace.dataset("files")) == ["a.md", "old/c.md", "old/d.md"]


def test_watching_heeds_an_ignore_file_that_changes(tmp_path: Path) -> None:
    from pointsman.workspace.indexing.folder_sync import watch_paths

    folder, dataset = texts(tmp_path / "files", "a.md", "b.log", "c.tmp"), words_only(tmp_path)
    write(folder, {".gitignore": "*.log\n"})
    reports = watch_paths(dataset, [folder])

    def next_report() -> IndexReport:
        report = next(reports)
        while not (report.files or report.deleted or report.stored_omissions):
            report = next(reports)
        return report

    assert next_report().passages.added == 2
    write(folder, {".gitignore": "*.tmp\n"})
    report = next_report()
    assert report.passages.added == 1
    assert report.stored_omissions == ("c.tmp",)
    assert sources(dataset) == ["a.md", "b.log", "c.tmp"]
    reports.close()  # type: ignore[attr-defined]
