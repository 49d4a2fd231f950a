"""What the workflow itself costs, and what it gives when a branch is slow, fails or hangs; peers in the same run.

    python benchmarks/workflow.py [overhead] [branches] [batch]

The peers are installed from PyPI into environments of their own in the cache directory; where that fails they are left
out, and this is said. ``batch`` embeds some 400 made-up passages. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from _peers import ask_peer, microseconds, seconds
from pointsman import BaseRefiner, BaseRetriever, BaseRouter, Dataset, Document, Hit, Query, RetrievalWorkflow
from pointsman.embedders import default_embedder
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.retrievers.hybrid_retriever import SimpleHybridRetriever

if TYPE_CHECKING:
    from pointsman.values.types import Ranked

BOUNDS = {
    # What waking a thread costs differs by processor more than anything else here, so peers are the measure.
    "hybrid, sync, in LangChain's": 1.0,
    "hybrid, async, in LangChain's": 1.0,
    "idle workflow, sync, in LlamaIndex's": 1.0,
    "two branches of 20 ms, sync": 25.0,
    "two branches of 20 ms, async": 25.0,
    "one failing, ms": 110.0,
    "one hanging, ms": 110.0,
}

LLAMA = """
import asyncio, json, time
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode

class Stub(BaseRetriever):
    def __init__(self, step, wait=0, fails=False):
        super().__init__()
        ids = [str(step * i) for i in range(100)]
        self.hits = [NodeWithScore(node=TextNode(id_=i, text=i), score=1 / n) for n, i in enumerate(ids, 1)]
        self.wait, self.fails = wait, fails
    def _retrieve(self, query_bundle):
        if self.fails: raise LookupError("down")
        time.sleep(self.wait)
        return self.hits
    async def _aretrieve(self, query_bundle):
        if self.fails: raise LookupError("down")
        if self.wait: await asyncio.sleep(self.wait)
        return self.hits

def made(*stubs):
    options = {"similarity_top_k": 10, "num_queries": 1, "mode": "reciprocal_rerank", "use_async": False}
    return QueryFusionRetriever(list(stubs), llm=MockLLM(), **options)
def sync(one): return one.retrieve("what is it")
async def awaited(one): return await one.aretrieve("what is it")
"""
LANGCHAIN = """
import asyncio, json, time
from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

class Stub(BaseRetriever):
    step: int
    wait: float = 0
    fails: bool = False
    hits: list = []
    def model_post_init(self, _):
        self.hits = [Document(id=str(self.step * i), page_content=str(self.step * i)) for i in range(100)]
    def _get_relevant_documents(self, query, *, run_manager):
        if self.fails: raise LookupError("down")
        time.sleep(self.wait)
        return self.hits
    async def _aget_relevant_documents(self, query, *, run_manager):
        if self.fails: raise LookupError("down")
        if self.wait: await asyncio.sleep(self.wait)
        return self.hits

_Stub = Stub
def Stub(step, wait=0, fails=False): return _Stub(step=step, wait=wait, fails=fails)
def made(*stubs): return EnsembleRetriever(retrievers=list(stubs), weights=[.5, .5])
def sync(one): return one.invoke("what is it")
async def awaited(one): return await one.ainvoke("what is it")
"""
HAYSTACK = """
import asyncio, json, time
from haystack import Document, Pipeline, component
from haystack.components.joiners import DocumentJoiner

@component
class Stub:
    def __init__(self, step, wait=0, fails=False):
        self.hits = [Document(id=str(step * i), content=str(step * i), score=1 / (i + 1)) for i in range(100)]
        self.wait, self.fails = wait, fails
    @component.output_types(documents=list[Document])
    def run(self, query: str):
        if self.fails: raise LookupError("down")
        time.sleep(self.wait)
        return {"documents": self.hits}
    @component.output_types(documents=list[Document])
    async def run_async(self, query: str):
        if self.fails: raise LookupError("down")
        if self.wait: await asyncio.sleep(self.wait)
        return {"documents": self.hits}

def made(*stubs):
    pipeline = Pipeline()
    pipeline.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=10))
    for place, stub in enumerate(stubs):
        pipeline.add_component(f"stub{place}", stub)
        pipeline.connect(f"stub{place}.documents", "joiner.documents")
    return pipeline, {f"stub{place}": {"query": "what is it"} for place in range(len(stubs))}
def sync(one): return one[0].run(one[1])["joiner"]["documents"]
async def awaited(one): return (await one[0].run_async(one[1]))["joiner"]["documents"]
"""
PEERS = {
    "langchain": (["langchain-classic"], LANGCHAIN),
    "llama-index": (["llama-index-core"], LLAMA),
    "haystack": (["haystack-ai"], HAYSTACK),
}
TIMER = """
from statistics import median
def timed(call, times):
    samples = []
    for _ in range(times):
        began = time.perf_counter(); call(); samples.append(time.perf_counter() - began)
    return median(samples)
async def atimed(call, times):
    samples = []
    for _ in range(times):
        began = time.perf_counter(); await call(); samples.append(time.perf_counter() - began)
    return median(samples)
def told(call):
    began = time.perf_counter()
    try: result = f"{len(call())} hits, unmarked"
    except Exception as error: result = f"raises {type(error).__name__}"
    return result, time.perf_counter() - began
one, slow = made(Stub(1), Stub(2)), made(Stub(1, .02), Stub(2, .02))
print(json.dumps({
    "sync": timed(lambda: sync(one), 2000) * 1e6,
    "async": asyncio.run(atimed(lambda: awaited(one), 2000)) * 1e6,
    "slow sync": timed(lambda: sync(slow), 20) * 1e3,
    "slow async": asyncio.run(atimed(lambda: awaited(slow), 20)) * 1e3,
    "failing": told(lambda: sync(made(Stub(1), Stub(2, fails=True)))),
    "hanging": told(lambda: sync(made(Stub(1), Stub(2, 2.0)))),
}))
"""


class Stub(BaseRetriever):
    """Gives the same hundred hits to everybody, after a while if wanted."""

    def __init__(self, step: int, wait: float = 0.0, *, fails: bool = False) -> None:
        self.hits = [Hit(Document(str(step * i), str(step * i)), 1 / (i + 1)) for i in range(100)]
        self.wait, self.fails = wait, fails

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:  # noqa: ARG002  (the interface)
        """All of them."""
        if self.fails:
            raise LookupError("down")
        if self.wait:
            time.sleep(self.wait)
        return self.hits

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:  # noqa: ARG002
        """The same, awaited."""
        if self.fails:
            raise LookupError("down")
        if self.wait:
            await asyncio.sleep(self.wait)
        return self.hits


class IdleRefiner(BaseRefiner):
    """Passes everything on."""

    in_place = True

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (the interface)
        """The same."""
        return ranking


class IdleTransformer(BaseTransformer):
    """Leaves every query as it is."""

    def transform(self, query: str | Query) -> Transformed:
        """The same."""
        return Transformed(Query.of(query))


class IdleRouter(BaseRouter):
    """Chooses everything."""

    def route(self, query: str | Query, datasets: Sequence[Dataset]) -> list[Dataset]:  # noqa: ARG002  (the interface)
        """All of them."""
        return list(datasets)


def bare_loop() -> list[tuple[str, float]]:
    """Reciprocal rank fusion of the same lists, with nothing around it."""
    scores: dict[str, float] = {}
    for hits in (LEFT.hits, RIGHT.hits):
        for rank, hit in enumerate(hits, 1):
            scores[hit.document.id] = scores.get(hit.document.id, 0.0) + 1 / (60 + rank)
    return sorted(scores.items(), key=lambda item: -item[1])[:10]


LEFT, RIGHT = Stub(1), Stub(2)


def main(parts: Sequence[str]) -> int:
    logging.disable(logging.WARNING)  # branches fail here on purpose
    figures: dict[str, float] = {}
    peers: dict[str, Any] = {}
    if not parts or {"overhead", "branches"} & set(parts):
        peers = {name: ask_peer(name, packages, code + TIMER) for name, (packages, code) in PEERS.items()}
    for name, section in (("overhead", overhead), ("branches", branches)):
        if not parts or name in parts:
            figures |= section({name: told for name, told in peers.items() if told})
    if not parts or "batch" in parts:
        batch()
    met = True
    for name, bound in BOUNDS.items():
        if name in figures:
            met &= figures[name] <= bound
            print(f"{'ok    ' if figures[name] <= bound else 'MISSED'} {name}: {figures[name]:.4g}, at most {bound:g}")
    return 0 if met else 1


async def awaited(call: Callable[[], Awaitable[object]], times: int) -> float:
    """The median of so many awaited calls, in seconds."""
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - began)
    return median(samples)


def overhead(peers: dict[str, Any]) -> dict[str, float]:
    hybrid = SimpleHybridRetriever(LEFT, RIGHT)
    idle = RetrievalWorkflow(
        router=IdleRouter(),
        transformer=IdleTransformer(),
        reranker=IdleRefiner("rerank"),
        refiners=[IdleRefiner("refuse"), IdleRefiner("diversify"), IdleRefiner("compress")],
    )
    assert len(hybrid.retrieve("what is it")) == len(bare_loop()) == 10
    assert len(idle.search("what is it", [LEFT, RIGHT], 10)) == 10
    bare = microseconds(bare_loop)
    told = {
        "a bare loop over the lists": (bare, None),
        "SimpleHybridRetriever": (
            microseconds(lambda: hybrid.retrieve("what is it")),
            asyncio.run(awaited(lambda: hybrid.aretrieve("what is it"), 5000)) * 1e6,
        ),
        "the same, all hits": (
            microseconds(lambda: hybrid.retrieve("what is it", 150), 2000),
            asyncio.run(awaited(lambda: hybrid.aretrieve("what is it", 150), 2000)) * 1e6,
        ),
        "workflow, stages idle": (
            microseconds(lambda: idle.search("what is it", [LEFT, RIGHT], 10), 2000),
            asyncio.run(awaited(lambda: idle.asearch("what is it", [LEFT, RIGHT], 10), 2000)) * 1e6,
        ),
        **{name: (figures["sync"], figures["async"]) for name, figures in peers.items()},
    }
    print("reciprocal rank fusion of two stub retrievers of 100 hits, best 10, p50 in microseconds (in bare loops)\n")
    print(f"{'':28}{'sync':>16}{'async':>16}")
    for name, times in told.items():
        columns = "".join("" if us is None else f"{us:9.0f} ({us / bare:4.1f})" for us in times)
        print(f"{name:28}{columns}")
    print()
    sync, async_ = told["SimpleHybridRetriever"]
    assert async_ is not None
    figures = {}
    if "langchain" in peers:
        figures["hybrid, sync, in LangChain's"] = sync / peers["langchain"]["sync"]
        figures["hybrid, async, in LangChain's"] = async_ / peers["langchain"]["async"]
    if "llama-index" in peers:
        idle_sync, _ = told["workflow, stages idle"]
        figures["idle workflow, sync, in LlamaIndex's"] = idle_sync / peers["llama-index"]["sync"]
    return figures


def branches(peers: dict[str, Any]) -> dict[str, float]:
    slow = SimpleHybridRetriever(Stub(1, 0.02), Stub(2, 0.02))
    slow.retrieve("warm up")
    sync = median(seconds(lambda: slow.retrieve("what is it")) for _ in range(30)) * 1e3
    async_ = asyncio.run(awaited(lambda: slow.aretrieve("what is it"), 30)) * 1e3
    print("two branches of 20 ms, p50 in milliseconds\n")
    print(f"{'':28}{'sync':>9}{'async':>9}")
    for name, times in {
        "SimpleHybridRetriever": (sync, async_),
        **{name: (figures["slow sync"], figures["slow async"]) for name, figures in peers.items()},
    }.items():
        print(f"{name:28}{times[0]:9.1f}{times[1]:9.1f}")
    figures = {"two branches of 20 ms, sync": sync, "two branches of 20 ms, async": async_}
    print(
        "\none of two branches failing, or hanging (ours: a deadline of 100 ms; theirs have none, and it takes 2 s)\n"
    )
    for fault, other in (("failing", Stub(2, fails=True)), ("hanging", Stub(2, 2.0))):
        made = SimpleHybridRetriever(LEFT, other, names=["first", "second"], timeout=0.1)
        began = time.perf_counter()
        hits = made.retrieve("what is it")
        taken = (time.perf_counter() - began) * 1e3
        assert len(hits) == 10
        assert hits.degraded
        figures[f"one {fault}, ms"] = taken
        print(f"{fault:9}{'SimpleHybridRetriever':28}{taken:8.1f} ms  {len(hits)} hits, marked: {hits.degraded[0]}")
        for name, told in peers.items():
            print(f"{fault:9}{name:28}{told[fault][1] * 1e3:8.1f} ms  {told[fault][0]}")
    print()
    return figures


def batch() -> None:
    """A hundred questions at once against one by one, query vectors not known before."""
    chance = random.Random(7)
    words = "signal track lever train yard switch lamp points engine ticket steam bridge tunnel guard"
    passages = [Document(str(number), " ".join(chance.choices(words.split(), k=30))) for number in range(400)]
    with Dataset("batch") as dataset:
        dataset.add(passages)
        workflow = RetrievalWorkflow()
        workflow.search("warm up", [dataset])

        def questions(kind: str) -> list[str]:
            return [f"{kind}{number} {' '.join(chance.choices(words.split(), k=6))}" for number in range(100)]

        default_embedder().embed_queries(questions("warm up"))
        one_by_one, together = questions("single"), questions("batch")
        single = seconds(lambda: [workflow.search(question, [dataset]) for question in one_by_one])
        many = seconds(lambda: workflow.search_many(together, [dataset]))
        alike = workflow.search_many(one_by_one, [dataset])
        assert [context.hits for context in alike] == [workflow.search(one, [dataset]).hits for one in one_by_one]
    print(
        f"100 questions: one by one {single * 1e3:.0f} ms, as a batch {many * 1e3:.0f} ms, "
        f"{single / many:.1f} times as fast; the same answers\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
