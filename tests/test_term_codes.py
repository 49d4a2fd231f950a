"""The counts of a document's terms, in codes and spelled."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from pointsman import Document
from pointsman.store.local.keyword import term_codes
from pointsman.store.local.keyword.term_codes import MOST_CODES, TermCodes
from scores_kit import WITHIN, check, random_work
from store_kit import add, opened, sound

WORDS = [f"{stem}{end}" for stem in ("tram", "сигнал", "信号", "a", "é") for end in ("", "way", "1", "я", "号")]


def texts(count: int, seed: int = 1) -> list[list[str]]:
    chance = random.Random(seed)
    return [
        [*chance.choices(WORDS, range(1, len(WORDS) + 1), k=chance.randrange(40)), f"rare{number}"]
        for number in range(count)
    ]


@pytest.fixture
def learns_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_codes, "_LEARNT_FROM", 20)


@pytest.mark.usefixtures("learns_early")
def test_counts_are_those_of_the_tokens_before_and_after_terms_have_codes() -> None:
    documents = texts(100)
    codes = TermCodes()
    contents = [codes.encode(tokens) for tokens in documents]
    assert len(codes) > len(WORDS) * 0.9
    terms = [*WORDS, "rare7", "tra", "way", "no"]
    expected = [[Counter(tokens)[term] for tokens in documents] for term in terms]
    assert codes.counts(terms, contents).tolist() == expected
    assert TermCodes(codes.content).counts(terms, contents).tolist() == expected
    assert len(b"".join(contents[50:])) < len(b"".join(contents[:50])) * 0.7


def test_there_are_no_more_codes_than_two_bytes_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_codes, "_LEARNT_FROM", 3)
    codes, tokens = TermCodes(), [f"t{number}" for number in range(MOST_CODES + 100)]
    contents = [codes.encode(tokens) for _ in range(5)]
    assert len(codes) == MOST_CODES
    assert codes.counts([tokens[0], tokens[MOST_CODES - 1], tokens[-1], "t"], contents[3:]).tolist() == [[1, 1]] * 3 + [
        [0, 0]
    ]


def test_terms_are_learnt_of_few_long_documents_at_the_document_that_brings_enough_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(term_codes, "_LEARNT_TERMS", 50)
    codes, learnt_at = TermCodes(), list[int]()
    for number in range(12):  # five terms of each document are new, five are in all
        codes.encode([f"all{each}" for each in range(5)] + [f"own{number}-{each}" for each in range(5)])
        learnt_at += [number] if len(codes) else []
    assert learnt_at[0] == 8  # 5 + 9 * 5 terms, though 90 were given
    assert codes.content.decode().split("\n") == [f"all{each}" for each in range(5)]


@pytest.mark.usefixtures("learns_early")
def test_scores_are_those_of_the_formula_whoever_learnt_the_codes(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as first:
        for live, queries in random_work(first, 1, 12):
            with closing(opened(tmp_path)) as second:  # writes with codes that the first one does not know yet
                extra_document = Document("seconds", "rail signal signal whistle", {"number": 1})
                add(second, [extra_document])
                live["seconds"] = extra_document
            first.refresh()
            assert max(check(first, live, query) for query in queries) < WITHIN
            first.delete(["seconds"])
        codes = first.keyword.query("rail")._snapshot.codes
        assert len(codes) > 10
        sound(first)
        first.rebuild()
        sound(first)
