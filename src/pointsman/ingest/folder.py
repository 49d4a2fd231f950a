"""Files and folders to documents, one file at a time, and what has changed since the last time."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP, document_digest
from pointsman.ingest.reader import FileReader, ReadResult
from pointsman.ingest.source_text import FoundFile, Problem
from pointsman.tools.errors import InputError
from pointsman.tools.system.locations import with_home

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pointsman.ingest.reading_limits import FileLimits
    from pointsman.values.types import Document

MAX_BYTES = 50 << 20
"""Default limit of a file's size, in bytes."""

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})
"""Folders with third-party or generated files; folders whose name starts with a dot are skipped as well."""

_LONGEST_PATH = 640  # bytes; with the id of a record and a digest it stays within the 1024 bytes of a document's id
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def find_files(
    paths: Iterable[str | Path],
    *,
    max_bytes: int = MAX_BYTES,
    skip: Collection[str] = SKIPPED_FOLDERS,
    hidden: bool = False,
) -> Iterator[FoundFile | Problem]:
    """Walk files and folders in a fixed order, without reading them.

    A file's id is its path relative to the given folder, in POSIX form; if several paths are given, it begins with the
    folder's name. Hidden files and folders, virtual environments, workspaces and ``skip`` are skipped silently unless
    given explicitly. Symbolic links are not followed: targets inside the folder are read in their own place, and links
    that lead outside are reported.

    Args:
        paths: Files and folders.
        max_bytes: Larger files are reported.
        skip: Names of folders to skip.
        hidden: Whether to read files and folders whose name starts with a dot.

    Raises:
        InputError: A path does not exist, or is a folder that must not be read, or none is given.
    """
    roots = list(dict.fromkeys(with_home(path).absolute() for path in paths))
    if not roots:
        raise InputError("no path given; give at least one file or folder")
    for root in roots:
        if not os.access(root, os.F_OK, effective_ids=True):  # nor in a folder that must not be looked into
            raise InputError(f"no file or folder at {str(root)!r}; check the path")
        if root.is_dir() and not os.access(root, os.R_OK | os.X_OK, effective_ids=True):
            raise InputError(f"the folder {str(root)!r} cannot be read: permission denied; check its permissions")
    roots = list(dict.fromkeys(root.resolve() for root in roots))
    return _walk(roots, max_bytes, frozenset(skip), hidden)


def read_paths(
    paths: Iterable[str | Path],
    *,
    max_tokens: int = MAX_TOKENS,
    overlap: int = OVERLAP,
    max_bytes: int = MAX_BYTES,
    skip: Collection[str] = SKIPPED_FOLDERS,
    hidden: bool = False,
    limits: FileLimits | None = None,
) -> Iterator[ReadResult]:
    """Read, convert and cut everything under ``paths``, lazily; a bad file is a problem, never an exception.

    Sizes are those of `chunk`, ``limits`` those of `FileReader`, the rest those of `find_files`, which also documents
    ids and skipped files. Records (JSON, JSON lines, tables) keep their own ids unchanged if a single file is given, as
    in a BEIR folder's ``corpus.jsonl``; otherwise their ids are ``path#id``.
    """
    files = find_files(paths, max_bytes=max_bytes, skip=skip, hidden=hidden)
    return _read_all(files, FileReader(max_tokens=max_tokens, overlap=overlap, limits=limits))


def _read_all(items: Iterable[FoundFile | Problem], reader: FileReader) -> Iterator[ReadResult]:
    with reader:
        for item in items:
            if isinstance(item, Problem):
                yield ReadResult(item.path, problems=(item,))
            else:
                yield from reader.read(item)


def text_of(path: str | Path, *, sha256: str | None = None, limits: FileLimits | None = None) -> str:
    r"""Return the text of a file, to which the ``start`` and ``end`` of its passages refer.

    For plain text and source code it is the decoded content, with line ends as ``\n``; for other formats the extracted
    text. The same bytes always give the same text::

        text_of(path)[passage.metadata["start"] : passage.metadata["end"]] == passage.text

    Args:
        path: A file.
        sha256: Digest of the expected content, as in the passages' metadata.
        limits: Limits of reading the file.

    Raises:
        InputError: The file cannot be read, or its content has changed.
    """
    if sha256 is not None and Path(path).is_file() and (new_hash := _sha256(Path(path))) != sha256:
        raise InputError(f"{path} has changed since it was indexed: its SHA-256 is {new_hash}, not {sha256}")
    with FileReader(limits=limits) as reader:
        return reader.text(path)


def _sha256(path: Path) -> str:
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

    def __init__(self, documents: Iterable[Document]) -> None:
        self._stored_digests = {
            document.id: (str(document.metadata.get("source", "")), document_digest(document)) for document in documents
        }
        self._ids_so_far: set[str] = set()
        self._readable_paths: set[str] = set()
        self._failed_paths: set[str] = set()
        self._stopped_paths: set[str] = set()

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

    def deleted_ids(self) -> list[str]:
        """Return the ids that were stored before and not seen again, in the order in which they were stored."""
        failed_paths = (self._failed_paths - self._readable_paths) | self._stopped_paths
        folders = tuple("" if path == "." else f"{path}/" for path in failed_paths)
        return [
            identity
            for identity, (source, _) in self._stored_digests.items()
            if identity not in self._ids_so_far and source not in failed_paths and not source.startswith(folders)
        ]


def plan_sync(documents: Iterable[Document], results: Iterable[ReadResult]) -> tuple[list[Document], list[str]]:
    """Return what to add and which ids to delete so that the stored documents become the ingested ones; see `Sync`."""
    sync = Sync(documents)
    to_add = [document for item in results for document in sync.changed_documents(item)]
    return to_add, sync.deleted_ids()


def _walk(roots: list[Path], max_bytes: int, skip: frozenset[str], with_hidden: bool) -> Iterator[FoundFile | Problem]:
    real_paths: set[str] = set()
    is_single_file = len(roots) == 1 and roots[0].is_file()
    for root, name in zip(roots, _root_names(roots), strict=True):
        prefix = name if len(roots) > 1 or not root.is_dir() else ""
        waiting = [(str(root), prefix)]
        while waiting:
            path, identity = waiting.pop()
            if path in real_paths:
                continue  # given twice, or inside another root
            real_paths.add(path)
            try:
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode):
                    waiting.extend(reversed(_children(path, identity, skip, with_hidden)))
                elif stat.S_ISLNK(status.st_mode):
                    if not Path(path).resolve(strict=True).is_relative_to(root):
                        yield Problem(identity, "a link that leads outside; index its target directly")
                elif reason := _refused(identity, status, max_bytes):
                    yield Problem(identity, reason)
                else:
                    yield FoundFile(Path(path), identity, status.st_size, is_single_file)
            except (OSError, RuntimeError) as error:  # a symlink loop is a RuntimeError before Python 3.13
                reason = getattr(error, "strerror", None) or str(error)
                yield Problem(identity or ".", f"cannot be read: {reason}")


def _refused(identity: str, status: os.stat_result, max_bytes: int) -> str | None:
    """Return why something is not read; None if it is a file to read."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"  # opening a pipe would block forever
    if (length := len(identity.encode("utf-8", "replace"))) > _LONGEST_PATH:
        return f"its path has {length} bytes, more than {_LONGEST_PATH}; shorten it"
    if status.st_size > max_bytes:
        return f"{status.st_size} bytes are more than the limit of {max_bytes} bytes; raise max_bytes to index it"
    return None


def _children(path: str, identity: str, skip: frozenset[str], with_hidden: bool) -> list[tuple[str, str]]:
    with os.scandir(path) as entries:
        children = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    paths = []
    for entry in children:
        if entry.name.startswith(".") and not with_hidden:
            continue
        if entry.is_dir(follow_symlinks=False) and (entry.name in skip or _is_machinery(Path(entry.path))):
            continue
        name = _readable_name(entry.name)
        paths.append((entry.path, f"{identity}/{name}" if identity else name))
    return paths


def _is_machinery(folder: Path) -> bool:
    """Whether a folder is a virtual environment, a workspace or a dataset, which users do not mean to index."""
    marks = (("pyvenv.cfg",), ("workspace.json", "datasets"), ("manifest.json", "documents.sqlite"))
    try:
        return any(all((folder / name).exists() for name in names) for names in marks)
    except PermissionError:
        return False  # what cannot be looked into is a problem of its own


def _readable_name(name: str) -> str:
    r"""Return a file's name as text: bytes that are not UTF-8 and control characters are written as ``\xff``.

    >>> _readable_name("a\nb")
    'a\\x0ab'
    """
    text = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _root_names(roots: list[Path]) -> list[str]:
    """Return the shortest distinct endings of the roots' paths."""
    root_steps = [[_readable_name(steps) for steps in root.parts[1:]] or ["root"] for root in roots]
    lengths = [1] * len(roots)
    while True:
        names = ["/".join(steps[-length:]) for steps, length in zip(root_steps, lengths, strict=True)]
        counts = Counter(names)
        longer = [
            length + (counts[name] > 1 and length < len(steps))
            for steps, name, length in zip(root_steps, names, lengths, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer
