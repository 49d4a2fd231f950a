"""BM25 as every store computes it: the terms of a query, and what a term weighs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Final

from pointsman.text import query_tokens

MOST_TERMS: Final = 512
"""The number of different terms of a query that are searched."""


def query_terms(text: str) -> dict[str, int]:
    """Return the distinct tokens of a query with their counts; only the first 512, so that a pasted page stays cheap.

    >>> query_terms("signal lamp, signals")
    {'signal': 2, 'lamp': 1}
    """
    counts = Counter(query_tokens(text))
    return dict(itertools.islice(counts.items(), MOST_TERMS))


def idf(documents: int, holding: int) -> float:
    """Return Lucene's idf of a word that ``holding`` of N documents contain: ln(1 + (N - n + 1/2) / (n + 1/2)).

    >>> round(idf(10, 1), 3), round(idf(10, 0), 3)
    (1.992, 3.091)
    """
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))
