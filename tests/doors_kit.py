"""One request through every door: random requests, a world to put them to, and what each door answers."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client as McpClient
from typer.testing import CliRunner

import pointsman
from command_kit import run_command
from pointsman import Document, EnhancedRetrievalService, Query, RetrievalWorkflow, ScriptedLLM, Settings
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp import MAX_K, create_server
from pointsman.llm.chosen_models import SettingsModels
from pointsman.retrieval.fusion import METHODS
from pointsman.service.client import Client
from pointsman.service.server import Limits, create_app
from pointsman.tools.errors import PointsmanError
from serving import serving

if TYPE_CHECKING:
    from pointsman.retrieval.request import Reranking

# ── the world ────────────────────────────────────────────────────────────────────────────────────────────────────────

SENTENCES: Final = (
    "A railway switch guides trains from one track to another.",
    "A red signal stops every train before the station.",
    "The yard of the city opens at six and closes at midnight.",
    "Green tea is brewed below boiling point; black tea is not.",
    "Стрелочный перевод направляет поезд с одного пути на другой.",
    "Красный сигнал останавливает поезд перед станцией.",
    "道岔使列车由一股道转入另一股道。",
    "红色信号使列车在车站前停车，环保设备净化空气。",
)
TECHNIQUES: Final = {"rails": "hybrid", "город": "hybrid", "words": "keyword", "near": "vector"}


def documents(seed: int, count: int) -> list[Document]:
    """Passages of two sentences each, of different years and languages."""
    chance = random.Random(seed)
    return [
        Document(
            f"{seed}-{number}",
            " ".join(chance.sample(SENTENCES, 2)) + f" Rule {number} of {seed}.",
            {"year": 2000 + number % 25, "lang": chance.choice(["en", "ru", "zh"]), "title": f"Rule {number}"},
        )
        for number in range(count)
    ]


def fill(folder: Path) -> None:
    """Four datasets, of every kind; and one without documents, which must change nothing."""
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        for seed, (name, technique) in enumerate(TECHNIQUES.items()):
            dataset = workspace.dataset(name, description=f"About {name}", indexing_technique=technique)  # type: ignore[arg-type]
            dataset.add(documents(seed, 30))
        workspace.dataset("empty").make()


SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "a strategy": {"default_retrieval_strategy": "rrf", "bm25_k1": 0.6, "bm25_b": 0.2},
    "no choice": {"enable_strategy_auto_selection": False, "enable_reranker_by_default": False},
    "by the look": {"policy": "heuristic", "decomposition_max_subqueries": 2, "multi_query_variants": ("correction",)},
    "short excerpts": {"default_retrieval_strategy": "compression", "compression_max_length": 60},
    "a model": {"query2doc_num_expansions": 2, "decomposition_max_subqueries": 3},
}
"""Settings by what is special about them."""

WITH_MODEL: Final = "a model"

# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────

QUESTIONS: Final = (
    "railway switch", "what stops a train?", "compare green tea and black tea", "railway swtich", "Rule 7", "поезд",
    "чем отличается сигнал от стрелки?", "道岔", "红色信号和道岔的区别是什么?", "zzzz qqqq", "when does the yard open",
    "How do I brew green tea, and at which temperature?", "signal", "列车在哪里停车", "E-4711", "the capital of France",
)  # fmt: skip
FILTERS: Final = (
    None,
    None,
    None,
    "year >= 2010",
    {"lang": "ru"},
    'lang in ["en", "zh"] and not year = 2003',
    "year > 3000",
)
STRATEGIES: Final = (
    *["auto"] * 6, "hybrid", "bm25", "vector", *METHODS, "decomposition", "multi_query", "compression",
    "parent_child", "sparse", "hyde", "query2doc", "hybird",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as every door can be request."""

    query: str
    k: int
    datasets: tuple[str, ...] | None
    strategy: str
    filters: Any
    rerank: bool | Reranking | None
    refuse: bool | str | None
    effort: str
    group_by: str | None = None

    def options(self, *without: str) -> dict[str, Any]:
        """All but the query and k, by the names of the library."""
        names = ("datasets", "strategy", "filters", "rerank", "refuse", "effort", "group_by")
        return {name: getattr(self, name) for name in names if name not in without}


def requests(seed: int) -> Iterator[Asked]:
    """Requests without end, the same for the same seed."""
    chance = random.Random(seed)
    names = [*TECHNIQUES, "empty"]
    while True:
        datasets = chance.choice(
            [None, None, chance.sample(names, 1), chance.sample(names, chance.randint(2, 4)), ["typo"]]
        )
        yield Asked(
            chance.choice(QUESTIONS),
            chance.choice([1, 3, 5, MAX_K]),
            None if datasets is None else tuple(datasets),
            chance.choice(STRATEGIES),
            chance.choice(FILTERS),
            chance.choice([None, "late", True, False]),
            chance.choice([None, True, False, "elsewhere", "unsure", "never"]),
            chance.choice(["fast", "balanced", "balanced", "thorough"]),
        )


# ── what a door answers ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a door answers: hits with scores and texts, its verdict, how and what it searched; or an error."""

    hits: tuple[tuple[str | None, str, float, str], ...] = ()
    verdict: str | None = None
    strategy: str = ""
    query: str = ""
    error: str | None = None

    def same(self, other: Outcome) -> bool:
        """Whether both are the same; where a door tells no error's name, any will do."""
        if self.error is not None and other.error is not None:
            return "?" in {self.error, other.error} or self.error == other.error
        return self == other


def of_context(context: Any) -> Outcome:
    """The outcome that an answer of the library is."""
    hits = tuple((hit.dataset, hit.id, hit.score, hit.text) for hit in context.hits)
    return Outcome(hits, context.verdict, context.plan.strategy, context.query.text)


def of_dict(answer: Mapping[str, Any]) -> Outcome:
    """The outcome that an answer in plain values is: every door has the same names."""
    results = tuple((hit["dataset"], hit["id"], hit["score"], hit["text"]) for hit in answer["hits"])
    return Outcome(results, answer["verdict"], answer["strategy"], answer["query"])


def outcome(ask: Callable[[], Any]) -> Outcome:
    """What comes of asking in Python."""
    try:
        return of_context(ask())
    except PointsmanError as error:
        return Outcome(error=type(error).__name__)


# ── the doors ────────────────────────────────────────────────────────────────────────────────────────────────────────

Door = Callable[["Asked"], "Outcome | None"]
"""Answers a request; None where this door has no such option."""


@dataclass(frozen=True, slots=True)
class World:
    """Every door to one folder, under one set of settings.

    Attributes:
        folder: of the workspace.
        settings: those of every door.
        llm: a language model instead of those that the settings name.
        here: the workspace, opened.
        http: to a real server over it.
        client: to the same.
        portal: runs what is awaited.
        mcp: speaks with an MCP server over it, in this process.
        environ: of the command line.
    """

    folder: Path
    settings: Settings
    llm: ScriptedLLM | None
    here: pointsman.Workspace
    http: httpx.Client
    client: Client
    portal: BlockingPortal
    mcp: McpClient
    environ: Mapping[str, str]

    @property
    def doors(self) -> Mapping[str, Door]:
        """All nine; the first is what the others are compared with."""
        return {
            "Workspace.search": self.by_workspace,
            "Dataset.search": self.by_dataset,
            "RetrievalWorkflow.search": self.by_workflow,
            "EnhancedRetrievalService.search": self.by_service,
            "Workspace.search_many": self.by_many,
            "HTTP": self.by_http,
            "command line": self.by_command,
            "MCP": self.by_mcp,
            "Client.search": self.by_client,
        }

    def answers(self, request: Asked) -> dict[str, Outcome]:
        """What each door answers that has all that is asked for."""
        return {name: answer for name, door in self.doors.items() if (answer := door(request)) is not None}

    def differences(self, request: Asked) -> list[str]:
        """Where the doors disagree on a request."""
        (first, wanted), *others = self.answers(request).items()
        return [f"{request}: {first} {wanted}, {name} {other}" for name, other in others if not wanted.same(other)]

    def sources(self, request: Asked) -> list[Any]:
        """The datasets asked for, opened."""
        return [self.here.dataset(name, create=False) for name in request.datasets or self.here.names()]

    def by_workspace(self, request: Asked) -> Outcome:
        return outcome(lambda: self.here.search(request.query, request.k, **request.options()))

    def by_dataset(self, request: Asked) -> Outcome | None:
        if request.datasets is None or len(request.datasets) != 1 or request.datasets == ("typo",):
            return None
        dataset = self.here.dataset(request.datasets[0])
        return outcome(lambda: dataset.search(request.query, request.k, **request.options("datasets")))

    def by_workflow(self, request: Asked) -> Outcome | None:
        if self.settings != Settings() or self.llm is not None:
            return None  # it has stages, and no settings
        options = request.options("datasets")
        return outcome(lambda: RetrievalWorkflow().search(request.query, self.sources(request), request.k, **options))

    def by_service(self, request: Asked) -> Outcome:
        llms = None if self.llm is None else {"general": self.llm}

        def ask() -> Any:
            with EnhancedRetrievalService(self.settings, self.here, llms=llms) as service:
                options = request.options("strategy", "rerank")
                return service.search_sync(
                    request.query, request.k, request.strategy, request.rerank, **options
                ).context

        return outcome(ask)

    def by_many(self, request: Asked) -> Outcome:
        queries: list[str | Query] = [request.query, Query("tea"), request.query]
        return outcome(lambda: self.here.search_many(queries, request.k, **request.options())[2])

    def by_http(self, request: Asked) -> Outcome:
        body = {"query": request.query, "k": request.k, **request.options()}
        reply = self.http.post("/api/search", json=body)
        if reply.status_code == 200:
            return of_dict(reply.json())
        assert reply.status_code < 500, reply.text
        return Outcome(error=reply.json()["error"])

    def by_client(self, request: Asked) -> Outcome:
        return outcome(lambda: self.client.search(request.query, request.k, **request.options()))

    def by_mcp(self, request: Asked) -> Outcome | None:
        if request.strategy in METHODS:
            return None  # a formula of fusion is nothing that a model could choose
        options = {name: value for name, value in request.options().items() if value is not None}
        arguments = {"query": request.query, "k": request.k, **options}
        result = self.portal.call(self.mcp.call_tool, "search", arguments)
        if result.is_error:
            return Outcome(error="?")
        answer = result.structured_content
        assert answer is not None
        results = [{**hit, "id": hit["id"].removeprefix(f"{hit['dataset']}/")} for hit in answer["results"]]
        return of_dict({**answer, "hits": results, "query": answer["query"] or request.query})

    def by_command(self, request: Asked) -> Outcome | None:
        if self.llm is not None:
            return None  # it has the models that settings name, and none that a test has made
        from pointsman.cli.core_commands import app

        done = CliRunner().invoke(app, command(request), env=self.environ)
        if done.exit_code == 0:
            return of_dict(json.loads(done.stdout))
        assert isinstance(done.exception, PointsmanError), done.output
        return Outcome(error=type(done.exception).__name__)

    def by_process(self, request: Asked) -> Outcome:
        """The command line in a process of its own."""
        process = run_command(*command(request), environment={**os.environ, **self.environ})
        assert process.returncode in {0, 2}, process.stderr
        return of_dict(json.loads(process.stdout)) if not process.returncode else Outcome(error="?")


def command(request: Asked) -> list[str]:
    """The request as arguments of the command line."""
    arguments = [
        "search",
        request.query,
        "-k",
        str(request.k),
        "--strategy",
        request.strategy,
        "--effort",
        request.effort,
    ]
    for name in request.datasets or ():
        arguments += ["--dataset", name]
    if request.group_by is not None:
        arguments += ["--group-by", request.group_by]
    if request.filters is not None:
        arguments += ["--filter", str(pointsman.parse_filter(request.filters))]
    if request.rerank is not None:
        names = {True: "always", False: "never"}
        arguments += ["--rerank", names[request.rerank] if isinstance(request.rerank, bool) else request.rerank]
    if request.refuse is not None:
        names = {True: "elsewhere", False: "never"}
        arguments += ["--refuse", names[request.refuse] if isinstance(request.refuse, bool) else request.refuse]
    return [*arguments, "--json"]


@contextmanager
def world(folder: Path, kind: str) -> Iterator[World]:
    """Every door to a filled folder, under the settings of this name."""
    settings = Settings(**SETTINGS[kind])
    llm = (
        ScriptedLLM(lambda prompt: f"A red signal; a railway switch {len(prompt) % 7}") if kind == WITH_MODEL else None
    )
    file = folder.parent / f"{kind.replace(' ', '-')}.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in SETTINGS[kind].items()), "utf-8")
    environ = {"POINTSMAN_CONFIG": str(file), "POINTSMAN_EMBEDDER": "hashing", "POINTSMAN_WORKSPACE": str(folder)}
    models = SettingsModels(settings) if llm is None else llm
    opened = partial(pointsman.open, folder, embedder=HashingEmbedder())
    with ExitStack() as stack:
        here = stack.enter_context(opened(settings=settings, llm=models))
        # these get the settings from the door
        served, asked_by_agents = (stack.enter_context(opened(llm=llm)) for _ in range(2))
        limits = Limits(requests_per_minute=0)
        address = stack.enter_context(serving(create_app(served, settings=settings, limits=limits)))
        portal = stack.enter_context(start_blocking_portal())
        mcp = McpClient(create_server(asked_by_agents, settings=settings))
        yield World(
            folder,
            settings,
            llm,
            here,
            stack.enter_context(httpx.Client(base_url=address, timeout=60)),
            stack.enter_context(Client(address)),
            portal,
            stack.enter_context(portal.wrap_async_context_manager(mcp)),
            environ,
        )
