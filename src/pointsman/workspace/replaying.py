"""Replaying: the same answer again, from what a dataset was when it was given; see `pointsman.retrieval.receipts`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.engine import Engine
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.retrieval.plan.vocabulary import UNREAD, with_words, words_of
from pointsman.retrieval.receipts import (
    Receipt,
    check_seal,
    digest_of_answer,
    digest_of_fitted,
    digest_of_policy,
    digest_of_reaching,
    version_with_build,
)
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError, NotHeldError, UnknownNameError
from pointsman.values.settings import REACHING, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.retrieval.plan.vocabulary import DatedWords
    from pointsman.retrieval.receipts import SourceState
    from pointsman.store.base_store import PastStates
    from pointsman.store.store_values import RecordedState
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.workspace.dataset import Dataset

_COPIES: Final = 4
_CHOICES: Final = 10_000  # of a calibration for each dataset that are tried


class Replays:
    """Gives answers of a workspace again, one at a time; copies of the datasets stay until it is closed.

    Args:
        open_dataset: opens a dataset by name.
        bm25: returns the constants of a dataset under given settings.
        former: returns the calibrations of a dataset that were replaced and are kept.
    """

    def __init__(
        self,
        open_dataset: Callable[[str], Dataset],
        bm25: Callable[[str, Settings], Mapping[str, float]],
        former: Callable[[str], Sequence[Calibration]],
    ) -> None:
        self._open, self._bm25, self._former = open_dataset, bm25, former
        self._lock = threading.Lock()
        self._past: OrderedDict[tuple[str, ...], PastStates] = OrderedDict()

    def replay(self, text: str, engine: Engine, *, access: bool) -> RetrievalContext:
        """Return the answer that a receipt is of; see `pointsman.Workspace.replay`.

        Args:
            text: the receipt.
            engine: of the workspace as it is.
            access: whether access is on.
        """
        receipt = Receipt.read(text)
        request = receipt.request()
        with self._lock:
            datasets, reasons = self._datasets(receipt)
            self._check_seal(text, receipt, datasets)
            calibrations = self._calibrations_of(receipt, engine)
            reasons += _no_longer_held(receipt, engine)
            if calibrations is None:
                names = ", ".join(state.name for state in receipt.sources)
                reasons.append(f"the calibrations of {names}, which were replaced")
            settings = _settings_of(receipt, engine.settings)
            sources: list[Any] = []
            words: dict[str, DatedWords | None] = {}
            for state in receipt.sources:
                if state.name in datasets:
                    try:
                        if state.words is not None:  # first: there is one copy, of one state at a time
                            words[state.name] = self._words(datasets[state.name], state, settings)
                        sources.append(self._as_it_was(datasets[state.name], state, settings))
                    except NotHeldError as error:
                        reasons += error.missing
            if reasons or calibrations is None:
                raise NotHeldError(reasons)
            if (request.principals is None) is access:
                raise NotHeldError([f"access was {'off' if access else 'on'}, and is {'on' if access else 'off'} now"])
            if request.principals is not None:
                sources = [source.in_view(request.principals) for source in sources]
            stages = replace(engine.stages, fitted=calibrations)
            engine_of_then = Engine(settings, stages, engine.models, engine.registry)
            with with_words(words):
                context = replace(engine_of_then.search(request, sources, today=receipt.day), receipt=text.strip())
        if digest_of_answer(context) != receipt.answer:
            raise NotHeldError([_why_it_differs(receipt, context, engine)])
        return context

    def _datasets(self, receipt: Receipt) -> tuple[dict[str, Dataset], list[str]]:
        datasets: dict[str, Dataset] = {}
        reasons: list[str] = []
        for state in receipt.sources:
            try:
                dataset = self._open(state.name)
            except UnknownNameError:
                reasons.append(f"dataset {state.name!r}, which was deleted")
                continue
            if dataset.store.info.identity != state.identity:
                reason = "which was deleted, and there is a new one of the same name"
                reasons.append(f"dataset {state.name!r}, {reason}")
            else:
                datasets[state.name] = dataset
        return datasets, reasons

    def _calibrations_of(self, receipt: Receipt, engine: Engine) -> dict[str, Calibration] | None:
        """Return the calibrations of then, each that of now or one that was replaced since; None if one is not held."""
        names = [state.name for state in receipt.sources if state.name not in receipt.lacking]
        choices = [(engine.stages.fitted.get(name), *self._former(name), None) for name in names]
        for choice in islice(product(*choices), _CHOICES):
            calibrations = {name: calibration for name, calibration in zip(names, choice, strict=True) if calibration}
            if digest_of_fitted(calibrations, names) == receipt.fitted:
                return {**calibrations, **{name: Calibration(origin) for name, origin in receipt.lacking.items()}}
        return None

    def _check_seal(self, text: str, receipt: Receipt, datasets: Mapping[str, Dataset]) -> None:
        """Check that a receipt was issued; without the dataset whose key it needs, `_as_it_was` refuses it.

        Raises:
            InputError: it was not.
        """
        states = [state for dataset in datasets.values() if (state := _recorded_state(dataset)) is not None]
        is_sealed = any(check_seal(text, state.key) for state in states)
        if (states and not is_sealed) or not any(state.notes for state in receipt.sources):
            raise InputError("this receipt was not issued here, or is not whole; copy it as it was printed")

    def _as_it_was(self, dataset: Dataset, state: SourceState, settings: Settings) -> Dataset:
        """Return a dataset with the documents and notes of a state.

        Raises:
            NotHeldError: they are no longer held.
        """
        store = dataset.store
        if not state.notes or not store.info.can(Capability.RECORDS):
            if state.sequence < 0 or store.statistics().sequence != state.sequence:
                raise NotHeldError([f"dataset {state.name!r} kept no versions, and has changed since"])
            return dataset
        if _recorded_state(dataset) is None:
            raise NotHeldError([f"dataset {state.name!r} keeps no versions any more"])
        bm25 = self._bm25(state.name, settings)
        key = state.name, state.identity, str(sorted(bm25.items()))
        past_store = self._past.get(key)
        if past_store is None:
            past_store = self._past[key] = store.past_store(state.name, bm25)
        self._past.move_to_end(key)
        while len(self._past) > _COPIES:
            self._past.popitem(last=False)[1].close()
        return dataset.with_store(past_store.at(state.sequence, state.notes))

    def _words(self, dataset: Dataset, state: SourceState, settings: Settings) -> DatedWords | None:
        """Return the words for spelling of an earlier state than that of the answer; None if they were not read yet.

        Raises:
            NotHeldError: they are no longer held.
        """
        if state.words in (None, UNREAD):
            return None
        if not state.notes:
            raise NotHeldError([f"the words for spelling of dataset {state.name!r}, which were of an earlier state"])
        return words_of(self._as_it_was(dataset, replace(state, sequence=state.words), settings))

    def close(self) -> None:
        """Delete the copies."""
        with self._lock:
            while self._past:
                self._past.popitem()[1].close()


def _recorded_state(dataset: Dataset) -> RecordedState | None:
    return dataset.store.statistics().recorded_state


def _no_longer_held(receipt: Receipt, engine: Engine) -> list[str]:
    """Return what of a receipt is not there any more, besides datasets."""
    reasons = [f"{name}, which was an object in Python" for name in receipt.objects]
    if receipt.policy != digest_of_policy(engine.stages.policy):
        reasons.append("the policy, which was replaced by another one")
    unknown_names = receipt.settings.keys() - {item.name for item in fields(Settings)}
    reasons += [f"the setting {name}, which this version does not have" for name in unknown_names]
    return reasons


def _settings_of(receipt: Receipt, current: Settings) -> Settings:
    """Return the settings of a receipt; models and places are those of now."""
    default = Settings()
    names = [item.name for item in fields(Settings) if item.name not in REACHING]
    values = {name: receipt.settings.get(name, getattr(default, name)) for name in names}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return current.updated(**values)


def _why_it_differs(receipt: Receipt, context: RetrievalContext, engine: Engine) -> str:
    reasons = []
    if receipt.version != (version := version_with_build()):
        reasons.append(f"it is from version {receipt.version} of the program, and this is {version}")
    if receipt.reaching != digest_of_reaching(engine.settings):
        reasons.append("the settings that name models or places have changed")
    if context.degraded:
        reasons.append(f"now something did not work: {'; '.join(context.degraded)}")
    if not reasons:
        reasons.append(
            "a language model or another server answered differently, or the dataset was being written to, or its "
            "words or models were still being read when it was given"
        )
    return f"the answer, as another one comes out now: {'; '.join(reasons)}"
