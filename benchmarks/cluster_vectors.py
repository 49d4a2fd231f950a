"""What shards, replicas and kinds of vectors cost in an OpenSearch cluster: ``python benchmarks/cluster_vectors.py``.

A cluster of ``--nodes`` starts on this machine. For each of ``--kinds`` a dataset of ``--shards`` is written into it
through the store; then its replicas are copied (with ``--replicas-first`` they are written along). Passages and vectors
are those of ``benchmarks/stores.py``. Beside the store's ``float`` and ``byte``, ``sq`` is Lucene's own scalar
quantisation to seven bits, which OpenSearch's ``on_disk`` mode uses at ``4x``. A column tells of one kind and number of
replicas:

- speed of writing and its processor time, the time until the replicas are there, and, with ``--compact``, until
  segments are merged;
- disk in all copies, and the bytes a passage that a search by vectors reads, which should stay in memory: the numbers
  that are compared, and the graph;
- memory of all nodes: heap in use after a collection, private memory with it, mapped files that are resident;
- lists against the exact formula and NumPy, ties aware, under filters that allow 50, 10 and 1 %;
- times of a search through the store, and how many times the bare client's that is, in turns in the same run.

A million passages over three nodes need 13 GB of memory here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pointsman.store.opensearch import OpenSearchBackend
from pointsman.store.opensearch import opensearch_reader as reader
from pointsman.store.opensearch import opensearch_store as store
from pointsman.store.opensearch.opensearch_queries import coordinates, vector_field
from pointsman.store.store_values import NEAR, WORDS, StoreQuery
from pointsman.tools.batching import batched
from stores import FILTERS, Formula, bare, clustered, overlap, passages, quantiles, sample_questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman import Document

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

DEPTHS, BATCH = (10, 100), 1000
MEGABYTE = 1_000_000


class Truth:
    """The exact answers, computed once for all kinds."""

    def __init__(self, count: int, questions: int) -> None:
        self.questions, self.matrix = sample_questions()[:questions], clustered(count, 1)
        self.vectors = clustered(len(self.questions), 9)
        bucket_of_row = array("i")

        def noted() -> Iterator[Document]:
            for document in passages(count):
                bucket_of_row.append(int(str(document.metadata["bucket"])))
                yield document

        self.formula = Formula(noted(), self.questions)
        self.bucket = np.array(bucket_of_row)

    def __len__(self) -> int:
        return len(self.bucket)

    def cut(self, count: int) -> None:
        """Forget all but the first passages."""
        self.matrix, self.bucket = self.matrix[:count], self.bucket[:count]
        self.formula.lengths = self.formula.lengths[:count]
        postings = self.formula.postings
        self.formula.postings = {token: pair[:, pair[0] < count] for token, pair in postings.items()}

    def allowed(self, name: str) -> NDArray[np.bool_]:
        """Which passages a filter allows."""
        bounds = {"none": (0, 100), "1 %": (7, 8), "10 %": (0, 10), "50 %": (0, 50)}
        low, high = bounds[name]
        rows: NDArray[np.bool_] = (self.bucket >= low) & (self.bucket < high)
        return rows


def choose(kind: str) -> None:
    """Have datasets index vectors of a kind; ``sq`` is none of the store's, so that it takes the place of ``byte``."""

    def rounded_field(dimensions: int, _: str) -> dict[str, Any]:
        field = vector_field(dimensions)
        field["method"]["parameters"]["encoder"] = {"name": "sq"}
        return field

    def rounded_coordinates(vector: NDArray[np.float32], _: str) -> list[float]:
        return coordinates(vector)

    modules: tuple[Any, Any] = (store, reader)
    modules[0].vector_field = rounded_field if kind == "sq" else vector_field
    for module in modules:
        module.coordinates = rounded_coordinates if kind == "sq" else coordinates


def write(dataset: Any, matrix: NDArray[np.float32], writers: int, minutes: float) -> tuple[int, float]:
    """Write the passages, by so many threads; return their number and the seconds until they are visible."""
    begun, starts = perf_counter(), iter(range(0, len(matrix), BATCH))
    batches, lock = batched(passages(len(matrix)), BATCH), threading.Lock()

    def work() -> int:
        count = 0
        with dataset.writer():
            while perf_counter() - begun < 60 * minutes:
                with lock:
                    start, documents = next(starts, 0), next(batches, [])
                if not documents:
                    break
                dataset.write(documents, matrix[start : start + BATCH], "benchmark")
                count += len(documents)
                if start % 20_000 == 0:
                    print(f"{start:,} passages in {perf_counter() - begun:,.0f} s", file=sys.stderr, flush=True)
        return count

    with ThreadPoolExecutor(writers) as pool:
        count = sum(future.result() for future in [pool.submit(work) for _ in range(writers)])
    return count, perf_counter() - begun


def copy(dataset: Any, replicas: int) -> float:
    """Have this many replicas made; return the seconds until all are there."""
    begun, cluster, alias = perf_counter(), dataset._cluster, dataset._alias
    cluster.ask("POST", f"/{alias}/_flush")  # what is in no commit would be indexed again, instead of copied
    cluster.ask("PUT", f"/{alias}/_settings", {"index": {"number_of_replicas": replicas}})
    path, parameters = f"/_cluster/health/{alias}", {"wait_for_status": "green", "timeout": "30s"}
    while cluster.ask("GET", path, accepted=(408,), **parameters) is None:
        print("replicas are being copied", file=sys.stderr, flush=True)
    return perf_counter() - begun


def processor(server: Any) -> float:
    """Return the seconds of processor time that all nodes have used."""
    ticks = 0
    for process in server.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(server: Any, dataset: Any) -> tuple[float, float, float]:
    """Return MB of all nodes: heap in use after a collection, private memory with it, resident mapped files."""
    private = mapped = 0
    for process in server.processes:
        subprocess.run(["jcmd", str(process.pid), "GC.run"], check=True, capture_output=True)
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in status.splitlines() if line[:3] == "Rss"}
        private, mapped = private + sizes["RssAnon"], mapped + sizes["RssFile"]
    nodes = dataset._cluster.ask("GET", "/_nodes/stats/jvm")["nodes"].values()
    heap = sum(node["jvm"]["mem"]["heap_used_in_bytes"] for node in nodes)
    return heap / MEGABYTE, private / MEGABYTE, mapped / MEGABYTE


def disk(dataset: Any) -> tuple[float, float, dict[str, float], int]:
    """Return MB in all copies, bytes a passage in one, those of each sort of file, and the number of segments."""
    path = f"/{dataset._alias}/_stats/docs,store,segments"
    answer = dataset._cluster.ask("GET", path, include_segment_file_sizes=True)["_all"]
    primaries = answer["primaries"]
    count = primaries["docs"]["count"]
    sizes = {name: entry["size_in_bytes"] / count for name, entry in primaries["segments"]["file_sizes"].items()}
    megabytes = answer["total"]["store"]["size_in_bytes"] / MEGABYTE
    return megabytes, primaries["store"]["size_in_bytes"] / count, sizes, primaries["segments"]["count"]


def quality(dataset: Any, truth: Truth) -> dict[str, list[float]]:
    """Return, by filter, how much of the lists belongs there: words, vectors of the index alone, vectors of the store.

    The last figure is the largest error of a cosine of the index alone.
    """
    rows: dict[str, list[list[float]]] = {name: [] for name in FILTERS}
    allowed = {name: truth.allowed(name) for name in FILTERS}
    for question, vector in zip(truth.questions, truth.vectors, strict=True):
        all_scores, all_cosines = truth.formula.scores(question, allowed["none"]), truth.matrix @ vector + 2
        for name, filters in FILTERS.items():
            scores, cosines = (np.where(allowed[name], exact, 0.0) for exact in (all_scores, all_cosines))
            row: list[float] = []
            for depth in DEPTHS:
                query = dataset._queries(StoreQuery(None, vector, depth, filters))[NEAR]
                [alone] = dataset._search_each([{**query, "size": depth, "_source": False}])
                hits = [(int(hit["_id"]), hit["_score"]) for hit in alone["hits"]["hits"]]  # keys are ids: numbers here
                answer = dataset.search([StoreQuery(question, vector, depth, filters)])[0]
                words, vectors = ([int(key) for key, _ in answer.rankings[branch]] for branch in (WORDS, NEAR))
                row += [
                    overlap(words, scores, depth),
                    overlap([key for key, _ in hits], cosines, depth),
                    overlap(vectors, cosines, depth),
                ]
            row.append(max(abs(dataset._factors.cosine(score) + 2 - cosines[key]) for key, score in hits))
            rows[name].append(row)
    return {
        name: [*np.mean(of_filter, axis=0)[:-1].tolist(), max(row[-1] for row in of_filter)]
        for name, of_filter in rows.items()
    }


def times(dataset: Any, truth: Truth) -> dict[str, str]:
    """Return p50 / p95 of searches by words, by vectors and by both, and how many times the bare client's p50 it is."""
    request, shown = bare(dataset), {}
    for name, depth in (("words", 10), ("vectors", 10), ("both", 10), ("both", 100)):
        ours: list[float] = []
        theirs: list[float] = []
        for question, vector in zip(truth.questions, truth.vectors, strict=True):
            look = StoreQuery(question if name != "vectors" else None, vector if name != "words" else None, depth)
            for seconds, call in ((ours, partial(dataset.search, [look])), (theirs, request(look))):
                begun = perf_counter()
                call()
                seconds.append(perf_counter() - begun)
        ratio = float(np.median(ours) / np.median(theirs))
        shown[f"{name} at {depth}, ms p50 / p95, times bare"] = f"{quantiles(ours)}, {ratio:.2f}"
    return shown


@contextmanager
def dataset_of(options: argparse.Namespace, server: Any, kind: str) -> Iterator[Any]:
    """Yield a new dataset, which is dropped at the end."""
    choose(kind)
    first = options.replicas[0] if options.replicas_first else 0
    stored = "float" if kind == "float" else "byte"
    url = f"{server.url}/benchmark?shards={options.shards}&replicas={first}&vectors={stored}"
    with OpenSearchBackend(url) as backend:
        dataset = backend.create("passages", {"indexing_technique": "hybrid"})
        yield dataset
        dataset.drop()


def answers(dataset: Any, truth: Truth) -> dict[str, str]:
    """Return the lines of the table about searches."""
    searching, figures = times(dataset, truth), quality(dataset, truth)
    sorts = ("words", "vectors of the index alone", "vectors of the store")
    overlaps = {
        f"{what} @10 / @100, {name}": f"{row[place]:.4f} / {row[place + 3]:.4f}"
        for place, what in enumerate(sorts)
        for name, row in figures.items()
    }
    error = max(row[-1] for row in figures.values())
    return {**searching, **overlaps, "largest error of a cosine of the index": f"{error:.1e}"}


def measure(options: argparse.Namespace, server: Any, kind: str, truth: Truth) -> list[dict[str, str]]:
    """Return a column for each number of replicas."""
    with dataset_of(options, server, kind) as dataset:
        before, own_before = processor(server), process_time()
        count, seconds = write(dataset, truth.matrix, options.writers, options.minutes)
        if count < len(truth):
            truth.cut(count)
        writing = {
            "passages": f"{count:,}",
            "passages/s": f"{count / seconds:,.0f}",
            "processor of nodes, ms a passage": f"{1000 * (processor(server) - before) / count:.2f}",
            "processor of the client, ms a passage": f"{1000 * (process_time() - own_before) / count:.2f}",
        }
        if options.compact:
            begun = perf_counter()
            dataset.compact()
            writing["merging, s"] = f"{perf_counter() - begun:.0f}"
        columns: list[dict[str, str]] = []
        for replicas in options.replicas:
            copying = copy(dataset, replicas)
            answering = answers(dataset, truth) if replicas == options.replicas[-1] else {}
            megabytes, passage, files, segments = disk(dataset)
            heap, private, mapped = memory(server, dataset)
            compared = files.get("veq", files.get("vec", 0.0))
            columns.append(
                {
                    "nodes, shards, replicas": f"{options.nodes}, {options.shards}, {replicas}",
                    "vectors": kind,
                    **writing,
                    "copying replicas, s": f"{copying:.0f}",
                    "segments": str(segments),
                    "disk, MB": f"{megabytes:,.0f}",
                    "bytes a passage in a copy": f"{passage:,.0f}",
                    "of them searched by vectors": f"{compared + files.get('vex', 0.0):,.0f}",
                    "heap in use, MB": f"{heap:,.0f}",
                    "private memory, MB": f"{private:,.0f}",
                    "mapped files, MB": f"{mapped:,.0f}",
                    **answering,
                    "files": ", ".join(f"{name} {size:,.0f}" for name, size in sorted(files.items()) if size >= 10),
                }
            )
            print(json.dumps(columns[-1]), flush=True)  # a long run may be ended
    return columns


def warm_up(options: argparse.Namespace, server: Any, kind: str, truth: Truth) -> None:
    """Write a few passages into a dataset that goes away again."""
    with dataset_of(options, server, kind) as dataset:
        write(dataset, truth.matrix[:5000], options.writers, math.inf)


def table(columns: Sequence[dict[str, str]]) -> Table:
    """A line for each figure, as there are more of them than kinds."""
    shown = Table("", *(column["vectors"] for column in columns), title="OpenSearch")
    for name in columns[-1]:
        shown.add_row(name, *(column.get(name, "") for column in columns))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--kinds", default="float,byte,sq", help="of vectors, with commas between them")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--replicas", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1])
    parser.add_argument("--replicas-first", action="store_true", help="write into replicas rather than copy them")
    parser.add_argument("--writers", type=int, default=3, help="threads that write")
    parser.add_argument("--compact", action="store_true", help="merge the segments of a shard into one")
    parser.add_argument("--heap", type=int, default=1536, help="of a node, in MB")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of writing; then what is there is measured")
    options = parser.parse_args()
    from opensearch_kit import Cluster

    truth = Truth(options.passages, options.questions)
    server = Cluster(options.nodes, heap=options.heap, fast_start=False)
    try:
        for kind in options.kinds.split(","):  # so that the first is not the one for which the JVMs compile
            warm_up(options, server, kind, truth)
        columns = [column for kind in options.kinds.split(",") for column in measure(options, server, kind, truth)]
    finally:
        server.stop()
    Console(width=60 + 30 * len(columns)).print(table(columns))


if __name__ == "__main__":
    main()
