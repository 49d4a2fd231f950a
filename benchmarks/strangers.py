"""What strangers tried: each case at every door where it can be met, and whether the answer is right.

Run: python benchmarks/strangers.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize
from unittest.mock import patch

import httpx
import uvicorn
from fastapi import FastAPI

import pointsman
from _cases import outcome, print_cases
from pointsman import (
    BaseReranker,
    BaseRetriever,
    Dataset,
    Document,
    Hit,
    LLMRouter,
    LLMSelector,
    RegisteredStrategy,
    ScriptedLLM,
    SimpleHybridRetriever,
    ToolMetadata,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.tools.errors import PointsmanError, RetrievalError
from pointsman.workspace.past_runs import latest

Case = Callable[[], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


@contextmanager
def in_new_folder() -> Iterator[Path]:
    """Work in an empty folder, which is the home folder meanwhile."""
    home = os.environ.get("HOME", "")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        os.environ["HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ["HOME"] = home


def command(*arguments: str, given: str | None = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``pointsman`` as a person would, into a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "pointsman", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "POINTSMAN_EMBEDDER": "default", **variables},
        check=False,
    )


def refuses(call: Callable[[], Any], words: str) -> bool:
    """Whether a call raises an error of ours that has these words."""
    try:
        call()
    except PointsmanError as error:
        return words in str(error)
    return False


@contextmanager
def served(workspace: pointsman.Workspace) -> Iterator[str]:
    """Serve a workspace at the address."""
    server = uvicorn.Server(uvicorn.Config(create_app(workspace), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def make_workspace(path: str, name: str = "rails") -> pointsman.Workspace:
    """Return a workspace with one dataset."""
    workspace = pointsman.open(path, embedder=HashingEmbedder())
    workspace.dataset(name).add([Document("a", "the rail is straight"), Document("b", "a red signal lamp")])
    return workspace


def use_after_closing() -> Iterator[tuple[str, bool]]:
    """Row 3: used after it was closed."""
    workspace = make_workspace("ws")
    dataset = workspace.dataset("rails")
    app = create_app(make_workspace("served"), settings=pointsman.Settings())
    workspace.close()
    yield "Python: search of a closed workspace", refuses(lambda: workspace.search("rail"), "is closed")
    yield "Python: index into a closed workspace", refuses(lambda: workspace.index("x.md"), "is closed")
    yield "Python: search of a dataset of a closed workspace", refuses(lambda: dataset.search("rail"), "is closed")
    with Dataset("own", path="own", embedder=HashingEmbedder()) as own_dataset:
        own_dataset.add([Document("a", "rail")])
    yield "Python: a closed dataset", refuses(lambda: own_dataset.search("rail"), "is closed")

    async def by_client() -> None:
        async with Client("http://localhost", transport=httpx.ASGITransport(app)) as client:
            await client.asearch("rail")
        await client.asearch("rail")

    yield "Client: search after closing", refuses(lambda: asyncio.run(by_client()), "is closed")


def nothing_there() -> Iterator[tuple[str, bool]]:
    """Row 4: a place where there is nothing, and ``~``."""
    make_workspace("rails-ws").close()
    expected = "there is no workspace at 'rails-sw'; did you mean 'rails-ws'?"
    with pointsman.open("rails-sw") as workspace:
        yield "Python: search", any(note.startswith(expected) for note in workspace.search("x").degraded)
        answer = asyncio.run(workspace.asearch("x"))
        yield "Python: asearch", any(note.startswith(expected) for note in answer.degraded)
    answer_of_command = command("search", "x", "--workspace", "rails-sw")
    yield "Command line: search", answer_of_command.returncode == 2 and expected in answer_of_command.stderr
    make_workspace("~/home-ws").close()
    yield "Python: ~", Path("home-ws").is_dir() and not Path("~").exists()
    listing = command("datasets", "--json", POINTSMAN_WORKSPACE="~/home-ws")
    yield "Command line: ~", listing.returncode == 0 and '"rails"' in listing.stdout


class FromTheSeed(BaseRetriever):
    """A retriever as the founding document has it: it takes the query alone."""

    def retrieve(self, query: Any) -> list[Hit]:  # type: ignore[override]  # noqa: ARG002, D102
        return [Hit(Document(f"d{number}", "text"), 1 / number) for number in range(1, 21)]


def query_only() -> Iterator[tuple[str, bool]]:
    """Row 14: a retriever without ``top_k``."""
    retriever = SimpleHybridRetriever(FromTheSeed())
    yield "Python: retrieve", [hit.id for hit in retriever.retrieve("x", 3)] == ["d1", "d2", "d3"]
    yield "Python: aretrieve", len(asyncio.run(retriever.aretrieve("x", 3))) == 3
    try:
        type("NoQuery", (BaseRetriever,), {"retrieve": lambda _: []})
    except TypeError as error:
        yield "Python: a signature that cannot be used", "cannot be called with a query" in str(error)
    else:
        yield "Python: a signature that cannot be used", False


def preflight() -> Iterator[tuple[str, bool]]:
    """Row 9: a page of an allowed origin asks."""
    from pointsman.integrations.mcp import create_http_app

    origin = "https://app.example"
    workspace = make_workspace("ws")
    apps = {"HTTP": create_app(workspace, origins=[origin]), "MCP": create_http_app(workspace, origins=[origin])}
    head = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    head |= {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}

    async def ask(app: Any, path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.options(path, headers=head)

    for door, path in (("HTTP", "/api/search"), ("HTTP", "/v1/vector_stores/notes/search"), ("MCP", "/mcp")):
        answer = asyncio.run(ask(apps[door], path))
        is_right = answer.status_code == 200 and answer.headers.get("access-control-allow-origin") == origin
        yield f"{door}: preflight of {path}", is_right


def asked_counted_stored() -> Iterator[tuple[str, bool]]:
    """Row 5: a dataset is deleted, a file has no text, a measurement is stored."""
    make_workspace("ws").close()
    answer = command("delete", "--all", "-d", "rails", "-w", "ws")
    yield "Command line: delete --all without a terminal", answer.returncode == 2 and "give --yes" in answer.stderr
    answer = command("delete", "--all", "--yes", "-d", "rails", "-w", "ws")
    yield "Command line: delete --all --yes", answer.returncode == 0 and "2 documents deleted" in answer.stdout
    Path("bin.dat").write_bytes(b"\1\2")
    answer = command("index", "bin.dat", "-d", "files", "-w", "ws")
    expected = ("Files read: 0", "problem: bin.dat: there is no text in it")
    yield (
        "Command line: index of a file without text",
        (answer.returncode == 1 and all(words in answer.stdout for words in expected)),
    )
    with pointsman.open("python-ws", embedder=HashingEmbedder()) as workspace:
        report = workspace.index("bin.dat", "files")
        yield "Python: index of a file without text", report.files == 0 and len(report.problems) == 1
    Path("rail.md").write_text("The rail is straight.")
    Path("questions.csv").write_text("query,source\nrail,rail.md\n")
    command("index", "rail.md", "-d", "rails")
    answer = command("eval", "questions.csv", "--strategies", "bm25")
    with pointsman.open(".pointsman", embedder=HashingEmbedder()) as workspace:
        stored = [run["questions"][0]["ndcg"] for run in latest(workspace.backend)]
    yield "Command line: eval stores each question's outcome", answer.returncode == 0 and stored == [{"bm25": 1.0}]


def arguments_of_models() -> Iterator[tuple[str, bool]]:
    """Row 10: arguments as models write them."""
    from mcp import Client as McpClient

    from pointsman.integrations.mcp import create_server

    workspace = make_workspace("ws")
    workspace.dataset("rails").add([Document("c", "a rail of the year", {"year": 2020})])

    async def ask(**arguments: Any) -> str:
        async with McpClient(create_server(workspace)) as client:
            answer = await client.call_tool("search", {"query": "rail", "refuse": False, **arguments})
            text: str = answer.content[0].text  # type: ignore[union-attr]
            return text

    texts: dict[str, list[Any]] = {
        "k": ["3", 3.0],
        "rerank": ["false"],
        "datasets": ['["rails"]', "rails"],
        "filters": ['{"year": 2020}'],
    }
    meant: dict[str, Any] = {"k": 3, "rerank": False, "datasets": ["rails"], "filters": {"year": 2020}}
    for name, forms in texts.items():
        for form in forms:
            is_right = asyncio.run(ask(**{name: form})) == asyncio.run(ask(**{name: meant[name]}))
            yield f"MCP: {name}: {form!r}", is_right
    refused: dict[str, tuple[Any, str]] = {
        "k": (3.5, "a whole number"),
        "rerank": ("yes", "true or false"),
        "datasets": ("a, b", "a list"),
    }
    for name, (other, wanted) in refused.items():
        yield f"MCP: {name}: {other!r}", f"'{name}' takes {wanted}" in asyncio.run(ask(**{name: other}))


def own_application() -> Iterator[tuple[str, bool]]:
    """Row 20: the library in an application of one's own."""
    app = FastAPI()
    pointsman.add_exception_handlers(app)
    workspace = make_workspace("ws")

    @app.get("/ask")
    def ask(strategy: str) -> list[str]:
        return [hit.id for hit in workspace.search("rail", strategy=RegisteredStrategy(strategy), refuse=False)]

    async def get(strategy: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get("/ask", params={"strategy": strategy})

    yield "Python: an answer", asyncio.run(get("bm25")).json() == ["a"]
    answer = asyncio.run(get("nonsense"))
    yield "Python: an error of ours", answer.status_code == 422 and "nonsense" in answer.json()["detail"]

    async def page() -> dict[str, httpx.Response]:
        transport = httpx.ASGITransport(create_app(workspace))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            text = (await client.get("/docs")).text
            parts = re.findall(r'(?:src|href)="([^"]+)"', text)
            return {part: await client.get(f"http://localhost/{part}") for part in parts if ":" not in part}

    parts = asyncio.run(page())
    is_whole = "console/swagger-ui-bundle.js" in parts and all(part.status_code == 200 for part in parts.values())
    yield f"HTTP: /docs, whose {len(parts)} parts are served from here", is_whole


def what_one_door_takes() -> Iterator[tuple[str, bool]]:
    """Row 6: what one door takes, all take."""
    needed = [text for text in requires("pointsman") or () if text.startswith("httpx")]
    yield "Package: httpx comes without an extra", len(needed) == 1 and "extra" not in needed[0]
    Path("rail.md").write_text("The rail is straight.")
    yield "Command line: index without --dataset", command("index", "rail.md", "-w", "ws").returncode == 0
    answer = command("text", "rail.md", "-w", "ws")
    yield "Command line: text without --dataset", answer.stdout.strip() == "The rail is straight."
    answer = command("delete", "--all", "--yes", "-w", "ws")
    yield "Command line: delete --all without --dataset is refused", "--dataset NAME" in answer.stderr
    answer = command("delete", "--source", "rail.md", "-w", "ws")
    yield "Command line: delete without --dataset", "1 document" in answer.stdout
    by_name = HashingEmbedder().name
    with pointsman.open("named", embedder="hashing") as workspace:
        yield "Python: open(embedder=NAME)", workspace.embedder.name == by_name
    yield "Python: Dataset(embedder=NAME)", Dataset("rails", embedder="hashing").embedder.name == by_name
    yield "Python: EmbeddingSelector(NAME)", pointsman.EmbeddingSelector("hashing").embedder.name == by_name
    workflow = pointsman.RetrievalWorkflow(reranker="http://127.0.0.1:9")
    yield "Python: RetrievalWorkflow(reranker=NAME)", "http://127.0.0.1:9" in workflow.reranker.name
    refusal = refuses(lambda: pointsman.open("named", embedder="hashign"), "did you mean 'hashing'")
    yield "Python: an unknown name", refusal


def newest_releases() -> Iterator[tuple[str, bool]]:
    """Row 7: ranges reach the newest release."""
    script = Path(__file__).with_name("ranges.py")
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=False)
    shut_out = [line for line in answer.stdout.splitlines() if " shuts out " in line]
    yield "Package: the ranges were compared with PyPI", answer.stdout.endswith("the newest release\n")
    is_right = len(shut_out) == 1 and shut_out[0].startswith("pytest") and "pytest-xdist" in shut_out[0]
    yield f"Package: what shuts out the newest: {'; '.join(shut_out) or 'nothing'}", is_right


def into_a_pipe() -> Iterator[tuple[str, bool]]:
    """Row 21: nothing is drawn wider than what it is about."""
    Path("rail.md").write_text("The rail is straight.")
    command("index", "rail.md", "-d", "rails", "-w", "ws")  # with the embedder that the command line has
    for arguments in (("demo",), ("search", "rail", "-w", "ws"), ("status", "-w", "ws"), ("config",)):
        answer = command(*arguments)
        widest = max(map(len, answer.stdout.splitlines()), default=0)
        yield f"Command line: {arguments[0]} into a pipe ({widest} columns)", 0 < widest < 2_000


def edited_rows() -> Iterator[tuple[str, bool]]:
    """Row 22: a row of ``documents.sqlite`` is edited by hand."""
    for number, (edit, named) in enumerate(
        (
            ("UPDATE documents SET seq = 'text' WHERE key = 1", "document 'a', key 1"),
            ("UPDATE vectors SET vector = x'' WHERE key = 1", "the vector of key 1"),
            ("UPDATE vectors SET vector = x'00010203' WHERE key = 1", "the vector of key 1"),
            ("UPDATE tombstones SET seq = 'text'", "the deletion of key 2"),
        )
    ):
        path = f"ws{number}"
        with make_workspace(path) as workspace:
            workspace.dataset("rails").delete(["b"])
            workspace.dataset("other").add([Document("c", "another rail")])
        with closing(sqlite3.connect(f"{path}/datasets/rails/documents.sqlite")) as connection:
            connection.execute(edit)
            connection.commit()
        with pointsman.open(path, embedder=HashingEmbedder()) as workspace:
            try:
                workspace.dataset("rails").search("rail")
            except RetrievalError as error:
                is_right = named in str(error) and "pointsman restore" in str(error)
            else:
                is_right = False
            answer = workspace.search("rail", refuse=False)
            yield f"Python: {edit}", is_right
            yield "Python: the other dataset", [hit.id for hit in answer.hits] == ["c"] and bool(answer.degraded)


def written_in_two_ways() -> Iterator[tuple[str, bool]]:
    """Row 12: the same text in NFD and NFC; letters with strokes."""
    apart, composed = (normalize(form, "Übungen") for form in ("NFD", "NFC"))
    texts = ("Łódź is a city", "Smørrebrød with Æbleskiver", "Đà Nẵng by the sea", "Straße und Größe")
    with pointsman.open("ws", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset(apart)
        dataset.add([Document("u", "an exercise", {apart: 1, "source": f"{apart}.md", "tags": [apart]})])
        dataset.add([Document(str(number), text) for number, text in enumerate(texts)])
        yield "Python: the name of a dataset", workspace.names() == [composed]
        for name in (apart, composed):
            conditions = ('source == "{}.md"', 'source startswith "{}"', "`{}` == 1", 'tags in ["{}"]')
            filtered = [dataset.search("exercise", filters=text.format(name), refuse=False) for text in conditions]
            answers = [workspace.search("exercise", datasets=[name], refuse=False), *filtered]
            yield (
                f"Python: filters in {'NFD' if name == apart else 'NFC'}",
                all(answer.hits and answer.hits[0].id == "u" for answer in answers),
            )
        for number, query in enumerate(("lodz", "smorrebrod aebleskiver", "da nang", "strasse grosse")):
            answer = dataset.search(query, strategy="bm25", refuse=False)
            yield f"Python: {query}", [hit.id for hit in answer.hits] == [str(number)]
    Path(f"{apart}.md").write_text("The rail is straight.")
    command("index", f"{apart}.md", "-d", "files", "-w", "ws2")
    answer_of_command = command("search", "rail", "-w", "ws2", "--filter", f'source == "{composed}.md"', "--json")
    yield "Command line: the name of a file", "The rail is straight." in answer_of_command.stdout


UNPAID: Final = 'Status = "unpaid"'
UNRELATED: Final = "what do penguins eat"


def _statuses(documents: Any) -> list[Any]:
    return [document["Status"] for document in documents]


def filtered_for() -> Iterator[tuple[str, bool]]:
    """Row 17: what a written condition selects is not refused."""
    from haystack.dataclasses import Document as HaystackDocument
    from mcp import Client as McpClient

    from haystack_integrations.components.retrievers.pointsman import PointsmanRetriever as HaystackRetriever
    from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore
    from pointsman.integrations.langchain import PointsmanRetriever
    from pointsman.integrations.llama_index import PointsmanRetriever as LlamaIndexRetriever
    from pointsman.integrations.mcp import create_server

    invoices = [
        Document(f"i{number}", f"Invoice {number}: paper, toner.", {"Status": "paid" if number % 4 else "unpaid"})
        for number in range(30)
    ]
    for technique in ("hybrid", "keyword", "vector"):
        with pointsman.open(technique) as workspace:
            workspace.dataset("invoices", indexing_technique=technique).add(invoices)
        workspace = pointsman.open(technique)
        expected = ["unpaid"] * 5
        for door, answer in {
            "search": workspace.search(UNRELATED, filters=UNPAID),
            "search_many": workspace.search_many([UNRELATED], filters={"Status": "unpaid"})[0],
            "asearch": asyncio.run(workspace.asearch(UNRELATED, filters=UNPAID)),
        }.items():
            is_right = _statuses(hit.metadata for hit in answer.hits) == expected and answer.refused is None
            yield f"Python: {technique}: {door}", is_right and "matches the filter" in answer.degraded[0]
        text = command("search", UNRELATED, "-w", technique, "--filter", UNPAID).stdout
        yield f"Command line: {technique}", "5 hits" in text and "matches the filter" in text
        service = httpx.ASGITransport(create_app(workspace, settings=pointsman.Settings()))

        async def ask(path: str, body: dict[str, Any], service: httpx.ASGITransport = service) -> Any:
            async with httpx.AsyncClient(transport=service, base_url="http://localhost") as client:
                return (await client.post(path, json=body)).json()

        async def by_client(service: httpx.ASGITransport = service) -> Any:
            async with Client("http://localhost", transport=service) as client:
                return await client.asearch(UNRELATED, filters=UNPAID)

        async def by_mcp(workspace: pointsman.Workspace = workspace) -> Any:
            async with McpClient(create_server(workspace)) as client:
                answer = await client.call_tool("search", {"query": UNRELATED, "filters": UNPAID})
                return answer.structured_content

        page = asyncio.run(ask("/api/search", {"query": UNRELATED, "filters": UNPAID}))
        is_right = _statuses(hit["metadata"] for hit in page["hits"]) == expected
        yield f"HTTP: {technique}", is_right and "matches the filter" in page["degraded"][0]
        condition = {"name": "Status", "comparison_operator": "is", "value": "unpaid"}
        body = {"knowledge_id": "invoices", "query": UNRELATED, "metadata_condition": {"conditions": [condition]}}
        records = asyncio.run(ask("/retrieval", body))["records"]
        yield f"Dify: {technique}", _statuses(record["metadata"] for record in records) == expected
        filters = {"type": "eq", "key": "Status", "value": "unpaid"}
        page = asyncio.run(ask("/v1/vector_stores/invoices/search", {"query": UNRELATED, "filters": filters}))
        yield f"OpenAI: {technique}", set(_statuses(hit["attributes"] for hit in page["data"])) == {"unpaid"}
        remote = asyncio.run(by_client())
        yield f"Client: {technique}", _statuses(hit.metadata for hit in remote.hits) == expected
        answer_of_tool = asyncio.run(by_mcp())
        is_right = _statuses(hit["metadata"] for hit in answer_of_tool["results"]) == expected
        yield f"MCP: {technique}", is_right and "matches the filter" in answer_of_tool["degraded"][0]
        documents = PointsmanRetriever(source=workspace, k=5, options={"filters": UNPAID}).invoke(UNRELATED)
        yield f"LangChain: {technique}", _statuses(document.metadata for document in documents) == expected
        nodes = LlamaIndexRetriever(workspace, 5, filters=pointsman.parse_filter(UNPAID)).retrieve(UNRELATED)
        yield f"LlamaIndex: {technique}", _statuses(node.metadata for node in nodes) == expected
    store = PointsmanDocumentStore("haystack")
    store.write_documents(
        [HaystackDocument(id=invoice.id, content=invoice.text, meta=dict(invoice.metadata)) for invoice in invoices]
    )
    filters = {"field": "meta.Status", "operator": "==", "value": "unpaid"}
    found_documents = HaystackRetriever(store, refuse=True).run(UNRELATED, filters=filters)["documents"]
    yield "Haystack", set(_statuses(document.meta for document in found_documents)) == {"unpaid"}


class _NotFound(BaseHTTPRequestHandler):
    """Answers everything with 404."""

    def do_GET(self) -> None:
        """Read the request, and answer."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_error(404)

    do_POST = do_GET  # noqa: N815  (its name there)

    def log_message(self, *arguments: Any) -> None:  # noqa: ARG002  (nothing is printed)
        return


def through_proxies() -> Iterator[tuple[str, bool]]:
    """Row 8: a proxy is set that nothing reaches, and models and services are on this machine."""
    from pointsman.embedders import OpenAIEmbedder
    from pointsman.llm import OpenAILLM
    from pointsman.retrieval.refine.rerank import HTTPReranker

    server = ThreadingHTTPServer(("127.0.0.1", 0), _NotFound)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here, variables = f"http://127.0.0.1:{server.server_port}", ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy")
    calls: dict[str, Callable[[str], Any]] = {
        "language model": lambda url: OpenAILLM("m", f"{url}/v1").complete("x"),
        "embedder": lambda url: OpenAIEmbedder("m", f"{url}/v1").embed_queries(["x"]),
        "reranker": lambda url: HTTPReranker(url).score("x", ["y"]),
        "client": lambda url: Client(url, insecure=True).search("x"),
    }
    try:
        for proxy in ("http://127.0.0.1:9", "socks5://p.example:1080", "ftp://p.example:1"):
            with patch.dict(os.environ, {**dict.fromkeys(variables, proxy), "NO_PROXY": "[::1]"}):
                for name, call in calls.items():
                    yield f"Python: {name} on this machine, {proxy}", refuses(partial(call, here), "404")
                    if not proxy.startswith("http"):
                        is_named = refuses(partial(call, "http://a.example"), "p.example")
                        yield f"Python: {name} elsewhere, {proxy}: the proxy is named", is_named
    finally:
        server.shutdown()
        server.server_close()


def clear_choices() -> Iterator[tuple[str, bool]]:
    """Row 13: a language model says clearly what it chooses, and why."""
    travel = [
        ToolMetadata("weather", "forecasts for a city"),
        ToolMetadata("news", "what happened today"),
        ToolMetadata("flights", "books plane tickets"),
    ]
    answers = (
        "Option 3 is best because the user wants to fly.",
        "选择3，因为用户要订票",
        "Выбираю 3, потому что пользователь не хочет ехать.",
        '[{"choice": 3, "reason": "the us',
        "books plane tickets",
    )
    with pointsman.open("ws", embedder=HashingEmbedder()) as workspace:
        datasets = [workspace.dataset(tool.name, description=tool.description) for tool in travel]
        for answer in answers:
            selection = LLMSelector(ScriptedLLM([answer])).select(travel, "book me a flight")
            yield f"Python: LLMSelector, {answer!r}", selection.inds == [2]
            decision = LLMRouter(ScriptedLLM([answer])).decide("book me a flight", datasets)
            yield f"Python: LLMRouter, {answer!r}", [dataset.name for dataset in decision.datasets] == ["flights"]


def left_out() -> Iterator[tuple[str, bool]]:
    """Row 2: files that nobody wants indexed."""
    folder = Path("repo/mine")
    texts = {".git/HEAD": "x", ".gitignore": "*.log\nbuild/\n!build\n", "mine/.ignore": "/draft.md\n"}
    texts |= dict.fromkeys(
        ("mine/a.md", "mine/b.log", "mine/build/c.md", "mine/build/d.log", "mine/draft.md", "mine/x/draft.md"),
        "A rail.",
    )
    for name, text in texts.items():
        Path("repo", name).parent.mkdir(parents=True, exist_ok=True)
        Path("repo", name).write_text(text)

    def sources(place: str) -> list[str]:
        with pointsman.open(place, embedder=HashingEmbedder()) as workspace:
            return sorted({str(document.metadata["source"]) for document in workspace.dataset("files")})

    read = ["a.md", "build/c.md", "x/draft.md"]
    answer = command("index", str(folder), "-d", "files", "-w", "ws", "--technique", "keyword")
    yield "Command line: .gitignore of the folder above, .ignore", sources("ws") == read
    yield "Command line: what is left out is counted", "3 by ignore files (--no-ignore)" in answer.stdout
    with pointsman.open("python-ws", embedder=HashingEmbedder()) as workspace:
        report = workspace.index(folder, ignore_files=False)
        yield "Python: ignore_files=False", report.files == 6
        report = workspace.index(folder, exclude=["/x"])
        still_stored = ("b.log", "build/d.log", "draft.md", "x/draft.md")
        yield "Python: what was stored stays, and is named", report.stored_omissions == still_stored
        yield "Python: prune", workspace.index(folder, exclude=["/x"], prune=True).deleted == 4
    yield "Python: what is stored after it", sources("python-ws") == ["a.md", "build/c.md"]
    answer = command("index", str(folder), "-d", "files", "-w", "ws", "--include", "*.md", "--exclude", "build")
    told = answer.stdout.count("left out now, but still stored: build/c.md;") == 1 and sources("ws") == read
    yield "Command line: --include, --exclude", told
    command("index", str(folder), "-d", "files", "-w", "ws", "--exclude", "build", "--prune")
    yield "Command line: --prune", sources("ws") == ["a.md", "x/draft.md"]
    with (
        pointsman.open("served", embedder=HashingEmbedder()) as workspace,
        served(workspace) as address,
        Client(address) as client,
    ):
        counts = [client.index(folder).files, client.index(folder, exclude="build").stored_omissions]
        yield "Client: the same", counts == [3, ("build/c.md",)]
        yield "Client: prune", client.index(folder, exclude="build", prune=True).deleted == 1
        Path(folder, "a.md").unlink()
        yield "Client: a file that is gone", client.index(folder).deleted == 1


def said_once() -> Iterator[tuple[str, bool]]:
    """Row 16: a refusal is said once, before the hits, in the language of the question."""
    from mcp import Client as McpClient

    from pointsman.integrations.mcp import create_server
    from pointsman.values.reasons import messages

    headings = messages()["nearest"]
    beginnings = [words.partition("{")[0] for words in messages()["improbable"]]
    with pointsman.open("ws") as workspace:
        workspace.dataset("rails").add([Document(str(number), f"Rail {number} is straight.") for number in range(9)])
    workspace = pointsman.open("ws", settings=pointsman.Settings(policy="heuristic"))
    service = httpx.ASGITransport(create_app(workspace, settings=pointsman.Settings()))

    async def post(path: str, body: dict[str, Any]) -> Any:
        async with httpx.AsyncClient(transport=service, base_url="http://localhost") as client:
            return (await client.post(path, json=body)).json()

    async def by_mcp(text: str) -> Any:
        async with McpClient(create_server(workspace)) as client:
            return (await client.call_tool("search", {"query": text})).structured_content

    for number, question in enumerate(("what do penguins eat?", "企鹅吃什么？", "что едят пингвины?")):
        answer = workspace.search(question)
        reason = "" if answer.refused is None else answer.refused.reason
        heading, beginning = headings[number], beginnings[number]
        yield f"Python: {question}: the reason", reason.startswith(beginning) and bool(answer.reasons[0].code)
        words = re.sub("HyDE|hyde|hybrid|rails|llm_[a-z_]+", "", answer.reason)
        scripts = [re.search(letters, words) is not None for letters in ("[a-z]{2}", "[一-鿿]", "[а-я]")]
        yield f"Python: {question}: one language", scripts == [place == number for place in range(3)]
        prompt = answer.to_prompt()
        yield f"Python: {question}: the prompt", prompt.startswith(heading) and prompt.count(heading) == 1
        text = command("search", question, "-w", "ws").stdout
        yield f"Command line: {question}", text.startswith(beginning) and text.count(beginning) == 1
        page = asyncio.run(post("/api/search", {"query": question}))
        is_right = page["refused"]["reason"] == reason and page["refused"]["reasons"][0]["code"] == "improbable"
        yield f"HTTP: {question}", is_right
        (record,) = asyncio.run(post("/retrieval", {"knowledge_id": "rails", "query": question}))["records"]
        yield f"Dify: {question}", record["content"].startswith(heading) and record["content"].count(heading) == 1
        yield f"MCP: {question}", asyncio.run(by_mcp(question))["refused"]["reason"] == reason


def beyond_the_limit() -> Iterator[tuple[str, bool]]:
    """Row 11: questions and documents that differ only after the embedder's limit."""
    from mcp import Client as McpClient

    from pointsman.integrations.mcp import create_server

    beginning = " ".join(f"the lamp of yard {number} is green" for number in range(100))
    texts = [f"{beginning} {ending}" for ending in ("and the rail is straight", "and nothing else is said")]
    Path("long.txt").write_text(texts[0])
    workspace = pointsman.open("ws")
    report = workspace.index("long.txt", "lamps")
    yield "Python: index of a file cuts it to fit", report.passages.added > 1 and report.truncations == 0
    result = workspace.dataset("lamps").add([Document(str(number), text) for number, text in enumerate(texts)])
    yield "Python: add", result.truncations == 2
    first, second = workspace.dataset("lamps").get_vectors(["0", "1"])
    yield "Python: their vectors are equal", first is not None and second is not None and bool((first == second).all())
    yield "Python: status", workspace.status("lamps")["truncations"] == 2
    for name, question in zip(
        ("en", "zh", "ru"), (texts[0], "信号灯是绿色的。" * 200, "лампа зелёная " * 300), strict=True
    ):
        notes = workspace.search(question).degraded
        yield f"Python: search, {name}", sum(f"{len(question):,}" in note for note in notes) == 1
    yield "Python: asearch", workspace.search(texts[0]).degraded == asyncio.run(workspace.asearch(texts[0])).degraded
    yield "Python: a short question", not workspace.search("green lamp").degraded
    answer = command("status", "-w", "ws")
    yield "Command line: status", "2 documents longer than the embedder reads" in answer.stdout
    answer = command("index", "long.txt", "-d", "lamps", "-w", "ws")
    yield "Command line: index", "2 documents longer than the embedder reads" in answer.stdout
    answer = command("search", texts[0], "-w", "ws")
    yield "Command line: search", "too long a question for the embedder" in answer.stdout + answer.stderr

    async def by_mcp() -> tuple[Any, Any]:
        async with McpClient(create_server(workspace)) as client:
            datasets = (await client.call_tool("list_datasets", {})).structured_content
            return datasets, (await client.call_tool("search", {"query": texts[0]})).structured_content

    datasets, answer_of_tool = asyncio.run(by_mcp())
    yield "MCP: list_datasets", datasets["datasets"][0]["truncations"] == 2
    yield "MCP: search", "too long a question" in " ".join(answer_of_tool["degraded"])
    with served(workspace) as address, Client(address) as client:
        status = httpx.get(f"{address}/api/datasets/lamps").json()
        yield "HTTP: status", status["truncations"] == 2
        yield "Client: status", client.status("lamps")["truncations"] == 2
        yield "Client: add", client.dataset("lamps").add([Document("2", texts[1] + "!")]).truncations == 1
        body = {"query": texts[0]}
        answer_of_service = httpx.post(f"{address}/api/search", json=body, timeout=60).json()
        yield "HTTP: search", "too long a question" in " ".join(answer_of_service["degraded"])
        workspace.dataset("lamps").delete(["0", "2"])
        workspace.dataset("lamps").add([Document("1", "a short text")])
    with pointsman.open("ws") as workspace:
        yield "Python: status after changes and a restart", workspace.status("lamps")["truncations"] == 0


class LastFirst(BaseReranker):
    """A reranker that puts the last hit first."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:  # noqa: ARG002, D102
        return [float(number) for number in range(len(texts))]


def against_rank() -> Iterator[tuple[str, bool]]:
    """Row 18: a hit stands above another that is more relevant."""
    from mcp import Client as McpClient

    from pointsman.integrations.mcp import create_server

    things = ("lamp", "rail", "signal", "yard", "switch", "driver")
    texts = [
        f"The {one} and the {other} are checked before the {one} is used." for one, other in permutations(things, 2)
    ]
    with pointsman.open("ws") as workspace:
        workspace.dataset("checks").add([Document(str(number), text) for number, text in enumerate(texts)])
    questions = [f"when are {one} and {other} checked" for one, other in combinations(things, 2)]
    questions += ["何时检查信号和灯", "когда проверяют сигнал и лампу"]
    workflows = {
        "by default": pointsman.RetrievalWorkflow(),
        "a reranker of one's own": pointsman.RetrievalWorkflow(reranker=LastFirst()),
    }
    for name, workflow in workflows.items():
        workspace = pointsman.open("ws", workflow=workflow)
        for options in ({}, {"rerank": False}, {"strategy": "vector"}, {"strategy": "bm25"}):
            right, against = 0, 0
            for question in questions:
                answer = workspace.search(question, 8, refuse=False, **options)
                levels = [hit.relevance for hit in answer if hit.relevance is not None]
                is_against = levels != sorted(levels, reverse=True)
                codes = [statement.code for statement in answer.reasons if statement.code.startswith("order_")]
                right += is_against == (len(codes) > 0)
                against += is_against
            tried = f"Python, {name}, {options or 'auto'}: {against} of {len(questions)} answers"
            yield tried, right == len(questions)
    words = (
        "relevance judges each hit by itself",
        "相关度则单独评判每条结果",
        "вероятность считается для каждого результата отдельно",
    )
    service = httpx.ASGITransport(create_app(workspace))

    async def ask(question: str) -> tuple[Any, Any]:
        arguments = {"query": question, "k": 8, "refuse": False}
        async with httpx.AsyncClient(transport=service, base_url="http://localhost") as client:
            form = (await client.post("/api/search", json=arguments)).json()
        async with McpClient(create_server(workspace)) as client_of_mcp:
            return form, (await client_of_mcp.call_tool("search", arguments)).structured_content

    for question, sentence in zip((questions[0], *questions[-2:]), words, strict=True):
        by_http, by_mcp = asyncio.run(ask(question))
        is_right = by_http["reason"].count(sentence) == 1 and by_http["reasons"][-1]["code"] == "order_rerank"
        yield f"HTTP: {question}", is_right
        yield f"MCP: {question}", by_mcp["reason"].count(sentence) == 1
    with pointsman.open("ws") as workspace:
        answers = [workspace.search(question, 8) for question in questions]
    answer = next(answer for answer in answers if answer.reasons[-1].code == "order_fuse")
    printed = command("search", answer.query.text, "-k", "8", "-w", "ws").stdout
    yield "Command line: below the hits", printed.count(answer.reasons[-1].in_words(answer.language)) == 1


def many_at_once() -> Iterator[tuple[str, bool]]:
    """Row 15: forty searches on one event loop; and pickling."""
    with pointsman.open("ws") as workspace:
        texts = [f"The lamp of yard {number} is green, and its switch guides the train." for number in range(500)]
        workspace.dataset("yards").add([Document(str(number), text) for number, text in enumerate(texts)])
    workspace = pointsman.open("ws")
    calls: dict[str, Callable[[str], Any]] = {
        "Python: asearch": workspace.asearch,
        "Python: asearch of a dataset": workspace.dataset("yards").asearch,
    }

    async def longest_hold(ask: Callable[[str], Any]) -> float:
        """How many milliseconds this process computes at most until the loop has its turn again."""
        questions = [f"who guides the train of yard {number}" for number in range(40)]
        for question in questions:  # embeds it: that keeps cores busy, but neither the loop nor the interpreter
            await ask(question)
        gc.collect()  # a full collection holds whatever runs, and is not the search's
        gc.freeze()
        longest, is_over = 0.0, False

        async def watch() -> None:
            nonlocal longest
            while not is_over:
                begin = time.process_time()  # on a busy machine, others take the time between
                await asyncio.sleep(0.001)
                longest = max(longest, time.process_time() - begin)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*map(ask, questions))
        is_over = True
        await watching
        return 1000 * longest

    for name, ask in calls.items():
        milliseconds = asyncio.run(longest_hold(ask))
        yield f"{name}, 40 at once, holds the loop for {milliseconds:.0f} ms", milliseconds <= 20
    dataset = workspace.dataset("yards")
    subjects: dict[str, Any] = {"workspace": workspace, "dataset": dataset, "retriever": dataset.retriever("hybrid")}
    for name, subject in subjects.items():
        copy = pickle.loads(pickle.dumps(subject))
        ask = copy.retrieve if name == "retriever" else copy.search
        own = subject.retrieve if name == "retriever" else subject.search
        yield f"Python: a {name} in a folder is pickled", [h.id for h in ask("lamp 7")] == [h.id for h in own("lamp 7")]
    with pointsman.open("ws", embedder=HashingEmbedder()) as with_object:
        try:
            pickle.dumps(with_object)
        except TypeError as error:
            yield "Python: with objects that may hold keys", "cannot be pickled" in str(error)
        else:
            yield "Python: with objects that may hold keys", False


def _write(folder: str, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        Path(folder, name).write_text(text)
    return Path(folder)


def _sources(dataset: Any) -> list[str]:
    """Return the sources of a dataset's passages; each file here has one."""
    return sorted(str(document.metadata["source"]) for document in dataset)


def _indexed(index: Callable[..., Any], dataset: Any) -> Iterator[tuple[str, bool]]:
    """Index the folders of row 1, in an empty dataset, by a door."""
    texts = {name: f"The rail of {name}." for name in ("README.md", "a.md", "handbook/b.md", "handbook/deep/c.md")}
    _write("files", texts)
    index("files")
    for path in ("files/handbook", "files/handbook/deep/", "./files/../files", Path("files").resolve(), "files/a.md"):
        index(path)
        yield f"index files, then {path}", _sources(dataset()) == sorted(texts)
    Path("link").symlink_to("files")
    index(["link", "files/handbook"])
    yield "a link to it, with a folder in it", _sources(dataset()) == sorted(texts)
    _write("files", {"handbook/new.md": "The new rail."})
    index("files/handbook")
    with_new_file = sorted([*texts, "handbook/new.md"])
    yield "a new file in the inner folder", _sources(dataset()) == with_new_file
    shutil.copytree("files", "checkout")
    report = index("checkout")
    told = _sources(dataset()) == with_new_file and "5 of 5 files are the same" in "".join(report["notes"])
    yield "a checkout elsewhere is recognised, and it is said", told
    Path("checkout").rename("renamed")
    shutil.rmtree("files")
    report = index("renamed")
    yield "a renamed root", _sources(dataset()) == with_new_file and len(report["notes"]) == 1
    _write("other", {**texts, "a.md": "Another.", "handbook/b.md": "Another."})
    report = index("other")
    apart = _sources(dataset()) == sorted([*with_new_file, *(f"other/{name}" for name in texts)])
    yield "a folder that shares half of its files is another one", apart
    Path("renamed/handbook/new.md").unlink()
    index("renamed/handbook")
    yield "a file that is gone from the inner folder", "handbook/new.md" not in _sources(dataset())
    for under, number in (("other/handbook", 2), (Path("renamed/handbook").resolve(), 2), ("./other", 2), ("no", 0)):
        before = len(dataset())
        deleted = index(None, under=under)
        yield f"delete under {under}", deleted == number == before - len(dataset())


def one_source() -> Iterator[tuple[str, bool]]:
    """Row 1: a file has one source, whichever folder it is indexed by; files are told apart."""
    with pointsman.open("python", embedder=HashingEmbedder()) as workspace:

        def by_python(paths: Any, under: Any = None) -> Any:
            return workspace.dataset("files").delete(under=under) if under else vars_of(workspace.index(paths))

        for tried, is_right in _indexed(by_python, lambda: workspace.dataset("files")):
            yield f"Python: {tried}", is_right
    with in_new_folder():

        def by_command(paths: Any, under: Any = None) -> Any:
            arguments = ["delete", "--under", str(under)] if under else ["index", *map(str, _several(paths))]
            answer = json.loads(command(*arguments, "-d", "files", "-w", "ws", "--json").stdout)
            return answer["deleted"] if under else answer

        with pointsman.open("ws", embedder=pointsman.default_embedder()) as workspace:
            for tried, is_right in _indexed(by_command, lambda: workspace.dataset("files")):
                yield f"Command line: {tried}", is_right
    with (
        in_new_folder(),
        pointsman.open("served", embedder=HashingEmbedder()) as workspace,
        served(workspace) as address,
        Client(address) as client,
    ):

        def by_client(paths: Any, under: Any = None) -> Any:
            return client.dataset("files").delete(under=under) if under else vars_of(client.index(paths))

        for tried, is_right in _indexed(by_client, lambda: client.dataset("files")):
            yield f"Client: {tried}", is_right
    yield from _two_projects()


def _two_projects() -> Iterator[tuple[str, bool]]:
    """Yield what two folders with the same names become, and the folder around one that was indexed."""
    for name in ("pa", "pb"):
        _write(name, {"README.md": f"# The project\n\nThe rail of {name}.", "today.log": f"The rail of {name} broke."})
    with pointsman.open("projects", embedder=HashingEmbedder()) as workspace:
        workspace.index("pa")
        workspace.index("pb")
        both = ["README.md", "pb/README.md", "pb/today.log", "today.log"]
        yield "Python: pa, then pb", _sources(workspace.dataset("files")) == both
        workspace.index(["pa", "pb"])
        yield "Python: both in one run", _sources(workspace.dataset("files")) == both
        hits = workspace.search("rail", refuse=False).hits
        titles = (("The project", "README.md"), ("today", "today.log"))
        captions = sorted(f"{title} ({folder}{file})" for title, file in titles for folder in ("", "pb/"))
        yield "Python: captions", sorted(hit.caption for hit in hits) == captions
        yield "Python: citations", sorted({hit.citation.source for hit in hits}) == both
        with served(workspace) as address:
            answer = httpx.post(f"{address}/api/search", json={"query": "rail", "refuse": False}, timeout=60).json()
        yield "HTTP: captions", sorted(hit["caption"] for hit in answer["hits"]) == captions
    with pointsman.open("around", embedder=HashingEmbedder()) as workspace:
        _write("all/inner", {"a.md": "A rail."})
        _write("all", {"a.md": "Another rail."})
        workspace.index("all/inner")
        workspace.index("all")
        is_right = _sources(workspace.dataset("files")) == ["a.md", "all/a.md"]
        yield "Python: an inner folder, then the one around it", is_right
        _write("all", {".gitignore": "inner/"})
        report = workspace.index("all")
        yield "Python: an inner folder that is ignored now is named, and stays", report.stored_omissions == ("a.md",)
        yield "Python: prune", workspace.index("all", prune=True).deleted == 1
    with pointsman.open("forms", embedder=HashingEmbedder()) as workspace:
        for form in ("NFC", "NFD"):
            _write(form, {normalize(form, "Übung.md"): "A rail.", "a.md": "A switch."})
            workspace.index(form)
        names = [normalize("NFC", name) for name in _sources(workspace.dataset("files"))]
        yield "Python: a checkout on a Mac", sorted(names) == sorted(["a.md", normalize("NFC", "Übung.md")])


def vars_of(report: Any) -> dict[str, Any]:
    """Return what of a report the command line prints too."""
    return {"notes": list(report.notes)}


def _several(paths: Any) -> list[Any]:
    return paths if isinstance(paths, list) else [paths]


ROWS: Final[dict[int, Case]] = {
    1: one_source,
    2: left_out,
    12: written_in_two_ways,
    3: use_after_closing,
    4: nothing_there,
    5: asked_counted_stored,
    6: what_one_door_takes,
    7: newest_releases,
    8: through_proxies,
    9: preflight,
    10: arguments_of_models,
    11: beyond_the_limit,
    13: clear_choices,
    14: query_only,
    15: many_at_once,
    16: said_once,
    17: filtered_for,
    18: against_rank,
    20: own_application,
    21: into_a_pipe,
    22: edited_rows,
}


def main(chosen: list[str]) -> int:
    """Try the rows; return 1 if one is wrong."""
    wrong = 0
    for row in map(int, chosen) if chosen else sorted(ROWS):
        with in_new_folder():
            wrong += print_cases(row, ROWS[row]())
    return outcome(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
