"""Everyday synonyms in English, Russian and Chinese, written for this package, in ``synonyms.txt``.

There, semicolons separate groups of words that are interchangeable in most queries. A word after ``-`` is suggested
for the others but has no synonyms itself, as it often means something else: *hard* is *difficult*, but not in a *hard
drive*. The same holds for phrases, whose words are joined by ``_``. English and Russian words are recognised in every
inflected form; all stand there in their base form.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pointsman.text.tokens import DEFAULT_ANALYZER
from pointsman.text.unicode import fold


@cache
def _groups() -> list[list[str]]:
    text = Path(__file__).with_name("synonyms.txt").read_text("utf-8")
    return [[word.replace("_", " ") for word in group.split()] for group in text.split(";")]


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for words in _groups():
        for word in words:
            if word[0] != "-" and " " not in word:
                plainest = sorted(words, key=lambda synonym: synonym[0] == "-")
                synonyms = (synonym.lstrip("-") for synonym in plainest if _key(synonym) != _key(word))
                table.setdefault(_key(word), {}).update(dict.fromkeys(synonyms))
    return {word: tuple(synonyms) for word, synonyms in table.items()}


@cache
def longest_han() -> int:
    """Return the length of the longest Chinese word with synonyms, in characters."""
    return max(len(word) for word in _table() if word > "\u2fff")


_ADJECTIVE = re.compile("(?:ый|ая|ое|ые|ого|ому|ую|ым|ых|ыми|(?:нн|ск)(?:ий|ие|ой|ом|им|их|ими))$")
_ENDING = re.compile("(?:(?P<verb>ться|ть|ти|чь)|(?P<adjective>[ыио]й)|(?P<feminine>[ая])|(?P<neuter>[оеё])|ь)$")
_PERHAPS_ADJECTIVE = re.compile("(?:ий|ие|ой|ей|им|ем|ом|их|ими|яя|юю|его|ему)$")  # новой, but also машиной


def _keys(word: str) -> tuple[str, ...]:
    """Return the keys that a word in any form may have, the likelier first: its stem; in Chinese, the word itself.

    Those of adjectives have a mark: машина and машинное, быстро and быстрый have the same stem but are different words.
    """
    key = fold(word)
    if not key.isalpha() or key > "\u2fff":
        return (key,)
    stem = "".join(DEFAULT_ANALYZER.tokens(key))
    if _ADJECTIVE.search(key):
        return (f"{stem}!",)
    return (f"{stem}!", stem) if _PERHAPS_ADJECTIVE.search(key) else (stem,)


def _key(word: str) -> str:
    """Return the key of a word in its base form, in which здание, сбой are nouns and тихий, большой adjectives."""
    keys = _keys(word)
    return keys[0] if word.endswith(("ий", "ой")) and len(word) == len(keys[-1]) + 2 else keys[-1]


def synonyms(word: str) -> tuple[str, ...]:
    """Return synonyms for a word in any inflected form; an empty tuple for most words.

    >>> synonyms("Cars"), synonyms("машины"), synonyms("电脑"), synonyms("tantivy"), synonyms("hard")
    (('automobile', 'vehicle'), ('автомобиль', 'авто'), ('计算机',), (), ())
    """
    return next((_table()[key] for key in _keys(word) if key in _table()), ())


@cache
def _base_forms() -> frozenset[str]:
    return frozenset(fold(word.lstrip("-")) for words in _groups() for word in words)


def _declension(word: str) -> str | None:
    """Return what Russian words have in common whose neighbours have the same endings; None for English and after ь."""
    ending = _ENDING.search(word)
    return ending.lastgroup if ending else None if word.isascii() else "masculine"


def replacements(word: str) -> tuple[str, ...]:
    """Return the synonyms that can stand in a sentence where a word stands.

    There are none for an inflected English or Russian word, and no Russian ones of another gender: nothing inflects
    them here.

    >>> replacements("car"), replacements("cars"), replacements("исправить"), replacements("машина")
    (('automobile', 'vehicle'), (), ('починить', 'устранить'), ())
    """
    if (form := fold(word)) < "\u2fff" and form not in _base_forms():
        return ()
    return tuple(synonym for synonym in synonyms(word) if _declension(synonym) == _declension(form))
