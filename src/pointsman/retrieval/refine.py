"""What every refiner is: it reshapes a ranking. Reranking, refusing, thinning out and compressing are refiners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._twins import Twins, in_thread, wait_for

if TYPE_CHECKING:
    from pointsman.types import Query, Ranked


class BaseRefiner(Twins, needs=("refine", "arefine")):
    """Turns one ranking into another. Implement ``refine`` or ``arefine``; the other one comes from here.

    A refiner returns new values and leaves what it was given untouched. What it cannot do it says in ``degraded``
    of its answer and passes the ranking on; an exception that leaves it is caught by the workflow, which does the same.

    Attributes:
        stage: its name in traces: ``"rerank"``, ``"refuse"``, ``"diversify"``, ``"compress"`` or a new one.
        timeout: seconds that the workflow gives it at most; None: no limit but that of the whole search.
        in_place: it only computes, and briefly: it is called where the search runs, on an event loop as well, without
            a thread or a time limit of its own.
    """

    stage: str = "refine"
    timeout: float | None = None
    in_place: bool = False

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (for those who need it)
        """How many hits it wants to see for an answer of ``top_k``; the workflow fetches that many if there are.

        Args:
            top_k: how many hits the answer is to have.
            scale: what the scores of the fused ranking are; see `pointsman.types.Ranked`.
        """
        return top_k

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:
        """The ranking, reshaped.

        Args:
            query: what was asked.
            ranked: what the stages before have made, at most ``depth(…)`` hits or what a later stage wants.
            top_k: how many hits the answer is to have; the cut itself is the workflow's.
        """
        return wait_for(self.arefine, query, ranked, top_k)

    async def arefine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:
        """The same, awaited; a synchronous ``refine`` runs in a worker thread."""
        return await in_thread(self.refine, query, ranked, top_k)
