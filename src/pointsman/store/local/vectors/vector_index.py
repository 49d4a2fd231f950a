"""The vector index of one dataset: exact cosine up to about 50,000 vectors, then FAISS quantised with exact rescoring.

On disk it is one *base* file: header, keys, vectors, written to a temporary file and renamed, with a checksum. The
codes of a large base, four bits for two numbers, have a file of their own, written in the same way, which names the
base by its checksum. A search reads those of the nearest rows first, and then of all that may be as good. Its
candidates are scored by the vectors of the base, which are rounded where there are many, and the few of them that may
be among the best by those of the truth.
Later changes are kept in memory as a *tail*, which is read from the documents' log when the file is opened again. When
the tail and the rows it replaces exceed a fifth of the base, the writer writes a new base. It does so earlier at the
end of a long write that left most of the tail, since the tail is scanned exactly.

The base is memory-mapped. All vectors are L2-normalised, so a dot product is the cosine.
"""

from __future__ import annotations

import itertools
import logging
import math
import struct
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pointsman.store.local.arrays_file import write_parts
from pointsman.store.local.files_and_locks import file_stamp, translated
from pointsman.store.local.vectors.vector_base import (
    EXACT_FORMAT,
    MAGIC,
    ROUNDED_FORMAT,
    VectorBase,
    base_in,
    read_base,
)
from pointsman.store.local.vectors.vector_codes import BLOCK, CODES, CodesQuery
from pointsman.store.local.vectors.vector_rows import (
    GATHERED,
    ExactRows,
    RoundedRows,
    VectorReader,
    all_dots,
    among_best,
    look_up,
    rounded_rows,
)
from pointsman.store.prepared_documents import UNREADABLE, direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.columns.metadata_columns import Columns
    from pointsman.store.local.truth.truth_rows import VectorChanges
    from pointsman.values.filters import Filter

log = logging.getLogger(__name__)

_EXACT_ROWS = 50_000  # above this many base rows the scan is quantised
_ROUNDED_ROWS = 200_000  # above this many the base has them rounded: of fewer, a search would lose 2 ms for little room
_FEW_ROWS = 2_000  # as many allowed rows are scanned exactly, which takes no longer than a scan of all codes; …
_FEW_SHARE = 16  # … and one row in so many, since so few of a cluster may be allowed that all codes are scanned
_REBASE_ROWS = 2048  # a tail shorter than this is never worth a new base file
_SETTLED_SHARE = 50  # beside a quantised base, a long write leaves no tail of over one row in this many
_OVERFETCH = 8  # first candidates of the quantised scan for each wanted result
_FIRST = 400  # and in any case
_CANDIDATE_SHARE = 2  # at most one allowed row in this many becomes a candidate: else all are compared
_FAR = 2  # times as many candidates out of more than the nearest lists, where more rows are about as near as the k-th
_LOWEST = 4.0  # deviations of errors: the lowest of the best candidates are those so near the k-th
_SPARE = 0.25  # deviations by which more candidates are taken than are known to be needed,
_LEAST_SPARE = 1e-6  # and by this much where all are alike
_FIRST_LISTS = 1 / 32  # share of the lists that are read first; more if few rows are allowed
ROUNDING = 1e-4  # by less than this do two ways to multiply unit vectors differ
_CENTRE_ROWS = 4096  # rows whose mean is the centre that vectors are rounded from
_APPLY_ROWS = 65_536  # rows of the log applied at a time, to limit memory


class VectorSource(VectorReader, Protocol):
    """The source of a vector index."""

    def sequence(self) -> int:
        """Return the number of the last change."""
        ...

    def vector_changes(self, sequence: int) -> Iterator[VectorChanges]:
        """Yield the last change of every key's vector since then, in batches."""
        ...

    def check_vectors(self, seq: int, count: int) -> None:
        """Raise an error if so many vectors are not all, as of this change; ignored if there has been another since."""
        ...


class _Deviations(NamedTuple):
    """How many standard deviations above its mean something is assumed to be at most.

    Attributes:
        error: by how much a quantised score is too low.
        error_of_best: the same, among the lowest of the best rows, whose quantised scores are too low on average.
        direction: in which a row is off the query; see `CodesQuery.count_lists`.
    """

    error: float
    error_of_best: float
    direction: float


_DEVIATIONS = _Deviations(3.5, 2.0, 3.5)
_SURER_DEVIATIONS = _Deviations(6.0, 4.5, 6.0)  # where documents that do not exist must change nothing


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state that searches use; a writer prepares a new one and swaps it in, so readers need no lock."""

    base: VectorBase
    alive: NDArray[np.bool_] | None  # which rows of the base are valid; None: all
    tail_keys: NDArray[np.int64]  # ascending, as in the base
    tail: NDArray[np.float32]
    seq: int
    dead: int = 0  # rows of the base that are no longer valid

    @classmethod
    def of(cls, base: VectorBase) -> IndexState:
        """Return the state of a base without a tail."""
        return cls(base, None, np.empty(0, np.int64), np.empty((0, base.rows.dimensions), np.float32), base.seq)

    def applying(self, removals: NDArray[np.int64], keys: NDArray[np.int64], rows: NDArray[np.float32]) -> IndexState:
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

    def _without(self, keys: NDArray[np.int64]) -> IndexState:
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

    @property
    def untidy(self) -> bool:
        """Whether a new base file is worthwhile."""
        return len(self.tail_keys) + self.dead > max(_REBASE_ROWS, len(self.base.keys) // 5)


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A direction to search in, checked once, in one state of the index, or in some of its documents.

    A matrix product rounds by the position of a row, which documents outside the part could shift, or the way in which
    the index came about. So where that must not matter, it only chooses candidates, with some to spare, and each of
    those is multiplied by itself.

    Attributes:
        state: of the index.
        vector: of length 1, or 0, which finds nothing.
        columns: evaluates filters.
        subset: the rows of the only documents that exist; None: all.
        repeatable: whether scores must not depend on where the index has its rows; they never do in a subset.
    """

    state: IndexState
    vector: NDArray[np.float32]
    columns: Columns
    subset: VectorSubset | None = None
    repeatable: bool = False

    def search(self, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """See `VectorIndex.search`."""
        state, vector = self.state, self.vector
        if k < 1 or not vector.any():
            return []
        is_exact = self.repeatable or self.subset is not None
        margin = ROUNDING if is_exact else 0.0
        valid, in_tail = self._rows(filters)
        keys, scores = _base_top(state.base, vector, k, valid, margin)
        if in_tail is None:
            tail_scores = state.tail @ vector if len(state.tail) <= GATHERED else all_dots(state.tail, vector)
        elif is_exact and len(in_tail) >= 0.5 * len(state.tail):  # to copy its rows takes longer than to multiply all
            tail_scores = all_dots(state.tail, vector)[in_tail]
        else:
            tail_scores = ExactRows(state.tail).dots(in_tail, vector)
        keys = np.concatenate([keys, state.tail_keys if in_tail is None else state.tail_keys[in_tail]])
        scores = np.concatenate([scores, tail_scores])
        if is_exact:
            keys = keys[_best(scores, k, margin)]
            scores = _scores_by_row(state, vector, keys)
        return _top(keys, scores, k)

    def _rows(self, filters: Filter | None) -> tuple[NDArray[np.bool_] | None, NDArray[np.intp] | None]:
        """Return which rows of the base are searched, and the numbers of those of the tail; None: all."""
        state, subset = self.state, self.subset
        valid, in_tail = (state.alive, None) if subset is None else (subset.exists, subset.in_tail)
        if filters is None:
            return valid, in_tail
        matching = self.columns.mask(filters, state.base.keys)
        valid = matching if valid is None else matching & valid
        if in_tail is None:
            return valid, np.flatnonzero(self.columns.mask(filters, state.tail_keys))
        return valid, in_tail[self.columns.mask(filters, state.tail_keys[in_tail])]

    def score(self, keys: Sequence[int]) -> list[float]:
        """See `VectorIndex.score`."""
        if not keys:
            return []
        key_array = np.asarray(keys, np.int64)
        if self.repeatable or self.subset is not None:
            exact: list[float] = _scores_by_row(self.state, self.vector, key_array).tolist()
            return exact
        scores = np.full(len(key_array), np.nan, np.float32)
        for vectors, indices, rows in locate_rows(self.state, key_array):
            scores[indices] = vectors.exact(rows) @ self.vector
        return scores.tolist()


def _scores_by_row(state: IndexState, vector: NDArray[np.float32], keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosine of each key's vector, each multiplied by itself; NaN if there is no such vector."""
    scores = np.full(len(keys), np.nan, np.float32)
    for vectors, indices, rows in locate_rows(state, keys):
        scores[indices] = np.einsum("ij,j->i", vectors.exact(rows), vector)
    return scores


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

    def __init__(self, state: IndexState, keys: NDArray[np.int64]) -> None:
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


class VectorIndex:
    """Cosine search over one source's vectors; only ``catch_up(save=True)`` needs the writer lock.

    Args:
        path: the base file.
        source: the documents.
        identity: identifies source and embedder; a file with another identity is foreign and is rebuilt.
        dimensions: dimensions of a vector.
        columns: evaluates filters.
        refresh: called before every search, to update the index.
    """

    def __init__(
        self,
        path: Path,
        source: VectorSource,
        *,
        identity: str,
        dimensions: int,
        columns: Columns,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._path, self._source, self._columns = path, source, columns
        self._identity, self._dimensions = identity, dimensions
        self._refresh = refresh or (lambda: None)
        self._state: IndexState | None = None
        self._unusable = False  # the file on disk is unusable
        self._written_rows = 0  # rows since a write began
        self._anew = False  # the next update starts empty; until it ends, searches see the old state
        self._guard = threading.Lock()

    @property
    def dimensions(self) -> int:
        """Return the dimensions of a vector."""
        return self._dimensions

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """Return up to ``k`` keys with their cosines, best first, ties by key; filters are applied before the cut.

        A zero vector (such as of a query without words) has no direction and finds nothing.

        Raises:
            InputError: the vector has other dimensions than the index, or is not finite.
        """
        self._refresh()
        return self.query(vector).search(k, filters)

    def score(self, vector: NDArray[np.float32], keys: Sequence[int]) -> list[float]:
        """Return the cosine of each key's vector to this one; NaN if there is no such vector."""
        self._refresh()
        return self.query(vector).score(keys)

    def query(
        self, vector: NDArray[np.float32], subset: VectorSubset | None = None, *, repeatable: bool = False
    ) -> VectorQuery:
        """Return a query of the index as it is, or of a part of it, without looking for changes by others."""
        state = self._current() if subset is None else subset.state
        return VectorQuery(state, direction(vector, self._dimensions), self._columns, subset, repeatable)

    def subset(self, keys: NDArray[np.int64], former: VectorSubset | None = None) -> VectorSubset:
        """Return the index as it is, as if only some documents existed.

        Args:
            keys: their keys, ascending.
            former: returned if it is still current.
        """
        state = self._current()
        if former is not None and former.state is state and former.document_keys is keys:
            return former
        return VectorSubset(state, keys)

    def of(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors of those keys that have one, in order, shape ``(at most len(keys), dimensions)``."""
        state = self._current()
        located_rows = list(locate_rows(state, np.asarray(keys, np.int64)))
        if not located_rows:
            return np.zeros((0, self._dimensions), np.float32)
        matrix = np.concatenate([vectors.exact(rows) for vectors, _, rows in located_rows])
        return matrix[np.argsort(np.concatenate([indices for _, indices, _ in located_rows]))]

    def vectors(self, limit: int, seed: int = 0) -> NDArray[np.float32]:
        """Return up to ``limit`` live vectors, sampled evenly; the same ones for the same seed and content."""
        state = self._current()
        in_base, in_tail = _sample(state, limit, seed)
        return np.concatenate([state.base.rows.exact(in_base), state.tail[in_tail]])

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._current())

    def keys(self) -> NDArray[np.int64]:
        """Return every key in the index, for comparison with the documents."""
        return self._current().keys

    def disagreements(self) -> list[str]:
        """Compare every vector with the documents'; return a complaint for each difference, at most ten."""
        state = self._current()
        complaints_of_codes = (
            [f"{self._path.with_suffix(CODES).name} is damaged"] if state.base.codes_are_damaged() else []
        )
        complaints: list[str] = []
        for changes in self._source.vector_changes(0):
            truth = self._matrix(changes.vectors)
            for vectors, indices, rows in locate_rows(state, np.array(changes.keys, np.int64)):
                different = indices[vectors.differ(rows, truth[indices])].tolist()
                complaints += [f"the vector index differs from the truth for key {changes.keys[p]}" for p in different]
        return complaints_of_codes + complaints[:10]  # missing keys are reported by comparing keys

    # ── updating ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def applied(self) -> int:
        """Return the sequence number that this process has applied."""
        return self._current().seq

    @property
    def loaded(self) -> bool:
        """Whether the index is in memory; the first search or score loads it."""
        return self._state is not None

    @property
    def wants_base(self) -> bool:
        """Whether a writer should write a new base file: this one is damaged, or would need a long replay."""
        return self._unusable or (self._state is not None and self._state.untidy)

    def catch_up(self, *, save: bool = False) -> None:
        """Apply the source's changes since; with ``save``, write a new base file if worthwhile."""
        with self._guard:
            target = self._source.sequence()
            state = self._state
            if state is None or (state.seq < target and not save and self._stamp() != state.base.stamp):
                # Another writer's base has a shorter log to replay.
                state = self._load(with_codes=not save) or state or self._empty()
            if self._anew:
                self._anew, state = False, self._empty()
            if state.seq > target:  # ahead of the documents: it belongs to another state of them
                log.warning("vector index %s is ahead of the documents; rebuilding it from them", self._path)
                self._unusable, state = True, self._empty()
            if state.seq < target:
                state = self._apply(state, target, save=save)
                self._source.check_vectors(target, len(state))
            if save and (state.untidy or self._unusable):
                state = self._with_new_base(state)
            if save:
                self._save_codes(state.base)
            self._state = state

    def settle(self) -> None:
        """At the end of a write, as the writer: write a new base if that write left most of a tail that slows searches.

        Of 384 dimensions, a row of it is 1,536 bytes and that of a base 96. Short writes wait for a fifth of the base,
        since every new base is written as a whole.
        """
        with self._guard:
            state, written = self._state, self._written_rows
            self._written_rows = 0
            if state is None or len(state.base.keys) <= _EXACT_ROWS:
                return
            rows = len(state.tail_keys)
            if rows > len(state.base.keys) // _SETTLED_SHARE and 2 * written > rows:
                self._state = state = self._with_new_base(state)
                self._save_codes(state.base)

    def _save_codes(self, base: VectorBase) -> None:
        try:
            if len(base.keys) > _EXACT_ROWS:
                base.save_codes()
        except OSError as error:
            log.warning("the codes of %s cannot be written now (%s); they are kept in memory", self._path, error)

    def clear(self) -> None:
        """Delete the files; ``catch_up`` rebuilds them."""
        with self._guard, translated(self._path):
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(CODES).unlink(missing_ok=True)
            self._anew = True

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._state = None

    def _current(self) -> IndexState:
        state = self._state
        while state is None:
            self.catch_up()
            state = self._state
        return state

    def _apply(self, state: IndexState, target: int, *, save: bool) -> IndexState:
        """Update a state to ``target``; it keeps its number until then, as replaying twice is harmless."""
        for changes in _gather_changes(self._source.vector_changes(max(state.seq, 0))):
            removals = np.array([key for change in changes for key in change.gone], np.int64)
            keys = np.array([key for change in changes for key in change.keys], np.int64)
            state = state.applying(removals, keys, self._matrix(b"".join([change.vectors for change in changes])))
            self._written_rows += len(keys) if save else 0
            if save and len(state.tail_keys) >= max(2 * _APPLY_ROWS, len(state.base.keys)):
                state = self._with_new_base(state)
        return replace(state, seq=target)

    def _matrix(self, vectors: bytes) -> NDArray[np.float32]:
        return np.frombuffer(vectors, np.float32).reshape(-1, self._dimensions)

    def _with_new_base(self, state: IndexState) -> IndexState:
        """Write the state to a new base file; if that fails, it stays in memory, and is later derived again."""
        try:
            return self._rebase(state)
        except OSError as error:
            log.warning("vector index %s cannot be written now (%s); it is kept in memory", self._path, error)
            return state

    def _rebase(self, state: IndexState) -> IndexState:
        rows = state.base_rows
        keys = state.keys
        order = np.argsort(keys, kind="stable")
        is_rounded = len(order) > _ROUNDED_ROWS
        header = {
            "format": ROUNDED_FORMAT if is_rounded else EXACT_FORMAT,
            "identity": self._identity,
            "dimensions": self._dimensions,
            "rows": len(order),
            "seq": state.seq,
        }
        vectors = _rounded_parts(state, order) if is_rounded else _exact_parts(state, order)
        write_parts(self._path, MAGIC, header, itertools.chain([keys[order]], vectors))
        # What was just written is not verified here: opening it does that.
        self._unusable = False
        stamp = file_stamp(self._path)
        content = np.memmap(self._path, np.uint8, "r")
        base = base_in(content, self._path, stamp, self._identity, self._dimensions, self._source)
        if state.alive is None and np.array_equal(base.keys[: len(rows)], state.base.keys):
            base.continue_codes(state.base)
        return IndexState.of(base)

    def _empty(self) -> IndexState:
        return IndexState.of(
            VectorBase(np.empty(0, np.int64), ExactRows(np.empty((0, self._dimensions), np.float32)), -1, self._stamp())
        )

    def _stamp(self) -> object:
        return file_stamp(self._path)

    def _load(self, *, with_codes: bool) -> IndexState | None:
        """Return the base file if it is intact and ours; else None, with the reason logged."""
        self._unusable = False
        try:
            base = read_base(self._path, self._identity, self._dimensions, self._source, with_codes=with_codes)
            return IndexState.of(base)
        except FileNotFoundError:
            return None
        except (*UNREADABLE, OSError, KeyError, struct.error) as error:
            log.warning("vector index %s cannot be used (%s); it is rebuilt from the documents", self._path, error)
            self._unusable = True
            return None


def _gather_changes(batches: Iterator[VectorChanges]) -> Iterator[list[VectorChanges]]:
    """Combine batches until they have about `_APPLY_ROWS` vectors."""
    together: list[VectorChanges] = []
    for batch in batches:
        together.append(batch)
        if sum(len(batch_.keys) for batch_ in together) >= _APPLY_ROWS:
            yield together
            together = []
    if together:
        yield together


def _sample(state: IndexState, limit: int, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows of the base and of the tail, up to ``limit`` together, drawn evenly."""
    rows = state.base_rows
    sample = np.random.default_rng(seed).permutation(len(state))[:limit]
    return rows[np.sort(sample[sample < len(rows)])], sample[sample >= len(rows)] - len(rows)


def _exact_parts(state: IndexState, order: NDArray[np.intp]) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of a state in an order of `IndexState.keys`."""
    rows = state.base_rows
    for start in range(0, len(order), BLOCK):
        block_rows = order[start : start + BLOCK]
        in_base = block_rows < len(rows)
        block = np.empty((len(block_rows), state.base.rows.dimensions), np.float32)
        block[in_base] = state.base.rows.exact(rows[block_rows[in_base]])
        block[~in_base] = state.tail[block_rows[~in_base] - len(rows)]
        yield block


def _rounded_parts(state: IndexState, order: NDArray[np.intp]) -> Iterator[NDArray[np.float32] | NDArray[np.int8]]:
    """Yield the centre, the numbers and then the steps of the vectors of a state; see `RoundedRows`.

    Those that are rounded stay as they are, and with them the centre.
    """
    base, rows = state.base.rows, state.base_rows
    if isinstance(base, RoundedRows):
        centre = base.centre
    else:
        in_base, in_tail = _sample(state, _CENTRE_ROWS)
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
    state: IndexState, keys: NDArray[np.int64]
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


def _base_top(
    base: VectorBase, vector: NDArray[np.float32], k: int, valid: NDArray[np.bool_] | None, margin: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best valid rows: scanned if that is fast or few rows are allowed, else quantised; then scored exactly.

    With a ``margin``, so are those whose score is lower by that much, and the quantised scan has more to spare.
    """
    total = len(base.keys)
    count = total if valid is None else int(np.count_nonzero(valid))
    if count == total:
        valid = None
    likely = None
    if total > _EXACT_ROWS and count > max(_FEW_ROWS, total // _FEW_SHARE):
        likely = _quantised_top(base, vector, k, valid, count, margin)
    if likely is not None:
        rows, scores = likely
    elif valid is None:
        rows, scores = np.arange(total), base.rows.scan(vector)
    else:
        rows = np.flatnonzero(valid)
        scores = base.rows.dots(rows, vector) if count < 0.5 * total else base.rows.scan(vector)[rows]
    if isinstance(base.rows, RoundedRows):
        rows, scores = among_best(base.rows, rows, scores, vector, k, margin)
    best = _best(scores, k, margin)
    return base.keys[rows[best]], scores[best]


def _quantised_top(
    base: VectorBase, vector: NDArray[np.float32], k: int, valid: NDArray[np.bool_] | None, count: int, margin: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Return the rows that may be among the best ``k`` valid ones, with their scores by the vectors of the base.

    The first candidates, out of the nearest lists, say how good the k-th best is at least, and thereby which other
    lists may hold one of the best: candidates are then taken out of those as well. They also say how far quantised
    scores lie below exact ones. If rows that were not read may be good enough, every row is a candidate whose quantised
    score is not too low; those say the same again, more surely. Returns None where an exact scan is faster, as there
    would be too many, or while there are no codes.

    Args:
        base: whose rows they are.
        vector: of the query.
        k: how many are best.
        valid: which rows may be among them; None: all.
        count: of these rows.
        margin: how far below the k-th best a row may be.
    """
    limit, most = _OVERFETCH * k + _FIRST, count // _CANDIDATE_SHARE
    if limit > most or (codes := base.codes) is None:
        return None
    deviations = _SURER_DEVIATIONS if margin else _DEVIATIONS
    query = CodesQuery(codes, vector, valid, deviations.direction)

    def candidates(limit: int, lists: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], float]:
        """Return exact and quantised scores and the rows of the best in these lists, and the lowest score read."""
        rough, rows = query.search(limit, lists)
        return base.rows.dots(rows, vector), rough, rows, float(rough[-1]) if len(rows) == limit else -math.inf

    lists = math.ceil(codes.list_count * max(_FIRST_LISTS, limit / count))
    scores, rough, rows, lowest = candidates(limit, lists)
    if len(rows) < limit // _OVERFETCH:
        lists = codes.list_count
        scores, rough, rows, lowest = candidates(_FAR * limit, lists)
    drawn_deviation = codes.error_deviation(vector)
    while True:
        kth_score = np.partition(scores - base.rows.errors(rows), -k)[-k] - margin
        best = _best(scores, k)
        needed = kth_score - _greatest_error(scores, rough, best, deviations, drawn_deviation)
        needed_lists = query.count_lists(kth_score)
        if needed_lists > lists:
            lists = needed_lists
            further_scores, further_rough, further_rows, lowest = candidates(_FAR * limit, lists)
        elif lowest < needed:
            return rows, scores
        else:
            lowest = needed - _SPARE * drawn_deviation - _LEAST_SPARE
            further_rough, further_rows = query.range_search(lowest, lists)
            if len(further_rows) > most:
                return None
            further_scores = base.rows.dots(further_rows, vector)
        kept = best[~np.isin(rows[best], further_rows, assume_unique=True)]  # their errors are greater than assumed
        scores, rough = np.append(further_scores, scores[kept]), np.append(further_rough, rough[kept])
        rows = np.append(further_rows, rows[kept])


def _greatest_error(
    scores: NDArray[np.float32],
    rough: NDArray[np.float32],
    best: NDArray[np.intp],
    deviations: _Deviations,
    drawn_deviation: float,
) -> float:
    """Return how far the quantised score of one of the best rows is assumed to lie below its exact one.

    It is judged by the lowest of the best candidates, since where vectors lie in clusters the codes leave out more of
    those near the query; by the lower half, since candidates are those whose codes flatter them; and by rows drawn from
    all, since among near copies the errors of those vary far less.

    Args:
        scores: of candidates.
        rough: the same, quantised.
        best: the indices of the best of them.
        deviations: what is assumed.
        drawn_deviation: of the errors of rows drawn from all.
    """
    lowest_of_best = best[scores[best] <= scores[best].min() + _LOWEST * drawn_deviation]
    half = max(len(rough) // 2, 1)
    lower_half = np.argpartition(rough, half - 1)[:half]
    greatest_errors = []
    for candidates, factor in ((lowest_of_best, deviations.error_of_best), (lower_half, deviations.error)):
        errors = scores[candidates] - rough[candidates]
        greatest_errors.append(float(errors.mean() + factor * max(errors.std(), drawn_deviation)))
    return max(greatest_errors)


def _best(scores: NDArray[np.float32], k: int, margin: float = 0.0) -> NDArray[np.intp]:
    """Return the indices of the k highest scores and of all within ``margin`` of the k-th, unordered."""
    if k < 1 or k >= len(scores):
        return np.arange(len(scores) if k > 0 else 0)
    return np.flatnonzero(scores >= np.partition(scores, -k)[-k] - np.float32(margin))


def _top(keys: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    best = _best(scores, k)
    keys, scores = keys[best], scores[best]
    order = np.lexsort((keys, -scores))[: max(k, 0)]
    return list(zip(keys[order].tolist(), scores[order].tolist(), strict=True))
