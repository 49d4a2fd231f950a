"""Folders into datasets (K1, K2): in small batches, with progress by passages; what is interrupted is kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pointsman
from pointsman import Dataset, Document, load_embedder
from pointsman.ingest import FileLimits
from pointsman.tools.errors import InputError
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.indexing.index_report import IndexingInterrupted, IndexProgress

PROSE = "The switch guides the train onto its track. Nobody has to think about it again.\n\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"{number} {PROSE}" for number in range(800)))
    (folder / "b.csv").write_text("id,text\n" + "".join(f"r{number},Row {number}.\n" for number in range(300)))
    (folder / "junk.bin").write_bytes(bytes(range(256)) * 20)
    return folder


def words_only(tmp_path: Path, name: str = "words") -> Dataset:
    return Dataset(name, indexing_technique="keyword", path=tmp_path / name)


def test_passages_are_committed_in_batches_and_counted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.workspace.indexing.folder_sync._WORDS_BATCH", 50)
    dataset = words_only(tmp_path)
    observations: list[tuple[IndexProgress, int]] = []
    report = index_paths(dataset, [folder], on_progress=lambda progress: observations.append((progress, len(dataset))))
    assert report.files == 2  # the third one cannot be read
    assert [problem.path for problem in report.problems] == ["junk.bin"]
    assert report.passages.added == len(dataset) > 350
    assert not report.nothing_read
    counts = [progress.passages for progress, _ in observations]
    assert counts == sorted(counts)
    assert all(progress.passages == count for progress, count in observations)  # what is counted can be searched
    assert len(observations) > 6
    expected = [progress.expected for progress, _ in observations if progress.expected is not None]
    assert all(progress.passages <= progress.expected for progress, _ in observations if progress.expected is not None)
    assert expected[-1] == report.passages.added
    shares = [progress.share_read for progress, _ in observations]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert (observations[0][0].passages, observations[0][0].path, observations[-1][0].path) == (0, "a.txt", "")


def test_an_interrupted_run_keeps_what_was_committed_and_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.workspace.indexing.folder_sync._WORDS_BATCH", 50)
    dataset = words_only(tmp_path)

    def interrupt(progress: IndexProgress) -> None:
        if progress.passages >= 100:
            raise KeyboardInterrupt

    with pytest.raises(IndexingInterrupted, match="100 passages are kept") as error_info:
        index_paths(dataset, [folder], on_progress=interrupt)
    assert error_info.value.report.passages.added == len(dataset) == 100
    second_report = index_paths(dataset, [folder])
    assert second_report.passages.unchanged == 100
    uninterrupted_dataset = words_only(tmp_path, "whole")
    index_paths(uninterrupted_dataset, [folder])
    assert set(dataset.ids()) == set(uninterrupted_dataset.ids())


def test_sizes_of_passages_are_options(folder: Path, tmp_path: Path) -> None:
    dataset = words_only(tmp_path)
    large = index_paths(dataset, [folder / "a.txt"])
    small = index_paths(dataset, [folder / "a.txt"], max_tokens=64, overlap=0)
    assert small.passages.added > 3 * large.passages.added
    assert small.deleted == large.passages.added
    with pytest.raises(InputError, match="max_tokens is between"):
        index_paths(dataset, [folder], max_tokens=5)


def test_limits_of_a_file_are_options_and_what_was_stored_of_it_stays(folder: Path, tmp_path: Path) -> None:
    dataset = words_only(tmp_path)
    index_paths(dataset, [folder])
    ids_before = set(dataset.ids())
    (folder / "a.txt").write_text("Cut off. " * 50)
    report = index_paths(dataset, [folder], limits=FileLimits(characters=60))
    assert "a.txt: more than 60 characters" in [f"{problem.path}: {problem.reason[:23]}" for problem in report.problems]
    (folder / "a.txt").write_bytes(b"\x00\x01" * 500)
    index_paths(dataset, [folder])
    assert {identity for identity in ids_before if identity.startswith("b.csv")} <= set(dataset.ids())


def test_a_folder_of_junk_says_that_nothing_was_read(tmp_path: Path) -> None:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "a.bin").write_bytes(bytes(range(256)) * 20)
    dataset = words_only(tmp_path)
    assert index_paths(dataset, [tmp_path / "junk"]).nothing_read
    (tmp_path / "junk" / "a.bin").write_text("")
    report = index_paths(dataset, [tmp_path / "junk"])
    assert (report.nothing_read, report.files) == (True, 0)
    assert [(problem.path, problem.reason) for problem in report.problems] == [("a.bin", "there is no text in it")]


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_watching_indexes_what_changes_comes_and_goes(tmp_path: Path) -> None:
    """A real process over a real folder, with its workspace inside; a burst is few rounds; Ctrl-C ends it cleanly."""
    folder = tmp_path / "notes"
    (folder / "old").mkdir(parents=True)
    for number in range(3):
        (folder / "old" / f"{number}.txt").write_text(f"Switch {number} guides trains.", "utf-8")
    command = [sys.executable, "-m", "pointsman", "index", ".", "-d", "notes"]
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}
    process = subprocess.Popen(
        [*command, "--watch", "--json"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = process.stdout

        def passages(additions: int, deleted: int) -> int:
            """Wait until the rounds have come to these numbers together; how many it took."""
            total, rounds = (0, 0), 0
            while total != (additions, deleted):
                report = json.loads(lines.readline())
                total, rounds = (total[0] + report["added"], total[1] + report["deleted"]), rounds + 1
                assert total[0] <= additions
                assert total[1] <= deleted
            return rounds

        passages(3, 0)
        for number in range(20):  # a burst, over half a second
            (folder / f"new{number}.txt").write_text(f"Signal {number} stops ships.", "utf-8")
            (folder / ".hidden").write_text(f"{number}", "utf-8")
            time.sleep(0.025)
        assert passages(20, 0) < 20  # a burst is a round, or a few on a busy machine
        (folder / "old" / "1.txt").write_text("Semaphore one.", "utf-8")
        passages(1, 1)
        (folder / "old" / "2.txt").rename(folder / "moved.txt")
        passages(1, 1)
        (tmp_path / "whole").mkdir()
        (tmp_path / "whole" / "deep.md").write_text("# Deep\n\nA buffer stop.", "utf-8")
        (tmp_path / "whole").rename(folder / "whole")
        passages(1, 0)
        with pointsman.open(
            folder / ".pointsman", embedder=load_embedder("hashing")
        ) as workspace:  # which another process may write to meanwhile
            notes = workspace.dataset("notes")
            with notes.writing(30):  # vectors may just be made
                notes.add([Document("by hand", "Written by somebody else.")])
        shutil.rmtree(folder / "old")
        passages(0, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        with pointsman.open(folder / ".pointsman") as workspace:
            sources = {document.metadata.get("source") for document in workspace.dataset("notes")}
        assert sources == {*(f"new{number}.txt" for number in range(20)), "moved.txt", "whole/deep.md", None}
    finally:
        process.kill()
        process.communicate()
