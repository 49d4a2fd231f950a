"""The conditions of a filter: what each means for the metadata of a document, and how it is written as text."""

from __future__ import annotations

import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from pointsman.text.unicode import compose, repair
from pointsman.tools.errors import FilterError
from pointsman.values.metadata import ID, TEXT, Kind, Typed, folded, typed, values_of

T = TypeVar("T")

MAX_LENGTH = 10_000
MAX_DEPTH = 64
MAX_LEAVES = 1_000


class Filter(ABC):
    """A condition on documents; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ()
    depth: int
    leaves: int

    @abstractmethod
    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether a document matches, given its `pointsman.Document.fields` or only its metadata."""

    def __and__(self, other: Filter) -> And:
        return And((*_operands(And, self), *_operands(And, other))) if isinstance(other, Filter) else NotImplemented

    def __or__(self, other: Filter) -> Or:
        return Or((*_operands(Or, self), *_operands(Or, other))) if isinstance(other, Filter) else NotImplemented

    def __invert__(self) -> Not:
        return Not(self)


class _Leaf(Filter):
    """A condition on one key."""

    __slots__ = ()
    depth: int = 1
    leaves: int = 1
    key: str

    def _take_key(self) -> None:
        """Check the key, and compare it as people see it."""
        check_key(self.key)
        object.__setattr__(self, "key", compose(self.key))


@dataclass(frozen=True, slots=True)
class Equals(_Leaf):
    """One of the key's values equals ``value``."""

    key: str
    value: str | float | bool = field(compare=False)
    typed: Typed = field(init=False, repr=False)
    """The value with its kind, as it is compared, also between filters (``True == 1`` in Python, not here)."""

    def __post_init__(self) -> None:
        self._take_key()
        object.__setattr__(self, "typed", typed_operand(self.key, self.value))

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return self.typed in values_of(fields, self.key)

    def __str__(self) -> str:
        return self._text("==")

    def _text(self, sign: str) -> str:
        return f"{_name(self.key)} {sign} {_literal(self.typed)}"


@dataclass(frozen=True, slots=True)
class In(_Leaf):
    """One of the key's values is one of ``values``."""

    key: str
    values: tuple[str | float | bool, ...] = field(compare=False)
    typed: frozenset[Typed] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take_key()
        if isinstance(self.values, str | Mapping) or not isinstance(self.values, Iterable):
            raise FilterError(f"{self.key!r}: in takes a list of values, not {self.values!r:.80}")
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "typed", frozenset(typed_operand(self.key, value) for value in self.values))

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return not self.typed.isdisjoint(values_of(fields, self.key))

    def __str__(self) -> str:
        return self._text("in")

    def _text(self, sign: str) -> str:
        values = (_literal(typed_operand(self.key, value)) for value in self.values)
        return f"{_name(self.key)} {sign} [{', '.join(values)}]"


class Interval(NamedTuple):
    """An interval of values of one kind; ``low`` or ``high`` is None on an open end."""

    kind: Kind
    low: Any = None
    low_included: bool = False
    high: Any = None
    high_included: bool = False

    def contains(self, value: Any) -> bool:
        """Whether a value of this kind lies inside."""
        return (self.low is None or value > self.low or (self.low_included and value == self.low)) and (
            self.high is None or value < self.high or (self.high_included and value == self.high)
        )


@dataclass(frozen=True, slots=True)
class Range(_Leaf):
    """One of the key's values lies within all given bounds."""

    key: str
    gt: str | float | None = field(default=None, compare=False)
    gte: str | float | None = field(default=None, compare=False)
    lt: str | float | None = field(default=None, compare=False)
    lte: str | float | None = field(default=None, compare=False)
    interval: Interval = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take_key()
        for strict, inclusive in (("gt", "gte"), ("lt", "lte")):
            if getattr(self, strict) is not None and getattr(self, inclusive) is not None:
                raise FilterError(f"{self.key!r}: give {strict} or {inclusive}, not both")
        low, high = (
            None if bound is None else typed_operand(self.key, bound)
            for bound in (self.gt if self.gte is None else self.gte, self.lt if self.lte is None else self.lte)
        )
        kinds = {bound[0] for bound in (low, high) if bound is not None}
        if not kinds:
            raise FilterError(f"{self.key!r}: a range needs a bound: gt, gte, lt or lte")
        if "boolean" in kinds:
            raise FilterError(f"{self.key!r}: true and false have no order; compare them with ==")
        if len(kinds) > 1:
            raise FilterError(f"{self.key!r}: both bounds of a range are numbers or both are strings")
        interval = Interval(kinds.pop(), low and low[1], self.gte is not None, high and high[1], self.lte is not None)
        object.__setattr__(self, "interval", interval)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        kind, contains = self.interval.kind, self.interval.contains
        return any(value[0] == kind and contains(value[1]) for value in values_of(fields, self.key))

    def __str__(self) -> str:
        kind, low, low_included, high, high_included = self.interval
        key, low_sign, high_sign = _name(self.key), "=" * low_included, "=" * high_included
        if low is None:
            return f"{key} <{high_sign} {_literal((kind, high))}"
        if high is None:
            return f"{key} >{low_sign} {_literal((kind, low))}"
        return f"{_literal((kind, low))} <{low_sign} {key} <{high_sign} {_literal((kind, high))}"


@dataclass(frozen=True, slots=True)
class PartOfText(_Leaf):
    """A condition on parts of strings."""

    key: str
    part: str
    ignore_case: bool = False
    operator: ClassVar[str]

    def __post_init__(self) -> None:
        self._take_key()
        if not isinstance(self.part, str):
            raise FilterError(f"{self.key!r}: {self.operator} takes a text, not {self.part!r:.80}")
        substring = repair(self.part)  # as values are stored; those of an id and a text are never composed
        object.__setattr__(self, "part", substring if self.key in (ID, TEXT) else compose(substring))

    @property
    def test(self) -> Callable[[str], bool]:
        """Return a predicate that says whether a string has the part; build it once for many strings."""
        (has_part, place), part = _HAVE_PART[self.operator], self.part
        if not self.ignore_case:
            return lambda value: has_part(value, part)
        folded_part, place_of_part = folded(part), place(len(part))
        return lambda value: has_part(folded(value[place_of_part]), folded_part)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        test = self.test
        return any(kind == "string" and test(value) for kind, value in values_of(fields, self.key))

    def __str__(self) -> str:
        return f"{_name(self.key)} {'i' * self.ignore_case}{self.operator} {_quote(self.part, chr(34))}"


@dataclass(frozen=True, slots=True)
class Contains(PartOfText):
    """One of the key's strings contains ``part``."""

    operator: ClassVar[str] = "contains"


@dataclass(frozen=True, slots=True)
class StartsWith(PartOfText):
    """One of the key's strings begins with ``part``."""

    operator: ClassVar[str] = "startswith"


@dataclass(frozen=True, slots=True)
class EndsWith(PartOfText):
    """One of the key's strings ends with ``part``."""

    operator: ClassVar[str] = "endswith"


_HAVE_PART: dict[str, tuple[Callable[[str, str], bool], Callable[[int], slice]]] = {
    "contains": (str.__contains__, lambda _: slice(None)),
    "startswith": (str.startswith, slice),
    "endswith": (str.endswith, lambda length: slice(-length, None)),
}
"""By operator: whether a text has a part, and where a part of some length can stand; folding keeps lengths."""

PARTS_OF_TEXT: dict[str, tuple[type[PartOfText], bool]] = {
    "i" * ignoring + make.operator: (make, ignoring)
    for make in (Contains, StartsWith, EndsWith)
    for ignoring in (False, True)
}
"""The operators on parts of strings, and whether each ignores case."""


@dataclass(frozen=True, slots=True)
class Exists(_Leaf):
    """The key has a value that can be filtered on."""

    key: str

    def __post_init__(self) -> None:
        self._take_key()

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return bool(values_of(fields, self.key))

    def __str__(self) -> str:
        return f"exists({_name(self.key)})"


@dataclass(frozen=True, slots=True)
class Junction(Filter):
    """Several conditions; size limits are checked here, so walking a tree is always bounded."""

    parts: tuple[Filter, ...]
    depth: int = field(init=False, repr=False, compare=False)
    leaves: int = field(init=False, repr=False, compare=False)
    word: ClassVar[str]

    def __post_init__(self) -> None:
        operands = tuple(self.parts)
        for operand in operands:
            _check_part(operand)
        object.__setattr__(self, "parts", operands)
        object.__setattr__(self, "depth", bounded_depth(1 + max((operand.depth for operand in operands), default=0)))
        object.__setattr__(self, "leaves", bounded_leaves(sum(operand.leaves for operand in operands) or 1))

    def __str__(self) -> str:
        if len(self.parts) < 2:
            return f"{self.word}({''.join(map(str, self.parts))})"
        return f" {self.word} ".join(map(_in_parentheses, self.parts))


@dataclass(frozen=True, slots=True)
class And(Junction):
    """All parts match."""

    word: ClassVar[str] = "and"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return all(operand.matches(fields) for operand in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Junction):
    """At least one part matches."""

    word: ClassVar[str] = "or"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return any(operand.matches(fields) for operand in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """The part does not match."""

    part: Filter
    depth: int = field(init=False, repr=False, compare=False)
    leaves: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_part(self.part)
        object.__setattr__(self, "depth", bounded_depth(1 + self.part.depth))
        object.__setattr__(self, "leaves", self.part.leaves)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return not self.part.matches(fields)

    def __str__(self) -> str:
        if isinstance(self.part, Equals | In):
            return self.part._text("!=" if isinstance(self.part, Equals) else "not in")  # noqa: SLF001  # a sibling
        return f"not {_in_parentheses(self.part)}"


def equal_to(key: str, value: object) -> Filter:
    """Return a filter: the key has this value, or, for None, no value.

    >>> print(equal_to("draft", None))
    not exists(draft)
    """
    return Not(Exists(key)) if value is None else Equals(key, value)  # type: ignore[arg-type]  # checked there


def one_of(key: str, values: Iterable[object]) -> Filter:
    """Return a filter: the key has one of these values, or, if None is among them, no value.

    >>> print(one_of("lang", ["ru", None]))
    lang in ["ru"] or not exists(lang)
    """
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        return In(key, values)  # type: ignore[arg-type]  # raises if the key is invalid
    all_values = tuple(values)
    values = tuple(value for value in all_values if value is not None)
    condition = In(key, values)  # type: ignore[arg-type]  # checked there
    return condition if len(values) == len(all_values) else Or((condition, Not(Exists(key))))


# --- checks -------------------------------------------------------------------------------------------------


def _operands(junction: type[Junction], condition: Filter) -> tuple[Filter, ...]:
    """Flatten ``a & b & c`` to one conjunction of three."""
    return condition.parts if isinstance(condition, junction) else (condition,)


def check_key(key: object) -> None:
    """Raise `FilterError` unless a value can be the key of a condition."""
    if not isinstance(key, str):
        raise FilterError(f"the key of a filter is a str, not {key!r:.80}")


def _check_part(operand: object) -> None:
    if not isinstance(operand, Filter):
        raise FilterError(f"the parts of a filter are filters, not {operand!r:.80}; parse_filter makes one")


def typed_operand(key: str, value: object) -> Typed:
    """Return the value that a key is compared with, with its type; raises `FilterError` if it has none."""
    if key in (ID, TEXT) and isinstance(value, str):
        return "string", value
    operand = typed(value)
    if operand is None:
        remedy = "; for documents without a value use not exists" if value is None else ""
        raise FilterError(f"{key!r}: a filter compares strings, numbers and booleans, not {value!r:.80}{remedy}")
    return operand


def bounded_depth(depth: int) -> int:
    """Return the depth of a filter, or raise `FilterError` if it is nested too deep."""
    if depth > MAX_DEPTH:
        raise FilterError(f"a filter nests at most {MAX_DEPTH} levels deep; name alternatives with in")
    return depth


def bounded_leaves(leaves: int) -> int:
    """Return the number of conditions of a filter, or raise `FilterError` if there are too many."""
    if leaves > MAX_LEAVES:
        raise FilterError(f"a filter has at most {MAX_LEAVES} conditions, not {leaves}; name alternatives with in")
    return leaves


# --- writing ------------------------------------------------------------------------------------------------

RESERVED_WORDS = frozenset({"and", "or", "not", "in", "exists", "true", "false", "null"})
BARE_KEY = re.compile(r"[^\W\d][\w.\-]*")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"} | {mark: mark for mark in "\\/\"'`“”‘’"}
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _in_parentheses(condition: Filter) -> str:
    return f"({condition})" if isinstance(condition, Junction) and len(condition.parts) > 1 else str(condition)


def _name(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) and key.lower() not in RESERVED_WORDS else _quote(key, "`")


def _quote(text: str, mark: str) -> str:
    def escape(character: str) -> str:
        if character == mark:
            return "\\" + mark
        # control characters cannot be shown, lone surrogates cannot be encoded
        unprintable = unicodedata.category(character) in {"Cc", "Cs"}
        return _ESCAPES.get(character) or (f"\\u{ord(character):04x}" if unprintable else character)

    return f"{mark}{''.join(map(escape, text))}{mark}"


def _literal(value: Typed) -> str:
    kind, content = value
    if kind == "string":
        return _quote(content, '"')
    if kind == "boolean":
        return "true" if content else "false"
    if math.isinf(content):
        return "1e999" if content > 0 else "-1e999"
    if isinstance(content, int):
        return str(content)
    return str(int(content)) if content.is_integer() and abs(content) < 2**53 else repr(content)
