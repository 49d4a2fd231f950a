"""What goes wrong with a SQLite file, as Python tells it."""

from __future__ import annotations

import sqlite3
from typing import Final

SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second where SQLite quotes a damaged definition of a table, and Python cannot decode that message."""

_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
    }
)


def error_code(error: Exception) -> int:
    """SQLite's primary error code; 0 where it gives none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it tells kinds of the same


def damage(error: Exception) -> str | None:
    """What is damaged, in SQLite's words; None when the error says something else.

    Our statements are right, and what they write keeps to the rules: where SQLite complains of either, a page is wrong.
    """
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode(errors="replace")
    return str(error) if error_code(error) in _DAMAGE or "decode to UTF-8" in str(error) else None
