"""The base of all strategies: what a strategy adds to a search over its sources.

A strategy adds to a search and replaces nothing: the query itself always takes part, with a weight that generated
text cannot outvote. If a step fails, the plain answer remains, marked in ``degraded``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pointsman.llm.base_llm import checked_model
from pointsman.retrieval.decisions.user_stages import Stages
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.fusion import SCALES
from pointsman.retrieval.refine.budget import Budget
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.retrievers.foreign_retriever import as_retriever
from pointsman.retrieval.retrievers.hybrid_retriever import TIMEOUT
from pointsman.retrieval.run.source import Source
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.registry import STRATEGIES, Registry
from pointsman.values.retrieval_context import Hits
from pointsman.values.settings import Settings
from pointsman.values.types import Document, Hit, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer
    from pointsman.retrieval.refine.base_refiner import BaseRefiner


class BaseRetrievalStrategy(BaseRetriever):
    """A named way to search.

    A subclass defines what its searches use besides the query: a transformer (variants of the query to search for) and
    refiners (applied to the ranking). Alternatively it overrides `search` and does everything itself.

    Example:
        >>> from pointsman.retrieval.strategies import BaseRetrievalStrategy, register_strategy
        >>> from pointsman.retrieval.plan.transform import RuleExpander
        >>> class Abbreviations(BaseRetrievalStrategy):
        ...     name = "abbreviations"
        ...
        ...     def transformer(self):
        ...         return RuleExpander(["synonym"], {"llm": ["large language model"]})

    Attributes:
        name: the name under which it is registered.
        needs_llm: whether it requires a language model.
        needs: its other requirements, in words; it must then be constructed by hand.
        needs_words: whether it requires a source with a keyword index.
        method: how datasets are searched: ``"auto"`` (hybrid wherever a dataset keeps both indexes), ``"vector"``,
            ``"bm25"``, ``"hybrid"`` or a fusion method's name.
    """

    name: ClassVar[str] = ""
    needs_llm: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    needs_words: ClassVar[bool] = False
    method: ClassVar[str] = "auto"
    variants_by_rank: ClassVar[bool] = False
    """Whether the rankings of the query and its variants are fused by reciprocal rank instead of adding scores."""

    def __init__(
        self,
        *sources: Any,
        llm: Any = None,
        reranker: Any = None,
        budget: Budget | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """Set the sources. A subclass with its own options sets them before calling this.

        Args:
            sources: at least one dataset or retriever; another strategy is a retriever.
            llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
            reranker: reorders the results; see `pointsman.retrieval.decisions.user_stages.Stages`.
            budget: what one search may spend on the model; ``Budget()`` by default, and never more than half of
                ``timeout``.
            timeout: seconds for one search; then it answers with what it has. None: no limit.

        Raises:
            InputError: there is no source, an object is neither dataset nor retriever, the strategy needs a model and
                has none, or an option is invalid.
        """
        kind = type(self).__name__
        if not sources:
            raise InputError(f"{kind} needs at least one dataset or retriever to search")
        sources = tuple(source if isinstance(source, Source) else as_retriever(source) for source in sources)
        if llm is None and self.needs_llm:
            raise UnmetNeedError(f"{kind} needs a language model; give it one with llm=…, or use another strategy")
        if lack := self.lack(sources):
            raise UnmetNeedError(f"{kind} cannot be used here: {lack}")
        self.sources = sources
        self.llm = llm if llm is None else checked_model(llm)
        stages = Stages(reranker=reranker, timeout=timeout)
        self.reranker: BaseRefiner | None = stages.reranker
        self.budget = budget or Budget()
        self.searched = list(self.searchables(sources))
        for source in self.searched:
            if isinstance(source, Source):
                source.lists_for(self.method)
            elif self.method in SCALES:
                type_name = type(source).__name__
                raise InputError(
                    f"{kind} searches the lists of datasets; {type_name} is none, use HybridStrategy for it"
                )
        self.adds = self.transformer()
        self.reshapes = tuple(self.refiners())
        registry = Registry[Any]("strategy")
        registry.register(_ITSELF, lambda *_, **__: self)
        settings = Settings(enable_reranker_by_default=reranker is not None)
        self._engine = Engine(settings, stages, registry=registry)

    def lack(self, sources: Sequence[Any]) -> str | None:
        """What this strategy, with its options, needs of these sources and none has; None if nothing is missing."""
        return self.lacks_of(sources)

    @classmethod
    def lacks_of(cls, sources: Sequence[Any]) -> str | None:
        """The same, of the strategy as it is without options."""
        if not cls.needs_words:
            return None
        lists = [
            source.lists_for("auto") if isinstance(source, Source) else getattr(source, "lists", None)
            for source in sources
        ]
        if any(keeps is None or keeps[0] for keeps in lists):
            return None
        names = ", ".join(str(getattr(source, "name", type(source).__name__)) for source in sources)
        return (
            f"it needs a keyword index, and there is none in {names}; make the dataset with "
            "indexing_technique='hybrid', or give an attached collection to an EnhancedRetrievalService, which "
            "keeps a BM25 index beside it"
        )

    # ── for subclasses ───────────────────────────────────────────────────────────────────────────────────────────

    def transformer(self) -> BaseTransformer | None:
        """The transformer that adds variants of the query; called once, at construction."""
        return None

    def refiners(self) -> Sequence[BaseRefiner]:
        """The refiners applied to the ranking, in order, after the reranker; called once, at construction."""
        return ()

    def searchables(self, sources: Sequence[Any]) -> Sequence[Any]:
        """The objects to search for these sources: the sources themselves, unless a strategy adds its own lists."""
        return sources

    @property
    def is_recipe(self) -> bool:
        """Whether the strategy only adds to a search; one that overrides how it searches does everything itself."""
        kind, base = type(self), BaseRetrievalStrategy
        return all(getattr(kind, name) is getattr(base, name) for name in ("search", "retrieve", "aretrieve"))

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(self, query: str | Query, k: int = 5) -> Hits:
        """Return at most ``k`` hits, best first, as `Hits`: with the trace and any degradation.

        A strategy by itself only ranks and never refuses; a workspace, dataset or service that uses it does.

        Raises:
            RetrievalError: no source could be searched; it carries every cause.
            InputError: the query or the number is invalid.
        """
        return Hits.of(await self._engine.asearch(self._request(query, k), self.sources))

    def search_sync(self, query: str | Query, k: int = 5) -> Hits:
        """Synchronous version of `search`."""
        return Hits.of(self._engine.search(self._request(query, k), self.sources))

    def retrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """`search` under the name that retrievers use."""
        if type(self).search is not BaseRetrievalStrategy.search:
            return wait_for(self.aretrieve, query, top_k)
        return self.search_sync(query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """Async version of `retrieve`."""
        hits: Any = await self.search(Query.of(query).for_method(type(self).search), top_k)
        if isinstance(hits, Hits):
            return hits
        # A subclass's `search` may return a plain list, and documents: those count by their places.
        return Hits(Hit(hit, 1 / rank) if isinstance(hit, Document) else hit for rank, hit in enumerate(hits, 1))

    def _request(self, query: str | Query, k: int) -> SearchRequest:
        return SearchRequest.of(query, k, {"strategy": _ITSELF, "refuse": False})


_ITSELF = "itself"


def register_strategy(cls: type[BaseRetrievalStrategy], *, replace: bool = False) -> type[BaseRetrievalStrategy]:
    """Register a strategy under its name; also usable as a decorator.

    Raises:
        InputError: it is not a strategy, has no name, or the name is taken and ``replace`` is False.
    """
    if not (isinstance(cls, type) and issubclass(cls, BaseRetrievalStrategy)):
        raise InputError(f"a strategy subclasses BaseRetrievalStrategy, {cls!r:.80} does not")
    if not cls.name:
        raise InputError(f"{cls.__name__} has no name to register it under; set its class attribute name")
    STRATEGIES.register(cls.name, cls, replace=replace)
    return cls
