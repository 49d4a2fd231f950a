"""The best cosines of questions over parts of a vector index, kept so that they merge.

The best cosine over some documents is the highest of the best ones over parts of them. Documents that everyone may see
alike are such a part; so a view over many groups costs only what no view before it has asked of.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from pointsman.store.local.vectors import ROUNDING, locate_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.store.local.vectors import VectorSubset

_TOGETHER: Final = 16_384
"""Rows that are multiplied at a time, to limit memory."""
_PARTS: Final = 200_000
"""Parts whose best cosines are kept: for 120 questions, a hundred megabytes."""


class BestCosines:
    """The best cosines of questions over parts of one dataset's vectors; any number of threads may ask.

    Attributes:
        rows: how many rows have been multiplied so far.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._lock = threading.Lock()
        self._state: object = None
        self._kept: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}

    def of(self, subset: VectorSubset, parts: NDArray[np.int32], questions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the best cosine of each question, shape ``(questions,)``.

        Each is exactly what a search for the question in the subset returns first.

        Args:
            subset: the rows of the documents that exist, at least one.
            parts: to which part each of ``subset.keys`` belongs, as a number.
            questions: of length 1, shape ``(questions, dimensions)``.
        """
        order = np.argsort(parts, kind="stable")
        ends = np.flatnonzero(np.diff(parts[order])) + 1
        about = xxhash.xxh3_128_digest(questions.tobytes())
        # What a part is, its keys say: the access of its documents may have changed since.
        keys_of = {(about, xxhash.xxh3_128_digest(keys.tobytes())): keys for keys in np.split(subset.keys[order], ends)}
        with self._lock:
            if self._state is not subset.state or len(self._kept) > _PARTS:
                self._state, self._kept = subset.state, {}
            kept = self._kept
        missing = [(name, keys) for name, keys in keys_of.items() if name not in kept]
        computed: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}
        for batch in _batches(missing):
            self.rows += sum(len(keys) for _, keys in batch)
            cosines = _best_of_each(subset, [keys for _, keys in batch], questions)
            for (name, _), row in zip(batch, cosines, strict=True):
                computed[name] = np.maximum(computed.get(name, row), row)
        kept.update(computed)
        best: NDArray[np.float32] = np.max(
            [computed[name] if name in computed else kept[name] for name in keys_of], axis=0
        )
        return best


_Part = tuple[tuple[bytes, bytes], "NDArray[np.int64]"]
"""The name of a part, and keys of it."""


def _batches(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield parts with at most `_TOGETHER` keys together; larger ones are divided."""
    batch: list[_Part] = []
    room = _TOGETHER
    for name, keys in parts:
        for start in range(0, len(keys), _TOGETHER):
            piece = keys[start : start + _TOGETHER]
            if len(piece) > room:
                yield batch
                batch, room = [], _TOGETHER
            batch.append((name, piece))
            room -= len(piece)
    if batch:
        yield batch


def _best_of_each(
    subset: VectorSubset, parts: Sequence[NDArray[np.int64]], questions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the best cosine of each question over each part, shape ``(parts, questions)``; every key has a vector.

    A matrix product rounds by the position of a row. So it only chooses candidates, and each of those is multiplied by
    itself.
    """
    sizes = np.array([len(keys) for keys in parts])
    starts = np.cumsum(sizes) - sizes
    block = np.empty((int(sizes.sum()), questions.shape[1]), np.float32)
    for matrix, indices, rows in locate_rows(subset.state, np.concatenate(parts)):
        block[indices] = matrix[rows]
    products = block @ questions.T
    highest = np.maximum.reduceat(products, starts, axis=0)
    likely = products >= np.repeat(highest - np.float32(ROUNDING), sizes, axis=0)
    part_of = np.repeat(np.arange(len(parts)), sizes)
    best = np.empty((len(parts), len(questions)), np.float32)
    for number, question in enumerate(questions):
        rows = np.flatnonzero(likely[:, number])
        scores = np.einsum("ij,j->i", block[rows], question)
        best[:, number] = np.maximum.reduceat(scores, np.searchsorted(part_of[rows], np.arange(len(parts))))
    return best
