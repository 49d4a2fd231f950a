"""Logistic regression as a selector needs it: weights and a threshold, fold by fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PRIOR: Final = 20.0  # precision of the prior on weights, roughly in labels


_LOGISTIC_PRIOR: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Held-out queries, each with its top choices.

    Attributes:
        features: shape ``(queries, 3, candidates)``.
        right: shape ``(queries, candidates)``.
        highest: the highest cosine, shape ``(queries,)``.
    """

    features: NDArray[np.float64]
    right: NDArray[np.bool_]
    highest: NDArray[np.float64]


def weights_by_fold(sample: Sample, fold: NDArray[np.intp], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each query, the weights learned on the queries of the other folds."""
    weights = np.tile(start, (len(fold), 1))
    for number in np.unique(fold):
        in_training = fold != number
        training = Sample(sample.features[in_training], sample.right[in_training], sample.highest[in_training])
        weights[~in_training] = fit_weights(training, start)
    return weights


def fit_weights(sample: Sample, start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the non-negative weights that maximise the likelihood of the right choices, regularised to ``start``.

    Conditional logit (McFadden, 1974): a choice's probability is its share of the softmax of the weighted sums; the
    prior is Gaussian around ``start``. Uses Newton steps with the information matrix, halved until they improve.
    """
    has_label = sample.right.any(axis=1)
    features, right = sample.features[has_label], sample.right[has_label]
    if not len(features):
        return start

    def worth(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        sums = np.einsum("p,qpc->qc", weights, features)
        sums -= sums.max(axis=1, keepdims=True)
        likely = np.exp(sums)
        total = likely.sum(axis=1)
        among_right = np.where(right, likely, 0)
        of_right = among_right.sum(axis=1)
        value = float(np.log(of_right / total).sum() - _PRIOR / 2 * ((weights - start) ** 2).sum())
        return value, likely / total[:, None], among_right / of_right[:, None]

    weights = start
    value, share, share_of_right = worth(weights)
    for _ in range(50):
        expected = np.einsum("qc,qpc->qp", share, features)
        gradient = (np.einsum("qc,qpc->qp", share_of_right, features) - expected).sum(axis=0)
        gradient -= _PRIOR * (weights - start)
        information = np.einsum("qc,qpc,qrc->pr", share, features, features, optimize=True) - expected.T @ expected
        step = np.linalg.solve(information + _PRIOR * np.eye(3), gradient)
        while np.abs(step).max() > 1e-6:
            candidate = np.maximum(weights + step, 0)
            better, *shares = worth(candidate)
            if better > value:
                break
            step /= 2
        else:
            break
        weights, value, (share, share_of_right) = candidate, better, shares
    return weights


def _logistic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 * (1 + np.tanh(values / 2)))  # this form cannot overflow


def fit_logistic(evidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the coefficients that make ``correct`` likeliest, with a weak prior around 0 except on the intercept.

    Platt, "Probabilistic outputs for support vector machines", 1999. Uses Newton's method with bounded steps.
    """
    prior = np.diag([1e-6, *[_LOGISTIC_PRIOR] * (evidence.shape[1] - 1)])
    # As in Platt scaling, targets stop short of 0 and 1: if all answers were right, no finite slope would be optimal.
    short = 0.5 / (len(correct) + 1)
    target = np.where(correct, 1 - short, short)
    coefficients = np.zeros(evidence.shape[1])
    for _ in range(50):
        probability = _logistic(evidence @ coefficients)
        gradient = evidence.T @ (target - probability) - prior @ coefficients
        spread = np.maximum(probability * (1 - probability), 1e-6)
        step = np.linalg.solve((evidence * spread[:, None]).T @ evidence + prior, gradient)
        coefficients = coefficients + step * min(1.0, 5 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return coefficients


def confidence_by_fold(
    evidence: NDArray[np.float64], correct: NDArray[np.bool_], fold: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return, for each query, the confidence learned from the queries of the other folds."""
    confidence = np.zeros(len(evidence))
    for number in np.unique(fold):
        in_training = fold != number
        learned_from = in_training if in_training.any() else ~in_training
        confidence[~in_training] = _logistic(
            evidence[~in_training] @ fit_logistic(evidence[learned_from], correct[learned_from])
        )
    return confidence


def threshold(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], has_label: NDArray[np.bool_]
) -> float | None:
    """Return the confidence below which abstaining is right most often; None if every query has a right choice.

    Selecting is right if the selection is; abstaining is right if the label is None.
    """
    if has_label.all():
        return None
    order = np.argsort(confidence, kind="stable")
    abstaining = np.concatenate([[0], np.cumsum(~has_label[order])])
    selecting = np.concatenate([np.cumsum(correct[order][::-1])[::-1], [0]])
    best = int((abstaining + selecting).argmax())  # number of least confident queries that abstain
    if best == 0:
        return 0.0
    lower = float(confidence[order[best - 1]])
    upper = float(confidence[order[best]]) if best < len(order) else 1.0
    return round((lower + upper) / 2, 6)
