"""Receipts: short texts that say what an answer was made of, so that it can be made again.

A receipt names the question, the options, the state of each dataset, the settings, the policy, the calibrations, the
day, the program's version, and a digest of the answer. It is sealed with a key of a dataset that it names, so only
receipts that were issued are replayed. `Workspace.replay` answers again, and compares the digests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman.retrieval.plan.policy import EffortLimits
from pointsman.retrieval.plan.vocabulary import UNREAD
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.request import SearchRequest
from pointsman.tools.errors import InputError
from pointsman.tools.version import __version__
from pointsman.values.settings import REACHING, Settings
from pointsman.values.types import Query
from pointsman.values.wire import hits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pointsman.retrieval.judge.kept_calibrations import Calibration
    from pointsman.retrieval.plan.policy import Policy
    from pointsman.retrieval.run.reading import Reading
    from pointsman.values.retrieval_context import RetrievalContext

_PREFIX: Final = "r1"
_SEAL_BYTES: Final = 12
_DIGEST_BYTES: Final = 12
_LONGEST: Final = 200_000
_DECIDING_ENDINGS: Final = frozenset({".py", ".json", ".toml", ".tsv", ".txt"})
_OUTSIDE: Final = frozenset({"trace", "milliseconds", "receipt"})
"""Members of an answer that differ each time."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of something that was searched.

    Attributes:
        name: its name.
        identity: of the dataset; empty for what is none.
        sequence: the number of its last write; -1 if it is not known.
        notes: a digest of its notes.
        words: the number of the last write that its words for spelling were of, if that was an earlier one; -1 if they
            were still being read.
    """

    name: str
    identity: str = ""
    sequence: int = -1
    notes: str = ""
    words: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an answer was made of.

    Attributes:
        version: of the program, with its build: `version_with_build`.
        time: when, in seconds since 1970.
        day: the day on which documents had to be valid, unless the options say another.
        question: the text, and filters and history if there were any.
        options: those that were not the default.
        objects: options and stages that were objects in Python, which no text can hold.
        settings: those that were not the default.
        reaching: a digest of the settings that name models and places; what they are stays out.
        policy: a digest of the policy.
        fitted: a digest of the calibrations fitted to the datasets.
        lacking: by dataset that had none, why, in the words of the plan; empty where one was not used, as in a view.
        sources: the states of what was searched.
        answer: a digest of the answer.
    """

    version: str
    time: int
    day: str
    question: Mapping[str, Any]
    options: Mapping[str, Any]
    objects: tuple[str, ...]
    settings: Mapping[str, Any]
    reaching: str
    policy: str
    fitted: str
    sources: tuple[SourceState, ...]
    answer: str
    lacking: Mapping[str, str] = field(default_factory=dict)

    def seal(self, key: bytes) -> str:
        """Return the receipt as a text, sealed with a dataset's key."""
        content = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
        body = f"{_PREFIX}.{_base64(zlib.compress(content, 9))}"
        return f"{body}.{_seal_of(body, key)}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a receipt; `check_seal` says whether it was issued.

        Raises:
            InputError: it is none, or its text is incomplete.
        """
        try:
            if not isinstance(text, str) or len(text) > _LONGEST:
                raise ValueError("it is no short text")
            prefix, body, _ = text.strip().split(".")
            if prefix != _PREFIX:
                raise ValueError(f"it does not begin with {_PREFIX}")
            decompressor = zlib.decompressobj()
            content = decompressor.decompress(_bytes_of(body), 10 * _LONGEST)
            if not decompressor.eof:
                raise ValueError("it is incomplete")
            form = json.loads(content)
            form["sources"] = tuple(SourceState(**state) for state in form["sources"])
            form["objects"] = tuple(form["objects"])
            return cls(**form)
        except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
            raise InputError(f"this is not a receipt: {text!r:.80} ({error!s:.80}); copy it whole") from None

    def request(self) -> SearchRequest:
        """Return the search that was answered.

        Raises:
            InputError: this version has no such option.
        """
        options = dict(self.options)
        if isinstance(effort := options.get("effort"), dict):
            options["effort"] = EffortLimits(**effort)
        query = Query(self.question["text"], self.question.get("filters"), tuple(self.question.get("history", ())))
        return SearchRequest.of(query, options.pop("k", 5), options)


def check_seal(text: str, key: bytes) -> bool:
    """Whether a receipt was sealed with a key."""
    body, _, seal = text.strip().rpartition(".")
    return hmac.compare_digest(seal.encode(), _seal_of(body, key).encode())


def issue(
    context: RetrievalContext,
    request: SearchRequest,
    readings: Mapping[str, Reading],
    *,
    settings: Settings,
    policy: Policy | None,
    fitted: Mapping[str, Calibration],
    objects: Sequence[str],
) -> str:
    """Return the receipt of an answer; empty if none of the datasets that were read keeps versions.

    Args:
        context: the answer.
        request: its options; the question is that of the answer.
        readings: what was read, by name.
        settings: of the engine.
        policy: what ``auto`` decided by.
        fitted: by dataset, what was fitted to it.
        objects: stages that were objects in Python.
    """
    key = next((state.key for reading in readings.values() if (state := reading.recorded_state) is not None), None)
    if key is None:
        return ""
    from pointsman.retrieval.judge.versions import today

    lacking = _lacking(fitted, readings)
    asked = context.asked or context.query
    options, request_objects = _options(request)
    question: dict[str, Any] = {"text": asked.text}
    if asked.filters is not None:
        question["filters"] = str(asked.filters)
    if asked.history:
        question["history"] = [asdict(message) for message in asked.history]
    return Receipt(
        version=version_with_build(),
        time=int(time()),
        day=today(),
        question=question,
        options=options,
        objects=(*request_objects, *objects),
        settings=_changed_settings(settings),
        reaching=digest_of_reaching(settings),
        policy=digest_of_policy(policy),
        fitted=digest_of_fitted(fitted, [name for name in readings if name not in lacking]),
        sources=tuple(_state(name, reading) for name, reading in readings.items()),
        answer=digest_of_answer(context),
        lacking=lacking,
    ).seal(key)


def digest_of_answer(context: RetrievalContext) -> str:
    """Return a digest of all of an answer but its times and its receipt."""
    form = {name: value for name, value in context.to_dict().items() if name not in _OUTSIDE}
    for hit in hits_of(form):
        del hit["odds"]  # a word for the relevance, which receipts of earlier versions did not have
    return _digest(json.dumps(form, ensure_ascii=False, sort_keys=True))


@cache
def version_with_build(package: Path = Path(__file__).parents[1]) -> str:
    """Return the version and a digest of code, prompts, words and fitted numbers: releases are not all that differ."""
    files = sorted(path for path in package.rglob("*.*") if path.suffix in _DECIDING_ENDINGS)
    contents = [(path.relative_to(package).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    return f"{__version__}+{_digest(json.dumps(contents))}"


def digest_of_policy(policy: Policy | None) -> str:
    """Return a digest of what ``auto`` decides by; empty without a policy."""
    return "" if policy is None else _digest(policy.to_json())


def digest_of_fitted(fitted: Mapping[str, Calibration], names: Iterable[str]) -> str:
    """Return a digest of the calibrations that were fitted to some datasets; empty if there are none."""
    of_names = {name: asdict(fitted[name]) for name in sorted(names) if name in fitted}
    return _digest(json.dumps(of_names, default=str, sort_keys=True)) if of_names else ""


def digest_of_reaching(settings: Settings) -> str:
    """Return a digest of the settings that name models and places, and differ from the default; empty if none do."""
    values = {name: str(getattr(settings, name)) for name in sorted(REACHING) if settings.origins[name] != "default"}
    values.pop("workspace", None)
    return _digest(json.dumps(values)) if values else ""


def _changed_settings(settings: Settings) -> dict[str, Any]:
    default = Settings()
    return {
        item.name: value
        for item in fields(Settings)
        if item.name not in REACHING and (value := getattr(settings, item.name)) != getattr(default, item.name)
    }


def _options(request: SearchRequest) -> tuple[dict[str, Any], list[str]]:
    """Return the options that are not the default, and the names of those that no text can hold."""
    options: dict[str, Any] = {}
    objects: list[str] = []
    for item in fields(SearchRequest):
        if item.name == "queries" or (value := getattr(request, item.name)) == item.default:
            continue
        if isinstance(value, BaseRefiner):
            objects.append(item.name)
        else:
            options[item.name] = asdict(value) if isinstance(value, EffortLimits) else value
    return options, objects


def _lacking(fitted: Mapping[str, Calibration], readings: Mapping[str, Reading]) -> dict[str, str]:
    """Return `Receipt.lacking`. What is said of all documents is not said in a view, whose receipt anyone can read."""
    from pointsman.retrieval.judge.kept_calibrations import Calibration

    calibrations = {
        name: Calibration("") if getattr(reading.source, "is_view", False) else fitted[name]
        for name, reading in readings.items()
        if name in fitted
    }
    return {name: fit.origin for name, fit in calibrations.items() if fit == Calibration(fit.origin)}


def _state(name: str, reading: Reading) -> SourceState:
    info, statistics = reading.info, reading.statistics
    identity = "" if info is None else info.identity.partition(" ")[0]
    if (state := reading.recorded_state) is not None:
        return SourceState(name, identity, state.sequence, state.notes, _words(reading, state.sequence))
    sequence = -1 if statistics is None else statistics.sequence
    return SourceState(name, identity, sequence, words=_words(reading, sequence))


def _words(reading: Reading, sequence: int) -> int | None:
    """Return `SourceState.words`; those of a view are always of its own state, or still being read."""
    words_sequence = reading.words_sequence
    if words_sequence == sequence or (getattr(reading.source, "is_view", False) and words_sequence != UNREAD):
        return None
    return words_sequence


def _digest(text: str) -> str:
    return _base64(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES])


def _seal_of(body: str, key: bytes) -> str:
    return _base64(hmac.digest(key, body.encode(), "sha256")[:_SEAL_BYTES])


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes_of(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
