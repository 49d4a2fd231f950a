"""The base class of backends: where a workspace is stored. It holds the datasets, a store for each, and small records.

`pointsman.store.backend_urls.open_backend` selects one by URL.

Records are small texts beside the datasets, such as a policy or keys, each with a kind and a name. A record can be
replaced on condition that it has not changed since it was read.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pointsman.tools.errors import (
    ConflictError,
    CorruptStoreError,
    FormatVersionError,
    InputError,
    UnknownNameError,
    UnmetNeedError,
)
from pointsman.tools.system.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pointsman.store.base_store import Store

NEW: Final = ""
"""The version of a record that does not exist."""

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_LONGEST_NAME: Final = 128


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """The description of a dataset, available without opening it.

    Attributes:
        name: unique in its backend.
        description: what it contains, for those who choose where to search.
        indexing_technique: ``"hybrid"``, ``"keyword"`` or ``"vector"``.
        identity: unique for every dataset ever created, even under the same name.
        settings: other options given at creation, such as ``bm25_k1``, and ``created_at``, in seconds since 1970.
    """

    name: str
    description: str
    indexing_technique: str
    identity: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def settings_of(name: str, text: str) -> dict[str, Any]:
    """Read the settings of a dataset from a catalogue.

    Raises:
        CorruptStoreError: they are no JSON object, or a constant of BM25 is no finite number.
    """
    try:
        settings = json.loads(text)
        if not isinstance(settings, dict):
            raise TypeError(f"they are a JSON object, not {type(settings).__name__}")
        for constant in ("bm25_k1", "bm25_b"):
            if not math.isfinite(float(settings.get(constant, 0))):
                raise ValueError(f"{constant} is {settings[constant]!r:.40}")
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise CorruptStoreError(
            f"the settings of dataset {name!r:.80} are damaged ({error!s:.200}); restore them from a backup"
        ) from error
    return settings


@dataclass(frozen=True, slots=True)
class Record:
    """A small text with its version."""

    value: str
    version: str


class Backend(Lifecycle, ABC):
    """Where a workspace is stored; usable as a context manager.

    A subclass implements the abstract methods. Every method may raise `StoreError`, and no foreign errors.
    """

    has_views: ClassVar[bool] = False
    """Whether its stores can tell who may see a document (`Capability.VIEWS`), so that access can be switched on."""
    is_remote: ClassVar[bool] = True
    """Whether it is in a server: asking it costs a round trip, and all of it may be away at once."""
    path: Path | None = None
    """The folder of a workspace in one."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its location, without a password."""

    @abstractmethod
    def datasets(self) -> list[DatasetRecord]:
        """Return all datasets, by name."""

    @abstractmethod
    def create(self, name: str, about: Mapping[str, Any]) -> Store:
        """Create a dataset, unless another process has just done so; open it either way.

        Args:
            name: valid under `pointsman.workspace.dataset.check_name`.
            about: ``description``, ``indexing_technique``, and settings stored with the dataset, such as ``bm25_k1``.
        """

    @abstractmethod
    def open(self, name: str, bm25: Mapping[str, float] | None = None) -> Store | None:
        """Return the store of a dataset; None if no dataset has this name.

        Args:
            name: the name of the dataset.
            bm25: ``k1`` and ``b`` for this process, instead of the dataset's own; a store that cannot change them keeps
                its own and logs it.
        """

    @abstractmethod
    def describe(self, name: str, description: str) -> None:
        """Change the description of a dataset.

        Raises:
            UnknownNameError: no dataset has this name.
        """

    def drop(self, name: str) -> None:
        """Delete a dataset with all its documents.

        Raises:
            UnknownNameError: no dataset has this name.
        """
        store = self.open(name)
        if store is None:
            raise self.unknown_dataset(name)
        store.drop()

    @abstractmethod
    def record(self, kind: str, name: str = "") -> Record | None:
        """Return a record; None if it does not exist."""

    @abstractmethod
    def records(self, kind: str) -> dict[str, Record]:
        """Return all records of a kind, by name."""

    @abstractmethod
    def put_record(self, kind: str, name: str, value: str | None, expected_version: str | None = None) -> str:
        """Write a record, or delete it if ``value`` is None.

        Args:
            kind: up to 32 lower-case letters, digits and ``_``.
            name: up to 128 characters; one record of a kind may be named ``""``.
            value: the text.
            expected_version: the version to be replaced, `NEW` for a record that must not exist yet; None: any.

        Returns:
            The new version of the record; `NEW` after deleting it.

        Raises:
            ConflictError: the record has changed since that version.
        """

    # ── what it answers by the methods above, unless it knows better ─────────────────────────────────────────────

    def unknown_dataset(self, name: str) -> UnknownNameError:
        """Return the error that no dataset has this name."""
        return UnknownNameError("dataset", name, tuple(self.names()))

    def names(self) -> list[str]:
        """Return the names of all datasets, sorted."""
        return sorted(record.name for record in self.datasets())

    def about(self, name: str) -> DatasetRecord | None:
        """Return the record of a dataset; None if no dataset has this name."""
        return next((record for record in self.datasets() if record.name == name), None)

    def make(self) -> None:
        """Make an empty workspace unless there is one, as far as it takes no write."""

    def bytes_by_part(self, name: str) -> dict[str, int] | None:  # noqa: ARG002
        """Return what a dataset takes on disk, by what it is for; None if that is not known."""
        return None

    def latest_records(self, kind: str, limit: int) -> list[tuple[str, Callable[[], str]]]:
        """Return where the last records of a kind are, by name and latest first, each with what reads it."""
        records = sorted(self.records(kind).items(), reverse=True)[:limit]
        return [(name, partial(str, record.value)) for name, record in records]

    @contextmanager
    def scratch(self) -> Iterator[Backend]:
        """Yield an empty workspace of the same kind for a test, which is deleted afterwards.

        Raises:
            UnmetNeedError: there is none of this kind.
        """
        raise UnmetNeedError(f"{type(self).__name__} cannot make a scratch workspace beside its own")
        yield  # a context manager has to yield somewhere


def check_record(kind: str, name: str, value: str | None = None) -> None:
    """Reject kinds, names and values that a record cannot have.

    Raises:
        InputError: kind, name or value is invalid.
    """
    if not _KIND.fullmatch(kind):
        raise InputError(f"the kind of a record is lower-case letters, digits and _, not {kind!r:.80}")
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise InputError(f"a record's name is up to {_LONGEST_NAME} printable characters, not {name!r:.80}")
    if value is not None and SURROGATE.search(value):
        raise InputError(f"the value of record {kind} {name!r} has a lone surrogate, which no UTF-8 text can hold")


def check_format(label: str, stored_format: int, known_format: int) -> None:
    """Check that a dataset of a server is in the format that this version knows.

    Raises:
        FormatVersionError: it is in another one.
    """
    if stored_format != known_format:
        raise FormatVersionError(
            f"{label}: the dataset is in format {stored_format}, this version of pointsman knows format "
            f"{known_format}; open it with the version that wrote it"
        )


def check_version(record: Record | None, expected: str | None, what: str) -> None:
    """Check that a record still has the version at which it was read.

    Raises:
        ConflictError: it has another version.
    """
    if expected is not None and expected != (NEW if record is None else record.version):
        raise ConflictError(f"{what} was changed by another process; read it again")


def bm25_of(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the BM25 settings of a dataset; `Dataset.save` stores them in a nested mapping."""
    bm25 = settings.get("bm25", {})
    return {
        "k1": float(settings.get("bm25_k1", bm25.get("k1", 1.2))),
        "b": float(settings.get("bm25_b", bm25.get("b", 0.75))),
    }
