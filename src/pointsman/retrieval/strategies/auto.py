"""What the automatic choice adds to a query where that was measured to gain: corrected spelling, and parts of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.errors import UnknownNameError
from pointsman.retrieval.strategies.decomposition import BridgeFinder
from pointsman.retrieval.transform.base import BaseTransformer, QueryTransformer, Transformed
from pointsman.retrieval.transform.decompose import RuleDecomposer
from pointsman.retrieval.vocabulary import Vocabulary
from pointsman.types import Query

if TYPE_CHECKING:
    from pointsman.dataset import Dataset

EFFORTS: Final = ("fast", "balanced", "thorough")
"""How much a search may cost: the lists alone; what gains at a few milliseconds; deeper lists as well."""

PART_WEIGHT: Final = 0.5

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")


class Corrector(BaseTransformer):
    """Puts a word of the datasets in the place of one that none of their documents has, where it is a likely slip.

    What some document contains is never touched: that is looked up in the keyword index, so correct queries cost
    microseconds, and the vocabulary is read from the documents only when the first unknown word comes.

    Args:
        datasets: whose words; those without a keyword index are passed over.
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets = [dataset for dataset in datasets if dataset.lists_for("auto")[0]]
        self._vocabulary = Vocabulary(self.datasets)

    def transform(self, query: str | Query) -> Transformed:
        """The query with corrected words; the same object where there is nothing to correct."""
        query = Query.of(query)
        if not self.datasets or len(query.text) > 2000:
            return Transformed(query)
        unknown = {word for word in set(_WORD.findall(query.text)) if not self._known(word)}
        speller = self._vocabulary.speller() if unknown else None
        if speller is None:
            return Transformed(query)
        found = speller.correct(query.text)
        changes = [change for change in found.changes if not self._known(change.old)]
        text = query.text
        for change in reversed(changes):
            text = text[: change.start] + change.new + text[change.end :]
        if not changes:
            return Transformed(query)
        told = ", ".join(f"{change.old} → {change.new}" for change in changes)
        return Transformed(replace(query, text=text), (), f"corrected by the documents' own words: {told}")

    def _known(self, word: str) -> bool:
        return any(dataset.stores.keyword.known(word) for dataset in self.datasets)


def transformer(datasets: Sequence[Dataset], effort: str = "balanced") -> BaseTransformer | None:
    """What ``auto`` does to a query before it searches these datasets; None for the least effort.

    Nothing is corrected where a dataset keeps no keyword index: what words it has cannot be looked up in time, and one
    that it alone has would be taken for a slip.

    Raises:
        UnknownNameError: there is no such effort.
    """
    check_effort(effort)
    if effort == "fast" or not datasets:
        return None
    steps: list[BaseTransformer] = [RuleDecomposer(weight=PART_WEIGHT), BridgeFinder(datasets, weight=PART_WEIGHT)]
    if all(dataset.lists_for("auto")[0] for dataset in datasets):
        steps.insert(0, Corrector(datasets))
    return QueryTransformer(*steps)


def check_effort(effort: str) -> None:
    """Check that there is such an effort.

    Raises:
        UnknownNameError: there is none.
    """
    if effort not in EFFORTS:
        raise UnknownNameError("effort", effort, EFFORTS)
