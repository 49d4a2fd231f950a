"""A workspace in one schema of a PostgreSQL database."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pointsman.store.backend import NEW, Backend, DatasetRecord, Record, check_record, check_version, settings_of
from pointsman.store.postgres.postgres_connections import Connections
from pointsman.store.postgres.postgres_history import RETENTION
from pointsman.store.postgres.postgres_reader import DatasetRow
from pointsman.store.postgres.postgres_store import PostgresStore
from pointsman.store.postgres.statements import DERIVED, Tables, catalogue, escaped, unescaped
from pointsman.tools.errors import InputError, StoreError
from pointsman.tools.system.locations import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg import Connection


_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OWN_OPTIONS: Final = frozenset({"schema", "connections"})
_KEPT_FIELDS: Final = ("description", "indexing_technique")
_COLUMNS: Final = (
    f"number, identity::text, technique, analyzer, format, k1, b, embedder, dimensions, documents, {RETENTION}"
)


class PostgresBackend(Backend):
    """Datasets and records in one schema of a database; any number of processes may use it at once.

    The schema, the extension ``vector`` and the tables are created by the first write if missing. A read-only role can
    search.

    Args:
        url: ``postgresql://user@host:5432/database?schema=pointsman&connections=8``; other parameters are libpq's.
            ``connections`` limits the connections for threads, and separately those for each event loop. If ``sslmode``
            is not given, a server on another machine must use TLS with a valid certificate.

    Raises:
        InputError: the URL cannot be parsed.
    """

    has_views = True

    def __init__(self, url: str) -> None:
        address, self.schema, max_connections = split(url)
        self._address = address
        self._connections = Connections(address, limit=max_connections)
        self._vectors: str | None = None

    def __repr__(self) -> str:
        return f"PostgresBackend({self.url!r})"

    @property
    def url(self) -> str:
        """See `Backend`."""
        return f"{self._connections.label}?schema={self.schema}"

    @contextmanager
    def scratch(self) -> Iterator[PostgresBackend]:
        """See `Backend`; in a schema of its own."""
        schema = f"pointsman_scratch_{uuid.uuid4().hex}"
        joint = "" if self._address.endswith("?") else "&"
        with PostgresBackend(f"{self._address}{joint}schema={schema}&connections=4") as backend:
            try:
                yield backend
            finally:
                drop = f'drop schema if exists "{schema}" cascade'
                self._connections.run(lambda connection: connection.execute(drop))

    # ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────

    def datasets(self) -> list[DatasetRecord]:
        """See `Backend`."""
        sql = f'select name, description, technique, identity::text, settings::text from "{self.schema}".dataset'
        rows = self._rows(f"{sql} order by name")
        return [
            DatasetRecord(name, unescaped(description), technique, identity, settings_of(name, settings))
            for name, description, technique, identity, settings in rows
        ]

    def create(self, name: str, about: Mapping[str, Any]) -> PostgresStore:
        """See `Backend`."""
        technique = about.get("indexing_technique", "hybrid")
        settings = {key: value for key, value in about.items() if key not in {*_KEPT_FIELDS, "name"}}
        self._make()

        def create(connection: Connection[Any]) -> None:
            with connection.transaction():
                row = connection.execute(
                    f'insert into "{self.schema}".dataset (name, description, technique, settings, analyzer, k1, b) '
                    "values (%s, %s, %s, %s, %s, %s, %s) on conflict (name) do nothing returning number",
                    (
                        name,
                        escaped(about.get("description", "")),
                        technique,
                        json.dumps(settings),
                        DERIVED,
                        float(settings.get("bm25_k1", 1.2)),
                        float(settings.get("bm25_b", 0.75)),
                    ),
                ).fetchone()
                if row is not None:
                    connection.execute(Tables(self.schema, row[0], self._vector_schema()).create)

        self._connections.run(create)
        store = self.open(name)
        if store is None:
            raise StoreError(f"{self.url}: dataset {name!r} was deleted right after it was created")
        return store

    def open(self, name: str, bm25: Mapping[str, float] | None = None) -> PostgresStore | None:
        """See `Backend`."""
        rows = self._rows(f'select {_COLUMNS} from "{self.schema}".dataset where name = %s', (name,))
        if not rows:
            return None
        record = DatasetRow(*rows[0])
        if bm25:
            record = replace(record, k1=bm25.get("k1", record.k1), b=bm25.get("b", record.b))
        return PostgresStore(self._connections, self.schema, self._vector_schema(), record)

    def describe(self, name: str, description: str) -> None:
        """See `Backend`."""
        sql = f'update "{self.schema}".dataset set description = %s where name = %s returning name'
        if not self._rows(sql, (escaped(description), name)):
            raise self.unknown_dataset(name)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def record(self, kind: str, name: str = "") -> Record | None:
        """See `Backend`."""
        check_record(kind, name)
        sql = f'select value, version from "{self.schema}".record where kind = %s and name = %s'
        rows = self._rows(sql, (kind, name))
        return Record(unescaped(rows[0][0]), str(rows[0][1])) if rows else None

    def records(self, kind: str) -> dict[str, Record]:
        """See `Backend`."""
        check_record(kind, "")
        sql = f'select name, value, version from "{self.schema}".record where kind = %s order by name'
        return {name: Record(unescaped(value), str(version)) for name, value, version in self._rows(sql, (kind,))}

    def put_record(self, kind: str, name: str, value: str | None, expected_version: str | None = None) -> str:
        """See `Backend`."""
        check_record(kind, name, value)
        self._make()
        table, subject = f'"{self.schema}".record', f"{kind} {name}".strip()

        def put(connection: Connection[Any]) -> str:
            with connection.transaction():
                connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{table} {kind} {name}",))
                select = f"select value, version from {table} where kind = %s and name = %s"
                row = connection.execute(select, (kind, name)).fetchone()
                check_version(None if row is None else Record(row[0], str(row[1])), expected_version, subject)
                if value is None:
                    connection.execute(f"delete from {table} where kind = %s and name = %s", (kind, name))
                    return NEW
                version_row = connection.execute(
                    f"""insert into {table} (kind, name, value, version)
                    values (%s, %s, %s, nextval('"{self.schema}".record_version'))
                    on conflict (kind, name) do update set value = excluded.value, version = excluded.version
                    returning version""",
                    (kind, name, escaped(value)),
                ).fetchone()
                assert version_row is not None
                return str(version_row[0])

        return self._connections.run(put)

    def close(self) -> None:
        """See `Backend`."""
        self._connections.close()

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Return rows; none if the workspace does not exist yet."""
        import psycopg

        def rows(connection: Connection[Any]) -> list[Any]:
            try:
                return connection.execute(sql, parameters).fetchall()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                return []

        return self._connections.run(rows)

    def _vector_schema(self) -> str:
        """Return the schema that contains pgvector.

        Raises:
            StoreError: pgvector is not installed, or too old.
        """
        if self._vectors is None:
            sql = (
                "select n.nspname, e.extversion from pg_extension e join pg_namespace n on n.oid = e.extnamespace "
                "where e.extname = 'vector'"
            )
            rows = self._connections.run(lambda connection: connection.execute(sql).fetchall())
            if not rows:
                raise StoreError(f"{self.url}: the extension 'vector' is missing; run: create extension vector")
            schema, version = rows[0]
            if tuple(int(number) for number in version.split(".")[:2]) < (0, 8):
                raise StoreError(
                    f"{self.url}: pgvector {version} is too old, 0.8 or newer is needed; "
                    "run: alter extension vector update"
                )
            self._vectors = schema
        assert self._vectors is not None
        return self._vectors

    def _make(self) -> None:
        """Create schema, extension and tables unless they exist."""
        schema = self.schema

        def make(connection: Connection[Any]) -> None:
            row = connection.execute("select to_regclass(%s)", (f'"{schema}".record',)).fetchone()
            if row is not None and row[0] is not None:
                return
            with connection.transaction():
                connection.execute("select pg_advisory_xact_lock(hashtextextended('pointsman', 0))")
                connection.execute(b"create extension if not exists vector")
                connection.execute(
                    f"""create schema if not exists "{schema}";
{catalogue(schema)}
create sequence if not exists "{schema}".record_version;
create table if not exists "{schema}".record (
    kind text collate "C" not null, name text collate "C" not null, value text not null, version bigint not null,
    primary key (kind, name))"""
                )

        self._connections.run(make)


def split(url: str) -> tuple[str, str, int]:
    """Split a URL into the address for libpq, the schema, and the maximum number of connections.

    Raises:
        InputError: a part is invalid.
    """
    if unquoted(url):
        raise InputError(
            "the user or password in the URL of a database contains one of @ / ? #; write it as %40, %2F, %3F or %23"
        )
    address, _, query = url.partition("?")
    options, foreign_options = {"schema": "pointsman", "connections": "8"}, []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in _OWN_OPTIONS:
            options[name] = unquote(value)
        else:
            foreign_options.append(option)  # as it is written: libpq does not read a + as a space
    if not _SCHEMA.fullmatch(options["schema"]):
        raise InputError(f"a schema is named by up to 63 letters, digits and _, not {options['schema']!r:.80}")
    if not re.fullmatch("[1-9][0-9]{0,3}", options["connections"]):
        raise InputError(f"connections is a number from 1 up, not {options['connections']!r:.80}")
    scheme, _, location = address.partition(":")
    return f"{scheme.lower()}:{location}?{'&'.join(foreign_options)}", options["schema"], int(options["connections"])
