r"""Metadata filters: an immutable tree, its semantics, and its notations.

>>> wanted = parse_filter('year >= 2020 and (lang = ru or tag in [news, "to read"]) and not exists(draft)')
>>> wanted.matches({"year": 2023, "tag": ["news", "rail"]})
True
>>> print(parse_filter({"category": "环保", "year": {"gte": 2020, "lt": 2024}}))
category == "环保" and 2020 <= year < 2024

The semantics of a filter, here and in every store (all stores are tested against ``matches``):

- Values are strings, numbers and booleans; dates, UUIDs, decimals and numpy scalars are converted to their JSON form.
  ``None`` and NaN are not values. A list matches when one of its members does. A key *exists* when it has at least one
  value, and is ``null`` when it has none.
- Numbers compare exactly, including integers of any size (``2 == 2.0``, ``2**53 != 2**53 + 1``); beyond the range of
  doubles they are infinite. A boolean is not a number (``True`` is not 1). Strings compare by code points, so ISO dates
  sort by time; a date and time with a time zone is converted to UTC before any comparison, including of parts.
- A range considers only values of the same kind as its bounds, and a single value must satisfy both bounds.
- A part of a string may begin and end anywhere. Without case, letters are compared one to one (``ß`` equals ``ẞ``, not
  ``ss``).
- ``Not`` is plain negation: a document without the key matches ``key != 1``.
- ``a.b`` is the key of that name, and also ``b`` in the mapping ``a`` or in the mappings of a list ``a``. Mappings
  under a key that begins with ``_`` are stored but not filtered on.
- ``_id`` is the document's id and ``_text`` its text; metadata of these names cannot be filtered on.
- ``And(())`` matches everything, ``Or(())`` nothing.

Expressions::

    year >= 2020     2020 <= year < 2024     lang = ru     lang != "ru"     tag in [a, 'b c']
    tag not in [a]   exists(draft)           draft exists  draft = null     tag in [a, null]
    title contains "signal"   title startswith "The "      title endswith ".pdf"      title icontains "SIGNAL"
    not …            … and …                 … or …        ( … )

``icontains``, ``istartswith`` and ``iendswith`` ignore case. ``and`` binds tighter than ``or``. A key goes in backticks
if it has other characters than letters, digits, ``_``, ``-`` and ``.``, or does not begin with a letter or ``_``.
Strings go in single or double quotes with JSON escapes; a single word needs no quotes. ``and()`` and ``or()`` write
trees of fewer than two parts. Full-width Chinese punctuation is accepted.

Mappings: ``{"lang": "ru", "tag": ["a", "b"], "year": {"gte": 2020}}`` requires every entry; a list means *in*, and null
*without a value*; the operators are eq ne in nin gt gte lt lte exists contains icontains startswith istartswith
endswith iendswith, with or without a leading ``$``: ``{"title": {"contains": "signal"}}``; ``{"$and": […]}``,
``{"$or": […]}``, ``{"$not": {…}}`` combine conditions (the ``$`` is required, as a key may be named ``and``).
"""

from __future__ import annotations

import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from pointsman._values import ID, TEXT, Kind, Typed, facts, folded, typed, typed_values, values_of
from pointsman.errors import FilterError

__all__ = [
    "And",
    "Contains",
    "EndsWith",
    "Equals",
    "Exists",
    "Filter",
    "In",
    "Interval",
    "Kind",
    "Not",
    "Or",
    "PartOfText",
    "Range",
    "StartsWith",
    "Typed",
    "equal_to",
    "facts",
    "one_of",
    "parse_filter",
    "parse_optional",
    "typed",
    "typed_values",
]

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


@dataclass(frozen=True, slots=True)
class Equals(_Leaf):
    """One of the key's values equals ``value``."""

    key: str
    value: str | float | bool = field(compare=False)
    typed: Typed = field(init=False, repr=False)
    """The value with its kind, as it is compared, also between filters (``True == 1`` in Python, not here)."""

    def __post_init__(self) -> None:
        _check_key(self.key)
        object.__setattr__(self, "typed", _operand(self.key, self.value))

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
        _check_key(self.key)
        if isinstance(self.values, str | Mapping) or not isinstance(self.values, Iterable):
            raise FilterError(f"{self.key!r}: in takes a list of values, not {self.values!r:.80}")
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "typed", frozenset(_operand(self.key, value) for value in self.values))

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return not self.typed.isdisjoint(values_of(fields, self.key))

    def __str__(self) -> str:
        return self._text("in")

    def _text(self, sign: str) -> str:
        values = (_literal(_operand(self.key, value)) for value in self.values)
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
        _check_key(self.key)
        for strict, inclusive in (("gt", "gte"), ("lt", "lte")):
            if getattr(self, strict) is not None and getattr(self, inclusive) is not None:
                raise FilterError(f"{self.key!r}: give {strict} or {inclusive}, not both")
        low, high = (
            None if bound is None else _operand(self.key, bound)
            for bound in (
                self.gt if self.gte is None else self.gte,
                self.lt if self.lte is None else self.lte,
            )
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
        _check_key(self.key)
        if not isinstance(self.part, str):
            raise FilterError(f"{self.key!r}: {self.operator} takes a text, not {self.part!r:.80}")

    @property
    def test(self) -> Callable[[str], bool]:
        """Return a predicate that says whether a string has the part; build it once for many strings."""
        raise NotImplementedError

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

    @property
    def test(self) -> Callable[[str], bool]:
        """Return a predicate that says whether a string contains the part."""
        if self.ignore_case:
            substring = folded(self.part)
            return lambda value: substring in folded(value)
        return lambda value: self.part in value


@dataclass(frozen=True, slots=True)
class StartsWith(PartOfText):
    """One of the key's strings begins with ``part``."""

    operator: ClassVar[str] = "startswith"

    @property
    def test(self) -> Callable[[str], bool]:
        """Return a predicate that says whether a string begins with the part."""
        if self.ignore_case:
            prefix = folded(self.part)
            return lambda value: folded(value[: len(prefix)]) == prefix
        return lambda value: value.startswith(self.part)


@dataclass(frozen=True, slots=True)
class EndsWith(PartOfText):
    """One of the key's strings ends with ``part``."""

    operator: ClassVar[str] = "endswith"

    @property
    def test(self) -> Callable[[str], bool]:
        """Whether a string ends with the part."""
        if self.ignore_case:
            suffix = folded(self.part)
            return lambda value: folded(value[max(0, len(value) - len(suffix)) :]) == suffix
        return lambda value: value.endswith(self.part)


_PARTS_OF_TEXT: dict[str, tuple[type[PartOfText], bool]] = {
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
        _check_key(self.key)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return bool(values_of(fields, self.key))

    def __str__(self) -> str:
        return f"exists({_name(self.key)})"


@dataclass(frozen=True, slots=True)
class _Junction(Filter):
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
        object.__setattr__(self, "depth", _bounded_depth(1 + max((operand.depth for operand in operands), default=0)))
        object.__setattr__(self, "leaves", _bounded_leaves(sum(operand.leaves for operand in operands) or 1))

    def __str__(self) -> str:
        if len(self.parts) < 2:
            return f"{self.word}({''.join(map(str, self.parts))})"
        return f" {self.word} ".join(map(_in_parentheses, self.parts))


@dataclass(frozen=True, slots=True)
class And(_Junction):
    """All parts match."""

    word: ClassVar[str] = "and"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return all(operand.matches(fields) for operand in self.parts)


@dataclass(frozen=True, slots=True)
class Or(_Junction):
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
        object.__setattr__(self, "depth", _bounded_depth(1 + self.part.depth))
        object.__setattr__(self, "leaves", self.part.leaves)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See the module's rules."""
        return not self.part.matches(fields)

    def __str__(self) -> str:
        if isinstance(self.part, Equals | In):
            return self.part._text("!=" if isinstance(self.part, Equals) else "not in")  # noqa: SLF001  # a sibling
        return f"not {_in_parentheses(self.part)}"


def parse_filter(source: str | Mapping[str, Any] | Filter) -> Filter:
    """Read a filter from an expression or a mapping; a `Filter` is returned unchanged.

    Raises:
        FilterError: the filter is invalid; for an expression, with the position and what was expected there.
    """
    if isinstance(source, Filter):
        return source
    if isinstance(source, str):
        return _Parser(source).parse()
    if isinstance(source, Mapping):
        return _MappingReader().read(source, 1)
    raise FilterError(f"a filter is an expression or a mapping, not {type(source).__name__}: {source!r:.80}")


def parse_optional(source: str | Mapping[str, Any] | Filter | None) -> Filter | None:
    """Read a filter that may be left out: None, an empty string and an empty mapping are no filter.

    Raises:
        FilterError: the filter is invalid.
    """
    return None if source is None or source in ("", {}) else parse_filter(source)


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


def _operands(junction: type[_Junction], condition: Filter) -> tuple[Filter, ...]:
    """Flatten ``a & b & c`` to one conjunction of three."""
    return condition.parts if isinstance(condition, junction) else (condition,)


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise FilterError(f"the key of a filter is a str, not {key!r:.80}")


def _check_part(part: object) -> None:
    if not isinstance(part, Filter):
        raise FilterError(f"the parts of a filter are filters, not {part!r:.80}; parse_filter makes one")


def _operand(key: str, value: object) -> Typed:
    if key in (ID, TEXT) and isinstance(value, str):
        return "string", value
    operand = typed(value)
    if operand is None:
        remedy = "; for documents without a value use not exists" if value is None else ""
        raise FilterError(f"{key!r}: a filter compares strings, numbers and booleans, not {value!r:.80}{remedy}")
    return operand


def _bounded_depth(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FilterError(f"a filter nests at most {MAX_DEPTH} levels deep; name alternatives with in")
    return depth


def _bounded_leaves(leaves: int) -> int:
    if leaves > MAX_LEAVES:
        raise FilterError(f"a filter has at most {MAX_LEAVES} conditions, not {leaves}; name alternatives with in")
    return leaves


# --- writing ------------------------------------------------------------------------------------------------

_RESERVED_WORDS = frozenset({"and", "or", "not", "in", "exists", "true", "false", "null"})
_BARE_KEY = re.compile(r"[^\W\d][\w.\-]*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"} | {mark: mark for mark in "\\/\"'`“”‘’"}
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _in_parentheses(condition: Filter) -> str:
    return f"({condition})" if isinstance(condition, _Junction) and len(condition.parts) > 1 else str(condition)


def _name(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) and key.lower() not in _RESERVED_WORDS else _quote(key, "`")


def _quote(text: str, mark: str) -> str:
    def escape(character: str) -> str:
        if character == mark:
            return "\\" + mark
        # control characters cannot be shown, lone surrogates cannot be encoded
        unprintable = unicodedata.category(character) in {"Cc", "Cs"}
        return _ESCAPED.get(character) or (f"\\u{ord(character):04x}" if unprintable else character)

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


# --- reading expressions ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<number> [-+]? (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?: [eE][-+]?[0-9]+ )? (?![\w.\-]) )
      | (?P<word>   [\w.\-]+ )
      | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | “(?:[^”\\]|\\.)*” | ‘(?:[^’\\]|\\.)*’ )
      | (?P<key>    `(?:[^`\\]|\\.)*` )
      | (?P<sign>   [=!<>＝！＜＞] [=＝]? | [≠≤≥] )
      | (?P<mark>   [()\[\],（）［］，、] )""",
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = str.maketrans(dict(zip("＝！＜＞（）［］，、", "=!<>()[],,", strict=True)) | {"≠": "!=", "≤": "<=", "≥": ">="})
_MIRRORED = {
    "<": "gt",
    "<=": "gte",
    ">": "lt",
    ">=": "lte",
}  # by the operator between a value and the key that follows
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


class _Token(NamedTuple):
    kind: str  # number word string key sign mark end
    text: str
    position: int

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_LENGTH:
            raise FilterError(f"a filter has at most {MAX_LENGTH:,} characters, not {len(source):,}; use a mapping")
        self._source = source
        self._tokens = list(self._scan())
        self._position = 0
        self._depth = 0

    def parse(self) -> Filter:
        result = self._disjunction()
        if self._peek().kind != "end":
            raise self._unexpected("and, or, or the end")
        return result

    def _scan(self) -> Iterable[_Token]:
        position = 0
        while True:
            space = _SPACE.match(self._source, position)
            position = space.end() if space else position
            if position == len(self._source):
                break
            token = _TOKEN.match(self._source, position)
            if token is None:
                quote = self._source[position] in "\"'`“‘"
                raise self._error("this quote is never closed" if quote else "cannot read this", position)
            kind = token.lastgroup or ""
            yield _Token(kind, token[0].translate(_PLAIN) if kind in {"sign", "mark"} else token[0], position)
            position = token.end()
        yield _Token("end", "the end", position)

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._position += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._peek().kind != "mark" or self._peek().text != mark:
            raise self._unexpected(repr(mark))
        self._position += 1

    def _disjunction(self) -> Filter:
        return self._chain("or", Or, lambda: self._chain("and", And, self._single))

    def _chain(self, word: str, junction: type[_Junction], operand: Callable[[], Filter]) -> Filter:
        operands = [operand()]
        while self._peek().word(word):
            self._position += 1
            operands.append(operand())
        return operands[0] if len(operands) == 1 else junction(tuple(operands))

    def _single(self) -> Filter:
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:  # the leaf counts as one
            raise self._error(f"nested deeper than {MAX_DEPTH} levels", self._peek().position)
        token = self._peek()
        result: Filter
        if token.word("not"):
            self._position += 1
            result = Not(self._single())
        elif token.kind == "mark" and token.text == "(":
            self._position += 1
            result = self._disjunction()
            self._expect(")")
        elif token.word("and", "or"):
            self._position += 1
            result = (And if token.word("and") else Or)(self._list("(", ")", self._disjunction))
        elif token.word("exists"):
            self._position += 1
            self._expect("(")
            result = Exists(self._key())
            self._expect(")")
        else:
            result = self._comparison()
        self._depth -= 1
        return result

    def _comparison(self) -> Filter:
        start = self._peek()
        try:
            return self._value_first() if self._at_value() else self._key_first()
        except FilterError as error:
            # add the position to errors raised by conditions, unless they already have one
            raise error if "\n" in str(error) else self._error(str(error), start.position) from None

    def _at_value(self) -> bool:
        token = self._peek()
        return token.kind in {"number", "string"} or (
            token.kind == "word" and not _BARE_KEY.fullmatch(token.text) and self._peek(1).text in _MIRRORED
        )

    def _value_first(self) -> Filter:
        bounds: dict[str, Any] = {}
        value = self._value()
        if self._peek().text not in _MIRRORED:
            raise self._unexpected("< <= > >= after a value that comes before the key (a key here goes in backticks)")
        bounds[_MIRRORED[self._take().text]] = value
        key = self._key()
        if self._peek().kind == "sign":
            sign = self._take()
            bound = _BOUNDS.get(sign.text)
            if bound is None or bound[0] == next(iter(bounds))[0]:
                raise self._error("expected the other bound of the range", sign.position)
            bounds[bound] = self._value()
        return Range(key, **bounds)

    def _key_first(self) -> Filter:  # noqa: PLR0911  (one for each operator)
        key = self._key()
        token = self._take()
        if token.word("exists"):
            return Exists(key)
        if token.word("in"):
            return one_of(key, self._values())
        if token.word("not") and self._peek().word("in"):
            self._position += 1
            return Not(one_of(key, self._values()))
        if token.word(*_PARTS_OF_TEXT):
            make, ignore_case = _PARTS_OF_TEXT[token.text.lower()]
            return make(key, self._substring(), ignore_case)
        if token.kind == "sign":
            if token.text in {"=", "=="}:
                return equal_to(key, self._value(null=True))
            if token.text == "!=":
                return Not(equal_to(key, self._value(null=True)))
            if token.text in _BOUNDS:
                return Range(key, **{_BOUNDS[token.text]: self._value()})
        self._position -= 1
        raise self._unexpected(f"== != > >= < <= in, not in, exists, {', '.join(_PARTS_OF_TEXT)}")

    def _substring(self) -> str:
        """Read the part to look for: a quoted string, or one bare word, possibly of digits."""
        token = self._peek()
        if token.kind not in {"number", "word", "string"}:
            raise self._unexpected("a text (in quotes)")
        self._position += 1
        return self._unescape(token) if token.kind == "string" else token.text

    def _key(self) -> str:
        token = self._peek()
        if token.kind == "key":
            self._position += 1
            return self._unescape(token)
        if token.kind != "word" or token.text.lower() in _RESERVED_WORDS:
            raise self._unexpected("a key")
        if not _BARE_KEY.fullmatch(token.text):
            raise self._unexpected("a key (in backticks where it does not begin with a letter or _)")
        self._position += 1
        return token.text

    def _values(self) -> tuple[object, ...]:
        opening = "(" if self._peek().text == "(" else "["
        return self._list(opening, ")" if opening == "(" else "]", lambda: self._value(null=True))

    def _list(self, opening: str, closing: str, item: Callable[[], T]) -> tuple[T, ...]:
        self._expect(opening)
        items: list[T] = []
        while self._peek().text != closing:
            if items:
                self._expect(",")
            items.append(item())
        self._expect(closing)
        return tuple(items)

    def _value(self, *, null: bool = False) -> str | float | bool | None:
        token = self._peek()
        if null and token.word("null"):
            self._position += 1
            return None
        if token.kind not in {"number", "string", "word"}:
            raise self._unexpected("a value: a number, true, false or a string (in quotes)")
        if token.kind == "word" and token.text.lower() in _RESERVED_WORDS - {"true", "false"}:
            remedy = "ask for documents without a value with not exists(key)" if token.word("null") else "quote it"
            raise self._error(f"expected a value; {token.text} is a reserved word: {remedy}", token.position)
        self._position += 1
        if token.kind == "string":
            return self._unescape(token)
        if token.kind == "word":
            return token.word("true") if token.word("true", "false") else token.text
        # Python refuses to parse ints of thousands of digits
        return float(token.text) if re.search(r"[.eE]", token.text) or len(token.text) > 310 else int(token.text)

    def _unescape(self, token: _Token) -> str:
        def plain(escape: re.Match[str]) -> str:
            code = escape[1]
            if len(code) == 5:
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                raise self._error(
                    f"unknown escape {escape[0]!r}; \\\\ is a backslash", token.position + 1 + escape.start()
                )
            return _ESCAPES[code]

        return _ESCAPE.sub(plain, token.text[1:-1])

    def _unexpected(self, expected: str) -> FilterError:
        token = self._peek()
        actual = token.text if token.kind == "end" else f"{token.text!r:.40}"
        return self._error(f"expected {expected}, found {actual}", token.position)

    def _error(self, message: str, position: int) -> FilterError:
        start = max(0, position - 60)
        excerpt = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in self._source[start : position + 30])
        # Chinese characters are two columns wide
        columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in excerpt[: position - start])
        return FilterError(f"filter, character {position + 1}: {message}\n  {excerpt}\n  {' ' * columns}^")


# --- reading mappings ---------------------------------------------------------------------------------------

_COMBINING = ("$and", "$or", "$not")
_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists", *_PARTS_OF_TEXT)


class _MappingReader:
    """Counts conditions while reading, so a mapping that contains itself repeatedly cannot explode."""

    def __init__(self) -> None:
        self._leaves = 0

    def read(self, source: object, depth: int) -> Filter:
        _bounded_depth(depth)
        if isinstance(source, Filter):
            self._count(source.leaves)
            return source
        if not isinstance(source, Mapping):
            raise FilterError(f"the parts of a filter are mappings, not {source!r:.80}")
        conditions = [condition for key, operand in source.items() for condition in self._entry(key, operand, depth)]
        if not conditions:
            self._count(1)
        return conditions[0] if len(conditions) == 1 else And(tuple(conditions))

    def _entry(self, key: object, operand: object, depth: int) -> list[Filter]:
        _check_key(key)
        assert isinstance(key, str)
        if key == "$not":
            return [Not(self.read(operand, depth + 1))]
        if key in _COMBINING:
            if not isinstance(operand, list | tuple):
                raise FilterError(f"{key} takes a list of mappings, not {operand!r:.80}")
            if not operand:
                self._count(1)
            return [(And if key == "$and" else Or)(tuple(self.read(item, depth + 1) for item in operand))]
        # A key may begin with "$" too; but what holds conditions, or nothing, is a misspelt operator.
        if key.startswith("$") and (key[1:] in _OPERATORS or operand in ([], ()) or _holds_conditions(operand)):
            raise FilterError(f"unknown operator {key!r}; known here: {', '.join(_COMBINING)}")
        if f"${key}" in _COMBINING and _holds_conditions(operand):
            raise FilterError(f"{key!r} would be a key of the metadata; conditions are combined by '${key}'")
        if isinstance(operand, Mapping):
            return self._operators(key, operand)
        self._count(1)
        return [one_of(key, operand) if isinstance(operand, list | tuple) else equal_to(key, operand)]

    def _operators(self, key: str, conditions: Mapping[Any, Any]) -> list[Filter]:
        operators: dict[str, Any] = {}
        for operator, value in conditions.items():
            name = str(operator).removeprefix("$")
            if name not in _OPERATORS:
                raise FilterError(f"{key!r}: unknown operator {operator!r:.80}; known: {', '.join(_OPERATORS)}")
            if name in operators:
                raise FilterError(f"{key!r}: {name} is given twice, with and without $")
            operators[name] = value
        if not operators:
            raise FilterError(f"{key!r}: an empty mapping is not a condition; known operators: {', '.join(_OPERATORS)}")
        bounds = {name: operators.pop(name) for name in ("gt", "gte", "lt", "lte") if name in operators}
        for name, bound in bounds.items():
            _operand(f"{key} {name}", bound)  # None would look like a missing bound
        filters: list[Filter] = [Range(key, **bounds)] if bounds else []
        filters += [_operator(key, name, value) for name, value in operators.items()]
        self._count(len(filters))
        return filters

    def _count(self, leaves: int) -> None:
        self._leaves = _bounded_leaves(self._leaves + leaves)


def _holds_conditions(operand: object) -> bool:
    """Whether an operand is for ``$and``, ``$or`` or ``$not``, and none that a key of the metadata can have."""
    if isinstance(operand, Mapping):
        return any(str(name).removeprefix("$") not in _OPERATORS for name in operand)
    return isinstance(operand, list | tuple) and any(isinstance(item, Mapping) for item in operand)


def _operator(key: str, name: str, value: Any) -> Filter:
    if name == "exists":
        if not isinstance(value, bool):
            raise FilterError(f"{key!r}: exists takes true or false, not {value!r:.80}")
        return Exists(key) if value else Not(Exists(key))
    if name in _PARTS_OF_TEXT:
        make, ignore_case = _PARTS_OF_TEXT[name]
        return make(key, value, ignore_case)
    condition = equal_to(key, value) if name in {"eq", "ne"} else one_of(key, value)
    return Not(condition) if name in {"ne", "nin"} else condition
