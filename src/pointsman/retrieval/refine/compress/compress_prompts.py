"""Prompts, by language, that ask a language model to compress; placeholders are ``$name``.

Texts and questions are inserted as fenced data; see `pointsman.llm.prompt_templates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.llm.prompt_templates import check_template, read_templates

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING = "NONE"
"""The model's answer if there is nothing to summarise."""


@dataclass(frozen=True, slots=True)
class CompressionPrompts:
    """The templates of one language.

    Attributes:
        extract: asks for the numbers of sentences. ``$text`` is the numbered sentences and ``$query`` the question,
            both fenced; ``$count`` is the number of sentences.
        summary: asks for a summary. ``$text`` is the text as one JSON string, fenced; ``$most`` the maximum number of
            characters; ``$nothing`` the word to answer if nothing is relevant to the question.
        retry: added after an unusable answer; ``$problem`` says why.
        problems: the defects by name, in words, for ``$problem``.

    Raises:
        InputError: a template lacks a required placeholder, or uses an unknown one.
    """

    extract: str
    summary: str
    retry: str
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        allowed_names = {"text", "query", "count", "most", "problem", "nothing"}
        for name, required_names in (("extract", {"text", "query"}), ("summary", {"text", "query"}), ("retry", set())):
            check_template(name, getattr(self, name), required_names, allowed_names)


COMPRESSION: Mapping[str, CompressionPrompts] = read_templates(
    CompressionPrompts, Path(__file__).with_name("compress_prompts.toml")
)
