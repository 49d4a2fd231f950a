"""Our own implementations pass the public suites; and each test of each suite fails for one that breaks its promise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

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
    HybridRetriever,
    HybridSelector,
    KeywordRetriever,
    LLMRouter,
    LLMSelector,
    Query,
    RandomSelector,
    RouterRetriever,
    RuleSelector,
    ScriptedLLM,
    SelectorRouter,
    SimpleHybridRetriever,
    VectorRetriever,
    default_embedder,
    keyword_match_rule,
)
from pointsman.dataset import DatasetRetriever
from pointsman.models.scripted import HashingEmbedder
from pointsman.retrieval.compress import ExtractiveCompressor, LLMCompressor, LostInTheMiddle
from pointsman.retrieval.diversity import Diversifier
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.refuse import Refuser
from pointsman.retrieval.rerank import BaseReranker, CalibratedReranker, LLMReranker
from pointsman.retrieval.transform import (
    BaseTransformer,
    LLMExpander,
    QueryTransformer,
    RuleDecomposer,
    RuleDisambiguator,
    RuleExpander,
)
from pointsman.testing import (
    DOCUMENTS,
    FILTERS,
    DocumentStoreConformance,
    EmbedderConformance,
    KeywordIndexConformance,
    LLMConformance,
    RefinerConformance,
    RerankerConformance,
    RetrieverConformance,
    RouterConformance,
    SelectorConformance,
    TransformerConformance,
    VectorIndexConformance,
)

if TYPE_CHECKING:
    from pointsman.protocols import DocumentStore, Embedder, KeywordIndex, Retriever, VectorIndex
    from pointsman.store.collection import Collection

EVERYWHERE = "red signal lamp track engine bridge 信号 锅炉 大桥 фонарь паровоз мост"
"""A query with a word for every document."""


@cache
def dataset() -> Dataset:
    made = Dataset("rails", embedder=HashingEmbedder())
    made.add(DOCUMENTS)
    return made


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    dataset().close()


def stores() -> Collection:
    return dataset().stores


# ── retrievers ───────────────────────────────────────────────────────────────────────────────────────────────────────


class OverAllDocuments(RetrieverConformance):
    def answerable_query(self) -> str:
        return EVERYWHERE

    def filters(self) -> Sequence[Filter]:
        return FILTERS[:6]


def keyword() -> KeywordRetriever[int]:
    return KeywordRetriever(stores().keyword, stores().truth)


def vector() -> VectorRetriever[int]:
    near = stores().vectors
    assert near is not None
    return VectorRetriever(near, stores().truth, HashingEmbedder())


class TestKeywordRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return keyword()


class TestVectorRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return vector()


class TestHybridRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        near = stores().vectors
        assert near is not None
        return HybridRetriever(
            stores().keyword, near, stores().truth, HashingEmbedder(), spread=lambda: dataset().cosine_spread
        )


class TestSimpleHybridRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return SimpleHybridRetriever(keyword(), vector())


class TestDatasetRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return DatasetRetriever(dataset())


class TestRouterRetriever(OverAllDocuments):
    def make(self) -> Retriever:
        return RouterRetriever([keyword(), vector()], ["words", "meaning"], LLMSelector(both(), True, 2))


class TestRouterRetrieverToOne(OverAllDocuments):
    def make(self) -> Retriever:
        return RouterRetriever([keyword(), vector()], ["rails", "trains"], RuleSelector([keyword_match_rule]))


def both() -> ScriptedLLM:
    return ScriptedLLM(lambda _: [{"choice": 1, "reason": "words"}, {"choice": 2, "reason": "meaning"}])


# ── refiners ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestRefuser(RefinerConformance):
    def make(self) -> BaseRefiner:
        return Refuser(embedder="multilingual-e5-small-q4-1")


class TestDiversifier(RefinerConformance):
    def make(self) -> BaseRefiner:
        return Diversifier(max_per_dataset=6, near_duplicates=0.9, mmr_lambda=0.7)


class TestExtractiveCompressor(RefinerConformance):
    def make(self) -> BaseRefiner:
        return ExtractiveCompressor(HashingEmbedder(), max_chars=120)


class TestLLMCompressor(RefinerConformance):
    def make(self) -> BaseRefiner:
        return LLMCompressor(ScriptedLLM(lambda _: {"keep": [1]}), max_chars=120)


class TestLostInTheMiddle(RefinerConformance):
    def make(self) -> BaseRefiner:
        return LostInTheMiddle()


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


@cache
def holding(documents: tuple[Document, ...], by_hash: bool = False) -> Dataset:
    raise NotImplementedError


class TestTruth(DocumentStoreConformance):
    made: Dataset | None = None

    def make(self) -> tuple[DocumentStore[int], Sequence[int]]:
        cls = type(self)
        if cls.made is None:
            cls.made = Dataset("odd", "", "keyword")
            cls.made.add(self.documents())
        keys = cls.made.stores.truth.keys([document.id for document in self.documents()])
        return cls.made.stores.truth, [keys[document.id] for document in self.documents()]


class TestKeywordIndex(KeywordIndexConformance):
    def make(self) -> tuple[KeywordIndex[int], Sequence[int]]:
        return stores().keyword, [dataset().key(document.id) or 0 for document in DOCUMENTS]


class TestExactKeywordIndex(KeywordIndexConformance):
    made: Dataset | None = None

    def make(self) -> tuple[KeywordIndex[int], Sequence[int]]:
        cls = type(self)
        if cls.made is None:
            cls.made = Dataset("exact", "", "keyword", bm25_k1=0.9, bm25_b=0.4)
            cls.made.add(DOCUMENTS)
        return cls.made.stores.keyword, [cls.made.key(document.id) or 0 for document in DOCUMENTS]


class TestVectorIndex(VectorIndexConformance):
    made: Dataset | None = None

    def make(self) -> tuple[VectorIndex[int], Sequence[int]]:
        cls = type(self)
        if cls.made is None:
            cls.made = Dataset("vectors", "", "vector", embedder=HashingEmbedder(16))
            cls.made.add(DOCUMENTS, vectors=self.vectors())
        near = cls.made.stores.vectors
        assert near is not None
        return near, [cls.made.key(document.id) or 0 for document in DOCUMENTS]
