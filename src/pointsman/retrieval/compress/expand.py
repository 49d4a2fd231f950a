"""More context around a hit: its neighbours in the source, or the document that it is part of.

Passages that `pointsman index` makes say where they stand: ``source`` (the file), ``position`` (their number in it, or
in the record of a table), ``start`` and ``end`` (characters in the source's text) and ``parent`` (section or record).
Passages of others need ``source`` and ``position`` alone, or ``parent``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from pointsman.errors import InputError
from pointsman.retrieval.refine import BaseRefiner

if TYPE_CHECKING:
    from pointsman.types import Document, Hit, HitKey, Query, Ranked

_log = logging.getLogger(__name__)

T = TypeVar("T")

_BELOW = "below the cut: only the hits of the answer get more context"


@runtime_checkable
class PassageStore(Protocol):
    """Gives documents by id and lists those of a source; a `pointsman.Dataset` does."""

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """The document of this id, if there is one."""
        ...

    def ids(self, *, source: str | None = None) -> list[str]:
        """The ids of documents whose metadata has this ``source``."""
        ...


Stores = PassageStore | Mapping[str | None, PassageStore] | Callable[[str | None], PassageStore | None]
"""One store for all hits; or stores by the name of the dataset that a hit is from, as a mapping or a function."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Hits that become one, by their place, best first; and the document it gets."""

    members: Sequence[int]
    document: Document


class _Expander(BaseRefiner, ABC):
    """What both expanders share: whom to ask, and how several hits become one."""

    stage = "expand"

    def __init__(self, fetch: Stores) -> None:
        if not (isinstance(fetch, PassageStore | Mapping) or callable(fetch)):
            raise InputError(
                f"fetch has get(id) and ids(source=…) as a Dataset has, or gives such stores by a dataset's name; "
                f"{fetch!r:.80} does neither"
            )
        self.fetch = fetch

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (whatever was asked)
        """The first ``top_k`` hits with more around them; those that became part of a better one are dropped."""
        hits = ranked.hits[:top_k]
        look = _Look(self.fetch)
        groups = {group.members[0]: group for group in self._groups(hits, look)}
        dropped: dict[HitKey, str] = {hit.key: _BELOW for hit in ranked.hits[top_k:]}
        absorbed = {place for group in groups.values() for place in group.members[1:]}
        expanded = []
        for place, hit in enumerate(hits):
            if place in groups:
                expanded.append(_merged_hit(hits, groups[place]))
                dropped |= {hits[other].key: f"part of {hit.id!r:.80} now" for other in groups[place].members[1:]}
            elif place not in absorbed:
                expanded.append(hit)
        detail = f"{len(groups)} of {len(hits)} hits have more context, {len(absorbed)} became part of them"
        description = "; ".join((detail, *(f"{count} {what}" for what, count in look.notes.items())))
        return replace(ranked, hits=tuple(expanded), detail=description, dropped=dropped, degraded=tuple(look.degraded))

    @abstractmethod
    def _groups(self, hits: Sequence[Hit], look: _Look) -> list[_Group]:
        """Which hits get which document; hits in no group stay as they are."""


def _merged_hit(hits: Sequence[Hit], group: _Group) -> Hit:
    """The hit that a group becomes: the best one's place and identity, the best score, the provenance of all."""
    members = [hits[place] for place in group.members]
    provenance = tuple(dict.fromkeys(entry for hit in members for entry in hit.provenance))
    score = max(hit.score for hit in members)
    return replace(members[0], document=group.document, score=score, provenance=provenance, excerpt=None)


@dataclass(slots=True)
class _Look:
    """Look-ups for one answer: each source is read once, and one that fails is told and leaves its hit as it is."""

    fetch: Stores
    notes: dict[str, int] = field(default_factory=dict)
    degraded: dict[str, None] = field(default_factory=dict)
    sources: dict[tuple[str | None, str], _Passages] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1

    def safely(self, hit: Hit, look_up: Callable[[], T]) -> T | None:
        """What a look-up gives; None where it failed."""
        try:
            return look_up()
        except Exception as error:  # noqa: BLE001  (a store of the user's may raise anything: told and logged)
            cause = f"{type(error).__name__}: {error}"[:300]
            self.degraded.setdefault(f"expand: a look-up failed, hits stay as they were: {cause}")
            _log.warning("no context for hit %.80r: %s", hit.id, cause, exc_info=error)
            return None

    def store(self, dataset: str | None) -> PassageStore | None:
        if isinstance(self.fetch, PassageStore):
            return self.fetch
        return self.fetch.get(dataset) if isinstance(self.fetch, Mapping) else self.fetch(dataset)

    def document(self, hit: Hit, id_: str) -> Document | None:
        store = self.store(hit.dataset)
        return store.get(id_) if store is not None else None

    def source(self, hit: Hit) -> _Passages:
        """The passages of the source that a hit is from."""
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
    """The passages of one source in order."""

    def __init__(self, passages: Sequence[Document]) -> None:
        pairs = [(position, passage) for passage in passages if (position := _number(passage, "position")) is not None]
        pairs.sort(key=lambda pair: pair[0])
        self.passages = [passage for _, passage in pairs]
        # The passages of each record of a table are counted from 0: only those of the same record are neighbours.
        self.in_records = len({position for position, _ in pairs}) < len(pairs)

    def stretch(self, hit: Hit) -> tuple[Hashable, list[Document]]:
        """What tells the text that a hit is from, and all its passages."""
        parent = hit.metadata.get("parent") if self.in_records else None
        return (hit.dataset, hit.metadata.get("source"), parent), self.of_parent(parent)

    def of_parent(self, parent: object, key: str = "parent") -> list[Document]:
        return (
            self.passages
            if parent is None
            else [passage for passage in self.passages if passage.metadata.get(key) == parent]
        )


class WindowExpander(_Expander):
    """Widens each hit by its neighbours in the same source.

    What two neighbours share is not repeated: texts are put together by their offsets, else with an empty line between.
    Hits whose windows meet become one, in the place of the better one and with its id. The text is that of several
    passages then, so the document is a new one: ``metadata["passages"]`` has their ids, and ``start`` and ``end``
    reach from the first to the last.
    """

    def __init__(self, fetch: Stores, before: int = 1, after: int = 1) -> None:
        """Set the width.

        Args:
            fetch: the dataset that hits come from, or several by name.
            before: passages before a hit.
            after: passages after it.

        Raises:
            InputError: a number is out of range, or ``fetch`` can give nothing.
        """
        super().__init__(fetch)
        for name, value in (("before", before), ("after", after)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"{name} is an int from 0 up, not {value!r:.80}")
        self.before, self.after = before, after

    def _groups(self, hits: Sequence[Hit], look: _Look) -> list[_Group]:
        windows: dict[Hashable, list[tuple[int, int, int]]] = {}
        texts: dict[Hashable, list[Document]] = {}
        for place, hit in enumerate(hits):
            source = look.safely(hit, lambda hit=hit: look.source(hit))  # type: ignore[misc]  # a default binds it now
            if source is None:
                continue
            key, passages = source.stretch(hit)
            at = next((number for number, passage in enumerate(passages) if passage.id == hit.id), None)
            if at is None:
                look.note("without a known place in a source")
                continue
            texts[key] = passages
            window = (max(0, at - self.before), min(len(passages), at + self.after + 1), place)
            windows.setdefault(key, []).append(window)
        groups = []
        for key, those in windows.items():
            for start, end, members in _merged_windows(those):
                if end - start > 1:
                    first = min(members)
                    groups.append(_Group(sorted(members), _joined(hits[first].document, texts[key][start:end])))
        return groups


def _merged_windows(windows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
    """Windows that meet or overlap as one, with the hits in it.

    >>> _merged_windows([(4, 7, 0), (0, 2, 1), (2, 4, 2), (9, 10, 3)])
    [(0, 7, [1, 2, 0]), (9, 10, [3])]
    """
    merged: list[tuple[int, int, list[int]]] = []
    for start, end, place in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), [*merged[-1][2], place])
        else:
            merged.append((start, end, [place]))
    return merged


class ParentExpander(_Expander):
    """Puts the document that a hit is part of in its place; several parts of one become one hit.

    The parent is looked up by the id that ``metadata[parent_key]`` names. Where no document has that id, as in what
    `pointsman index` makes, the passages of the source that name the same parent are put together. A hit whose parent
    is not to be had stays as it is, and ``detail`` says how many there are.
    """

    def __init__(self, fetch: Stores, parent_key: str = "parent") -> None:
        """Say where parents are.

        Args:
            fetch: the dataset that hits come from, or several by name.
            parent_key: the name in the metadata that holds the parent's id.

        Raises:
            InputError: ``fetch`` can give nothing.
        """
        super().__init__(fetch)
        self.parent_key = parent_key

    def _groups(self, hits: Sequence[Hit], look: _Look) -> list[_Group]:
        children: dict[tuple[str | None, str], list[int]] = {}
        for place, hit in enumerate(hits):
            parent = hit.metadata.get(self.parent_key)
            if isinstance(parent, str) and parent and parent != hit.id:
                children.setdefault((hit.dataset, parent), []).append(place)
            else:
                look.note("without a parent")
        groups = []
        for (_, parent), members in children.items():
            best = hits[members[0]]
            document = look.safely(best, lambda best=best, parent=parent: self._parent(best, parent, look))  # type: ignore[misc]
            if document is not None:
                groups.append(_Group(members, document))
        return groups

    def _parent(self, hit: Hit, parent: str, look: _Look) -> Document | None:
        document = look.document(hit, parent)
        if document is None:
            parts = look.source(hit).of_parent(parent, self.parent_key)
            if len(parts) > 1 and any(part.id == hit.id for part in parts):
                document = _joined(hit.document, parts)
            elif not parts:
                look.note("whose parent is not stored")
        return document


def _joined(document: Document, passages: Sequence[Document]) -> Document:
    """A document with the text of several passages in order, and where they stand."""
    parts = [passages[0].text]
    for before, after in pairwise(passages):
        shared = _shared(before, after)
        if shared is None or shared < -1:
            parts.append("\n\n" + after.text)
        else:
            parts.append(after.text[shared:] if shared >= 0 else " " + after.text)
    metadata: dict[str, Any] = {**document.metadata, "passages": [passage.id for passage in passages]}
    start, end = _number(passages[0], "start"), _number(passages[-1], "end")
    if start is not None and end is not None:
        metadata |= {"start": start, "end": end}
    return replace(document, text="".join(parts), metadata=metadata)


def _shared(before: Document, after: Document) -> int | None:
    """How many characters two neighbours have in common, negative for a gap; None where that is not known."""
    end, start = _number(before, "end"), _number(after, "start")
    if end is None or start is None:
        return None
    shared = end - start
    if shared > min(len(before.text), len(after.text)):
        return None
    return shared if shared <= 0 or before.text.endswith(after.text[:shared]) else None


def _number(document: Document, key: str) -> int | None:
    value = document.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
