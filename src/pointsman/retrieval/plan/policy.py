"""The automatic choice: decides from a query and cheap evidence how much each list counts and what is added.

The base is the calibrated sum of words and vectors. Two things are decided for each query, by constants listed with
their origin in ``policy.json``:

- **Vectors count more if one of them stands out, and less if none does.** The *span* is how many σ the best cosine
  lies above chance; vectors count ``span / span_from`` times. If answers are one sentence long, or in another language
  than the question, the span is large, and words are the weaker evidence; if it is small, no vector is good.
- **Words in a script that the documents lack are left out** of keyword search: the few stray Chinese words of an
  English dataset would win every Chinese question.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Final, Literal, Self, get_args

from pointsman.retrieval.fusion import LISTS
from pointsman.tools.errors import InputError
from pointsman.values.reasons import Reason

EffortName = Literal["fast", "balanced", "thorough"]
EFFORTS: Final[tuple[EffortName, ...]] = get_args(EffortName)
"""The cost of ``auto``: only the lists; additions that gain at a few milliseconds; all additions that gain."""


@dataclass(frozen=True, slots=True)
class EffortLimits:
    """What ``auto`` may spend on a query beyond hybrid search, in place of a named effort.

    Attributes:
        milliseconds: for all additions together; None: no limit.

    Raises:
        InputError: a number is out of range.
    """

    milliseconds: float | None = None

    def __post_init__(self) -> None:
        if self.milliseconds is not None and not (
            isinstance(self.milliseconds, int | float) and self.milliseconds >= 0
        ):
            raise InputError(f"milliseconds of limits is a number from 0 up, or None, not {self.milliseconds!r:.80}")


POLICY: Final = "policy"
"""The kind of the policy's record in a workspace; in a folder, the file ``policy.json``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The constants of the automatic choice.

    Attributes:
        name: the policy's name.
        span_from: σ above chance from which vectors count more, and below which less: ``span / span_from`` times.
        span_least: the smallest such factor.
        span_most: the largest such factor.
        absent_script: the share of documents below which a script counts as absent.
        vector_weight: the overall weight of vectors, if fitted to labels; 1: as measured on public collections.
        strategy: a fixed strategy to use instead, if measured to be better; None: decide per query.
        confidence: the share of collections on which no single way of ranking was better by more than .005; it says
            how often the choice is right, and nothing about a single answer.
        additions: what can be added to a query, each with its measured mean gain and its cost in milliseconds.
        origin: where each number came from.

    Raises:
        InputError: a number is out of range, or a value has the wrong type.
    """

    name: str = "measured"
    span_from: float = 5.0
    span_least: float = 0.8
    span_most: float = 2.5
    absent_script: float = 0.05
    vector_weight: float = 1.0
    strategy: str | None = None
    confidence: float = 0.78
    additions: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    origin: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, minimum, maximum in (
            ("span_from", 1e-6, math.inf),
            ("span_least", 0.0, 1.0),
            ("span_most", 1.0, 100.0),
            ("absent_script", 0.0, 1.0),
            ("confidence", 0.0, 1.0),
            ("vector_weight", 0.0, 1000.0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not minimum <= value <= maximum:
                raise InputError(f"{name} of a policy is a number from {minimum:g} to {maximum:g}, not {value!r:.80}")
        if not isinstance(self.name, str):
            raise InputError(f"name of a policy is a string, not {self.name!r:.80}")
        if not isinstance(self.origin, Mapping) or not all(
            isinstance(text, str) for pair in self.origin.items() for text in pair
        ):
            raise InputError(f"origin of a policy is a mapping of names to strings, not {self.origin!r:.80}")
        if self.strategy is not None and not (isinstance(self.strategy, str) and self.strategy in LISTS):
            raise InputError(f"strategy of a policy is one of {', '.join(LISTS)}, or none, not {self.strategy!r:.80}")

    def weigh(self, span: float) -> tuple[dict[str, float], str]:
        """Return the weights of the lists, and the reason.

        Args:
            span: how many σ the best cosine lies above chance.
        """
        factor = min(max(span / self.span_from, self.span_least), self.span_most)
        weight = self.vector_weight * factor
        figures = {"weight": f"{weight:.2f}", "span": f"{span:.1f}"}
        if self.vector_weight == 1:
            return {"vector": weight}, Reason.of("weight", **figures)
        return {"vector": weight}, Reason.of("tuned_weight", **figures, factor=f"{self.vector_weight:g}")

    def to_json(self) -> str:
        """Return the policy as JSON for `from_json`."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a policy from JSON.

        Raises:
            InputError: it is not a policy, or a number is out of range.
        """
        try:
            return cls._read(text)
        except RecursionError:  # from parsing it, or from formatting an error about it
            raise InputError("a policy is a flat JSON object; this is nested too deeply") from None

    @classmethod
    def _read(cls, text: str) -> Self:
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InputError(f"a policy must be JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"a policy is a JSON object, not {type(values).__name__}")
        unknown_names = sorted(set(values) - {item.name for item in fields(cls)})
        if unknown_names:
            raise InputError(
                f"a policy has no {', '.join(map(repr, unknown_names))[:200]}; it has {', '.join(asdict(cls()))}"
            )
        return cls(**values)


@cache
def measured() -> Policy:
    """Return the policy shipped with Pointsman."""
    return Policy.from_json(resources.files("pointsman.retrieval.plan").joinpath("policy.json").read_text("utf-8"))


def read_policy(text: str, origin: str) -> Policy:
    """Read a stored policy.

    Raises:
        InputError: it is not a policy; the message says where it is stored.
    """
    try:
        return Policy.from_json(text)
    except InputError as error:
        raise InputError(f"{origin}: {error}; delete it, or fit it again with 'pointsman tune'") from None
