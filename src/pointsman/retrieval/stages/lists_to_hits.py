"""From the lists of the branches to the hits of an answer: fuse, fetch, judge, order, refine, limit, answer.

Each stage is a function from a value to a value; one that fails is skipped, and the journal says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.fusion import SCALES, CosineSpread
from pointsman.retrieval.refine.base_refiner import refining
from pointsman.retrieval.refine.refuse import READ
from pointsman.retrieval.run.candidates import Results, StoreResults, build_hits, first_of_others, provenance
from pointsman.retrieval.run.candidates import fetch as fetch_documents
from pointsman.retrieval.run.judging import NOTHING, Judgements, holders_of_word, raised_cosines
from pointsman.retrieval.run.judging import judge as judgements_of
from pointsman.retrieval.run.merged_results import keys_in_stores, together
from pointsman.tools.errors import InputError, RetrievalError
from pointsman.tools.parallel_calls import DualCall, attempt, cause_of
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.reasons import Reason, in_language, language_of
from pointsman.values.retrieval_context import RetrievalContext, with_places
from pointsman.values.types import Hit, Ranked, keys_of

if TYPE_CHECKING:
    from pointsman.retrieval.fusion import Fused as Fusion
    from pointsman.retrieval.refine.base_refiner import BaseRefiner
    from pointsman.retrieval.run.branches import BranchAnswers
    from pointsman.retrieval.run.candidates import Fetched
    from pointsman.retrieval.run.in_force import InForce
    from pointsman.retrieval.run.variant import Variant
    from pointsman.retrieval.stages.question_to_lists import Inquiry, Retrieval
    from pointsman.values.types import Decision, Plan, Provenance, Query, Refusal


@dataclass(frozen=True, slots=True)
class FirstCandidates:
    """The first candidates of a fused ranking, and what is known of them.

    Attributes:
        results: where they are from.
        scale: of their scores.
        top: keys and scores, best first.
        keys: the keys alone.
        steps: by key, its rank and score in every list.
        others: datasets of which only the first candidate is here, behind all others; see `put_likelier_first`.
    """

    results: Results
    scale: str
    top: Sequence[tuple[Any, Any]]
    keys: Sequence[Any]
    steps: dict[Any, list[Provenance]]
    others: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class FusedLists:
    """The lists of a question, fused into one.

    Attributes:
        inquiry: the question, and what its search has at hand.
        retrieval: the lists.
        plan: with the weights, and what the fusion did.
        candidates: None if there are none.
        in_force: which versions count, if a dataset has versions.
        has_variants: whether variants of the query were fused, too.
        incomplete: why the strategy could not add what it should; empty if it could.
    """

    inquiry: Inquiry
    retrieval: Retrieval
    plan: Plan
    candidates: FirstCandidates | None = None
    in_force: InForce | None = None
    has_variants: bool = False
    incomplete: str = ""

    @property
    def query(self) -> Query:
        """What was searched for."""
        return self.retrieval.rewriting.query

    @property
    def examined(self) -> int:
        """How many hits of the ranking the answer is chosen from."""
        return self.retrieval.rewriting.search_plan.recipe.examined


@dataclass(frozen=True, slots=True)
class RankedHits:
    """Hits in their order, and what is known of them.

    Attributes:
        fused_lists: where they are from.
        ranking: the hits.
        judgements: how relevant they are.
        decisions: about their order and number.
    """

    fused_lists: FusedLists
    ranking: Ranked
    judgements: Judgements = NOTHING
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerHits:
    """The hits of an answer.

    Attributes:
        ranked_hits: the ranking they are from, with all decisions.
        hits: best first.
        refused: why there are none.
        confidence: the highest relevance; None if nothing was judged.
        coverage: the probability that they hold an answer, if it is promised.
    """

    ranked_hits: RankedHits
    hits: tuple[Hit, ...]
    refused: Refusal | None
    confidence: float | None
    coverage: float | None = None


async def fuse(retrieval: Retrieval) -> FusedLists:
    """Fuse all lists into one ranking: those of all branches, and those of the query's variants.

    Raises:
        RetrievalError: the results could not be fused.
    """
    rewriting = retrieval.rewriting
    search_plan, plan, incomplete = rewriting.search_plan, rewriting.search_plan.plan, rewriting.incomplete
    inquiry, journal, recipe = search_plan.inquiry, search_plan.inquiry.journal, search_plan.inquiry.recipe
    if not retrieval.answers:
        return FusedLists(inquiry, retrieval, plan, incomplete=incomplete)
    start = perf_counter()
    main_results, variant_results, problem_of_variant = await _results_of_texts(retrieval)
    incomplete = problem_of_variant or incomplete
    spread = _spread(retrieval)
    reasons = _reasons(retrieval, main_results)
    weights, reason = _weigh(retrieval, main_results, spread)
    if reason:
        reasons.append(reason)
    if reasons:
        plan = replace(plan, weights=weights, reason=Reason.join_all(plan.reason, *reasons))
    results, fusion = main_results, None
    if variant_results:
        from pointsman.retrieval.run.variants import combine

        try:
            results, fusion = await combine(
                main_results,
                variant_results,
                plan.strategy,
                spread,
                weights,
                inquiry.mode,
                only_ranks=recipe.variants_by_rank,
            )
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            journal.failed("fuse", start, error, "variants of the query are left out")
    if results is None:
        return FusedLists(inquiry, retrieval, plan, None, None, bool(variant_results), incomplete)
    try:
        fusion = fusion or results.pool.fused(plan.strategy, spread, weights)
    except InputError:
        raise
    except Exception as error:
        raise RetrievalError("the results could not be fused", {"fuse": error}) from error
    journal.fused(results, fusion)
    journal.span("fuse", f"{fusion.scale}: {reason}" if reason else fusion.scale, start, len(fusion.ranking))
    in_force = _in_force(inquiry, search_plan.names)
    candidates = _candidates(retrieval, results, fusion, versioned=in_force is not None)
    return FusedLists(inquiry, retrieval, plan, candidates, in_force, bool(variant_results), incomplete)


def _candidates(retrieval: Retrieval, results: Results, fusion: Fusion[Any], *, versioned: bool) -> FirstCandidates:
    """The candidates that the later stages need."""
    inquiry = retrieval.rewriting.search_plan.inquiry
    depth = inquiry.recipe.depth_of(fusion.scale)
    if inquiry.recipe.grouping is not None or inquiry.written_query is not None:
        depth = len(fusion.ranking)
    if versioned:
        depth = max(depth, inquiry.recipe.depth)  # what is in force may stand far below what it supersedes
    is_compared = len(retrieval.answers[0].results) > 1 and inquiry.recipe.weighs
    others = first_of_others(fusion.ranking, depth, retrieval.answers[0].results) if is_compared else {}
    top = [*fusion.ranking[:depth], *others.values()] if others else fusion.ranking[:depth]
    keys = list(map(itemgetter(0), top))
    return FirstCandidates(results, fusion.scale, top, keys, provenance(results.pool, keys, fusion.share), others)


def _in_force(inquiry: Inquiry, names: Sequence[str]) -> InForce | None:
    """Which versions count, if a dataset has versions."""
    readings = inquiry.readings
    versioned = [name for name in names if name in readings and readings[name].versions is not None]
    if not versioned:
        return None
    from pointsman.retrieval.run.in_force import InForce

    return InForce([readings[name] for name in versioned], inquiry.recipe.today)


async def _results_of_texts(
    retrieval: Retrieval,
) -> tuple[Results | None, list[tuple[str, Variant, Results]], str]:
    """The results of all branches for the query, and for each variant that has to do with it; why one was left out."""
    inquiry, answers = retrieval.rewriting.search_plan.inquiry, retrieval.answers
    store_keys: Sequence[Mapping[Any, Any]] = [{}] * len(answers)
    if len(inquiry.recipe.sources) > len(inquiry.readings):  # retrievers may have found what stores have found
        try:
            store_keys = await inquiry.mode.blocking(lambda: [keys_in_stores(answer.results) for answer in answers])
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            inquiry.journal.failed("fuse", perf_counter(), error, "what a retriever found too is another document")
    main, *variants = zip(retrieval.questions, answers, store_keys, strict=True)
    variant_results, problem_of_variant = [], ""
    for question, answer, keys in variants:
        if not answer.results or question.variant is None:
            continue
        if question.variant.by_model and main[1].results:
            from pointsman.retrieval.run.variants import UNRELATED, is_unrelated

            if is_unrelated(retrieval.rewriting.query.text, question.variant, main[1].results, answer.results):
                text = question.variant.text[:80]
                inquiry.journal.degrade(f"transform: {UNRELATED}, and is left out: {text!r}")
                problem_of_variant = UNRELATED
                continue
        results = _of_branches(retrieval, answer, question.variant.text, keys)
        variant_results.append((question.label, question.variant, results))
    if not main[1].results:
        return None, variant_results, problem_of_variant
    main_results = _of_branches(retrieval, main[1], retrieval.rewriting.query.text, main[2])
    return main_results, variant_results, problem_of_variant


def _of_branches(retrieval: Retrieval, answer: BranchAnswers, text: str, store_keys: Mapping[Any, Any]) -> Results:
    """The results of all branches for one text."""
    search_plan = retrieval.rewriting.search_plan
    several_datasets, raises, is_hybrid = len(search_plan.names) > 1, None, search_plan.plan.strategy == "hybrid"
    if several_datasets and is_hybrid:
        try:
            raises = raised_cosines(answer.results, text, search_plan.inquiry.recipe.calibrations)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            search_plan.inquiry.journal.failed("fuse", perf_counter(), error, "languages are not allowed for")
    if several_datasets:
        results = together(answer.results, raised=raises, store_keys=store_keys)
    else:
        [results] = answer.results.values()
    if is_hybrid and " " not in text.strip():
        holders = holders_of_word(answer.results, text, many=several_datasets)
        if holders:
            return results.with_pool(replace(results.pool, holders=holders))
    return results


def _spread(retrieval: Retrieval) -> CosineSpread | None:
    """One scale of cosines for all results."""
    search_plan = retrieval.rewriting.search_plan
    if search_plan.plan.strategy != "hybrid":
        return None
    stores = [results for results in retrieval.answers[0].results.values() if isinstance(results, StoreResults)]
    if len(stores) == 1:
        return CosineSpread.shared([stores[0].spread])
    embedders = {results.reading.embedder_name for results in stores} - {None}
    if len(embedders) > 1:
        names = ", ".join(sorted(map(str, embedders)))
        search_plan.inquiry.journal.degrade(f"cosines of different embedders are compared without conversion: {names}")
    return CosineSpread.shared([results.spread for results in stores])


def _reasons(retrieval: Retrieval, main_results: Results | None) -> list[str]:
    """What the plan says of candidates that were raised, and of words that were not searched for."""
    if main_results is None:
        return []
    pool, boosts, names_not_raised = main_results.pool, [], []
    for number, results in retrieval.answers[0].results.items():
        if isinstance(results, StoreResults):
            if number in pool.raised:
                boosts.append(f"{results.reading.name} +{pool.raised[number]:.3f}")
            if results.store_query.text not in {None, retrieval.rewriting.query.text}:
                names_not_raised.append(results.reading.name)
    reasons: list[str] = [Reason.of("holders")] if pool.holders else []
    if boosts:
        reasons.append(Reason.of("languages", added=", ".join(boosts)))
    if names_not_raised:
        reasons.append(Reason.of("rare_script", names=", ".join(names_not_raised)))
    return reasons


def _weigh(
    retrieval: Retrieval, main_results: Results | None, spread: CosineSpread | None
) -> tuple[Mapping[str, float], str]:
    """The weights that the policy gives the lists, and the reason."""
    search_plan = retrieval.rewriting.search_plan
    policy = search_plan.inquiry.recipe.policy
    if policy is None or main_results is None or spread is None or not search_plan.recipe.weighs:
        return {}, ""
    if not main_results.pool.scores.keys() >= SCALES.keys():
        return {}, ""
    return policy.weigh(main_results.pool.span(spread))


async def fetch(fused_lists: FusedLists) -> Sequence[Fetched]:
    """Fetch the documents of the candidates, in their order.

    Raises:
        RetrievalError: the results could not be fetched.
    """
    candidates, inquiry = fused_lists.candidates, fused_lists.inquiry
    if candidates is None:
        return ()
    start = perf_counter()
    try:
        versions = await inquiry.mode.blocking(
            partial(fetch_documents, candidates.results, candidates.keys, candidates.steps)
        )
    except Exception as error:
        raise RetrievalError("the results could not be fetched", {"fetch": error}) from error
    count = len(versions) - versions.count(None)
    inquiry.journal.span("fetch", "documents", start, count)
    answer = fused_lists.retrieval.answers[0]
    if not count and fused_lists.query.filters is not None and not answer.failed:
        from pointsman.retrieval.stages.answer_limits import unknown_keys

        inquiry.journal.degrade(*unknown_keys(fused_lists.query.filters, answer.results.values()))
    return versions


def judge(fused_lists: FusedLists, versions: Sequence[Fetched]) -> RankedHits:
    """Judge the relevance of every document that can be judged, and build the hits."""
    candidates, inquiry, judgements = fused_lists.candidates, fused_lists.inquiry, NOTHING
    if candidates is None:
        return RankedHits(fused_lists, Ranked((), "none"))
    documents = {
        key: version.document if isinstance(version, Hit) else version[1]
        for key, version in zip(candidates.keys, versions, strict=True)
        if version is not None
    }
    search_plan = fused_lists.retrieval.rewriting.search_plan
    judgeable_results = {
        number: results
        for number, results in fused_lists.retrieval.answers[0].results.items()
        if isinstance(results, StoreResults)
        and results.embedder in search_plan.recipe.judged_embedders[results.reading.name]
    }
    try:
        if judgeable_results:
            judgements = judgements_of(
                judgeable_results,
                candidates.results,
                fused_lists.query,
                documents,
                inquiry.recipe.calibrations,
                inquiry.recipe.fitted,
                many=len(search_plan.names) > 1,
            )
            if fused_lists.has_variants:
                from pointsman.retrieval.stages.judged_variants import judged_as_equals

                judgements = judged_as_equals(fused_lists.retrieval, documents, judgements)
    except Exception as error:  # noqa: BLE001  (reported in the answer)
        inquiry.journal.failed("judge", perf_counter(), error, "hits have no relevance")
    relevance = judgements.relevance if judgements.datasets else None
    hits = tuple(build_hits(candidates.results, candidates.top, versions, candidates.steps, relevance))
    inquiry.journal.fused_hits, ranking = hits, Ranked(hits, candidates.scale)
    best = None if relevance is None else judgements.best_evaluation(hits[:READ])
    return RankedHits(
        fused_lists, ranking if best is None else replace(ranking, best=best.best, needed=best.minimum), judgements
    )


async def put_in_force(ranked_hits: RankedHits) -> RankedHits:
    """Say which hits are not in force, and put what is in force in their place above them."""
    fused_lists, ranking, judgements = ranked_hits.fused_lists, ranked_hits.ranking, ranked_hits.judgements
    inquiry, in_force = fused_lists.inquiry, fused_lists.in_force
    if in_force is None:
        return ranked_hits
    start, hits = perf_counter(), in_force.mark(ranking.hits)
    if missing := in_force.missing(hits):
        try:
            hits += await inquiry.mode.blocking(partial(in_force.read, missing, fused_lists.query.filters))
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            inquiry.journal.failed(in_force.stage, start, error, "newer versions that no list has found are missing")
    hits = in_force.above_superseded(hits)
    if inquiry.recipe.grouping is None:
        hits = hits[: inquiry.recipe.depth_of(ranking.scale)]
    if judgements.relevance:
        levels = {hit.key: hit.relevance for hit in hits if hit.relevance is not None}
        judgements = replace(judgements, relevance={**judgements.relevance, **levels})
    count = sum(hit.not_in_force is not None for hit in hits)
    reason = f"{count} of {len(hits)} hits are not in force on {in_force.day}"
    return RankedHits(fused_lists, in_new_order(inquiry, in_force.stage, start, ranking, hits, reason), judgements)


def limit_groups(ranked_hits: RankedHits) -> RankedHits:
    """Leave out the hits that exceed their group, so that refiners see as many groups as they can."""
    inquiry = ranked_hits.fused_lists.inquiry
    if inquiry.recipe.grouping is None:
        return ranked_hits
    from pointsman.retrieval.stages.grouping import limit_groups

    ranking = limit_groups(inquiry.recipe.grouping, ranked_hits.ranking, inquiry.journal)
    return replace(ranked_hits, ranking=replace(ranking, hits=ranking.hits[: inquiry.recipe.depth_of(ranking.scale)]))


def put_newer_first(ranked_hits: RankedHits) -> RankedHits:
    """Let newer hits pass older ones, if ``auto`` searches, and put versions in their order again."""
    fused_lists, ranking, decisions = ranked_hits.fused_lists, ranked_hits.ranking, ranked_hits.decisions
    in_force, inquiry = fused_lists.in_force, fused_lists.inquiry
    if in_force is None:
        return ranked_hits
    start = perf_counter()
    if inquiry.recipe.weighs:
        newer = in_force.newer_first(ranked_hits.judgements.of(ranking.hits), fused_lists.query.text)
        if newer is not None:
            hits, decision = newer
            decisions = (*decisions, decision)
            ranking = in_new_order(inquiry, decision.what, start, ranking, hits, decision.reason)
    in_order = in_force.above_superseded(ranking.hits)
    if keys_of(in_order) != keys_of(ranking.hits):
        reason = "what is in force comes before what it replaced"
        ranking = in_new_order(inquiry, in_force.stage, start, ranking, in_order, reason)
    return replace(ranked_hits, ranking=replace(ranking, hits=tuple(in_order)), decisions=decisions)


def in_new_order(
    inquiry: Inquiry, stage: str, start: float, ranking: Ranked, hits: Sequence[Hit], reason: str
) -> Ranked:
    """The ranking with these hits, noted."""
    ranking = replace(ranking, hits=tuple(hits))
    inquiry.journal.ranked(stage, ranking)
    inquiry.journal.span(stage, reason, start, len(hits))
    return ranking


async def refine(refiner: BaseRefiner, hits_of_each: Sequence[RankedHits]) -> list[RankedHits]:
    """Let a refiner reshape every ranking that is not refused, in one batch if it can; if it fails, they stay."""
    new_hits = list(hits_of_each)
    positions = [position for position, ranked_hits in enumerate(hits_of_each) if ranked_hits.ranking.refused is None]
    refine_many = getattr(refiner, "refine_many", None)
    if refine_many is None or len(positions) < 2:
        for position in positions:
            start, ranked_hits = perf_counter(), hits_of_each[position]
            new_hits[position] = _adopted(refiner.stage, start, ranked_hits, await _reshaped(refiner, ranked_hits))
        return new_hits
    start, first = perf_counter(), hits_of_each[positions[0]].fused_lists
    queries = [hits_of_each[position].fused_lists.query for position in positions]
    rankings = [hits_of_each[position].ranking for position in positions]

    def at_once() -> Any:
        return refine_many(queries, rankings, first.examined)

    seconds = None if refiner.timeout is None else refiner.timeout * len(positions)
    call: DualCall[Any] = DualCall(at_once, lambda: in_thread(at_once))
    answers = await attempt(first.inquiry.mode, call, first.inquiry.journal.deadline.left(seconds))
    if not isinstance(answers, Sequence) or len(answers) != len(positions):
        answers = [cause_of(answers)] * len(positions)
    for position, answer in zip(positions, answers, strict=True):
        new_hits[position] = _adopted(refiner.stage, start, hits_of_each[position], answer)
    return new_hits


async def _reshaped(refiner: BaseRefiner, ranked_hits: RankedHits) -> Any:
    """The ranking that a refiner returns, or the error it raises."""
    query, ranking, k = ranked_hits.fused_lists.query, ranked_hits.ranking, ranked_hits.fused_lists.examined
    if refiner.in_place:
        try:
            return refiner.refine(query, ranking, k)
        except Exception as error:  # noqa: BLE001  (reported in the answer)
            return error
    inquiry, call = ranked_hits.fused_lists.inquiry, refining(refiner, query, ranking, k)
    return await attempt(inquiry.mode, call, inquiry.journal.deadline.left(refiner.timeout))


def _adopted(stage: str, start: float, ranked_hits: RankedHits, reshaped: Any) -> RankedHits:
    """The ranking that a refiner returned; the previous one if it is invalid."""
    journal = ranked_hits.fused_lists.inquiry.journal
    cause = _unsound(reshaped) if isinstance(reshaped, Ranked) else cause_of(reshaped)
    if cause is not None:
        journal.failed(stage, start, cause, "the previous ranking is kept")
        return ranked_hits
    journal.ranked(stage, reshaped)
    journal.span(stage, reshaped.detail, start, len(reshaped.hits), "; ".join(reshaped.degraded) or None)
    previous = ranked_hits.ranking
    ranking = replace(reshaped, best=previous.best, needed=previous.needed, condition=previous.condition)
    return replace(ranked_hits, ranking=ranking)


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


def limit_hits(ranked_hits: RankedHits) -> AnswerHits:
    """Cut the ranking to the answer's hits: ``k`` or as many as cover, of each group, and relevant enough."""
    fused_lists, inquiry = ranked_hits.fused_lists, ranked_hits.fused_lists.inquiry
    recipe, journal = inquiry.recipe, inquiry.journal
    ranking, judgements, decisions, coverage = ranked_hits.ranking, ranked_hits.judgements, ranked_hits.decisions, None
    refused = ranking.refused
    if recipe.grouping is not None and refused is None:  # refiners may have added hits
        ranking = recipe.grouping.limit(ranking)
        decisions = (*decisions, recipe.grouping.decision(ranking, fused_lists.examined))
    hits = tuple(ranking.hits[: fused_lists.examined])
    if judgements.relevance:
        hits = judgements.of(hits)
    if recipe.coverage is not None:
        from pointsman.retrieval.stages.answer_limits import cut_to_cover

        names, asked_query = fused_lists.retrieval.rewriting.search_plan.names, inquiry.query
        hits, coverage, decision = cut_to_cover(
            recipe.coverage, hits, recipe, names, asked_query, journal, refused=refused is not None
        )
        decisions = (*decisions, decision)
    if refused is not None and refused.near_misses:
        refused = replace(refused, near_misses=judgements.of(refused.near_misses[: recipe.k]))
    confidence = judgements.confidence(refused.near_misses if refused else hits) if judgements.datasets else None
    if recipe.min_relevance is not None and refused is None:
        from pointsman.retrieval.stages.answer_limits import relevant_enough

        hits, refused = relevant_enough("min_relevance", recipe.min_relevance, hits, ranking, journal)
    ranked_hits = replace(ranked_hits, ranking=ranking, decisions=decisions)
    return AnswerHits(ranked_hits, hits, refused, confidence, coverage)


def answer(answer_hits: AnswerHits) -> RetrievalContext:
    """Put together what the stages made."""
    fused_lists, hits = answer_hits.ranked_hits.fused_lists, answer_hits.hits
    journal, language = fused_lists.inquiry.journal, language_of(fused_lists.inquiry.asked_query.text)
    plan = _plan_of_what_was_done(fused_lists, answer_hits.ranked_hits.decisions)
    refused, degraded = answer_hits.refused, journal.degraded
    shown_hits = refused.near_misses if refused else hits
    for first, second in pairwise(shown_hits):
        if (first.relevance or 0.0) < (second.relevance or 0.0):
            plan = replace(plan, reason=Reason.join_all(plan.reason, *journal.order_reasons(shown_hits)))
            break
    if any("source" in hit.document.metadata for hit in hits):  # only files look alike
        hits = with_places(hits, fused_lists.inquiry.asked_query.text)
    elif refused is not None:
        near_misses = with_places(refused.near_misses, fused_lists.inquiry.asked_query.text)
        refused = replace(refused, near_misses=near_misses)
    if language != "en":
        plan = plan.in_language(language)
        refused = refused and replace(refused, reason=in_language(refused.reason, language))
        degraded = [in_language(note, language) for note in degraded]
    return RetrievalContext(
        fused_lists.query,
        hits,
        plan,
        journal.trace(hits),
        refused,
        tuple(degraded),
        fused_lists.inquiry.asked_query,
        answer_hits.confidence,
        fused_lists.retrieval.rewriting.spelling,
        answer_hits.coverage,
    )


def _plan_of_what_was_done(fused_lists: FusedLists, decisions: tuple[Decision, ...]) -> Plan:
    """The plan under the name of the strategy, unless the strategy could add nothing: then it was plain search."""
    plan, strategy = fused_lists.plan, fused_lists.inquiry.recipe.strategy
    if decisions:
        plan = replace(plan, decisions=(*plan.decisions, *decisions))
    if not strategy:
        return plan
    if fused_lists.has_variants or not fused_lists.incomplete:
        return replace(plan, strategy=strategy)
    reason = Reason.join_all(plan.reason, f"{strategy!r} could add nothing, so this is plain search")
    return replace(plan, reason=reason, confidence=None)


def with_receipt(ranked_hits: RankedHits, context: RetrievalContext) -> RetrievalContext:
    """The answer with its receipt, if a dataset keeps versions."""
    inquiry = ranked_hits.fused_lists.inquiry
    if inquiry.recipe.receipt is not None:
        for reading in inquiry.readings.values():
            if reading.recorded_state is not None:
                context = replace(context, receipt=inquiry.recipe.receipt(context, inquiry.readings))
                break
    return context
