"""X1: Pointsman in LlamaIndex and the other way; its cases are written anew, as LlamaIndex publishes no suite."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.core")

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.base.response.schema import Response
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine, RouterQueryEngine
from llama_index.core.response_synthesizers import TreeSummarize
from llama_index.core.retrievers import BaseRetriever as TheirRetriever
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.tools import ToolMetadata as TheirToolMetadata
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from packaging.version import Version

import pointsman
from clauses_kit import BEFORE, CLAUSES, QUESTION, REASON
from pointsman import (
    CalibratedReranker,
    Dataset,
    EmbeddingSelector,
    LLMSelector,
    Query,
    ScriptedLLM,
    SimpleHybridRetriever,
    parse_filter,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.llama_index import (
    LlamaIndexEmbedder,
    LlamaIndexRetriever,
    PointsmanEmbedding,
    PointsmanRerank,
    PointsmanRetriever,
    PointsmanSelector,
    PointsmanVectorStore,
    hit_of,
    llama_index_queries,
    node_of,
    query_of,
)
from pointsman.selector import BaseSelector, SelectorResult
from pointsman.service.server.app import create_app
from pointsman.tools.errors import FilterError, InputError, ModelError, PointsmanError, UnmetNeedError
from pointsman.values.settings import Settings
from serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
TEXTS = ["a red signal stops trains", "a green signal lets trains pass", "bread is baked in an oven"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the only one that LlamaIndex runs under


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    with Dataset("rails", path=tmp_path / "rails", embedder=HashingEmbedder(512)) as dataset:
        dataset.add([{"id": str(n), "text": text, "metadata": {"n": n}} for n, text in enumerate(TEXTS)])
        yield dataset


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_values_map_one_to_one() -> None:
    assert query_of("why?") == query_of(QueryBundle("why?")) == Query("why?")
    node_with_score = NodeWithScore(node=TextNode(id_="a", text="text", metadata={"n": 1}), score=0.25)
    hit = hit_of(node_with_score)
    assert (hit.id, hit.text, hit.metadata, hit.score) == ("a", "text", {"n": 1}, 0.25)
    assert node_of(hit) == node_with_score
    assert hit_of(NodeWithScore(node=node_with_score.node), rank=4).score == 0.25


# ── retriever ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_retriever_answers_in_engines_of_llama_index(dataset: Dataset) -> None:
    retriever = PointsmanRetriever(dataset, 1, strategy="bm25", refuse=False)
    (node,) = retriever.retrieve("baked bread")
    assert (node.node.node_id, node.text) == ("2", TEXTS[2])
    assert node.node.metadata == {"n": 2, "verdict": "answered", "odds": "possible"}
    assert await retriever.aretrieve(QueryBundle("baked bread")) == [node]
    engine = RetrieverQueryEngine(retriever, TreeSummarize(llm=MockLLM()))
    assert [node.node_id for node in engine.query("baked bread").source_nodes] == ["2"]
    filtering = PointsmanRetriever(
        dataset, filters=MetadataFilters(filters=[MetadataFilter(key="n", value=1)]), refuse=False
    )
    assert [node.node_id for node in filtering.retrieve("signal")] == ["1"]
    own_retriever = PointsmanRetriever(dataset.retriever("bm25"), filters=parse_filter("n = 0"))
    assert [node.node_id for node in await own_retriever.aretrieve("signal")] == ["0"]
    with pytest.raises(InputError, match="a source is"):
        PointsmanRetriever(7)
    with pytest.raises(InputError, match="from 1 up"):
        PointsmanRetriever(dataset, 0)


# ── selector ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Echo(CustomQueryEngine):
    """A query engine that says its name."""

    name: str

    def custom_query(self, query_str: str) -> Response:
        return Response(self.name)


def tools() -> list[QueryEngineTool]:
    return [
        QueryEngineTool.from_defaults(Echo(name=name), name=name, description=description)
        for name, description in (("rails", "signals and trains"), ("kitchen", "bread and ovens"), ("sky", "weather"))
    ]


def chosen_indices(router: RouterQueryEngine, query: str) -> list[int]:
    return list((router.query(query).metadata or {})["selector_result"].inds)


async def test_a_single_selector_in_a_router() -> None:
    selector = PointsmanSelector(EmbeddingSelector(HashingEmbedder(512)))
    router = RouterQueryEngine(selector=selector, query_engine_tools=tools(), llm=MockLLM())
    assert str(router.query("is bread baked in ovens?")) == "kitchen"
    assert str(await router.aquery("signals and trains")) == "rails"
    assert chosen_indices(router, "is bread baked in ovens?") == [1]


def test_a_multi_selector_in_a_router() -> None:
    llm = ScriptedLLM(['[{"choice": 1}, {"choice": 3}]'])
    selector = PointsmanSelector(LLMSelector(llm, select_multi=True, max_outputs=2))
    router = RouterQueryEngine(
        selector=selector, query_engine_tools=tools(), llm=MockLLM(), summarizer=TreeSummarize(llm=MockLLM())
    )
    answer = router.query("trains in the rain")
    assert (answer.metadata or {})["selector_result"].inds == [0, 2]
    assert "rails" in str(answer)
    assert "sky" in str(answer)
    assert "kitchen" not in str(answer)


def test_a_selector_chooses_retrievers_too(dataset: Dataset) -> None:
    retrievers = [
        RetrieverTool.from_defaults(PointsmanRetriever(dataset.retriever("bm25")), description="signals and trains"),
        RetrieverTool.from_defaults(FixedRetriever([]), description="bread"),
    ]
    router = RouterRetriever(PointsmanSelector(EmbeddingSelector(HashingEmbedder(512))), retrievers, llm=MockLLM())
    assert {node.node_id for node in router.retrieve("signals")} == {"0", "1"}


async def test_choices_without_a_name_and_abstention() -> None:
    class Abstaining(BaseSelector):
        allow_abstain = True

        def select(self, choices: Any, query: Any) -> SelectorResult:
            assert [choice.text for choice in choices] == ["bread", "rails: trains"]
            return SelectorResult([])

    choices: list[str | TheirToolMetadata] = ["bread", TheirToolMetadata(description="trains", name="rails")]
    result = await PointsmanSelector(Abstaining()).aselect(choices, "x")
    assert result.inds == [0, 1]
    assert "all of them" in result.reasons[0]


# ── postprocessors ───────────────────────────────────────────────────────────────────────────────────────────────────


def scored_nodes() -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_=str(n), text=text, metadata={"n": n}), score=1 - n / 10)
        for n, text in enumerate(TEXTS)
    ]


async def test_rerank_orders_nodes_and_leaves_them_alone() -> None:
    nodes = [*scored_nodes(), scored_nodes()[0]]  # one comes twice
    rerank = PointsmanRerank(reranker=CalibratedReranker(HashingEmbedder(512), sigma=0.1), top_n=2)
    best = rerank.postprocess_nodes(nodes, query_str="baked bread")
    assert best[0].node is nodes[2].node
    assert len(best) == 2
    assert [node.score for node in nodes] == [1.0, 0.9, 0.8, 1.0]
    assert await rerank.apostprocess_nodes(nodes, query_str="baked bread") == best
    assert rerank.postprocess_nodes([], query_str="x") == []
    with pytest.raises(InputError, match="needs the question"):
        rerank.postprocess_nodes(nodes)


# ── embedding ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_embeddings_are_those_of_the_embedder() -> None:
    embedder, embedding = HashingEmbedder(), PointsmanEmbedding(HashingEmbedder())
    assert embedding.model_name == "hashing-64"
    expected = embedder.embed("a red signal").tolist()
    assert (
        embedding.get_query_embedding("a red signal")
        == await embedding.aget_query_embedding("a red signal")
        == expected
    )
    assert embedding.get_text_embedding_batch(TEXTS) == embedder.embed_documents(TEXTS).tolist()
    assert await embedding.aget_text_embedding_batch(TEXTS) == embedding.get_text_embedding_batch(TEXTS)


# ── vector store ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store() -> Iterator[PointsmanVectorStore]:
    store = PointsmanVectorStore()
    store.add(embedded_nodes())
    yield store
    store.client.close()


def embedded_nodes() -> list[TextNode]:
    embedder = HashingEmbedder(512)
    nodes = []
    for n, text in enumerate(TEXTS):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"source-{n % 2}")}
        node = TextNode(id_=str(n), text=text, metadata={"n": n, "tags": ["x", str(n)]}, relationships=source)
        node.embedding = embedder.embed(text).tolist()
        nodes.append(node)
    return nodes


def ids(store: PointsmanVectorStore, **query: Any) -> list[str]:
    embedding = HashingEmbedder(512).embed(query.pop("near", TEXTS[0])).tolist()
    answer = store.query(VectorStoreQuery(**{"query_embedding": embedding, "similarity_top_k": 3, **query}))
    assert answer.ids is not None
    assert answer.nodes is not None
    assert answer.similarities == sorted(answer.similarities or [], reverse=True) or query["mode"] == "mmr"
    assert [node.node_id for node in answer.nodes] == answer.ids
    return answer.ids


async def test_an_index_of_llama_index_lives_in_a_vector_store(tmp_path: Path) -> None:
    embedding = PointsmanEmbedding(HashingEmbedder(512))
    with Dataset("nodes", path=tmp_path / "nodes", embedder=HashingEmbedder(512)) as dataset:
        store = PointsmanVectorStore(dataset)
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex(
            [TextNode(id_=str(n), text=text) for n, text in enumerate(TEXTS)],
            storage_context=context,
            embed_model=embedding,
        )
        retriever = index.as_retriever(similarity_top_k=1)
        assert [node.node_id for node in retriever.retrieve(TEXTS[2])] == ["2"]
        assert [node.node_id for node in await retriever.aretrieve(TEXTS[2])] == ["2"]
        again = VectorStoreIndex.from_vector_store(store, embed_model=embedding)
        assert [node.text for node in again.as_retriever(similarity_top_k=1).retrieve(TEXTS[1])] == [TEXTS[1]]
        assert dataset.search("baked bread", 1, refuse=False).hits[0].id == "2"  # and Pointsman searches it as its own


def test_nodes_come_back_as_they_were(store: PointsmanVectorStore) -> None:
    for node in embedded_nodes():
        (node_back,) = store.get_nodes([node.node_id])
        assert isinstance(node_back, TextNode)
        assert (node_back.text, node_back.metadata, node_back.ref_doc_id) == (node.text, node.metadata, node.ref_doc_id)
    link = IndexNode(id_="link", text="see there", index_id="other")
    store.add([link])
    (node_back,) = store.get_nodes(["link"])
    assert isinstance(node_back, IndexNode)
    assert node_back.index_id == "other"
    store.client.add([{"id": "plain", "text": "not of LlamaIndex", "metadata": {"n": 7}}], embed=False)
    (node_back,) = store.get_nodes(["plain"])
    assert (node_back.get_content(), node_back.metadata) == ("not of LlamaIndex", {"n": 7})


def test_metadata_under_the_key_of_nodes_may_be_anything(store: PointsmanVectorStore) -> None:
    metas: list[Any] = [
        {"_node": 1},
        {"_node": {"content": "no JSON", "type": "TextNode"}},
        {"_node": {"content": 5, "type": 5}},
        {"_node": {"content": '{"id_": "0", "text": "other"}', "type": "TextNode"}},
    ]
    for n, meta in enumerate(metas):
        store.client.add([{"id": f"foreign-{n}", "text": "text", "metadata": meta}], embed=False)
        (node_back,) = store.get_nodes([f"foreign-{n}"])
        assert (node_back.node_id, node_back.get_content(), node_back.metadata) == (f"foreign-{n}", "text", meta)


def test_modes_of_a_query(store: PointsmanVectorStore) -> None:
    assert ids(store)[0] == "0"
    for mode in (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE):
        assert ids(store, mode=mode, query_str="baked bread") == ["2"]
    hybrid = {"mode": VectorStoreQueryMode.HYBRID, "query_str": "baked bread"}
    assert set(ids(store, **hybrid)) == {"0", "1", "2"}
    assert ids(store, **hybrid, alpha=1.0)[0] == "0"
    assert ids(store, **hybrid, alpha=0.0)[0] == "2"
    assert len(ids(store, **hybrid, hybrid_top_k=2)) == 2
    assert ids(store, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.0, similarity_top_k=2) == ["0", "2"]
    with pytest.raises(UnmetNeedError, match="no mode 'svm'"):
        ids(store, mode=VectorStoreQueryMode.SVM)
    with pytest.raises(InputError, match="has a query_str"):
        ids(store, mode=VectorStoreQueryMode.HYBRID)
    with pytest.raises(InputError, match="has a query_embedding"):
        store.query(VectorStoreQuery(query_str="x"))


async def test_a_retriever_sets_the_options_of_mmr(store: PointsmanVectorStore) -> None:
    """They reach the store as ``vector_store_kwargs`` only: a retriever's query has no ``mmr_threshold``."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=PointsmanEmbedding(HashingEmbedder(512)))

    def retriever(**options: Any) -> TheirRetriever:
        return index.as_retriever(
            similarity_top_k=2, vector_store_query_mode="mmr", vector_store_kwargs={"mmr_threshold": 0.0, **options}
        )

    for options, expected in (
        ({}, ["0", "2"]),
        ({"mmr_threshold": 1.0}, ["0", "1"]),
        ({"mmr_prefetch_k": 2}, ["0", "1"]),
        ({"mmr_prefetch_factor": 1}, ["0", "1"]),
        ({"mmr_prefetch_factor": 1.5}, ["0", "2"]),
    ):
        assert [node.node_id for node in retriever(**options).retrieve(TEXTS[0])] == expected
        assert [node.node_id for node in await retriever(**options).aretrieve(TEXTS[0])] == expected
    for wrong in ({"mmr_lambda": 0.5}, {"mmr_prefetch_factor": "x"}, {"mmr_prefetch_k": "x"}, {"mmr_threshold": 2}):
        with pytest.raises(InputError):
            retriever(**wrong).retrieve(TEXTS[0])


def test_what_a_vector_store_cannot_store_raises(store: PointsmanVectorStore) -> None:
    short = TextNode(id_="short", text="short")
    short.embedding = [0.5, 0.5]
    with pytest.raises(InputError, match="all of one length"):
        store.add([*embedded_nodes(), short])
    with pytest.raises(InputError, match="id is a str, not 1"):
        store.delete_nodes([1])  # type: ignore[list-item]


def test_ids_restrict_a_query(store: PointsmanVectorStore) -> None:
    assert set(ids(store, node_ids=[])) == {"0", "1", "2"}
    assert set(ids(store, node_ids=["1", "2"])) == {"1", "2"}
    assert set(ids(store, doc_ids=["source-0"])) == {"0", "2"}
    assert ids(store, doc_ids=[]) == []
    assert set(ids(store, doc_ids=["source-0"], node_ids=["1", "2"])) == {"2"}
    assert set(ids(store, filters=MetadataFilters(filters=[]))) == {"0", "1", "2"}
    assert [node.node_id for node in store.get_nodes([])] == ["0", "1", "2"]


async def test_get_nodes_returns_at_most_the_limit(
    store: PointsmanVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.integrations.llama_index.llama_index_vector_store._PAGE", 2)
    even = MetadataFilters(filters=[MetadataFilter(key="n", value=1, operator=FilterOperator.NE)])
    for limit, expected in ((1, ["0"]), (2, ["0", "1"]), (3, ["0", "1", "2"]), (9, ["0", "1", "2"])):
        assert [node.node_id for node in store.get_nodes(limit=limit)] == expected
        assert [node.node_id for node in await store.aget_nodes(limit=limit)] == expected
        assert [node.node_id for node in store.get_nodes(["0", "1", "2"], limit=limit)] == expected
    for ids_ in (None, ["1", "0", "2"]):
        assert [node.node_id for node in store.get_nodes(ids_, even, limit=1)] == ["0"]
        assert [node.node_id for node in store.get_nodes(ids_, even, limit=2)] == ["0", "2"]
    with pytest.raises(InputError, match="from 1 up, not 0"):
        store.get_nodes(limit=0)


async def test_deleting_by_source_id_and_filter(store: PointsmanVectorStore) -> None:
    store.delete("source-1")
    assert set(ids(store)) == {"0", "2"}
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="n", value=2)]))
    assert set(ids(store)) == {"0"}
    await store.adelete_nodes(["0"])
    assert ids(store) == []
    with pytest.raises(InputError, match="clear deletes everything"):
        store.delete_nodes()
    await store.async_add(embedded_nodes())
    await store.adelete("source-0")
    assert [node.node_id for node in await store.aget_nodes()] == ["1"]
    await store.aclear()
    assert store.get_nodes() == []


def test_vectors_of_another_model_are_refused(tmp_path: Path) -> None:
    with Dataset("mixed", path=tmp_path / "mixed", embedder=HashingEmbedder(64)) as dataset:
        dataset.add([{"id": "a", "text": "a red signal"}])
        with pytest.raises(InputError, match="64"):
            PointsmanVectorStore(dataset).add(embedded_nodes())


VALUES = st.one_of(st.integers(-2, 2), st.sampled_from(["a", "b", ""]), st.sampled_from([0.5, 1.0]))
LISTS = st.lists(st.integers(-2, 2), min_size=1, max_size=3) | st.lists(st.sampled_from("ab"), min_size=1, max_size=3)
KEYS = st.sampled_from(["x", "y"])
COMPARISONS = st.builds(
    lambda key, value, operator: MetadataFilter(key=key, value=value, operator=operator),
    KEYS,
    VALUES,
    st.sampled_from([FilterOperator.EQ, FilterOperator.NE, FilterOperator.IS_EMPTY]),
) | st.builds(
    lambda key, value, operator: MetadataFilter(key=key, value=value, operator=operator),
    KEYS,
    LISTS,
    st.sampled_from([FilterOperator.IN, FilterOperator.NIN]),
)
ORDERINGS = st.builds(
    lambda value, operator: MetadataFilter(key="number", value=value, operator=operator),
    st.integers(-2, 2),
    st.sampled_from([FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE]),
)
OF_LISTS = st.builds(
    lambda value, operator: MetadataFilter(key="list", value=value, operator=operator),
    LISTS,
    st.sampled_from([FilterOperator.ANY, FilterOperator.ALL]),
) | st.builds(
    lambda value: MetadataFilter(key="list", value=value, operator=FilterOperator.CONTAINS), st.integers(-2, 2)
)
NESTED_FILTERS = st.builds(
    lambda value, operator: MetadataFilter(key="text", value=value, operator=operator),
    st.sampled_from(["", "a", "Ab", "я", "ЛЯ"]),
    st.sampled_from([FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE]),
)
PART_TEXTS = st.text(alphabet="aAbBяЯЛл ", max_size=4)
METADATA = st.fixed_dictionaries(
    {}, optional={"text": PART_TEXTS, "x": VALUES, "y": VALUES, "number": st.integers(-2, 2), "list": LISTS}
)


@pytest.mark.skipif(
    Version(version("llama-index-core")) < Version("0.14.16"),
    reason="before 0.14.16, LlamaIndex's own evaluator knows neither all operators nor `not`",
)
@given(
    st.lists(COMPARISONS | ORDERINGS | OF_LISTS | NESTED_FILTERS, min_size=1, max_size=4),
    st.sampled_from(list(FilterCondition)),
    METADATA,
)
def test_filters_mean_what_llama_index_says(
    filters: list[MetadataFilter], condition: FilterCondition, metadata: dict[str, Any]
) -> None:
    """Against LlamaIndex's own evaluator."""
    combination = MetadataFilters(filters=[*filters], condition=condition)
    expected = build_metadata_filter_fn(lambda _: metadata, combination)("node")
    assert llama_index_queries.filter_of(combination).matches(metadata) is bool(expected)


def test_filters_that_cannot_be_expressed_raise() -> None:
    for value, operator in ((1, FilterOperator.TEXT_MATCH), ("a", FilterOperator.IN)):
        filters = MetadataFilters(filters=[MetadataFilter(key="x", value=value, operator=operator)])
        with pytest.raises(FilterError):
            llama_index_queries.filter_of(filters)
    filters = MetadataFilters(
        filters=[
            MetadataFilters(
                filters=[MetadataFilter(key="x", value=1), MetadataFilter(key="x", value=2)],
                condition=FilterCondition.OR,
            ),
            MetadataFilter(key="y", value=3),
        ]
    )
    assert llama_index_queries.filter_of(filters).matches({"x": 2, "y": 3})
    assert not llama_index_queries.filter_of(filters).matches({"x": 3, "y": 3})


def test_a_query_finds_what_the_simple_store_finds(store: PointsmanVectorStore) -> None:
    simple = SimpleVectorStore()
    simple.add(embedded_nodes())
    for text in (*TEXTS, "trains in an oven"):
        query = VectorStoreQuery(HashingEmbedder(512).embed(text).tolist(), similarity_top_k=3)
        answer, expected = store.query(query), simple.query(query)
        assert answer.ids == expected.ids
        assert answer.similarities == pytest.approx(expected.similarities, abs=1e-6)


# ── theirs in ours ───────────────────────────────────────────────────────────────────────────────────────────────────


class FixedRetriever(TheirRetriever):
    """Answers with the same nodes, or fails."""

    def __init__(self, nodes: Sequence[NodeWithScore] | Exception) -> None:
        super().__init__()
        self.nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self.nodes, Exception):
            raise self.nodes
        return list(self.nodes)


async def test_a_retriever_of_llama_index_is_one_of_ours(dataset: Dataset) -> None:
    retriever = LlamaIndexRetriever(FixedRetriever(scored_nodes()[::-1]), name="theirs")
    hits = retriever.retrieve("x", 2)
    assert [(hit.id, hit.score) for hit in hits] == [("2", 0.8), ("1", 0.9)]
    assert await retriever.aretrieve("x", 2) == hits
    hybrid = SimpleHybridRetriever(dataset.retriever("bm25"), retriever)
    assert {hit.id for hit in hybrid.retrieve("red")} == {"0", "1", "2"}
    partly = LlamaIndexRetriever(FixedRetriever([NodeWithScore(node=TextNode(text="a")), *scored_nodes()]))
    assert [hit.score for hit in partly.retrieve("x")] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert await retriever.aretrieve(Query("x", parse_filter("n = 77")), 2) == []
    with pytest.raises(PointsmanError, match="FixedRetriever failed: KeyError"):
        LlamaIndexRetriever(FixedRetriever(KeyError("gone"))).retrieve("x")
    with pytest.raises(PointsmanError, match="FixedRetriever failed: KeyError"):
        await LlamaIndexRetriever(FixedRetriever(KeyError("gone"))).aretrieve("x")


def test_an_embedding_model_of_llama_index_serves_a_dataset(tmp_path: Path) -> None:
    embedder = LlamaIndexEmbedder(PointsmanEmbedding(HashingEmbedder()))
    assert (embedder.name, embedder.identified) == ("hashing-64", True)
    nameless = LlamaIndexEmbedder(MockEmbedding(embed_dim=8))
    assert (nameless.name, nameless.identified) == ("MockEmbedding", False)
    with Dataset("theirs", path=tmp_path / "theirs", embedder=embedder) as dataset:
        dataset.add([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        assert [hit.id for hit in dataset.search(TEXTS[1], 1, strategy="vector", refuse=False)] == ["1"]

    class FailingEmbedding(MockEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            raise RuntimeError("no network")

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            raise RuntimeError("no network")

    for method in ("embed_queries", "embed_documents"):
        with pytest.raises(ModelError, match="FailingEmbedding failed: RuntimeError: no network"):
            getattr(LlamaIndexEmbedder(FailingEmbedding(embed_dim=8)), method)(["text"])


def test_language_models_of_llama_index_fit_as_they_are() -> None:
    selector = LLMSelector(MockLLM(), fallback="all")  # it repeats the prompt, which chooses nothing
    assert selector.select(["bread", "signals"], "trains").fallback is not None


# ── copies, services, and both scores ────────────────────────────────────────────────────────────────────────────────


def test_an_embedding_is_rebuilt_from_its_dictionary() -> None:
    by_name = PointsmanEmbedding("hashing", embed_batch_size=7)
    copy = PointsmanEmbedding.from_dict(by_name.to_dict())
    assert (copy.model_name, copy.embed_batch_size) == (by_name.model_name, 7)
    assert copy.get_query_embedding(TEXTS[0]) == by_name.get_query_embedding(TEXTS[0])
    assert pickle.loads(pickle.dumps(by_name)).get_query_embedding(TEXTS[0]) == by_name.get_query_embedding(TEXTS[0])
    by_object = PointsmanEmbedding(HashingEmbedder(512))
    with pytest.raises(InputError, match="was given as an object"):
        PointsmanEmbedding.from_dict(by_object.to_dict())
    rebuilt = PointsmanEmbedding.from_dict(by_object.to_dict(), embedder=HashingEmbedder(512))
    assert rebuilt.get_query_embedding(TEXTS[0]) == by_object.get_query_embedding(TEXTS[0])


def test_a_vector_store_with_a_path_survives_copies_and_another_says_why_not(tmp_path: Path) -> None:
    store = PointsmanVectorStore("rails", path=tmp_path)
    store.add(embedded_nodes())
    for copy in (pickle.loads(pickle.dumps(store)), PointsmanVectorStore.from_dict(store.to_dict())):
        assert [node.node_id for node in copy.get_nodes()] == ["0", "1", "2"]
    temporary = PointsmanVectorStore()
    with pytest.raises(InputError, match="would have no dataset"):
        pickle.dumps(temporary)
    with pytest.raises(InputError, match="give the path or url"):
        PointsmanVectorStore.from_dict(temporary.to_dict())


def test_a_vector_store_works_over_a_service(tmp_path: Path) -> None:
    with (
        pointsman.open(tmp_path / "served", embedder=HashingEmbedder(512)) as workspace,
        serving(create_app(workspace, settings=Settings())) as url,
    ):
        remote = PointsmanVectorStore("rails", url=url)
        bare = TextNode(id_="bare", text="a whistle without a vector")
        assert remote.add([*embedded_nodes(), bare]) == ["0", "1", "2", "bare"]
        local = PointsmanVectorStore(embedder_name="other")
        local.add([*embedded_nodes(), bare])
        for mode in ("default", "sparse", "hybrid", "mmr"):
            query = {"mode": VectorStoreQueryMode(mode), "query_str": "red signal whistle"}
            assert ids(remote, **query) == ids(local, **query), mode
        assert "bare" not in ids(remote)
        assert [node.node_id for node in remote.get_nodes()] == ["0", "1", "2", "bare"]
        remote.delete_nodes(["0"])
        assert set(ids(remote)) == {"1", "2"}
        remote.close()
        dataset = workspace.dataset("rails")
        vector, embedding = dataset.get_vectors(["1"])[0], embedded_nodes()[1].embedding
        assert vector is not None
        assert vector.tolist() == pytest.approx(embedding, abs=1e-6)


def test_both_scores_are_added_up_where_the_embedder_is_ours(dataset: Dataset) -> None:
    """As `Dataset.search` does it; a weight, or a foreign model, fuses by rank."""
    store = PointsmanVectorStore(dataset)
    question = "which signal stops a train?"
    vector = dataset.embedder.embed_queries([question])[0].tolist()
    query = {"query_str": question, "query_embedding": vector, "mode": VectorStoreQueryMode.HYBRID}
    answer = store.query(VectorStoreQuery(similarity_top_k=3, **query))
    expected = dataset.retriever("hybrid").retrieve(question, 3)
    assert answer.ids == [hit.id for hit in expected]
    assert answer.similarities == pytest.approx([hit.score for hit in expected], rel=1e-5)
    weighted = store.query(VectorStoreQuery(similarity_top_k=3, alpha=0.5, **query))
    assert weighted.similarities is not None
    assert max(weighted.similarities) < 0.1  # 1 / 61 at most


# ── what an answer says of its nodes ─────────────────────────────────────────────────────────────────────────────────


async def test_metadata_says_what_supersedes_a_node_and_a_day_has_its_own() -> None:
    with Dataset("contracts", embedder=HashingEmbedder()) as dataset:
        dataset.add(CLAUSES)
        retriever = PointsmanRetriever(dataset, 3, refuse=False)
        vector = dataset.embedder.embed_queries([QUESTION])[0].tolist()
        store = PointsmanVectorStore(dataset)
        answers = [
            [scored.node for scored in retriever.retrieve(QUESTION)],
            [scored.node for scored in await retriever.aretrieve(QUESTION)],
            [node_of(hit).node for hit in dataset.search(QUESTION, 3, refuse=False)],
        ]
        for mode in ("default", "text_search", "hybrid", "mmr"):
            query = VectorStoreQuery(vector, 3, query_str=QUESTION, mode=VectorStoreQueryMode(mode))
            answers.append(list(store.query(query).nodes or ()))
        for nodes in answers:
            notes = {node.node_id: node.metadata.get("not_in_force") for node in nodes}
            assert notes.pop("clause") == REASON
            assert set(notes.values()) == {None}
            clause = next(node for node in nodes if node.node_id == "clause")
            assert f"not_in_force: {REASON}" in clause.get_content(MetadataMode.LLM)
            assert REASON not in clause.get_content(MetadataMode.EMBED)
        earlier_answer = PointsmanRetriever(dataset, 3, refuse=False, as_of=BEFORE).retrieve(QUESTION)
        assert {scored.node.node_id for scored in earlier_answer} == {"clause", "payment"}


def test_first_node_says_what_did_not_work(dataset: Dataset) -> None:
    first, second = PointsmanRetriever(dataset, 2, refuse=False, coverage=0.9).retrieve("red signal")
    assert "coverage" in first.node.metadata["degraded"][0]
    assert "degraded" not in second.node.metadata
    assert "degraded" not in first.node.get_content(MetadataMode.LLM)


def test_principals_say_who_asks(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
        workspace.dataset("rails").set_access({"0": ["user:anna"], "1": ["everyone"], "2": ["group:bakers"]})
        workspace.switch_access(on=True)
        nodes = PointsmanRetriever(workspace, refuse=False, principals=["user:anna"]).retrieve("signal bread")
        assert {scored.node.node_id for scored in nodes} == {"0", "1"}
        with pytest.raises(InputError, match="needs to know who asks"):
            PointsmanRetriever(workspace, refuse=False).retrieve("signal bread")
