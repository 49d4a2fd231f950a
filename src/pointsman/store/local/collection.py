"""One dataset on disk: its documents, and the two indexes and the metadata columns derived from them.

All derived data records the sequence number it has applied. Opening, writing and refreshing are therefore the same
operation: update whatever is behind the documents. One process at a time may write; any number may read, and they see a
write as soon as it is indexed.

A collection is created in a temporary directory that is then renamed, and deleted by renaming it away: a name refers to
a whole collection or to none. Processes that have it open notice, by the identity in its manifest, when its name refers
to another one. Nothing here survives a fork; a process must open its own.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.store.bm25 import K1, B
from pointsman.store.local.columns.followed_columns import COLUMNS, FollowedColumns
from pointsman.store.local.columns.permissions import PermissionTable
from pointsman.store.local.files_and_locks import (
    POLL_SECONDS,
    WAY_BACK,
    WriterLock,
    file_stamp,
    make_directory,
    replaced_error,
    steady,
    translated,
)
from pointsman.store.local.index_status import IndexStatus, compare
from pointsman.store.local.keyword.keyword_index import KeywordIndex
from pointsman.store.local.keyword.words_file import WORDS_FILE
from pointsman.store.local.manifest import (
    MANIFEST,
    TRUTH,
    drop_directory,
    open_collection,
    read_manifest,
    sync_names,
    write_manifest,
)
from pointsman.store.local.truth.sealed_rows import NO_VECTOR
from pointsman.store.local.vectors.best_cosines import BestCosines
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.store.prepared_documents import Batch, Prepared, check_embedder, directions
from pointsman.tools.errors import CorruptStoreError, InputError, LockedError, ReplacedError, StoreError
from pointsman.tools.system.at_once import at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.store_values import Verification
    from pointsman.values.types import AddResult

log = logging.getLogger(__name__)

_WRITERS_SECONDS = 60.0  # how long `verify` waits for a writing process
_LOOK_SECONDS = 0.02  # how often searches check whether the name still refers to this collection
_BESIDE_CHANGES = 1000  # after so many changes two indexes are updated at once
_HEAL_SECONDS = 1.0  # until the next attempt after a failed repair


class Collection:
    """Documents with their derived indexes in one directory.

    Args:
        directory: created if missing.
        about: stored in the manifest of a new collection (name, description and similar).
        k1: BM25 term frequency saturation; values other than 1.2 require exact rescoring.
        b: BM25 length normalisation; values other than .75 require exact rescoring.

    Raises:
        FormatVersionError, CorruptStoreError: the existing files cannot be used.
    """

    def __init__(self, directory: Path, *, about: dict[str, Any] | None = None, k1: float = K1, b: float = B) -> None:
        self._directory = directory
        self._lock = WriterLock(directory)
        self._manifest_path = str(directory / MANIFEST)
        self._look_again = 0.0
        self.truth, self.manifest, self._stamp = open_collection(directory, about or {}, self._lock)
        self._is_entry_durable = False  # whether this process has made the directory entry durable
        self._writing = threading.RLock()
        self._writers = 0  # open ``writer`` blocks, all of one thread
        self._open_blocks = 0  # open ``writing`` blocks
        self._thread_blocks = threading.local()  # its ``depth``: how many of them belong to this thread
        self._deriving = threading.Lock()
        self._underived = 0  # about how many documents were written since
        self.columns = FollowedColumns(directory / COLUMNS, self.truth)
        self.keyword = KeywordIndex(
            directory / "keyword", self.truth, columns=self.columns, k1=k1, b=b, refresh=self.refresh
        )
        self.permissions = PermissionTable(self.truth)
        self.best_cosines = BestCosines()
        self._vectors: VectorIndex | None = None
        self._embedder: str | None = None
        self._seen_sequence = -1
        self._status = IndexStatus(directory.name, self.truth, self.keyword)
        self._heal_again = 0.0  # the time of the next repair attempt
        try:
            self._heal()
        except BaseException:
            self._let_go()
            raise

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def embedder(self) -> str | None:
        """Return the name of the embedder of the stored vectors; None before the first."""
        if self._embedder is None:
            self._embedder = self.truth.meta("embedder")
        return self._embedder

    @property
    def vectors(self) -> VectorIndex | None:
        """Return the vector index; None while no vector is stored."""
        if self._vectors is None:
            name, dimensions = self.embedder, self.truth.meta("dimensions")
            if name is not None and dimensions is not None:
                self._vectors = VectorIndex(
                    self._directory / "vectors.bin",
                    self.truth,
                    identity=f"{self.truth.identity} {name}",
                    dimensions=int(dimensions),
                    columns=self.columns,
                    refresh=self.refresh,
                )
        return self._vectors

    def refresh(self, seq: int | None = None) -> None:
        """Make recent writes of any process visible; takes microseconds if there are none.

        Args:
            seq: the sequence number, if it has just been read.

        Raises:
            ReplacedError: another process has deleted or recreated the collection.
        """
        time = monotonic()
        if time > self._look_again:
            if file_stamp(self._manifest_path) != self._stamp and self.replaced:
                raise replaced_error(self._directory)
            self._look_again = time + _LOOK_SECONDS  # not set if it was replaced: the next search is to raise too
        if seq is None:
            seq = self.truth.sequence()
        if (
            self._seen_sequence == seq == self.keyword.applied
            and self.columns.sequence in (seq, -1)
            and (self._vectors is None or not self._vectors.wants_base)
        ):
            return
        if self._deriving.acquire(blocking=False):  # else another thread is updating; this search uses what there is
            try:
                self._derive_in_memory(save=False)
            finally:
                self._deriving.release()
        self.keyword.reload()
        self._heal()

    @property
    def may_lag(self) -> bool:
        """Whether an index was behind the documents when last checked; `lagging` returns the details."""
        vectors = self._vectors
        vectors_lag = vectors is not None and vectors.loaded and vectors.applied < self._seen_sequence
        return self.keyword.shown < self._seen_sequence or vectors_lag

    def lagging(self, *, words: bool = True) -> str | None:
        """Return what current answers may lack; None if the indexes contain all writes; see `IndexStatus`."""
        return self._status.describe(self.vectors, words=words)

    @property
    def replaced(self) -> bool:
        """Whether another process deleted or recreated the collection after it was opened here."""
        stamp = file_stamp(self._manifest_path)  # first: later writes are then noticed by the next check
        manifest = read_manifest(self._directory)
        if manifest is None or manifest.get("identity") != self.truth.identity:
            return True
        self._stamp = stamp
        return False

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Become the writer; when the block ends, all its writes are indexed, and others may write.

        Blocks may be nested; within ``writing`` the process stays the writer until that ends.

        Raises:
            LockedError: another process is the writer.
        """
        with self._writing:
            self._become_writer()
            self._writers += 1
            try:
                try:
                    yield
                except BaseException:
                    self._heal_quietly()  # what was written before the failure
                    raise
                self._derive()
            finally:
                self._writers -= 1
                if not self._writers and not self._open_blocks:
                    self._step_down()

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """Be the writer within the block; when the last such block of this process ends, others may write.

        Several threads may be inside; their writes are serialised. Waiting processes take turns: a process that has
        written queues behind those that wait.

        Args:
            wait: seconds to wait for another process.

        Raises:
            LockedError: another process is still the writer after that time.
        """
        self._enter(wait)
        self._thread_blocks.depth = getattr(self._thread_blocks, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread_blocks.depth = getattr(self._thread_blocks, "depth", 1) - 1
            with self._writing:  # a thread writing outside any block finishes first
                self._open_blocks -= 1
                if not self._open_blocks:
                    self._settle()
                    self._step_down()

    @property
    def is_in_block(self) -> bool:
        """Whether a ``writing`` block is open, at whose end more is done than after each write."""
        return self._open_blocks > 0

    @contextmanager
    def healing(self) -> Iterator[bool]:
        """Hold the lock for a moment as a reader, to replace a derived file; False within if somebody else writes.

        Writers of other processes wait for it.

        Raises:
            StoreError: the directory is not writable.
        """
        if not self._writing.acquire(blocking=False):
            yield False
            return
        was_held = self._lock.held
        try:
            try:
                self._become_writer(healing=True)
            except LockedError:
                yield False
            else:
                yield True
        finally:
            if not was_held:
                self._step_down()
            self._writing.release()

    def write(self, batch: Batch) -> AddResult:
        """Write documents durably, inside ``with writer()``; ids must differ. Unchanged ones are usually skipped.

        Raises:
            InputError: the number, length or embedder of the vectors does not match, or a vector is zero.
        """
        self._underived += len(batch.items)
        return self.truth.upsert(batch.items, self._blobs(batch), skip_identical=batch.skip_identical)

    def edit(
        self, items: Sequence[Prepared], vectors: Mapping[str, NDArray[np.float32]], embedder: str = ""
    ) -> AddResult:
        """Rewrite stored documents durably, inside ``with writer()``; vectors by id, the others keep theirs.

        Raises:
            InputError: as for `write`.
        """
        blobs: dict[str, bytes | None] = {}
        if vectors:
            with_vector = [item for item in items if item.document.id in vectors]
            matrix = np.array([vectors[item.document.id] for item in with_vector], np.float32)
            new_blobs = self._blobs(Batch(with_vector, matrix, embedder)) or ()
            blobs = {item.document.id: blob for item, blob in zip(with_vector, new_blobs, strict=True)}
        return self.truth.upsert(items, [blobs.get(item.document.id) for item in items])

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents, skipping unknown ids; return the number deleted."""
        with self.writer():
            return self.truth.delete(ids)

    def rebuild(self) -> None:
        """Delete the derived indexes and rebuild them from the documents."""
        with self.writer():
            self.keyword.clear()
            for name in (COLUMNS, WORDS_FILE):
                with translated(path := self._directory / name):
                    path.unlink(missing_ok=True)
            self.columns.forget()
            if self.vectors is not None:
                self.vectors.clear()

    def describe(self, **about: Any) -> None:
        """Change the collection's entries in the manifest, keeping other processes' changes to the rest.

        Raises:
            ReplacedError: another process has deleted or recreated the collection.
        """
        with translated(self._directory), steady(self._directory, alone=True) as exists:
            manifest = read_manifest(self._directory) if exists else None
            if manifest is None or manifest.get("identity") != self.truth.identity:
                raise replaced_error(self._directory)
            self.manifest = {**manifest, **about}
            write_manifest(self._directory, self.manifest)

    def save(self, folder: Path, **about: Any) -> None:
        """Copy documents and manifest, with ``about`` added, into a new folder; its indexes are rebuilt there.

        Raises:
            InputError: the folder is not empty.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is not empty; name a new folder to save into")
        make_directory(folder)
        self.truth.copy(folder / TRUTH)
        write_manifest(folder, {**self.manifest, **about})

    def close(self) -> None:
        """Finish writing and close all files, releasing the lock last; waits for a writing thread."""
        with self._writing:
            self._let_go()
            self._lock.release()

    def remove(self) -> None:
        """Delete the collection with all its files; a crash in between leaves nothing that looks like a dataset.

        Raises:
            ReplacedError: another process has deleted or recreated it.
            LockedError: another process is writing to it.
        """
        with self._writing:
            self._let_go()
            if not drop_directory(self._directory, self._lock, self.truth.identity):
                raise replaced_error(self._directory)

    # ── verifying ────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> Verification:
        """Compare the indexes with the documents, key by key and vector by vector.

        If they seem to differ, a writer may be at work: then they are compared again while nobody writes.

        Raises:
            LockedError: another process has been writing for a minute.
        """
        self.refresh()
        indexes = self.keyword, self.columns, self.vectors
        verification = compare(self._directory, self.truth, *indexes)
        if not verification.problems:
            return verification
        try:
            with self.writing(_WRITERS_SECONDS), self._writing:
                self._heal_quietly()
                return compare(self._directory, self.truth, *indexes)
        except LockedError:
            raise
        except StoreError as error:  # damaged, or nobody may write here
            log.debug("%s cannot be compared without writers: %s", self._directory, error)
            return verification

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _let_go(self) -> None:
        self.keyword.close()
        self.best_cosines = BestCosines()  # they hold on to a state of the vectors
        if self._vectors is not None:
            self._vectors.close()
        self.columns.forget()
        self.truth.close()

    @property
    def indexed(self) -> int:
        """The last write that the keyword index has; an empty dataset needs no index, its first write makes it."""
        return max(self.keyword.applied, 0)

    def _heal(self) -> None:
        """After a crash or damage, update the indexes on disk, unless a live writer is about to."""
        if self.indexed == self.truth.sequence() and (self._vectors is None or not self._vectors.wants_base):
            return
        if monotonic() < self._heal_again:
            return
        try:
            with self.healing() as is_writer:  # else a live writer will bring the indexes up to date
                if is_writer:
                    self._heal_quietly()
        except CorruptStoreError:
            raise
        except StoreError as error:  # the directory is not writable
            self._put_off(error)

    def _heal_quietly(self) -> None:
        """As the writer, update the indexes if possible; otherwise searches continue with the existing ones."""
        try:
            self._derive()
        except CorruptStoreError:
            raise
        except StoreError as error:
            self._put_off(error)

    def _put_off(self, error: StoreError) -> None:
        """Retry a failed repair later."""
        self._heal_again = monotonic() + _HEAL_SECONDS
        level = logging.DEBUG if str(error) == str(self.keyword.trouble) else logging.WARNING
        log.log(level, "the indexes of %s cannot be brought up to date now: %s", self._directory, error)
        self.keyword.trouble = error

    def _enter(self, wait: float) -> None:
        """Become the writer for a block, taking turns with waiting processes, and count the block."""
        deadline = monotonic() + wait
        with self._writing:
            # If threads of this process kept joining, other processes would never get a turn. A nested block must not
            # queue, however, behind a process that waits for its end.
            is_nested = getattr(self._thread_blocks, "depth", 0) > 0
            if wait <= 0 or (self._lock.held and (is_nested or not self._open_blocks or not self._lock.wanted)):
                self._become_writer()
                self._open_blocks += 1
                return
        try:
            with self._lock.turn(deadline):
                while True:
                    try:
                        with self._writing:
                            self._become_writer()
                            self._open_blocks += 1
                            return
                    except ReplacedError:
                        raise
                    except LockedError:
                        if monotonic() >= deadline:
                            raise
                    sleep(POLL_SECONDS)
        except FileNotFoundError as error:
            raise replaced_error(self._directory) from error

    def _become_writer(self, *, healing: bool = False) -> None:
        """Acquire the lock unless it is held; then read what others have written meanwhile.

        Args:
            healing: whether a reader only brings the indexes up to date.

        Raises:
            LockedError: another process holds it.
            ReplacedError: another process has deleted the collection; writes to it would never be seen.
        """
        if self._lock.held:
            return
        try:
            self._lock.acquire(healing=healing)
        except FileNotFoundError as error:
            raise replaced_error(self._directory) from error
        try:
            if self.replaced:
                raise replaced_error(self._directory)
            if not self._is_entry_durable:  # its creator may have died before doing so
                with translated(self._directory):
                    sync_names(self._directory)
                self._is_entry_durable = True
            with self._deriving:
                self._derive_in_memory(save=False)
            self.keyword.reload()
            if self.keyword.applied > self.truth.sequence():  # transactions are on disk before they are indexed
                raise CorruptStoreError(
                    f"{self._directory / TRUTH} or its log is damaged: the last transactions are missing (there are "
                    f"{self.truth.sequence()}, and {self.keyword.applied} were indexed); {WAY_BACK}"
                )
        except BaseException:
            self._lock.release()
            raise

    def _settle(self) -> None:
        """As the writer, leave vectors and columns as they are read fastest."""
        if self._lock.held:
            with self._deriving:
                try:
                    self.columns.save(at_end=True)
                except StoreError as error:  # such as of a dataset that was deleted within the block
                    log.debug("the columns of %s are not written now: %s", self._directory, error)
                if self._vectors is not None:
                    self._vectors.settle()

    def _step_down(self) -> None:
        """Let others write; data in memory stays, and searches continue."""
        if self._lock.held:
            try:
                self.keyword.release()  # its writer too: the next writing process needs tantivy's own lock
            finally:
                self._lock.release()

    def _derive(self) -> None:
        """As the writer, update columns, vectors and keyword index, also on disk.

        After many changes the keyword index is updated beside the others: both take long, and each reads the documents.
        """
        changes, self._underived = self._underived, 0
        if changes > _BESIDE_CHANGES:
            at_once(self.keyword.catch_up, self._derive_and_save)
        else:
            self._derive_and_save()
            self.keyword.catch_up()
        self.keyword.trouble = None

    def _derive_and_save(self) -> None:
        with self._deriving:  # not while the keyword index is updated, which may take long: searches continue
            self._derive_in_memory(save=True)

    def _derive_in_memory(self, *, save: bool) -> None:
        """Update columns and vectors; with ``save``, write a new base file of vectors if worthwhile."""
        target = self.truth.sequence()
        self.columns.follow(target)
        if save:
            self.columns.save()
        vectors = self.vectors
        if vectors is not None and (save or vectors.loaded):
            vectors.catch_up(save=save)
        self._seen_sequence = target

    def _blobs(self, batch: Batch) -> list[bytes | None] | None:
        """Return vectors as they are stored; the first ones say which embedder and dimensions all others have.

        Raises:
            InputError: they are from another embedder, of other dimensions, or no directions.
        """
        if batch.vectors is None:
            return None
        name, dimensions = repr(self._directory.name), self.truth.meta("dimensions")
        check_embedder(name, (self.embedder, None), batch.embedder)
        rows = directions(batch.vectors, batch.items, batch.has_vector)
        if self.embedder is None:
            self.truth.set_meta(embedder=batch.embedder, dimensions=str(rows.shape[1]))
        else:
            check_embedder(name, (self.embedder, int(dimensions or 0)), batch.embedder, rows.shape[1])
        return [NO_VECTOR if row is None else row.tobytes() for row in replace(batch, vectors=rows).rows()]
