"""Shared by the adapters for other frameworks: searching any source, and storing documents with given vectors."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pointsman.embedders.base_embedder import BaseEmbedder, Progress
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.retrieval.fusion import fuse
from pointsman.retrieval.plan.recipe import Recipe
from pointsman.retrieval.refine.diversity import mmr
from pointsman.retrieval.request import SearchOptions, grouping_of
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.search import search_now
from pointsman.service.opening import open_workspace
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import in_thread
from pointsman.tools.system.locations import is_service
from pointsman.tools.vectors import direction_of
from pointsman.values.argument_checks import check_top_k
from pointsman.values.types import Hit, Query
from pointsman.values.wire import notes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter
    from pointsman.values.protocols import Embedder
    from pointsman.values.retrieval_context import RetrievalContext, Verdict
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace

    Filters = str | Mapping[str, Any] | Filter | None

log = logging.getLogger(__name__)

GROUP_OPTIONS: Final = frozenset({"group_by", "group_size"})
"""The options of groups, which a search by vector takes beside those of a framework."""

VERDICT: Final = "verdict"
"""The key under which a framework's metadata says whether an answer was found; see `RetrievalContext.verdict`."""

DEGRADED: Final = "degraded"
"""The key under which a framework's metadata says what did not work as asked, and what was done instead."""


class NotedHit(NamedTuple):
    """A hit for a framework, which knows documents and scores alone.

    Attributes:
        hit: the hit.
        notes: what the answer says of it, for the metadata: see `pointsman.values.wire.notes_of`, `VERDICT`
            and `DEGRADED`.
    """

    hit: Hit
    notes: dict[str, Any]


def with_notes(hits: Sequence[Hit], degraded: Sequence[str] = (), verdict: Verdict | None = None) -> list[NotedHit]:
    """Return hits with what is said of them; what the search left out is said once, at the first."""
    shared_notes = {} if verdict is None else {VERDICT: verdict}
    notes = [{**shared_notes, **notes_of(hit)} for hit in hits]
    if notes and degraded:
        notes[0][DEGRADED] = list(degraded)
    return list(map(NotedHit, hits, notes))


def hits_from_score(hits: Sequence[Hit], minimum: float | None) -> list[Hit]:
    """Return the hits whose score is not below a minimum; all if it is None."""
    return [hit for hit in hits if minimum is None or hit.score >= minimum]


def noted_answer(answer: RetrievalContext, offset: int = 0, score_threshold: float | None = None) -> list[NotedHit]:
    """Return the hits of an answer from an offset on, none below a score, with what is said of them."""
    hits = hits_from_score(answer.hits, score_threshold)[offset:]
    log_if_empty(answer, hits)
    return with_notes(hits, answer.degraded, answer.verdict)


def log_if_empty(answer: RetrievalContext, hits: Sequence[Hit]) -> None:
    """Log what an empty list of documents cannot say: why there is none, and what did not work."""
    if answer.refused is not None:
        log.info("no documents: %s; the option refuse=False returns the nearest ones", answer.refused)
    if answer.degraded and not hits:
        log.warning("no documents, and not all of the search worked: %s", "; ".join(answer.degraded))


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


def hits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> list[NotedHit]:
    """Searches any of Pointsman's search objects and returns the hits, with what the answer says of them.

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
        return noted_answer(source.search(Query(text, filters), k, **(options or {})))
    _no_options(source, options)
    return with_notes(source.retrieve(Query(text, filters), k))


async def ahits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> list[NotedHit]:
    """Async version of `hits_of`; a source without async methods runs in a worker thread."""
    if callable(getattr(source, "asearch", None)):
        return noted_answer(await source.asearch(Query(text, filters), k, **(options or {})))
    if callable(getattr(source, "search", None)) or not callable(getattr(source, "aretrieve", None)):
        return await in_thread(hits_of, source, text, k, filters, options)
    _no_options(source, options)
    return with_notes(await source.aretrieve(Query(text, filters), k))


def _no_options(source: object, options: dict[str, Any] | None) -> None:
    if options:
        raise InputError(f"{type(source).__name__} is a retriever and does not accept {', '.join(sorted(options))}")


class _GivenVector(GivenVectors):
    """Returns one vector for every question."""

    def __init__(self, name: str, vector: NDArray[np.float32]) -> None:
        super().__init__(name)
        self._vector = vector

    @property
    def dimensions(self) -> int:
        """The length of the vector."""
        return len(self._vector)

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vector once for each text."""
        import numpy as np

        return np.tile(self._vector, (len(texts), 1))


class _GivenQuestion(Source):
    """A dataset as searched by a question whose vector is given."""

    def __init__(self, dataset: Dataset, vector: Sequence[float]) -> None:
        self.dataset = dataset
        self.name, self.description = dataset.name, dataset.description
        self.indexing_technique = dataset.indexing_technique
        embedder = _GivenVector(dataset.embedder.name, direction_of(vector))
        self.query_vectors = QueryVectors(lambda: embedder)

    def check_searchable(self) -> None:
        """Check that the dataset may be searched as it is."""
        self.dataset.check_searchable()

    @property
    def store(self) -> Store:
        """The dataset's store."""
        return self.dataset.store

    @property
    def embedder(self) -> Embedder:
        """The dataset's embedder."""
        return self.dataset.embedder


def hits_by_both(
    dataset: Dataset,
    query: Query,
    vector: Sequence[float],
    k: int,
    *,
    alpha: float | None = None,
    depth: int = DEPTH,
    group_by: str | None = None,
    group_size: int = 1,
) -> list[Hit]:
    """Return the best documents by the words of a question and by its vector, which is given.

    If the dataset embeds by itself, both scores are added up, as `Dataset.search` does it (the calibrated sum). If its
    vectors come from a foreign model or it belongs to a service, or if there is a weight, both lists are fused by rank:
    no measurement relates the scores of a foreign model to BM25.

    Args:
        dataset: the dataset to search.
        query: the question, whose words are searched, and its filters.
        vector: the question's vector.
        k: the number of documents to return.
        alpha: the weight of the vector's list, from 0 to 1; the words' has the rest.
        depth: the number of documents from each list.
        group_by: a metadata key: at most ``group_size`` hits have one value of it.
        group_size: how many hits of one group there are.

    Raises:
        InputError: an argument is invalid.
    """
    depth, grouping = max(depth, check_top_k(k)), grouping_of(group_by, group_size)
    if alpha is None and isinstance(dataset, Source) and not isinstance(dataset.embedder, GivenVectors):
        recipe = Recipe({dataset.name: _GivenQuestion(dataset, vector)}, k, "hybrid", depth=depth, grouping=grouping)
        return list(search_now(recipe, [query])[0].hits)
    lists = [
        hits_by_words(dataset, query, depth, group_by=group_by, group_size=group_size),
        dataset.search_vector(vector, depth, filters=query.filters, group_by=group_by, group_size=group_size),
    ]
    by_id = {hit.id: hit for hits in lists for hit in hits}
    weights = None if alpha is None else [1 - alpha, alpha]
    ranking = fuse([[(hit.id, hit.score) for hit in hits] for hits in lists], "weighted_rrf", weights)
    hits = [replace(by_id[id_], score=score) for id_, score in ranking]
    if grouping is not None:
        hits = [hits[position] for position in grouping.places_within([hit.document for hit in hits])]
    return hits[:k]


def take_group_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove ``group_by`` and ``group_size`` from options, and return them."""
    return {name: options.pop(name) for name in GROUP_OPTIONS if name in options}


def hits_by_words(
    dataset: Dataset, query: Query, k: int, *, group_by: str | None = None, group_size: int = 1
) -> list[Hit]:
    """Return the best documents by the words of a question; nothing is embedded, reranked or refused."""
    if isinstance(dataset, Source) and grouping_of(group_by, group_size) is None:
        return dataset.retriever("bm25").retrieve(query, k)
    options: SearchOptions = {"strategy": "bm25", "rerank": False, "refuse": False, "spelling": False}
    options |= {"group_by": group_by, "group_size": group_size}
    return list(dataset.search(query, k, **options).hits)


def workspace_of(
    dataset: object, path: str | Path | None, url: str | None, embedder: Embedder | None
) -> Workspace | None:
    """Open the workspace of a vector store; None if it has none.

    Args:
        dataset: a dataset, or a name of one in the workspace, or None.
        path: a folder.
        url: a database or a service.
        embedder: embeds in the workspace.

    Raises:
        InputError: the arguments contradict each other, or the workspace cannot be opened.
    """
    if path is not None and url is not None:
        raise InputError("give either path, a folder, or url, a database or service")
    location = path if url is None else url
    if location is None:
        if isinstance(dataset, str):
            raise InputError(f"dataset {dataset!r:.80} is a name: give the path or url of its workspace, too")
        return None
    if dataset is not None and not isinstance(dataset, str):
        raise InputError("give either a dataset or the path or url of a workspace; a dataset in it is given by name")
    return open_workspace(location, embedder=None if is_service(location) else embedder)


def diverse(dataset: Dataset, hits: Sequence[Hit], k: int, weight: float) -> list[Hit]:
    """Return the best of these hits, each unlike those before it (Carbonell and Goldstein 1998).

    Args:
        dataset: the dataset that they are from.
        hits: the documents to choose from, with their cosines as scores.
        k: the number of documents to return.
        weight: from 0 (only diversity) to 1 (only nearness).

    Raises:
        InputError: an argument is invalid.
    """
    import numpy as np

    vectors = dataset.get_vectors([hit.id for hit in hits])
    pairs = [(hit, row) for hit, row in zip(hits, vectors, strict=True) if row is not None]  # None: deleted since
    if not pairs:
        return []
    rows = np.stack([direction_of(row) for _, row in pairs])
    return [pairs[index][0] for index in mmr([hit.score for hit, _ in pairs], rows @ rows.T, weight, k)]


def given_or_named(embedder: str | None, vectors: str) -> Embedder:
    """Return the embedder of this name, or, if there is none, of vectors of this name that are given.

    Raises:
        UnknownNameError: there is no such embedder.
    """
    if embedder is None:
        return GivenVectors(vectors)
    from pointsman.embedders import load_embedder

    return load_embedder(embedder)


def own_reranker(reranker: Any) -> Any:
    """Return a reranker that was given or named; by default the one that needs no network, over the default embedder.

    Raises:
        InputError: there is no reranker of this name.
    """
    from pointsman.retrieval.refine.rerank.calibrated import CalibratedReranker
    from pointsman.retrieval.refine.rerank.chosen_reranker import load_reranker

    if isinstance(reranker, str):
        return load_reranker(reranker)
    return reranker or CalibratedReranker("default")
