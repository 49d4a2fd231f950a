"""Fits the automatic choice to a user's labels; keeps the default unless the gain is significant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.retrieval.plan.policy import Policy, measured
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.types import Query
from pointsman.workspace.calibration.reranking import (
    Answers,
    by_answer,
    check_labels,
    labelled_questions,
    lower_end,
    measured_reranking,
    ndcg,
    without_models,
)

if TYPE_CHECKING:
    from pointsman.evaluation.run_collection import Progress
    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.retrieval.judge.kept_calibrations import Reranking
    from pointsman.retrieval.run.candidates import Pool
    from pointsman.workspace.dataset import Dataset

FEWEST: Final = 10
"""Minimum number of labelled queries for fitting; with fewer, the default is far safer."""

WEIGHTS: Final = tuple(math.exp(step / 4) for step in range(-8, 9))
"""Vector weights to try: from 1/7 to 7, with the default 1 in the middle."""

FIXED: Final = ("bm25", "vector")
"""Fixed strategies to compare with."""

_PRIOR: Final = 0.5  # penalty in nDCG times labels per squared natural logarithm of the weight
_FOLDS: Final = 5

Grades = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of fitting.

    Attributes:
        policy: the policy to use: the default, unless another was significantly better.
        chosen: ``"default"``, ``"fitted"``, or a fixed strategy's name.
        reason: the explanation in words, with figures.
        queries: number of labelled queries.
        ndcg: nDCG@k by candidate; that of the fitted one is measured on held-out queries.
        lower: lower end of the confidence interval of the gain over the default, by candidate.
        reranking: the further gain of the reranker named in the settings; None if they name none.
    """

    policy: Policy
    chosen: str
    reason: str
    queries: int
    ndcg: Mapping[str, float]
    lower: Mapping[str, float]
    reranking: Reranking | None = None


@without_record()
def tune(
    dataset: Dataset,
    queries: Mapping[str, str],
    qrels: Grades,
    *,
    k: int = 10,
    policy: Policy | None = None,
    answers: Answers | None = None,
    on_progress: Progress | None = None,
) -> Tuning:
    """Fit the weight of the vectors to labelled queries of a dataset.

    One parameter is fitted, with a prior centred on the default: with fewer labels, a weight must win by more. It is
    evaluated by cross-validation and compared with the default and the fixed strategies query by query. The default is
    kept unless the confidence interval of another candidate's gain is above zero. Then the reranker named in the
    settings is measured on top of the result, with the same labels; nothing of the reranker is fitted to them.

    Args:
        dataset: a dataset with both keyword and vector indexes.
        queries: texts by query id.
        qrels: query id -> document id -> grade.
        k: the cutoff of nDCG.
        policy: the default policy; if None, the measured one.
        answers: query id -> document id -> the answer to which it belongs, see `pointsman.evaluation.file_labels`. Of
            several documents of one answer only the first in a ranking counts.
        on_progress: called with the number of queries done.

    Raises:
        InputError: ``k`` is not a positive int, the dataset has only one index, or fewer than ten queries have relevant
            documents in it.
    """
    check_top_k(k)
    check_labels(queries, qrels)
    if dataset.lists_for("auto") != (True, True):
        raise InputError(f"dataset {dataset.name!r} keeps only one list; there is nothing to weigh")
    default = replace(policy or measured(), vector_weight=1.0, strategy=None)
    judged_queries = _judged_queries(dataset, queries, qrels, answers or {})
    if len(judged_queries) < FEWEST:
        raise InputError(
            f"{len(judged_queries)} labelled queries have relevant documents in {dataset.name!r}; "
            f"with fewer than {FEWEST} the default is safer than anything fitted"
        )
    report = on_progress or (lambda *_: None)
    curves: list[list[float]] = []
    fixed_scores: dict[str, list[float]] = {name: [] for name in FIXED}
    spread = dataset.cosine_spread
    if spread is None:
        raise InputError(f"dataset {dataset.name!r} holds no vectors yet; add documents first")
    for number, (text, grades, answer_of) in enumerate(judged_queries, 1):
        pool = dataset.candidates(Query(text), absent_script=default.absent_script)
        curves.append(_curve(pool, spread, default, grades, answer_of, k))
        for name in FIXED:
            ranking = by_answer((key for key, _ in pool.lists[name]), answer_of)
            fixed_scores[name].append(ndcg(ranking, grades, k))
        report(number, len(judged_queries), "looking")
    tuning = _decide(default, np.array(curves), {name: np.array(values) for name, values in fixed_scores.items()})
    engine = without_models(dataset, tuning.policy)
    reranking = measured_reranking(
        engine, labelled_questions(engine, dataset, queries, qrels, answers), "labelled questions"
    )
    return replace(tuning, reranking=reranking)


def _judged_queries(
    dataset: Dataset, queries: Mapping[str, str], qrels: Grades, answers: Answers
) -> list[tuple[str, dict[int | str, int], dict[int, str]]]:
    """Return the text of each answered query, its grades, and the answers to which documents belong."""
    rows = []
    for query, text in queries.items():
        grades = {name: grade for name, grade in qrels.get(query, {}).items() if grade > 0}
        keys = dataset.store.keys(list(grades))
        if keys:
            id_answers = answers.get(query, {})
            answer_of = {key: id_answers[name] for name, key in keys.items() if name in id_answers}
            by_key: dict[int | str, int] = {answer_of.get(key, key): grades[name] for name, key in keys.items()}
            rows.append((text, by_key, answer_of))
    return rows


def _curve(
    pool: Pool[int],
    spread: CosineSpread,
    policy: Policy,
    grades: Mapping[int | str, int],
    answer_of: Mapping[int, str],
    k: int,
) -> list[float]:
    """Return nDCG@k for every weight."""
    weights, _ = policy.weigh(pool.span(spread))
    factor = weights.get("vector", 1.0)
    curve = []
    for weight in WEIGHTS:
        ranking_of_candidates = pool.fused("hybrid", spread, {"vector": factor * weight}).ranking
        ranking = by_answer((key for key, _ in ranking_of_candidates), answer_of)
        curve.append(ndcg(ranking, grades, k))
    return curve


def _decide(default: Policy, curves: Any, fixed_scores: Mapping[str, Any]) -> Tuning:
    count, usual = len(curves), WEIGHTS.index(1.0)
    held_out = np.empty(count)
    for fold in range(_FOLDS):
        in_fold = np.arange(count) % _FOLDS == fold
        held_out[in_fold] = curves[in_fold][:, _best(curves[~in_fold])]
    base = curves[:, usual]
    candidates = {"fitted": held_out, **fixed_scores}
    lower = {name: float(lower_end(values - base)) for name, values in candidates.items()}
    ndcg = {"default": float(base.mean()), **{name: float(values.mean()) for name, values in candidates.items()}}
    sure = [name for name in candidates if lower[name] > 0]
    figures = "; ".join(f"{name} {ndcg[name]:.4f} (gain at least {lower[name]:+.4f})" for name in candidates)
    if not sure:
        reason = f"the default is kept: on {count} queries it has {ndcg['default']:.4f}, no gain is significant"
        reason = f"{reason}; {figures}"
        return Tuning(default, "default", reason, count, ndcg, lower)
    best = max(sure, key=ndcg.__getitem__)
    if best == "fitted":
        weight = WEIGHTS[_best(curves)]
        note = {"vector_weight": f"fitted to {count} labelled queries by pointsman tune"}
        policy = replace(default, name="tuned", vector_weight=weight, origin={**default.origin, **note})
        choice = f"vectors count {weight:.2f}"
    else:
        note = {"strategy": f"beats the default on {count} labelled queries, by pointsman tune"}
        policy = replace(default, name="tuned", strategy=best, origin={**default.origin, **note})
        choice = f"the fixed strategy {best!r}"
    reason = f"{choice}: on {count} queries the default has {ndcg['default']:.4f}; {figures}"
    return Tuning(policy, best, reason, count, ndcg, lower)


def _best(curves: Any) -> int:
    """Return the weight with the highest mean after the prior's penalty for the distance from 1."""
    penalty = _PRIOR * np.log(WEIGHTS) ** 2 / len(curves)
    return int(np.argmax(curves.mean(axis=0) - penalty))
