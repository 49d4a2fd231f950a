"""The most values that JSON from elsewhere may have, checked before it is parsed.

A parser holds Python's lock until it has read a whole text, in whatever thread it runs. A megabyte of empty lists holds
it for a tenth of a second of processor time, in which nobody is answered: it is the number of values that takes time,
not their length.
"""

from __future__ import annotations

import re
from typing import Final

MAX_VALUES: Final = 100_000
"""Values of one text: elements of lists and members of objects."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # may lack its end: no search is repeated


def has_too_many_values(text: bytes) -> bool:
    """Whether JSON has more than `MAX_VALUES` values; in linear time, without parsing it.

    >>> has_too_many_values(b"[" + b"0, " * 200_000), has_too_many_values(b'"' + b"0, " * 200_000 + b'"')
    (True, False)
    """
    return _punctuation(text) > MAX_VALUES and _punctuation(_STRING.sub(b"", text)) > MAX_VALUES


def _punctuation(text: bytes) -> int:
    """Count the characters before which, or after which, a value may begin."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")
