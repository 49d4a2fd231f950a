"""Selection for requests with several steps: each sentence is scored as a step of its own.

A request such as *Book a table. Then tell me the weather.* resembles no single description, because the words of one
step hide those of the others. Each sentence is therefore scored separately, together with the whole request. The score
of a choice grows with the probability that it is right for at least one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pointsman.selector.base_selector import Choices
    from pointsman.selector.combined_selectors import ScoresChoices

MOST: Final = 12
"""The maximum number of steps of a request; later sentences count only as part of the whole request."""

# Chosen on every other query of Seal-Tools (dev) and on UltraTool, where steps are seldom sentences. A flat
# distribution costs little if a sentence is not a step; the whole request supplies a subject to sentences without one.
_SCALE: Final = 0.3
_QUERY_SHARE: Final = 0.5
_TOKENS: Final = 2  # content words; a sentence with fewer is not a step
_SURE: Final = 1e-9


def steps(text: str) -> list[str]:
    """Return the steps of a request: its sentences with enough content words, at most `MOST`.

    >>> steps("Book a table for two. Then tell me the weather in Rome. Thank you.")
    ['Book a table for two.', 'Then tell me the weather in Rome.']
    """
    sentence_texts = [text[start:end].strip() for start, end in sentences(text)]
    return [sentence for sentence in sentence_texts if len(DEFAULT_ANALYZER.query_tokens(sentence)) >= _TOKENS][:MOST]


def step_scores(selector: ScoresChoices, choices: Choices, query: Query | str) -> Sequence[float]:
    """Return a score for every choice; it grows with the probability that the choice is right for at least one step.

    For a request with one step, returns the selector's own scores.

    Args:
        selector: scores choices for a query.
        choices: the choices to score.
        query: the request.

    Raises:
        InputError: the choices or the query are invalid.
    """
    text = Query.of(query).text
    query_scores = np.asarray(selector.scores(choices, query), np.float64)
    step_texts = steps(text)
    if len(step_texts) < 2:
        return [float(score) for score in query_scores]
    missing = np.zeros(len(query_scores))  # logarithm of the probability that a choice is right for no step
    for step in step_texts:
        scores = np.asarray(selector.scores(choices, step), np.float64)
        missing += np.log(np.maximum(1 - _shares(_SCALE * (scores + _QUERY_SHARE * query_scores)), _SURE))
    return [float(score) for score in -missing]


def _shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax of scores."""
    shares = np.exp(scores - scores.max())
    probabilities: NDArray[np.float64] = shares / shares.sum()
    return probabilities
