"""Regular expressions that are compiled on first use.

The rules use a hundred of them in three languages. Compiling all takes longer than importing everything else, and a
query needs those of one language only.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Late:
    """Stands for a compiled pattern and becomes one, attribute by attribute."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags
        self._pattern_compiled: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are not set yet
        if name.startswith("__"):
            raise AttributeError(name)
        if self._pattern_compiled is None:
            self._pattern_compiled = re.compile(*self._source)
        value = getattr(self._pattern_compiled, name)
        setattr(self, name, value)
        return value


def late(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Like ``re.compile``, but compiles on first use."""
    return cast("re.Pattern[str]", _Late(pattern, flags))
