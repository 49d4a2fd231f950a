"""The suite for stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.evaluation.conformance.stores.store_reading import StoreReading
from pointsman.evaluation.conformance.stores.store_samples import SAMPLE_WORDS
from pointsman.evaluation.conformance.stores.store_writing import StoreWriting
from pointsman.evaluation.conformance.suite_samples import answering, at_once, refused
from pointsman.store.store_values import NEAR, WORDS, Capability, Scale
from pointsman.tools.errors import PointsmanError, StoreError
from pointsman.values.filters import Equals, Or
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class StoreConformance(StoreReading, StoreWriting):
    """For anything that implements `pointsman.store.base_store.Store`, such as subclasses of `Store`.

    Promised: both lists of every look in one call, with scores as their `Scale` says; filters as defined by
    `Filter.matches`, before the cut; documents are returned as written, whatever their content; a write is visible to
    the next search; sync and async, from any thread; only Pointsman errors are raised. Features for which a store lacks
    the `Capability` are not tested.

    Attributes:
        tolerance: the allowed relative difference of a BM25 score from the exact formula.
        drift: the same after documents were changed or deleted; None: frequencies still count deleted documents for a
            while, so only the documents in the lists are compared.
        cosine_tolerance: the allowed difference of a cosine from NumPy's.
        trees: the number of random filters.
    """

    # ── other writers and views, and the end ──────────────────────────────────────────────────────────────────────────

    def test_writers_at_once(self) -> None:
        """Four threads write, change and delete; all changes are there, and the lists are correct."""
        store = self._empty()
        batches = [
            [Document(f"{writer} {n}", f"signal {SAMPLE_WORDS[n]} {SAMPLE_WORDS[writer]}") for n in range(12)]
            for writer in range(4)
        ]

        def work(writer: int) -> None:
            for start in range(0, 12, 4):
                self._write(store, batches[writer][start : start + 4])
                self._write(store, [Document("shared", f"signal {SAMPLE_WORDS[writer]} {start}")])
                store.delete([batches[writer][start].id])

        with answering("writing from four threads"):
            at_once([lambda writer=writer: work(writer) for writer in range(4)])  # type: ignore[misc]
            documents = self._pages(store, 100)
        expected = {document.id for batch in batches for number, document in enumerate(batch) if number % 4} | {
            "shared"
        }
        assert {document.id for document in documents} == expected, "documents are missing, or came back"
        assert len(documents) == len(expected) == store.count(), f"{store.count()} documents, {len(expected)} were left"
        if store.info.scales.get(WORDS) is Scale.BM25:
            self._like_the_formula(store, documents, self.drift)

    def test_a_second_store_sees_it(self) -> None:
        """Writes by one store are found by another over the same dataset, and vice versa."""
        store, first, second = self._empty(), Document("1", "signal"), Document("2", "signal lamp")
        early_store = self.again(store)
        assert early_store.statistics().documents in {0, None}, "opened again, an empty store has documents"
        self._write(store, [first])
        if NEAR in store.info.scales and store.info.can(Capability.VECTORS):
            rows = early_store.vectors(list(early_store.keys(["1"]).values()))
            assert len(rows) == 1, "the first vector of all, written by another, cannot be read"
        early_store.close()
        second_store = self.again(store)
        with answering("writing here and there"):
            assert second_store.info.identity == store.info.identity, "the same dataset has another identity"
            assert second_store.get(["1"]) == [first], "what was written before it was opened is not there"
            counts = [second_store.count()]
            self._write(store, [Document("0", "lamp")])
            counts.append(second_store.count())
            assert counts == [1, 2], f"before and after another has written, it counts {counts}"
            assert self._words(second_store, "lamp") == ["0"], "what is written after it was opened is not found"
            embedder_and_dimensions = second_store.info.embedder, second_store.info.dimensions
            assert embedder_and_dimensions == (store.info.embedder, store.info.dimensions), (
                f"opened again, its vectors are of {embedder_and_dimensions}"
            )
            sequence_before = second_store.statistics().sequence
            assert sequence_before == store.statistics().sequence, "opened again, it has another sequence number"
            store.close()  # only then can others write to an embedded store
            self._write(second_store, [second])
            second_store.annotate(note="x")
            assert second_store.statistics().sequence > sequence_before, "its sequence number stays"
            notes = second_store.statistics().notes
            second_store.close()
            store = self.again(store)
            assert store.statistics().notes == notes, f"its notes were {notes}, now {store.statistics().notes}"
            assert self._words(store, "signal") == ["1", "2"], "what the other wrote is not found"
            assert store.delete(["1"]) == 1, "what the other holds cannot be deleted"
            assert self._words(store, "signal") == ["2"], "what was deleted is found"

    def test_closed(self) -> None:
        """Closing twice does no harm; a later call works, or raises a `StoreError`."""
        store = self._empty()
        with answering("closing"):
            self._write(store, [Document("1", "signal")])
            store.close()
            store.close()
        with answering("a search of a closed store", StoreError):
            assert len(store.search([self._store_query(store, "signal", 5)])) == 1, "a look has an answer"

    def test_dropped(self) -> None:
        """It is gone, and later calls raise an error that says so."""
        store = self._empty()
        with answering("dropping"):
            self._write(store, [Document("1", "signal")])
            store.drop()
        calls: Mapping[str, Callable[[], object]] = {
            "search": lambda: store.search([self._store_query(store, "signal", 5)]),
            "get": lambda: store.get(["1"]),
            "write": lambda: self._write(store, [Document("2", "x")]),
        }
        for name, call in calls.items():
            refused(f"{name} after drop", call, StoreError)

    def test_what_cannot_be_asked(self) -> None:
        """Raises a Pointsman error, or has no effect."""
        store = self.make()
        calls: Mapping[str, Callable[[], object]] = {
            "an id with a surrogate": lambda: store.get(["\ud800"]),
            "deleting a surrogate": lambda: store.delete(["\ud800"]),
            "keys of a surrogate": lambda: store.keys(["\ud800"]),
            "a very long id": lambda: store.get(["x" * 100_000]),
            "a source with a surrogate": lambda: store.ids(source="\ud800"),
            "a source with a NUL": lambda: store.ids(source="\0"),
            "a depth of 0": lambda: store.search([self._store_query(store, "signal", 0)]),
            "1,000 conditions": lambda: store.count(Or(tuple(Equals(f"k{n}", n) for n in range(1_000)))),
        }
        for name, call in calls.items():
            with answering(name, PointsmanError):
                call()
        with answering("counting"):
            assert store.count() == len(self.documents()), "documents were lost"
