"""Prompts, by language, that ask a language model to rank documents.

Placeholders are ``$name`` (`string.Template`), as in `pointsman.llm.prompt_templates`. Questions and passages are
inserted as data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pointsman.llm.prompt_templates import check_template, read_templates

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RerankPrompts:
    """The prompts for ranking documents.

    Attributes:
        pointwise: asks for a grade from 0 to 10. ``$query`` and ``$passage`` are fenced data.
        listwise: asks for an order. ``$query`` and ``$passages`` are fenced data; ``$count`` is their number.
        retry: added after an unusable answer; ``$problem`` says why.
        problems: the defects by name, in words, for ``$problem``.
    """

    pointwise: str
    listwise: str
    retry: str
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, required_names, allowed_names in (
            ("pointwise", {"query", "passage"}, {"query", "passage"}),
            ("listwise", {"query", "passages"}, {"query", "passages", "count"}),
            ("retry", {"problem"}, {"problem", "count"}),
        ):
            check_template(name, getattr(self, name), required_names, allowed_names)


RERANK: Final[Mapping[str, RerankPrompts]] = read_templates(
    RerankPrompts, Path(__file__).with_name("rerank_prompts.toml")
)
