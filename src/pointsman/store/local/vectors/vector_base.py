"""The base file of a vector index, and the file of its codes.

A base is one file, mapped into memory: header, keys, vectors, checksum. Few vectors are there as they are, many rounded
to eight bits (see `pointsman.store.local.vectors.vector_rows`). Its codes (see
`pointsman.store.local.vectors.vector_codes`) have a file of their own, which names the base by its checksum.
"""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from pointsman.store.local.arrays_file import check_arrays, header_length
from pointsman.store.local.files_and_locks import file_stamp
from pointsman.store.local.vectors.vector_codes import (
    CODES,
    StoredCodes,
    VectorCodes,
    belongs_to,
    quantise,
    read_codes,
    trained_on,
    write_codes,
)
from pointsman.store.local.vectors.vector_rows import ExactRows, RoundedRows
from pointsman.tools.system.at_once import at_once

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.vectors.vector_rows import VectorReader


log = logging.getLogger(__name__)

MAGIC = b"PMVECTOR"
EXACT_FORMAT, ROUNDED_FORMAT = 1, 2
_EXACT_ROWS = 50_000  # above this many rows the scan is quantised
_CODES_ERRORS = (OSError, ValueError, RuntimeError)  # FAISS raises the last
_CODES_FORMAT = b"3"  # enters what names the base in it: codes of an earlier form belong to none


class VectorBase:
    """The rows of the base file, by ascending key.

    Attributes:
        is_quantised: whether there are so many rows that their codes are scanned.
    """

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
        self._codes_path, self._checksum = codes, checksum
        self._codes_damaged = False
        self.is_quantised = len(keys) > _EXACT_ROWS
        self.keys.flags.writeable = False  # columns cache the rows of constant key arrays
        self._codes: VectorCodes | None = None
        self._earlier: VectorCodes | None = None  # of an earlier base, whose rows begin this one in the same order
        self._building: threading.Thread | None = None
        self._guard = threading.Lock()

    @property
    def codes(self) -> VectorCodes | None:
        """Return the codes of all rows; None until they are built, which takes 20 s a million rows.

        They are read from their file. If that is missing, damaged or of another base, they are built in the background.
        """
        if self._codes is None:
            with self._guard:
                if self._codes is None:
                    self._codes = self._read_codes()
                if self._codes is None and self._building is None:
                    self._building = threading.Thread(target=self._build, name="pointsman-codes", daemon=True)
                    self._building.start()
        return self._codes

    def save_codes(self) -> None:
        """Write the file of the codes unless it is there; for the writer, of a base that is scanned with it.

        Raises:
            OSError: it cannot be written.
        """
        if self._codes_path is None:
            return
        if self._codes_damaged or not belongs_to(self._codes_path, self._checksum):
            with self._guard:
                if self._codes is None:
                    self._codes, self._earlier = quantise(self.rows, self._earlier), None
            write_codes(self._codes_path, self._codes, self._checksum)
            self._codes_damaged = False

    def continue_codes(self, base: VectorBase) -> None:
        """Take over the codes of a base whose rows begin this one, so that only the others are quantised."""
        if trained_on(len(base.keys)) == trained_on(len(self.keys)):
            self._earlier = base._codes

    def _build(self) -> None:
        try:
            codes = quantise(self.rows)
        except RuntimeError as error:  # of FAISS
            log.warning("%s cannot be built (%s); vectors are scanned exactly", self._codes_path, error)
            return
        with self._guard:
            self._codes = codes

    def codes_are_damaged(self) -> bool:
        """Read the file of the codes again, if there is one, to see whether it is damaged."""
        self._read_codes()
        return self._codes_damaged

    def use_codes(self, stored_codes: StoredCodes) -> None:
        """Use codes that are read already, if they are those of this base."""
        self._codes = self._own(stored_codes)

    def _read_codes(self) -> VectorCodes | None:
        if self._codes_path is None or not belongs_to(self._codes_path, self._checksum):
            return None
        try:
            codes = self._own(read_codes(self._codes_path))
            if codes is None:
                raise ValueError("it belongs to other vectors")
        except _CODES_ERRORS as error:
            log.warning("%s cannot be used (%s); it is built anew", self._codes_path, error)
            self._codes_damaged = True
            return None
        return codes

    def _own(self, stored_codes: StoredCodes) -> VectorCodes | None:
        index, checksum = stored_codes
        return VectorCodes(index, self.rows) if (checksum, index.ntotal) == (self._checksum, len(self.rows)) else None


def read_base(
    path: Path, identity: str, dimensions: int, reader: VectorReader, *, with_codes: bool = False
) -> VectorBase:
    """Map a base file after verifying its checksum; vectors that it has only rounded are read by ``reader``.

    Args:
        path: of the file.
        identity: of what it is made from.
        dimensions: of a vector.
        reader: reads exact vectors.
        with_codes: read its codes meanwhile, too, if they are on disk: whoever searches needs both.

    Raises:
        ValueError: it is truncated, foreign, or of another format.
    """
    stamp, stored_codes = file_stamp(path), None
    # The pages of this map are present now; those of another one would be fetched one by one by the next 200 searches.
    if with_codes and (codes_path := path.with_suffix(CODES)).exists():
        stored_codes, content = at_once(partial(_read_if_sound, codes_path), partial(check_arrays, path))
    else:
        content = check_arrays(path)
    base = base_in(content, path, stamp, identity, dimensions, reader)
    if stored_codes is not None:
        base.use_codes(stored_codes)
    return base


def base_in(
    content: NDArray[np.uint8], path: Path, stamp: object, identity: str, dimensions: int, reader: VectorReader
) -> VectorBase:
    """Return the base in the content of a file.

    Raises:
        ValueError: it is foreign, or of another format.
    """
    start = 16 + header_length(content, MAGIC)
    header = json.loads(content[16:start].tobytes())
    formats = (EXACT_FORMAT, ROUNDED_FORMAT)
    if header["format"] not in formats or (header["identity"], header["dimensions"]) != (identity, dimensions):
        raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
    count, seq = header["rows"], header["seq"]

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


def _read_if_sound(path: Path) -> StoredCodes | None:
    """Return the codes of a file; None if it cannot be read: `VectorBase.codes` reads it again, and tells why not."""
    try:
        return read_codes(path)
    except _CODES_ERRORS:
        return None
