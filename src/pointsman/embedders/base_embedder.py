"""The base of all embedders: ``embed`` for one text or several, and vectors of length one."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, ModelError, PointsmanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder, MultimodalEmbedder

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


def mixed_embedders(holder: str, stored_model: object, own_model: str) -> InputError:
    """Return the error of writing vectors of one embedder beside those of another.

    Args:
        holder: what holds the stored vectors, such as ``"this dataset"``.
        stored_model: the name of the embedder of the stored vectors.
        own_model: the name of the embedder of the new ones.
    """
    stored_name, own_name = names_for_people(str(stored_model), own_model)
    return InputError(
        f"{holder} holds vectors of {stored_name!r}, not of {own_name!r}; "
        "open it with that embedder, or index the documents into a new dataset"
    )


class BaseEmbedder(ABC):
    """Implements the protocol ``Embedder`` except for the two methods that run the model.

    Both return a float32 matrix of L2-normalised rows, one per text; no rows for no texts.
    """

    cosine_spread: float | None = None
    """Standard deviation of the cosine between a query and random documents; None if not measured."""

    only_computes: bool = False
    """Whether it runs a model in this process, and waits for nobody else."""

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

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:  # noqa: ARG002  (of one that knows)
        """Return how many characters of a text its vector holds; None if it holds all, or the limit is not known.

        Args:
            text: the text.
            as_query: as a query, which may have another prefix than a document.
        """
        return None

    def embed(self, text: str | Sequence[str]) -> NDArray[np.float32]:
        """Embed one text as a query, shape ``(dimensions,)``, or several, shape ``(len(text), dimensions)``."""
        if isinstance(text, str):
            vector: NDArray[np.float32] = self.embed_queries([text])[0]
            return vector
        return self.embed_queries(text)


def truncated_at(embedder: object, text: str, *, as_query: bool = False) -> int | None:
    """Return `BaseEmbedder.truncated_at` of an embedder; None if it has no such method, as it need not have one."""
    method = getattr(embedder, "truncated_at", None)
    return None if method is None else method(text, as_query=as_query)


def length_of_head(
    text: str, tokens: Callable[[str], Sequence[int]], most_tokens: int, most_characters: int
) -> int | None:
    """Return how many characters decide the tokens that a model gets of a text; None if all do.

    Args:
        text: the text.
        tokens: what the model gets of a text.
        most_tokens: the model's limit, markers counted.
        most_characters: those after it are not tokenised.

    Example:
        >>> length_of_head("rails and switches", lambda text: [len(word) for word in text.split()[:2]], 2, 100)
        9
    """
    head = tokens(text)
    if len(head) < most_tokens and len(text) <= most_characters:
        return None
    length = bisect_left(range(len(text)), True, key=lambda length: tokens(text[:length]) == head)
    return length if text[length:].strip() else None


class EmbedMethods(NamedTuple):
    """The two methods by which an object embeds queries and documents."""

    queries: str
    queries_take_list: bool
    documents: str
    documents_take_list: bool

    @classmethod
    def of(cls, source: object) -> EmbedMethods | None:
        """Return the first pair of methods that an object has; None if it has none."""
        pairs = (pair for pair in _METHODS[:-1] if _can(source, pair.queries) and _can(source, pair.documents))
        if (pair := next(pairs, None)) is not None:
            return pair
        is_function = not isinstance(source, type) and callable(getattr(source, "embed", None))
        return _METHODS[-1] if is_function else None  # also of objects that invent their attributes


_METHODS: Final = (
    EmbedMethods("embed_queries", True, "embed_documents", True),
    EmbedMethods("embed_query", False, "embed_documents", True),  # LangChain
    EmbedMethods("get_query_embedding", False, "get_text_embedding_batch", True),  # LlamaIndex
    EmbedMethods("embed", False, "embed", False),
)


class EmbedFunction(BaseEmbedder):
    """An `Embedder` around any object that can embed, synchronously or asynchronously; see `as_embedder`.

    Its name is the one given, else the object's ``name``, ``model`` or ``model_name``, else that of its class. In the
    last case ``identified`` is False: two objects of one class may embed differently, so their vectors must not be
    cached under that name.

    Args:
        source: the object.
        name: identifies the model and its settings, and is stored with the vectors.

    Raises:
        InputError: the object cannot embed.
    """

    def __init__(self, source: Any, name: str | None = None) -> None:
        methods = EmbedMethods.of(source)
        if methods is None:
            raise InputError(
                "an embedder is an object with embed(text), which gives a vector, or a model of LangChain or "
                f"LlamaIndex; not {type(source).__name__}: {source!r:.80}"
            )
        self._source, self._methods = source, methods
        self._dimensions: int | None = None
        names = (name, *(getattr(source, attribute, None) for attribute in ("name", "model", "model_name")))
        own_name = next((text for text in names if isinstance(text, str) and text and text != "unknown"), None)
        self.identified = own_name is not None
        self._name = own_name or type(source).__qualname__
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
            ModelError: the object failed, or did not return one finite vector per text, all of the same length.
        """
        return self._rows(self._methods.queries, text_list(texts), takes_list=self._methods.queries_take_list)

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Like ``embed_queries``."""
        rows = self._rows(self._methods.documents, text_list(texts), takes_list=self._methods.documents_take_list)
        if on_progress is not None:
            on_progress(len(rows))
        return rows

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        """See `BaseEmbedder`; as the object says, if it has this method."""
        return truncated_at(self._source, text, as_query=as_query) if _can(self._source, "truncated_at") else None

    def _rows(
        self, method: str, inputs: Sequence[str] | Sequence[bytes] | Sequence[io.BytesIO], *, takes_list: bool
    ) -> NDArray[np.float32]:
        rows = self._unscaled_rows(method, inputs, takes_list=takes_list)
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
        rows /= np.where(largest > 0, largest, 1)  # so that squares of tiny numbers do not underflow
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit

    def _unscaled_rows(
        self, method: str, inputs: Sequence[str] | Sequence[bytes] | Sequence[io.BytesIO], *, takes_list: bool
    ) -> NDArray[np.float64]:
        if not inputs:
            return np.empty((0, self.dimensions), np.float64)
        name = type(self._source).__name__
        call = getattr(self._source, method)
        try:
            vectors = _result(call(inputs)) if takes_list else [_result(call(item)) for item in inputs]
        except PointsmanError:
            raise
        except Exception as error:
            raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error
        rows = vector_rows(vectors, len(inputs), name)
        if self._dimensions not in (None, rows.shape[1]):
            raise ModelError(f"{name} gave vectors of different lengths: {self._dimensions} and {rows.shape[1]}")
        self._dimensions = rows.shape[1]
        return rows


class MultimodalEmbedFunction(EmbedFunction):
    """A `MultimodalEmbedder` around an object that embeds texts and pictures; see `as_embedder`."""

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), dimensions)``, float32, L2-normalised; zero vectors stay zero.

        Raises:
            ModelError: the object failed, or did not return one finite vector per picture, as long as those of texts.
        """
        pictures = image_list(images)
        if _can(self._source, "embed_images"):
            return self._rows("embed_images", pictures, takes_list=True)
        return self._rows("get_image_embedding_batch", [io.BytesIO(data) for data in pictures], takes_list=True)


def image_embedder_of(embedder: Embedder | None) -> MultimodalEmbedder | None:
    """Return what embeds pictures into the space of an embedder's texts; None if nothing does."""
    embedder = getattr(embedder, "embedder", embedder)  # a cache embeds only texts
    multimodal: Any = embedder
    return multimodal if _can(embedder, "embed_images") else None


def _result(answer: Any) -> Any:
    """Return the answer of a method; an awaitable one is waited for."""
    if not inspect.isawaitable(answer):
        return answer

    async def waited_for() -> Any:
        return await answer

    return asyncio.run_coroutine_threadsafe(waited_for(), _event_loop()).result()


_loop_starting = threading.Lock()


def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all asynchronous embedders: an HTTP client that they keep belongs to one loop."""
    with _loop_starting:
        return _start_event_loop()


@cache
def _start_event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="embedders", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # a child has no thread that runs the loop
    os.register_at_fork(after_in_child=_start_event_loop.cache_clear)


def embed_function(source: Any) -> Embedder:
    """Return an object as an `Embedder`, wrapped unless it is one; see `pointsman.embedders.as_embedder`.

    Raises:
        InputError: it cannot embed.
    """
    if not isinstance(source, type) and all(
        _has(source, name) for name in ("embed_queries", "embed_documents", "name", "dimensions")
    ):
        embedder: Embedder = source
        return embedder
    is_multimodal = any(_can(source, name) for name in ("embed_images", "get_image_embedding_batch"))
    return MultimodalEmbedFunction(source) if is_multimodal else EmbedFunction(source)


def _has(source: object, name: str) -> bool:
    """Whether an object declares an attribute; attributes invented by ``__getattr__`` do not count."""
    return inspect.getattr_static(source, name, None) is not None


def _can(source: object, name: str) -> bool:
    """Whether an object declares a method; those of a class do not count, as it has to be made an object first."""
    return not isinstance(source, type) and _has(source, name) and callable(getattr(source, name, None))


class PrefixedEmbedder(BaseEmbedder):
    """An embedder whose queries and documents differ only by a prefix.

    A subclass sets ``_name``, ``_dimensions`` and ``_prefixes`` (query, document). It implements ``_encode`` for
    batches of ``_batch_size`` texts, or ``_batches``.
    """

    _name: str
    _dimensions: int | None
    _prefixes: tuple[str, str]
    _batch_size: int

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

    def _embed(self, prefix: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] | None = None
        for positions, rows in self._batches(prefix, texts):
            if vectors is None:
                vectors = np.empty((len(texts), rows.shape[1]), np.float32)
            vectors[positions] = rows
            if on_progress is not None:
                on_progress(len(positions))
        return np.empty((0, self.dimensions), np.float32) if vectors is None else vectors

    def _batches(self, prefix: str, texts: list[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield positions of texts, and their vectors with the prefix."""
        for batch in batched(range(len(texts)), self._batch_size):
            yield batch, self._encode([prefix + texts[position] for position in batch])

    def _encode(self, batch: list[Any]) -> NDArray[np.float32]:
        """Return the vectors of a batch."""
        raise NotImplementedError


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


def image_list(images: Sequence[bytes]) -> list[bytes]:
    """Return the contents of picture files as a list.

    Raises:
        InputError: A single one was given, or an item is not bytes; paths are not opened.
    """
    if isinstance(images, bytes | str):
        raise InputError("expected a list of pictures, not a single one; write [data]")
    images = list(images)
    for position, data in enumerate(images):
        if not isinstance(data, bytes):
            raise InputError(
                f"image {position} is a {type(data).__name__}, not bytes; give the content of the file: "
                "Path(name).read_bytes()"
            )
    return images


def vector_rows(vectors: Any, count: int, source: str, number: type[np.floating] = np.float64) -> NDArray[Any]:
    """Return what an embedder gave as a matrix, a row for each of its inputs; a copy.

    Raises:
        ModelError: it is none, or has a number that is not finite.
    """
    try:
        rows = np.array(vectors, number)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{source} gave vectors that are not numbers or of different lengths: {error}") from error
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1]:
        raise ModelError(
            f"{source} gave an array of shape {rows.shape} for {count} inputs; expected one vector for each"
        )
    if not np.isfinite(rows).all():
        raise ModelError(f"{source} gave a vector with a non-finite number")
    return rows


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
