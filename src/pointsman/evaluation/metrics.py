"""nDCG, recall and reciprocal rank, exactly as trec_eval computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; above 0 is relevant."""

Rankings = Mapping[str, Sequence[str]]
"""Query id -> document ids, best first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by the name of the measure, then by the id of the query."""

    per_query: Mapping[str, Mapping[str, float]]

    @property
    def means(self) -> dict[str, float]:
        """The mean over all judged queries, by the name of the measure."""
        return {name: fsum(values.values()) / max(len(values), 1) for name, values in self.per_query.items()}


def measure(qrels: Qrels, rankings: Rankings, k: int = 10, depth: int = 100) -> Figures:
    """``ndcg@k``, ``recall@k``, ``recall@depth`` and ``mrr@k`` of rankings.

    As in trec_eval: nDCG takes the grade itself as the gain; a query without judgments is left out; a judged query
    counts 0 where nothing relevant was found, or nothing at all; a grade below 0 counts as 0. ``mrr@k`` is its
    ``recip_rank`` of the first k results. Only the order given counts, an id repeated where it is first.

    Args:
        qrels: the judgments.
        rankings: for each query the ids found, best first.
        k: the cutoff of nDCG, recall and reciprocal rank.
        depth: the cutoff of the second recall.

    >>> measure({"q": {"a": 1, "b": 1}}, {"q": ["x", "a"]}, k=2).means["recall@2"]
    0.5
    """
    import ir_measures as ir  # only measuring needs it

    # trec_eval takes no id with a NUL or a lone surrogate in it, so queries and documents go by number.
    grades: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    for number, (query, relevant) in enumerate(qrels.items()):
        ranking = list(dict.fromkeys(rankings.get(query, ())))[: max(k, depth)]
        names = {document: str(name) for name, document in enumerate(dict.fromkeys((*ranking, *relevant)))}
        grades[str(number)] = {names[document]: max(grade, 0) for document, grade in relevant.items()}
        # trec_eval orders by score, and equal scores by id: scores that fall with the rank leave it nothing to decide
        scores[str(number)] = {names[document]: float(-rank) for rank, document in enumerate(ranking)}
    top = {query: dict(list(scored.items())[:k]) for query, scored in scores.items()}
    metrics = {f"ndcg@{k}": ir.nDCG @ k, f"recall@{k}": ir.R @ k, f"recall@{depth}": ir.R @ depth}
    figures = [*ir.iter_calc(list(set(metrics.values())), grades, scores), *ir.iter_calc([ir.RR], grades, top)]
    values = {(metric.measure, metric.query_id): float(metric.value) for metric in figures}
    return Figures(
        {
            name: {query: values.get((kind, str(number)), 0.0) for number, query in enumerate(qrels)}
            for name, kind in {**metrics, f"mrr@{k}": ir.RR}.items()
        }
    )
