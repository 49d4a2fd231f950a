"""What `auto` should be: chosen on some collections, reported on those left out.

    python benchmarks/auto.py

For every family of collections a way of ranking is chosen on all others, and its nDCG@10 reported on this one (the
outer loop). Chosen is the first, in the order below from ``hybrid`` on, that is within one standard error over
collections of the best mean (the one-standard-error rule: what departs further has to gain surely). Rules of `auto` are
judged by their mean gain over collections, with a 95 % interval of a bootstrap over *collections*: what gains on one
kind of question says nothing of the next.

The ways, all over the same candidates (100 by BM25, 100 by cosine, both scores of each):

``hybrid``            BM25 and cosines on one absolute scale
``span, B to C``      ``hybrid`` with vectors counting span / `Policy.span_from`, at least B and at most C times, B from
                      1 down: the span is how many σ the best cosine lies above chance
``two scales``        the mean of ``hybrid`` and ``z_score``, both standardised: absolute and relative evidence
``z_score``, ``rrf``, ``vector``, ``bm25``  as the strategies of these names

Collections are read as in ``_judged.py``, which keeps what it works out on disk. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

import _judged
from _judged import SETS, family, own
from pointsman.retrieval.fusion import KAPPA, RRF_K
from pointsman.retrieval.plan.policy import measured

Scores = NDArray[np.float64]
K = 10
DRAWS = 10_000
FIXED = ("bm25", "vector", "rrf", "z_score", "hybrid")
POLICY = measured()


def label(least: float, most: float) -> str:
    return f"span, {least:g} to {most:g}"


LEAST = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
SPANS = {label(least, most): (least, most) for least in LEAST for most in (POLICY.span_most, 1.0)}
NOW = label(POLICY.span_least, POLICY.span_most)
ORDER = (
    "hybrid",
    *(label(least, POLICY.span_most) for least in LEAST),
    "two scales",
    "z_score",
    "rrf",
    "vector",
    "bm25",
)
"""What is chosen among, the safest first."""
COMPOUND = ("mh_hotpotqa", "mh_musique_train100")


def standard(scores: Scores) -> Scores:
    spread = float(scores.std())
    return (scores - scores.mean()) / spread if spread else scores * 0.0


def by_rank(scores: Scores) -> Scores:
    """The reciprocal rank of each score, one alone being in the list by its rank."""
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(len(scores))
    inside = ranks < _judged.DEPTH
    return np.where(inside & (scores != 0), 1 / (RRF_K + 1 + ranks), 0.0)


def plain(bm25: Scores, near: Scores) -> Mapping[str, Scores]:
    """The scores of the candidates by every way that does not look at the span.

    Args:
        bm25: raw.
        near: cosines, as σ above chance.
    """
    relative, absolute = standard(bm25) + standard(near), bm25 + KAPPA * near
    return {
        "bm25": bm25,
        "vector": near,
        "rrf": by_rank(bm25) + by_rank(near),
        "z_score": relative,
        "hybrid": absolute,
        "two scales": standard(absolute) + standard(relative),
    }


def ndcg(scores: Scores, grades: Scores, ideal: tuple[float, ...]) -> float:
    discount = 1 / np.log2(np.arange(2, K + 2))
    best = grades[np.argsort(-scores, kind="stable")[:K]]
    return float((best * discount[: len(best)]).sum() / (np.array(ideal[:K]) * discount[: len(ideal[:K])]).sum())


def figures(name: str) -> dict[str, float]:
    """The mean nDCG@10 of every way on a collection."""
    return _judged.kept("spans-" + name, partial(_figures, name))


def _figures(name: str) -> dict[str, float]:
    at, judged = _judged.corpus(name), own(name)
    sigma = _judged.embedder().cosine_spread or at.sigma
    sums: dict[str, float] = {}
    for one in judged:
        near = (one.cosine - at.mean) / sigma
        values = {way: ndcg(scores, one.grades, one.ideal) for way, scores in plain(one.bm25, near).items()}
        by_weight: dict[float, float] = {}
        for way, (least, most) in SPANS.items():
            weight = min(max(near.max() / POLICY.span_from, least), most)
            if weight not in by_weight:
                by_weight[weight] = ndcg(one.bm25 + weight * KAPPA * near, one.grades, one.ideal)
            values[way] = by_weight[weight]
        for way, value in values.items():
            sums[way] = sums.get(way, 0.0) + value / len(judged)
    return sums


# ── choosing on some, reporting on others ────────────────────────────────────────────────────────────────────────────


def choice(values: Scores) -> int:
    """The place in `ORDER` of the safest way that is within one standard error of the best.

    Args:
        values: of shape ``(collections, ways)``.
    """
    behind = values[:, [values.mean(axis=0).argmax()]] - values
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(values))
    return int((behind.mean(axis=0) <= error).argmax())


def interval(gains: Scores) -> tuple[float, float]:
    """95 % of the means over collections drawn with replacement."""
    chance = np.random.default_rng(0)
    means = gains[chance.integers(0, len(gains), (DRAWS, len(gains)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def gain(gains: Scores) -> str:
    low, high = interval(gains)
    worst = int(gains.argmin())
    return (
        f"{gains.mean():+.4f} [{low:+.4f}, {high:+.4f}], worst {gains[worst]:+.4f} ({SETS[worst]}), "
        f"better on {(gains > 0).sum()}"
    )


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    table = {name: figures(name) for name in SETS}
    families = np.array([family(one) for one in SETS])

    def column(way: str) -> Scores:
        return np.array([table[one][way] for one in SETS])

    values = np.stack([column(way) for way in ORDER], axis=1)
    chosen = [choice(values[families != family(one)]) for one in SETS]
    outside = values[np.arange(len(SETS)), chosen]
    z, hybrid, now = column("z_score"), column("hybrid"), column(NOW)
    best = np.max([column(way) for way in FIXED], axis=0)

    print(f"{'nDCG@10':24}{'z_score':>9}{'hybrid':>9}{'now':>9}{'chosen':>9}{'- best':>9}  which, without its family")
    for row, one in enumerate(SETS):
        cells = "".join(f"{figure:9.4f}" for figure in (z[row], hybrid[row], now[row], outside[row]))
        print(f"{one:24}{cells}{outside[row] - best[row]:+9.4f}  {ORDER[chosen[row]]}")
    print(f"{'mean':24}" + "".join(f"{some.mean():9.4f}" for some in (z, hybrid, now, outside)))
    print(f"\nnow: {NOW}; chosen on all collections: {ORDER[choice(values)]}")
    print("\nmean over collections by way")
    for way in ORDER:
        print(f"  {way:20}{column(way).mean():.4f}")
    print("\ngain, mean over collections [95 % over collections]")
    rules = (
        ("chosen outside, over z_score", outside - z),
        ("chosen outside, over hybrid", outside - hybrid),
        ("chosen, beside the best fixed", outside - best),
        ("now, over z_score", now - z),
        ("less where none stands out, in now", now - column(label(1.0, POLICY.span_most))),
        ("more where one stands out, in now", now - column(label(POLICY.span_least, 1.0))),
    )
    for what, gains in rules:
        print(f"  {what:36}{gain(gains)}")
    print()
    compound = [SETS.index(one) for one in COMPOUND]
    checks = (
        (outside.mean() - z.mean() >= 0.006, "at least .006 over z_score on collections left out"),
        (outside.mean() >= max(column(way).mean() for way in FIXED), "at least as good as every fixed way on average"),
        ((outside - best).min() >= -0.015, "at most .015 under the best fixed way of each collection"),
        ((outside - hybrid)[compound].min() >= 0, "compound questions at least as good as hybrid"),
    )
    for good, what in checks:
        print(f"{'ok    ' if good else 'MISSED'} {what}")
    return 0 if all(good for good, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
