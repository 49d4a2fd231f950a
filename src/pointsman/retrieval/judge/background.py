"""Measures a dataset's `Background`: the range of cosines of questions that it cannot answer."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.judge.languages import SCRIPTS, Languages, Script, script_of
from pointsman.retrieval.judge.relevance import Background, unrelated_questions
from pointsman.store.store_values import Capability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.store.base_store import Store
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Document

LIKELY: Final = 32
"""The number of documents whose first sentences stand in for questions on a dataset's subjects."""

DRAWN: Final = 1000
"""The number of vectors in the even sample."""

SCRIPT_SAMPLE: Final = 200
"""The number of documents that determine the scripts of a dataset."""

_unrelated_by_embedder: weakref.WeakKeyDictionary[Embedder, Mapping[Script, NDArray[np.float32]]] = (
    weakref.WeakKeyDictionary()
)
_guard = threading.Lock()


def measured(store: Store, embedder: Embedder, spread: CosineSpread | None) -> Background | None:
    """Measure the current background of a store; returns None if its vectors cannot be read.

    Documents are sampled evenly, as when a dataset measures itself, because the first ones are often alike.

    Args:
        store: the store with the documents.
        embedder: the embedder that made their vectors.
        spread: the spread of cosines between questions and documents, if known.

    Raises:
        ModelError: the embedder failed.
    """
    if store.info.embedder is None or spread is None or not store.info.can(Capability.VECTORS):
        return None
    sample, documents = store.vectors(sample=DRAWN), store.sample(SCRIPT_SAMPLE)
    if not len(sample) or not documents:
        return None
    likely = embedder.embed_queries(first_sentences(store.sample(LIKELY)))
    return background_of(store, embedder, spread.sigma, sample, likely, documents)


def background_of(
    store: Store,
    embedder: Embedder,
    sigma: float,
    sample: NDArray[np.float32],
    likely: NDArray[np.float32],
    documents: Sequence[Document],
) -> Background:
    """Compute the background of a store's documents.

    Args:
        store: the store with the documents.
        embedder: the embedder that made their vectors.
        sigma: the standard deviation of cosines between questions and documents.
        sample: vectors of an even sample of the documents, shape ``(n, dimensions)``.
        likely: vectors of stand-ins for questions on the documents' subjects, shape ``(m, dimensions)``.
        documents: some of the documents, to determine their scripts.
    """
    unrelated = _unrelated_vectors(embedder)
    scripts = [script_of(document.searchable) for document in documents]
    shares = {script: scripts.count(script) / len(scripts) for script in SCRIPTS}

    def background_with(likely: NDArray[np.float32], unrelated: Mapping[Script, NDArray[np.float32]]) -> Background:
        best = _best_cosines(store, unrelated)
        return Background.measured(embedder.name, sigma, sample, likely, unrelated, best, shares)

    background = background_with(likely, unrelated)
    if not background.is_mixed:
        return background
    languages = Languages.of(unrelated)
    neutral_questions = {script: languages.neutral(vectors) for script, vectors in unrelated.items()}
    neutral_background = background_with(languages.neutral(likely), neutral_questions)
    return background.beside(neutral_background, languages)


def _best_cosines(store: Store, questions: Mapping[Script, NDArray[np.float32]]) -> dict[Script, list[float]]:
    """Return, by script, the best cosine in the store of each question; NaN without one."""
    import numpy as np

    cosines = iter(store.best_cosines(np.concatenate(list(questions.values()))))
    return {script: [next(cosines) for _ in vectors] for script, vectors in questions.items()}


def first_sentences(documents: Sequence[Document]) -> list[str]:
    """Return stand-ins for questions: the first sentence of each document, or its title."""
    from pointsman.text import sentences

    texts = []
    for document in documents:
        bounds = sentences(document.text[:2000])
        texts.append(document.text[slice(*bounds[0])] if bounds else document.title)
    return texts


def _unrelated_vectors(embedder: Embedder) -> Mapping[Script, NDArray[np.float32]]:
    """Return the vectors of the unrelated questions; they are embedded once per process and cached on disk."""
    from pointsman.embedders import CachedEmbedder

    with _guard:
        vectors = _unrelated_by_embedder.get(embedder)
        if vectors is None:
            cached = embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
            vectors = {script: cached.embed_queries(texts) for script, texts in unrelated_questions().items()}
            _unrelated_by_embedder[embedder] = vectors
        return vectors
