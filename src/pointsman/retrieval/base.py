"""What every retriever is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._twins import Twins, in_thread, wait_for

if TYPE_CHECKING:
    from pointsman.types import Hit, Query


class BaseRetriever(Twins, needs=("retrieve", "aretrieve")):
    """Finds documents for a query. Implement ``retrieve`` or ``aretrieve``; the other one comes from here."""

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        return wait_for(self.aretrieve, query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """The same, awaited; a synchronous ``retrieve`` runs in a worker thread."""
        return await in_thread(self.retrieve, query, top_k)
