"""The fusion methods of Pointsman as a joiner of Haystack (X1)."""

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.core.component.types import Variadic

from pointsman import fuse

__all__ = ["PointsmanJoiner"]


@component
class PointsmanJoiner:
    """Makes one ranking of several: each document once, by the fused score.

    Args:
        method: ``"rrf"``, ``"weighted_rrf"``, ``"min_max"``, ``"z_score"``, ``"dbsf"`` or ``"round_robin"``. The last
            four use scores; a document without one counts by its rank.
        weights: one for each list, in the order of their connections.
        top_k: how many documents stay; all of them unless given.
    """

    def __init__(self, method: str = "rrf", weights: list[float] | None = None, top_k: int | None = None) -> None:
        self.method, self.weights, self.top_k = method, weights, top_k
        fuse([], method)  # whether there is such a method

    def to_dict(self) -> dict[str, Any]:
        """How to make it again."""
        return default_to_dict(self, method=self.method, weights=self.weights, top_k=self.top_k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PointsmanJoiner":
        """The component that `to_dict` tells of."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(self, documents: Variadic[list[Document]], top_k: int | None = None) -> dict[str, list[Document]]:
        """The fused ranking."""
        lists = list(documents)
        by_id = {
            document.id: document for ranking in reversed(lists) for document in reversed(ranking)
        }  # the first version counts
        rankings = [[(document.id, document.score) for document in ranking] for ranking in lists]
        fused = fuse(rankings, self.method, self.weights)
        best = fused[: self.top_k if top_k is None else top_k]
        return {"documents": [replace(by_id[id_], score=score) for id_, score in best]}
