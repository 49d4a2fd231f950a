"""`EnhancedRetrievalService`: one search over a store, its strategy chosen, its answer reranked (I4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pointsman._twins import in_thread
from pointsman.engine import Engine, Stages
from pointsman.errors import InputError, UnmetNeedError
from pointsman.models.base import as_embedder
from pointsman.models.chosen import ChosenLLM, SettingsModels, model_for
from pointsman.registry import STRATEGIES, Registry
from pointsman.request import SearchRequest
from pointsman.retrieval.base import BaseRetriever, checked
from pointsman.retrieval.foreign import SimilarityRetriever
from pointsman.retrieval.pool import LISTS
from pointsman.retrieval.rerank.foreign import as_refiner
from pointsman.retrieval.retrievers import VectorRetriever
from pointsman.retrieval.source import Source
from pointsman.settings import TASKS, Settings
from pointsman.trace import Span, Trace
from pointsman.types import Hits, Query

if TYPE_CHECKING:
    from pointsman.filters import Filter
    from pointsman.protocols import LLM, Embedder
    from pointsman.retrieval.recommend import Recommendation
    from pointsman.store.local.bm25 import BM25IndexManager
    from pointsman.types import Hit, Refusal, RetrievalContext


class ServiceHits(Hits):
    """Hits, and how they were found.

    Attributes:
        strategy: what was searched by.
        recommendation: why, where the look of the query has decided; else None.
        confidence: how sure the choice of the strategy is (I7); None where nobody knows.
        reranked: whether a reranker has ordered them.
        refused: set where nothing is relevant enough; there are no hits then.
        context: the whole answer.
    """

    def __init__(self, context: RetrievalContext, recommendation: Recommendation | None = None) -> None:
        trace = context.trace
        if recommendation is not None:
            detail = f"{recommendation.strategy}: {recommendation.reason}"
            trace = Trace((Span("recommend", detail, 0.0), *trace.spans), trace.records)
        super().__init__(context.hits, trace, context.degraded)
        self.recommendation = recommendation
        self.context, self.strategy, self.confidence = context, context.plan.strategy, context.plan.confidence
        self.refused: Refusal | None = context.refused
        self.reranked = context.reranked


class EnhancedRetrievalService:
    """Searches a store by the strategy that a query asks for, and reranks what was found (I4).

    A strategy that fails on the way is replaced by the plain search, a reranker that fails is left out; ``degraded`` of
    the answer tells of either. An answer in which nothing is relevant is refused.

    Args:
        config: settings, or some of them by name, which then go before environment and file. None: those from
            environment and file.
        vector_store: where to look: a dataset, a workspace, a retriever, or several of them. Or a vector store of
            another kind: with ``identity``, ``sequence``, ``changes`` and ``fetch`` as
            `pointsman.store.local.keyword.Source` has them, a BM25 index over it is kept under ``bm25_index_path``;
            with ``search(vector, k, filters)`` and ``fetch``, its vectors are searched. Datasets keep a keyword index
            with parameters of their own: ``bm25_*`` is for the others.
        embedding_service: embeds queries for a vector store of another kind: anything with ``embed(text)``. Datasets
            have their own embedder, and this one has to be the same.
        reranker: a `BaseReranker`, or anything with ``rerank(query, documents, top_n)`` that returns documents, best
            first, and perhaps ``is_available()``; either may be a coroutine. None: the offline reranker.
        llms: language models by task (`pointsman.settings.TASKS` or ``"general"``), instead of those in the settings.
        workflow: what else a search does: a transformer, a router, further refiners such as a refuser.
        strategies: where strategies are registered.

    Raises:
        InputError: something cannot be used; `UnknownNameError` for a default strategy that is not there.
    """

    def __init__(
        self,
        config: Settings | Mapping[str, Any] | None,
        vector_store: Any,
        embedding_service: Embedder | None = None,
        reranker: Any = None,
        *,
        llms: Mapping[str, LLM] | None = None,
        workflow: Stages | None = None,
        strategies: Registry[Any] = STRATEGIES,
    ) -> None:
        self.config = config if isinstance(config, Settings) else Settings.load(**_by_name(config))
        self.vector_store, self.reranker = vector_store, reranker
        self.embedding_service = None if embedding_service is None else as_embedder(embedding_service)
        stages = workflow or Stages(timeout=self.config.timeout)
        if reranker is not None:
            stages = replace(stages, reranker=as_refiner(reranker))
        models = SettingsModels(self.config, llms or {})
        self.engine = Engine(self.config, stages, models, strategies)
        self.engine.check_name(self.config.default_retrieval_strategy)
        self.bm25_manager: BM25IndexManager | None = None
        self._foreign = self._opened(vector_store)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        refuse: bool | None = None,
        min_relevance: float | None = None,
        coverage: float | None = None,
        spelling: bool = True,
    ) -> ServiceHits:
        """At most ``k`` hits, best first.

        Args:
            query: what is asked.
            k: how many hits.
            strategy: its name; a fusion method's name too. ``"auto"``: ``default_retrieval_strategy`` if that is set;
                else what `recommend_strategy` says where ``policy`` is ``"heuristic"``, or where there is a language
                model and no policy was chosen or fitted; else hybrid wherever both lists are kept.
            use_rerank: whether to rerank; ``enable_reranker_by_default`` unless given.
            filters: as in `pointsman.Workspace.search`; they act before the cut.
            refuse: False answers with whatever ranks best, relevant or not.
            min_relevance: hits whose `Hit.relevance` is below this are left out, 0 to 1.
            coverage: instead of ``k`` hits, the fewest that hold an answer with this probability.
            spelling: False searches for the question as it is written.

        Raises:
            InputError: an argument cannot be used, or the strategy lacks what it needs, such as a language model.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        request = _request(query, k, strategy, use_rerank, filters, refuse, min_relevance, coverage, spelling)
        sources = await in_thread(self._sources, strategy)  # opens files the first time
        return ServiceHits(await self.engine.asearch(request, sources), self._recommendation(request, sources))

    asearch = search

    def search_sync(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        refuse: bool | None = None,
        min_relevance: float | None = None,
        coverage: float | None = None,
        spelling: bool = True,
    ) -> ServiceHits:
        """The same without awaiting; it needs no event loop, and one may be running."""
        request, sources = (
            _request(query, k, strategy, use_rerank, filters, refuse, min_relevance, coverage, spelling),
            self._sources(strategy),
        )
        return ServiceHits(self.engine.search(request, sources), self._recommendation(request, sources))

    def recommend_strategy(self, query: str | Query) -> Recommendation:
        """What the query asks for by its look, among the strategies that can be used here (I5, I8)."""
        return self.engine.recommend(query, self._sources())

    def lack(self, strategy: str) -> str | None:
        """What a strategy needs and does not have here; None: it can be used."""
        return self.engine.lack(strategy, self._sources(strategy))

    @property
    def strategies(self) -> Mapping[str, BaseRetriever]:
        """The registered strategies over this store by name, each made when it is first asked for.

        Asking for one that lacks something it needs raises an `InputError` that says what.
        """
        return _Strategies(self.engine.registry.names(), self._strategy)

    def llm(self, task: str = "general") -> ChosenLLM:
        """The language model for a task, or the reason why none is available.

        Raises:
            InputError: there is no such task.
        """
        if task not in (*TASKS, "general"):
            raise InputError(f"a language model is for one of {', '.join(TASKS)} or general, not {task!r:.80}")
        return model_for(self.engine.models, task)

    def close(self) -> None:
        """Let go of what the service has opened: its BM25 index. The store is its owner's to close."""
        if self.bm25_manager is not None:
            self.bm25_manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _recommendation(self, request: SearchRequest, sources: Sequence[Any]) -> Recommendation | None:
        """Why the strategy was chosen, where the look of the query decided."""
        return self.engine.recommend(request.query, sources) if self.engine.looks_decide(request) else None

    def _strategy(self, name: str) -> Any:
        sources = self._sources(name)
        if (lack := self.engine.lack(name, sources)) is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        return self.engine.strategy(name, sources)

    def _opened(self, store: Any) -> dict[str, BaseRetriever] | None:
        """The retrievers over a store of another kind, by their lists; None for ours, which are looked at anew.

        Raises:
            InputError: it is nothing that can be searched, or it cannot be without an embedder.
        """
        if _is_ours(store):
            return None
        can = {name: callable(getattr(store, name, None)) for name in ("sequence", "changes", "fetch", "search")}
        lists: dict[str, BaseRetriever] = {}
        if can["sequence"] and can["changes"] and can["fetch"]:
            from pointsman.store.local.bm25 import BM25IndexManager

            settings = self.config
            self.bm25_manager = BM25IndexManager(
                settings.bm25_index_path,
                store,
                bm25_k1=settings.bm25_k1,
                bm25_b=settings.bm25_b,
                bm25_auto_sync=settings.bm25_auto_sync,
            )
            lists["bm25"] = Bm25Retriever(self.bm25_manager)
        if can["search"] and can["fetch"]:
            if self.embedding_service is None:
                raise InputError(f"searching the vectors of {type(store).__name__} needs an embedding_service")
            lists["vector"] = VectorRetriever(store, store, self.embedding_service)
        if not lists and callable(getattr(store, "similarity_search", None)):
            lists["vector"] = SimilarityRetriever(store)
        if not lists:
            raise InputError(
                f"vector_store is a dataset, a workspace, a retriever or several of them, or a store with fetch and "
                f"search or changes, or with similarity_search; {type(store).__name__} is none of these"
            )
        return lists

    def _sources(self, strategy: str = "auto") -> list[Any]:
        """What a strategy searches: of a foreign store, the list that it is about."""
        if self._foreign is not None:
            words, near = LISTS.get(strategy, (True, True))
            available = {"bm25": words, "vector": near}
            foreign = [store for name, store in self._foreign.items() if available[name]]
            if not foreign:
                missing = "there are no vectors" if near else "there is no keyword index"
                raise UnmetNeedError(f"strategy {strategy!r} cannot be used here: {missing} to search")
            return foreign
        sources = list(_flat(self.vector_store))
        own = getattr(self.embedding_service, "name", None)
        for source in sources if own is not None else ():
            stored_name = source.store.info.embedder if isinstance(source, Source) else None
            if stored_name is not None and stored_name != own:
                raise InputError(
                    f"dataset {source.name!r} holds vectors of {stored_name!r}, and embedding_service is {own!r}; "
                    "give the same, or None"
                )
        return sources


def _request(
    query: str | Query,
    k: int,
    strategy: str,
    use_rerank: bool | None,
    filters: str | Mapping[str, Any] | Filter | None,
    refuse: bool | None,
    min_relevance: float | None,
    coverage: float | None,
    spelling: bool,
) -> SearchRequest:
    options = {
        "strategy": strategy,
        "rerank": use_rerank,
        "filters": filters,
        "refuse": refuse,
        "min_relevance": min_relevance,
        "coverage": coverage,
        "spelling": spelling,
    }
    return SearchRequest.of(query, k, options)


class Bm25Retriever(BaseRetriever):
    """The hits of a `BM25IndexManager`; filters are applied to what it ranks, as deep as it takes (I9)."""

    name = "bm25"

    def __init__(self, manager: BM25IndexManager) -> None:
        self.manager = manager

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits with raw BM25 scores, best first."""
        query = Query.of(query)
        filters, depth = query.filters, checked(top_k)
        while True:
            hits = self.manager.search(query.text, depth)
            matching = hits if filters is None else [hit for hit in hits if filters.matches(hit.document.fields)]
            if filters is None or len(matching) >= top_k or len(hits) < depth:
                return matching[:top_k]
            depth *= 4


class _Strategies(Mapping[str, BaseRetriever]):
    """Strategies by name, made when asked for."""

    def __init__(self, names: Sequence[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = tuple(names), make

    def __getitem__(self, name: str) -> BaseRetriever:
        if name not in self._names:
            raise KeyError(name)
        strategy: BaseRetriever = self._make(name)
        return strategy

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"<strategies {', '.join(self._names)}>"


def _by_name(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InputError(f"config is Settings, a mapping of settings by name, or None, not {type(config).__name__}")
    reserved = {"path", "environ"} & config.keys()
    if reserved:
        raise InputError(f"there is no setting {reserved.pop()!r}; Settings.load takes the file and the environment")
    return dict(config)


def _is_workspace(value: Any) -> bool:
    return callable(getattr(value, "datasets", None)) and callable(getattr(value, "dataset", None))


def _is_retriever(value: Any) -> bool:
    return callable(getattr(value, "retrieve", None)) and callable(getattr(value, "aretrieve", None))


def _is_ours(store: Any) -> bool:
    if isinstance(store, (list, tuple)):
        wrong = [item for item in store if not (isinstance(item, Source) or _is_workspace(item) or _is_retriever(item))]
        if wrong or not store:
            raise InputError(f"give at least one dataset, workspace or retriever, and nothing else; not {store!r:.80}")
        return True
    return isinstance(store, Source) or _is_workspace(store) or _is_retriever(store)


def _flat(store: Any) -> Iterator[Any]:
    for item in store if isinstance(store, (list, tuple)) else [store]:
        yield from item.datasets() if _is_workspace(item) else [item]
