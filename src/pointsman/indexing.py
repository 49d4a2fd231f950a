"""Bringing a dataset in step with files and folders: what is new or changed goes in, what is gone goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.ingest import FileLimits, FileReader, FoundFile, Ingested, Problem, Sync, find_files
from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP
from pointsman.types import AddResult, Document

if TYPE_CHECKING:
    from pointsman.dataset import Dataset

_BATCH = 64
"""Passages that are embedded and committed together: found by a search two seconds after they were read."""

_WORDS_BATCH = 1000
"""The same where nothing is embedded, and a commit takes longer than the rest."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far indexing is.

    Attributes:
        passages: that are done: committed, or stored just so before.
        expected: passages in all, as far as the files read until now tell; None at the beginning.
        path: the file that is being read; empty at the end.
    """

    passages: int
    expected: int | None
    path: str


Progress = Callable[[IndexProgress], None]
"""Called after each batch of passages, and when a file begins."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing did.

    Attributes:
        files: how many were read.
        passages: by fate.
        deleted: passages whose file, or place in it, is gone.
        problems: files, and parts of files, that were not indexed, and why.
    """

    files: int
    passages: AddResult
    deleted: int
    problems: tuple[Problem, ...]

    @property
    def nothing_read(self) -> bool:
        """Whether there were problems and not one passage."""
        return bool(self.problems) and self.passages == AddResult()


class IndexingInterrupted(KeyboardInterrupt):
    """Ctrl-C while indexing; ``report`` says what is kept. Indexing the same paths again goes on from there."""

    def __init__(self, report: IndexReport) -> None:
        super().__init__(f"{report.passages.added + report.passages.updated} passages are kept")
        self.report = report


def index_paths(
    dataset: Dataset,
    paths: Iterable[str | Path],
    *,
    hidden: bool = False,
    max_tokens: int = MAX_TOKENS,
    overlap: int = OVERLAP,
    limits: FileLimits | None = None,
    on_progress: Progress | None = None,
) -> IndexReport:
    """Make a dataset hold just what is under ``paths`` now; other paths indexed into it before stay as they are.

    Each passage remembers the path it was indexed under in ``metadata["root"]``, so only passages of these very paths
    are taken out when their file, or their place in it, is gone. Passages are committed in small batches and can be
    searched from then on. A file that cannot be read, or costs more than it may, is reported, keeps what is stored of
    it, and never stops the others.

    Args:
        dataset: where to.
        paths: files and folders.
        hidden: whether to read files and folders whose name starts with a dot.
        max_tokens: upper limit of a passage, in estimated tokens, from 16 to 480.
        overlap: estimated tokens that neighbouring passages share, up to half of ``max_tokens``.
        limits: what reading one file may cost.
        on_progress: see `Progress`.

    Raises:
        InputError: a path does not exist, or a size is out of range.
        LockedError: another process is writing to the dataset.
        IndexingInterrupted: Ctrl-C; what was committed until then stays.
    """
    roots = [str(Path(path).resolve()) for path in paths]
    run = _Run(dataset, roots, list(find_files(roots, hidden=hidden)), on_progress or (lambda _: None))
    with FileReader(max_tokens=max_tokens, overlap=overlap, limits=limits) as reader:
        try:
            return run.index(reader)
        except KeyboardInterrupt as error:
            raise IndexingInterrupted(run.report()) from error


class _Run:
    """One indexing of some paths: what waits to be committed, and what was done."""

    def __init__(
        self, dataset: Dataset, roots: Sequence[str], found: Sequence[FoundFile | Problem], on_progress: Progress
    ) -> None:
        self._dataset, self._roots, self._on_progress = dataset, roots, on_progress
        self._sync = Sync(document for document in dataset if document.metadata.get("root") in roots)
        self._problems = [item for item in found if isinstance(item, Problem)]
        self._files = [item for item in found if isinstance(item, FoundFile)]
        self._bytes = sum(file.size for file in self._files)
        self._batch = _WORDS_BATCH if dataset.indexing_technique == "keyword" else _BATCH
        self._waiting: list[Document] = []
        self._passages = AddResult()
        self._deleted = self._done = self._read = 0
        self._bytes_done = self._bytes_of_file = 0
        self._path = ""

    def index(self, reader: FileReader) -> IndexReport:
        for file in self._files:
            self._path = file.id
            self._tell()
            root = _root_of(file, self._roots)
            for part in reader.read(file):
                self._take(part, root)
                ends = (document.metadata["end"] for document in part.documents)
                self._bytes_of_file = min(max(ends, default=0), file.size)
            self._read += 1
            self._bytes_done, self._bytes_of_file = self._bytes_done + file.size, 0
        self._commit()
        self._deleted = self._dataset.delete(self._sync.gone())
        self._path = ""
        self._tell()
        return self.report()

    def report(self) -> IndexReport:
        return IndexReport(self._read, self._passages, self._deleted, tuple(self._problems))

    def _take(self, part: Ingested, root: str) -> None:
        self._problems += part.problems
        rooted = replace(part, documents=tuple(_with_root(document, root) for document in part.documents))
        fresh = self._sync.changed(rooted)
        unchanged = len(rooted.documents) - len(fresh)
        self._passages += AddResult(unchanged=unchanged)
        self._done += unchanged
        self._waiting += fresh
        while len(self._waiting) >= self._batch:
            self._commit()

    def _commit(self) -> None:
        batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        if batch:
            self._passages += self._dataset.add(batch)
            self._done += len(batch)
            self._tell()

    def _tell(self) -> None:
        read = self._bytes_done + self._bytes_of_file
        known = self._done + len(self._waiting)
        expected = max(known, known * self._bytes // read) if read and known else None
        self._on_progress(IndexProgress(self._done, expected if self._path else self._done, self._path))


def _root_of(file: FoundFile, roots: Sequence[str]) -> str:
    """The innermost of the given paths that the file is under."""
    return max((root for root in roots if file.path.is_relative_to(root)), key=len, default=roots[0])


def _with_root(document: Document, root: str) -> Document:
    return replace(document, metadata={**document.metadata, "root": root})
