"""What a strategy finds for the queries of a test collection, for the benchmarks that measure it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.retrieval.request import RegisteredStrategy
from pointsman.retrieval.run.candidates import DEPTH

if TYPE_CHECKING:
    from pointsman import Workspace
    from pointsman.evaluation import TestCollection
    from pointsman.evaluation.run_collection import Progress


def rankings(
    workspace: Workspace,
    collection: TestCollection,
    strategy: str,
    depth: int = DEPTH,
    on_progress: Progress = lambda *_: None,
) -> dict[str, list[str]]:
    """Return the ids that a strategy finds for each query, best first, as input for `pointsman.evaluation.measure`."""
    results = {}
    for number, (query, text) in enumerate(collection.queries.items(), 1):
        context = workspace.search(text, depth, strategy=RegisteredStrategy(strategy), refuse=False)
        results[query] = [hit.id for hit in context]
        on_progress(number, len(collection.queries), f"{strategy}: asking")
    return results
