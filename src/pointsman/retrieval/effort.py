"""How much the automatic choice may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pointsman.errors import InputError, UnknownNameError

EffortName = Literal["fast", "balanced", "thorough"]
EFFORTS: Final[tuple[EffortName, ...]] = get_args(EffortName)
"""How much ``auto`` may cost: the lists alone; what gains at a few milliseconds; everything that gains."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What ``auto`` may spend on a query beyond hybrid search, in place of a named effort.

    Attributes:
        milliseconds: for everything it would add; None: no limit.
        llm_calls: how often it may ask a language model. No gain of asking one has been measured yet, so ``auto`` asks
            none, whatever is allowed.

    Raises:
        InputError: a number is out of range.
    """

    milliseconds: float | None = None
    llm_calls: int = 0

    def __post_init__(self) -> None:
        if self.milliseconds is not None and not self.milliseconds >= 0:
            raise InputError(f"milliseconds of limits is a number from 0 up, or None, not {self.milliseconds!r:.80}")
        if not isinstance(self.llm_calls, int) or self.llm_calls < 0:
            raise InputError(f"llm_calls of limits is an int from 0 up, not {self.llm_calls!r:.80}")


def check_effort(effort: Any) -> None:
    """Checks that an effort with this name exists.

    Raises:
        UnknownNameError: there is none.
    """
    if not isinstance(effort, Limits) and effort not in EFFORTS:
        raise UnknownNameError("effort", str(effort), EFFORTS)
