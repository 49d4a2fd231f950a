"""Language models: what they answer, the base of our clients, and how to ask any of them.

Callers use `ask` and `aask`, which take anything with ``complete(prompt)``: they pass a JSON schema on where the model
takes one, limit the time, and translate whatever goes wrong into `ModelError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from pointsman._twins import Twins, in_thread, limited, wait_for
from pointsman.errors import InputError, ModelError, PointsmanError

Schema = Mapping[str, Any]
"""A JSON schema of what is wanted."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls cost; sums with ``+``."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer: its text, the same as data where a schema was asked for and kept, and its cost where it is known."""

    text: str
    data: Any = None
    usage: Usage | None = None


class BaseLLM(Twins, needs=("complete", "acomplete")):
    """A language model. Implement ``complete`` or ``acomplete``; the other one comes from here.

    Either may do without the keyword ``schema``, if the model cannot be held to one.
    """

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Answer a prompt.

        Args:
            prompt: what to answer; it asks for JSON in words as well, as not every model can be held to a schema.
            schema: the JSON schema to keep to, where that is possible.
        """
        return wait_for(lambda: self.acomplete(prompt, **_schema_for(self.acomplete, schema)))

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """The same, awaited; a synchronous ``complete`` runs in a worker thread."""
        return await in_thread(lambda: self.complete(prompt, **_schema_for(self.complete, schema)))


def ask(llm: Any, prompt: str, *, schema: Schema | None = None, timeout: float | None = None) -> Completion:
    """Ask any model.

    Args:
        llm: anything with ``complete(prompt)`` (or ``acomplete``) that returns an object with ``.text``, or a string.
        prompt: what to answer.
        schema: passed on where ``complete`` has a parameter of that name.
        timeout: seconds; then the call is abandoned (its thread ends when it ends). None waits as long as it takes.

    Raises:
        ModelError: the model failed, took too long, or returned nothing with a text.
        InputError: ``llm`` is no model.
    """
    if callable(complete := getattr(llm, "complete", None)):
        return _limited(llm, lambda: complete(prompt, **_schema_for(complete, schema)), timeout)
    return _limited(
        llm, lambda: wait_for(lambda: _acomplete(llm)(prompt, **_schema_for(_acomplete(llm), schema))), timeout
    )


async def aask(llm: Any, prompt: str, *, schema: Schema | None = None, timeout: float | None = None) -> Completion:  # noqa: ASYNC109  (the twin of ask)
    """The same, awaited: ``acomplete`` where the model has one, else ``complete`` in a worker thread."""
    acomplete = getattr(llm, "acomplete", None)
    try:
        with anyio.fail_after(timeout):
            if inspect.iscoroutinefunction(acomplete):
                answer = await acomplete(prompt, **_schema_for(acomplete, schema))
            elif callable(complete := getattr(llm, "complete", None)):
                answer = await in_thread(lambda: complete(prompt, **_schema_for(complete, schema)))
            else:
                answer = await _acomplete(llm)(prompt)
    except PointsmanError:
        raise
    except TimeoutError as error:
        raise _late(llm, timeout) from error
    except Exception as error:  # translated: a model of the user's may raise anything
        raise _failed(llm, error) from error
    return _completion(llm, answer)


def takes_schema(llm: Any) -> bool:
    """Whether a model can be given a JSON schema."""
    return any(
        callable(method) and _has_schema(method)
        for name in ("complete", "acomplete")
        if (method := getattr(llm, name, None))
    )


_known: dict[Any, bool] = {}  # by function: inspecting takes longer than a scripted model does


def _has_schema(method: Callable[..., Any]) -> bool:
    function = getattr(method, "__func__", None)
    if function in _known and function is not None:
        return _known[function]
    try:
        result = "schema" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # written in C, say: then it has no such parameter that we could know of
        result = False
    if function is not None and len(_known) < 1000:
        _known[function] = result
    return result


def _schema_for(method: Callable[..., Any], schema: Schema | None) -> dict[str, Any]:
    return {"schema": schema} if schema is not None and _has_schema(method) else {}


def _acomplete(llm: Any) -> Callable[..., Any]:
    acomplete = getattr(llm, "acomplete", None)
    if not callable(acomplete):
        raise InputError(f"an LLM has complete(prompt) or acomplete(prompt); {type(llm).__name__} has neither")
    return acomplete  # type: ignore[no-any-return]


def _limited(llm: Any, call: Callable[[], Any], timeout: float | None) -> Completion:
    """What the model answers to a call; what goes wrong is translated."""
    try:
        answer = limited(call, timeout, f"ask-{type(llm).__name__}", partial(_late, llm))
    except PointsmanError:
        raise
    except Exception as error:  # a model of the user's may raise anything
        raise _failed(llm, error) from error
    return _completion(llm, answer)


def _late(llm: Any, timeout: float | None) -> ModelError:
    limit = "its time" if timeout is None else f"{timeout:g} s"
    return ModelError(f"{type(llm).__name__} did not answer within {limit}; raise the timeout or use a faster model")


def _failed(llm: Any, error: Exception) -> ModelError:
    return ModelError(f"{type(llm).__name__} failed: {type(error).__name__}: {error}")


def _completion(llm: Any, answer: Any) -> Completion:
    text = answer if isinstance(answer, str) else getattr(answer, "text", None)
    if not isinstance(text, str):
        raise ModelError(f"{type(llm).__name__} returned {type(answer).__name__} without a text: {answer!r:.80}")
    return answer if isinstance(answer, Completion) else Completion(text)
