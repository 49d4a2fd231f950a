"""The public suite for stores, and what of a store's capabilities only our own stores have; to copy from."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import numpy as np

from pointsman.evaluation.conformance import StoreConformance
from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, bm25, vector_of, vectors_of
from pointsman.evaluation.conformance.suite_samples import answering, refused
from pointsman.store.store_values import MATCHED, NEAR, WORDS, WORDS_FIRST, Capability, Scale, StoreQuery
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.filters import Equals, Not
from pointsman.values.types import AddResult, Document
from pointsman.values.views import ACCESS, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.store.store_values import Scores


class OwnStoreConformance(StoreConformance):
    """For stores that score given documents, count words, take vectors later, change metadata, and have views."""

    def test_a_view_answers_like_a_store_with_only_its_documents(self) -> None:
        """Scores, counts, samples and pages of a view are equal to the byte whatever else is stored (``VIEWS``)."""
        store_with_all, store_without = self._empty(), self._empty()
        if not store_with_all.info.can(Capability.VIEWS):
            raise SkipTest(f"a {store_with_all.info.kind} store has no 'views' capability")
        documents = [replace(document, id=f"v{n}") for n, document in enumerate(self.documents()[:60])]
        documents_with_access = [
            replace(document, metadata={**document.metadata, ACCESS: {"allow": [f"group:{number % 3}"]}})
            for number, document in enumerate(documents)
        ]
        for store, size in ((store_with_all, 3), (store_without, 1)):
            for start in range(0, len(documents_with_access), 12):
                self._write(
                    store,
                    [document for n, document in enumerate(documents_with_access[start : start + 12]) if n % 3 < size],
                )
            store.delete(["v0", "v1"])
            store.set_metadata({"v3": {"_access": {"allow": ["group:7"]}}, "v6": {"year": 1999}})
        view = View.of(["group:0"])
        expected, actual = (
            self._contents(store.in_view(view, lambda _: {})) for store in (store_without, store_with_all)
        )
        for name, value in expected.items():
            complaint = f"{actual[name]!r:.300} not {value!r:.300}"
            assert actual[name] == value, f"{name} of a view depend on what is hidden: {complaint}"
        assert "v3" not in expected["ids"], "what a view may no longer see is in it"
        assert "v6" in expected["ids"], "a change of other metadata hides a document"

    def _contents(self, store: Store) -> dict[str, Any]:
        """Return what a store shows of its documents, without keys, which may differ."""
        queries = [self._store_query(store, text, 20) for text in self.queries()]
        queries += [replace(query, filters=Not(Equals("year", 1999))) for query in queries]
        keys = list(store.keys([f"v{n}" for n in range(60)]).values())
        names = dict(zip(keys, self._ids(store, keys), strict=True))

        def by_id(scores: Mapping[str, Any]) -> dict[str, Any]:
            pairs = {name: items.items() if isinstance(items, dict) else items for name, items in scores.items()}
            return {name: [(names[key], repr(score)) for key, score in items] for name, items in pairs.items()}

        def sorted_by_id(scores: Scores) -> dict[str, Any]:
            return {name: sorted(pairs) for name, pairs in by_id(scores).items()}

        lists = store.search(queries)
        contents: dict[str, Any] = {
            "rankings": [by_id(result.rankings) for result in lists],
            "scores": [sorted_by_id(result.scores) for result in lists],
            "idf": [repr(result.idf) for result in lists],
            "ids": store.ids(),
            "documents": list(store.documents()),
            "sample": store.sample(7),
            "page": store.page(None, 5),
            "next page": store.page("5", 5),
            "counts": (store.count(), store.count(Not(Equals("year", 1999))), store.statistics().documents),
        }
        if store.info.can(Capability.SCORES_OTHERS):
            contents["given documents"] = [
                sorted_by_id(scores) for scores in store.score(queries, [keys] * len(queries))
            ]
        if store.info.can(Capability.TERMS):
            contents["frequencies"] = store.frequencies(["signal", "the lamp", "信号"])
        if store.info.can(Capability.VECTORS):
            contents["vectors"] = [store.vectors(keys).tolist(), store.vectors(sample=9).tolist()]
        return contents

    def test_the_weight_of_words(self) -> None:
        """The idf of a look's words is that of the store's documents, and each is told how much of it is matched."""
        documents, store = self.documents(), self.make()
        self._scale(store, WORDS, Scale.BM25)
        for query in (*self.queries(), "signal signal lamp xyzzyq"):
            [answer] = store.search([StoreQuery(query, None, 10)])
            if answer.idf is None or not answer.rankings.get(WORDS):
                continue
            tokens = [set(DEFAULT_ANALYZER.tokens(document.searchable)) for document in documents]
            holding = {
                token: sum(token in tokens_of_document for tokens_of_document in tokens)
                for token in DEFAULT_ANALYZER.query_tokens(query)
            }
            weights = {
                token: count * math.log(1 + (len(documents) - holding[token] + 0.5) / (holding[token] + 0.5))
                for token, count in Counter(DEFAULT_ANALYZER.query_tokens(query)).items()
            }
            exact = sum(weights.values())
            assert math.isclose(answer.idf, exact, rel_tol=1e-6), f"{query!r}: idf {answer.idf}, not {exact}"
            tokens_by_id = dict(zip([document.id for document in documents], tokens, strict=True))
            of_others = list(store.keys([document.id for document in documents[:5]]).values())
            scores_by_call = {"search": ([key for key, _ in answer.rankings[WORDS]], answer.scores)}
            if store.info.can(Capability.SCORES_OTHERS):
                scores_by_call["score"] = of_others, store.score([StoreQuery(query, None, 10)], [of_others])[0]
            for call, (keys, scores) in scores_by_call.items():
                assert MATCHED in scores, f"{call} returns no scores for {MATCHED!r}, which goes with `Lists.idf`"
                for key, id_ in zip(keys, self._ids(store, keys), strict=True):
                    own = sum(weight for token, weight in weights.items() if token in tokens_by_id[id_])
                    matched = scores[MATCHED][key]
                    assert math.isclose(matched, own, rel_tol=1e-6, abs_tol=1e-9), (
                        f"{query!r}, {id_}: {call} says that {matched} is matched, not {own}"
                    )

    def test_scores_of_both_lists(self) -> None:
        """A search returns the scores of its union, or `score` does; 0 without a word, NaN without a vector."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.SCORES_OTHERS)
        self._scale(store, WORDS, Scale.BM25)
        self._scale(store, NEAR, Scale.COSINE)
        matrix = dict(zip([answer.id for answer in documents], vectors_of(documents), strict=True))
        store_queries = [StoreQuery(query, vector_of(query), 10) for query in self.queries()]
        with answering("searching"):
            answers = store.search(store_queries)
        unions = [list({key for ranking in answer.rankings.values() for key, _ in ranking}) for answer in answers]
        with answering("scoring"):
            scored_again, async_scores = (
                store.score(store_queries, unions),
                wait_for(store.ascore, store_queries, unions),
            )
        for store_query, answer, keys, *results in zip(
            store_queries, answers, unions, scored_again, async_scores, strict=True
        ):
            assert store_query.text is not None
            ids = dict(zip(keys, self._ids(store, keys), strict=True))
            expected = bm25(documents, store_query.text)
            for key in keys:
                right, cosine = expected.get(ids[key], 0.0), float(matrix[ids[key]] @ store_query.vector)
                for result in (*results, answer.scores):
                    assert result is answer.scores or all(key in result.get(name, ()) for name in (WORDS, NEAR)), (
                        f"{ids[key]!r} lacks a score: {result!r:.200}"
                    )
                    words_score, cosine_score = (
                        result.get(WORDS, {}).get(key, right),
                        result.get(NEAR, {}).get(key, cosine),
                    )
                    assert math.isclose(words_score, right, rel_tol=self.tolerance), (
                        f"{ids[key]!r}: {words_score}, not {right}"
                    )
                    assert abs(cosine_score - cosine) < self.cosine_tolerance, (
                        f"{ids[key]!r}: cosine {cosine_score}, not {cosine}"
                    )

    def test_scores_of_what_has_none(self) -> None:
        """0 and NaN for documents without a word or vector; documents just deleted do no harm."""
        store = self.make_store()
        self._needs(store, Capability.WRITE)
        self._needs(store, Capability.SCORES_OTHERS)
        self._scale(store, WORDS, Scale.BM25)
        self._scale(store, NEAR, Scale.COSINE)
        with_vector, bare, deleted = (
            Document(id_, text) for id_, text in (("1", "lamp"), ("2", "post"), ("3", "lamp"))
        )
        with answering("scoring"):
            self._write(store, [with_vector, deleted])
            store.write([bare])
            keys = [store.keys([scores.id])[scores.id] for scores in (with_vector, bare, deleted)]
            store.delete(["3"])
            query = StoreQuery("lamp", vector_of("lamp"), 10)
            scores = store.score([query], [keys])[0]
            empty = store.score([query, query], [[], []])
            answer = store.search([query])[0]
        assert scores[WORDS][keys[0]] > 0, f"a word's score is {scores[WORDS][keys[0]]}"
        assert scores[WORDS][keys[1]] == 0, f"without a word it scores {scores[WORDS][keys[1]]}"
        assert not scores[WORDS].get(keys[2], 0.0), f"what is gone scores {scores[WORDS]}"
        assert abs(scores[NEAR][keys[0]] - 1) < self.cosine_tolerance, f"its own cosine is {scores[NEAR][keys[0]]}"
        assert math.isnan(scores[NEAR][keys[1]]), f"without a vector it has the cosine {scores[NEAR][keys[1]]}"
        assert math.isnan(scores[NEAR].get(keys[2], math.nan)), f"what is gone has a cosine: {scores[NEAR]}"
        assert [
            {name: dict(scores) for name, scores in scores_of_look.items() if scores} for scores_of_look in empty
        ] == [{}, {}], f"{empty}"
        assert [key for key, _ in answer.rankings[WORDS]] == [keys[0]], f"'lamp' finds {answer.rankings}"
        assert [key for key, _ in answer.rankings[NEAR]] == [keys[0]], f"its vector finds {answer.rankings}"

    def test_frequencies(self) -> None:
        """How many documents contain a word; for several tokens, the rarest."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.TERMS)
        words = ("signal", "信号灯", "Паровозы", "signal nobodyhasthis", "", "?!", "\ud800", "the")
        tokens = [set(DEFAULT_ANALYZER.tokens(document.searchable)) for document in documents]
        with answering("asking for frequencies"):
            counts, empty = store.frequencies(words), store.frequencies([])
        for word, count in zip(words, counts, strict=True):
            word_tokens = DEFAULT_ANALYZER.query_tokens(word)
            right = min((sum(token in words_of for words_of in tokens) for token in word_tokens), default=0)
            assert count == right, f"{word!r} is in {right} documents, not in {count}"
        assert empty == [], f"no words have no frequencies, not {empty}"

    def test_identical_documents_are_written_if_that_is_asked_for(self) -> None:
        """So that the time of a write does not tell what is stored; vectors too."""
        store, documents = self._empty(), [Document("1", "signal lamp")]
        vectors = (vectors_of(documents), EMBEDDER) if NEAR in store.info.scales else ()
        with answering("writing"):
            store.write(documents, *vectors)
            sequence = store.statistics().sequence
            result = store.write(documents, *vectors, skip_identical=False)
            assert result == AddResult(updated=1), f"writing it again: {result}"
            assert store.statistics().sequence > sequence, "nothing was written"
            assert store.get(["1"]) == documents, "it is not as written"
            assert store.ids() == ["1"], f"it is there more than once: {store.ids()}"

    def test_vectors_come_and_go(self) -> None:
        """A document written without a vector loses the one it had; one written with a vector gets it."""
        store, signal = self._empty(), Document("1", "signal")
        if NEAR not in store.info.scales:
            raise SkipTest("it has no vectors")
        if Capability.SCORES_OTHERS not in store.info.capabilities:
            raise SkipTest("every document of it may need a vector")
        with answering("writing with and without a vector"):
            lengths, complete = [], []
            for document, with_vector in ((signal, False), (signal, True), (Document("1", "lamp"), False)):
                _ = self._write(store, [document]) if with_vector else store.write([document])
                lengths.append(len(store.search([StoreQuery(None, vector_of("signal"))])[0].rankings.get(NEAR, ())))
                complete += store.unchanged([document])
        assert lengths == [0, 1, 0], f"without, with and without a vector it is found {lengths} times"
        assert complete in ([False, True, False], [False] * 3), f"it is complete without a vector: {complete}"

    def test_documents_with_and_without_a_vector_in_one_write(self) -> None:
        """One write holds both; a document without a vector loses the one it had, and a bad vector refuses them all."""
        store, documents = self._empty(), [Document(str(n), f"signal {n}") for n in range(4)]
        if NEAR not in store.info.scales or Capability.LATER not in store.info.capabilities:
            raise SkipTest("every document of it may need a vector")
        rows, has_vector = vectors_of(documents), np.array([False, True, False, True])
        rows[~has_vector] = np.nan
        bad_rows = rows.copy()
        bad_rows[3] = 0
        refused(
            "a vector that is all zeros, beside documents without one",
            lambda: store.write(documents, bad_rows, EMBEDDER, has_vector=has_vector),
        )
        with answering("writing documents with and without a vector"):
            assert store.count() == 0, f"{store.ids()} was written with a bad vector"
            self._write(store, [Document("0", "steam")])
            result = store.write(documents, rows, EMBEDDER, has_vector=has_vector)
            second_result = store.write(documents, rows, EMBEDDER, has_vector=has_vector)
            bare = sorted(document.id for document in store.bare(10))
            order = store.ids()
        assert (result.added, result.updated) == (3, 1), f"of four documents, one stored before, it counts {result}"
        assert second_result.unchanged == 4, f"written again unchanged they count as {second_result}"
        assert bare == ["0", "2"], f"without a vector are {bare}, not 0 and 2"
        assert order == ["0", "1", "2", "3"], f"the order of arrival is {order}"

    def test_vectors_follow(self) -> None:
        """Documents without a vector are listed; they get one only if they have not changed meanwhile."""
        store = self._empty()
        self._needs(store, Capability.LATER)
        kept_document, changed_document, deleted_document, other_document = (
            Document(str(n), f"signal {n}") for n in range(4)
        )
        with answering("writing vectors after their documents"):
            store.write([kept_document, changed_document, deleted_document])
            self._write(store, [other_document])
            counts = [store.statistics().vectors_due]
            store.annotate(**{WORDS_FIRST: "1"})
            counts.append(store.statistics().vectors_due)
            bare, first = store.bare(10), store.bare(2)
            store.write([Document(changed_document.id, "lamp")])
            store.delete([deleted_document.id])
            result = store.write(bare, vectors_of(bare), EMBEDDER, stored_only=True)
            second_result = store.write(bare, vectors_of(bare), EMBEDDER, stored_only=True)
            documents_without_vector, statistics = store.bare(10), store.statistics()
            texts = [
                document and document.text
                for document in store.get([kept_document.id, changed_document.id, deleted_document.id])
            ]
            vector_ranking = store.search([StoreQuery(None, vector_of(kept_document.text))])[0].rankings[NEAR]
            words = store.search([StoreQuery("signal")])[0].rankings[WORDS]
        assert counts == [0, 3], f"before and after the note {counts} vectors are to come"
        assert ([d.id for d in bare], len(first)) == (["0", "1", "2"], 2), f"without a vector are {bare} and {first}"
        assert (result.added, result.updated) == (0, 1), f"of three vectors one is still wanted, not {result}"
        assert (second_result.added, second_result.updated) == (0, 0), (
            f"written again they are the same, not {second_result}"
        )
        assert [d.id for d in documents_without_vector] == [changed_document.id], (
            f"without a vector are then {documents_without_vector}"
        )
        assert statistics.vectors_due == 1, f"then {statistics.vectors_due} vectors are to come"
        assert statistics.documents == 3, f"and there are {statistics.documents} documents"
        assert texts == [kept_document.text, "lamp", None], f"the texts are {texts}"
        assert (len(vector_ranking), len(words)) == (2, 2), (
            f"{len(vector_ranking)} are found by vectors and {len(words)} by words"
        )

    def test_metadata_is_changed_in_the_store(self) -> None:
        """Values are set and removed, or all replaced; texts stay, and vectors until the searchable text changes."""
        store = self._empty()
        documents = [
            Document("1", "signal", {"a": 1, "b": [2], "title": "Rail"}),
            Document("2", "lamp", {"a": 1}),
            Document("3", "switch"),
        ]
        has_vectors = NEAR in store.info.scales
        with answering("changing metadata"):
            store.write(
                documents[:2], np.array([vector_of(d.searchable) for d in documents[:2]]), EMBEDDER
            ) if has_vectors else (store.write(documents[:2]))
            store.write(documents[2:])
            sequence_before = store.statistics().sequence
            assert self._set_metadata(store, {"1": {"a": None, "c": "信\0"}, "2": {"a": 1}}) == AddResult(0, 1, 1)
            assert store.statistics().sequence > sequence_before, "the sequence number stays"
            metadata = {"b": [2], "title": "Rail", "c": "信\0"}
            assert store.get(["1", "2"]) == [Document("1", "signal", metadata), documents[1]], "it is not as set"
            if store.info.can(Capability.FILTERS):
                assert store.ids(filters=Equals("c", "信\0")) == ["1"], "filters do not see what was set"
                assert store.ids(filters=Equals("a", 1)) == ["2"], "filters see what was removed"
            self._set_metadata(store, {"2": {"x": True, "none": None}}, replace=True)
            assert store.get(["2"]) == [Document("2", "lamp", {"x": True})], "other metadata stays"
            if has_vectors and store.info.can(Capability.VECTORS):
                result = store.set_metadata({"1": {"title": "Yard"}, "3": {}})
                assert result.texts == ("Yard\nsignal",), f"the new text to embed is told as {result.texts}"
                assert "1" in result.remaining, "a document without its new vector is not said to remain"
                assert store.get(["1"]) == [Document("1", "signal", metadata)], "it has a title without its vector"
            self._set_metadata(store, {"1": {"title": "Yard"}, "3": {"title": "Points"}})
            expected_documents = [
                Document("1", "signal", {**metadata, "title": "Yard"}),
                Document("3", "switch", {"title": "Points"}),
            ]
            assert [document for document in store.get(["1", "3"]) if document] == expected_documents, (
                "the titles are not as set"
            )
            keys = store.keys(["1", "2", "3"])
            if has_vectors and store.info.can(Capability.VECTORS):
                rows = store.vectors([keys["1"], keys["2"], keys["3"]])
                expected = np.array([vector_of("Yard\nsignal"), vector_of("lamp")])
                assert np.allclose(rows, expected, atol=1e-5), "vectors are not those of the texts"
            if WORDS in store.info.scales:
                assert self._words(store, "yard") == ["1"], "the new title is not found"
                assert self._words(store, "rail") == [], "the old title is found"
                assert self._words(store, "points") == ["3"], "the title of a document without a vector is not found"
            assert self._set_metadata(store, {}) == AddResult(), "changing nothing is something"
        for stranger in ("nobody", "\ud800"):
            changes: dict[str, dict[str, Any]] = {"2": {"x": 5}, stranger: {"x": 5}}
            refused("metadata of a document that is not there", partial(store.set_metadata, changes))
        refused("metadata that is not JSON", lambda: store.set_metadata({"2": {"x": object()}}))
        assert store.get(["2"]) == [Document("2", "lamp", {"x": True})], "a refused change was made"

    def _set_metadata(self, store: Store, changes: Mapping[str, Any], *, replace: bool = False) -> AddResult:
        """Change metadata, embedding new titles until nobody else has changed the text meanwhile."""
        vectors: dict[str, NDArray[np.float32]] = {}
        total = AddResult()
        while changes:
            result = store.set_metadata(changes, vectors, EMBEDDER if vectors else None, replace=replace)
            total += result.counts
            assert bool(result.texts) == bool(result.remaining), f"texts without documents, or the reverse: {result}"
            changes = {id_: changes[id_] for id_ in result.remaining}
            vectors |= {text: vector_of(text) for text in result.texts}
        return total
