"""The terms of a document with their counts, as they are kept beside its postings.

The terms that many documents contain have codes of two bytes, and a document's are listed as often as they occur. Its
other terms follow, spelled, those that occur more often than once with their counts. An index keeps the codes as a
document of its own, so they are committed with what is written in them. They are learnt from the terms that documents
had to spell; a code is never given to another term, so what was written before stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate, filterfalse
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

# A first byte is never a second one, so codes can be looked for like text; and neither is what ends them.
_LOWEST_FIRST_BYTE: Final = 0x80
_SECOND_BYTES: Final = 0x80  # as many there are, from 0 up
_END_OF_CODES: Final = b"\xff"
MOST_CODES: Final = (0xFF - _LOWEST_FIRST_BYTE) * _SECOND_BYTES
"""As many terms can have codes: some 130 kB on disk."""
_LEARNT_FROM: Final = 2000
"""Documents after which terms get codes; small datasets have none."""
_LEARNT_TERMS: Final = 200_000  # … or so many terms, of long documents
_LEAST: Final = 3  # documents that had to spell a term


class TermCodes:
    """Codes of the terms of one index.

    Args:
        content: of codes that an index has.

    Attributes:
        content: all terms that have codes, in the order of these.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.content = content
        terms = content.decode().split("\n") if content else []
        self._codes = {term: _code(number) for number, term in enumerate(terms)}
        self._spellings: Counter[str] = Counter()  # in how many documents each term was
        self._terms_to_count: list[str] = []  # not counted there yet: small datasets never need to
        self._spellers = 0

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, tokens: Sequence[str]) -> bytes:
        """Return the counts of a document's terms, none of which contains white space, and learn from them."""
        codes = sorted(filter(None, map(self._codes.get, tokens))) if self._codes else []  # so they compress better
        counts = Counter(filterfalse(self._codes.__contains__, tokens) if self._codes else tokens)
        lines = [term if count == 1 else f"{term} {count}" for term, count in counts.items()]
        self._learn(counts)
        return b"".join(codes) + _END_OF_CODES + "\n".join(["", *lines, ""]).encode()

    def _learn(self, terms: Iterable[str]) -> None:
        if len(self) == MOST_CODES:
            return
        self._terms_to_count += terms
        self._spellers += 1
        if self._spellers < _LEARNT_FROM and len(self._spellings) + len(self._terms_to_count) < _LEARNT_TERMS:
            return
        self._spellings.update(self._terms_to_count)
        self._terms_to_count.clear()
        if self._spellers < _LEARNT_FROM and len(self._spellings) < _LEARNT_TERMS:
            return
        for term, count in self._spellings.most_common(MOST_CODES - len(self)):
            if count >= _LEAST:
                self._codes[term] = _code(len(self))
        self.content = "\n".join(self._codes).encode()
        self._spellings.clear()
        self._spellers = 0

    def counts(self, terms: Iterable[str], documents: Iterable[bytes]) -> NDArray[np.int64]:
        """Return how often each term occurs in each document: a row for each term, a column for each document.

        Args:
            terms: the terms.
            documents: what `encode` returned for each.
        """
        parts = _END_OF_CODES.join(documents).split(_END_OF_CODES)  # each has one
        code_lists, line_lists = parts[::2], parts[1::2]
        codes, code_ends = np.frombuffer(b"".join(code_lists), "<u2"), np.cumsum(list(map(len, code_lists))) // 2
        lines, line_ends = b"".join(line_lists), list(accumulate(map(len, line_lists)))
        letters = np.frombuffer(lines, np.uint8)
        breaks = np.flatnonzero((letters == ord("\n")) | (letters == ord(" ")))
        # The eight bytes from each break on, without those after the next one: most terms of a query share no other's.
        eights = np.ndarray(len(lines), "<u8", lines + bytes(8), strides=(1,))[breaks[:-1]]
        beginnings = eights & (~np.uint64(0) >> (8 * (8 - np.minimum(np.diff(breaks), 8))).astype(np.uint64))
        terms = list(terms)
        counts = np.zeros((len(terms), len(line_lists)), np.int64)
        row_of_code = np.full(1 << 16, -1, np.int16)
        for number, (row, term) in enumerate(zip(counts, terms, strict=True)):
            if (code := self._codes.get(term)) is not None:
                row_of_code[int.from_bytes(code, "little")] = number
            spelled = b"\n" + term.encode()
            beginning = np.frombuffer(spelled[:8].ljust(8, b"\0"), "<u8")
            for start in breaks[np.flatnonzero(beginnings == beginning)].tolist():
                end = start + len(spelled)
                if lines.startswith(spelled, start) and lines[end] in b"\n ":
                    count = lines[end + 1 : lines.index(b"\n", end)]
                    row[bisect_right(line_ends, start)] = int(count) if count else 1
        rows = row_of_code[codes]
        places = np.flatnonzero(rows >= 0)
        np.add.at(counts, (rows[places], np.searchsorted(code_ends, places, "right")), 1)
        return counts


def _code(number: int) -> bytes:
    return bytes((_LOWEST_FIRST_BYTE + number // _SECOND_BYTES, number % _SECOND_BYTES))
