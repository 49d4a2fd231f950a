"""Runs a test collection's queries and measures the answers."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.embedders.named_embedders import as_embedder
from pointsman.evaluation.collections import TestCollection, read_collection
from pointsman.evaluation.ranking_metrics import measure
from pointsman.evaluation.report import Report, StrategyReport
from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.refine.budget import accounts
from pointsman.retrieval.request import RegisteredStrategy
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.selector.heuristic_route import router_select
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.registry import STRATEGIES as STRATEGY_NAMES
from pointsman.values.registry import STRATEGY_ALIASES
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.embedders.query_vectors import QueryVectors
    from pointsman.retrieval.refine.base_refiner import BaseRefiner
    from pointsman.values.protocols import Embedder
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.settings import Settings

STRATEGIES = ("bm25", "vector", "hybrid", "auto")
"""The strategies compared by default."""

RERANKED = "+rerank"
"""What a strategy's name ends in to be measured with the reranker, whatever the other rows do."""

ROUTED = "router_select"
"""The row in which each question is searched by the strategy that `router_select` chooses."""

ALL = (*STRATEGIES, f"hybrid{RERANKED}", "rrf", "z_score", "multi_query", "decomposition")
"""The strategies of ``"all"``: those that rank documents without a language model."""

Progress = Callable[[int, int, str], None]
"""Called with the amount done, the total, and the current activity."""

_DATASET = "evaluation"
_TIMED_SEARCHES = 200  # searches timed per strategy: enough for a p95 without doubling the run time
_WARM_UP = 5


def evaluate(
    folder: str | Path,
    strategies: str | Sequence[str] = STRATEGIES,
    k: int = 10,
    limit_queries: int | None = None,
    embedder: Embedder | str | None = None,
    on_progress: Progress | None = None,
    rerank: bool = True,
    settings: Settings | None = None,
) -> Report:
    """Measure strategies on a folder in BEIR format.

    The index is built in a temporary workspace, which is deleted afterwards. Embeddings are cached on disk, so a second
    run is quick. Rankings are those of ``workspace.search``, as a user gets them, to a depth of 100.

    Latency is that of ``workspace.search(query, k=k)`` in a warm process, measured sequentially on at most 200 evenly
    spaced queries. It includes embedding the query: the embedding cache is bypassed, and no query runs before it is
    timed, except for a warm-up with other texts. Latency without embedding is that of the same search less the time
    that embedding took.

    Args:
        folder: see `read_collection`.
        strategies: ``"auto"`` or names that `Workspace.search` accepts; ``"hybrid+rerank"`` is ``hybrid`` with the
            reranker; ``"router_select"`` is the strategy that `router_select` chooses for each question, with the
            settings' rules; ``"all"`` selects those that need only the documents, compared by paired tests.
        k: the cutoff of nDCG, recall, precision and reciprocal rank.
        limit_queries: use only the first so many judged queries, in file order.
        embedder: or its name; by default the default one; not loaded if only ``bm25`` is measured. Pass it without a
            cache: it is cached here, and a `CachedEmbedder` would hide the cost of embedding queries from the latency.
        on_progress: called with the progress.
        rerank: if False, rankings are measured as fused, without reranking. Refusal is off: whether to answer is
            independent of the order.
        settings: name the language models of strategies that need one; by default there is none.

    Raises:
        InputError: the folder, a strategy or a number is invalid.
    """
    names = strategy_names(strategies)
    check_top_k(k)
    measure({}, {}, k)  # report a missing package now, not after an hour of embedding
    collection = read_collection(folder).first(limit_queries)
    words_only = names == ("bm25",)
    model = None if words_only else as_embedder("default" if embedder is None else embedder)
    with indexed(collection, model, on_progress, words_only=words_only, settings=settings) as workspace:
        report = evaluate_workspace(workspace, collection, names, k, on_progress, timed_with=model, rerank=rerank)
        return replace(report, compared=names == ALL)


def strategy_names(strategies: str | Sequence[str]) -> tuple[str, ...]:
    """Return the strategies to measure: their names in one text (``"bm25,vector"``) or several, or those of ``all``.

    Raises:
        UnknownNameError: there is no such strategy.
        InputError: no strategy is named.
    """
    texts = strategies.split(",") if isinstance(strategies, str) else strategies
    names = tuple(dict.fromkeys(STRATEGY_ALIASES.get(text.strip(), text.strip()) for text in texts if text.strip()))
    known_names = ("all", "auto", ROUTED, *LISTS, *STRATEGY_NAMES.names())
    if not names:
        raise InputError(f"no strategy to evaluate; name some of {', '.join(('auto', *LISTS))}, or all")
    for name in names:
        if name.removesuffix(RERANKED) not in known_names or name == f"all{RERANKED}":
            raise UnknownNameError("strategy", name, known_names)
    return ALL if "all" in names else names


@contextmanager
def indexed(
    collection: TestCollection,
    embedder: Embedder | None = None,
    on_progress: Progress | None = None,
    *,
    words_only: bool = False,
    settings: Settings | None = None,
) -> Iterator[Workspace]:
    """Context manager: a temporary workspace with the collection's documents.

    Args:
        collection: the collection to index.
        embedder: by default the default embedder; its vectors are cached on disk.
        on_progress: called with the number of documents done.
        words_only: build no vectors and load no embedder.
        settings: of the workspace; by default none.
    """
    report = on_progress or (lambda *_: None)
    total = len(collection.documents)
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-eval-") as folder,
        Workspace(folder, embedder=None if words_only else _cached(embedder), settings=settings) as workspace,
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
        k: the cutoff of nDCG, recall, precision and reciprocal rank.
        on_progress: called with the number of queries done.
        timed_with: the embedder for timed queries: the same one without a cache; by default the default embedder.
        rerank: as for `Workspace.search`; True means the default.
    """
    # A separate workspace is timed: the embedder of the other one remembers the vectors of all its queries.
    with Workspace(
        workspace.path, embedder=timed_with, workflow=workspace.workflow, llm=workspace.llm, settings=workspace.settings
    ) as latency_workspace:
        reports = measure_strategies(
            workspace,
            collection.queries,
            collection.qrels,
            strategies,
            k,
            lambda _, context: [hit.id for hit in context],
            latency_workspace=latency_workspace,
            rerank=rerank,
            on_progress=on_progress,
        )
    return Report(
        collection.name, len(collection.documents), len(collection.queries), reports, texts=dict(collection.queries)
    )


def measure_strategies(
    workspace: Workspace,
    queries: Mapping[str, str],
    grades: Mapping[str, Mapping[str, int]],
    strategies: Sequence[str],
    k: int,
    units_of: Callable[[str, RetrievalContext], list[str]],
    *,
    latency_workspace: Workspace,
    rerank: bool | BaseRefiner | None,
    datasets: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> dict[str, StrategyReport]:
    """Measure strategies, by name, by what they find for queries.

    Args:
        workspace: what is searched.
        queries: texts by query id.
        grades: query id -> id of what answers -> grade.
        strategies: see `strategy_names`.
        k: the cutoff of nDCG, recall, precision and reciprocal rank.
        units_of: returns what the hits of a query count as, best first.
        latency_workspace: the workspace whose searches are timed; each embeds its query anew.
        rerank: as for `Workspace.search`; True means the default.
        datasets: those to search; None: all.
        on_progress: called with the number of queries done.
    """
    report = on_progress or (lambda *_: None)
    reports = {}
    for name in strategies:
        strategy = name.removesuffix(RERANKED)
        is_reranked = True if name.endswith(RERANKED) else None if rerank is True else rerank
        search, search_in_time = (
            partial(_search, searched_workspace, strategy, datasets=datasets, rerank=is_reranked)
            for searched_workspace in (workspace, latency_workspace)
        )
        routes: Counter[tuple[str, str]] = Counter()
        if strategy == ROUTED:
            for text in queries.values():
                choice = router_select(text, workspace.settings.route_rules)
                routes.update((choice["route"], reason) for reason in choice["reasons"])
        rankings_by_query = {}
        with accounts() as accounts_of_searches:
            for number, (query, text) in enumerate(queries.items(), 1):
                rankings_by_query[query] = units_of(query, search(text, k=max(DEPTH, k), refuse=False))
                report(number, len(queries), f"{name}: asking")
        figures = measure(grades, rankings_by_query, k)
        names = latency_workspace.names() if datasets is None else datasets
        vectors = {latency_workspace.dataset(dataset, create=False).query_vectors for dataset in names}
        times, times_without = _latencies(partial(search_in_time, k=k), queries, vectors, report, f"{name}: timing")
        count = max(len(queries), 1)
        reports[name] = StrategyReport(
            figures.means,
            *times,
            figures.per_query[f"ndcg@{k}"],
            times_without,
            sum(account.calls for account in accounts_of_searches) / count,
            sum(account.tokens for account in accounts_of_searches) / count,
            routes,
        )
    return reports


def _search(workspace: Workspace, strategy: str, query: str, **options: Any) -> RetrievalContext:
    if strategy == ROUTED:
        strategy = router_select(query, workspace.settings.route_rules)["route"]
    return workspace.search(query, strategy=RegisteredStrategy(strategy), **options)


def _latencies(
    ask: Callable[[str], object],
    queries: Mapping[str, str],
    query_vectors: Collection[QueryVectors],
    report: Progress,
    activity: str,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return p50 and p95 in milliseconds, with the embedding of the query and without; see `evaluate`."""
    texts = list(dict.fromkeys(queries.values()))
    texts = texts[:: -(-len(texts) // _TIMED_SEARCHES)]
    for number in range(_WARM_UP):
        ask(f"warm-up {number}")
    times, times_without = [], []
    for number, text in enumerate(texts, 1):
        for vectors in query_vectors:
            vectors.forget()
        embedding = -sum(vectors.seconds for vectors in query_vectors)
        start = perf_counter()
        ask(text)
        seconds = perf_counter() - start
        embedding += sum(vectors.seconds for vectors in query_vectors)
        times.append(seconds * 1000)
        times_without.append(max(0.0, seconds - embedding) * 1000)
        report(number, len(texts), activity)
    return percentiles(times), percentiles(times_without)


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p95."""
    p50, p95 = np.percentile(times, [50, 95])
    return float(p50), float(p95)


def _cached(embedder: Embedder | None) -> Embedder:
    from pointsman.embedders import CachedEmbedder, default_embedder

    embedder = embedder or default_embedder()
    return embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
