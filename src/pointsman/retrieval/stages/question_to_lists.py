"""From a question to the lists that its branches return: route, plan, transform, embed, measure, retrieve.

Each stage is a function from a value to a value. What questions share is done for all of them at once: opening their
datasets, an embedding batch for each embedder, and a round trip to each store.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.plan.routed_lookup import RoutedLookup
from pointsman.retrieval.run.branches import Question, ask, nothing_answered
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.source import Source, check_all_searchable
from pointsman.text.written_syntax import listed, read_syntax
from pointsman.tools.errors import ModelError
from pointsman.tools.parallel_calls import DualCall, attempt, cause_of, describe
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.reasons import Reason
from pointsman.values.trace import Span
from pointsman.values.types import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.retrieval.plan.recipe import Recipe, RoutedRecipe
    from pointsman.retrieval.plan.routed_lookup import Search
    from pointsman.retrieval.run.branches import BranchAnswers
    from pointsman.retrieval.run.journal import Journal
    from pointsman.retrieval.run.reading import Reading
    from pointsman.retrieval.run.variant import Variant
    from pointsman.text.written_syntax import WrittenQuery
    from pointsman.tools.parallel_calls import Breaker, Mode
    from pointsman.values.retrieval_context import Spelling
    from pointsman.values.types import Plan, Query

SYNTAX_DEPTH: Final = 1000
"""The least number of candidates in each list where syntax is obeyed, as many of them may be left out."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, and what its search has at hand.

    Attributes:
        recipe: how to search.
        query: to search for: as asked, without its operators.
        mode: how to wait.
        readings: of all datasets of the recipe, by name.
        journal: of the search.
        asked_query: as the caller sent it.
        written_query: its syntax, if that is obeyed.
    """

    recipe: Recipe
    query: Query
    mode: Mode
    readings: Mapping[str, Reading]
    journal: Journal
    asked_query: Query
    written_query: WrittenQuery | None = None

    @classmethod
    def of(cls, recipe: Recipe, query: Query, mode: Mode, readings: Mapping[str, Reading], journal: Journal) -> Inquiry:
        """Read the syntax of a question, once and before anything else."""
        conditions = read_syntax(query.text, recipe.syntax)
        plain_query = query if conditions is None else replace(query, text=conditions.text)
        return cls(recipe, plain_query, mode, readings, journal, query, conditions)


@dataclass(frozen=True, slots=True)
class Route:
    """The sources that a question is sent to.

    Attributes:
        inquiry: the question.
        names: of the sources.
        reason: why; empty unless a router chose them.
    """

    inquiry: Inquiry
    names: Sequence[str]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is going to be done.

    Attributes:
        inquiry: the question.
        names: of the routed sources.
        plan: with its reasons.
        recipe: the recipe applied to these sources.
        transformation: the query as `at_once` of the transformer rewrote it, or why that failed; None: not yet.
        start: when that began, a moment of ``perf_counter``.
    """

    inquiry: Inquiry
    names: Sequence[str]
    plan: Plan
    recipe: RoutedRecipe
    transformation: Any
    start: float


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What is searched for.

    Attributes:
        search_plan: what is going to be done.
        query: as rewritten.
        variants: what is searched beside it.
        spelling: what was corrected.
        incomplete: why the transformer could not add what it should; empty if it could.
    """

    search_plan: SearchPlan
    query: Query
    variants: Sequence[Variant] = ()
    spelling: Spelling | None = None
    incomplete: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What the branches returned.

    Attributes:
        rewriting: what was searched for.
        questions: the query, and its variants.
        answers: to each of them; empty if no branch answered any.
    """

    rewriting: Rewriting
    questions: Sequence[Question] = ()
    answers: Sequence[BranchAnswers] = field(default=())


async def route(inquiry: Inquiry) -> Route:
    """Choose the sources; if the router fails, all are searched.

    Raises:
        InputError: access is on for one of them, and nobody said who asks: a router reads all of them.
    """
    recipe, journal, query = inquiry.recipe, inquiry.journal, inquiry.query
    router, names = recipe.router, list(recipe.sources)
    if router is None:
        return Route(inquiry, names)
    start = perf_counter()
    routable = [source for source in recipe.sources.values() if isinstance(source, Source)]
    if len(routable) < 2:
        return Route(inquiry, names)
    from pointsman.retrieval.plan.routers import RouteDecision

    await inquiry.mode.blocking(partial(check_all_searchable, routable))
    call = DualCall(lambda: router.decide(query, routable), lambda: router.adecide(query, routable))
    decision: Any = await attempt(inquiry.mode, call, journal.deadline.before_searching())
    if not isinstance(decision, RouteDecision):
        journal.failed("route", start, cause_of(decision), "all datasets are searched")
        return Route(inquiry, names)
    selection = {dataset.name for dataset in decision.datasets}
    excluded_ids = {id(source) for source in routable if source.name not in selection}
    selection |= {  # retrievers are not routed, but one over a dataset is left out with it
        name
        for name, source in recipe.sources.items()
        if not isinstance(source, Source) and id(getattr(source, "dataset", None)) not in excluded_ids
    }
    if decision.fallback is not None:
        journal.span("route", decision.reason, start, len(selection), decision.fallback.why)
        journal.degrade(f"route: {decision.fallback.why}; all datasets are searched")
    return Route(inquiry, [name for name in names if name in selection], decision.reason)


async def plan(routings: Sequence[Route], search: Search) -> list[SearchPlan]:
    """Open the routed datasets, and apply the recipes to them: all that a search reads before it waits for a model.

    Args:
        routings: the questions.
        search: `pointsman.retrieval.search.search`, for transformers that search first.

    Raises:
        InputError: access is on, and nobody said who asks.
    """
    names = dict.fromkeys(name for routing in routings for name in routing.names)
    inquiry = routings[0].inquiry

    def open_each() -> list[SearchPlan]:
        readings = [inquiry.readings[name] for name in names if name in inquiry.readings]
        if readings and readings[0].at_once:
            readings.sort(key=lambda reading: not reading.is_open)  # they may be closed for the others
            note = Reason.of("in_turn", count=f"{len(readings):,}", most=f"{readings[0].at_once:,}")
            for routing in routings:
                routing.inquiry.journal.degrade(note)
        for reading in readings:
            reading.source.check_searchable()
            reading.open()
        return [_search_plan(routing, search) for routing in routings]

    return await inquiry.mode.blocking(open_each)


def _search_plan(routing: Route, search: Search) -> SearchPlan:
    """Apply the recipe to the routed sources, and transform the query if that is a matter of microseconds."""
    inquiry, names, start = routing.inquiry, routing.names, perf_counter()
    inquiry, field_decision = _with_written_filter(inquiry, names)
    recipe = inquiry.recipe.for_sources(names, partial(RoutedLookup, carry_out=search))
    plan = recipe.plan
    plan = replace(plan, reason=Reason.join_all(routing.reason, plan.reason)) if routing.reason else plan
    is_auto, conditions = inquiry.recipe.syntax == "auto", inquiry.written_query
    if conditions is None and is_auto:
        conditions = read_syntax(inquiry.query.text, "hard")
    if conditions is not None:
        decision = _syntax_decision(conditions, is_auto=is_auto, is_obeyed=inquiry.written_query is not None)
        plan = replace(plan, decisions=(*plan.decisions, decision))
    if field_decision is not None:
        plan = replace(plan, decisions=(*plan.decisions, field_decision))
    if inquiry.journal.listener is not None:
        inquiry.journal.tell(plan)
    detail = f"{plan.strategy} over {', '.join(names) or 'nothing'}: {plan.reason}"
    inquiry.journal.span("plan", detail, start, len(names))
    at_once = getattr(recipe.transformer, "at_once", None)
    transformation, start = None, perf_counter()
    if at_once is not None and names:
        try:
            transformation = at_once(inquiry.query)
        except Exception as error:  # noqa: BLE001  (reported in the answer by `transform`)
            transformation = error
    return SearchPlan(inquiry, names, plan, recipe, transformation, start)


def _with_written_filter(inquiry: Inquiry, names: Sequence[str]) -> tuple[Inquiry, Decision | None]:
    """Put the conditions on fields that a question has in words into its filter; the rest has a syntax of its own."""
    asked_query, recipe, journal = inquiry.asked_query, inquiry.recipe, inquiry.journal
    if recipe.syntax == "plain" or not (":" in asked_query.text or "：" in asked_query.text):
        return inquiry, None
    from pointsman.retrieval.stages.written_filters import with_written_filter

    start = perf_counter()
    stores = {name: inquiry.readings[name].store for name in names if name in inquiry.readings}
    try:
        understood = with_written_filter(asked_query, stores, recipe, journal)
    except Exception as error:  # noqa: BLE001  (reported in the answer)
        journal.failed("syntax", start, error, "conditions on fields are searched as words")
        return inquiry, None
    if understood is None:
        return inquiry, None
    query, decision = understood
    new_inquiry = Inquiry.of(recipe, query, inquiry.mode, inquiry.readings, journal)
    return replace(new_inquiry, asked_query=asked_query), decision


def _syntax_decision(conditions: WrittenQuery, *, is_auto: bool, is_obeyed: bool) -> Decision:
    """What was understood of the syntax of a question; where that is not obeyed, its hard form is offered."""
    if not is_obeyed:
        reason = f"in a sentence {conditions!s:.200} is not insisted on; syntax='hard' obeys it"
        return Decision("hard_form", str(conditions), "default", reason)
    parts = [f"searched for {conditions.text!r:.200}"]
    if conditions.required_terms:
        parts.append(f"hits hold {listed(conditions.required_terms)}")
    if conditions.excluded_terms:
        parts.append(f"no hit holds {listed(conditions.excluded_terms)}")
    reason = f"{'; '.join(parts)}; syntax='plain' searches for the question as written"
    return Decision("syntax", str(conditions), "default" if is_auto else "request", reason)


async def transform(search_plan: SearchPlan) -> Rewriting:
    """Rewrite the query for the routed sources; if that fails, the query stays unchanged."""
    inquiry, transformer = search_plan.inquiry, search_plan.recipe.transformer
    journal, query = inquiry.journal, inquiry.query
    if transformer is None or not search_plan.names:
        return Rewriting(search_plan, query)
    from pointsman.retrieval.plan.transform.base_transformer import Transformed

    transformation, start = search_plan.transformation, search_plan.start
    if transformation is None:
        start = perf_counter()
        call = DualCall(lambda: transformer.transform(query), lambda: transformer.atransform(query))
        transformation = await attempt(inquiry.mode, call, journal.deadline.before_searching())
    if not isinstance(transformation, Transformed):
        journal.failed("transform", start, cause_of(transformation), "the query is searched unchanged")
        return Rewriting(search_plan, query, incomplete="the query was not transformed")
    if transformation.degraded:
        journal.degrade(*transformation.degraded)
    problem = "; ".join(transformation.degraded)
    journal.span("transform", transformation.detail, start, len(transformation.variants), problem or None)
    variants = [variant for variant in transformation.variants if variant.is_sound]
    for variant in transformation.variants:
        if variant not in variants:
            journal.degrade(f"transform: a variant that cannot be searched was left out: {variant!r:.200}")
    return Rewriting(search_plan, transformation.query, variants, transformation.spelling, problem)


async def embed(rewritings: Sequence[Rewriting]) -> dict[int, Exception]:
    """Embed all texts of all questions in one batch per embedder; the searches then find the vectors ready.

    A query whose embedding fails or is late is searched by words only; several are retried one by one by the searches.
    An embedder that is late again and again is left out for a while.

    Returns:
        Why nothing could be embedded for a source, by the ``id`` of its ``query_vectors``; see `Question`.
    """
    search_plan = rewritings[0].search_plan
    inquiry, breaker = search_plan.inquiry, search_plan.inquiry.recipe.breaker
    unembedded: dict[int, Exception] = {}
    calls, requests = [], []
    for number, (source, missing) in _not_embedded(rewritings).items():
        name = f"embedder of {source.name}"
        if (reason := breaker.why_not(name)) is not None:
            unembedded[number] = ModelError(f"the embedder is {reason}")
            continue
        prepare = partial(source.query_vectors.prepare, missing)
        calls.append(DualCall(prepare, partial(in_thread, prepare)))
        requests.append((number, name, missing))
    if not calls:
        return unembedded
    seconds = inquiry.journal.deadline.for_embedding(has_later_stages=search_plan.recipe.has_later_stages)
    for (number, name, missing), outcome in zip(requests, await inquiry.mode.all(calls, seconds), strict=True):
        error = outcome.error
        late = isinstance(error, TimeoutError)
        breaker.record(name, error if late else None)
        if error is not None and (late or len(missing) == 1):
            unembedded[number] = error
        elif error is not None:  # the searches retry one by one, and each reports its own failure
            log.warning("embedding several queries at once failed: %s", describe(error))
    return unembedded


def _not_embedded(rewritings: Sequence[Rewriting]) -> dict[int, tuple[Source, list[str]]]:
    """The texts whose vectors are needed and not remembered, with a source of each embedder."""
    batches: dict[int, tuple[Source, dict[str, None]]] = {}
    for rewriting in rewritings:
        texts = [rewriting.query.text, *[variant.text for variant in rewriting.variants if not variant.as_passage]]
        readings = rewriting.search_plan.inquiry.readings
        for name, (_, searches_vectors) in rewriting.search_plan.recipe.lists.items():
            if searches_vectors and readings[name].embeds:
                source = readings[name].source
                if missing := [text for text in texts if text not in source.query_vectors]:
                    _, batch = batches.setdefault(id(source.query_vectors), (source, {}))
                    batch.update(dict.fromkeys(missing))
    return {number: (source, list(batch)) for number, (source, batch) in batches.items()}


async def retrieve(rewritings: Sequence[Rewriting], unembedded: Mapping[int, Exception]) -> list[Retrieval]:
    """Search every branch for all questions and variants; questions with the same sources share their round trips.

    Args:
        rewritings: the questions.
        unembedded: by `embed`.

    Raises:
        RetrievalError: no branch answered any question.
    """
    groups: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for position, rewriting in enumerate(rewritings):
        search_plan = rewriting.search_plan
        groups.setdefault((tuple(search_plan.names), search_plan.inquiry.written_query is not None), []).append(
            position
        )
    retrievals = [Retrieval(rewriting) for rewriting in rewritings]
    errors: list[Exception] = []
    for (names, has_syntax), positions in groups.items():
        if not names:
            continue
        search_plan = rewritings[positions[0]].search_plan
        inquiry, recipe = search_plan.inquiry, search_plan.recipe
        texts = {position: _questions(rewritings[position], unembedded) for position in positions}
        questions_of_all = [question for questions in texts.values() for question in questions]
        journals = [rewritings[position].search_plan.inquiry.journal for position in positions for _ in texts[position]]
        answers = await ask(
            inquiry.recipe.branches(names, recipe, inquiry.readings),
            questions_of_all,
            max(recipe.depth, SYNTAX_DEPTH) if has_syntax else recipe.depth,
            inquiry.mode,
            journals,
            breaker=inquiry.recipe.breaker,
            budget=partial(inquiry.journal.deadline.for_branches, has_later_stages=recipe.has_later_stages),
            at_once=max(map(attrgetter("at_once"), inquiry.readings.values()), default=0),
        )
        start = 0
        for position, questions in texts.items():
            own_answers = answers[start : start + len(questions)]
            start += len(questions)
            if not any(answer.results for answer in own_answers):
                failures = {name: error for answer in own_answers for name, error in answer.failed.items()}
                errors.append(nothing_answered(failures))
                own_answers = []
                rewritings[position].search_plan.inquiry.journal.degrade(describe(errors[-1]))
            retrievals[position] = Retrieval(rewritings[position], questions, own_answers)
    if errors and len(errors) == len(rewritings):
        raise errors[0]
    for error in errors:
        log.warning("a search failed, others answer: %s", describe(error))
    return retrievals


def _questions(rewriting: Rewriting, unembedded: Mapping[int, Exception]) -> list[Question]:
    """What is searched for: the query, and its variants."""
    query = rewriting.query
    variants = [
        Question(replace(query, text=variant.text), f"{variant.kind} {number}", variant, unembedded)
        for number, variant in enumerate(rewriting.variants, 1)
    ]
    return [Question(query, unembedded=unembedded), *variants]


async def measure_new(rewritings: Sequence[Rewriting]) -> list[Reading]:
    """Measure the background of datasets that no search has judged yet, under the deadline; returns these datasets.

    It must be known before a search: among documents in several languages, questions are searched without their own.
    A store elsewhere is not kept waiting for, unless it is a view, which must answer as a store of its own would; the
    first search of vectors that were imported there is judged as of one language.
    """
    readings, inquiries = rewritings[0].search_plan.inquiry.readings, []
    readings_of_each = []
    for rewriting in rewritings:
        recipe = rewriting.search_plan.recipe
        inquiries.append(rewriting.search_plan.inquiry)
        readings_of_each.append(
            [
                reading
                for name, (_, searches_vectors) in recipe.lists.items()
                if searches_vectors
                and (reading := readings[name]).is_new
                and reading.info is not None
                and reading.info.embedder in recipe.judged_embedders[name]
                and rewriting.query.text in reading.source.query_vectors
                and (reading.is_local or getattr(reading.source, "is_view", False))
            ]
        )
    return await _measure(inquiries, readings_of_each)


async def measure(retrievals: Sequence[Retrieval], tried: Sequence[Reading]) -> None:
    """Measure what the readings still lack, under the deadline: the background of vectors that were imported.

    Args:
        retrievals: the questions.
        tried: what was to be measured before the search; if it was late, it is not waited for again.
    """
    inquiries, readings_of_each = [], []
    for retrieval in retrievals:
        search_plan = retrieval.rewriting.search_plan
        inquiries.append(search_plan.inquiry)
        lacking: dict[Reading, None] = {}
        for results in [results for answer in retrieval.answers for results in answer.results.values()]:
            if isinstance(results, StoreResults) and results.store_query.vector is not None:
                reading = results.reading
                if results.embedder in search_plan.recipe.judged_embedders[reading.name] and reading.lacks_background:
                    lacking[reading] = None
        readings_of_each.append([reading for reading in lacking if reading not in tried])
    await _measure(inquiries, readings_of_each)


async def _measure(inquiries: Sequence[Inquiry], readings_of_each: Sequence[Sequence[Reading]]) -> list[Reading]:
    """Measure what each question needs; returns the readings that were to be measured."""
    lacking = dict[Any, list[Any]]()
    for inquiry, readings in zip(inquiries, readings_of_each, strict=True):
        for reading in readings:
            lacking.setdefault(reading, []).append(inquiry.journal)
    if lacking:
        first = inquiries[0]
        seconds = first.journal.deadline.for_measuring()
        await measure_backgrounds(lacking, first.mode, first.recipe.breaker, seconds)
    return list(lacking)


async def fill_groups(retrieval: Retrieval) -> Retrieval:
    """Search on for hits of other groups, if those that were found are of too few."""
    search_plan = retrieval.rewriting.search_plan
    inquiry, grouping = search_plan.inquiry, search_plan.inquiry.recipe.grouping
    if grouping is None or not retrieval.answers:
        return retrieval
    from pointsman.retrieval.stages.grouping import STAGE, fill

    branches = inquiry.recipe.branches(search_plan.names, search_plan.recipe, inquiry.readings)
    try:
        answers = await fill(
            grouping,
            search_plan.recipe,
            branches,
            retrieval.questions,
            retrieval.answers,
            inquiry.mode,
            inquiry.journal,
            inquiry.recipe.breaker,
        )
    except Exception as error:  # noqa: BLE001  (reported in the answer)
        inquiry.journal.failed(STAGE, perf_counter(), error, "hits of other groups may be missing")
        return retrieval
    return replace(retrieval, answers=answers)


async def measure_backgrounds(
    lacking: Mapping[Reading, Sequence[Journal]], mode: Mode, breaker: Breaker, limit: float | None
) -> None:
    """Measure backgrounds; whatever is missing in the end is said in the answers.

    What is late is measured to its end in its thread, and known to the next search. A dataset whose measurement is late
    again and again is left out for a while.

    Args:
        lacking: the datasets that lack one, each with the journals of the questions that wait for it.
        mode: how to wait.
        breaker: leaves out what keeps failing.
        limit: seconds for all of them; None: no limit.
    """
    start, jobs = perf_counter(), []
    for reading, journals in lacking.items():
        name = f"background of {reading.name}"
        if (reason := breaker.why_not(name)) is not None:
            _say_unmeasured(journals, name, f"it is {reason}")
        else:
            jobs.append((reading, journals, name))
    calls = [DualCall(reading.measure, partial(in_thread, reading.measure)) for reading, _, _ in jobs]
    outcomes = await mode.all(calls, limit) if calls else []
    for (reading, journals, name), outcome in zip(jobs, outcomes, strict=True):
        error = outcome.error if reading.lacks_background else None
        breaker.record(name, error)
        cause = None if error is None else describe(error)
        for journal in journals:
            journal.add(Span("measure", name, outcome.milliseconds, None, cause, journal.at(start)))
        if cause is not None:
            _say_unmeasured(journals, name, cause)


def _say_unmeasured(journals: Sequence[Journal], name: str, cause: str) -> None:
    for journal in journals:
        journal.degrade(f"{name}: {cause}; until it is measured, its hits have no relevance by vectors")
    log.warning("%s was not measured: %s", name, cause)
