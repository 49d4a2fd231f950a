"""What every strategy is: what it adds to a search over sources that it was given (I2).

A strategy adds to a search and replaces nothing: the query itself always takes part, with a weight that whatever was
generated cannot outvote. What fails leaves the plain answer, marked in ``degraded``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pointsman._twins import wait_for
from pointsman.engine import Engine, Stages
from pointsman.errors import InputError, UnmetNeedError
from pointsman.registry import STRATEGIES, Registry
from pointsman.request import SearchRequest
from pointsman.retrieval.base import BaseRetriever
from pointsman.retrieval.branches import unique_names
from pointsman.retrieval.budget import Budget, MeteredLLM
from pointsman.retrieval.hybrid import TIMEOUT
from pointsman.retrieval.pool import SCALES
from pointsman.retrieval.source import Source
from pointsman.settings import Settings
from pointsman.types import Hits, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.refine import BaseRefiner
    from pointsman.retrieval.transform.base import BaseTransformer


class BaseRetrievalStrategy(BaseRetriever):
    """A way to search, with a name.

    A subclass says what its searches have beside the query: a transformer (variants of the query to search for), and
    refiners (what is done with the ranking). Or it overrides `search`, and does everything itself.

    Example:
        >>> from pointsman.strategies import BaseRetrievalStrategy, register_strategy
        >>> from pointsman.retrieval.transform import RuleExpander
        >>> class Abbreviations(BaseRetrievalStrategy):
        ...     name = "abbreviations"
        ...
        ...     def transformer(self):
        ...         return RuleExpander(["synonym"], {"llm": ["large language model"]})

    Attributes:
        name: what it is registered under.
        needs_llm: whether it cannot be had without a language model.
        needs: what else it cannot be had without, in words; it has to be made by hand then.
        method: how datasets are searched: ``"auto"`` (hybrid wherever a dataset keeps both indexes), ``"vector"``,
            ``"bm25"``, ``"hybrid"`` or a fusion method's name.
    """

    name: ClassVar[str] = ""
    needs_llm: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    method: ClassVar[str] = "auto"
    variants_by_rank: ClassVar[bool] = False
    """Whether the rankings of the query and of its variants are fused by reciprocal rank, not by adding scores up."""

    def __init__(
        self,
        *sources: Any,
        llm: Any = None,
        reranker: BaseRefiner | None = None,
        budget: Budget | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """Choose what is searched. A subclass with options of its own sets them before it calls this.

        Args:
            sources: at least one dataset or retriever; another strategy is a retriever.
            llm: anything with ``complete(prompt)``; see `pointsman.llm.ask`.
            reranker: orders what was found anew.
            budget: what one search may spend on the model; ``Budget()`` unless given, and never more than a quarter of
                ``timeout``.
            timeout: seconds for one search; then it answers with what it has. None: no limit.

        Raises:
            InputError: there is no source, something is neither dataset nor retriever, the strategy needs a model and
                there is none, or an option cannot be used.
        """
        kind = type(self).__name__
        if not sources:
            raise InputError(f"{kind} needs at least one dataset or retriever to search")
        unique_names(
            [source for source in sources if not isinstance(source, Source)], None
        )  # says what is no retriever, now
        if llm is None and self.needs_llm:
            raise UnmetNeedError(f"{kind} needs a language model; give it one with llm=…, or use another strategy")
        self.sources = sources
        self.llm = None if llm is None else MeteredLLM(llm)
        self.reranker = reranker
        self.budget = budget or Budget()
        self.searched = list(self.searchables(sources))
        for source in self.searched:
            if isinstance(source, Source):
                source.lists_for(self.method)
            elif self.method in SCALES:
                what = type(source).__name__
                raise InputError(f"{kind} searches the lists of datasets; {what} is none, use HybridStrategy for it")
        self.adds = self.transformer()
        self.reshapes = tuple(self.refiners())
        own = Registry[Any]("strategy")
        own.register(_ITSELF, lambda *_, **__: self)
        stages = Stages(reranker=reranker, timeout=timeout)
        settings = Settings(enable_reranker_by_default=reranker is not None)
        self._engine = Engine(settings, stages, registry=own)

    # ── what a subclass gives ────────────────────────────────────────────────────────────────────────────────────

    def transformer(self) -> BaseTransformer | None:
        """What adds variants of the query; asked for once, at construction."""
        return None

    def refiners(self) -> Sequence[BaseRefiner]:
        """What is done with the ranking, in order, after the reranker; asked for once, at construction."""
        return ()

    def searchables(self, sources: Sequence[Any]) -> Sequence[Any]:
        """What is searched, given these sources: themselves, unless a strategy brings lists of its own."""
        return sources

    @property
    def is_recipe(self) -> bool:
        """Whether the strategy only adds to a search; one that overrides how it searches does everything alone."""
        kind, base = type(self), BaseRetrievalStrategy
        return all(getattr(kind, name) is getattr(base, name) for name in ("search", "retrieve", "aretrieve"))

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(self, query: str | Query, k: int = 5) -> Hits:
        """At most ``k`` hits, best first, as `Hits`: with the trace, and with what did not work.

        A strategy by itself ranks, and refuses nothing; a workspace, a dataset or a service that is asked for it by
        name does.

        Raises:
            RetrievalError: nothing could be searched; it carries every cause.
            InputError: the query or the number cannot be used.
        """
        return Hits.of(await self._engine.asearch(self._request(query, k), self.sources))

    def search_sync(self, query: str | Query, k: int = 5) -> Hits:
        """The same from synchronous code."""
        return Hits.of(self._engine.search(self._request(query, k), self.sources))

    def retrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """``search`` as a retriever."""
        if type(self).search is not BaseRetrievalStrategy.search:
            return wait_for(self.aretrieve, query, top_k)
        return self.search_sync(query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """The same, awaited."""
        hits = await self.search(query, top_k)
        return hits if isinstance(hits, Hits) else Hits(hits)  # a subclass's own search may give a plain list

    def _request(self, query: str | Query, k: int) -> SearchRequest:
        return SearchRequest.of(query, k, {"strategy": _ITSELF, "refuse": False})


_ITSELF = "itself"


def register_strategy(cls: type[BaseRetrievalStrategy], *, replace: bool = False) -> type[BaseRetrievalStrategy]:
    """Register a strategy under its name; also as a decorator.

    Raises:
        InputError: it is no strategy, has no name, or the name is taken and ``replace`` is False.
    """
    if not (isinstance(cls, type) and issubclass(cls, BaseRetrievalStrategy)):
        raise InputError(f"a strategy subclasses BaseRetrievalStrategy, {cls!r:.80} does not")
    if not cls.name:
        raise InputError(f"{cls.__name__} has no name to register it under; set its class attribute name")
    STRATEGIES.register(cls.name, cls, replace=replace)
    return cls
