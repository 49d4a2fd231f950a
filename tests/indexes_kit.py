"""The suites for document stores, keyword indexes and vector indexes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import numpy as np

from pointsman.evaluation.conformance.suite_samples import (
    DOCUMENTS,
    FILTERS,
    ODD_TEXTS,
    Conformance,
    TextConformance,
    answering,
)
from pointsman.tools.errors import PointsmanError
from pointsman.values.argument_checks import is_number
from pointsman.values.types import Document

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.filters import Filter
    from pointsman.values.protocols import DocumentStore, KeywordIndex, VectorIndex


class _StoreConformance(Conformance):
    """For stores that are created with documents in them; ``make`` returns the store and the key of each document."""

    def make(self) -> tuple[Any, Sequence[Any]]:
        """Return the store with `documents` in it, and their keys, in the same order."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a store and the documents' keys")

    def documents(self) -> Sequence[Document]:
        """Return the documents to be in the store."""
        return DOCUMENTS

    def unknown_key(self) -> Any:
        """Return a key of the right type that no document has."""
        return 10**9


class DocumentStoreConformance(_StoreConformance):
    """For anything that implements the protocol `pointsman.values.protocols.DocumentStore`.

    Promised: complete documents in the order of the keys, and None for unknown keys.
    """

    def make(self) -> tuple[DocumentStore[Any], Sequence[Any]]:
        """Return the store with `documents` in it, and their keys, in the same order."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a store and the documents' keys")

    def documents(self) -> Sequence[Document]:
        """Return the documents to be in the store: ordinary, empty and odd texts, metadata of every kind."""
        odd = [Document(f"odd {name}", text) for name, text in ODD_TEXTS.items() if name != "lone surrogates"]
        return [*DOCUMENTS, *odd, Document("nested", "text", {"a": {"b": [1, 2.5, None, "в", {"c": True}]}, "空": ""})]

    def _ask(self, subject: Any, text: str) -> Any:
        store, keys = subject
        return store.fetch(keys if text == self.query() else list(keys)[::-1])

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        expected = list(self.documents()) if text == self.query() else list(self.documents())[::-1]
        self._same(answer, expected)

    def _same(self, actual: Any, expected: Sequence[Document | None]) -> None:
        assert isinstance(actual, list), f"fetch returns a list, not {type(actual).__name__}"
        assert len(actual) == len(expected), f"{len(actual)} documents for {len(expected)} keys"
        for document, stored in zip(actual, expected, strict=True):
            assert document == stored, f"fetch gives {document!r:.200} where {stored!r:.200} is stored"

    def test_the_order_of_the_keys(self) -> None:
        """Keys in any order, and repeated keys."""
        (store, keys), documents = self.make(), list(self.documents())
        indices = [2, 0, 2, len(documents) - 1, 1]
        with answering("fetch"):
            self._same(store.fetch([keys[index] for index in indices]), [documents[index] for index in indices])

    def test_every_document_alone(self) -> None:
        """Including odd ones, complete: no character is lost."""
        (store, keys), documents = self.make(), self.documents()
        for key, document in zip(keys, documents, strict=True):
            with answering(f"fetching {document.id!r}"):
                self._same(store.fetch([key]), [document])

    def test_unknown_keys(self) -> None:
        """Give None in their place."""
        (store, keys), documents = self.make(), list(self.documents())
        with answering("fetching a key that no document has"):
            self._same(store.fetch([keys[1], self.unknown_key(), keys[0]]), [documents[1], None, documents[0]])

    def test_no_keys(self) -> None:
        """Nothing in, nothing out."""
        store, _ = self.make()
        with answering("fetch([])"):
            self._same(store.fetch([]), [])


class _IndexConformance(_StoreConformance):
    """Shared by the suites for keyword and vector indexes."""

    filterable: bool = True
    """Whether the index supports filters; otherwise it is tested without them."""
    close: float = 1e-4
    """The allowed difference of scores that should be equal, relative to the larger one."""

    def _search(self, index: Any, k: int, filters: Filter | None = None) -> Any:
        query = self._query_of(self.query())
        return index.search(query, k) if filters is None else index.search(query, k, filters)

    def _query_of(self, text: str) -> Any:
        raise NotImplementedError

    def _ask(self, subject: Any, text: str) -> Any:
        index, _ = subject
        return index.search(self._query_of(text), 5)

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        _, keys = subject
        self._sound_ranking(answer, 5, keys, f"search({text!r:.60}, 5)")

    def _sound_ranking(self, ranking: Any, k: int, keys: Sequence[Any], call: str) -> None:
        assert isinstance(ranking, list), f"{call} returns a list, not {type(ranking).__name__}"
        for pair in ranking:
            assert isinstance(pair, tuple), f"{call} returns pairs of key and score, not {pair!r:.80}"
            assert len(pair) == 2, f"{call} returns pairs of key and score, not {pair!r:.80}"
            assert pair[0] in keys, f"{call} found the key {pair[0]!r}, which no document has"
            assert is_number(pair[1]), f"{call}: a score is a finite float, that of {pair[0]!r} is {pair[1]!r}"
        assert len(ranking) <= k, f"{call} returned {len(ranking)} keys, more than the {k} asked for"
        scores = [score for _, score in ranking]
        assert scores == sorted(scores, reverse=True), f"{call}: keys come best first, these scores rise: {scores}"
        assert len(dict(ranking)) == len(ranking), f"{call} returned keys more than once: {[key for key, _ in ranking]}"

    def _is_near(self, first: float, second: float) -> bool:
        return math.isclose(first, second, rel_tol=self.close, abs_tol=self.close)

    def test_at_most_k(self) -> None:
        """The first of a longer ranking, and never more than requested."""
        index, keys = self.make()
        with answering("search"):
            full_ranking = self._search(index, 100)
            self._sound_ranking(full_ranking, 100, keys, "search(…, 100)")
            assert len(full_ranking) >= 2, f"{len(full_ranking)} documents found for {self.query()!r}; override query()"
            for k in (1, 2, 3):
                ranking = self._search(index, k)
                self._sound_ranking(ranking, k, keys, f"search(…, {k})")
                assert len(ranking) == min(k, len(full_ranking)), (
                    f"{k} of {len(full_ranking)} were asked for, {len(ranking)} came"
                )
                for (_, score), (_, full_score) in zip(ranking, full_ranking, strict=False):
                    assert self._is_near(score, full_score), (
                        f"the best {k} of {len(full_ranking)} have other scores than the first {k}"
                    )

    def test_search_and_score_agree(self) -> None:
        """`score` gives a document the same score as a search does."""
        index, keys = self.make()
        with answering("search and score"):
            ranking = self._search(index, 100)
            scores = index.score(self._query_of(self.query()), [key for key, _ in ranking])
            backward = index.score(self._query_of(self.query()), list(keys)[::-1])
        assert isinstance(scores, list), f"score returns a list, not {type(scores).__name__}"
        assert len(scores) == len(ranking), f"{len(scores)} scores for {len(ranking)} keys"
        for (key, score), single_score in zip(ranking, scores, strict=True):
            assert self._is_near(score, single_score), (
                f"search gives {key!r} the score {score}, and score gives it {single_score}"
            )
        by_key = dict(zip(list(keys)[::-1], backward, strict=True))
        for key, score in ranking:
            assert self._is_near(score, by_key[key]), f"scores are not in the order of the keys: {key!r}"

    def test_no_keys(self) -> None:
        """Nothing in, nothing out."""
        index, _ = self.make()
        with answering("score(…, [])"):
            scores = index.score(self._query_of(self.query()), [])
        assert scores == [], f"no keys have no scores, not {scores!r:.80}"

    def test_filters_are_honoured(self) -> None:
        """Only those that the filter lets through, as defined by `Filter.matches`."""
        index, keys = self._filtering()
        metadata = dict(zip(keys, (document.metadata for document in self.documents()), strict=True))
        unfiltered = dict(self._search(index, 100))
        for condition in FILTERS:
            with answering(f"searching with the filter {condition}"):
                ranking = self._search(index, 100, condition)
            self._sound_ranking(ranking, 100, keys, f"a search with the filter {condition}")
            matching = {key for key in unfiltered if condition.matches(metadata[key])}
            violations = [key for key, _ in ranking if key not in matching]
            assert not violations, f"the filter {condition} does not let {violations} through, and they were found"
            missing = matching - {key for key, _ in ranking}
            assert not missing, f"the filter {condition} lets {missing} through, and they were not found"

    def test_filters_act_before_the_cut(self) -> None:
        """The best of those that are let through, even if all others are better."""
        index, keys = self._filtering()
        metadata = dict(zip(keys, (document.metadata for document in self.documents()), strict=True))
        unfiltered = self._search(index, 100)
        for condition in FILTERS:
            matching = [score for key, score in unfiltered if condition.matches(metadata[key])]
            with answering(f"searching for one with the filter {condition}"):
                ranking = self._search(index, 1, condition)
            assert len(ranking) == min(1, len(matching)), (
                f"one with the filter {condition} was asked for, {len(matching)} meet it, {len(ranking)} came"
            )
            assert not ranking or self._is_near(ranking[0][1], matching[0]), (
                f"with the filter {condition} it is not the best"
            )

    def _filtering(self) -> tuple[Any, Sequence[Any]]:
        if not self.filterable:
            raise SkipTest("filterable is False: this index takes no filters")
        return self.make()


class KeywordIndexConformance(_IndexConformance, TextConformance):
    """For anything that implements the protocol `pointsman.values.protocols.KeywordIndex`.

    Promised: BM25 scores, best first, above 0 only for documents with a word of the query; `score` agrees with
    `search`; filters act before the cut; English, Chinese and Russian words are found.
    """

    def make(self) -> tuple[KeywordIndex[Any], Sequence[Any]]:
        """Return an index of `documents`, and their keys, in the same order."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns an index and its keys")

    def query(self) -> str:
        """Return words of all three languages, so that filters have something to choose from."""
        return "red signal track engine bridge 信号 大桥 锅炉 фонарь мост пар"

    def words(self) -> Mapping[str, str]:
        """Return queries, each with the id of the only document that it should find first."""
        return {
            "boiler": "en-3",
            "signals": "en-1",
            "锅炉": "zh-2",
            "长江大桥": "zh-3",
            "фонари": "ru-1",
            "станция": "ru-2",
        }

    def _query_of(self, text: str) -> Any:
        return text

    def test_words_of_every_language_are_found(self) -> None:
        """English and Russian regardless of inflection, Chinese without spaces."""
        index, keys = self.make()
        ids = dict(zip(keys, (document.id for document in self.documents()), strict=True))
        for query, expected in self.words().items():
            with answering(f"searching for {query!r}"):
                ids_found = [ids[key] for key, _ in index.search(query, 3)]
            assert ids_found[:1] == [expected], f"{query!r} finds {ids_found}, and {expected!r} has it"

    def test_what_has_no_word_scores_nothing(self) -> None:
        """0 for documents that `search` does not find and for unknown keys; above 0 for those it finds."""
        index, keys = self.make()
        query = next(iter(self.words()))
        with answering("search and score"):
            by_key = dict(index.search(query, 100))
            scores = index.score(query, [*keys, self.unknown_key()])
            ranking = index.search("qwxzv", 5)
        assert ranking == [], f"a word that no document has finds {ranking!r:.80}"
        assert all(score > 0 for score in by_key.values()), f"what was found scores above 0: {by_key}"
        for key, score in zip([*keys, self.unknown_key()], scores, strict=True):
            assert key in by_key or score == 0, f"{key!r} has no word of {query!r} and scores {score}"

    def test_rare_words_count_more(self) -> None:
        """BM25: of two words the rarer one decides."""
        index, keys = self.make()
        ids = dict(zip(keys, (document.id for document in self.documents()), strict=True))
        with answering("search"):
            top = [ids[key] for key, _ in index.search("engine boiler", 3)]
        assert top[:2] == ["en-3", "en-2"], f"'engine boiler' finds {top}; en-3 has both words, en-2 one of them"


class VectorIndexConformance(_IndexConformance):
    """For anything that implements the protocol `pointsman.values.protocols.VectorIndex`.

    Promised: the nearest by cosine, best first; `score` agrees with `search`, and gives NaN without a vector; filters
    act before the cut.
    """

    def make(self) -> tuple[VectorIndex[Any], Sequence[Any]]:
        """Return an index of `vectors`, with the metadata of `documents`, and their keys, in the same order."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns an index and its keys")

    def vectors(self) -> NDArray[np.float32]:
        """Return a vector of length 1 for each of `documents`, shape ``(len(documents), 16)``."""
        return np.concatenate([self._query_of(document.text)[None] for document in self.documents()])

    def _query_of(self, text: str) -> Any:
        seed = np.frombuffer(text.encode("utf-8", "surrogatepass")[:4096].ljust(4), np.uint8)
        row = np.random.default_rng(seed.astype(np.uint32)).standard_normal(16)
        vector: NDArray[np.float32] = (row / np.linalg.norm(row)).astype(np.float32)
        return vector

    def test_the_nearest_are_found(self) -> None:
        """The result equals a comparison with every vector."""
        index, keys = self.make()
        vector = self._query_of(self.query())
        cosines = dict(zip(keys, (self.vectors() @ vector).tolist(), strict=True))
        with answering("search"):
            ranking = index.search(vector, len(cosines))
        assert len(ranking) == len(cosines), f"{len(ranking)} of {len(cosines)} vectors were found"
        for key, score in ranking:
            assert self._is_near(score, cosines[key]), f"{key!r} has the cosine {cosines[key]}, not {score}"

    def test_odd_vectors(self) -> None:
        """A zero vector, non-finite numbers, or another length: a sound answer, or a clear error."""
        index, keys = self.make()
        vector = self._query_of(self.query())
        odd = {
            "zeros": vector * 0,
            "a NaN": np.where(np.arange(len(vector)) == 3, np.nan, vector).astype(np.float32),
            "an infinity": np.where(np.arange(len(vector)) == 3, np.inf, vector).astype(np.float32),
            "one number too few": vector[:-1],
            "no number": vector[:0],
            "a matrix": np.stack([vector, vector]),
        }
        for name, query in odd.items():
            with answering(f"searching with a vector of {name}", PointsmanError):
                self._sound_ranking(index.search(query, 5), 5, keys, f"a search with a vector of {name}")

    def test_unknown_keys_have_no_cosine(self) -> None:
        """Give NaN in their place."""
        index, keys = self.make()
        with answering("scoring a key that has no vector"):
            scores = index.score(self._query_of(self.query()), [keys[0], self.unknown_key(), keys[1]])
        assert len(scores) == 3, f"{len(scores)} scores for 3 keys"
        assert math.isnan(scores[1]), f"a key without a vector scores NaN, not {scores[1]!r}"
        assert not any(map(math.isnan, (scores[0], scores[2]))), f"keys with vectors have cosines: {scores}"

    def test_the_vector_is_left_as_it_was(self) -> None:
        """The branches of a search share it."""
        index, _ = self.make()
        vector = self._query_of(self.query())
        original = vector.copy()
        with answering("search and score"):
            index.score(vector, [key for key, _ in index.search(vector, 3)])
        assert np.array_equal(vector, original), "the query's vector was changed"
