"""Synchronous and asynchronous: every way of asking gives the same answer, or the same error.

The files about workflows, services, hybrid retrievers, compressors and selectors ask synchronously. Here each of their
ways to answer and to fail is asked from a script, awaited, from inside a running event loop and from another thread.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

import pointsman
from patience_kit import LIMITS, holds_with_time
from pointsman import (
    BaseRetriever,
    Dataset,
    Document,
    EnhancedRetrievalService,
    ExtractiveCompressor,
    Hit,
    LLMCompressor,
    LLMSelector,
    ParentExpander,
    PointsmanError,
    Query,
    Ranked,
    RetrievalWorkflow,
    ScriptedLLM,
    SimpleHybridRetriever,
    ToolMetadata,
    WindowExpander,
)
from pointsman.embedders import HashingEmbedder
from pointsman.llm.scripted_llm import Delay
from pointsman.retrieval.run.variant import Variant
from pointsman.tools.parallel_calls import Breaker
from store_kit import corpus
from test_compress_context import SHELF, passage
from test_compress_context import Failing as FailingShelf
from test_hybrid import Failing, FixedRetriever, Meeting, Participant, Slow
from test_service import FailingReranker, Halves, Hypothetical, ReversingReranker, registry_of
from test_workflow import Choosing, FailingRefiner, Refusing, ReversingRefiner, Rewriting, raises

HANGS: Final = 30.0
"""Seconds of whatever hangs: no test waits for it."""
LIMIT: Final = {"seconds": 30.0}
"""Within which everything else answers: a test sets it for a case in which something hangs."""


@dataclass(frozen=True)
class Call:
    """A call, made synchronously or awaited."""

    make: Callable[[], Any]
    make_async: Callable[[], Awaitable[Any]]


def synchronously(call: Call) -> Any:
    return call.make()


def asynchronously(call: Call) -> Any:
    async def main() -> Any:
        return await call.make_async()

    return asyncio.run(main())


def inside_a_running_loop(call: Call) -> Any:
    async def main() -> Any:
        return call.make()

    return asyncio.run(main())


def in_a_thread(call: Call) -> Any:
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome(synchronously, call)))
    thread.start()
    thread.join()
    return outcomes[0]


def outcome(way: Callable[[Call], Any], call: Call) -> Any:
    """What comes of a call, in values that can be compared."""
    try:
        return plain(way(call))
    except PointsmanError as error:
        return type(error).__name__, re.sub(r"\d+\.\d+ s", "… s", str(error))


def plain(value: Any) -> Any:
    """An answer without times."""
    if isinstance(value, pointsman.RetrievalContext):
        stages = sorted((span.stage, re.sub(r"\d+\.\d+ s", "… s", str(span.error))) for span in value.trace.spans)
        return plain(value.hits), plain(value.degraded), str(value.refused), value.plan, value.query, stages
    if isinstance(value, Ranked):
        return plain(value.hits), plain(value.degraded), value.dropped, value.detail, value.scale
    if isinstance(value, pointsman.Hits):
        return list(value), plain(value.degraded)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return re.sub(r"\d+\.\d+ s", "… s", value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def datasets() -> Iterator[list[Dataset]]:
    with Dataset("rails", embedder=HashingEmbedder()) as rails, Dataset("lamps", embedder=HashingEmbedder()) as lamps:
        rails.add(corpus(60, seed=1))
        lamps.add(corpus(60, seed=2))
        yield [rails, lamps]


Case = Callable[[list[Dataset]], Call]


def workflow(choose: Callable[[list[Dataset]], Any], times: int = 1, /, **stages: Any) -> Case:
    """A search by a workflow of these stages, of which there may be functions that make them; the last of several."""

    def case(datasets: list[Dataset]) -> Call:
        arguments = {name: stage() if callable(stage) else stage for name, stage in stages.items()}
        timeout = arguments.pop("timeout", 30.0)
        subject, sources = RetrievalWorkflow(**arguments), choose(datasets)

        async def search() -> Any:
            return [await subject.asearch("rail lamp", sources, 7, timeout=timeout) for _ in range(times)][-1]

        return Call(
            lambda: [subject.search("rail lamp", sources, 7, timeout=timeout) for _ in range(times)][-1], search
        )

    return case


def our_datasets(datasets: list[Dataset]) -> list[Any]:
    return [*datasets]


def two(_: list[Dataset]) -> list[Any]:
    return [FixedRetriever(("a", 2.0), ("b", 1.0))]


def refiners(*act: Callable[[], Any], **options: Any) -> Callable[[], list[Any]]:
    return lambda: [FailingRefiner(action, **options) for action in act]


WORKFLOWS: Final[dict[str, Case]] = {
    "no stage": workflow(our_datasets),
    "every stage": workflow(
        our_datasets,
        router=lambda: Choosing("lamps"),
        reranker=lambda: ReversingRefiner(30),
        transformer=lambda: Rewriting(new_text="signal"),
        refiners=lambda: [ReversingRefiner()],
    ),
    **{
        name: workflow(our_datasets, strategy=name)
        for name in ("bm25", "vector", "hybrid", "rrf", "z_score", "decomposition")
    },
    "datasets and retrievers": workflow(lambda datasets: [datasets[0], *two(datasets), datasets[1]]),
    "nothing to search": workflow(lambda _: []),
    "what is no source": workflow(lambda _: [5]),
    "the same twice": workflow(lambda datasets: [datasets[0], datasets[0]]),
    "all asked at once": workflow(lambda _: together(6)),
    "a failing branch": workflow(lambda datasets: [Failing(), datasets[0]]),
    "all failing": workflow(lambda _: [Failing(), Failing(ValueError("bad"))]),
    "one left out for a while": workflow(lambda _: [Failing(), *two([])], 3, breaker=lambda: Breaker(1, 60)),
    "a hanging branch": workflow(
        lambda _: [Slow(HANGS), *two([])], timeout=lambda: LIMIT["seconds"], reranker=ReversingRefiner
    ),
    "odd scores": workflow(lambda _: [FixedRetriever(("a", float("nan")), ("b", 1.0))]),
    "variants": workflow(two, transformer=lambda: Rewriting(Variant("v1", "synonym"), Variant("v2", "correction"))),
    "a failing router": workflow(our_datasets, router=Choosing),
    "a failing refiner": workflow(two, refiners=refiners(raises)),
    "a refiner of nothing": workflow(two, refiners=refiners(lambda: None)),
    "a failing refiner in place": workflow(two, refiners=refiners(raises, in_place=True)),
    "a hanging refiner": workflow(two, refiners=refiners(lambda: time.sleep(HANGS), timeout=0.1)),
    "a refusal": workflow(two, refiners=lambda: [Refusing(), ReversingRefiner()]),
}


def together(count: int) -> list[BaseRetriever]:
    meeting = Meeting(count)
    return [Participant(meeting, (str(number), 1.0)) for number in range(count)]


def service(query: str, strategy: str, /, rerank: bool | None = None, reranker: Any = None, **options: Any) -> Case:
    def case(datasets: list[Dataset]) -> Call:
        llm = ScriptedLLM(lambda prompt: OSError("the model is down") if "fail" in prompt else "steam bridge")
        strategies: Any = {"strategies": registry_of(mine=Hypothetical, halves=Halves)} if strategy in OURS else {}
        subject = EnhancedRetrievalService(
            {"policy": "heuristic"}, datasets[0], None, reranker and reranker(), llms={"general": llm}, **strategies
        )

        async def search() -> Any:
            return (await subject.search(query, 4, strategy, rerank, **options)).context

        return Call(lambda: subject.search_sync(query, 4, strategy, rerank, **options).context, search)

    return case


OURS: Final = ("mine", "halves")

SERVICES: Final[dict[str, Case]] = {
    **{
        name: service("difference between rail and lamp", name)
        for name in ("auto", "vector", "bm25", "hybrid", "hyde", "query2doc", "decomposition", "multi_query", "rrf")
    },
    "compression": service("rail lamp", "compression"),
    "reranked": service("rail lamp", "hybrid", True, ReversingReranker),
    "a failing reranker": service("rail lamp", "hybrid", True, FailingReranker),
    "filtered": service("rail lamp", "hybrid", filters="_id != 'd1'"),
    "a strategy of one's own": service("rail lamp", "mine"),
    "an awaited strategy of one's own": service("rail lamp", "halves"),
    "a strategy whose model fails": service("fail", "mine"),
    "an unknown strategy": service("rail", "hybird"),
    "a wrong number": service("rail", "hybrid", filters="year >"),
}


def hybrid(retrievers: Callable[[], list[Any]], times: int = 1, /, top_k: int = 10, **options: Any) -> Case:
    def case(_: list[Dataset]) -> Call:
        arguments = {name: value() if callable(value) else value for name, value in options.items()}
        subject = SimpleHybridRetriever(*retrievers(), **arguments)

        async def retrieve() -> Any:
            return [await subject.aretrieve("q", top_k) for _ in range(times)][-1]

        return Call(lambda: [subject.retrieve("q", top_k) for _ in range(times)][-1], retrieve)

    return case


def pair() -> list[Any]:
    return [FixedRetriever(("a", 9.0), ("b", 4.0)), FixedRetriever(("b", 0.8), ("c", 0.7), ("b", 0.1))]


HYBRIDS: Final[dict[str, Case]] = {
    **{
        method: hybrid(pair, fusion=method)
        for method in ("rrf", "weighted_rrf", "min_max", "z_score", "dbsf", "round_robin")
    },
    "all at once": hybrid(lambda: together(6)),
    "cut": hybrid(pair, top_k=2, weights=[1, 3]),
    "by content": hybrid(pair, dedupe="content"),
    "one failing": hybrid(lambda: [Failing(), *pair()]),
    "one hanging": hybrid(lambda: [Slow(HANGS), *pair()], timeout=lambda: LIMIT["seconds"]),
    "all failing": hybrid(lambda: [Failing(), Failing(OSError("gone"))]),
    "left out": hybrid(lambda: [Failing(), *pair()], 4, breaker=lambda: Breaker(2, 60)),
    "a wrong number": hybrid(pair, top_k=0),
}

TEXTS: Final = (
    "The bridge was opened in 1932. It carries trains and cars. Its architect was John Bradfield. The paint is grey.",
    "The tower is in Paris. It has 324 metres. Gustave Eiffel built it. It is made of iron. Tourists like it.",
)


def refiner(make: Callable[[], Any], *documents: Document) -> Case:
    def case(_: list[Dataset]) -> Call:
        subject = make()
        passages = documents or [Document(f"d{number}", text) for number, text in enumerate(TEXTS)]
        ranking = Ranked(tuple(Hit(document, 1.0 / rank) for rank, document in enumerate(passages, 1)), "bm25")
        query = Query("Who was the architect?")
        return Call(lambda: subject.refine(query, ranking, 5), lambda: subject.arefine(query, ranking, 5))

    return case


def by_model(*replies: Any, **options: Any) -> Case:
    return refiner(lambda: LLMCompressor(ScriptedLLM([*replies]), **{"max_chars": 90, "concurrency": 1, **options}))


REFINERS: Final[dict[str, Case]] = {
    "extractive": refiner(lambda: ExtractiveCompressor(HashingEmbedder(), max_chars=100)),
    "extractive without vectors": refiner(lambda: ExtractiveCompressor(max_tokens=20)),
    "a counter that fails": refiner(lambda: ExtractiveCompressor(max_tokens=20, count_tokens=lambda _: 1 // 0)),
    "a model": by_model({"keep": [3]}, {"keep": [3]}),
    "a model that invents": by_model({"keep": [9]}, {"keep": [9]}, {"keep": [1]}, {"keep": [1]}),
    "a model that is asked again": by_model("I cannot.", {"keep": [3]}, "I cannot.", {"keep": [3]}),
    "a model that finds nothing": by_model({"keep": []}, {"keep": [3]}),
    "a summary": by_model("John Bradfield was its architect.", "NONE", mode="summary"),
    "a model that fails": by_model(*[RuntimeError("boom")] * 4),
    "a model that hangs": by_model(*[Delay(HANGS, "{}")] * 2, call_timeout=0.05, retries=0),
    "windows": refiner(lambda: WindowExpander(SHELF), passage(4), passage(1, "b.txt"), passage(2)),
    "windows of a shelf that fails": refiner(lambda: WindowExpander(FailingShelf([passage(1)])), passage(1)),
    "parents of a shelf that fails": refiner(lambda: ParentExpander(FailingShelf([])), passage(1, parent="p")),
}

CHOICES: Final = [
    ToolMetadata("weather", "Forecasts"),
    ToolMetadata("news", "What happened"),
    ToolMetadata("sums", "1"),
]


def selector(*replies: Any, **options: Any) -> Case:
    def case(_: list[Dataset]) -> Call:
        subject = LLMSelector(ScriptedLLM([*replies]), **options)
        return Call(lambda: subject.select(CHOICES, "What?"), lambda: subject.aselect(CHOICES, "What?"))

    return case


SELECTORS: Final[dict[str, Case]] = {
    "followed": selector('{"choice": 2, "reason": "it is about events"}'),
    "several": selector({"selections": [{"choice": 3}, {"choice": 1}]}, select_multi=True, max_outputs=2),
    "asked again": selector("?", '{"choice": 2}'),
    "too many": selector("[3, 1, 2]", "[2, 1]", select_multi=True, max_outputs=2),
    "the first": selector("?", "?"),
    "all": selector("?", "?", fallback="all"),
    "raised": selector("?", "?", fallback="raise"),
    "failing": selector(OSError("down"), OSError("down")),
    "hanging": selector(Delay(HANGS, "1"), timeout=0.1, retries=0),
    "abstaining": selector('{"choice": null, "reason": "none"}', allow_abstain=True),
}

CASES: Final[dict[str, dict[str, Case]]] = {
    "workflow": WORKFLOWS,
    "service": SERVICES,
    "hybrid": HYBRIDS,
    "refiner": REFINERS,
    "selector": SELECTORS,
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, cases in CASES.items() for name in cases])
def test_every_way_of_asking_gives_the_same(
    kind: str, name: str, datasets: list[Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[kind][name]

    def check(limit: float) -> None:
        monkeypatch.setitem(LIMIT, "seconds", limit)
        expected = outcome(synchronously, case(datasets))
        for way in (asynchronously, inside_a_running_loop):
            assert outcome(way, case(datasets)) == expected, way.__name__
        assert in_a_thread(case(datasets)) == expected

    holds_with_time(check, *(LIMITS if "hanging" in name else (30.0,)))


def test_different_answers_are_different() -> None:
    """The comparison sees hits, what did not work, and errors."""
    outcomes = [outcome(synchronously, HYBRIDS[name]([])) for name in ("rrf", "cut", "one failing", "all failing")]
    assert len(set(map(repr, outcomes))) == 4
