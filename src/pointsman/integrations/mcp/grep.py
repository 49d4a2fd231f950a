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
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import re2

from pointsman.integrations.mcp.answer_values import sound
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pointsman.store.base_store import Store
    from pointsman.values.types import Document

MAX_COUNT: Final = 100
"""Matches counted in one document."""

ALL_BYTES: Final = 768 << 20
"""Bytes of the texts kept for all datasets."""

DATASET_BYTES: Final = 512 << 20
"""Size of the texts of one dataset; the documents of a larger one are read one by one."""

SECONDS: Final = 2.0
"""Seconds for matching documents; building an index takes additional time."""

_PATTERN_MEMORY: Final = 4 << 20  # bytes of a compiled pattern; RE2 refuses one that needs more
_CHUNK: Final = 256  # documents searched together between two looks at the clock


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


class JoinedTexts:
    """The texts of a dataset's documents, one after the other.

    Args:
        documents: in the order in which matches are returned.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.ids: list[str] = []
        texts: list[bytes] = []
        self._starts = [0]
        for document in documents:
            self.ids.append(document.id)
            texts.append(sound(document.text).encode())
            self._starts.append(self._starts[-1] + len(texts[-1]) + 1)
        self._text = b"\n".join(texts)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the texts."""
        return len(self._text)

    def grep(self, pattern: Pattern, deadline: float) -> Iterator[GrepMatch]:
        """Yield the documents in which a pattern matches, in their original order.

        Args:
            pattern: the pattern to find.
            deadline: the time (`time.monotonic`) at which to give up.

        Raises:
            TimeoutError: that time has passed.
        """
        for number in self._candidates(pattern, deadline) if pattern.by_lines else range(len(self.ids)):
            text = self._text[self._starts[number] : self._starts[number + 1] - 1]
            match = pattern.found_in(self.ids[number], text, deadline)
            if match is not None:
                yield match

    def _candidates(self, pattern: Pattern, deadline: float) -> Iterator[int]:
        """Yield the positions of the documents in which a match may begin."""
        for first in range(0, len(self.ids), _CHUNK):
            if time.monotonic() > deadline:
                raise TimeoutError
            number, end = first, min(first + _CHUNK, len(self.ids))
            while number < end:
                offset = pattern.next_start(self._text, self._starts[number], self._starts[end] - 1)
                if offset < 0:
                    break
                # A match that begins in a document may end in the next one: then the document has no match of its own.
                number = bisect_right(self._starts, offset, number) - 1
                yield number
                number += 1


def texts_of(store: Store) -> JoinedTexts | None:
    """Read the texts of a store's documents; return None if they are too long together."""
    characters_left = DATASET_BYTES

    def documents_within_limit() -> Iterator[Document]:
        nonlocal characters_left
        for document in store.documents():
            characters_left -= len(document.text)
            if characters_left < 0:
                return
            yield document

    texts = JoinedTexts(documents_within_limit())
    return texts if characters_left >= 0 else None


def grep(store: Store, texts: JoinedTexts | None, pattern: Pattern, deadline: float) -> Iterator[GrepMatch]:
    """Like `JoinedTexts.grep`; without texts in memory, the documents are read.

    Raises:
        TimeoutError: the time ``deadline`` has passed.
    """
    if texts is not None:
        yield from texts.grep(pattern, deadline)
        return
    for document in store.documents():
        match = pattern.found_in(document.id, sound(document.text).encode(), deadline)
        if match is not None:
            yield match
