"""Prompts, by language, that ask a language model to transform a query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.llm.prompt_templates import check_template, read_templates

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TransformPrompts:
    """Templates; external text is inserted as fenced data.

    Attributes:
        decompose: asks for sub-questions; needs ``$query``, may use ``$most``.
        expand: asks for other ways to ask the same; needs ``$query``, may use ``$most``.
        disambiguate: asks for a self-contained question; needs ``$query`` and ``$history``.
    """

    decompose: str
    expand: str
    disambiguate: str

    def __post_init__(self) -> None:
        for name, required_names, allowed_names in (
            ("decompose", {"query"}, {"query", "most"}),
            ("expand", {"query"}, {"query", "most"}),
            ("disambiguate", {"query", "history"}, {"query", "history"}),
        ):
            check_template(name, getattr(self, name), required_names, allowed_names)


TRANSFORM: Mapping[str, TransformPrompts] = read_templates(
    TransformPrompts, Path(__file__).with_name("transform_prompts.toml")
)
