"""Scores: which of them are known, which are wanted, and whether an answer can be used."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real

from pointsman.errors import ModelError

Pair = tuple[str, str]
"""A query and a text to score for it."""

CacheKey = tuple[str, str, bytes]
"""The reranker's name, the query, and the digest of what was scored."""


class PartialScores(list[float]):
    """Scores of which some are not to be had; a ``score()`` that can lose single texts returns this.

    The base puts in the mean of the nearest scores before and after in the order that came in, so such a document
    stays near its place instead of looking irrelevant; it tells of every one, and keeps none of them in its cache.

    Args:
        scores: one per text; whatever stands at a position in ``missing`` is not looked at.
        missing: the cause, in words, by position.
    """

    def __init__(self, scores: Sequence[float], missing: Mapping[int, str]) -> None:
        super().__init__(scores)
        self.missing = dict(missing)


class ScoreCache:
    """The scores used last, at most ``size`` entries; safe to share between threads. Size 0 keeps nothing."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[CacheKey, tuple[float, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, keys: Iterable[CacheKey]) -> dict[CacheKey, tuple[float, ...]]:
        """What is there of these."""
        with self._lock:
            hits = {key: scores for key in keys if (scores := self._kept.get(key)) is not None}
            for key in hits:
                self._kept.move_to_end(key)
        return hits

    def keep(self, scores: Mapping[CacheKey, tuple[float, ...]]) -> None:
        """Remember these; what was not asked for longest goes."""
        with self._lock:
            self._kept.update(scores)
            for key in scores:
                self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)


def digest(texts: Sequence[str]) -> bytes:
    """Names a list of texts: 16 bytes, which nobody can make two lists share, whatever texts they send in."""
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        hasher.update(len(content).to_bytes(8, "big"))
        hasher.update(content)
    return hasher.digest()


@dataclass(frozen=True, slots=True)
class Scored:
    """One score per text of a list; how many were worked out for it, and what is guessed, in words."""

    scores: Sequence[float]
    fresh: int
    problem: str = ""


class Lookup:
    """What of some lists was scored before, what is ``missing``, and all of it once that has come.

    What is remembered and asked for goes by *unit*: one text, or, where scores depend on each other, a whole list.
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
        cached = cache.known(self.keys.values())
        self.found = {unit: cached[key] for unit, key in self.keys.items() if key in cached}
        self.wanted = [unit for unit in self.keys if unit not in self.found]
        self.missing: list[Pair] = [pair for unit in self.wanted for pair in unit]
        self.asked = frozenset(self.missing)
        self.lost: dict[Pair, str] = {}

    def for_one_query(self) -> tuple[str, list[str]]:
        """What is missing, where all of it is for the same query."""
        return self.missing[0][0], [text for _, text in self.missing]

    def hear(self, answer: Sequence[float]) -> None:
        """Take scores for ``missing``.

        Raises:
            ModelError: they cannot be used.
        """
        scores = checked(answer, len(self.missing), self.name)
        self.lost = {self.missing[place]: cause for place, cause in scores.missing.items()}
        values = iter(scores)
        fresh = {unit: tuple(islice(values, len(unit))) for unit in self.wanted}
        self.found.update(fresh)
        whole = {unit: values for unit, values in fresh.items() if not any(pair in self.lost for pair in unit)}
        self.cache.keep({self.keys[unit]: values for unit, values in whole.items()})

    def scored(self) -> list[Scored]:
        """The scores of every list, in its order.

        Raises:
            ModelError: more than half of a list got none, so that there is nothing to guess from.
        """
        return [self._of(pairs) for pairs in self.lists]

    def _of(self, pairs: Sequence[Pair]) -> Scored:
        if self.independent:
            scores = [self.found[(pair,)][0] for pair in pairs]
        else:
            scores = list(self.found[tuple(pairs)]) if pairs else []
        errors = {place: self.lost[pair] for place, pair in enumerate(pairs) if pair in self.lost}
        if 2 * len(errors) > len(pairs):
            raise ModelError(told_missing(errors, len(pairs)))
        fresh = sum(pair in self.asked for pair in pairs)
        problem = f"{told_missing(errors, len(pairs))}; each stays near its neighbours" if errors else ""
        return Scored(_between(scores, errors), fresh, problem)


def checked(answer: Sequence[float], count: int, name: str) -> PartialScores:
    """The scores as floats.

    Raises:
        ModelError: there is not one finite number for each text.
    """
    errors = answer.missing if isinstance(answer, PartialScores) else {}
    missing = {place: cause for place, cause in errors.items() if 0 <= place < count}
    if isinstance(answer, str | bytes | Mapping) or not hasattr(answer, "__iter__"):
        raise ModelError(f"{name} gave {type(answer).__name__} where a list of {count} scores is wanted")
    scores = list(islice(answer, count + 1))
    if len(scores) != count:
        raise ModelError(f"{name} gave {'more' if len(scores) > count else len(scores)} scores for {count} texts")
    for place, score in enumerate(scores):
        if place not in missing and not (isinstance(score, Real) and math.isfinite(score)):
            raise ModelError(f"{name} gave {score!r:.80} as a score; a score is a finite number")
    return PartialScores([0.0 if place in missing else float(score) for place, score in enumerate(scores)], missing)


def _between(scores: list[float], errors: Mapping[int, str]) -> list[float]:
    """The scores with each lost one as the mean of the nearest ones before and after it."""
    if not errors:
        return scores
    scored_places = [place for place in range(len(scores)) if place not in errors]
    filled = list(scores)
    for place in errors:
        before = [scores[other] for other in scored_places if other < place][-1:]
        after = [scores[other] for other in scored_places if other > place][:1]
        near = before + after
        filled[place] = sum(near) / len(near)
    return filled


def told_missing(missing: Mapping[int, str], count: int) -> str:
    """How many are missing, and the first cause, in words."""
    return f"{len(missing)} of {count} texts got no score ({next(iter(missing.values()))})"
