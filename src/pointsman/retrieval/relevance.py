"""The probability that a hit is relevant: scores that people can interpret.

Two probabilities are estimated for each dataset searched, both from the raw scores in its lists:

- **Can it answer the question at all?** Every dataset has some passage nearest to *how do I bake bread*. `Background`
  therefore measures, when a dataset is embedded, the best cosines of such *unrelated* questions: separately for each
  script, since a Russian question is further from every English text than an English one. ``above`` is the distance of
  the best cosine above that level, in σ. ``towards`` is the distance of the question from unrelated questions in its
  script, along the direction from unrelated questions in the documents' scripts to the documents. What all texts of a
  language have in common is subtracted on both sides, so the value is comparable across languages. ``within`` is the
  same as a share of the distance of the documents' own sentences. ``peak`` is how far the best candidate stands out.
- **Is this hit an answer, if there is one?** Its competitors decide: its share of the evidence among all candidates,
  its distance from the best other candidate, and its share of the question's words by weight (``coverage``: BM25
  divided by the sum of the words' idf, always below 1).

Both are logistic functions with few coefficients, fitted to public collections with each left out in turn
(``benchmarks/relevance.py``); the coefficients are in ``relevance.json``. They ignore which list found a hit, its rank,
and what else was searched, so the probability of a hit for a question is the same for every strategy and number of
datasets. A separate form applies if only one of the two scores exists. The probability is None if nothing was fitted,
as for vectors of another embedder or foreign scores.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from pointsman.errors import InputError
from pointsman.retrieval.fusion import KAPPA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Form = Literal["both", "vector", "words"]
"""Which scores the candidates have."""

Script = Literal["latin", "cyrillic", "han"]
"""The main script of a text; all other scripts count as Latin."""

SCRIPTS: Final[tuple[Script, ...]] = get_args(Script)
LANGUAGES: Final[Mapping[str, Script]] = {"en": "latin", "zh": "han", "ru": "cyrillic"}

FIRST: Final = 10
"""The maximum number of hits of a question that a calibration is fitted to and that its confidence covers."""

ACROSS: Final = 0.1
"""A question counts as asked across languages if a smaller share of the documents is in its script."""

LEAST: Final = 100
"""The usual number of vector candidates besides the best one; fewer candidates are weighted up to this number."""

FEW: Final = 4
"""The number of candidates below which they do not show how much evidence irrelevant passages have."""

PASSAGE: Final = 360
"""The minimum length of a passage, in letters; a Han character counts as three."""

_QUESTION: Final[Mapping[Form, tuple[str, ...]]] = {
    "both": ("above", "towards", "within", "peak", "across", "coverage", "lead", "agreement"),
    "vector": ("above", "towards", "within", "peak", "across"),
    "words": ("coverage", "peak", "terms"),
}
_HIT: Final[Mapping[Form, tuple[str, ...]]] = {
    "both": (
        *("answerable", "coverage", "share_2", "share_8", "lead", "cosine_lead", "coverage_lead"),
        *("terms", "brief", "han", "cyrillic", "across"),
    ),
    "vector": ("answerable", "share_2", "share_8", "lead", "terms", "brief", "han", "cyrillic", "across"),
    "words": (
        *("answerable", "coverage", "share_2", "share_8", "lead", "coverage_lead", "terms", "brief"),
        *("han", "cyrillic"),
    ),
}  # fmt: skip
_HAN: Final = re.compile("[\u3400-\u9fff]")
_CONFIDENCE: Final = ("answerable", "any")
_LIMIT: Final = 4.0  # the logit of "answerable" is cut here: beyond, it says nothing more about a hit
_RIDGE: Final = 1e-3
_LEAST: Final = 20  # the minimum number of questions of each kind for a fit


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
    """

    embedder: str
    mean: float
    sigma: float
    best: Mapping[Script, float]
    scripts: Mapping[Script, float]
    direction: tuple[float, ...] = field(repr=False)
    chance: Mapping[Script, float]
    subject: float

    @property
    def script(self) -> Script:
        """The script of most documents."""
        return max(SCRIPTS, key=lambda script: self.scripts.get(script, 0.0))

    def across(self, script: Script) -> bool:
        """Whether hardly any document is in this script."""
        return self.scripts.get(script, 0.0) < ACROSS

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
            float((likely @ centroid).mean()),
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
            values = json.loads(text)
            return cls(**{**values, "direction": tuple(values["direction"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"this is not the background of a dataset: {error}") from None


@cache
def unrelated_questions() -> Mapping[Script, tuple[str, ...]]:
    """Return questions that few datasets answer, by script; `Background` is measured with them."""
    lines = resources.files("pointsman.retrieval").joinpath("unrelated.tsv").read_text("utf-8").splitlines()
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
        cosine: the cosine of every candidate, NaN without a vector; None if vectors were not searched.
        nearness: `Background.nearness` of the question's vector.
        background: the background of the dataset.
    """

    script: Script
    terms: int
    bm25: NDArray[np.float64] | None = None
    idf: float | None = None
    cosine: NDArray[np.float64] | None = None
    nearness: float | None = None
    background: Background | None = None

    @property
    def form(self) -> Form | None:
        """The scores available for judging; None if there are none."""
        words = self.bm25 is not None and self.idf is not None
        if self.cosine is not None:
            return None if self.background is None or self.nearness is None else "both" if words else "vector"
        return "words" if words else None

    @property
    def across(self) -> bool:
        """Whether hardly any document is in the question's script."""
        return self.background is not None and self.background.across(self.script)


def script_of(text: str) -> Script:
    """Return the main script of the beginning of a text."""
    if text.isascii():
        return "latin"
    from pointsman.text import scripts

    shares = scripts(text[:200])
    return max(SCRIPTS, key=shares.__getitem__)


def letters_of(text: str) -> int:
    """Return the length of a text in letters; a Han character counts as three. Exact below `PASSAGE`."""
    if len(text) >= PASSAGE or text.isascii():
        return len(text)
    return len(text) + 2 * len(_HAN.findall(text))


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
    """The probabilities for the hits of one dataset.

    Attributes:
        answerable: the probability that the dataset holds an answer.
        relevance: for each hit, the probability that it is an answer.
    """

    answerable: float
    relevance: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Relevance:
    """A calibration for one form of evidence.

    Attributes:
        form: the scores it uses.
        embedder: the embedder whose cosines it was fitted to; None for words alone.
        question: predicts whether the dataset holds an answer.
        hit: predicts whether a hit is an answer.
        any: predicts whether one of the first hits is an answer.
        minimum: by default, searches whose probability of an answer is lower are refused.
    """

    form: Form
    embedder: str | None
    question: Logistic
    hit: Logistic
    any: Logistic
    minimum: float

    def judge(self, evidence: Evidence, places: Sequence[int], letters: Sequence[int]) -> Judgement | None:
        """Return the probabilities of hits; None if this calibration does not fit the evidence.

        Args:
            evidence: all candidates of the hits' dataset, since a hit is judged against its competitors.
            places: the positions of the hits among the candidates.
            letters: the length of each hit's text; see `letters_of`.
        """
        import numpy as np

        if not self.understands(evidence):
            return None
        candidates = Candidates(evidence, self.form)
        logit = float(self.question.logits(candidates.question()))
        features = candidates.hits(np.asarray(places, int), np.asarray(letters))
        chances = _sigmoid(self.hit.logits({**features, "answerable": _limited(logit)}))
        answerable = _sigmoid(logit)  # no hit can be likelier to be an answer than that there is one
        return Judgement(answerable, tuple(np.minimum(chances, answerable).tolist()))

    def understands(self, evidence: Evidence) -> bool:
        """Whether it was fitted to scores of this form and embedder."""
        if evidence.form != self.form or not _candidates(evidence):
            return False
        return self.embedder is None or (
            evidence.background is not None and evidence.background.embedder == self.embedder
        )

    def chances(self, row: Prepared) -> NDArray[np.float64]:
        """Return the probabilities of the hits of a labelled question, as `judge` does."""
        import numpy as np

        logit = float(self.question.logits(row.question))
        chances = _sigmoid(self.hit.logits({**row.hits, "answerable": _limited(logit)}))
        return np.asarray(np.minimum(chances, _sigmoid(logit)))

    def confidence(self, judgement: Judgement) -> float:
        """Return the probability that at least one of the judged hits is an answer; pass only the first k hits.

        It is at least the relevance of the best hit and at most the sum of all, as probabilities of "one of them" are.
        """
        if not judgement.relevance:
            return 0.0
        no_answer = math.prod(1 - chance for chance in judgement.relevance[:FIRST])
        features = {"answerable": _logit(judgement.answerable), "any": _logit(1 - no_answer)}
        fitted = float(_sigmoid(float(self.any.logits(features))))
        return min(max(fitted, *judgement.relevance), sum(judgement.relevance), 1.0)

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
        names = ("form", "embedder", "question", "hit", "any", "minimum")
        if not isinstance(values, dict) or set(values) != set(names):
            raise InputError(f"a calibration is a JSON object with {', '.join(names)}, not {values!r:.80}")
        form, embedder, minimum = values["form"], values["embedder"], values["minimum"]
        if form not in get_args(Form):
            raise InputError(f"form of a calibration is one of {', '.join(get_args(Form))}, not {form!r:.80}")
        if (embedder is None) != (form == "words") or not isinstance(embedder, str | None):
            raise InputError(f"a calibration for {form} {'has no' if form == 'words' else 'names its'} embedder")
        if not _is_number(minimum) or not 0 <= minimum <= 1:
            raise InputError(f"minimum of a calibration is a probability from 0 to 1, not {minimum!r:.80}")
        features_of = {"question": _QUESTION[form], "hit": _HIT[form], "any": _CONFIDENCE}
        parts = {name: _logistic(values[name], name, features) for name, features in features_of.items()}
        return cls(form, embedder, minimum=float(minimum), **parts)


@cache
def shipped() -> tuple[Relevance, ...]:
    """Return the built-in calibrations: for the default embedder with and without words, and for words alone."""
    text = resources.files("pointsman.retrieval").joinpath("relevance.json").read_text("utf-8")
    return tuple(Relevance.of(values) for values in json.loads(text)["calibrations"])


def for_evidence(calibrations: Sequence[Relevance], evidence: Evidence) -> Relevance | None:
    """Return the first calibration that fits this evidence; None if none does."""
    return next((calibration for calibration in calibrations if calibration.understands(evidence)), None)


def judge_by(
    calibrations: Sequence[Relevance], evidence: Evidence, places: Sequence[int], letters: Sequence[int]
) -> tuple[Judgement, Relevance] | None:
    """Judge by the first calibration that fits the evidence; returns the judgement and the calibration, or None.

    If the question and the documents are in different languages, hits are judged by their cosines alone, provided that
    a calibration fits those. Words that both languages share (numbers, names) say little about a hit, and their absence
    says nothing. The probability that there is an answer still uses all scores.
    """
    calibration = for_evidence(calibrations, evidence)
    judgement = None if calibration is None else calibration.judge(evidence, places, letters)
    if calibration is None or judgement is None:
        return None
    if evidence.form == "both" and evidence.across:
        alone = replace(evidence, bm25=None, idf=None)
        vectors = for_evidence(calibrations, alone)
        hits = None if vectors is None else vectors.judge(alone, places, letters)
        if hits is not None:
            limit = judgement.answerable
            judgement = Judgement(limit, tuple(min(chance, limit) for chance in hits.relevance))
    return judgement, calibration


def minimum_over(minimum: float, datasets: int) -> float:
    """Return the minimum probability of an answer for the best of several datasets.

    The more datasets are searched, the higher the best one scores by chance. The odds grow with a power of the number
    of datasets, below 1 because datasets agree about questions on no subject. Measured with four datasets.

    >>> [round(minimum_over(0.4, datasets), 2) for datasets in (1, 4)]
    [0.4, 0.67]
    """
    odds = minimum * max(datasets, 1) ** 0.8
    return min(odds / (odds + 1 - minimum), 1.0) if odds else 0.0


def never_increasing(chances: Sequence[float | None]) -> list[float | None]:
    """Return the nearest probabilities that do not increase down the list; increases are levelled to their mean.

    This keeps their averages calibrated (isotonic regression by pooling adjacent violators, Ayer et al., 1955). Hits
    without a probability are skipped.

    >>> never_increasing([0.5, 0.75, None, 0.25])
    [0.625, 0.625, None, 0.25]
    """
    blocks: list[tuple[float, int]] = []  # sum and count
    for chance in chances:
        if chance is None:
            continue
        total, count = chance, 1
        while blocks and blocks[-1][0] * count < total * blocks[-1][1]:
            before, some = blocks.pop()
            total, count = total + before, count + some
        blocks.append((total, count))
    level = iter([total / count for total, count in blocks for _ in range(count)])
    return [None if chance is None else next(level) for chance in chances]


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Candidates:
    """The features of a question's candidates; sums that several features share are computed once.

    Args:
        evidence: the scores of the candidates.
        form: the scores to use.
    """

    __slots__ = ("_sums", "best", "coverage", "evidence", "form", "near", "scores", "terms")

    def __init__(self, evidence: Evidence, form: Form) -> None:
        import numpy as np

        self.evidence, self.form = evidence, form
        self.terms = math.log(max(evidence.terms, 1))
        self.coverage = self.near = None
        if form != "vector":
            assert evidence.bm25 is not None, "it is in the form"
            self.scores = evidence.bm25
            self.coverage = evidence.bm25 / max(evidence.idf or 0.0, 1e-6)
        if form != "words":
            background = evidence.background
            assert evidence.cosine is not None, "it is in the form"
            assert background is not None, "so is this"
            near = (evidence.cosine - background.mean) / background.sigma
            if math.isnan(near.min()):  # the lowest for a document without a vector, as in the calibrated sum
                near = np.where(np.isnan(near), np.nanmin(near, initial=0.0), near)
            self.near = near
            self.scores = KAPPA * near if form == "vector" else self.scores + KAPPA * near
        self.best = float(self.scores.max())
        falls = np.exp((self.scores - self.best) / 8)
        squares = falls * falls
        self._sums = {8: float(falls.sum()), 4: float(squares.sum()), 2: float(squares @ squares)}

    def question(self) -> dict[str, float]:
        """Return the features that predict whether the dataset holds an answer."""
        evidence = self.evidence
        features = {"peak": -self._competition(4), "terms": self.terms}
        if self.coverage is not None:  # a word that two languages share says nothing
            features["coverage"] = 0.0 if evidence.across else float(self.coverage.max())
        if self.near is None:
            return features
        nearest = float(self.near.max())
        if self.coverage is not None:
            features["lead"] = nearest - _tenth(self.near)
            features["agreement"] = float(self.near[self.scores.argmax()]) - nearest
        background, script = evidence.background, evidence.script
        assert background is not None, "it is in the form"
        assert evidence.nearness is not None, "so is this"
        towards = evidence.nearness - background.chance[script]
        return {
            **features,
            "above": nearest + (background.mean - background.best[script]) / background.sigma,
            "towards": min(max(towards, -2.0), 5.0),
            "within": min(max(towards / max(background.subject, 1.0), -0.5), 1.2),
            "across": float(evidence.across),
        }

    def _competition(self, width: Literal[2, 4, 8]) -> float:
        """Return the logarithm of the evidence of all candidates, as a multiple of the best one's."""
        others = self._sums[width] - 1
        if self.near is not None and len(self.scores) <= LEAST:  # in a dataset of five, few others compete
            others *= LEAST / max(len(self.scores) - 1, 1)
            if len(self.scores) < FEW:  # at least as much as passages of no evidence have
                others = max(others, LEAST * math.exp(-max(self.best, 0.0) / width))
        return math.log1p(others)

    def hits(self, places: NDArray[np.int64], letters: NDArray[np.int64]) -> dict[str, Any]:
        """Return the features of each hit that predict whether it is an answer, all but ``answerable``.

        Args:
            places: the positions of the hits among the candidates.
            letters: the length of each hit's text.
        """
        import numpy as np

        evidence, scores = self.evidence, self.scores
        behind = scores[places] - self.best
        features: dict[str, Any] = {
            "terms": self.terms,
            "brief": np.maximum(0.0, 1 - letters / PASSAGE),
            "han": float(evidence.script == "han"),
            "cyrillic": float(evidence.script == "cyrillic"),
            "share_2": behind / 2 - self._competition(2),
            "share_8": behind / 8 - self._competition(8),
            "lead": np.minimum(np.maximum(_lead(scores, places), -5.0), 5.0),
            "across": 0.0,
        }
        if self.near is not None:
            features["across"] = float(evidence.across)
            features["cosine_lead"] = _lead(self.near, places)
        if self.coverage is not None:
            features["coverage"], features["coverage_lead"] = self.coverage[places], _lead(self.coverage, places)
        return features


def _candidates(evidence: Evidence) -> int:
    scores = evidence.bm25 if evidence.bm25 is not None else evidence.cosine
    return 0 if scores is None else len(scores)


def _tenth(near: NDArray[np.float64]) -> float:
    """Return the tenth highest; of fewer than forty, the one a quarter of the way down; of very few, no evidence: 0."""
    if len(near) < FEW:
        return 0.0
    rank = min(10, 1 + len(near) // 4)
    ordered = near.copy()
    ordered.partition(-rank)
    return float(ordered[-rank])


def _lead(scores: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how far the score at each place lies above the best of the others."""
    import numpy as np

    if len(scores) < 2:
        return np.zeros(len(places))
    ordered = scores.copy()
    ordered.partition(-2)
    second, best = ordered[-2], ordered[-1]
    lead: NDArray[np.float64] = scores[places] - best
    lead[lead == 0] = best - second
    return lead


def _sigmoid(logits: Any) -> Any:
    if isinstance(logits, float):
        return 1 / (1 + math.exp(-min(max(logits, -30.0), 30.0)))
    import numpy as np

    return 1 / (1 + np.exp(-np.minimum(np.maximum(logits, -30.0), 30.0)))


def _limited(logit: float) -> float:
    return min(max(logit, -_LIMIT), _LIMIT)


def _logit(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))


def _logistic(values: Any, name: str, features: Sequence[str]) -> Logistic:
    if not isinstance(values, dict) or set(values) != {"intercept", "slopes"} or not isinstance(values["slopes"], dict):
        raise InputError(f"{name} of a calibration has an intercept and slopes, not {values!r:.80}")
    numbers = {"intercept": values["intercept"], **values["slopes"]}
    if set(values["slopes"]) != set(features):
        raise InputError(f"{name} of a calibration has slopes for {', '.join(features)}, not {values['slopes']!r:.200}")
    for what, number in numbers.items():
        if not _is_number(number) or not math.isfinite(number):
            raise InputError(f"{what} in {name} of a calibration is a finite number, not {number!r:.80}")
    return Logistic(float(values["intercept"]), {feature: float(values["slopes"][feature]) for feature in features})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A question with judged hits.

    Attributes:
        evidence: the scores of all candidates.
        places: the positions of the hits, best first.
        letters: the length of each hit's text.
        relevant: whether each hit is relevant; all False for a question without an answer.
        answered: whether the dataset holds an answer.
        weight: the weight of the question in a fit.
    """

    evidence: Evidence
    places: Sequence[int]
    letters: Sequence[int]
    relevant: Sequence[bool]
    answered: bool = True
    weight: float = 1.0


def fit_relevance(
    rows: Sequence[Labelled], form: Form, embedder: str | None, minimum: float = 0.35, unanswered: float = 0.3
) -> Relevance:
    """Fit a calibration to labelled questions.

    Args:
        rows: questions with their judged hits, and questions that the dataset cannot answer.
        form: the scores to use; rows that lack them are skipped.
        embedder: the embedder behind the cosines; None for words alone.
        minimum: the probability of an answer below which to refuse.
        unanswered: the weight of unanswered questions in the fit of hits, relative to answered ones.

    Raises:
        InputError: there are too few questions of either kind.
    """
    return fit_prepared([item for row in rows if (item := prepared(row, form))], form, embedder, minimum, unanswered)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The features of a labelled question, as a fit needs them."""

    question: Mapping[str, float]
    hits: Mapping[str, Any]
    relevant: NDArray[np.bool_]
    answered: bool
    weight: float


def prepared(row: Labelled, form: Form) -> Prepared | None:
    """Return the features of a labelled question; None if it lacks the scores that the form uses."""
    import numpy as np

    if not _has(row.evidence, form) or not _candidates(row.evidence):
        return None
    candidates = Candidates(row.evidence, form)
    features = candidates.hits(np.asarray(row.places, int), np.asarray(row.letters))
    hits = {name: np.broadcast_to(value, len(row.places)) for name, value in features.items()}
    relevant = np.asarray(row.relevant, bool)
    return Prepared(candidates.question(), hits, relevant, row.answered, row.weight)


def fit_prepared(
    rows: Sequence[Prepared], form: Form, embedder: str | None, minimum: float = 0.35, unanswered: float = 0.3
) -> Relevance:
    """Like `fit_relevance`, for questions whose features are prepared."""
    import numpy as np

    weights, has_answer = _weighed(rows)
    question = _fitted([row.question for row in rows], _QUESTION[form], has_answer, weights)
    logits = [float(question.logits(row.question)) for row in rows]
    counts = [len(row.relevant) for row in rows]
    columns = {name: np.concatenate([row.hits[name] for row in rows]) for name in _HIT[form] if name != "answerable"}
    columns["answerable"] = np.repeat([_limited(logit) for logit in logits], counts)
    share = weights * np.where(has_answer, 1.0, unanswered)
    each = np.repeat(share / np.maximum(counts, 1), counts)
    hit = _fitted(columns, _HIT[form], np.concatenate([row.relevant for row in rows]), each)
    chances = np.split(_sigmoid(hit.logits(columns)), np.cumsum(counts)[:-1])
    tops = [
        {"answerable": _logit(_sigmoid(logit)), "any": _logit(1 - math.prod((1 - some).tolist()))}
        for logit, some in zip(logits, chances, strict=True)
    ]
    any_of = _fitted(tops, _CONFIDENCE, np.array([row.relevant.any() for row in rows]), share)
    return Relevance(form, embedder, question, hit, any_of, minimum)


def _weighed(rows: Sequence[Prepared]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the weights of questions and whether each is answered; raises InputError if one kind is too rare."""
    import numpy as np

    answered = np.array([row.answered for row in rows], bool)
    for count, what in ((answered.sum(), "answered"), ((~answered).sum(), "unanswered")):
        if count < _LEAST:
            raise InputError(f"at least {_LEAST} {what} questions are needed to calibrate; there are {count}")
    return np.array([row.weight for row in rows]), answered


def scaled(base: Relevance, rows: Sequence[Prepared], unanswered: float = 0.3) -> Relevance:
    """Shift and scale the logits of a calibration to fit labelled questions; its other coefficients stay.

    Each part has two fitted numbers instead of the dozen of `fit_prepared`, so few questions suffice (J. Platt, 1999).

    Raises:
        InputError: there are too few questions of either kind.
    """
    import numpy as np

    weights, answered = _weighed(rows)
    logits = np.array([float(base.question.logits(row.question)) for row in rows])
    question = _stretched(base.question, logits, answered, weights)
    counts = [len(row.relevant) for row in rows]
    answerable = [float(question.logits(row.question)) for row in rows]
    share = weights * np.where(answered, 1.0, unanswered)
    each = np.repeat(share / np.maximum(counts, 1), counts)
    hit_logits = [
        base.hit.logits({**row.hits, "answerable": _limited(one)}) for row, one in zip(rows, answerable, strict=True)
    ]
    relevant = np.concatenate([row.relevant for row in rows])
    hit = _stretched(base.hit, np.concatenate(hit_logits), relevant, each)
    chances = [
        _sigmoid(hit.logits({**row.hits, "answerable": _limited(one)}))
        for row, one in zip(rows, answerable, strict=True)
    ]
    tops = [
        {"answerable": one, "any": _logit(1 - math.prod((1 - some).tolist()))}
        for one, some in zip(answerable, chances, strict=True)
    ]
    any_of = _stretched(
        base.any,
        np.array([float(base.any.logits(top)) for top in tops]),
        np.array([row.relevant.any() for row in rows]),
        share,
    )
    return Relevance(base.form, base.embedder, question, hit, any_of, base.minimum)


def _stretched(
    part: Logistic, logits: NDArray[np.float64], y: NDArray[np.bool_], weights: NDArray[np.float64]
) -> Logistic:
    line = _fitted({"logit": logits}, ("logit",), y, weights)
    by = line.slopes["logit"]
    return Logistic(line.intercept + by * part.intercept, {name: by * slope for name, slope in part.slopes.items()})


def _has(evidence: Evidence, form: Form) -> bool:
    if form == "words":
        return evidence.bm25 is not None and evidence.idf is not None
    return evidence.form == "both" or (form == "vector" and evidence.form == "vector")


def _fitted(features: Any, names: Sequence[str], y: NDArray[np.bool_], weights: NDArray[np.float64]) -> Logistic:
    """Fit a logistic regression by Newton's method, with a small ridge penalty.

    Args:
        features: an array for each name, or a mapping for each row.
        names: the features to fit.
        y: the labels.
        weights: the weights of the rows.
    """
    import numpy as np

    columns = [features[name] if isinstance(features, dict) else [row[name] for row in features] for name in names]
    x = np.stack([np.asarray(column, float) for column in columns], axis=1)
    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale == 0] = 1.0
    z = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    weights = weights / weights.sum()
    penalty = _RIDGE * np.diag([0.0] + [1.0] * len(names))
    coefficients = np.zeros(z.shape[1])
    for _ in range(100):
        chances = _sigmoid(z @ coefficients)
        gradient = z.T @ (weights * (y - chances)) - penalty @ coefficients
        hessian = (z.T * (weights * chances * (1 - chances))) @ z + penalty
        step = np.linalg.solve(hessian, gradient)
        coefficients += step / max(1.0, float(np.abs(step).max()) / 3)  # it may overshoot if labels are separable
        if float(np.abs(step).max()) < 1e-9:
            break
    slopes = coefficients[1:] / scale
    return Logistic(float(coefficients[0] - slopes @ centre), dict(zip(names, slopes.tolist(), strict=True)))
