"""The metadata columns of a dataset as a file, so that no metadata is read again when it is opened.

It is a file of arrays; vocabularies are JSON. Later changes are replayed from the log, and one that is ahead of the
documents is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pointsman.store.local.arrays_file import read_arrays, read_header, write_arrays
from pointsman.store.local.columns.metadata_columns import Scan, Table

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = b"PMCOLUMN"
_FORMAT: Final = 2  # with 1, texts were not in NFC


def write_table(path: Path, table: Table, identity: str, seq: int) -> None:
    """Replace the file; only for the writer of the dataset.

    Raises:
        OSError: it cannot be written.
    """
    descriptions, arrays = table.to_arrays()
    header = {"format": _FORMAT, "identity": identity, "seq": seq, "rows": table.size, "table": descriptions}
    write_arrays(path, _MAGIC, header, arrays)


def read_table(path: Path, identity: str, scan: Scan) -> tuple[Table, int]:
    """Return the columns of a file after verifying its checksum, and the sequence number that they reflect.

    Raises:
        FileNotFoundError: there is none.
        OSError, ValueError, KeyError, TypeError: it cannot be used.
    """
    header, arrays = read_arrays(path, _MAGIC, _FORMAT, identity)
    return Table.from_arrays(header["table"], arrays, scan), int(header["seq"])


def saved_state(path: Path, identity: str) -> tuple[int, int]:
    """Return the sequence number and the number of rows of a file by its header alone; zeros without a usable one."""
    header = read_header(path, _MAGIC, _FORMAT, identity)
    try:
        return int(header["seq"]), int(header["rows"])
    except (KeyError, TypeError, ValueError):
        return 0, 0
