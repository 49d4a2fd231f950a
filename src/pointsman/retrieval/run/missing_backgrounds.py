"""What the datasets of a search lack to be judged: the background of their vectors, measured under its deadline."""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from pointsman.retrieval.parallel_calls import DualCall, describe
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.trace import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.retrieval.parallel_calls import Breaker, Mode
    from pointsman.retrieval.run.journal import Journal
    from pointsman.retrieval.run.reading import Reading

log = logging.getLogger(__name__)


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
