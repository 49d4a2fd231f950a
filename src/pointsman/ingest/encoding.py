"""Bytes to text: UTF-8, UTF-16, and the old encodings of Chinese, Russian and Western European files."""

from __future__ import annotations

import codecs
import re
import unicodedata
from itertools import islice

from pointsman.tools.errors import InputError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Japanese and Korean are here so that their files are not read as Chinese.
_CANDIDATES = ("gb18030", "big5", "cp1251", "koi8-r", "cp1252", "cp866", "iso8859-5", "mac-cyrillic", "shift_jis_2004",
               "euc-jp", "euc-kr")  # fmt: skip
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
_FOREIGN_WORD = re.compile(rb"[^\x00-\x2f\x3a-\x3f]*[\x80-\xff][^\x00-\x2f\x3a-\x3f]*")
_MOST_FOREIGN_WORDS = 10_000
_JAPANESE = frozenset({"SHIFT_JIS", "CP932", "EUC-JP"})
_HANJA = re.compile("[\u4e00-\u9fff]")  # which Korean hardly writes any more
_KANA = re.compile("[\u3040-\u30ff]")  # Chinese that is read as Japanese has none
_MISFIT = re.compile(  # capitals within words, two alphabets in one, letters of other languages, a capital for a dash,
    # pairs of letters that Russian has not, lines of frames
    "[а-яё][А-ЯЁ]|[A-Za-z][а-яА-ЯёЁ]|[а-яА-ЯёЁ][A-Za-z]|[\u0402-\u040f\u0452-\u045f]|[а-яё]€|[€»][а-яё]"
    "|(?<![^ ])[ЧЦС](?![^ ])|й[аеиуыэюяъьй]|[бвгджзклмнпрстфхцчшщ]й|[жшщч][ыэюя]|ъ[^еёюя]|[ьы][ъыьэ]|(?<![а-яё])[ъыь]"
    "|[а-яё][\u2500-\u25a0]|[\u2500-\u25a0][а-яё]"
)
_LETTERS = re.compile("(?<![A-Za-z])[\xbc-\xbe\xc0-\u1fff\u2b00-\uffff]+(?![A-Za-z])")  # not punctuation
_RARE_LATIN = re.compile("(?=..)[\x80-\u036f]*[\u0180-\u036f][\x80-\u036f]*")
_RUSSIAN_IN_CP866 = bytes({*range(128), *range(0xA0, 0xB0), *range(0xE0, 0xF0)})  # small letters, among ASCII
_FREQUENT = {"GB18030": 0xD7, "Big5": 0xC6}  # the last first byte of a frequent Chinese character
_EAST_ASIAN = frozenset({"SHIFT_JIS", "CP932", "EUC-JP", "EUC-JIS-2004", "SHIFT-JIS-2004", "EUC-KR", "CP949"})
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
_FOREIGN_PAIR = re.compile(r"[^\W\d_A-Za-z]{2}")
_CAPITALS = 0.2  # how often words are all in capitals, beside those in small letters
_FEW_BYTES = 12  # of foreign words: so few are often likely in several encodings
_DOUBT = 0.4  # of the odds of the best reading: another reading may be the true one
_CENTRAL_EUROPEAN, _PERHAPS_CENTRAL_EUROPEAN = 1.5, 1.25  # times likelier in Windows-1250; it is never certain
_FEW_WORDS = 4096  # bytes of words; they tell Czech from French
_LEAST_ODDS = 0.01  # of the best reading; below it a word or two may be in any encoding
# Letters of Western words, by one or two among ASCII letters, and marks where they stand in text.
_WESTERN = re.compile(
    r"(?<=[A-Za-z])(?:[à-öø-ÿßœšž]{1,2}|[ªº])(?![^\W\d_a-zA-Z])|(?<=[A-Z])[À-ÖØ-ÞŒŠŽ](?![^\W\d_a-zA-Z])"
    r"|(?<![^\W\d_])(?:[À-ÖØ-ÞŒŠŽ]{1,2}(?=[A-Za-z])|[à-öø-ÿœ]{1,2}(?=[a-z]))"
    r"|(?:(?<=\n)|(?<=[\w,;] ))[àèéìíòóùÀÈÉ](?=[\n.,;:!?)]| [\w%])"  # not beside an option: и in cp1251 is è here
    r"|(?<=[A-Za-zÀ-ÿ0-9])[’´]|[‘’“„«‚](?=[A-Za-z0-9À-ÿ])|(?<=[A-Za-zÀ-ÿ0-9.,!?;:)])[’”“»…]"
    r"|(?<![^ \n(])(?:«(?=[ \xa0!-~])|[„“](?=[ -~]))|(?<=[ \xa0!-~])[»“”](?![^ \n,.;:!?)])"
    r"|«(?=[ \xa0])|(?<=[ \xa0])»(?![^\s,.;:!?)])"
    r"|(?<=[\d\s.,(-])[€£¥§±](?![^\W\d])|(?<=\d)[°º½¼¾²³€£¥¢%‰ª×µ]|(?<=[\d ])°(?=[CF])|(?<=\d )¢"
    r"|(?<=[ \d\w,.])[–—](?=[ \d\w,.\n])|(?<![A-Za-z])[½¼¾](?=[ \dA-Za-z])|¿(?=[^?\n]*\?)|¡(?=[^!\n]*!)"
    r"|»(?=[^\s«»][^«»\n]{0,99}«)|(?<=[^\s«»])«(?![^\W\d_])|¶(?=[\s\d])"
    r"|[®™·•…†‡]|©(?![A-Z](?![A-Za-z]))|(?<!§)\xa0|\xa0(?! )|§(?=[ \d§]|\xa0[^ ])"
)


def check_encoding(encoding: str | None) -> None:
    """Raise `InputError` if there is no encoding of this name."""
    try:
        if encoding is not None:
            b"a".decode(encoding)
    except (LookupError, ValueError, TypeError):
        raise InputError(
            f"no encoding is called {encoding!r:.80}; names are windows-1251, koi8-r, cp866, gbk, big5 and alike"
        ) from None


def decode_file(data: bytes, *, may_declare: bool = False, encoding: str | None = None) -> tuple[str, str]:
    """Return the text of a file, and what is to be said of its encoding; an empty text if that is certain.

    Args:
        data: The content of a file.
        may_declare: Whether files of this format may declare their encoding near the beginning (HTML, source code).
        encoding: What it is in if it is not UTF-8 and declares nothing; by default that is guessed.

    Raises:
        InputError: The bytes are not text, or in no encoding that is known here.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _strictly(data, name), ""
    sample = data[:_SAMPLE]
    # A stray control character is removed later; many mean UTF-16 (every other byte) or a binary file.
    many_controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES)) > 2 + len(sample) // 20
    try:
        if not many_controls:
            text = data.decode("utf-8")
            if may_declare or encoding or len(data) - len(text) > _FEW_BYTES or not _is_garbled(data, text):
                return text, ""
    except UnicodeDecodeError:
        pass  # another encoding, determined below
    if many_controls or b"\x00" in sample:
        is_given = encoding is not None and codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
        return _strictly(data, encoding if encoding and is_given else _utf16_order(data)), ""
    if may_declare and (declaration := _DECLARATION.search(data[:2048])):
        try:
            declared = declaration[1].decode("ascii")
            return decode_declared(data, declared), _contradiction(data, declared, encoding)
        except (LookupError, ValueError):
            pass  # the declaration may be wrong; the bytes decide
    lenient_text = data.decode("utf-8", errors="replace")
    wrong = lenient_text.count("\ufffd")
    beginning = lenient_text[:_SAMPLE]
    if 0 < wrong * 50 <= len(beginning) - len(beginning.encode("ascii", "ignore")) - wrong:
        return lenient_text, ""  # UTF-8 with a few damaged bytes
    return _guess_text(data) if encoding is None else _as_told(data, encoding)


def _guess_text(data: bytes) -> tuple[str, str]:
    guess, is_certain = _guess(data)
    remark = f"read as {guess}, which is not certain; if its words are wrong, give its encoding, or save it as UTF-8"
    return _strictly(data, guess), "" if is_certain else remark


def _contradiction(data: bytes, declared: str, encoding: str | None) -> str:
    """Return what is to be said of a file that declares another encoding than it is said to be in."""
    if encoding is None or decode_declared(data, declared) == data.decode(encoding, errors="replace"):
        return ""
    return f"read as {declared}, which it declares, not as {encoding}; if its words are wrong, correct the declaration"


def _as_told(data: bytes, encoding: str) -> tuple[str, str]:
    """Return the text of a file in the encoding that a user names, and what in the file contradicts it."""
    try:
        text = decode_declared(data, encoding)
    except ValueError as error:
        guess, _ = _guess(data)
        place = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        return _strictly(data, guess), f"not in {encoding}{place}; read as {guess}"
    if codecs.lookup(encoding).name not in {codecs.lookup(name).name for name in _CANDIDATES}:
        return text, ""  # nothing here tells it from others
    try:
        guess, is_certain = _guess(data)
    except InputError:
        return text, ""
    is_other = is_certain and _strictly(data, guess) != text
    return text, f"read as {encoding}, as was asked; its words look like {guess}" if is_other else ""


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


def _guess(data: bytes) -> tuple[str, bool]:
    """Return the encoding of text that is not UTF-8, and whether it is certain, by its words that are not ASCII."""
    words = b" ".join(match[0] for match in islice(_FOREIGN_WORD.finditer(data), _MOST_FOREIGN_WORDS))
    guess, is_certain = ("Windows-1252", True) if _is_western(data) else _likeliest(words)
    central_european = data.decode("cp1250", "replace")
    is_same = central_european == data.decode(guess, "replace") or not _TWO_LETTERS.search(
        words.decode("cp1250", "replace")
    )
    if is_same or "\ufffd" in central_european:
        return guess, is_certain
    odds = dict(_odds(words[:_FEW_WORDS], ("cp1250", guess)))
    times_likelier = odds.get("Windows-1250", 0) / max(odds.get(guess, 0), 1e-9)
    is_other = times_likelier > _CENTRAL_EUROPEAN and len(words) > 2 * _FEW_BYTES
    return "Windows-1250" if is_other else guess, is_certain and times_likelier < _PERHAPS_CENTRAL_EUROPEAN


def _likeliest(words: bytes) -> tuple[str, bool]:
    """Return the candidate that words without ASCII ones are in, and whether it is certain."""
    is_short = len(words) <= _FEW_BYTES
    readings: dict[str, tuple[str, float]] = {}  # by what candidates make of the words: the best candidate
    for name, confidence in _odds(words[:_SAMPLE], _CANDIDATES):
        try:
            text = words.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
        if name not in _JAPANESE or _KANA.search(text):
            # Of few words, Chinese is likelier.
            is_unlikely = is_short and name.upper().replace("_", "-") in _EAST_ASIAN
            odds = _odds_of_small_letters(text, name) if text.isupper() else confidence
            readings.setdefault(text, (name, odds / (2 if is_unlikely else 1)))
    if not readings:
        raise InputError("unknown encoding; save the file as UTF-8")
    misfits = {text: _misfits(text, name) for text, (name, _) in readings.items()}
    if any(5 * count <= len(text) for text, count in misfits.items()):
        readings = {text: reading for text, reading in readings.items() if 5 * misfits[text] <= len(text)}
    first, best = max(readings.values(), key=lambda reading: reading[1])
    candidates = [
        (misfits[text], name)
        for text, (name, odds) in readings.items()
        if odds >= 0.95 * best or (name in _FREQUENT and first in _FREQUENT)
    ]
    fewest = min(candidates)[0]  # MacCyrillic and Windows-1251 have the same small letters
    names = [name for count, name in candidates if count == fewest]
    rivals = sum(odds >= _DOUBT * best and misfits[text] <= fewest for text, (_, odds) in readings.items())
    is_weak = fewest > 0 or names[0] == "Windows-1252" or not _FOREIGN_PAIR.search(words.decode(names[0]))
    is_doubtful = rivals > 1 or (is_short and is_weak)
    return names[0], len(names) == 1 and best > _LEAST_ODDS and not is_doubtful


def _odds_of_small_letters(capitals: str, encoding: str) -> float:
    """Return how likely capitals are in an encoding by their small letters; of capitals little is known."""
    content = capitals.lower().encode(encoding, "ignore")
    return _CAPITALS * dict(_odds(content, (encoding.lower(), "cp1252"))).get(encoding, 0)


def _odds(content: bytes, encodings: tuple[str, ...]) -> list[tuple[str, float]]:
    """Return how likely each of some encodings is, the likeliest first."""
    import chardet  # only files that are not UTF-8 need it

    guesses = chardet.detect_all(content, ignore_threshold=True, include_encodings=encodings)
    return [(guess["encoding"] or "", guess["confidence"]) for guess in guesses]


def _misfits(text: str, encoding: str) -> int:
    """Return how many characters are rare, or do not fit those beside them."""
    if encoding in ("EUC-KR", "CP949"):
        return len(_HANJA.findall(text))
    if encoding not in _FREQUENT:
        return len(_MISFIT.findall(text))
    codes = (char.encode(encoding) for char in text if not char.isascii())
    return sum(code[0] > _FREQUENT[encoding] or (encoding == "GB18030" and code[1] < 0xA1) for code in codes)


def _is_garbled(data: bytes, text: str) -> bool:
    """Whether a few letters that are valid UTF-8 are of no language, but Chinese in GBK ("ģʽ") or Russian in cp866."""
    if text.isascii() or not _LETTERS.sub(lambda letters: "" if _is_stray(letters[0]) else letters[0], text).isascii():
        return False
    chinese = data.decode("gb18030", errors="replace")
    is_chinese = "\ufffd" not in chinese and not _misfits(chinese, "GB18030")
    return is_chinese or not data.translate(None, _RUSSIAN_IN_CP866)


def _is_stray(letters: str) -> bool:
    """Whether letters that stand side by side are of two alphabets, of none, or Latin ones that are rare together."""
    alphabets = {unicodedata.name(letter, "NONE").partition(" ")[0] for letter in letters}
    return len(alphabets) > 1 or alphabets <= {"NONE", "COMBINING"} or _RARE_LATIN.fullmatch(letters) is not None


def _is_western(data: bytes) -> bool:
    """Whether all that is not ASCII stands where letters and marks of Windows-1252 do."""
    try:
        text = data[:_SAMPLE].decode("cp1252")
    except UnicodeDecodeError:
        return False
    foreign_lines = (line for line in text.split("\n") if not line.isascii())  # the others would only take time
    return all(_WESTERN.sub("", f"\n{line}\n").isascii() for line in foreign_lines)


def _windows_codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec of a Windows code page that Python knows as that of an IBM one, such as ``windows_950``."""
    page = name.removeprefix("windows_")
    return codecs.lookup(f"cp{page}") if page in ("874", "932", "936", "949", "950") else None


codecs.register(_windows_codec)
