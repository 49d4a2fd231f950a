"""Counts of routes by the form of a question, as `Workspace.route` made them in this process."""

from __future__ import annotations

from collections import Counter, defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pointsman.selector.heuristic_route import RouteChoice

_MOST_KINDS, _MOST_DATASETS = 320, 10_000
"""Routes and reasons that are counted apart, more than settings can name; datasets that are."""
_OTHER: Final = "other"


class RouteCount(NamedTuple):
    """How many questions took a route for a reason.

    Attributes:
        route: ``bm25``, ``dense`` or ``hybrid``.
        reason: the code of a built-in rule, or the reason of one of `route_rules`.
        queries: their number.
    """

    route: str
    reason: str
    queries: int


class RouteCounts:
    """How many questions took each route for each reason: in all, and among those asked of a dataset.

    Threads may count at once. Further reasons beyond 320 are counted together as ``other``.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_dataset: defaultdict[str | None, Counter[tuple[str, str]]] = defaultdict(Counter)

    def count(self, choice: RouteChoice, datasets: Iterable[str] = ()) -> None:
        """Count a question once in all, and once for each dataset that it could be sent to."""
        with self._lock:
            for name in (None, *set(datasets)):
                if name not in self._by_dataset and len(self._by_dataset) > _MOST_DATASETS:
                    continue
                counts = self._by_dataset[name]
                for reason in choice["reasons"]:
                    kind = choice["route"], reason
                    counts[kind if kind in counts or len(counts) < _MOST_KINDS else (choice["route"], _OTHER)] += 1

    def forget(self, dataset: str) -> None:
        """Forget what was counted for a dataset."""
        with self._lock:
            self._by_dataset.pop(dataset, None)

    def rows(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """Return the counts of a dataset, by default of all questions; see `rows_of`."""
        with self._lock:
            return rows_of(self._by_dataset.get(dataset, {}))


def rows_of(counts: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return counts by route and reason as the forms of `RouteCount`, the most frequent first."""
    most_frequent = sorted(counts.items(), key=lambda count: (-count[1], count[0]))
    return [RouteCount(route, reason, queries)._asdict() for (route, reason), queries in most_frequent]
