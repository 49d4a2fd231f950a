"""A dataset in a folder as it was: a copy in a temporary folder, changed to what was there at a sequence number."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.store.history import History, PastRow, PastStore, T
from pointsman.store.local.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class LocalPastStore(PastStore):
    """The states of a dataset in a folder; the indexes of the copy follow its documents.

    Args:
        store: the dataset as it is.
        name: of the dataset, for messages.
        bm25: ``k1`` and ``b``.
    """

    def __init__(self, store: LocalStore, name: str, bm25: Mapping[str, float]) -> None:
        super().__init__(name)
        self._source, self._bm25 = store, dict(bm25)
        folder = tempfile.mkdtemp(prefix="pointsman-past-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = Path(folder) / "dataset"
        store.collection.save(self._folder)
        self._copy = self._open_copy()
        truth = self._copy.collection.truth
        self._note_state(truth.sequence(), truth.former_notes()[0])

    def _open_copy(self) -> LocalStore:
        return LocalStore(self._folder, {}, **self._bm25)

    @property
    def _store(self) -> LocalStore:
        return self._copy

    def _read(self, work: Callable[[History], T]) -> T:
        return work(self._source.collection.truth)

    def _become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        truth = self._copy.collection.truth
        embedder = truth.meta("embedder")
        with self._copy.collection.writer():
            truth.become(states, notes)
        if notes.get("embedder") != embedder:  # an open store takes it for fixed
            self._copy.close()
            self._copy = self._open_copy()
