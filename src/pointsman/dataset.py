"""A dataset: a collection on disk, the embedder that serves it, and the ways to search it."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self

from pointsman._batched import batched
from pointsman.errors import InputError, ModelError, UnknownNameError, UnmetNeedError
from pointsman.retrieval.base import BaseRetriever
from pointsman.retrieval.branches import DatasetBranch, hits_of
from pointsman.retrieval.calibration import CosineSpread
from pointsman.retrieval.policy import Looking, span_of
from pointsman.retrieval.pool import DEPTH, LISTS, Pool, gather, with_feedback
from pointsman.retrieval.retrievers import checked
from pointsman.retrieval.workflow import RetrievalWorkflow, method_for
from pointsman.types import AddResult, Document, Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.models import CachedEmbedder
    from pointsman.protocols import Embedder
    from pointsman.store.local.collection import Collection, Verification
    from pointsman.store.local.vectors import VectorIndex
    from pointsman.store.prepared import Prepared
    from pointsman.types import Hit, RetrievalContext

IndexingTechnique = Literal["vector", "keyword", "hybrid"]
_TECHNIQUES = ("vector", "keyword", "hybrid")
_NAME = re.compile(r"(?!\.)[\w.\-]{1,64}(?<!\.)", re.UNICODE)
_BATCH = 512  # documents embedded and committed together; what is committed is safe even if a long add is cut short
_USUAL_SIGMA = 0.05  # until there are documents enough to tell, where the embedder doesn't say
_PATIENCE = 10.0  # seconds; an embedder takes milliseconds for a query, and some seconds to load
_SCRIPT_SAMPLE = 200  # documents that tell which scripts a dataset is written in
_WRITTEN_IN = 0.2  # a script that has this share of a document's letters is one that it is written in
_SPREAD_QUERIES, _SPREAD_DOCUMENTS, _SPREAD_LEAST = 32, 1000, 64


def _rows_for(texts: Sequence[str], rows: Any, dimensions: int) -> NDArray[np.float32]:
    """The rows, if there is one usable vector for each text; every wait for one of them hangs on that.

    Raises:
        ModelError: there is not.
    """
    import numpy as np

    wanted = (len(texts), dimensions)
    if not isinstance(rows, np.ndarray) or rows.shape != wanted:
        told = f"an array of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ModelError(f"the embedder gave {told} for {len(texts)} texts; an array of shape {wanted} is wanted")
    if not np.isfinite(rows).all():
        raise ModelError("the embedder gave a vector with a number that is not finite")
    for text, row in zip(texts, rows, strict=True):
        if not row.any() and text.strip():
            raise ModelError(f"the embedder gave a vector of zeros for {text!r:.80}")
    return rows


class _Embedding:
    """A query's vector, or the error in its place, once it is ``finished``; no lock is needed to see whether it is."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.vector: NDArray[np.float32] | None = None
        self.error: BaseException | None = None
        self._until, self._process = monotonic() + _PATIENCE, os.getpid()

    def left(self) -> float:
        """Seconds for which it is still waited for; the thread that works on it is not there in a forked child."""
        return max(0.0, self._until - monotonic()) if self._process == os.getpid() else 0.0


class QueryVectors:
    """Embeds queries, each once: the latest are remembered, and who asks for one that is on its way waits for it.

    One that is on its way for ten seconds, or was in the process that this one was forked from, is begun anew.

    Args:
        embedder: gives the embedder; called when the first query comes.
        size: how many are remembered.
    """

    def __init__(self, embedder: Callable[[], Embedder], size: int = 1024) -> None:
        self._embedder, self._size = embedder, size
        self._known: dict[str, _Embedding] = {}
        self._lock = threading.Lock()
        _all_query_vectors.add(self)

    def __call__(self, text: str) -> NDArray[np.float32]:
        """The query's vector, shape ``(dimensions,)``."""
        self.prepare([text])
        return self._wait(text)

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed those that are not known, in one batch.

        Raises:
            ModelError: the embedder gave something else than one vector for each.
            Exception: whatever the embedder raises; nothing is remembered in either case.
        """
        mine: dict[str, _Embedding] = {}
        with self._lock:
            for text in texts:
                known = self._known.pop(text, None)
                if known is None or not (known.finished.is_set() or known.left()):
                    known = mine[text] = _Embedding()
                self._known[text] = known  # at the end: the least lately used are in front
            while len(self._known) > max(self._size, len(texts)):
                del self._known[next(iter(self._known))]
        if not mine:
            return
        try:
            for one, vector in zip(mine.values(), self._embed(list(mine)), strict=True):
                one.vector = vector
        except BaseException as error:
            with self._lock:
                for text, one in mine.items():
                    one.error = error
                    if self._known.get(text) is one:  # and not begun anew by somebody else
                        del self._known[text]
            raise
        finally:
            for one in mine.values():
                one.finished.set()

    def unlock(self) -> None:
        """Take a new lock; for a process in which nobody can hold the old one any more."""
        self._lock = threading.Lock()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        embedder = self._embedder()
        return _rows_for(texts, embedder.embed_queries(texts), embedder.dimensions)

    def _wait(self, text: str) -> NDArray[np.float32]:
        with self._lock:
            known = self._known.get(text)
        if known is not None and (known.finished.is_set() or known.finished.wait(known.left())):
            if known.error is not None:
                raise known.error
            if known.vector is not None:
                return known.vector
        vector: NDArray[np.float32] = self._embed([text])[0]  # forgotten, failed or hanging meanwhile
        return vector


_all_query_vectors: weakref.WeakSet[QueryVectors] = weakref.WeakSet()


def _unlock_query_vectors() -> None:
    """In a forked child a thread that is not there may hold the locks."""
    for one in _all_query_vectors:
        one.unlock()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_unlock_query_vectors)


class Dataset:
    """Documents under a name, with their own stores and settings (R1).

    Nothing is opened before it is needed. Without a ``path`` the documents live in a temporary directory that goes
    with the object.

    Args:
        name: 1 to 64 letters, digits, ``_``, ``-`` or ``.``; any script.
        description: what is in it, for those who choose where to look.
        indexing_technique: ``"vector"``, ``"keyword"`` (full text) or ``"hybrid"``; a keyword dataset embeds nothing.
        path: its directory.
        embedder: the default embedder unless given.
        bm25_k1: term frequency saturation of BM25.
        bm25_b: length normalisation of BM25.
        query_vectors: embeds queries, by the same embedder; datasets that are searched together share one, so that a
            query is embedded once.

    Raises:
        InputError: name or technique cannot be used.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        indexing_technique: IndexingTechnique = "hybrid",
        *,
        path: str | Path | None = None,
        embedder: Embedder | None = None,
        bm25_k1: float = 1.2,
        bm25_b: float = 0.75,
        query_vectors: QueryVectors | None = None,
    ) -> None:
        check_name(name)
        if indexing_technique not in _TECHNIQUES:
            raise InputError(f"indexing_technique is one of {', '.join(_TECHNIQUES)}, not {indexing_technique!r}")
        self.name, self.description, self.indexing_technique = name, description, indexing_technique
        self._path = Path(path) if path is not None else None
        self._given_embedder = embedder
        self._bm25 = {"k1": bm25_k1, "b": bm25_b}
        self._opened: Collection | None = None
        self._opening = threading.RLock()
        self.query_vectors = query_vectors or QueryVectors(lambda: self.embedder)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, indexing_technique={self.indexing_technique!r}, path={str(self._path)!r})"

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        *,
        vectors: NDArray[np.float32] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> AddResult:
        """Add documents, or update those whose id is known; what is stored just so already costs nothing.

        Documents are committed in batches. When this returns all of them are durable and searchable; if it is cut
        short, the batches done are. An id given twice counts once, the last time.

        Args:
            documents: documents, or mappings with ``id``, ``text`` and optionally ``metadata``.
            vectors: shape ``(number of documents, dimensions)``, by this dataset's embedder, brought to length 1;
                embedded here unless given.
            on_progress: called with the number of documents done since the last call.

        Raises:
            InputError: a document or the vectors cannot be used; its batch and those after it are not written.
            LockedError: another process is writing to the dataset.
        """
        told = on_progress or (lambda _: None)
        total, position = AddResult(), 0
        stores = self._collection
        with stores.writer():
            for batch in batched(documents, _BATCH if vectors is None else 20 * _BATCH):
                rows = None if vectors is None else vectors[position : position + len(batch)]
                if vectors is not None and len(vectors) < position + len(batch):
                    raise InputError(f"{len(vectors)} vectors for more documents; give one row for each")
                total += self._add_batch(stores, [Document.of(item) for item in batch], rows, told)
                position += len(batch)
            if vectors is not None and len(vectors) != position:
                raise InputError(f"{len(vectors)} vectors for {position} documents; give one row for each")
        self._measure_spread()
        return total

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """Be the writer within the block only, so that other processes may write after it.

        Without it a process that has written stays the writer until ``close``. Blocks may be nested, and threads may be
        inside together; the end of the last one releases the lock, and readers stay open. Processes that wait take
        turns, so a long import that has a block for every batch lets others in.

        Args:
            wait: seconds to wait for another process.

        Raises:
            LockedError: another process is the writer, and still is after that time.
            UnknownNameError: another process has deleted the dataset.
        """
        self._follow_manifest()
        with self._collection.writing(wait):
            yield

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete documents by id; unknown ids are passed over. Returns how many there were."""
        return self._collection.delete([ids] if isinstance(ids, str) else list(ids))

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """The document of this id, if there is one."""
        return self._collection.truth.get([id])[0]

    def ids(self, *, source: str | None = None) -> list[str]:
        """All ids, or those of documents whose metadata has this ``source``."""
        return self._collection.truth.ids(source=source)

    def page(self, after: int = 0, limit: int = 100) -> tuple[list[Document], int | None]:
        """At most ``limit`` documents in the order of first arrival, and where the next page begins; None at the end.

        Args:
            after: what the page before said; 0 for the first.
            limit: from 1 up.

        Raises:
            InputError: a number is out of range.
        """
        if not 0 <= after < 2**63 or not 1 <= limit < 2**31:
            raise InputError(
                f"a page begins after 0 or what the page before said, and has 1 or more, not {after}, {limit}"
            )
        return self._collection.truth.page(after, limit)

    def __iter__(self) -> Iterator[Document]:
        return self._collection.truth.documents()

    def __len__(self) -> int:
        return len(self._collection.truth)

    def __bool__(self) -> bool:
        return True  # an empty dataset is a dataset

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def retriever(self, method: str = "auto") -> DatasetRetriever:
        """A retriever over this dataset alone: ``"bm25"``, ``"vector"``, ``"hybrid"`` or a fusion method's name.

        Raises:
            InputError: the dataset does not keep what the method needs.
        """
        return DatasetRetriever(self, method)

    def search(self, query: str | Query, k: int = 5, **options: Any) -> RetrievalContext:
        """Search this dataset alone: `RetrievalWorkflow.search` as it is by default, with its options."""
        return RetrievalWorkflow().search(query, [self], k, **options)

    async def asearch(self, query: str | Query, k: int = 5, **options: Any) -> RetrievalContext:
        """The same, awaited."""
        return await RetrievalWorkflow().asearch(query, [self], k, **options)

    def candidates(
        self,
        query: Query,
        method: str = "auto",
        depth: int = DEPTH,
        *,
        vector: NDArray[np.float32] | None = None,
        looking: Looking | None = None,
    ) -> Pool[int]:
        """What the lists that ``method`` needs have to offer, with all scores; keys are the dataset's own.

        Args:
            query: what to look for.
            method: see `lists_for`.
            depth: candidates a list.
            vector: to compare with, instead of the query's own.
            looking: what to look up besides.
        """
        words, near = self.lists_for(method)
        stores = self._collection
        stores.refresh()
        vectors = self._vectors() if near and not stores.truth.is_empty() else None
        if vectors is None:
            vector = None
        elif vector is None:
            vector = self.query_vectors(query.text)
        asked = self._without_absent_scripts(query.text, looking.absent_script) if looking else query.text
        pool = gather(asked, vector, stores.keyword if words else None, vectors, filters=query.filters, depth=depth)
        if looking is None or not looking.feedback or not words or vectors is None or vector is None:
            return pool
        spread = self.cosine_spread
        if span_of(pool, spread) >= looking.feedback_below:
            return pool
        first = [key for key, _ in pool.fused("hybrid", spread).ranking[: looking.feedback_top]]
        rows = vectors.of(first)
        if not len(rows):
            return pool
        moved = vector + looking.feedback * rows.mean(axis=0)
        return with_feedback(pool, asked, moved, stores.keyword, vectors, filters=query.filters, depth=depth)

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Documents for keys out of ``candidates``; None where one has been deleted since."""
        return self._collection.truth.fetch(keys)

    def scores(
        self, query: Query, source: str, keys: Sequence[int], *, vector: NDArray[np.float32] | None = None
    ) -> dict[int, float]:
        """What the list ``"bm25"`` or ``"vector"`` scores documents by keys; those without a vector are left out."""
        if not keys:
            return {}
        if source == "bm25":
            found = self._collection.keyword.score(query.text, keys)
        else:
            found = self._vectors().score(self.query_vectors(query.text) if vector is None else vector, keys)
        return {key: score for key, score in zip(keys, found, strict=True) if not math.isnan(score)}

    def passage_vector(self, text: str) -> NDArray[np.float32]:
        """The vector of a text that reads like a document, shape ``(dimensions,)``."""
        vector: NDArray[np.float32] = self.embedder.embed_documents([text])[0]
        return vector

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """The keys that ``candidates`` has for the documents of these ids, of those that there are."""
        return self._collection.truth.keys(ids)

    def lists_for(self, method: str) -> tuple[bool, bool]:
        """Whether a method wants keyword and vector search here; ``auto`` takes what the dataset keeps.

        Raises:
            UnknownNameError: there is no such method.
            InputError: the dataset does not keep what it needs.
        """
        if method == "auto":
            return self._kept
        if not self.keeps(method):
            raise UnmetNeedError(
                f"dataset {self.name!r} is indexed for {self.indexing_technique!r} search only, not for {method!r}"
            )
        return LISTS[method]

    def keeps(self, method: str) -> bool:
        """Whether the dataset keeps every list that a method needs.

        Raises:
            UnknownNameError: there is no such method.
        """
        if method not in LISTS:
            raise UnknownNameError("strategy", method, ("auto", *LISTS))
        return all(kept for kept, wanted in zip(self._kept, LISTS[method], strict=True) if wanted)

    @property
    def embedder(self) -> Embedder:
        """What turns this dataset's texts into vectors; loaded when first asked for."""
        if self._given_embedder is None:
            from pointsman.models import default_embedder

            self._given_embedder = default_embedder()
        return self._given_embedder

    @property
    def cosine_spread(self) -> CosineSpread:
        """Where cosines between queries and random documents lie here: the scale of the calibrated sum."""
        stored = self._collection.truth.meta("cosine_spread")
        if stored:
            return CosineSpread(*json.loads(stored))
        return CosineSpread(0.0, getattr(self.embedder, "cosine_spread", None) or _USUAL_SIGMA)

    # ── keeping ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def stores(self) -> Collection:
        """The stores underneath: truth, keyword index, vector index, columns."""
        return self._collection

    def follow(self, about: Mapping[str, Any]) -> None:
        """Take over what the manifest says by now: another process may have described the dataset, or made it anew.

        Args:
            about: the manifest, from `pointsman.store.local.collection.read_manifest`.
        """
        with self._opening:
            opened = self._opened
            if opened is not None and about.get("identity") != opened.truth.identity:
                self._opened = None
                self.indexing_technique = about.get("indexing_technique", self.indexing_technique)
            else:
                opened = None
            self.description = about.get("description", self.description)
        if opened is not None:
            opened.close()

    def describe(self, description: str) -> None:
        """Change the description."""
        self._collection.describe(description=description)
        self.description = description

    def save(self, folder: str | Path) -> None:
        """Write a copy of the dataset into a folder that is new or empty; `load` opens it. Safe while it is in use.

        Raises:
            InputError: there is something in the folder.
        """
        self._collection.save(Path(folder), bm25=self._bm25)

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | None = None) -> Dataset:
        """The dataset that lives in this folder.

        Raises:
            InputError: there is none.
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
        """Compare the three stores."""
        return self._collection.verify()

    def rebuild(self) -> None:
        """Build both indexes anew from the documents; nothing is embedded again."""
        self._collection.rebuild()

    def close(self) -> None:
        """Let go of files and of the writer's lock; the next use opens it again."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:  # a thread that is writing ends first; it must not find the way to what it writes barred
            opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _kept(self) -> tuple[bool, bool]:
        """Whether words and vectors are indexed."""
        return self.indexing_technique != "vector", self.indexing_technique != "keyword"

    @property
    def _collection(self) -> Collection:
        with self._opening:
            if self._opened is None:
                from pointsman.store.local.collection import Collection

                if self._path is None:
                    temporary = tempfile.TemporaryDirectory(prefix="pointsman-", ignore_cleanup_errors=True)
                    weakref.finalize(self, temporary.cleanup)
                    self._path = Path(temporary.name)
                about = {
                    "name": self.name,
                    "description": self.description,
                    "indexing_technique": self.indexing_technique,
                }
                self._opened = Collection(self._path, about=about, **self._bm25)
            return self._opened

    def _follow_manifest(self) -> None:
        """See that what is open is what is on disk."""
        if self._opened is None or self._path is None:
            return
        from pointsman.store.local.collection import read_manifest

        about = read_manifest(self._path)
        if about is None:
            raise UnknownNameError("dataset", self.name)
        self.follow(about)

    def _add_batch(
        self,
        stores: Collection,
        documents: list[Document],
        vectors: NDArray[np.float32] | None,
        told: Callable[[int], None],
    ) -> AddResult:
        from pointsman.store.prepared import prepare

        last = {document.id: row for row, document in enumerate(documents)}
        rows = list(last.values())
        prepared = [prepare(documents[row]) for row in rows]
        if self.indexing_technique == "keyword":
            result = stores.write(prepared, None)
        elif vectors is not None:
            if len(rows) < len(documents):
                vectors = vectors[rows]
            result = stores.write(prepared, vectors, self.embedder.name)
        else:
            return self._embed_and_write(stores, prepared, len(documents), told)
        told(len(documents))
        return result

    def _embed_and_write(
        self, stores: Collection, prepared: list[Prepared], count: int, told: Callable[[int], None]
    ) -> AddResult:
        unchanged = stores.truth.unchanged(prepared)
        fresh = [item for item, same in zip(prepared, unchanged, strict=True) if not same]
        told(count - len(fresh))
        result = AddResult(unchanged=len(prepared) - len(fresh))
        if fresh:
            stores.check_embedder(self.embedder.name)  # before the work, not after it
            texts = [item.document.searchable for item in fresh]
            vectors = self._document_embedder.embed_documents(texts, on_progress=told)
            result += stores.write(fresh, vectors, self.embedder.name)
        return result

    @cached_property
    def _document_embedder(self) -> CachedEmbedder:
        from pointsman.models import CachedEmbedder

        return self.embedder if isinstance(self.embedder, CachedEmbedder) else CachedEmbedder(self.embedder)

    def _without_absent_scripts(self, text: str, least: float) -> str:
        """A text without the words of scripts that hardly any document is written in."""
        if text.isascii():  # nothing to leave out, so nothing to look up
            return text
        from pointsman.text import without_scripts

        stored = self._collection.truth.meta("scripts")
        if not stored:
            return text
        shares = json.loads(stored)
        absent = [script for script in ("han", "cyrillic") if shares.get(script, 0.0) < least]
        return without_scripts(text, absent) if absent else text

    def _vectors(self) -> VectorIndex:
        vectors, stored = self._collection.vectors, self._collection.embedder
        if vectors is None:
            raise UnmetNeedError(f"dataset {self.name!r} holds no vectors yet; add documents first")
        if stored != self.embedder.name:
            raise UnmetNeedError(
                f"dataset {self.name!r} holds vectors of {stored!r}, but is opened with {self.embedder.name!r}; "
                "open it with that embedder, or index the documents again into a new dataset"
            )
        return vectors

    def _measure_spread(self) -> None:
        """Estimate where cosines lie after the first documents, and again whenever they have doubled."""
        stores = self._collection
        if stores.vectors is None:
            return
        count = len(stores.vectors)
        if not count or count < 2 * int(stores.truth.meta("cosine_spread_at") or 0):
            return
        ids = self.ids()
        spread = CosineSpread.measured(self._likely_queries(ids), stores.vectors.vectors(_SPREAD_DOCUMENTS))
        known = getattr(self.embedder, "cosine_spread", None)
        if known or count < _SPREAD_LEAST:  # few documents tell the mean, not the deviation
            # An embedder's own σ does as well as the dataset's (.7262 against .7252 nDCG@10 over 15 collections), and
            # keeps the scores of different datasets, and of one that grows, on one scale.
            spread = CosineSpread(spread.mean, known or _USUAL_SIGMA)
        stores.truth.set_meta(
            cosine_spread=json.dumps([spread.mean, spread.sigma]),
            cosine_spread_at=str(count),
            scripts=json.dumps(self._scripts(ids)),
        )

    def _scripts(self, ids: Sequence[str]) -> dict[str, float]:
        """The share of documents, of a sample, that are written in each script at least in part."""
        from pointsman.text import scripts

        found = [scripts(document.searchable[:1000]) for document in self._spread_evenly(ids, _SCRIPT_SAMPLE)]
        return {
            script: sum(share.get(script, 0.0) > _WRITTEN_IN for share in found) / max(len(found), 1)
            for script in ("han", "cyrillic", "latin")
        }

    def _likely_queries(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """Stand-ins for questions nobody has asked yet: titles, or first sentences, of documents spread evenly."""
        from pointsman.text import sentences

        texts = []
        for document in self._spread_evenly(ids, _SPREAD_QUERIES):
            bounds = sentences(document.text[:2000])
            texts.append(document.text[slice(*bounds[0])] if bounds else document.title)
        return self.embedder.embed_queries(texts)

    def _spread_evenly(self, ids: Sequence[str], count: int) -> list[Document]:
        """At most ``count`` of these documents, spread evenly over the order in which they came."""
        chosen = ids[:: max(1, len(ids) // count)][:count]
        return [document for document in self._collection.truth.get(chosen) if document is not None]


class DatasetRetriever(BaseRetriever):
    """A dataset as a retriever, one that takes documents and can be saved (F4).

    Args:
        dataset: what it finds documents in.
        method: ``"auto"``, ``"bm25"``, ``"vector"``, ``"hybrid"``, or a fusion method's name.

    Raises:
        InputError: the dataset does not keep what the method needs.
    """

    def __init__(self, dataset: Dataset, method: str = "auto") -> None:
        dataset.lists_for(method)
        self.dataset, self.method = dataset, method

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        query = Query.of(query)
        depth = checked(top_k) if self.method in {"bm25", "vector"} else max(DEPTH, checked(top_k))
        found = DatasetBranch(self.dataset, self.method).look(query, depth).sync()
        method, _ = method_for([self.dataset], self.method)
        spread = self.dataset.cosine_spread if method == "hybrid" else None
        return hits_of(found, found.pool.fused(method, spread), top_k)

    def add_nodes(self, nodes: Sequence[Document]) -> AddResult:
        """Add documents to the dataset."""
        return self.dataset.add(nodes)

    def persist(self, folder: str | Path) -> None:
        """Save the dataset and the method; see `Dataset.save`."""
        folder = Path(folder)
        self.dataset.save(folder / "dataset")
        (folder / "retriever.json").write_text(json.dumps({"method": self.method}), "utf-8")

    @classmethod
    def load(cls, folder: str | Path, *, embedder: Embedder | None = None) -> DatasetRetriever:
        """The retriever that was saved there; it finds the same.

        Raises:
            InputError: none was saved there.
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
    """Names become directories: they are checked, never escaped.

    Raises:
        InputError: it cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"a dataset's name is 1 to 64 letters, digits, '_', '-' or '.', not {name!r:.80}")
