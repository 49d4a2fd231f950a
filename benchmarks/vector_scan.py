"""What a search of the vector list costs, and finds, beside FAISS alone: ``python benchmarks/vector_scan.py``.

Processor time of one thread a query, so that other programs change little; candidates are scored exactly, and those of
all indexes are the same number. Vectors lie in 1,000 clusters, or, with ``--skewed``, near a common mean in few
directions. With ``--embedded`` they are those of sentences of the public collections at ``POINTSMAN_TEST_DATA``, and
asked are these collections' own questions: embedding 80,000 takes five minutes, so they are kept in ``--directory``.
Recall is measured against an exact scan.

Exit status 1: recall@10 of the vector list is less than .99.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from _data import DATA
from _passages import CHUNK, DIMENSIONS, VectorOfText, questions, some_sentences, vectors
from pointsman.embedders import default_embedder
from pointsman.store.local.columns.metadata_columns import Columns
from pointsman.store.local.truth.document_changes import VectorChanges
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.values.filters import Filter, Range
from vector_recall import no_scan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

K = 100
CANDIDATES = 1000
SHARES = {"50 %": 0.5, "10 %": 0.1, "1 %": 0.01, ".1 %": 0.001}
PEERS = {"8-bit": "SQ8", "RaBitQ, 1 bit": "RaBitQfs_32", "IVF, 8-bit": "IVF1024,SQ8"}


class Source:
    """The vectors, in one transaction of many batches."""

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self._matrix = matrix

    def sequence(self) -> int:
        """See `VectorSource`."""
        return 1

    def vector_changes(self, since: int) -> Iterator[VectorChanges]:
        """See `VectorSource`."""
        for start in range(0, len(self._matrix) if not since else 0, CHUNK):
            rows = self._matrix[start : start + CHUNK]
            yield VectorChanges([], list(range(start, start + len(rows))), rows.tobytes())

    def vectors_of(self, keys: Sequence[int], seq: int) -> tuple[list[int], bytes]:
        """See `VectorReader`."""
        assert seq == 1
        keys = sorted(keys)
        return keys, self._matrix[keys].tobytes()

    def check_vectors(self, seq: int, count: int) -> None:
        """See `VectorSource`."""
        assert (seq, count) == (1, len(self._matrix))


def skewed(count: int, seed: int) -> NDArray[np.float32]:
    """Return unit vectors with a mean cosine of .75 and variances that fall like 1 / rank."""
    chance = np.random.default_rng(seed)
    mean = np.random.default_rng(1).standard_normal(DIMENSIONS)
    scales = 1 / np.sqrt(np.arange(1, DIMENSIONS + 1))
    noise = chance.standard_normal((count, DIMENSIONS), dtype=np.float32) * scales
    rows = mean / np.linalg.norm(mean) + noise * np.sqrt(1 / 3) / np.linalg.norm(scales)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def embedded(count: int, directory: Path | None) -> NDArray[np.float32]:
    """Return the vectors of sentences by the default embedder, read from the directory if they are there."""
    kept = directory and directory / f"sentences-{count}.npy"
    if kept and kept.exists():
        return np.asarray(np.load(kept), np.float32)
    texts = some_sentences(count)
    if len(texts) < count:
        sys.exit(f"--passages {count}: the collections have only {len(texts)} sentences")
    matrix = np.asarray(default_embedder().embed_documents(texts), np.float32)
    if kept:
        np.save(kept, matrix)
    return matrix


def collections_questions(count: int) -> list[str]:
    """Return questions of all public collections, mixed."""
    every = [
        json.loads(line)["text"]
        for path in sorted(DATA.glob("*/queries.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    random.Random(4).shuffle(every)
    return every[:count]


def measure(name: str, search: Callable[[NDArray[np.float32]], Rows], exact: list[Rows], asked: Any) -> float:
    """Print a row; return recall@10."""
    search(asked[0])
    seconds: list[float] = []
    shares: dict[int, list[float]] = {10: [], K: []}
    for query, nearest in zip(asked, exact, strict=True):
        began = process_time()
        rows = search(query)
        seconds.append(process_time() - began)
        for k, values in shares.items():
            values.append(len(set(rows[:k].tolist()) & set(nearest[:k].tolist())) / min(k, len(nearest)))
    p50, p95 = np.percentile(seconds, [50, 95]) * 1000
    recalls = "  ".join(f"{np.mean(values):.4f} / {min(values):.2f}" for values in shares.values())
    print(f"{name:30} {p50:7.2f} / {p95:7.2f}  {recalls}", flush=True)
    return float(np.mean(shares[10]))


def nearest(matrix: NDArray[np.float32], query: NDArray[np.float32], rows: Rows | None = None) -> Rows:
    """Return the best rows, of some or of all, best first."""
    scores = matrix @ query
    candidates = np.arange(len(matrix)) if rows is None else rows
    best = np.argpartition(-scores[candidates], min(K, len(candidates) - 1))[:K]
    best = candidates[best]
    return np.asarray(best[np.argsort(-scores[best])], np.int64)


def peer(kind: str, matrix: NDArray[np.float32]) -> Callable[[NDArray[np.float32]], Rows]:
    """Return a search by an index of FAISS, whose candidates are scored exactly."""
    index = faiss.index_factory(DIMENSIONS, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(matrix[:: max(1, len(matrix) // 50_000)])
    index.add(matrix)
    if "IVF" in kind:
        faiss.extract_index_ivf(index).nprobe = 32

    def search(query: NDArray[np.float32]) -> Rows:
        rows = index.search(query[None], CANDIDATES)[1][0]
        rows = rows[rows >= 0]
        scores = np.concatenate([matrix[part] @ query for part in np.array_split(rows, 16)])
        return np.asarray(rows[np.argsort(-scores)], np.int64)

    return search


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--skewed", action="store_true")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--directory", type=Path, help="keep embedded vectors here")
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    matrix: NDArray[np.float32]
    asked: NDArray[np.float32]
    if arguments.embedded:
        matrix = embedded(arguments.passages, arguments.directory)
        asked = np.asarray(default_embedder().embed_queries(collections_questions(arguments.queries)), np.float32)
    else:
        draw = skewed if arguments.skewed else vectors
        matrix = np.empty((arguments.passages, DIMENSIONS), np.float32)
        for start in range(0, len(matrix), CHUNK):
            matrix[start : start + CHUNK] = draw(min(CHUNK, len(matrix) - start), start)
        asked = (
            skewed(arguments.queries, -1 % 2**32)
            if arguments.skewed
            else VectorOfText().embed_queries(questions(arguments.queries, "scan"))
        )
    exact = [nearest(matrix, query) for query in asked]
    print(f"{'':30} CPU ms, p50 / p95  recall@10 / least  recall@{K} / least")
    measure("exact scan", lambda query: nearest(matrix, query), exact, asked)
    for name, kind in {}.items() if arguments.without_peers else PEERS.items():
        measure(f"FAISS, {name}", peer(kind, matrix), exact, asked)
    return _measure_ours(matrix, asked, exact)


def _measure_ours(matrix: NDArray[np.float32], asked: Any, exact: list[Rows]) -> int:
    shares = np.random.default_rng(13).random(len(matrix))
    columns = Columns(lambda: ((key, {"share": float(share)}) for key, share in enumerate(shares)), no_scan)
    with tempfile.TemporaryDirectory() as folder:
        index = VectorIndex(
            Path(folder, "vectors.bin"), Source(matrix), identity="x", dimensions=DIMENSIONS, columns=columns
        )
        began = process_time()
        index.catch_up(save=True)
        print(f"building and writing took {process_time() - began:.1f} s of processor time")

        def search(query: NDArray[np.float32], filters: Filter | None = None) -> Rows:
            return np.array([key for key, _ in index.search(query, K, filters)], np.int64)

        recalls = [measure("the vector list", search, exact, asked)]
        for name, share in SHARES.items():
            rows = np.flatnonzero(shares < share)
            best = [nearest(matrix, query, rows) for query in asked]
            condition = Range("share", lt=share)
            recalls.append(measure(f"the vector list, filter: {name}", partial(search, filters=condition), best, asked))
        index.close()
    return int(min(recalls) < 0.99)


if __name__ == "__main__":
    sys.exit(main())
