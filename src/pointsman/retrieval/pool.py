"""The candidates of one question: what keyword and vector search found, with *both* scores for every one of them.

Fusing ranks, or scores normalised per query, throws away how good a list is in absolute terms. With both raw scores at
hand for the whole union the calibrated sum needs no normalisation, and how deep the lists go does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from pointsman.errors import UnknownNameError
from pointsman.protocols import Key
from pointsman.retrieval.fusion import METHODS, calibrated_sum, fuse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.protocols import KeywordIndex, VectorIndex
    from pointsman.retrieval.calibration import CosineSpread

Ranking = list[tuple[Key, float]]
Name = TypeVar("Name")

DEPTH = 100
"""How many candidates each list brings."""

LISTS = {"bm25": (True, False), "vector": (False, True), "hybrid": (True, True), **dict.fromkeys(METHODS, (True, True))}
"""Ranking method -> whether it needs the keyword list and the vector list."""


@dataclass(frozen=True, slots=True)
class Pool(Generic[Key]):
    """Two lists, best first, and both scores of everything in either; a list that was not asked for is empty."""

    keyword: Ranking[Key] = field(default_factory=list)
    vector: Ranking[Key] = field(default_factory=list)
    bm25: Mapping[Key, float] = field(default_factory=dict)
    cosine: Mapping[Key, float] = field(default_factory=dict)

    def ranked(self, method: str, spread: CosineSpread | None = None) -> Ranking[Key]:
        """One list out of the two; ``spread`` says where this embedder's cosines lie (needed by ``hybrid`` alone)."""
        if method == "bm25":
            return self.keyword
        if method == "vector":
            return self.vector
        if method == "hybrid":
            assert spread is not None, "the calibrated sum needs to know the spread of cosines"
            keys = list(self.bm25)
            above = [self.cosine[key] - spread.mean for key in keys]
            return calibrated_sum(keys, list(self.bm25.values()), above, sigma=spread.sigma)
        if method not in METHODS:
            raise UnknownNameError("ranking method", method, tuple(LISTS))
        if method in {"rrf", "round_robin"}:
            return fuse([self.keyword, self.vector], method)
        # Score-based methods see every candidate in both lists; a document without a vector is only in one.
        cosines = [(key, cosine) for key, cosine in self.cosine.items() if not math.isnan(cosine)]
        return fuse([_best_first(list(self.bm25.items())), _best_first(cosines)], method)


def gather(
    query: str,
    vector: NDArray[np.float32] | None,
    keyword_index: KeywordIndex[Key] | None,
    vector_index: VectorIndex[Key] | None,
    *,
    filters: Filter | None = None,
    depth: int = DEPTH,
) -> Pool[Key]:
    """Search the indexes that are given, and score in each what only the other has found."""
    words = keyword_index.search(query, depth, filters) if keyword_index is not None else []
    near = vector_index.search(vector, depth, filters) if vector_index is not None and vector is not None else []
    bm25, cosine = dict(words), dict(near)
    only_near = [key for key in cosine if key not in bm25]
    only_words = [key for key in bm25 if key not in cosine]
    if keyword_index is not None:
        bm25.update(zip(only_near, keyword_index.score(query, only_near), strict=True))
    if vector_index is not None and vector is not None:
        cosine.update(zip(only_words, vector_index.score(vector, only_words), strict=True))
    elif keyword_index is not None:
        cosine = dict.fromkeys(bm25, math.nan)
    return Pool(words, near, bm25, cosine)


def merge(pools: Mapping[str, Pool[Key]]) -> Pool[tuple[str, Key]]:
    """The candidates of several datasets as one pool; a key is then the dataset's name and the key in it."""
    named = list(pools.items())
    return Pool(
        _best_first([((name, key), score) for name, pool in named for key, score in pool.keyword]),
        _best_first([((name, key), score) for name, pool in named for key, score in pool.vector]),
        {(name, key): score for name, pool in named for key, score in pool.bm25.items()},
        {(name, key): score for name, pool in named for key, score in pool.cosine.items()},
    )


def _best_first(ranking: Ranking[Key]) -> Ranking[Key]:
    return sorted(ranking, key=lambda item: -item[1])  # stable: ties keep the order they came in
