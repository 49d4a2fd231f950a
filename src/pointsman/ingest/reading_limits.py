"""Limits of reading one file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from pointsman.tools.errors import InputError

MOST_EXPANSION: Final = 8  # characters for a byte; names of columns that are repeated in each row come near to it


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of reading one file; anything beyond them is left out and reported, and the next file is read.

    Attributes:
        seconds: Processor time.
        memory: Bytes that the reading process may use.
        pages: Pages of a PDF; also slides, and cells of a notebook.
        pictures: Pages of a PDF without text that are read as pictures; each may take ``seconds`` by itself.
        characters: Characters of text.
        expanded: Characters of text of a file that has more than ``MOST_EXPANSION`` for each of its bytes, as one that
            was made to be small has (700 kB unpack to 39 million); it bounds what is embedded and stored of it.

    Raises:
        InputError: A limit is not a positive integer, or is too small for the reader itself.
    """

    seconds: int = 25
    memory: int = 900 << 20
    pages: int = 5_000
    pictures: int = 200
    characters: int = 60_000_000
    expanded: int = 10_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise InputError(f"{field.name} is a positive whole number, not {value!r}")
        if self.memory < 300 << 20:
            raise InputError(f"memory is at least {300 << 20} bytes, not {self.memory}")

    def most_characters(self, size: int) -> int:
        """Return how many characters of text are taken of a file of ``size`` bytes."""
        return min(self.characters, max(self.expanded, MOST_EXPANSION * size))
