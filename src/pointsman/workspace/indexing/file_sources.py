"""Gives each file its source: the one under which it is stored already, whichever path it is indexed by now.

The sources of a folder's files are their paths in the first folder that was indexed with them. A folder in it, a link
to it and the folder around it keep them, and so does the same folder elsewhere: a checkout, or one that was renamed.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Unpack

from pointsman.ingest import FileOptions, FoundFile, Omission, Problem, find_files
from pointsman.ingest.file_walk import default_names, distinct_names
from pointsman.ingest.folder import file_digest
from pointsman.text.unicode import compose
from pointsman.workspace.stored_folders import StoredFolder, is_within

if TYPE_CHECKING:
    from pointsman.values.types import Document

_SAME_SHARE: Final = 0.8
"""Share of equal files, of all in either, from which two folders in different places are the same folder."""

_ALIKE_SHARE: Final = 0.5
"""Share from which it is said that two folders were not taken for the same one."""


class FileSources:
    """Knows which files are stored, and under which sources.

    Args:
        paths: the absolute paths to index, without links.

    Attributes:
        paths: the same, each once.
        notes: what was decided about folders that look like others.
        moved_folders: folders that were indexed before and are now elsewhere, by where they were.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = dict.fromkeys(paths)
        self._digests: dict[StoredFolder, dict[str, str]] = {}  # of files, by source
        self._sources_of_texts: set[str] = set()  # of documents that are from no file
        self._file_paths: dict[str, str] = {}  # of stored files in what is given, by source
        self._record_sources: set[str] = set()  # files whose records are stored under ids of their own
        self._folders: dict[str, StoredFolder] = {}
        self._names: dict[str, str] = {}
        self.notes: list[str] = []
        self.moved_folders: dict[StoredFolder, StoredFolder] = {}

    def noted_documents(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Take note of all documents of a dataset, and yield those from files in what is given."""
        for document in documents:
            folder, source = StoredFolder.of(document.metadata), document.metadata.get("source")
            if not isinstance(source, str):
                continue
            if folder is None:
                self._sources_of_texts.add(source)
                continue
            self._digests.setdefault(folder, {})[source] = str(document.metadata.get("sha256"))
            if self._is_given(file_path := folder.file_path(source)):
                self._file_paths[source] = file_path
                if document.id != source and not document.id.startswith(f"{source}#"):
                    self._record_sources.add(source)
                yield document

    def documents_elsewhere(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield those documents of a dataset whose folder has been recognised in another place."""
        for document in documents if self.moved_folders else ():
            if (folder := StoredFolder.of(document.metadata)) in self.moved_folders:
                source = str(document.metadata["source"])
                self._file_paths[source] = self.moved_folders[folder].file_path(source)
                yield document

    def find(self, **options: Unpack[FileOptions]) -> Iterator[FoundFile | Problem | Omission]:
        """Find the files in what is given, under their sources; see `find_files`."""
        paths_by_source = self._files_elsewhere()
        stored_forms = {compose(source): source for source in self._file_paths if not source.isascii()}
        for item in find_files(self.paths, names=self._names, **options):
            if not isinstance(item, FoundFile):
                yield item
                continue
            source = item.id
            stored_source = stored_forms.get(compose(source), source)  # that of the same name in NFC or NFD
            if source not in self._file_paths and not os.path.lexists(self._file_paths.get(stored_source, "")):
                source = stored_source
            if (source_path := paths_by_source.setdefault(source, str(item.path))) != str(item.path):
                yield Problem(source, f"the source of {source_path}, so {item.path} is not indexed; rename that")
                continue
            is_single = source in self._record_sources if source in self._file_paths else item.is_single
            yield replace(item, id=source, is_single=is_single)

    def root(self, file: FoundFile) -> str:
        """Return what the passages of a file say under ``root``."""
        path = _innermost(str(file.path), self._folders)
        assert path is not None, "each given path is in a folder of its own, or in a stored one"
        return self._folders[path].root

    def paths_in_given(self, files: Iterable[FoundFile]) -> dict[str, str]:
        """Return by source the paths of files in the folder that was given, to which rules of access refer.

        They begin with the folder's name if several were given; that of a file that was given is its name.
        """
        folders = {str(path): StoredFolder(str(path), name) for path, name in default_names(self.paths).items()}
        return {file.id: _first(str(file.path), folders).source(str(file.path)) for file in files}

    def file_path(self, source: str) -> str:
        """Return the absolute path of a stored file in what is given."""
        return self._file_paths[source]

    def _is_given(self, path: str) -> bool:
        return _innermost(path, self.paths) is not None

    def decide(self, **options: Unpack[FileOptions]) -> None:
        """Decide what the sources in each folder begin with, from what is stored."""
        self._folders = self._stored_folders()
        new_paths: dict[str, None] = {}
        for path in sorted(self.paths):
            if _innermost(path, self._folders) is None and _innermost(path, new_paths) is None:
                new_paths[path] = None
        for path in list(new_paths):
            if self._recognise(path, options):
                del new_paths[path]
        taken_names = self._taken_names()
        names = distinct_names(map(Path, new_paths), taken_names) if taken_names else default_names(new_paths)
        self._folders |= {str(path): StoredFolder(str(path), name) for path, name in names.items()}
        self._names = {path: folder.name for path, folder in self._folders.items() if self._is_given(path)}
        for path in self.paths:
            folder = self._folders[_innermost(path, self._folders) or path]
            self._names[path] = folder.source(path)

    def _stored_folders(self) -> dict[str, StoredFolder]:
        """Return the folders whose names count, by path: of two with the same name, the outer or first one."""
        by_name: dict[str, StoredFolder] = {}
        for folder in sorted(self._digests):
            is_near = self._is_given(folder.path) or any(is_within(path, folder.path) for path in self.paths)
            if not is_near or any(os.path.lexists(folder.file_path(source)) for source in self._digests[folder]):
                by_name.setdefault(folder.name, folder)
        return {folder.path: folder for folder in by_name.values()}

    def _taken_names(self) -> set[str]:
        """Return the sources of what stays stored, and the folders in them."""
        sources = set(self._sources_of_texts)
        for folder, digests in self._digests.items():
            stays = self._folders.get(folder.path) == folder
            sources |= {source for source in digests if stays or not self._is_given(folder.file_path(source))}
        names = {folder.name for folder in self._folders.values()} - {""}
        for name in (*sources, *names):
            while name and name not in names:
                names.add(name)
                name = posixpath.dirname(name)  # noqa: PLW2901  (the next one)
        return names

    def _files_elsewhere(self) -> dict[str, str]:
        """Return the places of stored files that are not in what is given, by source."""
        return {
            source: file_path
            for folder in self._folders.values()
            for source in self._digests.get(folder, ())
            if not self._is_given(file_path := folder.file_path(source))
        }

    def _recognise(self, path: str, options: FileOptions) -> bool:
        """Whether something in a new place is a folder or a file that was indexed in another."""
        candidates = [
            folder
            for folder in self._folders.values()
            if not self._is_given(folder.path)
            and not any(is_within(path_to_index, folder.path) for path_to_index in self.paths)
        ]
        if not candidates:
            return False
        files = {
            compose(item.id): item.path
            for item in find_files([path], names={path: ""}, **options)
            if isinstance(item, FoundFile) and _innermost(str(item.path), self._folders) is None
        }
        comparisons = [(*self._compare(folder, path, files), folder) for folder in candidates]
        same_count, total, folder = max(comparisons, key=lambda comparison: comparison[0] / comparison[1])
        counts = f"{same_count:,} of {total:,} files are the same"
        if same_count >= _SAME_SHARE * total:
            self._folders[path] = self.moved_folders[folder] = StoredFolder(path, folder.name)
            del self._folders[folder.path]
            self.notes.append(
                f"{path} is taken for {folder.path}, indexed before: {counts}; to keep both, index both in one command"
            )
            return True
        if same_count >= _ALIKE_SHARE * total:
            self.notes.append(
                f"{path} is indexed beside {folder.path}: only {counts}; if it has taken its place, delete what is "
                f"stored of that: pointsman delete --under {folder.path}"
            )
        return False

    def _compare(self, folder: StoredFolder, path: str, files: Mapping[str, Path]) -> tuple[int, int]:
        """Return how many files of a stored and a new folder are equal in path and bytes, and how many there are.

        Only files of kinds that are stored count: nothing is stored of files without text.
        """
        stored_digests = {compose(folder.relative(source)): digest for source, digest in self._digests[folder].items()}
        if "" in stored_digests and posixpath.basename(folder.path) != posixpath.basename(path):
            return 0, 1  # two files by themselves
        kinds = {PurePosixPath(name).suffix for name in stored_digests}
        names = {name for name in files if name in stored_digests or PurePosixPath(name).suffix in kinds}
        total = len(names | stored_digests.keys())
        common = names & stored_digests.keys()
        if len(common) < _ALIKE_SHARE * total:
            return 0, total
        return sum(_digest(files[name]) == stored_digests[name] for name in common), total


def _first(path: str, folders: Mapping[str, StoredFolder]) -> StoredFolder:
    """Return the first of some folders that contains a path, or is it."""
    return next(folder for folder in folders.values() if is_within(path, folder.path))


def _digest(path: Path) -> str | None:
    try:
        return file_digest(path)
    except OSError:  # whoever reads it next reports that
        return None


def _innermost(path: str, folders: Mapping[str, Any]) -> str | None:
    """Return the innermost of some folders, by absolute path, that contains a path or is it; None if none does."""
    while path not in folders:
        if path == "/":
            return None
        path = posixpath.dirname(path)
    return path
