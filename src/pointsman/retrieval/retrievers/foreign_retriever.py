"""Retrievers of other libraries: they are called as their signatures allow, and their results become hits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.tools.parallel_calls import DualCall, Mode, sync_and_async
from pointsman.tools.sync_and_async import in_thread, settled, wait_for
from pointsman.values.argument_checks import check_top_k
from pointsman.values.retrieval_context import Hits
from pointsman.values.types import Document, Hit, Provenance, Query

if TYPE_CHECKING:
    from pointsman.values.protocols import Retriever


_LEAST_FILTERED: Final = 200
_TIMES_FILTERED: Final = 10
"""How many results are asked for where a filter is applied here: so many, and so many times ``top_k``."""


class _Interface(NamedTuple):
    """How the retrievers of a framework are called.

    Attributes:
        method: its synchronous method (or an asynchronous one of that name).
        twin: its asynchronous method.
        query: the keyword of the text; None: the first argument.
        top_k: the keyword of the number of results; None: the second argument.
        counts: whether a number of results may be passed.
    """

    method: str
    twin: str
    query: str | None = None
    top_k: str | None = None
    counts: bool = True

    def arguments(self, text: str, top_k: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of a call; ``top_k`` is left out if it is None."""
        keywords = {self.query: text} if self.query else {}
        numbers = {self.top_k: top_k} if self.top_k and top_k is not None else {}
        positional = (() if self.query else (text,)) + (() if self.top_k or top_k is None else (top_k,))
        return positional, {**keywords, **numbers}


_INTERFACES: Final = (
    _Interface("retrieve", "aretrieve"),  # LlamaIndex, and classes of one's own
    _Interface("invoke", "ainvoke", counts=False),  # LangChain
    _Interface("run", "run_async", "query", "top_k"),  # Haystack
    _Interface("similarity_search", "asimilarity_search"),  # vector stores
)


class ForeignRetriever(BaseRetriever):
    """Adapter for a retriever of another library.

    Its results are documents or nodes of any library that `pointsman.values.types.Document.of` reads, hits, or pairs
    of either
    and a score. Scores are comparable within its own list only; if one is missing, a hit's score is 1 / rank. Methods
    ``add_nodes``, ``delete_nodes`` and ``persist`` are those of the retriever.

    Args:
        retriever: has ``retrieve(query)``, ``invoke(query)``, ``run(query=…)`` or ``similarity_search(query, k)``, or
            their asynchronous versions.
        name: of its list in traces; its class name by default.

    Raises:
        InputError: it has none of these methods, or they cannot be called with a query alone.
    """

    def __init__(self, retriever: Any, name: str | None = None) -> None:
        self.retriever, self.name = retriever, name or type(retriever).__name__
        self._interface, self._passes_top_k = _interface_of(retriever)
        if self._interface.method == "similarity_search":
            self.lists = (False, True)

    def __getattr__(self, name: str) -> Any:
        if name in {"add_nodes", "delete_nodes", "persist"}:
            return getattr(self.retriever, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def _retrieve(  # noqa: D417  (the public versions have no mode)
        self,
        mode: Mode,
        /,  # an option of a retriever may have this name, too
        query: str | Query,
        top_k: int = 10,
        **options: Any,
    ) -> list[Hit]:
        """Return at most ``top_k`` hits, best first.

        Args:
            query: its filters are applied here to a longer list of results, since frameworks have no common form of
                them; `Hits.degraded` says if more could match. The retriever's own filter may be among its options.
            top_k: the number of hits.
            options: further arguments of the retriever's own method.

        Raises:
            InputError: ``top_k`` is invalid.
            PointsmanError: the retriever failed.
        """
        question, depth = Query.of(query), _depth(query, top_k)
        interface = self._interface
        method: Any = getattr(self.retriever, interface.method, None)
        twin = _by_position(self.retriever) or getattr(self.retriever, interface.twin, None)

        async def ask() -> Any:
            if twin is not None:
                answer = self._call(twin, question.text, depth, options)
            else:
                answer = await in_thread(self._call, method, question.text, depth, options)
            return await answer if inspect.isawaitable(answer) else answer

        def ask_now() -> Any:
            return wait_for(ask) if method is None else settled(self._call(method, question.text, depth, options))

        try:
            answer = await mode.one(DualCall(ask_now, ask))
        except Exception as error:
            raise failed(self.retriever, error) from error
        return self._hits(answer, question, top_k, depth)

    retrieve, aretrieve = sync_and_async(_retrieve)

    def _call(self, method: Callable[..., Any], text: str, top_k: int, options: dict[str, Any]) -> Any:
        positional, keywords = self._interface.arguments(text, top_k if self._passes_top_k else None)
        return method(*positional, **keywords, **options)

    def _hits(self, answer: Any, query: Query, top_k: int, depth: int) -> list[Hit]:
        items: Sequence[Any] = answer["documents"] if isinstance(answer, dict) else answer
        documents = [self._document_and_score(item) for item in items]
        all_have_scores = all(
            score is not None for _, score in documents
        )  # otherwise ignore all: they would be on two scales
        hits = []
        for rank, (document, own_score) in enumerate(documents[:depth], 1):
            score = own_score if all_have_scores else None
            hits.append(
                Hit(document, 1 / rank if score is None else score, None, (Provenance(self.name, rank, score),))
            )
        if query.filters is None:
            return hits
        matching_hits = [hit for hit in hits if query.filters.matches(hit.document.fields)]
        saw_all = self._passes_top_k and len(hits) < depth
        note = f"{self.name} takes no filters: {len(matching_hits)} of its {len(hits)} best results match, more may"
        return Hits(matching_hits[:top_k], degraded=() if saw_all or len(matching_hits) >= top_k else (note,))

    def _document_and_score(self, item: Any) -> tuple[Document, float | None]:
        """Return a result as a document, and its score if it has one."""
        if isinstance(item, Hit):
            return item.document, item.score
        if isinstance(item, tuple) and len(item) == 2:
            return Document.of(item[0]), float(item[1])
        score = getattr(item, "score", None)
        return Document.of(item), None if score is None else float(score)


def _by_position(retriever: Any) -> Callable[..., Any] | None:
    """Return the asynchronous method of LlamaIndex's retriever whose own method names its argument in its own way.

    LlamaIndex's ``aretrieve`` passes the question to it by the keyword ``query_bundle``, which such a one cannot take.
    """
    method = getattr(retriever, "_aretrieve", None)
    if method is None or not any(base.__module__.startswith("llama_index.") for base in type(retriever).__mro__):
        return None
    if _can_call(retriever, "_aretrieve", query_bundle=""):
        return None
    from llama_index.core.schema import QueryBundle

    return lambda text, **options: method(QueryBundle(text), **options)


def is_retriever(source: Any) -> bool:
    """Whether an object of any library can be called as a retriever."""
    try:
        as_retriever(source)
    except InputError:
        return False
    return True


def as_retriever(source: Any) -> Retriever:
    """Return a retriever as it is, or an adapter for one of another library, or for the retriever of its index.

    Raises:
        InputError: it cannot be called with a query.

    >>> class Shelf:
    ...     def retrieve(self, query):
    ...         return [{"id": "a", "text": f"about {query}"}]
    >>> [hit.text for hit in as_retriever(Shelf()).retrieve("tea", 3)]
    ['about tea']
    """
    if isinstance(source, BaseRetriever) or (
        _can_call(source, "retrieve", "", 1) and _can_call(source, "aretrieve", "", 1)
    ):
        retriever: Retriever = source
        return retriever
    if not hasattr(source, "similarity_search") and _can_call(source, "as_retriever", similarity_top_k=DEPTH):
        of_index = ForeignRetriever(source.as_retriever(similarity_top_k=DEPTH), type(source).__name__)  # LlamaIndex
        of_index.lists = (False, True) if hasattr(source, "vector_store") else None
        return of_index
    return ForeignRetriever(source)


def _interface_of(retriever: Any) -> tuple[_Interface, bool]:
    """Return how a retriever is called, and whether it takes the number of results.

    Raises:
        InputError: it cannot be called.
    """
    for interface in _INTERFACES:
        for name in (interface.method, interface.twin):
            for top_k in (1, None) if interface.counts else (None,):
                positional, keywords = interface.arguments("", top_k)
                if _can_call(retriever, name, *positional, **keywords):
                    return interface, top_k is not None
    if _is_document(retriever):
        raise InputError(
            "these are documents, not a retriever; put them into a dataset, Dataset('name').add(documents), and give "
            "its retriever()"
        )
    if callable(getattr(retriever, "retriever", None)):
        raise InputError(f"{retriever!r:.80} is searched, but is no retriever; give its retriever()")
    raise InputError(
        f"{retriever!r:.80} cannot be called as a retriever; it needs retrieve(query, top_k) or retrieve(query), as a "
        "subclass of BaseRetriever has it, invoke(query), run(query=…), or similarity_search(query, k)"
    )


def _is_document(item: object) -> bool:
    """Whether something is a document, of whatever library."""
    try:
        Document.of(item)
    except InputError:
        return False
    return True


def _can_call(source: object, name: str, *positional: Any, **keywords: Any) -> bool:
    """Whether an object has a method that takes these arguments."""
    method = getattr(source, name, None)
    if isinstance(source, type) or not callable(method):  # a class has to be made an object first
        return False
    try:
        inspect.signature(method).bind(*positional, **keywords)
    except TypeError:
        return False
    except ValueError:  # some built-in functions tell no signature
        return True
    return True


def _depth(query: str | Query, top_k: int) -> int:
    """The number of results to ask for; more if a filter leaves some out.

    Raises:
        InputError: ``top_k`` is invalid.
    """
    check_top_k(top_k)
    return top_k if Query.of(query).filters is None else max(_LEAST_FILTERED, _TIMES_FILTERED * top_k)


def failed(source: object, error: Exception) -> PointsmanError:
    """Converts an error of another framework to a Pointsman error."""
    return PointsmanError(f"{type(source).__name__} failed: {type(error).__name__}: {error}")
