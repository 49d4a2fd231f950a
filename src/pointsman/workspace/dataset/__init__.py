"""A dataset: documents in a store, with the embedder for them and ways to search them.

``lifecycle`` creates, opens and closes it, ``embedding`` makes its vectors, ``documents`` reads and writes; here it is
searched.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from pointsman.retrieval.plan.recipe import Recipe
from pointsman.retrieval.request import SearchOptions, SearchRequest, grouping_of, of_one_dataset
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.branches import Question, SourceBranch
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.retrieval.run.reading import Reading, spread_of, versions_in
from pointsman.retrieval.search import search_now
from pointsman.retrieval.workflow import several
from pointsman.store.store_values import NEAR, Capability, StoreQuery
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.tools.vectors import direction_of
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import parse_optional
from pointsman.values.types import AddResult, Document, Hit, Provenance, Query
from pointsman.values.views import VALID_FROM, VALID_TO, View
from pointsman.workspace.dataset.dataset_lifecycle import check_name
from pointsman.workspace.dataset.document_vectors import PATIENCE, SOON
from pointsman.workspace.dataset.documents import EditableDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.engine import Engine
    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.retrieval.run.candidates import Pool
    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter
    from pointsman.values.protocols import Embedder
    from pointsman.values.retrieval_context import RetrievalContext

ACCESS_IS_OFF: Final = (
    "access is off here, so principals would change nothing; switch it on first, with Workspace.switch_access or "
    "'pointsman access on'"
)


__all__ = ["ACCESS_IS_OFF", "PATIENCE", "SOON", "Dataset", "DatasetRetriever", "check_name"]


class Dataset(EditableDataset):
    """Documents under a name, with their own store and settings.

    Nothing is opened before it is needed, and nothing is created before the first write: reading a dataset that does
    not exist returns nothing and leaves no trace. Without a ``path`` the documents are in a temporary directory that is
    deleted with the object.

    Args:
        name: 1 to 64 letters, digits, ``_``, ``-``, ``.`` or single spaces between them; any script.
        description: its contents, for routers and people who choose where to search.
        indexing_technique: ``"vector"``, ``"keyword"`` (full text) or ``"hybrid"``; a keyword dataset embeds nothing.
        path: its directory.
        store: the store with its documents, instead of a directory.
        backend: opens or creates the store of this name, instead of either.
        embedder: anything with ``embed(text)``; by default the default embedder.
        images: whether its documents are pictures: ``embedder`` is then a `MultimodalEmbedder`, and a search that names
            no datasets includes it only if the question asks for pictures.
        load_embedder: returns the embedder on first use, if none is given.
        bm25_k1: term frequency saturation of BM25; if this is 1.2, a stored dataset keeps its own.
        bm25_b: length normalisation of BM25; if this is 0.75, a stored dataset keeps its own.
        query_vectors: embeds queries with the same embedder; datasets that are searched together share one, so that a
            query is embedded once.
        engine: returns the engine for searches; a workspace passes its own.
        on_make: called when the dataset has been created.
        on_open: called with the dataset when its store has been opened.
        on_embed: called with the dataset when documents may have received vectors.
        versions: keep what is replaced or deleted for a time such as ``"90 days"``, once the dataset is made; see
            `keep_versions`.
        audit_log: records which documents are shown; a workspace passes its own.

    Raises:
        InputError: name, technique or embedder is invalid.
        UnmetNeedError: it is for pictures, and the embedder embeds only texts.
    """

    def retriever(self, method: str = "auto") -> DatasetRetriever:
        """Return a retriever for this dataset: ``"bm25"``, ``"vector"``, ``"hybrid"`` or a fusion method's name.

        Raises:
            InputError: the dataset lacks what the method needs.
        """
        return DatasetRetriever(self, method)

    def in_view(self, principals: Iterable[str] | View, *, is_closable: bool = False) -> Dataset:
        """Return the documents that exist for someone with these principals now, as a dataset to read and search.

        Whatever it returns is computed from these documents alone. Later changes make another view: take it again.

        Args:
            principals: who asks.
            is_closable: hold no store open: each use takes the view of that moment, and opens the store again if it has
                been closed. For searches of more datasets than may be open.

        Raises:
            InputError: they are not principals.
            UnmetNeedError: the store cannot tell who may see a document; of a view that holds no store open, when it is
                used.
        """
        view = View.of(principals)
        if self.is_view and view.principals is not None:
            raise UnmetNeedError(f"this is a view of {self.name!r} already; take another from the dataset itself")
        if self.whole_and_view is not None:
            whole, own_view = self.whole_and_view
            return cast("Dataset", whole.in_view(replace(own_view, day=view.day), is_closable=True))
        return self._closable_view(view) if is_closable else self._view_now(view)

    ain_view = async_twin(in_view)

    def _closable_view(self, view: View) -> Dataset:
        """Return a view that holds no store open; it is kept, with what was measured of its documents."""
        with self._opening:
            dataset = self._closable_views.get(view)
            if dataset is None or dataset.description != self.description:
                dataset = self._closable_views[view] = self._as_view(view, None)
                dataset.whole_and_view = self, view
        return dataset

    def _as_view(self, view: View, store: Store | None) -> Dataset:
        dataset = self.with_store(store)
        dataset.is_view, dataset.day, dataset.is_in_folder = True, view.day, self.is_in_folder
        return dataset

    def _view_now(self, view: View) -> Dataset:
        store = self.store
        if view.day is not None and not store.info.can(Capability.DAYS):
            raise UnmetNeedError(
                f"dataset {self.name!r} is in a {store.info.kind} store, which cannot tell yet what is valid on a "
                f"day (it lacks the capability {Capability.DAYS.value!r}); keep such documents in a folder or in "
                f"PostgreSQL, name other datasets, or filter by {VALID_FROM} and {VALID_TO}"
            )
        if not store.info.can(Capability.VIEWS):
            raise UnmetNeedError(
                f"dataset {self.name!r} is in a {store.info.kind} store, which cannot tell who may see a document (it "
                f"lacks the capability {Capability.VIEWS.value!r}); keep documents with "
                "access in a folder or in PostgreSQL"
            )
        store_in_view: Any = store.in_view(view, self._notes_in_view)
        key = id(store), f"{store_in_view.state} {view.day or ''}"
        with self._opening:
            dataset = self._views.get(key)
            if dataset is None or dataset.description != self.description:
                dataset = self._views[key] = self._as_view(view, store_in_view)
        return dataset

    def with_store(self, store: Store | None) -> Dataset:
        """Return a dataset that is searched as this one is, with the documents of another store."""
        return Dataset(
            self.name,
            self.description,
            self.indexing_technique,
            store=store,
            embedder=self._embedder,
            images=self.holds_images,
            load_embedder=self._load_embedder,
            query_vectors=self.query_vectors,
            engine=self._engine,
            audit_log=self.audit_log,
        )

    def on_day(self, day: str, *, is_closable: bool = False) -> Dataset:
        """Return the documents that are valid on a day, as a dataset to read and search; see `in_view`.

        Raises:
            InputError: it is no day such as ``2026-03-01``; or access is on, and nobody said who asks.
            UnmetNeedError: the store cannot tell which these are.
        """
        self.check_searchable()
        return self if self.day == day else self.in_view(View.of_day(day), is_closable=is_closable)

    aon_day = async_twin(on_day)

    def for_request(self, request: SearchRequest) -> Dataset:
        """Return what a request is to search: the dataset, or a view of it.

        Raises:
            InputError: access is on, and the request has no principals, or it is off, and the request has some.
        """
        if request.principals is None or self.is_view:
            self.check_searchable()
            return self
        if self._has_access() is False:
            raise InputError(ACCESS_IS_OFF)
        return self.in_view(View.of_request(request.principals))

    def search(self, query: str | Query, k: int = 5, **options: Unpack[SearchOptions]) -> RetrievalContext:
        """Search only this dataset; options and result are those of `Workspace.search`."""
        request = SearchRequest.of(query, k, of_one_dataset(options))
        return self._engine().search(request, [self.for_request(request)])

    async def asearch(self, query: str | Query, k: int = 5, **options: Unpack[SearchOptions]) -> RetrievalContext:
        """Async version of `search`."""
        request = SearchRequest.of(query, k, of_one_dataset(options))
        return await self._engine().asearch(request, [await in_thread(self.for_request, request)])

    def search_vector(
        self,
        vector: Sequence[float] | NDArray[np.floating],
        k: int = 5,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        group_by: str | None = None,
        group_size: int = 1,
    ) -> list[Hit]:
        """Return the documents whose vectors are nearest to this one, best first; nothing is embedded or refused.

        What is not in force keeps its place, and says so in `Hit.not_in_force`.

        Args:
            vector: shape ``(dimensions,)``, from the dataset's embedder; its length does not matter to cosines.
            k: number of hits.
            filters: restricts the documents before the cut.
            group_by: a metadata key: at most ``group_size`` hits have one value of it; see `SearchOptions`.
            group_size: how many hits of one group there are.

        Returns:
            Hits whose scores are cosines.

        Raises:
            InputError: the vector, a filter or a group is invalid.
            UnmetNeedError: the dataset has no vectors.
        """
        if self.indexing_technique == "keyword":
            raise UnmetNeedError(f"dataset {self.name!r} has a keyword index only and stores no vectors")
        grouping = grouping_of(group_by, group_size)
        self.check_searchable()
        direction, condition, store = direction_of(vector), parse_optional(filters), self.store
        if grouping is None:
            nearest = _nearest(store, StoreQuery(None, direction, check_top_k(k), condition))
        else:
            from pointsman.retrieval.stages.grouping import nearest_of_groups

            def search(depth: int, eligible: Filter | None) -> list[tuple[Document, float]]:
                return _nearest(store, StoreQuery(None, direction, depth, eligible))

            nearest = nearest_of_groups(grouping, check_top_k(k), condition, search)
        hits = [
            Hit(document, score, self.name, (Provenance(NEAR, rank, score),))
            for rank, (document, score) in enumerate(nearest, 1)
        ]
        self._show("search_vector", [hit.id for hit in hits])
        versions = versions_in(self, store, store.statistics())
        if versions is None:
            return hits
        from pointsman.retrieval.judge.versions import mark, today

        return mark(hits, {self.name: versions}, self.day or today())

    asearch_vector = async_twin(search_vector)

    def search_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions in common batches; return one context each, in order."""
        request = several(queries, k, of_one_dataset(options))
        return self._engine().search_many(request, [self.for_request(request)])

    async def asearch_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        request = several(queries, k, of_one_dataset(options))
        return await self._engine().asearch_many(request, [await in_thread(self.for_request, request)])

    def candidates(
        self, query: Query, method: str = "auto", depth: int = DEPTH, *, absent_script: float = 0.0
    ) -> Pool[Any]:
        """Return the candidates of all lists that ``method`` needs, with all scores; keys are the store's own.

        Args:
            query: what to search for.
            method: see `Source.lists_for`.
            depth: candidates per list.
            absent_script: words in a script are ignored if a smaller share of documents uses it; 0 ignores none.
        """
        self.check_searchable()
        return (
            SourceBranch(Reading(self), self.lists_for(method), absent_script).search([Question(query)], depth)[0].pool
        )

    @property
    def engine(self) -> Engine:
        """Return the engine for searches of this dataset."""
        return self._engine()

    @property
    def cosine_spread(self) -> CosineSpread | None:
        """The distribution of cosines between queries and random documents: the scale of the calibrated sum."""
        return spread_of(self)


def _nearest(store: Store, query: StoreQuery) -> list[tuple[Document, float]]:
    """Return the documents of the vector list with their scores, best first."""
    lists = store.search([query])[0]
    ranking = list(lists.rankings.get(NEAR, ()))[: query.depth]
    missing = [key for key, _ in ranking if key not in lists.documents]
    documents = {**lists.documents, **dict(zip(missing, store.fetch(missing), strict=True))}
    return [(document, score or 0.0) for key, score in ranking if (document := documents[key]) is not None]


class DatasetRetriever(BaseRetriever):
    """A dataset as a retriever that accepts documents and can be saved.

    Args:
        dataset: the dataset to search.
        method: ``"auto"``, ``"bm25"``, ``"vector"``, ``"hybrid"``, or a fusion method's name.

    Raises:
        InputError: the dataset lacks what the method needs.
    """

    def __init__(self, dataset: Dataset, method: str = "auto") -> None:
        dataset.lists_for(method)
        self.dataset, self.method = dataset, method

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return up to ``top_k`` hits, best first; a retriever only ranks, and never refuses."""
        depth = check_top_k(top_k) if self.method in {"bm25", "vector"} else max(DEPTH, check_top_k(top_k))
        question = Query.of(query)
        recipe = Recipe({self.dataset.name: self.dataset}, top_k, self.method, depth=depth)
        hits = list(search_now(recipe, [question])[0].hits)
        if self.dataset.audit_log is not None:
            self.dataset.audit_log.shows("retrieve", self.dataset.name, [hit.id for hit in hits], question.text)
        return hits

    def add_nodes(self, nodes: Sequence[Document]) -> AddResult:
        """Add documents to the dataset."""
        return self.dataset.add(nodes)

    aadd_nodes = async_twin(add_nodes)

    def delete_nodes(self, ids: Sequence[str]) -> None:
        """Delete documents from the dataset."""
        self.dataset.delete(ids)

    def persist(self, folder: str | Path) -> None:
        """Save the dataset and the method; see `Dataset.save`."""
        folder = Path(folder)
        self.dataset.save(folder / "dataset")
        (folder / "retriever.json").write_text(json.dumps({"method": self.method}), "utf-8")

    apersist = async_twin(persist)

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | str | None = None) -> DatasetRetriever:
        """Open a saved retriever; it returns the same results.

        Raises:
            InputError: no retriever was saved there.
        """
        folder = Path(folder)
        try:
            method = json.loads((folder / "retriever.json").read_text("utf-8"))["method"]
            if not isinstance(method, str):
                raise TypeError(f"method is a string, not {type(method).__name__}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"no retriever is saved at {folder} ({type(error).__name__}: {error})") from error
        return cls(Dataset.load(folder / "dataset", embedder=embedder), method)
