"""A folder of datasets, and one search over all of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pointsman._twins import in_thread
from pointsman.dataset import Dataset, IndexingTechnique, QueryVectors, check_name
from pointsman.errors import CorruptStoreError, FormatVersionError, InputError, UnknownNameError, UnmetNeedError
from pointsman.filters import parse_filter
from pointsman.registry import STRATEGIES
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.policy import POLICY, Policy, measured, stored
from pointsman.retrieval.pool import LISTS
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.refuse import Refuser
from pointsman.retrieval.rerank.calibrated import CalibratedReranker
from pointsman.retrieval.router import ContentRouter
from pointsman.retrieval.strategies import BaseRetrievalStrategy, Budget, auto, spending
from pointsman.retrieval.transform.base import QueryTransformer
from pointsman.retrieval.workflow import RetrievalWorkflow, method_for, shared_spread
from pointsman.selector.heuristic import router_select
from pointsman.types import Plan, Query, RetrievalContext

if TYPE_CHECKING:
    from pointsman.filters import Filter
    from pointsman.protocols import LLM, Embedder
    from pointsman.retrieval.router import RouteDecision
    from pointsman.retrieval.strategies.auto import Effort
    from pointsman.selector.heuristic import RouteChoice

FORMAT = 1
_MANIFEST = "workspace.json"


class Workspace:
    """Datasets on disk under one folder.

    Args:
        path: the folder; made, with what it needs, on the first write.
        embedder: for every dataset; the default embedder unless given.
        workflow: how to search: router, reranker, further refiners, time limit. Unless it has its own, searches rerank
            by the offline reranker, refuse by the default calibration, and decide by the policy that was fitted to the
            workspace, or the measured one.
        llm: for the strategies that need a language model; one for all of them, or by the strategy's name, and
            ``"general"`` for those that are not named.

    Raises:
        FormatVersionError: a newer Pointsman wrote it.
        InputError: there is something else at that path.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        embedder: Embedder | None = None,
        workflow: RetrievalWorkflow | None = None,
        llm: LLM | Mapping[str, LLM] | None = None,
    ) -> None:
        self.path = Path(path)
        self.workflow = workflow or RetrievalWorkflow(policy=stored(self.path) or measured())
        self.llm = llm
        self._embedder = embedder
        self._query_vectors = QueryVectors(self._loaded_embedder)
        self._datasets: dict[str, Dataset] = {}
        self._opening = threading.RLock()
        _check_folder(self.path)

    def dataset(
        self,
        name: str,
        *,
        description: str | None = None,
        indexing_technique: IndexingTechnique | None = None,
        create: bool = True,
    ) -> Dataset:
        """The dataset of this name, made when there is none.

        Args:
            name: see `Dataset`.
            description: set, or changed when it differs.
            indexing_technique: of a new dataset, ``"hybrid"`` unless given; an existing one keeps its own.
            create: with False, an unknown name is an error.

        Raises:
            UnknownNameError: there is none and ``create`` is False.
            InputError: the name cannot be used, or the dataset was made with another ``indexing_technique``.
        """
        from pointsman.store.local.collection import read_manifest

        check_name(name)
        directory = self.path / "datasets" / name
        with self._opening:
            about = read_manifest(directory)
            if about is None and not create:
                raise UnknownNameError("dataset", name, tuple(self.names()))
            known = (about or {}).get("indexing_technique")
            if known and indexing_technique and known != indexing_technique:
                raise UnmetNeedError(
                    f"dataset {name!r} was made for {known!r} search; delete it to index it for {indexing_technique!r}"
                )
            dataset = self._datasets.get(name)
            if dataset is None:
                text = (about or {}).get("description", "") if about or description is None else description
                technique = known or indexing_technique or "hybrid"
                vectors = self._query_vectors
                dataset = Dataset(name, text, technique, path=directory, embedder=self._embedder, query_vectors=vectors)
                self._datasets[name] = dataset
            elif about is not None:
                dataset.follow(about)
            if about is None:
                _write_manifest(self.path)
                _ = dataset.stores  # makes it on disk
        if description is not None and description != dataset.description:
            dataset.describe(description)
        return dataset

    def make(self) -> None:
        """Make the folder with nothing in it, unless it is there."""
        _write_manifest(self.path)

    def names(self) -> list[str]:
        """The names of all datasets, sorted."""
        found = (self.path / "datasets").glob("*/manifest.json")
        return sorted(path.parent.name for path in found if not path.parent.name.startswith("."))  # those are going

    def datasets(self) -> list[Dataset]:
        """All datasets, by name."""
        return [self.dataset(name, create=False) for name in self.names()]

    def drop(self, name: str) -> None:
        """Delete a dataset with all its documents.

        Raises:
            UnknownNameError: there is none of this name.
            LockedError: another process is writing to it.
        """
        self.dataset(name, create=False).stores.remove()
        self._datasets.pop(name, None)

    def status(self, name: str) -> dict[str, Any]:
        """What a dataset holds and how it is kept: documents, embedder, bytes on disk, and whether its index is behind.

        Raises:
            UnknownNameError: there is none of this name.
        """
        dataset = self.dataset(name, create=False)
        stores = dataset.stores
        files = (path for path in (self.path / "datasets" / name).rglob("*") if path.is_file())
        return {
            "name": name,
            "description": dataset.description,
            "indexing_technique": dataset.indexing_technique,
            "documents": len(dataset),
            "embedder": stores.embedder,
            "sequence": stores.truth.sequence(),
            "keyword_index_sequence": stores.keyword.applied,
            "bytes": sum(map(_size, files)),
        }

    def search(
        self,
        query: str | Query,
        k: int = 5,
        *,
        datasets: str | Sequence[str] | None = None,
        strategy: str = "auto",
        filters: str | Mapping[str, Any] | Filter | None = None,
        rerank: bool | BaseRefiner | None = None,
        refuse: bool | BaseRefiner | None = None,
        effort: Effort = "balanced",
        timeout: float | None = None,
    ) -> RetrievalContext:
        """Search datasets and answer with the best hits of all.

        Args:
            query: what is asked.
            k: how many hits.
            datasets: names; all of them unless given.
            strategy: ``"auto"`` (by the policy), ``"bm25"``, ``"vector"``, ``"hybrid"``, a fusion method's name such
                as ``"rrf"``, or a registered strategy's such as ``"decomposition"``; some of those need the workspace's
                ``llm``.
            filters: an expression such as ``year >= 2020 and lang = "ru"``, a mapping, or a filter.
            rerank: False leaves the ranking as fused; True reranks by the workflow's reranker, or the offline one, in
                any case; a reranker of its own takes that. Unless given, the workflow decides; a fusion method that was
                asked for by name is then left alone by the offline reranker.
            refuse: False answers with whatever was found, relevant or not; a `Refuser` takes that one.
            effort: of ``"auto"``: ``"fast"`` is the lists alone; ``"balanced"`` also corrects spelling and takes
                complex questions apart; ``"thorough"`` reads the lists three times as deep. Or `Limits` of what it may
                spend; then it adds what gains most for its time.
            timeout: seconds for the whole search, instead of the workflow's own.

        Raises:
            InputError: any of these cannot be used.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        query, search = self._asked(query, datasets, strategy, filters, rerank, refuse, effort)
        with search.spending():
            return search.named(search.workflow.search(query, search.sources, k, timeout=timeout))

    async def asearch(
        self,
        query: str | Query,
        k: int = 5,
        *,
        datasets: str | Sequence[str] | None = None,
        strategy: str = "auto",
        filters: str | Mapping[str, Any] | Filter | None = None,
        rerank: bool | BaseRefiner | None = None,
        refuse: bool | BaseRefiner | None = None,
        effort: Effort = "balanced",
        timeout: float | None = None,  # noqa: ASYNC109  (a partial answer at the deadline is no cancellation)
    ) -> RetrievalContext:
        """The same, awaited."""
        query, search = await in_thread(
            self._asked, query, datasets, strategy, filters, rerank, refuse, effort
        )  # opening a dataset for the first time reads files
        with search.spending():
            return search.named(await search.workflow.asearch(query, search.sources, k, timeout=timeout))

    def search_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        datasets: str | Sequence[str] | None = None,
        strategy: str = "auto",
        filters: str | Mapping[str, Any] | Filter | None = None,
        rerank: bool | BaseRefiner | None = None,
        refuse: bool | BaseRefiner | None = None,
        effort: Effort = "balanced",
        timeout: float | None = None,
    ) -> list[RetrievalContext]:
        """Answer many questions, one context each in their order, embedding and reranking them in common batches.

        Options are those of `search`, and hold for every question; see `RetrievalWorkflow.search_many`.
        """
        if isinstance(queries, str):
            raise InputError("search_many takes a sequence of questions; search takes one")
        parsed = parse_filter(filters) if filters else None
        asked = [Query.of(query, parsed) for query in queries]
        _, search = self._asked("", datasets, strategy, None, rerank, refuse, effort)
        with search.spending():
            return list(map(search.named, search.workflow.search_many(asked, search.sources, k, timeout=timeout)))

    async def asearch_many(self, queries: Sequence[str | Query], k: int = 5, **options: Any) -> list[RetrievalContext]:
        """The same, awaited; it runs in a worker thread."""
        return await in_thread(self.search_many, queries, k, **options)

    def route(self, query: str | Query, datasets: Sequence[Dataset] | None = None, strategy: str = "auto") -> Routing:
        """How and where a query would be looked for, and why, before anything is searched.

        Args:
            query: what would be asked.
            datasets: those to choose from; all unless given.
            strategy: as of a search: what it would be asked to do.
        """
        asked = Query.of(query)
        known = self.datasets() if datasets is None else list(datasets)
        decision = self._router.decide(asked, known) if known else None
        return Routing(asked.text, router_select(asked.text), self.plan(known, strategy), decision)

    @cached_property
    def _router(self) -> ContentRouter:
        return ContentRouter()  # keeps a sketch of each dataset

    def plan(self, datasets: Sequence[Dataset], strategy: str = "auto") -> Plan:
        """What a search of these datasets would do, and why."""
        method, why = method_for(datasets, strategy, self.workflow.policy)
        return Plan(tuple(dataset.name for dataset in datasets), method, why)

    def _asked(
        self,
        query: str | Query,
        names: str | Sequence[str] | None,
        strategy: str,
        filters: str | Mapping[str, Any] | Filter | None,
        rerank: bool | BaseRefiner | None,
        refuse: bool | BaseRefiner | None,
        effort: Effort,
    ) -> tuple[Query, _Search]:
        """The query, and how to search for it."""
        auto.check_effort(effort)
        if strategy == "auto":
            strategy = self.workflow.strategy
        query = Query.of(query, parse_filter(filters) if filters else None)
        if isinstance(names, str):
            names = [names]
        wanted = self.names() if names is None else list(dict.fromkeys(names))
        chosen = [self.dataset(name, create=False) for name in wanted]
        workflow = self._staged(strategy, chosen, rerank, refuse)
        if strategy == "auto":
            added = auto.transformer(chosen, effort) if workflow.policy is not None else None
            steps = [step for step in (workflow.transformer, added) if step is not None]
            transformer = QueryTransformer(*steps) if len(steps) > 1 else next(iter(steps), None)
            depth = 3 * workflow.depth if effort == "thorough" else workflow.depth
            policy = workflow.policy
            if policy is not None and "feedback" not in auto.additions(effort):
                policy = replace(policy, feedback=0.0)
            return query, _Search(
                replace(workflow, strategy="auto", transformer=transformer, depth=depth, policy=policy), chosen
            )
        if strategy in LISTS:
            for dataset in chosen:
                dataset.lists_for(strategy)  # what it cannot do is said before anything is searched
            return query, _Search(replace(workflow, strategy=strategy), chosen)
        if strategy not in STRATEGIES.names():
            raise UnknownNameError("strategy", strategy, ("auto", *LISTS, *STRATEGIES.names()))
        llm = self.llm
        if isinstance(llm, Mapping):
            llm = llm.get(strategy) or llm.get("general")
        made = STRATEGIES.create(strategy, *chosen, llm=llm)
        if type(made).search is not BaseRetrievalStrategy.search:  # it does everything itself
            own_order = None if rerank is None else workflow.reranker  # its order is what it was chosen for
            return query, _Search(replace(workflow, strategy="auto", reranker=own_order), [made], strategy, made.budget)
        return query, _Search(made.applied_to(workflow), made.searched, strategy, made.budget)

    def _staged(
        self,
        strategy: str,
        datasets: Sequence[Dataset],
        rerank: bool | BaseRefiner | None,
        refuse: bool | BaseRefiner | None,
    ) -> RetrievalWorkflow:
        workflow = self.workflow
        reranker = rerank if isinstance(rerank, BaseRefiner) else workflow.reranker
        if rerank is False or (rerank is None and reranker is None and strategy in METHODS):
            reranker = None
        elif reranker is None:
            reranker = CalibratedReranker(spread=lambda: shared_spread(datasets))
        refiners = list(workflow.refiners)
        if refuse is False or isinstance(refuse, BaseRefiner):
            refiners = [one for one in refiners if one.stage != "refuse"]
        if isinstance(refuse, BaseRefiner):
            refiners.insert(0, refuse)
        elif refuse is not False and not any(one.stage == "refuse" for one in refiners):
            refiners.insert(0, Refuser(embedder={dataset.name: dataset.stores.embedder for dataset in datasets}))
        return replace(workflow, reranker=reranker, refiners=refiners)

    def keep(self, policy: Policy | None) -> None:
        """Decide by this policy from now on, also when the workspace is opened again; None: by the measured one."""
        from pointsman.store.local.files import replacing

        if policy is None:
            (self.path / POLICY).unlink(missing_ok=True)
        else:
            _write_manifest(self.path)
            with replacing(self.path / POLICY) as file:
                file.write(policy.to_json().encode())
        self.workflow = replace(self.workflow, policy=policy or measured())

    def close(self) -> None:
        """Close every dataset."""
        for dataset in self._datasets.values():
            dataset.close()

    def _loaded_embedder(self) -> Embedder:
        if self._embedder is None:
            from pointsman.models import default_embedder

            return default_embedder()
        return self._embedder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self.datasets())


@dataclass(frozen=True, slots=True)
class Routing:
    """Three decisions about a query.

    Attributes:
        query: what would be asked.
        heuristic: by its look alone: ``"bm25"``, ``"dense"`` or ``"hybrid"`` (H1, H2).
        plan: what a search would do; None where there is no workspace.
        decision: the datasets whose content bears on it; None where there are none.
    """

    query: str
    heuristic: RouteChoice
    plan: Plan | None = None
    decision: RouteDecision | None = None


@dataclass(frozen=True, slots=True)
class _Search:
    """How one search is done: by which stages, over what, and under which name if it has one of its own."""

    workflow: RetrievalWorkflow
    sources: Sequence[Any]
    strategy: str | None = None
    budget: Budget | None = None

    def spending(self) -> AbstractContextManager[object]:
        """Limits what the search may ask of a language model."""
        return nullcontext() if self.budget is None else spending(self.budget)

    def named(self, context: RetrievalContext) -> RetrievalContext:
        """The answer, with the strategy's name in its plan."""
        if self.strategy is None:
            return context
        return replace(context, plan=replace(context.plan, strategy=self.strategy))


def open_workspace(
    path: str | Path,
    *,
    embedder: Embedder | None = None,
    workflow: RetrievalWorkflow | None = None,
    llm: LLM | Mapping[str, LLM] | None = None,
) -> Workspace:
    """`pointsman.open`: the workspace at this path, made on the first write."""
    return Workspace(path, embedder=embedder, workflow=workflow, llm=llm)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a file of an index that was just replaced
        return 0


def _check_folder(path: Path) -> None:
    manifest = path / _MANIFEST
    if not manifest.exists():
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / "datasets").exists())):
            raise InputError(f"{path} is not a workspace and not an empty folder; name another path")
        return
    try:
        version = json.loads(manifest.read_text("utf-8"))["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStoreError(f"{manifest} cannot be read ({error}); restore it from a backup") from error
    if version != FORMAT:
        raise FormatVersionError(
            f"workspace {path} is in format {version!r}, this version of pointsman knows format {FORMAT}; "
            "open it with the version that wrote it"
        )


def _write_manifest(path: Path) -> None:
    from pointsman.store.local.files import replacing

    if not (path / _MANIFEST).exists():
        path.mkdir(parents=True, exist_ok=True)
        with replacing(path / _MANIFEST) as file:
            file.write(json.dumps({"format": FORMAT}).encode())
