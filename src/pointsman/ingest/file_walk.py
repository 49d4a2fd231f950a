"""Which files of some folders are read, in which order and under which ids, and what is left out."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypedDict, Unpack

from pointsman.ingest.file_patterns import IgnoreRules, patterns_of
from pointsman.ingest.source_text import FoundFile, Problem
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.system.locations import distinct_endings, with_home

MAX_BYTES: Final = 50 << 20
"""Default limit of a file's size, in bytes."""

SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})
"""Folders with third-party or generated files."""

_LONGEST_PATH: Final = (
    640  # bytes; with the id of a record and a digest it stays within the 1024 bytes of a document's id
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Reason = Literal["excluded", "hidden", "skipped", "ignored", "not included"]


class FileOptions(TypedDict, total=False):
    """Which files of a folder are read. Every option is optional.

    Patterns are those of ``.gitignore``, relative to the given folder. Ignore files are ``.gitignore`` and ``.ignore``,
    which outranks the first, also those of the folders above, up to the top of the repository if there is one.

    Attributes:
        hidden: whether to read files and folders whose name starts with a dot; False by default.
        include: patterns; only files that one of them names are read.
        exclude: patterns of files and folders that are not read.
        ignore_files: whether to leave out what ignore files name; True by default.
        max_bytes: larger files are reported.
        skip: names of folders to skip.
    """

    hidden: bool
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    ignore_files: bool
    max_bytes: int
    skip: Collection[str]


@dataclass(frozen=True, slots=True)
class Omission:
    """A file or folder that is not read because it is not wanted.

    Attributes:
        path: where it is.
        id: what its id would be; that of a folder ends with a slash.
        reason: ``"excluded"`` or ``"not included"`` by the caller, ``"ignored"`` by an ignore file, ``"hidden"``, or
            ``"skipped"``: a virtual environment, a workspace, or a folder of `SKIPPED_FOLDERS`.
    """

    path: Path
    id: str
    reason: Reason


def find_files(
    paths: Iterable[str | Path], *, names: Mapping[str, str] | None = None, **options: Unpack[FileOptions]
) -> Iterator[FoundFile | Problem | Omission]:
    """Walk files and folders in a fixed order, without reading them.

    A file's id is its path relative to the given folder, in POSIX form; if several paths are given, it begins with the
    folder's name. What is given is read, unless it is excluded or not included; in a folder, everything is read that
    is not an `Omission`. Symbolic links are not followed: targets inside the folder are read in their own place, and
    links that lead outside are reported.

    Args:
        paths: Files and folders.
        names: Ids of some of them, and of files and folders in them, by absolute path without links; ids of what is in
            a folder begin with the folder's.
        options: See `FileOptions`.

    Raises:
        InputError: A path does not exist, or is a folder that must not be read, or none is given; or a pattern is none.
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
    if unknown_options := options.keys() - FileOptions.__annotations__:
        raise UnknownNameError("option of indexing", min(unknown_options), tuple(FileOptions.__annotations__))
    own_names = {str(root): name for root, name in default_names(roots).items()}
    return _Walk({**own_names, **(names or {})}, options).items(roots)


class _PathEntry(NamedTuple):
    """A file or folder to visit.

    Attributes:
        path: its absolute path.
        id: its id.
        relative_path: its path from the given folder; empty for this folder.
        rules: what the ignore files of the folders above it say.
    """

    path: str
    id: str
    relative_path: str
    rules: IgnoreRules


class _Walk:
    """Visits files and folders; see `find_files`."""

    def __init__(self, names: Mapping[str, str], options: FileOptions) -> None:
        self._names = names
        self._reads_hidden, self._heeds_rules = options.get("hidden", False), options.get("ignore_files", True)
        self._max_bytes, self._skip = options.get("max_bytes", MAX_BYTES), options.get("skip", SKIPPED_FOLDERS)
        self._included = patterns_of(options.get("include", ()), "include")
        self._excluded = patterns_of(options.get("exclude", ()), "exclude")

    def items(self, roots: list[Path]) -> Iterator[FoundFile | Problem | Omission]:
        """Yield what there is, and which patterns name nothing."""
        reasons: set[str] = set()
        for item in self._items(roots):
            reasons.add(item.reason if isinstance(item, Omission) else type(item).__name__)
            yield item
        if self._excluded and "excluded" not in reasons:
            yield Problem(f"exclude: {', '.join(self._excluded.lines)}", "nothing matches what is to be excluded")
        if self._included and "not included" in reasons and FoundFile.__name__ not in reasons:
            yield Problem(f"include: {', '.join(self._included.lines)}", "no file matches what is to be included")

    def _items(self, roots: list[Path]) -> Iterator[FoundFile | Problem | Omission]:
        real_paths: set[str] = set()
        is_single_file = len(roots) == 1 and roots[0].is_file()
        for root in roots:
            rules = IgnoreRules.above(root) if self._heeds_rules and root.is_dir() else IgnoreRules()
            yield from rules.problems
            waiting = [_PathEntry(str(root), self._names[str(root)], "" if root.is_dir() else root.name, rules)]
            while waiting:
                entry = waiting.pop()
                path = Path(entry.path)
                if entry.path in real_paths:
                    continue  # given twice, or inside another root
                real_paths.add(entry.path)
                try:
                    status = os.lstat(path)
                    is_folder = stat.S_ISDIR(status.st_mode)
                    if entry.relative_path and (omission := self._omission(entry, is_folder, is_given=path == root)):
                        yield Omission(path, entry.id + "/" * is_folder, omission)
                    elif is_folder:
                        rules = entry.rules.within(entry.path, entry.id) if self._heeds_rules else entry.rules
                        yield from rules.problems if self._heeds_rules else ()  # each once
                        waiting.extend(reversed(self._children(entry, rules)))
                    elif stat.S_ISLNK(status.st_mode):
                        if not path.resolve(strict=True).is_relative_to(root):
                            yield Problem(entry.id, "a link that leads outside; index its target directly")
                    elif reason := _refused(entry.id, status, self._max_bytes):
                        yield Problem(entry.id, reason)
                    else:
                        yield FoundFile(path, entry.id, status.st_size, is_single_file)
                except (OSError, RuntimeError) as error:  # a symlink loop is a RuntimeError before Python 3.13
                    yield from self._unreadable(entry, getattr(error, "strerror", None) or str(error))

    def _unreadable(self, entry: _PathEntry, reason: str) -> Iterator[Problem]:
        """Yield the problem of a file or folder, and of those in it whose ids do not begin with its own."""
        inner_names = [name for path, name in self._names.items() if path.startswith(f"{entry.path.rstrip('/')}/")]
        for name in dict.fromkeys((entry.id, *inner_names)):
            yield Problem(name or ".", f"cannot be read: {reason}")

    def _children(self, entry: _PathEntry, rules: IgnoreRules) -> list[_PathEntry]:
        with os.scandir(entry.path) as entries:
            children = sorted(entries, key=lambda child: os.fsencode(child.name))
        identity, relative_path = (f"{start}/" if start else "" for start in (entry.id, entry.relative_path))
        return [
            _PathEntry(
                child.path,
                self._names.get(child.path, identity + readable_name(child.name)),
                relative_path + child.name,
                rules,
            )
            for child in children
        ]

    def _omission(self, entry: _PathEntry, is_folder: bool, *, is_given: bool) -> Reason | None:
        """Return why a file or folder is not read; None if it is."""
        path = Path(entry.path)
        if self._excluded.decision(entry.relative_path, is_folder=is_folder):
            return "excluded"
        if not is_given:
            if path.name.startswith(".") and not self._reads_hidden:
                return "hidden"
            if is_folder and (path.name in self._skip or _is_machinery(path)):
                return "skipped"
            if entry.rules.ignore(entry.path, is_folder=is_folder):
                return "ignored"
        is_included = is_folder or not self._included or self._included.cover(entry.relative_path)
        return None if is_included else "not included"


def _refused(identity: str, status: os.stat_result, max_bytes: int) -> str | None:
    """Return why something is not read; None if it is a file to read."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"  # opening a pipe would block forever
    if (length := len(identity.encode("utf-8", "replace"))) > _LONGEST_PATH:
        return f"its path has {length} bytes, more than {_LONGEST_PATH}; shorten it"
    if status.st_size > max_bytes:
        return f"{status.st_size} bytes are more than the limit of {max_bytes} bytes; raise max_bytes to index it"
    return None


def _is_machinery(folder: Path) -> bool:
    """Whether a folder is a virtual environment, a workspace or a dataset, which users do not mean to index."""
    marks = (("pyvenv.cfg",), ("workspace.json", "datasets"), ("manifest.json", "documents.sqlite"))
    try:
        return any(all((folder / name).exists() for name in names) for names in marks)
    except PermissionError:
        return False  # what cannot be looked into is a problem of its own


def readable_name(name: str) -> str:
    r"""Return a file's name as text: bytes that are not UTF-8 and control characters are written as ``\xff``.

    >>> readable_name("a\nb")
    'a\\x0ab'
    """
    text = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def default_names(paths: Iterable[str | Path]) -> dict[Path, str]:
    """Return the ids of absolute paths that are given: none for one folder, else distinct endings of the paths."""
    roots = list(map(Path, paths))
    return {roots[0]: ""} if len(roots) == 1 and roots[0].is_dir() else distinct_names(roots)


def distinct_names(paths: Iterable[Path], taken_names: Collection[str] = ()) -> dict[Path, str]:
    """Return the shortest distinct endings of absolute paths that are not taken; numbered if all endings are."""
    texts = {path: readable_name(str(path)).strip("/") or "root" for path in paths}
    endings = distinct_endings(texts.values(), taken_names)
    return {path: _with_number(endings[text], taken_names) for path, text in texts.items()}


def _with_number(name: str, taken_names: Collection[str]) -> str:
    numbered_names = (f"{name}-{number}" for number in count(2))
    return name if name not in taken_names else next(free for free in numbered_names if free not in taken_names)
