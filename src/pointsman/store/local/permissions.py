"""Who may see each document of one dataset, in memory: a number per document, which names its permissions.

Distinct permissions are few, so a view asks each of them once, and looks up the answer for every document.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from pointsman.views import Permissions, View, permissions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.store.local.truth import Truth

_VIEWS: Final = 1000
"""Views whose documents are kept; each takes eight bytes for each of its documents."""


@dataclass(frozen=True, slots=True, eq=False)
class VisibleDocuments:
    """The documents that exist in a view; the same object as long as nothing about them has changed.

    Attributes:
        keys: their keys, ascending.
        stamps: by document, the sequence number of its last change.
        permissions: which permissions they have.
        state: equal for two views, or two moments, only if the documents are the same.
    """

    keys: NDArray[np.int64]
    stamps: NDArray[np.int64]
    permissions: frozenset[Permissions | None]
    state: str


class PermissionTable:
    """The permissions of the documents, as of the last transaction that was read.

    Args:
        truth: the documents.
    """

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._lock = threading.Lock()
        self._sequence = -1
        self._permissions: list[Permissions | None] = [None]
        self._numbers: dict[Permissions | None, int] = {None: 0}
        self._number_of = np.zeros(0, np.int32)  # by key; 0 also for keys without a document
        self._stamp_of = np.zeros(0, np.int64)
        self._views: OrderedDict[View, tuple[int, VisibleDocuments]] = OrderedDict()
        self._visible: OrderedDict[str, VisibleDocuments] = OrderedDict()  # by state, as many views share one

    def visible(self, view: View) -> VisibleDocuments:
        """Return the documents that exist in a view now.

        Raises:
            StoreError: the documents cannot be read.
        """
        with self._lock:
            self._catch_up()
            sequence, documents = self._views.get(view, (-1, None))
            if documents is None or sequence != self._sequence:
                documents = self._seen_in(view)
                self._views[view] = self._sequence, documents
            self._views.move_to_end(view)
            while len(self._views) > _VIEWS:
                self._views.popitem(last=False)
            return documents

    def _catch_up(self) -> None:
        """Read what was written since; a document's row is verified when it is read."""
        target = self._truth.sequence()
        if target == self._sequence:
            return
        for deleted_keys, rows in self._truth.permission_rows(max(self._sequence, 0)):
            keys = [key for key, _, _ in rows]
            self._grow(max([*keys, *deleted_keys], default=-1) + 1)
            self._number_of[deleted_keys] = 0
            self._number_of[keys] = [self._number(permissions_of(metadata)) for _, _, metadata in rows]
            self._stamp_of[keys] = [stamp for _, stamp, _ in rows]
        self._sequence = target

    def _grow(self, size: int) -> None:
        if size > len(self._number_of):
            room = max(size, len(self._number_of) * 3 // 2) - len(self._number_of)
            self._number_of = np.concatenate([self._number_of, np.zeros(room, np.int32)])
            self._stamp_of = np.concatenate([self._stamp_of, np.zeros(room, np.int64)])

    def _number(self, permissions: Permissions | None) -> int:
        number = self._numbers.get(permissions)
        if number is None:
            number = self._numbers[permissions] = len(self._permissions)
            self._permissions.append(permissions)
        return number

    def _seen_in(self, view: View) -> VisibleDocuments:
        admits = [entry is not None and entry.admit(view) for entry in self._permissions]
        keys = np.flatnonzero(np.array(admits)[self._number_of])
        stamps = self._stamp_of[keys]
        digest = xxhash.xxh3_128(keys.tobytes())
        digest.update(stamps.tobytes())
        state = digest.hexdigest()
        documents = self._visible.get(state)
        if documents is None:
            permissions = frozenset(self._permissions[number] for number in np.unique(self._number_of[keys]).tolist())
            documents = self._visible[state] = VisibleDocuments(keys, stamps, permissions, state)
        self._visible.move_to_end(state)
        while len(self._visible) > _VIEWS:
            self._visible.popitem(last=False)
        return documents
