"""The examples of the hybrid retriever's founding document, and its list of known problems, one test each.

Only imports differ: ``SimpleHybridRetriever`` comes from ``pointsman``; LlamaIndex's retrievers and nodes are real.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from pathlib import Path
from typing import Any

import pytest

from pointsman import Dataset, Document, SimpleHybridRetriever
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.retrievers.hybrid_retriever import NodesAdded
from pointsman.tools.errors import InputError, RetrievalError

llama = pytest.importorskip("llama_index.core")

from llama_index.core.retrievers import BaseRetriever as LlamaRetriever  # noqa: E402
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode  # noqa: E402


class RAGRetriever(LlamaRetriever):
    """A retriever as the document has it: LlamaIndex's, with ``add_nodes`` and ``persist``."""

    def __init__(self, *nodes: TextNode) -> None:
        self.nodes = list(nodes)
        self.folders: list[str] = []
        super().__init__()

    def _retrieve(self, query: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=1 / rank) for rank, node in enumerate(self.nodes, 1)]

    def add_nodes(self, nodes: list[TextNode]) -> None:
        self.nodes.extend(nodes)

    def persist(self, persist_dir: str, **kwargs: Any) -> None:
        self.folders.append(str(persist_dir))
        self.options = kwargs

    def delete_nodes(self, node_ids: list[str]) -> None:
        self.nodes = [node for node in self.nodes if node.node_id not in node_ids]


class BrokenRetriever(RAGRetriever):
    def _retrieve(self, query: QueryBundle) -> list[NodeWithScore]:
        raise ConnectionError("the index is away")

    def add_nodes(self, nodes: list[TextNode]) -> None:
        raise OSError("the disk is full")


def node(id_: str, text: str = "a red signal") -> TextNode:
    return TextNode(id_=id_, text=text)


@pytest.fixture
def retriever() -> SimpleHybridRetriever:
    return SimpleHybridRetriever(
        RAGRetriever(node("a"), node("b", "a lamp")), RAGRetriever(node("b", "a lamp"), node("c", "steam"))
    )


@pytest.mark.parametrize("query", ["red", QueryBundle("red")])
def test_the_lines_of_the_document_run(retriever: SimpleHybridRetriever, query: Any) -> None:
    all_nodes = asyncio.run(retriever.aretrieve(copy.deepcopy(query)))
    result = []
    node_ids = set()
    for n in all_nodes:
        if n.node.node_id not in node_ids:
            result.append(n)
            node_ids.add(n.node.node_id)
    assert result == all_nodes, "a node is returned once"
    assert node_ids == {"a", "b", "c"}
    assert all_nodes[0].id == "b", "found by both retrievers"
    assert all_nodes.degraded == ()
    assert retriever.retrieve(query) == all_nodes


def test_nodes_reach_every_retriever_as_their_own_kind(retriever: SimpleHybridRetriever) -> None:
    assert retriever.add_nodes([node("new", "a new lamp")])
    assert all(isinstance(node, TextNode) for inner in retriever.retrievers for node in inner.retriever.nodes)  # type: ignore[attr-defined]
    assert "new" in {hit.node.node_id for hit in retriever.retrieve("lamp")}


def test_every_retriever_is_saved_in_its_own_folder(retriever: SimpleHybridRetriever, tmp_path: Path) -> None:
    retriever.persist(str(tmp_path / "saved"), fs="a file system")
    assert all(inner.retriever.options == {"fs": "a file system"} for inner in retriever.retrievers)  # type: ignore[attr-defined]
    folders = [inner.retriever.folders for inner in retriever.retrievers]  # type: ignore[attr-defined]
    assert all(len(files) == 1 for files in folders)
    assert folders[0] != folders[1]


def test_one_failing_retriever_is_named_and_the_others_answer() -> None:
    hits = SimpleHybridRetriever(RAGRetriever(node("a")), BrokenRetriever()).retrieve("red")
    assert [hit.id for hit in hits] == ["a"]
    assert "ConnectionError: the index is away" in "".join(hits.degraded)
    with pytest.raises(RetrievalError, match="the index is away"):
        SimpleHybridRetriever(BrokenRetriever(), BrokenRetriever()).retrieve("red")


def test_nodes_that_no_retriever_holds_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RetrievalError, match=r"no retriever holds the documents.*the disk is full") as error_info:
        SimpleHybridRetriever(BrokenRetriever(), BrokenRetriever()).add_nodes([node("a")])
    assert list(error_info.value.causes) == ["broken", "broken_2"]
    with caplog.at_level(logging.WARNING):
        outcome = SimpleHybridRetriever(RAGRetriever(), BrokenRetriever()).add_nodes([node("a")])
    assert isinstance(outcome, NodesAdded)
    assert (outcome.holding, list(outcome.failed), bool(outcome)) == (("rag",), ["broken"], False)
    assert "broken does not hold the 1 documents added: OSError: the disk is full" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [(), ([],), (object(),), ("bm25",), (RAGRetriever,), (type("Deaf", (), {"retrieve": 3})(),)],
    ids=["nothing", "empty list", "object", "text", "class", "no method"],
)
def test_what_is_no_retriever_is_refused_at_construction(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match=r"at least one retriever|cannot be called as a retriever"):
        SimpleHybridRetriever(*arguments)


class OneArgument:
    """The least retriever that the documents show."""

    def retrieve(self, query: str) -> list[Document]:
        return [Document("one", f"about {query}")]


class Asynchronous:
    async def aretrieve(self, query: str, top_k: int) -> list[tuple[Document, float]]:
        return [(Document("later", "a later lamp"), 0.5)] * min(top_k, 1)


def test_retrievers_of_one_argument_or_only_asynchronous_ones_contribute() -> None:
    hits = SimpleHybridRetriever(OneArgument(), Asynchronous()).retrieve("tea", 5)
    assert {hit.id: hit.text for hit in hits} == {"one": "about tea", "later": "a later lamp"}
    assert hits.degraded == ()


def test_a_dataset_takes_nodes_and_documents_of_every_framework() -> None:
    from haystack import Document as HaystackDocument
    from langchain_core.documents import Document as LangChainDocument

    items = [
        TextNode(id_="of llama", text="a switch", metadata={"year": 2021}),
        NodeWithScore(node=TextNode(id_="scored", text="a yard")),
        LangChainDocument(page_content="a lamp", metadata={"year": 2022}, id="of langchain"),
        HaystackDocument(id="of haystack", content="a rail", meta={"year": 2023}),
        {"id": "ours", "text": "a signal"},
    ]
    with Dataset("mixed", embedder=HashingEmbedder()) as dataset:
        hybrid = SimpleHybridRetriever(dataset.retriever("bm25"), dataset.retriever("vector"))
        assert hybrid.add_nodes(items)
        assert set(dataset.ids()) == {"of llama", "scored", "of langchain", "of haystack", "ours"}
        assert dataset.ids(filters="year >= 2022") == ["of langchain", "of haystack"]
        assert dataset.add(TextNode(id_="alone", text="a single node")).added == 1
        with pytest.raises(InputError, match="not int"):
            dataset.add([3])


class AsyncRetriever(RAGRetriever):
    """The document's ``_aretrieve``: its parameter is called ``query``."""

    async def _aretrieve(self, query: QueryBundle, **kwargs: Any) -> list[NodeWithScore]:  # type: ignore[override]
        return self._retrieve(query)


def test_a_retriever_whose_own_method_calls_its_parameter_query() -> None:
    hybrid = SimpleHybridRetriever(AsyncRetriever(node("a")), RAGRetriever(node("b", "a lamp")))
    hits = asyncio.run(hybrid.aretrieve("red"))
    assert ({hit.id for hit in hits}, hits.degraded) == ({"a", "b"}, ())


def test_pages_follow_one_another(retriever: SimpleHybridRetriever) -> None:
    all_ids = [hit.id for hit in retriever.retrieve("red", 3)]
    assert [retriever.retrieve("red", 1, offset=offset)[0].id for offset in range(3)] == all_ids
    assert asyncio.run(retriever.aretrieve("red", 2, offset=3)) == []
    with pytest.raises(InputError, match="offset is an int from 0 up, not -1"):
        retriever.retrieve("red", offset=-1)


def test_id_and_content_together_make_a_document() -> None:
    first, second = RAGRetriever(node("a"), node("b", "a lamp")), RAGRetriever(node("a"), node("b", "a newer lamp"))
    counts = {}
    for dedupe in ("id", "content", "id_and_content"):
        counts[dedupe] = len(SimpleHybridRetriever(first, second, dedupe=dedupe).retrieve("red"))
    assert counts == {"id": 2, "content": 3, "id_and_content": 3}


def test_what_was_added_is_taken_back() -> None:
    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add([Document("a", "a rail")])
    llama_retriever = RAGRetriever()
    hybrid = SimpleHybridRetriever(dataset.retriever(), llama_retriever, BrokenRetriever(), names=["d", "l", "broken"])
    outcome = hybrid.add_nodes([Document("b", "a signal")], roll_back=True)
    assert (outcome.holding, outcome.taken_back, set(outcome.failed)) == ((), ("d", "l"), {"broken"})
    assert (list(dataset.ids()), llama_retriever.nodes) == (["a"], [])
    outcome = hybrid.add_nodes([Document("a", "a newer rail")], roll_back=True)
    assert (outcome.holding, outcome.taken_back) == (("d",), ("l",)), "the former version would be lost"
