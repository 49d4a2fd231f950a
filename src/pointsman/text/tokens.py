"""One analyser for documents and queries in English, Chinese, Russian and any mixture of scripts.

Processing by script:

===========================  ==========================================================================================
Latin words                  folded, English Snowball stem
Cyrillic words               folded, Russian Snowball stem
Han, kana, Thai, Lao,        scripts without spaces: every character and every pair of neighbours, traditional Chinese
Khmer, Burmese, Tibetan      characters as simplified ones
other scripts                words, folded
emoji                        a token each
``state-of-the-art``,        written together, and the parts: ``stateoftheart state of the art``, ``ospathjoin os path
``os.path``, ``getName``,    join``, ``getnam get name``. So *e-mail* meets *email*, and ``snake_case`` ``snakeCase``;
``self.max_size``            ``selfmaxs maxsiz self max size``: each name with parts is a term of its own
words with digits            numbers, amounts, versions and codes, and what has several words, such as dates and
                             numbers in groups, and Chinese numerals: see
                             :mod:`pointsman.text.number_terms`
``U.S.A.``                   ``usa``
``O'Neill's``, ``don't``     ``oneil o neill``, ``do``: endings of possession, negation and short verbs go
``C++``, ``C#``, ``F#``      ``c++``, ``c#``, ``f#``
===========================  ==========================================================================================

Documents keep their stop words; queries lose them unless they have no other words (*to be or not to be*, *кто я*). Over
13 collections this costs .0005 nDCG@10 on average compared with removing them from the index, but queries of only stop
words find something. Of Chinese queries, words that only ask are left out: nDCG@10 of BM25 is .435 instead of .415 on
zh_domainrag, .988 instead of .981 on zh_cmrc2018, .969 instead of .966 on zh_xquad and .722 instead of .723 on
tool_ultratool_zh_dev (``benchmarks/quality.py``). Characters and pairs beat dictionary words for Chinese; joined
compounds gain .0005 on average.

Snowball: https://snowballstem.org; folding: see :mod:`pointsman.text.unicode`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import add
from typing import TYPE_CHECKING

from pointsman.text.number_terms import further_terms, number_terms
from pointsman.text.stop_words import CHINESE, ENGLISH, RUSSIAN
from pointsman.text.unicode import FOLDS, fold, normalize, repair, table_checksum
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Sequence

ANALYZER_VERSION = 8
"""Increased when this module's rules change, so that an index made with other rules is rebuilt."""

LONGEST_TOKEN = 255
"""Length of the longest token in UTF-8 bytes."""

_LONGEST_WORD = 60
"""Characters after which a word is cut; at most four bytes each, so pieces stay below :data:`LONGEST_TOKEN`."""

_MEMO_WORDS = 131_072
"""Number of words whose tokens are cached, some 8 MB; they cover about 97 % of running text."""

_STOP = ENGLISH | RUSSIAN
_CHINESE_STOP = late("|".join(CHINESE))

# Character classes. A word is looked up as written and normalised only when it is new, so the classes also include what
# NFKC turns into letters (full-width forms, ligatures, superscripts) and invisible characters.
_WORD_CHARACTERS = (  # Latin, Greek, Cyrillic, Armenian, digits, marks: scripts of words that may be joined by . ' _ -
    "0-9A-Za-z_\xaa\xad\xb2\xb3\xb5\xb9\xba\xbc-\xbe\xc0-\xd6\xd8-\xf6\xf8-\u02bb\u02bd-\u02d1\u02e0-\u02e4\u02ec\u02ee\u0300-\u0374"
    "\u0376\u0377\u037a-\u037d\u037f\u0386\u0388-\u0481\u0483-\u0556\u0559\u0560-\u0588\u1c80-\u1c8f\u1d00-\u1fbc\u1fbe\u1fc2-\u1fcc"
    "\u1fd0-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ffc\u200c\u200d\u2060\u2070-\u209c\u2100-\u218b\u2460-\u24ff\u2c60-\u2c7f\u2de0-\u2dff"
    "\u3300-\u33ff\ua640-\ua69f\ua722-\ua788\ua78b-\ua7ff\ufb00-\ufb17\ufeff\uff10-\uff19\uff21-\uff3a\uff3f\uff41-\uff5a"
    "\U0001d400-\U0001d7ff"
)
_DENSE = (  # scripts without spaces
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u0f00\u0f40-\u0fbc\u1000-\u103f"
    "\u1050-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad\uaa60-\uaadf"
)
_SEPARATORS = (  # punctuation, symbols, private use: the rest is "other scripts"
    r"\x00-\xff\u02b0-\u02ff\u0374-\u0385\u0387\u0482\u055a-\u055f\u0589-\u058f\u2000-\u25ff\u27c0-\u2bff\u2e00-\u2e7f"
    r"\u3000-\u3030\u30fb\ud800-\uf8ff\ufe10-\ufe1f\ufe30-\ufe6f\uff00-\uff65\uffe0-\uffff"
)
_ASCII_WORDS = late(r"\w{1,60}(?:(?=[.',+#-])(?:[.'-]\w{1,60}|,\d{1,60}){0,15}(?:\+\+|#|)|)", re.ASCII)
_WORDS = late(
    rf"[{_WORD_CHARACTERS}]{{1,60}}"
    rf"(?:(?=[.'’ʼ‐‑,+#-])(?:[.'’ʼ‐‑-][{_WORD_CHARACTERS}]{{1,60}}|,[0-9]{{1,60}}){{0,15}}(?:\+\+|#|)|)"
    rf"|[{_DENSE}]+"
    rf"|[^{_SEPARATORS}{_WORD_CHARACTERS}{_DENSE}]{{1,1024}}"
)
_DENSE_RUN = late(f"[{_DENSE}]")
_SPACED_RUN = late(f"[{_WORD_CHARACTERS}]")
_CYRILLIC = late("[\u0400-\u052f]")
_NAME_BREAK = late(r"[.'’,‐-]+")
_PART_BREAK = late(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGIT = late("[0-9]")
_BLANK = late("[ \n]")
_APOSTROPHES = late("['’]")
_ENDING = late(r"(?:n't|'(?:s|re|ve|ll|d|m))$")
_IRREGULAR = {"can't": "can", "won't": "will", "shan't": "shall"}
_SHARP_LANGUAGES = frozenset({"c++", "c#", "f#", "j#"})

_stemmers = threading.local()


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Turns text into tokens for indexes and queries.

    Frozen, cheap to create and to pickle, and thread-safe. Time is linear in the text: when warm, some 25 µs for 80
    English words, 40 for 80 Russian ones, 65 for 200 Chinese characters.
    """

    _everything: _Memo = field(default_factory=lambda: _Memo(frozenset()), init=False, repr=False, compare=False)
    _content: _Memo = field(default_factory=lambda: _Memo(_STOP), init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Analyzer], tuple[()]]:
        return Analyzer, ()

    @property
    def fingerprint(self) -> str:
        """Identifies the rules, the stemmer's release and the character table: equal fingerprints give equal tokens."""
        import Stemmer  # type: ignore[import-not-found]

        return f"{ANALYZER_VERSION}/snowball-{Stemmer.version()}/{table_checksum()}"

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a document, including stop words, in the order of the text.

        No token is empty, contains white space, or is longer than :data:`LONGEST_TOKEN` bytes.

        >>> Analyzer().tokens("Indexing e-mails; Ёлки; 傳統")
        ['index', 'email', 'e', 'mail', 'елк', '传', '统', '传统']
        """
        return _analyse(text, self._everything)

    def query_tokens(self, text: str) -> list[str]:
        """Return the tokens of a query: without stop words, unless it has no others.

        >>> Analyzer().query_tokens("What is the index?"), Analyzer().query_tokens("To be or not to be")
        (['index'], ['to', 'be', 'or', 'not', 'to', 'be'])
        """
        return _analyse(text, self._content) or _analyse(text, self._everything)


class _Memo(dict[str, "Sequence[str]"]):
    """Caches the tokens of each word as written; emptied when full."""

    def __init__(self, stop_words: frozenset[str]) -> None:
        super().__init__()
        self._stop_words = stop_words

    def __missing__(self, word: str) -> Sequence[str]:
        is_ascii = word.isascii()
        if not is_ascii and (normal := normalize(word)) != word:
            tokens = tuple(chain.from_iterable(map(self.__getitem__, _WORDS.findall(normal))))
        elif not is_ascii and _DENSE_RUN.match(word):
            return _characters_and_pairs(word, _CHINESE_STOP if self._stop_words else None)
        else:
            tokens = tuple(
                _limit_length(_stem_word(term)) for term in _terms(word) if term and term not in self._stop_words
            )
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _MEMO_WORDS:
                self.clear()
            self[word] = tokens
        return tokens


class _FoldedCharacters(dict[str, str]):
    """Caches the folded form of each character of a run in normal form, for which folding is complete."""

    def __missing__(self, character: str) -> str:
        return self.setdefault(character, FOLDS[ord(character)])


_folded_characters = _FoldedCharacters()


def _analyse(text: str, memo: _Memo) -> list[str]:
    # The hot path runs in C: one regular expression, and one dictionary look-up per known word.
    pattern, text = (_ASCII_WORDS, text) if text.isascii() else (_WORDS, repair(text))
    tokens: list[str] = []
    start = 0
    for end, terms in further_terms(text):
        if end > start:  # Chinese has no blanks: the first search for one goes to the end of the text, no other does
            blank = _BLANK.search(text, end)
            end_of_word = len(text) if blank is None else blank.start()
            tokens += chain.from_iterable(map(memo.__getitem__, pattern.findall(text, start, end_of_word)))
            start = end_of_word
        tokens += terms
    tokens += chain.from_iterable(map(memo.__getitem__, pattern.findall(text, start)))
    return tokens


def _stem_word(word: str) -> str:
    # A Stemmer is not thread-safe, so each thread has its own.
    try:
        english, russian = _stemmers.pair
    except AttributeError:
        from Stemmer import Stemmer

        english, russian = _stemmers.pair = Stemmer("english", 0), Stemmer("russian", 0)
    stem: str = (russian if _CYRILLIC.search(word) else english).stemWord(word)
    return stem or word


def _limit_length(token: str) -> str:
    # Case folding may lengthen a word.
    if len(token) * 4 <= LONGEST_TOKEN:
        return token
    return token.encode()[:LONGEST_TOKEN].decode(errors="ignore")


def _characters_and_pairs(run: str, stop_words: re.Pattern[str] | None = None) -> list[str]:
    if stop_words is None:
        characters = [*filter(None, map(_folded_characters.__getitem__, run))]
        return [*characters, *map(add, characters, characters[1:])]
    words = stop_words.split(run.translate(FOLDS))
    return [*chain.from_iterable(words), *chain.from_iterable(map(add, word, word[1:]) for word in words)]


def _terms(word: str) -> list[str]:
    """Return the folded terms of one match of ``_WORDS`` that is not dense, before stop words and stemming."""
    if not (word.isascii() or _SPACED_RUN.match(word)):
        return _words_of_other_scripts(word)
    if word[-1] in "+#":
        lower = word.lower()
        if lower in _SHARP_LANGUAGES:
            return [lower]
        word = word.rstrip("+#")
    word = word.replace("ʼ", "'")  # Unicode counts this apostrophe among the letters
    if word.isalpha() and (word.islower() or word[1:].islower()):
        return [fold(word)]
    word = _without_ending(word)
    return (number_terms(word) if _DIGIT.search(word) else []) or _joined_and_parts(word)


def _without_ending(word: str) -> str:
    """Remove ``'s``, ``n't``, ``'re`` and similar endings from a word."""
    if word.isalnum():
        return word
    plain = _APOSTROPHES.sub("'", word)
    lower = plain.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    ending = _ENDING.search(lower)
    return plain[: ending.start()] if ending else plain


def _joined_and_parts(word: str) -> list[str]:
    """Return a word with parts written together, each name between its points and hyphens too, and all parts."""
    names = [[part for text in _PART_BREAK.split(name) if (part := fold(text))] for name in _NAME_BREAK.split(word)]
    parts = list(chain.from_iterable(names))
    if len(parts) < 2:
        return parts
    joined_names = [_joined(name) for name in names if 1 < len(name) < len(parts)]
    compound = _joined(parts)
    if len(compound) > _LONGEST_WORD:
        return [*joined_names, *parts]
    if len(parts) == len(compound) and compound.isalpha():  # initials
        return [compound]
    return [compound, *joined_names, *parts]


def _joined(parts: list[str]) -> str:
    """Return parts written together; a hyphen stays between digits, so that no near miss of a code equals it."""
    compound = parts[0]
    for part in parts[1:]:
        compound += f"-{part}" if compound[-1].isdigit() and part[0].isdigit() else part
    return compound


def _words_of_other_scripts(run: str) -> list[str]:
    """Return runs of letters, marks and numbers, cut to length; each emoji separately."""
    words: list[str] = []
    letters: list[str] = []
    for character in fold(run):
        category = unicodedata.category(character)
        if category[0] in "LMN" and len(letters) < _LONGEST_WORD:
            letters.append(character)
            continue
        words.append("".join(letters))
        letters = [character] if category[0] in "LMN" else []
        if category == "So":
            words.append(character)
    words.append("".join(letters))
    return words


DEFAULT_ANALYZER = Analyzer()
"""The default for every index and query."""


@lru_cache(maxsize=256)
def query_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a query; those of the latest queries are remembered, as every stage of a search needs them.

    >>> query_tokens("What is the index?")
    ('index',)
    """
    return tuple(DEFAULT_ANALYZER.query_tokens(text))
