"""What stores that keep versions have in common: what is held of the past, and the way back to a state of it.

Each store keeps rows that were replaced or deleted beside its documents, in the transactions that replace and delete. A
row says from which write on it was there (``seq``) and which one ended it (``until``); so a state is named by the
sequence number of a write, which all programs that use the dataset agree on, and by a digest of its notes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import xxhash

from pointsman.tools.errors import NotHeldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pointsman.store.base_store import Store

T = TypeVar("T")

DAY_SECONDS: Final = 86_400
PURGED_TOGETHER: Final = 1000
"""Kept rows that have expired, of each kind, which one write deletes at most."""


class PastRow(NamedTuple):
    """A document as it was: the columns of its row, and its vector as stored, None without one."""

    id: str
    text: str
    metadata: str
    digest: bytes
    seq: int
    key: int
    vector: bytes | None


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """What a dataset keeps of its former versions.

    Attributes:
        days: for how many days.
        first_sequence: the first sequence number of which everything is kept.
    """

    days: int
    first_sequence: int


class History(Protocol):
    """What a dataset keeps of its former versions, to read."""

    def kept_versions(self) -> KeptVersions | None:
        """Return what is kept of former versions; None in a dataset that keeps none."""
        ...

    def sequence(self) -> int:
        """Return the number of the last write."""
        ...

    def moment(self, seq: int) -> float | None:
        """Return when a write was committed, in seconds since 1970; None if that is not known."""
        ...

    def states(self, first: int, second: int) -> list[tuple[int, PastRow | None]]:
        """Return, by key, the documents at the second of two sequence numbers of which the states may differ.

        None for a key without a document at that time.
        """
        ...

    def former_notes(self) -> list[dict[str, str]]:
        """Return the notes as they are, then as they were before each change of one, latest first."""
        ...


def digest_of(notes: Mapping[str, str]) -> str:
    """Return a digest of notes, which names a state of them."""
    return xxhash.xxh3_64_hexdigest("\n".join(f"{name}\t{notes[name]}" for name in sorted(notes)).encode())


def notes_before(current: Mapping[str, str], changes: Iterable[tuple[str, str | None]]) -> Iterator[dict[str, str]]:
    """Yield notes as they are, then as they were before each change.

    Args:
        current: the notes.
        changes: a name and its former value, None if there was none; latest first.
    """
    notes = dict(current)
    yield dict(notes)
    for name, value in changes:
        if value is None:
            notes.pop(name, None)
        else:
            notes[name] = value
        yield dict(notes)


class PastStore(ABC):
    """The states of a dataset that keeps versions, one at a time.

    It has a copy of the dataset with the same keys, which a subclass changes to what was there at a sequence number: so
    an answer from it is computed as the first one was, by the same code. To go to another sequence number, only the
    documents are written that differ.

    Args:
        name: of the dataset, for messages.
    """

    close: Callable[[], object]
    """Deletes the copy; so does the end of the program."""
    _copy: Store

    def __init__(self, name: str) -> None:
        self._name = name
        self._sequence, self._notes = -1, ""

    @abstractmethod
    def _read(self, work: Callable[[History], T]) -> T:
        """Call ``work`` with the history of the dataset."""

    @abstractmethod
    def _become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        """Make some keys of the copy have these documents, or none, and the copy these notes only."""

    def _note_state(self, sequence: int, notes: Mapping[str, str]) -> None:
        """Note what the copy is of."""
        self._sequence, self._notes = sequence, digest_of(notes)

    def at(self, sequence: int, notes: str) -> Store:
        """Return the dataset as it was after a write, with the notes of a digest; the next call changes it.

        Raises:
            NotHeldError: that is no longer held.
            CorruptStoreError: what was kept is damaged.
        """
        if (sequence, notes) != (self._sequence, self._notes):
            states, former_notes = self._read(lambda history: self._way_to(sequence, notes, history))
            self._become(states, former_notes)
            self._note_state(sequence, former_notes)
        return self._copy

    def _way_to(
        self, sequence: int, notes: str, history: History
    ) -> tuple[list[tuple[int, PastRow | None]], dict[str, str]]:
        """Return the documents that differ between the state of the copy and another one, and the notes of that."""
        retention, last = history.kept_versions(), history.sequence()
        if retention is None:
            raise NotHeldError([f"dataset {self._name!r} keeps no versions any more"])
        if sequence < retention.first_sequence:
            moment = history.moment(retention.first_sequence)
            day = "" if moment is None else f" of {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
            reason = f"keeps versions for {retention.days} days, from write {retention.first_sequence}{day} on"
            raise NotHeldError([f"dataset {self._name!r} {reason}, and the answer is from write {sequence}"])
        if sequence > last:
            reason = f"is at write {last}; it was probably restored from a backup of before"
            raise NotHeldError([f"dataset {self._name!r} {reason}, and the answer is from write {sequence}"])
        former_notes = next((values for values in history.former_notes() if digest_of(values) == notes), None)
        if former_notes is None:
            raise NotHeldError([f"what dataset {self._name!r} had measured of its documents at write {sequence}"])
        return history.states(self._sequence, sequence), former_notes
