"""What a search did, and why a document has its rank or is missing.

Keeping a trace is cheap: it references the lists that the stages have anyway. The cost comes on demand: `Trace.explain`
and `Trace.to_dict` look up the documents' ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import form_of, of_form

HitKey = tuple[str | None, str]
"""Identifies a hit: the dataset's name (None outside a dataset) and the document's id."""


@dataclass(frozen=True, slots=True)
class Span:
    """One stage, or one branch of it: its decision and reason, its duration, and its error.

    Attributes:
        stage: ``"transform"``, ``"plan"``, ``"retrieve"``, ``"fuse"``, ``"rerank"`` …
        detail: the decision and its reason, in words.
        milliseconds: the duration; branches overlap.
        count: number of resulting candidates or hits, if applicable.
        error: what failed, if anything.
        started: milliseconds after the search began.
    """

    stage: str
    detail: str
    milliseconds: float
    count: int | None = None
    error: str | None = None
    started: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; times are in milliseconds, to the microsecond."""
        return form_of(self, milliseconds=round(self.milliseconds, 3), started=round(self.started, 3))


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A ranking from one list or after one stage.

    Attributes:
        stage: ``"retrieve"`` for a list, else the stage.
        source: the list's name, or the stage's name.
        ranking: keys and scores, best first; keys are opaque except to ``ids``.
        ids: resolves keys to documents, None for one that no longer exists.
        dropped: what the stage removed, with the reason.
        score: returns the score that this list would give a document; None if it is not known.
    """

    stage: str
    source: str
    ranking: Sequence[tuple[Any, float | None]]
    ids: Callable[[Sequence[Any]], Sequence[HitKey | None]] = list
    dropped: Mapping[HitKey, str] = field(default_factory=dict)
    score: Callable[[HitKey], float | None] | None = None

    def resolved(self) -> StageRecord:
        """Return the record by dataset and id, without objects that exist only in this process."""
        keys = self.ids([key for key, _ in self.ranking])
        entries = [
            ((key[0], key[1]), score) for key, (_, score) in zip(keys, self.ranking, strict=True) if key is not None
        ]
        return StageRecord(self.stage, self.source, entries, list, dict(self.dropped))

    def __reduce__(self) -> tuple[Any, ...]:
        plain = self.resolved()
        return StageRecord, (plain.stage, plain.source, list(plain.ranking), list, plain.dropped)


@dataclass(frozen=True, slots=True)
class Step:
    """The position of a document in one list or after one stage.

    Attributes:
        stage: as in `StageRecord`.
        source: as in `StageRecord`.
        rank: from 1; None if it was absent.
        score: its score, or, if it was absent, the score that the list would have given it, if known.
        count: number of documents there.
        lowest: the score of the last one, if any had scores.
        reason: why this stage removed it, if it did.
    """

    stage: str
    source: str
    rank: int | None
    score: float | None
    count: int
    lowest: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document is or is not in an answer.

    Attributes:
        id: the document's id.
        dataset: the name of its dataset.
        rank: its rank in the answer; None if it is not in the answer.
        summary: the explanation in one sentence.
        steps: its positions in lists and stages.
    """

    id: str
    dataset: str | None
    rank: int | None
    summary: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Every stage of one search, in order.

    Attributes:
        spans: the stages.
        records: the intermediate rankings, for `explain`.
    """

    spans: tuple[Span, ...] = ()
    records: tuple[StageRecord, ...] = ()

    @property
    def milliseconds(self) -> float:
        """Time from the start of the search to the end of its last stage."""
        return max((span.started + span.milliseconds for span in self.spans), default=0.0)

    def explain(self, document_id: str, dataset: str | None = None) -> Explanation:
        """Return a document's position in every list and after every stage, and why it is or is not in the answer.

        Args:
            document_id: the document's id.
            dataset: its dataset, if the same id occurs in several; by default the one ranked best.

        Raises:
            InputError: the id is not a str.
        """
        if not isinstance(document_id, str):
            raise InputError(f"a document's id is a str, not {document_id!r:.80}")
        records = [record.resolved() for record in self.records]
        key = _best_key(records, document_id, dataset)
        steps = [_step(record, original, key) for record, original in zip(records, self.records, strict=True)]
        final = steps[-1].rank if steps and records[-1].stage == "answer" else None
        lists = [step for step, record in zip(steps, self.records, strict=True) if record.score is not None]
        if lists and all(step.rank is None and step.score is None for step in steps):
            summary = "no dataset that was searched has a document with this id"
        else:
            summary = _summary(steps, final)
        return Explanation(document_id, key[0], final, summary, tuple(steps))

    def to_dict(self, *, lists: bool = False) -> dict[str, Any]:
        """Return the trace as plain JSON values; ``lists`` adds every ranking."""
        spans = [span.to_dict() for span in self.spans]
        if not lists:
            return {"spans": spans, "records": None}
        records = [
            {
                "stage": record.stage,
                "source": record.source,
                "ranking": [[key[0], key[1], score] for key, score in record.ranking],
                "dropped": [[key[0], key[1], reason] for key, reason in record.dropped.items()],
            }
            for record in (record.resolved() for record in self.records)
        ]
        return {"spans": spans, "records": records}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Trace:
        """Build a trace from the output of `to_dict`; it explains like the original.

        Raises:
            InputError: the value is invalid.
        """
        try:
            spans = tuple(of_form(Span, span) for span in value["spans"])
            records = tuple(
                StageRecord(
                    record["stage"],
                    record["source"],
                    [((dataset, id_), score) for dataset, id_, score in record["ranking"]],
                    list,
                    {(dataset, id_): reason for dataset, id_, reason in record["dropped"]},
                )
                for record in value.get("records") or ()
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a trace as to_dict writes it: {type(error).__name__}: {error}") from None
        return cls(spans, records)


def _best_key(records: Sequence[StageRecord], document_id: str, dataset: str | None) -> HitKey:
    """Return the key of this id that got farthest: later stages first, then better ranks."""
    if dataset is not None:
        return dataset, document_id
    for record in reversed(records):
        keys: list[HitKey] = [*(key for key, _ in record.ranking), *record.dropped]
        for key in keys:
            if key[1] == document_id:
                return key
    return None, document_id


def _step(record: StageRecord, original: StageRecord, key: HitKey) -> Step:
    scores = [score for _, score in record.ranking if score is not None]
    lowest = scores[-1] if scores else None
    for rank, (candidate, score) in enumerate(record.ranking, 1):
        if candidate == key:
            return Step(record.stage, record.source, rank, score, len(record.ranking), lowest)
    would_be = original.score(key) if original.score else None
    return Step(record.stage, record.source, None, would_be, len(record.ranking), lowest, record.dropped.get(key))


def _summary(steps: Sequence[Step], final: int | None) -> str:
    hits = [step for step in steps if step.stage == "retrieve" and step.rank is not None]
    if final is not None:
        if not hits:
            return f"it is number {final} of the answer"
        rankings = ", ".join(f"{step.source} (number {step.rank} of {step.count})" for step in hits)
        return f"it is number {final} of the answer, found by {rankings}"
    if any(step.reason for step in steps):
        step = next(step for step in steps if step.reason)
        return f"removed by {step.stage}: {step.reason}"
    if not hits:
        lists = [step for step in steps if step.stage == "retrieve"]
        if not lists:
            return "nothing was searched"
        return f"no list found it: {'; '.join(map(_miss, lists))}"
    last = next(step for step in reversed(steps) if step.rank is not None)
    size = steps[-1].count if steps[-1].stage == "answer" else 0
    return f"it was number {last.rank} of {last.count} after {last.stage}; the answer has {size}"


def _miss(step: Step) -> str:
    if step.score is None or step.lowest is None:
        return f"{step.source} holds {step.count} other{'' if step.count == 1 else 's'}"
    comparison = f"{step.source} scores it {step.score:.3f}, and the last of its {step.count} has {step.lowest:.3f}"
    return f"{comparison}, so a filter of the query must have excluded it" if step.score > step.lowest else comparison
