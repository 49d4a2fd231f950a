"""The numbers that programs show before the paragraphs of a list, which no file holds as words."""

from __future__ import annotations

import re
from collections import defaultdict

_MOST_NUMBERS = 100_000
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_LETTERS = {"Letter": "abcdefghijklmnopqrstuvwxyz", "russian": "абвгдежзиклмнопрстуфхцчшщэюя"}  # without й, ё, ъ, ы, ь
_CHINESE_DIGITS, _CHINESE_UNITS = "零一二三四五六七八九", ("", "十", "百", "千", "万")
_CHINESE = re.compile("(?:chinese|japanese|taiwanese)Counting|ideographDigital")


class ListNumbers:
    """Counts the numbers of lists.

    Attributes:
        levels: By the name of a kind of list, then by level: its first number, form and text, such as ``%1.%2``.
    """

    def __init__(self) -> None:
        self.levels: dict[str, dict[int, tuple[int, str, str]]] = {}
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)

    def start(self, identity: str, level: int, number: int) -> None:
        """Let the next number of a list be this one."""
        self._counts[identity][level] = number - 1

    def next(self, identity: str, level: int) -> str:
        """Return the next number of a list, such as ``2.1. ``; empty for bullets.

        Args:
            identity: The name of the kind of list; lists that are counted apart have more after a ``/``.
            level: The level in the list, from 0.
        """
        levels = self.levels.get(identity.partition("/")[0], {})
        if level not in levels:
            return ""
        counts = self._counts[identity]
        start, form, label = levels[level]
        counts[level] = min(counts.get(level, start - 1) + 1, _MOST_NUMBERS)
        for deeper in [number for number in counts if number > level]:
            del counts[deeper]
        if form in ("bullet", "none"):
            return ""
        for number, (begin, number_form, _) in levels.items():
            label = label.replace(f"%{number + 1}", list_number(counts.get(number, begin), number_form))
        return f"{label} " if label else ""


def list_number(number: int, form: str) -> str:
    """Write a number as a list does: in digits, letters, Roman or Chinese numerals, by the names that Word has.

    >>> [list_number(28, form) for form in ("decimal", "upperLetter", "lowerRoman", "russianLower", "chineseCounting")]
    ['28', 'BB', 'xxviii', 'я', '二十八']
    """
    text = str(number)
    letters = next((letters for name, letters in _LETTERS.items() if name in form), "")
    if letters and number > 0:
        text = letters[(number - 1) % len(letters)] * min((number - 1) // len(letters) + 1, 9)
    elif form.endswith("Roman") and 0 < number < 4000:
        text, remainder = "", number
        for value, numeral in _ROMAN:
            text += numeral * (remainder // value)
            remainder %= value
    elif _CHINESE.match(form) and 0 < number < 100_000:
        pairs = zip(text, _CHINESE_UNITS[: len(text)][::-1], strict=True)
        numerals = "".join(_CHINESE_DIGITS[int(digit)] + (unit if digit != "0" else "") for digit, unit in pairs)
        text = re.sub("零+", "零", numerals).rstrip("零")
        text = text.removeprefix("一") if 10 <= number < 20 else text
    elif "EnclosedCircle" in form and 0 < number <= 20:
        text = chr(ord("①") + number - 1)
    return text.upper() if "pper" in form else text
