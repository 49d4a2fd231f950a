"""What a dataset in PostgreSQL was before its last writes: the rows that were replaced or deleted, kept for some days.

They are in tables of the dataset, written in the transactions that replace and delete; these take turns by locking the
dataset's row, so the sequence numbers are in the order of the commits, and what is rolled back leaves nothing. The
tables exist only in datasets that keep versions.

``history`` has each replaced row as it was, and the sequence number ``until`` which it was there; with
``vector_follows``, its vector is that of the row that followed. ``moment`` has the time of every transaction, and
``former`` the notes that were replaced. The column ``kept`` of the dataset's row says for how many days versions are
kept, from which sequence number on everything is there, and what receipts are sealed with; without it nothing is kept.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from pointsman.store import history
from pointsman.store.history import DAY_SECONDS, KeptVersions, PastRow, digest_of, notes_before
from pointsman.store.postgres.statements import escaped, unescaped
from pointsman.store.prepared_documents import UNREADABLE, document_of, unreadable
from pointsman.store.store_values import RecordedState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from psycopg import Connection, Cursor

    from pointsman.store.postgres.statements import Tables

RETENTION: Final = "kept"
"""The column of a dataset's row that says what it keeps; null if nothing."""

_VECTOR_HEAD: Final = 4  # bytes before the numbers of a vector in binary form
_EXPIRING: Final = (("history", "until", "<="), ("moment", "seq", "<"), ("former", "seq", "<"))


def create(tables: Tables) -> str:
    """Return SQL that creates the tables of a dataset that keeps versions, and an index to find what has changed."""
    vector = f'"{tables.vectors}".vector'
    return f"""
create table if not exists {tables.history} (
    id int not null, seq bigint not null, until bigint not null, key text collate "C" not null,
    text text not null, metadata text not null, digest bytea not null,
    vector_follows boolean not null, v {vector}, primary key (id, until)
) with (toast_tuple_target = 8160);
alter table {tables.history} alter v set storage external;
create index if not exists d{tables.number}_history_until on {tables.history} (until);
create table if not exists {tables.moment} (seq bigint primary key, time float8 not null);
create table if not exists {tables.former} (
    number int primary key generated always as identity, seq bigint not null, name text not null, value text);
create index if not exists d{tables.number}_doc_seq on {tables.doc} (seq);
"""


def drop(tables: Tables) -> str:
    """Return SQL that undoes `create`."""
    return (
        f"drop table if exists {tables.history}, {tables.moment}, {tables.former}; "
        f'drop index if exists "{tables.schema}".d{tables.number}_doc_seq'
    )


def recorded_state(sequence: int, notes: Mapping[str, str], retention: Mapping[str, Any]) -> RecordedState:
    """Return what a receipt names; the notes are those of `all_notes`."""
    return RecordedState(sequence, digest_of(notes), int(retention["days"]), bytes.fromhex(retention["key"]))


def all_notes(notes: Mapping[str, str], embedder: str | None, dimensions: int | None) -> dict[str, str]:
    """Return the notes of a dataset, and what its row says of its vectors."""
    vector_notes = {} if dimensions is None else {"embedder": embedder or "", "dimensions": str(dimensions)}
    return {**notes, **vector_notes}


# ── keeping (within the transaction of a write) ──────────────────────────────────────────────────────────────────────


def switch(connection: Connection[Any], tables: Tables, days: int) -> None:
    """Keep versions for so many days from now on; 0: keep nothing, and delete what was kept."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(f"select seq, {RETENTION} from {tables.row} for update")
        row = cursor.fetchone()
        if row is None:
            return  # deleted by now; whoever reads it next says so
        sequence, retention = row
        cursor.execute(create(tables) if days else drop(tables))
        former = retention or {"from": sequence, "key": secrets.token_hex(16)}
        kept = "jsonb_build_object('days', %s::int, 'from', %s::bigint, 'key', %s::text)" if days else "null"
        values = (days, former["from"], former["key"]) if days else None
        cursor.execute(tables.update(f"kept = {kept}"), values)
        if days and retention is None:
            _note_moment(cursor, tables, sequence, time.time())


def keep(cursor: Cursor[Any], tables: Tables, ids: Sequence[int], seq: int, dimensions: int | None) -> None:
    """Keep documents that transaction ``seq`` is about to replace or delete with their vectors.

    Args:
        cursor: within the transaction, of a dataset that keeps versions.
        tables: of the dataset.
        ids: the numbers of the documents.
        seq: the number of the transaction.
        dimensions: of the dataset's vectors; None if it has none.
    """
    vector, join = ("null", "") if dimensions is None else ("e.v", f"left join {tables.vec} e on e.id = d.id")
    _insert(cursor, tables, ids, seq, f"false, {vector}", join)


def keep_without_vector(
    cursor: Cursor[Any], tables: Tables, ids: Sequence[int], seq: int, dimensions: int | None
) -> None:
    """Keep documents whose metadata transaction ``seq`` is about to replace, and whose vectors stay; see `keep`."""
    has_vector = "false" if dimensions is None else f"exists (select from {tables.vec} e where e.id = d.id)"
    _insert(cursor, tables, ids, seq, f"{has_vector}, null", "")


def _insert(cursor: Cursor[Any], tables: Tables, ids: Sequence[int], seq: int, vector: str, join: str) -> None:
    if ids:
        cursor.execute(
            f"insert into {tables.history} (id, seq, until, key, text, metadata, digest, vector_follows, v) "
            f"select d.id, d.seq, %s, d.key, y.text, y.metadata, d.digest, {vector} from {tables.doc} d "
            f"join {tables.body} y on y.id = d.id {join} where d.id = any(%s::bigint[])",
            (seq, list(ids)),
        )


def keep_notes(cursor: Cursor[Any], tables: Tables, seq: int, notes: Mapping[str, str | None]) -> None:
    """Keep notes that are about to be replaced, as they are; None: there was none."""
    cursor.execute(
        f"insert into {tables.former} (seq, name, value) "
        "select %s, name, value from unnest(%s::text[], %s::text[]) u(name, value)",
        (seq, list(notes), [None if value is None else escaped(value) for value in notes.values()]),
    )


def note_write(cursor: Cursor[Any], tables: Tables, seq: int, retention: Mapping[str, Any]) -> None:
    """Note the time of a transaction, and delete some of what has expired; later writes delete the rest."""
    time_now = time.time()
    _note_moment(cursor, tables, seq, time_now)
    cursor.execute(
        f"select seq - 1 from {tables.moment} where time >= %s order by seq limit 1",
        (time_now - retention["days"] * DAY_SECONDS,),
    )
    row = cursor.fetchone()
    first = int(retention["from"])
    if row is not None and row[0] > first:
        first = int(row[0])
        cursor.execute(tables.update("kept = jsonb_set(kept, '{from}', to_jsonb(%s::bigint))"), (first,))
    for name, column, sign in _EXPIRING:
        table = getattr(tables, name)
        cursor.execute(
            f"delete from {table} where ctid = any(array(select ctid from {table} where {column} {sign} %s "
            f"limit {history.PURGED_TOGETHER}))",
            (first,),
        )


def _note_moment(cursor: Cursor[Any], tables: Tables, seq: int, time_now: float) -> None:
    """Note the time of a transaction; it is never before that of an earlier one, whatever the clock says."""
    cursor.execute(
        f"insert into {tables.moment} values (%s, greatest(%s::float8, "
        f"(select time from {tables.moment} order by seq desc limit 1))) on conflict (seq) do nothing",
        (seq, time_now),
    )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class PostgresHistory:
    """What a dataset has been, as of one moment; see `pointsman.store.history.History`.

    Args:
        cursor: within a transaction of one snapshot, that returns rows in binary form.
        tables: of the dataset.
        copy: the tables of a copy of the dataset, in the same database.
    """

    def __init__(self, cursor: Cursor[Any], tables: Tables, copy: Tables) -> None:
        self._cursor, self._tables, self._copy_tables = cursor, tables, copy
        cursor.execute(f"select seq, embedder, dimensions, {RETENTION} from {tables.row}")
        row: Any = cursor.fetchone() or (0, None, None, None)  # without a row it was deleted
        self._sequence, self._embedder, self._dimensions, self._retention = row

    def kept_versions(self) -> KeptVersions | None:
        """See `History`."""
        if self._retention is None:
            return None
        return KeptVersions(int(self._retention["days"]), int(self._retention["from"]))

    def sequence(self) -> int:
        """See `History`."""
        return int(self._sequence)

    def moment(self, seq: int) -> float | None:
        """See `History`."""
        rows = self._rows(f"select time from {self._tables.moment} where seq = %(seq)s", seq=seq)
        return float(rows[0][0]) if rows else None

    def former_notes(self) -> list[dict[str, str]]:
        """See `History`."""
        tables = self._tables
        current = {name: unescaped(value) for name, value in self._rows(f"select name, value from {tables.notes}")}
        changes = self._rows(f"select name, value from {tables.former} order by number desc")
        former_values = ((name, None if value is None else unescaped(value)) for name, value in changes)
        return list(notes_before(all_notes(current, self._embedder, self._dimensions), former_values))

    def states(self, first: int, second: int) -> list[tuple[int, PastRow | None]]:
        """See `History`; the vectors are those of the database's binary form.

        Raises:
            CorruptStoreError: what was kept is damaged.
        """
        keys = self._changed_keys(first, second)
        rows = {row.key: row for row in self._rows_at(keys, second)}
        return [(key, rows.get(key)) for key in keys]

    def _changed_keys(self, first: int, second: int) -> list[int]:
        """Return the keys of which the states at two sequence numbers may differ, ascending.

        A document that the copy has, and whose deletion has expired, is neither among the documents nor in the history.
        """
        tables, (low, high) = self._tables, sorted((first, second))
        sql = (
            f"select id from {tables.doc} where seq > %(low)s and seq <= %(high)s "
            f"union select id from {tables.history} "
            "where until > %(low)s and (until <= %(high)s or (seq > %(low)s and seq <= %(high)s))"
        )
        if self._retention is not None and low < self._retention["from"]:
            sql += (
                f" union select c.id from {self._copy_tables.doc} c "
                f"where not exists (select from {tables.doc} d where d.id = c.id) "
                f"and not exists (select from {tables.history} h where h.id = c.id and h.until > %(high)s)"
            )
        return sorted(key for (key,) in self._rows(sql, low=low, high=high))

    def _rows_at(self, keys: Sequence[int], seq: int) -> Iterable[PastRow]:
        """Yield the documents of those of the keys that had one at a sequence number."""
        tables = self._tables
        join, past_vector = "", "null"
        if self._dimensions is not None:
            join = f"left join {tables.vec} e on e.id = r.id"
            past_vector = (
                f"case when r.is_live then e.v when not r.vector_follows then r.v else coalesce((select f.v "
                f"from {tables.history} f where f.id = r.id and f.until > r.until and not f.vector_follows "
                "order by f.until limit 1), e.v) end"
            )
        sql = f"""
with past as materialized (select distinct on (id) * from {tables.history}
    where id = any(%(keys)s::int[]) and until > %(seq)s order by id, until),
r as (select id, seq, until, key, text, metadata, digest, vector_follows, v, false as is_live from past
  union all
  select d.id, d.seq, null, d.key, y.text, y.metadata, d.digest, false, null, true
    from {tables.doc} d join {tables.body} y on y.id = d.id
    where d.id = any(%(keys)s::int[]) and not exists (select from past where past.id = d.id))
select r.key, r.text, r.metadata, r.digest, r.seq, r.id, {past_vector} from r {join} where r.seq <= %(seq)s"""
        for key, text, metadata, digest, own_seq, id_, raw in self._rows(sql, keys=list(keys), seq=seq):
            vector = None if raw is None else bytes(raw[_VECTOR_HEAD:])
            row = PastRow(unescaped(key), unescaped(text), metadata, bytes(digest), own_seq, id_, vector)
            try:
                document_of(row.id, row.text, row.metadata, row.digest)
            except UNREADABLE as error:
                raise unreadable(row.id, error) from error
            yield row

    def _rows(self, sql: str, **parameters: Any) -> list[Any]:
        return self._cursor.execute(sql, parameters).fetchall()
