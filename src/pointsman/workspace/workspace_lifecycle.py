"""The datasets of a workspace: made, opened, attached and closed."""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.judge.background import DRAWN, LIKELY
from pointsman.retrieval.run.reading import are_opened_in_turn
from pointsman.retrieval.run.source import TECHNIQUES, check_all_searchable
from pointsman.store.backend import NEW, DatasetRecord
from pointsman.store.external.attachment import ATTACHED, Attachment, UnusableStore
from pointsman.store.store_values import Capability
from pointsman.tools.errors import (
    CorruptStoreError,
    InputError,
    PointsmanError,
    StoreError,
    StoreUnavailableError,
    UnknownNameError,
    UnmetNeedError,
)
from pointsman.tools.sync_and_async import async_twin
from pointsman.tools.system.file_descriptors import FEWEST_OPEN
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.values.views import ACCESS_RECORD, View
from pointsman.workspace.dataset import ACCESS_IS_OFF, Dataset, check_name
from pointsman.workspace.fitted_workspace import FittedWorkspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pointsman.retrieval.request import SearchRequest
    from pointsman.retrieval.run.source import IndexingTechnique
    from pointsman.store.base_store import Store
    from pointsman.values.protocols import Embedder

log = logging.getLogger(__name__)


_FRESH: Final = 0.5
"""Seconds for which the list of datasets in a server is reused; changes by others are seen after that."""


class StoredWorkspace(FittedWorkspace, Lifecycle):
    """Datasets in one place, without the searches; see `pointsman.Workspace`."""

    def dataset(
        self,
        name: str,
        *,
        description: str | None = None,
        indexing_technique: IndexingTechnique | None = None,
        images: bool | None = None,
        versions: str | None = None,
        create: bool = True,
    ) -> Dataset:
        """Return the dataset of this name; if it does not exist, its first write creates it.

        Args:
            name: see `Dataset`.
            description: set, or changed if it differs.
            indexing_technique: of a new dataset, by default ``"hybrid"``; an existing one keeps its own.
            images: whether a new dataset is for pictures, which ``image_embedder`` of the settings embeds by what they
                show; an existing one keeps its own.
            versions: keep what is replaced or deleted for a time such as ``"90 days"``, or ``"off"``; set, or changed
                if it differs. See `replay`.
            create: with False, an unknown name is an error.

        Raises:
            UnknownNameError: there is no such dataset and ``create`` is False.
            InputError: the name is invalid, or the dataset was created with another ``indexing_technique``.
            UnmetNeedError: it is for pictures, and nothing is configured that embeds them.
        """
        if name not in self._datasets:
            name = check_name(name)
        with self._opening:
            attachment = self._attachment(name)
            if attachment is not None:
                return self._with_changes(self._attached_dataset(name, attachment), description, versions)
            record = self._record(name)
            if record is None and not create:
                raise UnknownNameError("dataset", name, tuple(self.names()))
            if record is not None and indexing_technique not in {None, record.indexing_technique}:
                raise UnmetNeedError(
                    f"dataset {name!r} was made for {record.indexing_technique!r} search; delete it to index it for "
                    f"{indexing_technique!r}"
                )
            holds_images = self._holds_images(name, record, images)
            dataset = self._dataset_in_use(name)
            if dataset is not None and record is None and dataset.opened:
                self._datasets.pop(name).release()  # another process has deleted it
                dataset = None
            if dataset is None:
                technique = (indexing_technique or "hybrid") if record is None else _technique(record)
                known_description = (description or "") if record is None else record.description
                dataset = self._datasets[name] = self._new_dataset(name, known_description, technique, holds_images)
            elif record is not None:
                if record is not dataset.record:
                    dataset.follow(record)
            elif indexing_technique is not None:
                dataset.indexing_technique = indexing_technique  # nothing has been written yet
        dataset.used = monotonic()
        return self._with_changes(dataset, description, versions)

    adataset = async_twin(dataset)

    def _dataset_in_use(self, name: str) -> Dataset | None:
        """Return the dataset of this name if it has been asked for, and nobody has closed it since."""
        dataset = self._datasets.get(name)
        return None if dataset is None or dataset.is_closed else dataset

    def _with_changes(self, dataset: Dataset, description: str | None, versions: str | None) -> Dataset:
        """Return a dataset of this workspace after changing what is given and differs."""
        dataset.workspace = self
        if description is not None and description != dataset.description:
            dataset.describe(description)
            self._forget_records()
        if versions is not None:
            dataset.keep_versions(versions)
        return dataset

    def _holds_images(self, name: str, record: DatasetRecord | None, images: bool | None) -> bool:
        """Return whether a dataset is for pictures; a new one is if ``images`` says so.

        Raises:
            UnmetNeedError: an existing dataset is for the other kind, or nothing embeds the pictures of a new one.
        """
        if record is None:
            if images:
                self._loaded_image_embedder(name)
            return bool(images)
        holds_images = bool(record.settings.get("images"))
        if images is not None and images != holds_images:
            kind = "pictures" if holds_images else "texts"
            raise UnmetNeedError(f"dataset {name!r} was made for {kind}; use another name, or delete it")
        return holds_images

    def _new_dataset(self, name: str, description: str, technique: IndexingTechnique, holds_images: bool) -> Dataset:
        """Return a dataset that has not been opened in this process."""
        return Dataset(
            name,
            description,
            technique,
            backend=self.backend,
            embedder=None if holds_images else self._embedder,
            images=holds_images,
            load_embedder=partial(self._loaded_image_embedder, name) if holds_images else None,
            bm25_k1=self.settings.bm25_k1,
            bm25_b=self.settings.bm25_b,
            query_vectors=self._image_query_vectors if holds_images else self._query_vectors,
            engine=partial(self._engine_of, name),
            on_make=self._forget_records,
            on_open=self._open_datasets.opened,
            has_access=lambda: self.access,
            audit_log=self.audit_log,
            on_embed=partial(self._calibrate_if_needed, is_written=True),
        )

    def _record(self, name: str) -> DatasetRecord | None:
        """Return the record of a dataset: the current one in a folder, a recent one in a server."""
        backend = self._backend  # whoever asks has made sure that the workspace is open
        if not backend.is_remote:
            return backend.about(name)
        time = monotonic()
        if self._records is None or time - self._records[0] > _FRESH:
            self._records = time, {record.name: record for record in backend.datasets()}
        return self._records[1].get(name)

    def _forget_records(self) -> None:
        self._records = self._attachments = None

    # ── attached collections ─────────────────────────────────────────────────────────────────────────────────────

    def attach(
        self,
        name: str,
        url: str,
        *,
        table: str,
        id: str,  # noqa: A002  (the field's word)
        text: str,
        vector: str | None = None,
        metadata: Sequence[str] = (),
        embedder: str | None = None,
        description: str = "",
    ) -> Dataset:
        """Search an existing collection beside the datasets.

        It is a table of PostgreSQL, an index of OpenSearch or Meilisearch, a collection of Chroma, or a file of FAISS.

        It is only read. Types and the vectors' distance are read from the database, filters are applied inside it, and
        its lists are fused with others by rank, since its scores have their own scale. It stays in the workspace until
        `detach`. The URL is stored unchanged: keep passwords elsewhere, such as in ``~/.pgpass``.

        Args:
            name: name of the dataset here.
            url: ``postgresql://…``, ``opensearch+https://…``, ``chroma+https://…``, ``meilisearch+https://…`` or
                ``faiss:PATH``.
            table: the table or view, such as ``"sales.orders"``, the index or the collection; for a file of FAISS, the
                file with its documents, one JSON object per line.
            id: the column or field that identifies documents; ``"_id"`` in OpenSearch, ``"id"`` in Chroma.
            text: the column or field with the text; ``"document"`` in Chroma, or a key of its metadata.
            vector: the column (of pgvector) or field with the vectors, ``"embedding"`` in Chroma, the name of an
                embedder in Meilisearch; without it, search is by words only.
            metadata: columns or fields for filters; the keys of a JSON column count as columns. For Chroma and FAISS,
                by default all.
            embedder: the embedder of the vectors, as for `pointsman.embedders.load_embedder`; by default the
                workspace's.
            description: its contents, for routers and people who choose where to search.

        Raises:
            InputError: the name is taken, there is no such table or column, or the dimensions of the vectors differ
                from the embedder's.
            StoreUnavailableError: the server cannot be reached, or a file cannot be read.
            UnmetNeedError: access is on; attached collections do not exist then.
        """
        name = check_name(name)
        if self.access:
            raise UnmetNeedError(
                "access is on, and an attached collection says nothing of who may see its documents, so it would not "
                "exist here; index its documents into a dataset with their access, or switch access off"
            )
        if name in self.names():
            raise InputError(f"there is a dataset {name!r} here already; give the collection another name")
        attachment = Attachment(
            url, table, id, text, vector, tuple(metadata), spec=embedder if vector else None, description=description
        )
        attachment = measured_attachment(attachment, self._embedder_of(attachment) if vector else None)
        self.backend.put_record(ATTACHED, name, attachment.to_json(), NEW)
        self._forget_records()
        return self.dataset(name, create=False)

    aattach = async_twin(attach)

    def detach(self, name: str) -> None:
        """Detach a collection from the workspace; the collection itself stays unchanged.

        Raises:
            UnknownNameError: no attached collection has this name.
        """
        with self._opening:
            if name not in self._attached(fresh=True):
                raise UnknownNameError("attached collection", name, tuple(self._attached()))
            self.backend.put_record(ATTACHED, name, None)
            self._forget_records()
            self._attached()

    adetach = async_twin(detach)

    def _attachment(self, name: str) -> str | None:
        """Return the record of an attached collection; None if there is none.

        Raises:
            UnknownNameError: access is on, and nothing says who may see its documents: it does not exist.
        """
        record = self._attached().get(name)
        if record is not None and self.access:
            raise UnknownNameError("dataset", name, tuple(self.names()))
        return record

    def _attached(self, *, fresh: bool = False) -> Mapping[str, str]:
        """Return the records of the attached collections, as read recently; one may be invalid."""
        with self._opening:
            time = monotonic()
            if fresh or self._attachments is None or time - self._attachments[0] > _FRESH:
                records = self.backend.records(ATTACHED)
                attachments = {name: record.value for name, record in records.items()}
                for name in [name for name, entry in self._foreign.items() if attachments.get(name) != entry[0]]:
                    self._foreign.pop(name)[1].release()
                self._attachments = time, attachments
            return self._attachments[1]

    def _attached_dataset(self, name: str, record: str) -> Dataset:
        """Return an attached collection; one that cannot be used fails only when it is read."""
        with self._opening:
            if name in self._foreign and not self._foreign[name][1].is_closed:
                return self._foreign[name][1]
            try:
                attachment = Attachment.from_json(record, name)
                own_embedder = None if attachment.spec is None else self._embedder_of(attachment)
                store = attachment.open()
            except PointsmanError as error:
                failure = error if isinstance(error, StoreError) else StoreUnavailableError(str(error))
                own_embedder, store = None, UnusableStore(failure)
            dataset = Dataset(
                name,
                store.attachment.description,
                store.technique,
                store=store,
                embedder=self._embedder if own_embedder is None else own_embedder,
                query_vectors=self._query_vectors if own_embedder is None else None,
                engine=lambda: self.engine,
                has_access=lambda: self.access,
                audit_log=self.audit_log,
            )
            if not isinstance(store, UnusableStore):
                self._foreign[name] = record, dataset
            return dataset

    def _embedder_of(self, attachment: Attachment) -> Embedder:
        if attachment.spec is None:
            return self._loaded_embedder()
        from pointsman.embedders import load_embedder

        return load_embedder(attachment.spec)

    def make(self) -> None:
        """Create the empty folder unless it exists."""
        self.backend.make()

    amake = async_twin(make)

    def names(self) -> list[str]:
        """Return the names of all datasets, sorted."""
        attachments = self._attached()
        return sorted({*self.own_names(), *(attachments if attachments and not self.access else ())})

    anames = async_twin(names)

    def own_names(self) -> list[str]:
        """Return the names of the datasets stored in the workspace, sorted; attached collections are not."""
        backend = self.backend
        if not backend.is_remote:
            return backend.names()
        self._record("")
        return sorted(self._records[1] if self._records is not None else ())

    aown_names = async_twin(own_names)

    def datasets(self) -> list[Dataset]:
        """Return all datasets, by name."""
        return existing(partial(self.dataset, create=False), self.names())

    adatasets = async_twin(datasets)

    def drop(self, name: str) -> None:
        """Delete a dataset with all its documents.

        Raises:
            UnknownNameError: there is no such dataset.
            LockedError: another process is writing to it.
        """
        name = check_name(name)
        if self._attachment(name) is not None:
            raise InputError(f"{name!r} is attached and cannot be deleted here; detach it")
        self._calibrations.stop(name)
        with self._opening:
            dataset = self._datasets.pop(name, None)
            if dataset is not None:
                dataset.release()
            self._forget_records()
            self.backend.drop(name)
            self._calibrations.forget(name)
            self.route_counts.forget(name)
            if name in self.stored_calibrations():  # maybe fitted by another process
                self.keep_calibration(name, None)

    adrop = async_twin(drop)

    # ── access ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def access(self) -> bool:
        """Whether access is on: then documents exist only for those whom they allow, and a search says who asks."""
        time = monotonic()
        if self._access is None or time - self._access[0] > _FRESH:
            self._access = time, self.backend.record(ACCESS_RECORD) is not None
        return self._access[1]

    def switch_access(self, *, on: bool) -> None:
        """Switch access on or off, for everyone who opens the workspace.

        While it is on, every search needs ``principals``, documents that allow nobody are seen by nobody, and attached
        collections without columns that say who may see a row do not exist.

        Args:
            on: whether access is on.

        Raises:
            UnmetNeedError: the workspace's stores cannot tell who may see a document.
        """
        if on and not self.backend.has_views:
            raise UnmetNeedError(
                f"the workspace at {self.backend.url} is in a server whose stores cannot tell who may see a document "
                f"(they lack the capability {Capability.VIEWS.value!r}); keep documents with access in a folder or in "
                "PostgreSQL"
            )
        self.backend.put_record(ACCESS_RECORD, "", "on" if on else None)
        self._access = None
        if on and (names := sorted(self._attached(fresh=True))):
            log.warning("while access is on, attached collections do not exist: %s", ", ".join(names))

    aswitch_access = async_twin(switch_access)

    def in_view(self, datasets: Sequence[Dataset], principals: Iterable[str] | View | None) -> list[Dataset]:
        """Return what exists of datasets for someone with these principals; the datasets themselves if access is off.

        Raises:
            InputError: access is on and there are no principals, or it is off and there are some.
        """
        if not self.access:
            if principals is not None:
                raise InputError(ACCESS_IS_OFF)
            return list(datasets)
        if principals is None:
            check_all_searchable(datasets)
            return list(datasets)
        in_turn, view = len(datasets) > FEWEST_OPEN and are_opened_in_turn(datasets), View.of(principals)
        return [dataset.in_view(view, is_closable=in_turn and dataset.is_in_folder) for dataset in datasets]

    ain_view = async_twin(in_view)

    def _sources(self, request: SearchRequest) -> list[Dataset]:
        """Return the datasets that a request names, all if it names none, as far as they exist for whoever asks."""
        datasets = (
            existing(self.source, self.names())
            if request.datasets is None
            else [self.source(name) for name in request.datasets]
        )
        is_in_turn = len(datasets) > FEWEST_OPEN and are_opened_in_turn(datasets)
        for dataset in () if is_in_turn else datasets:  # looking at one opens it
            if dataset.name not in self._calibrations.known and dataset is self._datasets.get(dataset.name):
                self._calibrate_if_needed(dataset)
        if request.principals is None:  # the search itself makes sure that nobody has to say who asks
            return datasets
        return self.in_view(datasets, View.of_request(request.principals))

    def source(self, name: str) -> Dataset:
        """Return a dataset to search beside others; if its manifest is unreadable, only its own part of a search fails.

        Raises:
            UnknownNameError: there is no such dataset.
        """
        try:
            return self.dataset(name, create=False)
        except StoreError:
            if self.backend.is_remote:
                raise  # the whole server is unreachable
            return Dataset(
                name,
                backend=self.backend,
                embedder=self._embedder,
                engine=lambda: self.engine,
                has_access=lambda: self.access,
                audit_log=self.audit_log,
            )

    def close(self) -> None:
        """Close all datasets and the connection to the server; calibrations that are being made are broken off.

        Every further use of the workspace and of its datasets is an `InputError`.
        """
        self._calibrations.stop()
        if self._replays is not None:
            self._replays.close()
        for dataset in (*self._datasets.values(), *(entry for _, entry in self._foreign.values())):
            dataset.close()
        self._is_closed = True
        self._forget_records()
        self._backend.close()

    aclose = async_twin(close)

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self.datasets())


def existing(opened: Callable[[str], Dataset], names: Iterable[str]) -> list[Dataset]:
    """Open those of the datasets that still exist; others may have been dropped since they were listed."""
    datasets = []
    for name in names:
        with suppress(UnknownNameError):
            datasets.append(opened(name))
    return datasets


def _technique(record: DatasetRecord) -> IndexingTechnique:
    """Return a dataset's indexing technique from its record.

    Raises:
        CorruptStoreError: the record has an invalid one.
    """
    for technique in TECHNIQUES:
        if record.indexing_technique == technique:
            return technique
    raise CorruptStoreError(
        f"dataset {record.name!r} is indexed for {record.indexing_technique!r:.40}, which is none of "
        f"{', '.join(TECHNIQUES)}; restore it from a backup"
    )


def measured_attachment(attachment: Attachment, embedder: Embedder | None) -> Attachment:
    """Return what a workspace keeps of a collection: its embedder's name, and the spread of its cosines.

    Args:
        attachment: the collection.
        embedder: of its vectors; None: it is searched by words only.

    Raises:
        InputError: there is no such table or column, or the dimensions of the vectors differ from the embedder's.
        StoreUnavailableError: the server cannot be reached, or a file cannot be read.
    """
    if embedder is not None:
        attachment = replace(attachment, embedder=embedder.name)
    with closing(attachment.open()) as store:
        dimensions = store.info.dimensions
        if embedder is None or dimensions is None:
            return attachment
        if embedder.dimensions != dimensions:
            raise InputError(
                f"the vectors in {attachment.place} have {dimensions} dimensions, those of {embedder.name!r} "
                f"{embedder.dimensions}; name the embedder that made them"
            )
        if not store.info.can(Capability.VECTORS):
            return attachment
        return replace(attachment, spread=_spread_of(store))


def _spread_of(store: Store) -> tuple[float, float] | None:
    """Return mean and deviation of a collection's cosines; its own vectors stand in for questions."""
    sample = store.vectors(sample=DRAWN)
    if len(sample) < 2:
        return None
    spread = CosineSpread.measured(sample[:: max(1, len(sample) // LIKELY)][:LIKELY], sample)
    return spread.mean, spread.sigma
