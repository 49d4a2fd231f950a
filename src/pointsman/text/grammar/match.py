"""Finds the words of the grammar in a text: as whole words, never as parts of other words.

From left to right, the longest known entry is taken at each position. English and Russian entries match at word
boundaries. Chinese has no word boundaries, so the lists also contain *lookalikes*, longer words that include an entry
(吗啡, 司法解释): a lookalike is taken as a whole, and nothing in it matches. *что-то* is one as well.

Notation: entries are separated by white space; ``_`` joins the words of a phrase; ``(a,b,)`` means either, or nothing.
A Chinese entry that ends in ``~`` does not match if the next syllable makes a longer noun of it, as in 解释器 and
准确率. ``^`` before or ``$`` after an entry limits it to the beginning or end of a clause.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from pointsman.tools.late_regex import late

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, for a character class."""

HAN_RUN = late(f"[{HAN}]+")
WORD = late(f"[^\\W{HAN}]+")
"""A word of a language with spaces, even inside Chinese text."""

HAN_PER_WORD = 1.6
"""Average characters per word of Chinese text."""

_COMPOUND = late(f"[^\\W{HAN}]+(?:['’\\-][^\\W{HAN}]+)*+")
_GAP = late(r"[\s\-'’&]*")
_ALTERNATIVES = late(r"\(([^()]*)\)")
_SIMPLIFIED_FORMS = dict(
    zip(
        "麼甚誰為兩種區別異優點較對幾個會請問說釋確術語關鍵詞義頻錄時間這與從讓給講談紹訴嗎處長遠進於還後開發動現見過們樣歲總嚴機圖聽寫參諧聲轉許業東車電網標達選擇勝負強難實際當溫緩飽調潛內線職無論題貴舊輕廣導",
        "么什谁为两种区别异优点较对几个会请问说释确术语关键词义频录时间这与从让给讲谈绍诉吗处长远进于还后开发动现见过们样岁总严机图听写参谐声转许业东车电网标达选择胜负强难实际当温缓饱调潜内线职无论题贵旧轻广导",
        strict=True,
    )
)
"""Traditional characters in the lists; `pointsman.text.fold` has all, but its table is slower to load."""

_FORMS = {"ё": "е", **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}, **_SIMPLIFIED_FORMS}
_FORMS_AND_CONTROLS = late(rf"[\x00-\x1f\x7f-\x9f{''.join(_FORMS)}]")
_NOUNS = {
    "率": "",
    "者": "",
    "器": "官材具",
    "性": "能别格质",
    "度": "量",
    "学": "生校习者院期",
    "化": "学工石妆肥",
    "员": "工",
    "权": "力利重限益",
    "力": "学量",
    "法": "律院国规官语人",
    "型": "号",
    "级": "别",
    "论": "文坛述",
}
"""Syllables that turn the preceding word into a noun, unless one of these follows: 解释器, but 解释 器官."""


class Match(NamedTuple):
    """A match: the word as in the plain text, and its position."""

    text: str
    start: int
    end: int


def plain(text: str) -> str:
    """Normalise a text like the lists, keeping its length: lower case, е for ё, simplified characters, plain spaces.

    >>> plain("ЁЖ？為什麼")
    'еж?为什么'
    """
    # U+0130 is the only character with two characters in lower case.
    return _FORMS_AND_CONTROLS.sub(lambda match: _FORMS.get(match[0], " "), text.replace("\u0130", "i").lower())


def count(text: str) -> int:
    """Count the words of a text; Chinese words count as 1.6 characters, the average.

    >>> count("state-of-the-art search"), count("环保设备维护")
    (2, 4)
    """
    han = 0 if text.isascii() else sum(map(len, HAN_RUN.findall(text)))
    return len(_COMPOUND.findall(text)) + math.ceil(han / HAN_PER_WORD)


class Words:
    """A list of words and phrases to find in texts.

    >>> words = Words("what vs pros(_and,)_cons 解释~ 吗", "吗啡")
    >>> [found.text for text in ("somewhat", "苹果vs香蕉", "pros & cons") for found in words.all(text)]
    ['vs', 'pros & cons']
    >>> [found.text for text in ("请解释一下", "解释器", "吗啡", "好吗") for found in words.all(text)]
    ['解释', '吗']
    """

    def __init__(self, entries: str, lookalikes: str = "") -> None:
        """Keep the lists, which are parsed on first use; see the module for the notation."""
        self._entries, self._lookalikes = entries, lookalikes

    @cached_property
    def _terms_with_spaces(self) -> dict[str, list[tuple[tuple[str, ...], bool]]]:
        """By first word: the words of an entry and whether it counts, longest first."""
        table: dict[str, list[tuple[tuple[str, ...], bool]]] = {}
        for entry, counts in self._read():
            if not HAN_RUN.search(entry):
                words = tuple(WORD.findall(entry.replace("_", " ")))
                table.setdefault(words[0], []).append((words, counts))
        return {word: sorted(phrases, key=lambda phrase: -len(phrase[0])) for word, phrases in table.items()}

    @cached_property
    def _han(self) -> dict[str, list[tuple[str, bool, str]]]:
        """By first character: an entry, whether it counts, and the marks at its ends, longest first."""
        table: dict[str, list[tuple[str, bool, str]]] = {}
        for entry, counts in self._read():
            if HAN_RUN.search(entry):
                bare = entry.strip("^~$")
                table.setdefault(bare[0], []).append((bare, counts, entry.replace(bare, "")))
        return {first: sorted(forms, key=lambda form: -len(form[0])) for first, forms in table.items()}

    def _read(self) -> Iterator[tuple[str, bool]]:
        for source, counts in ((self._entries, True), (self._lookalikes, False)):
            for entry in expanded(source):
                yield entry, counts

    def __contains__(self, word: str) -> bool:
        """Whether a word is an entry."""
        return any(counts and len(words) == 1 for words, counts in self._terms_with_spaces.get(word, ()))

    def first(self, text: str) -> Match | None:
        """Return the first entry in a plain text; None if there is none."""
        match, han = next(self._in_spaced(text), None), next(self._in_han(text), None)
        return match if han is None or (match is not None and match.start < han.start) else han

    def all(self, text: str) -> list[Match]:
        """Return every entry in a plain text, in order."""
        return sorted([*self._in_spaced(text), *self._in_han(text)], key=lambda match: match.start)

    def _in_spaced(self, text: str) -> Iterator[Match]:
        table, words = self._terms_with_spaces, WORD.findall(text)
        if table.keys().isdisjoint(words):
            return
        spans = list(WORD.finditer(text))
        free = 0  # index of the first word not taken yet
        for index, word in enumerate(words):
            if index < free or word not in table:
                continue
            for phrase, counts in table[word]:
                if len(phrase) == 1 or tuple(words[index : index + len(phrase)]) == phrase:
                    matches = spans[index : index + len(phrase)]
                    if len(phrase) > 1 and not _is_joined(text, matches):
                        continue
                    if counts:
                        start, end = matches[0].start(), matches[-1].end()
                        yield Match(text[start:end], start, end)
                    free = index + len(phrase)
                    break

    def _in_han(self, text: str) -> Iterator[Match]:
        if text.isascii():
            return
        for run in HAN_RUN.finditer(text):
            if self._han.keys().isdisjoint(run[0]):
                continue
            index, stop = run.span()
            while index < stop:
                for form, counts, signs in self._han.get(text[index], ()):
                    end = index + len(form)
                    if not text.startswith(form, index) or (signs and not _stands(text, index, end, signs)):
                        continue
                    if "~" in signs and _makes_noun(text[end : end + 2]):
                        end += 1
                    elif counts:
                        yield Match(form, index, end)
                    index = end - 1
                    break
                index += 1


def _is_joined(text: str, words: list[re.Match[str]]) -> bool:
    """Whether only spaces and hyphens separate words."""
    return all(_GAP.fullmatch(text, first.end(), second.start()) for first, second in itertools.pairwise(words))


def _stands(text: str, start: int, end: int, signs: str) -> bool:
    """Whether an entry is where its marks require it: at the beginning or end of a clause."""
    opens = start == 0 or not text[start - 1].isalnum()
    return ("^" not in signs or opens) and ("$" not in signs or not text[end : end + 1].isalnum())


def _makes_noun(following: str) -> bool:
    """Whether the text after a verb turns it into a longer noun."""
    syllable, remainder = following[:1], following[1:]
    return syllable in _NOUNS and (not remainder or remainder not in _NOUNS[syllable])


def expanded(source: str) -> Iterator[str]:
    """Yield the entries of a list with alternatives expanded.

    >>> list(expanded("differ(,s) 哪(个,种)更"))
    ['differ', 'differs', '哪个更', '哪种更']
    """
    for entry in source.split():
        yield from _alternatives(entry)


def _alternatives(entry: str) -> Iterator[str]:
    choice = _ALTERNATIVES.search(entry)
    if choice is None:
        yield entry
        return
    for option in choice[1].split(","):
        yield from _alternatives(entry[: choice.start()] + option + entry[choice.end() :])
