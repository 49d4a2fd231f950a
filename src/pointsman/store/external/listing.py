"""The documents of a vector store of any library, listed so that they can be indexed by words as well.

A vector store answers questions; few also say what has changed in them. So a store is known here by two functions: one
that lists its documents, and, if it can tell, one that returns its state at little cost.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final

from pointsman.store.base_store import Store
from pointsman.store.external.attachment import AttachedStore
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.types import Document

_BATCH_ROWS: Final = 1000
"""Documents requested at a time from a store that pages."""


@dataclass(frozen=True, slots=True)
class Listing:
    """How to read the documents of a store.

    Attributes:
        name: of the store, for messages.
        read: yields the documents.
        state: returns a value that differs after a change, such as the number of documents; None: nothing can tell.
        exact: whether an equal state means that nothing has changed. A number alone does not: a text may be new.
    """

    name: str
    read: Callable[[], Iterable[Any]]
    state: Callable[[], Any] | None = None
    exact: bool = False

    def documents(self) -> Iterator[Document]:
        """Yield the documents that have a text.

        Raises:
            InputError: an item is not a document.
        """
        for item in self.read():
            if isinstance(item, Document) or not _is_without_text(item):
                yield Document.of(item)


def listing_of(store: Any, documents: Any = None) -> Listing:
    """Return how to read the documents of a store.

    Known are our own stores and attached collections; vector stores of LangChain with ``get`` (Chroma), with a document
    store (FAISS) or in memory; collections of Chroma's client; indexes of LlamaIndex, and its vector stores that hold
    texts; document stores of Haystack; and iterables of documents.

    Args:
        store: the store.
        documents: an iterable of its documents under the same ids, or a function without arguments that returns one;
            needed for a store that cannot list them.

    Raises:
        InputError: the documents of this store cannot be read; the message says what to give.
    """
    name = type(store).__name__
    if documents is not None:
        return _of_iterable(name, documents)
    for read in (_of_ours, _of_llama_index, _of_langchain, _of_chroma, _of_haystack):
        listing = read(store, name)
        if listing is not None:
            return listing
    values = isinstance(store, str | bytes | Mapping) or hasattr(type(store), "model_fields")  # of pydantic
    if isinstance(store, Iterable) and not values:
        return _of_iterable(name, store)
    raise UnmetNeedError(
        f"{name} cannot list its documents, so they cannot be indexed by words; give documents=…, an iterable of them "
        "with the same ids, or a function that returns one"
    )


def _of_iterable(name: str, documents: Any) -> Listing:
    """Documents themselves: an iterator can be read once only, so it is read now; a function is called every time.

    Raises:
        InputError: these are no documents.
    """
    if callable(documents):
        return Listing(name, documents)
    if not isinstance(documents, Iterable) or isinstance(documents, str | bytes | Mapping):
        raise InputError(
            f"documents are an iterable of documents or a function that returns one, not {documents!r:.80}"
        )
    items = list(map(Document.of, documents)) if iter(documents) is documents else documents
    for item in items if isinstance(items, list | tuple) else ():
        Document.of(item)
    return Listing(name, lambda: items, items.__len__ if isinstance(items, Sized) else None)


def _of_ours(store: Any, name: str) -> Listing | None:
    """A dataset, or a store of our own."""
    inner = store if isinstance(store, Store) else getattr(store, "store", None)
    if not isinstance(inner, Store):
        return None
    if isinstance(inner, AttachedStore):  # it has no sequence number of its own
        return Listing(name, inner.documents, inner.count)
    return Listing(name, inner.documents, lambda: inner.statistics().sequence, exact=True)


def _of_llama_index(store: Any, name: str) -> Listing | None:
    """An index of LlamaIndex, with a document store or over a vector store that holds texts; or such a vector store."""
    index_nodes = getattr(getattr(store, "docstore", None), "docs", None)
    vectors = getattr(store, "vector_store", store)
    lists_nodes = callable(getattr(vectors, "get_nodes", None)) and getattr(vectors, "stores_text", False)
    if isinstance(index_nodes, Mapping) and (index_nodes or not lists_nodes):
        return Listing(name, lambda: list(store.docstore.docs.values()), lambda: len(store.docstore.docs))
    if lists_nodes and "BasePydanticVectorStore" not in vectors.get_nodes.__qualname__:
        return Listing(name, lambda: vectors.get_nodes(None))
    return None


def _of_langchain(store: Any, name: str) -> Listing | None:
    """LangChain's FAISS, which has a document store, or its store in memory."""
    ids = getattr(store, "index_to_docstore_id", None)
    if isinstance(ids, Mapping) and callable(getattr(getattr(store, "docstore", None), "search", None)):

        def of_docstore() -> Iterator[Document]:
            for id_ in list(store.index_to_docstore_id.values()):
                item = store.docstore.search(id_)
                yield Document(str(id_), item.page_content, dict(item.metadata or {}))

        return Listing(name, of_docstore, lambda: len(store.index_to_docstore_id))
    rows = getattr(store, "store", None)
    if isinstance(rows, Mapping) and callable(getattr(store, "similarity_search", None)):

        def of_rows() -> Iterator[Document]:
            for id_, row in list(store.store.items()):
                yield Document(str(id_), row["text"], dict(row.get("metadata") or {}))

        return Listing(name, of_rows, lambda: len(store.store))
    return None


def _of_chroma(store: Any, name: str) -> Listing | None:
    """A collection of Chroma's client, or LangChain's Chroma around one; both page by ``get``."""
    page = {"limit": 1, "offset": 0, "include": ["documents", "metadatas"]}
    if not _takes(getattr(store, "get", None), page):
        return None

    def of_pages() -> Iterator[Document]:
        offset = 0
        while True:
            answer = store.get(limit=_BATCH_ROWS, offset=offset, include=page["include"])
            ids = answer["ids"]
            texts, metadatas = (answer.get(field) or [None] * len(ids) for field in ("documents", "metadatas"))
            for id_, text, metadata in zip(ids, texts, metadatas, strict=True):
                if isinstance(text, str):
                    yield Document(id_, text, dict(metadata or {}))
            if len(ids) < _BATCH_ROWS:
                return
            offset += len(ids)

    count = getattr(store, "count", None) or getattr(getattr(store, "_collection", None), "count", None)
    return Listing(name, of_pages, count if callable(count) else None)


def _of_haystack(store: Any, name: str) -> Listing | None:
    """A document store of Haystack."""
    if not callable(getattr(store, "filter_documents", None)):
        return None
    return Listing(name, store.filter_documents, getattr(store, "count_documents", None))


def _is_without_text(item: Any) -> bool:
    """Whether a document of Haystack or LangChain has no text, such as one of a picture."""
    return any(hasattr(item, name) and getattr(item, name) is None for name in ("page_content", "content"))


def _takes(method: Any, options: Mapping[str, Any]) -> bool:
    """Whether something is a method with these parameters."""
    if not callable(method):
        return False
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False
    return options.keys() <= parameters.keys()
