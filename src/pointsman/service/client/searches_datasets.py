"""What a dataset of a service needs of its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext


class SearchesDatasets(Protocol):
    """What a dataset needs of the client it belongs to; its `Client` has it."""

    def search(self, *arguments: Any, **options: Any) -> RetrievalContext:
        """Search datasets by name."""

    async def asearch(self, *arguments: Any, **options: Any) -> RetrievalContext:
        """Async version of `search`."""

    def search_many(self, *arguments: Any, **options: Any) -> list[RetrievalContext]:
        """Answer many questions."""

    async def asearch_many(self, *arguments: Any, **options: Any) -> list[RetrievalContext]:
        """Async version of `search_many`."""

    def status(self, name: str) -> dict[str, Any]:
        """Return what the service says of a dataset."""

    def names(self) -> list[str]:
        """Return the names of all datasets."""
