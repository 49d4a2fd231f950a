"""What a dataset of a service needs of its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pointsman.values.retrieval_context import RetrievalContext


class SearchesDatasets(Protocol):
    """What a dataset needs of the client it belongs to; its `Client` has it."""

    @property
    def search(self) -> Callable[..., RetrievalContext]:
        """Search datasets by name."""

    @property
    def asearch(self) -> Callable[..., Awaitable[RetrievalContext]]:
        """Async version of `search`."""

    @property
    def search_many(self) -> Callable[..., list[RetrievalContext]]:
        """Answer many questions."""

    @property
    def asearch_many(self) -> Callable[..., Awaitable[list[RetrievalContext]]]:
        """Async version of `search_many`."""

    def status(self, name: str) -> dict[str, Any]:
        """Return what the service says of a dataset."""

    def names(self) -> list[str]:
        """Return the names of all datasets."""
