"""Pointsman's embedders for LlamaIndex, and LlamaIndex's embedding models for Pointsman."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from pointsman.embedders.base_embedder import EmbedFunction
from pointsman.embedders.named_embedders import as_embedder
from pointsman.tools.errors import InputError
from pointsman.tools.sync_and_async import async_twin

if TYPE_CHECKING:
    from pointsman.values.protocols import Embedder


class PointsmanEmbedding(BaseEmbedding):
    """A Pointsman embedder as a LlamaIndex embedding model; vectors have length 1.

    Args:
        embedder: the name of an embedder that `pointsman.load_embedder` knows, or anything with ``embed(text)``. Only
            one that is given by its name can be rebuilt by ``from_dict``.
        options: of LlamaIndex's `BaseEmbedding`.

    Raises:
        InputError: it is rebuilt without the object that embedded.
    """

    embedder: str | None = None
    _embedder: Any = PrivateAttr()

    def __init__(self, embedder: Embedder | str | None = "default", **options: Any) -> None:
        stored_name = options.pop("model_name", None)
        if embedder is None:
            raise InputError(
                f"the embedder {stored_name or ''!r} was given as an object, which is not stored; pass it again: "
                "PointsmanEmbedding.from_dict(values, embedder=…)"
            )
        own_embedder = as_embedder(embedder)
        super().__init__(
            model_name=own_embedder.name,
            embedder=embedder if isinstance(embedder, str) else None,  # type: ignore[call-arg]  # pydantic's field
            **options,
        )
        self._embedder = own_embedder

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._embedder.embed_queries([query])[0].tolist()
        return vector

    _aget_query_embedding = async_twin(_get_query_embedding)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embedder.embed_documents(texts).tolist()
        return vectors

    _aget_text_embeddings = async_twin(_get_text_embeddings)


class LlamaIndexEmbedder(EmbedFunction):
    """Adapter for a LlamaIndex embedding model, if it is to have a name of your own; others are taken as they are.

    Args:
        model: the LlamaIndex model.
        name: identifies the model and its settings, and is stored with the vectors; by default its ``model_name``. If
            it has none, its class name is used, and vectors are not cached between runs.
    """

    def __init__(self, model: BaseEmbedding, name: str | None = None) -> None:
        super().__init__(model, name)
