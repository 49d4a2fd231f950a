"""The interface of all selectors.

To write one, subclass `BaseSelector` and implement ``select`` or ``aselect``. The base class supplies the other,
turns plain strings into queries and choices, handles trivial cases, and checks the result, so that selecting a choice
that does not exist is always an error. `as_selector` takes those that do not subclass it.

`ToolMetadata`, `SingleSelection` and `SelectorResult` are plain dataclasses, so that dataclasses of yours may derive
from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import DualCall
from pointsman.tools.sync_and_async import Twins, around, in_thread, wait_for
from pointsman.values.types import Query


@dataclass(slots=True, unsafe_hash=True)
class ToolMetadata:
    """A choice: its name and what it is for. ``metadata["examples"]`` may list queries that belong to it, or be one."""

    name: str
    description: str
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def examples(self) -> tuple[str, ...]:
        """Example queries from the metadata, if any."""
        examples = (self.metadata or {}).get("examples") or ()
        return (examples,) if isinstance(examples, str) else tuple(examples)

    @property
    def text(self) -> str:
        """Name and description as one text for selectors."""
        return f"{self.name}: {self.description}" if self.description else self.name


@dataclass(slots=True, unsafe_hash=True)
class SingleSelection:
    """One selected choice: its 0-based index, the reason, and its score if the selector has one."""

    index: int
    reason: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why a selector could not decide as intended (``why``), and what it did instead (``policy``)."""

    why: str
    policy: str


@dataclass(slots=True, unsafe_hash=True)
class SelectorResult:
    """The selected choices, best first.

    Attributes:
        selections: a list; empty if the selector abstains: no choice fits.
        confidence: 0 to 1, the selector's own estimate that its first selection is right; None if it has no estimate.
            Each selector documents the meaning of its number.
        fallback: None, or why the selector did not decide as intended and what it did instead.
        notes: how the answer was read leniently, such as an unknown number that was dropped.
    """

    selections: Sequence[SingleSelection] = field(hash=False)
    confidence: float | None = None
    fallback: Fallback | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.selections = list(self.selections)

    @property
    def abstained(self) -> bool:
        """Whether no choice was selected, as none fits."""
        return not self.selections

    @property
    def ind(self) -> int:
        """The index of the single selection.

        Raises:
            ValueError: there are several selections, or none.
        """
        return self._selection_of("inds").index

    @property
    def inds(self) -> list[int]:
        """The indices of all selections."""
        return [selection.index for selection in self.selections]

    @property
    def reason(self) -> str:
        """The reason of the single selection.

        Raises:
            ValueError: there are several selections, or none.
        """
        return self._selection_of("reasons").reason

    @property
    def reasons(self) -> list[str]:
        """The reasons of all selections."""
        return [selection.reason for selection in self.selections]

    def _selection_of(self, alternative: str) -> SingleSelection:
        if len(self.selections) != 1:
            raise ValueError(f"There are {len(self.selections)} selections, use .{alternative} instead")
        return self.selections[0]


Choices = Sequence[ToolMetadata | str]


class BaseSelector(Twins, needs=("select", "aselect")):
    """Chooses among described choices. Implement ``select`` or ``aselect``; this class supplies the other.

    An implementation may rely on: ``choices`` is a tuple of at least two `ToolMetadata`, ``query`` is a `Query`.
    """

    allow_abstain: bool = False
    """Whether an empty result is allowed; if so, a single choice is also put to the selector, as it may not fit."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.__dict__.keys() & {"select", "aselect"}:
            setattr(cls, name, around(cls.__dict__[name], _valid_input, _sound))

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Choose.

        Raises:
            InputError: there are no choices, or one is neither `ToolMetadata` nor a string.
        """
        return wait_for(self.aselect, choices, query)

    async def aselect(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Async version of `select`; a synchronous ``select`` runs in a worker thread."""
        return await in_thread(self.select, choices, query)


def _valid_input(
    selector: BaseSelector, choices: Choices, query: Query | str
) -> tuple[tuple[tuple[ToolMetadata, ...], Query], SelectorResult | None]:
    """Return the choices as metadata and the query, and the result if there is nothing to choose."""
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise InputError(f"choices are a list of ToolMetadata or strings, not {type(choices).__name__}")
    if set(map(type, choices)) == {ToolMetadata}:  # one pass in C: this runs before every selection
        metadata = cast("tuple[ToolMetadata, ...]", tuple(choices))
    else:
        metadata = tuple(map(as_choice, choices))
    if not metadata:
        raise InputError("there are no choices; give at least one to select from")
    is_only = len(metadata) == 1 and not selector.allow_abstain
    only_result = SelectorResult([SingleSelection(0, "the only choice")], confidence=1.0) if is_only else None
    return (metadata, Query.of(query)), only_result


def _as_result(selector: BaseSelector, result: Any) -> SelectorResult:
    """Return what a selector returned; of an object that is no `SelectorResult`, its selections, or its ``ind``."""
    if isinstance(result, SelectorResult):
        return result
    selections = getattr(result, "selections", None)
    if isinstance(selections, Sequence):
        pairs = [(getattr(selection, "index", None), getattr(selection, "reason", "")) for selection in selections]
    else:
        pairs = [(getattr(result, "ind", None), getattr(result, "reason", ""))]
    if any(type(index) is not int for index, _ in pairs):
        raise InputError(
            f"{type(selector).__name__}.select returned {type(result).__name__}, not a SelectorResult, "
            "nor an object with selections or ind"
        )
    return SelectorResult([SingleSelection(cast("int", index), str(reason or "")) for index, reason in pairs])


def _sound(selector: BaseSelector, arguments: tuple[Any, ...], outcome: object) -> SelectorResult:
    """Check that a result is valid, and return it."""
    choices = arguments[0]
    name = type(selector.selector if isinstance(selector, ForeignSelector) else selector).__name__
    result = _as_result(selector, outcome)
    if len(set(result.inds)) != len(result.inds) or not all(0 <= index < len(choices) for index in result.inds):
        raise InputError(f"{name} selected {result.inds} of {len(choices)} choices; indices are 0-based and distinct")
    if result.abstained and not selector.allow_abstain:
        raise InputError(f"{name} selected nothing, which is not allowed; set allow_abstain to allow it")
    return result


def as_choice(choice: object) -> ToolMetadata:
    """Return a choice as metadata: a string is its name; a tool of any framework has a name, a description, or both.

    They are read from the object itself or, as LlamaIndex's tools have it, from its ``metadata``.

    Raises:
        InputError: it has neither.
    """
    if isinstance(choice, ToolMetadata):
        return choice
    if isinstance(choice, str):
        return ToolMetadata(choice, "")
    for source in (choice, getattr(choice, "metadata", None)):
        name, description = (getattr(source, attribute, None) or "" for attribute in ("name", "description"))
        if isinstance(name, str) and isinstance(description, str) and (name or description):
            metadata = getattr(source, "metadata", None)
            return ToolMetadata(
                name or description, description if name else "", metadata if isinstance(metadata, Mapping) else None
            )
    kind = type(choice).__name__
    raise InputError(
        f"a choice is a ToolMetadata, a str, or a tool with name and description, not {kind}: {choice!r:.80}"
    )


def as_selector(selector: object) -> BaseSelector:
    """Return a selector; one of LlamaIndex, or any object with ``select(choices, query)``, as a `BaseSelector`.

    Raises:
        InputError: it has no ``select``.
    """
    if isinstance(selector, BaseSelector):
        return selector
    if isinstance(selector, type) or not callable(getattr(selector, "select", None)):
        raise InputError(f"a selector has select(choices, query), {selector!r:.80} has not; subclass BaseSelector")
    return ForeignSelector(selector)


def selecting(selector: BaseSelector, choices: Choices, query: Query | str) -> DualCall[SelectorResult]:
    """Return the call that selects."""
    return DualCall(partial(selector.select, choices, query), partial(selector.aselect, choices, query))


class ForeignSelector(BaseSelector):
    """A selector that does not subclass `BaseSelector`; those of LlamaIndex are given texts, which they take."""

    def __init__(self, selector: Any) -> None:
        """Wrap an object with ``select(choices, query)`` and, if it has it, ``aselect``; see `as_selector`."""
        self.selector = selector
        self.allow_abstain = bool(getattr(selector, "allow_abstain", False))
        self._takes_text = any(base.__module__.startswith("llama_index.") for base in type(selector).__mro__)

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Return what the wrapped selector selects."""
        result: SelectorResult = self.selector.select(*self._arguments(choices, query))
        return result

    async def aselect(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Async version of `select`; without ``aselect`` the wrapped selector runs in a worker thread."""
        if not callable(getattr(self.selector, "aselect", None)):
            return await in_thread(self.select, choices, query)
        result: SelectorResult = await self.selector.aselect(*self._arguments(choices, query))
        return result

    def _arguments(self, choices: Choices, query: Query | str) -> tuple[Any, Any]:
        if self._takes_text:
            return [as_choice(choice).text for choice in choices], Query.of(query).text
        return list(choices), query
