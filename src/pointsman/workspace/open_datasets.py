"""Which datasets of a workspace are open: of too many, the least recently used are closed."""

from __future__ import annotations

import threading
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING

from pointsman.tools.system import file_descriptors

if TYPE_CHECKING:
    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset


class OpenDatasets:
    """Tracks which datasets are open: no more than `file_descriptors.most_open_datasets`, unless more are in use."""

    def __init__(self) -> None:
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

        If some remain, the next dataset that is opened tries again.
        """
        surplus = len(self._datasets) - file_descriptors.most_open_datasets()
        if surplus <= 0:
            return
        with self._lock:
            by_use = sorted(self._datasets, key=attrgetter("used"))
        for dataset in by_use[:-1]:  # never the one that has just been opened
            if surplus <= 0:
                break
            if dataset.close_unless_used():
                surplus -= 1
                with self._lock:
                    self._datasets.pop(dataset, None)
