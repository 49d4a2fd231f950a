"""Adds context to a hit: its neighbours in the source, or the document that it is part of.

The metadata of passages made by `pointsman index` says where they belong: ``source`` (the file), ``position`` (their
number in it, or in the record of a table), ``start`` and ``end`` (characters in the source's text) and ``parent``
(section or record). Other passages need only ``source`` and ``position``, or ``parent``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from pointsman.values.types import Document, Hit, HitKey, Query, Ranked

_log = logging.getLogger(__name__)

T = TypeVar("T")

_BELOW_CUT = "below the cut: only the hits of the answer get more context"


@runtime_checkable
class PassageStore(Protocol):
    """Returns documents by id and lists those of a source, as a `pointsman.Dataset` does."""

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """Return the document with this id, or None."""
        ...

    def ids(self, *, source: str | None = None) -> list[str]:
        """Return the ids of documents whose metadata has this ``source``."""
        ...


Stores = PassageStore | Mapping[str | None, PassageStore] | Callable[[str | None], PassageStore | None]
"""One store for all hits; or stores by dataset name, as a mapping or a function."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Hits that become one, by their places, best first; and the document for it."""

    members: Sequence[int]
    document: Document


class _Expander(BaseRefiner, ABC):
    """Shared by both expanders: access to the stores, and the merging of hits."""

    stage = "expand"

    def __init__(self, fetch: Stores) -> None:
        if not (isinstance(fetch, PassageStore | Mapping) or callable(fetch)):
            raise InputError(
                f"fetch has get(id) and ids(source=…) as a Dataset has, or gives such stores by a dataset's name; "
                f"{fetch!r:.80} does neither"
            )
        self.fetch = fetch

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (independent of the query)
        """The first ``top_k`` hits with more context; hits that became part of a better one are dropped."""
        hits = ranking.hits[:top_k]
        reader = _PassageLookup(self.fetch)
        groups = {group.members[0]: group for group in self._groups(hits, reader)}
        reasons: dict[HitKey, str] = {hit.key: _BELOW_CUT for hit in ranking.hits[top_k:]}
        merged_indices = {index for group in groups.values() for index in group.members[1:]}
        expanded_hits = []
        for index, hit in enumerate(hits):
            if index in groups:
                expanded_hits.append(_merged_hit(hits, groups[index]))
                reasons |= {hits[member].key: f"part of {hit.id!r:.80} now" for member in groups[index].members[1:]}
            elif index not in merged_indices:
                expanded_hits.append(hit)
        detail = f"{len(groups)} of {len(hits)} hits have more context, {len(merged_indices)} became part of them"
        description = "; ".join((detail, *(f"{count} {event}" for event, count in reader.notes.items())))
        return replace(
            ranking, hits=tuple(expanded_hits), detail=description, dropped=reasons, degraded=tuple(reader.degraded)
        )

    @abstractmethod
    def _groups(self, hits: Sequence[Hit], lookup: _PassageLookup) -> list[_Group]:
        """Which hits get which document; hits in no group stay unchanged."""


def _merged_hit(hits: Sequence[Hit], group: _Group) -> Hit:
    """The hit that a group becomes: place and identity of the best one, the best score, the provenance of all."""
    members = [hits[index] for index in group.members]
    provenance = tuple(dict.fromkeys(entry for hit in members for entry in hit.provenance))
    score = max(hit.score for hit in members)
    return replace(members[0], document=group.document, score=score, provenance=provenance, excerpt=None)


@dataclass(slots=True)
class _PassageLookup:
    """Look-ups for one answer: each source is read once; a failure is reported and leaves its hit unchanged."""

    fetch: Stores
    notes: dict[str, int] = field(default_factory=dict)
    degraded: dict[str, None] = field(default_factory=dict)
    sources: dict[tuple[str | None, str], _Passages] = field(default_factory=dict)

    def note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def safely(self, hit: Hit, look_up: Callable[[], T]) -> T | None:
        """Return the result of a look-up; None if it failed."""
        try:
            return look_up()
        except Exception as error:  # noqa: BLE001  (a user's store may raise anything: reported and logged)
            cause = f"{type(error).__name__}: {error}"[:300]
            self.degraded.setdefault(f"expand: a look-up failed, hits stay as they were: {cause}")
            _log.warning("no context for hit %.80r: %s", hit.id, cause, exc_info=error)
            return None

    def store(self, dataset: str | None) -> PassageStore | None:
        if isinstance(self.fetch, PassageStore):
            store: PassageStore | None = self.fetch
        else:
            store = self.fetch.get(dataset) if isinstance(self.fetch, Mapping) else self.fetch(dataset)
        check = getattr(store, "check_searchable", None)
        if check is not None:  # a dataset where access is on has neighbours that may not exist for whoever asks
            check()
        return store

    def document(self, hit: Hit, id_: str) -> Document | None:
        store = self.store(hit.dataset)
        return store.get(id_) if store is not None else None

    def source(self, hit: Hit) -> _Passages:
        """Return the passages of a hit's source."""
        name = hit.metadata.get("source")
        if not isinstance(name, str):
            return _Passages(())
        source = self.sources.get((hit.dataset, name))
        if source is None:
            store = self.store(hit.dataset)
            documents = [store.get(id_) for id_ in store.ids(source=name)] if store is not None else []
            source = self.sources[hit.dataset, name] = _Passages(
                [document for document in documents if document is not None]
            )
        return source


class _Passages:
    """The passages of one source, in order."""

    def __init__(self, passages: Sequence[Document]) -> None:
        pairs = [(position, passage) for passage in passages if (position := _number(passage, "position")) is not None]
        pairs.sort(key=lambda pair: pair[0])
        self.passages = [passage for _, passage in pairs]
        # Positions restart at 0 in each record of a table: only passages of the same record are neighbours.
        self.in_records = len({position for position, _ in pairs}) < len(pairs)

    def stretch(self, hit: Hit) -> tuple[Hashable, list[Document]]:
        """A key for the stretch of text that contains the hit, and all passages of that stretch."""
        parent = hit.metadata.get("parent") if self.in_records else None
        return (hit.dataset, hit.metadata.get("source"), parent), self.of_parent(parent)

    def of_parent(self, parent: object, key: str = "parent") -> list[Document]:
        return (
            self.passages
            if parent is None
            else [passage for passage in self.passages if passage.metadata.get(key) == parent]
        )


class WindowExpander(_Expander):
    """Extends each hit by its neighbours in the same source.

    Texts are joined by their offsets, so that shared text is not repeated, otherwise with an empty line between them.
    Hits whose windows meet become one, with place and id of the better one. Its text then comes from several passages,
    so the document is a new one: ``metadata["passages"]`` has their ids, and ``start`` and ``end`` reach from the first
    to the last.
    """

    def __init__(self, fetch: Stores, before: int = 1, after: int = 1) -> None:
        """Set the width.

        Args:
            fetch: the dataset that hits come from, or several by name.
            before: the number of passages before a hit.
            after: the number of passages after it.

        Raises:
            InputError: a number is out of range, or ``fetch`` is not a store.
        """
        super().__init__(fetch)
        self.before, self.after = check_count(before, "before", 0), check_count(after, "after", 0)

    def _groups(self, hits: Sequence[Hit], lookup: _PassageLookup) -> list[_Group]:
        windows: dict[Hashable, list[tuple[int, int, int]]] = {}
        texts: dict[Hashable, list[Document]] = {}
        for index, hit in enumerate(hits):
            source = lookup.safely(hit, lambda hit=hit: lookup.source(hit))  # type: ignore[misc]  # a default binds it now
            if source is None:
                continue
            key, passages = source.stretch(hit)
            position = next((number for number, passage in enumerate(passages) if passage.id == hit.id), None)
            if position is None:
                lookup.note("without a known place in a source")
                continue
            texts[key] = passages
            window = (max(0, position - self.before), min(len(passages), position + self.after + 1), index)
            windows.setdefault(key, []).append(window)
        groups = []
        for key, windows_of_source in windows.items():
            for start, end, members in _merged_windows(windows_of_source):
                if end - start > 1:
                    first = min(members)
                    groups.append(_Group(sorted(members), _join_passages(hits[first].document, texts[key][start:end])))
        return groups


def _merged_windows(windows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
    """Merges windows that meet or overlap, with their hits.

    >>> _merged_windows([(4, 7, 0), (0, 2, 1), (2, 4, 2), (9, 10, 3)])
    [(0, 7, [1, 2, 0]), (9, 10, [3])]
    """
    unions: list[tuple[int, int, list[int]]] = []
    for start, end, index in sorted(windows):
        if unions and start <= unions[-1][1]:
            unions[-1] = (unions[-1][0], max(end, unions[-1][1]), [*unions[-1][2], index])
        else:
            unions.append((start, end, [index]))
    return unions


class ParentExpander(_Expander):
    """Replaces a hit by the document that it is part of; several parts of one document become one hit.

    The parent is looked up by the id in ``metadata[parent_key]``. If no document has that id, as with passages made by
    `pointsman index`, the passages of the source that name the same parent are joined. A hit whose parent is not
    available stays unchanged, and ``detail`` gives the number of such hits.
    """

    def __init__(self, fetch: Stores, parent_key: str = "parent") -> None:
        """Set where parents are found.

        Args:
            fetch: the dataset that hits come from, or several by name.
            parent_key: the metadata key that holds the parent's id.

        Raises:
            InputError: ``fetch`` is not a store.
        """
        super().__init__(fetch)
        self.parent_key = parent_key

    def _groups(self, hits: Sequence[Hit], lookup: _PassageLookup) -> list[_Group]:
        children: dict[tuple[str | None, str], list[int]] = {}
        for index, hit in enumerate(hits):
            parent = hit.metadata.get(self.parent_key)
            if isinstance(parent, str) and parent and parent != hit.id:
                children.setdefault((hit.dataset, parent), []).append(index)
            else:
                lookup.note("without a parent")
        groups = []
        for (_, parent), members in children.items():
            best = hits[members[0]]
            document = lookup.safely(best, lambda best=best, parent=parent: self._parent(best, parent, lookup))  # type: ignore[misc]
            if document is not None:
                groups.append(_Group(members, document))
        return groups

    def _parent(self, hit: Hit, parent: str, lookup: _PassageLookup) -> Document | None:
        document = lookup.document(hit, parent)
        if document is None:
            passages = lookup.source(hit).of_parent(parent, self.parent_key)
            if len(passages) > 1 and any(passage.id == hit.id for passage in passages):
                document = _join_passages(hit.document, passages)
            elif not passages:
                lookup.note("whose parent is not stored")
        return document


def _join_passages(document: Document, passages: Sequence[Document]) -> Document:
    """A document with the joined text of several passages, and their place in the source."""
    texts = [passages[0].text]
    for first, second in pairwise(passages):
        overlap = _shared_length(first, second)
        if overlap is None or overlap < -1:
            texts.append("\n\n" + second.text)
        else:
            texts.append(second.text[overlap:] if overlap >= 0 else " " + second.text)
    metadata: dict[str, Any] = {**document.metadata, "passages": [passage.id for passage in passages]}
    start, end = _number(passages[0], "start"), _number(passages[-1], "end")
    if start is not None and end is not None:
        metadata |= {"start": start, "end": end}
    return replace(document, text="".join(texts), metadata=metadata)


def _shared_length(first: Document, second: Document) -> int | None:
    """The number of characters that two neighbours share, negative for a gap; None if unknown."""
    end, start = _number(first, "end"), _number(second, "start")
    if end is None or start is None:
        return None
    overlap = end - start
    if overlap > min(len(first.text), len(second.text)):
        return None
    return overlap if overlap <= 0 or first.text.endswith(second.text[:overlap]) else None


def _number(document: Document, key: str) -> int | None:
    value = document.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
