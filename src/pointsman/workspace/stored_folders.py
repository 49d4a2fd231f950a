"""Where stored files come from: the folder that each passage was indexed from, and what its sources begin with.

A passage's ``root`` says both, as ``FOLDER`` or ``FOLDER/./NAME``: the file of the source ``NAME/a.md`` is
``FOLDER/a.md``. A file that was given by itself is its own folder; its source is the name alone.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pointsman.tools.errors import InputError
from pointsman.tools.system.locations import with_home
from pointsman.values.filters.conditions import StartsWith

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pointsman.values.filters import Filter
    from pointsman.values.types import Document

_MARK: Final = "/./"  # resolved paths do not contain it
_NO_SOURCE: Final = re.compile(r"~|\.{1,2}(/|$)")  # how a path begins that cannot be a source
_NO_FOLDER: Final = (
    "under names a folder as sources do, such as handbook/drafts, or by its place, such as /home/me/handbook; "
    "--all deletes the whole dataset, as Workspace.drop and Client.drop do"
)


def is_within(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder's or that of something in it.

    >>> is_within("/home/me", "/"), is_within("/home/me", "/home/me"), is_within("/home/me2", "/home/me")
    (True, True, False)
    """
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


class StoredFolder(NamedTuple):
    """A folder, or a file, that was indexed.

    Attributes:
        path: its absolute path, without links.
        name: what the sources of its files begin with, or "".
    """

    path: str
    name: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Return that of a passage; None if it was not indexed from a file.

        >>> StoredFolder.of({"source": "handbook/a.md", "root": "/home/me/book/./handbook"})
        StoredFolder(path='/home/me/book', name='handbook')
        """
        root = metadata.get("root")
        if not isinstance(metadata.get("source"), str) or not isinstance(root, str) or not root.startswith("/"):
            return None
        path, _, name = root.partition(_MARK)
        return cls(path or "/", name)

    @property
    def root(self) -> str:
        """What its passages say under ``root``."""
        return f"{self.path.rstrip('/')}{_MARK}{self.name}" if self.name else self.path

    def relative(self, source: str) -> str:
        """Return the path in it of the file of a source.

        >>> StoredFolder("/home/me/book", "handbook").relative("handbook/a.md")
        'a.md'
        """
        return source.removeprefix(self.name).lstrip("/") if self.name else source

    def file_path(self, source: str) -> str:
        """Return the absolute path of the file of a source.

        >>> StoredFolder("/home/me/book", "handbook").file_path("handbook/a.md")
        '/home/me/book/a.md'
        """
        relative = self.relative(source)
        return f"{self.path.rstrip('/')}/{relative}" if relative else self.path

    def source(self, path: str) -> str:
        """Return the source of a file or folder in it, given by its absolute path.

        >>> StoredFolder("/home/me/book", "handbook").source("/home/me/book/a.md")
        'handbook/a.md'
        """
        relative = path[len(self.path) :].strip("/")
        return "/".join(filter(None, (self.name, relative)))


def names_of_folder(path: str | os.PathLike[str]) -> list[str]:
    """Return what a person may mean by the path of a folder of stored files, the first one first.

    It may be written as the sources are, or as the place of the folder on this machine, which need not be there still.

    Raises:
        InputError: it names no folder, or that of everything.
    """
    text = os.fspath(path)
    path_here = os.path.normpath(with_home(text).absolute())
    if not text.strip("/ ") or path_here.strip("/") == "":
        raise InputError(_NO_FOLDER)
    names = [path_here, str(with_home(text).resolve())]
    if not _NO_SOURCE.match(text) and (name := posixpath.normpath(text.strip("/"))) and not _NO_SOURCE.match(name):
        names.insert(0, name)
    return list(dict.fromkeys(names))


def in_named_folder(name: str) -> Filter:
    """Return the filter for the files in a folder, named as sources name it.

    Raises:
        InputError: it names no folder, or leads out of it.
    """
    normal_name = posixpath.normpath(name.strip("/"))
    if not name.strip("/ ") or _NO_SOURCE.match(name) or _NO_SOURCE.match(normal_name):
        raise InputError(f"{_NO_FOLDER}; not {name!r:.200}")
    return StartsWith("source", f"{normal_name}/")


def ids_within(documents: Iterable[Document], path: str) -> list[str]:
    """Return the ids of those documents that come from a file, or the files in a folder, given by its absolute path."""
    return [
        document.id
        for document in documents
        if (folder := StoredFolder.of(document.metadata)) is not None
        and is_within(folder.file_path(str(document.metadata["source"])), path)
    ]
