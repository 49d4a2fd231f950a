"""The strategy that a query asks for by its look: I5, I8."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import Query
from pointsman.retrieval.plan.recommended_strategy import recommend
from pointsman.text import detect
from pointsman.tools.errors import InputError

COMPARISONS = [
    "比较X和Y的差异",
    "苹果vs香蕉",
    "Python和Java哪个比较好",
    "太阳能的优缺点",
    "兩種方法的區別",  # traditional characters
    "compare Kafka and RabbitMQ",
    "What is the DIFFERENCE between RRF and DBSF?",  # before the question mark
    "PostgreSQL versus MySQL for analytics",
    "tea vs. coffee",
    "pros and cons of nuclear power",
    "advantages and disadvantages of solar",
    "how does a llama differ from an alpaca",
    "сравни Kafka и RabbitMQ",
    "сравнительный анализ двух подходов",
    "в чём разница между TCP и UDP",
    "чем отличается кот от кошки",
    "отличия договора от контракта",
    "плюсы и минусы электромобилей",
]
QUESTIONS = [
    "什么是环保设备?",
    "什么是环保设备？",
    "什么是环保设备",
    "天空为什么是蓝色的",
    "请问这台机器怎么用",
    "今天的会议取消了吗",
    "为什么比较器需要两个输入端",  # a comparator compares nothing here
    "why is the sky blue",
    "Red wine with fish?",
    "really ?!",
    '"is that so?"',
    "In which year did the line open",
    "is it safe to eat snow",
    "doesn't it rust in the rain",
    "how\x00to oil a switch",
    "is\x00it safe to eat snow",
    "почему небо голубое",
    "В каком году открыли линию",
    "можно ли есть снег",
    "а где это",
    "небо голубое？",
]
SHORT = [
    "",
    " \n",
    "\x00\x01",
    "!!!",
    "дата создания",
    "环保设备",
    "环保设备维护",
    "railway signal lamp works",  # four words
    "vsync",
    "кот в шляпе",
    "state-of-the-art well-known don't",  # joined words are words
    "Whatnot shop opening hours",  # no "what"
]
OTHER_QUERIES = [
    "annual report of the railway company for shareholders",
    "railway signal lamp works yard",  # five words
    "环保设备维护手册",  # eight characters are five words
    "电影 How to Train Your Dragon 的票房统计数据汇总",  # opens with a noun
    "somewhat different approach to indexing large documents",  # neither "what" nor a comparison
    "the incomparable indifferent vsync of an old monitor",
    "Will Smith filmography and awards since 1990",  # a name, not a question
    "环保设备的维护和管理方法手册第二版",
    "比较好吃的餐厅推荐名单以及地址",  # merely "rather"
    "对比度调节方法以及显示器亮度设置指南",  # contrast
    "哪吒之魔童降世票房统计数据汇总表",
    "無論如何都要完成的任務清單以及時間表",
    "дифференциальные уравнения второго порядка с частными производными",
    "что касается налогов, новый закон вступил в силу вчера",
    "отличный ресторан недалеко от вокзала с террасой",
]
CASES = (
    [(query, "decomposition") for query in COMPARISONS]
    + [(query, "hyde") for query in QUESTIONS]
    + [(query, "multi_query") for query in SHORT]
    + [(query, "hybrid") for query in OTHER_QUERIES]
)


@pytest.mark.parametrize(("query", "strategy"), CASES)
def test_the_rules_in_their_order(query: str, strategy: str) -> None:
    assert recommend(query).strategy == strategy
    assert recommend(Query(query)) == recommend(query)


def test_the_seeds_example() -> None:
    recommendation = recommend("什么是环保设备?")
    assert (recommendation.strategy, recommendation.confidence) == ("hyde", 0.85)
    assert recommendation.alternatives[:2] == (("hybrid", 0.75), ("multi_query", 0.7))
    answer = json.loads(json.dumps(recommendation.to_dict()))
    assert list(answer) == ["recommended_strategy", "confidence", "reason", "alternatives"]
    assert answer["alternatives"][0] == {"strategy": "hybrid", "confidence": 0.75}
    assert "问号结尾" in answer["reason"]


@pytest.mark.parametrize(
    ("query", "cue"),
    [
        ("tea vs. coffee", "vs"),
        ("比较X和Y的差异", "比较"),
        ("плюсы и минусы электромобилей", "плюсы и минусы"),
        ("why is the sky blue", "why"),
        ("天空为什么是蓝色的", "为什么"),
        ("почему небо голубое", "почему"),
        ("railway signal", "2"),
    ],
)
def test_the_reason_names_the_cue_in_the_language_of_the_query(query: str, cue: str) -> None:
    reason = recommend(query).reason
    assert cue in reason
    assert detect(reason) == detect(query)


@pytest.mark.parametrize(
    ("query", "available", "strategy", "passed_over"),
    [
        ("why is the sky blue", {"hybrid", "multi_query", "bm25"}, "hybrid", ["hyde"]),
        ("why is the sky blue", {"multi_query", "bm25"}, "multi_query", ["hyde", "hybrid"]),
        ("why is the sky blue", {"bm25"}, "bm25", ["hyde", "hybrid", "multi_query", "vector"]),
        ("tea vs. coffee", {"hybrid"}, "hybrid", ["decomposition"]),
        ("railway signal", {"bm25", "vector"}, "bm25", ["multi_query", "hybrid"]),
        ("почему небо голубое", {"hybrid"}, "hybrid", ["hyde"]),
        ("什么是环保设备?", ["hybrid"], "hybrid", ["hyde"]),
        ("why is the sky blue", {"mine", "other"}, "mine", ["hyde", "hybrid"]),
    ],
)
def test_what_cannot_be_used_is_never_chosen_and_the_reason_says_so(
    query: str, available: set[str], strategy: str, passed_over: list[str]
) -> None:
    recommendation = recommend(query, available, why_not={"hyde": "no model"})
    assert recommendation.strategy == strategy
    assert all(name in recommendation.reason for name in [*passed_over, strategy])
    assert ("no model" in recommendation.reason) == ("hyde" in passed_over)
    assert {name for name, _ in recommendation.alternatives} <= set(available) - {strategy}
    assert recommendation.confidence < recommend(query).confidence


@given(st.text(max_size=60), st.sets(st.sampled_from(["hyde", "hybrid", "bm25", "multi_query", "mine"]), min_size=1))
def test_any_text_gets_an_available_strategy_always_the_same(query: str, available: set[str]) -> None:
    recommendation = recommend(query, available)
    assert recommendation == recommend(query, sorted(available))
    assert recommendation.strategy in available
    sure = [recommendation.confidence, *(confidence for _, confidence in recommendation.alternatives)]
    assert sure == sorted(sure, reverse=True)
    assert all(0 <= confidence <= 1 for confidence in sure)
    assert recommendation.strategy not in dict(recommendation.alternatives)
    assert recommendation.reason.isprintable()


@pytest.mark.parametrize(
    "unit",
    ["a", "a ", "比较", "好", "?", "' ", "-", "а ли ", "_", "in ", "\x00", "a-", "é", "и ", "in in", "! ", "什", "? a"],
)
def test_a_long_text_is_decided_too(unit: str) -> None:
    assert recommend(unit * (200_000 // len(unit))).strategy  # in quadratic time this would run for many minutes


@pytest.mark.parametrize("available", [(), set(), "hybrid"])
def test_nothing_available_is_an_error(available: object) -> None:
    with pytest.raises(InputError, match="available"):
        recommend("why", available)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="str"):
        recommend(3)  # type: ignore[arg-type]
