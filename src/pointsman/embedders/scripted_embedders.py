"""Fakes that need no model: deterministic, fast and public, for your own tests and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from pointsman.embedders.base_embedder import BaseEmbedder, Progress, image_list, text_list, unit_rows
from pointsman.tools.errors import InputError
from pointsman.tools.images import open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ColourEmbedder", "HashingEmbedder"]

HASHING: Final = "hashing-"
"""The beginning of the names of hashing embedders, whatever wraps them."""


class _SymmetricEmbedder(BaseEmbedder):
    """Embeds documents as it embeds queries."""

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Like ``embed_queries``."""
        vectors = self.embed_queries(texts)
        if on_progress is not None:
            on_progress(len(vectors))
        return vectors


class HashingEmbedder(_SymmetricEmbedder):
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
        return f"{HASHING}{self._dimensions}"

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


def _features(text: str) -> Iterator[str]:
    for word in text.lower().split():
        yield word
        token = f"<{word}>"
        for start in range(len(token) - 2):
            yield token[start : start + 3]


_COLOURS = {
    (255, 0, 0): ("red", "красн", "红"),
    (0, 160, 0): ("green", "зелён", "зелен", "绿"),
    (0, 0, 255): ("blue", "син", "蓝"),
    (255, 255, 0): ("yellow", "жёлт", "желт", "黄"),
    (0, 0, 0): ("black", "чёрн", "черн", "黑"),
    (255, 255, 255): ("white", "бел", "白"),
}


class ColourEmbedder(_SymmetricEmbedder):
    """A fake multimodal embedder for tests and examples: a text is close to pictures of the colours that it names.

    A picture's vector is its mean colour; a text's, the mean of the colours named in it, in English, Chinese or
    Russian, or grey if it names none. It opens pictures within the same limits as real models do.

    Example:
        >>> red, sky = ColourEmbedder().embed(["a red bus", "蓝色的天空"])
        >>> bool(red @ red > red @ sky)
        True
    """

    @property
    def name(self) -> str:
        """``colours``."""
        return "colours"

    @property
    def dimensions(self) -> int:
        """Four: red, green, blue, and a constant, so that black has a direction."""
        return 4

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), 4)``."""
        lower_texts = [text.lower() for text in text_list(texts)]
        colour_names = [
            [colour for colour, words in _COLOURS.items() if any(word in text for word in words)] or [(128, 128, 128)]
            for text in lower_texts
        ]
        return _of_colours([np.mean(colours, axis=0) for colours in colour_names])

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), 4)``.

        Raises:
            InputError: one is no picture.
        """
        return _of_colours(
            [np.asarray(open_image(data, 64)).reshape(-1, 3).mean(axis=0) for data in image_list(images)]
        )


def _of_colours(colours: Sequence[NDArray[np.floating]]) -> NDArray[np.float32]:
    values = np.array([[*colour, 64.0] for colour in colours], np.float64).reshape(-1, 4)
    return unit_rows(values - [128, 128, 128, 0], "colours")
