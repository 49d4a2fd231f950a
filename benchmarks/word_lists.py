"""Write the word lists of the package from those of ``wordfreq``, or say whether they are still the same.

    python benchmarks/word_lists.py           # compare src/pointsman/text/words with wordfreq's lists
    python benchmarks/word_lists.py --write   # write them

``wordfreq`` has 40 languages and takes 74 MB with all that it needs; of it, the package uses how common a word is in
English, Russian and Chinese, 5.1 MB. How characters of GB 2312 sound, without tones, is from ``pypinyin``. Sources and
licence of the lists: src/pointsman/text/words/LICENCE.md.
"""

from __future__ import annotations

import re
import sys
from typing import Final

import numpy as np
import xxhash

from pointsman.text.lexicon import LANGUAGES, WORD_LISTS, frequency_step
from pointsman.text.unicode import fold

_PLAIN: Final = re.compile(r"^(?:[a-z]+|[а-я]+)$", re.MULTILINE)
_OTHER: Final = re.compile(r"^(?!(?:[a-z]+|[а-яё]+)$).+$", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z\xdf-\xf6\xf8-\u024f]+|[а-яё]+")
_HAN: Final = re.compile("[\u3400-\u9fff]+")


def word_list(language: str) -> bytes:
    """Return wordfreq's list of a language in the form that `Lexicon.from_bytes` reads."""
    from wordfreq import get_frequency_list  # half a second, of each process that collects the tests

    keys, steps = list[int](), list[int]()
    # Most of the large Chinese list are names and compounds.
    size, pattern = ("small", _HAN) if language == "zh" else ("large", _WORD)
    # Each part has the words of one frequency, in hundredths of its decimal logarithm; the most frequent come first.
    for number, part in enumerate(get_frequency_list(language, size)):
        lines = "\n".join(part)
        words = _PLAIN.findall(lines.replace("ё", "е")) if pattern is _WORD else []
        # fold() handles every word, but is ten times slower than the line above, which covers nearly all of them
        words += filter(pattern.fullmatch, map(fold, _OTHER.findall(lines)))
        keys += [xxhash.xxh32_intdigest(word.encode()) for word in words]
        steps += [frequency_step(9 - number / 100)] * len(words)
    unique, first = np.unique(np.array(keys, "<u4"), return_index=True)
    return unique.tobytes() + np.array(steps, "u1")[first].tobytes()


def sounds() -> bytes:
    """Return a line for each syllable without its tone: the syllable, and the characters that may sound so."""
    from pypinyin import Style, pinyin  # the tests compare the lists without it

    rows = (bytes((row, cell)) for row in range(0xB0, 0xF8) for cell in range(0xA1, 0xFF))
    characters: dict[str, str] = {}
    for character in (row.decode("gb2312", "ignore") for row in rows):
        for sound in pinyin(character, style=Style.NORMAL, heteronym=True)[0] if character else ():
            if character not in characters.get(sound, ""):
                characters[sound] = characters.get(sound, "") + character
    return "".join(f"{sound} {characters[sound]}\n" for sound in sorted(characters)).encode()


def main() -> int:
    changed = 0
    files = {f"{language}.bin": word_list(language) for language in LANGUAGES} | {"zh_sounds.txt": sounds()}
    for name, content in files.items():
        path = WORD_LISTS / name
        if "--write" in sys.argv:
            path.write_bytes(content)
        same = path.is_file() and path.read_bytes() == content
        changed += not same
        print(f"{name}: {len(content) / 1e6:.2f} MB, {'same' if same else 'CHANGED'}")
    return changed


if __name__ == "__main__":
    sys.exit(main())
