"""What taking questions apart gains where a question needs several documents, and what it costs elsewhere.

    python benchmarks/multihop.py [SET…] [--limit 400] [--other multi_query,sparse]

Through the strategies themselves: ``hybrid``, ``decomposition`` without bridges, and ``decomposition`` as it is, with
rules and without a language model. Columns: nDCG@10, recall@10, the share of questions with every relevant document in
the first ten, p against hybrid of nDCG and of that share (Fisher's paired randomisation test), and the median
milliseconds of a search with the embedder's work in it.

Multi-hop sets should gain; the others should not lose. Collections come from ``$POINTSMAN_TEST_DATA``, else from
``../shared/data`` beside the repository. Exit status 1: a multi-hop set did not gain, or another one lost
significantly (p < .05).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING

from _data import DATA
from pointsman import Workspace
from pointsman.embedders import default_embedder
from pointsman.evaluation import TestCollection, compare, indexed, measure, read_collection
from pointsman.retrieval.strategies import BaseRetrievalStrategy, DecompositionStrategy, HybridStrategy
from pointsman.values.registry import STRATEGIES

if TYPE_CHECKING:
    from pointsman import Dataset
    from pointsman.values.protocols import Embedder

MULTI_HOP = ("mh_musique_train100", "mh_hotpotqa")
OTHERS = ("zh_cmrc2018", "ru_faq_java", "en_scifact")
K, TIMED, WARM_UP = 10, 40, 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*MULTI_HOP, *OTHERS], metavar="SET")
    parser.add_argument("--limit", type=int, default=400, help="the first questions of a set (default: 400)")
    parser.add_argument("--other", default="", help="further strategies, by name, separated by commas")
    options = parser.parse_args()
    if absent := [name for name in options.sets if not (DATA / name).is_dir()]:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    others = [name for name in options.other.split(",") if name]
    print(
        f"{'set':20} {'strategy':24} {'n':>4} {'nDCG':>6} {'recall':>7} {'all':>6} {'p nDCG':>7} {'p all':>7} {'ms':>7}"
    )
    held = True
    for name in options.sets:
        held &= report(name, read_collection(DATA / name).first(options.limit), others)
    return 0 if held else 1


def report(name: str, collection: TestCollection, others: list[str]) -> bool:
    make: dict[str, Callable[[Dataset], BaseRetrievalStrategy]] = {
        "hybrid": HybridStrategy,
        "decomposition, bare": lambda dataset: DecompositionStrategy(dataset, bridges=False),
        "decomposition": DecompositionStrategy,
        **{other: STRATEGIES.get(other) for other in others},
    }
    embedder = default_embedder()
    with indexed(collection, embedder) as workspace:
        dataset = workspace.datasets()[0]
        found = {label: asked(made(dataset), collection) for label, made in make.items()}
        times = {label: timed(made, workspace.path, embedder, collection) for label, made in make.items()}
    plain_ndcg: Mapping[str, float] = {}
    plain_all: Mapping[str, float] = {}
    held = True
    for label, rankings in found.items():
        figures = measure(collection.qrels, rankings, K)
        ndcg = figures.per_query[f"ndcg@{K}"]
        every = complete(collection.qrels, rankings)
        line = f"{name:20} {label:24} {len(ndcg):4} {fmean(ndcg.values()):6.4f} {figures.means[f'recall@{K}']:7.4f} "
        line += f"{fmean(every.values()):6.3f}"
        if label == "hybrid":
            plain_ndcg, plain_all = ndcg, every
            line += f"{'':17}"
        else:
            p = compare(ndcg, plain_ndcg).p
            line += f" {p:7.4f} {compare(every, plain_all).p:7.4f} "
            gain = fmean(ndcg.values()) - fmean(plain_ndcg.values())
            if label == "decomposition":
                held &= gain > 0 if name in MULTI_HOP else gain >= 0 or p >= 0.05
        print(f"{line}{median(times[label]):7.1f}", flush=True)
    return held


def asked(strategy: BaseRetrievalStrategy, collection: TestCollection) -> dict[str, list[str]]:
    """What was found for each question, best first."""
    rankings = {}
    for query_id, text in collection.queries.items():
        hits = strategy.retrieve(text, K)
        if hits.degraded:
            print(f"degraded: {hits.degraded}", file=sys.stderr)
        rankings[query_id] = [hit.id for hit in hits]
    return rankings


def timed(
    make: Callable[[Dataset], BaseRetrievalStrategy], folder: Path, embedder: Embedder, collection: TestCollection
) -> list[float]:
    """Milliseconds of some searches, where no vector of a query is known yet."""
    texts = list(collection.queries.values())
    with Workspace(folder, embedder=embedder) as fresh:
        strategy = make(fresh.datasets()[0])
        for number in range(WARM_UP):
            strategy.retrieve(f"warm-up {number}", K)
        milliseconds = []
        for text in texts[:: -(-len(texts) // TIMED)]:
            began = perf_counter()
            strategy.retrieve(text, K)
            milliseconds.append((perf_counter() - began) * 1000)
    return milliseconds


def complete(qrels: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """1 for every question whose relevant documents were all found."""
    return {
        query: float({one for one, grade in wanted.items() if grade > 0} <= set(rankings.get(query, ())))
        for query, wanted in qrels.items()
        if query in rankings
    }


if __name__ == "__main__":
    sys.exit(main())
