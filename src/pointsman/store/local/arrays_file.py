"""Files of arrays that are mapped: magic, length of the header, header (JSON), arrays, checksum of all that.

Arrays are aligned to 64 bytes. What is in such a file is derived: its header names the dataset and the sequence number
that it reflects, and one that is damaged or foreign is not used.
"""

from __future__ import annotations

import json
import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from pointsman.store.local.files_and_locks import open_regular, remove_leftovers
from pointsman.tools.system.replaced_files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_ALIGNMENT: Final = 64


def write_arrays(path: Path, magic: bytes, header: Mapping[str, Any], arrays: Sequence[NDArray[Any]]) -> None:
    """Replace a file; only for the writer of the dataset.

    Args:
        path: the file.
        magic: eight bytes that tell its kind.
        header: has ``format``, ``identity`` and ``seq``; anything else in JSON.
        arrays: of one dimension.

    Raises:
        OSError: it cannot be written.
    """
    full_header = {**header, "arrays": [[array.dtype.str, len(array)] for array in arrays]}
    padding = (np.zeros(-array.nbytes % _ALIGNMENT, np.uint8) for array in arrays)
    write_parts(path, magic, full_header, chain.from_iterable(zip(arrays, padding, strict=True)))


def write_parts(path: Path, magic: bytes, header: Mapping[str, Any], parts: Iterable[NDArray[Any]]) -> None:
    """Replace a file; only for the writer of the dataset.

    Args:
        path: the file.
        magic: eight bytes that tell its kind.
        header: anything in JSON.
        parts: what follows it, as it is; the first one is aligned.

    Raises:
        OSError: it cannot be written.
    """
    remove_leftovers(path)
    with replacing(path) as file:
        digest = xxhash.xxh3_128()

        def write(content: bytes | memoryview) -> None:
            digest.update(content)
            file.write(content)

        head = json.dumps(header).encode()
        head += b" " * (-(16 + len(head)) % _ALIGNMENT)
        write(magic + struct.pack("<Q", len(head)) + head)
        for array in parts:
            write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        file.write(digest.digest())


def read_arrays(path: Path, magic: bytes, format_: int, identity: str) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return the header of a file and its arrays after verifying the checksum; changes to them stay in memory.

    Raises:
        FileNotFoundError: there is none.
        OSError, ValueError, KeyError, TypeError: it cannot be used.
    """
    check_arrays(path)
    content = np.memmap(path, np.uint8, "c")
    start = 16 + header_length(content, magic)
    header = _header(content[:start].tobytes(), format_, identity)
    arrays = []
    for dtype, length in header["arrays"]:
        end = start + np.dtype(dtype).itemsize * length
        arrays.append(np.asarray(content[start:end]).view(dtype))
        start = end + -end % _ALIGNMENT
    return header, arrays


def check_arrays(path: Path) -> NDArray[np.uint8]:
    """Verify the checksum of a file; return its content, mapped.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    if path.stat().st_size < 32:  # too short to be mapped
        raise ValueError("it is truncated")
    content = np.memmap(path, np.uint8, "r")
    if xxhash.xxh3_128(content[:-16].data).digest() != content[-16:].tobytes():
        raise ValueError("its checksum is wrong")
    return content


def read_header(path: Path, magic: bytes, format_: int, identity: str) -> dict[str, Any]:
    """Return the header of a file by its beginning alone; empty without a usable one."""
    try:
        with open_regular(path) as file:
            beginning = file.read(16)
            content = beginning + file.read(header_length(np.frombuffer(beginning, np.uint8), magic))
        return _header(content, format_, identity)
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return {}


def header_length(content: Any, magic: bytes) -> int:
    """Return the length of the header of a file with this content.

    Raises:
        ValueError: it is of another kind.
    """
    length = int(struct.unpack("<Q", content[8:16].tobytes())[0])
    if content[:8].tobytes() != magic or length > 2**32:
        raise ValueError("it is a file of another kind")
    return length


def _header(content: bytes, format_: int, identity: str) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(content[16:])
    if (header["format"], header["identity"]) != (format_, identity):
        raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
    return header
