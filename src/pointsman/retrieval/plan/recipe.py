"""The recipe of one search: the engine decides it, and `pointsman.retrieval.search` carries it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import LISTS, OWN
from pointsman.retrieval.judge.kept_calibrations import MOST_HITS
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.retrievers.foreign_retriever import as_retriever
from pointsman.retrieval.run.branches import Branch, RetrieverBranch, SourceBranch, unique_names
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.retrieval.run.source import Source
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.parallel_calls import Breaker
from pointsman.values.reasons import Reason
from pointsman.values.types import Decision, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.retrieval.judge.kept_calibrations import Calibration
    from pointsman.retrieval.judge.relevance import Relevance
    from pointsman.retrieval.plan.policy import Policy
    from pointsman.retrieval.plan.routers import BaseRouter
    from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup
    from pointsman.retrieval.refine.base_refiner import BaseRefiner
    from pointsman.retrieval.refine.budget import Budget
    from pointsman.retrieval.refine.diversity import Grouping
    from pointsman.retrieval.run.reading import Reading
    from pointsman.text.written_syntax import Syntax
    from pointsman.values.retrieval_context import RetrievalContext

_NUMBERED_LIST: Final = re.compile(r".* \d+")  # the name of a variant's list


_CHOICES_KEPT: Final = 32
_RANKING: Final = frozenset({"strategy", "rerank", "refuse"})


@dataclass(frozen=True, slots=True)
class RoutedRecipe:
    """A recipe applied to certain sources.

    Attributes:
        plan: what is done, and why.
        lists: whether words and vectors of each dataset are searched, by its name.
        transformer: bound to these sources.
        depth: the number of candidates in each list.
        examined: how many hits of the ranking the answer is chosen from.
        weighs: whether the policy weighs the lists.
        has_later_stages: whether a stage after the branches may take longer than a computation.
        judged_embedders: by dataset, the embedders whose cosines can be judged there; None: words alone can be.
    """

    plan: Plan
    lists: Mapping[str, tuple[bool, bool]]
    transformer: BaseTransformer | None
    depth: int
    examined: int
    weighs: bool
    has_later_stages: bool
    judged_embedders: Mapping[str, frozenset[str | None]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every stage of a search, with its limits.

    Attributes:
        sources: what may be searched, by name: sources, and retrievers of any kind.
        k: hits in an answer.
        method: how sources are searched: ``"auto"`` (whatever they keep), or a name of
            `pointsman.retrieval.fusion.LISTS`.
        strategy: its name in the plan; the method's name if empty.
        router: chooses among the sources; all are searched unless given.
        transformer: rewrites the query, and may add variants; it sees the routed sources.
        refiners: reshape the ranking after the fusion, in this order.
        variants_by_rank: fuse the query's ranking and those of its variants by reciprocal rank.
        policy: the numbers that ``auto`` decides by; None: hybrid search without weights.
        depth: candidates a list.
        timeout: seconds for the whole search; None: no limit.
        breaker: when to leave a failing branch out for a while.
        budget: the limits on language model calls.
        decisions: what was decided, why, and by what.
        notes: what could not be done as requested.
        alone: the names of the sources that a strategy searches by itself, as the only source of the recipe.
        confidence: how sure the choice of the strategy is, 0 to 1.
        calibrations: judge how relevant a hit is; the first that fits its scores is used.
        min_relevance: the least relevance of a hit in the answer; None: no limit.
        fitted: by dataset, what was fitted to it; it takes precedence over ``calibrations`` there.
        coverage: answer with the fewest hits that hold an answer with this probability; None: with ``k``.
        grouping: limits the answer to a few hits of each group; None: no limit.
        syntax: whether the syntax of a question is obeyed; that of texts which the caller did not write never is.
        date_columns: the fields that ``before:`` means, as the setting has them.
        today: the day on which documents have to be valid, for a replay; empty: the day of the search.
        receipt: writes the receipt of an answer from datasets that keep versions; None: it gets none.
    """

    sources: Mapping[str, Any]
    k: int
    method: str = "auto"
    strategy: str = ""
    router: BaseRouter | None = None
    transformer: BaseTransformer | None = None
    refiners: Sequence[BaseRefiner] = ()
    variants_by_rank: bool = False
    policy: Policy | None = None
    depth: int = DEPTH
    timeout: float | None = None
    breaker: Breaker = field(default_factory=Breaker)
    budget: Budget | None = None
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    confidence: float | None = None
    calibrations: Sequence[Relevance] = field(default_factory=shipped)
    fitted: Mapping[str, Calibration] = field(default_factory=dict)
    min_relevance: float | None = None
    coverage: float | None = None
    grouping: Grouping | None = None
    syntax: Syntax = "plain"
    date_columns: tuple[str, ...] = ()
    today: str = ""
    receipt: Callable[[RetrievalContext, Mapping[str, Reading]], str] | None = None
    _for_sources: dict[tuple[str, ...], RoutedRecipe] = field(
        default_factory=dict, repr=False, compare=False, init=False
    )

    def for_sources(self, names: Sequence[str], lookup: Callable[[Recipe, Sequence[str]], Lookup]) -> RoutedRecipe:
        """The recipe applied to certain sources; computed once for each choice of sources.

        Args:
            names: of the sources.
            lookup: makes the searchable view that transformers get.
        """
        key = tuple(names)
        if key not in self._for_sources:
            if len(self._for_sources) >= _CHOICES_KEPT:
                self._for_sources.clear()
            self._for_sources[key] = self._worked_out(key, lookup)
        return self._for_sources[key]

    def _worked_out(self, names: tuple[str, ...], lookup: Callable[[Recipe, Sequence[str]], Lookup]) -> RoutedRecipe:
        plan = self.plan(names)
        bind = getattr(self.transformer, "over", None)
        transformer = self.transformer if bind is None else bind(lookup(self, names))
        return RoutedRecipe(
            plan,
            self._lists(names, plan.strategy),
            transformer,
            max(self.depth, self.depth_of(plan.strategy)),
            self.examined,
            self.weighs and plan.strategy == "hybrid",
            any(not refiner.in_place for refiner in self.refiners),
            {name: frozenset(relevance.embedder for relevance in self.judges(name)) for name in names},
        )

    def judges(self, name: str) -> Sequence[Relevance]:
        """What may judge the hits of a dataset, in this order."""
        fitted = self.fitted.get(name)
        return self.calibrations if fitted is None else (*fitted.relevance, *self.calibrations)

    def deciding(self, what: str, value: str, by: str, reason: str) -> Recipe:
        """A copy with one more decision."""
        return replace(self, decisions=(*self.decisions, Decision(what, value, by, reason)))

    def plan(self, names: Sequence[str]) -> Plan:
        """The plan of a search of these sources, with its reasons."""
        method, reason = method_for([self.sources[name] for name in names], self.method, self.policy)
        decisions = [decision.reason for decision in self.decisions if decision.what == "strategy"]
        reason = Reason.join_all(*decisions, *([] if self.method != "auto" and any(decisions) else [reason]))
        return Plan(self.alone or tuple(names), method, reason, decisions=self.decisions, confidence=self.confidence)

    def _lists(self, names: Sequence[str], method: str) -> dict[str, tuple[bool, bool]]:
        """How each dataset is searched; one that lacks a list that the method needs is searched by the lists it has."""
        return {
            name: source.lists_for(method if self.method != "auto" or source.keeps(method) else "auto")
            for name in names
            if isinstance(source := self.sources[name], Source)
        }

    def branches(self, names: Sequence[str], recipe: RoutedRecipe, readings: Mapping[str, Reading]) -> list[Branch]:
        """One branch for each of these sources.

        Args:
            names: of the sources.
            recipe: this recipe applied to them.
            readings: of the datasets among them.
        """
        absent_script = self.policy.absent_script if recipe.weighs and self.policy is not None else 0.0
        return [
            SourceBranch(readings[name], recipe.lists[name], absent_script)
            if name in recipe.lists
            else RetrieverBranch(self.sources[name], name)
            for name in names
        ]

    @property
    def weighs(self) -> bool:
        """Whether the policy weighs the lists: no method was requested, and the policy names no fixed strategy."""
        return self.method == "auto" and self.policy is not None and self.policy.strategy is None

    @property
    def has_least_relevance(self) -> bool:
        """Whether hits of little relevance are dropped."""
        return self.min_relevance is not None

    @property
    def only_computes(self) -> bool:
        """Whether no stage can call a language model."""
        return (
            self.router is None
            and getattr(self.transformer, "only_computes", self.transformer is None)
            and all(refiner.in_place for refiner in self.refiners)
            and all(isinstance(source, Source) for source in self.sources.values())
        )

    @property
    def examined(self) -> int:
        """How many hits of the ranking the answer is chosen from: ``k``, or more if the answer shall cover."""
        return self.k if self.coverage is None else max(self.k, MOST_HITS)

    @property
    def way(self) -> str:
        """Names the way of ranking, so that ways can be told apart: a promise of coverage holds for one of them."""
        decisions = [f"{decision.what} {decision.value}" for decision in self.decisions if decision.what in _RANKING]
        steps = getattr(self.transformer, "steps", () if self.transformer is None else (self.transformer,))
        stages = [type(stage).__name__ for stage in (*steps, *self.refiners)]
        policy, grouping = self.policy, self.grouping
        groups = [] if grouping is None else [f"{grouping.size} for each {grouping.key}"]
        weights = [] if policy is None else [f"policy {policy.name} {policy.vector_weight:g} {policy.strategy or ''}"]
        return ", ".join([*decisions, f"depth {self.depth}", *weights, *stages, *groups]).strip()

    def depth_of(self, scale: str) -> int:
        """How many hits the stages after the fusion need."""
        examined = self.examined
        return max([examined, *[refiner.depth(examined, scale) for refiner in self.refiners]])


def method_for(sources: Sequence[Any], method: str, policy: Policy | None = None) -> tuple[str, str]:
    """The ranking method for these sources, and the reason; ``"auto"`` uses the policy's fixed strategy if it has one.

    Raises:
        UnknownNameError: there is no such method.
    """
    check_method(method)
    if method != "auto":
        return method, Reason.of("asked")
    best, reason = _method_by_lists(sources)
    if policy is None or policy.strategy is None:
        return best, reason
    fixed_strategy = policy.strategy
    if all(not isinstance(source, Source) or source.keeps(fixed_strategy) for source in sources):
        return fixed_strategy, f"a fixed strategy, as fitted to your labels ({policy.name})"
    return best, f"{reason}; not {fixed_strategy!r} as fitted to your labels: not every dataset keeps the lists for it"


def _method_by_lists(sources: Sequence[Any]) -> tuple[str, str]:
    keeps = [source.lists_for("auto") for source in sources if isinstance(source, Source)]
    if len(keeps) < len(sources):
        return "hybrid", Reason.of("foreign")
    if any(words for words, _ in keeps) and any(vectors for _, vectors in keeps):
        return "hybrid", Reason.of("calibrated")
    if any(vectors for _, vectors in keeps):
        return "vector", Reason.of("vectors")
    return "bm25", Reason.of("words" if keeps else "no_dataset")


def check_method(method: str) -> None:
    """Checks that a ranking method with this name exists.

    Raises:
        UnknownNameError: no ranking method has this name.
    """
    if method != "auto" and method not in LISTS:
        raise UnknownNameError("strategy", method, ("auto", *LISTS))


def by_name(sources: Sequence[Any]) -> dict[str, Any]:
    """Sources and retrievers by their names.

    Raises:
        InputError: two have the same name, or an object is neither a source nor a retriever.
    """
    if isinstance(sources, Mapping | str) or not isinstance(sources, Sequence):
        raise InputError(f"give a list of datasets or retrievers, not {type(sources).__name__}")
    names = iter(unique_names([source for source in sources if not isinstance(source, Source)], None))
    named_sources: dict[str, Any] = {}
    for source in sources:
        name = source.name if isinstance(source, Source) else next(names)
        if not isinstance(source, Source) and (name in OWN or name == "fuse" or _NUMBERED_LIST.fullmatch(name)):
            name = f"{name}_retriever"  # these names belong to our own lists and to those of variants
        if name in named_sources:
            raise InputError(f"datasets need different names, and two of these are called {name!r}")
        named_sources[name] = source if isinstance(source, Source) else as_retriever(source)
    return named_sources
