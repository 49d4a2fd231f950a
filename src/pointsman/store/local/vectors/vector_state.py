"""The vectors that one search sees: the rows of the base, the tail of later changes, and which of both are valid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pointsman.store.local.vectors.vector_codes import BLOCK
from pointsman.store.local.vectors.vector_rows import ExactRows, RoundedRows, look_up, rounded_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pointsman.store.local.vectors.vector_base import VectorBase

_CENTRE_ROWS = 4096  # rows whose mean is the centre that vectors are rounded from


@dataclass(frozen=True, slots=True)
class VectorState:
    """The state that searches use; a writer prepares a new one and swaps it in, so readers need no lock."""

    base: VectorBase
    alive: NDArray[np.bool_] | None  # which rows of the base are valid; None: all
    tail_keys: NDArray[np.int64]  # ascending, as in the base
    tail: NDArray[np.float32]
    seq: int
    dead: int = 0  # rows of the base that are no longer valid

    @classmethod
    def of(cls, base: VectorBase) -> VectorState:
        """Return the state of a base without a tail."""
        return cls(base, None, np.empty(0, np.int64), np.empty((0, base.rows.dimensions), np.float32), base.seq)

    def applying(self, removals: NDArray[np.int64], keys: NDArray[np.int64], rows: NDArray[np.float32]) -> VectorState:
        """Return this state after removing and then adding rows; the base is shared."""
        state = self._without(np.concatenate([removals, keys]))
        if not len(keys):
            return state
        tail_keys, tail = np.concatenate([state.tail_keys, keys]), np.concatenate([state.tail, rows])
        if (tail_keys[1:] < tail_keys[:-1]).any():
            order = np.argsort(tail_keys)
            tail_keys, tail = tail_keys[order], tail[order]
        tail_keys.flags.writeable = False
        return replace(state, tail_keys=tail_keys, tail=tail)

    def _without(self, keys: NDArray[np.int64]) -> VectorState:
        """Return this state without some keys; what has none of them is shared, as a copy of the tail takes long."""
        state = self
        if len(base_rows := _rows_of(self.base.keys, keys)):
            alive = np.ones(len(self.base.keys), np.bool_) if self.alive is None else self.alive.copy()
            alive[base_rows] = False
            dead = len(alive) - int(np.count_nonzero(alive))
            state = replace(state, alive=alive, dead=dead)
        if len(tail_rows := _rows_of(self.tail_keys, keys)):
            tail_keys, tail = np.delete(self.tail_keys, tail_rows), np.delete(self.tail, tail_rows, axis=0)
            tail_keys.flags.writeable = False
            state = replace(state, tail_keys=tail_keys, tail=tail)
        return state

    def __len__(self) -> int:
        return len(self.base.keys) - self.dead + len(self.tail_keys)

    @property
    def base_rows(self) -> NDArray[np.intp]:
        """Return the valid rows of the base."""
        return np.arange(len(self.base.keys)) if self.alive is None else np.flatnonzero(self.alive)

    @property
    def keys(self) -> NDArray[np.int64]:
        """Return the keys of valid base rows, then those of the tail."""
        return np.concatenate([self.base.keys[self.base_rows], self.tail_keys])


class VectorSubset:
    """The rows of some documents in one state of the index.

    Args:
        state: of the index.
        keys: the keys of the documents, ascending.

    Attributes:
        keys: of those documents that have a vector, ascending.
        exists: which rows of the base are theirs.
        in_tail: the rows of the tail that are theirs.
    """

    def __init__(self, state: VectorState, keys: NDArray[np.int64]) -> None:
        self.state, self.document_keys = state, keys
        exists = _is_in(state.base.keys, keys)
        self.exists = exists if state.alive is None else exists & state.alive
        self.in_tail = np.flatnonzero(_is_in(state.tail_keys, keys))
        with_vector = np.sort(np.concatenate([state.base.keys[self.exists], state.tail_keys[self.in_tail]]))
        self.keys = keys if len(with_vector) == len(keys) else with_vector  # one array, if all have a vector


def _rows_of(stored_keys: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return which of the stored keys, which ascend, are among some keys: their rows, each at least once."""
    rows, is_stored = look_up(stored_keys, keys)
    return rows[is_stored]


def _is_in(stored_keys: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the stored keys are among some keys; both ascend."""
    return look_up(keys, stored_keys)[1]


def sampled_rows(state: VectorState, limit: int, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows of the base and of the tail, up to ``limit`` together, drawn evenly."""
    rows = state.base_rows
    sample = np.random.default_rng(seed).permutation(len(state))[:limit]
    return rows[np.sort(sample[sample < len(rows)])], sample[sample >= len(rows)] - len(rows)


def exact_parts(state: VectorState, order: NDArray[np.intp]) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of a state in an order of `VectorState.keys`."""
    rows = state.base_rows
    for start in range(0, len(order), BLOCK):
        block_rows = order[start : start + BLOCK]
        in_base = block_rows < len(rows)
        block = np.empty((len(block_rows), state.base.rows.dimensions), np.float32)
        block[in_base] = state.base.rows.exact(rows[block_rows[in_base]])
        block[~in_base] = state.tail[block_rows[~in_base] - len(rows)]
        yield block


def rounded_parts(state: VectorState, order: NDArray[np.intp]) -> Iterator[NDArray[np.float32] | NDArray[np.int8]]:
    """Yield the centre, the numbers and then the steps of the vectors of a state; see `RoundedRows`.

    Those that are rounded stay as they are, and with them the centre.
    """
    base, rows = state.base.rows, state.base_rows
    if isinstance(base, RoundedRows):
        centre = base.centre
    else:
        in_base, in_tail = sampled_rows(state, _CENTRE_ROWS)
        centre = np.concatenate([base.exact(in_base), state.tail[in_tail]]).mean(axis=0)

    def rounding(base_rows: NDArray[np.intp]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        if isinstance(base, RoundedRows):
            return base.numbers[base_rows], base.steps[base_rows]
        return rounded_rows(base.exact(base_rows), centre)

    yield centre
    steps = np.empty(len(order), np.float32)
    for start in range(0, len(order), BLOCK):
        block_rows = order[start : start + BLOCK]
        in_base = np.asarray(block_rows < len(rows))
        numbers = np.empty((len(block_rows), base.dimensions), np.int8)
        block_steps = steps[start : start + BLOCK]
        numbers[in_base], block_steps[in_base] = rounding(rows[block_rows[in_base]])
        numbers[~in_base], block_steps[~in_base] = rounded_rows(state.tail[block_rows[~in_base] - len(rows)], centre)
        yield numbers
    yield np.zeros(-len(order) * base.dimensions % 4, np.int8)  # the steps are aligned
    yield steps


def locate_rows(
    state: VectorState, keys: NDArray[np.int64]
) -> Iterator[tuple[ExactRows | RoundedRows, NDArray[np.intp], NDArray[np.intp]]]:
    """Yield where the vectors of these keys are: rows, indices into ``keys``, and the number of the row for each."""
    for stored_keys, vectors, alive in (
        (state.base.keys, state.base.rows, state.alive),
        (state.tail_keys, ExactRows(state.tail), None),
    ):
        if len(stored_keys) and len(keys):
            rows, present = look_up(stored_keys, keys)
            if alive is not None:
                present &= alive[rows]
            indices = np.flatnonzero(present)
            yield vectors, indices, rows[indices]
