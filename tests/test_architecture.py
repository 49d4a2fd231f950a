"""The page on the architecture says what is: its layers are the contract's, and what it locates is there.

``python tests/test_architecture.py`` writes the layers of the import contracts into ``docs/architecture.md``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "pointsman"
LAYERS = re.compile(r"(<!-- layers -->\n).*?(<!-- /layers -->)", re.DOTALL)


def layers() -> str:
    """The layers of all contracts, highest first, as text for the page."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    parts = []
    for contract in contracts:
        (container,) = contract["containers"]
        body = "\n".join(f"  {layer}" for layer in contract["layers"])
        parts.append(f"{container}\n{body}")
    return "```text\n" + "\n\n".join(parts) + "\n```\n"


def page_with_layers(text: str) -> str:
    """The page with the layers of the contracts."""
    return LAYERS.sub(lambda match: match[1] + layers() + match[2], text)


def test_the_page_shows_the_layers_of_the_import_contracts() -> None:
    text = PAGE.read_text("utf-8")
    assert LAYERS.search(text)
    assert page_with_layers(text) == text, "run `make docs`"


def test_contracts_name_every_module() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    assert {contract["containers"][0] for contract in contracts} == {"pointsman", "pointsman.retrieval"}
    assert all(contract["exhaustive"] for contract in contracts)


def rows() -> list[tuple[str, str]]:
    """The questions of the table, and where their answers are."""
    table = PAGE.read_text("utf-8").split("## Where is what")[1].split("\n## ")[0]
    return re.findall(r"^\| (?!question|-)(.*?) \| (.*) \|$", table, re.MULTILINE)


@pytest.mark.parametrize(("question", "answer"), rows())
def test_the_table_names_files_and_functions_that_exist(question: str, answer: str) -> None:
    terms = re.findall(r"`([^`]+)`", answer)
    files = [term for term in terms if term.endswith((".py", ".json", "/"))]
    assert files, question
    texts = []
    for file in files:
        path = SOURCE / file
        assert path.exists(), f"{question}: {file}"
        texts.append(path.read_text("utf-8") if path.is_file() else "")
    for term in set(terms) - set(files):
        if re.fullmatch(r"[A-Za-z_.]+", term) and not term.startswith("pointsman."):
            name = term.rpartition(".")[2]
            assert any(re.search(rf"\b{name}\b", text) for text in texts), f"{question}: {term}"


if __name__ == "__main__":
    PAGE.write_text(page_with_layers(PAGE.read_text("utf-8")), "utf-8")
