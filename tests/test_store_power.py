"""Power loss: what was acknowledged is there, what was dropped is not, wherever it strikes. benchmarks/power_loss.py
replays every call."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from power_kit import STRACE, Disk, Replay, parse_calls

WORKER = Path(__file__).with_name("power_worker.py")

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace, which records the calls, is not installed")


@pytest.mark.parametrize("path", ["store", "workspace"])
def test_what_was_acknowledged_survives(tmp_path: Path, path: str) -> None:
    replay = Replay(WORKER, tmp_path, path)
    replay.crash_everywhere(35, [None, random.Random(1)])
    assert replay.problems == []
    assert replay.replays > 40


def test_without_syncing_directories_it_would_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing."""
    monkeypatch.setenv("WITHOUT_SYNC", "1")
    replay = Replay(WORKER, tmp_path)
    replay.crash_everywhere(100)
    assert any("instead of" in problem for problem in replay.problems)


def test_a_number_opened_again_before_its_close_returned_is_synced(tmp_path: Path) -> None:
    """Two threads: 1 closes descriptor 7, whose number 2 is given before 1 hears that it is closed."""
    root, file = (name.encode().hex(" ").replace(" ", "\\x") for name in ("/w", "/w/a"))
    lines = [
        f'1 openat(AT_FDCWD, "\\x{file}", O_RDWR|O_CREAT, 0666) = 7',
        "1 close(7 <unfinished ...>",
        f'2 openat(AT_FDCWD, "\\x{root}", O_RDONLY) = 7',
        "1 <... close resumed>) = 0",
        "2 fsync(7) = 0",
    ]
    disk = Disk(Path("/w"))
    for call in parse_calls(lines):
        disk.play(call)
    disk.write_surviving(tmp_path / "after")
    assert [path.name for path in (tmp_path / "after").iterdir()] == ["a"]
