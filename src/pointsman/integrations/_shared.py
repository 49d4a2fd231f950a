"""Shared by the adapters for other frameworks: searching any source, and storing documents with given vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pointsman._twins import in_thread
from pointsman.errors import InputError, ModelError, PointsmanError, UnmetNeedError
from pointsman.models.base import BaseEmbedder, Progress
from pointsman.retrieval.diversity import mmr
from pointsman.retrieval.retrievers.foreign import failed
from pointsman.types import Document, Hit, Query, check_top_k

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.dataset import Dataset
    from pointsman.filters import Filter
    from pointsman.retrieval.rerank.base import BaseReranker

    Filters = str | Mapping[str, Any] | Filter | None


class GivenVectors(BaseEmbedder):
    """The embedder of a dataset whose vectors come from elsewhere: it has a name, but cannot embed.

    Args:
        name: stored with the vectors, so that vectors of another model are rejected.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """The given name."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Unknown before the first vector.

        Raises:
            UnmetNeedError: always.
        """
        raise self._cannot()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG002
        """Not supported: there is no model.

        Raises:
            UnmetNeedError: always.
        """
        raise self._cannot()

    def embed_documents(
        self,
        texts: Sequence[str],  # noqa: ARG002
        *,
        on_progress: Progress | None = None,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Not supported; see `embed_queries`.

        Raises:
            UnmetNeedError: always.
        """
        raise self._cannot()

    def _cannot(self) -> UnmetNeedError:
        return UnmetNeedError(
            f"the vectors of {self._name!r} are computed elsewhere; pass them in, or search by a vector"
        )


def check_source(source: object) -> None:
    """Check that an object can be searched.

    Raises:
        InputError: it has neither ``search`` nor ``retrieve``.
    """
    if not callable(getattr(source, "search", None)) and not callable(getattr(source, "retrieve", None)):
        raise InputError(
            f"a source is a workspace, a dataset, a client or a retriever of Pointsman, not {type(source).__name__}"
        )


def check_embeds(dataset: object) -> None:
    """Check that a dataset embeds here, and stores and returns vectors.

    Raises:
        UnmetNeedError: it belongs to a service.
    """
    from pointsman.client import RemoteDataset

    if isinstance(dataset, RemoteDataset):
        raise UnmetNeedError(
            "a service embeds by itself and returns no vectors; open its workspace directly, or search it with the "
            "PointsmanRetriever of LangChain or LlamaIndex"
        )


def hits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """Searches any of Pointsman's search objects and returns the hits.

    Args:
        source: has ``search`` (`Workspace`, `Dataset`, `Client`, …) or ``retrieve`` (any retriever).
        text: the query.
        k: the number of hits.
        filters: which documents are eligible.
        options: of the search; retrievers accept none.

    Raises:
        InputError: an option is invalid.
    """
    if callable(getattr(source, "search", None)):
        hits: Sequence[Hit] = source.search(Query(text, filters), k, **(options or {})).hits
        return hits
    _no_options(source, options)
    results: Sequence[Hit] = source.retrieve(Query(text, filters), k)
    return results


async def ahits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """Async version of `hits_of`; a source without async methods runs in a worker thread."""
    if callable(getattr(source, "asearch", None)):
        hits: Sequence[Hit] = (await source.asearch(Query(text, filters), k, **(options or {}))).hits
        return hits
    if callable(getattr(source, "search", None)) or not callable(getattr(source, "aretrieve", None)):
        return await in_thread(hits_of, source, text, k, filters, options)
    _no_options(source, options)
    results: Sequence[Hit] = await source.aretrieve(Query(text, filters), k)
    return results


def _no_options(source: object, options: dict[str, Any] | None) -> None:
    if options:
        raise InputError(f"{type(source).__name__} is a retriever and does not accept {', '.join(sorted(options))}")


def add_in_order(
    dataset: Dataset, pairs: Sequence[tuple[Document, Sequence[float] | None]], *, embed: bool = False
) -> None:
    """Add documents in order, with their vectors if they have any.

    Args:
        dataset: where to add them; call this inside `Dataset.writing`.
        pairs: documents and vectors.
        embed: whether to embed documents without a vector.

    Raises:
        InputError: a document cannot be stored, or the vectors are not numbers, or have different lengths.
    """
    import numpy as np

    for missing, run in groupby(pairs, key=lambda pair: pair[1] is None):
        documents, vectors = zip(*run, strict=True)
        if missing:
            dataset.add(documents, embed=embed)
        else:
            try:
                rows = np.asarray(vectors, np.float32)
            except (TypeError, ValueError) as error:
                raise InputError(f"vectors are lists of numbers, all of one length: {error}") from error
            dataset.add(documents, vectors=rows)


def diverse(
    dataset: Dataset, vector: Sequence[float], k: int, fetch: int, weight: float, filters: Filters = None
) -> list[Hit]:
    """Return the nearest documents, each unlike those before it (Carbonell and Goldstein 1998).

    Args:
        dataset: the dataset to search.
        vector: the query vector.
        k: the number of documents to return.
        fetch: the number of nearest documents to choose from.
        weight: from 0 (only diversity) to 1 (only nearness).
        filters: which documents are eligible.

    Raises:
        InputError: an argument is invalid.
        UnmetNeedError: the dataset belongs to a service.
    """
    import numpy as np

    check_embeds(dataset)
    hits = dataset.search_vector(vector, max(check_top_k(fetch), check_top_k(k)), filters=filters)
    vectors = dataset.get_vectors([hit.id for hit in hits])
    pairs = [(hit, row) for hit, row in zip(hits, vectors, strict=True) if row is not None]  # None: deleted since
    if not pairs:
        return []
    rows = np.stack([row for _, row in pairs])
    return [pairs[index][0] for index in mmr([hit.score for hit, _ in pairs], rows @ rows.T, weight, k)]


def offline_reranker() -> BaseReranker:
    """Return the reranker that needs no network, over the default embedder."""
    from pointsman.models import default_embedder
    from pointsman.retrieval.rerank.calibrated import CalibratedReranker

    return CalibratedReranker(default_embedder())


def model_error(model: object, error: Exception) -> PointsmanError:
    """Converts an error of another framework's model to a Pointsman error; Pointsman errors stay unchanged."""
    return error if isinstance(error, PointsmanError) else ModelError(str(failed(model, error)))
