"""Versions of documents: which one is in force, and which ones it supersedes.

A document that is a version of another (`pointsman.values.views.VERSION_OF`) supersedes it from its first valid day
on. Of
several versions of one document, file or heading, the newest that is valid is in force, and supersedes all older ones.
Versions that begin on the same day, such as the passages of one file, are in force together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from pointsman.ingest import Problem
from pointsman.values.filters import Exists
from pointsman.values.types import Hit, NotInForce
from pointsman.values.views import VERSION_OF, Validity, heading_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pointsman.store.base_store import Store
    from pointsman.values.types import Document

STAGE: Final = "versions"
_MOST_IDS: Final = 50_000  # of a dataset in which the nearest name is looked for
_MOST_NEAREST: Final = 20  # unknown names for which it is
IS_VERSION: Final = Exists(VERSION_OF)
"""A filter for documents that are versions of others."""


def today() -> str:
    """Return the day on which documents have to be valid: that of this machine's clock and time zone."""
    return date.today().isoformat()  # noqa: DTZ011  (a contract begins at midnight where its readers are)


class Version(NamedTuple):
    """A document that is a version of another.

    Attributes:
        id: its id.
        file: where it is from: its source, or its id.
        target: what it is a version of, as it says.
        validity: when it is valid.
    """

    id: str
    file: str
    target: str
    validity: Validity

    @classmethod
    def of(cls, document: Document) -> Version | None:
        """Return a document as a version; None if it is none."""
        target = document.metadata.get(VERSION_OF)
        if not isinstance(target, str):
            return None
        return cls(document.id, _file_of(document), target.strip(), Validity.of(document.metadata))


def _file_of(document: Document) -> str:
    source = document.metadata.get("source")
    return source if isinstance(source, str) and source else document.id


def _name(target: str) -> str:
    file, sharp, heading = target.partition("#")
    return heading_name(file, heading) if sharp else file


def names_of(document: Document) -> list[str]:
    """Return the names under which versions refer to a document: its id, its file, and the headings above it."""
    file, headings = _file_of(document), document.metadata.get("headings")
    names = [_name(document.id), file]
    return names + [heading_name(file, heading) for heading in headings or () if isinstance(heading, str)]


def unknown_targets(versions: Versions, store: Store) -> list[Problem]:
    """Return which versions in a store are of something that is not there, with the nearest name that is.

    Raises:
        StoreError: the store cannot be read.
    """
    pairs = [(file, target) for file, target in versions.targets if not _is_in(store, target)]
    if not pairs:
        return []
    ids = store.ids() if store.count() <= _MOST_IDS else []
    names = {_name(id_) for id_ in ids}
    pairs = [(file, target) for file, target in pairs if _name(target) not in names]
    files = list(dict.fromkeys([*ids, *(id_.rpartition("#")[0] for id_ in ids if "#" in id_)]))
    return [
        Problem(file, _complaint(target, _nearest(store, target, files) if number < _MOST_NEAREST else None))
        for number, (file, target) in enumerate(pairs)
    ]


def _complaint(target: str, nearest: str | None) -> str:
    remedy = "add what it is a version of, or correct it"
    if nearest is not None:
        remedy = f"did you mean {nearest!r:.200}?"
    return (
        f"{VERSION_OF} {target!r:.200} names no document, file or heading of this dataset, so nothing is "
        f"superseded; {remedy}"
    )


def _is_in(store: Store, target: str) -> bool:
    if store.keys([target]):
        return True
    file, sharp, _ = target.partition("#")
    ids = store.ids(source=file)
    if not sharp:
        return bool(ids)
    documents = store.get([*ids, file])
    return any(document is not None and _name(target) in names_of(document) for document in documents)


def _nearest(store: Store, target: str, files: Sequence[str]) -> str | None:
    """Return the name of a file or of one of its headings that is nearest to a target."""
    file, sharp, heading = target.partition("#")
    known_file = file if _is_in(store, file) else next(iter(get_close_matches(file, files, 1)), None)
    if known_file is None or not sharp:
        return known_file
    documents = store.get([*store.ids(source=known_file), known_file])
    headings = {
        " ".join(text.split()).casefold(): text
        for document in documents
        for text in (() if document is None else document.metadata.get("headings") or ())
        if isinstance(text, str)
    }
    nearest = get_close_matches(" ".join(heading.split()).casefold(), headings, 1)
    return f"{known_file}#{headings[nearest[0]]}" if nearest else known_file


class Versions:
    """The versions in one dataset.

    Args:
        documents: those that are versions of others.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._versions = [version for version in map(Version.of, documents) if version is not None]
        self._target_of = {
            name: _name(version.target) for version in self._versions for name in (version.file, _name(version.id))
        }
        self._by_target: dict[str, list[Version]] = defaultdict(list)
        for version in self._versions:
            self._by_target[self._first(_name(version.target))].append(version)

    @property
    def targets(self) -> list[tuple[str, str]]:
        """What there are versions of, as they say, each with their file."""
        return list(dict.fromkeys((version.file, version.target) for version in self._versions))

    def _first(self, name: str) -> str:
        """Return the name of the first version: a version of a version is a version of what that one is of."""
        names = {name}
        while (earlier := self._target_of.get(name)) is not None and earlier not in names:
            name = earlier
            names.add(name)
        return name

    def _families(self, document: Document) -> list[str]:
        """Return the names of what there are versions of, if a document is one of them, or what they are of."""
        own_version = Version.of(document)
        names = [*names_of(document), *([] if own_version is None else [self._first(_name(own_version.target))])]
        return [name for name in dict.fromkeys(names) if name in self._by_target]

    def in_force(self, document: Document, day: str) -> list[Version]:
        """Return the versions that are in force on a day in place of a document; none if it is in force itself."""
        valid_versions = [
            version
            for name in self._families(document)
            for version in self._by_target[name]
            if version.id != document.id and day in version.validity
        ]
        newest = max([version.validity.first for version in valid_versions], default="")
        validity = Validity.of(document.metadata)
        if not newest or (day in validity and newest <= validity.first):
            return []
        return [version for version in valid_versions if version.validity.first == newest]

    def ids_in_place_of(self, document: Document, day: str) -> list[str]:
        """Return the ids of what may be in force on a day in place of a document that is not."""
        if newer := self.in_force(document, day):
            return [version.id for version in newer]
        own_version = Version.of(document)
        return (
            [] if own_version is None else [own_version.target]
        )  # not valid on that day, so that the document it changes is

    def standing(self, document: Document, day: str) -> NotInForce | None:
        """Return why a document is not in force on a day; None if it is."""
        validity = Validity.of(document.metadata)
        if day < validity.first:
            return NotInForce("not yet valid", validity.first)
        if newer := self.in_force(document, day):
            return NotInForce("superseded", newer[0].validity.first, newer[0].id, newer[0].file)
        return None if day in validity else NotInForce("no longer valid", validity.last)

    def is_in_place_of(self, hit: Hit, former: Hit, day: str) -> bool:
        """Whether a hit that is in force on a day stands for another one, which is not."""
        newer = self.in_force(former.document, day)
        if newer:
            return any(version.id == hit.id for version in newer)
        own_version = Version.of(former.document)  # not yet valid, or no longer: what it is a version of is in force
        return own_version is not None and self._first(_name(own_version.target)) in names_of(hit.document)


def mark(hits: Sequence[Hit], versions: Mapping[str | None, Versions], day: str) -> list[Hit]:
    """Return hits, those that are not in force on a day with the reason why.

    Args:
        hits: any.
        versions: by dataset.
        day: the day.
    """
    return [
        hit
        if hit.dataset not in versions
        or (standing := versions[hit.dataset].standing(hit.document, day)) == hit.not_in_force
        else replace(hit, not_in_force=standing)
        for hit in hits
    ]
