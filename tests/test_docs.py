"""The documentation executes: Python examples run, console examples run, help pages are the commands' own.

``python tests/test_docs.py`` writes the help pages into ``docs/cli.md``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CLI_PAGE = ROOT / "docs" / "cli.md"
BETWEEN = re.compile(r"(<!-- help: .*? -->\n).*?(<!-- /help -->)", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    for number, code in enumerate(blocks(page, "python"), 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"example {number} of {page.name}:\n{done.stderr}"


@pytest.mark.parametrize("page", pages_with("console"), ids=lambda page: page.name)
def test_console_examples_run(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in "".join(blocks(page, "console")).splitlines():
        assert line.startswith("$ pointsman "), line
        command = shlex.split(line.removeprefix("$ "))
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stdout.strip(), f"{line} printed nothing"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_help_pages_are_the_commands_own() -> None:
    assert CLI_PAGE.read_text("utf-8") == with_help(CLI_PAGE.read_text("utf-8")), "run: make docs"


def with_help(page: str) -> str:
    parts = [f"### pointsman {' '.join(one)}\n\n```text\n{help_text(*one)}```\n" for one in commands()]
    return BETWEEN.sub(lambda found: found[1] + "\n" + "\n".join(parts) + found[2], page)


def commands(*group: str) -> list[tuple[str, ...]]:
    names = re.findall(r"^  ([\w-]+) ", help_text(*group).partition("Commands:")[2], re.MULTILINE)
    return [one for name in names for one in ((*group, name), *commands(*group, name))]


def help_text(*command: str) -> str:
    code = "from pointsman.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    arguments = [sys.executable, "-c", code, *command, "--help"]
    return subprocess.check_output(arguments, env=environment, text=True).replace("Usage: -c", "Usage: pointsman")


if __name__ == "__main__":
    CLI_PAGE.write_text(with_help(CLI_PAGE.read_text("utf-8")), "utf-8")
