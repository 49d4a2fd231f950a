"""Splits English, Russian, Chinese and mixed text into sentences with offsets.

It uses rules, no model. One pass examines every stop and line break within a bounded window, so time is linear in the
text. If a stop is ambiguous (*the U.S. Army*; *in the U.S. The army*), the next word decides: the analyser's stop words
are taken as common sentence openers.
"""

from __future__ import annotations

import re

from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.tools.late_regex import late

_CLOSERS = "\"'”’»)\\]}」』）】》〉"
_OPENERS = "\"'“‘„«(\\[{「『（【《〈¿¡"

_CANDIDATE = late(
    rf"(?P<dense>[。！？；｡‼⁇⁈⁉।॥؟۔።]+[…！？!?。]*)(?P<dense_close>[{_CLOSERS}]*)"
    rf"|(?P<stop>[.!?…]+)(?P<close>[{_CLOSERS}]*(?:\[\d{{1,3}}\])*)"
    r"|(?P<line>[\n\r\v\f\x85\u2028\u2029]\s*)"
)
_NEXT_WORD = late(rf"(\s*)((?:[{_OPENERS}*_#>•–—-]\s?){{0,8}})(\w{{0,24}})")
_LAST = late(r"(?:^|[^\w.])([\w.]{1,24})$")
_BEFORE_LAST = late(r"(\w+)[^\w]*$")
_SPEAKER = late(r"[^。！？，；：\s]{0,6}[说道问喊叫答嚷說問]")
_DENSE_CHARACTER = late("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65\U00020000-\U0003ffff]")
_MARKER = late(
    r"\s*(?:[-*+•·▪◦‣–—]\s|(?:\d{1,3}|[A-Za-zА-Яа-я])[.)]\s|[（(]?[一二三四五六七八九十\d]{1,3}[)）、．]|#{1,6}\s|>|\||```|~~~|={3}|-{3})"
)
_STANDS_ALONE = late(
    r"\s*(?:>>> |\.\.\. |\$ |//|/\*|@\w|#include|#!|"
    r"(?:def|class|import|from|return|if|elif|else|for|while|try|except|with|fn|func|let|const|var|public|private|static)\b.*[:;{(]\s*$|"
    r"(?:import|from|return)\s+[\w.]+\s*(?:$|;|import\b)|[\w.\[\]]+\s*(?:[-+*/|&]?=|:=)\s|[\w.]+\(.*\)\s*;?\s*$|.*[{};]\s*$)"
)
_BREAK = late(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")

_WINDOW = 200
"""Characters of a line that are examined."""

_WRAPPED_WIDTH = 50
"""A shorter line was not wrapped for lack of space, so its break is meaningful."""

_WRAPPED_WIDTH_DENSE = 25
"""The same for Chinese, whose characters are twice as wide."""

_BEFORE_NAMES_TEXT = """mr mrs ms mx dr prof rev hon gen sen rep gov pres sgt capt lt col cmdr
    adm maj messrs mme mlle st mt
    ft
    e.g i.e eg ie vs cf viz al approx resp
    им ул пр-т просп пер пл обл р-н тов гр гос г-н г-жа проф акад доц св т.е т.к т.н т.о напр см ср англ нем фр лат греч
    ред сост пер изд инж ген кап полк"""
_BEFORE_NAMES = frozenset(_BEFORE_NAMES_TEXT.split())
_BEFORE_NUMBERS_TEXT = """no nos nr fig figs eq eqs p pp vol vols ch chap sec sect art para
    ver v app tab ref refs op cit
    ca c
    jan feb mar apr jun jul aug sep sept oct nov dec
    рис табл стр с гл п пп т тт ст разд вып д кв корп стр прим илл ок ч"""
_BEFORE_NUMBERS = frozenset(_BEFORE_NUMBERS_TEXT.split())
_BEFORE_CAPITALS_TEXT = "inc ltd co corp bros jr sr u.s u.k u.n e.u u.s.a d.c ph.d b.a m.a m.d b.c a.d с.ш и.о"
_BEFORE_CAPITALS = frozenset(_BEFORE_CAPITALS_TEXT.split())
_OPENING_WORDS = ENGLISH | RUSSIAN


def sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence of a text.

    The slices ``text[start:end]`` are in order, do not overlap, have no white space at either end, and together contain
    every character that is not white space. A sentence may be as long as the text: nothing is cut for length.

    Line breaks: an empty line always ends a sentence; so does a break before or after a heading, list item or line of
    code. A break inside a wrapped paragraph does not.

    >>> [text[a:b] for text in ["Dr. Wu came. 他笑了。“好！”他说。"] for a, b in sentences(text)]
    ['Dr. Wu came.', '他笑了。', '“好！”他说。']
    """
    spans: list[tuple[int, int]] = []
    start = line_start = 0
    last_stop = -1  # the last stop that did not end a sentence: a line may break after «Dr.»
    for match in _CANDIDATE.finditer(text):
        kind = match.lastgroup
        if kind == "line":
            ends = _line_ends(text, line_start, match.start(), match.end(), is_held=last_stop == match.start())
            line_start = match.end() - _indentation(text, match.start(), match.end())
        elif kind == "dense_close":
            ends = _dense_stop_ends(text, match)
        else:
            ends = _stop_ends(text, match, start)
        if ends:
            _append(spans, text, start, match.end())
            start = match.end()
        else:
            last_stop = match.end()
    _append(spans, text, start, len(text))
    return spans


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    segment = text[start:end]
    bare = segment.strip()
    if bare:
        start += len(segment) - len(segment.lstrip())
        spans.append((start, start + len(bare)))


def _dense_stop_ends(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at 。！？； and its closing marks."""
    close, stop = match["dense_close"], match["dense"]
    if close and stop[-1] in "！？!?":
        # “好！”他说: the speaker belongs to the quote; （真的吗？）: an aside does not end the sentence around it.
        if _SPEAKER.match(text, match.end()):
            return False
        return close[-1] not in ")）]】"
    return True


def _stop_ends(text: str, match: re.Match[str], start: int) -> bool:
    """Whether a sentence ends at one of ``. ! ? …`` and its closing marks."""
    following = _NEXT_WORD.match(text, match.end())
    space, opening, word = following.groups() if following else ("", "", "")
    stop, close = match["stop"], match["close"]
    if not word and not opening and following and following.end() == len(text):
        return True
    if not space:
        return _ends_without_space(text, match, opening + word)
    if word and word[0].islower():
        in_speech = close or any(dash in opening for dash in "–—-")
        return stop[-1] in "!?" and not in_speech
    if stop != "." or not word:
        return True
    return _period_ends(text, match, start, word)


def _ends_without_space(text: str, match: re.Match[str], following: str) -> bool:
    """Whether a stop without a space after it counts: only next to a script without spaces (``AI.我``, ``Да?「``)."""
    if not following or not _DENSE_CHARACTER.match(following[0]):
        return False
    previous = text[match.start() - 1 : match.start()]
    if match["stop"][0] == "…":
        return bool(match["close"])
    if match["stop"] == ".":
        return previous.isalpha() or previous in "\"'”’)"
    return True


def _period_ends(text: str, match: re.Match[str], start: int, word: str) -> bool:
    """Whether a sentence ends at a single period, given that a number or capitalised word follows."""
    window = text[max(start, match.start() - 25) : match.start()]
    last = _LAST.search(window)
    if last is None:
        return True
    token = last[1].lower()
    preceding = window[: last.start(1)]
    if word[0].isdigit():
        return token not in _BEFORE_NUMBERS and token not in _BEFORE_NAMES and token != "г"  # noqa: S105
    opens = word.lower().replace("ё", "е") in _OPENING_WORDS
    return token not in _BEFORE_NAMES and _ends_before_capital(last[1], preceding, opens=opens)


def _ends_before_capital(token: str, preceding: str, *, opens: bool) -> bool:
    """Whether ``token`` and a period end a sentence before a capital; ``opens``: the next word is a common opener."""
    lower = token.lower()
    if lower in _BEFORE_CAPITALS:
        return opens
    if lower == "г":
        # «в 1990 г. Потом …», but «г. Москва»
        return preceding.rstrip()[-1:].isdigit()
    if lower.isdigit():
        # «3. Next item»: a list number, not a sentence
        return bool(preceding.strip())
    if len(lower.replace(".", "")) == 1 and lower.isalpha():
        return _letter_ends(token, preceding, opens=opens)
    # «и т.д. Потом» ends, «J.R.R. Tolkien» does not
    initials = "." in lower and all(len(letter) == 1 for letter in lower.split("."))
    return not initials or opens or token.islower()


def _letter_ends(letter: str, preceding: str, *, opens: bool) -> bool:
    """Whether one letter and a period end a sentence: *vitamin C. The* does, *J. Tolkien* does not."""
    previous = _BEFORE_LAST.search(preceding)
    if letter.islower():
        # «и т. д. Потом»: the second letter of a pair; otherwise an item or an abbreviation
        return previous is not None and len(previous[1]) == 1 and preceding.rstrip().endswith(".")
    return opens and previous is not None


def _indentation(text: str, start: int, end: int) -> int:
    """Return the number of characters after the last line break in the white space ``text[start:end]``."""
    gap = text[start:end]
    return len(gap) - 1 - max(gap.rfind(mark) for mark in "\n\r\v\f\x85\u2028\u2029")


def _line_ends(text: str, line_start: int, line_end: int, following: int, *, is_held: bool) -> bool:
    """Whether the break at ``line_end`` ends a sentence; ``following`` is where the text continues."""
    gap = text[line_end : min(following, line_end + _WINDOW)]
    if following >= len(text) or len(_BREAK.findall(gap)) > 1 or "\u2029" in gap or "\f" in gap:
        return True
    line = text[line_start : min(line_end, line_start + _WINDOW)]
    next_line = _BREAK.split(text[following : following + _WINDOW], maxsplit=1)[0]
    if line.lstrip()[:1] in {"#", "|"} or any(map(_STANDS_ALONE.match, (line, next_line))) or _MARKER.match(next_line):
        return True
    if _indentation(text, line_end, following) - (len(line) - len(line.lstrip())) >= 4:
        return True
    first, last = text[following], text[line_end - 1 : line_end]
    if is_held or first.islower() or last in ",，、(（-—":
        return False
    dense = _DENSE_CHARACTER.match(last) or _DENSE_CHARACTER.match(first)
    return line_end - line_start < (_WRAPPED_WIDTH_DENSE if dense else _WRAPPED_WIDTH)
