"""One dataset on disk: the truth, and the two indexes and the metadata columns derived from it.

Everything derived states the sequence number it has applied. Opening, writing and refreshing are therefore the same
thing: bring what is behind up to the truth. One process at a time may write; any number may read, and they see a
write as soon as it is in the indexes.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.errors import CorruptStoreError, FormatVersionError, InputError, LockedError
from pointsman.store.columns import Columns
from pointsman.store.files import WriterLock, replacing
from pointsman.store.keyword import B, K1, KeywordIndex, damaged_files
from pointsman.store.truth import Prepared, Truth
from pointsman.store.vectors import VectorIndex
from pointsman.types import AddResult

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

log = logging.getLogger(__name__)

FORMAT = 1
_MANIFEST = "manifest.json"


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """What a dataset directory says of itself; None where there is no dataset.

    Raises:
        FormatVersionError: it was written in a format this version does not know.
        CorruptStoreError: the manifest cannot be read.
    """
    path = directory / _MANIFEST
    if not path.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        version = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error
    if version != FORMAT:
        raise FormatVersionError(
            f"{directory} is in format {version!r}, this version of pointsman knows format {FORMAT}; "
            "open it with the version that wrote it, or index the documents again into a new dataset"
        )
    return manifest


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest as a whole."""
    with replacing(directory / _MANIFEST) as file:
        file.write(json.dumps(manifest, ensure_ascii=False, indent=2).encode())


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
        directory.mkdir(parents=True, exist_ok=True)
        manifest = read_manifest(directory)
        if manifest is None:
            manifest = {"format": FORMAT, **(about or {})}
            write_manifest(directory, manifest)
        self.manifest = manifest
        self._directory = directory
        self._lock = WriterLock(directory)
        self._writing = threading.RLock()
        self._deriving = threading.Lock()
        self.truth = Truth(directory / "documents.sqlite")
        self.columns = Columns(self.truth.metadata)
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
        self._seen = self.truth.sequence()
        self._heal()

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

    def refresh(self) -> None:
        """See what has been written since, by whatever process; a look-up of microseconds when there is nothing."""
        seq = self.truth.sequence()
        if self._seen == seq == self.keyword.applied:
            return
        self._derive(save=False)
        self.keyword.reload()
        if self.keyword.applied < seq:
            self._heal()

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Become the writer; when the block ends, whatever it wrote is in the indexes.

        The process stays the writer until ``close``, so that the next write need not ask again.

        Raises:
            LockedError: another process is.
        """
        with self._writing:
            self._lock.acquire()
            try:
                yield
            finally:
                self._derive(save=True)

    def write(self, prepared: Sequence[Prepared], vectors: NDArray[np.float32] | None, embedder: str = "") -> AddResult:
        """Write documents durably, inside ``with writer()``; ids must differ.

        Raises:
            InputError: vectors of another number, length or embedder than the collection has.
        """
        if vectors is None:
            return self.truth.upsert(prepared)
        rows = np.ascontiguousarray(vectors, np.float32)
        if rows.ndim != 2 or len(rows) != len(prepared):
            raise InputError(f"vectors of shape {rows.shape} for {len(prepared)} documents; expected one row for each")
        self._fix_embedder(embedder, rows.shape[1])
        return self.truth.upsert(prepared, [row.tobytes() for row in rows])

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents; unknown ids are passed over. Returns how many there were."""
        with self.writer():
            return self.truth.delete(ids)

    def rebuild(self) -> None:
        """Throw the derived indexes away and build them anew from the truth."""
        with self.writer():
            self.keyword.clear()
            if self.vectors is not None:
                self.vectors.clear()

    def describe(self, **about: Any) -> None:
        """Change what the manifest says of the collection."""
        with self._writing:
            self.manifest = {**self.manifest, **about}
            write_manifest(self._directory, self.manifest)

    def close(self) -> None:
        """Finish writing and let go of all files; the lock goes last."""
        self.keyword.close()
        if self._vectors is not None:
            self._vectors.close()
        self.truth.close()
        self._lock.release()

    def remove(self) -> None:
        """Delete the collection with all its files.

        Raises:
            LockedError: another process is writing to it.
        """
        with self._writing:
            self._lock.acquire()
            self.close()
            shutil.rmtree(self._directory)

    # ── proving ──────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> Verification:
        """Compare the indexes with the truth, key by key and vector by vector."""
        self.refresh()
        problems = [f"documents.sqlite: {complaint}" for complaint in self.truth.check()]
        alive = dict(self.truth.alive())
        in_keyword = set(self.keyword.keys())
        problems += _difference("the keyword index", set(alive), in_keyword)
        keyword = self._directory / "keyword"
        if (keyword / "meta.json").exists():
            problems += [f"keyword/{path.name} is damaged" for path in damaged_files(keyword)]
        in_vectors: set[int] = set()
        if self.vectors is not None:
            in_vectors = set(self.vectors.keys().tolist())
            problems += _difference("the vector index", {key for key, has_vector in alive.items() if has_vector}, in_vectors)
            problems += self.vectors.disagreements()
        return Verification(len(alive), len(in_keyword), len(in_vectors), tuple(problems))

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _heal(self) -> None:
        """After a crash the keyword index is behind: catch up at once, unless a living writer is about to."""
        if self.keyword.applied == self.truth.sequence() or not self._writing.acquire(blocking=False):
            return
        already = self._lock.held
        try:
            self._lock.acquire()
            self._derive(save=True)
        except LockedError:
            log.debug("%s is being written to; its writer will bring the keyword index up to date", self._directory)
        finally:
            if self._lock.held and not already:
                self.keyword.close()  # its writer too: the next process to write needs tantivy's own lock
                self._lock.release()
            self._writing.release()

    def _derive(self, *, save: bool) -> None:
        """Bring columns and vectors, and as the writer the keyword index, up to the truth."""
        with self._deriving:
            since, target = self._seen, self.truth.sequence()
            if target != since and self.columns.loaded:
                for batch in self.truth.changes(since, vectors=False):
                    for change in batch:
                        if change.document is None:
                            self.columns.remove(change.key)
                        else:
                            self.columns.put(change.key, change.document.metadata)
            if self.vectors is not None:
                self.vectors.catch_up(save=save)
            if save:
                self.keyword.catch_up()
            self._seen = target

    def _fix_embedder(self, name: str, dimensions: int) -> None:
        if self.embedder is None:
            self.truth.set_meta(embedder=name, dimensions=str(dimensions))
        known = (self.embedder, int(self.truth.meta("dimensions") or 0))
        if known != (name, dimensions):
            raise InputError(
                f"{self._directory.name!r} holds vectors of {known[0]!r} ({known[1]} dimensions), not of {name!r} "
                f"({dimensions}); open it with that embedder, or index into a new dataset"
            )


def _difference(what: str, expected: set[int], held: set[int]) -> list[str]:
    problems = []
    if missing := expected - held:
        problems.append(f"{what} lacks {len(missing)} documents, the first with key {min(missing)}")
    if extra := held - expected:
        problems.append(f"{what} holds {len(extra)} documents that are deleted, the first with key {min(extra)}")
    return problems
