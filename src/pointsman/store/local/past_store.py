"""A dataset in a folder as it was: a copy in a temporary folder, changed to what was there at a sequence number.

The copy is an ordinary dataset with the same keys, so an answer from it is computed as the first one was, by the same
code. To go to another sequence number, only the documents are written that differ, and its indexes follow.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.errors import NotHeldError
from pointsman.store.local.store import LocalStore, digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class PastStore:
    """The states of a dataset that keeps versions, one at a time.

    Args:
        store: the dataset as it is.
        name: of the dataset, for messages.
        bm25: ``k1`` and ``b``.
    """

    def __init__(self, store: LocalStore, name: str, bm25: Mapping[str, float]) -> None:
        self._source, self._name, self._bm25 = store, name, dict(bm25)
        folder = tempfile.mkdtemp(prefix="pointsman-past-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        """Deletes the copy; so does the end of the program."""
        self._folder = Path(folder) / "dataset"
        store.collection.save(self._folder)
        self._store = self._open_copy()
        self._sequence = self._store.collection.truth.sequence()
        self._notes = digest_of(self._store.collection.truth.former_notes()[0])

    def _open_copy(self) -> LocalStore:
        return LocalStore(self._folder, {}, **self._bm25)

    def at(self, sequence: int, notes: str) -> LocalStore:
        """Return the dataset as it was after a write, with the notes of a digest; the next call changes it.

        Raises:
            NotHeldError: that is no longer held.
            CorruptStoreError: what was kept is damaged.
        """
        if (sequence, notes) == (self._sequence, self._notes):
            return self._store
        truth = self._source.collection.truth
        retention, last = truth.kept_versions(), truth.sequence()
        if retention is None:
            raise NotHeldError([f"dataset {self._name!r} keeps no versions any more"])
        if sequence < retention.first_sequence:
            moment = truth.moment(retention.first_sequence)
            day = "" if moment is None else f" of {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
            reason = f"keeps versions for {retention.days} days, from write {retention.first_sequence}{day} on"
            raise NotHeldError([f"dataset {self._name!r} {reason}, and the answer is from write {sequence}"])
        if sequence > last:
            reason = f"is at write {last}; it was probably restored from a backup of before"
            raise NotHeldError([f"dataset {self._name!r} {reason}, and the answer is from write {sequence}"])
        former_notes = next((values for values in truth.former_notes() if digest_of(values) == notes), None)
        if former_notes is None:
            raise NotHeldError([f"what dataset {self._name!r} had measured of its documents at write {sequence}"])
        states = truth.states(self._sequence, sequence)
        copied_truth = self._store.collection.truth
        embedder = copied_truth.meta("embedder")
        with self._store.collection.writer():
            copied_truth.become(states, former_notes)
        self._sequence, self._notes = sequence, notes
        if former_notes.get("embedder") != embedder:  # an open store takes it for fixed
            self._store.close()
            self._store = self._open_copy()
        return self._store
