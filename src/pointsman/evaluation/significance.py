"""Tests whether one ranking is better than another, or only lucky with these queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK = 8_000_000  # signs drawn at a time; limits memory


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """How two systems differ on the same queries.

    Attributes:
        difference: mean of the first minus mean of the second.
        p: two-sided p-value: the probability of a difference at least as large by chance.
    """

    difference: float
    p: float


def compare(
    first: Mapping[str, float], second: Mapping[str, float], *, permutations: int = 10_000, seed: int = 0
) -> SignificanceTest:
    """Fisher's paired randomisation test, two-sided.

    If both systems were equally good, the sign of each difference would be random; so the signs are randomised
    ``permutations`` times. See Smucker, Allan and Carterette, "A comparison of statistical significance tests for
    information retrieval evaluation", CIKM 2007, https://doi.org/10.1145/1321440.1321528.

    Args:
        first: a measure by query id, as in ``StrategyReport.per_query``.
        second: the same measure of the same queries.
        permutations: number of randomisations; the smallest possible p is 1 / (permutations + 1).
        seed: seed of the random numbers, so that equal input gives equal p.

    Raises:
        InputError: the queries differ, or there are none.

    >>> compare({"a": 1.0, "b": 0.5}, {"a": 0.5, "b": 0.5})  # one query tells nothing
    SignificanceTest(difference=0.25, p=1.0)
    """
    if first.keys() != second.keys() or not first:
        raise InputError(
            f"a paired test needs the same queries on both sides, not {len(first)} and {len(second)} of which "
            f"{len(first.keys() & second.keys())} are common"
        )
    differences = np.array([first[query] - second[query] for query in first])
    nonzero = differences[differences != 0]  # the sign of 0 does not matter
    statistic = abs(nonzero.sum())
    generator = np.random.default_rng(seed)
    extreme, remaining = 0, permutations
    while remaining:
        count = min(remaining, max(1, _BLOCK // max(len(nonzero), 1)))
        signs = generator.integers(0, 2, (count, len(nonzero)), dtype=np.int8) * np.int8(2) - np.int8(1)
        extreme += int((np.abs(signs @ nonzero) >= statistic - 1e-9).sum())  # tolerance for rounding errors of sums
        remaining -= count
    return SignificanceTest(float(differences.mean()), (extreme + 1) / (permutations + 1))
