"""Bytes to text: UTF-8, UTF-16, and the old encodings of Chinese, Russian and Western European files."""

from __future__ import annotations

import codecs
import re

from pointsman.tools.errors import InputError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Our languages first: if two encodings explain the bytes equally well, the earlier one is used. The others are here
# so that a Japanese or Korean file is not read as Chinese.
_CANDIDATES = ("gb18030", "big5", "cp1251", "koi8_r", "cp1252", "cp866", "shift_jis", "euc_jp", "euc_kr")
_DECLARATION = re.compile(rb"""(?:charset|coding|encoding)\s*[=:]\s*["']?([A-Za-z0-9_.-]{2,40})""")
# Programs write these names over text in a larger encoding, so browsers read the larger one:
# https://encoding.spec.whatwg.org/#names-and-labels. Not ASCII: who writes it over other letters did not know theirs.
_LARGER_ENCODINGS = {
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b"))
_PLAUSIBLE = ((" ", "\u0180"), ("\u0400", "\u0530"), ("\u2010", "\u2040"), ("\u3000", "\ua000"), ("\uff00", "\uffef"))
_SAMPLE = 1 << 20


def decode(data: bytes, *, may_declare: bool = False) -> str:
    """Decode ``data`` to text.

    Args:
        data: The content of a file.
        may_declare: Whether files of this format may declare their encoding near the beginning (HTML, source code).

    Raises:
        InputError: The bytes are not text, or their encoding cannot be determined with confidence.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _strictly(data, name)
    sample = data[:_SAMPLE]
    # A stray control character is removed later; many mean UTF-16 (every other byte) or a binary file.
    many_controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES)) > 2 + len(sample) // 20
    try:
        if not many_controls:
            return data.decode("utf-8")
    except UnicodeDecodeError:
        pass  # another encoding, determined below
    if many_controls or b"\x00" in sample:
        return _strictly(data, _utf16_order(data))
    if may_declare and (declaration := _DECLARATION.search(data[:2048])):
        try:
            return decode_declared(data, declaration[1].decode("ascii"))
        except (LookupError, ValueError):
            pass  # the declaration may be wrong; the bytes decide
    lenient_text = data.decode("utf-8", errors="replace")
    wrong = lenient_text.count("\ufffd")
    if wrong * 50 <= sum(not char.isascii() for char in lenient_text[:_SAMPLE]) - wrong:
        return lenient_text  # UTF-8 with a few damaged bytes
    return _strictly(data, _guess(data))


def decode_declared(data: bytes, encoding: str) -> str:
    """Decode text in the encoding that it declares, or in the larger one that programs write under this name.

    Windows-1252 stands under the name ISO-8859-1, GBK under GB2312.

    Raises:
        LookupError: There is no such encoding.
        ValueError: The bytes are not in it.
    """
    try:
        return data.decode(_LARGER_ENCODINGS.get(codecs.lookup(encoding).name, encoding))
    except UnicodeDecodeError:
        return data.decode(encoding)


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"text in {encoding} is damaged at byte {error.start}; save the file as UTF-8 and try again"
        ) from error


def _utf16_order(data: bytes) -> str:
    """Return the byte order of UTF-16 without a mark; anything else with control characters is binary."""
    for name in ("utf-16-le", "utf-16-be"):
        text = data[:8192].decode(name, errors="replace")
        plausible = sum(_is_plausible(char) for char in text)
        if len(data) % 2 == 0 and plausible >= 0.95 * len(text):
            return name
    raise InputError("binary data, not text")


def _is_plausible(char: str) -> bool:
    """Whether a character is Latin, Cyrillic, Chinese or their punctuation; binary data read as UTF-16 is mixed."""
    return char in "\t\n\r" or any(first <= char < last for first, last in _PLAUSIBLE)


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes  # only files that are not UTF-8 need it

    sample = data
    if len(data) > _SAMPLE:  # cut at a line end: half a character would count against the right encoding
        sample = data[: data.rfind(b"\n", 0, _SAMPLE) + 1] or data
    matches = from_bytes(sample, cp_isolation=list(_CANDIDATES))
    best = matches.best()
    if best is None:
        raise InputError("unknown encoding; save the file as UTF-8")
    equals = {m.encoding for m in matches if m.chaos <= best.chaos and m.coherence >= best.coherence}
    return next((name for name in _CANDIDATES if name in equals), best.encoding)
