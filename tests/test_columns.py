"""The columns answer every filter exactly as `Filter.matches` does, through any history of changes."""

from __future__ import annotations

import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.store.local.columns import metadata_columns as module
from pointsman.store.local.columns.metadata_columns import Columns
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
    parse_filter,
)
from test_filters import filters, metadatas

if TYPE_CHECKING:
    from collections.abc import Mapping

Step = tuple[str, Any]
DOCUMENT_KEYS = st.one_of(st.integers(0, 12), st.sampled_from([-5, 3_000_000_000, 2**62]))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(DOCUMENT_KEYS, metadatas), max_size=4)),
        st.tuples(st.just("remove"), DOCUMENT_KEYS),
        st.tuples(st.just("ask"), filters),
    ),
    max_size=25,
)


def no_scan(condition: Any) -> Any:
    raise AssertionError(f"{condition} takes no scan")


def put(columns: Columns, pairs: list[tuple[int, dict[str, Any]]]) -> None:
    columns.use(lambda table: table.put(pairs))


def check(columns: Columns, truth: Mapping[int, Mapping[str, Any]], condition: Filter) -> None:
    expected = sorted(key for key, metadata in truth.items() if condition.matches(metadata))
    assert columns.allowed(condition).tolist() == expected
    keys = np.array([99, *reversed(truth), 1_000_000_000_000, -7], np.int64)
    answer = [key in truth and condition.matches(truth[key]) for key in keys.tolist()]
    assert columns.mask(condition, keys).tolist() == answer
    read_only_keys = np.array(list(truth), np.int64)
    read_only_keys.flags.writeable = False
    for _ in range(2):  # the second time the alignment is remembered
        assert columns.mask(condition, read_only_keys).tolist() == [condition.matches(truth[key]) for key in truth]
    for key in list(truth)[:2]:  # few keys of many take another way
        assert columns.mask(condition, np.array([key])).tolist() == [condition.matches(truth[key])]


@settings(max_examples=100, deadline=None)
@given(start=st.dictionaries(DOCUMENT_KEYS, metadatas, max_size=12), steps=steps, last=filters)
def test_every_history_and_filter_agrees_with_the_reference(
    start: dict[int, dict[str, Any]], steps: list[Step], last: Filter
) -> None:
    truth = dict(start)

    def scan(condition: Any) -> Any:
        return np.array([key for key, metadata in truth.items() if condition.matches(metadata)], np.int64)

    columns = Columns(lambda: list(truth.items()), scan)
    for action, argument in [*steps, ("ask", last)]:
        if action == "put":
            truth.update(argument)
            put(columns, argument)
        elif action == "remove":
            truth.pop(argument, None)
            columns.use(lambda table, key=argument: table.remove(key))  # type: ignore[misc]
        else:
            check(columns, truth, argument)
    assert len(columns.allowed(And(()))) == len(truth)


def test_long_histories_are_compacted_and_sorted_in() -> None:
    """Thousands of changes, so every rare branch is taken: compaction, merged vocabularies, sparse keys."""
    random = np.random.default_rng(7)
    truth: dict[int, dict[str, Any]] = {}
    columns = Columns(lambda: (), no_scan)
    conditions = [
        parse_filter(text)
        for text in (
            "lang = ru",
            'name >= "n3" and name < "n6"',
            "not (n < 500)",
            "tag in [a, c, zz] or rare exists",
            '"n2" < name <= "n4" or exists(mixed)',
            "mixed = true",
            "n in [1,2,3,4,5,6,7,8,9,10,11,12]",
        )
    ]
    for step in range(4000):
        key = int(random.integers(0, 900))
        if random.random() < 0.2:
            truth.pop(key, None)
            columns.use(lambda table, key=key: table.remove(key))  # type: ignore[misc]
        else:
            metadata: dict[str, Any] = {
                "lang": ["en", "ru", "zh"][step % 3],
                "name": f"n{random.integers(0, 10**6)}",
                "n": step % 1000,
                "tag": list("abcde"[: step % 6]),
            }
            if step % 50 == 0:
                metadata["rare"] = ["x"] * 3
                metadata["mixed"] = [True, "yes", step]
            truth[key] = metadata
            put(columns, [(key, metadata)])
        if step % 800 == 0:
            for condition in conditions:
                check(columns, truth, condition)
    for condition in conditions:
        check(columns, truth, condition)
    table = columns._table
    assert table is not None
    assert table.size <= 2 * len(truth) + 1024  # the dead were cleared away
    assert len(columns.allowed(And(()))) == len(truth)


def test_batches_of_the_load_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 3)
    truth = {key: {"a": key % 4, "b": [f"v{key}", "w"]} for key in range(20)}
    columns = Columns(lambda: list(truth.items()), no_scan)
    for condition in (Equals("a", 2), Range("b", gte="v3", lt="v8"), In("b", ("w", "v1")), Not(Exists("c"))):
        check(columns, truth, condition)


def test_nothing_is_loaded_before_the_first_question_and_then_once() -> None:
    loads = []

    def load() -> list[tuple[int, dict[str, Any]]]:
        loads.append(1)
        return [(1, {"a": 1})]

    columns = Columns(load, no_scan)
    assert not columns.loaded
    assert loads == []
    assert columns.allowed(Equals("a", 1)).tolist() == [1]
    put(columns, [(2, {"a": 1})])
    assert columns.allowed(Equals("a", 1)).tolist() == [1, 2]
    assert loads == [1]
    columns.forget()
    assert columns.allowed(Equals("a", 1)).tolist() == [1]
    assert loads == [1, 1]


def test_a_failed_load_is_tried_again() -> None:
    outcomes: list[Any] = [OSError("disk"), [(1, {"a": 1})]]

    def load() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    columns = Columns(load, no_scan)
    with pytest.raises(OSError, match="disk"):
        columns.allowed(And(()))
    assert columns.allowed(And(())).tolist() == [1]


def test_an_array_that_may_change_is_read_anew_each_time() -> None:
    columns = Columns(lambda: (), no_scan)
    put(columns, [(1, {"a": 1}), (2, {"a": 2})])
    keys = np.array([1, 2])
    assert columns.mask(Equals("a", 1), keys).tolist() == [True, False]
    keys[:] = [2, 1]
    assert columns.mask(Equals("a", 1), keys).tolist() == [False, True]


def test_a_remembered_alignment_does_not_outlive_a_change() -> None:
    columns = Columns(lambda: (), no_scan)
    put(columns, [(1, {"a": 1}), (2, {"a": 1})])
    keys = np.array([1, 2])
    keys.flags.writeable = False
    assert columns.mask(Equals("a", 1), keys).tolist() == [True, True]
    columns.use(lambda table: table.remove(1))
    assert columns.mask(Equals("a", 1), keys).tolist() == [False, True]
    assert columns.mask(Not(Exists("b")), keys).tolist() == [False, True]
    put(columns, [(1, {"a": 2})])
    assert columns.mask(Equals("a", 1), keys).tolist() == [False, True]


def test_empty_columns_answer() -> None:
    columns = Columns(lambda: (), no_scan)
    assert columns.allowed(And(())).tolist() == []
    assert columns.mask(And(()), np.array([3])).tolist() == [False]
    assert columns.mask(Or(()), np.empty(0, np.int64)).tolist() == []
    columns.use(lambda table: table.remove(3))
    assert columns.allowed(And(())).tolist() == []


def test_many_rare_keys_take_little_memory() -> None:
    """A key of metadata that few documents have must not cost an array as long as the table."""
    columns = Columns(lambda: ((key, {f"key{key}": key, "shared": "x"}) for key in range(3000)), no_scan)
    assert columns.allowed(Equals("key2999", 2999)).tolist() == [2999]
    table = columns._table
    assert table is not None
    planes = sum(len(plane.view) for kinds in table._columns.values() for c in kinds.values() for plane in c._planes)
    assert planes < 3000 * 12


def test_a_filter_of_a_foreign_class_is_refused() -> None:
    class Odd(Filter):
        def matches(self, metadata: Mapping[str, Any]) -> bool:
            return True

    with pytest.raises(TypeError, match="Odd"):
        Columns(lambda: (), no_scan).allowed(Odd())


def test_threads_may_ask_while_one_changes() -> None:
    """Each change keeps a count invariant that every answer must show: the documents move between two values."""
    columns = Columns(lambda: [(key, {"side": "left", "n": key}) for key in range(2000)], no_scan)
    keys = np.arange(2000)
    keys.flags.writeable = False
    failures: list[str] = []
    is_over = threading.Event()

    def ask() -> None:
        try:
            while not is_over.is_set():
                count = int(columns.mask(Or((Equals("side", "left"), Equals("side", "right"))), keys).sum())
                if count != 2000 or len(columns.allowed(Exists("n"))) != 2000:
                    failures.append(f"{count} of 2000")
        except Exception as error:  # noqa: BLE001  # a thread's error must reach the test
            failures.append(repr(error))

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(2500):
        put(columns, [(step % 2000, {"side": "left" if step % 3 else "right", "n": step, "x": f"v{step}"})])
    is_over.set()
    for reader in readers:
        reader.join()
    assert failures == []


def test_long_strings_are_not_all_held() -> None:
    """20,000 strings of 2,000 characters take a tenth of their size, and answers are the same."""
    texts = [f"{number % 100:03}" + "x" * 1990 + f"{number:07}" for number in range(20_000)]
    scans = []

    def scan(condition: Any) -> Any:
        scans.append(condition)
        return np.array([key for key, text in enumerate(texts) if condition.matches({"a": text})], np.int64)

    columns = Columns(lambda: ((key, {"a": text}) for key, text in enumerate(texts)), scan)
    tracemalloc.start()
    assert columns.allowed(Equals("a", texts[7])).tolist() == [7]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 6_000_000
    assert len(columns.allowed(StartsWith("a", "007x"))) == 200
    assert len(columns.allowed(Range("a", gte="007", lt="009"))) == 400
    assert not scans
    assert columns.allowed(Contains("a", "x0000123")).tolist() == [123]
    assert columns.allowed(Range("a", gt=texts[7], lt=texts[107] + "x")).tolist() == [107]
    assert columns.allowed(EndsWith("a", "x0000123")).tolist() == [123]
    assert len(scans) == 3
