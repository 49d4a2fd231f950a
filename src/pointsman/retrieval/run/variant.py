"""A variant of a question: another text to search for, beside the question itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pointsman.retrieval.fusion import LISTS

CONVERSATION: Final = "conversation"
"""The kind of a variant that adds the words of the conversation to a question."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another text to search for, beside the query itself.

    Attributes:
        text: what to search for.
        kind: its origin: ``"subquestion"``, ``"synonym"``, ``"paraphrase"``, ``"correction"``,
            ``"expansion"``, ``"hypothetical"``, ``"conversation"`` or a new one.
        weight: of the list that it finds; the original query's list has 1.
        method: how datasets are searched for it: ``"bm25"``, ``"vector"`` or ``"hybrid"``; by default as for the query
            itself. A dataset that lacks the index for it is searched with the ones it has.
        as_passage: it reads like a document, not like a question, and is embedded as one (HyDE).
        by_model: a language model wrote it; it is left out if it has nothing to do with the query.
        means_the_same: what answers it answers the query, so that hits are judged by it, too.
        datasets: that are searched for it; None: all that are searched for the query.
    """

    text: str
    kind: str
    weight: float = 1.0
    method: str | None = None
    as_passage: bool = False
    by_model: bool = False
    means_the_same: bool = False
    datasets: frozenset[str] | None = None

    @property
    def is_sound(self) -> bool:
        """Whether its text, method and weight are valid; a transformer of the user's may have set anything."""
        return (
            isinstance(self.text, str)
            and (self.method is None or self.method in LISTS)
            and isinstance(self.weight, int | float)
            and math.isfinite(self.weight)
            and self.weight >= 0
        )
