"""Collections that somebody else keeps: a table of PostgreSQL, an index of OpenSearch, searched as they are (B4).

They are only read. Their scores are theirs, so they are fused with others by rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman._places import redacted
from pointsman.errors import CorruptStoreError, InputError
from pointsman.filters import And, Filter, Not, Or
from pointsman.store.base import NEAR, Scale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pointsman.store.base import BaseStore, Ranking

ATTACHED: Final = "attached"
"""The kind of their records in a workspace."""
TEXT: Final = "text"
"""The list by the words of a collection, whatever its database makes of them."""
BOTH: Final = "text and vector"
"""Both lists as one: a collection has one vote among others, however many ways it can be searched."""
_RRF_K: Final = 60
CACHED_SECONDS: Final = 600.0
"""There is no sequence number here: what was computed from a collection is computed again after so long."""
SCHEMES: Final = ("postgresql", "postgres", "opensearch", "opensearch+https")


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a collection is, and what is what in it.

    Attributes:
        url: of its server; it is kept with the workspace as it is, so a password is better elsewhere.
        table: the table or view (``orders``, ``sales.orders``), or the index.
        id: the column or field that tells documents apart; ``_id`` of an index.
        text: the column or field with the text.
        vector: with the vectors; None: search by words alone.
        metadata: columns or fields that filters see; the keys of a JSON column count as columns.
        embedder: the name of what has made the vectors.
        spec: how to load that embedder; None: it is the workspace's.
        description: what is in it.
        spread: mean and deviation of its cosines; None: not measured.
    """

    url: str = field(repr=False)
    table: str
    id: str
    text: str
    vector: str | None = None
    metadata: tuple[str, ...] = ()
    embedder: str | None = None
    spec: str | None = None
    description: str = ""
    spread: tuple[float, float] | None = None

    @property
    def place(self) -> str:
        """For messages: the URL without a password, and the table."""
        return f"{redacted(self.url)} {self.table}"

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """What was kept.

        Raises:
            CorruptStoreError: it is something else.
        """
        try:
            value = json.loads(text)
            if not isinstance(value, Mapping) or value.keys() != {one.name for one in fields(cls)}:
                raise ValueError("other fields than it has")
            spread = None if value["spread"] is None else (float(value["spread"][0]), float(value["spread"][1]))
            return cls(**{**value, "metadata": tuple(value["metadata"]), "spread": spread})
        except (ValueError, TypeError, KeyError, IndexError) as error:
            told = f"what is attached as {name!r} cannot be read ({error}); detach it, and attach it again"
            raise CorruptStoreError(told) from error

    def open(self) -> BaseStore:
        """The collection as a store; its server is asked when it is first needed.

        Raises:
            InputError: there is nothing of this kind to attach, or the URL cannot be used.
            MissingDependencyError: the package for it is not installed.
        """
        scheme = self.url.partition(":")[0].lower()
        if scheme in {"postgresql", "postgres"}:
            from pointsman.store.postgres.table import TableStore

            return TableStore(self)
        if scheme in {"opensearch", "opensearch+https"}:
            from pointsman.store.opensearch.foreign import IndexStore

            return IndexStore(self)
        raise InputError(f"tables and indexes are attached by URLs of {', '.join(SCHEMES)}, not {scheme[:40]!r}")


def unknown_keys(wanted: Filter | None, known: Collection[str], place: str) -> Iterator[str]:
    """For each key of a filter that cannot be asked for in a collection, a note that says so."""
    if isinstance(wanted, And | Or):
        for part in wanted.parts:
            yield from unknown_keys(part, known, place)
    elif isinstance(wanted, Not):
        yield from unknown_keys(wanted.part, known, place)
    elif wanted is not None:
        key = getattr(wanted, "key", None)
        if isinstance(key, str) and key not in known:
            yield f"{place} has no {key!r} to filter by among {', '.join(known) or 'its metadata'}: it counts as absent"


def one_list(rankings: Mapping[str, Ranking], depth: int) -> dict[str, Ranking]:
    """The lists of a collection as one, by reciprocal rank where there are two."""
    if len(rankings) < 2:
        return dict(rankings)
    sums: dict[Any, float] = {}
    for ranking in rankings.values():
        for rank, (key, _) in enumerate(ranking, 1):
            sums[key] = sums.get(key, 0.0) + 1 / (_RRF_K + rank)
    return {BOTH: sorted(sums.items(), key=lambda item: -item[1])[:depth]}


def scales_of(attached: Attachment) -> dict[str, Scale]:
    """What the scores of a collection's lists are."""
    return {TEXT: Scale.FOREIGN, **({NEAR: Scale.FOREIGN, BOTH: Scale.RANK} if attached.vector else {})}
