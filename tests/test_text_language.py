from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.text import detect, scripts

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How does it work?", "en"),
        ("machine learning", "en"),
        ("Zürich population", "en"),
        ("它是怎么工作的？", "zh"),
        ("傳統漢字", "zh"),
        ("GPT-4 模型怎么用", "zh"),
        ("Как это работает?", "ru"),
        ("объект", "ru"),
        ("Как работают методы wait() и notify()?", "ru"),
        ("これは日本語です", "ja"),
        ("Привіт, як справи?", "uk"),
        ("Її звати Оксана", "uk"),
        ("Ён жыве ў Мінску, а яна ў Гродне", "be"),
        ("Љубав је лепа", "sr"),
        ("Die Katze sitzt auf dem Tisch und schläft", "und"),
        ("Le chat est sur la table avec le chien", "und"),
        ("한국어", "und"),
        ("مرحبا بالعالم", "und"),
        ("Ελληνικά", "und"),
        ("", "und"),
        ("123 !?", "und"),
        ("\ud800", "und"),
    ],
)
def test_detect(text: str, language: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(
    ("collection", "language"),
    [("en_scifact", "en"), ("mh_hotpotqa", "en"), ("zh_domainrag", "zh"), ("ru_xquad", "ru"), ("zh_xquad", "zh")],
)
def test_real_queries_are_recognised(collection: str, language: str) -> None:
    path = DATA / collection / "queries.jsonl"
    if not path.is_file():
        pytest.skip(f"no development data at {path}")
    with path.open(encoding="utf-8") as lines:
        guesses = [detect(json.loads(line)["text"]) for line in lines]
    assert guesses.count(language) / len(guesses) > 0.98


def test_shares() -> None:
    assert scripts("漢 abc") == {"han": 0.5, "kana": 0.0, "cyrillic": 0.0, "latin": 0.5, "other": 0.0}
    assert scripts("שלום")["other"] == 1
    assert sum(scripts("1 2 3").values()) == 0


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_shares_sum_to_one_or_none(text: str) -> None:
    total = sum(scripts(text).values())
    assert total == 0 or abs(total - 1) < 1e-9
    assert detect(text) in {"en", "zh", "ru", "ja", "uk", "be", "sr", "und"}


@pytest.mark.parametrize(("unit", "language"), [("слово ", "ru"), ("word ", "en"), ("词", "zh"), ("\0", "und")])
def test_a_million_characters(unit: str, language: str) -> None:
    assert detect(unit * (1_000_000 // len(unit))) == language
