"""Until when something may take."""

from __future__ import annotations

from time import monotonic
from typing import Self


class TimeLimit(float):
    """A time limit that counts from when it is made; as a number, the seconds that there were then.

    >>> 1.9 < TimeLimit(2.0).left(TimeoutError) <= 2.0
    True
    """

    end: float

    def __new__(cls, seconds: float) -> Self:
        """Set the end to so many seconds from now."""
        deadline = super().__new__(cls, seconds)
        deadline.end = monotonic() + seconds
        return deadline

    def left(self, late: type[Exception]) -> float:
        """Return the seconds until the end.

        Raises:
            Exception: it has passed; the class is ``late``.
        """
        seconds = self.end - monotonic()
        if seconds <= 0:
            raise late(f"not done within {float(self):.3g} s")
        return seconds

    def extend(self, seconds: float) -> None:
        """Move the end to so many seconds from now."""
        self.end = monotonic() + seconds
