"""Embedders and language models: the offline default, local and remote ones, a cache for any embedder, and fakes.

Every name is loaded on first use: importing this package loads no model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._lazy import lazily
from pointsman.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from pointsman.models._cache import cache_directory
    from pointsman.models.base import BaseEmbedder, as_embedder
    from pointsman.models.cached import CachedEmbedder
    from pointsman.models.e5 import E5Embedder, default_embedder
    from pointsman.models.onnx_directory import OnnxEmbedder
    from pointsman.models.openai_embedder import OpenAIEmbedder
    from pointsman.models.openai_llm import DashScopeLLM, OpenAILLM
    from pointsman.models.scripted import HashingEmbedder
    from pointsman.models.scripted_llm import ScriptedLLM
    from pointsman.models.sentence_transformers import SentenceTransformersEmbedder

__all__ = [
    "BaseEmbedder",
    "CachedEmbedder",
    "DashScopeLLM",
    "E5Embedder",
    "HashingEmbedder",
    "OnnxEmbedder",
    "OpenAIEmbedder",
    "OpenAILLM",
    "ScriptedLLM",
    "SentenceTransformersEmbedder",
    "as_embedder",
    "cache_directory",
    "default_embedder",
    "load_embedder",
]

_MODULES = {
    "BaseEmbedder": ".base",
    "CachedEmbedder": ".cached",
    "DashScopeLLM": ".openai_llm",
    "E5Embedder": ".e5",
    "HashingEmbedder": ".scripted",
    "OnnxEmbedder": ".onnx_directory",
    "OpenAIEmbedder": ".openai_embedder",
    "OpenAILLM": ".openai_llm",
    "ScriptedLLM": ".scripted_llm",
    "SentenceTransformersEmbedder": ".sentence_transformers",
    "as_embedder": ".base",
    "cache_directory": "._cache",
    "default_embedder": ".e5",
}

_SPECS = (
    "default",
    "e5-small",
    "hashing",
    "onnx:DIRECTORY",
    "openai:MODEL[@BASE_URL]",
    "sentence-transformers:NAME",
)


__getattr__, __dir__ = lazily(__name__, _MODULES)


def load_embedder(spec: str) -> BaseEmbedder:
    """Return the embedder for a specification from a setting or a command line option.

    Args:
        spec: ``default`` or ``e5-small``, ``hashing``, ``onnx:DIRECTORY``, ``sentence-transformers:NAME``, or
            ``openai:MODEL@BASE_URL`` (without ``@BASE_URL``: OpenAI's own server, or ``OPENAI_BASE_URL``).

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
        case (("onnx" | "openai" | "sentence-transformers"), _):
            embedder = _load_with_argument(kind, argument)
        case _:
            raise UnknownNameError("embedder", spec, _SPECS)
    return embedder


def _load_with_argument(kind: str, argument: str) -> BaseEmbedder:
    if not argument:
        raise InputError(f"{kind!r} needs a name after a colon; known: {', '.join(_SPECS)}")
    if kind == "onnx":
        from pointsman.models.onnx_directory import OnnxEmbedder

        return OnnxEmbedder(argument)
    if kind == "sentence-transformers":
        from pointsman.models.sentence_transformers import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder(argument)
    from pointsman.models.openai_embedder import OpenAIEmbedder

    # From the right, as a model's name may contain an "@"; a server's address without user and password does not.
    model, separator, base_url = argument.rpartition("@")
    return OpenAIEmbedder(model, base_url) if separator else OpenAIEmbedder(argument)
