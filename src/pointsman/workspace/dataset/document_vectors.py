"""The vectors of a dataset: embedding documents that lack one, and measuring where cosines lie."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Literal

from pointsman.embedders.base_embedder import mixed_embedders
from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.judge.background import DRAWN, LIKELY, SCRIPT_SAMPLE, background_of, first_sentences
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.run.reading import BACKGROUND_NOTE, USUAL_SIGMA
from pointsman.retrieval.run.source import SCRIPTS_NOTE
from pointsman.store.store_values import SPREAD_NOTE, WORDS_FIRST, Capability
from pointsman.tools.batching import batched_by
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.sync_and_async import async_twin
from pointsman.values.types import AddResult, Document
from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset
from pointsman.workspace.dataset.truncated_documents import count_truncated, note_name, note_truncated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.embedders import CachedEmbedder
    from pointsman.store.base_store import Store
    from pointsman.values.types import Documents

LATER: Final = "later"
Embed = bool | Literal["later"]
"""Whether documents are embedded when they are added."""

Embedding = Callable[[Iterable[list[str]]], Iterable["NDArray[np.float32]"]]
"""Turns batches of texts into their vectors, in order; it may take several batches before it returns the first."""

BATCH = 512  # documents embedded and committed together; committed batches survive an interrupted add
_LOT_ELSEWHERE = 16_384  # the same where others embed: at the end of each lot, some of them wait
SOON = 64  # the same while searches wait for vectors: two seconds of embedding
PATIENCE = 60.0  # seconds to wait for another process that is writing
_WRITTEN_IN = 0.2  # a document is written in every script that has at least this share of its letters
_BATCH_CHARACTERS = 32_000_000  # a transaction, and the memory to embed it, must fit into RAM
_SPREAD_LEAST = 64
_SPREAD_AT = "cosine_spread_at"
_SPREAD_GROWTH = 1.1  # when all documents have their vectors


class EmbeddedDataset(StoredDataset):
    """A dataset with vectors."""

    def embed(
        self,
        limit: int | None = None,
        *,
        on_progress: Callable[[int], None] | None = None,
        embedding: Embedding | None = None,
    ) -> int:
        """Embed documents that have no vector: those added with ``embed="later"`` or ``embed=False``.

        Vectors are committed in batches of 64, so an interrupted call can be resumed. Others may read and write
        meanwhile; documents changed in between are embedded in a later round. Several processes can share the work,
        since each picks documents at random.

        Args:
            limit: maximum number of documents; all by default.
            on_progress: called with the number of documents embedded since the last call.
            embedding: embeds in place of this process, such as a cluster.

        Returns:
            The number of documents that received a vector.

        Raises:
            InputError: the dataset holds vectors of another embedder.
            LockedError: another process has been writing to the dataset for a minute.
            ModelError: the embedder failed.
        """
        store, total, stuck = self.store, 0, set[str]()
        if self.indexing_technique == "keyword" or self.holds_images or not store.info.can(Capability.LATER):
            return 0  # pictures are stored only with their vectors
        batch_size = BATCH if embedding is None else _LOT_ELSEWHERE
        embed = embedding or partial(map, self._document_embedder.embed_documents)
        while (limit is None or total < limit) and (documents := store.bare(batch_size)):
            self._check_embedder(store)
            if embedding is None:
                random.shuffle(documents)
            count = 0
            batches = list(in_batches(documents[: None if limit is None else limit - total], SOON))
            texts = ([document.searchable for document in batch] for batch in batches)
            for batch, vectors in zip(batches, embed(texts), strict=True):
                if vectors.shape != (shape := (len(batch), self.embedder.dimensions)):
                    raise ModelError(f"vectors of shape {vectors.shape} in place of {shape}; nothing of them is stored")
                self._note_truncated(store, batch)
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
        if total and not store.statistics().vectors_due:
            self._measure_spread(store, embed=True, growth=_SPREAD_GROWTH)
        self._embedded()
        return total

    aembed = async_twin(embed)

    @property
    def vectors_due(self) -> int:
        """The number of documents added with ``embed="later"`` that still lack a vector and are found only by words."""
        return self.store.statistics().vectors_due

    @property
    def truncations(self) -> int | None:
        """The number of documents that are longer than the embedder reads: their vectors hold their beginning only.

        Those embedded here by an embedder that knows its limit; of more than 1,000, it is a lower bound. None in a view
        and in a store that is only read, where it is not known.
        """
        is_known = not self.exists or (self.store.info.can(Capability.WRITE) and not self.is_view)
        return count_truncated(self.store) if is_known else None

    def _note_truncated(self, store: Store, documents: Sequence[Document]) -> AddResult:
        """Note which documents that are about to be written are longer than the embedder reads; return their number."""
        return AddResult(truncations=note_truncated(store, self._document_embedder, documents, self._note_name))

    @cached_property
    def _note_name(self) -> str:
        return note_name()

    def _embed_and_write(
        self, store: Store, documents: list[Document], count: int, report: Callable[[int], None], *, anew: bool
    ) -> AddResult:
        is_unchanged = [False] * len(documents) if anew else store.unchanged(documents)
        fresh = [document for document, same in zip(documents, is_unchanged, strict=True) if not same]
        report(count - len(fresh))
        result = AddResult(unchanged=len(documents) - len(fresh))
        if fresh:
            self._check_embedder(store)  # before the work, not after it
            vectors = self._vectors_of([document.searchable for document in fresh], report, anew=anew)
            result += self._note_truncated(store, fresh)
            result += write_to(store, anew=anew)(fresh, vectors, self.embedder.name)
        return result

    def _vectors_of(
        self, texts: list[str], report: Callable[[int], None] | None = None, *, anew: bool
    ) -> NDArray[np.float32]:
        """Return the vectors of texts; ``anew``: computed even if they are in the cache, as if nobody had sent them."""
        if not anew:
            return self._document_embedder.embed_documents(texts, on_progress=report)
        vectors = self._document_embedder.embedder.embed_documents(texts)
        if report is not None:
            report(len(texts))
        return vectors

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
        from pointsman.embedders import CachedEmbedder

        return self.embedder if isinstance(self.embedder, CachedEmbedder) else CachedEmbedder(self.embedder)

    def _embedded(self) -> None:
        """Tell the owner that documents may have received vectors."""
        if self._on_embed is not None and self.indexing_technique != "keyword":
            self._on_embed(self)

    def _measure_spread(self, store: Store, *, embed: bool, growth: float = 2) -> None:
        """Estimate the distribution of cosines after the first documents, and again whenever their number has doubled.

        Args:
            store: the dataset's store.
            embed: whether questions may be generated and embedded; otherwise vectors of documents replace them.
            growth: how many times as many documents as at the last time are needed; smaller when all have vectors, or
                relevance would depend on which random half of a folder was embedded first.
        """
        if store.info.embedder is None or not store.info.can(Capability.VECTORS):
            return
        statistics = store.statistics()
        count, notes = store.count() - statistics.vectors_due, statistics.notes
        if not count or count < growth * int(notes.get(_SPREAD_AT) or 0):
            return
        sample = store.vectors(sample=DRAWN)
        if not len(sample):
            return
        if embed:  # stand-ins for future questions: titles, or first sentences, of evenly spread documents
            questions = self.embedder.embed_queries(first_sentences(store.sample(LIKELY)))
        else:
            questions = store.vectors(sample=LIKELY)
        documents = store.sample(SCRIPT_SAMPLE)
        if not len(questions) or not documents:
            return  # another writer has deleted them meanwhile
        spread = self._spread_between(questions, sample, count)
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

    def _spread_between(self, questions: NDArray[np.float32], sample: NDArray[np.float32], count: int) -> CosineSpread:
        """Return the spread of cosines between questions and a sample of ``count`` documents."""
        spread = CosineSpread.measured(questions, sample)
        usual = getattr(self.embedder, "cosine_spread", None)
        if usual or count < _SPREAD_LEAST:  # few documents determine the mean, not the deviation
            # An embedder's own σ works as well as the dataset's (.7262 against .7252 nDCG@10 over 15 collections), and
            # keeps the scores of different datasets, and of a growing one, on one scale.
            spread = CosineSpread(spread.mean, usual or USUAL_SIGMA)
        return spread

    def _notes_in_view(self, store: Store) -> Mapping[str, str]:
        """Measure what a store's notes say of its documents, without a model: their own vectors stand in for questions.

        A view is measured anew after every change of its documents, since its notes may depend on nothing else.
        """
        documents, sample = store.sample(SCRIPT_SAMPLE), store.vectors(sample=DRAWN)
        notes = {SCRIPTS_NOTE: json.dumps(_scripts(documents))} if documents else {}
        if len(sample):
            spread = self._spread_between(store.vectors(sample=LIKELY), sample, store.count())
            notes[SPREAD_NOTE] = json.dumps([spread.mean, spread.sigma])
        return notes


def write_to(store: Store, *, anew: bool) -> Callable[..., AddResult]:
    """Return what writes to a store; ``anew``: also documents that are stored identically."""
    return partial(store.write, skip_identical=False) if anew else store.write


def _scripts(documents: Sequence[Document]) -> dict[str, float]:
    """Return the share of documents written at least partly in each script."""
    from pointsman.text import scripts

    shares = [scripts(document.searchable[:1000]) for document in documents]
    return {
        script: sum(share.get(script, 0.0) > _WRITTEN_IN for share in shares) / max(len(shares), 1)
        for script in ("han", "cyrillic", "latin")
    }


def in_batches(documents: Documents, limit: int) -> Iterator[list[Document]]:
    """Yield documents in batches of ``limit``, or fewer if they are long.

    Raises:
        InputError: ``limit`` is not positive, or an item is not a document; its batch is not yielded.
    """
    if limit < 1:
        raise InputError(f"batch_size is at least 1, not {limit!r}")
    yield from batched_by(Document.each(documents), limit, lambda document: len(document.text), _BATCH_CHARACTERS)
