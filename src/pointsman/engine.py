"""Where a search is put together: request, settings and policy become a recipe. Nothing else decides what `auto` means.

The order of precedence is request, workflow, settings, measured policy; the plan of an answer says which decided what.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import InputError, RetrievalError, StoreError, UnknownNameError, UnmetNeedError
from pointsman.models.chosen import model_for
from pointsman.registry import STRATEGIES, Registry
from pointsman.retrieval.base import checked
from pointsman.retrieval.budget import Budget
from pointsman.retrieval.dispatch import Breaker, Deadline, Tasks, describe
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.hybrid import TIMEOUT
from pointsman.retrieval.policy import Policy, measured
from pointsman.retrieval.pool import DEPTH, LISTS
from pointsman.retrieval.recipe import Recipe, by_name, check_method
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.refuse import Refuser
from pointsman.retrieval.relevance import Relevance, shipped
from pointsman.retrieval.search import search, search_now
from pointsman.retrieval.source import Source
from pointsman.settings import TASKS, Settings
from pointsman.types import Decision, RetrievalContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pointsman.protocols import LLM
    from pointsman.request import SearchRequest
    from pointsman.retrieval.effort import EffortName, Limits
    from pointsman.retrieval.recommend import Recommendation
    from pointsman.retrieval.router import BaseRouter
    from pointsman.retrieval.transform.base import BaseTransformer
    from pointsman.types import Query

log = logging.getLogger(__name__)

PLAIN: Final = ("bm25", "vector", "hybrid")
"""Strategies that add nothing to the lists."""

CHOSEN_BY_LOOK: Final = ("decomposition", "hyde", "query2doc", "multi_query", *PLAIN)
"""What `recommend` chooses from."""

_MODEL_SHARE: Final = 0.25
"""Of the time of a search: what a language model may take at most, so that the search itself has time left."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages that somebody has put together in code, instead of the usual ones.

    Args:
        router: chooses among the sources; all are searched unless given.
        reranker: orders what was found anew; the offline one unless given.
        transformer: rewrites the query, and may add variants of it to be searched beside it.
        refiners: further refiners, in their order after the reranker: refuse, diversify, expand, compress …
        strategy: what ``"auto"`` means.
        depth: candidates a list.
        timeout: seconds for the whole search; None: no limit.
        breaker: when to leave a failing branch out for a while.
        policy: what ``"auto"`` decides by; None: ``"auto"`` is plain hybrid search.
        calibrations: what tells how relevant a hit is; the first that understands its scores does.

    Raises:
        InputError: an option cannot be used.
    """

    router: BaseRouter | None = None
    reranker: BaseRefiner | None = None
    transformer: BaseTransformer | None = None
    refiners: Sequence[BaseRefiner] = ()
    strategy: str = "auto"
    depth: int = DEPTH
    timeout: float | None = TIMEOUT
    breaker: Breaker = field(default_factory=Breaker)
    policy: Policy | None = field(default_factory=measured)
    calibrations: Sequence[Relevance] = field(default_factory=shipped)

    def __post_init__(self) -> None:
        check_method(self.strategy)
        checked(self.depth)
        Deadline(self.timeout)
        for stage in (self.reranker, *self.refiners):
            if stage is not None and not isinstance(stage, BaseRefiner):
                raise InputError(f"a refiner subclasses BaseRefiner, {stage!r:.80} does not")


@dataclass(frozen=True)
class Engine:
    """Makes recipes, and runs them: what every façade hands its requests to.

    Attributes:
        settings: what holds where a request says nothing.
        stages: what the settings cannot say.
        models: language models: one for everything, or by task.
        registry: of strategies.
    """

    settings: Settings = field(default_factory=Settings)
    stages: Stages = field(default_factory=Stages)
    models: LLM | Mapping[str, LLM] | None = None
    registry: Registry[Any] = STRATEGIES
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, init=False)
    _recipes_made: dict[Any, Recipe] = field(default_factory=dict, repr=False, compare=False, init=False)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, request: SearchRequest, sources: Sequence[Any]) -> RetrievalContext:
        """Answer the one question of a request.

        Raises:
            InputError: what is asked for cannot be done.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        query, recipe = request.query, self.resolve(request, sources)
        try:
            return search_now(recipe, [query])[0]
        except RetrievalError as error:
            return search_now(self._instead(request, sources, recipe, error), [query])[0]

    async def asearch(self, request: SearchRequest, sources: Sequence[Any]) -> RetrievalContext:
        """The same, awaited; cancelling it cancels whatever it waits for."""
        query, recipe = request.query, self.resolve(request, sources)
        try:
            return (await search(recipe, [query], Tasks()))[0]
        except RetrievalError as error:
            return (await search(self._instead(request, sources, recipe, error), [query], Tasks()))[0]

    def search_many(self, request: SearchRequest, sources: Sequence[Any]) -> list[RetrievalContext]:
        """Answer all questions of a request, in common batches; one context each, in their order.

        Raises:
            InputError: what is asked for cannot be done.
            RetrievalError: nothing could be searched for any of them.
        """
        answers: dict[int, RetrievalContext] = {}
        for recipe, places in self._recipes(request, sources):
            queries = [request.queries[place] for place in places]
            try:
                contexts = search_now(recipe, queries)
            except RetrievalError as error:
                contexts = search_now(self._instead(request, sources, recipe, error), queries)
            answers.update(zip(places, contexts, strict=True))
        return [answers[place] for place in range(len(request.queries))]

    async def asearch_many(self, request: SearchRequest, sources: Sequence[Any]) -> list[RetrievalContext]:
        """The same, awaited."""
        answers: dict[int, RetrievalContext] = {}
        for recipe, places in self._recipes(request, sources):
            queries = [request.queries[place] for place in places]
            try:
                contexts = await search(recipe, queries, Tasks())
            except RetrievalError as error:
                contexts = await search(self._instead(request, sources, recipe, error), queries, Tasks())
            answers.update(zip(places, contexts, strict=True))
        return [answers[place] for place in range(len(request.queries))]

    def _recipes(self, request: SearchRequest, sources: Sequence[Any]) -> list[tuple[Recipe, list[int]]]:
        """Recipes, and the questions that each is for: several where the look of a question decides."""
        if not request.queries:
            return []
        if not self.looks_decide(request):
            return [(self.resolve(request, sources), list(range(len(request.queries))))]
        groups: dict[str, tuple[Recipe, list[int]]] = {}
        for place, query in enumerate(request.queries):
            recipe = self.resolve(replace(request, queries=(query,)), sources)
            groups.setdefault(recipe.strategy or recipe.method, (recipe, []))[1].append(place)
        return list(groups.values())

    def _instead(self, request: SearchRequest, sources: Sequence[Any], recipe: Recipe, error: RetrievalError) -> Recipe:
        """The plain search that answers where a strategy has failed.

        Raises:
            RetrievalError: nothing is left to be done: the search was a plain one.
        """
        if not recipe.strategy:
            raise error
        note = f"strategy {recipe.strategy!r} failed, the plain search answers: {describe(error)}"
        log.warning("%s", note)
        plain = self.resolve(replace(request, strategy="hybrid"), sources)
        return replace(plain, method="auto", policy=self.stages.policy, notes=(*plain.notes, note))

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, request: SearchRequest, sources: Sequence[Any]) -> Recipe:
        """How to do a search.

        Args:
            request: what is asked for.
            sources: what may be searched: datasets, and retrievers of any kind.

        Raises:
            UnknownNameError: there is no such strategy.
            UnmetNeedError: the strategy lacks something it needs, such as a language model.
            InputError: something else cannot be done.
        """
        if self.looks_decide(request):
            return self._resolve(request, sources)
        key = (
            *(getattr(request, name) for name in _DECIDING),
            *((id(one), getattr(one, "indexing_technique", None)) for one in sources),
        )
        recipe = self._recipes_made.get(key)
        if recipe is None:
            while len(self._recipes_made) >= _KEPT:
                self._recipes_made.pop(next(iter(self._recipes_made)), None)
            recipe = self._recipes_made[key] = self._resolve(request, sources)  # it holds what the ids are of
        return recipe

    def _resolve(self, request: SearchRequest, sources: Sequence[Any]) -> Recipe:
        stages = self.stages
        strategy, choice, recommendation = self._strategy(request, sources)
        recipe = Recipe(
            _chosen(by_name(sources), request.datasets),
            request.k,
            router=stages.router,
            transformer=stages.transformer,
            refiners=stages.refiners,
            depth=stages.depth,
            timeout=stages.timeout if request.timeout is None else request.timeout,
            breaker=stages.breaker,
            decisions=(choice,),
            confidence=1.0 if recommendation is None else recommendation.confidence,
            calibrations=stages.calibrations,
            min_relevance=request.min_relevance,
        )
        if strategy == "auto":
            recipe = self._automatic(recipe, request.effort)
        elif self._is_plain(strategy):
            recipe = self._by_lists(recipe, strategy)
        else:
            recipe = self._registered(recipe, strategy, request)
        return self._refusing(self._reranking(recipe, strategy, request), request)

    def _strategy(self, request: SearchRequest, sources: Sequence[Any]) -> tuple[str, Decision, Recommendation | None]:
        """Which strategy, who decided, and why."""
        settings, name = self.settings, request.strategy
        if name != "auto":
            self.check_name(name)
            return name, Decision("strategy", name, "request", "requested"), None
        if self.stages.strategy != "auto":
            name = self.stages.strategy
            return name, Decision("strategy", name, "workflow", "the workflow's own strategy"), None
        if settings.default_retrieval_strategy != "auto":
            name = settings.default_retrieval_strategy
            self.check_name(name)
            return name, Decision("strategy", name, "settings", "the default_retrieval_strategy of the settings"), None
        if self.looks_decide(request) and len(request.queries) == 1:
            recommendation = self.recommend(request.queries[0], sources)
            name = recommendation.strategy
            return name, Decision("strategy", name, "settings", recommendation.reason), recommendation
        if not settings.enable_strategy_auto_selection:
            return "hybrid", Decision("strategy", "hybrid", "settings", "the automatic choice is switched off"), None
        by = "default" if self.stages.policy is None else "policy"
        return "auto", Decision("strategy", "auto", by, ""), None

    def looks_decide(self, request: SearchRequest) -> bool:
        """Whether the look of a question chooses the strategy (I5).

        It does where the settings say so; and, until a policy was fitted or chosen, where there is a language model to
        follow it with.
        """
        settings = self.settings
        if request.strategy != "auto" or self.stages.strategy != "auto":
            return False
        if settings.default_retrieval_strategy != "auto" or not settings.enable_strategy_auto_selection:
            return False
        if settings.policy == "heuristic":
            return True
        chosen = settings.origins.get("policy", "default") != "default"
        fitted = self.stages.policy is not None and self.stages.policy != measured()
        return not (chosen or fitted) and model_for(self.models, "hyde").llm is not None

    def recommend(self, query: Query | str, sources: Sequence[Any]) -> Recommendation:
        """What a question asks for by its look, among the strategies that can be used on these sources (I5, I8)."""
        from pointsman.retrieval.recommend import recommend

        lacking = {name: why for name in CHOSEN_BY_LOOK if (why := self.lack(name, sources)) is not None}
        return recommend(query, set(CHOSEN_BY_LOOK) - lacking.keys() or {"auto"}, why_not=lacking)

    def _automatic(self, recipe: Recipe, effort: EffortName | Limits) -> Recipe:
        """Hybrid evidence, weighed by the policy, with what was measured to gain at this effort."""
        policy, stages = self.stages.policy, self.stages
        if policy is None:
            return recipe
        from pointsman.retrieval.transform.automatic import additions, transformer
        from pointsman.retrieval.transform.base import QueryTransformer

        added = additions(effort)
        steps = [one for one in (stages.transformer, transformer(added)) if one is not None]
        return replace(
            recipe,
            policy=policy,
            transformer=QueryTransformer(*steps) if len(steps) > 1 else next(iter(steps), None),
            depth=3 * stages.depth if effort == "thorough" else stages.depth,
            confidence=policy.confidence,
        )

    def _by_lists(self, recipe: Recipe, method: str) -> Recipe:
        """One list, or a fusion of both, and nothing else; what does not keep them is left out, visibly.

        Raises:
            UnmetNeedError: no source keeps what the method needs.
        """
        own = {name: one for name, one in recipe.sources.items() if isinstance(one, Source)}
        if not own and method in PLAIN:  # of a retriever nobody knows what it has; it is asked as it is
            return replace(recipe, strategy=method)
        unable = [name for name, one in own.items() if not one.keeps(method)]
        missing = _lists_missing(method, list(recipe.sources.values()))
        if missing is not None:
            own[unable[0]].check_keeps(method, missing)
        if not unable:
            return replace(recipe, method=method)
        if method == "hybrid":
            return recipe  # each by what it keeps, weighed by nothing
        sources = {name: one for name, one in recipe.sources.items() if name not in unable}
        notes = [
            f"{name}: indexed for {own[name].indexing_technique!r} search only, so {method!r} leaves it out"
            for name in unable
        ]
        return replace(recipe, method=method, sources=sources, notes=(*recipe.notes, *notes))

    def _registered(self, recipe: Recipe, name: str, request: SearchRequest) -> Recipe:
        """What a registered strategy adds to the search; or itself as the only source, if it does everything alone."""
        sources = list(recipe.sources.values())
        if (lack := self.lack(name, sources)) is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        reranked = self._wants_rerank(request)[0]
        strategy = self.strategy(name, sources, rerank=reranked)
        if not is_recipe(strategy):
            return replace(
                recipe,
                sources={name: strategy},
                strategy=name,
                router=None,
                transformer=None,
                depth=recipe.k,
                alone=True,
            )
        added, own = strategy.adds, self.stages.transformer
        if added is not None and own is not None:
            from pointsman.retrieval.transform.base import QueryTransformer

            added = QueryTransformer(own, added)
        policy = self.stages.policy if strategy.method == "auto" else None
        if detail := getattr(strategy, "detail", ""):
            recipe = recipe.deciding("strategy", name, "default", detail)
        return replace(
            recipe,
            sources=by_name(strategy.searched),
            strategy=name,
            method=strategy.method,
            transformer=added or own,
            refiners=(*strategy.reshapes, *recipe.refiners),
            variants_by_rank=strategy.variants_by_rank,
            policy=policy,
            budget=_within(strategy.budget, recipe.timeout),
        )

    def _wants_rerank(self, request: SearchRequest) -> tuple[bool, str]:
        """Whether to rerank, and who says so."""
        if request.rerank is not None:
            return request.rerank is not False, "request"
        return self.settings.enable_reranker_by_default, "settings"

    def _reranking(self, recipe: Recipe, strategy: str, request: SearchRequest) -> Recipe:
        """The reranker, before all other refiners; none where there is nothing for it to do, with the reason.

        The offline reranker orders by the calibrated sum of both raw scores. That is what hybrid search answers with
        already, so there it has nothing to add; and where variants of the query have brought evidence of their own, it
        would undo what the strategy was chosen for.
        """
        wanted, by = self._wants_rerank(request)
        reranker = request.rerank if isinstance(request.rerank, BaseRefiner) else self.stages.reranker
        if not wanted:
            return recipe.deciding("rerank", "off", by, "switched off")
        if reranker is not None:
            from pointsman.retrieval.rerank.foreign import as_refiner

            reranker = as_refiner(reranker)
            if any(getattr(one, "refiner", None) is reranker for one in recipe.refiners):
                return recipe.deciding("rerank", reranker.stage, by, "by the strategy, on what it compressed")
            name = str(getattr(reranker, "name", type(reranker).__name__))
            recipe = replace(recipe, refiners=(reranker, *recipe.refiners))
            return recipe.deciding("rerank", name, by, "the reranker that was given")
        if request.rerank is True and strategy in METHODS:
            from pointsman.retrieval.rerank.calibrated import CalibratedReranker

            sources = [one for one in recipe.sources.values() if isinstance(one, Source)]
            offline = CalibratedReranker(spread=lambda: _shared_spread(sources))
            recipe = replace(recipe, refiners=(offline, *recipe.refiners))
            return recipe.deciding("rerank", offline.name, by, "the calibrated sum of both raw scores")
        return recipe.deciding("rerank", "none", by, _nothing_to_rerank(strategy, recipe))

    def _refusing(self, recipe: Recipe, request: SearchRequest) -> Recipe:
        """The refuser, after reranking and what the strategy reshapes; on unless the request says otherwise."""
        own = [one for one in recipe.refiners if one.stage == "refuse"]
        if request.refuse is False or isinstance(request.refuse, BaseRefiner):
            recipe = replace(recipe, refiners=[one for one in recipe.refiners if one.stage != "refuse"])
        if request.refuse is False:
            return recipe.deciding("refuse", "off", "request", "requested")
        if isinstance(request.refuse, BaseRefiner):
            refuser, by = request.refuse, "request"
        elif own:
            return recipe.deciding("refuse", "on", "workflow", "the workflow's own refuser")
        else:
            refuser, by = Refuser(embedder=Embedders(recipe.sources)), "default"
        refiners = list(recipe.refiners)
        place = len(refiners) - len(self.stages.refiners)
        refiners.insert(place, refuser)
        recipe = replace(recipe, refiners=refiners)
        return recipe.deciding("refuse", "on", by, "nothing irrelevant is answered")

    # ── strategies ───────────────────────────────────────────────────────────────────────────────────────────────

    def lack(self, name: str, sources: Sequence[Any]) -> str | None:
        """What a strategy needs and does not have on these sources; None: it can be used."""
        missing = _lists_missing(name, sources)
        if missing is not None or name == "auto" or self._is_plain(name):
            return missing
        if name not in self.registry.names():
            return "it is not registered"
        try:
            factory = self.registry.get(name)
        except InputError as error:
            return str(error)
        if needs := getattr(factory, "needs", ""):
            return f"it needs {needs}"
        chosen = model_for(self.models, _task(name))
        if chosen.llm is None and getattr(factory, "needs_llm", False):
            return f"it needs a language model: {chosen.reason}"
        return None

    def strategy(self, name: str, sources: Sequence[Any], *, rerank: bool = True) -> Any:
        """The registered strategy of this name over these sources, with what the settings say; made once.

        Raises:
            InputError: it lacks what it needs, or is no retriever.
        """
        rerank = rerank and name == "compression" and self.settings.compression_rerank
        key = (name, rerank, *map(id, sources))
        kept = self._made.get(key)
        if kept is not None and all(a is b for a, b in zip(kept[0], sources, strict=True)):
            return kept[1]
        factory, task = self.registry.get(name), _task(name)
        llm = model_for(self.models, task).llm if task in TASKS or getattr(factory, "needs_llm", False) else None
        strategy = factory(*sources, llm=llm, **self._options(name, factory, rerank=rerank))
        if not (callable(getattr(strategy, "retrieve", None)) and callable(getattr(strategy, "aretrieve", None))):
            raise InputError(f"strategy {name!r} is a {type(strategy).__name__}, not a retriever; see BaseRetriever")
        while len(self._made) >= _KEPT:
            self._made.pop(next(iter(self._made)), None)
        self._made[key] = (tuple(sources), strategy)
        return strategy

    def _options(self, name: str, factory: Callable[..., Any], *, rerank: bool) -> dict[str, Any]:
        """What a factory has parameters for of its settings, without its name: ``compression_max_length``: max_length.

        Every strategy of our base class takes a time limit, a reranker and this engine as well.
        """
        prefix = f"{name}_"
        settings = {one: getattr(self.settings, one) for one in self.settings.origins if one.startswith(prefix)}
        options = _taken(factory, {one.removeprefix(prefix): value for one, value in settings.items()})
        if isinstance(factory, type) and hasattr(factory, "variants_by_rank"):
            options["timeout"] = self.stages.timeout
            if rerank:
                options["reranker"] = self.stages.reranker
        return options

    def _is_plain(self, name: str) -> bool:
        """Whether the lists alone do it: our own plain strategies, unless somebody has registered another."""
        if name not in LISTS:
            return False
        if name not in self.registry.names():
            return True
        return str(getattr(self.registry.get(name), "__module__", "")).partition(".")[0] == "pointsman"

    def check_name(self, name: str) -> None:
        """Check that there is a strategy of this name.

        Raises:
            UnknownNameError: there is none.
        """
        if name not in ("auto", *LISTS) and name not in self.registry.names():
            raise UnknownNameError("strategy", name, ("auto", *LISTS, *self.registry.names()))


_KEPT: Final = 64
"""Strategies, and recipes, that are made once; the oldest go first."""

_DECIDING: Final = ("k", "datasets", "strategy", "rerank", "refuse", "min_relevance", "effort", "timeout")
"""What a recipe depends on, besides the sources; the questions only where their look decides."""


def _lists_missing(name: str, sources: Sequence[Any]) -> str | None:
    """Which lists a strategy needs that no source keeps; retrievers may have any."""
    keeps = [one.lists_for("auto") for one in sources if isinstance(one, Source)]
    if not sources or len(keeps) < len(sources):
        return None
    words, near = LISTS.get(name, (False, name == "hyde"))
    if near and not any(kept for _, kept in keeps):
        return "there are no vectors to search"
    if words and not any(kept for kept, _ in keeps):
        return "there is no keyword index to search"
    if words and near and name != "hybrid" and not any(all(kept) for kept in keeps):
        return "no dataset keeps both indexes"
    return None


def _chosen(sources: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """Those of the sources that a request names; all unless it names some."""
    if names is None:
        return sources
    for name in names:
        if name not in sources:
            raise UnknownNameError("dataset", name, tuple(sources))
    return {name: sources[name] for name in names}


def is_recipe(strategy: Any) -> bool:
    """Whether a strategy only adds to a search: it is of our base class, and searches as that does."""
    return bool(getattr(strategy, "is_recipe", False))


class Embedders(Mapping[str, "str | None"]):
    """The names of the embedders behind sources, as they are when somebody asks."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._sources = {name: one for name, one in sources.items() if isinstance(one, Source)}

    def __getitem__(self, name: str) -> str | None:
        try:
            return self._sources[name].store.info.embedder
        except StoreError:  # told of by its branch; it has no hits to judge
            return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _nothing_to_rerank(strategy: str, recipe: Recipe) -> str:
    if recipe.alone:
        return f"{strategy!r} was chosen for its own order"
    if recipe.transformer is not None and recipe.strategy:
        return f"no reranker is configured, and the offline one would undo what {strategy!r} adds"
    if strategy in METHODS:
        return f"{strategy!r} was requested by name, and the offline reranker would replace its order"
    if strategy in {"bm25", "vector"}:
        return "one list alone: there is nothing to weigh it against"
    return "the calibrated sum of both scores is the fusion already"


def _shared_spread(sources: Sequence[Source]) -> Any:
    from pointsman.retrieval.calibration import CosineSpread

    return CosineSpread.shared([source.cosine_spread for source in sources])


def _within(budget: Budget | None, timeout: float | None) -> Budget:
    budget = budget or Budget()
    return budget if timeout is None else replace(budget, seconds=min(budget.seconds, _MODEL_SHARE * timeout))


def _task(strategy: str) -> str:
    return strategy if strategy in TASKS else "general"


def _taken(factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that a factory has a parameter for."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # written in C, say: then it has none that we could know of
        return {}
    return {name: value for name, value in options.items() if name in parameters}
