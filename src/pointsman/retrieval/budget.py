"""What one search may spend on a language model: calls, tokens and time, in one account for all of its stages."""

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
        calls: of a model.
        tokens: of all prompts and answers together, as the model counts them, else estimated. A call is not begun
            that its prompt would carry over the limit; the answers of calls under way may go over it.
        seconds: from the first stage that may ask a model; a call under way then is abandoned.

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
    """The account of one search; its calls run at once, so it is safe to share between threads."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.calls = 0
        self.tokens = 0
        self._deadline = Deadline(budget.seconds)
        self._lock = threading.Lock()

    def left(self, at_most: float | None = None) -> float:
        """Seconds left, but at most ``at_most``."""
        remaining = self._deadline.left(at_most)
        assert remaining is not None, "a budget has seconds"
        return remaining

    def begin(self, prompt: str) -> tuple[float, int]:
        """Book a call; seconds that it may take, and the tokens booked for its prompt.

        Raises:
            ModelError: there is nothing left for it.
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
        """Correct what was booked by what the call has cost."""
        usage = answer.usage
        reported = usage is not None and usage.prompt_tokens + usage.completion_tokens > 0
        cost = usage.prompt_tokens + usage.completion_tokens if usage and reported else booked + estimated(answer.text)
        with self._lock:
            self.tokens += cost - booked


_OPEN: ContextVar[Spending | None] = ContextVar("pointsman-spending", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[Spending]:
    """The account that is open around here, else a new one of this budget for the length of the ``with`` block.

    So a strategy within a strategy spends from the outer one's account, and so do stages in other threads and tasks,
    which are started with a copy of the context.
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
    """A language model whose calls are booked on the account that is open; where none is, it is asked as it is.

    Args:
        llm: anything with ``complete(prompt)``; see `pointsman.llm.ask`.

    Raises:
        InputError: it is no model.
    """

    def __init__(self, llm: Any) -> None:
        if not any(callable(getattr(llm, name, None)) for name in ("complete", "acomplete")):
            raise InputError(f"an LLM has complete(prompt) or acomplete(prompt); {type(llm).__name__} has neither")
        self.llm = llm

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """The model's answer.

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
        """The same, awaited."""
        account = _OPEN.get()
        if account is None:
            return await aask(self.llm, prompt, schema=schema)
        seconds, booked = account.begin(prompt)
        answer = await aask(self.llm, prompt, schema=schema, timeout=seconds)
        account.end(booked, answer)
        return answer


def estimated(text: str) -> int:
    """Tokens that a text has, roughly."""
    from pointsman.ingest import estimate_tokens

    return estimate_tokens(text)


def _used_up(limit: str) -> ModelError:
    return ModelError(f"the model was not called: this search's budget is used up ({limit}); raise it with Budget(…)")
