"""What the datasets of a search lack to be judged: the background of their vectors, measured under its deadline."""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from pointsman.retrieval.parallel_calls import DualCall, describe
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.judging import embedder_of
from pointsman.store.store_values import Capability
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.trace import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pointsman.retrieval.parallel_calls import Breaker, Mode
    from pointsman.retrieval.run.branches import BranchAnswers
    from pointsman.retrieval.run.journal import Journal
    from pointsman.retrieval.run.reading import Reading

log = logging.getLogger(__name__)


def new_readings(
    lists: Mapping[str, tuple[bool, bool]],
    readings: Mapping[str, Reading],
    text: str,
    has_odds: Callable[[str, str | None], bool],
) -> list[Reading]:
    """Return the datasets in this process that no search has judged yet by their cosines, as this one will.

    Args:
        lists: whether words and vectors of each dataset are searched.
        readings: the datasets, by name.
        text: the question.
        has_odds: whether the cosines of an embedder can be judged in a dataset.
    """
    return [
        reading
        for name, (_, searches_vectors) in lists.items()
        if searches_vectors
        and (reading := readings[name]).is_new
        and (info := reading.info) is not None
        and has_odds(name, info.embedder)
        and text in reading.source.query_vectors
        and (reading.can(Capability.LOCAL) or getattr(reading.source, "is_view", False))
    ]


def lacking_background(answers: Iterable[BranchAnswers], has_odds: Callable[[str, str | None], bool]) -> list[Reading]:
    """Return the datasets whose hits cannot be judged by their cosines before their background is measured.

    Args:
        answers: of the branches to a question and its variants.
        has_odds: whether the cosines of an embedder can be judged in a dataset.
    """
    lacking: dict[Reading, None] = {}
    for results in [results for answer in answers for results in answer.results.values()]:
        if not isinstance(results, StoreResults) or not results.reading.lacks_background:
            continue
        if results.store_query.vector is not None and has_odds(results.reading.name, embedder_of(results)):
            lacking[results.reading] = None
    return list(lacking)


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
