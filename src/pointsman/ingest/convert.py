"""The content of a file to sources: the format by name, then by content; the encoding by content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath

from pointsman.ingest import _code, _markup, _pdf, _records, _zipped
from pointsman.ingest.encoding import decode
from pointsman.ingest.limits import FileLimits
from pointsman.ingest.source import Lines, Problem, Section, Source, clean, stem

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


def convert(path: str, data: bytes, limits: FileLimits | None = None) -> Converted:
    """Extract the text of a file, in this process; `FileReader` does it in one that can be ended.

    Args:
        path: The id to give the source; its ending tells the format.
        data: The content of the file.
        limits: Of pages and characters, what goes beyond is reported as a problem; time and memory are not limited
            here.

    Yields:
        One source for a document, one for each record of a file of records, and a problem for each part that
        could not be read; nothing for an empty file.

    Raises:
        InputError: Nothing in the file can be used; the message says why.
    """
    limits = limits or FileLimits()
    digest, offset = sha256(data).hexdigest(), 0
    for item in _converted(path, data, limits):
        if isinstance(item, Problem):
            yield item
            continue
        if offset + len(item.text) > limits.characters:
            item = item.shortened(limits.characters - offset)  # noqa: PLW2901
            yield Problem(path, f"more than {limits.characters} characters of text; the rest is left out")
        yield replace(item, offset=offset, sha256=digest)
        offset += len(item.text) + len(_BETWEEN)
        if offset >= limits.characters:
            return


_BETWEEN = "\n\n"  # the sources of one file


def text_of_bytes(path: str, data: bytes, limits: FileLimits | None = None) -> str:
    """The text of a whole file, in which `Source.offset` and the ``start`` and ``end`` of passages count."""
    return _BETWEEN.join(item.text for item in convert(path, data, limits) if isinstance(item, Source))


def _converted(path: str, data: bytes, limits: FileLimits) -> Converted:
    kind = format_of(path, data)
    if kind == "pdf":
        return _pdf.pdf(path, data, limits.pages)
    if kind == "docx":
        return iter((_zipped.docx(path, data),))
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
    """Text without marks: one section, titled by the name of the file; a log's units are its lines."""
    is_log = path.lower().endswith(".log")
    lines = (Lines(0, 1, text.count("\n") + 1),)
    return Source(path, stem(path), (Section((), text, 0),), text, "txt", lines=lines, is_code=is_log)
