"""Embeddings of texts and pictures from a server: Jina, infinity, vLLM, and others with one of their APIs."""

from __future__ import annotations

import base64
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlunsplit

import numpy as np

from pointsman.embedders.base_embedder import BaseEmbedder, Progress, image_list, text_list, unit_rows
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.images import as_jpeg, open_image
from pointsman.tools.network.http_addresses import address, one_line
from pointsman.tools.network.json_client import JSONClient, UnknownShapeError, UnusableAnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MultimodalAPI = Literal["jina", "infinity", "vllm"]
"""The shape of a server's requests."""

_LONGEST_SIDE: Final = 1024  # pixels of a picture that is sent; models take 224 to 1024
_TEXTS: Final = 64  # per request
_IMAGES: Final = {"jina": 8, "infinity": 8, "vllm": 1}  # per request; vLLM embeds one conversation


class HTTPMultimodalEmbedder(BaseEmbedder):
    """A client for a server that embeds texts and pictures into one space, by ``POST …/embeddings``.

    - ``"jina"``: an input is ``{"text": …}`` or ``{"image": …}``, as Jina's own API takes them.
    - ``"infinity"``: the field ``modality`` says whether the inputs are texts or data URLs of pictures.
    - ``"vllm"``: texts as OpenAI's API takes them, a picture as a message with an ``image_url``.

    Pictures are opened here, within limits, and sent as JPEG of at most 1024 by 1024 pixels, never as an address or a
    path. Vectors are matched to inputs by ``index``, not by order. For retries, time limits and where the key goes, see
    `HTTPReranker`, which uses the same client. The length of a vector is taken from the first answer.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api: MultimodalAPI,
        *,
        api_key: str | None = None,
        insecure: bool = False,
        retries: int = 2,
        timeout: float = 30.0,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            url: the API's address (``https://api.jina.ai/v1``, ``http://localhost:7997``), without ``/embeddings``.
            model: the server's name for the model.
            api: the shape of requests; see the class.
            api_key: None for servers that need none.
            insecure: send the key to another machine without encryption.
            retries: how often a request that may succeed later is retried.
            timeout: seconds for one request with its retries.

        Raises:
            InputError: an argument is invalid, or the key would be sent unencrypted.
        """
        if api not in get_args(MultimodalAPI):
            raise InputError(f"api is one of {', '.join(get_args(MultimodalAPI))}, not {api!r}")
        if not isinstance(model, str) or not model:
            raise InputError(f"model is the server's name for the model, not {model!r}")
        if not timeout > 0:
            raise InputError(f"timeout is a number of seconds above 0, not {timeout!r}")
        url_parts = address(url)
        path = url_parts.path.rstrip("/").removesuffix("/embeddings")
        self._url = urlunsplit(url_parts._replace(path=path, query=""))
        self._endpoint = urlunsplit(url_parts._replace(path=f"{path}/embeddings"))
        self._client = JSONClient(url_parts, api_key, insecure=insecure, retries=retries)
        self._model, self._api, self._timeout = model, api, timeout
        self._dimensions: int | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The shape of requests, the model and its address."""
        return f"{self._api}:{self._model}@{self._url}"

    @property
    def dimensions(self) -> int:
        """Length of a vector; asks the server once if nothing has been embedded yet.

        Raises:
            ModelError: the server failed.
        """
        if self._dimensions is None:
            self.embed_queries(["dimensions"])
        assert self._dimensions is not None
        return self._dimensions

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._client.close()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            ModelError: the server failed, or gave an unusable answer.
        """
        return self.embed_documents(texts)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Like ``embed_queries``; reports to ``on_progress``."""
        vectors = []
        for batch in batched(text_list(texts), _TEXTS):
            # JSON cannot encode lone surrogates, and servers refuse empty input or stop at NUL: all three are replaced.
            inputs = [text.encode("utf-8", "replace").decode().replace("\0", " ") or " " for text in batch]
            vectors.append(self._embed(self._text_request(inputs), len(inputs)))
            if on_progress is not None:
                on_progress(len(inputs))
        return np.concatenate(vectors) if vectors else np.empty((0, self.dimensions), np.float32)

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), dimensions)``, float32, L2-normalised.

        Args:
            images: the contents of picture files: PNG, JPEG, TIFF, WebP, BMP or GIF, at most 60 million pixels.

        Raises:
            InputError: one is no such picture; nothing is sent then.
            ModelError: the server failed, or gave an unusable answer.
        """
        pictures = [_sendable(data, position) for position, data in enumerate(image_list(images))]
        vectors = [
            self._embed(self._image_request(batch), len(batch)) for batch in batched(pictures, _IMAGES[self._api])
        ]
        return np.concatenate(vectors) if vectors else np.empty((0, self.dimensions), np.float32)

    def _text_request(self, texts: Sequence[str]) -> dict[str, Any]:
        if self._api == "jina":
            return {"input": [{"text": text} for text in texts], "embedding_type": "float"}
        modality = {"modality": "text"} if self._api == "infinity" else {}
        return {"input": list(texts), "encoding_format": "float", **modality}

    def _image_request(self, pictures: Sequence[str]) -> dict[str, Any]:
        if self._api == "jina":
            return {"input": [{"image": picture} for picture in pictures], "embedding_type": "float"}
        urls = [f"data:image/jpeg;base64,{picture}" for picture in pictures]
        if self._api == "infinity":
            return {"input": urls, "encoding_format": "float", "modality": "image"}
        content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return {"messages": [{"role": "user", "content": content}], "encoding_format": "float"}

    def _embed(self, fields: Mapping[str, Any], count: int) -> NDArray[np.float32]:
        deadline = time.monotonic() + self._timeout
        try:
            answer = self._client.post(self._endpoint, {"model": self._model, **fields}, deadline)
            vectors = _vectors(answer, count)
        except UnknownShapeError as error:
            raise ModelError(
                f"{self.name} rejects our request: {self._client.without_key(str(error))}; does the server have this "
                f"model, does the model take pictures, and is {self._api!r} the shape of its requests?"
            ) from None
        except UnusableAnswerError as error:
            raise ModelError(f"{self.name} returned no usable answer: {self._client.without_key(str(error))}") from None
        with self._lock:
            if vectors.shape[1] != (self._dimensions or vectors.shape[1]):
                raise ModelError(f"{self.name} gave vectors of length {vectors.shape[1]}, {self._dimensions} before")
            self._dimensions = vectors.shape[1]
        return unit_rows(vectors, self.name)


def _sendable(data: bytes, position: int) -> str:
    """Return a picture as JPEG of limited size, in base64.

    Raises:
        InputError: it is no picture.
    """
    try:
        return base64.b64encode(as_jpeg(open_image(data, _LONGEST_SIDE))).decode()
    except InputError as error:
        raise InputError(f"image {position}: {error}") from error


def _vectors(answer: Any, count: int) -> NDArray[np.float64]:
    """Return the vectors of an answer, in the order of the inputs.

    Raises:
        UnusableAnswerError: there is not exactly one vector of numbers for each input, all of one length.
    """
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise UnusableAnswerError(f"it contains no list of embeddings: {one_line(repr(answer))}")
    by_index: dict[int, Any] = {}
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int) or isinstance(index, bool) or index in by_index:
            raise UnusableAnswerError(f"an embedding has the index {one_line(repr(index))}")
        by_index[index] = item.get("embedding")
    if set(by_index) != set(range(count)):
        raise UnusableAnswerError(f"it has {len(by_index)} embeddings for {count} inputs")
    try:
        vectors = np.array([by_index[index] for index in range(count)], np.float64)
    except (TypeError, ValueError, OverflowError):
        vectors = np.empty(0)
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise UnusableAnswerError("its embeddings are not lists of finite numbers, all of one length")
    return vectors
