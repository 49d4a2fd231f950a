"""Rules for `router_select` from settings: words and phrases, and the route of queries that have one of them.

They are words, not patterns, and only the beginning of a query is compared, so no rule can hold up a search.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from pointsman.text.grammar.match import HAN, plain
from pointsman.tools.json_forms import form_of
from pointsman.tools.late_regex import late

Route = Literal["bm25", "dense", "hybrid"]
ROUTES: Final = get_args(Route)

_MOST_RULES, _MOST_WORDS, _MOST_CHARACTERS = 100, 20, 100
_BEGINNING = 1000
"""Characters of a query that are compared."""
_TOKEN = late(f"[{HAN}]|[^\\W{HAN}]+|[^\\w\\s]")
_MEMBERS = ("words", "route", "reason")


@dataclass(frozen=True, slots=True)
class RouteByWords:
    """A rule for `router_select`: queries with one of its words take its route.

    Attributes:
        words: words and phrases, whole and in any case; ``PN-`` is also the beginning of ``PN-77``.
        route: ``"bm25"``, ``"dense"`` or ``"hybrid"``.
        reason: a code, or a text.

    >>> RouteByWords(("счёт", "PN-"), "bm25", "documents")("Где СЧЕТ № 7?")
    ('bm25', 'documents')
    """

    words: tuple[str, ...]
    route: Route
    reason: str

    def __call__(self, query: str) -> tuple[Route, str] | None:
        """Return the route and the reason; None if the first 1,000 characters of the query have none of the words."""
        tokens = _tokens_of_query(query[:_BEGINNING])
        return (self.route, self.reason) if any(_tokens_of_phrase(words) in tokens for words in self.words) else None


def route_rules(rules: Any) -> tuple[RouteByWords, ...]:
    """Return rules given as a list of mappings with ``words``, ``route`` and ``reason``.

    Raises:
        ValueError: a rule is invalid; its arguments are what is valid and what was given.
    """
    if not isinstance(rules, (list, tuple)) or len(rules) > _MOST_RULES:
        raise ValueError(
            f"a list of at most {_MOST_RULES} rules, in JSON as "
            '[{"words": ["invoice"], "route": "bm25", "reason": "invoice"}]',
            rules,
        )
    return tuple(_rule(form_of(rule) if isinstance(rule, RouteByWords) else rule, n) for n, rule in enumerate(rules, 1))


def _rule(rule: Any, number: int) -> RouteByWords:
    subject = f"a list of rules, and rule {number} has"
    if not isinstance(rule, Mapping) or rule.keys() != set(_MEMBERS):
        raise ValueError(f"{subject} words, route and reason and nothing else", rule)
    words, route, reason = (rule[member] for member in _MEMBERS)
    if not isinstance(words, (list, tuple)) or not 0 < len(words) <= _MOST_WORDS:
        raise ValueError(f"{subject} as its words a list of 1 to {_MOST_WORDS} words or phrases", words)
    for phrase in words:
        if not _is_line(phrase) or not _tokens_of_phrase(phrase).strip():
            raise ValueError(f"{subject} as its words texts of 1 to {_MOST_CHARACTERS} characters on one line", phrase)
    if route not in ROUTES:
        raise ValueError(f"{subject} as its route one of {', '.join(ROUTES)}", route)
    if not _is_line(reason):
        raise ValueError(f"{subject} as its reason a text of 1 to {_MOST_CHARACTERS} characters on one line", reason)
    return RouteByWords(tuple(words), route, reason)


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.strip()) <= len(text) <= _MOST_CHARACTERS and text.isprintable()


def _tokens(text: str) -> str:
    """Return words, Chinese characters and signs between blanks, so that a phrase is found at their boundaries."""
    return f" {' '.join(_TOKEN.findall(plain(unicodedata.normalize('NFKC', text))))} "


_tokens_of_phrase = lru_cache(maxsize=_MOST_RULES * _MOST_WORDS)(_tokens)
_tokens_of_query = lru_cache(maxsize=8)(_tokens)  # all rules ask for the same one
