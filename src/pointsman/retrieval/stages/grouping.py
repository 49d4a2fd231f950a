"""The search for hits of other groups: with ``group_by``, documents of a group that is full make room for others."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.run.branches import SourceBranch, ask
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.merged_results import RetrieverResults
from pointsman.retrieval.stages.answer_limits import absence_of, has_key
from pointsman.tools.errors import PointsmanError
from pointsman.values.metadata import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pointsman.retrieval.plan.recipe import RoutedRecipe
    from pointsman.retrieval.refine.diversity import Grouping
    from pointsman.retrieval.run.branches import Branch, BranchAnswers, Question
    from pointsman.retrieval.run.candidates import Results
    from pointsman.retrieval.run.journal import Journal
    from pointsman.tools.parallel_calls import Breaker, Mode
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document, Ranked

    ScoredDocument = tuple[Document, float]

log = logging.getLogger(__name__)

STAGE: Final = "group_by"

ROUNDS: Final = 8
"""The most further searches of one question; each leaves out the groups that are full."""


async def fill(
    grouping: Grouping,
    recipe: RoutedRecipe,
    branches: Sequence[Branch],
    questions: Sequence[Question],
    answers: Sequence[BranchAnswers],
    mode: Mode,
    journal: Journal,
    breaker: Breaker,
) -> Sequence[BranchAnswers]:
    """Search datasets again without the groups that are full, until there are enough hits or no candidate is left.

    What is added stands below the candidates of the same list, as it would in a longer list. Retrievers are not asked
    again.

    Args:
        grouping: of the answer.
        recipe: of the search, applied to its sources.
        branches: that were searched.
        questions: the query and its variants.
        answers: to each of them.
        mode: how to wait.
        journal: of the search; it says if no document has the key.
        breaker: leaves out branches that keep failing.

    Returns:
        The answers with the candidates that were added.
    """
    examined, depth = recipe.examined, recipe.depth
    numbers = [number for number, branch in enumerate(branches) if isinstance(branch, SourceBranch)]
    last_answers = answers
    for turn in range(ROUNDS + 1):
        answers = await mode.blocking(partial(_with_documents, answers))
        documents = _documents(answers)
        if documents and not any(map(grouping.groups_of, documents)):
            journal.degrade(*await mode.blocking(partial(_unknown_key, grouping.key, answers, documents)))
            break
        count, full_groups = grouping.count(documents)
        numbers = [number for number in numbers if _is_cut(last_answers, number, depth)]
        if count >= examined or not numbers or not full_groups:
            break
        if turn == ROUNDS:
            journal.degrade(f"{STAGE}: {ROUNDS} further searches found {count} of {examined} hits; there may be others")
            break
        further_questions = [
            replace(
                question,
                query=replace(question.query, filters=grouping.outside(full_groups, question.query.filters)),
                label=", ".join(filter(None, [question.label, "other groups"])),
            )
            for question in questions
        ]
        further_answers = await ask(
            [branches[number] for number in numbers],
            further_questions,
            depth,
            mode,
            [journal] * len(questions),
            breaker=breaker,
            budget=partial(journal.deadline.for_branches, has_later_stages=recipe.has_later_stages),
        )
        last_answers = [
            replace(answer, results={numbers[position]: results for position, results in answer.results.items()})
            for answer in further_answers
        ]
        answers = [_with_further(*pair) for pair in zip(answers, last_answers, strict=True)]
        if any(answer.failed for answer in last_answers):  # the answer says so
            break
    return answers


def nearest_of_groups(
    grouping: Grouping, k: int, filters: Filter | None, search: Callable[[int, Filter | None], list[ScoredDocument]]
) -> list[ScoredDocument]:
    """Return the ``k`` best documents of one list, without those that exceed their group.

    The list is read on without the groups that are full, twice as far each time, until there are enough documents or
    none is left: a few searches, however many documents of one group come first.

    Args:
        grouping: of the documents.
        k: how many to return.
        filters: which documents are eligible.
        search: returns the best documents of the list, given how many and which are eligible.
    """
    depth = k
    nearest = further = search(depth, filters)
    while len(further) >= depth:
        count, full_groups = grouping.count(document for document, _ in nearest)
        if count >= k:
            break
        depth *= 2
        further = search(depth, grouping.outside(full_groups, filters))
        ids = {document.id for document, _ in nearest}
        nearest = [*nearest, *[pair for pair in further if pair[0].id not in ids]]
    if nearest and not any(grouping.groups_of(document) for document, _ in nearest):
        log.warning("%s: none of the %d nearest documents has the key %.80r", STAGE, len(nearest), grouping.key)
    return [nearest[place] for place in grouping.places_within([document for document, _ in nearest])[:k]]


def limit_groups(grouping: Grouping, ranking: Ranked, journal: Journal) -> Ranked:
    """Return a ranking without the hits that exceed their group; the journal says which."""
    start = perf_counter()
    short_ranking = grouping.limit(ranking)
    journal.ranked(STAGE, short_ranking)
    detail = f"{len(short_ranking.dropped)} beyond {grouping.size} of each {grouping.key!r:.80} are left out"
    journal.span(STAGE, detail, start, len(short_ranking.hits))
    return replace(short_ranking, dropped={})


def _unknown_key(key: str, answers: Sequence[BranchAnswers], candidates: Sequence[Document]) -> list[str]:
    """Return a note if no searched document has the key, which no candidate has; none if retrievers may have others.

    A store whose keys are not at hand is asked for one document with the key.
    """
    stores = {}
    for result in [result for answer in answers for result in answer.results.values()]:
        if not isinstance(result, StoreResults):
            return []
        stores[result.reading.name] = result.reading.store
    known_keys = {name for document in candidates for name in facts(document.metadata)}
    for name, store in stores.items():
        try:
            names = store.metadata_keys() or ()
            if has_key(store, key):
                return []
        except PointsmanError as error:
            note = f"{STAGE}: no candidate has the key {key!r:.80}, and {name} cannot say whether others have"
            return [f"{note}; {error}"]
        known_keys.update(names)
    return [absence_of(key, known_keys, STAGE)]


def _with_documents(answers: Sequence[BranchAnswers]) -> list[BranchAnswers]:
    """Return answers whose stores' results hold the documents of all their candidates, so that none is read twice."""
    return [
        replace(answer, results={number: _holding(results) for number, results in answer.results.items()})
        for answer in answers
    ]


def _holding(results: Results) -> Results:
    """Return results with the documents of all candidates."""
    if not isinstance(results, StoreResults):
        return results
    keys = list(dict.fromkeys(key for ranking in results.pool.lists.values() for key, _ in ranking))
    documents = zip(keys, results.fetch_documents(keys), strict=True)
    complete_results = copy(results)
    complete_results.documents = {key: document for key, document in documents if document is not None}
    return complete_results


def _documents(answers: Sequence[BranchAnswers]) -> list[Document]:
    """Return the documents of all candidates, each once."""
    documents: dict[Any, Document] = {}
    for answer in answers:
        for results in answer.results.values():
            if isinstance(results, StoreResults):
                name = results.reading.name
                documents.update({(name, document.id): document for document in results.documents.values()})
            elif isinstance(results, RetrieverResults):
                documents.update({hit.key: hit.document for hits in results.hits.values() for hit in hits})
    return list(documents.values())


def _is_cut(answers: Sequence[BranchAnswers], number: int, depth: int) -> bool:
    """Whether a list of this branch may go on."""
    results = [answer.results[number] for answer in answers if number in answer.results]
    return any(len(ranking) >= depth for result in results for ranking in result.pool.lists.values())


def _with_further(answer: BranchAnswers, further_answer: BranchAnswers) -> BranchAnswers:
    """The answer with further candidates of the same branches below its own."""
    results = dict(answer.results)
    for number, result in further_answer.results.items():
        if number in results:
            results[number] = _below(results[number], result)
    return replace(answer, results=results)


def _below(results: Results, further_results: Results) -> Results:
    """Results of a store with further candidates below those of each list."""
    lists = dict(results.pool.lists)
    for name, ranking in further_results.pool.lists.items():
        keys = {key for key, _ in lists.get(name, ())}
        lists[name] = [*lists.get(name, ()), *[entry for entry in ranking if entry[0] not in keys]]
    scores = {
        name: {**further_results.pool.scores.get(name, {}), **results.pool.scores.get(name, {})}
        for name in {**results.pool.scores, **further_results.pool.scores}
    }
    union = results.with_pool(replace(results.pool, lists=lists, scores=scores))
    if isinstance(union, StoreResults) and isinstance(further_results, StoreResults):
        union.documents = {**further_results.documents, **union.documents}
    return union
