"""A Haystack ranker backed by Pointsman's offline reranker."""

from dataclasses import replace
from functools import cached_property

from haystack import Document, component

from haystack_integrations.document_stores.pointsman.saved_component import SavedComponent
from pointsman import CalibratedReranker
from pointsman import Document as OurDocument
from pointsman.embedders import load_embedder
from pointsman.retrieval.run.reading import USUAL_SIGMA
from pointsman.tools.sync_and_async import async_twin

__all__ = ["PointsmanRanker"]


@component
class PointsmanRanker(SavedComponent):
    """Ranks documents by words and vectors together; documents without a text come last.

    Args:
        top_k: how many documents to keep.
        embedder: ``"default"``, or another name that `pointsman.load_embedder` knows.
    """

    def __init__(self, top_k: int = 10, embedder: str = "default") -> None:
        if top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {top_k}")
        self.top_k, self.embedder = top_k, embedder

    @cached_property
    def _reranker(self) -> CalibratedReranker:
        own_embedder = load_embedder(self.embedder)
        return CalibratedReranker(own_embedder, sigma=own_embedder.cosine_spread or USUAL_SIGMA)

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Returns the most relevant documents, best first, with their scores."""
        k = self.top_k if top_k is None else top_k
        own_documents = [
            OurDocument(str(number), document.content, document.meta)
            for number, document in enumerate(documents)
            if document.content is not None
        ]
        ranking = self._reranker.rerank(query, own_documents, k)
        best = [replace(documents[int(document.id)], score=float(document.metadata["score"])) for document in ranking]
        return {"documents": [*best, *(document for document in documents if document.content is None)][:k]}

    run_async = async_twin(run, "{}_async")
