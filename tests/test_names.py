"""Names say what a thing is: vague ones are counted, and a class name has one meaning.

``python tests/test_names.py`` prints what is counted, by word and by folder.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "names.md"
VAGUE = ROOT / "tests" / "vague_names.txt"
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = {"src": ROOT / "src", "tests": ROOT / "tests"}
"""Folder names and folders whose names are counted."""
LIMITS = {"src": 19.0, "tests": 18.0}
"""Vague names in a thousand bound names, at most."""
PARTICIPLE_FUNCTIONS = {"src": 130, "tests": 24}
"""Functions named by a participle alone, at most."""
COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}


@cache
def vocabulary() -> dict[str, frozenset[str]]:
    """The vague words, under the titles that they stand in."""
    titled = [section.partition("\n") for section in VAGUE.read_text("utf-8").strip().split("\n\n")]
    return {title: frozenset(re.findall(r"[a-z]+", words)) for title, _, words in titled}


def is_participle(name: str) -> bool:
    """Whether a name is a past participle alone."""
    word = name.strip("_").lower()
    words = vocabulary()
    if word in words["but not"]:
        return False
    return word in words["participles, beside every word in -ed"] or (
        word.isalpha() and len(word) > 3 and word.endswith("ed")
    )


@cache
def is_vague(name: str) -> bool:
    """Whether a name is a pronoun, an adverb, an empty noun or a participle alone."""
    if name.startswith("__") and name.endswith("__"):
        return False
    word = name.strip("_").lower()
    titles = ("pronouns and determiners", "adverbs and prepositions", "empty nouns")
    return any(word in vocabulary()[title] for title in titles) or is_participle(name)


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that nodes bind, parents first: variables, arguments, attributes, functions and classes."""
    compared: set[ast.AST] = set()  # the second arguments of comparisons
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in COMPARISONS:
            compared.add(node.args.args[-1])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node not in compared:
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ExceptHandler):
            yield from [node.name] if node.name else []
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@dataclass(frozen=True)
class NamesOfFile:
    """The names of a Python file: bound ones, functions and methods, classes, and classes at its top level."""

    path: Path
    bound: list[str]
    functions: list[str]
    classes: list[str]
    top_classes: list[str]


@cache
def names_by_file(folder: Path) -> list[NamesOfFile]:
    """The names of the Python files below a folder. Trees are not kept: they would slow later tests down."""
    files = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        nodes = list(ast.walk(tree))
        functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        top_classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        files.append(NamesOfFile(path, list(bound_names(nodes)), functions, classes, top_classes))
    return files


@pytest.mark.parametrize(
    ("name", "vague"),
    [
        ("found", True),
        ("_known", True),
        ("places", True),
        ("sorted_", True),
        ("hits", False),
        ("found_hits", False),
        ("seed", False),
        ("degraded", False),
        ("__all__", False),
    ],
)
def test_vague_names_are_pronouns_adverbs_empty_nouns_and_participles(name: str, vague: bool) -> None:
    assert is_vague(name) == vague


@pytest.mark.parametrize("folder", FOLDERS)
def test_vague_names_are_rare_among_bound_names(folder: str) -> None:
    names = [name for file in names_by_file(FOLDERS[folder]) for name in file.bound]
    words = collections.Counter(name for name in names if is_vague(name))
    figure = 1000 * words.total() / len(names)
    assert figure <= LIMITS[folder], f"{figure:.1f} in 1,000: {words.most_common(40)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_not_named_by_a_participle_alone(folder: str) -> None:
    names = [
        f"{file.path.name}: {name}"
        for file in names_by_file(FOLDERS[folder])
        for name in file.functions
        if is_participle(name)
    ]
    assert len(names) <= PARTICIPLE_FUNCTIONS[folder], f"{len(names)}: {names}"


def test_a_class_name_is_defined_once_or_is_a_mirror_that_the_page_explains() -> None:
    section = PAGE.read_text("utf-8").split("## Mirrors")[1].split("\n## ")[0]
    mirrors = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    modules: dict[str, set[str]] = collections.defaultdict(set)
    for file in names_by_file(FOLDERS["src"]):
        for name in file.classes:
            modules[name].add(str(file.path.relative_to(FOLDERS["src"])))
    repeated = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in repeated.items() if name not in mirrors} == {}
    assert mirrors <= set(repeated), "a mirror is listed whose name is defined once"


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case."""
    return [word.lower() for word in re.findall(r"BM25|E5|OpenAI|[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def singular(word: str) -> str:
    """A noun in its singular, by spelling alone; both sides of a comparison are treated alike."""
    if word.endswith("ies"):
        return word.removesuffix("ies") + "y"
    if word.endswith(("ches", "shes", "sses")):
        return word.removesuffix("es")
    return word.removesuffix("s") if len(word) > 3 and not word.endswith(("ss", "us", "is")) else word


def glossary_rows() -> list[set[str]]:
    """The terms of each row of the glossary, in the singular."""
    cells = re.findall(r"^\| (?!word)([a-z][^|]*) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    return [{" ".join(map(singular, term.split())) for term in cell.split(", ")} for cell in cells]


def public_names() -> dict[str, str]:
    """Names of public modules, packages and classes, each with its path."""
    names: dict[str, str] = {}
    root = FOLDERS["src"] / "pointsman"
    for file in names_by_file(FOLDERS["src"]):
        if not file.path.is_relative_to(root):
            continue
        module = file.path.relative_to(root).with_suffix("")
        parts = [part for part in module.parts if part != "__init__"]
        if any(part.startswith("_") for part in parts):
            continue
        classes = [name for name in file.top_classes if name[0] != "_"]
        names |= dict.fromkeys([*parts[-1:], *classes], str(file.path.relative_to(root)))
    return names


def terms_of(name: str) -> list[str]:
    """The terms that may head a name: its last word, its last two, and so on."""
    words = [singular(word) for word in words_of(name)]
    return [" ".join(words[start:]) for start in range(len(words))]


def test_the_glossary_has_every_noun_that_heads_a_public_name() -> None:
    glossary = set().union(*glossary_rows())
    missing = {name: path for name, path in public_names().items() if not glossary & set(terms_of(name))}
    assert not missing, f"a row in {GLOSSARY.name} says what the last word means, or a word is used that is there"


def test_the_glossary_explains_a_word_once_and_only_words_in_use() -> None:
    rows = glossary_rows()
    counts = collections.Counter(term for row in rows for term in row)
    assert [term for term, count in counts.items() if count > 1] == []
    names = [name for file in names_by_file(FOLDERS["src"]) for name in file.bound]
    used = {word for name in (*names, *public_names()) for word in map(singular, words_of(name))}
    assert [row for row in rows if not any(set(term.split()) <= used for term in row)] == []


def main(folders: list[str]) -> None:
    """Prints the figures of each folder given, of ``src`` and ``tests`` without one."""
    for folder in map(Path, folders or [str(path) for path in FOLDERS.values()]):
        words: collections.Counter[str] = collections.Counter()
        files: collections.Counter[str] = collections.Counter()
        participles = total = 0
        for file in names_by_file(folder):
            vague = [name for name in file.bound if is_vague(name)]
            total += len(file.bound)
            words.update(name.strip("_").lower() for name in vague)
            files[str(file.path.relative_to(folder))] += len(vague)
            participles += sum(map(is_participle, file.functions))
        figure = 1000 * words.total() / max(1, total)
        sys.stdout.write(f"{folder}: {words.total()} of {total} bound names are vague, {figure:.1f} in 1,000" + "\n")
        sys.stdout.write(f"{participles} functions are named by a participle alone" + "\n")
        sys.stdout.write(", ".join(f"{word} {count}" for word, count in words.most_common(80)) + "\n")
        sys.stdout.write(", ".join(f"{path} {count}" for path, count in files.most_common(40)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
