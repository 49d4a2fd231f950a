"""A language model for tests and examples: answers from a script, with errors and delays on demand."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from pointsman.llm.base_llm import BaseLLM, Completion, Schema, Usage, data_of
from pointsman.tools.errors import InputError, ModelError


@dataclass(frozen=True, slots=True)
class Delay:
    """A delayed reply."""

    seconds: float
    reply: Reply


Reply = str | Mapping[str, Any] | Sequence[Any] | Completion | Exception | Delay
"""A text; data to send as JSON; a complete completion; an exception to raise; or any of these, delayed."""

Rules = Mapping[str | re.Pattern[str], Reply]


class Call(NamedTuple):
    """One call of a model."""

    prompt: str
    schema: Schema | None


class ScriptedLLM(BaseLLM):
    """Replies from a script, the same on every run, and records its calls in ``calls``.

    Example:
        >>> llm = ScriptedLLM({"capital of France": "Paris", re.compile("^Choose"): {"choice": 2}})
        >>> llm.complete("What is the capital of France?").text, llm.complete("Choose one.").text
        ('Paris', '{"choice": 2}')
    """

    def __init__(
        self, replies: Sequence[Reply] | Rules | Callable[[str], Reply], *, supports_schema: bool = False
    ) -> None:
        """Set the script.

        Args:
            replies: a list, one reply per call; or rules, of which the first whose text or pattern occurs in the prompt
                replies; or a function from prompt to reply.
            supports_schema: whether to behave like a model that supports JSON schemas: JSON replies then come with
                ``data``, and `Call.schema` has the schema. Replies are not validated against it.
        """
        self._rules = replies if isinstance(replies, Mapping) else None
        self._function = replies if callable(replies) else None
        self._list = () if isinstance(replies, Mapping) or callable(replies) else tuple(replies)
        if isinstance(replies, str):
            raise InputError(f"replies are a list, rules or a function, not the one text {replies!r:.80}; write [text]")
        self._supports_schema = supports_schema
        self._lock = threading.Lock()
        self.calls: list[Call] = []

    def complete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Return the next reply.

        Raises:
            ModelError: the script has no reply for this call.
        """
        seconds, reply = self._next_reply(prompt, schema)
        time.sleep(seconds)
        return self._answer(prompt, reply)

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """Async version of `complete`; delays can be cancelled."""
        seconds, reply = self._next_reply(prompt, schema)
        await anyio.sleep(seconds)
        return self._answer(prompt, reply)

    def _next_reply(self, prompt: str, schema: Schema | None) -> tuple[float, Any]:
        with self._lock:
            position = len(self.calls)
            self.calls.append(Call(prompt, schema if self._supports_schema else None))
        reply: Any = self._scripted_reply(prompt, position)
        seconds = 0.0
        while isinstance(reply, Delay):
            seconds, reply = seconds + reply.seconds, reply.reply
        return seconds, reply

    def _scripted_reply(self, prompt: str, position: int) -> Reply:
        if self._function is not None:
            return self._function(prompt)
        if self._rules is not None:
            for rule, reply in self._rules.items():
                if rule.search(prompt) if isinstance(rule, re.Pattern) else rule in prompt:
                    return reply
            raise ModelError(f"no rule of the script fits the prompt {prompt!r:.200}")
        if position >= len(self._list):
            raise ModelError(f"the script has {len(self._list)} replies, and this is call {position + 1}")
        return self._list[position]

    def _answer(self, prompt: str, reply: Any) -> Completion:
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
        data = data_of(text) if self._supports_schema else None
        return Completion(text, data, Usage(len(prompt.split()), len(text.split()), 1))
