"""Puts what a follow-up names in place of the only part of the earlier question that is like it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from pointsman.retrieval.plan.transform.follow_ups.conversation import UPPER, Name, names_in, sure_names
from pointsman.text import fold
from pointsman.text.grammar import QUESTION, WORD, plain
from pointsman.text.grammar.grammar_words import en
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def asks(text: str) -> bool:
    """Whether it contains a question word."""
    return any(word in QUESTION or word in _AUXILIARY for word in WORD.findall(plain(text)))


_AUXILIARY = frozenset(en.AUXILIARY.split())
_ADVERBS_OF_QUESTIONS_TEXT = """since by in not much many long often old far year then so is that does
    в с на каких пор именно так это году долго стоит стоят стоил стоила стоило"""
_ADVERBS_OF_QUESTIONS = frozenset(_ADVERBS_OF_QUESTIONS_TEXT.split())


def with_bare_question(text: str, lead: re.Pattern[str], question: str) -> str:
    """The question words of a text that consists only of them, before the question: «And since when exactly?»."""
    words = [word for word in WORD.findall(plain(lead.sub("", text))) if word != "exactly"]
    asking = any(word in QUESTION for word in words)
    if not asking or len(words) > 4 or not all(word in QUESTION or word in _ADVERBS_OF_QUESTIONS for word in words):
        return ""
    return f"{' '.join(words).capitalize()}: {question}" if question else ""


def has_content(text: str, stop: frozenset[str]) -> bool:
    """Whether it has a word that is no stop word."""
    return any(fold(word) not in stop for word in re.findall(r"[^\W\d_]{2,}", text))


def capitalised(text: str) -> str:
    """The text with a capital at its start; «iPhone» stays as it is."""
    first, *_ = text.split(maxsplit=1) or [""]
    return text if any(map(str.isupper, first)) else text[:1].upper() + text[1:]


_NUMBER = late(r"(?:(?:the|in|on|в)\s+)?(?P<number>\d[\d.]*)(?:\s+(?:one|году))?", re.IGNORECASE)


def with_other_number(topic: str, question: str) -> str | None:
    """The question with another number in place of its only one: «Who won in 2016? And in 2020?»."""
    new, old = _NUMBER.fullmatch(topic.strip()), list(re.finditer(r"(?<![\w.])\d[\d.]*(?<!\.)(?!\w)", question))
    if new is None or len(old) != 1:
        return None
    return question[: old[0].start()] + new["number"].rstrip(".") + question[old[0].end() :]


def substituted(
    topic: str, question: str, prepositions: re.Pattern[str], other_thing: Callable[[str, str], str | None]
) -> str | None:
    """A question with ``topic`` in place of the only part that is like it; None if none or several are."""
    body = question.rstrip(" ?.!？")
    names = sure_names(names_in(body), body)
    if preposition := prepositions.match(topic):
        return _with_preposition(topic, preposition, body, names)
    new = _ARTICLE.sub("", topic)
    likeness = sorted(((_likeness(new, name), number) for number, name in enumerate(names)), reverse=True)
    if likeness and likeness[0][0] > 0:
        if len(likeness) > 1 and likeness[0][0] == likeness[1][0]:
            return None
        old = names[likeness[0][1]]
        prefix, suffix = body[: old.start], body[old.end :]
        nouns = list(itertools.accumulate(re.findall(r"\s+[\w-]+", suffix)))
        # «the Oslo office», «the Bergen office»
        suffix = suffix.removeprefix(next((noun for noun in reversed(nouns) if new.endswith(noun)), ""))
        return f"{prefix}{new}{suffix}?"
    return other_thing(new, body)


_ARTICLE = late(rf"^(?:the|an?)\s+(?=[{UPPER}])")
"""Before a name, which needs none in its new place."""


def _with_preposition(topic: str, preposition: re.Match[str], body: str, names: Sequence[Name]) -> str | None:
    """Put «in Moscow» in place of the only «in Petersburg»; where nothing has this preposition, at the end."""
    new = topic[preposition.end() :]
    old = list(re.finditer(rf"(?<!\w){re.escape(preposition[1])}\s+((?:[\w'’.+#«»-]+\s*){{1,4}})", body, re.IGNORECASE))
    if len(old) > 1:
        return None
    if not old:
        return f"{body} {topic}?"
    start = old[0].start(1)
    if name := next((name for name in names if start <= name.start < old[0].end()), None):
        if not re.match(rf"(?:(?:the|an?)\s+)?(?:[a-z]*[{UPPER}]|[\d«\"“])", new):
            return None  # «in Python», «in reverse»
        new = _ARTICLE.sub("", new)
        start = start if re.fullmatch(r"(?:the\s+|an?\s+)?", body[start : name.start]) else name.start
        noun = re.match(r"\s+[\w-]+", body[name.end :])
        end = name.end + (noun.end() if noun and new.endswith(noun[0]) else 0)
        return f"{body[:start]}{new}{body[end:]}?"
    last = [word.end() for word in WORD.finditer(body, start, old[0].end())][-1:]
    return f"{body[:start]}{new}?" if last == [len(body)] else None


def _likeness(new: str, name: Name) -> float:
    """How similar a new name is to one of the question's, as a candidate for its place."""
    new_words, name_words = fold(new).split(), fold(name.text).split()
    if (
        not new_words
        or not name_words
        or not (new[0].isupper() or new[0].isdigit() or new[0] in '«"“' or new_words[0] == name_words[0])
    ):
        return 0
    same_letters = (a == b for a, b in zip(new_words[-1][:-4:-1], name_words[-1][:-4:-1], strict=False))
    ending = sum(itertools.takewhile(bool, same_letters))
    is_version = new_words[0] == name_words[0]
    has_digits = any(map(str.isdigit, new)) == any(map(str.isdigit, name.text))
    return 1 + 3 * is_version + has_digits + 0.4 * ending
