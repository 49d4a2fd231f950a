"""The keyword index of one dataset: BM25 by tantivy over this library's tokens, derived from the truth.

Every commit includes a marker document with the sequence number it has applied and the identity of the dataset, so
the number and the postings reach the disk together or not at all. Catching up deletes and adds by key and is
therefore idempotent.

tantivy fixes k1 = 1.2 and b = 0.75, rounds document lengths to one byte, takes the mean of the rounded lengths for the
mean length, and counts deleted documents until a merge happens to remove them. Here documents are scored by the formula
with the documents that there are: each term's weight is corrected by the count of living documents, and the hits that
can be among the best are scored again, from the counts of their terms. These counts are stored beside each document's
postings (`pointsman.store.local.keyword.term_codes` says how), so they are committed, checked, merged and deleted with
them,
and no text is analysed in a search. If other constants are requested, a deeper candidate list is scored again in the
same way. When deleted documents outnumber living ones, the index is rebuilt; the deletions amortise it.

An index is built in a temporary directory that then replaces the old one, so readers never see a partial index.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tantivy

from pointsman.store.bm25 import K1, B, check_constants
from pointsman.store.local import files_and_locks
from pointsman.store.local.keyword.facet_terms import FIELD as FACETS
from pointsman.store.local.keyword.facet_terms import facets
from pointsman.store.local.keyword.keyword_files import damaged_files, note_checksums, segments
from pointsman.store.local.keyword.keyword_schema import CODES, MARKER, SCHEMA, all_addresses, codes_in, key_query
from pointsman.store.local.keyword.keyword_state import IndexSubset, KeywordState, empty_state
from pointsman.store.local.keyword.term_codes import TermCodes
from pointsman.store.local.keyword.word_query import WordQuery
from pointsman.store.local.truth.document_changes import DocumentChange
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import PointsmanError, StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tantivy import IndexWriter

    from pointsman.store.local.columns.metadata_columns import Columns
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document

    Changes = Iterable[Sequence[DocumentChange]]

log = logging.getLogger(__name__)

_FORMAT = 4
_HEAP_BYTES = 96_000_000
_COMPACT = 1000  # with fewer deleted documents than this, rebuilding the index never pays
_RELOADS = 500  # after so many the index is opened again
# The one kind of file whose name two writes can share: a segment's, with the number of the operation.
_IN_THE_WAY = re.compile(r"""FileAlreadyExists\("([0-9a-f]{32}\.[0-9]+\.del)"\)""")
_LONG_WRITE = 2_000  # documents after which small segments are merged at once …
_MERGED = 8  # … so many of them, as tantivy waits for, …
_SMALL = 16_800  # … which counts those of up to so many documents as of one size
_STORED_BLOCK = 1024  # bytes of counts compressed together: reading one document decompresses as many


class DocumentSource(Protocol):
    """The source of a keyword index: a truth with a sequence number and a log."""

    @property
    def identity(self) -> str:
        """Identifies the source; an index with a different identity is foreign and is rebuilt."""
        ...

    def sequence(self) -> int:
        """Return the number of the last change."""
        ...

    def changes(self, sequence: int) -> Iterator[Sequence[DocumentChange]]:
        """Yield the last change of every key after ``sequence``, in batches."""
        ...

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Return documents by key, None for deleted ones."""
        ...


class KeywordIndex:
    """BM25 over one source; only ``catch_up`` needs the writer lock.

    Args:
        directory: location of the index; created if missing.
        source: the truth.
        columns: answers filters; without it a filtered search raises `InputError`.
        k1: term frequency saturation of BM25.
        b: length normalisation of BM25, 0 to 1.
        refresh: called before every search, to bring the index up to date.
    """

    def __init__(
        self,
        directory: Path,
        source: DocumentSource,
        *,
        columns: Columns | None = None,
        k1: float = K1,
        b: float = B,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        check_constants(k1, b)
        self._directory, self._source, self._columns = directory, source, columns
        self._origin = f"{DEFAULT_ANALYZER.fingerprint} {source.identity}"
        self._writer_codes = TermCodes()  # those of the last write of this object, and what it has learnt since
        self._k1, self._b = k1, b
        self._refresh = refresh or (lambda: None)
        self._index: tantivy.Index | None = None
        self._writer: IndexWriter | None = None
        self._snapshot: KeywordState | None = None  # may outlive its files while they are rebuilt
        self._applied_sequence = -1
        self._reloads = 0  # since the index was opened
        self._looked_at: object = None  # the state of the files that `_applied_sequence` describes
        self._mirror: Path | None = None  # directory of links through which the index is read
        self._anew = False  # the next catch-up starts from an empty index
        self._written_count = 0  # documents since a write began
        self._last_keys: list[int] = []  # of the last of them
        self._writes = False  # this object is writing: until it is done, its searches ignore the state on disk
        self._told_missing = False
        self.trouble: StoreError | None = None
        """Why the last update failed; if no index exists, searches raise it."""
        self._guard = threading.Lock()

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        """Return at most ``k`` keys with BM25 scores, best first, ties by key; filters act before the cut."""
        self._refresh()
        return self.query(query).search(k, filters)

    def score(self, query: str, keys: Sequence[int]) -> list[float]:
        """Return the same scores for given keys, in their order; 0 for documents without any word of the query."""
        self._refresh()
        return self.query(query).score(keys)

    def frequencies(self, texts: Sequence[str]) -> list[int]:
        """Return how many documents contain the rarest word of each text, without looking for changes by others."""
        return list(map(self._current().frequency, texts))

    def query(self, text: str, subset: IndexSubset | None = None, *, repeatable: bool = False) -> WordQuery:
        """Return a query of the index as it is, or of a part of it, without looking for changes by others.

        One that is ``repeatable`` finds the same in any index of the same documents, however it came about.
        """
        snapshot = self._current() if subset is None else subset
        return WordQuery(snapshot, text, self._columns, self._k1, self._b, repeatable=repeatable)

    def subset(self, keys: NDArray[np.int64], former: IndexSubset | None = None) -> IndexSubset:
        """Return the index as it is, as if only some documents existed.

        Args:
            keys: their keys, ascending.
            former: returned if it is still current.
        """
        snapshot = self._current()
        if former is not None and former.is_of(snapshot) and former.keys is keys:
            return former
        return IndexSubset(snapshot, keys)

    # ── keeping up ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def applied(self) -> int:
        """The sequence number of the index on disk; -1 when there is no usable index."""
        if self._looked_at is None:
            self.reload()
        return self._applied_sequence

    @property
    def shown(self) -> int:
        """The sequence number of the state that searches see; -1 while they return nothing for lack of an index."""
        return -1 if self._snapshot is None else self._snapshot.seq

    def reload(self) -> None:
        """Load what a writer has committed since."""
        with self._guard:
            stamp = files_and_locks.file_stamp(self._directory / "meta.json")
            if stamp == self._looked_at or self._writes:
                return
            self._looked_at = stamp
            if self._index is not None:
                try:
                    self._reloads += 1
                    if self._due and self._writer is None:
                        self._index = self._open()
                    else:
                        self._index.reload()
                    self._load_snapshot(self._index)
                except BaseException as error:
                    if not _of_tantivy(error):
                        raise
                    log.info("keyword index %s is being reopened (%s)", self._directory, error)
                else:
                    return
            self._load()

    @property
    def _due(self) -> bool:
        """Whether to open the index again: tantivy keeps some 1.7 kB of each commit until then."""
        return self._reloads >= _RELOADS

    def catch_up(self) -> None:
        """Apply what the source has logged since the last call; the caller holds the writer lock.

        A damaged, foreign or missing index is rebuilt from the source, and the reason is logged.

        Raises:
            StoreError: the index cannot be written; the documents are safe, and the next attempt continues from there.
        """
        self.reload()  # whoever wrote to it last: what is written now has to be in the codes that the index has
        start = self.applied
        target = self._source.sequence()  # read first: what is written meanwhile is applied again next time
        if start == target and not self._anew:
            return
        try:
            try:
                self._apply(start, target)
            except BaseException as error:
                if not (_of_tantivy(error) and self._removed_leftover(error)):
                    raise
                self._apply(start, target)
        except BaseException as error:
            if _of_tantivy(error):
                raise self._unwritten(error) from error
            raise
        note_checksums(self._directory)
        self.reload()

    def _apply(self, sequence: int, target: int) -> None:
        try:
            self._writes = True
            # An index ahead of its truth belongs to another state of it.
            if self._anew or not 0 <= sequence <= target or self._wasteful:
                self._build(target)
            else:
                self._write(self._source.changes(sequence), target, is_new=not sequence)
        except BaseException:
            self._drop_writer()  # its uncommitted changes must not reach a later commit
            raise
        finally:
            self._writes = False

    def _removed_leftover(self, error: BaseException) -> bool:
        """Remove the file of deletions that a write interrupted before its commit left, if that is in the way."""
        match = _IN_THE_WAY.search(str(error))
        if match is not None:
            log.info("keyword index %s: removing %s, left by an interrupted write", self._directory, match[1])
            (self._directory / match[1]).unlink(missing_ok=True)
        return match is not None

    def _unwritten(self, error: BaseException) -> StoreError:
        note = "the documents are stored; the index will be updated as soon as it can be written"
        cause = _as_os_error(error)
        # Tantivy does not report why a thread died.
        if cause.errno is None and not files_and_locks.has_free_space(self._directory.parent):
            return files_and_locks.disk_full_error(self._directory, note)
        return files_and_locks.store_error(self._directory, cause, note)

    def clear(self) -> None:
        """Make the next ``catch_up`` rebuild the index, whatever its state; until then searches use the current one."""
        self._anew = True

    def release(self) -> None:
        """Let another process write; searches continue on the open files."""
        if self._writer is not None:
            self._settle()
            self._drop_writer()
            note_checksums(self._directory)  # including those of merged segments
            if self._due:
                self._looked_at = None
            self.reload()

    def _settle(self) -> None:
        """At the end of a long write, as the writer: let tantivy merge now what one of the next writes would wait for.

        It merges eight small segments, and a long write may leave seven of ten thousand documents. So a few documents
        of the last one are written again, one a commit, until there are eight.
        """
        document_count, self._written_count = self._written_count, 0
        if document_count < _LONG_WRITE:
            return
        self._drop_writer()  # what is being merged is finished
        sizes = [
            each["max_doc"] - (each["deletes"] or {}).get("num_deleted_docs", 0) for each in segments(self._directory)
        ]
        small_count = sum(size <= _SMALL for size in sizes)
        keys = self._last_keys[: _MERGED - small_count]
        if small_count < 2 or small_count + len(keys) < _MERGED:
            return
        try:
            for key, document in zip(keys, self._source.fetch(keys), strict=True):
                self._write([[DocumentChange(key, document)]], self.applied)
                self.reload()
        except BaseException as error:
            self._drop_writer()
            if not (_of_tantivy(error) or isinstance(error, StoreError)):
                raise
            log.info("small segments of %s are not merged now: %s", self._directory, error)

    def close(self) -> None:
        """Close the files; committed changes are kept."""
        self.release()
        with self._guard:
            self._drop_mirror()
            self._index = self._snapshot = self._looked_at = None
            self._applied_sequence = -1

    def keys(self) -> Iterator[int]:
        """Return every key in the index, to compare it with the truth."""
        searcher = self._current().searcher
        keys: Any = searcher.fast_field_values("key", all_addresses(searcher))
        return (key for key in keys if key >= 0)

    def _current(self) -> KeywordState:
        if self._snapshot is None:
            self.reload()
        if self._snapshot is not None:
            return self._snapshot
        if self.trouble is not None and self._source.sequence():
            raise self.trouble
        if self._source.sequence() and not self._told_missing:
            self._told_missing = True
            log.warning(
                "keyword index %s does not exist yet; nothing is found until its writer has built it", self._directory
            )
        return empty_state()

    def _load(self) -> None:
        """Open the index on disk if it is intact and belongs to this source; called with the guard held."""
        self._index, self._applied_sequence = None, -1
        while (state := files_and_locks.file_stamp(self._directory / "meta.json")) != "absent":
            try:
                for path in damaged_files(self._directory):
                    raise ValueError(f"{path.name} is damaged or belongs to another index")
                index = self._open()
                if index.schema != SCHEMA:
                    raise ValueError("meta.json has an unexpected schema")
                self._load_snapshot(index)
            except BaseException as error:
                if not _of_tantivy(error):
                    raise
                if _as_os_error(error).errno in _PASSING:  # no reason to rebuild the index
                    self._looked_at = None
                    if self._snapshot is None:
                        raise files_and_locks.store_error(self._directory, _as_os_error(error)) from error
                    return
                if files_and_locks.file_stamp(self._directory / "meta.json") != state:
                    continue  # a writer replaced files during the check
                log.warning("keyword index %s cannot be used (%.200s); rebuilding it", self._directory, error)
            else:
                self._index = index
            return

    @property
    def _wasteful(self) -> bool:
        """Whether most documents in the index are deleted."""
        dead, alive = 0, 0
        for segment in segments(self._directory):
            deleted = (segment["deletes"] or {}).get("num_deleted_docs", 0)
            dead, alive = dead + deleted, alive + segment["max_doc"] - deleted
        return dead > max(alive, _COMPACT)

    def _build(self, target: int) -> None:
        """Build a new index beside the current one, then replace the current one."""
        self._drop_writer()
        folder = self._directory.parent
        files_and_locks.make_directory(folder)
        files_and_locks.collect_leftovers(folder)
        with files_and_locks.directory_aside(folder) as directory:
            writer = _new_index(directory).writer(_HEAP_BYTES, 1)
            try:
                self._fill(writer, TermCodes(), self._source.changes(0), target, is_new=True)
            finally:
                writer.wait_merging_threads()
            note_checksums(directory)
            with self._guard:
                self._index = None
                self._anew, self._applied_sequence, self._looked_at = False, -1, None
            files_and_locks.replace_directory(self._directory, directory)

    def _open(self) -> tantivy.Index:
        """Open the index on disk; if nothing can be written beside it, not even a lock, through links to its files."""
        self._reloads = 0
        try:
            return tantivy.Index.open(str(self._directory))
        except (ValueError, OSError) as error:
            if _as_os_error(error).errno not in _UNWRITABLE:
                raise
        self._drop_mirror()
        self._mirror = Path(tempfile.mkdtemp(prefix="pointsman-"))
        weakref.finalize(self, shutil.rmtree, self._mirror, ignore_errors=True)
        for path in self._directory.iterdir():
            if path.suffix != ".lock":
                (self._mirror / path.name).symlink_to(path.absolute())
        return tantivy.Index.open(str(self._mirror))

    def _drop_mirror(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            shutil.rmtree(mirror, ignore_errors=True)  # open files stay open

    def _load_snapshot(self, index: tantivy.Index) -> None:
        searcher = index.searcher()
        hits = searcher.search(key_query(MARKER), 1, count=False).hits
        if not hits:
            raise ValueError("its first build was not completed")
        marker, _, seq = str(searcher.doc(hits[0][1])["marker"][0]).partition("\n")
        if marker != f"{_FORMAT} {self._origin}":
            if marker.rpartition(" ")[2] == self._origin.rpartition(" ")[2]:
                raise ValueError("another version of Pointsman has made it, which splits texts by other rules")
            raise ValueError(f"it belongs to {marker!r}, not to '{_FORMAT} {self._origin}'")
        codes, content = self._snapshot.codes if self._snapshot else TermCodes(), codes_in(searcher)
        if codes.content != content:
            codes = TermCodes(content)
        self._snapshot, self._applied_sequence = KeywordState(searcher, int(seq), codes), int(seq)

    def _write(self, changes: Changes, target: int, *, is_new: bool = False) -> None:
        writer = self._open_writer()
        writer.delete_documents_by_term("key", MARKER)
        codes, content = self._writer_codes, self._current().codes.content
        self._fill(writer, codes if codes.content == content else TermCodes(content), changes, target, is_new=is_new)

    def _fill(self, writer: IndexWriter, codes: TermCodes, changes: Changes, target: int, *, is_new: bool) -> None:
        """Apply changes, and commit.

        Args:
            writer: of the index.
            codes: those that the index has; what is learnt is committed, too.
            changes: in batches.
            target: the sequence number to note.
            is_new: whether the index has no documents, so that there is nothing to delete.
        """
        self._writer_codes, content = codes, codes.content
        for batch in changes:
            for change in batch:
                if not is_new:
                    writer.delete_documents_by_term("key", change.key)
                if change.document is not None:
                    writer.add_document(_postings(change.key, change.document, codes))
            keys = [change.key for change in batch if change.document is not None]
            self._written_count, self._last_keys = self._written_count + len(keys), keys[-_MERGED:]
        marker = tantivy.Document()
        marker.add_integer("key", MARKER)
        marker.add_text("marker", f"{_FORMAT} {self._origin}\n{target}")
        writer.add_document(marker)
        if codes.content != content:
            writer.delete_documents_by_term("key", CODES)
            document = tantivy.Document()
            document.add_integer("key", CODES)
            document.add_bytes("counts", codes.content)
            writer.add_document(document)
        writer.commit()

    def _open_writer(self) -> IndexWriter:
        with self._guard:
            if self._writer is None:
                if self._mirror is not None:
                    self._drop_mirror()
                    self._index = tantivy.Index.open(str(self._directory))
                assert self._index is not None  # a missing or damaged index is not written to, but built
                self._writer = self._index.writer(_HEAP_BYTES, 1)
                self._writer.garbage_collect_files()  # after a kill, leftover delete files would block the writer
            return self._writer

    def _drop_writer(self) -> None:
        with self._guard:
            writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.wait_merging_threads()
            except ValueError as error:  # it has died; the reason was reported when it did
                log.debug("the writer of %s had ended already (%s)", self._directory, error)


_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def _of_tantivy(error: BaseException) -> bool:
    """Whether an error was raised by tantivy or the system underneath; tantivy panics on some kinds of damage."""
    if isinstance(error, PointsmanError):
        return False
    return isinstance(error, ValueError | OSError | KeyError | TypeError) or type(error).__name__ == "PanicException"


def _as_os_error(error: BaseException) -> OSError:
    """Return the operating system error that tantivy's message describes; without an errno if it describes none."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)|code: (\d+), kind:", str(error))
    if number is None:
        return OSError(str(error)[:300])
    return OSError(code := int(number[1] or number[2]), os.strerror(code))


def _postings(key: int, document: Document, codes: TermCodes) -> tantivy.Document:
    tokens = DEFAULT_ANALYZER.tokens(document.searchable)
    posting = tantivy.Document()
    posting.add_integer("key", key)
    posting.add_integer("length", len(tokens))
    posting.add_text("body", " ".join(tokens))
    posting.add_bytes("counts", codes.encode(tokens))
    posting.add_text(FACETS, facets(document.metadata))
    return posting


def _new_index(directory: Path) -> tantivy.Index:
    """Create an index whose stored counts are compressed in small blocks; tantivy takes that from its own file only."""
    index = tantivy.Index(SCHEMA, path=str(directory))
    path = directory / "meta.json"
    meta = json.loads(path.read_text())
    if "docstore_blocksize" not in meta.get("index_settings", {}):
        return index
    meta["index_settings"]["docstore_blocksize"] = _STORED_BLOCK
    path.write_text(json.dumps(meta))
    return tantivy.Index.open(str(directory))
