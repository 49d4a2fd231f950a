"""Time limits of tests, on machines that may be busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LIMITS: Final = (0.3, 3.0, 20.0)
"""Seconds: the first is plenty for a machine that is idle, the last for any."""


def holds_with_time(check: Callable[[float], None], *limits: float) -> None:
    """Run a check that gives what it checks a limit, which one part of it must reach and the rest must not.

    How long the rest takes depends on the machine, so the check is repeated with longer limits, `LIMITS` unless given.
    What is wrong is so with each of them, and the last error is raised.
    """
    *shorter, longest = limits or LIMITS
    for limit in shorter:
        try:
            check(limit)
        except Exception:  # noqa: BLE001  (of a machine that is too busy for this limit, or raised by the last)
            continue
        return
    check(longest)
