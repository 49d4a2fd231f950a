"""The memory that this process takes, as its system tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")  # Linux
_LINES: Final = {"VmRSS": "resident", "RssFile": "files"}


def memory_use() -> dict[str, int | None]:
    """Return the bytes of memory that this process has now; None where the system does not tell, as outside Linux.

    ``resident`` is all, ``files`` those pages of it that hold parts of files: the system takes them back when others
    need the room, and reads them again when they are needed.
    """
    use: dict[str, int | None] = dict.fromkeys(_LINES.values())
    try:
        lines = _STATUS.read_text("ascii", "replace").splitlines()
    except OSError:
        return use
    for line in lines:
        name, _, size = line.partition(":")
        if name in _LINES:
            use[_LINES[name]] = int(size.split()[0]) << 10
    return use
