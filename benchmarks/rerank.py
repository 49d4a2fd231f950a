"""What the reranker that needs no model is worth: nDCG@10 before and after it, and what it costs.

    python benchmarks/rerank.py [SET…] [--queries 200]

``rrf`` and ``z_score`` are what it is given: their first 50 hits, which carry both raw scores. ``hybrid`` is the same
sum over the whole pool, so what it could reach at most. ``foreign`` takes the scores away from the hits of ``bm25`` and
of ``vector`` and lets it score the first 20 texts, as for a retriever that is not ours. Collections are read from
``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pointsman.evaluation import TestCollection, indexed, measure, read_collection
from pointsman.models import CachedEmbedder, default_embedder
from pointsman.retrieval.rerank import CalibratedReranker
from pointsman.types import Query, Ranked

if TYPE_CHECKING:
    from pointsman.dataset import Dataset

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
SETS = ("ru_faq_java", "en_xquad", "zh_xquad", "ru_xquad", "en_cranfield", "en_cacm", "zh_domainrag", "mh_hotpotqa")
COLUMNS = ("rrf", "rrf+", "z_score", "z_score+", "hybrid", "bm25", "bm25 foreign+", "vector", "vector foreign+")
DEPTH = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--queries", type=int, default=200, help="the first so many of each set")
    options = parser.parse_args()
    absent = [name for name in options.sets if not (DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    embedder = CachedEmbedder(default_embedder())
    print("nDCG@10; + is after the calibrated reranker\n")
    print(f"{'set':14}" + "".join(f"{name:>16}" for name in COLUMNS) + "   µs for 50 hits")
    sums = dict.fromkeys(COLUMNS, 0.0)
    for name in options.sets:
        collection = read_collection(DATA / name)
        with indexed(collection, embedder) as workspace:
            (dataset,) = workspace
            figures, microseconds = run(dataset, first(collection, options.queries), embedder)
        for column in COLUMNS:
            sums[column] += figures[column] / len(options.sets)
        print(f"{name:14}" + "".join(f"{figures[c]:16.4f}" for c in COLUMNS) + f"   {microseconds:8.0f}", flush=True)
    print(f"{'mean':14}" + "".join(f"{sums[column]:16.4f}" for column in COLUMNS))
    return 0


def first(collection: TestCollection, count: int) -> TestCollection:
    queries = dict(islice(collection.queries.items(), count))
    return replace(collection, queries=queries, qrels={query: collection.qrels[query] for query in queries})


def run(dataset: Dataset, collection: TestCollection, embedder: CachedEmbedder) -> tuple[dict[str, float], float]:
    """The figures by column, and the median time of the calibrated sum."""
    spread = dataset.cosine_spread
    added = CalibratedReranker(spread=spread)
    texts = CalibratedReranker(embedder, spread=spread, timeout=None, cache=100_000)
    taken: list[float] = []

    def by_scores(query: str, ranked: Ranked) -> Ranked:
        began = perf_counter()
        after = added.refine(Query(query), ranked, 10)
        taken.append(perf_counter() - began)
        return after

    def by_texts(query: str, ranked: Ranked) -> Ranked:
        bare = tuple(replace(hit, provenance=()) for hit in ranked.hits)
        return texts.refine(Query(query), replace(ranked, hits=bare, scale="theirs"), 10)

    def unchanged(_: str, ranked: Ranked) -> Ranked:
        return ranked

    plans: dict[str, tuple[str, Callable[[str, Ranked], Ranked]]] = {
        **{strategy: (strategy, unchanged) for strategy in ("rrf", "z_score", "hybrid", "bm25", "vector")},
        **{f"{strategy}+": (strategy, by_scores) for strategy in ("rrf", "z_score")},
        **{f"{strategy} foreign+": (strategy, by_texts) for strategy in ("bm25", "vector")},
    }
    figures = {}
    for column in COLUMNS:
        strategy, refine = plans[column]
        retriever = dataset.retriever(strategy)
        found = {}
        for query, text in collection.queries.items():
            ranked = refine(text, Ranked(tuple(retriever.retrieve(text, DEPTH)), strategy))
            assert not ranked.degraded, ranked.degraded
            found[query] = [hit.id for hit in ranked.hits]
        figures[column] = measure(collection.qrels, found).means["ndcg@10"]
    return figures, statistics.median(taken) * 1e6


if __name__ == "__main__":
    sys.exit(main())
