"""An existing table or view, searched unchanged and never written to.

Types, the vectors' distance and the full-text configuration are read from the database. Names become quoted identifiers
and values parameters; sessions are read-only.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pointsman.store.external.attachment import (
    TEXT,
    AttachedStore,
    CollectionFacts,
    Row,
    as_written,
    keys_of,
    lists_of,
    unit_rows,
    unknown_keys,
)
from pointsman.store.postgres.postgres_backend import split
from pointsman.store.postgres.postgres_connections import Connections
from pointsman.store.postgres.statements import Condition
from pointsman.store.prepared_documents import position, storable
from pointsman.store.store_values import NEAR, Capability, Lists, Page
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.metadata import ID
from pointsman.values.metadata import TEXT as WHOLE
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from psycopg import Connection

    from pointsman.store.external.attachment import Attachment
    from pointsman.store.store_values import StoreQuery
    from pointsman.values.filters import Filter

_OPERATORS: Final = {"cosine": ("<=>", "1 - ({})"), "ip": ("<#>", "-({})"), "l2": ("<->", "-({})")}
"""The operator and its score, by the name in an operator class."""
_JSON: Final = ("json", "jsonb")
_VECTORS: Final = ("vector", "halfvec")
_EXPRESSION: Final = re.compile(r"to_tsvector\('((?:[^']|'')+)'::regconfig, .+\)")
_SCALARS: Final = '\'lax $[*] ? (@.type() == "string" || @.type() == "number" || @.type() == "boolean")\''


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the database reports about the table; every text is SQL.

    Attributes:
        rows: a subquery ``d`` with ``key``, ``text``, ``meta``, ``facts``, ``id``, and ``w`` and ``v`` if available.
        id_type: type of the column that identifies rows.
        configuration: full-text configuration, as a literal.
        vector: the query vector in the column's type.
        operator: the distance operator between the two.
        score: a format that converts their distance to a score.
        dimensions: of the vectors; None if there are none.
        fingerprint: identifies the table.
        json: whether a JSON column is among the metadata.
    """

    rows: str
    id_type: str
    configuration: str
    vector: str = ""
    operator: str = ""
    score: str = "{}"
    dimensions: int | None = None
    fingerprint: str = ""
    json: bool = False


class TableStore(AttachedStore):
    """A table as a read-only store.

    Args:
        attachment: the location of the table, and the roles of its columns.

    Raises:
        InputError: the URL is invalid.
    """

    kind = "postgresql table"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        address, _, max_connections = split(attachment.url)
        self._connections = Connections(address, limit=max_connections, read_only=True)

    @property
    def _facts(self) -> CollectionFacts:
        columns = self._columns
        return CollectionFacts(columns.fingerprint, columns.dimensions, readable=self.attachment.vector is not None)

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`; one statement returns both lists and the documents of a query."""
        statements = [self._statement(query) for query in store_queries]

        def rows(connection: Connection[Any]) -> list[list[Any]]:
            return [connection.execute(sql, parameters).fetchall() if sql else [] for sql, parameters in statements]

        answers = self._connections.run(rows)
        return [_lists(query, answer, self._notes(query)) for query, answer in zip(store_queries, answers, strict=True)]

    def _documents_with(self, ids: Sequence[str]) -> list[Document]:
        kind = self._columns.id_type
        id_array = (
            f"array(select i::{kind} from unnest(%(ids)s::text[]) i where pg_input_is_valid(i, {_literal(kind)}))"
        )
        able = [id_ for id_ in ids if "\0" not in id_ and storable(id_)]
        rows = self._rows(f"select {_DOCUMENT} from {self._columns.rows} where d.id = any({id_array})", ids=able)
        return [_document(*row) for row in rows]

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        condition, begin = self._condition(filters), position(after)
        sql = f"select {_DOCUMENT} from {self._columns.rows} where {condition.sql} order by d.id offset {begin}"
        rows = self._rows(f"{sql} limit {limit + 1}", **condition.parameters)
        cursor = str(begin + limit) if len(rows) > limit else None
        return Page([_document(*row) for row in rows[:limit]], cursor)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        condition = self._condition(filters)
        sql = f"select count(*) from {self._columns.rows} where {condition.sql}"
        return int(self._rows(sql, **condition.parameters)[0][0])

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`; scaled to length 1."""
        if self.attachment.vector is None:
            raise self._cannot(Capability.VECTORS)
        columns = self._columns
        sql = f"select d.key, d.v::text from {columns.rows} where d.v is not null"
        if keys is not None:
            sql += " and d.key = any(%(keys)s::text[])"
        sql += f" order by hashtext(d.key), d.key limit {int(sample)}" if sample else " order by d.key"
        vectors = {key: json.loads(text) for key, text in self._rows(sql, keys=list(keys or ()))}
        return unit_rows(vectors, keys, columns.dimensions)

    def close(self) -> None:
        """See `Store`."""
        self._connections.close()

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _statement(self, store_query: StoreQuery) -> tuple[str, dict[str, Any]]:
        """Return the statement for a query, and its parameters; an empty one if there is nothing to search."""
        columns, condition = self._columns, self._condition(store_query.filters)
        selects: list[str] = []
        parameters: dict[str, Any] = dict(condition.parameters)
        if store_query.text is not None:
            parameters["text"] = store_query.text.replace("\0", " ").encode("utf-8", "replace").decode()
            query = f"replace(plainto_tsquery({columns.configuration}, %(text)s)::text, ' & ', ' | ')::tsquery"
            selects.append(
                f"(select '{TEXT}' as list, ts_rank(d.w, {query}, 1)::float8 as score, {_DOCUMENT} from {columns.rows} "
                f"where d.w @@ {query} and {condition.sql} order by score desc, d.key limit {store_query.depth:d})"
            )
        if store_query.vector is not None and columns.vector:
            parameters["v"] = store_query.vector.tolist()
            distance = f"d.v {columns.operator} {columns.vector}"
            selects.append(
                f"(select '{NEAR}' as list, ({columns.score.format(distance)})::float8 as score, {_DOCUMENT} "
                f"from {columns.rows} where d.v is not null and {condition.sql} order by {distance} "
                f"limit {store_query.depth:d})"
            )
        return " union all ".join(selects), parameters

    def _condition(self, filters: Filter | None) -> Condition:
        """Return a filter as SQL.

        Raises:
            UnmetNeedError: a key may be a path in a JSON column.
        """
        if self._columns.json and (paths := [key for key in keys_of(filters) if self._is_path(key)]):
            raise UnmetNeedError(
                f"{self.attachment.place}: paths into JSON columns cannot be filtered by: {paths[0]!r}"
            )
        return Condition(filters, values=as_written)

    def _is_path(self, key: str) -> bool:
        return "." in key and key not in self.attachment.metadata

    def _notes(self, store_query: StoreQuery) -> list[str]:
        """Return notes on the keys of a filter that are unknown; JSON columns may contain any key."""
        if self._columns.json:
            return []
        return self._with_place(unknown_keys(store_query.filters, (*self.attachment.metadata, ID, WHOLE)))

    def _rows(self, sql: str, **parameters: Any) -> list[Any]:
        return self._connections.run(lambda connection: connection.execute(sql, parameters).fetchall())

    @cached_property
    def _columns(self) -> _Columns:
        return self._connections.run(self._read)

    def _read(self, connection: Connection[Any]) -> _Columns:
        """Return what the database reports about the table.

        Raises:
            InputError: there is no such table or column, or it is of a type that cannot be used.
        """
        attachment = self.attachment
        table = ".".join(map(_quote_name, attachment.table.split(".", 1)))
        sql = (
            "select a.attname, t.typname, n.nspname, a.atttypmod, format_type(a.atttypid, a.atttypmod), c.oid::text "
            "from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped "
            "join pg_type t on t.oid = a.atttypid join pg_namespace n on n.oid = t.typnamespace "
            "where c.oid = to_regclass(%s) order by a.attnum"
        )
        types = {row[0]: row[1:] for row in connection.execute(sql, (table,)).fetchall()}
        if not types:
            raise InputError(f"{self._connections.label} has no table {attachment.table!r} that this role can see")
        vector = attachment.vector
        self._check_names((attachment.id, attachment.text, vector, *attachment.metadata), types, "column")
        configuration, words = _full_text(connection, table, attachment.text, types)
        columns = [
            f"t.{_quote_name(attachment.id)} as id",
            f"t.{_quote_name(attachment.id)}::text as key",
            f"coalesce(t.{_quote_name(attachment.text)}::text, '') as text",
            f"{words} as w",
            f"{_metadata(attachment.metadata, types)} as meta",
        ]
        if vector is not None:
            columns.append(f"t.{_quote_name(vector)} as v")
        facts = (
            "(select coalesce(jsonb_object_agg(e.key, e.facts), '{}') from (select key, jsonb_path_query_array(value, "
            f"{_SCALARS}) as facts from jsonb_each(m.meta)) e where e.facts <> '[]')"
        )
        # A row without an id is no document; one would make every search fail.
        inner = f"select {', '.join(columns)} from {table} t where t.{_quote_name(attachment.id)}::text <> ''"
        rows = f"(select m.*, {facts} as facts from ({inner}) m) d".replace("%", "%%")
        fingerprint = f"{self._connections.label} {types[attachment.id][4]} {attachment.id} {attachment.text} {vector}"
        fields: dict[str, Any] = {
            "rows": rows,
            "id_type": types[attachment.id][3],
            "configuration": configuration.replace("%", "%%"),
            "fingerprint": fingerprint,
            "json": any(types[name][0] in _JSON for name in attachment.metadata),
        }
        if vector is None:
            return _Columns(**fields)
        kind, schema, dimensions = types[vector][:3]
        if kind not in _VECTORS:
            raise InputError(f"column {vector!r} of {attachment.table!r} is {types[vector][3]}, not a pgvector type")
        if dimensions < 0:
            row = connection.execute(
                f"select {_quote_name(schema)}.vector_dims({_quote_name(vector)}) from {table} "
                f"where {_quote_name(vector)} is not null limit 1"
            ).fetchone()
            dimensions = 0 if row is None else int(row[0])
        distance = _distance(connection, table, vector)
        operator, score = _OPERATORS[distance]
        cast = f"%(v)s::float4[]::{_quote_name(schema)}.vector"
        return _Columns(
            **fields,
            vector=cast if kind == "vector" else f"{cast}::{_quote_name(schema)}.halfvec",
            operator=f"operator({_quote_name(schema)}.{operator})",
            score=score,
            dimensions=dimensions or None,
        )


_DOCUMENT: Final = "d.key, d.text, d.meta::text"


def _document(key: str, text: str, metadata: str) -> Document:
    return Document(key, text, {name: value for name, value in json.loads(metadata).items() if value is not None})


def _lists(store_query: StoreQuery, rows: Sequence[Any], notes: Sequence[str]) -> Lists:
    names = [*([TEXT] if store_query.text is not None else []), *([NEAR] if store_query.vector is not None else [])]
    rows_of_lists: dict[str, list[Row]] = {name: [] for name in names}
    scored_rows = [row for row in rows if not math.isnan(row[1])]  # a vector of zeros has no cosine
    for name, score, key, text, metadata in sorted(scored_rows, key=lambda row: -row[1]):
        rows_of_lists[name].append((key, score, _document(key, text, metadata)))
    return lists_of(rows_of_lists, store_query.depth, notes)


def _quote_name(name: str) -> str:
    """Quote a name as an SQL identifier.

    Raises:
        InputError: the name is not a possible identifier.
    """
    if not name or "\0" in name or len(name.encode("utf-8", "replace")) > 63:
        raise InputError(f"a name in PostgreSQL has 1 to 63 bytes, not {name!r:.80}")
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _metadata(names: Sequence[str], types: dict[str, Any]) -> str:
    """Return a row's metadata as SQL: the keys of JSON columns, and columns, which hide keys of their names."""
    plain = [name for name in names if types[name][0] not in _JSON]
    expressions = []
    for name in names:
        if name not in plain:
            column = f"t.{_quote_name(name)}::jsonb"
            expressions.append(f"case when jsonb_typeof({column}) = 'object' then {column} else '{{}}'::jsonb end")
    columns = ", ".join(f"{_literal(name)}, to_jsonb(t.{_quote_name(name)})" for name in plain)
    expressions.append(f"jsonb_build_object({columns})")
    return f"({' || '.join(expressions)})"


def _full_text(connection: Connection[Any], table: str, text: str, types: dict[str, Any]) -> tuple[str, str]:
    """Return the full-text configuration as a literal, and the searched expression: an index's if there is one."""
    for name, column_type in types.items():
        if column_type[0] == "tsvector":
            row = connection.execute(
                "select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d "
                "join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum "
                "where d.adrelid = to_regclass(%s) and a.attname = %s",
                (table, name),
            ).fetchone()
            match = None if row is None else re.search(r"to_tsvector\('((?:[^']|'')+)'::regconfig", row[0])
            return f"'{match[1] if match else 'simple'}'::regconfig", f"t.{_quote_name(name)}"
    indexes = connection.execute(
        "select pg_get_indexdef(i.indexrelid, 1, true) from pg_index i join pg_class c on c.oid = i.indexrelid "
        "join pg_am m on m.oid = c.relam where i.indrelid = to_regclass(%s) and m.amname in ('gin', 'gist')",
        (table,),
    ).fetchall()
    for (expression,) in indexes:
        indexed_match = _EXPRESSION.fullmatch(expression)
        if indexed_match and re.search(rf"\b{re.escape(text)}\b", expression):
            return f"'{indexed_match[1]}'::regconfig", expression
    return "'simple'::regconfig", f"to_tsvector('simple', coalesce(t.{_quote_name(text)}::text, ''))"


def _distance(connection: Connection[Any], table: str, vector: str) -> str:
    """Return the distance used by the vectors' index; the cosine if there is none."""
    rows = connection.execute(
        "select o.opcname from pg_index i join pg_opclass o on o.oid = i.indclass[0] "
        "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0] "
        "where i.indrelid = to_regclass(%s) and a.attname = %s",
        (table, vector),
    ).fetchall()
    for (name,) in rows:
        for distance in _OPERATORS:
            if name.endswith(f"_{distance}_ops"):
                return distance
    return "cosine"
