"""Parts of texts: where to cut them, how to join them, and how many of them fit a budget.

Every function runs in time linear in the texts.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.tools.errors import InputError
from pointsman.values.types import Excerpt, Hit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Span = tuple[int, int]

JOINER = " … "
"""Joins two parts of an excerpt that are not neighbours in the source; it counts towards the budget."""

LONGEST = 400
"""The most characters of one unit: a longer sentence (a table, a transcript without stops) is split into pieces."""

LEAST = 30
"""The fewest characters of a partial sentence that is worth keeping beside whole ones."""

_DENSE = "\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_DENSE}]|[^\s{_DENSE}]{{1,60}}")
_CLAUSE_MARKS = "，；：、,;:—–"


class Unit(NamedTuple):
    """A sentence, or a piece of a long one: the number of its hit, and its place in the document's text."""

    hit: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextBudget:
    """The budget for all texts of an answer together.

    Attributes:
        most: the limit.
        unit: what is counted, in words.
        count: counts a text; need not be additive.
    """

    most: int
    unit: str = "characters"
    count: Callable[[str], int] = len

    def cost(self, text: str) -> int:
        """The cost of a text.

        Raises:
            InputError: ``count`` did not return a valid number.
        """
        cost = self.count(text)
        if not isinstance(cost, int) or isinstance(cost, bool) or cost < 0:
            raise InputError(f"a counter of {self.unit} returns an int from 0 up, not {cost!r:.80}")
        return cost


def regions(hit: Hit) -> tuple[Span, ...]:
    """The parts of a hit that may be read: the spans of an earlier excerpt, otherwise the whole text."""
    spans = hit.excerpt.spans if hit.excerpt is not None else ()
    return spans or ((0, len(hit.document.text)),)


def units_of(hits: Sequence[Hit]) -> list[Unit]:
    """The sentences of all hits in order, long ones in pieces; together they cover everything but white space."""
    units = []
    for index, hit in enumerate(hits):
        text = hit.document.text
        for first, last in regions(hit):
            region = text[first:last]
            for start, end in sentences(region):
                units += [Unit(index, first + a, first + b) for a, b in pieces(region, start, end)]
    return units


def pieces(text: str, start: int, end: int, longest: int = LONGEST) -> Iterator[Span]:
    """Splits a stretch into pieces of at most ``longest`` characters, between clauses, else words, else characters."""
    while end - start > longest:
        stop = _stop(text, start + longest // 2, start + longest)
        yield from _trim_span(text, start, stop)
        start = stop
    yield from _trim_span(text, start, end)


def _stop(text: str, lowest: int, highest: int) -> int:
    """The best place to cut in ``[lowest, highest]``."""
    tail = text[lowest:highest]
    clause = max(tail.rfind(mark) for mark in _CLAUSE_MARKS)
    if clause >= 0:
        return lowest + clause + 1
    for offset in range(len(tail) - 1, -1, -1):
        if tail[offset].isspace():
            return lowest + offset + 1
    return _whole_character(text, lowest, highest)


def _whole_character(text: str, lowest: int, position: int) -> int:
    """The last place up to ``position`` that does not separate a character from its combining marks."""
    index = position
    while index > lowest and index < len(text) and _continues(text, index):
        index -= 1
    return index if index > lowest else position


def _continues(text: str, position: int) -> bool:
    """Whether the character belongs to the one before: accents, joiners, skin tones, half of a surrogate pair."""
    character, previous = text[position], text[position - 1]
    if (
        "\u200d" in (character, previous)
        or "\ufe00" <= character <= "\ufe0f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    ):
        return True
    if "\udc00" <= character <= "\udfff" and "\ud800" <= previous <= "\udbff":
        return True
    return unicodedata.category(character) in ("Mn", "Me", "Mc")


def _trim_span(text: str, start: int, end: int) -> Iterator[Span]:
    region = text[start:end]
    bare = region.strip()
    if bare:
        start += len(region) - len(region.lstrip())
        yield start, start + len(bare)


def window(text: str, start: int, end: int, room: int, words: Mapping[str, float]) -> Span:
    """At most ``room`` characters of a stretch, cut between words, around those that matter.

    Args:
        text: the text that ``start`` and ``end`` are offsets of.
        start: where the stretch begins; at most some hundred characters before ``end``.
        end: where it ends.
        room: at least 1.
        words: the weight of each token of the query.
    """
    if end - start <= room:
        return start, end
    spans = [(match.start(), match.end(), _worth(match[0], words)) for match in _WORD.finditer(text, start, end)]
    first, last = _densest([word for word in spans if word[2] > 0], room) or (start, start)
    # The remaining room goes to both sides, or to the one that has more text.
    slack = room - (last - first)
    right = min(end, last + slack - min(slack // 2, first - start))
    begin = max(start, right - room)
    begin = begin if begin == start else next((a for a, _, _ in spans if begin <= a <= first), first)
    if right < end:
        right = max((b for _, b, _ in spans if max(last, begin + 1) <= b <= right), default=right)
        right = _whole_character(text, begin, right)
    return next(_trim_span(text, begin, right), (begin, right))


def _worth(word: str, words: Mapping[str, float]) -> float:
    return sum(words.get(token, 0.0) for token in set(DEFAULT_ANALYZER.tokens(word)))


def _densest(matches: Sequence[tuple[int, int, float]], room: int) -> Span | None:
    """The range of matches, from one to another, with the greatest total weight within ``room``; None if none fits."""
    best, span = 0.0, None
    worth, first = 0.0, 0
    for _, end, value in matches:
        worth += value
        while first < len(matches) and end - matches[first][0] > room:
            worth -= matches[first][2]
            first += 1
        if worth > best and matches[first][0] < end:
            best, span = worth, (matches[first][0], end)
    return span


def fill(
    order: Iterable[Unit], hits: Sequence[Hit], budget: TextBudget, words: Mapping[str, float]
) -> tuple[Excerpt | None, ...]:
    """Take units in the order given until one doesn't fit; of that one, the part that fits around ``words``.

    So a larger budget in characters keeps every whole unit that a smaller one keeps, whatever the texts.

    Returns:
        One excerpt per hit, None if nothing of it was taken. Their total cost is within the budget.
    """
    filling = _Filling([hit.document.text for hit in hits], budget)
    for unit in order:
        if not filling.take(unit):
            filling.take_part(unit, words)
            break
    return filling.excerpts()


class _Filling:
    """The units taken so far, in source order by hit, and their cost."""

    def __init__(self, texts: Sequence[str], budget: TextBudget) -> None:
        self.texts, self.budget = texts, budget
        self.parts: list[list[Span]] = [[] for _ in texts]
        self.history: list[Unit] = []
        self.spent = 0
        self.joiner = budget.cost(JOINER)

    def take(self, unit: Unit) -> bool:
        """Take a unit if it fits; returns whether it did."""
        spans = self.parts[unit.hit]
        index = bisect_left(spans, (unit.start, unit.end))
        previous, following = spans[index - 1 : index], spans[index : index + 1]
        cost = self.budget.cost(self.texts[unit.hit][unit.start : unit.end])
        new_span = [(unit.start, unit.end)]
        cost += self._cost_between(unit.hit, previous, new_span) + self._cost_between(unit.hit, new_span, following)
        cost -= self._cost_between(unit.hit, previous, following)
        if self.spent + cost > self.budget.most:
            return False
        self.spent += cost
        spans.insert(index, (unit.start, unit.end))
        self.history.append(unit)
        return True

    def take_part(self, unit: Unit, words: Mapping[str, float]) -> None:
        """Take as much of a unit as fits, if that is worth keeping."""
        room_left = self.budget.most - self.spent - (self.joiner if self.parts[unit.hit] else 0)
        if room_left <= 0:
            return
        text = self.texts[unit.hit]
        full_cost = self.budget.cost(text[unit.start : unit.end])
        room = max(1, (unit.end - unit.start) * room_left // max(full_cost, room_left))
        while room >= (LEAST if self.history else 1):
            start, end = window(text, unit.start, unit.end, room, words)
            if self.take(Unit(unit.hit, start, end)):
                return
            room = room * 3 // 4  # tokens are not characters: the guess was too large

    def excerpts(self) -> tuple[Excerpt | None, ...]:
        """The excerpts; with a counter that is not additive, the last units may have to be given back."""
        excerpts = [self._excerpt(index) for index in range(len(self.texts))]
        costs = [self.budget.cost(excerpt.text) if excerpt else 0 for excerpt in excerpts]
        while sum(costs) > self.budget.most and self.history:
            unit = self.history.pop()
            self.parts[unit.hit].remove((unit.start, unit.end))
            excerpt = excerpts[unit.hit] = self._excerpt(unit.hit)
            costs[unit.hit] = self.budget.cost(excerpt.text) if excerpt else 0
        return tuple(excerpts)

    def _excerpt(self, index: int) -> Excerpt | None:
        text = self.texts[index]
        spans: list[Span] = []
        for start, end in self.parts[index]:
            if spans and _neighbours(text, spans[-1][1], start):
                spans[-1] = spans[-1][0], end
            else:
                spans.append((start, end))
        return excerpt(text, spans) if spans else None

    def _cost_between(self, hit: int, spans_before: list[Span], spans_after: list[Span]) -> int:
        """The cost of what stands between two parts: the joiner, or the source's own white space."""
        if not spans_before or not spans_after:
            return 0
        end, start = spans_before[0][1], spans_after[0][0]
        if _neighbours(self.texts[hit], end, start):
            return self.budget.cost(self.texts[hit][end:start]) if end < start else 0
        return self.joiner


def _neighbours(text: str, end: int, start: int) -> bool:
    """Whether two parts are joined by the source's own white space, provided it is not longer than the joiner."""
    return start - end <= len(JOINER) and not text[end:start].strip()


def excerpt(text: str, spans: Sequence[Span]) -> Excerpt:
    """The excerpt that consists of these spans of a text."""
    return Excerpt(JOINER.join(text[start:end] for start, end in spans), tuple(spans))
