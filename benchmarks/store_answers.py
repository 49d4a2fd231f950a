"""The same questions to a folder, to servers and over HTTP: ``python benchmarks/store_answers.py``.

Datasets are indexed into a folder once and copied with their vectors. Whole answers (``auto``, nothing refused) are
compared with the folder's: nDCG@10 (wanted within .003), the share of the first five that are the same (.98), how far
``relevance`` is apart for the same document (.02 on average), and how many questions are refused in one place only.
``--places`` leaves some out. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

import pointsman
from _data import DATA
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import measure, read_collection
from pointsman.store.backend_urls import open_backend
from pointsman.workspace.copies.copying import copy

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

COLLECTIONS = ("en_scifact", "ru_faq_java", "zh_cmrc2018")
PLACES = ("postgresql", "opensearch", "http")
Answers = dict[str, tuple[bool, list[tuple[str, float]]]]


def answers(workspace: Any, name: str, queries: dict[str, str]) -> Answers:
    """By question whether it is refused, and ids with their relevance."""
    found = {}
    for key, query in queries.items():
        answer = workspace.search(query, 10, datasets=[name])
        hits = answer.hits if answer.refused is None else answer.refused.near_misses
        assert all(hit.relevance is not None for hit in hits), f"{name}: nothing judges {query!r}"
        found[key] = answer.refused is not None, [(hit.id, hit.relevance) for hit in hits]
    return found


def compared(name: str, place: str, qrels: Any, first: Answers, other: Answers) -> bool:
    """Print a line of figures; whether all bounds are met."""
    ndcg = [
        measure(qrels, {key: [id_ for id_, _ in hits] for key, (_, hits) in one.items()}).means["ndcg@10"]
        for one in (first, other)
    ]
    overlaps, apart, differently = [], [], 0
    for key, (refused, hits) in first.items():
        elsewhere, there = other[key]
        mine, theirs = ([id_ for id_, _ in one[:5]] for one in (hits, there))
        overlaps.append(len({*mine} & {*theirs}) / max(len(mine), len(theirs), 1))
        relevance = dict(hits)
        apart += [abs(relevance[id_] - value) for id_, value in there if id_ in relevance]
        differently += refused != elsewhere
    met = abs(ndcg[1] - ndcg[0]) <= 0.003 and np.mean(overlaps) >= 0.98 and np.mean(apart) <= 0.02
    print(
        f"{'ok' if met else 'MISSED':7}{name}, {place}: nDCG@10 {ndcg[1]:.4f} (folder {ndcg[0]:.4f}), "
        f"top 5 the same {np.mean(overlaps):.4f}, relevance apart {np.mean(apart):.4f} on average, "
        f"{np.quantile(apart, 0.99):.3f} at p99; {differently} of {len(first)} refused in one place only",
        flush=True,
    )
    return bool(met)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", nargs="+", default=COLLECTIONS)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=PLACES)
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "work")
        embedder = CachedEmbedder(default_embedder())
        here = stack.enter_context(pointsman.open(folder, embedder=embedder))
        collections = {name: read_collection(DATA / name) for name in options.collections}
        for name, collection in collections.items():
            here.dataset(name).add(collection.documents)
        urls: dict[str, str] = {}
        if "postgresql" in options.places:
            from postgres_kit import PostgresServer

            database = PostgresServer()
            stack.callback(database.stop)
            urls["postgresql"] = f"{database.url}?schema=answers"
        if "opensearch" in options.places:
            from opensearch_kit import Cluster

            cluster = Cluster(3)
            stack.callback(cluster.stop)
            urls["opensearch"] = f"{cluster.url}/answers?shards=3"
        places: dict[str, Any] = {}
        for place, url in urls.items():
            with closing(open_backend(folder)) as source, closing(open_backend(url)) as target:
                copy(source, target)
            places[place] = stack.enter_context(pointsman.open(url, embedder=embedder))
        if "http" in options.places:
            from server_kit import Served

            served = stack.enter_context(Served(folder, embedder="default")).ready()
            places["http"] = stack.enter_context(closing(pointsman.Client(f"http://127.0.0.1:{served.port}")))
        met = True
        for name, collection in collections.items():
            queries = dict(list(collection.queries.items())[: options.questions])
            qrels = {key: value for key, value in collection.qrels.items() if key in queries}
            first = answers(here, name, queries)
            for place, workspace in places.items():
                met &= compared(name, place, qrels, first, answers(workspace, name, queries))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
