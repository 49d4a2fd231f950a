"""Write the word lists of the package from those of ``wordfreq``, or say whether they are still the same.

    python benchmarks/word_lists.py           # compare src/pointsman/text/words with wordfreq's lists
    python benchmarks/word_lists.py --write   # write them

``wordfreq`` has 40 languages and takes 74 MB with all that it needs; of it, the package uses how common a word is in
English, Russian and Chinese, 5.1 MB. Sources and licence of the lists: src/pointsman/text/words/LICENCE.md.
"""

from __future__ import annotations

import re
import sys
from typing import Final

import numpy as np
import xxhash
from wordfreq import get_frequency_list

from pointsman.text.lexicon import LANGUAGES, WORD_LISTS, frequency_step
from pointsman.text.unicode import fold

_PLAIN: Final = re.compile(r"^(?:[a-z]+|[а-я]+)$", re.MULTILINE)
_OTHER: Final = re.compile(r"^(?!(?:[a-z]+|[а-яё]+)$).+$", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z\xdf-\xf6\xf8-\u024f]+|[а-яё]+")
_HAN: Final = re.compile("[\u3400-\u9fff]+")


def word_list(language: str) -> bytes:
    """Return wordfreq's list of a language in the form that `Lexicon.from_bytes` reads."""
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


def main() -> int:
    changed = 0
    for language in LANGUAGES:
        path, content = WORD_LISTS / f"{language}.bin", word_list(language)
        if "--write" in sys.argv:
            path.write_bytes(content)
        same = path.is_file() and path.read_bytes() == content
        changed += not same
        print(f"{language}: {len(content) // 5:,} words, {len(content) / 1e6:.1f} MB, {'same' if same else 'CHANGED'}")
    return changed


if __name__ == "__main__":
    sys.exit(main())
