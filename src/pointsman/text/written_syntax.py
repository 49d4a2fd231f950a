"""The syntax that people write into a query: ``"exact phrase"``, ``-word``, ``-"phrase"`` and ``+word``.

=================== ===========================================================================================
``"exact phrase"``  a document holds these very words in a row; also ``«…»``, ``“…”``, ``„…“`` and ``「…」``
``+word``           a document holds a form of the word; ``+"phrase"`` is a phrase
``-word``           no document holds a form of the word; in Chinese: the characters in a row
``-"phrase"``       no document holds these very words in a row
=================== ===========================================================================================

``-`` and ``+`` count only after a blank or at the start, directly before a letter, a Chinese character or a quotation
mark; ``-`` also before a whole number of three digits or more (``-2025``). A quotation without a sign may also stand
beside Chinese characters. ``-5``, ``-2.5 V``, ``-h`` and ``--all`` are words, as are words in apostrophes and
``《…》``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from pointsman.text.grammar import CONVERSATIONAL, FUNCTION
from pointsman.text.grammar.match import count, plain
from pointsman.text.tokens import DEFAULT_ANALYZER
from pointsman.text.unicode import fold
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Sequence

Syntax = Literal["auto", "hard", "plain"]

SYNTAXES: Final[tuple[Syntax, ...]] = ("auto", "hard", "plain")

LONGEST_KEYWORDS: Final = 12
"""Words of a query that ``"auto"`` still takes for keywords."""

_HAN: Final = "\u3400-\u9fff"
_MARKS: Final = ",.?!;:…，。？！；：、"
_OPERATOR: Final = late(
    rf"""(?: (?<!\S) (?P<sign>[-+]?) | (?<=[{_HAN}]) )
        (?: "(?P<straight>[^"\n]*\w[^"\n]*)" | «(?P<french>[^»\n]*\w[^»\n]*)» | “(?P<curly>[^”\n]*\w[^”\n]*)”
          | 「(?P<corner>[^」\n]*\w[^」\n]*)」 | „(?P<low>[^“”\n]*\w[^“”\n]*)[“”]
          | (?<=[-+]) (?P<word>[^\W\d_] (?: [^\s"«»„“”「」{_MARKS}] | [{_MARKS}](?=\w) )* )
          | (?<=-) (?P<number>\d{{3,}}) )
        (?=[\s{_MARKS}{_HAN}]|$)""",
    re.VERBOSE,
)
_SENTENCE: Final = late(r"[.?!;:…](?:\s|$)|[。？！；：]|,(?:\s|$)|，")
_QUOTE: Final = late('["«»„“”「」]')
_LETTERS: Final = late(r"\w+")


@dataclass(frozen=True, slots=True)
class WrittenTerm:
    """A word or phrase that documents have to hold, or must not.

    Attributes:
        words: as written, without sign and quotation marks.
        is_phrase: whether only these very words count, not their other forms.
    """

    words: str
    is_phrase: bool

    def __str__(self) -> str:
        return f'"{self.words}"' if self.is_phrase else self.words

    def is_in(self, text: str) -> bool:
        """Whether a text holds it.

        >>> [WrittenTerm("boiler", is_phrase).is_in("Two Boilers") for is_phrase in (False, True)]
        [True, False]
        """
        if not self.is_phrase:
            tokens = _tokens(self.words)
            if len(tokens) == 1:
                return tokens[0] in DEFAULT_ANALYZER.tokens(text)
        return _pattern(self.words).search(fold(text)) is not None


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query whose syntax is obeyed.

    Attributes:
        text: what is searched for: the words without operators, and those that documents have to hold.
        required_terms: what every document holds.
        excluded_terms: what no document holds.
    """

    text: str
    required_terms: tuple[WrittenTerm, ...] = ()
    excluded_terms: tuple[WrittenTerm, ...] = ()

    def admits(self, text: str) -> bool:
        """Whether a text holds all that is required and nothing that is excluded."""
        return self.excludes(text) is None and all(term.is_in(text) for term in self.required_terms)

    def excludes(self, text: str) -> WrittenTerm | None:
        """Return the first excluded term that a text holds."""
        return next((term for term in self.excluded_terms if term.is_in(text)), None)

    def __str__(self) -> str:
        conditions = [f"+{term}" if not term.is_phrase else str(term) for term in self.required_terms]
        return " ".join([*conditions, *(f"-{term}" for term in self.excluded_terms)])


def listed(terms: Sequence[WrittenTerm]) -> str:
    """Return terms as a sentence has them, cut to a line."""
    return f"{' and '.join(map(str, terms)):.200}"


@lru_cache(maxsize=256)
def read_syntax(text: str, syntax: Syntax) -> WrittenQuery | None:
    """Read the syntax of a query; None if it has none, or if it is not to be obeyed.

    Args:
        text: as the caller sent it.
        syntax: ``"hard"`` obeys always, ``"plain"`` never, ``"auto"`` in keywords: at most `LONGEST_KEYWORDS` words,
            none of them a question word or another function word, and no punctuation of sentences. A query that only
            excludes is searched as written.

    >>> query = read_syntax('pressure -boiler "safety valve"', "auto")
    >>> query.text, str(query)
    ('pressure safety valve', '"safety valve" -boiler')
    >>> read_syntax('who wrote "safety valve"?', "auto") is None
    True
    """
    if syntax == "plain" or not any(sign in text for sign in '-+"«„“「'):
        return None
    required_terms: list[WrittenTerm] = []
    excluded_terms: list[WrittenTerm] = []
    texts_between, keywords, end = [], [], 0
    for match in _OPERATOR.finditer(text):
        word = match["word"] or match["number"]
        if word is not None and _is_flag(match["sign"], word):
            continue
        term = WrittenTerm(match[match.lastgroup or 0].strip(), word is None)
        own_text = text[end : match.start()]
        texts_between.append(own_text)
        keywords.append(own_text)
        if match["sign"] == "-":
            excluded_terms.append(term)
        else:
            required_terms.append(term)
            texts_between.append(term.words)
        end = match.end()
    if not (required_terms or excluded_terms):
        return None
    remaining_text = " ".join(" ".join([*texts_between, text[end:]]).split())
    if not _LETTERS.search(remaining_text):
        return None
    if syntax == "auto" and not _are_keywords(text, " ".join([*keywords, text[end:]])):
        return None
    return WrittenQuery(remaining_text, tuple(required_terms), tuple(excluded_terms))


def _is_flag(sign: str, word: str) -> bool:
    """Whether ``-h`` is an option of a command."""
    return sign == "-" and len(word) == 1 and word.isascii()


def _are_keywords(text: str, own_words: str) -> bool:
    """Whether a query is words and operators alone; what stands in quotation marks is no word of its own."""
    return (
        count(text) <= LONGEST_KEYWORDS
        and _SENTENCE.search(_QUOTE.sub(" ", text)) is None
        and not any(words.first(plain(own_words)) for words in (FUNCTION, CONVERSATIONAL))
    )


@lru_cache(maxsize=256)
def _tokens(word: str) -> tuple[str, ...]:
    return tuple(DEFAULT_ANALYZER.tokens(word))


@lru_cache(maxsize=256)
def _pattern(words: str) -> re.Pattern[str]:
    """The words in a row, in a folded text; Chinese characters have no bounds, and are bounds of others."""
    pattern = r"\s+".join(map(re.escape, fold(words).split()))
    first, last = fold(words).strip()[:1], fold(words).strip()[-1:]
    left_edge = rf"(?<![^\W{_HAN}])" if _is_bounded(first) else ""
    right_edge = rf"(?![^\W{_HAN}])" if _is_bounded(last) else ""
    return re.compile(f"{left_edge}{pattern}{right_edge}")


def _is_bounded(character: str) -> bool:
    return re.match(r"\w", character) is not None and re.match(f"[{_HAN}]", character) is None
