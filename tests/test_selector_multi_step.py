"""Requests of several steps: each sentence is looked at by itself, and none of its choices is lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.selector import DescriptionSelector, ToolMetadata

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from _request_steps import MOST, step_scores, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = [
    ToolMetadata("bookTable", "Book a table in a restaurant"),
    ToolMetadata("getWeather", "Retrieve the weather of a city"),
    ToolMetadata("sendLetter", "Send a letter to a person"),
    *(
        ToolMetadata(f"getRestaurant{letter}", f"Retrieve the {letter} of a restaurant, book and table")
        for letter in "ABCDE"
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Book a table for two. Thank you.", ["Book a table for two."]),
        ("Забронируй столик. Потом узнай погоду в Риме!", ["Забронируй столик.", "Потом узнай погоду в Риме!"]),
        ("帮我预订餐厅。然后查询罗马的天气。", ["帮我预订餐厅。", "然后查询罗马的天气。"]),
        ("", []),
        ("...", []),
    ],
)
def test_steps_are_the_sentences_that_say_something(text: str, expected: list[str]) -> None:
    assert steps(text) == expected


def test_there_is_an_end_to_the_steps() -> None:
    assert len(steps("Send a letter to Ada. " * 5_000)) == MOST


def best(scores: Sequence[float], count: int) -> set[str]:
    return {TOOLS[index].name for index in sorted(range(len(TOOLS)), key=lambda index: -scores[index])[:count]}


def test_a_step_in_few_words_is_not_lost_beside_one_in_many() -> None:
    selector = DescriptionSelector(HashingEmbedder())
    request = (
        "Book a table in the restaurant with the best table of all the restaurants that have a table. Weather of Rome."
    )
    assert "getWeather" not in best(selector.scores(TOOLS, request), 3)
    assert "getWeather" in best(step_scores(selector, TOOLS, request), 3)


def test_one_step_is_scored_as_ever() -> None:
    selector = DescriptionSelector(HashingEmbedder())
    assert list(step_scores(selector, TOOLS, "Send a letter")) == pytest.approx(selector.scores(TOOLS, "Send a letter"))


def test_examples_of_a_choice_may_be_none_or_one() -> None:
    assert ToolMetadata("a", "b", {"examples": None}).examples == ()
    assert ToolMetadata("a", "b", {"examples": "abc"}).examples == ("abc",)
