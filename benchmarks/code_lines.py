"""Counts lines of code by package: lines with a token that is neither a comment nor part of a docstring.

python benchmarks/code_lines.py [FOLDER]
"""

from __future__ import annotations

import ast
import collections
import io
import sys
import tokenize
from pathlib import Path

BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def main(folder: Path) -> None:
    counts: collections.Counter[str] = collections.Counter()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")]):
        names = path.relative_to(folder).parts
        counts[names[0] if len(names) > 1 else "(top)"] += code_lines(path.read_text("utf-8"))
    for name, count in counts.most_common():
        print(f"{count:7,} {name}")
    print(f"{counts.total():7,} in all")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "pointsman"))
