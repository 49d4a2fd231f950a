"""The calibration of a dataset by `pointsman calibrate`: the relevance of its hits, and the gain of a reranker.

It is fitted to the dataset's own questions, overrides the built-in calibration for that dataset, and affects no other.
All calibrations of a workspace form one record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from time import time
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from pointsman.retrieval.judge.relevance import Form, Relevance
from pointsman.tools.errors import ConflictError, InputError
from pointsman.values.argument_checks import is_number
from pointsman.values.reasons import Reason

if TYPE_CHECKING:
    from pointsman.store.backend import Backend, Record

CALIBRATION: Final = "calibration"
"""The kind of the record in a workspace; in a folder, the file ``calibration.json``."""

FORMER: Final = "former_calibrations"
"""The kind of the records, one a dataset that keeps versions, of its calibrations that were replaced."""

MOST_HITS: Final = 50
"""The number of first hits among which an answer is sought when coverage is requested."""

MADE_UNASKED: Final = 100
"""The maximum number of questions made from documents for a calibration that nobody asked for.

It fits few numbers, and the embedder may be slow or paid for.
"""

REFUSED: Final = 0.03
"""The share of questions like the labelled ones that may be refused."""

_DIGITS: Final = 6
_ATTEMPTS: Final = 10  # to change the record while others change it


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many hits hold an answer, estimated from labelled questions by split conformal prediction.

    Each hit has a share of the answer: the square root of its relevance, over the sum of all hits examined. A
    question's score is the total share of the hits before its first relevant one. The quantile of these scores at rank
    ``⌈(n + 1) · coverage⌉`` is a share beyond which no further hit is needed: for a question drawn like the labelled
    ones, the hits up to it hold an answer with at least that probability, however good the relevance.

    Source: A. N. Angelopoulos and S. Bates, A Gentle Introduction to Conformal Prediction, arXiv 2107.07511 (2021),
    sections 1 and 2.1. The root was chosen on public collections: it needs fewer hits than the relevance itself.

    Attributes:
        questions: the number of labelled ones, including those without an answer among the first `MOST_HITS`.
        scores: those of the questions with an answer there, in ascending order, 0 to 1.
        way: how they were searched; see `pointsman.retrieval.plan.recipe.Recipe.way`. The coverage holds only for this
            way.

    Raises:
        InputError: a value is invalid.
    """

    questions: int
    scores: tuple[float, ...]
    way: str

    def __post_init__(self) -> None:
        if not _is_count(self.questions) or len(self.scores) > self.questions or not isinstance(self.way, str):
            raise InputError(f"a coverage counts its questions, at least as many as scores, not {self.questions!r:.80}")
        if not all(_is_share(score) for score in self.scores) or list(self.scores) != sorted(self.scores):
            raise InputError("scores of a coverage are shares from 0 to 1 in ascending order")

    @classmethod
    def measured(cls, questions: Sequence[tuple[Sequence[float], int | None]], way: str) -> Self:
        """Measure the coverage of labelled questions.

        Args:
            questions: for each, the relevance of its first `MOST_HITS` hits, and the place of the first relevant one
                among them, from 0; None if there is none.
            way: how they were searched.
        """
        scores = [shares(relevance)[rank] for relevance, rank in questions if rank is not None]
        scale = 10**_DIGITS
        return cls(len(questions), tuple(sorted(min(math.ceil(score * scale) / scale, 1.0) for score in scores)), way)

    @property
    def most(self) -> float:
        """The highest coverage that can be promised."""
        return len(self.scores) / (self.questions + 1)

    def count(self, relevance: Sequence[float], coverage: float) -> int | None:
        """The fewest first hits that hold an answer with this probability; None if that cannot be promised.

        Args:
            relevance: of the first `MOST_HITS` hits, or of all if there are fewer.
            coverage: the probability, above 0 and below 1.
        """
        rank = math.ceil((self.questions + 1) * coverage)
        if rank > len(self.scores):
            return None
        limit = self.scores[max(rank, 1) - 1]
        return next((place for place, share in enumerate(shares(relevance)[1:], 1) if share > limit), len(relevance))


def shares(relevance: Sequence[float]) -> list[float]:
    """Return the share of the answer before each hit and after the last one: from 0 to 1, one value more than hits."""
    roots = [math.sqrt(max(chance, 0.0)) for chance in relevance]
    total = sum(roots) or 1.0
    cumulative, cumulative_shares = 0.0, [0.0]
    for root in roots:
        cumulative += root / total
        cumulative_shares.append(cumulative)
    return cumulative_shares


def minimum_for(chances: Sequence[float]) -> float | None:
    """Return the probability of an answer below which at most `REFUSED` of questions like these lie.

    This is split conformal prediction, as in `Coverage`: a question drawn like these n lies below the k-th smallest of
    their probabilities with a probability of at most k / (n + 1).

    Args:
        chances: the probabilities of an answer to questions that have one.

    Returns:
        None if there are too few of them, which is below 33.

    >>> minimum_for([number / 100 for number in range(1, 100)])
    0.03
    """
    rank = math.floor(REFUSED * (len(chances) + 1))
    return math.floor(sorted(chances)[rank - 1] * 10**_DIGITS) / 10**_DIGITS if rank else None


@dataclass(frozen=True, slots=True)
class Reranking:
    """The measured gain of a reranker on a dataset; nothing was fitted to the questions.

    Attributes:
        name: the reranker's name: its model and the settings that change its scores.
        adopted: whether ``auto`` uses it.
        questions: the number and kind of questions.
        before: nDCG@10 without it.
        after: nDCG@10 with it.
        lower: the lower end of the one-sided 95 % interval of the gain.
        milliseconds: the median time it adds to a search; 0 if it answered no question.
        problem: why it could not be measured; empty if it was.

    Raises:
        InputError: a value has the wrong type, or a number is not finite.
    """

    name: str
    adopted: bool
    questions: str
    before: float
    after: float
    lower: float
    milliseconds: float
    problem: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.name, self.questions, self.problem)):
            raise InputError("name, questions and problem of a reranking are strings")
        if not isinstance(self.adopted, bool):
            raise InputError(f"adopted of a reranking is true or false, not {self.adopted!r:.80}")
        if not all(map(is_number, (self.before, self.after, self.lower, self.milliseconds))):
            raise InputError("before, after, lower and milliseconds of a reranking are finite numbers")

    @property
    def reason(self) -> str:
        """The decision in words, with the figures."""
        if self.problem:
            return Reason.of("reranker_unmeasurable", name=self.name, cause=self.problem)
        return Reason.of(
            "reranker_adopted" if self.adopted else "reranker_no_gain",
            name=self.name,
            lower=f"{self.lower:+.4f}",
            before=f"{self.before:.4f}",
            after=f"{self.after:.4f}",
            part=self.questions,
            milliseconds=f"{self.milliseconds:.0f}",
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The values fitted to one dataset.

    Attributes:
        origin: what they were fitted to, in words.
        relevance: the calibrations, one per form of evidence; empty if the built-in ones apply.
        coverage: how many hits hold an answer; None without labels.
        reranking: the measured gain of the reranker in the settings; None if none was measured.
        minimums: by form of evidence, the probability of an answer below which a question in a language of the
            documents is refused; by default that of the form's calibration.
        documents: how many documents the dataset had when it was calibrated without labels; 0 with labels.

    Raises:
        InputError: a minimum is not a probability, or belongs to no form, or the documents are not a count.
    """

    origin: str
    relevance: tuple[Relevance, ...] = ()
    coverage: Coverage | None = None
    reranking: Reranking | None = None
    minimums: Mapping[Form, float] = field(default_factory=dict, hash=False)
    documents: int = 0

    def __post_init__(self) -> None:
        if not _is_count(self.documents):
            raise InputError(f"documents of a calibration are a count, not {self.documents!r:.80}")
        if not isinstance(self.minimums, Mapping) or not set(self.minimums) <= set(get_args(Form)):
            raise InputError(f"minimums are given by {', '.join(get_args(Form))}, not {self.minimums!r:.80}")
        if not all(map(_is_share, self.minimums.values())):
            raise InputError(f"minimums are probabilities from 0 to 1, not {self.minimums!r:.80}")

    @property
    def is_empty(self) -> bool:
        """Whether it says only why there is none."""
        return not (self.relevance or self.coverage or self.minimums)

    @classmethod
    def of(cls, values: Any) -> Self:
        """Read and check a calibration from a JSON object.

        Raises:
            InputError: it is not a calibration.
        """
        optional_fields = {"reranking", "minimums", "documents"}  # records of earlier versions lack them
        if not isinstance(values, dict) or set(values) - optional_fields != {"origin", "relevance", "coverage"}:
            raise InputError(f"a stored calibration has origin, relevance and coverage, not {values!r:.80}")
        reranking = values.get("reranking")
        if reranking is not None:
            if not isinstance(reranking, dict) or set(reranking) != {item.name for item in fields(Reranking)}:
                raise InputError(f"reranking has {', '.join(Reranking.__slots__)}, not {reranking!r:.80}")
            reranking = Reranking(**reranking)
        origin, relevance, coverage = values["origin"], values["relevance"], values["coverage"]
        if not isinstance(origin, str) or not isinstance(relevance, list):
            raise InputError(f"origin is a string and relevance a list, not {origin!r:.80} and {relevance!r:.80}")
        if coverage is not None:
            if not isinstance(coverage, dict) or set(coverage) != {"questions", "scores", "way"}:
                raise InputError(f"coverage has questions, scores and a way, not {coverage!r:.80}")
            if not isinstance(coverage["scores"], list):
                raise InputError(f"scores of a coverage are a list, not {coverage['scores']!r:.80}")
            coverage = Coverage(coverage["questions"], tuple(coverage["scores"]), coverage["way"])
        calibrations = tuple(Relevance.of(item) for item in relevance)
        minimums, documents = values.get("minimums", {}), values.get("documents", 0)
        return cls(origin, calibrations, coverage, reranking, minimums, documents)


def to_json(calibrations: Mapping[str, Calibration]) -> str:
    """Return the JSON record of a workspace, by dataset name, for `read_calibrations`."""
    return (
        json.dumps(
            {name: asdict(calibration) for name, calibration in sorted(calibrations.items())}, ensure_ascii=False
        )
        + "\n"
    )


def read_calibrations(text: str, origin: str) -> dict[str, Calibration]:
    """Read the stored calibrations of a workspace, by dataset name.

    Raises:
        InputError: the text is not such a record; the message says where it is stored.
    """
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise InputError(f"calibrations are a JSON object, not {type(values).__name__}")
        return {name: Calibration.of(form) for name, form in values.items()}
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise InputError(f"{origin}: {error}; delete it, and fit it again with 'pointsman calibrate'") from None


def stored_calibrations(backend: Backend) -> dict[str, Calibration]:
    """Return the calibrations stored in a workspace, by dataset name.

    Raises:
        InputError: the stored record is invalid.
    """
    return _calibrations_in(backend, backend.record(CALIBRATION))


def change_calibrations(
    backend: Backend, change: Callable[[dict[str, Calibration]], object]
) -> Mapping[str, Calibration]:
    """Change the calibrations stored in a workspace, even while others change them; return all of them.

    Args:
        backend: where the workspace is.
        change: changes the calibrations in place, by dataset name; called again if others were faster.

    Raises:
        ConflictError: others keep changing them.
        InputError: the stored record is invalid.
    """
    from pointsman.store.backend import NEW  # brings SQLite, which a client does without

    for attempt in range(_ATTEMPTS):
        record = backend.record(CALIBRATION)
        calibrations = _calibrations_in(backend, record)
        change(calibrations)
        version = NEW if record is None else record.version
        try:
            backend.put_record(CALIBRATION, "", to_json(calibrations) if calibrations else None, version)
            break
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
    return calibrations


def keep_former(backend: Backend, name: str, calibration: Calibration, days: int) -> None:
    """Keep a calibration that is being replaced for as long as the dataset keeps versions, so that receipts live on.

    Args:
        backend: where the workspace is.
        name: of the dataset.
        calibration: what is being replaced.
        days: for how many days the dataset keeps versions; 0 deletes what was kept.

    Raises:
        ConflictError: another process keeps one at this moment.
        InputError: the stored record is invalid.
    """
    from pointsman.store.backend import NEW
    from pointsman.store.history import DAY_SECONDS

    record, time_now = backend.record(FORMER, name), int(time())
    if record is None and not days:
        return
    forms = [form for form in _former_forms(backend, name, record) if form["until"] > time_now - days * DAY_SECONDS]
    if days:
        forms.append({"until": time_now, "calibration": asdict(calibration)})
    text = json.dumps(forms, ensure_ascii=False) if forms else None
    backend.put_record(FORMER, name, text, NEW if record is None else record.version)


def former_calibrations(backend: Backend, name: str) -> list[Calibration]:
    """Return the calibrations of a dataset that were replaced and are kept, latest first.

    Raises:
        InputError: the stored record is invalid.
    """
    forms = _former_forms(backend, name, backend.record(FORMER, name))
    return [Calibration.of(form["calibration"]) for form in reversed(forms)]


def _former_forms(backend: Backend, name: str, record: Record | None) -> list[dict[str, Any]]:
    try:
        forms: list[dict[str, Any]] = [] if record is None else json.loads(record.value)
        for form in forms:
            Calibration.of(form["calibration"])
            if not _is_count(form["until"]):
                raise InputError(f"until is a time in seconds, not {form['until']!r:.80}")
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise InputError(f"{backend.url}: the former calibrations of {name!r}: {error}; delete them") from None
    return forms


def _calibrations_in(backend: Backend, record: Record | None) -> dict[str, Calibration]:
    return {} if record is None else read_calibrations(record.value, f"{backend.url}: the calibrations")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: object) -> bool:
    return is_number(value) and 0 <= value <= 1
