"""The store that a suite tests: what its author overrides, and how the suites ask it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, bm25, odd_documents, vector_of, vectors_of
from pointsman.evaluation.conformance.suite_samples import TwinConformance, answering
from pointsman.store.store_values import NEAR, WORDS, Capability, Lists, Page, Scale, StoreQuery
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.argument_checks import is_number
from pointsman.values.types import AddResult, Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter


class StoreSubject(TwinConformance):
    """The hooks and questions that all suites for stores share; see `StoreConformance`."""

    tolerance: float = 1e-9
    drift: float | None = 1e-9
    cosine_tolerance: float = 1e-5
    trees: int = 300
    _filled_store: Store | None = None

    def make_store(self) -> Store:
        """Return a new empty store of yours, for words and vectors if it supports both."""
        raise NotImplementedError(f"{type(self).__name__} overrides make_store() and returns an empty store")

    def again(self, store: Store) -> Store:  # noqa: ARG002  (used by subclasses)
        """Return a second store over the same dataset, as another process would open it; SkipTest if impossible."""
        raise SkipTest("override again() to test what a second process sees")

    def documents(self) -> Sequence[Document]:
        """Return the documents in the store that searches are tested with."""
        return odd_documents()

    def make(self) -> Store:
        """Return the store with `documents` in it; one for all tests that only read."""
        cls = type(self)
        if cls._filled_store is None:
            store = self.make_store()
            self._write(store, self.documents())
            cls._filled_store = store
        return cls._filled_store

    def takes(self, filters: Filter) -> bool:  # noqa: ARG002  (used by subclasses)
        """Whether yours supports this filter; an unsupported one must raise an `UnmetNeedError`."""
        return True

    def query(self) -> str:
        """Return words of all three languages."""
        return "red signal track engine bridge 信号灯 大桥 锅炉 фонарь мост пар"

    def queries(self) -> Sequence[str]:
        """Return queries whose keyword lists are compared with the formula."""
        return (
            *(self.query(), "signal", "信号灯 大桥", "Где станция и паровоз?", "tunnel tunnel tunnel guard river"),
            *("the lamp of the engine", "to be or not to be", "steam 车站 рельсы nobodyhasthis"),
        )

    # ── the answer to every question ─────────────────────────────────────────────────────────────────────────────

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.search([self._store_query(subject, text, 5)])[0]

    async def _aask(self, subject: Any, text: str) -> Any:
        return (await subject.asearch([self._store_query(subject, text, 5)]))[0]

    def _store_query(self, store: Any, text: str, depth: int, filters: Filter | None = None) -> StoreQuery:
        vector = vector_of(text) if NEAR in store.info.scales else None
        return StoreQuery(text if WORDS in store.info.scales else None, vector, depth, filters)

    def _view(self, answer: Any) -> Any:
        return {name: [key for key, _ in ranking] for name, ranking in answer.rankings.items()}

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        self._sound_lists(subject, answer, 5, f"a search for {text!r:.60}")

    def _sound_lists(self, store: Any, answer: Any, depth: int, call: str) -> None:
        assert isinstance(answer, Lists), f"{call} gives Lists, not {type(answer).__name__}"
        for name, ranking in answer.rankings.items():
            scale = store.info.scales.get(name)
            assert scale is not None, f"{call} has a list {name!r}, of which the info says nothing"
            keys = [key for key, _ in ranking]
            assert len(set(keys)) == len(keys), f"{call}: {name} has keys more than once: {keys}"
            assert len(keys) <= depth, f"{call}: {name} has {len(keys)} candidates, more than {depth}"
            if scale in {Scale.BM25, Scale.COSINE}:
                scores: list[Any] = [score for _, score in ranking if is_number(score)]
                assert len(scores) == len(keys), f"{call}: a score in {name} is not a finite number: {ranking!r:.200}"
                assert scores == sorted(scores, reverse=True), f"{call}: {name} is not best first: {scores}"
        for key, document in answer.documents.items():
            assert isinstance(document, Document), f"{call} brings {document!r:.80} for {key!r}"

    def _needs(self, store: Store, capability: Capability) -> None:
        if not store.info.can(capability):
            raise SkipTest(f"a {store.info.kind} store has no {capability.value!r}")

    def _scale(self, store: Store, name: str, scale: Scale) -> None:
        if store.info.scales.get(name) is not scale:
            raise SkipTest(f"the scale of {name!r} is not {scale.value!r}")

    def _write(self, store: Store, documents: Sequence[Document]) -> AddResult:
        if NEAR in store.info.scales:
            return store.write(documents, vectors_of(documents), EMBEDDER)
        return store.write(documents)

    def _ids(self, store: Store, keys: Sequence[Any]) -> list[str]:
        documents = store.fetch(keys)
        assert all(document is not None for document in documents), f"not all of {keys} can be fetched"
        return [document.id for document in documents if document is not None]

    def _empty(self) -> Store:
        store = self.make_store()
        self._needs(store, Capability.WRITE)
        return store

    def _words(self, store: Store, query: str) -> list[str]:
        """The ids that a query finds, sorted; empty if the store has no keyword list."""
        if WORDS not in store.info.scales:
            tokens = DEFAULT_ANALYZER.query_tokens(query)
            return sorted(
                document.id
                for document in self._pages(store, 100)
                if {*tokens} & {*DEFAULT_ANALYZER.tokens(document.text)}
            )
        return sorted(self._ids(store, [key for key, _ in store.search([StoreQuery(query)])[0].rankings[WORDS]]))

    def _pages(self, store: Store, limit: int, filters: Filter | None = None) -> list[Document]:
        documents: list[Document] = []
        cursor: str | None = None
        while True:
            page = store.page(cursor, limit, filters)
            assert isinstance(page, Page), f"page gives a Page, not {type(page).__name__}"
            assert len(page.documents) <= limit, f"a page of {limit} has {len(page.documents)} documents"
            documents += page.documents
            if page.next is None:
                return documents
            assert page.next != cursor, f"the page after {cursor!r} goes on after {page.next!r} for ever"
            cursor = page.next

    def _like_the_formula(self, store: Store, documents: Sequence[Document], tolerance: float | None) -> None:
        """Every list, whole and cut, against the exact formula; documents with equal scores may change places."""
        for query in self.queries():
            exact = bm25(documents, query)
            with answering(f"searching for {query!r}"):
                answers = store.search([StoreQuery(query, depth=depth) for depth in (10, len(documents))])
            for depth, answer in zip((10, len(documents)), answers, strict=True):
                ranking = answer.rankings[WORDS]
                ids = self._ids(store, [key for key, _ in ranking])
                missing_ids = [id_ for id_ in ids if id_ not in exact]
                assert not missing_ids, f"{missing_ids} have no word of {query!r}, and are in the list"
                assert len(ids) == min(depth, len(exact)), f"{len(ids)} of {len(exact)} for {query!r} at {depth}"
                if tolerance is None:
                    continue
                for id_, (_, score) in zip(ids, ranking, strict=True):
                    assert score is not None, "a list on the scale BM25 has scores"
                    assert math.isclose(score, exact[id_], rel_tol=tolerance), (
                        f"{id_!r} scores {score} for {query!r}; the formula says {exact[id_]}"
                    )
                best = sorted(exact.values(), reverse=True)
                for index, id_ in enumerate(ids):
                    assert math.isclose(exact[id_], best[index], rel_tol=2 * tolerance), (
                        f"number {index + 1} for {query!r} is {id_!r} with {exact[id_]}; it should have {best[index]}"
                    )
