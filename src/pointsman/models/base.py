"""What all embedders share: ``embed`` for one text or several, and vectors of length one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pointsman.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Progress = Callable[[int], None]
"""Told, while texts are embedded, how many more are done."""


class BaseEmbedder(ABC):
    """Implements the protocol ``Embedder`` but for the two methods that know the model.

    Both of those give a float32 matrix of L2-normalised rows, one per text, and no rows for no texts.
    """

    cosine_spread: float | None = None
    """Standard deviation of the cosine between a query and random documents; None where nobody measured it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Identifies model and settings: vectors are cached and compared under it."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Length of a vector."""

    @abstractmethod
    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised; ``on_progress`` is told as texts are done."""

    def embed(self, text: str | Sequence[str]) -> NDArray[np.float32]:
        """One text as a query, shape ``(dimensions,)``, or several as queries, shape ``(len(text), dimensions)``."""
        if isinstance(text, str):
            vector: NDArray[np.float32] = self.embed_queries([text])[0]
            return vector
        return self.embed_queries(text)


class PrefixedEmbedder(BaseEmbedder):
    """An embedder whose queries and documents differ by a prefix alone.

    A subclass sets ``_name``, ``_dimensions`` and ``_prefixes`` (query, document), and implements ``_embed``.
    """

    _name: str
    _dimensions: int | None
    _prefixes: tuple[str, str]

    @property
    def name(self) -> str:
        """The model and all settings that change its vectors."""
        return self._name

    @property
    def dimensions(self) -> int:
        """As the model says, or as a first run showed."""
        assert self._dimensions is not None
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            ModelError: The model failed, or answered what cannot be used.
        """
        return self._embed(self._prefixes[0], text_list(texts), None)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            ModelError: The model failed, or answered what cannot be used.
        """
        return self._embed(self._prefixes[1], text_list(texts), on_progress)

    @abstractmethod
    def _embed(self, prefix: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        """Vectors of the texts with the prefix before each."""


def text_list(texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        InputError: One string was given, whose characters would be embedded one by one, or something is no string.
    """
    if isinstance(texts, str):
        raise InputError(f"a list of texts is wanted, not the one text {texts!r:.80}; write [text], or use embed(text)")
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {position} is a {type(text).__name__}, not a str: {text!r:.80}")
    return texts


def unit_rows(matrix: NDArray[np.floating], source: str) -> NDArray[np.float32]:
    """The rows scaled to length one, float32; a row of zeros becomes the first axis, so that every text has a place.

    Raises:
        ModelError: A number is not finite; ``source`` says whose.
    """
    rows = np.array(matrix, np.float64)  # squares of large float32 numbers would overflow
    if not np.isfinite(rows).all():
        raise ModelError(f"{source} gave a vector with a number that is not finite")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] < 1e-12
    rows[empty] = 0
    rows[empty, :1] = 1
    lengths[empty] = 1
    rows /= lengths
    return rows.astype(np.float32)
