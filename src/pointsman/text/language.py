"""Detects the scripts and language of a text, well enough to choose prompts, stop lists and messages.

The analyser does not use it: it works script by script, so mixed text is never forced into one language.
"""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.text.stop_words import ENGLISH
from pointsman.text.unicode import normalize
from pointsman.tools.late_regex import late

_SAMPLE = 6_000
"""Maximum characters examined; a longer text is judged by its beginning, middle and end."""

_SCRIPTS = {
    "han": late("[\u2e80-\u2fd5\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"),
    "kana": late("[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f]+"),
    "cyrillic": late("[\u0400-\u0481\u048a-\u052f]+"),
    "latin": late("[A-Za-z\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\u02af\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a]+"),
}
_LETTER_RUNS = late(r"[^\W\d_]+")
_NO_ASCII = late(r"[^\x00-\x7f]+")
_NO_ASCII_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())

_LETTERS_PER_HAN = 3
"""A Han character carries as much as about three letters; unweighted, one English name would outweigh a sentence."""

_LATIN_WEIGHT = 0.4
"""Weight of a Latin letter relative to other scripts when the language is chosen."""

# By language: letters that Russian lacks, and Russian letters that the language lacks. A foreign name does not make a
# Russian text foreign, so the former must outnumber the latter.
_NOT_RUSSIAN = (
    ("uk", late("[їєґЇЄҐ]"), late("[ыэёъЫЭЁЪ]")),
    ("be", late("[ўЎ]"), late("[ищъИЩЪ]")),
    ("sr", late("[јљњћђЈЉЊЋЂ]"), late("[ыэёйяюЫЭЁЙЯЮ]")),
    ("uk", late("[іІ]"), late("[ыэёъЫЭЁЪ]")),
)
_OTHER_CYRILLIC = late(
    "[\u0400\u0402\u0403\u0405\u0408-\u040d\u040f\u0450\u0452\u0453\u0455\u0458-\u045d\u045f-\u0481\u048a-\u052f]"
)
_BULGARIAN_VOWEL = late("[ъЪ]")
_NOT_BULGARIAN = late("[ыэёЫЭЁ]")

# The commonest function words of other languages in Latin script, none of them an English word.
_OTHER_LATIN_WORDS = """der das und ist nicht ein eine einen den dem des mit für auf von
    zu sich auch wie wird sind oder bei
    nach
    le les est et une du dans pour que qui avec sur pas ne ce cette sont aux au ou où
    los las un y es en por para como su del se lo una más pero
    il gli di che è non sono della nel alla
    o os da em não um uma com dos das ao na
    de het een niet dat zijn op te met voor
    w się nie jest że z jak
    och att det som på är av för inte
    ve bir bu için ile"""
_OTHER_LATIN = frozenset(_OTHER_LATIN_WORDS.split())


def scripts(text: str) -> dict[str, float]:
    """Return the share of each script among the letters: keys ``han``, ``kana``, ``cyrillic``, ``latin``, ``other``.

    Shares sum to 1, or are all 0 if there are no letters. A Han character or kana counts as three letters. At most some
    6,000 characters are examined, so the time is bounded.

    >>> scripts("BM25 и поиск")["cyrillic"], scripts("")["latin"]
    (0.75, 0.0)
    """
    return _shares(_sample(text))


def without_scripts(text: str, names: Iterable[str]) -> str:
    """Return a text without its runs of these scripts, named as in `scripts`.

    >>> without_scripts("EGFR 抑制剂 dose", ["han"])
    'EGFR   dose'
    """
    for name in names:
        text = _SCRIPTS[name].sub(" ", text)
    return text


def words_of_scripts(text: str, names: Iterable[str]) -> list[str]:
    """Return the words of these scripts, named as in `scripts`; of a run of Han characters, its pairs.

    >>> words_of_scripts("EGFR 抑制剂 и доза", ["han", "cyrillic"])
    ['抑制', '制剂', 'и', 'доза']
    """
    runs = [(name, run) for name in names for run in _SCRIPTS[name].findall(text)]
    pairs = [
        [run[start : start + 2] for start in range(max(1, len(run) - 1))] if name == "han" else [run]
        for name, run in runs
    ]
    return [word for words in pairs for word in words]


def detect(text: str) -> str:
    """Guess the language of a text.

    Returns:
        ``en``, ``zh`` or ``ru``; ``ja`` if there is kana beside Han; ``uk``, ``be`` or ``sr`` if there are letters that
        Russian lacks; ``und`` for everything else: other scripts, other languages in Latin or Cyrillic letters, no
        letters at all. A few Latin words that could be any language count as English.

    >>> detect("How does it work?"), detect("它是怎么工作的？"), detect("Как это работает?"), detect("Як це працює? Її")
    ('en', 'zh', 'ru', 'uk')
    """
    sample = _sample(text)
    shares = _shares(sample)
    # Latin names and code occur in texts of every language, but hardly ever the other way round.
    weights = shares | {"latin": shares["latin"] * _LATIN_WEIGHT, "han": shares["han"] + shares["kana"], "kana": 0.0}
    best = max(weights, key=weights.__getitem__)
    if weights[best] == 0:
        return "und"
    if best == "han":
        return "ja" if shares["kana"] > 0.1 * weights["han"] else "zh"
    if best == "cyrillic":
        return _cyrillic_language(normalize(sample))
    return _latin_language(sample) if best == "latin" else "und"


def _sample(text: str) -> str:
    if len(text) <= _SAMPLE:
        return text
    third = _SAMPLE // 3
    middle = len(text) // 2
    return f"{text[:third]} {text[middle : middle + third]} {text[-third:]}"


def _shares(sample: str) -> dict[str, float]:
    if sample.isascii():  # most passages are: one search takes the place of five counts
        return dict.fromkeys(_SCRIPTS, 0.0) | {"latin": float(bool(_LETTER_RUNS.search(sample))), "other": 0.0}
    foreign = "".join(_NO_ASCII.findall(sample))  # of most others, little
    counts = {name: sum(map(len, pattern.findall(foreign))) for name, pattern in _SCRIPTS.items()}
    counts["other"] = max(0, sum(map(len, _LETTER_RUNS.findall(foreign))) - sum(counts.values()))
    counts["latin"] += len(sample.encode("ascii", "ignore").translate(None, _NO_ASCII_LETTERS))
    counts["han"] *= _LETTERS_PER_HAN
    counts["kana"] *= _LETTERS_PER_HAN
    total = sum(counts.values()) or 1
    return {name: count / total for name, count in counts.items()}


def _cyrillic_language(sample: str) -> str:
    for language, native, foreign in _NOT_RUSSIAN:
        if len(native.findall(sample)) > len(foreign.findall(sample)):
            return language
    if len(_OTHER_CYRILLIC.findall(sample)) > len(sample) / 50:
        return "und"
    # Bulgarian's commonest vowel is Russian's rarest letter, and it has no ы.
    if not _NOT_BULGARIAN.search(sample) and len(_BULGARIAN_VOWEL.findall(sample)) > 1 + len(sample) // 50:
        return "und"
    return "ru"


def _latin_language(sample: str) -> str:
    words = " ".join(_SCRIPTS["latin"].findall(sample)).lower().split()
    english = sum(map(ENGLISH.__contains__, words))
    foreign = sum(map(_OTHER_LATIN.__contains__, words))
    accent_count = len(words) - sum(map(str.isascii, words))
    return "und" if foreign + accent_count > english + max(1, len(words) / 10) else "en"
