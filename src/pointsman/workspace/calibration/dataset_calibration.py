"""Calibrates a dataset: fits the relevance of its hits to its own embedder and labels; see docs/scores.md.

Labels give the best fit. Without them, questions are made from the documents: a title, the first sentence or another
sentence is taken out of a document, and the rest of the document is the answer. People ask different questions, so
these are used only if no calibration applies, as with an embedder other than the default one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.judge.kept_calibrations import MADE_UNASKED, REFUSED, Calibration, Reranking, minimum_for
from pointsman.retrieval.judge.relevance import Form, Relevance, judge_by, shipped
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError
from pointsman.values.reasons import Reason
from pointsman.workspace.calibration.calibration_questions import (
    _FORMS,
    MADE,
    AskedQuestion,
    Grades,
    Halves,
    Progress,
    Study,
)
from pointsman.workspace.calibration.fitting import PreparedQuestion, fit_prepared, prepare, scale
from pointsman.workspace.calibration.reranking import check_labels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.workspace.dataset import Dataset


FEWEST: Final = 20
"""The minimum number of answered questions for a fit."""


BINS: Final = 10
"""The number of bins of equal count in the calibration error."""


_FOLDS: Final = 5


_Z: Final = 1.645  # a gain counts if its one-sided 95 % interval lies above zero


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of fitting one form of evidence; every figure is from questions held out of the fit.

    Attributes:
        form: the scores used: both, vectors alone, or words alone.
        error: the calibration error of `Hit.relevance` as fitted: ECE over ten bins of equal count.
        before: the error of the current calibration; None if there is none.
        gain: reduction of log loss per hit against the current calibration, or against the share of relevant hits if
            there is none.
        lower: the lower end of the interval of the gain.
        adopted: whether the fit is better.
    """

    form: Form
    error: float
    before: float | None
    gain: float
    lower: float
    adopted: bool

    def __str__(self) -> str:
        former_loss = "nothing before" if self.before is None else f"{self.before:.3f} before"
        verdict = "adopted" if self.adopted else "not adopted: the improvement is not significant"
        return f"{self.form}: calibration error {self.error:.3f}, {former_loss}; {verdict}"


@dataclass(frozen=True, slots=True)
class Calibrating:
    """The result of calibrating a dataset.

    Attributes:
        calibration: the calibration to store; None if nothing is better than the current one.
        questions: the number of answered questions.
        fits: one for each form of evidence.
        reason: the result in words, with the figures.
        reranking: the measured gain of the reranker in the settings; None if they name none.
    """

    calibration: Calibration | None
    questions: int
    fits: tuple[Fit, ...]
    reason: str
    reranking: Reranking | None = None


@without_record()
def calibrate(
    dataset: Dataset,
    queries: Mapping[str, str] | None = None,
    qrels: Grades | None = None,
    *,
    unasked: bool = False,
    on_progress: Progress | None = None,
) -> Calibrating:
    """Fit the relevance of a dataset's hits to labelled questions, or to questions made from its documents.

    Two fits are tried: one shifts and scales the logits of the built-in calibration; the other, only with labels, fits
    all coefficients. The better one by cross-validation is adopted if both its log loss and its calibration error are
    lower than the current ones. Unanswered questions are those whose labels are all 0, and 120 on any subject. The
    reranker named in the settings is measured first, and adopted if it ranks these questions better. With forty labels
    or more, the probability below which searches are refused is fitted too: at most `REFUSED` of such questions are.

    Args:
        dataset: the dataset to calibrate.
        queries: texts by query id; None: questions are made from the documents.
        qrels: query id -> document id -> grade; above 0 is relevant.
        unasked: from at most `MADE_UNASKED` documents, without labels, and without measuring a reranker.
        on_progress: called with the number of questions done.

    Raises:
        InputError: there are fewer than twenty answered questions, or the labels are invalid.
    """
    if queries is not None or qrels is not None:
        check_labels(queries, qrels)
    study = Study(dataset, on_progress or (lambda *_: None), MADE_UNASKED if unasked else MADE)
    has_labels = queries is not None
    reranking = None if unasked else study.measured_reranking(queries, qrels or {})
    study.reranking = reranking
    previous = _previous(dataset, reranking)
    notes = [] if reranking is None else [reranking.reason]
    if not has_labels and _is_calibrated(dataset):
        reason = Reason.join_all(Reason.of("nothing_fitted"), "give labels", *notes)
        return Calibrating(None if reranking is None else previous, 0, (), reason, reranking)
    if queries is None:
        rows = study.made()
        origin = f"{len(rows)} questions made from the documents"
    else:
        rows = study.labelled(queries, qrels or {})
        origin = f"{sum(row.answered for row in rows)} labelled questions"
    count = sum(row.answered for row in rows)
    if count < FEWEST:
        raise InputError(f"{origin} can be used in {dataset.name!r}; at least {FEWEST} are needed to calibrate")
    rows += study.unanswered()
    fits, relevances, halves = _fits(rows, labelled=has_labels)
    figures = [str(fit) for fit in fits]
    coverage, minimums = None, dict[Form, float]()
    if queries is not None and count >= 2 * FEWEST:
        minimums = _minimums(rows, halves)
        coverage = study.coverage(queries, qrels or {}, halves, minimums)
    if coverage is not None:
        figures.append(f"coverage of up to {coverage.most:.2f} can be promised")
    if minimums:
        minimums_text = ", ".join(f"{minimum:.2f} ({form})" for form, minimum in minimums.items())
        figures.append(f"refused below {minimums_text}, which at most {REFUSED:.0%} of such questions are")
    reason = Reason.join_all(origin, *figures, *notes)
    origin = f"fitted to {origin} by pointsman calibrate" if relevances else f"unchanged after {origin}"
    calibration = None if reranking is None else previous
    if relevances or coverage or minimums:
        documents = 0 if has_labels else len(dataset)
        calibration = Calibration(origin, tuple(relevances), coverage, previous.reranking, minimums, documents)
    return Calibrating(calibration, count, tuple(fits), reason, reranking)


def _previous(dataset: Dataset, reranking: Reranking | None) -> Calibration:
    """Return the calibration in use, with a reranker's new measurement; an empty one's origin is left out."""
    previous = dataset.engine.stages.fitted.get(dataset.name, Calibration(""))
    if previous.is_empty:
        previous = Calibration("", reranking=previous.reranking)
    return previous if reranking is None else replace(previous, reranking=reranking)


def _is_calibrated(dataset: Dataset) -> bool:
    """Whether a built-in calibration fits the dataset's scores."""
    embedder = dataset.store.info.embedder
    return any(relevance.embedder == embedder for relevance in shipped())


def _base(form: Form, rows: Sequence[AskedQuestion]) -> tuple[Relevance, bool]:
    """Return the built-in calibration for these scores, and whether it applies to this embedder."""
    base = next(relevance for relevance in shipped() if relevance.form == form)
    background = rows[0].evidence.background
    if form == "words" or background is None or background.embedder == base.embedder:
        return base, True
    return replace(base, embedder=background.embedder), False


def _fits(
    rows: Sequence[AskedQuestion], *, labelled: bool
) -> tuple[list[Fit], list[Relevance], tuple[list[Relevance], list[Relevance]]]:
    """Return a fit for each form of evidence, the adopted ones, and, for each half, these fitted to the other half."""
    fits: list[Fit] = []
    relevances: list[Relevance] = []
    halves: tuple[list[Relevance], list[Relevance]] = ([], [])
    suffices = labelled and sum(row.answered for row in rows) >= 2 * FEWEST
    for form in _FORMS[rows[0].evidence.form or "words"]:
        base = _base(form, rows)
        if not labelled and base[1]:
            continue  # a calibration fitted to people's questions takes precedence
        fit, relevance = _fitted(rows, form, base, labelled=labelled)
        fits.append(fit)
        if fit.adopted:
            relevances.append(relevance([0, 1]))
            for fold, relevances_of_half in enumerate(halves):
                if suffices:
                    relevances_of_half.append(relevance([1 - fold]))
    return fits, relevances, halves


def _fitted(
    rows: Sequence[AskedQuestion], form: Form, base: tuple[Relevance, bool], *, labelled: bool
) -> tuple[Fit, Callable[[Sequence[int]], Relevance]]:
    """Return the better of two fits, compared with the current calibration, and a function that fits it to halves."""
    import numpy as np

    usual, acts = base
    pairs = [(row.half, question) for row in rows if (question := prepare(row.row(form), form))]
    questions = [question for _, question in pairs]
    answered_count = sum(row.answered for row in questions)
    share = {True: 1 / max(answered_count, 1), False: 1 / max(len(questions) - answered_count, 1)}
    questions = [replace(row, weight=share[row.answered]) for row in questions]

    def all_coefficients(training_questions: Sequence[PreparedQuestion]) -> Relevance:
        return fit_prepared(training_questions, form, usual.embedder, usual.minimum)

    def stretched(training_questions: Sequence[PreparedQuestion]) -> Relevance:
        return scale(usual, training_questions)

    judged_questions = [row for row in questions if row.answered and len(row.relevant)]
    good = np.concatenate([row.relevant[row.known] for row in judged_questions])
    former_chances = (
        np.concatenate([_shown(usual, row) for row in judged_questions]) if acts else np.full(len(good), good.mean())
    )
    # People's questions have more evidence in a document than those taken out of it, so those must not fit slopes.
    methods = (stretched, all_coefficients) if labelled else (stretched,)
    chances_by_method = {method: _held_out(questions, method) for method in methods}
    losses = {method: _losses(chances, good) for method, chances in chances_by_method.items()}
    best = min(chances_by_method, key=lambda method: float(losses[method].mean()))
    gains = _losses(former_chances, good) - losses[best]
    gains_of_questions = np.split(gains, np.cumsum([row.known.sum() for row in judged_questions])[:-1])
    mean_gains = np.array([question_gains.mean() for question_gains in gains_of_questions])
    lower = float(mean_gains.mean() - _Z * mean_gains.std(ddof=1) / math.sqrt(len(mean_gains)))
    error, so_far = ece(chances_by_method[best], good), ece(former_chances, good)
    better = lower > 0 and (not acts or error < so_far)
    fit = Fit(form, error, so_far if acts else None, float(mean_gains.mean()), lower, better)

    def of(halves: Sequence[int]) -> Relevance:
        return best([row for row, (fold, _) in zip(questions, pairs, strict=True) if fold in halves])

    return fit, of


def _minimums(rows: Sequence[AskedQuestion], halves: Halves) -> dict[Form, float]:
    """Return, by form, the relevance of the best candidate below which questions are refused; see `minimum_for`.

    Questions in another language than the documents are left out, and keep the minimum of their calibration, because
    labels rarely have enough of them.

    Args:
        rows: the questions.
        halves: for each half, the calibrations fitted to the other half; they precede the built-in ones.
    """
    minimums: dict[Form, float] = {}
    for form in _FORMS[rows[0].evidence.form or "words"]:
        chances: list[float] = []
        for row in rows:
            if row.answered and not row.evidence.across:
                judgement = judge_by((*halves[row.half], *shipped()), row.row(form).evidence, ())
                chances += [] if judgement is None else [judgement[0].best]
        if (minimum := minimum_for(chances)) is not None:
            minimums[form] = minimum
    return minimums


def _held_out(
    rows: Sequence[PreparedQuestion], fit: Callable[[Sequence[PreparedQuestion]], Relevance]
) -> NDArray[np.float64]:
    """Return the relevance of the hits of answered questions by cross-validation."""
    import numpy as np

    folds = np.empty(len(rows), int)
    for kind in (True, False):
        positions = [position for position, row in enumerate(rows) if row.answered is kind]
        folds[positions] = np.arange(len(positions)) % _FOLDS
    chances_by_position: dict[int, NDArray[np.float64]] = {}
    for fold in range(_FOLDS):
        relevance = fit([row for row, own_fold in zip(rows, folds, strict=True) if own_fold != fold])
        for position in np.flatnonzero(folds == fold).tolist():
            if rows[position].answered and len(rows[position].relevant):
                chances_by_position[position] = _shown(relevance, rows[position])
    return np.concatenate([chances_by_position[position] for position in sorted(chances_by_position)])


def _shown(relevance: Relevance, row: PreparedQuestion) -> NDArray[np.float64]:
    """Return the relevance of the hits whose labels are known."""
    return relevance.chances(row.question, row.hits)[row.known]


def _losses(chances: NDArray[np.float64], good: NDArray[np.bool_]) -> NDArray[np.float64]:
    import numpy as np

    chances = np.clip(chances, 1e-4, 1 - 1e-4)
    losses: NDArray[np.float64] = -np.log(np.where(good, chances, 1 - chances))
    return losses


def ece(chances: NDArray[np.float64], good: NDArray[np.bool_], bins: int = BINS) -> float:
    """The calibration error: the mean gap between probability and share of relevant hits, over bins of equal count."""
    import numpy as np

    order: Any = np.argsort(chances, kind="stable")
    order_of_bins = np.array_split(order, bins)
    return float(
        sum(abs(chances[bin_order].sum() - good[bin_order].sum()) for bin_order in order_of_bins) / max(len(order), 1)
    )
