"""A language model for tests and examples: it answers from a script, with faults and delays on demand."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from pointsman.errors import InputError, ModelError
from pointsman.llm import BaseLLM, Completion, Schema, Usage


@dataclass(frozen=True, slots=True)
class Delay:
    """A reply that takes its time."""

    seconds: float
    reply: Reply


Reply = str | Mapping[str, Any] | Sequence[Any] | Completion | Exception | Delay
"""A text; data, which is sent as JSON; a whole completion; an exception, which is raised; any of them delayed."""

Rules = Mapping[str | re.Pattern[str], Reply]


class Call(NamedTuple):
    """What a model was asked."""

    prompt: str
    schema: Schema | None


class ScriptedLLM(BaseLLM):
    """Replies as the script says, the same on every run, and keeps what it was asked in ``calls``.

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
            replies: a list, one reply per call; or rules, the first of which that occurs in the prompt (a text as it
                stands, a pattern where it is found) replies; or a function from prompt to reply.
            supports_schema: whether it behaves as a model that can be held to a JSON schema: then replies that are JSON
                come with ``data``, and `Call.schema` holds the schema. It does not check replies against it.
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
        """The next reply.

        Raises:
            ModelError: the script has no reply for this call.
        """
        seconds, reply = self._next(prompt, schema)
        time.sleep(seconds)
        return self._answer(prompt, reply)

    async def acomplete(self, prompt: str, *, schema: Schema | None = None) -> Completion:
        """The same, awaited; delays can be cancelled."""
        seconds, reply = self._next(prompt, schema)
        await anyio.sleep(seconds)
        return self._answer(prompt, reply)

    def _next(self, prompt: str, schema: Schema | None) -> tuple[float, Any]:
        with self._lock:
            position = len(self.calls)
            self.calls.append(Call(prompt, schema if self._supports_schema else None))
        reply: Any = self._scripted(prompt, position)
        seconds = 0.0
        while isinstance(reply, Delay):
            seconds, reply = seconds + reply.seconds, reply.reply
        return seconds, reply

    def _scripted(self, prompt: str, position: int) -> Reply:
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
        data = None
        if self._supports_schema:
            try:
                data = json.loads(text)
            except ValueError:
                data = None  # as a server whose model was cut off
        return Completion(text, data, Usage(len(prompt.split()), len(text.split()), 1))
