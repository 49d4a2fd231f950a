"""What the converters of all formats are given: limits, and how the parts and the files of a file are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pointsman.ingest.encoding import decode_file
from pointsman.ingest.source_text import ParsedDocument, Problem
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pointsman.ingest.reading_limits import FileLimits

Converted = Iterator[ParsedDocument | Problem]
MAX_UNPACKED = 128 << 20
"""Bytes to which a document may unpack; a few kilobytes of zip can hold gigabytes of zeros."""
_MOST_DEPTH = 3  # files within files: each could contain the next, without end


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one file: its limits, and how its parts are decoded and the files in it are converted.

    Attributes:
        limits: Limits of pages and alike; what is beyond them is a problem.
        before_picture: Called before each picture is read.
        encoding: What parts are in that are not UTF-8 and do not declare their encoding; by default it is guessed.
        convert: Converts a file within it, by its name, its content and its own conversion.
        sizes: Of all files within the outermost file.
        depth: How many files are around it.
        remarks: What is to be said of the encodings of its parts, each once.
    """

    limits: FileLimits
    before_picture: Callable[[], None]
    encoding: str | None
    convert: Callable[[str, bytes, Conversion], Converted]
    sizes: list[int] = field(default_factory=list)
    depth: int = 0
    remarks: dict[str, None] = field(default_factory=dict)

    def decode(self, data: bytes, label: str, *, may_declare: bool = False) -> str:
        """Return the text of a part, called ``label`` in remarks; see `decode_file`."""
        text, remark = decode_file(data, may_declare=may_declare, encoding=self.encoding)
        if remark:
            self.remarks[f"{label}: {remark}"] = None
        return text

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield the remarks as problems, and forget them."""
        yield from [Problem(path, remark) for remark in self.remarks]
        self.remarks.clear()

    def inner(self, name: str, data: bytes) -> Converted:
        """Convert a file within another."""
        self.sizes.append(len(data))
        if self.depth == _MOST_DEPTH:
            raise InputError(f"files within files are read {_MOST_DEPTH} levels deep, not deeper; unpack them")
        if sum(self.sizes) > MAX_UNPACKED:
            raise InputError(f"files within files are read up to {MAX_UNPACKED >> 20} MB; unpack them")
        return self.convert(name, data, replace(self, depth=self.depth + 1, remarks={}))
