"""What the suite for stores writes and asks: odd documents, filters, vectors, and the exact BM25 to compare with."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.evaluation.conformance.suite_samples import DOCUMENTS
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.filters import And, Contains, EndsWith, Equals, Exists, Filter, In, Not, Or, Range, StartsWith
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


EMBEDDER: Final = "conformance"
"""The name under which the suite writes its vectors."""
DIMENSIONS: Final = 16

SAMPLE_WORDS: Final = re.findall(
    r"\w+",
    "rail signal track train yard switch lamp lever engine ticket steam bridge tunnel whistle guard river "
    "поезд вагон семафор мост станция паровоз рельсы машинист 铁路 信号灯 列车 大桥 隧道 锅炉 车站 售票",
)
_KEYS: Final = ("year", "lang", "tag", "a.b", "空 間", "", "nul\0key", "источник")
_PATHS: Final = ("year.a", "lang.a", "tag.a", "a.b.a", "_id", "_text")
_VALUES: Final[tuple[Any, ...]] = (
    *(
        0,
        1,
        -1,
        2,
        2.0,
        2.5,
        -0.0,
        1e300,
        2**53,
        2**53 + 1,
        2**53 + 2,
        -(2**63) - 1,
        10**20,
        10**20 + 1,
        10**400,
        -(10**400),
        1999,
        2004,
    ),
    *(
        True,
        False,
        None,
        "",
        "a",
        "A",
        "b",
        "1",
        "true",
        "null",
        "ё",
        "е",
        "e\u0301",
        "é",
        "\0",
        "\x01",
        "\x01\0",
        "a\0",
    ),
    *(
        "😀",
        "\uffff",
        "\ue000",
        "2024-01-15",
        "2024-02",
        "2024-01-15T01:00:00+03:00",
        "2024-01-14T22:00:00Z",
        "2024-01-14T22:00:00.5Z",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "z" * 300,
        "$.a",
        "a b",
    ),
)
_BOUNDS: Final = (math.inf, -math.inf, "\ud800", "b\udfff", 2003.5, 10**300)


def bm25(documents: Sequence[Document], query: str, k1: float = 1.2, b: float = 0.75) -> dict[str, float]:
    """The exact score of each document that contains a word of the query, by id.

    Robertson and Zaragoza (2009) in Lucene's form: idf = ln(1 + (N - n + 1/2) / (n + 1/2)), no factor k1 + 1. A word
    that occurs twice in the query counts twice.

    >>> bm25([Document("1", "red lamp"), Document("2", "lamp lamp post")], "red")
    {'1': 0.3431421685940323}
    """
    counts = [Counter(DEFAULT_ANALYZER.tokens(document.searchable)) for document in documents]
    lengths = [counter.total() for counter in counts]
    average = sum(lengths) / max(len(lengths), 1) or 1.0
    scores: dict[str, float] = {}
    for token, weight in Counter(DEFAULT_ANALYZER.query_tokens(query)).items():
        n = sum(token in counter for counter in counts)
        idf = weight * math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
        for document, counter, length in zip(documents, counts, lengths, strict=True):
            if token in counter:
                share = idf * counter[token] / (counter[token] + k1 * (1 - b + b * length / average))
                scores[document.id] = scores.get(document.id, 0.0) + share
    return scores


def odd_documents(count: int = 150, seed: int = 7) -> list[Document]:
    """Documents in three languages, of 1 to 60 words, with metadata of every kind; the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311  (for tests, not for secrets)

    def value(depth: int = 0) -> Any:
        if depth < 2 and chance.random() < 0.3:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        return {"a": value(2)} if chance.random() < 0.05 else chance.choice(_VALUES)

    def metadata() -> dict[str, Any]:
        return {key: value() for key in _KEYS if chance.random() < 0.5} | {"rare": chance.random() < 0.05}

    random_documents = [
        Document(f"d{number}", " ".join(chance.choices(SAMPLE_WORDS, k=chance.randrange(1, 60))), metadata())
        for number in range(count - len(DOCUMENTS))
    ]
    return [*DOCUMENTS, *random_documents]


def random_filter(chance: random.Random, depth: int = 3) -> Filter:
    """A filter tree over the metadata of `odd_documents`, including operands that no document has."""
    if depth and chance.random() < 0.5:
        if chance.random() < 0.3:
            return Not(random_filter(chance, depth - 1))
        return chance.choice((And, Or))(tuple(random_filter(chance, depth - 1) for _ in range(chance.randrange(4))))
    key = chance.choice((*_KEYS, *_PATHS, "language", "rare", "nobody has it", "\ud800"))
    texts = [value for value in (*_VALUES, *_BOUNDS, "Ё", "É", "d1", "ЛЬ", "灯 ") if isinstance(value, str)]
    operands = [value for value in (*_VALUES, *_BOUNDS) if value is not None]
    leaves = (
        lambda: Equals(key, chance.choice(operands)),
        lambda: In(key, tuple(chance.choices(operands, k=chance.randrange(4)))),
        lambda: Exists(key),
        lambda: _random_range(chance, key, operands),
        lambda: chance.choice((Contains, StartsWith, EndsWith))(key, chance.choice(texts), chance.random() < 0.5),
    )
    leaf: Filter = chance.choice(leaves)()
    return leaf


def _random_range(chance: random.Random, key: str, operands: Sequence[Any]) -> Range:
    kinds = str if chance.random() < 0.5 else (int, float)
    low, high = chance.sample(
        [operand for operand in operands if isinstance(operand, kinds) and not isinstance(operand, bool)], 2
    )
    bounds = {chance.choice(("gt", "gte")): low, chance.choice(("lt", "lte")): high}
    if chance.random() < 0.5:
        bounds.popitem()
    return Range(key, **bounds)


def vector_of(text: str) -> NDArray[np.float32]:
    """A vector of length 1 that depends only on the text, shape ``(16,)``."""
    seed = np.frombuffer(text.encode("utf-8", "surrogatepass")[:4096].ljust(4), np.uint8)
    row = np.random.default_rng(seed.astype(np.uint32)).standard_normal(DIMENSIONS)
    vector: NDArray[np.float32] = (row / np.linalg.norm(row)).astype(np.float32)
    return vector


def vectors_of(documents: Sequence[Document]) -> NDArray[np.float32]:
    """`vector_of` each text, shape ``(len(documents), 16)``."""
    rows = [vector_of(document.text) for document in documents]
    return np.array(rows, np.float32).reshape(-1, DIMENSIONS)
