"""The way of a query, stage by stage; `RetrievalWorkflow._search` is the diagram (R7).

::

    Query ─ transform ─ plan ─ retrieve ∥ ─ fuse ─ rerank ─ refuse ─ compress ─ RetrievalContext
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman._twins import in_thread
from pointsman.errors import InputError, RetrievalError, UnknownNameError
from pointsman.retrieval import telemetry
from pointsman.retrieval.branches import (
    Branch,
    DatasetBranch,
    Found,
    RetrieverBranch,
    ask,
    completed,
    hits_of,
    is_dataset,
    named,
    together,
    with_variants,
)
from pointsman.retrieval.calibration import CosineSpread
from pointsman.retrieval.dispatch import Breaker, Call, Deadline, Mode, Tasks, Threads, describe, run
from pointsman.retrieval.fusion import METHODS, RRF_K, fuse
from pointsman.retrieval.hybrid import TIMEOUT
from pointsman.retrieval.journal import Journal
from pointsman.retrieval.policy import Policy, measured
from pointsman.retrieval.pool import DEPTH, LISTS, OWN, SCALES, Fused, Pool
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.retrievers import checked
from pointsman.retrieval.router import RouteDecision
from pointsman.retrieval.transform.base import Transformed
from pointsman.types import Hit, Plan, Query, Ranked, RetrievalContext

if TYPE_CHECKING:
    from pointsman.dataset import Dataset
    from pointsman.retrieval.policy import Looking
    from pointsman.retrieval.router import BaseRouter
    from pointsman.retrieval.transform.base import BaseTransformer, Variant

log = logging.getLogger(__name__)

T = TypeVar("T")

_NUMBERED = re.compile(r".* \d+")  # how the list of a variant is called

PARTS = frozenset({"subquestion", "bridge"})
"""Kinds of variants that ask for a part of what the query asks for; a document need not answer more than one."""

VARIANTS = "calibrated with variants"
"""The scale of calibrated sums to which variants of the query have added."""


@dataclass(frozen=True, slots=True)
class RetrievalWorkflow:
    """Answers questions from datasets: every stage can be replaced, or left out by None (R7).

    A stage that fails is passed over and the answer says so in ``degraded``; only if nothing could be searched there
    is an error. The deadline covers the whole search: what has not answered by then is left out, also visibly.

    Args:
        router: chooses among the datasets; all are searched unless given.
        reranker: orders what was found anew.
        transformer: rewrites the query, and may add variants of it to be searched beside it.
        refiners: further refiners, in their order after the reranker: refuse, diversify, expand, compress …
        strategy: ``"auto"`` (hybrid wherever a dataset keeps both indexes), ``"bm25"``, ``"vector"``, ``"hybrid"``, or
            a fusion method's name.
        depth: candidates a list.
        timeout: seconds for the whole search; None: no limit.
        breaker: when to leave a failing branch out for a while.
        policy: what ``"auto"`` decides by; None: ``"auto"`` is plain hybrid search.

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

    def __post_init__(self) -> None:
        check_strategy(self.strategy)
        checked(self.depth)
        Deadline(self.timeout)
        for stage in (self.reranker, *self.refiners):
            if stage is not None and not isinstance(stage, BaseRefiner):
                raise InputError(f"a refiner subclasses BaseRefiner, {stage!r:.80} does not")

    def retrieve(
        self, query: str | Query | Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Any
    ) -> list[RetrievalContext]:
        """Answer a question, or several; one context each, in their order.

        Args:
            query: one, or a sequence of them.
            datasets: see `search`.
            top_k: hits in each answer.
            options: of `search`.
        """
        if isinstance(query, (str, Query)):
            return [self.search(query, datasets, top_k, **options)]
        return self.search_many(query, datasets, top_k, **options)

    async def aretrieve(
        self, query: str | Query | Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Any
    ) -> list[RetrievalContext]:
        """The same, awaited."""
        if isinstance(query, (str, Query)):
            return [await self.asearch(query, datasets, top_k, **options)]
        return await self.asearch_many(query, datasets, top_k, **options)

    def search(
        self,
        query: str | Query,
        datasets: Sequence[Any],
        top_k: int = 5,
        *,
        strategy: str | None = None,
        timeout: float | None = None,
    ) -> RetrievalContext:
        """Answer one question.

        Args:
            query: what is asked.
            datasets: what may be searched: datasets, and retrievers of any kind.
            top_k: hits in the answer.
            strategy: for this search, instead of the workflow's own.
            timeout: seconds for this search, instead of the workflow's own.

        Raises:
            InputError: the query, a number or a name cannot be used, or two datasets have one name.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        return run(self._search(Threads(), Query.of(query), datasets, checked(top_k), strategy, timeout))

    async def asearch(
        self,
        query: str | Query,
        datasets: Sequence[Any],
        top_k: int = 5,
        *,
        strategy: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (a partial answer at the deadline is no cancellation)
    ) -> RetrievalContext:
        """The same, awaited; cancelling it cancels whatever it waits for."""
        return await self._search(Tasks(), Query.of(query), datasets, checked(top_k), strategy, timeout)

    def search_many(
        self,
        queries: Sequence[str | Query],
        datasets: Sequence[Any],
        top_k: int = 5,
        *,
        strategy: str | None = None,
        timeout: float | None = None,
    ) -> list[RetrievalContext]:
        """Answer many questions, with their embedding and reranking in common batches.

        A question for which nothing could be searched gets an empty answer that says so in ``degraded``. The times in
        a trace include waiting for the other questions.

        Args:
            queries: what is asked.
            datasets: see `search`.
            top_k: hits in each answer.
            strategy: see `search`.
            timeout: seconds for each question's branches, and as many times that for all of them together.

        Raises:
            InputError: see `search`.
            RetrievalError: nothing could be searched for any of them.
        """
        if isinstance(queries, str):
            raise InputError("search_many takes a sequence of questions; search takes one")
        limit = self.timeout if timeout is None else timeout
        whole = None if limit is None else limit * max(len(queries), 1)
        ways = [_Way(self, Threads(), Journal(whole), checked(top_k), limit) for _ in queries]
        asked = [run(way.transform(Query.of(query))) for way, query in zip(ways, queries, strict=True)]
        plans = [
            run(way.plan(query, datasets, strategy or self.strategy))
            for way, (query, _) in zip(ways, asked, strict=True)
        ]
        _embed_all(asked, plans, ways[0].retrieval_budget() if ways else None)
        ranked, errors = [], []
        final = []
        for way, (query, variants), (plan, branches) in zip(ways, asked, plans, strict=True):
            final.append(plan)
            try:
                candidates = run(way.retrieve(query, variants, plan, branches))
                final[-1], one = way.fuse(candidates, plan, by_policy=way.decides(strategy))
                ranked.append(one)
            except RetrievalError as error:
                errors.append(error)
                ranked.append(Ranked((), "none", degraded=(describe(error),)))
                way.journal.degrade(describe(error))
        if errors and len(errors) == len(ways):
            raise errors[0]
        for refiner in ways[0].refiners() if ways else ():
            ranked = _refine_all(refiner, ways, [query for query, _ in asked], ranked)
        return [
            way.answer(query, plan, one) for way, (query, _), plan, one in zip(ways, asked, final, ranked, strict=True)
        ]

    async def asearch_many(
        self, queries: Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Any
    ) -> list[RetrievalContext]:
        """The same, awaited; it runs in a worker thread."""
        return await in_thread(self.search_many, queries, datasets, top_k, **options)

    async def _search(
        self,
        mode: Mode,
        asked: Query,
        datasets: Sequence[Any],
        top_k: int,
        strategy: str | None,
        timeout: float | None,  # noqa: ASYNC109  (see asearch)
    ) -> RetrievalContext:
        way = _Way(self, mode, Journal(self.timeout if timeout is None else timeout), top_k)
        query, variants = await way.transform(asked)
        plan, chosen = await way.plan(query, datasets, strategy or self.strategy)
        candidates = await way.retrieve(query, variants, plan, chosen)
        plan, ranked = way.fuse(candidates, plan, by_policy=way.decides(strategy))
        for refiner in way.refiners():
            if ranked.refused is None:
                ranked = await way.refine(refiner, query, ranked)
        return way.answer(query, plan, ranked)


@dataclass(slots=True)
class _Way:
    """One query on its way; each method is a stage."""

    workflow: RetrievalWorkflow
    mode: Mode
    journal: Journal
    top_k: int
    limit: float | None = None

    async def transform(self, query: Query) -> tuple[Query, Sequence[Variant]]:
        """Rewrite the query; if that fails it stays as it is."""
        transformer = self.workflow.transformer
        if transformer is None:
            return query, ()
        started = self.journal.now()
        call = Call(lambda: transformer.transform(query), lambda: transformer.atransform(query))
        transformed: Any = await self.attempt(call, self.before_searching())
        if not isinstance(transformed, Transformed):
            self.failed("transform", started, _cause(transformed), "the query is searched as it is")
            return query, ()
        self.journal.degrade(*transformed.degraded)
        error = "; ".join(transformed.degraded) or None
        self.journal.span("transform", transformed.detail, started, len(transformed.variants), error)
        sound = [variant for variant in transformed.variants if _is_sound(variant)]
        for variant in transformed.variants:
            if variant not in sound:
                self.journal.degrade(f"transform: a variant that cannot be searched was left out: {variant!r:.200}")
        return transformed.query, sound

    async def plan(self, query: Query, datasets: Sequence[Any], strategy: str) -> tuple[Plan, list[Any]]:
        """Choose where to look and how; a router that fails chooses everything."""
        started = self.journal.now()
        searchables = _by_name(datasets)
        chosen, routed = list(searchables.values()), ""
        router = self.workflow.router
        routable = [one for one in chosen if is_dataset(one)]
        if router is not None and len(routable) > 1:
            call = Call(lambda: router.decide(query, routable), lambda: router.adecide(query, routable))
            decision: Any = await self.attempt(call, self.before_searching())
            if not isinstance(decision, RouteDecision):
                self.failed("route", started, _cause(decision), "all datasets are searched")
            else:
                kept = {dataset.name for dataset in decision.datasets}
                searchables = {name: one for name, one in searchables.items() if one not in routable or name in kept}
                chosen, routed = list(searchables.values()), f"{decision.reason}; "
                if decision.fallback is not None:
                    self.journal.span("route", decision.reason, started, len(kept), decision.fallback.why)
                    self.journal.degrade(f"route: {decision.fallback.why}; all datasets are searched")
        policy = self.workflow.policy
        method, why = method_for(chosen, strategy, policy)
        plan = Plan(tuple(searchables), method, f"{routed}{why}")
        self.journal.tell(plan)
        detail = f"{method} over {', '.join(searchables) or 'nothing'}: {plan.reason}"
        self.journal.span("plan", detail, started, len(searchables))
        looking = None
        if self.decides(strategy) and policy is not None and method == "hybrid":
            looking = policy.looking(len(searchables))
        return plan, [_branch(name, one, method, strategy, looking) for name, one in searchables.items()]

    def decides(self, strategy: str | None) -> bool:
        """Whether the policy decides: nobody has asked for anything else, and it is there."""
        policy = self.workflow.policy
        return (strategy or self.workflow.strategy) == "auto" and policy is not None and policy.strategy is None

    async def retrieve(
        self, query: Query, variants: Sequence[Variant], plan: Plan, branches: Sequence[Branch]
    ) -> Candidates:
        """Search every branch for the query and its variants, all at once."""
        if not branches:
            return Candidates(None, (), None)
        depth = max(self.workflow.depth, self.depth(plan.strategy))
        labels = [f"{variant.kind} {number}" for number, variant in enumerate(variants, 1)]
        several = [
            _OfVariant(branch, label, replace(query, text=variant.text), variant)
            for label, variant in zip(labels, variants, strict=True)
            for branch in branches
        ]
        found = await ask(
            [*branches, *several],
            query,
            depth,
            self.mode,
            self.journal,
            breaker=self.workflow.breaker,
            budget=self.retrieval_budget(),
            first={branch.name for branch in branches},
        )
        many = len(branches) > 1
        own = {branch.name: found[branch.name] for branch in branches if branch.name in found}
        beside = []
        for label, variant in zip(labels, variants, strict=True):
            theirs = {b.branch.name: found[b.name] for b in several if b.label == label and b.name in found}
            if theirs:
                beside.append((label, variant, together(theirs, many=many)))
        answered = [b.dataset for b in branches if isinstance(b, DatasetBranch) and b.name in own]
        spread = shared_spread(answered) if plan.strategy == "hybrid" else None
        embedders = {b.stores.embedder for b in answered if b.indexing_technique != "keyword" and b.stores.embedder}
        if len(embedders) > 1:
            self.journal.degrade(f"cosines of different embedders are compared as they are: {', '.join(embedders)}")
        return Candidates(together(own, many=many) if own else None, beside, spread)

    def fuse(self, candidates: Candidates, plan: Plan, *, by_policy: bool) -> tuple[Plan, Ranked]:
        """One ranking out of all lists, and the documents of those that the later stages want to see."""
        started = self.journal.now()
        detail = ""
        if by_policy and candidates.weighable(plan) and self.workflow.policy is not None:
            assert candidates.own is not None
            assert candidates.spread is not None
            weights, why = self.workflow.policy.weigh(candidates.own.pool, candidates.spread)
            plan, detail = replace(plan, weights=weights, reason=f"{plan.reason}; {why}"), f": {why}"
        try:
            found, fused = candidates.fused(plan)
        except Exception as error:
            if not candidates.beside:
                raise RetrievalError("what was found could not be fused", {"fuse": error}) from error
            self.failed("fuse", started, error, "variants of the query are left out")
            found, fused = replace(candidates, beside=()).fused(plan)
        if found is None:
            return plan, Ranked((), "none")
        self.journal.fused(found, fused)
        self.journal.span("fuse", f"{fused.scale}{detail}", started, len(fused.ranking))
        started = self.journal.now()
        try:
            hits = tuple(hits_of(found, fused, self.depth(fused.scale)))
        except Exception as error:
            raise RetrievalError("what was found could not be fetched", {"fetch": error}) from error
        self.journal.span("fetch", "documents", started, len(hits))
        return plan, Ranked(hits, fused.scale)

    def refiners(self) -> list[BaseRefiner]:
        """The stages after the fusion, in order."""
        return [stage for stage in (self.workflow.reranker, *self.workflow.refiners) if stage is not None]

    async def refine(self, refiner: BaseRefiner, query: Query, ranked: Ranked) -> Ranked:
        """Let a refiner reshape the ranking; if it fails the ranking stands as it is."""
        started = self.journal.now()
        refined: Any
        if refiner.in_place:
            try:
                refined = refiner.refine(query, ranked, self.top_k)
            except Exception as error:  # noqa: BLE001  (told of in the answer, below)
                refined = error
        else:
            call = Call(
                lambda: refiner.refine(query, ranked, self.top_k), lambda: refiner.arefine(query, ranked, self.top_k)
            )
            refined = await self.attempt(call, self.journal.deadline.left(refiner.timeout))
        return self.refined(refiner.stage, started, refined, ranked)

    def refined(self, stage: str, started: float, refined: Any, before: Ranked) -> Ranked:
        """What a refiner made of the ranking, noted; the ranking before it where that cannot be used."""
        if (cause := _cause(refined) if not isinstance(refined, Ranked) else _unsound(refined)) is not None:
            self.failed(stage, started, cause, "the ranking before it stands")
            return before
        self.journal.ranked(stage, refined)
        self.journal.span(stage, refined.detail, started, len(refined.hits), "; ".join(refined.degraded) or None)
        made: Ranked = refined
        return made

    def answer(self, query: Query, plan: Plan, ranked: Ranked) -> RetrievalContext:
        """The first hits, with everything that was noted on the way."""
        hits = ranked.hits[: self.top_k]
        trace = self.journal.trace(hits)
        context = RetrievalContext(query, hits, plan, trace, ranked.refused, tuple(self.journal.degraded))
        telemetry.export(context, self.top_k)
        return context

    def depth(self, scale: str) -> int:
        """How many hits the stages after the fusion want to see."""
        return max([self.top_k, *(refiner.depth(self.top_k, scale) for refiner in self.refiners())])

    def before_searching(self) -> float | None:
        """Seconds for a stage before the search: a third of what is left, so that one that hangs does not cost it."""
        left = self.journal.deadline.left()
        return None if left is None else left / 3

    def retrieval_budget(self) -> float | None:
        """Seconds for the branches: all that are left, but for a fifth where a stage after them may need time."""
        left = self.journal.deadline.left(self.limit)
        later = any(not refiner.in_place for refiner in self.refiners())
        return left if left is None or not later else 0.8 * left

    async def attempt(self, call: Call[T], budget: float | None) -> T | Exception:
        """What a call answers, or the error it ends with."""
        outcome = (await self.mode.all([call], budget))[0]
        if outcome.answer is not None:
            return outcome.answer
        return outcome.error or TypeError("it returned None")

    def failed(self, stage: str, started: float, error: Exception, instead: str) -> None:
        """Note a stage that failed, and what was done instead."""
        cause = describe(error)
        self.journal.span(stage, f"failed; {instead}", started, None, cause)
        self.journal.degrade(f"{stage}: {cause}; {instead}")
        log.warning("%s failed, %s: %s", stage, instead, cause)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was found for a query, and for each of its variants (label, variant, found); with the scale of cosines."""

    own: Found | None
    beside: Sequence[tuple[str, Variant, Found]]
    spread: CosineSpread | None

    def weighable(self, plan: Plan) -> bool:
        """Whether the query's own lists are words and vectors, to be added by weights."""
        return (
            plan.strategy == "hybrid"
            and self.own is not None
            and self.spread is not None
            and self.own.pool.scores.keys() >= SCALES.keys()
        )

    def fused(self, plan: Plan) -> tuple[Found | None, Fused[Any]]:
        """One ranking. Variants add to the query's own evidence, and cannot outvote it together."""
        empty: Pool[Any] = Pool()
        method, weights = plan.strategy, plan.weights
        main = (self.own.pool if self.own is not None else empty).fused(method, self.spread, weights)
        if not self.beside:
            return self.own, main
        if self.own is not None and main.scale == "calibrated" and all(_is_raw(found) for _, _, found in self.beside):
            return self._summed(self.own, weights)
        beside = method if method in METHODS else "hybrid"  # a variant may have been searched by other lists
        parts = {label: found.pool.fused(beside, self.spread, weights) for label, _, found in self.beside}
        total = sum(variant.weight for _, variant, _ in self.beside)
        shares = {label: variant.weight / max(total, 1.0) for label, variant, _ in self.beside}
        rankings = [main.ranking, *(part.ranking for part in parts.values())]
        ranking = fuse([[(key, None) for key, _ in one] for one in rankings], "rrf", [1.0, *shares.values()])
        found = with_variants(self.own, {label: (parts[label].ranking, found) for label, _, found in self.beside})

        def part(source: str, _: Any, rank: int | None) -> float | None:
            return shares[source] / (RRF_K + rank) if rank and source in shares else None

        return found, Fused(ranking, "rrf", part)

    def _summed(self, own: Found, weights: Mapping[str, float]) -> tuple[Found, Fused[Any]]:
        """The calibrated sums for the query and its variants, added up: evidence of one kind, on one scale.

        A document answers one sub-question, so of those the best counts; of other variants the weighted mean does.
        Measured on multi-hop questions, whose sub-questions RRF lets outvote the whole (nDCG@10 .707 to .560 on
        MuSiQue), while this sum gains.
        """
        spread = self.spread
        assert spread is not None, "a calibrated ranking has a spread"
        every = dict.fromkeys(
            key
            for found in (own, *(found for _, _, found in self.beside))
            for scores in found.pool.scores.values()
            for key in scores
        )
        keys = list(every)
        evidence = {label: completed(found, keys).pool.evidence(spread, weights) for label, _, found in self.beside}
        own = completed(own, keys)
        kinds = {label: variant for label, variant, _ in self.beside}
        parts = [label for label, variant in kinds.items() if variant.kind in PARTS]
        others = [label for label in kinds if label not in parts]
        groups = (bool(parts) + bool(others)) or 1
        share = max((kinds[label].weight for label in parts), default=0.0) / groups
        total = groups * max(1.0, sum(kinds[label].weight for label in others))
        base = own.pool.evidence(spread, weights)
        scores = {}
        for key in keys:
            score = base.get(key, 0.0)
            if parts:
                score += min(share, 1.0) * max(evidence[label].get(key, 0.0) for label in parts)
            score += sum(kinds[label].weight * evidence[label].get(key, 0.0) for label in others) / total
            scores[key] = score
        ranking = sorted(scores.items(), key=lambda item: -item[1])
        lists = {}
        for label, _, found in self.beside:
            mine = {key for ranking in found.pool.lists.values() for key, _ in ranking}
            scored = [(key, score) for key, score in evidence[label].items() if key in mine]
            lists[label] = (sorted(scored, key=lambda item: -item[1]), found)
        plain = own.pool.fused("hybrid", spread, weights).part

        def part(source: str, key: Any, _: int | None) -> float | None:
            if source in others:
                return kinds[source].weight * evidence[source].get(key, 0.0) / total
            if source in parts:
                best = max(parts, key=lambda label: evidence[label].get(key, 0.0))
                return min(share, 1.0) * evidence[source].get(key, 0.0) if source == best else 0.0
            return plain(source, key, None)

        return with_variants(own, lists), Fused(ranking, VARIANTS, part)


def _is_raw(found: Found) -> bool:
    """Whether all of its scores are those of our own lists."""
    return bool(found.pool.lists) and found.pool.lists.keys() == found.pool.scores.keys() <= OWN


class _OfVariant:
    """A branch, searched for a variant of the query."""

    def __init__(self, branch: Branch, label: str, query: Query, variant: Variant) -> None:
        self.branch, self.label, self.query, self.variant = branch, label, query, variant
        self.name = f"{branch.name}, {label}"

    def look(self, _: Query, depth: int) -> Call[Found]:
        """See `Branch`."""
        if isinstance(self.branch, DatasetBranch):
            return self.branch.look(self.query, depth, self.variant.method, as_passage=self.variant.as_passage)
        return self.branch.look(self.query, depth)


def _embed_all(
    asked: Sequence[tuple[Query, Sequence[Variant]]],
    plans: Sequence[tuple[Plan, Sequence[Branch]]],
    budget: float | None,
) -> None:
    """Embed what will be searched for in one batch, per embedder; searching then finds the vectors at hand.

    One that is not done within the budget goes on, and the searches wait for it as long as they may.
    """
    wanted: dict[int, tuple[Dataset, dict[str, None]]] = {}
    for (query, variants), (_, branches) in zip(asked, plans, strict=True):
        for branch in branches:
            if isinstance(branch, DatasetBranch) and branch.dataset.lists_for(branch.method)[1]:
                _, texts = wanted.setdefault(id(branch.dataset.query_vectors), (branch.dataset, {}))
                texts.update(dict.fromkeys([query.text, *(variant.text for variant in variants)]))
    calls = []
    for dataset, batch in wanted.values():
        prepare = partial(dataset.query_vectors.prepare, list(batch))
        calls.append(Call(prepare, partial(in_thread, prepare)))
    for outcome in run(Threads().all(calls, budget)):
        if outcome.error is not None:  # the searches try again one by one and tell each what failed
            log.warning("embedding many queries at once failed: %s", describe(outcome.error))


def _refine_all(
    refiner: BaseRefiner, ways: Sequence[_Way], queries: Sequence[Query], ranked: Sequence[Ranked]
) -> list[Ranked]:
    """Refine each ranking that is not refused; at once where the refiner has a way to."""
    refined = list(ranked)
    open_ = [place for place, one in enumerate(ranked) if one.refused is None]
    together_ = getattr(refiner, "refine_many", None)
    if together_ is None or len(open_) < 2:
        for place in open_:
            refined[place] = run(ways[place].refine(refiner, queries[place], ranked[place]))
        return refined
    started = [way.journal.now() for way in ways]
    asked, given = [queries[place] for place in open_], [ranked[place] for place in open_]

    def at_once() -> Any:
        return together_(asked, given, ways[0].top_k)

    limit = None if refiner.timeout is None else refiner.timeout * len(open_)
    call: Call[Any] = Call(at_once, lambda: in_thread(at_once))
    answers = run(ways[0].attempt(call, ways[0].journal.deadline.left(limit)))
    if not isinstance(answers, Sequence) or len(answers) != len(open_):
        answers = [_cause(answers)] * len(open_)
    for place, answer in zip(open_, answers, strict=True):
        refined[place] = ways[place].refined(refiner.stage, started[place], answer, ranked[place])
    return refined


def _cause(answer: Any) -> Exception:
    """Why something that came back in place of an answer is none."""
    return answer if isinstance(answer, Exception) else TypeError(f"it returned {type(answer).__name__}")


def _is_sound(variant: Variant) -> bool:
    """Whether a variant can be searched for and weighed."""
    weight = variant.weight
    return (
        isinstance(variant.text, str)
        and (variant.method is None or variant.method in LISTS)
        and isinstance(weight, (int, float))
        and math.isfinite(weight)
        and weight >= 0
    )


def _unsound(ranked: Ranked) -> Exception | None:
    """What is wrong with a ranking that a refiner has made, if something is."""
    hits: Any = ranked.hits
    if not isinstance(hits, tuple | list) or not all(isinstance(hit, Hit) for hit in hits):
        return TypeError("hits of its ranking are no hits")
    if len({hit.key for hit in hits}) < len(hits):
        return ValueError("its ranking has a hit more than once")
    if not all(isinstance(hit.score, int | float) and math.isfinite(hit.score) for hit in hits):
        return ValueError("its ranking has scores that are no finite numbers")
    if ranked.refused is not None and hits:
        return ValueError("its ranking is refused and has hits")
    if not isinstance(ranked.dropped, Mapping) or not isinstance(ranked.degraded, tuple | list):
        return TypeError("dropped of its ranking is no mapping, or degraded no tuple")
    return None


def method_for(searchables: Sequence[Any], strategy: str, policy: Policy | None = None) -> tuple[str, str]:
    """How to rank what these find, and why; ``"auto"`` takes the fixed strategy of a policy that has one.

    Raises:
        UnknownNameError: there is no such strategy.
    """
    check_strategy(strategy)
    if strategy != "auto":
        return strategy, "asked for"
    method, why = _method_by_lists(searchables)
    if policy is None or policy.strategy is None:
        return method, why
    fixed = policy.strategy
    if all(not is_dataset(one) or one.keeps(fixed) for one in searchables):
        return fixed, f"a fixed strategy, as fitted to your labels ({policy.name})"
    return method, f"{why}; not {fixed!r} as fitted to your labels: not every dataset keeps the lists for it"


def _method_by_lists(searchables: Sequence[Any]) -> tuple[str, str]:
    """The method for whatever lists these have, and why."""
    keeps = [one.lists_for("auto") for one in searchables if is_dataset(one)]
    if len(keeps) < len(searchables):
        return "hybrid", "every list there is, by reciprocal rank where scores are foreign"
    if any(words for words, _ in keeps) and any(near for _, near in keeps):
        return "hybrid", "keyword and vector evidence together, by the calibrated sum"
    if any(near for _, near in keeps):
        return "vector", "the datasets keep vectors only"
    return "bm25", "the datasets keep words only" if keeps else "there is no dataset yet"


def shared_spread(datasets: Sequence[Dataset]) -> CosineSpread:
    """One scale of cosines for datasets that are searched together."""
    return CosineSpread.shared(
        [dataset.cosine_spread for dataset in datasets if dataset.indexing_technique != "keyword"]
    )


def check_strategy(strategy: str) -> None:
    """Check that there is a strategy of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if strategy != "auto" and strategy not in LISTS:
        raise UnknownNameError("strategy", strategy, ("auto", *LISTS))


def _by_name(searchables: Sequence[Any]) -> dict[str, Any]:
    """Datasets and retrievers by their names.

    Raises:
        InputError: two have the same name, or something is neither.
    """
    others = [one for one in searchables if not is_dataset(one)]
    names = iter(named(others, None))
    found: dict[str, Any] = {}
    for one in searchables:
        name = one.name if is_dataset(one) else next(names)
        if not is_dataset(one) and (name in OWN or name == "fuse" or _NUMBERED.fullmatch(name)):
            name = f"{name}_retriever"  # what our own lists and those of variants are called is theirs
        if name in found:
            raise InputError(f"datasets are told apart by name, and two of these are called {name!r}")
        found[name] = one
    return found


def _branch(name: str, one: Any, method: str, strategy: str, looking: Looking | None) -> Branch:
    if not is_dataset(one):
        return RetrieverBranch(one, name)
    return DatasetBranch(one, method if strategy != "auto" or one.keeps(method) else "auto", looking)
