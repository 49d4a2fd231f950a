"""The promises of a store that is read: lists, scores, filters, documents, pages and vectors."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING
from unittest import SkipTest

import numpy as np

from pointsman.evaluation.conformance.stores.store_samples import (
    DIMENSIONS,
    EMBEDDER,
    SAMPLE_WORDS,
    bm25,
    random_filter,
    vector_of,
    vectors_of,
)
from pointsman.evaluation.conformance.stores.store_subject import StoreSubject
from pointsman.evaluation.conformance.suite_samples import answering, is_name, refused
from pointsman.store.store_values import NEAR, WORDS, Capability, Scale, StoreInfo, StoreQuery
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.filters import And, Equals, Exists, Filter, Not, Or
from pointsman.values.metadata import facts
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.store.base_store import Store


class StoreReading(StoreSubject):
    """What every search and look-up of a filled store promises."""

    def test_info(self) -> None:
        """Its identity, the embedder of its vectors, and its lists."""
        store = self.make()
        info = store.info
        assert isinstance(info, StoreInfo), f"info is a StoreInfo, not {type(info).__name__}"
        assert is_name(info.kind), f"its kind is a name, not {info.kind!r}"
        assert is_name(info.identity), f"its identity is a name, not {info.identity!r}"
        assert info.identity == store.info.identity, "its identity changes"
        if NEAR in info.scales:
            assert (info.embedder, info.dimensions) == (EMBEDDER, DIMENSIONS), f"its vectors are not as written: {info}"
        assert info.scales, "it has no list"
        assert self.make_store().info.identity != info.identity, "two datasets have the same identity"

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_words_score_as_the_formula_says(self) -> None:
        """Keyword lists against BM25 over all documents, with Pointsman's tokens."""
        store = self.make()
        self._scale(store, WORDS, Scale.BM25)
        self._like_the_formula(store, self.documents(), self.tolerance)

    def test_words_after_changes(self) -> None:
        """The same over the remaining documents after a third was deleted and a third was changed."""
        store, documents = self.make_store(), list(self.documents())
        self._needs(store, Capability.WRITE)
        self._scale(store, WORDS, Scale.BM25)
        with answering("writing, changing and deleting"):
            self._write(store, documents)
            for start in (1, 2):
                changed_documents = [
                    Document(document.id, f"{document.text} steam {start}", document.metadata)
                    for document in documents[start::3]
                ]
                if start == 1:
                    self._write(store, changed_documents)
                else:
                    store.delete([document.id for document in changed_documents])
                documents[start::3] = changed_documents
        self._like_the_formula(
            store, [document for number, document in enumerate(documents) if number % 3 != 2], self.drift
        )

    def test_the_nearest_are_found(self) -> None:
        """Vector lists against NumPy."""
        store, documents = self.make(), self.documents()
        self._scale(store, NEAR, Scale.COSINE)
        matrix = vectors_of(documents)
        for query in self.queries():
            cosines = dict(
                zip([document.id for document in documents], (matrix @ vector_of(query)).tolist(), strict=True)
            )
            best = sorted(cosines.values(), reverse=True)
            for depth in (1, 10, len(documents)):
                with answering(f"searching for the vector of {query!r}"):
                    ranking = store.search([StoreQuery(None, vector_of(query), depth)])[0].rankings[NEAR]
                ids = self._ids(store, [key for key, _ in ranking])
                assert len(ids) == depth, f"{len(ids)} of the nearest {depth} came"
                for index, (id_, (_, score)) in enumerate(zip(ids, ranking, strict=True)):
                    assert score is not None, "a list on the scale COSINE has scores"
                    assert abs(score - cosines[id_]) < self.cosine_tolerance, f"{id_!r}: {score}, not {cosines[id_]}"
                    assert abs(score - best[index]) < self.cosine_tolerance, f"number {index + 1} is not the next best"

    def test_what_was_not_asked_for(self) -> None:
        """A look without a text has no keyword list, one without a vector no vector list; without both, no results."""
        store = self.make()
        queries = [
            StoreQuery(None),
            StoreQuery(""),
            StoreQuery("?!"),
            StoreQuery("nobodyhasthis"),
            StoreQuery(self.query()),
        ]
        if NEAR in store.info.scales:
            queries += [
                StoreQuery(None, vector_of("x")),
                StoreQuery("", vector_of("x")),
                StoreQuery(None, np.zeros(DIMENSIONS, np.float32)),
            ]
        with answering("searching"):
            answers = store.search(queries)
            empty = store.search([])
        assert empty == [], f"no looks have no answers, not {empty!r:.80}"
        for query, answer in zip(queries, answers, strict=True):
            self._sound_lists(store, answer, 100, f"{query}")
            words, vector_ranking = answer.rankings.get(WORDS, ()), answer.rankings.get(NEAR, ())
            wordless = (
                query.text is None or not DEFAULT_ANALYZER.query_tokens(query.text) or query.text == "nobodyhasthis"
            )
            assert bool(words) == (not wordless and WORDS in store.info.scales), f"{query} has the words {words}"
            assert bool(vector_ranking) == (query.vector is not None and bool(query.vector.any())), (
                f"{query} is near {vector_ranking}"
            )

    def test_vectors_that_cannot_be_searched_for(self) -> None:
        """Vectors of another length or with non-numbers are rejected."""
        store, vector = self.make(), vector_of("x")
        if NEAR not in store.info.scales:
            raise SkipTest("it has no vectors")
        for odd in (vector[:-1], vector[:0], np.stack([vector, vector]), vector * np.nan, vector * np.inf):
            refused(f"a vector {odd!r:.60}", lambda odd=odd: store.search([StoreQuery(None, odd)]))  # type: ignore[misc]

    def test_many_looks_as_one_by_one(self) -> None:
        """Each look has its own answer, in order."""
        store = self.make()
        queries_of_store = [self._store_query(store, query, depth) for query in self.queries() for depth in (1, 7)]
        if store.info.can(Capability.FILTERS):
            queries_of_store += [
                self._store_query(store, self.query(), 5, Equals("language", language))
                for language in ("en", "zh", "nobody")
            ]
        with answering("searching"):
            single = [store.search([query_of_store])[0] for query_of_store in queries_of_store]
            batch = store.pinned().search(queries_of_store)
            async_batch = wait_for(store.asearch, queries_of_store)
        for answers in (batch, async_batch):
            assert len(answers) == len(queries_of_store), f"{len(queries_of_store)} looks have {len(answers)} answers"
            for query_of_store, answer_alone, answer in zip(queries_of_store, single, answers, strict=True):
                self._agree(
                    answer_alone,
                    answer,
                    f"alone and among others, {query_of_store.text!r:.40} at depth {query_of_store.depth}",
                )

    # ── filters ──────────────────────────────────────────────────────────────────────────────────────────────────

    def test_filters_mean_what_they_mean(self) -> None:
        """Random trees over odd metadata: exactly the documents that `Filter.matches` lets through."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.FILTERS)
        chance = random.Random(self.trees)  # noqa: S311  (for tests, not for secrets)
        all_trees = [random_filter(chance) for _ in range(self.trees)]
        trees = [tree for tree in all_trees if self.takes(tree)]
        for tree in all_trees:
            if not self.takes(tree):
                self._refused_or_right(store, tree, documents)
        ids = dict(zip([document.id for document in documents], documents, strict=True))
        keys = {key: id_ for id_, key in store.keys(list(ids)).items()}
        has_vectors = NEAR in store.info.scales
        for start in range(0, len(trees), 50):
            batch = trees[start : start + 50]
            queries = [
                StoreQuery(
                    None if has_vectors else " ".join(SAMPLE_WORDS),
                    vector_of("x") if has_vectors else None,
                    len(documents),
                    tree,
                )
                for tree in batch
            ]
            with answering("searching with filters"):
                answers = store.search(queries)
            for tree, answer in zip(batch, answers, strict=True):
                ids_found = {keys[key] for ranking in answer.rankings.values() for key, _ in ranking}
                expected = {id_ for id_, document in ids.items() if tree.matches(document.fields)}
                assert ids_found == expected, (
                    f"{tree!s:.300} lets {sorted(expected - ids_found)[:3]} through, which were not found, "
                    f"and not {[(id_, ids[id_].metadata) for id_ in sorted(ids_found - expected)[:2]]}"
                )

    def _refused_or_right(self, store: Store, tree: Filter, documents: Sequence[Document]) -> None:
        """A filter that a store need not support is rejected with a reason, or has its usual meaning."""
        try:
            answer = store.count(tree)
        except UnmetNeedError:
            return
        expected = sum(tree.matches(document.fields) for document in documents)
        assert answer == expected, f"{tree!s:.300} is met by {expected}, not by {answer}"

    def test_filters_count_and_page(self) -> None:
        """`count`, `page`, `ids` and `documents` accept the same filters."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.FILTERS)
        chance = random.Random(1)  # noqa: S311  (for tests, not for secrets)
        for tree in filter(self.takes, [Or(()), And(()), *(random_filter(chance) for _ in range(20))]):
            expected = sorted(document.id for document in documents if tree.matches(document.fields))
            with answering(f"counting and paging with {tree!s:.300}"):
                count, pages = store.count(tree), self._pages(store, 40, tree)
                ids, documents_by_page = store.ids(filters=tree), list(store.documents(tree))
            assert count == len(expected), f"{tree!s:.300} is met by {len(expected)}, not by {count}"
            assert sorted(document.id for document in pages) == expected, f"{tree!s:.300}: pages have others"
            assert ids == [document.id for document in pages], f"{tree!s:.300}: the ids are not those of the pages"
            assert documents_by_page == pages, f"{tree!s:.300}: the documents are not those of the pages"

    def test_keys_that_documents_have(self) -> None:
        """`metadata_keys`, if they are at hand, and a page of one document tell whether any has a key."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.FILTERS)
        keys = {key for document in documents for key in facts(document.metadata)}
        conditions = [Exists(key) for key in (*sorted(keys), "no document has it")]
        for condition in filter(self.takes, conditions):
            with answering(f"whether a document has {condition.key!r}"):
                names, page = store.metadata_keys(), store.page(None, 1, condition)
            assert len(page.documents) == (condition.key in keys), f"a page of documents with {condition.key!r}"
            assert names is None or (condition.key in names) == (condition.key in keys), f"{condition.key!r}: {names}"

    def test_filters_act_before_the_cut(self) -> None:
        """The best of those that are let through, even if all others are better."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.FILTERS)
        for tree in (Equals("rare", True), Equals("language", "ru"), Not(Exists("year"))):
            with answering(f"searching with {tree}"):
                full, first = store.search(
                    [self._store_query(store, self.query(), depth, tree) for depth in (len(documents), 1)]
                )
            for name, ranking in full.rankings.items():
                best = [key for key, score in ranking if score == ranking[0][1]]
                top = [key for key, _ in first.rankings[name]]
                assert len(top) == 1, f"one was asked for, {len(top)} came"
                assert top[0] in best, f"the best for {tree} in {name} is {best}, not {top}"
            if store.info.scales.get(WORDS) is Scale.BM25:  # a filter changes neither frequencies nor lengths
                scores_by_key = dict(full.rankings[WORDS])
                scores = dict(zip(self._ids(store, list(scores_by_key)), scores_by_key.values(), strict=True))
                exact = bm25(documents, self.query())
                right = {
                    document.id: exact[document.id]
                    for document in documents
                    if document.id in exact and tree.matches(document.fields)
                }
                assert scores.keys() == right.keys(), f"by words {tree} lets {sorted(right)} through, not {scores}"
                for id_, score in scores.items():
                    assert math.isclose(score or 0, right[id_], rel_tol=self.tolerance), (
                        f"with {tree}, {id_!r} scores {score}; the formula over all documents says {right[id_]}"
                    )

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def test_documents_by_key_and_by_id(self) -> None:
        """In the order given, with repeats, None for unknown ones; documents returned with a search are the same."""
        store, documents = self.make(), list(self.documents())
        ids = [documents[index].id for index in (3, 0, 3, -1)]
        with answering("reading"):
            keys = store.keys([*ids, "nobody"])
            by_key, by_id = store.fetch([keys[id_] for id_ in ids]), store.get([*ids, "nobody"])
            async_documents = wait_for(store.afetch, [keys[id_] for id_ in ids])
            empty = (store.fetch([]), store.get([]), dict(store.keys([])))
            answer = store.search([self._store_query(store, self.query(), 10)])[0]
            keys_of_answer = list(answer.documents)
            documents_by_key = dict(zip(keys_of_answer, store.fetch(keys_of_answer), strict=True))
        expected = [documents[index] for index in (3, 0, 3, -1)]
        assert set(keys) == set(ids), f"the keys of {ids} are {keys}"
        assert (by_key, by_id, async_documents) == (expected, [*expected, None], expected), (
            f"{by_key!r:.300} are not {expected!r:.300}"
        )
        assert empty == ([], [], {}), f"nothing asked for, and {empty} came"
        assert dict(answer.documents) == documents_by_key, "what a search brings along is not what is stored"

    def test_pages_make_up_the_whole(self) -> None:
        """In one order, each document once; ids and counts agree."""
        store, documents = self.make(), self.documents()
        with answering("paging"):
            large_page, small_pages = self._pages(store, 1000), self._pages(store, 7)
            ids, count = store.ids(), store.count()
            of_source = store.ids(source="nobody")
        assert sorted(large_page, key=lambda document: document.id) == sorted(
            documents, key=lambda document: document.id
        ), "pages lack documents, or have them twice"
        assert small_pages == large_page, "smaller pages have another order"
        assert ids == [document.id for document in large_page], "ids come in another order than documents"
        assert (count, of_source) == (len(documents), []), f"{count} documents, {of_source} of no source"

    def test_a_page_that_nobody_told_of(self) -> None:
        """A page position that no page has returned is rejected, or leads to sound results."""
        store = self.make()
        for cursor in ("-1", "nonsense", "\0", "9" * 40, "'; drop table doc; --", "\ud800"):
            with answering(f"the page after {cursor!r}", InputError):
                assert store.page(cursor, 3).documents is not None, "a page has documents"
        with answering("counting"):
            assert store.count() == len(self.documents()), "documents were lost"

    def test_vectors_can_be_read(self) -> None:
        """The vectors of given keys, and a sample."""
        store, documents = self.make(), self.documents()
        self._needs(store, Capability.VECTORS)
        ids = [document.id for document in documents[4::-1]]
        with answering("reading vectors"):
            keys = store.keys(ids)
            rows, sample = store.vectors([keys[id_] for id_ in ids]), store.vectors(sample=20)
            empty = store.vectors([])
        assert rows.shape == (5, DIMENSIONS), f"vectors of 5 keys have the shape {rows.shape}"
        difference = np.abs(rows - vectors_of(documents[4::-1])).max()
        assert difference < self.cosine_tolerance, (
            f"they are not as written, or not in the order of their keys: {difference}"
        )
        assert sample.shape == (20, DIMENSIONS), f"a sample of 20 has the shape {sample.shape}"
        assert (sample @ vectors_of(documents).T).max(axis=1).min() > 1 - self.cosine_tolerance, "it has foreign ones"
        assert len(np.unique(sample.round(4), axis=0)) > 15, "it has the same ones over and over"
        with answering("asking for a sample of more than there are"):
            full_sample = store.vectors(sample=10 * len(documents))
        assert full_sample.shape == (len(documents), DIMENSIONS), (
            f"a sample of more than there are has shape {full_sample.shape}"
        )
        assert len(empty) == 0, f"no keys have no vectors, not {len(empty)}"
