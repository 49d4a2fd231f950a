"""Learned sparse vectors (SPLADE and similar models) beside the other lists.

A `SparseEmbedder` encodes the documents; the index is derived from them.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy
from pointsman.store.store_values import WORDS, Capability, StoreQuery
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, ModelError, StoreError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.types import Document, Hit, Provenance, Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.store.base_store import Store

log = logging.getLogger(__name__)

SparseVector = Mapping[int, float]
"""Weights by token id; ids are ints from 0, weights finite and not negative. Absent ids weigh 0."""

_BATCH: Final = 64
_FILTERED: Final = 1000  # documents fetched together to apply a filter
_FORMAT: Final = 1


@runtime_checkable
class SparseEmbedder(Protocol):
    """Encodes texts as sparse vectors, queries and documents differently.

    Formal et al., "SPLADE: Sparse Lexical and Expansion Model for First Stage Ranking", SIGIR 2021,
    https://arxiv.org/abs/2107.05720, is such a model.
    """

    @property
    def name(self) -> str:
        """Identifies model *and* settings: encoded vectors are stored under it."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Sequence[SparseVector]:
        """Return one vector per text."""
        ...

    def encode_documents(self, texts: Sequence[str]) -> Sequence[SparseVector]:
        """Return one vector per text."""
        ...


class SparseIndex:
    """An in-memory inverted index of a dataset's documents, brought up to date before each search.

    Only new and changed documents are read and encoded; from a store that keeps no log of
    changes, all of them are read again once one has changed. With a ``path`` the vectors are saved there and reused
    when the same dataset is opened with the same model.

    Args:
        dataset: the dataset to index.
        model: encodes texts.
        path: a file for the vectors; None: every process reads the documents again.
    """

    def __init__(self, dataset: Source, model: SparseEmbedder, path: str | Path | None = None) -> None:
        self.dataset, self.model, self._name = dataset, model, model.name
        self._path = None if path is None else Path(path)
        self._sequence: int | None = None  # as of which the vectors are known
        self._identity = ""
        self._vectors: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self._postings: _Postings | None = None
        self._guard = threading.Lock()

    def search(self, query: Query, k: int) -> list[tuple[int, float]]:
        """Return at most ``k`` document keys with their inner products, best first; only those above 0.

        Raises:
            ModelError: the model returned something that is not a sparse vector.
        """
        vector, filters = self._encode_texts(self.model.encode_queries, [query.text])[0], query.filters
        ranking = self._current().ranking(*_vector(vector, self._name))
        if filters is None:
            return list(itertools.islice(ranking, k))
        matching: list[tuple[int, float]] = []
        for batch in batched(ranking, max(k, _FILTERED)):
            documents = self.dataset.store.fetch([key for key, _ in batch])
            matching += [
                pair
                for pair, document in zip(batch, documents, strict=True)
                if document is not None and filters.matches(document.fields)
            ]
            if len(matching) >= k:
                break
        return matching[:k]

    def _current(self) -> _Postings:
        store = self.dataset.store
        identity = store.info.identity
        with self._guard:
            if identity != self._identity:
                self._vectors, self._sequence, self._postings, self._identity = {}, None, None, identity
            if self._postings is None and self._path is not None:
                self._load(self._path, identity)
            sequence = store.statistics().sequence
            if sequence is None or sequence != self._sequence:
                if self._sequence is None or sequence is None or self._sequence > sequence:  # as of a later state
                    self._vectors, self._sequence = {}, 0
                if store.info.can(Capability.CHANGES):
                    self._read_changes(store, self._sequence)
                else:
                    self._read_all(store)
                self._postings, self._sequence = None, sequence
                if self._path is not None:
                    self._save(self._path, identity)
            if self._postings is None:
                self._postings = _Postings(self._vectors)
            return self._postings

    def _read_changes(self, store: Any, sequence: int) -> None:
        for changes in store.changes(sequence):
            for change in changes:
                self._vectors.pop(change.key, None)
            pairs = [(change.key, change.document) for change in changes if change.document is not None]
            for batch in batched(pairs, _BATCH):
                self._encode(batch)

    def _read_all(self, store: Store) -> None:
        self._vectors = {}
        for batch in batched(store.documents(), _BATCH):
            keys = store.keys([document.id for document in batch])
            self._encode([(keys[document.id], document) for document in batch if document.id in keys])

    def _encode(self, batch: Sequence[tuple[Any, Document]]) -> None:
        encoded = self._encode_texts(self.model.encode_documents, [document.searchable for _, document in batch])
        for (key, _), vector in zip(batch, encoded, strict=True):
            self._vectors[key] = _vector(vector, self._name)

    def _encode_texts(self, encode: Any, texts: list[str]) -> Sequence[SparseVector]:
        try:
            vectors: Sequence[SparseVector] = encode(texts)
        except Exception as error:
            raise ModelError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if len(vectors) != len(texts):
            raise ModelError(f"{self._name} gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    def _save(self, path: Path, identity: str) -> None:
        import numpy as np

        from pointsman.tools.system.replaced_files import replacing

        header = json.dumps([_FORMAT, self._name, identity, self._sequence])
        keys = list(self._vectors)
        rows = [self._vectors[key] for key in keys]
        try:
            with replacing(path) as file:
                np.savez(
                    file,
                    about=np.array(header),
                    keys=np.array(keys, np.int64),
                    lengths=np.array([len(tokens) for tokens, _ in rows], np.int64),
                    tokens=np.concatenate([tokens for tokens, _ in rows]) if rows else np.empty(0, np.int64),
                    weights=np.concatenate([weights for _, weights in rows]) if rows else np.empty(0, np.float32),
                )
        except (OSError, StoreError) as error:  # a derived file: a full or read-only disk stops no search
            log.warning("%s cannot be written (%s); the sparse vectors are read again by every process", path, error)

    def _load(self, path: Path, identity: str) -> None:
        import numpy as np

        try:
            with np.load(path, allow_pickle=False) as file:
                form, model, owner, sequence = json.loads(str(file["about"]))
                if (form, model, owner) != (_FORMAT, self._name, identity):
                    log.info("%s holds vectors of another dataset or model; encoding them again", path)
                    return
                keys, lengths = file["keys"].tolist(), file["lengths"]
                tokens, weights = file["tokens"].astype(np.int64), file["weights"].astype(np.float32)
            ends = np.cumsum(lengths)
            if (
                len(lengths) != len(keys)
                or (ends[-1] if len(ends) else 0) != len(tokens)
                or len(tokens) != len(weights)
            ):
                raise ValueError("its parts do not fit together")
            pairs = zip(np.split(tokens, ends[:-1]), np.split(weights, ends[:-1]), strict=True) if keys else ()
            self._vectors, self._sequence = dict(zip(keys, pairs, strict=True)), int(sequence)
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001  (a derived file: whatever is wrong with it, it can be rebuilt)
            log.warning("%s cannot be read, encoding the documents again: %s: %s", path, type(error).__name__, error)


class _Postings:
    """Weights by token over the rows of ``keys``."""

    def __init__(self, vectors: Mapping[int, tuple[NDArray[np.int64], NDArray[np.float32]]]) -> None:
        import numpy as np

        self.keys = np.array(sorted(vectors), None if vectors else np.int64)  # a server's keys may be texts
        vectors_by_row = [vectors[key] for key in self.keys.tolist()]
        tokens = np.concatenate([ids for ids, _ in vectors_by_row]) if vectors_by_row else np.empty(0, np.int64)
        weights = np.concatenate([ids for _, ids in vectors_by_row]) if vectors_by_row else np.empty(0, np.float32)
        rows = np.repeat(np.arange(len(vectors_by_row)), [len(ids) for ids, _ in vectors_by_row])
        order = np.argsort(tokens, kind="stable")
        self._tokens, starts = np.unique(tokens[order], return_index=True)
        self._ends = np.append(starts, len(tokens))
        self._rows, self._weights = rows[order], weights[order]

    def ranking(self, tokens: NDArray[np.int64], weights: NDArray[np.float32]) -> Iterator[tuple[Any, float]]:
        """Return the keys of all documents with an inner product above 0, best first; ties by key."""
        import numpy as np

        scores = np.zeros(len(self.keys), np.float32)
        indices = np.searchsorted(self._tokens, tokens)
        for token, index, weight in zip(tokens.tolist(), indices.tolist(), weights.tolist(), strict=True):
            if index < len(self._tokens) and self._tokens[index] == token:
                postings = slice(self._ends[index], self._ends[index + 1])
                scores[self._rows[postings]] += weight * self._weights[postings]  # a document occurs once per token
        rows = np.flatnonzero(scores)
        best = rows[np.argsort(-scores[rows], kind="stable")]  # ties by key: rows are in key order
        return zip(self.keys[best].tolist(), scores[best].tolist(), strict=True)


def _vector(vector: SparseVector, model: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return token ids, ascending, and their weights.

    Raises:
        ModelError: an id or a weight is invalid.
    """
    import numpy as np

    if not isinstance(vector, Mapping):
        raise ModelError(f"{model} gave {type(vector).__name__}, not weights by token id")
    for token, weight in vector.items():
        if not isinstance(token, int | np.integer) or token < 0 or not math.isfinite(weight) or weight < 0:
            raise ModelError(f"{model} gave the weight {weight!r:.40} for the token {token!r:.40}")
    pairs = sorted((int(token), float(weight)) for token, weight in vector.items() if weight > 0)
    return np.array([token for token, _ in pairs], np.int64), np.array([weight for _, weight in pairs], np.float32)


class SparseRetriever(BaseRetriever):
    """Ranks the documents of a source by the inner product of sparse vectors.

    Args:
        dataset: the source to search.
        model: encodes texts; None: use the BM25 weights, also a sparse vector, directly from the keyword list.
        path: see `SparseIndex`.
    """

    name = "sparse"

    def __init__(self, dataset: Source, model: SparseEmbedder | None, path: str | Path | None = None) -> None:
        self.dataset = dataset
        self._index = None if model is None else SparseIndex(dataset, model, path)

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first.

        Raises:
            ModelError: the model failed.
        """
        query, store = Query.of(query), self.dataset.store
        if self._index is not None:
            ranking = self._index.search(query, check_top_k(top_k))
        else:
            query_of_store = StoreQuery(query.text, None, check_top_k(top_k), query.filters)
            ranking = [(key, score or 0.0) for key, score in store.search([query_of_store])[0].rankings.get(WORDS, ())]
        return sparse_hits(self.dataset, ranking)


def sparse_hits(dataset: Source, ranking: Sequence[tuple[Any, float]]) -> list[Hit]:
    """Return the hits of a ranking of keys by sparse vectors."""
    documents = dataset.store.fetch([key for key, _ in ranking])
    return [
        Hit(document, score, dataset.name, (Provenance("sparse", rank, score),))
        for rank, ((_, score), document) in enumerate(zip(ranking, documents, strict=True), 1)
        if document is not None
    ]


class SparseStrategy(BaseRetrievalStrategy):
    """Adds a list from sparse vectors to each dataset's hybrid ranking, fused by rank.

    With a model, documents are encoded at the first search, and changed ones at the next; pass ``folder`` to keep the
    vectors. Without a model the BM25 weights are the
    sparse vectors, and the plan says so.
    """

    name: ClassVar[str] = "sparse"
    needs_words: ClassVar[bool] = True

    def __init__(
        self, *sources: Any, model: SparseEmbedder | None = None, folder: str | Path | None = None, **options: Any
    ) -> None:
        """Choose sources and model; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched: at least one dataset, or without a model something that searches words.
            model: encodes texts.
            folder: where vectors are stored, one file per dataset; None: in memory only.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: the model cannot encode, there is no dataset, or an option is invalid.
        """
        if model is not None and not isinstance(model, SparseEmbedder):
            raise InputError(f"a sparse model has name, encode_queries and encode_documents; {model!r:.80} has not")
        self.model, self._folder = model, None if folder is None else Path(folder)
        self.detail = (
            "" if model is not None else "no sparse model was given; the weights of BM25 are the sparse vectors"
        )
        super().__init__(*sources, **options)

    def lack(self, sources: Sequence[Any]) -> str | None:
        """See `BaseRetrievalStrategy`; with a model, no keyword index is needed."""
        return super().lack(sources) if self.model is None else None

    def searchables(self, sources: Sequence[Any]) -> Sequence[Any]:
        """The sources, and the sparse list of each dataset; a retriever of words is a sparse list itself."""
        words = self.model is None and any((getattr(source, "lists", None) or (False,))[0] for source in sources)
        if not words and not any(isinstance(source, Source) for source in sources):
            raise InputError("SparseStrategy encodes the documents of datasets; give it at least one dataset")
        datasets = [source for source in sources if isinstance(source, Source) and self._can(source)]
        return [*sources, *(SparseRetriever(dataset, self.model, self._path(dataset)) for dataset in datasets)]

    def _can(self, source: Source) -> bool:
        return self.model is not None or source.lists_for("auto")[0]

    def _path(self, source: Source) -> Path | None:
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{source.name}.npz"
