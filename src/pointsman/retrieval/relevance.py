"""How likely a hit is relevant: scores that mean something to a person (R9).

Two things are estimated for each dataset that was searched, both from what its lists brought in absolute terms:

- **Can it answer the question at all?** Every dataset has some passage nearest to *how do I bake bread*. Where the best
  cosines of such *unrelated* questions lie is measured when a dataset is embedded (`Background`), for each script of
  questions apart, since a Russian question is further from every English text than an English one. ``above`` is how
  many σ the best cosine lies above that. ``towards`` is how far the question lies from unrelated ones of its script in
  the direction in which the documents lie from those of theirs: what all texts of a language have in common is taken
  out on both sides, so it means the same across languages. ``within`` is that as a share of where the documents' own
  sentences lie. ``peak`` is how far the best candidate stands out of the others.
- **Is this hit an answer, if there is one?** That is decided by its competitors: what share of the evidence it has
  among all candidates, how far it lies behind or before the best other one, how much of the question's weight in words
  it has (``coverage``: BM25 as a share of the sum of the words' idf, which it cannot reach).

Both are logistic functions with few coefficients, fitted to public collections with each left out in turn
(``benchmarks/relevance.py``; they stand in ``relevance.json``). Nothing looks at which list has found a hit, where it
stands, or what else was searched, so a question and a hit have the same probability whatever the strategy, and however
many datasets. Where only one of the two scores exists there is a form of its own; where nothing was fitted (vectors of
another embedder, scores of somebody else's making) there is no probability: None.
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
"""Which scores of a candidate there are."""

Script = Literal["latin", "cyrillic", "han"]
"""The script that most of a text is in; other scripts are not told apart, and count as Latin."""

SCRIPTS: Final[tuple[Script, ...]] = get_args(Script)
LANGUAGES: Final[Mapping[str, Script]] = {"en": "latin", "zh": "han", "ru": "cyrillic"}

FIRST: Final = 10
"""Hits of a question that a calibration is fitted to, and that its confidence speaks of at most."""

ACROSS: Final = 0.1
"""The share of documents below which a question in their script counts as asked across languages."""

LEAST: Final = 100
"""Candidates beside the best that a question has by its vector; where a dataset has fewer, they stand for as many."""

PASSAGE: Final = 360
"""Letters from which on a text counts as a passage; a Han character counts as three."""

_QUESTION: Final[Mapping[Form, tuple[str, ...]]] = {
    "both": ("above", "towards", "within", "peak", "across"),
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
_LIMIT: Final = 4.0  # the logit of "answerable" beyond which it says nothing more of a hit
_RIDGE: Final = 1e-3
_LEAST: Final = 20  # questions of either kind below which nothing can be fitted


# ── what is known ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)  # no slots: the centroid is kept as an array
class Background:
    """Where the cosines of questions lie that a dataset has no answer to; measured once, and kept with it.

    Attributes:
        embedder: the name of what made the vectors.
        mean: of cosines between questions on the dataset's subjects and its documents drawn evenly.
        sigma: the standard deviation of such cosines; see `pointsman.retrieval.calibration.CosineSpread`.
        best: by script of the question, the median over unrelated questions of their best cosine.
        scripts: the share of documents that are mainly in each script.
        direction: from unrelated questions in the documents' scripts to the documents, shape ``(dimensions,)``; so long
            that unrelated questions have a standard deviation of 1 along it.
        chance: by script, where unrelated questions lie along it on average.
        subject: how much further stand-ins for questions on the dataset's subjects lie than those in their scripts.
    """

    embedder: str
    mean: float
    sigma: float
    best: Mapping[Script, float]
    scripts: Mapping[Script, float]
    direction: tuple[float, ...] = field(repr=False)
    chance: Mapping[Script, float]
    subject: float

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
        """The background of a dataset.

        Args:
            embedder: the name of what made the vectors.
            sigma: of cosines between questions and documents.
            documents: vectors of documents drawn evenly, some thousand of them; shape ``(n, dimensions)``.
            likely: vectors of stand-ins for questions on the dataset's subjects, such as first sentences.
            unrelated: by script, vectors of `unrelated_questions`.
            best: by script, the best cosine that each of those found in the whole dataset.
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
        """How far a question lies along `direction`.

        Args:
            vector: the question's, shape ``(dimensions,)``.
        """
        return float(self._direction @ vector)

    @cached_property
    def _direction(self) -> NDArray[np.float32]:
        import numpy as np

        return np.array(self.direction, np.float32)

    def to_json(self) -> str:
        """The background as `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A background out of what `to_json` wrote.

        Raises:
            InputError: it is something else.
        """
        try:
            values = json.loads(text)
            return cls(**{**values, "direction": tuple(values["direction"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"this is no background of a dataset: {error}") from None


@cache
def unrelated_questions() -> Mapping[Script, tuple[str, ...]]:
    """Questions that few datasets answer, by script: what `Background` is measured with."""
    lines = resources.files("pointsman.retrieval").joinpath("unrelated.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return {script: tuple(text for code, text in rows if code == language) for language, script in LANGUAGES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What one dataset brought for one question, in absolute terms; arrays have one value a candidate.

    Attributes:
        script: of the question; see `script_of`.
        terms: how many different terms the question has for the keyword index.
        bm25: raw BM25 of every candidate in Lucene's form, 0 without a word; None where words were not searched.
        idf: the sum of the idf of the question's terms, repeated ones counted again, absent ones included; None where
            the store cannot tell.
        cosine: of every candidate, NaN without a vector; None where vectors were not searched.
        nearness: `Background.nearness` of the question's vector.
        background: of the dataset.
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
        """Which scores there are to judge by; None without any."""
        words = self.bm25 is not None and self.idf is not None
        if self.cosine is not None:
            return None if self.background is None or self.nearness is None else "both" if words else "vector"
        return "words" if words else None

    @property
    def across(self) -> bool:
        """Whether the question is in a script that hardly any document is in."""
        return self.background is not None and self.background.scripts.get(self.script, 0.0) < ACROSS


def script_of(text: str) -> Script:
    """The script that most of the beginning of a text is in."""
    if text.isascii():
        return "latin"
    from pointsman.text import scripts

    shares = scripts(text[:200])
    return max(SCRIPTS, key=shares.__getitem__)


def letters_of(text: str) -> int:
    """How long a text is in letters, a Han character counting as three; exact below `PASSAGE`."""
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
        """Before the exponential; of arrays where features are arrays."""
        constant, varying = self.intercept, 0.0
        for name, slope in self.slopes.items():
            value = features[name]
            if type(value) is float:  # added up apart: an array takes ten times as long to add to
                constant += slope * value
            else:
                varying = varying + slope * value
        return constant + varying


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of the hits of one dataset.

    Attributes:
        answerable: the probability that the dataset holds an answer.
        relevance: the probability of each hit that it is one.
    """

    answerable: float
    relevance: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Relevance:
    """A calibration for one form of evidence.

    Attributes:
        form: which scores it looks at.
        embedder: whose cosines it understands; None for words alone.
        question: whether the dataset holds an answer.
        hit: whether a hit is one.
        any: whether one of the first hits is.
        minimum: the probability of an answer below which to refuse, unless somebody says otherwise.
    """

    form: Form
    embedder: str | None
    question: Logistic
    hit: Logistic
    any: Logistic
    minimum: float

    def judge(self, evidence: Evidence, places: Sequence[int], letters: Sequence[int]) -> Judgement | None:
        """The probabilities of hits.

        Args:
            evidence: of the hits' dataset; all of its candidates, since a hit is judged beside its competitors.
            places: of the hits among the candidates.
            letters: how long each hit's text is; see `letters_of`.

        Returns:
            None where this calibration does not understand the evidence.
        """
        import numpy as np

        if not self.understands(evidence):
            return None
        candidates = Candidates(evidence, self.form)
        logit = float(self.question.logits(candidates.question()))
        features = candidates.hits(np.asarray(places, int), np.asarray(letters))
        chances = _sigmoid(self.hit.logits({**features, "answerable": _limited(logit)}))
        answerable = _sigmoid(logit)  # a relevant hit is an answer, so none is likelier than that there is one
        return Judgement(answerable, tuple(np.minimum(chances, answerable).tolist()))

    def understands(self, evidence: Evidence) -> bool:
        """Whether these are the scores that it was fitted to."""
        if evidence.form != self.form or not _candidates(evidence):
            return False
        return self.embedder is None or (
            evidence.background is not None and evidence.background.embedder == self.embedder
        )

    def chances(self, row: Prepared) -> NDArray[np.float64]:
        """The probabilities of the hits of a labelled question, as `judge` gives them."""
        import numpy as np

        logit = float(self.question.logits(row.question))
        chances = _sigmoid(self.hit.logits({**row.hits, "answerable": _limited(logit)}))
        return np.asarray(np.minimum(chances, _sigmoid(logit)))

    def confidence(self, judgement: Judgement) -> float:
        """The probability that one of the judged hits is an answer; judge the first k alone."""
        if not judgement.relevance:
            return 0.0
        no_answer = math.prod(1 - chance for chance in judgement.relevance[:FIRST])
        features = {"answerable": _logit(judgement.answerable), "any": _logit(1 - no_answer)}
        return float(_sigmoid(float(self.any.logits(features))))

    def to_json(self) -> str:
        """The calibration as `from_json` reads it."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A calibration out of what `to_json` wrote.

        Raises:
            InputError: it is something else.
        """
        try:
            return cls.of(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is no calibration: {error}") from None

    @classmethod
    def of(cls, values: Any) -> Self:
        """A calibration out of a JSON object, checked.

        Raises:
            InputError: it is something else.
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
    """The calibrations that come with Pointsman: the default embedder with and without words, and words alone."""
    text = resources.files("pointsman.retrieval").joinpath("relevance.json").read_text("utf-8")
    return tuple(Relevance.of(values) for values in json.loads(text)["calibrations"])


def for_evidence(calibrations: Sequence[Relevance], evidence: Evidence) -> Relevance | None:
    """The calibration that understands this evidence, if there is one."""
    return next((calibration for calibration in calibrations if calibration.understands(evidence)), None)


def judge_by(
    calibrations: Sequence[Relevance], evidence: Evidence, places: Sequence[int], letters: Sequence[int]
) -> tuple[Judgement, Relevance] | None:
    """`Relevance.judge` by the calibration that understands the evidence, and that calibration; None without one.

    Hits of a question in another language than the documents are judged by their cosines alone, where a calibration
    understands those: words that two languages have in common (numbers, names) tell little of a hit, and their absence
    nothing. Whether there is an answer at all is judged by everything.
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
    """The probability of an answer that the best of so many datasets needs.

    The more are asked, the higher the best is by chance: the odds grow with a power of their number, somewhat less than
    the number itself, as datasets agree on what is on no subject at all. Measured over four.

    >>> [round(minimum_over(0.4, datasets), 2) for datasets in (1, 4)]
    [0.4, 0.67]
    """
    odds = minimum * max(datasets, 1) ** 0.8
    return min(odds / (odds + 1 - minimum), 1.0) if odds else 0.0


def never_increasing(chances: Sequence[float | None]) -> list[float | None]:
    """The nearest probabilities that do not grow down the list: neighbours that would are levelled to their mean.

    That keeps what they say on average true (isotonic regression by pooling adjacent violators, Ayer et al., 1955).
    Hits without a probability are passed over.

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
    """The candidates of a question as numbers, each worked out once.

    Args:
        evidence: what the lists brought.
        form: which scores to look at.
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
        """What tells whether a dataset holds an answer."""
        evidence = self.evidence
        features = {"peak": -self._competition(4), "terms": self.terms}
        if self.near is None:
            assert self.coverage is not None, "one of the two is there"
            return {**features, "coverage": float(self.coverage.max())}
        background, script = evidence.background, evidence.script
        assert background is not None, "it is in the form"
        assert evidence.nearness is not None, "so is this"
        towards = evidence.nearness - background.chance[script]
        return {
            **features,
            "above": float(self.near.max()) + (background.mean - background.best[script]) / background.sigma,
            "towards": min(max(towards, -2.0), 5.0),
            "within": min(max(towards / max(background.subject, 1.0), -0.5), 1.2),
            "across": float(evidence.across),
        }

    def _competition(self, width: Literal[2, 4, 8]) -> float:
        """The logarithm of the evidence of all candidates, as a multiple of the best one's."""
        others = self._sums[width] - 1
        if self.near is not None and 1 < len(self.scores) <= LEAST:  # a dataset of five has few to stand out of
            others *= LEAST / (len(self.scores) - 1)
        return math.log1p(others)

    def hits(self, places: NDArray[np.int64], letters: NDArray[np.int64]) -> dict[str, Any]:
        """What tells whether a hit is an answer, of each hit; ``answerable`` comes from the question.

        Args:
            places: of the hits among the candidates.
            letters: of each hit.
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


def _lead(scores: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far each place lies above the best of the others."""
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
        evidence: of all candidates.
        places: of the hits, best first.
        letters: of each hit.
        relevant: whether each hit is; of a question that has no answer, none.
        answered: whether the dataset holds an answer at all.
        weight: how much the question counts.
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
    """A calibration out of labelled questions.

    Args:
        rows: questions with their judged hits, and questions that the dataset has no answer to.
        form: which scores to look at; rows that lack them are passed over.
        embedder: whose cosines they are; None for words alone.
        minimum: the probability of an answer below which to refuse.
        unanswered: how much questions without an answer count where hits are fitted, against all others.

    Raises:
        InputError: there are too few questions of either kind.
    """
    return fit_prepared([item for row in rows if (item := prepared(row, form))], form, embedder, minimum, unanswered)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A labelled question as numbers: what a fit needs of it."""

    question: Mapping[str, float]
    hits: Mapping[str, Any]
    relevant: NDArray[np.bool_]
    answered: bool
    weight: float


def prepared(row: Labelled, form: Form) -> Prepared | None:
    """The features of a labelled question; None where it lacks what the form looks at."""
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
    """`fit_relevance` on questions that are numbers already."""
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
    """How much questions count, and whether they are answered, checked that there are enough of both."""
    import numpy as np

    answered = np.array([row.answered for row in rows], bool)
    for count, what in ((answered.sum(), "answered"), ((~answered).sum(), "unanswered")):
        if count < _LEAST:
            raise InputError(f"at least {_LEAST} {what} questions are needed to calibrate; there are {count}")
    return np.array([row.weight for row in rows]), answered


def scaled(base: Relevance, rows: Sequence[Prepared], unanswered: float = 0.3) -> Relevance:
    """A calibration with the weights of another one, its odds moved and stretched to fit labelled questions.

    Two numbers a part are fitted where `fit_prepared` has a dozen, so few questions do (J. Platt, 1999).

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
    found = [
        base.hit.logits({**row.hits, "answerable": _limited(one)}) for row, one in zip(rows, answerable, strict=True)
    ]
    relevant = np.concatenate([row.relevant for row in rows])
    hit = _stretched(base.hit, np.concatenate(found), relevant, each)
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
    """A logistic regression by Newton's method, with a small ridge.

    Args:
        features: by name an array, or a mapping for each row.
        names: of the features to fit.
        y: what is to be told.
        weights: of the rows.
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
        coefficients += step / max(1.0, float(np.abs(step).max()) / 3)  # where labels part cleanly it may overshoot
        if float(np.abs(step).max()) < 1e-9:
            break
    slopes = coefficients[1:] / scale
    return Logistic(float(coefficients[0] - slopes @ centre), dict(zip(names, slopes.tolist(), strict=True)))
