"""Fakes that need no model: deterministic, fast, and public, so that tests and examples can be anybody's."""

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
    """A fake embedder for tests and examples: texts that share words and letters are near each other.

    It hashes words and their character trigrams into ``dimensions`` signed counts. It knows no meaning, no
    synonyms and no other language; it is the same on every machine and takes microseconds.

    Example:
        >>> cat, cats, rain = HashingEmbedder().embed(["a black cat", "black cats", "heavy rain"])
        >>> bool(cat @ cats > cat @ rain)
        True
    """

    def __init__(self, dimensions: int = 64) -> None:
        """Choose the length of the vectors; shorter ones make more chance resemblances.

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
        """As chosen."""
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``; a query and a document of the same text are equal."""
        texts = text_list(texts)
        counts = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(counts, texts, strict=True):
            for feature in _features(text):
                value = xxhash.xxh64_intdigest(feature.encode("utf-8", "surrogatepass"))
                row[(value >> 1) % self._dimensions] += 1 if value & 1 else -1
        return unit_rows(counts, self.name)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """As ``embed_queries``."""
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
