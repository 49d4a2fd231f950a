"""Stores against the exact answers, and against their bare clients: ``python benchmarks/stores.py``.

``--at`` names a workspace, such as a folder or ``postgresql://…``; with ``postgresql`` or ``opensearch`` a server, or a
cluster of ``--nodes``, is started for the run. A million passages need 12 GB of memory here, and ``--heap 2048``.
Passages are made of real collections in English, Chinese and Russian (``POINTSMAN_TEST_DATA``, else
``../shared/data``); vectors are random, clustered, of 384 dimensions. Lists are compared with the exact formula and
with NumPy, ties aware; times are those of the store, and of its bare client sending the same request, in turns in the
same run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from array import array
from collections import Counter, defaultdict
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from _data import DATA
from pointsman import Document, parse_filter
from pointsman.evaluation import read_collection
from pointsman.store.backend_urls import open_backend
from pointsman.store.store_values import NEAR, WORDS, StoreQuery
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.evaluation import TestCollection
    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

DIMENSIONS, QUERIES, DEPTH = 384, 60, 100
COLLECTIONS = ("en_scifact", "en_wikiqa", "zh_cmrc2018", "zh_domainrag", "ru_faq_java", "xl_debian_ru", "mh_hotpotqa")
FILTERS: dict[str, Filter | None] = {
    "none": None,
    "1 %": parse_filter("bucket == 7"),
    "10 %": parse_filter("bucket < 10"),
    "50 %": parse_filter("bucket < 50"),
}


@cache
def collections() -> list[TestCollection]:
    """The collections of which passages are made."""
    return [read_collection(DATA / name) for name in COLLECTIONS]


def passages(count: int) -> Iterator[Document]:
    """Passages of the collections, then of halves of two of them; the same in each call."""
    chance = random.Random(5)
    texts = [document.text for one in collections() for document in one.documents]
    for number in range(count):
        one, other = chance.choice(texts), chance.choice(texts)
        text = texts[number] if number < len(texts) else f"{one[: len(one) // 2]} {other[len(other) // 2 :]}"
        yield Document(str(number), text[:1000], {"bucket": chance.randrange(100), "number": number})


def sample_questions() -> list[str]:
    """Questions of all collections in turns."""
    rows = zip(*(list(one.queries.values())[:40] for one in collections()), strict=False)
    return [query for row in rows for query in row][:QUERIES]


def clustered(count: int, seed: int) -> NDArray[np.float32]:
    """Vectors around 200 centres, of length 1."""
    centres = np.random.default_rng(0).standard_normal((200, DIMENSIONS))
    chance = np.random.default_rng(seed)
    centre_of_row = chance.integers(200, size=count)
    unit: NDArray[np.float32] = np.empty((count, DIMENSIONS), np.float32)
    for start in range(0, count, 10_000):  # a million at once would fill the memory
        rows = centres[centre_of_row[start : start + 10_000]]
        rows += 0.9 * chance.standard_normal(rows.shape)
        unit[start : start + 10_000] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


class Formula:
    """Exact BM25 over all documents, for these questions."""

    def __init__(self, documents: Iterable[Document], questions: Sequence[str]) -> None:
        lengths = array("i")
        known = {token for question in questions for token in DEFAULT_ANALYZER.query_tokens(question)}
        postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("i"), array("i")))
        for place, document in enumerate(documents):
            tokens = DEFAULT_ANALYZER.tokens(document.searchable)
            lengths.append(len(tokens))
            for token, tf in Counter(token for token in tokens if token in known).items():
                places, counts = postings[token]
                places.append(place)
                counts.append(tf)
        self.lengths = np.array(lengths)
        self.postings = {token: np.array(pair) for token, pair in postings.items()}

    def scores(self, query: str, alive: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Of every document, those that are alive counted."""
        scores, number = np.zeros(len(self.lengths)), int(alive.sum())
        norm = 1.2 * (0.25 + 0.75 * self.lengths / self.lengths[alive].mean())
        for token, weight in Counter(DEFAULT_ANALYZER.query_tokens(query)).items():
            if token not in self.postings:
                continue
            places, tf = self.postings[token]
            n = int(alive[places].sum())
            scores[places] += weight * math.log(1 + (number - n + 0.5) / (n + 0.5)) * tf / (tf + norm[places])
        return np.where(alive, scores, 0.0)


def overlap(found: Sequence[int], right: NDArray[np.float64], depth: int) -> float:
    """Which share of the list belongs there; what scores as the last one may stand in its place."""
    depth = min(depth, int(np.count_nonzero(right > 0)))
    if not depth:
        return 1.0
    last = np.partition(right, -depth)[-depth] * (1 - 1e-6)
    return sum(bool(right[place] >= last) for place in found[:depth]) / depth


def bare(store: Any) -> Callable[[StoreQuery], Callable[[], object]]:
    """Makes of a look the same request by the client of the database alone."""
    if store.info.kind == "opensearch":
        return partial(_bare_cluster, store)
    if store.info.kind != "postgresql":
        return lambda _: lambda: None
    import psycopg

    parameters = store.connections._parameters
    connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
    cursor = connection.cursor(binary=True)

    def request(store_query: StoreQuery) -> Callable[[], object]:
        prepared = store._prepared([store_query])[0]
        return lambda: cursor.execute(prepared.statement.encode(), prepared.parameters).fetchall()

    return request


def _bare_cluster(store: Any, store_query: StoreQuery) -> Callable[[], object]:
    queries = store._queries(store_query).values()
    lines = [json.dumps(line) for query in queries for line in ({"search_type": "dfs_query_then_fetch"}, query)]
    body, client, alias = "\n".join([*lines, ""]), store._cluster.client, store._alias
    return lambda: client.transport.perform_request("POST", f"/{alias}/_msearch", body=body)


def size(store: Any) -> str:
    """The bytes that a cluster keeps of a passage, in one copy."""
    if store.info.kind != "opensearch":
        return ""
    primaries = store._cluster.ask("GET", f"/{store._alias}/_stats/docs,store")["_all"]["primaries"]
    return f", {primaries['store']['size_in_bytes'] / primaries['docs']['count']:,.0f} bytes a passage in a copy"


def quantiles(seconds: Sequence[float]) -> str:
    """p50 and p95 in milliseconds."""
    low, high = np.quantile(np.array(seconds) * 1000, (0.5, 0.95))
    return f"{low:.1f} / {high:.1f}"


def lists(
    store: Store,
    formula: Formula,
    matrix: NDArray[np.float32],
    bucket: NDArray[np.int_],
    alive: NDArray[np.bool_],
    questions: Sequence[str],
) -> Table:
    """Quality of both lists under each filter."""
    table = Table("filter", "words: top 10", "top 100", "largest error", "vectors: top 10", "top 100", title="Lists")
    vectors = clustered(len(questions), 9)
    limits = {"none": alive, "1 %": alive & (bucket == 7), "10 %": alive & (bucket < 10), "50 %": alive & (bucket < 50)}
    for name, filters in FILTERS.items():
        allowed, figures = limits[name], []
        for question, vector in zip(questions, vectors, strict=True):
            answer = store.search([StoreQuery(question, vector, DEPTH, filters)])[0]
            place = {key: int(document.id) for key, document in answer.documents.items()}
            missing = [key for ranking in answer.rankings.values() for key, _ in ranking if key not in place]
            fetched = store.fetch(missing)
            place |= {key: int(one.id) for key, one in zip(missing, fetched, strict=True) if one is not None}
            right = np.where(allowed, formula.scores(question, alive), 0.0)
            words = [place[key] for key, _ in answer.rankings[WORDS]]
            error = max(
                (abs(float(score or 0) / right[place[key]] - 1) for key, score in answer.rankings[WORDS]), default=0.0
            )
            cosines = np.where(allowed, matrix @ vector + 2, 0.0).astype(float)
            near = [place[key] for key, _ in answer.rankings[NEAR]]
            figures.append(
                (
                    *(overlap(words, right, depth) for depth in (10, 100)),
                    error,
                    *(overlap(near, cosines, depth) for depth in (10, 100)),
                )
            )
        means = np.mean(figures, axis=0)
        worst = max(figure[2] for figure in figures)
        table.add_row(name, f"{means[0]:.4f}", f"{means[1]:.4f}", f"{worst:.1e}", f"{means[3]:.4f}", f"{means[4]:.4f}")
    return table


def times(store: Store, questions: Sequence[str]) -> Table:
    """The store and its bare client in turns."""
    table = Table("filter", "depth", "store, ms p50 / p95", "bare client", "ratio of p50", title="Hybrid search")
    vectors, request = clustered(len(questions), 9), bare(store)
    for name, filters in FILTERS.items():
        for depth in (10, 100):
            ours: list[float] = []
            theirs: list[float] = []
            for question, vector in zip(questions, vectors, strict=True):
                store_query = StoreQuery(question, vector, depth, filters)
                for seconds, call in ((ours, partial(store.search, [store_query])), (theirs, request(store_query))) * 2:
                    begun = perf_counter()
                    call()
                    seconds.append(perf_counter() - begun)
            ratio = float(np.median(ours) / max(float(np.median(theirs)), 1e-9))
            known = float(np.median(theirs)) > 1e-5
            table.add_row(
                name, str(depth), quantiles(ours), quantiles(theirs) if known else "-", f"{ratio:.2f}" if known else "-"
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--at", default="postgresql", help="a workspace, or postgresql or opensearch")
    parser.add_argument("--nodes", type=int, default=3, help="of OpenSearch; the dataset has a shard for each")
    parser.add_argument("--heap", type=int, default=768, help="of a node of OpenSearch, in MB")
    options = parser.parse_args()
    console = Console()
    server: Any = None
    if options.at == "postgresql":
        from postgres_kit import PostgresServer

        server = PostgresServer()
        options.at = f"{server.url}?schema=benchmark"
    elif options.at == "opensearch":
        from opensearch_kit import Cluster

        server = Cluster(options.nodes, heap=options.heap)
        options.at = f"{server.url}/benchmark?shards={options.nodes}"
    try:
        documents, questions = list(passages(options.passages)), sample_questions()
        matrix = clustered(len(documents), 1)
        backend = open_backend(options.at)
        store = backend.create("passages", {"indexing_technique": "hybrid"})
        begun = perf_counter()
        bulk = getattr(store, "writer", None)
        with bulk() if bulk else nullcontext():
            for start in range(0, len(documents), 1000):
                store.write(documents[start : start + 1000], matrix[start : start + 1000], "benchmark")
            written = perf_counter()
        console.print(
            f"{store.info.kind}: {len(documents):,} passages, {len(documents) / (written - begun):,.0f} a second, "
            f"indexes {perf_counter() - written:.0f} s more{size(store)}"
        )
        formula, alive = Formula(documents, questions), np.ones(len(documents), bool)
        bucket = np.array([int(document.metadata["bucket"]) for document in documents])
        console.print(lists(store, formula, matrix, bucket, alive, questions))
        console.print(times(store, questions))
        gone = [str(number) for number in range(0, len(documents), 7)]
        begun = perf_counter()
        store.delete(gone)
        console.print(f"1/7 deleted: {len(gone) / (perf_counter() - begun):,.0f} a second")
        alive[::7] = False
        console.print(lists(store, formula, matrix, bucket, alive, questions))
        store.drop()
        store.close()
        backend.close()
    finally:
        if server is not None:
            server.stop()


if __name__ == "__main__":
    main()
