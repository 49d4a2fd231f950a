"""The notations of what a question can name exactly: codes, identifiers, versions, numbers with their kind, full dates.

`designations_in` finds them in a question; `Designation.is_in` tells whether a text holds one, in any usual notation:

=================== ======================================= ===================================================
kind                named by                                held by
=================== ======================================= ===================================================
code                ``INV-2026-0417``, ``ISO 9370``         ``inv 2026/0417``, ``ISO9370``; not ``INV-2026-0416``
identifier          ``max_retries``, ``maxRetryCount``      ``MAX_RETRIES``, ``maxRetries``, ``max-retries``
version             ``v1.12``, ``1.6.1``, ``固件1.27``      ``1.12``, ``V1.12``; not ``11.2``, ``1.12.3``
account, telephone  ``DE89370400440532013000``, 9 digits    with blanks, hyphens and brackets, or without
address             ``2001:db8::1``, ``10.0.0.1:80``        ``2001:DB8::1``; a card's by ``:``, ``-``, ``.`` or none
post                ``SW1A 1AA``                            ``sw1a1aa``, ``SW1A1AA``; not ``SW1A 2AA``
number of a kind    ``invoice 417``, ``№ 616``, ``发票417`` any 417 of its own; not ``4170``, ``41.7``
ordinal of a part   ``第190期``, ``第十章``, ``глава 3``    ``第 190 期``, ``第10章``, ``Chapter III``; own ``190``
full date           ``25 October 2024``, ``2024年10月25日`` the same day in any notation
=================== ======================================= ===================================================

What only counts or narrows is no such thing: amounts with units (``16GB``), counts (``the 3 plans``), years,
quarters, ordinals (``第三届``), and dates after a word that makes a range of them (``since 1 May 2024``). Nor are
short names with a digit or two, for which texts have other words (``B12``, ``ww2``, ``K-12``): of the passages that
answer a question with one, a third lack it in SciFact and WikiQA. Numbers of fewer than three digits stand in too
many texts by chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from pointsman.text.number_terms import FEWEST_DIGITS, numbers_of_one
from pointsman.text.quantities import HAN_NUMERALS, MONTH, NAMES_OF_UNITS, dates_in, month_number, number_value
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.text.unicode import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pointsman.text.quantities import Date

_LETTERS: Final = "A-Za-zÀ-ÖØ-öø-ÿА-Яа-яЁё"
_OWN: Final = f"{_LETTERS}0-9_"  # Chinese is written without blanks, so that its characters end a code
_BREAK: Final = r"[\s._/:#·•()\[\]〔〕【】\-‐‑–—]"
_BETWEEN_GROUPS: Final = r"[\s()\-‐‑–]{0,2}"
_NUMBER_SIGN: Final = re.compile(r"№|N°|\bno\.(?=\s?\d)", re.IGNORECASE)

_TOKEN: Final = re.compile(
    rf"(?<![{_OWN}@/])(?<![{_OWN}][.@:/\-])(?!(?<=\d,)\d{{3}})[{_OWN}](?:[{_OWN}]|[-./‐‑–](?=[{_OWN}]))*(?![{_OWN}]*(?:@|://))"
)
_PARTS: Final = re.compile(rf"\d+|[{_LETTERS}]+|[一-龥]")
_HUMPS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CAMEL: Final = re.compile(r"[a-z]{2,}\d*(?:[A-Z][a-z]+\d*){2,}")  # fewer may be a name: hashCode, anyRemote
_DOTTED: Final = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z_]\w+){2,}")
_LAW: Final = r"\d+-(?-i:Ф?К?З|ОЗ|РЗ|ПП|РП|ПА|П|У|И|FZ)\Z"
_AMOUNT: Final = re.compile(rf"(?!0\d|\d{{12}}|{_LAW})\d[\d.,]*[-–]?[{_LETTERS}]+\.?|[1-9]\d*[xх×]\d+", re.IGNORECASE)
"""Such as 16GB, 5-year, 25-й and 4x4; not 016A, nor the Russian law 152-ФЗ."""
_PERIOD: Final = re.compile(
    r"(?:q|h|fy|cy|w|кв|top)[-.]?\d(?:(?:[\W\d]|fy|cy|г).*)?|\d{2,4}[-.]?(?:q|h|fy|кв)\d?", re.IGNORECASE
)
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_RANGE_OF_YEARS: Final = re.compile(r"(?:1\d|20)\d\d[-/–—]\d{2,4}")

_ACRONYM: Final = re.compile(
    rf"(?<![{_OWN}])(?!(?:USD|EUR|GBP|CNY|RMB|RUB|JPY)\b)([A-ZА-ЯЁ]{{2,6}}(?:/[A-Z]|[ \u00a0](?:[РR]|EN|ISO|ИСО))?)"
    rf"[ \u00a0]#?(\d{{3,}}|\d+(?:[-./–—]\d+)+)"
    rf"(?![{_OWN}%]|[.,]\d|[-/–—]\d|\s?(?:{NAMES_OF_UNITS})(?![{_LETTERS}]))"
)
_DOCUMENT_NUMBER: Final = r"\d{3}[\d\-/]*|\d{1,2}[-–/]\d{3}[\d\-/]*"  # 416, 7-118, 88-2017
_VERSION: Final = re.compile(
    rf"(?<![{_OWN}])(?:v\.?\s?|(?:(?:version|release|firmware|build|верси[яиюй]|версией|релиз[аеу]?|прошивк[аиуе]"
    rf"|прошивкой|сборк[аиуе])\s|(?:固件|版本|固件版本)号?[是为：:\s]*)v?)(\d+(?:\.\d+)+)(?![{_OWN}])",
    re.IGNORECASE,
)
_MARKED: Final = re.compile(
    r"(?:#\s*|\b(?:no|nr|num|number|номер(?:ом|а|у)?)\.?\s(?:#\s*)?|(?:编号|单号|号码|票号)[是为：:\s]*)"
    rf"({_DOCUMENT_NUMBER})",
    re.IGNORECASE,
)
_KINDS_EN: Final = (
    "invoice order ticket contract case claim article section clause paragraph form issue bug error request account "
    "receipt permit licen[cs]e patent flight room regulation directive decree standard batch lot serial annex appendix "
    "ordinance resolution bill act law statute decision"
)
_KINDS_RU: Final = (
    r"сч[её]т(?:а|у|ом|е|-фактур\w)? заказ(?:а|у|ом|е)? заявк(?:а|и|у|е|ой) договор(?:а|у|ом|е)? контракт(?:а|у|ом|е)? "
    r"приказ(?:а|у|ом|е)? постановлени(?:е|я|ю|ем|и) стать(?:я|и|ю|е|ей) пункт(?:а|у|ом|е)? раздел(?:а|у|ом|е)? "
    r"форм(?:а|ы|у|е|ой) акт(?:а|у|ом|е)? рейс(?:а|у|ом|е)? кабинет(?:а|у|ом|е)? ошибк(?:а|и|у|е|ой) "
    r"накладн(?:ая|ой|ую) протокол(?:а|у|ом|е)? парти(?:я|и|ю|ей) полис(?:а|у|ом|е)? приложени(?:е|я|ю|ем|и) "
    r"закон(?:а|у|ом|е)? распоряжени(?:е|я|ю|ем|и) решени(?:е|я|ю|ем|и) указ(?:а|у|ом|е)? положени(?:е|я|ю|ем|и)"
)
_KINDS_ZH: Final = "发票 订单 合同 工单 案件 标准 错误 错误代码 代码 航班 房间 批次 专利 许可证"
_KIND: Final = re.compile(
    rf"(?<![{_OWN}])(?:{'|'.join((*_KINDS_EN.split(), *_KINDS_RU.split()))})\s(?:#\s*)?({_DOCUMENT_NUMBER})"
    rf"(?![{_OWN}%]|[.,]\d)|(?:§{{1,2}}|(?<![{_OWN}])(?:section|article|clause|paragraph|rule|стать[яиюе]|пункт[ау]?)\s)\s?"
    rf"(\d{{1,4}}\.\d{{2,}})(?![{_OWN}%]|[.,]\d)"
    rf"|(?:{'|'.join(_KINDS_ZH.split())})(?:编号|号码|号)?[是为：:\s]*(\d{{3,}})(?![\d.,%]*[个份张元年月日次])",
    re.IGNORECASE,
)
_DIVISIONS: Final = {
    "chapter": "章", "ch.": "章", "глав": "章", "гл.": "章", "volume": "卷", "том": "卷", "episode": "集",
    "lesson": "课", "урок": "课", "выпуск": "期",
}  # fmt: skip
_ROMAN: Final = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]
_STEMS: Final = ["перв", "втор", "трет", "четв", "пят", "шест", "седьм", "восьм", "девят", "десят"]
_IN_LETTERS: Final = dict(zip(_STEMS, range(1, 11), strict=True)) | {
    "x" * (number // 10) + numeral: number for number, numeral in enumerate(_ROMAN * 4) if number
}
_DIVISION: Final = rf"\b({'|'.join(map(re.escape, _DIVISIONS))})[а-я]{{0,2}}"
_ORDINAL: Final = re.compile(
    rf"第\s?(\d{{1,5}}|[{HAN_NUMERALS}]{{1,8}})\s?([期章款卷回集版号號讲講课課篇册]|[条條](?![^\W规規的是有款中里内第和与]))"
    rf"|(?<![\d.,])(\d{{3,5}})\s?(期)(?![间間货貨限])|(?<![\d.,{HAN_NUMERALS}])(\d{{1,3}}|[{HAN_NUMERALS}]{{1,3}})\s?([楼樓])"
    rf"|(?<![\w.,])(\d{{1,4}})(?:-[а-я]{{1,3}}|st|nd|rd|th)\s{_DIVISION}"
    rf"|{_DIVISION}\s?[№#]?\s?(?!i )(\d{{1,4}}\b|{'|'.join(_IN_LETTERS)})[а-я]{{0,3}}\b(?![.,]\d)",
    re.IGNORECASE,
)
"""Not 第三条铁路; nor 届 and 节: of the passages that answer a question with one in XQuAD, half lack it."""
_MOST_PARTS: Final = 34
"""Of a code, or digits of a number, that may be written in groups: what has more is held as it is written alone."""
_LONG_NUMBER: Final = re.compile(
    rf"(?<![{_OWN}])(?<!\d[.,/\-])\d{{{FEWEST_DIGITS},{_MOST_PARTS}}}[Xx]?(?![{_OWN}]|[.,/\-]\d)(?<!0000)"
)
"""Of an account, card, person or telephone; what ends with four zeros is a count."""
_BOOK_NUMBER: Final = re.compile(r"(?:97[89]-)?(?=(?:\d-?){9}[\dXx]$)\d+-\d+-\d+-[\dXx]")
_ADDRESS: Final = re.compile(  # of a network card, post, IPv6, with a port, of land, a court's case; not 10:30:45
    rf"(?<![{_OWN}:.])(?<![{_OWN}]-)(?=[a-z:]*\d)(?:((?:[0-9a-f]{{2}}[:-]){{5}}[0-9a-f]{{2}}|(?:[0-9a-f]{{4}}\.){{2}}[0-9a-f]{{4}})"
    rf"|(?<!/)([a-z]{{1,2}}\d[a-z\d]?)\s?(\d(?!(?-i:[gtpGTP][bB]|[hH]z|[aA]h|px|st|nd|rd|th|ft|lb)\b)[abd-hjlnp-uw-z]{{2}})"
    rf"|(?:\d{{1,3}}\.){{3}}\d{{1,3}}:\d{{1,5}}|\d\d:\d\d:\d{{6,7}}:\d{{1,6}}|\d:\d\d-[a-z]{{2}}-\d{{3,6}}"
    rf"|(?=(?:[0-9a-f]{{1,4}}:){{0,6}}:|(?:[0-9a-f]+:){{7}})(?:[0-9a-f]{{0,4}}:){{2,7}}[0-9a-f]{{0,4}})(?!-?[{_OWN}:])",
    re.IGNORECASE,
)
_REGISTRATION: Final = re.compile(  # of a car, tyre, flaw, order or court's case in China, person insured in Russia
    rf"[一-龥]{{2}}[〔【（\[(]\d{{4}}[〕】）\])]\s?\d{{1,4}}\s?号"
    rf"|(?<![\w-])(?:\d{{3}}-){{2}}\d{{3}}[ -]\d\d(?![\w-])"
    rf"|(?<=[（(])\d{{4}}[)）](?!第)[一-龥][一-龥\d]{{2,14}}\d(?=号)"
    rf"|(?i:(?<![{_OWN}])cve[\s_-]?\d{{4}}[\s_-]\d{{4,7}}|(?<![{_OWN}.,/])\d{{3}}/\d\d\s?Z?R\s?\d\d|[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼]\s?[A-Z]\s?[·•.-]?\s?(?=(?:[A-Z]?\d){{3}})[A-Z\d]{{5,6}}"
    rf"|(?<![{_OWN}])[АВЕКМНОРСТУХ]\s?\d{{3}}\s?[АВЕКМНОРСТУХ]{{2}}\s?\d{{2,3}})(?![{_OWN}])"
)
_NEXT_WORD: Final = re.compile(rf"[ \u00a0]+([{_LETTERS}]+)")

_RANGE_WORD: Final = re.compile(
    r"(?:\b(?:after|before|since|until|till|from|to|by|between|and|through|as of|older than|newer than|later than|"
    r"с|со|до|после|по|от|позднее|позже|ранее|раньше|начиная с|не позднее)|[自从到至])\s*(?:the\s)?$",
    re.IGNORECASE,
)
_END_OR_EDITION: Final = rf"(?![{_OWN}]|[.,/]\d|-(?!(?:19|20)\d\d(?![{_OWN}]|[.,/\-]\d))\d)"
"""Of a code: GB/T 19003 is held by GB/T 19003-2016, the standard with its year, and INV-20 not by INV-20-417."""
_GROUPS: Final = re.compile(r"(?<=\d)(?=(?:\d{3})+$)")


@dataclass(frozen=True, slots=True)
class Designation:
    """A name by which a question means one thing and no other.

    Attributes:
        text: as it stands in the question.
        words: what to search the keyword index for: its usual notations.
        dates: what it may mean, if it is a date.
        pattern: what a text that holds it matches, once both are folded; None for a date.
        ordinal: the number and the kind of an issue, a chapter and the like.
        is_certain: False if it is one only where a text holds it, as ``order 200 chairs`` may count.
    """

    text: str
    words: str
    dates: frozenset[Date] = frozenset()
    pattern: re.Pattern[str] | None = field(default=None, repr=False)
    ordinal: tuple[int, str] | None = None
    is_certain: bool = True

    def is_in(self, text: str) -> bool:
        """Whether a text holds it, in any usual notation."""
        return _is_in(self, text)


@lru_cache(maxsize=512)  # several stages of a search ask the same of its hits
def _is_in(name: Designation, text: str) -> bool:
    if name.ordinal is not None and name.ordinal in map(_ordinal, _ORDINAL.finditer(_comparable(text))):
        return True
    if name.pattern is not None:
        return name.pattern.search(_comparable(text)) is not None
    return any(not name.dates.isdisjoint(date.dates) for date in dates_in(text))


def designations_in(question: str) -> tuple[Designation, ...]:
    """Return what a question names exactly, in order."""
    names: dict[int, Designation] = {}  # by start
    coverage = bytearray(len(question))

    def claim(start: int, end: int, designation: Designation | None) -> None:
        if not any(coverage[start:end]):
            coverage[start:end] = bytes([1]) * (end - start)
            if designation is not None:
                names[start] = designation

    for date in dates_in(question):
        is_name = all(all(reading) for reading in date.dates) and not _RANGE_WORD.search(question, 0, date.start)
        text = question[date.start : date.end]
        claim(date.start, date.end, Designation(text, text, frozenset(date.dates)) if is_name else None)
    for start, end, designation in _without_date(question):
        claim(start, end, designation)
    return tuple(names[start] for start in sorted(names))


def months_in(text: str) -> frozenset[tuple[int | None, int]]:
    """Return the months of a text, each with its year, or None if it has none beside it.

    >>> sorted(months_in("paid in May 2026, not on 12.03.2024"))
    [(2024, 3), (2026, 5)]
    >>> sorted(month for _, month in months_in("in June, in 七月 and on 3 August"))
    [6, 7, 8]
    """
    months = set[tuple[int | None, int]]()
    for date in reversed(list(dates_in(text))):
        if date.dates[0][0] is not None:
            months |= {(year, month) for year, month, _ in date.dates if month}
            text = f"{text[: date.start]} {text[date.end :]}"
    return frozenset(months | {(None, month_number(month)) for month in MONTH.findall(text)})


def asked_months_in(question: str) -> frozenset[tuple[int | None, int]]:
    """Return the months of a year that a question is about; none if it speaks of a range, or has another date."""
    dates = list(dates_in(question))
    are_months = all(year and month and not day for date in dates for year, month, day in date.dates)
    is_range = any(_RANGE_WORD.search(question, 0, date.start) for date in dates)
    months = months_in(question) if are_months and not is_range else ()
    return frozenset(month for month in months if month[0] is not None)


def _without_date(question: str) -> Iterator[tuple[int, int, Designation]]:
    """Yield what is no date, the surest first; they may overlap."""
    for match in _VERSION.finditer(question):
        yield *match.span(), _version(match[0], match[1])
    for match in chain(_REGISTRATION.finditer(question), _LONG_NUMBER.finditer(question)):
        yield *match.span(), _code(match[0])
    for start, end, number in numbers_of_one(question):
        yield start, end, _code(question[start:end], _PARTS.findall(number))
    yield from map(_address, _ADDRESS.finditer(question))
    for match in _TOKEN.finditer(question):
        if (designation := _of_token(match[0])) is not None:
            yield *match.span(), designation
    for match in _ACRONYM.finditer(question):
        if not _YEAR.fullmatch(match[2]) and not _RANGE_OF_YEARS.fullmatch(match[2]):
            yield *match.span(), _code(match[0])
    yield from _with_kind(question)


def _with_kind(question: str) -> Iterator[tuple[int, int, Designation]]:
    """Yield numbers with their kind, or with a word or sign for numbers."""
    plain = _NUMBER_SIGN.sub(lambda match: "#".ljust(len(match[0])), question)
    for match in _ORDINAL.finditer(question):
        ordinal = _ordinal(match)
        if ordinal[0]:
            figures = f"{ordinal[0]}"
            pattern = _number("", figures).pattern if len(figures) > 2 else None
            yield *match.span(), Designation(match[0], f"{match[0]} {figures}", frozenset(), pattern, ordinal)
    for match in _KIND.finditer(plain):
        number = match[1] or match[2] or match[3]
        following_word = _NEXT_WORD.match(question, match.end())
        may_count = number.isdigit() and following_word and fold(following_word[1]) not in ENGLISH | RUSSIAN
        if not _YEAR.fullmatch(number) and not (may_count and "#" in match[0]):
            yield *match.span(), (_kind_and_number if may_count else _number)(question[slice(*match.span())], number)
    for match in _MARKED.finditer(plain):
        yield *match.span(), _number(question[slice(*match.span())], match[1])


def _ordinal(match: re.Match[str]) -> tuple[int, str]:
    """Return the number and the kind of a match of `_ORDINAL`; 0 if it is no number."""
    number, kind = (fold(group) for group in match.groups() if group)
    if number in _DIVISIONS:
        number, kind = kind, number
    return int(_IN_LETTERS.get(number) or number_value(number, "zh") or 0), _DIVISIONS.get(kind, kind)


def _of_token(token: str) -> Designation | None:
    """Return what a word of a question names; None if it is an ordinary one."""
    if _BOOK_NUMBER.fullmatch(token):
        return _code(token, _PARTS.findall(token.replace("-", "")))
    digits, has_letters = sum(map(str.isdigit, token)), any(map(str.isalpha, token))
    if has_letters and ("_" in token.strip("_") or _CAMEL.fullmatch(token) or _DOTTED.fullmatch(token)):
        return _code(token)
    if not digits or _AMOUNT.fullmatch(token) or _PERIOD.fullmatch(token):
        return None
    if re.fullmatch(r"[vV]?\d+(?:\.\d+)+", token) and (has_letters or token.count(".") > 1):
        return _version(token, token.lstrip("vV"))
    if has_letters:
        is_upper = sum(map(str.isupper, token)) > 1 and token.upper() == token  # LC-34; not B12, ww1, Xfce4
        return _code(token) if digits > 2 or (digits == 2 and is_upper) else None
    return _code(token) if digits > 4 and len(_PARTS.findall(token)) > 2 else None


def _code(text: str, parts: Sequence[str] = ()) -> Designation:
    runs = [fold(part) for part in parts or (_HUMPS if _CAMEL.fullmatch(text) else _PARTS).findall(text)]
    runs = runs if len(runs) <= _MOST_PARTS else [fold(text)]
    patterns = [_run(runs[0])]
    for former, part in pairwise(runs):
        patterns.append(f"{_BREAK}{{{int((former[-1] + part[0]).isdigit())},3}}{_run(part)}")
    words = " ".join(dict.fromkeys((text, "".join(runs), "-".join(runs), " ".join(runs))))
    return Designation(text, words, frozenset(), _with_bounds("".join(patterns), right_edge=_END_OR_EDITION))


def _run(part: str) -> str:
    """The pattern of letters or digits in a row; long numbers may be written in groups, and GBT as GB/T."""
    if part.isdigit():
        return _BETWEEN_GROUPS.join(part) if FEWEST_DIGITS <= len(part) <= _MOST_PARTS else part
    return "[/·]?".join(part) if len(part) < FEWEST_DIGITS else re.escape(part)


def _address(match: re.Match[str]) -> tuple[int, int, Designation]:
    groups = re.findall("(?i)[0-9a-f]{2}", match[1]) if match[1] else [*match.group(2, 3)] if match[2] else [match[0]]
    groups = [re.escape(group.lower()) for group in groups]
    pattern = rf"(?<![{_OWN}:.]){'[ :.-]?'.join(groups)}(?![{_OWN}:]|\.\d)"
    words = " ".join((match[0], *(mark.join(groups) for mark in (":", "-", " ", ""))))
    return *match.span(), Designation(match[0], words, frozenset(), re.compile(pattern))


def _version(text: str, number: str) -> Designation:
    pattern = rf"(?:v\.?\s?)?{re.escape(number)}"
    return Designation(text, f"{text} {number} v{number}", frozenset(), _with_bounds(pattern))


def _number(text: str, number: str) -> Designation:
    number = number.rstrip("-/")
    is_grouped = number.isdigit() and number[0] != "0" and len(number) <= _MOST_PARTS
    pattern = (
        "[,' \u00a0\u202f]?".join(_GROUPS.split(number))
        if is_grouped
        else re.escape(number).replace("\\-", r"\s?[-‐‑–—]\s?")
    )
    return Designation(
        text.strip().rstrip("-/"),
        f"{text} {number}",
        frozenset(),
        _with_bounds(pattern, left_edge=r"(?<!\d[.,])(?<![0-9_])", right_edge=r"(?![0-9_]|[.,]\d)"),
    )


def _kind_and_number(text: str, number: str) -> Designation:
    """Return what may be a count: only a text with the kind, in any of its forms, before the number holds it."""
    number = number.rstrip("-/")
    stem = re.escape(fold(text.split(maxsplit=1)[0])[:-1])
    pattern = _with_bounds(rf"{stem}[^\W\d_]{{0,3}}[\s.:#-]{{1,4}}{re.escape(number)}", right_edge=r"(?![0-9_]|[.,]\d)")
    return Designation(text.rstrip("-/"), f"{text} {number}", frozenset(), pattern, is_certain=False)


def _with_bounds(
    pattern: str,
    *,
    left_edge: str = rf"(?<!\d[.,/\-])(?<![{_OWN}])",
    right_edge: str = rf"(?![{_OWN}]|[.,/\-]\d)",
) -> re.Pattern[str]:
    return re.compile(f"{left_edge}{pattern}{right_edge}")


def _comparable(text: str) -> str:
    return fold(_NUMBER_SIGN.sub("#", text))
