"""Stores of other libraries under our retrievers, service and BM25 index: each pair answers, or names the remedy.

The stores are real: LlamaIndex, LangChain and Haystack, FAISS, and a Chroma server.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import (
    BM25IndexManager,
    Dataset,
    Document,
    EnhancedRetrievalService,
    SimpleHybridRetriever,
    SparseStrategy,
    UnmetNeedError,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.external import bm25_index_manager
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from chroma_kit import ChromaServer
    from pointsman.store.local.keyword.term_codes import TermCodes

EMBEDDER = HashingEmbedder(256)
TEXTS = {
    "lamp": "A signal lamp shows red to stop the train.",
    "switch": "A railway switch guides a train to another track.",
    "tea": "Green tea is brewed at eighty degrees.",
    "late": "Form XK-4711 reports lamps that are late.",
}
QUESTION = "XK-4711"  # found by the word alone
WORDS_AND_VECTORS, WORDS, VECTORS = "words and vectors", "words", "vectors"


class Shelf:
    """Makes each store from the same documents, with the same vectors."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self._request = folder, request
        self.documents = [Document(id_, text, {"length": len(text)}) for id_, text in TEXTS.items()]
        self.vectors = EMBEDDER.embed_documents(list(TEXTS.values()))

    # ── LlamaIndex

    def llama_embedding(self) -> Any:
        schema = pytest.importorskip("llama_index.core.embeddings")

        class Embedding(schema.BaseEmbedding):  # type: ignore[misc,name-defined]
            def _get_text_embedding(self, text: str) -> list[float]:
                return [float(value) for value in EMBEDDER.embed(text)]

            _get_query_embedding = _get_text_embedding

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return self._get_text_embedding(query)

        return Embedding()

    def llama_nodes(self) -> list[Any]:
        schema = pytest.importorskip("llama_index.core.schema")
        return [
            schema.TextNode(id_=document.id, text=document.text, metadata=dict(document.metadata))
            for document in self.documents
        ]

    def llama_index(self) -> Any:
        core = pytest.importorskip("llama_index.core")
        return core.VectorStoreIndex(self.llama_nodes(), embed_model=self.llama_embedding())

    def llama_index_over_faiss(self) -> Any:
        import faiss

        core = pytest.importorskip("llama_index.core")
        stores = pytest.importorskip("llama_index.vector_stores.faiss")
        store = stores.FaissVectorStore(faiss_index=faiss.IndexFlatIP(EMBEDDER.dimensions))
        context = core.StorageContext.from_defaults(vector_store=store)
        return core.VectorStoreIndex(self.llama_nodes(), storage_context=context, embed_model=self.llama_embedding())

    def llama_retriever(self) -> Any:
        return self.llama_index().as_retriever(similarity_top_k=4)

    def llama_vector_store(self) -> Any:
        return self.llama_index().vector_store

    # ── LangChain

    def langchain_embeddings(self) -> Any:
        embeddings = pytest.importorskip("langchain_core.embeddings")

        class Embeddings(embeddings.Embeddings):  # type: ignore[misc,name-defined]
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return [[float(value) for value in row] for row in EMBEDDER.embed_documents(texts)]

            def embed_query(self, text: str) -> list[float]:
                return self.embed_documents([text])[0]

        return Embeddings()

    def langchain_in_memory(self) -> Any:
        stores = pytest.importorskip("langchain_core.vectorstores")
        store = stores.InMemoryVectorStore(self.langchain_embeddings())
        store.add_texts(
            [document.text for document in self.documents],
            [document.metadata for document in self.documents],
            ids=list(TEXTS),
        )
        return store

    def langchain_faiss(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # langchain-community speaks of its end
            stores = pytest.importorskip("langchain_community.vectorstores")
            store: Any = stores.FAISS.from_texts(
                [document.text for document in self.documents],
                self.langchain_embeddings(),
                [dict(document.metadata) for document in self.documents],
                ids=list(TEXTS),
            )
        return store

    def langchain_retriever(self) -> Any:
        return self.langchain_in_memory().as_retriever()

    # ── Haystack

    def haystack_document_store(self) -> Any:
        haystack = pytest.importorskip("haystack")
        stores = pytest.importorskip("haystack.document_stores.in_memory")
        store = stores.InMemoryDocumentStore()
        store.write_documents(
            [haystack.Document(document.id, document.text, meta=dict(document.metadata)) for document in self.documents]
        )
        return store

    def haystack_retriever(self) -> Any:
        retrievers = pytest.importorskip("haystack.components.retrievers.in_memory")
        return retrievers.InMemoryBM25Retriever(self.haystack_document_store())

    # ── Chroma, FAISS, lists

    def chroma_collection(self) -> Any:
        chromadb = pytest.importorskip("chromadb")
        server: ChromaServer = self._request.getfixturevalue("chroma")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client = chromadb.HttpClient(host="127.0.0.1", port=server.port)
            for server_client in (client, client._admin_client):  # their own close leaves connections open
                self._request.addfinalizer(server_client._server._session.close)
            name = f"shelf-{self.folder.name[:40].strip('_').replace('[', '-')}"
            collection = client.get_or_create_collection(name, embedding_function=None)
            collection.upsert(
                ids=list(TEXTS),
                embeddings=self.vectors,
                documents=list(TEXTS.values()),
                metadatas=[dict(document.metadata) for document in self.documents],
            )
        return collection

    def chroma_attached(self) -> Any:
        server: ChromaServer = self._request.getfixturevalue("chroma")
        table = self.chroma_collection().name
        columns = {"table": table, "id": "id", "text": "document", "vector": "embedding"}
        return self._workspace().attach("shelf", server.url, **columns)

    def faiss_attached(self) -> Any:
        import faiss

        index = faiss.IndexFlatIP(EMBEDDER.dimensions)
        index.add(self.vectors)
        faiss.write_index(index, str(self.folder / "shelf.faiss"))
        lines = [
            json.dumps({"id": document.id, "text": document.text, **document.metadata}) for document in self.documents
        ]
        (self.folder / "shelf.jsonl").write_text("\n".join(lines), "utf-8")
        columns = {"table": "shelf.jsonl", "id": "id", "text": "text", "vector": "vector"}
        return self._workspace().attach("shelf", f"faiss:{self.folder / 'shelf.faiss'}", **columns)

    def faiss_index(self) -> Any:
        import faiss

        index = faiss.IndexFlatIP(EMBEDDER.dimensions)
        index.add(self.vectors)
        return index

    def list_of_documents(self) -> Any:
        return self.documents

    def _workspace(self) -> pointsman.Workspace:
        workspace = pointsman.open(self.folder / "workspace", embedder=EMBEDDER)
        self._request.addfinalizer(workspace.close)
        return workspace


@pytest.fixture
def shelf(tmp_path: Path, request: pytest.FixtureRequest) -> Shelf:
    return Shelf(tmp_path, request)


# What searches with strategy="hybrid" over each store: the service, a hybrid retriever, and a BM25 index; or why not.
PAIRS = {
    "llama_index": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "llama_index_over_faiss": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "llama_retriever": (VECTORS, VECTORS, "give documents="),
    "llama_vector_store": ("give documents=", "cannot be called as a retriever", "give documents="),
    "langchain_in_memory": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "langchain_faiss": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "langchain_retriever": (VECTORS, VECTORS, "give documents="),
    "haystack_document_store": (WORDS, "cannot be called as a retriever", WORDS),
    "haystack_retriever": (WORDS, WORDS, "give documents="),
    "chroma_collection": (WORDS, "cannot be called as a retriever", WORDS),
    "chroma_attached": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "faiss_attached": (WORDS_AND_VECTORS, VECTORS, WORDS),
    "faiss_index": ("give documents=", "cannot be called as a retriever", "give documents="),
    "list_of_documents": (WORDS, "put them into a dataset", WORDS),
}


def _construct(make: Callable[[], Any], expected: str) -> Any:
    """What is made; None if it is refused, as expected."""
    if expected in {WORDS_AND_VECTORS, WORDS, VECTORS}:
        return make()
    with pytest.raises(InputError, match=expected):
        make()
    return None


@pytest.mark.parametrize("store", PAIRS)
def test_service_over_store_of_another_library(shelf: Shelf, store: str) -> None:
    expected = PAIRS[store][0]
    settings = {"bm25_index_path": str(shelf.folder / "bm25")}
    source = getattr(shelf, store)()
    service = _construct(lambda: EnhancedRetrievalService(settings, source), expected)
    if service is None:
        return
    with service:
        hits = service.search_sync(QUESTION, 4, "hybrid", use_rerank=False)
        by_default = service.search_sync(QUESTION, 4, use_rerank=False)
        assert [hit.id for hit in by_default] == [hit.id for hit in hits]
        recommendation = service.recommend_strategy("XK-4711 lamps and what to do about them")
        usable = [recommendation.strategy, *(name for name, _ in recommendation.alternatives)]
        for name in usable:
            assert service.search_sync(QUESTION, 4, name).strategy == name
        if expected == WORDS_AND_VECTORS:
            assert hits[0].id == "late"
            assert hits.strategy == "hybrid"
            assert hits.degraded == ()
            assert len({step.source for step in hits[0].provenance} - {"fuse"}) == 2, hits[0].provenance
            assert service.search_sync(QUESTION, 1, "bm25")[0].id == "late"
        elif store in {"llama_retriever", "langchain_retriever", "haystack_retriever"}:  # what they search is theirs
            assert hits.strategy == "hybrid"
        else:
            assert hits.strategy == {WORDS: "bm25", VECTORS: "vector"}[expected]
            (note,) = hits.degraded
            assert f"only {expected} were searched" in note
            assert "hybrid" not in usable


@pytest.mark.parametrize("store", PAIRS)
def test_hybrid_retriever_over_store_of_another_library(shelf: Shelf, store: str) -> None:
    expected = PAIRS[store][1]
    source = getattr(shelf, store)()
    source = source.retriever() if isinstance(source, Dataset) else source
    words = Dataset("own", embedder=EMBEDDER)
    words.add(shelf.documents)
    retriever = _construct(lambda: SimpleHybridRetriever(source, words.retriever("bm25")), expected)
    if retriever is not None:
        hits = retriever.retrieve(QUESTION, 4)
        assert hits[0].id == "late"
        assert hits.degraded == ()
        assert len({hit.id for hit in hits}) == len(hits), "one document of both is one hit"
        assert expected == WORDS or len(hits) == 4
    words.close()


@pytest.mark.parametrize("store", PAIRS)
def test_bm25_index_beside_store_of_another_library(shelf: Shelf, store: str) -> None:
    expected = PAIRS[store][2]
    source = getattr(shelf, store)()
    manager = _construct(lambda: BM25IndexManager(shelf.folder / "bm25", source), expected)
    if manager is None:
        with_documents = BM25IndexManager(shelf.folder / "bm25", source, documents=shelf.documents)
        assert [hit.id for hit in with_documents.search(QUESTION)] == ["late"]
        with_documents.close()
        return
    assert manager.build_from_vector_store()
    hits = manager.search("lamp", 5)
    assert [hit.id for hit in hits] == ["lamp", "late"] or [hit.id for hit in hits] == ["late", "lamp"]
    assert [hit.id for hit in manager.search("lamp", 5, filters={"length": len(TEXTS["lamp"])})] == ["lamp"]
    manager.close()
    with Dataset("same", "", "keyword") as reference:  # the scores are those of an ordinary keyword index
        reference.add(shelf.documents)
        expected_scores = [
            (hit.id, hit.score) for hit in reference.search("lamp", 5, strategy="bm25", refuse=False).hits
        ]
    assert [hit.id for hit in hits] == [id_ for id_, _ in expected_scores]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected_scores])


# ── staying in step ──────────────────────────────────────────────────────────────────────────────────────────────────


def _change_langchain(store: Any) -> None:
    store.add_texts(["A zebra crosses the track."], [{"length": 1}], ids=["zebra"])
    store.delete(["tea"])


def _change_llama_index(index: Any) -> None:
    from llama_index.core.schema import TextNode

    index.insert_nodes([TextNode(id_="zebra", text="A zebra crosses the track.")])
    index.delete_nodes(["tea"], delete_from_docstore=True)


def _change_haystack(store: Any) -> None:
    import haystack

    store.write_documents([haystack.Document("zebra", "A zebra crosses the track.")])
    store.delete_documents(["tea"])


def _change_chroma(collection: Any) -> None:
    vector = EMBEDDER.embed_documents(["A zebra crosses the track."])
    collection.add(ids=["zebra"], embeddings=vector, documents=["A zebra crosses the track."])
    collection.delete(ids=["tea"])


def _change_list(documents: list[Document]) -> None:
    documents.append(Document("zebra", "A zebra crosses the track."))
    del documents[2]


@pytest.mark.parametrize(
    ("store", "change"),
    [
        ("langchain_in_memory", _change_langchain),
        ("langchain_faiss", _change_langchain),
        ("llama_index", _change_llama_index),
        ("haystack_document_store", _change_haystack),
        ("chroma_collection", _change_chroma),
        ("list_of_documents", _change_list),
    ],
)
def test_incremental_sync_adds_and_deletes(shelf: Shelf, store: str, change: Callable[[Any], None]) -> None:
    source = getattr(shelf, store)()
    manager = BM25IndexManager(shelf.folder / "bm25", source, bm25_auto_sync=False)
    count_before = manager.build_from_vector_store()
    assert [hit.id for hit in manager.search("tea")] == ["tea"]
    change(source)
    assert [hit.id for hit in manager.search("tea")] == ["tea"], "not synchronised by itself"
    assert manager.sync_incremental() > count_before
    assert manager.search("tea") == []
    assert [hit.id for hit in manager.search("zebra")] == ["zebra"]
    assert manager.sync_incremental() == manager.sync_incremental(), "nothing new, nothing written"
    manager.close()


def test_incremental_sync_analyses_only_changed_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(str(number), f"passage number {number}") for number in range(300)]
    manager = BM25IndexManager(tmp_path / "bm25", documents)
    manager.build_from_vector_store()
    ids: list[str] = []
    from pointsman.store.local.keyword import keyword_index

    postings = keyword_index._postings

    def noting(key: int, document: Document, codes: TermCodes) -> object:
        ids.append(document.id)
        return postings(key, document, codes)

    monkeypatch.setattr(keyword_index, "_postings", noting)
    documents[7] = Document("7", "a zebra")
    manager.sync_incremental()
    assert ids == ["7"]
    manager.close()


def test_search_lists_again_if_number_changed_or_minute_passed(tmp_path: Path) -> None:
    documents = [Document("a", "red lamp"), Document("b", "green lamp")]
    readings = 0

    class CountingList(list[Document]):
        def __iter__(self) -> Iterator[Document]:
            nonlocal readings
            readings += 1
            return super().__iter__()

    store = CountingList(documents)
    manager = BM25IndexManager(tmp_path / "bm25", store)
    index: Any = manager._index
    clock_time = 0.0
    index.clock = lambda: clock_time
    manager.build_from_vector_store()
    readings = 0
    for _ in range(5):
        manager.search("lamp")
    assert readings == 0
    store.append(Document("c", "blue lamp"))
    assert len(manager.search("lamp")) == 3
    assert readings == 1
    store[0] = Document("a", "red flag")
    assert len(manager.search("lamp")) == 3, "the number is the same, and a minute has not passed"
    clock_time = bm25_index_manager.LISTED_EVERY
    assert {hit.id for hit in manager.search("lamp")} == {"b", "c"}
    manager.close()


def test_index_answers_and_says_so_while_its_store_is_away(tmp_path: Path) -> None:
    state = {"away": False}

    def documents() -> list[Document]:
        if state["away"]:
            raise OSError("the store is away")
        return [Document("a", "red lamp")]

    manager = BM25IndexManager(tmp_path / "bm25", object(), documents=documents)
    manager.build_from_vector_store()
    index: Any = manager._index
    index.clock = lambda: index._listed_at + bm25_index_manager.LISTED_EVERY
    state["away"] = True
    hits = manager.search("lamp")
    assert [hit.id for hit in hits] == ["a"]
    assert "is not current: OSError: the store is away" in hits.degraded[0]
    manager.close()


def test_iterator_is_read_once_and_kept(tmp_path: Path) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", (Document(id_, text) for id_, text in TEXTS.items()))
    manager.build_from_vector_store()
    manager.sync_incremental()
    assert [hit.id for hit in manager.search(QUESTION)] == ["late"]
    manager.close()


def test_metadata_that_cannot_be_stored_is_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = Document("a", "red lamp", {"shelf": 3, "owner": object()})
    manager = BM25IndexManager(tmp_path / "bm25", [document])
    assert manager.search("lamp", filters={"shelf": 3})[0].metadata == {"shelf": 3}
    assert "metadata left out of the BM25 index" in caplog.text
    manager.close()


# ── what a store cannot do ───────────────────────────────────────────────────────────────────────────────────────────


class OnlySimilar:
    """A vector store by the one method that most have."""

    async def similarity_search(self, text: str, k: int = 4) -> list[Any]:
        documents = pytest.importorskip("langchain_core.documents")
        await asyncio.sleep(0)
        return [documents.Document(text, id=id_) for id_, text in TEXTS.items()][:k]


def test_store_with_similarity_search_alone_says_what_was_not_searched(tmp_path: Path) -> None:
    settings = {"bm25_index_path": str(tmp_path / "bm25")}
    service = EnhancedRetrievalService(settings, OnlySimilar())
    hits = asyncio.run(service.search(QUESTION, strategy="hybrid"))
    assert hits.strategy == "vector"
    assert len(hits.degraded) == 1
    assert "only vectors were searched" in hits.degraded[0]
    assert "documents=" in hits.degraded[0]
    recommendation = service.recommend_strategy(QUESTION)
    assert {recommendation.strategy, *(name for name, _ in recommendation.alternatives)} == {"vector", "multi_query"}
    assert "give documents=" in str(service.lack("bm25"))
    assert not (tmp_path / "bm25").exists()


def test_store_with_similarity_search_alone_is_searched_by_words_of_given_documents(tmp_path: Path) -> None:
    settings = {"bm25_index_path": str(tmp_path / "bm25")}
    documents = [Document(id_, text) for id_, text in TEXTS.items()]
    with EnhancedRetrievalService(settings, OnlySimilar(), documents=documents) as service:
        hits = service.search_sync(QUESTION, strategy="hybrid", use_rerank=False)
        assert (hits.strategy, hits.degraded, hits[0].id) == ("hybrid", (), "late")


def test_strategy_of_words_is_refused_without_keyword_index() -> None:
    with Dataset("vectors", indexing_technique="vector", embedder=EMBEDDER) as dataset:
        dataset.add(Document("a", "red lamp"))
        with pytest.raises(UnmetNeedError, match="indexing_technique='hybrid'"):
            SparseStrategy(dataset)
        with pytest.raises(UnmetNeedError, match="indexing_technique='hybrid'"):
            dataset.search("lamp", strategy="sparse")


def test_strategy_of_words_works_through_bm25_beside_a_store(shelf: Shelf) -> None:
    settings = {"bm25_index_path": str(shelf.folder / "bm25")}
    with EnhancedRetrievalService(settings, shelf.langchain_in_memory()) as service:
        hits = service.search_sync(QUESTION, 2, "sparse", use_rerank=False)
        assert (hits.strategy, hits[0].id, hits.degraded) == ("sparse", "late", ())
