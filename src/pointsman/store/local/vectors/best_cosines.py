"""The best cosines of questions over groups of a vector index, kept so that they merge.

The best cosine over some documents is the highest of the best ones over groups of them. Documents that everyone may see
alike are such a group; so a view over many groups costs only what no view before it has asked of.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from pointsman.store.local.vectors.vector_query import ROUNDING
from pointsman.store.local.vectors.vector_rows import RoundedRows
from pointsman.store.local.vectors.vector_state import locate_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.store.local.vectors.vector_state import VectorSubset

_TOGETHER: Final = 16_384
"""Rows that are multiplied at a time, to limit memory."""
_GROUPS: Final = 200_000
"""Groups whose best cosines are kept: for 120 questions, a hundred megabytes."""


class BestCosines:
    """The best cosines of questions over groups of one dataset's vectors; any number of threads may ask.

    Attributes:
        rows: how many rows have been multiplied so far.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._lock = threading.Lock()
        self._state: object = None
        self._cosines_of: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}

    def of(
        self, subset: VectorSubset, groups: NDArray[np.int32], questions: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the best cosine of each question, shape ``(questions,)``.

        Each is exactly what a search for the question in the subset returns first.

        Args:
            subset: the rows of the documents that exist, at least one.
            groups: to which group each of ``subset.keys`` belongs, as a number.
            questions: of length 1, shape ``(questions, dimensions)``.
        """
        order = np.argsort(groups, kind="stable")
        ends = np.flatnonzero(np.diff(groups[order])) + 1
        digest = xxhash.xxh3_128_digest(questions.tobytes())
        # What a group is, its keys say: the access of its documents may have changed since.
        keys_of = {
            (digest, xxhash.xxh3_128_digest(keys.tobytes())): keys for keys in np.split(subset.keys[order], ends)
        }
        with self._lock:
            if self._state is not subset.state or len(self._cosines_of) > _GROUPS:
                self._state, self._cosines_of = subset.state, {}
            cosines_of = self._cosines_of
        new_groups = [(name, keys) for name, keys in keys_of.items() if name not in cosines_of]
        new_cosines: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}
        for batch in _batches(new_groups):
            self.rows += sum(len(keys) for _, keys in batch)
            cosines = _best_of_each(subset, [keys for _, keys in batch], questions)
            for (name, _), row in zip(batch, cosines, strict=True):
                new_cosines[name] = np.maximum(new_cosines.get(name, row), row)
        cosines_of.update(new_cosines)
        best: NDArray[np.float32] = np.max(
            [new_cosines[name] if name in new_cosines else cosines_of[name] for name in keys_of], axis=0
        )
        return best


_Group = tuple[tuple[bytes, bytes], "NDArray[np.int64]"]
"""The name of a group, and keys of it."""


def _batches(groups: Sequence[_Group]) -> Iterator[list[_Group]]:
    """Yield groups with at most `_TOGETHER` keys together; larger ones are divided."""
    batch: list[_Group] = []
    room = _TOGETHER
    for name, keys in groups:
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
    subset: VectorSubset, groups: Sequence[NDArray[np.int64]], questions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the best cosine of each question over each group, shape ``(groups, questions)``; every key has a vector.

    A matrix product rounds by the position of a row, and the rows of a large base are rounded. So it only chooses
    candidates, and each of those is multiplied by itself.
    """
    sizes = np.array([len(keys) for keys in groups])
    starts = np.cumsum(sizes) - sizes
    block = np.empty((int(sizes.sum()), questions.shape[1]), np.float32)
    errors = np.empty((len(block), 1), np.float32)
    located_rows = list(locate_rows(subset.state, np.concatenate(groups)))
    for vectors, indices, rows in located_rows:
        block[indices], errors[indices, 0] = vectors.approximations(rows), vectors.errors(rows)
    products = block @ questions.T
    highest = np.maximum.reduceat(products - errors, starts, axis=0)
    likely = products + errors >= np.repeat(highest - np.float32(ROUNDING), sizes, axis=0)
    is_likely = np.logical_or.reduce(likely, axis=1)
    for vectors, indices, rows in located_rows:
        if isinstance(vectors, RoundedRows):
            candidates = is_likely[indices]
            block[indices[candidates]] = vectors.exact(rows[candidates])
    group_of = np.repeat(np.arange(len(groups)), sizes)
    best = np.empty((len(groups), len(questions)), np.float32)
    for number, question in enumerate(questions):
        rows = np.flatnonzero(likely[:, number])
        scores = np.einsum("ij,j->i", block[rows], question)
        best[:, number] = np.maximum.reduceat(scores, np.searchsorted(group_of[rows], np.arange(len(groups))))
    return best
