"""Embeddings from any server with OpenAI's ``/v1/embeddings`` API."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pointsman.embedders.base_embedder import PrefixedEmbedder, unit_rows, vector_rows
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.network.openai_server import OpenAIServer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OpenAIEmbedder(PrefixedEmbedder):
    """An embedder that uses the ``openai`` client: OpenAI, DashScope, vLLM, Ollama, llama.cpp and similar servers.

    Texts are sent in batches; vectors are matched to them by ``index``, not by order. The key is sent only to the
    server and not stored elsewhere. The length of a vector is taken from the first answer, requested when needed.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        batch_size: int = 64,
        timeout: float = 30,
        max_retries: int = 2,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            model: The server's name for the model.
            base_url: Such as ``http://localhost:8000/v1``; None means ``OPENAI_BASE_URL``, else OpenAI's server.
            api_key: None means ``OPENAI_API_KEY`` for OpenAI's server and that in ``OPENAI_BASE_URL``, and no key for
                any other, which local servers accept.
            query_prefix: Put before every query.
            document_prefix: Put before every document.
            batch_size: Texts per request.
            timeout: Seconds until a request counts as failed.
            max_retries: Maximum number of retries of a request that may succeed later.

        Raises:
            InputError: ``batch_size`` is not positive, or the proxy that the environment names cannot be used.
            MissingDependencyError: The package ``openai`` is not installed.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is at least 1, not {batch_size}")
        server = OpenAIServer.of(base_url, api_key)
        self._base_url, self._remedy_for = server.address, server.remedy_for
        self._client = server.client(timeout, max_retries, "OpenAIEmbedder")
        import openai

        self._error = openai.OpenAIError
        self._model = model
        self._prefixes = query_prefix, document_prefix
        self._name = f"openai:{model}@{self._base_url}|{query_prefix}|{document_prefix}"
        self._batch_size = batch_size
        self._dimensions = None
        self._lock = threading.Lock()

    @property
    def dimensions(self) -> int:
        """Length of a vector; asks the server once if nothing has been embedded yet.

        Raises:
            ModelError: The server failed.
        """
        if self._dimensions is None:
            self._encode(["dimensions"])
        return super().dimensions

    def _encode(self, batch: list[str]) -> NDArray[np.float32]:
        # JSON cannot encode lone surrogates, and servers refuse empty input or stop at NUL: all three are replaced.
        inputs = [text.encode("utf-8", "replace").decode().replace("\0", " ") or " " for text in batch]
        source = f"{self._model!r} at {self._base_url}"
        try:
            answer = self._client.embeddings.create(model=self._model, input=inputs, encoding_format="float")
            by_index = {item.index: item.embedding for item in answer.data}
        except self._error as error:
            message = f"{source} failed: {type(error).__name__}: {error}{self._remedy_for(error)}"
            raise ModelError(message) from error
        except (AttributeError, TypeError, ValueError) as error:  # an HTML page, broken JSON, other JSON
            raise ModelError(f"{source} did not answer with a list of embeddings: {error}") from error
        if set(by_index) != set(range(len(batch))):
            raise ModelError(f"{source} answered {len(by_index)} embeddings for {len(batch)} texts")
        vectors = vector_rows([by_index[index] for index in range(len(batch))], len(batch), source)
        with self._lock:
            length = vectors.shape[1]
            if length != (self._dimensions or length):
                raise ModelError(f"{source} gave vectors of length {length}, {self._dimensions} before")
            self._dimensions = length
        return unit_rows(vectors, source)
