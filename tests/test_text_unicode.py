from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.text import fold, repair
from pointsman.text.unicode import compose, normalize, simplified, table_checksum

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))  # surrogates included


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("\ud83d\ude00", "😀"),
        ("a\ud800b", "a\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("end\ud83d", "end\ufffd"),
        ("中\udfff文", "中\ufffd文"),
    ],
)
def test_surrogates_are_joined_or_replaced(text: str, expected: str) -> None:
    assert repair(text) == expected


@given(ANY_TEXT)
def test_repaired_text_is_utf8_and_sound_text_is_untouched(text: str) -> None:
    sound = repair(text)
    sound.encode()
    assert repair(sound) is sound
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert sound is text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABC", "abc"),
        ("Straße STRASSE", "strasse strasse"),
        ("ＡＢＣ１２", "abc12"),
        ("ﬁnd", "find"),
        ("Ёлка ёж", "елка еж"),
        ("\u0435\u0308ж", "еж"),  # е and a combining diaeresis
        ("за\u0301мок", "замок"),
        ("Йогурт \u0438\u0306", "йогурт й"),
        ("їжак", "їжак"),
        ("café CAFE\u0301", "cafe cafe"),
        ("ΌΣΟΣ όσος", "οσοσ οσοσ"),
        ("İstanbul", "istanbul"),
        ("傳統漢字", "传统汉字"),
        ("简体", "简体"),
        ("so\xadft\u200d", "soft"),
        ("ｶﾞ", "ガ"),
        ("한국어", "한국어"),
        ("हिन्दी", "हिन्दी"),
        ("שָׁלוֹם", normalize("שָׁלוֹם")),
    ],
)
def test_fold(text: str, expected: str) -> None:
    assert fold(text) == expected


@given(ANY_TEXT)
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_folding_ignores_case_and_normal_form(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(text)


@given(st.text(alphabet="abcßéñЖЁйЇ漢字Ωσ ＡB", max_size=30))
def test_folding_ignores_case(text: str) -> None:
    assert fold(text.upper()) == fold(text.lower()) == fold(text)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_texts_of_ordinary_length_get_plain_nfkc(text: str) -> None:
    assert normalize(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("pair", ["\u0301\u0316", "\u0f71\u0f72", "\uff9e\u0316", "\u0344\u0316", "\u064b\u0316"])
def test_absurd_runs_of_combining_marks_are_cut(pair: str) -> None:
    # Sorted by insertion, half a million pairs would take an hour.
    assert len(normalize("a" + pair * 500_000)) < 200


def test_long_texts_keep_every_ordinary_mark() -> None:
    text = "Ве\u0301ра и\u0306 a\u0301\u0316\u0323 שָׁלוֹם हिन्दी " * 500
    assert normalize(text) == unicodedata.normalize("NFKC", text)


def test_the_table_of_characters_is_whole() -> None:
    table = simplified()
    assert len(table) > 3000
    assert all(len(a) == len(b) == 1 and b not in table for a, b in table.items())
    assert all(table[a] == b for a, b in zip("國語學習電腦", "国语学习电脑", strict=True))
    assert len(table_checksum()) == 8


@pytest.mark.parametrize(
    ("written", "folded"),
    [
        ("Łódź", "lodz"),
        ("Smørrebrød", "smorrebrod"),
        ("Đà Nẵng", "da nang"),
        ("Ægir œuvre", "aegir oeuvre"),
        ("Þórður", "thordur"),
        ("Ħal Għaxaq", "hal ghaxaq"),
        ("Diyarbakır", "diyarbakir"),
        ("Ǿrsted ǽ", "orsted ae"),
        ("Größe", "grosse"),
    ],
)
def test_letters_with_strokes_and_ligatures_are_folded(written: str, folded: str) -> None:
    assert fold(written) == fold(unicodedata.normalize("NFD", written)) == fold(folded) == folded


@given(st.text())
def test_two_forms_of_one_text_are_composed_to_one(text: str) -> None:
    assert compose(unicodedata.normalize("NFD", text)) == compose(text) == unicodedata.normalize("NFC", text)


def test_composing_a_letter_with_many_marks_takes_linear_time() -> None:
    assert len(compose("a" + "\u0323\u0301" * 64_000)) < 40
