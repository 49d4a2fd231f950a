"""`EnhancedRetrievalService`: one search over a store, its strategy chosen, its answer reranked (I4)."""

from __future__ import annotations

import inspect
import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pointsman._twins import in_thread, wait_for
from pointsman.errors import InputError, ModelError, PointsmanError, RetrievalError, UnknownNameError, UnmetNeedError
from pointsman.filters import parse_filter
from pointsman.protocols import Embedder
from pointsman.registry import STRATEGIES, Registry
from pointsman.retrieval.base import BaseRetriever
from pointsman.retrieval.branches import is_dataset
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.pool import LISTS
from pointsman.retrieval.recommend import Recommendation, recommend
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.rerank.base import MAX_CANDIDATES, TIMEOUT, seen
from pointsman.retrieval.rerank.calibrated import CalibratedReranker
from pointsman.retrieval.base import checked
from pointsman.retrieval.retrievers import VectorRetriever
from pointsman.retrieval.workflow import RetrievalWorkflow, shared_spread
from pointsman.settings import TASKS, Settings
from pointsman.trace import Span, Trace
from pointsman.types import Document, Hits, Query, Ranked

if TYPE_CHECKING:
    from pointsman.filters import Filter
    from pointsman.protocols import LLM
    from pointsman.retrieval.strategies import Budget
    from pointsman.store.local.bm25 import BM25IndexManager
    from pointsman.types import Hit, Refusal, RetrievalContext

log = logging.getLogger(__name__)

T = TypeVar("T")

_PLAIN = ("bm25", "vector", "hybrid")
"""Strategies that the workflow has of its own: it searches both lists and shows them in the trace."""

CHOSEN_BY_LOOK = ("decomposition", "hyde", "query2doc", "multi_query", *_PLAIN)
"""What `recommend` chooses from."""


@dataclass(frozen=True, slots=True)
class ChosenLLM:
    """A language model for a task, or why there is none."""

    llm: LLM | None
    reason: str


def llm_for(settings: Settings, task: str = "general", environ: Mapping[str, str] | None = None) -> ChosenLLM:
    """The language model that the settings name for a task; see `Settings.llm`. Nothing is sent to it yet.

    The key of OpenAI is sent to another address only where ``llm_api_key_env`` names it, or ``OPENAI_BASE_URL`` does.

    Args:
        settings: where it is named.
        task: of `pointsman.settings.TASKS`, or ``"general"``.
        environ: where keys are looked for; the environment of this process unless given.

    Returns:
        The model, or None with the reason: nothing is configured, a key is missing, a package is not installed.

    Raises:
        InputError: there is no such task.
    """
    environ = os.environ if environ is None else environ
    spec = settings.llm(task, environ)
    if spec.missing is not None:
        return ChosenLLM(None, spec.missing)
    key = environ.get(spec.api_key_env or "") or None
    options: dict[str, Any] = {"temperature": spec.temperature, "timeout": spec.timeout}
    try:
        from pointsman.models import DashScopeLLM, OpenAILLM

        if spec.provider == "dashscope":
            llm: LLM = DashScopeLLM(spec.model, api_key=key, **options)
        elif spec.provider == "openai":
            llm = OpenAILLM(spec.model, api_key=key, **options)
        else:
            llm = OpenAILLM(spec.model, spec.base_url, key or "no-key", **options)
    except PointsmanError as error:
        return ChosenLLM(None, str(error))
    return ChosenLLM(llm, f"{spec.model} of {spec.base_url or spec.provider}")


def needs_llm(strategy: str) -> bool:
    """Whether a registered strategy cannot be had without a language model."""
    return strategy in STRATEGIES.names() and bool(getattr(STRATEGIES.get(strategy), "needs_llm", False))


def choose(
    settings: Settings, strategy: str, recommended: Callable[[], Recommendation]
) -> tuple[str, Recommendation | None]:
    """The strategy that a search takes by these settings, and why, where the query's look has decided.

    ``"auto"`` stays what it is where the workflow decides: hybrid wherever both lists are kept, by its policy.

    Args:
        settings: what ``"auto"`` means.
        strategy: what was asked for.
        recommended: what the look of the query asks for; called where that decides.
    """
    if strategy != "auto":
        return strategy, None
    if settings.default_retrieval_strategy != "auto":
        return settings.default_retrieval_strategy, None
    if settings.policy == "heuristic" and settings.enable_strategy_auto_selection:
        found = recommended()
        return found.strategy, found
    return "auto", None


class SettingsModels(Mapping[str, "LLM"]):
    """The language models that settings name, by task, each made when it is first asked for; without those missing.

    Args:
        settings: where they are named.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chosen: dict[str, ChosenLLM] = {}

    def chosen(self, task: str) -> ChosenLLM:
        """The model for a task, or why there is none; what is no task of its own takes the general one."""
        task = task if task in TASKS else "general"
        if task not in self._chosen:
            self._chosen[task] = llm_for(self._settings, task)
        return self._chosen[task]

    def why_none(self, strategy: str) -> str | None:
        """Why there is no language model for a strategy that needs one; None: there is, or it needs none."""
        if not needs_llm(strategy):
            return None
        chosen = self.chosen(strategy)
        return None if chosen.llm is not None else chosen.reason

    def __getitem__(self, task: str) -> LLM:
        llm = self.chosen(task).llm
        if llm is None:
            raise KeyError(task)
        return llm

    def __iter__(self) -> Iterator[str]:
        return (task for task in ("general", *TASKS) if self.chosen(task).llm is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ServiceHits(Hits):
    """Hits, and how they came to be.

    Attributes:
        strategy: what was searched by.
        recommendation: why, where the look of the query has decided; else None.
        reranked: whether a reranker has seen them.
        refused: set where the workflow refuses, and nothing is relevant enough.
    """

    def __init__(
        self,
        context: RetrievalContext,
        strategy: str,
        recommendation: Recommendation | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        trace = context.trace
        if recommendation is not None:
            told = f"{recommendation.strategy}: {recommendation.reason}"
            trace = Trace((Span("recommend", told, 0.0), *trace.spans), trace.records)
        super().__init__(context.hits, trace, (*notes, *context.degraded))
        self.strategy, self.recommendation = strategy, recommendation
        self.refused: Refusal | None = context.refused
        self.reranked = any(span.stage == "rerank" and span.error is None for span in trace.spans) or any(
            way.source == "rerank" for hit in context.hits for way in hit.provenance
        )

    @property
    def confidence(self) -> float | None:
        """How sure the choice of the strategy is (I7), where the look of the query has decided."""
        return None if self.recommendation is None else self.recommendation.confidence


class EnhancedRetrievalService:
    """Searches a store by the strategy that a query asks for, and reranks what was found (I4).

    A strategy that fails on the way is replaced by the plain search, a reranker that fails is left out; ``degraded`` of
    the answer tells of either.

    Args:
        config: settings, or some of them by name, which then go before environment and file. None: those from
            environment and file.
        vector_store: where to look: a dataset, a workspace, a retriever, or several of them. Or a vector store of
            another kind: with ``identity``, ``sequence``, ``changes`` and ``fetch`` as
            `pointsman.store.local.keyword.Source` has them, a BM25 index over it is kept under ``bm25_index_path``;
            with ``search(vector, k, filters)`` and ``fetch``, its vectors are searched. Datasets keep a keyword index
            with parameters of their own: ``bm25_*`` is for the others.
        embedding_service: embeds queries for a vector store of another kind. Datasets have their own embedder, and
            this one has to be the same.
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
        workflow: RetrievalWorkflow | None = None,
        strategies: Registry[Any] = STRATEGIES,
    ) -> None:
        self.config = config if isinstance(config, Settings) else Settings.load(**_by_name(config))
        self.vector_store, self.embedding_service, self.reranker = vector_store, embedding_service, reranker
        self._stage = None if reranker is None else _stage(reranker)
        self._workflow = workflow or RetrievalWorkflow(timeout=self.config.timeout)
        self._registry = strategies
        self._llms = {task: ChosenLLM(llm, "given") for task, llm in (llms or {}).items()}
        self._made: dict[tuple[Any, ...], BaseRetriever] = {}
        self.bm25_manager: BM25IndexManager | None = None
        self._foreign = self._opened(vector_store)
        self._check_name(self.config.default_retrieval_strategy)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
    ) -> ServiceHits:
        """At most ``k`` hits, best first.

        Args:
            query: what is asked.
            k: how many hits.
            strategy: its name; a fusion method's name too. ``"auto"``: ``default_retrieval_strategy`` if that is set,
                else hybrid wherever both lists are kept, or what `recommend_strategy` says where ``policy`` is
                ``"heuristic"`` and ``enable_strategy_auto_selection`` on.
            use_rerank: whether to rerank; ``enable_reranker_by_default`` unless given.
            filters: as in `pointsman.Workspace.search`; they act before the cut.

        Raises:
            InputError: an argument cannot be used, or the strategy lacks what it needs, such as a language model.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        way = await in_thread(self._way, query, k, strategy, use_rerank, filters)  # opens files the first time
        try:
            with way.spending():
                return way.answer(await way.workflow.asearch(way.query, way.sources, k, strategy=way.method))
        except RetrievalError as error:
            way = await in_thread(self._plain_way, way, error)
        return way.answer(await way.workflow.asearch(way.query, way.sources, k, strategy=way.method))

    def search_sync(
        self,
        query: str | Query,
        k: int = 5,
        strategy: str = "auto",
        use_rerank: bool | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
    ) -> ServiceHits:
        """The same without awaiting; it needs no event loop, and one may be running."""
        way = self._way(query, k, strategy, use_rerank, filters)
        try:
            with way.spending():
                return way.answer(way.workflow.search(way.query, way.sources, k, strategy=way.method))
        except RetrievalError as error:
            way = self._plain_way(way, error)
        return way.answer(way.workflow.search(way.query, way.sources, k, strategy=way.method))

    def recommend_strategy(self, query: str | Query) -> Recommendation:
        """What the query asks for by its look, among the strategies that can be used here (I5, I8).

        Searches follow it where ``policy`` is ``"heuristic"``.
        """
        sources = self._sources()
        lacking = {name: why for name in CHOSEN_BY_LOOK if (why := self._lack(name, sources)) is not None}
        usable = set(CHOSEN_BY_LOOK) - lacking.keys()
        return recommend(query, usable or {"auto"}, why_not=lacking)

    def lack(self, strategy: str) -> str | None:
        """What a strategy needs and does not have here; None: it can be used."""
        return self._lack(strategy, self._sources())

    @property
    def strategies(self) -> Mapping[str, BaseRetriever]:
        """The registered strategies over this store by name, each made when it is first asked for.

        Asking for one that lacks something it needs raises an `InputError` that says what.
        """
        return _Strategies(self._names(), self._strategy)

    def llm(self, task: str = "general") -> ChosenLLM:
        """The language model of a task, or why there is none.

        Raises:
            InputError: there is no such task.
        """
        if task not in self._llms:
            given = self._llms.get("general")
            self._llms[task] = given if given is not None and task in TASKS else llm_for(self.config, task)
        return self._llms[task]

    def close(self) -> None:
        """Let go of what the service has opened: its BM25 index. The store is its owner's to close."""
        if self.bm25_manager is not None:
            self.bm25_manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _way(
        self,
        query: str | Query,
        k: int,
        strategy: str,
        use_rerank: bool | None,
        filters: str | Mapping[str, Any] | Filter | None,
    ) -> _Way:
        query = Query.of(query, parse_filter(filters) if filters else None)
        checked(k)
        self._check_name(strategy)
        sources = self._sources()
        name, recommendation = choose(self.config, strategy, lambda: self.recommend_strategy(query))
        if name != "auto" and (lack := self._lack(name, sources)) is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        workflow = replace(self._workflow, reranker=self._reranking(name, use_rerank, sources))
        if self._is_plain(name):
            return self._plain(name, query, sources, workflow, use_rerank, recommendation)
        made = self._strategy(name, rerank=workflow.reranker is not None)
        if not _is_recipe(made):
            return _Way(query, name, "auto", [made], replace(workflow, depth=k), use_rerank, recommendation)
        # One workflow with the strategy in it shows everything in one trace, and reranks with the raw scores at hand.
        recipe = made.applied_to(workflow)
        return _Way(query, name, None, made.searched, recipe, use_rerank, recommendation, budget=made.budget)

    def _plain(
        self,
        name: str,
        query: Query,
        sources: _Sources,
        workflow: RetrievalWorkflow,
        use_rerank: bool | None,
        recommendation: Recommendation | None = None,
        notes: tuple[str, ...] = (),
    ) -> _Way:
        # A foreign store has one retriever for each list, and the workflow takes those it is given. Datasets that keep
        # different indexes are searched by what each of them keeps.
        by_kept = name in _PLAIN if not sources.datasets else name == "hybrid" and not sources.both
        chosen, method = sources.of(name), "auto" if by_kept else name
        return _Way(query, name, method, chosen, workflow, use_rerank, recommendation, notes)

    def _plain_way(self, way: _Way, error: RetrievalError) -> _Way:
        """What is done instead of a strategy that failed.

        Raises:
            RetrievalError: nothing is left to be done: the search was a plain one.
        """
        if self._is_plain(way.name):
            raise error
        cause = "; ".join(f"{type(one).__name__}: {one}" for one in error.causes.values())
        note = f"strategy {way.name!r} failed, the plain search answers: {cause}"
        log.warning("%s", note)
        sources = self._sources()
        limit = self._workflow.timeout
        left = None if limit is None else max(limit - (perf_counter() - way.began), limit / 5)
        workflow = replace(self._workflow, reranker=self._reranking("auto", way.use_rerank, sources), timeout=left)
        return self._plain("auto", way.query, sources, workflow, way.use_rerank, way.recommendation, (note,))

    def _lack(self, name: str, sources: _Sources) -> str | None:
        """What a strategy needs and does not have; None: nothing."""
        words, near = LISTS.get(name, (False, name == "hyde"))
        if near and not sources.near:
            return "there are no vectors to search"
        if words and not sources.words:
            return "there is no keyword index to search"
        if words and near and not sources.both and name != "hybrid":
            return "not every dataset keeps both indexes"
        return None if self._is_plain(name) else self._lack_of_own(name)

    def _lack_of_own(self, name: str) -> str | None:
        """The same of a registered strategy, but for what it searches."""
        if name not in self._names():
            return "it is not registered"
        try:
            factory = self._registry.get(name)
        except InputError as error:
            return str(error)
        if needs := getattr(factory, "needs", ""):
            return f"it needs {needs}"
        if not getattr(factory, "needs_llm", False):
            return None
        chosen = self.llm(_task(name))
        return None if chosen.llm is not None else f"it needs a language model: {chosen.reason}"

    def _is_plain(self, name: str) -> bool:
        """Whether the workflow does it by itself: its own strategies, unless somebody has registered another."""
        if name not in ("auto", *LISTS):
            return False
        if name not in self._names():
            return True
        return str(getattr(self._registry.get(name), "__module__", "")).partition(".")[0] == "pointsman"

    def _check_name(self, name: str) -> None:
        if name not in ("auto", *LISTS) and name not in self._names():
            raise UnknownNameError("strategy", name, ("auto", *LISTS, *self._names()))

    # ── strategies ───────────────────────────────────────────────────────────────────────────────────────────────

    def _names(self) -> tuple[str, ...]:
        if self._registry is STRATEGIES:
            import pointsman.retrieval.strategies  # noqa: F401  (registers ours)
        return self._registry.names()

    def _strategy(self, name: str, *, rerank: bool = True) -> Any:
        """The strategy of this name over this store; ``rerank``: compression may rerank what is left of the hits.

        Raises:
            InputError: it lacks what it needs, or is no retriever.
        """
        sources = self._sources()
        lack = self._lack(name, sources)
        if lack is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        chosen = sources.of(name)
        rerank = rerank and name == "compression" and self.config.compression_rerank
        key = (name, rerank, *map(id, chosen))
        if key not in self._made:
            factory = self._registry.get(name)
            llm = self.llm(_task(name)).llm if _task(name) in TASKS or getattr(factory, "needs_llm", False) else None
            made = factory(*chosen, llm=llm, **self._options(name, factory, rerank=rerank))
            if not (callable(getattr(made, "retrieve", None)) and callable(getattr(made, "aretrieve", None))):
                raise InputError(f"strategy {name!r} is a {type(made).__name__}, not a retriever; see BaseRetriever")
            self._made[key] = made
        return self._made[key]

    def _options(self, name: str, factory: Callable[..., Any], *, rerank: bool) -> dict[str, Any]:
        """What a factory has parameters for of its settings, without its name: ``compression_max_length``: max_length.

        Every strategy of our base class takes a time limit and a reranker of its own as well.
        """
        prefix = f"{name}_"
        settings = {one: getattr(self.config, one) for one in self.config.origins if one.startswith(prefix)}
        options = _taken(factory, {one.removeprefix(prefix): value for one, value in settings.items()})
        from pointsman.retrieval.strategies import BaseRetrievalStrategy

        if isinstance(factory, type) and issubclass(factory, BaseRetrievalStrategy):
            options["timeout"] = self._workflow.timeout
            if rerank:
                options["reranker"] = self._stage or self._workflow.reranker
        return options

    def _reranking(self, name: str, use_rerank: bool | None, sources: _Sources) -> BaseRefiner | None:
        if not (self.config.enable_reranker_by_default if use_rerank is None else use_rerank):
            return None
        if self._stage is not None or self._workflow.reranker is not None:
            return self._stage or self._workflow.reranker
        if use_rerank is None and name in METHODS:
            return None  # who names a fusion method wants its ranking, which the offline reranker would replace
        datasets = sources.datasets
        return CalibratedReranker(spread=(lambda: shared_spread(datasets)) if datasets else None)

    # ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, store: Any) -> _Sources | None:
        """The retrievers over a store of another kind; None for ours, which are looked at anew in every search.

        Raises:
            InputError: it is nothing that can be searched, or it cannot be without an embedder.
        """
        if _is_ours(store):
            return None
        can = {name: callable(getattr(store, name, None)) for name in ("sequence", "changes", "fetch", "search")}
        words, near = [], []
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
            words.append(Bm25Retriever(self.bm25_manager))
        if can["search"] and can["fetch"]:
            if self.embedding_service is None:
                raise InputError(f"searching the vectors of {type(store).__name__} needs an embedding_service")
            if not isinstance(self.embedding_service, Embedder):
                raise InputError(
                    f"an embedding_service has name, dimensions, embed_queries and embed_documents, "
                    f"{type(self.embedding_service).__name__} has not; see BaseEmbedder"
                )
            near.append(VectorRetriever(store, store, self.embedding_service))
        if not (words or near):
            raise InputError(
                f"vector_store is a dataset, a workspace, a retriever or several of them, or a store with fetch and "
                f"search or changes; {type(store).__name__} is none of these"
            )
        return _Sources((), tuple(words), tuple(near), both=bool(words and near))

    def _sources(self) -> _Sources:
        if self._foreign is not None:
            return self._foreign
        ours = list(_flat(self.vector_store))
        datasets = tuple(one for one in ours if is_dataset(one))
        others = tuple(one for one in ours if not is_dataset(one))
        own = getattr(self.embedding_service, "name", None)
        for dataset in datasets if own is not None else ():
            stored = dataset.stores.embedder
            if stored is not None and stored != own:
                raise InputError(
                    f"dataset {dataset.name!r} holds vectors of {stored!r}, and embedding_service is {own!r}; "
                    "give the same, or None"
                )
        keeps = [dataset.lists_for("auto") for dataset in datasets]
        return _Sources(
            datasets,
            tuple(one for one, (words, _) in zip(datasets, keeps, strict=True) if words) + others,
            tuple(one for one, (_, near) in zip(datasets, keeps, strict=True) if near) + others,
            both=all(words and near for words, near in keeps),
        )


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where to look: for words, for vectors; a retriever is taken for both."""

    datasets: tuple[Any, ...]
    words: tuple[Any, ...]
    near: tuple[Any, ...]
    both: bool

    def of(self, name: str) -> list[Any]:
        """Those that a strategy searches."""
        if name == "bm25":
            return list(self.words)
        if name == "vector":
            return list(self.near)
        return list({id(one): one for one in (*self.datasets, *self.words, *self.near)}.values())


@dataclass(frozen=True, slots=True)
class _Way:
    """How one search is done."""

    query: Query
    name: str
    method: str | None
    sources: list[Any]
    workflow: RetrievalWorkflow
    use_rerank: bool | None
    recommendation: Recommendation | None = None
    notes: tuple[str, ...] = ()
    budget: Budget | None = None
    began: float = field(default_factory=perf_counter)

    def spending(self) -> AbstractContextManager[Any]:
        """One account for everything that the strategy asks of a language model."""
        if self.budget is None:
            return nullcontext()
        from pointsman.retrieval.strategies import spending

        return spending(self.budget)

    def answer(self, context: RetrievalContext) -> ServiceHits:
        strategy = context.plan.strategy if self.name == "auto" else self.name
        return ServiceHits(context, strategy, self.recommendation, self.notes)


class Bm25Retriever(BaseRetriever):
    """The hits of a `BM25IndexManager`; it cannot filter."""

    def __init__(self, manager: BM25IndexManager) -> None:
        self.manager = manager

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits with raw BM25 scores, best first.

        Raises:
            InputError: the query has filters.
        """
        query = Query.of(query)
        if query.filters is not None:
            raise InputError("the keyword index over this store cannot filter; search by 'vector', or use a dataset")
        return self.manager.search(query.text, checked(top_k))


class _Strategies(Mapping[str, BaseRetriever]):
    """Strategies by name, made when asked for."""

    def __init__(self, names: Sequence[str], make: Callable[[str], BaseRetriever]) -> None:
        self._names, self._make = tuple(names), make

    def __getitem__(self, name: str) -> BaseRetriever:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"<strategies {', '.join(self._names)}>"


# ── rerankers of another kind ────────────────────────────────────────────────────────────────────────────────────────


class ForeignReranker(BaseRefiner):
    """A stage of a search out of anything with ``rerank(query, documents, top_n)``, and perhaps ``is_available()``.

    ``rerank`` is given the query's text and the hits' documents and returns documents, best first, known again by id
    and text; ``metadata["score"]`` is their score where it is there, else only their order counts. What it leaves out
    follows in the order it had. What it raises the workflow catches and tells.

    Args:
        reranker: such an object; a `BaseRefiner` with ``is_available`` too.
        max_candidates: how many documents it is given.
        timeout: seconds.
    """

    stage = "rerank"

    def __init__(self, reranker: Any, *, max_candidates: int = MAX_CANDIDATES, timeout: float | None = TIMEOUT) -> None:
        self.reranker, self.max_candidates, self.timeout = reranker, max_candidates, timeout
        if isinstance(reranker, BaseRefiner):
            self.timeout = reranker.timeout

    @property
    def name(self) -> str:
        """The reranker's own, or its class's."""
        own = getattr(self.reranker, "name", None)
        return own if isinstance(own, str) and own else type(self.reranker).__name__

    def depth(self, top_k: int, scale: str) -> int:
        """As many as it is given."""
        if isinstance(self.reranker, BaseRefiner):
            return self.reranker.depth(top_k, scale)
        return max(top_k, self.max_candidates)

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:
        """The ranking in its order.

        Raises:
            ModelError: it answered something else than documents it was given.
        """
        if not ranked.hits:
            return replace(ranked, detail="there was nothing to rerank", dropped={}, degraded=())
        available = getattr(self.reranker, "is_available", None)
        if callable(available) and not _waited(available()):
            told = f"rerank: {self.name} is not available; the order before it stands"
            return replace(ranked, detail="the order before it stands", dropped={}, degraded=(told,))
        if isinstance(self.reranker, BaseRefiner):
            return self.reranker.refine(query, ranked, top_k)
        head, tail = ranked.hits[: self.max_candidates], ranked.hits[self.max_candidates :]
        answer = _waited(self.reranker.rerank(query.text, [hit.document for hit in head], len(head)))
        order = self._order(head, answer)
        hits = [seen(hit, rank, score) for rank, (hit, score) in enumerate(order, 1)]
        chosen = {id(hit) for hit, _ in order}
        lowest = hits[-1].score
        hits += [replace(hit, score=lowest) for hit in (*head, *tail) if id(hit) not in chosen]
        detail = f"{self.name} ordered {len(order)} of {len(ranked.hits)} hits"
        return Ranked(tuple(hits), f"rerank:{self.name}", detail, refused=ranked.refused)

    def _order(self, head: Sequence[Hit], answer: Any) -> list[tuple[Hit, float]]:
        """The hits in the order of the answer, with scores that do not rise."""
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
            raise ModelError(f"{self.name} returned {type(answer).__name__}, not documents")
        waiting: dict[tuple[str, str], list[Hit]] = {}
        for hit in head:
            waiting.setdefault((hit.document.id, hit.document.text), []).append(hit)
        found: list[tuple[Hit, Any]] = []
        for one in answer:
            if not isinstance(one, Document):
                raise ModelError(f"{self.name} returned {type(one).__name__} among its documents")
            same = waiting.get((one.id, one.text))
            if not same:
                raise ModelError(f"{self.name} returned document {one.id!r:.80}, which it was not given, or twice")
            found.append((same.pop(0), one.metadata.get("score")))
        if not found:
            raise ModelError(f"{self.name} returned no document")
        scores = [float(score) if _is_finite(score) else math.nan for _, score in found]
        if any(math.isnan(score) for score in scores) or scores != sorted(scores, reverse=True):
            scores = [1 / rank for rank in range(1, len(found) + 1)]  # only the order can be used
        return [(hit, score) for (hit, _), score in zip(found, scores, strict=True)]


def _stage(reranker: Any) -> BaseRefiner:
    """The stage that a reranker is, or is made into.

    Raises:
        InputError: it is no reranker.
    """
    if isinstance(reranker, BaseRefiner):
        return ForeignReranker(reranker) if callable(getattr(reranker, "is_available", None)) else reranker
    if not callable(getattr(reranker, "rerank", None)):
        raise InputError(f"a reranker has rerank(query, documents, top_n), {reranker!r:.80} has not; see BaseReranker")
    return ForeignReranker(reranker)


def _is_finite(score: Any) -> bool:
    return isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score)


def _waited(value: T | Awaitable[T]) -> T:
    """The value itself, or what awaiting it gives."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> T:
        return await value

    return wait_for(wait)


# ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_name(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InputError(f"config is Settings, a mapping of settings by name, or None, not {type(config).__name__}")
    taken = {"path", "environ"} & config.keys()
    if taken:
        raise InputError(f"there is no setting {taken.pop()!r}; Settings.load takes the file and the environment")
    return dict(config)


def _is_recipe(strategy: Any) -> bool:
    """Whether a strategy can be put into a workflow: it is of our base class, and searches as that does."""
    from pointsman.retrieval.strategies import BaseRetrievalStrategy

    if not isinstance(strategy, BaseRetrievalStrategy):
        return False
    kind, base = type(strategy), BaseRetrievalStrategy
    return all(getattr(kind, name) is getattr(base, name) for name in ("search", "retrieve", "aretrieve"))


def _task(strategy: str) -> str:
    return strategy if strategy in TASKS else "general"


def _taken(factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that a factory has a parameter for."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # written in C, say: then it has none that we could know of
        return {}
    return {name: value for name, value in options.items() if name in parameters}


def _is_workspace(one: Any) -> bool:
    return callable(getattr(one, "datasets", None)) and callable(getattr(one, "dataset", None))


def _is_retriever(one: Any) -> bool:
    return callable(getattr(one, "retrieve", None)) and callable(getattr(one, "aretrieve", None))


def _is_ours(store: Any) -> bool:
    if isinstance(store, (list, tuple)):
        wrong = [one for one in store if not (is_dataset(one) or _is_workspace(one) or _is_retriever(one))]
        if wrong or not store:
            raise InputError(f"give at least one dataset, workspace or retriever, and nothing else; not {store!r:.80}")
        return True
    return is_dataset(store) or _is_workspace(store) or _is_retriever(store)


def _flat(store: Any) -> Iterator[Any]:
    for one in store if isinstance(store, (list, tuple)) else [store]:
        yield from one.datasets() if _is_workspace(one) else [one]
