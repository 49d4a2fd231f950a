"""A Haystack joiner with Pointsman's fusion methods."""

from dataclasses import replace

from haystack import Document, component
from haystack.core.component.types import Variadic

from haystack_integrations.document_stores.pointsman.saved_component import SavedComponent
from pointsman import fuse
from pointsman.values.argument_checks import check_top_k

__all__ = ["PointsmanJoiner"]


@component
class PointsmanJoiner(SavedComponent):
    """Fuses several rankings into one: each document once, by the fused score.

    Args:
        method: ``"rrf"``, ``"weighted_rrf"``, ``"min_max"``, ``"z_score"``, ``"dbsf"`` or ``"round_robin"``. The last
            four use scores; a document without one counts by its rank.
        weights: one per list, in the order of their connections.
        top_k: how many documents to keep; all by default.
    """

    def __init__(self, method: str = "rrf", weights: list[float] | None = None, top_k: int | None = None) -> None:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {top_k}")
        self.method, self.weights, self.top_k = method, weights, top_k
        fuse([], method)  # raises if there is no such method

    @component.output_types(documents=list[Document])
    def run(self, documents: Variadic[list[Document]], top_k: int | None = None) -> dict[str, list[Document]]:
        """Returns the fused ranking."""
        k = self.top_k if top_k is None else check_top_k(top_k)
        lists = list(documents)
        by_id = {
            document.id: document for ranking in reversed(lists) for document in reversed(ranking)
        }  # the first version counts
        rankings = [[(document.id, document.score) for document in ranking] for ranking in lists]
        scores_by_id = fuse(rankings, self.method, self.weights)
        return {"documents": [replace(by_id[id_], score=score) for id_, score in scores_by_id[:k]]}
