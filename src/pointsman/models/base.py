"""The base of all embedders: ``embed`` for one text or several, and vectors of length one."""

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
"""Called during embedding with the number of texts newly done."""


def names_for_people(*names: str) -> tuple[str, ...]:
    """Return the names of embedders without the details after ``|``, if they can be told apart without them.

    >>> names_for_people("openai:small@http://localhost||", "openai:large@http://localhost||")
    ('openai:small@http://localhost', 'openai:large@http://localhost')
    >>> names_for_people("openai:small@http://localhost||", "openai:small@http://localhost|query: |")
    ('openai:small@http://localhost', 'openai:small@http://localhost|query: ')
    """
    short = tuple(name.partition("|")[0] for name in names)
    return short if len(set(short)) == len(set(names)) else tuple(name.rstrip("|") for name in names)


def mixed_embedders(holder: str, stored: object, own: str) -> InputError:
    """Return the error of writing vectors of one embedder beside those of another.

    Args:
        holder: what holds the stored vectors, such as ``"this dataset"``.
        stored: the name of the embedder of the stored vectors.
        own: the name of the embedder of the new ones.
    """
    theirs, ours = names_for_people(str(stored), own)
    return InputError(
        f"{holder} holds vectors of {theirs!r}, not of {ours!r}; "
        "open it with that embedder, or index the documents into a new dataset"
    )


class BaseEmbedder(ABC):
    """Implements the protocol ``Embedder`` except for the two methods that run the model.

    Both return a float32 matrix of L2-normalised rows, one per text; no rows for no texts.
    """

    cosine_spread: float | None = None
    """Standard deviation of the cosine between a query and random documents; None if not measured."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Identifies model and settings; vectors are cached and compared under this name."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Length of a vector."""

    @abstractmethod
    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised; reports to ``on_progress``."""

    def embed(self, text: str | Sequence[str]) -> NDArray[np.float32]:
        """Embed one text as a query, shape ``(dimensions,)``, or several, shape ``(len(text), dimensions)``."""
        if isinstance(text, str):
            vector: NDArray[np.float32] = self.embed_queries([text])[0]
            return vector
        return self.embed_queries(text)


class EmbedFunction(BaseEmbedder):
    """An `Embedder` around any object that can embed; see `as_embedder`.

    Its name is the object's name, else that of its class. In the latter case ``identified`` is False: two objects of
    one class may embed differently, so their vectors must not be cached under that name.
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
        """Length of the first vector; if nothing was embedded yet, one text is embedded to learn it."""
        if self._dimensions is None:
            self.embed_queries(["dimensions"])
        assert self._dimensions is not None
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised; zero vectors stay zero.

        Raises:
            ModelError: the object did not return one finite vector per text, all of the same length.
        """
        return self._rows("embed_queries", text_list(texts))

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Like ``embed_queries``."""
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
        rows /= np.where(largest > 0, largest, 1)  # so that squares of tiny numbers do not underflow
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit


def as_embedder(source: Any) -> Embedder:
    """Wrap any object that can embed as an `Embedder`.

    Args:
        source: an `Embedder`, which is returned unchanged; an object with ``embed(text)``, which returns one vector; or
            one with ``embed_queries`` and ``embed_documents``, which return one vector per text.

    Raises:
        InputError: it is none of these.

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
    """Whether an object declares an attribute; attributes invented by ``__getattr__`` do not count."""
    return inspect.getattr_static(source, name, None) is not None


class PrefixedEmbedder(BaseEmbedder):
    """An embedder whose queries and documents differ only by a prefix.

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
        """Length of a vector, from the model or from a first run."""
        assert self._dimensions is not None
        return self._dimensions

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            ModelError: The model failed, or gave an unusable answer.
        """
        return self._embed(self._prefixes[0], text_list(texts), None)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            ModelError: The model failed, or gave an unusable answer.
        """
        return self._embed(self._prefixes[1], text_list(texts), on_progress)

    @abstractmethod
    def _embed(self, prefix: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        """Return the vectors of the texts, each with the prefix."""


def text_list(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list.

    Raises:
        InputError: A single string was given, whose characters would be embedded singly, or an item is not a string.
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
    """Scale rows to length one, float32; a zero row becomes the first unit vector, so that every text has a direction.

    Raises:
        ModelError: A number is not finite; the message names ``source``.
    """
    rows = np.array(matrix, np.float64)  # squares of large float32 values would overflow
    if not np.isfinite(rows).all():
        raise ModelError(f"{source} gave a vector with a non-finite number")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] < 1e-12
    rows[empty] = 0
    rows[empty, :1] = 1
    lengths[empty] = 1
    rows /= lengths
    return rows.astype(np.float32)
