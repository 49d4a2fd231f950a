"""Help in Chinese and Russian says what the English one says: each text has words, and the same names in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any
from unicodedata import east_asian_width

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from command_kit import run_program
from pointsman.cli.command_groups import _ORDER
from pointsman.cli.core_commands import app
from pointsman.cli.translated_help import LANGUAGES, help_language, help_texts, lines_of, translated

HEADINGS = {"Usage:", "Arguments", "Options", "default", "required", "env var", "Show this message and exit.", *_ORDER}
"""Headings of commands, and what click writes around texts."""
NAMES = re.compile(r"[A-Za-z0-9_./~:+*@$'\"=<>\[\]|-]*[A-Za-z0-9_/*'\"\]-]")


def commands(command: Any = None, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or get_command(app)
    yield path, command
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from commands(subcommand, *path, name)


def texts() -> set[str]:
    """Every paragraph of the help in English, on one line."""
    helps = [
        text
        for _, command in commands()
        for text in (command.help, *(getattr(parameter, "help", None) for parameter in command.params))
        if text
    ]
    return {" ".join(paragraph.split()) for text in helps for paragraph in text.split("\n\n")} | HEADINGS


def names(text: str, english: str) -> Counter[str]:
    """What no language translates: options, variables, numbers, addresses and the like that the English has."""
    code_words = {
        name for name in NAMES.findall(english) if re.search(r"^['\"-]|[_/*=<>@0-9]|[A-Z]{2}(?!.*'s)|[a-z]:", name)
    }
    return Counter(name for name in NAMES.findall(text) if name in code_words)


@cache
def show(language: str, *command: str) -> str:
    environment = {"TERM": "dumb", "NO_COLOR": "1", "POINTSMAN_LANGUAGE": language}
    return (
        CliRunner().invoke(app, [*command, "--help"], prog_name="pointsman", env=environment, terminal_width=78).output
    )


def test_every_text_has_words_and_no_words_are_left_over() -> None:
    assert len(texts()) > 150
    assert set(help_texts()) == texts()
    assert all(len(words) == len(LANGUAGES) and all(words) for words in help_texts().values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_names_options_and_examples_are_the_same(language: str) -> None:
    for english in sorted(texts()):
        assert names(translated(english, language), english) == names(english, english), english


@pytest.mark.parametrize("language", LANGUAGES)
def test_whole_helps_are_translated_and_list_the_same(language: str) -> None:
    letters = "[\u4e00-\u9fff]" if language == "zh" else "[а-яё]"
    for path, _ in commands():
        helps = show("en", *path), show(language, *path)
        tables = (re.split(r"^\S.*:\n", text, maxsplit=1, flags=re.MULTILINE)[1] for text in helps)
        english_rows, rows = (
            re.findall(r"^  ((?:-|[A-Z]\S*…? <)\S*|[a-z-]{2,}  )", table, re.MULTILINE) for table in tables
        )
        assert english_rows == rows, path
        assert not re.search(r"\b(?:default|required|env var|may be)\b: ?(?!\()", helps[1].replace("default, onnx", ""))
        for paragraph in re.split(r"\n\s*\n", helps[1])[1:]:
            assert re.search(letters, paragraph), paragraph


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_line_is_wider_than_the_terminal(language: str) -> None:
    for path, _ in commands():
        for line in show(language, *path).splitlines():
            assert sum(1 + (east_asian_width(character) in "WF") for character in line) <= 78, line


def test_a_chinese_paragraph_is_broken_between_characters_and_no_line_begins_with_a_mark() -> None:
    for width in range(10, 60):
        lines = lines_of("只读取这类文件：'*.md'，以及 windows-1251 编码（默认自动猜测）；可重复。", width)
        assert (
            "".join(lines).replace(" ", "") == "只读取这类文件：'*.md'，以及windows-1251编码（默认自动猜测）；可重复。"
        )
        assert not [line for line in lines if line[0] in "，。；：、）" or line[-1] == "（"]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "ru_RU.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "ru"}, "ru"),
        ({"LC_ALL": "C", "LANG": "ru_RU.UTF-8"}, "en"),
        ({"LC_ALL": "", "LANG": "ru_RU@euro"}, "ru"),
        ({"POINTSMAN_LANGUAGE": "zh-Hans", "LC_ALL": "ru_RU.UTF-8"}, "zh"),
        ({"POINTSMAN_LANGUAGE": "EN", "LC_ALL": "ru_RU.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "rue_UA"}, "en"),
        ({}, "en"),
    ],
)
def test_the_locale_decides(variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POINTSMAN_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, locale in variables.items():
        monkeypatch.setenv(name, locale)
    assert help_language() == language


def test_english_and_searches_read_no_words(tmp_path: Any) -> None:
    code = (
        "from typer.testing import CliRunner\n"
        "from pointsman.cli.core_commands import app\n"
        "from pointsman.cli.translated_help import help_texts\n"
        "def calls(language, *arguments):\n"
        "    CliRunner().invoke(app, arguments, env={'POINTSMAN_LANGUAGE': language})\n"
        "    return help_texts.cache_info().misses\n"
        "print(calls('en', 'search', '--help'), calls('ru', 'status'), calls('ru', '--help'))\n"
    )
    process = run_program(code, folder=tmp_path)
    assert process.stdout.split() == ["0", "0", "1"], process.stderr
