"""Corrects Chinese typos, which are other real characters: those of the same sound that the documents have there.

A character may be a typo if no document has it beside its neighbours, and it is in no listed word there. It is replaced
by one that sounds alike if that makes a listed word that documents have, and the language takes the whole far more
readily then: by its most probable division into words, as in a noisy channel (M. Kernighan, K. Church, W. Gale,
https://aclanthology.org/C90-2036). Tones make no difference, nor sounds that accents confuse (zh and z, n and l, in and
ing). Such a correction is never sure: the text is searched as written as well. What only looks alike is not corrected.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from pointsman.text.grammar import HAN_RUN
from pointsman.text.lexicon import WORD_LISTS, installed_lexicon
from pointsman.text.spelling import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Occur = Callable[[Sequence[str]], Sequence[bool]]

_LEAST_GAIN: Final = 3.0
"""Decimal logarithm of how much more probable a correction must make the text; chosen on every second typo of
``benchmarks/chinese_typos.tsv``, with the questions of zh_cmrc2018."""

_ATTACHED: Final = 2.0
"""What it adds to that gain that documents have the corrected word beside its neighbour, or takes if they have not."""

_BESIDE_ANY: Final = frozenset(
    "的了是在有不和与及或我你他她它这那哪几何某每第各就也都很着得地所被把让给对从到个为吗呢吧啊一二三四五六七八九十"
)
"""Characters that stand beside any other, so that it tells nothing that no document has them there."""

_LONGEST_WORD: Final = 4
_LONGEST_RUN: Final = 60  # of characters; a longer one is no query
_MOST_SUSPECTS: Final = 4  # in one run
_MOST_CANDIDATES: Final = 5
_LEAST_FREQUENCY: Final = 2.0  # of a word, see `Lexicon.zipf`
_UNKNOWN: Final = -8.0  # decimal logarithm of the probability of a character that is in no list


def chinese_changes(text: str, occur: Occur) -> list[Change]:
    """Return the probable typos of a text, and what each should be, in the order of the text.

    Args:
        text: the text.
        occur: which of these pairs of characters stand in a document.
    """
    changes: list[Change] = []
    for run in HAN_RUN.finditer(text):
        written = run[0]
        if not 2 <= len(written) <= _LONGEST_RUN:
            continue
        pairs = [False, *occur([written[index : index + 2] for index in range(len(written) - 1)]), False]
        suspects = [
            index
            for index, character in enumerate(written)
            if not (pairs[index] or pairs[index + 1] or character in _BESIDE_ANY or any(_words_at(written, index)))
        ]
        replacements = [_replacement(written, index, occur) for index in suspects[:_MOST_SUSPECTS]]
        for _, index, replacement in sorted(filter(None, replacements), reverse=True):
            start = run.start() + index
            if all(abs(start - change.start) > 1 for change in changes):  # of two beside each other, one is wrong
                changes.append(Change(start, start + 1, written[index], replacement, sure=False))
    return sorted(changes)


def _words_at(text: str, index: int) -> Iterator[tuple[int, str]]:
    """Yield the listed words of two characters or more that hold the character at a place, and where they begin."""
    for length in range(2, _LONGEST_WORD + 1):
        for start in range(max(0, index - length + 1), min(index, len(text) - length) + 1):
            word = text[start : start + length]
            if installed_lexicon("zh").zipf(word) >= _LEAST_FREQUENCY:
                yield start, word


def _replacement(written: str, index: int, occur: Occur) -> tuple[float, int, str] | None:
    """Return the gain, the place and the character of the same sound that should stand there; None if none should."""
    old_probability, candidates = _probability(written), []
    for replacement in _alike(written[index]) - _BESIDE_ANY:
        text = written[:index] + replacement + written[index + 1 :]
        if any(_words_at(text, index)):
            candidates.append((_probability(text) - old_probability, replacement, text))
    for gain, replacement, text in sorted(candidates, reverse=True)[:_MOST_CANDIDATES]:
        for start, word in _words_at(text, index):
            boundary_pairs = [text[edge - 1 : edge + 1] for edge in (start, start + len(word)) if 0 < edge < len(text)]
            occurring = occur([*(word[place : place + 2] for place in range(len(word) - 1)), *boundary_pairs])
            inner_pairs, attached_pairs = occurring[: len(word) - 1], occurring[len(word) - 1 :]
            if all(inner_pairs) and gain + _ATTACHED * (2 * sum(attached_pairs) - len(attached_pairs)) >= _LEAST_GAIN:
                return gain, index, replacement
    return None


def _probability(run: str) -> float:
    """Return the decimal logarithm of the probability of the best division into words."""
    lexicon, best = installed_lexicon("zh"), [0.0]
    for end in range(1, len(run) + 1):
        starts = range(max(0, end - _LONGEST_WORD), end)
        divisions = [best[start] + zipf - 9 for start in starts if (zipf := lexicon.zipf(run[start:end]))]
        best.append(max([best[-1] + _UNKNOWN, *divisions]))
    return best[-1]


def _alike(character: str) -> set[str]:
    """Return the characters that may sound like this one."""
    by_sound, sounds_of = _sounds()
    return {other for sound in sounds_of.get(character, ()) for other in by_sound[sound]} - {character}


@cache
def _sounds() -> tuple[Mapping[str, str], Mapping[str, Sequence[str]]]:
    """Return characters by sound, and the sounds of each; sounds that accents confuse are one."""
    by_sound: defaultdict[str, str] = defaultdict(str)
    sounds_of: defaultdict[str, list[str]] = defaultdict(list)
    for line in (WORD_LISTS / "zh_sounds.txt").read_text("utf-8").splitlines():
        syllable, characters = line.split()
        sound = re.sub("(?<=[aei]n)g$", "", re.sub("^([zcs])h", r"\1", re.sub("^n", "l", syllable)))
        by_sound[sound] += characters
        for character in characters:
            sounds_of[character].append(sound)
    return by_sound, sounds_of
