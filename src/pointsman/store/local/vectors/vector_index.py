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
import struct
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

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
from pointsman.store.local.vectors.vector_codes import CODES
from pointsman.store.local.vectors.vector_query import VectorQuery
from pointsman.store.local.vectors.vector_rows import ExactRows, VectorReader
from pointsman.store.local.vectors.vector_state import (
    VectorState,
    VectorSubset,
    exact_parts,
    locate_rows,
    rounded_parts,
    sampled_rows,
)
from pointsman.store.prepared_documents import UNREADABLE, direction
from pointsman.tools.batching import batched_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.columns.metadata_columns import Columns
    from pointsman.store.local.truth.document_changes import VectorChanges
    from pointsman.values.filters import Filter

log = logging.getLogger(__name__)

_ROUNDED_ROWS = 200_000  # above this many the base has them rounded: of fewer, a search would lose 2 ms for little room
_REBASE_ROWS = 2048  # a tail shorter than this is never worth a new base file
_SETTLED_SHARE = 50  # beside a quantised base, a long write leaves no tail of over one row in this many
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
        self._identity, self.dimensions = identity, dimensions
        self._refresh = refresh or (lambda: None)
        self._state: VectorState | None = None
        self._unusable = False  # the file on disk is unusable
        self._written_rows = 0  # rows since a write began
        self._anew = False  # the next update starts empty; until it ends, searches see the old state
        self._guard = threading.Lock()

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
        return VectorQuery(state, direction(vector, self.dimensions), self._columns, subset, repeatable)

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
            return np.zeros((0, self.dimensions), np.float32)
        matrix = np.concatenate([vectors.exact(rows) for vectors, _, rows in located_rows])
        return matrix[np.argsort(np.concatenate([indices for _, indices, _ in located_rows]))]

    def vectors(self, limit: int, seed: int = 0) -> NDArray[np.float32]:
        """Return up to ``limit`` live vectors, sampled evenly; the same ones for the same seed and content."""
        state = self._current()
        in_base, in_tail = sampled_rows(state, limit, seed)
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
        return self._unusable or (self._state is not None and _is_untidy(self._state))

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
            if save and (_is_untidy(state) or self._unusable):
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
            state, written_rows = self._state, self._written_rows
            self._written_rows = 0
            if state is None or not state.base.is_quantised:
                return
            rows = len(state.tail_keys)
            if rows > len(state.base.keys) // _SETTLED_SHARE and 2 * written_rows > rows:
                self._state = state = self._with_new_base(state)
                self._save_codes(state.base)

    def _save_codes(self, base: VectorBase) -> None:
        try:
            if base.is_quantised:
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

    def _current(self) -> VectorState:
        state = self._state
        while state is None:
            self.catch_up()
            state = self._state
        return state

    def _apply(self, state: VectorState, target: int, *, save: bool) -> VectorState:
        """Update a state to ``target``; it keeps its number until then, as replaying twice is harmless."""
        batches = self._source.vector_changes(max(state.seq, 0))
        for changes in batched_by(batches, sys.maxsize, lambda batch: len(batch.keys), _APPLY_ROWS):
            removals = np.array([key for change in changes for key in change.gone], np.int64)
            keys = np.array([key for change in changes for key in change.keys], np.int64)
            state = state.applying(removals, keys, self._matrix(b"".join([change.vectors for change in changes])))
            self._written_rows += len(keys) if save else 0
            if save and len(state.tail_keys) >= max(2 * _APPLY_ROWS, len(state.base.keys)):
                state = self._with_new_base(state)
        return replace(state, seq=target)

    def _matrix(self, vectors: bytes) -> NDArray[np.float32]:
        return np.frombuffer(vectors, np.float32).reshape(-1, self.dimensions)

    def _with_new_base(self, state: VectorState) -> VectorState:
        """Write the state to a new base file; if that fails, it stays in memory, and is later derived again."""
        try:
            return self._rebase(state)
        except OSError as error:
            log.warning("vector index %s cannot be written now (%s); it is kept in memory", self._path, error)
            return state

    def _rebase(self, state: VectorState) -> VectorState:
        rows = state.base_rows
        keys = state.keys
        order = np.argsort(keys, kind="stable")
        is_rounded = len(order) > _ROUNDED_ROWS
        header = {
            "format": ROUNDED_FORMAT if is_rounded else EXACT_FORMAT,
            "identity": self._identity,
            "dimensions": self.dimensions,
            "rows": len(order),
            "seq": state.seq,
        }
        vectors = rounded_parts(state, order) if is_rounded else exact_parts(state, order)
        write_parts(self._path, MAGIC, header, itertools.chain([keys[order]], vectors))
        # What was just written is not verified here: opening it does that.
        self._unusable = False
        stamp = file_stamp(self._path)
        content = np.memmap(self._path, np.uint8, "r")
        base = base_in(content, self._path, stamp, self._identity, self.dimensions, self._source)
        if state.alive is None and np.array_equal(base.keys[: len(rows)], state.base.keys):
            base.continue_codes(state.base)
        return VectorState.of(base)

    def _empty(self) -> VectorState:
        return VectorState.of(
            VectorBase(np.empty(0, np.int64), ExactRows(np.empty((0, self.dimensions), np.float32)), -1, self._stamp())
        )

    def _stamp(self) -> object:
        return file_stamp(self._path)

    def _load(self, *, with_codes: bool) -> VectorState | None:
        """Return the base file if it is intact and ours; else None, with the reason logged."""
        self._unusable = False
        try:
            base = read_base(self._path, self._identity, self.dimensions, self._source, with_codes=with_codes)
            return VectorState.of(base)
        except FileNotFoundError:
            return None
        except (*UNREADABLE, OSError, KeyError, struct.error) as error:
            log.warning("vector index %s cannot be used (%s); it is rebuilt from the documents", self._path, error)
            self._unusable = True
            return None


def _is_untidy(state: VectorState) -> bool:
    """Whether a new base file is worthwhile."""
    return len(state.tail_keys) + state.dead > max(_REBASE_ROWS, len(state.base.keys) // 5)
