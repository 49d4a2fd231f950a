"""Whether what concurrent writers of one document were answered, and what they left, could come from some order.

That is linearizability (Herlihy and Wing 1990): each step takes effect at one moment between its call and its return.
The search is that of Wing and Gong (1993), remembering which sets of steps have led to which state (Lowe 2017).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pointsman.evaluation.conformance.suite_samples import at_once
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    import random

    from pointsman.values.types import AddResult, Document

State = tuple[str, str, bool] | None
"""A document's text, its metadata as JSON, and whether it has the vector of its searchable text; None: not stored."""

Step = Sequence[Any]
"""The kind of a step and its arguments, such as ``("add", text, metadata)``; see `answer_of`."""

NEVER: Final = "never"
"""The answer of a step that certainly had no effect, such as one refused because the store was locked."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A step with its answer, and when it began and ended."""

    step: Step
    answer: str
    began: float
    ended: float


def state_of(document: Document | None, *, embedded: bool) -> State:
    """Return the state of a document that was read."""
    return None if document is None else (document.text, _json(document.metadata), embedded)


def _json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), sort_keys=True)


def answer_of(step: Step, state: State) -> tuple[State, str]:
    """Return what a step leaves of a state, and its answer.

    ``add`` writes a text with metadata and its vector, ``bare`` without a vector; ``embed`` adds the vector if text and
    metadata are stored so; ``set`` changes metadata, and keeps only what is set if its last argument is true; ``read``
    answers text and metadata.
    """
    kind, *arguments = step
    match kind:
        case "add" | "bare" | "embed":
            return _apply_write(kind, (arguments[0], _json(arguments[1])), state)
        case "delete":
            return None, "missing" if state is None else "deleted"
        case "read":
            return state, read_answer(state)
    if state is None:
        return None, "missing"
    values, replace = arguments
    metadata = {**({} if replace else json.loads(state[1])), **values}
    result = state[0], _json({key: value for key, value in metadata.items() if value is not None}), state[2]
    return result, "unchanged" if result == state else "updated"


def read_answer(state: State) -> str:
    """Return the answer of a read: not the vector, which is not read at the same moment."""
    return repr(None if state is None else state[:2])


def _apply_write(kind: str, content: tuple[str, str], state: State) -> tuple[State, str]:
    """Return what writing text and metadata leaves, and its answer."""
    has_content = state is not None and state[:2] == content
    has_vector = state is not None and state[2]
    if kind == "embed" and not has_content:
        return state, "skipped"
    is_unchanged = has_content and (kind == "bare" or has_vector)
    answer = "added" if state is None else "unchanged" if is_unchanged else "updated"
    return (state if is_unchanged else (*content, kind != "bare")), answer


def is_some_order(before: State, steps: Sequence[Operation], after: State) -> bool:
    """Whether the steps, in some order that respects which ended before which began, gave these answers and state."""
    members: set[tuple[int, State]] = set()
    steps = [step for step in steps if step.answer != NEVER]
    stack: list[tuple[int, State]] = [(0, before)]
    while stack:
        taken_steps, state = stack.pop()
        remaining = [number for number in range(len(steps)) if not taken_steps >> number & 1]
        if not remaining:
            if state == after:
                return True
            continue
        first_end = min(steps[number].ended for number in remaining)
        for number in remaining:
            if steps[number].began > first_end:
                continue  # another one was over before it began
            following, answer = answer_of(steps[number].step, state)
            position = taken_steps | 1 << number, following
            if answer == steps[number].answer and position not in members:
                members.add(position)
                stack.append(position)
    return False


def random_step(chance: random.Random, label: str) -> Step:
    """Return a random step; labels make the values that it writes recognisable."""
    metadata = {key: label for key in ("a", "b", "title") if chance.random() < 0.4}
    kind = chance.choice(("add", "add", "bare", "embed", "set", "set", "set", "delete", "read"))
    match kind:
        case "add" | "bare":
            return kind, chance.choice(("signal", f"signal {label}")), metadata
        case "embed":
            return (kind,)  # of what is stored
        case "set":
            removals = {key: None for key in ("a", "b", "title") if chance.random() < 0.2}
            return kind, {**metadata, **removals, label[:2]: label}, chance.random() < 0.1
        case _:
            return (kind,)


def run_script(
    script: Sequence[Step], do: Callable[[Step], str], read: Callable[[], Document | None]
) -> list[Operation]:
    """Do the steps one after the other; what ``embed`` is to embed is read first, as a step of its own."""
    operations: list[Operation] = []
    for step in script:
        document: Document | None = None
        start = time.monotonic()
        if step[0] in {"read", "embed"}:
            document = read()
            answer = read_answer(state_of(document, embedded=False))
            operations.append(Operation(("read",), answer, start, time.monotonic()))
        if step[0] == "embed" and document is not None:
            step = "embed", document.text, dict(document.metadata)  # noqa: PLW2901
            start = time.monotonic()
        elif step[0] in {"read", "embed"}:
            continue
        operations.append(Operation(step, do(step), start, time.monotonic()))
    return operations


def run_at_once(
    scripts: Sequence[Sequence[Step]], do: Callable[[Step], str], read: Callable[[], Document | None]
) -> list[Operation]:
    """Do the scripts in as many threads; return all steps."""
    groups = at_once([lambda script=script: run_script(script, do, read) for script in scripts])  # type: ignore[misc]
    return [operation for group in groups for operation in group]


def word_of(result: AddResult) -> str:
    """Return the answer of writing one document."""
    return "added" if result.added else "updated" if result.updated else "unchanged" if result.unchanged else "skipped"


def or_missing(call: Callable[[], AddResult]) -> str:
    """Return the answer of changing the metadata of one document."""
    try:
        return word_of(call())
    except InputError:
        return "missing"


def described(before: State, steps: Sequence[Operation], after: State) -> str:
    """Return a history in words, in the order of the calls."""
    lines = [
        f"{operation.step} -> {operation.answer}" for operation in sorted(steps, key=lambda operation: operation.began)
    ]
    return f"from {before}: {'; '.join(lines)}; left {after}"
