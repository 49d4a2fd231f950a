"""How many values JSON from elsewhere may have, counted before it is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.tools.network.json_bounds import MAX_VALUES, has_too_many_values

CROWD: list[Any] = [[]] * (MAX_VALUES + 1)


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (json.dumps(CROWD), True),
        (json.dumps([CROWD[:50_000], CROWD[:50_010]]), True),
        (json.dumps({str(number): 0 for number in range(MAX_VALUES + 2)}), True),
        (json.dumps(CROWD[: MAX_VALUES // 2 - 1]), False),
        (json.dumps(['[,"{\\' * MAX_VALUES, 1]), False),
        ('"' + "," * (MAX_VALUES + 2), False),
    ],
    ids=["a list", "lists", "an object", "few", "a text", "a text without end"],
)
def test_values_are_counted_without_those_in_texts(text: str, is_refused: bool) -> None:
    assert has_too_many_values(text.encode()) is is_refused
