"""Everyday synonyms in English, Russian and Chinese, written for this package, in ``synonyms.txt``.

There, semicolons separate groups of words that are interchangeable in most queries. A word after ``-`` is suggested
for the others but has no synonyms itself, as it often means something else: *hard* is *difficult*, but not in a *hard
drive*. The same holds for phrases, whose words are joined by ``_``. English and Russian words are recognised in every
inflected form and suggested in the base form, as search stems them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pointsman.text.tokens import DEFAULT_ANALYZER
from pointsman.text.unicode import fold


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for group in Path(__file__).with_name("synonyms.txt").read_text("utf-8").split(";"):
        words = [word.replace("_", " ") for word in group.split()]
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


_ADJECTIVE = re.compile("(?:н|ск)(?:ый|ий|ая|ое|ые|ие|ого|ому|ой|ом|ую|ым|им|ых|их|ыми|ими)$")


def _key(word: str) -> str:
    """Return the key shared by the inflected forms of a word: its stem; in Chinese, the word itself."""
    key = fold(word)
    if not key.isalpha() or key > "\u2fff":
        return key
    # машина and машинное have the same stem but are different words.
    return "".join(DEFAULT_ANALYZER.tokens(key)) + "!" * bool(_ADJECTIVE.search(key))


def synonyms(word: str) -> tuple[str, ...]:
    """Return synonyms for a word in any inflected form; an empty tuple for most words.

    >>> synonyms("Cars"), synonyms("машины"), synonyms("电脑"), synonyms("tantivy"), synonyms("hard")
    (('automobile', 'vehicle'), ('автомобиль', 'авто'), ('计算机',), (), ())
    """
    return _table().get(_key(word), ())
