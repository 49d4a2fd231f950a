"""The way of a query, stage by stage; `search` is the diagram (R7).

::

    Query ─ route ─ transform ─ retrieve ∥ ─ fuse ─ rerank ─ refuse ─ compress ─ RetrievalContext

What is done at each stage, and with which limits, stands in a `Recipe`. One question and many take the same way; many
share their embedding, their look into each store, and their reranking.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman._twins import in_thread
from pointsman.errors import InputError, RetrievalError
from pointsman.retrieval import telemetry
from pointsman.retrieval.branches import Question, SourceBranch, ask, complete, nothing_answered
from pointsman.retrieval.calibration import CosineSpread
from pointsman.retrieval.candidates import Results, StoreResults, keyed_hits_of, together
from pointsman.retrieval.dispatch import Call, Mode, Tasks, Threads, describe, run
from pointsman.retrieval.journal import Journal
from pointsman.retrieval.judging import NOTHING, Verdict, judge, with_relevance
from pointsman.retrieval.pool import LISTS, SCALES
from pointsman.retrieval.source import Source
from pointsman.store.base import Capability
from pointsman.types import Hit, Plan, Query, Ranked, Refusal, RetrievalContext

if TYPE_CHECKING:
    from pointsman.models.queries import QueryVectors
    from pointsman.retrieval.branches import Answered
    from pointsman.retrieval.pool import Fused
    from pointsman.retrieval.recipe import Over, Recipe
    from pointsman.retrieval.refine import BaseRefiner
    from pointsman.retrieval.transform.base import Variant
    from pointsman.retrieval.variants import Beside

log = logging.getLogger(__name__)

T = TypeVar("T")


async def search(recipe: Recipe, queries: Sequence[Query], mode: Mode) -> list[RetrievalContext]:
    """Answer questions by one recipe, one context each, in their order.

    A stage that fails is passed over and the answer says so in ``degraded``. Of several questions, one for which
    nothing could be searched gets an empty answer that says so.

    Raises:
        RetrievalError: nothing could be searched for any of them; it carries every cause.
        InputError: what is asked for cannot be done.
    """
    with _spending(recipe):
        ways = [Way(recipe, query, mode, len(queries)) for query in queries]
        for way in ways:
            await way.route()
            await way.transform()
        await embed(ways)
        await retrieve(ways)
        for way in ways:
            await way.fuse()
        for refiner in recipe.refiners:
            await refine(refiner, ways)
        return [way.answer() for way in ways]


def search_now(recipe: Recipe, queries: Sequence[Query]) -> list[RetrievalContext]:
    """`search` from synchronous code; it needs no event loop, and one may be running."""
    return run(search(recipe, queries, Threads()))


@dataclass(slots=True)
class Way:
    """One question on its way; each method is a stage, and leaves what it made here."""

    recipe: Recipe
    asked: Query
    mode: Mode
    together: int = 1  # questions that are answered at once
    journal: Journal = field(init=False)
    names: list[str] = field(init=False)
    plan: Plan = field(init=False)
    query: Query = field(init=False)
    variants: Sequence[Variant] = ()
    answered: Sequence[Answered] = ()
    ranked: Ranked = field(default=Ranked((), "none"))
    verdict: Verdict = NOTHING

    def __post_init__(self) -> None:
        timeout = self.recipe.timeout
        self.journal = Journal(None if timeout is None else timeout * self.together)
        self.query, self.names = self.asked, list(self.recipe.sources)
        self.journal.degrade(*self.recipe.notes)

    @property
    def over(self) -> Over:
        """What the recipe comes to over the routed sources."""
        return self.recipe.over(self.names, Searched)

    async def route(self) -> None:
        """Choose where to look, and how; a router that fails chooses everything."""
        started = self.journal.now()
        router, routed = self.recipe.router, ""
        routable = [one for one in self.recipe.sources.values() if isinstance(one, Source)]
        if router is not None and len(routable) > 1:
            from pointsman.retrieval.router import RouteDecision

            query = self.query
            call = Call(lambda: router.decide(query, routable), lambda: router.adecide(query, routable))
            decision: Any = await self.attempt(call, self.before_searching())
            if not isinstance(decision, RouteDecision):
                self.failed("route", started, cause_of(decision), "all datasets are searched")
            else:
                chosen = {dataset.name for dataset in decision.datasets} | {
                    name for name, one in self.recipe.sources.items() if not isinstance(one, Source)
                }
                self.names, routed = [name for name in self.names if name in chosen], f"{decision.reason}; "
                if decision.fallback is not None:
                    self.journal.span("route", decision.reason, started, len(chosen), decision.fallback.why)
                    self.journal.degrade(f"route: {decision.fallback.why}; all datasets are searched")
        plan = self.over.plan
        self.plan = replace(plan, reason=f"{routed}{plan.reason}") if routed else plan
        self.journal.tell(self.plan)
        detail = f"{plan.strategy} over {', '.join(self.names) or 'nothing'}: {self.plan.reason}"
        self.journal.span("plan", detail, started, len(self.names))

    async def transform(self) -> None:
        """Rewrite the query, with an eye on the routed sources; if that fails it stays as it is."""
        bound = self.over.transformer
        if bound is None or not self.names:
            return
        from pointsman.retrieval.transform.base import BaseTransformer, Transformed

        started, query = self.journal.now(), self.query
        transformed: Any
        try:
            transformed = bound.at_once(query) if isinstance(bound, BaseTransformer) else None
        except Exception as error:  # noqa: BLE001  (told of in the answer, below)
            transformed = error
        if transformed is None:
            call = Call(lambda: bound.transform(query), lambda: bound.atransform(query))
            transformed = await self.attempt(call, self.before_searching())
        if not isinstance(transformed, Transformed):
            self.failed("transform", started, cause_of(transformed), "the query is searched as it is")
            return
        self.journal.degrade(*transformed.degraded)
        problem = "; ".join(transformed.degraded) or None
        self.journal.span("transform", transformed.detail, started, len(transformed.variants), problem)
        self.query = transformed.query
        self.variants = [variant for variant in transformed.variants if _is_sound(variant)]
        for variant in transformed.variants:
            if variant not in self.variants:
                self.journal.degrade(f"transform: a variant that cannot be searched was left out: {variant!r:.200}")

    def questions(self) -> list[Question]:
        """The query and its variants, each to be searched for."""
        variants = [
            Question(replace(self.query, text=variant.text), f"{variant.kind} {number}", variant)
            for number, variant in enumerate(self.variants, 1)
        ]
        return [Question(self.query), *variants]

    async def fuse(self) -> None:
        """One ranking out of all lists, and the documents of those that the later stages want to see."""
        started, recipe = self.journal.now(), self.recipe
        if not self.answered:
            return
        many = len(self.names) > 1
        own = together(self.answered[0].results, many=many) if self.answered[0].results else None
        beside = [
            (question.label, question.variant, together(answer.results, many=many))
            for question, answer in zip(self.questions()[1:], self.answered[1:], strict=True)
            if answer.results and question.variant is not None
        ]
        spread = self._spread()
        weights, detail = self._weigh(own, spread)
        try:
            results, fused = own, None
            if beside:
                results, fused = await self._with_variants(own, beside, spread, weights)
        except Exception as error:  # noqa: BLE001  (told of in the answer)
            self.failed("fuse", started, error, "variants of the query are left out")
            results, fused = own, None
        if results is None:
            return
        try:
            fused = fused or results.pool.fused(self.plan.strategy, spread, weights)
        except InputError:
            raise
        except Exception as error:
            raise RetrievalError("what was found could not be fused", {"fuse": error}) from error
        self.journal.fused(results, fused)
        self.journal.span("fuse", f"{fused.scale}{detail}", started, len(fused.ranking))
        started = self.journal.now()
        try:
            hits = keyed_hits_of(results, fused, recipe.depth_of(fused.scale))
        except Exception as error:
            raise RetrievalError("what was found could not be fetched", {"fetch": error}) from error
        self.journal.span("fetch", "documents", started, len(hits))
        self.ranked = self._judged(results, hits, fused.scale, many=many)

    def _judged(self, results: Results, hits: Mapping[Any, Hit], scale: str, *, many: bool) -> Ranked:
        """The ranking with the relevance of every hit, where that can be told."""
        started = self.journal.now()
        try:
            self.verdict = judge(
                self.answered[0].results, results, self.query, hits, self.recipe.calibrations, many=many
            )
        except Exception as error:  # noqa: BLE001  (told of in the answer)
            self.failed("judge", started, error, "hits have no relevance")
        if not (best := self.verdict.best):
            return Ranked(tuple(hits.values()), scale)
        relevance, (answerable, needed) = self.verdict.relevance, best
        judged = tuple(with_relevance(hit, relevance.get(hit.key)) for hit in hits.values())
        return Ranked(judged, scale, answerable=answerable, needed=needed)

    async def _with_variants(
        self, own: Results | None, beside: Beside, spread: CosineSpread | None, weights: Mapping[str, float]
    ) -> tuple[Results, Fused[Any]]:
        """What variants add to the query's own evidence."""
        from pointsman.retrieval.variants import added_up, by_rank, can_add, keys_beside

        keys, method = keys_beside(own, beside), self.plan.strategy
        if own is None:
            return by_rank(own, own, beside, method, spread, weights)
        if spread is None or self.recipe.variants_by_rank or not can_add(own, beside, method, spread):
            [whole] = await complete([own], keys, self.mode)
            return by_rank(own, whole, beside, method, spread, weights)
        whole, *others = await complete([own, *(one for _, _, one in beside)], keys, self.mode)
        beside = [(label, variant, one) for (label, variant, _), one in zip(beside, others, strict=True)]
        return added_up(whole, beside, spread, weights)

    def _spread(self) -> CosineSpread | None:
        """One scale of cosines for everything that was found."""
        if self.plan.strategy != "hybrid":
            return None
        stores = [one for one in self.answered[0].results.values() if isinstance(one, StoreResults)]
        embedders = {one.source.store.info.embedder for one in stores} - {None}
        if len(embedders) > 1:
            names = ", ".join(sorted(map(str, embedders)))
            self.journal.degrade(f"cosines of different embedders are compared as they are: {names}")
        return CosineSpread.shared([one.spread for one in stores])

    def _weigh(self, own: Results | None, spread: CosineSpread | None) -> tuple[Mapping[str, float], str]:
        """The weights of the lists, by the policy, noted in the plan."""
        policy = self.recipe.policy
        weighable = self.plan.strategy == "hybrid" and own is not None and own.pool.scores.keys() >= SCALES.keys()
        if not (self.recipe.weighs and weighable and policy is not None and own is not None and spread is not None):
            return {}, ""
        weights, reason = policy.weigh(own.pool, spread)
        self.plan = replace(self.plan, weights=weights, reason=f"{self.plan.reason}; {reason}")
        return weights, f": {reason}"

    def refined(self, stage: str, started: float, refined: Any) -> None:
        """Take over what a refiner made of the ranking; the ranking stands where that cannot be used."""
        if (cause := cause_of(refined) if not isinstance(refined, Ranked) else _unsound(refined)) is not None:
            self.failed(stage, started, cause, "the ranking before it stands")
            return
        self.journal.ranked(stage, refined)
        self.journal.span(stage, refined.detail, started, len(refined.hits), "; ".join(refined.degraded) or None)
        self.ranked = replace(refined, answerable=self.ranked.answerable, needed=self.ranked.needed)

    def answer(self) -> RetrievalContext:
        """The first hits, with everything that was noted on the way."""
        hits = self.verdict.of(self.ranked.hits[: self.recipe.k])
        refused = self.ranked.refused
        if refused is not None and refused.near_misses:
            refused = replace(refused, near_misses=self.verdict.of(refused.near_misses))
        confidence = self.verdict.confidence(refused.near_misses if refused else hits)
        if self.recipe.min_relevance is not None and refused is None:
            hits, refused = self._relevant(hits, self.recipe.min_relevance)
        plan = replace(self.plan, strategy=self.recipe.strategy) if self.recipe.strategy else self.plan
        trace = self.journal.trace(hits)
        context = RetrievalContext(
            self.query, hits, plan, trace, refused, tuple(self.journal.degraded), self.asked, confidence
        )
        telemetry.export(context, self.recipe.k)
        return context

    def _relevant(self, hits: tuple[Hit, ...], least: float) -> tuple[tuple[Hit, ...], Refusal | None]:
        """Those that are relevant enough, or a refusal."""
        started = self.journal.now()
        if unjudged := sum(hit.relevance is None for hit in hits):
            self.journal.degrade(f"min_relevance: {unjudged} hits have no relevance and stay: nothing is calibrated")
        below = {
            hit.key: f"its relevance {hit.relevance:.2f} is below {least:g}"
            for hit in hits
            if hit.relevance is not None and hit.relevance < least
        }
        kept = tuple(hit for hit in hits if hit.key not in below)
        self.journal.ranked("min_relevance", replace(self.ranked, hits=kept, dropped=below, degraded=()))
        self.journal.span("min_relevance", f"{len(below)} of {len(hits)} are below {least:g}", started, len(kept))
        if kept or not hits:
            return kept, None
        nearest = hits[0]
        reason = (
            f"No relevant results: the relevance of the closest, {nearest.id!r:.80}, is {nearest.relevance:.2f}, and "
            f"{least:g} is asked for"
        )
        return (), Refusal(reason, nearest, nearest.relevance, least, "relevance", hits)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def before_searching(self) -> float | None:
        """Seconds for a stage before the search: a third of what is left, so that one that hangs does not cost it."""
        left = self.journal.deadline.left()
        return None if left is None else left / 3

    def for_branches(self) -> float | None:
        """Seconds for the branches: all that are left, but for a fifth where a stage after them may need time."""
        left = self.journal.deadline.left()
        later = any(not refiner.in_place for refiner in self.recipe.refiners)
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


# ── stages that questions share ──────────────────────────────────────────────────────────────────────────────────────


async def embed(ways: Sequence[Way]) -> None:
    """Embed what several questions will be searched for in one batch, per embedder; the searches find the vectors.

    One that is not done within the budget goes on, and the searches wait for it as long as they may.
    """
    if len(ways) == 1 and not ways[0].variants:
        return
    wanted: dict[int, tuple[QueryVectors, dict[str, None]]] = {}
    for way in ways:
        for branch in way.over.branches:
            if isinstance(branch, SourceBranch) and branch.source.lists_for(branch.method)[1]:
                vectors = branch.source.query_vectors
                if not branch.source.can(Capability.VECTORS) or branch.source.store.info.embedder is None:
                    continue
                _, texts = wanted.setdefault(id(vectors), (vectors, {}))
                texts[way.query.text] = None
                texts.update(dict.fromkeys(one.text for one in way.variants if not one.as_passage))
    calls = []
    for vectors, batch in wanted.values():
        prepare = partial(vectors.prepare, list(batch))
        calls.append(Call(prepare, partial(in_thread, prepare)))
    for outcome in await ways[0].mode.all(calls, ways[0].for_branches()):
        if outcome.error is not None:  # the searches try again one by one and tell each what failed
            log.warning("embedding several queries at once failed: %s", describe(outcome.error))


async def retrieve(ways: Sequence[Way]) -> None:
    """Search every branch for all questions and their variants; questions that go the same way are asked together."""
    groups: dict[tuple[str, ...], list[Way]] = {}
    for way in ways:
        groups.setdefault(tuple(way.names), []).append(way)
    errors: list[Exception] = []
    for names, group in groups.items():
        if not names:
            continue
        first, recipe = group[0], group[0].recipe
        over = first.over
        each = [way.questions() for way in group]
        journals = [way.journal for way, questions in zip(group, each, strict=True) for _ in questions]
        answers = await ask(
            over.branches,
            [question for questions in each for question in questions],
            max(recipe.depth, over.depth),
            first.mode,
            journals,
            breaker=recipe.breaker,
            budget=first.for_branches(),
        )
        start = 0
        for way, questions in zip(group, each, strict=True):
            way.answered = answers[start : start + len(questions)]
            start += len(questions)
            if not any(answer.results for answer in way.answered):
                failed = {name: error for answer in way.answered for name, error in answer.failed.items()}
                errors.append(nothing_answered(failed))
                way.answered = ()
                way.journal.degrade(describe(errors[-1]))
    if errors and len(errors) == len(ways):
        raise errors[0]


async def refine(refiner: BaseRefiner, ways: Sequence[Way]) -> None:
    """Let a refiner reshape every ranking that is not refused, at once where it can; if it fails they stand."""
    ways = [way for way in ways if way.ranked.refused is None]
    together_ = getattr(refiner, "refine_many", None)
    if together_ is None or len(ways) < 2:
        for way in ways:
            started = way.journal.now()
            way.refined(refiner.stage, started, await _refined(refiner, way))
        return
    starts = [way.journal.now() for way in ways]
    queries, rankings, k = [way.query for way in ways], [way.ranked for way in ways], ways[0].recipe.k

    def at_once() -> Any:
        return together_(queries, rankings, k)

    limit = None if refiner.timeout is None else refiner.timeout * len(ways)
    call: Call[Any] = Call(at_once, lambda: in_thread(at_once))
    answers = await ways[0].attempt(call, ways[0].journal.deadline.left(limit))
    if not isinstance(answers, Sequence) or len(answers) != len(ways):
        answers = [cause_of(answers)] * len(ways)
    for way, started, answer in zip(ways, starts, answers, strict=True):
        way.refined(refiner.stage, started, answer)


async def _refined(refiner: BaseRefiner, way: Way) -> Any:
    """What a refiner makes of one ranking, or the error it ends with."""
    query, ranked, k = way.query, way.ranked, way.recipe.k
    if refiner.in_place:
        try:
            return refiner.refine(query, ranked, k)
        except Exception as error:  # noqa: BLE001  (told of in the answer)
            return error
    call = Call(lambda: refiner.refine(query, ranked, k), lambda: refiner.arefine(query, ranked, k))
    return await way.attempt(call, way.journal.deadline.left(refiner.timeout))


# ── what transformers may ask ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Searched:
    """The routed sources, for transformers that have to look something up first; a `Lookup`.

    A search from here goes the same way as the one it serves, with its breaker and its policy, but transforms and
    refines nothing.
    """

    recipe: Recipe
    names: Sequence[str]

    @property
    def sources(self) -> list[Any]:
        """What will be searched."""
        return [self.recipe.sources[name] for name in self.names]

    def search(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """The best hits for a query."""
        return search_now(self._plain(k, seconds), [query])[0]

    async def asearch(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """The same, awaited."""
        return (await search(self._plain(k, seconds), [query], Tasks()))[0]

    def _plain(self, k: int, seconds: float | None) -> Recipe:
        sources = {name: self.recipe.sources[name] for name in self.names}
        timeout = self.recipe.timeout if seconds is None else seconds
        return replace(
            self.recipe, sources=sources, k=k, router=None, transformer=None, refiners=(), timeout=timeout, strategy=""
        )


def _spending(recipe: Recipe) -> Any:
    """One account for everything that a search asks of a language model."""
    if recipe.budget is None:
        return nullcontext()
    from pointsman.retrieval.budget import spending

    return spending(recipe.budget)


def cause_of(answer: Any) -> Exception:
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
