"""Bookkeeping of scores: which are known, which are missing, and whether an answer is valid."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real

from pointsman.tools.byte_cache import ByteCache
from pointsman.tools.errors import ModelError

Pair = tuple[str, str]
"""A query and a text to score for it."""

CacheKey = tuple[str, str, bytes]
"""The reranker's name, the query, and the digest of the scored texts."""

ScoreCache = ByteCache[CacheKey, tuple[float, ...]]
"""The scores used last; size 0 caches nothing."""


class PartialScores(list[float]):
    """Scores of which some are missing; returned by a ``score()`` that can fail for single texts.

    The base class inserts the mean of the nearest scores before and after in the incoming order, so that such a
    document stays near its place instead of looking irrelevant; it reports each of them, and caches none.

    Args:
        scores: one per text; values at positions in ``missing`` are ignored.
        missing: the cause, in words, by position.
    """

    def __init__(self, scores: Sequence[float], missing: Mapping[int, str]) -> None:
        super().__init__(scores)
        self.missing = dict(missing)


def digest(texts: Sequence[str]) -> bytes:
    """Identifies a list of texts by 16 bytes; even chosen texts cannot make two lists collide."""
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        hasher.update(len(content).to_bytes(8, "big"))
        hasher.update(content)
    return hasher.digest()


@dataclass(frozen=True, slots=True)
class PairScores:
    """One score per text of a list, the number computed for it, and a description of estimated ones."""

    scores: Sequence[float]
    fresh: int
    problem: str = ""


class ScoreLookup:
    """Scores for some lists: the cached ones, the ``missing`` ones, and all of them once those have arrived.

    Caching and requests go by *unit*: one text, or, if scores depend on each other, a whole list.
    """

    def __init__(self, name: str, cache: ScoreCache, independent: bool, lists: Sequence[Sequence[Pair]]) -> None:
        self.name, self.cache, self.independent, self.lists = name, cache, independent, lists
        units: Iterable[tuple[Pair, ...]] = (
            ((pair,) for pairs in lists for pair in pairs)
            if independent
            else (tuple(pairs) for pairs in lists if pairs)
        )
        self.keys: dict[tuple[Pair, ...], CacheKey] = {
            unit: (name, unit[0][0], digest([text for _, text in unit])) for unit in dict.fromkeys(units)
        }
        self.scores_by_unit = {
            unit: scores for unit, key in self.keys.items() if (scores := cache.get(key)) is not None
        }
        self.wanted = [unit for unit in self.keys if unit not in self.scores_by_unit]
        self.missing: list[Pair] = [pair for unit in self.wanted for pair in unit]
        self.asked = frozenset(self.missing)
        self.lost: dict[Pair, str] = {}

    def for_one_query(self) -> tuple[str, list[str]]:
        """The missing texts, if all of them are for the same query."""
        return self.missing[0][0], [text for _, text in self.missing]

    def hear(self, answer: Sequence[float]) -> None:
        """Accept scores for ``missing``.

        Raises:
            ModelError: they are invalid.
        """
        scores = checked(answer, len(self.missing), self.name)
        self.lost = {self.missing[index]: cause for index, cause in scores.missing.items()}
        values = iter(scores)
        fresh = {unit: tuple(islice(values, len(unit))) for unit in self.wanted}
        self.scores_by_unit.update(fresh)
        for unit, row in fresh.items():
            if not any(pair in self.lost for pair in unit):
                self.cache[self.keys[unit]] = row

    def scored(self) -> list[PairScores]:
        """The scores of every list, in order.

        Raises:
            ModelError: more than half of a list got no score, so that the others cannot be estimated.
        """
        return [self._scores_of(pairs) for pairs in self.lists]

    def _scores_of(self, pairs: Sequence[Pair]) -> PairScores:
        if self.independent:
            scores = [self.scores_by_unit[(pair,)][0] for pair in pairs]
        else:
            scores = list(self.scores_by_unit[tuple(pairs)]) if pairs else []
        errors = {index: self.lost[pair] for index, pair in enumerate(pairs) if pair in self.lost}
        if 2 * len(errors) > len(pairs):
            raise ModelError(told_missing(errors, len(pairs)))
        fresh = sum(pair in self.asked for pair in pairs)
        problem = f"{told_missing(errors, len(pairs))}; each stays near its neighbours" if errors else ""
        return PairScores(_scores_between(scores, errors), fresh, problem)


def checked(answer: Sequence[float], count: int, name: str) -> PartialScores:
    """Check the scores and return them as floats.

    Raises:
        ModelError: there is not exactly one finite number per text.
    """
    errors = answer.missing if isinstance(answer, PartialScores) else {}
    missing = {index: cause for index, cause in errors.items() if 0 <= index < count}
    if isinstance(answer, str | bytes | Mapping) or not hasattr(answer, "__iter__"):
        raise ModelError(f"{name} gave {type(answer).__name__} where a list of {count} scores is wanted")
    scores = list(islice(answer, count + 1))
    if len(scores) != count:
        raise ModelError(f"{name} gave {'more' if len(scores) > count else len(scores)} scores for {count} texts")
    for index, score in enumerate(scores):
        if index not in missing and not (isinstance(score, Real) and math.isfinite(score)):
            raise ModelError(f"{name} gave {score!r:.80} as a score; a score is a finite number")
    return PartialScores([0.0 if index in missing else float(score) for index, score in enumerate(scores)], missing)


def _scores_between(scores: list[float], errors: Mapping[int, str]) -> list[float]:
    """The scores, with each missing one replaced by the mean of its nearest neighbours before and after."""
    if not errors:
        return scores
    scored_places = [index for index in range(len(scores)) if index not in errors]
    values = list(scores)
    for index in errors:
        previous = [scores[scored_index] for scored_index in scored_places if scored_index < index][-1:]
        following = [scores[scored_index] for scored_index in scored_places if scored_index > index][:1]
        neighbours = previous + following
        values[index] = sum(neighbours) / len(neighbours)
    return values


def told_missing(missing: Mapping[int, str], count: int) -> str:
    """The number of missing scores, and the first cause, in words."""
    return f"{len(missing)} of {count} texts got no score ({next(iter(missing.values()))})"
