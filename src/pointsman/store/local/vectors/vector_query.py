"""A search by a vector: exact where rows are few, else by codes, whose best candidates are scored exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pointsman.store.local.vectors.vector_codes import CodesQuery
from pointsman.store.local.vectors.vector_rows import GATHERED, ExactRows, RoundedRows, all_dots, among_best
from pointsman.store.local.vectors.vector_state import VectorState, VectorSubset, locate_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pointsman.store.local.columns.metadata_columns import Columns
    from pointsman.store.local.vectors.vector_base import VectorBase
    from pointsman.values.filters import Filter

_FEW_ROWS = 2_000  # as many allowed rows are scanned exactly, which takes no longer than a scan of all codes; …
_FEW_SHARE = 16  # … and one row in so many, since so few of a cluster may be allowed that all codes are scanned
_OVERFETCH = 8  # first candidates of the quantised scan for each wanted result
_FIRST = 400  # and in any case
_CANDIDATE_SHARE = 2  # at most one allowed row in this many becomes a candidate: else all are compared
_READ = 4  # times as many are read of a scan as are compared at first: to scan again costs more than to read more
_LOWEST = 4.0  # deviations of errors: the lowest of the best candidates are those so near the k-th
_SPARE = 0.25  # deviations by which more candidates are taken than are known to be needed,
_LEAST_SPARE = 1e-6  # and by this much where all are alike
_FIRST_LISTS = 1 / 32  # share of the lists that are read first; more if few rows are allowed
ROUNDING = 1e-4  # by less than this do two ways to multiply unit vectors differ


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

    state: VectorState
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


def _scores_by_row(state: VectorState, vector: NDArray[np.float32], keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosine of each key's vector, each multiplied by itself; NaN if there is no such vector."""
    scores = np.full(len(keys), np.nan, np.float32)
    for vectors, indices, rows in locate_rows(state, keys):
        scores[indices] = np.einsum("ij,j->i", vectors.exact(rows), vector)
    return scores


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
    if base.is_quantised and count > max(_FEW_ROWS, total // _FEW_SHARE):
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
    lists may hold one of the best: those are scanned as well. (Where the last search needed most lists, the first ones
    are out of all.) They also say how far quantised scores lie below exact ones, and so how many more of what the scan
    has read, best first, have to be compared; those say the same again, more surely. Returns None where an exact scan
    is faster, as there would be too many, or while there are no codes.

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
    depth, lists = min(_READ * limit, most), math.ceil(codes.list_count * max(_FIRST_LISTS, limit / count))
    # To read some first would save nothing otherwise. In a part of the documents nobody else's search counts.
    is_divided = margin > 0 or codes.list_count == 1 or codes.needed_lists <= codes.list_count // 2
    if is_divided:
        rough, rows = query.search(depth, lists)
    if not is_divided or len(rows) < limit // _OVERFETCH:
        lists = codes.list_count
        rough, rows = query.search(depth, lists)
    scores = base.rows.dots(rows[:limit], vector)
    best_of_few, scores_of_few = rows[:0], scores[:0]
    drawn_deviation = codes.error_deviation(vector)
    while True:
        compared_count = len(scores)
        kth_score = np.partition(scores - base.rows.errors(rows[:compared_count]), -k)[-k] - margin
        best = _best(scores, k)
        score_needed = kth_score - _greatest_error(scores, rough[:compared_count], best, deviations, drawn_deviation)
        needed_lists = query.count_lists(kth_score)
        if not margin:
            codes.needed_lists = needed_lists
        if needed_lists > lists:
            lists, best_of_few, scores_of_few = needed_lists, rows[best], scores[best]
            rough, rows = query.search(depth, lists)
            scores = base.rows.dots(rows[:limit], vector)
            continue
        if np.count_nonzero(rough >= score_needed) <= min(compared_count, depth - 1):
            # What the others' codes leave out is more than was assumed.
            others = ~np.isin(best_of_few, rows[:compared_count], assume_unique=True)
            return np.append(rows[:compared_count], best_of_few[others]), np.append(scores, scores_of_few[others])
        lowest = score_needed - _SPARE * drawn_deviation - _LEAST_SPARE
        row_count = int(np.count_nonzero(rough >= lowest))
        if row_count < depth:
            scores = np.append(scores, base.rows.dots(rows[compared_count:row_count], vector))
            continue
        if depth == most:
            return None
        depth = min(_READ * depth, most)
        rough, rows = query.search(depth, lists)
        scores = base.rows.dots(rows[: np.count_nonzero(rough >= lowest)], vector)


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
    half_count = max(len(rough) // 2, 1)
    lower_half = np.argpartition(rough, half_count - 1)[:half_count]
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
