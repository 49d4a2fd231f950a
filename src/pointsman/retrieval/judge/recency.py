"""Recency: of hits that are about equally relevant, the newer first, if the question speaks of time.

It counts only in datasets whose documents say from when they are valid, and only for `auto`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pointsman.text.grammar import NOW, plain
from pointsman.values.types import Provenance
from pointsman.values.views import Validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.types import Hit

STAGE: Final = "recency"
BOUND: Final = 0.1
"""How much more relevant, as a probability, an older hit may be for a newer one to pass it; stated, not fitted."""

_DATE = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?:-(?:0[1-9]|1[0-2])(?:-[0-3]\d)?)?(?![\d]|[.,]\d)", re.ASCII)
_LAST: Final = "-12-31"


class Moment(NamedTuple):
    """The time that a question speaks of.

    Attributes:
        words: in which it does.
        day: the last day of that time, such as ``2021-12-31``.
    """

    words: str
    day: str


def moment_of(text: str, day: str) -> Moment | None:
    """Return the time that a question speaks of; None if it speaks of none.

    >>> [moment_of(text, "2026-03-01") for text in ("latest tariff", "тариф 2021 года", "what is a tariff?")]
    [Moment(words='latest', day='2026-03-01'), Moment(words='2021', day='2021-12-31'), None]

    Args:
        text: the question.
        day: what "now" is.
    """
    if dates := _DATE.findall(text):
        return Moment(dates[-1], f"{dates[-1]}{_LAST[len(dates[-1]) - 4 :]}")
    match = NOW.first(plain(text))
    return None if match is None else Moment(match.text, day)


def newer_first(hits: Sequence[Hit], moment: Moment) -> list[Hit]:
    """Return hits so that a newer one has passed those older ones that are at most `BOUND` more relevant.

    A hit that begins after the moment, says nothing of time, or has no relevance passes none.

    Args:
        hits: best first.
        moment: the time that the question speaks of.
    """
    reranked_hits: list[Hit] = []
    for hit in hits:
        position = len(reranked_hits)
        while position and _passes(hit, reranked_hits[position - 1], moment):
            position -= 1
        if position < len(reranked_hits):
            score = max(hit.score, reranked_hits[position].score)
            step = Provenance(STAGE, position + 1, score)
            hit = replace(hit, score=score, provenance=(*hit.provenance, step))  # noqa: PLW2901
        reranked_hits.insert(position, hit)
    return reranked_hits


def _passes(hit: Hit, older_hit: Hit, moment: Moment) -> bool:
    first, other_first = Validity.of(hit.metadata).first, Validity.of(older_hit.metadata).first
    if hit.relevance is None or older_hit.relevance is None or not first or first > moment.day:
        return False
    return (other_first < first or other_first > moment.day) and older_hit.relevance - hit.relevance <= BOUND
