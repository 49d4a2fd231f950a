"""A Haystack router backed by a Pointsman selector."""

from collections.abc import Mapping
from functools import cached_property

from haystack import component

from haystack_integrations.document_stores.pointsman.saved_component import SavedComponent
from pointsman import load_embedder
from pointsman.selector import EmbeddingSelector, SelectorResult, ToolMetadata

__all__ = ["PointsmanRouter"]


@component
class PointsmanRouter(SavedComponent):
    """Sends a question to the routes whose descriptions are nearest in meaning; each route is an output.

    Args:
        routes: descriptions by name.
        top_k: the number of routes per question.
        embedder: ``"default"``, or another name that `pointsman.load_embedder` knows.
    """

    def __init__(self, routes: Mapping[str, str], top_k: int = 1, embedder: str = "default") -> None:
        if not routes:
            raise ValueError("a router has at least one route")
        if not 1 <= top_k <= len(routes):
            raise ValueError(f"top_k is 1 to {len(routes)}, as there are so many routes, not {top_k}")
        self.routes, self.top_k, self.embedder = dict(routes), top_k, embedder
        component.set_output_types(self, **dict.fromkeys(self.routes, str))

    @cached_property
    def _selector(self) -> EmbeddingSelector:
        return EmbeddingSelector(load_embedder(self.embedder), top_k=self.top_k)

    def run(self, query: str) -> dict[str, str]:
        """Returns the question under the name of each chosen route."""
        return self._output(query, self._selector.select(self._choices, query))

    async def run_async(self, query: str) -> dict[str, str]:
        """Async version of `run`."""
        return self._output(query, await self._selector.aselect(self._choices, query))

    @cached_property
    def _choices(self) -> list[ToolMetadata]:
        return [ToolMetadata(name, description) for name, description in self.routes.items()]

    def _output(self, query: str, result: SelectorResult) -> dict[str, str]:
        return {self._choices[index].name: query for index in result.inds}
