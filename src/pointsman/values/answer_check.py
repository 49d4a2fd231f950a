"""Which quotes and figures of an answer stand in the passages that it cites, and which are unsupported."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pointsman.text import detect
from pointsman.text.quantities import Date, Quantity, quantities
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import form_of

if TYPE_CHECKING:
    from pointsman.values.citations import Hit

Status = Literal["exact", "near", "unsupported"]


NEAR = 85.0
"""Percentage of a quote's characters that a hit must contain in the same order for the quote to be near."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A quote or number in an answer, and where the hits support it.

    Attributes:
        kind: ``"quote"``, ``"number"``, ``"date"``, or ``"name"`` for names with digits such as ``GPT-4``.
        text: the claim as written in the answer.
        start: offset of its first character in the answer.
        end: offset after its last character.
        status: ``"exact"``: a hit contains it: a quote character for character (except white space), a number with its
            value and unit in any notation. ``"near"``: a quote with small changes that do not affect numbers, or a
            number without a unit in the hit. ``"unsupported"``: no hit contains it.
        hit: the number of the supporting hit, from 1, preferably the one that the answer cites for the claim; None if
            there is none.
        span: its position in the text of that hit's document; None in a title.
        similarity: of a quote to the matched text, in percent.
        named: numbers of the sources that the answer cites for the claim, such as ``[2]``.
    """

    kind: Literal["quote", "number", "date", "name"]
    text: str
    start: int
    end: int
    status: Status
    hit: int | None = None
    span: tuple[int, int] | None = None
    similarity: float = 0.0
    named: tuple[int, ...] = ()

    FORM: ClassVar = ("kind", "text", "start", "end", "status", "hit", "span", "similarity", "named", "misattributed")

    @property
    def misattributed(self) -> bool:
        """Whether a hit supports the claim, but none of those that the answer cites for it."""
        return self.hit is not None and bool(self.named) and self.hit not in self.named


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """The result of `verify`: an answer's quotes and numbers.

    An answer without any is ``supported``; its other sentences are not checked.
    """

    claims: tuple[Claim, ...]

    FORM: ClassVar = ("supported", "claims")

    @property
    def supported(self) -> bool:
        """Whether the hits support every quote and number, exactly or nearly."""
        return not self.unsupported

    @property
    def hits(self) -> list[int]:
        """The numbers, from 1, of the hits in which quotes and numbers were found."""
        return sorted({claim.hit for claim in self.claims if claim.hit is not None})

    @property
    def unsupported(self) -> tuple[Claim, ...]:
        """The claims that no hit supports."""
        return tuple(claim for claim in self.claims if claim.status == "unsupported")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON form."""
        return form_of(self)


MAX_ANSWER = 200_000
"""Maximum characters of an answer."""


def verify(answer: str, hits: Iterable[Hit], *, timeout: float | None = None) -> AnswerCheck:
    """Look up every quote and number of an answer in hits, without a model.

    Quotes are text in quotation marks (English, Russian, Chinese and German) and Markdown's quoted lines. Numbers are
    compared by value: thousands separators, decimal commas, powers in words, Chinese numerals, units in three
    languages, dates in any order; nothing is rounded. List numbers and source numbers (``[2]``) are not claims.

    Args:
        answer: at most 200,000 characters.
        hits: a context, or its hits, in the order in which the model saw them.
        timeout: in seconds; every quote is compared with every hit, which can take minutes. None means no limit.

    Raises:
        InputError: the answer is longer, not a str, or could not be checked in time.

    >>> from pointsman.values.types import Document, Hit
    >>> hits = [Hit(Document("a", "The line is 1,200 km long and was opened in May 1994."), 1.0)]
    >>> check = verify('It has 1200 kilometres, "was opened in June 1994" [1].', hits)
    >>> [(claim.text, claim.status) for claim in check.claims]
    [('1200 kilometres', 'exact'), ('was opened in June 1994', 'unsupported')]
    """
    if not isinstance(answer, str):
        raise InputError(f"an answer is the text of a language model, a str, not {answer!r:.80}")
    if len(answer) > MAX_ANSWER:
        raise InputError(f"an answer has at most {MAX_ANSWER} characters, not {len(answer)}")
    sources = _Sources(hits, timeout)
    spans = list(_quotes(answer))
    claims = [_quote_claim(answer, span, sources) for span in spans]
    claims += [_quantity_claim(answer, quantity, sources) for quantity in _quantities_of(answer, spans)]
    return AnswerCheck(tuple(sorted(claims, key=lambda claim: claim.start)))


_QUOTE = re.compile(
    "|".join(
        rf"{begin}([^{begin}{end}]{{1,2000}})[{end}]"
        for begin, end in (("“", "”"), ("«", "»"), ("„", "“”"), ("「", "」"), ("『", "』"))
    )
    + r"|(?<!\w)‘([^‘]{2,2000}?)’(?!\w)"
    + r'|(?<![\w"])"([^"\n]{1,2000})"(?!\w)'
    + r"|^[ ]{0,3}(>[^\n]*(?:\n[ ]{0,3}>[^\n]*)*)",
    re.MULTILINE,
)


_LINE_MARK = re.compile(r"^[ ]{0,3}>[ ]?", re.MULTILINE)


_SOURCE_MARK = re.compile(
    r"[\[【](\d{1,3}(?:\s?[,;–-]\s?\d{1,3})*)[\]】]|\((?:sources?|источник\w*|来源)\s(\d{1,3})\)", re.IGNORECASE
)


_NUMBERING = r"\d{1,3}(?:\.\d{1,3})*"


_LIST_MARK = re.compile(rf"^[ \t]*(?:#{{1,6}}[ ]+{_NUMBERING}[.)、]?[ \t]|{_NUMBERING}(?:[.)][ \t]|、))", re.MULTILINE)


_WORD = re.compile(r"\w")


def _quotes(answer: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of quoted text and quoted lines; those without words are skipped."""
    for match in _QUOTE.finditer(answer):
        start, end = match.span(match.lastindex or 0)
        if _WORD.search(answer, start, end):
            yield start, end


def _quantities_of(answer: str, quotations: Sequence[tuple[int, int]]) -> Iterator[Quantity]:
    """Yield numbers, dates and names with digits that are outside quotes, list markers and source markers."""
    plain = list(answer)
    for start, end in [*quotations, *(mark.span() for mark in _SOURCE_MARK.finditer(answer))]:
        plain[start:end] = "\n" * (end - start)
    text = "".join(plain)
    for mark in _LIST_MARK.finditer(text):
        if text[mark.end() : mark.end() + 1].strip():
            plain[mark.start() : mark.end()] = " " * (mark.end() - mark.start())
    yield from quantities("".join(plain), detect(answer))


class _Passage:
    """A hit's text, prepared for looking up claims."""

    def __init__(self, text: str, title: str) -> None:
        self.text, self.title = text, _fold(title)[0].strip()
        self.folded, self.places = _fold(self.text)

    @cached_property
    def in_text(self) -> _Quantities:
        return _Quantities(self.text, detect(self.text))

    @cached_property
    def in_title(self) -> _Quantities:
        return _Quantities(self.title, detect(self.text))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Convert a span of the folded text to a span of the text."""
        return self.places[start], self.places[end - 1] + 1

    def find(self, quote: str, begin: int = 0) -> tuple[int, int] | None:
        """Return the span of a quote in the folded text, at word boundaries only."""
        index = self.folded.find(quote, begin)
        while index >= 0:
            end = index + len(quote)
            if not _tears(self.folded, index) and not _tears(self.folded, end):
                return index, end
            index = self.folded.find(quote, index + 1)
        return None


class _Sources:
    """The passages of all hits; equal hits are one passage, which is looked at once."""

    def __init__(self, hits: Iterable[Hit], timeout: float | None) -> None:
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise InputError(f"timeout is a number of seconds above 0, or None, not {timeout!r:.80}")
        self._timeout, self._start = timeout, perf_counter()
        self._passages: list[_Passage] = []
        passages: dict[tuple[str, str], _Passage] = {}
        for hit in hits:
            self._check_time()
            key = hit.document.text, hit.document.title
            self._passages.append(passages.get(key) or passages.setdefault(key, _Passage(*key)))

    def __getitem__(self, number: int) -> _Passage:
        return self._passages[number - 1]

    def by_number(self, numbers: Sequence[int]) -> Iterator[tuple[int, _Passage]]:
        """Yield the number of each hit and its passage, the cited ones first.

        Raises:
            InputError: the time is over.
        """
        numbers_visited: set[int] = set()
        for number in (*numbers, *range(1, len(self._passages) + 1)):
            if not 1 <= number <= len(self._passages) or id(self[number]) in numbers_visited:
                continue
            numbers_visited.add(id(self[number]))
            self._check_time()
            yield number, self[number]

    def _check_time(self) -> None:
        if self._timeout is not None and perf_counter() - self._start >= self._timeout:
            remedy = "check a part of it, or fewer hits, at a time"
            raise InputError(f"the answer could not be checked within {self._timeout:g} s; {remedy}")


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the text with each run of white space as one space, and the original offset of each character.

    Only composed and decomposed accents are unified.
    """
    characters: list[str] = []
    offsets: list[int] = []
    for segment in _SEGMENT.finditer(text):
        characters_of_segment = " " if segment[0].isspace() else unicodedata.normalize("NFC", segment[0])
        characters.append(characters_of_segment)
        offsets.extend([segment.start()] * len(characters_of_segment))
    return "".join(characters), offsets


_SEGMENT = re.compile(r"\s+|[^\s\u0300-\u036f][\u0300-\u036f]{0,30}|[\u0300-\u036f]{1,30}")


def _tears(text: str, offset: int) -> bool:
    """Whether a cut here would split a word; Chinese words have no visible boundaries."""
    if not 0 < offset < len(text):
        return False
    return all(
        character.isalnum() and not "\u2e80" <= character <= "\U0003ffff" for character in text[offset - 1 : offset + 1]
    )


class _Quantities:
    """The numbers, dates and names of a text, indexed by value."""

    def __init__(self, text: str, language: str) -> None:
        self._dates: list[Quantity] = []
        self._by_key: dict[tuple[str, object], Quantity] = {}
        for quantity in quantities(text, language, words=True):
            self._by_key.setdefault(("as written", _folded_text(text, quantity)), quantity)
            if quantity.kind == "date":
                self._dates.append(quantity)
                for year, _, _ in quantity.dates:
                    self._by_key.setdefault(("value", (year, "")), quantity)
            elif quantity.kind == "name":
                self._by_key.setdefault(("name", quantity.name), quantity)
            else:
                self._by_key.setdefault(("value", (quantity.value, quantity.unit)), quantity)
                self._by_key.setdefault(("count", (quantity.count, bool(quantity.unit))), quantity)

    def find(self, text: str, claim: Quantity) -> tuple[Quantity, Status] | None:
        """Look up a quantity of another text: exact, or near if only one side has a unit."""
        if match := self._by_key.get(("as written", _folded_text(text, claim))):
            return match, "exact"
        if claim.kind == "name":
            name = self._by_key.get(("name", claim.name))
            return (name, "exact") if name else None
        if claim.kind == "date":
            date = next((quantity for quantity in self._dates if _covers(quantity.dates, claim.dates)), None)
            return (date, "exact") if date else None
        if value := self._by_key.get(("value", (claim.value, claim.unit))):
            return value, "exact"
        count = self._by_key.get(("count", (claim.count, not claim.unit)))
        return (count, "near") if count else None


def _folded_text(text: str, quantity: Quantity) -> str:
    return _fold(text[quantity.start : quantity.end])[0].strip().casefold()


def _covers(dates: Iterable[Date], claims: Iterable[Date]) -> bool:
    """Whether a date contains at least every part of a claimed date."""
    return any(
        all(
            claim_field is None or claim_field == date_field
            for claim_field, date_field in zip(claim, date, strict=True)
        )
        for date in dates
        for claim in claims
    )


def _quote_claim(answer: str, span: tuple[int, int], sources: _Sources) -> Claim:
    raw = answer[slice(*span)]
    quote = _fold(_LINE_MARK.sub("", raw) if raw.startswith(">") else raw)[0].strip()
    numbers = _cited_sources(answer, span[1])
    for number, passage in sources.by_number(numbers):
        if match := passage.find(quote):
            return Claim("quote", raw, *span, "exact", number, passage.span(*match), 100.0, numbers)
    for number, passage in sources.by_number(numbers):
        if quote == passage.title:
            return Claim("quote", raw, *span, "exact", number, None, 100.0, numbers)
    candidates = [
        (nearest, -rank, number)
        for rank, (number, passage) in enumerate(sources.by_number(numbers))
        if (nearest := _nearest(quote, passage))
    ]
    if not candidates:
        return Claim("quote", raw, *span, "unsupported", named=numbers)
    (similarity, start, end), _, number = max(candidates)
    return Claim("quote", raw, *span, "near", number, sources[number].span(start, end), similarity, numbers)


_LONGEST_NEAR = 2000  # longest quote, in characters, that is compared letter by letter


_LEFT_OUT = re.compile(r"\s?(?:\[\s?(?:…|\.{3})\s?\]|…|\.{3})\s?")


_NEGATIONS = re.compile(
    r"\b(?:not?|never|none|nor|neither|without|не|ни|нет|никогда|без)\b|n't\b|n’t\b|[不没沒无無未非]", re.IGNORECASE
)


def _nearest(quote: str, passage: _Passage) -> tuple[float, int, int] | None:
    """Return the percentage of a quote that matches a passage and the span in the folded text; None if too little.

    Text with a different number, or with a negation more or less, is never near.
    """
    from rapidfuzz import fuzz  # needed only for quotes that are not exact

    if (match := _parts_in_order(quote, passage)) is not None:
        return 100.0, *match
    if not (6 if _is_chinese(quote) else 16) <= len(quote) <= min(len(passage.folded), _LONGEST_NEAR):
        return None
    alignment = fuzz.partial_ratio_alignment(quote, passage.folded, score_cutoff=NEAR)
    if alignment is None or alignment.score < NEAR:
        return None
    start, end = alignment.dest_start, alignment.dest_end
    while _tears(passage.folded, start):
        start -= 1
    while _tears(passage.folded, end):
        end += 1
    passage_text = passage.folded[start:end]
    if _says(quote) != _says(passage_text) or len(_NEGATIONS.findall(quote)) != len(_NEGATIONS.findall(passage_text)):
        return None
    return alignment.score, start, end


def _parts_in_order(quote: str, passage: _Passage) -> tuple[int, int] | None:
    """Return the span of a quote with omissions, whose parts must occur in order."""
    segments = [segment for segment in _LEFT_OUT.split(quote) if _WORD.search(segment)]
    if len(segments) < 2:
        return None
    begin = end = -1
    for segment in segments:
        match = passage.find(segment, max(end, 0))
        if match is None:
            return None
        begin, end = (match[0] if begin < 0 else begin), match[1]
    return begin, end


def _is_chinese(text: str) -> bool:
    return sum("\u2e80" <= char <= "\U0003ffff" for char in text) * 2 > len(text)


def _says(text: str) -> list[object]:
    """Return the values of a text's numbers."""
    return [
        quantity.dates or quantity.name or (quantity.value, quantity.unit)
        for quantity in quantities(text, detect(text))
    ]


def _quantity_claim(answer: str, quantity: Quantity, sources: _Sources) -> Claim:
    raw, numbers = answer[quantity.start : quantity.end], _cited_sources(answer, quantity.end)
    nearest: Claim | None = None
    for number, passage in sources.by_number(numbers):
        for field in (passage.in_text, passage.in_title):
            if (match := field.find(answer, quantity)) is None:
                continue
            source_quantity, status = match
            span = (source_quantity.start, source_quantity.end) if field is passage.in_text else None
            claim = Claim(quantity.kind, raw, quantity.start, quantity.end, status, number, span, 100.0, numbers)
            if status == "exact":
                return claim
            nearest = nearest or claim
    return nearest or Claim(quantity.kind, raw, quantity.start, quantity.end, "unsupported", named=numbers)


def _cited_sources(answer: str, end: int) -> tuple[int, ...]:
    """Return the sources cited next after a claim, in the same sentence or directly after its full stop."""
    mark = _SOURCE_MARK.search(answer, end, end + 300)
    if mark is None or re.search(r"[.!?。！？\n]\s*[^\s\[【(]", answer[end : mark.start()]):
        return ()
    while (following := _SOURCE_MARK.match(answer, mark.end())) is not None:
        mark = following
    numbers: list[int] = []
    for match in _SOURCE_MARK.finditer(answer, end, mark.end()):
        tokens = re.findall(r"\d+|[-–]", match[1] or match[2])
        for index, token in enumerate(tokens):
            if token.isdigit():
                numbers.append(int(token))
            elif 0 < index < len(tokens) - 1:
                numbers += range(int(tokens[index - 1]) + 1, min(int(tokens[index + 1]), 1000))
    return tuple(dict.fromkeys(numbers))
