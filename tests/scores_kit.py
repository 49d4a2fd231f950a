"""BM25 by its formula over live documents, and random work to compare an index with it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.filters import Range
from pointsman.values.types import Document
from store_kit import WORDS, add

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection

WITHIN = 1e-6


def formula(documents: Mapping[str, Document], query: str) -> dict[str, float]:
    """Robertson and Zaragoza (2009) with Lucene's idf, k1 = 1.2, b = .75; without those that score nothing."""
    tokens = {id_: DEFAULT_ANALYZER.tokens(one.searchable) for id_, one in documents.items()}
    average = sum(map(len, tokens.values())) / len(tokens)
    holding = Counter(token for words in tokens.values() for token in set(words))
    scores = {}
    for id_, words in tokens.items():
        counts, norm = Counter(words), 1.2 * (0.25 + 0.75 * len(words) / average)
        score = sum(
            count
            * math.log(1 + (len(tokens) - holding[token] + 0.5) / (holding[token] + 0.5))
            * counts[token]
            / (counts[token] + norm)
            for token, count in Counter(DEFAULT_ANALYZER.query_tokens(query)).items()
        )
        if score:
            scores[id_] = score
    return scores


def check(store: Collection, documents: Mapping[str, Document], query: str, k: int = 10) -> float:
    """The largest deviation of a score, as a share of it; everything else is asserted."""
    wanted = formula(documents, query)
    hits = store.keyword.search(query, k)
    ids = [one.id if one else "" for one in store.truth.fetch([key for key, _ in hits])]
    assert len(ids) == min(k, len(wanted))
    assert store.keyword.score(query, [key for key, _ in hits]) == pytest.approx([score for _, score in hits], rel=1e-5)
    if ids:  # nothing is left out that scores higher by more than both deviations
        assert max([0, *(wanted[id_] for id_ in wanted.keys() - set(ids))]) <= (1 + 2 * WITHIN) * wanted[ids[-1]]
    filtered = store.keyword.search(query, k, Range("number", gte=0))
    assert [score for _, score in filtered] == pytest.approx([score for _, score in hits], rel=WITHIN)
    return max((abs(score / wanted[id_] - 1) for id_, (_, score) in zip(ids, hits, strict=True)), default=0.0)


def random_work(store: Collection, seed: int, rounds: int) -> Iterator[tuple[dict[str, Document], list[str]]]:
    """Add, update and delete; after each round the documents that there are, and some queries."""
    chance = random.Random(seed)
    weights = [2 ** (-place / 2) for place in range(len(WORDS))]
    live: dict[str, Document] = {}
    for _ in range(rounds):
        length = chance.choice((3, 30, 300))  # whoever goes may be of another length than who stays
        fresh = {
            id_: Document(
                id_, " ".join(chance.choices(WORDS, weights, k=chance.randrange(1, length + 1))), {"number": 1}
            )
            for id_ in {f"d{chance.randrange(400)}" for _ in range(chance.randrange(1, 60))}
        }
        add(store, list(fresh.values()))
        live |= fresh
        gone = chance.sample(sorted(live), chance.randrange(0, min(len(live), 50)))
        store.delete(gone)
        live = {id_: one for id_, one in live.items() if id_ not in gone}
        yield live, [" ".join(chance.choices(WORDS, k=chance.randrange(1, 5))) for _ in range(4)]
