"""Asks a model until its answer can be used, a few times at most."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pointsman.llm.base_llm import Completion, Schema, aask, ask
from pointsman.llm.model_answers import DefectError
from pointsman.llm.prompt_templates import corrected
from pointsman.tools.errors import ModelError
from pointsman.tools.parallel_calls import DualCall, Mode

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def usable_answer(
    mode: Mode,
    llm: Any,
    prompt: str,
    read: Callable[[Completion, str], T],
    *,
    tries: int,
    corrections: Any = None,
    schema: Schema | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  (a limit of each call)
    **values: Any,
) -> T:
    """Return what is read from a model's answer.

    After an unusable answer the model is asked again with the problem named; a failed call is repeated.

    Args:
        mode: how to wait.
        llm: see `ask`.
        prompt: the first prompt.
        read: reads an answer to a prompt; raises `DefectError` if it is unusable.
        tries: how many calls there may be.
        corrections: prompts whose ``retry`` and ``problems`` name the problem; None: the same prompt again.
        schema: see `ask`.
        timeout: seconds for one call.
        values: of the placeholders of a correction.

    Raises:
        ModelError: no answer was usable; the last defect or failure is its cause.
    """
    question = prompt
    for tries_left in reversed(range(tries)):
        call = partial(ask, llm, question, schema=schema, timeout=timeout)
        acall = partial(aask, llm, question, schema=schema, timeout=timeout)
        try:
            answer = await mode.one(DualCall(call, acall))
        except ModelError as error:
            cause: Exception = error
            question = prompt
        else:
            try:
                return read(answer, question)
            except DefectError as error:
                cause = error
                if corrections is not None:
                    words = corrections.problems.get(error.problem, error.problem)
                    question = corrected(prompt, corrections.retry, words, **values)
        _log.info("an answer of %s cannot be used (%s); %d more attempts", type(llm).__name__, cause, tries_left)
    raise ModelError(str(cause)) from cause
