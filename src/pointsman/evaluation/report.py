"""Evaluation results, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pointsman.evaluation.significance import SignificanceTest, compare
from pointsman.retrieval.fusion import LISTS
from pointsman.selector.route_counts import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table


_NAMES: Final = {"strategy": ("documents", "strategies"), "selector": ("choices", "selectors")}


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """One strategy, or selector, on one collection.

    Attributes:
        measures: means over all judged queries, by name, such as ``ndcg@10``.
        p50: median latency of a search, in milliseconds, with the embedding of its query.
        p95: 95th percentile of the latency, in milliseconds.
        per_query: nDCG by query id, for `pointsman.evaluation.compare`; of a selector, 1 if it is right, else 0.
        without_embedding: the same two latencies without the embedding, as for a query that was asked before.
        llm_calls: mean number of language model calls per query.
        llm_tokens: mean number of tokens of their prompts and answers, estimated where the model does not count them.
        routes: number of questions by route and reason, of ``router_select`` alone.
    """

    measures: Mapping[str, float]
    p50: float
    p95: float
    per_query: Mapping[str, float]
    without_embedding: tuple[float, float] = (0.0, 0.0)
    llm_calls: float = 0.0
    llm_tokens: float = 0.0
    routes: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def routes_to_json(self) -> list[dict[str, Any]]:
        """Return the routes as rows of ``route``, ``reason`` and ``queries``, the most frequent first."""
        return rows_of(self.routes)


@dataclass(frozen=True, slots=True)
class Report:
    """Every strategy, or selector, on one collection.

    Attributes:
        dataset: the collection's name.
        documents: number of documents, or choices.
        queries: number of judged queries.
        strategies: in the requested order.
        compared: whether to report the significance of differences.
        texts: each question's text by query id, as in ``StrategyReport.per_query``.
        subject: what is measured: strategies, or selectors.
        price: of a million tokens of the language model, if its cost is to be reported.
    """

    dataset: str
    documents: int
    queries: int
    strategies: Mapping[str, StrategyReport]
    compared: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    subject: Literal["strategy", "selector"] = "strategy"
    price: float | None = None

    @property
    def best_fixed(self) -> str | None:
        """The fixed strategy with the highest nDCG; None if no fixed strategy was measured."""
        list_strategies = [name for name in self.strategies if name in LISTS]
        return max(list_strategies, key=lambda name: _mean(self.strategies[name].per_query), default=None)

    @property
    def oracle(self) -> float:
        """The mean nDCG if the best strategy for each query were chosen with the answers known."""
        per_query = [strategy.per_query for strategy in self.strategies.values()]
        return (
            _mean({query: max(values[query] for values in per_query) for query in per_query[0]}) if per_query else 0.0
        )

    def against_best(self) -> dict[str, SignificanceTest]:
        """A paired test of every other strategy against the best fixed one, by name."""
        best = self.best_fixed
        if best is None or not self.queries:
            return {}
        base = self.strategies[best].per_query
        return {name: compare(strategy.per_query, base) for name, strategy in self.strategies.items() if name != best}

    def cost(self, strategy: StrategyReport) -> float:
        """What a language model costs for a thousand queries, by ``price``."""
        return strategy.llm_tokens * (self.price or 0.0) / 1000

    def to_record(self) -> dict[str, Any]:
        """Return what a workspace stores: `to_json`, and each question's nDCG by strategy."""
        questions = [
            {
                "id": query,
                "query": text,
                "ndcg": {name: round(strategy.per_query[query], 4) for name, strategy in self.strategies.items()},
            }
            for query, text in self.texts.items()
        ]
        return {**self.to_json(), "questions": questions}

    def to_json(self) -> dict[str, Any]:
        """Return what ``pointsman eval --json`` prints; measures have 4 decimals, latencies 2."""
        documents, strategies = _NAMES[self.subject]
        result: dict[str, Any] = {
            "dataset": self.dataset,
            documents: self.documents,
            "queries": self.queries,
            strategies: {
                name: {
                    **{measure: round(value, 4) for measure, value in strategy.measures.items()},
                    "latency_ms": {"p50": round(strategy.p50, 2), "p95": round(strategy.p95, 2)},
                    "latency_without_embedding_ms": {
                        "p50": round(strategy.without_embedding[0], 2),
                        "p95": round(strategy.without_embedding[1], 2),
                    },
                    "llm": {
                        "calls": round(strategy.llm_calls, 2),
                        "tokens": round(strategy.llm_tokens, 1),
                        **({} if self.price is None else {"cost_per_1000": round(self.cost(strategy), 4)}),
                    },
                    **({"routes": strategy.routes_to_json()} if strategy.routes else {}),
                }
                for name, strategy in self.strategies.items()
            },
        }
        if self.compared:
            result["best_fixed"] = self.best_fixed
            result["oracle"] = round(self.oracle, 4)
            result["against_best_fixed"] = {
                name: {"difference": round(comparison.difference, 4), "p": round(comparison.p, 4)}
                for name, comparison in self.against_best().items()
            }
        return result


def render(report: Report) -> Table:
    """Return the report as a terminal table with the best figure of each measure in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"{report.dataset}: {report.documents:,} {_NAMES[report.subject][0]}, {report.queries:,} queries"
    # a Text, as a name may contain rich markup; narrow, as a terminal has 80 columns
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(report.subject, no_wrap=True)
    measures = list(next(iter(report.strategies.values())).measures) if report.strategies else []
    versus = report.against_best() if report.compared else {}
    measures = measures[:2] if report.compared else measures  # the JSON has all figures
    times = ["p50\nms", "p95\nms", "not em-\nbedding"]
    llm = ["model\ncalls", "tokens"] if any(strategy.llm_calls for strategy in report.strategies.values()) else []
    llm += ["cost of\n1,000"] if llm and report.price is not None else []
    tests = [f"against\n{report.best_fixed}", "p"] if report.compared else []
    for heading in (*(measure.replace("@", "\n@") for measure in measures), *times, *llm, *tests):
        table.add_column(heading, justify="right")
    best = {
        measure: max(other_strategy.measures[measure] for other_strategy in report.strategies.values())
        for measure in measures
    }
    for name, strategy in report.strategies.items():
        cells = [
            Text(f"{strategy.measures[measure]:.4f}", "bold" if strategy.measures[measure] == best[measure] else "")
            for measure in measures
        ]
        row = [f"{milliseconds:.1f}" for milliseconds in (strategy.p50, strategy.p95, strategy.without_embedding[0])]
        row += [f"{strategy.llm_calls:.1f}", f"{strategy.llm_tokens:.0f}"] if llm else []
        row += [f"{report.cost(strategy):.4g}"] if len(llm) > 2 else []
        if report.compared:
            row += [f"{versus[name].difference:+.4f}", f"{versus[name].p:.4f}"] if name in versus else ["", ""]
        table.add_row(name, *cells, *row)
    notes = [
        f"{name}: {row['queries']:,} {row['route']} ({row['reason']})"
        for name, strategy in report.strategies.items()
        for row in strategy.routes_to_json()
    ]
    if report.compared:
        notes.append(f"choosing the best for every query, knowing the answers: nDCG {report.oracle:.4f}")
    table.caption, table.caption_justify = Text("\n".join(notes)), "left"
    return table


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / max(len(values), 1)
