"""Diversification: near duplicates, limits per group, maximal marginal relevance: functions and a refiner.

Texts are compared by their words, as `pointsman.text` makes them; so English, Chinese (by characters and pairs) and
Russian are treated alike. Nothing is random: equal input gives equal output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import is_number
from pointsman.values.filters import In, Not
from pointsman.values.metadata import values_of
from pointsman.values.types import Decision, Hit, HitKey, Query, Ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from pointsman.values.filters import Filter
    from pointsman.values.metadata import Typed
    from pointsman.values.types import Document

SHINGLE: Final = 3
"""Neighbouring words in a shingle."""

WIDENED: Final = 3
"""Hits examined per hit of the answer, so that dropped ones can be replaced."""

_CHARACTERS = 20_000  # compared per hit: texts that agree up to there count as equal

Group = TypeVar("Group", bound=Hashable)


def shingles(text: str, size: int = SHINGLE) -> frozenset[tuple[str, ...]]:
    """All runs of ``size`` consecutive words of a text; a shorter text is one run, an empty one has none.

    Broder, "On the resemblance and containment of documents", 1997, https://doi.org/10.1109/SEQUEN.1997.666900.

    >>> sorted(shingles("Red apples, green pears", 3))
    [('appl', 'green', 'pear'), ('red', 'appl', 'green')]
    """
    words = DEFAULT_ANALYZER.tokens(text[:_CHARACTERS])
    if len(words) < size:
        return frozenset({tuple(words)} if words else ())
    return frozenset(zip(*(words[start:] for start in range(size)), strict=False))


def jaccard(first: frozenset[Any], second: frozenset[Any]) -> float:
    """The size of the intersection of two sets over that of their union; 0 if both are empty.

    >>> jaccard(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    intersection = len(first & second)
    return intersection / (len(first) + len(second) - intersection) if intersection else 0.0


def near_duplicates(texts: Sequence[str], threshold: float, size: int = SHINGLE) -> dict[int, tuple[int, float]]:
    """Finds texts that nearly repeat an earlier one that is kept; compares all pairs exactly.

    Args:
        texts: best first; the first of two duplicates is kept.
        threshold: the least resemblance (Jaccard of shingles) of duplicates, above 0 and at most 1.
        size: words per shingle.

    Returns:
        By the place in ``texts`` of each duplicate: the place of the text most like it, and their resemblance.

    >>> near_duplicates(["a red apple falls far", "no such thing here", "A red apple falls, far!"], 0.9)
    {2: (0, 1.0)}
    """
    originals: list[tuple[int, frozenset[Any]]] = []
    duplicates: dict[int, tuple[int, float]] = {}
    for index, text in enumerate(texts):
        own_shingles = shingles(text, size)
        best = (0.0, -1)
        for original, other_shingles in originals:
            small, large = sorted((len(own_shingles), len(other_shingles)))
            if small >= threshold * large:  # otherwise no overlap could suffice
                best = max(best, (jaccard(own_shingles, other_shingles), -1 - original))  # ties: the better ranked
        if best[0] >= threshold:
            duplicates[index] = -1 - best[1], best[0]
        else:
            originals.append((index, own_shingles))
    return duplicates


def over_the_limit(groups: Sequence[Collection[Group]], limit: int) -> dict[int, Group]:
    """Find what exceeds ``limit`` in a group; an item may be in several groups, and one in none has no limit.

    Args:
        groups: of each item, best first.
        limit: how many items of one group stay.

    Returns:
        By the place of each item that exceeds it, the group that is full.

    >>> over_the_limit([["a"], ["b"], ["a"], [], ["c", "b"], ["c"], []], 1)
    {2: 'a', 4: 'b'}
    """
    counts: Counter[Group] = Counter()
    excess: dict[int, Group] = {}
    for index, own_groups in enumerate(groups):
        full_group = next((group for group in own_groups if counts[group] >= limit), None)
        if full_group is None:
            counts.update(own_groups)
        else:
            excess[index] = full_group
    return excess


def mmr(relevance: ArrayLike, similarity: ArrayLike, weight: float, count: int | None = None) -> list[int]:
    """Maximal marginal relevance: places of candidates that are relevant and unlike those already chosen, in order.

    Each step chooses the candidate with the greatest ``weight · relevance - (1 - weight) · (greatest similarity to
    those chosen)``; ties go to the first. Carbonell and Goldstein, "The use of MMR, diversity-based reranking for
    reordering documents and producing summaries", SIGIR 1998, https://doi.org/10.1145/290941.291025.

    Args:
        relevance: shape ``(n,)``.
        similarity: shape ``(n, n)``, on a scale like that of relevance.
        weight: λ, from 0 (only diversity) to 1 (only relevance).
        count: how many to choose; all by default.

    Raises:
        InputError: the shapes do not fit, or the weight is invalid.

    >>> mmr([1.0, 0.9, 0.5], [[1, 1, 0], [1, 1, 0], [0, 0, 1]], weight=0.5)
    [0, 2, 1]
    """
    import numpy as np

    relevant, similarities = np.asarray(relevance, np.float64), np.asarray(similarity, np.float64)
    if relevant.ndim != 1 or similarities.shape != 2 * relevant.shape:
        raise InputError(f"similarity is a square beside relevance, not {similarities.shape} beside {relevant.shape}")
    _check_share("weight of MMR", weight, zero=True)
    free = np.ones(len(relevant), bool)
    nearest = np.zeros(len(relevant))
    order: list[int] = []
    while len(order) < len(relevant) and (count is None or len(order) < count):
        worth = np.where(free, weight * relevant - (1 - weight) * nearest, -np.inf)
        best = int(worth.argmax())
        nearest = np.maximum(nearest, similarities[best]) if order else similarities[best]
        free[best] = False
        order.append(best)
    return order


@dataclass(frozen=True, slots=True)
class Grouping:
    """The limit of an answer to a few hits with one value of a metadata key.

    Attributes:
        key: each of its values is a group.
        size: how many hits of one group stay.
    """

    key: str
    size: int

    def groups_of(self, document: Document) -> list[Typed]:
        """Return the groups of a document, each once: the values that filters see under the key."""
        return list(dict.fromkeys(values_of(document.fields, self.key)))

    def limit(self, ranking: Ranked) -> Ranked:
        """Return a ranking without the hits that exceed their group, which ``dropped`` lists."""
        excess = over_the_limit([self.groups_of(hit.document) for hit in ranking.hits], self.size)
        reasons = {
            ranking.hits[index].key: f"{self.key} {value!r:.80} has its {self.size} already"
            for index, (_, value) in excess.items()
        }
        hits = [hit for index, hit in enumerate(ranking.hits) if index not in excess]
        return replace(ranking, hits=tuple(hits), dropped=reasons)

    def places_within(self, documents: Sequence[Document]) -> list[int]:
        """Return the places of the documents, best first, that do not exceed their group."""
        excess = over_the_limit([self.groups_of(document) for document in documents], self.size)
        return [position for position in range(len(documents)) if position not in excess]

    def count(self, documents: Iterable[Document]) -> tuple[int, set[Typed]]:
        """Return how many of these documents fit into their groups, and the groups that are full then."""
        groups = [self.groups_of(document) for document in documents]
        excess = over_the_limit(groups, self.size)
        counts = Counter(chain.from_iterable(names for index, names in enumerate(groups) if index not in excess))
        return len(groups) - len(excess), {group for group, number in counts.items() if number >= self.size}

    def outside(self, groups: Iterable[Typed], filters: Filter | None) -> Filter:
        """Return the filter for documents that match another one and are in none of these groups."""
        values = tuple([bool(value) if kind == "boolean" else value for kind, value in groups])
        condition = Not(In(self.key, values))
        return condition if filters is None else filters & condition

    def decision(self, ranking: Ranked, most: int) -> Decision:
        """Return what the limit did to an answer of at most ``most`` hits."""
        hits = ranking.hits[:most]
        groups = {group for hit in hits for group in self.groups_of(hit.document)}
        reason = f"at most {self.size} with the same value: {len(hits)} hits of {len(groups)} groups"
        if len(hits) < most:
            reason += f"; fewer than {most}, as no others were found"
        return Decision("group_by", self.key, "request", reason)


class Diversifier(BaseRefiner):
    """Makes room for variety: drops near duplicates, then reorders by MMR.

    The option ``group_by`` of a search limits each source. Dropped hits are listed with their reason in
    ``dropped``; MMR drops nothing. Options that are None have no effect.

    Args:
        near_duplicates: the resemblance from which a hit is dropped as a repeat of a better one; 0.9 is usual.
        mmr_lambda: λ of `mmr`; 1 keeps the order, smaller values add variety. Hits are compared by the words that they
            share (Jaccard).

    Raises:
        InputError: an option is invalid.
    """

    stage = "diversify"

    def __init__(
        self,
        near_duplicates: float | None = None,
        mmr_lambda: float | None = None,
    ) -> None:
        if near_duplicates is not None:
            _check_share("near_duplicates", near_duplicates, zero=False)
        if mmr_lambda is not None:
            _check_share("mmr_lambda", mmr_lambda, zero=True)
        self.near_duplicates, self.mmr_lambda = near_duplicates, mmr_lambda

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any scale)
        """More hits than the answer needs: some may be dropped, or later ones may move up."""
        return top_k if self.near_duplicates is None and self.mmr_lambda is None else WIDENED * top_k

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (the workflow makes the cut)
        """Return the remaining hits, best first; with MMR in their new order."""
        hits, reasons, notes = list(ranking.hits), dict[HitKey, str](), []
        if self.near_duplicates is not None:
            duplicates = near_duplicates([_text(hit) for hit in hits], self.near_duplicates)
            reasons = {
                hits[index].key: f"near duplicate of {hits[original].id} ({resemblance:.2f})"
                for index, (original, resemblance) in duplicates.items()
            }
            hits = [hit for index, hit in enumerate(hits) if index not in duplicates]
            notes.append(f"{len(reasons)} near duplicates dropped")
        if self.mmr_lambda is not None and len(hits) > 1:
            order = mmr(_relevance(hits), self._similarity(hits), self.mmr_lambda)
            count_moved = sum(index != was for index, was in enumerate(order))
            hits = [hits[index] for index in order]
            notes.append(f"{count_moved} hits moved by MMR (λ = {self.mmr_lambda:g})")
        return replace(ranking, hits=tuple(hits), detail="; ".join(notes), dropped={**ranking.dropped, **reasons})

    def _similarity(self, hits: Sequence[Hit]) -> NDArray[np.float64]:
        import numpy as np

        words = [shingles(_text(hit), 1) for hit in hits]
        return np.array([[jaccard(row, column) for column in words] for row in words])


def _relevance(hits: Sequence[Hit]) -> NDArray[np.float64]:
    """Scores scaled to 0…1, falling with the rank; the incoming order is taken as the best."""
    import numpy as np

    scores = np.array([hit.score for hit in hits], np.float64)
    if np.isfinite(scores).all() and (np.diff(scores) <= 0).all() and scores[0] > scores[-1]:
        scores = scores / max(1.0, float(np.abs(scores).max()))  # differences of huge scores must not overflow
        return np.asarray((scores - scores[-1]) / (scores[0] - scores[-1]))
    return 1 - np.arange(len(hits)) / len(hits)


def _text(hit: Hit) -> str:
    return hit.document.searchable if hit.excerpt is None else hit.excerpt.text


def _check_share(name: str, value: object, *, zero: bool) -> None:
    if not (is_number(value) and 0 <= value <= 1 and (zero or value)):
        raise InputError(f"{name} is a number from 0{'' if zero else ' (excluded)'} to 1, not {value!r:.80}")
