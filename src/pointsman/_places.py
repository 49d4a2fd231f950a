"""Where a workspace may be: a folder, or a URL, which may hold a password."""

from __future__ import annotations

import os
import re
from typing import Final

_PASSWORD: Final = re.compile(r"^([^:/?#]+://[^:/?#@]*):[^/?#]*(@)")  # to the last @ before the path
_SECRET_OPTION: Final = re.compile(r"([?&][^=&#]*(?:password|secret|key|token)[^=&#]*=)[^&#]*", re.IGNORECASE)


def is_url(where: str | os.PathLike[str]) -> bool:
    r"""Whether a text names a place by a URL, and not a folder.

    >>> is_url("postgresql://db/rails"), is_url("./rails"), is_url("C:\rails")
    (True, False, False)
    """
    return isinstance(where, str) and bool(re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", where))


def is_service(where: str | os.PathLike[str]) -> bool:
    """Whether a text is the address of a Pointsman service.

    >>> is_service("https://example.org/pointsman"), is_service("postgresql://db/rails")
    (True, False)
    """
    return is_url(where) and str(where).partition(":")[0].lower() in {"http", "https"}


def redacted(where: str | os.PathLike[str]) -> str:
    """A path or URL for people to read: without a password.

    >>> redacted("postgresql://rail:secret@db/rails?schema=yard&password=secret")
    'postgresql://rail@db/rails?schema=yard&password=***'
    """
    if not is_url(where):
        return str(where)
    text = _PASSWORD.sub(r"\1\2", str(where))
    return _SECRET_OPTION.sub(r"\1***", text)
