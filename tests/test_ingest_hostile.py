"""Files that explode (K1): each costs bounded time, memory and store, and the rest of the folder is read."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from converter_kit import close_with_its_process
from hostile_files_kit import HOSTILE, repeat, word, zip_of
from pointsman.ingest import FileLimits, FileReader, FoundFile, ReadResult, Sync, read_paths, text_of
from pointsman.tools.errors import InputError
from pointsman.values.types import Document

SIZE = 60_000
OVERHEAD = 1000
"""Characters a passage that do not grow with the file: ids, paths, and titles and headings up to their limits."""


def stored_size(documents: list[Document]) -> int:
    """Characters of texts, and of everything in the metadata."""
    return sum(len(document.text) + _length(document.metadata) for document in documents)


def _length(value: object) -> int:
    if isinstance(value, dict):
        return sum(len(key) + _length(item) for key, item in value.items())
    return sum(map(_length, value)) if isinstance(value, list) else len(str(value))


def test_there_are_forty_of_each_format() -> None:
    assert {kind: len(generators) >= 40 for kind, generators in HOSTILE.items()} == dict.fromkeys(HOSTILE, True)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_cost_little_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    """A quarter of the files of each format; ``benchmarks/hostile_files.py`` reads all, and larger ones."""
    generators = HOSTILE[kind][::4]
    for number, generate in enumerate(generators):
        (tmp_path / f"{number:02}.{kind}").write_bytes(generate(SIZE))
    (tmp_path / "zz.txt").write_text("Good.")
    documents: dict[str, list[Document]] = {}
    for item in read_paths([tmp_path], limits=FileLimits(seconds=60)):
        documents.setdefault(item.path, []).extend(item.documents)
        assert not any("crash" in problem.reason or "more than 60 s" in problem.reason for problem in item.problems)
    assert [document.text for document in documents.pop("zz.txt")] == ["Good."]
    assert len(documents) == len(generators)
    for path, passages in documents.items():
        if passages:
            text = max(passage.metadata["end"] for passage in passages)
            assert sum(len(passage.text) for passage in passages) <= 2 * text, path
            assert stored_size(passages) <= 4 * max(text, SIZE) + OVERHEAD * len(passages), path


@pytest.mark.parametrize("size", [50_000, 200_000])
@pytest.mark.parametrize(
    ("kind", "number"), [("md", 34), ("html", 36), ("json", 25), ("json", 27), ("csv", 23), ("csv", 31), ("docx", 27)]
)
def test_what_is_stored_grows_with_the_file_not_with_its_square(
    kind: str, number: int, size: int, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(HOSTILE[kind][number](size))
    documents = [document for item in read_paths([path]) for document in item.documents]
    copied_size = stored_size(documents) - 450 * len(documents)  # ids, paths, a digest and numbers
    assert copied_size <= 4 * size


def test_a_file_that_takes_too_long_is_stopped_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(word(repeat("<w:p><w:r><w:t>Some words.</w:t></w:r></w:p>"))(60 << 20))
    (tmp_path / "b.txt").write_text("Good.")
    *_, stopped_file, good = read_paths([tmp_path], limits=FileLimits(seconds=1))
    assert [(item.path, item.is_stopped) for item in (stopped_file, good)] == [("a.docx", True), ("b.txt", False)]
    reasons = (
        "takes more than 1 s; raise the limit seconds to index it",
        "its converter made no progress for ",
    )  # if busy
    assert stopped_file.problems[0].reason.startswith(reasons)


def test_a_file_that_takes_too_much_memory_is_reported_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(repeat("[],", "[", "[]]")(30 << 20))
    (tmp_path / "b.txt").write_text("Good.")
    huge, good = read_paths([tmp_path], limits=FileLimits(memory=400 << 20))
    assert huge.problems[0].reason == "needs more than 400 MB of memory; raise the limit memory to index it"
    assert huge.is_stopped
    assert good.documents[0].text == "Good."


def test_a_crash_of_the_converter_is_a_problem_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Good.")
    (tmp_path / "b.csv").write_text("a,b\n" + "".join(f"1,{number}\n" for number in range(500_000)))
    with FileReader() as reader:
        list(reader.read(FoundFile(tmp_path / "a.txt", "a.txt", 1)))
        worker = reader._worker
        results = reader.read(FoundFile(tmp_path / "b.csv", "b.csv", 1))
        next(results)
        assert worker is not None
        worker._process.send_signal(signal.SIGSEGV)
        *_, last = results
        assert last.is_stopped
        assert last.problems[0].reason == "its converter crashed (SIGSEGV)"
        assert [item.documents[0].text for item in reader.read(FoundFile(tmp_path / "a.txt", "a.txt", 1))] == ["Good."]


def test_files_share_a_process_and_an_abandoned_file_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileReader, "close", close_with_its_process)
    (tmp_path / "a.txt").write_text("First.")
    (tmp_path / "b.csv").write_text("a,b\n" + "".join(f"1,{number}\n" for number in range(5000)))
    with FileReader() as reader:
        list(reader.read(FoundFile(tmp_path / "a.txt", "a.txt", 1)))
        first = reader._worker
        assert first is not None
        list(reader.read(FoundFile(tmp_path / "a.txt", "a.txt", 1)))
        assert reader._worker is first
        results = reader.read(FoundFile(tmp_path / "b.csv", "b.csv", 1))
        next(results)
        del results
        assert first._process.poll() is not None
        (item,) = reader.read(FoundFile(tmp_path / "a.txt", "a.txt", 1))
        assert item.documents[0].text == "First."
        last = reader._worker
    assert last is not None
    assert last._process.poll() is not None


def test_pages_and_characters_beyond_the_limits_are_left_out_and_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One sentence. " * 100)
    (item,) = read_paths([tmp_path], limits=FileLimits(characters=100))
    assert [problem.reason for problem in item.problems] == [
        "more than 100 characters of text; the rest is left out: divide it"
    ]
    assert max(document.metadata["end"] for document in item.documents) <= 100


REPETITIVE: dict[str, bytes] = {
    "docx": word(repeat("<w:p><w:r><w:t>Some words.</w:t></w:r></w:p>"))(400_000),
    "csv": b"a column whose name is a sentence of some words on what numbers in it mean,b\n"
    + "".join(f"1,{n}\n" for n in range(10_000)).encode(),
    "zip": zip_of({"a.txt": "Some words. " * 10_000}),
}


@pytest.mark.parametrize("kind", REPETITIVE)
def test_a_file_that_unpacks_to_far_more_is_bounded_by_its_characters_and_says_so(kind: str, tmp_path: Path) -> None:
    data = REPETITIVE[kind]
    (tmp_path / f"a.{kind}").write_bytes(data)
    results = list(read_paths([tmp_path], limits=FileLimits(expanded=20_000)))
    characters = sum(len(document.text) for result in results for document in result.documents)
    limit = max(20_000, 8 * len(data))
    assert limit / 2 < characters < 1.3 * limit  # passages overlap
    assert [problem.reason for result in results for problem in result.problems] == [
        f"more than {limit} characters of text; the rest is left out: divide it"
    ]


def test_a_text_of_as_many_characters_as_bytes_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some words. " * 10_000)
    results = list(read_paths([tmp_path], limits=FileLimits(expanded=20_000)))
    assert [problem for result in results for problem in result.problems] == []
    assert results[-1].documents[-1].metadata["end"] == 120_000 - 1


def test_what_is_stored_of_a_file_that_was_stopped_stays() -> None:
    sync = Sync([Document("a#1", "One.", {"source": "a"}), Document("a#2", "Two.", {"source": "a"})])
    same_document = Document("a#1", "One.", {"source": "a"})
    assert sync.changed_documents(ReadResult("a", (same_document,), is_stopped=True)) == []
    assert sync.deleted_ids() == []


def test_a_text_is_that_of_the_content_that_was_indexed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Before.")
    (item,) = read_paths([path])
    sha256 = item.documents[0].metadata["sha256"]
    assert text_of(path, sha256=sha256) == "Before."
    path.write_text("After.")
    with pytest.raises(InputError, match="has changed since it was indexed"):
        text_of(path, sha256=sha256)


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"pages": 1.5}, {"memory": 1000}, {"characters": True}])
def test_limits_are_checked(limits: dict[str, int]) -> None:
    with pytest.raises(InputError):
        FileLimits(**limits)
