"""Function words of English, Chinese and Russian for questions, comparisons, time: one list per language, one rule.

All code that looks for such words uses this package: `recommend`, `router_select`, the rules of selectors,
decomposition and disambiguation. So they all agree on what is a question or a comparison. All lists are matched at
once, in a text normalised by `plain`: mixed queries need no language detection.
"""

from __future__ import annotations

import re
from itertools import islice

from pointsman.text.grammar.grammar_words import en, ru, zh
from pointsman.text.grammar.match import HAN, HAN_PER_WORD, HAN_RUN, WORD, Match, Words, count, plain
from pointsman.text.stop_words import ENGLISH, RUSSIAN

__all__ = [
    "AMOUNT",
    "COMPARISON",
    "CONVERSATIONAL",
    "EXACT",
    "FILTERS",
    "FOR_MEANING",
    "FOR_WORDS",
    "FUNCTION",
    "HAN",
    "HAN_PER_WORD",
    "HAN_RUN",
    "IMAGE",
    "MEANING",
    "NOW",
    "QUESTION",
    "REFERENCE",
    "STOP",
    "TIME",
    "WORD",
    "Match",
    "Words",
    "asks",
    "content_of",
    "count",
    "opens_question",
    "plain",
    "refers_back",
]

STOP = ENGLISH | RUSSIAN
"""English and Russian stop words, which do not distinguish documents."""

_LOOKALIKES = f"{en.LOOKALIKE} {ru.LOOKALIKE} {zh.LOOKALIKE}"
QUESTION = Words(f"{en.QUESTION} {ru.QUESTION} {zh.QUESTION}", _LOOKALIKES)
CONVERSATIONAL = Words(f"{en.QUESTION} {ru.QUESTION} {zh.QUESTION} {en.REQUEST} {ru.REQUEST} {zh.REQUEST}", _LOOKALIKES)
FUNCTION = Words(f"{' '.join(STOP - {'один', 'раз'})} {en.QUESTION} {ru.QUESTION} {zh.FUNCTION}", zh.FUNCTION_LOOKALIKE)
COMPARISON = Words(f"{en.COMPARISON} {ru.COMPARISON} {zh.COMPARISON}", _LOOKALIKES)
EXACT = Words(f"{en.EXACT} {ru.EXACT} {zh.EXACT}", _LOOKALIKES)
MEANING = Words(f"{en.MEANING} {ru.MEANING} {zh.MEANING}", _LOOKALIKES)
FOR_WORDS = Words(f"{en.FOR_WORDS} {ru.FOR_WORDS} {zh.FOR_WORDS}")
FOR_MEANING = Words(f"{en.FOR_MEANING} {ru.FOR_MEANING} {zh.FOR_MEANING}")
TIME = Words(f"{en.TIME} {ru.TIME} {zh.TIME}")
NOW = Words(f"{en.NOW} {ru.NOW} {zh.NOW}")
AMOUNT = Words(f"{en.AMOUNT} {ru.AMOUNT} {zh.AMOUNT}", _LOOKALIKES)
IMAGE = Words(f"{en.IMAGE} {ru.IMAGE} {zh.IMAGE}", f"{en.IMAGE_LOOKALIKE} {ru.IMAGE_LOOKALIKE} {zh.IMAGE_LOOKALIKE}")
REFERENCE = Words(f"{en.REFERENCE} {ru.REFERENCE} {zh.REFERENCE}", zh.REFERENCE_LOOKALIKE)
FILTERS = tuple(f"{en.FILTER} {ru.FILTER} {zh.FILTER}".split())

_OPENING = Words(f"{en.QUESTION} {ru.QUESTION} {ru.OPENING}", _LOOKALIKES)
_AUXILIARY, _SUBJECT = Words(en.AUXILIARY), Words(en.SUBJECT)
_OPENS = Words(f"{en.QUESTION} {ru.QUESTION} {en.AUXILIARY} {en.IMPERATIVE} {ru.REQUEST} {ru.IMPERATIVE}")
_LEAD = Words(f"{en.LEAD} {ru.LEAD}")
_PREPOSITION = Words(f"{en.PREPOSITION} {ru.PREPOSITION}")
_MARK = re.compile(r"[?؟][\s!.…\"'”’»)\]}」』】）]*\Z")
_BEGINNING = 200
"""Characters in which the opening of a question is looked for."""


def asks(text: str) -> str:
    """Return what makes a plain text a question: ``"?"``, or the question words; empty if it is not a question.

    English and Russian questions open with a question word, possibly after a function word (*in which*, *а где*);
    Chinese ones have it anywhere.

    >>> [asks(plain(text)) for text in ("В каком году?", "in which year", "天空为什么是蓝色的", "что-то не то")]
    ['?', 'in which', '为什么', '']
    """
    if _MARK.search(text[-100:]):
        return "?"
    opening = _opening(text[:_BEGINNING])
    if opening or text.isascii():
        return opening
    match = QUESTION.first(text)
    return match.text if match is not None and HAN_RUN.match(match.text) else ""


def opens_question(text: str, *, words_alone: bool = False) -> bool:
    """Whether a clause in plain form is a question or request by itself.

    Args:
        text: the clause in plain form.
        words_alone: count only question words, not verbs that open a question or a request.

    >>> opens_question("and is it safe"), opens_question("and is it safe", words_alone=True)
    (True, False)
    """
    if not text.isascii() and any(HAN_RUN.match(match.text) for match in QUESTION.all(text)):
        return True
    words = WORD.findall(text[:_BEGINNING])
    while words and words[0] in _LEAD:
        words = words[1:]
    second_word = words[1:2] if words and words[0] in _PREPOSITION else []
    opening = _OPENING if words_alone else _OPENS
    return any(word in opening for word in [*words[:1], *second_word]) or words[1:2] == ["ли"]


def refers_back(text: str) -> bool:
    """Whether a text has a word that refers to what was said before it, or opens with one that joins it to that.

    >>> [refers_back(text) for text in ("And theft?", "Когда он умер?", "那上海呢？", "Cats and dogs")]
    [True, True, True, False]
    """
    text = plain(text)
    return any(word in _LEAD for word in WORD.findall(text[:_BEGINNING])[:1]) or REFERENCE.first(text) is not None


def content_of(text: str) -> str:
    """Return a text without the words that ask, join or refer, which say nothing of its subject.

    >>> [content_of(text).split() for text in ("And how much is theft?", "А почему?", "那上海呢？")]
    [['much', 'theft?'], ['?'], ['上海', '？']]
    """
    for words in (FUNCTION, QUESTION, REFERENCE):
        for match in words.all(plain(text)):
            text = text[: match.start] + " " * (match.end - match.start) + text[match.end :]
    return text


def _opening(text: str) -> str:
    words = list(islice(WORD.finditer(text), 6))
    if not words or HAN_RUN.search(text, 0, words[0].start()):
        return ""
    start = int(words[0][0] in _LEAD and len(words) > 1)
    question = _OPENING.first(text)
    small = start + 1 < len(words) and words[start][0] in _PREPOSITION
    starts = {words[start].start(), words[start + small].start()}
    if question is not None and question.start in starts:
        return text[words[start].start() : question.end]
    following = [word for word in words[start + 1 :] if word[0] != "t"][:1]
    if following and (following[0][0] == "ли" or (words[start][0] in _AUXILIARY and following[0][0] in _SUBJECT)):
        return text[words[start].start() : following[0].end()]
    return ""
