"""The language model budget of one search: calls, tokens and time, shared by all of its stages.

Questions that are searched together share as many budgets as they are.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError, ModelError
from pointsman.llm import BaseLLM, Completion, Schema, aask, ask
from pointsman.retrieval.dispatch import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one search; calls that would exceed them are not made, and the answer says so.

    Attributes:
        calls: the maximum number of model calls.
        tokens: of all prompts and answers together, as counted by the model, otherwise estimated. A call whose prompt
            would exceed the limit is not made; the answers of running calls may exceed it.
        seconds: counted from the first stage that may call a model; a call still running then is abandoned.

    Raises:
        InputError: a limit is negative, or ``seconds`` is not above 0.
    """

    calls: int = 32
    tokens: int = 50_000
    seconds: float = 15.0

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("tokens", self.tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"{name} of a budget is an int from 0 up, not {value!r:.80}")
        seconds = self.seconds
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
            raise InputError(f"seconds of a budget is a number above 0, not {seconds!r:.80}")


class Spending:
    """The account of one search; its calls run concurrently, so it is thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.calls = 0
        self.tokens = 0
        self._deadline = Deadline(budget.seconds)
        self._lock = threading.Lock()

    def left(self, at_most: float | None = None) -> float:
        """Seconds left, at most ``at_most``."""
        remaining = self._deadline.left(at_most)
        assert remaining is not None, "a budget has seconds"
        return remaining

    def begin(self, prompt: str) -> tuple[float, int]:
        """Book a call; returns the seconds that it may take, and the tokens booked for its prompt.

        Raises:
            ModelError: the budget is used up.
        """
        cost, remaining = estimated(prompt), self.left()
        with self._lock:
            if self.calls >= self.budget.calls:
                raise _used_up(f"{self.budget.calls} calls")
            if self.tokens + cost > self.budget.tokens:
                raise _used_up(f"{self.budget.tokens} tokens, of which {self.tokens} are spent")
            if remaining <= 0:
                raise _used_up(f"{self.budget.seconds:g} s")
            self.calls += 1
            self.tokens += cost
        return remaining, cost

    def end(self, booked: int, answer: Completion) -> None:
        """Replace the booked tokens by the actual cost of the call."""
        usage = answer.usage
        reported = usage is not None and usage.prompt_tokens + usage.completion_tokens > 0
        cost = usage.prompt_tokens + usage.completion_tokens if usage and reported else booked + estimated(answer.text)
        with self._lock:
            self.tokens += cost - booked


_OPEN: ContextVar[Spending | None] = ContextVar("pointsman-spending", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[Spending]:
    """Return the active account; if there is none, a new one with this budget for the ``with`` block.

    So a strategy within a strategy spends from the outer account, and so do stages in other threads and tasks,
    which start with a copy of the context.
    """
    open_ = _OPEN.get()
    if open_ is not None:
        yield open_
        return
    token = _OPEN.set(Spending(budget))
    try:
        account = _OPEN.get()
        assert account is not None, "it was set just now"
        yield account
    finally:
        _OPEN.reset(token)


class MeteredLLM(BaseLLM):
    """A language model whose calls are booked on the active account; without one, calls pass through unchanged.

    Args:
        llm: anything with ``complete(prompt)``; see `pointsman.llm.ask`.

    Raises:
        InputError: ``llm`` is not a language model.
    """

    def __init__(self, llm: Any) -> None:
        if not any(callable(getattr(llm, name, None)) for name in ("complete", "acomplete")):
            raise InputError(f"an LLM has complete(prompt) or acomplete(prompt); {type(llm).__name__} has neither")
        self.llm = llm

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Return the model's answer.

        Raises:
            ModelError: the model failed, or the budget is used up.
        """
        account = _OPEN.get()
        if account is None:
            return ask(self.llm, prompt, schema=schema)
        seconds, booked = account.begin(prompt)
        answer = ask(self.llm, prompt, schema=schema, timeout=seconds)
        account.end(booked, answer)
        return answer

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Async version of `complete`."""
        account = _OPEN.get()
        if account is None:
            return await aask(self.llm, prompt, schema=schema)
        seconds, booked = account.begin(prompt)
        answer = await aask(self.llm, prompt, schema=schema, timeout=seconds)
        account.end(booked, answer)
        return answer


def estimated(text: str) -> int:
    """Estimates the number of tokens of a text."""
    from pointsman.ingest import estimate_tokens

    return estimate_tokens(text)


def _used_up(limit: str) -> ModelError:
    return ModelError(f"the model was not called: this search's budget is used up ({limit}); raise it with Budget(…)")
