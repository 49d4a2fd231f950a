"""BM25 as every store computes it: the terms of a query, what a term weighs, and the formula."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pointsman.text import query_tokens
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

K1: Final = 1.2
"""How soon further occurrences of a word stop counting, unless set."""
B: Final = 0.75
"""How much the length of a document counts, 0 to 1, unless set."""

MOST_TERMS: Final = 512
"""The number of different terms of a query that are searched."""


def query_terms(text: str) -> dict[str, int]:
    """Return the distinct tokens of a query with their counts; only the first 512, so that a pasted page stays cheap.

    >>> query_terms("signal lamp, signals")
    {'signal': 2, 'lamp': 1}
    """
    counts = Counter(query_tokens(text))
    return dict(itertools.islice(counts.items(), MOST_TERMS))


def rarest(words: Sequence[str], count: Callable[[list[str]], Mapping[str, int]]) -> list[int]:
    """Return in how many documents the rarest token of each word is; 0 for a word without tokens.

    Args:
        words: the words.
        count: returns in how many documents each of some tokens is; those in none may be left out.
    """
    tokens = [list(query_terms(word)) for word in words]
    distinct = sorted({token for word_tokens in tokens for token in word_tokens})
    counts = count(distinct) if distinct else {}
    return [min((counts.get(token, 0) for token in word_tokens), default=0) for word_tokens in tokens]


def check_constants(k1: float, b: float) -> None:
    """Check the constants of the formula.

    Raises:
        InputError: one is out of range.
    """
    if not (math.isfinite(k1) and k1 >= 0):
        raise InputError(f"bm25_k1 is a number from 0 up, not {k1!r}")
    if not 0 <= b <= 1:
        raise InputError(f"bm25_b is a number from 0 to 1, not {b!r}")


def idf(documents: int, holding: int) -> float:
    """Return Lucene's idf of a word that ``holding`` of N documents contain: ln(1 + (N - n + 1/2) / (n + 1/2)).

    >>> round(idf(10, 1), 3), round(idf(10, 0), 3)
    (1.992, 3.091)
    """
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


class BM25(NamedTuple):
    """The formula of Robertson and Zaragoza (2009) with Lucene's `idf` and without the factor k1 + 1.

    A word that occurs ``n`` times in a document adds ``weight * n / (n + norm)``; its weight is its idf times its count
    in the query.

    Attributes:
        mean: the mean length of a document, in words.
        k1: term frequency saturation.
        b: length normalisation.

    >>> import numpy as np
    >>> BM25(mean=100).scores([2.0], np.array([[3, 0]]), [100, 50]).round(3).tolist()
    [1.429, 0.0]
    """

    mean: float
    k1: float = K1
    b: float = B

    def norms(self, lengths: NDArray[Any]) -> NDArray[np.float64]:
        """Return what the length of each document adds to the counts of its words."""
        norms: NDArray[np.float64] = self.k1 * (1 - self.b + self.b * lengths / self.mean)
        return norms

    def scores(
        self, weights: Sequence[float], counts: NDArray[np.int64], lengths: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Score documents.

        Args:
            weights: of each word.
            counts: how often each document contains each word: a row for each word, a column for each document.
            lengths: of each document, in words.
        """
        import numpy as np

        weighted = np.asarray(weights, np.float64)[:, None] * counts
        denominators = counts + self.norms(np.asarray(lengths, np.int64))
        scores = np.zeros(len(lengths))
        for row in np.divide(weighted, denominators, out=np.zeros(counts.shape), where=counts > 0):
            scores += row  # word by word: `sum` adds in another order, so that equal documents would differ
        return scores
