"""What a request needs that asks for several things at once: each of its sentences is a step with choices of its own.

A request such as *Book a table. Then tell me the weather.* is near to no single description, and what one step says
drowns in the words of the others. So every sentence is asked for by itself, with the whole request behind it, and a
choice counts by how likely it is right for at least one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pointsman.selector.base import Choices
    from pointsman.selector.combined import ScoresChoices

MOST: Final = 12
"""Steps of one request; what it says after them counts as a part of the whole alone."""

# Chosen on every other query of Seal-Tools (dev) beside UltraTool, where steps are seldom sentences: a flat
# distribution costs little where a sentence is no step, and the whole keeps the subject of sentences without one.
_SCALE: Final = 0.3
_WHOLE: Final = 0.5
_TOKENS: Final = 2  # words that mean something; with fewer a sentence asks for nothing
_SURE: Final = 1e-9


def steps(text: str) -> list[str]:
    """The steps of a request: its sentences that say something.

    >>> steps("Book a table for two. Then tell me the weather in Rome. Thank you.")
    ['Book a table for two.', 'Then tell me the weather in Rome.']
    """
    parts = [text[start:end].strip() for start, end in sentences(text)]
    return [part for part in parts if len(DEFAULT_ANALYZER.query_tokens(part)) >= _TOKENS][:MOST]


def step_scores(selector: ScoresChoices, choices: Choices, query: Query | str) -> Sequence[float]:
    """A number for every choice that grows with how likely it is right for at least one step of a request.

    For a request of one step these are the selector's own scores.

    Args:
        selector: scores choices for a query.
        choices: what there is to select from.
        query: the request.

    Raises:
        InputError: choices or query cannot be used.
    """
    text = Query.of(query).text
    whole = np.asarray(selector.scores(choices, query), np.float64)
    parts = steps(text)
    if len(parts) < 2:
        return [float(score) for score in whole]
    missing = np.zeros(len(whole))  # logarithm of the probability that a choice is right for no step
    for part in parts:
        scores = np.asarray(selector.scores(choices, part), np.float64)
        missing += np.log(np.maximum(1 - _shares(_SCALE * (scores + _WHOLE * whole)), _SURE))
    return [float(score) for score in -missing]


def _shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The softmax of scores."""
    shares = np.exp(scores - scores.max())
    normalised: NDArray[np.float64] = shares / shares.sum()
    return normalised
