"""In-memory BM25 over a few choices: built once per set of choices, microseconds per query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_K1 = 1.2
_B = 0.75


class ChoiceIndex:
    """Computes the BM25 scores of choices for the tokens of a query.

    Lucene's form: ``idf · tf / (tf + k1 · (1 - b + b · length / mean))`` summed over the query's tokens, with
    ``idf = ln(1 + (n - df + 0.5) / (df + 0.5))``; Robertson and Zaragoza, "The probabilistic relevance framework",
    2009, https://doi.org/10.1561/1500000019. All weights are precomputed, so a query only adds them up.

    >>> index = ChoiceIndex([Counter(["weather", "rain"]), Counter(["music", "play", "song"])])
    >>> [round(float(score), 3) for score in index.scores(["rain", "rain", "snow"])]
    [0.686, 0.0]
    """

    def __init__(self, terms: Sequence[Mapping[str, int]]) -> None:
        """Index the terms of each choice with their frequencies."""
        self._size = len(terms)
        lengths = np.array([sum(counts.values()) for counts in terms], np.float64)
        mean = lengths.mean() if lengths.any() else 1.0
        norms = _K1 * (1 - _B + _B * lengths / mean)
        choices_of_term: dict[str, list[int]] = {}
        for choice, counts in enumerate(terms):
            for term in counts:
                choices_of_term.setdefault(term, []).append(choice)
        self._postings: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]] = {}
        for term, choices in choices_of_term.items():
            indices = np.array(choices, np.intp)
            counts_ = np.array([terms[choice][term] for choice in choices], np.float64)
            idf = float(np.log(1 + (self._size - len(indices) + 0.5) / (len(indices) + 0.5)))
            self._postings[term] = indices, idf * counts_ / (counts_ + norms[indices])

    def scores(self, tokens: Iterable[str]) -> NDArray[np.float64]:
        """Return one score per choice, shape ``(choices,)``; 0 if no token occurs."""
        scores = np.zeros(self._size)
        for token, count in Counter(tokens).items():
            if posting := self._postings.get(token):
                indices, weights = posting
                scores[indices] += count * weights
        return scores
