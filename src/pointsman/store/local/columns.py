"""Metadata as columns in memory: a filter over a hundred thousand documents in hundredths of a millisecond.

Each pair of metadata key and kind of value (see `pointsman.filters`) has its own column: numbers and booleans are
stored as doubles, strings as codes into a sorted vocabulary, so equality and ranges take one or two numpy passes.
Integers that no double represents exactly are stored like strings.

For a long string the vocabulary holds its beginning and a hash, which is enough for equality and for short ranges and
prefixes. Conditions that need whole strings, ids or texts are answered by scanning all documents.

Rows are append-only. A replaced document gets a new row and its old row is dead; when dead rows outnumber living
ones, the columns are compacted. The amortised cost of a change is therefore proportional to its size.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pointsman._values import ID, TEXT
from pointsman.filters import (
    And,
    Equals,
    Exists,
    Filter,
    In,
    Interval,
    Kind,
    Not,
    Or,
    PartOfText,
    Range,
    StartsWith,
    Typed,
    facts,
)

Bools = NDArray[np.bool_]
Keys = NDArray[np.int64]
Test = Callable[[NDArray[Any]], Bools]
Pairs = Iterable[tuple[int, Mapping[str, Any]]]
Condition = Equals | In | Range | PartOfText | Exists
Scan = Callable[[Condition], Keys]

_LONGEST: Final = 64
"""How many characters of a string are kept."""
_BATCH = 65_536  # documents collected in Python lists before they move to arrays


class Columns:
    """The filterable metadata of one dataset.

    The columns are loaded on first use: ``load`` is called once for all documents of the truth, and from then on
    `put` and `remove` keep the columns current (before that, they do nothing). Call them after the truth has changed.
    ``load`` must not wait for a thread that may be in `put` or `remove`.

    Thread-safe: one lock guards reads and changes.

    Args:
        load: Yields every key with its metadata. Without it the columns start empty.
        scan: Returns the keys of the documents that meet a condition by scanning all documents. Without it long
            strings are kept whole, and conditions on ids and texts match nothing.
        restore: Returns the current columns in less time than ``load``; None if it has none.
    """

    def __init__(
        self,
        load: Callable[[], Pairs] | None = None,
        scan: Scan | None = None,
        restore: Callable[[], Table | None] | None = None,
    ) -> None:
        self._load, self._scan, self._restore = load, scan, restore
        self._lock = threading.Lock()
        self._table: Table | None = Table(scan) if load is None else None
        self._aligned_rows: tuple[Keys, int, Keys | None] | None = None

    def put(self, key: int, metadata: Mapping[str, Any]) -> None:
        """Insert or replace one document."""
        self.put_many([(key, metadata)])

    def put_many(self, pairs: Pairs) -> None:
        """Insert or replace documents; if a key repeats, its last document wins."""
        with self._lock:
            if self._table is not None:
                self._table.put(pairs)

    def remove(self, key: int) -> None:
        """Remove a document; an unknown key is ignored."""
        with self._lock:
            if self._table is not None:
                self._table.remove(key)

    @property
    def loaded(self) -> bool:
        """Whether the columns are loaded; until then changes need not be reported."""
        return self._table is not None

    def names(self) -> frozenset[str] | None:
        """Return the keys of which documents have values; None until the columns are loaded.

        A key stays for a while after its last value is gone.
        """
        with self._lock:
            return None if self._table is None else self._table.names()

    def forget(self) -> None:
        """Drop everything; the next use loads again. Without ``load`` the columns are then empty."""
        with self._lock:
            self._table = Table(self._scan) if self._load is None else None
            self._aligned_rows = None

    def use(self, action: Callable[[Table], None]) -> None:
        """Call ``action`` with the columns, loading them if need be; nobody else reads or changes them meanwhile."""
        with self._lock:
            action(self._ready())

    def mask(self, filter: Filter, keys: NDArray[np.int64]) -> NDArray[np.bool_]:  # noqa: A002
        """Return a mask of the ``keys`` that match, in their order; unknown keys never match.

        A read-only array (``keys.flags.writeable = False``) is assumed never to change: its rows are cached between
        calls, which makes long arrays several times faster.
        """
        with self._lock:
            table = self._ready()
            if len(keys) * 4 < table.size:
                rows = table.rows(keys)
                present = rows >= 0
                return table.evaluate(filter, rows) & present if table.size else present
            rows_or_all = self._align(table, keys)
            full = table.evaluate(filter)
            if rows_or_all is None:
                return full[: len(keys)]
            return np.append(full, False)[rows_or_all]  # unknown keys are row -1, the one appended

    def allowed(self, filter: Filter) -> NDArray[np.int64]:  # noqa: A002
        """Return the keys that match, ascending."""
        with self._lock:
            table = self._ready()
            return np.sort(table.keys.view[table.evaluate(filter) & table.alive.view])

    def __len__(self) -> int:
        """Return the number of documents."""
        with self._lock:
            return self._ready().living

    def _ready(self) -> Table:
        if self._table is None:
            assert self._load is not None
            table = None if self._restore is None else self._restore()
            if table is None:
                table = Table(self._scan)
                table.put(self._load())
            self._table = table
        return self._table

    def _align(self, table: Table, keys: Keys) -> Keys | None:
        """Return the rows of ``keys``, or None if they are the first ``len(keys)`` rows in order."""
        if self._aligned_rows is not None:
            cached_keys, version, rows = self._aligned_rows
            if cached_keys is keys and version == table.version and not keys.flags.writeable:
                return rows
        straight = len(keys) <= table.size and np.array_equal(keys, table.keys.view[: len(keys)])
        rows = None if straight and table.alive.view[: len(keys)].all() else table.rows(keys)
        if not keys.flags.writeable:
            self._aligned_rows = keys, table.version, rows
        return rows


class _Growing:
    """A growable array; its spare room is filled with ``blank``."""

    __slots__ = ("_blank", "_data", "size")

    def __init__(self, dtype: Any, blank: float = 0) -> None:
        self._blank = blank
        self._data: NDArray[Any] = np.empty(0, dtype)
        self.size = 0

    @property
    def view(self) -> NDArray[Any]:
        return self._data[: self.size]

    def grow(self, size: int) -> None:
        if size > len(self._data):
            room = np.full(max(size, len(self._data) * 3 // 2), self._blank, self._data.dtype)
            room[: self.size] = self.view
            self._data = room
        self.size = max(size, self.size)

    @classmethod
    def of(cls, items: NDArray[Any], blank: float = 0) -> _Growing:
        """Return an array with these items, which are not copied until it grows."""
        growing = cls(items.dtype, blank)
        growing._data, growing.size = items, len(items)
        return growing

    def extend(self, items: Any) -> None:
        start = self.size
        self.grow(start + len(items))
        self._data[start : self.size] = items


class _RowOf:
    """The living row of each key: a table for keys as dense as counters, a dict for the others."""

    def __init__(self) -> None:
        self._table = _Growing(np.int32, -1)
        self._rows_beyond: dict[int, int] = {}

    def set(self, keys: Keys, rows: NDArray[np.int64], living: int) -> None:
        """Assign rows to keys; if a key repeats, its last row wins."""
        # at most 64 bytes of table per document, about the size of a dict entry
        in_table = (keys >= 0) & (keys < 16 * living + 2**20)
        if self._rows_beyond:
            in_table &= [int(key) not in self._rows_beyond for key in keys]
        if in_table.any():
            self._table.grow(int(keys[in_table].max()) + 1)
            self._table.view[keys[in_table]] = rows[in_table]
        beyond_table = ~in_table
        self._rows_beyond.update(zip(keys[beyond_table].tolist(), rows[beyond_table].tolist(), strict=True))

    def drop(self, key: int) -> None:
        if self._rows_beyond.pop(key, None) is None:
            self._table.view[key] = -1

    def rows(self, keys: Keys) -> NDArray[np.int64]:
        """Return the row of each key, -1 for unknown keys."""
        in_table = (keys >= 0) & (keys < self._table.size)
        if in_table.all():
            return self._table.view[keys].astype(np.int64)
        rows = np.full(len(keys), -1)
        rows[in_table] = self._table.view[keys[in_table]]
        if self._rows_beyond:
            for index in np.flatnonzero(rows < 0).tolist():
                rows[index] = self._rows_beyond.get(int(keys[index]), -1)
        return rows


class _Column(ABC):
    """The values of one metadata key and one kind.

    The first values of all rows form a plane, an array as long as the table; the second values form another, and so
    on, as long as an eighth of the rows have that many. The rest, including all values of a rare key, are kept as
    pairs of row and value.
    """

    __slots__ = ("_cells", "_new_cells", "_new_rows", "_patience", "_planes", "_rows")
    dtype: type[np.generic]
    missing: float

    def __init__(self) -> None:
        self._new_rows: list[int] = []
        self._new_cells: list[Any] = []
        self._fill([], np.empty(0, np.int32), np.empty(0, self.dtype), 0)

    def add(self, row: int, content: Any) -> None:
        """Queue a value until `settle`. Rows arrive in ascending order."""
        self._new_rows.append(row)
        self._new_cells.append(self._encode(content))

    def settle(self, size: int) -> None:
        """Move the queued values into the arrays; a row's values are always settled together."""
        rows, cells = np.array(self._new_rows, np.int32), np.array(self._new_cells, self.dtype)
        self._new_rows, self._new_cells = [], []
        for plane in self._planes:
            rows, cells = _lay(plane, rows, cells)
        self._rows.extend(rows)
        self._cells.extend(cells)
        if self._rows.size > self._patience and self._rows.size * 8 > size:
            self._fill(self._planes, self._rows.view, self._cells.view, size)

    def to_arrays(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """Return what `restore` needs; nothing may be queued."""
        return {"planes": len(self._planes)}, [
            *(plane.view for plane in self._planes),
            self._rows.view,
            self._cells.view,
        ]

    def restore(self, description: Mapping[str, Any], arrays: Iterator[NDArray[Any]]) -> None:
        """Take the content from what `to_arrays` returned."""
        self._planes = [_Growing.of(next(arrays), self.missing) for _ in range(description["planes"])]
        self._rows, self._cells = _Growing.of(next(arrays)), _Growing.of(next(arrays))
        self._patience = 2 * self._rows.size

    def tidy(self, slack: int) -> None:  # noqa: B027  # numbers have nothing to tidy
        """Do maintenance that pays off once per many changes; up to ``slack`` pending entries are left alone."""

    def hits(self, test: Test, size: int, rows: NDArray[np.int64] | None) -> Bools:
        """Return a mask of the rows (the first ``size``, or those given) that have a value passing the test."""
        selected_rows = None if self._rows.size else rows  # pairs can only be looked up by row in a mask of all rows
        result: Bools | None = None
        for plane in self._planes:
            plane.grow(size)
            mask = test(plane.view if selected_rows is None else plane.view[selected_rows])
            result = mask if result is None else np.logical_or(result, mask, out=result)
        if result is None:
            result = np.zeros(size if selected_rows is None else len(selected_rows), np.bool_)
        if self._rows.size:
            result[self._rows.view[test(self._cells.view)]] = True
        if rows is selected_rows:
            return result
        matches: Bools = result[rows]
        return matches

    def compact(self, alive: Bools, new_numbers: NDArray[np.int64], size: int) -> bool:
        """Keep the living rows under their new numbers; return False when nothing is left."""
        present = [np.flatnonzero(self.anything()(plane.view)) for plane in self._planes]
        cells = np.concatenate(
            [*(plane.view[rows] for plane, rows in zip(self._planes, present, strict=True)), self._cells.view]
        )
        rows = np.concatenate([*present, self._rows.view])
        mask = alive[rows]
        rows, cells = new_numbers[rows[mask]], cells[mask]
        order = np.argsort(rows, kind="stable")
        self._fill([], rows[order].astype(np.int32), self._recode(cells[order]), size)
        return bool(len(rows))

    def _fill(self, planes: list[_Growing], rows: NDArray[Any], cells: NDArray[Any], size: int) -> None:
        """Keep the planes, add as many as these pairs (rows ascending) justify, and keep the rest as pairs."""
        self._planes = planes
        while np.count_nonzero(_leading(rows)) * 8 > size:
            self._planes.append(_Growing(self.dtype, self.missing))
            rows, cells = _lay(self._planes[-1], rows, cells)
        self._rows, self._cells = _Growing(np.int32), _Growing(self.dtype)
        self._rows.extend(rows)
        self._cells.extend(cells)
        self._patience = 2 * len(rows)  # check again only when the pairs have doubled, so checks stay cheap

    def _encode(self, content: Any) -> Any:
        return content

    def _recode(self, cells: NDArray[Any]) -> NDArray[Any]:
        return cells

    @abstractmethod
    def anything(self) -> Test:
        """Return the test that every value passes."""

    @abstractmethod
    def one_of(self, contents: Sequence[Any]) -> Test:
        """Return the test for equality with any of these values."""

    @abstractmethod
    def within(self, interval: Interval) -> Test:
        """Return the test for a range."""


class _Numbers(_Column):
    """Doubles; NaN means no value and passes no comparison."""

    __slots__ = ()
    dtype = np.float64
    missing = np.nan

    def anything(self) -> Test:
        return lambda cells: cells == cells  # noqa: PLR0124  # all but NaN

    def one_of(self, contents: Sequence[Any]) -> Test:
        return lambda cells: _one_of(cells, contents)

    def within(self, interval: Interval) -> Test:
        low, low_included = _as_double(interval.low, interval.low_included, is_above=True)
        high, high_included = _as_double(interval.high, interval.high_included, is_above=False)

        def test(cells: NDArray[Any]) -> Bools:
            above_low = None if low is None else cells >= low if low_included else cells > low
            below_high = None if high is None else cells <= high if high_included else cells < high
            if above_low is None or below_high is None:
                return below_high if above_low is None else above_low  # type: ignore[return-value]  # a range has a bound
            mask: Bools = np.logical_and(above_low, below_high, out=above_low)
            return mask

        return test


def _as_double(bound: Any, is_included: bool, *, is_above: bool) -> tuple[float | None, bool]:
    """Return a range bound as a double and whether it is included; an integer that is none becomes the nearest one."""
    if bound is None or isinstance(bound, float):
        return bound, is_included
    double = float(bound)
    return double, (double > bound) == is_above


class _Vocabulary(_Column):
    """Codes: positions in a sorted vocabulary, followed by those of new values in order of arrival."""

    __slots__ = ("_fresh", "_sorted_texts")
    dtype = np.int32
    missing = -1

    def __init__(self) -> None:
        super().__init__()
        self._sorted_texts: list[Any] = []
        self._fresh: dict[Any, int] = {}

    def anything(self) -> Test:
        return lambda cells: cells >= 0

    def one_of(self, contents: Sequence[Any]) -> Test:
        codes = [code for content in contents if (code := self._code(self._entry(content))) is not None]
        return lambda cells: _one_of(cells, codes)

    def passing(self, test: Callable[[str], bool]) -> Test:
        """Return the test that applies ``test`` to each value of the vocabulary once."""
        mask = np.array(
            [*map(test, self._sorted_texts), *map(test, self._fresh), False], np.bool_
        )  # the last is for -1
        return lambda cells: mask[cells]

    def within(self, interval: Interval) -> Test:
        _, low, low_included, high, high_included = interval
        start = 0 if low is None else (bisect_left if low_included else bisect_right)(self._sorted_texts, low)
        end = len(self._sorted_texts)
        if high is not None:
            end = (bisect_right if high_included else bisect_left)(self._sorted_texts, high)
        fresh = [code for text, code in self._fresh.items() if interval.contains(text)]

        def test(cells: NDArray[Any]) -> Bools:
            result: Bools = cells >= start
            result &= cells < end
            if fresh:
                result |= _one_of(cells, fresh)
            return result

        return test

    def tidy(self, slack: int) -> None:
        """Merge the new strings into the sorted vocabulary once there are many, to amortise the cost."""
        if len(self._fresh) > max(slack, len(self._sorted_texts) // 4):
            texts = [*self._sorted_texts, *self._fresh]
            order = sorted(range(len(texts)), key=texts.__getitem__)
            codes = np.full(len(texts) + 1, -1, np.int32)  # the last position maps -1 (no value) to itself
            codes[order] = np.arange(len(texts), dtype=np.int32)
            self._sorted_texts, self._fresh = [texts[index] for index in order], {}
            for array in (self._cells, *self._planes):
                array.view[:] = codes[array.view]

    def to_arrays(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """See `_Column`; the vocabulary is JSON."""
        header, arrays = super().to_arrays()
        vocabulary = json.dumps([self._sorted_texts, list(self._fresh)]).encode()
        return header, [*arrays, np.frombuffer(vocabulary, np.uint8)]

    def restore(self, description: Mapping[str, Any], arrays: Iterator[NDArray[Any]]) -> None:
        """See `_Column`."""
        super().restore(description, arrays)
        self._sorted_texts, fresh = json.loads(next(arrays).tobytes())
        self._fresh = {content: code for code, content in enumerate(fresh, len(self._sorted_texts))}

    def _entry(self, content: Any) -> Any:
        """Return the form of a value that the vocabulary holds."""
        return content

    def _code(self, entry: Any) -> int | None:
        index = bisect_left(self._sorted_texts, entry)
        return (
            index if index < len(self._sorted_texts) and self._sorted_texts[index] == entry else self._fresh.get(entry)
        )

    def _encode(self, content: Any) -> int:
        entry = self._entry(content)
        code = self._code(entry)
        if code is None:
            code = self._fresh[entry] = len(self._sorted_texts) + len(self._fresh)
        return code

    def _recode(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Drop the strings that no document uses any more."""
        texts = [*self._sorted_texts, *self._fresh]
        codes_in_use = np.unique(cells).tolist()
        order = sorted(codes_in_use, key=texts.__getitem__)
        codes = np.full(len(texts), -1, np.int32)
        codes[order] = np.arange(len(order), dtype=np.int32)
        self._sorted_texts, self._fresh = [texts[code] for code in order], {}
        new_cells: NDArray[Any] = codes[cells]
        return new_cells


class _Strings(_Vocabulary):
    """Strings; long ones may be cut.

    Args:
        whole: whether long strings are kept whole.
    """

    __slots__ = ("_keeps_whole", "cut")

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self._keeps_whole = whole
        self.cut = False
        """Whether some string has been cut."""

    def _entry(self, content: Any) -> Any:
        if self._keeps_whole or len(content) <= _LONGEST:
            return content
        check = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{content[:_LONGEST]}{check}"

    def to_arrays(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """See `_Column`."""
        header, arrays = super().to_arrays()
        return {**header, "cut": self.cut}, arrays

    def restore(self, description: Mapping[str, Any], arrays: Iterator[NDArray[Any]]) -> None:
        """See `_Column`."""
        super().restore(description, arrays)
        self.cut = description["cut"]

    def _encode(self, content: Any) -> int:
        self.cut = self.cut or (not self._keeps_whole and len(content) > _LONGEST)
        return super()._encode(content)


def _beginning(condition: Condition) -> int | float:
    """Return how many leading characters decide a condition; infinity when all may matter."""
    match condition:
        case Range(interval=interval):
            return max(len(bound) for bound in (interval.low, interval.high) if bound is not None)
        case StartsWith():
            return len(condition.part)
        case _:
            return math.inf


def _leading(rows: NDArray[Any]) -> Bools:
    """Return a mask of the rows that differ from the row before."""
    return np.append(np.ones(min(1, len(rows)), np.bool_), rows[1:] != rows[:-1])


def _lay(plane: _Growing, rows: NDArray[Any], cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Put the first value of each row into the plane; return the remaining rows and values."""
    if not len(rows):
        return rows, cells
    leading = _leading(rows)
    plane.grow(int(rows[-1]) + 1)
    plane.view[rows[leading]] = cells[leading]
    return rows[~leading], cells[~leading]


def _one_of(cells: NDArray[Any], values: Sequence[Any]) -> Bools:
    if len(values) == 1:
        return cells == values[0]  # type: ignore[no-any-return]  # numpy's stubs lose it
    if len(values) > 8:
        return np.isin(cells, values)
    result = np.zeros(len(cells), np.bool_)
    for value in values:
        result |= cells == value
    return result


def _kind(kind: Kind, content: Any) -> Kind | Literal["integer"]:
    """Return the kind of column for a value: integers that no double represents exactly are kept apart."""
    return "integer" if kind == "number" and isinstance(content, int) else kind


class Table:
    """Rows, and the columns over them.

    Args:
        scan: see `Columns`.
    """

    def __init__(self, scan: Scan | None = None) -> None:
        self._scan = scan
        self.keys = _Growing(np.int64)
        self.alive = _Growing(np.bool_)
        self.living = 0
        self.version = 0  # rises whenever a key may have gained or lost a row
        self._row_of = _RowOf()
        self._columns: dict[str, dict[Kind | Literal["integer"], _Column]] = {}

    @property
    def size(self) -> int:
        """Rows, dead ones included."""
        return self.keys.size

    def rows(self, keys: Keys) -> NDArray[np.int64]:
        """Return the living row of each key, -1 for unknown keys."""
        return self._row_of.rows(keys)

    def names(self) -> frozenset[str]:
        """Return the metadata keys that have columns."""
        return frozenset(self._columns)

    def to_arrays(self) -> tuple[list[Any], list[NDArray[Any]]]:
        """Return the table as JSON and arrays, for `from_arrays`."""
        descriptions, arrays = [], [self.keys.view, self.alive.view]
        for name, kinds in self._columns.items():
            for kind, column in kinds.items():
                header, of_column = column.to_arrays()
                descriptions.append([name, kind, header])
                arrays += of_column
        return descriptions, arrays

    @classmethod
    def from_arrays(cls, descriptions: Sequence[Any], arrays: Iterable[NDArray[Any]], scan: Scan | None) -> Table:
        """Return a table over these arrays, which it may change."""
        table, remaining = cls(scan), iter(arrays)
        table.keys, table.alive = _Growing.of(next(remaining)), _Growing.of(next(remaining))
        rows = np.flatnonzero(table.alive.view)
        table.living = len(rows)
        table._row_of.set(table.keys.view[rows], rows, table.living)
        for name, kind, header in descriptions:
            column = table._columns.setdefault(name, {})[kind] = table._column(kind)
            column.restore(header, remaining)
        return table

    def put(self, pairs: Pairs) -> None:
        """Insert or replace documents; if a key repeats, its last document wins."""
        self.version += 1
        slack = 256 if self.size else 0  # the first load leaves everything sorted
        changed_columns: set[_Column] = set()
        pairs = iter(pairs)
        while batch := list(islice(pairs, _BATCH)):
            columns = self._note(batch)
            self._append(np.array([key for key, _ in batch], np.int64))
            for column in columns:
                column.settle(self.size)
            changed_columns |= columns
        for column in changed_columns:
            column.tidy(slack)
        self._compact()

    def remove(self, key: int) -> None:
        """Remove a document; an unknown key is ignored."""
        row = int(self.rows(np.array([key], np.int64))[0])
        if row >= 0:
            self.version += 1
            self._row_of.drop(key)
            self.alive.view[row] = False
            self.living -= 1
            self._compact()

    def evaluate(self, filter: Filter, rows: NDArray[np.int64] | None = None) -> Bools:  # noqa: A002
        """Return a new mask over all rows, or over those given. Dead rows may match."""
        match filter:
            case And() | Or():
                is_and = isinstance(filter, And)
                result, join = self._no_rows(rows), np.logical_and if is_and else np.logical_or
                result[:] = is_and
                for operand in filter.parts:
                    join(result, self.evaluate(operand, rows), out=result)
            case Not():
                result = self.evaluate(filter.part, rows)
                np.logical_not(result, out=result)
            case Equals() | In() | Range() | PartOfText() | Exists():
                needs_documents = self._takes_documents(filter)
                result = self._scan_values(filter, rows) if needs_documents else self._meeting(filter, rows)
            case _:
                raise TypeError(f"columns cannot answer a {type(filter).__name__}, only what pointsman.filters has")
        return result

    def _meeting(self, condition: Condition, rows: NDArray[np.int64] | None) -> Bools:
        """Return a mask of the rows with a value that meets a condition."""
        match condition:
            case Equals():
                return self._hits(condition.key, (condition.typed,), rows)
            case In():
                return self._hits(condition.key, condition.typed, rows)
            case Range(interval=interval):
                kinds = ("number", "integer") if interval.kind == "number" else (interval.kind,)
                return self._any_column(condition.key, kinds, lambda column: column.within(interval), rows)
            case PartOfText():
                test = condition.test
                return self._any_column(condition.key, ("string",), lambda column: column.passing(test), rows)
            case Exists():
                return self._any_column(condition.key, None, lambda column: column.anything(), rows)

    def _any_column(
        self, key: str, kinds: Collection[str] | None, test: Callable[[Any], Test], rows: NDArray[np.int64] | None
    ) -> Bools:
        """Return a mask of the rows with a passing value of one of these kinds, or of any kind."""
        result = self._no_rows(rows)
        for kind, column in self._columns.get(key, {}).items():
            if kinds is None or kind in kinds:
                result |= column.hits(test(column), self.size, rows)
        return result

    def _takes_documents(self, condition: Condition) -> bool:
        """Whether a condition needs the documents because the columns do not hold the whole values."""
        if self._scan is None:
            return False
        if condition.key in (ID, TEXT):
            return True
        if not isinstance(condition, PartOfText | Range):
            return False
        if isinstance(condition, Range) and condition.interval.kind != "string":
            return False
        column = self._columns.get(condition.key, {}).get("string")
        return isinstance(column, _Strings) and column.cut and _beginning(condition) > _LONGEST

    def _scan_values(self, condition: Condition, rows: NDArray[np.int64] | None) -> Bools:
        assert self._scan is not None
        matching = self.rows(self._scan(condition))
        result = np.zeros(self.size, np.bool_)
        result[matching[matching >= 0]] = True
        return result if rows is None else result[rows]

    def _hits(self, key: str, values: Collection[Typed], rows: NDArray[np.int64] | None) -> Bools:
        result: Bools | None = None
        for kind, column in self._columns.get(key, {}).items():
            contents = [content for its_kind, content in values if _kind(its_kind, content) == kind]
            if contents:
                hits = column.hits(column.one_of(contents), self.size, rows)
                result = hits if result is None else result | hits
        return self._no_rows(rows) if result is None else result

    def _no_rows(self, rows: NDArray[np.int64] | None) -> Bools:
        return np.zeros(self.size if rows is None else len(rows), np.bool_)

    def _note(self, batch: Iterable[tuple[int, Mapping[str, Any]]]) -> set[_Column]:
        """Distribute the documents' values over the columns; return the columns that received any."""
        changed_columns: set[_Column] = set()
        for row, (_, metadata) in enumerate(batch, self.size):
            for name, values in facts(metadata).items():
                for its_kind, content in values:
                    kind = _kind(its_kind, content)
                    kinds = self._columns.setdefault(name, {})
                    column = kinds.get(kind)
                    if column is None:
                        column = kinds[kind] = self._column(kind)
                    column.add(row, content)
                    changed_columns.add(column)
        return changed_columns

    def _column(self, kind: Kind | Literal["integer"]) -> _Column:
        if kind == "string":
            return _Strings(whole=self._scan is None)
        return _Vocabulary() if kind == "integer" else _Numbers()

    def _append(self, keys: Keys) -> None:
        """Give each key a new row; if a key repeats, its last row lives. Previous rows of the keys become dead."""
        rows = np.arange(self.size, self.size + len(keys))
        old_rows = self.rows(keys)
        self.keys.extend(keys)
        self.alive.extend(np.ones(len(keys), np.bool_))
        self._row_of.set(keys, rows, self.living + len(keys))
        dead_rows = np.union1d(old_rows[old_rows >= 0], rows[self.rows(keys) != rows])
        self.alive.view[dead_rows] = False
        self.living += len(keys) - len(dead_rows)

    def _compact(self) -> None:
        if self.size <= 2 * self.living + 1024:
            return
        alive = self.alive.view.copy()
        keys, new_numbers = self.keys.view[alive], np.cumsum(alive) - 1
        for name, kinds in list(self._columns.items()):
            remaining = {
                kind: column for kind, column in kinds.items() if column.compact(alive, new_numbers, len(keys))
            }
            if remaining:
                self._columns[name] = remaining
            else:
                del self._columns[name]
        self.keys, self.alive, self._row_of, self.living = _Growing(np.int64), _Growing(np.bool_), _RowOf(), 0
        self._append(keys)
