"""How well and how fast routing works: which of nine collections a query belongs to, and what following a choice costs.

    python benchmarks/router.py [content] [overhead]

Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository. The first run
embeds every document, which takes a while; later ones take the vectors from the cache. The peers are installed from
PyPI into environments of their own in the cache directory; where that fails they are left out, and this is said.
Exit status 1: a bound was missed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from _data import DATA
from _peers import ask_peer, microseconds, seconds
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation import read_collection
from pointsman.retrieval.plan.router_retriever import RouterRetriever
from pointsman.retrieval.plan.routers import ContentRouter, RouteDecision
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.selector.base_selector import BaseSelector, Choices, SelectorResult, SingleSelection
from pointsman.selector.heuristic_route import router_select
from pointsman.values.types import Document, Hit, Query
from pointsman.workspace.dataset import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.embedders import BaseEmbedder

TIMED = 300
BOUNDS = {
    "accuracy@1 by content": (0.93, "at least"),
    "ms per query by content": (20.0, "at most"),
    "router, us": (60.0, "at most"),
    "router_select of 60 characters, us": (20.0, "at most"),
    "router_select of 1 MB, s": (0.2, "at most"),
}

PEERS = {
    "llama-index-core": """
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, RouterRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import RetrieverTool

class Stub(BaseRetriever):
    def __init__(self):
        super().__init__()
        self.hits = [NodeWithScore(node=TextNode(id_=str(i), text=str(i)), score=1 / (i + 1)) for i in range(100)]
    def _retrieve(self, query_bundle):
        return self.hits

class First(BaseSelector):
    def _select(self, choices, query):
        return SelectorResult(selections=[SingleSelection(index=0, reason="first")])
    async def _aselect(self, choices, query):
        return self._select(choices, query)
    def _get_prompts(self):
        return {}
    def _update_prompts(self, prompts):
        pass

tools = [RetrieverTool.from_defaults(Stub(), description=d) for d in ("facts", "figures")]
router = RouterRetriever(selector=First(), retriever_tools=tools, llm=MockLLM())
call = lambda: router.retrieve("what is it")
""",
    "langchain-core": """
from langchain_core.documents import Document
from langchain_core.runnables import RunnableBranch, RunnableLambda

hits = [Document(id=str(i), page_content=str(i)) for i in range(100)]
stub = RunnableLambda(lambda query: hits)
router = RunnableBranch((lambda query: True, stub), stub)
call = lambda: router.invoke("what is it")
""",
}
TIMER = """
import json, time
assert len(call()) == 100
def sample():
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
samples = sorted(sample() for _ in range(5000))
print(json.dumps(samples[2500] * 1e6))
"""


def main(parts: Sequence[str]) -> int:
    figures: dict[str, float] = {}
    if not parts or "content" in parts:
        figures |= content([document.id for document in read_collection(DATA / "route_dev").documents])
    if not parts or "overhead" in parts:
        figures |= overhead()
    met = True
    for name, (bound, side) in BOUNDS.items():
        if name in figures:
            good = figures[name] >= bound if side == "at least" else figures[name] <= bound
            met &= good
            print(f"{'ok    ' if good else 'MISSED'} {name}: {figures[name]:.4g}, {side} {bound:g}")
    return 0 if met else 1


# ── which collection ─────────────────────────────────────────────────────────────────────────────────────────────────


def content(names: Sequence[str]) -> dict[str, float]:
    embedder = CachedEmbedder(default_embedder())
    queries, labels = labelled(names)
    print(f"route_dev: {len(queries)} queries, {len(names)} datasets; tuned on other queries of the same collections\n")
    with tempfile.TemporaryDirectory(prefix="pointsman-router-") as folder:
        datasets = [built(name, Path(folder) / name, embedder) for name in names]
        vectors = embedder.embed_queries(queries)
        described = vectors @ embedder.embed_documents([dataset.description for dataset in datasets]).T
        print(f"descriptions, plain cosine   accuracy@1 {np.mean(described.argmax(1) == labels):.4f}")
        router = ContentRouter()
        decisions = [router.decide(query, datasets) for query in queries]
        figures = {"accuracy@1 by content": told(decisions, labels, names)}
        figures["ms per query by content"] = timed(router, datasets, Path(folder), queries)
        for dataset in datasets:
            dataset.close()
    return figures


def labelled(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    collection = read_collection(DATA / "route_dev")
    labels = [names.index(next(iter(collection.qrels[query]))) for query in collection.queries]
    return list(collection.queries.values()), np.array(labels)


def built(name: str, path: Path, embedder: BaseEmbedder) -> Dataset:
    """A collection as a dataset; progress is shown, since the first time takes minutes."""
    collection = read_collection(DATA / name)
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        if sys.stderr.isatty():
            print(f"\r{name}: {done}/{len(collection.documents)}\033[K", end="\r", file=sys.stderr)

    descriptions = {document.id: document.text for document in read_collection(DATA / "route_dev").documents}
    dataset = Dataset(name, descriptions[name], path=path, embedder=embedder)
    dataset.add(collection.documents, on_progress=progress)
    return dataset


def told(decisions: Sequence[RouteDecision], labels: NDArray[np.int64], names: Sequence[str]) -> float:
    """Print accuracy, by collection too, what the margin adds, and how honest the confidence is."""
    first = np.array([names.index(decision.datasets[0].name) for decision in decisions])
    chosen = [{dataset.name for dataset in decision.datasets} for decision in decisions]
    right = first == labels
    among = np.mean([names[label] in those for label, those in zip(labels, chosen, strict=True)])
    print(
        f"content                      accuracy@1 {right.mean():.4f}; right one among the chosen {among:.4f}, "
        f"{np.mean([len(those) for those in chosen]):.2f} chosen on average"
    )
    for place, name in enumerate(names):
        print(f"    {name:14} {right[labels == place].mean():.3f}")
    confidence = np.array([decision.confidence or 0.0 for decision in decisions])
    print("confidence     claimed  right   queries")
    error = 0.0
    for low, high in ((0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 0.99), (0.99, 1.01)):
        those = (confidence >= low) & (confidence < high)
        if those.any():
            error += float(those.mean() * abs(confidence[those].mean() - right[those].mean()))
            span = f"{low:.2f} to {min(high, 1):.2f}"
            print(f"    {span} {confidence[those].mean():.3f}    {right[those].mean():.3f}  {those.sum():6}")
    print(f"expected calibration error {error:.3f}")
    return float(right.mean())


def timed(router: ContentRouter, datasets: Sequence[Dataset], folder: Path, queries: Sequence[str]) -> float:
    """Milliseconds per query, embedding it included: the cache is taken away from the embedder."""
    bare = default_embedder()
    fresh = [Dataset(d.name, d.description, path=folder / d.name, embedder=bare) for d in datasets]
    some = [queries[place] for place in np.linspace(0, len(queries) - 1, TIMED).astype(int)]
    for query in some[:10]:
        router.decide(query, fresh)
    embedding = [seconds(lambda: bare.embed_queries([query])) for query in some]  # noqa: B023  (called at once)
    routing = [seconds(lambda: router.decide(query, fresh)) for query in some]  # noqa: B023
    for dataset in fresh:
        dataset.close()
    p50 = median(routing) * 1000
    p95, alone = np.quantile(routing, 0.95) * 1000, median(embedding) * 1000
    print(f"ms per query: p50 {p50:.2f}, p95 {p95:.2f}; embedding alone {alone:.2f}\n")
    return p50


# ── what following a choice costs ────────────────────────────────────────────────────────────────────────────────────


class Stub(BaseRetriever):
    """Gives the same hundred hits to everybody."""

    def __init__(self) -> None:
        self.hits = [Hit(Document(str(i), str(i)), 1 / (i + 1)) for i in range(100)]

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:  # noqa: ARG002  (the interface)
        """All of them."""
        return self.hits


class First(BaseSelector):
    """Does not think."""

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:  # noqa: ARG002  (the interface)
        """The first."""
        return SelectorResult([SingleSelection(0, "first")])


def overhead() -> dict[str, float]:
    router = RouterRetriever([Stub(), Stub()], ["facts", "figures"], First())
    assert len(router.retrieve("what is it", 100)) == 100
    ours = microseconds(lambda: router.retrieve("what is it", 100))
    print("a router over two stub retrievers of 100 hits with a stub selector, p50\n")
    print(f"{'pointsman':18}{ours:8.1f} us")
    for package, code in PEERS.items():
        theirs = ask_peer(package, [package], code + TIMER)
        if theirs is not None:
            print(f"{package:18}{theirs:8.1f} us   {theirs / ours:5.1f} times ours")
    print("\nrouter_select, p50")
    figures = {"router, us": ours}
    for language, query in {
        "en": "the quick brown fox jumps over the lazy dog and goes away ok",
        "ru": "как работает сборка мусора в языке программирования ява и го",
        "zh": "图书馆开放时间安排表以及借阅规则" * 3 + "请问在哪里可以查到这些规则",
    }.items():
        taken = microseconds(lambda: router_select(query[:60]))  # noqa: B023  (called at once)
        print(f"    {language}, {len(query[:60])} characters {taken:6.1f} us")
        figures["router_select of 60 characters, us"] = max(taken, figures.get("router_select of 60 characters, us", 0))
    worst = 0.0
    for piece in ("lorem ipsum ", "слово дело ", "图书馆开放", "1" * 64 + "a", "1-", ":", "e:", "@ ", "\x00\x01a"):
        text = (piece * 1_000_000)[:1_000_000] + "x"
        worst = max(worst, min(seconds(lambda: router_select(text)) for _ in range(3)))  # noqa: B023
    print(f"    1 MB, the worst of nine kinds {worst:.3f} s\n")
    return figures | {"router_select of 1 MB, s": worst}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
