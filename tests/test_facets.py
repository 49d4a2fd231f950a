"""Terms of metadata in the keyword index: they miss nothing that a filter matches, and save reading the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.columns.metadata_columns import MatchingRows
from pointsman.store.local.keyword import facet_terms as _facets
from pointsman.store.local.keyword import keyword_schema, word_query
from pointsman.store.local.keyword.facet_terms import narrowing
from pointsman.values.filters import And, Equals, Exists, Filter, In, Or, Range, StartsWith, parse_filter
from pointsman.values.types import Document
from store_kit import add, nested_conditions, opened

if TYPE_CHECKING:
    import tantivy

    from pointsman.store.local.collection import Collection

VALUES: list[Any] = ["zh", "ru", "a b", "é", "", 0, -0.0, 7, 7.5, True, False, 2**70 + 1, "2024-05-01T02:00:00+03:00"]
NAMES = ["language", "n.deep", "two words"]
COUNT = 200

leaves = st.one_of(
    st.builds(Equals, st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.builds(In, st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES), max_size=3).map(tuple)),
    st.builds(Range, st.just("number"), gte=st.integers(0, COUNT)),
    st.builds(Exists, st.sampled_from(NAMES)),
)
conditions = nested_conditions(leaves)


def metadata(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "language": VALUES[number % len(VALUES)],
        "n": {"deep": [VALUES[number % 5], VALUES[number % 7]]},
        **({"two words": VALUES[number % 3]} if number % 2 else {}),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Documents with values of every kind, some of which were changed."""
    collection = opened(tmp_path_factory.mktemp("facets"))
    add(collection, [Document(f"d{number}", "railway switch", metadata(number)) for number in range(COUNT)])
    add(collection, [Document(f"d{number}", "railway yard", metadata(number + 1)) for number in range(0, COUNT, 9)])
    yield collection
    collection.close()


def matching(store: Collection, condition: Filter) -> set[int]:
    return {key for key, values in store.truth.metadata() if condition.matches(values)}


def no_values(condition: Filter, most: int) -> None:
    """As for conditions whose values the columns do not hold."""


def keys_found_by(store: Collection, query: tantivy.Query) -> set[int]:
    searcher = store.keyword._current().searcher
    hits = searcher.search(query, COUNT + 1, count=False).hits
    keys: Any = searcher.fast_field_values("key", [address for _, address in hits])
    return set(keys)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=conditions)
def test_terms_miss_nothing_that_matches(store: Collection, condition: Filter) -> None:
    query = narrowing(keyword_schema.SCHEMA, condition, store.columns.matching_rows(condition).values)
    assert query is None or matching(store, condition) <= keys_found_by(store, query)


def test_values_that_share_a_term_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_facets, "_TERMS", 1)
    monkeypatch.setattr(word_query, "_KEY_COST", 10**9)
    store = opened(tmp_path)
    add(store, [Document(f"d{number}", "railway switch", {"n": number % 50}) for number in range(1000)])
    condition = Equals("n", 49)
    assert {key for key, _ in store.keyword.search("railway", 20, condition)} == matching(store, condition)
    store.close()


def test_metadata_that_is_changed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_query, "_KEY_COST", 10**9)
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("lines")
        dataset.add([Document(str(number), "railway switch", {"language": "en"}) for number in range(2000)])
        dataset.set_metadata({"1999": {"language": "zh"}, "1500": {"language": "zh"}})
        hits = dataset.search("railway", 5, strategy="bm25", filters="language == zh", refuse=False)
    assert sorted(hit.id for hit in hits) == ["1500", "1999"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_alone_is_told_exactly(store: Collection, value: Any) -> None:
    condition = Equals("language", value)
    query = narrowing(keyword_schema.SCHEMA, condition, no_values)
    assert query is not None
    assert keys_found_by(store, query) == matching(store, condition)


@pytest.mark.parametrize(
    "text",
    [
        "number < 3",
        "number >= 40 and number < 140",
        'language startswith "z"',
        'n.deep contains "b"',
        "language > 5",
        f"language >= {2**70 + 1}",
        "language > 1e20",
        'language < "b"',
    ],
)
def test_ranges_and_parts_of_strings_are_told_by_the_values_that_meet_them(store: Collection, text: str) -> None:
    condition = parse_filter(text)
    query = narrowing(keyword_schema.SCHEMA, condition, store.columns.matching_rows(condition).values)
    assert query is not None
    assert keys_found_by(store, query) == matching(store, condition) != set()


def test_more_values_than_a_query_can_list_tell_nothing(store: Collection) -> None:
    for text, is_told in (("number < 90", True), ("number < 150", False)):
        condition = parse_filter(text)
        query = narrowing(keyword_schema.SCHEMA, condition, store.columns.matching_rows(condition).values)
        assert (query is not None) == is_told


def test_values_are_those_of_the_matching_documents_as_they_are(tmp_path: Path) -> None:
    store = opened(tmp_path)
    long = "z" * 2000
    add(store, [Document(str(n), "railway switch", {"n": n, "name": f"{n:03}", "long": long}) for n in range(300)])
    part = parse_filter("n >= 250")
    matching_rows = store.columns.matching_rows(part)
    assert matching_rows.values(StartsWith("name", "29"), 49) is None  # fifty documents have fifty names
    assert matching_rows.values(StartsWith("name", "29"), 100) == [("string", f"29{n}") for n in range(10)]
    assert matching_rows.values(StartsWith("long", "z"), 100) is None  # only its beginning is held
    store.delete(["299"])
    add(store, [Document("298", "railway switch", {"n": 298, "name": "changed"})])
    assert matching_rows.values(StartsWith("name", "29"), 100) == [("string", f"29{n}") for n in range(8)]
    assert matching_rows.count == 49
    store.close()


@pytest.mark.parametrize(
    "text",
    ['_id == "d1"', '_text == "railway"', "number > 3", "exists(language)", "not language == zh", "number in []"],
)
def test_of_other_conditions_terms_tell_nothing(text: str) -> None:
    condition = In("number", ()) if text.endswith("[]") else parse_filter(text)
    assert narrowing(keyword_schema.SCHEMA, condition, no_values) is None
    assert narrowing(keyword_schema.SCHEMA, Or((Equals("language", "zh"), condition)), no_values) is None
    assert narrowing(keyword_schema.SCHEMA, And((Equals("language", "zh"), condition)), no_values) is not None


@pytest.mark.parametrize("repeatable", [False, True])
def test_of_what_seldom_has_the_words_little_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeatable: bool
) -> None:
    texts = ["railway switch"] * 19 + ["铁路 道岔 railway"] + ["铁路 道岔"] * 20
    documents = [
        Document(str(number), texts[number % 40], {"language": "en" if number % 40 < 19 else "zh"})
        for number in range(4000)
    ]
    monkeypatch.setattr(word_query, "_KEY_COST", 10**9)
    limits: list[int] = []
    read = word_query._read

    def note_limit(snapshot: Any, query: Any, limit: int, allowed: Any = None) -> Any:
        hits, count = read(snapshot, query, limit, allowed)
        limits.append(count)
        return hits, count

    monkeypatch.setattr(word_query, "_read", note_limit)
    store = opened(tmp_path)
    add(store, documents)
    condition = Equals("language", "zh")
    hits = store.keyword.query("railway switch", repeatable=repeatable).search(10, condition)
    allowed = matching(store, condition)
    right = [hit for hit in store.keyword.search("railway switch", 4000) if hit[0] in allowed][:10]
    assert hits == right
    assert sum(limits[: -1 if repeatable else None]) < 4000  # 2,000 documents have a word; the list of all is the last
    store.close()


def test_documents_may_vanish_while_a_filter_is_answered(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 0, 0, 0])
    monkeypatch.setattr(MatchingRows, "count", property(lambda _: next(counts)))
    assert store.keyword.search("railway", 3, parse_filter("number < 3"))
