"""`router_select`: chooses keyword search, vector search or both by the form of a query.

It needs no model, index or dependency: three regular expressions and word lists for English, Chinese and Russian give a
deterministic answer in a few microseconds. The first rule that applies decides:

1. a filter such as ``channel:`` or ``после:`` -> hybrid, ``filters_or_mixed_signals``;
2. a number, date, identifier or entity together with a conversational word -> hybrid, ``filters_or_mixed_signals``;
3. very short (under 16 characters) without a function word, or short (up to 40) with one of these -> bm25,
   ``short_or_entity_numeric``;
4. a conversational word, or longer than 120 characters -> dense, ``conversational_or_long``;
5. a number, date, identifier or entity -> hybrid, ``mixed_signals``;
6. anything else -> dense, ``default_dense``.

Chinese has no spaces, and a character carries as much as several letters, so its length is counted in words: about 1.6
characters make a word, and a word counts as 6 characters, as in English with its space. So 16, 40 and 120 characters
correspond to 4, 10 and 32 Chinese ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict

from pointsman.text.grammar import CONVERSATIONAL, FILTERS, FUNCTION, HAN, HAN_PER_WORD, HAN_RUN, plain
from pointsman.text.grammar.route_words import ROUTES, Route
from pointsman.tools.errors import InputError

_BUILT_IN: Final[dict[str, Route]] = {
    (_FILTERS_OR_MIXED := "filters_or_mixed_signals"): "hybrid",
    (_SHORT_OR_EXACT := "short_or_entity_numeric"): "bm25",
    (_CONVERSATIONAL_OR_LONG := "conversational_or_long"): "dense",
    (_MIXED := "mixed_signals"): "hybrid",
    (_DEFAULT := "default_dense"): "dense",
}
"""The codes of the built-in rules, and the route of each."""

REASONS: Final = frozenset(_BUILT_IN)
"""The codes of the built-in rules; other reasons are words of one's own rules."""

RouteRule = Callable[[str], tuple[Route, str] | None]
"""A rule of one's own for `router_select`: takes the query; returns a route and the reason, or None to pass it on."""


class RouteChoice(TypedDict):
    """The route and its reasons."""

    route: Route
    reasons: list[str]


ROUTER_SELECT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "router_select",
        "description": (
            "Choose how to search before searching: bm25 for exact terms, numbers and names, dense for questions and "
            "descriptions in natural language, hybrid for both. Answers with the route and the reasons for it."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The user's query as it was written, in any language."}
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    },
}
"""`router_select` as a tool for agents, in the format of ``tools`` of OpenAI-compatible servers."""

_VERY_SHORT, _SHORT, _LONG = 16, 40, 120
_BEGINNING = 1000
_LETTERS_PER_HAN = 6 / HAN_PER_WORD

# Only the existence of a match matters, so each of the seed patterns may stop as soon as it is certain:
#   numbers   \b\d+[\d\-:\./]*\b              match exactly if a whole run of digits is between boundaries
#   dates     \b(\d{4}[\-/]\d{1,2}…)\b        begin with such a run: a date is also a number
#   entities  [@#][\w_]+|https?://\S+         one character of either is enough
# Unchanged, they take quadratic time on "111…1a", where every split of the run is tried. These patterns begin with a
# character and check the boundary by looking back: the search skips to that character instead of trying every place.
# Chinese characters are letters to a regular expression, but in 2024年计划 the number is a separate word.
_NUMBER = re.compile(f"\\d(?<![^\\W{HAN}].)\\d*+(?![^\\W{HAN}])", re.DOTALL)
_ENTITY = re.compile(r"[@#h](?:(?<=[@#])\w|ttps?://\S)")
# Identifiers are as exact as numbers: 0x80070057, ERR_CONNECTION_RESET.
_IDENTIFIER = re.compile(f"(?<![^\\W{HAN}])(?:0x[0-9a-f]|[^\\W{HAN}_][^\\W{HAN}]*_[^\\W{HAN}])")
# Matched on the reversed text: colons are rare, and the text before one is then a simple alternation of words.
_FILTER = re.compile(f":(?:{'|'.join(name[::-1] for name in FILTERS)})(?![^\\W{HAN}])")
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")


def router_select(query: str, rules: Sequence[RouteRule] = ()) -> RouteChoice:
    """Choose between bm25, dense and hybrid search by the form of a query.

    Time is linear in the length of the query; an empty query counts as very short.

    Args:
        query: the query as it was written.
        rules: further rules, asked in order before the built-in ones; the first that answers decides. Those of the
            setting ``route_rules`` are ``settings.route_rules``.

    Returns:
        ``{"route": "bm25" | "dense" | "hybrid", "reasons": [...]}``.

    Raises:
        InputError: the query is not a string, or a rule is not callable or returns something else.

    >>> def part_numbers(query: str) -> tuple[Route, str] | None:
    ...     return ("bm25", "part_number") if query.startswith("PN-") else None
    >>> router_select("PN-77 how do I mount it", rules=[part_numbers])
    {'route': 'bm25', 'reasons': ['part_number']}
    >>> router_select("дата создания")
    {'route': 'bm25', 'reasons': ['short_or_entity_numeric']}
    >>> router_select("为什么天空是蓝色的")
    {'route': 'dense', 'reasons': ['conversational_or_long']}
    """
    if not isinstance(query, str):
        raise InputError(f"a query is a str, not {type(query).__name__}: {query!r:.80}")
    for rule in rules:
        if (choice := _apply(rule, query)) is not None:
            return choice
    reason = _reason_by_form(plain(query))
    return {"route": _BUILT_IN[reason], "reasons": [reason]}


def _reason_by_form(text: str) -> str:
    if ":" in text and _FILTER.search(text[::-1]):
        return _FILTERS_OR_MIXED
    exact = any(pattern.search(text) is not None for pattern in (_NUMBER, _ENTITY, _IDENTIFIER))
    length = _length(text)
    if length > _LONG and not exact:  # decided; the words of a long text need not be examined
        return _CONVERSATIONAL_OR_LONG
    conversational = CONVERSATIONAL.first(text) is not None
    if exact and conversational:
        return _FILTERS_OR_MIXED
    very_short = length < _VERY_SHORT and not conversational and FUNCTION.first(text) is None
    if very_short or (exact and length <= _SHORT):
        return _SHORT_OR_EXACT
    if conversational or length > _LONG:
        return _CONVERSATIONAL_OR_LONG
    return _MIXED if exact else _DEFAULT


def _apply(rule: RouteRule, query: str) -> RouteChoice | None:
    if not callable(rule):
        raise InputError(f"a rule takes the query and returns (route, reason) or None; {rule!r:.80} is not callable")
    decision: object = rule(query)
    if decision is None:
        return None
    match decision:
        case ("bm25" | "dense" | "hybrid" as route, str(reason)):
            return {"route": route, "reasons": [reason]}
    raise InputError(f"a rule returns one of {', '.join(ROUTES)} with a reason, or None, not {decision!r:.80}")


def _length(text: str) -> float:
    """Return the number of visible characters; a run of white space counts as one, Chinese text by words."""
    if len(text) > _BEGINNING:
        beginning = _length(text[:_BEGINNING])
        if beginning > _LONG:  # the excess does not matter
            return beginning
    if not text.isprintable():
        text = _INVISIBLE.sub(" ", text)
    text = " ".join(text.split())
    han = 0 if text.isascii() else sum(map(len, HAN_RUN.findall(text)))
    return len(text) + han * (_LETTERS_PER_HAN - 1)
