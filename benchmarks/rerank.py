"""What the reranker that needs no model is worth: nDCG@10 before and after it, with a paired significance test.

    python benchmarks/rerank.py [SET…] [--queries N] [--foreign]

It is given the first 100 hits of a ranking fused by RRF or z-score, which carry both raw scores. ``hybrid`` ranks by
the same sum from the start; there it has nothing to add. ``--foreign`` takes the scores away from the hits of ``bm25``
and of ``vector`` and lets it score the first 20 texts, as for a retriever that is not ours; that embeds them. p is of
Fisher's paired randomisation test. Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data``
beside the repository. Exit status 1: a loss at p < .05.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

from _data import DATA
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import TestCollection, compare, indexed, measure, read_collection
from pointsman.retrieval.refine.rerank import CalibratedReranker
from pointsman.values.types import Query, Ranked

if TYPE_CHECKING:
    from pointsman.workspace.dataset import Dataset

SETS = ("en_scifact", "en_cranfield", "en_cacm", "zh_domainrag", "ru_faq_java", "mh_hotpotqa")
DEPTH = 100

Refine = Callable[[str, Ranked], Ranked]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--queries", type=int, help="only the first so many of each set")
    parser.add_argument("--foreign", action="store_true", help="also score the texts of hits without scores")
    options = parser.parse_args()
    absent = [name for name in options.sets if not (DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    embedder = CachedEmbedder(default_embedder())
    strategies = ("rrf", "z_score", *(("bm25", "vector") if options.foreign else ()))
    print("nDCG@10 before and after the calibrated reranker\n")
    print(f"{'set':14}{'hybrid':>9}   " + "".join(f"{name:>10}{'after':>9}{'p':>8}" for name in strategies) + "   µs")
    lost = False
    for name in options.sets:
        collection = read_collection(DATA / name)
        with indexed(collection, embedder) as workspace:
            (dataset,) = workspace
            asked = first(collection, options.queries or len(collection.queries))
            lost |= told(name, dataset, asked, strategies, embedder)
    return int(lost)


def told(
    name: str, dataset: Dataset, collection: TestCollection, strategies: Sequence[str], embedder: CachedEmbedder
) -> bool:
    """Print a row; True if a significant loss is in it."""
    taken: list[float] = []
    by_scores, by_texts = rerankers(dataset, embedder, taken)
    hybrid = figures(dataset, collection, "hybrid", unchanged)
    row, lost = f"{name:14}{mean(hybrid):9.4f}   ", False
    for strategy in strategies:
        before = figures(dataset, collection, strategy, unchanged)
        refine = by_scores if strategy in {"rrf", "z_score"} else by_texts
        after = figures(dataset, collection, strategy, refine)
        p = compare(after, before).p
        row += f"{mean(before):10.4f}{mean(after):9.4f}{p:8.4f}"
        lost |= p < 0.05 and mean(after) < mean(before)
    print(f"{row}   {statistics.median(taken) * 1e6:.0f}", flush=True)
    return lost


def first(collection: TestCollection, count: int) -> TestCollection:
    queries = dict(islice(collection.queries.items(), count))
    return replace(collection, queries=queries, qrels={query: collection.qrels[query] for query in queries})


def rerankers(dataset: Dataset, embedder: CachedEmbedder, taken: list[float]) -> tuple[Refine, Refine]:
    """One that adds the scores there are, whose times go into ``taken``, and one that scores the texts."""
    spread = dataset.cosine_spread
    added = CalibratedReranker(spread=spread)
    texts = CalibratedReranker(embedder, spread=spread, timeout=None, cache=100_000)

    def by_scores(query: str, ranking: Ranked) -> Ranked:
        began = perf_counter()
        after = added.refine(Query(query), ranking, 10)
        taken.append(perf_counter() - began)
        return after

    def by_texts(query: str, ranking: Ranked) -> Ranked:
        bare = tuple(replace(hit, provenance=()) for hit in ranking.hits)
        return texts.refine(Query(query), replace(ranking, hits=bare, scale="theirs"), 10)

    return by_scores, by_texts


def unchanged(_: str, ranking: Ranked) -> Ranked:
    return ranking


def figures(dataset: Dataset, collection: TestCollection, strategy: str, refine: Refine) -> dict[str, float]:
    """nDCG@10 by query."""
    retriever = dataset.retriever(strategy)
    found = {}
    for query, text in collection.queries.items():
        ranking = refine(text, Ranked(tuple(retriever.retrieve(text, DEPTH)), strategy))
        assert not ranking.degraded, ranking.degraded
        found[query] = [hit.id for hit in ranking.hits]
    return dict(measure(collection.qrels, found).per_query["ndcg@10"])


def mean(per_query: dict[str, float]) -> float:
    return sum(per_query.values()) / len(per_query)


if __name__ == "__main__":
    sys.exit(main())
