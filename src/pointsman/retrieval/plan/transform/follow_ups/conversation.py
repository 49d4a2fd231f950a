"""A conversation as a follow-up question refers to it: its last question and answer, and the names in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pointsman.text import fold
from pointsman.text.grammar import COMPARISON
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pointsman.values.types import Message

_MESSAGES = 6
"""The number of last messages examined."""

LENGTH = 1_000
"""Characters examined per message; a longer query is self-contained."""

_USERS = frozenset({"user", "human", "customer", "пользователь", "用户"})


class UnclearError(Exception):
    """A question may refer to several things, so that it is left as it is."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The user's last question and its answer."""

    question: str
    answer: str
    earlier: tuple[str, ...]

    @classmethod
    def of(cls, history: Sequence[Message]) -> Conversation:
        """Return what the last messages of a conversation say; greetings, thanks and their like say nothing."""
        recent = [message for message in history[-_MESSAGES:] if not is_courtesy(message.text)]
        earlier = tuple(message.text[:LENGTH] for message in reversed(recent) if message.role.lower() in _USERS)
        answer = last_message(recent, user=False)
        return cls(earlier[0] if earlier else "", answer, earlier[1:])

    @property
    def asks_who(self) -> bool:
        """Whether the question asks who did something, not who somebody is."""
        return WHO.match(self.question) is not None and WHO_IS.match(self.question) is None

    @property
    def names_several(self) -> bool:
        """Whether the question compares things or offers a choice, so that a pronoun may mean any of them."""
        return COMPARISON.first(self.question) is not None or _CHOICE.search(self.question) is not None


_CHOICE = late(r"(?<!\w)(?:or|или)(?!\w)|还是|、", re.IGNORECASE)


def last_message(history: Sequence[Message], *, user: bool) -> str:
    """The text of the last message, by the user or by the other side; empty if there is none."""
    return next((m.text[:LENGTH] for m in reversed(history) if (m.role.lower() in _USERS) is user), "")


QUOTED = late(
    r"«([^«»\n]{2,80})»|“([^“”\n]{2,80})”|„([^„“\n]{2,80})“|\"([^\"\n]{2,80})\"|《([^《》\n]{1,60})》|`([^`\n]{2,60})`"
)
UPPER = "A-ZÀ-ÖØ-ÞА-ЯЁ"
_NAME = late(
    rf"(?<![\w.])(?<!\d\s)[{UPPER}][\w'’.+#-]*(?<![.])"
    rf"(?:(?:\s+(?:of|and|the|de|la|da|di|von|van|der|и|фон|де|да|ди|ван)){{1,2}}(?=\s+[{UPPER}])"
    rf"|\s+[{UPPER}][\w'’.+#-]*(?<![.])|\s+\d[\w.]*(?<![.]))*"
)
_IDENTIFIER = late(
    r"(?<!\w)(?:\w+(?:_\w+)+|[a-z]+[A-Z]\w*(?:\s+\d[\w.]*|\s+[A-Z]\w*)*(?<!\.)|--[a-z][\w-]+|\w+\(\))(?!\w)"
)
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "sir", "prof"})
_NO_NAMES_TEXT = """i i'm i'll ok okay yes no please thanks sure hello hi tell compare explain describe list
    show give find click run use create add open install set go see here however also first then next there our
    your my да нет спасибо расскажи расскажите объясни объясните покажи покажите сравни сравните найди опиши
    опишите назови перечисли добавьте установите используйте запустите нажмите откройте создайте подскажи
    подскажите скажи скажите привет здравствуйте"""
NO_NAMES = frozenset(_NO_NAMES_TEXT.split()) | ENGLISH | RUSSIAN
_NUMBER_WORDS = frozenset({"one", "two", "three", "four", "five", "один", "два", "две", "три", "четыре", "пять"})
_OF_PLACES_TEXT = """river tower university mountain mount lake city street company inc corporation museum
    bridge island ocean sea republic states kingdom club team award prize church castle street park war act
    theory река башня университет гора озеро город улица компания музей мост остров океан море республика премия
    война"""
_OF_PLACES = frozenset(_OF_PLACES_TEXT.split())


_CONTRACTION = late(r"['’](?:s|re|ll|ve|d|m)$", re.IGNORECASE)
_COURTESIES_TEXT = """good great fine perfect excellent nice cool wonderful awesome maybe perhaps probably possibly
    certainly definitely absolutely actually unfortunately generally usually typically course welcome hey thank thanks
    cheers bye goodbye understood right exactly indeed alright hello hi please sure ok okay yes no morning afternoon
    evening help anything else glad возможно вероятно наверное конечно хорошо отлично ладно понятно пожалуйста благодарю
    спасибо привет здравствуйте добрый день вечер утро обычно безусловно разумеется кажется видимо да нет большое помочь
    обращайтесь ясно"""
_COURTESIES = frozenset(_COURTESIES_TEXT.split())
"""Words of greetings, thanks and hedges: at the start of a sentence they name nothing."""
_CHINESE_COURTESY = late(
    "(?:你好|您好|谢谢|多谢|感谢|不客气|不用谢|好的?|明白|知道|了解|收到|没问题|可以|嗯|再见|(?:请问)?有什么可以帮[您你]|还有(?:其他|别的)问题)[你您了啊吧的吗]?|[，,。.！!？?～~\\s]+"
)


def is_courtesy(text: str) -> bool:
    """Whether a message greets, thanks, agrees or hedges, and says nothing else.

    >>> is_courtesy("Perfect, thanks!"), is_courtesy("谢谢你！"), is_courtesy("Thanks, and the router?")
    (True, True, False)
    """
    words = [fold(_CONTRACTION.sub("", word)) for word in re.findall(r"[\w'’]+", text[:LENGTH])]
    is_polite = any(word in _COURTESIES for word in words) and all(word in _COURTESIES | NO_NAMES for word in words)
    return is_polite or (bool(text) and not _CHINESE_COURTESY.sub("", text[:LENGTH]))


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a text, and where it starts."""

    text: str
    start: int
    opens: bool  # opens a sentence, where any word is capitalised
    quoted: bool = False

    @property
    def end(self) -> int:
        """Where it ends, with its quotation marks."""
        return self.start + len(self.text) + 2 * self.quoted

    @property
    def words(self) -> list[str]:
        """The words of the name."""
        return self.text.split()


def names_in(text: str) -> list[Name]:
    """Quoted texts, capitalised names, identifiers, in the order of the text."""
    names = [Name(next(filter(None, m.groups())), m.start(), opens=False, quoted=True) for m in QUOTED.finditer(text)]
    spans = [(m.start(), m.end()) for m in QUOTED.finditer(text)]
    identifiers = [m for m in _IDENTIFIER.finditer(text) if _free(m, spans)]
    names += [Name(m[0], m.start(), opens=False) for m in identifiers]
    spans += [m.span() for m in identifiers]
    for match in _NAME.finditer(text):
        if not _free(match, spans):
            continue
        words = match[0].split()
        start = match.start()
        opens = not text[:start].rstrip() or text[:start].rstrip()[-1] in ".!?…:;\n—"
        if opens and len(words) == 1 and fold(words[0]) in _COURTESIES:
            continue
        while words and fold(_CONTRACTION.sub("", words[0])) in NO_NAMES:
            start += len(words[0]) + 1
            words, opens = words[1:], False
        name = re.sub(r"['’]s?$", "", " ".join(words))
        if fold(name) not in _NUMBER_WORDS and not name.isdecimal() and (len(name) > 1 or (name and not opens)):
            names.append(Name(name, start, opens and len(words) == 1))
    return sorted(names, key=lambda name: name.start)


def name_texts(text: str) -> list[str]:
    """The names in a text: quoted titles, runs of capitalised words, identifiers; in order, without repeats."""
    return list(dict.fromkeys(name.text for name in sure_names(names_in(text), text) or names_in(text)))


def _free(match: re.Match[str], spans: Iterable[tuple[int, int]]) -> bool:
    return not any(start <= match.start() < end for start, end in spans)


def sure_names(names: Sequence[Name], other_text: str) -> list[Name]:
    """Drops words capitalised only as the first of a sentence, unless ``other_text`` shows them to be names."""
    return [n for n in names if not n.opens or re.search(rf"[\w,;»)]\s+{re.escape(n.text)}\b", other_text)]


def choose_name(history: Conversation, fits: Callable[[Name], bool], *, lately: bool = False) -> str | None:
    """The topic of the right sort: from the user's message first, then the assistant's, then earlier ones.

    If the user asked who did something, the answer to that comes first: «Who painted the Mona Lisa?».

    Raises:
        UnclearError: a question names several.
    """
    full_text = f"{history.question}\n{history.answer}\n" + "\n".join(history.earlier)
    if history.names_several:
        raise UnclearError
    recent = (history.question, history.answer)
    asked_who = fits is is_person and WHO.match(history.question)
    for text in (*(recent[::-1] if asked_who else recent), *(() if lately else history.earlier)):
        names = names_in(text)
        sure = sure_names(names, full_text)
        if text is history.answer and not sure and WHO.match(history.question):
            # A word that opens the answer is a name unless it occurs in lower case elsewhere.
            sure = [n for n in names if not re.search(rf"(?<!\w){re.escape(n.text.lower())}", full_text)]
            sure = [n for n in sure if not (n.opens and (_ORDER.match(text, n.start) or _GENITIVE.match(text, n.end)))]
        fitting = [name for name in sure if fits(name)]
        if asked_who and text is history.answer:
            fitting = [name for name in fitting if name.text not in history.question]
        if len({name.text for name in fitting}) > 1 and text is not history.answer:
            raise UnclearError
        if fitting:
            return fitting[0].text  # an answer names its topic first
    return None


def person_or_role(history: Conversation, person: str | None, role: re.Pattern[str]) -> str | None:
    """The person who is named, else the role of somebody who is not: «the author of this book».

    Raises:
        UnclearError: the question asks who it was, and has no answer: «Who wrote Anna Karenina?».
    """
    if role_match := None if person else role.search(history.question):
        return role_match[0].strip()
    if history.asks_who and not history.answer:
        raise UnclearError
    return person


_ORDER = late(
    r"[^\W\d_]+\s+(?:the|an?|your|my|our|this|that|these|those|it|them|to|on|in|at|for|with|from|by|up|down|off|all)\b"
    r"|[а-яё]+(?:те|ть)(?!\w)",
    re.IGNORECASE,
)
"""What opens an order, which is no name though it has a capital: «Hold the button», «Нажмите кнопку»."""

_GENITIVE = late(r"\s+(?!\w+(?:л|ла|ли|лся|лась)\b)[а-яё]+")
"""What stands after a word that is no name though it has a capital: «Руководитель отдела»."""

WHO = late(r"\W*(?:who|кто)\b", re.IGNORECASE)
WHO_IS = late(r"\W*(?:who\s+(?:is|was|are|were)|who['’]s|кто\s+(?:так|был|эт|он)\w*)\b", re.IGNORECASE)


def is_name(name: Name) -> bool:
    """Whether there is a name."""
    return bool(name.text)


def is_thing(name: Name) -> bool:
    """Whether the name is not of a person."""
    return not is_person(name)


def is_person(name: Name) -> bool:
    """Whether the name looks like the name of a person."""
    words = name.words
    if name.quoted or any(fold(word) in _OF_PLACES for word in words) or re.search(r"\d|_|\(", name.text):
        return False
    if fold(words[0]).rstrip(".") in _TITLES:
        return True
    return (
        2 <= len(words) <= 4
        and not {"of", "and", "the", "и", "на"} & set(words)
        and not any(map(str.isupper, words[:1]))
    )
