"""Slips of the pen: how far two words are apart, and which words are near one."""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PREFIX = 7
"""The number of letters of a word that are indexed; slips after them are found too, as the beginning is equal."""


SHORTEST = 4
"""The minimum length of a word to correct, in letters."""


LONG = 8
"""The minimum length of a word with two slips, in letters."""


CYRILLIC = re.compile("[А-Яа-яЁё]+")


_RUSSIAN = "абвгдежзийклмнопрстуфхцчшщъыьэюя"


_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю")


_MASK = (1 << 64) - 1


_FACTOR = 0x9E3779B97F4A7C15


class Neighbours:
    """An index of words by the hashes of their beginnings with letters deleted."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._lengths = np.fromiter(map(len, words), np.uint8, len(words))
        keys: list[NDArray[np.uint32]] = []
        owners: list[NDArray[np.uint32]] = []
        prefixes = np.minimum(self._lengths, _PREFIX)
        for length in range(SHORTEST, _PREFIX + 1):
            (rows,) = np.nonzero(prefixes == length)
            if not len(rows):
                continue
            letters = "".join(words[row][:length] for row in rows)
            codes = np.frombuffer(letters.encode("utf-32-le"), np.uint32).reshape(-1, length).astype(np.uint64)
            # Two slips are looked for from eight letters on, so what they lead to has six.
            for positions in _positions(length, 2 if length >= LONG - 2 else 1):
                hashes = np.zeros(len(rows), np.uint64)
                for column in positions:
                    hashes = (hashes + codes[:, column] + np.uint64(1)) * np.uint64(_FACTOR)
                    hashes ^= hashes >> np.uint64(29)
                keys.append((hashes >> np.uint64(32)).astype(np.uint32))
                owners.append(rows.astype(np.uint32))
        all_keys = np.concatenate(keys) if keys else np.empty(0, np.uint32)
        order = np.argsort(all_keys, kind="stable")
        self._keys = all_keys[order]
        self._owners = np.concatenate(owners)[order] if owners else np.empty(0, np.uint32)

    def to_arrays(self) -> list[NDArray[Any]]:
        """Return the index without its words."""
        return [self._keys, self._owners]

    @classmethod
    def from_arrays(cls, words: list[str], arrays: Sequence[NDArray[Any]]) -> Neighbours:
        """Return the index of these words whose `to_arrays` returned these."""
        index = cls([])
        index._words, index._lengths = words, np.fromiter(map(len, words), np.uint8, len(words))
        index._keys, index._owners = arrays
        if len(index._keys) != len(index._owners) or int(index._owners.max(initial=0)) >= max(len(words), 1):
            raise ValueError("the index is of other words")
        return index

    def near(self, word: str, slips: int) -> list[str]:
        """Return all words within ``slips`` of the word, and some others of similar length; sorted."""
        prefix = word[:_PREFIX]
        hashes = np.array([_hash(prefix, positions) for positions in _positions(len(prefix), slips)], np.uint32)
        starts = np.searchsorted(self._keys, hashes, "left")
        ends = np.searchsorted(self._keys, hashes, "right")
        owner_lists = [self._owners[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True) if a < b]
        if not owner_lists:
            return []
        owners = np.concatenate(owner_lists)
        is_near = np.abs(self._lengths[owners].astype(np.int16) - len(word)) <= slips
        return [self._words[owner] for owner in np.unique(owners[is_near]).tolist()]


@lru_cache(maxsize=64)
def _positions(length: int, deleted: int) -> tuple[tuple[int, ...], ...]:
    """Return the remaining positions for every way to delete at most so many of so many."""
    return tuple(
        positions
        for count in range(length, length - deleted - 1, -1)
        for positions in itertools.combinations(range(length), count)
    )


def _hash(letters: str, positions: tuple[int, ...]) -> int:
    value = 0
    for position in positions:
        value = ((value + ord(letters[position]) + 1) * _FACTOR) & _MASK
        value ^= value >> 29
    return value >> 32


def slip_cost(word: str, candidate: str, limit: int) -> float | None:
    """Return the number of slips between two words, likely ones a little cheaper; None if there are too many."""
    start, end, other_end = 0, len(word), len(candidate)
    while start < end and start < other_end and word[start] == candidate[start]:
        start += 1
    while end > start and other_end > start and word[end - 1] == candidate[other_end - 1]:
        end, other_end = end - 1, other_end - 1
    wrong, right = word[start:end], candidate[start:other_end]
    if len(wrong) <= 1 >= len(right) or (len(wrong) == 2 and wrong[::-1] == right):
        return 1.0 - _likely(word, start, wrong, right)
    # Two slips are believed where letters were swapped or doubled; else it is another word.
    if limit < 2 or set(word) != set(candidate) or _letters_apart(word, candidate) > 2:
        return None
    return _alignment(wrong, right, limit)


def one_slip_away(word: str) -> set[str]:
    """Return all strings one slip away: a letter dropped, added or replaced, or two swapped."""
    letters = _RUSSIAN if is_cyrillic(word) else string.ascii_lowercase
    splits = [(word[:index], word[index:]) for index in range(len(word) + 1)]
    variants = {a + b[1:] for a, b in splits if b} | {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    variants |= {a + letter + b for a, b in splits for letter in letters}
    variants |= {a + letter + b[1:] for a, b in splits if b for letter in letters}
    return variants - {word}


def _likely(word: str, start: int, wrong: str, right: str) -> float:
    """Return the discount of a slip that is more likely than others."""
    if len(wrong) == len(right) == 2:
        return 0.3  # swapped
    if len(wrong) == len(right) == 1:
        return 0.2 if _are_adjacent_keys(wrong, right) else 0.0
    letter = wrong or right
    # A letter doubled, or a double one written once.
    return 0.3 if letter in {word[start - 1 : start], word[start + len(wrong) : start + len(wrong) + 1]} else 0.1


def _letters_apart(first: str, second: str) -> int:
    """Return the number of letters, with repeats, that only one of the words has."""
    first_letters, second_letters = Counter(first), Counter(second)
    return (first_letters - second_letters).total() + (second_letters - first_letters).total()


def _are_adjacent_keys(first: str, second: str) -> bool:
    """Whether two letters are neighbours on a keyboard."""
    return any(first in row and second in row and abs(row.index(first) - row.index(second)) == 1 for row in _ROWS)


def _alignment(first: str, second: str, limit: int) -> int | None:
    """Return the optimal string alignment distance; None if it is above ``limit``."""
    previous: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        older, previous, row = previous, row, [i] + [0] * len(second)
        for j, target in enumerate(second, 1):
            row[j] = min(row[j - 1] + 1, previous[j] + 1, previous[j - 1] + (letter != target))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == target:
                row[j] = min(row[j], older[j - 2] + 1)
        if min(row) > limit and min(previous) > limit:
            return None
    return row[-1] if row[-1] <= limit else None


def is_cyrillic(word: str) -> bool:
    """Whether a word begins with Cyrillic letters."""
    return bool(CYRILLIC.match(word))
