"""A workspace over HTTP answers as one that is opened here, and says what is wrong when the service does not."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import json
import logging
import pickle
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pointsman
from pointsman import Dataset, Document, Policy, Query, Workspace
from pointsman.cli import output
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.conformance import DOCUMENTS
from pointsman.retrieval.plan.policy import EffortLimits as Spending
from pointsman.retrieval.refine.refuse import Refuser, Threshold
from pointsman.retrieval.refine.rerank import CalibratedReranker
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.service.client import Client, RemoteDataset, upload
from pointsman.service.client import client_connections as connections
from pointsman.service.client import request_encoding as encoding
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.tools.errors import (
    FilterError,
    InputError,
    LockedError,
    ModelError,
    RetrievalError,
    ServiceError,
    UnknownNameError,
    UnmetNeedError,
)
from pointsman.tools.network.http_addresses import seconds_of
from pointsman.values.filters import And, Contains, Exists, Filter, In, Not, Or, Range, parse_filter
from pointsman.values.retrieval_context import RetrievalContext
from pointsman.values.settings import Settings
from pointsman.values.types import AddResult, Hit, Message, Plan, Refusal, Trace
from serving import serving
from test_conformance import change_result, looping, replace_method
from workspace_suite import WorkspaceConformance

KEY = "ptm_0badc0de_not-a-key-that-opens-anything-at-all-anywhere"
ENDLESS = Limits(requests_per_minute=0)


def app_of(workspace: Workspace, limits: Limits = ENDLESS, **options: Any) -> Any:
    return create_app(workspace, settings=Settings(), limits=limits, **options)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POINTSMAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Iterator[Workspace]:
    workspace = pointsman.open(tmp_path_factory.mktemp("served"), embedder=HashingEmbedder())
    workspace.dataset("filled").add(DOCUMENTS)
    yield workspace
    workspace.close()


@pytest.fixture(scope="module")
def url(workspace: Workspace) -> Iterator[str]:
    with serving(app_of(workspace)) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


# ── the same promises ────────────────────────────────────────────────────────────────────────────────────────────────


class TestWorkspace(WorkspaceConformance):
    @pytest.fixture(autouse=True)
    def take(self, workspace: Workspace) -> None:
        self.make = lambda: workspace  # type: ignore[method-assign]


class TestClient(WorkspaceConformance):
    @pytest.fixture(autouse=True)
    def take(self, client: Client) -> None:
        self.make = lambda: client  # type: ignore[method-assign]


class MutantProxy:
    """Another thing with some of its methods replaced."""

    def __init__(self, subject: Any, **methods: Any) -> None:
        self._subject, self._methods = subject, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods[name] if name in self._methods else getattr(self._subject, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._subject.close()

    def __iter__(self) -> Any:
        return iter(self.datasets())

    def __len__(self) -> int:
        return len(self._subject)

    def __contains__(self, item: Any) -> bool:
        return item in self._subject


class OfDatasets(MutantProxy):
    """A workspace whose datasets are changed."""

    def dataset(self, *args: Any, **options: Any) -> Any:
        return ADataset(self._subject.dataset(*args, **options), **self._methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


class ADataset(MutantProxy):
    def __init__(self, subject: Any, **methods: Any) -> None:
        super().__init__(subject, **{name: change(getattr(subject, name)) for name, change in methods.items()})

    def __iter__(self) -> Any:
        return iter(self._subject)

    def __bool__(self) -> bool:
        return True


class Mutant(NamedTuple):
    """What is done to which method of a workspace, or of its datasets, and the test that notices."""

    test: str
    method: str
    change: Callable[[Any], Any]
    of_datasets: bool = False


def hits(spoil: Callable[[Sequence[Any]], Any]) -> Callable[[Any], Any]:
    return change_result(lambda answer: replace(answer, hits=tuple(spoil(answer.hits))))


def after_await(spoil: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(method: Any) -> Any:
        async def worse(*args: Any, **options: Any) -> Any:
            return spoil(await method(*args, **options))

        return worse

    return change


def drop_options(*names: str) -> Callable[[Any], Any]:
    """Options that are not passed on."""
    return replace_method(
        lambda method, *args, **options: method(*args, **{k: v for k, v in options.items() if k not in names})
    )


def drifting(method: Any) -> Any:
    number = itertools.count()
    return hits(lambda hits: [replace(hit, score=hit.score - next(number)) for hit in hits])(method)


def sharing(method: Any) -> Any:
    """Mixes up what is asked at the same time."""
    latest: list[Any] = []

    def worse(query: Any, *args: Any, **options: Any) -> Any:
        latest.append(query)
        time.sleep(0.1)
        return method(latest[-1], *args, **options)

    return worse


def ascii_only(method: Any) -> Any:
    return lambda query, *args, **options: (
        str(getattr(query, "text", query)).encode("ascii") and method(query, *args, **options)
    )


def raising(error: Exception) -> Callable[[Any], Any]:
    def act(*_: Any, **__: Any) -> Any:
        raise error

    return replace_method(act)


def swallowing(kind: type[Exception], instead_of_it: Any = None) -> Callable[[Any], Any]:
    def act(method: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except kind:
            return instead_of_it

    return replace_method(act)


def drop_explanations(answer: Any) -> Any:
    return replace(answer, trace=Trace(answer.trace.spans))


def exceed_k(method: Any) -> Any:
    return lambda query, k=5, **options: method(query, k + 1 if isinstance(k, int) and k > 0 else k, **options)


def lenient(method: Any) -> Any:
    return lambda query, k=5, **options: method(query, k if isinstance(k, int) and k > 0 else 5, **options)


def of_filled(method: Any) -> Any:
    return lambda *args, **options: method(*args, **{**options, "datasets": "filled"})


MUTANTS = [
    Mutant("test_answers_are_sound", "search", change_result(lambda answer: list(answer.hits))),
    Mutant("test_answers_are_sound", "search", hits(lambda hits: hits[::-1])),
    Mutant("test_answers_are_sound", "search", hits(lambda hits: [replace(hit, provenance=()) for hit in hits])),
    Mutant("test_answers_are_sound", "search", hits(lambda hits: [replace(hit, dataset=None) for hit in hits])),
    Mutant(
        "test_answers_are_sound",
        "search",
        hits(lambda hits: [replace(hit, document=Document(hit.id, "?")) for hit in hits]),
    ),
    Mutant(
        "test_answers_are_sound",
        "search",
        change_result(lambda answer: replace(answer, plan=Plan((), "hybrid", "why"))),
    ),
    Mutant("test_answers_are_sound", "search", change_result(lambda answer: replace(answer, trace=Trace()))),
    Mutant("test_answers_are_sound", "search", change_result(lambda answer: replace(answer, degraded=("bm25: gone",)))),
    Mutant("test_answers_are_sound", "search", change_result(lambda answer: replace(answer, refused=Refusal("no")))),
    Mutant("test_the_same_question_has_the_same_answer", "search", drifting),
    Mutant("test_many_threads_at_once", "search", sharing),
    Mutant("test_odd_texts", "search", ascii_only),
    Mutant(
        "test_awaits_odd_texts", "asearch", after_await(lambda answer: answer.query.text.encode("ascii") and answer)
    ),
    Mutant("test_sync_and_async_agree", "asearch", after_await(lambda answer: replace(answer, hits=answer.hits[:2]))),
    Mutant("test_works_inside_a_running_event_loop", "search", looping),
    Mutant("test_at_most_k", "search", exceed_k),
    Mutant(
        "test_at_most_k", "search", replace_method(lambda method, query, k=10, **options: method(query, k, **options))
    ),
    Mutant(
        "test_text_and_query_find_the_same",
        "search",
        replace_method(
            lambda method, query, k=5, **options: method(query, k if isinstance(query, str) else k - 1, **options)
        ),
    ),
    Mutant("test_filters_are_honoured", "search", drop_options("filters")),
    Mutant("test_filters_are_honoured", "search", change_result(lambda answer: replace(answer, query=Query("")))),
    Mutant("test_a_filter_that_cannot_be_read_is_told", "search", drop_options("filters")),
    Mutant("test_what_cannot_be_asked_is_refused", "search", lenient),
    Mutant("test_what_cannot_be_asked_is_refused", "search", drop_options("effort")),
    Mutant(
        "test_what_cannot_be_asked_is_refused",
        "search_many",
        replace_method(lambda method, queries: method([*queries])),
    ),
    Mutant("test_unknown_names_are_told", "search", of_filled),
    Mutant("test_unknown_names_are_told", "search", drop_options("strategy")),
    Mutant("test_unknown_names_are_told", "drop", swallowing(UnknownNameError)),
    Mutant("test_unknown_names_are_told", "status", raising(UnknownNameError("thing", "scratch"))),
    Mutant("test_unknown_names_are_told", "dataset", drop_options("create")),
    Mutant("test_many_questions_as_one_by_one", "search_many", change_result(lambda answers: answers[::-1])),
    Mutant(
        "test_many_questions_as_one_by_one",
        "asearch_many",
        after_await(lambda answers: [replace(answer, hits=answer.hits[:1]) for answer in answers]),
    ),
    Mutant("test_every_document_is_explained", "search", change_result(drop_explanations)),
    Mutant("test_what_is_planned_is_done", "plan", change_result(lambda plan: replace(plan, strategy="rrf"))),
    Mutant("test_what_is_planned_is_done", "plan", replace_method(lambda method, datasets, *_: method(datasets))),
    Mutant(
        "test_what_is_planned_is_done",
        "route",
        change_result(lambda route: replace(route, plan=replace(route.plan, reason=""))),
    ),
    Mutant("test_a_dataset_is_searched_alone", "search", hits(lambda hits: hits[:3]), of_datasets=True),
    Mutant("test_documents_are_kept", "add", change_result(lambda _: AddResult()), of_datasets=True),
    Mutant("test_documents_are_kept", "ids", change_result(sorted), of_datasets=True),
    Mutant("test_documents_are_kept", "delete", change_result(lambda _: 1), of_datasets=True),
    Mutant("test_documents_are_kept", "page", change_result(lambda page: (page[0], None)), of_datasets=True),
    Mutant("test_metadata_is_changed_alone", "set_metadata", drop_options("replace"), of_datasets=True),
    Mutant("test_metadata_is_changed_alone", "set_metadata", change_result(lambda _: AddResult()), of_datasets=True),
    Mutant(
        "test_odd_documents_come_back",
        "get",
        change_result(lambda document: document and replace(document, text=document.text.strip())),
        of_datasets=True,
    ),
    Mutant("test_bad_documents_are_refused", "add", swallowing(InputError, AddResult()), of_datasets=True),
    Mutant(
        "test_bad_documents_are_refused",
        "add",
        replace_method(lambda method, documents, **options: [method([document], **options) for document in documents]),
        of_datasets=True,
    ),
    Mutant("test_progress_is_told", "add", drop_options("on_progress"), of_datasets=True),
    Mutant("test_datasets_are_kept", "dataset", drop_options("description")),
    Mutant("test_datasets_are_kept", "dataset", drop_options("indexing_technique")),
    Mutant("test_datasets_are_kept", "names", change_result(lambda names: names[::-1])),
    Mutant("test_status_tells", "status", change_result(lambda status: {**status, "documents": 0})),
    Mutant("test_closed_and_used_again", "close", replace_method(lambda method: None), of_datasets=True),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.test}-{mutant.method}")
def test_what_breaks_a_promise_fails_the_test_of_that_promise(workspace: Workspace, mutant: Mutant) -> None:
    subject: Any
    if mutant.of_datasets:
        subject = OfDatasets(workspace, **{mutant.method: mutant.change})
    elif mutant.method == "__enter__":
        subject = type("Entered", (MutantProxy,), {"__enter__": lambda self: None})(workspace)
    else:
        subject = MutantProxy(workspace, **{mutant.method: mutant.change(getattr(workspace, mutant.method))})
    suite = WorkspaceConformance()
    suite.make = lambda: subject  # type: ignore[method-assign]
    with pytest.raises(AssertionError) as error_info:
        getattr(suite, mutant.test)()
    assert len(str(error_info.value)) > 20  # it tells


def test_every_promise_has_something_that_breaks_it() -> None:
    tests = {name for name in dir(WorkspaceConformance) if name.startswith("test_")}
    assert tests == {mutant.test for mutant in MUTANTS}


@pytest.mark.parametrize(("library_class", "client_class"), [(Workspace, Client), (Dataset, RemoteDataset)])
def test_methods_take_what_those_of_the_library_take(library_class: type, client_class: type) -> None:
    """But for what works on files, candidates or the stores; new ones come with a decision."""
    local = {
        "engine",
        "make",
        "opened",
        "path",
        "candidates",
        "close_unless_used",
        "embedder",
        "follow",
        "load",
        "rebuild",
        "retriever",
        "save",
    }
    local |= {"cosine_spread", "is_closable", "retrying", "source", "store", "workspace", "writing"}
    # What a search asks of a dataset.
    local |= {"can", "check_keeps", "keeps", "lists_for", "measuring", "remembered_background", "remembered_versions"}
    # What reads this machine's files, opens databases with its own passwords, or hands vectors about.
    local |= {
        "attach",
        "own_names",
        "detach",
        "stored_policy",
        "calibrate",
        "keep_calibration",
        "keep_reranking",
        "stored_calibrations",
        "being_calibrated",
        "wait_for_calibrations",
    }
    local |= {
        "check_searchable",
        "day",
        "distance",
        "for_request",
        "holds_images",
        "in_view",
        "is_view",
        "on_day",
        "with_store",
        "release",
    }
    # What decides for everyone who uses the workspace.
    local |= {"access", "switch_access", "backend"}
    local |= {f"a{name}" for name in local}
    add_options = {"embed", "existing", "batch_size", "on_commit"}  # the service has its own batches
    only_here = {"add": add_options, "dataset": {"images"}, "embed": {"embedding"}}  # the service embeds by itself
    only_here |= {f"a{name}": options for name, options in only_here.items()}
    public = [name for name in dir(library_class) if not name.startswith("_") and name not in local]
    assert len(public) >= 10
    for name in public:
        if isinstance(inspect.getattr_static(library_class, name), property):
            assert isinstance(inspect.getattr_static(client_class, name), property)
            continue
        library_parameters, client_parameters = (
            inspect.signature(getattr(parameter, name)).parameters for parameter in (library_class, client_class)
        )
        free = {parameter.name for parameter in library_parameters.values() if parameter.kind is parameter.VAR_KEYWORD}
        assert not set(library_parameters) - free - set(client_parameters) - only_here.get(name, set()), (
            f"{name} of {client_class.__name__} lacks a parameter"
        )
        for owner in client_parameters.values():
            if owner.name in library_parameters:
                assert (owner.kind, owner.default) == (
                    library_parameters[owner.name].kind,
                    library_parameters[owner.name].default,
                )


# ── hit by hit ───────────────────────────────────────────────────────────────────────────────────────────────────────

QUESTIONS = ("red signal lamp", "паровоз и пар", "信号灯是红色", "what stops a train and who blows the whistle?", "zzz")
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"k": 3, "trace": "lists"},
    {"k": 20, "refuse": False, "trace": "none"},
    {"strategy": "bm25", "datasets": "filled"},
    {"strategy": "rrf", "datasets": ["words", "filled"]},
    {"strategy": "decomposition", "refuse": False},
    {"filters": "year >= 2000", "rerank": True},
    {"filters": {"language": ["ru", "zh"]}, "rerank": False, "effort": "fast"},
    {"filters": parse_filter("not exists(year)"), "effort": "thorough", "timeout": 20},
    {"datasets": []},
)


def assert_same_answer(answer: RetrievalContext, expected: RetrievalContext) -> None:
    """All that is answered is the same, to the last digit, but for times."""
    assert answer.hits == expected.hits
    assert (answer.plan, answer.refused, answer.degraded, answer.query) == (
        expected.plan,
        expected.refused,
        expected.degraded,
        expected.query,
    )


@pytest.fixture(scope="module")
def words(workspace: Workspace, url: str) -> Iterator[None]:
    """A second dataset, with some of the same ids."""
    dataset = workspace.dataset("words")
    dataset.add([replace(document, text=f"{document.text} {document.text[::-1]}") for document in DOCUMENTS[::2]])
    yield
    workspace.drop("words")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.usefixtures("words")
def test_answers_are_those_of_the_workspace(
    workspace: Workspace, url: str, client: Client, options: Mapping[str, Any]
) -> None:
    local_options = {name: value for name, value in options.items() if name != "trace"}
    expected_answers = [workspace.search(question, **local_options) for question in QUESTIONS]

    async def search_each() -> list[RetrievalContext]:
        async with Client(url) as own_client:
            return await asyncio.gather(*(own_client.asearch(question, **options) for question in QUESTIONS))

    answers = [client.search(question, **options) for question in QUESTIONS]
    for batch in (answers, asyncio.run(search_each())):
        for answer, expected in zip(batch, expected_answers, strict=True):
            assert_same_answer(answer, expected)
    for answer, expected in zip(answers, expected_answers, strict=True):
        if options.get("trace") != "none":
            assert [span.stage for span in answer.trace.spans] == [span.stage for span in expected.trace.spans]
        assert bool(answer.trace.records) == (options.get("trace") == "lists")
        for id_ in ("en-1", "zh-3", "nowhere"):
            explanation, wanted_one = answer.explain(id_), expected.explain(id_)
            if options.get("trace") == "lists":  # a list that came over a wire cannot score what it has not found
                assert explanation.rank == wanted_one.rank
                assert [step.rank for step in explanation.steps] == [step.rank for step in wanted_one.steps]
            else:
                assert explanation == wanted_one
    for answer, expected in zip(
        client.search_many(QUESTIONS, **options), workspace.search_many(QUESTIONS, **local_options), strict=True
    ):
        assert_same_answer(answer, expected)


def test_a_dataset_is_searched_as_the_dataset_itself_does_it(workspace: Workspace, client: Client) -> None:
    local, remote = workspace.dataset("filled"), client.dataset("filled")
    for question in QUESTIONS:
        option_sets: list[dict[str, Any]] = [{}, {"k": 3, "strategy": "bm25"}, {"strategy": "rrf", "timeout": 20}]
        for options in option_sets:
            expected, answer = local.search(question, **options), remote.search(question, **options)
            assert_same_answer(answer, expected)
            assert_same_answer(asyncio.run(remote.asearch(question, **options)), expected)
            stages = [span.stage for span in answer.trace.spans if span.stage != "transform"]  # which adds nothing
            assert stages == [span.stage for span in expected.trace.spans if span.stage != "transform"]


@pytest.mark.usefixtures("words")
def test_a_dataset_is_searched_by_a_vector(workspace: Workspace, client: Client) -> None:
    name = workspace.names()[0]
    local, remote = workspace.dataset(name), client.dataset(name)
    id_ = local.ids()[0]
    vector = local.get_vectors([id_])[0]
    assert vector is not None
    for filters in (None, Contains("_id", id_)):
        local_hits, remote_hits = (
            local.search_vector(vector, 3, filters=filters),
            remote.search_vector(vector, 3, filters=filters),
        )
        assert [hit.id for hit in local_hits] == [hit.id for hit in remote_hits]
        assert [hit.score for hit in remote_hits] == pytest.approx([hit.score for hit in local_hits])
        assert remote_hits[0].id == id_
    expected_ids = [hit.id for hit in local.search_vector(vector, 9, group_by="language", group_size=2)]
    assert [hit.id for hit in remote.search_vector(vector, 9, group_by="language", group_size=2)] == expected_ids
    assert expected_ids != [hit.id for hit in local.search_vector(vector, 9)]
    with pytest.raises(InputError):
        remote.search_vector(vector[:-1], 3)
    with pytest.raises(InputError, match="group_size=2 needs group_by"):
        remote.search_vector(vector, 3, group_size=2)
    assert remote.ids(filters=Contains("_id", id_)) == local.ids(filters=Contains("_id", id_))


@pytest.mark.usefixtures("words")
def test_routes_and_plans_are_those_of_the_workspace(workspace: Workspace, client: Client) -> None:
    for question in QUESTIONS:
        local_route, remote_route = workspace.route(question), client.route(question)
        assert (remote_route.query, remote_route.heuristic, remote_route.plan) == (
            local_route.query,
            local_route.heuristic,
            local_route.plan,
        )
        assert local_route.decision is not None
        assert remote_route.decision is not None
        assert [dataset.name for dataset in remote_route.decision.datasets] == [
            dataset.name for dataset in local_route.decision.datasets
        ]
        assert (remote_route.decision.reason, remote_route.decision.scores) == (
            local_route.decision.reason,
            local_route.decision.scores,
        )
        assert (remote_route.decision.confidence, remote_route.decision.fallback) == (
            local_route.decision.confidence,
            local_route.decision.fallback,
        )
    for strategy in ("auto", "bm25", "z_score"):
        assert client.plan(client.datasets(), strategy) == workspace.plan(workspace.datasets(), strategy)
    with pytest.raises(UnknownNameError, match="no strategy named 'best'"):
        client.plan([], "best")
    assert client.plan([]) == workspace.plan([])
    assert client.route("anything", []).decision is None
    local_status, remote_status = workspace.status("words"), client.status("words")
    assert local_status.pop("memory").keys() == remote_status.pop("memory").keys()  # it grows meanwhile
    assert local_status.items() <= remote_status.items()


def test_datasets_to_route_and_plan_for_may_be_named(workspace: Workspace, client: Client) -> None:
    name, *other_names = workspace.names()
    question = "how does a train change tracks?"
    doors: tuple[Any, ...] = (workspace, client)
    for door in doors:
        for selection in (name, [name], [door.dataset(name)]):
            assert door.plan(selection).datasets == (name,)
            routing = door.route(question, selection)
            assert routing.plan is not None
            assert routing.plan.datasets == (name,)
            assert routing.decision is not None
            assert routing.decision.datasets[0].name == name
            assert door.recommend(question, selection) == workspace.recommend(question, [name])
        assert door.plan([door.dataset(other_names[0]), name]).datasets == (other_names[0], name)
        with pytest.raises(UnknownNameError, match="no dataset named 'typo'"):
            door.route(question, ["typo"])


def test_the_bundled_embedder(tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work") as workspace, serving(app_of(workspace)) as url, Client(url) as client:
        client.dataset("rails").add(DOCUMENTS)
        for question in QUESTIONS:
            assert_same_answer(client.search(question), workspace.search(question))
        assert client.search("How are signals shown to drivers?", 1).hits[0].id == "en-1"


def test_refusals_are_those_of_the_workspace(tmp_path: Path) -> None:
    workflow = RetrievalWorkflow(refiners=[Refuser(thresholds=Threshold("calibrated", 1e9))])
    local = pointsman.open(tmp_path / "work", embedder=HashingEmbedder(), workflow=workflow)
    with local as workspace, serving(app_of(workspace)) as url, Client(url) as client:
        workspace.dataset("rails").add(DOCUMENTS)
        expected = workspace.search("red signal")
        answer = client.search("red signal")
        assert_same_answer(answer, expected)
        assert answer.refused is not None
        assert answer.refused.nearest is not None
        assert client.search("red signal", refuse=False).hits


def test_history_and_filters_of_a_query_go_along(workspace: Workspace, client: Client) -> None:
    history = (Message("user", "Расскажи о паровозах"), Message("assistant", "Их много."))
    query = Query("а в какие годы?", parse_filter("year > 1990"), history)
    assert_same_answer(client.search(query), workspace.search(query))
    assert client.search(query).query.history == history
    assert_same_answer(client.search(query, filters="language = zh"), workspace.search(query, filters="language = zh"))
    with_history, plain = client.search_many([query, "пар"])
    assert (with_history.query.history, plain.query.history) == (history, ())


def test_a_filter_of_many_values_goes_as_a_mapping(client: Client) -> None:
    filters = In("language", (*(f"value number {number} of many" for number in range(900)), "ru"))
    assert len(str(filters)) > 10_000
    assert {hit.id[:2] for hit in client.search("пар мост фонарь", 20, filters=filters, refuse=False)} == {"ru"}

    class Odd(Filter):
        depth = leaves = 1

        def matches(self, metadata: Any) -> bool:
            return True

        def __str__(self) -> str:
            return "?" * 10_001

    with pytest.raises(FilterError, match="a Odd cannot be sent as a filter"):
        client.search("x", filters=Odd())


leaf = st.sampled_from(["a", "b c", "и", "and"]).flatmap(
    lambda key: st.one_of(
        st.builds(lambda value: parse_filter({key: value}), st.one_of(st.booleans(), st.integers(0, 9), st.text())),
        st.builds(lambda values: In(key, tuple(values)), st.lists(st.integers(0, 9))),
        st.builds(lambda low: Range(key, gt=low, lte=low + 3), st.integers(0, 9)),
        st.just(Exists(key)),
    )
)
trees = st.recursive(
    leaf,
    lambda operand: st.one_of(
        st.lists(operand).map(lambda x: And(tuple(x))), st.lists(operand).map(lambda x: Or(tuple(x))), operand.map(Not)
    ),
)


@settings(max_examples=25, deadline=None)
@given(trees)
def test_a_filter_means_the_same_as_text_and_as_mapping(condition: Filter) -> None:
    mapping = parse_filter(json.loads(json.dumps(encoding._mapping(condition))))
    text = parse_filter(str(encoding.sent_filter(condition)))
    for metadata in ({}, {"a": 1, "b c": True}, {"a": [3, "x"], "и": 5}, {"and": "", "b c": 9.0}):
        assert mapping.matches(metadata) == text.matches(metadata) == condition.matches(metadata)


# ── explaining ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explanation_of_what_has_changed_says_so(workspace: Workspace, client: Client) -> None:
    changing = client.dataset("changing", indexing_technique="keyword")
    changing.add([{"id": str(number), "text": f"signal {number}"} for number in range(5)])
    context = client.search("signal", 3, datasets="changing")
    answer_with_lists = client.search("signal", 3, datasets="changing", trace="lists")
    first = context.hits[0].id
    assert "a new search" not in context.explain(first).summary
    changing.delete(first)
    explanation = context.explain(first)
    assert explanation.rank is None
    assert explanation.summary.endswith("this explains a new search, whose answer differs from the original")
    assert answer_with_lists.explain(first).rank == 1
    workspace.drop("changing")
    with pytest.raises(UnknownNameError):
        context.explain(first)


def test_a_pickled_answer(client: Client) -> None:
    context, answer_with_lists = client.search("red signal"), client.search("red signal", trace="lists")
    copy = pickle.loads(pickle.dumps(context))
    assert_same_answer(copy, context)
    assert copy.trace.spans == context.trace.spans
    with pytest.raises(InputError, match="trace='lists'"):
        copy.explain("en-1")
    assert pickle.loads(pickle.dumps(answer_with_lists)).explain("en-1") == answer_with_lists.explain("en-1")
    for subject in (client, client.dataset("filled")):
        with pytest.raises(TypeError, match="its key would be exposed"):
            pickle.dumps(subject)


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": CalibratedReranker()}, "rerank cannot be sent to a service as CalibratedReranker"),
        ({"refuse": 0.5}, "refuse is True, False, None or a refiner"),
        ({"effort": Spending(milliseconds=5)}, "effort cannot be sent to a service as EffortLimits"),
        ({"effort": lambda: "fast"}, "no effort named"),
        ({"strategy": object()}, "strategy is a name"),
        ({"trace": "all"}, "trace is one of none, stages, lists, not 'all'"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, or None, not 0"),
        ({"timeout": float("nan")}, "timeout is a number of seconds above 0, or None, not nan"),
        ({"timeout": float("inf")}, "timeout is a number of seconds above 0, not inf"),
        ({"k": object()}, "the number of results is an int"),
        ({"datasets": [object()]}, "datasets are names"),
        ({"filtres": "a = 1"}, "did you mean 'filters'?"),
        ({"k": 201}, "k is 201, the limit is 200"),
        ({"timeout": 601}, "timeout: Input should be less than or equal to 600"),
        ({"strategy": "hyde"}, "needs a language model"),
        ({"query": "x" * 4001}, "query has 4001 characters, the limit is 4000"),
    ],
)
def test_what_cannot_be_sent_is_told(client: Client, options: dict[str, Any], message: str) -> None:
    query = options.pop("query", "red signal") if "query" in options else "red signal"
    with pytest.raises(InputError, match=re.escape(message)):
        client.search(query, **options)
    with pytest.raises(InputError, match=re.escape(message)):
        asyncio.run(client.asearch(query, **options))


INVALID_CALLS: list[Callable[[Any], Any]] = [
    lambda dataset: dataset.delete([1]),
    lambda dataset: dataset.delete(5),
    lambda dataset: dataset.delete(filters={}),
    lambda dataset: dataset.delete(filters=""),
    lambda dataset: dataset.page("1"),
    lambda dataset: dataset.page(None),
    lambda dataset: dataset.page(0, None),
    lambda dataset: dataset.set_metadata({1: {"year": 1}}),
    lambda dataset: dataset.set_metadata({"1": None}),
    lambda dataset: dataset.set_metadata(["1"]),
    lambda dataset: dataset.set_metadata({"1": {"year": object()}}),
    lambda dataset: dataset.text(1),
    lambda dataset: dataset.ids(source=1),
    lambda dataset: dataset.search("signal", datasets="both"),
    lambda dataset: dataset.search_many(["signal"], datasets=["filled"]),
    lambda dataset: asyncio.run(dataset.asearch("signal", datasets="filled")),
    lambda dataset: asyncio.run(dataset.asearch_many(["signal"], datasets=None)),
    lambda dataset: dataset.search_vector(None),
    lambda dataset: dataset.search_vector("text"),
    lambda dataset: dataset.search_vector([[0.5, 0.5]]),
    lambda dataset: dataset.search_vector([float("nan")]),
    lambda dataset: dataset.search_vector([1.0], k="2"),
]


@pytest.fixture
def dataset_pair(workspace: Workspace, client: Client) -> Iterator[list[Any]]:
    """One dataset, opened here and over HTTP."""
    local = workspace.dataset("both")
    local.add([{"id": "1", "text": "a red signal"}])
    yield [local, client.dataset("both")]
    workspace.drop("both")


@pytest.mark.parametrize("call", INVALID_CALLS)
def test_invalid_arguments_are_input_errors_in_both(dataset_pair: list[Any], call: Callable[[Any], Any]) -> None:
    for dataset in dataset_pair:
        with pytest.raises(InputError):
            call(dataset)
        assert dataset.get("1") == Document("1", "a red signal")


def test_metadata_is_changed_to_whatever_can_be_added(dataset_pair: list[Any]) -> None:
    for number, dataset in enumerate(dataset_pair):
        dataset.set_metadata({"1": {"day": date(2024, 5, 1), "number": np.int64(number), "pair": (1, 2)}})
        assert dataset.get("1").metadata == {"day": "2024-05-01", "number": number, "pair": [1, 2]}


def test_sources_that_cannot_be_stored_are_unknown(dataset_pair: list[Any]) -> None:
    for dataset in dataset_pair:
        assert dataset.ids(source="\ud800") == []
        with pytest.raises(UnknownNameError):
            dataset.text("\ud800")


def test_a_filter_that_does_not_fit_into_an_address_is_not_sent(client: Client) -> None:
    """Searches and deletions send it in the body."""
    dataset, filters = client.dataset("filled"), {"lang": [f"language-{number}" for number in range(900)] * 4}
    calls: list[Callable[[], Any]] = [
        lambda: dataset.count(filters),
        lambda: dataset.ids(filters=filters),
        lambda: dataset.page(filters=filters),
    ]
    for call in calls:
        with pytest.raises(InputError, match="too long for an address"):
            call()
    assert dataset.delete(filters=filters) == 0


def test_errors_of_the_library_are_its_own(client: Client) -> None:
    with pytest.raises(UnmetNeedError, match="language model"):
        client.search("x", strategy="hyde")
    with pytest.raises(UnknownNameError, match=r"^no dataset named 'nowhere'; known: filled") as error_info:
        client.search("x", datasets=["filled", "nowhere"])
    assert (error_info.value.kind, error_info.value.name, error_info.value.known[0]) == ("dataset", "nowhere", "filled")
    assert "request " in error_info.value.__notes__[0]
    dataset = client.dataset("filled")
    with pytest.raises(InputError, match="1 vectors for 0 documents"):
        dataset.add([], vectors=[[1.0]])
    with pytest.raises(InputError, match="a document's id is a str"):
        dataset.get(7)  # type: ignore[arg-type]
    for start, limit in ((-1, 1), (0, 0)):
        with pytest.raises(InputError, match="cursor of the previous page"):
            dataset.page(start, limit)
    with pytest.raises(InputError, match="a policy is a Policy"):
        client.keep({"name": "mine"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="search takes one"):
        asyncio.run(client.asearch_many("x"))
    missing_dataset = client.dataset("gone")
    missing_dataset.make()
    client.drop("gone")
    calls: list[Callable[[], object]] = [
        *(
            lambda: missing_dataset.add(DOCUMENTS),
            lambda: missing_dataset.get("en-1"),
            missing_dataset.ids,
            missing_dataset.page,
            lambda: list(missing_dataset),
        ),
        *(
            lambda: len(missing_dataset),
            lambda: missing_dataset.delete("x"),
            missing_dataset.verify,
            lambda: missing_dataset.search("x"),
        ),
    ]
    for call in calls:
        with pytest.raises(UnknownNameError, match="no dataset named 'gone'"):
            call()
    assert (7 in dataset, "" in dataset, "\ud800" in dataset, missing_dataset.delete([])) == (False, False, False, 0)


def test_a_policy_is_kept(workspace: Workspace, client: Client) -> None:
    client.keep(Policy(name="ours", strategy="bm25"))
    try:
        assert client.search("red signal").plan.strategy == "bm25"
        assert workspace.search("red signal").plan.strategy == "bm25"
    finally:
        client.keep(None)
    assert client.search("red signal").plan.strategy == "hybrid"


def test_limits_of_the_service_are_kept_to(tmp_path: Path) -> None:
    limits = Limits(
        requests_per_minute=0,
        max_batch=3,
        max_documents=4,
        max_body_bytes=2000,
        max_query_chars=500,
        max_request_chars=500,
    )
    with (
        pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace,
        serving(app_of(workspace, limits)) as url,
        Client(url) as client,
    ):
        rails = client.dataset("rails", indexing_technique="keyword")
        rails.add({"id": f"{number} {'x' * 300}", "text": f"signal {number}"} for number in range(30))
        questions = [f"signal {number} {'铁' * 200}" for number in range(11)]
        answers = client.search_many(questions, 1, refuse=False)
        assert [answer.hits[0].id.split()[0] for answer in answers] == [str(number) for number in range(11)]
        assert [answer.hits for answer in asyncio.run(client.asearch_many(questions, 1, refuse=False))] == [
            answer.hits for answer in answers
        ]
        assert rails.delete(rails.ids()[:25]) == 25
        assert len(rails) == 5


def test_pages_of_any_size(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = client.dataset("filled")
    monkeypatch.setattr("pointsman.service.client.remote_dataset._MOST_OF_A_PAGE", 3)
    documents, following = dataset.page(0, 7)
    assert documents == list(DOCUMENTS[:7])
    assert following is not None
    assert dataset.page(following, 100) == (list(DOCUMENTS[7:]), None)
    monkeypatch.undo()
    monkeypatch.setattr(connections, "_LARGEST", 900)
    with pytest.raises(ServiceError, match=r"larger than 0 MB; ask for less at once"):
        dataset.page()
    assert list(dataset) == list(DOCUMENTS)  # in smaller pages
    monkeypatch.setattr(connections, "_LARGEST", 50)
    with pytest.raises(ServiceError, match="larger than"):
        list(dataset)


# ── adding ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_document_may_be_added_alone(client: Client) -> None:
    assert client.dataset("alone").add(Document("a", "one")).added == 1
    with pytest.raises(InputError, match="a list of Document or of mappings"):
        client.dataset("alone").add(7)  # type: ignore[arg-type]


def test_documents_are_taken_as_they_are_sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_WINDOW", 128)
    taken_count, unsaved_counts, durable = 0, list[int](), 0

    def source() -> Iterator[dict[str, Any]]:
        nonlocal taken_count
        for number in range(1000):
            taken_count += 1
            unsaved_counts.append(taken_count - durable)
            yield {"id": str(number), "text": f"signal {number}"}

    def count_durable(increment: int) -> None:
        nonlocal durable
        durable += increment

    rails = client.dataset("stream", indexing_technique="keyword")
    try:
        assert rails.add(source(), on_progress=count_durable) == AddResult(added=1000)
        assert durable == taken_count == len(rails) == 1000
        assert max(unsaved_counts) <= 128  # never more in hand than one request
    finally:
        client.drop("stream")


def test_what_comes_slowly_is_sent_as_it_comes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_WINDOW_SECONDS", 0.0)
    rails, sizes = client.dataset("slow", indexing_technique="keyword"), list[int]()

    def source() -> Iterator[Document]:
        for document in DOCUMENTS[:3]:
            sizes.append(len(rails))
            yield document

    try:
        rails.add(source())
        assert sizes == [0, 1, 2]
    finally:
        client.drop("slow")


def test_what_is_stored_is_told_when_the_source_breaks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_WINDOW", 4)
    rails = client.dataset("broken", indexing_technique="keyword")

    def impossible(increment: int) -> None:
        raise ZeroDivisionError(increment)

    def source() -> Iterator[Any]:
        yield from DOCUMENTS[:9]
        raise OSError("the disk is gone")

    note = "the first 8 documents are stored (8 added, 0 updated, 0 unchanged), and may be sent again"
    try:
        with pytest.raises(OSError, match="the disk is gone") as error_info:
            rails.add(source())
        assert error_info.value.__notes__ == [note]
        with pytest.raises(InputError, match=re.escape("the first 8 documents are stored (0 added, 0 updated, 8 unch")):
            rails.add([*DOCUMENTS[:9], {"id": "x"}])
        with pytest.raises(ZeroDivisionError) as stop_info:
            rails.add(DOCUMENTS, on_progress=impossible)
        assert "the first 4 documents are stored" in stop_info.value.__notes__[0]
        long = {"id": "long", "text": "x" * 1_000_001}
        with pytest.raises(InputError, match=r"^document 'long': is longer than 1,000,000 bytes; the first 9 doc"):
            rails.add([*DOCUMENTS[:9], long])
    finally:
        client.drop("broken")


# ── who may ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def keyed_service(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Iterator[tuple[str, KeyStore]]:
    folder = tmp_path_factory.mktemp("guarded")
    keys = KeyStore(folder / "work" / "keys.json")
    with pointsman.open(folder / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("mine", indexing_technique="keyword").add(DOCUMENTS)
        workspace.dataset("theirs", indexing_technique="keyword").add(DOCUMENTS[:1])
        keys.create("somebody")
        with serving(app_of(workspace, keys=keys)) as url:
            yield url, keys


def test_keys(keyed_service: tuple[str, KeyStore], capsys: pytest.CaptureFixture[str]) -> None:
    url, keys = keyed_service
    reader = keys.create("reader", datasets=["mine"], scopes=["read"]).text
    with Client(url, reader) as client:
        assert client.names() == ["mine"]
        output.status(cast("Workspace", client), as_json=False)  # which is told no memory
        assert "mine" in capsys.readouterr().out
        assert client.dataset("mine").search("signal").hits  # which needs no right to write
        assert asyncio.run(client.asearch("signal")).hits
        with pytest.raises(UnknownNameError, match="no dataset named 'theirs'; known: mine"):
            client.search("signal", datasets="theirs")
        own_dataset = client.dataset("mine")
        calls: list[Callable[[], object]] = [
            *(
                lambda: own_dataset.add(DOCUMENTS),
                lambda: own_dataset.delete("en-1"),
                lambda: own_dataset.describe("x"),
            ),
            *(lambda: client.drop("mine"), lambda: client.keep(None)),
        ]
        for call in calls:
            with pytest.raises(
                ServiceError, match=r"does not allow this: (this key is for reading only|a key for all datasets)"
            ) as error_info:
                call()
            assert (error_info.value.status, error_info.value.title) == (403, "The key does not allow this")
            assert error_info.value.request_id
    for key, message in (
        (None, "it requires a key; give one to the client, or set POINTSMAN_API_KEY for commands"),
        (KEY, "it rejects this key, which is"),
    ):
        with Client(url, key) as client, pytest.raises(ServiceError, match=message) as refused:
            client.search("signal")
        assert refused.value.status == 401
        assert reader not in str(refused.value)


def test_files_of_this_machine_are_indexed(workspace: Workspace, client: Client, tmp_path: Path) -> None:
    (tmp_path / "lamps.md").write_text("# Lamps\n\nA green lamp means that the line is clear.", "utf-8")
    report = client.index(tmp_path, "folder", max_tokens=64)
    assert (report.files, report.passages.added) == (1, 1)
    assert client.index([tmp_path], "folder", max_tokens=64).passages.added == 0
    assert [hit.metadata["source"] for hit in client.search("green lamp", datasets="folder", refuse=False)] == [
        "lamps.md"
    ]
    client.drop("folder")


def test_a_key_for_writing_only_fills_a_dataset(keyed_service: tuple[str, KeyStore]) -> None:
    url, keys = keyed_service
    writer = keys.create("writer", scopes=["write"]).text
    reader = keys.create("reader of all", scopes=["read"]).text
    with Client(url, writer) as client, Client(url, reader) as reading:
        dataset = client.dataset("filled", description="Notes", indexing_technique="keyword")
        assert dataset.delete("en-1") == 0  # there is none yet
        assert dataset.add(DOCUMENTS) == AddResult(updated=len(DOCUMENTS))  # it does not learn which were stored
        same_dataset = client.dataset("filled")
        assert same_dataset.add(DOCUMENTS) == AddResult(updated=len(DOCUMENTS))
        assert (same_dataset.description, same_dataset.indexing_technique) == (
            "",
            "hybrid",
        )  # it does not learn what is stored
        readable = reading.dataset("filled")
        assert (readable.description, readable.indexing_technique) == (
            "Notes",
            "keyword",
        )  # neither was given: both stay
        assert reading.dataset("filled").count() == len(DOCUMENTS)
        assert same_dataset.delete(["en-1"]) == 0
        assert reading.dataset("filled").count() == len(DOCUMENTS) - 1
        with pytest.raises(UnmetNeedError, match="'filled' was not made for 'hybrid' search"):
            client.dataset("filled", indexing_technique="hybrid").add(DOCUMENTS)
        for call in (
            same_dataset.count,
            lambda: client.search("signal"),
            lambda: client.dataset("filled", create=False),
        ):
            with pytest.raises(ServiceError, match="for writing only"):
                call()
        client.drop("filled")
        assert "filled" not in reading.names()


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("127.0.0.1:8080", {}, "url must begin with http:// or https://"),
        ("http://", {}, "url must begin with http:// or https:// and a host"),
        ("http://[", {}, "url is not a valid address"),
        ("http://host:port", {}, "url is not a valid address"),
        (None, {}, "url (is not a valid address|must begin with)"),
        ("http://me:secret@host", {}, "the address of host contains a user or password"),
        ("http://host/?key=secret", {}, "the service's address without a query"),
        ("https://host", {"key": "two\nlines"}, "key must be one line of ASCII"),
        ("https://host", {"key": ""}, "key must be one line of ASCII"),
        ("https://host", {"key": "ключ"}, "key must be one line of ASCII"),
        ("http://host", {"key": KEY}, "the key would be sent to host without encryption; use https"),
        ("http://10.0.0.1", {"key": KEY}, "insecure=True if no one can read"),
        ("http://host", {"timeout": 0}, "timeout is a number of seconds above 0"),
        ("http://host", {"timeout": None}, "timeout is a number of seconds above 0"),
        ("http://host", {"timeout": float("inf")}, "timeout is a number of seconds above 0"),
        ("http://host", {"retries": -1}, "retries is an int from 0 up"),
        ("http://host", {"retries": True}, "retries is an int from 0 up"),
    ],
)
def test_clients_that_cannot_be(url: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error_info:
        Client(url, **options)
    assert "secret" not in str(error_info.value)
    assert KEY not in str(error_info.value)


def test_clients_that_can_be() -> None:
    for url in ("http://127.0.0.1:1", "http://[::1]:8080", "http://localhost/", "https://example.org/pointsman/"):
        assert repr(Client(url, KEY)) == f"Client({url.rstrip('/')!r})"
    assert repr(Client("http://service", KEY, insecure=True)) == "Client('http://service')"


def test_importing_is_cheap() -> None:
    code = "import sys, pointsman.service.client; print(' '.join(sys.modules))"
    modules = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not modules & {"httpx", "numpy", "tantivy", "sqlite3", "fastapi"}


# ── a hostile service ────────────────────────────────────────────────────────────────────────────────────────────────

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request, kept, and answered by what stands next in the script; the last of it stands for good."""

    protocol_version = "HTTP/1.1"
    timeout = 5
    hostile: Hostile
    body: bytes = b""

    def do_GET(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise AssertionError("the client announces how much it sends")
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.hostile.lock:
            self.hostile.requests.append(self)
            act = self.hostile.script[min(len(self.hostile.requests), len(self.hostile.script)) - 1]
        try:
            act(self)
        except OSError:
            self.close_connection = True  # the client has had enough

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  (the base class looks for these names)

    def log_message(self, *_: Any) -> None:
        pass


class Hostile:
    """A service that does whatever it is told to."""

    def __init__(self) -> None:
        self.requests: list[Handler] = []
        self.script: list[Act] = []
        self.lock = threading.Lock()
        self.release_event = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handling", (Handler,), {"hostile": self}))
        self.http.daemon_threads = False
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def will(self, *script: Act) -> None:
        self.requests, self.script = [], list(script)

    def close(self) -> None:
        self.release_event.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    service = Hostile()
    yield service
    service.close()


def says(body: Any, status: int = 200, kind: str = "application/json", **headers: str) -> Act:
    """Answers as one should, whatever it is."""
    content = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def act(handler: Handler) -> None:
        handler.send_response(status)
        basic_headers = {"Content-Type": kind, "Content-Length": str(len(content)), "X-Request-Id": "r-1"}
        for name, value in {
            **basic_headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return act


def problem(slug: str, status: int, detail: Any = "no", retry_after: str | None = None, **members: Any) -> Act:
    document = {"type": f"/problems/{slug}", "title": f"Title of {slug}", "status": status, "detail": detail, **members}
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    return says(document, status, "application/problem+json", **headers)


def raw(content: bytes) -> Act:
    """Writes so many bytes, and hangs up."""

    def act(handler: Handler) -> None:
        handler.wfile.write(content)
        handler.close_connection = True

    return act


def drip(handler: Handler) -> None:
    """Never ends, and never lets one wait for long."""
    handler.wfile.write(CUT)
    while not handler.hostile.release_event.wait(0.05):
        handler.wfile.write(b" ")
    handler.close_connection = True


def hang(handler: Handler) -> None:
    handler.hostile.release_event.wait(20)
    handler.close_connection = True


SERVICE_LIMITS = {"max_batch": 100, "max_documents": 1000, "max_body_bytes": 10**6, "max_request_chars": 40_000}
ANSWER = RetrievalContext(Query("rail"), (), Plan(("rails",), "bm25", "asked for"), Trace()).to_dict(trace="stages")
HIT = Hit(Document("a", "t"), 1.0, "d").to_dict(1)
CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n" + b" " * 100
ECHO = f"Authorization: Bearer {KEY} \x00\x1b[31m\u202e"


class Case(NamedTuple):
    """What the service does, what that is for the caller, and how often it was asked."""

    act: Act
    error: type[Exception]
    message: str
    requests: int = 1
    attributes: Mapping[str, Any] = {}
    in_data: bool = False
    timeout: float = 60


CASES = {
    "hangs": Case(hang, ServiceError, "no answer came in time", 1, {"status": None, "title": "late"}, timeout=2),
    "drips": Case(drip, ServiceError, "no answer came in time", timeout=2),
    "hangs up": Case(raw(b""), ServiceError, r"the connection broke \(RemoteProtocolError", 3, {"title": "broken"}),
    "garbage": Case(raw(b"\x00\xff not HTTP\r\n\r\n"), ServiceError, "the connection broke", 3),
    "huge, cut off": Case(raw(CUT), ServiceError, "the connection broke", 3),
    "huge headers": Case(raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000), ServiceError, "the connection broke", 3),
    "too large": Case(says(" " * 20_000), ServiceError, "the answer is larger than", 1, {"title": "too large"}),
    "compressed": Case(
        says(b"\x1f\x8b", Content_Encoding="gzip"), ServiceError, "compressed, but no compression was requested"
    ),
    "no JSON": Case(says("<h1>Hello</h1>"), ServiceError, "the answer is not JSON: <h1>Hello</h1>", 1, {"status": 200}),
    "nothing": Case(says(""), ServiceError, "the answer is not JSON: nothing"),
    "too deep": Case(says("[" * 9_000), ServiceError, "the answer is not JSON"),
    "no UTF-8": Case(says(b'{"results": "\xff"}'), ServiceError, "the answer is not JSON"),
    "a list": Case(says([]), ServiceError, "the service sent an invalid answer"),
    "null": Case(says("null"), ServiceError, "the service sent an invalid answer"),
    "an empty object": Case(says({}), ServiceError, "the service sent an invalid answer"),
    "results of another kind": Case(says({**ANSWER, "hits": 7}), ServiceError, "this is not an answer"),
    "a score that is none": Case(says({**ANSWER, "hits": [{**HIT, "score": "high"}]}), ServiceError, "score is 'high'"),
    "a nearest without a score": Case(
        says(
            {
                **ANSWER,
                "refused": {"reason": "no", "nearest": {**HIT, "score": None}, "score": 1, "threshold": 1, "scale": ""},
            }
        ),
        ServiceError,
        "score is None",
    ),
    "a document without id": Case(
        says({**ANSWER, "hits": [{**HIT, "id": ""}]}), ServiceError, "the service sent an invalid answer"
    ),
    "500": Case(
        problem("internal", 500, "see the log"),
        ServiceError,
        r"see the log \(status 500, request r-1\)",
        1,
        {"status": 500, "title": "Title of internal", "request_id": "r-1", "retry_after": None},
    ),
    "502 of a proxy": Case(
        says("<html>Bad\r\ngateway</html>", 502, "text/html"),
        ServiceError,
        "not a Pointsman service's answer: <html>Bad gateway</html>; is the address right",
        1,
        {"status": 502},
    ),
    "404 of something else": Case(says({"detail": "Not Found"}, 404), ServiceError, "is the address right"),
    "429": Case(
        problem("too-many-requests", 429, "slower", "0"), ServiceError, "slower", 3, {"status": 429, "retry_after": 0.0}
    ),
    "429 for long": Case(
        problem("too-many-requests", 429, "slower", "3600"),
        ServiceError,
        "slower; it asks for a retry after 3600 s",
        1,
        {"retry_after": 3600.0},
    ),
    "429 without a time": Case(problem("too-many-requests", 429), ServiceError, "no", 1, {"retry_after": None}),
    "429 with an odd time": Case(problem("too-many-requests", 429, "no", "soon"), ServiceError, "no"),
    "503": Case(problem("unavailable", 503, "starting", "0"), ServiceError, "starting", 3, {"status": 503}),
    "503 without a time": Case(says("down", 503, "text/plain"), ServiceError, "down", 1),
    "locked": Case(problem("locked", 503, "writing", "0"), LockedError, "^writing$", 3),
    "a model": Case(problem("unavailable", 503, "broken", error="ModelError"), ModelError, "^broken$"),
    "a package": Case(problem("unavailable", 503, "x", error="MissingDependencyError"), ModelError, "^x$"),
    "every branch": Case(
        problem("unavailable", 503, "nothing", failed={"bm25": "OSError"}, error="RetrievalError"),
        RetrievalError,
        "nothing: bm25: ServiceError: OSError there",
    ),
    "invalid": Case(problem("invalid-input", 422, "k is 0"), InputError, "^k is 0$"),
    "a filter": Case(problem("invalid-input", 422, "no", error="FilterError"), FilterError, "^no$"),
    "an error of later versions": Case(problem("internal", 500, "new", error="NewError"), ServiceError, "new"),
    "an error that is no name": Case(problem("internal", 500, "new", error=["InputError"]), ServiceError, "new"),
    "no name of ours": Case(problem("internal", 500, "x", error="KeyboardInterrupt"), ServiceError, "x"),
    "401": Case(problem("unauthorized", 401), ServiceError, "it rejects this key", 1, {"status": 401}),
    "401 of a proxy": Case(says("no", 401, "text/plain"), ServiceError, "is the address right", 1, {"status": 401}),
    "redirect": Case(
        says("", 307, Location="http://127.0.0.1:1/"),
        ServiceError,
        "it redirects, and redirects are not followed",
        1,
        {"status": 307},
    ),
    "a problem of another kind": Case(problem("internal", 500, {"a": [1]}), ServiceError, "'a'"),
    "a problem that is a list": Case(says([1], 500, "application/problem+json"), ServiceError, "is the address right"),
    "the key in a problem": Case(problem("internal", 500, ECHO, title=ECHO), ServiceError, r"Bearer \[key\]"),
    "the key in a library's": Case(problem("x", 500, ECHO, error="InputError"), InputError, r"Bearer \[key\]"),
    "the key in a page": Case(says(" " * 80 + ECHO, 500, "text/html"), ServiceError, r"Bearer \[key\]"),
    "the key as JSON": Case(says(ECHO), ServiceError, r"Bearer \[key\]"),
    "the key as a score": Case(
        says({**ANSWER, "hits": [{**HIT, "score": ECHO}]}), ServiceError, r"\[key\]", in_data=True
    ),
    "the key as an id": Case(says({}, 500, X_Request_Id=KEY), ServiceError, r"request \[key\]"),
}


@pytest.fixture
def impatient(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(connections, "_LARGEST", 10_000)
    monkeypatch.setattr("random.uniform", lambda *_: 0.02)
    with Client(hostile.url, KEY, timeout=60) as client:
        yield client


def search_by(client: Client, method: str) -> RetrievalContext:
    return client.search("rail") if method == "search" else asyncio.run(client.asearch("rail"))


@pytest.mark.parametrize("method", ["search", "asearch"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_service_that_fails(
    hostile: Hostile, impatient: Client, case: Case, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hostile.will(case.act)
    impatient._service.timeout = case.timeout
    start = time.monotonic()
    with pytest.raises(case.error) as error_info:
        search_by(impatient, method)
    error = error_info.value
    assert re.search(case.message, str(error))
    assert time.monotonic() - start < case.timeout + 58  # only a clock tells that it does not hang
    assert len(hostile.requests) == case.requests
    assert type(error) in {case.error, connections.TooLargeError}
    assert {name: getattr(error, name) for name in case.attributes} == case.attributes
    assert hostile.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    formatted_error = traceback.TracebackException.from_exception(error, capture_locals=not case.in_data)
    texts = [str(error), repr(error), "".join(formatted_error.format()), *map(str, getattr(error, "__notes__", ()))]
    assert not any(KEY in text for text in texts)
    assert str(error).isprintable()
    assert error.__context__ is None or not hasattr(error.__context__, "request")  # which would hold the header
    assert KEY not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("pointsman"))


def test_a_service_that_is_not_there(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda *_: 0.4)
    caplog.set_level(logging.INFO, "pointsman.service.client.service_calls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Client(url, KEY, timeout=5) as client:
        rails = RemoteDataset(client, client._service, "rails", "", "hybrid")
        for call in (lambda: client.search("rail"), lambda: client.drop("rails"), lambda: rails.add(DOCUMENTS)):
            caplog.clear()
            with pytest.raises(
                ServiceError, match=r"no connection could be made \(ConnectError.*is the service running"
            ):
                call()
            assert len(caplog.records) == 2  # sent again twice, also what is no search: nothing had arrived
            assert "no connection; again in 0." in caplog.text
    with Client(url, retries=0) as client, pytest.raises(ServiceError):
        asyncio.run(client.asearch("rail"))


def test_a_service_that_is_busy_for_a_moment(hostile: Hostile, impatient: Client) -> None:
    ok = says(ANSWER)
    for bad in (problem("too-many-requests", 429, "no", "0"), problem("locked", 503, "no", "0"), raw(b"")):
        hostile.will(bad, bad, ok)
        assert impatient.search("rail").plan.strategy == "bm25"
        hostile.will(bad, ok)
        assert asyncio.run(impatient.asearch("rail")).plan.strategy == "bm25"
        assert len(hostile.requests) == 2


def test_deletions_are_not_repeated_blindly(hostile: Hostile, impatient: Client) -> None:
    limits = says({"limits": SERVICE_LIMITS})
    rails = RemoteDataset(impatient, impatient._service, "rails", "", "hybrid")
    hostile.will(raw(b""))
    with pytest.raises(ServiceError, match="the connection broke"):
        impatient.drop("rails")
    assert len(hostile.requests) == 1
    hostile.will(limits, raw(b""))
    with pytest.raises(ServiceError, match="the connection broke"):
        rails.delete("a")
    assert len(hostile.requests) == 2
    hostile.will(problem("locked", 503, "no", "0"), says({"deleted": 7}))  # it has said that it was not done
    assert rails.delete(["a", "b"]) == 7


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ({"datasets": [{"name": "a"}]}, lambda client, rails: client.names()),
        ({"datasets": 7}, lambda client, rails: client.datasets()),
        ({"name": "a", "description": None, "indexing_technique": "x", "documents": 1}, lambda c, r: c.status("a")),
        ({"name": "a", "description": "", "indexing_technique": "x", "documents": True}, lambda c, r: len(r)),
        ({"id": "a", "text": 7, "metadata": {}}, lambda client, rails: rails.get("a")),
        ({"documents": [], "next": "x"}, lambda client, rails: rails.page()),
        ({"documents": [], "next": "0"}, lambda client, rails: rails.page()),
        ({"ids": [], "next": 0}, lambda client, rails: rails.ids()),
        ({"ids": 7, "next": None}, lambda client, rails: rails.ids()),
        ({"deleted": "many"}, lambda client, rails: rails.delete("a")),
        ({"documents": 1, "in_keyword_index": 1, "in_vector_index": -1, "problems": []}, lambda c, r: r.verify()),
        ({"answers": []}, lambda client, rails: client.search_many(["rail"])),
        ({"answers": [7]}, lambda client, rails: client.search_many(["rail"])),
        (
            {"query": "x", "heuristic": {"route": "bm25", "reasons": []}, "plan": None, "decision": None},
            lambda client, rails: client.plan([rails]),
        ),
        (
            {"plan": {"strategy": "x", "reason": "y"}, "decision": {"datasets": ["b"]}},
            lambda c, r: c.route("x", [r]),
        ),
        ([], lambda client, rails: client.route("rail", [rails])),
    ],
)
def test_other_answers_are_checked_too(
    hostile: Hostile, impatient: Client, body: Any, call: Callable[[Client, RemoteDataset], Any]
) -> None:
    impatient._service._limits_known = SERVICE_LIMITS
    hostile.will(says(body))
    with pytest.raises(ServiceError, match=r"the service sent an invalid "):
        call(impatient, RemoteDataset(impatient, impatient._service, "rails", "", "hybrid"))


def test_limits_and_explanations_are_checked_too(hostile: Hostile, impatient: Client) -> None:
    for limits in ({}, {"max_batch": 0, "max_documents": 1, "max_body_bytes": 1}, None):
        hostile.will(says({"limits": limits}))
        with pytest.raises(ServiceError, match="sent an invalid list of limits"):
            impatient.search_many(["rail"])
    hostile.will(says(ANSWER), says({"summary": "it is"}))
    context = impatient.search("rail")
    with pytest.raises(ServiceError, match="sent an invalid explanation"):
        context.explain("a")


def report(count: int, **fields: Any) -> bytes:
    return json.dumps({"done": count, "added": count, "updated": 0, "unchanged": 0, **fields}).encode() + b"\n"


def lines(*content: bytes, complete: bool = True) -> Act:
    """Answers by lines; one that is not whole ends without saying so."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in content) + (b"0\r\n\r\n" if complete else b"")
    return raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)


LOCKED_PROBLEM = {"type": "/problems/locked", "title": "t", "status": 503, "detail": "writing", "error": "LockedError"}
INVALID = {"type": "/problems/invalid-input", "title": "t", "status": 422, "detail": "line 2: bad", "line": 2}


@pytest.mark.parametrize(
    "broken_answer", [lines(report(4), complete=False), lines(report(4)), lines(report(4, problem=LOCKED_PROBLEM))]
)
def test_what_a_broken_connection_has_left_open_is_sent_again(
    hostile: Hostile, impatient: Client, broken_answer: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    rails, progress = RemoteDataset(impatient, impatient._service, "rails", "", "hybrid"), list[int]()
    hostile.will(broken_answer, raw(b""), lines(report(2), report(6, finished=True)))
    assert rails.add(DOCUMENTS, on_progress=progress.append) == AddResult(added=10)
    assert progress == [4, 2, 4]
    sent_ids = [[json.loads(line)["id"] for line in request.body.splitlines()] for request in hostile.requests]
    assert sent_ids == [[document.id for document in DOCUMENTS[start:]] for start in (0, 4, 4)]


def test_repetitions_begin_anew_with_each_step(hostile: Hostile, impatient: Client) -> None:
    rails = RemoteDataset(impatient, impatient._service, "rails", "", "hybrid")
    hostile.will(lines(report(2), complete=False))
    assert rails.add(DOCUMENTS) == AddResult(added=10)
    assert len(hostile.requests) == 5  # each stores two more; three in a row that store none would be the end


@pytest.mark.parametrize(
    ("acts", "error", "message", "requests"),
    [
        ([lines(report(4), complete=False), raw(b"")], ServiceError, "broke.*the first 4 documents are stored", 3),
        ([raw(b"")], ServiceError, r"the connection broke \([^;]*\)$", 3),
        (
            [lines(report(4, problem=LOCKED_PROBLEM)), lines(report(0, problem=LOCKED_PROBLEM))],
            LockedError,
            "^writing; the first 4",
            3,
        ),
        ([lines(report(0, problem=INVALID))], InputError, "^document 'en-2': bad$", 1),
        ([lines(report(4), report(4, problem=INVALID))], InputError, "^document 'en-2': bad; the first 4 doc", 1),
        (
            [lines(report(4), b"nonsense\n")],
            ServiceError,
            "an invalid report of documents added.*the first 4 documents",
            1,
        ),
        ([lines(report(11))], ServiceError, "11 of 10 documents are reported after 0", 1),
        ([lines(report(4), report(3))], ServiceError, "3 of 10 documents are reported after 4", 1),
        ([lines(report(9, finished=True))], ServiceError, "9 of 10 documents are reported", 1),
        ([lines(*[report(0)] * 100)], ServiceError, "0 of 10 documents are reported after 0", 1),
        ([lines(report(4, problem={"status": "x"}))], ServiceError, "sent an invalid report of documents added", 1),
        ([lines(report(4, problem=[]))], ServiceError, "sent an invalid report of documents added", 1),
        ([lines(report(4, problem={"status": 500}))], ServiceError, "not a Pointsman service.*the first 4", 1),
        ([lines(b"x" * 20_000)], ServiceError, "the answer is larger than", 1),
        ([problem("too-large", 413, "too large")], InputError, "^too large$", 1),
        ([problem("too-many-requests", 429, "slower", "0")], ServiceError, "slower", 3),
    ],
)
def test_adding_to_a_service_that_fails(
    hostile: Hostile,
    impatient: Client,
    acts: list[Act],
    error: type[Exception],
    message: str,
    requests: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    rails = RemoteDataset(impatient, impatient._service, "rails", "", "hybrid")
    hostile.will(*acts)
    with pytest.raises(error) as error_info:
        rails.add(DOCUMENTS)
    assert re.search(message, str(error_info.value))
    assert len(hostile.requests) == requests


def test_a_service_that_takes_documents_and_says_nothing(
    hostile: Hostile, impatient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.service.client.remote_dataset._LOCK_SECONDS", 0.0)
    rails = RemoteDataset(impatient, impatient._service, "rails", "", "hybrid")
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    line = report(4)
    first = head + b"%x\r\n%b\r\n" % (len(line), line)

    def stall(handler: Handler) -> None:
        handler.wfile.write(first)
        hang(handler)

    hostile.will(stall)
    impatient._service.timeout = 2
    with pytest.raises(ServiceError, match="no answer came in time; the first 4 documents are stored"):
        rails.add(DOCUMENTS)


def test_the_key_does_not_follow_a_redirect(hostile: Hostile) -> None:
    other_service = Hostile()
    try:
        other_service.will(says(ANSWER))
        hostile.will(says("", 307, Location=f"{other_service.url}/api/search"))
        with Client(hostile.url, KEY) as client, pytest.raises(ServiceError, match="redirects"):
            client.search("rail")
        assert not other_service.requests
    finally:
        other_service.close()


def test_no_proxy_comes_between_programs_of_one_machine(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    hostile.will(says(ANSWER))
    with Client(hostile.url, KEY) as client:
        assert client.search("rail").plan.strategy == "bm25"


def test_an_address_with_a_path(hostile: Hostile) -> None:
    hostile.will(says(ANSWER))
    with Client(f"{hostile.url}/pointsman/") as client:
        client.search("rail")
    (request,) = hostile.requests
    assert request.path == "/pointsman/api/search"
    assert "Authorization" not in request.headers
    assert json.loads(request.body)["trace"] == "stages"


@given(
    st.one_of(
        st.text(),
        st.integers().map(str),
        st.datetimes().map(lambda moment: moment.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    )
)
def test_whatever_retry_after_says(text: str) -> None:
    seconds = seconds_of(text)
    assert seconds is None or seconds >= 0


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_threads_share_a_pool(client: Client, workspace: Workspace) -> None:
    expected = {question: workspace.search(question).hits for question in QUESTIONS}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda question: (question, client.search(question).hits), QUESTIONS * 6))
    assert all(hits == expected[question] for question, hits in answers)


def test_event_loops_have_a_pool_each(url: str, workspace: Workspace) -> None:
    """And nothing is left open when they end: an unclosed connection would be a warning, which is an error here."""
    expected_hits = workspace.search("red signal").hits
    with Client(url) as client:
        pools: list[httpx.AsyncClient] = []

        async def search_five_times() -> list[Any]:
            answers = await asyncio.gather(*(client.asearch("red signal") for _ in range(5)))
            http_client = client._service.link._async_client.get()
            assert http_client is not None
            pools.append(http_client[1])
            return answers

        for _ in range(3):
            assert all(answer.hits == expected_hits for answer in asyncio.run(search_five_times()))
        with ThreadPoolExecutor(3) as pool:
            assert all(
                answer.hits == expected_hits
                for answers in pool.map(lambda _: asyncio.run(search_five_times()), range(3))
                for answer in answers
            )

        async def with_block() -> None:
            async with client as open_client:
                assert (await open_client.asearch("red signal")).hits == expected_hits
            with pytest.raises(InputError, match="is closed"):
                await client.asearch("red signal")
            await client.aclose()

        asyncio.run(with_block())
        assert len(set(pools)) == 6
        assert all(pool.is_closed for pool in pools)
        with pytest.raises(InputError, match="is closed"):
            client.search("red signal")
    client.close()
    gc.collect()


def test_cancelling_stops_waiting(hostile: Hostile) -> None:
    hostile.will(hang)

    async def give_up() -> float:
        start = time.monotonic()
        async with Client(hostile.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.asearch("rail")
        return time.monotonic() - start

    assert asyncio.run(give_up()) < 30


def test_closing_under_way(hostile: Hostile) -> None:
    hostile.will(says(ANSWER))
    with Client(hostile.url) as client:
        client.search("rail")
        http_client = client._service.link._sync_client
        assert http_client is not None
        http_client.close()  # as another thread would between two steps
        with pytest.raises(ServiceError, match="the client was closed meanwhile"):
            client.search("rail")
        client.close()
        with pytest.raises(InputError, match="is closed"):
            client.search("rail")


def test_a_closed_dataset_of_a_client_says_so(client: Client) -> None:
    with client.dataset(client.names()[0]) as dataset:
        assert len(dataset) > 0
    for use in (lambda: dataset.search("rail"), lambda: len(dataset), lambda: dataset.add([Document("x", "rail")])):
        with pytest.raises(InputError, match="is closed"):
            use()
    assert len(client.dataset(dataset.name)) > 0


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="nothing forks here")
def test_a_forked_process_has_connections_of_its_own(url: str) -> None:
    code = f"""
    import os, sys
    from pointsman.service.client import Client
    client = Client({url!r})
    before = [hit.id for hit in client.search("red signal").hits]
    link = client._service.link
    pool = link._sync_client
    link._lock.acquire()  # as a thread would that is not there in the child
    child = os.fork()
    if not child:
        found = [hit.id for hit in client.search("red signal").hits]
        os._exit(0 if found == before and link._sync_client is not pool else 3)
    link._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [hit.id for hit in client.search("red signal").hits] == before and link._sync_client is pool
    client.close()
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_an_application_in_this_process(workspace: Workspace) -> None:
    async def ask() -> RetrievalContext:
        transport = httpx.ASGITransport(app_of(workspace))
        async with Client("http://localhost", transport=transport) as client:
            with pytest.raises(InputError, match="is asynchronous only"):
                client.names()
            return await client.asearch("red signal", trace="lists")

    answer, expected = asyncio.run(ask()), workspace.search("red signal")
    assert_same_answer(answer, expected)
    assert answer.explain("en-1").rank == expected.explain("en-1").rank


def test_a_transport_of_ones_own() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=ANSWER)

    with Client("https://example.org", KEY, transport=httpx.MockTransport(answer)) as client:
        assert client.search("rail").plan == asyncio.run(client.asearch("rail")).plan
    assert [request.headers["authorization"] for request in requests] == [f"Bearer {KEY}"] * 2
    sync_only = Client("https://example.org", transport=httpx.HTTPTransport())
    with sync_only, pytest.raises(InputError, match="is synchronous only"):
        asyncio.run(sync_only.asearch("rail"))


# ── the page about it ────────────────────────────────────────────────────────────────────────────────────────────────


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    """They name a service at its usual place; here it is at another."""
    page = (Path(__file__).parents[1] / "docs" / "client.md").read_text("utf-8")
    examples = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert examples
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace, serving(app_of(workspace)) as url:
        for number, code in enumerate(examples):
            program = code.replace("http://127.0.0.1:8080", url)
            exec(compile(program, f"example {number} of client.md", "exec"), {"__name__": "__main__"})


def test_vectors_and_metadata_keys_travel(client: Client) -> None:
    dataset = client.dataset("vectors")
    assert (dataset.get_vectors(["a"]), dataset.metadata_keys()) == ([None], [])
    rows = [HashingEmbedder().embed("a red signal"), None, HashingEmbedder().embed("a lamp")]
    documents = [
        Document(name, "text", {"n": 1, "author": {"name": "Li"}} if name == "a" else {"year": 2024}) for name in "abc"
    ]
    assert dataset.add(documents, vectors=rows, embed=False).added == 3
    vectors = dataset.get_vectors(["c", "b", "a", "unknown"])
    assert [vector is None for vector in vectors] == [False, True, False, True]
    for vector, row in zip((vectors[2], vectors[0]), (rows[0], rows[2]), strict=True):
        assert vector is not None
        assert row is not None
        assert vector.tolist() == pytest.approx(row.tolist(), abs=1e-6)
    assert [hit.id for hit in dataset.search_vector(rows[2], 1)] == ["c"]
    assert dataset.metadata_keys() == ["author.name", "n", "year"]
    dataset.add([Document("b", "text", {"year": 2024})])
    assert dataset.get_vectors(["b"])[0] is not None, "the service embeds what is added without a vector"
    bad_vectors: list[tuple[Any, str]] = [
        *(([1.0], "dimensions"), ("x", "list of numbers")),
        ([0.0] * 64, "not all of them 0"),
    ]
    for bad_vector, message in bad_vectors:
        with pytest.raises(InputError, match=message):
            dataset.add([Document("d", "x")], vectors=[bad_vector])
    with pytest.raises(InputError, match="1 vectors for more than 1"):
        dataset.add(documents, vectors=rows[:1])
