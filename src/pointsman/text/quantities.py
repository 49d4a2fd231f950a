"""Normalises numbers, dates and names with digits in English, Chinese and Russian text.

It tells whether a number in one text also occurs in another, in any notation: ``1,200,000``, ``1 200 000``,
``1.2 million``, ``1,2 млн`` and ``120万`` are one number; ``5 km``, ``5 км`` and ``5000 m`` are one quantity;
``12 March 2024``, ``12.03.2024`` and ``2024年3月12日`` are one date. Nothing is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Literal

from pointsman.tools.late_regex import late

Date = tuple[int | None, int | None, int | None]
"""Year, month and day; None for a missing part."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit, a date, or a name with digits, and its position in the text.

    Attributes:
        kind: what it is.
        start: offset of its first character in the text.
        end: offset after its last character.
        value: the number in the unit's base (metres, grams, seconds, bytes …).
        count: the number in the unit as written.
        unit: what is counted: ``"length"``, ``"%"``, ``"usd"`` …; empty if there is no known unit.
        dates: the readings of a date; more than one if day and month are ambiguous.
        name: the name in lower case.
    """

    kind: Literal["number", "date", "name"]
    start: int
    end: int
    value: Decimal = Decimal(0)
    count: Decimal = Decimal(0)
    unit: str = ""
    dates: tuple[Date, ...] = ()
    name: str = ""


_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan январь января январе янв",
            "february feb февраль февраля феврале фев",
            "march mar март марта марте мар",
            "april apr апрель апреля апреле апр",
            "may май мая мае",
            "june jun июнь июня июне июн",
            "july jul июль июля июле июл",
            "august aug август августа августе авг",
            "september sept sep сентябрь сентября сентябре сен сент",
            "october oct октябрь октября октябре окт",
            "november nov ноябрь ноября ноябре ноя нояб",
            "december dec декабрь декабря декабре дек",
        ),
        start=1,
    )
    for name in names.split()
}
_MONTHS_BY_LETTER = {
    letter: "|".join(name[1:] for name in sorted(_MONTHS, key=len, reverse=True) if name[0] == letter)
    for letter in sorted({name[0] for name in _MONTHS})
}
_MONTH = "|".join(f"{letter}(?:{endings})" for letter, endings in _MONTHS_BY_LETTER.items())
_HAN_DIGITS = {
    char: number
    for number, chars in enumerate(["〇零", "一壹", "二两兩贰", "三叁", "四肆", "五伍", "六陆", "七柒", "八捌", "九玖"])
    for char in chars
}
_HAN_TENS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_HAN_MYRIADS = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
HAN_DIGITS: Final = "".join(_HAN_DIGITS)
_HAN_CHARACTERS = frozenset((*_HAN_DIGITS, *_HAN_TENS, *_HAN_MYRIADS))
HAN_NUMERALS: Final = "".join(sorted(_HAN_CHARACTERS))
_HAN_DAY = f"[{HAN_DIGITS}十]{{1,3}}"

_DAY_FIRST = r"(?<![\d.])(?P<d2>[0-3]?\d)\.(?P<m2>[01]?\d)\.(?P<y2>[12]\d{3})(?!\d)"
_WITH_SLASHES = r"(?<![\d/])(?P<a3>[0-3]?\d)/(?P<b3>[0-3]?\d)/(?P<y3>[12]\d{3})(?!\d)"
_MONTH_AND_YEAR = (
    rf"(?:(?<![\d.,])(?P<d6>[0-3]?\d)(?:st|nd|rd|th|-го)?\s{{1,2}}(?:of\s{{1,2}})?)?"
    rf"\b(?P<m6>{_MONTH})\b\.?,?\s{{1,2}}(?P<y6>[12]\d{{3}})(?!\d)"
)
_MONTH_FIRST = rf"\b(?P<m7>{_MONTH})\b\.?\s{{1,2}}(?P<d7>[0-3]?\d)(?:st|nd|rd|th)?(?:,?\s{{1,2}}(?P<y7>[12]\d{{3}}))"
_DATE = late(
    r"(?<![\d.])(?P<y1>[12]\d{3})[-/.](?P<m1>[01]?\d)[-/.](?P<d1>[0-3]?\d)(?![\d])"
    rf"|{_DAY_FIRST}|{_WITH_SLASHES}|(?<!\d)(?P<y4>[12]\d{{3}}|[一二][{HAN_DIGITS}]{{3}})\s?年"
    rf"(?:\s?(?P<m4>[01]?\d|{_HAN_DAY})\s?月(?:\s?(?P<d4>[0-3]?\d|{_HAN_DAY})\s?[日号號])?)?"
    rf"|(?<!\d)(?P<m5>[01]?\d|{_HAN_DAY})\s?月\s?(?P<d5>[0-3]?\d|{_HAN_DAY})\s?[日号號]|{_MONTH_AND_YEAR}|{_MONTH_FIRST}?(?!\d)"
    rf"|(?<![\d.,])(?P<d8>[0-3]?\d)(?:st|nd|rd|th|-го)?\s{{1,2}}(?:of\s{{1,2}})?(?P<m8>{_MONTH})\b",
    re.IGNORECASE,
)
_MONTH_OR_DAY_FIRST: Final = "3"
_DATE_GROUPS: Final = {
    form: tuple(f"{part}{form}" for part in parts)
    for form, parts in zip("12345678", ("ymd", "ymd", "yba", "ymd", "md", "ymd", "ymd", "md"), strict=True)
}
"""The names of the groups of each form of `_DATE`: year, if it can have one, month and day."""
_BACK_FROM_YEAR = late(  # read backwards, so that it begins at once where a date ends
    r"\s{1,2},?(?:\.?([^\W\d_]{3,9})(?:(?:\s{1,2}fo)?\s{1,2}(?:ts|dn|dr|ht|ог-)?(\d[0-3]?)(?![\w.,]))?"
    r"|(?:ts|dn|dr|ht)?(\d[0-3]?)\s{1,2}\.?([^\W\d_]{3,9}))(?!\w)",
    re.IGNORECASE,
)
_FIGURES_BEFORE_YEAR = late(r"(?<!\w)(?:(?<!\.)([0-3]?\d)\.([01]?\d)\.|(?<!/)([0-3]?\d)/([0-3]?\d)/)\Z")
_AFTER_YEAR = late(
    r"(?<!\.[0-9]{4})[-/.]([01]?\d)[-/.]([0-3]?\d)(?!\d)"
    rf"|\s?年\s?([01]?\d)\s?月(?:\s?([0-3]?\d|{_HAN_DAY})\s?[日号號])?"
)
_LONGEST_BEFORE_YEAR: Final = 24
"""Characters of a date before its year."""
MONTH: Final = late(rf"\b(?:{_MONTH})\b|(?:[01]?\d|{_HAN_DAY})(?=\s?月)", re.IGNORECASE)

_SPACES = "\u00a0\u202f\u2009"
_NAME = late(
    r"(?<![A-Za-zА-Яа-яёЁ\d.])(?:[A-Za-zА-Яа-яёЁ]{1,20}[-_./]?\d[\dA-Za-z]*(?:[-_./][A-Za-z]*\d[\dA-Za-z]*)*"
    rf"|(?<!\d[,{_SPACES} ])(?:\d+(?:\.\d+){{2,}}|\d{{1,2}}:\d{{2}}(?::\d{{2}})?|0\d+))(?![A-Za-zА-Яа-яёЁ\d])"
)
"""Model numbers, standards, versions, addresses, times of day: equal only if they are written the same."""

WIDE_DIGITS: Final = str.maketrans("０１２３４５６７８９％", "0123456789%")
_AMOUNT = late(
    rf"(?P<percent>百分之)?(?P<money>[$€£¥￥₽]\s?)?(?:(?<![\w)\]%])(?P<sign>[-−–+]))?"
    rf"(?P<number>(?<!\d)(?<!\d[.,])(?:\d{{1,3}}(?:[,.'{_SPACES} ]\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    rf"(?:\s?[{''.join((*_HAN_TENS, *_HAN_MYRIADS))}]+(?:\d+[{''.join(_HAN_MYRIADS)}])?)?"
    rf"|(?<![{HAN_NUMERALS}])[{HAN_NUMERALS}]+(?:点[{''.join(_HAN_DIGITS)}]+)?)"
)
_LEADING_DIGITS = late(rf"[\d,.'{_SPACES} ]*")
_GROUPED_DIGITS = late(rf"\d{{1,3}}(?:[,.'{_SPACES} ]\d{{3}})+")

POWERS: Final = {
    name: power
    for power, names in {
        2: "hundred",
        3: "thousand тыс тысяча тысячи тысяч",
        6: "million millions mln млн миллион миллиона миллионов",
        9: "billion billions bn млрд миллиард миллиарда миллиардов",
        12: "trillion trillions трлн триллион триллиона триллионов",
    }.items()
    for name in names.split()
}
"""The powers of ten by the words for them."""
_UNITS: dict[str, tuple[str, Decimal]] = {
    name: (unit, Decimal(factor))
    for unit, factor, names in (
        ("%", "1", "% percent percents процент процента процентов"),
        (
            "length",
            "0.001",
            "mm millimetre millimetres millimeter millimeters мм миллиметр миллиметров 毫米",
        ),
        ("length", "0.01", "cm centimetre centimetres centimeter centimeters см сантиметр сантиметра сантиметров 厘米"),
        ("length", "1", "m metre metres meter meters м метр метра метров 米"),
        ("length", "1000", "km kilometre kilometres kilometer kilometers км километр километра километров 公里 千米"),
        ("mass", "0.001", "mg milligram milligrams мг 毫克"),
        ("mass", "1", "g gram grams г грамм грамма граммов 克"),
        ("mass", "1000", "kg kilogram kilograms кг килограмм килограмма килограммов 公斤 千克"),
        ("mass", "1000000", "t tonne tonnes т тонна тонны тонн 吨"),
        ("time", "0.001", "ms millisecond milliseconds мс миллисекунд миллисекунды 毫秒"),
        ("time", "1", "s sec second seconds с сек секунда секунды секунд 秒"),
        ("time", "60", "min minute minutes мин минута минуты минут 分钟"),
        ("time", "3600", "h hour hours ч час часа часов 小时"),
        ("time", "86400", "day days день дня дней сутки суток 天"),
        ("data", "1000", "KB kB КБ"),
        ("data", "1000000", "MB МБ"),
        ("data", "1000000000", "GB ГБ"),
        ("data", "1000000000000", "TB ТБ"),
        ("°C", "1", "°C ℃"),
        ("usd", "1", "$ USD dollar dollars доллар доллара долларов 美元"),
        ("eur", "1", "€ EUR euro euros евро 欧元"),
        ("gbp", "1", "£ GBP pounds"),
        ("cny", "1", "¥ ￥ CNY RMB yuan юань юаня юаней 元 人民币"),
        ("rub", "1", "₽ RUB rouble roubles ruble rubles руб рубль рубля рублей 卢布"),
    )
    for name in names.split()
}
UNITS: Final = frozenset(_UNITS)
"""The names of all units that a quantity can have."""

NAMES_OF_UNITS = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
"""A regular expression, with the longest first."""
_MAGNITUDE = late(
    rf"[-\s{_SPACES}]?(?:(?P<magnitude>{'|'.join(sorted(POWERS, key=len, reverse=True))})\b\.?)?"
    rf"[-\s{_SPACES}]?(?:(?P<unit>{NAMES_OF_UNITS})(?![A-Za-zА-Яа-яёЁ/²³]))?"  # km/h is not a length
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b|-(?:й|я|е|го|му|м|ю|ой|ый|ая|ое)\b")
_PER_CENT = re.compile(r"\s?per cent\b")

_WORDS = {
    word: number
    for number, words in {
        0: "zero ноль", 1: "one один одна одно", 2: "two два две", 3: "three три", 4: "four четыре", 5: "five пять",
        6: "six шесть", 7: "seven семь", 8: "eight восемь", 9: "nine девять", 10: "ten десять",
        11: "eleven одиннадцать", 12: "twelve двенадцать", 13: "thirteen тринадцать", 14: "fourteen четырнадцать",
        15: "fifteen пятнадцать", 16: "sixteen шестнадцать", 17: "seventeen семнадцать", 18: "eighteen восемнадцать",
        19: "nineteen девятнадцать", 20: "twenty двадцать", 30: "thirty тридцать", 40: "forty сорок",
        50: "fifty пятьдесят", 60: "sixty шестьдесят", 70: "seventy семьдесят", 80: "eighty восемьдесят",
        90: "ninety девяносто",
    }.items()
    for word in words.split()
}  # fmt: skip
_UNITS_IN_WORDS = "|".join(word for word, number in _WORDS.items() if 0 < number < 10)
_WORD_NUMBER = late(
    rf"\b(?P<first>{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?:[-\s](?P<second>{_UNITS_IN_WORDS}))?\b",
    re.IGNORECASE,
)


_LONGEST = 25  # characters of a number that is evaluated; longer ones are compared as text


def quantities(text: str, language: str, *, words: bool = False) -> Iterator[Quantity]:
    """Yield all quantities in a text, in order, without overlap.

    Args:
        text: any text.
        language: the text's language; in ``"ru"``, for example, decimals follow a comma and spaces separate thousands.
        words: whether to include numbers in words; in ordinary sentences "one" is seldom a number.

    >>> [(int(one.value), one.unit) for one in quantities("1.2 million people, 5 km", "en")]
    [(1200000, ''), (5000, 'length')]
    """
    text = text.translate(WIDE_DIGITS)
    spans = sorted([*_dates(text), *_names(text)], key=lambda span: (span.start, -span.end))
    position = 0
    for span in spans:
        if span.start < position:
            continue
        yield from _numbers(text, position, span.start, language, words=words)
        yield span
        position = span.end
    yield from _numbers(text, position, len(text), language, words=words)


def dates_in(text: str) -> Iterator[Quantity]:
    """Yield the dates in a text, in order.

    >>> [date.dates for date in dates_in("from 12.03.2024 to May 2026")]
    [((2024, 3, 12),), ((2026, 5, None),)]
    """
    return _dates(text.translate(WIDE_DIGITS))


def date_with_year(text: str, year: int) -> tuple[int, int, tuple[Date, ...]] | None:
    """Return the date whose year, of four digits, is at an offset of a text; None if it has no month, too.

    Returns:
        Where the date starts, where it ends, and its readings.

    >>> date_with_year("from 12.03.2024 to May 2026", 23)
    (19, 27, ((2026, 5, None),))
    """
    start, end = max(0, year - _LONGEST_BEFORE_YEAR), year + 4
    readings: tuple[tuple[str, str | None], ...] = ()  # month and day
    if text[year - 1 : year].isspace():
        match = _BACK_FROM_YEAR.match(text[start:year][::-1])
        if match is not None and (number := _MONTHS.get((match[1] or match[4])[::-1].lower())):
            day = int((match[2] or match[3] or "0")[::-1])
            return (year - match.end(), end, ((int(text[year:end]), number, day or None),)) if day < 32 else None
    elif (match := _FIGURES_BEFORE_YEAR.search(text, max(0, year - 6), year)) is not None:
        readings = ((match[2], match[1]),) if match[1] else ((match[4], match[3]), (match[3], match[4]))
        start = match.start()
    if not readings and (match := _AFTER_YEAR.match(text, end)) is not None:
        start, end = year, match.end()
        readings = ((match[1] or match[3], match[2] or match[4]),)
    numbers = [(int(text[year : year + 4]), month_number(month), month_number(day or "0")) for month, day in readings]
    dates = dict.fromkeys((year, month, day or None) for year, month, day in numbers if 0 < month < 13 and day < 32)
    return (start, end, tuple(dates)) if dates else None


def _dates(text: str) -> Iterator[Quantity]:
    for match in _DATE.finditer(text):
        if dates := _readings(match):
            yield Quantity("date", *match.span(), dates=dates)


def month_number(month: str) -> int:
    """Return the number of a month in words, or of any part of a date in figures or Chinese numerals."""
    return int(month) if month.isdecimal() else _MONTHS.get(month.lower()) or int(number_value(month, "zh") or 0)


def _readings(match: re.Match[str]) -> tuple[Date, ...]:
    """Return what a match of `_DATE` may mean; nothing if it is no date."""
    form = str(match.lastgroup)[1]
    parts = match.group(*_DATE_GROUPS[form])
    numbers = [month_number(part) if part else None for part in parts]
    year, month, day = numbers if len(numbers) == 3 else (None, *numbers)
    date: Date = (year, month, day)
    dates: tuple[Date, ...] = (date,)
    if form == _MONTH_OR_DAY_FIRST and date[1] != date[2]:
        dates = date, (date[0], date[2], date[1])
    return tuple([date for date in dates if 0 < (date[1] or 1) < 13 and 0 < (date[2] or 1) < 32])


def _names(text: str) -> Iterator[Quantity]:
    for match in _NAME.finditer(text):
        yield Quantity("name", match.start(), match.end(), name=match[0].casefold())


def _numbers(text: str, start: int, end: int, language: str, *, words: bool) -> Iterator[Quantity]:
    for match in _AMOUNT.finditer(text, start, end):
        number = match["number"]
        if not language.startswith("ru") and " " in number and _GROUPED_DIGITS.match(number):
            number = number.partition(" ")[0]  # two numbers side by side
        if len(number) > _LONGEST:
            yield Quantity("name", match.start(), match.end(), name=match[0].casefold())
            continue
        value = number_value(number, language)
        if value is None or number in _HAN_CHARACTERS:
            continue  # 一 is an article more often than a number
        stop = match.start("number") + len(number)
        magnitude, unit, stop = _magnitude_after(text, stop, end)
        unit = (match["money"] or "").strip() or ("%" if match["percent"] else unit)
        count = value.scaleb(magnitude) * (1 if match["sign"] in (None, "+") else -1)
        name, factor = _UNITS.get(unit, ("", Decimal(1)))
        yield Quantity("number", match.start(), stop, count * factor, count, name)
    if words:
        for match in _WORD_NUMBER.finditer(text, start, end):
            first = _WORDS[match["first"].lower()]
            second = _WORDS[match["second"].lower()] if match["second"] and first >= 20 else 0
            value = Decimal(first + second)
            yield Quantity("number", match.start(), match.end() if second else match.end("first"), value, value)


def _magnitude_after(text: str, position: int, end: int) -> tuple[int, str, int]:
    """Return the power of ten and the unit that follow digits, and where they end."""
    ordinal = _ORDINAL.match(text, position, end)
    match = _MAGNITUDE.match(text, ordinal.end() if ordinal else position, end)
    magnitude, unit = "", ""
    if match and match["magnitude"]:
        magnitude, position = match["magnitude"], match.end("magnitude")
    if match and match["unit"]:
        unit, position = match["unit"], match.end("unit")
    elif per_cent := _PER_CENT.match(text, position, end):
        unit, position = "%", per_cent.end()
    return POWERS.get(magnitude, 0), unit, position


def number_value(number: str, language: str) -> Decimal | None:
    """Return the value of digits with separators, or of Chinese numerals; None if it is not a number.

    >>> number_value("1.299,99", "de"), number_value("二百五十", "zh"), number_value("3.5万", "zh")
    (Decimal('1299.99'), Decimal('250'), Decimal('35000.0'))
    """
    digits = _LEADING_DIGITS.match(number)
    plain = digits[0].strip() if digits else ""
    suffix = number[len(plain) :].strip() if plain else number
    amount = _plain_value(plain, language) if plain else None
    return _han_value(suffix, amount) if suffix else amount


def _plain_value(digits: str, language: str) -> Decimal | None:
    for space in f"'{_SPACES} ":
        digits = digits.replace(space, "")
    commas, dots = digits.count(","), digits.count(".")
    if commas and dots:
        decimal = max(",.", key=digits.rfind)
        digits = digits.replace("," if decimal == "." else ".", "").replace(",", ".")
    elif commas:
        is_grouped = _GROUPED_DIGITS.fullmatch(digits) and (commas > 1 or not language.startswith("ru"))
        digits = digits.replace(",", "" if is_grouped else ".")
    elif dots > 1:
        digits = digits.replace(".", "")
    try:
        return Decimal(digits)
    except InvalidOperation:
        return None


def _han_value(text: str, amount: Decimal | None) -> Decimal | None:
    """Return the value of Chinese numerals, which may continue digits: 三亿五千万, 120万, 3亿5000万, 三点五."""
    text, _, fraction = text.partition("点")
    if all(char in _HAN_DIGITS for char in text):  # 二〇二四: digit by digit
        total = Decimal(int("".join(str(_HAN_DIGITS[char]) for char in text) or 0))
    else:
        value = section = Decimal(0)
        digit = amount
        for token in re.findall(r"\d+|\D", text):
            if token.isdigit():
                digit = Decimal(token)
            elif token in _HAN_DIGITS:
                digit = Decimal(_HAN_DIGITS[token])
            elif token in _HAN_TENS:
                section += (digit if digit is not None else 1) * _HAN_TENS[token]
                digit = None
            elif token in _HAN_MYRIADS:
                section += digit or 0
                if not section and not value:
                    return None  # 万 alone is not a number
                # 一万亿: a larger power multiplies everything before it.
                if value and value < _HAN_MYRIADS[token]:
                    value = (value + section) * _HAN_MYRIADS[token]
                else:
                    value += section * _HAN_MYRIADS[token]
                section, digit = Decimal(0), None
            else:
                return None
        total = value + section + (digit or 0)
    if fraction:
        total += Decimal("0." + "".join(str(_HAN_DIGITS[char]) for char in fraction))
    return total
