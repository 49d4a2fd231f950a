"""The page on the architecture says what is: its rooms are the contract's, and what it locates is there.

``python tests/test_architecture.py`` writes the rooms into ``docs/architecture.md``, draws them in ``docs/assets``, and
writes what is in each module into ``docs/modules.md``.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from html import escape

import pytest

from house import (
    PACKAGE,
    ROOT,
    arrows,
    circles,
    contracts,
    folders,
    import_statements,
    inside,
    modules,
    purpose,
    rooms_of,
    rooms_with_tests,
    syntax_tree,
)

PAGE = ROOT / "docs" / "architecture.md"
MODULES_PAGE = ROOT / "docs" / "modules.md"
PICTURE = ROOT / "docs" / "assets" / "rooms.svg"
ROOMS = re.compile(r"(<!-- rooms -->\n).*?(<!-- /rooms -->)", re.DOTALL)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MOST_ROOMS, MOST_FLOORS, MOST_MODULES, MOST_LINES = 14, 13, 15, 600


def table() -> str:
    """The rooms, highest first: what each is for, what it may import, how many tests it has."""
    floors = contracts()["pointsman"]
    rows = ["| room | is for | may import |", "|---|---|---|"]
    for floor, rooms in enumerate(floors):
        below = [room for lower in floors[floor + 1 :] for room in lower]
        for room in rooms:
            if room == "__main__":
                continue
            imports = "all below" if len(below) > 3 else ", ".join(f"`{name}`" for name in below) or "nothing"
            rows.append(f"| `{room}` | {purpose(f'pointsman.{room}')} | {imports} |")
    return "\n".join(rows) + "\n"


def page_with_rooms(text: str) -> str:
    """The page with the rooms of the contract."""
    return ROOMS.sub(lambda match: match[1] + table() + match[2], text)


def modules_page() -> str:
    """Every module by room: what it is for, by its docstring, and the classes and functions in it."""
    sections = [
        "# Every module\n\nWhat each is for, and its classes and functions; see [architecture](architecture.md).\n"
    ]
    for room in (room for rooms in contracts()["pointsman"] for room in rooms if room != "__main__"):
        sections.append(f"\n## `{room}`\n\n| module | is for | holds |\n|---|---|---|\n")
        for name, path in modules().items():
            if room not in name.split(".")[1:2]:
                continue
            tree = syntax_tree(path)
            names = [node.name for node in tree.body if isinstance(node, DEFINITIONS) and not node.name.startswith("_")]
            if not names and path.name == "__init__.py":
                continue
            name_list = ", ".join(f"`{name}`" for name in names)
            words = purpose(name).replace("|", "\\|")
            sections.append(f"| `{path.relative_to(PACKAGE)}` | {words} | {name_list} |\n")
    return "".join(sections)


def picture() -> str:
    """The rooms as a picture: a box each, the floors of the contract from the top down."""
    floors = [[room for room in rooms if room != "__main__"] for rooms in contracts()["pointsman"]]
    parts: list[str] = []
    y = 8
    for rooms in filter(None, floors):
        width = (744 - 8 * (len(rooms) - 1)) / len(rooms)
        for place, room in enumerate(rooms):
            x = 8 + place * (width + 8)
            text = purpose(f"pointsman.{room}").split(":")[0].rstrip(".")
            letters = int(width / 6.4) - len(room) - 4
            shown = text if len(text) <= letters else text[: max(letters, 0)].rpartition(" ")[0] + " …"
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="30" rx="4"/>'
                f'<text x="{x + 10:.0f}" y="{y + 20}"><tspan class="room">{room}</tspan> {escape(shown)}</text>'
            )
        y += 38
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y}" role="img" '
        'aria-label="The rooms of the package, floor by floor; imports run downward only">\n'
        "<style>rect{fill:#eef3f8;stroke:#4a6785}text{font:12px sans-serif;fill:#223}"
        ".room{font-weight:bold}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def test_the_page_shows_the_rooms_of_the_contract() -> None:
    text = PAGE.read_text("utf-8")
    assert ROOMS.search(text)
    assert page_with_rooms(text) == text, "run `make docs`"


def test_the_page_of_modules_says_what_is_in_them() -> None:
    assert MODULES_PAGE.read_text("utf-8") == modules_page(), "python tests/test_architecture.py writes it"


def test_the_picture_shows_the_rooms_of_the_contract() -> None:
    assert PICTURE.read_text("utf-8") == picture(), "run `make docs`"


def test_there_are_few_rooms_and_floors() -> None:
    rooms = [room for room in rooms_of("pointsman") if room != "__main__"]
    assert len(rooms) <= MOST_ROOMS
    assert len([floor for floor in contracts()["pointsman"] if floor != ["__main__"]]) <= MOST_FLOORS


def test_every_room_has_tests() -> None:
    rooms = set(rooms_of("pointsman")) - {"__main__"}
    assert rooms - set(rooms_with_tests()) == set()


@pytest.mark.parametrize("folder", folders())
def test_a_folder_has_few_modules(folder: str) -> None:
    assert len(rooms_of(folder)) <= MOST_MODULES, sorted(rooms_of(folder))


def test_every_folder_with_two_modules_has_an_exhaustive_contract() -> None:
    assert {folder for folder in folders() if len(rooms_of(folder)) > 1} == set(contracts())


def test_no_modules_import_each_other() -> None:
    assert circles(arrows()) == []


@pytest.mark.parametrize("folder", folders())
def test_no_rooms_import_each_other(folder: str) -> None:
    assert circles(rooms_of(folder)) == []


def test_circles_are_recognised() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == [{"b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


STILL_LONG: set[str] = set()
"""Files that are yet to be split; none may join them, and one that has become short leaves them."""


def test_files_are_short() -> None:
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in modules().items()}
    assert {name for name, count in lines.items() if count > MOST_LINES} == STILL_LONG


def test_a_file_name_stands_on_one_level() -> None:
    places = collections.defaultdict(list)
    for name, path in modules().items():
        if path.name != "__init__.py":
            places[path.name].append(name)
    assert [names for names in places.values() if len(names) > 1] == []


def test_file_names_say_what_is_in_them() -> None:
    vague = re.compile(r"(^|_)(parts?|more|helpers?|misc|utils?|common|shared|stuff)\d*$")
    assert [name for name in modules() if vague.search(name.rpartition(".")[2])] == []


def private_imports() -> list[str]:
    """Names with a leading underscore that a room imports from another."""
    crossing = []
    for name, path in modules().items():
        for node in import_statements(path):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pointsman."):
                other_room = node.module.split(".")[1] != [*name.split("."), ""][1]
                private = [alias.name for alias in node.names if re.match(r"_(?!_)", alias.name)]
                crossing += [f"{name}: {node.module}.{alias}" for alias in private if other_room]
    return crossing


def test_no_private_name_is_imported_across_rooms() -> None:
    assert private_imports() == []


def rows() -> list[tuple[str, str]]:
    """The questions of the table, and where their answers are."""
    section = PAGE.read_text("utf-8").split("## Where is what")[1].split("\n## ")[0]
    return re.findall(r"^\| (?!question|-)(.*?) \| (.*) \|$", section, re.MULTILINE)


@pytest.mark.parametrize(("question", "answer"), rows())
def test_the_table_names_files_and_functions_that_exist(question: str, answer: str) -> None:
    terms = re.findall(r"`([^`]+)`", answer)
    files = [term for term in terms if term.endswith((".py", ".json", "/"))]
    assert files, question
    texts = []
    for file in files:
        path = PACKAGE / file
        assert path.exists(), f"{question}: {file}"
        texts.append(path.read_text("utf-8") if path.is_file() else "")
    for term in set(terms) - set(files):
        if re.fullmatch(r"[A-Za-z_.]+", term) and not term.startswith("pointsman."):
            name = term.rpartition(".")[2]
            assert any(re.search(rf"\b{name}\b", text) for text in texts), f"{question}: {term}"


def test_what_the_contract_names_is_there() -> None:
    for folder, floors in contracts().items():
        assert {f"{folder}.{room}" for rooms in floors for room in rooms} <= {*inside(folder), f"{folder}.__main__"}


if __name__ == "__main__":
    PAGE.write_text(page_with_rooms(PAGE.read_text("utf-8")), "utf-8")
    PICTURE.write_text(picture(), "utf-8")
    MODULES_PAGE.write_text(modules_page(), "utf-8")
    sys.stdout.write("".join(f"{path.relative_to(ROOT)}\n" for path in (PAGE, PICTURE, MODULES_PAGE)))
