"""The small interfaces everything else is written against.

A *key* is whatever a family of stores knows its documents by: integers in the built-in ones, strings in most servers.
It is opaque outside of them; a document store turns keys into documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.types import Document, Hit, Query

Key = TypeVar("Key", bound=Hashable)
Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors, queries and documents each in their own way."""

    @property
    def name(self) -> str:
        """Identifies model *and* settings: vectors are cached and compared under it."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``(len(texts), dimensions)``, float32, L2-normalised."""
        ...


class DocumentStore(Protocol[Key_contra]):
    """Gives documents for keys."""

    def fetch(self, keys: Sequence[Key_contra]) -> list[Document | None]:
        """The documents in the order of ``keys``; None where one is gone."""
        ...


class KeywordIndex(Protocol[Key]):
    """Ranks documents by their words."""

    def search(self, query: str, k: int, filters: Filter | None = None) -> list[tuple[Key, float]]:
        """At most ``k`` keys with BM25 scores, best first; filters act before the cut (I9)."""
        ...

    def score(self, query: str, keys: Sequence[Key]) -> list[float]:
        """The same scores for given keys; 0 where no word of the query occurs."""
        ...


class VectorIndex(Protocol[Key]):
    """Ranks documents by the cosine of their vectors."""

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[Key, float]]:
        """At most ``k`` keys with cosines, best first; filters act before the cut (I9)."""
        ...

    def score(self, vector: NDArray[np.float32], keys: Sequence[Key]) -> list[float]:
        """The cosine of ``vector`` to each key's vector; NaN where a key has none."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds documents for a query."""

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        ...

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """The same, awaited."""
        ...


class HasText(Protocol):
    """Anything with a text; what an LLM answers with."""

    @property
    def text(self) -> str:
        """The text."""
        ...


@runtime_checkable
class LLM(Protocol):
    """A language model: anything with ``complete(prompt)`` that returns an object with ``.text``.

    Richer ones (`pointsman.llm.BaseLLM`) also take a JSON schema and have an asynchronous twin; callers ask for
    what they need through `pointsman.llm`, and do without where it is absent.
    """

    def complete(self, prompt: str) -> HasText:
        """Answer a prompt."""
        ...
