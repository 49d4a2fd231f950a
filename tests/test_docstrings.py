"""Docstrings name what is there: every attribute and every argument that one lists exists under that name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Classes = dict[str, list[ast.ClassDef]]


def listed_names(docstring: str, section: str) -> list[str]:
    """Return the names that a section of a docstring describes, such as a, b and c of ``a, b,\\n    c: both``."""
    _, heading, rest = docstring.partition(f"{section}:\n")
    if not heading:
        return []
    indent = re.match(r" *", rest)
    assert indent is not None  # it matches the empty string
    margin = indent[0]
    body = re.split(rf"\n(?!{margin}|\s*\n)", rest)[0]
    entries = re.findall(rf"^{margin}(\S[^:]*):", body, re.MULTILINE)
    return [name.strip().strip("`*") for entry in entries for name in entry.split(",")]


def parameters(function: Function) -> set[str]:
    arguments = function.args
    others = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return {argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *others]}


def attributes(definition: ast.ClassDef) -> set[str]:
    """Return what the body of a class defines or assigns, on the class or on an instance."""
    names: set[str] = set()
    for node in ast.walk(definition):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
    return names


def creation_arguments(definition: ast.ClassDef) -> set[str]:
    """Return the parameters of ``__init__`` and ``__new__``; without either, the fields, as of a dataclass."""
    makers = [
        node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name in {"__init__", "__new__"}
    ]
    if makers:
        return set().union(*map(parameters, makers))
    fields = [node.target for node in definition.body if isinstance(node, ast.AnnAssign)]
    return {field.id for field in fields if isinstance(field, ast.Name)}


def with_bases(definition: ast.ClassDef, names_of: Callable[[ast.ClassDef], set[str]], classes: Classes) -> set[str]:
    """Return the names of a class and of its bases in this project, each found by its name."""
    names: set[str] = set()
    waiting, seen = [definition], set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        names |= names_of(current)
        for base in current.bases:
            bare = base.value if isinstance(base, ast.Subscript) else base
            base_name = bare.id if isinstance(bare, ast.Name) else getattr(bare, "attr", "")
            waiting += classes.get(base_name, [])
    return names


def wrong_names(trees: dict[str, ast.Module]) -> Iterator[str]:
    classes: Classes = defaultdict(list)
    definitions: list[tuple[str, ast.ClassDef | Function]] = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                definitions.append((path, node))
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
    for path, node in definitions:
        docstring = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            listings = {
                "Attributes": with_bases(node, attributes, classes),
                "Args": with_bases(node, creation_arguments, classes),
            }
        else:
            listings = {"Args": parameters(node)}
        for section, names in listings.items():
            for name in listed_names(docstring, section):
                if name not in names:
                    yield f"{path}:{node.lineno} {node.name} has no {name!r}, which stands under {section}"


def test_docstrings_name_what_is_there() -> None:
    trees = {str(path.relative_to(SOURCES)): ast.parse(path.read_text("utf-8")) for path in SOURCES.rglob("*.py")}
    assert len(trees) > 300
    assert list(wrong_names(trees)) == []


SECTION_OF_TWO = (
    '"""A.\n\n    {}:\n        x: this.\n        y, z:\n            that: it.\n\n    Raises:\n        E: x.\n    """'
)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (f"class A:\n    {SECTION_OF_TWO.format('Attributes')}\n    x: int\n", "yz"),
        (f"class A:\n    {SECTION_OF_TWO.format('Args')}\n    def __init__(self, x, z): ...\n", "y"),
        (f"class A:\n    x: int\nclass B(A[int]):\n    {SECTION_OF_TWO.format('Attributes')}\n    y = z = 1\n", ""),
        (f"def f(x, *y, **options):\n    {SECTION_OF_TWO.format('Args')}\n", "z"),
        (f"async def f(x, /, y, *, z):\n    {SECTION_OF_TWO.format('Args')}\n", ""),
    ],
)
def test_names_that_are_not_there_are_found(source: str, wrong: str) -> None:
    messages = list(wrong_names({"file.py": ast.parse(source)}))
    assert [re.findall(r"has no '(.*)', which", message)[0] for message in messages] == list(wrong)
