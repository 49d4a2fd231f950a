"""Makes a recipe from a request, the settings and the policy; no other module decides what `auto` means.

Precedence: request, workflow, settings, measured policy. The plan of an answer says which of them decided what.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from pointsman.llm.chosen_models import model_for
from pointsman.retrieval.decisions.asynchronous_search import carry_out
from pointsman.retrieval.decisions.named_sources import (
    PLAIN,
    by_lists,
    image_router,
    lists_missing,
    on_day,
    only_list,
    selection_of,
    sources_named,
)
from pointsman.retrieval.decisions.rerank_and_refuse import wants_rerank, with_refuser, with_reranker
from pointsman.retrieval.decisions.user_stages import Stages, with_own_synonyms
from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.plan.policy import measured
from pointsman.retrieval.plan.recipe import Recipe, by_name, method_for
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.budget import Budget
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run.source import check_all_searchable
from pointsman.retrieval.search import search, unanswered
from pointsman.tools.audit_log import AuditLog, log_of
from pointsman.tools.errors import InputError, RetrievalError, UnknownNameError, UnmetNeedError
from pointsman.tools.parallel_calls import Deadline, DualCall, Mode, Threads, describe, run, sync_and_async
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.reasons import Reason
from pointsman.values.registry import STRATEGIES, STRATEGY_ALIASES, Registry
from pointsman.values.settings import TASKS, Settings
from pointsman.values.types import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pointsman.retrieval.plan.recommended_strategy import Recommendation
    from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer
    from pointsman.retrieval.refine.diversity import Grouping
    from pointsman.retrieval.run.reading import Reading
    from pointsman.values.protocols import LLM
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Query

log = logging.getLogger(__name__)

CHOSEN_BY_LOOK: Final = ("decomposition", "hyde", "query2doc", "multi_query", *PLAIN)
"""The strategies that `recommend` chooses from."""


@dataclass(frozen=True)
class Engine:
    """Makes recipes and runs them; every façade hands its requests to an engine.

    Attributes:
        settings: the defaults for whatever a request leaves open.
        stages: what settings cannot express.
        models: one language model for everything, or models by task.
        registry: of strategies.
        audit: records what is shown; None: nothing does. By default the log of the workspace that is searched.
    """

    settings: Settings = field(default_factory=Settings)
    stages: Stages = field(default_factory=Stages)
    models: LLM | Mapping[str, LLM] | None = None
    registry: Registry[Any] = STRATEGIES
    audit: AuditLog | Literal["of sources"] | None = field(default="of sources", repr=False, compare=False)
    _strategies: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, init=False)
    _recipes_made: dict[Any, Recipe] = field(default_factory=dict, repr=False, compare=False, init=False)

    def __post_init__(self) -> None:
        self.check_name(str(self.stages.strategy))  # the stages alone do not know the registry

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, request: SearchRequest, sources: Sequence[Any], *, today: str = "") -> RetrievalContext:
        """Answer the only question of a request.

        Args:
            request: the question and options.
            sources: datasets, and retrievers of any kind.
            today: the day on which documents have to be valid, for a replay; empty: the day of this machine.

        Raises:
            InputError: the request cannot be carried out.
            RetrievalError: no source could be searched; it carries every cause.
            AuditError: the audit log is on and cannot be written.
        """
        if self.audit is not None and (audit := self._audit_of(sources)) is not None:
            with audit.request("search", principals=request.principals) as entry:
                with entry.step():
                    answer = self.search(request, sources, today=today)
                audit.add_answers(entry, request.queries, [answer])
            return answer
        sources = sources if request.as_of is None else on_day(request, sources)
        recipe = self.resolve(request, sources)
        if today:
            recipe = replace(recipe, today=today)
        return run(self._search_batch(request, sources, [recipe], [request.query], Threads()))[0]

    async def asearch(self, request: SearchRequest, sources: Sequence[Any]) -> RetrievalContext:
        """Async version of `search`; cancelling it cancels all its calls."""
        if self.audit is not None and (audit := self._audit_of(sources)) is not None:
            async with audit.arequest("search", principals=request.principals) as entry:
                with entry.step():
                    answer = await self.asearch(request, sources)
                await in_thread(audit.add_answers, entry, request.queries, [answer])
            return answer
        if request.as_of is not None:
            sources = await in_thread(on_day, request, sources)
        resolve, search_batch = partial(self.resolve, request, sources), partial(self._search_batch, request, sources)
        return await carry_out(resolve, search_batch, request.query)

    def _audit_of(self, sources: Iterable[Any]) -> AuditLog | None:
        """The audit log that a search of these sources belongs to; None if it is off, or the search is a step."""
        audit = log_of(sources) if self.audit == "of sources" else self.audit
        return audit if isinstance(audit, AuditLog) and audit.is_recording else None

    async def _search_many(  # noqa: D417  (the public versions have no mode)
        self, mode: Mode, request: SearchRequest, sources: Sequence[Any], seconds: float | None = None
    ) -> list[RetrievalContext]:
        """Answer all questions of a request in shared batches; returns one context per question, in order.

        Args:
            request: the questions and options.
            sources: datasets, and retrievers of any kind.
            seconds: for all questions together; a question that is not reached in time gets an empty answer that
                says so.

        Raises:
            InputError: the request cannot be carried out.
            RetrievalError: no source could be searched for any of the questions.
            AuditError: the audit log is on and cannot be written.
        """
        if self.audit is not None and (audit := self._audit_of(sources)) is not None:
            async with audit.arequest("search_many", mode.blocking, principals=request.principals) as entry:
                with entry.step():
                    contexts = await self._search_many(mode, request, sources, seconds)
                await mode.blocking(partial(audit.add_answers, entry, request.queries, contexts))
            return contexts
        if request.as_of is not None:
            sources = await mode.blocking(partial(on_day, request, sources))
        deadline = Deadline(seconds)
        answers: dict[int, RetrievalContext] = {}
        late = f"the time limit of {seconds} seconds for the whole request ran out before this question; ask it again"
        grouping = partial(self._recipes, request, sources)
        for recipe_of in await mode.one(DualCall(grouping, partial(in_thread, grouping))):
            positions = list(recipe_of)
            for batch in [positions] if seconds is None else _batches(positions, request.queries):
                recipes = [recipe_of[position] for position in batch]
                queries = [request.queries[position] for position in batch]
                contexts = [unanswered(recipe, query, late) for recipe, query in zip(recipes, queries, strict=True)]
                if (remaining := deadline.left()) != 0:
                    try:
                        contexts = await self._search_batch(request, sources, recipes, queries, mode, remaining)
                    except RetrievalError:
                        if not answers or deadline.left() != 0:  # otherwise the answered questions keep their answers
                            raise
                answers.update(zip(batch, contexts, strict=True))
        return [answers[position] for position in range(len(request.queries))]

    search_many, asearch_many = sync_and_async(_search_many)

    async def _search_batch(
        self,
        request: SearchRequest,
        sources: Sequence[Any],
        recipes: Sequence[Recipe],
        queries: Sequence[Query],
        mode: Mode,
        seconds: float | None = None,
    ) -> list[RetrievalContext]:
        """Search by recipes of one strategy, one for each question; if it fails, fall back to plain search."""
        if recipes[0].alone:  # what searches by itself may read any of them
            await mode.blocking(partial(check_all_searchable, sources_named(request, sources)))
        try:
            return await search(recipes, queries, mode, seconds)
        except RetrievalError as error:
            plain = self._plain_search(request, sources, recipes[0], error)
            return await search([plain] * len(queries), queries, mode, seconds)

    def _recipes(self, request: SearchRequest, sources: Sequence[Any]) -> list[dict[int, Recipe]]:
        """The recipe of each question by its position; one group for each strategy that the questions' wording chooses.

        Questions of one strategy share batches, but each keeps its reason, and its conversation.
        """
        if not request.queries:
            return []
        if not self.looks_decide(request):
            return [dict.fromkeys(range(len(request.queries)), self.resolve(request, sources))]
        groups: dict[str, dict[int, Recipe]] = {}
        for position, query in enumerate(request.queries):
            recipe = self.resolve(replace(request, queries=(query,)), sources)
            groups.setdefault(recipe.strategy or recipe.method, {})[position] = recipe
        return list(groups.values())

    def _plain_search(
        self, request: SearchRequest, sources: Sequence[Any], recipe: Recipe, error: RetrievalError
    ) -> Recipe:
        """The plain search to fall back to when a strategy has failed.

        Raises:
            RetrievalError: the failed search was already plain.
        """
        if not recipe.strategy:
            raise error
        note = f"strategy {recipe.strategy!r} failed; plain search was used instead: {describe(error)}"
        log.warning("%s", note)
        method, _ = method_for(list(selection_of(by_name(sources), request.datasets).values()), "auto")
        plain = self.resolve(replace(request, strategy=method), sources)
        decisions = (Decision("strategy", method, "default", note), *plain.decisions[1:])  # nobody requested this one
        return replace(plain, method="auto", policy=self.stages.policy, decisions=decisions, notes=(*plain.notes, note))

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, request: SearchRequest, sources: Sequence[Any]) -> Recipe:
        """Decide how to carry out a request.

        Args:
            request: the questions and options.
            sources: datasets, and retrievers of any kind.

        Raises:
            UnknownNameError: there is no such strategy.
            UnmetNeedError: the strategy lacks something it needs, such as a language model.
            InputError: another option is invalid.
        """
        for source in sources if request.principals is not None else ():
            if not getattr(source, "is_view", False):  # a search must not ignore who asks
                raise UnmetNeedError(
                    f"{getattr(source, 'name', source)!r:.80} cannot tell who may see a document, so principals would "
                    "change nothing; search a dataset of a workspace where access is on"
                )
        if self.looks_decide(request):
            return self._resolve(request, sources)
        recipes, recipes_kept = self._recipes_made, _RECIPES_KEPT
        if any(getattr(source, "is_view", False) for source in sources):
            # Views come and go with what they hold: a recipe goes with the view that it is for.
            recipes, recipes_kept = sources[0].recipes if len(sources) == 1 else {}, _RECIPES_KEPT_BY_VIEW
        key = (
            id(self),  # a workspace whose settings change has another engine, and the same views
            self.registry.version,
            # a refiner by its identity, as one defined by a user may not be hashable
            *[id(option) if isinstance(option, BaseRefiner) else option for option in _deciding(request)],
            _in_conversation(request),
            *[(id(source), getattr(source, "indexing_technique", None)) for source in sources],
        )
        recipe = recipes.get(key)
        if recipe is None:
            while len(recipes) >= recipes_kept:
                recipes.pop(next(iter(recipes)), None)
            recipe = recipes[key] = self._resolve(request, sources)  # keeps the objects behind the ids alive
        return recipe

    def _resolve(self, request: SearchRequest, sources: Sequence[Any]) -> Recipe:
        stages = self.stages
        strategy, choice, recommendation = self._strategy(request, sources)
        selection = selection_of(by_name(sources), request.datasets)
        # What was fitted to a dataset was measured on all its documents; in a view of it, those do not all exist.
        views = [name for name, source in selection.items() if getattr(source, "is_view", False)]
        calibrations = {name: fit for name, fit in stages.fitted.items() if name not in views}
        recipe = Recipe(
            selection,
            request.k,
            router=stages.router or image_router(request, sources),
            transformer=self._rewriter(request),
            refiners=stages.refiners,
            depth=stages.depth,
            timeout=stages.timeout if request.timeout is None else request.timeout,
            breaker=stages.breaker,
            decisions=(choice,),
            confidence=1.0 if recommendation is None else recommendation.confidence,
            calibrations=stages.calibrations,
            fitted=calibrations,
            min_relevance=request.min_relevance,
            coverage=request.coverage,
            syntax=request.syntax,
            date_columns=self.settings.date_columns,
            grouping=None if request.group_by is None else _grouping(request.group_by, request.group_size),
            budget=_with_call_limit(None, self.settings.llm_timeout),
            receipt=partial(self._receipt, request),
        )
        if strategy == "auto":
            recipe = replace(self._automatic(recipe, request), strategy=only_list(sources) or "")
        elif self._is_plain(strategy):
            recipe = by_lists(recipe, strategy)
        else:
            recipe = self._by_registered(recipe, strategy, request)
        recipe = with_refuser(
            with_reranker(recipe, strategy, request, self.settings, stages.reranker), request, len(stages.refiners)
        )
        if self.settings.synonyms:
            recipe = with_own_synonyms(recipe, self.settings.synonyms)
        if recipe.only_computes:
            recipe = replace(recipe, budget=None)
        calibrations_in_use = {name: calibrations[name] for name in recipe.sources if name in calibrations}
        if unused_names := [name for name in views if name in stages.fitted]:
            reason = f"{', '.join(unused_names)}: calibrated on all documents, not on those that exist for this search"
            recipe = recipe.deciding("relevance", "shipped", "default", reason)
        if origins := [f"{name}: {fit.origin}" for name, fit in calibrations_in_use.items() if fit.origin]:
            value = "none" if all(fit.is_empty for fit in calibrations_in_use.values()) else "calibrated"
            recipe = recipe.deciding("relevance", value, "calibration", "; ".join(origins))
        return recipe

    def _receipt(self, request: SearchRequest, context: RetrievalContext, readings: Mapping[str, Reading]) -> str:
        """The receipt of an answer."""
        from pointsman.retrieval.receipts import issue

        stages = self.stages
        objects = [name for name in ("router", "reranker", "transformer") if getattr(stages, name) is not None]
        objects += ["refiners"] if stages.refiners else []
        objects += [f"strategy {stages.strategy}"] if stages.strategy != "auto" else []
        return issue(
            context,
            request,
            readings,
            settings=self.settings,
            policy=stages.policy,
            fitted=stages.fitted,
            objects=objects,
        )

    def _strategy(self, request: SearchRequest, sources: Sequence[Any]) -> tuple[str, Decision, Recommendation | None]:
        """The strategy, the decision behind it, and the recommendation if the question's wording decided."""
        settings, name = self.settings, request.strategy
        if name != "auto":
            self.check_name(name)
            return name, Decision("strategy", name, "request", Reason.of("asked")), None
        if self.stages.strategy != "auto":
            name = self.stages.strategy
            return name, Decision("strategy", name, "workflow", "the workflow's own strategy"), None
        if settings.default_retrieval_strategy != "auto":
            name = settings.default_retrieval_strategy
            name = STRATEGY_ALIASES.get(name, name)
            self.check_name(name)
            return name, Decision("strategy", name, "settings", "the default_retrieval_strategy of the settings"), None
        if self.looks_decide(request) and len(request.queries) == 1:
            recommendation = self.recommend(request.queries[0], sources_named(request, sources))
            name = recommendation.strategy
            return name, Decision("strategy", name, "settings", recommendation.reason), recommendation
        if not settings.enable_strategy_auto_selection:
            return "hybrid", Decision("strategy", "hybrid", "settings", "the automatic choice is off"), None
        decider = "default" if self.stages.policy is None else "policy"
        return "auto", Decision("strategy", "auto", decider, ""), None

    def looks_decide(self, request: SearchRequest) -> bool:
        """Whether the wording of a question chooses the strategy.

        It does if the settings say so. Until a policy is fitted or chosen, it also does if there is a language model to
        carry out the choice.
        """
        settings = self.settings
        if request.strategy != "auto" or self.stages.strategy != "auto":
            return False
        if settings.default_retrieval_strategy != "auto" or not settings.enable_strategy_auto_selection:
            return False
        if settings.policy == "heuristic":
            return True
        if settings.policy == "measured" or self.models is None:
            return False
        has_own_policy = self.stages.policy is not None and self.stages.policy != measured()
        return not has_own_policy and model_for(self.models, "hyde").llm is not None

    def recommend(self, query: Query | str, sources: Sequence[Any]) -> Recommendation:
        """What ``auto`` does with a question on these sources, and why; the alternatives suit its wording."""
        from pointsman.retrieval.plan.recommended_strategy import recommend

        lacking = {name: lack for name in CHOSEN_BY_LOOK if (lack := self.lack(name, sources)) is not None}
        by_wording = recommend(query, set(CHOSEN_BY_LOOK) - lacking.keys() or {"auto"}, why_not=lacking)
        request = SearchRequest.of(query)
        if not sources or self.looks_decide(request):
            return by_wording
        return by_wording.override(query, self.resolve(request, sources))

    def _rewriter(self, request: SearchRequest) -> BaseTransformer | None:
        """Return the workflow's transformer; by default, one that adds what a conversation has said."""
        if self.stages.transformer is not None or not _in_conversation(request):
            return self.stages.transformer
        from pointsman.retrieval.plan.transform.disambiguate_by_rules import RuleDisambiguator

        return RuleDisambiguator()

    def _automatic(self, recipe: Recipe, request: SearchRequest) -> Recipe:
        """Hybrid evidence weighted by the policy, with the additions that measurably improve results at this effort."""
        policy, stages = self.stages.policy, self.stages
        if policy is None:
            return recipe
        from pointsman.retrieval.plan.transform.automatic_additions import additions, transformer
        from pointsman.retrieval.plan.transform.base_transformer import QueryTransformer

        transformations = [name for name in additions(request.effort) if request.spelling or name != "spelling"]
        steps = [step for step in (recipe.transformer, transformer(transformations)) if step is not None]
        return replace(
            recipe,
            policy=policy,
            transformer=QueryTransformer(*steps) if len(steps) > 1 else next(iter(steps), None),
            depth=3 * stages.depth if request.effort == "thorough" else stages.depth,
            confidence=policy.confidence,
        )

    def _by_registered(self, recipe: Recipe, name: str, request: SearchRequest) -> Recipe:
        """The recipe with what a registered strategy adds, or with the strategy as its only source."""
        sources = list(recipe.sources.values())
        if (lack := self.lack(name, sources)) is not None:
            raise UnmetNeedError(f"strategy {name!r} cannot be used here: {lack}")
        if not sources:  # there is nothing that it could be made over
            return replace(recipe, strategy=name)
        rerank = wants_rerank(request, self.settings)[0]
        strategy = self.strategy(name, sources, rerank=rerank)
        if not getattr(strategy, "is_recipe", False):  # it overrides how the base class searches
            stages = {"router": self.stages.router, "transformer": self.stages.transformer}
            unused_stages = " and ".join(
                stage for stage, own_transformer in stages.items() if own_transformer is not None
            )
            note = f"strategy {name!r} searches by itself; the workflow's {unused_stages} cannot take part"
            return replace(
                recipe,
                notes=(*recipe.notes, note) if unused_stages else recipe.notes,
                sources={name: strategy},
                strategy=name,
                router=None,
                transformer=None,
                depth=recipe.k,
                alone=tuple(recipe.sources),
            )
        added_transformer, own_transformer = strategy.adds, recipe.transformer
        if added_transformer is not None and own_transformer is not None:
            from pointsman.retrieval.plan.transform.base_transformer import QueryTransformer

            added_transformer = QueryTransformer(own_transformer, added_transformer)
        policy = self.stages.policy if strategy.method == "auto" else None
        if detail := getattr(strategy, "detail", ""):
            recipe = recipe.deciding("strategy", name, "default", detail)
        return replace(
            recipe,
            sources=by_name(strategy.searched),
            strategy=name,
            method=strategy.method,
            transformer=added_transformer or own_transformer,
            refiners=(*strategy.reshapes, *recipe.refiners),
            variants_by_rank=strategy.variants_by_rank,
            policy=policy,
            budget=_with_call_limit(strategy.budget, self.settings.llm_timeout),
        )

    # ── strategies ───────────────────────────────────────────────────────────────────────────────────────────────

    def lack(self, name: str, sources: Sequence[Any]) -> str | None:
        """The requirement of a strategy that these sources do not meet; None if it can be used."""
        missing = lists_missing(name, sources)
        if missing is not None or name == "auto" or self._is_plain(name):
            return missing
        try:
            factory = self.registry.get(name)
        except InputError as error:
            return str(error)
        if needs := getattr(factory, "needs", ""):
            return f"it needs {needs}"
        if (lacks_of := getattr(factory, "lacks_of", None)) is not None and sources and (lack := lacks_of(sources)):
            return str(lack)
        choice = model_for(self.models, _task(name))
        if choice.llm is None and getattr(factory, "needs_llm", False):
            return Reason.of("model", why=choice.reason)
        return None

    def strategy(self, name: str, sources: Sequence[Any], *, rerank: bool = True) -> Any:
        """The registered strategy of this name over these sources, configured by the settings; created once.

        Raises:
            InputError: a requirement is not met, or it is not a retriever.
        """
        rerank = rerank and name == "compression" and self.settings.compression_rerank
        key = (self.registry.version, name, rerank, *map(id, sources))
        entry = self._strategies.get(key)
        if entry is not None and all(a is b for a, b in zip(entry[0], sources, strict=True)):
            return entry[1]
        factory, task = self.registry.get(name), _task(name)
        llm = model_for(self.models, task).llm if task in TASKS or getattr(factory, "needs_llm", False) else None
        strategy = factory(*sources, llm=llm, **self._options(name, factory, rerank=rerank))
        if not (callable(getattr(strategy, "retrieve", None)) and callable(getattr(strategy, "aretrieve", None))):
            raise InputError(f"strategy {name!r} is a {type(strategy).__name__}, not a retriever; see BaseRetriever")
        while len(self._strategies) >= _RECIPES_KEPT:
            self._strategies.pop(next(iter(self._strategies)), None)
        self._strategies[key] = (tuple(sources), strategy)
        return strategy

    def _options(self, name: str, factory: Callable[..., Any], *, rerank: bool) -> dict[str, Any]:
        """The settings that match parameters of a factory: ``compression_max_length`` becomes ``max_length``.

        Strategies of our base class also get a time limit and a reranker.
        """
        prefix = f"{name}_"
        settings = {
            setting: getattr(self.settings, setting) for setting in self.settings.origins if setting.startswith(prefix)
        }
        options = _accepted_options(
            factory, {setting.removeprefix(prefix): value for setting, value in settings.items()}
        )
        if isinstance(factory, type) and hasattr(factory, "variants_by_rank"):
            options["timeout"] = self.stages.timeout
            if rerank:
                options["reranker"] = self.stages.reranker
        return options

    def _is_plain(self, name: str) -> bool:
        """Whether the lists suffice: true for the built-in plain strategies, unless one has been replaced."""
        if name not in LISTS:
            return False
        if name not in self.registry.names():
            return True
        return str(getattr(self.registry.get(name), "__module__", "")).partition(".")[0] == "pointsman"

    def check_name(self, name: str) -> None:
        """Raise an `UnknownNameError` if no strategy has this name."""
        if name not in ("auto", *LISTS, *STRATEGY_ALIASES) and name not in self.registry.names():
            raise UnknownNameError("strategy", name, ("auto", *LISTS, *self.registry.names()))


_BATCH: Final = 16
_BATCH_CHARS: Final = 4_000
"""Questions per batch, and their characters, when all share a time limit: it is checked between batches."""

_RECIPES_KEPT: Final = 64
"""The maximum number of cached strategies and recipes; the oldest are evicted."""
_RECIPES_KEPT_BY_VIEW: Final = 8  # some 5 kB each


_deciding: Final = attrgetter(*[option.name for option in fields(SearchRequest) if option.name != "queries"])
"""The options that a recipe depends on, besides the sources; the question counts only if its wording decides."""


def _grouping(key: str, size: int) -> Grouping:
    from pointsman.retrieval.refine.diversity import Grouping

    return Grouping(key, size)


def _in_conversation(request: SearchRequest) -> bool:
    """Whether a question follows earlier messages."""
    return any(map(attrgetter("history"), request.queries))


def _batches(positions: Sequence[int], queries: Sequence[Query]) -> Iterator[list[int]]:
    """The positions of questions in batches; a long question gets a batch to itself."""
    batch: list[int] = []
    size = 0
    for position in positions:
        length = len(queries[position].text)
        if batch and (len(batch) == _BATCH or size + length > _BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch, size = [*batch, position], size + length
    if batch:
        yield batch


def _with_call_limit(budget: Budget | None, seconds: float) -> Budget:
    """The budget with this limit for one call, if it has none of its own."""
    budget = budget or Budget()
    return replace(budget, call_seconds=seconds) if budget.call_seconds is None else budget


def _task(strategy: str) -> str:
    return strategy if strategy in TASKS else "general"


def _accepted_options(factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a factory has a parameter for."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # its parameters are unknown: written in C, for example
        return {}
    return {name: value for name, value in options.items() if name in parameters}
