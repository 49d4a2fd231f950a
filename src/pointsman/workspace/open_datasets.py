"""Which datasets of a workspace are open: of too many, the least recently used are closed."""

from __future__ import annotations

import threading
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Final

from pointsman.tools.system.file_descriptors import descriptor_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset

_ALWAYS_OPEN: Final = 4  # so many may always be open
_SHARE: Final = 16  # descriptors for each: three to five stay open, and opening one needs more for a moment


def default_limit() -> int:
    """Return the number of datasets for which the process has file descriptors."""
    return max(_ALWAYS_OPEN, descriptor_limit() // _SHARE)


class OpenDatasets:
    """Tracks which datasets are open.

    Args:
        limit: returns how many may be open, at least four; one that is in use is never closed, so there may be more.

    Attributes:
        surplus: whether more than the limit were open when last counted, as a search holds all of its datasets.
    """

    def __init__(self, limit: Callable[[], int] = default_limit) -> None:
        self.surplus = False
        self._limit = limit
        self._lock = threading.Lock()
        self._datasets: dict[StoredDataset, None] = {}

    def __len__(self) -> int:
        """Return the number of datasets that are open, as far as is known here."""
        return len(self._datasets)

    def opened(self, dataset: StoredDataset) -> None:
        """Note that a dataset has been opened; close the least recently used ones that are not in use."""
        dataset.used = monotonic()
        with self._lock:
            self._datasets[dataset] = None
        self.close_surplus()

    def close_surplus(self) -> None:
        """Close the least recently used datasets above the limit, as far as nobody uses them.

        If some remain, the search that uses them calls this again when it ends.
        """
        if len(self._datasets) <= _ALWAYS_OPEN:
            self.surplus = False
            return
        with self._lock:
            surplus = len(self._datasets) - self._limit()
            by_use = sorted(self._datasets, key=attrgetter("used"))
        for dataset in by_use[:-1]:  # never the one that has just been opened
            if surplus <= 0:
                break
            if dataset.close_unless_used():
                surplus -= 1
                with self._lock:
                    self._datasets.pop(dataset, None)
        self.surplus = surplus > 0
