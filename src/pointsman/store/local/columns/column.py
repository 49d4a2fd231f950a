"""The columns of a table of metadata: one for each pair of key and kind of value, numbers or strings."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pointsman.values.filters import Equals, Exists, In, Interval, Kind, PartOfText, Range, StartsWith

Bools = NDArray[np.bool_]
Keys = NDArray[np.int64]
Test = Callable[[NDArray[Any]], Bools]
Condition = Equals | In | Range | PartOfText | Exists

LONGEST: Final = 64
"""How many characters of a string are kept."""


class GrowingArray:
    """A growable array; its spare room is filled with ``blank``."""

    __slots__ = ("_blank", "_data", "size")

    def __init__(self, dtype: Any, blank: float = 0) -> None:
        self._blank = blank
        self._data: NDArray[Any] = np.empty(0, dtype)
        self.size = 0

    @property
    def view(self) -> NDArray[Any]:
        """The items, without the room kept for more."""
        return self._data[: self.size]

    def grow(self, size: int) -> None:
        """Make room for ``size`` items; new ones are blank."""
        if size > len(self._data):
            room = np.full(max(size, len(self._data) * 3 // 2), self._blank, self._data.dtype)
            room[: self.size] = self.view
            self._data = room
        self.size = max(size, self.size)

    @classmethod
    def of(cls, items: NDArray[Any], blank: float = 0) -> GrowingArray:
        """Return an array with these items, which are not copied until it grows."""
        growing = cls(items.dtype, blank)
        growing._data, growing.size = items, len(items)
        return growing

    def extend(self, items: Any) -> None:
        """Append items."""
        start = self.size
        self.grow(start + len(items))
        self._data[start : self.size] = items


class KeyRows:
    """The living row of each key: a table for keys as dense as counters, a dict for the others."""

    def __init__(self) -> None:
        self._table = GrowingArray(np.int32, -1)
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
        """Forget the row of a key."""
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


class Column(ABC):
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
        self._planes = [GrowingArray.of(next(arrays), self.missing) for _ in range(description["planes"])]
        self._rows, self._cells = GrowingArray.of(next(arrays)), GrowingArray.of(next(arrays))
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

    def contents(self, rows: Bools, limit: int) -> list[Any] | None:
        """Return the different values of the rows in a mask; None if more than ``limit``, or if one is not whole."""
        of_planes = [plane.view[rows[: plane.size]] for plane in self._planes]
        cells = np.unique(np.concatenate([*of_planes, self._cells.view[rows[self._rows.view]]]))
        cells = cells[self.anything()(cells)]
        return None if len(cells) > limit else self._decode(cells)

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

    def _fill(self, planes: list[GrowingArray], rows: NDArray[Any], cells: NDArray[Any], size: int) -> None:
        """Keep the planes, add as many as these pairs (rows ascending) justify, and keep the rest as pairs."""
        self._planes = planes
        while np.count_nonzero(_leading(rows)) * 8 > size:
            self._planes.append(GrowingArray(self.dtype, self.missing))
            rows, cells = _lay(self._planes[-1], rows, cells)
        self._rows, self._cells = GrowingArray(np.int32), GrowingArray(self.dtype)
        self._rows.extend(rows)
        self._cells.extend(cells)
        self._patience = 2 * len(rows)  # check again only when the pairs have doubled, so checks stay cheap

    def _encode(self, content: Any) -> Any:
        return content

    def _decode(self, cells: NDArray[Any]) -> list[Any] | None:
        """Return the values of these cells, which ascend; None if one of them is not whole."""
        contents: list[Any] = cells.tolist()
        return contents

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


class Numbers(Column):
    """Doubles; NaN means no value and passes no comparison."""

    __slots__ = ()
    dtype = np.float64
    missing = np.nan

    def anything(self) -> Test:
        """Return the test for any value."""
        return lambda cells: cells == cells  # noqa: PLR0124  # all but NaN

    def one_of(self, contents: Sequence[Any]) -> Test:
        """Return the test for one of these values."""
        return lambda cells: _one_of(cells, contents)

    def within(self, interval: Interval) -> Test:
        """Return the test for values within an interval."""
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


class VocabularyColumn(Column):
    """Codes: positions in a sorted vocabulary, followed by those of new values in order of arrival."""

    __slots__ = ("_fresh", "_sorted_texts")
    dtype = np.int32
    missing = -1

    def __init__(self) -> None:
        super().__init__()
        self._sorted_texts: list[Any] = []
        self._fresh: dict[Any, int] = {}

    def anything(self) -> Test:
        """Return the test for any value."""
        return lambda cells: cells >= 0

    def one_of(self, contents: Sequence[Any]) -> Test:
        """Return the test for one of these values."""
        codes = [code for content in contents if (code := self._code(self._entry(content))) is not None]
        return lambda cells: _one_of(cells, codes)

    def passing(self, test: Callable[[str], bool]) -> Test:
        """Return the test that applies ``test`` to each value of the vocabulary once."""
        mask = np.array(
            [*map(test, self._sorted_texts), *map(test, self._fresh), False], np.bool_
        )  # the last is for -1
        return lambda cells: mask[cells]

    def within(self, interval: Interval) -> Test:
        """Return the test for values within an interval."""
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
        """See `Column`; the vocabulary is JSON."""
        header, arrays = super().to_arrays()
        vocabulary = json.dumps([self._sorted_texts, list(self._fresh)]).encode()
        return header, [*arrays, np.frombuffer(vocabulary, np.uint8)]

    def restore(self, description: Mapping[str, Any], arrays: Iterator[NDArray[Any]]) -> None:
        """See `Column`."""
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

    def _decode(self, cells: NDArray[Any]) -> list[Any] | None:
        count = len(self._sorted_texts)
        fresh_texts = list(self._fresh) if len(cells) and cells[-1] >= count else []
        return [self._sorted_texts[code] if code < count else fresh_texts[code - count] for code in cells.tolist()]

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


class Strings(VocabularyColumn):
    """Strings; long ones are cut."""

    __slots__ = ("cut",)

    def __init__(self) -> None:
        super().__init__()
        self.cut = False
        """Whether some string has been cut."""

    def _entry(self, content: Any) -> Any:
        if len(content) <= LONGEST:
            return content
        check = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{content[:LONGEST]}{check}"

    def _decode(self, cells: NDArray[Any]) -> list[Any] | None:
        texts = super()._decode(cells) or []
        return None if self.cut and any(len(text) > LONGEST for text in texts) else texts

    def to_arrays(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """See `Column`."""
        header, arrays = super().to_arrays()
        return {**header, "cut": self.cut}, arrays

    def restore(self, description: Mapping[str, Any], arrays: Iterator[NDArray[Any]]) -> None:
        """See `Column`."""
        super().restore(description, arrays)
        self.cut = description["cut"]

    def _encode(self, content: Any) -> int:
        self.cut = self.cut or len(content) > LONGEST
        return super()._encode(content)


def beginning(condition: Condition) -> int | float:
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


def _lay(plane: GrowingArray, rows: NDArray[Any], cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
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


def kind_of(kind: Kind, content: Any) -> Kind | Literal["integer"]:
    """Return the kind of column for a value: integers that no double represents exactly are kept apart."""
    return "integer" if kind == "number" and isinstance(content, int) else kind
