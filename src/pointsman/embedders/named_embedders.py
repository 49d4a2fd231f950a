"""Embedders by name: the one that a setting, an option or a stored dataset names."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pointsman.embedders.base_embedder import embed_function, image_embedder_of
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.settings import key_in

if TYPE_CHECKING:
    from pointsman.embedders.base_embedder import BaseEmbedder
    from pointsman.values.protocols import Embedder, MultimodalEmbedder
    from pointsman.values.settings import Settings

_SPECS = (
    "default",
    "e5-small",
    "hashing",
    "onnx:DIRECTORY",
    "openai:MODEL[@BASE_URL]",
    "sentence-transformers:NAME",
    "colours",
    "clip:NAME",
)


def embedder_for(settings: Settings, embedder: Embedder | str | None = None) -> Embedder | None:
    """Return an embedder, or the one in the settings; None for the default one, which loads on demand.

    Args:
        settings: name an embedder and the variable with its key.
        embedder: anything that `as_embedder` takes; None and ``"default"`` leave it to the settings.

    Raises:
        InputError: it is not available, or its key is missing; see `load_embedder` for other errors.
    """
    if not isinstance(embedder, str | None):
        return as_embedder(embedder)
    name = settings.embedder if embedder in {None, "default"} else embedder
    if name == "default":
        return None
    return load_embedder(name, api_key=key_in(None, settings.embedder_api_key_env, f"the embedder {name!r}"))


def image_embedder_for(settings: Settings) -> MultimodalEmbedder | None:
    """Return the embedder of pictures that the settings name, opened once per process; None if they name none.

    Raises:
        InputError: it cannot be used; see `pointsman.embedders.load_embedder` for other errors.
    """
    return _open_image_embedder(settings.image_embedder) if settings.image_embedder else None


@lru_cache(maxsize=2)
def _open_image_embedder(spec: str) -> MultimodalEmbedder:
    embedder = image_embedder_of(load_embedder(spec))
    assert embedder is not None, "the settings name only such embedders"
    return embedder


def as_embedder(source: Any) -> Embedder:
    """Return the embedder of a name, or any object that can embed, as an `Embedder`.

    Args:
        source: a name that `load_embedder` knows; an `Embedder`, which is returned unchanged; an object with
            ``embed(text)``, which returns one vector; one with ``embed_queries`` and ``embed_documents``, which return
            one vector per text; or an embedding model of LangChain (``embed_query``) or LlamaIndex
            (``get_query_embedding``). Methods may be asynchronous. One that also embeds the bytes of pictures
            (``embed_images``, or LlamaIndex's ``get_image_embedding_batch``) becomes a `MultimodalEmbedder`.

    Raises:
        InputError: it is none of these; see `load_embedder` for the errors of names.

    >>> class Length:
    ...     async def embed(self, text):
    ...         return [len(text), 1]
    >>> as_embedder(Length()).embed_queries(["", "a"]).shape
    (2, 2)
    >>> as_embedder("hashing").name
    'hashing-64'
    """
    return load_embedder(source) if isinstance(source, str) else embed_function(source)


def load_embedder(spec: str, *, api_key: str | None = None) -> BaseEmbedder:
    """Return the embedder for a specification from a setting or a command line option.

    Args:
        spec: ``default`` or ``e5-small``, ``hashing``, ``onnx:DIRECTORY``, ``sentence-transformers:NAME``, or
            ``openai:MODEL@BASE_URL`` (without ``@BASE_URL``: OpenAI's own server, or ``OPENAI_BASE_URL``); for texts
            and pictures, ``clip:NAME`` or, for tests, ``colours``.
        api_key: for a server; see `OpenAIEmbedder` for what one with OpenAI's interface gets without it.

    Raises:
        UnknownNameError: The name is unknown.
        InputError: It is not a text, or the part after the colon is missing or invalid.
        MissingDependencyError: A required package is not installed.
    """
    if not isinstance(spec, str):
        raise InputError(
            f"an embedder is named here, such as 'e5-small' or 'openai:MODEL@URL', as only its name can be stored; "
            f"{type(spec).__name__} is an object: open the workspace with it (embedder=)"
        )
    kind, colon, argument = spec.partition(":")
    embedder: BaseEmbedder
    match kind, colon:
        case "default" | "e5-small", "":
            from pointsman.embedders.e5.e5_embedder import default_embedder

            embedder = default_embedder()
        case "hashing", "":
            from pointsman.embedders.scripted_embedders import HashingEmbedder

            embedder = HashingEmbedder()
        case "colours", "":
            from pointsman.embedders.scripted_embedders import ColourEmbedder

            embedder = ColourEmbedder()
        case (("onnx" | "openai" | "sentence-transformers" | "clip"), _):
            embedder = _load_with_argument(kind, argument, api_key)
        case _:
            raise UnknownNameError("embedder", spec, _SPECS)
    return embedder


def _load_with_argument(kind: str, argument: str, api_key: str | None) -> BaseEmbedder:
    if not argument:
        raise InputError(f"{kind!r} needs a name after a colon; known: {', '.join(_SPECS)}")
    if kind == "onnx":
        from pointsman.embedders.onnx_directory import OnnxEmbedder

        return OnnxEmbedder(argument)
    if kind in {"clip", "sentence-transformers"}:
        from pointsman.embedders.sentence_transformers import ClipEmbedder, SentenceTransformersEmbedder

        return ClipEmbedder(argument) if kind == "clip" else SentenceTransformersEmbedder(argument)
    from pointsman.embedders.openai_embedder import OpenAIEmbedder

    # From the right, as a model's name may contain an "@"; a server's address without user and password does not.
    model, separator, base_url = argument.rpartition("@")
    return OpenAIEmbedder(model, base_url, api_key) if separator else OpenAIEmbedder(argument, api_key=api_key)
