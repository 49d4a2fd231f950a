"""How well searching works on public test collections: nDCG@10 of every way to rank, and the floors they must reach.

    python benchmarks/quality.py [SET…]

Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository. The first run
embeds every document, which takes a while; later ones take the vectors from the cache. Exit status 1: a floor missed.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from time import perf_counter

from _data import DATA
from _rankings import rankings
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import TestCollection, compare, indexed, measure, read_collection
from pointsman.retrieval.fusion import CosineSpread

SETS = (  # the quick ones first
    *("ru_faq_java", "en_xquad", "zh_xquad", "ru_xquad", "xl_xquad_en_zh_ru", "tool_ultratool_en_dev"),
    *("tool_ultratool_zh_dev", "tool_metatool_train", "mh_musique_train100", "en_cranfield", "en_cacm"),
    *("mh_hotpotqa", "zh_domainrag", "xl_debian_ru", "en_scifact", "zh_cmrc2018", "tool_sealtools_dev", "en_wikiqa"),
)
STRATEGIES = ("bm25", "vector", "rrf", "z_score", "hybrid")
SAMPLED = {"tool_metatool_train": 1000}  # of 18,411 queries
FLOORS = {
    ("en_scifact", "bm25"): 0.679 - 0.01,
    ("en_cranfield", "bm25"): 0.360 - 0.01,
    ("en_cacm", "bm25"): 0.499 - 0.01,
    ("zh_domainrag", "bm25"): 0.413 - 0.01,
    ("ru_faq_java", "bm25"): 0.652 - 0.01,
    ("en_scifact", "hybrid"): 0.72,
    ("ru_faq_java", "hybrid"): 0.78,
    ("mh_hotpotqa", "hybrid"): 0.86,
}


@dataclass(frozen=True)
class Result:
    """nDCG@10 by strategy, its mean and by query, and where cosines lie."""

    ndcg: dict[str, float]
    per_query: dict[str, dict[str, float]]
    estimated: CosineSpread
    measured: CosineSpread

    @property
    def better_single(self) -> str:
        """The better of the two lists that hybrid is made of."""
        return max(("bm25", "vector"), key=self.ndcg.__getitem__)


def main(names: list[str]) -> int:
    names = names or list(SETS)
    absent = [name for name in names if not (DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    print("nDCG@10, and the spread of cosines (mean, sigma) as the dataset estimates it and on the real queries\n")
    print(f"{'set':22}" + "".join(f"{name:>9}" for name in STRATEGIES) + "   estimated      real           seconds")
    results = {}
    for name in names:
        began = perf_counter()
        results[name] = result = run(sampled(read_collection(DATA / name)))
        figures = "".join(f"{result.ndcg[strategy]:9.4f}" for strategy in STRATEGIES)
        spreads = "   ".join(f"{spread.mean:.3f} {spread.sigma:.4f}" for spread in (result.estimated, result.measured))
        print(f"{name:22}{figures}   {spreads}   {perf_counter() - began:7.0f}", flush=True)
    means = (sum(result.ndcg[name] for result in results.values()) / len(results) for name in STRATEGIES)
    print(f"{'mean':22}" + "".join(f"{mean:9.4f}" for mean in means))
    against_the_better_list(results)
    return 0 if floors_hold(results) else 1


def sampled(collection: TestCollection) -> TestCollection:
    """The collection, or where it has too many queries the same sample of them every time."""
    count = SAMPLED.get(collection.name, len(collection.queries))
    chosen = set(random.Random(0).sample(list(collection.queries), min(count, len(collection.queries))))
    return replace(
        collection,
        queries={query: text for query, text in collection.queries.items() if query in chosen},
        qrels={query: grades for query, grades in collection.qrels.items() if query in chosen},
    )


def run(collection: TestCollection) -> Result:
    embedder = CachedEmbedder(default_embedder())

    def told(done: int, total: int, what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{collection.name}: {what} {done}/{total}\033[K", end="\r", file=sys.stderr)

    with indexed(collection, embedder, told) as workspace:
        (dataset,) = workspace
        queries = embedder.embed_queries(list(collection.queries.values()))
        measured = CosineSpread.measured(queries, dataset.store.vectors(sample=1000))
        per_query = {}
        for strategy in STRATEGIES:
            found = measure(collection.qrels, rankings(workspace, collection, strategy, on_progress=told))
            per_query[strategy] = dict(found.per_query["ndcg@10"])
        ndcg = {strategy: sum(values.values()) / len(values) for strategy, values in per_query.items()}
        return Result(ndcg, per_query, dataset.cosine_spread or measured, measured)


def against_the_better_list(results: dict[str, Result]) -> None:
    """Where hybrid stays behind the better of its two lists, and whether that means anything."""
    kept = sum(result.ndcg["hybrid"] >= result.ndcg[result.better_single] for result in results.values())
    print(f"\nhybrid is at least as good as the better of bm25 and vector on {kept} of {len(results)} sets")
    for name, result in results.items():
        better = result.better_single
        if result.ndcg["hybrid"] < result.ndcg[better]:
            found = compare(result.per_query["hybrid"], result.per_query[better])
            print(f"  {name:22} {found.difference:+.4f} against {better}, p = {found.p:.4f}")


def floors_hold(results: dict[str, Result]) -> bool:
    """Say for each floor whether it was reached."""
    held = True
    for (name, strategy), floor in FLOORS.items():
        if name in results:
            figure = results[name].ndcg[strategy]
            held &= figure >= floor
            print(f"{'ok    ' if figure >= floor else 'MISSED'} {name} {strategy} {figure:.4f}, floor {floor:.3f}")
    return held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
