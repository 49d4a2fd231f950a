"""The promises of a store that is written to: what comes back, what is refused, and what vectors do."""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import SkipTest

import numpy as np

from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, vector_of, vectors_of
from pointsman.evaluation.conformance.stores.store_subject import StoreSubject
from pointsman.evaluation.conformance.suite_samples import ODD_TEXTS, answering, refused
from pointsman.store.store_values import NEAR, Capability, Scale, Statistics, StoreQuery
from pointsman.text import repair
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.filters import Equals
from pointsman.values.metadata import RESERVED
from pointsman.values.types import AddResult, Document


class StoreWriting(StoreSubject):
    """What every write to an empty store promises."""

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def test_an_empty_store(self) -> None:
        """Nothing is found, and nothing fails."""
        store = self.make_store()
        with answering("asking an empty store"):
            answer = store.search([self._store_query(store, "signal", 5)])[0]
            contents = (store.count(), store.ids(), store.page().documents, store.get(["x"]), dict(store.keys(["x"])))
            sample = store.vectors(sample=5) if store.info.can(Capability.VECTORS) else ()
        assert not any(answer.rankings.values()), f"it finds {answer.rankings}"
        assert contents == (0, [], [], [None], {}), f"it is not empty: {contents}"
        assert len(sample) == 0, f"a sample of it has {len(sample)} vectors"

    def test_what_is_written_is_found(self) -> None:
        """Immediately: added, changed and deleted documents; identical stored ones are skipped."""
        store = self._empty()
        first, second = Document("1", "signal lamp", {"n": 1}), Document("2", "steam", {"n": 2, "source": "чертёж 7"})
        with answering("writing"):
            first_result, second_result = self._write(store, [first, second]), self._write(store, [first, second])
            assert (first_result, second_result) == (AddResult(added=2), AddResult(unchanged=2)), (
                f"{first_result}, then {second_result}"
            )
            assert store.ids(source="чертёж 7") == ["2"], f"of that source: {store.ids(source='чертёж 7')}"
            assert self._words(store, "lamp") == ["1"], "a document is not found after it was added"
            first_changed = Document("1", "signal bell", {"n": 3})
            assert store.unchanged([first, first_changed, Document("3", "x")]) in ([True, False, False], [False] * 3)
            third = Document("3", "lamp bell", {"sources": ["чертёж 7"]})
            result = self._write(store, [first_changed, second, third])
            assert result == AddResult(added=1, updated=1, unchanged=1), f"adding 1, changing 1: {result}"
            assert store.get(["1", "3"]) == [first_changed, third], "they are not as written"
            assert store.ids(source="чертёж 7") == ["2"], "a list that has a source in it is not that source"
            assert self._words(store, "lamp") == ["3"], "a changed document is found by its former words"
            assert self._words(store, "bell") == ["1", "3"], "a changed document is not found by its new words"
            if NEAR in store.info.scales:
                vector_ranking = store.search([StoreQuery(None, vector_of("signal bell"), 1)])[0].rankings[NEAR]
                assert self._ids(store, [vector_ranking[0][0]]) == ["1"], "a changed document has its former vector"
                result = store.write([second], vector_of("whistle")[None], EMBEDDER)
                vector_ranking = store.search([StoreQuery(None, vector_of("whistle"), 1)])[0].rankings[NEAR]
                assert self._ids(store, [vector_ranking[0][0]]) == ["2"], (
                    "the same document with another vector keeps its former"
                )
                assert result == AddResult(updated=1), f"giving a document another vector is {result}"
            documents = store.search([self._store_query(store, "bell", 5)])[0].documents.values()
            assert [*documents] == store.get([document.id for document in documents]), (
                "a search brings what was stored before"
            )
            keys = list(store.keys(["1", "3"]).values())
            counts = (store.delete(["1", "nobody"]), store.delete([]), store.delete(), store.delete(["1"]))
            assert counts == (1, 0, 0, 0), f"deleting one tells {counts}"
            for documents_by_key in (store.fetch(keys), wait_for(store.afetch, keys)):
                assert documents_by_key == [None, third], (
                    f"of a deleted and another document {documents_by_key} are fetched"
                )
            if NEAR in store.info.scales:
                vector_ranking = store.search([StoreQuery(None, vector_of("signal bell"), 5)])[0].rankings[NEAR]
                assert sorted(self._ids(store, [key for key, _ in vector_ranking])) == ["2", "3"], (
                    "what was deleted is near"
                )
            assert (self._words(store, "bell"), store.count()) == (["3"], 2), "what was deleted is found"
            if store.info.can(Capability.FILTERS):
                assert store.ids(source="чертёж 7", filters=Equals("n", 7)) == [], "a source's ids ignore the filter"
                assert store.delete(filters=Equals("n", 7)) == 0, "deleting by a filter that nothing meets"
                assert store.delete(["3"], Equals("n", 2)) == 0, "ids and a filter delete what meets both"
                assert store.delete(filters=Equals("n", 2)) == 1, "deleting by a filter does not tell how many"
                assert store.ids() == ["3"], f"after deleting by a filter there are {store.ids()}"
            assert self._write(store, []) == AddResult(), "writing nothing does something"

    def test_many_documents(self) -> None:
        """More than a server returns, takes or finds unless it is asked for more; none is cut off."""
        store, documents = self._empty(), [Document(f"n{n}", f"signal {n}", {"n": n}) for n in range(1_100)]
        ids = [document.id for document in documents]
        with answering("writing and reading 1,100 documents"):
            result, second_result = self._write(store, documents), self._write(store, documents)
            keys = store.keys(ids)
            lists = store.search([self._store_query(store, "signal", len(ids))])[0].rankings
            counts = {name: len({key for key, _ in ranking}) for name, ranking in lists.items()}
            assert (result, second_result) == (AddResult(added=len(ids)), AddResult(unchanged=len(ids))), (
                f"{result}, {second_result}"
            )
            assert store.count() == len(ids), f"{store.count()} are counted"
            assert sorted(store.ids()) == sorted(ids), f"there are the ids of {len(store.ids())}"
            assert sorted(document.id for document in store.documents()) == sorted(ids), "documents are missing"
            assert store.get(ids) == documents, "not all can be had by id"
            assert len(keys) == len(ids), f"{len(keys)} have a key"
            assert store.fetch([keys[id_] for id_ in ids]) == documents, "not all can be had by key"
            assert set(counts.values()) == {len(ids)}, f"all have the word and a vector, and the lists have {counts}"
            if store.info.can(Capability.VECTORS):
                assert len(store.vectors([keys[id_] for id_ in ids])) == len(ids), "not all vectors can be read"
            assert store.delete(ids[50:]) == len(ids) - 50, "deleting many tells another number"
            assert sorted(store.ids()) == sorted(ids[:50]), f"then there are the ids of {len(store.ids())}"

    def test_odd_documents_come_back(self) -> None:
        """Unchanged, whatever their texts, ids and metadata; lone surrogates as U+FFFD."""
        store = self._empty()
        ids = [f"{name} /?#&%+\\'\"\u4fe1\u53f7" for name in ODD_TEXTS]
        texts = [*ODD_TEXTS.values(), "signal " * 150_000, "", "x", "x", "y"]
        ids += ["1 MB", "_id", "nul\0id", "\x01", "ж" * 512]
        similar_ids = [
            "a",
            "A",
            " a",
            "a ",
            "é",
            "e\u0301",
            "01",
            "1",
            "1.0",
        ]  # different ids, whatever a database thinks
        ids += similar_ids
        texts += similar_ids
        metadata: dict[str, Any] = {
            "a": [1, 2.5, None, True, {"б": [], "": {"c": "\ud800"}}],
            "": "x" * 1000,
            "title": "信号 \0",
            "nul\0": ["\0", -0.0, 10**30, 1e-300],
            "long": "ё" * 40_000,
        }
        documents = [Document(id_, text, metadata) for id_, text in zip(ids, texts, strict=True)]
        expected = [
            Document(document.id, repair(document.text), json.loads(repair(json.dumps(metadata, ensure_ascii=False))))
            for document in documents
        ]
        with answering("writing odd documents"):
            self._write(store, documents)
            actual = store.get(ids)
            count, documents_of_pages = store.count(), self._pages(store, 4)
            deleted = store.delete(["nul\0id", ids[0]])
        for first, second in zip(actual, expected, strict=True):
            assert first == second, f"{second.id!r:.80} came back as {first!r:.300}, not as {second!r:.300}"
        assert count == len(ids), f"{len(ids)} documents were written, {count} are there"
        assert sorted(document.id for document in documents_of_pages) == sorted(ids), "pages lack some of them"
        assert deleted == 2, f"2 odd ids were deleted, {deleted} by its own count"

    def test_sources_are_compared_as_stored(self) -> None:
        """A source with a NUL, one that looks like a list or a date, a long one: each names its own document only."""
        store = self._empty()
        sources: tuple[str, ...] = (
            "manual.md",
            "manual.md\0",
            "manual.md\0b",
            "\0",
            '["manual.md"]',
            "MANUAL.MD",
            "z" * 40_000,
        )
        sources += ("2024-01-15T01:00:00+03:00", "2024-01-14T22:00:00+00:00", "$.source", "manual.md ", "5")
        documents = [Document(f"{number}", "signal", {"source": source}) for number, source in enumerate(sources)]
        documents.append(Document("none", "signal", {"n": 5, "sources": ["manual.md"]}))
        with answering("asking for the documents of a source"):
            self._write(store, documents)
            ids = [store.ids(source=source) for source in sources]
        assert ids == [[f"{number}"] for number in range(len(sources))], f"by source there are {ids}"

    def test_reserved_metadata_has_its_type(self) -> None:
        """What Pointsman reads itself is refused in another type, and nothing of the batch is written."""
        store, good = self._empty(), Document("1", "signal", {"source": "a.md", "line": 1, "headings": ["A"]})
        self._write(store, [good])
        strange: tuple[Any, ...] = (True, ["a", 1], {"a": 1}, -1.5, 2**60)
        for key in RESERVED:
            for value in strange:
                metadata = {"source": "a.md", key: value}
                refused(f"{metadata!r} as metadata", partial(self._write, store, [Document("2", "lamp", metadata)]))
                refused(f"{metadata!r} as new metadata", partial(store.set_metadata, {"1": metadata}))
        assert store.get(["1", "2"]) == [good, None], "something refused was written"
        document = Document(
            "3", "lamp", {"start": "2024-01-01", "end": "2024-01-02", "page": "iv", "parent": 7, "title": None}
        )
        self._write(store, [document])
        assert store.get(["3"]) == [document], "without a source such keys are the user's own"

    def test_bad_documents_are_refused(self) -> None:
        """And no document of the same call is written."""
        store, good = self._empty(), Document("good", "signal")
        bad = [
            *(Document("x" * 1025, "x"), Document("\ud800", "x"), Document("x", "x", {"a": math.nan})),
            *(Document("x", "x", {"a": {1}}), Document("x", "x", {"a": math.inf}), Document("x", "x", {1: object()})),  # type: ignore[dict-item]
        ]
        for document in bad:
            refused(f"the document {document!r:.80}", lambda document=document: self._write(store, [good, document]))  # type: ignore[misc]
        with answering("counting"):
            assert store.count() == 0, f"{store.ids()} was written together with a bad document"

    def test_bad_vectors_are_refused(self) -> None:
        """Wrong number, length or embedder, or a zero vector; and no document of the same call is written."""
        store, documents = self._empty(), [Document("1", "signal"), Document("2", "lamp")]
        if NEAR not in store.info.scales:
            raise SkipTest("it has no vectors")
        rows = vectors_of(documents)
        self._write(store, [Document("0", "steam")])
        bad: dict[str, tuple[Any, str]] = {
            "of too few rows": (rows[:1], EMBEDDER),
            "of another length": (rows[:, :-1], EMBEDDER),
            "that is all zeros": (rows * 0, EMBEDDER),
            "of no numbers": (rows * np.nan, EMBEDDER),
            "of no shape": (rows[0], EMBEDDER),
            "of another embedder": (rows, "another"),
        }
        for problem, (vectors, embedder) in bad.items():
            refused(f"a vector {problem}", lambda v=vectors, e=embedder: store.write(documents, v, e))  # type: ignore[misc]
        with answering("writing vectors that are not of length 1"):
            assert store.count() == 1, f"{store.ids()} was written with a bad vector"
            store.write(documents, rows * 7, EMBEDDER)
            ranking = store.search([StoreQuery(None, vector_of("signal"), 1)])[0].rankings[NEAR]
        score = ranking[0][1]
        assert score is not None, "a list on the scale COSINE has scores"
        assert abs(score - 1) < self.cosine_tolerance or store.info.scales[NEAR] is not Scale.COSINE, (
            f"a vector is not brought to length 1: its own cosine is {score}"
        )

    def test_statistics(self) -> None:
        """The sequence number grows only with writes; notes are kept."""
        store, document = self._empty(), Document("1", "signal")
        with answering("reading statistics"):
            numbers = []
            for change in (
                lambda: None,
                lambda: self._write(store, [document]),
                lambda: self._write(store, [document]),
                lambda: self._write(store, [Document("1", "lamp")]),
                lambda: store.annotate(spread="0.8 0.1", other="ё\0"),
                lambda: store.delete(["nobody"]),
                lambda: store.delete(["1"]),
            ):
                change()
                statistics = store.statistics()
                assert isinstance(statistics, Statistics), f"statistics are Statistics, not {type(statistics).__name__}"
                assert statistics.documents in {None, store.count()}, (
                    f"{statistics.documents} documents, {store.count()} by count"
                )
                numbers.append(statistics.sequence)
            store.annotate(other="new")
            notes = store.statistics().notes
        rises = [following > earlier for earlier, following in pairwise(numbers)]
        assert rises == [True, False, True, False, False, True], f"sequence numbers: {numbers}"
        assert notes in ({"spread": "0.8 0.1", "other": "new"}, {}), f"the notes are {notes}"
