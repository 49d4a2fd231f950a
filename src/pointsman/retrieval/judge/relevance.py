"""The probability that a hit is relevant: scores that people can interpret.

A hit's relevance is the probability that a person who reads the passage calls it relevant. It is the product of two
probabilities, both estimated from the raw scores of the dataset's candidates:

- **Can the dataset answer the question at all?** Every dataset has some passage nearest to *how do I bake bread*.
  `Background` therefore measures, when a dataset is embedded, the best cosines of such *unrelated* questions: for each
  script by itself, since a Russian question is further from every English text than an English one. ``above`` is the
  distance of the best cosine above that level, in σ. ``towards`` is the distance of the question from unrelated
  questions in its script, along the direction from unrelated questions in the documents' scripts to the documents. What
  all texts of a language have in common is subtracted on both sides, so the value is comparable across languages.
  ``within`` is the same as a share of the distance of the documents' own sentences. ``peak`` is how far the best
  candidate stands out.
- **Is this passage relevant, if there are answers?** Its own evidence decides: its share of the question's words by
  weight (``matched_share``: the sum of the idf of the words that it has, divided by that of all; unlike BM25 it is the
  same for a row of a table and a long chapter), and how far its evidence and its cosine stand above those of the
  thirtieth candidate, which is seldom an answer. Passages do not share a probability: where twenty answer, all twenty
  can be relevant.

Both are logistic functions with few coefficients, fitted to public collections (``benchmarks/relevance.py``). Their
product is corrected by two numbers fitted to people's folders (``benchmarks/folder_correction.py``), where the best
candidate is right more often than in collections, and the others fall behind it faster. The order of candidates stays.
The coefficients are in ``relevance.json``. They ignore which list found a hit, its rank, how many hits are returned and
what else was searched, so a hit has one relevance for a question, for every strategy that searches both lists and any
number of datasets. A separate form applies if only one of the two scores exists. The probability is None if nothing was
fitted, as for vectors of another embedder or foreign scores. `pointsman.workspace.calibration.fitting` fits the
functions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from pointsman.retrieval.fusion import KAPPA
from pointsman.retrieval.judge.languages import SCRIPTS, Languages, Script
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import is_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Form = Literal["both", "vector", "words"]
"""Which scores the candidates have."""


LANGUAGES: Final[Mapping[str, Script]] = {"en": "latin", "zh": "han", "ru": "cyrillic"}

FIRST: Final = 10
"""The maximum number of hits of a question that a calibration is fitted to."""

ACROSS: Final = 0.1
"""A question counts as asked across languages if a smaller share of the documents is in its script."""

MIXED: Final = 0.01
"""Documents count as written in several languages if at least this share is not in the main script."""

LEAST: Final = 100
"""The usual number of vector candidates besides the best one; fewer candidates are weighted up to this number."""

FEW: Final = 4
"""The number of candidates below which they do not show how much evidence irrelevant passages have."""

QUESTION_FEATURES: Final[Mapping[Form, tuple[str, ...]]] = {
    "both": ("above", "towards", "within", "peak", "across", "matched_share", "lead", "agreement"),
    "vector": ("above", "towards", "within", "peak", "across"),
    "words": ("matched_share", "peak", "terms"),
}
HIT_FEATURES: Final[Mapping[Form, tuple[str, ...]]] = {
    "both": ("matched_share", "over_thirtieth", "cosine_over_thirtieth", "terms", "han", "cyrillic", "across"),
    "vector": ("over_thirtieth", "terms", "han", "cyrillic", "across"),
    "words": ("matched_share", "over_thirtieth", "terms", "han", "cyrillic"),
}
_WIDTH: Final = 4.0  # the fall of the evidence that leaves a candidate 1/e of the best one's weight
_UNIT: Final = 8.0  # of the evidence, where it is compared with that of other candidates


# ── what is known ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)  # no slots: the centroid is kept as an array
class Background:
    """The cosines of questions that a dataset cannot answer; measured once and stored with the dataset.

    Attributes:
        embedder: the name of the embedder that made the vectors.
        mean: the mean cosine between questions on the dataset's subjects and an even sample of its documents.
        sigma: the standard deviation of such cosines; see `pointsman.retrieval.fusion.CosineSpread`.
        best: by script of the question, the median over unrelated questions of their best cosine.
        scripts: the share of documents that are mainly in each script.
        direction: from unrelated questions in the documents' scripts to the documents, shape ``(dimensions,)``; scaled
            so that unrelated questions have a standard deviation of 1 along it.
        chance: by script, the mean position of unrelated questions along it.
        subject: the mean distance along it of stand-ins for questions on the dataset's subjects from unrelated
            questions in their scripts.
        languages: what was taken out of the vectors of the questions; None: nothing.
        lowered: by how much that lowered the best cosines of unrelated questions in the documents' main script.
        neutral: the background of the same documents for questions without their language; None if nearly all documents
            are in one script.
    """

    embedder: str
    mean: float
    sigma: float
    best: Mapping[Script, float]
    scripts: Mapping[Script, float]
    direction: tuple[float, ...] = field(repr=False)
    chance: Mapping[Script, float]
    subject: float
    languages: Languages | None = None
    lowered: float = 0.0
    neutral: Background | None = None

    @property
    def script(self) -> Script:
        """The script of most documents."""
        return max(SCRIPTS, key=lambda script: self.scripts.get(script, 0.0))

    def across(self, script: Script) -> bool:
        """Whether hardly any document is in this script."""
        return self.scripts.get(script, 0.0) < ACROSS

    @property
    def is_mixed(self) -> bool:
        """Whether documents are in several languages."""
        return 1 - self.scripts.get(self.script, 0.0) >= MIXED

    def beside(self, neutral: Background, languages: Languages) -> Self:
        """Return this background with that of the same documents for questions without their language."""
        script = self.script
        lowered = self.best[script] - neutral.best[script]
        return replace(self, neutral=replace(neutral, languages=languages, lowered=lowered))

    @classmethod
    def measured(
        cls,
        embedder: str,
        sigma: float,
        documents: NDArray[np.float32],
        likely: NDArray[np.float32],
        unrelated: Mapping[Script, NDArray[np.float32]],
        best: Mapping[Script, Sequence[float]],
        scripts: Mapping[Script, float],
    ) -> Self:
        """Compute the background of a dataset.

        Args:
            embedder: the name of the embedder that made the vectors.
            sigma: the standard deviation of cosines between questions and documents.
            documents: vectors of an even sample of the documents, about a thousand; shape ``(n, dimensions)``.
            likely: vectors of stand-ins for questions on the dataset's subjects, such as first sentences.
            unrelated: by script, vectors of `unrelated_questions`.
            best: by script, the best cosine of each of these questions in the whole dataset.
            scripts: the share of documents that are mainly in each script.
        """
        import numpy as np

        centroid = documents.mean(axis=0)
        usual = {script: vectors.mean(axis=0) for script, vectors in unrelated.items()}
        total = sum(scripts.get(script, 0.0) for script in usual)
        weights = {script: scripts.get(script, 0.0) / total if total else 1 / len(usual) for script in usual}
        own = sum(weight * usual[script] for script, weight in weights.items())
        direction = centroid - own
        others = np.concatenate([(vectors - usual[script]) @ direction for script, vectors in unrelated.items()])
        direction /= max(float(others.std()), 1e-9)
        return cls(
            embedder,
            _mean_of_others(likely @ documents.T, best.get(max(weights, key=weights.__getitem__), ())),
            sigma,
            {script: float(np.median(cosines)) for script, cosines in best.items()},
            dict(scripts),
            tuple(direction.tolist()),
            {script: float(vector @ direction) for script, vector in usual.items()},
            float((likely @ direction).mean() - own @ direction),
        )

    def nearness(self, vector: NDArray[np.float32]) -> float:
        """Return the position of a question along `direction`.

        Args:
            vector: the vector of the question, shape ``(dimensions,)``.
        """
        return float(self._direction @ vector)

    @cached_property
    def _direction(self) -> NDArray[np.float32]:
        import numpy as np

        return np.array(self.direction, np.float32)

    def to_json(self) -> str:
        """Return the background as text for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a background that `to_json` wrote.

        Raises:
            InputError: the text is not a background.
        """
        try:
            return cls._of(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"this is not the background of a dataset: {error}") from None

    @classmethod
    def _of(cls, values: Any) -> Self:
        languages, neutral = values.get("languages"), values.get("neutral")
        if languages is not None:
            languages = Languages(tuple(map(tuple, languages["directions"])), tuple(languages["average"]))
        neutral = None if neutral is None else cls._of(neutral)
        return cls(**{**values, "direction": tuple(values["direction"]), "languages": languages, "neutral": neutral})


def _mean_of_others(cosines: NDArray[np.float32], of_unrelated: Sequence[float]) -> float:
    """Return the mean cosine of stand-ins for questions with documents, without the one that each was taken from.

    In a dataset of a few passages the cosine with a stand-in's own passage would raise the mean so far that no question
    came near it. The document of a single passage is compared with unrelated questions instead.

    Args:
        cosines: of stand-ins (rows) with an even sample of the documents (columns).
        of_unrelated: the best cosines of unrelated questions.

    >>> import numpy as np
    >>> round(_mean_of_others(np.array([[0.95, 0.7], [0.8, 0.95]]), []), 3)
    0.75
    >>> _mean_of_others(np.array([[0.95]]), [0.5, 0.6, 0.8])
    0.6
    """
    import numpy as np

    count = cosines.shape[1]
    if count < 2:
        return float(np.median(of_unrelated))
    return float(((cosines.sum(axis=1) - cosines.max(axis=1)) / (count - 1)).mean())


@cache
def unrelated_questions() -> Mapping[Script, tuple[str, ...]]:
    """Return questions that few datasets answer, by script; `Background` is measured with them."""
    lines = resources.files("pointsman.retrieval.judge").joinpath("unrelated.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return {script: tuple(text for code, text in rows if code == language) for language, script in LANGUAGES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The raw scores of one dataset's candidates for one question; arrays have one value per candidate.

    Attributes:
        script: the script of the question; see `script_of`.
        terms: the number of different terms that the question has for the keyword index.
        bm25: raw BM25 of every candidate in Lucene's form, 0 without a word; None if words were not searched.
        idf: the sum of the idf of the question's terms, including repeated and absent ones; None if the store does not
            provide it.
        matched: of every candidate, that of the terms that it has, including repeated ones; None if the store does not
            provide it.
        cosine: the cosine of every candidate, NaN without a vector; None if vectors were not searched.
        nearness: `Background.nearness` of the question's vector.
        background: the background of the dataset.
        in_own_language: judge as if documents were in the question's language, however few are.
    """

    script: Script
    terms: int
    bm25: NDArray[np.float64] | None = None
    idf: float | None = None
    matched: NDArray[np.float64] | None = None
    cosine: NDArray[np.float64] | None = None
    nearness: float | None = None
    background: Background | None = None
    in_own_language: bool = False

    @property
    def form(self) -> Form | None:
        """The scores available for judging; None if there are none."""
        words = self.bm25 is not None and self.idf is not None and self.matched is not None
        if self.cosine is not None:
            return None if self.background is None or self.nearness is None else "both" if words else "vector"
        return "words" if words else None

    @property
    def across(self) -> bool:
        """Whether hardly any document is in the question's script."""
        return not self.in_own_language and self.background is not None and self.background.across(self.script)


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Logistic:
    """``1 / (1 + exp(-(intercept + Σ slope · feature)))``."""

    intercept: float
    slopes: Mapping[str, float]

    def logits(self, features: Mapping[str, Any]) -> Any:
        """Return the argument of the logistic function: an array if a feature is an array, else a number."""
        constant, varying = self.intercept, 0.0
        for name, slope in self.slopes.items():
            value = features[name]
            if type(value) is float:  # summed separately: adding to an array takes ten times as long
                constant += slope * value
            else:
                varying = varying + slope * value
        return constant + varying


@dataclass(frozen=True, slots=True)
class Judgement:
    """The probabilities for one dataset's candidates.

    Attributes:
        best: the highest relevance of any candidate.
        relevance: that of each hit asked for.
    """

    best: float
    relevance: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Relevance:
    """A calibration for one form of evidence.

    Attributes:
        form: the scores it uses.
        embedder: the embedder whose cosines it was fitted to; None for words alone.
        question: predicts whether the dataset holds an answer.
        hit: predicts whether a hit is relevant to a question that the dataset can answer.
        minimum: by default, searches whose best candidate has a lower relevance are refused.
        correction: added to the logits of their product, by how far they are ``below_best``; None: nothing.
    """

    form: Form
    embedder: str | None
    question: Logistic
    hit: Logistic
    minimum: float
    correction: Logistic | None = None

    def judge(self, evidence: Evidence, positions: Sequence[int]) -> Judgement:
        """Return the probabilities of hits.

        Args:
            evidence: all candidates of the hits' dataset, which it `understands`.
            positions: the positions of the hits among the candidates.
        """
        import numpy as np

        candidates = Candidates(evidence, self.form)
        every = np.arange(len(candidates.scores))
        relevance = self.chances(candidates.question(), candidates.hits(every))
        return Judgement(float(relevance.max()), tuple(relevance[np.asarray(positions, int)].tolist()))

    def chances(self, question: Mapping[str, float], hits: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the relevance of all hits of a question by their features; see `Candidates`."""
        import numpy as np

        relevance = np.asarray(sigmoid(float(self.question.logits(question))) * sigmoid(self.hit.logits(hits)))
        if self.correction is None:
            return relevance
        logits, correction = np.log(relevance / (1 - relevance)), self.correction
        below_best = logits.max(initial=-np.inf) - logits
        return np.asarray(sigmoid(logits + correction.intercept + correction.slopes["below_best"] * below_best))

    def understands(self, evidence: Evidence) -> bool:
        """Whether it was fitted to scores of this form and embedder."""
        if evidence.form != self.form or not _candidates(evidence):
            return False
        return self.embedder is None or (
            evidence.background is not None and evidence.background.embedder == self.embedder
        )

    def to_json(self) -> str:
        """Return the calibration as text for `from_json`."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a calibration that `to_json` wrote.

        Raises:
            InputError: the text is not a calibration.
        """
        try:
            return cls.of(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is not a calibration: {error}") from None

    @classmethod
    def of(cls, values: Any) -> Self:
        """Read and check a calibration from a JSON object.

        Raises:
            InputError: it is not a calibration.
        """
        names = ("form", "embedder", "question", "hit", "minimum", "correction")
        if not isinstance(values, dict) or {*values, "correction"} != set(names):  # earlier versions have none
            raise InputError(f"a calibration is a JSON object with {', '.join(names)}, not {values!r:.80}")
        form, embedder, minimum = values["form"], values["embedder"], values["minimum"]
        if form not in get_args(Form):
            raise InputError(f"form of a calibration is one of {', '.join(get_args(Form))}, not {form!r:.80}")
        if (embedder is None) != (form == "words") or not isinstance(embedder, str | None):
            raise InputError(f"a calibration for {form} {'has no' if form == 'words' else 'names its'} embedder")
        if not is_number(minimum) or not 0 <= minimum <= 1:
            raise InputError(f"minimum of a calibration is a probability from 0 to 1, not {minimum!r:.80}")
        features_of = {"question": QUESTION_FEATURES[form], "hit": HIT_FEATURES[form]}
        if values.get("correction") is not None:
            features_of["correction"] = ("below_best",)
        parts = {name: _logistic(values[name], name, features) for name, features in features_of.items()}
        return cls(form, embedder, minimum=float(minimum), **parts)


@cache
def shipped() -> tuple[Relevance, ...]:
    """Return the built-in calibrations: for the default embedder with and without words, and for words alone."""
    form = json.loads(resources.files("pointsman.retrieval.judge").joinpath("relevance.json").read_text("utf-8"))
    return tuple(Relevance.of({**values, "correction": form["correction"]}) for values in form["calibrations"])


def for_evidence(calibrations: Sequence[Relevance], evidence: Evidence) -> Relevance | None:
    """Return the first calibration that fits this evidence; None if none does."""
    for calibration in calibrations:
        if calibration.understands(evidence):
            return calibration
    return None


def judge_by(
    calibrations: Sequence[Relevance], evidence: Evidence, positions: Sequence[int]
) -> tuple[Judgement, Relevance] | None:
    """Judge by the first calibration that fits the evidence; returns the judgement and the calibration, or None.

    If the question and the documents are in different languages, hits are judged by their cosines alone, provided that
    a calibration fits those: words that both languages share (numbers, names) say little about a hit, and their absence
    says nothing.
    """
    calibration = for_evidence(calibrations, evidence)
    if calibration is None:
        return None
    if calibration.form == "both" and evidence.across:
        alone = replace(evidence, bm25=None, idf=None, matched=None)
        if (by_cosines := for_evidence(calibrations, alone)) is not None:
            return by_cosines.judge(alone, positions), calibration
    return calibration.judge(evidence, positions), calibration


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Candidates:
    """The features of a question's candidates.

    Args:
        evidence: the scores of the candidates.
        form: the scores to use.
    """

    __slots__ = ("across", "best", "evidence", "form", "language_shift", "levels", "matched_share", "scores", "terms")

    def __init__(self, evidence: Evidence, form: Form) -> None:
        import numpy as np

        self.evidence, self.form, self.across = evidence, form, evidence.across
        self.terms = math.log(max(evidence.terms, 1))
        self.matched_share = self.levels = None
        self.language_shift = 0.0
        if form != "vector":
            assert evidence.bm25 is not None, "it is in the form"
            assert evidence.matched is not None, "so is this"
            self.scores = evidence.bm25
            self.matched_share = evidence.matched / max(evidence.idf or 0.0, 1e-6)
        if form != "words":
            background = evidence.background
            assert evidence.cosine is not None, "it is in the form"
            assert background is not None, "so is this"
            levels = (evidence.cosine - background.mean) / background.sigma
            if self.across and len(levels) < FEW:  # compared with no evidence at all, whose cosines are lower, too
                self.language_shift = (
                    background.best[background.script] - background.best[evidence.script]
                ) / background.sigma
                levels = levels + self.language_shift
            if math.isnan(levels.min()):  # the lowest for a document without a vector, as in the calibrated sum
                levels = np.where(np.isnan(levels), np.nanmin(levels, initial=0.0), levels)
            self.levels = levels
            self.scores = KAPPA * levels if form == "vector" else self.scores + KAPPA * levels
        self.best = float(self.scores.max())

    def question(self) -> dict[str, float]:
        """Return the features that predict whether the dataset holds an answer."""
        evidence = self.evidence
        features = {"peak": -self._competition(), "terms": self.terms}
        if self.matched_share is not None:  # a word that two languages share says nothing
            features["matched_share"] = 0.0 if self.across else float(self.matched_share.max())
        if self.levels is None:
            return features
        nearest = float(self.levels.max())
        if self.matched_share is not None:
            features["lead"] = nearest - _score_at_rank(self.levels, 10)
            features["agreement"] = float(self.levels[self.scores.argmax()]) - nearest
        background, script = evidence.background, evidence.script
        assert background is not None, "it is in the form"
        assert evidence.nearness is not None, "so is this"
        towards = evidence.nearness - background.chance[script]
        return {
            **features,
            "above": nearest - self.language_shift + (background.mean - background.best[script]) / background.sigma,
            "towards": min(max(towards, -2.0), 5.0),
            "within": min(max(towards / max(background.subject, 1.0), -0.5), 1.2),
            "across": float(self.across),
        }

    def _competition(self) -> float:
        """Return the logarithm of the evidence of all candidates, as a multiple of the best one's."""
        import numpy as np

        competition = float(np.exp((self.scores - self.best) / _WIDTH).sum()) - 1
        if self.levels is not None and len(self.scores) <= LEAST:  # in a dataset of five, few others compete
            competition *= LEAST / max(len(self.scores) - 1, 1)
            if len(self.scores) < FEW:  # at least as much as passages of no evidence have
                competition = max(competition, LEAST * math.exp(-max(self.best, 0.0) / _WIDTH))
        return math.log1p(competition)

    def hits(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Return the features of hits that predict whether each is relevant.

        Args:
            positions: the positions of the hits among the candidates.
        """
        evidence, scores = self.evidence, self.scores[positions]
        features: dict[str, Any] = {
            "terms": self.terms,
            "han": float(evidence.script == "han"),
            "cyrillic": float(evidence.script == "cyrillic"),
            "over_thirtieth": (scores - _score_at_rank(self.scores, 30)) / _UNIT,
            "across": 0.0,
        }
        if self.levels is not None:
            features["across"] = float(self.across)
            features["cosine_over_thirtieth"] = self.levels[positions] - _score_at_rank(self.levels, 30)
        if self.matched_share is not None:
            features["matched_share"] = (
                0.0 * self.matched_share[positions] if self.across else self.matched_share[positions]
            )
        return features


def has_form(evidence: Evidence, form: Form) -> bool:
    """Whether there are candidates with the scores that a form uses."""
    if not _candidates(evidence):
        return False
    if form == "words":
        return replace(evidence, cosine=None).form == "words"
    return evidence.form == "both" or (form == "vector" and evidence.form == "vector")


def _candidates(evidence: Evidence) -> int:
    scores = evidence.bm25 if evidence.bm25 is not None else evidence.cosine
    return 0 if scores is None else len(scores)


def _score_at_rank(scores: NDArray[np.float64], rank: int) -> float:
    """Return the score at a rank, but at most a quarter of the way down; of very few, no evidence: 0."""
    if len(scores) < FEW:
        return 0.0
    rank = min(rank, 1 + len(scores) // 4)
    ordered = scores.copy()
    ordered.partition(-rank)
    return float(ordered[-rank])


def sigmoid(logits: Any) -> Any:
    """Return ``1 / (1 + exp(-logits))`` of a number or an array."""
    if isinstance(logits, float):
        return 1 / (1 + math.exp(-min(max(logits, -30.0), 30.0)))
    import numpy as np

    return 1 / (1 + np.exp(-np.minimum(np.maximum(logits, -30.0), 30.0)))


def _logistic(values: Any, name: str, features: Sequence[str]) -> Logistic:
    if not isinstance(values, dict) or set(values) != {"intercept", "slopes"} or not isinstance(values["slopes"], dict):
        raise InputError(f"{name} of a calibration has an intercept and slopes, not {values!r:.80}")
    numbers = {"intercept": values["intercept"], **values["slopes"]}
    if set(values["slopes"]) != set(features):
        raise InputError(f"{name} of a calibration has slopes for {', '.join(features)}, not {values['slopes']!r:.200}")
    for what, number in numbers.items():
        if not is_number(number):
            raise InputError(f"{what} in {name} of a calibration is a finite number, not {number!r:.80}")
    return Logistic(float(values["intercept"]), {feature: float(values["slopes"][feature]) for feature in features})
