"""Whoever asks a selector and then follows it: retrievers, query engines, text or images (S9, S11)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pointsman._twins import in_thread
from pointsman.errors import InputError, RetrievalError
from pointsman.grammar import IMAGE as IMAGE_WORDS
from pointsman.grammar import plain
from pointsman.retrieval.base import BaseRetriever, checked
from pointsman.retrieval.branches import unique_names
from pointsman.retrieval.candidates import RetrieverResults, hits_of, together
from pointsman.retrieval.dispatch import Call, Deadline, Mode, Tasks, Threads, describe, run
from pointsman.retrieval.hybrid import TIMEOUT
from pointsman.selector.base import BaseSelector, SelectorResult, SingleSelection, ToolMetadata
from pointsman.types import Hit, Hits, Query, Span, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.protocols import Retriever

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Routed(Generic[T]):
    """What the chosen ones gave.

    Attributes:
        selection: how the selector chose.
        answers: by the name of the choice, those that answered, in the order of the selection.
        failures: by the name of the choice, the error of each that failed.
    """

    selection: SelectorResult
    answers: Mapping[str, T]
    failures: Mapping[str, Exception] = field(default_factory=dict)


class _Switch(Generic[T]):
    """Described choices, a selector, and what to do with a chosen one; shared by the consumers below."""

    def __init__(
        self, what: str, names: Sequence[str], descriptions: Sequence[str], count: int, selector: BaseSelector
    ) -> None:
        if not count:
            raise InputError(f"give at least one {what}")
        for many, values in (("descriptions", descriptions), ("names", names)):
            if isinstance(values, str) or len(values) != count:
                raise InputError(f"{count} {what}s need {count} {many}, one each, not {values!r:.80}")
        if len(set(names)) < count:
            raise InputError(f"names differ from one another; {list(names)!r:.200} don't")
        self.selector = selector
        self.choices = tuple(ToolMetadata(name, text) for name, text in zip(names, descriptions, strict=True))

    async def follow(
        self, mode: Mode, query: Query, selection: SelectorResult, ask: Callable[[int], Call[T]], limit: float | None
    ) -> Routed[T]:
        """Ask every chosen one, at once where there are several; one alone that fails raises its own error."""
        indexes = selection.inds
        if len(indexes) == 1:
            return Routed(selection, {self.choices[indexes[0]].name: await mode.one(ask(indexes[0]))})
        answers: dict[str, T] = {}
        failures: dict[str, Exception] = {}
        outcomes = await mode.all([ask(index) for index in indexes], limit) if indexes else []
        for index, outcome in zip(indexes, outcomes, strict=True):
            name = self.choices[index].name
            if outcome.error is not None:
                failures[name] = outcome.error
                log.warning("%s failed for %.80r, the others answer: %r", name, query.text, outcome.error)
            else:
                answers[name] = outcome.answer  # type: ignore[assignment]  # no error, so an answer
        if failures and not answers:
            raise RetrievalError("all that were chosen failed", failures)
        return Routed(selection, answers, failures)


class RouterRetriever(BaseRetriever):
    """Retrieves from the one the selector chooses, or from all it chooses, fused by reciprocal rank (S9).

    One retriever chosen alone answers as if it had been asked directly, errors included. Of several, all are asked at
    once; one that fails is logged and left out. A selector that abstains gets no hits.

    Args:
        retrievers: at least one.
        descriptions: what each is good for, in the same order.
        selector: chooses among the descriptions.
        names: what each is called towards the selector and in the provenance of hits; ``retriever_0`` and so on.
        timeout: seconds that several have together; one that is late is left out. One alone takes the time it takes.

    Raises:
        InputError: the lists differ in length, or something in ``retrievers`` cannot retrieve.
    """

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        descriptions: Sequence[str],
        selector: BaseSelector,
        *,
        names: Sequence[str] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        self.retrievers = tuple(retrievers)
        unique_names(self.retrievers, None)  # says what is no retriever
        Deadline(timeout)
        self._timeout = timeout
        names = [f"retriever_{number}" for number in range(len(self.retrievers))] if names is None else names
        self.selector = selector
        self._switch: _Switch[list[Hit]] = _Switch("retriever", names, descriptions, len(self.retrievers), selector)

    def retrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """At most ``top_k`` hits, best first; see ``routed`` for how they came to be.

        Raises:
            RetrievalError: several were chosen and all of them failed; it carries each one's error.
        """
        return _fused(self.routed(query, top_k), top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> Hits:
        """The same, awaited."""
        return _fused(await self.arouted(query, top_k), top_k)

    def routed(self, query: str | Query, top_k: int = 10) -> Routed[list[Hit]]:
        """The selection, each chosen retriever's own hits, and what failed."""
        query = Query.of(query)
        checked(top_k)
        selection = self.selector.select(self._switch.choices, query)
        return run(self._switch.follow(Threads(), query, selection, self._asking(query, top_k), self._timeout))

    async def arouted(self, query: str | Query, top_k: int = 10) -> Routed[list[Hit]]:
        """The same, awaited."""
        query = Query.of(query)
        checked(top_k)
        selection = await self.selector.aselect(self._switch.choices, query)
        return await self._switch.follow(Tasks(), query, selection, self._asking(query, top_k), self._timeout)

    def _asking(self, query: Query, top_k: int) -> Callable[[int], Call[list[Hit]]]:
        def ask(index: int) -> Call[list[Hit]]:
            retriever = self.retrievers[index]
            return Call(lambda: retriever.retrieve(query, top_k), lambda: retriever.aretrieve(query, top_k))

        return ask


def _fused(routed: Routed[list[Hit]], top_k: int) -> Hits:
    """The hits of the one that was chosen as they are; of several, fused, each hit with its way there.

    Either way the trace says what was chosen and why, and ``degraded`` if the selector had to fall back.
    """
    selection = routed.selection
    names = ", ".join(routed.answers) or "nothing"
    span = Span("route", f"{names}: {'; '.join(selection.reasons) or 'no choice fits'}", 0.0, len(selection.selections))
    fallback = selection.fallback
    notes = () if fallback is None else (f"route: fell back to {fallback.policy!r}: {fallback.why}",)
    if len(selection.selections) <= 1:
        hits = next(iter(routed.answers.values()), [])
        trace, degraded = getattr(hits, "trace", Trace()), tuple(getattr(hits, "degraded", ()))
        return Hits(hits, replace(trace, spans=(span, *trace.spans)), (*notes, *degraded))
    results = together({n: RetrieverResults.of(name, hits) for n, (name, hits) in enumerate(routed.answers.items())})
    failed = tuple(f"{name}: {describe(error)}" for name, error in routed.failures.items())
    fused = results.pool.fused("rrf")
    return Hits(hits_of(results, fused, top_k), Trace((span,)), (*notes, *failed, *results.degraded))


class QueryEngine(Protocol):
    """Anything that answers a question; ``aquery``, where there is one, is awaited."""

    def query(self, query: str, /) -> Any:
        """Answer."""
        ...


@dataclass(frozen=True, slots=True)
class CombinedResponse:
    """What several query engines answered.

    Attributes:
        responses: by the name of the engine, as it gave it, in the order of the selection.
        failures: by the name of the engine, the error of each that failed.
    """

    responses: Mapping[str, Any]
    failures: Mapping[str, Exception]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.responses.values()))


class MultiIndexQueryEngine:
    """Passes a question to the query engine that the selector chooses (S9).

    One chosen alone answers as if it had been asked directly. Of several, all are asked at once, and the answer is a
    `CombinedResponse`. It is a query engine itself, so engines nest.

    Args:
        query_engines: at least one; anything with ``query(str)``.
        descriptions: what each knows, in the same order.
        selector: chooses among the descriptions.
        names: what each is called; ``index_0`` and so on.
        timeout: seconds that several have together; one that is late is left out. One alone takes the time it takes.

    Raises:
        InputError: the lists differ in length, or something in ``query_engines`` has no ``query``.
    """

    def __init__(
        self,
        query_engines: Sequence[QueryEngine],
        descriptions: Sequence[str],
        selector: BaseSelector,
        *,
        names: Sequence[str] | None = None,
        timeout: float | None = 10 * TIMEOUT,
    ) -> None:
        self.query_engines = tuple(query_engines)
        Deadline(timeout)
        self._timeout = timeout
        for engine in self.query_engines:
            if not callable(getattr(engine, "query", None)):
                raise InputError(f"a query engine has a method query(str), {engine!r:.80} has not")
        names = [f"index_{number}" for number in range(len(self.query_engines))] if names is None else names
        self.selector = selector
        self._switch: _Switch[Any] = _Switch("query engine", names, descriptions, len(self.query_engines), selector)

    def query(self, query: str) -> Any:
        """The chosen engine's response, or a `CombinedResponse` where several or none were chosen.

        Raises:
            RetrievalError: several were chosen and all of them failed; it carries each one's error.
        """
        question = Query.of(query)
        selection = self.selector.select(self._switch.choices, question)
        return _response(
            run(self._switch.follow(Threads(), question, selection, self._asking(question), self._timeout))
        )

    async def aquery(self, query: str) -> Any:
        """The same, awaited; an engine without ``aquery`` runs in a worker thread."""
        question = Query.of(query)
        selection = await self.selector.aselect(self._switch.choices, question)
        return _response(await self._switch.follow(Tasks(), question, selection, self._asking(question), self._timeout))

    def _asking(self, query: Query) -> Callable[[int], Call[Any]]:
        def ask(index: int) -> Call[Any]:
            engine = self.query_engines[index]
            aquery = getattr(engine, "aquery", None)
            return Call(
                lambda: engine.query(query.text),
                lambda: aquery(query.text) if aquery is not None else in_thread(engine.query, query.text),
            )

        return ask


def _response(routed: Routed[Any]) -> Any:
    if len(routed.selection.selections) == 1:
        return next(iter(routed.answers.values()))
    return CombinedResponse(routed.answers, routed.failures)


TEXT = ToolMetadata("text", "Written text: facts, explanations, definitions, documents.")
IMAGE = ToolMetadata("image", "Pictures: photos, drawings, illustrations, screenshots and other images.")


class MultiModalRetriever(RouterRetriever):
    """Text retrieval or image retrieval, whichever a query asks for (S11).

    Args:
        text_retriever: finds text.
        image_retriever: finds images.
        selector: chooses between the choices ``text`` and ``image``, in this order; `ImageCueSelector` unless given.
    """

    def __init__(
        self, text_retriever: Retriever, image_retriever: Retriever, selector: BaseSelector | None = None
    ) -> None:
        super().__init__(
            [text_retriever, image_retriever],
            [TEXT.description, IMAGE.description],
            selector or ImageCueSelector(),
            names=[TEXT.name, IMAGE.name],
        )


class ImageCueSelector(BaseSelector):
    """The choice named ``image`` where a query asks for one in English, Chinese or Russian, else the first other one.

    Cues are words, not substrings: *imagery* and *图书馆* (library) are none. Neither are images nobody looks at:
    *docker image*, *image processing*, *обработка изображений*.
    """

    def select(self, choices: Sequence[ToolMetadata | str], query: Query | str) -> SelectorResult:
        """One choice.

        Raises:
            InputError: no choice is named ``image``, or none is named otherwise.
        """
        names = [choice.name if isinstance(choice, ToolMetadata) else choice for choice in choices]
        if IMAGE.name not in names or set(names) == {IMAGE.name}:
            raise InputError(f"one choice is named 'image' and another is not; these are {names}")
        cue = image_cue(Query.of(query).text)
        if cue is not None:
            return SelectorResult([SingleSelection(names.index(IMAGE.name), f"asks for an image: {cue}")])
        other = next(index for index, name in enumerate(names) if name != IMAGE.name)
        return SelectorResult([SingleSelection(other, "nothing asks for an image")])


def image_cue(text: str) -> str | None:
    """The word by which a text asks for an image, if it does.

    >>> image_cue("show me photos of Mars"), image_cue("图书馆几点开门"), image_cue("покажи рисунок кота")
    ('photos', None, 'рисунок')
    """
    match = IMAGE_WORDS.first(plain(text))
    return text[match.start : match.end] if match else None
