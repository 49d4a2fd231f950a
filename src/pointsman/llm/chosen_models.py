"""Chooses the language model to use: one passed in, or the one named by the settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.tools.errors import PointsmanError
from pointsman.values.settings import TASKS

if TYPE_CHECKING:
    from pointsman.values.protocols import LLM
    from pointsman.values.settings import Settings


@dataclass(frozen=True, slots=True)
class ChosenLLM:
    """The language model for a task, or the reason why none is available."""

    llm: LLM | None
    reason: str


def llm_for(settings: Settings, task: str = "general", environ: Mapping[str, str] | None = None) -> ChosenLLM:
    """Return the language model that the settings name for a task; see `Settings.llm`. Nothing is sent yet.

    OpenAI's key goes to another address only if ``llm_api_key_env`` names the key or ``OPENAI_BASE_URL`` the address.

    Args:
        settings: the settings that name it.
        task: a name from `pointsman.values.settings.TASKS`, or ``"general"``.
        environ: where keys are looked up; by default the environment of this process.

    Returns:
        The model, or None with the reason: nothing is configured, a key is missing, a package is not installed.

    Raises:
        InputError: the task is unknown.
    """
    environ = os.environ if environ is None else environ
    spec = settings.llm(task, environ)
    if spec.missing is not None:
        return ChosenLLM(None, spec.missing)
    key = environ.get(spec.api_key_env or "") or None
    options: dict[str, Any] = {"temperature": spec.temperature, "timeout": spec.timeout}
    try:
        from pointsman.llm.openai_llm import DashScopeLLM, OpenAILLM

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
    """The available language models that settings name, by task; each is created on first use.

    Args:
        settings: the settings that name them.
        models: models by task that take precedence; ``"general"`` applies to all tasks that are not named.
    """

    def __init__(self, settings: Settings, models: Mapping[str, LLM] | None = None) -> None:
        self._settings = settings
        self._models_by_task = dict(models or {})
        self._choices: dict[str, ChosenLLM] = {}

    def choice(self, task: str) -> ChosenLLM:
        """Return the model for a task, or the reason why none is available; other tasks use the general one."""
        task = task if task in TASKS else "general"
        if task not in self._choices:
            model = self._models_by_task.get(task) or self._models_by_task.get("general")
            self._choices[task] = llm_for(self._settings, task) if model is None else ChosenLLM(model, "given")
        return self._choices[task]

    def __getitem__(self, task: str) -> LLM:
        llm = self.choice(task).llm
        if llm is None:
            raise KeyError(task)
        return llm

    def __iter__(self) -> Iterator[str]:
        return (task for task in ("general", *TASKS) if self.choice(task).llm is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def model_for(models: LLM | Mapping[str, LLM] | None, task: str) -> ChosenLLM:
    """Return the model for a task, or the reason why none is available.

    Args:
        models: one model for all tasks, or models by task, with ``"general"`` for tasks that are not named.
        task: a name from `pointsman.values.settings.TASKS`, or any other for the general model.
    """
    if isinstance(models, SettingsModels):
        return models.choice(task)
    if isinstance(models, Mapping):
        models = models.get(task) or models.get("general")
    return ChosenLLM(models, "given" if models is not None else "no language model was given; pass llm=…")
