r"""The tables of a dataset, the statement that searches them, and filters as SQL.

The search scores words like `pointsman.evaluation.conformance.stores.store_samples.bm25`: postings contain the term
frequency and the document's length, and the dataset's row the totals, so scores are exact immediately after a write.

PostgreSQL cannot store NUL in a text. Strings are escaped in a way that keeps their order and keeps them distinct: NUL
becomes ``\x01\x01``, and ``\x01`` becomes ``\x01\x02``.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from pointsman.store.prepared_documents import storable
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError
from pointsman.values.filters import (
    And,
    Contains,
    EndsWith,
    Equals,
    Exists,
    Filter,
    In,
    Not,
    Or,
    PartOfText,
    Range,
    StartsWith,
)
from pointsman.values.metadata import ID, TEXT, cases, facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pointsman.values.filters import Typed

FORMAT: Final = 2
DERIVED: Final = f"{DEFAULT_ANALYZER.fingerprint} facts 2 access 1"
"""Version of the rules for words, facts and access signatures; those of other versions are rebuilt."""
EXACT_ROWS: Final = 50_000
"""Number of vectors from which on there is an HNSW index."""
FEW: Final = 5_000
"""Allowed documents up to which all are examined, if there is an HNSW index; without one there is no limit."""
LARGEST_ID: Final = 2**31 - 1
"""The largest number that the database can limit a list to."""
SOURCE_PREFIX: Final = "left(facts ->> 'source', 500)"  # an index takes no longer texts
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_AFTER_SURROGATES: Final = "\ue000"


def escaped(text: str) -> str:
    r"""Escape a text so that PostgreSQL can store it; see above.

    >>> escaped("a\0b"), escaped("信号")
    ('a\x01\x01b', '信号')
    """
    if "\0" not in text and "\x01" not in text:
        return text
    return text.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")


def unescaped(text: str) -> str:
    r"""Reverse `escaped`.

    >>> unescaped(escaped("a\0\x01\x02b")) == "a\0\x01\x02b"
    True
    """
    return (
        re.sub("\x01([\x01\x02])", lambda match: "\0" if match[1] == "\x01" else "\x01", text)
        if "\x01" in text
        else text
    )


# ── metadata and filters ─────────────────────────────────────────────────────────────────────────────────────────────


def facts_of(metadata: Mapping[str, Any]) -> str:
    """Return a document's metadata for filters as JSON: for each key its typed values."""
    return _json(
        {escaped(key): [_plain(typed_value) for typed_value in values] for key, values in facts(metadata).items()}
    )


def _plain(typed: Typed) -> Any:
    kind, value = typed
    if kind == "boolean":
        return bool(value)
    if kind == "string":
        return escaped(value)
    # A large double has the digits of the integer that it equals, so that it differs from its neighbours.
    return int(value) if math.isfinite(value) and abs(value) >= 2**53 else value


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _json(value: Any) -> str:
    text = _encode(value)
    # JSON has no infinity, but PostgreSQL's numbers include 10 to the 999.
    return (
        re.sub(r'("(?:[^"\\]|\\.)*")|Infinity', lambda match: match[1] or "1e999", text) if "Infinity" in text else text
    )


class Condition:
    """A filter as SQL over a table ``d`` with columns ``key`` and ``facts``, with its parameters.

    Args:
        filters: the filter; None matches everything.
        text: the document's text, as SQL.
        values: what a condition compares with.
    """

    def __init__(
        self,
        filters: Filter | None,
        text: str = "d.text",
        values: Callable[[Equals | In], Iterable[Typed]] = lambda condition: (
            [condition.typed] if isinstance(condition, Equals) else condition.typed
        ),
    ) -> None:
        self._compared_values = values
        self.parameters: dict[str, Any] = {}
        self._single_texts = {ID: "d.key", TEXT: text}  # keys with a single text as value
        self.sql = "true" if filters is None else self._sql_of(filters)

    def _parameter(self, value: Any) -> str:
        name = f"f{len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s"

    def _sql_of(self, filters: Filter) -> str:  # noqa: PLR0911  (one for each kind)
        match filters:
            case And(operands) | Or(operands):
                empty = "true" if isinstance(filters, And) else "false"
                return f"({f' {filters.word} '.join(map(self._sql_of, operands))})" if operands else empty
            case Not(operand):
                return f"(not {self._sql_of(operand)})"
            case Equals() | In():
                return self._contains(filters.key, self._compared_values(filters))
            case Exists(key) if key in self._single_texts:
                return "true"
            case Exists(key):
                return f"d.facts ? {self._parameter(escaped(key))}" if storable(key) else "false"
            case Range():
                return self._range_sql(filters)
            case PartOfText():
                return self._has_part(filters)
            case _:
                raise InputError(f"a filter of the kind {type(filters).__name__} is unknown to PostgreSQL stores")

    def _contains(self, key: str, values: Iterable[Typed]) -> str:
        """Return a test that one of the key's values is among these; stored values never contain lone surrogates."""
        able = [typed_value for typed_value in values if typed_value[0] != "string" or storable(typed_value[1])]
        if not able or not storable(key):
            return "false"
        if key in self._single_texts:
            texts = [escaped(value) for kind, value in able if kind == "string"]
            return f"{self._single_texts[key]} = any({self._parameter(texts)}::text[])"
        patterns = [_json({escaped(key): [_plain(typed_value)]}) for typed_value in able]
        if len(patterns) == 1:
            return f"d.facts @> {self._parameter(patterns[0])}::jsonb"
        return f"d.facts @> any({self._parameter(patterns)}::text[]::jsonb[])"

    def _range_sql(self, condition: Range) -> str:
        if not storable(condition.key):
            return "false"
        kind, low, low_included, high, high_included = condition.interval
        bounds, tests = {}, []
        for name, sign, value, is_included in (("low", ">", low, low_included), ("high", "<", high, high_included)):
            if value is None:
                continue
            if kind == "string" and (match := _SURROGATE.search(value)):
                # Stored values contain no surrogates, so the bound is moved to the first text after all of them.
                value, is_included = value[: match.start()] + _AFTER_SURROGATES, name == "low"  # noqa: PLW2901
            bounds[name] = _plain((kind, value))
            tests.append(f"@ {sign}{'=' * is_included} ${name}")
        path = f"strict $[*] ? ({' && '.join(tests)})"
        values = self._values(condition.key)
        return f"coalesce(jsonb_path_exists({values}, '{path}', {self._parameter(_json(bounds))}::jsonb), false)"

    def _values(self, key: str) -> str:
        """Return a key's values for filters, as a JSON array."""
        if key in self._single_texts:
            return f"jsonb_build_array({self._single_texts[key]})"
        return f"(d.facts -> {self._parameter(escaped(key))}::text)"

    def _has_part(self, condition: PartOfText) -> str:
        if not storable(condition.key) or not storable(condition.part):
            return "false"
        substring, value = escaped(condition.part), "(e.v #>> '{}')"
        # A match must begin at a character's start, not at the second character of an escape.
        begin = "^" if isinstance(condition, StartsWith) else "^(?:\x01[\x01\x02]|[^\x01])*?"
        if condition.ignore_case or (not isinstance(condition, StartsWith) and substring[:1] in {"\x01", "\x02"}):
            letters = "".join(map(_any_case, condition.part) if condition.ignore_case else map(_regular, substring))
            pattern = begin + letters + "$" * isinstance(condition, EndsWith)
            test = f'{value} collate "C" ~ {self._parameter(pattern)}'
        elif isinstance(condition, Contains):
            test = f"strpos({value}, {self._parameter(substring)}) > 0"
        elif isinstance(condition, EndsWith):
            test = f"right({value}, {len(substring)}) = {self._parameter(substring)}"
        else:
            test = f"starts_with({value}, {self._parameter(substring)})"
        values = self._values(condition.key)
        return f"exists (select from jsonb_array_elements({values}) e(v) where jsonb_typeof(e.v) = 'string' and {test})"


def _any_case(letter: str) -> str:
    """Return a regular expression for a letter in any case."""
    letters = [escaped(variant) for variant in cases(letter)]
    return "".join(map(_regular, letters[0])) if len(letters) == 1 else f"[{''.join(letters)}]"


def _regular(character: str) -> str:
    """Return a regular expression for a character."""
    return character if character.isalnum() or ord(character) > 127 or character in "_\x01\x02" else f"\\{character}"


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def catalogue(schema: str) -> str:
    """Return SQL that creates the tables in which a schema lists its datasets, and their notes."""
    return f"""
create table if not exists "{schema}".dataset (
    name text collate "C" primary key,
    number int not null unique generated always as identity,
    identity uuid not null default gen_random_uuid(),
    description text not null,
    technique text not null,
    settings json not null,
    format int not null default {FORMAT},
    analyzer text not null,
    k1 float8 not null,
    b float8 not null,
    embedder text,
    dimensions int,
    seq bigint not null default 0,
    documents bigint not null default 0,
    tokens bigint not null default 0,
    analyzed bigint not null default 0,
    kept jsonb
) with (fillfactor = 50);
create table if not exists "{schema}".note (
    number int not null references "{schema}".dataset (number) on delete cascade,
    name text collate "C" not null, value text not null, primary key (number, name));"""


class Tables:
    """The tables of a dataset, by their names as SQL.

    Args:
        schema: schema of the workspace.
        number: number of the dataset.
        vectors: the schema that contains pgvector.
    """

    def __init__(self, schema: str, number: int, vectors: str) -> None:
        self.schema, self.number, self.vectors = schema, number, vectors
        self.doc, self.body, self.vec, self.term, self.posting, self.signature = (
            f'"{schema}".d{number}_{name}' for name in ("doc", "body", "vec", "term", "posting", "signature")
        )
        self.history, self.moment, self.former = (
            f'"{schema}".d{number}_{name}' for name in ("history", "moment", "former")
        )

    @property
    def row(self) -> str:
        """Return the dataset's row in the catalogue, as a source of scalars."""
        return f'"{self.schema}".dataset where number = {self.number}'

    def update(self, assignments: str) -> str:
        """Return SQL that changes the dataset's row in the catalogue."""
        return f'update "{self.schema}".dataset set {assignments} where number = {self.number}'

    @property
    def notes(self) -> str:
        """Return the dataset's notes, as a source of rows."""
        return f'"{self.schema}".note where number = {self.number}'

    @property
    def insert_notes(self) -> str:
        """Return SQL that adds notes, whose names and values are its parameters."""
        rows = "* from unnest(%s::text[], %s::text[])"
        return f'insert into "{self.schema}".note (number, name, value) select {self.number}, {rows}'

    @property
    def select(self) -> str:
        """Return SQL that reads the documents ``d``: number, key, text and metadata."""
        return f"select d.id, d.key, y.text, y.metadata from {self.doc} d join {self.body} y on y.id = d.id"

    @property
    def create(self) -> str:
        """Return SQL that creates the tables, except that of vectors.

        Views need the signature of each document, and what documents share by it: ``changed`` is the sequence number of
        the last write to a document that has, or had, the signature.
        """
        return f"""
create table {self.doc} (
    id int primary key generated by default as identity,
    key text collate "C" not null unique,
    length int not null,
    seq bigint not null,
    digest bytea not null,
    facts jsonb not null,
    signature int not null default 0
);
create index on {self.doc} using gin (facts jsonb_path_ops);
create table {self.body} (id int primary key references {self.doc} on delete cascade,
    text text not null, metadata text not null);
create table {self.term} (
    id int primary key generated by default as identity,
    term text collate "C" not null unique,
    df int not null
) with (fillfactor = 80);
create table {self.posting} (term int not null, doc int not null, tf int not null, length int not null);
create index on {self.posting} (term, doc) include (tf, length);
create index d{self.number}_doc_signature on {self.doc} (signature, id);
create index d{self.number}_doc_source on {self.doc} (signature, {SOURCE_PREFIX});
create table {self.signature} (
    id int primary key generated by default as identity,
    digest bytea not null unique,
    signature text not null,
    documents bigint not null default 0,
    tokens bigint not null default 0,
    changed bigint not null default 0
) with (fillfactor = 50);
"""

    def create_vectors(self, dimensions: int) -> str:
        """Return SQL that creates the table of vectors; ``digest`` identifies equal ones without comparing them."""
        return f"""
create table {self.vec} (id int primary key references {self.doc} on delete cascade,
    digest bytea not null, v "{self.vectors}".vector({dimensions}) not null) with (toast_tuple_target = 8160);
alter table {self.vec} alter v set storage external;
"""

    @property
    def drop(self) -> str:
        """Return SQL that drops all tables."""
        return (
            f"drop table if exists {self.vec}, {self.posting}, {self.term}, {self.body}, {self.doc}, {self.signature}, "
            f"{self.history}, {self.moment}, {self.former}"
        )

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def near(self) -> str:
        """Return the operator (the negative dot product) and the query vector after it."""
        return f'operator("{self.vectors}".<#>) %(v)s::text::"{self.vectors}".vector'


class DatasetTables:
    """The statements that read all documents of a dataset.

    Args:
        tables: of the dataset.
        k1: term frequency saturation of BM25.
        b: length normalisation of BM25.
        limit: the number up to which allowed documents are counted.
        repeatable: whether a search depends on the documents alone, and on no plan, no index and no order of rows: all
            vectors that may be found are compared, and what words add to a score is summed as in `ViewTables`.
    """

    def __init__(self, tables: Tables, k1: float, b: float, *, limit: int, repeatable: bool) -> None:
        self._tables, self._k1, self._b, self._limit, self._repeatable = tables, k1, b, limit, repeatable

    def _scored_words(self) -> str:
        """Return SQL that scores all documents with a query word; ``q`` has all words, ``id`` null if in none."""
        score, matched, row = self._sum("h.s"), self._sum("h.idf"), self._tables.row
        return f"""
q as materialized (
  select t.id,
    w.n * ln(1 + ((select documents from {row}) - coalesce(t.df, 0) + 0.5::float8)
      / (coalesce(t.df, 0) + 0.5::float8)) as idf,
    {self._k1 * (1 - self._b)!r}::float8 as base,
    {self._k1 * self._b!r}::float8 * (select greatest(documents, 1)::float8 / greatest(tokens, 1) from {row}) as slope
  from unnest(%(terms)s::text[], %(counts)s::float8[]) w(term, n)
    left join {self._tables.term} t on t.term = w.term and t.df > 0),
scored as materialized (
  select h.doc, {score} as score, {matched} as matched from q cross join lateral (
    select p.doc, q.idf, q.idf * p.tf::float8 / (p.tf::float8 + q.base + q.slope * p.length::float8) as s
    from {self._tables.posting} p where p.term = q.id) h group by h.doc)"""

    def search(self, condition: Condition | None, *, has_words: bool, has_vector: bool) -> str:
        """Return the search: a row per candidate with id, score and cosine in its list, both scores, and the document.

        Then come the sum of the idf of the query's words, the same in every row, that of the words which the document
        has, and that of the words which no document has, again the same in every row; all are null without words.

        With a condition, the allowed documents are counted up to the limit. If there are fewer, both lists are exact
        over them; otherwise both are read in order until enough documents are allowed.
        """
        tables, pool, limit = [], [], self._limit
        if condition is not None:
            tables.append(
                f"few as materialized (select d.id from {self._tables.doc} d where {condition.sql} limit {limit + 1})"
            )
            tables.append("n as materialized (select count(*) as n from few)")
        if has_words:
            tables += [self._scored_words(), self._words(condition, limit)]
            pool.append("select id from words")
        if has_vector:
            tables.append(self._nearest_vectors(condition, limit))
            pool.append("select id from near")
        return _candidates(self._tables, tables, pool, self._sum("idf"), has_words=has_words, has_vector=has_vector)

    def _sum(self, expression: str) -> str:
        return _exact_sum(expression) if self._repeatable else f"sum({expression})"

    def _words(self, condition: Condition | None, limit: int) -> str:
        if condition is None:
            return "words as materialized (select doc as id, score from scored order by score desc, doc limit %(k)s)"
        return f"""
words as materialized (
  (select s.doc as id, s.score from scored s join few on few.id = s.doc where (select n from n) <= {limit}
    order by s.score desc, s.doc limit %(k)s)
  union all
  (select r.doc, r.score from (
      select doc, score from scored where (select n from n) > {limit} order by score desc, doc offset 0) r
    cross join lateral (select from {self._tables.doc} d where d.id = r.doc and {condition.sql} offset 0) ok
    order by r.score desc, r.doc limit %(k)s))"""

    def _nearest_vectors(self, condition: Condition | None, limit: int) -> str:
        # The index returns rows only nearly in order, but the planner trusts it: adding 0 makes it sort, and read all
        # that the inner limit requests.
        operator, vec = self._tables.near(), self._tables.vec
        if condition is None and self._repeatable:
            return f"""
near as materialized (select id, -d as cosine from (
  select e.id, e.v {operator} as d from {vec} e offset 0) z order by d, id limit %(k)s)"""
        if condition is None:
            return f"""
near as materialized (select id, -d as cosine from (
  select e.id, e.v {operator} as d from {vec} e order by e.v {operator} limit %(k)s) z order by d + 0, id)"""
        return f"""
near as materialized (select id, -d as cosine from (
  (select id, d from (select e.id, e.v {operator} as d from few join {vec} e using (id)
      where (select n from n) <= {limit} offset 0) y order by d, id limit %(k)s)
  union all
  (select e.id, e.v {operator} as d from {vec} e
    cross join lateral (select from {self._tables.doc} d where d.id = e.id and {condition.sql} offset 0) ok
    where (select n from n) > {limit} order by e.v {operator} limit 3 * %(k)s)) z order by d + 0, id limit %(k)s)"""

    def score(self, *, has_words: bool, has_vector: bool) -> str:
        """Return SQL for both scores of given documents, and the sum of the idf of the words that each has."""
        scored = self._scored_words().replace("p.term = q.id)", "p.term = q.id and p.doc = any(%(ids)s::bigint[]))")
        documents = "unnest(%(ids)s::bigint[]) d(id)"
        return _scoring(self._tables, scored if has_words else "", documents, has_vector=has_vector)


def _candidates(
    tables: Tables, lists: Sequence[str], pool: Sequence[str], idf: str, *, has_words: bool, has_vector: bool
) -> str:
    """Return the end of a search: a row for each candidate of its lists, with the columns of `DatasetTables.search`.

    Args:
        tables: of the dataset.
        lists: the tables of the search by name: ``words`` and ``scored`` if there are words, ``near`` if a vector.
        pool: statements that give the ids of the candidates.
        idf: adds up the idf of the query's words.
        has_words: whether there are words.
        has_vector: whether there is a vector.
    """
    score_columns = "w.score, coalesce(s.score, 0)" if has_words else "null::float8, null::float8"
    score_columns += f", n.cosine, -(e.v {tables.near()})" if has_vector else ", null::float8, null::float8"
    word_columns = f"(select {idf} from q), coalesce(s.matched, 0)"
    return (
        f"with {', '.join(lists)} select d.id, {score_columns}, d.key, y.text, y.metadata, "
        f"{word_columns if has_words else 'null::float8, null::float8'} "
        f"from ({' union '.join(pool)}) pool join {tables.doc} d on d.id = pool.id "
        f"join {tables.body} y on y.id = d.id"
        + (" left join words w on w.id = d.id left join scored s on s.doc = d.id" if has_words else "")
        + (f" left join near n on n.id = d.id left join {tables.vec} e on e.id = d.id" if has_vector else "")
    )


def _scoring(tables: Tables, scored: str, documents: str, *, has_vector: bool) -> str:
    """Return SQL for both scores of documents, and the sum of the idf of the words that each has.

    Args:
        tables: of the dataset.
        scored: the tables of a search that score words; empty without words.
        documents: where the documents ``d`` are from.
        has_vector: whether there is a vector.
    """
    columns = "coalesce(s.score, 0)" if scored else "null::float8"
    columns += f", -(e.v {tables.near()})" if has_vector else ", null::float8"
    columns += ", coalesce(s.matched, 0)" if scored else ", null::float8"
    return (
        (f"with {scored} " if scored else "")
        + f"select d.id, {columns} from {documents}"
        + (" left join scored s on s.doc = d.id" if scored else "")
        + (f" left join {tables.vec} e on e.id = d.id" if has_vector else "")
    )


_UNIT: Final = f"{2**36}::float8"


def _exact_sum(expression: str) -> str:
    """Return SQL that adds up in units of 2 to the -36, so that the sum does not depend on the order."""
    return f"sum(round({_UNIT} * {expression})::bigint)::float8 / {_UNIT}"


class ViewTables:
    """The statements that read the documents with some signatures, as if there were no others.

    No list depends on a plan, or on an order in which rows are read: all visible vectors are compared, and what the
    words of a query add to a score is summed in units of 2 to the -36.

    Args:
        tables: of the dataset.
        k1: term frequency saturation of BM25.
        b: length normalisation of BM25.
    """

    VISIBLE: Final = "d.signature = any(%(signatures)s::int[])"
    """The condition for the documents ``d`` that exist."""

    def __init__(self, tables: Tables, k1: float, b: float) -> None:
        self._tables, self._k1, self._b = tables, k1, b

    def frequencies(self) -> str:
        """Return SQL for the number of documents that contain each of some terms."""
        return (
            f"select t.term, count(*) from {self._tables.term} t join {self._tables.posting} p on p.term = t.id "
            f"join {self._tables.doc} d on d.id = p.doc where t.term = any(%(terms)s::text[]) and {self.VISIBLE} "
            "group by t.term"
        )

    def best_cosines(self) -> str:
        """Return SQL for the best cosine of each question, by its number from 1, over each of some signatures."""
        vectors = self._tables.vectors
        return (
            f'with q as materialized (select n, t::"{vectors}".vector as v from unnest(%(questions)s::text[]) '
            "with ordinality u(t, n)) "
            f'select d.signature, q.n, max(-(e.v operator("{vectors}".<#>) q.v)) from {self._tables.doc} d '
            f"join {self._tables.vec} e on e.id = d.id cross join q where {self.VISIBLE} group by d.signature, q.n"
        )

    def _scores(self) -> str:
        tables = self._tables
        share = f"""q.idf * h.tf
      / (h.tf + {self._k1 * (1 - self._b)!r}::float8 + {self._k1 * self._b!r}::float8
        * greatest(size.documents, 1) / greatest(size.tokens, 1) * h.length)"""
        return f"""
size as materialized (
  select coalesce(sum(documents), 0)::float8 as documents, coalesce(sum(tokens), 0)::float8 as tokens
  from {tables.signature} where id = any(%(signatures)s::int[])),
t as materialized (select w.n, w.occurrences, t.id
  from unnest(%(terms)s::text[], %(counts)s::float8[]) with ordinality w(term, occurrences, n)
    left join {tables.term} t on t.term = w.term),
h as materialized (select p.term, p.doc, p.tf::float8 as tf, p.length::float8 as length
  from {tables.posting} p join {tables.doc} d on d.id = p.doc
  where p.term = any(array(select id from t)) and {self.VISIBLE}),
q as materialized (select t.n, t.id, t.occurrences * ln(1 + (size.documents - coalesce(f.df, 0) + 0.5::float8)
    / (coalesce(f.df, 0) + 0.5::float8)) as idf
  from t cross join size left join (select term, count(*)::float8 as df from h group by term) f on f.term = t.id),
scored as materialized (
  select h.doc, {_exact_sum("q.idf")} as matched, {_exact_sum(share)} as score
  from h join q on q.id = h.term cross join size group by h.doc)"""

    def search(self, condition: Condition | None, *, has_words: bool, has_vector: bool) -> str:
        """Return the search, with the columns of `DatasetTables.search`."""
        tables, lists, pool = self._tables, [], []
        doc = f"join {tables.doc} d on d.id = "
        matching = "" if condition is None else f" and {condition.sql}"
        if has_words:
            lists += [
                self._scores(),
                "words as materialized (select s.doc as id, s.score from scored s "
                + ("" if condition is None else f"{doc}s.doc where {condition.sql} ")
                + "order by s.score desc, s.doc limit %(k)s)",
            ]
            pool.append("select id from words")
        if has_vector:
            lists.append(
                f"near as materialized (select id, -d as cosine from (select e.id, e.v {tables.near()} as d "
                f"from {tables.vec} e {doc}e.id where {self.VISIBLE}{matching} offset 0) z order by d, id limit %(k)s)"
            )
            pool.append("select id from near")
        return _candidates(tables, lists, pool, "sum(idf order by n)", has_words=has_words, has_vector=has_vector)

    def score(self, *, has_words: bool, has_vector: bool) -> str:
        """Return SQL like `DatasetTables.score`."""
        tables = self._tables
        statement = _scoring(tables, self._scores() if has_words else "", f"{tables.doc} d", has_vector=has_vector)
        return f"{statement} where d.id = any(%(ids)s::bigint[]) and {self.VISIBLE}"
