"""What selectors by meaning share: vectors of texts embedded once, centring, centroids, and sets of choices kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar

import numpy as np

from pointsman.errors import InputError, ModelError
from pointsman.selector.base import Choices, ToolMetadata

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pointsman.protocols import Embedder

T = TypeVar("T")

Kind = Literal["query", "document"]


class EmbedsText(Protocol):
    """The least that an embedder can do; `pointsman.models.base.as_embedder` makes one of it."""

    def embed(self, text: str) -> Any:
        """The vector of one text."""
        ...


if TYPE_CHECKING:
    AnyEmbedder = EmbedsText | Embedder
    QueryMean = Literal["general", "running", "choices"] | ArrayLike

_NOTHING: Final = 1e-6  # a difference of unit vectors shorter than this is rounding, not direction
_PRIOR: Final = 30  # how many queries the general mean counts for when the real ones' mean is estimated

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
"""Everyday queries. Their mean vector stands for what all queries have in common under an embedder, which says nothing
about the choices; with it taken away nearly all is gained that the mean of the real queries would gain (tool selection,
accuracy of the cosine alone: .457 of .470 on MetaTool, .563 of .584 on UltraTool zh; without: .403 and .433)."""


def known_choices(choices: Choices) -> tuple[ToolMetadata, ...]:
    """Choices as metadata, for methods that the base class does not check.

    Raises:
        InputError: one is neither a `ToolMetadata` nor a string.
    """
    metadata = tuple(ToolMetadata(choice, "") if isinstance(choice, str) else choice for choice in choices)
    for choice in metadata:
        if not isinstance(choice, ToolMetadata):
            raise InputError(f"a choice is a ToolMetadata or a str, not {type(choice).__name__}: {choice!r:.80}")
    return metadata


def examples_of(choice: ToolMetadata) -> tuple[str, ...]:
    """The example queries in a choice's metadata.

    Raises:
        InputError: they are not a list of strings.
    """
    examples = (choice.metadata or {}).get("examples") or ()
    if isinstance(examples, str) or not all(isinstance(example, str) for example in examples):
        raise InputError(f"choice {choice.name!r}: metadata['examples'] is a list of strings, not {examples!r:.80}")
    return tuple(examples)


def unit_or_zero(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length one; those of no length stay zero, so that their cosine to anything is 0 (S5)."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = np.where(lengths > _NOTHING, rows / np.maximum(lengths, _NOTHING), np.float32(0))
    return scaled


def embed_texts(embedder: Embedder, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
    """Unit vectors of texts, shape ``(len(texts), dimensions)``; a vector of zeros stays one.

    Raises:
        ModelError: the embedder gave something else than one vector of finite numbers per text.
    """
    vectors = embedder.embed_queries(texts) if kind == "query" else embedder.embed_documents(texts)
    name = type(embedder).__name__
    try:
        rows = np.asarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} gave vectors that are not numbers or differ in length: {error}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise ModelError(
            f"{name} gave an array of shape {rows.shape} for {len(texts)} texts; expected one vector per text"
        )
    if not np.isfinite(rows).all():
        raise ModelError(f"{name} gave a vector with a non-finite number")
    return unit_or_zero(rows)


class TextVectors:
    """The vectors of texts, each embedded once; those not asked for longest are forgotten first.

    Safe to share between threads. A text that two threads ask for at once may be embedded twice, with one result.
    """

    def __init__(self, embedder: Embedder, limit: int) -> None:
        """Remember at most ``limit`` texts."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InputError(f"cache_size is an int from 1 up, not {limit!r}")
        self.embedder = embedder
        self._limit = limit
        self._kept: OrderedDict[tuple[Kind, str], NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, unit or zero rows."""
        vectors: dict[str, NDArray[np.float32]] = {}
        with self._lock:
            for text in texts:
                if (vector := self._kept.get((kind, text))) is not None:
                    self._kept.move_to_end((kind, text))
                    vectors[text] = vector
        if missing := [text for text in dict.fromkeys(texts) if text not in vectors]:
            rows = embed_texts(self.embedder, missing, kind)
            vectors.update(zip(missing, rows, strict=True))
            with self._lock:
                for text in missing:
                    self._kept[kind, text] = vectors[text]
                while len(self._kept) > self._limit:
                    self._kept.popitem(last=False)
        try:
            return np.stack([vectors[text] for text in texts])
        except ValueError:
            lengths = sorted({len(vector) for vector in vectors.values()})
            raise ModelError(f"{type(self.embedder).__name__} gave vectors of different lengths: {lengths}") from None


class Recent(Generic[T]):
    """What was worked out for the last few sets of choices.

    Choices are frozen, and most callers pass the same objects each time: comparing tuples of them then compares
    identities, a microsecond for 200 choices, where hashing them took 65. Equal choices are found as well.
    """

    _MOST = 8

    def __init__(self, build: Callable[[tuple[ToolMetadata, ...]], T]) -> None:
        """Work out what is not there yet with ``build``."""
        self._build = build
        self._kept: tuple[tuple[tuple[ToolMetadata, ...], T], ...] = ()  # replaced whole, so threads need no lock

    def of(self, choices: tuple[ToolMetadata, ...]) -> T:
        """What belongs to these choices in this order."""
        entries = self._kept
        for entry_choices, value in entries:
            if entry_choices == choices:
                return value
        value = self._build(choices)
        self._kept = ((choices, value), *entries[: self._MOST - 1])
        return value


class MeanOfQueries:
    """What is subtracted from queries before they are compared with centred choices.

    Options: ``"general"``: the mean of `GENERAL_QUERIES`; ``"running"``: that of the queries met so far, the general
    one counting as thirty of them, so that answers depend on what was asked before; ``"choices"``: the choices' own
    mean; or a vector, the mean of queries that are known.
    """

    def __init__(self, mean: QueryMean, vectors: TextVectors) -> None:
        """Check what was asked for; nothing is embedded yet.

        Raises:
            InputError: it is none of the options.
        """
        self._vectors = vectors
        self._lock = threading.Lock()
        self._given: NDArray[np.float32] | None = None
        self._sum: NDArray[np.float64] | None = None
        self._count = 0
        if isinstance(mean, str):
            if mean not in ("general", "running", "choices"):
                raise InputError(f"query_mean is 'general', 'running', 'choices' or a vector, not {mean!r}")
            self.mode = mean
            return
        self.mode = "given"
        try:
            self._given = np.array(mean, np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"query_mean cannot be read as a vector: {error}") from error
        if self._given.ndim != 1 or not np.isfinite(self._given).all():
            raise InputError(f"query_mean is one vector of finite numbers, not an array of shape {self._given.shape}")

    def at(self, choices_mean: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean as it stands; ``choices_mean`` is that of the choices at hand."""
        if self.mode == "choices":
            return choices_mean
        usual = self.before_any()
        if usual.shape != choices_mean.shape:
            raise InputError(f"query_mean has {len(usual)} numbers, the embedder's vectors have {len(choices_mean)}")
        if self._sum is None:
            return usual
        with self._lock:
            mean: NDArray[np.float32] = ((_PRIOR * usual + self._sum) / (_PRIOR + self._count)).astype(np.float32)
        return mean

    def before_any(self) -> NDArray[np.float32]:
        """The given mean, or else that of `GENERAL_QUERIES`."""
        if self._given is None:
            self._given = self._vectors.of(GENERAL_QUERIES, "query").mean(axis=0)
        return self._given

    def met(self, query: NDArray[np.float32]) -> None:
        """Count a query in, where the mean is a running one."""
        if self.mode == "running":
            with self._lock:
                self._sum = query.astype(np.float64) if self._sum is None else self._sum + query
                self._count += 1


def learned_mean(queries: NDArray[np.float32], general: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of queries, the general one counting as thirty of them."""
    mean: NDArray[np.float32] = ((queries.sum(axis=0) + _PRIOR * general) / (len(queries) + _PRIOR)).astype(np.float32)
    return mean


def centred(rows: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit directions from a mean; a zero row stays zero."""
    present = rows.any(axis=-1, keepdims=True)
    return unit_or_zero(np.where(present, rows - mean, np.float32(0)))


def cosines(rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each row to a query, both of length one or zero.

    To six decimals, as float32 has no more: in a matrix product equal rows may differ by rounding, depending on their
    place, and then another than the first of equal choices would win.
    """
    return np.round(rows @ query, 6)


def centroids(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """At most ``count`` unit vectors that stand for unit rows: spherical k-means, the same every time.

    It starts from the row nearest to the mean and then from the row farthest from all chosen, so no chance is in it.
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
        moved = (rows @ centres.T).argmax(axis=1)
        if (moved == belongs).all():
            break
        belongs = moved
        sums = np.zeros_like(centres)
        np.add.at(sums, belongs, rows)
        centres = np.where(sums.any(axis=1, keepdims=True), unit_or_zero(sums), centres)
    return centres


def best_first(scores: NDArray[np.floating], count: int) -> list[int]:
    """The places of the ``count`` highest scores, best first; of equal ones the first comes first."""
    if count == 1:
        return [int(scores.argmax())]
    return [int(place) for place in np.argsort(-scores, kind="stable")[:count]]


def softmax_share(scores: NDArray[np.floating], scale: float) -> float:
    """The share of the highest score in the softmax of ``scale · scores``."""
    return float(1 / np.exp(scale * (scores - scores.max())).sum())


def positive_int(value: int, name: str) -> int:
    """The number itself.

    Raises:
        InputError: it is not an int from 1 up.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is an int from 1 up, not {value!r}")
    return value
