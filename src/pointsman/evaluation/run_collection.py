"""Runs a test collection's queries and measures the answers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from pointsman.embedders.named_embedders import as_embedder
from pointsman.evaluation.collections import TestCollection, read_collection
from pointsman.evaluation.ranking_metrics import measure
from pointsman.evaluation.report import Report, StrategyReport
from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.request import RegisteredStrategy
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.registry import STRATEGIES as STRATEGY_NAMES
from pointsman.values.registry import STRATEGY_ALIASES
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.retrieval.refine.base_refiner import BaseRefiner
    from pointsman.values.protocols import Embedder

STRATEGIES = ("bm25", "vector", "hybrid", "auto")
"""The strategies compared by default."""

ALL = (*STRATEGIES, "rrf", "z_score", "multi_query", "decomposition")
"""The strategies of ``"all"``: those that rank a collection's documents without a language model."""

Progress = Callable[[int, int, str], None]
"""Called with the amount done, the total, and the current activity."""

_DATASET = "evaluation"
_TIMED_SEARCHES = 200  # searches timed per strategy: enough for a p95 without doubling the run time
_WARM_UP = 5


def evaluate(
    folder: str | Path,
    strategies: Sequence[str] = STRATEGIES,
    k: int = 10,
    limit_queries: int | None = None,
    embedder: Embedder | str | None = None,
    on_progress: Progress | None = None,
    rerank: bool = True,
) -> Report:
    """Measure strategies on a folder in BEIR format.

    The index is built in a temporary workspace, which is deleted afterwards. Embeddings are cached on disk, so a second
    run is quick. Rankings are those of ``workspace.search``, as a user gets them, to a depth of 100.

    Latency is that of ``workspace.search(query, k=k)`` in a warm process, measured sequentially on at most 200 evenly
    spaced queries. It includes embedding the query: the embedding cache is bypassed, and no query runs before it is
    timed, except for a warm-up with other texts.

    Args:
        folder: see `read_collection`.
        strategies: ``"auto"`` or names that `Workspace.search` accepts; ``"all"`` selects those that need only the
            documents, compared by paired tests.
        k: the cutoff of nDCG, recall and reciprocal rank.
        limit_queries: use only the first so many judged queries, in file order.
        embedder: or its name; by default the default one; not loaded if only ``bm25`` is measured. Pass it without a
            cache: it is cached here, and a `CachedEmbedder` would hide the cost of embedding queries from the latency.
        on_progress: called with the progress.
        rerank: if False, rankings are measured as fused, without reranking. Refusal is off: whether to answer is
            independent of the order.

    Raises:
        InputError: the folder, a strategy or a number is invalid.
    """
    strategies = [strategies] if isinstance(strategies, str) else strategies
    names = tuple(dict.fromkeys(STRATEGY_ALIASES.get(name, name) for name in strategies))
    if not names:
        raise InputError(f"no strategy to evaluate; name some of {', '.join(('auto', *LISTS))}, or all")
    compare_all = "all" in names
    names = ALL if compare_all else names
    for name in names:
        if name != "auto" and name not in LISTS and name not in STRATEGY_NAMES.names():
            raise UnknownNameError("strategy", name, ("all", "auto", *LISTS, *STRATEGY_NAMES.names()))
    check_top_k(k)
    measure({}, {}, k)  # report a missing package now, not after an hour of embedding
    collection = read_collection(folder).first(limit_queries)
    words_only = names == ("bm25",)
    model = None if words_only else as_embedder("default" if embedder is None else embedder)
    with indexed(collection, model, on_progress, words_only=words_only) as workspace:
        report = evaluate_workspace(workspace, collection, names, k, on_progress, timed_with=model, rerank=rerank)
        return replace(report, compared=compare_all)


def run_eval(
    folder: str | Path,
    strategies: str | Sequence[str] = STRATEGIES,
    *,
    k: int = 10,
    rerank: bool = True,
    limit_queries: int | None = None,
    embedder: Embedder | str | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """`evaluate` for the command line: also accepts strategies as ``"bm25,vector"``."""
    if isinstance(strategies, str):
        strategies = [name.strip() for name in strategies.split(",") if name.strip()]
    return evaluate(folder, strategies, k, limit_queries, embedder, on_progress, rerank)


@contextmanager
def indexed(
    collection: TestCollection,
    embedder: Embedder | None = None,
    on_progress: Progress | None = None,
    *,
    words_only: bool = False,
) -> Iterator[Workspace]:
    """Context manager: a temporary workspace with the collection's documents.

    Args:
        collection: the collection to index.
        embedder: by default the default embedder; its vectors are cached on disk.
        on_progress: called with the number of documents done.
        words_only: build no vectors and load no embedder.
    """
    report = on_progress or (lambda *_: None)
    total = len(collection.documents)
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-eval-") as folder,
        Workspace(folder, embedder=None if words_only else _cached(embedder)) as workspace,
    ):
        dataset = workspace.dataset(_DATASET, indexing_technique="keyword" if words_only else "hybrid")
        total_done = 0

        def indexed_more(count: int) -> None:
            nonlocal total_done
            total_done += count
            report(total_done, total, "indexing")

        report(0, total, "indexing")
        dataset.add(collection.documents, on_progress=indexed_more)
        yield workspace


@without_record()
def evaluate_workspace(
    workspace: Workspace,
    collection: TestCollection,
    strategies: Sequence[str] = STRATEGIES,
    k: int = 10,
    on_progress: Progress | None = None,
    *,
    timed_with: Embedder | None = None,
    rerank: bool | BaseRefiner | None = None,
) -> Report:
    """Measure strategies on a workspace with a collection's documents, such as one from `indexed`.

    Args:
        workspace: the workspace; all its datasets are searched.
        collection: the collection that has the queries.
        strategies: names that `Workspace.search` accepts.
        k: the cutoff of nDCG, recall and reciprocal rank.
        on_progress: called with the number of queries done.
        timed_with: the embedder for timed queries: the same one without a cache; by default the default embedder.
        rerank: as for `Workspace.search`; True means the default.
    """
    report = on_progress or (lambda *_: None)
    rerank = None if rerank is True else rerank
    reports = {}
    for strategy in strategies:
        rankings_by_query = rankings(workspace, collection, strategy, max(DEPTH, k), report, rerank=rerank)
        figures = measure(collection.qrels, rankings_by_query, k)
        p50, p95 = _latency(workspace, collection, strategy, k, report, timed_with, rerank)
        reports[strategy] = StrategyReport(figures.means, p50, p95, figures.per_query[f"ndcg@{k}"])
    return Report(
        collection.name, len(collection.documents), len(collection.queries), reports, texts=dict(collection.queries)
    )


def rankings(
    workspace: Workspace,
    collection: TestCollection,
    strategy: str,
    depth: int = DEPTH,
    on_progress: Progress | None = None,
    *,
    rerank: bool | BaseRefiner | None = None,
) -> dict[str, list[str]]:
    """Return the ids that a strategy finds for each query, best first, as input for `measure`."""
    report = on_progress or (lambda *_: None)
    results = {}
    for number, (query, text) in enumerate(collection.queries.items(), 1):
        context = workspace.search(text, depth, strategy=RegisteredStrategy(strategy), rerank=rerank, refuse=False)
        results[query] = [hit.id for hit in context]
        report(number, len(collection.queries), f"{strategy}: asking")
    return results


def _latency(
    workspace: Workspace,
    collection: TestCollection,
    strategy: str,
    k: int,
    report: Progress,
    embedder: Embedder | None,
    rerank: bool | BaseRefiner | None,
) -> tuple[float, float]:
    """Return p50 and p95 in milliseconds; see `evaluate`."""
    name = RegisteredStrategy(strategy)
    texts = list(dict.fromkeys(collection.queries.values()))
    texts = texts[:: -(-len(texts) // _TIMED_SEARCHES)]
    # A separate workspace: the other one remembers the vectors of all its queries.
    with Workspace(workspace.path, embedder=embedder) as fresh:
        for number in range(_WARM_UP):
            fresh.search(f"warm-up {number}", k, strategy=name, rerank=rerank)
        times = []
        for number, text in enumerate(texts, 1):
            start = perf_counter()
            fresh.search(text, k, strategy=name, rerank=rerank)
            times.append((perf_counter() - start) * 1000)
            report(number, len(texts), f"{strategy}: timing")
    p50, p95 = np.percentile(times, [50, 95])
    return float(p50), float(p95)


def _cached(embedder: Embedder | None) -> Embedder:
    from pointsman.embedders import CachedEmbedder, default_embedder

    embedder = embedder or default_embedder()
    return embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
