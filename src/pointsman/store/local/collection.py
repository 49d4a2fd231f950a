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
import math
import threading
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.embedders.base_embedder import mixed_embedders
from pointsman.store.bm25 import K1, B
from pointsman.store.local.at_once import at_once
from pointsman.store.local.columns.columns_file import check_table, read_table, saved_state, write_table
from pointsman.store.local.columns.metadata_columns import Columns
from pointsman.store.local.columns.permissions import PermissionTable
from pointsman.store.local.files_and_locks import (
    POLL_SECONDS,
    WriterLock,
    file_stamp,
    keep_private,
    make_directory,
    steady,
    store_error,
    translated,
)
from pointsman.store.local.keyword.keyword_files import damaged_files
from pointsman.store.local.keyword.keyword_index import KeywordIndex
from pointsman.store.local.keyword.words_file import WORDS_FILE
from pointsman.store.local.manifest import (
    FORMAT,
    MANIFEST,
    TRUTH,
    create_collection,
    drop_directory,
    read_manifest,
    replaced_error,
    sync_names,
    write_manifest,
)
from pointsman.store.local.truth.sealed_rows import NO_VECTOR
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.store.local.vectors.best_cosines import BestCosines
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.store.prepared_documents import UNREADABLE, Prepared, directions
from pointsman.store.store_values import MATCHED, NEAR, WORDS, Lists, Verification
from pointsman.tools.errors import CorruptStoreError, InputError, LockedError, ReplacedError, StoreError
from pointsman.values.filters import Equals, In
from pointsman.values.metadata import ID, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.columns.column import Condition
    from pointsman.store.local.columns.metadata_columns import Table
    from pointsman.store.local.keyword.word_query import WordQuery
    from pointsman.store.local.truth.truth_rows import DocumentChange
    from pointsman.store.local.vectors.vector_query import VectorQuery
    from pointsman.values.filters import Filter
    from pointsman.values.types import AddResult

log = logging.getLogger(__name__)

COLUMNS = "columns.bin"
_COLUMNS_AGAIN = 10_000  # fewer changed documents than this are never worth a new file of columns
_COMPLETING_SECONDS = 10.0
_LAG_SECONDS = 1.0  # how long an index may be behind before answers report it
_WRITERS_SECONDS = 60.0  # how long `verify` waits for a writing process
_COUNTED_CHANGES = 10_000  # maximum number of changes counted to report the lag
_LOOK_SECONDS = 0.02  # how often searches check whether the name still refers to this collection
_BESIDE_CHANGES = 1000  # after so many changes two indexes are updated at once
_BESIDE_ROWS = 50_000  # a scan of as many vectors takes far longer than another thread takes to begin it
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
        self._stamp: object = None  # of the manifest as last read
        self.truth, self.manifest = self._open(about or {})
        self._is_entry_durable = False  # whether this process has made the directory entry durable
        self._writing = threading.RLock()
        self._writers = 0  # open ``writer`` blocks, all of one thread
        self._open_blocks = 0  # open ``writing`` blocks
        self._thread_blocks = threading.local()  # its ``depth``: how many of them belong to this thread
        self._deriving = threading.Lock()
        self._underived = 0  # about how many documents were written since
        self.columns = Columns(self._load_columns, self._matching, self._restored_columns)
        self._columns_seq = -1
        self._columns_unusable = False  # the file of columns was damaged, or belongs to another state
        self._change_count = (-1, -1, 0)  # at most how many documents have changed from one sequence number to another
        self.keyword = KeywordIndex(
            directory / "keyword",
            self.truth,
            columns=self.columns,
            k1=k1,
            b=b,
            refresh=self.refresh,
        )
        self.permissions = PermissionTable(self.truth)
        self.best_cosines = BestCosines()
        self._vectors: VectorIndex | None = None
        self._embedder: str | None = None
        self._seen_sequence = -1
        self._behind_since = math.inf  # the moment when an index was first seen behind
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
            and self._columns_seq in (seq, -1)
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
        """Describe what current answers may lack; return None if the indexes contain all writes.

        A missing index is reported at once. One that is merely behind is reported after a second, the time a writer may
        take to update it.

        Args:
            words: whether the keyword index matters.
        """
        seq = self.truth.sequence()
        lags = []
        if words and self.keyword.shown < seq and not (self.keyword.shown < 0 and self.truth.is_empty()):
            lags.append(("keyword index", self.keyword.shown))
        vectors = self.vectors
        if vectors is not None and vectors.loaded and vectors.applied < seq:
            lags.append(("vector index", vectors.applied))
        if not lags:
            self._behind_since = math.inf
            return None
        self._behind_since = min(self._behind_since, monotonic())
        late = monotonic() - self._behind_since >= _LAG_SECONDS
        reason = f": {self.keyword.trouble}" if self.keyword.trouble is not None else "; it is being brought up to date"
        messages = []
        for name, last_seq in lags:
            if last_seq < 0:
                messages.append(f"the {name} of {self._directory.name!r} is not there yet{reason}")
            elif late:
                count = self.truth.changed_since(last_seq, _COUNTED_CHANGES)
                suffix = " or more" if count == _COUNTED_CHANGES else ""
                messages.append(
                    f"the {name} of {self._directory.name!r} lacks the last {count}{suffix} changes{reason}"
                )
        return "; ".join(messages) or None

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
                self._upgrade()
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

    def write(
        self,
        items: Sequence[Prepared],
        vectors: NDArray[np.float32] | None,
        embedder: str = "",
        has_vector: NDArray[np.bool_] | None = None,
    ) -> AddResult:
        """Write documents durably, inside ``with writer()``; ids must differ. Unchanged documents are skipped.

        Raises:
            InputError: the number, length or embedder of the vectors does not match, or a vector is zero.
        """
        blobs: list[bytes | None] | None = None
        if vectors is not None:
            self.check_embedder(embedder)
            rows = directions(vectors, items, has_vector)
            self._fix_embedder(embedder, rows.shape[1])
            blobs = [row.tobytes() for row in rows]
            if has_vector is not None:
                blobs = [blob if is_given else NO_VECTOR for blob, is_given in zip(blobs, has_vector, strict=True)]
        self._underived += len(items)
        return self.truth.upsert(items, blobs)

    def edit(
        self, items: Sequence[Prepared], vectors: Mapping[str, NDArray[np.float32]], embedder: str = ""
    ) -> AddResult:
        """Rewrite stored documents durably, inside ``with writer()``; vectors by id, the others keep theirs.

        Raises:
            InputError: as for `write`.
        """
        blobs: dict[str, bytes] = {}
        if vectors:
            self.check_embedder(embedder)
            ids = [item for item in items if item.document.id in vectors]
            rows = directions(np.array([vectors[item.document.id] for item in ids], np.float32), ids)
            self._fix_embedder(embedder, rows.shape[1])
            blobs = {item.document.id: row.tobytes() for item, row in zip(ids, rows, strict=True)}
        return self.truth.upsert(items, [blobs.get(item.document.id) for item in items])

    def check_embedder(self, name: str) -> None:
        """Check that vectors come from the embedder of the stored vectors.

        Raises:
            InputError: they come from another one.
        """
        if self.embedder not in {None, name}:
            raise mixed_embedders(repr(self._directory.name), self.embedder, name)

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
            self._forget_columns()
            if self.vectors is not None:
                self.vectors.clear()

    def file(self, name: str) -> Path:
        """Return the path of a derived file."""
        return self._directory / name

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
        verification = self._compare()
        if not verification.problems:
            return verification
        try:
            with self.writing(_WRITERS_SECONDS), self._writing:
                self._heal_quietly()
                return self._compare()
        except LockedError:
            raise
        except StoreError as error:  # damaged, or nobody may write here
            log.debug("%s cannot be compared without writers: %s", self._directory, error)
            return verification

    def _compare(self) -> Verification:
        problems = [f"documents.sqlite: {complaint}" for complaint in self.truth.check()]
        alive = dict(self.truth.alive())
        in_keyword = set(self.keyword.keys())
        problems += _difference("the keyword index", set(alive), in_keyword)
        keyword = self._directory / "keyword"
        try:
            problems += [f"keyword/{path.name} is damaged" for path in damaged_files(keyword)]
        except FileNotFoundError:
            problems += [] if not alive else ["keyword/meta.json is missing"]
        except OSError as error:
            raise store_error(keyword, error) from error
        except (*UNREADABLE, KeyError) as error:
            problems.append(f"keyword/meta.json is damaged: {error}")
        try:
            check_table(self._directory / COLUMNS)
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):
                self._columns_unusable = True
                problems.append(f"{COLUMNS} is damaged: {error}")
        in_vectors: set[int] = set()
        if self.vectors is not None:
            in_vectors = set(self.vectors.keys().tolist())
            problems += _difference(
                "the vector index", {key for key, has_vector in alive.items() if has_vector}, in_vectors
            )
            with suppress(CorruptStoreError):  # already among the problems
                problems += self.vectors.disagreements()
        return Verification(len(alive), len(in_keyword), len(in_vectors), tuple(problems))

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, fields: dict[str, Any]) -> tuple[WritableTruth, dict[str, Any]]:
        """Return documents and manifest, which belong together; create them if there are none."""
        while True:
            create_collection(self._directory, fields)
            with steady(self._directory) as exists:
                self._stamp = file_stamp(self._manifest_path)
                manifest = read_manifest(self._directory) if exists else None
                if manifest is not None:
                    keep_private(self._directory)
                    truth = WritableTruth(self._directory / TRUTH, create=False)
                    if manifest.get("identity") != truth.identity:
                        truth.close()
                        raise CorruptStoreError(
                            f"{self._directory}: {MANIFEST} and {TRUTH} belong to different datasets; "
                            "restore both from one backup"
                        )
                    return truth, manifest
            if exists:
                self._complete(fields)
            elif self._directory.exists() and not self._directory.is_dir():
                raise StoreError(f"{self._directory} is not a directory; delete it, or name another path")
            # otherwise another process has just deleted it

    def _complete(self, fields: dict[str, Any]) -> None:
        """Turn a directory without a manifest into a collection.

        Raises:
            LockedError: another process is doing so, and does not finish.
        """
        try:
            with self._lock.turn(monotonic() + _COMPLETING_SECONDS):
                self._lock.acquire()
                if read_manifest(self._directory) is None:
                    log.warning("%s has no %s; rewriting it", self._directory, MANIFEST)
                    truth = WritableTruth(self._directory / TRUTH)
                    truth.close()
                    with translated(self._directory):
                        write_manifest(self._directory, {"format": FORMAT, "identity": truth.identity, **fields})
                        sync_names(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            log.debug("%s was deleted while it was completed", self._directory)
        finally:
            self._lock.release()

    def _let_go(self) -> None:
        self.keyword.close()
        self.best_cosines = BestCosines()  # they hold on to a state of the vectors
        if self._vectors is not None:
            self._vectors.close()
        self._forget_columns()
        self.truth.close()

    def _forget_columns(self) -> None:
        self.columns.forget()
        self._columns_seq = -1

    def _heal(self) -> None:
        """After a crash or damage, update the indexes on disk, unless a live writer is about to."""
        if self.keyword.applied == self.truth.sequence() and (self._vectors is None or not self._vectors.wants_base):
            return
        if monotonic() < self._heal_again or not self._writing.acquire(blocking=False):
            return
        was_held = self._lock.held
        try:
            self._become_writer(healing=True)
            self._heal_quietly()
        except LockedError:
            log.debug("%s is being written to; its writer will bring the indexes up to date", self._directory)
        except CorruptStoreError:
            raise
        except StoreError as error:  # the directory is not writable
            self._put_off(error)
        finally:
            if not was_held:
                self._step_down()
            self._writing.release()

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
                    f"{self.truth.sequence()}, and {self.keyword.applied} were indexed); 'pointsman verify --repair' "
                    "continues without them, or restore it from a backup"
                )
        except BaseException:
            self._lock.release()
            raise

    def _settle(self) -> None:
        """As the writer, leave vectors and columns as they are read fastest."""
        if self._lock.held:
            with self._deriving:
                try:
                    self._save_columns(at_end=True)
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

    def _upgrade(self) -> None:
        """Upgrade files of an earlier version: the manifest first, since that version checks it."""
        if self.manifest["format"] < FORMAT:
            self.describe(format=FORMAT)
        self.truth.upgrade()

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
        if self.columns.loaded and self._columns_seq != target:  # otherwise another thread is loading them
            for batch in self.truth.changes(self._columns_seq, texts=False):
                self.columns.use(partial(_apply_changes, batch=batch))
            self._columns_seq = target
        if save:
            self._save_columns()
        vectors = self.vectors
        if vectors is not None and (save or vectors.loaded):
            vectors.catch_up(save=save)
        self._seen_sequence = target

    def _save_columns(self, *, at_end: bool = False) -> None:
        """As the writer, save the columns if many documents have changed since; else the change log is enough.

        Args:
            at_end: of a write, after which searches read them; while it goes on, more may change first.
        """
        path, identity = self._directory / COLUMNS, self.truth.identity
        seq, rows = (0, 0) if self._columns_unusable else saved_state(path, identity)
        limit = _COLUMNS_AGAIN if at_end else 5 * _COLUMNS_AGAIN
        threshold = min(max(_COLUMNS_AGAIN, rows // 2), limit)
        if self._fewer_have_changed(seq, threshold):
            return
        try:
            self.columns.use(lambda table: write_table(path, table, identity, self._columns_seq))
            self._columns_unusable = False
        except OSError as error:
            log.warning("%s cannot be written now (%s); metadata is read from the documents", path, error)

    def _fewer_have_changed(self, seq: int, limit: int) -> bool:
        """Whether fewer documents than this have changed since; if possible, only those since the last call count anew.

        To count tens of thousands takes as long as all else that SQLite does for a document that is added.
        """
        since, until, count = self._change_count
        target = self.truth.sequence()
        is_continued = since == seq and until <= target
        count = count + self.truth.changed_since(until, limit) if is_continued else limit
        if count >= limit:  # a document that has changed twice may have been counted twice
            count = self.truth.changed_since(seq, limit)
        is_below = count < limit
        self._change_count = (seq, target, count) if is_below else (-1, -1, 0)  # counting stops at the limit
        return is_below

    def _restored_columns(self) -> Table | None:
        """Return the saved columns with all later changes; None if there are none of use."""
        path, target = self._directory / COLUMNS, self.truth.sequence()
        try:
            table, seq = read_table(path, self.truth.identity, self._matching)
            if seq > target:
                raise ValueError("it is ahead of the documents")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            log.warning("%s cannot be used (%s); metadata is read from the documents", path, error)
            self._columns_unusable = True
            return None
        for batch in self.truth.changes(seq, texts=False):
            _apply_changes(table, batch)
        self._columns_seq = target
        return table

    def _load_columns(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Return all metadata, and the number after which changes are replayed: those during the load occur twice."""
        self._columns_seq = self.truth.sequence()
        yield from self.truth.metadata()

    def _matching(self, condition: Condition) -> NDArray[np.int64]:
        """Return the keys of documents that meet a condition, by scanning all of them; ids are looked up."""
        if isinstance(condition, Equals | In) and condition.key == ID:
            values = [condition.typed] if isinstance(condition, Equals) else condition.typed
            keys = self.truth.keys([value for kind, value in values if kind == "string"]).values()
            return np.array(sorted(keys), np.int64)
        fields = self.truth.fields(texts=condition.key == TEXT)
        return np.array([key for key, metadata in fields if condition.matches(metadata)], np.int64)

    def _fix_embedder(self, name: str, dimensions: int) -> None:
        if self.embedder is None:
            self.truth.set_meta(embedder=name, dimensions=str(dimensions))
        current = int(self.truth.meta("dimensions") or 0)
        if current != dimensions:
            raise InputError(
                f"{self._directory.name!r} holds vectors of {current} dimensions, not of {dimensions}; "
                "open it with the embedder that made them, or index the documents into a new dataset"
            )


def _apply_changes(table: Table, batch: Sequence[DocumentChange]) -> None:
    for change in batch:
        if change.document is None:
            table.remove(change.key)
    table.put((change.key, change.document.metadata) for change in batch if change.document is not None)


def _difference(subject: str, expected: set[int], actual: set[int]) -> list[str]:
    problems = []
    if missing := expected - actual:
        problems.append(f"{subject} lacks {len(missing)} documents, the first with key {min(missing)}")
    if extra := actual - expected:
        problems.append(f"{subject} holds {len(extra)} documents that are deleted, the first with key {min(extra)}")
    return problems


def search_both(words: WordQuery | None, vectors: VectorQuery | None, depth: int, filters: Filter | None) -> Lists:
    """Search both indexes; each also scores the hits that only the other has.

    Args:
        words: what is searched for in the keyword index; None: nothing.
        vectors: the same in the vectors.
        depth: how many hits of each.
        filters: which documents are searched; None: all.
    """
    is_long = vectors is not None and len(vectors.state.base.keys) > _BESIDE_ROWS
    if words is not None and vectors is not None and is_long:
        nearest, lexical = at_once(partial(vectors.search, depth, filters), partial(words.search, depth, filters))
        rankings = {WORDS: lexical, NEAR: nearest}
    else:
        queries = ((WORDS, words), (NEAR, vectors))
        rankings = {name: query.search(depth, filters) for name, query in queries if query is not None}
    scores = {name: dict(ranking) for name, ranking in rankings.items()}
    if words is None:
        return Lists(rankings, scores)
    bm25 = scores[WORDS]
    if vectors is not None:
        cosine = scores[NEAR]
        only_near = [key for key in cosine if key not in bm25]
        only_words = [key for key in bm25 if key not in cosine]
        if is_long:
            cosines, lexical_scores = at_once(partial(vectors.score, only_words), partial(words.score, only_near))
        else:
            lexical_scores, cosines = words.score(only_near), vectors.score(only_words)
        bm25.update(zip(only_near, lexical_scores, strict=True))
        cosine.update(zip(only_words, cosines, strict=True))
    scores[MATCHED] = {key: words.matched.get(key, 0.0) for key in bm25}
    return Lists(rankings, scores, idf=words.idf)


def score_both(
    words: WordQuery | None, vectors: VectorQuery | None, keys: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Score documents by what is searched for in both indexes; see `search_both`."""
    scores: dict[str, dict[int, float]] = {}
    if words is not None:
        scores[WORDS] = dict(zip(keys, words.score(keys), strict=True))
        scores[MATCHED] = {key: words.matched.get(key, 0.0) for key in keys}
    if vectors is not None:
        scores[NEAR] = dict(zip(keys, vectors.score(keys), strict=True))
    return scores
