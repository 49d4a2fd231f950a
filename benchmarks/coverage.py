"""Whether ``search(coverage=…)`` keeps its promise, and what it costs in hits.

    python benchmarks/coverage.py [SET…]

Every ranking collection with 200 labelled questions or more (at most 600, a fixed sample): half of the questions say
how many hits hold an answer, the other half tells for how many that was true, over 40 random halves. ``fixed k`` is the
smallest number of first hits, the same for every question, that holds as many answers. Where the first hit alone holds
more than what is asked for, there is nothing to save, and coverage lies above it. Judged by the calibration that comes
with Pointsman, over the calibrated sum of both lists. With ``--real``, one half by `Workspace.calibrate` and
`Workspace.search`, the fit of relevance to the same labels included.

Collections are read as in ``_judged.py``. Exit status 1: a coverage is more than .02 too low, or more than .02 too high
with more than one hit.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence

import numpy as np

import _judged
import pointsman
import relevance
from _judged import SETS, own
from pointsman.retrieval.judge.kept_calibrations import MOST_HITS, Coverage
from pointsman.retrieval.judge.relevance import shipped

LEVELS = (0.8, 0.9)
LEAST = 200
HALVES = 40
MOST_OFF = 0.02

Pair = tuple[list[float], int | None]


def pairs_of(name: str) -> list[Pair]:
    """Of each question, the relevance of its first hits, and the place of the first answer among them."""
    both = next(one for one in shipped() if one.form == "both")
    found: list[Pair] = []
    for one in own(name):
        order = np.argsort(-(one.bm25 + 3.3 * one.cosine / 0.019), kind="stable")[:MOST_HITS]
        judged = both.judge(relevance.evidence_of(one, name), order.tolist())
        chances = list(judged.relevance)
        good = np.flatnonzero(one.grades[order] > 0)
        found.append((chances, int(good[0]) if len(good) else None))
    return found


def fixed(pairs: Sequence[Pair], share: float) -> int:
    """The smallest k that holds this share of the answers."""
    places = np.array([MOST_HITS if place is None else place for _, place in pairs])
    return next((k for k in range(1, MOST_HITS + 1) if (places < k).mean() >= share - 1e-9), MOST_HITS)


def held(pairs: Sequence[Pair], counts: Sequence[int]) -> float:
    return float(np.mean([place is not None and place < n for (_, place), n in zip(pairs, counts, strict=True)]))


def halves(name: str) -> bool:
    pairs, met, cells = pairs_of(name), True, []
    for level in LEVELS:
        rows, refused = [], 0
        for seed in range(HALVES):
            order = random.Random(seed).sample(range(len(pairs)), len(pairs))
            given = Coverage.measured([pairs[place] for place in order[: len(order) // 2]], "")
            others = [pairs[place] for place in order[len(order) // 2 :]]
            counts = [given.count(chances, level) for chances, _ in others]
            if None in counts:
                refused += 1
                continue
            numbers = [count or 0 for count in counts]
            share = held(others, numbers)
            rows.append((share, float(np.mean(numbers)), float(fixed(others, share))))
        if refused > HALVES // 2:
            cells.append(f"{level:g}: cannot be promised".ljust(44))
            continue
        share, hits, k = np.mean(rows, axis=0)
        good = share >= level - MOST_OFF and (share <= level + MOST_OFF or hits < 1.05)
        met &= bool(good)
        cells.append(
            f"{level:g}: {share:.3f} with {hits:5.2f} hits, fixed k {k:5.2f} {'' if good else 'MISSED'}".ljust(44)
        )
    print(f"{name:24}{len(pairs):5}  {'  '.join(cells)}", flush=True)
    return met


def real(name: str) -> None:
    """One half, by the library itself."""
    queries, qrels = _judged.labels(name)
    order = random.Random(0).sample(sorted(queries), len(queries))
    given, others = order[: len(order) // 2], order[len(order) // 2 :]
    with tempfile.TemporaryDirectory() as folder, pointsman.open(folder) as workspace:
        workspace.dataset("one").add(_judged.documents(name), vectors=_judged.corpus(name).vectors)
        done = workspace.calibrate("one", {id_: queries[id_] for id_ in given}, {id_: qrels[id_] for id_ in given})
        print(f"{name}: {done.reason}")
        for level in LEVELS:
            answers = {id_: workspace.search(queries[id_], 10, coverage=level) for id_ in others}
            share = np.mean([any(qrels[id_].get(hit.id, 0) > 0 for hit in one) for id_, one in answers.items()])
            hits = np.mean([len(one.hits) for one in answers.values()])
            promised = sum(one.coverage is not None or one.refused is not None for one in answers.values())
            print(
                f"  {level:g}: {share:.3f} with {hits:.2f} hits; promised for {promised} of {len(answers)}", flush=True
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--real", action="store_true", help="by Workspace.calibrate and Workspace.search; minutes")
    options = parser.parse_args()
    met = True
    for name in options.sets:
        if len(_judged.labels(name)[0]) < LEAST:
            continue
        if options.real:
            real(name)
        else:
            met &= halves(name)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
