"""A workspace: datasets in one place, and one search over all of them.

``lifecycle`` makes, opens and closes the datasets, and keeps what is fitted to them; ``attachment`` measures
collections of other programs; here the workspace is searched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import anyio

from pointsman.retrieval.request import SearchRequest, WorkspaceOptions
from pointsman.retrieval.run.source import check_all_searchable
from pointsman.retrieval.workflow import several
from pointsman.store.local.folder_backend import holds_workspace, no_workspace
from pointsman.tools import byte_cache
from pointsman.tools.errors import ReplacedError, RetrievalError
from pointsman.tools.json_forms import form_of, plain_form
from pointsman.tools.network.retries import Retries
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.tools.system.memory import memory_use
from pointsman.values.reasons import Reason, in_language, language_of
from pointsman.values.types import Plan, Query
from pointsman.workspace.dataset import Dataset
from pointsman.workspace.dataset.dataset_lifecycle import changed_bm25
from pointsman.workspace.workspace_lifecycle import StoredWorkspace, existing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pointsman.retrieval.plan.recommended_strategy import Recommendation
    from pointsman.retrieval.plan.routers import ContentRouter, RouteDecision
    from pointsman.selector.heuristic_route import RouteChoice, RouteRule
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.settings import Settings
    from pointsman.workspace.calibration.calibration_questions import Progress as CalibrateProgress
    from pointsman.workspace.calibration.dataset_calibration import Calibrating
    from pointsman.workspace.indexing.index_report import IndexOptions, IndexReport

T = TypeVar("T")

__all__ = ["BUILT_IN", "Routing", "Workspace", "existing"]


BUILT_IN: Final = "built-in calibration"
"""What most datasets have, in `Workspace.status`."""


_PATIENCE: Final = 5.0
"""Seconds for which a search without a time limit is repeated."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.1


class _FurtherSearches:
    """The further attempts at a search that has failed, within its time limit.

    Args:
        request: the search.
        usual: the time limit of requests without one of their own; None for none.
        start: when the first attempt began, by ``monotonic``.

    Attributes:
        request: what the next attempt is to search for, in the time that is left.
        pause: seconds to wait before it.
    """

    def __init__(self, request: SearchRequest, usual: float | None, start: float) -> None:
        self.request, self.pause = request, 0.0
        self._limit = usual if request.timeout is None else request.timeout
        self._end = start + (_PATIENCE if self._limit is None else self._limit)
        self._retries = Retries(self._end, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)

    def another(self, error: Exception) -> bool:
        """Whether to search again: every cause of the failure is a dataset that was replaced, and time is left."""
        causes = error.causes.values() if isinstance(error, RetrievalError) else (error,)
        if not all(isinstance(cause, ReplacedError) for cause in causes):
            return False
        pause = self._retries.pause()
        if pause is None:
            return False
        self.pause = pause
        if self._limit is not None:
            self.request = replace(self.request, timeout=max(self._end - monotonic() - pause, 0.001))
        return True


class Workspace(StoredWorkspace):
    """Datasets in one place, a folder or a server, and one search over all of them.

    Args:
        path: a folder, created on the first write; or a URL such as ``postgresql://user@host/database?schema=rails``
            (see `pointsman.store.backend_urls.open_backend`); or a `pointsman.store.backend.Backend`, such as one with
            your own client.
        embedder: for every dataset of texts, or its name, such as ``"onnx:DIRECTORY"``; by default the one that
            ``settings`` name, or the default embedder.
        image_embedder: for every dataset of pictures, or its name; by default the one that ``settings`` name, or
            ``embedder`` if it embeds pictures.
        workflow: your own stages: router, reranker, further refiners, time limit. Unless it has its own, searches
            refuse by the default calibration, and decide by the policy fitted to the workspace, or the measured one.
        llm: for the strategies that need a language model; one for all, or by the strategy's name, with ``"general"``
            for the others. By default, those that ``settings`` name.
        settings: defaults for the options of searches, the embedder and the language models. Nothing is read from
            environment or files here: `Settings.load` does that.

    Raises:
        FormatVersionError: the workspace was written by a newer Pointsman.
        InputError: the path holds something other than a workspace, or the URL's scheme is unknown.
        StoreUnavailableError: the server cannot be reached.
    """

    def status(self, name: str) -> dict[str, Any]:
        """Return facts about a dataset: documents, embedder, bytes on disk, whether its index is behind, and others.

        ``date_column`` is the metadata key that ``before:`` and ``after:`` mean, and whether the setting
        ``date_columns`` says so; ``none: …`` says why there is none;
        ``date_column_reasons`` says the same by a code and values. ``vectors_due`` is the number of documents found
        only by words so far; see `Dataset.embed`. ``truncations`` is that of documents whose vectors hold only their
        beginning; see `Dataset.truncations`. ``version_problems`` are those of `Dataset.version_problems`. ``routes``
        has the number of questions by route and reason that `route` was asked to choose for among datasets with this
        one, in this process. ``bytes`` is None where the dataset is not in a folder of
        this workspace; ``bytes_by_part`` says what they are for.
        ``memory`` is that of this process, with all that it has
        open: ``resident`` bytes, and how many of them are pages of ``files``, which the system takes back when others
        need them; None where the system does not tell. Of it, ``cached`` bytes are kept to answer sooner, at most
        ``cache_limit``, which the setting ``cache_megabytes`` sets.

        Raises:
            UnknownNameError: there is no such dataset.
        """
        from pointsman.retrieval.stages.written_filters import status_of_dates

        dataset = self.dataset(name, create=False)
        info = dataset.store.info
        statistics = dataset.store.statistics()
        sizes = None if name in self._attached() else self.backend.bytes_by_part(name)
        return {
            "name": name,
            "description": dataset.description,
            "indexing_technique": dataset.indexing_technique,
            "documents": len(dataset),
            "embedder": info.embedder,
            "relevance": self._relevance_of(dataset),
            **status_of_dates(dataset.store, name, self.settings.date_columns),
            "vectors_due": statistics.vectors_due,
            "truncations": dataset.truncations,
            "routes": self.route_counts.rows(name),
            "kept_days": statistics.recorded_state.days if statistics.recorded_state else 0,
            "sequence": statistics.sequence,
            "keyword_index_sequence": dataset.store.indexed,
            "bytes": None if sizes is None else sum(sizes.values()),
            "bytes_by_part": sizes,
            "memory": {**memory_use(), **byte_cache.use()},
            "version_problems": plain_form(dataset.version_problems()),
        }

    astatus = async_twin(status)

    def _relevance_of(self, dataset: Dataset) -> str:
        """Return in words what the relevance of a dataset's hits comes from, or why they have none."""
        calibration = self.workflow.fitted.get(dataset.name)
        automatic = self.settings.calibrate_automatically and dataset is self._datasets.get(dataset.name)
        if automatic and (calibration is None or calibration.is_empty):
            calibration = self._calibrations.state(dataset, calibration) or calibration
        if calibration is not None and calibration.origin:
            return f"none: {calibration.origin}" if calibration.is_empty else calibration.origin
        embedder = dataset.store.info.embedder
        if embedder is None or any(built_in.embedder == embedder for built_in in self.workflow.calibrations):
            return BUILT_IN
        return f"none: nothing is calibrated for {embedder!r}; run pointsman calibrate"

    def index(
        self,
        paths: str | Path | Iterable[str | Path],
        dataset: str = "files",
        *,
        description: str | None = None,
        versions: str | None = None,
        **options: Unpack[IndexOptions],
    ) -> IndexReport:
        """Synchronise a dataset with files and folders; see `pointsman.workspace.indexing.folder_sync.index_paths`.

        Passages are found by words from the first second on; when this returns, all vectors exist too.

        Args:
            paths: one file or folder, or several.
            dataset: name of the dataset; created if missing.
            description: of the dataset; set, or changed if it differs.
            versions: for how long it keeps what is replaced or deleted; see `dataset`.
            options: see `pointsman.workspace.indexing.index_report.IndexOptions`: ``include``, ``exclude``,
                ``ignore_files``, ``prune``, ``hidden``, ``access``, ``max_tokens``, ``encoding``.

        Raises:
            InputError: a path does not exist, a size is out of range, or a pattern, rule or encoding is none.
            LockedError: another process has been writing to the dataset for a minute.
            IndexingInterrupted: Ctrl-C; committed passages are kept, and indexing again continues from there.
        """
        from pointsman.workspace.indexing.folder_sync import index_paths

        return index_paths(self.dataset(dataset, description=description, versions=versions), paths, **options)

    aindex = async_twin(index)

    def search(self, query: str | Query, k: int = 5, **options: Unpack[WorkspaceOptions]) -> RetrievalContext:
        """Search datasets and return the best hits of all.

        Args:
            query: the question.
            k: number of hits.
            options: see `pointsman.retrieval.request.WorkspaceOptions`: ``datasets``, ``strategy``, ``filters``,
                ``rerank``,
                ``refuse``, ``effort``, ``timeout``.

        Raises:
            InputError: an argument is invalid.
            RetrievalError: nothing could be searched; it contains every cause.
        """
        request = SearchRequest.of(query, k, options)
        return self.retrying(
            request, lambda request: self._note_place(self.engine.search(request, self._sources(request)))
        )

    async def asearch(self, query: str | Query, k: int = 5, **options: Unpack[WorkspaceOptions]) -> RetrievalContext:
        """Async version of `search`."""

        async def search(request: SearchRequest) -> RetrievalContext:
            sources = await in_thread(self._sources, request)  # opening a dataset for the first time reads files
            return self._note_place(await self.engine.asearch(request, sources))

        return await self.aretrying(SearchRequest.of(query, k, options), search)

    def search_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[WorkspaceOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions in common batches; return one context each, in order.

        Options are those of `search`, and apply to every question.
        """
        request = several(queries, k, options)

        def search(request: SearchRequest) -> list[RetrievalContext]:
            return list(map(self._note_place, self.engine.search_many(request, self._sources(request))))

        return self.retrying(request, search)

    async def asearch_many(
        self, queries: Sequence[str | Query], k: int = 5, **options: Unpack[WorkspaceOptions]
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""

        async def search(request: SearchRequest) -> list[RetrievalContext]:
            answers = await self.engine.asearch_many(request, await in_thread(self._sources, request))
            return list(map(self._note_place, answers))

        return await self.aretrying(several(queries, k, options), search)

    def _note_place(self, answer: RetrievalContext) -> RetrievalContext:
        """Return an answer that says so if there is nothing at this place."""
        if answer.plan.datasets or self.backend.path is None or holds_workspace(self.path):
            return answer
        note = f"{no_workspace(self.path)} or add documents to a dataset of it first"
        return replace(answer, degraded=(*answer.degraded, note))

    def retrying(self, request: SearchRequest, search: Callable[[SearchRequest], T]) -> T:
        """Run a search; while others delete and recreate its datasets, run it again until its time limit.

        Args:
            request: the search; a further attempt gets the time that is left.
            search: looks up the datasets, and searches them.
        """
        start, attempts = monotonic(), None
        while True:
            try:
                return search(request if attempts is None else attempts.request)
            except (ReplacedError, RetrievalError) as error:
                attempts = attempts or _FurtherSearches(request, self.workflow.timeout, start)
                if not attempts.another(error):
                    raise
            self._forget_records()
            sleep(attempts.pause)

    async def aretrying(self, request: SearchRequest, search: Callable[[SearchRequest], Awaitable[T]]) -> T:
        """Async version of `retrying`."""
        start, attempts = monotonic(), None
        while True:
            try:
                return await search(request if attempts is None else attempts.request)
            except (ReplacedError, RetrievalError) as error:
                attempts = attempts or _FurtherSearches(request, self.workflow.timeout, start)
                if not attempts.another(error):
                    raise
            self._forget_records()
            await anyio.sleep(attempts.pause)

    def replay(self, receipt: str) -> RetrievalContext:
        """Return the same answer again that a receipt is of, from what the datasets were then.

        Documents, versions, frequencies, measurements and settings are those of the first answer, to the byte; only
        times differ. It is for the operator: a receipt says who asked, and is answered as they were, also with what
        they may no longer see.

        Args:
            receipt: `RetrievalContext.receipt` of an answer from datasets that keep versions.

        Raises:
            NotHeldError: something that the answer was made of is no longer held; the message names all of it.
            InputError: it is not a receipt of this workspace.
        """
        with self._opening:
            if self._replays is None:
                from pointsman.retrieval.judge.kept_calibrations import former_calibrations
                from pointsman.workspace.replaying import Replays

                self._replays = Replays(
                    partial(self.dataset, create=False), self._bm25_under, partial(former_calibrations, self.backend)
                )
        with self.audit_log.request("replay"):
            return self._replays.replay(receipt, self.engine, access=self.access)

    areplay = async_twin(replay)

    def _bm25_under(self, name: str, settings: Settings) -> dict[str, float]:
        """Return the constants of BM25 that a dataset has under settings."""
        from pointsman.store.backend import bm25_of

        record = self._record(name)
        values = {} if record is None else record.settings
        return {**bm25_of(values), **changed_bm25({"k1": settings.bm25_k1, "b": settings.bm25_b})}

    def route(
        self, query: str | Query, datasets: str | Sequence[str | Dataset] | None = None, strategy: str = "auto"
    ) -> Routing:
        """Return how and where a query would be searched, and why, without searching.

        Args:
            query: the query.
            datasets: datasets to choose from, or their names; by default all.
            strategy: the strategy that a search would be given.
        """
        from pointsman.retrieval.plan.routers import ImageRouter  # here: few who open a workspace route by hand

        question = Query.of(query)
        choices = self._choices(self.names() if datasets is None else datasets)
        check_all_searchable(choices)
        if datasets is None and choices:
            choices = list(ImageRouter().decide(question, choices).datasets)
        decision = self._router.decide(question, choices) if choices else None
        plan = self.plan(choices, strategy, question)
        routing = Routing.by_form(question.text, self.settings.route_rules, plan, decision)
        self.route_counts.count(routing.heuristic, (dataset.name for dataset in choices))
        return routing

    aroute = async_twin(route)

    @cached_property
    def _router(self) -> ContentRouter:
        from pointsman.retrieval.plan.routers import ContentRouter

        return ContentRouter()  # keeps a sketch of each dataset

    def plan(self, datasets: str | Sequence[str | Dataset], strategy: str = "auto", query: str | Query = "") -> Plan:
        """Return what a search of these datasets, or of those with these names, would do, and why."""
        request, choices = SearchRequest.of(query, options={"strategy": strategy}), self._choices(datasets)
        recipe = self.engine.resolve(request, choices)
        plan = recipe.plan(list(recipe.sources)).in_language(language_of(request.query.text))
        return replace(
            plan, strategy=recipe.strategy or plan.strategy, datasets=tuple(dataset.name for dataset in choices)
        )

    aplan = async_twin(plan)

    def recommend(self, query: str | Query, datasets: str | Sequence[str | Dataset] | None = None) -> Recommendation:
        """Return what ``auto`` does with a question on these datasets, and the alternatives that suit its wording."""
        return self.engine.recommend(query, self._choices(datasets or self.names()))

    arecommend = async_twin(recommend)

    def _choices(self, datasets: str | Sequence[str | Dataset]) -> list[Dataset]:
        """Return these datasets; those given by name are opened."""
        selection = [datasets] if isinstance(datasets, str | Dataset) else datasets
        return [self.source(dataset) if isinstance(dataset, str) else dataset for dataset in selection]

    def calibrate(
        self,
        name: str,
        queries: Mapping[str, str] | None = None,
        qrels: Mapping[str, Mapping[str, int]] | None = None,
        *,
        keep: bool = True,
        on_progress: CalibrateProgress | None = None,
    ) -> Calibrating:
        """Calibrate the hits of a dataset, and keep the result if it is better.

        See `pointsman.workspace.calibration.dataset_calibration.calibrate`.

        Args:
            name: name of the dataset.
            queries: labelled questions by id; None: questions are made from the documents.
            qrels: query id -> document id -> grade; above 0 is relevant.
            keep: False only measures.
            on_progress: called with the number of questions done.

        Raises:
            UnknownNameError: there is no such dataset.
            InputError: there are fewer than twenty answered questions.
        """
        from pointsman.workspace.calibration.dataset_calibration import calibrate

        self._calibrations.wait()
        result = calibrate(self.dataset(name, create=False), queries, qrels, on_progress=on_progress)
        if keep and result.calibration is not None:
            self.keep_calibration(name, result.calibration)
        return result

    acalibrate = async_twin(calibrate)


@dataclass(frozen=True, slots=True)
class Routing:
    """Three decisions about a query, with their reasons in its language.

    Attributes:
        query: the query.
        heuristic: by the query's form alone: ``"bm25"``, ``"dense"`` or ``"hybrid"``.
        plan: what a search would do; None without a workspace.
        decision: the datasets whose content is relevant to it; None if there are none.
        heuristic_reason: the reasons of the first decision in words; those of rules of one's own as they are written.
    """

    query: str
    heuristic: RouteChoice
    plan: Plan | None = None
    decision: RouteDecision | None = None
    heuristic_reason: str = ""

    @classmethod
    def by_form(
        cls,
        query: str,
        rules: Sequence[RouteRule] = (),
        plan: Plan | None = None,
        decision: RouteDecision | None = None,
    ) -> Routing:
        """Return the decisions about a query, with the one by its form, for which ``rules`` are asked first."""
        from pointsman.selector.heuristic_route import REASONS, router_select

        heuristic, language = router_select(query, rules), language_of(query)
        reasons = [Reason.of(reason) if reason in REASONS else reason for reason in heuristic["reasons"]]
        if decision is not None:
            decision = replace(decision, reason=in_language(decision.reason, language))
        return cls(query, heuristic, plan, decision, Reason.join_all(*reasons).in_language(language))

    def to_dict(self) -> dict[str, Any]:
        """Return the decisions as plain JSON values; datasets are given by their names."""
        return form_of(self)
