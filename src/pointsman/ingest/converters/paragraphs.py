"""Running text, numbers of lists, formulas in MathML and tables of documents made of XML or HTML, as blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pointsman.ingest.source_text import Block, Row, table_blocks

if TYPE_CHECKING:
    from lxml.etree import _Element

_NUMBER = re.compile(r"\s*[-+−–]?\d")
_UNIT = re.compile(r"(?<![^\W\d_])(?:[cdkKmnсдкКмн]?[mм]|ft|in|yd|mi)\Z")  # m2 is how people write m²


def superscript_mark(words: str, superscript: str) -> str:
    """Return what keeps a superscript apart from what it hangs on: ``10^2``, ``fees^1``; ``18th``, ``25 m2``."""
    is_apart = not words[-1:].isalnum() or not _NUMBER.match(superscript) or _UNIT.search(words[-9:])
    return "" if is_apart else "^"


_SIMPLE_TERM = re.compile(r"[-−+]?[\w.,′∞°]*|.|\([^()]*\)|\[[^][]*\]")


def formula_term(text: str) -> str:
    """Return a part of a formula as it stands beside a sign: in parentheses unless it is simple, as ``-2`` is."""
    return text if _SIMPLE_TERM.fullmatch(text) else f"({text})"


_SIGNS = {
    "mfrac": "/", "msup": "^", "mover": "^", "msub": "_", "munder": "_", "msubsup": "_^", "munderover": "_^",
}  # fmt: skip
_GAPS = {"mtr": " ", "mlabeledtr": " ", "mtable": "; ", "mfenced": ", "}
_ACCENTS = frozenset("′″‴'¯‾^ˆ~˜˙¨→")
_UNSEEN = str.maketrans({"\u2061": " ", "\u2062": "", "\u2063": "", "\u2064": ""})
_WORDS_MEET = re.compile(r"(?:\x01|(?<=[^\W\d_]{2}))\x00(?=\w)|(?<=\w)\x00(?=[^\W\d_]{2})")


def mathml_text(formula: _Element) -> str:
    """Return a formula of MathML in one line: ``(a+b)/2``, ``∑_(i=1)^n x_i``, ``√[3](a-b)``; no annotation of it."""
    texts: dict[_Element, str] = {}
    for element in reversed([*formula.iter()]):  # what is in an element comes before it
        name = re.sub(".*[:}]", "", element.tag) if isinstance(element.tag, str) else "annotation"
        operands = [texts.pop(operand) for operand in element]
        terms = [formula_term(operand.rstrip("\x01")) for operand in operands]
        if name in ("annotation", "annotation-xml"):
            operands = []
        elif name in _SIGNS:
            signs = (
                "" if not term or term in _ACCENTS else sign
                for sign, term in zip(_SIGNS[name], terms[1:], strict=False)
            )
            operands = ["".join(map(str.__add__, ("", *signs), terms)) + "\x01"]
        elif name in ("msqrt", "mroot"):
            degree = f"[{operands.pop()}]" if name == "mroot" and len(operands) > 1 else ""
            operands = [f"√{degree}{formula_term(''.join(operands))}"]
        else:
            shown_text = re.sub(r"\s+", " ", (element.text or "").strip(" \n\t"))  # not blanks that separate words
            operands.insert(0, shown_text.translate(_UNSEEN))
        text = _WORDS_MEET.sub(" ", _GAPS.get(name, "\x00").join(filter(None, operands))).replace("\x00", "")
        if name == "mfenced":
            text = element.get("open", "(") + text + element.get("close", ")")
        texts[element] = " ".join((text, *("" if element is formula else element.tail or "").split()))
    return texts[formula].replace("\x01", "")


_COPIES = (  # among few: many formulas may stand side by side
    "parent::*[not(*[6])]/*[local-name()='tex-math'] | "
    "parent::*[not(*[2])]/parent::*[not(*[6])]/*[@aria-hidden='true'][not(descendant::math)]"
)


def read_formulas(root: _Element) -> None:
    """Make each formula in MathML text, and drop its copies: in TeX, or drawn for browsers that know no MathML."""
    for formula in [*root.iter("{*}math", "m:math", "mml:math")]:
        copies: Any = formula.xpath(_COPIES)
        for copy in copies:
            del copy[:]
            copy.tag, copy.text = "template", ""  # which is skipped
        formula.text = mathml_text(formula)
        del formula[:]


_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_LETTERS = {"Letter": "abcdefghijklmnopqrstuvwxyz", "russian": "абвгдежзиклмнопрстуфхцчшщэюя"}  # without й, ё, ъ, ы, ь
FORMS = {
    "": "none", "1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman",
    "а": "russianLower", "А": "russianUpper", "一": "chineseCounting", "①": "decimalEnclosedCircle",
}  # fmt: skip
"""The names that Word has for the forms of numbers, by the first ones of these as OpenDocument and HTML write them."""
_CHINESE_DIGITS, _CHINESE_UNITS = "零一二三四五六七八九", ("", "十", "百", "千", "万")
_CHINESE = re.compile("(?:chinese|japanese|taiwanese)Counting|ideographDigital")


def list_number(number: int, form: str) -> str:
    """Write a number as a list does: in digits, letters, Roman or Chinese numerals, by the names that Word has.

    >>> [list_number(28, form) for form in ("decimal", "upperLetter", "lowerRoman", "russianLower", "chineseCounting")]
    ['28', 'BB', 'xxviii', 'я', '二十八']
    """
    text = str(number)
    letters = next((letters for name, letters in _LETTERS.items() if name in form), "")
    if letters and number > 0:
        text = letters[(number - 1) % len(letters)] * min((number - 1) // len(letters) + 1, 9)
    elif form.endswith("Roman") and 0 < number < 4000:
        text, remainder = "", number
        for value, numeral in _ROMAN:
            text += numeral * (remainder // value)
            remainder %= value
    elif _CHINESE.match(form) and 0 < number < 100_000:
        pairs = zip(text, _CHINESE_UNITS[: len(text)][::-1], strict=True)
        numerals = "".join(_CHINESE_DIGITS[int(digit)] + (unit if digit != "0" else "") for digit, unit in pairs)
        text = re.sub("零+", "零", numerals).rstrip("零")
        text = text.removeprefix("一") if 10 <= number < 20 else text
    elif "EnclosedCircle" in form and 0 < number <= 20:
        text = chr(ord("①") + number - 1)
    return text.upper() if "pper" in form else text


class Paragraphs:
    """Turns running text into blocks, and a table's cells into lines.

    Of a cell that spans columns, the others are empty; one that spans rows is repeated in each. Nested tables become
    part of their cell.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._cells: list[list[str]] = []  # open cells, the outermost first
        self._row: list[str] = []
        self._rows: list[Row] = []
        self._tables = 0
        self._empty = 0  # empty cells at the end of the row
        self._spanning: dict[int, tuple[str, int]] = {}  # by column: the text of a cell, and rows that it still spans
        self._room = 10_000  # characters that cells which span rows may still repeat

    def add(self, text: str) -> None:
        """Add running text."""
        self._text.append(text)

    def paragraph(self, level: int = 0, *, page: int = 0) -> Iterator[Block]:
        """End a paragraph or heading."""
        text = "".join(self._text)
        self._text.clear()
        if self._cells:
            self._cells[-1].append(text)
        elif text.strip():
            yield Block(level, text, page=page)

    def open(self, kind: str) -> Iterator[Block]:
        """Begin a table (``tbl``) or a cell (``tc``); other elements have no effect."""
        if kind == "tc":
            self._cells.append([])
        elif kind == "tbl":
            yield from self.paragraph()
            self._tables += 1

    def close(
        self, kind: str, *, page: int = 0, number: int | None = None, columns: int = 1, rows: int = 1,
        repeated: int = 1, is_covered: bool = False,
    ) -> Iterator[Block]:  # fmt: skip
        """End a table, a row (``tr``) or a cell; other elements have no effect.

        Args:
            kind: The element.
            page: The page of the table.
            number: The number of the row.
            columns: The columns that a cell spans.
            rows: The rows that it spans.
            repeated: How many equal cells it stands for.
            is_covered: Whether a cell above or before it spans it.
        """
        if kind == "tc" and self._cells:
            text = " ".join(" ".join(self._cells.pop()).split())
            if self._cells:
                self._cells[-1].append(text)
            else:
                self._cell(text, columns, rows, repeated, is_covered=is_covered)
        elif kind == "tr" and not self._cells:
            if self._row:
                self._rows.append(Row(tuple(self._row), number))
            self._row.clear()
            self._empty = 0
        elif kind == "tbl" and self._tables:
            self._tables -= 1
            if not self._tables:
                yield from table_blocks(self._rows, page=page)
                self._rows, self._spanning = [], {}

    def cover(self) -> None:
        """Fill the next columns as far as cells above span them; HTML has no elements for these."""
        while self._spanning.get(len(self._row) + self._empty, ("", 0))[1]:
            self._cell("", 1, 1, 1, is_covered=True)

    def _cell(self, text: str, columns: int, rows: int, repeated: int, *, is_covered: bool) -> None:
        column = len(self._row) + self._empty
        self._room += 20 + len(text)
        if is_covered:
            text, rows_left = self._spanning.pop(column, ("", 0))
            self._room -= 23 + len(text)  # with what separates it
            if rows_left > 1 and self._room > 0:
                self._spanning[column] = text, rows_left - 1
            text = text if rows_left and self._room > 0 else ""
        elif rows > 1:
            self._spanning |= {
                column + number: ("" if number else text, rows - 1) for number in range(min(columns, MOST_COLUMNS))
            }
        if text:
            self._row += [""] * min(self._empty, MOST_COLUMNS - len(self._row))
            self._row += [text] * (repeated if repeated <= _MOST_EQUAL_CELLS and repeated * len(text) <= 2000 else 1)
            self._empty = min(columns, MOST_COLUMNS) - 1
        else:
            self._empty += min(max(repeated, columns), MOST_COLUMNS)


MOST_COLUMNS = 1000
"""Up to this number, empty cells keep the columns aligned."""


_MOST_EQUAL_CELLS = 100  # more equal cells side by side say nothing to a reader
