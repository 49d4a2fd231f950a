"""A reranker that settings name is used by `auto` where it was measured to gain, and nowhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

import doors_kit
from doors_kit import Asked, world
from patience_kit import holds_with_time
from pointsman import (
    Dataset,
    Document,
    EffortLimits,
    EnhancedRetrievalService,
    HybridStrategy,
    InputError,
    RetrievalContext,
    RetrievalWorkflow,
    Settings,
    Workspace,
)
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation import tune
from pointsman.retrieval.judge.kept_calibrations import Calibration, Reranking, read_calibrations, to_json
from pointsman.retrieval.refine.rerank import BaseReranker, CrossEncoderReranker, HTTPReranker, load_reranker
from test_calibrate import essays
from test_rerank_cross_encoder import write_model
from test_rerank_http import Server, jina, ok

if TYPE_CHECKING:
    from pointsman.values.types import Decision

WORDS = ("rails", "trains", "switches", "moon", "cheese", "lamps", "night")
FILLER = "The yard of the city opens at six and closes at midnight, as it did last year and the year before. " * 2
PAIRS = list(permutations(WORDS, 2))
QUESTION = "rails trains 7000"


def documents() -> list[Document]:
    """Of each pair of words a long text that has both, and a short one that has the rare number in its question."""
    long = [Document(f"long-{a}-{b}", f"{FILLER}{a} {b}") for a, b in PAIRS]
    return [*long, *(Document(f"short-{a}-{b}", f"{7000 + n} {7000 + n}") for n, (a, b) in enumerate(PAIRS))]


def labels(kind: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """The words of a pair with its number; ``long`` or ``short`` texts are the answers."""
    queries = {f"{a}-{b}": f"{a} {b} {7000 + number}" for number, (a, b) in enumerate(PAIRS)}
    return queries, {id_: {f"{kind}-{id_}": 1} for id_ in queries}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that counts the words of the question in a text, and knows no number."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reranking") / "work"
    with Workspace(path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("yard").add(documents())
        workspace.dataset("other").add(documents()[:3])
    return path


def open_workspace(folder: Path, reranker: str, **settings: Any) -> Workspace:
    return Workspace(folder, embedder=HashingEmbedder(), settings=Settings(reranker=reranker, **settings))


@pytest.fixture
def workspace(folder: Path, model: Path) -> Iterator[Workspace]:
    with open_workspace(folder, f"onnx:{model}") as workspace:
        yield workspace
        for name in workspace.stored_calibrations():
            workspace.keep_calibration(name, None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server; the rerankers that were opened for it are closed with it."""
    server, rerankers = Server(), []
    original = HTTPReranker.__init__

    def note_reranker(self: HTTPReranker, *args: Any, **options: Any) -> None:
        rerankers.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(HTTPReranker, "__init__", note_reranker)
    yield server
    for reranker in rerankers:
        reranker.close()
    server.close()


def search_yard(workspace: Workspace, **options: Any) -> RetrievalContext:
    return workspace.search(QUESTION, **{"datasets": ["yard"], "refuse": False, **options})


def decision(answer: RetrievalContext) -> Decision:
    return next(decision for decision in answer.plan.decisions if decision.what == "rerank")


ADOPTED_RERANKING = Reranking("x", True, "40 labelled questions", 0.5, 0.6, 0.05, 12.0)


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_helps_is_adopted(workspace: Workspace) -> None:
    answer_before = search_yard(workspace)
    assert answer_before.reranked
    assert decision(answer_before).by == "settings"
    assert "was not measured here; run pointsman tune or pointsman calibrate" in decision(answer_before).reason
    report = workspace.calibrate("yard", *labels("long"))
    assert report.reranking is not None
    assert report.reranking.adopted
    assert report.reranking.before < 0.5
    assert report.reranking.after > 0.8, "two texts have both words of a question, and one of them is meant"
    assert report.reranking.lower > 0
    assert report.reranking.milliseconds > 0
    assert report.reranking.reason in report.reason
    answer = search_yard(workspace)
    assert answer.hits[0].id in {"long-rails-trains", "long-trains-rails"}
    assert answer.reranked
    assert decision(answer).by == "calibration"
    assert "42 labelled questions" in decision(answer).reason
    assert f"{report.reranking.milliseconds:.0f} ms a search" in decision(answer).reason
    with open_workspace(workspace.path, workspace.settings.reranker) as second_workspace:
        assert search_yard(second_workspace).reranked, "it is kept"


def test_one_that_harms_is_not_adopted(workspace: Workspace) -> None:
    report = workspace.calibrate("yard", *labels("short"))
    assert report.reranking is not None
    assert not report.reranking.adopted
    assert report.reranking.after < report.reranking.before
    answer = search_yard(workspace)
    assert not answer.reranked
    assert answer.hits[0].id == "short-rails-trains"
    assert "not adopted, no significant gain" in decision(answer).reason


def test_one_that_is_too_slow_is_not_adopted(folder: Path, server: Server) -> None:
    release = threading.Event()

    def slow(request: dict[str, Any]) -> Any:
        release.wait(60)
        return jina(request)

    def check(limit: float) -> None:
        server.requests.clear()
        with open_workspace(folder, f"jina:{server.url}", reranker_timeout=limit) as workspace:
            report = workspace.calibrate("yard", *labels("long"))
            assert report.reranking is not None
            assert not report.reranking.adopted
            assert "failed on 3 of 3 questions" in report.reranking.reason
            assert any(
                reason in report.reranking.reason for reason in (f"{limit} s", "no answer in time")
            )  # ours, or the connection's
            assert len(server.requests) == 3, "it is left alone then"
            assert report.reranking.reason in decision(search_yard(workspace)).reason
            workspace.keep_calibration("yard", None)

    server.paths["*"] = slow
    try:
        holds_with_time(check, 0.05, 0.5, 5)
    finally:
        release.set()


def test_a_server_that_helps_is_adopted(folder: Path, server: Server) -> None:
    def longest(request: dict[str, Any]) -> Any:
        scores = [(index, float(len(text))) for index, text in enumerate(request["documents"])]
        return ok({"results": [{"index": index, "relevance_score": score} for index, score in scores]})

    server.paths["/v1/rerank"] = longest
    with open_workspace(folder, f"jina:bge@{server.url}") as workspace:
        report = workspace.calibrate("yard", *labels("long"))
        assert report.reranking is not None
        assert report.reranking.adopted
        assert search_yard(workspace).reranked
        assert {request["model"] for _, request, _ in server.requests} == {"bge"}
        workspace.keep_calibration("yard", None)


def test_tune_measures_it_over_what_it_decides(workspace: Workspace) -> None:
    tuning = tune(workspace.dataset("yard"), *labels("long"))
    assert tuning.reranking is not None
    assert tuning.reranking.adopted
    workspace.keep_calibration("yard", Calibration("of before"))
    workspace.keep_reranking("yard", tuning.reranking)
    calibration = workspace.stored_calibrations()["yard"]
    assert (calibration.origin, calibration.reranking) == ("of before", tuning.reranking)
    assert search_yard(workspace).reranked


def test_questions_made_from_the_documents(tmp_path: Path, model: Path, server: Server) -> None:
    def reversing(request: dict[str, Any]) -> Any:
        count = len(request["documents"])
        return ok({"results": [{"index": index, "score": float(index)} for index in range(count)]})

    with open_workspace(tmp_path, f"onnx:{model}") as workspace:
        workspace.dataset("essays").add(essays())
        report = workspace.calibrate("essays")
        assert report.reranking is not None
        assert "questions made from the documents" in report.reranking.questions
        assert report.reranking.milliseconds > 0
    server.paths["*"] = reversing
    with open_workspace(tmp_path, f"jina:{server.url}") as workspace:
        worse = workspace.calibrate("essays").reranking
        assert worse is not None
        assert not worse.adopted
        assert worse.after < worse.before == report.reranking.before
        are_verbatim = [request["query"] in text for _, request, _ in server.requests for text in request["documents"]]
        assert are_verbatim
        assert not any(are_verbatim), "the question is taken out of its document"


def test_few_labels_adopt_nothing(workspace: Workspace) -> None:
    queries, qrels = labels("long")
    few_queries = dict(list(queries.items())[:12])
    reranking = tune(workspace.dataset("yard"), few_queries, qrels).reranking
    assert reranking is not None
    assert not reranking.adopted
    assert "at least 20 are needed" in reranking.reason


def test_one_that_cannot_be_opened_is_not_adopted(folder: Path, tmp_path: Path) -> None:
    with open_workspace(folder, f"onnx:{tmp_path / 'nowhere'}") as workspace:
        reranking = tune(workspace.dataset("yard"), *labels("long")).reranking
        assert reranking is not None
        assert not reranking.adopted
        assert "nowhere" in reranking.reason


def test_the_price_is_of_scores_that_nobody_remembers(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    run_model, scored_counts = CrossEncoderReranker._run, list[int]()

    def count_pairs(reranker: CrossEncoderReranker, encodings: Sequence[Any]) -> Any:
        scored_counts[-1] += len(encodings)
        return run_model(reranker, encodings)

    monkeypatch.setattr(CrossEncoderReranker, "_run", count_pairs)
    for _ in range(2):
        scored_counts.append(0)
        tune(workspace.dataset("yard"), *labels("long"))
    assert scored_counts[1] == 50 * len(PAIRS)  # the first hits of each question, again


# ── what obeys ───────────────────────────────────────────────────────────────────────────────────────────────────────


def adopt(workspace: Workspace, dataset: str = "yard", **changes: Any) -> None:
    name = load_reranker(workspace.settings.reranker).name
    values = {slot: getattr(ADOPTED_RERANKING, slot) for slot in Reranking.__slots__} | {"name": name, **changes}
    workspace.keep_reranking(dataset, Reranking(**values))


def test_a_request_always_wins(workspace: Workspace) -> None:
    assert search_yard(workspace, rerank=True).reranked, "not measured, but asked for"
    assert decision(search_yard(workspace, rerank=True)).by == "request"
    adopt(workspace)
    assert search_yard(workspace).reranked
    assert not search_yard(workspace, rerank=False).reranked

    class ReversingReranker(BaseReranker):
        def score(self, query: str, texts: Any) -> Any:
            return [float(index) for index in range(len(texts))]

    assert decision(search_yard(workspace, rerank=ReversingReranker())).value == "ReversingReranker"
    for strategy in ("hybrid", "bm25", "rrf"):
        answer = search_yard(workspace, strategy=strategy)
        assert answer.reranked, "as the settings say"
        assert [hit.id for hit in answer.hits] == [
            hit.id for hit in search_yard(workspace, strategy=strategy, rerank=True).hits
        ]
        assert not search_yard(workspace, strategy=strategy, rerank=False).reranked
        assert not search_yard(workspace, strategy=strategy, effort="fast").reranked


def test_reranking_that_is_off_stays_off(folder: Path, model: Path) -> None:
    with open_workspace(folder, f"onnx:{model}", enable_reranker_by_default=False) as workspace:
        adopt(workspace)
        assert not search_yard(workspace).reranked
        workspace.keep_calibration("yard", None)


def test_no_dataset_may_have_lost(workspace: Workspace) -> None:
    adopt(workspace)
    answer = search_yard(workspace, datasets=["yard", "other"])
    assert answer.reranked
    assert "other: the reranker of the settings was not measured here" in decision(answer).reason
    adopt(workspace, "other", adopted=False)
    assert not search_yard(workspace, datasets=["yard", "other"]).reranked
    assert search_yard(workspace, datasets=["yard", "other"], strategy="hybrid").reranked, "it was named"


@pytest.mark.parametrize(("effort", "expected"), [
    ("fast", False), ("balanced", True), ("thorough", True),
    (EffortLimits(), True), (EffortLimits(milliseconds=5), False), (EffortLimits(milliseconds=500), True),
])  # fmt: skip
def test_effort(workspace: Workspace, effort: Any, expected: bool) -> None:
    adopt(workspace)
    answer = search_yard(workspace, effort=effort)
    assert answer.reranked is expected
    assert expected or "12 ms are beyond the effort" in decision(answer).reason


def test_another_model_than_the_measured_one_counts_as_not_measured(workspace: Workspace) -> None:
    adopt(workspace, name="onnx:model|of before", adopted=False)
    answer = search_yard(workspace)
    assert answer.reranked
    assert "was not measured here" in decision(answer).reason


def test_an_adopted_one_that_is_gone_degrades(folder: Path, tmp_path: Path) -> None:
    with open_workspace(folder, f"onnx:{tmp_path / 'gone'}") as workspace:
        workspace.keep_reranking("yard", ADOPTED_RERANKING)
        answer = search_yard(workspace)
        assert len(answer.hits) == 5
        assert any("cannot be used" in note for note in answer.degraded)
        with pytest.raises(InputError, match="gone"):
            search_yard(workspace, rerank=True)
        workspace.keep_calibration("yard", None)


def test_every_door_obeys(workspace: Workspace, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that know of the workspace; a service is handed what was kept there."""
    monkeypatch.setitem(doors_kit.SETTINGS, "a reranker", {"reranker": f"onnx:{model}"})
    adopt(workspace)
    orders = {}
    for rerank in (None, False):
        orders[rerank] = expected_ids = [hit.id for hit in search_yard(workspace, rerank=rerank)]
        request = Asked(QUESTION, 5, ("yard",), "auto", None, rerank, False, "balanced")
        with world(workspace.path, "a reranker") as doors:
            answers = {name: [id_ for _, id_, _, _ in answer.hits] for name, answer in doors.answers(request).items()}
            del answers["EnhancedRetrievalService.search"]
            assert len(answers) == 7
            service = EnhancedRetrievalService(doors.settings, workspace.dataset("yard"), workflow=workspace.workflow)
            answers["service"] = [hit.id for hit in service.search_sync(QUESTION, use_rerank=rerank, refuse=False)]
        assert answers == dict.fromkeys(answers, expected_ids)
    assert orders[None] != orders[False]


def test_the_commands_keep_and_print_it(folder: Path, model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    queries, qrels = labels("long")
    lines = (json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in queries.items())
    (tmp_path / "queries.jsonl").write_text("".join(lines))
    rows = (f"{id_}\t{name}\t{grade}\n" for id_, grades in qrels.items() for name, grade in grades.items())
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    monkeypatch.setenv("POINTSMAN_EMBEDDER", "hashing")
    monkeypatch.setenv("POINTSMAN_RERANKER", f"onnx:{model}")
    run, workspace_options = CliRunner(), ["--workspace", str(folder)]
    process = run.invoke(app, ["tune", str(tmp_path), "-d", "yard", "--dry-run", *workspace_options]).stdout
    assert "ms a search" in " ".join(process.split())
    with open_workspace(folder, f"onnx:{model}") as workspace:
        assert workspace.stored_calibrations() == {}
    for command in ("tune", "calibrate"):
        told = json.loads(run.invoke(app, [command, str(tmp_path), "-d", "yard", "--json", *workspace_options]).stdout)
        assert told["reranking"]["adopted"] is True
        assert told["reranking"]["milliseconds"] > 0
        search = ["search", QUESTION, "-d", "yard", "--refuse", "never", "--json", *workspace_options]
        assert json.loads(run.invoke(app, search).stdout)["reranked"] is True
        run.invoke(app, ["calibrate", "--reset", *workspace_options])
    with open_workspace(folder, f"onnx:{model}") as workspace:
        workspace.keep(None)


# ── what is kept, and what can be named ──────────────────────────────────────────────────────────────────────────────


def test_the_record_is_read_as_it_was_written() -> None:
    calibrations = {"yard": Calibration("x", reranking=ADOPTED_RERANKING)}
    assert read_calibrations(to_json(calibrations), "here") == calibrations
    earlier = '{"yard": {"origin": "x", "relevance": [], "coverage": null}}'
    assert read_calibrations(earlier, "here") == {"yard": Calibration("x")}


@pytest.mark.parametrize("change", [
    {"adopted": 1}, {"milliseconds": "12"}, {"lower": float("nan")}, {"name": None}, {"more": 1}, {"problem": 3},
])  # fmt: skip
def test_a_damaged_record_is_named(change: dict[str, Any]) -> None:
    record = json.loads(to_json({"yard": Calibration("x", reranking=ADOPTED_RERANKING)}))
    record["yard"]["reranking"].update(change)
    with pytest.raises(InputError, match=r"here: .*reranking.* calibrate"):
        read_calibrations(json.dumps(record), "here")


@pytest.mark.parametrize(("spec", "name"), [
    ("http://localhost:8080", "rerank@http://localhost:8080"),
    ("bge@http://localhost:8080", "bge@http://localhost:8080"),
    ("tei:http://localhost:8080", "rerank@http://localhost:8080"),
    ("cohere:rerank-v3.5@https://api.cohere.com", "rerank-v3.5@https://api.cohere.com"),
])  # fmt: skip
def test_servers_by_name(spec: str, name: str) -> None:
    reranker = load_reranker(Settings(reranker=spec).reranker)
    assert isinstance(reranker, HTTPReranker)
    assert reranker.name.startswith(name)


def test_whatever_takes_a_reranker_takes_its_name(model: Path) -> None:
    spec = f"onnx:{model}"
    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add([Document("a", "the rail is straight"), Document("b", "a red signal")])
    rerankers = (
        RetrievalWorkflow(reranker=spec).reranker,
        HybridStrategy(dataset, reranker=spec).reranker,
        EnhancedRetrievalService({}, dataset, reranker=spec).engine.stages.reranker,
    )
    assert all(isinstance(reranker, CrossEncoderReranker) for reranker in rerankers)
    answer = RetrievalWorkflow(reranker=spec).search("rail", [dataset], refuse=False)
    assert {decision.what: decision.value for decision in answer.plan.decisions}["rerank"] == rerankers[0].name


def test_a_folder_by_name(model: Path) -> None:
    assert isinstance(load_reranker(f"onnx:{model}", timeout=3), CrossEncoderReranker)


@pytest.mark.parametrize("spec", ["bge", "onnx:", "ftp://x", "jina:bge", "http://h/?key=1", "http://u:p@h", 7])
def test_what_names_none(spec: Any) -> None:
    with pytest.raises(InputError, match="reranker"):
        Settings(reranker=spec)


def test_a_key_that_is_not_there_is_named(folder: Path) -> None:
    opening = open_workspace(folder, "http://127.0.0.1:9", reranker_api_key_env="NO_SUCH_KEY")
    with opening as workspace, pytest.raises(InputError, match="set the variable NO_SUCH_KEY"):
        search_yard(workspace, rerank=True)


# ── rerankers of other libraries ─────────────────────────────────────────────────────────────────────────────────────


def lengths(texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def results_of(documents: Sequence[str], top_n: int) -> SimpleNamespace:
    """Cohere's and DashScope's form: the best first, by the number of the document."""
    ranked = sorted(enumerate(lengths(documents)), key=lambda pair: -pair[1])[:top_n]
    return SimpleNamespace(results=[SimpleNamespace(index=index, relevance_score=score) for index, score in ranked])


class CohereShaped:
    def rerank(self, *, model: str, query: str, documents: list[str], top_n: int) -> SimpleNamespace:
        assert (model, query) == ("rerank-v3.5", "rail")
        return results_of(documents, top_n)


class DashScopeShaped:
    @staticmethod
    def call(model: str, query: str, documents: list[str], top_n: int, return_documents: bool) -> SimpleNamespace:
        assert (model, query, return_documents) == ("gte-rerank-v2", "rail", False)
        return SimpleNamespace(output=results_of(documents, top_n))


LIBRARIES = {
    "FlagReranker": SimpleNamespace(compute_score=lambda pairs: lengths([text for _, text in pairs])),
    "FlagReranker, one text": SimpleNamespace(
        compute_score=lambda pairs: len(pairs[0][1]) if len(pairs) == 1 else 1 / 0
    ),
    "CrossEncoder": SimpleNamespace(predict=lambda pairs: np.array(lengths([text for _, text in pairs]), np.float32)),
    "Cohere": CohereShaped(),
    "DashScope": DashScopeShaped,
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_rerankers_of_other_libraries_are_taken_as_they_are(name: str) -> None:
    texts = ["a rail"] if name.endswith("one text") else ["a rail", "a rail and a signal", "rails and"]
    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add([Document(text, text) for text in texts])
    answer = RetrievalWorkflow(reranker=LIBRARIES[name]).search("rail", [dataset], refuse=False)
    assert (answer.degraded, answer.reranked) == ((), True)
    assert [hit.id for hit in answer.hits] == sorted(texts, key=len, reverse=True)
    assert [hit.score for hit in answer.hits] == sorted(map(len, texts), reverse=True)


@pytest.mark.parametrize(
    ("reranker", "message"),
    [
        (SimpleNamespace(call=lambda **_: SimpleNamespace(output=None, message="no such key")), "no such key"),
        (
            SimpleNamespace(call=lambda **_: SimpleNamespace(output=results_of(["a"], 1))),
            "relevance_score for each text",
        ),
        (SimpleNamespace(predict=lambda _: [1.0]), "1 scores for 2 texts"),
    ],
)
def test_an_answer_in_another_form_leaves_the_order_and_is_told(reranker: Any, message: str) -> None:
    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add([Document("a", "a rail"), Document("b", "rails")])
    answer = RetrievalWorkflow(reranker=reranker).search("rail", [dataset], refuse=False)
    assert len(answer.hits) == 2
    assert message in answer.degraded[0]


def test_scores_that_a_reranker_writes_stay_in_the_metadata() -> None:
    def rerank(query: str, documents: list[Document], top_n: int) -> list[Document]:
        return [
            replace(document, metadata={**document.metadata, "score": 1 / number})
            for number, document in enumerate(documents, 1)
        ]

    dataset = Dataset("rails", embedder=HashingEmbedder())
    dataset.add([Document("a", "a rail", {"kind": "text"}), Document("b", "rails")])
    workflow = RetrievalWorkflow(reranker=SimpleNamespace(rerank=rerank))
    hits = workflow.search("rail", [dataset], refuse=False).hits
    assert [hit.document.metadata["score"] for hit in hits] == [hit.score for hit in hits] == [1, 0.5]
    assert "text" in {hit.metadata.get("kind") for hit in hits}, "the rest of the metadata is the document's own"
