"""The small interfaces that all other modules use.

A *key* identifies a document within a family of stores: an integer in the built-in ones, a string in most servers. It
is opaque elsewhere; a document store turns keys into documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.filters import Filter
    from pointsman.values.types import Document, Hit, Query

Key = TypeVar("Key", bound=Hashable)
Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors, with separate methods for queries and documents."""

    @property
    def name(self) -> str:
        """Identifies model *and* settings; vectors are cached and compared under this name."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised."""
        ...


class TokenVectors(NamedTuple):
    """A text as an embedder sees it, token by token.

    Attributes:
        rows: shape ``(tokens, dimensions)``, float32, L2-normalised, without markers and prefix.
        surprise: shape ``(tokens,)``, float32: how rare each token is, above 0; all 1 if that is not known.
    """

    rows: NDArray[np.float32]
    surprise: NDArray[np.float32]


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """Turns texts into vectors of their tokens, too."""

    def embed_tokens(self, texts: Sequence[str], *, as_query: bool = False) -> list[TokenVectors]:
        """Return the vectors of the tokens of each text; of a text that is too long, those of the head.

        Args:
            texts: the texts.
            as_query: embed them as queries, not as documents.
        """
        ...


@runtime_checkable
class MultimodalEmbedder(Embedder, Protocol):
    """Turns texts and pictures into vectors of one space, so that a text finds the pictures that show it."""

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), dimensions)``, float32, L2-normalised.

        Args:
            images: the contents of picture files, such as PNG or JPEG.
        """
        ...


class DocumentStore(Protocol[Key_contra]):
    """Fetches documents by key."""

    def fetch(self, keys: Sequence[Key_contra]) -> list[Document | None]:
        """Return the documents in the order of ``keys``; None for a missing one."""
        ...


class KeywordIndex(Protocol[Key]):
    """Ranks documents by their words."""

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[Key, float]]:
        """Return at most ``k`` keys with BM25 scores, best first; filters apply before the cut."""
        ...

    def score(self, query: str, keys: Sequence[Key]) -> list[float]:
        """Return the same scores for given keys; 0 if no word of the query occurs."""
        ...


class VectorIndex(Protocol[Key]):
    """Ranks documents by the cosine of their vectors."""

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[Key, float]]:
        """Return at most ``k`` keys with cosines, best first; filters apply before the cut."""
        ...

    def score(self, vector: NDArray[np.float32], keys: Sequence[Key]) -> list[float]:
        """Return the cosine of ``vector`` to each key's vector; NaN if a key has no vector."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds documents for a query."""

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first."""
        ...

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Async version of `retrieve`."""
        ...


class HasText(Protocol):
    """Anything with a text, such as an LLM's answer."""

    @property
    def text(self) -> str:
        """The text."""
        ...


@runtime_checkable
class LLM(Protocol):
    """A language model: anything with ``complete(prompt)`` that returns an object with ``.text``.

    Richer ones (`pointsman.llm.base_llm.BaseLLM`) also take a JSON schema and have an asynchronous twin. Callers use
    these features through `pointsman.llm.base_llm`, which works without them too.
    """

    def complete(self, prompt: str) -> HasText:
        """Answer a prompt."""
        ...
