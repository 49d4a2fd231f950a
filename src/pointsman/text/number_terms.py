"""Terms of words with digits: numbers, amounts with units, versions and codes, so that one thing meets itself.

============================== ================================================= ==============================
a word                         its terms                                         meets, and never
============================== ================================================= ==============================
``14,833.33``, ``14.833,33``   ``14833.33``                                      ``14833.33``
``1,299``; ``1.299``           ``1299``; ``1299 1.299``: each that it can be     ``1299``
``1,5``; ``1,2,3``             ``1.5``; ``1-2-3 1 2 3``                          ``1.5``; ``2``
``3.5mm``, ``16GB``            ``3.5 mm``, ``16 gb``                             ``3.5 mm``, not ``35mm``
``5mg``, ``5blacZ``; ``5th``   ``5 mg``, ``5blacz 5 blac z``; ``5th``            only known units part
``1990s``, ``2024г``; ``26S``   ``1990``, ``2024``; ``26s 26``                    ``1990``
``4a``                         ``4a 4``                                          ``4``, not ``4b``
``v1.12``                      ``v1.12 1.12``                                    ``1.12``, not ``v11.2``
``ISO9370``, ``№616``          ``iso9370 iso 9370``, ``no616 no 616``            ``ISO 9370``, ``№ 616``
``INV-2026-0417``              ``inv2026-0417 inv 2026 0417``                    not ``INV-20260-417``
``2024-01-15``                 ``2024-01-15 2024 01 15``                         ``2024``
``978-3-16-148410-0``          itself, ``9783161484100`` and its parts           ``9783161484100``
============================== ================================================= ==============================

The rows of codes and lists are those of any word with separated parts, joined in `pointsman.text.tokens`. Short names
such as ``B12``, ``mp3`` and hexadecimal numbers are one term.

What is written in several words, or in Chinese numerals from ten on, has further terms beside theirs, so that it meets
itself written in one. Of numerals, only what is one number is read: not 万一, 七八十 or 一百一 (101 or 110).

========================================================= =====================================================
in a text                                                 its further terms
========================================================= =====================================================
``1 000 000``, ``14 833,33``                              ``1000000``, ``14833.33``
``25 October 2024``, ``25 октября 2024``                  ``2024-10-25``
``25.10.2024``, ``2024-10-25``, ``2024年10月25日``        the same, ``2024-10`` and ``2024``, where it lacks them
``May 2026``; ``05/06/2024``                              ``2026-05``; each day and month that it can be
``DE89 3704 0044 0532 0130 00``, ``4276 3800 0012 3456``  ``de89370400440532013000``, ``4276380000123456``
``8-800-555-35-35``, ``+7 (495) 123-45-67``               ``88005553535``, ``74951234567``
``二百五十``, ``3.5万``; ``二〇二四年五月``               ``250``, ``35000``; ``2024``, ``5`` and ``2024-05``
``1.2 million``, ``5 тыс.``, ``5千``, ``二万亿``          ``1200000``, ``5000``, ``5000``, ``2000000000000``
========================================================= =====================================================
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from pointsman.text.quantities import HAN_DIGITS, HAN_NUMERALS, POWERS, UNITS, WIDE_DIGITS, date_with_year, number_value
from pointsman.text.unicode import fold
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pointsman.text.quantities import Date

_NUMBER: Final = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)*(?:,[0-9]+)?)"
_ONE_NUMBER: Final = late(_NUMBER)
_WITH_HYPHENS: Final = late(r"[0-9]+(?:[.‐‑-][0-9]+)*[‐‑-][0-9]+(?:[.‐‑-][0-9]+)*")
_AMOUNT: Final = late(rf"({_NUMBER})([^\W\d_]{{1,12}})")
_DECADE_OR_YEAR: Final = late("([0-9]*0)s|([12][0-9]{3}|[0-9]+(?:[.][0-9]+){2})[гГ]")
_MORE_UNITS: Final = (
    "v kv mv w kw mw kwh a ma mah hz khz mhz ghz l ml dl bar psi dpi px rpm fps mbps gbps bit kb mb gb tb pb nm um ft "
    "lb oz в кв мв вт квт ач мач гц кгц мгц ггц л мл бар бит кб мб гб тб нм мкм"
)
_UNITS: Final = frozenset([*map(str.lower, UNITS), *_MORE_UNITS.split()])
_VERSION: Final = late(r"v([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_NAME_AND_NUMBER: Final = late(r"([^\W\d_]{2,})([0-9]{3,12})")

_GROUPS_THEN_POINT: Final = late(r"[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+")
_GROUPS_THEN_COMMA: Final = late(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_GROUPS: Final = late(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\.[0-9]{3})+)")

_LETTERS: Final = "A-Za-zА-Яа-яЁё"
_BLANK: Final = "[ \u00a0\u202f\u2009]"
_NO_FIGURES: Final = bytes({*range(0xE3), *range(0xF0, 0x100)} - {*b"0123456789"})
"""Bytes of UTF-8 that no figure has, and no first byte of a Chinese numeral, or of anything else from U+3000 on."""
_MARKS: Final = bytes.maketrans(
    b"123456789()-\xa0ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"000000000    abcdefghijklmnopqrstuvwxyz"
)
"""What a text is searched for years and groups of digits by, many times as fast as by a regular expression."""
_BEFORE_YEAR: Final = (  # a question mark is any letter that is not Latin, such as those of Russian months, or 年
    r"(?:ary|rch|ril|may|une|uly|ust|ber|jan|feb|mar|apr|jun|jul|aug|sep|ept|oct|nov|dec|0st|0nd|0rd|0th|..0|\?\?\?)"
)
_YEAR_OF_DATE: Final = re.compile(
    rf"0000(?!0)(?<!0....)(?:(?=[ ./]0|\s?\? ?0)|(?<=[./]....)"
    rf"|(?<={_BEFORE_YEAR}\s....)|(?<={_BEFORE_YEAR}[.,\s]\s....)|(?<=[.,][.,\s]\s....))".encode(),
    re.DOTALL,
)
"""What may be the year of a date with a month: few are, and it costs the less the fewer are looked at closely."""
_THREE_GROUPS: Final = re.compile(b"00 {1,2}0+ {1,2}00")
_GROUPS_WITH_BLANKS: Final = late(
    rf"[1-9](?<![0-9].)(?<![0-9][.,-].)[0-9]{{0,2}}(?:{_BLANK}[0-9]{{3}})+(?:[.,][0-9]+)?(?![0-9])(?!{_BLANK}?[-(][0-9])"
)
_NUMBER_OF_ONE: Final = late(  # account, card or person
    rf"""(?<![{_LETTERS}0-9])(?<![0-9][.,/-]) (?:
        [A-Z]{{2}}[0-9]{{2}} (?:{_BLANK}[A-Z0-9]{{4}})? (?:{_BLANK}[0-9]{{4}}){{2,7}} (?:{_BLANK}[0-9]{{1,4}})?
      | [0-9]{{4}} (?P<card>{_BLANK}|-) [0-9]{{4}}(?P=card)[0-9]{{4}}(?P=card)[0-9]{{4}} (?:(?P=card)[0-9]{{1,4}})?
      | [0-9]{{4}} (?P<amex>{_BLANK}|-) [0-9]{{6}} (?P=amex) [0-9]{{5}}
      | [0-9]{{5}} (?P<bank>{_BLANK}) [0-9]{{3}}(?P=bank)[0-9](?P=bank)[0-9]{{4}}(?P=bank)[0-9]{{7}}
      | (?: \+[0-9]{{1,3}} | 8 | 0[0-9]{{1,4}} ) [ \u00a0-]? \(?[0-9]{{2,5}} (?:[ \u00a0)-]{{1,2}}[0-9]{{2,4}}){{2,4}}
      | 1[3-9][0-9] (?P<mobile>{_BLANK}|-) [0-9]{{4}} (?P=mobile) [0-9]{{4}}
      | \(?[0-9]{{3,4}} (?:[ \u00a0-]|\)[ \u00a0-]?) [0-9]{{3,4}} - [0-9]{{2,4}} (?:-[0-9]{{2}})?
    ) (?![{_LETTERS}0-9]|[.,:/-][0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
FEWEST_DIGITS: Final = 9
"""Of the number of an account, card or person, in groups."""
_WIDE_DIGIT: Final = late("[０-９]")
_BELOW_MYRIAD: Final = (  # 一千零五, not 一千五, which may be 1500
    f"(?:[{HAN_DIGITS}][千仟])?(?:零?[{HAN_DIGITS}][百佰])?(?:零?[{HAN_DIGITS}]?[十拾])?"
    f"(?:(?<=[十拾])[{HAN_DIGITS}]|零[{HAN_DIGITS}])?"
)
_HAN_AND_FIGURES: Final = late(f"[{HAN_NUMERALS}0-9][{HAN_NUMERALS}0-9.,年月日号號]+")
_MONTH_OR_DAY: Final = f"(?:[{HAN_DIGITS}十]{{1,3}}|[0-9]{{1,2}})"
_HAN_NUMBER: Final = late(
    rf"""(?<![{HAN_NUMERALS}]) (?:
        (?: (?:[12][0-9]{{3}}|[一二][{HAN_DIGITS}]{{3}})年 )?
        {_MONTH_OR_DAY}月 (?: {_MONTH_OR_DAY}[日号號] )?
      | (?![〇零]) (?: (?=[{HAN_DIGITS}]+[〇零]) [{HAN_DIGITS}]{{3,12}} | [{HAN_DIGITS}]{{4}}(?=年) )
        (?![{HAN_NUMERALS}])
      | (?![万萬亿億]) (?=[{HAN_NUMERALS}]{{2,16}}(?![{HAN_NUMERALS}]))
        (?: (?:[{HAN_DIGITS}]|{_BELOW_MYRIAD})[万萬]?[亿億]零? )?
        (?: (?:[{HAN_DIGITS}]|{_BELOW_MYRIAD})[万萬]零? )? {_BELOW_MYRIAD} (?![{HAN_NUMERALS}])
    ) | (?<![0-9.,{HAN_NUMERALS}]) [0-9]+(?:,[0-9]{{3}})*(?:\.[0-9]+)?
        (?: [百千]?[万萬]?[亿億] (?: (?:(?:[0-9]{{1,4}}[百千]?){{1,3}}|{_BELOW_MYRIAD})[万萬] )?
          | [百千]?[万萬] | [百千] ) (?![{HAN_NUMERALS}0-9])""",
    re.VERBOSE,
)
_GROUP_OR_POWER: Final = re.compile(rb"0(?: ?(?=million|billion|trillion|thousand|hundred|mln|bn|\?\?\?)|(?= {1,2}00))")
"""What of a text's marks may be a number in groups, or before a word for a power of ten, up to what follows it."""
_RUSSIAN_POWERS: Final = ("тыс", "мл", "илли", "трлн")
"""Parts of words for powers of ten, one of which a Russian text must have."""
_WITH_POWER: Final = late(
    r"([0-9](?<![\w.,·/].)(?:[0-9]{0,2}(?:[, \u00a0][0-9]{3})+(?:\.[0-9]+)?|[0-9]*(?:[.,][0-9]+)?))"
    rf"[ \u00a0-]?({'|'.join(POWERS)})(?!\w)",
    re.IGNORECASE,
)
_HAN_OR_FIGURES: Final = late(rf"[{HAN_NUMERALS}.,0-9]+")
_HAN_NUMERAL: Final = late(f"[{HAN_NUMERALS}]")
_LONGEST_REMEMBERED: Final = 16
_DIGITS: Final = late("[0-9]+")
_MONTH_IN_WORDS: Final = late(r"[^\W\d_]{3}")
_NO_DIGITS_OR_LETTERS: Final = late(r"[\W_]+")


def further_terms(text: str) -> list[tuple[int, list[str]]]:
    """Return the terms of what a text has in several words, each with where that ends, in order.

    >>> further_terms("14 833,33 on 25 October 2024")
    [(9, ['14833.33']), (28, ['2024-10-25'])]
    """
    figures = text.encode().translate(None, _NO_FIGURES)
    if not figures:
        return []
    further = list[tuple[int, list[str]]]()
    if not text.isascii():
        text = text.replace("\u202f", "\u00a0").replace("\u2009", "\u00a0")
    if not figures.isdigit():
        text = text.translate(WIDE_DIGITS) if _WIDE_DIGIT.search(text) else text
        further += _of_han_numbers(text)
    marks = text.encode("latin-1", "replace").translate(_MARKS)
    further += _of_years(text, marks)
    following = {text[match.end()] for match in _GROUP_OR_POWER.finditer(marks)}
    if not following.isdisjoint("bhmtBHMT") or (
        not following.isdisjoint("мтМТ") and any(map(text.__contains__, _RUSSIAN_POWERS))
    ):
        further += [(match.end(), _of_power(match[1], match[2])) for match in _WITH_POWER.finditer(text)]
    if not following.isdisjoint("()- \xa0"):
        for match in _GROUPS_WITH_BLANKS.finditer(text) if b"0 000" in marks else ():
            further += [(match.end(), [re.sub(_BLANK, "", match[0]).replace(",", ".")])]
        if _THREE_GROUPS.search(marks):
            further += [(end, [number]) for _, end, number in numbers_of_one(text)]
    return sorted(further)


def _of_years(text: str, marks: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield where each date with a year ends, and its terms; ``marks`` are the text's."""
    for digits in _YEAR_OF_DATE.finditer(marks):
        start = digits.start()
        if text[start] in "12" and (date := date_with_year(text, start)) is not None:
            yield date[1], _of_date(text, *date)


def _of_power(number: str, word: str) -> list[str]:
    """Return each value that a number before a word for a power of ten can be."""
    return [f"{Decimal(value).scaleb(POWERS[word.lower()]):f}" for value in _values(re.sub(_BLANK, "", number))]


def _of_han_numbers(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield where each number with Chinese numerals ends, and its terms."""
    for match in _HAN_AND_FIGURES.finditer(text):
        if not match[0].isascii():
            found = _of_han_run if match.end() - match.start() < _LONGEST_REMEMBERED else _of_han_run.__wrapped__
            yield from ((match.end(), [*terms]) for terms in found(match[0]))


@lru_cache(maxsize=4096)
def _of_han_run(run: str) -> Sequence[Sequence[str]]:
    """Return the terms of each number in a run of Chinese numerals and figures: most of a text are short, and recur."""
    return [_of_han_number(number) for number in _HAN_NUMBER.findall(run)] if _HAN_NUMERAL.search(run) else ()


def _of_han_number(written: str) -> list[str]:
    """Return the numbers of Chinese numerals, and the terms of the date that they may be."""
    figures = _HAN_OR_FIGURES.sub(lambda match: f"{(number_value(match[0], 'zh') or Decimal()).normalize():f}", written)
    dates = further_terms(figures) if "年" in figures else ()
    return [*_DIGITS.findall(figures), *chain.from_iterable(terms for _, terms in dates)]


def _of_date(text: str, start: int, end: int, dates: Sequence[Date]) -> list[str]:
    """Return the terms of a date beside those of its words: to the day, and in figures to the month and year, too."""
    written = text[start:end]
    terms = [f"{year}-{month:02}-{day:02}" for year, month, day in dates if day]
    if not terms or not _MONTH_IN_WORDS.search(written):  # May 2026 and 14 May 2026 have words in common
        terms += [f"{year}-{month:02}" for year, month, _ in dates]
        if written.replace(".", "").isdecimal():
            terms.append(f"{dates[0][0]}")
    if written in terms and not text[end : end + 1].isalnum():  # not so in 2024-10-25T12:30
        terms.remove(written)
    return terms


def numbers_of_one(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the numbers of accounts, cards and telephones in groups: start, end, and the number in one, folded.

    >>> list(numbers_of_one("call +7 (495) 123-45-67"))
    [(5, 23, '74951234567')]
    """
    for match in _NUMBER_OF_ONE.finditer(text):
        number = fold(_NO_DIGITS_OR_LETTERS.sub("", match[0]))
        if len(number) >= FEWEST_DIGITS:
            yield *match.span(), number


def number_terms(word: str) -> list[str]:
    """Return the folded terms of a number, date, version, amount, or name with its number; none of any other word.

    Args:
        word: in normal form, without white space.

    >>> number_terms("3.5mm"), number_terms("1.299,99"), number_terms("ISO9370"), number_terms("INV-2026-0417")
    (['3.5', 'mm'], ['1299.99'], ['iso9370', 'iso', '9370'], [])
    """
    if _ONE_NUMBER.fullmatch(word):
        return _values(word)
    if _WITH_HYPHENS.fullmatch(word):
        word = word.replace("‐", "-").replace("‑", "-")
        book_number = [word.replace("-", "")] if len(word) == 17 and word[:3] in {"978", "979"} else []
        return [word, *book_number, *word.split("-")]
    if (match := _VERSION.fullmatch(word)) is not None:
        return [fold(word), match[1]]
    if (match := _NAME_AND_NUMBER.fullmatch(word)) is not None:
        return [fold(word), fold(match[1]), match[2]]
    if (match := _DECADE_OR_YEAR.fullmatch(word)) is not None:
        return [match[1] or match[2]]
    match = _AMOUNT.fullmatch(word)
    return [] if match is None else _amount(match[1], fold(match[2]))


def _amount(number: str, unit: str) -> list[str]:
    """Return the terms of a number with a unit; none if it may be a name, such as ``5blacZ``."""
    values = _values(number)
    if number.isdecimal() and len(unit) > 1 and unit not in _UNITS:
        return []
    return [values[0] + unit, *values] if len(unit) == 1 else [*values, unit]


def _values(number: str) -> list[str]:
    """Return each value that a number can be, with a point before its decimals."""
    if _GROUPS_THEN_POINT.fullmatch(number):
        return [number.replace(",", "")]
    if _GROUPS_THEN_COMMA.fullmatch(number):
        return [number.replace(".", "").replace(",", ".")]
    value = number.replace(",", ".")
    if _GROUPS.fullmatch(number):
        whole = value.replace(".", "")
        return [whole] if "," in number else [whole, value]
    return [value]
