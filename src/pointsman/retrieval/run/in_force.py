"""Versions and recency as stages of a search: what is in force above what it supersedes, newer hits above older ones.

`pointsman.retrieval.judge.versions` and `pointsman.retrieval.judge.recency` are the orders themselves; this module
knows which datasets of a search have versions, and on which day they have to be in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.retrieval.judge import recency, versions
from pointsman.values.types import Decision, Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.retrieval.judge.versions import Versions
    from pointsman.retrieval.run.reading import Reading
    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter
    from pointsman.values.types import HitKey


class InForce:
    """The datasets of one search whose documents are versions of others.

    Args:
        readings: of these datasets, with their versions read.
        today: the day of a search that names none; empty: that of this machine.

    Attributes:
        day: on which versions have to be in force, such as ``2026-03-01``.
    """

    stage = versions.STAGE

    def __init__(self, readings: Sequence[Reading], today: str = "") -> None:
        self._stores: dict[str | None, Store] = {reading.name: reading.store for reading in readings}
        self._versions: dict[str | None, Versions] = {
            reading.name: reading.versions for reading in readings if reading.versions is not None
        }
        view_day = next((day for reading in readings if (day := reading.source.day)), "")
        self.day = view_day or today or versions.today()

    def mark(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits, those that are not in force with the reason why."""
        return versions.mark(hits, self._versions, self.day)

    def missing(self, hits: Sequence[Hit]) -> dict[HitKey, Hit]:
        """Return the keys of what is in force in place of marked hits and not among them, each with one of those."""
        return versions.missing(hits, self._versions, self.day)

    def read(self, missing: Mapping[HitKey, Hit], filters: Filter | None) -> list[Hit]:
        """Read what is missing, one call a store; returns hits, as far as they match the filters of the search."""
        ids_by_dataset: dict[str | None, list[str]] = {}
        for name, id_ in missing:
            ids_by_dataset.setdefault(name, []).append(id_)
        documents = {
            (name, id_): document
            for name, ids in ids_by_dataset.items()
            for id_, document in zip(ids, self._stores[name].get(ids), strict=True)
        }
        return [
            versions.in_place_of(document, hit)
            for key, hit in missing.items()
            if (document := documents[key]) is not None and (filters is None or filters.matches(document.fields))
        ]

    def above_superseded(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits, marked, in an order in which none stands above a version that is in force in its place."""
        return versions.newest_first(self.mark(hits), self._versions, self.day)

    def newer_first(self, hits: Sequence[Hit], question: str) -> tuple[list[Hit], Decision] | None:
        """Let newer hits pass older ones that are about as relevant; None if the question does not speak of time."""
        moment = recency.moment_of(question, self.day)
        if moment is None:
            return None
        reason = (
            f"the question says {moment.words!r}: newer hits up to {moment.day} pass older ones that are at most "
            f"{recency.BOUND:g} more relevant"
        )
        return recency.newer_first(hits, moment), Decision(recency.STAGE, "newer first", "default", reason)
