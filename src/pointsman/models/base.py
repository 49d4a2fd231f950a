"""What all embedders share: ``embed`` for one text or several, and vectors of length one."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder

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


class EmbedFunction(BaseEmbedder):
    """An `Embedder` over any object that can embed; see `as_embedder`.

    Its name is the object's own, else that of its class, and then ``identified`` is False: two objects of one class may
    embed differently, so their vectors must not be remembered under that name.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._dimensions: int | None = None
        name = getattr(source, "name", None)
        self.identified = isinstance(name, str) and bool(name)
        self._name = str(name) if self.identified else type(source).__qualname__
        spread = getattr(source, "cosine_spread", None)
        self.cosine_spread = spread if isinstance(spread, float) else None

    @property
    def name(self) -> str:
        """The object's name, else that of its class."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Length of the first vector; one text is embedded to learn it where none was yet."""
        if self._dimensions is None:
            self.embed_queries(["dimensions"])
        assert self._dimensions is not None
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised; a vector of zeros stays one.

        Raises:
            ModelError: the object gave something else than one vector of finite numbers, of one length for all texts.
        """
        return self._rows("embed_queries", text_list(texts))

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """As ``embed_queries``."""
        rows = self._rows("embed_documents", text_list(texts))
        if on_progress is not None:
            on_progress(len(rows))
        return rows

    def _rows(self, method: str, texts: list[str]) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        vectors = (
            getattr(self._source, method)(texts) if _has(self._source, method) else list(map(self._source.embed, texts))
        )
        name = type(self._source).__name__
        try:
            rows = np.asarray(vectors, np.float64)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{name} gave vectors that are not numbers or differ in length: {error}") from error
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            raise ModelError(
                f"{name} gave an array of shape {rows.shape} for {len(texts)} texts; expected one vector per text"
            )
        if not np.isfinite(rows).all():
            raise ModelError(f"{name} gave a vector with a non-finite number")
        if self._dimensions not in (None, rows.shape[1]):
            raise ModelError(f"{name} gave vectors of different lengths: {self._dimensions} and {rows.shape[1]}")
        self._dimensions = rows.shape[1]
        largest = np.abs(rows).max(axis=1, keepdims=True)
        rows /= np.where(largest > 0, largest, 1)  # so that no square of a tiny number becomes zero
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit


def as_embedder(source: Any) -> Embedder:
    """Any object that can embed, as an `Embedder` (S10).

    Args:
        source: an `Embedder`, which is returned as it is; an object with ``embed(text)``, which gives one vector; or
            one with ``embed_queries`` and ``embed_documents``, which give one for each text.

    Raises:
        InputError: it is neither.

    >>> class Length:
    ...     def embed(self, text):
    ...         return [len(text), 1]
    >>> as_embedder(Length()).embed_queries(["", "a"]).shape
    (2, 2)
    """
    if isinstance(source, str):
        raise InputError(
            f"{source!r:.80} is an embedder's name, not an embedder; load it with pointsman.models.load_embedder"
        )
    if not isinstance(source, type):
        both = _has(source, "embed_queries") and _has(source, "embed_documents")
        if both and _has(source, "name") and _has(source, "dimensions"):
            embedder: Embedder = source
            return embedder
        embed = getattr(source, "embed", None)
        if both or (callable(embed) and not inspect.iscoroutinefunction(embed)):
            return EmbedFunction(source)
    raise InputError(
        f"an embedder is an object with embed(text), which gives a vector; not {type(source).__name__}: {source!r:.80}"
    )


def _has(source: object, name: str) -> bool:
    """Whether an object declares an attribute; one that invents attributes when asked for them has only those."""
    return inspect.getattr_static(source, name, None) is not None


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
        raise InputError(
            f"expected a list of texts, not the single text {texts!r:.80}; write [text], or use embed(text)"
        )
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
        raise ModelError(f"{source} gave a vector with a non-finite number")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] < 1e-12
    rows[empty] = 0
    rows[empty, :1] = 1
    lengths[empty] = 1
    rows /= lengths
    return rows.astype(np.float32)
