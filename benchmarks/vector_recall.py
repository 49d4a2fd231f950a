"""Recall of the quantised vector list against an exact scan, on vectors that are hard to tell apart.

    python benchmarks/vector_recall.py [--passages 56000] [--queries 100]

Vectors are drawn, with a fixed seed: evenly, in tight clusters, as near copies of one template among others, and with
one dimension that dominates all; each with no filter and with filters that leave 60, 30 and 10 %. Queries are noisy
copies of stored vectors, of the crowded ones where there are any. Promised: recall@10 of .99 on average and of .9 at
least.

Exit status 1: it is less.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.store.local.columns.metadata_columns import Columns
from pointsman.store.local.truth.document_changes import VectorChanges
from pointsman.store.local.vectors import vector_codes
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.values.filters import Range

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSIONS = 384
K = 10


class Drawn:
    """Vectors as a source, one transaction."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors

    def sequence(self) -> int:
        """See `Source`."""
        return 1

    def vector_changes(self, since: int) -> Iterator[VectorChanges]:
        """See `Source`."""
        if not since:
            yield VectorChanges([], list(range(1, len(self.vectors) + 1)), self.vectors.tobytes())

    def vectors_of(self, keys: Sequence[int], seq: int) -> tuple[list[int], bytes]:
        """See `VectorReader`."""
        assert seq == 1
        keys = sorted(keys)
        return keys, self.vectors[np.array(keys) - 1].tobytes()

    def check_vectors(self, seq: int, count: int) -> None:
        """See `Source`."""
        assert (seq, count) == (1, len(self.vectors))


def no_scan(condition: object) -> Any:
    """Stand in for the scan of documents, which no filter on a number needs."""
    raise AssertionError(f"{condition!r} takes no scan")


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def kinds(count: int, rng: np.random.Generator) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.float32]]]:
    """Name, vectors, and those that queries resemble."""
    even = rng.normal(size=(count, DIMENSIONS))
    yield "even", unit(even), unit(even)
    centres = unit(rng.normal(size=(50, DIMENSIONS)))
    clusters = unit(centres[rng.integers(50, size=count)] + 0.01 * rng.normal(size=(count, DIMENSIONS)))
    yield "clusters", clusters, clusters
    for name, spread in (("near copies", 0.003), ("nearer copies", 0.0003)):
        copies = unit(rng.normal(size=DIMENSIONS) / 20 + spread * rng.normal(size=(5000, DIMENSIONS)))
        yield name, np.concatenate([unit(even[5000:]), copies]), copies
    dominated = unit(even + 40 * np.eye(DIMENSIONS)[7] * rng.normal(1, 0.05, size=(count, 1)))
    yield "one dimension", dominated, dominated
    half = count // 2
    yield "half in clusters", np.concatenate([clusters[:half], unit(even[half:])]), unit(even[half:])
    aside = clusters + 0.5 * np.eye(DIMENSIONS)[7] * (rng.random((count, 1)) < 0.01)  # what is rare in every cluster
    yield "few set aside", unit(aside), unit(aside[aside[:, 7] > 0.3])
    yield "one outlier", np.concatenate([unit(even[1:]), np.eye(DIMENSIONS, dtype=np.float32)[:1]]), unit(even[1:])


def recall(exact: NDArray[np.float32], answer: list[tuple[int, float]], k: int = K) -> float:
    """The share of the answer that is as good as the k-th best; ties are interchangeable."""
    least = np.partition(exact, -k)[-k] - 1e-6
    return float(np.sum([exact[key - 1] >= least for key, _ in answer])) / k


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=56_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--one-list", action="store_true", help="as so few rows have it; else lists, as of a million")
    arguments = parser.parse_args()
    if not arguments.one_list:
        vector_codes._LISTED_ROWS = 1
    rng = np.random.default_rng(13)
    shares = rng.random(arguments.passages)
    columns = Columns(lambda: ((key, {"share": float(share)}) for key, share in enumerate(shares, 1)), no_scan)
    missed = False
    print(f"{'':15} {'left':>5} {'mean':>7} {'least':>6} {'p50 ms':>7} {'p95 ms':>7}")
    for name, vectors, crowded in kinds(arguments.passages, rng):
        with tempfile.TemporaryDirectory() as folder:
            index = VectorIndex(
                Path(folder, "vectors.bin"), Drawn(vectors), identity="x", dimensions=DIMENSIONS, columns=columns
            )
            index.catch_up(save=True)
            noise = rng.normal(size=(arguments.queries, DIMENSIONS))
            queries = unit(crowded[rng.integers(len(crowded), size=arguments.queries)] + 0.01 * noise)
            index.search(queries[0], K)
            for share in (None, 0.6, 0.3, 0.1):
                recalls, times = [], []
                filters = None if share is None else Range("share", lt=share)
                allowed = np.ones(len(vectors), bool) if share is None else shares < share
                for query in queries:
                    began = time.perf_counter()
                    answer = index.search(query, K, filters)
                    times.append(1000 * (time.perf_counter() - began))
                    recalls.append(recall(np.where(allowed, vectors @ query, -2), answer))
                missed |= float(np.mean(recalls)) < 0.99 or min(recalls) < 0.9
                p50, p95 = np.percentile(times, [50, 95])
                left = "all" if share is None else f"{share:.0%}"
                print(
                    f"{name:15} {left:>5} {np.mean(recalls):7.4f} {min(recalls):6.2f} {p50:7.1f} {p95:7.1f}", flush=True
                )
            index.close()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
