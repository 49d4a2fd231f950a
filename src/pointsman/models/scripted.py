"""Fakes that need no model: deterministic, fast and public, for your own tests and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from pointsman.errors import InputError
from pointsman.models.base import BaseEmbedder, Progress, text_list, unit_rows
from pointsman.models.scripted_llm import Call, Delay, ScriptedLLM

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Call", "Delay", "HashingEmbedder", "ScriptedLLM"]


class HashingEmbedder(BaseEmbedder):
    """A fake embedder for tests and examples: texts that share words and letters are close to each other.

    It hashes words and their character trigrams into ``dimensions`` signed counts. It has no notion of meaning,
    synonyms or translation; it gives the same result on every machine and takes microseconds.

    Example:
        >>> cat, cats, rain = HashingEmbedder().embed(["a black cat", "black cats", "heavy rain"])
        >>> bool(cat @ cats > cat @ rain)
        True
    """

    def __init__(self, dimensions: int = 64) -> None:
        """Set the length of the vectors; shorter ones collide more often.

        Raises:
            InputError: ``dimensions`` is not positive.
        """
        if dimensions < 1:
            raise InputError(f"dimensions is at least 1, not {dimensions}")
        self._dimensions = dimensions

    @property
    def name(self) -> str:
        """``hashing-`` and the dimensions."""
        return f"hashing-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """The chosen length."""
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``; equal for a query and a document with the same text."""
        texts = text_list(texts)
        counts = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(counts, texts, strict=True):
            for feature in _features(text):
                value = xxhash.xxh64_intdigest(feature.encode("utf-8", "surrogatepass"))
                row[(value >> 1) % self._dimensions] += 1 if value & 1 else -1
        return unit_rows(counts, self.name)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Like ``embed_queries``."""
        vectors = self.embed_queries(texts)
        if on_progress is not None:
            on_progress(len(vectors))
        return vectors


def _features(text: str) -> Iterator[str]:
    for word in text.lower().split():
        yield word
        token = f"<{word}>"
        for start in range(len(token) - 2):
            yield token[start : start + 3]
