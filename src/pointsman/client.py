"""A remote workspace with the interface of a local one.

`Client` has the methods of `Workspace`, and `RemoteDataset` those of `Dataset` that HTTP can carry, so a program moves
to ``pointsman serve`` by changing one line. It returns the library's own types and raises its own errors; failures that
only a service can have are `ServiceError`.

Responses are checked before they are used. Each sequence of requests is written once, for synchronous and asynchronous
calls; see `pointsman.retrieval.dispatch`.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack
from urllib.parse import quote, urlencode

from pointsman._forms import of_form
from pointsman._remote import (
    LINES,
    Failure,
    Reply,
    Request,
    Service,
    TooLargeError,
    as_json,
    number_of,
    problem_document,
    reply_of,
    sendable,
    time_limit,
)
from pointsman._twins import async_twin
from pointsman._values import plain
from pointsman.errors import FilterError, InputError, PointsmanError, ServiceError, UnknownNameError, UnmetNeedError
from pointsman.filters import MAX_LENGTH, And, Equals, Exists, In, Not, Or, PartOfText, Range, parse_optional
from pointsman.passages import SourceText
from pointsman.request import OPTIONS, SearchOptions, SearchRequest, WorkspaceOptions, of_one_dataset
from pointsman.retrieval.dispatch import Mode, Tasks, Threads, run
from pointsman.types import (
    TRACE_DETAILS,
    AddResult,
    Document,
    Explanation,
    Hit,
    Plan,
    Query,
    RetrievalContext,
    Trace,
    check_changes,
    check_id,
    check_ids,
    check_page,
    check_top_k,
)
from pointsman.workflow import several

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman._remote import Transport
    from pointsman.filters import Filter
    from pointsman.indexing import IndexReport
    from pointsman.indexing import Progress as IndexingProgress
    from pointsman.ingest import FileLimits
    from pointsman.retrieval.policy import Policy
    from pointsman.retrieval.routing.recommend import Recommendation
    from pointsman.retrieval.source import IndexingTechnique
    from pointsman.store.local.collection import Verification
    from pointsman.types import Documents, TraceDetail
    from pointsman.workspace import Routing

_WINDOW, _WINDOW_BYTES, _WINDOW_SECONDS = 1024, 2**20, 1.0
"""Most documents, bytes and seconds of one `add` request: small enough to hold in memory and resend, and to pass on
documents of a slow source as they arrive."""

_LOCK_SECONDS: Final = 30.0
"""How long a service waits for another process that is writing."""

_LATE_SECONDS: Final = 5.0
"""Extra time for the round trip of a search with its own time limit."""

_EMBED_POLL: Final = 0.5
_EMBED_PATIENCE: Final = 60.0
"""Seconds between checks of the number of missing vectors, and seconds without a new one that count as an error."""

_QUESTIONS: Final = 10
"""Number of questions in `search_many` that share the timeout of one call; they are embedded in batches."""

_URL_BYTES: Final = 39_000
"""Most bytes of URL parameters: a service accepts addresses of 40,000 bytes."""

_PAGE: Final = 500
_MOST_OF_A_PAGE: Final = 1000
"""Most documents that a service returns in a page."""

_PLAIN_NAME = re.compile(r"[\w\-][\w.\-]*")
"""Names that cannot be a path; the service decides whether they can name a dataset."""


class Client:
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
            MissingDependencyError: the package ``httpx`` is not installed.
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
        create: bool = True,
    ) -> RemoteDataset:
        """Return the dataset of this name; one that does not exist yet is created by the first write.

        A key for writing only cannot ask whether it exists; the first write then creates it if needed.

        Args:
            name: see `Dataset`.
            description: the description to set.
            indexing_technique: for a new dataset, by default ``"hybrid"``; an existing one keeps its own.
            create: if False, an unknown name is an error.

        Raises:
            UnknownNameError: it does not exist and ``create`` is False.
            InputError: the name is invalid, or the dataset was created with another ``indexing_technique``.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        try:
            about = self.status(name)
        except (UnknownNameError, ServiceError) as error:
            if not create or (isinstance(error, ServiceError) and error.status != 403):
                raise
            new = {"description": description, "indexing_technique": indexing_technique}
            return RemoteDataset(self, self._service, name, description or "", indexing_technique or "hybrid", new=new)
        current = about["indexing_technique"]
        if indexing_technique not in {None, current}:
            raise UnmetNeedError(
                f"dataset {name!r} was made for {current!r} search; delete it to index it for {indexing_technique!r}"
            )
        dataset = self._dataset(about)
        if description is not None and description != dataset.description:
            dataset.describe(description)
        return dataset

    adataset = async_twin(dataset)

    def names(self) -> list[str]:
        """Return the names of all datasets that the key gives access to, sorted."""
        return [dataset.name for dataset in self.datasets()]

    anames = async_twin(names)

    def datasets(self) -> list[RemoteDataset]:
        """Return all datasets that the key gives access to, sorted by name."""
        return run(self._datasets(Threads()))

    adatasets = async_twin(datasets)

    def drop(self, name: str) -> None:
        """Delete a dataset with all its documents.

        Raises:
            UnknownNameError: there is no dataset of this name.
            LockedError: another process is writing to it.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        self._service.call(Request("DELETE", _path(name), repeatable=False))

    adrop = async_twin(drop)

    def status(self, name: str) -> dict[str, Any]:
        """Return a dataset's status: documents, embedder, bytes on disk, and whether its index is out of date.

        Raises:
            UnknownNameError: there is no dataset of this name.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        return _described(self._service, self._service.call(Request("GET", _path(name))))

    astatus = async_twin(status)

    def index(
        self,
        paths: str | Path | Iterable[str | Path],
        dataset: str = "files",
        *,
        description: str | None = None,
        hidden: bool = False,
        max_tokens: int | None = None,
        overlap: int | None = None,
        limits: FileLimits | None = None,
        on_progress: IndexingProgress | None = None,
    ) -> IndexReport:
        """Synchronise a dataset of the service with files and folders of this machine; see `Workspace.index`.

        Files are read here; the service embeds their passages.

        Raises:
            InputError: a path does not exist, or a size is out of range.
            IndexingInterrupted: Ctrl-C; committed passages are kept, and indexing again continues from there.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        from pointsman.indexing import index_paths

        target: Any = self.dataset(dataset, description=description)
        return index_paths(
            target, paths, hidden=hidden, max_tokens=max_tokens, overlap=overlap, limits=limits, on_progress=on_progress
        )

    aindex = async_twin(index)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(
        self,
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
            options: see `pointsman.request.WorkspaceOptions`. Without ``datasets``, all that the key gives access to
                are searched. The service's settings and language models apply, and objects cannot be sent: ``rerank``
                and ``refuse`` are True, False or None, ``effort`` is a name.

        Raises:
            InputError: an argument is invalid, or cannot be sent.
            RetrievalError: nothing could be searched; it carries all causes.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        request = SearchRequest.of(query, k, options)
        return run(self._search(Threads(), request.query, _sent_options(request, trace)))

    async def asearch(
        self,
        query: str | Query,
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[WorkspaceOptions],
    ) -> RetrievalContext:
        """Async version of `search`. To explain documents without blocking, use ``trace="lists"``."""
        request = SearchRequest.of(query, k, options)
        return await self._search(Tasks(), request.query, _sent_options(request, trace))

    def search_many(
        self,
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
        return run(self._search_many(Threads(), request.queries, _sent_options(request, trace)))

    async def asearch_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[WorkspaceOptions],
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        request = several(queries, k, options)
        return await self._search_many(Tasks(), request.queries, _sent_options(request, trace))

    def route(
        self, query: str | Query, datasets: str | Sequence[str | RemoteDataset] | None = None, strategy: str = "auto"
    ) -> Routing:
        """Return how and where a query would be searched, and why, without searching.

        Args:
            query: the question.
            datasets: the candidates, or their names; by default all that the key gives access to.
            strategy: as for a search.
        """
        return run(self._route(Threads(), query, datasets, strategy))

    async def aroute(
        self, query: str | Query, datasets: str | Sequence[str | RemoteDataset] | None = None, strategy: str = "auto"
    ) -> Routing:
        """Async version of `route`."""
        return await self._route(Tasks(), query, datasets, strategy)

    def plan(
        self, datasets: str | Sequence[str | RemoteDataset], strategy: str = "auto", query: str | Query = ""
    ) -> Plan:
        """Return what a search of these datasets, or of those with these names, would do, and why."""
        plan = self.route(query, datasets, strategy).plan
        assert plan is not None, "a service has a workspace"
        return plan

    aplan = async_twin(plan)

    def recommend(
        self, query: str | Query, datasets: str | Sequence[str | RemoteDataset] | None = None
    ) -> Recommendation:
        """Return the strategy that a question's wording suggests, among those usable in these datasets."""
        from pointsman.retrieval.routing.recommend import Recommendation

        parameters = [("query", sendable(Query.of(query).text)), *(("datasets", name) for name in _by_name(datasets))]
        reply = self._service.call(Request("GET", f"/api/retrieval/recommend_strategy?{urlencode(parameters)}"))
        with self._service.reading("recommendation"):
            others = tuple(
                (str(alternative["strategy"]), float(alternative["confidence"]))
                for alternative in reply["alternatives"]
            )
            name, confidence = str(reply["recommended_strategy"]), float(reply["confidence"])
            return Recommendation(name, confidence, str(reply["reason"]), others)

    arecommend = async_twin(recommend)

    def keep(self, policy: Policy | None) -> None:
        """Make the service decide by this policy; None restores the measured one.

        Raises:
            InputError: the policy cannot be sent.
            ServiceError: the service cannot be reached, or the key does not allow writing to all datasets.
        """
        if policy is None:
            self._service.call(Request("DELETE", "/api/policy"))
            return
        from pointsman.retrieval.policy import Policy

        if not isinstance(policy, Policy):
            raise InputError(f"a policy is a Policy, or None, not {type(policy).__name__}")
        self._service.call(Request("PUT", "/api/policy", as_json(json.loads(policy.to_json()))))

    akeep = async_twin(keep)

    # ── the connections ──────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Close the connections of synchronous calls; the next call opens new ones."""
        self._service.link.close()

    async def aclose(self) -> None:
        """Close these and those of the running event loop; others are closed when their loops end."""
        self._service.link.close()
        await self._service.link.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __iter__(self) -> Iterator[RemoteDataset]:
        return iter(self.datasets())

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _dataset(self, about: Any) -> RemoteDataset:
        about = _described(self._service, about)
        return RemoteDataset(self, self._service, about["name"], about["description"], about["indexing_technique"])

    async def _route(
        self, mode: Mode, query: str | Query, datasets: str | Sequence[str | RemoteDataset] | None, strategy: str
    ) -> Routing:
        from pointsman.retrieval.routing.router import RouteDecision
        from pointsman.workspace import Routing

        by_name: dict[str, Any] = _by_name(datasets)
        if datasets is None or None in by_name.values():
            there = {dataset.name: dataset for dataset in await self._datasets(mode)}
            by_name = there if datasets is None else {name: by_name[name] or there.get(name) for name in by_name}
        body = as_json({"query": sendable(Query.of(query).text), "datasets": list(by_name), "strategy": strategy})
        reply = await self._service.ask(mode, Request("POST", "/api/route", body), self._service.timeout)
        with self._service.reading("route"):
            decision = reply["decision"]
            if decision is not None:
                chosen = tuple(by_name[name] for name in decision["datasets"])
                decision = of_form(RouteDecision, {**decision, "datasets": chosen})
            heuristic: Any = {"route": reply["heuristic"]["route"], "reasons": list(reply["heuristic"]["reasons"])}
            return Routing(str(reply["query"]), heuristic, of_form(Plan, reply["plan"]), decision)

    async def _datasets(self, mode: Mode) -> list[RemoteDataset]:
        reply = await self._service.ask(mode, Request("GET", "/api/datasets"), self._service.timeout)
        with self._service.reading("list of datasets"):
            return [self._dataset(about) for about in reply["datasets"]]

    async def _search(self, mode: Mode, query: Query, options: dict[str, Any]) -> RetrievalContext:
        body = {**options, **_with_history(query), "query": sendable(query.text)}
        request = Request("POST", "/api/search", as_json(body))
        return self._context(await self._service.ask(mode, request, self._time_for(options)), query, body)

    async def _search_many(
        self, mode: Mode, queries: Sequence[Query], options: dict[str, Any]
    ) -> list[RetrievalContext]:
        if not queries:
            return []
        alike: dict[bytes, list[int]] = {}
        for place, query in enumerate(queries):
            alike.setdefault(as_json(_with_history(query)), []).append(place)
        limits = await self._service.limits(mode)
        answers: dict[int, RetrievalContext] = {}
        for places in alike.values():
            common = {**options, **_with_history(queries[places[0]])}
            room = limits["max_body_bytes"] - len(as_json(common)) - 100
            texts = [sendable(queries[place].text) for place in places]
            sizes = [len(as_json(text)) + 2 for text in texts]
            room_left = limits["max_request_chars"] - sum(len(turn["text"]) for turn in common["history"])
            for start, end in _parts(limits["max_batch"], (sizes, room), ([*map(len, texts)], room_left)):
                body = as_json({**common, "queries": texts[start:end]})
                request = Request("POST", "/api/search_many", body)
                seconds = self._time_for(options) * math.ceil((end - start) / _QUESTIONS)
                answer = await self._service.ask(mode, request, seconds)
                with self._service.reading("list of answers"):
                    for place, text, value in zip(places[start:end], texts[start:end], answer["answers"], strict=True):
                        answers[place] = self._context(value, queries[place], {**common, "query": text})
        return [answers[place] for place in range(len(queries))]

    def _time_for(self, options: Mapping[str, Any]) -> float:
        """Return the seconds to wait for a search; longer if the search has a longer time limit."""
        timeout = options.get("timeout")
        return self._service.timeout if timeout is None else max(self._service.timeout, timeout + _LATE_SECONDS)

    def _context(self, value: Any, query: Query, body: Mapping[str, Any]) -> RetrievalContext:
        """Return the answer; if rankings were not sent, the service is asked to explain."""
        with self._service.reading("answer"):
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
        request = Request("POST", "/api/explain", as_json(payload))
        answer = run(self._service.ask(Threads(), request, self._time_for(body)))
        with self._service.reading("explanation"):
            explanation = of_form(Explanation, answer)
            now = RetrievalContext.from_dict(answer["answer"])
        if [hit.key for hit in now.hits] != list(keys):
            verdict = f"{explanation.verdict}; this explains a new search, whose answer differs from the original"
            return replace(explanation, verdict=verdict)
        return explanation


class RemoteDataset:
    """A dataset of a service, with the methods of `Dataset` that HTTP can carry.

    One that does not exist yet is created by the first write. Until then it is empty; a search raises
    `UnknownNameError`.

    Attributes:
        name: its name.
        description: what it contains, as of the creation of this object.
        indexing_technique: ``"vector"``, ``"keyword"`` or ``"hybrid"``.
    """

    def __init__(
        self,
        client: Client,
        service: Service,
        name: str,
        description: str,
        indexing_technique: str,
        *,
        new: Mapping[str, str | None] | None = None,  # the settings with which the first write creates it
    ) -> None:
        self.name, self.description, self.indexing_technique = name, description, indexing_technique
        self._client, self._service, self._exists, self._new = client, service, new is None, dict(new or {})

    def __repr__(self) -> str:
        return f"RemoteDataset({self.name!r}, indexing_technique={self.indexing_technique!r}, client={self._client!r})"

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        documents: Documents,
        *,
        vectors: Any = None,
        embed: bool | Literal["later"] = True,
        on_progress: Callable[[int], None] | None = None,
    ) -> AddResult:
        """Add documents, or update those with known ids; unchanged documents cost nothing.

        Documents are taken from the iterable as they are sent, about a thousand or a megabyte per request, so any
        number needs little memory. After a broken connection, unacknowledged documents are resent; those whose
        acknowledgement was lost then count as unchanged. An id given twice counts once or twice; the last text is kept.
        With a key for writing only, which does not learn what was stored, all documents count as updated.

        Args:
            documents: documents, or mappings with ``id``, ``text`` and optionally ``metadata``; one or several.
            vectors: must be None; the service embeds.
            embed: with ``"later"``, keyword search finds the documents as soon as they are acknowledged, and the
                service computes their vectors afterwards; False is invalid here.
            on_progress: called with the number of documents made durable since the last call.

        Raises:
            InputError: a document is invalid; its batch and those after it are not written.
            UnknownNameError: the dataset no longer exists.
            LockedError: another process is writing to the dataset.
            ServiceError: the service cannot be reached, or the key does not allow it. Each of these errors says how
                many documents are stored, if any; so does a note on an error that ``documents`` raises.
        """
        if vectors is not None:
            raise InputError("the service embeds documents itself; leave vectors out, or open the workspace directly")
        if embed not in {True, "later"}:
            raise InputError(f"embed is True or 'later' through a service, not {embed!r:.80}")
        progress = _Progress(on_progress or (lambda _: None))
        try:
            for window in _windows(documents):
                self.make()
                self._send(window, progress, "" if embed is True else "?embed=later")
        except Exception as error:
            if progress.done and isinstance(error, PointsmanError):
                error.args = (f"{error}; {progress}", *error.args[1:])
            elif progress.done:
                error.add_note(str(progress))
            raise
        return progress.result

    aadd = async_twin(add)

    def embed(self, limit: int | None = None, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Wait until the service has computed the vectors of documents added with ``embed="later"``.

        Args:
            limit: the most vectors to wait for; all by default.
            on_progress: called with the number of documents embedded since the last call.

        Returns:
            The number of vectors computed meanwhile.

        Raises:
            ServiceError: the service cannot be reached, or has not made one for a minute.
        """
        due, total, since = self.vectors_due, 0, time.monotonic()
        while due and (limit is None or total < limit):
            time.sleep(_EMBED_POLL)
            before, due = due, self.vectors_due
            if (done := before - due) > 0:
                total, since = total + done, time.monotonic()
                if on_progress is not None:
                    on_progress(done)
            elif time.monotonic() - since > _EMBED_PATIENCE:
                raise ServiceError(f"the service has made no vector of {self.name!r} for a minute; its log says why")
        return total

    aembed = async_twin(embed)

    @property
    def vectors_due(self) -> int:
        """The number of documents without a vector yet; only keyword search finds those."""
        if not self.exists:
            return 0
        reply = self._client.status(self.name)
        with self._service.reading("number of missing vectors"):
            return number_of(reply.get("vectors_due", 0))

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:  # noqa: ARG002  (as of `Dataset.writing`)
        """Does nothing: the service makes each write wait for the others."""
        yield

    def delete(
        self, ids: str | Iterable[str] | None = None, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> int:
        """Delete documents by id, or those that match a filter; unknown ids are ignored.

        Returns:
            How many there were; 0 with a key for writing only, which does not learn it.

        Raises:
            InputError: neither ids nor filters are given, or they are invalid.
        """
        if ids is None and not filters:
            raise InputError("give ids or filters of the documents to delete; Client.drop deletes a dataset")
        condition = parse_optional(filters)
        matching = {} if condition is None else {"filters": _sent_filter(condition)}
        if ids is None:
            return self._deleted(matching)
        valid = list(filter(_can_be_an_id, check_ids(ids)))
        if not valid:
            return 0
        limits, deleted = run(self._service.limits(Threads())), 0
        sizes = [len(as_json(id_)) + 2 for id_ in valid]
        room = limits["max_body_bytes"] - len(as_json(matching)) - 100
        for start, end in _parts(limits["max_documents"], (sizes, room)):
            deleted += self._deleted({"ids": valid[start:end], **matching})
        return deleted

    def _deleted(self, body: Mapping[str, Any]) -> int:
        request = self._request("DELETE", "/documents", as_json(body), repeatable=False)
        try:
            reply = self._service.call(request, self._quiet)
        except UnknownNameError:
            if self._exists:
                raise
            return 0
        with self._service.reading("number of deletions"):
            return 0 if reply["deleted"] is None else number_of(reply["deleted"])

    adelete = async_twin(delete)

    def set_metadata(self, metadata: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> AddResult:
        """Change the metadata of documents; their texts and vectors stay, and only a new title is embedded.

        Some thousand documents go in one request; each changes all of its documents or none.

        Args:
            metadata: by id, the values to set; None removes a key.
            replace: whether to remove all other metadata of these documents.

        Raises:
            InputError: an id is unknown, or the metadata cannot be stored.
            LockedError: another process is writing to the dataset.
        """
        from pointsman.store.prepared import metadata_of, prepare

        changes = [prepare(change) for change in check_changes(metadata)]  # checked as a dataset checks them
        if changes and not self.exists:
            raise InputError(f"there is no document {changes[0].document.id!r:.80}")
        limits, result = run(self._service.limits(Threads())), AddResult()
        items = [(change.document.id, metadata_of(change.metadata)) for change in changes]
        sizes = [len(as_json({id_: values})) for id_, values in items]
        for start, end in _parts(limits["max_documents"], (sizes, limits["max_body_bytes"] - 100)):
            body = {"metadata": dict(items[start:end]), "replace": replace}
            reply = self._service.call(self._request("PATCH", "/documents", as_json(body)), self._quiet)
            with self._service.reading("numbers of changes"):
                result += AddResult(*(number_of(reply[name]) for name in ("added", "updated", "unchanged")))
        return result

    aset_metadata = async_twin(set_metadata)

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """Return the document with this id; None if there is none."""
        if not _can_be_an_id(check_id(id)) or not self.exists:
            return None
        try:
            answer = self._service.call(self._request("GET", f"/document?{urlencode({'id': id})}"))
        except UnknownNameError as error:
            if error.kind != "document":
                raise
            return None
        return self._document(answer)

    aget = async_twin(get)

    def get_many(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids in order, None for unknown ids; one request each."""
        return [self.get(id_) for id_ in ids]

    aget_many = async_twin(get_many)

    def text(
        self,
        source: str,
        *,
        hash: str | None = None,  # noqa: A002  (the citation's word)
        start: int = 0,
        end: int | None = None,
    ) -> SourceText:
        """Return the text that citations point into; see `Dataset.text`. A long text takes several requests.

        Raises:
            UnknownNameError: no document of this source, or of this source with this hash, is stored.
            InputError: an offset is out of range.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        if not _storable(check_id(source, "a source")) or not _storable(hash or ""):
            raise UnknownNameError("source", source)
        parameters = {"source": source, "hash": hash, "start": start, "end": end}
        first = self._part(parameters)
        parts, last = [first.text], first
        while last.text and last.end < (last.length if end is None else min(end, last.length)):
            last = self._part({**parameters, "hash": first.hash, "start": last.end})
            parts.append(last.text)
        return replace(first, text="".join(parts))

    atext = async_twin(text)

    def _part(self, parameters: Mapping[str, Any]) -> SourceText:
        """Return as much of a text as one response carries."""
        query = {name: value for name, value in parameters.items() if value is not None}
        answer = self._service.call(self._request("GET", f"/text?{_encoded(query)}"))
        with self._service.reading("text"):
            start, length, text, digest = (answer[name] for name in ("start", "length", "text", "hash"))
            if not isinstance(text, str) or not isinstance(digest, str | None):
                raise TypeError(f"the text is {text!r:.80}, its hash {digest!r:.80}")
            return SourceText(str(answer["source"]), digest, number_of(start), number_of(length), text)

    def count(self, filters: str | Mapping[str, Any] | Filter | None = None) -> int:
        """Return the number of documents, or of those that match."""
        if not self.exists:
            return 0
        reply = self._service.call(self._request("GET", f"/count?{_encoded(_matching(filters))}"))
        with self._service.reading("number of documents"):
            return number_of(reply["documents"])

    acount = async_twin(count)

    def ids(self, *, source: str | None = None, filters: str | Mapping[str, Any] | Filter | None = None) -> list[str]:
        """Return all ids, or those of documents that have this ``source``, that match, or both."""
        ids: list[str] = []
        wanted = {} if source is None else {"source": check_id(source, "a source")}
        following: int | None = 0 if _storable(source or "") and self.exists else None
        while following is not None:
            parameters = {"after": following, **wanted, **_matching(filters)}
            answer = self._service.call(self._request("GET", f"/ids?{_encoded(parameters)}"))
            with self._service.reading("page of ids"):
                ids += map(str, answer["ids"])
                following = _following(answer["next"], following)
        return ids

    aids = async_twin(ids)

    def page(
        self, after: int = 0, limit: int = 100, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents in order of first arrival, and where the next page begins (None at the end).

        Args:
            after: the value returned with the previous page; 0 for the first.
            limit: at least 1.
            filters: which documents to include.

        Raises:
            InputError: a number is out of range.
            ServiceError: for example, so many documents exceed the size limit of a response.
        """
        check_page(after, limit)
        documents: list[Document] = []
        following: int | None = after if self.exists else None
        while following is not None and len(documents) < limit:
            most = min(limit - len(documents), _MOST_OF_A_PAGE)
            parameters = {"after": following, "limit": most, **_matching(filters)}
            answer = self._service.call(self._request("GET", f"/documents?{_encoded(parameters)}"))
            with self._service.reading("page of documents"):
                documents += map(self._document, answer["documents"])
                following = _following(answer["next"], following)
        return documents, following

    apage = async_twin(page)

    def __iter__(self) -> Iterator[Document]:
        after, limit = 0, _PAGE
        while True:
            try:
                documents, following = self.page(after, limit)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            yield from documents
            if following is None:
                return
            after = following

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an empty dataset is a dataset

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and self.get(id_) is not None

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(
        self, query: str | Query, k: int = 5, *, trace: TraceDetail = "stages", **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Search only this dataset; options and result are those of `Client.search`."""
        return self._client.search(query, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    async def asearch(
        self, query: str | Query, k: int = 5, *, trace: TraceDetail = "stages", **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Async version of `search`."""
        return await self._client.asearch(query, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    def search_vector(
        self, vector: Any, k: int = 5, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> list[Hit]:
        """Return the documents with the nearest vectors; see `Dataset.search_vector`.

        Args:
            vector: shape ``(dimensions,)``, from the dataset's embedder, of any norm.
            k: maximum number of hits.
            filters: which documents to include.

        Raises:
            InputError: the vector, ``k`` or a filter is invalid.
        """
        condition = parse_optional(filters)
        try:
            numbers = [float(number) for number in vector]
        except (TypeError, ValueError) as error:
            raise InputError(f"a vector is a list of numbers: {error}") from error
        wanted = None if condition is None else _sent_filter(condition)
        body = {"vector": numbers, "k": check_top_k(k), "filters": wanted}
        reply = self._service.call(self._request("POST", "/nearest", as_json(body)))
        with self._service.reading("hits"):
            return [Hit.from_dict(one) for one in reply["hits"]]

    asearch_vector = async_twin(search_vector)

    def search_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Answer many questions in batches; return one context each, in order."""
        return self._client.search_many(queries, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    async def asearch_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        return await self._client.asearch_many(queries, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, description: str) -> None:
        """Change the description; for a dataset that does not exist yet, it is kept until creation."""
        if self.exists:
            self._create({"name": self.name, "description": description})
        self.description = self._new["description"] = description

    adescribe = async_twin(describe)

    def make(self) -> None:
        """Create the dataset unless it exists."""
        if not self._exists:
            about = self._create({"name": self.name, **self._new})
            self.description, self.indexing_technique = about["description"], about["indexing_technique"]
            self._exists = True

    amake = async_twin(make)

    @property
    def exists(self) -> bool:
        """Whether the dataset exists; asks the service until the answer is yes."""
        if not self._exists:
            self._exists = self.name in self._client.names()
        return self._exists

    def verify(self) -> Verification:
        """Compare the three stores."""
        from pointsman.store.local.collection import Verification

        answer = self._service.call(self._request("POST", "/verify"), self._quiet)
        with self._service.reading("verification"):
            for name in ("documents", "in_keyword_index", "in_vector_index"):
                number_of(answer[name])
            return of_form(Verification, answer)

    averify = async_twin(verify)

    def close(self) -> None:
        """Do nothing: the connections belong to the client."""

    aclose = async_twin(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _quiet(self) -> float:
        """Return the seconds that a write may stay silent: the service itself waits for other writers."""
        return self._service.timeout + _LOCK_SECONDS

    def _create(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Create the dataset, or change its description; return its status."""
        return _described(self._service, self._service.call(Request("POST", "/api/datasets", as_json(about))))

    def _request(self, method: str, path: str, body: bytes | None = None, *, repeatable: bool = True) -> Request:
        return Request(method, _path(self.name) + path, body, repeatable=repeatable)

    def _document(self, value: Any) -> Document:
        with self._service.reading("document"):
            return Document(value["id"], value["text"], value["metadata"])

    def _send(self, window: list[_Line], progress: _Progress, options: str) -> None:
        """Send documents until all are acknowledged.

        Raises:
            PointsmanError: the service reports an error, or a retry does not help.
        """
        remaining, attempt = window, 0
        while True:
            request = self._request("POST", f"/documents{options}", b"".join(line.content for line in remaining))
            count, ending = self._send_once(replace(request, kind=LINES), len(remaining), progress)
            if ending is None:
                return
            ending, remaining = _of_line(ending, remaining), remaining[count:]
            attempt = 0 if count else attempt
            pause = self._service.pause(ending, request, attempt, time.monotonic() + self._quiet)
            if pause is None:
                raise self._service.error(ending)
            time.sleep(pause)
            attempt += 1

    def _send_once(self, request: Request, count: int, progress: _Progress) -> tuple[int, Reply | Failure | None]:
        """Send ``count`` documents; return how many are acknowledged, and what stopped the others (None if nothing)."""
        count_done, before, finished = 0, progress.result, False
        ending: Reply | Failure = _CUT_OFF
        with closing(self._service.link.lines(request, self._quiet)) as answer:
            for place, part in enumerate(answer):
                if not isinstance(part, bytes):
                    ending = part if ending is _CUT_OFF and _went_wrong(part) else ending
                    continue
                with self._service.reading("report of documents added"):
                    report = json.loads(part)
                    now = number_of(report["done"])
                    counts = [report[name] for name in ("added", "updated", "unchanged")]
                    hidden = counts == [None, None, None]  # the key is for writing only
                    result = AddResult(updated=now) if hidden else AddResult(*map(number_of, counts))
                    finished, problem = report.get("finished") is True, report.get("problem")
                    if not count_done <= now <= count or (finished and now < count) or place > count:
                        raise ValueError(f"{now} of {count} documents are reported after {count_done}")
                    ending = ending if problem is None else reply_of(problem)
                progress.take(now - count_done, before + result)
                count_done = now
        all_of_them = count_done == count and isinstance(ending, Failure)  # only the end of the response is lost
        return count_done, None if finished or all_of_them else ending


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


# ── encoding requests ────────────────────────────────────────────────────────────────────────────────────────────────


def _of_line(ending: Reply | Failure, lines: Sequence[_Line]) -> Reply | Failure:
    """Return the problem with the document's id in place of a line number, which only this module knows."""
    document = None if isinstance(ending, Failure) else problem_document(ending)
    if document is None or isinstance(ending, Failure):
        return ending
    line = document.get("line")
    if not isinstance(line, int) or not 0 < line <= len(lines):
        return ending
    detail = str(document.get("detail")).removeprefix(f"line {line}: ").removeprefix(f"line {line} ")
    problem = {**document, "detail": f"document {lines[line - 1].id!r:.80}: {detail}"}
    return replace(ending, content=json.dumps(problem).encode())


_CUT_OFF: Final = Failure("broken", "the answer ended before all documents were acknowledged", broken=True)


def _went_wrong(ending: Reply | Failure) -> bool:
    """Whether a response in lines ended with an error."""
    return isinstance(ending, Failure) or ending.status != 200


@dataclass(frozen=True, slots=True)
class _Line:
    """A document, encoded as one line."""

    id: str
    content: bytes


@dataclass(slots=True)
class _Progress:
    """Progress of an `add`; ``told`` is called after every step."""

    told: Callable[[int], None]
    done: int = 0
    result: AddResult = field(default_factory=AddResult)

    def take(self, more: int, result: AddResult) -> None:
        """Count newly acknowledged documents and keep the result so far."""
        self.done, self.result = self.done + more, result
        if more:
            self.told(more)

    def __str__(self) -> str:
        result = self.result
        return (
            f"the first {self.done:,} documents are stored ({result.added:,} added, {result.updated:,} updated, "
            f"{result.unchanged:,} unchanged), and may be sent again"
        )


def _windows(documents: Documents) -> Iterator[list[_Line]]:
    """Yield documents as lines, in batches of limited size."""
    window: list[_Line] = []
    size, began = 0, time.monotonic()
    for document in Document.each(documents):
        window.append(_line_of(document))
        size += len(window[-1].content)
        if len(window) >= _WINDOW or size >= _WINDOW_BYTES or time.monotonic() - began > _WINDOW_SECONDS:
            yield window
            window, size, began = [], 0, time.monotonic()
    if window:
        yield window


def _line_of(document: Document) -> _Line:
    """Check a document as a dataset does, so that an invalid one is refused before anything is sent.

    Raises:
        InputError: it is invalid.
    """
    from pointsman.store.prepared import prepare

    prepared = prepare(document)
    id_, text = (json.dumps(value, ensure_ascii=False) for value in (prepared.document.id, prepared.document.text))
    return _Line(document.id, f'{{"id":{id_},"text":{text},"metadata":{prepared.metadata}}}\n'.encode())


def _sent_options(request: SearchRequest, trace: TraceDetail) -> dict[str, Any]:
    """Return the options of a search in the form that is sent.

    Raises:
        InputError: an option cannot be sent.
    """
    sent = {name: getattr(request, name) for name in OPTIONS if name != "filters"}  # those go with each query
    for name, value in sent.items():
        if value is not None and not isinstance(value, (str, int, float, tuple)):
            raise InputError(
                f"{name} cannot be sent to a service as a {type(value).__name__}: objects are not sent; have the "
                "service use it, or open the workspace itself"
            )
    if trace not in TRACE_DETAILS:
        raise InputError(f"trace is one of {', '.join(TRACE_DETAILS)}, not {trace!r:.80}")
    if request.timeout is not None:
        time_limit(request.timeout)
    return {**sent, "trace": trace}


def _by_name(datasets: str | Sequence[str | RemoteDataset] | None) -> dict[str, RemoteDataset | None]:
    """Return datasets by name; None for those given by their names only."""
    several = [datasets] if isinstance(datasets, str | RemoteDataset) else datasets or ()
    return dict((one, None) if isinstance(one, str) else (one.name, one) for one in several)


def _with_history(query: Query) -> dict[str, Any]:
    """Return what a query has besides its text."""
    return {
        "filters": None if query.filters is None else _sent_filter(query.filters),
        "history": [{"role": turn.role, "text": sendable(turn.text)} for turn in query.history],
    }


def _matching(filters: str | Mapping[str, Any] | Filter | None) -> dict[str, str]:
    """Return the URL parameters of a filter; empty without a filter."""
    condition = parse_optional(filters)
    return {} if condition is None else {"filters": str(condition)}


def _encoded(parameters: Mapping[str, Any]) -> str:
    """Encode URL parameters.

    Raises:
        InputError: they are longer than a service accepts; among them, only filters are of any length.
    """
    query = urlencode(parameters)
    if len(query) > _URL_BYTES:
        raise InputError(
            f"a filter of {len(query):,} bytes is too long for an address, which has at most {_URL_BYTES:,}; searches "
            "and deletions take longer filters"
        )
    return query


def _sent_filter(filters: Filter) -> str | dict[str, Any]:
    """Return a filter as an expression, or as a mapping if the expression would be too long to parse.

    >>> _sent_filter(parse_optional({"year": {"gte": 2020}}))
    'year >= 2020'
    """
    text = str(filters)
    return text if len(text) <= MAX_LENGTH else _mapping(filters)


def _mapping(filters: Filter) -> dict[str, Any]:  # noqa: PLR0911  (one for each kind)
    if isinstance(filters, And | Or):
        return {f"${filters.word}": [_mapping(part) for part in filters.parts]}
    if isinstance(filters, Not):
        return {"$not": _mapping(filters.part)}
    if isinstance(filters, Exists):
        return {filters.key: {"exists": True}}
    if isinstance(filters, Equals):
        return {filters.key: {"eq": _sent_value(filters.value)}}
    if isinstance(filters, In):
        return {filters.key: {"in": list(map(_sent_value, filters.values))}}
    if isinstance(filters, Range):
        bounds = {name: getattr(filters, name) for name in ("gt", "gte", "lt", "lte")}
        return {filters.key: {name: _sent_value(bound) for name, bound in bounds.items() if bound is not None}}
    if isinstance(filters, PartOfText):
        return {filters.key: {f"{'i' * filters.ignore_case}{filters.operator}": filters.part}}
    raise FilterError(f"a {type(filters).__name__} cannot be sent as a filter; create one with parse_filter")


def _sent_value(value: object) -> Any:
    return value if isinstance(value, str | int | float) else plain(value)


def _parts(most: int, *measures: tuple[Sequence[int], int]) -> Iterator[tuple[int, int]]:
    """Yield slices of at most ``most`` items that keep within each measure's limit, except single items above it.

    Args:
        most: maximum number of items in a slice.
        measures: the size of each item, and the limit of a slice, in bytes, characters …

    >>> list(_parts(2, ([5, 5, 5, 30, 5], 12)))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    start, totals = 0, [0] * len(measures)
    for place in range(len(measures[0][0])):
        totals = [total + sizes[place] for total, (sizes, _) in zip(totals, measures, strict=True)]
        full = any(total > room for total, (_, room) in zip(totals, measures, strict=True))
        if place > start and (full or place - start >= most):
            yield start, place
            start, totals = place, [sizes[place] for sizes, _ in measures]
    if start < len(measures[0][0]):
        yield start, len(measures[0][0])


def _path(name: str) -> str:
    """Return the path of a dataset; a name that could itself be a path is refused, as no dataset has such a name."""
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        from pointsman.dataset import check_name

        check_name(name)
    return f"/api/datasets/{quote(name, safe='')}"


def _following(ahead: Any, after: int) -> int | None:
    """Return where the next page begins; it must lie ahead, else paging would never end.

    Raises:
        ValueError, TypeError: it is not a number, or not ahead.
    """
    if ahead is not None and int(ahead) <= after:
        raise ValueError(f"the next page begins after {ahead!r:.80}, this one after {after}")
    return None if ahead is None else int(ahead)


def _can_be_an_id(text: str) -> bool:
    """Whether a document could have this id."""
    return bool(text) and _storable(text)


def _storable(text: str) -> bool:
    """Whether a service could store this text unchanged."""
    return text == sendable(text)


def _described(service: Service, about: Any) -> dict[str, Any]:
    """Return a service's description of a dataset."""
    with service.reading("dataset"):
        for name in ("name", "description", "indexing_technique"):
            if not isinstance(about[name], str):
                raise TypeError(f"{name} of a dataset is {about[name]!r:.80}")
        if about["documents"] is not None:  # a key for writing only does not learn it
            number_of(about["documents"])
        return dict(about)
