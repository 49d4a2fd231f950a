"""Literal texts and regular expressions found in stored documents, without reading most of them.

Signatures tell which documents can match: the pairs and triples of each document's characters, hashed into some
thousands of bits. They are stored bit by bit, each bit for all documents together, so that the documents with all pairs
and triples of a text are found by a few ANDs (a bit-sliced signature file: Faloutsos and Christodoulakis, "Signature
files", ACM Transactions on Information Systems 2(4), 1984). A signature can only rule out: the remaining documents are
matched by RE2, whose time is linear in the text for any pattern. The texts are stored beside the signatures, one after
the other.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import re2

from pointsman.integrations.mcp.answer_values import sound
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.values.types import Document

MAX_COUNT: Final = 100
"""Matches counted in one document."""

ALL_BYTES: Final = 768 << 20
"""Bytes of the texts and signatures kept for all datasets."""

DATASET_BYTES: Final = 512 << 20
"""Size of the texts of one dataset; the documents of a larger one are read one by one."""

SECONDS: Final = 2.0
"""Seconds for matching documents; building an index takes additional time."""

_PATTERN_MEMORY: Final = 4 << 20  # bytes of a compiled pattern; RE2 refuses one that needs more
_BLOCK: Final = 512  # documents whose signatures are computed together
_CHUNK: Final = 64  # documents matched together if many of them are candidates
_LARGE_CHUNK: Final = 12
_SIGNATURES: Final = 128 << 20  # bytes of the signatures of one dataset
_MOST_BITS, _LEAST_BITS = 2048, 256
_PAIR: Final = np.uint32(0xFFFFFFFF)  # in place of a third character

Grams = tuple["NDArray[np.uint32]", "NDArray[np.intp]"]


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A document in which a pattern matches.

    Attributes:
        id: id of the document.
        start: start of the first match, in characters of the document's text.
        end: end of the first match (exclusive).
        count: number of matches, up to `MAX_COUNT`.
    """

    id: str
    start: int
    end: int
    count: int


class Pattern:
    """A text or regular expression to look for.

    Args:
        text: literal, or a regular expression in RE2's syntax; ``^`` and ``$`` match at line ends.
        regex: whether the text is a regular expression.
        ignore_case: whether to ignore upper and lower case.

    Raises:
        InputError: the regular expression is invalid, or needs too much memory.
    """

    def __init__(self, text: str, *, regex: bool = False, ignore_case: bool = False) -> None:
        options = re2.Options()
        options.literal, options.case_sensitive = not regex, not ignore_case
        options.log_errors, options.max_mem = False, _PATTERN_MEMORY
        try:
            self._pattern = re2.compile((f"(?m){text}" if regex else text).encode(), options)
        except re2.error as error:
            message = error.args[0] if error.args else error
            message = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
            raise InputError(f"the pattern cannot be used: {message!s:.200}; see RE2's syntax") from None
        except UnicodeEncodeError:
            raise InputError("the pattern has half of a character (a lone surrogate) in it") from None
        self.literals = _literals(text) if regex else [text]

        self.by_lines = not (regex and _WHOLE_TEXT.search(text))

    def found_in(self, id_: str, text: bytes, deadline: float) -> GrepMatch | None:
        """Return where it matches in a document's text, ignoring empty matches; None if it does not.

        Raises:
            TimeoutError: the time ``deadline`` (`time.monotonic`) has passed.
        """
        matches = self._matches(text, deadline)
        first = next(matches, None)
        if first is None:
            return None
        count = 1 + sum(1 for _ in islice(matches, MAX_COUNT - 1))
        start, end = (
            len(text[:offset].decode("utf-8", "ignore")) for offset in first.span()
        )  # \C matches single bytes
        return GrepMatch(id_, start, end, count)

    def _matches(self, text: bytes, deadline: float) -> Iterator[Any]:
        """Yield the matches that are not empty; each step, also over an empty one, may read the rest of the text."""
        steps = self._pattern.finditer(text)
        while time.monotonic() <= deadline:
            if (match := next(steps, None)) is None:
                return
            if match.end() > match.start():
                yield match
        raise TimeoutError

    def next_start(self, text: bytes, start: int, end: int) -> int:
        """Return the next possible match between two positions of a text; -1 if there is none."""
        match = self._pattern.search(text, start, end)
        return -1 if match is None else match.start()


_WHOLE_TEXT: Final = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-")
"""Matches expressions that may refer to the start or end of the whole text, not only of its lines."""

_TOKEN: Final = re.compile(
    r"\\[^pPxQEC0-7]"  # an escape of one character; the others are longer
    r"|\[\^?\]?(?>\[:[^\]]*:\]|\\.|[^\]\\])*\]"  # a character class
    r"|\{\d*(?:,\d*)?\}"  # a quantifier; other braces stand for themselves
    r"|\(\?[a-zA-Z-]*\)"  # flags; a quantifier after them applies to what is before them
    r"|.",
    re.DOTALL,
)


def _literals(pattern: str) -> list[str]:
    r"""Return texts contained in every match of a regular expression; not necessarily all of them.

    >>> _literals(r"error: (timeout|refused) on port \d+, retry")
    ['error: ', ' on port ', ', retry']
    >>> _literals("colou?r"), _literals("a|b")
    (['colo'], [])
    """
    texts, run, depth = [], "", 0
    for element in _TOKEN.findall(pattern):
        if element == "\\" or (element == "|" and not depth):
            return []
        if element.startswith("(?") and element.endswith(")"):
            continue
        depth += {"(": 1, ")": -1}.get(element, 0)
        character = element[1:] if element.startswith("\\") and not element[1:].isalnum() else element
        if depth == 0 and len(character) == 1 and (character != element or element not in ".^$+?*{()"):
            run += character
            continue
        if element[0] in "?*{":
            run = run[:-1]  # the character before it is optional
        texts.append(run)
        run = ""
    return [text for text in (*texts, run) if len(text) > 1]


class TextIndex:
    """The texts of a dataset's documents with their signatures.

    Args:
        documents: in the order in which matches are returned.
        count: their approximate number: with many documents, signatures are shorter.
    """

    def __init__(self, documents: Iterable[Document], count: int) -> None:
        self._width = _MOST_BITS
        while self._width > _LEAST_BITS and self._width * count > 8 * _SIGNATURES:
            self._width //= 2
        self.ids: list[str] = []
        blocks, texts = [], []
        remaining = iter(documents)
        while block := list(islice(remaining, _BLOCK)):
            self.ids += [document.id for document in block]
            sounds = [sound(document.text) for document in block]
            texts += [text.encode() for text in sounds]
            blocks.append(self._block(sounds))
        self._rows = np.concatenate(blocks, axis=1) if blocks else np.zeros((self._width, 0), np.uint8)
        self._text = b"\n".join(texts)
        self._starts = [0, *np.cumsum([len(text) + 1 for text in texts]).tolist()]

    @property
    def nbytes(self) -> int:
        """Return the bytes of texts and signatures."""
        return self._rows.nbytes + len(self._text)

    def grep(self, pattern: Pattern, deadline: float) -> Iterator[GrepMatch]:
        """Yield the documents in which a pattern matches, in their original order.

        Args:
            pattern: the pattern to find.
            deadline: the time (`time.monotonic`) at which to give up.

        Raises:
            TimeoutError: that time has passed.
        """
        for number in self._promising(pattern, self._candidates(pattern.literals)):
            text = self._text[self._starts[number] : self._starts[number + 1] - 1]
            match = pattern.found_in(self.ids[number], text, deadline)
            if match is not None:
                yield match

    def _promising(self, pattern: Pattern, candidates: NDArray[np.intp]) -> Iterator[int]:
        """Yield the candidates that may match; where many are neighbours, their texts are searched as one."""
        edges = np.searchsorted(candidates, np.arange(0, len(self.ids) + _CHUNK, _CHUNK)).tolist()
        for chunk, (first, last) in enumerate(pairwise(edges)):
            if last - first < _LARGE_CHUNK or not pattern.by_lines:
                yield from candidates[first:last].tolist()
                continue
            number, end = chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(self.ids))
            while number < end:
                offset = pattern.next_start(self._text, self._starts[number], self._starts[end] - 1)
                if offset < 0:
                    break
                # A match that begins in a document may end in the next one: then the document has no match of its own.
                number = bisect_right(self._starts, offset, number) - 1
                yield number
                number += 1

    def _candidates(self, literals: Sequence[str]) -> NDArray[np.intp]:
        """Return the positions of the documents that may contain all of these texts, ignoring case."""
        hashes = np.unique(_grams(literals, self._width)[0])
        if not len(hashes):
            return np.arange(len(self.ids))
        numbers = np.flatnonzero(np.unpackbits(np.bitwise_and.reduce(self._rows[hashes], axis=0)))
        return numbers[numbers < len(self.ids)]

    def _block(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        bit_rows = np.zeros((self._width, -(-len(texts) // 8) * 8), bool)
        bit_rows[_grams(texts, self._width)] = True
        return np.packbits(bit_rows, axis=1)


def _grams(texts: Sequence[str], width: int) -> Grams:
    """Return the hashes, below ``width``, of all pairs and triples of characters, and the index of each one's text."""
    folded_texts = [text.casefold() for text in texts]
    points = np.frombuffer("".join(folded_texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    owner = np.repeat(np.arange(len(folded_texts)), [len(text) for text in folded_texts])
    if len(points) < 2:
        return np.zeros(0, np.uint32), np.zeros(0, np.intp)
    pairs = owner[:-1] == owner[1:]
    triples = owner[:-2] == owner[2:]
    hashes = np.concatenate(
        [
            _hash_grams(points[:-1][pairs], points[1:][pairs], _PAIR, width),
            _hash_grams(points[:-2][triples], points[1:-1][triples], points[2:][triples], width),
        ]
    )
    return hashes, np.concatenate([owner[:-1][pairs], owner[:-2][triples]])


def _hash_grams(a: NDArray[np.uint32], b: NDArray[np.uint32], c: Any, width: int) -> NDArray[np.uint32]:
    """Hash multiplicatively; the last step mixes high bits into low ones before the highest are taken."""
    with np.errstate(over="ignore"):
        mixture = a * np.uint32(0x9E3779B1) + b * np.uint32(0x85EBCA77) + c * np.uint32(0xC2B2AE3D)
        mixture = (mixture ^ (mixture >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    hashes: NDArray[np.uint32] = mixture >> np.uint32(32 - width.bit_length() + 1)
    return hashes


def index_of(store: Store) -> TextIndex | None:
    """Build the index of a store's documents; return None if their texts are too long together."""
    characters_left = DATASET_BYTES

    def documents_within_limit() -> Iterator[Document]:
        nonlocal characters_left
        for document in store.documents():
            characters_left -= len(document.text)
            if characters_left < 0:
                return
            yield document

    index = TextIndex(documents_within_limit(), store.count())
    return index if characters_left >= 0 else None


def grep(store: Store, index: TextIndex | None, pattern: Pattern, deadline: float) -> Iterator[GrepMatch]:
    """Like `TextIndex.grep`; without an index, all documents are read.

    Raises:
        TimeoutError: the time ``deadline`` has passed.
    """
    if index is not None:
        yield from index.grep(pattern, deadline)
        return
    for document in store.documents():
        match = pattern.found_in(document.id, sound(document.text).encode(), deadline)
        if match is not None:
            yield match
