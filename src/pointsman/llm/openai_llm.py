"""Language models from any server with OpenAI's ``/v1/chat/completions`` API."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import anyio.lowlevel
import anyio.to_thread

from pointsman.llm.base_llm import BaseLLM, Completion, Schema, Usage, data_of
from pointsman.text import repair
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.network.openai_server import OpenAIServer

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

_log = logging.getLogger(__name__)

_DASHSCOPE = "https://dashscope.aliyuncs.com/compatible-mode/v1"

_MODES = ("json_schema", "tools", "prompt")
"""Ways to enforce a schema, strictest first; the last one relies on the prompt."""

_modes: dict[tuple[str, str], str] = {}
_modes_lock = threading.Lock()

_NOT_SUPPORTED = frozenset({400, 404, 415, 422, 501})
"""HTTP statuses with which servers reject unknown parameters."""


class OpenAILLM(BaseLLM):
    """A language model that uses the ``openai`` client: OpenAI, DashScope, vLLM, Ollama, llama.cpp and similar servers.

    For a schema, the strictest mode that the server supports is found at the first call and remembered for every client
    of this server and model: JSON-schema output, else function calling, else the prompt alone. Requests that may
    succeed later (no connection, 408, 409, 429, 5xx, a truncated body) are retried with growing, jittered pauses, or as
    ``Retry-After`` says if that is at most a minute. The key is sent only to the server and not stored elsewhere.

    The asynchronous twin runs in ``max_concurrency`` worker threads, so one client serves any number of event loops; a
    cancelled call abandons its request, which ends at its timeout.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        temperature: float | None = 0.0,
        max_tokens: int | None = 1024,
        timeout: float = 30,
        max_retries: int = 2,
        max_concurrency: int = 8,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            model: the server's name for the model.
            base_url: such as ``http://localhost:8000/v1``; None means ``OPENAI_BASE_URL``, else OpenAI's server.
            api_key: None means ``OPENAI_API_KEY`` for OpenAI's server and that in ``OPENAI_BASE_URL``, and no key for
                any other, which local servers accept.
            temperature: None leaves it to the server, as reasoning models require.
            max_tokens: maximum length of an answer; None leaves it to the server.
            timeout: seconds until one request counts as failed.
            max_retries: maximum number of retries of a request that may succeed later.
            max_concurrency: maximum concurrent requests; others wait.

        Raises:
            InputError: a number is out of range, or the proxy that the environment names cannot be used.
            MissingDependencyError: the package ``openai`` is not installed.
        """
        if max_concurrency < 1 or max_retries < 0 or timeout <= 0:
            raise InputError(
                "max_concurrency is at least 1, max_retries at least 0 and timeout above 0, "
                f"not {max_concurrency}, {max_retries} and {timeout}"
            )
        server = OpenAIServer.of(base_url, api_key)
        self._base_url, self._key, self._remedy_for = server.address, server.key, server.remedy_for
        self._client = server.client(timeout, max_retries, type(self).__name__)
        import openai

        self._errors = openai.OpenAIError, openai.APIStatusError
        self._model = model
        self._settings: dict[str, Any] = {
            name: value
            for name, value in (("temperature", temperature), ("max_tokens", max_tokens))
            if value is not None
        }
        self._max_concurrency = max_concurrency
        self._slots = threading.BoundedSemaphore(max_concurrency)
        self._limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("pointsman-openai")
        self._usage = Usage()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, base_url={self.base_url!r})"

    @property
    def base_url(self) -> str:
        """The server's address without user and password."""
        url_parts = urlsplit(self._base_url)
        return urlunsplit(url_parts._replace(netloc=url_parts.netloc.rpartition("@")[2]))

    @property
    def usage(self) -> Usage:
        """The cost of all calls so far, as reported by the server."""
        return self._usage

    @property
    def schema_mode(self) -> str | None:
        """How this server is made to follow a schema: json_schema, tools or prompt; None if not known yet."""
        return _modes.get((self._base_url, self._model))

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Answer a prompt, following the schema as strictly as the server supports.

        Raises:
            ModelError: the server failed or gave an unusable answer.
        """
        with self._slots:
            return self._send(prompt, None, "prompt") if schema is None else self._structured_completion(prompt, schema)

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Async version of `complete`."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(self._max_concurrency)
            self._limiter.set(limiter)
        call = partial(self.complete, prompt, schema=schema)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)

    def _structured_completion(self, prompt: str, schema: Schema) -> Completion:
        schema_mode = self.schema_mode
        for mode in _MODES if schema_mode is None else (schema_mode,):
            try:
                completion = self._send(prompt, schema, mode)
            except _NotSupportedError as error:
                if mode == _MODES[-1] or schema_mode is not None:
                    raise  # the mode is not the cause
                _log.info("%s does not do %s: %s", self, mode, error)
                continue
            with _modes_lock:
                _modes[self._base_url, self._model] = mode
            return completion
        raise AssertionError("the last mode returns or raises")

    def _send(self, prompt: str, schema: Schema | None, mode: str) -> Completion:
        any_error, status_error = self._errors
        try:
            answer: ChatCompletion = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": repair(prompt)}],
                **self._settings,
                **_parameters(schema, mode),
            )
        except (any_error, ValueError, TypeError) as error:  # the client passes on a body that is not JSON
            reason = f"{type(error).__name__}: {error}{self._remedy_for(error)}"
            message = self._safe(f"{self._model!r} at {self.base_url} failed: {reason}")
            is_unsupported = isinstance(error, status_error) and error.status_code in _NOT_SUPPORTED
            # A server may repeat the key in its message; in that case the original error is not shown either.
            cause = None if self._key and self._key in str(error) else error
            raise (_NotSupportedError if is_unsupported else ModelError)(message) from cause
        return self._completion(answer, schema is not None)

    def _completion(self, answer: ChatCompletion, has_schema: bool) -> Completion:
        try:
            message = answer.choices[0].message
            calls = message.tool_calls or ()
            text = calls[0].function.arguments if calls else _text_of(message.content)  # type: ignore[union-attr]
            refusal = "" if text else message.refusal
            cost = Usage(
                answer.usage.prompt_tokens or 0 if answer.usage else 0,
                answer.usage.completion_tokens or 0 if answer.usage else 0,
                1,
            )
        except (AttributeError, IndexError, TypeError) as error:
            excerpt = self._safe(f"{answer!r:.200}")
            raise ModelError(
                f"{self._model!r} at {self.base_url} did not answer with a completion: {excerpt}"
            ) from error
        with self._lock:
            self._usage += cost
        if refusal:
            raise ModelError(self._safe(f"{self._model!r} at {self.base_url} refused: {refusal!s:.200}"))
        return Completion(str(text), data_of(text) if has_schema else None, cost)

    def _safe(self, message: str) -> str:
        return message.replace(self._key, "[key]") if self._key else message


class DashScopeLLM(OpenAILLM):
    """Alibaba's DashScope (Qwen) through its OpenAI-compatible endpoint; the key comes from ``DASHSCOPE_API_KEY``."""

    def __init__(
        self, model: str = "qwen-plus", base_url: str = _DASHSCOPE, api_key: str | None = None, **settings: Any
    ):
        """Set up the client; ``settings`` are those of `OpenAILLM`.

        Raises:
            InputError: there is no key.
        """
        key = api_key or os.environ.get("DASHSCOPE_API_KEY")
        if not key:
            raise InputError("DashScope needs a key; set DASHSCOPE_API_KEY, or give api_key")
        super().__init__(model, base_url, key, **settings)


def _text_of(content: Any) -> str:
    """Return the text of a message, which some servers send in parts."""
    if isinstance(content, list):
        texts = (block.get("text") for block in content if isinstance(block, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


class _NotSupportedError(ModelError):
    """The server probably does not know a parameter of the request."""


def _parameters(schema: Schema | None, mode: str) -> dict[str, Any]:
    if schema is None or mode == "prompt":
        return {}
    if mode == "json_schema":
        form = {"name": "answer", "schema": dict(schema), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    function = {"name": "answer", "description": "Give the answer.", "parameters": dict(schema)}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "answer"}},
    }
