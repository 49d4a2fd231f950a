"""Versions and recency as stages of a search: what is in force above what it supersedes, newer hits above older ones.

`pointsman.retrieval.judge.versions` and `pointsman.retrieval.judge.recency` are the orders themselves; this module
knows which datasets of a search have versions, and on which day they have to be in force.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pointsman.retrieval.judge import recency, versions
from pointsman.values.types import Decision, Hit, Provenance

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
        keys = {hit.key for hit in hits}
        result: dict[HitKey, Hit] = {}
        for hit in hits:
            if hit.not_in_force is not None and hit.dataset in self._versions:
                newer = [
                    (hit.dataset, id_) for id_ in self._versions[hit.dataset].ids_in_place_of(hit.document, self.day)
                ]
                if newer and keys.isdisjoint(newer):
                    result.setdefault(newer[0], hit)
        return result

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
            # What its former text answers, it may answer.
            Hit(document, hit.score, hit.dataset, (), None, hit.relevance)
            for key, hit in missing.items()
            if (document := documents[key]) is not None and (filters is None or filters.matches(document.fields))
        ]

    def above_superseded(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits, marked, in an order in which none stands above a version that is in force in its place.

        That version moves up to the first hit that it stands for, and takes its score and relevance where these are
        higher; everything else keeps its order.
        """
        hits_by_key: dict[HitKey, Hit] = {}
        for hit in (marked_hits := self.mark(hits)):
            if hit.key in hits_by_key:
                continue
            if hit.not_in_force is not None and hit.dataset in self._versions:
                newer = [
                    other_hit
                    for other_hit in marked_hits
                    if other_hit.dataset == hit.dataset
                    and other_hit.not_in_force is None
                    and self._versions[hit.dataset].is_in_place_of(other_hit, hit, self.day)
                ]
                if newer and not any(other_hit.key in hits_by_key for other_hit in newer):
                    hits_by_key[newer[0].key] = _promote(newer[0], hit, len(hits_by_key) + 1)
            hits_by_key[hit.key] = hit
        return list(hits_by_key.values())

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


def _promote(hit: Hit, former: Hit, rank: int) -> Hit:
    score = max(hit.score, former.score)
    levels = [level for level in (hit.relevance, former.relevance) if level is not None]
    step = Provenance(versions.STAGE, rank, score)
    return replace(hit, score=score, relevance=max(levels, default=None), provenance=(*hit.provenance, step))
