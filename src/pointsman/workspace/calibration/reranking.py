"""Measures whether a reranker improves a dataset's results, before `auto` uses it (`pointsman tune`, `calibrate`).

The first hits of a search are reranked, and nDCG@10 is compared question by question. Nothing is fitted, so every
question is held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from pointsman.retrieval.judge.kept_calibrations import Reranking
from pointsman.retrieval.refine.rerank.base_reranker import MAX_CANDIDATES
from pointsman.retrieval.refine.rerank.chosen_reranker import reranker_for
from pointsman.retrieval.request import SearchRequest
from pointsman.store.sampling import evenly
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.values.types import Hit, Query, Ranked

if TYPE_CHECKING:
    from pointsman.retrieval.engine import Engine
    from pointsman.retrieval.plan.policy import Policy
    from pointsman.retrieval.refine.rerank.base_reranker import BaseReranker
    from pointsman.workspace.dataset import Dataset

K = TypeVar("K")

FEWEST: Final = 20
"""The minimum number of questions for a measured gain to count."""

MOST: Final = 300
"""The maximum number of questions; each costs a search and a reranking."""

_CUTOFF: Final = 10
_FAILURES: Final = 3  # after this many, measuring stops: each failure may have taken the whole timeout
_Z: Final = 1.645  # a gain counts if its one-sided 95 % interval lies above zero

Grades = Mapping[str, Mapping[str, int]]

Answers = Mapping[str, Mapping[str, str]]
"""Query id -> document id -> the answer to which it belongs, as the passages of a file do."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A question with its first hits before reranking.

    Attributes:
        query: the transformed question.
        hits: the hits before reranking.
        grades: grades by document id, or by answer.
        answer_of: the answer to which a document belongs, by its id.
    """

    query: Query
    hits: tuple[Hit, ...]
    grades: Mapping[str, int]
    answer_of: Mapping[str, str] = field(default_factory=dict)


def measured_reranking(engine: Engine, questions: Iterable[Judged], kind: str) -> Reranking | None:
    """Measure the reranker named in the engine's settings on these questions; returns None if no reranker is named.

    A reranker that cannot be opened, or fails on three questions, is not adopted; the result says why.

    Args:
        engine: provides the settings.
        questions: the questions with their hits.
        kind: the kind of questions in words, such as ``"labelled questions"``.
    """
    setting = engine.settings.reranker
    try:
        reranker = reranker_for(engine.settings)
    except PointsmanError as error:
        return Reranking(setting, False, f"0 {kind}", 0.0, 0.0, 0.0, 0.0, str(error))
    return None if reranker is None else _compared(reranker, questions, kind)


def check_labels(queries: object, qrels: object) -> None:
    """Check that labels are mappings as `pointsman.evaluation.read_labels` returns them.

    Raises:
        InputError: they are not.
    """
    if not isinstance(queries, Mapping) or not all(isinstance(text, str) for pair in queries.items() for text in pair):
        raise InputError(f"queries are a mapping of ids to texts, not {queries!r:.80}")
    if not isinstance(qrels, Mapping):
        raise InputError(f"qrels are a mapping of query ids to grades by document id, not {qrels!r:.80}")
    for query, grades in qrels.items():
        if not isinstance(grades, Mapping) or not all(
            isinstance(name, str) and isinstance(grade, int | float) for name, grade in grades.items()
        ):
            raise InputError(
                f"the grades of query {query!r:.80} are a mapping of document ids to numbers, not {grades!r:.80}"
            )


def labelled_questions(
    engine: Engine, dataset: Dataset, queries: Mapping[str, str], qrels: Grades, answers: Answers | None = None
) -> Iterator[Judged]:
    """Yield an even sample of the labelled questions, each with its first hits by the engine's ``auto``."""
    grades_by_query = {query: grades for query, grades in qrels.items() if query in queries}
    present = dataset.store.keys(sorted({name for grades in grades_by_query.values() for name in grades}))
    good = {
        query: {name: grade for name, grade in grades.items() if grade > 0 and name in present}
        for query, grades in grades_by_query.items()
    }
    answerable = [query for query, grades in good.items() if grades]
    for query in evenly(answerable, MOST):
        text, hits = first_hits(engine, dataset, queries[query])
        answer_of = (answers or {}).get(query, {})
        grades = {answer_of.get(name, name): grade for name, grade in good[query].items()}
        yield Judged(text, hits, grades, answer_of)


def without_models(dataset: Dataset, policy: Policy | None = None) -> Engine:
    """Return a dataset's engine without language models; with one, a question's wording would choose the strategy.

    Args:
        dataset: the dataset whose engine is copied.
        policy: replaces the engine's own policy.
    """
    engine = dataset.engine
    stages = engine.stages if policy is None else replace(engine.stages, policy=policy)
    return replace(engine, models=None, stages=stages)


def first_hits(engine: Engine, dataset: Dataset, text: str) -> tuple[Query, tuple[Hit, ...]]:
    """Return what ``auto`` would pass to a reranker: the transformed question and its first hits."""
    answer = engine.search(SearchRequest.of(text, MAX_CANDIDATES, {"rerank": False, "refuse": False}), [dataset])
    return answer.query, answer.hits


def _compared(reranker: BaseReranker, questions: Iterable[Judged], kind: str) -> Reranking:
    scores_before: list[float] = []
    scores_after: list[float] = []
    seconds: list[float] = []
    problems: list[str] = []
    reranker.forget()
    for question in questions:
        start = perf_counter()
        reranked_ranking = reranker.refine(question.query, Ranked(question.hits, "fused"), _CUTOFF)
        if reranked_ranking.degraded:
            problems.append(reranked_ranking.degraded[0])
        else:
            seconds.append(perf_counter() - start)
        answer_of = question.answer_of
        scores_before.append(ndcg(by_answer([hit.id for hit in question.hits], answer_of), question.grades))
        scores_after.append(ndcg(by_answer([hit.id for hit in reranked_ranking.hits], answer_of), question.grades))
        if len(problems) == _FAILURES:
            break
    count = len(scores_before)
    problem, counted_questions = "", f"{count} {kind}"
    if len(problems) == _FAILURES:
        problem = f"it failed on {_FAILURES} of {count} questions: {problems[-1]}"
    elif count < FEWEST:
        problem = f"there are {counted_questions}, and at least {FEWEST} are needed to measure a gain"
    gains = [new - old for old, new in zip(scores_before, scores_after, strict=True)]
    lower = lower_end(gains) if count > 1 else 0.0
    return Reranking(
        reranker.name,
        not problem and lower > 0,
        counted_questions,
        sum(scores_before) / max(count, 1),
        sum(scores_after) / max(count, 1),
        lower,
        1000 * median(seconds) if seconds else 0.0,
        problem,
    )


def by_answer(ranking: Iterable[K], answer_of: Mapping[K, str]) -> list[K | str]:
    """Return a ranking in which documents are replaced by their answers, each at its first position.

    >>> by_answer(["a", "b", "c"], {"a": "file", "b": "file"})
    ['file', 'c']
    """
    return list(dict.fromkeys(answer_of.get(key, key) for key in ranking))


def ndcg(ranking: Sequence[K], grades: Mapping[K, int], k: int = _CUTOFF) -> float:
    """Return nDCG@k of a ranking, with the grade as gain.

    >>> ndcg(["a", "b"], {"b": 1})
    0.6309297535714575
    """
    return _gain([grades.get(key, 0) for key in ranking[:k]]) / _gain(sorted(grades.values(), reverse=True)[:k])


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def lower_end(gains: Sequence[float]) -> float:
    """Return the lower end of the one-sided 95 % interval of a mean gain."""
    mean = sum(gains) / len(gains)
    variance = sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return mean - _Z * math.sqrt(variance / len(gains))
