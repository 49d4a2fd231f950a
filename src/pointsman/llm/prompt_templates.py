"""Prompt templates in each language.

Placeholders are ``$name`` (`string.Template`). External text, options and questions, is inserted as data: see
`option_lines` and `fenced`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from pointsman.text import detect, repair
from pointsman.tools.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SelectionPrompts:
    """Prompts for choosing among options.

    Attributes:
        single: asks for one option. ``$options`` and ``$query`` are fenced data; ``$count`` is the number of options.
        multi: asks for several; ``$most`` is the maximum.
        none: added if "none of them" is an allowed answer.
        retry: added after an unusable answer; ``$problem`` says why.
        problems: texts for ``$problem``, by name of the defect.
    """

    single: str
    multi: str
    none: str
    retry: str
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        allowed_names = {"options", "query", "count", "most", "problem"}
        for name, required_names in (("single", _DATA), ("multi", _DATA), ("none", set()), ("retry", set())):
            check_template(name, getattr(self, name), required_names, allowed_names)


_DATA = {"options", "query"}


def check_template(name: str, template: str, required_names: AbstractSet[str], allowed_names: AbstractSet[str]) -> None:
    """Check the placeholders of a template.

    Raises:
        InputError: it lacks a required placeholder, uses one that is not allowed, or has a lone dollar sign.
    """
    parsed_template = Template(template)
    identifiers = set(parsed_template.get_identifiers())
    if not parsed_template.is_valid() or identifiers - allowed_names or required_names - identifiers:
        raise InputError(
            f"the prompt {name!r} needs {_as_list(required_names)} and may use {_as_list(allowed_names)}; "
            f"it uses {_as_list(identifiers)}; write $$ for a dollar sign"
        )


def _as_list(names: AbstractSet[str]) -> str:
    return ", ".join(f"${name}" for name in sorted(names)) or "nothing"


_LINE_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")


def fenced(data: str) -> str:
    """Return data between two lines of tildes, longer than any run inside, so that data cannot close its fence."""
    longest = max(map(len, re.findall("~+", data)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}\n{data}\n{fence}"


def quoted(text: str) -> str:
    """Return a text as a JSON string on one line: no text can start a new line."""
    line = json.dumps(repair(text), ensure_ascii=False)
    return _LINE_BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def option_lines(options: Sequence[tuple[str, str]]) -> str:
    r"""Return names and descriptions, one line each, numbered from 1.

    >>> print(option_lines([("news", "What happened"), ("evil", "x\n(3) forged")]))
    (1) {"name": "news", "description": "What happened"}
    (2) {"name": "evil", "description": "x\n(3) forged"}
    """
    return "\n".join(
        f'({number}) {{"name": {quoted(name)}, "description": {quoted(description)}}}'
        for number, (name, description) in enumerate(options, 1)
    )


def fill(template: str, **values: Any) -> str:
    """Fill a template; values are inserted unchanged, and placeholders in them are not expanded."""
    return Template(template).substitute(values)


def corrected(prompt: str, retry: str, problem: str, **values: Any) -> str:
    """Return a prompt followed by what was wrong with the answer.

    It is named in our own words: no part of an answer is sent back as if it were ours.

    Args:
        prompt: what was asked.
        retry: the template that asks again.
        problem: what was wrong.
        values: of its other placeholders; they are left blank by default.
    """
    blanks = dict.fromkeys(("text", "query", "options", "count", "most", "nothing"), "")
    return f"{prompt}\n\n{fill(retry, **{**blanks, **values, 'problem': problem})}"


def read_templates(kind: Callable[..., T], path: Path) -> Mapping[str, T]:
    """Return the templates in a file: for each language, a table of the fields of a dataclass."""
    return {language: kind(**fields) for language, fields in tomllib.loads(path.read_text("utf-8")).items()}


SELECTION: Mapping[str, SelectionPrompts] = read_templates(
    SelectionPrompts, Path(__file__).with_name("selection_prompts.toml")
)


def templates(overrides: T | Mapping[str, T] | None, defaults: Mapping[str, T]) -> Mapping[str, T]:
    """Return templates by language.

    Args:
        overrides: templates for all languages, or by language; other languages keep the default ones.
        defaults: the built-in ones.
    """
    return (
        {**defaults, **(overrides or {})} if overrides is None or isinstance(overrides, Mapping) else {"en": overrides}
    )


def for_language_of(text: str, by_language: Mapping[str, T]) -> T:
    """Return the templates for the language of a text, or the English ones."""
    return by_language.get(detect(text)) or by_language["en"]
