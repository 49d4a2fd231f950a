"""Texts and vectors as they are in the file of the documents: in less room, and the same to the last bit.

A text is deflated where that makes it a tenth shorter. Of a vector, four bytes a number, only the first byte of each is
packed, its sign and all but one bit of its exponent: numbers of one vector are of similar size, so half a byte says how
far an exponent is below the greatest. The few numbers that are too small for it are listed. The other three bytes look
random. With 384 numbers that makes seven eighths, and six vectors to a page of SQLite's instead of five.

A text that is deflated is a blob. The bytes of a vector are a multiple of four, and two more where it is packed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.tools.batching import batched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SHORTEST: Final = 100
"""Bytes of a text below which packing saves next to nothing."""
_GREATEST_RATIO: Final = 40
"""A text that deflates even better stays as it is; so no blob, whoever made it, takes more memory than that."""
_RAW_DEFLATE: Final = -15

_HEAD: Final = 2  # bytes of a packed vector that give its greatest exponent and how many numbers are listed
_LISTED: Final = 4  # bytes of a listed number: where it is, and its first byte
_STEPS: Final = 8  # exponents, halved, that half a byte can tell apart beside the sign
_TOGETHER: Final = 8  # numbers; a vector whose length is no multiple of it is not packed
_AT_ONCE: Final = 64  # vectors unpacked together: less than malloc fetches from the system anew
_SIGN, _EXPONENT = 0x80, 0x7F
_CODES = np.arange(16, dtype=np.uint8)
_FIRSTS: Final = (_CODES & _STEPS) * 16 - _CODES % _STEPS  # of a half byte: the first byte less the greatest exponent
_PAIRS: Final = np.stack([np.tile(_FIRSTS, 16), np.repeat(_FIRSTS, 16)], axis=1).view("<u2")[:, 0]


def pack_text(text: str) -> str | bytes:
    """Return a text as it is stored."""
    content = text.encode()
    if len(content) < _SHORTEST:
        return text
    blob = zlib.compress(content, wbits=_RAW_DEFLATE)
    return blob if len(content) / _GREATEST_RATIO <= len(blob) <= len(content) * 0.9 else text


def unpack_text(blob: bytes) -> str:
    """Return the text of a stored blob.

    Raises:
        ValueError: it is none, or becomes longer than any that `pack_text` makes.
    """
    inflater = zlib.decompressobj(_RAW_DEFLATE)
    try:
        content = inflater.decompress(blob, len(blob) * _GREATEST_RATIO + 1)
    except zlib.error as error:
        raise ValueError(f"the text cannot be unpacked: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the text cannot be unpacked: it does not end where it should")
    return content.decode()


def pack_vectors(vectors: Sequence[bytes]) -> list[bytes]:
    """Return vectors, each some float32, as they are stored, without checksums."""
    contents = list(vectors)
    for length in {len(vector) for vector in vectors}:
        if length and not length % (4 * _TOGETHER):
            numbers = [number for number, vector in enumerate(vectors) if len(vector) == length]
            matrix = b"".join([vectors[number] for number in numbers])
            for number, packed_vector in zip(numbers, _pack(matrix, length // 4), strict=True):
                contents[number] = packed_vector or vectors[number]
    return contents


def _pack(matrix: bytes, dimensions: int) -> list[bytes]:
    """Return vectors as they are packed; empty where that is no shorter."""
    integers = np.frombuffer(matrix, "<u4").reshape(-1, dimensions)
    firsts = (integers >> 24).astype(np.uint8)
    exponents = firsts & _EXPONENT
    greatest = exponents.max(axis=1)
    gaps = greatest[:, None] - exponents
    is_listed = gaps >= _STEPS
    codes = gaps & (_STEPS - 1) | (firsts & _SIGN) >> 4
    lows, thirds = integers.astype("<u2"), (integers >> 16).astype(np.uint8)
    body = np.concatenate([lows.view(np.uint8), thirds, codes[:, 0::2] | codes[:, 1::2] << 4], axis=1)
    contents = []
    for row, count in enumerate(is_listed.sum(axis=1).tolist()):
        if count > 255 or _HEAD + _LISTED * count >= dimensions // 2:
            contents.append(b"")
            continue
        content = bytes((int(greatest[row]), count)) + body[row].tobytes()
        if count:
            columns = np.flatnonzero(is_listed[row])
            content += (columns << 8 | firsts[row, columns]).astype("<u4").tobytes()
        contents.append(content)
    return contents


def unpack_vectors(contents: Sequence[bytes]) -> list[bytes]:
    """Return the vectors that are stored in either form, without checksums.

    Raises:
        ValueError: one is in neither form.
    """
    vectors = list(contents)
    sizes = [len(content) - _LISTED * content[1] if len(content) % 4 == _HEAD else 0 for content in contents]
    for size in {*sizes} - {0}:
        dimensions = (size - _HEAD) * 2 // 7
        if dimensions < _TOGETHER or dimensions % _TOGETHER or _HEAD + dimensions * 7 // 2 != size:
            raise ValueError(f"no packed vector takes {size} bytes")
        numbers_of_size = [number for number, own_size in enumerate(sizes) if own_size == size]
        for numbers in batched(numbers_of_size, _AT_ONCE):
            rows = np.frombuffer(b"".join([contents[number][:size] for number in numbers]), np.uint8).reshape(-1, size)
            for number, integers in zip(numbers, _unpack(rows, dimensions), strict=True):
                if len(contents[number]) > size:
                    _insert(np.frombuffer(contents[number], "<u4", offset=size), integers)
                vectors[number] = integers.tobytes()
    return vectors


def _unpack(rows: NDArray[np.uint8], dimensions: int) -> NDArray[np.uint32]:
    """Return the bits of packed vectors, without what is listed."""
    lows, thirds, codes = np.split(rows[:, _HEAD:], [2 * dimensions, 3 * dimensions], axis=1)
    integers = (np.take(_PAIRS, codes).view(np.uint8) + rows[:, :1]).astype("<u4")
    integers <<= 8
    integers |= thirds
    integers <<= 16
    integers |= lows.view("<u2")
    return integers


def _insert(listing: NDArray[np.uint32], integers: NDArray[np.uint32]) -> None:
    """Put the listed first bytes of a vector where they belong."""
    columns = listing >> 8
    if columns.max() >= len(integers):
        raise ValueError("a packed vector lists a number that it does not have")
    integers[columns] = integers[columns] & 0xFFFFFF | listing << 24
