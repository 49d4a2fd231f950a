"""How one search is to be done: what `pointsman.engine` decides, and `pointsman.retrieval.search` carries out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import InputError, UnknownNameError
from pointsman.retrieval.branches import Branch, RetrieverBranch, SourceBranch, named
from pointsman.retrieval.dispatch import Breaker
from pointsman.retrieval.pool import DEPTH, LISTS, OWN
from pointsman.retrieval.relevance import shipped
from pointsman.retrieval.source import Source
from pointsman.types import Decision, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.retrieval.budget import Budget
    from pointsman.retrieval.policy import Policy
    from pointsman.retrieval.refine import BaseRefiner
    from pointsman.retrieval.relevance import Relevance
    from pointsman.retrieval.router import BaseRouter
    from pointsman.retrieval.transform.base import BaseTransformer, Lookup

_NUMBERED: Final = re.compile(r".* \d+")  # how the list of a variant is called


_CHOICES_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Over:
    """What a recipe comes to over certain sources.

    Attributes:
        plan: what is done, and why.
        branches: what is searched.
        transformer: bound to these sources.
        depth: hits that the stages after the fusion want, by the plan's strategy.
    """

    plan: Plan
    branches: Sequence[Branch]
    transformer: BaseTransformer | None
    depth: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every stage of a search, with its limits.

    Attributes:
        sources: what may be searched, by name: sources, and retrievers of any kind.
        k: hits in an answer.
        method: how sources are searched: ``"auto"`` (whatever they keep), or a name of
            `pointsman.retrieval.pool.LISTS`.
        strategy: what the plan calls it; the method's name if empty.
        router: chooses among the sources; all are searched unless given.
        transformer: rewrites the query, and may add variants; it sees the routed sources.
        refiners: what reshapes the ranking after the fusion, in order.
        variants_by_rank: fuse the query's ranking and those of its variants by reciprocal rank (I3).
        policy: what ``auto`` decides by; None: it decides nothing, and hybrid search is plain.
        depth: candidates a list.
        timeout: seconds for the whole search; None: no limit.
        breaker: when to leave a failing branch out for a while.
        budget: what the search may spend on a language model.
        decisions: what was decided, why, and who said so.
        notes: what could not be done as asked.
        alone: a strategy does everything by itself, and is the only source.
        confidence: how sure the choice of the strategy is, 0 to 1 (I7).
        calibrations: what tells how relevant a hit is; the first that understands its scores does.
        min_relevance: what a hit needs to be answered; None: anything goes.
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
    alone: bool = False
    confidence: float | None = None
    calibrations: Sequence[Relevance] = field(default_factory=shipped)
    min_relevance: float | None = None
    _over: dict[tuple[str, ...], Over] = field(default_factory=dict, repr=False, compare=False, init=False)

    def over(self, names: Sequence[str], lookup: Callable[[Recipe, Sequence[str]], Lookup]) -> Over:
        """What follows from where is searched: worked out once for each choice of sources.

        Args:
            names: of the sources.
            lookup: makes what transformers may look things up in.
        """
        key = tuple(names)
        if key not in self._over:
            if len(self._over) >= _CHOICES_KEPT:
                self._over.clear()
            self._over[key] = self._worked_out(key, lookup)
        return self._over[key]

    def _worked_out(self, names: tuple[str, ...], lookup: Callable[[Recipe, Sequence[str]], Lookup]) -> Over:
        plan = self.plan(names)
        over = getattr(self.transformer, "over", None)
        transformer = self.transformer if over is None else over(lookup(self, names))
        return Over(plan, tuple(self.branches(names, plan.strategy)), transformer, self.depth_of(plan.strategy))

    def deciding(self, what: str, value: str, by: str, reason: str) -> Recipe:
        """The same, with one more decision."""
        return replace(self, decisions=(*self.decisions, Decision(what, value, by, reason)))

    def plan(self, names: Sequence[str]) -> Plan:
        """What a search of these sources does, and why."""
        method, reason = method_for([self.sources[name] for name in names], self.method, self.policy)
        decisions = "; ".join(decision.reason for decision in self.decisions if decision.what == "strategy")
        reason = decisions if self.method != "auto" and decisions else "; ".join(filter(None, [decisions, reason]))
        return Plan(tuple(names), method, reason, decisions=self.decisions, confidence=self.confidence)

    def branches(self, names: Sequence[str], method: str) -> list[Branch]:
        """The branches of these sources; a source that does not keep what the method needs is searched as it can be."""
        absent_script = 0.0
        if self.weighs and self.policy is not None and method == "hybrid":
            absent_script = self.policy.absent_script
        branches: list[Branch] = []
        for name in names:
            one = self.sources[name]
            if isinstance(one, Source):
                kept = self.method != "auto" or one.keeps(method)
                branches.append(SourceBranch(one, method if kept else "auto", absent_script))
            else:
                branches.append(RetrieverBranch(one, name))
        return branches

    @property
    def weighs(self) -> bool:
        """Whether the policy weighs the lists: nobody asked for anything else, and it names no fixed strategy."""
        return self.method == "auto" and self.policy is not None and self.policy.strategy is None

    def depth_of(self, scale: str) -> int:
        """How many hits the stages after the fusion want to see."""
        return max([self.k, *(refiner.depth(self.k, scale) for refiner in self.refiners)])


def method_for(sources: Sequence[Any], method: str, policy: Policy | None = None) -> tuple[str, str]:
    """How to rank what these find, and why; ``"auto"`` takes the fixed strategy of a policy that has one.

    Raises:
        UnknownNameError: there is no such method.
    """
    check_method(method)
    if method != "auto":
        return method, "requested"
    best, reason = _method_by_lists(sources)
    if policy is None or policy.strategy is None:
        return best, reason
    fixed = policy.strategy
    if all(not isinstance(one, Source) or one.keeps(fixed) for one in sources):
        return fixed, f"a fixed strategy, as fitted to your labels ({policy.name})"
    return best, f"{reason}; not {fixed!r} as fitted to your labels: not every dataset keeps the lists for it"


def _method_by_lists(sources: Sequence[Any]) -> tuple[str, str]:
    keeps = [one.lists_for("auto") for one in sources if isinstance(one, Source)]
    if len(keeps) < len(sources):
        return "hybrid", "every list there is, by reciprocal rank where scores are foreign"
    if any(words for words, _ in keeps) and any(near for _, near in keeps):
        return "hybrid", "keyword and vector evidence together, by the calibrated sum"
    if any(near for _, near in keeps):
        return "vector", "the datasets keep vectors only"
    return "bm25", "the datasets keep words only" if keeps else "there is no dataset yet"


def check_method(method: str) -> None:
    """Check that there is a method of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if method != "auto" and method not in LISTS:
        raise UnknownNameError("strategy", method, ("auto", *LISTS))


def by_name(sources: Sequence[Any]) -> dict[str, Any]:
    """Sources and retrievers by their names.

    Raises:
        InputError: two have the same name, or something is neither.
    """
    if isinstance(sources, Mapping | str) or not isinstance(sources, Sequence):
        raise InputError(f"give a list of datasets or retrievers, not {type(sources).__name__}")
    names = iter(named([one for one in sources if not isinstance(one, Source)], None))
    named_sources: dict[str, Any] = {}
    for one in sources:
        name = one.name if isinstance(one, Source) else next(names)
        if not isinstance(one, Source) and (name in OWN or name == "fuse" or _NUMBERED.fullmatch(name)):
            name = f"{name}_retriever"  # what our own lists and those of variants are called is theirs
        if name in named_sources:
            raise InputError(f"datasets are told apart by name, and two of these are called {name!r}")
        named_sources[name] = one
    return named_sources
