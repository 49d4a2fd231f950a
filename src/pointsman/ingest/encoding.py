"""Bytes to text: UTF-8, UTF-16, and the old encodings of Chinese, Russian and Western European files."""

from __future__ import annotations

import codecs
import re

from pointsman.errors import InputError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins the same
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Ours first: where two encodings explain the bytes equally well, the earlier one is taken. The others are here
# so that a Japanese or Korean file is not read as Chinese.
_CANDIDATES = ("gb18030", "big5", "cp1251", "koi8_r", "cp1252", "cp866", "shift_jis", "euc_jp", "euc_kr")
_DECLARED = re.compile(rb"""(?:charset|coding|encoding)\s*[=:]\s*["']?([A-Za-z0-9_.-]{2,40})""")
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b"))
_SAMPLE = 1 << 20


def decode(data: bytes, *, may_declare: bool = False) -> str:
    """The text in ``data``.

    Args:
        data: The content of a file.
        may_declare: Whether the format lets a file name its own encoding near its beginning (HTML, source code).

    Raises:
        InputError: The bytes are no text, or in no encoding that can be told with confidence.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _strictly(data, name)
    if b"\x00" in data[:8192]:
        return _strictly(data, _utf16_order(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass  # some other encoding, looked for below
    sample = data[:_SAMPLE]
    if len(sample.translate(None, _CONTROL_BYTES)) < 0.95 * len(sample):
        raise InputError("binary data, not text")
    if may_declare and (declared := _DECLARED.search(data[:2048])):
        try:
            return data.decode(declared[1].decode("ascii"))
        except (LookupError, UnicodeDecodeError):
            pass  # a file may be wrong about itself; what its bytes say counts
    repaired = data.decode("utf-8", errors="replace")
    wrong = repaired.count("\ufffd")
    if wrong * 50 <= sum(not char.isascii() for char in repaired[:_SAMPLE]) - wrong:
        return repaired  # UTF-8 with a few bytes damaged
    return _strictly(data, _guess(data))


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"text in {encoding} is damaged at byte {error.start}; save the file as UTF-8 and try again"
        ) from error


def _utf16_order(data: bytes) -> str:
    """Tell UTF-16 without a mark by where its zero bytes stand; anything else with zeros is binary."""
    sample = data[:8192]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    # Spaces, line ends and digits have a zero high byte in every language; low bytes are almost never zero.
    name = "utf-16-le" if odd > 10 * even else "utf-16-be" if even > 10 * odd else ""
    if name and len(data) % 2 == 0:
        text = sample[: len(sample) // 2 * 2].decode(name, errors="replace")
        controls = sum(char < " " and char not in "\t\n\r\f" for char in text) + text.count("\ufffd")
        if controls <= 0.02 * len(text) and _one_script(text):
            return name
    raise InputError("binary data, not text")


def _one_script(text: str) -> bool:
    """Whether the letters are mostly Latin, Cyrillic or Chinese; bytes of a program read as UTF-16 are not."""
    letters = [char for char in text if char.isalpha()]
    known = sum(char < "\u0530" or "\u3000" <= char <= "\u9fff" for char in letters)
    return known >= 0.95 * len(letters)


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes  # noqa: PLC0415  (only files that are not UTF-8 need it)

    sample = data
    if len(data) > _SAMPLE:  # cut between lines: half a character would speak against the right encoding
        sample = data[: data.rfind(b"\n", 0, _SAMPLE) + 1] or data
    matches = from_bytes(sample, cp_isolation=list(_CANDIDATES))
    best = matches.best()
    if best is None:
        raise InputError("neither UTF-8 nor any other encoding that can be told; save the file as UTF-8")
    equals = {m.encoding for m in matches if m.chaos <= best.chaos and m.coherence >= best.coherence}
    return next((name for name in _CANDIDATES if name in equals), best.encoding)
