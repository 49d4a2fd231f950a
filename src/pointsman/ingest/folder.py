"""Files and folders to documents, one file at a time, and what has changed since the last time."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP, document_digest
from pointsman.ingest.file_walk import FileOptions, Omission, find_files
from pointsman.ingest.reader import FileReader, ReadResult
from pointsman.ingest.source_text import FoundFile, Problem
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pointsman.ingest.reading_limits import FileLimits
    from pointsman.values.types import Document


def read_paths(
    paths: Iterable[str | Path],
    *,
    max_tokens: int = MAX_TOKENS,
    overlap: int = OVERLAP,
    limits: FileLimits | None = None,
    encoding: str | None = None,
    **options: Unpack[FileOptions],
) -> Iterator[ReadResult]:
    """Read, convert and cut everything under ``paths``, lazily; a bad file is a problem, never an exception.

    Sizes are those of `chunk`, ``limits`` and ``encoding`` those of `FileReader`, the rest those of `find_files`, which
    also documents ids and what is left out. Records (JSON, JSON lines, tables) keep their own ids unchanged if a single
    file is given, as in a BEIR folder's ``corpus.jsonl``; otherwise their ids are ``path#id``.
    """
    reader = FileReader(max_tokens=max_tokens, overlap=overlap, limits=limits, encoding=encoding)
    return _read_all(find_files(paths, **options), reader)


def _read_all(items: Iterable[FoundFile | Problem | Omission], reader: FileReader) -> Iterator[ReadResult]:
    with reader:
        for item in items:
            if isinstance(item, Problem):
                yield ReadResult(item.path, problems=(item,))
            elif isinstance(item, FoundFile):
                yield from reader.read(item)


def text_of(
    path: str | Path, *, sha256: str | None = None, limits: FileLimits | None = None, encoding: str | None = None
) -> str:
    r"""Return the text of a file, to which the ``start`` and ``end`` of its passages refer.

    For plain text and source code it is the decoded content, with line ends as ``\n``; for other formats the extracted
    text. The same bytes always give the same text::

        text_of(path)[passage.metadata["start"] : passage.metadata["end"]] == passage.text

    Args:
        path: A file.
        sha256: Digest of the expected content, as in the passages' metadata.
        limits: Limits of reading the file.
        encoding: That of `FileReader`, as it was when the file was indexed.

    Raises:
        InputError: The file cannot be read, or its content has changed.
    """
    if sha256 is not None and Path(path).is_file() and (new_hash := file_digest(Path(path))) != sha256:
        raise InputError(f"{path} has changed since it was indexed: its SHA-256 is {new_hash}, not {sha256}")
    with FileReader(limits=limits, encoding=encoding) as reader:
        return reader.text(path)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal digits, as passages say it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Sync:
    """Tells new and changed documents from unchanged ones while files are read, and at the end which are gone.

    Holds an id, a source and a digest for each stored document, never their texts::

        sync = Sync(stored_documents)
        for item in read_paths(paths):
            dataset.add(sync.changed(item))
        dataset.delete(sync.gone())

    A file that could not be read to its end this time, or a folder that could not be listed (``.`` is the one that was
    given), keeps what is stored of it.
    """

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._stored_digests: dict[str, tuple[str, str]] = {}
        self.note(documents)
        self._ids_so_far: set[str] = set()
        self._readable_paths: set[str] = set()
        self._failed_paths: set[str] = set()
        self._stopped_paths: set[str] = set()

    def note(self, documents: Iterable[Document]) -> None:
        """Take note of stored documents."""
        for document in documents:
            self._stored_digests[document.id] = str(document.metadata.get("source", "")), document_digest(document)

    def changed_documents(self, result: ReadResult) -> list[Document]:
        """Return the documents that are not stored in exactly this form.

        If only metadata differ, such as offsets after an edit further up, the text and its vector are unchanged.
        """
        if result.is_stopped:
            self._stopped_paths.add(result.path)
        (self._failed_paths if result.problems and not result.documents else self._readable_paths).add(result.path)
        self._ids_so_far.update(document.id for document in result.documents)
        return [
            document
            for document in result.documents
            if self._stored_digests.get(document.id, ("", ""))[1] != document_digest(document)
        ]

    def missing_documents(self) -> dict[str, str]:
        """Return what was stored before and not seen again, in the order in which it was stored: sources by id."""
        failed_paths = (self._failed_paths - self._readable_paths) | self._stopped_paths
        folders = tuple("" if path == "." else f"{path}/" for path in failed_paths)
        return {
            identity: source
            for identity, (source, _) in self._stored_digests.items()
            if identity not in self._ids_so_far and source not in failed_paths and not source.startswith(folders)
        }

    def deleted_ids(self) -> list[str]:
        """Return the ids of what was stored before and not seen again."""
        return list(self.missing_documents())


def plan_sync(documents: Iterable[Document], results: Iterable[ReadResult]) -> tuple[list[Document], list[str]]:
    """Return what to add and which ids to delete so that the stored documents become the ingested ones; see `Sync`."""
    sync = Sync(documents)
    to_add = [document for item in results for document in sync.changed_documents(item)]
    return to_add, sync.deleted_ids()
