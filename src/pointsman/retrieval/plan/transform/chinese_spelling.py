"""Corrects Chinese typos, which are other real characters: by those of the same sound that the documents have there.

A character may be a typo if no document has it beside either neighbour, and it is in no listed word. One that sounds
alike replaces it if it makes a listed word, and documents have it beside each neighbour that is no function word, or if
they have all pairs of any three characters that hold it. Tones make no difference, nor sounds that accents confuse (zh
and z, n and l, in and ing). Such a correction is never sure: the text is searched as written as well. What only looks
alike is not corrected.
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
    from collections.abc import Callable, Iterable, Mapping, Sequence

_BESIDE_ANY: Final = frozenset(
    "的了是在有不和与及或我你他她它这那谁哪几何某每第各就也都很着得地所被把让给对从到个为吗呢吧啊呀么啥多少什样一二三四五六七八九十"
)
"""Characters that stand beside any other, so that it tells nothing that no document has them there."""

_MOST_SUSPECTS: Final = 4
"""A text with more characters that no document has there is about something else."""


def chinese_changes(text: str, count: Callable[[Sequence[str]], Sequence[int]]) -> list[Change]:
    """Return the probable typos of a text, and what each should be, in the order of the text.

    Args:
        text: the text.
        count: how many documents have each of these strings of two or three characters, or its rarest pair; it is asked
            twice at most.
    """
    indices = [index for index in range(len(text)) if text[index] not in _BESIDE_ANY and not _frequency(text, index)]
    pairs = {index: _substrings(text, index, 2) for index in indices}
    telling = [index for index in indices if any(_BESIDE_ANY.isdisjoint(pair) for pair in pairs[index])]
    counts = _counts(pairs.values(), count)
    suspects = [index for index in telling if not any(counts[pair] for pair in pairs[index])]
    if not 0 < len(suspects) <= _MOST_SUSPECTS:
        return []
    corrected = {
        (index, new): text[:index] + new + text[index + 1 :]
        for index in suspects
        for new in _alike(text[index]) - _BESIDE_ANY
    }
    substrings = {change: [_substrings(corrected[change], change[0], n) for n in (2, 3)] for change in corrected}
    counts = _counts((strings for both in substrings.values() for strings in both), count)
    candidates: list[tuple[int, float, int, int, str]] = []
    for (index, new), (new_pairs, triples) in substrings.items():
        frequencies = [counts[triple] for triple in triples if counts[triple]]
        listed = _frequency(corrected[index, new], index)
        has_all = len(frequencies) == len(triples) or (
            listed and all(counts[pair] for pair in new_pairs if _BESIDE_ANY.isdisjoint(pair))
        )
        if frequencies and has_all:
            candidates.append((len(frequencies), listed, max(frequencies), index, new))
    changes: list[Change] = []
    for *_, index, new in sorted(candidates, reverse=True):
        if all(abs(index - change.start) > 1 for change in changes):  # of two beside each other, one is wrong
            changes.append(Change(index, index + 1, text[index], new, sure=False))
    return sorted(changes)


def _counts(groups: Iterable[Sequence[str]], count: Callable[[Sequence[str]], Sequence[int]]) -> Mapping[str, int]:
    strings = sorted({string for group in groups for string in group})
    return dict(zip(strings, count(strings), strict=True)) if strings else {}


def _substrings(text: str, index: int, length: int) -> list[str]:
    """Return the strings of so many Chinese characters that hold the one at a place."""
    strings = (text[start : start + length] for start in range(max(0, index + 1 - length), index + 1))
    return [string for string in strings if len(string) == length and HAN_RUN.fullmatch(string)]


def _frequency(text: str, index: int) -> float:
    """Return that of the most frequent listed word of two to four characters that holds the one at a place, or 0."""
    words = (word for length in (2, 3, 4) for word in _substrings(text, index, length))
    return max(map(installed_lexicon("zh").zipf, words), default=0.0)


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
