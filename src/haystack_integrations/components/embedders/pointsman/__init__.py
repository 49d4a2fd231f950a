"""Haystack embedders backed by Pointsman's embedders."""

from dataclasses import replace
from functools import cached_property
from typing import Any

from haystack import Document, component

from haystack_integrations.document_stores.pointsman.saved_component import SavedComponent
from pointsman.embedders import load_embedder
from pointsman.embedders.base_embedder import BaseEmbedder
from pointsman.tools.sync_and_async import async_twin

__all__ = ["PointsmanDocumentEmbedder", "PointsmanTextEmbedder"]


class _Embedder(SavedComponent):
    """Shared by both embedders."""

    def __init__(self, embedder: str = "default") -> None:
        self.embedder = embedder

    @cached_property
    def _own_embedder(self) -> BaseEmbedder:
        return load_embedder(self.embedder)


@component
class PointsmanTextEmbedder(_Embedder):
    """Embeds a question.

    Args:
        embedder: ``"default"``, which needs no network, or another name that `pointsman.load_embedder` knows.
    """

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """Returns the vector of a question, of length 1."""
        if not isinstance(text, str):
            raise TypeError(f"a text is a str, not {type(text).__name__}; PointsmanDocumentEmbedder takes documents")
        return {"embedding": self._own_embedder.embed_queries([text])[0].tolist()}

    run_async = async_twin(run, "{}_async")


@component
class PointsmanDocumentEmbedder(_Embedder):
    """Embeds documents by their text, and by their title if their metadata has one.

    Args:
        embedder: ``"default"``, which needs no network, or another name that `pointsman.load_embedder` knows.
    """

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Returns the documents with their vectors, each of length 1, and the name of the model."""
        texts = ["\n".join(filter(None, (_title(document), document.content or ""))) for document in documents]
        rows = self._own_embedder.embed_documents(texts).tolist() if texts else []
        documents_with_embeddings = [
            replace(document, embedding=row) for document, row in zip(documents, rows, strict=True)
        ]
        return {"documents": documents_with_embeddings, "meta": {"model": self._own_embedder.name}}

    run_async = async_twin(run, "{}_async")


def _title(document: Document) -> str:
    title = document.meta.get("title")
    return title if isinstance(title, str) else ""
