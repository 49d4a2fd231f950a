"""The codes of many vectors: four bits for two numbers, in lists of rows that point in similar directions.

They are an inverted file of FAISS. A search reads the nearest lists first, and then those others that may hold as good
a row: where vectors lie in clusters, few, and where they do not, nearly all. Fewer than 262,144 rows are one list.
"""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from pointsman.store.local.files_and_locks import file_stamp, open_regular, remove_leftovers
from pointsman.store.local.vectors.vector_rows import all_dots
from pointsman.tools.system.replaced_files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.vectors.vector_rows import ExactRows, RoundedRows

CODES = ".codes"
"""The suffix of their file."""
BLOCK = 16_384
"""Rows processed at a time while a file or an index is written."""
_LISTED_ROWS = (
    262_144  # fewer are in one list: all are scanned in some 2 ms, which choosing between lists does not save
)
_SAMPLE = 512  # rows that are compared with their codes and centroids
_TRAINING_ROWS = 64  # for each list; of 64 lists, as many as FAISS uses for the 16 values of two numbers
_ONE_QUERY = 11  # FAISS's number (``implem``) of the scan for one query: of lists, a third faster than for a batch
_ROUNDING = 1e-4  # by less than this do FAISS's products of query and centroid differ from ours


class VectorCodes:
    """The codes of the rows of a base.

    Args:
        index: of FAISS, over all rows.
        rows: the vectors.

    Attributes:
        needed_lists: how many lists the last search had to read.
    """

    def __init__(self, index: Any, rows: ExactRows | RoundedRows) -> None:
        self.index, self._rows = index, rows
        self._lists: Any = _inverted_file(index)
        if self._lists.nlist > 1:
            self._lists.implem = _ONE_QUERY
        self.needed_lists = 1

    @property
    def list_count(self) -> int:
        """Return the number of lists, empty ones included."""
        count: int = self._lists.nlist
        return count

    def error_deviation(self, vector: NDArray[np.float32]) -> float:
        """Return the standard deviation of the errors of quantised scores, by some rows drawn evenly."""
        deviation: float = all_dots(self._residuals, vector).std()
        return deviation

    def centroid_scores(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosine of the vector and the centroid of each list."""
        return all_dots(self._centroids, vector)

    @cached_property
    def _residuals(self) -> NDArray[np.float32]:
        """What its codes leave out of the sample."""
        sample, lists, rotation = self._sample, self._lists, self.index.chain.at(0)
        approximations = lists.pq.decode(lists.pq.compute_codes(rotation.apply(sample)))
        return np.asarray(sample - rotation.reverse_transform(approximations))

    @cached_property
    def _centroids(self) -> NDArray[np.float32]:
        """Those of the lists, not rotated, each of length 1, shape ``(lists, dimensions)``."""
        centroids = self._lists.quantizer.reconstruct_n(0, self._lists.nlist)
        return np.asarray(self.index.chain.at(0).reverse_transform(centroids))

    @cached_property
    def spread(self) -> NDArray[np.float32]:
        """How far a row is off its own centroid in the direction of each one, as a share of how far it is off.

        These are standard deviations, shape ``(lists,)``, by the sample. What all centroids have in common is left
        out, since it does not tell lists apart.
        """
        centroids, sample = self._centroids, self._sample
        cosines = sample @ centroids.T
        nearest = cosines.argmax(axis=1)
        residuals = sample - cosines.max(axis=1)[:, None] * centroids[nearest]
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), _ROUNDING)
        return np.asarray(np.sqrt(np.mean((residuals @ (centroids - centroids.mean(axis=0)).T) ** 2, axis=0)))

    @cached_property
    def _sample(self) -> NDArray[np.float32]:
        """Some rows, evenly spaced, shape ``(at most 512, dimensions)``."""
        return self._rows.approximations(_evenly(len(self._rows), _SAMPLE))


class CodesQuery:
    """A direction in which the codes of some rows are searched, list by list from the nearest on.

    Args:
        codes: of all rows.
        vector: of the query.
        valid: which rows are searched; None: all.
        deviations: by how many of `VectorCodes.spread` a row is assumed to be off at most.
    """

    def __init__(
        self, codes: VectorCodes, vector: NDArray[np.float32], valid: NDArray[np.bool_] | None, deviations: float
    ) -> None:
        import faiss

        self._codes, self._vector, self._deviations, self._selector = codes, vector, deviations, None
        if valid is not None:
            self._bitmap = np.packbits(valid, bitorder="little")  # FAISS points to it
            self._selector = faiss.IDSelectorBitmap(self._bitmap)  # type: ignore[call-arg, arg-type]  # takes arrays

    def search(self, limit: int, lists: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the scores by their codes, descending, and the rows of the best in so many of the nearest lists."""
        with one_thread():
            (scores,), (rows,) = self._codes.index.search(self._vector[None], limit, params=self._parameters(lists))
        exists = rows >= 0
        return scores[exists], rows[exists]

    def count_lists(self, score: float) -> int:
        """Return how many of the nearest lists have to be searched for all rows of at least this score.

        Such a row is the query, as far as its score says, and for the rest points anywhere. Its list is that of the
        nearest centroid; which may be another one than that of the query, if what is not the query leads it there.
        """
        if score <= 0:
            return self._codes.list_count
        scores, spread = self._centroid_scores, self._codes.spread
        nearest = scores.argmax()
        sine = math.sqrt(max(1 - score * score, 0.0))
        differences = self._deviations * sine * np.hypot(spread, spread[nearest])
        lowest_score = scores[score * (scores[nearest] - scores) <= differences].min()
        return int(np.count_nonzero(scores >= lowest_score - _ROUNDING))

    @cached_property
    def _centroid_scores(self) -> NDArray[np.float32]:
        return self._codes.centroid_scores(self._vector)

    def _parameters(self, lists: int) -> Any:
        import faiss

        of_lists = faiss.SearchParametersIVF(nprobe=lists, sel=self._selector)  # type: ignore[call-arg]  # keywords
        return faiss.SearchParametersPreTransform(index_params=of_lists)  # type: ignore[call-arg]


def quantise(rows: ExactRows | RoundedRows, earlier: VectorCodes | None = None) -> VectorCodes:
    """Return FAISS's product quantiser over all rows, 4 bits for two numbers.

    Vectors are rotated at random first: where few dimensions vary most, those of the best rows would lie far off the
    16 values that two numbers are rounded to. Takes some 20 s of processor time for a million rows of 384 dimensions.

    Args:
        rows: the vectors; where they are rounded, that is far less than the codes leave out.
        earlier: the codes of the first rows, which are copied; the result is the same without them.
    """
    import faiss

    count, dimensions = len(rows), rows.dimensions
    if earlier is None:
        groups = dimensions // 2 if dimensions % 2 == 0 else dimensions
        first = trained_on(count)
        lists = max(math.isqrt(first) // 2, 1) if first >= _LISTED_ROWS else 1
        kind = f"RR{dimensions},IVF{lists},PQ{groups}x4fs"
        index: Any = faiss.index_factory(dimensions, kind, faiss.METRIC_INNER_PRODUCT)
        inverted_file = _inverted_file(index)
        inverted_file.by_residual = False  # what is off a centroid of length 1 can be longer than the vector
        for training in (inverted_file.cp, inverted_file.pq.cp):
            training.min_points_per_centroid = 1  # else it warns on standard output
            training.niter = 10  # the default is 25
        sample = rows.approximations(_evenly(first, _TRAINING_ROWS * max(lists, 64)))
        with one_thread():
            index.train(np.resize(sample, (max(len(sample), 64), dimensions)))  # repeated if there are too few
    else:
        index = faiss.deserialize_index(faiss.serialize_index(earlier.index))
    for start in range(index.ntotal, count, BLOCK):
        with one_thread():
            index.add(rows.approximations(np.arange(start, min(start + BLOCK, count))))
    return VectorCodes(index, rows)


def trained_on(rows: int) -> int:
    """Return how many of the first rows the quantiser is trained on: at least a quarter, the same for a while."""
    return 1 << 2 * ((max(rows, 1).bit_length() - 1) // 2)


def _inverted_file(index: Any) -> Any:
    import faiss

    return faiss.downcast_index(index.index)


def _evenly(rows: int, most: int) -> NDArray[np.intp]:
    """Return up to so many numbers of rows, evenly spaced."""
    return np.linspace(0, rows - 1, min(rows, most)).astype(np.intp)


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


def write_codes(path: Path, codes: VectorCodes, checksum: bytes) -> None:
    """Write FAISS's form of codes, the checksum of the base file that it is made from, and its own."""
    import faiss

    remove_leftovers(path)
    with replacing(path) as file:
        digest = xxhash.xxh3_128()

        def write(data: bytes) -> int:
            digest.update(data)
            return file.write(data)

        faiss.write_index(codes.index, faiss.PyCallbackIOWriter(write))  # type: ignore[attr-defined]  # Python's wrapper has it
        write(checksum)
        file.write(digest.digest())


class StoredCodes(NamedTuple):
    """What is in a file of codes: an index of FAISS, and the checksum of the base file that it is made from."""

    index: Any
    checksum: bytes


def read_codes(path: Path) -> StoredCodes:
    """Read a file of codes after verifying its checksum.

    Raises:
        ValueError, OSError, RuntimeError: it is damaged, or there is none.
    """
    import faiss

    stamp = file_stamp(path)
    content = np.memmap(path, np.uint8, "r")
    if xxhash.xxh3_128(content[:-16].data).digest() != content[-16:].tobytes():
        raise ValueError("its checksum is wrong")
    index = faiss.read_index(str(path))
    if file_stamp(path) != stamp:
        raise ValueError("it was replaced while it was read")
    return StoredCodes(index, content[-32:-16].tobytes())


def belongs_to(path: Path, checksum: bytes) -> bool:
    """Whether a file of codes is made from the base file with this checksum, by its end alone."""
    try:
        with open_regular(path) as file:
            file.seek(-32, os.SEEK_END)
            return file.read(16) == checksum
    except OSError:  # missing or too short
        return False
