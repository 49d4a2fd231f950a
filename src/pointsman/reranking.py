"""Whether a reranker gains on a dataset: what `pointsman tune` and `calibrate` measure before `auto` takes it.

Nothing is fitted: the first hits of a search are reranked, and nDCG@10 is compared question by question. So every
question is one that was left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from pointsman.errors import PointsmanError
from pointsman.request import SearchRequest
from pointsman.retrieval.background import evenly
from pointsman.retrieval.dataset_calibration import Reranking
from pointsman.retrieval.rerank.base import MAX_CANDIDATES
from pointsman.retrieval.rerank.chosen import reranker_for
from pointsman.types import Hit, Query, Ranked

if TYPE_CHECKING:
    from pointsman.dataset import Dataset
    from pointsman.engine import Engine
    from pointsman.retrieval.policy import Policy
    from pointsman.retrieval.rerank.base import BaseReranker

K = TypeVar("K")

FEWEST: Final = 20
"""Questions below which no gain is believed."""

MOST: Final = 300
"""Questions that are reranked at most: each costs a search and a reranking."""

_CUTOFF: Final = 10
_FAILURES: Final = 3  # after so many it is left alone: each may have taken its whole timeout
_Z: Final = 1.645  # a gain counts from where the one-sided 95 % interval leaves zero behind

Grades = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A question with its first hits as they are without the reranker, and the grades of documents by id."""

    query: Query
    hits: tuple[Hit, ...]
    grades: Mapping[str, int]


def measured_reranking(engine: Engine, questions: Iterable[Judged], kind: str) -> Reranking | None:
    """Whether the reranker of the engine's settings gains on these questions; None where they name none.

    One that cannot be opened, and one that fails on three questions, is not adopted, and the answer says why.

    Args:
        engine: whose settings.
        questions: with their hits.
        kind: what they are, in words: ``"labelled questions"``.
    """
    setting = engine.settings.reranker
    try:
        reranker = reranker_for(engine.settings)
    except PointsmanError as error:
        return Reranking(setting, False, f"0 {kind}", 0.0, 0.0, 0.0, 0.0, str(error))
    return None if reranker is None else _compared(reranker, questions, kind)


def labelled_questions(engine: Engine, dataset: Dataset, queries: Mapping[str, str], qrels: Grades) -> Iterator[Judged]:
    """Labelled questions with the first hits of ``auto`` as the engine has it, an even sample of them."""
    graded = {query: grades for query, grades in qrels.items() if query in queries}
    present = dataset.store.keys(sorted({name for grades in graded.values() for name in grades}))
    good = {
        query: {name: grade for name, grade in grades.items() if grade > 0 and name in present}
        for query, grades in graded.items()
    }
    answerable = [query for query, grades in good.items() if grades]
    for query in evenly(answerable, MOST):
        text, hits = first_hits(engine, dataset, queries[query])
        yield Judged(text, hits, good[query])


def without_models(dataset: Dataset, policy: Policy | None = None) -> Engine:
    """A dataset's engine as ``auto`` has it: with a language model the wording of a question would choose the strategy.

    Args:
        dataset: whose engine.
        policy: instead of its own.
    """
    engine = dataset.engine
    stages = engine.stages if policy is None else replace(engine.stages, policy=policy)
    return replace(engine, models=None, stages=stages)


def first_hits(engine: Engine, dataset: Dataset, text: str) -> tuple[Query, tuple[Hit, ...]]:
    """What ``auto`` would hand to a reranker: the question as it is searched for, and the first hits."""
    answer = engine.search(SearchRequest.of(text, MAX_CANDIDATES, {"rerank": False, "refuse": False}), [dataset])
    return answer.query, answer.hits


def _compared(reranker: BaseReranker, questions: Iterable[Judged], kind: str) -> Reranking:
    before: list[float] = []
    after: list[float] = []
    seconds: list[float] = []
    problems: list[str] = []
    reranker.forget()
    for question in questions:
        began = perf_counter()
        refined = reranker.refine(question.query, Ranked(question.hits, "fused"), _CUTOFF)
        if refined.degraded:
            problems.append(refined.degraded[0])
        else:
            seconds.append(perf_counter() - began)
        before.append(ndcg([hit.id for hit in question.hits], question.grades))
        after.append(ndcg([hit.id for hit in refined.hits], question.grades))
        if len(problems) == _FAILURES:
            break
    count = len(before)
    problem = ""
    if len(problems) == _FAILURES:
        problem = f"it failed on {_FAILURES} of {count} questions: {problems[-1]}"
    elif count < FEWEST:
        problem = f"there are {count} {kind}, and at least {FEWEST} are needed to measure a gain"
    gains = [new - old for old, new in zip(before, after, strict=True)]
    lower = lower_end(gains) if count > 1 else 0.0
    return Reranking(
        reranker.name,
        not problem and lower > 0,
        f"{count} {kind}",
        sum(before) / max(count, 1),
        sum(after) / max(count, 1),
        lower,
        1000 * median(seconds) if seconds else 0.0,
        problem,
    )


def ndcg(ranking: Sequence[K], grades: Mapping[K, int], k: int = _CUTOFF) -> float:
    """nDCG@k of a ranking; the grade is the gain.

    >>> ndcg(["a", "b"], {"b": 1})
    0.6309297535714575
    """
    return _gain([grades.get(key, 0) for key in ranking[:k]]) / _gain(sorted(grades.values(), reverse=True)[:k])


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def lower_end(gains: Sequence[float]) -> float:
    """The lower end of the one-sided 95 % interval of a mean gain."""
    mean = sum(gains) / len(gains)
    variance = sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return mean - _Z * math.sqrt(variance / len(gains))
