"""The vector index of one dataset: exact cosine to about 50,000 vectors, then FAISS scalar-quantised with exact rescoring.

On disk it is one *base* file: header, keys, matrix, written aside and renamed, with a checksum over all of it. What has
changed since lives in memory as a *tail* and comes from the truth's log when the file is opened again. When the tail and
the rows it replaces have grown past a fifth of the base, the writer writes a new base.

The matrix is memory-mapped. All vectors are L2-normalised, so a dot product is the cosine.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

from pointsman.store.files import replacing

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.store.columns import Columns
    from pointsman.store.truth import Change

log = logging.getLogger(__name__)

_MAGIC = b"PMVECTOR"
_FORMAT = 1
_EXACT_ROWS = 50_000  # beyond this many base rows the scan is quantised
_SELECTIVE = 0.05  # a filter that leaves less than this share is scanned exactly: approximate indexes lose recall there
_REBASE_ROWS = 2048  # a tail shorter than this is never worth a new base file
_OVERFETCH = 4  # candidates of the quantised scan per wanted result, scored again exactly


class Source(Protocol):
    """What a vector index is derived from."""

    def sequence(self) -> int:
        """The number of the last change."""
        ...

    def changes(self, since: int, *, texts: bool = ...) -> Iterator[Sequence[Change]]:
        """The last change of every key since then, in batches."""
        ...


@dataclass(frozen=True, slots=True)
class _Base:
    """The rows of the base file, by ascending key."""

    keys: NDArray[np.int64]
    matrix: NDArray[np.float32]
    seq: int


class _State:
    """What searches look at; a writer prepares a new one and swaps it in, so readers need no lock."""

    def __init__(self, base: _Base) -> None:
        self.base = base
        self.alive = np.ones(len(base.keys), bool)
        self.tail_keys = np.empty(0, np.int64)
        self.tail = np.empty((0, base.matrix.shape[1]), np.float32)
        self.seq = base.seq
        self.quantised: Any = None

    def applying(self, removed: NDArray[np.int64], keys: NDArray[np.int64], rows: NDArray[np.float32], seq: int) -> _State:
        """This state after removing and then adding rows; shares the base."""
        new = _State.__new__(_State)
        new.base, new.quantised, new.seq = self.base, self.quantised, seq
        gone = np.concatenate([removed, keys])
        new.alive = self.alive & ~np.isin(self.base.keys, gone)
        kept = ~np.isin(self.tail_keys, gone)
        new.tail_keys = np.concatenate([self.tail_keys[kept], keys])
        new.tail = np.concatenate([self.tail[kept], rows]) if len(rows) or not kept.all() else self.tail
        return new

    @property
    def live_keys(self) -> NDArray[np.int64]:
        """Keys of base rows still valid, then of the tail."""
        return np.concatenate([self.base.keys[self.alive], self.tail_keys])

    @property
    def stale_rows(self) -> int:
        """How much a new base would tidy up."""
        return len(self.tail_keys) + int(len(self.alive) - self.alive.sum())


class VectorIndex:
    """Cosine search over one source's vectors; ``catch_up(save=True)`` needs the writer lock, the rest is for anybody.

    Args:
        path: the base file.
        source: the truth.
        identity: names the source and the embedder; a file that carries another one is foreign and is built anew.
        dimensions: the length of a vector.
        columns: answers filters.
        refresh: called before every search, to bring the index up to date.
    """

    def __init__(
        self,
        path: Path,
        source: Source,
        *,
        identity: str,
        dimensions: int,
        columns: Columns,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._path, self._source, self._columns = path, source, columns
        self._identity, self._dimensions = identity, dimensions
        self._refresh = refresh or (lambda: None)
        self._state: _State | None = None
        self._guard = threading.Lock()

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """At most ``k`` keys with their cosines, best first, ties by key; filters act before the cut (I9)."""
        self._refresh()
        state = self._current()
        vector = np.ascontiguousarray(vector, np.float32)
        alive, tail = state.alive, np.ones(len(state.tail_keys), bool)
        if filters is not None:
            alive = alive & self._columns.mask(filters, state.base.keys)
            tail = self._columns.mask(filters, state.tail_keys)
        keys, scores = self._base_top(state, vector, k, alive)
        keys = np.concatenate([keys, state.tail_keys[tail]])
        scores = np.concatenate([scores, state.tail[tail] @ vector])
        return _top(keys, scores, k)

    def score(self, vector: NDArray[np.float32], keys: Sequence[int]) -> list[float]:
        """The cosine of each key's vector to this one; NaN where there is no such vector."""
        self._refresh()
        state = self._current()
        wanted = np.asarray(keys, np.int64)
        scores = np.full(len(wanted), np.nan, np.float32)
        for held, matrix, valid in (
            (state.base.keys, state.base.matrix, state.alive),
            (state.tail_keys, state.tail, None),
        ):
            if len(held):
                order = None if valid is not None else np.argsort(held)  # the base is sorted by key
                places = np.minimum(np.searchsorted(held, wanted, sorter=order), len(held) - 1)
                rows = places if order is None else order[places]
                found = (held[rows] == wanted) & (True if valid is None else valid[rows])
                scores[found] = matrix[rows[found]] @ vector
        return [float(score) for score in scores]

    def vectors(self, limit: int, seed: int = 0) -> NDArray[np.float32]:
        """At most ``limit`` live vectors, drawn evenly; the same ones for the same seed and content."""
        state = self._current()
        rows = np.flatnonzero(state.alive)
        count = len(rows) + len(state.tail_keys)
        chosen = np.random.default_rng(seed).permutation(count)[:limit]
        in_base = np.sort(chosen[chosen < len(rows)])
        return np.concatenate([state.base.matrix[rows[in_base]], state.tail[chosen[chosen >= len(rows)] - len(rows)]])

    def __len__(self) -> int:
        """How many vectors there are."""
        return len(self._current().live_keys)

    def keys(self) -> NDArray[np.int64]:
        """Every key that the index holds, for comparing it with the truth."""
        return self._current().live_keys

    def disagreements(self) -> list[str]:
        """Every vector compared with the truth: a complaint for each that differs, at most ten."""
        state, complaints = self._current(), []
        position = {int(key): row for row, key in enumerate(state.tail_keys)}
        for batch in self._source.changes(0, texts=False):
            for change in batch:
                if change.vector is None:
                    continue
                row = position.get(change.key)
                place = int(np.searchsorted(state.base.keys, change.key))
                if row is not None:
                    held = state.tail[row]
                elif place < len(state.base.keys) and state.base.keys[place] == change.key and state.alive[place]:
                    held = state.base.matrix[place]
                else:
                    continue  # a missing key is told of by comparing keys
                if held.tobytes() != change.vector and len(complaints) < 10:
                    complaints.append(f"the vector index differs from the truth for key {change.key}")
        return complaints

    def _base_top(
        self, state: _State, vector: NDArray[np.float32], k: int, valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best rows of the base: exactly while that is quick or few rows are allowed, else quantised and rescored."""
        count = int(valid.sum())
        if count == 0:
            rows = np.empty(0, np.int64)
        elif len(valid) <= _EXACT_ROWS or count < _SELECTIVE * len(valid):
            rows = np.flatnonzero(valid)
            if count == len(valid):
                scores = state.base.matrix @ vector
            else:
                scores = state.base.matrix[rows] @ vector if count < 0.5 * len(valid) else (state.base.matrix @ vector)[rows]
            best = _best(scores, k)
            return state.base.keys[rows[best]], scores[best]
        else:
            rows = self._quantised_top(state, vector, _OVERFETCH * k, None if count == len(valid) else valid)
        return state.base.keys[rows], state.base.matrix[rows] @ vector

    def _quantised_top(
        self, state: _State, vector: NDArray[np.float32], k: int, valid: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        import faiss

        with self._guard:
            if state.quantised is None:
                state.quantised = _quantise(state.base.matrix)
        parameters = None
        if valid is not None:
            bits = np.packbits(valid, bitorder="little")
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits))
        _, rows = state.quantised.search(vector[None], min(k, len(state.base.keys)), params=parameters)
        found: NDArray[np.int64] = rows[0][rows[0] >= 0]
        return found

    # ── keeping up ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def applied(self) -> int:
        """The sequence number this process has applied."""
        return self._current().seq

    @property
    def saved(self) -> int:
        """The sequence number of the base file as this process knows it; -1 when there is none."""
        return self._current().base.seq

    def catch_up(self, *, save: bool = False) -> None:
        """Apply what the source has logged since; with ``save``, write a new base file when that pays."""
        with self._guard:
            state = self._state or self._load()
            target = self._source.sequence()
            if state.seq > target:  # ahead of its truth: it belongs to some other state of it
                log.warning("vector index %s is ahead of the documents; it is rebuilt from them", self._path)
                state = self._empty()
            if state.seq < target:
                state = self._apply(state, target)
            if save and state.stale_rows > max(_REBASE_ROWS, len(state.base.keys) // 5):
                state = self._rebase(state)
            self._state = state

    def clear(self) -> None:
        """Throw the base file away; ``catch_up`` builds it anew."""
        with self._guard:
            self._path.unlink(missing_ok=True)
            self._state = None

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            self._state = None

    def _current(self) -> _State:
        if self._state is None:
            self.catch_up()
        assert self._state is not None
        return self._state

    def _apply(self, state: _State, target: int) -> _State:
        removed: list[int] = []
        keys: list[int] = []
        rows: list[NDArray[np.float32]] = []
        for batch in self._source.changes(max(state.seq, 0), texts=False):
            with_vector = [change for change in batch if change.vector is not None]
            removed += [change.key for change in batch if change.vector is None]
            keys += [change.key for change in with_vector]
            blob = b"".join(change.vector or b"" for change in with_vector)
            rows.append(np.frombuffer(blob, np.float32).reshape(-1, self._dimensions))
        matrix = np.concatenate(rows) if rows else np.empty((0, self._dimensions), np.float32)
        return state.applying(np.array(removed, np.int64), np.array(keys, np.int64), matrix, target)

    def _rebase(self, state: _State) -> _State:
        rows = np.flatnonzero(state.alive)
        order = np.argsort(state.live_keys, kind="stable")
        header = {
            "format": _FORMAT,
            "identity": self._identity,
            "dimensions": self._dimensions,
            "rows": len(order),
            "seq": state.seq,
        }
        with replacing(self._path) as file:
            digest = xxhash.xxh3_128()

            def write(data: bytes | memoryview) -> None:
                digest.update(data)
                file.write(data)

            head = json.dumps(header).encode()
            head += b" " * (-(16 + len(head)) % 64)  # so that the arrays are aligned
            write(_MAGIC + struct.pack("<Q", len(head)) + head)
            write(memoryview(np.ascontiguousarray(state.live_keys[order])).cast("B"))
            for start in range(0, len(order), 16_384):
                part = order[start : start + 16_384]
                in_base = part < len(rows)
                block = np.empty((len(part), self._dimensions), np.float32)
                block[in_base] = state.base.matrix[rows[part[in_base]]]
                block[~in_base] = state.tail[part[~in_base] - len(rows)]
                write(memoryview(block).cast("B"))
            file.write(digest.digest())
        return self._load()

    def _empty(self) -> _State:
        return _State(_Base(np.empty(0, np.int64), np.empty((0, self._dimensions), np.float32), -1))

    def _load(self) -> _State:
        """The base file if it is sound and ours, else nothing, said in the log."""
        if not self._path.exists():
            return self._empty()
        try:
            return _State(_read(self._path, self._identity, self._dimensions))
        except (ValueError, OSError, KeyError, struct.error) as error:
            log.warning("vector index %s cannot be used (%s); it is rebuilt from the documents", self._path, error)
            return self._empty()


def _read(path: Path, identity: str, dimensions: int) -> _Base:
    """Map a base file after checking every byte of it.

    Raises:
        ValueError: it is torn, foreign, or of another format.
    """
    content = np.memmap(path, np.uint8, "r")
    if len(content) < 32 or content[:8].tobytes() != _MAGIC:
        raise ValueError("it is no vector file")
    if xxhash.xxh3_128(content[:-16]).digest() != content[-16:].tobytes():
        raise ValueError("its checksum is wrong")
    (length,) = struct.unpack("<Q", content[8:16].tobytes())
    header = json.loads(content[16 : 16 + length].tobytes())
    if (header["format"], header["identity"], header["dimensions"]) != (_FORMAT, identity, dimensions):
        raise ValueError(f"it belongs to {header['identity']!r}, format {header['format']}")
    start, rows = 16 + length, header["rows"]
    keys = content[start : start + 8 * rows].view(np.int64)
    matrix = content[start + 8 * rows : -16].view(np.float32).reshape(rows, dimensions)
    return _Base(keys, matrix, header["seq"])


def _quantise(matrix: NDArray[np.float32]) -> Any:
    """FAISS's 8-bit scalar quantiser over all rows, trained on an even sample: .1 s for 100,000."""
    import faiss

    index = faiss.IndexScalarQuantizer(matrix.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    index.train(np.ascontiguousarray(matrix[:: max(1, len(matrix) // 20_000)]))
    for start in range(0, len(matrix), 16_384):
        index.add(np.ascontiguousarray(matrix[start : start + 16_384]))
    return index


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The places of the k highest scores and of all that tie with the k-th, in no order."""
    if k < 1 or k >= len(scores):
        return np.arange(len(scores) if k > 0 else 0)
    return np.flatnonzero(scores >= np.partition(scores, -k)[-k])


def _top(keys: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    best = _best(scores, k)
    keys, scores = keys[best], scores[best]
    order = np.lexsort((keys, -scores))[: max(k, 0)]
    return list(zip(keys[order].tolist(), scores[order].tolist(), strict=True))
