"""The base of all retrievers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.tools.sync_and_async import Twins, in_thread, wait_for

if TYPE_CHECKING:
    from pointsman.values.types import Hit, Query


class BaseRetriever(Twins, needs=("retrieve", "aretrieve")):
    """Finds documents for a query. Implement ``retrieve`` or ``aretrieve``; this class derives the other.

    Attributes:
        lists: whether it searches words, and whether vectors; None if that is not known.
        lacking: if it searches one of them only: why, and what to do about it.
    """

    lists: tuple[bool, bool] | None = None
    lacking: str = ""

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first."""
        return wait_for(self.aretrieve, query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Async version of `retrieve`; a synchronous ``retrieve`` runs in a worker thread."""
        return await in_thread(self.retrieve, query, top_k)
