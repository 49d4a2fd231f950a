"""A folder of datasets, and one search over all of them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from pointsman._twins import in_thread
from pointsman.dataset import Dataset, check_name
from pointsman.engine import Engine, Stages
from pointsman.errors import CorruptStoreError, FormatVersionError, InputError, UnknownNameError, UnmetNeedError
from pointsman.models.base import as_embedder
from pointsman.models.queries import QueryVectors
from pointsman.request import SearchRequest, WorkspaceOptions
from pointsman.retrieval.policy import POLICY, Policy, measured, stored
from pointsman.retrieval.router import ContentRouter
from pointsman.selector.heuristic import router_select
from pointsman.settings import Settings
from pointsman.types import Plan, Query, RetrievalContext
from pointsman.workflow import RetrievalWorkflow, several

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pointsman.protocols import LLM, Embedder
    from pointsman.retrieval.recommend import Recommendation
    from pointsman.retrieval.router import RouteDecision
    from pointsman.retrieval.source import IndexingTechnique
    from pointsman.selector.heuristic import RouteChoice

FORMAT = 1
_MANIFEST = "workspace.json"


class Workspace:
    """Datasets on disk under one folder.

    Args:
        path: the folder; made, with what it needs, on the first write.
        embedder: for every dataset; the default embedder unless given.
        workflow: stages of your own: router, reranker, further refiners, time limit. Unless it has its own, searches
            refuse by the default calibration, and decide by the policy that was fitted to the workspace, or the
            measured one.
        llm: for the strategies that need a language model; one for all of them, or by the strategy's name, and
            ``"general"`` for those that are not named.
        settings: what holds where a search says nothing; the defaults unless given. Nothing is read from environment
            or files here: `Settings.load` does that.

    Raises:
        FormatVersionError: a newer Pointsman wrote it.
        InputError: there is something else at that path.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        embedder: Embedder | None = None,
        workflow: Stages | None = None,
        llm: LLM | Mapping[str, LLM] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.path = Path(path)
        self.settings = settings or Settings()
        policy = stored(self.path) or measured()
        self.workflow: Stages = workflow or RetrievalWorkflow(policy=policy, timeout=self.settings.timeout)
        self.llm = llm
        self._engine = Engine(self.settings, self.workflow, llm)
        self._embedder = None if embedder is None else as_embedder(embedder)
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
        """The dataset of this name; one that does not exist yet is made by the first thing written to it.

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
            if dataset is not None and about is None and dataset.opened:
                self._datasets.pop(name).close()  # another process has dropped it
                dataset = None
            if dataset is None:
                text = (about or {}).get("description", "") if about or description is None else description
                technique = known or indexing_technique or "hybrid"
                dataset = Dataset(
                    name,
                    text,
                    technique,
                    path=directory,
                    embedder=self._embedder,
                    bm25_k1=self.settings.bm25_k1,
                    bm25_b=self.settings.bm25_b,
                    query_vectors=self._query_vectors,
                    engine=lambda: self.engine,
                    on_make=self.make,
                )
                self._datasets[name] = dataset
            elif about is not None:
                dataset.follow(about)
            elif indexing_technique is not None:
                dataset.indexing_technique = indexing_technique  # nothing was written yet
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
        from pointsman.store.local.collection import drop_collection

        check_name(name)
        with self._opening:
            dataset = self._datasets.pop(name, None)
            if dataset is not None:
                dataset.close()
            if not drop_collection(self.path / "datasets" / name):
                raise UnknownNameError("dataset", name, tuple(self.names()))

    def status(self, name: str) -> dict[str, Any]:
        """What a dataset holds and how it is kept: documents, embedder, bytes on disk, and whether its index is behind.

        Raises:
            UnknownNameError: there is none of this name.
        """
        dataset = self.dataset(name, create=False)
        info = dataset.store.info
        statistics = dataset.store.statistics()
        files = (path for path in (self.path / "datasets" / name).rglob("*") if path.is_file())
        return {
            "name": name,
            "description": dataset.description,
            "indexing_technique": dataset.indexing_technique,
            "documents": len(dataset),
            "embedder": info.embedder,
            "sequence": statistics.sequence,
            "keyword_index_sequence": getattr(dataset.store, "indexed", statistics.sequence),
            "bytes": sum(map(_size, files)),
        }

    def search(self, query: str | Query, k: int = 5, **options: Unpack[WorkspaceOptions]) -> RetrievalContext:
        """Search datasets and answer with the best hits of all.

        Args:
            query: what is asked.
            k: how many hits.
            options: see `pointsman.request.WorkspaceOptions`: ``datasets``, ``strategy``, ``filters``, ``rerank``,
                ``refuse``, ``effort``, ``timeout``.

        Raises:
            InputError: any of these cannot be used.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        request = SearchRequest.of(query, k, options)
        return self.engine.search(request, self._sources(request))

    async def asearch(self, query: str | Query, k: int = 5, **options: Unpack[WorkspaceOptions]) -> RetrievalContext:
        """The same, awaited."""
        request = SearchRequest.of(query, k, options)
        sources = await in_thread(self._sources, request)  # opening a dataset for the first time reads files
        return await self.engine.asearch(request, sources)

    def search_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[WorkspaceOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions, one context each in their order, in common batches.

        Options are those of `search`, and hold for every question.
        """
        request = several(queries, k, options)
        return self.engine.search_many(request, self._sources(request))

    async def asearch_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[WorkspaceOptions]
    ) -> list[RetrievalContext]:
        """The same, awaited."""
        request = several(queries, k, options)
        sources = await in_thread(self._sources, request)
        return await self.engine.asearch_many(request, sources)

    def route(self, query: str | Query, datasets: Sequence[Dataset] | None = None, strategy: str = "auto") -> Routing:
        """How and where a query would be looked for, and why, before anything is searched.

        Args:
            query: what would be asked.
            datasets: those to choose from; all unless given.
            strategy: as of a search: what it would be asked to do.
        """
        asked = Query.of(query)
        choices = self.datasets() if datasets is None else list(datasets)
        decision = self._router.decide(asked, choices) if choices else None
        return Routing(asked.text, router_select(asked.text), self.plan(choices, strategy, asked), decision)

    async def aroute(
        self, query: str | Query, datasets: Sequence[Dataset] | None = None, strategy: str = "auto"
    ) -> Routing:
        """`route`, awaited."""
        return await in_thread(self.route, query, datasets, strategy)

    @cached_property
    def _router(self) -> ContentRouter:
        return ContentRouter()  # keeps a sketch of each dataset

    def plan(self, datasets: Sequence[Dataset], strategy: str = "auto", query: str | Query = "") -> Plan:
        """What a search of these datasets would do, and why."""
        request = SearchRequest.of(query, options={"strategy": strategy})
        recipe = self.engine.resolve(request, list(datasets))
        plan = recipe.plan(list(recipe.sources))
        return replace(plan, strategy=recipe.strategy or plan.strategy, datasets=tuple(one.name for one in datasets))

    def recommend(self, query: str | Query, datasets: Sequence[str] | None = None) -> Recommendation:
        """What a question asks for by its look, among what can be used in these datasets (I5, I8)."""
        return self.engine.recommend(query, [self.dataset(name, create=False) for name in datasets or self.names()])

    def _sources(self, request: SearchRequest) -> list[Dataset]:
        """The datasets that a request names; all unless it names some."""
        names = self.names() if request.datasets is None else request.datasets
        return [self.dataset(name, create=False) for name in names]

    @property
    def engine(self) -> Engine:
        """How searches are put together here."""
        workflow, settings, llm = self.workflow, self.settings, self.llm
        engine = self._engine
        if engine.stages is not workflow or engine.settings is not settings or engine.models is not llm:
            engine = self._engine = Engine(settings, workflow, llm)
        return engine

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


def open_workspace(
    path: str | Path,
    *,
    embedder: Embedder | None = None,
    workflow: Stages | None = None,
    llm: LLM | Mapping[str, LLM] | None = None,
    settings: Settings | None = None,
) -> Workspace:
    """`pointsman.open`: the workspace at this path, made on the first write."""
    return Workspace(path, embedder=embedder, workflow=workflow, llm=llm, settings=settings)


open = open_workspace  # noqa: A001  (`pointsman.open` reads well)


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
