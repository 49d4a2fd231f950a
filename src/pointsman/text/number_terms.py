"""Terms of words with digits: numbers, amounts with units, versions and codes, so that one thing meets itself.

============================== ================================================= ==============================
a word                         its terms                                         meets, and never
============================== ================================================= ==============================
``14,833.33``, ``14.833,33``   ``14833.33``                                      ``14833.33``
``1,299``; ``1.299``           ``1299``; ``1299 1.299``: each that it can be     ``1299``
``1,5``; ``1,2,3``             ``1.5``; ``1-2-3 1 2 3``                          ``1.5``; ``2``
``3.5mm``, ``16GB``            ``3.5 mm``, ``16 gb``                             ``3.5 mm``, not ``35mm``
``1990s``, ``5th``, ``2024г``  ``1990``, ``5``, ``2024``                         ``1990``
``4a``                         ``4a 4``                                          ``4``, not ``4b``
``v1.12``                      ``v1.12 1.12``                                    ``1.12``, not ``v11.2``
``ISO9370``, ``№616``          ``iso9370 iso 9370``, ``no616 no 616``            ``ISO 9370``, ``№ 616``
``INV-2026-0417``              ``inv2026-0417 inv 2026 0417``                    not ``INV-20260-417``
``2024-01-15``                 ``2024-01-15 2024 01 15``                         ``2024``
============================== ================================================= ==============================

The rows of codes and lists are those of any word with separated parts, joined in `pointsman.text.tokens`. Short names
such as ``B12``, ``mp3`` and hexadecimal numbers are one term.
"""

from __future__ import annotations

import re
from typing import Final

from pointsman.text.unicode import fold

_NUMBER: Final = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)*(?:,[0-9]+)?)"
_ONE_NUMBER: Final = re.compile(_NUMBER)
_WITH_HYPHENS: Final = re.compile(r"[0-9]+(?:[.‐‑-][0-9]+)*[‐‑-][0-9]+(?:[.‐‑-][0-9]+)*")
_AMOUNT: Final = re.compile(rf"({_NUMBER})([^\W\d_]{{1,12}})")
_ENDINGS: Final = frozenset({"s", "st", "nd", "rd", "th", "г"})
_VERSION: Final = re.compile(r"v([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_NAME_AND_NUMBER: Final = re.compile(r"([^\W\d_]{2,})([0-9]{3,})")

_GROUPS_THEN_POINT: Final = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+")
_GROUPS_THEN_COMMA: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_GROUPS: Final = re.compile(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\.[0-9]{3})+)")


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
        return [word, *word.split("-")]
    if (match := _VERSION.fullmatch(word)) is not None:
        return [fold(word), match[1]]
    if (match := _NAME_AND_NUMBER.fullmatch(word)) is not None:
        return [fold(word), fold(match[1]), match[2]]
    match = _AMOUNT.fullmatch(word)
    return [] if match is None else _amount(match[1], fold(match[2]))


def _amount(number: str, unit: str) -> list[str]:
    values = _values(number)
    if unit in _ENDINGS:
        return values
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
