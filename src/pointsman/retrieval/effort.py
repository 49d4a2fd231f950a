"""Limits on the cost of the automatic choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from pointsman.errors import InputError

EffortName = Literal["fast", "balanced", "thorough"]
EFFORTS: Final[tuple[EffortName, ...]] = get_args(EffortName)
"""The cost of ``auto``: only the lists; additions that gain at a few milliseconds; all additions that gain."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What ``auto`` may spend on a query beyond hybrid search, in place of a named effort.

    Attributes:
        milliseconds: for all additions together; None: no limit.
        llm_calls: the maximum number of language model calls. No gain from them has been measured yet, so ``auto``
            makes none, whatever is allowed.

    Raises:
        InputError: a number is out of range.
    """

    milliseconds: float | None = None
    llm_calls: int = 0

    def __post_init__(self) -> None:
        if self.milliseconds is not None and not (
            isinstance(self.milliseconds, int | float) and self.milliseconds >= 0
        ):
            raise InputError(f"milliseconds of limits is a number from 0 up, or None, not {self.milliseconds!r:.80}")
        if not isinstance(self.llm_calls, int) or self.llm_calls < 0:
            raise InputError(f"llm_calls of limits is an int from 0 up, not {self.llm_calls!r:.80}")
