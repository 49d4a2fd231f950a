"""Refusing: better to say that nothing relevant was found than to answer with noise (R4).

Two things can refuse. A `Threshold` drops every hit below it, on the one scale it is meant for: a reranker's scores,
raw BM25, raw cosines, the calibrated sum, or the probability below. Ranks, and scores normalised for each query, say
which hit is best and never whether it is any good, so no threshold can be had for them.

Where nobody has set a threshold for the ranking's own scale, one on the probability that what was searched holds an
answer at all decides (`pointsman.retrieval.relevance`): for every language and strategy, over one dataset or several.

What that cannot judge (a store that keeps words only and does not tell how frequent they are, a dataset beside a
retriever of any kind) is left to a `RelevanceCalibration`, as is everything where one was given. It turns what is known
of a hit into the probability that it is relevant:

    P = 1 / (1 + exp(-(intercept + cosine · c + words · s² + brief · b + language)))

c is the raw cosine, s the share of the query's words that the hit has, and b goes from 0 for a passage to 1 for no text
at all: a line from a catalogue has no room for the words of a question that it answers. ``language`` is what the
query's language adds (under multilingual-e5-small any two Chinese texts are nearer to each other than any two English
ones). The raw cosine itself tells more than its distance from the dataset's mean cosine, and no part depends on how
many documents there are, so a dataset of three is judged like one of a million. When the best of the first hits stays
below ``minimum``, the answer is refused.

A question without a word in it is refused as it stands. Nothing else is refused that the calibration cannot judge:
vectors of an embedder it was not fitted with, a question in a language it does not know, hits in another language than
the question, scores that are missing. ``detail`` says so. Of single words that no hit has (*photosynthesis*, a name)
this knows little: an embedder puts them near every short text, and they may pass.
Figures, and the way to the shipped constants: ``benchmarks/refusal.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman.errors import InputError
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.refine import BaseRefiner
from pointsman.text import DEFAULT_ANALYZER, detect
from pointsman.types import Hit, HitKey, Provenance, Query, Ranked, Refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROBABILITY: Final = "probability"
"""The scale of a calibrated probability."""

LOOKED_AT: Final = 3
"""Hits among which the best decides whether an answer is refused."""

PASSAGE: Final = 60
"""Words from which on a hit counts as a passage."""

_CHARACTERS = 4000  # of a hit: what it says should be there, and the time is bounded
_LANGUAGES_OF = 10  # hits: an answer in another language may well stand below noise in the question's own
_SAMPLE = 300  # characters that tell a hit's language
_LEAST = 20  # labels of either kind below which nothing can be fitted
_RIDGE = 1e-3

Embedders = str | Mapping[str, str | None] | None
"""The name of the embedder behind the hits, or names by dataset; None where unknown, or where there is none."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit on one scale; hits below it are dropped.

    Attributes:
        scale: of which scores it speaks: ``"probability"``, or the scale of a ranking (`Ranked.scale`), such as
            ``"rerank:bge"``, ``"calibrated"``, ``"bm25"`` or ``"cosine"``.
        minimum: what a hit needs.

    Raises:
        InputError: scores of this scale say nothing in absolute terms, or a value is of the wrong kind.
    """

    scale: str
    minimum: float

    def __post_init__(self) -> None:
        if not isinstance(self.scale, str) or not self.scale:
            raise InputError(f"a threshold's scale is a name such as 'probability', not {self.scale!r:.80}")
        if self.scale in METHODS:
            raise InputError(
                f"no threshold can be set on {self.scale!r}: its scores come from ranks, or are normalised for each "
                "query, so the best hit scores the same however bad it is; use 'probability', 'calibrated', 'bm25', "
                "'cosine' or 'rerank:<model>'"
            )
        if not (_is_number(self.minimum) and math.isfinite(self.minimum)):
            raise InputError(f"the minimum of a threshold is a finite number, not {self.minimum!r:.80}")
        if self.scale == PROBABILITY and not 0 <= self.minimum <= 1:
            raise InputError(f"a probability is a number from 0 to 1, not {self.minimum!r}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a hit in absolute terms.

    Attributes:
        words: the share of the query's words that it has, 0 to 1; Chinese characters and their pairs count as words.
        language: the query's, as `pointsman.text.detect` tells it.
        cosine: of query and document; None where only words were searched.
        length: of the hit, in words.
    """

    words: float
    language: str = "en"
    cosine: float | None = None
    length: int = PASSAGE

    @property
    def brief(self) -> float:
        """How far the hit is from being a passage: 0 for one, 1 for no text at all."""
        return max(0.0, 1 - self.length / PASSAGE)


@dataclass(frozen=True, slots=True)
class RelevanceCalibration:
    """The probability that a hit is relevant, as a logistic function of `Evidence`.

    Attributes:
        embedder: the name of the embedder whose cosines it understands; None: it goes by words alone.
        intercept: see the module.
        cosine: what a cosine of 1 adds; 0 without an embedder.
        words: what it adds if the hit has all words of the query; it grows with the square of their share.
        brief: what it would add if the hit had no text; it falls to 0 with the length of a passage.
        languages: what each language adds. Others are not judged.
        minimum: the probability below which to refuse, as long as nobody says otherwise.
    """

    embedder: str | None
    intercept: float
    cosine: float
    words: float
    brief: float
    languages: Mapping[str, float] = field(hash=False)
    minimum: float

    def __post_init__(self) -> None:
        for name in ("intercept", "cosine", "words", "brief", "minimum"):
            value = getattr(self, name)
            if not (_is_number(value) and math.isfinite(value)):
                raise InputError(f"{name} of a calibration is a finite number, not {value!r:.80}")
        if self.embedder is not None and not (isinstance(self.embedder, str) and self.embedder):
            raise InputError(f"embedder of a calibration is a name or None, not {self.embedder!r:.80}")
        if self.embedder is None and self.cosine:
            raise InputError(
                "a calibration without an embedder knows no cosines; set cosine to 0, or name the embedder"
            )
        if not 0 <= self.minimum <= 1:
            raise InputError(f"minimum is a probability from 0 to 1, not {self.minimum!r}")
        if not isinstance(self.languages, Mapping) or not self.languages:
            raise InputError(f"languages maps names such as 'en' to what they add, not {self.languages!r:.80}")
        for name, value in self.languages.items():
            if not (isinstance(name, str) and _is_number(value) and math.isfinite(value)):
                raise InputError(f"language {name!r:.80} of a calibration adds a finite number, not {value!r:.80}")

    def probability(self, evidence: Evidence) -> float | None:
        """The probability that a hit is relevant; None where this calibration cannot judge it.

        >>> calibration = RelevanceCalibration("e5", -60, 70, 10, 3, {"en": 0.0}, 0.1)
        >>> round(calibration.probability(Evidence(words=0.5, language="en", cosine=0.8)), 3)  # -60 + 56 + 2.5
        0.182
        """
        added = self.languages.get(evidence.language)
        if added is None:
            return None
        logit = self.intercept + self.words * evidence.words * evidence.words + self.brief * evidence.brief + added
        if self.embedder is not None:
            if evidence.cosine is None or not math.isfinite(evidence.cosine):
                return None
            logit += self.cosine * evidence.cosine
        return 0.5 * (1 + math.tanh(logit / 2))  # written so that nothing overflows

    @classmethod
    def fit(
        cls,
        evidence: Sequence[Evidence],
        relevant: Sequence[bool],
        *,
        embedder: str | None,
        own_offset: Sequence[str] = (),
        weights: Sequence[float] | None = None,
        false_refusals: float = 0.01,
    ) -> Self:
        """Learn from hits of which it is known whether they are relevant.

        Logistic regression by Newton's method with a slight ridge. A good set has the best hit of queries that can be
        answered, and of queries that cannot, in every language that matters.

        Args:
            evidence: one for each labelled hit.
            relevant: whether it is relevant.
            embedder: whose cosines these are; None: go by words alone.
            own_offset: languages that get an offset of their own; the others share the intercept.
            weights: how much each label counts; all alike unless given.
            false_refusals: the share of relevant hits that ``minimum`` may refuse.

        Raises:
            InputError: too few labels, or some of the values cannot be used.
        """
        import numpy as np

        if not len(evidence) == len(relevant) == len(evidence if weights is None else weights):
            raise InputError("evidence, relevant and weights have one entry for each labelled hit")
        if not 0 <= false_refusals < 1:
            raise InputError(f"false_refusals is a share from 0 up to 1, not {false_refusals!r}")
        y = np.array([bool(label) for label in relevant])
        if min(y.sum(), (~y).sum()) < _LEAST:
            raise InputError(
                f"a calibration wants {_LEAST} relevant and {_LEAST} irrelevant hits, not {y.sum()} and {(~y).sum()}"
            )
        columns = [[one.words**2 for one in evidence], [one.brief for one in evidence]]
        if embedder is not None:
            if any(one.cosine is None or not math.isfinite(one.cosine) for one in evidence):
                raise InputError("some evidence has no cosine; leave it out, or fit with embedder=None")
            columns.append([float(one.cosine or 0.0) for one in evidence])
        columns += [[float(one.language == language) for one in evidence] for language in own_offset]
        x = np.array(columns, np.float64).T
        counts = np.ones(len(y)) if weights is None else np.array(weights, np.float64)
        if not (np.isfinite(x).all() and np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() > 0):
            raise InputError("evidence and weights are finite numbers, and weights not below 0")
        found = _logistic_regression(x, y, counts / counts.mean())
        by_language = dict.fromkeys(sorted({one.language for one in evidence}), 0.0)
        intercept, words, brief, *others = found
        cosine = 0.0 if embedder is None else others.pop(0)
        by_language.update(zip(own_offset, others, strict=True))
        fitted = cls(embedder, intercept, cosine, words, brief, by_language, 0.0)
        chances = [fitted.probability(one) or 0.0 for one, label in zip(evidence, y, strict=True) if label]
        return replace(fitted, minimum=float(np.quantile(chances, false_refusals, method="lower")))

    def to_json(self) -> str:
        """As JSON that a person can read."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From what ``to_json`` gave; everything is checked.

        Raises:
            InputError: it is something else.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is not JSON: {error}") from None
        return cls._from(data)

    @classmethod
    def _from(cls, data: Any) -> Self:
        names = {part.name for part in fields(cls)}
        if not isinstance(data, dict) or not names <= data.keys():
            raise InputError(f"a calibration is a JSON object with {', '.join(sorted(names))}, not {data!r:.80}")
        return cls(**{name: data[name] for name in names})


@cache
def shipped() -> tuple[RelevanceCalibration, ...]:
    """The calibrations that come with Pointsman: for the default embedder, and for words alone."""
    text = resources.files("pointsman.retrieval").joinpath("refusal.json").read_text("utf-8")
    return tuple(RelevanceCalibration._from(data) for data in json.loads(text)["calibrations"])  # noqa: SLF001  (ours)


def evidence_of(query: Query | str, hit: Hit) -> Evidence | None:
    """What is known of a hit in absolute terms; None where neither cosine nor BM25 are in its provenance."""
    return _Judge(Query.of(query), (), None).evidence(hit)


class Refuser(BaseRefiner):
    """Drops what is not relevant enough, and refuses when nothing is left (R4).

    Args:
        calibration: one or several by which every hit is judged, instead of the usual way; ``()`` for none.
        minimum: the probability below which an answer is refused; unless given, what was measured to do. 0 never
            refuses.
        thresholds: what hits are dropped by, one for each scale. One for the ranking's own scale takes the place of
            ``minimum``: whoever has set it knows better.
        embedder: what made the vectors behind the hits, so that no calibration meets foreign cosines; a name, or names
            by dataset. Without it only hits found by words alone are judged by probability. See `bound`.

    Raises:
        InputError: any of these cannot be used.
    """

    stage = "refuse"
    in_place = True

    def __init__(
        self,
        calibration: RelevanceCalibration | Sequence[RelevanceCalibration] | None = None,
        minimum: float | None = None,
        thresholds: Threshold | Sequence[Threshold] = (),
        *,
        embedder: Embedders = None,
    ) -> None:
        self._usual = calibration is None
        if calibration is None:
            calibration = shipped()
        if isinstance(calibration, RelevanceCalibration):
            calibration = (calibration,)
        self.calibrations = tuple(calibration)
        self.thresholds = (thresholds,) if isinstance(thresholds, Threshold) else tuple(thresholds)
        for kind, things in ((RelevanceCalibration, self.calibrations), (Threshold, self.thresholds)):
            for thing in things:
                if not isinstance(thing, kind):
                    raise InputError(f"a {kind.__name__} is wanted here, not {thing!r:.80}")
        if len({one.scale for one in self.thresholds}) < len(self.thresholds):
            raise InputError(f"two thresholds are on one scale; give one each: {self.thresholds!r:.200}")
        if len({one.embedder for one in self.calibrations}) < len(self.calibrations):
            raise InputError("two calibrations are for one embedder; give one each")
        if minimum is not None and not (_is_number(minimum) and 0 <= minimum <= 1):
            raise InputError(f"minimum is a probability from 0 to 1, or None, not {minimum!r:.80}")
        self.minimum, self.embedder = minimum, embedder

    def bound(self, embedder: Embedders) -> Refuser:
        """The same one for hits with these embedders behind them."""
        own = None if self._usual else self.calibrations
        return Refuser(own, self.minimum, self.thresholds, embedder=embedder)

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any scale)
        """At least as many as are looked at."""
        return max(top_k, LOOKED_AT)

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:
        """The hits that are relevant enough, or a refusal."""
        if ranked.refused is not None:
            return ranked
        if not ranked.hits:
            return replace(ranked, detail="nothing was found", refused=Refusal("nothing was found"))
        usual = self._usual and ranked.answerable is not None
        judge = _Judge(query, self.calibrations, self.embedder, usual=usual)
        notes = [
            f"the threshold for {threshold.scale!r} does not act: these scores are {ranked.scale!r}"
            for threshold in self.thresholds
            if threshold.scale not in {PROBABILITY, ranked.scale}
        ]
        if not any(threshold.scale == ranked.scale for threshold in self.thresholds):
            refusal, note = self._refusal(judge, ranked)
            if refusal is not None:
                reasons = dict.fromkeys((hit.key for hit in ranked.hits), str(refusal))
                return _refused(ranked, refusal, {**ranked.dropped, **reasons}, [note, *notes], top_k)
            notes.insert(0, note)
        hits, dropped = list(ranked.hits), dict(ranked.dropped)
        for threshold in self.thresholds:
            if threshold.scale in {PROBABILITY, ranked.scale}:
                kept, below = _divided(hits, threshold, judge)
                dropped.update(below)
                notes.append(f"{len(below)} of {len(hits)} hits are below {threshold.minimum:g} ({threshold.scale})")
                if not kept:
                    best = max(hits, key=lambda hit: _score(hit, threshold, judge) or 0.0)
                    reached = _score(best, threshold, judge)
                    reason = f"the best hit reaches {reached:.3g} of {threshold.minimum:g} ({threshold.scale})"
                    refusal = Refusal(reason, best, reached, threshold.minimum, threshold.scale)
                    return _refused(ranked, refusal, dropped, notes, top_k)
                hits = kept
        return replace(
            ranked,
            hits=tuple(judge.marked(hit, rank) for rank, hit in enumerate(hits, 1)),
            detail="; ".join(notes),
            dropped=dropped,
        )

    def _refusal(self, judge: _Judge, ranked: Ranked) -> tuple[Refusal | None, str]:
        """Whether the first hits are too unlikely to answer with, and why, or why not."""
        if not judge.words and self.calibrations and self.minimum != 0:
            # An embedder puts "???" near every short text; that says nothing about the text.
            reason = "there is no word in the question"
            return Refusal(reason, ranked.hits[0]), f"refused: {reason}"
        judged = all(hit.relevance is not None for hit in ranked.hits[:LOOKED_AT])
        if self._usual and judged and ranked.answerable is not None:
            return self._by_answerable(ranked, ranked.answerable)
        best: tuple[float, float, Hit] | None = None
        unjudged = ""
        for hit in ranked.hits[:LOOKED_AT]:
            chance = judge.probability(hit)
            if chance is None:
                unjudged = judge.why_not(hit)
                continue
            wanted = judge.recommended(hit) if self.minimum is None else self.minimum
            if chance >= wanted:
                return None, f"hit {hit.id!r:.80} is relevant with probability {chance:.2f}"
            if best is None or chance > best[0]:
                best = chance, wanted, hit
        if best is None or unjudged:
            return None, f"not judged: {unjudged}"
        chance, wanted, hit = best
        if foreign := judge.foreign(ranked.hits):
            return None, f"not judged: the question is in {judge.language!r}, a hit in {foreign!r}"
        reason = f"No relevant results: the best is so with probability {chance:.2f}, and {wanted:g} is needed"
        return Refusal(reason, hit, chance, wanted, PROBABILITY), f"refused: {chance:.2f} < {wanted:g}"

    def _by_answerable(self, ranked: Ranked, chance: float) -> tuple[Refusal | None, str]:
        wanted = ranked.needed if self.minimum is None else self.minimum
        if chance >= wanted:
            return None, f"there is an answer with probability {chance:.2f}, and {wanted:.2f} is needed"
        nearest = ranked.hits[0]
        reason = (
            f"No relevant results: there is an answer with probability {chance:.2f}, and {wanted:.2f} is needed; "
            f"the closest is {nearest.id!r:.80}"
        )
        return Refusal(reason, nearest, chance, wanted, PROBABILITY), f"refused: {chance:.2f} < {wanted:.2f}"


class _Judge:
    """Probabilities for the hits of one query; each worked out when it is first asked for."""

    def __init__(
        self, query: Query, calibrations: Sequence[RelevanceCalibration], embedder: Embedders, *, usual: bool = False
    ) -> None:
        self.query, self.embedder, self.usual = query, embedder, usual
        self.calibrations = {calibration.embedder: calibration for calibration in calibrations}
        self.words = DEFAULT_ANALYZER.query_tokens(query.text)
        self.language = detect(query.text)
        self.known: dict[HitKey, float | None] = {}

    def evidence(self, hit: Hit) -> Evidence | None:
        cosine, by_words = None, False
        for one in hit.provenance:
            if one.source == "vector" and one.score is not None:
                cosine = one.score
            elif one.source == "bm25" and one.score is not None:
                by_words = True
        if cosine is None and not by_words:
            return None
        tokens = DEFAULT_ANALYZER.tokens(hit.document.searchable[:_CHARACTERS])
        known = frozenset(tokens)
        share = sum(word in known for word in self.words) / max(len(self.words), 1)
        return Evidence(share, self.language, cosine, len(tokens))

    def calibration(self, hit: Hit) -> RelevanceCalibration | None:
        """The one that understands this hit's scores."""
        sources = {one.source for one in hit.provenance}
        if "vector" not in sources:
            return self.calibrations.get(None) if "bm25" in sources else None
        name = self.embedder.get(hit.dataset or "") if isinstance(self.embedder, Mapping) else self.embedder
        return None if name is None else self.calibrations.get(name)

    def probability(self, hit: Hit) -> float | None:
        """None where it cannot be judged."""
        if self.usual and hit.relevance is not None:
            return hit.relevance
        if hit.key not in self.known:
            calibration, chance = self.calibration(hit), None
            if calibration is not None and self.language in calibration.languages:
                evidence = self.evidence(hit)
                chance = None if evidence is None else calibration.probability(evidence)
            self.known[hit.key] = chance
        return self.known[hit.key]

    def recommended(self, hit: Hit) -> float:
        calibration = self.calibration(hit)
        assert calibration is not None, "only hits that have a probability are asked for"
        return calibration.minimum

    def why_not(self, hit: Hit) -> str:
        """Why a hit has no probability."""
        calibration = self.calibration(hit)
        if calibration is not None and self.language not in calibration.languages:
            return f"the question's language ({self.language!r}) is none that was calibrated"
        if calibration is None and any(one.source == "vector" for one in hit.provenance):
            return f"no calibration for the embedder behind hit {hit.id!r:.80}"
        return f"hit {hit.id!r:.80} has no score that could be judged"

    def foreign(self, hits: Sequence[Hit]) -> str | None:
        """The language of a hit that is in another than the query.

        Below the first one only what is surely another language counts: of formulas and lists nobody can tell.
        """
        found = [detect(hit.document.searchable[:_SAMPLE]) for hit in hits[:_LANGUAGES_OF]]
        own = {self.language, "und"}
        return next((one for place, one in enumerate(found) if one not in own or (one == "und" and not place)), None)

    def marked(self, hit: Hit, rank: int) -> Hit:
        """The hit with its probability in the provenance, where that is known."""
        chance = hit.relevance if self.usual and hit.relevance is not None else self.known.get(hit.key)
        if chance is None:
            return hit
        return replace(hit, provenance=(*hit.provenance, Provenance("refuse", rank, chance)))


def _score(hit: Hit, threshold: Threshold, judge: _Judge) -> float | None:
    """What the threshold looks at; None where it is not known, or not in the query's language."""
    if threshold.scale != PROBABILITY:
        return hit.score
    chance = judge.probability(hit)
    if hit.relevance is not None and chance == hit.relevance:
        return chance
    return None if chance is not None and chance < threshold.minimum and judge.foreign([hit]) else chance


def _divided(hits: Sequence[Hit], threshold: Threshold, judge: _Judge) -> tuple[list[Hit], dict[HitKey, str]]:
    """What stays, and what goes with the reason."""
    kept, below = [], {}
    for hit in hits:
        score = _score(hit, threshold, judge)
        if score is None or score >= threshold.minimum:
            kept.append(hit)
        else:
            below[hit.key] = f"{score:.3g} is below {threshold.minimum:g} ({threshold.scale})"
    return kept, below


def _refused(
    ranked: Ranked, refusal: Refusal, dropped: Mapping[HitKey, str], notes: Sequence[str], top_k: int
) -> Ranked:
    refusal = replace(refusal, near_misses=ranked.hits[:top_k])
    return replace(ranked, hits=(), detail="; ".join(notes), dropped=dropped, refused=refusal)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _logistic_regression(
    x: NDArray[np.float64], y: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[float, ...]:
    """Intercept and slopes; x of shape ``(labels, features)``."""
    import numpy as np

    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale == 0] = 1.0
    z = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    penalty = _RIDGE * np.diag([0.0] + [1.0] * x.shape[1])
    found = np.zeros(z.shape[1])
    for _ in range(100):
        chances = 0.5 * (1 + np.tanh(z @ found / 2))
        gradient = z.T @ (weights * (y - chances)) / len(y) - penalty @ found
        hessian = (z.T * (weights * chances * (1 - chances))) @ z / len(y) + penalty
        step = np.linalg.solve(hessian, gradient)
        found += step / max(1.0, float(np.abs(step).max()) / 5)  # where labels part cleanly, a full step may overshoot
        if float(np.abs(step).max()) < 1e-9:
            break
    slopes = found[1:] / scale
    return float(found[0] - slopes @ centre), *map(float, slopes)
