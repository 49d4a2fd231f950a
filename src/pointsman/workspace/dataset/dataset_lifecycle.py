"""The life of a dataset: created by its first write, opened on first use, followed, saved, closed."""

from __future__ import annotations

import logging
import re
import sys
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from pointsman.embedders.base_embedder import image_embedder_of
from pointsman.embedders.named_embedders import as_embedder
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.run.source import TECHNIQUES, IndexingTechnique, Source, principals_missing
from pointsman.store.base_store import EmptyStore
from pointsman.store.prepared_documents import storable
from pointsman.store.store_values import SCALES_OF
from pointsman.text.unicode import compose
from pointsman.tools.byte_cache import ByteCache
from pointsman.tools.errors import InputError, PointsmanError, UnknownNameError, UnmetNeedError
from pointsman.tools.sync_and_async import async_twin
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.tools.system.locations import with_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pointsman.store.backend import Backend, DatasetRecord
    from pointsman.store.base_store import Store
    from pointsman.store.store_values import Verification
    from pointsman.tools.audit_log import AuditLog
    from pointsman.values.protocols import Embedder
    from pointsman.values.views import View

log = logging.getLogger(__name__)

_NAME = re.compile(r"(?![. ])(?:[\w.\-]| (?! )){1,64}(?<![. ])", re.UNICODE)
_NAME_BYTES = 200  # file names have at most 255 bytes, and temporary ones are longer than the dataset's
_BM25 = {"k1": 1.2, "b": 0.75}
_VIEW = 60_000  # bytes that a view takes beside what its store says, recipes among them, roughly
_CLOSABLE_VIEW = 8_000  # bytes of one that holds no store, roughly, with what is measured of its documents


class StoredDataset(Source, Lifecycle):
    """A dataset as something that is created, opened and closed; see `pointsman.Dataset` for the arguments."""

    workspace: Any = None
    """The workspace that it was taken from; None for one on its own."""
    is_view = False
    """Whether this is a view of a dataset; see `pointsman.Dataset.in_view`."""

    def __init__(
        self,
        name: str,
        description: str = "",
        indexing_technique: IndexingTechnique = "hybrid",
        *,
        path: str | Path | None = None,
        store: Store | None = None,
        backend: Backend | None = None,
        embedder: Embedder | str | None = None,
        images: bool = False,
        load_embedder: Callable[[], Embedder] | None = None,
        bm25_k1: float = 1.2,
        bm25_b: float = 0.75,
        query_vectors: QueryVectors | None = None,
        engine: Callable[[], Engine] | None = None,
        on_make: Callable[[], None] | None = None,
        on_open: Callable[[StoredDataset], None] | None = None,
        has_access: Callable[[], bool | None] = lambda: None,
        on_embed: Callable[[StoredDataset], None] | None = None,
        versions: str | None = None,
        audit_log: AuditLog | None = None,
    ) -> None:
        name = check_name(name)
        _check_description(description)
        if indexing_technique not in TECHNIQUES:
            raise InputError(f"indexing_technique is one of {', '.join(TECHNIQUES)}, not {indexing_technique!r}")
        self.name, self.description, self.indexing_technique = name, description, indexing_technique
        self.recipes: dict[Any, Any] = {}  # of a view: how requests of it are carried out
        self._path = with_home(path) if path is not None else None
        self._backend = backend
        self._embedder = None if embedder is None else as_embedder(embedder)
        self._load_embedder, self.holds_images = load_embedder, images
        self._is_plain = all(item is None for item in (store, backend, embedder, load_embedder, engine, audit_log))
        if images and indexing_technique == "keyword":
            raise InputError(f"dataset {name!r} is for pictures, which are found by vectors; use 'hybrid' or 'vector'")
        if images and load_embedder is None and image_embedder_of(self._embedder) is None:
            raise no_image_embedder(name)
        self._bm25 = {"k1": bm25_k1, "b": bm25_b}
        self._bm25_changed = changed_bm25(self._bm25)
        self._store: Store | None = store
        self.is_in_folder = path is not None if backend is None else not backend.is_remote
        """Whether its documents are in a folder, so that reading them asks no server."""
        self._opening = threading.RLock()
        self.is_closed = False
        """Whether it was closed; every further use is an error."""
        self.used = 0.0  # when last, by ``monotonic``
        self.record: DatasetRecord | None = None  # what `follow` was last told
        self._engine, self._on_make, self._on_open = engine or _default_engine, on_make, on_open
        self._on_embed = on_embed
        self.query_vectors = query_vectors or QueryVectors(lambda: self.embedder)
        self._has_access = has_access
        self.audit_log = audit_log
        self._kept_days = None if versions is None else days_in(versions)  # as asked, of a dataset that is not made yet
        # by store and state
        self._views: ByteCache[tuple[int, str], Any] = ByteCache(lambda view: _VIEW + view.store.nbytes)
        self._closable_views: ByteCache[View, Any] = ByteCache(lambda _: _CLOSABLE_VIEW)
        self.whole_and_view: tuple[Any, View] | None = None  # the dataset, of a view that holds no store open

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle opens it again: in its workspace, or in its folder.

        Raises:
            TypeError: it has no place to be opened at, or it was made with objects, which may hold keys or connections.
        """
        if self.workspace is not None:
            return _taken_from, (self.workspace, self.name, self.indexing_technique, self.holds_images)
        if self._path is None or not self._is_plain:
            why = "it was made with objects, which may hold keys or connections" if self._path else "it has no folder"
            why = "it is a view, for some of all people or days" if self.is_view else why
            raise TypeError(f"dataset {self.name!r} cannot be pickled: {why}; pickle one of a workspace, or of a path")
        scoring = self._bm25
        kind = partial(type(self), path=self._path.resolve(), bm25_k1=scoring["k1"], bm25_b=scoring["b"])
        return kind, (self.name, self.description, self.indexing_technique)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, indexing_technique={self.indexing_technique!r}, path={str(self._path)!r})"

    @property
    def embedder(self) -> Embedder:
        """Return the embedder of this dataset, loading it on first use."""
        if self._embedder is None and self._load_embedder is not None:
            self._embedder = self._load_embedder()
        if self._embedder is None:
            from pointsman.embedders import default_embedder

            self._embedder = default_embedder()
        return self._embedder

    @property
    def opened(self) -> bool:
        """Whether its store is open."""
        return self._store is not None if self.whole_and_view is None else bool(self.whole_and_view[0].opened)

    @property
    def is_closable(self) -> bool:
        """Whether its store, in a folder, may be closed between two uses; most views hold it open."""
        return self.is_in_folder and (self.whole_and_view is not None or not self.is_view)

    @property
    def exists(self) -> bool:
        """Whether the dataset has been created."""
        self._check_open()
        if self.whole_and_view is not None:
            return True
        if self._store is None and self._backend is not None:
            self._store = self._backend.open(self.name, self._bm25_changed)
            if self._store is not None and self._on_open is not None:
                self._on_open(self)
        if self._store is not None:
            return True
        from pointsman.store.local.manifest import read_manifest

        return self._path is not None and read_manifest(self._path) is not None

    @property
    def store(self) -> Store:
        """Return the store with the documents; an empty store if the dataset has not been created."""
        with self._opening:
            if self._store is None and not self.exists:
                return EmptyStore(SCALES_OF[self.indexing_technique])
            return self.make()

    def check_searchable(self) -> None:
        """Check that the dataset may be searched as it is: where access is on, only a view may.

        Raises:
            InputError: access is on, and nobody said who asks.
        """
        if not self.is_view and self._has_access() is True:
            raise principals_missing(self.name)

    def make(self) -> Store:
        """Create the dataset unless it exists; return its store."""
        self._check_open()
        if self.whole_and_view is not None:
            return cast("Store", self.whole_and_view[0].in_view(self.whole_and_view[1]).store)
        with self._opening:
            if self._store is None:
                about = {
                    "name": self.name,
                    "description": self.description,
                    "indexing_technique": self.indexing_technique,
                    "created_at": int(time.time()),
                    **({"images": True} if self.holds_images else {}),
                }
                if self._backend is not None:
                    bm25 = {f"bm25_{name}": value for name, value in self._bm25.items()}
                    self._store = self._backend.open(self.name, self._bm25_changed) or self._backend.create(
                        self.name, {**about, **bm25}
                    )
                else:
                    self._store = self._in_folder(about)
                if self._kept_days:
                    self._store.keep_versions(self._kept_days)
                if self._on_make is not None:
                    self._on_make()
                if self._on_open is not None:
                    self._on_open(self)
            return self._store

    amake = async_twin(make)

    def _in_folder(self, about: Mapping[str, Any]) -> Store:
        """Return the store in the dataset's directory, or in a temporary one if it has none."""
        from pointsman.store.local.local_store import LocalStore

        if self._path is None:
            temporary = tempfile.TemporaryDirectory(prefix="pointsman-", ignore_cleanup_errors=True)
            weakref.finalize(self, temporary.cleanup)
            self._path = Path(temporary.name)
        return LocalStore(self._path, about, **self._bm25)

    def follow(self, record: DatasetRecord) -> None:
        """Update what is known about the dataset: another process may have changed or recreated it."""
        with self._opening:
            store, self.record = self._store, record
            if store is not None and record.identity != store.info.identity:
                self._store = None
                if record.indexing_technique in TECHNIQUES:
                    self.indexing_technique = record.indexing_technique  # type: ignore[assignment]  # one of them
            else:
                store = None
            self.description = record.description
        if store is not None:
            store.close()

    def _follow_manifest(self) -> None:
        """Make sure that the open store is the current one."""
        if self._store is not None and self._backend is not None and not self._backend.is_remote:
            record = self._backend.about(self.name)
            if record is None:
                raise UnknownNameError("dataset", self.name)
            self.follow(record)

    def describe(self, description: str) -> None:
        """Change the description; if the dataset does not exist yet, it is created with this one.

        Raises:
            UnmetNeedError: it is an attached collection.
            InputError: it is not a text that can be stored.
        """
        _check_description(description)
        if self._store is not None and self._store.is_attached:
            raise UnmetNeedError(
                f"{self.name!r} is attached, and was described when it was attached; detach it, and attach it again "
                f"with description={description!r:.80}"
            )
        if self._backend is not None and self.exists:
            self._backend.describe(self.name, description)
        elif self.exists:
            self._own_store.describe(description)
        self.description = description

    adescribe = async_twin(describe)

    def keep_versions(self, versions: str) -> None:
        """Keep what is replaced or deleted from now on, so that answers have receipts; see `Workspace.replay`.

        Searches do not see it, and cost the same. A dataset that does not exist yet keeps it from its creation on.

        Args:
            versions: for how long, such as ``"90 days"``; ``"off"`` keeps nothing, and deletes what was kept.

        Raises:
            InputError: it is neither.
            UnmetNeedError: the store keeps none, as OpenSearch and attached collections do not.
        """
        days = days_in(versions)
        if not self.exists:
            self._kept_days = days
        elif days != self.kept_days:
            self.make().keep_versions(days)

    akeep_versions = async_twin(keep_versions)

    @property
    def kept_days(self) -> int:
        """For how many days the dataset keeps what is replaced or deleted; 0 if it keeps nothing."""
        if not self.exists:
            return self._kept_days or 0
        state = self.store.statistics().recorded_state
        return 0 if state is None else state.days

    def save(self, folder: str | Path) -> None:
        """Copy the dataset into a new or empty folder, which `load` opens. Safe while the dataset is in use.

        Raises:
            InputError: the folder is not empty.
        """
        self._own_store.save(with_home(folder), bm25=self._bm25)

    asave = async_twin(save)

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | str | None = None) -> Self:
        """Open the dataset in this folder.

        Raises:
            InputError: the folder contains no dataset.
        """
        from pointsman.store.local.manifest import read_manifest

        about = read_manifest(with_home(folder))
        if about is None:
            raise InputError(f"there is no dataset at {folder}")
        bm25 = about.get("bm25", {})
        return cls(
            about["name"],
            about["description"],
            about["indexing_technique"],
            path=folder,
            embedder=embedder,
            images=bool(about.get("images", False)),
            bm25_k1=float(bm25.get("k1", 1.2)),
            bm25_b=float(bm25.get("b", 0.75)),
        )

    def verify(self) -> Verification:
        """Compare documents and indexes, and the dimensions of the vectors with those of the embedder."""
        verification = self._own_store.verify()
        stored = self._own_store.info
        if not verification.in_vector_index or stored.dimensions is None:  # others may have removed the last vector
            return verification
        try:
            dimensions = self.embedder.dimensions if self.embedder.name == stored.embedder else stored.dimensions
        except (PointsmanError, OSError) as error:  # its server is away, or its files are
            log.warning("the dimensions of the vectors of %r are not compared: %s", self.name, error)
            return verification
        if dimensions == stored.dimensions:
            return verification
        problem = (
            f"its vectors have {stored.dimensions} dimensions, and those of its embedder {stored.embedder!r} have "
            f"{dimensions}; index the documents into a new dataset"
        )
        return replace(verification, problems=(*verification.problems, problem))

    averify = async_twin(verify)

    def rebuild(self) -> None:
        """Rebuild both indexes from the documents; nothing is embedded again."""
        self._own_store.rebuild()

    arebuild = async_twin(rebuild)

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """Hold the writer lock within the block: wait for other writing processes, and keep them out until it ends.

        Without it, a write does not wait, and lets others write when it ends. Blocks may be nested, and several threads
        may be inside; the end of the last block releases the lock, and readers stay open. Waiting processes take turns,
        so a long import with a block for every batch lets others in. Stores with many writers need no such block and
        never wait.

        Args:
            wait: seconds to wait for another process.

        Raises:
            LockedError: another process is still the writer after that time.
            UnknownNameError: another process has deleted the dataset.
        """
        self._follow_manifest()
        with self.make().writing(wait):
            yield

    def _check_open(self) -> None:
        if self.is_closed:
            raise InputError(f"dataset {self.name!r} is closed; open it again with workspace.dataset or Dataset.load")

    def close(self) -> None:
        """Close files and release the writer's lock. Every further use is an `InputError`."""
        self.is_closed = True
        self.release()

    aclose = async_twin(close)

    def release(self) -> None:
        """Close files and release the writer's lock; the next use opens them again."""
        with self._opening:
            store = self._store
            self._views.clear()
            self._closable_views.clear()
            if self._path is not None or self._backend is not None:
                self._store = None
        if store is not None:  # outside the lock: a writing thread has to finish first, and may need it
            store.close()

    def close_unless_used(self) -> bool:
        """Do as `release`, unless a search, a write or anyone else holds the store; returns whether it is closed.

        Every use of a store holds a reference to it, and a new one needs the lock that is held here meanwhile.
        """
        if not self._opening.acquire(blocking=False):
            return False  # it is being opened
        try:
            store, self._store = self._store, None
            self._views.clear()
            if store is not None and sys.getrefcount(store) > _REFERENCES:
                self._store = store
                return False
            self.__dict__.pop("_document_embedder", None)  # the cache of vectors is a file too
        finally:
            self._opening.release()
        if store is not None:
            store.close()
        return True

    @property
    def _own_store(self) -> Store:
        """Return the store, if it is ours to maintain.

        Raises:
            UnmetNeedError: it maintains itself.
        """
        from pointsman.store.external.attachment import maintains_itself

        store = self.make()
        if store.is_attached:
            raise UnmetNeedError(maintains_itself(self.name))
        if store.maintains_itself:
            raise UnmetNeedError(f"dataset {self.name!r} is in a {store.info.kind} store, which maintains itself")
        return store


def _references_of_a_variable() -> int:
    """Return what `sys.getrefcount` returns for an object that only one variable of a function refers to."""
    value = object()
    return sys.getrefcount(value)


_REFERENCES: Final = _references_of_a_variable()


def no_image_embedder(name: str) -> UnmetNeedError:
    """Return the error of a dataset of pictures without anything that embeds them."""
    return UnmetNeedError(
        f"dataset {name!r} is for pictures, and no embedder of pictures is configured; set image_embedder to "
        "clip:NAME (POINTSMAN_IMAGE_EMBEDDER), or give an embedder with embed_images"
    )


@cache
def _default_engine() -> Engine:
    return Engine()


def changed_bm25(constants: Mapping[str, float]) -> dict[str, float]:
    """Return those of ``k1`` and ``b`` that replace a stored dataset's own: the values other than the defaults."""
    return {name: value for name, value in constants.items() if value != _BM25[name]}


def days_in(versions: str) -> int:
    """Return for how many days versions are kept.

    >>> days_in("90 days"), days_in("off")
    (90, 0)

    Raises:
        InputError: it is no number of days from 1 to 36500, and not "off".
    """
    match = _DAYS.fullmatch(versions) if isinstance(versions, str) else None
    if versions == "off":
        return 0
    if match is None or not 1 <= int(match[1]) <= _MOST_DAYS:
        raise InputError(f"versions are kept for a time such as '90 days', or 'off', not {versions!r:.80}")
    return int(match[1])


_DAYS: Final = re.compile(r"(\d{1,6}) days?", re.ASCII)
_MOST_DAYS: Final = 36_500


def check_name(name: str) -> str:
    """Return a name in NFC, as it is stored, after checking it; names become directories and are never escaped.

    Raises:
        InputError: the name is invalid.
    """
    stored_name = compose(name) if isinstance(name, str) else ""
    if not _NAME.fullmatch(stored_name):
        raise InputError(
            f"a dataset's name is 1 to 64 letters, digits, '_', '-', '.' or single spaces, not {name!r:.80}"
        )
    if len(stored_name.encode()) > _NAME_BYTES:
        raise InputError(f"a dataset's name has at most {_NAME_BYTES} bytes in UTF-8; {name!r:.80} has more")
    return stored_name


def _check_description(description: str) -> None:
    """Check that a description can be stored in every backend.

    Raises:
        InputError: it cannot.
    """
    if not isinstance(description, str) or "\0" in description or not storable(description):
        raise InputError(f"a description is a str without NUL and lone surrogates, not {description!r:.80}")


def _taken_from(workspace: Any, name: str, technique: IndexingTechnique, holds_images: bool) -> Any:
    """Take a pickled dataset from its workspace again."""
    return workspace.dataset(name, indexing_technique=technique, images=holds_images)
