"""Retrievers and query engines, for text or images, that call what a selector chooses."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pointsman.retrieval.plan.routers import image_cue
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.retrievers.foreign_retriever import as_retriever
from pointsman.retrieval.retrievers.hybrid_retriever import TIMEOUT
from pointsman.retrieval.run.candidates import hits_of
from pointsman.retrieval.run.merged_results import RetrieverResults, together
from pointsman.selector.base_selector import (
    BaseSelector,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    as_selector,
    selecting,
)
from pointsman.tools.errors import InputError, RetrievalError
from pointsman.tools.parallel_calls import Deadline, DualCall, Mode, describe, sync_and_async
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.argument_checks import check_top_k
from pointsman.values.retrieval_context import Hits
from pointsman.values.types import Hit, Query, Span, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.values.protocols import Retriever

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Routed(Generic[T]):
    """The answers of the chosen ones.

    Attributes:
        selection: the selector's decision.
        answers: by the name of the choice, the answers received, in the order of the selection.
        failures: by the name of the choice, the error of each that failed.
    """

    selection: SelectorResult
    answers: Mapping[str, T]
    failures: Mapping[str, Exception] = field(default_factory=dict)


class _Switch(Generic[T]):
    """Described options, a selector, and an action for a chosen one; shared by the classes below."""

    def __init__(
        self,
        kind: str,
        options: Sequence[Any],
        descriptions: Sequence[str],
        selector: BaseSelector,
        names: Sequence[str],
        limit: float | None,
    ) -> None:
        Deadline(limit)
        count = len(options)
        if not count:
            raise InputError(f"give at least one {kind}")
        for option, values in (("descriptions", descriptions), ("names", names)):
            if isinstance(values, str) or len(values) != count:
                raise InputError(f"{count} {kind}s need {count} {option}, one each, not {values!r:.80}")
        if len(set(names)) < count:
            raise InputError(f"names differ from one another; {list(names)!r:.200} don't")
        self.kind, self.options, self.limit, self.selector = kind, options, limit, as_selector(selector)
        self.choices = tuple(ToolMetadata(name, text) for name, text in zip(names, descriptions, strict=True))

    async def follow(self, mode: Mode, query: Query, ask: Callable[[Any], DualCall[T]]) -> Routed[T]:
        """Select, and call every chosen one, in parallel if there are several; a single one raises its own error."""
        selection = await mode.one(selecting(self.selector, self.choices, query))
        indexes, calls = selection.inds, [ask(self.options[index]) for index in selection.inds]
        for chosen in selection.selections:
            log.info("chose %s %s: %s", self.kind, self.choices[chosen.index].name, chosen.reason)
        if len(indexes) == 1:
            return Routed(selection, {self.choices[indexes[0]].name: await mode.one(calls[0])})
        answers: dict[str, T] = {}
        failures: dict[str, Exception] = {}
        outcomes = await mode.all(calls, self.limit) if calls else []
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
    """Retrieves from the retriever that a selector chooses; if it chooses several, fuses them by reciprocal rank.

    A single chosen retriever behaves as if called directly, errors included. Several are called in parallel; one that
    fails is logged and left out. If the selector abstains, there are no hits.

    Args:
        retrievers: at least one.
        descriptions: what each is good for, in the same order.
        selector: chooses among the descriptions.
        names: their names for the selector and in the provenance of hits; by default ``retriever_0`` and so on.
        timeout: seconds for several together; one that is late is left out. A single one has no time limit.

    Raises:
        InputError: the lists differ in length, or an object in ``retrievers`` is not a retriever.
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
        self.retrievers = tuple(map(as_retriever, retrievers))
        names = [f"retriever_{number}" for number in range(len(self.retrievers))] if names is None else names
        self._switch = _Switch[list[Hit]]("retriever", self.retrievers, descriptions, selector, names, timeout)
        self.selector, self.descriptions = self._switch.selector, tuple(descriptions)

    async def _retrieve(self, mode: Mode, query: str | Query, top_k: int = 10) -> Hits:
        """Return at most ``top_k`` hits, best first; see ``routed`` for their origin.

        Raises:
            RetrievalError: several were chosen and all of them failed; it carries every error.
        """
        return _fuse_answers(await self._routed(mode, query, top_k), top_k)

    retrieve, aretrieve = sync_and_async(_retrieve)

    async def _routed(self, mode: Mode, query: str | Query, top_k: int = 10) -> Routed[list[Hit]]:
        """Return the selection, the hits of each chosen retriever, and the failures."""
        question = Query.of(query)
        check_top_k(top_k)

        def ask(retriever: Retriever) -> DualCall[list[Hit]]:
            return DualCall(partial(retriever.retrieve, question, top_k), partial(retriever.aretrieve, question, top_k))

        return await self._switch.follow(mode, question, ask)

    routed, arouted = sync_and_async(_routed)


def _fuse_answers(answers: Routed[list[Hit]], top_k: int) -> Hits:
    """The hits of a single chosen retriever unchanged; of several, fused, each hit with its provenance.

    Either way the trace says what was chosen and why, and ``degraded`` reports a fallback of the selector.
    """
    selection = answers.selection
    names = ", ".join(answers.answers) or "nothing"
    span = Span("route", f"{names}: {'; '.join(selection.reasons) or 'no choice fits'}", 0.0, len(selection.selections))
    fallback = selection.fallback
    notes = () if fallback is None else (f"route: fell back to {fallback.policy!r}: {fallback.why}",)
    if len(selection.selections) <= 1:
        hits = next(iter(answers.answers.values()), [])
        trace, degraded = getattr(hits, "trace", Trace()), tuple(getattr(hits, "degraded", ()))
        return Hits(hits, replace(trace, spans=(span, *trace.spans)), (*notes, *degraded))
    results = together({n: RetrieverResults.of(name, hits) for n, (name, hits) in enumerate(answers.answers.items())})
    failures = tuple(f"{name}: {describe(error)}" for name, error in answers.failures.items())
    ranking = results.pool.fused("rrf")
    return Hits(hits_of(results, ranking, top_k), Trace((span,)), (*notes, *failures, *results.degraded))


class QueryEngine(Protocol):
    """Anything that answers a question; ``aquery``, if present, is awaited."""

    def query(self, query: str, /) -> Any:
        """Answer."""
        ...


@dataclass(frozen=True, slots=True)
class CombinedResponse:
    """The answers of several query engines.

    Attributes:
        responses: by engine name, the unchanged responses, in the order of the selection.
        failures: by engine name, the error of each that failed.
        metadata: ``selector_result`` says what was chosen and why.
    """

    responses: Mapping[str, Any]
    failures: Mapping[str, Exception]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.responses.values()))


class MultiIndexQueryEngine:
    """Passes a question to the query engine that a selector chooses.

    A single chosen engine behaves as if called directly. Several are called in parallel, and the answer is a
    `CombinedResponse`. It is a query engine itself, so engines nest.

    Args:
        query_engines: at least one; anything with ``query(str)``.
        descriptions: what each knows, in the same order.
        selector: chooses among the descriptions.
        names: their names; by default ``index_0`` and so on.
        timeout: seconds for several together; one that is late is left out. A single one has no time limit.

    Raises:
        InputError: the lists differ in length, or an object in ``query_engines`` has no ``query``.
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
        for engine in self.query_engines:
            if not callable(getattr(engine, "query", None)):
                raise InputError(f"a query engine has a method query(str), {engine!r:.80} has not")
        names = [f"index_{number}" for number in range(len(self.query_engines))] if names is None else names
        self._switch = _Switch[Any]("query engine", self.query_engines, descriptions, selector, names, timeout)
        self.selector, self.descriptions = self._switch.selector, tuple(descriptions)

    async def _query(self, mode: Mode, query: str | Query) -> Any:
        """Return the chosen engine's response, or a `CombinedResponse` if several or none were chosen.

        An engine without ``aquery`` runs in a worker thread. What was chosen and why is logged, and stands in
        ``metadata["selector_result"]`` of a response that has metadata, as LlamaIndex's do; ``routed`` returns it too.

        Raises:
            RetrievalError: several were chosen and all of them failed; it carries every error.
        """
        return _response(await self._routed(mode, query))

    query, aquery = sync_and_async(_query)

    async def _routed(self, mode: Mode, query: str | Query) -> Routed[Any]:
        """Return the selection, the response of each chosen engine, and the failures."""
        question = Query.of(query)

        def ask(engine: Any) -> DualCall[Any]:
            aquery = getattr(engine, "aquery", None) or partial(in_thread, engine.query)
            return DualCall(partial(engine.query, question.text), partial(aquery, question.text))

        return await self._switch.follow(mode, question, ask)

    routed, arouted = sync_and_async(_routed)


def _response(answers: Routed[Any]) -> Any:
    if len(answers.selection.selections) != 1:
        return CombinedResponse(answers.answers, answers.failures, {"selector_result": answers.selection})
    response = next(iter(answers.answers.values()))
    if isinstance(metadata := getattr(response, "metadata", None), dict):
        metadata["selector_result"] = answers.selection
    return response


TEXT = ToolMetadata("text", "Written text: facts, explanations, definitions, documents.")
IMAGE = ToolMetadata("image", "Pictures: photos, drawings, illustrations, screenshots and other images.")


class MultiModalRetriever(RouterRetriever):
    """Retrieves text or images, depending on the query.

    Args:
        text_retriever: finds text.
        image_retriever: finds images.
        selector: chooses between ``text`` and ``image``, given in this order; `ImageCueSelector` by default.
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
    """Selects ``image`` if a query asks for an image in English, Chinese or Russian, else the first other choice.

    Cues are words, not substrings: *imagery* and *图书馆* (library) are not cues. Neither are images that nobody views:
    *docker image*, *image processing*, *обработка изображений*.
    """

    def select(self, choices: Sequence[ToolMetadata | str], query: Query | str) -> SelectorResult:
        """Return one choice.

        Raises:
            InputError: no choice is named ``image``, or all are.
        """
        names = [choice.name if isinstance(choice, ToolMetadata) else choice for choice in choices]
        if IMAGE.name not in names or set(names) == {IMAGE.name}:
            raise InputError(f"one choice is named 'image' and another is not; these are {names}")
        cue = image_cue(Query.of(query).text)
        if cue is not None:
            return SelectorResult([SingleSelection(names.index(IMAGE.name), f"asks for an image: {cue}")])
        text_index = next(index for index, name in enumerate(names) if name != IMAGE.name)
        return SelectorResult([SingleSelection(text_index, "nothing asks for an image")])
