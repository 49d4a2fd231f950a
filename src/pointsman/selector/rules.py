"""Rules to begin with for `RuleSelector`: keyword search or search by meaning, by how a query is put (S6).

Cues are looked for as words, in English, Chinese and Russian at once, so mixed queries need no language detection:
*somewhat* holds no *what*, ``что-то`` no ``что``, ``技术语言`` no ``术语``. A choice is one for keywords, or for
meaning, when its name or description says so (``keyword_search``, "full-text", "векторный поиск", ``语义检索``).

>>> from pointsman.selector.base import ToolMetadata
>>> from pointsman.types import Query
>>> keywords = ToolMetadata("bm25", "Exact keyword matching")
>>> keyword_match_rule(Query("Find exact term: neural network"), keywords)
10.0
>>> keyword_match_rule(Query("a terminal illness"), keywords)
0.0
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pointsman.text import fold

if TYPE_CHECKING:
    from pointsman.selector.base import ToolMetadata
    from pointsman.types import Query

_STRONG: Final = 10.0
_WEAK: Final = 5.0
_SHORT: Final = 5
"""Words from which on a query is a sentence rather than a term."""

_LOOKED_AT: Final = 2_000
"""Characters of a text that cues are looked for in: whoever asks a question says so early."""

# Folded text: lower case, е for ё, simplified Chinese. ``\b`` knows English and Russian words; Chinese has no such
# thing, so a Chinese cue says beside which characters it is part of another word.
_ASKS_FOR_WORDS: Final = re.compile(
    r"\b(?:exact(?:ly)?|keywords?|terms?|verbatim)\b"
    r"|\b(?:точн(?:о|ый|ая|ое|ые|ого|ому|ой|ую|ым|ых|ыми)|дословно|термин(?:а|у|ом|е|ы|ов|ам|ами|ах)?"
    r"|ключев(?:ое|ые|ого|ых|ому|ым|ыми|ом) слов(?:о|а|у|ом|е|ам|ами|ах)?)\b"
    r"|精确|准确|确切|关键词|关键字|(?<![技艺学美战武手魔])术语(?![言文音法系料])"
)
_ASKS_FOR_MEANING: Final = re.compile(
    r"\b(?:what|how|why|explain(?:s|ed|ing)?|meanings?)\b"
    r"|(?<!кое-)(?<!потому )\bчто\b(?!-)|(?<!кое-)(?<!так )\bкак\b(?!-| только\b| будто\b)"
    r"|\b(?:почему|зачем|отчего|объясни(?:те|ть)?|поясни(?:те|ть)?|расскажи(?:те)?|смысл(?:а|у|ом|е)?"
    r"|значени(?:е|я|ю|ем|и)|значит|означа(?:ет|ют))\b"
    r"|什么|怎么|怎样|(?<![比例譬假])如何|(?<!因)为何|解释|含义|意义|(?<!好)意思"
)
_FOR_WORDS: Final = re.compile(
    r"\b(?:keywords?|bm25|lexical|full[ -]?text)\b"
    r"|\bключев(?:ое|ые|ого|ых|ому|ым|ыми|ом) слов|\bполнотекстов|\bлексическ"
    r"|关键词|关键字|全文|词法"
)
_FOR_MEANING: Final = re.compile(
    r"\b(?:semantic(?:s|ally)?|vectors?)\b|\b(?:семантическ|семантик|векторн|вектор(?:а|ы|ов|ам|ами|ах)?\b)"
    r"|语义|向量"
)
_IDENTIFIER_JOINTS: Final = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")
_SPACELESS: Final = re.compile(r"[\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SPACED_WORDS: Final = re.compile(r"\w+(?:[-'’.]\w+)*")
_CHARACTERS_PER_WORD: Final = 1.6
"""Of running Chinese text."""


def keyword_match_rule(query: Query, choice: ToolMetadata) -> float:
    """10 to a choice for keywords when the query asks for an exact wording, a keyword or a term."""
    return _STRONG if _asks(query.text[:_LOOKED_AT])[0] and _is_for(choice)[0] else 0.0


def semantic_query_rule(query: Query, choice: ToolMetadata) -> float:
    """10 to a choice for meaning when the query asks what, how or why, or for an explanation."""
    return _STRONG if _asks(query.text[:_LOOKED_AT])[1] and _is_for(choice)[1] else 0.0


def query_length_rule(query: Query, choice: ToolMetadata) -> float:
    """5 to a choice for keywords when the query has fewer than five words, else 5 to one for meaning.

    Chinese words are not spaced; 1.6 characters count as one.
    """
    words, meaning = _is_for(choice)
    return _WEAK if (words if _word_count(query.text[:_LOOKED_AT]) < _SHORT else meaning) else 0.0


@lru_cache(maxsize=64)
def _asks(text: str) -> tuple[bool, bool]:
    """Whether a query asks for words, and whether for meaning."""
    folded = fold(text.replace("_", " "))
    return bool(_ASKS_FOR_WORDS.search(folded)), bool(_ASKS_FOR_MEANING.search(folded))


def _is_for(choice: ToolMetadata) -> tuple[bool, bool]:
    return _says(choice.name[:_LOOKED_AT], choice.description[:_LOOKED_AT])


@lru_cache(maxsize=1024)
def _says(name: str, description: str) -> tuple[bool, bool]:
    """Whether a choice says it is for words, and whether for meaning."""
    text = fold(_IDENTIFIER_JOINTS.sub(" ", f"{name} {description}"))
    return bool(_FOR_WORDS.search(text)), bool(_FOR_MEANING.search(text))


@lru_cache(maxsize=64)
def _word_count(text: str) -> int:
    spaced, spaceless = _SPACELESS.subn(" ", text)
    return len(_SPACED_WORDS.findall(spaced)) + round(spaceless / _CHARACTERS_PER_WORD)
