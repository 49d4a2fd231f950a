"""Thinning out: near duplicates, limits per source, maximal marginal relevance. Pure functions, and a refiner of them.

Everything compares words as `pointsman.text` makes them, or vectors where they are given; so English, Chinese (by
characters and pairs) and Russian are treated alike. Nothing depends on chance: equal input gives equal output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import InputError
from pointsman.retrieval.refine import BaseRefiner
from pointsman.text import DEFAULT_ANALYZER
from pointsman.types import Hit, HitKey, Query, Ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

SHINGLE: Final = 3
"""Neighbouring words in a shingle."""

WIDENED: Final = 3
"""How many times as many hits are looked at as are wanted, so that what is dropped can be made up for."""

_CHARACTERS = 20_000  # of a hit: texts that are the same so far are the same

Source = str | Callable[[Hit], Hashable]
"""What a hit's source is: the name of a metadata value, or a function of the hit; None means that it has none."""


def shingles(text: str, size: int = SHINGLE) -> frozenset[tuple[str, ...]]:
    """All runs of ``size`` neighbouring words of a text; a shorter text is one run, an empty one has none.

    Broder, "On the resemblance and containment of documents", 1997, https://doi.org/10.1109/SEQUEN.1997.666900.

    >>> sorted(shingles("Red apples, green pears", 3))
    [('appl', 'green', 'pear'), ('red', 'appl', 'green')]
    """
    words = DEFAULT_ANALYZER.tokens(text[:_CHARACTERS])
    if len(words) < size:
        return frozenset({tuple(words)} if words else ())
    return frozenset(zip(*(words[start:] for start in range(size)), strict=False))


def jaccard(first: frozenset[Any], second: frozenset[Any]) -> float:
    """What two sets share, as a part of all they have; 0 where both are empty.

    >>> jaccard(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    both = len(first & second)
    return both / (len(first) + len(second) - both) if both else 0.0


def near_duplicates(texts: Sequence[str], threshold: float, size: int = SHINGLE) -> dict[int, tuple[int, float]]:
    """Which texts are nearly the same as one before them that is kept; all pairs are compared, exactly.

    Args:
        texts: best first: of two duplicates the first one is kept.
        threshold: the least resemblance (Jaccard of shingles) of duplicates, above 0 and at most 1.
        size: words in a shingle.

    Returns:
        For each duplicate the text it is most like, and how much: places in ``texts``.

    >>> near_duplicates(["a red apple falls far", "no such thing here", "A red apple falls, far!"], 0.9)
    {2: (0, 1.0)}
    """
    originals: list[tuple[int, frozenset[Any]]] = []
    duplicates: dict[int, tuple[int, float]] = {}
    for place, text in enumerate(texts):
        own = shingles(text, size)
        best = (0.0, -1)
        for other, other_shingles in originals:
            small, large = sorted((len(own), len(other_shingles)))
            if small >= threshold * large:  # else no overlap could be enough
                best = max(best, (jaccard(own, other_shingles), -1 - other))  # of equals the better ranked
        if best[0] >= threshold:
            duplicates[place] = -1 - best[1], best[0]
        else:
            originals.append((place, own))
    return duplicates


def over_the_limit(keys: Sequence[Hashable], most: int) -> list[int]:
    """The places of those whose key has occurred ``most`` times before them; None as a key has no limit.

    >>> over_the_limit(["a", "b", "a", None, "a", None, None], 1)
    [2, 4]
    """
    seen: Counter[Hashable] = Counter()
    over = []
    for place, key in enumerate(keys):
        if key is not None:
            seen[key] += 1
            if seen[key] > most:
                over.append(place)
    return over


def mmr(relevance: ArrayLike, similarity: ArrayLike, weight: float, count: int | None = None) -> list[int]:
    """Maximal marginal relevance: the places of the candidates, each chosen for being relevant and unlike those before.

    Next comes whoever has the greatest ``weight · relevance - (1 - weight) · (greatest similarity to those chosen)``;
    of equals the first. Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents
    and producing summaries", SIGIR 1998, https://doi.org/10.1145/290941.291025.

    Args:
        relevance: shape ``(n,)``.
        similarity: shape ``(n, n)``, on a scale like that of relevance.
        weight: λ, from 0 (unlike each other) to 1 (relevance alone).
        count: how many to choose; all of them unless given.

    Raises:
        InputError: shapes do not fit, or the weight is none.

    >>> mmr([1.0, 0.9, 0.5], [[1, 1, 0], [1, 1, 0], [0, 0, 1]], weight=0.5)
    [0, 2, 1]
    """
    import numpy as np

    relevant, alike = np.asarray(relevance, np.float64), np.asarray(similarity, np.float64)
    if relevant.ndim != 1 or alike.shape != 2 * relevant.shape:
        raise InputError(f"similarity is a square beside relevance, not {alike.shape} beside {relevant.shape}")
    _check_share("weight of MMR", weight, zero=True)
    free = np.ones(len(relevant), bool)
    nearest = np.zeros(len(relevant))
    order: list[int] = []
    while len(order) < len(relevant) and (count is None or len(order) < count):
        worth = np.where(free, weight * relevant - (1 - weight) * nearest, -np.inf)
        best = int(worth.argmax())
        nearest = np.maximum(nearest, alike[best]) if order else alike[best]
        free[best] = False
        order.append(best)
    return order


class Diversifier(BaseRefiner):
    """Makes room for what is different: drops near duplicates, limits each source, reorders by MMR; in this order.

    What is dropped stands with its reason in ``dropped``; MMR drops nothing. What is left open does nothing.

    Args:
        max_per_source: hits of one source at most.
        near_duplicates: the resemblance from which a hit goes, as a better one says the same; 0.9 is usual.
        mmr_lambda: λ of `mmr`; 1 leaves the order as it is, less makes it more various.
        max_per_dataset: hits of one dataset at most.
        source: what a hit's source is; hits without one are not limited.
        vectors: gives an array of shape ``(len(hits), dimensions)`` for hits, NaN where one has no vector; then MMR
            compares by cosine, else by the words that two hits share (Jaccard).

    Raises:
        InputError: an option cannot be used.
    """

    stage = "diversify"

    def __init__(
        self,
        max_per_source: int | None = None,
        near_duplicates: float | None = None,
        mmr_lambda: float | None = None,
        *,
        max_per_dataset: int | None = None,
        source: Source = "source",
        vectors: Callable[[Sequence[Hit]], ArrayLike] | None = None,
    ) -> None:
        for name, most in (("max_per_source", max_per_source), ("max_per_dataset", max_per_dataset)):
            if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
                raise InputError(f"{name} is an int from 1 up, or None for no limit, not {most!r:.80}")
        if near_duplicates is not None:
            _check_share("near_duplicates", near_duplicates, zero=False)
        if mmr_lambda is not None:
            _check_share("mmr_lambda", mmr_lambda, zero=True)
        if not (callable(source) or isinstance(source, str)):
            raise InputError(f"source is the name of a metadata value or a function of a hit, not {source!r:.80}")
        self.max_per_source, self.max_per_dataset = max_per_source, max_per_dataset
        self.near_duplicates, self.mmr_lambda = near_duplicates, mmr_lambda
        self._source = source if callable(source) else _from_metadata(source)
        self._vectors = vectors
        self.in_place = near_duplicates is None and mmr_lambda is None  # counting is quick, comparing texts is not

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any scale)
        """More than are wanted: some will go, or others may come before them."""
        options = (self.max_per_source, self.max_per_dataset, self.near_duplicates, self.mmr_lambda)
        return top_k if all(option is None for option in options) else WIDENED * top_k

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (the cut is the workflow's)
        """The hits that are left, best first; with MMR in their new order."""
        hits, dropped, notes = list(ranked.hits), dict[HitKey, str](), []
        if self.near_duplicates is not None:
            duplicates = near_duplicates([_text(hit) for hit in hits], self.near_duplicates)
            reasons = {
                place: f"near duplicate of {hits[other].id} ({resemblance:.2f})"
                for place, (other, resemblance) in duplicates.items()
            }
            hits = _without(hits, reasons, dropped)
            notes.append(f"{len(reasons)} near duplicates dropped")
        for kind, most, source in (
            ("source", self.max_per_source, self._source),
            ("dataset", self.max_per_dataset, _dataset),
        ):
            if most is not None:
                keys = [source(hit) for hit in hits]
                reasons = {
                    place: f"{kind} {keys[place]!r:.80} has its {most} already" for place in over_the_limit(keys, most)
                }
                hits = _without(hits, reasons, dropped)
                notes.append(f"{len(reasons)} beyond {most} per {kind} dropped")
        if self.mmr_lambda is not None and len(hits) > 1:
            order = mmr(_relevance(hits), self._similarity(hits), self.mmr_lambda)
            moved = sum(place != was for place, was in enumerate(order))
            hits = [hits[place] for place in order]
            notes.append(f"{moved} hits moved by MMR (λ = {self.mmr_lambda:g})")
        return replace(ranked, hits=tuple(hits), detail="; ".join(notes), dropped={**ranked.dropped, **dropped})

    def _similarity(self, hits: Sequence[Hit]) -> NDArray[np.float64]:
        import numpy as np

        if self._vectors is not None:
            vectors = np.asarray(self._vectors(hits), np.float64)
            if vectors.ndim != 2 or len(vectors) != len(hits):
                raise InputError(f"vectors gives one row for each of {len(hits)} hits, not shape {vectors.shape}")
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            usable = np.isfinite(lengths) & (lengths > 0)
            rows = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=usable)
            return np.asarray(rows @ rows.T)  # what has no vector is like nothing
        words = [shingles(_text(hit), 1) for hit in hits]
        return np.array([[jaccard(row, other) for other in words] for row in words])


def _relevance(hits: Sequence[Hit]) -> NDArray[np.float64]:
    """Scores from 0 to 1, falling with the rank: the order that came in is the best there is."""
    import numpy as np

    scores = np.array([hit.score for hit in hits], np.float64)
    if np.isfinite(scores).all() and (np.diff(scores) <= 0).all() and scores[0] > scores[-1]:
        scores = scores / max(1.0, float(np.abs(scores).max()))  # differences of huge scores must not overflow
        return np.asarray((scores - scores[-1]) / (scores[0] - scores[-1]))
    return 1 - np.arange(len(hits)) / len(hits)


def _without(hits: Sequence[Hit], reasons: dict[int, str], dropped: dict[HitKey, str]) -> list[Hit]:
    """The hits that stay; those that go are noted."""
    dropped.update((hits[place].key, reason) for place, reason in reasons.items())
    return [hit for place, hit in enumerate(hits) if place not in reasons]


def _text(hit: Hit) -> str:
    return hit.document.searchable if hit.excerpt is None else hit.excerpt.text


def _dataset(hit: Hit) -> Hashable:
    return hit.dataset


def _from_metadata(name: str) -> Callable[[Hit], Hashable]:
    def source(hit: Hit) -> Hashable:
        value = hit.metadata.get(name)
        return value if isinstance(value, Hashable) else repr(value)  # a list, say

    return source


def _check_share(name: str, value: object, *, zero: bool) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (0 <= value <= 1) or not (zero or value):  # type: ignore[operator]  # looked at beside it
        raise InputError(f"{name} is a number from 0{'' if zero else ' (excluded)'} to 1, not {value!r:.80}")
