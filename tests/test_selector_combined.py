"""Selectors made of selectors."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import HashingEmbedder
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
)
from pointsman.selector.combined_selectors import EnsembleSelector, HybridSelector, RandomSelector, ScoresChoices
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.selector.predefined_rules import keyword_match_rule, semantic_query_rule
from pointsman.selector.rule_selector import RuleSelector
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from pointsman.values.types import Query

CHOICES = ["a", "b", "c"]
SCORES = st.lists(st.floats(-100, 100) | st.sampled_from([0.0, 1.0]), min_size=3, max_size=3)


class FixedScores:
    """Scores as they are wanted."""

    def __init__(self, *scores: float) -> None:
        self.fixed_scores = scores

    def scores(self, choices: Choices, query: Query | str) -> Sequence[float]:
        return self.fixed_scores


class Votes(BaseSelector):
    def __init__(self, *indices: int, score: float | None = None, fallback: Fallback | None = None) -> None:
        self.result = SelectorResult([SingleSelection(index, "vote", score) for index in indices], None, fallback)
        self.allow_abstain = not indices
        self.calls = 0

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        self.calls += 1
        return self.result


class AsyncVotes(BaseSelector):
    def __init__(self, index: int) -> None:
        self.index = index

    async def aselect(self, choices: Choices, query: Query | str) -> SelectorResult:
        await asyncio.sleep(0)
        return SelectorResult([SingleSelection(self.index, "vote")])


class Fails(BaseSelector):
    def __init__(self, message: str) -> None:
        self.message = message

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        raise RuntimeError(self.message)


# -- HybridSelector ----------------------------------------------------------------------------------------------------


def test_scores_of_all_choices_are_stretched_weighed_and_added() -> None:
    hybrid = HybridSelector(FixedScores(0.9, 0.8, 0.5), FixedScores(0, 10, 0))
    assert hybrid.scores(CHOICES, "q") == pytest.approx([0.7, 0.7 * 0.75 + 0.3, 0.0])
    result = hybrid.select(CHOICES, "q")
    assert result.ind == 1  # neither the weights nor the agreement of the two bests would say so
    assert result.reason == "Hybrid score: 0.8250 (embedding: 0.8000, weight 0.7; rule: 10.00, weight 0.3)"
    assert result.confidence == pytest.approx(0.125)


def test_a_part_that_finds_all_equal_has_no_opinion() -> None:
    assert HybridSelector(FixedScores(0.1, 0.2, 0.3), FixedScores(0, 0, 0)).select(CHOICES, "q").ind == 2
    assert HybridSelector(FixedScores(1, 1, 1), FixedScores(0, 0, 5)).select(CHOICES, "q").ind == 2
    assert HybridSelector(FixedScores(1, 1, 1), FixedScores(0, 0, 0)).select(CHOICES, "q").ind == 0


@settings(deadline=None)
@given(SCORES, SCORES, st.floats(0.01, 10), st.floats(0.01, 10))
def test_when_both_agree_their_choice_wins(
    first: list[float], second: list[float], weight: float, second_weight: float
) -> None:
    best = first.index(max(first))
    result = HybridSelector(FixedScores(*first), FixedScores(*second), weight, second_weight).select(CHOICES, "q")
    if second.index(max(second)) == best:
        assert result.ind == best
    assert 0 <= (result.confidence or 0) <= 1


@settings(deadline=None)
@given(SCORES, SCORES)
def test_a_weight_of_zero_removes_a_part(first: list[float], second: list[float]) -> None:
    assert HybridSelector(FixedScores(*first), FixedScores(*second), 1, 0).select(CHOICES, "q").ind == first.index(
        max(first)
    )
    assert HybridSelector(FixedScores(*first), FixedScores(*second), 0, 1).select(CHOICES, "q").ind == second.index(
        max(second)
    )


def test_the_real_parts_work_together() -> None:
    choices = [
        ToolMetadata("vector_search", "Semantic similarity search using vector embeddings"),
        ToolMetadata("keyword_search", "Exact keyword matching using BM25"),
    ]
    rules = RuleSelector([keyword_match_rule, semantic_query_rule])
    for embedding in (EmbeddingSelector(HashingEmbedder()), DescriptionSelector(HashingEmbedder())):
        hybrid = HybridSelector(embedding, rules)
        assert hybrid.select(choices, "Find the exact keyword").ind == 1
        assert asyncio.run(hybrid.aselect(choices, "Find the exact keyword")).ind == 1
        assert isinstance(hybrid, ScoresChoices)
        assert HybridSelector(hybrid, rules).select(choices, "Find the exact keyword").ind == 1


@pytest.mark.parametrize("weights", [(0, 0), (-1, 1), (math.nan, 1), (math.inf, 1), (True, 1)])
def test_weights_that_cannot_be_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="weight"):
        HybridSelector(FixedScores(1), FixedScores(1), *weights)


def test_a_part_without_scores_counts_by_what_it_selects() -> None:
    assert HybridSelector(Votes(0), Votes(1)).select(CHOICES, "q").ind == 0
    assert HybridSelector(Votes(0), Votes(1), 0.3, 0.7).select(CHOICES, "q").ind == 1
    assert HybridSelector(Votes(0), FixedScores(1, 2, 3), 0.1, 0.9).select(CHOICES, "q").ind == 2


def test_parts_that_are_no_selectors_or_have_wrong_scores_are_refused() -> None:
    with pytest.raises(InputError, match=r"a selector has select\(choices, query\), 'words' has not"):
        HybridSelector("words", FixedScores(1, 2, 3))  # type: ignore[arg-type]
    for scores in ((1, 2), (1, 2, math.nan)):
        with pytest.raises(InputError, match=r"FixedScores\.scores gave"):
            HybridSelector(FixedScores(*scores), FixedScores(1, 2, 3)).select(CHOICES, "q")


# -- EnsembleSelector --------------------------------------------------------------------------------------------------


def select_both_ways(ensemble: EnsembleSelector) -> SelectorResult:
    """The result, after seeing that both twins give it."""
    result = ensemble.select(CHOICES, "q")
    assert asyncio.run(ensemble.aselect(CHOICES, "q")) == result
    return result


def test_the_most_votes_win() -> None:
    result = select_both_ways(EnsembleSelector([Votes(1), AsyncVotes(2), Votes(2)]))
    assert (result.ind, result.reason, result.fallback) == (2, "Voted by 2/3 selectors", None)
    assert result.confidence == pytest.approx(2 / 3)


def test_weights_count() -> None:
    result = select_both_ways(EnsembleSelector([Votes(1), Votes(2), Votes(2)], weights=[3, 1, 1]))
    assert (result.ind, result.reason) == (1, "Voted by 1/3 selectors")
    assert result.confidence == pytest.approx(0.6)


def test_who_has_no_weight_is_not_asked() -> None:
    silent = Votes(1)
    assert EnsembleSelector([silent, Votes(2)], weights=[0, 1]).select(CHOICES, "q").ind == 2
    assert silent.calls == 0


def test_ties_go_to_the_higher_sum_of_scores_then_to_the_first() -> None:
    assert select_both_ways(EnsembleSelector([Votes(0, score=0.2), Votes(2, score=0.9)])).ind == 2
    assert select_both_ways(EnsembleSelector([Votes(2), Votes(0)])).ind == 0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_wins_no_tie(score: float) -> None:
    """S8: it counts as no score, whoever comes first."""
    assert select_both_ways(EnsembleSelector([Votes(0, score=0.1), Votes(1, score=score)])).ind == 0
    assert select_both_ways(EnsembleSelector([Votes(0, score=score), Votes(1, score=0.1)])).ind == 1
    assert select_both_ways(EnsembleSelector([Votes(1, score=score), Votes(0, score=-score)])).ind == 0


def test_several_selections_are_several_votes() -> None:
    result = select_both_ways(EnsembleSelector([Votes(0, 2), Votes(1, 2), Votes(1, 0), Votes(2)]))
    assert (result.ind, result.reason) == (2, "Voted by 3/4 selectors")


def test_one_failing_selector_does_not_fail_the_vote(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = select_both_ways(EnsembleSelector([Fails("no network"), Votes(1), Votes(1)]))
    assert (result.ind, result.reason, result.confidence) == (1, "Voted by 2/3 selectors", 1.0)
    assert result.fallback is not None
    assert "Fails: RuntimeError: no network" in result.fallback.why
    assert "no network" in caplog.text


def test_all_failing_raises_one_error_with_every_cause() -> None:
    ensemble = EnsembleSelector([Fails("one"), Fails("two")])
    with pytest.raises(ModelError, match=r"all 2 selectors failed: Fails: RuntimeError: one; .*two") as error_info:
        ensemble.select(CHOICES, "q")
    assert isinstance(error_info.value.__cause__, ExceptionGroup)
    assert [str(error) for error in error_info.value.__cause__.exceptions] == ["one", "two"]
    with pytest.raises(ModelError, match="all 2 selectors failed"):
        asyncio.run(ensemble.aselect(CHOICES, "q"))


def test_a_selector_that_names_a_choice_which_does_not_exist_has_failed() -> None:
    result = select_both_ways(EnsembleSelector([Votes(7), Votes(1)]))
    assert result.ind == 1
    assert result.fallback is not None


def test_who_did_not_decide_itself_counts_only_when_nobody_did() -> None:
    guess = Fallback("could not read the answer", "first")
    result = select_both_ways(EnsembleSelector([Votes(0, fallback=guess), Votes(0, fallback=guess), Votes(2)]))
    assert result.ind == 2
    assert result.fallback is not None
    assert "could not read" in result.fallback.why
    assert select_both_ways(EnsembleSelector([Votes(0, fallback=guess), Fails("x")])).ind == 0


def test_abstaining_is_a_vote_for_none() -> None:
    assert select_both_ways(EnsembleSelector([Votes(), Votes(), Votes(1)])).abstained
    assert select_both_ways(EnsembleSelector([Votes(), Votes(1)])).ind == 1
    assert select_both_ways(EnsembleSelector([Votes(), Votes(), Votes(1, 0), Votes(1)])).ind == 1


@pytest.mark.parametrize("selectors", [[], Votes(0), ["name"]])
def test_what_are_no_selectors_is_refused(selectors: list[BaseSelector]) -> None:
    with pytest.raises(InputError, match="selector"):
        EnsembleSelector(selectors)


def test_every_selector_needs_its_weight() -> None:
    with pytest.raises(InputError, match="2 selectors and 1 weights"):
        EnsembleSelector([Votes(0), Votes(1)], weights=[1])


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=7))
def test_no_choice_has_more_votes_than_the_winner(votes: list[int]) -> None:
    result = EnsembleSelector([Votes(vote) for vote in votes]).select(CHOICES, "q")
    maximum = max(map(votes.count, votes))
    assert votes.count(result.ind) == maximum
    assert result.ind == min(vote for vote in votes if votes.count(vote) == maximum)
    assert result.reason == f"Voted by {maximum}/{len(votes)} selectors"


# -- RandomSelector ----------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_sequence_and_every_choice_its_chance() -> None:
    first, second = ([RandomSelector(7).select(CHOICES, "q").ind] for _ in range(2))
    assert first == second
    selector, second_selector = RandomSelector(7), RandomSelector(7)
    sequence = [selector.select(CHOICES, "q").ind for _ in range(100)]
    assert sequence == [second_selector.select(CHOICES, "q").ind for _ in range(100)]
    assert set(sequence) == {0, 1, 2}
    assert RandomSelector().select(CHOICES, "q").reason == "Randomly selected"
    assert selector.select(CHOICES, "q").confidence == pytest.approx(1 / 3)
