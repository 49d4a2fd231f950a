r"""The syntax that people write into a query about the fields of documents: ``author:smith``, ``year:>=2020``.

=========================== =====================================================================================
``field:value``             the field is the value, whatever its case; ``field:"two words"``
``field:val*``              it begins with this; ``*val`` ends, ``*val*`` contains
``field:(a OR b)``          it is one of these; also ``a ИЛИ b``, ``a 或 b``, ``a, b``
``field:>=2020``            also ``>``, ``<`` and ``<=``; numbers, dates and texts
``-field:value``            it is not the value
``before:2024-05``          the date of the document is before; also ``до:``, ``之前:``
``after:2024-05``           it is after the end of May; also ``после:``, ``之后:``
``since:…``, ``until:…``    at the earliest, at the latest; also ``с:``, ``по:``
``date:2024-05``            the date is within; also ``дата:``, ``日期:``
=========================== =====================================================================================

``record number:4`` or ``"record number":4`` is a condition where documents have a field of that name.

A field begins with a letter, and a value follows its colon at once, so that ``10:30``, ``note: this``, ``std::sort``,
``C:\temp`` and ``https://a.example`` are words. Whether there is such a field only the documents can tell; see
`pointsman.retrieval.stages.written_filters`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, Literal

from pointsman.text.quantities import dates_in
from pointsman.text.unicode import fold

if TYPE_CHECKING:
    from collections.abc import Container

Comparison = Literal["is", ">", ">=", "<", "<="]

DATE: Final = "date"
"""The field that every word for the date of a document stands for, unless another is set."""

_DATE_WORDS: Final[dict[str, Comparison]] = {
    **dict.fromkeys(("date", "дата", "日期"), "is"),
    **dict.fromkeys(("before", "до", "перед", "之前", "以前"), "<"),
    **dict.fromkeys(("after", "после", "之后", "以后"), ">"),
    **dict.fromkeys(("since", "с", "自"), ">="),
    **dict.fromkeys(("until", "по", "至"), "<="),
}
_TERM: Final = re.compile(
    r"""(?<!\S) (?P<minus>-)? (?P<name>[^\W\d][\w.\-]*) [:：] (?P<comparison>[<>]=?|=)?
        (?: "(?P<quoted>[^"\n]*\w[^"\n]*)" | \((?P<list>[^()\n]*\w[^()\n]*)\) | (?P<word>[^\s:：\\/"()][^\s"()]*) )
        (?=[\s.,;!?。，；！？]|$)""",
    re.VERBOSE,
)
_CLOSING: Final = ".,;!?…。，；！？"
_ALTERNATIVE: Final = re.compile(r"\s+(?:OR|ИЛИ)\s+|\s*(?:或|[|,，、])\s*")
_YEAR_AND_MONTH: Final = re.compile(r"([12]\d{3})(?:[-./](0?[1-9]|1[0-2]))?")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """A condition on a field, as written.

    Attributes:
        name: of the field; empty: the date of the document.
        comparison: how its values compare.
        values: with any of these.
        is_excluded: whether documents must not meet it.
        written: the whole of it, as it stands in the query.
    """

    name: str
    comparison: Comparison
    values: tuple[str, ...]
    is_excluded: bool = False
    written: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """A year, a month or a day.

    Attributes:
        first: as ISO 8601 writes it: ``2024``, ``2024-05`` or ``2024-05-14``.
        following: the next one of its length.
    """

    first: str
    following: str


def written_names(text: str) -> tuple[str, ...]:
    """Return the names that stand where a field may.

    >>> written_names("budget author:smith -year:2024 at 10:30, see https://a.example and std::sort")
    ('author', 'year')
    """
    return tuple(dict.fromkeys(match["name"] for match in _TERM.finditer(text)))


def is_date_word(name: str) -> bool:
    """Whether a name means the date of a document, where no field has it."""
    return fold(name) in _DATE_WORDS


def read_fields(text: str, names: Container[str], *, has_date: bool) -> tuple[str, tuple[FieldTerm, ...]]:
    """Return a query without its conditions on fields, and these.

    Args:
        text: as the caller sent it.
        names: of the fields that there are.
        has_date: whether words for the date of a document are conditions, too.

    >>> read_fields("budget author:(smith OR lee) foo:bar before:2024", {"author"}, has_date=True)[0]
    'budget foo:bar'
    >>> read_fields("budget -year:>=2020", {"author", "year"}, has_date=False)[1]
    (FieldTerm(name='year', comparison='>=', values=('2020',), is_excluded=True, written='-year:>=2020'),)
    """
    terms: list[FieldTerm] = []

    def take(match: re.Match[str]) -> str:
        name, comparison, values = match["name"], _comparison(match["comparison"]), _values(match)
        if name not in names:
            implied = _DATE_WORDS.get(fold(name)) if has_date else None
            if implied is None or (implied != "is" and match["comparison"]) or not all(map(period_of, values)):
                return match[0]
            name, comparison = "", comparison if implied == "is" else implied
        if not values:
            return match[0]
        terms.append(FieldTerm(name, comparison, values, match["minus"] is not None, match[0].rstrip(_CLOSING)))
        return ""

    own_words = " ".join(_TERM.sub(take, text).split())
    return own_words, tuple(terms)


def _comparison(sign: str | None) -> Comparison:
    return "is" if sign in (None, "=") else sign  # type: ignore[return-value]  # the pattern has no other


def _values(match: re.Match[str]) -> tuple[str, ...]:
    if match["quoted"] is not None:
        return (match["quoted"].strip(),)
    if match["list"] is not None:
        return tuple(value.strip(' "') for value in _ALTERNATIVE.split(match["list"]) if value.strip(' "'))
    word = match["word"].rstrip(_CLOSING)
    return (word,) if word else ()


def period_of(value: str) -> Period | None:
    """Return the year, month or day that a value is, in any usual notation; None if it is none.

    >>> period_of("2024"), period_of("25.12.2024"), period_of("smith")
    (Period(first='2024', following='2025'), Period(first='2024-12-25', following='2024-12-26'), None)
    >>> period_of("2023-12"), period_of("2024年2月29日")
    (Period(first='2023-12', following='2024-01'), Period(first='2024-02-29', following='2024-03-01'))
    """
    year: int | None
    month: int | None
    day: int | None = None
    if (match := _YEAR_AND_MONTH.fullmatch(value)) is not None:
        year, month = int(match[1]), int(match[2]) if match[2] else None
    else:
        mention = next(dates_in(value), None)
        if mention is None or (mention.start, mention.end) != (0, len(value)):
            return None
        year, month, day = mention.dates[0]  # of 05/06/2024 the day comes first
    try:
        first = date(year or 0, month or 1, day or 1)  # year 0 is refused, as is 30 February
    except ValueError:
        return None
    if month is None:
        return Period(f"{year}", f"{first.year + 1}")
    if day is None:
        return Period(f"{first:%Y-%m}", f"{first + timedelta(31):%Y-%m}")
    return Period(f"{first}", f"{first + timedelta(1)}")
