"""Numbers of a workbook as its sheets show them; dates and times in ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple

FIRST_DAY = datetime(1899, 12, 30)  # noqa: DTZ001  (cells have no time zone)
"""The day from which most workbooks count."""

BUILT_IN_FORMATS = {
    "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%", "11": "0.00E+00",
    **dict.fromkeys(map(str, (*range(14, 18), *range(27, 32), 36, *range(50, 59))), "yyyy-mm-dd"),
    **dict.fromkeys(map(str, (18, 19, 20, 21, 32, 33, 34, 35, 45, 47)), "h:mm:ss"),
    "22": "yyyy-mm-dd h:mm", "37": "#,##0", "38": "#,##0", "39": "#,##0.00", "40": "#,##0.00", "46": "[h]:mm:ss",
}  # fmt: skip
"""Number formats that a workbook names by their number alone."""

_PARTS = re.compile(
    r'"([^"]*)"|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]|\[([hms]+)\]|\[[^\]]*\]|([0#?][0#?,.]*|\.[0#?]+)|(E[+-]0+)|(.)',
    re.IGNORECASE,
)
_GREATEST_DAY = 2_958_466


class _Format(NamedTuple):
    """A section of a number format: what stands before and after the number, and how the number is written."""

    before: str
    after: str
    digits: str  # such as #,##0.00; empty if there is no number
    percents: int
    is_scientific: bool
    is_date: bool
    elapsed: str  # the unit of a duration: h, m or s


def shown(value: str, code: str, begin: datetime) -> str:
    """Write a number in a format.

    >>> day = datetime(1899, 12, 30)
    >>> [shown(*pair, day) for pair in (("0.075", "0.0%"), ("123", "00000"), ("1.5", "[h]:mm"))]
    ['7.5%', '00123', '36:00']
    """
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return value
    if not amount.is_finite() or abs(amount.adjusted()) > 300:
        return value
    sections = _sections(code)
    form = sections[1 if amount < 0 and len(sections) > 1 else 2 if amount == 0 and len(sections) > 2 else 0]
    if form.elapsed:
        return _duration(amount, form.elapsed)
    if form.is_date and 0 <= amount < _GREATEST_DAY:
        return _date(begin + timedelta(days=float(amount)), amount)
    if not form.digits or form.is_scientific:
        number = _general(value, amount)
        return f"{form.before}{number}{form.after}" if form.before or form.after else number
    sign = "-" if amount < 0 and len(sections) == 1 else ""
    return f"{sign}{form.before}{_in_digits(abs(amount), form)}{form.after}".strip()


def _general(value: str, amount: Decimal) -> str:
    if amount == amount.to_integral_value() and amount.adjusted() < 21:
        return str(int(amount))
    return f"{float(value):.15g}"


def _in_digits(amount: Decimal, form: _Format) -> str:
    digits = form.digits
    amount *= 100**form.percents
    while digits.endswith(","):
        digits, amount = digits[:-1], amount / 1000
    whole_number, _, fraction = digits.partition(".")
    places = min(sum(char in "0#?" for char in fraction), 15)
    text = (
        f"{amount.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):f}" if amount.adjusted() < 24 else f"{amount:f}"
    )
    first, _, last = text.partition(".")
    first = first.zfill(min(whole_number.count("0"), 30))
    if "," in whole_number:
        first = f"{int(first):,}"
    optional = len(fraction) - len(fraction.rstrip("#?"))
    while optional and last.endswith("0"):
        last, optional = last[:-1], optional - 1
    return f"{first}.{last}" if last else first


@lru_cache(maxsize=1000)
def _sections(code: str) -> tuple[_Format, ...]:
    """Return the sections of a number format: for positive numbers, negative ones, zero."""
    masked_text = re.sub(r'"[^"]*"|\\.', lambda literal: "x" * len(literal[0]), code)
    ends = [match.start() for match in re.finditer(";", masked_text)]
    return tuple(
        _section(code[start:end]) for start, end in zip([0, *(e + 1 for e in ends)], [*ends, len(code)], strict=True)
    )


def _section(code: str) -> _Format:
    texts, digits, elapsed = ["", ""], "", ""
    is_scientific = is_date = False
    percents = 0
    for quoted_text, escaped_text, currency, unit, number, exponent, other_format in _PARTS.findall(
        re.sub("General|@", "", code, flags=re.IGNORECASE)
    ):
        elapsed = elapsed or unit[:1].lower()
        is_scientific = is_scientific or bool(exponent)
        is_date = is_date or (other_format.lower() in set("ymdhsгдмчс") and not digits)
        percents += other_format == "%"
        if number and not digits and not is_date:
            digits = number
        texts[bool(digits)] += quoted_text + escaped_text + currency + other_format
    return _Format(
        "" if is_date else texts[0], "" if is_date else texts[1], digits, percents, is_scientific, is_date, elapsed
    )


def _duration(amount: Decimal, unit: str) -> str:
    seconds = int((abs(amount) * 86_400).to_integral_value())
    sign = "-" if amount < 0 else ""
    minutes, rest = divmod(seconds, 60)
    text = f"{minutes // 60}:{minutes % 60:02}" if unit == "h" else str(minutes) if unit == "m" else str(seconds)
    return sign + text + (f":{rest:02}" if rest and unit != "s" else "")


def _date(moment: datetime, serial: Decimal) -> str:
    moment = (moment + timedelta(microseconds=500)).replace(microsecond=0)  # days are binary fractions
    if serial < 1:
        return moment.time().isoformat()
    return (moment.date() if serial == int(serial) else moment).isoformat().replace("T", " ")
