"""Patterns of paths as in ``.gitignore``: those of ignore files, and what a caller includes and excludes.

Git's documentation says what they mean: https://git-scm.com/docs/gitignore. They may come with the folder of a
stranger: RE2 matches them in linear time, where Python's regular expressions may take hours.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pointsman.ingest.source_text import Problem
from pointsman.text import repair
from pointsman.text.unicode import compose
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

IGNORE_FILES: Final = (".gitignore", ".ignore")
"""Names of ignore files; of two in one folder, the second outranks the first."""

_MAX_BYTES: Final = 1 << 18  # of an ignore file
_AT_ONCE: Final = 500  # patterns that RE2 compiles together, within its limit of memory
_FOLDER: Final = "(?P<ps_d>/)"  # how pathspec marks the end of a folder's name in a regular expression
_FOLDER_OR_END: Final = f"(?:{_FOLDER}|$)"


class FilePatterns:
    """Patterns of paths relative to a folder; of those that match a path, the last one decides.

    Args:
        lines: one pattern each; blank lines and comments are none.

    Attributes:
        lines: the same.
        invalid_lines: the numbers, from 1, of lines that cannot be patterns, and are not heeded.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.invalid_lines = list(lines), set[int]()
        patterns = []
        for number, line in enumerate(self.lines, 1):
            try:
                patterns += [(number, pattern) for pattern in _patterns(line)]
            except (ValueError, re.error):
                self.invalid_lines.add(number)
        self._sets = []
        for batch in batched(patterns, _AT_ONCE):
            try:
                self._sets.append(_PatternSet([pattern for _, pattern in batch]))
            except ValueError:
                self.invalid_lines.update(number for number, _ in batch)

    def __bool__(self) -> bool:
        return bool(self._sets)

    def decision(self, path: str, *, is_folder: bool = False) -> bool | None:
        """Whether they name a path (True) or exempt it (False); None if none of them matches.

        What they say of the folders above a path is not asked for.
        """
        name = _as_people_see(path)
        decisions = (patterns.decision(name, is_folder) for patterns in reversed(self._sets))
        return next((decision for decision in decisions if decision is not None), None)

    def cover(self, path: str) -> bool:
        """Whether they name a file or a folder above it, and do not exempt it."""
        steps = path.split("/")
        decisions = (
            self.decision("/".join(steps[:count]), is_folder=count < len(steps)) for count in range(len(steps), 0, -1)
        )
        return next((decision for decision in decisions if decision is not None), False)

    def without(self, folder: str) -> FilePatterns:
        """Return those that do not match a folder."""
        return FilePatterns(
            line for line in self.lines if FilePatterns([line]).decision(folder, is_folder=True) is None
        )


class _Pattern(NamedTuple):
    """A pattern as a regular expression, whether it names or exempts, and whether it is for folders alone."""

    regex: str
    names: bool
    is_for_folders: bool


def _patterns(line: str) -> Iterator[_Pattern]:
    """Yield what pathspec makes of a line, so that it matches no path for a folder above it.

    Raises:
        ValueError: the line cannot be a pattern.
        re.error: the same.
    """
    from pathspec import GitIgnoreSpec

    is_for_folders = line.rstrip(" \r").endswith("/")
    if is_for_folders and line.rstrip(" \r/").endswith("/**"):  # the folders in one, which pathspec takes for that one
        line = line.rstrip(" \r/") + "/*/"
    with warnings.catch_warnings():  # of sets such as [[a], which mean here what they say
        warnings.simplefilter("ignore", FutureWarning)
        spec = GitIgnoreSpec.from_lines([_as_people_see(line)], backend="simple")
    for pattern in spec.patterns:
        if pattern.include is not None and pattern.regex is not None:
            regex = pattern.regex.pattern.replace(_FOLDER_OR_END, "$").replace(_FOLDER, "$")
            yield _Pattern(regex, pattern.include, is_for_folders)


class _PatternSet:
    """Patterns that RE2 matches together.

    Raises:
        ValueError: they would take too much memory.
    """

    def __init__(self, patterns: Sequence[_Pattern]) -> None:
        import re2

        options = re2.Options()
        options.log_errors, options.dot_nl = False, True
        self._patterns, self._set = patterns, re2.Set.SearchSet(options)
        try:
            for pattern in patterns:
                self._set.Add(pattern.regex)
            self._set.Compile()
        except re2.error as error:
            raise ValueError(str(error)) from error

    def decision(self, path: str, is_folder: bool) -> bool | None:
        numbers = self._set.Match(path) or ()
        last = max((n for n in numbers if is_folder or not self._patterns[n].is_for_folders), default=None)
        return None if last is None else self._patterns[last].names


def patterns_of(lines: str | Iterable[str], name: str) -> FilePatterns:
    """Return the patterns that a caller gives under a name such as ``exclude``.

    Raises:
        InputError: one of them is none.
    """
    lines = [lines] if isinstance(lines, str) else list(lines)
    for line in lines:
        if not isinstance(line, str) or not FilePatterns([line]):
            raise InputError(f"{name} takes patterns of paths as in .gitignore, such as '*.md', not {line!r:.80}")
    return FilePatterns(lines)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """What the ignore files of a folder and of those above it say of the paths in the folder.

    Attributes:
        rules: the absolute path of each folder with an ignore file, the outermost first, and its patterns.
        problems: what is wrong with ignore files that were read last.
    """

    rules: tuple[tuple[str, FilePatterns], ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def above(cls, folder: Path) -> IgnoreRules:
        """Return what the folders above a folder say, up to the top of its repository if it is in one.

        Patterns that match the folder itself do not count: it was given, and what is given is read.
        """
        parents = [folder]
        while not os.path.lexists(parents[-1] / ".git") and parents[-1] != parents[-1].parent:
            parents.append(parents[-1].parent)
        rules, problems = cls(), tuple[Problem, ...]()
        for parent, child in zip(parents[:0:-1], map(str, parents[-2::-1]), strict=True):
            rules = rules.within(str(parent), str(parent))
            problems += rules.problems
            if rules.ignore(child, is_folder=True):
                rules = cls(tuple((base, patterns.without(_relative(child, base))) for base, patterns in rules.rules))
        return cls(rules.rules, problems)

    def within(self, folder: str, name: str) -> IgnoreRules:
        """Return what they say together with the ignore files of a folder.

        Args:
            folder: its absolute path.
            name: what its problems call it.
        """
        lines: list[str] = []
        problems: list[Problem] = []
        for file in IGNORE_FILES:
            path = Path(folder, file)
            if os.path.lexists(path):
                own_lines, reason = _lines_of(path)
                lines += own_lines
                problems += [Problem(f"{name}/{file}" if name else file, reason)] if reason else []
        rules = [(folder, FilePatterns(lines))] if lines else []
        return IgnoreRules((*self.rules, *rules), tuple(problems))

    def ignore(self, path: str, *, is_folder: bool) -> bool:
        """Whether they leave out an absolute path, the innermost rule first."""
        decisions = (
            patterns.decision(_relative(path, folder), is_folder=is_folder) for folder, patterns in reversed(self.rules)
        )
        return next((decision for decision in decisions if decision is not None), False)


def _relative(path: str, folder: str) -> str:
    return path[len(folder.rstrip("/")) + 1 :]


def _lines_of(path: Path) -> tuple[list[str], str]:
    """Return the patterns of an ignore file, and what is wrong with it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return [], "not a regular file; it leaves nothing out"  # opening a pipe would block forever
        if status.st_size > _MAX_BYTES:
            return ([], f"{status.st_size} bytes are more than the limit of {_MAX_BYTES} bytes; it leaves nothing out")
        content = path.read_bytes()
    except (OSError, RuntimeError) as error:
        return [], f"cannot be read: {getattr(error, 'strerror', None) or error}; it leaves nothing out"
    if b"\0" in content:
        return [], "not UTF-8 text; it leaves nothing out until it is saved as UTF-8"
    lines = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf")).replace("\r\n", "\n").split("\n")
    invalid_lines = sorted(FilePatterns(lines).invalid_lines)
    if not invalid_lines:
        return lines, ""
    named_lines = [f"line {number} ({lines[number - 1]!r:.40})" for number in invalid_lines[:3]]
    remark = f" and {len(invalid_lines) - 3:,} more" if len(invalid_lines) > 3 else ""
    valid_lines = [line for number, line in enumerate(lines, 1) if number not in invalid_lines]
    return valid_lines, f"no pattern in {' and '.join(named_lines)}{remark}; the others count"


def _as_people_see(text: str) -> str:
    """Return a text in the form in which names are compared: those of macOS are in NFD, and any bytes can be a name."""
    return compose(repair(text))
