"""Predefined rules for `RuleSelector`: keyword or semantic search, by the wording of a query.

Cues are matched as whole words in English, Chinese and Russian at once, so mixed queries need no language detection:
*somewhat* does not contain *what*, nor ``что-то`` ``что``, nor ``技术语言`` ``术语``. A choice is for keyword or for
semantic search if its name or description says so (``keyword_search``, "full-text", "векторный поиск", ``语义检索``).

>>> from pointsman.selector.base_selector import ToolMetadata
>>> from pointsman.values.types import Query
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

from pointsman.text.grammar import EXACT, FOR_MEANING, FOR_WORDS, MEANING, count, plain

if TYPE_CHECKING:
    from pointsman.selector.base_selector import ToolMetadata
    from pointsman.values.types import Query

_STRONG: Final = 10.0
_WEAK: Final = 5.0
_SHORT: Final = 5
"""Minimum words of a query that is a sentence rather than a term."""

_LOOKED_AT: Final = 2_000
"""Characters of a text that are searched for cues: questions show early."""

_IDENTIFIER_JOINTS: Final = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")


def keyword_match_rule(query: Query, choice: ToolMetadata) -> float:
    """Give 10 to a choice for keyword search if the query asks for an exact wording, a keyword or a term."""
    return _STRONG if _asks(query.text[:_LOOKED_AT])[0] and _is_for(choice)[0] else 0.0


def semantic_query_rule(query: Query, choice: ToolMetadata) -> float:
    """Give 10 to a choice for semantic search if the query asks what, how or why, or for an explanation."""
    return _STRONG if _asks(query.text[:_LOOKED_AT])[1] and _is_for(choice)[1] else 0.0


def query_length_rule(query: Query, choice: ToolMetadata) -> float:
    """Give 5 to a choice for keyword search if the query has fewer than five words, else 5 to one for semantic search.

    Chinese has no spaces between words; 1.6 characters count as a word.
    """
    words, meaning = _is_for(choice)
    return _WEAK if (words if count(query.text[:_LOOKED_AT]) < _SHORT else meaning) else 0.0


@lru_cache(maxsize=64)
def _asks(text: str) -> tuple[bool, bool]:
    """Whether a query asks for exact words, and whether for meaning."""
    text = plain(text.replace("_", " "))
    return EXACT.first(text) is not None, MEANING.first(text) is not None


def _is_for(choice: ToolMetadata) -> tuple[bool, bool]:
    return _says(choice.name[:_LOOKED_AT], choice.description[:_LOOKED_AT])


@lru_cache(maxsize=1024)
def _says(name: str, description: str) -> tuple[bool, bool]:
    """Whether a choice says that it is for keyword search, and whether for semantic search."""
    text = plain(_IDENTIFIER_JOINTS.sub(" ", f"{name} {description}"))
    return FOR_WORDS.first(text) is not None, FOR_MEANING.first(text) is not None
