"""What an evaluation found, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """One strategy on one collection.

    Attributes:
        measures: means over all judged queries, by name, such as ``ndcg@10``.
        p50: median latency of a search, in milliseconds.
        p95: the latency that 95 of 100 searches stay below.
        per_query: nDCG by query id, for `pointsman.evaluation.compare`.
    """

    measures: Mapping[str, float]
    p50: float
    p95: float
    per_query: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """Every strategy on one collection.

    Attributes:
        dataset: the collection's name.
        documents: how many there are.
        queries: how many were asked; judged ones alone.
        strategies: in the order asked for.
    """

    dataset: str
    documents: int
    queries: int
    strategies: Mapping[str, StrategyReport]

    def to_json(self) -> dict[str, Any]:
        """What ``pointsman eval --json`` prints; measures with 4 decimals, latencies with 2."""
        return {
            "dataset": self.dataset,
            "documents": self.documents,
            "queries": self.queries,
            "strategies": {
                name: {
                    **{measure: round(value, 4) for measure, value in strategy.measures.items()},
                    "latency_ms": {"p50": round(strategy.p50, 2), "p95": round(strategy.p95, 2)},
                }
                for name, strategy in self.strategies.items()
            },
        }


def render(report: Report) -> Table:
    """The report as a table for the terminal, the best figure of each measure in bold."""
    from rich.table import Table
    from rich.text import Text

    title = f"{report.dataset}: {report.documents:,} documents, {report.queries:,} queries"
    table = Table(title=Text(title), title_justify="left")  # a Text, as a name may hold what rich takes for markup
    table.add_column("strategy")
    measures = list(next(iter(report.strategies.values())).measures) if report.strategies else []
    for heading in (*measures, "p50 ms", "p95 ms"):
        table.add_column(heading, justify="right")
    best = {measure: max(found.measures[measure] for found in report.strategies.values()) for measure in measures}
    for name, found in report.strategies.items():
        cells = [
            Text(f"{found.measures[measure]:.4f}", "bold" if found.measures[measure] == best[measure] else "")
            for measure in measures
        ]
        table.add_row(name, *cells, f"{found.p50:.2f}", f"{found.p95:.2f}")
    return table
