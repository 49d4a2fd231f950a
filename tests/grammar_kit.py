"""The table of cases for taking questions apart, and how they are judged.

An answer is right when a search would read it like the expected one: when it has the same tokens, in any order. Cases
marked ``held_out`` were written before the rules and not looked at while the rules were made; of what a later question
refers to, the expected parts are those that the rules give since they no longer guess it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pointsman.retrieval.plan.transform import subquestions
from pointsman.text import DEFAULT_ANALYZER

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "grammar_cases.json").read_text(encoding="utf-8"))


def alike(text: str, expected: str) -> bool:
    return sorted(DEFAULT_ANALYZER.query_tokens(text)) == sorted(DEFAULT_ANALYZER.query_tokens(expected))


def right(case: dict[str, Any]) -> bool:
    given = subquestions(case["text"])
    return len(given) == len(case["parts"]) and all(map(alike, given, case["parts"]))
