"""A dataset as a LangChain vector store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_core import documents as theirs
from langchain_core.vectorstores import VectorStore

from pointsman.integrations.framework_sources import (
    NotedHit,
    diverse,
    hits_from_score,
    noted_answer,
    take_group_options,
    workspace_of,
)
from pointsman.integrations.langchain.langchain_documents import (
    document_of_hit,
    documents_with_scores,
    langchain_document,
    refuse_others,
    write_documents,
)
from pointsman.integrations.langchain.langchain_models import PointsmanEmbeddings, embedder_of
from pointsman.service.client import RemoteDataset
from pointsman.tools.errors import InputError
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.tools.system.locations import is_service, redacted
from pointsman.values.argument_checks import check_top_k, is_number
from pointsman.values.filters import And, Filter
from pointsman.workspace.dataset import Dataset

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_core.embeddings import Embeddings

    from pointsman.tools.system.lifecycle import Lifecycle


Filters = str | Mapping[str, Any] | Filter | None


_MMR_OPTIONS: Final = "k, fetch_k, lambda_mult, filter, score_threshold, group_by and group_size"


_PLAIN: dict[str, Any] = {"rerank": False, "refuse": False}  # a vector store returns the nearest documents


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
        wait: float = 30.0,
    ) -> None:
        embedder = embedder_of(embedding)
        if embedder is not None and isinstance(dataset, Dataset | RemoteDataset):
            raise InputError("give either a dataset, which has its own embedder, or an embedding")
        if embedder is not None and url is not None and is_service(url):
            raise InputError(f"the service at {redacted(url)} embeds by itself; leave out embedding")
        workspace = workspace_of(dataset, path, url, embedder)
        if workspace is not None:
            dataset = workspace.dataset(dataset if isinstance(dataset, str) else "langchain")
        elif not isinstance(dataset, Dataset | RemoteDataset):
            dataset = Dataset("langchain", embedder=embedder)
        self.dataset: Dataset = dataset
        self.strategy, self.wait = strategy, wait
        self._owner: Lifecycle = dataset if workspace is None else workspace
        self._embedding = embedding

    def close(self) -> None:
        """Release the files and connections of the workspace that was opened here, or of the dataset."""
        self._owner.close()

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
        refuse_others("add_documents takes ids and batch_size", kwargs)
        documents = list(documents)
        if ids is not None and len(ids) != len(documents):
            raise InputError(f"{len(ids)} ids for {len(documents)} documents; give one for each, or none")
        return write_documents(self.dataset, documents, ids or [None] * len(documents), self.wait, batch_size)

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
        refuse_others("delete takes ids and filter", kwargs)
        with self.dataset.writing(self.wait):
            self.dataset.delete(ids, filters=And(()) if ids is None and not filter else filter)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[theirs.Document]:
        """Return those documents of these ids that exist."""
        return [langchain_document(document) for document in self.dataset.get_many(list(ids)) if document is not None]

    def similarity_search(
        self,
        /,
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
        return [document for document, _ in self.similarity_search_with_score(query, k, filter=filter, **options)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[theirs.Document, float]]:
        """`similarity_search` with scores, higher is better: cosines if the strategy is ``"vector"``."""
        return [(document_of_hit(hit, notes), hit.score) for hit, notes in self._search(query, k, options)]

    def _similarity_search_with_relevance_scores(
        self, /, query: str, k: int = 4, **options: Any
    ) -> list[tuple[theirs.Document, float]]:
        hits = self._search(query, k, options)
        if self.strategy == "vector":  # cosines, from 0 up; for other strategies, the relevance
            return [(document_of_hit(hit, notes), min(max(hit.score, 0.0), 1.0)) for hit, notes in hits]
        if any(hit.relevance is None for hit, _ in hits):
            raise InputError(
                f"hits of the strategy {self.strategy!r} have no relevance here, because nothing is known about this "
                "embedder's scores; use strategy='vector', or calibrate the dataset"
            )
        return [(document_of_hit(hit, notes), float(hit.relevance or 0.0)) for hit, notes in hits]

    # LangChain's own would use the event loop's executor, which has few threads.

    asimilarity_search = async_twin(similarity_search)

    asimilarity_search_with_score = async_twin(similarity_search_with_score)

    _asimilarity_search_with_relevance_scores = async_twin(_similarity_search_with_relevance_scores)

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
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[tuple[theirs.Document, float]]:
        """`similarity_search_by_vector` with the cosines.

        Raises:
            InputError: the vector, ``k``, the filter or an option is invalid, or there is no such option.
        """
        offset, score_threshold = _offset(kwargs), _score_threshold(kwargs)
        filters, groups = kwargs.pop("filter", None), take_group_options(kwargs)
        refuse_others("a search by vector takes filter, offset, score_threshold, group_by and group_size", kwargs)
        hits = self.dataset.search_vector(embedding, check_top_k(k) + offset, filters=filters, **groups)
        return documents_with_scores(hits_from_score(hits, score_threshold)[offset:])

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[theirs.Document]:
        """Return nearest documents, each unlike those before it; see `max_marginal_relevance_search_by_vector`."""
        options = {"strategy": "vector", **{name: kwargs.pop(name, None) for name in ("filter", "score_threshold")}}
        options |= take_group_options(kwargs)
        refuse_others(f"a search by MMR takes {_MMR_OPTIONS}", kwargs)
        hits = self._search(query, max(check_top_k(fetch_k), check_top_k(k)), options)
        notes_of = {hit.id: notes for hit, notes in hits}
        chosen_hits = diverse(self.dataset, [hit for hit, _ in hits], k, lambda_mult)
        return [document_of_hit(hit, notes_of[hit.id]) for hit in chosen_hits]

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
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[tuple[theirs.Document, float]]:
        """`max_marginal_relevance_search_by_vector` with the cosines; the order is that of MMR, not of the cosines.

        Raises:
            InputError: an argument is invalid, or there is no such option.
        """
        filters, score_threshold = kwargs.pop("filter", None), _score_threshold(kwargs)
        groups = take_group_options(kwargs)
        refuse_others(f"a search by MMR takes {_MMR_OPTIONS}", kwargs)
        depth = max(check_top_k(fetch_k), check_top_k(k))
        hits = self.dataset.search_vector(embedding, depth, filters=filters, **groups)
        return documents_with_scores(diverse(self.dataset, hits_from_score(hits, score_threshold), k, lambda_mult))

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

    def _search(self, query: str, k: int, options: dict[str, Any]) -> list[NotedHit]:
        offset, score_threshold = _offset(options), _score_threshold(options)
        if "filters" in options:
            raise InputError("a LangChain vector store takes filter, not filters")
        filters = options.pop("filter", None)
        search_options: Any = {"strategy": self.strategy, **_PLAIN, **options}
        answer = self.dataset.search(query, check_top_k(k) + offset, filters=filters, **search_options)
        return noted_answer(answer, offset, score_threshold)


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
    if not is_number(threshold):
        raise InputError(f"score_threshold is a finite number, not {threshold!r:.80}")
    return threshold
