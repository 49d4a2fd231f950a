"""`RuleSelector` and the rules it comes with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.predefined_rules import keyword_match_rule, query_length_rule, semantic_query_rule
from pointsman.selector.rule_selector import Rule, RuleSelector
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

VECTOR = ToolMetadata("vector_search", "Semantic similarity search using vector embeddings")
KEYWORD = ToolMetadata("keyword_search", "Exact keyword matching using BM25")
CHOICES = [VECTOR, KEYWORD]
SHIPPED_RULES: list[Rule] = [keyword_match_rule, semantic_query_rule]


@pytest.mark.parametrize(
    ("query", "index", "reason"),
    [
        ("What is machine learning?", 0, "Rule score: 10.00"),
        ("Find exact term: neural network", 1, "Rule score: 10.00"),
        ("Почему небо голубое?", 0, "Rule score: 10.00"),
        ("найди точное совпадение", 1, "Rule score: 10.00"),
        ("什么是机器学习", 0, "Rule score: 10.00"),
        ("精确匹配“神经网络”", 1, "Rule score: 10.00"),
    ],
)
def test_the_shipped_rules_decide_in_three_languages(query: str, index: int, reason: str) -> None:
    result = RuleSelector(SHIPPED_RULES).select(CHOICES, query)
    assert (result.ind, result.reason, result.fallback) == (index, reason, None)
    assert result.confidence == 1.0


@pytest.mark.parametrize("rule", [keyword_match_rule, semantic_query_rule])
@pytest.mark.parametrize(
    "query",
    [
        *("somewhat odd", "whatsoever", "showing shows", "a terminal illness", "determine it", "inexact", "anyhow"),
        *("что-то не так", "кое-что новое", "потому что нельзя", "так как поздно", "никак", "неточность", "терминал"),
        *("技术语言", "因为何时出发", "比如何时", "不好意思"),
        *("", " ", "\x00\ud800"),
    ],
)
def test_cues_inside_other_words_are_no_cues(rule: Rule, query: str) -> None:
    assert [rule(Query(query), choice) for choice in CHOICES] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("rule", "query"),
    [
        *((semantic_query_rule, query) for query in ("What's up", "HOW TO", "explained", "что такое ИИ", "Объясните")),
        *((semantic_query_rule, query) for query in ("怎麼安裝", "如何使用", "这是什么意思")),
        *((keyword_match_rule, query) for query in ("the exact-match operator", "ключевые слова", "關鍵詞", "术语表")),
    ],
)
def test_cues_in_other_forms_are_found(rule: Rule, query: str) -> None:
    assert sum(rule(Query(query), choice) for choice in CHOICES) == 10.0


@pytest.mark.parametrize(
    ("choice", "for_words"),
    [
        (ToolMetadata("KeywordSearch", ""), True),
        (ToolMetadata("s", "Полнотекстовый поиск"), True),
        (ToolMetadata("s", "поиск по ключевым словам"), True),
        (ToolMetadata("s", "全文检索"), True),
        (ToolMetadata("s", "Поиск по векторам"), False),
        (ToolMetadata("s", "семантический поиск"), False),
        (ToolMetadata("s", "语义检索"), False),
    ],
)
def test_choices_say_what_they_are_for(choice: ToolMetadata, for_words: bool) -> None:
    assert keyword_match_rule(Query("exact"), choice) == (10.0 if for_words else 0.0)
    assert semantic_query_rule(Query("why"), choice) == (0.0 if for_words else 10.0)


@pytest.mark.parametrize(
    ("query", "short"),
    [
        ("neural network", True),
        ("one two three four", True),
        ("one two three four five", False),
        ("история одного города", True),
        ("кто написал роман о войне и мире", False),
        ("机器学习", True),
        ("我想知道北京明天的天气怎么样", False),
    ],
)
def test_length_counts_words_in_every_language(query: str, short: bool) -> None:
    assert query_length_rule(Query(query), KEYWORD) == (5.0 if short else 0.0)
    assert query_length_rule(Query(query), VECTOR) == (0.0 if short else 5.0)


def test_rules_add_up_and_ties_go_to_the_first() -> None:
    def first_rule(_: Query, choice: ToolMetadata) -> float:
        return 1.5 if choice.name in "bc" else 0.0

    def two(_: Query, choice: ToolMetadata) -> float:
        return 2.0 if choice.name == "b" else 2

    result = RuleSelector([first_rule, two]).select(["a", "b", "c"], "x")
    assert (result.ind, result.reason) == (1, "Rule score: 3.50")
    assert result.selections[0].score == 3.5
    assert result.confidence == pytest.approx(3.5 / 9)
    assert asyncio.run(RuleSelector([first_rule, two]).aselect(["a", "b", "c"], "x")) == result


def test_that_no_rule_applies_is_visible() -> None:
    result = RuleSelector(SHIPPED_RULES).select(CHOICES, "weather")
    assert (result.ind, result.reason, result.confidence) == (0, "Rule score: 0.00", 0.0)
    assert result.fallback is not None
    assert "no rule" in result.fallback.why
    abstention = RuleSelector(SHIPPED_RULES, allow_abstain=True).select(CHOICES, "weather")
    assert abstention.abstained


def test_a_rule_that_fails_is_named() -> None:
    def broken_rule(_: Query, __: ToolMetadata) -> float:
        raise KeyError("gone")

    def infinite_rule(_: Query, __: ToolMetadata) -> float:
        return float("nan")

    with pytest.raises(InputError, match=r"'broken_rule' failed on choice 'vector_search': KeyError") as error_info:
        RuleSelector([broken_rule]).select(CHOICES, "x")
    assert isinstance(error_info.value.__cause__, KeyError)
    with pytest.raises(InputError, match="'infinite_rule' gave"):
        RuleSelector([infinite_rule]).select(CHOICES, "x")


@pytest.mark.parametrize("rules", [[], keyword_match_rule, ["rule"]])
def test_what_are_no_rules_is_refused(rules: list[Rule]) -> None:
    with pytest.raises(InputError, match="rule"):
        RuleSelector(rules)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_best_sum_wins_whatever_the_order_of_rules(tables: list[list[float]]) -> None:
    def rule(table: list[float]) -> Callable[[Query, ToolMetadata], float]:
        return lambda _, choice: table[int(choice.name)]

    result = RuleSelector([rule(table) for table in tables]).select(["0", "1", "2"], "x")
    assert result == RuleSelector([rule(table) for table in reversed(tables)]).select(["0", "1", "2"], "x")
    scores = RuleSelector([rule(table) for table in tables]).scores(["0", "1", "2"], "x")
    assert scores[result.ind] == max(scores)
    assert scores.index(max(scores)) == result.ind
    assert 0 <= (result.confidence or 0) <= 1


def test_a_megabyte_is_no_trouble() -> None:
    assert RuleSelector([*SHIPPED_RULES, query_length_rule]).select(CHOICES, "что " * 250_000).ind == 0
