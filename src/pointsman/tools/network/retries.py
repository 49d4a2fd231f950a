"""Trying again: whether to, and after what pause.

Neither ``tenacity`` nor ``stamina`` is used: both own the loop, and what asks here is synchronous, asynchronous, or a
generator; a pause that a server asks for within a deadline that is shared with the attempts is then a wait and a stop
of one's own, as long as this.
"""

from __future__ import annotations

import random
import time


class Retries:
    """The further attempts at something that may succeed later.

    Pauses double and are jittered, so that clients that failed together do not come back together.

    Args:
        end: when to give up, by ``time.monotonic``; no pause goes beyond it.
        first: seconds before the second attempt.
        longest: seconds of the longest pause; a server that asks for a longer one is not asked again.
        most: how many attempts there are after the first; None for no limit.

    Attributes:
        start: when the first attempt began, by ``time.monotonic``.
        attempt: the number of the attempt that is under way, from 1.

    Example:
        >>> retries = Retries(time.monotonic() + 60, first=0.1, longest=1.0, most=1)
        >>> retries.pause(asked=0.5), retries.pause()
        (0.5, None)
    """

    def __init__(self, end: float, *, first: float, longest: float, most: int | None = None) -> None:
        self._end, self._first, self._longest, self._most = end, first, longest, most
        self.start, self.attempt = time.monotonic(), 1

    def pause(self, asked: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is to be none.

        Args:
            asked: seconds that the server asks to wait, such as in ``Retry-After``.
        """
        growing_pause = min(self._first * 2.0 ** min(self.attempt - 1, 30), self._longest)
        pause = growing_pause * random.uniform(0.5, 1) if asked is None else asked  # noqa: S311  (jitter, not cryptography)
        if self._most is not None and self.attempt > self._most:
            return None
        if pause > self._longest or pause >= self._end - time.monotonic():
            return None
        self.attempt += 1
        return pause
