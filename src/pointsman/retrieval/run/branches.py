"""Branches of a search: a source or a retriever, searched in parallel, with results in the form that fusion reads."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from pointsman.retrieval.run.candidates import KeyOf, Results, ScoreGap, StoreResults
from pointsman.retrieval.run.merged_results import RetrieverResults
from pointsman.retrieval.run.source import words_in
from pointsman.store.store_values import NEAR, WORDS, Capability, Lists, StoreQuery
from pointsman.tools.errors import InputError, RetrievalError, StoreError
from pointsman.tools.parallel_calls import Breaker, DualCall, Mode, Outcome, describe, reporting
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.reasons import Reason
from pointsman.values.types import Query, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.retrieval.run.journal import Journal
    from pointsman.retrieval.run.reading import Reading
    from pointsman.retrieval.run.variant import Variant
    from pointsman.store.store_values import Scores, Statistics
    from pointsman.values.protocols import Retriever
    from pointsman.values.types import Hit

log = logging.getLogger(__name__)

UNTIL_THEN: Final = "until then only words find those"
"""The end of a note about vectors still to come."""

_PATIENCE = 1.0  # seconds that a branch must have had before a timeout counts as its failure
_AT_ONCE = 8  # concurrent calls when retrievers are asked many questions


@dataclass(frozen=True, slots=True)
class Question:
    """One text to search for: a query, or a variant of it.

    Attributes:
        query: with the text.
        label: of the variant, such as ``"subquestion 1"``; empty for the query itself.
        variant: the variant itself; None for the query.
        unembedded: why it has no vector, by the ``id`` of a source's ``query_vectors``; such sources search words only.
    """

    query: Query
    label: str = ""
    variant: Variant | None = None
    unembedded: Mapping[int, Exception] = field(default_factory=dict)


class Branch(Protocol):
    """Something to search."""

    @property
    def name(self) -> str:
        """Its name in plans, traces and errors, unique within one search."""
        ...

    def calls(self, questions: Sequence[Question], depth: int) -> list[tuple[list[int], DualCall[list[Results]]]]:
        """The calls that search it for at most ``depth`` candidates per list, each with the places of its questions."""
        ...


class SourceBranch:
    """A dataset; one call, and one round trip, for all questions.

    Args:
        reading: of the dataset.
        lists: whether words, and vectors, are searched; see `Source.lists_for`.
        absent_script: the share of documents below which words in a script are left out; 0 leaves none out.
    """

    def __init__(self, reading: Reading, lists: tuple[bool, bool], absent_script: float) -> None:
        self.reading, self.name, self.absent_script = reading, reading.name, absent_script
        self.searches_words, self.searches_vectors = lists
        self.is_local = reading.is_local

    def calls(self, questions: Sequence[Question], depth: int) -> list[tuple[list[int], DualCall[list[Results]]]]:
        """See `Branch`."""
        own_questions = {
            position: question
            for position, question in enumerate(questions)
            if question.variant is None or question.variant.datasets is None or self.name in question.variant.datasets
        }
        questions = list(own_questions.values())
        call = DualCall(
            lambda: self.search(questions, depth), lambda: self.asearch(questions, depth), self._is_quick(questions)
        )
        return [(list(own_questions), call)]

    def _is_quick(self, questions: Sequence[Question]) -> bool:
        """Whether a search does not wait: the store is in this process, and the query's vector is cached."""
        if len(questions) > 1 or not self.is_local:
            return False
        return not self.searches_vectors or questions[0].query.text in self.reading.source.query_vectors

    def search(self, questions: Sequence[Question], depth: int) -> list[Results]:
        """Search for all questions at once; takes two round trips if a store scores only each list's own candidates."""
        store = self.reading.store
        statistics = self.reading.read()
        store_queries = [self._store_query(question, depth, statistics) for question in questions]
        lists = store.search(list(map(itemgetter(0), store_queries)))
        if gaps := self._gaps(questions, lists):
            try:
                scores = store.score([store_queries[index][0] for index in gaps], list(gaps.values()))
            except StoreError as error:
                lists = self._lists_with_gaps(lists, error)
            else:
                lists = _fill_gaps(lists, gaps, scores)
        return self._results(store_queries, lists)

    async def asearch(self, questions: Sequence[Question], depth: int) -> list[Results]:
        """Async version of `search`; embedding, and a store in this process, run in a worker thread."""
        if self.is_local:
            return await in_thread(self.search, questions, depth)

        def prepare() -> list[tuple[StoreQuery, tuple[str, ...]]]:
            statistics = self.reading.read()
            return [self._store_query(question, depth, statistics) for question in questions]

        store_queries = await in_thread(prepare)
        store = self.reading.store
        lists = await store.asearch(list(map(itemgetter(0), store_queries)))
        if gaps := self._gaps(questions, lists):
            try:
                scores = await store.ascore([store_queries[index][0] for index in gaps], list(gaps.values()))
            except StoreError as error:
                lists = self._lists_with_gaps(lists, error)
            else:
                lists = _fill_gaps(lists, gaps, scores)
        return self._results(store_queries, lists)

    def _gaps(self, questions: Sequence[Question], lists: Sequence[Lists]) -> dict[int, list[Any]]:
        """Return, by the position of a question, the candidates that have a score in only one list, for `Store.score`.

        Empty if the store scores all candidates itself or cannot score given ones. Questions with variants are left to
        `complete`, which scores all their candidates.
        """
        if self.is_local or not self.reading.can(Capability.SCORES_OTHERS):
            return {}
        gaps: dict[int, list[Any]] = {}
        for index, (question, store_lists) in enumerate(zip(questions, lists, strict=True)):
            following = questions[index + 1 : index + 2]
            if question.variant is not None or (following and following[0].variant is not None):
                continue
            scores = [store_lists.scores[name] for name in (WORDS, NEAR) if name in store_lists.scores]
            if len(scores) == 2 and scores[0].keys() != scores[1].keys():
                gaps[index] = sorted(scores[0].keys() ^ scores[1].keys(), key=str)
        return gaps

    def _lists_with_gaps(self, lists: Sequence[Lists], error: StoreError) -> list[Lists]:
        """Return the lists unchanged, with a note."""
        note = f"{self.name}: {describe(error)}; candidates found by only one list are scored by that list alone"
        return [replace(store_lists, degraded=(*store_lists.degraded, note)) for store_lists in lists]

    def _store_query(
        self, question: Question, depth: int, statistics: Statistics
    ) -> tuple[StoreQuery, tuple[str, ...]]:
        """The store's look for a question, and notes about texts that could not be embedded."""
        source, query, variant = self.reading.source, question.query, question.variant
        words, searches_vectors, as_passage = self.searches_words, self.searches_vectors, False
        if variant is not None and variant.method is not None:
            words, searches_vectors = source.lists_for(variant.method if source.keeps(variant.method) else "auto")
        if variant is not None:
            as_passage = variant.as_passage
        text = query.text if words else None
        if text is not None and self.absent_script and not text.isascii():
            text = words_in(text, statistics, self.absent_script, self.reading.store)
        store_query = StoreQuery(text, None, depth, query.filters)
        if not searches_vectors:
            return store_query, ()
        try:
            failure = question.unembedded.get(id(source.query_vectors))
            if failure is not None and query.text not in source.query_vectors:
                raise failure
            vector = self.reading.vector_of(query.text, as_passage=as_passage)
        except InputError:
            raise
        except Exception as error:  # reported in the answer, below
            if not words:
                raise
            # the keyword list needs no model
            return store_query, (f"{self.name}: {describe(error)}; only words were searched",)
        held = None if variant is not None else source.query_vectors.truncated_at(query.text)
        return replace(store_query, vector=vector), () if held is None else (_truncated(held, query.text),)

    def _results(
        self,
        store_queries: Sequence[tuple[StoreQuery, tuple[str, ...]]],
        lists: Sequence[Lists],
    ) -> list[Results]:
        notes = self._vectors_due()
        return [
            StoreResults(self.reading, store_query, store_lists, (*degraded, *notes))
            for (store_query, degraded), store_lists in zip(store_queries, lists, strict=True)
        ]

    def _vectors_due(self) -> tuple[str, ...]:
        """Return the note of an answer about missing vectors, if there are any."""
        statistics = self.reading.statistics
        if statistics is None or not statistics.vectors_due:
            return ()
        due, count = statistics.vectors_due, statistics.documents
        return (f"{self.name}: {due} of {count} documents have no vector yet; {UNTIL_THEN}",)


def _truncated(held: int, text: str) -> Reason:
    """Return the note about a question of which the vector holds only the first characters."""
    return Reason.of("truncated", held=f"{held:,}", characters=f"{len(text):,}")


def _fill_gaps(lists: Sequence[Lists], gaps: Mapping[int, Any], scores: Sequence[Scores]) -> list[Lists]:
    """Return the lists with these scores added, by position."""
    complete_lists = list(lists)
    for index, missing_scores in zip(gaps, scores, strict=True):
        scores_of_list = complete_lists[index].scores
        complete_lists[index] = replace(
            complete_lists[index],
            scores={name: {**missing_scores.get(name, {}), **values} for name, values in scores_of_list.items()},
        )
    return complete_lists


class RetrieverBranch:
    """Any retriever; its scores are on its own scale, so it is fused with others by rank unless requested otherwise.

    Args:
        retriever: something with ``retrieve`` and ``aretrieve``.
        name: of its list.
        key: two hits with the same key are the same document; dataset and id by default.
        options: further arguments that the retriever is called with.
    """

    def __init__(
        self, retriever: Retriever, name: str, key: KeyOf | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.retriever, self.name, self._key, self._options = retriever, name, key, dict(options or {})

    def calls(self, questions: Sequence[Question], depth: int) -> list[tuple[list[int], DualCall[list[Results]]]]:
        """See `Branch`; one call per question."""
        return [([index], self._call(question.query, depth)) for index, question in enumerate(questions)]

    def _call(self, query: Query, depth: int) -> DualCall[list[Results]]:
        async def asynchronous() -> list[Results]:
            return results(await self.retriever.aretrieve(query, depth, **self._options))

        def synchronous() -> list[Results]:
            return results(self.retriever.retrieve(query, depth, **self._options))

        def results(hits: Sequence[Hit]) -> list[Results]:
            return [RetrieverResults.of(self.name, hits, self._key, query.filters)]

        return DualCall(synchronous, asynchronous)


def unique_names(retrievers: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """A name for each retriever: the given name, its own, or its class name in words, numbered from the second on.

    Raises:
        InputError: names are missing or repeated.
    """
    if names is not None:
        if isinstance(names, str) or len(names) != len(retrievers) or len(set(names)) < len(names):
            raise InputError(f"{len(retrievers)} retrievers need distinct names, one each, not {names!r:.200}")
        return list(names)
    unique: list[str] = []
    for retriever in retrievers:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(retriever).__name__.removesuffix("Retriever")).lower()
        own_name = getattr(retriever, "name", None)
        base = own_name if isinstance(own_name, str) and own_name else words.strip("_") or "retriever"
        count = sum(name == base or name.rpartition("_")[0] == base for name in unique)
        unique.append(base if not count else f"{base}_{count + 1}")
    return unique


@dataclass(frozen=True, slots=True)
class BranchAnswers:
    """The results of one question by branch number, and the errors of failed branches by name."""

    results: Mapping[int, Results]
    failed: Mapping[str, Exception]


async def ask(
    branches: Sequence[Branch],
    questions: Sequence[Question],
    depth: int,
    mode: Mode,
    journals: Sequence[Journal],
    *,
    breaker: Breaker,
    budget: Callable[[], float | None],
    at_once: int = 0,
) -> list[BranchAnswers]:
    """Search all branches for all questions at once; branches that fail or are late are noted, and the others answer.

    Args:
        branches: at least one, with different names.
        questions: the texts to search for.
        depth: candidates per list.
        mode: how to wait.
        journals: one per question; each gets a span, and any failure, for every branch.
        breaker: leaves out branches that keep failing, unless all do.
        budget: returns the seconds that are left for them; None: no limit.
        at_once: how many are searched at once; 0: all.

    Returns:
        The results of each question.
    """
    seconds = budget()
    left_out = breaker.left_out(map(attrgetter("name"), branches))
    available_branches = [branch for branch in branches if branch.name not in left_out] or list(branches)
    start = perf_counter()
    jobs = [
        (number, branch, positions, call)
        for number, branch in enumerate(branches)
        if branch in available_branches
        for positions, call in branch.calls(questions, depth)
    ]
    results: list[dict[int, Results]] = [{} for _ in questions]
    failures: list[dict[str, Exception]] = [{} for _ in questions]
    if at_once:  # those that are open first: they may be closed for the others
        jobs.sort(key=lambda job: isinstance(job[1], SourceBranch) and not job[1].reading.is_open)
    calls = [_reporting(call, branch, positions, questions, journals) for _, branch, positions, call in jobs]
    causes = list[tuple[str, Exception]]()
    one_each = len(calls) <= len(available_branches) or len({id(journal) for journal in journals}) == 1
    outcomes = await _in_waves(calls, (at_once or len(calls)) if one_each else _AT_ONCE, mode, seconds, budget)
    for (number, branch, positions, _), (outcome, limit) in zip(jobs, outcomes, strict=True):
        error = outcome.error or (RuntimeError("it gave no answer") if outcome.answer is None else None)
        if not isinstance(error, TimeoutError) or limit is None or limit >= _PATIENCE:
            breaker.record(branch.name, error)  # a branch that had too little time has not failed
        if error is not None:
            causes.append((branch.name, error))
        answers: Sequence[Results | None] = outcome.answer or [None] * len(positions)
        for position, answer in zip(positions, answers, strict=True):
            question = questions[position]
            label = f"{branch.name}, {question.label}" if question.label else branch.name
            if answer is not None:
                results[position][number] = answer
            elif error is not None:
                failures[position][label] = error
            journal = journals[position]
            span = _span(label, answer, error, outcome.milliseconds, journal.at(start))
            _note(journal, span, label, answer, error)
    if causes and any(results):  # if nothing answers, the caller raises the error
        _tell_failures(causes, len(jobs), journals)
    if len(available_branches) < len(branches):
        _note_left_out(left_out, journals, start)
    # In the order of the branches, not of the jobs: which of equals is first may not depend on what others had opened.
    return [BranchAnswers(dict(sorted(pair[0].items())), pair[1]) for pair in zip(results, failures, strict=True)]


class _UnreachedError(TimeoutError):
    """No time was left for a branch that had to wait for others; of many, one note tells all."""


def _tell_failures(causes: Sequence[tuple[str, Exception]], count: int, journals: Sequence[Journal]) -> None:
    """Log why branches failed, and note those for which no time was left, once in each journal."""
    for name, error in causes:
        if not isinstance(error, _UnreachedError):
            log.warning("branch %s failed: %s", name, describe(error))
    if names := [name for name, error in causes if isinstance(error, _UnreachedError)]:
        note = f"{len(names):,} of {count:,} datasets were not searched, as no time was left ({', '.join(names[:3])} …)"
        for journal in journals:
            journal.degrade(f"{note}; give a longer timeout, or name fewer datasets")


def _note_left_out(left_out: Mapping[str, str], journals: Sequence[Journal], start: float) -> None:
    """Note the branches that were left out, once in each journal."""
    for journal in {id(journal): journal for journal in journals}.values():
        for name, reason in left_out.items():
            journal.add(Span("retrieve", name, 0.0, None, reason, journal.at(start)))
            journal.degrade(f"{name}: {reason}")


def _note(journal: Journal, span: Span, label: str, answer: Results | None, error: Exception | None) -> None:
    """Note the outcome of one question in one branch."""
    if answer is not None:
        if answer.degraded:
            journal.degrade(*answer.degraded)
    elif error is not None and not isinstance(error, _UnreachedError):
        journal.degrade(f"{label}: {describe(error)}")
    journal.spans.append(span)
    if journal.listener is not None and label not in journal.heard:  # it is late and has not reported its end
        journal.tell(span)


async def _in_waves(
    calls: Sequence[DualCall[list[Results]]],
    at_once: int,
    mode: Mode,
    seconds: float | None,
    budget: Callable[[], float | None],
) -> list[tuple[Outcome[list[Results]], float | None]]:
    """Make so many calls at a time; returns the outcome of each, and the seconds that it had.

    Where many datasets, or retrievers with many questions, would all be asked at once, some wait for the others.

    Args:
        calls: at least one.
        at_once: the size of a wave.
        mode: how to wait.
        seconds: for the first wave.
        budget: returns the seconds that are left for later ones.
    """
    outcomes: list[tuple[Outcome[list[Results]], float | None]] = []
    for start in range(0, len(calls), at_once):
        wave = calls[start : start + at_once]
        limit = budget() if start else seconds
        if start and limit == 0:
            outcomes += [(Outcome(None, _UnreachedError("no time was left"), 0.0), limit)] * len(wave)
        else:
            outcomes += zip(await mode.all(wave, limit), repeat(limit), strict=False)
    return outcomes


def nothing_answered(failures: Mapping[str, Exception]) -> Exception:
    """The error of a search whose branches all failed; the InputError of a single branch is returned unchanged."""
    error = next(iter(failures.values()))
    if len(failures) == 1 and isinstance(error, InputError):
        return error
    return RetrievalError("every branch of the search failed", failures)


async def complete(results: Sequence[Results], keys: Sequence[Any], mode: Mode) -> list[Results]:
    """Add raw scores for these keys to every list; one more round trip to each store, the last of the search."""
    gaps: dict[int, list[tuple[int, ScoreGap]]] = {}
    for position, result in enumerate(results):
        for missing in result.missing(keys):
            gaps.setdefault(id(missing.results.reading), []).append((position, missing))
    missing_scores: list[dict[str, dict[Any, float]]] = [{} for _ in results]
    for group in gaps.values():
        reading = group[0][1].results.reading
        store_queries, gap_keys = [m.results.store_query for _, m in group], [m.keys for _, m in group]
        if not reading.can(Capability.SCORES_OTHERS):
            continue
        store = reading.store
        scores = await mode.one(
            DualCall(partial(store.score, store_queries, gap_keys), partial(store.ascore, store_queries, gap_keys))
        )
        for (position, missing), new in zip(group, scores, strict=True):
            number = missing.number
            for name, values in new.items():
                scores_by_key = values if number is None else {(number, key): score for key, score in values.items()}
                missing_scores[position].setdefault(name, {}).update(scores_by_key)
    return [result.with_scores(new) if new else result for result, new in zip(results, missing_scores, strict=True)]


def _reporting(
    call: DualCall[list[Results]],
    branch: Branch,
    positions: Sequence[int],
    questions: Sequence[Question],
    journals: Sequence[Journal],
) -> DualCall[list[Results]]:
    """The call, reporting its end to the journals that have a listener."""
    if not any(journals[position].listener for position in positions):
        return call
    start = perf_counter()

    def report(answers: list[Results] | None, error: Exception | None) -> None:
        for number, position in enumerate(positions):
            journal, label = journals[position], questions[position].label
            name = f"{branch.name}, {label}" if label else branch.name
            journal.heard.add(name)
            duration = (perf_counter() - start) * 1000
            journal.tell(_span(name, answers[number] if answers else None, error, duration, journal.at(start)))

    return reporting(call, report)


def _span(name: str, answer: Results | None, error: Exception | None, milliseconds: float, start: float) -> Span:
    """The span of a branch: the sizes of its lists, or why it failed."""
    if answer is None:
        return Span("retrieve", name, milliseconds, None, None if error is None else describe(error), start)
    lists = answer.pool.lists
    counts = ", ".join(f"{len(ranking)} by {source}" for source, ranking in lists.items())
    detail = f"{name}: {counts or 'nothing'}" if list(lists) != [name] else name
    return Span("retrieve", detail, milliseconds, answer.size, "; ".join(answer.degraded) or None, start)
