"""Folders: what is read, in which order, under which ids, and what changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.ingest import FoundFile, Problem, ReadResult, Sync, find_files, plan_sync, read_paths
from pointsman.store.prepared_documents import prepare
from pointsman.tools.errors import InputError
from pointsman.values.types import Document


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def ids(items: object) -> list[str]:
    assert not isinstance(items, str)
    return [item.id for item in items if isinstance(item, FoundFile)]  # type: ignore[attr-defined]


def documents(*paths: Path) -> list[Document]:
    return [document for item in read_paths(paths) for document in item.documents]


def test_order_is_fixed_and_noise_is_skipped(tmp_path: Path) -> None:
    read = ["B.txt", "a/z.md", "a/б.txt", "a/中.txt", "b.txt"]
    noise = [".git/config", ".env", "x/__pycache__/m.py", "node_modules/m.js", "mine/pyvenv.cfg", "mine/lib/m.py"]
    noise += [
        "index/workspace.json",
        "index/datasets/notes/documents.sqlite",
        "one/manifest.json",
        "one/documents.sqlite",
    ]
    write(tmp_path, dict.fromkeys([*reversed(read), *noise], "text"))
    assert ids(find_files([tmp_path])) == read
    assert ".env" in ids(find_files([tmp_path], hidden=True))
    assert ids(find_files([tmp_path / ".git"])) == ["config"]


def test_several_roots_are_told_apart_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, {"one/docs/a.md": "a", "two/docs/a.md": "b", "c.md": "c"})
    first_root, two = tmp_path / "one" / "docs", tmp_path / "two" / "docs"
    assert ids(find_files([first_root, tmp_path / "c.md"])) == ["docs/a.md", "c.md"]
    assert ids(find_files([first_root, two, first_root])) == ["one/docs/a.md", "two/docs/a.md"]
    assert len(ids(find_files([first_root, tmp_path]))) == 3  # a file within two roots is read once


def test_a_path_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file or folder at .*nowhere"):
        find_files([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="no path given"):
        read_paths([])


def test_links_loops_and_pipes(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a/real.txt": "text"})
    write(tmp_path, {"secret.txt": "secret"})
    (root / "a" / "loop").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "inside.txt").symlink_to(root / "a" / "real.txt")
    (root / "outside.txt").symlink_to(tmp_path / "secret.txt")
    (root / "broken").symlink_to(root / "gone")
    os.mkfifo(root / "pipe")
    files = list(find_files([root]))
    assert ids(files) == ["a/real.txt"]
    assert [item.path for item in files if isinstance(item, Problem)] == ["broken", "outside.txt", "pipe", "self"]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    for name in (b"new\nline.txt", b"bad\xff.txt"):
        (tmp_path / os.fsdecode(name)).write_text(f"Text {len(name)}.")
    passages = documents(tmp_path)
    assert [document.metadata["source"] for document in passages] == ["bad\\xff.txt", "new\\x0aline.txt"]
    json.dumps([dict(document.metadata) for document in passages]).encode()


def test_problems_do_not_stop_the_rest(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "Good.", "big.txt": "x" * 500, "gone.txt": "x", "z.txt": "Good too."})
    reading = read_paths([tmp_path], max_bytes=400)
    items = [next(reading)]
    (tmp_path / "gone.txt").rename(tmp_path / "moved")
    items += [item for item in reading if item.path != "moved"]
    assert [item.path for item in items] == ["a.txt", "big.txt", "gone.txt", "z.txt"]
    reasons = [problem.reason for item in items for problem in item.problems]
    assert reasons == [
        "500 bytes are more than the limit of 400 bytes; raise max_bytes to index it",
        "cannot be read: No such file or directory",
    ]


def test_folders_nested_deeper_than_the_stack(tmp_path: Path) -> None:
    folders = [tmp_path / "d"]
    for _ in range(1100):
        folders.append(folders[-1] / "d")
    for folder in folders:
        folder.mkdir()
    deepest = folders[-1] / "deep.txt"
    deepest.write_text("Deep.")
    try:
        (problem,) = find_files([tmp_path])
    finally:  # the cleaning up of temporary folders recurses
        deepest.unlink()
        for folder in reversed(folders):
            folder.rmdir()
    assert problem == Problem("d/" * 1101 + "deep.txt", "its path has 2210 bytes, more than 640; shorten it")


def test_records_keep_their_ids_when_alone(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"_id": f"d{number}", "text": f"Text {number}."}) for number in range(2500))
    write(tmp_path, {"corpus.jsonl": lines})
    results = list(read_paths([tmp_path / "corpus.jsonl"]))
    assert [document.id for item in results for document in item.documents] == [f"d{number}" for number in range(2500)]
    assert max(len(item.documents) for item in results) == 200
    assert documents(tmp_path)[7].id == "corpus.jsonl#d7"


def test_reading_is_lazy(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "A.", "b.txt": "B."})
    items = read_paths([tmp_path])
    assert next(items).path == "a.txt"
    (tmp_path / "b.txt").write_text("Changed.")
    assert [document.text for document in next(items).documents] == ["Changed."]


def test_syncing_touches_only_what_changed(tmp_path: Path) -> None:
    long = "The switch guides the train onto its track, and nobody has to think about it again. " * 3
    write(tmp_path, {"a.md": f"# One\n\n{long}\n\n# Two\n\n{long}2\n", "b.txt": "B.", "c.txt": "C."})
    documents_by_id = {document.id: document for document in documents(tmp_path)}
    assert plan_sync(documents_by_id.values(), read_paths([tmp_path])) == ([], [])

    write(tmp_path, {"a.md": f"# One\n\n{long}\n\n# Two\n\n{long}two\n", "d.txt": "D."})
    (tmp_path / "c.txt").unlink()
    to_add, to_delete = plan_sync(documents_by_id.values(), read_paths([tmp_path]))
    assert [document.metadata["source"] for document in to_add] == ["a.md", "a.md", "d.txt"]
    assert [document.id in documents_by_id for document in to_add] == [
        True,
        False,
        False,
    ]  # the first has only a new sha256
    assert [documents_by_id[identity].metadata["source"] for identity in to_delete] == ["a.md", "c.txt"]

    for identity in to_delete:
        del documents_by_id[identity]
    documents_by_id |= {document.id: document for document in to_add}
    assert documents_by_id == {document.id: document for document in documents(tmp_path)}


def test_moved_offsets_are_updated_under_the_same_ids(tmp_path: Path) -> None:
    long = "The switch guides the train onto its track, and nobody has to think about it again. " * 3
    write(tmp_path, {"a.md": f"# One\n\n{long}\n\n# Two\n\n{long}2\n"})
    stored_documents = documents(tmp_path)
    write(tmp_path, {"a.md": f"# One\n\nFirst. {long}\n\n# Two\n\n{long}2\n"})
    to_add, to_delete = plan_sync(stored_documents, read_paths([tmp_path]))
    assert [document.id in {old.id for old in stored_documents} for document in to_add] == [False, True]
    assert to_delete == [stored_documents[0].id]


def test_what_cannot_be_read_now_is_not_forgotten() -> None:
    stored_documents = [
        Document(name, name, {"source": name}) for name in ("a.txt", "b.txt", "folder/c.txt", "folder2/d.txt")
    ]
    sync = Sync(stored_documents)
    assert sync.changed_documents(ReadResult("a.txt", problems=(Problem("a.txt", "locked"),))) == []
    assert sync.changed_documents(ReadResult("folder", problems=(Problem("folder", "locked"),))) == []
    assert sync.deleted_ids() == ["b.txt", "folder2/d.txt"]


def test_a_file_with_one_bad_record_still_loses_its_deleted_ones(tmp_path: Path) -> None:
    path = write(tmp_path, {"c.jsonl": '{"_id": "a", "text": "A"}\n{"_id": "b", "text": "B"}'}) / "c.jsonl"
    stored_documents = documents(path)
    path.write_text('{"_id": "a", "text": "A"}\n{broken')
    changed_documents, deleted_ids = plan_sync(stored_documents, read_paths([path]))
    assert [document.id for document in changed_documents] == ["a"]  # its file has a new sha256
    assert deleted_ids == ["b"]


def test_importing_is_cheap() -> None:
    heavy = ("lxml", "docx", "pypdf", "pypdfium2", "chardet", "yaml", "markdown_it", "importlib.metadata", "numpy")
    program = f"import sys, pointsman.ingest; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("content", ["", " \n\t\n"])
def test_an_empty_file_is_no_problem_and_forgets_what_it_held(content: str, tmp_path: Path) -> None:
    stored_documents = [Document("a.txt#1", "Old.", {"source": "a.txt"})]
    (tmp_path / "a.txt").write_text(content)
    assert list(read_paths([tmp_path])) == [ReadResult("a.txt")]
    assert plan_sync(stored_documents, read_paths([tmp_path])) == ([], ["a.txt#1"])


def test_paths_and_record_ids_too_long_for_an_id_are_reported_or_shortened(tmp_path: Path) -> None:
    long = "/".join(["d" * 200] * 3 + ["e" * 30 + ".jsonl"])
    longer = "/".join(["d" * 200] * 3 + ["f" * 60 + ".md"])
    records = [{"id": "\N{ROCKET}" * count, "text": f"Record {count}."} for count in (64, 65, 256)]
    write(tmp_path, {long: "\n".join(map(json.dumps, records)), longer: "Text.", "a.md": "Text."})
    read = list(read_paths([tmp_path]))
    assert [(problem.path, problem.reason) for item in read for problem in item.problems] == [
        (longer, f"its path has {len(longer)} bytes, more than 640; shorten it")
    ]
    stored_documents = [prepare(document).document for item in read for document in item.documents]
    assert [document.text for document in stored_documents] == ["Text.", "Record 64.", "Record 65.", "Record 256."]
