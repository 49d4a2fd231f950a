"""A search, stage by stage; `search` is the diagram.

::

    Query ─ route ─ open ─ transform ─ embed ─ retrieve ∥ ─ fuse ─ fetch ─ judge ─ refine … ─ RetrievalContext

Refiners rerank, refuse, diversify and compress. A `Recipe` defines each stage and its limits. One question and many
take the same path; many questions share one embedding batch, one round trip to each store, and one reranking batch.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman.retrieval.fusion import SCALES, CosineSpread
from pointsman.retrieval.parallel_calls import DualCall, Mode, Threads, describe, run
from pointsman.retrieval.plan.routed_lookup import RoutedLookup
from pointsman.retrieval.run import telemetry
from pointsman.retrieval.run.branches import Question, ask, nothing_answered
from pointsman.retrieval.run.candidates import (
    Results,
    StoreResults,
    build_hits,
    fetch,
    keys_in_stores,
    provenance,
    together,
)
from pointsman.retrieval.run.journal import Journal
from pointsman.retrieval.run.judging import NOTHING, Verdict, holders_of_word, judge, raised_cosines
from pointsman.retrieval.run.reading import Reading, reading_each
from pointsman.retrieval.run.source import Source, check_all_searchable
from pointsman.tools.errors import InputError, ModelError, RetrievalError
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.trace import Trace
from pointsman.values.types import Hit, Plan, Query, Ranked, RetrievalContext, keys_of

if TYPE_CHECKING:
    from pointsman.retrieval.plan.recipe import Over, Recipe
    from pointsman.retrieval.refine.base_refiner import BaseRefiner
    from pointsman.retrieval.refine.diversity import Grouping
    from pointsman.retrieval.run.branches import BranchAnswers
    from pointsman.retrieval.run.candidates import Fetched
    from pointsman.retrieval.run.in_force import InForce
    from pointsman.retrieval.run.variant import Variant
    from pointsman.values.types import Provenance, Spelling

log = logging.getLogger(__name__)

T = TypeVar("T")


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
    limit = seconds
    if recipe.timeout is not None:
        limit = min(math.inf if seconds is None else seconds, recipe.timeout * len(queries))
    with reading_each(sources) as readings, _spending(recipe, len(queries), limit):
        pipelines = [
            Pipeline(recipe, query, mode, limit, readings) for recipe, query in zip(recipes, queries, strict=True)
        ]
        for pipeline in pipelines:
            await pipeline.route()
        await open_readings(pipelines)
        for pipeline in pipelines:
            await pipeline.transform()
        await embed(pipelines)
        new_readings = await measure_new(pipelines)
        await retrieve(pipelines)
        await measure(pipelines, new_readings)
        if recipe.grouping is not None:
            for pipeline in pipelines:
                await pipeline.fill_groups(recipe.grouping)
        for pipeline in pipelines:
            await pipeline.fuse()
            await pipeline.fetch()
            pipeline.judge()
            await pipeline.prefer_in_force()
            if recipe.grouping is not None:
                pipeline.group(recipe.grouping)
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
class FusedCandidates:
    """The first candidates of a fused ranking, and what is known of them.

    Attributes:
        results: where they are from.
        scale: of their scores.
        top: keys and scores, best first.
        keys: the keys alone.
        steps: by key, its rank and score in every list.
        versions: of each key, the document, or the retriever's hit.
    """

    results: Results
    scale: str
    top: Sequence[tuple[Any, Any]]
    keys: Sequence[Any]
    steps: dict[Any, list[Provenance]]
    versions: Sequence[Fetched] = ()


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
    bound: float = 0.0  # when, by `perf_counter`
    unembedded: dict[int, Exception] = field(default_factory=dict)  # see `Question`
    questions: Sequence[Question] = ()  # the query, and its variants
    answered: Sequence[BranchAnswers] = ()  # to each of them
    first: FusedCandidates | None = None
    ranked: Ranked = field(default=Ranked((), "none"))
    verdict: Verdict = NOTHING
    spelling: Spelling | None = None
    has_variants: bool = False
    in_force: InForce | None = None  # if a dataset has versions
    incomplete: str = ""
    """Why the transformer could not add what it should."""

    def __post_init__(self) -> None:
        self.journal = Journal(self.seconds, self.recipe.notes)
        self.query, self.names = self.asked, list(self.recipe.sources)

    async def route(self) -> None:
        """Choose the sources; if the router fails, all are searched.

        Raises:
            InputError: access is on for one of them, and nobody said who asks: a router reads all of them.
        """
        router, query = self.recipe.router, self.query
        if router is None:
            return
        start = perf_counter()
        routable = [source for source in self.recipe.sources.values() if isinstance(source, Source)]
        if len(routable) < 2:
            return
        from pointsman.retrieval.plan.routers import RouteDecision

        await self.mode.blocking(partial(check_all_searchable, routable))
        call = DualCall(lambda: router.decide(query, routable), lambda: router.adecide(query, routable))
        decision: Any = await self.attempt(call, self.journal.deadline.before_searching())
        if not isinstance(decision, RouteDecision):
            self.failed("route", start, cause_of(decision), "all datasets are searched")
            return
        selection = {dataset.name for dataset in decision.datasets}
        excluded_ids = {id(source) for source in routable if source.name not in selection}
        selection |= {  # retrievers are not routed, but one over a dataset is left out with it
            name
            for name, source in self.recipe.sources.items()
            if not isinstance(source, Source) and id(getattr(source, "dataset", None)) not in excluded_ids
        }
        self.names = [name for name in self.names if name in selection]
        self.route_reason = f"{decision.reason}; "
        if decision.fallback is not None:
            self.journal.span("route", decision.reason, start, len(selection), decision.fallback.why)
            self.journal.degrade(f"route: {decision.fallback.why}; all datasets are searched")

    def bind(self) -> None:
        """Apply the recipe to the routed sources, and transform the query if that is a matter of microseconds."""
        start = perf_counter()
        self.over = self.recipe.over(self.names, partial(RoutedLookup, carry_out=search))
        plan = self.over.plan
        self.plan = replace(plan, reason=f"{self.route_reason}{plan.reason}") if self.route_reason else plan
        self.journal.tell(self.plan)
        detail = f"{plan.strategy} over {', '.join(self.names) or 'nothing'}: {self.plan.reason}"
        self.journal.span("plan", detail, start, len(self.names))
        at_once = getattr(self.over.transformer, "at_once", None)
        if at_once is not None and self.names:
            self.bound = perf_counter()
            try:
                self.transformed = at_once(self.query)
            except Exception as error:  # noqa: BLE001  (reported in the answer by `transform`)
                self.transformed = error

    async def transform(self) -> None:
        """Rewrite the query for the routed sources; if that fails, the query stays unchanged."""
        bound, query = self.over.transformer, self.query
        if bound is None or not self.names:
            return
        from pointsman.retrieval.plan.transform.base_transformer import Transformed

        transformation, start = self.transformed, self.bound
        if transformation is None:
            start = perf_counter()
            call = DualCall(lambda: bound.transform(query), lambda: bound.atransform(query))
            transformation = await self.attempt(call, self.journal.deadline.before_searching())
        if not isinstance(transformation, Transformed):
            self.failed("transform", start, cause_of(transformation), "the query is searched unchanged")
            self.incomplete = "the query was not transformed"
            return
        if transformation.degraded:
            self.journal.degrade(*transformation.degraded)
        problem = self.incomplete = "; ".join(transformation.degraded)
        self.journal.span("transform", transformation.detail, start, len(transformation.variants), problem or None)
        self.query, self.spelling = transformation.query, transformation.spelling
        self.variants = [variant for variant in transformation.variants if variant.is_sound]
        for variant in transformation.variants:
            if variant not in self.variants:
                self.journal.degrade(f"transform: a variant that cannot be searched was left out: {variant!r:.200}")

    async def fill_groups(self, grouping: Grouping) -> None:
        """Search on for hits of other groups, if those that were found are of too few."""
        from pointsman.retrieval.grouping import STAGE, fill

        over, questions, answered = self.over, self.questions, self.answered
        try:
            self.answered = await fill(
                grouping, self.recipe, over, self.readings, self.names, questions, answered, self.mode, self.journal
            )
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            self.failed(STAGE, perf_counter(), error, "hits of other groups may be missing")

    def group(self, grouping: Grouping) -> None:
        """Leave out the hits that exceed their group."""
        from pointsman.retrieval.grouping import limit_groups

        ranking = limit_groups(grouping, self.ranked, self.journal)
        self.ranked = replace(ranking, hits=ranking.hits[: self.recipe.depth_of(ranking.scale)])

    async def fuse(self) -> None:
        """Fuse all lists into one ranking: those of all branches, and those of the query's variants."""
        if not self.answered:
            return
        start = perf_counter()
        main_results, variant_results = await self._together()
        self.has_variants = bool(variant_results)
        spread = self._spread()
        weights, reason = self._weigh(main_results, spread)
        if reasons := [*self._reasons(main_results), *([reason] if reason else [])]:
            self.plan = replace(self.plan, weights=weights, reason="; ".join([self.plan.reason, *reasons]))
        results, fusion = main_results, None
        if variant_results:
            from pointsman.retrieval.run.variants import combine

            try:
                results, fusion = await combine(
                    main_results,
                    variant_results,
                    self.plan.strategy,
                    spread,
                    weights,
                    self.mode,
                    only_ranks=self.recipe.variants_by_rank,
                )
            except Exception as error:  # noqa: BLE001  (reported in the answer)
                self.failed("fuse", start, error, "variants of the query are left out")
        if results is None:
            return
        try:
            fusion = fusion or results.pool.fused(self.plan.strategy, spread, weights)
        except InputError:
            raise
        except Exception as error:
            raise RetrievalError("the results could not be fused", {"fuse": error}) from error
        self.journal.fused(results, fusion)
        self.journal.span("fuse", f"{fusion.scale}: {reason}" if reason else fusion.scale, start, len(fusion.ranking))
        depth = self.recipe.depth_of(fusion.scale)
        if self.recipe.grouping is not None:
            depth = len(fusion.ranking)
        versioned = [name for name in self.names if name in self.readings and self.readings[name].versions is not None]
        if versioned:
            from pointsman.retrieval.run.in_force import InForce

            self.in_force = InForce([self.readings[name] for name in versioned], self.recipe.today)
            depth = max(depth, self.recipe.depth)  # what is in force may stand far below what it supersedes
        top = fusion.ranking[:depth]
        keys = [key for key, _ in top]
        self.first = FusedCandidates(results, fusion.scale, top, keys, provenance(results.pool, keys, fusion.share))

    async def fetch(self) -> None:
        """Fetch the documents that the later stages need."""
        if (first := self.first) is None:
            return
        start = perf_counter()
        try:
            first.versions = await self.mode.blocking(partial(fetch, first.results, first.keys, first.steps))
        except Exception as error:
            raise RetrievalError("the results could not be fetched", {"fetch": error}) from error
        count = len(first.versions) - first.versions.count(None)
        self.journal.span("fetch", "documents", start, count)
        if not count and self.query.filters is not None and not self.answered[0].failed:
            from pointsman.retrieval.fewer_hits import unknown_keys

            self.journal.degrade(*unknown_keys(self.query.filters, self.answered[0].results.values()))

    def judge(self) -> None:
        """Judge the relevance of every document that can be judged, and build the hits."""
        if (first := self.first) is None:
            return
        documents = {
            key: version.document if isinstance(version, Hit) else version[1]
            for key, version in zip(first.keys, first.versions, strict=True)
            if version is not None
        }
        try:
            self.verdict = judge(
                self.answered[0].results,
                first.results,
                self.query,
                documents,
                self.recipe.calibrations,
                self.recipe.fitted,
                many=len(self.names) > 1,
            )
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            self.failed("judge", perf_counter(), error, "hits have no relevance")
        best = self.verdict.best
        relevance = None if best is None else self.verdict.relevance
        hits = tuple(build_hits(first.results, first.top, first.versions, first.steps, relevance))
        if best is None:
            self.ranked = Ranked(hits, first.scale)
        else:
            self.ranked = Ranked(hits, first.scale, best=best.best, needed=best.minimum)

    async def prefer_in_force(self) -> None:
        """Say which hits are not in force, and put what is in force in their place above them."""
        if (in_force := self.in_force) is None:
            return
        from pointsman.retrieval.run.in_force import STAGE

        start, hits = perf_counter(), in_force.mark(self.ranked.hits)
        if missing := in_force.missing(hits):
            try:
                hits += await self.mode.blocking(partial(in_force.read, missing, self.query.filters))
            except Exception as error:  # noqa: BLE001  (reported in the answer)
                self.failed(STAGE, start, error, "newer versions that no list has found are missing")
        hits = in_force.above_superseded(hits)
        if self.recipe.grouping is None:
            hits = hits[: self.recipe.depth_of(self.ranked.scale)]
        if self.verdict.relevance:
            levels = {hit.key: hit.relevance for hit in hits if hit.relevance is not None}
            self.verdict = replace(self.verdict, relevance={**self.verdict.relevance, **levels})
        count = sum(hit.not_in_force is not None for hit in hits)
        self._reorder(STAGE, start, hits, f"{count} of {len(hits)} hits are not in force on {in_force.day}")

    def _prefer_newer(self, in_force: InForce) -> None:
        """Let newer hits pass older ones, if ``auto`` searches, and put versions in their order again."""
        start = perf_counter()
        newer = in_force.newer_first(self.verdict.of(self.ranked.hits), self.query.text) if self.recipe.weighs else None
        if newer is not None:
            hits, decision = newer
            self.plan = replace(self.plan, decisions=(*self.plan.decisions, decision))
            self._reorder(decision.what, start, hits, decision.reason)
        self.ranked = replace(self.ranked, hits=tuple(in_force.above_superseded(self.ranked.hits)))

    def _reorder(self, stage: str, start: float, hits: Sequence[Hit], reason: str) -> None:
        self.ranked = replace(self.ranked, hits=tuple(hits))
        self.journal.ranked(stage, self.ranked)
        self.journal.span(stage, reason, start, len(hits))

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
        if self.in_force is not None:
            self._prefer_newer(self.in_force)
        recipe, journal, coverage, refused = self.recipe, self.journal, None, self.ranked.refused
        if recipe.grouping is not None and refused is None:  # refiners may have added hits
            self.ranked = recipe.grouping.limit(self.ranked)
            decision = recipe.grouping.decision(self.ranked, self.over.most)
            self.plan = replace(self.plan, decisions=(*self.plan.decisions, decision))
        hits = self.verdict.of(self.ranked.hits[: self.over.most])
        if recipe.coverage is not None:
            from pointsman.retrieval.fewer_hits import cut_to_cover

            hits, coverage, decision = cut_to_cover(
                recipe.coverage, hits, recipe, self.names, self.asked, journal, refused=refused is not None
            )
            self.plan = replace(self.plan, decisions=(*self.plan.decisions, decision))
        if refused is not None and refused.near_misses:
            refused = replace(refused, near_misses=self.verdict.of(refused.near_misses[: recipe.k]))
        confidence = self.verdict.confidence(refused.near_misses if refused else hits)
        if recipe.min_relevance is not None and refused is None:
            from pointsman.retrieval.fewer_hits import relevant_enough

            hits, refused = relevant_enough("min_relevance", recipe.min_relevance, hits, self.ranked, journal)
        context = RetrievalContext(
            self.query,
            hits,
            self._plan_of_what_was_done() if recipe.strategy else self.plan,
            journal.trace(hits),
            refused,
            tuple(journal.degraded),
            self.asked,
            confidence,
            self.spelling,
            coverage,
        )
        if recipe.receipt is not None:
            for reading in self.readings.values():
                if reading.statistics is not None and reading.statistics.recorded_state is not None:
                    context = replace(context, receipt=recipe.receipt(context, self.readings))
                    break
        if telemetry.API in sys.modules:
            telemetry.export(context, recipe.k)
        return context

    # ── parts of stages ──────────────────────────────────────────────────────────────────────────────────────────

    def ask_for_variants(self) -> Sequence[Question]:
        """Note the questions to search for: the query, and its variants."""
        variants = [
            Question(replace(self.query, text=variant.text), f"{variant.kind} {number}", variant, self.unembedded)
            for number, variant in enumerate(self.variants, 1)
        ]
        self.questions = [Question(self.query, unembedded=self.unembedded), *variants]
        return self.questions

    async def _together(self) -> tuple[Results | None, list[tuple[str, Variant, Results]]]:
        """The results of all branches for the query, and for each of its variants that has to do with it."""
        store_keys: Sequence[Mapping[Any, Any]] = [{}] * len(self.answered)
        if len(self.recipe.sources) > len(self.readings):  # retrievers may have found what stores have found
            try:
                store_keys = await self.mode.blocking(
                    lambda: [keys_in_stores(answers.results) for answers in self.answered]
                )
            except Exception as error:  # noqa: BLE001  (reported in the answer)
                self.failed("fuse", perf_counter(), error, "what a retriever found too is another document")
        main, *variants = zip(self.questions, self.answered, store_keys, strict=True)
        variant_results = [
            (question.label, question.variant, self._of_branches(answers, question.variant.text, keys))
            for question, answers, keys in variants
            if answers.results and question.variant is not None and self._is_related(question.variant, answers)
        ]
        return self._of_branches(main[1], self.query.text, main[2]) if main[1].results else None, variant_results

    def _of_branches(self, answers: BranchAnswers, text: str, store_keys: Mapping[Any, Any]) -> Results:
        """The results of all branches for one text."""
        several_datasets, raises = len(self.names) > 1, None
        if several_datasets and self.plan.strategy == "hybrid":
            try:
                raises = raised_cosines(answers.results, text, self.recipe.calibrations)
            except Exception as error:  # noqa: BLE001  (reported in the answer)
                self.failed("fuse", perf_counter(), error, "languages are not allowed for")
        results = together(answers.results, many=several_datasets, raised=raises, store_keys=store_keys)
        if self.plan.strategy == "hybrid" and " " not in text.strip():
            holders = holders_of_word(answers.results, text, many=several_datasets)
            if holders:
                results.pool = replace(results.pool, holders=holders)
        return results

    def _is_related(self, variant: Variant, answers: BranchAnswers) -> bool:
        """Whether a variant has to do with the query; the answer says so if a language model wrote one that has not."""
        if not variant.by_model or not self.answered[0].results:
            return True
        from pointsman.retrieval.run.variants import is_unrelated

        if not is_unrelated(self.query.text, variant, self.answered[0].results, answers.results):
            return True
        self.incomplete = "what the language model wrote has nothing to do with the question"
        self.journal.degrade(f"transform: {self.incomplete}, and is left out: {variant.text[:80]!r}")
        return False

    def _spread(self) -> CosineSpread | None:
        """One scale of cosines for all results."""
        if self.plan.strategy != "hybrid":
            return None
        stores = [results for results in self.answered[0].results.values() if isinstance(results, StoreResults)]
        if len(stores) == 1:
            return CosineSpread.shared([stores[0].spread])
        embedders = {results.reading.embedder_name for results in stores} - {None}
        if len(embedders) > 1:
            names = ", ".join(sorted(map(str, embedders)))
            self.journal.degrade(f"cosines of different embedders are compared without conversion: {names}")
        return CosineSpread.shared([results.spread for results in stores])

    def _reasons(self, main_results: Results | None) -> list[str]:
        """What the plan says of candidates that were raised, and of words that were not searched for."""
        if main_results is None:
            return []
        pool, boosts, names_not_raised = main_results.pool, [], []
        for number, results in self.answered[0].results.items():
            if isinstance(results, StoreResults):
                if number in pool.raised:
                    boosts.append(f"{results.reading.name} +{pool.raised[number]:.3f}")
                if results.store_query.text not in {None, self.query.text}:
                    names_not_raised.append(results.reading.name)
        reasons = ["what holds the word comes first"] if pool.holders else []
        if boosts:
            reasons.append(f"cosines across languages are raised: {', '.join(boosts)}")
        if names_not_raised:
            reasons.append(f"words in a script that is rare in {', '.join(names_not_raised)} are not searched there")
        return reasons

    def _weigh(self, main_results: Results | None, spread: CosineSpread | None) -> tuple[Mapping[str, float], str]:
        """The weights that the policy gives the lists, and the reason."""
        policy = self.recipe.policy
        if policy is None or main_results is None or spread is None or not self.over.weighs:
            return {}, ""
        if not main_results.pool.scores.keys() >= SCALES.keys():
            return {}, ""
        return policy.weigh(main_results.pool.span(spread))

    def _plan_of_what_was_done(self) -> Plan:
        """The plan under the name of the strategy, unless the strategy could add nothing: then it was plain search."""
        plan, strategy = self.plan, self.recipe.strategy
        if self.has_variants or not self.incomplete:
            return replace(plan, strategy=strategy)
        reason = f"{plan.reason}; {strategy!r} could add nothing, so this is plain search"
        return replace(plan, reason=reason, confidence=None)

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
    """Open the routed datasets, and bind the recipes to them: all that a search reads before it waits for a model.

    Raises:
        InputError: access is on, and nobody said who asks.
    """
    names = dict.fromkeys(name for pipeline in pipelines for name in pipeline.names)

    def open_each() -> None:
        readings = pipelines[0].readings
        for name in names:
            if name in readings:
                readings[name].source.check_searchable()
                readings[name].open()
        for pipeline in pipelines:
            pipeline.bind()

    await pipelines[0].mode.blocking(open_each)


async def embed(pipelines: Sequence[Pipeline]) -> None:
    """Embed all texts of all questions in one batch per embedder; the searches then find the vectors ready.

    A query whose embedding fails or is late is searched by words only; several are retried one by one by the searches.
    An embedder that is late again and again is left out for a while.
    """
    first, calls, requests = pipelines[0], [], []
    breaker = first.recipe.breaker
    for number, (source, missing) in _not_embedded(pipelines).items():
        name = f"embedder of {source.name}"
        if (reason := breaker.why_not(name)) is not None:
            _search_words(pipelines, number, ModelError(f"the embedder is {reason}"))
            continue
        prepare = partial(source.query_vectors.prepare, missing)
        calls.append(DualCall(prepare, partial(in_thread, prepare)))
        requests.append((number, name, missing))
    if not calls:
        return
    limit = first.journal.deadline.for_embedding(has_later_stages=first.over.has_later_stages)
    for (number, name, missing), outcome in zip(requests, await first.mode.all(calls, limit), strict=True):
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
        texts = [pipeline.query.text, *[variant.text for variant in pipeline.variants if not variant.as_passage]]
        for name, (_, searches_vectors) in pipeline.over.lists.items():
            if searches_vectors and pipeline.readings[name].embeds:
                source = pipeline.readings[name].source
                if missing := [text for text in texts if text not in source.query_vectors]:
                    _, batch = batches.setdefault(id(source.query_vectors), (source, {}))
                    batch.update(dict.fromkeys(missing))
    return {number: (source, list(batch)) for number, (source, batch) in batches.items()}


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
        first, bound_recipe = group[0], group[0].over
        questions = [(pipeline, question) for pipeline in group for question in pipeline.ask_for_variants()]
        answers = await ask(
            first.recipe.branches(names, bound_recipe, first.readings),
            [question for _, question in questions],
            bound_recipe.depth,
            first.mode,
            [pipeline.journal for pipeline, _ in questions],
            breaker=first.recipe.breaker,
            budget=first.journal.deadline.for_branches(has_later_stages=bound_recipe.has_later_stages),
        )
        start = 0
        for pipeline in group:
            pipeline.answered = answers[start : start + len(pipeline.questions)]
            start += len(pipeline.questions)
            if not any(answer.results for answer in pipeline.answered):
                failures = {name: error for answer in pipeline.answered for name, error in answer.failed.items()}
                errors.append(nothing_answered(failures))
                pipeline.answered = ()
                pipeline.journal.degrade(describe(errors[-1]))
    if errors and len(errors) == len(pipelines):
        raise errors[0]
    for error in errors:
        log.warning("a search failed, others answer: %s", describe(error))


async def measure_new(pipelines: Sequence[Pipeline]) -> list[Reading]:
    """Measure the background of datasets that no search has judged yet, under the deadline; returns these datasets.

    It must be known before a search: among documents in several languages, questions are searched without their own.
    A store elsewhere is not kept waiting for, unless it is a view, which must answer as a store of its own would; the
    first search of vectors that were imported there is judged as of one language.
    """
    for reading in pipelines[0].readings.values():
        info, has_odds = reading.info, pipelines[0].recipe.has_odds
        if reading.is_new and info is not None and has_odds(reading.name, info.embedder):
            from pointsman.retrieval.run.missing_backgrounds import new_readings

            return await _measure(
                pipelines,
                [
                    new_readings(pipeline.over.lists, pipeline.readings, pipeline.query.text, pipeline.recipe.has_odds)
                    for pipeline in pipelines
                ],
            )
    return []


async def measure(pipelines: Sequence[Pipeline], tried: Sequence[Reading]) -> None:
    """Measure what the readings still lack, under the deadline: the background of vectors that were imported.

    Args:
        pipelines: the questions.
        tried: what was to be measured before the search; if it was late, it is not waited for again.
    """
    for reading in pipelines[0].readings.values():
        info, has_odds = reading.info, pipelines[0].recipe.has_odds
        if reading.lacks_background and info is not None and has_odds(reading.name, info.embedder):
            from pointsman.retrieval.run.missing_backgrounds import lacking_background

            lacking = [lacking_background(pipeline.answered, pipeline.recipe.has_odds) for pipeline in pipelines]
            await _measure(pipelines, [[one for one in readings if one not in tried] for readings in lacking])
            return


async def _measure(pipelines: Sequence[Pipeline], readings_of_each: Sequence[Sequence[Reading]]) -> list[Reading]:
    """Measure what each question needs; returns the readings that were to be measured."""
    lacking = dict[Reading, list[Journal]]()
    for pipeline, readings in zip(pipelines, readings_of_each, strict=True):
        for reading in readings:
            lacking.setdefault(reading, []).append(pipeline.journal)
    if lacking:
        from pointsman.retrieval.run.missing_backgrounds import measure_backgrounds

        first = pipelines[0]
        limit = first.journal.deadline.for_measuring()
        await measure_backgrounds(lacking, first.mode, first.recipe.breaker, limit)
    return list(lacking)


async def refine(refiner: BaseRefiner, pipelines: Sequence[Pipeline]) -> None:
    """Let a refiner reshape every ranking that is not refused, in one batch if it can; if it fails, they stay."""
    pipelines = [pipeline for pipeline in pipelines if pipeline.ranked.refused is None]
    refine_many = getattr(refiner, "refine_many", None)
    if refine_many is None or len(pipelines) < 2:
        for pipeline in pipelines:
            start = perf_counter()
            pipeline.refined(refiner.stage, start, await _refined(refiner, pipeline))
        return
    start = perf_counter()
    queries, rankings, k = (
        [pipeline.query for pipeline in pipelines],
        [pipeline.ranked for pipeline in pipelines],
        pipelines[0].over.most,
    )

    def at_once() -> Any:
        return refine_many(queries, rankings, k)

    limit = None if refiner.timeout is None else refiner.timeout * len(pipelines)
    call: DualCall[Any] = DualCall(at_once, lambda: in_thread(at_once))
    answers = await pipelines[0].attempt(call, pipelines[0].journal.deadline.left(limit))
    if not isinstance(answers, Sequence) or len(answers) != len(pipelines):
        answers = [cause_of(answers)] * len(pipelines)
    for pipeline, answer in zip(pipelines, answers, strict=True):
        pipeline.refined(refiner.stage, start, answer)


async def _refined(refiner: BaseRefiner, pipeline: Pipeline) -> Any:
    """The ranking that a refiner returns, or the error it raises."""
    query, ranking, k = pipeline.query, pipeline.ranked, pipeline.over.most
    if refiner.in_place:
        try:
            return refiner.refine(query, ranking, k)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            return error
    call = DualCall(lambda: refiner.refine(query, ranking, k), lambda: refiner.arefine(query, ranking, k))
    return await pipeline.attempt(call, pipeline.journal.deadline.left(refiner.timeout))


def _spending(recipe: Recipe, questions: int, limit: float | None) -> Any:
    """A context in which every call of a language model counts against the recipe's budget for each question."""
    if recipe.budget is None:
        return nullcontext()
    from pointsman.retrieval.refine.budget import spending

    return spending(recipe.budget.for_questions(questions), limit, recipe.breaker)


def cause_of(answer: Any) -> Exception:
    """The error that came back in place of an answer, or a TypeError about an answer of the wrong type."""
    return answer if isinstance(answer, Exception) else TypeError(f"it returned {type(answer).__name__}")


def _unsound(ranking: Ranked) -> Exception | None:
    """What is wrong with a ranking that a refiner returned; None if nothing is."""
    hits: Any = ranking.hits
    for hit in hits if isinstance(hits, tuple | list) else [None]:
        if not isinstance(hit, Hit):
            return TypeError("its ranking contains something other than hits")
    if len(set(keys_of(hits))) < len(hits):
        return ValueError("its ranking contains a hit more than once")
    for hit in hits:
        if not isinstance(hit.score, int | float) or not math.isfinite(hit.score):
            return ValueError("its ranking contains scores that are not finite numbers")
    if ranking.refused is not None and hits:
        return ValueError("its ranking is refused and has hits")
    if not isinstance(ranking.dropped, dict | Mapping) or not isinstance(ranking.degraded, tuple | list):
        return TypeError("its ranking has a ``dropped`` that is not a mapping, or a ``degraded`` that is not a tuple")
    return None
