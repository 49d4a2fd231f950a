"""Which models are used: those handed over, or those that the settings name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.errors import PointsmanError
from pointsman.settings import TASKS

if TYPE_CHECKING:
    from pointsman.protocols import LLM, Embedder
    from pointsman.settings import Settings


@dataclass(frozen=True, slots=True)
class ChosenLLM:
    """The language model for a task, or the reason why none is available."""

    llm: LLM | None
    reason: str


def llm_for(settings: Settings, task: str = "general", environ: Mapping[str, str] | None = None) -> ChosenLLM:
    """The language model that the settings name for a task; see `Settings.llm`. Nothing is sent to it yet.

    The key of OpenAI is sent to another address only where ``llm_api_key_env`` names it, or ``OPENAI_BASE_URL`` does.

    Args:
        settings: where it is named.
        task: of `pointsman.settings.TASKS`, or ``"general"``.
        environ: where keys are looked for; the environment of this process unless given.

    Returns:
        The model, or None with the reason: nothing is configured, a key is missing, a package is not installed.

    Raises:
        InputError: there is no such task.
    """
    environ = os.environ if environ is None else environ
    spec = settings.llm(task, environ)
    if spec.missing is not None:
        return ChosenLLM(None, spec.missing)
    key = environ.get(spec.api_key_env or "") or None
    options: dict[str, Any] = {"temperature": spec.temperature, "timeout": spec.timeout}
    try:
        from pointsman.models import DashScopeLLM, OpenAILLM

        if spec.provider == "dashscope":
            llm: LLM = DashScopeLLM(spec.model, api_key=key, **options)
        elif spec.provider == "openai":
            llm = OpenAILLM(spec.model, api_key=key, **options)
        else:
            llm = OpenAILLM(spec.model, spec.base_url, key or "no-key", **options)
    except PointsmanError as error:
        return ChosenLLM(None, str(error))
    return ChosenLLM(llm, f"{spec.model} of {spec.base_url or spec.provider}")


class SettingsModels(Mapping[str, "LLM"]):
    """The language models that settings name, by task, each made when it is first asked for; without those missing.

    Args:
        settings: where they are named.
        given: models by task that go before those; ``"general"`` for all that are not named.
    """

    def __init__(self, settings: Settings, models: Mapping[str, LLM] | None = None) -> None:
        self._settings = settings
        self._given = dict(models or {})
        self._chosen: dict[str, ChosenLLM] = {}

    def chosen(self, task: str) -> ChosenLLM:
        """The model for a task, or the reason why none is available; other tasks use the general one."""
        task = task if task in TASKS else "general"
        if task not in self._chosen:
            model = self._given.get(task) or self._given.get("general")
            self._chosen[task] = llm_for(self._settings, task) if model is None else ChosenLLM(model, "given")
        return self._chosen[task]

    def __getitem__(self, task: str) -> LLM:
        llm = self.chosen(task).llm
        if llm is None:
            raise KeyError(task)
        return llm

    def __iter__(self) -> Iterator[str]:
        return (task for task in ("general", *TASKS) if self.chosen(task).llm is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def embedder_for(settings: Settings, name: str = "default") -> Embedder | None:
    """The embedder of this name, or the one that the settings name; None for the default one, which loads when needed.

    Raises:
        InputError: it cannot be had; see `pointsman.models.load_embedder`.
    """
    name = settings.embedder if name == "default" else name
    if name == "default":
        return None
    from pointsman.models import load_embedder

    return load_embedder(name)


def model_for(models: LLM | Mapping[str, LLM] | None, task: str) -> ChosenLLM:
    """The model for a task, or the reason why none is available.

    Args:
        models: one for all tasks; or by task, with ``"general"`` for those that are not named.
        task: a name of `pointsman.settings.TASKS`, or any other for the general one.
    """
    if isinstance(models, SettingsModels):
        return models.chosen(task)
    if isinstance(models, Mapping):
        models = models.get(task) or models.get("general")
    return ChosenLLM(models, "given" if models is not None else "no language model was given; pass llm=…")
