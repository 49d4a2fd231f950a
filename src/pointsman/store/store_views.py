"""What the views of all stores have in common: how a store of some documents describes itself."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from pointsman.store.base_store import Store
from pointsman.store.store_values import VERSIONS, WORDS_FIRST, Capability, Statistics, StoreInfo
from pointsman.values.filters import Exists, Or
from pointsman.values.types import Document
from pointsman.values.views import ACCESS, VALIDITY_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.values.views import View

_UNSUPPORTED_CAPABILITIES: Final = frozenset(
    {Capability.WRITE, Capability.LATER, Capability.CHANGES, Capability.RECORDS}
)
_SAYS_WHEN: Final = Or(tuple(map(Exists, VALIDITY_KEYS)))


class StoreView(Store):
    """The documents of a store that exist in a view, as a store to read.

    A subclass calls `measure_by` when it is made.
    """

    _store: Store
    _measure: Callable[[Store], Mapping[str, str]]
    _notes: Mapping[str, str] | None
    _measuring: threading.RLock

    def measure_by(self, store: Store, notes: Callable[[Store], Mapping[str, str]]) -> None:
        """Set what the view is of.

        Args:
            store: the store with all documents.
            notes: measures what `Statistics.notes` says of the documents; called once, when it is first needed.
        """
        self._store, self._measure, self._notes, self._measuring = store, notes, None, threading.RLock()

    @property
    @abstractmethod
    def state(self) -> str:
        """What the documents are; two stores with one state hold the same documents."""

    @abstractmethod
    def _document_count(self) -> int:
        """Return the number of documents."""

    @abstractmethod
    def _vector_count(self) -> int:
        """Return the number of documents with a vector."""

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        info = self._store.info
        has_vectors = self._vector_count() > 0
        return StoreInfo(
            info.kind,
            f"{info.identity} {self.state}",  # what is remembered of one state is not of another
            info.embedder if has_vectors else None,
            info.dimensions if has_vectors else None,
            info.scales,
            info.capabilities - _UNSUPPORTED_CAPABILITIES,
        )

    def _check_part(self, view: View) -> None:
        """Check that a view can be taken of this one: only of the documents that are valid on a day."""
        if view.principals is not None:
            raise self._cannot(Capability.VIEWS)

    def statistics(self) -> Statistics:
        """See `Store`; the sequence number never changes, as what is written makes another state."""
        store_statistics = self._store.statistics()
        store_notes = store_statistics.notes
        with self._measuring:
            if self._notes is None:
                self._notes = {}  # for what the measurement asks
                has_versions = VERSIONS in store_notes and self.count(_SAYS_WHEN) > 0
                self._notes = {**self._measure(self), **({VERSIONS: "1"} if has_versions else {})}
            documents = self._document_count()
        notes, due = dict(self._notes), 0
        if WORDS_FIRST in store_notes:
            notes[WORDS_FIRST] = "1"
            due = documents - self._vector_count()
        return Statistics(1, documents, notes, due, store_statistics.recorded_state)


def without_access(documents: Sequence[Document]) -> list[Document]:
    """Return documents without what they say about access."""
    return [
        Document(
            document.id, document.text, {name: value for name, value in document.metadata.items() if name != ACCESS}
        )
        for document in documents
    ]
