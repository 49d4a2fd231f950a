"""What the automatic choice adds to a query where that was measured to gain: corrected spelling, and parts of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pointsman.errors import InputError, UnknownNameError
from pointsman.retrieval.policy import measured
from pointsman.retrieval.strategies.decomposition import BridgeFinder
from pointsman.retrieval.transform.base import BaseTransformer, QueryTransformer, Transformed
from pointsman.retrieval.transform.decompose import RuleDecomposer
from pointsman.retrieval.vocabulary import Vocabulary
from pointsman.types import Query

if TYPE_CHECKING:
    from pointsman.dataset import Dataset

EFFORTS: Final = ("fast", "balanced", "thorough")
"""How much a search may cost: the lists alone; what gains at a few milliseconds; deeper lists as well."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What ``auto`` may spend on a query beyond hybrid search, in place of a named effort.

    Attributes:
        milliseconds: for everything it would add; None: no limit.
        llm_calls: how often it may ask a language model. What asks one has no measured gain yet, so ``auto`` adds none
            of it, whatever is allowed.

    Raises:
        InputError: a number is out of range.
    """

    milliseconds: float | None = None
    llm_calls: int = 0

    def __post_init__(self) -> None:
        if self.milliseconds is not None and not self.milliseconds >= 0:
            raise InputError(f"milliseconds of limits is a number from 0 up, or None, not {self.milliseconds!r:.80}")
        if not isinstance(self.llm_calls, int) or self.llm_calls < 0:
            raise InputError(f"llm_calls of limits is an int from 0 up, not {self.llm_calls!r:.80}")


Effort = str | Limits

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
        if self._known(query.text):  # the usual case, with one look
            return Transformed(query)
        unknown = {word for word in set(_WORD.findall(query.text)) if not self._known(word)}
        speller = self._vocabulary.speller() if unknown else None
        if speller is None:
            return Transformed(query)
        found = speller.correct(query.text)
        changes = [one for one in found.changes if self._known(one.new) and not self._known(one.old)]  # as of now
        text = query.text
        for change in reversed(changes):
            text = text[: change.start] + change.new + text[change.end :]
        if not changes:
            return Transformed(query)
        told = ", ".join(f"{change.old} → {change.new}" for change in changes)
        return Transformed(replace(query, text=text), (), f"corrected by the documents' own words: {told}")

    def _known(self, word: str) -> bool:
        return any(dataset.stores.keyword.known(word) for dataset in self.datasets)


def additions(effort: Effort) -> tuple[str, ...]:
    """What ``auto`` adds at this effort: of what fits into the limits, by measured gain per millisecond.

    Names, gains and costs stand in ``policy.json``.

    Raises:
        UnknownNameError: there is no such effort.
    """
    known = measured().additions
    if isinstance(effort, str):
        check_effort(effort)
        return tuple(known) if effort != "fast" else ("feedback",)
    left = math.inf if effort.milliseconds is None else effort.milliseconds
    taken = []
    for name in sorted(known, key=lambda one: known[one]["gain"] / known[one]["ms"], reverse=True):
        if known[name]["ms"] <= left:
            left -= known[name]["ms"]
            taken.append(name)
    return tuple(taken)


def transformer(datasets: Sequence[Dataset], effort: Effort = "balanced") -> BaseTransformer | None:
    """What ``auto`` does to a query before it searches these datasets; None where that is nothing.

    Raises:
        UnknownNameError: there is no such effort.
    """
    added = additions(effort)
    if not datasets:
        return None
    steps: list[BaseTransformer] = []
    if "spelling" in added and all(dataset.lists_for("auto")[0] for dataset in datasets):  # else a word may be there
        steps.append(Corrector(datasets))
    if "parts" in added:
        steps.append(RuleDecomposer(weight=PART_WEIGHT))
    if "bridges" in added:
        steps.append(BridgeFinder(datasets, weight=PART_WEIGHT))
    return QueryTransformer(*steps) if steps else None


def check_effort(effort: Effort) -> None:
    """Check that there is such an effort.

    Raises:
        UnknownNameError: there is none.
    """
    if not isinstance(effort, Limits) and effort not in EFFORTS:
        raise UnknownNameError("effort", str(effort), EFFORTS)
