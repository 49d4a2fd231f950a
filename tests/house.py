"""The structure of the package, read from its files: rooms, imports, sizes.

``python tests/house.py ROOM`` prints the test files that import a room more than any other, for
``pytest $(python tests/house.py store)``.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "pointsman"
NO_ROOMS = {"__main__"}
"""At the top, and no rooms."""


@cache
def modules() -> dict[str, Path]:
    """Every module and package by its dotted name."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def syntax_tree(path: Path) -> ast.Module:
    """What Python reads in a file."""
    return ast.parse(path.read_text("utf-8"))


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those of a file, inside functions and for type checking too."""
    nodes = ast.walk(syntax_tree(path))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports_in(path: Path) -> set[str]:
    """The modules of the package that a file imports."""
    names: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in modules() else node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names & set(modules())


@cache
def arrows() -> dict[str, set[str]]:
    """What each module imports; a package with a stub imports what its stub names."""
    imports = {}
    for name, path in modules().items():
        imports[name] = imports_in(path) - {name}
        stub = path.with_suffix(".pyi")
        if stub.exists() and name != "pointsman":
            imports[name] |= imports_in(stub) - {name}
    return imports


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes that reach each other: what is left when nodes without arrows are taken away, both ways."""
    open_nodes = {node: {target for target in targets if target in graph} for node, targets in graph.items()}
    while loose := {
        node
        for node in open_nodes
        if not open_nodes[node] or not any(node in targets for targets in open_nodes.values())
    }:
        open_nodes = {node: targets - loose for node, targets in open_nodes.items() if node not in loose}
    return [set(open_nodes)] if open_nodes else []


def rooms_of(folder: str) -> dict[str, set[str]]:
    """The arrows between the modules and packages directly in a package, each a room."""
    below = set(inside(folder))
    graph: dict[str, set[str]] = {name.removeprefix(f"{folder}.").split(".")[0]: set() for name in sorted(below)}
    for name, targets in arrows().items():
        if name.startswith(f"{folder}."):
            room = name.removeprefix(f"{folder}.").split(".")[0]
            rooms = {target.removeprefix(f"{folder}.").split(".")[0] for target in targets & below}
            graph[room] |= rooms - {room}
    return graph


def inside(folder: str) -> list[str]:
    """The modules and packages below a package."""
    return [name for name in modules() if name.startswith(f"{folder}.")]


def folders() -> list[str]:
    """All packages."""
    return [name for name, path in modules().items() if path.name == "__init__.py"]


def contracts() -> dict[str, list[list[str]]]:
    """The layers of each import contract, the highest first."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0]: [layer.split(" | ") for layer in contract["layers"]]
        for contract in listed
        if contract["exhaustive"]
    }


def purpose(name: str) -> str:
    """What a room or a module, by its dotted name, is for: the first sentence of its docstring."""
    docstring = ast.get_docstring(syntax_tree(modules()[name])) or ""
    return " ".join(docstring.split("\n\n")[0].split())


@cache
def rooms_with_tests() -> dict[str, list[str]]:
    """The test files of each room: those that name it most; what every test imports counts less."""
    rooms = rooms_of("pointsman")
    files = collections.defaultdict(list)
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        counts = collections.Counter(re.findall(r"\bpointsman\.(\w+)", path.read_text("utf-8")))
        weights = {room: counts[room] / (2 if room in ("values", "tools") else 1) for room in rooms}
        files[max(weights, key=lambda room: weights[room])].append(path.name)
    return files


if __name__ == "__main__":
    for name in rooms_with_tests()[sys.argv[1]]:
        sys.stdout.write(f"tests/{name}\n")
