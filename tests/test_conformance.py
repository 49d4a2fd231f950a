"""Our own implementations pass the public suites; and each test of each suite fails for one that breaks its promise."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from embedder_suite import EmbedderConformance, MultimodalEmbedderConformance
from indexes_kit import DocumentStoreConformance, KeywordIndexConformance, VectorIndexConformance
from llm_suite import LLMConformance
from pointsman import (
    BaseRetriever,
    BaseRouter,
    BaseSelector,
    CachedEmbedder,
    ContentRouter,
    Dataset,
    DescriptionSelector,
    Document,
    EmbeddingSelector,
    EnsembleSelector,
    Filter,
    Hit,
    HybridSelector,
    KeywordRetriever,
    LLMRouter,
    LLMSelector,
    Query,
    RandomSelector,
    RouteDecision,
    RouterRetriever,
    RuleSelector,
    ScriptedLLM,
    SelectorResult,
    SelectorRouter,
    SimpleHybridRetriever,
    SingleSelection,
    VectorRetriever,
    default_embedder,
    keyword_match_rule,
)
from pointsman.embedders.scripted_embedders import ColourEmbedder, HashingEmbedder
from pointsman.evaluation import conformance as testing
from pointsman.evaluation.conformance import DOCUMENTS, FILTERS, RetrieverConformance, SelectorConformance
from pointsman.retrieval.plan.transform import (
    BaseTransformer,
    LLMExpander,
    QueryTransformer,
    RuleDecomposer,
    RuleDisambiguator,
    RuleExpander,
    Transformed,
    Variant,
)
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.compress import ExtractiveCompressor, LLMCompressor
from pointsman.retrieval.refine.diversity import Diversifier
from pointsman.retrieval.refine.refuse import Refuser
from pointsman.retrieval.refine.rerank import BaseReranker, CalibratedReranker, LLMReranker
from pointsman.selector.choices.choice_bm25 import ChoiceIndex
from pointsman.text import DEFAULT_ANALYZER, detect
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.types import Ranked, Refusal
from pointsman.workspace.dataset import DatasetRetriever
from refiner_suites import RefinerConformance, RerankerConformance
from router_suite import RouterConformance
from store_kit import collection_of
from transformer_suite import TransformerConformance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.store.local.collection import Collection
    from pointsman.values.protocols import DocumentStore, Embedder, KeywordIndex, Retriever, VectorIndex

COMMON_WORDS = "red signal lamp track engine bridge 信号 锅炉 大桥 фонарь паровоз мост"
"""A query with a word for every document."""


@cache
def dataset() -> Dataset:
    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add(DOCUMENTS)
    return dataset


@pytest.fixture(scope="module", autouse=True)
def close_datasets() -> Iterator[None]:
    yield
    dataset().close()


def stores() -> Collection:
    return collection_of(dataset())


# ── retrievers ───────────────────────────────────────────────────────────────────────────────────────────────────────


class OverAllDocuments(RetrieverConformance):
    def answerable_query(self) -> str:
        return COMMON_WORDS

    def filters(self) -> Sequence[Filter]:
        return FILTERS[:6]


def keyword() -> KeywordRetriever[int]:
    return KeywordRetriever(stores().keyword, stores().truth)


def vector() -> VectorRetriever[int]:
    vectors = stores().vectors
    assert vectors is not None
    return VectorRetriever(vectors, stores().truth, HashingEmbedder())


class TestKeywordRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return keyword()


class TestVectorRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return vector()


class TestSimpleHybridRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return SimpleHybridRetriever(keyword(), vector())


class TestDatasetRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return DatasetRetriever(dataset())


class TestRouterRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return RouterRetriever([keyword(), vector()], ["words", "meaning"], LLMSelector(llm_choosing_both(), True, 2))


class TestRouterRetrieverToOne(OverAllDocuments):
    def make(self) -> Retriever:
        return RouterRetriever([keyword(), vector()], ["rails", "trains"], RuleSelector([keyword_match_rule]))


def llm_choosing_both() -> ScriptedLLM:
    return ScriptedLLM(lambda _: [{"choice": 1, "reason": "words"}, {"choice": 2, "reason": "meaning"}])


# ── refiners ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestRefuser(RefinerConformance):
    def make(self) -> BaseRefiner:
        return Refuser()


class TestDiversifier(RefinerConformance):
    def make(self) -> BaseRefiner:
        return Diversifier(near_duplicates=0.9, mmr_lambda=0.7)


class TestExtractiveCompressor(RefinerConformance):
    def make(self) -> BaseRefiner:
        return ExtractiveCompressor(HashingEmbedder(), max_chars=120)


class TestLLMCompressor(RefinerConformance):
    def make(self) -> BaseRefiner:
        return LLMCompressor(ScriptedLLM(lambda _: {"keep": [1]}), max_chars=120)


class SharedWords(BaseReranker):
    """A reranker as a user would write it."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        words = set(re.findall(r"\w+", query.lower()))
        return [float(len(words & set(re.findall(r"\w+", text.lower())))) for text in texts]


class AwaitedWords(BaseReranker):
    """The same, asynchronous."""

    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return SharedWords().score(query, texts)


class TestSharedWords(RerankerConformance):
    def make(self) -> BaseReranker:
        return SharedWords()


class TestAwaitedWords(RerankerConformance):
    def make(self) -> BaseReranker:
        return AwaitedWords()


class TestCalibratedReranker(RerankerConformance):
    def make(self) -> BaseReranker:
        return CalibratedReranker(HashingEmbedder(), sigma=0.05)


class TestLLMReranker(RerankerConformance):
    def make(self) -> BaseReranker:
        return LLMReranker(ScriptedLLM(lambda prompt: str(len(prompt) % 11)), mode="pointwise")


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestRuleSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return RuleSelector([keyword_match_rule])


class TestEmbeddingSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return EmbeddingSelector(HashingEmbedder(), top_k=2)


class TestDescriptionSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return DescriptionSelector(HashingEmbedder(), allow_abstain=True)


class TestHybridSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return HybridSelector(EmbeddingSelector(HashingEmbedder()), RuleSelector([keyword_match_rule]))


class TestEnsembleSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return EnsembleSelector([EmbeddingSelector(HashingEmbedder()), RuleSelector([keyword_match_rule])])


class TestRandomSelector(SelectorConformance):
    deterministic = False

    def make(self) -> BaseSelector:
        return RandomSelector()


class TestLLMSelector(SelectorConformance):
    def make(self) -> BaseSelector:
        return LLMSelector(ScriptedLLM(lambda _: "The best one is (2)."))

    def calls(self, selector: Any) -> int:
        return len(selector.llm.calls)


class TestContentRouter(RouterConformance):
    def make(self) -> BaseRouter:
        return ContentRouter()


class TestSelectorRouter(RouterConformance):
    def make(self) -> BaseRouter:
        return SelectorRouter(RuleSelector([keyword_match_rule], allow_abstain=True))


class TestLLMRouter(RouterConformance):
    def make(self) -> BaseRouter:
        return LLMRouter(ScriptedLLM(lambda _: "[1, 3]"))


# ── transforming ─────────────────────────────────────────────────────────────────────────────────────────────────────


class TestRuleTransformers(TransformerConformance):
    def query(self) -> str:
        return "What is BM25 and how does k8s scale, and who wrote it?"

    def make(self) -> BaseTransformer:
        return QueryTransformer(RuleDisambiguator(), RuleDecomposer(), RuleExpander())


class TestLLMExpander(TransformerConformance):
    def make(self) -> BaseTransformer:
        return LLMExpander(ScriptedLLM(lambda _: {"queries": ["colour of a signal", "信号灯的颜色", "red lamp"]}))


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestHashingEmbedder(EmbedderConformance):
    def make(self) -> Embedder:
        return HashingEmbedder()


class TestCachedEmbedder(EmbedderConformance):
    @pytest.fixture(autouse=True)
    def in_a_folder(self, tmp_path: Any) -> None:
        self.folder = tmp_path

    def make(self) -> Embedder:
        return CachedEmbedder(HashingEmbedder(), self.folder)


class TestDefaultEmbedder(EmbedderConformance):
    def make(self) -> Embedder:
        return e5()


@cache
def e5() -> Embedder:
    return default_embedder()


class TestScriptedLLM(LLMConformance):
    def make(self) -> ScriptedLLM:
        return ScriptedLLM(lambda _: "red", supports_schema=True)


# ── stores ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestTruth(DocumentStoreConformance):
    dataset: Dataset | None = None

    def make(self) -> tuple[DocumentStore[int], Sequence[int]]:
        cls = type(self)
        if cls.dataset is None:
            cls.dataset = Dataset("odd", "", "keyword")
            cls.dataset.add(self.documents())
        keys = collection_of(cls.dataset).truth.keys([document.id for document in self.documents()])
        return collection_of(cls.dataset).truth, [keys[document.id] for document in self.documents()]


class TestKeywordIndex(KeywordIndexConformance):
    def make(self) -> tuple[KeywordIndex[int], Sequence[int]]:
        return stores().keyword, [dataset().store.keys([document.id])[document.id] for document in DOCUMENTS]


class TestExactKeywordIndex(KeywordIndexConformance):
    dataset: Dataset | None = None

    def make(self) -> tuple[KeywordIndex[int], Sequence[int]]:
        cls = type(self)
        if cls.dataset is None:
            cls.dataset = Dataset("exact", "", "keyword", bm25_k1=0.9, bm25_b=0.4)
            cls.dataset.add(DOCUMENTS)
        return collection_of(cls.dataset).keyword, [
            cls.dataset.store.keys([document.id])[document.id] for document in DOCUMENTS
        ]


class TestVectorIndex(VectorIndexConformance):
    dataset: Dataset | None = None

    def make(self) -> tuple[VectorIndex[int], Sequence[int]]:
        cls = type(self)
        if cls.dataset is None:
            cls.dataset = Dataset("vectors", "", "vector", embedder=HashingEmbedder(16))
            cls.dataset.add(DOCUMENTS, vectors=self.vectors())
        vectors = collection_of(cls.dataset).vectors
        assert vectors is not None
        return vectors, [cls.dataset.store.keys([document.id])[document.id] for document in DOCUMENTS]


# ── the suites bite ──────────────────────────────────────────────────────────────────────────────────────────────────
#
# For each suite there is one good implementation, the plainest there is, and a table of what can be done to it.


class Words(BaseRetriever):
    """Finds documents by the words they share with the query."""

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        return self.all_hits(query)[: check_top_k(top_k)]

    def all_hits(self, query: str | Query) -> list[Hit]:
        query = Query.of(query)
        query_words = set(DEFAULT_ANALYZER.query_tokens(query.text))
        hits = [
            Hit(document, float(len(query_words & set(DEFAULT_ANALYZER.tokens(document.text)))))
            for document in DOCUMENTS
            if query.filters is None or query.filters.matches(document.metadata)
        ]
        return sorted((hit for hit in hits if hit.score), key=lambda hit: -hit.score)


class FirstOnes(BaseRefiner):
    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        words = len(query.text.split())
        hits = tuple(replace(hit, score=hit.score + words) for hit in ranking.hits[:top_k])
        return replace(ranking, hits=hits, dropped={hit.key: "below the cut" for hit in ranking.hits[top_k:]})


class Overlap(BaseSelector):
    def __init__(self) -> None:
        self.calls = 0

    def select(self, choices: Sequence[Any], query: Query | str) -> SelectorResult:
        self.calls += 1
        query_words = set(DEFAULT_ANALYZER.query_tokens(Query.of(query).text))
        scores = [len(query_words & set(DEFAULT_ANALYZER.tokens(choice.text))) for choice in choices]
        return SelectorResult([SingleSelection(scores.index(max(scores)), "shares most words", 1.0)])


class ByLanguage(BaseRouter):
    def decide(self, query: str | Query, datasets: Sequence[Dataset]) -> RouteDecision:
        language = detect(Query.of(query).text)
        matching = [dataset for dataset in datasets if dataset.name == language]
        return RouteDecision(tuple(matching) or tuple(datasets), "the query's language")


class DoublingTransformer(BaseTransformer):
    def transform(self, query: str | Query) -> Transformed:
        query = Query.of(query)
        return Transformed(query, (Variant(f"{query.text} again", "synonym"),))


class InMemoryDocuments:
    """Documents by number."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = list(documents)

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        return [self.documents[key] if 0 <= key < len(self.documents) else None for key in keys]


class WordsByNumber:
    """A keyword index by brute force."""

    def __init__(self) -> None:
        self.counts = [Counter(DEFAULT_ANALYZER.tokens(document.searchable)) for document in DOCUMENTS]

    def score(self, query: str, keys: Sequence[int]) -> list[float]:
        scores = ChoiceIndex(self.counts).scores(DEFAULT_ANALYZER.query_tokens(query)).tolist()
        return [scores[key] if 0 <= key < len(scores) else 0.0 for key in keys]

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        scores = self.score(query, range(len(DOCUMENTS)))
        pairs = [
            (key, score)
            for key, score in enumerate(scores)
            if score and (filters is None or filters.matches(DOCUMENTS[key].metadata))
        ]
        return sorted(pairs, key=lambda pair: -pair[1])[:k]


class NearByNumber:
    """A vector index by brute force."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows = rows

    def score(self, vector: NDArray[np.float32], keys: Sequence[int]) -> list[float]:
        if vector.shape != self.rows.shape[1:] or not np.isfinite(vector).all():
            raise InputError("a vector as long as the others, of finite numbers, is wanted")
        cosines = (self.rows @ vector).tolist()
        return [cosines[key] if 0 <= key < len(cosines) else math.nan for key in keys]

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        scores = self.score(vector, range(len(self.rows)))
        pairs = [pair for pair in enumerate(scores) if filters is None or filters.matches(DOCUMENTS[pair[0]].metadata)]
        return sorted(pairs, key=lambda pair: -pair[1])[:k]


class GoodRetriever(OverAllDocuments):
    def make(self) -> Any:
        return Words()


class GoodRefiner(RefinerConformance):
    def make(self) -> Any:
        return FirstOnes()


class GoodReranker(RerankerConformance):
    def make(self) -> Any:
        return SharedWords()


class GoodSelector(SelectorConformance):
    def make(self) -> Any:
        return Overlap()

    def calls(self, selector: Any) -> int:
        return int(selector.calls)


class GoodRouter(RouterConformance):
    def make(self) -> Any:
        return ByLanguage()


class GoodTransformer(TransformerConformance):
    def make(self) -> Any:
        return DoublingTransformer()


class GoodEmbedder(EmbedderConformance):
    def make(self) -> Any:
        return HashingEmbedder()


class GoodMultimodalEmbedder(MultimodalEmbedderConformance):
    def make(self) -> Any:
        return ColourEmbedder()


class GoodLLM(LLMConformance):
    def make(self) -> Any:
        return ScriptedLLM(lambda _: "red")


class GoodDocumentStore(DocumentStoreConformance):
    def make(self) -> Any:
        return InMemoryDocuments(self.documents()), range(len(self.documents()))


class GoodKeywordIndex(KeywordIndexConformance):
    def make(self) -> Any:
        return WordsByNumber(), range(len(DOCUMENTS))


class GoodVectorIndex(VectorIndexConformance):
    def make(self) -> Any:
        return NearByNumber(self.vectors()), range(len(DOCUMENTS))


# ── what can be done to any of them ──────────────────────────────────────────────────────────────────────────────────

Change = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From a method to a worse one."""


def altered_query(question: Any) -> Any:
    """Something else to ask for."""
    if isinstance(question, Query):
        return replace(question, text="铁路锅炉")
    if isinstance(question, str):
        return "铁路锅炉"
    if isinstance(question, np.ndarray):
        return -question
    if isinstance(question, list) and question and isinstance(question[0], str):
        return ["铁路锅炉"] * len(question)
    return list(question)[1:] + list(question)[:1]


def return_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Answers None."""
    return lambda *args, **options: None


def forgetful(argument_index: int) -> Change:
    """Takes every second question for another one."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        calls = itertools.count()

        def worse(*args: Any, **options: Any) -> Any:
            if next(calls) % 3 == 2:
                args = (*args[:argument_index], altered_query(args[argument_index]), *args[argument_index + 1 :])
            return method(*args, **options)

        return worse

    return change


def sharing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps what it was asked where every thread sees it."""
    calls: dict[str, Any] = {}

    def worse(*args: Any, **options: Any) -> Any:
        calls["last"] = args
        time.sleep(0.1)  # others come meanwhile
        return method(*calls["last"], **options)

    return worse


def asharing(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same between tasks."""
    calls: dict[str, Any] = {}

    async def worse(*args: Any, **options: Any) -> Any:
        calls["last"] = args
        await asyncio.sleep(0.01)
        return await method(*calls["last"], **options)

    return worse


def text_of(question: Any) -> str:
    if isinstance(question, Query):
        return question.text
    return question if isinstance(question, str) else str(question[0])


def encoding(argument_index: int) -> Change:
    """Stumbles over what UTF-8 cannot hold."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        def worse(*args: Any, **options: Any) -> Any:
            text_of(args[argument_index]).encode()
            return method(*args, **options)

        return worse

    return change


def aencoding(argument_index: int) -> Change:
    """The same, where it is awaited."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        async def worse(*args: Any, **options: Any) -> Any:
            text_of(args[argument_index]).encode()
            return await method(*args, **options)

        return worse

    return change


def looping(method: Callable[..., Any]) -> Callable[..., Any]:
    """Starts an event loop where there is one already."""

    def worse(*args: Any, **options: Any) -> Any:
        loop, waiting = asyncio.new_event_loop(), asyncio.sleep(0)
        try:
            loop.run_until_complete(waiting)
        finally:
            waiting.close()
            loop.close()
        return method(*args, **options)

    return worse


def drifting(argument_index: int) -> Change:
    """Answers something else when it is awaited."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        async def worse(*args: Any, **options: Any) -> Any:
            return await method(
                *args[:argument_index], altered_query(args[argument_index]), *args[argument_index + 1 :], **options
            )

        return worse

    return change


def worn_out(method: Callable[..., Any]) -> Callable[..., Any]:
    """Works once."""
    calls = itertools.count()

    def worse(*args: Any, **options: Any) -> Any:
        if next(calls):
            raise ConnectionError("closed")
        return method(*args, **options)

    return worse


def exclusive(method: Callable[..., Any]) -> Callable[..., Any]:
    """Cannot bear two at once."""
    busy = threading.Lock()

    def worse(*args: Any, **options: Any) -> Any:
        if not busy.acquire(blocking=False):
            raise ConnectionError("busy")
        try:
            time.sleep(0.1)  # likewise
            return method(*args, **options)
        finally:
            busy.release()

    return worse


class Mutant(NamedTuple):
    """A suite with a good implementation, what is done to which method of it, and the test that notices."""

    suite: Any
    method: str
    change: Change
    test: str


TWINS = (
    (GoodRetriever, "retrieve", "aretrieve", 0),
    (GoodRefiner, "refine", "arefine", 0),
    (GoodReranker, "refine", "arefine", 0),
    (GoodSelector, "select", "aselect", 1),
    (GoodRouter, "decide", "adecide", 0),
    (GoodTransformer, "transform", "atransform", 0),
)
SYNC_ONLY = (
    (GoodEmbedder, "embed_queries", 0),
    (GoodDocumentStore, "fetch", 0),
    (GoodKeywordIndex, "search", 0),
    (GoodVectorIndex, "search", 0),
)
COMMON_MUTANTS = [
    *(Mutant(suite, sync, return_nothing, "test_answers_are_sound") for suite, sync, _, _ in TWINS),
    *(
        Mutant(suite, sync, forgetful(argument_index), "test_the_same_question_has_the_same_answer")
        for suite, sync, _, argument_index in TWINS
    ),
    *(Mutant(suite, sync, sharing, "test_many_threads_at_once") for suite, sync, _, _ in TWINS),
    *(Mutant(suite, sync, encoding(argument_index), "test_odd_texts") for suite, sync, _, argument_index in TWINS),
    *(
        Mutant(suite, twin, aencoding(argument_index), "test_awaits_odd_texts")
        for suite, _, twin, argument_index in TWINS
    ),
    *(Mutant(suite, sync, looping, "test_works_inside_a_running_event_loop") for suite, sync, _, _ in TWINS),
    *(
        Mutant(suite, twin, drifting(argument_index), "test_sync_and_async_agree")
        for suite, _, twin, argument_index in TWINS
    ),
    *(Mutant(suite, twin, asharing, "test_sync_and_async_agree") for suite, _, twin, _ in TWINS),
    *(Mutant(suite, sync, return_nothing, "test_answers_are_sound") for suite, sync, _ in SYNC_ONLY),
    *(
        Mutant(suite, sync, forgetful(argument_index), "test_the_same_question_has_the_same_answer")
        for suite, sync, argument_index in SYNC_ONLY
    ),
    *(Mutant(suite, sync, sharing, "test_many_threads_at_once") for suite, sync, _ in SYNC_ONLY),
    Mutant(GoodEmbedder, "embed_queries", encoding(0), "test_odd_texts"),
    Mutant(GoodKeywordIndex, "search", encoding(0), "test_odd_texts"),
    Mutant(GoodLLM, "complete", return_nothing, "test_answers_are_sound"),
    Mutant(GoodLLM, "complete", worn_out, "test_the_same_question_has_the_same_answer"),
    Mutant(GoodLLM, "complete", exclusive, "test_many_threads_at_once"),
]


# ── what can be done to one kind ─────────────────────────────────────────────────────────────────────────────────────


def change_result(spoil: Callable[..., Any]) -> Change:
    """Does something to the answer."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: spoil(method(*args, **options))

    return change


def replace_method(act: Callable[..., Any]) -> Change:
    """Does something of its own, given the method and what it was called with."""

    def change(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: act(method, *args, **options)

    return change


def remembering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hands out what it remembers."""
    answers: dict[str, Any] = {}

    def worse(question: Any, *args: Any, **options: Any) -> Any:
        key = f"{question} {args} {options}"
        if key not in answers:
            answers[key] = method(question, *args, **options)
        return answers[key]

    return worse


def edit(instance: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(instance, name, value)


def edits_query(method: Any, query: Any, *args: Any, **options: Any) -> Any:
    answer = method(query, *args, **options)
    if isinstance(query, Query):
        edit(query, text=query.text.lower() + "?")
    return answer


def accepts_any_top_k(method: Any, query: Any, top_k: Any = 10) -> Any:
    return Words().all_hits(query)[: top_k if isinstance(top_k, int) else None]


def filters_late(method: Any, query: Any, top_k: int = 10) -> Any:
    query = Query.of(query)
    hits = method(query.text, top_k)
    return [hit for hit in hits if query.filters is None or query.filters.matches(hit.metadata)]


def edits_ranking(method: Any, query: Query, ranking: Ranked, top_k: int) -> Any:
    answer = method(query, ranking, top_k)
    for hit in ranking.hits:
        hit.document.metadata["seen"] = True  # type: ignore[index]
    return answer


def edits_first(method: Any, first: Any, *args: Any, **options: Any) -> Any:
    answer = method(first, *args, **options)
    first.reverse()
    return answer


def edits_documents(method: Any, query: Any, documents: Any, top_n: int | None = 4) -> Any:
    answer = method(query, documents, top_n)
    for document in documents:
        document.metadata["score"] = 1.0
    return answer


def turned_ties(method: Any, query: Any, documents: Any, top_n: int | None = 4) -> Any:
    return sorted(method(query, documents[::-1], None), key=lambda document: -document.metadata["score"])[:top_n]


def raising(error: Exception) -> Change:
    def act(*_: Any, **__: Any) -> Any:
        raise error

    return replace_method(act)


def fails_upward(method: Any, query: Any, ranking: Ranked, top_k: int) -> Any:
    answer = method(query, ranking, top_k)
    if answer.degraded:
        raise LookupError("the model is gone")
    return answer


def fails_silently(method: Any, query: Any, ranking: Ranked, top_k: int) -> Any:
    return replace(method(query, ranking, top_k), degraded=())


def reorders_failures(method: Any, query: Any, ranking: Ranked, top_k: int) -> Any:
    answer = method(query, ranking, top_k)
    return replace(answer, hits=answer.hits[::-1]) if answer.degraded else answer


def drops_the_rest(method: Any, query: Any, ranking: Ranked, top_k: int) -> Any:
    return method(query, replace(ranking, hits=ranking.hits[: method.__self__.max_candidates]), top_k)


def no_schema(method: Any) -> Any:
    return lambda prompt, schema=None: method(prompt) if schema is None else None


def renames(subject: Any) -> None:
    names = itertools.count()
    subject.__class__ = type("Renamed", (type(subject),), {"name": property(lambda _: f"number {next(names)}")})


def selection(*indices: int, score: Any = None, confidence: Any = None, reason: str = "why") -> Change:
    selections = [SingleSelection(index, reason, score) for index in indices]
    return replace_method(lambda *_: SelectorResult(selections, confidence))


def only_if(condition: Callable[..., bool], change: Change) -> Change:
    """The change for some calls alone."""

    def conditional(method: Callable[..., Any]) -> Callable[..., Any]:
        worse = change(method)
        return lambda *args, **options: (worse if condition(*args) else method)(*args, **options)

    return conditional


def route(*datasets: Any) -> Change:
    return replace_method(lambda *_: RouteDecision(datasets, "why"))


def variants(*fixed_variants: Variant) -> Change:
    return replace_method(lambda _, query: Transformed(Query.of(query), fixed_variants))


def of_batch(method: Any, texts: Sequence[str]) -> Any:
    rows = method(texts).astype(np.float64) + len(texts) * 1e-3
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) if len(texts) else method(texts)


def one_for_all(method: Any, texts: Sequence[str]) -> Any:
    return method(["the same"] * len(texts))


def grows(subject: Any) -> None:
    names = itertools.count(64)
    subject.__class__ = type("Growing", (type(subject),), {"name": property(lambda _: f"hashing {next(names)}")})


def filters_after_cut(method: Any, query: Any, k: int, filters: Filter | None = None) -> Any:
    pairs = method(query, k)
    return [pair for pair in pairs if filters is None or filters.matches(DOCUMENTS[pair[0]].metadata)]


def tells_nothing_of_odd(method: Any, vector: Any, k: int, filters: Filter | None = None) -> Any:
    return method(vector, k, filters) if np.isfinite(vector).all() else [(0, math.nan)]


def mixes_the_batch(method: Any, images: Any) -> Any:
    rows = method(images) + np.float32(0.01 * len(images))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def all_the_same(rows: Any) -> Any:
    return np.full_like(rows, 0.5)


def embeds_anything(method: Any, images: Any) -> Any:
    try:
        return method(images)
    except InputError:
        return np.full((len(images), 4), 0.5, np.float32)


TOP = "test_answers_are_sound"
R, F, K, S, O, T, E, L, D, W, V, M = (  # noqa: E741  (a table is read by its columns)
    *(GoodRetriever, GoodRefiner, GoodReranker, GoodSelector, GoodRouter, GoodTransformer),
    *(GoodEmbedder, GoodLLM, GoodDocumentStore, GoodKeywordIndex, GoodVectorIndex, GoodMultimodalEmbedder),
)
SPECIAL = [
    Mutant(M, "embed_images", change_result(lambda rows: rows[:1]), "test_several_images"),
    Mutant(M, "embed_images", change_result(lambda rows: rows * 2), "test_several_images"),
    Mutant(M, "embed_images", replace_method(mixes_the_batch), "test_an_image_does_not_depend_on_its_batch"),
    Mutant(M, "embed_images", change_result(all_the_same), "test_different_images_have_different_vectors"),
    Mutant(M, "embed_images", replace_method(embeds_anything), "test_what_is_no_image_is_refused"),
    Mutant(R, "retrieve", change_result(tuple), TOP),
    Mutant(R, "retrieve", change_result(lambda hits: [hit.document for hit in hits]), TOP),
    Mutant(R, "retrieve", change_result(lambda hits: hits[::-1]), TOP),
    Mutant(R, "retrieve", change_result(lambda hits: [replace(hit, score=math.nan) for hit in hits]), TOP),
    Mutant(R, "retrieve", change_result(lambda hits: [replace(hit, score=np.float32(hit.score)) for hit in hits]), TOP),
    Mutant(R, "retrieve", change_result(lambda hits: [hits[0], *hits[:-1]]), TOP),
    Mutant(
        R, "retrieve", replace_method(lambda method, query, top_k=10: method(query, top_k + 1)), "test_at_most_top_k"
    ),
    Mutant(R, "retrieve", change_result(lambda hits: []), "test_finds_something"),
    Mutant(
        R,
        "retrieve",
        only_if(
            lambda query, *_: isinstance(query, Query),
            replace_method(lambda method, query, top_k=10: method(altered_query(query), top_k)),
        ),
        "test_text_and_query_find_the_same",
    ),
    Mutant(R, "retrieve", replace_method(edits_query), "test_the_query_is_left_as_it_is"),
    Mutant(R, "retrieve", remembering, "test_the_answer_is_the_callers"),
    Mutant(R, "retrieve", replace_method(accepts_any_top_k), "test_a_bad_top_k_is_refused"),
    Mutant(
        R,
        "retrieve",
        replace_method(
            lambda method, query, top_k=10: method(query if isinstance(query, Query) else str(query), top_k)
        ),
        "test_a_query_that_is_no_text_is_refused",
    ),
    Mutant(
        R,
        "retrieve",
        replace_method(lambda method, query, top_k=10: method(Query.of(query).text, top_k)),
        "test_filters_are_honoured",
    ),
    Mutant(R, "retrieve", replace_method(filters_late), "test_filters_act_before_the_cut"),
    Mutant(F, "refine", change_result(lambda ranking: ranking.hits), TOP),
    Mutant(F, "refine", change_result(lambda ranking: replace(ranking, dropped={})), TOP),
    Mutant(F, "refine", change_result(lambda ranking: replace(ranking, hits=(*ranking.hits, ranking.hits[0]))), TOP),
    Mutant(F, "refine", change_result(lambda ranking: replace(ranking, hits=list(ranking.hits))), TOP),
    Mutant(
        F, "refine", change_result(lambda ranking: replace(ranking, hits=(Hit(Document("new", "text"), 1.0),))), TOP
    ),
    Mutant(F, "refine", change_result(lambda ranking: replace(ranking, refused=Refusal("no"))), TOP),
    Mutant(F, "refine", change_result(lambda ranking: replace(ranking, scale="")), TOP),
    Mutant(F, "refine", replace_method(edits_ranking), "test_what_came_in_is_left_as_it_was"),
    Mutant(F, "refine", change_result(lambda ranking: ranking.hits[0] and ranking), "test_an_empty_ranking"),
    Mutant(
        F,
        "refine",
        change_result(lambda ranking: [hit.text.encode() for hit in ranking.hits] and ranking),
        "test_odd_documents",
    ),
    Mutant(F, "depth", replace_method(lambda _, top_k, scale: min(top_k, 10)), "test_stage_and_depth"),
    Mutant(K, "refine", replace_method(edits_ranking), "test_what_came_in_is_left_as_it_was"),
    Mutant(K, "refine", change_result(lambda ranking: ranking.hits[0] and ranking), "test_an_empty_ranking"),
    Mutant(
        K,
        "refine",
        change_result(lambda ranking: [hit.text.encode() for hit in ranking.hits] and ranking),
        "test_odd_documents",
    ),
    Mutant(K, "depth", replace_method(lambda _, top_k, scale: 20), "test_stage_and_depth"),
    Mutant(K, "refine", change_result(lambda ranking: replace(ranking, hits=ranking.hits[:5])), TOP),
    Mutant(K, "refine", change_result(lambda ranking: replace(ranking, hits=ranking.hits[::-1])), TOP),
    Mutant(K, "rerank", change_result(lambda documents: documents[:-1]), "test_rerank_gives_back_the_documents"),
    Mutant(
        K,
        "rerank",
        change_result(lambda documents: [replace(document, text="") for document in documents]),
        "test_rerank_gives_back_the_documents",
    ),
    Mutant(
        K,
        "rerank",
        change_result(lambda documents: [replace(document, metadata={}) for document in documents]),
        "test_scores_stand_in_the_metadata",
    ),
    Mutant(K, "rerank", change_result(lambda documents: documents[::-1]), "test_scores_stand_in_the_metadata"),
    Mutant(
        K,
        "rerank",
        replace_method(lambda method, query, documents, top_n=5: method(query, documents, top_n)),
        "test_top_n_cuts_and_no_more",
    ),
    Mutant(
        K,
        "rerank",
        replace_method(lambda method, query, documents, top_n=4: method(query, documents[-(top_n or 100) :], top_n)),
        "test_top_n_cuts_and_no_more",
    ),
    Mutant(K, "rerank", replace_method(edits_documents), "test_documents_are_left_as_they_were"),
    Mutant(K, "rerank", replace_method(turned_ties), "test_equal_documents_stay_in_order"),
    Mutant(K, "arerank", drifting(0), "test_rerank_awaited_and_with_a_query"),
    Mutant(K, "rerank", raising(IndexError("no documents")), "test_no_documents"),
    Mutant(
        K,
        "rerank",
        replace_method(
            lambda method, query, documents, top_n=4: method(query, documents, None)[
                : top_n if top_n is None or isinstance(top_n, int) else 1
            ]
        ),
        "test_a_bad_top_n_is_refused",
    ),
    Mutant(
        K,
        "rerank",
        replace_method(lambda method, query, documents, top_n=4: documents[:top_n]),
        "test_what_is_no_document_is_refused",
    ),
    Mutant(K, "", renames, "test_a_name_that_stays"),  # type: ignore[arg-type]
    Mutant(K, "refine", replace_method(drops_the_rest), "test_refine_keeps_hits_beyond_its_budget"),
    Mutant(K, "refine_many", change_result(lambda rankings: rankings[::-1]), "test_several_rankings_as_one_by_one"),
    Mutant(K, "refine", replace_method(fails_upward), "test_a_failure_leaves_the_order_and_is_told"),
    Mutant(K, "refine", replace_method(fails_silently), "test_a_failure_leaves_the_order_and_is_told"),
    Mutant(K, "refine", replace_method(reorders_failures), "test_a_failure_leaves_the_order_and_is_told"),
    Mutant(
        K,
        "rerank",
        replace_method(lambda method, query, documents, top_n=4: list(documents)[:top_n]),
        "test_a_failure_leaves_the_order_and_is_told",
    ),
    Mutant(K, "refine", replace_method(fails_silently), "test_one_that_hangs_is_not_waited_for"),
    Mutant(S, "select", selection(3), TOP),
    Mutant(S, "select", selection(-1), TOP),
    Mutant(S, "select", selection(1, 1), TOP),
    Mutant(S, "select", selection(), TOP),
    Mutant(S, "select", selection(1, reason=""), TOP),
    Mutant(S, "select", selection(1, score=math.nan), TOP),
    Mutant(S, "select", selection(1, confidence=1.5), TOP),
    Mutant(
        S, "select", only_if(lambda choices, _: len(choices) == 1, selection(1)), "test_a_single_choice_needs_no_model"
    ),
    Mutant(S, "select", selection(0), "test_no_choices_are_refused"),
    Mutant(
        S, "select", only_if(lambda choices, _: len(choices) > 0, selection(0)), "test_what_is_no_choice_is_refused"
    ),
    Mutant(
        S,
        "select",
        only_if(lambda choices, query: isinstance(query, Query), selection(2)),
        "test_text_and_query_choose_the_same",
    ),
    Mutant(
        S,
        "select",
        only_if(lambda choices, query: isinstance(choices[0], str), selection(2)),
        "test_text_and_query_choose_the_same",
    ),
    Mutant(S, "select", replace_method(edits_first), "test_choices_are_left_as_they_were"),
    Mutant(S, "select", only_if(lambda choices, _: len(choices) > 3, selection(6, 98)), "test_hostile_choices"),
    Mutant(
        S,
        "select",
        only_if(lambda choices, _: len(choices) > 3, raising(UnicodeEncodeError("utf-8", "x", 0, 1, "lone"))),
        "test_hostile_choices",
    ),
    Mutant(O, "decide", route(), TOP),
    Mutant(O, "decide", route(Dataset("elsewhere")), TOP),
    Mutant(O, "route", change_result(lambda datasets: datasets * 2), "test_route_and_decide_agree"),
    Mutant(O, "route", change_result(lambda datasets: []), "test_the_only_dataset"),
    Mutant(O, "decide", route(Dataset("elsewhere")), "test_bad_datasets_are_refused"),
    Mutant(T, "transform", variants(Variant(" ", "synonym")), TOP),
    Mutant(T, "transform", variants(Variant("Red signal lamp beside the track?", "synonym")), TOP),
    Mutant(T, "transform", variants(Variant("a", "synonym"), Variant("A.", "synonym")), TOP),
    Mutant(T, "transform", variants(Variant("a", "synonym", math.inf)), TOP),
    Mutant(T, "transform", variants(Variant("a", "synonym", -1.0)), TOP),
    Mutant(T, "transform", change_result(lambda transformation: replace(transformation, query=Query(""))), TOP),
    Mutant(
        T,
        "transform",
        change_result(lambda transformation: replace(transformation, query=Query(transformation.query.text))),
        "test_filters_are_kept",
    ),
    Mutant(
        T,
        "transform",
        only_if(lambda query: not Query.of(query).text, raising(InputError("empty"))),
        "test_odd_texts_raise_nothing",
    ),
    Mutant(E, "embed_queries", change_result(lambda rows: rows.tolist()), TOP),
    Mutant(E, "embed_queries", change_result(lambda rows: rows.astype(np.float64)), TOP),
    Mutant(E, "embed_queries", change_result(lambda rows: rows * 2), TOP),
    Mutant(E, "embed_documents", change_result(lambda rows: rows[:, :-1]), TOP),
    Mutant(E, "embed_documents", change_result(lambda rows: rows[:1]), "test_several_texts"),
    Mutant(
        E,
        "embed_queries",
        only_if(lambda texts: not texts, change_result(lambda rows: np.zeros((0,), np.float32))),
        "test_no_texts",
    ),
    Mutant(E, "embed_queries", replace_method(of_batch), "test_a_text_does_not_depend_on_its_batch"),
    Mutant(
        E,
        "embed_documents",
        replace_method(lambda method, texts: method(sorted(texts))),
        "test_a_text_does_not_depend_on_its_batch",
    ),
    Mutant(E, "embed_documents", replace_method(one_for_all), "test_different_texts_have_different_vectors"),
    Mutant(E, "embed_documents", replace_method(edits_first), "test_texts_are_left_as_they_were"),
    Mutant(E, "embed_documents", remembering, "test_vectors_are_the_callers"),
    Mutant(E, "", grows, "test_name_and_dimensions_stay"),  # type: ignore[arg-type]
    Mutant(L, "complete", change_result(lambda completion: completion.text.encode()), TOP),
    Mutant(L, "complete", no_schema, "test_a_schema_does_no_harm"),
    Mutant(D, "fetch", change_result(tuple), TOP),
    Mutant(
        D,
        "fetch",
        change_result(
            lambda documents: [
                document and replace(document, text=document.text.replace("\0", "")) for document in documents
            ]
        ),
        "test_every_document_alone",
    ),
    Mutant(D, "fetch", replace_method(lambda method, keys: method(sorted(set(keys)))), "test_the_order_of_the_keys"),
    Mutant(
        D,
        "fetch",
        change_result(lambda documents: [document for document in documents if document]),
        "test_unknown_keys",
    ),
    Mutant(D, "fetch", replace_method(lambda method, keys: method([keys[0], *keys[1:]])), "test_no_keys"),
    Mutant(W, "search", change_result(lambda pairs: pairs[::-1]), TOP),
    Mutant(W, "search", change_result(lambda pairs: [(10**6, 9.0), *pairs][:5]), TOP),
    Mutant(
        W,
        "search",
        replace_method(lambda method, query, k, filters=None: method(query, k + 1, filters)),
        "test_at_most_k",
    ),
    Mutant(
        W,
        "search",
        replace_method(
            lambda method, query, k, filters=None: sorted(method(query, 100, filters)[-k:], key=lambda pair: -pair[1])
        ),
        "test_at_most_k",
    ),
    Mutant(
        W,
        "search",
        change_result(lambda pairs: [(key, 2 * score) for key, score in pairs]),
        "test_search_and_score_agree",
    ),
    Mutant(
        W,
        "score",
        replace_method(lambda method, query, keys: method(query, sorted(keys))),
        "test_search_and_score_agree",
    ),
    Mutant(W, "score", replace_method(lambda method, query, keys: method(query, keys or [0])), "test_no_keys"),
    Mutant(
        W,
        "search",
        replace_method(lambda method, query, k, filters=None: method(query, k)),
        "test_filters_are_honoured",
    ),
    Mutant(W, "search", replace_method(filters_after_cut), "test_filters_act_before_the_cut"),
    Mutant(
        W,
        "search",
        replace_method(
            lambda method, query, k, filters=None: method(query.encode("ascii", "ignore").decode(), k, filters)
        ),
        "test_words_of_every_language_are_found",
    ),
    Mutant(
        W,
        "score",
        change_result(lambda scores: [score or 0.1 for score in scores]),
        "test_what_has_no_word_scores_nothing",
    ),
    Mutant(
        W,
        "search",
        replace_method(
            lambda method, query, k, filters=None: sorted(
                method(query, k, filters), key=lambda pair: -len(DOCUMENTS[pair[0]].text)
            )
        ),
        "test_rare_words_count_more",
    ),
    Mutant(V, "search", change_result(lambda pairs: [key for key, _ in pairs]), TOP),
    Mutant(
        V,
        "search",
        replace_method(lambda method, vector, k, filters=None: method(vector, k + 1, filters)),
        "test_at_most_k",
    ),
    Mutant(
        V,
        "search",
        change_result(lambda pairs: [(key, score - 1) for key, score in pairs]),
        "test_search_and_score_agree",
    ),
    Mutant(V, "score", replace_method(lambda method, vector, keys: method(vector, keys or [0])), "test_no_keys"),
    Mutant(
        V,
        "search",
        replace_method(lambda method, vector, k, filters=None: method(vector, k)),
        "test_filters_are_honoured",
    ),
    Mutant(V, "search", replace_method(filters_after_cut), "test_filters_act_before_the_cut"),
    Mutant(V, "search", change_result(lambda pairs: pairs[:-1]), "test_the_nearest_are_found"),
    Mutant(
        V,
        "score",
        change_result(lambda scores: [0.0 if math.isnan(score) else score for score in scores]),
        "test_unknown_keys_have_no_cosine",
    ),
    Mutant(V, "search", replace_method(tells_nothing_of_odd), "test_odd_vectors"),
    Mutant(
        V,
        "score",
        replace_method(lambda method, vector, keys: (method(vector, keys), vector.fill(0))[0]),
        "test_the_vector_is_left_as_it_was",
    ),
]


def suite_of(mutant: Mutant) -> Any:
    """The suite, over the good implementation after the change."""
    suite = mutant.suite()
    subjects: list[Any] = []

    def make() -> Any:
        if not subjects:
            subject = mutant.suite().make()
            target = subject[0] if isinstance(subject, tuple) else subject
            if mutant.method:
                setattr(target, mutant.method, mutant.change(getattr(target, mutant.method)))
            else:
                mutant.change(target)
            subjects.append(subject)
        return subjects[0]

    suite.make = make
    return suite


@pytest.mark.parametrize(
    "mutant", [*COMMON_MUTANTS, *SPECIAL], ids=lambda mutant: f"{mutant.suite.__name__}-{mutant.test}"
)
def test_what_breaks_a_promise_fails_the_test_of_that_promise(mutant: Mutant) -> None:
    with pytest.raises(AssertionError) as error_info:
        getattr(suite_of(mutant), mutant.test)()
    assert len(str(error_info.value)) > 20  # it tells


GOOD = (R, F, K, S, O, T, E, L, D, W, V, M)


def promises_of(suite: Any) -> list[str]:
    return [name for name in dir(suite) if name.startswith("test_")]


@pytest.mark.parametrize(("suite", "test"), [(suite, test) for suite in GOOD for test in promises_of(suite)])
def test_every_test_of_every_suite_can_pass_and_fail(suite: Any, test: str) -> None:
    getattr(suite(), test)()
    assert any(mutant.suite is suite and mutant.test == test for mutant in [*COMMON_MUTANTS, *SPECIAL])


def test_every_suite_is_here() -> None:
    public_suites = {name for name in testing.__all__ if name.endswith("Conformance")}
    suites = {suite.__mro__[1] for suite in GOOD if suite is not R}
    assert public_suites == {
        suite.__name__ for suite in suites if suite.__module__.startswith("pointsman.evaluation.conformance")
    } | {
        "RetrieverConformance",
        "StoreConformance",  # see test_stores
    }


@pytest.mark.parametrize("suite", [getattr(testing, name) for name in testing.__all__ if name.endswith("Conformance")])
def test_a_suite_says_what_it_wants(suite: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"overrides make(_store)?\(\) and returns"):
        suite().make()


def test_importing_the_suites_needs_no_pytest() -> None:
    code = "import sys, pointsman.evaluation.conformance; print(' '.join(sys.modules))"
    assert "pytest" not in subprocess.check_output([sys.executable, "-c", code], text=True).split()


def test_a_users_file_is_four_lines(tmp_path: Any) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from pointsman.evaluation.conformance import RetrieverConformance\n"
        "from pointsman import BaseRetriever\n\n"
        "class Empty(BaseRetriever):\n    def retrieve(self, query, top_k=10):\n        return []\n\n"
        "class TestMine(RetrieverConformance):\n    def make(self):\n        return Empty()\n",
        "utf-8",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "override answerable_query() with a query that has some" in ran.stdout
    assert "2 skipped" in ran.stdout
