"""Features of a set of choices for `DescriptionSelector`: words, meaning and examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.selector.choices.choice_bm25 import ChoiceIndex
from pointsman.selector.choices.choice_vectors import (
    TextVectors,
    centred,
    centroids,
    check_lengths,
    cosines,
    examples_of,
)
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.selector.base_selector import ToolMetadata

_ROUNDING: Final = 1e-5

WEIGHTS: Final = (1.0, 2.0, 2.0)
"""Default weights of the rows of `ChoiceSet.features` (words, meaning, examples), before fitting."""

SCALE: Final = 0.7
"""Factor of the weighted sum before the softmax that gives the uncalibrated confidence."""


@dataclass(frozen=True, slots=True)
class LabelledExamples:
    """What was learned about choices from labelled queries, by name of the choice.

    Attributes:
        centroids: unit rows, centred on the query mean that was learned with them.
        terms: frequency of each token in the choice's queries.
    """

    centroids: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class ChoiceSet:
    """The features of choices, computed once per set of choices."""

    def __init__(
        self,
        choices: Sequence[ToolMetadata],
        vectors: TextVectors,
        query_mean: Callable[[], NDArray[np.float32]],
        most_centroids: int,
        labelled: LabelledExamples,
    ) -> None:
        """Embed new texts and index the words.

        Args:
            choices: at least one.
            vectors: the cache of embedded texts.
            query_mean: returns the mean on which queries are centred, examples too.
            most_centroids: maximum number of centroids that represent a choice's examples.
            labelled: more examples, from `DescriptionSelector.fit`.
        """
        self._query_mean, self._embedder = query_mean, vectors.embedder
        rows = vectors.of([choice.text for choice in choices], "document")
        # The mean of one choice is the choice itself: centring would leave nothing.
        self.mean = rows.mean(axis=0) if len(rows) > 1 else np.zeros_like(rows[0])
        self._description_rows = centred(rows, self.mean)
        blocks, starts, owners, row = [], [], [], 0
        terms: list[Counter[str]] = []
        for index, choice in enumerate(choices):
            counts = Counter(DEFAULT_ANALYZER.tokens(f"{choice.name} {choice.description}"))
            vectors_of_choice = []
            if examples := examples_of(choice):
                example_vectors = self.directions(vectors.of(examples, "query"))
                vectors_of_choice.append(centroids(example_vectors, most_centroids))
                for example in examples:
                    counts.update(DEFAULT_ANALYZER.query_tokens(example))
            if (labelled_centroids := labelled.centroids.get(choice.name)) is not None:
                vectors_of_choice.append(labelled_centroids)
            counts.update(labelled.terms.get(choice.name, {}))
            terms.append(counts)
            if vectors_of_choice:
                blocks += vectors_of_choice
                starts.append(row)
                owners.append(index)
                row += sum(map(len, vectors_of_choice))
        self._index = ChoiceIndex(terms)
        self._examples = np.concatenate(blocks) if blocks else None
        self._starts = np.array(starts, np.intp)
        self._owners = np.array(owners, np.intp)

    def directions(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vectors of queries in the form for `features`.

        Raises:
            ModelError: they have another length than those of the choices.
            InputError: the mean of queries has.
        """
        check_lengths(self._embedder, queries.shape[-1], len(self.mean))
        mean = self._query_mean()
        if mean.shape != self.mean.shape:
            raise InputError(f"query_mean has {len(mean)} numbers, the embedder's vectors have {len(self.mean)}")
        return centred(queries, mean)

    def features(self, query: NDArray[np.float32], tokens: Sequence[str]) -> tuple[NDArray[np.float64], float]:
        """Return how each choice stands out for a query, shape ``(3, choices)``, and the highest cosine.

        The rows are, in standard deviations from the mean over the choices: BM25 over name, description and examples;
        the centred cosine to name and description; and that to the nearest example or centroid. The last row uses the
        mean and deviation of the second, so that a choice without examples uses its description; it is all zero if no
        choice has examples. A row of equal scores is zero.

        Args:
            query: the query's vector, centred.
            tokens: the query's tokens.
        """
        features = np.zeros((3, len(self._description_rows)))
        words = self._index.scores(tokens)
        mean, deviation = _moments(words)
        features[0] = (words - mean) / deviation
        description_scores = cosines(self._description_rows, query)
        highest = float(description_scores.max())
        mean, deviation = _moments(description_scores)
        features[1] = (description_scores - mean) / deviation
        if self._examples is not None:
            nearest = np.maximum.reduceat(cosines(self._examples, query), self._starts)
            highest = max(highest, float(nearest.max()))
            features[2] = features[1]
            features[2, self._owners] = (nearest - mean) / deviation
        return features, highest


def _moments(scores: NDArray[np.floating]) -> tuple[float, float]:
    """Return mean and standard deviation; the latter is infinite if scores differ only by rounding."""
    mean = float(scores.mean())
    differences = scores - mean
    deviation = math.sqrt(float(differences @ differences) / len(differences))
    return mean, deviation if deviation > _ROUNDING else math.inf
