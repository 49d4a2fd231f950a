"""Embedders, rerankers and language models: Pointsman's for LangChain, and LangChain's for Pointsman."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings

from pointsman.embedders.base_embedder import EmbedFunction
from pointsman.embedders.named_embedders import as_embedder
from pointsman.integrations.framework_sources import own_reranker
from pointsman.integrations.langchain.langchain_documents import number_documents, reorder_documents
from pointsman.llm.base_llm import BaseLLM, Completion, Usage
from pointsman.retrieval.retrievers.foreign_retriever import failed
from pointsman.tools.errors import ModelError, PointsmanError
from pointsman.tools.sync_and_async import async_twin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core import documents as theirs
    from langchain_core.callbacks import Callbacks
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable

    from pointsman.values.protocols import Embedder


class PointsmanEmbeddings(Embeddings):
    """A Pointsman embedder as LangChain embeddings.

    Args:
        embedder: anything with ``embed(text)``, or a name; by default the default embedder, which needs no network.
    """

    def __init__(self, embedder: Embedder | str | None = None) -> None:
        self.embedder = as_embedder("default" if embedder is None else embedder)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, of length 1."""
        vector: list[float] = self.embedder.embed_queries([text])[0].tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of documents, each of length 1."""
        vectors: list[list[float]] = self.embedder.embed_documents(texts).tolist()
        return vectors

    aembed_query = async_twin(embed_query)

    aembed_documents = async_twin(embed_documents)


class PointsmanReranker(BaseDocumentCompressor, extra="forbid"):
    """A Pointsman reranker as a LangChain document compressor; its score is ``relevance_score`` in the metadata.

    Attributes:
        reranker: any `BaseReranker`, or its name; by default the offline one over the default embedder.
        top_n: the number of documents to keep.
    """

    reranker: Any = None
    top_n: int = 4

    def model_post_init(self, context: Any, /) -> None:
        """Open the reranker that is named, or the default one."""
        super().model_post_init(context)
        self.reranker = own_reranker(self.reranker)

    def compress_documents(
        self,
        documents: Sequence[theirs.Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002  (LangChain's interface)
    ) -> list[theirs.Document]:
        """Return the most relevant documents, best first."""
        return reorder_documents(documents, self.reranker.rerank(query, number_documents(documents), self.top_n))


class LangChainEmbedder(EmbedFunction):
    """Adapter for LangChain embeddings, if they are to have a name of your own; others are taken as they are.

    Args:
        embeddings: the LangChain embeddings.
        name: identifies the model and its settings, and is stored with the vectors; by default the model's own name. If
            it has none, its class name is used, and vectors are not cached between runs.
    """

    def __init__(self, embeddings: Embeddings, name: str | None = None) -> None:
        super().__init__(embeddings, name)


class LangChainLLM(BaseLLM):
    """Adapter for a LangChain chat model or language model.

    Args:
        model: anything whose ``invoke`` takes a prompt and returns a message or a text.
    """

    def __init__(self, model: Runnable[Any, BaseMessage | str]) -> None:
        self.model = model

    def complete(self, prompt: str) -> Completion:  # type: ignore[override]  # it does not support a schema
        """Answer a prompt.

        Raises:
            ModelError: the model failed, or answered without a text.
        """
        with _translating_errors(self.model):
            return _completion(self.model, self.model.invoke(prompt))

    async def acomplete(self, prompt: str) -> Completion:  # type: ignore[override]  # as above
        """Async version of `complete`."""
        with _translating_errors(self.model):
            return _completion(self.model, await self.model.ainvoke(prompt))


def embedder_of(embedding: Embeddings | None) -> Embedder | None:
    """Return LangChain's embeddings as an embedder; our own are what they wrap, so that vectors keep their name."""
    if isinstance(embedding, PointsmanEmbeddings):
        return embedding.embedder
    return None if embedding is None else as_embedder(embedding)


@contextmanager
def _translating_errors(model: object) -> Iterator[None]:
    """Converts errors of another framework's model to Pointsman errors; Pointsman errors stay unchanged."""
    try:
        yield
    except PointsmanError:
        raise
    except Exception as error:
        raise ModelError(str(failed(model, error))) from error


def _completion(model: object, answer: BaseMessage | str) -> Completion:
    text = answer if isinstance(answer, str) else answer.text
    if not isinstance(text, str):
        raise ModelError(f"{type(model).__name__} answered without a text: {answer!r:.80}")
    counts = getattr(answer, "usage_metadata", None)
    usage = Usage(counts["input_tokens"], counts["output_tokens"], 1) if counts else None
    return Completion(str(text), usage=usage)
