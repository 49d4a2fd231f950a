"""The options, the progress and the report of indexing files and folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pointsman.ingest import FileLimits, FileOptions, Problem
from pointsman.values.types import AddResult

if TYPE_CHECKING:
    from pointsman.values.views import AccessRule


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of indexing.

    Attributes:
        passages: passages done: committed, or already stored unchanged.
        expected: estimated total of passages, from the files read so far; None at the beginning.
        path: the file being read; empty at the end.
        vectors: vectors made since all files were read.
        vectors_due: vectors still missing since then.
        share_read: share of the files' bytes that have been read, from 0 to 1.
    """

    passages: int
    expected: int | None
    path: str
    vectors: int = 0
    vectors_due: int = 0
    share_read: float = 0.0


Progress = Callable[[IndexProgress], None]
"""Called after each batch of passages, and when a file begins."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of indexing.

    Attributes:
        files: number of files read; without those of which nothing could be read.
        passages: number of passages by outcome.
        deleted: number of deleted passages, whose file, or place in it, is gone.
        problems: files, and parts of files, that were not indexed, and why.
        vectors_due: documents of the dataset that still lack a vector and are found only by words.
        omissions: number of files and folders that were left out because they are not wanted, by reason; see
            `pointsman.ingest.Omission`. A folder counts once.
        stored_omissions: sources that were left out, and are stored from before; ``prune`` deletes them.
        truncations: documents of the dataset that are longer than the embedder reads; see `Dataset.truncations`.
        notes: what was decided about folders that look like others: whether they were taken for the same one.
    """

    files: int
    passages: AddResult
    deleted: int
    problems: tuple[Problem, ...]
    vectors_due: int = 0
    omissions: Mapping[str, int] = field(default_factory=dict, hash=False)
    stored_omissions: tuple[str, ...] = ()
    truncations: int | None = 0
    notes: tuple[str, ...] = ()

    @property
    def nothing_read(self) -> bool:
        """Whether there were no passages, because of problems or because there is no file to read."""
        has_changes = self.files or self.deleted
        return self.passages == AddResult() and (bool(self.problems) or not has_changes)


class IndexingInterrupted(KeyboardInterrupt):
    """Ctrl-C during indexing; ``report`` says what is kept. Indexing the same paths again continues from there."""

    def __init__(self, report: IndexReport) -> None:
        due = f", {report.vectors_due} without a vector yet" if report.vectors_due else ""
        super().__init__(f"{report.passages.added + report.passages.updated} passages are kept{due}")
        self.report = report


class IndexOptions(FileOptions, total=False):
    """Which files of a folder are indexed, and how. Every option is optional.

    Attributes:
        max_tokens: upper limit of a passage, in estimated tokens, from 16 to 480; by default 256.
        overlap: estimated tokens that neighbouring passages share, up to half of ``max_tokens``; by default 32.
        limits: limits for reading one file.
        encoding: of text that is not UTF-8 and does not declare its own, such as ``"windows-1251"``; by default it is
            guessed. Guesses that are not certain, and what contradicts this, are among the report's problems.
        access: who may see a file: rules such as ``"hr=group:hr,-user:eve"`` or ``"everyone"``, of which the first
            that matches its path counts; nobody may see a file that none matches. Without rules, a file that is stored
            already keeps its access.
        prune: whether to delete what is stored of files that are left out now, by ignore files or options; by default
            it stays, and the report names them.
        on_progress: called after each batch of passages, and when a file begins.
    """

    max_tokens: int | None
    overlap: int | None
    limits: FileLimits | None
    encoding: str | None
    access: Sequence[AccessRule | str] | None
    prune: bool
    on_progress: Progress | None
