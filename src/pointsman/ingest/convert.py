"""The content of a file to sources: the format by name, then by content; the encoding by content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from pointsman.ingest import _code, _markup, _office, _records
from pointsman.ingest.encoding import decode
from pointsman.ingest.source import Problem, Source, clean, outline

Converted = Iterator[Source | Problem]

CODE_ENDINGS = frozenset(
    "py pyi js mjs cjs jsx ts tsx java go rs c cc cpp cxx h hh hpp cs rb php sh bash zsh sql toml yaml yml ini cfg "  # noqa: SIM905  (a list would fill pages)
    "kt kts swift scala lua pl pm r jl dart ex exs erl hs ml clj vue svelte css scss proto graphql tf dockerfile "
    "makefile cmake ps1".split()
)
"""Endings (and whole names) of files that are cut at definitions."""

RECORD_KINDS = frozenset({"json", "jsonl", "csv", "tsv"})
"""Formats in which each record is a document."""

_TEXT_FORMATS: dict[str, Callable[[str, str], Converted]] = {
    "md": lambda path, text: iter((_markup.markdown(path, text),)),
    "rst": lambda path, text: iter((_markup.restructured(path, text),)),
    "html": lambda path, text: iter((_markup.html(path, text),)),
    "txt": lambda path, text: iter((plain(path, text),)),
    "json": _records.json_file,
    "jsonl": _records.json_lines,
    "csv": lambda path, text: _records.table(path, text, "csv"),
    "tsv": lambda path, text: _records.table(path, text, "tsv"),
}
_SAME = {
    "markdown": "md", "mdown": "md", "rest": "rst", "htm": "html", "xhtml": "html", "ndjson": "jsonl",
    "text": "txt", "log": "txt",
}  # fmt: skip


def convert(path: str, data: bytes) -> Converted:
    """Extract the text of a file.

    Args:
        path: The id to give the source; its ending tells the format.
        data: The content of the file.

    Returns:
        One source for a document, one for each record of a file of records, and a problem for each part that
        could not be read, as they are asked for; nothing for an empty file.

    Raises:
        InputError: Nothing in the file can be used; the message says why. Some formats say so at the first item only.
    """
    kind = format_of(path, data)
    if kind == "pdf":
        return _office.pdf(path, data)
    if kind == "docx":
        return iter((_office.docx(path, data),))
    text = clean(decode(data, may_declare=kind == "html" or kind in CODE_ENDINGS))
    if not text.strip():
        return iter(())  # an empty file is no problem: package markers are empty on purpose
    if kind in CODE_ENDINGS:
        return iter((_code.code(path, text, kind),))
    return _TEXT_FORMATS[kind](path, text)


def format_of(path: str, data: bytes) -> str:
    """The format of a file: what its first bytes say beyond doubt, else its ending, else a look at the text."""
    if data.startswith(b"%PDF-"):
        return "pdf"
    if data.startswith(b"PK\x03\x04") and b"word/" in data:
        return "docx"
    name = PurePosixPath(path).name.lower()
    ending = PurePosixPath(name).suffix[1:] or name
    ending = _SAME.get(ending, ending)
    if ending in ("pdf", "docx") or ending in _TEXT_FORMATS or ending in CODE_ENDINGS:
        return ending
    head = data[:1024].lstrip().lower()
    return "html" if head.startswith((b"<!doctype html", b"<html")) else "txt"


def plain(path: str, text: str) -> Source:
    """Text without marks: one section, titled by the name of the file."""
    return outline(path, "txt", [(0, text)])
