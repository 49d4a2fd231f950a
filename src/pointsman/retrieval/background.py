"""Measuring a dataset's `Background`: where the cosines of questions lie that it has no answer to."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.relevance import SCRIPTS, Background, Script, script_of, unrelated_questions
from pointsman.store.base import NEAR, Capability, Look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder
    from pointsman.retrieval.calibration import CosineSpread
    from pointsman.store.base import Store
    from pointsman.types import Document

LIKELY: Final = 32
"""Documents whose first sentences stand in for questions on a dataset's subjects."""

DRAWN: Final = 1000
"""Vectors that are drawn evenly."""

SCRIPT_SAMPLE: Final = 200
"""Documents that tell which scripts a dataset is written in."""

_unrelated: weakref.WeakKeyDictionary[Embedder, Mapping[Script, NDArray[np.float32]]] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def measured(store: Store, embedder: Embedder, spread: CosineSpread | None) -> Background | None:
    """The background of a store as it is now; None where its vectors cannot be read.

    Documents are taken as they are when a dataset measures itself: spread evenly, since those that came first are often
    alike.

    Args:
        store: of the documents.
        embedder: what made their vectors.
        spread: of cosines between questions and documents, where that is known.

    Raises:
        ModelError: the embedder failed.
    """
    if store.info.embedder is None or spread is None or not store.info.can(Capability.VECTORS):
        return None
    sample, ids = store.vectors(sample=DRAWN), store.ids()
    documents = spread_evenly(store, ids, SCRIPT_SAMPLE)
    if not len(sample) or not documents:
        return None
    likely = embedder.embed_queries(first_sentences(spread_evenly(store, ids, LIKELY)))
    return background_of(store, embedder, spread.sigma, sample, likely, documents)


def spread_evenly(store: Store, ids: Sequence[str], count: int) -> list[Document]:
    """At most ``count`` of these documents, spread evenly over the order in which they came."""
    return [document for document in store.get(evenly(ids, count)) if document is not None]


def evenly(items: Sequence[str], count: int) -> list[str]:
    """At most ``count`` of them, spread evenly over their order.

    >>> evenly(["a", "b", "c", "d"], 2)
    ['a', 'c']
    """
    return [items[place * len(items) // count] for place in range(count)] if len(items) > count else list(items)


def background_of(
    store: Store,
    embedder: Embedder,
    sigma: float,
    sample: NDArray[np.float32],
    likely: NDArray[np.float32],
    documents: Sequence[Document],
) -> Background:
    """The background of a store's documents.

    Args:
        store: of the documents.
        embedder: what made their vectors.
        sigma: of cosines between questions and documents.
        sample: vectors of documents drawn evenly, shape ``(n, dimensions)``.
        likely: vectors of stand-ins for questions on the documents' subjects, shape ``(m, dimensions)``.
        documents: some of them, which tell the scripts that they are in.
    """
    unrelated = _unrelated_vectors(embedder)
    vectors = [vector for script in SCRIPTS for vector in unrelated[script]]
    lists = iter(store.search([Look(None, vector, 1) for vector in vectors]))
    best = {script: [_best(next(lists).rankings.get(NEAR, ())) for _ in unrelated[script]] for script in SCRIPTS}
    scripts = [script_of(document.searchable) for document in documents]
    shares = {script: scripts.count(script) / len(scripts) for script in SCRIPTS}
    return Background.measured(embedder.name, sigma, sample, likely, unrelated, best, shares)


def first_sentences(documents: Sequence[Document]) -> list[str]:
    """Stand-ins for questions nobody has asked yet: the first sentence of each document, or its title."""
    from pointsman.text import sentences

    texts = []
    for document in documents:
        bounds = sentences(document.text[:2000])
        texts.append(document.text[slice(*bounds[0])] if bounds else document.title)
    return texts


def _best(ranking: Sequence[tuple[object, float | None]]) -> float:
    score = ranking[0][1] if ranking else None
    return math.nan if score is None else score


def _unrelated_vectors(embedder: Embedder) -> Mapping[Script, NDArray[np.float32]]:
    """The unrelated questions as vectors; embedded once in a process, and kept on disk for the next."""
    from pointsman.models import CachedEmbedder

    with _guard:
        vectors = _unrelated.get(embedder)
        if vectors is None:
            cached = embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
            vectors = {script: cached.embed_queries(texts) for script, texts in unrelated_questions().items()}
            _unrelated[embedder] = vectors
        return vectors
