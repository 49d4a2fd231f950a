"""Fits the relevance of hits to questions whose answers are known (`pointsman.retrieval.judge.relevance`).

Where every hit was judged, all labels count. Where only some relevant passages are labelled, as in most collections, a
hit without a label is unknown, not wrong. The first hit's label is taken at its word, because people look there; a
later hit without one counts as relevant with the probability that it is relevant although it has no label. That follows
from the share of relevant hits that are labelled, which is estimated for each collection together with the function, by
expectation maximisation.

Sources: C. Elkan and K. Noto, Learning Classifiers from Only Positive and Unlabeled Data (KDD 2008), section 3, for the
weights of unlabelled examples; J. Bekker and J. Davis, Learning from Positive and Unlabeled Data: a Survey (Machine
Learning 109, 2020), section 5, for estimating both together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.judge.relevance import (
    HIT_FEATURES,
    QUESTION_FEATURES,
    Candidates,
    Evidence,
    Form,
    Logistic,
    Relevance,
    has_form,
    sigmoid,
)
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

MINIMUM: Final = 0.142
"""The default relevance of the best candidate below which an answer is refused as surely elsewhere.

It is the highest that refuses at most 1.5 % of the questions whose first hit is right (mean over folders and
collections, questions across languages among them), and the same whichever of them are left out. Of 537 such questions
of twelve folders it refuses 7, of 180 that nothing there answers 80 (``benchmarks/verdicts.py``).
"""

LATER: Final = 0.5
"""The weight of a question's later hits together, where they are not all judged; that of its first hit is 1."""

_RIDGE: Final = 1e-3
_LEAST: Final = 20  # the minimum number of questions of each kind for a fit
_ROUNDS: Final = 8  # of expectation and maximisation; the coefficients change by less than a hundredth after six


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A question with judged hits.

    Attributes:
        evidence: the scores of all candidates.
        places: the positions of the hits, best first.
        relevant: whether each hit is labelled as relevant; all False for a question without an answer.
        answered: whether the dataset holds an answer.
        complete: whether every hit was judged; if not, later hits without a label are unknown.
        collection: where it comes from; the share of labelled hits is estimated for each.
        weight: the weight of the question in a fit.
    """

    evidence: Evidence
    places: Sequence[int]
    relevant: Sequence[bool]
    answered: bool = True
    complete: bool = False
    collection: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class PreparedQuestion:
    """The features of a labelled question, as a fit needs them; arrays have one value per hit."""

    question: Mapping[str, float]
    hits: Mapping[str, Any]
    relevant: NDArray[np.bool_]
    known: NDArray[np.bool_]
    answered: bool
    complete: bool
    collection: str
    weight: float


def prepare(row: Labelled, form: Form) -> PreparedQuestion | None:
    """Return the features of a labelled question; None if it lacks the scores that the form uses."""
    import numpy as np

    if not has_form(row.evidence, form):
        return None
    candidates, count = Candidates(row.evidence, form), len(row.places)
    features = candidates.hits(np.asarray(row.places, int))
    hits = {name: np.broadcast_to(features[name], count) for name in HIT_FEATURES[form]}
    relevant = np.asarray(row.relevant, bool)
    is_known = relevant | row.complete | (np.arange(count) == 0)
    return PreparedQuestion(
        candidates.question(), hits, relevant, is_known, row.answered, row.complete, row.collection, row.weight
    )


def fit_prepared(
    rows: Sequence[PreparedQuestion], form: Form, embedder: str | None, minimum: float = MINIMUM
) -> Relevance:
    """Fit a calibration to labelled questions.

    Args:
        rows: questions with their judged hits, and questions that the dataset cannot answer, as `prepare` returns them.
        form: the scores that they were prepared with.
        embedder: the embedder behind the cosines; None for words alone.
        minimum: the relevance of the best candidate below which to refuse.

    Raises:
        InputError: there are too few questions of either kind.
    """
    question = _fit_question([row.question for row in rows], QUESTION_FEATURES[form], rows)
    hits = _Hits.of(rows)
    columns = {name: hits.joined([row.hits[name] for row in hits.rows]) for name in HIT_FEATURES[form]}
    return Relevance(form, embedder, question, hits.fit(columns), minimum)


def scale(base: Relevance, rows: Sequence[PreparedQuestion]) -> Relevance:
    """Shift and scale the logits of a calibration to fit labelled questions; its other coefficients stay.

    Each part has two fitted numbers instead of the dozen of `fit_prepared`, so few questions suffice (J. Platt, 1999).

    Raises:
        InputError: there are too few questions of either kind.
    """
    logits = [{"logit": float(base.question.logits(row.question))} for row in rows]
    question = _stretch(base.question, _fit_question(logits, ("logit",), rows))
    hits = _Hits.of(rows)
    line = hits.fit({"logit": hits.joined([base.hit.logits(row.hits) for row in hits.rows])})
    return Relevance(base.form, base.embedder, question, _stretch(base.hit, line), base.minimum)


def _stretch(model: Logistic, line: Logistic) -> Logistic:
    by = line.slopes["logit"]
    return Logistic(line.intercept + by * model.intercept, {name: by * slope for name, slope in model.slopes.items()})


def _fit_question(
    features: Sequence[Mapping[str, float]], names: Sequence[str], rows: Sequence[PreparedQuestion]
) -> Logistic:
    """Fit what predicts whether a dataset holds an answer; raises InputError if one kind of question is too rare."""
    import numpy as np

    is_answered = np.array([row.answered for row in rows], bool)
    for count, kind in ((is_answered.sum(), "answered"), ((~is_answered).sum(), "unanswered")):
        if count < _LEAST:
            raise InputError(f"at least {_LEAST} {kind} questions are needed to calibrate; there are {count}")
    columns = {name: np.array([row[name] for row in features], float) for name in names}
    return _fit_logistic(columns, is_answered.astype(float), np.array([row.weight for row in rows]))


@dataclass(frozen=True, slots=True, eq=False)
class _Hits:
    """The hits of all answered questions, joined.

    Attributes:
        rows: the questions.
        relevant: whether each hit is labelled as relevant.
        known: whether its label is taken at its word.
        weights: by hit.
        collections: the number of each hit's collection.
    """

    rows: Sequence[PreparedQuestion]
    relevant: NDArray[np.float64]
    known: NDArray[np.bool_]
    weights: NDArray[np.float64]
    collections: NDArray[np.int64]
    names: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[PreparedQuestion]) -> _Hits:
        import numpy as np

        rows = [row for row in rows if row.answered and len(row.relevant)]
        names = {name: number for number, name in enumerate(dict.fromkeys(row.collection for row in rows))}
        weights = []
        for row in rows:
            count = len(row.relevant)
            share = np.full(count, 1 / count if row.complete else LATER / max(count - 1, 1))
            if not row.complete:
                share[0] = 1.0
            weights.append(row.weight * share)
        return cls(
            rows,
            np.concatenate([row.relevant for row in rows]).astype(float),
            np.concatenate([row.known for row in rows]),
            np.concatenate(weights),
            np.concatenate([np.full(len(row.relevant), names[row.collection]) for row in rows]),
            names,
        )

    def joined(self, columns: Sequence[Any]) -> NDArray[np.float64]:
        """Join one column of every question."""
        import numpy as np

        return np.concatenate(columns).astype(float)

    def fit(self, columns: Mapping[str, NDArray[np.float64]]) -> Logistic:
        """Fit what predicts whether a hit is relevant, together with the share of relevant hits that have a label."""
        import numpy as np

        label_rates = np.full(len(self.names), 0.5)
        chances, is_unknown = self.relevant, ~self.known
        for _ in range(_ROUNDS if is_unknown.any() else 1):
            coefficients = _fit_logistic(columns, chances, self.weights)
            if not is_unknown.any():
                break
            relevance = sigmoid(np.asarray(coefficients.logits(columns)))
            share = label_rates[self.collections]
            chances = np.where(is_unknown, relevance * (1 - share) / (1 - share * relevance), self.relevant)
            with_label = np.bincount(self.collections, self.relevant, len(label_rates))
            without_label = np.bincount(self.collections, np.where(is_unknown, chances, 0.0), len(label_rates))
            label_rates = np.clip(with_label / np.maximum(with_label + without_label, 1e-9), 0.01, 0.999)
        return coefficients


def _fit_logistic(
    columns: Mapping[str, NDArray[np.float64]], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> Logistic:
    """Fit a logistic regression by Newton's method, with a small ridge penalty.

    Args:
        columns: the features by name.
        y: the labels, or the probabilities that they are 1.
        weights: the weights of the rows.
    """
    import numpy as np

    names = list(columns)
    x = np.stack([np.asarray(columns[name], float) for name in names], axis=1)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1.0
    z = np.column_stack([np.ones(len(x)), (x - centre) / spread])
    weights = weights / weights.sum()
    penalty = _RIDGE * np.diag([0.0] + [1.0] * len(names))
    coefficients = np.zeros(z.shape[1])
    for _ in range(100):
        chances = sigmoid(z @ coefficients)
        gradient = z.T @ (weights * (y - chances)) - penalty @ coefficients
        hessian = (z.T * (weights * chances * (1 - chances))) @ z + penalty
        step = np.linalg.solve(hessian, gradient)
        coefficients += step / max(1.0, float(np.abs(step).max()) / 3)  # it may overshoot if labels are separable
        if float(np.abs(step).max()) < 1e-9:
            break
    slopes = coefficients[1:] / spread
    return Logistic(float(coefficients[0] - slopes @ centre), dict(zip(names, slopes.tolist(), strict=True)))
