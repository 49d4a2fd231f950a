"""The reranker named in the settings."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from pointsman.retrieval.refine.rerank.base_reranker import TIMEOUT, BaseReranker
from pointsman.tools.errors import InputError
from pointsman.values.settings import RERANKER, key_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.retrieval.refine.rerank.http_reranker import API
    from pointsman.values.settings import Settings


def load_reranker(spec: str, *, api_key: str | None = None, timeout: float = TIMEOUT) -> BaseReranker:
    """Open the reranker that a text names.

    Args:
        spec: ``late`` (`LateInteractionReranker`), ``onnx:DIRECTORY``, ``sentence-transformers:NAME``, or the address
            of a server, preceded by the shape of its requests and the model if needed: ``http://localhost:8080``,
            ``jina:bge-reranker@http://localhost:8080``.
        api_key: for a server.
        timeout: seconds for one reranking.

    Raises:
        InputError: the text names no reranker, or the reranker cannot be used.
        MissingDependencyError: it needs a package that is not installed.
        ModelError: a local model cannot be read.
    """
    match = RERANKER.fullmatch(spec)
    if match is None:
        raise InputError(
            "a reranker is late, onnx:DIRECTORY, sentence-transformers:NAME or [cohere:|jina:|tei:][MODEL@]URL, "
            f"not {spec!r:.80}"
        )
    if match["late"]:
        from pointsman.retrieval.refine.rerank.late_interaction import LateInteractionReranker

        return LateInteractionReranker(timeout=timeout)
    if match["folder"]:
        from pointsman.retrieval.refine.rerank.cross_encoder import CrossEncoderReranker

        return CrossEncoderReranker(match["folder"], timeout=timeout)
    if match["library_model"]:
        from pointsman.retrieval.refine.rerank.library_rerankers import open_cross_encoder

        return open_cross_encoder(match["library_model"], timeout=timeout)
    from pointsman.retrieval.refine.rerank.http_reranker import HTTPReranker

    api = cast("API", match["api"] or "auto")
    return HTTPReranker(match["url"], model=match["model"], api=api, api_key=api_key, timeout=timeout)


def reranker_for(settings: Settings, environ: Mapping[str, str] | None = None) -> BaseReranker | None:
    """Return the reranker named in the settings, opened once per process; None if they name none.

    Raises:
        InputError: it cannot be used, or its key is missing; see `load_reranker` for the other errors.
    """
    if not settings.reranker:
        return None
    key = key_in(environ, settings.reranker_api_key_env, f"the reranker {settings.reranker!r}")
    return open_reranker(settings.reranker, key, settings.reranker_timeout)


@lru_cache(maxsize=4)
def open_reranker(spec: str, api_key: str | None, timeout: float) -> BaseReranker:
    """Return what `load_reranker` opens, once per process."""
    return load_reranker(spec, api_key=api_key, timeout=timeout)
