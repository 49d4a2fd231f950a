"""External collections, such as a PostgreSQL table, searched in place.

They are only read. Their scores are on their own scale, so they are fused with other lists by rank.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeVar

import numpy as np

from pointsman.store.base_store import Store
from pointsman.store.prepared_documents import UNREADABLE, position
from pointsman.store.store_values import NEAR, SPREAD_NOTE, Capability, Lists, Page, Scale, Statistics, StoreInfo
from pointsman.text.unicode import canonical_forms
from pointsman.tools.errors import CorruptStoreError, InputError, StoreError, StoreUnavailableError
from pointsman.tools.json_forms import of_form
from pointsman.tools.system.locations import redacted
from pointsman.values.filters import And, Equals, Filter, In, Not, Or
from pointsman.values.registry import COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.store.store_values import Ranking, StoreQuery
    from pointsman.values.filters import Typed
    from pointsman.values.types import Document

T = TypeVar("T")

ATTACHED: Final = "attached"
"""The kind of the collections' records in a workspace."""
TEXT: Final = "text"
"""The keyword list of a collection, as its database tokenises words."""
BOTH: Final = "text and vector"
"""Both lists as one: a collection has one vote among sources, however many lists it has."""
_RRF_K: Final = 60
_BATCH_ROWS: Final = 1000
"""Documents read at a time."""
CACHED_SECONDS: Final = 600.0
"""Collections have no sequence number: values computed from one are recomputed after this many seconds."""

AWAY_SECONDS: Final = 2.0
"""For so long a server that did not answer is not asked again what it knows of a collection."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The location of a collection, and the roles of its columns.

    Attributes:
        url: of its server; stored in the workspace unchanged, so keep the password elsewhere.
        table: the table or view (``orders``, ``sales.orders``), the index or the collection.
        id: the column or field that identifies documents; ``_id`` in an OpenSearch index.
        text: the column or field that holds the text.
        vector: the column or field that holds the vectors; None: search by words alone.
        metadata: columns or fields available to filters; the keys of a JSON column count as columns.
        embedder: the name of the embedder that made the vectors.
        spec: how to load that embedder; None: use the workspace's.
        description: what the collection contains.
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
        """Return the JSON form that is stored."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """Read the JSON form.

        Raises:
            CorruptStoreError: it is invalid.
        """
        try:
            return of_form(cls, json.loads(text))
        except (*UNREADABLE, KeyError) as error:
            message = (
                f"the record of the attached collection {name!r} is invalid ({error}); detach it and attach it again"
            )
            raise CorruptStoreError(message) from error

    def open(self) -> AttachedStore:
        """Return the collection as a store; connect to its server on first use.

        Raises:
            InputError: this kind of collection cannot be attached, or the URL is invalid.
            MissingDependencyError: the package for it is not installed.
        """
        scheme = self.url.partition(":")[0].lower()
        if scheme not in COLLECTIONS:
            schemes = ", ".join(COLLECTIONS.names())
            raise InputError(f"collections are attached by URLs of {schemes}, not {scheme[:40]!r}")
        store: AttachedStore = COLLECTIONS.create(scheme, self)
        return store


_SCALES: Final[Mapping[str, Mapping[str, Scale]]] = {
    "hybrid": {TEXT: Scale.FOREIGN, NEAR: Scale.FOREIGN, BOTH: Scale.RANK},
    "keyword": {TEXT: Scale.FOREIGN},
    "vector": {NEAR: Scale.FOREIGN},
}
"""The scales of a collection's lists, by search technique."""


@dataclass(frozen=True, slots=True)
class CollectionFacts:
    """What the database reports about a collection.

    Attributes:
        fingerprint: a text that differs between collections.
        dimensions: of the vectors; None if there are none, or if not reported.
        readable: whether the database returns vectors.
    """

    fingerprint: str
    dimensions: int | None
    readable: bool


class AttachedStore(Store):
    """The base class of stores over attached collections, which are only read.

    Args:
        attachment: the location of the collection, and the roles of its columns.
    """

    kind: ClassVar[str]
    by_words: ClassVar[bool] = True
    """Whether such collections can be searched by words."""
    further: ClassVar[frozenset[Capability]] = frozenset()
    """Capabilities besides filtering and, if the database returns them, reading vectors."""

    is_attached = True
    has_answered = False

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self._asking = threading.Lock()
        self._absence: tuple[float, StoreUnavailableError] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.attachment.place!r})"

    @property
    def technique(self) -> Literal["hybrid", "keyword", "vector"]:
        """The indexing technique that describes how the collection can be searched."""
        if not self.by_words:
            return "vector"
        return "keyword" if self.attachment.vector is None else "hybrid"

    @property
    @abstractmethod
    def _facts(self) -> CollectionFacts:
        """What the database reports about the collection.

        Raises:
            InputError: there is no such collection, or it lacks a column or field of the attachment.
        """

    @property
    def info(self) -> StoreInfo:
        """See `Store`.

        Raises:
            InputError: there is no such collection, or it lacks a column or field of the attachment.
            StoreUnavailableError: the server cannot be reached, or a file cannot be read.
        """
        with self._asking:  # one caller waits for the server; the others share what it learnt
            if self._absence is not None and time.monotonic() < self._absence[0]:
                raise StoreUnavailableError(str(self._absence[1])) from self._absence[1]
            try:
                facts = self._facts
            except StoreUnavailableError as error:
                self._absence = time.monotonic() + AWAY_SECONDS, error
                raise
            self.has_answered, self._absence = True, None
        capabilities = {Capability.FILTERS, *([Capability.VECTORS] if facts.readable else [])}
        return StoreInfo(
            self.kind,
            hashlib.blake2b(facts.fingerprint.encode(), digest_size=16).hexdigest(),
            None if self.attachment.vector is None else self.attachment.embedder,
            facts.dimensions,
            _SCALES[self.technique],
            self.further | capabilities,
        )

    def _with_place(self, notes: Iterable[str]) -> list[str]:
        return [f"{self.attachment.place}: {note}" for note in notes]

    @abstractmethod
    def _documents_with(self, ids: Sequence[str]) -> Iterable[Document]:
        """Return the documents with these distinct ids, in any order."""

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        documents = {document.id: document for document in self._documents_with(list(dict.fromkeys(ids)))}
        return [documents.get(id_) for id_ in ids]

    def _check_names(self, names: Iterable[str | None], existing: Collection[str], kind: str) -> None:
        """Check that the collection has all that the attachment names.

        Raises:
            InputError: it lacks one.
        """
        for name in names:
            if name is not None and name not in existing:
                listing = ", ".join(existing) or "none"
                raise InputError(f"{self.attachment.table!r} has no {kind} {name!r:.80}; it has {listing}")

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:  # noqa: ARG002  (called before embedding)
        """See `Store`; always raises, because the caller is about to write, which is not possible here."""
        raise self._cannot(Capability.WRITE)

    def statistics(self) -> Statistics:
        """See `Store`; the sequence number is derived from the clock."""
        spread = self.attachment.spread
        notes = {} if spread is None else {SPREAD_NOTE: json.dumps(spread)}
        return Statistics(int(time.time() / CACHED_SECONDS), None, notes)


class UnusableStore(AttachedStore):
    """Stands in for a collection whose record cannot be used, so that others are searched; reading raises the error.

    Args:
        error: why it cannot be used, and what to do.
    """

    kind = "attached collection"

    def __init__(self, error: StoreError) -> None:
        super().__init__(Attachment("", "", "", "", ""))  # of the technique that every strategy can search
        self._error = error

    def _fail(self) -> StoreError:
        return type(self._error)(str(self._error))

    @property
    def _facts(self) -> CollectionFacts:
        raise self._fail()

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:  # noqa: ARG002  (of `Store`)
        """See `Store`; always raises."""
        raise self._fail()

    def _documents_with(self, ids: Sequence[str]) -> Iterable[Document]:  # noqa: ARG002  (see above)
        raise self._fail()

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:  # noqa: ARG002
        """See `Store`; always raises."""
        raise self._fail()


def maintains_itself(name: str) -> str:
    """Return why an attached collection is neither checked nor rebuilt here."""
    return f"{name!r} is attached; it maintains itself"


def unit_rows(
    vectors: Mapping[str, Sequence[float]], keys: Sequence[str] | None, dimensions: int | None
) -> NDArray[np.float32]:
    """Return vectors as rows of length 1, in the order of ``keys`` if given; missing keys are skipped."""
    order = list(vectors) if keys is None else [key for key in keys if key in vectors]
    rows = np.array([vectors[key] for key in order], np.float32).reshape(len(order), dimensions or 0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def unknown_keys(filters: Filter | None, keys: Collection[str]) -> Iterator[str]:
    """Yields a note for each key of a filter that the collection cannot be queried by."""
    for key in keys_of(filters):
        if key not in keys:
            filterable = ", ".join(keys) or "its metadata"
            yield f"there is no {key!r} to filter by among {filterable}: it counts as absent"


def keys_of(filters: Filter | None) -> Iterator[str]:
    """Yields the keys that a filter uses."""
    if isinstance(filters, And | Or):
        for operand in filters.parts:
            yield from keys_of(operand)
    elif isinstance(filters, Not):
        yield from keys_of(filters.part)
    elif isinstance(key := getattr(filters, "key", None), str):
        yield key


def as_written(condition: Equals | In) -> list[Typed]:
    """Return the values of a condition, with texts as given too: a collection has its own format for instants."""
    values = (condition.value,) if isinstance(condition, Equals) else condition.values
    typed_values = [condition.typed] if isinstance(condition, Equals) else list(condition.typed)
    texts = [value for value in values if isinstance(value, str)]
    forms = itertools.chain.from_iterable(map(canonical_forms, texts))  # a collection compares code points
    return list(dict.fromkeys([*typed_values, *(("string", text) for text in (*texts, *forms))]))


Row = tuple[str, float, "Document"]
"""A key with its score, and the document."""


def narrowed(
    filters: Filter | None, leaf: Callable[[Filter], T | None], conjunction: Callable[[str, list[T]], T]
) -> T | None:
    """Return a database query that lets through at least all matches; None if that means no restriction.

    Args:
        filters: the filter.
        leaf: the condition for a part on one key; None if no condition of the database lets through all matches.
        conjunction: joins conditions by ``"and"`` or ``"or"``.
    """
    if isinstance(filters, And | Or):
        operands = [narrowed(operand, leaf, conjunction) for operand in filters.parts]
        able = [operand for operand in operands if operand is not None]
        if not able or (isinstance(filters, Or) and len(able) < len(operands)):
            return None
        return able[0] if len(able) == 1 else conjunction(filters.word, able)
    return None if filters is None or isinstance(filters, Not) else leaf(filters)


def matching(
    filters: Filter | None, depth: int, limit: int, ask: Callable[[int], Sequence[Sequence[Row]]]
) -> tuple[list[list[Row]], list[str]]:
    """Return the best matches from lists of a database whose filters have other semantics.

    Args:
        filters: the filter, evaluated here.
        depth: how many matches to return per list.
        limit: the largest number of rows to request per list.
        ask: returns the given number of first rows of each list.

    Returns:
        The lists, and a note if more matches may exist beyond ``limit``.
    """
    size = min(depth, limit)
    while True:
        lists = ask(size)
        matches = [[row for row in rows if filters is None or filters.matches(row[2].fields)] for rows in lists]
        short = [
            len(rows) >= size and len(matching_rows) < depth for rows, matching_rows in zip(lists, matches, strict=True)
        ]
        if not any(short) or size >= limit:
            note = f"the filter was applied to the first {limit:,} documents only; there may be more matches"
            is_incomplete = any(short) and filters is not None
            return [matching_rows[:depth] for matching_rows in matches], [note] if is_incomplete else []
        size = min(8 * size, limit)


def page_of(
    documents: Callable[[int, int], Sequence[Document]], after: str | None, limit: int, filters: Filter | None
) -> Page:
    """Return a page of a collection that returns its documents by number.

    Args:
        documents: returns documents from a number on, at most a given count.
        after: where the previous page ended.
        limit: the maximum number of documents.
        filters: only matching documents are returned.
    """
    begin = position(after)
    documents_shown: list[Document] = []
    while len(documents_shown) < limit:
        batch = documents(begin, _BATCH_ROWS if filters is not None else limit)
        if not batch:
            return Page(documents_shown, None)
        for document in batch:
            begin += 1
            if filters is None or filters.matches(document.fields):
                documents_shown.append(document)
                if len(documents_shown) == limit:
                    break
    return Page(documents_shown, str(begin))


def lists_of(rows_of_lists: Mapping[str, Iterable[Row]], depth: int, notes: Iterable[str] = ()) -> Lists:
    """Return what a search has found.

    Args:
        rows_of_lists: by list, best first; a document that has several rows counts once.
        depth: how many documents to return.
        notes: what does not hold of it.
    """
    rankings: dict[str, Ranking] = {}
    documents: dict[Any, Document] = {}
    for name, rows in rows_of_lists.items():
        best: dict[str, float] = {}
        for key, score, document in rows:
            best.setdefault(key, score)
            documents[key] = document
        rankings[name] = list(best.items())
    return Lists(_one_list(rankings, depth), {}, documents, tuple(dict.fromkeys(notes)))


def _one_list(rankings: Mapping[str, Ranking], depth: int) -> dict[str, Ranking]:
    """Return the lists of a collection as one, fused by reciprocal rank if there are two."""
    if len(rankings) < 2:
        return dict(rankings)
    sums: dict[Any, float] = {}
    for ranking in rankings.values():
        for rank, (key, _) in enumerate(ranking, 1):
            sums[key] = sums.get(key, 0.0) + 1 / (_RRF_K + rank)
    return {BOTH: sorted(sums.items(), key=lambda item: -item[1])[:depth]}
