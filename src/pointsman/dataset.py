"""A dataset: documents in a store, with the embedder for them and ways to search them."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import threading
import weakref
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from pointsman._twins import async_twin
from pointsman.engine import Engine
from pointsman.errors import ConflictError, InputError, UnknownNameError, UnmetNeedError
from pointsman.filters import parse_optional
from pointsman.models.base import as_embedder, mixed_embedders
from pointsman.models.queries import QueryVectors
from pointsman.passages import SourceText, source_text
from pointsman.request import SearchOptions, SearchRequest, of_one_dataset
from pointsman.retrieval.background import (
    DRAWN,
    LIKELY,
    SCRIPT_SAMPLE,
    background_of,
    first_sentences,
)
from pointsman.retrieval.branches import Question, SourceBranch
from pointsman.retrieval.candidates import DEPTH
from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.reading import BACKGROUND_NOTE, USUAL_SIGMA, Reading, spread_of
from pointsman.retrieval.recipe import Recipe
from pointsman.retrieval.relevance import shipped
from pointsman.retrieval.retrievers.base import BaseRetriever
from pointsman.retrieval.search import search_now
from pointsman.retrieval.source import (
    SCRIPTS_NOTE,
    TECHNIQUES,
    IndexingTechnique,
    Source,
)
from pointsman.store.base import NEAR, SCALES_OF, SPREAD_NOTE, WORDS_FIRST, Capability, EmptyStore, Look
from pointsman.store.prepared import storable
from pointsman.types import (
    AddResult,
    Document,
    Hit,
    Provenance,
    Query,
    check_changes,
    check_id,
    check_ids,
    check_page,
    check_top_k,
)
from pointsman.workflow import several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.models import CachedEmbedder
    from pointsman.protocols import Embedder
    from pointsman.retrieval.candidates import Pool
    from pointsman.store.backend import Backend, DatasetRecord
    from pointsman.store.base import Store
    from pointsman.store.local.collection import Verification
    from pointsman.store.local.store import LocalStore
    from pointsman.types import Documents, RetrievalContext

_NAME = re.compile(r"(?!\.)[\w.\-]{1,64}(?<!\.)", re.UNICODE)
_NAME_BYTES = 200  # file names have at most 255 bytes, and temporary ones are longer than the dataset's
Existing = Literal["update", "keep", "refuse"]
"""What happens to documents that are added under an id that exists."""
EXISTING: Final = ("update", "keep", "refuse")
LATER: Final = "later"
Embed = bool | Literal["later"]
"""Whether documents are embedded when they are added."""

_BATCH = 512  # documents embedded and committed together; committed batches survive an interrupted add
SOON = 64  # the same while searches wait for vectors: two seconds of embedding
PATIENCE = 60.0  # seconds to wait for another process that is writing
_WRITTEN_IN = 0.2  # a document is written in every script that has at least this share of its letters
_BATCH_CHARACTERS = 32_000_000  # a transaction, and the memory to embed it, must fit into RAM
_BM25 = {"k1": 1.2, "b": 0.75}
_TITLE_ATTEMPTS = 10  # how often new titles are embedded again because others have changed the texts meanwhile
_SPREAD_LEAST = 64
_SPREAD_AT = "cosine_spread_at"


class Dataset(Source):
    """Documents under a name, with their own store and settings.

    Nothing is opened before it is needed, and nothing is created before the first write: reading a dataset that does
    not exist returns nothing and leaves no trace. Without a ``path`` the documents are in a temporary directory that is
    deleted with the object.

    Args:
        name: 1 to 64 letters, digits, ``_``, ``-`` or ``.``; any script.
        description: its contents, for routers and people who choose where to search.
        indexing_technique: ``"vector"``, ``"keyword"`` (full text) or ``"hybrid"``; a keyword dataset embeds nothing.
        path: its directory.
        store: the store with its documents, instead of a directory.
        backend: opens or creates the store of this name, instead of either.
        embedder: anything with ``embed(text)``; by default the default embedder.
        bm25_k1: term frequency saturation of BM25; if this is 1.2, a stored dataset keeps its own.
        bm25_b: length normalisation of BM25; if this is 0.75, a stored dataset keeps its own.
        query_vectors: embeds queries with the same embedder; datasets that are searched together share one, so that a
            query is embedded once.
        engine: returns the engine for searches; a workspace passes its own.
        on_make: called when the dataset has been created.

    Raises:
        InputError: name, technique or embedder is invalid.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        indexing_technique: IndexingTechnique = "hybrid",
        *,
        path: str | Path | None = None,
        store: Store | None = None,
        backend: Backend | None = None,
        embedder: Embedder | None = None,
        bm25_k1: float = 1.2,
        bm25_b: float = 0.75,
        query_vectors: QueryVectors | None = None,
        engine: Callable[[], Engine] | None = None,
        on_make: Callable[[], None] | None = None,
        on_open: Callable[[Dataset], None] | None = None,
    ) -> None:
        check_name(name)
        _check_description(description)
        if indexing_technique not in TECHNIQUES:
            raise InputError(f"indexing_technique is one of {', '.join(TECHNIQUES)}, not {indexing_technique!r}")
        self.name, self.description, self.indexing_technique = name, description, indexing_technique
        self._path = Path(path) if path is not None else None
        self._backend = backend
        self._embedder = None if embedder is None else as_embedder(embedder)
        self._bm25 = {"k1": bm25_k1, "b": bm25_b}
        # A stored dataset keeps its constants; only values other than the defaults replace them.
        self._bm25_changed = {name: value for name, value in self._bm25.items() if value != _BM25[name]}
        self._store: Store | None = store
        self._opening = threading.RLock()
        self._engine, self._on_make, self._on_open = engine or _default_engine, on_make, on_open
        self.query_vectors = query_vectors or QueryVectors(lambda: self.embedder)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, indexing_technique={self.indexing_technique!r}, path={str(self._path)!r})"

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        documents: Documents,
        *,
        vectors: NDArray[np.float32] | None = None,
        embed: Embed = True,
        existing: Existing = "update",
        on_progress: Callable[[int], None] | None = None,
        batch_size: int | None = None,
        on_commit: Callable[[AddResult], None] | None = None,
    ) -> AddResult:
        """Add documents, or update those whose id exists; documents already stored identically are skipped.

        Documents are committed in batches. When this returns, all of them are durable and searchable; if it is
        interrupted, the committed batches are. As many of the first documents as ``on_commit`` last counted need not be
        added again (if they are, they are ``unchanged``). If an id repeats, its last document counts.


        Args:
            documents: documents, or mappings with ``id``, ``text`` and optionally ``metadata``; one or several.
            vectors: shape ``(number of documents, dimensions)``, by this dataset's embedder; scaled to length 1. By
                default the documents are embedded here.
            embed: with False, documents given without vectors are stored without them and found only by words.
                ``"later"`` does the same, but answers report how many vectors are missing until `embed` has made them;
                if words are not searched, or the store cannot add vectors later, it is the same as True.
            existing: what happens to documents whose id exists: ``"update"`` them, ``"keep"`` the stored ones (counted
                as unchanged), or ``"refuse"`` the batch. In a store with many writers, another process may add an id
                in between.
            on_progress: called with the number of documents done since the last call.
            batch_size: maximum number of documents embedded and committed together; by default 512, or 10,240 with
                ``vectors``. Batches of more than 32 million characters are split.
            on_commit: called after each commit with the counts so far; documents are committed in order.

        Raises:
            InputError: a document or the vectors cannot be used, or an id exists and ``existing`` is ``"refuse"``; its
                batch and those after it are not written.
            LockedError: another process is writing to the dataset.
        """
        _check_choices(existing, embed)
        report = on_progress or (lambda _: None)
        total, position = AddResult(), 0
        most = (_BATCH if vectors is None else 20 * _BATCH) if batch_size is None else batch_size
        batches = _batches(documents, most)
        first = next(batches, None)  # before the dataset is created: unreadable input must not create one
        if first is None and vectors is not None and len(vectors):
            raise InputError(f"{len(vectors)} vectors for no documents; give one row for each")
        if first is None:
            return total
        store = self.make()
        if embed == LATER:
            embed = not self._goes_words_first(store)
        with _writer(store):
            for batch in chain([first], batches):
                rows = None if vectors is None else vectors[position : position + len(batch)]
                if vectors is not None and len(vectors) < position + len(batch):
                    raise InputError(
                        f"{len(vectors)} vectors for more than {len(vectors)} documents; give one row for each"
                    )
                new = batch
                if existing != "update":
                    new, rows = _new_ones(store, new, rows, existing)
                    total += AddResult(unchanged=len(batch) - len(new))
                    report(len(batch) - len(new))
                if new:
                    total += self._add_batch(store, new, rows, report, embed=bool(embed))
                position += len(batch)
                if on_commit is not None:
                    on_commit(total)
            if vectors is not None and len(vectors) != position:
                raise InputError(f"{len(vectors)} vectors for {position} documents; give one row for each")
        self._measure_spread(store, embed=bool(embed) and vectors is None)
        return total

    def embed(self, limit: int | None = None, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Embed documents that have no vector: those added with ``embed="later"`` or ``embed=False``.

        Vectors are committed in batches of 64, so an interrupted call can be resumed. Others may read and write
        meanwhile; documents changed in between are embedded in a later round. Several processes can share the work,
        since each picks documents at random.

        Args:
            limit: maximum number of documents; all by default.
            on_progress: called with the number of documents embedded since the last call.

        Returns:
            The number of documents that received a vector.

        Raises:
            InputError: the dataset holds vectors of another embedder.
            LockedError: another process has been writing to the dataset for a minute.
            ModelError: the embedder failed.
        """
        store, total, stuck = self.store, 0, set[str]()
        if self.indexing_technique == "keyword" or not store.info.can(Capability.LATER):
            return 0
        while (limit is None or total < limit) and (documents := store.bare(_BATCH)):
            self._check_embedder(store)
            random.shuffle(documents)
            count = 0
            for batch in _batches(documents[: None if limit is None else limit - total], SOON):
                vectors = self._document_embedder.embed_documents([document.searchable for document in batch])
                with self.writing(PATIENCE):
                    count += store.write(batch, vectors, self.embedder.name, stored_only=True).updated
                self._measure_spread(store, embed=True)
                if on_progress is not None:
                    on_progress(len(batch))
            total += count
            ids = {document.id for document in documents}
            if not count and ids == stuck:  # the same documents twice, all changed or deleted while being embedded
                break
            stuck = set() if count else ids
        return total

    aembed = async_twin(embed)

    @property
    def vectors_due(self) -> int:
        """The number of documents added with ``embed="later"`` that still lack a vector and are found only by words."""
        return self.store.statistics().vectors_due

    aadd = async_twin(add)

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
        writing = getattr(self.make(), "writing", None)
        with nullcontext() if writing is None else writing(wait):
            yield

    def delete(
        self, ids: str | Iterable[str] | None = None, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> int:
        """Delete documents by id, or those that match a filter; unknown ids are skipped.

        Returns:
            The number of deleted documents.

        Raises:
            InputError: neither ids nor filters are given, or they are invalid.
        """
        if ids is None and not filters:
            raise InputError("give ids or filters of the documents to delete; Workspace.drop deletes a dataset")
        several_ids, condition = None if ids is None else check_ids(ids), parse_optional(filters)
        return self.make().delete(several_ids, condition) if self.exists else 0

    adelete = async_twin(delete)

    aget = async_twin(Source.get)

    def get_many(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids in order, None for unknown ids."""
        return self.store.get(list(map(check_id, ids)))

    aget_many = async_twin(get_many)

    def text(
        self,
        source: str,
        *,
        hash: str | None = None,  # noqa: A002  (named like the citation's field)
        start: int = 0,
        end: int | None = None,
    ) -> SourceText:
        """Return the text that citations refer to, reassembled from the stored passages; no file is read.

        ``dataset.text(citation.source, hash=citation.hash).text[citation.start : citation.end]`` is the quote.

        Args:
            source: a file as named in citations, or the id of a document that is not from a file.
            hash: the citation's hash; None selects the content that most of the stored passages come from.
            start: start of the requested part.
            end: end of the requested part; it may exceed the end of the text.

        Raises:
            UnknownNameError: no document of this source, or of this source with this hash, is stored.
            InputError: the offsets are out of range, or more than 100,000,000 characters apart.
        """
        return source_text(self.store, check_id(source, "a source"), hash=hash, start=start, end=end)

    atext = async_twin(text)

    def get_vectors(self, ids: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the stored unit vectors of these ids in order, None if no vector is stored.

        Raises:
            UnmetNeedError: the store does not return vectors.
        """
        store = self.store
        keys = store.keys(list(ids))
        rows = store.vectors(list(keys.values())) if keys else ()
        if len(rows) == len(keys):
            vectors = dict(zip(keys, rows, strict=True))
        else:  # the store skips documents without a vector, and does not say which
            vectors = {id_: row for id_, key in keys.items() for row in store.vectors([key])}
        return [vectors.get(id_) for id_ in ids]

    aget_vectors = async_twin(get_vectors)

    def ids(self, *, source: str | None = None, filters: str | Mapping[str, Any] | Filter | None = None) -> list[str]:
        """Return all ids, or those of documents whose metadata has this ``source``, that match, or both."""
        wanted = None if source is None else check_id(source, "a source")
        return self.store.ids(source=wanted, filters=parse_optional(filters))

    aids = async_twin(ids)

    def set_metadata(self, metadata: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> AddResult:
        """Change the metadata of documents; texts and vectors stay, and only a new title is embedded.

        No change by others is undone, whenever they write: each document is read and written as one step.

        Args:
            metadata: values to set, by id; None removes the key.
            replace: whether to remove all other metadata of these documents.

        Raises:
            InputError: an id is unknown, or the metadata cannot be stored; nothing is changed.
            LockedError: another process is writing to the dataset.
            ConflictError: others keep changing the texts of documents that get a new title.
        """
        changes = {change.id: change.metadata for change in check_changes(metadata)}
        if changes and not self.exists:
            raise InputError(f"there is no document {next(iter(changes))!r:.80}")
        store, total = self.store, AddResult()
        vectors: dict[str, NDArray[np.float32]] = {}
        for _ in range(_TITLE_ATTEMPTS) if changes else ():
            result = store.set_metadata(changes, vectors, self.embedder.name if vectors else None, replace=replace)
            total += result.counts
            changes = {id_: changes[id_] for id_ in result.remaining}
            if not changes:
                break
            self._check_embedder(store)  # embedded while others may write: a vector is used only for the text it is of
            rows = self._document_embedder.embed_documents(list(result.texts))
            vectors.update(zip(result.texts, rows, strict=True))
        if not changes:
            return total
        raise ConflictError(f"others keep changing the texts of {', '.join(sorted(changes)[:5])!r:.200}; try again")

    aset_metadata = async_twin(set_metadata)

    def count(self, filters: str | Mapping[str, Any] | Filter | None = None) -> int:
        """Return the number of documents, or of those that match."""
        return self.store.count(parse_optional(filters))

    acount = async_twin(count)

    def page(
        self, after: int = 0, limit: int = 100, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents in order of first arrival, and the next page's start; None at the end.

        Args:
            after: the value returned with the previous page; 0 for the first.
            limit: at least 1.
            filters: restricts the documents.

        Raises:
            InputError: a number is out of range.
        """
        check_page(after, limit)
        page = self.store.page(str(after) if after else None, limit, parse_optional(filters))
        return page.documents, None if page.next is None else int(page.next)

    apage = async_twin(page)

    def __iter__(self) -> Iterator[Document]:
        return self.store.documents()

    def __len__(self) -> int:
        return self.store.count()

    def __bool__(self) -> bool:
        return True  # an empty dataset is true too

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def retriever(self, method: str = "auto") -> DatasetRetriever:
        """Return a retriever for this dataset: ``"bm25"``, ``"vector"``, ``"hybrid"`` or a fusion method's name.

        Raises:
            InputError: the dataset lacks what the method needs.
        """
        return DatasetRetriever(self, method)

    def search(self, query: str | Query, k: int = 5, **options: Unpack[SearchOptions]) -> RetrievalContext:
        """Search only this dataset; options and result are those of `Workspace.search`."""
        return self._engine().search(SearchRequest.of(query, k, of_one_dataset(options)), [self])

    async def asearch(self, query: str | Query, k: int = 5, **options: Unpack[SearchOptions]) -> RetrievalContext:
        """Async version of `search`."""
        return await self._engine().asearch(SearchRequest.of(query, k, of_one_dataset(options)), [self])

    def search_vector(
        self,
        vector: Sequence[float] | NDArray[np.floating],
        k: int = 5,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
    ) -> list[Hit]:
        """Return the documents whose vectors are nearest to this one, best first; nothing is embedded or refused.

        Args:
            vector: shape ``(dimensions,)``, from the dataset's embedder; its length does not matter.
            k: number of hits.
            filters: restricts the documents before the cut.

        Returns:
            Hits whose scores are cosines.

        Raises:
            InputError: the vector or a filter is invalid.
            UnmetNeedError: the dataset has no vectors.
        """
        if self.indexing_technique == "keyword":
            raise UnmetNeedError(f"dataset {self.name!r} has a keyword index only and stores no vectors")
        look = Look(None, _direction(vector), check_top_k(k), parse_optional(filters))
        store = self.store
        lists = store.search([look])[0]
        ranking = list(lists.rankings.get(NEAR, ()))[:k]
        missing = [key for key, _ in ranking if key not in lists.documents]
        documents = {**lists.documents, **dict(zip(missing, store.fetch(missing), strict=True))}
        return [
            Hit(document, score or 0.0, self.name, (Provenance(NEAR, rank, score),))
            for rank, (key, score) in enumerate(ranking, 1)
            if (document := documents[key]) is not None
        ]

    asearch_vector = async_twin(search_vector)

    def search_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions in common batches; return one context each, in order."""
        return self._engine().search_many(several(queries, k, of_one_dataset(options)), [self])

    async def asearch_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        return await self._engine().asearch_many(several(queries, k, of_one_dataset(options)), [self])

    def candidates(
        self, query: Query, method: str = "auto", depth: int = DEPTH, *, absent_script: float = 0.0
    ) -> Pool[Any]:
        """Return the candidates of all lists that ``method`` needs, with all scores; keys are the store's own.

        Args:
            query: what to search for.
            method: see `Source.lists_for`.
            depth: candidates per list.
            absent_script: words in a script are ignored if a smaller share of documents uses it; 0 ignores none.
        """
        return SourceBranch(Reading(self), method, absent_script).search([Question(query)], depth)[0].pool

    @property
    def engine(self) -> Engine:
        """Return the engine for searches of this dataset."""
        return self._engine()

    @property
    def embedder(self) -> Embedder:
        """Return the embedder of this dataset, loading it on first use."""
        if self._embedder is None:
            from pointsman.models import default_embedder

            self._embedder = default_embedder()
        return self._embedder

    @property
    def cosine_spread(self) -> CosineSpread | None:
        """The distribution of cosines between queries and random documents: the scale of the calibrated sum."""
        return spread_of(self)

    # ── lifecycle ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def opened(self) -> bool:
        """Whether its store is open."""
        return self._store is not None

    @property
    def exists(self) -> bool:
        """Whether the dataset has been created."""
        if self._store is None and self._backend is not None:
            self._store = self._backend.open(self.name, self._bm25_changed)
            if self._store is not None and self._on_open is not None:
                self._on_open(self)
        if self._store is not None:
            return True
        from pointsman.store.local.collection import read_manifest

        return self._path is not None and read_manifest(self._path) is not None

    @property
    def store(self) -> Store:
        """Return the store with the documents; an empty store if the dataset has not been created."""
        with self._opening:
            if self._store is None and not self.exists:
                return EmptyStore(SCALES_OF[self.indexing_technique])
            return self.make()

    def make(self) -> Store:
        """Create the dataset unless it exists; return its store."""
        with self._opening:
            if self._store is None:
                about = {
                    "name": self.name,
                    "description": self.description,
                    "indexing_technique": self.indexing_technique,
                }
                if self._backend is not None:
                    bm25 = {f"bm25_{name}": value for name, value in self._bm25.items()}
                    self._store = self._backend.open(self.name, self._bm25_changed) or self._backend.create(
                        self.name, {**about, **bm25}
                    )
                else:
                    self._store = self._in_folder(about)
                if self._on_make is not None:
                    self._on_make()
                if self._on_open is not None:
                    self._on_open(self)
            return self._store

    amake = async_twin(make)

    def _in_folder(self, about: Mapping[str, Any]) -> Store:
        """Return the store in the dataset's directory, or in a temporary one if it has none."""
        from pointsman.store.local.store import LocalStore

        if self._path is None:
            temporary = tempfile.TemporaryDirectory(prefix="pointsman-", ignore_cleanup_errors=True)
            weakref.finalize(self, temporary.cleanup)
            self._path = Path(temporary.name)
        return LocalStore(self._path, about, **self._bm25)

    def follow(self, record: DatasetRecord) -> None:
        """Update what is known about the dataset: another process may have changed or recreated it."""
        with self._opening:
            store = self._store
            if store is not None and record.identity != store.info.identity:
                self._store = None
                if record.indexing_technique in TECHNIQUES:
                    self.indexing_technique = record.indexing_technique  # type: ignore[assignment]  # one of them
            else:
                store = None
            self.description = record.description
        if store is not None:
            store.close()

    def describe(self, description: str) -> None:
        """Change the description; if the dataset does not exist yet, it is created with this one.

        Raises:
            UnmetNeedError: it is an attached collection.
            InputError: it is not a text that can be stored.
        """
        _check_description(description)
        from pointsman.store.attachment import AttachedStore

        if isinstance(self._store, AttachedStore):
            raise UnmetNeedError(
                f"{self.name!r} is attached, and was described when it was attached; detach it, and attach it again "
                f"with description={description!r:.80}"
            )
        if self._backend is not None and self.exists:
            self._backend.describe(self.name, description)
        elif self.exists:
            self._local.collection.describe(description=description)
        self.description = description

    adescribe = async_twin(describe)

    def save(self, folder: str | Path) -> None:
        """Copy the dataset into a new or empty folder, which `load` opens. Safe while the dataset is in use.

        Raises:
            InputError: the folder is not empty.
        """
        self._local.collection.save(Path(folder), bm25=self._bm25)

    asave = async_twin(save)

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | None = None) -> Dataset:
        """Open the dataset in this folder.

        Raises:
            InputError: the folder contains no dataset.
        """
        from pointsman.store.local.collection import read_manifest

        about = read_manifest(Path(folder))
        if about is None:
            raise InputError(f"there is no dataset at {folder}")
        bm25 = about.get("bm25", {})
        return cls(
            about["name"],
            about["description"],
            about["indexing_technique"],
            path=folder,
            embedder=embedder,
            bm25_k1=float(bm25.get("k1", 1.2)),
            bm25_b=float(bm25.get("b", 0.75)),
        )

    def verify(self) -> Verification:
        """Compare documents and indexes."""
        return self._local.verify()

    averify = async_twin(verify)

    def rebuild(self) -> None:
        """Rebuild both indexes from the documents; nothing is embedded again."""
        self._local.rebuild()

    arebuild = async_twin(rebuild)

    def close(self) -> None:
        """Close files and release the writer's lock; the next use opens them again."""
        with self._opening:
            store = self._store
            if self._path is not None or self._backend is not None:
                self._store = None
        if store is not None:  # outside the lock: a writing thread has to finish first, and may need it
            store.close()

    aclose = async_twin(close)

    def close_unless_used(self) -> bool:
        """Close files as `close` does, unless a search, a write or anyone else holds the store; returns whether closed.

        Every use of a store holds a reference to it, and a new one needs the lock that is held here meanwhile.
        """
        if not self._opening.acquire(blocking=False):
            return False  # it is being opened
        try:
            store, self._store = self._store, None
            if store is not None and sys.getrefcount(store) > _REFERENCES:
                self._store = store
                return False
            self.__dict__.pop("_document_embedder", None)  # the cache of vectors is a file too
        finally:
            self._opening.release()
        if store is not None:
            store.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _local(self) -> LocalStore:
        """Return the embedded store.

        Raises:
            UnmetNeedError: the documents are in another kind of store.
        """
        from pointsman.store.attachment import AttachedStore, maintains_itself
        from pointsman.store.local.store import LocalStore

        store = self.make()
        if isinstance(store, AttachedStore):
            raise UnmetNeedError(maintains_itself(self.name))
        if not isinstance(store, LocalStore):
            raise UnmetNeedError(f"dataset {self.name!r} is in a {store.info.kind} store, which maintains itself")
        return store

    def _follow_manifest(self) -> None:
        """Make sure that the open store is the current one."""
        from pointsman.store.backend import LocalBackend

        if self._store is None:
            return
        if isinstance(self._backend, LocalBackend):
            record = self._backend.about(self.name)
            if record is None:
                raise UnknownNameError("dataset", self.name)
            self.follow(record)

    def _add_batch(
        self,
        store: Store,
        documents: list[Document],
        vectors: NDArray[np.float32] | None,
        report: Callable[[int], None],
        *,
        embed: bool,
    ) -> AddResult:
        last = {document.id: row for row, document in enumerate(documents)}
        rows = list(last.values())
        new = [documents[row] for row in rows]
        if self.indexing_technique == "keyword" or (vectors is None and not embed):
            result = store.write(new)
        elif vectors is not None:
            result = store.write(new, vectors if len(rows) == len(documents) else vectors[rows], self.embedder.name)
        else:
            return self._embed_and_write(store, new, len(documents), report)
        report(len(documents))
        return result

    def _embed_and_write(
        self, store: Store, documents: list[Document], count: int, report: Callable[[int], None]
    ) -> AddResult:
        unchanged = store.unchanged(documents)
        fresh = [document for document, same in zip(documents, unchanged, strict=True) if not same]
        report(count - len(fresh))
        result = AddResult(unchanged=len(documents) - len(fresh))
        if fresh:
            self._check_embedder(store)  # before the work, not after it
            vectors = self._document_embedder.embed_documents(
                [document.searchable for document in fresh], on_progress=report
            )
            result += store.write(fresh, vectors, self.embedder.name)
        return result

    def _goes_words_first(self, store: Store) -> bool:
        """Return whether vectors are added after their documents; if so, record it in the store for searches.

        Raises:
            InputError: the dataset holds vectors of another embedder.
        """
        if self.indexing_technique != "hybrid" or not store.info.can(Capability.LATER):
            return False
        self._check_embedder(store)
        if WORDS_FIRST not in store.statistics().notes:
            store.annotate(**{WORDS_FIRST: "1"})
        return True

    def _check_embedder(self, store: Store) -> None:
        """Refuse to mix vectors of different embedders.

        Raises:
            InputError: the dataset holds vectors of another embedder.
        """
        stored_name = store.info.embedder
        if stored_name is not None and stored_name != self.embedder.name:
            raise mixed_embedders(repr(self.name), stored_name, self.embedder.name)

    @cached_property
    def _document_embedder(self) -> CachedEmbedder:
        from pointsman.models import CachedEmbedder

        return self.embedder if isinstance(self.embedder, CachedEmbedder) else CachedEmbedder(self.embedder)

    def _measure_spread(self, store: Store, *, embed: bool) -> None:
        """Estimate the distribution of cosines after the first documents, and again whenever their number has doubled.

        Args:
            store: the dataset's store.
            embed: whether questions may be generated and embedded; otherwise vectors of documents replace them.
        """
        if store.info.embedder is None or not store.info.can(Capability.VECTORS):
            return
        statistics = store.statistics()
        count, notes = store.count() - statistics.vectors_due, statistics.notes
        if not count or count < 2 * int(notes.get(_SPREAD_AT) or 0):
            return
        sample = store.vectors(sample=DRAWN)
        if not len(sample):
            return
        questions = self._likely_queries(store) if embed else store.vectors(sample=LIKELY)
        spread = CosineSpread.measured(questions, sample)
        usual = getattr(self.embedder, "cosine_spread", None)
        if usual or count < _SPREAD_LEAST:  # few documents determine the mean, not the deviation
            # An embedder's own σ works as well as the dataset's (.7262 against .7252 nDCG@10 over 15 collections), and
            # keeps the scores of different datasets, and of a growing one, on one scale.
            spread = CosineSpread(spread.mean, usual or USUAL_SIGMA)
        documents = store.sample(SCRIPT_SAMPLE)
        new = {
            SPREAD_NOTE: json.dumps([spread.mean, spread.sigma]),
            _SPREAD_AT: str(count),
            SCRIPTS_NOTE: json.dumps(_scripts(documents)),
        }
        if embed and any(calibration.embedder == self.embedder.name for calibration in shipped()):
            background = background_of(store, self.embedder, spread.sigma, sample, questions, documents)
            new[BACKGROUND_NOTE] = background.to_json()
        elif BACKGROUND_NOTE in notes:
            new[BACKGROUND_NOTE] = ""  # measured on half as many documents; a search measures it again
        store.annotate(**new)

    def _likely_queries(self, store: Store) -> NDArray[np.float32]:
        """Embed stand-ins for future questions: titles, or first sentences, of evenly spread documents."""
        return self.embedder.embed_queries(first_sentences(store.sample(LIKELY)))


def _references_of_a_variable() -> int:
    """Return what `sys.getrefcount` returns for an object that only one variable of a function refers to."""
    value = object()
    return sys.getrefcount(value)


_REFERENCES: Final = _references_of_a_variable()


def _scripts(documents: Sequence[Document]) -> dict[str, float]:
    """Return the share of documents written at least partly in each script."""
    from pointsman.text import scripts

    shares = [scripts(document.searchable[:1000]) for document in documents]
    return {
        script: sum(share.get(script, 0.0) > _WRITTEN_IN for share in shares) / max(len(shares), 1)
        for script in ("han", "cyrillic", "latin")
    }


def _writer(store: Store) -> AbstractContextManager[None]:
    """Hold the writer lock for several batches, if the store allows only one writer at a time."""
    writer = getattr(store, "writer", None)
    return nullcontext() if writer is None else writer()


def _check_choices(existing: object, embed: object) -> None:
    """Check the options of `Dataset.add`.

    Raises:
        InputError: an option has an unknown value.
    """
    if existing not in EXISTING:
        raise InputError(f"existing is one of {', '.join(EXISTING)}, not {existing!r:.80}")
    if embed not in (True, False, LATER):
        raise InputError(f"embed is True, False or {LATER!r}, not {embed!r:.80}")


def _new_ones(
    store: Store, documents: list[Document], vectors: NDArray[np.float32] | None, existing: Existing
) -> tuple[list[Document], NDArray[np.float32] | None]:
    """Return the documents, and their vectors, whose ids are not in the store.

    Raises:
        InputError: an id is in the store, and ``existing`` is ``"refuse"``.
    """
    existing_ids = store.keys([document.id for document in documents])
    if existing_ids and existing == "refuse":
        raise InputError(f"{len(existing_ids)} of these ids exist already: {', '.join(sorted(existing_ids)[:5])}")
    rows = [row for row, document in enumerate(documents) if document.id not in existing_ids]
    return [documents[row] for row in rows], None if vectors is None else vectors[rows]


def _direction(vector: Sequence[float] | NDArray[np.floating]) -> NDArray[np.float32]:
    """Scale a vector to length 1.

    Raises:
        InputError: it is not a list of finite numbers, or is zero.
    """
    import numpy as np

    try:
        row = np.asarray(vector, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"a vector is a list of numbers: {error}") from error
    largest = float(np.abs(row).max(initial=0.0)) if row.ndim == 1 else 0.0
    if not 0 < largest < np.inf:  # NaN fails both tests
        raise InputError("a vector to search by is one list of finite numbers, not all of them 0")
    row = row / largest  # so that no square overflows or underflows
    return (row / np.linalg.norm(row)).astype(np.float32)


@cache
def _default_engine() -> Engine:
    return Engine()


class DatasetRetriever(BaseRetriever):
    """A dataset as a retriever that accepts documents and can be saved.

    Args:
        dataset: the dataset to search.
        method: ``"auto"``, ``"bm25"``, ``"vector"``, ``"hybrid"``, or a fusion method's name.

    Raises:
        InputError: the dataset lacks what the method needs.
    """

    def __init__(self, dataset: Dataset, method: str = "auto") -> None:
        dataset.lists_for(method)
        self.dataset, self.method = dataset, method

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return up to ``top_k`` hits, best first; a retriever only ranks, and never refuses."""
        depth = check_top_k(top_k) if self.method in {"bm25", "vector"} else max(DEPTH, check_top_k(top_k))
        recipe = Recipe({self.dataset.name: self.dataset}, top_k, self.method, depth=depth)
        return list(search_now(recipe, [Query.of(query)])[0].hits)

    def add_nodes(self, nodes: Sequence[Document]) -> AddResult:
        """Add documents to the dataset."""
        return self.dataset.add(nodes)

    aadd_nodes = async_twin(add_nodes)

    def persist(self, folder: str | Path) -> None:
        """Save the dataset and the method; see `Dataset.save`."""
        folder = Path(folder)
        self.dataset.save(folder / "dataset")
        (folder / "retriever.json").write_text(json.dumps({"method": self.method}), "utf-8")

    apersist = async_twin(persist)

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | None = None) -> DatasetRetriever:
        """Open a saved retriever; it returns the same results.

        Raises:
            InputError: no retriever was saved there.
        """
        folder = Path(folder)
        try:
            method = json.loads((folder / "retriever.json").read_text("utf-8"))["method"]
            if not isinstance(method, str):
                raise TypeError(f"method is a string, not {type(method).__name__}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"no retriever is saved at {folder} ({type(error).__name__}: {error})") from error
        return cls(Dataset.load(folder / "dataset", embedder=embedder), method)


def check_name(name: str) -> None:
    """Check a name; names become directories and are never escaped.

    Raises:
        InputError: the name is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"a dataset's name is 1 to 64 letters, digits, '_', '-' or '.', not {name!r:.80}")
    if len(name.encode()) > _NAME_BYTES:
        raise InputError(f"a dataset's name has at most {_NAME_BYTES} bytes in UTF-8; {name!r:.80} has more")


def _check_description(description: str) -> None:
    """Check that a description can be stored in every backend.

    Raises:
        InputError: it cannot.
    """
    if not isinstance(description, str) or "\0" in description or not storable(description):
        raise InputError(f"a description is a str without NUL and lone surrogates, not {description!r:.80}")


def _batches(documents: Documents, most: int) -> Iterator[list[Document]]:
    """Yield documents in batches of ``most``, or fewer if they are long.

    Raises:
        InputError: ``most`` is not positive, or an item is not a document; its batch is not yielded.
    """
    if most < 1:
        raise InputError(f"batch_size is at least 1, not {most!r}")
    batch: list[Document] = []
    characters = 0
    for document in Document.each(documents):
        batch.append(document)
        characters += len(document.text)
        if len(batch) >= most or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
