"""What the authors of the founding documents would write, row by row, and whether it works as they wrote it.

Run: python benchmarks/authors.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the service as its tests start it

import httpx
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

import pointsman
from _authors_kit import fake_server, typed
from _authors_questions import commands, compression_in_all, follow_ups, synonyms
from _authors_selectors import (
    language_model_measured,
    llama_index_selectors,
    selectors,
    selectors_measured,
    types_of_ones_own,
)
from _authors_words import console_in_three_languages, page_of_ones_own_retrievers, translations
from _cases import outcome, print_cases
from chinese_typos import TYPOS
from pointsman import (
    BM25IndexManager,
    Dataset,
    Document,
    EnhancedRetrievalService,
    LLMRouter,
    Query,
    RetrievalWorkflow,
    SimpleHybridRetriever,
    router_select,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation import evaluate, evaluate_questions, measure
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.retrieval.plan.transform.decompose_by_rules import subquestions
from pointsman.retrieval.plan.transform.disambiguate_by_rules import RuleDisambiguator
from pointsman.retrieval.plan.transform.expand_by_rules import RuleExpander
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError
from pointsman.values.types import Message
from serving import serving

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Case = Callable[[], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


def errors() -> Iterator[tuple[str, bool]]:
    """Row errors: what was an exception of Python, a reference to nothing, or refused."""
    embedder: Any = HashingEmbedder()
    workspace = pointsman.open("ws", embedder=embedder)
    workspace.dataset("rails").add([Document("a", "the quick car is red"), Document("b", "a fast automobile")])
    try:
        workspace.attach("x", "faiss:x.faiss", table="x.jsonl", id="id", text="text", vector="v", embedder=embedder)
    except InputError as error:
        yield "attach(embedder=object): an error with the remedy", "open the workspace with it" in str(error)
    app = create_app(workspace, settings=pointsman.Settings())
    with TestClient(app, base_url="http://localhost") as client:
        document = client.get("/api/openapi.json").json()
        names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
        yield "OpenAPI: every reference leads somewhere", names <= set(document["components"]["schemas"])
        operations = [operation for path in document["paths"].values() for operation in path.values()]
        bodies = [kind for operation in operations for kind in operation.get("requestBody", {}).get("content", ())]
        yield "OpenAPI: bodies that generators of clients read", set(bodies) == {"application/json"}
        body = {"query": "quick car", "rewrite_query": True}
        answer = client.post("/v1/vector_stores/rails/search", json=body).json()
    yield "OpenAI: rewrite_query=True", {hit["file_id"] for hit in answer.get("data", ())} == {"a", "b"}


def scores_of(query: str, texts: Sequence[str]) -> list[float]:
    """The share of a text's words that a question has: what stands in for a model."""
    words = set(query.lower().split())
    return [len(words & set(text.lower().split())) / len(text.split()) for text in texts]


class FlagShaped:
    """A model of FlagEmbedding, by its form."""

    def compute_score(self, sentence_pairs: Any) -> list[float]:  # noqa: D102
        return [scores_of(query, [text])[0] for query, text in sentence_pairs]


class CrossEncoderShaped:
    """A model of sentence-transformers, by its form."""

    def predict(self, sentences: Any) -> list[float]:  # noqa: D102
        return [scores_of(query, [text])[0] for query, text in sentences]


class CohereShaped:
    """A client of Cohere, by its form."""

    def rerank(self, *, model: str, query: str, documents: Any, top_n: int | None = None) -> Any:  # noqa: ARG002, D102
        scores = enumerate(scores_of(query, documents))
        results = [SimpleNamespace(index=index, relevance_score=score) for index, score in scores]
        return SimpleNamespace(results=sorted(results, key=lambda result: -result.relevance_score)[:top_n])


class DashScopeShaped:
    """``dashscope.TextReRank``, by its form."""

    @classmethod
    def call(cls, model: str, query: str, documents: Any, top_n: int, return_documents: bool) -> Any:  # noqa: ARG003, D102
        return SimpleNamespace(output=CohereShaped().rerank(model=model, query=query, documents=documents, top_n=top_n))


class AuthorsReranker:
    """The founding document's interface: documents in the new order, with the score in the metadata."""

    def rerank(self, query: str, documents: Any, top_n: int = 4) -> Any:  # noqa: D102
        scores = scores_of(query, [document.text for document in documents])
        ranked = [
            replace(document, metadata={**document.metadata, "score": score})
            for document, score in zip(documents, scores, strict=True)
        ]
        return sorted(ranked, key=lambda document: -document.metadata["score"])[:top_n]


def rerankers() -> Iterator[tuple[str, bool]]:
    """Row rerank (001, 004): rerankers of other libraries, and the settings."""
    dataset = Dataset("rails", embedder=HashingEmbedder())
    texts = ("red signal red signal and much else beside", "signal and track and lamp", "red signal")
    dataset.add([Document(str(number), text) for number, text in enumerate(texts)])
    rerankers = (FlagShaped(), CrossEncoderShaped(), CohereShaped(), DashScopeShaped, AuthorsReranker())
    for reranker in rerankers:
        (context,) = RetrievalWorkflow(reranker=reranker).retrieve("red signal", [dataset], refuse=False)
        name = reranker.__name__ if isinstance(reranker, type) else type(reranker).__name__
        yield f"RetrievalWorkflow(reranker={name})", context.reranked and context.hits[0].id == "2"
    kept_score = context.hits[0].document.metadata.get("score")
    yield "metadata['score'] beside hit.score", kept_score == context.hits[0].score == 1.0
    try:
        RetrievalWorkflow(reranker="sentence-transformers:no/such-model")
    except (ModelError, MissingDependencyError) as error:
        yield "reranker='sentence-transformers:…'", "sentence-transformers" in str(error)
    with fake_server(jina_answer) as url:
        settings = pointsman.Settings(reranker=f"jina:m@{url}", enable_reranker_by_default=True)
        llm = ScriptedLLM(lambda _: {"passage": "A red signal stops trains."})
        workspace = pointsman.open("ws", embedder=HashingEmbedder(), settings=settings, llm=llm)
        workspace.dataset("rails").add([Document(str(number), text) for number, text in enumerate(texts)])
        for strategy in (
            *("bm25", "vector", "hybrid", "sparse", "multi_query", "decomposition"),
            *("compression", "parent_child", "hyde", "query2doc", "auto"),
        ):
            context = workspace.search("red signal", strategy=strategy, refuse=False)
            yield f"enable_reranker_by_default: {strategy}", context.reranked and context.hits[0].id == "2"
        yield "auto says that it reranks, and why", any(what.what == "rerank" for what in context.decisions)
        with TestClient(create_app(workspace), base_url="http://localhost") as client:
            for strategy in ("bm25", "auto"):
                body = {"query": "red signal", "strategy": strategy}
                answer = client.post("/api/retrieval/search", json=body).json()
                yield f"HTTP: reranking_applied, {strategy}", answer.get("reranking_applied") is True


def jina_answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return what Jina's rerank API answers, by its form."""
    scores = enumerate(scores_of(body["query"], body["documents"]))
    return {"results": [{"index": index, "relevance_score": score} for index, score in scores]}


class AuthorsRetriever:
    """The interface of the founding document, and what one of LlamaIndex can do besides."""

    def __init__(self, *documents: Document) -> None:
        self.documents = list(documents)
        self.options: dict[str, Any] = {}

    def retrieve(self, query: Any) -> list[Document]:  # noqa: ARG002, D102
        return self.documents

    def add_nodes(self, nodes: list[Document]) -> None:  # noqa: D102
        self.documents += nodes

    def delete_nodes(self, ids: list[str]) -> None:  # noqa: D102
        self.documents = [document for document in self.documents if document.id not in ids]

    def persist(self, persist_dir: Any, **kwargs: Any) -> None:  # noqa: ARG002, D102
        self.options = kwargs


class AsyncLlamaRetriever(BaseRetriever):
    """One of LlamaIndex, whose own method calls its parameter ``query``, as the document does."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        super().__init__()

    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:  # noqa: ARG002
        return [NodeWithScore(node=TextNode(id_=name, text=name), score=1.0) for name in self.ids]

    async def _aretrieve(self, query: Any) -> list[NodeWithScore]:
        return self._retrieve(query)


class FullRetriever(AuthorsRetriever):
    """It can take no documents."""

    def add_nodes(self, nodes: list[Document]) -> None:  # noqa: ARG002, D102
        raise OSError("the disk is full")


def hybrid_retriever() -> Iterator[tuple[str, bool]]:
    """Row 003: what is passed on, pages, both as the key, and what is taken back."""
    left = AuthorsRetriever(Document("a", "one"), Document("b", "two"))
    right = AuthorsRetriever(Document("a", "one"), Document("b", "three"))
    hybrid = SimpleHybridRetriever(left, right)
    hybrid.persist("saved", fs="x")
    yield "persist: its options arrive", left.options == right.options == {"fs": "x"}
    pages = [hybrid.retrieve("x", 1, offset=offset)[0].id for offset in range(2)]
    yield "retrieve: offset pages", pages == [hit.id for hit in hybrid.retrieve("x", 2)]
    by_both = SimpleHybridRetriever(left, right, dedupe="id_and_content").retrieve("x")
    yield "dedupe by id and content", [hit.text for hit in by_both] == ["one", "two", "three"]
    both = SimpleHybridRetriever(AsyncLlamaRetriever(["a"]), AsyncLlamaRetriever(["b"]))
    hits = asyncio.run(both.aretrieve("x"))
    yield "LlamaIndex's _aretrieve(query): both are kept", {hit.id for hit in hits} == {"a", "b"} and not hits.degraded
    outcome = SimpleHybridRetriever(left, FullRetriever()).add_nodes([Document("new", "four")], roll_back=True)
    yield "add_nodes: what was added is taken back and named", bool(outcome.taken_back) and len(left.documents) == 2


def keyword_index() -> Iterator[tuple[str, bool]]:
    """Row 004: the manager of a keyword index, and the reason why a list keeps its order."""
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    dataset = workspace.dataset("rails")
    dataset.add([Document("a", "a rail"), Document("b", "a signal")])
    manager = BM25IndexManager("bm25_index", dataset)
    yield "asyncio.run(manager.build_from_vector_store())", asyncio.run(manager.build_from_vector_store()) > 0
    yield "asyncio.run(manager.search(…))", [hit.id for hit in asyncio.run(manager.search("signal", 1))] == ["b"]
    decisions = workspace.search("rail", strategy="vector", refuse=False).plan.decisions
    reason = next(decision.reason for decision in decisions if decision.what == "rerank")
    yield "the reason why 'vector' is not reranked", reason.startswith("'vector' was requested by name")


def settings_and_service() -> Iterator[tuple[str, bool]]:
    """Row 004: settings as the document has them, and what the service says before a search."""
    settings = pointsman.Settings()
    yield "config.get", settings.get("enable_reranker_by_default", False) and settings.get("unknown", 1) == 1
    environ = {"POINTSMAN_MULTI_QUERY_VARIANTS": '["original", "synonym"]', "DASHSCOPE_API_KEY": "k"}
    loaded = pointsman.Settings.load(environ=environ)
    yield "a list in JSON in a variable", loaded.multi_query_variants == ("original", "synonym")
    unused = loaded.unused_keys(environ)["DASHSCOPE_API_KEY"]
    sends_nothing = loaded.llm("hyde", environ).missing is not None
    yield "a key alone: unused, named with the setting", sends_nothing and "set llm_provider to dashscope" in unused
    loaded = pointsman.Settings.load(environ={**environ, "POINTSMAN_LLM_PROVIDER": "dashscope"})
    spec = loaded.llm("hyde", environ)
    yield "the provider is enough beside its key", (spec.model, spec.missing) == ("qwen-plus", None)
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("rails").add([Document("a", "a rail and a signal"), Document("b", "another signal")])
    for question in ("What is the difference between a rail and a signal?", "比较铁路和公路的区别"):
        advice, answer = workspace.recommend(question), workspace.search(question, refuse=False)
        yield f"recommended is what auto does: {question}", advice.strategy == answer.plan.strategy
    limits = Limits(requests_per_minute=0)
    with serving(create_app(workspace, limits=limits), limits) as url:
        command = ["curl", "-s", f"{url}/api/retrieval/recommend_strategy?query=什么是环保设备"]
        answer = json.loads(subprocess.run(command, capture_output=True, timeout=60, check=True).stdout)
    yield "curl …?query=什么是环保设备", "recommended_strategy" in answer


def compression() -> Iterator[tuple[str, bool]]:
    """Row 004: a model compresses, however short the texts are; lengths and ratio are in the trace."""
    text = "The bridge was opened in 1932. It carries trains. Its architect was John Bradfield. The paint is grey."
    dataset = Dataset("bridges", embedder=HashingEmbedder())
    dataset.add([Document("a", text)])
    for settings in ({}, {"compression_max_length": 100}, {"compression_use_llm": False}):
        llm = ScriptedLLM(lambda _: {"keep": [3]})
        service = EnhancedRetrievalService(settings, dataset, llms={"compression": llm})
        hits = service.search_sync("Who was the architect of the bridge?", 1, "compression")
        expected = [text] if "compression_use_llm" in settings else ["Its architect was John Bradfield."]
        yield (
            f"compression with {settings}",
            [hit.text for hit in hits] == expected and bool(llm.calls) == (hits[0].text != text),
        )
        if llm.calls:
            details = " ".join(span.detail for span in hits.trace.spans)
            yield (
                "both lengths and the ratio are in the trace",
                f"{len(text)} characters became {len(hits[0].text)} (" in details,
            )


def evaluation() -> Iterator[tuple[str, bool]]:
    """Row 004: one table for a folder and a file of questions, with every column and row of the document's."""
    texts = {"switch": "A railway switch guides trains.", "tea": "Green tea is brewed below boiling point."}
    Path("corpus.jsonl").write_text("\n".join(json.dumps({"_id": name, "text": text}) for name, text in texts.items()))
    Path("queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "what guides a train?"}))
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tswitch\t1\n")
    Path("questions.csv").write_text("query,source\nwhat guides a train?,switch\n")
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("notes").add([Document(name, text) for name, text in texts.items()])
    of_folder = evaluate(".", "all", embedder=HashingEmbedder()).to_json()
    of_questions = evaluate_questions(workspace, "questions.csv", "all").to_json()
    yield (
        "--strategies all with a folder and a CSV",
        of_folder["strategies"].keys() == of_questions["strategies"].keys(),
    )
    columns = {"ndcg@10", "recall@10", "precision@10", "mrr@10", "latency_ms", "latency_without_embedding_ms", "llm"}
    for name, form in (("a folder", of_folder), ("a CSV", of_questions)):
        rows = form["strategies"]
        yield f"every column, {name}", all(columns <= row.keys() for row in rows.values())
        yield f"Hybrid + Reranker as a row, {name}", "hybrid+rerank" in rows
    try:
        evaluate(
            ".", "hyde", embedder=HashingEmbedder(), settings=pointsman.Settings(llm_base_url="http://127.0.0.1:9/v1")
        )
    except InputError as error:
        yield (
            "eval DIR --strategies hyde reads the settings",
            "no model is named for http://127.0.0.1:9/v1" in str(error),
        )


def filters_over_stores() -> Iterator[tuple[str, bool]]:
    """Row 001, 004: filters over the vector stores of LangChain and LlamaIndex."""
    texts = [f"a rail and a signal {number}" for number in range(300)]
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_texts(texts, [{"year": 2000 + number % 25} for number in range(300)], ids=[str(n) for n in range(300)])
    nodes = [TextNode(text=text, id_=str(n), metadata={"year": 2000 + n % 25}) for n, text in enumerate(texts)]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    for name, source in (("LangChain", store), ("LlamaIndex", index)):
        with EnhancedRetrievalService(None, source) as service:
            for strategy in ("vector", "auto"):
                hits = service.search_sync("rail", 5, strategy, filters="year > 2022")
                yield f"{name}, {strategy}", len(hits) == 5 and all(hit.metadata["year"] > 2022 for hit in hits)


def routes() -> Iterator[tuple[str, bool]]:
    """Row 002: filters, identifiers, and counters of `router_select`."""
    for text in (
        "новости source:tass",
        "план tag:срочно",
        "приказ год:2024",
        "отчёты с:2023 по:2024",
        "книги автор:чехов",
    ):
        yield f"filters: {text}", router_select(text) == {"route": "hybrid", "reasons": ["filters_or_mixed_signals"]}
    for text in ("ошибка 0x80070057", "ERR_CONNECTION_RESET"):
        yield f"exact: {text}", router_select(text)["route"] == "bm25"
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("rails").add([Document("a", "a rail")])
    with TestClient(create_app(workspace, settings=pointsman.Settings()), base_url="http://localhost") as client:
        client.post("/api/route", json={"query": "дата создания"})
        counter = 'pointsman_routes_total{reason="short_or_entity_numeric",route="bm25"} 1.0'
        yield "routes and reasons in /metrics", counter in client.get("/metrics").text
        for query, words in (("railway", "few words"), ("дата создания", "мало слов"), ("铁路", "词语很少")):
            answer = client.post("/api/route", json={"query": query}).json()
            yield f"words beside the code: {query}", answer["heuristic_reason"].startswith(words)
    workspace.close()
    rules: Any = [{"words": ["PN-"], "route": "bm25", "reason": "part_number"}]
    settings = pointsman.Settings(route_rules=rules)
    with pointsman.open("ws", settings=settings, embedder=HashingEmbedder()) as workspace:
        choice = workspace.route("PN-77 how do I mount it").heuristic
        yield "rules from settings", choice == {"route": "bm25", "reasons": ["part_number"]}
        counts = [{"route": "bm25", "reason": "part_number", "queries": 1}]
        yield "routes and reasons in status", workspace.status("rails")["routes"] == counts
    rules = {"POINTSMAN_ROUTE_RULES": '[{"words": ["发票"], "route": "bm25", "reason": "发票"}]'}
    choice = json.loads(typed("route", "为什么这张发票没有寄出？", "--json", **rules))["heuristic"]
    yield "rules from the environment", choice == {"route": "bm25", "reasons": ["发票"]}


def router_measured() -> Iterator[tuple[str, bool]]:
    """Delight, 002: `router_select` as a row of `eval`, with its counts."""
    folder = Path("rails")
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "a rail bends"}\n{"_id": "b", "text": "bread rises"}')
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "rail"}\n{"_id": "2", "text": "why does bread rise?"}')
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t1\n")
    answer = json.loads(typed("eval", "rails", "--strategies", "router_select", "--json"))
    yield (
        "eval: routes and reasons",
        [tuple(row.values()) for row in answer["strategies"]["router_select"]["routes"]]
        == [
            ("bm25", "short_or_entity_numeric", 1),
            ("dense", "conversational_or_long", 1),
        ],
    )


def help_in_three_languages() -> Iterator[tuple[str, bool]]:
    """Delight, all: the help of commands and their errors in the language of the person at the terminal."""
    for language, usage, error in (("zh", "用法: ", "没有名为"), ("ru", "Использование: ", "набора данных")):
        for command in ((), ("search",), ("eval",), ("keys", "create")):
            words = typed(*command, "--help", POINTSMAN_LANGUAGE=language)
            yield f"{language}: {' '.join(('pointsman', *command))} --help", words.lstrip().startswith(usage)
        workspace = pointsman.open(language, embedder=HashingEmbedder())
        workspace.dataset("rails").add([Document("a", "a rail")])
        told = typed("search", "rail", "--dataset", "bread", "--workspace", language, POINTSMAN_LANGUAGE=language)
        yield f"{language}: an error", error in told
        with TestClient(create_app(workspace), base_url="http://localhost") as client:
            headers = {"Accept-Language": language}
            for body in (
                {"query": "x", "k": 5000},
                {"query": "x", "filters": "year 2024"},
                {"query": "x", "colour": 1},
            ):
                problem = client.post("/api/search", json=body, headers=headers).json()
                for text in (problem["title"], problem["detail"]):
                    yield f"{language}: {text}", bool(re.search("[а-я一-鿿]", text))


def fitted_and_measured() -> Iterator[tuple[str, bool]]:
    """Rows console, 003 and 004: what tune and calibrate tell; one's own retriever; what a model has cost."""
    subjects = [
        "rail",
        "signal",
        "switch",
        "lamp",
        "yard",
        "bridge",
        "tunnel",
        "platform",
        "whistle",
        "brake",
        "cab",
        "tender",
    ]
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("notes").add([Document(subject, f"The {subject} is kept.") for subject in subjects])
    Path("questions.csv").write_text("query,source\n" + "".join(f"a {subject},{subject}\n" for subject in subjects))
    workspace.close()
    for language in ("zh", "ru"):
        for command in (("tune", "questions.csv"), ("calibrate",)):
            words = typed(*command, "-d", "notes", "--dry-run", "-w", "ws", POINTSMAN_LANGUAGE=language)
            yield f"{language}: {words.strip()}", bool(re.search("[а-я一-鿿]", words))
    figures = measure({"1": {"a": 1}}, {"1": ["b", "a"]}, k=10)
    yield "measure: a ranking of one's own", figures.means["mrr@10"] == 0.5
    llm = ScriptedLLM(lambda _: {"keep": [1]})
    with pointsman.open("ws", embedder=HashingEmbedder(), llm=llm) as workspace:
        with TestClient(create_app(workspace, settings=pointsman.Settings()), base_url="http://localhost") as client:
            client.post("/api/search", json={"query": "a rail", "strategy": "compression", "refuse": "never"})
            told = client.get("/metrics").text
        for name in ("llm_calls_total", "llm_tokens_total", 'compressed_characters_total{text="excerpt"}'):
            count = re.search(rf"^pointsman_{re.escape(name)} (\S+)$", told, re.MULTILINE)
            yield f"/metrics: {name}", count is not None and float(count[1]) > 0


def messages_in_three_languages() -> Iterator[tuple[str, bool]]:
    """Row console, API: what a search says is in the language of the question; no text mixes languages."""
    settings = pointsman.Settings(policy="heuristic")
    with pointsman.open("ws", settings=settings, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "Invoice: paper and toner.")])
        scripts = {"что едят пингвины цвет:красный": "[а-я]", "企鹅吃什么 颜色：红": "[\u4e00-\u9fff]"}
        for question, script in scripts.items():
            answer = workspace.search(question, refuse="never", group_by="file", rerank=True)
            texts = [answer.reason, *answer.degraded]
            yield f"{question}: something is told", len(texts) > 1
            for text in texts:
                yield f"{question}: {text}", all(re.search(script, part) for part in re.split("[;；] ?", text))


def names() -> Iterator[tuple[str, bool]]:
    """Row 001: a dataset's name may hold spaces, at every door."""
    name, workspace = "Meine Notizen 2024", pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset(name, description="rails and signals").add([Document("a b", "a rail and a signal")])
    workspace.dataset("other").add([Document("x", "tea and coffee")])
    hits = workspace.search("rail", datasets=[name], refuse="never").hits
    yield "in Python", [hit.dataset for hit in hits] == [name]
    keys = KeyStore("keys.json")
    yield "a key", keys.create("bob", datasets=[name]).key.datasets == (name,)
    llm = ScriptedLLM(["Meine Notizen 2024"])
    datasets = [workspace.dataset(name), workspace.dataset("other")]
    yield "a router's answer", [chosen.name for chosen in LLMRouter(llm).route("rail", datasets)] == [name]
    limits = Limits(requests_per_minute=0)
    with serving(create_app(workspace, limits=limits), limits) as url:
        client = pointsman.open(url)
        yield "a client", [hit.dataset for hit in client.search("rail", datasets=[name], refuse="never").hits] == [name]
        yield "an address", httpx.get(f"{url}/api/datasets/{name}/ids").json()["ids"] == ["a b"]
        answer = httpx.post(f"{url}/v1/vector_stores/{name}/search", json={"query": "rail"}).json()
        yield "OpenAI's form", [hit["file_id"] for hit in answer["data"]] == ["a b"]
        body = {"query": "rail", "datasets": [name]}
        answer = httpx.post(f"{url}/api/retrieval/search", json=body).json()
        yield "search over HTTP", [hit["dataset"] for hit in answer["results"]] == [name]
    for arguments in (["search", "rail", "--dataset", name, "--refuse", "never"], ["route", "rail", "--dataset", name]):
        command = [sys.executable, "-m", "pointsman", *arguments]
        environment = {**os.environ, "POINTSMAN_WORKSPACE": "ws", "POINTSMAN_EMBEDDER": "hashing"}
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        yield f"pointsman {arguments[0]}", answer.returncode == 0 and name in answer.stdout


def transformations() -> Iterator[tuple[str, bool]]:
    """Row 001: what rules make of a question."""
    expected = ("北京的人口是多少？", "上海的人口是多少？")
    yield "北京和上海的人口分别是多少 is split", subquestions("北京和上海的人口分别是多少") == expected
    texts = [variant.text for variant in RuleExpander(["synonym"]).transform("repair a car").variants]
    yield "an automobile", "repair an automobile" in texts and "repair a automobile" not in texts
    follow_ups = (
        ("How do I reset the router?", "Good question. Hold the button.", "Why doesn't it work?", "router"),
        ("谢谢", "不客气", "它为什么不行？", "它"),
        ("Почему не работает роутер?", "Возможно, он перегрелся.", "Как его перезагрузить?", "роутер"),
    )
    for question, answer, follow_up, subject in follow_ups:
        history = (Message("user", question), Message("assistant", answer))
        transformation = RuleDisambiguator().transform(Query(follow_up, history=history))
        searched_text = " ".join([transformation.query.text, *[variant.text for variant in transformation.variants]])
        says_courtesy = any(word in searched_text for word in ("Good", "Hold", "谢谢", "Возможно"))
        is_itself = transformation.query.text == follow_up
        yield f"a courtesy is no subject: {follow_up}", subject in searched_text and is_itself and not says_courtesy


def tiny_datasets() -> Iterator[tuple[str, bool]]:
    """Row 001: questions over many tiny datasets are judged together."""
    lines = (Path(__file__).parent / "tiny_datasets.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    workspace, whole = pointsman.open("many"), pointsman.open("one")
    for name, text, _ in rows:
        workspace.dataset(name).add([Document(name, text)])
    whole.dataset("all").add([Document(name, text) for name, text, _ in rows])
    for place, searched in (("as many datasets", workspace), ("as one", whole)):
        refused = [question for *_, question in rows if searched.search(question).verdict == "refused"]
        yield f"{len(refused)} of {len(rows)} are refused {place}", len(refused) <= 1
    yield "нужен ли тендер", workspace.search("нужен ли тендер").verdict != "refused"


def typos() -> Iterator[tuple[str, bool]]:
    """Row 004: Chinese typos, of which 12 of 16 are put right from the documents' own words."""
    typos = TYPOS[:16]
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("zh").add([Document(right, f"本页说明{right}。") for _, right in typos])
    spellings = [workspace.search(typo).spelling for typo, _ in typos]
    count = sum(
        spelling is not None and spelling.text == right for spelling, (_, right) in zip(spellings, typos, strict=True)
    )
    yield f"{count} of 16 typos are put right", count >= 12
    yield "what is right stays", all(workspace.search(right).spelling is None for _, right in typos)


ROWS: Final[dict[str, Case]] = {
    "000": selectors,
    "000-llama-index": llama_index_selectors,
    "000-measured": selectors_measured,
    "000-models": language_model_measured,
    "000-types": types_of_ones_own,
    "001": transformations,
    "001-follow-ups": follow_ups,
    "001-names": names,
    "001-refusal": tiny_datasets,
    "001-synonyms": synonyms,
    "001-filters": filters_over_stores,
    "002": routes,
    "002-evaluation": router_measured,
    "003": hybrid_retriever,
    "004": keyword_index,
    "004-compression": compression,
    "004-commands": commands,
    "004-compression-in-all": compression_in_all,
    "004-evaluation": evaluation,
    "004-typos": typos,
    "004-settings": settings_and_service,
    "console": messages_in_three_languages,
    "errors": errors,
    "console-pages": console_in_three_languages,
    "help": help_in_three_languages,
    "help-equal": translations,
    "own-retrievers": page_of_ones_own_retrievers,
    "measured": fitted_and_measured,
    "rerank": rerankers,
}


def main(chosen: list[str]) -> int:
    """Try the rows; return 1 if one is wrong."""
    wrong = 0
    for row in chosen or sorted(ROWS):
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            wrong += print_cases(row, ROWS[row]())
    return outcome(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
