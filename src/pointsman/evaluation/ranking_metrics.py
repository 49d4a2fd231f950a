"""nDCG, recall, precision and reciprocal rank, exactly as trec_eval computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from pointsman.tools.errors import MissingDependencyError

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; above 0 is relevant."""

Rankings = Mapping[str, Sequence[str]]
"""Query id -> document ids, best first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by name of the measure, then by query id."""

    per_query: Mapping[str, Mapping[str, float]]

    @property
    def means(self) -> dict[str, float]:
        """The mean over all judged queries, by name of the measure."""
        return {name: fsum(values.values()) / max(len(values), 1) for name, values in self.per_query.items()}


def measure(qrels: Qrels, rankings: Rankings, k: int = 10, depth: int = 100) -> Figures:
    """Compute ``ndcg@k``, ``recall@k``, ``recall@depth``, ``precision@k`` and ``mrr@k`` of rankings.

    As in trec_eval: nDCG takes the grade itself as the gain; a query without judgments is left out; a judged query
    counts 0 if nothing relevant was found, or nothing at all; a grade below 0 counts as 0. ``mrr@k`` is its
    ``recip_rank`` of the first k results. Only the given order counts; of a repeated id, the first position.

    Args:
        qrels: the judgments.
        rankings: the ids found for each query, best first.
        k: the cutoff of nDCG, recall, precision and reciprocal rank.
        depth: the cutoff of the second recall.

    Raises:
        MissingDependencyError: the extra ``eval`` is not installed.

    >>> measure({"q": {"a": 1, "b": 1}}, {"q": ["x", "a"]}, k=2).means["recall@2"]
    0.5
    """
    try:
        import ir_measures as ir  # brings scipy, 145 MB, and only measuring needs it
    except ImportError as error:
        raise MissingDependencyError("ir-measures", "eval", "measuring the quality of rankings") from error

    # trec_eval rejects ids with a NUL or a lone surrogate, so queries and documents are numbered.
    grades: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    for number, (query, relevant) in enumerate(qrels.items()):
        ranking = list(dict.fromkeys(rankings.get(query, ())))[: max(k, depth)]
        names = {document: str(name) for name, document in enumerate(dict.fromkeys((*ranking, *relevant)))}
        grades[str(number)] = {names[document]: max(grade, 0) for document, grade in relevant.items()}
        # trec_eval orders by score, then by id: scores that decrease with rank keep our order
        scores[str(number)] = {names[document]: float(-rank) for rank, document in enumerate(ranking)}
    top = {query: dict(list(scores_of_query.items())[:k]) for query, scores_of_query in scores.items()}
    metrics = {
        f"ndcg@{k}": ir.nDCG @ k,
        f"recall@{k}": ir.R @ k,
        f"recall@{depth}": ir.R @ depth,
        f"precision@{k}": ir.P @ k,
    }
    figures = [*ir.iter_calc(list(set(metrics.values())), grades, scores), *ir.iter_calc([ir.RR], grades, top)]
    values = {(metric.measure, metric.query_id): float(metric.value) for metric in figures}
    return Figures(
        {
            name: {query: values.get((kind, str(number)), 0.0) for number, query in enumerate(qrels)}
            for name, kind in {**metrics, f"mrr@{k}": ir.RR}.items()
        }
    )
