"""A dataset as of one search: opened once, and asked once for whatever the search needs to know of it.

::

    reading = Reading(source)      nothing is opened
    reading.open()                 the store and its description
    reading.measure()              what nobody has measured yet: the cosines of unrelated questions
    reading.read()                 its statistics: in the branch, under the deadline

The stages after the branches only compute with what readings and branches brought.
"""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import CosineSpread
from pointsman.store.store_values import SPREAD_NOTE, VERSIONS, Capability
from pointsman.tools.errors import InputError, ReplacedError, StoreError, UnmetNeedError
from pointsman.tools.system import file_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.judge.relevance import Background
    from pointsman.retrieval.judge.versions import Versions
    from pointsman.retrieval.run.source import Source
    from pointsman.store.base_store import Store
    from pointsman.store.store_values import RecordedState, Statistics, StoreInfo

USUAL_SIGMA: Final = 0.05
"""The standard deviation of cosines assumed until it can be measured, if the embedder does not state its own."""

BACKGROUND_NOTE: Final = "background3"
"""The number is the version of its fields: notes of another version are ignored, and measured again."""

_measuring = threading.Lock()


class Reading:
    """What one search knows of a dataset.

    A reading is of the dataset as a whole; one for a part of its documents would be opened here, too.

    Args:
        source: the dataset.
        at_once: how many of the datasets that are searched may be open at once: the store of each is open only while
            somebody uses it; 0: all, until the search ends.

    Attributes:
        source: the dataset.
        name: of the dataset.
        info: the store's description; None before it is opened, and before an attached collection has been asked.
        statistics: of the store; None before they are read.
        spread: the distribution of cosines between queries and random documents; None while no vector is stored.
        embeds: whether queries can be embedded for it; if not, its search says why.
        is_local: whether the store is in this process; False while that is not known.
        is_new: whether it has vectors that no search in this process has been judged by.
        background: the cosines that unrelated questions have here; None if they are unknown, or not measured yet. If
            it is known before the search and documents are in several languages, it is that of questions without
            their language, and so are the vectors of `vector_of`.
        versions: which documents are versions of others; None in a dataset whose documents say nothing of time.
        words_sequence: the number of the write whose words were used for spelling; it may be an earlier one;
            None if nothing was looked up in them, `UNREAD` if they were still being read.
    """

    __slots__ = (
        *("_background_key", "_has_vector", "_held_store", "_store"),
        *("background", "embeds", "info", "is_local", "is_new", "name", "source", "spread", "statistics", "versions"),
        *("at_once", "words_sequence"),
    )

    def __init__(self, source: Source, at_once: int = 0) -> None:
        self.source, self.name, self.at_once = source, source.name, at_once
        self.info: StoreInfo | None = None
        self.statistics: Statistics | None = None
        self.spread: CosineSpread | None = None
        self.background: Background | None = None
        self.versions: Versions | None = None
        self.words_sequence: int | None = None
        self.embeds = self.is_local = self.is_new = self._has_vector = False
        self._store: weakref.ref[Store] | None = None
        self._held_store: Store | None = None
        self._background_key = ""

    @property
    def store(self) -> Store:
        """The store with the documents, as it was when the search first needed it.

        Raises:
            ReplacedError: it was closed in between, and the dataset of this name is another one by now.
        """
        store = self._held_store or (None if self._store is None else self._store())
        if store is None:
            store = self.source.store.pinned()
            if self.at_once:
                if self.info is not None and store.info.identity != self.info.identity:
                    raise ReplacedError(f"{self.name}: the dataset was deleted or recreated; open it again")
                self._store = weakref.ref(store)
            else:
                self._held_store = store
        return store

    @property
    def is_open(self) -> bool:
        """Whether the store is open already; True of one that cannot be closed."""
        return bool(getattr(self.source, "opened", True))

    @property
    def recorded_state(self) -> RecordedState | None:
        """The state of the dataset, if it keeps versions; None before its statistics are read."""
        return None if self.statistics is None else self.statistics.recorded_state

    @property
    def embedder_name(self) -> str | None:
        """The name of the embedder of the stored vectors; None while no vector is stored."""
        return None if self.info is None else self.info.embedder

    def open(self) -> None:
        """Open the store, and check it for changes by others; if that fails, the branch says why.

        This never asks an attached collection that has not been asked yet: its branch does.
        """
        with suppress(StoreError):  # the branch meets it again, and reports it
            store = self.store
            if store.has_answered:
                self.info = store.info
                self.is_local = self.can(Capability.LOCAL)
            self.embeds = self.embedder_name is not None and self._has_embedder()
            self.is_new = self.embeds and self.source.remembered_background is None

    def _has_embedder(self) -> bool:
        try:
            return self.can(Capability.VECTORS) and self.embedder_name == self.source.embedder.name
        except Exception:  # noqa: BLE001  (the search of this source raises it again)
            return False

    def can(self, capability: Capability) -> bool:
        """Whether the store has a capability; False while it is not known."""
        return self.info is not None and capability in self.info.capabilities

    def read(self) -> Statistics:
        """Read the statistics, and what they say about cosines; returns them.

        Raises:
            StoreError: the store cannot be read.
        """
        if self.statistics is None:
            statistics = self.store.statistics()
            if self.info is None or self.info.embedder is None:  # the first vectors may just have been written
                self.info = self.store.info
            self.spread = self._spread_in(statistics)
            self._find_background(statistics)
            self.versions = versions_in(self.source, self.store, statistics)
            self.statistics = statistics
        return self.statistics

    def close(self) -> None:
        """Let go of the store; whoever explains the answer later opens it again."""
        self._store = self._held_store = None

    # ── cosines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def vector_of(self, text: str, *, as_passage: bool = False) -> NDArray[np.float32] | None:
        """The vector to search by, shape ``(dimensions,)``; None while no vector is stored.

        Args:
            text: a query.
            as_passage: embed the text as a document, not as a query.

        Raises:
            UnmetNeedError: the stored vectors come from another embedder.
            ModelError: the embedder failed.
        """
        if not self.embeds:
            stored_name, own_name = self.embedder_name, self.source.embedder.name
            if stored_name is None:
                return None
            if stored_name != own_name:
                from pointsman.embedders.base_embedder import names_for_people

                stored, own = names_for_people(stored_name, own_name)
                raise UnmetNeedError(
                    f"dataset {self.name!r} holds vectors of {stored!r}, but is opened with {own!r}; "
                    "open it with that embedder, or index the documents again into a new dataset"
                )
        vector = self.source.embedder.embed_documents([text])[0] if as_passage else self.source.query_vectors(text)
        background, self._has_vector = self.background, True
        return vector if background is None or background.languages is None else background.languages.neutral(vector)

    def _spread_in(self, statistics: Statistics) -> CosineSpread | None:
        note = statistics.notes.get(SPREAD_NOTE)
        if note:
            return _spread_of_note(note)
        if self.source.indexing_technique == "keyword" or self.embedder_name is None:
            return None
        return CosineSpread(0.0, getattr(self.source.embedder, "cosine_spread", None) or USUAL_SIGMA)

    # ── the background ───────────────────────────────────────────────────────────────────────────────────────────

    def _find_background(self, statistics: Statistics) -> None:
        """Take the background that this process knows of; otherwise note that it is to be measured.

        It is noted in the store when documents are embedded. Without a note, as with vectors that were imported,
        it is measured before the first search, cached in this process, and measured again when the writes have doubled;
        but not while vectors are still to come, since the embedding process will measure it.
        """
        note = statistics.notes.get(BACKGROUND_NOTE)
        if self.info is None or (statistics.vectors_due and not note):
            return
        key = note or f"{self.info.identity} {statistics.sequence.bit_length()}"
        remembered = self.source.remembered_background
        if remembered is not None and remembered[0] == key:
            self.background = remembered[1]
            if self.background.neutral is not None:
                self._judge_by(self.background)
            return
        self._background_key = key
        if note:
            with suppress(InputError):  # `measure` meets it again, and its stage reports it
                self._know(key)

    def _judge_by(self, background: Background) -> None:
        """Judge by this background; of documents in several languages, search without that of the question.

        A question that has its vector already keeps it, with its language.
        """
        neutral = None if self._has_vector else background.neutral
        self.background, self._background_key = background if neutral is None else neutral, ""
        if neutral is not None and self.spread is not None:  # cosines are lower by so much
            self.spread = replace(self.spread, mean=self.spread.mean - neutral.lowered)

    @property
    def lacks_background(self) -> bool:
        """Whether a background can be expected that `measure` has not brought yet."""
        return bool(self._background_key)

    def measure(self) -> None:
        """Read the background from the store's notes or, if it has never been measured, measure it, for some seconds.

        Raises:
            InputError: the note is not a background.
            ModelError: the embedder failed.
            StoreError: the store cannot be read.
        """
        self.read()
        if self._background_key:
            self._know(self._background_key)

    def _know(self, key: str) -> None:
        """Make the background known to this search and to later ones."""
        with _lock_of(self.source):  # concurrent searches wait for one measurement, each until its own deadline
            memory = self.source.remembered_background
            if memory is None or memory[0] != key:
                background = self._background_of(key)
                if background is not None:
                    self.source.remembered_background = key, background
            else:
                background = memory[1]
        if background is None:
            self._background_key = ""
        else:
            self._judge_by(background)

    def _background_of(self, key: str) -> Background | None:
        from pointsman.retrieval.judge.background import measured
        from pointsman.retrieval.judge.relevance import Background

        if key.startswith("{"):
            return Background.from_json(key)
        return measured(self.store, self.source.embedder, self.spread)


@lru_cache(256)
def _spread_of_note(note: str) -> CosineSpread:
    """The spread as noted in a store; a note changes only with the documents."""
    return CosineSpread(*json.loads(note))


def spread_of(source: Source) -> CosineSpread | None:
    """The distribution of cosines between queries and random documents; None while no vector is stored.

    Raises:
        StoreError: the store cannot be read.
    """
    reading = Reading(source)
    reading.read()
    return reading.spread


def versions_in(source: Source, store: Store, statistics: Statistics) -> Versions | None:
    """Return the versions in the store of a source, read again when something was written.

    None in a store whose documents say nothing of time.

    Raises:
        StoreError: the store cannot be read.
    """
    if VERSIONS not in statistics.notes:
        return None
    from pointsman.retrieval.judge.versions import IS_VERSION, Versions

    key = f"{store.info.identity} {statistics.sequence}"
    memory = source.remembered_versions
    if memory is None or memory[0] != key:
        memory = source.remembered_versions = key, Versions(store.documents(IS_VERSION))
    return memory[1]


def _lock_of(source: Source) -> threading.Lock:
    with _measuring:
        if source.measuring is None:
            source.measuring = threading.Lock()
        return source.measuring


def are_opened_in_turn(sources: Sequence[Any]) -> bool:
    """Whether these are more datasets in folders than may be open: each is then open only while it is used."""
    count = sum(bool(getattr(source, "is_in_folder", False)) for source in sources)
    return count > file_descriptors.most_open_datasets()


_current: ContextVar[Mapping[int, Reading]] = ContextVar("readings", default={})  # noqa: B039  (never changed)


@contextmanager
def reading_each(sources: Sequence[Source]) -> Iterator[dict[str, Reading]]:
    """Within the block, and in the threads and tasks that it starts, each of these datasets has one reading.

    Of more datasets in folders than the process may have open, none is kept open: whoever uses one opens it again.

    Yields:
        The readings, not opened yet, by the names of the datasets.
    """
    current = _current.get()
    at_once = 0
    if len(sources) > file_descriptors.FEWEST_OPEN:
        closable = [source for source in sources if getattr(source, "is_closable", False)]
        at_once = file_descriptors.most_open_datasets() if are_opened_in_turn(closable) else 0
    readings = {source.name: Reading(source, at_once) for source in sources}
    token = _current.set({**current, **{id(reading.source): reading for reading in readings.values()}})
    try:
        yield readings
    finally:
        _current.reset(token)
        for reading in readings.values():
            reading.close()


def reading_of(source: Source) -> Reading:
    """The reading of a dataset in the search that runs here; a new one outside of a search."""
    reading = _current.get().get(id(source))
    return Reading(source) if reading is None else reading
