"""The base of all refiners, which reshape a ranking: rerank, refuse, diversify, compress."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pointsman.tools.parallel_calls import DualCall
from pointsman.tools.sync_and_async import Twins, in_thread, wait_for

if TYPE_CHECKING:
    from pointsman.values.types import Query, Ranked


class BaseRefiner(Twins, needs=("refine", "arefine")):
    """Turns one ranking into another. Implement ``refine`` or ``arefine``; this class derives the other.

    A refiner returns new values and does not modify its input. If it cannot do its work, it passes the ranking on and
    says so in ``degraded``; the workflow does the same when a refiner raises an exception.

    Attributes:
        stage: its name in traces: ``"rerank"``, ``"refuse"``, ``"diversify"``, ``"compress"`` or a new one.
        timeout: the maximum time in seconds that the workflow allows it; None: only the limit of the whole search.
        in_place: it only computes, and briefly: it runs where the search runs, even on an event loop, without a
            thread or a time limit of its own.
    """

    stage: str = "refine"
    timeout: float | None = None
    in_place: bool = False

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (used by subclasses)
        """How many hits it needs for an answer of ``top_k``; the workflow fetches that many, if they exist.

        Args:
            top_k: the number of hits of the answer.
            scale: what the scores of the fused ranking mean; see `pointsman.values.types.Ranked`.
        """
        return top_k

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """Return the reshaped ranking.

        Args:
            query: the query.
            ranking: the ranking of the earlier stages: at most ``depth(…)`` hits, or more if a later stage needs more.
            top_k: the number of hits of the answer; the workflow makes the cut.
        """
        return wait_for(self.arefine, query, ranking, top_k)

    async def arefine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """Async version of `refine`; a synchronous ``refine`` runs in a worker thread."""
        return await in_thread(self.refine, query, ranking, top_k)


def refining(refiner: BaseRefiner, query: Query, ranking: Ranked, top_k: int) -> DualCall[Ranked]:
    """Return the call that reshapes a ranking."""
    return DualCall(partial(refiner.refine, query, ranking, top_k), partial(refiner.arefine, query, ranking, top_k))
