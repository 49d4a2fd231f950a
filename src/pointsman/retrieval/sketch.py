"""What a dataset holds, small enough to look at for every query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pointsman.retrieval.calibration import CosineSpread
from pointsman.store.base import WORDS, Capability, Look, Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder
    from pointsman.retrieval.source import Source
    from pointsman.store.base import Store
    from pointsman.types import Query

_WORD_MATCHES, _VECTOR_MATCHES = 5, 3
_FEW = 10  # documents under which frequencies say nothing; fewer count as so many


@dataclass(frozen=True, slots=True)
class Sketch:
    """A sample of a dataset's vectors beside its keyword index.

    The index serves as the statistics of terms: it is exact, always current, and a probe of it costs less than looking
    up frequencies and combining them would. Vectors are sampled, since comparing all of them is what a search costs.

    Attributes:
        store: of the dataset, as opened when this was drawn.
        vectors: shape ``(at most the sketch's size, dimensions)``; no rows where the dataset keeps none.
        embedder: what queries are embedded with; None where there are no vectors, or another embedder's.
        spread: where cosines between queries and the dataset's documents lie.
        documents: how many the dataset holds.
        sequence: the state of the dataset that this is a sketch of.
    """

    store: Store
    vectors: NDArray[np.float32]
    embedder: Embedder | None
    spread: CosineSpread
    documents: int
    sequence: int

    @classmethod
    def of(cls, dataset: Source, size: int) -> Sketch:
        """Draw one; the sample is even, and the same for the same content."""
        store = dataset.store
        sequence = store.statistics().sequence  # first: what is written meanwhile makes the sketch stale, never wrong
        vectors, embedder, spread = np.empty((0, 0), np.float32), None, CosineSpread(0.0, 1.0)
        info, measured = store.info, dataset.cosine_spread
        if measured is not None and info.can(Capability.VECTORS) and info.embedder == dataset.embedder.name:
            vectors = store.vectors(sample=size)
            embedder, spread = (dataset.embedder, measured) if len(vectors) else (None, spread)
        return cls(store, vectors, embedder, spread, store.count(), sequence)

    def is_fresh(self, dataset: Source) -> bool:
        """Whether the dataset is still in the state that this was drawn from."""
        store = dataset.store
        return store.info.identity == self.store.info.identity and store.statistics().sequence == self.sequence

    def words(self, query: Query) -> float:
        """The mean of the best five BM25 scores (of fewer in a smaller dataset); no match counts as 0."""
        lists = self.store.search([Look(query.text, None, _WORD_MATCHES, query.filters)])[0]
        if self.store.info.scales.get(WORDS) is not Scale.BM25:
            return 0.0
        scores = [score or 0.0 for _, score in lists.rankings.get(WORDS, ())]
        return sum(scores) / max(1, min(_WORD_MATCHES, self.documents))

    @property
    def highest_idf(self) -> float:
        """The idf of a word that one document has, which grows with the dataset: BM25 scores of two share no scale.

        >>> round(lucene_idf(1, 10), 2), round(lucene_idf(1, 10_000), 2)
        (1.99, 8.8)
        """
        return lucene_idf(1, max(_FEW, self.documents))

    def nearness(self, vector: NDArray[np.float32]) -> float:
        """The mean of the best three cosines."""
        # Not by BLAS: its threads and those of the embedder's runtime would get in each other's way. A decision over
        # nine datasets on two cores, embedding included: 15 ms at p50 and 22 at p95 so, 19 and 61 with BLAS.
        cosines = np.einsum("ij,j->i", self.vectors, vector)
        count = min(_VECTOR_MATCHES, len(cosines))
        return float(np.partition(cosines, -count)[-count:].mean())


def lucene_idf(having: int, documents: int) -> float:
    """Lucene's idf of a word that ``having`` of ``documents`` have."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
