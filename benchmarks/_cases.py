"""Prints what a command tries, case by case, and whether each is right."""

from __future__ import annotations

from collections.abc import Iterator


def print_cases(row: int | str, cases: Iterator[tuple[str, bool]]) -> int:
    """Try the cases of a row, print a line for each, and return how many are wrong."""
    wrong = 0
    for tried, is_right in cases:
        wrong += not is_right
        print(f"{row:>6}  {'right' if is_right else 'WRONG'}  {tried}", flush=True)
    return wrong


def outcome(wrong: int) -> int:
    """Print how many cases are wrong, and return the exit status."""
    print(f"{wrong} wrong")
    return 1 if wrong else 0
