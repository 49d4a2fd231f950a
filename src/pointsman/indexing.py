"""Bringing a dataset in step with files and folders: what is new or changed goes in, what is gone goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.ingest import FileReader, FoundFile, Problem, Sync, find_files
from pointsman.types import AddResult, Document

if TYPE_CHECKING:
    from pointsman.dataset import Dataset

_BATCH = 256  # passages collected over files before they are embedded and written together

Progress = Callable[[int, int, str], None]
"""Called with bytes read so far, bytes in all, and what is being read."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing did: files read, passages by fate, and what could not be read."""

    files: int
    passages: AddResult
    deleted: int
    problems: tuple[Problem, ...]


def index_paths(
    dataset: Dataset, paths: Iterable[str | Path], *, hidden: bool = False, on_progress: Progress | None = None
) -> IndexReport:
    """Make a dataset hold just what is under ``paths`` now; other paths indexed into it before stay as they are.

    Each passage remembers the path it was indexed under in ``metadata["root"]``, so only passages of these very paths
    are taken out when their file, or their place in it, is gone. A file that cannot be read is reported, keeps what
    is stored of it, and never stops the others.

    Args:
        dataset: where to.
        paths: files and folders.
        hidden: whether to read files and folders whose name starts with a dot.
        on_progress: see `Progress`.

    Raises:
        InputError: a path does not exist.
        LockedError: another process is writing to the dataset.
    """
    roots = [str(Path(path).resolve()) for path in paths]
    found = list(find_files(roots, hidden=hidden))
    sync = Sync(document for document in dataset if document.metadata.get("root") in roots)
    problems = [item for item in found if isinstance(item, Problem)]
    files = [item for item in found if isinstance(item, FoundFile)]
    total, done = sum(file.size for file in files) or 1, 0
    passages, waiting = AddResult(), list[Document]()

    with FileReader() as reader:
        for file in files:
            root = _root_of(file, roots)
            if on_progress:
                on_progress(done, total, file.id)
            for part in reader.read(file):
                problems += part.problems
                rooted = replace(part, documents=tuple(_with_root(document, root) for document in part.documents))
                fresh = sync.changed(rooted)
                passages += AddResult(unchanged=len(rooted.documents) - len(fresh))
                waiting += fresh
                if len(waiting) >= _BATCH:
                    passages += dataset.add(waiting)
                    waiting.clear()
            done += file.size
    passages += dataset.add(waiting)
    if on_progress:
        on_progress(total, total, "")
    return IndexReport(len(files), passages, dataset.delete(sync.gone()), tuple(problems))


def _root_of(file: FoundFile, roots: Sequence[str]) -> str:
    """The innermost of the given paths that the file is under."""
    return max((root for root in roots if file.path.is_relative_to(root)), key=len, default=roots[0])


def _with_root(document: Document, root: str) -> Document:
    return replace(document, metadata={**document.metadata, "root": root})
