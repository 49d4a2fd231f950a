"""Interprets Python's errors about SQLite files."""

from __future__ import annotations

import sqlite3
from typing import Final

SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second one occurs if SQLite's message quotes a damaged table definition that Python cannot decode."""

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
    """Return SQLite's primary error code; 0 if there is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it tells kinds of the same


def damage(error: Exception) -> str | None:
    """Return a description of the damage in SQLite's words; None if the error has another cause.

    Our statements are valid and keep all constraints, so if SQLite complains about either, a page is damaged.
    """
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode(errors="replace")
    return str(error) if error_code(error) in _DAMAGE or "decode to UTF-8" in str(error) else None
