"""What `auto` should be: chosen on some collections, reported on those left out.

    python benchmarks/auto.py

For every family of collections the way of ranking that is best on all others is chosen, and its nDCG@10 reported on
this one (the outer loop). Rules of `auto` are judged by their mean gain over collections, with a 95 % interval of a
bootstrap over *collections*: what gains on one kind of question says nothing of the next.

The ways, all over the same candidates (100 by BM25, 100 by cosine, both scores of each):

``bm25``, ``vector``, ``rrf``, ``z_score``  as the strategies of these names
``calibrated``     BM25 and cosines on one absolute scale: ``hybrid``
``two scales``     the mean of ``calibrated`` and ``z_score``, both standardised: absolute and relative evidence
``+ span``         vectors count more where the best stands far above chance
``+ feedback``     cosines to the query as its first hits have moved it, where the best does not stand far above chance

Collections are read as in ``_judged.py``, which keeps what it works out on disk.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

import _judged
from _judged import SETS, Corpus, Judged, family, own
from pointsman.retrieval.fusion import KAPPA, RRF_K
from pointsman.retrieval.policy import measured
from pointsman.text import DEFAULT_ANALYZER

Scores = NDArray[np.float64]
K = 10
DRAWS = 10_000
NOW = "calibrated + span"
FEEDBACK, FIRST_HITS, UNSURE = 0.3, 3, 5.0  # the weight of how many hits, where the best vector is below so many σ
POLICY = measured()
FIXED = ("bm25", "vector", "rrf", "z_score", "calibrated")


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


def near(cosine: Scores, mean: float, sigma: float) -> Scores:
    return KAPPA * (cosine - mean) / sigma


def span(cosine: Scores, mean: float, sigma: float) -> float:
    return max(0.0, float(cosine.max() - mean) / sigma)


def factor(far: float) -> float:
    return min(max(far / POLICY.span_from, 1.0), POLICY.span_most)


def ways(bm25: Scores, cosine: Scores, moved: Scores, mean: float, sigma: float) -> Mapping[str, Scores]:
    """The scores of the candidates by every way.

    Args:
        bm25: raw.
        cosine: to the query.
        moved: to the query as its first hits have moved it; ``cosine`` itself where nothing moves it.
        mean: of cosines that mean nothing.
        sigma: their standard deviation.
    """
    z = standard(bm25) + standard(cosine)
    weight = factor(span(cosine, mean, sigma))
    found: dict[str, Scores] = {"bm25": bm25, "vector": cosine, "rrf": by_rank(bm25) + by_rank(cosine), "z_score": z}
    for name, cosines in (("", cosine), (" + feedback", moved)):
        relative = standard(bm25) + standard(cosines)
        for rule, times in (("", 1.0), (" + span", weight)):
            absolute = bm25 + times * near(cosines, mean, sigma)
            found[f"calibrated{rule}{name}"] = absolute
            found[f"two scales{rule}{name}"] = standard(absolute) + standard(relative)
    return found


def ndcg(scores: Scores, grades: Scores, ideal: tuple[float, ...]) -> float:
    discount = 1 / np.log2(np.arange(2, K + 2))
    best = grades[np.argsort(-scores, kind="stable")[:K]]
    return float((best * discount[: len(best)]).sum() / (np.array(ideal[:K]) * discount[: len(ideal[:K])]).sum())


def with_feedback(
    at: Corpus, one: Judged, vector: NDArray[np.float32], qrels: Mapping[str, int], sigma: float
) -> tuple[Judged, Scores]:
    """The candidates with those that the moved query finds, and the cosines of all to it."""
    if span(one.cosine, at.mean, sigma) >= UNSURE:
        return one, one.cosine
    first = np.argsort(-(one.bm25 + near(one.cosine, at.mean, sigma)), kind="stable")[:FIRST_HITS]
    towards = vector + FEEDBACK * at.vectors[one.places[first]].mean(axis=0)
    every = (at.vectors @ towards).astype(float)
    new = np.setdiff1d(np.argsort(-every, kind="stable")[: _judged.DEPTH], one.places)
    words, _ = at.words.bm25(Counter(DEFAULT_ANALYZER.query_tokens(one.text)))
    places = np.r_[one.places, new]
    whole = replace(
        one,
        places=places,
        bm25=np.r_[one.bm25, words[new]],
        cosine=np.r_[one.cosine, (at.vectors[new] @ vector).astype(float)],
        grades=np.r_[one.grades, [float(max(qrels.get(at.ids[place], 0), 0)) for place in new]],
    )
    return whole, every[places]


def figures(name: str) -> dict[str, float]:
    """The mean nDCG@10 of every way on a collection."""
    return _judged.kept("auto-" + name, partial(_figures, name))


def _figures(name: str) -> dict[str, float]:
    at, judged = _judged.corpus(name), own(name)
    sigma = _judged.embedder().cosine_spread or at.sigma
    vectors = _judged.embedder().embed_queries([one.text for one in judged])
    sums: dict[str, float] = {}
    for one, vector, qrels in zip(judged, vectors, _judged.labels(name)[1].values(), strict=True):
        whole, moved = with_feedback(at, one, vector, qrels, sigma)
        plain = ways(one.bm25, one.cosine, one.cosine, at.mean, sigma)
        further = ways(whole.bm25, whole.cosine, moved, at.mean, sigma)
        for way, scores in further.items():
            found = (
                ndcg(scores, whole.grades, one.ideal) if "feedback" in way else ndcg(plain[way], one.grades, one.ideal)
            )
            sums[way] = sums.get(way, 0.0) + found / len(judged)
    return sums


# ── choosing on some, reporting on others ────────────────────────────────────────────────────────────────────────────


def interval(gains: Scores) -> tuple[float, float]:
    """95 % of the means over collections drawn with replacement."""
    chance = np.random.default_rng(0)
    means = gains[chance.integers(0, len(gains), (DRAWS, len(gains)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def told(gains: Scores) -> str:
    low, high = interval(gains)
    return f"{gains.mean():+.4f} [{low:+.4f}, {high:+.4f}], worst {gains.min():+.4f}, better on {(gains > 0).sum()}"


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    table = {name: figures(name) for name in SETS}
    names = list(next(iter(table.values())))
    values = np.array([[table[one][way] for way in names] for one in SETS])
    families = np.array([family(one) for one in SETS])

    chosen = []
    for one in SETS:
        inside = values[families != family(one)].mean(axis=0)
        chosen.append(int(inside.argmax()))
    outside = values[np.arange(len(SETS)), chosen]
    z = values[:, names.index("z_score")]
    best = values[:, [names.index(way) for way in FIXED]].max(axis=1)

    print(f"{'nDCG@10':24}{'z_score':>9}{'hybrid':>9}{'now':>9}{'chosen':>9}  which, without its family")
    now, plain = values[:, names.index(NOW)], values[:, names.index("calibrated")]
    for row, one in enumerate(SETS):
        cells = "".join(f"{figure:9.4f}" for figure in (z[row], plain[row], now[row], outside[row]))
        print(f"{one:24}{cells}  {names[chosen[row]]}")
    print(f"{'mean':24}" + "".join(f"{column.mean():9.4f}" for column in (z, plain, now, outside)))
    print("\nmean over collections by way")
    for place in np.argsort(-values.mean(axis=0)):
        print(f"  {names[place]:36}{values[:, place].mean():.4f}")
    print("\ngain, mean over collections [95 % over collections]")
    print(f"  chosen outside, over z_score:    {told(outside - z)}")
    print(f"  now, over z_score:               {told(now - z)}")
    print(f"  chosen, under the best fixed:    {told(outside - best)}")
    for rule in ("span", "feedback"):
        for base in ("calibrated", "two scales"):
            others = [way for way in names if way.startswith(base) and rule in way]
            for way in others:
                without = way.replace(f" + {rule}", "")
                print(f"  {rule:8} in {way:34} {told(values[:, names.index(way)] - values[:, names.index(without)])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
