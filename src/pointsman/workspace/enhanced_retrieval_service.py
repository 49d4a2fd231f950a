"""`EnhancedRetrievalService`: searches a store with a chosen strategy and reranks the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from pointsman.embedders.base_embedder import names_for_people
from pointsman.embedders.named_embedders import as_embedder
from pointsman.llm.chosen_models import ChosenLLM, SettingsModels, model_for
from pointsman.retrieval.decisions.named_sources import sources_named
from pointsman.retrieval.decisions.user_stages import Stages
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.request import SearchRequest, ServiceOptions
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.retrievers.foreign_retriever import as_retriever, is_retriever
from pointsman.retrieval.retrievers.single_list import VectorRetriever
from pointsman.retrieval.run.source import Source
from pointsman.tools.audit_log import AuditLog
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.values.argument_checks import check_top_k
from pointsman.values.registry import STRATEGIES, STRATEGY_ALIASES, Registry
from pointsman.values.retrieval_context import Hits
from pointsman.values.settings import TASKS, Settings
from pointsman.values.trace import Span, Trace
from pointsman.values.types import Query
from pointsman.workspace.dataset import Dataset

if TYPE_CHECKING:
    from pointsman.retrieval.plan.recommended_strategy import Recommendation
    from pointsman.retrieval.request import Reranking
    from pointsman.store.external.bm25_index_manager import BM25IndexManager
    from pointsman.values.protocols import LLM, Embedder
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Refusal


class ServiceHits(Hits):
    """Hits and how they were found.

    Attributes:
        strategy: the strategy used.
        recommendation: the reason, if the form of the query decided; else None.
        confidence: the confidence in the choice of strategy; None if unknown.
        reranked: whether a reranker ordered them.
        refused: set if nothing is relevant enough; there are no hits then.
        verdict: whether an answer was found; see `RetrievalContext.verdict`.
        context: the complete answer.
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
        self.verdict, self.reranked = context.verdict, context.reranked


class EnhancedRetrievalService(Lifecycle):
    """Searches a store with a strategy chosen by the query, and reranks the results.

    A strategy that fails is replaced by plain search, and a reranker that fails is skipped; the answer's ``degraded``
    reports both. If nothing is relevant, the service refuses to answer.

    Args:
        config: settings, or some of them by name, which override environment and file. None: from these two.
        vector_store: what to search: a dataset, a workspace, a retriever, or several of these. Or another kind of
            vector store: one with ``similarity_search(query, k)``, an index of LlamaIndex, or one with
            ``search(vector, k, filters)`` and ``fetch``. A BM25 index of its documents is kept beside it under
            ``bm25_index_path`` by a `pointsman.BM25IndexManager`, if they can be read; likewise beside an attached
            collection of vectors only. Datasets have a keyword index with its own parameters: ``bm25_*`` is for these
            other stores.
        embedding_service: embeds queries for another kind of vector store: anything with ``embed(text)``. Datasets have
            their own embedder, which must be the same.
        reranker: a `BaseReranker`, its name, or anything with ``rerank(query, documents, top_n)`` that returns
            documents, best first, and optionally ``is_available()``; either may be a coroutine. None: the offline
            reranker.
        llms: language models by task (`pointsman.values.settings.TASKS` or ``"general"``), instead of those in the
            settings.
        workflow: further stages: a transformer, a router, refiners such as a refuser.
        strategies: the registry of strategies.
        documents: for a vector store that cannot list its documents; see `pointsman.BM25IndexManager`.

    Raises:
        InputError: an argument is invalid; `UnknownNameError` for an unknown default strategy.
        UnmetNeedError: the setting ``audit_log`` is set, and nothing of a workspace is searched.
    """

    def __init__(
        self,
        config: Settings | Mapping[str, Any] | None,
        vector_store: Any,
        embedding_service: Embedder | str | None = None,
        reranker: Any = None,
        *,
        llms: Mapping[str, LLM] | None = None,
        workflow: Stages | None = None,
        strategies: Registry[Any] = STRATEGIES,
        documents: Any = None,
    ) -> None:
        self.config = config if isinstance(config, Settings) else Settings.load(**_by_name(config))
        self.vector_store, self.reranker = vector_store, reranker
        self.embedding_service = None if embedding_service is None else as_embedder(embedding_service)
        stages = workflow or Stages(timeout=self.config.timeout)
        if reranker is not None:
            stages = replace(stages, reranker=reranker)
        models = SettingsModels(self.config, llms or {})
        audit = _audit_log_of(vector_store, self.config)
        self.engine = self._calibrated_engine = Engine(self.config, stages, models, strategies, audit)
        self.engine.check_name(self.config.default_retrieval_strategy)
        self.bm25_manager: BM25IndexManager | None = None
        self._foreign = self._open_store(vector_store, documents)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | Reranking | None = None,
        **options: Unpack[ServiceOptions],
    ) -> ServiceHits:
        """Return at most ``k`` hits, best first.

        Args:
            query: the question.
            k: maximum number of hits.
            strategy: the name of a strategy or of a fusion method. ``"auto"``: ``default_retrieval_strategy`` if set;
                else the result of `recommend_strategy` if ``policy`` is ``"heuristic"``, or if there is a language
                model and no policy was chosen or fitted; else hybrid if both lists are available.
            use_rerank: whether to rerank, or ``"late"``; by default ``enable_reranker_by_default``.
            options: the others of `pointsman.Workspace.search`; see `pointsman.retrieval.request.ServiceOptions`.

        Raises:
            InputError: an argument is invalid, or the strategy lacks a requirement, such as a language model.
            RetrievalError: nothing could be searched; it carries all causes.
        """
        request = _request(query, k, strategy, use_rerank, options)
        sources = await in_thread(self._sources_of, request)  # opens files the first time
        answer = await self._engine_for(sources).asearch(request, sources)
        return ServiceHits(answer, self._recommendation(request, sources))

    asearch = search

    def search_sync(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | Reranking | None = None,
        **options: Unpack[ServiceOptions],
    ) -> ServiceHits:
        """Synchronous version of `search`; needs no event loop, and works inside a running one."""
        request = _request(query, k, strategy, use_rerank, options)
        sources = self._sources_of(request)
        answer = self._engine_for(sources).search(request, sources)
        return ServiceHits(answer, self._recommendation(request, sources))

    def recommend_strategy(self, query: str | Query) -> Recommendation:
        """Return what ``auto`` does with the query, and why, with the alternatives that suit its wording."""
        return self.engine.recommend(query, self._sources())

    arecommend_strategy = async_twin(recommend_strategy)

    def lack(self, strategy: str) -> str | None:
        """Return what a strategy needs but lacks here; None if it can be used."""
        return self.engine.lack(strategy, self._sources(strategy))

    def strategy(self, name: str) -> BaseRetriever:
        """Return the registered strategy of this name for this store, created on first use.

        Raises:
            UnknownNameError: there is none.
            UnmetNeedError: it lacks a requirement, such as a language model.
        """
        self.engine.registry.get(name)
        sources = self._sources(name)
        if (lack := self.engine.lack(name, sources)) is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        strategy: BaseRetriever = self.engine.strategy(name, sources)
        return strategy

    def llm(self, task: str = "general") -> ChosenLLM:
        """Return the language model for a task, or the reason why none is available.

        Raises:
            InputError: the task is unknown.
        """
        if task not in (*TASKS, "general"):
            raise InputError(f"a language model is for one of {', '.join(TASKS)} or general, not {task!r:.80}")
        return model_for(self.engine.models, task)

    def close(self) -> None:
        """Close the service's BM25 index. The store remains open; its owner closes it."""
        if self.bm25_manager is not None:
            self.bm25_manager.close()

    aclose = async_twin(close)

    # ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sources_of(self, request: SearchRequest) -> list[Any]:
        """Return what a request is to search: of datasets, what exists for whoever asks."""
        sources = self._sources(request.strategy)
        return [source.for_request(request) if isinstance(source, Dataset) else source for source in sources]

    def _engine_for(self, sources: Sequence[Any]) -> Engine:
        """Return the engine, which judges a dataset by what its workspace has fitted to it, unless the workflow has."""
        stages = self.engine.stages
        calibrations = {
            source.name: calibration
            for source in sources
            if isinstance(source, Dataset) and (calibration := source.engine.stages.fitted.get(source.name)) is not None
        }
        calibrations.update(stages.fitted)
        if (
            calibrations != self._calibrated_engine.stages.fitted
        ):  # recipes depend on it, and are kept with their engine
            self._calibrated_engine = replace(self.engine, stages=replace(stages, fitted=calibrations))
        return self._calibrated_engine

    def _recommendation(self, request: SearchRequest, sources: Sequence[Any]) -> Recommendation | None:
        """Return why the strategy was chosen, if the form of the query decided."""
        if not self.engine.looks_decide(request):
            return None
        return self.engine.recommend(request.query, sources_named(request, sources))

    def _open_store(self, store: Any, documents: Any) -> dict[str, Any] | None:
        """Return what is searched of another kind of store, by list; None for ours, inspected at every search.

        An attached collection of vectors only counts as another kind of store.

        Raises:
            InputError: the store cannot be searched, or not without an embedder.
        """
        only_vectors = _is_attached_by_vectors(store)
        if not only_vectors and _is_ours(store):
            if documents is not None:
                raise InputError("documents=… is for a vector store of another library; this one has its own")
            return None
        lists: dict[str, Any] = {}
        lacking = ""
        try:
            self.bm25_manager = self._manager(store, documents)
            lists["bm25"] = Bm25Retriever(self.bm25_manager, store.name if isinstance(store, Source) else None)
        except UnmetNeedError as error:
            lacking = str(error)
        if only_vectors:
            lists["vector"] = store
        elif callable(getattr(store, "search", None)) and callable(getattr(store, "fetch", None)):
            if self.embedding_service is None:
                raise InputError(f"searching the vectors of {type(store).__name__} needs an embedding_service")
            lists["vector"] = VectorRetriever(store, store, self.embedding_service)
        elif is_retriever(store):
            lists["vector"] = as_retriever(store)
            lists["vector"].lacking = lacking
        if not lists:
            raise InputError(
                "vector_store is a dataset, a workspace, a retriever or several of them, or a store with "
                f"similarity_search, or with fetch and search; {type(store).__name__} is none of these; {lacking}"
            )
        if "vector" not in lists:
            lists["bm25"].lacking = (
                f"{type(store).__name__} has no search by vectors that can be called here; put its documents into a "
                "Dataset, or give a store with similarity_search(query, k)"
            )
        return lists

    def _manager(self, store: Any, documents: Any) -> BM25IndexManager:
        """Return the BM25 index beside a store, which is built when it is first searched.

        Raises:
            UnmetNeedError: the documents of the store cannot be read.
        """
        from pointsman.store.external.bm25_index_manager import BM25IndexManager

        settings = self.config
        return BM25IndexManager(
            settings.bm25_index_path,
            store,
            documents=documents,
            bm25_k1=settings.bm25_k1,
            bm25_b=settings.bm25_b,
            bm25_auto_sync=settings.bm25_auto_sync,
        )

    def _sources(self, strategy: str = "auto") -> list[Any]:
        """Return what a strategy searches; for another kind of store, the lists it uses, or else those there are."""
        if self._foreign is not None:
            for default in (self.engine.stages.strategy, self.config.default_retrieval_strategy):
                strategy = default if strategy == "auto" else strategy
            words, needs_vectors = LISTS.get(STRATEGY_ALIASES.get(strategy, strategy), (True, True))
            available = {"bm25": words, "vector": needs_vectors}
            return [store for name, store in self._foreign.items() if available[name]] or list(self._foreign.values())
        sources = list(_flat(self.vector_store))
        own_name = getattr(self.embedding_service, "name", None)
        for source in sources if own_name is not None else ():
            stored_name = source.store.info.embedder if isinstance(source, Source) else None
            if stored_name is not None and stored_name != own_name:
                stored_model, given_model = names_for_people(stored_name, str(own_name))
                raise InputError(
                    f"dataset {source.name!r} holds vectors of {stored_model!r}, "
                    f"and embedding_service is {given_model!r}; give the same, or None"
                )
        return sources


def _request(
    query: str | Query, k: int, strategy: str, use_rerank: bool | Reranking | None, options: ServiceOptions
) -> SearchRequest:
    if "rerank" in options:
        raise InputError("the service's name for this option is use_rerank")
    return SearchRequest.of(query, k, {**options, "strategy": strategy, "rerank": use_rerank})


class Bm25Retriever(BaseRetriever):
    """Retrieves with a `BM25IndexManager`.

    Args:
        manager: of the index.
        dataset: the name of the dataset whose documents it indexes, if they are one's.
    """

    name = "bm25"
    lists = (True, False)

    def __init__(self, manager: BM25IndexManager, dataset: str | None = None) -> None:
        self.manager, self.dataset_name = manager, dataset

    def retrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """Return at most ``top_k`` hits with raw BM25 scores, best first."""
        query = Query.of(query)
        ranking = self.manager.search(query.text, check_top_k(top_k), filters=query.filters)
        hits = [replace(hit, dataset=self.dataset_name) for hit in ranking]
        return Hits(hits, degraded=ranking.degraded)


def _audit_log_of(store: Any, settings: Settings) -> AuditLog | Literal["of sources"]:
    """Return the audit log that settings name, or else that of the workspace that is searched.

    Raises:
        UnmetNeedError: the settings name one, and nothing of a workspace is searched, where its key is kept.
    """
    if not settings.audit_log:
        return "of sources"
    items = store if isinstance(store, (list, tuple)) else [store]
    own_logs = [log for item in items if isinstance(log := getattr(item, "audit_log", None), AuditLog)]
    if not own_logs:
        raise UnmetNeedError(
            f"audit_log is {settings.audit_log!r}, and no workspace or dataset of one is searched, which would keep "
            "the key of its digests; give one as vector_store, or set audit_log to an empty text"
        )
    return AuditLog(own_logs[0].backend, lambda: settings.audit_log)


def _by_name(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InputError(f"config is Settings, a mapping of settings by name, or None, not {type(config).__name__}")
    reserved_names = {"path", "environ"} & config.keys()
    if reserved_names:
        raise InputError(
            f"there is no setting {reserved_names.pop()!r}; Settings.load takes the file and the environment"
        )
    return dict(config)


def _is_workspace(value: Any) -> bool:
    return callable(getattr(value, "datasets", None)) and callable(getattr(value, "dataset", None))


def _is_retriever(value: Any) -> bool:
    return callable(getattr(value, "retrieve", None)) and callable(getattr(value, "aretrieve", None))


def _is_attached_by_vectors(store: Any) -> bool:
    """Whether something is an attached collection, such as one in Chroma, that can be searched by vectors only."""
    if not isinstance(store, Source) or store.indexing_technique != "vector":
        return False
    return store.store.is_attached


def _is_ours(store: Any) -> bool:
    if isinstance(store, (list, tuple)):
        wrong = [item for item in store if not (isinstance(item, Source) or _is_workspace(item) or _is_retriever(item))]
        if store and len(wrong) == len(store):
            return False  # documents
        if wrong or not store:
            raise InputError(f"give at least one dataset, workspace or retriever, and nothing else; not {store!r:.80}")
        return True
    return isinstance(store, Source) or _is_workspace(store) or _is_retriever(store)


def _flat(store: Any) -> Iterator[Any]:
    for item in store if isinstance(store, (list, tuple)) else [store]:
        yield from item.datasets() if _is_workspace(item) else [item]
