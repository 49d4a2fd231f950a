"""What a dataset was before its last writes: the rows that were replaced or deleted, kept for some days.

It is in the file of the documents, written in the transactions that replace and delete, so a crash divides none of it
and a backup has it. The tables exist only in datasets that keep versions, and nothing but this module reads them.

``history`` has each replaced row as it was, with its own checksum, its vector, and the sequence number ``until`` which
it was there; a vector of no bytes is that of the row that followed. ``moments`` has the time of every transaction, and
``history_notes`` the notes that were replaced. What is older than the days is deleted by later writes, some rows at a
time, after `KEPT_FROM` says from which sequence number on everything is there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pointsman.store import history
from pointsman.store.history import PastRow, notes_before
from pointsman.tools.batching import batched

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

KEPT_DAYS: Final = "kept_days"
"""The value of ``meta`` with the number of days; without it, nothing is kept."""
KEPT_FROM: Final = "kept_from"
"""The value of ``meta`` with the first sequence number of which everything is kept."""
RECEIPT_KEY: Final = "receipt_key"
"""The value of ``meta`` that receipts are sealed with."""

TABLES: Final = """
CREATE TABLE IF NOT EXISTS history (
    key INTEGER NOT NULL, seq INTEGER NOT NULL, until INTEGER NOT NULL,
    id TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS history_key ON history (key, until);
CREATE INDEX IF NOT EXISTS history_until ON history (until);
CREATE TABLE IF NOT EXISTS moments (seq INTEGER PRIMARY KEY, time REAL NOT NULL);
CREATE TABLE IF NOT EXISTS history_notes (
    number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, name TEXT NOT NULL, value TEXT
);
"""
NO_TABLES: Final = "".join(f"DROP TABLE IF EXISTS {name};" for name in ("history", "moments", "history_notes"))

UNNOTED: Final = frozenset({"seq", "tally", "identity", KEPT_DAYS, KEPT_FROM, RECEIPT_KEY})
"""Values of ``meta`` whose former ones are not kept."""

_INTEGER: Final = "typeof({}) <> 'integer'"
_CHANGED: Final = {
    "history": " OR ".join(map(_INTEGER.format, ("key", "seq", "until"))),
    "moments": "typeof(time) <> 'real'",
    "history_notes": f"{_INTEGER.format('seq')} OR typeof(name) <> 'text' OR typeof(value) NOT IN ('text', 'null')",
}
"""Conditions for rows with a value of another type than is written, by table."""
_SAME_VECTOR: Final = b""
_VARIABLES: Final = 500


def keep(connection: sqlite3.Connection, keys: Sequence[int], seq: int, with_vector: Iterable[int]) -> None:
    """Keep rows that transaction ``seq`` is about to replace or delete.

    Args:
        connection: within the transaction, in a dataset that keeps versions.
        keys: of the rows; those that do not exist are skipped.
        seq: the number of the transaction.
        with_vector: those of the keys whose vector is replaced or deleted, too.
    """
    vector_keys = set(with_vector)
    for is_replaced, vector in ((True, "v.vector"), (False, "CASE WHEN v.key IS NOT NULL THEN x'' END")):
        connection.executemany(
            f"""INSERT INTO history SELECT d.key, d.seq, ?, d.id, d.text, d.metadata, d.digest, {vector}
                FROM documents d LEFT JOIN vectors v ON v.key = d.key WHERE d.key = ?""",  # noqa: S608  (ours)
            [(seq, key) for key in keys if (key in vector_keys) is is_replaced],
        )


def note_moment(connection: sqlite3.Connection, seq: int, now: float) -> None:
    """Note the time of a transaction; it is never before that of an earlier one, whatever the clock says."""
    last = connection.execute("SELECT time FROM moments ORDER BY seq DESC LIMIT 1").fetchone()
    connection.execute("INSERT OR REPLACE INTO moments VALUES (?, ?)", (seq, max(now, last[0] if last else 0.0)))


def note_former(connection: sqlite3.Connection, seq: int, values: Mapping[str, str | None]) -> None:
    """Keep values of ``meta`` that are about to be replaced; None: there was none."""
    connection.executemany(
        "INSERT INTO history_notes (seq, name, value) VALUES (?, ?, ?)",
        [(seq, name, value) for name, value in values.items() if name not in UNNOTED],
    )


def current_at(connection: sqlite3.Connection, time: float) -> int:
    """Return the sequence number that was the last one at a time; one before the first that is noted, if at none."""
    row = connection.execute("SELECT seq FROM moments WHERE time >= ? ORDER BY seq LIMIT 1", (time,)).fetchone()
    return int(row[0]) - 1 if row else 0


def moment_of(connection: sqlite3.Connection, seq: int) -> float | None:
    """Return when a transaction was; None if that is not noted."""
    row = connection.execute("SELECT time FROM moments WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else float(row[0])


def purge(connection: sqlite3.Connection, kept_from: int) -> None:
    """Delete some of what belongs only to states before ``kept_from``; later writes delete the rest."""
    for table, column, most in (("history", "until", "<="), ("moments", "seq", "<"), ("history_notes", "seq", "<")):
        connection.execute(
            f"""DELETE FROM {table} WHERE rowid IN
                (SELECT rowid FROM {table} WHERE {column} {most} ? LIMIT {history.PURGED_TOGETHER})""",  # noqa: S608  (ours)
            (kept_from,),
        )


def changed_keys(connection: sqlite3.Connection, first: int, second: int) -> list[int]:
    """Return the keys of which the states at two sequence numbers may differ, ascending.

    Raises:
        ValueError: a row has a value of another type than was written; SQLite would compare it without complaint.
    """
    if (problem := changed_row(connection)) is not None:
        raise ValueError(problem)
    low, high = sorted((first, second))
    rows = connection.execute(
        """SELECT key FROM documents WHERE seq > ?1 AND seq <= ?2
            UNION SELECT key FROM tombstones WHERE seq > ?1 AND seq <= ?2
            UNION SELECT key FROM history WHERE until > ?1 AND (until <= ?2 OR (seq > ?1 AND seq <= ?2))
            ORDER BY key""",
        (low, high),
    )
    return [key for (key,) in rows]


def state_at(connection: sqlite3.Connection, keys: Sequence[int], seq: int) -> list[PastRow]:
    """Return the rows of those of the keys that had a document at a sequence number."""
    past_rows = []
    for batch in batched(keys, _VARIABLES):
        marks = ",".join("?" * len(batch))
        live_sql = f"""SELECT d.key, d.seq, NULL, d.id, d.text, d.metadata, d.digest, v.vector
            FROM documents d LEFT JOIN vectors v ON v.key = d.key WHERE d.key IN ({marks})"""  # noqa: S608  (ours)
        past_sql = f"""SELECT key, seq, until, id, text, metadata, digest, vector FROM history
            WHERE until > ? AND key IN ({marks}) ORDER BY key, until"""  # noqa: S608  (ours)
        rows_by_key: dict[int, list[Any]] = {}
        for row in (*connection.execute(past_sql, (seq, *batch)), *connection.execute(live_sql, batch)):
            rows_by_key.setdefault(row[0], []).append(row)  # what was there at that time, and all that followed
        for rows in rows_by_key.values():
            key, own_seq, _, id_, text, metadata, digest, vector = rows[0]
            if own_seq <= seq:
                vectors = (row[-1] for row in rows)
                vector = next((blob for blob in vectors if blob != _SAME_VECTOR), None)
                past_rows.append(PastRow(id_, text, metadata, digest, own_seq, key, vector))
    return past_rows


def former_notes(connection: sqlite3.Connection, current: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the notes as they are, then as they were before each change of one, latest first.

    Raises:
        ValueError: one is no text.
    """
    changes = connection.execute("SELECT name, value FROM history_notes ORDER BY number DESC").fetchall()
    if not all(isinstance(name, str) and isinstance(value, str | None) for name, value in changes):
        raise ValueError("a former note is no text")
    return list(notes_before({name: value for name, value in current.items() if name not in UNNOTED}, changes))


def changed_row(connection: sqlite3.Connection) -> str | None:
    """Return a description of the first row with a value of another type than was written; None if there is none."""
    for table, condition in _CHANGED.items():
        row = connection.execute(f"SELECT rowid FROM {table} WHERE {condition} LIMIT 1").fetchone()  # noqa: S608  (ours)
        if row is not None:
            return f"row {row[0]} of {table} has a value of another type than was written"
    return None


def forget(connection: sqlite3.Connection) -> None:
    """Delete everything that is kept."""
    for table in ("history", "history_notes"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608  (ours)


def complaints(connection: sqlite3.Connection, kept_from: int, last: int) -> list[str]:
    """Return what is wrong with the order of kept rows; their checksums are verified elsewhere."""
    if (problem := changed_row(connection)) is not None:
        return [problem]
    problems = []
    rows = connection.execute(
        """SELECT key, seq, until, 0 AS kind FROM history
            UNION ALL SELECT key, seq, NULL, 1 FROM documents WHERE key IN (SELECT key FROM history)
            UNION ALL SELECT key, seq, NULL, 1 FROM tombstones WHERE key IN (SELECT key FROM history)
            ORDER BY key, seq, kind"""
    ).fetchall()
    for (key, seq, until, _), (next_key, next_seq, _, _) in pairwise([*rows, (None, 0, None, 1)]):
        if until is not None and not (seq < until and next_key == key and next_seq == until):
            problems.append(f"the kept version {seq} of key {key} does not end where the next one begins")
    count = connection.execute("SELECT count(*) FROM moments WHERE seq >= ?", (kept_from,)).fetchone()[0]
    if count != last - kept_from + 1:
        problems.append(f"{last - kept_from + 1 - count} transactions left no kept versions")
    return problems
