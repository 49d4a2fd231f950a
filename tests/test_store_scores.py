"""BM25 as the formula has it over the documents that there are, whatever was deleted (I1)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pointsman.filters import Range
from pointsman.store.local import keyword
from pointsman.text import DEFAULT_ANALYZER
from pointsman.types import Document
from store_kit import WORDS, add, opened, sound

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection

WITHIN = 0.03


def formula(documents: Mapping[str, Document], query: str) -> dict[str, float]:
    """Robertson and Zaragoza (2009) with Lucene's idf, k1 = 1.2, b = .75; without those that score nothing."""
    tokens = {id_: DEFAULT_ANALYZER.tokens(one.searchable) for id_, one in documents.items()}
    average = sum(map(len, tokens.values())) / len(tokens)
    holding = Counter(token for found in tokens.values() for token in set(found))
    scores = {}
    for id_, found in tokens.items():
        counts, norm = Counter(found), 1.2 * (0.25 + 0.75 * len(found) / average)
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    made = opened(tmp_path)
    yield made
    made.close()


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


@pytest.mark.parametrize("seed", range(4))
def test_random_work(store: Collection, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword, "_COMPACT", 10**9 if seed % 2 else 20)
    chance = random.Random(seed)
    weights = [2 ** (-place / 2) for place in range(len(WORDS))]
    live: dict[str, Document] = {}
    worst = []
    for _ in range(25):
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
        worst += [check(store, live, " ".join(chance.choices(WORDS, k=chance.randrange(1, 5)))) for _ in range(4)]
    assert max(worst) < WITHIN
    assert sorted(worst)[len(worst) // 2] < 0.01
    sound(store)


@pytest.mark.parametrize("compact", [20, 10**9])
def test_with_nearly_all_deleted(store: Collection, compact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword, "_COMPACT", compact)
    chance = random.Random(1)
    documents = {
        f"d{number}": Document(f"d{number}", " ".join(chance.choices(WORDS, k=5 + number % 200)), {"number": 1})
        for number in range(1000)
    }
    add(store, list(documents.values()))
    kept = {id_: documents[id_] for id_ in chance.sample(sorted(documents), 5)}
    store.delete([id_ for id_ in documents if id_ not in kept])
    queries = [" ".join(chance.choices(WORDS, k=3)) for _ in range(20)]
    assert max(check(store, kept, query) for query in queries) < WITHIN
    before = [store.keyword.search(query, 5) for query in queries]
    store.rebuild()
    for query, hits in zip(queries, before, strict=True):
        again = store.keyword.search(query, 5)
        assert [key for key, _ in again] == [key for key, _ in hits]
        assert [score for _, score in again] == pytest.approx([score for _, score in hits], rel=1e-5)


def test_an_index_that_was_built_before_the_first_document_counts_documents_alone(store: Collection) -> None:
    with store.writing():
        store.keyword.catch_up()
    documents = {f"{number}": Document(f"{number}", f"signal {number}", {"number": number}) for number in range(6)}
    add(store, list(documents.values()))
    assert check(store, documents, "signal 3") < 0.001
    assert len(set(store.keyword.keys())) == len(documents)


def test_an_index_that_is_mostly_deleted_is_built_anew(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword, "_COMPACT", 20)
    add(store, [Document(f"d{number}", "rail signal") for number in range(100)])

    def held() -> int:
        return sum(segment["max_doc"] for segment in keyword._segments(store.keyword._directory))

    store.delete([f"d{number}" for number in range(40)])
    assert held() > 60
    store.delete([f"d{number}" for number in range(40, 90)])
    add(store, [Document("new", "rail")])  # what was deleted is seen by the next write
    assert held() == 12
    assert len(store.keyword.search("rail", 100)) == 11
    sound(store)


def test_lengths_in_one_byte() -> None:
    """Lucene's SmallFloat, which tantivy has: exact to 39, then steps that double."""
    steps = {39: 39, 40: 40, 41: 40, 54: 54, 55: 54, 56: 56, 59: 56, 60: 60, 87: 84, 88: 88, 95: 88, 151: 144, 152: 152}
    assert {length: keyword._in_a_byte(length) for length in steps} == steps
