"""Combined selectors: a weighted sum, a vote, and a random baseline."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio

from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    as_selector,
)
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from pointsman.values.types import Query

log = logging.getLogger(__name__)

_COUNT_SHOWN: Final = 3


@runtime_checkable
class ScoresChoices(Protocol):
    """Protocol of selectors that score every choice; `HybridSelector` adds up such scores."""

    def scores(self, choices: Choices, query: Query | str) -> Sequence[float]:
        """Return one finite number per choice, in the order of the choices; higher is better."""
        ...


class HybridSelector(BaseSelector):
    """Selects by the weighted sum of two selectors' scores over all choices.

    Each part's scores are scaled to 0…1 over the choices, so that cosines and points can be added; a part whose scores
    are all equal adds nothing. A part that has no ``scores`` gives 1 to the choices that it selects, and 0 to the
    others. If both parts have the same best choice, it wins. Ties go to the first.

    ``confidence`` is the lead of the best sum over the second, as a share of the weights: 1 if both parts give
    everything to one choice and nothing to the others. It is not a probability.
    """

    def __init__(
        self,
        embedding_selector: ScoresChoices | BaseSelector,
        rule_selector: ScoresChoices | BaseSelector,
        embedding_weight: float = 0.7,
        rule_weight: float = 0.3,
    ) -> None:
        """Combine any two selectors.

        Raises:
            InputError: a part is not a selector, a weight is negative or not finite, or both are 0.
        """
        self.embedding_selector, self.rule_selector = (
            selector if isinstance(selector, ScoresChoices) else as_selector(selector)
            for selector in (embedding_selector, rule_selector)
        )
        self.embedding_weight, self.rule_weight = _weights([embedding_weight, rule_weight], 2)

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """Return the weighted sum for every choice; so a hybrid can be part of another one."""
        return self._sums(*self._raw(choices, query))

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Select the choice with the highest sum.

        Raises:
            InputError: choices or query are invalid, or a part did not return one finite score per choice.
        """
        embedding, rule = self._raw(choices, query)
        sums = self._sums(embedding, rule)
        # If all parts with a weight agree, so do the sums, except for rounding.
        weighted_scores = ((embedding, self.embedding_weight), (rule, self.rule_weight))
        bests = {_first_highest(scores) for scores, weight in weighted_scores if weight}
        best = bests.pop() if len(bests) == 1 else _first_highest(sums)
        second_best = max((value for index, value in enumerate(sums) if index != best), default=0.0)
        confidence = max(0.0, sums[best] - second_best) / (self.embedding_weight + self.rule_weight)
        reason = (
            f"Hybrid score: {sums[best]:.4f} "
            f"(embedding: {embedding[best]:.4f}, weight {self.embedding_weight:g}; "
            f"rule: {rule[best]:.2f}, weight {self.rule_weight:g})"
        )
        return SelectorResult([SingleSelection(best, reason, sums[best])], confidence)

    def _raw(self, choices: Choices, query: Query | str) -> tuple[list[float], list[float]]:
        embedding, rule = (
            _finite(selector, _scores(selector, choices, query), len(choices))
            for selector in (self.embedding_selector, self.rule_selector)
        )
        return embedding, rule

    def _sums(self, embedding: list[float], rule: list[float]) -> list[float]:
        pairs = zip(_stretch(embedding), _stretch(rule), strict=True)
        return [
            self.embedding_weight * embedding_score + self.rule_weight * rule_score
            for embedding_score, rule_score in pairs
        ]


class EnsembleSelector(BaseSelector):
    """Lets selectors vote.

    Every selection is a vote with its selector's weight; abstaining is a vote for no choice, and wins only with more
    votes than any choice. Ties go to the higher sum of the scores of the votes, then to the first; a score that is not
    finite counts as 0. A selector that raises has no vote: the error is logged, and the result's ``fallback`` names the
    selector and its error. One that did not decide itself (its result has a ``fallback``) counts only if no other
    selector did.

    ``confidence`` is the winner's share of the votes: the agreement of the selectors, not their accuracy.
    """

    def __init__(self, selectors: Sequence[BaseSelector], weights: Sequence[float] | None = None) -> None:
        """Set the voters.

        Args:
            selectors: at least one.
            weights: one per selector, finite and not negative, not all 0; by default 1 each. A selector with weight 0
                is not called.

        Raises:
            InputError: there is no selector, an item is not a selector, or the weights are invalid.
        """
        if isinstance(selectors, BaseSelector) or not selectors:
            raise InputError(f"selectors are a list of at least one selector, not {selectors!r:.80}")
        shares = _weights([1.0] * len(selectors) if weights is None else weights, len(selectors))
        self.selectors = tuple(map(as_selector, selectors))
        self.weights = tuple(shares)
        self.allow_abstain = any(getattr(selector, "allow_abstain", False) for selector in selectors)
        self._voters = [pair for pair in zip(self.selectors, self.weights, strict=True) if pair[1] > 0]

    async def aselect(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Call all selectors concurrently, synchronous ones in worker threads, and count the votes.

        Raises:
            ModelError: every selector failed; the message names each with its error, and the cause contains all errors.
        """
        outcomes: dict[int, SelectorResult | Exception] = {}

        async def ask(index: int, selector: BaseSelector) -> None:
            try:
                outcomes[index] = await selector.aselect(choices, query)
            except Exception as error:  # noqa: BLE001  (logged, in the result, or raised)
                outcomes[index] = error

        async with anyio.create_task_group() as tasks:
            for voter_index, (selector, _) in enumerate(self._voters):
                tasks.start_soon(ask, voter_index, selector)
        return self._count([outcomes[voter_index] for voter_index in range(len(self._voters))])

    def _count(self, outcomes: Sequence[SelectorResult | Exception]) -> SelectorResult:
        decisions, fallbacks, errors, troubles = [], [], [], []
        for (selector, weight), outcome in zip(self._voters, outcomes, strict=True):
            name = type(selector).__name__
            if isinstance(outcome, Exception):
                errors.append(outcome)
                troubles.append(f"{name}: {type(outcome).__name__}: {outcome}")
                log.warning("%s failed and has no vote: %s: %s", name, type(outcome).__name__, outcome)
            elif outcome.fallback is not None:
                fallbacks.append((outcome, weight))
                troubles.append(f"{name}: {outcome.fallback.why}")
            else:
                decisions.append((outcome, weight))
        if len(errors) == len(outcomes):
            raise ModelError(f"all {len(errors)} selectors failed: {'; '.join(troubles)}") from ExceptionGroup(
                "selectors of an ensemble", errors
            )
        votes = decisions or fallbacks
        fallback = Fallback("; ".join(troubles), f"the votes of {len(votes)} of {len(self.selectors)} selectors")
        return self._winner(votes, fallback if troubles else None)

    def _winner(self, results: list[tuple[SelectorResult, float]], fallback: Fallback | None) -> SelectorResult:
        votes: dict[int, list[float]] = {}
        scores: dict[int, list[float]] = {}
        weight_of_abstentions = math.fsum(weight for result, weight in results if result.abstained)
        for result, weight in results:
            for selection in result.selections:
                votes.setdefault(selection.index, []).append(weight)
                scores.setdefault(selection.index, []).append(_finite_or_zero(selection.score))
        total = math.fsum(weight for _, weight in results)
        if not votes or weight_of_abstentions > max(map(math.fsum, votes.values())):
            return SelectorResult((), weight_of_abstentions / total, fallback)
        best = max(sorted(votes), key=lambda index: (math.fsum(votes[index]), math.fsum(scores[index])))
        reason = f"Voted by {len(votes[best])}/{len(self.selectors)} selectors"
        selection = SingleSelection(best, reason, math.fsum(votes[best]))
        return SelectorResult([selection], min(1.0, math.fsum(votes[best]) / total), fallback)


class RandomSelector(BaseSelector):
    """Selects at random: the baseline that every other selector must beat. ``confidence`` is 1 / number of choices."""

    def __init__(self, seed: int | None = None) -> None:
        """With a ``seed``, the sequence of selections is reproducible."""
        self._random = random.Random(seed)  # noqa: S311  (not used for security)

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:  # noqa: ARG002
        """Select any choice with equal probability."""
        index = self._random.randrange(len(choices))
        return SelectorResult([SingleSelection(index, "Randomly selected")], 1 / len(choices))


def _finite_or_zero(score: float | None) -> float:
    """Return a score that can break a tie; NaN and infinity, which are invalid scores, become 0."""
    return score if score is not None and math.isfinite(score) else 0.0


def _first_highest(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def _stretch(scores: Sequence[float]) -> list[float]:
    """Scale scores to 0…1; all 0 if they are equal.

    >>> _stretch([8.0, 6.0, 7.0])
    [1.0, 0.0, 0.5]
    """
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]


def _scores(selector: ScoresChoices | BaseSelector, choices: Choices, query: Query | str) -> Sequence[float]:
    if isinstance(selector, ScoresChoices):
        return selector.scores(choices, query)
    chosen_indexes = selector.select(choices, query).inds
    return [float(index in chosen_indexes) for index in range(len(choices))]


def _finite(selector: object, scores: Sequence[float], count: int) -> list[float]:
    numbers = [float(score) for score in scores]
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        listing = ", ".join(map(str, numbers[:_COUNT_SHOWN]))
        raise InputError(
            f"{type(selector).__name__}.scores gave [{listing}…] for {count} choices; one finite number each"
        )
    return numbers


def _weights(weights: Sequence[float], count: int) -> list[float]:
    if len(weights) != count:
        raise InputError(f"there are {count} selectors and {len(weights)} weights; give one weight each")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (0 <= weight < math.inf):
            raise InputError(f"a weight is a finite number from 0 up, not {weight!r}")
    if not any(weights):
        raise InputError("all weights are 0; give at least one that is not")
    return [float(weight) for weight in weights]
