"""What a status says of memory and disk, and to whom."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import pytest

from pointsman import Document, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.store.local.folder_backend import PARTS, bytes_by_part
from pointsman.store.local.vectors import vector_index
from pointsman.tools.system import memory as _memory
from pointsman.tools.system.memory import memory_use

ROOM = 64 << 20


@pytest.mark.skipif(not _memory._STATUS.exists(), reason="only Linux tells")
def test_pages_of_files_are_told_apart_from_other_memory() -> None:
    with tempfile.TemporaryFile(dir="/var/tmp") as file:  # on a disk, as the other temporary files may not be
        file.write(b"x" * ROOM)
        file.flush()
        first_use = memory_use()
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert pages[:: mmap.PAGESIZE].count(b"x") == ROOM // mmap.PAGESIZE
        second_use = memory_use()
        block = bytearray(b"y" * ROOM)
        third_use = memory_use()
        pages.close()
    assert block
    rise = {name: (second_use[name] or 0) - (first_use[name] or 0) for name in first_use}
    assert min(rise.values()) > 0.9 * ROOM
    assert (third_use["resident"] or 0) - (second_use["resident"] or 0) > 0.9 * ROOM
    assert (third_use["files"] or 0) - (second_use["files"] or 0) < 0.1 * ROOM


def test_a_system_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_STATUS", tmp_path / "nothing")
    assert memory_use() == {"resident": None, "files": None}
    (tmp_path / "nothing").write_text("Name:\tpython\nVmRSS:\t     12 kB\n")
    assert memory_use() == {"resident": 12 << 10, "files": None}


def test_bytes_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_index, "_REBASE_ROWS", 30)
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document(str(number), f"signal {number}") for number in range(50)])
        status = workspace.status("notes")
        folder = tmp_path / "datasets" / "notes"
        (folder / "left.tmp").write_bytes(b"123")
        sizes = bytes_by_part(folder)
    assert list(status["bytes_by_part"]) == list(sizes) == list(PARTS)
    assert sizes["other"] == status["bytes_by_part"]["other"] + 3
    assert sum(status["bytes_by_part"].values()) == status["bytes"]
    assert sizes["vector_index"] == (folder / "vectors.bin").stat().st_size
    assert sizes["keyword_index"] == sum(path.stat().st_size for path in (folder / "keyword").iterdir())
