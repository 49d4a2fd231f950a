"""Everything at once, for some seconds; benchmarks/soak.py has the half hour, and watches the memory."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")

from disk_kit import NoSmallDiskError, small_disk
from soak_kit import Soak


def test_six_seconds_of_everything(tmp_path: Path) -> None:
    disk, other_folder = tmp_path / "disk", tmp_path / "beside"
    disk.mkdir()
    other_folder.mkdir()
    with ExitStack() as stack:
        try:
            small = bool(stack.enter_context(small_disk(disk, 64 << 20)))
        except NoSmallDiskError:
            small = False
        soak = stack.enter_context(closing(Soak(disk, other_folder, small=small, seed=4)))
        busy = ("POST documents 200", "POST search 200")
        soak.run(6, calm=0.3, enough=lambda: all(soak.counts[kind] > 10 for kind in busy))
    assert soak.problems == []
    assert all(soak.counts[kind] > 10 for kind in busy), soak.counts
    assert soak.counts["unforeseen"] == 0
    assert soak.counts["workers killed"] + soak.counts["services killed"] > 0
    assert soak.counts["documents compared at the end"] > 50
