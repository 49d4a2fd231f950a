"""Whether the automatic choice keeps its promise, and what it costs; benchmarks/auto.py says where its rules come from.

    python benchmarks/policy.py [report] [tune] [typos] [latency] [--sets SET…]

``report``   nDCG@10 of ``auto`` against fixed strategies on eleven collections, with paired tests
``tune``     50 labelled queries of each of the six largest collections, measured on other queries
``typos``    one slip in a content word of each query: what hybrid loses, and what auto wins back
``latency``  what the policy itself adds to a search

Nothing needs a language model. Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside
the repository; vectors come from the cache after the first run. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from _data import DATA
from _rankings import rankings
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import TestCollection, compare, indexed, measure, read_collection, tune
from pointsman.retrieval.request import RegisteredStrategy

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace

SETS = (
    *("en_scifact", "en_cranfield", "en_cacm", "en_wikiqa", "zh_domainrag", "zh_cmrc2018", "ru_faq_java"),
    *("xl_debian_ru", "xl_xquad_en_zh_ru", "mh_hotpotqa", "mh_musique_train100"),
)
LARGEST = ("zh_cmrc2018", "xl_xquad_en_zh_ru", "xl_debian_ru", "en_wikiqa", "ru_faq_java", "mh_hotpotqa")
FIXED = ("bm25", "vector", "rrf", "z_score", "hybrid")
MOST = 500  # queries that are tested after tuning


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = {"report": report, "tune": tuning, "typos": typos, "latency": latency}
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(sections)}; all unless named")
    parser.add_argument("--sets", nargs="*", help="instead of all")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(sections):
        parser.error(f"no section named {', '.join(sorted(unknown))}")
    if not DATA.is_dir():
        print(f"no collections at {DATA}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    embedder = CachedEmbedder(default_embedder())
    met = True
    for name in options.sections or sections:
        print(f"── {name} ──\n")
        met &= sections[name](embedder, options.sets)
        print()
    return 0 if met else 1


def mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


def held(good: bool, what: str) -> bool:
    print(f"{'ok    ' if good else 'MISSED'} {what}")
    return good


def ndcg(workspace: Workspace, collection: TestCollection, strategy: str) -> dict[str, float]:
    """nDCG@10 by query."""
    return dict(measure(collection.qrels, rankings(workspace, collection, strategy, 10), 10).per_query["ndcg@10"])


def first(collection: TestCollection, count: int) -> TestCollection:
    """Its documents and so many of its queries, spread evenly."""
    names = list(collection.queries)[:: max(1, len(collection.queries) // count)][:count]
    return replace(
        collection,
        queries={name: collection.queries[name] for name in names},
        qrels={name: collection.qrels[name] for name in names},
    )


# ── the promise ──────────────────────────────────────────────────────────────────────────────────────────────────────


def report(embedder: CachedEmbedder, sets: Sequence[str] | None) -> bool:
    names = sets or SETS
    columns = (*FIXED, "auto")
    print(f"{'nDCG@10':22}" + "".join(f"{name:>9}" for name in columns) + "   auto - z_score, p   auto - hybrid, p")
    found = {}
    for name in names:
        collection = read_collection(DATA / name)
        with indexed(collection, embedder) as workspace:
            per_query = {strategy: ndcg(workspace, collection, strategy) for strategy in columns}
        found[name] = {strategy: mean(values) for strategy, values in per_query.items()}
        z, hybrid = (compare(per_query["auto"], per_query[other]) for other in ("z_score", "hybrid"))
        row = "".join(f"{found[name][strategy]:9.4f}" for strategy in columns)
        print(
            f"{name:22}{row}   {z.difference:+.4f} {z.p:.4f}      {hybrid.difference:+.4f} {hybrid.p:.4f}", flush=True
        )
    means = {strategy: sum(row[strategy] for row in found.values()) / len(found) for strategy in columns}
    print(f"{'mean':22}" + "".join(f"{means[strategy]:9.4f}" for strategy in columns) + "\n")
    worst_z = min(found, key=lambda name: found[name]["auto"] - found[name]["z_score"])
    worst_list = min(found, key=lambda name: found[name]["auto"] - max(found[name]["bm25"], found[name]["vector"]))
    under_z = found[worst_z]["z_score"] - found[worst_z]["auto"]
    under_list = max(found[worst_list]["bm25"], found[worst_list]["vector"]) - found[worst_list]["auto"]
    return all(
        [
            held(means["auto"] >= means["z_score"] + 0.012, f"z_score + .012: {means['auto'] - means['z_score']:+.4f}"),
            held(means["auto"] >= means["rrf"] + 0.03, f"rrf + .03: {means['auto'] - means['rrf']:+.4f}"),
            held(under_z <= 0.015, f"at most .015 under z_score anywhere: {under_z:+.4f} ({worst_z})"),
            held(under_list <= 0.02, f"at most .02 under the better list anywhere: {under_list:+.4f} ({worst_list})"),
        ]
    )


# ── the user's own labels ────────────────────────────────────────────────────────────────────────────────────────────


def tuning(embedder: CachedEmbedder, sets: Sequence[str] | None) -> bool:
    """50 labels, drawn three times; the rest (at most 500) are the test."""
    print(f"{'set':20}{'draw':>5} {'kept':9}{'default':>9}{'tuned':>9}{'gain':>9}")
    gains = []
    for name in sets or LARGEST:
        collection = first(read_collection(DATA / name), MOST + 150)
        with indexed(collection, embedder) as workspace:
            (dataset,) = workspace
            for draw in range(3):
                labelled = random.Random(draw).sample(list(collection.queries), 50)
                rest = [query for query in collection.queries if query not in labelled][:MOST]
                fitted = tune(dataset, {query: collection.queries[query] for query in labelled}, collection.qrels)
                test = replace(
                    collection,
                    queries={query: collection.queries[query] for query in rest},
                    qrels={query: collection.qrels[query] for query in rest},
                )
                usual = ndcg(workspace, test, "auto")
                workspace.keep(fitted.policy if fitted.chosen != "default" else None)
                after = ndcg(workspace, test, "auto") if fitted.chosen != "default" else usual
                workspace.keep(None)
                gains.append(mean(after) - mean(usual))
                row = f"{mean(usual):9.4f}{mean(after):9.4f}{gains[-1]:+9.4f}"
                print(f"{name:20}{draw:5} {fitted.chosen:9}{row}", flush=True)
    print()
    return held(min(gains) >= -0.005, f"never under the default by more than .005: worst {min(gains):+.4f}, "
                f"mean {sum(gains) / len(gains):+.4f}")  # fmt: skip


# ── slips ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_slip(text: str, seed: int) -> str:
    """One letter of one longer word left out, doubled up with another, replaced, or swapped with its neighbour."""
    chance = random.Random(seed)
    words = list(re.finditer(r"[^\W\d_]{5,}", text))
    if not words:
        return text
    match = chance.choice(words)
    word, place, kind = match[0], chance.randrange(1, len(match[0]) - 1), chance.randrange(4)
    letter = chance.choice("abcdefghijklmnoprstuvw" if word.isascii() else "абвгдежзиклмнопрстуфхцчшы")
    slipped = (
        word[:place] + word[place + 1 :],
        word[:place] + letter + word[place:],
        word[:place] + letter + word[place + 1 :],
        word[:place] + word[place + 1] + word[place] + word[place + 2 :],
    )[kind]
    return text[: match.start()] + slipped + text[match.end() :]


def typos(embedder: CachedEmbedder, sets: Sequence[str] | None) -> bool:
    met = True
    print(f"{'set':14}{'':10}{'clean':>9}{'slips':>9}{'lost':>9}")
    for name in sets or ("en_scifact", "ru_faq_java"):
        collection = read_collection(DATA / name)
        slipped = replace(
            collection,
            queries={query: with_slip(text, seed) for seed, (query, text) in enumerate(collection.queries.items())},
        )
        with indexed(collection, embedder) as workspace:
            figures = {
                strategy: (mean(ndcg(workspace, collection, strategy)), mean(ndcg(workspace, slipped, strategy)))
                for strategy in ("bm25", "hybrid", "auto")
            }
            changed = sum(
                workspace.search(text, 1, refuse=False).query.text != text for text in collection.queries.values()
            )
        for strategy, (clean, with_slips) in figures.items():
            print(f"{name:14}{strategy:10}{clean:9.4f}{with_slips:9.4f}{clean - with_slips:9.4f}")
        lost = figures["hybrid"][0] - figures["hybrid"][1]
        back = 1 - (figures["auto"][0] - figures["auto"][1]) / lost
        print(f"{name:14}clean queries that auto changed: {changed} of {len(collection.queries)}")
        met &= held(back >= 0.8, f"{name}: {back:.0%} of what hybrid loses is won back, at least 80%")
    return met


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def latency(embedder: CachedEmbedder, sets: Sequence[str] | None) -> bool:
    """Searches whose vectors are known, with the policy and without it, taking turns."""
    met = True
    for name in sets or ("ru_faq_java", "en_scifact"):
        collection = first(read_collection(DATA / name), 300)
        with indexed(collection, embedder) as workspace:
            texts = list(collection.queries.values())
            for strategy in ("hybrid", "auto", "auto"):
                for text in texts:
                    workspace.search(text, 10, strategy=RegisteredStrategy(strategy))
            taken: dict[str, list[float]] = {"hybrid": [], "auto": []}
            for text in texts:
                for strategy, times in taken.items():
                    began = perf_counter()
                    workspace.search(text, 10, strategy=RegisteredStrategy(strategy))
                    times.append((perf_counter() - began) * 1e3)
        hybrid, auto = median(taken["hybrid"]), median(taken["auto"])
        added = median(b - a for a, b in zip(taken["hybrid"], taken["auto"], strict=True))
        print(f"{name:14} p50 of hybrid {hybrid:.2f} ms, of auto {auto:.2f} ms")
        met &= held(added <= 1.0, f"{name}: the automatic choice adds {added:.2f} ms, at most 1")
    return met


if __name__ == "__main__":
    sys.exit(main())
