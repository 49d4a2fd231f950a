"""What is fitted to a workspace, and the engine, models and settings that its searches use."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pointsman.embedders.base_embedder import image_embedder_of
from pointsman.embedders.named_embedders import as_embedder, embedder_for, image_embedder_for
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.judge.kept_calibrations import (
    Calibration,
    Reranking,
    change_calibrations,
    keep_former,
    stored_calibrations,
)
from pointsman.retrieval.plan.policy import POLICY, Policy, measured, read_policy
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.selector.route_counts import RouteCounts
from pointsman.store.backend import Backend
from pointsman.store.backend_urls import open_backend
from pointsman.tools import byte_cache
from pointsman.tools.audit_log import AuditLog
from pointsman.tools.errors import InputError, StoreError, UnmetNeedError
from pointsman.tools.sync_and_async import async_twin
from pointsman.values.settings import Settings
from pointsman.workspace.calibration.unasked_calibration import UnaskedCalibrations, is_by_hand
from pointsman.workspace.dataset.dataset_lifecycle import no_image_embedder
from pointsman.workspace.open_datasets import OpenDatasets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pointsman.retrieval.decisions.user_stages import Stages
    from pointsman.store.backend import DatasetRecord
    from pointsman.values.protocols import LLM, Embedder
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset
    from pointsman.workspace.replaying import Replays


class FittedWorkspace:
    """A workspace's place, engine, models, policy and calibrations, without its datasets; see `pointsman.Workspace`."""

    def __init__(
        self,
        path: str | Path | Backend,
        *,
        embedder: Embedder | str | None = None,
        image_embedder: Embedder | str | None = None,
        workflow: Stages | None = None,
        llm: LLM | Mapping[str, LLM] | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise InputError(f"settings are Settings(name=value, …) or Settings.load(), not {settings!r:.80}")
        own_backend = path if isinstance(path, Backend) else None
        self._arguments: dict[str, Any] = {
            "backend": own_backend,
            "embedder": embedder,
            "image_embedder": image_embedder,
        }
        self._arguments |= {"workflow": workflow, "llm": llm, "settings": settings}
        self._backend, self._is_closed = open_backend(path), False
        self.settings = settings or Settings()
        if isinstance(image_embedder, str):
            self.settings = self.settings.updated(image_embedder=image_embedder)
        if settings is not None:
            byte_cache.set_limit(settings.cache_megabytes << 20)
        self.audit_log = AuditLog(self.backend, lambda: self.settings.audit_log)
        policy, calibrations = self.stored_policy() or measured(), self.stored_calibrations()
        self.workflow: Stages = workflow or RetrievalWorkflow(
            policy=policy, timeout=self.settings.timeout, fitted=calibrations
        )
        if settings is not None:
            from pointsman.llm.chosen_models import SettingsModels

            llm = SettingsModels(settings) if llm is None else llm
        self.llm = llm
        self._calibrations = UnaskedCalibrations(self._keep_unasked)
        key = self.workflow, self.settings, llm, self._calibrations.states
        self._engine = key, self._new_engine(self.workflow)
        self._embedder = embedder_for(self.settings, embedder)
        self._image_embedder = None if isinstance(image_embedder, str | None) else as_embedder(image_embedder)
        self._query_vectors = QueryVectors(self._loaded_embedder)
        self._image_query_vectors = QueryVectors(self._loaded_image_embedder)
        self._datasets: dict[str, Dataset] = {}
        self._open_datasets = OpenDatasets()
        self._opening = threading.RLock()
        self._access: tuple[float, bool] | None = None
        self._records: tuple[float, dict[str, DatasetRecord]] | None = None
        self._attachments: tuple[float, dict[str, str]] | None = None
        self._foreign: dict[str, tuple[str, Dataset]] = {}
        self._replays: Replays | None = None
        self.route_counts = RouteCounts()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle opens it again: at its place, with its settings, and with keys and passwords from there.

        Raises:
            InputError: it is closed.
            TypeError: it was opened with objects, which may hold keys or connections.
        """
        where = self.backend.url if self.backend.path is None else str(self.backend.path.resolve())
        arguments = {name: argument for name, argument in self._arguments.items() if argument is not None}
        objects = [name for name, argument in arguments.items() if not isinstance(argument, str | Settings)]
        if objects:
            raise TypeError(
                f"the workspace at {self.place} cannot be pickled: it was opened with objects ({', '.join(objects)}), "
                "which may hold keys or connections; name the embedder, leave the rest to settings, or open the "
                "workspace where it is used"
            )
        return _opened, (type(self), where, arguments)

    @property
    def place(self) -> str:
        """Return where the workspace is: the path of the folder, or a URL without a password."""
        return self._backend.url

    @property
    def backend(self) -> Backend:
        """Where it is stored.

        Raises:
            InputError: the workspace is closed.
        """
        if self._is_closed:
            raise InputError(f"the workspace at {self.place} is closed; open it again with pointsman.open")
        return self._backend

    @property
    def path(self) -> Path:
        """Return the folder.

        Raises:
            UnmetNeedError: the workspace is in a server.
        """
        if self._backend.path is not None:
            return self._backend.path
        raise UnmetNeedError(f"the workspace at {self._backend.url} is not in a folder, and this works on folders only")

    @property
    def engine(self) -> Engine:
        """Return the engine that plans this workspace's searches."""
        workflow, settings, llm, lacking = key = self.workflow, self.settings, self.llm, self._calibrations.states
        (old_workflow, old_settings, old_llm, old_lacking), engine = self._engine
        is_same = workflow is old_workflow and settings is old_settings and llm is old_llm and lacking is old_lacking
        if not is_same:
            if lacking:  # what is stored says more, unless it is empty too
                stored = {name: one for name, one in workflow.fitted.items() if name not in lacking or not one.is_empty}
                workflow = replace(workflow, fitted={**lacking, **stored})
            engine = self._new_engine(workflow)
            self._engine = key, engine
        return engine

    def _new_engine(self, workflow: Stages) -> Engine:
        audit = self.audit_log if self.settings.audit_log else None
        return Engine(self.settings, workflow, self.llm, audit=audit)

    def _engine_of(self, name: str) -> Engine:
        """Return the engine for searches of one dataset, which say the same as those of the workspace."""
        if (dataset := self._datasets.get(name)) is not None:
            self._calibrate_if_needed(dataset)
        return self.engine

    def keep(self, policy: Policy | None) -> None:
        """Use this policy from now on, also after the workspace is reopened; None restores the measured one.

        Raises:
            InputError: it is not a policy.
        """
        if not isinstance(policy, Policy | None):
            raise InputError(f"a workspace keeps a Policy or None, not {policy!r:.80}")
        self.backend.put_record(POLICY, "", None if policy is None else policy.to_json())
        self.workflow = replace(self.workflow, policy=policy or measured())

    akeep = async_twin(keep)

    def stored_policy(self) -> Policy | None:
        """Return the policy fitted to the workspace; None if there is none.

        Raises:
            InputError: the stored record is not a policy.
        """
        record = self.backend.record(POLICY)
        return None if record is None else read_policy(record.value, f"{self.backend.url}: the policy")

    def keep_calibration(self, name: str, calibration: Calibration | None) -> None:
        """Use this calibration for the hits of a dataset from now on, also after the workspace is reopened.

        Args:
            name: name of the dataset.
            calibration: the result of `pointsman.workspace.calibration.dataset_calibration.calibrate`; None restores
                the shipped one.

        Raises:
            InputError: it is not a calibration.
            ConflictError: others keep changing the workspace's calibrations.
        """
        if not isinstance(calibration, Calibration | None):
            raise InputError(f"a workspace keeps a Calibration or None, not {calibration!r:.80}")
        self._change_calibration(name, lambda _: calibration)
        self._calibrations.forget(name)

    def keep_reranking(self, name: str, reranking: Reranking) -> None:
        """Let ``auto`` decide by this whether to rerank hits of a dataset; other calibrations of it are kept.

        Args:
            name: name of the dataset.
            reranking: the result of `pointsman.evaluation.tune`.

        Raises:
            InputError: it is not a `Reranking`.
            ConflictError: as in `keep_calibration`.
        """
        if not isinstance(reranking, Reranking):
            raise InputError(f"a workspace keeps a Reranking, not {reranking!r:.80}")
        self._change_calibration(name, lambda former: replace(former or Calibration(""), reranking=reranking))

    def _change_calibration(self, name: str, change: Callable[[Calibration | None], Calibration | None]) -> None:
        def change_all(calibrations: dict[str, Calibration]) -> None:
            former = calibrations.pop(name, None)
            calibration = change(former)
            if former is not None and former != calibration:  # kept before it is replaced: nothing may come between
                dataset = self._datasets.get(name)
                keep_former(self.backend, name, former, 0 if dataset is None else dataset.kept_days)
            if calibration is not None:
                calibrations[name] = calibration

        self.workflow = replace(self.workflow, fitted=change_calibrations(self.backend, change_all))

    def stored_calibrations(self) -> Mapping[str, Calibration]:
        """Return the calibrations fitted to datasets of the workspace, by name.

        Raises:
            InputError: the stored record is invalid.
        """
        return stored_calibrations(self.backend)

    def _calibrate_if_needed(self, dataset: StoredDataset, *, is_written: bool = False) -> None:
        """Calibrate a dataset in the background if its embedder has no built-in calibration."""
        if not self.settings.calibrate_automatically or (dataset.name in self._calibrations.known and not is_written):
            return
        if dataset.holds_images:  # no question can be taken out of a picture
            return
        try:
            self._calibrations.look_at(dataset, self.workflow.fitted.get(dataset.name), is_written=is_written)
        except StoreError:  # whoever searches it meets the error again
            return
        except InputError:
            if not dataset.is_closed:  # meanwhile, by another thread; what was written is stored
                raise

    @property
    def being_calibrated(self) -> list[str]:
        """The datasets of which calibrations are being made in the background."""
        return self._calibrations.names

    def _keep_unasked(self, name: str, calibration: Calibration) -> None:
        """Store a calibration that was made from documents, unless labels have given one meanwhile."""
        self._change_calibration(name, lambda former: former if is_by_hand(former) else calibration)
        self._calibrations.forget(name)

    def wait_for_calibrations(self) -> None:
        """Wait until the calibrations are stored that are being made in the background."""
        self._calibrations.wait()

    await_for_calibrations = async_twin(wait_for_calibrations)

    @property
    def embedder(self) -> Embedder:
        """The embedder of the datasets; the default embedder, loaded on first use, unless one is configured."""
        return self._loaded_embedder()

    def _loaded_embedder(self) -> Embedder:
        if self._embedder is None:
            from pointsman.embedders import default_embedder

            return default_embedder()
        return self._embedder

    def _loaded_image_embedder(self, name: str = "pictures") -> Embedder:
        """Return the embedder of pictures, loading it on first use.

        Raises:
            UnmetNeedError: none is configured.
        """
        if self._image_embedder is None:
            self._image_embedder = image_embedder_for(self.settings) or self._embedder
        if image_embedder_of(self._image_embedder) is None:
            raise no_image_embedder(name)
        assert self._image_embedder is not None
        return self._image_embedder


def _opened(kind: type[FittedWorkspace], where: str, arguments: Mapping[str, Any]) -> FittedWorkspace:
    """Open a pickled workspace."""
    return kind(where, **arguments)
