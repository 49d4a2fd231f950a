"""Language models: their answers, the base class of our clients, and functions that call any model.

Callers use `ask` and `aask`, which accept anything with ``complete(prompt)``: they pass on a JSON schema if the model
takes one, limit the time, and translate every failure into `ModelError`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from functools import partial
from operator import add
from typing import Any, Final, Protocol, TypeGuard

import anyio

from pointsman.tools.errors import InputError, ModelError, PointsmanError
from pointsman.tools.sync_and_async import Twins, in_thread, limited, wait_for

Schema = Mapping[str, Any]
"""A JSON schema of the expected answer."""


def object_schema(members: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object that has all of these members, and no others."""
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of calls; add with ``+``."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer: its text, its data if it follows a requested schema, and its cost if known."""

    text: str
    data: Any = None
    usage: Usage | None = None

    @property
    def text_or_json(self) -> str:
        """The text; the data as JSON if there is none."""
        return self.text or ("" if self.data is None else json.dumps(self.data, ensure_ascii=False))


def data_of(text: str) -> Any:
    """Return a text as data; None if it is not JSON, such as a truncated answer, which a lenient parser may read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class BaseLLM(Twins, needs=("complete", "acomplete")):
    """A language model. Implement ``complete`` or ``acomplete``; this class supplies the other.

    Either may omit the keyword ``schema`` if the model does not support one.
    """

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Answer a prompt.

        Args:
            prompt: the prompt; it also asks for JSON in words, as not every model supports a schema.
            schema: the JSON schema to follow, if possible.
        """
        return wait_for(lambda: self.acomplete(prompt, **_schema_for(self.acomplete, schema)))

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Async version of `complete`; a synchronous ``complete`` runs in a worker thread."""
        return await in_thread(lambda: self.complete(prompt, **_schema_for(self.complete, schema)))


@dataclass(frozen=True, slots=True)
class BookedCall:
    """A model call that a budget allows.

    Attributes:
        seconds: that it may take; None: no limit.
        remedy: what raises that limit.
        tokens: booked for its prompt.
    """

    seconds: float | None
    remedy: str
    tokens: int


class Account(Protocol):
    """Books the calls of models."""

    def booked(self, llm: Any, prompt: str) -> AbstractContextManager[BookedCall]:
        """Book a call for the ``with`` block.

        Raises:
            ModelError: it is not allowed.
        """
        ...

    def end(self, call: BookedCall, answer: Completion) -> None:
        """Replace the booked tokens by the actual cost of the call."""
        ...


ACCOUNT: Final[ContextVar[Account | None]] = ContextVar("pointsman-account", default=None)
"""The account that every call of a model in this context is booked on; see `refine.budget.spending`."""

_IN_CALL: Final = ContextVar("pointsman-in-call", default=False)

RAISE_TIMEOUT: Final = "raise the timeout"
"""The remedy that the error of a late model names, unless the caller knows which setting it is."""


def ask(
    llm: Any, prompt: str, *, schema: Schema | None = None, timeout: float | None = None, remedy: str = RAISE_TIMEOUT
) -> Completion:
    """Call any model.

    Args:
        llm: anything with ``complete(prompt)`` (or ``acomplete``) that returns an object with ``.text``, or a string;
            ``complete`` may be a coroutine function too.
        prompt: the prompt.
        schema: passed on if ``complete`` has a parameter of that name.
        timeout: seconds after which the call is abandoned (its thread ends when the call does). None: no limit.
        remedy: what the error of a late model tells the reader to do.

    Raises:
        ModelError: the model failed, timed out, or returned no text, or the search's budget does not allow the call.
        InputError: ``llm`` is not a model.
    """
    with _book_call(llm, prompt, timeout, remedy) as (seconds, advice, end):
        answer = _ask(llm, prompt, schema, seconds, advice)
        end(answer)
    return answer


def _ask(llm: Any, prompt: str, schema: Schema | None, timeout: float | None, remedy: str) -> Completion:
    if _is_synchronous(complete := getattr(llm, "complete", None)):
        return _call_with_limit(llm, lambda: complete(prompt, **_schema_for(complete, schema)), timeout, remedy)
    return _call_with_limit(
        llm, lambda: wait_for(lambda: _acomplete(llm)(prompt, **_schema_for(_acomplete(llm), schema))), timeout, remedy
    )


async def aask(
    llm: Any,
    prompt: str,
    *,
    schema: Schema | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  (the twin of ask)
    remedy: str = RAISE_TIMEOUT,
) -> Completion:
    """Async version of `ask`: uses ``acomplete`` if the model has one, else ``complete`` in a worker thread."""
    with _book_call(llm, prompt, timeout, remedy) as (seconds, advice, end):
        completion = await _aask(llm, prompt, schema, seconds, advice)
        end(completion)
    return completion


@contextmanager
def _book_call(
    llm: Any, prompt: str, timeout: float | None, remedy: str
) -> Iterator[tuple[float | None, str, Callable[[Completion], None]]]:
    """Book a call on the account of this context, if there is one; what the model itself calls is not booked again.

    Yields:
        The seconds of the call, the remedy if it is late, and a function to call with the answer.
    """
    account = ACCOUNT.get()
    if account is None or _IN_CALL.get():
        yield timeout, remedy, lambda _: None
        return
    with account.booked(llm, prompt) as call:
        token = _IN_CALL.set(True)
        try:
            if call.seconds is not None and (timeout is None or call.seconds < timeout):
                timeout, remedy = call.seconds, call.remedy
            yield timeout, remedy, lambda answer: account.end(call, answer)
        finally:
            _IN_CALL.reset(token)


async def _aask(llm: Any, prompt: str, schema: Schema | None, timeout: float | None, remedy: str) -> Completion:  # noqa: ASYNC109
    acomplete = getattr(llm, "acomplete", None)
    try:
        with anyio.fail_after(timeout):
            if inspect.iscoroutinefunction(acomplete):
                answer = await acomplete(prompt, **_schema_for(acomplete, schema))
            elif _is_synchronous(complete := getattr(llm, "complete", None)):
                answer = await in_thread(lambda: complete(prompt, **_schema_for(complete, schema)))
            else:
                answer = await _acomplete(llm)(prompt, **_schema_for(_acomplete(llm), schema))
    except PointsmanError:
        raise
    except TimeoutError as error:
        raise _late(llm, remedy, timeout) from error
    except Exception as error:  # translated: a user-defined model may raise anything
        raise _model_error(llm, error) from error
    return _completion(llm, answer)


def is_model(llm: Any) -> bool:
    """Whether an object can be called as a language model."""
    return any(callable(getattr(llm, name, None)) for name in ("complete", "acomplete"))


def checked_model(llm: Any) -> Any:
    """Return a language model.

    Raises:
        InputError: it is none.
    """
    if not is_model(llm):
        raise InputError(f"an LLM has complete(prompt) or acomplete(prompt); {type(llm).__name__} has neither")
    return llm


_known_functions: dict[Any, bool] = {}  # by function: inspecting takes longer than a call of a scripted model


def _has_schema(method: Callable[..., Any]) -> bool:
    function = getattr(method, "__func__", None)
    if function in _known_functions and function is not None:
        return _known_functions[function]
    try:
        result = "schema" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # for example a C function, whose parameters are unknown
        result = False
    if function is not None and len(_known_functions) < 1000:
        _known_functions[function] = result
    return result


def _schema_for(method: Callable[..., Any], schema: Schema | None) -> dict[str, Any]:
    return {"schema": schema} if schema is not None and _has_schema(method) else {}


def _is_synchronous(method: Any) -> TypeGuard[Callable[..., Any]]:
    return callable(method) and not inspect.iscoroutinefunction(method)


def _acomplete(llm: Any) -> Callable[..., Any]:
    """The method of a model to await: ``acomplete``, or a ``complete`` that is a coroutine function."""
    checked_model(llm)
    acomplete = getattr(llm, "acomplete", None)
    return acomplete if callable(acomplete) else llm.complete  # type: ignore[no-any-return]


def _call_with_limit(llm: Any, call: Callable[[], Any], timeout: float | None, remedy: str) -> Completion:
    """Call the model and translate its errors."""
    try:
        answer = limited(call, timeout, f"ask-{type(llm).__name__}", partial(_late, llm, remedy))
    except PointsmanError:
        raise
    except Exception as error:  # a model of the user's may raise anything
        raise _model_error(llm, error) from error
    return _completion(llm, answer)


def _late(llm: Any, remedy: str, timeout: float | None) -> ModelError:
    limit = "its time" if timeout is None else f"{timeout:.3g} s"
    return ModelError(f"{type(llm).__name__} did not answer within {limit}; {remedy}, or use a faster model")


def _model_error(llm: Any, error: Exception) -> ModelError:
    return ModelError(f"{type(llm).__name__} failed: {type(error).__name__}: {error}")


def _completion(llm: Any, answer: Any) -> Completion:
    text = answer if isinstance(answer, str) else getattr(answer, "text", None)
    if not isinstance(text, str):
        raise ModelError(f"{type(llm).__name__} returned {type(answer).__name__} without a text: {answer!r:.80}")
    return answer if isinstance(answer, Completion) else Completion(text)
