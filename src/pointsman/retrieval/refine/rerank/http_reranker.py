"""Rerankers behind a server: Cohere, Jina, Text Embeddings Inference, vLLM, infinity, llama.cpp and similar servers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pointsman.retrieval.refine.rerank.base_reranker import MAX_CANDIDATES, TIMEOUT, BaseReranker
from pointsman.retrieval.refine.rerank.text_length import shortened
from pointsman.text import repair
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.network.http_addresses import address, one_line
from pointsman.tools.network.json_client import JSONClient, UnknownShapeError, UnusableAnswerError
from pointsman.values.argument_checks import check_count, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

API = Literal["auto", "cohere", "jina", "tei"]

MAX_CHARS: Final = 4000
"""Characters sent per document: some 1,000 tokens."""

_PATHS: Final = {"cohere": "/v2/rerank", "jina": "/v1/rerank", "tei": "/rerank"}
_BATCHES: Final = {"cohere": 100, "jina": 100, "tei": 32}
"""Documents per request; TEI accepts 32 by default."""

_WITHOUT_LIMIT: Final = 60.0
"""Seconds for all requests of one ranking if the caller has set no timeout."""

_RESULTS: Final = ("results", "data")
_SCORES: Final = ("relevance_score", "score")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An address to call, and the shape of its requests."""

    url: str
    api: str


class HTTPReranker(BaseReranker):
    """A client for any server with a rerank endpoint.

    - ``"cohere"``: ``POST /v2/rerank``; ``"jina"``: ``POST /v1/rerank``, also offered by vLLM, infinity and llama.cpp;
      ``"tei"``: ``POST /rerank`` of Text Embeddings Inference.
    - ``"auto"`` goes by the address; if several shapes remain, it tries them in turn until the server accepts one, once
      in the life of this object.

    Results are matched to documents by ``index``, never by their order; an answer without exactly one number for each
    document is rejected. Requests that may succeed later (no connection, 408, 429, 5xx) are retried with growing,
    jittered pauses, or after the time in ``Retry-After``, as far as ``timeout`` and half a minute allow.

    The key is sent in the header ``Authorization``, to the given address and nowhere else: redirects are not followed,
    and an ``http://`` address of another machine is rejected unless ``insecure`` says that the connection is safe.

    The async version runs in a worker thread, so that one connection pool serves any number of event loops; if it is
    cancelled, its request goes on until its timeout.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api: API = "auto",
        api_key: str | None = None,
        insecure: bool = False,
        retries: int = 2,
        max_chars: int | None = MAX_CHARS,
        max_tokens_per_doc: int | None = None,
        batch_size: int | None = None,
        max_candidates: int = MAX_CANDIDATES,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            url: the server (``https://api.cohere.com``, ``http://localhost:8080``) or its endpoint
                (``https://api.jina.ai/v1/rerank``). A query string after ``?`` is sent too, but must not hold a key:
                httpx logs whole addresses.
            model: the server's name for the model; None if it has only one.
            api: the shape of requests; see the class.
            api_key: None for servers that need none.
            insecure: send the key to another machine without encryption.
            retries: how often a request that may succeed later is retried.
            max_chars: characters sent per document, a Chinese one counting as three; documents are cut between
                sentences or words. None sends all. Some servers fail on texts longer than their model's input: for 512
                tokens, 1500 is safe.
            max_tokens_per_doc: passed on to servers with Cohere's API, which then cut there.
            batch_size: documents per request; None: 100, or 32 for TEI.
            max_candidates: hits of a ranking that are scored.
            timeout: seconds for one ``rerank`` or ``refine``, including all its requests and pauses.
            cache: how many scores to remember.

        Raises:
            InputError: an argument is invalid, or the key would be sent unencrypted.
        """
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        if api not in get_args(API):
            raise InputError(f"api is one of {', '.join(get_args(API))}, not {api!r}")
        url_parts = address(url)
        self._client = JSONClient(url_parts, api_key, insecure=insecure, retries=retries)
        self._endpoints_left = _endpoints(url_parts, api)
        self._model = model
        self._max_chars = None if max_chars is None else check_count(max_chars, "max_chars")
        self._max_tokens = None if max_tokens_per_doc is None else check_count(max_tokens_per_doc, "max_tokens_per_doc")
        self._batch_size = None if batch_size is None else check_count(batch_size, "batch_size")
        self._url = urlunsplit(url_parts._replace(query=""))

    def __repr__(self) -> str:
        return f"HTTPReranker({self._url!r}, model={self._model!r})"

    @property
    def name(self) -> str:
        """The model and its address, with the settings that change scores."""
        limits = f"|{self._max_chars}" + ("" if self._max_tokens is None else f"|{self._max_tokens}")
        return f"{self._model or 'rerank'}@{self._url}{limits}"

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._client.close()

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score per text, on the server's scale.

        Raises:
            ModelError: the server failed, or its answer is unusable.
        """
        deadline = time.monotonic() + (self.timeout or _WITHOUT_LIMIT)
        inputs = [_sendable(text if self._max_chars is None else shortened(text, self._max_chars)) for text in texts]
        return self._scores(_sendable(query), inputs, deadline)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _scores(self, query: str, texts: list[str], deadline: float) -> list[float]:
        """The scores, by the first endpoint that the server accepts."""
        refused: list[str] = []
        for endpoint in self._endpoints_left:
            scores: list[float] = []
            try:
                for batch in batched(texts, self._batch_size or _BATCHES[endpoint.api]):
                    scores += _read(
                        self._client.post(endpoint.url, self._request(endpoint.api, query, batch), deadline), len(batch)
                    )
                    self._endpoints_left = (endpoint,)
            except UnknownShapeError as error:
                refused.append(f"{urlsplit(endpoint.url).path} as {endpoint.api}: {error}")
                if scores:
                    break  # it accepted other batches, so the fault is in this one
            except UnusableAnswerError as error:
                raise ModelError(
                    f"{self._url} returned no usable answer: {self._client.without_key(str(error))}"
                ) from None
            else:
                return scores
        raise ModelError(f"{self._url} rejects our requests: {self._client.without_key('; '.join(refused))}")

    def _request(self, api: str, query: str, texts: list[str]) -> dict[str, Any]:
        if api == "tei":
            return {"query": query, "texts": texts, "truncate": True}
        fields: dict[str, Any] = {"query": query, "documents": texts, "top_n": len(texts)}
        if self._model is not None:
            fields["model"] = self._model
        if api == "jina":
            fields["return_documents"] = False
        elif self._max_tokens is not None:
            fields["max_tokens_per_doc"] = self._max_tokens
        return fields


def _read(answer: Any, count: int) -> list[float]:
    """The scores by index.

    Raises:
        UnusableAnswerError: there is not exactly one finite number per document.
    """
    results = answer
    if isinstance(answer, dict):
        results = next((answer[key] for key in _RESULTS if key in answer), None)
    if not isinstance(results, list):
        raise UnusableAnswerError(f"it contains no list of results: {one_line(repr(answer))}")
    scores: dict[int, float] = {}
    for result in results:
        if not isinstance(result, dict):
            raise UnusableAnswerError(f"a result is not an object: {one_line(repr(result))}")
        index, score = result.get("index"), next((result[key] for key in _SCORES if key in result), None)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise UnusableAnswerError(f"a result has the index {one_line(repr(index))}; it is from 0 to {count - 1}")
        if index in scores:
            raise UnusableAnswerError(f"two results have the index {index}")
        if not is_number(score):
            raise UnusableAnswerError(
                f"result {index} has the score {one_line(repr(score))}; a score is a finite number"
            )
        scores[index] = float(score)
    if len(scores) != count:
        raise UnusableAnswerError(f"it has {len(scores)} results for {count} documents")
    return [scores[index] for index in range(count)]


def _sendable(text: str) -> str:
    # JSON cannot carry lone surrogates; servers reject empty texts, and those written in C stop at a NUL.
    return repair(text).replace("\0", " ") or " "


def _endpoints(split_url: SplitResult, api: str) -> tuple[_Endpoint, ...]:
    """The endpoints possible at an address, the likeliest first."""
    path = split_url.path.rstrip("/")

    def endpoint(api: str, path: str) -> _Endpoint:
        return _Endpoint(urlunsplit(split_url._replace(path=path)), api)

    if path.endswith("/rerank"):
        if api == "auto":
            version = path.split("/")[-2]
            names = {"v2": ["cohere"], "v1": ["jina"]}.get(version, ["tei", "jina"])
            return tuple(endpoint(name, path) for name in names)
        return (endpoint(api, path),)
    for version, its_api in (("/v1", "jina"), ("/v2", "cohere")):
        if path.endswith(version):
            return (endpoint(its_api if api == "auto" else api, f"{path}/rerank"),)
    if api == "auto":
        host = split_url.hostname or ""
        names = ["cohere"] if host == "cohere.com" or host.endswith(".cohere.com") else ["jina", "cohere", "tei"]
        return tuple(endpoint(name, path + _PATHS[name]) for name in names)
    return (endpoint(api, path + _PATHS[api]),)
