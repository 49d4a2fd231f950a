"""Quotes out of texts, and ways to alter them so that they no longer stand there."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

WORD = re.compile(r"\w+")


def quote_from(text: str, rng: random.Random, *, least: int = 20, most: int = 200) -> str | None:
    """A stretch of the text between words, free of quotation marks and line ends; None where it has none."""
    words = list(WORD.finditer(text))
    if not words:
        return None
    start = rng.choice(words).start()
    ends = [word.end() for word in words if start + least <= word.end() <= start + most]
    quote = text[start : rng.choice(ends)] if ends else ""
    return None if not quote or re.search(r"[\"“”„«»‘’「」『』\n\[\]]", quote) else quote


def alterations(quote: str, rng: random.Random) -> Iterator[str]:
    """The quote altered once, in each of many ways that apply to it."""
    words = list(WORD.finditer(quote))
    word = rng.choice(words)
    inner = rng.randrange(len(quote))
    letters = "abcdeиклмн的一是不了" + "0123456789"
    yield quote[: word.start()] + quote[word.end() :].lstrip()  # a word left out
    yield quote[: word.end()] + " " + rng.choice(("not", "не", "不", "only", "every")) + quote[word.end() :]
    yield quote[: word.start()] + word[0].swapcase() + quote[word.end() :]
    yield quote[:inner] + rng.choice(letters) + quote[inner + 1 :]
    yield quote[:inner] + quote[inner + 1 :]
    yield quote[:inner] + rng.choice(letters) + quote[inner:]
    yield quote[:inner] + quote[inner : inner + 2][::-1] + quote[inner + 2 :]
    if len(words) > 1:
        one, other = sorted(rng.sample(words, 2), key=lambda found: found.start())
        middle = quote[one.end() : other.start()]
        yield quote[: one.start()] + other[0] + middle + one[0] + quote[other.end() :]
    if digits := list(re.finditer(r"\d", quote)):
        digit = rng.choice(digits)
        yield quote[: digit.start()] + str((int(digit[0]) + rng.randint(1, 9)) % 10) + quote[digit.end() :]
    if marks := list(re.finditer(r"[,.;:，。；：-]", quote)):
        mark = rng.choice(marks)
        yield quote[: mark.start()] + rng.choice("!?/") + quote[mark.end() :]
        yield quote[: mark.start()] + quote[mark.end() :]
    yield quote + " " + rng.choice(("however", "однако", "但是"))


def stands_in(quote: str, texts: list[str]) -> bool:
    """Whether a quote is a part of a text, white space apart: the plainest way to ask."""
    return any(" ".join(quote.split()) in " ".join(text.split()) for text in texts)
