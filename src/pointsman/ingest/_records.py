"""JSON, JSON lines and tables: each record is a document of its own."""

from __future__ import annotations

import csv
import io
import json
import threading
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError
from pointsman.ingest.source import Problem, Section, Source, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TEXT_FIELDS = ("text", "content", "contents", "body")
ID_FIELDS = ("_id", "id")
TITLE_FIELD = "title"

_csv_limit = threading.Lock()


def json_lines(path: str, text: str) -> Iterator[Source | Problem]:
    """A document a line; a line that is no JSON object is reported by its number."""
    seen: dict[str, int] = {}
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            value = _parse(line)
        except InputError as error:
            yield Problem(path, f"line {number}: {error}")
            continue
        if isinstance(value, dict):
            yield _record(path, "jsonl", value, number, seen)
        else:
            yield Problem(path, f"line {number}: a JSON object is wanted, not {type(value).__name__}")


def json_file(path: str, text: str) -> Iterator[Source | Problem]:
    """A list of objects gives a document each; anything else is one document."""
    value = _parse(text)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        seen: dict[str, int] = {}
        for number, item in enumerate(value, start=1):
            yield _record(path, "json", item, number, seen, unit="record")
    else:
        record = value if isinstance(value, dict) else {"": value}
        yield _record(path, "json", record, 1, {}, unit="record")


def table(path: str, text: str, kind: str) -> Iterator[Source | Problem]:
    """A document a row; the first row names the fields."""
    delimiter = "\t" if kind == "tsv" else _delimiter(text)
    rows = _rows(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), len(text))
    try:
        header = [name.strip() for name in next(rows, (0, []))[1]]
        seen: dict[str, int] = {}
        seen_rows = False
        for number, row in rows:
            if any(cell.strip() for cell in row):
                seen_rows = True
                names = header + [""] * (len(row) - len(header))
                yield _record(path, kind, _fields(zip(names, row, strict=False)), number, seen)
    except csv.Error as error:
        raise InputError(f"table that cannot be read: {error}") from error
    if not seen_rows:
        raise InputError("a table without rows below its header")


def _rows(reader: Any, longest: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of the line they start on, fields of any length allowed."""
    while True:
        line = reader.line_num + 1
        with _csv_limit:  # the limit belongs to the whole process: raise it for one row, and put it back
            before = csv.field_size_limit(max(longest, 1))
            try:
                row = next(reader, None)
            finally:
                csv.field_size_limit(before)
        if row is None:
            return
        yield line, row


def _delimiter(text: str) -> str:
    header = text[: text.find("\n")] if "\n" in text else text
    return max(",;\t|", key=header.count)


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Cells by label; cells of equal labels are joined."""
    fields: dict[str, Any] = {}
    for name, cell in pairs:
        fields[name] = f"{fields[name]}\n{cell}" if fields.get(name) else cell
    return fields


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at column {error.colno} of line {error.lineno}") from error
    except RecursionError as error:
        raise InputError("JSON nested too deep") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise InputError(f"JSON that cannot be read: {error}") from error


def _record(
    path: str, kind: str, record: Mapping[str, Any], number: int, seen: dict[str, int], *, unit: str = "line"
) -> Source | Problem:
    id_field = next((name for name in ID_FIELDS if _is_id(record.get(name))), None)
    text_field = next((name for name in TEXT_FIELDS if _as_text(record.get(name))), None)
    title = record.get(TITLE_FIELD)
    title = " ".join(clean(title).split()) if isinstance(title, str) else ""
    used = {id_field, text_field, TITLE_FIELD}
    rest = {name: value for name, value in record.items() if name not in used}
    if text_field:
        text = _as_text(record[text_field])
    elif title and any(name in record for name in TEXT_FIELDS):
        text = title  # the text is there and empty, as some records of collections are
    else:
        text = _readable(rest) or title
    if not text:
        return Problem(path, f"{unit} {number}: no text in it")
    record_id = clean(str(record[id_field])).strip() if id_field else None
    if record_id is not None and (first := seen.setdefault(record_id, number)) != number:
        return Problem(path, f"{unit} {number}: the id {record_id!r} is already that of {unit} {first}")
    nested = rest.pop("metadata", None)
    extra = {**(nested if isinstance(nested, dict) else {}), **rest}
    return Source(
        path=path,
        title=title,
        sections=(Section((), text, 0),),
        text=text,
        kind=kind,
        metadata={**_kept(extra), unit: number},
        record_id=record_id,
    )


def _is_id(value: Any) -> bool:
    return (isinstance(value, str) and bool(clean(value).strip())) or type(value) is int


def _as_text(value: Any) -> str:
    """A string, or a list of strings as paragraphs; an empty string for all else."""
    if isinstance(value, str):
        return clean(value).strip()
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return clean("\n\n".join(value)).strip()
    return ""


def _kept(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that can be filtered on: scalars and lists of scalars."""
    kept: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, str):
            kept[clean(name)] = clean(value)
        elif isinstance(value, bool | int | float):
            kept[clean(name)] = value
        elif isinstance(value, list) and all(isinstance(item, str | bool | int | float) for item in value):
            kept[clean(name)] = [clean(item) if isinstance(item, str) else item for item in value]
    return {name: value for name, value in kept.items() if name and value not in ("", [])}


def _readable(value: Any) -> str:
    r"""The strings and numbers of a nested value, one ``label: value`` a line.

    >>> _readable({"name": "switch", "size": {"length": 3}})
    'name: switch\nsize › length: 3'
    """
    lines: list[str] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:  # a stack of our own: nesting may be as deep as the JSON parser allows
        labels, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(((*labels, str(name)), child) for name, child in reversed(item.items()))
        elif isinstance(item, list):
            waiting.extend((labels, child) for child in reversed(item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool) and str(item).strip():
            label = " › ".join(name for name in labels if name)
            lines.append(f"{label}: {item}" if label else str(item))
    return clean("\n".join(lines)).strip()
