"""The metadata columns of a dataset as a file, so that no metadata is read again when it is opened.

Layout: magic, length of the header, header (JSON), arrays aligned to 64 bytes, checksum of all that. Vocabularies are
JSON as well. The file is derived: it names the dataset and the sequence number that it reflects, later changes are
replayed from the log, and one that is damaged, foreign or ahead of the documents is not used. Arrays are mapped copy on
write: changes to them stay in memory.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from pointsman.store.local.columns import Scan, Table
from pointsman.store.local.files import open_regular, remove_leftovers, replacing

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = b"PMCOLUMN"
_FORMAT: Final = 1
_ALIGNMENT: Final = 64


def write_table(path: Path, table: Table, identity: str, seq: int) -> None:
    """Replace the file; only for the writer of the dataset.

    Raises:
        OSError: it cannot be written.
    """
    header_fields, arrays = table.to_arrays()
    header = {
        "format": _FORMAT,
        "identity": identity,
        "seq": seq,
        "rows": table.size,
        "arrays": [[array.dtype.str, len(array)] for array in arrays],
        "table": header_fields,
    }
    remove_leftovers(path)
    with replacing(path) as file:
        digest = xxhash.xxh3_128()

        def write(data: bytes | memoryview) -> None:
            digest.update(data)
            file.write(data)

        head = json.dumps(header).encode()
        head += b" " * (-(16 + len(head)) % _ALIGNMENT)
        write(_MAGIC + struct.pack("<Q", len(head)) + head)
        for array in arrays:
            write(np.ascontiguousarray(array).data.cast("B") if len(array) else b"")
            write(b"\0" * (-array.nbytes % _ALIGNMENT))
        file.write(digest.digest())


def read_table(path: Path, identity: str, scan: Scan | None) -> tuple[Table, int]:
    """Return the columns of a file after verifying its checksum, and the sequence number that they reflect.

    Raises:
        FileNotFoundError: there is none.
        OSError, ValueError, KeyError, TypeError: it cannot be used.
    """
    check_table(path)
    content = np.memmap(path, np.uint8, "c")
    start, header = _header(content[: 16 + _header_length(content)].tobytes(), identity)
    arrays = []
    for dtype, length in header["arrays"]:
        end = start + np.dtype(dtype).itemsize * length
        arrays.append(np.asarray(content[start:end]).view(dtype))
        start = end + -end % _ALIGNMENT
    return Table.from_arrays(header["table"], arrays, scan), int(header["seq"])


def check_table(path: Path) -> None:
    """Verify the checksum of a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    if path.stat().st_size < 32:  # too short to be mapped
        raise ValueError("it is truncated")
    content = np.memmap(path, np.uint8, "r")
    if xxhash.xxh3_128(content[:-16].data).digest() != content[-16:].tobytes():
        raise ValueError("its checksum is wrong")


def saved_state(path: Path, identity: str) -> tuple[int, int]:
    """Return the sequence number and the number of rows of a file by its header alone; zeros without a usable one."""
    try:
        with open_regular(path) as file:
            beginning = file.read(16)
            header = beginning + file.read(_header_length(np.frombuffer(beginning, np.uint8)))
        _, header_fields = _header(header, identity)
        return int(header_fields["seq"]), int(header_fields["rows"])
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return 0, 0


def _header_length(content: Any) -> int:
    length = int(struct.unpack("<Q", content[8:16].tobytes())[0])
    if content[:8].tobytes() != _MAGIC or length > 2**32:
        raise ValueError("it is not a file of columns")
    return length


def _header(content: bytes, identity: str) -> tuple[int, dict[str, Any]]:
    """Return where the arrays begin, and the header."""
    header: dict[str, Any] = json.loads(content[16:])
    if (header["format"], header["identity"]) != (_FORMAT, identity):
        raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
    return len(content), header
