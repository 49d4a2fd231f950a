"""The base file of a vector index, and the file of its codes.

A base is one file, mapped into memory: header, keys, vectors, checksum. Few vectors are there as they are, many rounded
to eight bits (see `pointsman.store.local.vector_rows`). Its codes, four bits for two numbers, are an index of FAISS
over all rows, in a file of its own, which names the base by its checksum.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from pointsman.store.local.arrays_file import check_arrays
from pointsman.store.local.files_and_locks import file_stamp, open_regular, remove_leftovers, replacing
from pointsman.store.local.vector_rows import ExactRows, RoundedRows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.vector_rows import VectorReader


log = logging.getLogger(__name__)

MAGIC = b"PMVECTOR"
EXACT_FORMAT, ROUNDED_FORMAT = 1, 2
CODES = ".codes"
"""The suffix of the file with the codes."""
BLOCK = 16_384
"""Rows processed at a time while a file or an index is written."""
_SAMPLE = 512  # rows whose codes are compared with them
_TRAINING_ROWS = 4096  # FAISS uses no more for 16 centroids
_CODES_FORMAT = b"2"  # enters what names the base in it: codes of an earlier form belong to none


class VectorBase:
    """The rows of the base file, by ascending key."""

    def __init__(
        self,
        keys: NDArray[np.int64],
        rows: ExactRows | RoundedRows,
        seq: int,
        stamp: object = None,
        codes: Path | None = None,
        checksum: bytes = b"",
    ) -> None:
        self.keys, self.rows, self.seq, self.stamp = keys, rows, seq, stamp
        self._codes, self._checksum = codes, checksum
        self._codes_damaged = False
        self.keys.flags.writeable = False  # columns cache the rows of constant key arrays
        self._loaded_codes: Any = None
        self._earlier: Any = None  # the codes of an earlier base whose rows begin this one, in the same order
        self._building: threading.Thread | None = None
        self._residuals: tuple[Any, NDArray[np.float32]] | None = None
        self._guard = threading.Lock()

    def residuals(self, index: Any) -> NDArray[np.float32]:
        """Return what its codes leave out of some rows, shape ``(at most 512, dimensions)``; computed once an index."""
        if self._residuals is None or self._residuals[0] is not index:
            self._residuals = index, _residuals(index, self.rows)
        return self._residuals[1]

    @property
    def quantised(self) -> Any:
        """Return FAISS's index of 4-bit codes over all rows; None until it is built, which takes 10 s a million rows.

        It is read from its file. If that is missing, damaged or of another base, it is built in the background.
        """
        if self._loaded_codes is None:
            with self._guard:
                if self._loaded_codes is None:
                    self._loaded_codes = self._read_codes()
                if self._loaded_codes is None and self._building is None:
                    self._building = threading.Thread(target=self._build, name="pointsman-codes", daemon=True)
                    self._building.start()
        return self._loaded_codes

    def save_codes(self) -> None:
        """Write the file of the codes unless it is there; for the writer, of a base that is scanned with it.

        Raises:
            OSError: it cannot be written.
        """
        if self._codes is None:
            return
        if self._codes_damaged or not _belongs_to(self._codes, self._checksum):
            with self._guard:
                if self._loaded_codes is None:
                    self._loaded_codes, self._earlier = _quantise(self.rows, self._earlier), None
            _write_codes(self._codes, self._loaded_codes, self._checksum)
            self._codes_damaged = False

    def continue_codes(self, base: VectorBase) -> None:
        """Take over the codes of a base whose rows begin this one, so that only the others are quantised."""
        if _trained_on(len(base.keys)) == _trained_on(len(self.keys)):
            self._earlier = base._loaded_codes

    def _build(self) -> None:
        try:
            index = _quantise(self.rows)
        except RuntimeError as error:  # of FAISS
            log.warning("%s cannot be built (%s); vectors are scanned exactly", self._codes, error)
            return
        with self._guard:
            self._loaded_codes = index

    def codes_are_damaged(self) -> bool:
        """Read the file of the codes again, if there is one, to see whether it is damaged."""
        self._read_codes()
        return self._codes_damaged

    def _read_codes(self) -> Any:
        if self._codes is None:
            return None
        try:
            return _read_codes(self._codes, self._checksum, len(self.keys))
        except (OSError, ValueError, RuntimeError) as error:  # FAISS raises the last
            log.warning("%s cannot be used (%s); it is built anew", self._codes, error)
            self._codes_damaged = True
            return None


def read_base(path: Path, identity: str, dimensions: int, reader: VectorReader) -> VectorBase:
    """Map a base file after verifying its checksum; vectors that it has only rounded are read by ``reader``.

    Raises:
        ValueError: it is truncated, foreign, or of another format.
    """
    stamp = file_stamp(path)
    # The pages of this map are present now; those of another one would be fetched one by one by the next 200 searches.
    return base_in(check_arrays(path), path, stamp, identity, dimensions, reader)


def base_in(
    content: NDArray[np.uint8], path: Path, stamp: object, identity: str, dimensions: int, reader: VectorReader
) -> VectorBase:
    """Return the base in the content of a file.

    Raises:
        ValueError: it is foreign, or of another format.
    """
    if content[:8].tobytes() != MAGIC:
        raise ValueError("it is not a vector file")
    (length,) = struct.unpack("<Q", content[8:16].tobytes())
    header = json.loads(content[16 : 16 + length].tobytes())
    formats = (EXACT_FORMAT, ROUNDED_FORMAT)
    if header["format"] not in formats or (header["identity"], header["dimensions"]) != (identity, dimensions):
        raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
    count, seq = header["rows"], header["seq"]
    start = 16 + length

    def array(dtype: Any, size: int) -> Any:
        nonlocal start
        begin, start = start, start + np.dtype(dtype).itemsize * size
        # A plain array over the map: its own class would cost microseconds in every operation.
        return np.asarray(content[begin:start].view(dtype), order="C")

    keys = array(np.int64, count)
    rows: ExactRows | RoundedRows
    if header["format"] == ROUNDED_FORMAT:
        centre, numbers = array(np.float32, dimensions), array(np.int8, count * dimensions)
        array(np.int8, -count * dimensions % 4)
        steps = array(np.float32, count)
        rows = RoundedRows(keys, centre, numbers.reshape(count, dimensions), steps, seq, reader)
    else:
        rows = ExactRows(array(np.float32, count * dimensions).reshape(count, dimensions))
    checksum = xxhash.xxh3_128(_CODES_FORMAT + content[-16:].tobytes()).digest()
    return VectorBase(keys, rows, seq, stamp, path.with_suffix(CODES), checksum)


def _quantise(rows: ExactRows | RoundedRows, earlier: Any = None) -> Any:
    """Return FAISS's product quantiser over all rows, 4 bits for two numbers.

    Vectors are rotated at random first: where few dimensions vary most, those of the best rows would lie far off the
    16 values that two numbers are rounded to. The codes are an inverted file of a single list, since a flat index takes
    no filters. Takes some 15 s of processor time for a million rows of 384 dimensions.

    Args:
        rows: the vectors; where they are rounded, that is far less than the codes leave out.
        earlier: the index of the first rows, whose codes are copied; the result is the same without it.
    """
    import faiss

    count, dimensions = len(rows), rows.dimensions
    if earlier is None:
        groups = dimensions // 2 if dimensions % 2 == 0 else dimensions
        kind = f"RR{dimensions},IVF1,PQ{groups}x4fs"
        index: Any = faiss.index_factory(dimensions, kind, faiss.METRIC_INNER_PRODUCT)
        codes: Any = faiss.downcast_index(index.index)
        training = codes.pq.cp
        training.min_points_per_centroid = 1  # else it warns on standard output
        training.niter = 10  # the default is 25
        first = _trained_on(count)
        sample = rows.approximations(np.linspace(0, first - 1, min(first, _TRAINING_ROWS)).astype(np.intp))
        with one_thread():
            index.train(np.resize(sample, (max(len(sample), 64), dimensions)))  # repeated if there are too few
    else:
        index = faiss.deserialize_index(faiss.serialize_index(earlier))
    for start in range(index.ntotal, count, BLOCK):
        with one_thread():
            index.add(rows.approximations(np.arange(start, min(start + BLOCK, count))))
    return index


def _residuals(index: Any, vectors: ExactRows | RoundedRows) -> NDArray[np.float32]:
    """Return the differences between some rows, evenly spaced, and what their codes stand for."""
    import faiss

    sample = vectors.approximations(np.unique(np.linspace(0, len(vectors) - 1, _SAMPLE).astype(np.intp)))
    codes: Any = faiss.downcast_index(index.index)
    rotated_rows = index.chain.at(0).apply(sample)
    centre = codes.quantizer.reconstruct(0) if codes.by_residual else np.zeros(codes.d, np.float32)
    approximations = codes.pq.decode(codes.pq.compute_codes(rotated_rows - centre)) + centre
    return np.asarray(sample - index.chain.at(0).reverse_transform(approximations))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let FAISS use this thread alone.

    A query is scanned by one anyway, and the others would spin. Training meets at barriers: where other programs run,
    it takes minutes instead of a second.
    """
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _trained_on(rows: int) -> int:
    """Return how many of the first rows the quantiser is trained on: at least a quarter, the same for a while."""
    return 1 << 2 * ((max(rows, 1).bit_length() - 1) // 2)


def _write_codes(path: Path, index: Any, checksum: bytes) -> None:
    """Write FAISS's form of an index, the checksum of the base file that it is made from, and its own."""
    import faiss

    remove_leftovers(path)
    with replacing(path) as file:
        digest = xxhash.xxh3_128()

        def write(data: bytes) -> int:
            digest.update(data)
            return file.write(data)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write))  # type: ignore[attr-defined]  # Python's wrapper has it
        write(checksum)
        file.write(digest.digest())


def _read_codes(path: Path, checksum: bytes, rows: int) -> Any:
    """Read the index of a file after verifying its checksum; None if there is none for this base.

    Raises:
        ValueError, OSError, RuntimeError: it is damaged.
    """
    import faiss

    stamp = file_stamp(path)
    if not _belongs_to(path, checksum):
        return None
    content = np.memmap(path, np.uint8, "r")
    if xxhash.xxh3_128(content[:-16].data).digest() != content[-16:].tobytes():
        raise ValueError("its checksum is wrong")
    index = faiss.read_index(str(path))
    if file_stamp(path) != stamp or index.ntotal != rows:  # replaced meanwhile
        raise ValueError("it belongs to other vectors")
    return index


def _belongs_to(path: Path, checksum: bytes) -> bool:
    """Whether a file of codes is made from the base file with this checksum, by its end alone."""
    try:
        with open_regular(path) as file:
            file.seek(-32, os.SEEK_END)
            return file.read(16) == checksum
    except OSError:  # missing or too short
        return False
