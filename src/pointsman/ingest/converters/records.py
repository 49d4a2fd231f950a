"""JSON, JSON lines and tables: each record is a separate document."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections import Counter
from functools import reduce
from itertools import islice, repeat
from operator import getitem
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pointsman.ingest.converters.typed_columns import column_notations, typed_value
from pointsman.ingest.source_text import (
    LONGEST_HEADING,
    TOO_DEEP,
    Lines,
    ParsedDocument,
    Problem,
    Section,
    clean,
    stem,
    text_digest,
)
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

TEXT_FIELDS = ("text", "content", "contents", "body")
ID_FIELDS = ("_id", "id")
TITLE_FIELD = "title"

MOST_FIELDS = 100
"""Fields of a record that are kept for filters; each is a column of the store."""

MOST_NAMES = 1000
"""Distinct field names in one file."""

_LONGEST_ID = 256  # bytes
_LONGEST_NAME = 100
_LONGEST_VALUE = 1000  # of a field that is also in the text
_LONG_ROW = 1000  # lines after which a quote in a row is assumed to be unclosed
_SAMPLE = 1 << 16  # characters of a table from which its form is told
_JSON_STRING = r'("(?:[^"\\\n]|\\.)*+"?)'
_JSON_COMMENT = re.compile(rf"{_JSON_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA_BEFORE_END = re.compile(rf"{_JSON_STRING}|,(?=\s*+[\]}}])")
_SEPARATOR_LINE = re.compile(r"sep=([^\n])[ \t]*\n", re.IGNORECASE)
_NUMBER = re.compile(r"[-+$€£¥₽]{0,2}\d[\d .,'\u00a0\u202f]{0,40}[%$€£¥₽]?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_WORD = re.compile(
    r"(?<![^\s\"'(])[^\W\d_]{2,}(?![^\s.,;:!?\"')])|[\u3400-\u9fff]{2}"
)  # a word of letters; two Han characters
_SENTENCE = 5  # words of a cell that is a sentence
_COUNTED = (["0", "1", "2"], ["1", "2", "3"])  # numbers as names of columns

_LEVELS = 4  # of objects within which a list of records is looked for: each is read anew
_DECODER = json.JSONDecoder()
_csv_limit = threading.Lock()

Label = tuple["Label | None", str, int]
"""The enclosing label, the value's own label, and the length of both."""


def json_lines(path: str, text: str) -> Iterator[ParsedDocument | Problem]:
    """Yield a document per line, or for each object of a line; what is no JSON object is reported by its line."""
    records = _Records(path, "jsonl")
    for number, line in enumerate(io.StringIO(text), start=1):
        try:
            values = _parse(line, _values)
        except InputError as error:
            yield Problem(path, f"line {number}: {error}")
            continue
        for value in values:
            if isinstance(value, dict):
                yield from records.read(value, number)
            else:
                yield Problem(path, f"line {number}: expected a JSON object, not {type(value).__name__}")
    yield from records.repetitions()


def json_file(path: str, text: str) -> Iterator[ParsedDocument | Problem]:
    """Yield a document for each record of a list, with its lines; anything else is one document; comments are none.

    The list is the file itself, or what fills most of an object, as in answers of services and exported chats; what
    stands around that list is a document, too. A list is one of records if most of its items are objects or sentences.
    """
    try:
        value = _parse(text)
    except InputError:
        text = _COMMA_BEFORE_END.sub(_blank, _JSON_COMMENT.sub(_blank, text))  # settings of programs have them
        value = _parse(text)
    records, lines = _Records(path, "json", unit="record"), (1, text.count("\n") + 1)
    labels, position = _largest_member(text)
    items = reduce(getitem, labels, value)
    if _holds_records(items) and (not labels or len(items) > 1):
        if labels:
            del reduce(getitem, labels[:-1], value)[labels[-1]]
            yield from records.surroundings(value, lines)
        for number, (item, item_lines) in enumerate(zip(items, _item_lines(text, position), strict=True), start=1):
            if item is not None:
                record = item if isinstance(item, dict) else {"": item}
                yield from records.read(record, number, item_lines, is_shown=bool(labels))
    else:
        yield from records.read(value if isinstance(value, dict) else {"": value}, 1, lines)
    yield from records.repetitions()


def _holds_records(value: Any) -> bool:
    """Whether most items of a list are objects, or strings that say something by themselves."""
    if not isinstance(value, list):
        return False
    return 2 * sum(
        isinstance(item, dict) or (isinstance(item, str) and _holds_sentence([item])) for item in value
    ) > len(value)


def _values(line: str) -> list[Any]:
    """Return the values that stand in a line, and in the place of a list of objects, these."""
    values: list[Any] = []
    position = _blank_end(line, 0)
    while position < len(line):
        value, end = _DECODER.raw_decode(line, position)
        are_records = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
        values += value if are_records else [value]
        position = _blank_end(line, end)
    return values


def _largest_member(text: str) -> tuple[list[str], int]:
    """Return the labels that lead to what fills more than half of a text in JSON, object within object, and its start.

    No labels, and the start of the whole, where nothing fills so much.
    """
    labels, beginning = list[str](), _blank_end(text, 0)
    position = beginning
    while text[position] == "{" and len(labels) < _LEVELS:
        sizes = {label: (end - start, start) for label, start, end in _members(text, position)}  # the last of a name
        label = max(sizes, key=sizes.__getitem__, default="")
        length, position = sizes.get(label, (0, beginning))
        if 2 * length <= len(text):
            return [], beginning
        labels.append(label)
    return labels, position


def _members(text: str, position: int) -> Iterator[tuple[str, int, int]]:
    """Yield label, start and end of each member of the object, or item of the list, that begins at a position."""
    closing, end = "}" if text[position] == "{" else "]", position
    while text[end] != closing and text[position := _blank_end(text, end + 1)] != closing:
        label = ""
        if closing == "}":
            label, end = _DECODER.raw_decode(text, position)
            position = _blank_end(text, _blank_end(text, end) + 1)  # after the colon
        _, end = _DECODER.raw_decode(text, position)
        yield label, position, end
        end = _blank_end(text, end)


def _item_lines(text: str, position: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each item of the list that begins at a position."""
    line, end_before = 1, 0
    for _, start, end in _members(text, position):
        first = line + text.count("\n", end_before, start)
        line, end_before = first + text.count("\n", start, end), end
        yield first, line


def _blank_end(text: str, position: int) -> int:
    """Return where the white space of JSON ends that begins at a position."""
    while position < len(text) and text[position] in " \t\n\r":
        position += 1
    return position


def table(path: str, text: str, kind: str) -> Iterator[ParsedDocument | Problem]:
    """Yield a document per row, each cell under its name in the header, and one for the titles above the header.

    What separates the cells is what Excel's first line ``sep=`` says, a tab (``tsv``), or what divides the first rows
    into the most equal numbers of cells. If the first row holds values like the others, there is no header, and the
    cells of a row stand side by side: all rows as the lines of one text, unless most of them hold a sentence. Alone, a
    row of codes would be near to every question.
    """
    separator_line = _SEPARATOR_LINE.match(text)
    delimiter = "\t" if kind == "tsv" else separator_line[1] if separator_line else _delimiter(text)
    sample = _first_rows(text, delimiter)[1 if separator_line else 0 :]
    titles = _title_rows(sample)
    has_header = _has_header(sample[titles:])
    rows = _rows(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), len(text))
    try:
        if separator_line:
            next(rows)
        filled_rows = ((first, last, row) for first, last, row in rows if "".join(row).strip())
        title_rows = list(islice(filled_rows, titles))
        header = [name.strip() for name in next(filled_rows, (0, 0, []))[2]] if has_header else []
        notations, remarks = column_notations(header, sample[titles + 1 :])
        records = _Records(path, kind, labels=sum(map(len, header)), notations=notations)
        if remarks:
            yield Problem(path, f"{'; '.join(remarks):.500}")
        if title_rows:
            yield from records.row(
                [], ["\n".join(_side_by_side(row) for _, _, row in title_rows)], 1, title_rows[-1][1]
            )
        are_listed = not has_header and 2 * sum(map(_holds_sentence, sample[titles:])) <= len(sample) - titles
        seen_rows, listed_rows = False, list[tuple[int, int, str]]()
        for first, last, row in filled_rows:
            if last - first > _LONG_ROW:
                yield Problem(path, f"line {first}: a row that runs to line {last}; is a quote not closed?")
            seen_rows = True
            if are_listed:
                listed_rows.append((first, last, " ".join(_side_by_side(row).split())))
            else:
                yield from records.row(header, row, first, last)
        if listed_rows:
            yield _list_of_rows(path, kind, listed_rows)
        yield from records.repetitions()
    except csv.Error as error:
        raise InputError(f"table that cannot be read: {error}") from error
    if not seen_rows:
        raise InputError("a table without rows below its header")


def _rows(reader: Any, longest: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield rows with the numbers of their first and last line; fields may have any length."""
    ends = ((row, reader.line_num) for row in reader)
    previous_end = 0
    while True:
        with _csv_limit:  # the limit is global to the process: raise it for some rows, then restore it
            old_limit = csv.field_size_limit(max(longest, 1))
            try:
                some_rows = list(islice(ends, 100))
            finally:
                csv.field_size_limit(old_limit)
        if not some_rows:
            return
        for row, end in some_rows:
            yield previous_end + 1, end, row
            previous_end = end


def _delimiter(text: str) -> str:
    return max(",;\t|", key=lambda delimiter: _regularity(_first_rows(text, delimiter)))


def _first_rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows at the beginning of a table that are not empty."""
    lines = csv.reader(io.StringIO(text[:_SAMPLE], newline=""), delimiter=delimiter)
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    return rows[:-1] if len(text) > _SAMPLE and len(rows) > 1 else rows  # the last one may be cut


def _regularity(rows: list[list[str]]) -> tuple[float, int]:
    """Return the share of rows with the most frequent number of cells, and this number; zeros if it is one cell."""
    width, count = _width(rows)
    return (count / len(rows), width) if width > 1 else (0.0, 0)


def _width(rows: list[list[str]]) -> tuple[int, int]:
    """Return the most frequent number of cells of a row, and how many rows have it."""
    return max(Counter(map(len, rows)).items(), key=lambda item: (item[1], item[0]), default=(0, 0))


def _title_rows(rows: list[list[str]]) -> int:
    """Return how many rows above the header are a title: at their left alone, in at most half of the columns."""
    width, _ = _width(rows)
    for number, row in enumerate(rows[:-2]):
        cells = [cell for cell in row if cell.strip()]
        is_at_left = all(cell.strip() for cell in row[: len(cells)]) and (len(row) < width or width > 2)
        if len(cells) > max(width // 2, 1) or width == 1 or not is_at_left:
            return number
    return max(len(rows) - 2, 0)


def _has_header(rows: list[list[str]]) -> bool:
    """Whether the first row names the columns: it holds no values like those below, or not in most columns.

    Names may be years, or numbers counted from 0 or 1.
    """
    if len(rows) < 2 or [cell.strip() for cell in rows[0] if cell.strip().isdecimal()][:3] in _COUNTED:
        return True
    names = values = 0
    for column, cell in enumerate(rows[0]):
        kinds = [_kind(row[column]) for row in rows[1:] if column < len(row) and row[column].strip()]
        kind, count = Counter(kinds).most_common(1)[0] if kinds else ("", 0)
        if cell.strip() and kind and count >= 0.8 * len(kinds):
            is_value = _kind(cell) == kind
            names, values = names + (not is_value), values + is_value
    return values <= names


def _kind(cell: str) -> str:
    """Return what a cell holds: a year, a number, a shape such as ``9-9-9`` or ``a@a.a``, or nothing for words."""
    cell = cell.strip()
    if _YEAR.fullmatch(cell):
        return "year"
    if _NUMBER.fullmatch(cell):
        return "number"
    shape = re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", cell[:100]))
    return shape if any(mark in shape for mark in ("9", "@", "://")) else ""


def _holds_sentence(row: list[str]) -> bool:
    """Whether a cell of a row has so many words that it says something by itself."""
    return any(len(_WORD.findall(cell)) >= _SENTENCE for cell in row)


def _list_of_rows(path: str, kind: str, rows: Sequence[tuple[int, int, str]]) -> ParsedDocument:
    """Return one source of rows, each with the first and the last line on which it stands."""
    runs: list[Lines] = []  # of rows of one line each, and rows of several lines
    ends: list[int] = []  # their last lines
    offset = next_line = 0  # the line with which the run would go on
    for first, last, text in rows:
        if first != last or first != next_line:
            runs.append(Lines(offset, first, last, exact=first == last))
            ends.append(last)
        ends[-1] = last
        next_line = last + 1 if first == last else 0
        offset += len(text) + 1
    lines = tuple(run._replace(last=end) for run, end in zip(runs, ends, strict=True))
    text = "\n".join(text for _, _, text in rows)
    return ParsedDocument(path, stem(path), (Section((), text, 0),), text, kind, lines=lines, is_code=True)


def _side_by_side(cells: Iterable[str]) -> str:
    return " | ".join(filter(None, map(str.strip, cells)))


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return cells by label; cells with equal labels are joined."""
    cells: dict[str, list[str]] = {}
    for name, cell in pairs:
        own_cells = cells.setdefault(name, [])
        if cell or own_cells:
            own_cells.append(cell)
    return {name: "\n".join(own_cells) for name, own_cells in cells.items()}


def _blank(match: re.Match[str]) -> str:
    """Return a string of JSON as it is, and blanks for anything else, so that lines stay where they are."""
    return match[1] or re.sub(r"[^\n]", " ", match[0])


def _parse(text: str, decode: Callable[[str], Any] = json.loads) -> Any:
    try:
        return decode(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at column {error.colno} of line {error.lineno}") from error
    except RecursionError as error:
        raise InputError(f"JSON {TOO_DEEP}") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise InputError(f"JSON that cannot be read: {error}") from error


class _Records:
    """Turns each record of one file into a source.

    A table's header labels, which rows do not contain themselves, are written into a row as long as all rows together
    have at most as many characters of labels as of cells, plus 200 per row. Otherwise a header of 400,000 characters
    would be stored with every row.

    Fields of a column with a notation are stored as numbers or dates, where they are written so; texts keep the cell.

    A record without an id is named by a digest of its text; if an earlier one has the same text, by one of its title
    and fields too. One that repeats an earlier one completely is left out, and reported.
    """

    def __init__(
        self,
        path: str,
        kind: str,
        *,
        unit: str = "line",
        labels: int = 0,
        notations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._path, self._kind, self._unit, self._notations = path, kind, unit, notations
        self._ids: dict[str, int] = {}
        self._names: set[str] = set()
        self._labels, self._room = labels, 4000
        self._has_reported = False
        self._digests: set[str] = set()  # of texts, and of whole records
        self._repeated_ids, self._first_repeated = 0, 0

    def repetitions(self) -> Iterator[Problem]:
        """Yield a problem if records were left out because they repeat earlier ones."""
        if self._repeated_ids:
            verb = "record repeats" if self._repeated_ids == 1 else "records repeat"
            yield Problem(
                self._path,
                f"{self._repeated_ids:,} {verb} an earlier one in text and fields, first {self._unit} "
                f"{self._first_repeated:,}; such records are stored once",
            )

    def surroundings(self, record: Mapping[str, Any], lines: tuple[int, int]) -> Iterator[ParsedDocument]:
        """Yield the source of what stands around the records, if it has a text."""
        if text := _readable(record):
            yield from self._document("", text, 0, lines, self._filter_fields(record, _LONGEST_VALUE))

    def row(self, header: list[str], cells: list[str], first: int, last: int) -> Iterator[ParsedDocument | Problem]:
        """Yield the source of a table's row on these lines."""
        self._room += sum(map(len, cells)) + 200
        if not header or self._labels > self._room:
            yield from self._document("", clean(_side_by_side(cells)), first, (first, last))
            return
        self._room -= self._labels
        names = header + [""] * (len(cells) - len(header))
        yield from self.read(_fields(zip(names, cells, strict=False)), first, (first, last))

    def read(
        self, record: Mapping[str, Any], number: int, lines: tuple[int, int] | None = None, *, is_shown: bool = False
    ) -> Iterator[ParsedDocument | Problem]:
        """Yield the source of a record with this number and on these lines, and a problem for what is unusable.

        Without lines, the number is that of its line. Of one that is shown, all fields are text, whatever their names.
        """
        id_names, text_names = ((), ()) if is_shown else (ID_FIELDS, TEXT_FIELDS)
        id_field = next((name for name in id_names if _is_id(record.get(name))), None)
        text_field = next((name for name in text_names if _as_text(record.get(name))), None)
        title = record.get(TITLE_FIELD)
        title = " ".join(clean(title).split()) if isinstance(title, str) else ""
        reserved_fields = {id_field, text_field, TITLE_FIELD}
        other_fields = {name: value for name, value in record.items() if name not in reserved_fields}
        if text_field:
            text = _as_text(record[text_field])
        elif title and any(name in record for name in text_names):
            text = title  # the text field exists but is empty, as in some records of collections
        else:
            is_row = self._kind in ("csv", "tsv")  # whose reader sees the id, too
            shown_fields = {id_field: record[id_field], **other_fields} if id_field and is_row else other_fields
            text = _readable(shown_fields) or title
        if len(title) > LONGEST_HEADING:
            title, text = "", text if text == title else f"{title}\n\n{text}"
        if not text:
            yield Problem(self._path, f"{self._unit} {number}: it has no text")
            return
        record_id = clean(str(record[id_field])).strip() if id_field else None
        if record_id is not None and (first := self._ids.setdefault(record_id, number)) != number:
            yield Problem(
                self._path, f"{self._unit} {number}: the id {record_id!r} is already used by {self._unit} {first}"
            )
            return
        inner_metadata = other_fields.pop("metadata", None)
        extra = {**(inner_metadata if isinstance(inner_metadata, dict) else {}), **other_fields}
        fields = self._filter_fields(extra, _LONGEST_VALUE if text_field is None else None)
        yield from self._document(title, text, number, lines or (number, number), fields, record_id)
        if not self._has_reported and (len(extra) > MOST_FIELDS or len(self._names) >= MOST_NAMES):
            self._has_reported = True
            yield Problem(
                self._path,
                f"{self._unit} {number}: too many fields; {MOST_FIELDS} of a record and {MOST_NAMES} names of "
                "a file are kept for filters",
            )

    def _document(
        self,
        title: str,
        text: str,
        number: int,
        lines: tuple[int, int],
        fields: Mapping[str, Any] = MappingProxyType({}),
        record_id: str | None = None,
    ) -> Iterator[ParsedDocument]:
        """Yield the source of a record, unless it repeats an earlier one."""
        digest = "" if record_id is not None else self._new_digest(title, text, fields)
        if digest is None:
            self._repeated_ids += 1
            self._first_repeated = self._first_repeated or number
            return
        yield ParsedDocument(
            path=self._path,
            title=title,
            sections=(Section((), text, 0),),
            text=text,
            kind=self._kind,
            metadata=fields if self._unit == "line" or not number else {**fields, self._unit: number},
            record_id=record_id,
            record_digest=digest,
            lines=(Lines(0, *lines, exact=False),),
        )

    def _new_digest(self, title: str, text: str, fields: Mapping[str, Any]) -> str | None:
        """Return a digest that no earlier record has, or None if an earlier one is equal in everything."""
        new_digest = text_digest(
            json.dumps([text, title, dict(fields)], sort_keys=True), size=16
        )  # never equal by chance
        of_text = text_digest(text)
        if new_digest in self._digests:
            return None
        digest = new_digest if of_text in self._digests else of_text
        self._digests |= {new_digest, of_text}
        return digest

    def _filter_fields(self, record: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
        """Return the fields that filters can use: scalars and lists of scalars."""
        fields: dict[str, Any] = {}
        for name, value in record.items():
            if len(fields) == MOST_FIELDS:
                break
            key = clean(name)
            usable = _filterable(value)
            if key in self._notations and (typed := typed_value(usable, self._notations[key])) is not None:
                usable = typed
            if not key or len(key) > _LONGEST_NAME or usable in (None, "", []):
                continue
            if longest is not None and isinstance(usable, str | list) and len(str(usable)) > longest:
                continue
            if key not in self._names:
                if len(self._names) == MOST_NAMES:
                    continue
                self._names.add(key)
            fields[key] = usable
        return fields


def _filterable(value: Any) -> Any:
    """Return a scalar or a list of scalars with strings cleaned; None for anything else."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list) and all(isinstance(item, str | bool | int | float) for item in value):
        return [clean(item) if isinstance(item, str) else item for item in value]
    return None


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) <= _LONGEST_ID and bool(clean(value).strip())
    return type(value) is int and abs(value) < 10**_LONGEST_ID


def _as_text(value: Any) -> str:
    """Return a string, or a list of strings as paragraphs; an empty string for anything else."""
    if isinstance(value, str):
        return clean(value).strip()
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return clean("\n\n".join(value)).strip()
    return ""


def _readable(value: Any) -> str:
    r"""Write the strings and numbers of a nested value as ``label: value`` lines; lists of short ones go on one line.

    The enclosing labels are repeated as long as that does not double the text.

    >>> _readable({"name": "switch", "size": {"length": 3}, "years": [1999, 2005]})
    'name: switch\nsize › length: 3\nyears: 1999, 2005'
    """
    lines: list[str] = []
    room = 1000
    previous: Label | None = None
    waiting: list[Iterator[tuple[Label | None, Any]]] = [iter(((None, value),))]
    while waiting:  # an explicit stack: nesting may be as deep as the JSON parser allows
        label, item = next(waiting[-1], (None, _END))
        if item is _END:
            waiting.pop()
        elif isinstance(item, dict):
            waiting.append(_labels(item, label))
        elif isinstance(item, list) and any(isinstance(value, list | dict) for value in item):
            waiting.append(zip(repeat(label), item))
        elif text := _scalars(item):
            name, length = (label[1], label[2]) if label else ("", 0)
            room += len(text) + (len(name) if label is not previous else 0)
            previous = label
            name = _path(label) if length <= room else name if len(name) <= room else ""
            room -= len(name)
            lines.append(f"{name}: {text}" if name else text)
    return clean("\n".join(lines)).strip()


_END = object()


def _labels(item: Mapping[str, Any], label: Label | None) -> Iterator[tuple[Label | None, Any]]:
    indent = label[2] if label else 0
    for name, child in item.items():
        yield ((label, str(name), indent + len(name) + 3) if name else label), child


def _path(label: Label | None) -> str:
    names = []
    while label:
        names.append(label[1])
        label = label[0]
    return " › ".join(reversed(names))


def _scalars(item: Any) -> str:
    """Return a string or number, or all items of a list, as text."""
    values = item if isinstance(item, list) else [item]
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values if value is not None]
    texts = [text for text in texts if text.strip()]
    return (", " if all(len(text) <= 60 for text in texts) else "\n").join(texts)
