"""Calibrations that nobody has to ask for: of datasets whose embedder has no built-in one, made from their documents.

A workspace looks at a dataset when documents have been embedded, and when it is first searched. If nothing fits its
vectors, questions are made from the documents in a thread (`pointsman.workspace.calibration.dataset_calibration`), and
the fit is stored like
one of ``pointsman calibrate``; it is made again when the number of documents has doubled, until there are as many as
questions are made from. Closing the workspace stops the work; the next process that uses the dataset takes it up again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.judge.kept_calibrations import MADE_UNASKED, Calibration
from pointsman.retrieval.judge.relevance import shipped
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset

log = logging.getLogger(__name__)

FEWEST: Final = 20
"""The number of documents from which a calibration is tried."""

BEING_MADE: Final = Calibration("a calibration is being made from the documents")
TO_BE_MADE: Final = Calibration("the next search starts to make a calibration from the documents")


class _StoppedError(Exception):
    """The workspace is being closed."""


class UnaskedCalibrations:
    """Calibrates the datasets of a workspace in the background.

    Args:
        keep: stores the calibration of a dataset, by name.

    Attributes:
        known: the datasets that have been looked at.
        states: by dataset, why there is no calibration, as an empty one whose origin says so; never changed in place.
    """

    def __init__(self, keep: Callable[[str, Calibration], None]) -> None:
        self._keep = keep
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._running: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self.known: set[str] = set()
        self.states: Mapping[str, Calibration] = {}

    def look_at(self, dataset: StoredDataset, calibration: Calibration | None, *, is_written: bool = False) -> None:
        """Start to calibrate a dataset if its vectors need it; returns at once.

        Args:
            dataset: the dataset.
            calibration: its calibration so far.
            is_written: documents have just been embedded; otherwise a dataset is looked at once.

        Raises:
            StoreError: the dataset cannot be read.
        """
        name = dataset.name
        if name in self.known and not is_written:
            return
        with self._guard:
            if name in self._running:
                return
            if is_fake(dataset):  # status says so, the plan of every test need not
                self.known.add(name)
                return
            state = state_of(dataset, calibration)
            self.known.add(name)
            self._put(name, state)
            if state is BEING_MADE:
                stop = threading.Event()
                thread = threading.Thread(
                    target=self._make, args=(dataset, calibration, stop), name="calibrate", daemon=True
                )
                self._running[name] = thread, stop
                thread.start()

    def state(self, dataset: StoredDataset, calibration: Calibration | None) -> Calibration | None:
        """Return why a dataset has no calibration, as an empty one, without starting anything; None if it has one.

        Raises:
            StoreError: the dataset cannot be read.
        """
        if dataset.name in self._running:
            return BEING_MADE
        state = state_of(dataset, calibration)
        return TO_BE_MADE if state is BEING_MADE else state

    @property
    def names(self) -> list[str]:
        """The datasets that are being calibrated."""
        return list(self._running)

    def wait(self) -> None:
        """Wait for the calibrations that are being made."""
        for thread, _ in list(self._running.values()):
            thread.join()

    def forget(self, name: str) -> None:
        """Look at a dataset anew: it is deleted, or its calibration has been stored."""
        self.known.discard(name)
        self._put(name, None)

    def stop(self, *names: str) -> None:
        """Stop what is being made for these datasets, by default for all, and wait until it has stopped."""
        running = [self._running[name] for name in names or list(self._running) if name in self._running]
        for _, stop in running:
            stop.set()
        for thread, _ in running:
            thread.join()

    def _make(self, dataset: StoredDataset, calibration: Calibration | None, stop: threading.Event) -> None:
        name = dataset.name
        try:
            with self._turn:
                self._keep(name, _calibrated(dataset, calibration or Calibration(""), stop))
        except _StoppedError:
            self.forget(name)
        except Exception as error:  # noqa: BLE001  (an embedder can raise anything; the plan says it)
            log.warning("dataset %r could not be calibrated, its hits have no relevance: %s", name, error)
            self._put(name, Calibration(f"none could be made from the documents: {error}"))
        finally:
            self._running.pop(name, None)

    def _put(self, name: str, state: Calibration | None) -> None:
        other_states = {other_name: value for other_name, value in self.states.items() if other_name != name}
        self.states = other_states if state is None else {**other_states, name: state}


def _calibrated(dataset: StoredDataset, stored: Calibration, stop: threading.Event) -> Calibration:
    """Return the calibration of a dataset; one without relevance says why there is none."""
    from pointsman.workspace.calibration.dataset_calibration import calibrate

    def check(*_: object) -> None:
        if stop.is_set():
            raise _StoppedError

    check()
    count = dataset.store.count()
    try:
        result = calibrate(dataset, unasked=True, on_progress=check)  # type: ignore[arg-type]  # it is a whole dataset
        reason, calibration = result.reason, result.calibration
    except InputError as error:
        reason, calibration = str(error), None
    if calibration is None:
        return replace(stored, origin=f"none could be made: {reason}", relevance=(), documents=count)
    return replace(calibration, reranking=stored.reranking)


def state_of(dataset: StoredDataset, calibration: Calibration | None) -> Calibration | None:
    """Return `BEING_MADE` if a calibration is to be made, an empty one that says why there is none, or None.

    Args:
        dataset: the dataset.
        calibration: its calibration so far.

    Raises:
        StoreError: the dataset cannot be read.
    """
    embedder = dataset.store.info.embedder
    if embedder is None or is_by_hand(calibration) or any(relevance.embedder == embedder for relevance in shipped()):
        return None
    if obstacle := _obstacle(dataset):
        return Calibration(obstacle)
    return None if calibration is not None and _is_recent(calibration, embedder, dataset.store.count()) else BEING_MADE


def is_by_hand(calibration: Calibration | None) -> bool:
    """Whether somebody calibrated a dataset with labels."""
    return calibration is not None and bool(calibration.origin) and not calibration.documents


def is_fake(dataset: StoredDataset) -> bool:
    """Whether the vectors were made by an embedder for tests.

    Raises:
        StoreError: the dataset cannot be read.
    """
    from pointsman.embedders.scripted_embedders import HASHING  # brings NumPy

    return (dataset.store.info.embedder or "").startswith(HASHING)


def _obstacle(dataset: StoredDataset) -> str:
    """Return why a dataset cannot be calibrated by its documents; empty if it can."""
    info, count = dataset.store.info, dataset.store.count()
    embedder = info.embedder or ""
    if dataset.holds_images:
        return "no question can be taken out of a picture; give labels to pointsman calibrate"
    if is_fake(dataset):
        return f"the vectors of {embedder!r} only repeat the words, as it is made for tests"
    if dataset.embedder.name != embedder:
        return f"a calibration is made when the dataset is opened with its embedder, {embedder!r}"
    if not info.can(Capability.VECTORS):
        return f"a {info.kind} store does not return vectors; give labels to pointsman calibrate"
    if dataset.store.statistics().vectors_due:
        return "a calibration is made when all documents have a vector"
    return "" if count >= FEWEST else f"a calibration is made from {FEWEST} documents on; there are {count}"


def _is_recent(calibration: Calibration, embedder: str, count: int) -> bool:
    """Whether a calibration that was made from documents still serves."""
    fits = not calibration.relevance or any(relevance.embedder == embedder for relevance in calibration.relevance)
    return (
        fits
        and calibration.documents > 0
        and (count < 2 * calibration.documents or calibration.documents >= MADE_UNASKED)
    )
