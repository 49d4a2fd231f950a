"""nDCG, recall and reciprocal rank, exactly as trec_eval computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from pointsman.errors import MissingDependencyError

if TYPE_CHECKING:
    from types import ModuleType

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; above 0 is relevant."""

Rankings = Mapping[str, Sequence[str]]
"""Query id -> document ids, best first."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures per query, by the name of the measure and the id of the query."""

    per_query: Mapping[str, Mapping[str, float]]

    @property
    def means(self) -> dict[str, float]:
        """The mean over all judged queries, by the name of the measure."""
        return {name: fsum(values.values()) / max(len(values), 1) for name, values in self.per_query.items()}


def measure(qrels: Qrels, rankings: Rankings, k: int = 10, depth: int = 100) -> Measured:
    """``ndcg@k``, ``recall@k``, ``recall@depth`` and ``mrr@k`` of rankings.

    As in trec_eval: nDCG takes the grade itself as the gain; a query without judgments is left out; a judged query
    counts 0 where nothing relevant was found, or nothing at all; a grade below 0 counts as 0. Only the order given
    counts, with an id repeated counting where it is first. ``mrr@k`` is trec_eval's ``recip_rank`` under ``-M k``.

    Args:
        qrels: the judgments.
        rankings: for each query the ids found, best first.
        k: the cutoff of nDCG, recall and reciprocal rank.
        depth: the cutoff of the second recall.

    Raises:
        MissingDependencyError: ``ir_measures`` is not installed.

    >>> measure({"q": {"a": 1, "b": 1}}, {"q": ["x", "a"]}, k=2).means["recall@2"]
    0.5
    """
    ir = _ir_measures()
    # Queries and documents go by number, as trec_eval takes no id with a NUL or a lone surrogate in it.
    queries = list(qrels)
    grades, run, top = {}, {}, {}
    for number, query in enumerate(map(str, queries)):
        pass
    names = {
        ir.nDCG @ k: f"ndcg@{k}",
        ir.R @ k: f"recall@{k}",
        ir.R @ depth: f"recall@{depth}",
    }
    raise NotImplementedError
