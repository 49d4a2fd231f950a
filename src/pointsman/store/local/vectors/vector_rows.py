"""The vectors of a base: as they are, or rounded to eight bits where there are many.

Rounded vectors take a quarter of the room, on disk and in memory. They say which rows may be among the best, as by how
much they can be off is known; those few are read from the truth, where every vector is anyway, and scored exactly. A
vector that was changed or removed since the base was written is taken as rounded, until that change is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

GATHERED: Final = 64  # rows copied together: less than malloc fetches from the system anew
_SCANNED: Final = 1024  # rows of a scan of all that are converted together
_KERNEL: Final = 4  # rows that a matrix product takes at a time; what is left over is rounded otherwise
_STEPS: Final = 127  # on either side of the centre
_DEVIATIONS: Final = 6.0
"""Standard deviations of what rounding does to a cosine that are taken for the most it can do."""


class VectorReader(Protocol):
    """Reads vectors from where they are kept."""

    def vectors_of(self, keys: Sequence[int], seq: int) -> tuple[list[int], bytes]:
        """Return those of the keys that have a vector, ascending, and their vectors, concatenated.

        Args:
            keys: of vectors that were there after transaction ``seq``.
            seq: the number of a transaction.

        Raises:
            CorruptStoreError: a vector is damaged, or is not there although no transaction since has removed it.
        """
        ...


class ExactRows:
    """Vectors in a matrix, in memory or mapped.

    Args:
        matrix: shape ``(rows, dimensions)``.

    Attributes:
        scan: returns the dot product of every row with a vector; the matrix's own product, as every search calls it.
    """

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self.matrix = matrix
        self.dimensions = matrix.shape[1]
        self.scan: Callable[[NDArray[np.float32]], NDArray[np.float32]] = matrix.__matmul__

    def __len__(self) -> int:
        return len(self.matrix)

    def exact(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return some rows."""
        return self.matrix[rows]

    approximations = exact

    def errors(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return by how much the cosines of `approximations` may be off: nothing."""
        return np.zeros(len(rows), np.float32)

    def differ(self, rows: NDArray[np.intp], vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which rows are not of these vectors."""
        return np.asarray((self.matrix[rows] != vectors).any(axis=1))

    def dots(self, rows: NDArray[np.intp], vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the dot products of some rows with a vector, up to `errors`, copying a few at a time."""
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), GATHERED):
            scores[start : start + GATHERED] = self.matrix[rows[start : start + GATHERED]] @ vector
        return scores


class RoundedRows:
    """Vectors as their differences from a centre, each divided by a step of its own and rounded to eight bits.

    Args:
        keys: of the rows, ascending.
        centre: shape ``(dimensions,)``.
        numbers: shape ``(rows, dimensions)``.
        steps: shape ``(rows,)``.
        seq: the last transaction that they reflect.
        reader: reads the vectors themselves.
    """

    def __init__(
        self,
        keys: NDArray[np.int64],
        centre: NDArray[np.float32],
        numbers: NDArray[np.int8],
        steps: NDArray[np.float32],
        seq: int,
        reader: VectorReader,
    ) -> None:
        self.centre, self.numbers, self.steps = centre, numbers, steps
        self.dimensions = len(centre)
        self._keys, self._seq, self._reader = keys, seq, reader

    def __len__(self) -> int:
        return len(self.numbers)

    def approximations(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return some rows as rounded."""
        return np.asarray(self.numbers[rows] * self.steps[rows, None] + self.centre)

    def exact(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return some rows as the truth has them; as rounded where they were changed since."""
        vectors, keys, steps = self.approximations(rows), self._keys[rows], self.steps[rows]
        if not len(rows):
            return vectors
        read_keys, content = self._reader.vectors_of(keys.tolist(), self._seq)
        if not read_keys:
            return vectors
        indices, is_same = look_up(np.asarray(read_keys), keys)
        matrix = np.frombuffer(content, np.float32).reshape(len(read_keys), -1)
        if matrix.shape[1] == self.dimensions:
            matrix = matrix[indices]
            is_same &= (np.abs(matrix - vectors) <= steps[:, None]).all(axis=1)
            vectors[is_same] = matrix[is_same]
        return vectors

    def differ(self, rows: NDArray[np.intp], vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which rows are not of these vectors."""
        numbers, steps = rounded_rows(vectors, self.centre)
        return np.asarray((self.numbers[rows] != numbers).any(axis=1) | (self.steps[rows] != steps))

    def errors(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return by how much the cosines of `approximations` may be off."""
        return np.asarray(self.steps[rows] * np.float32(_DEVIATIONS / np.sqrt(12)))

    def scan(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the dot product of every row with a vector, up to `errors`."""
        scores = np.empty(len(self.numbers), np.float32)
        for start in range(0, len(scores), _SCANNED):
            scores[start : start + _SCANNED] = self.numbers[start : start + _SCANNED].astype(np.float32) @ vector
        return scores * self.steps + self.centre @ vector

    def dots(self, rows: NDArray[np.intp], vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the dot products of some rows with a vector, up to `errors`, copying a few at a time."""
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), GATHERED):
            block = self.numbers[rows[start : start + GATHERED]]
            scores[start : start + GATHERED] = block.astype(np.float32) @ vector
        return scores * self.steps[rows] + self.centre @ vector


def look_up(stored_keys: NDArray[np.int64], keys: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the row of each key among the stored keys, which ascend, and whether it is there; else the row is any."""
    if not len(stored_keys):
        return np.zeros(len(keys), np.intp), np.zeros(len(keys), np.bool_)
    rows = np.minimum(np.searchsorted(stored_keys, keys), len(stored_keys) - 1)
    return rows, np.asarray(stored_keys[rows] == keys)


def among_best(
    vectors: RoundedRows,
    rows: NDArray[np.intp],
    scores: NDArray[np.float32],
    vector: NDArray[np.float32],
    k: int,
    margin: float,
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the rows that may be among the best ``k``, or below them by a margin, and their exact scores.

    Args:
        vectors: of the rows.
        rows: the candidates.
        scores: their `dots`.
        vector: which they are scored by.
        k: how many are best.
        margin: how far below the k-th best a row may be.
    """
    if k < len(rows):
        errors = vectors.errors(rows)
        rows = rows[scores + errors >= np.partition(scores - errors, -k)[-k] - np.float32(margin)]
    return rows, _products(vectors.exact(rows), vector)


def rounded_rows(
    matrix: NDArray[np.float32], centre: NDArray[np.float32]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the numbers and steps of some vectors; see `RoundedRows`."""
    differences = matrix - centre
    steps = np.abs(differences).max(axis=1) / np.float32(_STEPS)
    steps[steps == 0] = 1.0  # the centre itself
    return np.rint(differences / steps[:, None]).astype(np.int8), steps


def all_dots(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the dot products of all rows with a vector, a few at a time on this thread.

    A larger product is spread over threads that wait for each other, and spin: 12 ms instead of 1 for 8,000 rows while
    other programs run.
    """
    scores = np.empty(len(matrix), np.float32)
    for start in range(0, len(matrix), GATHERED):
        np.dot(matrix[start : start + GATHERED], vector, out=scores[start : start + GATHERED])
    return scores


def _products(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the dot products of rows with a vector, each of which depends on no other row.

    A product takes rows by fours, and rounds what is left over otherwise: so it is filled up.
    """
    zeros = np.zeros((-len(matrix) % _KERNEL, matrix.shape[1]), np.float32)
    return all_dots(np.concatenate([matrix, zeros]), vector)[: len(matrix)]
