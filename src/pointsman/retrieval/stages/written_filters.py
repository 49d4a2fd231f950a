"""Conditions on fields that a query has in words, such as ``author:smith``, become its filter.

`pointsman.text.field_syntax` reads them; which fields there are, and what a value means there, the documents tell: only
those that the asker may see. A filter that no document matches is dropped, unless ``syntax="hard"`` insists; the answer
says so.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.stages.answer_limits import absence_of, has_key
from pointsman.store.store_values import Capability
from pointsman.text.field_syntax import DATE, FieldTerm, is_date_word, period_of, read_fields, written_names
from pointsman.tools.json_forms import plain_form
from pointsman.values.filters import And, Contains, EndsWith, Equals, Exists, Filter, In, Not, Or, Range, StartsWith
from pointsman.values.metadata import ID, TEXT, folded, typed_values
from pointsman.values.reasons import Reason
from pointsman.values.settings import by_dataset
from pointsman.values.types import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.retrieval.run.journal import Journal
    from pointsman.store.base_store import Store
    from pointsman.text.field_syntax import Comparison, Period
    from pointsman.values.types import Query

_SAMPLE: Final = 100
"""Documents of a dataset whose metadata are read for the names of its fields."""

_MOST_NAMES: Final = 12
"""Names of a query that are looked for among the fields."""

_FIRST_YEAR, _LAST_YEAR = 1500, 2199
_QUOTED_NAME: Final = re.compile('\\S"[:：]\\S')
_WORD: Final = re.compile(r"[\w.\-]+")
_NO_LETTERS: Final = re.compile(r"\W+")
_NUMBER: Final = re.compile(r"[-+]?\d{1,15}(?:[.,]\d{1,15})?")
_BOUNDS: Final[dict[Comparison, str]] = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def with_written_filter(
    query: Query, stores_by_name: Mapping[str, Store], recipe: Recipe, journal: Journal
) -> tuple[Query, Decision] | None:
    """Return the query with its conditions on fields in its filter, and what was understood; None if it has none.

    Args:
        query: as the caller sent it.
        stores_by_name: the open datasets that are searched.
        recipe: says whether to insist on conditions that no document meets, and which date each dataset goes by.
        journal: of the search; told what cannot be obeyed.
    """
    if not written_names(query.text) and _QUOTED_NAME.search(query.text) is None:
        return None
    stores_by_name = {name: store for name, store in stores_by_name.items() if store.info.can(Capability.FILTERS)}
    stores = list(stores_by_name.values())
    keys = {folded(key): key for store in stores for key in _keys(store)}
    text, joined_names = _with_joined_names(query.text, keys.values())
    candidates = written_names(text)[:_MOST_NAMES]
    if not candidates:
        return None
    keys = {**joined_names, **keys}
    _add_known(keys, stores, candidates)
    known_names = {name for name in candidates if folded(name) in keys}
    asks_date = any(is_date_word(name) for name in candidates if name not in known_names)
    date_keys = _date_keys(stores_by_name, by_dataset(recipe.date_columns), journal) if asks_date else []
    own_words, terms = read_fields(text, known_names, has_date=bool(date_keys))
    for name in candidates:
        if name not in known_names and not is_date_word(name):
            journal.degrade(f"{absence_of(name, keys.values(), 'syntax')}; its words are searched")
    if not terms:
        return None
    condition = _conjunction(
        [_condition(stores, [keys[folded(term.name)]] if term.name else date_keys, term) for term in terms]
    )
    journal.degrade(*_texts_for_numbers(stores, keys, terms))
    caller_filters = query.filters
    filters: Filter | None = condition if caller_filters is None else caller_filters & condition
    query = replace(query, text=own_words or " ".join(map(_words_of, terms)))
    advice = "syntax='plain' searches for the question as written"
    if _has_match(stores, filters or condition):
        reason = f"searched for {query.text!r:.200}, hits have {condition!s:.200}; {advice}"
        if any(not term.name and not term.is_excluded for term in terms):
            undated = And((caller_filters or And(()), *(Not(Exists(key)) for key in date_keys)))
            reason += f"; {sum(store.count(undated) for store in stores):,} without a date are left out"
    else:
        journal.degrade(f"no document that was searched has {condition!s:.200}; {advice}")
        reason = f"no document has {condition!s:.200}"
        if recipe.syntax == "auto":
            filters, reason = caller_filters, f"{reason}; the nearest without it are shown"
    written_terms = " ".join(
        term.written.replace(term.name, f'"{joined_names[folded(term.name)]}"', 1)
        if folded(term.name) in joined_names
        else term.written
        for term in terms
    )
    decision = Decision("syntax", written_terms, "request" if recipe.syntax == "hard" else "default", reason)
    return replace(query, filters=filters), decision


def _with_joined_names(text: str, keys: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return a query in which fields with blanks in their names are one word, and these names by that word."""
    joined_names = {}
    for key in sorted(keys, key=len, reverse=True):
        if _WORD.fullmatch(key) is None and folded(key) in folded(text):
            name = _NO_LETTERS.sub("_", key).strip("_")
            pattern = rf'(?<!\S)(-?)("?){re.escape(key)}\2(?=[:：][^\s:：])'
            text, count = re.subn(pattern, rf"\g<1>{name}", text, flags=re.IGNORECASE)
            if count:
                joined_names[folded(name)] = key
    return text, joined_names


def _add_known(keys: dict[str, str], stores: Sequence[Store], names: Sequence[str]) -> None:
    """Add the fields with these names to those at hand, which are by their names in small letters."""
    for name in names:
        if folded(name) not in keys and (name in (ID, TEXT) or any(has_key(store, name) for store in stores)):
            keys[folded(name)] = name


def _keys(store: Store) -> Iterator[str]:
    """Yield the fields of a dataset: all, or those of its first documents if the store would have to ask its server."""
    known_keys = store.metadata_keys()
    if known_keys is not None:
        yield from known_keys
        return
    for document in store.page(None, _SAMPLE).documents:
        yield from document.metadata


def date_columns(store: Store, column: str = "") -> list[str]:
    """Return the fields that words for the date of a document may mean.

    The ``column`` that is set, else the field ``date``, else all fields that hold dates alone in the first documents.
    """
    own_keys = [column] if column else [key for key in _keys(store) if folded(key) == DATE]
    if own_keys:
        return own_keys[:1]
    is_date: dict[str, bool] = {}
    for document in store.page(None, _SAMPLE).documents:
        for key, value in document.metadata.items():
            for kind, text in typed_values(value):
                dated = kind == "string" and period_of(text[:10]) is not None and text[4:5] == "-"
                is_date[key] = is_date.get(key, True) and dated
    return [key for key, dated in is_date.items() if dated]


def told_date_column(store: Store, dataset: str, setting: Sequence[str]) -> Reason:
    """Return in words which field `date_columns` tells, and whether it is set or guessed; ``none: …``: why none.

    Args:
        store: of the dataset, or of a view of it.
        dataset: its name.
        setting: the value of the setting ``date_columns``.
    """
    column = by_dataset(setting).get(dataset, "")
    keys = date_columns(store, column)
    if len(keys) != 1:
        return Reason.of("date_several", keys=", ".join(keys[:3])) if keys else Reason.of("date_none")
    code = "date_guessed" if not column else "date_set" if has_key(store, column) else "date_absent"
    return Reason.of(code, key=keys[0])


def status_of_dates(store: Store, dataset: str, setting: Sequence[str]) -> dict[str, Any]:
    """Return what a status says of the date column: `told_date_column` in words, and its statements as JSON values."""
    column = told_date_column(store, dataset, setting)
    return {"date_column": column, "date_column_reasons": plain_form(column.statements)}


def _date_keys(stores: Mapping[str, Store], columns: Mapping[str, str], journal: Journal) -> list[str]:
    """Return the fields that are the date of a document, each the only one of its dataset; else tell the journal."""
    keys_by_name = {name: date_columns(store, columns.get(name, "")) for name, store in stores.items()}
    date_keys = list(dict.fromkeys(key for keys in keys_by_name.values() for key in keys))
    for name, keys in keys_by_name.items():
        if len(keys) > 1 or any(key not in keys and has_key(stores[name], key) for key in date_keys):
            fields = " or ".join(f"{key}:<2024" for key in date_keys[:3])
            remedy = f"say which, such as {fields}, or set date_columns"
            journal.degrade(f"syntax: the documents that were searched have several dates; {remedy}")
            return []
    if not date_keys:
        journal.degrade("syntax: no field of the documents that were searched is a date, so before: is a word")
    return date_keys


def _texts_for_numbers(stores: Sequence[Store], keys: Mapping[str, str], terms: Sequence[FieldTerm]) -> Iterator[str]:
    """Yield a note for each field that is compared with a number and holds none, such as that of a CSV file."""
    for term in terms:
        key = keys.get(folded(term.name))
        numbers = [value for value in term.values if _number(value) is not None and _period(value) is None]
        if (
            key is not None
            and term.comparison != "is"
            and numbers
            and not _has_match(stores, Range(key, gte=-math.inf))
        ):
            yield f"syntax: {key!r:.80} holds texts, which are not compared with the number {numbers[0]:.40}"


def _has_match(stores: Sequence[Store], condition: Filter) -> bool:
    """Whether a document of any dataset matches."""
    return any(store.page(None, 1, condition).documents for store in stores)


def _condition(stores: Sequence[Store], keys: Sequence[str], term: FieldTerm) -> Filter:
    """The filter that a term means among these documents, whose field is one of ``keys``."""
    fields = [(key, value) for key in keys for value in term.values]
    if term.comparison != "is":
        condition = _disjunction([_bound(key, term.comparison, value) for key, value in fields])
    else:
        condition = _disjunction([_equality(key, value) for key, value in fields])
        is_name = all(not any(map(str.isdigit, value)) for value in term.values)
        if is_name and not _has_match(stores, condition):  # smith: no author is so, but John Smith
            condition = _disjunction([Contains(key, value.strip("*"), ignore_case=True) for key, value in fields])
    return Not(condition) if term.is_excluded else condition


def _words_of(term: FieldTerm) -> str:
    """What is searched for where a query has no words but this term."""
    return " ".join(term.values) if term.comparison == "is" and not term.is_excluded else term.name or DATE


def _conjunction(conditions: Sequence[Filter]) -> Filter:
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _disjunction(conditions: Sequence[Filter]) -> Filter:
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


def _equality(key: str, value: str) -> Filter:
    """The field is the value: a text in any usual case, a number, a truth value, or a date within the period."""
    part_of_value = value.strip("*")
    if value.startswith("*") and part_of_value:
        return (Contains if value.endswith("*") else EndsWith)(key, part_of_value, ignore_case=True)
    if value.endswith("*") and part_of_value:
        return StartsWith(key, part_of_value, ignore_case=True)
    texts = dict.fromkeys((value, value.lower(), value.upper(), value.capitalize(), value.title()))
    conditions: list[Filter] = [In(key, tuple(texts))]
    if (number := _number(value)) is not None:
        conditions.append(Equals(key, number))
    if value.lower() in {"true", "false"}:
        conditions.append(Equals(key, value.lower() == "true"))
    if (period := _period(value)) is not None:
        is_day = len(period.first) == len("2024-05-14")
        conditions += [Equals(key, period.first), StartsWith(key, period.first + ("T" if is_day else "-"))]
    return _disjunction(conditions)


def _bound(key: str, comparison: Comparison, value: str) -> Filter:
    """The field is above or below a value: as a number, and as a date or a text."""
    conditions: list[Filter] = []
    if (number := _number(value)) is not None:
        conditions.append(Range(key, **{_BOUNDS[comparison]: number}))
    if (period := _period(value)) is None:
        if number is None:
            conditions.append(Range(key, **{_BOUNDS[comparison]: value}))
    elif comparison in {"<", ">="}:
        conditions.append(Range(key, **{_BOUNDS[comparison]: period.first}))
    else:
        conditions.append(Range(key, **{"lt" if comparison == "<=" else "gte": period.following}))
    return _disjunction(conditions)


def _number(value: str) -> float | None:
    return float(value.replace(",", ".")) if _NUMBER.fullmatch(value) else None


def _period(value: str) -> Period | None:
    """The period that a value is; 1000 is no year."""
    is_number = value.isdecimal() and not _FIRST_YEAR <= int(value[:5]) <= _LAST_YEAR
    return None if is_number else period_of(value)
