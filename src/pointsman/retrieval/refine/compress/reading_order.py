"""Orders hits for reading by a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pointsman.retrieval.refine.base_refiner import BaseRefiner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.types import Query, Ranked

T = TypeVar("T")


def lost_in_the_middle(hits: Sequence[T]) -> tuple[T, ...]:
    """Moves the best to both ends: models overlook the middle of a long context.

    Liu et al., "Lost in the Middle: How Language Models Use Long Contexts", TACL 2024,
    https://arxiv.org/abs/2307.03172.

    >>> lost_in_the_middle(["1st", "2nd", "3rd", "4th", "5th"])
    ('1st', '3rd', '5th', '4th', '2nd')
    """
    return (*hits[::2], *hits[1::2][::-1])


class LostInTheMiddle(BaseRefiner):
    """Puts the best hits at both ends of the answer; see `lost_in_the_middle`.

    Use it as the last stage: the hits are then no longer best first. Scores stay, so sorting restores the order.
    """

    stage = "order"

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (independent of the query)
        """Return the first ``top_k`` hits, the best at both ends."""
        reasons = {
            hit.key: "below the cut: only the hits of the answer are put in order" for hit in ranking.hits[top_k:]
        }
        detail = "best at both ends, for a reader that overlooks the middle"
        hits = lost_in_the_middle(ranking.hits[:top_k])
        return replace(ranking, hits=hits, detail=detail, dropped=reasons, degraded=())
