"""How many file descriptors this process may open: files, connections and pipes together."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

_TARGET: Final = 65_536
"""A soft limit that is enough; far higher ones make some programs that we start close a million descriptors."""

_WITHOUT_LIMIT: Final = 8_192

FEWEST_OPEN: Final = 4
_SHARE: Final = 16  # descriptors for each dataset: three to five stay open, and opening one needs more for a moment


def descriptor_limit() -> int:
    """Return the soft limit of this process, ``RLIMIT_NOFILE``."""
    if resource is None:
        return _WITHOUT_LIMIT
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _TARGET if soft == resource.RLIM_INFINITY else soft


def most_open_datasets() -> int:
    """Return the number of datasets in folders for which the process has file descriptors."""
    return max(FEWEST_OPEN, descriptor_limit() // _SHARE)


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as the hard one and `_WANTED` allow, and return it; it is never lowered."""
    if resource is not None and (soft := descriptor_limit()) < _TARGET:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        target = _TARGET if hard == resource.RLIM_INFINITY else min(_TARGET, hard)
        if target > soft:
            with suppress(OSError, ValueError):  # some systems have a lower limit besides
                resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return descriptor_limit()
