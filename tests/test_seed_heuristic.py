"""The examples of the founding document of `router_select`: signature, patterns, routes, reasons, the agent's loop."""

from __future__ import annotations

import pytest

from pointsman import Dataset, router_select
from pointsman.selector.heuristic_route import ROUTER_SELECT_TOOL

EXAMPLES = [
    ("дата создания", "bm25", "short_or_entity_numeric"),
    ("почему небо голубое", "dense", "conversational_or_long"),
    ("новости channel:tech после:2024-01-01", "hybrid", "filters_or_mixed_signals"),
    ("кот в шляпе", "dense", "default_dense"),
]


@pytest.mark.parametrize(("query", "route", "reason"), EXAMPLES)
def test_examples(query: str, route: str, reason: str) -> None:
    assert router_select(query=query) == {"route": route, "reasons": [reason]}
    assert router_select(query) == router_select(query)


@pytest.mark.parametrize(
    ("query", "route"),
    [
        ("отчёт за 2024-01-15", "bm25"),  # a short query with a date
        ("договор 15.01.2024", "bm25"),
        ("пишет @durov", "bm25"),  # an entity
        ("https://example.org/page", "bm25"),
        ("объясни устройство двигателя", "dense"),  # conversational
        ("как работает двигатель", "dense"),
        ("устройство и принципы работы двигателя внутреннего сгорания с турбонаддувом " * 2, "dense"),  # long
        ("договор date:2024", "hybrid"),  # filters
        ("новости after:2024", "hybrid"),
        ("почему 404", "hybrid"),  # a number and a question word
    ],
)
def test_rules(query: str, route: str) -> None:
    assert router_select(query)["route"] == route


def test_further_rules_extend_the_choice() -> None:
    choice = router_select("INV-2024 почему", rules=[lambda query: ("bm25", "invoice") if "INV-" in query else None])
    assert choice == {"route": "bm25", "reasons": ["invoice"]}


@pytest.mark.parametrize(("query", "route"), [(query, route) for query, route, _ in EXAMPLES])
def test_search_takes_the_route_as_its_strategy(query: str, route: str) -> None:
    with Dataset("notes") as dataset:
        dataset.add([{"id": "sky", "text": "Почему небо голубое: рассеяние света."}, {"id": "cat", "text": "Кот."}])
        context = dataset.search(query, strategy=router_select(query)["route"], refuse=False)
    assert context.plan.strategy == {"dense": "vector"}.get(route, route)


def test_agents_are_offered_it_as_a_tool() -> None:
    function = ROUTER_SELECT_TOOL["function"]
    assert function["name"] == "router_select"
    assert function["parameters"]["required"] == ["query"]
