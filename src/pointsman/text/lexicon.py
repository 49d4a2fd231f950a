"""Word frequencies in English and Russian, from the lists of ``wordfreq``.

A known word is not a typo. *Bake* may be absent from a manual that has *break* on every page, but is not a misspelling
of it; *goverment* occurs in any list made from the web, but is a misspelling of *government*, which is eight hundred
times as common.

Words are stored as 32-bit hashes with the frequency in a byte: five bytes per word, ready to search. Hash collisions
make a few in ten thousand unknown words look known.

Lists: R. Speer, https://github.com/rspeer/wordfreq.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self

import numpy as np
import xxhash

from pointsman.errors import InputError, UnknownNameError
from pointsman.text.unicode import fold

LEXICON_VERSION: Final = 1
"""Increased when the format or the selection of words changes; data stored under an older number is rebuilt."""

LANGUAGES: Final[tuple[str, ...]] = ("en", "ru")
_STEPS: Final = 25  # frequency steps per unit of `Lexicon.zipf`
_PLAIN: Final = re.compile(r"^(?:[a-z]+|[а-я]+)$", re.MULTILINE)
_OTHER: Final = re.compile(r"^(?!(?:[a-z]+|[а-яё]+)$).+$", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z\xdf-\xf6\xf8-\u024f]+|[а-яё]+")


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
            steps[key] = max(steps.get(key, 1), _step(zipf))
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
        place = int(np.searchsorted(self._keys, key))
        return float(self._steps[place]) / _STEPS if place < len(self) and self._keys[place] == key else 0.0

    def to_bytes(self) -> bytes:
        """Return the lexicon for `from_bytes`: all hashes in order, four bytes each, then a byte of frequency each."""
        return self._keys.tobytes() + self._steps.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the output of `to_bytes`."""
        lexicon, count = cls({}), len(data) // 5
        lexicon._keys, lexicon._steps = np.frombuffer(data, "<u4", count), np.frombuffer(data, "u1", count, 4 * count)
        return lexicon


def installed_lexicon(language: str) -> Lexicon:
    """Load an installed list; takes about a second, so store its `Lexicon.to_bytes`.

    Raises:
        UnknownNameError: there is no list for this language.
    """
    from wordfreq import get_frequency_list

    if language not in LANGUAGES:
        raise UnknownNameError("language of a word list", language, LANGUAGES)
    keys, steps = list[int](), list[int]()
    # Each part has the words of one frequency, in hundredths of its decimal logarithm; the most frequent come first.
    for number, part in enumerate(get_frequency_list(language, "large")):
        lines = "\n".join(part)
        words = _PLAIN.findall(lines.replace("ё", "е"))
        # fold() handles every word, but is ten times slower than the line above, which covers nearly all of them
        words += filter(_WORD.fullmatch, map(fold, _OTHER.findall(lines)))
        keys += map(_key, words)
        steps += [_step(9 - number / 100)] * len(words)
    get_frequency_list.cache_clear()  # it would keep 700,000 words in memory
    unique, first = np.unique(np.array(keys, "<u4"), return_index=True)
    return Lexicon.from_bytes(unique.tobytes() + np.array(steps, "u1")[first].tobytes())


def _step(zipf: float) -> int:
    return max(1, round(zipf * _STEPS))


def _key(word: str) -> int:
    return xxhash.xxh32_intdigest(word.encode())
