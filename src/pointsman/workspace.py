"""A folder of datasets, and one search over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from pointsman._twins import in_thread
from pointsman.dataset import Dataset, IndexingTechnique, check_name
from pointsman.errors import CorruptStoreError, FormatVersionError, InputError, UnknownNameError
from pointsman.filters import parse_filter
from pointsman.retrieval.calibration import CosineSpread
from pointsman.retrieval.pool import DEPTH, LISTS, Pool, merge
from pointsman.retrieval.retrievers import checked, provenance
from pointsman.types import Hit, Plan, Query, RetrievalContext, Span, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.filters import Filter
    from pointsman.protocols import Embedder

FORMAT = 1
_MANIFEST = "workspace.json"


class Workspace:
    """Datasets on disk under one folder.

    Args:
        path: the folder; made, with what it needs, on the first write.
        embedder: for every dataset; the default embedder unless given.

    Raises:
        FormatVersionError: a newer Pointsman wrote it.
        InputError: there is something else at that path.
    """

    def __init__(self, path: str | Path, *, embedder: Embedder | None = None) -> None:
        self.path = Path(path)
        self._embedder = embedder
        self._datasets: dict[str, Dataset] = {}
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
        from pointsman.store.collection import read_manifest

        check_name(name)
        directory = self.path / "datasets" / name
        about = read_manifest(directory) if directory.exists() else None
        if about is None and not create:
            raise UnknownNameError("dataset", name, tuple(self.names()))
        known = (about or {}).get("indexing_technique")
        if known and indexing_technique and known != indexing_technique:
            raise InputError(
                f"dataset {name!r} was made for {known!r} search; delete it to index it for {indexing_technique!r}"
            )
        dataset = self._datasets.get(name)
        if dataset is None:
            text = (about or {}).get("description", "") if about or description is None else description
            technique = known or indexing_technique or "hybrid"
            dataset = Dataset(name, text, technique, path=directory, embedder=self._embedder)
            self._datasets[name] = dataset
        if about is None:
            _write_manifest(self.path)
            _ = dataset.stores  # makes it on disk
        if description is not None and description != dataset.description:
            dataset.describe(description)
        return dataset

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
        del self._datasets[name]

    def search(
        self,
        query: str | Query,
        k: int = 5,
        *,
        datasets: Sequence[str] | None = None,
        strategy: str = "auto",
        filters: str | Mapping[str, Any] | Filter | None = None,
    ) -> RetrievalContext:
        """Search datasets and answer with the best hits of all.

        Args:
            query: what is asked.
            k: how many hits.
            datasets: names; all of them unless given.
            strategy: ``"auto"`` (today: hybrid wherever a dataset keeps both indexes), ``"bm25"``, ``"vector"``,
                ``"hybrid"``, or a fusion method's name such as ``"rrf"``.
            filters: an expression such as ``year >= 2020 and lang = "ru"``, a mapping, or a filter.

        Raises:
            InputError: any of these cannot be used.
        """
        query = Query.of(query, parse_filter(filters) if filters else None)
        return _Search(self, query, checked(k), strategy).run(datasets)

    def plan(self, datasets: Sequence[Dataset], strategy: str = "auto") -> Plan:
        """What a search of these datasets would do, and why."""
        names = tuple(dataset.name for dataset in datasets)
        if strategy != "auto":
            return Plan(names, strategy, "asked for")
        keeps = [dataset.lists_for("auto") for dataset in datasets]
        if any(words for words, _ in keeps) and any(near for _, near in keeps):
            return Plan(names, "hybrid", "keyword and vector evidence together, by the calibrated sum")
        if any(near for _, near in keeps):
            return Plan(names, "vector", "the datasets keep vectors only")
        return Plan(names, "bm25", "the datasets keep words only" if keeps else "there is no dataset yet")

    async def asearch(self, query: str | Query, k: int = 5, **options: Any) -> RetrievalContext:
        """`search`, awaited: it runs in a worker thread."""
        return await in_thread(self.search, query, k, **options)

    def close(self) -> None:
        """Close every dataset."""
        for dataset in self._datasets.values():
            dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self.datasets())


class _Search:
    """One search on its way: plan, gather from each dataset, rank together, fetch."""

    def __init__(self, workspace: Workspace, query: Query, k: int, strategy: str) -> None:
        if strategy != "auto" and strategy not in LISTS:
            raise UnknownNameError("strategy", strategy, ("auto", *LISTS))
        self.workspace, self.query, self.k, self.strategy = workspace, query, k, strategy
        self.spans: list[Span] = []

    def run(self, names: Sequence[str] | None) -> RetrievalContext:
        datasets = self.chosen(names)
        plan = self.workspace.plan(datasets, self.strategy)
        pool = merge({dataset.name: self.gather(dataset) for dataset in datasets})
        hits = self.rank(pool, plan, {dataset.name: dataset for dataset in datasets})
        return RetrievalContext(self.query, tuple(hits), plan, Trace(tuple(self.spans)))

    def chosen(self, names: Sequence[str] | None) -> list[Dataset]:
        if isinstance(names, str):
            names = [names]
        wanted = self.workspace.names() if names is None else list(dict.fromkeys(names))
        return [self.workspace.dataset(name, create=False) for name in wanted]

    def gather(self, dataset: Dataset) -> Pool[int]:
        began = perf_counter()
        pool = dataset.candidates(self.query, self.strategy, max(DEPTH, self.k))
        detail = f"{dataset.name}: {len(pool.keyword)} by words, {len(pool.vector)} by vectors"
        self.spans.append(Span("retrieve", detail, _since(began), len(pool.bm25.keys() | pool.cosine.keys())))
        return pool

    def rank(self, pool: Pool[tuple[str, int]], plan: Plan, datasets: Mapping[str, Dataset]) -> list[Hit]:
        began = perf_counter()
        embedding = [dataset for dataset in datasets.values() if dataset.indexing_technique != "keyword"]
        spread = CosineSpread.shared([dataset.cosine_spread for dataset in embedding])
        ranking = pool.ranked(plan.strategy, spread)[: self.k]
        self.spans.append(Span("fuse", plan.strategy, _since(began), len(ranking)))
        began = perf_counter()
        documents = {}
        for name, dataset in datasets.items():
            keys = [key for owner, key in (item for item, _ in ranking) if owner == name]
            found = dataset.fetch(keys) if keys else []
            documents.update({(name, key): document for key, document in zip(keys, found, strict=True)})
        ways = provenance(pool, [key for key, _ in ranking])
        hits = []
        for key, score in ranking:
            document = documents[key]
            if document is not None:  # else deleted this very moment
                hits.append(Hit(document, score, key[0], ways[key]))
        self.spans.append(Span("fetch", "documents", _since(began), len(hits)))
        return hits


def open_workspace(path: str | Path, *, embedder: Embedder | None = None) -> Workspace:
    """`pointsman.open`: the workspace at this path, made on the first write."""
    return Workspace(path, embedder=embedder)


def _since(began: float) -> float:
    return (perf_counter() - began) * 1000


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
    from pointsman.store.files import replacing

    if not (path / _MANIFEST).exists():
        path.mkdir(parents=True, exist_ok=True)
        with replacing(path / _MANIFEST) as file:
            file.write(json.dumps({"format": FORMAT}).encode())
