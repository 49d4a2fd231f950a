"""What transformers may use that need to search first: the routed sources."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pointsman.tools.parallel_calls import Mode, sync_and_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Query

    Search = Callable[..., Awaitable[list[RetrievalContext]]]


@dataclass(frozen=True, slots=True)
class RoutedLookup:
    """The routed sources of a search; a `pointsman.retrieval.plan.transform.base_transformer.Lookup`.

    Its searches use the breaker and the policy of the search that they serve, but transform and refine nothing.

    Attributes:
        recipe: of the search.
        names: of the routed sources.
        carry_out: `pointsman.retrieval.search.search`.
    """

    recipe: Recipe
    names: Sequence[str]
    carry_out: Search

    @property
    def sources(self) -> list[Any]:
        """The routed sources."""
        return [self.recipe.sources[name] for name in self.names]

    async def _search(self, mode: Mode, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """Return the best hits for a query."""
        plain = replace(
            self.recipe,
            sources={name: self.recipe.sources[name] for name in self.names},
            k=k,
            router=None,
            transformer=None,
            refiners=(),
            timeout=self.recipe.timeout if seconds is None else seconds,
            strategy="",
            syntax="plain",
        )
        return (await self.carry_out([plain], [query], mode))[0]

    search, asearch = sync_and_async(_search)
