"""One search of both indexes of a dataset: each also scores the hits that only the other has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pointsman.store.store_values import MATCHED, NEAR, WORDS, Lists
from pointsman.tools.system.at_once import at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.store.local.keyword.word_query import WordQuery
    from pointsman.store.local.vectors.vector_query import VectorQuery
    from pointsman.values.filters import Filter

_BESIDE_ROWS = 50_000  # a scan of as many vectors takes far longer than another thread takes to begin it


def search_both(words: WordQuery | None, vectors: VectorQuery | None, depth: int, filters: Filter | None) -> Lists:
    """Search both indexes; each also scores the hits that only the other has.

    Args:
        words: what is searched for in the keyword index; None: nothing.
        vectors: the same in the vectors.
        depth: how many hits of each.
        filters: which documents are searched; None: all.
    """
    is_long = vectors is not None and len(vectors.state.base.keys) > _BESIDE_ROWS
    if words is not None and vectors is not None and is_long:
        nearest, lexical = at_once(partial(vectors.search, depth, filters), partial(words.search, depth, filters))
        rankings = {WORDS: lexical, NEAR: nearest}
    else:
        queries = ((WORDS, words), (NEAR, vectors))
        rankings = {name: query.search(depth, filters) for name, query in queries if query is not None}
    scores = {name: dict(ranking) for name, ranking in rankings.items()}
    if words is None:
        return Lists(rankings, scores)
    bm25 = scores[WORDS]
    if vectors is not None:
        cosine = scores[NEAR]
        only_near = [key for key in cosine if key not in bm25]
        only_words = [key for key in bm25 if key not in cosine]
        if is_long:
            cosines, lexical_scores = at_once(partial(vectors.score, only_words), partial(words.score, only_near))
        else:
            lexical_scores, cosines = words.score(only_near), vectors.score(only_words)
        bm25.update(zip(only_near, lexical_scores, strict=True))
        cosine.update(zip(only_words, cosines, strict=True))
    scores[MATCHED] = {key: words.matched.get(key, 0.0) for key in bm25}
    return Lists(rankings, scores, idf=words.idf)


def score_both(
    words: WordQuery | None, vectors: VectorQuery | None, keys: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Score documents by what is searched for in both indexes; see `search_both`."""
    scores: dict[str, dict[int, float]] = {}
    if words is not None:
        scores[WORDS] = dict(zip(keys, words.score(keys), strict=True))
        scores[MATCHED] = {key: words.matched.get(key, 0.0) for key in keys}
    if vectors is not None:
        scores[NEAR] = dict(zip(keys, vectors.score(keys), strict=True))
    return scores
