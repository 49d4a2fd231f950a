"""The suite for stores."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import SkipTest

import numpy as np

from pointsman._twins import wait_for
from pointsman._values import RESERVED
from pointsman.errors import InputError, PointsmanError, StoreError, UnmetNeedError
from pointsman.filters import And, Contains, EndsWith, Equals, Exists, Filter, In, Not, Or, Range, StartsWith
from pointsman.store.base import (
    NEAR,
    WORDS,
    WORDS_FIRST,
    Capability,
    Lists,
    Page,
    Scale,
    Statistics,
    StoreInfo,
    StoreQuery,
)
from pointsman.testing._orders import (
    NEVER,
    State,
    Step,
    described,
    is_some_order,
    or_missing,
    random_step,
    run_at_once,
    state_of,
    word_of,
)
from pointsman.testing._shared import (
    DOCUMENTS,
    ODD_TEXTS,
    TwinConformance,
    answering,
    at_once,
    is_name,
    is_number,
    refused,
)
from pointsman.text import DEFAULT_ANALYZER, repair
from pointsman.types import AddResult, Document
from pointsman.views import ACCESS, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.base import Scores, Store

T = TypeVar("T")

EMBEDDER: Final = "conformance"
"""The name under which the suite writes its vectors."""
DIMENSIONS: Final = 16

_WORDS: Final = re.findall(
    r"\w+",
    "rail signal track train yard switch lamp lever engine ticket steam bridge tunnel whistle guard river "
    "поезд вагон семафор мост станция паровоз рельсы машинист 铁路 信号灯 列车 大桥 隧道 锅炉 车站 售票",
)
_KEYS: Final = ("year", "lang", "tag", "a.b", "空 間", "", "nul\0key", "источник")
_PATHS: Final = ("year.a", "lang.a", "tag.a", "a.b.a", "_id", "_text")
_VALUES: Final[tuple[Any, ...]] = (
    *(
        0,
        1,
        -1,
        2,
        2.0,
        2.5,
        -0.0,
        1e300,
        2**53,
        2**53 + 1,
        2**53 + 2,
        -(2**63) - 1,
        10**20,
        10**20 + 1,
        10**400,
        -(10**400),
        1999,
        2004,
    ),
    *(
        True,
        False,
        None,
        "",
        "a",
        "A",
        "b",
        "1",
        "true",
        "null",
        "ё",
        "е",
        "e\u0301",
        "é",
        "\0",
        "\x01",
        "\x01\0",
        "a\0",
    ),
    *(
        "😀",
        "\uffff",
        "\ue000",
        "2024-01-15",
        "2024-02",
        "2024-01-15T01:00:00+03:00",
        "2024-01-14T22:00:00Z",
        "2024-01-14T22:00:00.5Z",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "z" * 300,
        "$.a",
        "a b",
    ),
)
_BOUNDS: Final = (math.inf, -math.inf, "\ud800", "b\udfff", 2003.5, 10**300)


def bm25(documents: Sequence[Document], query: str, k1: float = 1.2, b: float = 0.75) -> dict[str, float]:
    """The exact score of each document that contains a word of the query, by id.

    Robertson and Zaragoza (2009) in Lucene's form: idf = ln(1 + (N - n + 1/2) / (n + 1/2)), no factor k1 + 1. A word
    that occurs twice in the query counts twice.

    >>> bm25([Document("1", "red lamp"), Document("2", "lamp lamp post")], "red")
    {'1': 0.3431421685940323}
    """
    counts = [Counter(DEFAULT_ANALYZER.tokens(document.searchable)) for document in documents]
    lengths = [counter.total() for counter in counts]
    average = sum(lengths) / max(len(lengths), 1) or 1.0
    scores: dict[str, float] = {}
    for token, weight in Counter(DEFAULT_ANALYZER.query_tokens(query)).items():
        n = sum(token in counter for counter in counts)
        idf = weight * math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
        for document, counter, length in zip(documents, counts, lengths, strict=True):
            if token in counter:
                share = idf * counter[token] / (counter[token] + k1 * (1 - b + b * length / average))
                scores[document.id] = scores.get(document.id, 0.0) + share
    return scores


def odd_documents(count: int = 150, seed: int = 7) -> list[Document]:
    """Documents in three languages, of 1 to 60 words, with metadata of every kind; the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311  (for tests, not for secrets)

    def value(depth: int = 0) -> Any:
        if depth < 2 and chance.random() < 0.3:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        return {"a": value(2)} if chance.random() < 0.05 else chance.choice(_VALUES)

    def metadata() -> dict[str, Any]:
        return {key: value() for key in _KEYS if chance.random() < 0.5} | {"rare": chance.random() < 0.05}

    random_documents = [
        Document(f"d{number}", " ".join(chance.choices(_WORDS, k=chance.randrange(1, 60))), metadata())
        for number in range(count - len(DOCUMENTS))
    ]
    return [*DOCUMENTS, *random_documents]


def random_filter(chance: random.Random, depth: int = 3) -> Filter:
    """A filter tree over the metadata of `odd_documents`, including operands that no document has."""
    if depth and chance.random() < 0.5:
        if chance.random() < 0.3:
            return Not(random_filter(chance, depth - 1))
        return chance.choice((And, Or))(tuple(random_filter(chance, depth - 1) for _ in range(chance.randrange(4))))
    key = chance.choice((*_KEYS, *_PATHS, "language", "rare", "nobody has it", "\ud800"))
    texts = [value for value in (*_VALUES, *_BOUNDS, "Ё", "É", "d1", "ЛЬ", "灯 ") if isinstance(value, str)]
    operands = [value for value in (*_VALUES, *_BOUNDS) if value is not None]
    leaves = (
        lambda: Equals(key, chance.choice(operands)),
        lambda: In(key, tuple(chance.choices(operands, k=chance.randrange(4)))),
        lambda: Exists(key),
        lambda: _random_range(chance, key, operands),
        lambda: chance.choice((Contains, StartsWith, EndsWith))(key, chance.choice(texts), chance.random() < 0.5),
    )
    leaf: Filter = chance.choice(leaves)()
    return leaf


def _random_range(chance: random.Random, key: str, operands: Sequence[Any]) -> Range:
    kinds = str if chance.random() < 0.5 else (int, float)
    low, high = chance.sample(
        [operand for operand in operands if isinstance(operand, kinds) and not isinstance(operand, bool)], 2
    )
    bounds = {chance.choice(("gt", "gte")): low, chance.choice(("lt", "lte")): high}
    if chance.random() < 0.5:
        bounds.popitem()
    return Range(key, **bounds)


def vector_of(text: str) -> NDArray[np.float32]:
    """A vector of length 1 that depends only on the text, shape ``(16,)``."""
    seed = np.frombuffer(text.encode("utf-8", "surrogatepass")[:4096].ljust(4), np.uint8)
    row = np.random.default_rng(seed.astype(np.uint32)).standard_normal(DIMENSIONS)
    vector: NDArray[np.float32] = (row / np.linalg.norm(row)).astype(np.float32)
    return vector


def vectors_of(documents: Sequence[Document]) -> NDArray[np.float32]:
    """`vector_of` each text, shape ``(len(documents), 16)``."""
    rows = [vector_of(document.text) for document in documents]
    return np.array(rows, np.float32).reshape(-1, DIMENSIONS)


class StoreConformance(TwinConformance):
    """For anything that implements `pointsman.store.base.Store`, such as subclasses of `BaseStore`.

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
        rounds: the number of rounds of concurrent writers.
    """

    tolerance: float = 1e-9
    drift: float | None = 1e-9
    cosine_tolerance: float = 1e-5
    trees: int = 300
    rounds: int = 6
    _filled: Store | None = None

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
        if cls._filled is None:
            store = self.make_store()
            self._write(store, self.documents())
            cls._filled = store
        return cls._filled

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

    def test_the_weight_of_words(self) -> None:
        """The idf that a store returns for a look's words is that of its documents, absent words included."""
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
            exact = sum(
                count * math.log(1 + (len(documents) - holding[token] + 0.5) / (holding[token] + 0.5))
                for token, count in Counter(DEFAULT_ANALYZER.query_tokens(query)).items()
            )
            assert math.isclose(answer.idf, exact, rel_tol=1e-6), f"{query!r}: idf {answer.idf}, not {exact}"

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
                    None if has_vectors else " ".join(_WORDS),
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

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _empty(self) -> Store:
        store = self.make_store()
        self._needs(store, Capability.WRITE)
        return store

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

    # ── concurrency, and the end ─────────────────────────────────────────────────────────────────────────────────

    def test_writers_at_once(self) -> None:
        """Four threads write, change and delete; all changes are there, and the lists are correct."""
        store = self._empty()
        batches = [
            [Document(f"{writer} {n}", f"signal {_WORDS[n]} {_WORDS[writer]}") for n in range(12)]
            for writer in range(4)
        ]

        def work(writer: int) -> None:
            for start in range(0, 12, 4):
                self._write(store, batches[writer][start : start + 4])
                self._write(store, [Document("shared", f"signal {_WORDS[writer]} {start}")])
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

    def test_writers_of_every_kind_leave_what_some_order_leaves(self) -> None:
        """Adding, replacing, embedding later, changing metadata and titles, deleting, reading: as if one by one."""
        store, chance = self._empty(), random.Random(11)  # noqa: S311  (for tests, not for secrets)
        for number in range(self.rounds):
            scripts = [[random_step(chance, f"{writer}-{number}-{n}") for n in range(3)] for writer in range(3)]
            with answering("writing from three threads"):
                states_before = self._states(store)
                steps = run_at_once(scripts, lambda step: self._do(store, step), lambda: store.get(["1"])[0])
                states_after = self._states(store)
            is_explained = any(
                is_some_order(first, steps, last) for first, last in product(states_before, states_after)
            )
            assert is_explained, f"no order explains it: {described(states_before[0], steps, states_after[0])}"

    def _do(self, store: Store, step: Step) -> str:
        """Do a step on the document "1", and return its answer."""
        kind, *arguments = step
        if kind == "embed" and not store.info.can(Capability.LATER):
            return NEVER
        if kind == "delete":
            return "deleted" if store.delete(["1"]) else "missing"
        if kind == "set":
            return or_missing(lambda: self._set_metadata(store, {"1": arguments[0]}, replace=arguments[1]))
        document = Document("1", *arguments)
        if NEAR not in store.info.scales or kind == "bare":
            return word_of(store.write([document]))
        rows = np.array([vector_of(document.searchable)])
        if kind == "embed":
            return word_of(store.write([document], rows, EMBEDDER, stored_only=True))
        return word_of(store.write([document], rows, EMBEDDER))

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

    def _states(self, store: Store) -> list[State]:
        """Return the state of the document "1"; two if the store does not tell whether it has a vector."""
        [document] = store.get(["1"])
        keys = list(store.keys(["1"]).values())
        if NEAR in store.info.scales and not store.info.can(Capability.VECTORS):
            return [state_of(document, embedded=has_vector) for has_vector in (False, True)]
        rows: Sequence[Any] = list(store.vectors(keys)) if keys and NEAR in store.info.scales else []
        if document is not None and rows:
            assert np.allclose(rows[0], vector_of(document.searchable), atol=1e-5), (
                f"{document} has the vector of another text"
            )
        return [state_of(document, embedded=len(rows) == 1)]

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
