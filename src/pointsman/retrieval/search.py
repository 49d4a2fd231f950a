"""A search, stage by stage; `search` is the diagram.

::

    route ─ plan ─ transform ─ embed ─ retrieve ∥ ─ fuse ─ fetch ─ admit ─ judge ─ likelier dataset ─ in force ─ exact
      ─ refine … ─ limit ─ answer

Each stage is a function from a value to a value. Refiners rerank, refuse, diversify and compress. A `Recipe` defines
each stage and its limits. One question and many take the same path; many questions share one embedding batch, one round
trip to each store, and one reranking batch.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.run.journal import Journal
from pointsman.retrieval.run.reading import reading_each
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.stages.likelier_dataset import put_likelier_first
from pointsman.retrieval.stages.lists_to_hits import (
    answer,
    fetch,
    fuse,
    judge,
    limit_groups,
    limit_hits,
    put_in_force,
    put_newer_first,
    refine,
    with_receipt,
)
from pointsman.retrieval.stages.near_misses import put_exact_first, tell_near_misses, tell_other_months
from pointsman.retrieval.stages.obeyed_syntax import admit, leave_out_excluded, leave_out_unmet, list_filtered
from pointsman.retrieval.stages.question_to_lists import (
    Inquiry,
    embed,
    fill_groups,
    measure,
    measure_new,
    plan,
    retrieve,
    route,
    transform,
)
from pointsman.text.designations import asked_months, designations
from pointsman.tools.parallel_calls import Mode, Threads, run
from pointsman.values.retrieval_context import RetrievalContext
from pointsman.values.trace import Trace
from pointsman.values.types import Plan, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.plan.recipe import Recipe


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
    recipe, timeout = recipes[0], _timeout(recipes[0], len(queries), seconds)
    sources = [source for source in recipe.sources.values() if isinstance(source, Source)]
    with _spending(recipe, len(queries), timeout), reading_each(sources) as readings:
        routings, rewritings, rankings, contexts = [], [], [], []
        for own_recipe, query in zip(recipes, queries, strict=True):
            inquiry = Inquiry.of(own_recipe, query, mode, readings, Journal(timeout, own_recipe.notes))
            routings.append(await route(inquiry))
        for search_plan in await plan(routings, search):
            rewritings.append(await transform(search_plan))  # noqa: PERF401  (a comprehension is a call of its own)
        unembedded = await embed(rewritings)
        new_readings = await measure_new(rewritings)
        retrievals = await retrieve(rewritings, unembedded)
        await measure(retrievals, new_readings)
        for retrieval in retrievals:
            fused_lists = await fuse(await fill_groups(retrieval))
            has_syntax, versions = fused_lists.inquiry.written_query is not None, await fetch(fused_lists)
            ranking = judge(fused_lists, admit(fused_lists, versions) if has_syntax else versions)
            if len(recipe.sources) > 1:
                ranking = put_likelier_first(ranking)
            if not ranking.ranking.hits and fused_lists.query.filters is not None:
                ranking = await list_filtered(ranking)
            ranking = await put_in_force(ranking)
            if names := designations(fused_lists.inquiry.query.text):
                ranking = await tell_near_misses(ranking, names)
            elif months := asked_months(fused_lists.inquiry.query.text):
                ranking = tell_other_months(ranking, months)
            rankings.append(limit_groups(leave_out_unmet(ranking) if has_syntax else ranking))
        for refiner in recipe.refiners:
            rankings = await refine(refiner, rankings)
        for ranking in map(put_newer_first, rankings):
            inquiry = ranking.fused_lists.inquiry
            names = designations(inquiry.query.text)
            exact_first = put_exact_first(ranking, names) if names else ranking
            answer_hits = limit_hits(leave_out_excluded(exact_first) if inquiry.written_query else exact_first)
            contexts.append(with_receipt(ranking, answer(answer_hits)))
        return contexts


def search_now(recipe: Recipe, queries: Sequence[Query]) -> list[RetrievalContext]:
    """`search` for synchronous code; needs no event loop, and works while one is running."""
    return run(search([recipe] * len(queries), queries, Threads()))


def unanswered(recipe: Recipe, query: Query, why: str) -> RetrievalContext:
    """The empty answer to a question that was not searched."""
    plan = Plan(
        recipe.alone or tuple(recipe.sources), recipe.strategy or recipe.method, why, decisions=recipe.decisions
    )
    return RetrievalContext(query, (), plan, Trace(), degraded=(why,), asked=query)


def _timeout(recipe: Recipe, questions: int, seconds: float | None) -> float | None:
    """Seconds for all questions together."""
    if recipe.timeout is None:
        return seconds
    return min(math.inf if seconds is None else seconds, recipe.timeout * questions)


def _spending(recipe: Recipe, questions: int, timeout: float | None) -> Any:
    """A context in which every call of a language model counts against the recipe's budget for each question."""
    if recipe.budget is None:
        return nullcontext()
    from pointsman.retrieval.refine.budget import spending

    return spending(recipe.budget.for_questions(questions), timeout, recipe.breaker)
