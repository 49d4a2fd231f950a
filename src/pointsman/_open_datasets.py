"""Which datasets of a workspace are open: of too many, the least recently used are closed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pointsman._descriptors import descriptor_limit

if TYPE_CHECKING:
    from pointsman.dataset.lifecycle import StoredDataset

_LEAST: Final = 4  # so many may always be open
_SHARE: Final = 16  # descriptors for each: three to five stay open, and opening one needs more for a moment


def default_limit() -> int:
    """Return the number of datasets for which the process has file descriptors."""
    return max(_LEAST, descriptor_limit() // _SHARE)


class OpenDatasets:
    """Tracks which datasets are open, by their last use.

    Args:
        limit: returns how many may be open, at least four; one that is in use is never closed, so there may be more.
    """

    def __init__(self, limit: Callable[[], int] = default_limit) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._by_use: OrderedDict[StoredDataset, None] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        """Return the number of datasets that are open, as far as is known here."""
        return len(self._by_use)

    def used(self, dataset: StoredDataset) -> None:
        """Note that an open dataset is used."""
        with self._lock:
            if dataset in self._by_use:
                self._by_use.move_to_end(dataset)

    def opened(self, dataset: StoredDataset) -> None:
        """Note that a dataset has been opened; close the least recently used ones that are not in use."""
        with self._lock:
            self._by_use[dataset] = None
            self._by_use.move_to_end(dataset)
        self.close_surplus()

    @property
    def too_many(self) -> bool:
        """Whether some may have to be closed."""
        return len(self._by_use) > _LEAST

    def close_surplus(self) -> None:
        """Close the least recently used datasets above the limit, as far as nobody uses them.

        A search holds all of its datasets until it ends, so it is called again then.
        """
        if not self.too_many:
            return
        with self._lock:
            surplus = len(self._by_use) - self._limit()
            candidates = list(self._by_use)[:-1] if surplus > 0 else []  # never the one that has just been opened
        for dataset in candidates:
            if surplus <= 0:
                return
            if dataset.close_unless_used():
                surplus -= 1
                with self._lock:
                    self._by_use.pop(dataset, None)
