"""Help in Chinese and Russian. ``help_texts.json`` has the words of every paragraph, keyed by the English one."""

from __future__ import annotations

import json
import os
import re
from functools import cache, partial
from importlib import resources
from typing import Any, Final
from unicodedata import east_asian_width

from typer.core import TyperGroup

_CONTEXT: Final[Any] = TyperGroup.context_class  # click's; typer may have a copy of its own
LANGUAGES: Final = ("zh", "ru")
_PIECE: Final = re.compile(
    r"(?:[‘“（《[]*[\u3001-\u9fff\uff00-\uff60]|[^\s\u3001-\u9fff\uff00-\uff60]+)[，。；：、！？）》”]*\s*"
)
"""What no line break divides: a Chinese character or a word, with the marks that belong to it."""


def help_language() -> str:
    """Return the language of help: ``POINTSMAN_LANGUAGE``, else that of the locale, if there are words for it."""
    names = (os.environ.get(name, "") for name in ("POINTSMAN_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"))
    language = re.split(r"[_.@-]", next(filter(None, names), "en").lower())[0]
    return language if language in LANGUAGES else "en"


@cache
def help_texts() -> dict[str, list[str]]:
    """Return Chinese and Russian by English: paragraphs, headings, and the words in brackets after an option."""
    texts: dict[str, list[str]] = json.loads(
        resources.files(__package__).joinpath("help_texts.json").read_text("utf-8")
    )
    return texts


def translated(text: str, language: str) -> str:
    """Return a paragraph in a language, with what the brackets at its end say; as it is if it has no words there."""
    english = " ".join(text.split())
    if (words := help_texts().get(english)) is not None:
        return words[LANGUAGES.index(language)]
    text_before, bracket, extra = english.rpartition("[")
    if not bracket:
        return english
    extra = re.sub(
        r"(?<=\[)[a-z ]+(?=[:\]])|(?<=; )[a-z ]+(?=[:\]])", lambda word: translated(word[0], language), f"[{extra}"
    )
    return f"{translated(text_before.strip(), language)}  {extra}".strip()


def lines_of(text: str, width: int) -> list[str]:
    """Return a paragraph as lines of at most so many columns, of which a Chinese character takes two."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if sum(1 + (east_asian_width(character) in "WF") for character in (lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines if line]


class TranslatedFormatter(_CONTEXT.formatter_class):  # type: ignore[misc]  # click's is not typed
    """Writes help in a language; names of options and what they may hold stay as they are."""

    def __init__(self, language: str, **sizes: Any) -> None:
        super().__init__(**sizes)
        self._language = language

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of a command."""
        super().write_usage(prog, args, prefix or f"{translated('Usage:', self._language)} ")

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(translated(heading, self._language))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(self._wrapped(text, self.width - self.current_indent))

    def write_dl(self, rows: Any, *spaces: Any) -> None:
        """Write names, and beside them their texts."""
        width = max(self.width - min(max(len(first) for first, _ in rows), 30) - 4, 10)  # as click computes it
        super().write_dl([(first, self._wrapped(second, width)) for first, second in rows], *spaces)

    def _wrapped(self, text: str, width: int) -> str:
        """Paragraphs, each after a backspace, which tells click to leave its lines alone."""
        paragraphs = (translated(paragraph, self._language) for paragraph in text.split("\n\n"))
        return "\n\n".join("\n".join(["\b", *lines_of(paragraph, width)]) for paragraph in paragraphs)


class TranslatedContext(_CONTEXT):  # type: ignore[misc]
    """The context of a command whose help is in the language of the person at the terminal."""

    def make_formatter(self) -> Any:
        """Return what writes the help."""
        if (language := help_language()) != "en":
            self.formatter_class = partial(TranslatedFormatter, language)
        return super().make_formatter()
