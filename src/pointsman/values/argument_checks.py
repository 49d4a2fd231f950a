"""Checks of arguments that several interfaces take: ids, pages, and numbers of results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeGuard

from pointsman.tools.errors import InputError


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite int or float, within the range of a float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_id(id: str, what: str = "a document's id") -> str:  # noqa: A002  (the field's word)
    """Checks the type of a document's id, or of ``what``, and returns it.

    Raises:
        InputError: it is not a str.
    """
    if not isinstance(id, str):
        raise InputError(f"{what} is a str, not {id!r:.80}")
    return id


def check_ids(ids: str | Iterable[str]) -> list[str]:
    """Checks one id or several and returns them as a list.

    Raises:
        InputError: they are not strings.
    """
    if isinstance(ids, str):
        return [ids]
    if not isinstance(ids, Iterable):
        raise InputError(f"ids are a list of str, not {ids!r:.80}")
    return list(map(check_id, ids))


def check_page(after: int, limit: int) -> None:
    """Checks where a page of documents begins and how many it has.

    Raises:
        InputError: a number is out of range.
    """
    numbers = all(isinstance(number, int) and not isinstance(number, bool) for number in (after, limit))
    if not numbers or not 0 <= after < 2**63 or not 1 <= limit < 2**31:
        raise InputError(
            f"after is 0 or the cursor of the previous page, and limit is at least 1, not {after!r:.80}, {limit!r:.80}"
        )


def check_top_k(top_k: int) -> int:
    """Checks a number of results and returns it.

    Raises:
        InputError: it is not a positive int.
    """
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise InputError(f"the number of results is an int from 1 up, not {top_k!r:.80}")
    return top_k


def check_count(count: int, name: str, minimum: int = 1) -> int:
    """Checks a number of things and returns it.

    Raises:
        InputError: it is not an int, or less than ``minimum``.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < minimum:
        raise InputError(f"{name} is an int from {minimum} up, not {count!r:.80}")
    return count


def check_seconds(seconds: float | None, name: str) -> None:
    """Checks a time limit.

    Raises:
        InputError: it is neither None nor a number above 0.
    """
    if seconds is not None and not (is_number(seconds) and seconds > 0):
        raise InputError(f"{name} is a number of seconds above 0, or None, not {seconds!r:.80}")
