"""The language model budget of one search: calls, tokens and time, shared by all of its stages.

Questions that are searched together share as many budgets as they are.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.llm.base_llm import ACCOUNT, BookedCall, Completion
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import Breaker, Deadline
from pointsman.tools.sync_and_async import set_within
from pointsman.values.argument_checks import is_number

if TYPE_CHECKING:
    from collections.abc import Iterator


SHARE: Final = 0.5
"""The share of a search's time limit that its language model calls may take together."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one search; calls that would exceed them are not made, and the answer says so.

    Whatever the budget, all model calls of a search together have at most half of its time limit (the setting
    ``timeout``), so that time remains for searching.

    Attributes:
        calls: the maximum number of model calls.
        tokens: of all prompts and answers together, as counted by the model, otherwise estimated. A call whose prompt
            would exceed the limit is not made; the answers of running calls may exceed it.
        seconds: counted from the first stage that may call a model; a call still running then is abandoned. None: half
            of the search's time limit.
        call_seconds: for one call; None: the setting ``llm_timeout``.

    Raises:
        InputError: a limit is negative, or a number of seconds is not above 0.
    """

    calls: int = 32
    tokens: int = 50_000
    seconds: float | None = None
    call_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("tokens", self.tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"{name} of a budget is an int from 0 up, not {value!r:.80}")
        for name, seconds in (("seconds", self.seconds), ("call_seconds", self.call_seconds)):
            if seconds is not None and not (is_number(seconds) and seconds > 0):
                raise InputError(f"{name} of a budget is a number above 0, or None, not {seconds!r:.80}")

    def for_questions(self, count: int) -> Budget:
        """Return the budget of this many questions that are searched together."""
        if count == 1:
            return self
        seconds = None if self.seconds is None else count * self.seconds
        return replace(self, calls=count * self.calls, tokens=count * self.tokens, seconds=seconds)


class Spending:
    """The account of one search; its calls run concurrently, so it is thread-safe.

    While it is active, every call that a stage makes by `pointsman.llm.base_llm.ask` or `aask` is booked on it.

    Args:
        budget: the limits.
        timeout: the time limit of the search, in seconds; None: no limit.
        breaker: leaves out models that keep failing; by default none is left out.
    """

    def __init__(self, budget: Budget, timeout: float | None = None, breaker: Breaker | None = None) -> None:
        self.budget = budget
        self.calls = 0
        self.tokens = 0
        self.breaker = breaker or Breaker(None)
        self._seconds, self._remedy = budget.seconds, "raise the seconds of its Budget"
        if timeout is not None and (budget.seconds is None or SHARE * timeout < budget.seconds):
            self._seconds, self._remedy = SHARE * timeout, f"models have half of timeout={timeout:g}: raise timeout"
        self._deadline = Deadline(self._seconds)
        self._lock = threading.Lock()

    @contextmanager
    def booked(self, llm: Any, prompt: str) -> Iterator[BookedCall]:
        """Book a call for the block, and tell the breaker how it ended: a model that keeps failing is left out.

        Raises:
            ModelError: the model is left out for a while, or the budget is used up.
        """
        name = f"model {id(llm)}"
        if (reason := self.breaker.why_not(name)) is not None:
            raise ModelError(f"{type(llm).__name__} is {reason}")
        call = self.begin(prompt)
        try:
            yield call
        except ModelError as error:
            self.breaker.record(name, error)
            raise
        self.breaker.record(name, None)

    def left(self, at_most: float | None = None) -> float | None:
        """Seconds left, at most ``at_most``; None if there is no limit."""
        return self._deadline.left(at_most)

    def begin(self, prompt: str) -> BookedCall:
        """Book a call.

        Raises:
            ModelError: the budget is used up.
        """
        cost, remaining, limit = estimated(prompt), self.left(), self.budget.call_seconds
        with self._lock:
            if self.calls >= self.budget.calls:
                raise _used_up(f"{self.budget.calls} calls")
            if self.tokens + cost > self.budget.tokens:
                raise _used_up(f"{self.budget.tokens} tokens, of which {self.tokens} are spent")
            if remaining is not None and remaining <= 0:
                raise _used_up(f"{self._seconds:g} s", self._remedy)
            self.calls += 1
            self.tokens += cost
        if limit is not None and (remaining is None or limit < remaining):
            return BookedCall(limit, "raise llm_timeout", cost)
        return BookedCall(remaining, self._remedy, cost)

    def end(self, call: BookedCall, answer: Completion) -> None:
        """Replace the booked tokens by the actual cost of the call."""
        usage = answer.usage
        has_usage = usage is not None and usage.prompt_tokens + usage.completion_tokens > 0
        estimate = call.tokens + estimated(answer.text)
        cost = usage.prompt_tokens + usage.completion_tokens if usage and has_usage else estimate
        with self._lock:
            self.tokens += cost - call.tokens


_ACCOUNT_LIST: Final[ContextVar[list[Spending] | None]] = ContextVar("pointsman-accounts", default=None)


@contextmanager
def accounts() -> Iterator[list[Spending]]:
    """Collect the accounts of all searches of the ``with`` block, each with its ``calls`` and ``tokens``."""
    account_list: list[Spending] = []
    with set_within(_ACCOUNT_LIST, account_list):
        yield account_list


@contextmanager
def spending(budget: Budget, timeout: float | None = None, breaker: Breaker | None = None) -> Iterator[Spending]:
    """Return the active account; if there is none, a new one with these limits for the ``with`` block.

    So a strategy within a strategy spends from the outer account, and so do stages in other threads and tasks,
    which start with a copy of the context.

    Args:
        budget: see `Spending`, also for the others.
        timeout: the time limit of the search, in seconds.
        breaker: leaves out models that keep failing.
    """
    active = ACCOUNT.get()
    if isinstance(active, Spending):
        yield active
        return
    account = Spending(budget, timeout, breaker)
    if (account_list := _ACCOUNT_LIST.get()) is not None:
        account_list.append(account)
    with set_within(ACCOUNT, account):
        yield account


def estimated(text: str) -> int:
    """Estimates the number of tokens of a text."""
    from pointsman.ingest import estimate_tokens

    return estimate_tokens(text)


def _used_up(limit: str, remedy: str = "raise it with Budget(…)") -> ModelError:
    return ModelError(f"the model was not called: this search's budget is used up ({limit}); {remedy}")
