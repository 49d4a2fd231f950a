"""Passages of real sentences, cold questions over them and given vectors, the same on every run.

A passage is three sentences of one language, drawn from the public collections at ``POINTSMAN_TEST_DATA`` (by default
``../shared/data``): 60 % English, 20 % Russian, 20 % Chinese, some 102 tokens on average. Every question is new, so
that no cache helps: six words of a passage, or ten characters if it is Chinese.
"""

from __future__ import annotations

import json
import random
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from _data import DATA
from pointsman import Document
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 2
"""Changes whenever the same arguments yield other data: indexes kept from earlier runs are then built again."""
DIMENSIONS = 384
CHUNK = 10_000
"""Passages and vectors are drawn in chunks of this size, each from its own seed."""
_SENTENCE_END = {"en": r"(?<=[.!?])\s+", "ru": r"(?<=[.!?])\s+", "zh": r"(?<=[。！？])"}
_SHARES = {"en": 0.6, "ru": 0.2, "zh": 0.2}
_LONG = 9  # words of a long question
_CENTRES = 2000
_NOISE = 1.0  # standard deviation per dimension, as is that of a centre: real vectors lie in loose clusters, too


def some_sentences(count: int) -> list[str]:
    """Return up to so many sentences of 20 to 600 characters, of all three languages."""
    every = [text for texts in _sentences().values() for text in texts if 20 < len(text) < 600]
    random.Random(3).shuffle(every)
    return every[:count]


@cache
def _sentences() -> dict[str, list[str]]:
    sentences: dict[str, list[str]] = {}
    for language, end in _SENTENCE_END.items():
        distinct: dict[str, None] = {}
        for path in sorted(DATA.glob(f"{language}_*/corpus.jsonl")):
            with path.open(encoding="utf-8") as file:
                for line in file:
                    split = re.split(end, json.loads(line)["text"])
                    distinct.update(dict.fromkeys(sentence.strip() for sentence in split if sentence.strip()))
        if not distinct:
            sys.exit(f"no collections in {language!r} at {DATA}; set POINTSMAN_TEST_DATA")
        sentences[language] = list(distinct)
    return sentences


def passages(count: int, start: int = 0) -> Iterator[Document]:
    """Yield passages number ``start`` (a multiple of `CHUNK`) to ``start + count``, with metadata to filter by.

    ``share`` is a number from 0 to 999, so that ``share < 500`` allows half of them.
    """
    for first in range(start, start + count, CHUNK):
        chance = random.Random(f"passages {first}")
        for number in range(first, min(first + CHUNK, start + count)):
            language, text = _passage(chance)
            yield Document(
                f"passage-{number}",
                text,
                {"language": language, "share": chance.randrange(1000), "source": f"file-{number // 50}"},
            )


def _passage(chance: random.Random) -> tuple[str, str]:
    [language] = chance.choices(list(_SHARES), list(_SHARES.values()))
    sentences = _sentences()[language]
    return language, ("" if language == "zh" else " ").join(chance.choice(sentences) for _ in range(3))


def questions(count: int, seed: str) -> list[str]:
    """Return distinct questions; those of another seed differ from them."""
    chance, texts = random.Random(f"questions {seed}"), dict[str, None]()
    while len(texts) < count:
        language, text = _passage(chance)
        if language == "zh":
            characters = re.sub(r"\W+", "", text)
            first = chance.randrange(max(1, len(characters) - 9))
            texts[characters[first : first + 10]] = None
            continue
        words = list(dict.fromkeys(re.findall(r"[^\W\d_]{4,}", text)))
        if len(words) >= 6:
            texts[" ".join(chance.sample(words, 6))] = None
    return list(texts)


def people_questions(seed: str) -> Iterator[str]:
    """Yield the questions of the public collections in a random order, every other one of nine words and more."""
    chance, short, long = random.Random(f"people {seed}"), list[str](), list[str]()
    for path in sorted(DATA.glob("*/queries.jsonl")):
        if path.parent.name.startswith(("en_", "ru_", "zh_", "mh_")):
            texts = [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()]
            for text in dict.fromkeys(texts):
                (long if len(DEFAULT_ANALYZER.tokens(text)) >= _LONG else short).append(text)
    chance.shuffle(short)
    chance.shuffle(long)
    return chain.from_iterable(zip(long, short, strict=False))


@cache
def _centres() -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal((_CENTRES, DIMENSIONS), dtype=np.float32)


def vectors(count: int, start: int = 0) -> NDArray[np.float32]:
    """Return the vectors of passages ``start`` (a multiple of `CHUNK`) onward, in loose clusters on the unit sphere."""
    rows = np.empty((count, DIMENSIONS), np.float32)
    for first in range(0, count, CHUNK):
        rows[first : first + CHUNK] = _near_centres(start + first, min(CHUNK, count - first))
    return rows


def _near_centres(seed: int, count: int) -> NDArray[np.float32]:
    chance = np.random.default_rng(seed + 3)
    rows = _centres()[chance.integers(0, _CENTRES, count)]
    rows = rows + _NOISE * chance.standard_normal(rows.shape, dtype=np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


class VectorOfText:
    """An embedder that computes nothing: a text's vector follows from its checksum and lies near a cluster's centre."""

    name = "benchmark"
    dimensions = DIMENSIONS

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text."""
        return np.stack([_near_centres(zlib.crc32(text.encode()), 1)[0] for text in texts])

    embed_documents: Any = embed_queries
