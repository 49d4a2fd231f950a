"""What a dataset in a folder takes on disk, by what it is for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pointsman.store.local.manifest import TRUTH

_PART_OF_FILE: Final = {
    TRUTH: "documents",
    f"{TRUTH}-wal": "documents",
    f"{TRUTH}-shm": "documents",
    "keyword": "keyword_index",
    "vectors.bin": "vector_index",
    "vectors.codes": "vector_index",
    "columns.bin": "columns",
    "words.bin": "words",
}
_OTHER: Final = "other"
PARTS: Final = (*dict.fromkeys(_PART_OF_FILE.values()), _OTHER)
"""What `bytes_by_part` tells apart: the truth, what is derived from it, and all else, such as locks."""


def bytes_by_part(folder: Path) -> dict[str, int]:
    """Return the bytes of each of `PARTS` of a dataset; files that another process deletes meanwhile count nothing."""
    sizes = dict.fromkeys(PARTS, 0)
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            sizes[_PART_OF_FILE.get(path.relative_to(folder).parts[0], _OTHER)] += _size(path)
    return sizes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # an index file that was just replaced
        return 0
