"""Reads a filter from an expression, such as ``lang == "ru" and year >= 2020``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from pointsman.tools.errors import FilterError
from pointsman.values.filters.conditions import (
    BARE_KEY,
    ESCAPES,
    MAX_DEPTH,
    MAX_LENGTH,
    PARTS_OF_TEXT,
    RESERVED_WORDS,
    And,
    Exists,
    Filter,
    Junction,
    Not,
    Or,
    Range,
    equal_to,
    one_of,
)

T = TypeVar("T")

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
_MIRRORED_OPERATORS = {
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


class ExpressionParser:
    """Recursive descent, one token ahead."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_LENGTH:
            raise FilterError(f"a filter has at most {MAX_LENGTH:,} characters, not {len(source):,}; use a mapping")
        self._source = source
        self._tokens = list(self._scan())
        self._position = 0
        self._depth = 0

    def parse(self) -> Filter:
        """Return the filter; raises `FilterError` with the position of what was not expected."""
        result = self._disjunction()
        if self._peek().kind != "end":
            raise self._unexpected_token("and, or, or the end")
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

    def _peek(self, offset: int = 0) -> _Token:
        return self._tokens[min(self._position + offset, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._position += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._peek().kind != "mark" or self._peek().text != mark:
            raise self._unexpected_token(f"the mark {mark!r}")
        self._position += 1

    def _disjunction(self) -> Filter:
        return self._chain("or", Or, lambda: self._chain("and", And, self._single))

    def _chain(self, word: str, junction: type[Junction], operand: Callable[[], Filter]) -> Filter:
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
            token.kind == "word" and not BARE_KEY.fullmatch(token.text) and self._peek(1).text in _MIRRORED_OPERATORS
        )

    def _value_first(self) -> Filter:
        bounds: dict[str, Any] = {}
        value = self._value()
        if self._peek().text not in _MIRRORED_OPERATORS:
            raise self._unexpected_token(
                "< <= > >= after a value that comes before the key (a key here goes in backticks)"
            )
        bounds[_MIRRORED_OPERATORS[self._take().text]] = value
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
        if token.word(*PARTS_OF_TEXT):
            make, ignore_case = PARTS_OF_TEXT[token.text.lower()]
            return make(key, self._substring(), ignore_case)
        if token.kind == "sign":
            if token.text in {"=", "=="}:
                return equal_to(key, self._value(null=True))
            if token.text == "!=":
                return Not(equal_to(key, self._value(null=True)))
            if token.text in _BOUNDS:
                return Range(key, **{_BOUNDS[token.text]: self._value()})
        self._position -= 1
        raise self._unexpected_token(f"== != > >= < <= in, not in, exists, {', '.join(PARTS_OF_TEXT)}")

    def _substring(self) -> str:
        """Read the part to look for: a quoted string, or one bare word, possibly of digits."""
        token = self._peek()
        if token.kind not in {"number", "word", "string"}:
            raise self._unexpected_token("a text (in quotes)")
        self._position += 1
        return self._unescape(token) if token.kind == "string" else token.text

    def _key(self) -> str:
        token = self._peek()
        if token.kind == "key":
            self._position += 1
            return self._unescape(token)
        if token.kind != "word" or token.text.lower() in RESERVED_WORDS:
            raise self._unexpected_token("a key")
        if not BARE_KEY.fullmatch(token.text):
            raise self._unexpected_token("a key (in backticks where it does not begin with a letter or _)")
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
            raise self._unexpected_token("a value: a number, true, false or a string (in quotes)")
        if token.kind == "word" and token.text.lower() in RESERVED_WORDS - {"true", "false"}:
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
            if code not in ESCAPES:
                raise self._error(
                    f"unknown escape {escape[0]!r}; \\\\ is a backslash", token.position + 1 + escape.start()
                )
            return ESCAPES[code]

        return _ESCAPE.sub(plain, token.text[1:-1])

    def _unexpected_token(self, expected: str) -> FilterError:
        token = self._peek()
        actual = token.text if token.kind == "end" else f"{token.text!r:.40}"
        return self._error(f"expected {expected}, found {actual}", token.position)

    def _error(self, message: str, position: int) -> FilterError:
        start = max(0, position - 60)
        excerpt = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in self._source[start : position + 30])
        # Chinese characters are two columns wide
        columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in excerpt[: position - start])
        return FilterError(f"filter, character {position + 1}: {message}\n  {excerpt}\n  {' ' * columns}^")
