"""The metadata columns of a dataset that follow its documents: from a file, brought up to date by the log."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.local.arrays_file import ArraysFile, check_arrays
from pointsman.store.local.columns.metadata_columns import Columns, Table
from pointsman.values.filters import Equals, In
from pointsman.values.metadata import ID, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.columns.column import Condition
    from pointsman.store.local.truth.document_changes import DocumentChange
    from pointsman.store.local.truth.truth_rows import Truth

log = logging.getLogger(__name__)

COLUMNS: Final = "columns.bin"
_COLUMNS_AGAIN = 10_000  # fewer changed documents than this are never worth a new file of columns


class FollowedColumns(Columns):
    """The filterable metadata of the documents of a truth.

    Args:
        path: of the file; only the writer of the dataset writes it.
        truth: the documents.

    Attributes:
        file: of the columns, so that no metadata is read again when they are opened; one that is ahead of the documents
            is not used.
        sequence: the last transaction that they reflect; -1 while they are not loaded.
    """

    def __init__(self, path: Path, truth: Truth) -> None:
        super().__init__(self._read_all, self._matching_keys, self._read_file)
        self._truth = truth
        self.file = ArraysFile(path, b"PMCOLUMN", 2, truth.identity)  # with 1, texts were not in NFC
        self.sequence = -1
        self._unusable = False  # the file was damaged, or belongs to another state
        self._change_count = (-1, -1, 0)  # at most how many documents have changed from one transaction to another

    def forget(self) -> None:
        """See `Columns`."""
        super().forget()
        self.sequence = -1

    def follow(self, target: int) -> None:
        """Apply what the documents' log has up to a transaction, if they are loaded."""
        if self.loaded and self.sequence != target:  # otherwise another thread is loading them
            for batch in self._truth.changes(self.sequence, texts=False):
                self.use(partial(_apply_changes, batch=batch))
            self.sequence = target

    def save(self, *, at_end: bool = False) -> None:
        """As the writer, write the file if many documents have changed since; else the log is enough.

        Args:
            at_end: of a write, after which searches read it; while it goes on, more may change first.
        """
        saved = {} if self._unusable else self.file.numbers()
        limit = _COLUMNS_AGAIN if at_end else 5 * _COLUMNS_AGAIN
        threshold = min(max(_COLUMNS_AGAIN, saved.get("rows", 0) // 2), limit)
        if self._fewer_have_changed(saved.get("seq", 0), threshold):
            return
        try:
            self.use(self._write)
            self._unusable = False
        except OSError as error:
            log.warning("%s cannot be written now (%s); metadata is read from the documents", self.file.path, error)

    def _write(self, table: Table) -> None:
        descriptions, arrays = table.to_arrays()
        self.file.write(self.sequence, arrays, rows=table.size, table=descriptions)

    def damage(self) -> str | None:
        """Return what is wrong with the file, which is then written anew; None if nothing is, or if there is none."""
        try:
            check_arrays(self.file.path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._unusable = True
            return str(error)
        return None

    def _fewer_have_changed(self, seq: int, limit: int) -> bool:
        """Whether fewer documents than this have changed since; if possible, only those since the last call count anew.

        To count tens of thousands takes as long as all else that SQLite does for a document that is added.
        """
        first_seq, last_seq, count = self._change_count
        target = self._truth.sequence()
        is_continued = first_seq == seq and last_seq <= target
        count = count + self._truth.changed_since(last_seq, limit) if is_continued else limit
        if count >= limit:  # a document that has changed twice may have been counted twice
            count = self._truth.changed_since(seq, limit)
        is_below = count < limit
        self._change_count = (seq, target, count) if is_below else (-1, -1, 0)  # counting stops at the limit
        return is_below

    def _read_file(self) -> Table | None:
        """Return the saved columns with all later changes; None if there are none of use."""
        target = self._truth.sequence()
        try:
            header, arrays = self.file.read()
            table, seq = Table.from_arrays(header["table"], arrays, self._matching_keys), int(header["seq"])
            if seq > target:
                raise ValueError("it is ahead of the documents")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            log.warning("%s cannot be used (%s); metadata is read from the documents", self.file.path, error)
            self._unusable = True
            return None
        for batch in self._truth.changes(seq, texts=False):
            _apply_changes(table, batch)
        self.sequence = target
        return table

    def _read_all(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all metadata; note the number after which changes are replayed: those during the load occur twice."""
        self.sequence = self._truth.sequence()
        yield from self._truth.metadata()

    def _matching_keys(self, condition: Condition) -> NDArray[np.int64]:
        """Return the keys of documents that meet a condition, by scanning all of them; ids are looked up."""
        if isinstance(condition, Equals | In) and condition.key == ID:
            values = [condition.typed] if isinstance(condition, Equals) else condition.typed
            keys = self._truth.keys([value for kind, value in values if kind == "string"]).values()
            return np.array(sorted(keys), np.int64)
        fields = self._truth.fields(texts=condition.key == TEXT)
        return np.array([key for key, metadata in fields if condition.matches(metadata)], np.int64)


def _apply_changes(table: Table, batch: Sequence[DocumentChange]) -> None:
    for change in batch:
        if change.document is None:
            table.remove(change.key)
    table.put((change.key, change.document.metadata) for change in batch if change.document is not None)
