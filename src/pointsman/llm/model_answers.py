"""What a language model's answer says once it has thought: the text after its reasoning, without fences."""

from __future__ import annotations

import re

_TAGS = "think|thinking|thought|reasoning|analysis|reflection"
_THOUGHT_END = re.compile(rf"</(?:{_TAGS})>", re.IGNORECASE)
_THINKING = re.compile(rf"\s*<(?:{_TAGS})>", re.IGNORECASE)
_FENCES = re.compile(r"```+[ \t]*\w*|~~~+[ \t]*\w*")


class DefectError(Exception):
    """An answer that cannot be used.

    Args:
        problem: the defect's name, such as ``"empty"``: prompts say it in words.
        detail: what is wrong.
    """

    def __init__(self, problem: str, detail: str = "") -> None:
        super().__init__(f"{problem}: {detail}" if detail else problem)
        self.problem, self.detail = problem, detail


def after_thinking(answer: str) -> str:
    r"""Return an answer without the model's reasoning.

    Raises:
        DefectError: it ends within its reasoning, or with it.

    >>> after_thinking("<think>1 or 2?</think>\nIt is 2."), after_thinking("2")
    ('\nIt is 2.', '2')
    """
    *thoughts, text = _THOUGHT_END.split(answer)
    if not text.strip() if thoughts else _THINKING.match(answer):
        raise DefectError("truncated", "the reasoning is there, the answer is not")
    return text


def finished_answer(answer: str) -> str:
    """Return an answer without the model's reasoning; nothing if it never ends."""
    try:
        return after_thinking(answer)
    except DefectError:
        return ""


def without_fences(answer: str) -> str:
    r"""Return an answer without the fences of code.

    >>> without_fences("```json\n[2]\n```").strip()
    '[2]'
    """
    return _FENCES.sub("", answer)
