"""Files of arrays that are mapped: magic, length of the header, header (JSON), arrays, checksum of all that.

Arrays are aligned to 64 bytes. What is in such a file is derived: its header names the dataset and the sequence number
that it reflects, and one that is damaged or foreign is not used.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
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


def header_length(content: Any, magic: bytes) -> int:
    """Return the length of the header of a file with this content.

    Raises:
        ValueError: it is of another kind.
    """
    length = int(struct.unpack("<Q", content[8:16].tobytes())[0])
    if content[:8].tobytes() != magic or length > 2**32:
        raise ValueError("it is a file of another kind")
    return length


@dataclass(frozen=True, slots=True)
class ArraysFile:
    """A file of arrays, and what tells that it is the right one.

    Attributes:
        path: the file.
        magic: eight bytes that tell its kind.
        format: the number of its form.
        identity: what its content is derived from.
    """

    path: Path
    magic: bytes
    format: int
    identity: str

    def write(self, seq: int, arrays: Sequence[NDArray[Any]], **more: Any) -> None:
        """Replace the file; only for the writer of the dataset.

        Args:
            seq: the sequence number that it reflects.
            arrays: of one dimension.
            more: entries of the header, in JSON.

        Raises:
            OSError: it cannot be written.
        """
        described_arrays = [[array.dtype.str, len(array)] for array in arrays]
        header = {"format": self.format, "identity": self.identity, "seq": seq, **more, "arrays": described_arrays}
        padding = (np.zeros(-array.nbytes % _ALIGNMENT, np.uint8) for array in arrays)
        write_parts(self.path, self.magic, header, chain.from_iterable(zip(arrays, padding, strict=True)))

    def read(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """Return the header and the arrays after verifying the checksum; changes to them stay in memory.

        Raises:
            FileNotFoundError: there is none.
            OSError, ValueError, KeyError, TypeError: it cannot be used.
        """
        check_arrays(self.path)
        content = np.memmap(self.path, np.uint8, "c")
        start = 16 + header_length(content, self.magic)
        header = self._header(content[:start].tobytes())
        arrays = []
        for dtype, length in header["arrays"]:
            end = start + np.dtype(dtype).itemsize * length
            arrays.append(np.asarray(content[start:end]).view(dtype))
            start = end + -end % _ALIGNMENT
        return header, arrays

    def numbers(self) -> dict[str, int]:
        """Return the whole numbers in the header, such as ``seq``, by its beginning alone; none without a good one."""
        try:
            with open_regular(self.path) as file:
                beginning = file.read(16)
                content = beginning + file.read(header_length(np.frombuffer(beginning, np.uint8), self.magic))
            return {name: value for name, value in self._header(content).items() if isinstance(value, int)}
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return {}

    def _header(self, content: bytes) -> dict[str, Any]:
        header: dict[str, Any] = json.loads(content[16:])
        if (header["format"], header["identity"]) != (self.format, self.identity):
            raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
        return header
