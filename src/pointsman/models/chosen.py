"""Chooses the models to use: those passed in, or those named by the settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError, PointsmanError, UnknownNameError
from pointsman.settings import TASKS, key_in

if TYPE_CHECKING:
    from pointsman.models.base import BaseEmbedder
    from pointsman.protocols import LLM, Embedder, MultimodalEmbedder
    from pointsman.settings import Settings

_SPECS = (
    "default",
    "e5-small",
    "hashing",
    "onnx:DIRECTORY",
    "openai:MODEL[@BASE_URL]",
    "sentence-transformers:NAME",
    "colours",
    "clip:DIRECTORY",
    "jina:MODEL@URL",
    "infinity:MODEL@URL",
    "vllm:MODEL@URL",
)


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
        task: a name from `pointsman.settings.TASKS`, or ``"general"``.
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


def embedder_for(settings: Settings, name: str = "default") -> Embedder | None:
    """Return the embedder of this name, or the one in the settings; None for the default one, which loads on demand.

    Raises:
        InputError: it is not available, or its key is missing; see `pointsman.models.load_embedder` for other errors.
    """
    name = settings.embedder if name == "default" else name
    if name == "default":
        return None
    return load_embedder(name, api_key=key_in(None, settings.embedder_api_key_env, f"the embedder {name!r}"))


def image_embedder_for(settings: Settings, environ: Mapping[str, str] | None = None) -> MultimodalEmbedder | None:
    """Return the embedder of pictures that the settings name, opened once per process; None if they name none.

    Raises:
        InputError: it cannot be used, or its key is missing; see `pointsman.models.load_embedder` for other errors.
    """
    if not settings.image_embedder:
        return None
    key = key_in(environ, settings.image_embedder_api_key_env, f"the embedder {settings.image_embedder!r}")
    return _open_image_embedder(settings.image_embedder, key)


@lru_cache(maxsize=2)
def _open_image_embedder(spec: str, api_key: str | None) -> MultimodalEmbedder:
    from pointsman.models.base import image_embedder_of

    embedder = image_embedder_of(load_embedder(spec, api_key=api_key))
    assert embedder is not None, "the settings name only such embedders"
    return embedder


def model_for(models: LLM | Mapping[str, LLM] | None, task: str) -> ChosenLLM:
    """Return the model for a task, or the reason why none is available.

    Args:
        models: one model for all tasks, or models by task, with ``"general"`` for tasks that are not named.
        task: a name from `pointsman.settings.TASKS`, or any other for the general model.
    """
    if isinstance(models, SettingsModels):
        return models.choice(task)
    if isinstance(models, Mapping):
        models = models.get(task) or models.get("general")
    return ChosenLLM(models, "given" if models is not None else "no language model was given; pass llm=…")


def load_embedder(spec: str, *, api_key: str | None = None) -> BaseEmbedder:
    """Return the embedder for a specification from a setting or a command line option.

    Args:
        spec: ``default`` or ``e5-small``, ``hashing``, ``onnx:DIRECTORY``, ``sentence-transformers:NAME``, or
            ``openai:MODEL@BASE_URL`` (without ``@BASE_URL``: OpenAI's own server, or ``OPENAI_BASE_URL``); for texts
            and pictures, ``clip:DIRECTORY``, ``jina:MODEL@URL``, ``infinity:MODEL@URL``, ``vllm:MODEL@URL``, or, for
            tests, ``colours``.
        api_key: for a server; see `OpenAIEmbedder` for what one with OpenAI's interface gets without it.

    Raises:
        UnknownNameError: The name is unknown.
        InputError: The part after the colon is missing or invalid.
        MissingDependencyError: A required package is not installed.
    """
    kind, colon, argument = spec.partition(":")
    embedder: BaseEmbedder
    match kind, colon:
        case "default" | "e5-small", "":
            from pointsman.models.e5 import default_embedder

            embedder = default_embedder()
        case "hashing", "":
            from pointsman.models.scripted import HashingEmbedder

            embedder = HashingEmbedder()
        case "colours", "":
            from pointsman.models.scripted import ColourEmbedder

            embedder = ColourEmbedder()
        case (("jina" | "infinity" | "vllm"), ":"):
            from pointsman.models.http_multimodal import HTTPMultimodalEmbedder

            model, _, url = argument.rpartition("@")
            embedder = HTTPMultimodalEmbedder(url, model, kind, api_key=api_key)
        case (("onnx" | "openai" | "sentence-transformers" | "clip"), _):
            embedder = _load_with_argument(kind, argument, api_key)
        case _:
            raise UnknownNameError("embedder", spec, _SPECS)
    return embedder


def _load_with_argument(kind: str, argument: str, api_key: str | None) -> BaseEmbedder:
    if not argument:
        raise InputError(f"{kind!r} needs a name after a colon; known: {', '.join(_SPECS)}")
    if kind == "onnx":
        from pointsman.models.onnx_directory import OnnxEmbedder

        return OnnxEmbedder(argument)
    if kind == "clip":
        from pointsman.models.clip import ClipEmbedder

        return ClipEmbedder(argument)
    if kind == "sentence-transformers":
        from pointsman.models.sentence_transformers import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder(argument)
    from pointsman.models.openai_embedder import OpenAIEmbedder

    # From the right, as a model's name may contain an "@"; a server's address without user and password does not.
    model, separator, base_url = argument.rpartition("@")
    return OpenAIEmbedder(model, base_url, api_key) if separator else OpenAIEmbedder(argument, api_key=api_key)
