"""What a language model's answer says once it has thought: the text after its reasoning, without fences."""

from __future__ import annotations

import re

_TAGS = "think|thinking|thought|reasoning|analysis|reflection"
_THOUGHT_END = re.compile(rf"</(?:{_TAGS})>", re.IGNORECASE)
_THINKING = re.compile(rf"\s*<(?:{_TAGS})>", re.IGNORECASE)
_FENCES = re.compile(r"```+[ \t]*\w*|~~~+[ \t]*\w*")


class UnfinishedThoughtError(Exception):
    """The reasoning is there, the answer is not."""


def after_thinking(answer: str) -> str:
    r"""Return an answer without the model's reasoning.

    Raises:
        UnfinishedThoughtError: it ends within its reasoning, or with it.

    >>> after_thinking("<think>1 or 2?</think>\nIt is 2."), after_thinking("2")
    ('\nIt is 2.', '2')
    """
    *thoughts, text = _THOUGHT_END.split(answer)
    if thoughts and not text.strip():
        raise UnfinishedThoughtError
    if not thoughts and _THINKING.match(answer):
        raise UnfinishedThoughtError
    return text


def without_fences(answer: str) -> str:
    r"""Return an answer without the fences of code.

    >>> without_fences("```json\n[2]\n```").strip()
    '[2]'
    """
    return _FENCES.sub("", answer)
