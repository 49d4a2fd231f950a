"""Parses a model's answer to a request for a grade or an order: returns a value, or raises a named defect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pointsman.llm.loose_json import Cut, Object, find_values, literal
from pointsman.llm.model_answers import DefectError, after_thinking
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.selection_answers import parse_selection
from pointsman.text import repair

if TYPE_CHECKING:
    from collections.abc import Iterator

HIGHEST = 10

_GRADE_KEYS = frozenset(
    (
        "grade",
        "score",
        "rating",
        "relevance",
        "value",
        "mark",
        "оценка",
        "балл",
        "баллы",
        "分数",
        "评分",
        "得分",
        "等级",
    )
)
_LONGEST = 20_000
"""Characters read: a grade or an order is shorter, and anything beyond that is not an answer."""

_BARE_NUMBER = re.compile(
    r"(?<![\d.,/-])(\d{1,4}(?:[.,]\d{1,3})?)(?:\s*(?:/|out of|of|из)\s*10\b|\s*/\s*10|\s*分(?:（满分10分）)?)?(?![\d/])"
)
_NUMBER = r"\[?\s*\d{1,4}\s*\]?"
_CHAIN = re.compile(rf"{_NUMBER}(?:\s*[>＞≻]\s*{_NUMBER})+")
_DIGITS = re.compile(r"\d+")


def read_grade(answer: str) -> float:
    """Read the grade, 0 to 10.

    Raises:
        DefectError: there is no grade, or more than one, or it is out of range.

    >>> read_grade('Sure! {"grade": 7}'), read_grade("Оценка: 8/10"), read_grade("9分")
    (7.0, 8.0, 9.0)
    """
    text = _after_thinking(answer)
    grades = {float(grade) for value in _values(text) for grade in _grades(value)}
    if not grades:
        grades = {float(match[1].replace(",", ".")) for match in _BARE_NUMBER.finditer(text)}
    if not grades:
        raise DefectError("no_grade")
    if len(grades) > 1:
        raise DefectError("ambiguous")
    grade = grades.pop()
    if not 0 <= grade <= HIGHEST:
        raise DefectError("out_of_range")
    return grade


def read_order(answer: str, count: int) -> list[int]:
    """Read an order of numbers from 1; returns places from 0, without repeats and possibly incomplete.

    Unknown numbers are dropped as long as one remains, and so are repeats. A zero means that the model counts from
    zero, so that no number can be trusted.

    Raises:
        DefectError: there is no order, or more than one.

    >>> read_order('{"ranking": [3, 1, 9, 3]}', 3), read_order("[2] > [1]", 3), read_order("排序：2、1", 2)
    ([2, 0], [1, 0], [1, 0])
    """
    text = _after_thinking(answer)
    orders = {
        tuple(numbers)
        for value in _values(text)
        if (numbers := _numbers(value)) and (len(numbers) > 1 or isinstance(value, Object))
    }
    if chains := {tuple(map(int, _DIGITS.findall(match[0]))) for match in _CHAIN.finditer(text)}:
        orders = chains  # brackets around single numbers are then not lists
    if len(orders) > 1:
        raise DefectError("ambiguous")
    numbers = list(orders.pop()) if orders else _in_words(text, count)
    if 0 in numbers:
        raise DefectError("out_of_range")
    indices = [number - 1 for number in dict.fromkeys(numbers) if 1 <= number <= count]
    if not indices:
        raise DefectError("out_of_range")
    return indices


def _in_words(text: str, count: int) -> list[int]:
    """Read an order in any other form, in the same way as answers to selectors."""
    choices = [ToolMetadata(f"passage {number}", "") for number in range(1, count + 1)]
    reading = parse_selection(text, choices, max_outputs=count)
    if reading.defect is not None:
        problems = {"empty", "out_of_range", "ambiguous", "truncated"}
        raise DefectError(reading.defect.value if reading.defect.value in problems else "no_order")
    return [selection.index + 1 for selection in reading.selections]


def _after_thinking(answer: str) -> str:
    text = after_thinking(repair(answer))
    if not text.strip():
        raise DefectError("empty")
    return text[:_LONGEST]


def _values(text: str) -> list[Object | list[Any]]:
    values = find_values(text)
    if any(value.cut for value in values):
        raise DefectError("truncated")
    return [value.value for value in values]


def _grades(value: Object | list[Any]) -> Iterator[float]:
    """Yields every grade in an object, or in objects nested in it."""
    if isinstance(value, list):
        return
    for key, inner in value.pairs:
        number = literal(inner) if isinstance(inner, str) else inner
        if isinstance(inner, Object):
            yield from _grades(inner)
        elif key.strip().lower() in _GRADE_KEYS and isinstance(number, int | float) and not isinstance(number, bool):
            yield number


def _numbers(value: Any) -> list[int]:
    """The first list of numbers in a JSON value; of objects in a list, the first number of each."""
    if isinstance(value, Object):
        lists = (_numbers(inner) for _, inner in value.pairs)
        return next((numbers for numbers in lists if numbers), [])
    if not isinstance(value, list):
        return []
    numbers = [_number(item) for item in value]
    return [number for number in numbers if number is not None]


def _number(item: Any) -> int | None:
    if isinstance(item, Object):
        return next((number for _, inner in item.pairs if (number := _number(inner)) is not None), None)
    if isinstance(item, list):
        return _number(item[0]) if len(item) == 1 else None
    if isinstance(item, str) and not isinstance(item, Cut):
        digits = _DIGITS.findall(item[:80])
        return int(digits[0]) if len(digits) == 1 and len(digits[0]) < 10 else None
    return item if isinstance(item, int) and not isinstance(item, bool) else None
