"""Locations of a workspace: a folder, or a URL that may contain a password."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# What follows a colon and is no port: to the last @ before the options, in case it is not percent-encoded.
_PASSWORD: Final = re.compile(r"^([^:/?#]+://[^:/?#\[]*):(?!\d*(?:[/?#,]|$))(?:[^?#]*|[^@]*)(@)")
_SECRET_OPTION: Final = re.compile(r"([?&][^=&#]*(?:password|secret|key|token)[^=&#]*=)[^&#]*", re.IGNORECASE)


def is_url(location: str | os.PathLike[str]) -> bool:
    r"""Whether a location is a URL rather than a folder.

    >>> is_url("postgresql://db/rails"), is_url("./rails"), is_url("C:\rails")
    (True, False, False)
    """
    return isinstance(location, str) and bool(re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", location))


def is_service(location: str | os.PathLike[str]) -> bool:
    """Whether a text is the address of a Pointsman service.

    >>> is_service("https://example.org/pointsman"), is_service("postgresql://db/rails")
    (True, False)
    """
    return is_url(location) and str(location).partition(":")[0].lower() in {"http", "https"}


def path_of(location: str) -> str:
    """Return the path in a ``file:`` URL, "" if it names no folder of this machine; any other location unchanged.

    >>> path_of("file:rails"), path_of("file:///home/me/a%20b"), path_of("file://rails"), path_of("rails")
    ('rails', '/home/me/a b', '', 'rails')
    """
    scheme, _, path_text = location.partition(":")
    if scheme.lower() != "file":
        return location
    path = unquote(re.sub("^//(localhost)?(?=/)", "", path_text))
    return "" if path.startswith("//") else path


def with_home(location: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` or ``~user`` at its beginning as the home folder, as a shell does.

    >>> with_home("~/rails") == Path.home() / "rails", with_home("rails/~")
    (True, PosixPath('rails/~'))
    """
    path = Path(location)
    try:
        return path.expanduser()
    except RuntimeError:  # there is no such user
        return path


def distinct_endings(paths: Iterable[str], taken_names: Collection[str] = ()) -> dict[str, str]:
    """Return the shortest ending of each path, in whole steps, that no other path has and that is not taken.

    A path without such an ending is returned whole.

    >>> distinct_endings(["pa/README.md", "pb/README.md", "pb/notes.md"])
    {'pa/README.md': 'pa/README.md', 'pb/README.md': 'pb/README.md', 'pb/notes.md': 'notes.md'}
    """
    endings = {path: path.rpartition("/")[2] for path in paths}
    while True:
        counts = Counter(endings.values())
        ambiguous = [path for path, end in endings.items() if end != path and (counts[end] > 1 or end in taken_names)]
        if not ambiguous:
            return endings
        for path in ambiguous:
            endings[path] = path[path.rfind("/", 0, len(path) - len(endings[path]) - 1) + 1 :]


def unquoted(url: str) -> bool:
    """Whether the user or password in a URL contains a character that has to be percent-encoded there.

    >>> unquoted("postgresql://rail:a/b@db/rails"), unquoted("postgresql://rail:a%2Fb@db/rails")
    (True, False)
    """
    match = _PASSWORD.match(url)
    return match is not None and bool(re.search("[/?#@]", match[0].partition("://")[2][:-1]))


def redacted(location: str | os.PathLike[str]) -> str:
    """Return a path or URL for display, without its password.

    >>> redacted("postgresql://rail:secret@db/rails?schema=yard&password=secret")
    'postgresql://rail@db/rails?schema=yard&password=***'
    """
    if not is_url(location):
        return str(location)
    text = _PASSWORD.sub(r"\1\2", str(location))
    return _SECRET_OPTION.sub(r"\1***", text)
