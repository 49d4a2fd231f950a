"""Cuts a text to a length that a model can read, between sentences or words."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from pointsman.text import sentences

_DENSE = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_DENSE_WEIGHT = 3
"""A Chinese character carries as much as about three letters, and is about one token."""

_LEAST_SHARE = 0.7
"""How much of the limit a cut at the end of a sentence must use; otherwise the cut is between words."""

_WORD_END = re.compile(r"\s\S*$")
_LONGEST_WORD = 60


def shortened(text: str, limit: int) -> str:
    """The beginning of a text, at most ``limit`` characters, a Chinese one counting as three.

    It ends with a sentence if that leaves out little, otherwise with a word, and inside a word only if it is very long.

    >>> shortened("One came. Two went away, and three stayed.", 12), shortened("One came. Two went away.", 20)
    ('One came.', 'One came. Two went')
    """
    if len(text) * _DENSE_WEIGHT <= limit:
        return text
    head = text[: limit + 1]
    weights = accumulate(_DENSE_WEIGHT if _DENSE.match(character) else 1 for character in head)
    fits = bisect_right(list(weights), limit)
    if fits >= len(text):
        return text
    # The search includes one character after what fits, as a stop may be the last that fits.
    ends = [end for _, end in sentences(head[:fits]) if end < fits or head[fits - 1] in ".!?…。！？"]
    if ends and ends[-1] >= _LEAST_SHARE * fits:
        return head[: ends[-1]]
    if not head[fits : fits + 1].isspace() and not _DENSE.match(head[fits : fits + 1]):
        word = _WORD_END.search(head, max(0, fits - _LONGEST_WORD), fits)
        if word is not None and word.start():
            fits = word.start()
    return head[:fits].rstrip()
