"""The numbers and dates in the columns of a table, as all rows of a column together say that they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_DAY, _MONTH, _YEAR = "(?P<day>0?[1-9]|[12][0-9]|3[01])", "(?P<month>0?[1-9]|1[0-2])", "(?P<year>[12][0-9]{3})"
_NOTATIONS: Final = {
    "a point before decimals": re.compile(
        r"(?P<whole>-?(?:0|[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:,[0-9]{3})+))(?:\.(?P<decimals>[0-9]{1,12}))?"
    ),
    "a comma before decimals": re.compile(
        "(?P<whole>-?(?:0|[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:[. \u00a0][0-9]{3})+))(?:,(?P<decimals>[0-9]{1,12}))?"
    ),
    "the day first": re.compile(rf"{_DAY}([/.]){_MONTH}\2{_YEAR}"),
    "the month first": re.compile(f"{_MONTH}/{_DAY}/{_YEAR}"),
}
"""By what is said of them; a number that begins with a zero is a code."""


def typed_value(cell: str, notation: str) -> str | float | None:
    """Return the number or, in ISO 8601, the date that a cell holds in a notation; None if it holds none.

    >>> typed_value("1.299,50", "a comma before decimals"), typed_value("5.6.2024", "the day first")
    (1299.5, '2024-06-05')
    """
    match = _NOTATIONS[notation].fullmatch(cell.strip())
    if match is None:
        return None
    parts = match.groupdict()
    if "year" in parts:
        return f"{parts['year']}-{int(parts['month']):02}-{int(parts['day']):02}"
    whole = re.sub("[^0-9-]", "", parts["whole"])
    return float(f"{whole}.{parts['decimals']}") if parts["decimals"] else int(whole)


def column_notations(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[dict[str, str], list[str]]:
    """Return the notation of each column that holds numbers or dates alone, and what is said of doubtful cells.

    >>> column_notations(["price"], [["1.299"], ["17,50"]])
    ({'price': 'a comma before decimals'}, ["'price': 1.299 is 1299, as other rows have a comma before decimals"])
    >>> column_notations(["price"], [["1.299"], ["2.400"]])
    ({}, ["'price': 1.299 is 1.299 or 1299, which no row tells, so the column stays text"])
    """
    notations, remarks = dict[str, str](), list[str]()
    columns: list[list[str]] = [[] for _ in header]
    for row in rows:
        for column, cell in zip(columns, row, strict=False):
            column.extend(filter(None, [cell.strip()]))
    for name, cells in zip(header, columns, strict=True):
        readings = {notation: [typed_value(cell, notation) for cell in cells] for notation in _NOTATIONS}
        fitting = {notation: values for notation, values in readings.items() if cells and None not in values}
        doubtful = [cell for cell, *values in zip(cells, *readings.values(), strict=True) if len({*values, None}) > 2]
        reason = "which no row tells, so the column stays text"
        if len(set(map(tuple, fitting.values()))) == 1:
            notations[name] = next(iter(fitting))
            reason = f"as other rows have {notations[name]}"
        if fitting and doubtful:
            value = " or ".join(str(typed_value(doubtful[0], notation)) for notation in fitting)
            remarks.append(f"{name!r:.80}: {doubtful[0]} is {value}, {reason}")
    return notations, remarks
