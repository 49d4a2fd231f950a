"""Shared by selectors that use embeddings: cached vectors, centring, centroids, and cached sets of choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar

import numpy as np

from pointsman.embedders.base_embedder import vector_rows
from pointsman.tools.byte_cache import ByteCache
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.selector.base_selector import ToolMetadata
    from pointsman.values.protocols import Embedder

T = TypeVar("T")

Kind = Literal["query", "document"]


class EmbedsText(Protocol):
    """The minimal embedder; `pointsman.embedders.base_embedder.as_embedder` converts it to an `Embedder`."""

    def embed(self, text: str) -> Any:
        """Return the vector of one text."""
        ...


if TYPE_CHECKING:
    AnyEmbedder = EmbedsText | Embedder | str

_ROUNDING_ERROR: Final = 1e-6  # a shorter difference of unit vectors is rounding error
_PRIOR: Final = 30  # weight of the general mean, in queries, when the mean of real ones is estimated

GENERAL_QUERIES: Final = (
    "What is machine learning?",
    "How do I reset my password?",
    "Who wrote War and Peace?",
    "Can you help me find a good restaurant nearby?",
    "I need a summary of this document",
    "Translate this sentence into French",
    "book a table for two tomorrow",
    "calculate the average of these numbers",
    "show me the latest news about the economy",
    "send an email to my boss saying I am sick",
    "什么是环保设备？",
    "帮我订一张去北京的机票",
    "请把这个文件发给我",
    "播放周杰伦的歌",
    "我需要查询我的账户余额",
    "почему небо голубое",
    "закажи такси до аэропорта",
    "какая завтра погода в Москве",
    "найди рейсы в Сочи на июль",
    "сколько стоит доставка",
)
"""Everyday queries. Their mean vector represents what all queries have in common under an embedder, which carries no
information about the choices. Subtracting it gains nearly as much as subtracting the mean of the real queries (tool
selection, accuracy of the cosine alone: .457 of .470 on MetaTool, .563 of .584 on UltraTool zh; without: .403 and
.433)."""


def examples_of(choice: ToolMetadata) -> tuple[str, ...]:
    """Return the example queries in a choice's metadata.

    Raises:
        InputError: they are not a list of strings.
    """
    examples = (choice.metadata or {}).get("examples") or ()
    if isinstance(examples, str) or not all(isinstance(example, str) for example in examples):
        raise InputError(f"choice {choice.name!r}: metadata['examples'] is a list of strings, not {examples!r:.80}")
    return tuple(examples)


def unit_or_zero(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length one; zero rows stay zero, so that their cosine to anything is 0."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = np.where(
        lengths > _ROUNDING_ERROR, rows / np.maximum(lengths, _ROUNDING_ERROR), np.float32(0)
    )
    return unit


def embed_texts(embedder: Embedder, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
    """Return unit vectors of texts, shape ``(len(texts), dimensions)``; zero vectors stay zero.

    Raises:
        ModelError: the embedder did not return one finite vector per text.
    """
    vectors = embedder.embed_queries(texts) if kind == "query" else embedder.embed_documents(texts)
    return unit_or_zero(vector_rows(vectors, len(texts), type(embedder).__name__, np.float32))


def check_lengths(embedder: Embedder, query: int, choice: int) -> None:
    """Check that vectors of a query and of a choice have the same length.

    Raises:
        ModelError: they have not.
    """
    if query != choice:
        raise ModelError(
            f"{type(embedder).__name__} gave {query} numbers for the query and {choice} for each choice; expected "
            "vectors of the same length"
        )


class TextVectors:
    """Caches the vectors of texts; the least recently used are evicted first.

    Thread-safe. A text that two threads request at once may be embedded twice, with the same result.
    """

    def __init__(self, embedder: Embedder, limit: int) -> None:
        """Remember at most ``limit`` texts."""
        self.embedder, limit = embedder, check_count(limit, "cache_size")
        self._vectors_by_text: ByteCache[tuple[Kind, str], NDArray[np.float32]] = ByteCache(
            lambda vector: vector.nbytes, limit
        )

    def of(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``; rows are unit or zero."""
        vectors = {text: vector for text in texts if (vector := self._vectors_by_text.get((kind, text))) is not None}
        if missing := [text for text in dict.fromkeys(texts) if text not in vectors]:
            rows = embed_texts(self.embedder, missing, kind)
            vectors.update(zip(missing, rows, strict=True))
            for text in missing:
                self._vectors_by_text[kind, text] = vectors[text]
        try:
            return np.stack([vectors[text] for text in texts])
        except ValueError:
            lengths = sorted({len(vector) for vector in vectors.values()})
            raise ModelError(f"{type(self.embedder).__name__} gave vectors of different lengths: {lengths}") from None


_FIELDS: Final = attrgetter("name", "description", "metadata")


class Recent(Generic[T]):
    """Caches a computed value for the last few sets of choices.

    Most callers pass the same texts each time: comparing them then compares identities, which takes some 40
    microseconds for 200 choices; hashing took 65. Equal choices also match; one whose text was changed does not.
    """

    _CAPACITY = 8

    def __init__(self, build: Callable[[tuple[ToolMetadata, ...]], T]) -> None:
        """Compute missing values with ``build``."""
        self._build = build
        self._cached_values: tuple[tuple[list[Any], T], ...] = ()  # replaced as a whole, so threads need no lock

    def of(self, choices: tuple[ToolMetadata, ...]) -> T:
        """Return the value for these choices in this order."""
        entries, fields = self._cached_values, [*map(_FIELDS, choices)]
        for entry_fields, value in entries:
            if entry_fields == fields:
                return value
        value = self._build(choices)
        self._cached_values = ((fields, value), *entries[: self._CAPACITY - 1])
        return value


def learned_mean(queries: NDArray[np.float32], general: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of queries, with the general mean counting as thirty of them."""
    mean: NDArray[np.float32] = ((queries.sum(axis=0) + _PRIOR * general) / (len(queries) + _PRIOR)).astype(np.float32)
    return mean


def centred(rows: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return unit directions from a mean; a zero row stays zero."""
    present = rows.any(axis=-1, keepdims=True)
    return unit_or_zero(np.where(present, rows - mean, np.float32(0)))


def cosines(rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of each row to a query, both of length one or zero.

    Cosines are rounded to six decimals, float32's precision: in a matrix product, equal rows may differ by rounding
    depending on their position, and then another than the first of equal choices could win.
    """
    return np.round(rows @ query, 6)


def centroids(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return at most ``count`` unit vectors that represent unit rows: deterministic spherical k-means.

    Seeds are the row nearest to the mean, then repeatedly the row farthest from all seeds, so nothing is random.
    Dhillon and Modha, "Concept decompositions for large sparse text data", 2001,
    https://doi.org/10.1023/A:1007612920971.
    """
    if len(rows) <= count:
        return rows
    indexes = [int((rows @ rows.mean(axis=0)).argmax())]
    nearest = rows @ rows[indexes[0]]
    while len(indexes) < count:
        indexes.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, rows @ rows[indexes[-1]])
    centres = rows[indexes]
    belongs = np.full(len(rows), -1)
    for _ in range(20):
        centre_of_row = (rows @ centres.T).argmax(axis=1)
        if (centre_of_row == belongs).all():
            break
        belongs = centre_of_row
        sums = np.zeros_like(centres)
        np.add.at(sums, belongs, rows)
        centres = np.where(sums.any(axis=1, keepdims=True), unit_or_zero(sums), centres)
    return centres


def best_first(scores: NDArray[np.floating], count: int) -> list[int]:
    """Return the indices of the ``count`` highest scores, best first; ties keep their order."""
    if count == 1:
        return [int(scores.argmax())]
    return [int(index) for index in np.argsort(-scores, kind="stable")[:count]]


def softmax_share(scores: NDArray[np.floating], scale: float) -> float:
    """Return the share of the highest score in the softmax of ``scale · scores``."""
    return float(1 / np.exp(scale * (scores - scores.max())).sum())
