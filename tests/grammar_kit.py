"""The table of cases for taking questions apart and filling them in, and how they are judged.

An answer is right when a search would read it like the expected one: when it has the same tokens, in any order. Cases
marked ``held_out`` were written before the rules and not looked at while the rules were made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pointsman.retrieval.plan.transform import RuleDisambiguator, subquestions
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.types import Message, Query

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "grammar_cases.json").read_text(encoding="utf-8"))


def alike(one: str, other: str) -> bool:
    return sorted(DEFAULT_ANALYZER.query_tokens(one)) == sorted(DEFAULT_ANALYZER.query_tokens(other))


def answer(case: dict[str, Any]) -> list[str]:
    if "parts" in case:
        return list(subquestions(case["text"]))
    question, reply = case["history"]
    history = (Message("user", question), *([Message("assistant", reply)] if reply else []))
    return [RuleDisambiguator().transform(Query(case["text"], history=history)).query.text]


def right(case: dict[str, Any]) -> bool:
    given = answer(case)
    if "parts" in case:
        return len(given) == len(case["parts"]) and all(map(alike, given, case["parts"]))
    return any(alike(given[0], accepted) for accepted in case["accepted"])
