"""Stores keep what the protocol promises; and each test of the suite fails for one that breaks its promise (B1)."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, odd_documents, vector_of, vectors_of
from pointsman.store.local.local_store import LocalStore
from pointsman.store.store_values import MATCHED, NEAR, WORDS, Capability, MetadataResult, Page, StoreQuery
from pointsman.tools.errors import InputError
from pointsman.values.types import AddResult, Document
from slow_store import SlowStore
from store_orders import OrderedStoreConformance

if TYPE_CHECKING:
    from pointsman.store.base_store import Store
    from pointsman.store.store_values import Lists

DESCRIPTION = {"name": "rails", "description": "", "indexing_technique": "hybrid"}


class TestLocalStore(OrderedStoreConformance):
    """The embedded store; its keyword index keeps lengths in one byte, and counts deleted documents until a merge."""

    tolerance = 0.05
    drift = None
    folder: ClassVar[Path]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.folder = tmp_path_factory.mktemp("stores")
        yield
        cls._filled_store = None

    def make_store(self) -> Store:
        return LocalStore(self.folder / uuid.uuid4().hex, DESCRIPTION)

    def again(self, store: Store) -> Store:
        assert isinstance(store, LocalStore)
        return LocalStore(store.collection._directory, DESCRIPTION)


class TestSlowStore(TestLocalStore):
    """As if it were far away, it answers the same."""

    def make_store(self) -> Store:
        return SlowStore(super().make_store(), seconds=0.0)

    def again(self, store: Store) -> Store:
        assert isinstance(store, SlowStore)
        return SlowStore(super().again(store.store), seconds=0.0)


def test_a_slow_store_takes_its_time_and_counts(tmp_path: Path) -> None:
    documents = odd_documents(20)
    local = LocalStore(tmp_path / "it", DESCRIPTION)
    local.write(documents, vectors_of(documents), EMBEDDER)
    slow = SlowStore(local, seconds=0.02)
    assert not slow.info.can(Capability.LOCAL)
    assert slow.info.capabilities == local.info.capabilities - {Capability.LOCAL}
    start = time.perf_counter()
    answer = slow.search([StoreQuery("signal", vector_of("x"), 5)] * 3)[0]
    assert time.perf_counter() - start >= 0.02
    assert {key for ranking in answer.rankings.values() for key, _ in ranking} == set(answer.documents)
    asyncio.run(slow.asearch([StoreQuery("signal")]))
    slow.score([StoreQuery("signal")], [[]])
    slow.statistics()
    slow.statistics()  # of the same second
    assert (slow.round_trips, dict(slow.calls)) == (4, {"search": 2, "score": 1, "statistics": 1})
    slow.reset()
    assert slow.round_trips == 0
    assert SlowStore(local, 0.0, documents=False).search([StoreQuery("signal")])[0].documents == {}
    local.close()


# ── each test of the suite fails for a store that breaks its promise ─────────────────────────────────────────────────

Method = Callable[..., Any]
Change = Callable[[Method], Method]


def change_result(change: Callable[[Any], Any]) -> Change:
    return lambda method: lambda *args, **options: change(method(*args, **options))


def change_arguments(change: Callable[..., tuple[Any, ...]]) -> Change:
    return lambda method: lambda *args, **options: method(*change(*args), **options)


def ranking(change: Callable[[list[Any]], list[Any]]) -> Change:
    def change_answers(answers: list[Lists]) -> list[Lists]:
        return [
            replace(answer, rankings={name: change(list(pairs)) for name, pairs in answer.rankings.items()})
            for answer in answers
        ]

    return change_result(change_answers)


def change_scores(change: Callable[[str, Any], Any]) -> Change:
    """Scores of the union changed."""

    def change_answers(answers: list[Lists]) -> list[Lists]:
        return [
            replace(
                answer,
                scores={n: {key: change(n, s) for key, s in by_key.items()} for n, by_key in answer.scores.items()},
            )
            for answer in answers
        ]

    return change_result(change_answers)


def raising(error: Exception, condition: Callable[..., bool] = lambda *_: True) -> Change:
    def change(method: Method) -> Method:
        def call(*args: Any, **options: Any) -> Any:
            if condition(*args, *options.values()):
                raise error
            return method(*args, **options)

        return call

    return change


def forgetful(method: Method) -> Method:
    """Drops what it is given the second time and after."""
    calls = itertools.count()
    return lambda *args, **options: AddResult() if next(calls) else method(*args, **options)


def drop_filters(store_queries: Any) -> tuple[Any]:
    return ([replace(store_query, filters=None) for store_query in store_queries],)


def filtered_late(method: Method) -> Method:
    def call(store_queries: Any) -> Any:
        full = method([replace(store_query, depth=1000) for store_query in store_queries])
        cut = method([replace(store_query, filters=None) for store_query in store_queries])
        return [
            replace(
                cut_answer,
                rankings={
                    n: [p for p in pairs if p in list(full_answer.rankings[n])]
                    for n, pairs in cut_answer.rankings.items()
                },
            )
            for cut_answer, full_answer in zip(cut, full, strict=True)
        ]

    return call


def differing(method: Method) -> Method:
    """Another answer every time."""
    calls = itertools.count()

    def call(store_queries: Any) -> Any:
        turn = min(next(calls), 1)
        return ranking(lambda pairs: pairs[turn:])(method)(store_queries)

    return call


async def empty(store_queries: Any) -> Any:
    return []


async def score_nothing(store_queries: Any, keys: Any) -> Any:
    return [{} for _ in store_queries]


async def fetch_nothing(keys: Any) -> Any:
    return []


def in_a_loop(store_queries: Any) -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def nul_cut_off(method: Method) -> Method:
    """Compares sources as C does."""
    return lambda **options: method(**{**options, "source": options["source"].partition("\0")[0]})


def without_a_wall(method: Method) -> Method:
    """Returns every document to everyone."""
    return lambda *_: method.__self__  # type: ignore[attr-defined]


def reserved_as_text(method: Method) -> Method:
    """Writes a title of any type."""

    def call(documents: Any, *arguments: Any) -> Any:
        documents_with_title = [
            Document(
                document.id,
                document.text,
                {key: str(value) if key == "title" else value for key, value in document.metadata.items()},
            )
            for document in documents
        ]
        return method(documents_with_title, *arguments)

    return call


def embed_wrongly(method: Method) -> Method:
    """Stores another vector than the one of the new title."""

    def call(changes: Any, vectors: Any = None, embedder: Any = None, *, replace: bool = False) -> MetadataResult:
        wrong = {text: vector_of("x") for text in vectors or ()}
        return method(changes, wrong, embedder, replace=replace)  # type: ignore[no-any-return]

    return call


def written_back(method: Method) -> Method:
    """Reads a document, changes it, and a moment later writes it back."""

    def call(changes: Any, vectors: Any = None, embedder: Any = None, *, replace: bool = False) -> MetadataResult:
        store = method.__self__  # type: ignore[attr-defined]
        [document] = store.get(list(changes))
        if document is None:
            raise InputError("there is no such document")
        time.sleep(0.02)
        values = {**({} if replace else document.metadata), **changes[document.id]}
        store.write([Document(document.id, document.text, {k: v for k, v in values.items() if v is not None})])
        return MetadataResult(AddResult(updated=1))

    return call


class Mutant(NamedTuple):
    test: str
    method: str
    change: Change


TOO_MANY: Change = change_arguments(
    lambda store_queries: ([replace(store_query, depth=store_query.depth + 1) for store_query in store_queries],)
)
FOREIGN = KeyError("foreign")
MUTANTS = (
    Mutant("test_answers_are_sound", "search", ranking(lambda pairs: pairs[::-1])),
    Mutant("test_answers_are_sound", "search", ranking(lambda pairs: pairs[:1] * 2)),
    Mutant("test_answers_are_sound", "search", TOO_MANY),
    Mutant("test_answers_are_sound", "search", ranking(lambda pairs: [(key, float("nan")) for key, _ in pairs])),
    Mutant("test_the_same_question_has_the_same_answer", "search", differing),
    Mutant("test_many_threads_at_once", "search", differing),
    Mutant("test_odd_texts", "search", raising(FOREIGN, lambda store_queries: "\0" in (store_queries[0].text or ""))),
    Mutant(
        "test_awaits_odd_texts", "search", raising(FOREIGN, lambda store_queries: "\0" in (store_queries[0].text or ""))
    ),
    Mutant("test_sync_and_async_agree", "asearch", lambda _: empty),
    Mutant("test_works_inside_a_running_event_loop", "search", raising(FOREIGN, in_a_loop)),
    Mutant("test_info", "info", change_result(lambda info: replace(info, embedder="another"))),
    Mutant("test_words_score_as_the_formula_says", "search", ranking(lambda pairs: [(k, 2.2 * s) for k, s in pairs])),
    Mutant("test_words_score_as_the_formula_says", "search", ranking(lambda pairs: pairs[:-1])),
    Mutant("test_words_score_as_the_formula_says", "search", ranking(lambda pairs: pairs[1:])),
    Mutant("test_words_after_changes", "delete", lambda _: len),
    Mutant(
        "test_the_weight_of_words",
        "search",
        change_result(lambda answers: [replace(answer, idf=2.2) for answer in answers]),
    ),
    Mutant("test_the_weight_of_words", "search", change_scores(lambda name, score: score + (name == MATCHED))),
    Mutant(
        "test_the_weight_of_words",
        "score",
        change_result(lambda scores: [{**one, MATCHED: dict(one[WORDS])} for one in scores]),
    ),
    Mutant("test_words_after_changes", "write", forgetful),
    Mutant("test_the_nearest_are_found", "search", ranking(lambda pairs: [(key, (1 + s) / 2) for key, s in pairs])),
    Mutant("test_the_nearest_are_found", "search", ranking(lambda pairs: pairs[:-1])),
    Mutant("test_scores_of_both_lists", "search", change_scores(lambda name, score: 0.0 if name == WORDS else score)),
    Mutant(
        "test_scores_of_both_lists",
        "search",
        change_scores(lambda name, score: (1 + score) / 2 if name == NEAR else score),
    ),
    Mutant("test_scores_of_both_lists", "score", change_result(lambda scores: scores[::-1])),
    Mutant(
        "test_scores_of_what_has_none",
        "score",
        change_result(
            lambda answers: [
                {n: {k: 0.0 if math.isnan(s) else s for k, s in e.items()} for n, e in o.items()} for o in answers
            ]
        ),
    ),
    Mutant(
        "test_what_was_not_asked_for",
        "search",
        change_arguments(lambda store_queries: ([replace(x, text=x.text or "rail") for x in store_queries],)),
    ),
    Mutant(
        "test_what_was_not_asked_for", "search", raising(InputError("none"), lambda store_queries: not store_queries)
    ),
    Mutant("test_vectors_that_cannot_be_searched_for", "search", lambda _: lambda store_queries: []),
    Mutant("test_many_looks_as_one_by_one", "search", change_result(lambda answers: answers[:1])),
    Mutant(
        "test_many_looks_as_one_by_one",
        "search",
        change_arguments(lambda store_queries: (sorted(store_queries, key=lambda store_query: -store_query.depth),)),
    ),
    Mutant("test_filters_mean_what_they_mean", "search", change_arguments(drop_filters)),
    Mutant("test_filters_count_and_page", "count", change_arguments(lambda *_: ())),
    Mutant("test_filters_count_and_page", "page", change_arguments(lambda cursor, limit, _: (cursor, limit))),
    Mutant("test_filters_count_and_page", "ids", lambda ids: lambda **_: ids()),
    Mutant("test_filters_count_and_page", "documents", change_arguments(lambda *_: ())),
    Mutant("test_filters_act_before_the_cut", "search", filtered_late),
    Mutant("test_documents_by_key_and_by_id", "fetch", change_arguments(lambda keys: (sorted(set(keys)),))),
    Mutant(
        "test_documents_by_key_and_by_id",
        "get",
        change_result(lambda documents: [document for document in documents if document]),
    ),
    Mutant("test_documents_by_key_and_by_id", "keys", change_result(lambda keys_by_id: keys_by_id | {"nobody": 0})),
    Mutant("test_pages_make_up_the_whole", "page", change_result(lambda page: Page(page.documents[1:], page.next))),
    Mutant("test_pages_make_up_the_whole", "ids", change_result(lambda ids: ids[::-1])),
    Mutant("test_pages_make_up_the_whole", "count", change_result(lambda count: count + 1)),
    Mutant("test_a_page_that_nobody_told_of", "page", raising(FOREIGN, lambda cursor, *_: cursor == "nonsense")),
    Mutant("test_frequencies", "frequencies", change_result(lambda counts: [count + 1 for count in counts])),
    Mutant("test_vectors_can_be_read", "vectors", change_result(lambda rows: rows[:-1])),
    Mutant("test_vectors_can_be_read", "vectors", change_result(lambda rows: rows * 0.9)),
    Mutant("test_vectors_can_be_read", "vectors", change_result(lambda rows: rows[::-1])),
    Mutant("test_an_empty_store", "ids", lambda _: lambda: ["x"]),
    Mutant("test_what_is_written_is_found", "write", change_result(lambda _: AddResult())),
    Mutant("test_what_is_written_is_found", "delete", change_result(lambda _: 1)),
    Mutant("test_what_is_written_is_found", "ids", lambda method: lambda **_: method()),
    Mutant(
        "test_odd_documents_come_back",
        "get",
        change_result(lambda documents: [document and Document(document.id, document.text) for document in documents]),
    ),
    Mutant(
        "test_odd_documents_come_back",
        "write",
        change_arguments(
            lambda docs, *arguments: ([Document(d.id, d.text.replace("\0", ""), d.metadata) for d in docs], *arguments)
        ),
    ),
    Mutant("test_bad_documents_are_refused", "write", lambda _: lambda *__: AddResult()),
    Mutant("test_bad_vectors_are_refused", "write", lambda method: lambda docs, rows=None, name=None: method(docs)),
    Mutant(
        "test_documents_with_and_without_a_vector_in_one_write",
        "write",
        lambda method: lambda docs, rows=None, name=None, **_: method(docs, rows, name),
    ),
    Mutant("test_documents_with_and_without_a_vector_in_one_write", "bare", change_result(lambda rows: rows[:-1])),
    Mutant("test_vectors_come_and_go", "search", ranking(lambda pairs: [])),
    Mutant("test_vectors_follow", "bare", change_result(lambda rows: rows[:-1])),
    Mutant("test_vectors_follow", "statistics", change_result(lambda statistics: replace(statistics, vectors_due=0))),
    Mutant("test_statistics", "statistics", change_result(lambda statistics: replace(statistics, sequence=1))),
    Mutant("test_statistics", "annotate", lambda method: lambda **notes: method(**dict.fromkeys(notes, "x"))),
    Mutant("test_writers_at_once", "write", forgetful),
    Mutant("test_a_second_store_sees_it", "get", change_result(lambda documents: [None] * len(documents))),
    Mutant("test_a_second_store_sees_it", "count", cache),
    Mutant("test_info", "info", change_result(lambda info: replace(info, identity="the same"))),
    Mutant("test_scores_of_both_lists", "ascore", lambda _: score_nothing),
    Mutant("test_many_looks_as_one_by_one", "pinned", lambda _: lambda: None),
    Mutant("test_filters_act_before_the_cut", "search", ranking(lambda pairs: [(key, 0.5 * s) for key, s in pairs])),
    Mutant("test_vectors_can_be_read", "vectors", raising(FOREIGN, lambda *args: 1500 in args)),
    Mutant("test_an_empty_store", "vectors", raising(FOREIGN)),
    Mutant(
        "test_what_is_written_is_found",
        "fetch",
        change_result(lambda documents: [document for document in documents if document]),
    ),
    Mutant("test_what_is_written_is_found", "afetch", lambda _: fetch_nothing),
    Mutant(
        "test_what_is_written_is_found", "ids", lambda method: lambda source=None, filters=None: method(source=source)
    ),
    Mutant(
        "test_what_is_written_is_found",
        "delete",
        lambda method: lambda ids=None, filters=None: method(ids or ["1", "2"], filters),
    ),
    Mutant(
        "test_what_is_written_is_found",
        "write",
        lambda method: lambda docs, rows, name: method(docs, 0 * rows + 1, name),
    ),
    Mutant("test_many_documents", "get", change_arguments(lambda ids: (ids[:1000],))),
    Mutant("test_many_documents", "search", ranking(lambda pairs: pairs[:1000])),
    Mutant("test_many_documents", "delete", change_arguments(lambda ids: (ids[:1000],))),
    Mutant(
        "test_odd_documents_come_back",
        "write",
        change_arguments(
            lambda docs, *arguments: ([Document(d.id.strip(), d.text, d.metadata) for d in docs], *arguments)
        ),
    ),
    Mutant(
        "test_identical_documents_are_written_if_that_is_asked_for",
        "write",
        lambda method: lambda docs, *arguments, **_: method(docs, *arguments),
    ),
    Mutant("test_vectors_come_and_go", "unchanged", lambda _: lambda docs: [True] * len(docs)),
    Mutant("test_metadata_is_changed_in_the_store", "set_metadata", embed_wrongly),
    Mutant("test_writers_of_every_kind_leave_what_some_order_leaves", "set_metadata", written_back),
    Mutant("test_sources_are_compared_as_stored", "ids", nul_cut_off),
    Mutant("test_reserved_metadata_has_its_type", "write", reserved_as_text),
    Mutant("test_a_view_answers_like_a_store_with_only_its_documents", "in_view", without_a_wall),
    Mutant("test_closed", "close", raising(FOREIGN)),
    Mutant("test_closed", "search", raising(FOREIGN)),
    Mutant("test_dropped", "drop", lambda _: lambda: None),
    Mutant("test_keys_that_documents_have", "metadata_keys", lambda _: lambda: frozenset({"another key"})),
    Mutant("test_what_cannot_be_asked", "ids", raising(FOREIGN, lambda *args: "\0" in args)),
)


def suite_of(mutant: Mutant, folder: Path) -> OrderedStoreConformance:
    """The suite, over embedded stores of which one method is changed."""

    def change_store(store: Store) -> Store:
        if mutant.method == "info":
            info = mutant.change(LocalStore.info.fget)  # type: ignore[attr-defined]
            store.__class__ = type("Changed", (LocalStore,), {"info": property(info)})
        else:
            setattr(store, mutant.method, mutant.change(getattr(store, mutant.method)))
        return store

    class Suite(TestLocalStore):
        trees = 20

        def make_store(self) -> Store:
            return change_store(super().make_store())

        def again(self, store: Store) -> Store:
            return change_store(super().again(store))

    Suite.folder = folder
    return Suite()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.test[5:]}-{mutant.method}")
def test_what_breaks_a_promise_fails_the_test_of_that_promise(mutant: Mutant, tmp_path: Path) -> None:
    suite = suite_of(mutant, tmp_path)
    with pytest.raises(AssertionError) as error_info:
        getattr(suite, mutant.test)()
    assert len(str(error_info.value)) > 20  # it tells


def test_every_test_of_the_suite_can_fail() -> None:
    assert {name for name in dir(OrderedStoreConformance) if name.startswith("test_")} == {
        mutant.test for mutant in MUTANTS
    }
