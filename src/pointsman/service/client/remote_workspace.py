"""A service's datasets, with the interface of a local workspace."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from pointsman.retrieval.request import SearchRequest, WorkspaceOptions
from pointsman.retrieval.workflow import several
from pointsman.service.client import endpoints
from pointsman.service.client.remote_dataset import RemoteDataset
from pointsman.service.client.request_encoding import as_json, batches, sendable, sent_options, with_history
from pointsman.service.client.service_calls import Service
from pointsman.tools.errors import InputError, ServiceError, UnknownNameError, UnmetNeedError
from pointsman.tools.json_forms import of_form
from pointsman.tools.parallel_calls import Mode, sync_and_async
from pointsman.tools.sync_and_async import async_twin
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.values.retrieval_context import RetrievalContext
from pointsman.values.types import Explanation, Plan, Query, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pointsman.retrieval.plan.policy import Policy
    from pointsman.retrieval.plan.recommended_strategy import Recommendation
    from pointsman.retrieval.run.source import IndexingTechnique
    from pointsman.service.client.client_connections import Transport
    from pointsman.values.retrieval_context import TraceDetail
    from pointsman.workspace.indexing.index_report import IndexOptions, IndexReport
    from pointsman.workspace.workspace_search import Routing

_LATE_SECONDS: Final = 5.0
"""Extra time for the round trip of a search with its own time limit."""

_QUESTIONS: Final = 10
"""Number of questions in `search_many` that share the timeout of one call; they are embedded in batches."""


class Client(Lifecycle):
    """The datasets of a service, with the methods of `Workspace`.

    One client may be used from any number of threads and event loops: synchronous calls share one pool of connections,
    asynchronous calls have one per event loop, closed when the loop ends. A forked process makes its own. A client
    cannot be pickled, as that would expose the key.

    Calls are retried if that is safe: when no connection could be made; when the service is too busy (429, 503) and
    says when to retry; and, except for deletions, when the connection broke.

    The key is sent only to the given address, in the ``Authorization`` header: redirects are not followed, no error or
    log repeats it, and an ``http://`` address of another machine is refused with a key unless ``insecure`` says that
    the network is safe. (A warning would come too late, with the key already sent.)

    Answers can explain any document. The rankings that this needs would make answers three to five times as large and
    searches at least half as long again, so they are not sent by default: `RetrievalContext.explain` asks the service,
    which searches again and says so if the answer has changed. With ``trace="lists"`` they are sent and used here.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 2,
        insecure: bool = False,
        transport: Transport | None = None,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            url: the service's address, such as ``http://127.0.0.1:8080`` or ``https://example.org/pointsman``.
            key: as printed by ``pointsman keys create``; None if the service needs none.
            timeout: seconds for a call including retries. A search with a longer time limit gets more; `search_many`
                gets it for every ten questions, and `add` for every batch that the service acknowledges.
            retries: maximum number of retries of a request.
            insecure: send the key to another machine without encryption.
            transport: an httpx transport, for certificates, proxies or an application in this process. One that is only
                synchronous, or only asynchronous, serves only such calls.

        Raises:
            InputError: an argument is invalid, or the key would be sent unencrypted.
        """
        self._service = Service(url, key, timeout, retries, insecure=insecure, transport=transport)

    def __repr__(self) -> str:
        return f"Client({self._service.url!r})"

    def __reduce__(self) -> str:
        raise TypeError("a Client cannot be pickled or copied: its key would be exposed; create one where it is used")

    @property
    def place(self) -> str:
        """The address of the service."""
        return self._service.url

    # ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────

    def dataset(
        self,
        name: str,
        *,
        description: str | None = None,
        indexing_technique: IndexingTechnique | None = None,
        versions: str | None = None,
        create: bool = True,
    ) -> RemoteDataset:
        """Return the dataset of this name; one that does not exist yet is created by the first write.

        A key for writing only cannot ask whether it exists; the first write then creates it if needed.

        Args:
            name: see `Dataset`.
            description: the description to set.
            indexing_technique: for a new dataset, by default ``"hybrid"``; an existing one keeps its own.
            versions: keep what is replaced or deleted for a time such as ``"90 days"``, or ``"off"``.
            create: if False, an unknown name is an error.

        Raises:
            UnknownNameError: it does not exist and ``create`` is False.
            InputError: the name is invalid, or the dataset was created with another ``indexing_technique``.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        try:
            status = self.status(name)
        except (UnknownNameError, ServiceError) as error:
            if not create or (isinstance(error, ServiceError) and error.status != 403):
                raise
            new = {"description": description, "indexing_technique": indexing_technique, "versions": versions}
            return RemoteDataset(self, self._service, name, description or "", indexing_technique or "hybrid", new=new)
        current = status["indexing_technique"]
        if indexing_technique not in {None, current}:
            raise UnmetNeedError(
                f"dataset {name!r} was made for {current!r} search; delete it to index it for {indexing_technique!r}"
            )
        dataset = self._dataset(status)
        if description is not None and description != dataset.description:
            dataset.describe(description)
        if versions is not None:
            dataset.keep_versions(versions)
        return dataset

    adataset = async_twin(dataset)

    def names(self) -> list[str]:
        """Return the names of all datasets that the key gives access to, sorted."""
        return [dataset.name for dataset in self.datasets()]

    anames = async_twin(names)

    async def _datasets(self, mode: Mode) -> list[RemoteDataset]:
        """Return all datasets that the key gives access to, sorted by name."""
        return [self._dataset(status) for status in await self._service.ask(mode, endpoints.DATASETS)]

    datasets, adatasets = sync_and_async(_datasets)

    def drop(self, name: str) -> None:
        """Delete a dataset with all its documents.

        Raises:
            UnknownNameError: there is no dataset of this name.
            LockedError: another process is writing to it.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        self._service.call(endpoints.DROP, name)

    adrop = async_twin(drop)

    def status(self, name: str) -> dict[str, Any]:
        """Return a dataset's status: documents, embedder, bytes on disk, and whether its index is out of date.

        The memory is that of the service's process; see `Workspace.status`.

        Raises:
            UnknownNameError: there is no dataset of this name.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        return self._service.call(endpoints.STATUS, name)

    astatus = async_twin(status)

    def index(
        self,
        paths: str | Path | Iterable[str | Path],
        dataset: str = "files",
        *,
        description: str | None = None,
        versions: str | None = None,
        **options: Unpack[IndexOptions],
    ) -> IndexReport:
        """Synchronise a dataset of the service with files and folders of this machine; see `Workspace.index`.

        Files are read here; the service embeds their passages.

        Raises:
            InputError: a path does not exist, a size is out of range, or a pattern or rule is none.
            IndexingInterrupted: Ctrl-C; committed passages are kept, and indexing again continues from there.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        from pointsman.workspace.indexing.folder_sync import index_paths

        target: Any = self.dataset(dataset, description=description, versions=versions)
        return index_paths(target, paths, **options)

    aindex = async_twin(index)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _search(  # noqa: D417  (callers do not give the mode)
        self,
        mode: Mode,
        query: str | Query,
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[WorkspaceOptions],
    ) -> RetrievalContext:
        """Search datasets and return the best hits of all.

        Args:
            query: the question.
            k: maximum number of hits.
            trace: how much of the trace is included: ``"none"``, ``"stages"``, or ``"lists"`` with every ranking.
                With ``"lists"``, documents can be explained without blocking.
            options: see `pointsman.retrieval.request.WorkspaceOptions`. Without ``datasets``, all that the key gives
                access to
                are searched. The service's settings and language models apply, and objects cannot be sent: ``rerank``
                and ``refuse`` are True, False, None or a name, ``effort`` is a name.

        Raises:
            InputError: an argument is invalid, or cannot be sent.
            RetrievalError: nothing could be searched; it carries all causes.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        request = SearchRequest.of(query, k, options)
        question, search_options = request.query, sent_options(request, trace)
        body = {**search_options, **with_history(question), "query": sendable(question.text)}
        answer = await self._service.ask(mode, endpoints.SEARCH, body=body, seconds=self._time_for(search_options))
        return self._context(answer, question, body)

    search, asearch = sync_and_async(_search)

    async def _search_many(
        self,
        mode: Mode,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[WorkspaceOptions],
    ) -> list[RetrievalContext]:
        """Answer many questions, embedding and reranking them in batches; return one context each, in order.

        The options of `search` apply to every question. The questions are split into as many requests as the service's
        limits require; those with different filters or histories are sent separately.
        """
        request = several(queries, k, options)
        questions, search_options = request.queries, sent_options(request, trace)
        if not questions:
            return []
        groups: dict[bytes, list[int]] = {}
        for position, query in enumerate(questions):
            groups.setdefault(as_json(with_history(query)), []).append(position)
        limits = await self._service.limits(mode)
        answers: dict[int, RetrievalContext] = {}
        for positions in groups.values():
            common = {**search_options, **with_history(questions[positions[0]])}
            room = limits["max_body_bytes"] - len(as_json(common)) - 100
            texts = [sendable(questions[position].text) for position in positions]
            sizes = [len(as_json(text)) + 2 for text in texts]
            room_left = limits["max_request_chars"] - sum(len(turn["text"]) for turn in common["history"])
            for start, end in batches(limits["max_batch"], (sizes, room), ([*map(len, texts)], room_left)):
                body = {**common, "queries": texts[start:end]}
                seconds = self._time_for(search_options) * math.ceil((end - start) / _QUESTIONS)
                answer = await self._service.ask(mode, endpoints.SEARCH_MANY, body=body, seconds=seconds)
                with self._service.reading(endpoints.SEARCH_MANY.answer):
                    for position, text, value in zip(
                        positions[start:end], texts[start:end], answer["answers"], strict=True
                    ):
                        answers[position] = self._context(value, questions[position], {**common, "query": text})
        return [answers[position] for position in range(len(questions))]

    search_many, asearch_many = sync_and_async(_search_many)

    async def _replay(self, mode: Mode, receipt: str, *, trace: TraceDetail = "stages") -> RetrievalContext:  # noqa: D417  (callers do not give the mode)
        """Return the same answer again that a receipt is of; see `Workspace.replay`.

        Args:
            receipt: `RetrievalContext.receipt` of an answer.
            trace: what the answer's trace includes.

        Raises:
            NotHeldError: something that the answer was made of is no longer held.
            InputError: it is not a receipt of the service's workspace.
        """
        answer = await self._service.ask(mode, endpoints.REPLAY, body={"receipt": receipt, "trace": trace})
        with self._service.reading(endpoints.REPLAY.answer):
            return RetrievalContext.from_dict(answer)

    replay, areplay = sync_and_async(_replay)

    async def _route(  # noqa: D417  (callers do not give the mode)
        self,
        mode: Mode,
        query: str | Query,
        datasets: str | Sequence[str | RemoteDataset] | None = None,
        strategy: str = "auto",
    ) -> Routing:
        """Return how and where a query would be searched, and why, without searching.

        Args:
            query: the question.
            datasets: the candidates, or their names; by default all that the key gives access to.
            strategy: as for a search.
        """
        from pointsman.retrieval.plan.routers import RouteDecision
        from pointsman.workspace.workspace_search import Routing

        by_name: dict[str, Any] = _by_name(datasets)
        if datasets is None or None in by_name.values():
            datasets_by_name = {dataset.name: dataset for dataset in await self._datasets(mode)}
            by_name = (
                datasets_by_name
                if datasets is None
                else {name: by_name[name] or datasets_by_name.get(name) for name in by_name}
            )
        body = {"query": sendable(Query.of(query).text), "datasets": list(by_name), "strategy": strategy}
        reply = await self._service.ask(mode, endpoints.ROUTE, body=body)
        with self._service.reading(endpoints.ROUTE.answer):
            decision = reply["decision"]
            if decision is not None:
                selection = tuple(by_name[name] for name in decision["datasets"])
                decision = of_form(RouteDecision, {**decision, "datasets": selection})
            heuristic: Any = {"route": reply["heuristic"]["route"], "reasons": list(reply["heuristic"]["reasons"])}
            plan, reason = of_form(Plan, reply["plan"]), str(reply["heuristic_reason"])
            return Routing(str(reply["query"]), heuristic, plan, decision, reason)

    route, aroute = sync_and_async(_route)

    def plan(
        self, datasets: str | Sequence[str | RemoteDataset], strategy: str = "auto", query: str | Query = ""
    ) -> Plan:
        """Return what a search of these datasets, or of those with these names, would do, and why."""
        plan: Plan | None = self.route(query, datasets, strategy).plan
        assert plan is not None, "a service has a workspace"
        return plan

    aplan = async_twin(plan)

    def recommend(
        self, query: str | Query, datasets: str | Sequence[str | RemoteDataset] | None = None
    ) -> Recommendation:
        """Return the strategy that a question's wording suggests, among those usable in these datasets."""
        parameters = [("query", sendable(Query.of(query).text)), *(("datasets", name) for name in _by_name(datasets))]
        return self._service.call(endpoints.RECOMMEND, parameters=parameters)

    arecommend = async_twin(recommend)

    def keep(self, policy: Policy | None) -> None:
        """Make the service decide by this policy; None restores the measured one.

        Raises:
            InputError: the policy cannot be sent.
            ServiceError: the service cannot be reached, or the key does not allow writing to all datasets.
        """
        if policy is None:
            self._service.call(endpoints.DELETE_POLICY)
            return
        from pointsman.retrieval.plan.policy import Policy

        if not isinstance(policy, Policy):
            raise InputError(f"a policy is a Policy, or None, not {type(policy).__name__}")
        self._service.call(endpoints.SET_POLICY, body=json.loads(policy.to_json()))

    akeep = async_twin(keep)

    # ── the connections ──────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Close the connections of synchronous calls. Every further call is an `InputError`."""
        self._service.link.close()

    async def aclose(self) -> None:
        """Close these and those of the running event loop; others are closed when their loops end."""
        self._service.link.close()
        await self._service.link.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __iter__(self) -> Iterator[RemoteDataset]:
        return iter(self.datasets())

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _dataset(self, status: Any) -> RemoteDataset:
        return RemoteDataset(self, self._service, status["name"], status["description"], status["indexing_technique"])

    def _time_for(self, options: Mapping[str, Any]) -> float:
        """Return the seconds to wait for a search; longer if the search has a longer time limit."""
        timeout = options.get("timeout")
        return self._service.timeout if timeout is None else max(self._service.timeout, timeout + _LATE_SECONDS)

    def _context(self, value: Any, query: Query, body: Mapping[str, Any]) -> RetrievalContext:
        """Return the answer; if rankings were not sent, the service is asked to explain."""
        with self._service.reading(endpoints.SEARCH.answer):
            context = RetrievalContext.from_dict(value, query)
        if body["trace"] == "lists":
            return context
        keys = [hit.key for hit in context.hits]
        trace = _AskedTrace(context.trace.spans, context.trace.records, partial(self._explain, body, keys))
        return replace(context, trace=trace)

    def _explain(
        self, body: Mapping[str, Any], keys: Sequence[Any], document_id: str, dataset: str | None
    ) -> Explanation:
        """Make the service search again and explain; the answer may have changed since."""
        payload = {**body, "trace": "none", "document_id": document_id, "dataset": dataset}
        answer = self._service.call(endpoints.EXPLAIN, body=payload, seconds=self._time_for(body))
        with self._service.reading(endpoints.EXPLAIN.answer):
            explanation = of_form(Explanation, answer)
            context = RetrievalContext.from_dict(answer["answer"])
        if [hit.key for hit in context.hits] != list(keys):
            summary = f"{explanation.summary}; this explains a new search, whose answer differs from the original"
            return replace(explanation, summary=summary)
        return explanation


def _by_name(datasets: str | Sequence[str | RemoteDataset] | None) -> dict[str, RemoteDataset | None]:
    """Return datasets by name; None for those given by their names only."""
    selection = [datasets] if isinstance(datasets, str | RemoteDataset) else datasets or ()
    return dict((dataset, None) if isinstance(dataset, str) else (dataset.name, dataset) for dataset in selection)


@dataclass(frozen=True, slots=True)
class _AskedTrace(Trace):
    """A trace without rankings; the service is asked to explain."""

    ask: Callable[[str, str | None], Explanation] | None = field(default=None, repr=False, compare=False)

    def explain(self, document_id: str, dataset: str | None = None) -> Explanation:
        """See `Trace.explain`; this makes the service search again.

        Raises:
            InputError: the id is not a str, or the answer was pickled and so has no client.
            ServiceError: the service cannot be reached.
        """
        if not isinstance(document_id, str):
            raise InputError(f"a document's id is a str, not {document_id!r:.80}")
        if self.ask is None:
            raise InputError(
                "this answer lost its client when it was pickled, and cannot be explained; search with trace='lists'"
            )
        return self.ask(document_id, dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        return _AskedTrace, (self.spans, self.records)
