"""A search whose dataset others delete or recreate is run again, on the dataset that there is now."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from pointsman.tools.errors import ReplacedError, RetrievalError
from pointsman.tools.network.retries import Retries

if TYPE_CHECKING:
    from pointsman.retrieval.request import SearchRequest

PATIENCE: Final = 5.0
"""Seconds for which a search without a time limit is repeated."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.1


class Attempts:
    """The further attempts at a search that has failed, within its time limit.

    Args:
        request: the search.
        usual: the time limit of requests without one of their own; None for none.
        start: when the first attempt began, by ``monotonic``.

    Attributes:
        request: what the next attempt is to search for, in the time that is left.
        pause: seconds to wait before it.
    """

    def __init__(self, request: SearchRequest, usual: float | None, start: float) -> None:
        self.request, self.pause = request, 0.0
        self._limit = usual if request.timeout is None else request.timeout
        self._end = start + (PATIENCE if self._limit is None else self._limit)
        self._retries = Retries(self._end, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)

    def another(self, error: Exception) -> bool:
        """Whether to search again: every cause of the failure is a dataset that was replaced, and time is left."""
        causes = error.causes.values() if isinstance(error, RetrievalError) else (error,)
        if not all(isinstance(cause, ReplacedError) for cause in causes):
            return False
        pause = self._retries.pause()
        if pause is None:
            return False
        self.pause = pause
        if self._limit is not None:
            self.request = replace(self.request, timeout=max(self._end - monotonic() - pause, 0.001))
        return True
