"""Word frequencies in English, Russian and Chinese.

A known word is not a typo. *Bake* may be absent from a manual that has *break* on every page, but is not a misspelling
of it; *goverment* occurs in any list made from the web, but is a misspelling of *government*, which is eight hundred
times as common.

Words are stored as 32-bit hashes with the frequency in a byte: five bytes per word, ready to search. Hash collisions
make a few in ten thousand unknown words look known.

Lists: R. Speer, wordfreq 3.1, https://github.com/rspeer/wordfreq, https://doi.org/10.5281/zenodo.7199437. They are
under a licence of their own, words/LICENCE.md; ``benchmarks/word_lists.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Self

import numpy as np
import xxhash

from pointsman.tools.errors import InputError, UnknownNameError

WORD_LISTS: Final = Path(__file__).parent / "words"
LANGUAGES: Final[tuple[str, ...]] = ("en", "ru", "zh")
_STEPS: Final = 25  # frequency steps per unit of `Lexicon.zipf`
_MOST_CHARACTERS: Final = 4  # of a listed Chinese word; hardly one has more


class Lexicon:
    """Words and their frequencies.

    Args:
        frequencies: folded word -> logarithmic frequency as returned by `zipf`, 0 to 10.

    Raises:
        InputError: a frequency is out of range.
    """

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        steps: dict[int, int] = {}
        for word, zipf in frequencies.items():
            if not 0 <= zipf <= 10:
                raise InputError(f"the frequency of {word!r:.80} is a number from 0 to 10, not {zipf!r:.80}")
            key = _key(word)
            steps[key] = max(steps.get(key, 1), frequency_step(zipf))
        keys = np.fromiter(steps, "<u4", len(steps))
        order = np.argsort(keys)
        self._keys, self._steps = keys[order], np.fromiter(steps.values(), "u1", len(steps))[order]

    def __len__(self) -> int:
        return len(self._keys)

    def zipf(self, word: str) -> float:
        """Return the decimal logarithm of a folded word's occurrences per billion words; 0 if it is in no list.

        >>> Lexicon({"bake": 3.92}).zipf("bake"), Lexicon({"bake": 3.92}).zipf("bakke")
        (3.92, 0.0)
        """
        key = np.uint32(_key(word))
        index = int(np.searchsorted(self._keys, key))
        return float(self._steps[index]) / _STEPS if index < len(self) and self._keys[index] == key else 0.0

    def to_bytes(self) -> bytes:
        """Return the lexicon for `from_bytes`: all hashes in order, four bytes each, then a byte of frequency each."""
        return self._keys.tobytes() + self._steps.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Read the output of `to_bytes`."""
        lexicon, count = cls({}), len(data) // 5
        lexicon._keys, lexicon._steps = np.frombuffer(data, "<u4", count), np.frombuffer(data, "u1", count, 4 * count)
        return lexicon


@cache
def installed_lexicon(language: str) -> Lexicon:
    """Return the list of a language that comes with the package; its file is mapped, not read.

    Raises:
        UnknownNameError: there is no list for this language.
    """
    if language not in LANGUAGES:
        raise UnknownNameError("language of a word list", language, LANGUAGES)
    return Lexicon.from_bytes(np.memmap(WORD_LISTS / f"{language}.bin", "u1", "r").data)


def most_frequent_words(text: str, lexicon: Lexicon) -> list[str]:
    """Split text without spaces into those listed words that are the most frequent together.

    A character that is in no listed word there is a word of its own.

    >>> most_frequent_words("什么东西属于杨建", installed_lexicon("zh"))
    ['什么', '东西', '属于', '杨', '建']
    """
    best = [(0.0, 0)]  # by end: what the words up to it lack in frequency, and where the last of them begins
    for end in range(1, len(text) + 1):
        zipfs = {start: lexicon.zipf(text[start:end]) for start in range(max(0, end - _MOST_CHARACTERS), end)}
        best.append(min((best[start][0] + 10 - z, start) for start, z in zipfs.items() if z or start == end - 1))
    words, end = list[str](), len(text)
    while end:
        words.append(text[best[end][1] : end])
        end = best[end][1]
    return words[::-1]


def frequency_step(zipf: float) -> int:
    """Return the byte that a frequency is stored as, at least 1: the value of `Lexicon.zipf` in steps of 1/25."""
    return max(1, round(zipf * _STEPS))


def _key(word: str) -> int:
    return xxhash.xxh32_intdigest(word.encode())
