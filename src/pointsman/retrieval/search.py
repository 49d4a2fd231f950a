"""A search, stage by stage; `search` is the diagram.

::

    Query ─ route ─ transform ─ retrieve ∥ ─ fuse ─ rerank ─ refuse ─ compress ─ RetrievalContext

A `Recipe` defines each stage and its limits. One question and many take the same path; many questions
share one embedding batch, one round trip to each store, and one reranking batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pointsman._twins import in_thread
from pointsman.errors import InputError, ModelError, RetrievalError
from pointsman.retrieval import telemetry
from pointsman.retrieval.branches import Question, ask, complete, nothing_answered
from pointsman.retrieval.candidates import (
    Results,
    StoreResults,
    build_hits,
    fetch,
    keys_in_stores,
    provenance,
    together,
)
from pointsman.retrieval.dispatch import DualCall, Mode, Tasks, Threads, describe, run
from pointsman.retrieval.fusion import LISTS, SCALES, CosineSpread
from pointsman.retrieval.journal import Journal
from pointsman.retrieval.judging import NOTHING, Verdict, embedder_of, judge, raised_cosines
from pointsman.retrieval.reading import Reading, reading_each
from pointsman.retrieval.source import Source
from pointsman.trace import Span, Trace
from pointsman.types import Decision, Hit, Plan, Query, Ranked, Refusal, RetrievalContext

if TYPE_CHECKING:
    from pointsman.retrieval.branches import BranchAnswers
    from pointsman.retrieval.fusion import Fused
    from pointsman.retrieval.recipe import Over, Recipe
    from pointsman.retrieval.refine import BaseRefiner
    from pointsman.retrieval.relevance import Relevance
    from pointsman.retrieval.transform.base import Variant
    from pointsman.retrieval.variants import Beside
    from pointsman.types import Document, Spelling

log = logging.getLogger(__name__)

T = TypeVar("T")

_BEFORE: Final = 0.6
"""The share of a search's time for the stages before it."""


async def search(
    recipes: Sequence[Recipe], queries: Sequence[Query], mode: Mode, seconds: float | None = None
) -> list[RetrievalContext]:
    """Answer questions together, each by its recipe; returns one context per question, in order.

    A stage that fails is skipped, and the answer says so in ``degraded``. If several questions are asked, one for which
    no source could be searched gets an empty answer that says so.

    Args:
        recipes: how to search for each question; they may differ only in their decisions and transformers.
        queries: the questions.
        mode: how to wait.
        seconds: for all questions together, besides the recipe's limit for each; None: no limit.

    Raises:
        RetrievalError: no source could be searched for any of them; it carries every cause.
        InputError: the request cannot be carried out.
    """
    recipe = recipes[0]
    sources = [source for source in recipe.sources.values() if isinstance(source, Source)]
    limits = (None if recipe.timeout is None else recipe.timeout * len(queries), seconds)
    limit = min((limit for limit in limits if limit is not None), default=None)
    with reading_each(sources) as readings, _spending(recipe, len(queries), limit):
        pipelines = [Pipeline(own, query, mode, limit, readings) for own, query in zip(recipes, queries, strict=True)]
        for pipeline in pipelines:
            await pipeline.route()
        await open_readings(pipelines)
        for pipeline in pipelines:
            await pipeline.transform()
        await embed(pipelines)
        await retrieve(pipelines)
        await measure(pipelines)
        for pipeline in pipelines:
            await pipeline.fuse()
        for refiner in recipe.refiners:
            await refine(refiner, pipelines)
        return [pipeline.answer() for pipeline in pipelines]


def search_now(recipe: Recipe, queries: Sequence[Query]) -> list[RetrievalContext]:
    """`search` for synchronous code; needs no event loop, and works while one is running."""
    return run(search([recipe] * len(queries), queries, Threads()))


def unanswered(recipe: Recipe, query: Query, why: str) -> RetrievalContext:
    """The empty answer to a question that was not searched."""
    plan = Plan(
        recipe.alone or tuple(recipe.sources), recipe.strategy or recipe.method, why, decisions=recipe.decisions
    )
    return RetrievalContext(query, (), plan, Trace(), degraded=(why,), asked=query)


@dataclass(slots=True)
class Pipeline:
    """The search for one question; each method is a stage, and stores its result here."""

    recipe: Recipe
    asked: Query
    mode: Mode
    seconds: float | None  # for all questions of the batch
    readings: Mapping[str, Reading]  # of all datasets of the recipe
    journal: Journal = field(init=False)
    names: list[str] = field(init=False)
    route_reason: str = ""
    plan: Plan = field(init=False)
    over: Over = field(init=False)  # the recipe applied to the routed sources
    query: Query = field(init=False)
    variants: Sequence[Variant] = ()
    transformed: Any = None  # by `bind`, or why it failed
    bound: float = 0.0  # when
    unembedded: dict[int, Exception] = field(default_factory=dict)  # see `Question`
    answered: Sequence[BranchAnswers] = ()
    ranked: Ranked = field(default=Ranked((), "none"))
    verdict: Verdict = NOTHING
    spelling: Spelling | None = None
    has_variants: bool = False
    incomplete: str = ""
    """Why the transformer could not add what it should."""

    def __post_init__(self) -> None:
        self.journal = Journal(self.seconds)
        self.query, self.names = self.asked, list(self.recipe.sources)
        self.journal.degrade(*self.recipe.notes)

    async def route(self) -> None:
        """Choose the sources; if the router fails, all are searched."""
        start, router = self.journal.now(), self.recipe.router
        routable = [source for source in self.recipe.sources.values() if isinstance(source, Source)]
        if router is not None and len(routable) > 1:
            from pointsman.retrieval.routing.router import RouteDecision

            query = self.query
            call = DualCall(lambda: router.decide(query, routable), lambda: router.adecide(query, routable))
            decision: Any = await self.attempt(call, self.before_searching())
            if not isinstance(decision, RouteDecision):
                self.failed("route", start, cause_of(decision), "all datasets are searched")
            else:
                selected = {dataset.name for dataset in decision.datasets}
                excluded = {id(source) for source in routable if source.name not in selected}
                selected |= {  # retrievers are not routed, but one over a dataset is left out with it
                    name
                    for name, source in self.recipe.sources.items()
                    if not isinstance(source, Source) and id(getattr(source, "dataset", None)) not in excluded
                }
                self.names = [name for name in self.names if name in selected]
                self.route_reason = f"{decision.reason}; "
                if decision.fallback is not None:
                    self.journal.span("route", decision.reason, start, len(selected), decision.fallback.why)
                    self.journal.degrade(f"route: {decision.fallback.why}; all datasets are searched")

    def bind(self) -> None:
        """Apply the recipe to the routed sources, and transform the query if that is a matter of microseconds."""
        start = self.journal.now()
        self.over = self.recipe.over(self.names, RoutedLookup)
        plan = self.over.plan
        self.plan = replace(plan, reason=f"{self.route_reason}{plan.reason}") if self.route_reason else plan
        self.journal.tell(self.plan)
        detail = f"{plan.strategy} over {', '.join(self.names) or 'nothing'}: {self.plan.reason}"
        self.journal.span("plan", detail, start, len(self.names))
        at_once = getattr(self.over.transformer, "at_once", None)
        if at_once is not None and self.names:
            self.bound = self.journal.now()
            try:
                self.transformed = at_once(self.query)
            except Exception as error:  # noqa: BLE001  (reported in the answer by `transform`)
                self.transformed = error

    async def transform(self) -> None:
        """Rewrite the query for the routed sources; if that fails, the query stays unchanged."""
        bound, query = self.over.transformer, self.query
        if bound is None or not self.names:
            return
        from pointsman.retrieval.transform.base import Transformed

        transformed, start = self.transformed, self.bound
        if transformed is None:
            start = self.journal.now()
            call = DualCall(lambda: bound.transform(query), lambda: bound.atransform(query))
            transformed = await self.attempt(call, self.before_searching())
        if not isinstance(transformed, Transformed):
            self.failed("transform", start, cause_of(transformed), "the query is searched unchanged")
            self.incomplete = "the query was not transformed"
            return
        self.journal.degrade(*transformed.degraded)
        problem = self.incomplete = "; ".join(transformed.degraded)
        self.journal.span("transform", transformed.detail, start, len(transformed.variants), problem or None)
        self.query, self.spelling = transformed.query, transformed.spelling
        self.variants = [variant for variant in transformed.variants if _is_sound(variant)]
        for variant in transformed.variants:
            if variant not in self.variants:
                self.journal.degrade(f"transform: a variant that cannot be searched was left out: {variant!r:.200}")

    def questions(self) -> list[Question]:
        """The query and its variants, one question each."""
        variants = [
            Question(replace(self.query, text=variant.text), f"{variant.kind} {number}", variant, self.unembedded)
            for number, variant in enumerate(self.variants, 1)
        ]
        return [Question(self.query, unembedded=self.unembedded), *variants]

    async def fuse(self) -> None:
        """Fuse all lists into one ranking, and fetch the documents that the later stages need."""
        start, recipe = self.journal.now(), self.recipe
        if not self.answered:
            return
        many = len(self.names) > 1
        store_keys = await self._store_keys()
        own = self._together(self.answered[0], self.query.text, store_keys[0]) if self.answered[0].results else None
        beside = [
            (question.label, question.variant, self._together(answer, question.variant.text, keys))
            for question, answer, keys in zip(self.questions()[1:], self.answered[1:], store_keys[1:], strict=True)
            if answer.results and question.variant is not None and self._is_related(question.variant, answer)
        ]
        self.has_variants = bool(beside)
        spread = self._spread()
        self._note_raised(own)
        self._note_unsearched_words()
        weights, detail = self._weigh(own, spread)
        try:
            results, fused = own, None
            if beside:
                results, fused = await self._with_variants(own, beside, spread, weights)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            self.failed("fuse", start, error, "variants of the query are left out")
            results, fused = own, None
        if results is None:
            return
        try:
            fused = fused or results.pool.fused(self.plan.strategy, spread, weights)
        except InputError:
            raise
        except Exception as error:
            raise RetrievalError("the results could not be fused", {"fuse": error}) from error
        self.journal.fused(results, fused)
        self.journal.span("fuse", f"{fused.scale}{detail}", start, len(fused.ranking))
        start = self.journal.now()
        top = fused.ranking[: recipe.depth_of(fused.scale)]
        keys = [key for key, _ in top]
        ways = provenance(results.pool, keys, fused.share)
        try:
            versions = await self.mode.one(_in_thread(partial(fetch, results, keys, ways)))
        except Exception as error:
            raise RetrievalError("the results could not be fetched", {"fetch": error}) from error
        documents = {
            key: version.document if isinstance(version, Hit) else version[1]
            for key, version in zip(keys, versions, strict=True)
            if version is not None
        }
        self.journal.span("fetch", "documents", start, len(documents))
        if not documents and self.query.filters is not None and not self.answered[0].failed:
            from pointsman.retrieval.cutoff import unknown_keys

            self.journal.degrade(*unknown_keys(self.query.filters, self.answered[0].results.values()))
        self._judge(results, documents, many=many)
        best = self.verdict.best
        hits = build_hits(results, top, versions, ways, None if best is None else self.verdict.relevance)
        self.ranked = Ranked(tuple(hits), fused.scale)
        if best is not None:
            self.ranked = Ranked(self.ranked.hits, fused.scale, best=best.best, needed=best.minimum)

    def _is_related(self, variant: Variant, answer: BranchAnswers) -> bool:
        """Whether a variant has to do with the query; the answer says so if a language model wrote one that has not."""
        if not variant.by_model or not self.answered[0].results:
            return True
        from pointsman.retrieval.variants import is_unrelated

        if not is_unrelated(self.query.text, variant, self.answered[0].results, answer.results):
            return True
        self.incomplete = "what the language model wrote has nothing to do with the question"
        self.journal.degrade(f"transform: {self.incomplete}, and is left out: {variant.text[:80]!r}")
        return False

    async def _store_keys(self) -> Sequence[Mapping[Any, Any]]:
        """The stores' keys for what retrievers found of the datasets beside them; one mapping for each question."""
        nothing: list[Mapping[Any, Any]] = [{} for _ in self.answered]
        if len(self.recipe.sources) == len(self.readings):  # there are no retrievers
            return nothing
        try:
            return await self.mode.one(
                _in_thread(lambda: [keys_in_stores(answers.results) for answers in self.answered])
            )
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            self.failed("fuse", self.journal.now(), error, "what a retriever found too is another document")
            return nothing

    def _together(self, answers: BranchAnswers, text: str, store_keys: Mapping[Any, Any]) -> Results:
        """The results of all branches for one text."""
        many, raised = len(self.names) > 1, None
        if many and self.plan.strategy == "hybrid":
            try:
                raised = raised_cosines(answers.results, text, self.recipe.calibrations)
            except Exception as error:  # noqa: BLE001  (reported in the answer)
                self.failed("fuse", self.journal.now(), error, "languages are not allowed for")
        return together(answers.results, many=many, raised=raised, store_keys=store_keys)

    def _note_raised(self, own: Results | None) -> None:
        """Say in the plan which datasets are in another language than the query, if that makes a difference."""
        raised = {} if own is None else own.pool.raised
        added = [
            f"{part.reading.name} +{raised[number]:.3f}"
            for number, part in self.answered[0].results.items()
            if number in raised and isinstance(part, StoreResults)
        ]
        if added:
            reason = f"{self.plan.reason}; cosines across languages are raised: {', '.join(added)}"
            self.plan = replace(self.plan, reason=reason)

    def _note_unsearched_words(self) -> None:
        """Say in the plan which datasets were searched without words of a script that is rare in them."""
        names = [
            part.reading.name
            for part in self.answered[0].results.values()
            if isinstance(part, StoreResults) and part.store_query.text not in {None, self.query.text}
        ]
        if names:
            reason = f"words in a script that is rare in {', '.join(names)} are not searched there"
            self.plan = replace(self.plan, reason=f"{self.plan.reason}; {reason}")

    def _judge(self, results: Results, documents: Mapping[Any, Document], *, many: bool) -> None:
        """Judge the relevance of every document that can be judged."""
        start = self.journal.now()
        try:
            self.verdict = judge(
                self.answered[0].results,
                results,
                self.query,
                documents,
                self.recipe.calibrations,
                self.recipe.fitted,
                many=many,
            )
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            self.failed("judge", start, error, "hits have no relevance")

    async def _with_variants(
        self, own: Results | None, beside: Beside, spread: CosineSpread | None, weights: Mapping[str, float]
    ) -> tuple[Results, Fused[Any]]:
        """The ranking with the evidence of the query's variants added."""
        from pointsman.retrieval.variants import added_up, by_rank, can_add, keys_beside, with_first_kept

        keys, method = keys_beside(own, beside), self.plan.strategy
        if own is None:
            return by_rank(own, own, beside, method, spread, weights)
        if spread is None or self.recipe.variants_by_rank or not can_add(own, beside, method, spread):
            [whole] = await complete([own], keys, self.mode)
            results, fused = by_rank(own, whole, beside, method, spread, weights)
        else:
            whole, *others = await complete([own, *(results for _, _, results in beside)], keys, self.mode)
            beside = [(label, variant, result) for (label, variant, _), result in zip(beside, others, strict=True)]
            results, fused = added_up(whole, beside, spread, weights)
        if not any(variant.by_model for _, variant, _ in beside):
            return results, fused
        return results, with_first_kept(fused, own.pool.fused(method, spread, weights))

    def _spread(self) -> CosineSpread | None:
        """One scale of cosines for all results."""
        if self.plan.strategy != "hybrid":
            return None
        stores = [results for results in self.answered[0].results.values() if isinstance(results, StoreResults)]
        embedders = {results.reading.embedder_name for results in stores} - {None}
        if len(embedders) > 1:
            names = ", ".join(sorted(map(str, embedders)))
            self.journal.degrade(f"cosines of different embedders are compared without conversion: {names}")
        return CosineSpread.shared([results.spread for results in stores])

    def _weigh(self, own: Results | None, spread: CosineSpread | None) -> tuple[Mapping[str, float], str]:
        """The weights that the policy gives the lists, and the reason; both go into the plan."""
        policy = self.recipe.policy
        weighable = self.plan.strategy == "hybrid" and own is not None and own.pool.scores.keys() >= SCALES.keys()
        if not (self.recipe.weighs and weighable and policy is not None and own is not None and spread is not None):
            return {}, ""
        weights, reason = policy.weigh(own.pool.span(spread))
        self.plan = replace(self.plan, weights=weights, reason=f"{self.plan.reason}; {reason}")
        return weights, f": {reason}"

    def refined(self, stage: str, start: float, refined: Any) -> None:
        """Adopt the ranking that a refiner returned; keep the previous one if it is invalid."""
        if (cause := cause_of(refined) if not isinstance(refined, Ranked) else _unsound(refined)) is not None:
            self.failed(stage, start, cause, "the previous ranking is kept")
            return
        self.journal.ranked(stage, refined)
        self.journal.span(stage, refined.detail, start, len(refined.hits), "; ".join(refined.degraded) or None)
        self.ranked = replace(refined, best=self.ranked.best, needed=self.ranked.needed)

    def answer(self) -> RetrievalContext:
        """The first hits, with everything noted during the search."""
        hits, coverage = self.verdict.of(self.ranked.hits[: self.recipe.most]), None
        if self.recipe.coverage is not None:
            hits, coverage = self._covering(hits, self.recipe.coverage)
        refused = self.ranked.refused
        if refused is not None and refused.near_misses:
            refused = replace(refused, near_misses=self.verdict.of(refused.near_misses[: self.recipe.k]))
        confidence = self.verdict.confidence(refused.near_misses if refused else hits)
        if self.recipe.min_relevance is not None and refused is None:
            hits, refused = self._relevant(hits, self.recipe.min_relevance)
        plan = self._plan_of_what_was_done()
        trace = self.journal.trace(hits)
        context = RetrievalContext(
            self.query,
            hits,
            plan,
            trace,
            refused,
            tuple(self.journal.degraded),
            self.asked,
            confidence,
            self.spelling,
            coverage,
        )
        telemetry.export(context, self.recipe.k)
        return context

    def _plan_of_what_was_done(self) -> Plan:
        """The plan under the name of the strategy, unless the strategy could add nothing: then it was plain search."""
        plan, strategy = self.plan, self.recipe.strategy
        if not strategy:
            return plan
        if self.has_variants or not self.incomplete:
            return replace(plan, strategy=strategy)
        reason = f"{plan.reason}; {strategy!r} could add nothing, so this is plain search"
        return replace(plan, reason=reason, confidence=None)

    def _covering(self, hits: tuple[Hit, ...], asked: float) -> tuple[tuple[Hit, ...], float | None]:
        """The fewest hits that hold an answer with this probability, and the probability if it is promised.

        Otherwise the first ``k`` hits and None; the plan and ``degraded`` say why.
        """
        from pointsman.retrieval.cutoff import hits_to_cover

        start, k = self.journal.now(), self.recipe.k
        is_refused, is_degraded = self.ranked.refused is not None, bool(self.journal.degraded)
        promise = hits_to_cover(
            asked, hits, self.recipe, self.names, self.asked, refused=is_refused, degraded=is_degraded
        )
        if isinstance(promise, str):
            decision = Decision("coverage", "none", "calibration", promise)
            self.journal.degrade(f"coverage: {promise}; the answer has at most {k} hits")
        else:
            detail = f"{promise} of {len(hits)} hits hold an answer with the probability {asked:g}"
            decision = Decision("coverage", f"{asked:g}", "request", detail)
        hits = hits[:k] if isinstance(promise, str) else hits[:promise]
        self.plan = replace(self.plan, decisions=(*self.plan.decisions, decision))
        self.journal.span("coverage", decision.reason, start, len(hits))
        return hits, None if isinstance(promise, str) else asked

    def _relevant(self, hits: tuple[Hit, ...], least: float) -> tuple[tuple[Hit, ...], Refusal | None]:
        """The hits that reach ``least``, or a refusal if none does."""
        from pointsman.retrieval.cutoff import too_irrelevant

        start = self.journal.now()
        if unjudged := sum(hit.relevance is None for hit in hits):
            self.journal.degrade(
                f"min_relevance: {unjudged} hits have no relevance and are kept: no calibration applies"
            )
        reasons, refusal = too_irrelevant(hits, least)
        remaining = tuple(hit for hit in hits if hit.key not in reasons)
        self.journal.ranked("min_relevance", replace(self.ranked, hits=remaining, dropped=reasons, degraded=()))
        self.journal.span("min_relevance", f"{len(reasons)} of {len(hits)} are below {least:g}", start, len(remaining))
        return remaining, refusal

    @property
    def routed(self) -> list[Reading]:
        """The readings of the routed datasets."""
        return [self.readings[name] for name in self.names if name in self.readings]

    def lacking_background(self) -> list[Reading]:
        """The datasets whose hits cannot be judged by their cosines before their background is measured."""
        embedders = {calibration.embedder for calibration in self.recipe.calibrations}
        results = [part for answers in self.answered for part in answers.results.values()]
        return list(
            {
                id(part.reading): part.reading
                for part in results
                if isinstance(part, StoreResults)
                and part.reading.lacks_background
                and part.store_query.vector is not None
                and (
                    (name := embedder_of(part)) in embedders
                    or any(fitted.embedder == name for fitted in self._fitted_to(part.reading.name))
                )
            }.values()
        )

    def _fitted_to(self, dataset: str) -> Sequence[Relevance]:
        calibration = self.recipe.fitted.get(dataset)
        return () if calibration is None else calibration.relevance

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def before_searching(self) -> float | None:
        """Seconds for a stage before the search, so that the search has enough left.

        All such stages together have ``_BEFORE`` of the time. Language models have half of it, and say so when they
        exceed it; this limit is for everything else.
        """
        remaining = self.journal.deadline.left()
        if remaining is None or self.seconds is None:
            return remaining
        return max(0.0, remaining - (1 - _BEFORE) * self.seconds)

    def for_embedding(self) -> float | None:
        """Seconds for embedding: three quarters of the branches' time, so that words can still be searched."""
        remaining = self.for_branches()
        return None if remaining is None else 0.75 * remaining

    def for_branches(self) -> float | None:
        """Seconds for the branches: all the remaining time, less a fifth if a later stage may need some."""
        remaining = self.journal.deadline.left()
        has_later_stages = any(not refiner.in_place for refiner in self.recipe.refiners)
        return remaining if remaining is None or not has_later_stages else 0.8 * remaining

    def for_measuring(self) -> float | None:
        """Seconds for measuring what readings lack: half of the remaining time."""
        remaining = self.journal.deadline.left()
        return None if remaining is None else remaining / 2

    async def attempt(self, call: DualCall[T], budget: float | None) -> T | Exception:
        """The answer of a call, or its error."""
        outcome = (await self.mode.all([call], budget))[0]
        if outcome.answer is not None:
            return outcome.answer
        return outcome.error or TypeError("it returned None")

    def failed(self, stage: str, start: float, error: Exception, instead: str) -> None:
        """Note that a stage failed, and what happens instead."""
        cause = describe(error)
        self.journal.span(stage, f"failed; {instead}", start, None, cause)
        self.journal.degrade(f"{stage}: {cause}; {instead}")
        log.warning("%s failed, %s: %s", stage, instead, cause)


# ── stages that questions share ──────────────────────────────────────────────────────────────────────────────────────


async def open_readings(pipelines: Sequence[Pipeline]) -> None:
    """Open the routed datasets, and bind the recipes to them: all that a search reads before it waits for a model."""
    readings = {id(reading): reading for pipeline in pipelines for reading in pipeline.routed}

    def open_each() -> None:
        telemetry.prepare()
        for reading in readings.values():
            reading.open()
        for pipeline in pipelines:
            pipeline.bind()

    await pipelines[0].mode.one(_in_thread(open_each))


async def measure(pipelines: Sequence[Pipeline]) -> None:
    """Measure what the readings lack, under the deadline: the background of vectors that were imported.

    What is late is measured to its end in its thread, and known to the next search. A dataset whose measurement is late
    again and again is left out for a while.
    """
    first = pipelines[0]
    lacking: dict[int, tuple[Reading, list[Pipeline]]] = {}
    for pipeline in pipelines:
        for reading in pipeline.lacking_background():
            lacking.setdefault(id(reading), (reading, []))[1].append(pipeline)
    if not lacking:
        return
    start, breaker = first.journal.now(), first.recipe.breaker
    jobs = []
    for reading, waiting_pipelines in lacking.values():
        name = f"background of {reading.name}"
        if (reason := breaker.why_not(name)) is not None:
            _say_unmeasured(waiting_pipelines, name, f"it is {reason}")
        else:
            jobs.append((reading, waiting_pipelines, name))
    limit = first.for_measuring()
    outcomes = await first.mode.all([_in_thread(reading.measure) for reading, _, _ in jobs], limit) if jobs else []
    for (reading, waiting_pipelines, name), outcome in zip(jobs, outcomes, strict=True):
        error = None if not reading.lacks_background else outcome.error
        breaker.record(name, error)
        cause = None if error is None else describe(error)
        for pipeline in waiting_pipelines:
            pipeline.journal.add(Span("measure", name, outcome.milliseconds, None, cause, start))
        if cause is not None:
            _say_unmeasured(waiting_pipelines, name, cause)


def _say_unmeasured(pipelines: Sequence[Pipeline], name: str, cause: str) -> None:
    for pipeline in pipelines:
        pipeline.journal.degrade(f"{name}: {cause}; until it is measured, its hits have no relevance by vectors")
    log.warning("%s was not measured: %s", name, cause)


def _in_thread(function: Callable[[], T]) -> DualCall[T]:
    """A call that runs in place in synchronous code, and in a thread beside an event loop."""
    return DualCall(function, partial(in_thread, function))


async def embed(pipelines: Sequence[Pipeline]) -> None:
    """Embed all texts of all questions in one batch per embedder; the searches then find the vectors ready.

    A query whose embedding fails or is late is searched by words only; several are retried one by one by the searches.
    An embedder that is late again and again is left out for a while.
    """
    breaker, calls, requests = pipelines[0].recipe.breaker, [], []
    for number, (source, missing) in _not_embedded(pipelines).items():
        name = f"embedder of {source.name}"
        if (reason := breaker.why_not(name)) is not None:
            _search_words(pipelines, number, ModelError(f"the embedder is {reason}"))
            continue
        prepare = partial(source.query_vectors.prepare, missing)
        calls.append(DualCall(prepare, partial(in_thread, prepare)))
        requests.append((number, name, missing))
    outcomes = await pipelines[0].mode.all(calls, pipelines[0].for_embedding()) if calls else []
    for (number, name, missing), outcome in zip(requests, outcomes, strict=True):
        error = outcome.error
        late = isinstance(error, TimeoutError)
        breaker.record(name, error if late else None)
        if error is not None and (late or len(missing) == 1):
            _search_words(pipelines, number, error)
        elif error is not None:  # the searches retry one by one, and each reports its own failure
            log.warning("embedding several queries at once failed: %s", describe(error))


def _not_embedded(pipelines: Sequence[Pipeline]) -> dict[int, tuple[Source, list[str]]]:
    """The texts whose vectors are needed and not remembered, with a source of each embedder."""
    batches: dict[int, tuple[Source, dict[str, None]]] = {}
    for pipeline in pipelines:
        for name, method in pipeline.over.methods.items():
            reading = pipeline.readings[name]
            source = reading.source
            if reading.embeds and source.lists_for(method)[1]:
                _, texts = batches.setdefault(id(source.query_vectors), (source, {}))
                texts[pipeline.query.text] = None
                texts.update(dict.fromkeys(variant.text for variant in pipeline.variants if not variant.as_passage))
    missing = {
        number: (source, [text for text in texts if text not in source.query_vectors])
        for number, (source, texts) in batches.items()
    }
    return {number: batch for number, batch in missing.items() if batch[1]}


def _search_words(pipelines: Sequence[Pipeline], number: int, error: Exception) -> None:
    """Search without the vectors of this embedder, and say so."""
    for pipeline in pipelines:
        pipeline.unembedded[number] = error


async def retrieve(pipelines: Sequence[Pipeline]) -> None:
    """Search every branch for all questions and variants; questions with the same sources share their round trips."""
    groups: dict[tuple[str, ...], list[Pipeline]] = {}
    for pipeline in pipelines:
        groups.setdefault(tuple(pipeline.names), []).append(pipeline)
    errors: list[Exception] = []
    for names, group in groups.items():
        if not names:
            continue
        first, recipe = group[0], group[0].recipe
        wider_search = first.over
        question_groups = [pipeline.questions() for pipeline in group]
        journals = [
            pipeline.journal for pipeline, questions in zip(group, question_groups, strict=True) for _ in questions
        ]
        answers = await ask(
            recipe.branches(names, wider_search, first.readings),
            [question for questions in question_groups for question in questions],
            max(recipe.depth, wider_search.depth),
            first.mode,
            journals,
            breaker=recipe.breaker,
            budget=first.for_branches(),
        )
        start = 0
        for pipeline, questions in zip(group, question_groups, strict=True):
            pipeline.answered = answers[start : start + len(questions)]
            start += len(questions)
            if not any(answer.results for answer in pipeline.answered):
                failures = {name: error for answer in pipeline.answered for name, error in answer.failed.items()}
                errors.append(nothing_answered(failures))
                pipeline.answered = ()
                pipeline.journal.degrade(describe(errors[-1]))
    if errors and len(errors) == len(pipelines):
        raise errors[0]
    for error in errors:
        log.warning("a search failed, others answer: %s", describe(error))


async def refine(refiner: BaseRefiner, pipelines: Sequence[Pipeline]) -> None:
    """Let a refiner reshape every ranking that is not refused, in one batch if it can; if it fails, they stay."""
    pipelines = [pipeline for pipeline in pipelines if pipeline.ranked.refused is None]
    refine_many = getattr(refiner, "refine_many", None)
    if refine_many is None or len(pipelines) < 2:
        for pipeline in pipelines:
            start = pipeline.journal.now()
            pipeline.refined(refiner.stage, start, await _refined(refiner, pipeline))
        return
    starts = [pipeline.journal.now() for pipeline in pipelines]
    queries, rankings, k = (
        [pipeline.query for pipeline in pipelines],
        [pipeline.ranked for pipeline in pipelines],
        pipelines[0].recipe.most,
    )

    def at_once() -> Any:
        return refine_many(queries, rankings, k)

    limit = None if refiner.timeout is None else refiner.timeout * len(pipelines)
    call: DualCall[Any] = DualCall(at_once, lambda: in_thread(at_once))
    answers = await pipelines[0].attempt(call, pipelines[0].journal.deadline.left(limit))
    if not isinstance(answers, Sequence) or len(answers) != len(pipelines):
        answers = [cause_of(answers)] * len(pipelines)
    for pipeline, start, answer in zip(pipelines, starts, answers, strict=True):
        pipeline.refined(refiner.stage, start, answer)


async def _refined(refiner: BaseRefiner, pipeline: Pipeline) -> Any:
    """The ranking that a refiner returns, or the error it raises."""
    query, ranking, k = pipeline.query, pipeline.ranked, pipeline.recipe.most
    if refiner.in_place:
        try:
            return refiner.refine(query, ranking, k)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            return error
    call = DualCall(lambda: refiner.refine(query, ranking, k), lambda: refiner.arefine(query, ranking, k))
    return await pipeline.attempt(call, pipeline.journal.deadline.left(refiner.timeout))


# ── what transformers may use ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RoutedLookup:
    """The routed sources, for transformers that need to search first; a `Lookup`.

    Such a search uses the breaker and the policy of the search it serves, but transforms and
    refines nothing.
    """

    recipe: Recipe
    names: Sequence[str]

    @property
    def sources(self) -> list[Any]:
        """The routed sources."""
        return [self.recipe.sources[name] for name in self.names]

    def search(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """Return the best hits for a query."""
        return search_now(self._plain(k, seconds), [query])[0]

    async def asearch(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """Async version of `search`."""
        return (await search([self._plain(k, seconds)], [query], Tasks()))[0]

    def _plain(self, k: int, seconds: float | None) -> Recipe:
        sources = {name: self.recipe.sources[name] for name in self.names}
        timeout = self.recipe.timeout if seconds is None else seconds
        return replace(
            self.recipe, sources=sources, k=k, router=None, transformer=None, refiners=(), timeout=timeout, strategy=""
        )


def _spending(recipe: Recipe, questions: int, limit: float | None) -> Any:
    """A context in which every call of a language model counts against the recipe's budget for each question."""
    budget = recipe.budget
    if budget is None:
        return nullcontext()
    from pointsman.retrieval.budget import spending

    seconds = None if budget.seconds is None else questions * budget.seconds
    shared_budget = replace(budget, calls=questions * budget.calls, tokens=questions * budget.tokens, seconds=seconds)
    return spending(shared_budget, limit, recipe.breaker)


def cause_of(answer: Any) -> Exception:
    """The error that came back in place of an answer, or a TypeError about an answer of the wrong type."""
    return answer if isinstance(answer, Exception) else TypeError(f"it returned {type(answer).__name__}")


def _is_sound(variant: Variant) -> bool:
    """Whether the text, method and weight of a variant are valid."""
    weight = variant.weight
    return (
        isinstance(variant.text, str)
        and (variant.method is None or variant.method in LISTS)
        and isinstance(weight, (int, float))
        and math.isfinite(weight)
        and weight >= 0
    )


def _unsound(ranked: Ranked) -> Exception | None:
    """What is wrong with a ranking that a refiner returned; None if nothing is."""
    hits: Any = ranked.hits
    if not isinstance(hits, tuple | list) or not all(isinstance(hit, Hit) for hit in hits):
        return TypeError("its ranking contains something other than hits")
    if len({hit.key for hit in hits}) < len(hits):
        return ValueError("its ranking contains a hit more than once")
    if not all(isinstance(hit.score, int | float) and math.isfinite(hit.score) for hit in hits):
        return ValueError("its ranking contains scores that are not finite numbers")
    if ranked.refused is not None and hits:
        return ValueError("its ranking is refused and has hits")
    if not isinstance(ranked.dropped, Mapping) or not isinstance(ranked.degraded, tuple | list):
        return TypeError("its ranking has a ``dropped`` that is not a mapping, or a ``degraded`` that is not a tuple")
    return None
