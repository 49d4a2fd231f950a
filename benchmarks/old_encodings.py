"""Whether texts in old encodings are read right, and what is read wrong is said to be uncertain.

    python benchmarks/old_encodings.py [--catalogs gnupg2 systemd glib20 man-db] [--texts 60]

Takes messages in eight languages from the translations that come with a Linux system (``/usr/share/locale``), cuts them
to 4 to 19 and 20 to 200 characters, makes rows of ASCII words with one word of the language, and writes each in the
encodings of its language. The rule was made with the catalogs git, dpkg and coreutils; the default ones are others.
"""

from __future__ import annotations

import argparse
import gettext
import random
import re
import sys
from collections import Counter
from pathlib import Path

from pointsman.ingest.encoding import decode_file
from pointsman.tools.errors import InputError

LOCALES = Path("/usr/share/locale")
RUSSIAN = ("cp1251", "koi8-r", "cp866", "iso8859-5", "mac-cyrillic")
ENCODINGS = {
    "fr": ("cp1252",), "de": ("cp1252",), "es": ("cp1252",), "it": ("cp1252",), "pt_BR": ("cp1252",),
    "ru": RUSSIAN, "zh_CN": ("gbk", "gb18030"), "zh_TW": ("big5",),
}  # fmt: skip
WORD = re.compile(r"[^\W\d_]{2,}")


def messages(language: str, catalogs: list[str]) -> tuple[list[str], list[str]]:
    """Return the translated messages of some catalogs, and the original ones."""
    translated, originals = [], []
    for name in catalogs:
        path = LOCALES / language / "LC_MESSAGES" / f"{name}.mo"
        if path.is_file():
            with path.open("rb") as file:
                pairs = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            translated += [text for text in pairs.values() if isinstance(text, str)]
            originals += [text for text in pairs if isinstance(text, str) and text.isascii()]
    return sorted(set(translated)), sorted(set(originals))


def samples(language: str, catalogs: list[str], count: int, rng: random.Random) -> dict[str, list[str]]:
    """Return texts of each length, and rows with one foreign word."""
    translated, originals = messages(language, catalogs)
    translated = [" ".join(text.split()) for text in translated if not text.isascii()]
    rng.shuffle(translated)
    made: dict[str, list[str]] = {"4 to 19": [], "20 to 200": [], "one word": []}
    for text in translated:
        words = text.split()
        begin = rng.randrange(len(words))
        for kind, low, high in (("4 to 19", 4, 19), ("20 to 200", 20, 200)):
            size = rng.randint(low, high)
            part = " ".join(words[begin:])
            part = part if len(part) <= size else part[:size].rpartition(" ")[0] or part[:size]
            if low <= len(part) and not part.isascii():
                made[kind].append(part)
        foreign = [word for word in WORD.findall(text) if not word.isascii()]
        if foreign and originals:
            row = " ".join(rng.choice(originals).split())[:60].split(" ")
            row.insert(rng.randrange(len(row) + 1), rng.choice(foreign)[:20])
            made["one word"].append(" ".join(row))
    return {kind: texts[:count] for kind, texts in made.items()}


def main() -> int:
    """Print a line for each encoding and kind of text; exit with 1 if anything wrong was told as certain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalogs", nargs="+", default=["gnupg2", "systemd", "glib20", "man-db"])
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--show", action="store_true", help="print what is read wrong, or said to be uncertain")
    arguments = parser.parse_args()
    rng = random.Random(11)
    counts: dict[tuple[str, str], Counter[str]] = {}
    for language, encodings in ENCODINGS.items():
        for kind, texts in samples(language, arguments.catalogs, arguments.texts, rng).items():
            for encoding in encodings:
                count = counts.setdefault((encoding, kind), Counter())
                for text in texts:
                    try:
                        data = text.encode(encoding)
                    except UnicodeEncodeError:
                        continue
                    try:
                        read, remark = decode_file(data)
                    except InputError as error:
                        read, remark = "", str(error)
                    result = f"{'right' if read == text else 'wrong'}, {'uncertain' if remark else 'certain'}"
                    count[result] += 1
                    if arguments.show and result != "right, certain":
                        sys.stdout.write(f"{encoding}: {result}: {text!r} {read!r}\n")
    total: Counter[str] = Counter()
    for (encoding, kind), count in counts.items():
        total += count
        sys.stdout.write(f"{encoding:12} {kind:10} {_line(count)}\n")
    sys.stdout.write(f"{'all':12} {'':10} {_line(total)}\n")
    return int(total["wrong, certain"] > 0)


def _line(count: Counter[str]) -> str:
    right = count["right, certain"] + count["right, uncertain"]
    return (
        f"{right:5} of {count.total():5} right ({right / max(count.total(), 1):.3f}), of these uncertain "
        f"{count['right, uncertain'] / max(right, 1):.3f}; wrong: {count['wrong, uncertain']} told, "
        f"{count['wrong, certain']} as certain"
    )


if __name__ == "__main__":
    sys.exit(main())
