"""What the adapters for other frameworks share: hits from whatever can search, and documents without an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pointsman._twins import in_thread
from pointsman.errors import InputError, ModelError, PointsmanError, UnmetNeedError
from pointsman.models.base import BaseEmbedder, Progress
from pointsman.retrieval.base import checked
from pointsman.retrieval.diversity import mmr
from pointsman.types import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.dataset import Dataset
    from pointsman.filters import Filter
    from pointsman.types import Document, Hit

    Filters = str | Mapping[str, Any] | Filter | None


class GivenVectors(BaseEmbedder):
    """The embedder of a dataset whose vectors come from elsewhere: it has a name, and embeds nothing.

    Args:
        name: stands beside the stored vectors, so that those of another model are refused.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Nobody knows before the first vector.

        Raises:
            UnmetNeedError: always.
        """
        raise self._cannot()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG002
        """There is nothing to embed with.

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
        """As `embed_queries`.

        Raises:
            UnmetNeedError: always.
        """
        raise self._cannot()

    def _cannot(self) -> UnmetNeedError:
        return UnmetNeedError(
            f"the vectors of {self._name!r} come from outside; give them along, or search by a vector"
        )


def check_source(source: object) -> None:
    """Refuse what cannot be searched.

    Raises:
        InputError: it has neither ``search`` nor ``retrieve``.
    """
    if not callable(getattr(source, "search", None)) and not callable(getattr(source, "retrieve", None)):
        raise InputError(
            f"a source is a workspace, a dataset, a client or a retriever of Pointsman, not {type(source).__name__}"
        )


def hits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """The hits of anything of ours that can search.

    Args:
        source: has ``search`` (`Workspace`, `Dataset`, `Client`, …) or ``retrieve`` (any retriever).
        text: what is asked.
        k: how many hits.
        filters: which documents count.
        options: of the search; a retriever takes none.

    Raises:
        InputError: an option cannot be used.
    """
    if callable(getattr(source, "search", None)):
        hits: Sequence[Hit] = source.search(Query(text, filters), k, **(options or {})).hits
        return hits
    _no_options(source, options)
    found: Sequence[Hit] = source.retrieve(Query(text, filters), k)
    return found


async def ahits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """The same, awaited; a source without awaited methods runs in a worker thread."""
    if callable(getattr(source, "asearch", None)):
        hits: Sequence[Hit] = (await source.asearch(Query(text, filters), k, **(options or {}))).hits
        return hits
    if callable(getattr(source, "search", None)) or not callable(getattr(source, "aretrieve", None)):
        return await in_thread(hits_of, source, text, k, filters, options)
    _no_options(source, options)
    found: Sequence[Hit] = await source.aretrieve(Query(text, filters), k)
    return found


def _no_options(source: object, options: dict[str, Any] | None) -> None:
    if options:
        raise InputError(f"{type(source).__name__} is a retriever, and takes no {', '.join(sorted(options))}")


def add_in_order(
    dataset: Dataset, pairs: Sequence[tuple[Document, Sequence[float] | None]], *, embed: bool = False
) -> None:
    """Add documents with their vectors where they have some; they keep their order.

    Args:
        dataset: where they belong; write inside of `Dataset.writing`.
        pairs: documents and vectors.
        embed: whether documents without a vector are embedded.
    """
    import numpy as np

    for missing, run in groupby(pairs, key=lambda pair: pair[1] is None):
        documents, vectors = zip(*run, strict=True)
        if missing:
            dataset.add(documents, embed=embed)
        else:
            dataset.add(documents, vectors=np.asarray(vectors, np.float32))


def diverse(
    dataset: Dataset, vector: Sequence[float], k: int, fetch: int, weight: float, filters: Filters = None
) -> list[Hit]:
    """The nearest documents, each unlike those before it (Carbonell and Goldstein 1998).

    Args:
        dataset: what to search.
        vector: what to be near to.
        k: how many.
        fetch: how many are nearest and may be chosen.
        weight: from 0, unlike each other, to 1, near alone.
        filters: which documents count.
    """
    import numpy as np

    hits = dataset.search_vector(vector, max(fetch, checked(k)), filters=filters)
    stored = dataset.get_vectors([hit.id for hit in hits])
    pairs = [(hit, row) for hit, row in zip(hits, stored, strict=True) if row is not None]  # None: deleted since
    if not pairs:
        return []
    rows = np.stack([row for _, row in pairs])
    return [pairs[place][0] for place in mmr([hit.score for hit, _ in pairs], rows @ rows.T, weight, k)]


def without_filters(query: str | Query, top_k: int, name: str) -> Query:
    """The query for a retriever of another framework.

    Raises:
        InputError: it has filters, which those do not take, or the number is none.
    """
    query = Query.of(query)
    checked(top_k)
    if query.filters is not None:
        raise InputError(f"{name} takes no filters; filter in the retriever itself")
    return query


def id_for(text: str) -> str:
    """An id for a document that has none: the same text always gets the same one.

    >>> id_for("a red signal")
    '9a6ca5212d2abc4b51fce0c06f2acf03'
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def model_error(model: object, error: Exception) -> PointsmanError:
    """What a model of another framework raised, as an error of ours; one of ours stays as it is."""
    return error if isinstance(error, PointsmanError) else ModelError(str(failed(model, error)))


def failed(source: object, error: Exception) -> PointsmanError:
    """An error of another framework as one of ours."""
    return PointsmanError(f"{type(source).__name__} failed: {type(error).__name__}: {error}")
