"""Filters: what they mean, how they are written, and how they refuse."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.prepared_documents import prepare
from pointsman.tools.errors import FilterError, InputError
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
    Range,
    StartsWith,
    facts,
    parse_filter,
    parse_optional,
)
from pointsman.values.metadata import values_of
from pointsman.values.types import Document

KEYS = ["year", "lang", "lang.x", "not", "a b`\\\n"]
keys = st.sampled_from(KEYS)
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([-0.5, 2.0, 1e22, 0.1, math.inf, -math.inf, 2**53, 2**53 + 1, 2**53 + 2, -(2**70) - 1, 10**400]),
)
strings = st.one_of(
    st.sampled_from(["", "ru", "RU", "en", "环保", "2020-01-01", "a\x00", "\ud83d", "r" * 70, "2020-01-01T01:00Z"]),
    st.text(max_size=3),
)
scalars = st.one_of(numbers, strings, st.booleans())
metadatas = st.dictionaries(
    keys,
    st.one_of(
        scalars,
        st.lists(scalars, max_size=3),
        st.sampled_from([None, math.nan, {"x": 1}, [{"x": "ru"}, {"x": [2]}], [None], [[1]]]),
    ),
    max_size=4,
)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    bound = numbers if draw(st.booleans()) else strings
    low, high = draw(st.sampled_from([("gt",), ("gte",), ()])), draw(st.sampled_from([("lt",), ("lte",), ()]))
    names = [*low, *high] or ["gte"]
    return Range(draw(keys), **{name: draw(bound) for name in names})


leaves = st.one_of(
    st.builds(Equals, keys, scalars),
    st.builds(In, keys, st.lists(scalars, max_size=12).map(tuple)),
    ranges(),
    st.builds(Exists, keys),
    st.builds(Contains, keys, strings, st.booleans()),
    st.builds(StartsWith, keys, strings, st.booleans()),
    st.builds(EndsWith, keys, strings, st.booleans()),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    leaves,
    lambda operand: st.one_of(
        st.lists(operand, max_size=3).map(lambda operands: And(tuple(operands))),
        st.lists(operand, max_size=3).map(lambda operands: Or(tuple(operands))),
        operand.map(Not),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(filters)
def test_written_and_read_again_a_filter_is_the_same(tree: Filter) -> None:
    assert parse_filter(str(tree)) == tree
    assert hash(parse_filter(str(tree))) == hash(tree)


@settings(deadline=None)
@given(st.text(alphabet="ab1 .-<>=!()[],\"'`\\“”andortinexsu≥（", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    complaint, tree = "", None
    try:
        tree = parse_filter(text)
    except FilterError as error:
        complaint = str(error)
    if tree is None:
        assert "character" in complaint
        assert complaint.endswith("^")
    else:
        assert parse_filter(str(tree)) == tree


@settings(deadline=None)
@given(filters, filters, metadatas)
def test_the_laws_of_logic(first: Filter, second: Filter, metadata: dict[str, Any]) -> None:
    a, b = first.matches(metadata), second.matches(metadata)
    assert (first & second).matches(metadata) == (a and b)
    assert (first | second).matches(metadata) == (a or b)
    assert (~first).matches(metadata) == (not a)


@settings(deadline=None)
@given(metadatas)
def test_a_condition_sees_what_the_stores_keep(metadata: dict[str, Any]) -> None:
    all_facts = facts(metadata)
    for key in {*KEYS, *all_facts}:
        assert sorted(values_of(metadata, key), key=repr) == sorted(all_facts.get(key, []), key=repr)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=3))), "2024-05-01T02:00:00+03:00"),
        (date(2024, 5, 1), "2024-05-01"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("1.5"), 1.5),
        (Decimal(2**53 + 1), 2**53 + 1),
        (np.int64(2**53 + 1), 2**53 + 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.datetime64("2024-05-01"), "2024-05-01"),
    ],
)
def test_values_that_json_has_not(value: Any, expected: Any) -> None:
    """Row 4: stored as JSON has them, and a filter may have either."""
    metadata = prepare(Document("1", "", {"a": value, "b": {"c": [value]}})).document.metadata
    assert metadata == {"a": expected, "b": {"c": [expected]}}
    assert isinstance(metadata["a"], type(expected))
    for condition in (Equals("a", value), Equals("b.c", expected), In("a", (value,)), parse_filter({"a": value})):
        assert condition.matches(metadata)
        assert condition.matches({"a": value, "b": {"c": value}})
        assert parse_filter(str(condition)) == condition


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="the key 1 is not a text"):
        prepare(Document("1", "", {"a": {1: "x"}}))


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, Decimal("NaN"), time(3)])
def test_values_that_cannot_be_stored_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="not JSON"):
        prepare(Document("1", "", {"a": value}))


MEANING = [
    ("year = 2020", {"year": 2020.0}, True),
    ("year = 1", {"year": True}, False),
    ("ok = true", {"ok": 1}, False),
    ("year = '2020'", {"year": 2020}, False),
    ("year != 2020", {}, True),
    ("year != 2020", {"year": [2020, 2021]}, False),
    ("tag = b", {"tag": ["a", "b"]}, True),
    ("tag in [c, b]", {"tag": ["a", "b"]}, True),
    ("tag in []", {"tag": ["a", "b"]}, False),
    ("tag not in [a]", {"tag": ["a", "b"]}, False),
    ("tag not in [a]", {}, True),
    ("1 < n < 3", {"n": [0, 4]}, False),
    ("n > 1 and n < 3", {"n": [0, 4]}, True),
    ("n >= 2", {"n": "3"}, False),
    ("date >= 2023-05-01", {"date": "2023-05-02"}, True),
    ("date < 2023-05-01", {"date": "2023-05-02"}, False),
    ("exists(a)", {"a": None}, False),
    ("exists(a)", {"a": []}, False),
    ("exists(a)", {"a": {"b": 1}}, False),
    ("exists(a)", {"a": 0}, True),
    ("a exists", {"a": ""}, True),
    ("exists(a)", {"a": math.nan}, False),
    ("n < 5", {"n": math.nan}, False),
    ("a.b = 1", {"a": {"b": 1}}, True),
    ("a.b = 1", {"a.b": 1}, True),
    ("a.b = 1", {"a": [{"b": 2}, {"b": [3, 1]}]}, True),
    ("a.b.c = 1", {"a.b": {"c": 1}}, True),
    ("a.b = 1", {"a": [[{"b": 1}]]}, False),
    ("_a.b = 1", {"_a": {"b": 1}}, False),
    ("a = null", {}, True),
    ("a = null", {"a": [None]}, True),
    ("a = null", {"a": 0}, False),
    ("a != null", {"a": 0}, True),
    ("a in [1, null]", {"b": 1}, True),
    ("a in [1, null]", {"a": 2}, False),
    ("a not in [1, null]", {"a": 2}, True),
    ("a contains ell", {"a": ["no", "hello"]}, True),
    ("a contains ELL", {"a": "hello"}, False),
    ("a icontains ELL", {"a": "hello"}, True),
    ("a contains 1", {"a": 1}, False),
    ("a contains ''", {"a": ""}, True),
    ("a contains ''", {"b": ""}, False),
    ("a startswith he", {"a": "hello"}, True),
    ("a startswith ell", {"a": "hello"}, False),
    ("a istartswith ПОЕ", {"a": "поезд"}, True),
    ("a endswith lo", {"a": ["no", "hello"]}, True),
    ("a endswith ell", {"a": "hello"}, False),
    ("a endswith ''", {"a": ""}, True),
    ("a endswith ''", {"a": 1}, False),
    ("a iendswith ЕЗД", {"a": "поезд"}, True),
    ("a iendswith ''", {"a": "hello"}, True),
    ("a iendswith hello", {"a": "lo"}, False),
    ("a icontains STRASSE", {"a": "Straße"}, False),
    ("a icontains 'straẞe'", {"a": "Straße"}, True),
    ("n in [9007199254740993]", {"n": 9007199254740993}, True),
    ("n > 9007199254740992", {"n": 9007199254740993}, True),
    ("at > '2024-05-01T00:00:00+00:00'", {"at": "2024-05-01T02:00:00+03:00"}, False),
    ("at = '2024-05-01T00:00:00Z'", {"at": "2024-05-01T03:00:00+03:00"}, True),
    ("at = '2024-02-30T00:00:00Z'", {"at": "2024-02-30T00:00:00Z"}, True),
    ("_id startswith 'rail'", {"_id": "rails-7"}, True),
    ("_text icontains LAMP", {"_text": "a red lamp"}, True),
    ("and()", {}, True),
    ("or()", {}, False),
    ("n = 9007199254740993", {"n": 9007199254740992}, False),
    ("s = x", {"s": "x" * 5000}, False),
    (f"s > {'x' * 2000}", {"s": "x" * 5000}, True),
]


@pytest.mark.parametrize(("text", "metadata", "expected"), MEANING)
def test_meaning(text: str, metadata: dict[str, Any], expected: bool) -> None:
    assert parse_filter(text).matches(metadata) is expected


GRAMMAR: list[tuple[str, Filter]] = [
    ("a=1 or b=2 and c=3", Or((Equals("a", 1), And((Equals("b", 2), Equals("c", 3)))))),
    ("not a=1 and b=2", And((Not(Equals("a", 1)), Equals("b", 2)))),
    ("NOT exists(a) AND b IN ['x', \"y\"]", And((Not(Exists("a")), In("b", ("x", "y"))))),
    ("2020 <= year < 2024", Range("year", gte=2020, lt=2024)),
    ("2024 > year >= 2020", Range("year", gte=2020, lt=2024)),
    ("5 < year", Range("year", gt=5)),
    ('"b" >= name', Range("name", lte="b")),
    ("2020-01-01 <= date", Range("date", gte="2020-01-01")),
    (
        "（语言 = “中文”） and 年份 ≥ 2020 and 标签 in ［a，b、c］",
        And((Equals("语言", "中文"), Range("年份", gte=2020), In("标签", ("a", "b", "c")))),
    ),
    ("`a b` = -1.5e3", Equals("a b", -1500.0)),
    (r"a = 'it\'s \u0041\n'", Equals("a", "it's A\n")),
    ("a = TRUE", Equals("a", True)),
    ("a = v1.2-beta", Equals("a", "v1.2-beta")),
    ("price>-5", Range("price", gt=-5)),
    ("a in (1, 2)", In("a", (1, 2))),
    ("and(a = 1)", And((Equals("a", 1),))),
]


@pytest.mark.parametrize(("text", "tree"), GRAMMAR)
def test_grammar(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


REFUSED = [
    ("", 1, "a key"),
    ("year >=", 8, "a value"),
    ("year >= 2020 and )", 18, "a key"),
    ("year 2020", 6, "=="),
    ("(a = 1", 7, "')'"),
    ("a = 1 b = 2", 7, "and, or"),
    ("a = 'x", 5, "never closed"),
    ("a in [1 2]", 9, "','"),
    ("a in 1", 6, "'['"),
    ("a = in", 5, "quote it"),
    ("a > null", 5, "not exists(key)"),
    ("a contains [x]", 12, "a text (in quotes)"),
    ("2fa = true", 1, "backticks"),
    ("1 = a", 3, "< <= > >="),
    ("1 < a > 2", 7, "other bound"),
    ("1 < a < b", 1, "both"),
    ("a < true", 1, "no order"),
    ("a = 1 & b = 2", 7, "cannot read"),
    (r"a = 'c:\docs'", 8, "backslash"),
    ("年份 >= 2020 and )", 16, "a key"),
    ("exists a", 8, "'('"),
    ("a ! 1", 3, "=="),
]


@pytest.mark.parametrize(("text", "character", "expected"), REFUSED)
def test_errors_name_the_place_and_the_remedy(text: str, character: int, expected: str) -> None:
    with pytest.raises(FilterError) as error_info:
        parse_filter(text)
    first, line, caret = str(error_info.value).split("\n")
    assert f"character {character}:" in first
    assert expected in first
    assert line == f"  {text}"
    wide = sum(c in "年份" for c in text[: character - 1])
    assert caret == " " * (2 + character - 1 + wide) + "^"


def test_a_long_expression_is_shown_around_the_error() -> None:
    with pytest.raises(FilterError) as error_info:
        parse_filter("a = 1 and " * 500 + ")")
    assert len(str(error_info.value)) < 400
    line, caret = str(error_info.value).split("\n")[1:]
    assert line[caret.index("^")] == ")"


def test_size_is_bounded_and_never_a_recursion_error() -> None:
    for text in ("(" * 4000 + "a = 1" + ")" * 4000, "not " * 2000 + "a = 1", "and(" * 2000):
        with pytest.raises(FilterError, match="64"):
            parse_filter(text)
    with pytest.raises(FilterError, match="10,000 characters"):
        parse_filter("a = 1 or " * 2000 + "a = 1")
    with pytest.raises(FilterError, match="1000 conditions, not 1001"):
        parse_filter("a=1 or " * 1000 + "a=1")
    assert parse_filter("a=1 or " * 999 + "a=1").leaves == 1000
    deepest = parse_filter("not " * 63 + "exists(a)")
    assert deepest.depth == 64
    assert parse_filter(str(deepest)) == deepest
    with pytest.raises(FilterError, match="64"):
        Not(deepest)
    for junction in (And, Or):
        with pytest.raises(FilterError, match="64"):
            junction((Exists("b"), deepest))
    tree: Filter = Exists("a")
    for junction in (And, Or) * 31:
        tree = junction((tree, Exists("b")))
    assert parse_filter(str(tree)) == tree
    with pytest.raises(FilterError, match="conditions"):
        And((Exists("a"),) * 1001)
    assert parse_filter("a = " + "9" * 9000) == Equals("a", math.inf)


def test_hostile_mappings_are_bounded() -> None:
    loop: dict[str, Any] = {}
    loop["$not"] = loop
    with pytest.raises(FilterError, match="64"):
        parse_filter(loop)
    bottoms: list[dict[str, Any]] = [{}, {"a": 1}, {"$or": []}]
    for wide in bottoms:
        for _ in range(40):  # 2**40 conditions, were they counted after reading
            wide = {"$and": [wide, wide]}  # noqa: PLW2901
        with pytest.raises(FilterError, match="1000"):
            parse_filter(wide)


MAPPINGS: list[tuple[dict[str, Any], str]] = [
    ({}, "and()"),
    ({"category": "环保", "year": 2023}, 'category == "环保" and year == 2023'),
    ({"tag": ["a", "b"]}, 'tag in ["a", "b"]'),
    ({"year": {"gte": 2020, "lt": 2024}}, "2020 <= year < 2024"),
    ({"year": {"$gt": 2020, "$ne": 2022}}, "year > 2020 and year != 2022"),
    ({"year": {"lte": 1, "nin": [0]}}, "year <= 1 and year not in [0]"),
    ({"a": {"exists": True}, "b": {"$exists": False}}, "exists(a) and not exists(b)"),
    ({"a": {"eq": 1}, "b": {"in": ["x"]}}, 'a == 1 and b in ["x"]'),
    ({"$or": [{"a": 1}, {"b": 2, "c": 3}]}, "a == 1 or (b == 2 and c == 3)"),
    ({"$not": {"a": 1}}, "a != 1"),
    ({"$price": {"gte": 5}, "$tag": ["a", "b"]}, '`$price` >= 5 and `$tag` in ["a", "b"]'),
    ({"$and": [{"a": 1}]}, "and(a == 1)"),
    ({"and": 1, "or": {"lt": 2}}, "`and` == 1 and `or` < 2"),
]


@pytest.mark.parametrize(("mapping", "text"), MAPPINGS)
def test_mappings(mapping: dict[str, Any], text: str) -> None:
    assert str(parse_filter(mapping)) == text
    assert parse_filter(text) == parse_filter(mapping)


BAD_MAPPINGS: list[tuple[Any, str]] = [
    ({"year": {"above": 3}}, r"unknown operator 'above'; known: eq, ne, in"),
    ({"$gte": 5}, r"unknown operator '\$gte'"),
    ({"$xor": [{"a": 1}]}, r"unknown operator '\$xor'"),
    ({"$nor": []}, r"unknown operator '\$nor'; known here: \$and"),
    ({"a": {}}, "empty mapping"),
    ({"a": {"gt": None}}, "not exists"),
    ({"a": {"gt": None}}, "None"),
    ({"a": [[1]]}, "compares strings"),
    ({"a": {"in": "ru"}}, "list of values"),
    ({"a": {"in": 3}}, "list of values"),
    ({"a": {"gt": 1, "gte": 2}}, "not both"),
    ({"a": {"gt": 1, "$gt": 2}}, "given twice"),
    ({"a": {"gt": 1, "lt": "x"}}, "both"),
    ({"a": {"exists": 1}}, "true or false"),
    ({"$and": {"a": 1}}, "list of mappings"),
    ({"$or": ["a = 1"]}, "parts of a filter are mappings"),
    ({1: 2}, "key of a filter is a str"),
    ({"a": math.nan}, "nan"),
    (17, "expression or a mapping, not int"),
    (None, "not NoneType"),
]


@pytest.mark.parametrize(("source", "message"), BAD_MAPPINGS)
def test_bad_mappings_are_refused(source: Any, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(source)


def test_filters_are_values() -> None:
    assert Equals("a", 1) == Equals("a", 1.0)
    assert Equals("a", 1) != Equals("a", True)
    assert In("a", (1, 2)) == In("a", (2, 1, 1))
    assert len({Equals("a", 1), Equals("a", True), Equals("a", 1.0)}) == 2
    assert parse_filter("and(exists(a))") != parse_filter("or(exists(a))")
    tree = Exists("a") & Exists("b") & Exists("c") | Exists("d")
    assert tree == Or((And((Exists("a"), Exists("b"), Exists("c"))), Exists("d")))
    assert parse_filter(tree) is tree
    with pytest.raises(AttributeError):
        tree.parts = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        tree & "a = 1"  # type: ignore[operator]
    with pytest.raises(FilterError, match="parse_filter"):
        And(("a = 1",))  # type: ignore[arg-type]


@pytest.mark.parametrize("ignore_case", [False, True])
def test_ends_of_strings_in_the_terms_of_opensearch(ignore_case: bool) -> None:
    """Lucene's expressions match whole terms, as `re.fullmatch` does; so this needs no server."""
    pytest.importorskip("opensearchpy")
    from pointsman.store.opensearch.opensearch_queries import clause, facts_of

    sizes = (0, 1, 144, 145, 146, 845, 851, 995, 1000, 1850)
    for value in ("", "x.PDF", *("в" * size + "x.pdf" for size in sizes)):
        document = Document("1", "x", {"a": value, "b": f"{value} ends otherwise"})
        terms = facts_of(document)
        for ending in ("", ".pdf", "xpdf", "PDF", "в" * 20 + "x.pdf", "в" * 145 + "x.pdf", "в"):
            condition = EndsWith("a", ending, ignore_case)
            pattern = clause(condition)["regexp"]["facts"]["value"]
            is_match = any(re.fullmatch(pattern, term, re.DOTALL) for term in terms)
            assert is_match is condition.matches(document.fields), (value[:20], len(value), ending)


@pytest.mark.parametrize(
    "mapping", [{"and": [{"a": 1}, {"b": 2}]}, {"or": ({"a": 1},)}, {"not": {"a": 1}}, {"and": {"a": {"gt": 1}}}]
)
def test_a_word_that_combines_without_its_dollar_is_named_with_it(mapping: dict[str, Any]) -> None:
    (word,) = mapping
    with pytest.raises(FilterError, match=rf"conditions are combined by '\${word}'"):
        parse_filter(mapping)


def test_a_key_may_be_called_as_what_combines() -> None:
    condition = parse_filter({"and": ["x", "y"], "not": {"gt": 1}})
    assert condition.matches({"and": "x", "not": 2})


@pytest.mark.parametrize(
    "condition",
    [{"code": "a\ud800"}, {"code": {"$in": ["a\ud800"]}}, {"code": {"$contains": "\ud800"}}, "code == 'a\ud800'"],
)
def test_half_of_a_character_is_searched_as_it_is_stored(condition: Any, tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document("half", "one", {"code": "a\ud800"}), Document("whole", "two", {"code": "a"})])
        assert dataset.ids(filters=condition) == ["half"]
    parsed_filter = parse_optional(condition)
    assert parsed_filter is not None
    assert parsed_filter.matches({"code": "a\ud800"})
