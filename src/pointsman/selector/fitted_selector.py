"""Fits a `DescriptionSelector` to labelled queries and stores the result as JSON, which is validated when read."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import xxhash

from pointsman.selector.choices.choice_features import SCALE, WEIGHTS, LabelledExamples
from pointsman.selector.choices.choice_vectors import centred, centroids, embed_texts, learned_mean, softmax_share
from pointsman.selector.logistic_fit import (
    Sample,
    confidence_by_fold,
    fit_logistic,
    fit_weights,
    threshold,
    weights_by_fold,
)
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import form_of, of_form
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.selector.base_selector import ToolMetadata
    from pointsman.selector.choices.choice_features import ChoiceSet
    from pointsman.values.protocols import Embedder

Label = int | str | None | Sequence[int | str]
"""The right choice of a query: its index, its name, several of these if each is right, or None if none is."""

_FORMAT: Final = "pointsman description selector"
_VERSION: Final = 1
_FEWEST: Final = 10  # labels below which nothing is learned: a single error would decide
_FEWEST_TO_CALIBRATE: Final = 30  # with fewer, two slopes and an intercept are worse than the softmax
_MAX_MEASURED: Final = 2_000  # maximum held-out queries; only a few parameters are learned from them
_CANDIDATES: Final = 64  # choices per query used to learn the weights; the others are far behind
_BINS: Final = 10
_LARGEST: Final = 1e9  # of a number in a file
_VARIANTS: Final = ("unfitted", "weighted", "with_examples")


@dataclass(frozen=True, slots=True)
class FitReport:
    """Accuracy of a selector on held-out labelled queries.

    Attributes:
        labels: number of labelled queries.
        none: number of these labelled None.
        held_out: number of measured queries.
        unfitted: the share of measured queries (except those labelled None) with a right first selection, unfitted.
        weighted: the share with learned query mean and weights.
        with_examples: the share with learned examples as well.
        used: the variant in use: ``"unfitted"``, ``"weighted"`` or ``"with_examples"``.
        accuracy: the share for that variant.
        calibration_error: expected calibration error (ECE) over ten equal bins, on held-out queries.
    """

    labels: int
    none: int
    held_out: int
    unfitted: float
    weighted: float
    with_examples: float
    used: str
    accuracy: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of fitting.

    Attributes:
        embedder: the name of the embedder of the vectors.
        weights: weights of words, meaning and examples.
        query_mean: the mean on which queries are centred.
        calibration: intercept and slopes (lead, highest cosine) of the logistic function that gives a confidence; None
            with too few labels, in which case the softmax of the sums gives it.
        threshold: the confidence below which no choice fits, or None.
        labelled: examples by name of the choice.
        report: the accuracy on held-out queries.
    """

    embedder: str
    weights: tuple[float, float, float]
    query_mean: NDArray[np.float32]
    calibration: tuple[float, float, float] | None
    threshold: float | None
    labelled: LabelledExamples
    report: FitReport

    def confidence(self, sums: NDArray[np.float64], highest: float) -> float:
        """Return the probability that the first selection is right, from its lead and the highest cosine."""
        if self.calibration is None:
            return softmax_share(sums, 1.0)
        intercept, by_lead, by_cosine = self.calibration
        lead = float(np.subtract(*np.partition(sums, -2)[[-1, -2]])) if len(sums) > 1 else 0.0
        return 0.5 * (1 + math.tanh((intercept + by_lead * lead + by_cosine * highest) / 2))

    def check_embedder(self, embedder: Embedder) -> None:
        """Check that vectors are comparable.

        Raises:
            InputError: this was fitted with another embedder.
        """
        if (name := embedder.name) != self.embedder:
            raise InputError(
                f"this was fitted with the embedder {self.embedder!r}, not {name!r}; fit it again, or use that one"
            )

    def to_json(self) -> str:
        """Return this as JSON; vectors have five decimals."""
        examples = self.labelled
        choices = [
            _ChoiceForm(name, examples.terms[name], tuple(map(_five_decimals, rows)))
            for name, rows in examples.centroids.items()
        ]
        form = _Form(
            _FORMAT,
            _VERSION,
            self.embedder,
            self.weights,
            self.calibration,
            self.threshold,
            self.report,
            _five_decimals(self.query_mean),
            tuple(choices),
        )
        return json.dumps(form_of(form), ensure_ascii=False, allow_nan=False)

    @classmethod
    def read(cls, path: str | Path) -> Fitted:
        """Read a file with the output of `to_json`.

        Raises:
            InputError: the file is unreadable or invalid; the message says why.
        """
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        try:
            return cls.from_json(text)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Fitted:
        """Build from the output of `to_json`; everything is checked before it is used.

        Raises:
            InputError: the text is invalid.
        """
        try:
            form = of_form(_Form, json.loads(text, parse_constant=_no_constant))
            return form.to_fitted()
        except InputError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"this is not what DescriptionSelector.save writes ({error!r:.120}); fit it again"
            ) from error


@dataclass(frozen=True, slots=True)
class _ChoiceForm:
    name: str
    terms: Mapping[str, int]
    centroids: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class _Form:
    """The JSON form of `Fitted`."""

    format: str
    version: int
    embedder: str
    weights: tuple[float, float, float]
    calibration: tuple[float, float, float] | None
    threshold: float | None
    report: FitReport
    query_mean: tuple[float, ...]
    choices: tuple[_ChoiceForm, ...]

    def to_fitted(self) -> Fitted:
        """Return what it says.

        Raises:
            InputError: it is of another version, or a value is out of range.
        """
        rows = [row for choice in self.choices for row in choice.centroids]
        counts = [count for choice in self.choices for count in choice.terms.values()]
        numbers = [
            *self.weights,
            *(self.calibration or ()),
            *self.query_mean,
            *(value for row in rows for value in row),
        ]
        for is_valid, rule in (
            (self.format == _FORMAT and self.version == _VERSION, f"it is a {_FORMAT} of version {_VERSION}"),
            (max(map(abs, numbers)) < _LARGEST, f"numbers are below {_LARGEST:,.0f}"),
            (min(self.weights) >= 0, "weights are from 0 up"),
            (self.threshold is None or 0 <= self.threshold <= 1, "threshold is a confidence from 0 to 1, or null"),
            (self.query_mean and {len(row) for row in rows} <= {len(self.query_mean)}, "vectors are of one length"),
            (all(choice.centroids for choice in self.choices), "every choice has a centroid"),
            (all(type(count) is int and 0 < count < _LARGEST for count in counts), "a term occurs from 1 time up"),
            (self.report.used in _VARIANTS, f"report.used is one of {', '.join(_VARIANTS)}"),
        ):
            if not is_valid:
                raise InputError(f"this is not what DescriptionSelector.save writes: {rule}; fit it again")
        examples = LabelledExamples(
            {choice.name: np.array(choice.centroids, np.float32) for choice in self.choices},
            {choice.name: choice.terms for choice in self.choices},
        )
        mean = np.array(self.query_mean, np.float32)
        return Fitted(self.embedder, self.weights, mean, self.calibration, self.threshold, examples, self.report)


# -- learning ----------------------------------------------------------------------------------------------------------


class _Learner(Protocol):
    """What is asked of the selector that learns, a `DescriptionSelector`; its methods say what they do."""

    embedder: Embedder
    options: dict[str, Any]

    def usual_query_mean(self) -> NDArray[np.float32]: ...

    def unfitted(self, query_mean: NDArray[np.float32]) -> _Learner: ...

    def choice_set(self, choices: tuple[ToolMetadata, ...], examples: LabelledExamples | None = None) -> ChoiceSet: ...


@dataclass(frozen=True, slots=True)
class _Labels:
    """The queries with precomputed values that are used repeatedly."""

    texts: Sequence[str]
    right: list[frozenset[int]]
    vectors: NDArray[np.float32]
    fold: NDArray[np.intp]


def learn(
    selector: _Learner, queries: Sequence[str], labels: Sequence[Label], choices: tuple[ToolMetadata, ...], folds: int
) -> Fitted:
    """Implement `DescriptionSelector.fit`.

    Three variants are compared on held-out queries: unfitted; with learned mean and weights; and with examples in
    addition. Each fold's examples come from the other folds, and its weights are learned on the held-out features of
    the other folds.

    Raises:
        InputError: labels, queries or choices are invalid.
    """
    check_count(folds, "folds", 2)
    right = _checked_labels(queries, labels, choices)
    name = selector.embedder.name
    vectors = embed_texts(selector.embedder, list(queries), "query")
    own_mean = selector.usual_query_mean()
    # Equal texts go into the same fold; else a query could be both learned from and held out.
    fold = np.array([xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass")) % folds for text in queries])
    training = _Labels(queries, right, vectors, fold)
    mean = learned_mean(vectors, own_mean)
    plain = selector.unfitted(own_mean)
    centred_selector = selector.unfitted(mean)
    measured_rows = np.linspace(0, len(queries) - 1, min(len(queries), _MAX_MEASURED)).astype(np.intp)
    start = SCALE * np.array(WEIGHTS)

    samples = {
        "unfitted": _held_out(plain, choices, training, measured_rows, None),
        "weighted": _held_out(centred_selector, choices, training, measured_rows, None),
        "with_examples": _held_out(centred_selector, choices, training, measured_rows, mean),
    }
    has_label = np.array([bool(right[index]) for index in measured_rows])
    sums = {}
    for form, sample in samples.items():
        if form == "unfitted":
            sums[form] = _weighted_sum(sample, np.tile(start, (len(measured_rows), 1)))
        else:
            sums[form] = _weighted_sum(sample, weights_by_fold(sample, training.fold[measured_rows], start))
    hits = {form: _is_right(total, samples[form])[has_label] for form, total in sums.items()}
    best_form = "unfitted"
    if has_label.sum() >= _FEWEST:
        for form in ("weighted", "with_examples"):
            best_form = form if _beats(hits[form], hits[best_form]) else best_form
    sample, total = samples[best_form], sums[best_form]
    weights = start if best_form == "unfitted" else fit_weights(sample, start)
    evidence = np.column_stack([np.ones(len(total)), _lead(total), sample.highest])
    correct = _is_right(total, sample) & has_label
    calibration = None
    if len(measured_rows) < _FEWEST_TO_CALIBRATE:
        held_out_confidence = np.array([softmax_share(row, 1.0) for row in total])
    else:
        held_out_confidence = confidence_by_fold(evidence, correct, training.fold[measured_rows])
        slopes = fit_logistic(evidence, correct)
        calibration = float(slopes[0]), float(slopes[1]), float(slopes[2])
    rates = {form: float(hit.mean()) if len(hit) else 0.0 for form, hit in hits.items()}
    report = FitReport(
        labels=len(queries),
        none=sum(not answer for answer in right),
        held_out=len(measured_rows),
        unfitted=rates["unfitted"],
        weighted=rates["weighted"],
        with_examples=rates["with_examples"],
        used=best_form,
        accuracy=rates[best_form],
        calibration_error=calibration_error(held_out_confidence, correct),
    )
    return Fitted(
        embedder=name,
        weights=(float(weights[0]), float(weights[1]), float(weights[2])),
        query_mean=own_mean if best_form == "unfitted" else mean,
        calibration=calibration,
        threshold=threshold(held_out_confidence, correct, has_label),
        labelled=_examples(training, choices, np.ones(len(queries), bool), mean, selector.options["centroids"])
        if best_form == "with_examples"
        else LabelledExamples(),
        report=report,
    )


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """Return the expected calibration error: over ten equal bins, the distance of mean confidence from accuracy.

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015,
    https://doi.org/10.1609/aaai.v29i1.9602.

    >>> calibration_error(np.array([0.8, 0.8]), np.array([True, False]))  # half was right
    0.3
    """
    if not len(confidence):
        return 0.0
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = [abs(float(confidence[bins == b].sum()) - float(correct[bins == b].sum())) for b in range(_BINS)]
    return round(math.fsum(gaps) / len(confidence), 6)


def _checked_labels(
    queries: Sequence[str], labels: Sequence[Label], choices: tuple[ToolMetadata, ...]
) -> list[frozenset[int]]:
    """Return the indices of the right choices of each query."""
    if isinstance(queries, str) or isinstance(labels, str) or len(queries) != len(labels) or not len(queries):
        raise InputError(f"queries and labels are two lists of one length, not {len(queries)} and {len(labels)} things")
    for query in queries:
        if not isinstance(query, str):
            raise InputError(f"a query to learn from is a str, not {type(query).__name__}: {query!r:.80}")
    indices = {choice.name: index for index, choice in enumerate(choices)}
    if len(choices) < 2 or len(indices) != len(choices):
        duplicates = [name for name, count in Counter(choice.name for choice in choices).items() if count > 1]
        raise InputError(
            f"expected at least two choices with distinct names; given {len(choices)}, twice: {duplicates!r:.80}"
        )

    def index(label: object) -> int:
        if isinstance(label, str) and label in indices:
            return indices[label]
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(choices):
            return int(label)
        raise InputError(f"the label {label!r:.80} is neither the name nor the 0-based index of one of the choices")

    answers = []
    for label in labels:
        is_collection = isinstance(label, Sequence | set | frozenset) and not isinstance(label, str)
        answers.append(frozenset(() if label is None else map(index, label) if is_collection else (index(label),)))  # type: ignore[arg-type]
    return answers


def _examples(
    training: _Labels, choices: tuple[ToolMetadata, ...], mask: NDArray[np.bool_], mean: NDArray[np.float32], limit: int
) -> LabelledExamples:
    """Return the examples from the training queries."""
    by_choice: dict[int, list[int]] = {}
    for query in np.flatnonzero(mask):
        for choice in training.right[query]:
            by_choice.setdefault(choice, []).append(int(query))
    means, terms = {}, {}
    for choice, queries in sorted(by_choice.items()):
        name = choices[choice].name
        means[name] = centroids(centred(training.vectors[queries], mean), limit)
        terms[name] = Counter(
            token for query in queries for token in DEFAULT_ANALYZER.query_tokens(training.texts[query])
        )
    return LabelledExamples(means, terms)


def _held_out(
    selector: _Learner,
    choices: tuple[ToolMetadata, ...],
    training: _Labels,
    rows: NDArray[np.intp],
    mean: NDArray[np.float32] | None,
) -> Sample:
    """Return features of the measured queries; given a mean, each fold uses the examples of the other folds."""
    count = min(len(choices), _CANDIDATES)
    features = np.zeros((len(rows), 3, count))
    right = np.zeros((len(rows), count), bool)
    highest = np.zeros(len(rows))
    one_set = selector.choice_set(choices, LabelledExamples()) if mean is None else None
    for fold in np.unique(training.fold[rows]):
        choice_set = one_set or selector.choice_set(
            choices,
            _examples(training, choices, training.fold != fold, mean, selector.options["centroids"]),  # type: ignore[arg-type]
        )
        for row in np.flatnonzero(training.fold[rows] == fold):
            query = rows[row]
            direction = choice_set.directions(training.vectors[query])
            tokens = DEFAULT_ANALYZER.query_tokens(training.texts[query])
            all_features, highest[row] = choice_set.features(direction, tokens)
            foremost = all_features.max(axis=0)
            if answer := training.right[query]:
                foremost[list(answer)] = np.inf  # right choices are always among those compared
            columns = np.sort(np.argsort(-foremost, kind="stable")[:count])
            features[row] = all_features[:, columns]
            right[row] = [column in answer for column in columns]
    return Sample(features, right, highest)


def _weighted_sum(sample: Sample, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weighted sums, shape ``(queries, candidates)``, with each query's own weights."""
    sums: NDArray[np.float64] = np.einsum("qp,qpc->qc", weights, sample.features)
    return sums


def _is_right(sums: NDArray[np.float64], sample: Sample) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = sample.right[np.arange(len(sums)), sums.argmax(axis=1)]
    return right


def _lead(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    top = np.partition(sums, -2, axis=1)[:, -2:]
    lead: NDArray[np.float64] = top[:, 1] - top[:, 0]
    return lead


def _beats(hits: NDArray[np.bool_], other_hits: NDArray[np.bool_]) -> bool:
    """Whether the first is right more often by more than one standard error of the difference."""
    differences = hits.astype(float) - other_hits
    return bool(differences.mean() > differences.std(ddof=1) / math.sqrt(len(differences)))


# -- reading -----------------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _five_decimals(row: NDArray[np.float32]) -> tuple[float, ...]:
    return tuple(round(float(value), 5) for value in row)
