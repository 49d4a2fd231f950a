"""Names in a text, by their capitals, quotation marks or spelling: titles, people, places, identifiers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pointsman.text import fold
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUOTED = late(
    r"«([^«»\n]{2,80})»|“([^“”\n]{2,80})”|„([^„“\n]{2,80})“|\"([^\"\n]{2,80})\"|《([^《》\n]{1,60})》|`([^`\n]{2,60})`"
)
_UPPER = "A-ZÀ-ÖØ-ÞА-ЯЁ"
_NAME = late(
    rf"(?<![\w.])(?<!\d\s)[{_UPPER}][\w'’.+#-]*(?<![.])"
    rf"(?:(?:\s+(?:of|and|the|de|la|da|di|von|van|der|и|фон|де|да|ди|ван)){{1,2}}(?=\s+[{_UPPER}])"
    rf"|\s+[{_UPPER}][\w'’.+#-]*(?<![.])|\s+\d[\w.]*(?<![.]))*"
)
_IDENTIFIER = late(
    r"(?<!\w)(?:\w+(?:_\w+)+|[a-z]+[A-Z]\w*(?:\s+\d[\w.]*|\s+[A-Z]\w*)*(?<!\.)|--[a-z][\w-]+|\w+\(\))(?!\w)"
)
_NO_NAMES_TEXT = """i i'm i'll ok okay yes no please thanks sure hello hi tell compare explain describe list
    show give find click run use create add open install set go see here however also first then next there our
    your my да нет спасибо расскажи расскажите объясни объясните покажи покажите сравни сравните найди опиши
    опишите назови перечисли добавьте установите используйте запустите нажмите откройте создайте подскажи
    подскажите скажи скажите привет здравствуйте"""
NO_NAMES = frozenset(_NO_NAMES_TEXT.split()) | ENGLISH | RUSSIAN
_NUMBER_WORDS = frozenset({"one", "two", "three", "four", "five", "один", "два", "две", "три", "четыре", "пять"})
CONTRACTION = late(r"['’](?:s|re|ll|ve|d|m)$", re.IGNORECASE)
_COURTESIES_TEXT = """good great fine perfect excellent nice cool wonderful awesome maybe perhaps probably possibly
    certainly definitely absolutely actually unfortunately generally usually typically course welcome hey thank thanks
    cheers bye goodbye understood right exactly indeed alright hello hi please sure ok okay yes no morning afternoon
    evening help anything else glad возможно вероятно наверное конечно хорошо отлично ладно понятно пожалуйста благодарю
    спасибо привет здравствуйте добрый день вечер утро обычно безусловно разумеется кажется видимо да нет большое помочь
    обращайтесь ясно"""
COURTESIES = frozenset(_COURTESIES_TEXT.split())
"""Words of greetings, thanks and hedges: at the start of a sentence they name nothing."""


class _Name(NamedTuple):
    """A name, and where it starts; whether it opens a sentence, where any word is capitalised."""

    start: int
    text: str
    opens: bool = False


def name_texts(text: str) -> list[str]:
    """The names in a text: quoted titles, runs of capitalised words, identifiers; in order, without repeats.

    Words that are capitalised only as the first of a sentence count where there is nothing else.
    """
    names = _names_in(text)
    sure = [name for name in names if not name.opens or re.search(rf"[\w,;»)]\s+{re.escape(name.text)}\b", text)]
    return list(dict.fromkeys(name.text for name in sure or names))


def _names_in(text: str) -> list[_Name]:
    names = [_Name(match.start(), next(filter(None, match.groups()))) for match in _QUOTED.finditer(text)]
    spans = [match.span() for match in _QUOTED.finditer(text)]
    identifiers = [match for match in _IDENTIFIER.finditer(text) if _is_free(match, spans)]
    names += [_Name(match.start(), match[0]) for match in identifiers]
    spans += [match.span() for match in identifiers]
    for match in _NAME.finditer(text):
        if not _is_free(match, spans):
            continue
        words = match[0].split()
        opens = not text[: match.start()].rstrip() or text[: match.start()].rstrip()[-1] in ".!?…:;\n—"
        if opens and len(words) == 1 and fold(words[0]) in COURTESIES:
            continue
        while words and fold(CONTRACTION.sub("", words[0])) in NO_NAMES:
            words, opens = words[1:], False
        name = re.sub(r"['’]s?$", "", " ".join(words))
        if fold(name) not in _NUMBER_WORDS and not name.isdecimal() and (len(name) > 1 or (name and not opens)):
            names.append(_Name(match.start(), name, opens and len(words) == 1))
    return sorted(names)


def _is_free(match: re.Match[str], spans: Iterable[tuple[int, int]]) -> bool:
    return not any(start <= match.start() < end for start, end in spans)
