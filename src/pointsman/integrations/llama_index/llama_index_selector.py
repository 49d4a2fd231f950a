"""Pointsman's selectors as selectors of LlamaIndex's routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection

from pointsman.selector.base_selector import ToolMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import QueryBundle
    from llama_index.core.tools.types import ToolMetadata as TheirToolMetadata

    from pointsman.selector.base_selector import BaseSelector as OurSelector
    from pointsman.selector.base_selector import SelectorResult as OurResult


class PointsmanSelector(BaseSelector):
    """A Pointsman selector as a LlamaIndex selector, for `RouterQueryEngine`, `RouterRetriever` and others.

    If the selector abstains, all choices are selected: LlamaIndex cannot express an empty selection.

    Args:
        selector: any Pointsman selector; whether it selects several is its own setting.
    """

    def __init__(self, selector: OurSelector) -> None:
        self.selector = selector

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts_dict: dict[str, Any]) -> None:
        """Does nothing: there are no prompts."""

    def _select(self, choices: Sequence[TheirToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selector_result(self.selector.select(_choices(choices), query.query_str), len(choices))

    async def _aselect(self, choices: Sequence[TheirToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selector_result(await self.selector.aselect(_choices(choices), query.query_str), len(choices))


def _choices(choices: Sequence[TheirToolMetadata]) -> list[ToolMetadata]:
    return [
        ToolMetadata(choice.name, choice.description) if choice.name else ToolMetadata(choice.description, "")
        for choice in choices
    ]


def _selector_result(result: OurResult, count: int) -> SelectorResult:
    if result.abstained:
        reason = "no choice fits, so all of them are selected"
        return SelectorResult(selections=[SingleSelection(index=index, reason=reason) for index in range(count)])
    return SelectorResult(
        selections=[SingleSelection(index=selection.index, reason=selection.reason) for selection in result.selections]
    )
