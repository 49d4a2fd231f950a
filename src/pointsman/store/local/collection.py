"""One dataset on disk: the truth, and the two indexes and the metadata columns derived from it.

Everything derived states the sequence number it has applied. Opening, writing and refreshing are therefore the same
thing: bring what is behind up to the truth. One process at a time may write; any number may read, and they see a
write as soon as it is in the indexes.

A collection is made in a directory aside that is then renamed, and deleted by renaming it aside: a name stands for a
whole collection or for none. Whoever has it open notices, by the identity in its manifest, when its name stands for
another one. Nothing here survives a fork; a process opens its own.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from pointsman._values import ID, TEXT
from pointsman.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    LockedError,
    ReplacedError,
    StorageFullError,
    StoreError,
)
from pointsman.filters import Equals, In
from pointsman.store.local.columns import Columns
from pointsman.store.local.files import (
    POLL_SECONDS,
    WriterLock,
    collect_leftovers,
    directory_aside,
    file_stamp,
    make_directory,
    remove_directory,
    replacing,
    steady,
    store_error,
    sync_directory,
    translated,
)
from pointsman.store.local.keyword import K1, B, KeywordIndex, damaged_files
from pointsman.store.local.truth import Truth
from pointsman.store.local.vectors import VectorIndex
from pointsman.store.prepared import Prepared, directions

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.store.local.columns import Condition
    from pointsman.types import AddResult

log = logging.getLogger(__name__)

FORMAT = 2
_READABLE = {1, FORMAT}  # the first is without checksums in the manifest and in ``meta``
MANIFEST = "manifest.json"
TRUTH = "documents.sqlite"
_COMPLETING_SECONDS = 10.0
_LAG_SECONDS = 1.0  # how long an index may be behind before answers say so
_COUNTED = 10_000  # changes that are counted to say by how much
_LOOK_SECONDS = 0.02  # how often searches look whether the name still stands for this collection
_HEAL_SECONDS = 1.0  # until it is tried again to heal what could not be healed


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Reads the manifest of a dataset's directory; None if it holds no dataset.

    Raises:
        FormatVersionError: it was written in a format this version does not know.
        CorruptStoreError: the manifest cannot be read.
    """
    path = directory / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        version = int(manifest["format"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error
    except OSError as error:
        raise store_error(path, error) from error
    if version not in _READABLE:
        raise FormatVersionError(
            f"{directory} is in format {version!r}, this version of pointsman knows format {FORMAT}; "
            "open it with the version that wrote it, or index the documents again into a new dataset"
        )
    check = manifest.pop("checksum", None)
    if check != (_checksum(manifest) if version == FORMAT else None):
        raise CorruptStoreError(
            f"{path} is not as it was written; 'pointsman verify --repair' takes it as it is, "
            "or restore it from a backup"
        )
    return manifest


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest as a whole."""
    content = {**manifest, "checksum": _checksum(manifest)}
    with replacing(directory / MANIFEST) as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=2).encode())


def _checksum(manifest: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(manifest, sort_keys=True).encode())


def create_collection(directory: Path, about: Mapping[str, Any] | None = None) -> bool:
    """Make an empty collection, whole or not at all, for all processes at once.

    Args:
        directory: its name; what is there already stays.
        about: kept in the manifest (name, description and the like).

    Returns:
        Whether it was made here; False when something of this name is there.

    Raises:
        StoreError: it cannot be made.
    """
    make_directory(directory.parent)
    with translated(directory):
        if _occupied(directory):
            return False
        collect_leftovers(directory.parent)
        with directory_aside(directory.parent) as aside:
            truth = Truth(aside / TRUTH)
            truth.close()
            write_manifest(aside, {"format": FORMAT, "identity": truth.identity, **(about or {})})
            try:
                aside.rename(directory)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:  # another process was quicker
                    return False
                raise
        _sync_names(directory)
    return True


def _occupied(directory: Path) -> bool:
    """Whether there is anything of this name but an empty directory."""
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def drop_collection(directory: Path) -> bool:
    """Delete whatever has this name: a collection, a damaged one, or noise.

    Returns:
        Whether there was anything.

    Raises:
        LockedError: another process is writing to it.
        StoreError: the operating system does not let it go.
    """
    with translated(directory):
        is_folder = directory.is_dir() and not directory.is_symlink()
    if not is_folder:
        with translated(directory):
            try:
                directory.unlink()
            except FileNotFoundError:
                return False
            except IsADirectoryError:  # another process has made it at this very moment
                return _drop(directory, WriterLock(directory))
            sync_directory(directory.parent)
            return True
    return _drop(directory, WriterLock(directory))


def _drop(directory: Path, lock: WriterLock, identity: str | None = None) -> bool:
    """Delete the collection of this identity, or any; the lock is free afterwards. False when it is gone.

    Raises:
        ReplacedError: it is another one by now.
        LockedError: another process is writing to it.
    """
    try:
        try:
            lock.acquire()
        except StorageFullError:
            log.info("%s has no lock and no room for one; treating it as free", directory)
        except StoreError:
            if not lock.is_noise:
                raise
        with translated(directory), steady(directory, alone=True) as there:
            if not there:
                return False
            if identity is not None and (read_manifest(directory) or {}).get("identity") != identity:
                raise _replaced(directory)
            lock.unsign()
            remove_directory(directory)
    except FileNotFoundError:
        return False
    finally:
        lock.release()
    collect_leftovers(directory.parent)
    return True


def _sync_names(directory: Path) -> None:
    """Make the name of a collection durable, and those of the folders that a workspace has it in."""
    parent, *folders = directory.absolute().parents
    sync_directory(parent)
    for folder in folders[:2]:
        with suppress(PermissionError):  # what we may not even read we have not made
            sync_directory(folder)


def _replaced(directory: Path) -> ReplacedError:
    return ReplacedError(f"{directory} was deleted or recreated by another process; open it again")


@dataclass(frozen=True, slots=True)
class Verification:
    """What comparing the three stores found; ``problems`` is empty when they agree."""

    documents: int
    in_keyword_index: int
    in_vector_index: int
    problems: tuple[str, ...]


class Collection:
    """Documents with their derived indexes in one directory.

    Args:
        directory: made when missing.
        about: kept in the manifest of a new collection (name, description and the like).
        k1: BM25 term frequency saturation; other values than 1.2 cost an exact rescoring.
        b: BM25 length normalisation; other values than .75 cost an exact rescoring.

    Raises:
        FormatVersionError, CorruptStoreError: what is there cannot be used.
    """

    def __init__(self, directory: Path, *, about: dict[str, Any] | None = None, k1: float = K1, b: float = B) -> None:
        self._directory = directory
        self._lock = WriterLock(directory)
        self._manifest_path = str(directory / MANIFEST)
        self._look_again = 0.0
        self._stamp: object = None  # of the manifest, as it was read last
        self.truth, self.manifest = self._open(about or {})
        self._named = False  # whether this process has made the name durable
        self._writing = threading.RLock()
        self._writers = 0  # blocks of ``writer`` that have begun and not ended, all of one thread
        self._inside = 0  # blocks of ``writing`` that have begun and not ended
        self._own = threading.local()  # its ``depth``: those of them that this thread is in
        self._deriving = threading.Lock()
        self.columns = Columns(self._load_columns, self._matching)
        self._columns_seq = -1
        self.keyword = KeywordIndex(
            directory / "keyword",
            self.truth,
            columns=self.columns,
            k1=k1,
            b=b,
            refresh=self.refresh,
        )
        self._vectors: VectorIndex | None = None
        self._embedder: str | None = None
        self._seen = -1
        self._behind_since = math.inf  # the moment when an index was first seen to be behind
        self._heal_again = 0.0  # the moment from which on it is worth trying
        try:
            self._heal()
        except BaseException:
            self._let_go()
            raise

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def embedder(self) -> str | None:
        """The name of the embedder whose vectors are stored; None before the first."""
        if self._embedder is None:
            self._embedder = self.truth.meta("embedder")
        return self._embedder

    @property
    def vectors(self) -> VectorIndex | None:
        """The vector index; None while no vector is stored."""
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

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Refresh once for everything that this thread reads within the block: one search asks several indexes."""
        if getattr(self._own, "pinned", False):
            yield
            return
        self.refresh()
        self._own.pinned = True
        try:
            yield
        finally:
            self._own.pinned = False

    def refresh(self) -> None:
        """See what has been written since, by whatever process; a look-up of microseconds when there is nothing.

        Raises:
            ReplacedError: another process has deleted the collection, or made it anew.
        """
        if getattr(self._own, "pinned", False):
            return
        now = monotonic()
        if now > self._look_again:
            if file_stamp(self._manifest_path) != self._stamp and self.replaced:
                raise _replaced(self._directory)
            self._look_again = now + _LOOK_SECONDS  # not where it is replaced: the next one is told as well
        seq = self.truth.sequence()
        if self._seen == seq == self.keyword.applied and self._columns_seq in (seq, -1) and not self._wants_base:
            return
        if self._deriving.acquire(blocking=False):  # else another thread is at it; this search takes what there is
            try:
                self._derive_in_memory(save=False)
            finally:
                self._deriving.release()
        self.keyword.reload()
        self._heal()

    @property
    def may_lag(self) -> bool:
        """Whether an index had not reached the documents when they were last looked at; `lagging` says more."""
        vectors = self._vectors
        behind = vectors is not None and vectors.loaded and vectors.applied < self._seen
        return self.keyword.shown < self._seen or behind

    def lagging(self, *, words: bool = True) -> str | None:
        """What an answer of this moment may lack, in words; None when the indexes show all that was written.

        An index that is not there is told of at once. One that is merely behind is told of after a second: so long
        whoever is writing may take to bring it up to date.

        Args:
            words: whether the keyword index matters.
        """
        seq = self.truth.sequence()
        behind = []
        if words and self.keyword.shown < seq and not (self.keyword.shown < 0 and self.truth.is_empty()):
            behind.append(("keyword index", self.keyword.shown))
        vectors = self.vectors
        if vectors is not None and vectors.loaded and vectors.applied < seq:
            behind.append(("vector index", vectors.applied))
        if not behind:
            self._behind_since = math.inf
            return None
        self._behind_since = min(self._behind_since, monotonic())
        late = monotonic() - self._behind_since >= _LAG_SECONDS
        why = f": {self.keyword.trouble}" if self.keyword.trouble is not None else "; it is being brought up to date"
        messages = []
        for name, last_seq in behind:
            if last_seq < 0:
                messages.append(f"the {name} of {self._directory.name!r} is not there yet{why}")
            elif late:
                count = self.truth.changed_since(last_seq, _COUNTED)
                more = " or more" if count == _COUNTED else ""
                messages.append(f"the {name} of {self._directory.name!r} lacks the last {count}{more} changes{why}")
        return "; ".join(messages) or None

    @property
    def replaced(self) -> bool:
        """Whether another process deleted or recreated the collection after it was opened here."""
        stamp = file_stamp(self._manifest_path)  # first: what is written meanwhile is looked at next time
        manifest = read_manifest(self._directory)
        if manifest is None or manifest.get("identity") != self.truth.identity:
            return True
        self._stamp = stamp
        return False

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Become the writer; when the block ends, whatever it wrote is in the indexes, and others may write.

        Blocks may be nested; inside of ``writing`` the process stays the writer until that ends.

        Raises:
            LockedError: another process is.
        """
        with self._writing:
            self._become_writer()
            self._writers += 1
            try:
                self._upgrade()
                try:
                    yield
                except BaseException:
                    self._heal_quietly()  # what was written before it failed
                    raise
                self._derive()
            finally:
                self._writers -= 1
                if not self._writers and not self._inside:
                    self._step_down()

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """Be the writer within the block; when the last such block of this process ends, others may be.

        Threads may be inside together; their writes go one after another. Processes that wait take turns: who has
        written lines up behind who waits.

        Args:
            wait: seconds to wait for another process.

        Raises:
            LockedError: another process is the writer, and still is after that time.
        """
        self._enter(wait)
        self._own.depth = getattr(self._own, "depth", 0) + 1
        try:
            yield
        finally:
            self._own.depth = getattr(self._own, "depth", 1) - 1
            with self._writing:  # a thread that is writing outside of any block ends first
                self._inside -= 1
                if not self._inside:
                    self._step_down()

    def write(self, prepared: Sequence[Prepared], vectors: NDArray[np.float32] | None, embedder: str = "") -> AddResult:
        """Write documents durably, inside ``with writer()``; ids must differ. What is stored just so is passed over.

        Raises:
            InputError: vectors of another number, length or embedder than the collection has, or without a direction.
        """
        blobs = None
        if vectors is not None:
            self.check_embedder(embedder)
            rows = directions(vectors, prepared)
            self._fix_embedder(embedder, rows.shape[1])
            blobs = [row.tobytes() for row in rows]
        return self.truth.upsert(prepared, blobs)

    def check_embedder(self, name: str) -> None:
        """Refuse vectors of another embedder than the one whose vectors are stored.

        Raises:
            InputError: it is another one.
        """
        if self.embedder not in {None, name}:
            raise InputError(
                f"{self._directory.name!r} holds vectors of {self.embedder!r}, not of {name!r}; "
                "open it with that embedder, or index the documents into a new dataset"
            )

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents; unknown ids are passed over. Returns how many there were."""
        with self.writer():
            return self.truth.delete(ids)

    def rebuild(self) -> None:
        """Deletes the derived indexes and rebuilds them from the documents."""
        with self.writer():
            self.keyword.clear()
            if self.vectors is not None:
                self.vectors.clear()

    def describe(self, **about: Any) -> None:
        """Change what the manifest says of the collection; whatever else another process has changed there stays.

        Raises:
            ReplacedError: another process has deleted the collection, or made it anew.
        """
        with translated(self._directory), steady(self._directory, alone=True):
            manifest = read_manifest(self._directory)
            if manifest is None or manifest.get("identity") != self.truth.identity:
                raise _replaced(self._directory)
            self.manifest = {**manifest, **about}
            write_manifest(self._directory, self.manifest)

    def save(self, folder: Path, **about: Any) -> None:
        """Copy the documents and the manifest, with ``about`` added, into a new folder; indexes are derived there anew.

        Raises:
            InputError: there is something in the folder.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is not empty; name a new folder to save into")
        make_directory(folder)
        self.truth.copy(folder / TRUTH)
        write_manifest(folder, {**self.manifest, **about})

    def close(self) -> None:
        """Finish writing and let go of all files; the lock goes last. Waits for a thread that is writing."""
        with self._writing:
            self._let_go()
            self._lock.release()

    def remove(self) -> None:
        """Delete the collection with all its files; a crash half-way leaves nothing that looks like a dataset.

        Raises:
            ReplacedError: another process has deleted it, or made it anew.
            LockedError: another process is writing to it.
        """
        with self._writing:
            self._let_go()
            if not _drop(self._directory, self._lock, self.truth.identity):
                raise _replaced(self._directory)

    # ── proving ──────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> Verification:
        """Compare the indexes with the truth, key by key and vector by vector."""
        self.refresh()
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
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"keyword/meta.json is damaged: {error}")
        in_vectors: set[int] = set()
        if self.vectors is not None:
            in_vectors = set(self.vectors.keys().tolist())
            problems += _difference(
                "the vector index", {key for key, has_vector in alive.items() if has_vector}, in_vectors
            )
            with suppress(CorruptStoreError):  # it is among the problems already
                problems += self.vectors.disagreements()
        return Verification(len(alive), len(in_keyword), len(in_vectors), tuple(problems))

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, about: dict[str, Any]) -> tuple[Truth, dict[str, Any]]:
        """The truth and the manifest, which belong together; made when there is nothing."""
        while True:
            create_collection(self._directory, about)
            with steady(self._directory) as there:
                self._stamp = file_stamp(self._manifest_path)
                manifest = read_manifest(self._directory)
                if manifest is not None:
                    truth = Truth(self._directory / TRUTH, create=False)
                    if manifest.get("identity") != truth.identity:
                        truth.close()
                        raise CorruptStoreError(
                            f"{self._directory}: {MANIFEST} and {TRUTH} belong to different datasets; "
                            "restore both from one backup"
                        )
                    return truth, manifest
            if there:
                self._complete(about)
            elif self._directory.exists() and not self._directory.is_dir():
                raise StoreError(f"{self._directory} is not a directory; delete it, or name another path")
            # else another process has deleted it this moment

    def _complete(self, about: dict[str, Any]) -> None:
        """Make a directory that has lost its manifest, or never had one, a collection.

        Raises:
            LockedError: another process is at it, and does not come to an end.
        """
        try:
            with self._lock.line(monotonic() + _COMPLETING_SECONDS):
                self._lock.acquire()
                if read_manifest(self._directory) is None:
                    log.warning("%s has no %s; rewriting it", self._directory, MANIFEST)
                    truth = Truth(self._directory / TRUTH)
                    truth.close()
                    with translated(self._directory):
                        write_manifest(self._directory, {"format": FORMAT, "identity": truth.identity, **about})
                        _sync_names(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            log.debug("%s was deleted while it was completed", self._directory)
        finally:
            self._lock.release()

    @property
    def _wants_base(self) -> bool:
        return self._vectors is not None and self._vectors.wants_base

    def _let_go(self) -> None:
        self.keyword.close()
        if self._vectors is not None:
            self._vectors.close()
        self.truth.close()

    def _heal(self) -> None:
        """After a crash or damage the indexes on disk are behind: catch up, unless a living writer is about to."""
        if self.keyword.applied == self.truth.sequence() and not self._wants_base:
            return
        if monotonic() < self._heal_again or not self._writing.acquire(blocking=False):
            return
        already = self._lock.held
        try:
            self._become_writer()
            self._heal_quietly()
        except LockedError:
            log.debug("%s is being written to; its writer will bring the indexes up to date", self._directory)
        except CorruptStoreError:
            raise
        except StoreError as error:  # nothing can be written there
            self._put_off(error)
        finally:
            if not already:
                self._step_down()
            self._writing.release()

    def _heal_quietly(self) -> None:
        """As the writer: bring the indexes up to date if that can be done; searches go on with what there is."""
        try:
            self._derive()
        except CorruptStoreError:
            raise
        except StoreError as error:
            self._put_off(error)

    def _put_off(self, error: StoreError) -> None:
        """Try again later what cannot be done now."""
        self._heal_again = monotonic() + _HEAL_SECONDS
        level = logging.DEBUG if str(error) == str(self.keyword.trouble) else logging.WARNING
        log.log(level, "the indexes of %s cannot be brought up to date now: %s", self._directory, error)
        self.keyword.trouble = error

    def _enter(self, wait: float) -> None:
        """Become the writer for a block, in turn with other processes that wait, and count the block in."""
        until = monotonic() + wait
        with self._writing:
            # Joining others of this process for ever would leave no gap for another process. A block inside of a block
            # must not line up, though, behind somebody who waits for its end.
            nested = getattr(self._own, "depth", 0) > 0
            if wait <= 0 or (self._lock.held and (nested or not self._inside or not self._lock.wanted)):
                self._become_writer()
                self._inside += 1
                return
        try:
            with self._lock.line(until):
                while True:
                    try:
                        with self._writing:
                            self._become_writer()
                            self._inside += 1
                            return
                    except ReplacedError:
                        raise
                    except LockedError:
                        if monotonic() >= until:
                            raise
                    sleep(POLL_SECONDS)
        except FileNotFoundError as error:
            raise _replaced(self._directory) from error

    def _become_writer(self) -> None:
        """Take the lock unless it is held; then see what others have written meanwhile.

        Raises:
            LockedError: another process holds it.
            ReplacedError: another process has deleted the collection; nobody would ever see what is written here.
        """
        if self._lock.held:
            return
        try:
            self._lock.acquire()
        except FileNotFoundError as error:
            raise _replaced(self._directory) from error
        try:
            if self.replaced:
                raise _replaced(self._directory)
            if not self._named:  # who made it may have died before that
                with translated(self._directory):
                    _sync_names(self._directory)
                self._named = True
            with self._deriving:
                self._derive_in_memory(save=False)
            self.keyword.reload()
            if self.keyword.applied > self.truth.sequence():  # transactions are on disk before they are indexed
                raise CorruptStoreError(
                    f"{self._directory / TRUTH} or its log is damaged: the last transactions are missing (there are "
                    f"{self.truth.sequence()}, and {self.keyword.applied} were indexed); 'pointsman verify --repair' "
                    "goes on without them, or restore it from a backup"
                )
        except BaseException:
            self._lock.release()
            raise

    def _step_down(self) -> None:
        """Let others write; what is in memory stays, and searches go on."""
        if self._lock.held:
            try:
                self.keyword.release()  # its writer too: the next process to write needs tantivy's own lock
            finally:
                self._lock.release()

    def _upgrade(self) -> None:
        """Bring up to date what an earlier version has made: the manifest first, since that version looks there."""
        if self.manifest["format"] < FORMAT:
            self.describe(format=FORMAT)
        self.truth.upgrade()

    def _derive(self) -> None:
        """As the writer: bring columns, vectors and keyword index up to the truth, on disk too."""
        with self._deriving:
            self._derive_in_memory(save=True)
        self.keyword.catch_up()  # outside, since it may take long; searches go on meanwhile
        self.keyword.trouble = None

    def _derive_in_memory(self, *, save: bool) -> None:
        """Bring columns and vectors up to the truth; with ``save``, write a new base file of vectors when that pays."""
        target = self.truth.sequence()
        if self.columns.loaded and self._columns_seq != target:  # else what is being read by another thread comes next
            for batch in self.truth.changes(self._columns_seq, texts=False):
                for change in batch:
                    if change.document is None:
                        self.columns.remove(change.key)
                self.columns.put_many((c.key, c.document.metadata) for c in batch if c.document is not None)
            self._columns_seq = target
        vectors = self.vectors
        if vectors is not None and (save or vectors.loaded):
            vectors.catch_up(save=save)
        self._seen = target

    def _load_columns(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """All metadata, and the number after which changes are replayed: those during the load are seen twice."""
        self._columns_seq = self.truth.sequence()
        yield from self.truth.metadata()

    def _matching(self, condition: Condition) -> NDArray[np.int64]:
        """The keys of the documents that meet a condition, by a look at all of them; ids are looked up."""
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


def _difference(what: str, expected: set[int], actual: set[int]) -> list[str]:
    problems = []
    if missing := expected - actual:
        problems.append(f"{what} lacks {len(missing)} documents, the first with key {min(missing)}")
    if extra := actual - expected:
        problems.append(f"{what} holds {len(extra)} documents that are deleted, the first with key {min(extra)}")
    return problems
