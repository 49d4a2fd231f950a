"""Source code: one section per definition, with the names of classes and functions as headings."""

from __future__ import annotations

import ast
import re
import warnings
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pointsman.ingest.source_text import Lines, ParsedDocument, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WHOLE_CLASS = 40  # longest class that stays one section, in lines
_BLOCK_START = re.compile(r"\n[ \t]*\n(?=[^\s})\]])")  # an empty line, then text at the left margin
_DEFINITION = re.compile(
    r"\b(?:function|func|def|fn|class|interface|struct|enum|trait|impl|type|module|namespace|"
    r"(?:CREATE|create)[ ]+(?:OR[ ]REPLACE[ ]+)?\w+)[ ]+(?:\([^()\n]{0,100}\)[ ]*)?([A-Za-z_][\w.:]{0,100})"
    r"|^\[{1,2}([\w.-]{1,100})\]{1,2}"  # a table of a TOML or INI file
    r"|^([A-Za-z_][\w-]{0,100}):(?=\s)",  # a key of a YAML file
    re.MULTILINE,
)

Span = tuple[tuple[str, ...], int, int]
"""Names around a range of code, and its first and last line (exclusive), counted from 0."""


def code(path: str, text: str, kind: str) -> ParsedDocument:
    """Return the file unchanged, split where definitions begin."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    spans = _python_spans(text, lines) if kind in ("py", "pyi") else None
    if spans is None:
        spans = _block_spans(text)
    sections = []
    for names, first, last in spans:
        raw = text[offsets[first] : offsets[last] - 1]
        body = raw.strip("\n").rstrip()
        if body.strip():
            start = offsets[first] + len(raw) - len(raw.lstrip("\n"))
            sections.append(Section(names, body, start))
    return ParsedDocument(
        path=path,
        title=PurePosixPath(path).name,
        sections=tuple(sections),
        text=text,
        kind=kind,
        lines=(Lines(0, 1, len(lines)),),
        is_code=True,
    )


def _python_spans(text: str, lines: list[str]) -> list[Span] | None:
    try:
        with warnings.catch_warnings():  # invalid escapes in foreign code do not concern our user
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # Python 2, a template, or nested too deeply: cut at empty lines like other languages
    return list(_definitions(tree.body, lines, (), 0, len(lines)))


def _definitions(
    body: Iterable[ast.stmt], lines: list[str], names: tuple[str, ...], first: int, last: int
) -> Iterator[Span]:
    """Yield the definitions of one level in order, and the code between them under the enclosing names."""
    position = first
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.end_lineno is None:
            continue
        start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        while start > position and lines[start - 1].lstrip().startswith("#"):
            start -= 1  # a comment right above a definition belongs to it
        start = max(start, position)  # two statements may share a line
        if start > position:
            yield names, position, start
        qualified_name = (*names, node.name)
        if isinstance(node, ast.ClassDef) and node.end_lineno - start > _WHOLE_CLASS:
            yield from _definitions(node.body, lines, qualified_name, start, node.end_lineno)
        elif node.end_lineno > start:
            yield qualified_name, start, node.end_lineno
        position = max(position, node.end_lineno)
    if position < last:
        yield names, position, last


def _block_spans(text: str) -> list[Span]:
    """Return the blocks of text after empty lines that start at the left margin."""
    starts = [0]
    line, position = 0, 0
    for match in _BLOCK_START.finditer(text):
        line += text.count("\n", position, match.end())
        position = match.end()
        starts.append(line)
    starts.append(line + text.count("\n", position) + 1)
    lines = text.split("\n")
    spans: list[Span] = []
    for first, last in pairwise(starts):
        definition = _DEFINITION.search("\n".join(lines[first : min(last, first + 12)])[:2000])
        name = next((group for group in definition.groups() if group), None) if definition else None
        spans.append(((name,) if name else (), first, last))
    return spans
