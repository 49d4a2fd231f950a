"""Follow-ups and comparisons in three languages: filled in or taken apart as a person would, or else left unchanged.

Each line has a language, the history (question ‖ answer; ``-`` for none), the question, what its meaning must contain
(for a comparison, one item for each part; ``=`` if it is complete or simple as it stands), and a word that must go.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pointsman.retrieval.plan.transform import RuleDisambiguator
from pointsman.retrieval.plan.transform.decompose_by_rules import subquestions
from pointsman.text import fold
from pointsman.values.types import Message, Query

Case = tuple[str, str, str, str, str]


def cases(name: str) -> list[Case]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [tuple((line + "\t\t").split("\t")[:5]) for line in lines]  # type: ignore[misc]


def outcome(case: Case) -> str:
    """Return ``right``, ``unchanged`` (nothing was done where something should be) or ``wrong``."""
    _, history, query, must, absent = case
    if history == "-":
        questions = subquestions(query)
        if must == "=" or len(questions) < 2:
            return "right" if (must == "=") == (len(questions) < 2) else "unchanged" if must != "=" else "wrong"
        items = [fold(item) for item in must.split(";")]
        fits = len(questions) == len(items) and all(
            item in fold(question) for item, question in zip(items, questions, strict=True)
        )
        return "right" if fits else "wrong"
    question, _, answer = history.partition(" ‖ ")
    messages = (Message("user", question), *([Message("assistant", answer)] if answer else []))
    text = RuleDisambiguator().transform(Query(query, history=messages)).query.text
    if text == query:
        return "right" if must == "=" else "unchanged"
    words = re.findall(r"\w+", fold(text))
    keeps_all = all(fold(item) in fold(text) for item in must.split(";"))
    drops_all = not absent or (fold(absent) not in words if absent.isascii() else fold(absent) not in fold(text))
    return "right" if must != "=" and keeps_all and drops_all else "wrong"


def shares(name: str) -> dict[str, float]:
    outcomes = [outcome(case) for case in cases(name)]
    return {kind: outcomes.count(kind) / len(outcomes) for kind in ("right", "unchanged", "wrong")}


def test_share_that_is_right() -> None:
    assert shares("follow_ups.tsv")["right"] >= 0.95, shares("follow_ups.tsv")


def test_share_of_held_out_ones_that_is_right() -> None:
    """58 of 66 (.88) and 54 of 60 (.90), by rules that were made without looking at them; most others are left alone.

    The later ones share forms with those that the rules were made for, so the first set says more.
    """
    for name, least, most_wrong in (
        ("follow_ups_held_out.tsv", 0.87, 0.031),
        ("follow_ups_held_out_later.tsv", 0.9, 0.017),
    ):
        assert shares(name)["right"] >= least, (name, shares(name))
        assert shares(name)["wrong"] <= most_wrong, (name, shares(name))


@pytest.mark.parametrize(
    ("question", "follow_up", "expected"),
    [
        ("Tell me about Annual leave", "And how many days of it?", "How many days of Annual leave?"),
        ("Что такое тариф Альфа?", "А сколько стоит?", "Сколько стоит: Что такое тариф Альфа?"),
        ("公司的电话是多少？", "那邮箱呢？", "公司的邮箱是多少？"),
        ("Как оплатить счёт?", "А отменить?", "Как отменить счёт?"),
        ("Where is the Oslo office?", "What about the Bergen office?", "Where is the Bergen office?"),
    ],
)
def test_follow_up_is_filled_in(question: str, follow_up: str, expected: str) -> None:
    query = Query(follow_up, history=(Message("user", question),))
    assert RuleDisambiguator().transform(query).query.text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A versus B", ("A", "B")),
        ("不同地区政策的差异", ()),
        ("лекарство против гриппа", ()),
        ("高铁对比飞机", ("高铁", "飞机")),
    ],
)
def test_comparison_is_taken_apart_by_its_sides_alone(text: str, expected: tuple[str, ...]) -> None:
    sides = subquestions(text)
    assert (sides if len(sides) > 1 else ()) == expected
