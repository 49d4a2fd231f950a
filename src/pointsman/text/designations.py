"""What a question names exactly: a code, an identifier, a version, a number with its kind, or a full date.

Of such things a near miss is no answer: whoever asks for invoice 417 is not helped by invoice 416, however alike they
are. Most questions name nothing so, and are told at a glance; the notations are in `pointsman.text.notations`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pointsman.text.notations import Designation

_SIGN: Final = re.compile(r"[\d_]|[a-z][A-Z]|\.\w+\.|月[^日号號]{1,4}[日号號]|第[一-龥]")
"""Without one of these a question names nothing exactly."""
_YEAR: Final = re.compile("[0-9０-９]{4}")


@lru_cache(maxsize=256)
def designations(question: str) -> tuple[Designation, ...]:
    """Return what a question names exactly, in order; see the table of `pointsman.text.notations`.

    >>> [name.text for name in designations("when is INV-2026-0417 due, and what of order № 616?")]
    ['INV-2026-0417', 'order № 616']
    >>> designations("the 3 plans of 2024 under 300 euros with 16GB")
    ()
    """
    if not _SIGN.search(question):
        return ()
    from pointsman.text.notations import designations_in  # takes milliseconds to import

    return designations_in(question)


@lru_cache(maxsize=256)
def asked_months(question: str) -> frozenset[tuple[int | None, int]]:
    """Return the months of a year that a question without designations is about.

    >>> asked_months("invoices paid in May 2026"), asked_months("paid since May 2026")
    (frozenset({(2026, 5)}), frozenset())
    """
    if not _YEAR.search(question):
        return frozenset()
    from pointsman.text.notations import asked_months_in

    return asked_months_in(question)


def other_months(text: str, months: frozenset[tuple[int | None, int]]) -> bool | None:
    """Whether a text has dates of other months, and none of these; None if it has no month of a year.

    A month without a year, as in *the same year in May*, may be of any.
    """
    from pointsman.text.notations import months_in

    own_months = months_in(text)
    has_year = any(year is not None for year, _ in own_months)
    return own_months.isdisjoint(months | {(None, month) for _, month in months}) if has_year else None


def holds_one(text: str, names: Iterable[Designation]) -> bool:
    """Whether a text holds one of the names."""
    return any(name.is_in(text) for name in names)
