"""Who may see each document of one dataset, and when it is valid, in memory: a number per document, which names both.

Distinct permissions and times are few, so a view asks each of them once, and looks up the answer for every document.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from pointsman.tools.byte_cache import ByteCache
from pointsman.values.views import ALWAYS, Permissions, Validity, View, permissions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pointsman.store.local.truth.truth_rows import Truth

Signature = tuple[Permissions | None, Validity]
"""What a document says of access and time."""

_NOTHING_SAID: Final[Signature] = (None, ALWAYS)
_PRINCIPAL: Final = 150
"""Bytes that the name of a principal may take in a view that is kept."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class VisibleDocuments:
    """The documents that exist in a view; the same object as long as nothing about them has changed.

    Attributes:
        keys: their keys, ascending.
        stamp_of: by key, the sequence number of its last change; all views of a moment share it.
        permissions: which permissions they have.
        state: equal for two views, or two moments, only if the documents are the same.
    """

    keys: NDArray[np.int64]
    stamp_of: NDArray[np.int64]
    permissions: frozenset[Permissions | None]
    state: str

    @classmethod
    def of(
        cls, keys: NDArray[np.int64], stamp_of: NDArray[np.int64], permissions: frozenset[Permissions | None]
    ) -> VisibleDocuments:
        """Return these documents with their state."""
        digest = xxhash.xxh3_128(keys.tobytes())
        digest.update(stamp_of[keys].tobytes())
        return cls(keys, stamp_of, permissions, digest.hexdigest())

    @property
    def stamps(self) -> NDArray[np.int64]:
        """By document, the sequence number of its last change."""
        return self.stamp_of[self.keys]

    @property
    def nbytes(self) -> int:
        """Bytes that these documents take, without what views share."""
        return self.keys.nbytes

    def among(self, visible_documents: VisibleDocuments) -> VisibleDocuments:
        """Return the documents that are also among others."""
        mask = np.isin(self.keys, visible_documents.keys)
        return self if mask.all() else VisibleDocuments.of(self.keys[mask], self.stamp_of, self.permissions)


class PermissionTable:
    """The permissions of the documents, as of the last transaction that was read.

    Args:
        truth: the documents.
    """

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._lock = threading.Lock()
        self._sequence = -1
        self._signatures: list[Signature] = [_NOTHING_SAID]
        self._numbers: dict[Signature, int] = {_NOTHING_SAID: 0}
        self._exists = np.zeros(0, np.bool_)  # by key
        self._number_of = np.zeros(0, np.int32)  # by key; 0 also for keys without a document
        self._stamp_of = np.zeros(0, np.int64)
        self._views: ByteCache[View, tuple[int, VisibleDocuments, int]] = ByteCache(
            lambda entry: entry[1].nbytes + entry[2] * _PRINCIPAL
        )
        # By state, as many views share one.
        self._visible: weakref.WeakValueDictionary[str, VisibleDocuments] = weakref.WeakValueDictionary()

    def visible(self, view: View) -> VisibleDocuments:
        """Return the documents that exist in a view now.

        Raises:
            StoreError: the documents cannot be read.
        """
        with self._lock:
            self._catch_up()
            entry = self._views.get(view)
            if entry is None or entry[0] != self._sequence:
                entry = self._sequence, self._seen_in(view), len(view.principals or ())
                self._views[view] = entry
            return entry[1]

    def numbers(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return a number for each of these documents, the same for those that say the same of access and time."""
        with self._lock:
            self._grow(int(keys.max(initial=-1)) + 1)
            return self._number_of[keys]

    def _catch_up(self) -> None:
        """Read what was written since; a document's row is verified when it is read."""
        target = self._truth.sequence()
        if target == self._sequence:
            return
        self._stamp_of = self._stamp_of.copy()  # views keep the former one
        for deleted_keys, rows in self._truth.permission_rows(max(self._sequence, 0)):
            keys = [key for key, _, _ in rows]
            self._grow(max([*keys, *deleted_keys], default=-1) + 1)
            self._exists[deleted_keys] = False
            self._exists[keys] = True
            self._number_of[keys] = [self._number(metadata) for _, _, metadata in rows]
            self._stamp_of[keys] = [stamp for _, stamp, _ in rows]
        self._sequence = target

    def _grow(self, size: int) -> None:
        if size > len(self._number_of):
            room = max(size, len(self._number_of) * 3 // 2) - len(self._number_of)
            self._exists = np.concatenate([self._exists, np.zeros(room, np.bool_)])
            self._number_of = np.concatenate([self._number_of, np.zeros(room, np.int32)])
            self._stamp_of = np.concatenate([self._stamp_of, np.zeros(room, np.int64)])

    def _number(self, metadata: Mapping[str, Any]) -> int:
        signature = permissions_of(metadata), Validity.of(metadata)
        number = self._numbers.get(signature)
        if number is None:
            number = self._numbers[signature] = len(self._signatures)
            self._signatures.append(signature)
        return number

    def _seen_in(self, view: View) -> VisibleDocuments:
        admits = np.array([view.admits_what(*signature) for signature in self._signatures])
        keys = np.flatnonzero(admits[self._number_of] & self._exists)
        permissions = frozenset(self._signatures[number][0] for number in np.unique(self._number_of[keys]).tolist())
        documents = VisibleDocuments.of(keys, self._stamp_of, permissions)
        return self._visible.setdefault(documents.state, documents)
