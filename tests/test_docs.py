"""The documentation executes: Python examples run, console examples run, help pages are the commands' own.

``python tests/test_docs.py`` writes the help pages into ``docs/cli.md``, ``cli.zh.md`` and ``cli.ru.md``.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from browser import chromium, path_of_chromium
from command_kit import run_command, run_program
from pointsman import Dataset, Document, Hit
from pointsman.cli.core_commands import app
from pointsman.embedders import HashingEmbedder
from pointsman.values.settings import Settings, describe

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TRIED_AGAIN = {"recipes.md", "strategies.md"}  # programs that a reader runs a second time
FRAMEWORKS = ("fastapi.testclient", "haystack", "langchain_core.runnables", "llama_index.core", "mcp")
CLI_PAGES = {
    language: ROOT / "docs" / f"cli{suffix}.md" for language, suffix in (("en", ""), ("zh", ".zh"), ("ru", ".ru"))
}
SETTINGS_PAGE = ROOT / "docs" / "settings.md"
HELP_BLOCK = re.compile(r"(<!-- help: .*? -->\n).*?(<!-- /help -->)", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


MODULES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_examples_in_docstrings_run(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


@pytest.fixture(scope="module")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a reader tries the programs of all pages, one after another."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_examples_run_in_the_folder_of_those_before(page: Path, reader_folder: Path) -> None:
    examples = list(enumerate(blocks(page, "python"), 1))
    for number, code in examples * 2 if page.name in TRIED_AGAIN else examples:
        process = run_program(code, folder=reader_folder, modules=FRAMEWORKS)
        assert process.returncode == 0, f"example {number} of {page.name}:\n{process.stderr}"


def test_the_first_program_of_the_readme_prints_what_is_shown_there(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    process = run_program(blocks(page, "python")[0], folder=tmp_path)
    assert (process.stdout, process.returncode) == (blocks(page, "text")[0], 0), process.stderr


@pytest.fixture(scope="module")
def terminal_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a reader types the commands of all pages, one after another."""
    folder = tmp_path_factory.mktemp("terminal")
    longest = shutil.ignore_patterns("cli.??.md", "measurements.md", "openapi.json")  # of no use to the commands
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=longest)
    shutil.copy(ROOT / "README.md", folder)
    return folder


@pytest.mark.parametrize("page", pages_with("console"), ids=lambda page: page.name)
def test_console_examples_run(page: Path, terminal_folder: Path) -> None:
    for line in "".join(blocks(page, "console")).splitlines():
        assert line.startswith("$ pointsman "), line
        command = shlex.split(line.removeprefix("$ "))
        process = run_command(*command[1:], folder=terminal_folder)
        assert process.returncode == 0, f"{line}\n{process.stderr}"
        assert process.stdout.strip(), f"{line} printed nothing"
        if command[1] == "search":
            outcome = json.loads(process.stdout)["hits"] if "--json" in command else "No r" not in process.stdout
            assert outcome, f"{line} finds nothing"


def test_the_page_of_the_service_names_every_field_of_an_answer() -> None:
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    names = set(re.findall(r"`(\w+)`", page[page.index("An answer has") :].partition("\n\n")[0]))
    answer = Dataset("notes", embedder=HashingEmbedder()).search("signal").to_dict()
    assert set(answer) <= names
    assert set(Hit(Document("a", "text"), 1.0).to_dict()) <= names


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_of_the_project_that_pages_name_are_there() -> None:
    paths = re.compile(r"(?<![\w/.-])(?:pointsman|benchmarks|tests)/[\w/-]+\.(?:py|json|tsv|txt|mjs)\b")
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in paths.findall(page.read_text("utf-8"))
        if not (ROOT / name).exists() and not (ROOT / "src" / name).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("language", CLI_PAGES)
def test_help_pages_are_the_commands_own(language: str) -> None:
    page = CLI_PAGES[language].read_text("utf-8")
    assert page == with_help(page, language), "run: make docs"


def with_help(page: str, language: str) -> str:
    sections = [
        f"### pointsman {' '.join(command)}\n\n```text\n{help_text(language, *command)}```\n" for command in commands()
    ]
    return HELP_BLOCK.sub(lambda match: match[1] + "\n" + "\n".join(sections) + match[2], page)


def commands(*group: str) -> list[tuple[str, ...]]:
    command: Any = get_command(app)
    for name in group:
        command = command.commands[name]
    names = list(getattr(command, "commands", ()))
    return [path for name in names for path in ((*group, name), *commands(*group, name))]


def help_text(language: str, *command: str) -> str:
    plain = {"TERM": "dumb", "NO_COLOR": "1", "POINTSMAN_LANGUAGE": language}
    return CliRunner().invoke(app, [*command, "--help"], prog_name="pointsman", env=plain, terminal_width=78).output


def test_recipes_are_ten_and_short() -> None:
    recipes = blocks(ROOT / "docs" / "recipes.md", "python")
    assert len(recipes) == 10
    assert max(len([line for line in recipe.splitlines() if line.strip()]) for recipe in recipes) <= 15


def test_the_table_of_settings_is_the_settings_own() -> None:
    assert SETTINGS_PAGE.read_text("utf-8") == with_settings(SETTINGS_PAGE.read_text("utf-8")), "run: make docs"


def with_settings(page: str) -> str:
    rows = ["| setting | default | means |", "|---|---|---|"]
    for setting in describe(Settings()):
        default = json.dumps(setting["default"], ensure_ascii=False)
        rows.append(f"| `{setting['name']}` | `{default}` | {setting['about'].replace('|', chr(92) + '|')} |")
    table = "\n".join(rows)
    return re.sub(r"(<!-- settings -->\n).*?(<!-- /settings -->)", rf"\1{table}\n\2", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as a web site in a folder."""
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return folder


def test_the_site_builds_without_a_broken_link_and_loads_nothing_from_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text("utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=.?(?:https?:)?//", text), page.name
        foreign_links = re.findall(r"<link[^>]+href=.?(?:https?:)?//[^>]*>", text)
        assert not foreign_links, (page.name, foreign_links)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")), sheet.name


@pytest.fixture(scope="module")
def reader_page() -> Iterator[Page]:
    """A page of a browser as wide as a laptop."""
    path = path_of_chromium()
    if path is None:
        pytest.skip("no Chromium here")
    pytest.importorskip("playwright")
    with chromium(path) as browser:
        yield browser.new_page(viewport={"width": 1440, "height": 900})


def test_the_search_box_finds_a_page_when_the_site_is_opened_from_a_folder(site: Path, reader_page: Page) -> None:
    reader_page.goto((site / "index.html").as_uri())
    reader_page.click("input.md-search__input")
    reader_page.keyboard.type("reciprocal rank fusion")
    result = reader_page.locator("a.md-search-result__link", has_text="How hits are ranked").first
    result.wait_for(state="visible")
    assert "ranking.html" in (result.get_attribute("href") or "")


def test_no_line_of_code_is_cut_on_a_screen_of_1440_pixels(site: Path, reader_page: Page) -> None:
    assert reader_page.context.browser is not None
    still_page = reader_page.context.browser.new_page(
        viewport=reader_page.viewport_size,
        java_script_enabled=False,  # its search index takes longer than the layout
    )
    lengths = {page: longest_line_of_code(page) for page in site.rglob("*.html")}
    for page in sorted(lengths, key=lambda page: -lengths[page])[:8]:  # all have one style sheet and one width of code
        still_page.goto(page.as_uri())
        cut = still_page.evaluate(
            "[...document.querySelectorAll('pre > code')].filter((code) => code.scrollWidth > code.clientWidth + 1)"
            ".map((code) => code.innerText.slice(0, 200))"
        )
        assert cut == [], page.name


def longest_line_of_code(page: Path) -> int:
    """The characters of the longest line of code on a page of the site."""
    blocks_of_code = re.findall(r"<pre.*?</pre>", page.read_text("utf-8"), re.DOTALL)
    lines = "\n".join(unescape(re.sub(r"<[^>]*>", "", block)) for block in blocks_of_code).splitlines()
    return max(map(len, lines), default=0)


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(with_settings(SETTINGS_PAGE.read_text("utf-8")), "utf-8")
    for language, cli_page in CLI_PAGES.items():
        cli_page.write_text(with_help(cli_page.read_text("utf-8"), language), "utf-8")
