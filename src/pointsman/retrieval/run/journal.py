"""The notes that a search takes while it runs; they become the trace of its answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pointsman.tools.parallel_calls import SearchDeadline, describe
from pointsman.tools.sync_and_async import set_within
from pointsman.values.reasons import Reason, messages
from pointsman.values.trace import HitKey, Span, StageRecord, Trace
from pointsman.values.types import keys_of

if TYPE_CHECKING:
    from pointsman.retrieval.fusion import Fused
    from pointsman.retrieval.run.candidates import Results
    from pointsman.values.types import Hit, Plan, Ranked

log = logging.getLogger(__name__)

Listener = Callable[["Plan | Span"], None]
"""Receives the plan, each branch when it ends, and every other stage; may be called in any thread."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Report the progress of searches that begin within the block to a listener.

    An error of the listener is logged, and the search goes on.
    """
    return set_within(_listener, listener)


class Journal:
    """Spans, rankings and degradations of one search, and its deadline.

    Args:
        timeout: seconds for the whole search; None: no limit.
        notes: degradations that are known before it begins.
    """

    def __init__(self, timeout: float | None = None, notes: Sequence[str] = ()) -> None:
        self.deadline = SearchDeadline(timeout)
        self.began = perf_counter()
        self.spans: list[Span] = []
        self.records: list[StageRecord] = []
        self.degraded: list[str] = list(dict.fromkeys(notes))
        self.heard: set[str] = set()
        """Names of the branches that have reported their own end."""
        self.fused_hits: Sequence[Hit] = ()
        """In the order of the fused lists."""
        self.listener = _listener.get()

    def tell(self, news: Plan | Span) -> None:
        """Send a plan or span to the listener, if there is one."""
        if self.listener is not None:
            try:
                self.listener(news)
            except Exception:
                log.exception("the listener of a search failed; the search continues")

    def at(self, moment: float) -> float:
        """Milliseconds from the beginning of the search to a moment of ``perf_counter``."""
        return (moment - self.began) * 1000

    def span(self, stage: str, detail: str, start: float, count: int | None = None, error: str | None = None) -> None:
        """Note a stage that began at ``start``, a moment of ``perf_counter``, and ends now."""
        self.add(Span(stage, detail, (perf_counter() - start) * 1000, count, error, self.at(start)))

    def add(self, span: Span) -> None:
        """Note a stage, and report it."""
        self.spans.append(span)
        if self.listener is not None:
            self.tell(span)

    def degrade(self, *causes: str) -> None:
        """Note what did not work as requested, each cause once."""
        for cause in causes:
            if cause not in self.degraded:
                self.degraded.append(cause)

    def failed(self, stage: str, start: float, error: Exception, instead: str) -> None:
        """Note that a stage failed, and what happens instead."""
        cause = describe(error)
        self.span(stage, f"failed; {instead}", start, None, cause)
        self.degrade(f"{stage}: {cause}; {instead}")
        log.warning("%s failed, %s: %s", stage, instead, cause)

    def fused(self, results: Results, fused: Fused[Any]) -> None:
        """Note the lists and the ranking they were fused into."""
        for source, ranking in results.pool.lists.items():
            score = partial(results.score, source) if source in results.scorable_lists else None
            self.records.append(StageRecord("retrieve", source, ranking, results.ids, score=score))
        if len(results.pool.lists) > 1:
            self.records.append(StageRecord("fuse", "fuse", fused.ranking, results.ids))

    def ranked(self, stage: str, ranking: Ranked) -> None:
        """Note the ranking that a refiner returned."""
        self.records.append(StageRecord(stage, stage, _entries(ranking.hits), list, ranking.dropped))
        self.degrade(*ranking.degraded)

    def order_reasons(self, hits: Sequence[Hit]) -> list[Reason]:
        """Return why hits stand above others that are more relevant, each reason once; none if none does."""
        judged_hits = [hit for hit in hits if hit.relevance is not None]
        stages = {
            self._ordering_stage(first.key, second.key): None
            for first, second in pairwise(judged_hits)
            if (first.relevance or 0) < (second.relevance or 0)
        }
        codes = {stage: f"order_{stage}" for stage in stages}
        return [Reason.of(code if code in messages() else "order_other", stage=stage) for stage, code in codes.items()]

    def _ordering_stage(self, first: HitKey, second: HitKey) -> str:
        """Return the stage that put one hit above another, where it stayed."""
        stage = "answer"
        for record in reversed([record for record in self.records if record.stage != "refuse"]):  # it orders nothing
            is_fused = record.stage in {"retrieve", "fuse"}  # under keys of their own
            keys = keys_of(self.fused_hits) if is_fused else [key for key, _ in record.ranking]
            if first not in keys or second not in keys or keys.index(first) > keys.index(second):
                break
            stage = record.stage
            if is_fused or stage == "rerank":  # it orders all hits anew
                break
        return stage

    def trace(self, answer: Sequence[Hit]) -> Trace:
        """The trace of a search that ends with this answer."""
        self.records.append(StageRecord("answer", "answer", _entries(answer)))
        return Trace(tuple(self.spans), tuple(self.records))


def _entries(hits: Sequence[Hit]) -> list[tuple[Any, float | None]]:
    return [((hit.dataset, hit.document.id), hit.score) for hit in hits]
