"""What `golden` asks at the other doors, the command line, HTTP and MCP, and what is refused at each."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pointsman
from _data import DATA
from _golden_questions import OPTIONS, QUESTIONS, SENTENCES, STRATEGIES
from _golden_world import Answers, World, command, fill, served
from pointsman import Document, Query, ScriptedLLM, Settings, load_embedder


def errors(ask: Answers, world: World) -> None:
    """The texts of errors for every kind of bad input."""
    bad: dict[str, Sequence[Any]] = {
        "k": [0, -1, True, "5", 2.5, None], "strategy": ["", "hybird", 5, None, "x" * 100, "HyDE"],
        "datasets": ["typo", [], [5], 5, ["rails", "tpyo"], [""]], "rerank": ["yes", 1], "refuse": ["no", 0.5],
        "min_relevance": [-1, 2, "0.5", True, float("nan")], "coverage": [0, 1, "x", 0.5], "spelling": ["no", None],
        "effort": ["huge", 3, ""], "timeout": [0, -1, "5", float("nan")],
        "as_of": ["2026-13-01", "soon", 5, "1.1.2020"],
        "group_by": ["", 5, "x" * 2000], "group_size": [0, "2", 2], "filters": ["year >", 5, {"a": {"b": 1}}],
        "principals": [[5], [""], "everyone, anna"], "top_k": [5], "reranked": [True], "dataset": ["rails"],
    }  # fmt: skip
    with world.open("folder", "errors") as workspace:
        fill(workspace)
        rails = workspace.dataset("rails")
        for name, values in bad.items():
            for number, value in enumerate(values):
                ask(f"errors/search/{name}/{number}", lambda: workspace.search("signal", **{name: value}))  # noqa: B023
        calls: dict[str, Callable[[], Any]] = {
            "query number": lambda: workspace.search(5),  # type: ignore[arg-type]
            "query list": lambda: workspace.search(["a"]),  # type: ignore[arg-type]
            "many none": lambda: workspace.search_many([]),
            "dataset option": lambda: rails.search("a", datasets=["rails"]),  # type: ignore[call-arg]
            "name": lambda: workspace.dataset("../up"),
            "long name": lambda: workspace.dataset("x" * 300),
            "empty name": lambda: workspace.dataset(""),
            "not there": lambda: workspace.dataset("ralis", create=False),
            "technique": lambda: workspace.dataset("new", indexing_technique="fuzzy"),  # type: ignore[arg-type]
            "another technique": lambda: workspace.dataset("rails", indexing_technique="vector"),
            "versions": lambda: workspace.dataset("new", versions="soon"),
            "drop": lambda: workspace.drop("typo"),
            "status": lambda: workspace.status("typo"),
            "add text": lambda: rails.add("text"),
            "add number": lambda: rails.add(5),  # type: ignore[arg-type]
            "add keys": lambda: rails.add([{"id": "a", "txt": "b"}]),
            "add metadata": lambda: rails.add([{"id": "a", "text": "b", "metadata": {"x": object()}}]),
            "add reserved": lambda: rails.add([{"id": "a", "text": "b", "metadata": {"_id": 3}}]),
            "add twice": lambda: rails.add([{"id": "a", "text": "b"}], existing="raise"),  # type: ignore[arg-type]
            "add access": lambda: rails.add([{"id": "a", "text": "b"}], access={"allow": "x", "bar": 1}),
            "add vectors": lambda: rails.add([{"id": "a", "text": "b"}], vectors=[[1.0, 2.0]]),
            "add valid": lambda: rails.add([{"id": "a", "text": "b", "metadata": {"valid_from": "soon"}}]),
            "add version": lambda: rails.add([{"id": "a", "text": "b", "metadata": {"version_of": "c"}}]),
            "vector": lambda: rails.search_vector([1.0]),
            "vector of words": lambda: workspace.dataset("words").search_vector([0.0] * 256),
            "get": lambda: rails.get(5),  # type: ignore[arg-type]
            "page": lambda: rails.page(-1),
            "limit": lambda: rails.page(limit=0),
            "delete nothing": rails.delete,
            "delete number": lambda: rails.delete([5]),  # type: ignore[list-item]
            "changes": lambda: rails.set_metadata({"nobody": {"a": 1}}),
            "text": lambda: rails.text("nowhere.md"),
            "explain": lambda: workspace.search("signal").explain(5),  # type: ignore[arg-type]
            "trace": lambda: workspace.search("signal").to_dict(trace="all"),  # type: ignore[arg-type]
            "replay": lambda: workspace.replay("r1.x"),
            "index": lambda: workspace.index(world.folder / "not there"),
            "keep": lambda: workspace.keep(5),  # type: ignore[arg-type]
            "attach": lambda: workspace.attach("a", "sqlite:///x", table="t", id="i", text="t"),
            "open scheme": lambda: pointsman.open("mongodb://somewhere/x"),
            "open number": lambda: pointsman.open(5),  # type: ignore[arg-type]
            "open address": lambda: pointsman.open("postgresql://127.0.0.1:1/x").names(),
            "embedder": lambda: load_embedder("hasing"),
            "embedder folder": lambda: load_embedder("onnx:/nowhere"),
            "document id": lambda: Document("", "text"),
            "document text": lambda: Document("a", 5),  # type: ignore[arg-type]
            "history": lambda: Query("a", history="b"),  # type: ignore[arg-type]
            "message": lambda: Query("a", history=[{"role": 1}]),  # type: ignore[arg-type]
            "no retriever": pointsman.SimpleHybridRetriever,
            "not a retriever": lambda: pointsman.SimpleHybridRetriever(5),
            "fusion": lambda: pointsman.SimpleHybridRetriever(rails.retriever(), fusion="rff"),
            "weights": lambda: pointsman.SimpleHybridRetriever(rails.retriever(), weights=[1, 2]),
            "fuse": lambda: pointsman.fuse([[("a", 1.0)]], "rff"),
            "fuse weights": lambda: pointsman.fuse([[("a", 1.0)]], weights=[1, -1]),
            "fuse score": lambda: pointsman.fuse([[("a", float("nan"))]], "min_max"),
            "fuse option": lambda: pointsman.fuse([[("a", 1.0)]], depth=3),
            "descriptions": lambda: pointsman.RouterRetriever([rails.retriever()], [], pointsman.RandomSelector()),
            "several": lambda: pointsman.SelectorResult([pointsman.SingleSelection(n, "r") for n in range(3)]).ind,
            "several reasons": lambda: pointsman.SelectorResult([]).reason,
            "rules": lambda: pointsman.RuleSelector([]),
            "choice": lambda: pointsman.RandomSelector().select([5], "a"),  # type: ignore[list-item]
            "threshold": lambda: pointsman.Threshold("rrf", 1.0),
            "minimum": lambda: pointsman.Refuser(3),
            "two thresholds": lambda: pointsman.Refuser(thresholds=[pointsman.Threshold("bm25", 1.0)] * 2),
            "compress": lambda: pointsman.ExtractiveCompressor(max_chars=0),
            "budget": lambda: pointsman.Budget(calls=-1),
            "sub-questions": lambda: pointsman.RuleDecomposer(0),
            "variants": lambda: pointsman.RuleExpander(("typo",)),
            "no reply left": lambda: ScriptedLLM([]).complete("a"),
            "tools": lambda: pointsman.ReActAgent([], pointsman.RandomSelector()),
            "strategy class": lambda: pointsman.register_strategy(int),  # type: ignore[arg-type]
            "strategy twice": lambda: pointsman.register_strategy(pointsman.HybridStrategy),
            "mmr": lambda: pointsman.mmr([1, 2], [[1]], 0.5),
            "policy": lambda: pointsman.Policy(span_least=-1),
            "client": lambda: pointsman.Client("ftp://x"),
            "client key": lambda: pointsman.Client("http://example.org", "secret"),
        }
        for name, values_of in {
            "bm25_k1": [-1, "x"], "bm25_b": [2], "query2doc_num_expansions": [0, 99], "policy": ["other"],
            "multi_query_variants": [["typo"], []], "llm_provider": ["ftp://x", "opnai"], "reranker": ["x", "onnx:"],
            "workspace": [""], "timeout": [0],
            "llm_api_key_env": ["sk-secret"], "enable_strategy_auto_selection": ["yes"],
        }.items():  # fmt: skip
            for number, value in enumerate(values_of):  # type: ignore[arg-type]
                calls[f"setting {name} {number}"] = lambda name=name, value=value: Settings(**{name: value})  # type: ignore[misc]
        for name, call in calls.items():
            ask(f"errors/call/{name}", call)


def commands(ask: Answers, world: World) -> None:
    """The command line: what it prints as JSON and otherwise, its help, its errors."""
    with world.open("folder", "commands") as workspace:
        fill(workspace)
    notes, place = world.folder / "notes", world.address("folder", "commands")
    notes.mkdir()
    (notes / "rules.md").write_text(
        "# Rules\n\n" + "\n\n".join(f"## Rule {n}\n\n{text}" for n, text in enumerate(SENTENCES))
    )
    (notes / "table.csv").write_text("name,colour\nswitch,red\nsignal,green\n")
    (notes / "answer.txt").write_text('The yard "opens at six" and 12 trains wait.')
    here = {"POINTSMAN_WORKSPACE": place}
    run = partial(command, environment=here)
    pages = [["--help"], []]
    help_text = command(["--help"], here)["lines"]
    matches = (re.match(r"  ([a-z\-]+)  +[A-Z]", line) for line in help_text)
    pages += [[match[1], "--help"] for match in matches if match]
    for group, name in (("keys", "create"), ("keys", "list"), ("keys", "revoke"), ("access", "on"), ("access", "set"),
                        ("audit", "digest")):  # fmt: skip
        pages.append([group, name, "--help"])
    for page in pages:
        ask(f"commands/help/{' '.join(page)}", partial(run, page))
    lines = [
        "datasets", "datasets --keys", "status", "verify", "config", "search red signal", "search red signal --explain",
        "search -k 2 --dataset rails railway swtich", "search railway swtich --no-spelling", "search zzzz qqqq",
        "search signal --strategy bm25 --filter year>=2010", "search signal --strategy decomposition --rerank never",
        "search signal --why 0-3", "search signal --prompt xml", "search signal --group-by lang -k 9 --no-refuse",
        "search signal --strategy hyde", "search signal --strategy hybird", "search signal -k 0",
        "search signal -d typo",
        "search signal --filter year~3", "search signal --as-of soon", "search signal --effort huge", "search",
        "serach x",
        "search signal --unknown 3", "route what stops a train?", "route поезд -d rails", "route новости channel:tech",
        f"index {notes} --dataset notes --description Notes", f"index {notes} --dataset notes",
        "index nowhere -d notes",
        "search rule 3 -d notes", "text rules.md -d notes", "text rules.md -d notes --start 2 --end 20",
        "text no.md -d notes",
        "delete -d notes --source table.csv", "delete -d notes nobody", "delete -d notes", "delete -d typo --all",
        "rebuild notes", "verify notes", "access on", "search signal", "search signal --principals user:anna",
        "access off",
        f"backup {world.folder}/backup", f"restore {world.folder}/backup -w {world.folder}/restored", "keys list",
        f"copy {place} {world.folder}/copied -d rails", "keys revoke nobody", "replay r1.x",
        "eval nowhere", "tune nowhere -d rails", "calibrate -d typo", "delete -d notes --all",
        "datasets -w postgresql://x:1/y",
    ]  # fmt: skip
    for number, line in enumerate(lines):
        for form in ("json",) if re.match("backup|restore|copy|.*--explain", line) else ("json", "text"):
            ask(f"commands/{form}/{number} {line.replace(str(world.folder), '')}",
                partial(run, [*line.split(), *(["--json"] if form == "json" else [])]))  # fmt: skip
    found = world.folder / "found.json"
    found.write_text(json.dumps(command(["search", "yard", "--json"], here)["json"]))
    ask(
        "commands/verify-answer",
        partial(run, ["verify-answer", str(notes / "answer.txt"), "--hits", str(found), "--json"]),
    )
    if DATA.is_dir():
        evaluate = ["eval", str(DATA / "ru_faq_java"), "--limit-queries", "12", "--json"]
        ask("commands/eval", partial(run, evaluate))


def service(ask: Answers, world: World) -> None:
    """The HTTP service: its endpoints, its protocols for other programs, its errors."""
    with world.open("folder", "service") as workspace:
        fill(workspace)
    with served(world, world.address("folder", "service")) as client:

        def http(method: str, path: str, body: Any = None) -> Any:
            reply = client.request(method, path, json=body)
            kind = reply.headers.get("content-type", "")
            return {"status": reply.status_code, "type": kind, "body": reply.json() if "json" in kind else reply.text}

        for number, question in enumerate(QUESTIONS):
            for path in ("/api/search", "/api/route", "/api/retrieval/search"):
                ask(f"service{path}/{number}", partial(http, "POST", path, {"query": question}))
            path = "/api/retrieval/recommend_strategy"
            ask(f"service{path}/{number}", partial(http, "GET", f"{path}?query={question or '%20'}"))
        for values in OPTIONS:
            ask(
                f"service/options/{json.dumps(values)}",
                partial(http, "POST", "/api/search", {"query": "red signal", **values}),
            )
        for strategy in STRATEGIES:
            body = {"query": "red signal", "strategy": strategy, "trace": "lists"}
            ask(f"service/strategy/{strategy}", partial(http, "POST", "/api/search", body))
        document = {"id": "new", "text": "A new rule of the yard.", "metadata": {"year": 2026}}
        requests: list[tuple[str, str, Any]] = [
            ("GET", "/api/datasets", None), ("GET", "/api/datasets/rails", None), ("GET", "/api/datasets/typo", None),
            ("GET", "/api/strategies", None), ("GET", "/api/me", None), ("GET", "/health", None), ("GET",
            "/none", None),
            ("GET", "/api/datasets/rails/documents?limit=2", None), ("GET", "/api/datasets/rails/ids", None),
            ("GET", "/api/datasets/rails/document?id=0-3", None), ("GET", "/api/datasets/rails/document?id=x", None),
            ("GET", "/api/datasets/rails/count", None), ("GET", "/api/datasets/rails/count?filters=year>2010", None),
            ("GET", "/api/datasets/rails/metadata_keys", None), ("POST", "/api/datasets/rails/verify", {}),
            ("GET", "/api/datasets/rails/documents?limt=2", None), ("POST", "/api/datasets", {"name": "made"}),
            ("POST", "/api/datasets", {"name": "made"}), ("POST", "/api/datasets", {"name": "../up"}),
            ("POST", "/api/datasets/made/documents", {"documents": [document]}), ("POST", "/api/datasets", [1]),
            ("POST", "/api/datasets/made/documents", {"documents": [{"id": 5}]}),
            ("PATCH", "/api/datasets/made/documents", {"metadata": {"new": {"year": 2027}}}),
            ("PATCH", "/api/datasets/made/documents", {"metadata": {"x": {"year": 2027}}}),
            ("POST", "/api/datasets/rails/vectors", {"ids": ["0-1", "x"]}),
            ("POST", "/api/datasets/rails/nearest", {"vector": [1.0], "k": 3}),
            ("DELETE", "/api/datasets/made/documents", {"ids": ["new", "x"]}), ("DELETE", "/api/datasets/made", None),
            ("POST", "/api/explain", {"query": "red signal", "document_id": "0-3"}), ("PUT", "/api/search", {}),
            ("POST", "/api/search_many", {"queries": ["signal", "tea"], "k": 2}), ("POST",
            "/api/replay", {"receipt": "r1.x"}),
            ("POST", "/api/verify", {"answer": "At six.", "hits": [{"dataset": "rails", "id": "0-3"}]}),
            ("POST", "/api/search", {}), ("POST", "/api/search", {"query": 5}), ("POST",
            "/api/search", {"query": "a", "x": 1}),
            ("POST", "/api/search", {"query": "a", "k": 100000}), ("POST", "/api/search", {"query": "a",
            "filters": "b"}),
            ("POST", "/retrieval", {"knowledge_id": "rails", "query": "red signal",
                                    "retrieval_setting": {"top_k": 2, "score_threshold": 0.0}}),
            ("POST", "/v1/vector_stores/rails/search", {"query": "red signal", "max_num_results": 2}),
            ("POST", "/v1/vector_stores/typo/search", {"query": "x"}),
            ("GET", "/v1/models", None), ("POST", "/v1/embeddings", {"input": "a", "model": "hashing"}),
            ("POST", "/v1/rerank", {"query": "red signal", "documents": list(SENTENCES), "model": "x"}),
            ("POST", "/v2/rerank", {"query": "red signal", "documents": list(SENTENCES), "model": "offline"}),
        ]  # fmt: skip
        for number, (method, path, body) in enumerate(requests):
            ask(f"service/requests/{number} {method} {path}", partial(http, method, path, body))
        remote = pointsman.Client(str(client.base_url).rstrip("/"))
        for number, question in enumerate(QUESTIONS[:12]):
            ask(f"service/client/{number}", partial(remote.search, question, 4))
        ask("service/client/plan", partial(remote.plan, ["rails"], "auto", "signal"))
        ask("service/client/unknown", partial(remote.search, "signal", strategy="hybird"))  # type: ignore[arg-type]
        remote.close()


def agents(ask: Answers, world: World) -> None:
    """The MCP server: its tools, and what they answer."""
    from mcp import Client, StdioServerParameters, stdio_client

    with world.open("folder", "agents") as workspace:
        fill(workspace)
    place = world.address("folder", "agents")
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "pointsman", "mcp", "--workspace", place], env=environment
    )
    calls: list[tuple[str, dict[str, Any]]] = [("search", {"query": question, "k": 3}) for question in QUESTIONS[:12]]
    calls += [("search", {"query": "signal", **values}) for values in OPTIONS if "k" not in values]
    calls += [("fetch", {"id": "rails/0-3"}), ("fetch", {"id": "nobody"}), ("outline", {}),
    ("grep", {"pattern": "signal"}),
              ("read", {"id": "rails/0-3"}), ("route", {"query": "signal"}), ("unknown", {})]  # fmt: skip

    async def converse() -> dict[str, Any]:
        answers: dict[str, Any] = {}
        async with Client(stdio_client(parameters)) as client:
            answers["tools"] = [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]
            for number, (tool, arguments) in enumerate(calls):
                try:
                    result = (await client.call_tool(tool, arguments)).model_dump(mode="json", exclude={"meta"})
                except Exception as error:  # noqa: BLE001  (of the protocol; what it says is the answer)
                    result = {"error": str(error)}
                answers[f"{number} {tool}"] = result
        return answers

    for name, answer in asyncio.run(converse()).items():
        ask(f"agents/{name}", lambda: answer)  # noqa: B023
