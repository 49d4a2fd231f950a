"""Adapters between Pointsman and LangChain, in both directions.

For LangChain: `PointsmanRetriever`, `PointsmanVectorStore`, `PointsmanDocumentIndex`, `PointsmanLoader`,
`PointsmanEmbeddings`, `PointsmanReranker` and `PointsmanTranslator`. For Pointsman: `LangChainRetriever`,
`LangChainEmbedder` and `LangChainLLM`.

Needs ``pip install 'pointsman[langchain]'``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from pointsman.embedders.base_embedder import EmbedFunction, as_embedder
from pointsman.ingest import Problem, read_paths
from pointsman.integrations.framework_sources import (
    NotedHit,
    ahits_of,
    check_source,
    diverse,
    hits_from_score,
    hits_of,
    model_error,
    noted_answer,
    offline_reranker,
    take_group_options,
    with_distance,
    with_notes,
    workspace_of,
)
from pointsman.llm.base_llm import BaseLLM, Completion, Usage
from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever
from pointsman.service.client import RemoteDataset
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import FilterError, InputError, MissingDependencyError, ModelError
from pointsman.tools.sync_and_async import in_thread
from pointsman.tools.system.locations import is_service, redacted
from pointsman.values.filters import (
    And,
    Contains,
    EndsWith,
    Filter,
    Not,
    Or,
    Range,
    StartsWith,
    equal_to,
    one_of,
    parse_optional,
)
from pointsman.values.types import Document, Hit, check_top_k
from pointsman.workspace.dataset import Dataset

try:
    from langchain_core import documents as theirs
    from langchain_core.document_loaders import BaseLoader
    from langchain_core.documents.compressor import BaseDocumentCompressor
    from langchain_core.embeddings import Embeddings
    from langchain_core.indexing.base import DeleteResponse, DocumentIndex, UpsertResponse
    from langchain_core.retrievers import BaseRetriever as TheirRetriever
    from langchain_core.structured_query import Comparator, Operator, Visitor
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise MissingDependencyError("langchain-core", "langchain", "the LangChain adapter") from error

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable
    from langchain_core.structured_query import Comparison, Operation, StructuredQuery

    from pointsman.embedders.distance import DistanceName
    from pointsman.values.protocols import Embedder

__all__ = [
    "LangChainEmbedder",
    "LangChainLLM",
    "LangChainRetriever",
    "PointsmanDocumentIndex",
    "PointsmanEmbeddings",
    "PointsmanLoader",
    "PointsmanReranker",
    "PointsmanRetriever",
    "PointsmanTranslator",
    "PointsmanVectorStore",
]

Filters = str | Mapping[str, Any] | Filter | None

_MMR_OPTIONS: Final = "k, fetch_k, lambda_mult, filter, score_threshold, group_by and group_size"
_PLAIN: dict[str, Any] = {"rerank": False, "refuse": False}  # a vector store returns the nearest documents


# ── for LangChain ────────────────────────────────────────────────────────────────────────────────────────────────────


class PointsmanRetriever(TheirRetriever, extra="forbid"):
    """Any of Pointsman's search objects as a LangChain retriever.

    The metadata of documents includes ``score``, ``relevance`` and ``dataset``, unless it already has such values.
    Where it applies, it also has ``not_in_force``, such as "superseded by amendment.md, valid from 2026-03-01", and, in
    the first document, ``degraded``: what did not work as asked, and what was done instead.

    Attributes:
        source: a workspace, a dataset, a client, a workflow or a retriever.
        k: the number of documents; ``invoke(..., k=3)`` overrides it.
        options: of the search, such as ``{"strategy": "hybrid", "filters": "year > 2020"}``; options given to
            ``invoke`` override them.
    """

    source: Any
    k: int = 5
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it for every instance)

    def model_post_init(self, context: Any, /) -> None:
        """Check the source and the number.

        Raises:
            InputError: one of them is invalid.
        """
        super().model_post_init(context)
        check_source(self.source)
        check_top_k(self.k)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002  (LangChain's interface)
        k: int | None = None,
        **options: Any,
    ) -> list[theirs.Document]:
        filters, search_options = self._merged(options)
        hits = hits_of(self.source, query, self.k if k is None else k, filters, search_options)
        return [_with_score(*hit) for hit in hits]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002  (LangChain's interface)
        k: int | None = None,
        **options: Any,
    ) -> list[theirs.Document]:
        filters, search_options = self._merged(options)
        hits = await ahits_of(self.source, query, self.k if k is None else k, filters, search_options)
        return [_with_score(*hit) for hit in hits]

    def _merged(self, options: dict[str, Any]) -> tuple[Filter | None, dict[str, Any]]:
        search_options = {**self.options, **options}
        return parse_optional(search_options.pop("filters", None)), search_options


class PointsmanVectorStore(VectorStore):
    """A dataset as a LangChain vector store.

    Args:
        dataset: where the documents are stored, or its name in the workspace at ``path`` or ``url``. By default, the
            dataset ``"langchain"`` there; without a workspace, a new one that is deleted with the object.
        path: a workspace: a folder, created on the first write.
        url: a workspace: the URL of a database or of a Pointsman service; see `pointsman.open`.
        embedding: embeds documents and queries; by default the default embedder. A given dataset has its own, as has a
            service.
        strategy: how ``similarity_search`` searches: ``"vector"`` by cosine alone, ``"hybrid"`` also by words,
            ``"auto"``.
        distance: how vectors are compared: ``"cosine"``, ``"dot"`` or ``"euclidean"``; see `DistanceEmbedder`.
        longest: with another distance than the cosine, the greatest length of a stored vector; longer ones are refused.
        wait: seconds to wait while another process writes to the dataset.

    Raises:
        InputError: the arguments contradict each other, or the workspace cannot be opened.
    """

    def __init__(
        self,
        dataset: Dataset | str | None = None,
        *,
        path: str | Path | None = None,
        url: str | None = None,
        embedding: Embeddings | None = None,
        strategy: str = "vector",
        distance: DistanceName = "cosine",
        longest: float = 1.0,
        wait: float = 30.0,
    ) -> None:
        embedder = with_distance(_embedder_of(embedding), distance, longest)
        if embedder is not None and isinstance(dataset, Dataset | RemoteDataset):
            raise InputError("give either a dataset, which has its own embedder and distance, or an embedding")
        if embedder is not None and url is not None and is_service(url):
            raise InputError(f"the service at {redacted(url)} embeds by itself; leave out embedding and distance")
        workspace = workspace_of(dataset, path, url, embedder)
        if workspace is not None:
            dataset = workspace.dataset(dataset if isinstance(dataset, str) else "langchain")
        elif not isinstance(dataset, Dataset | RemoteDataset):
            dataset = Dataset("langchain", embedder=embedder)
        self.dataset: Dataset = dataset
        self.strategy, self.wait = strategy, wait
        self._workspace = workspace
        self._embedding = embedding

    def close(self) -> None:
        """Release the files and connections of the workspace that was opened here, or of the dataset."""
        if self._workspace is not None:
            self._workspace.close()
        else:
            self.dataset.close()

    @property
    def embeddings(self) -> Embeddings | None:
        """The model that embeds documents and queries here; None if a service embeds them."""
        if self._embedding is None and isinstance(self.dataset, Dataset):
            return PointsmanEmbeddings(self.dataset.embedder)
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, or update those whose id is known; see `add_documents`.

        Raises:
            InputError: there are more or fewer metadatas or ids than texts, or a text cannot be stored.
        """
        texts = list(texts)
        metadatas = list(metadatas or [{} for _ in texts])
        if len(metadatas) != len(texts):
            raise InputError(f"{len(metadatas)} metadatas for {len(texts)} texts; give one for each, or none")
        documents = [
            theirs.Document(page_content=text, metadata=metadata)
            for text, metadata in zip(texts, metadatas, strict=True)
        ]
        return self.add_documents(documents, ids=None if ids is None else list(ids), **kwargs)

    def add_documents(
        self,
        documents: list[theirs.Document],
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents, or update those whose id is known.

        Args:
            documents: the documents; they are not modified.
            ids: take precedence over the documents' own ids; a document without any gets a new one.
            batch_size: maximum number of documents embedded and committed together, which LangChain's `index` gives.
            kwargs: there are no other options.

        Returns:
            The ids, in order.

        Raises:
            InputError: there are more or fewer ids than documents, a document cannot be stored, or there is no such
                option.
        """
        _no_others("add_documents takes ids and batch_size", kwargs)
        documents = list(documents)
        if ids is not None and len(ids) != len(documents):
            raise InputError(f"{len(ids)} ids for {len(documents)} documents; give one for each, or none")
        return _write(self.dataset, documents, ids or [None] * len(documents), self.wait, batch_size)

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **kwargs: Any,
    ) -> bool:
        """Delete documents by id, those that match a filter, or all if neither is given.

        Raises:
            InputError: an id or the filter is invalid, or there is no such option.
        """
        _no_others("delete takes ids and filter", kwargs)
        with self.dataset.writing(self.wait):
            self.dataset.delete(ids, filters=And(()) if ids is None and not filter else filter)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[theirs.Document]:
        """Return those documents of these ids that exist."""
        return [_theirs(document) for document in self.dataset.get_many(list(ids)) if document is not None]

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[theirs.Document]:
        """Return the best documents for a text.

        Args:
            query: the query.
            k: the number of documents.
            filter: eligible documents: a mapping such as ``{"year": {"$gte": 2020}}``, an expression or a filter.
            options: of `Dataset.search`, and two that every search of a vector store takes: ``offset``, the number of
                best documents to leave out, for pages, and ``score_threshold``, the lowest score of a document, in
                the scores of `similarity_search_with_score`.

        Raises:
            InputError: the query, ``k``, the filter or an option is invalid.
        """
        return [_of_hit(*hit) for hit in self._search(query, k, filter, options)]

    async def asimilarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[theirs.Document]:
        """Async version of `similarity_search`."""
        return [_of_hit(*hit) for hit in await self._asearch(query, k, filter, options)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[tuple[theirs.Document, float]]:
        """`similarity_search` with scores, higher is better: cosines if the strategy is ``"vector"``."""
        return [(_of_hit(*noted_hit), noted_hit.hit.score) for noted_hit in self._search(query, k, filter, options)]

    async def asimilarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[tuple[theirs.Document, float]]:
        """Async version of `similarity_search_with_score`."""
        hits = await self._asearch(query, k, filter, options)
        return [(_of_hit(*noted_hit), noted_hit.hit.score) for noted_hit in hits]

    def _similarity_search_with_relevance_scores(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[tuple[theirs.Document, float]]:
        return self._with_relevance(self._search(query, k, filter, options))

    async def _asimilarity_search_with_relevance_scores(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **options: Any,
    ) -> list[tuple[theirs.Document, float]]:
        return self._with_relevance(await self._asearch(query, k, filter, options))

    def _with_relevance(self, hits: Sequence[NotedHit]) -> list[tuple[theirs.Document, float]]:
        """Pair documents with scores from 0 to 1: cosines from 0 up, or, for other strategies, the relevance.

        Raises:
            InputError: the strategy is not ``"vector"``, and nothing is known about the relevance of its hits.
        """
        if self.strategy == "vector":
            return [(_of_hit(hit, notes), min(max(hit.score, 0.0), 1.0)) for hit, notes in hits]
        if any(hit.relevance is None for hit, _ in hits):
            raise InputError(
                f"hits of the strategy {self.strategy!r} have no relevance here, because nothing is known about this "
                "embedder's scores; use strategy='vector', or calibrate the dataset"
            )
        return [(_of_hit(hit, notes), float(hit.relevance or 0.0)) for hit, notes in hits]

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **kwargs: Any,
    ) -> list[theirs.Document]:
        """Return the documents whose vectors are nearest to a vector.

        Args:
            embedding: the vector.
            k: the number of documents.
            filter: which documents are eligible.
            kwargs: ``offset`` and ``score_threshold``, as in `similarity_search`, and ``group_by`` and ``group_size``,
                as in `Dataset.search_vector`.

        Raises:
            InputError: the vector, ``k``, the filter or an option is invalid, or there is no such option.
        """
        pairs = self.similarity_search_with_score_by_vector(embedding, k, filter=filter, **kwargs)
        return [document for document, _ in pairs]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **kwargs: Any,
    ) -> list[tuple[theirs.Document, float]]:
        """`similarity_search_by_vector` with the cosines.

        Raises:
            InputError: the vector, ``k``, the filter or an option is invalid, or there is no such option.
        """
        offset, score_threshold = _offset(kwargs), _score_threshold(kwargs)
        groups = take_group_options(kwargs)
        _no_others("a search by vector takes filter, offset, score_threshold, group_by and group_size", kwargs)
        hits = self.dataset.search_vector(embedding, check_top_k(k) + offset, filters=filter, **groups)
        return _with_scores(hits_from_score(hits, score_threshold)[offset:])

    def similarity_search_with_score_by_sparse_vector(
        self,
        sparse_vector: Mapping[int, float],
        k: int = 4,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
    ) -> list[tuple[theirs.Document, float]]:
        """Return the documents with the greatest inner products with a sparse vector, and these.

        Documents bring their sparse vectors in their metadata under ``_sparse``; see `Dataset.search_sparse`.

        Raises:
            InputError: the vector, ``k`` or the filter is invalid.
        """
        return _with_scores(self.dataset.search_sparse(sparse_vector, k, filters=filter))

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[theirs.Document]:
        """Return nearest documents, each unlike those before it; see `max_marginal_relevance_search_by_vector`."""
        filters = kwargs.pop("filter", None)
        options = {"strategy": "vector", "score_threshold": kwargs.pop("score_threshold", None)}
        options |= take_group_options(kwargs)
        _no_others(f"a search by MMR takes {_MMR_OPTIONS}", kwargs)
        hits = self._search(query, max(check_top_k(fetch_k), check_top_k(k)), filters, options)
        notes_of = {hit.id: notes for hit, notes in hits}
        chosen_hits = diverse(self.dataset, [hit for hit, _ in hits], k, lambda_mult)
        return [_of_hit(hit, notes_of[hit.id]) for hit in chosen_hits]

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **kwargs: Any,
    ) -> list[theirs.Document]:
        """Return the nearest documents, each unlike those before it (Carbonell and Goldstein 1998).

        Args:
            embedding: the query vector.
            k: the number of documents to return.
            fetch_k: the number of nearest documents to choose from.
            lambda_mult: from 0 (only diversity) to 1 (only nearness).
            filter: which documents are eligible.
            kwargs: ``score_threshold``, the lowest cosine of a document to choose from, and ``group_by`` and
                ``group_size``, as in `Dataset.search_vector`.

        Raises:
            InputError: an argument is invalid, or there is no such option.
        """
        pairs = self.max_marginal_relevance_search_with_score_by_vector(
            embedding, k, fetch_k, lambda_mult, filter=filter, **kwargs
        )
        return [document for document, _ in pairs]

    def max_marginal_relevance_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filters = None,  # noqa: A002  (LangChain's name)
        **kwargs: Any,
    ) -> list[tuple[theirs.Document, float]]:
        """`max_marginal_relevance_search_by_vector` with the cosines; the order is that of MMR, not of the cosines.

        Raises:
            InputError: an argument is invalid, or there is no such option.
        """
        score_threshold, groups = _score_threshold(kwargs), take_group_options(kwargs)
        _no_others(f"a search by MMR takes {_MMR_OPTIONS}", kwargs)
        depth = max(check_top_k(fetch_k), check_top_k(k))
        hits = self.dataset.search_vector(embedding, depth, filters=filter, **groups)
        return _with_scores(diverse(self.dataset, hits_from_score(hits, score_threshold), k, lambda_mult))

    @classmethod
    def from_documents(
        cls, documents: list[theirs.Document], embedding: Embeddings | None = None, **options: Any
    ) -> Self:
        """Create a vector store with these documents.

        Args:
            documents: the documents to add; ``ids`` among the options take precedence over their own.
            embedding: embeds them; by default the embedder of the dataset.
            options: of the constructor.
        """
        ids = options.pop("ids", None)
        store = cls(embedding=embedding, **options)
        store.add_documents(documents, ids=ids)
        return store

    @classmethod
    async def afrom_documents(
        cls, documents: list[theirs.Document], embedding: Embeddings | None = None, **options: Any
    ) -> Self:
        """Async version of `from_documents`."""
        return await in_thread(partial(cls.from_documents, documents, embedding, **options))

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> Self:
        """Create a vector store with these texts.

        Args:
            texts: the texts to add.
            embedding: embeds them; the default embedder by default.
            metadatas: one per text.
            ids: one per text.
            options: of the constructor.
        """
        store = cls(embedding=embedding, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _search(self, query: str, k: int, filters: Filters, options: dict[str, Any]) -> list[NotedHit]:
        offset, score_threshold = _offset(options), _score_threshold(options)
        options = self._options(options)
        answer = self.dataset.search(query, check_top_k(k) + offset, filters=filters, **options)
        return noted_answer(answer, offset, score_threshold)

    async def _asearch(self, query: str, k: int, filters: Filters, options: dict[str, Any]) -> list[NotedHit]:
        offset, score_threshold = _offset(options), _score_threshold(options)
        options = self._options(options)
        answer = await self.dataset.asearch(query, check_top_k(k) + offset, filters=filters, **options)
        return noted_answer(answer, offset, score_threshold)

    def _options(self, options: dict[str, Any]) -> Any:
        if "filters" in options:
            raise InputError("a LangChain vector store takes filter, not filters")
        return {"strategy": self.strategy, **_PLAIN, **options}


class PointsmanDocumentIndex(PointsmanRetriever, DocumentIndex):
    """A dataset as a LangChain document index: a retriever that also stores documents.

    Attributes:
        wait: seconds to wait while another process writes to the dataset.
    """

    source: Dataset
    wait: float = 30.0

    def upsert(self, items: Sequence[theirs.Document], /, **kwargs: Any) -> UpsertResponse:
        """Add documents, or update those whose id is known; one without an id gets a new one.

        Raises:
            InputError: a document cannot be stored, or options are given; there are none.
        """
        _no_others("upsert takes documents", kwargs)
        return {"succeeded": _write(self.source, items, [None] * len(items), self.wait), "failed": []}

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents by id.

        Raises:
            InputError: no ids are given, or options, of which there are none.
        """
        _no_others("delete takes ids", kwargs)
        if ids is None:
            raise InputError("give the ids of the documents to delete")
        with self.source.writing(self.wait), without_record():  # no document is shown
            existing_ids = [document.id for document in self.source.get_many(ids) if document is not None]
            number = self.source.delete(existing_ids)
        return {"num_deleted": number, "num_failed": 0, "succeeded": existing_ids, "failed": []}

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[theirs.Document]:
        """Return those documents of these ids that exist.

        Raises:
            InputError: an id is not a str, or options are given; there are none.
        """
        _no_others("get takes ids", kwargs)
        return [_theirs(document) for document in self.source.get_many(list(ids)) if document is not None]


class PointsmanLoader(BaseLoader):
    """The files below some paths as LangChain documents: passages of real length, each below its headings.

    Their metadata has ``source``, ``title`` and, where the format has them, ``page``, ``sheet`` and positions, as
    those of `pointsman.ingest.read_paths`. A file that cannot be read is left out; after loading, ``problems`` says
    which and why, and so does a warning.

    Args:
        paths: files and folders.
        options: of `pointsman.ingest.read_paths`, such as ``max_tokens=200``.

    Raises:
        InputError: an option is out of range.
    """

    def __init__(self, paths: str | Path | Iterable[str | Path], **options: Any) -> None:
        self.paths = [paths] if isinstance(paths, str | Path) else list(paths)
        self.options = options
        self.problems: list[Problem] = []

    def lazy_load(self) -> Iterator[theirs.Document]:
        """Yield the passages of one file after the other."""
        self.problems = []
        for content in read_paths(self.paths, **self.options):
            for problem in content.problems:
                self.problems.append(problem)
                warnings.warn(f"{problem.path}: {problem.reason}", stacklevel=2)
            yield from map(_theirs, content.documents)


class PointsmanEmbeddings(Embeddings):
    """A Pointsman embedder as LangChain embeddings.

    Args:
        embedder: anything with ``embed(text)``; by default the default embedder, which needs no network.
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        from pointsman.embedders import default_embedder

        self.embedder = default_embedder() if embedder is None else as_embedder(embedder)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, of length 1."""
        vector: list[float] = self.embedder.embed_queries([text])[0].tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of documents, each of length 1."""
        vectors: list[list[float]] = self.embedder.embed_documents(texts).tolist()
        return vectors

    async def aembed_query(self, text: str) -> list[float]:
        """Async version of `embed_query`."""
        return await in_thread(self.embed_query, text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Async version of `embed_documents`."""
        return await in_thread(self.embed_documents, texts)


class PointsmanReranker(BaseDocumentCompressor, extra="forbid"):
    """A Pointsman reranker as a LangChain document compressor; its score is ``relevance_score`` in the metadata.

    Attributes:
        reranker: any `BaseReranker`; by default the offline one over the default embedder.
        top_n: the number of documents to keep.
    """

    reranker: Any = None
    top_n: int = 4

    def model_post_init(self, context: Any, /) -> None:
        """Set the default reranker."""
        super().model_post_init(context)
        self.reranker = self.reranker or offline_reranker()

    def compress_documents(
        self,
        documents: Sequence[theirs.Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002  (LangChain's interface)
    ) -> list[theirs.Document]:
        """Return the most relevant documents, best first."""
        return _reranked(documents, self.reranker.rerank(query, _numbered(documents), self.top_n))

    async def acompress_documents(
        self,
        documents: Sequence[theirs.Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002  (LangChain's interface)
    ) -> list[theirs.Document]:
        """Async version of `compress_documents`."""
        return _reranked(documents, await self.reranker.arerank(query, _numbered(documents), self.top_n))


class PointsmanTranslator(Visitor):
    """Converts structured queries, such as those of LangChain's self-query retriever, to Pointsman filters.

    ``contain`` matches a member of a list, ``like`` a part of a text, case-sensitively: ``%part%`` or ``part``
    anywhere, ``part%`` at its beginning. Patterns with other wildcards raise.
    """

    allowed_comparators = tuple(Comparator)
    allowed_operators = tuple(Operator)

    def visit_operation(self, operation: Operation) -> Filter:
        """Convert several conditions.

        Raises:
            FilterError: ``not`` has more than one condition.
        """
        operands = tuple(argument.accept(self) for argument in operation.arguments)
        if operation.operator is Operator.NOT:
            if len(operands) != 1:
                raise FilterError(f"not takes one condition, not {len(operands)}")
            return Not(operands[0])
        return And(operands) if operation.operator is Operator.AND else Or(operands)

    def visit_comparison(self, comparison: Comparison) -> Filter:
        """Convert one condition.

        Raises:
            FilterError: the comparator is not supported, or the value cannot be compared.
        """
        key, value, name = comparison.attribute, comparison.value, comparison.comparator
        if isinstance(value, Mapping):  # the form in which the query constructor writes dates
            mapping, value = value, value.get("datetime", value.get("date"))
            if value is None:
                raise FilterError(f"{key!r}: a mapping here has a date or a datetime, not {mapping!r:.80}")
        if name in {Comparator.EQ, Comparator.CONTAIN}:
            return equal_to(key, value)
        if name is Comparator.NE:
            return Not(equal_to(key, value))
        if name is Comparator.IN:
            return one_of(key, value)
        if name is Comparator.NIN:
            return Not(one_of(key, value))
        if name is Comparator.LIKE:
            return _like(key, value)
        return Range(key, **{name.value: value})

    def visit_structured_query(self, structured_query: StructuredQuery) -> tuple[str, dict[str, Any]]:
        """Return the text to search for, and arguments of ``similarity_search``."""
        arguments: dict[str, Any] = {}
        if structured_query.filter is not None:
            arguments["filter"] = structured_query.filter.accept(self)
        if structured_query.limit is not None:
            arguments["k"] = structured_query.limit
        return structured_query.query, arguments


def _like(key: str, pattern: object) -> Filter:
    """Convert an SQL pattern.

    Raises:
        FilterError: it has wildcards that filters do not support.
    """
    text = pattern if isinstance(pattern, str) else ""
    substring = text.removesuffix("%").removeprefix("%")
    if not substring or "%" in substring or "_" in substring:
        raise FilterError(f"{key!r}: like takes part, %part%, part% or %part, not {pattern!r:.80}")
    if text.startswith("%") == text.endswith("%"):
        return Contains(key, substring)
    return (EndsWith if text.startswith("%") else StartsWith)(key, substring)


# ── for Pointsman ────────────────────────────────────────────────────────────────────────────────────────────────────


class LangChainRetriever(ForeignRetriever):
    """Adapter for a LangChain retriever.

    A document without an id gets one derived from its text. LangChain documents have no scores, so a hit's score is
    1 / rank; when fused with other lists, it counts by its rank.

    Args:
        retriever: any LangChain retriever.
        name: of its list in traces; its class name by default.
    """


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
        try:
            answer = self.model.invoke(prompt)
        except Exception as error:
            raise model_error(self.model, error) from error
        return _completion(self.model, answer)

    async def acomplete(self, prompt: str) -> Completion:  # type: ignore[override]  # as above
        """Async version of `complete`."""
        try:
            answer = await self.model.ainvoke(prompt)
        except Exception as error:
            raise model_error(self.model, error) from error
        return _completion(self.model, answer)


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _no_others(valid_options: str, options: Mapping[str, Any]) -> None:
    """Reject options that LangChain's interface passes on and that would otherwise have no effect.

    Raises:
        InputError: there are any.
    """
    if options:
        raise InputError(f"{valid_options}, not {', '.join(sorted(options))}")


def _embedder_of(embedding: Embeddings | None) -> Embedder | None:
    """Return LangChain's embeddings as an embedder; our own are what they wrap, so that vectors keep their name."""
    if isinstance(embedding, PointsmanEmbeddings):
        return embedding.embedder
    return None if embedding is None else as_embedder(embedding)


def _offset(options: dict[str, Any]) -> int:
    """Return the number of best documents to leave out, and remove it from the options.

    Raises:
        InputError: it is no number from 0 up.
    """
    offset = options.pop("offset", None) or 0
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise InputError(f"offset is a whole number from 0 up, not {offset!r:.80}")
    return offset


def _score_threshold(options: dict[str, Any]) -> float | None:
    """Return the lowest score of a document, and remove it from the options.

    Raises:
        InputError: it is no finite number.
    """
    threshold = options.pop("score_threshold", None)
    if threshold is None:
        return None
    if not isinstance(threshold, int | float) or isinstance(threshold, bool) or not math.isfinite(threshold):
        raise InputError(f"score_threshold is a finite number, not {threshold!r:.80}")
    return threshold


def _write(
    dataset: Dataset,
    documents: Sequence[theirs.Document],
    ids: Sequence[str | None],
    wait: float,
    batch_size: int | None = None,
) -> list[str]:
    rows = [
        Document(id_ or document.id or str(uuid4()), document.page_content, document.metadata)
        for document, id_ in zip(documents, ids, strict=True)
    ]
    if rows:
        with dataset.writing(wait):
            if isinstance(dataset, Dataset):
                dataset.add(rows, batch_size=batch_size)
            else:  # of a service, which has its own batches
                dataset.add(rows)
    return [document.id for document in rows]


def _theirs(document: Document) -> theirs.Document:
    return theirs.Document(id=document.id, page_content=document.text, metadata=dict(document.metadata))


def _of_hit(hit: Hit, notes: Mapping[str, Any]) -> theirs.Document:
    """The hit as a document, with what the answer says of it in the metadata."""
    return theirs.Document(id=hit.id, page_content=hit.document.text, metadata={**hit.metadata, **notes})


def _with_scores(hits: Sequence[Hit]) -> list[tuple[theirs.Document, float]]:
    """The hits as documents with their scores."""
    return [(_of_hit(*noted_hit), float(noted_hit.hit.score)) for noted_hit in with_notes(hits)]


def _with_score(hit: Hit, notes: Mapping[str, Any]) -> theirs.Document:
    """The hit as a document with its scores, and its excerpt as text if there is one."""
    scores = {"score": float(hit.score), "relevance": hit.relevance, "dataset": hit.dataset}
    metadata = {**scores, **hit.metadata, **notes}
    return theirs.Document(id=hit.id, page_content=hit.text, metadata=metadata)


def _numbered(documents: Sequence[theirs.Document]) -> list[Document]:
    """Converts documents to Pointsman documents with their positions as ids, since ids may be missing or repeated."""
    return [
        Document(str(number), document.page_content, document.metadata) for number, document in enumerate(documents)
    ]


def _reranked(documents: Sequence[theirs.Document], reranked_documents: Sequence[Document]) -> list[theirs.Document]:
    copies = []
    for item in reranked_documents:
        original = documents[int(item.id)]
        metadata = {**original.metadata, "relevance_score": float(item.metadata["score"])}
        copies.append(theirs.Document(id=original.id, page_content=original.page_content, metadata=metadata))
    return copies


def _completion(model: object, answer: BaseMessage | str) -> Completion:
    text = answer if isinstance(answer, str) else answer.text
    if not isinstance(text, str):
        raise ModelError(f"{type(model).__name__} answered without a text: {answer!r:.80}")
    counts = getattr(answer, "usage_metadata", None)
    usage = Usage(counts["input_tokens"], counts["output_tokens"], 1) if counts else None
    return Completion(str(text), usage=usage)
