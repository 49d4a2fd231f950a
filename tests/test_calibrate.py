"""Calibrating to one's own labels, embedder and documents, and promises of coverage (M1)."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pointsman import Document, InputError, Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.tune import tune
from pointsman.retrieval.judge.kept_calibrations import (
    CALIBRATION,
    MOST_HITS,
    REFUSED,
    Calibration,
    Coverage,
    minimum_for,
    read_calibrations,
    shares,
    to_json,
)
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.request import SearchRequest
from pointsman.workspace.calibration.dataset_calibration import Calibrating, ece
from pointsman.workspace.calibration.fitting import MINIMUM

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext

COLOURS = ("red", "green", "blue", "amber", "white", "violet", "brown", "silver")
OBJECTS = ("signal", "carriage", "switch", "platform", "whistle", "lantern", "engine", "ticket", "bridge", "tunnel")
SITES = ("north", "harbour", "market", "museum", "airport")


def documents() -> list[Document]:
    chance = random.Random(0)
    return [
        Document(
            f"{colour}-{item}",
            f"The {colour} {item} stands near the {chance.choice(SITES)} gate. It was painted {colour} in "
            f"{1900 + number}. Staff inspect this {item} every morning before departures begin.",
        )
        for number, (colour, item) in enumerate((c, t) for c in COLOURS for t in OBJECTS)
    ]


def labels(count: int = 60) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Half of them ask for a colour and a thing, the others for a thing alone, of which one document counts."""
    chance = random.Random(1)
    queries, qrels = {}, {}
    for number in range(count):
        colour, item = chance.choice(COLOURS), chance.choice(OBJECTS)
        queries[str(number)] = f"where does the {colour} {item} stand" if number % 2 else f"who inspects the {item}"
        qrels[str(number)] = {f"{colour}-{item}": 1}
    return queries, qrels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "work"
    with Workspace(path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("yard").add(documents())
    return path


@pytest.fixture
def workspace(folder: Path) -> Iterator[Workspace]:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        yield workspace
        for name in workspace.stored_calibrations():
            workspace.keep_calibration(name, None)


@pytest.fixture(scope="module")
def calibration_run(folder: Path) -> Calibrating:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        result = workspace.calibrate("yard", *labels())
        workspace.keep_calibration("yard", None)
        return result


# ── relevance ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_no_calibration_is_not_kept(workspace: Workspace, folder: Path) -> None:
    for keep in (
        workspace.keep,
        partial(workspace.keep_calibration, "yard"),
        partial(workspace.keep_reranking, "yard"),
    ):
        wrong: Any
        for wrong in (5, "x", {}):
            with pytest.raises(InputError, match="a workspace keeps a"):
                keep(wrong)
    with Workspace(folder, embedder=HashingEmbedder()) as again:  # an invalid record would be an error here
        assert again.stored_calibrations() == {}


def test_m1_labels_give_another_embedder_its_relevance(
    workspace: Workspace, calibration_run: Calibrating, folder: Path
) -> None:
    text = "where does the amber lantern stand"
    assert {hit.relevance for hit in workspace.search(text)} == {None}
    assert calibration_run.calibration is not None
    workspace.keep_calibration("yard", calibration_run.calibration)
    with Workspace(folder, embedder=HashingEmbedder()) as again:
        answer = again.search(text)
        assert answer.hits[0].id == "amber-lantern"
        assert answer.hits[0].relevance is not None
        assert answer.hits[0].relevance > 0.5
        assert answer.confidence is not None
        [decision] = [decision for decision in answer.plan.decisions if decision.what == "relevance"]
        assert decision.by == "calibration"
        assert "60 labelled questions by pointsman calibrate" in decision.reason
        again.keep_calibration("yard", None)
        assert {hit.relevance for hit in again.search(text)} == {None}


def test_m1_the_figures_are_of_questions_left_out(calibration_run: Calibrating) -> None:
    fit = calibration_run.fits[0]
    assert (fit.form, fit.before, fit.adopted) == ("both", None, True)
    assert fit.lower > 0
    assert 0 <= fit.error < 0.1
    assert "calibration error" in calibration_run.reason


def test_m1_labels_that_say_nothing_are_not_adopted(workspace: Workspace) -> None:
    queries, qrels = labels()
    names = [f"{colour}-{item}" for colour in COLOURS for item in OBJECTS]
    chance = random.Random(2)
    result = workspace.calibrate("yard", queries, {query: {chance.choice(names): 1} for query in qrels})
    assert [fit.adopted for fit in result.fits if fit.form != "words"] == [False, False]
    assert "not adopted" in result.reason
    assert {hit.relevance for hit in workspace.search("the amber lantern")} == {None}


def essays() -> list[Document]:
    """Each on three words of its own, all of which most of its sentences have."""
    chance = random.Random(3)
    words = ["".join(chance.choices("bdfgklmnprst", k=3)) + "a" + chance.choice("lmnr") + "o" for _ in range(240)]
    return [
        Document(
            str(number),
            f"Here {first} meets {second} and {third} for a while. Nobody sells {first} or {second} in winter. "
            f"Later {third} and {first} are kept in a box. In spring {second} comes back to {third}.",
        )
        for number, (first, second, third) in enumerate(zip(words[::3], words[1::3], words[2::3], strict=True))
    ]


def test_m1_questions_made_from_documents_serve_another_embedder(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder(256)) as workspace:
        workspace.dataset("essays").add(essays())
        result = workspace.calibrate("essays")
        assert "made from the documents" in result.reason
        assert [fit.form for fit in result.fits] == ["both", "vector"], "words are calibrated to people's questions"
        assert result.calibration is not None
        assert result.calibration.coverage is None, "questions that nobody has asked promise nothing"
        answer = workspace.search(essays()[7].text.split(". ")[1])
        assert answer.hits[0].id == "7"
        assert answer.hits[0].relevance is not None
        assert answer.hits[0].relevance > 0.5


def test_m1_made_questions_never_replace_what_people_asked(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.dataset("yard", indexing_technique="keyword").add(documents())
        result = workspace.calibrate("yard")
        assert result.calibration is None
        assert "give labels" in result.reason
        assert workspace.backend.record(CALIBRATION) is None


def test_m1_too_few_labels_fit_nothing(workspace: Workspace) -> None:
    with pytest.raises(InputError, match="at least 20 are needed"):
        workspace.calibrate("yard", *labels(10))


@pytest.mark.parametrize(("queries", "qrels"), [
    (5, {}), (["where"], {}), ({"1": 5}, {}), ({1: "where"}, {}), (None, {"1": {"a": 1}}),
    ({"1": "where"}, None), ({"1": "where"}, {"1": "a"}), ({"1": "where"}, {"1": {"a": "x"}}),
    ({"1": "where"}, {"1": {1: 1}}),
])  # fmt: skip
def test_m1_labels_of_a_wrong_type_are_named(workspace: Workspace, queries: Any, qrels: Any) -> None:
    with pytest.raises(InputError, match=r"(queries|qrels|the grades of query '1') are a mapping"):
        workspace.calibrate("yard", queries, qrels)
    with pytest.raises(InputError, match=r"(queries|qrels|the grades of query '1') are a mapping"):
        tune(workspace.dataset("yard"), queries, qrels)


def test_m1_a_dataset_takes_its_calibration_along_when_it_goes(tmp_path: Path, calibration_run: Calibrating) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("yard").add(documents()[:3])
        workspace.keep_calibration("yard", calibration_run.calibration)
        workspace.keep_calibration("other", Calibration("x"))
        workspace.drop("yard")
        assert set(workspace.stored_calibrations()) == {"other"}


def test_m1_a_calibration_of_another_process_goes_along_too(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace, Workspace(tmp_path) as other:
        workspace.dataset("yard", indexing_technique="keyword").add(documents()[:3])
        other.keep_calibration("yard", Calibration("x"))
        workspace.drop("yard")
        assert workspace.stored_calibrations() == {}


def test_m1_what_two_keep_at_once_is_both_kept(workspace: Workspace, folder: Path) -> None:
    with Workspace(folder) as other:
        workspace.keep_calibration("a", Calibration("x"))
        other.keep_calibration("b", Calibration("y"))
    assert set(workspace.stored_calibrations()) == {"a", "b"}


def test_m1_copies_are_calibrated_as_one_passage(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("yard").add(
            [*documents(), *(Document(f"again {document.id}", document.text) for document in documents())]
        )
        assert workspace.calibrate("yard", *labels()).calibration is not None
        answer = workspace.search("where does the amber lantern stand", 2)
        assert {hit.id for hit in answer} == {"amber-lantern", "again amber-lantern"}
        assert min(hit.relevance or 0 for hit in answer) > 0.9


def test_m1_the_command_fits_keeps_and_removes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, qrels = labels()
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in queries.items())
    )
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n"
        + "".join(f"{id_}\t{name}\t{grade}\n" for id_, grades in qrels.items() for name, grade in grades.items())
    )
    monkeypatch.setenv("POINTSMAN_EMBEDDER", "hashing")
    run = CliRunner()
    workspace_options = ["--workspace", str(folder), "--json"]
    dry = run.invoke(app, ["calibrate", str(tmp_path), "-d", "yard", "--dry-run", *workspace_options])
    assert json.loads(dry.stdout)["kept"] is False
    process = json.loads(run.invoke(app, ["calibrate", str(tmp_path), "-d", "yard", *workspace_options]).stdout)
    assert process["kept"] is True
    assert process["questions"] == 60
    search = ["search", "where does the amber lantern stand", *workspace_options]
    assert json.loads(run.invoke(app, [*search, "--coverage", "0.6"]).stdout)["coverage"] == 0.6
    assert json.loads(run.invoke(app, ["calibrate", "--reset", *workspace_options]).stdout) == {"reset": ["yard"]}
    assert json.loads(run.invoke(app, search).stdout)["hits"][0]["relevance"] is None


# ── coverage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_m1_coverage_holds_for_questions_like_the_labels(workspace: Workspace, calibration_run: Calibrating) -> None:
    workspace.keep_calibration("yard", calibration_run.calibration)
    queries, qrels = labels(160)
    fresh = [query for query in queries if int(query) >= 60]
    answers = {query: workspace.search(queries[query], coverage=0.7) for query in fresh}
    assert {answer.coverage for answer in answers.values() if not answer.refused} == {0.7}
    share = sum(any(hit.id in qrels[query] for hit in answer) for query, answer in answers.items()) / len(fresh)
    assert share >= 0.58, "two standard errors of 60 and 100 questions below .7"
    counts = {len(answer.hits) for answer in answers.values()}
    assert len(counts) > 2, "some questions need more hits than others"
    assert max(counts) < MOST_HITS


def test_m1_a_question_refused_from_then_on_is_not_covered(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.workspace.calibration.dataset_calibration._minimums", lambda *_: {"both": 1.0})
    monkeypatch.setattr("pointsman.retrieval.refine.refuse.holds_words", lambda *_: None)
    calibration = workspace.calibrate("yard", *labels()).calibration
    assert calibration is not None
    assert calibration.coverage is not None
    assert (calibration.coverage.questions, calibration.coverage.scores) == (60, ())


@pytest.mark.parametrize(("options", "reason"), [
    ({"coverage": 0.999}, "is the most that can be promised"),
    ({"coverage": 0.7, "strategy": "bm25"}, "searched differently"),
    ({"coverage": 0.7, "min_relevance": 0.1}, "without filters and without a least relevance"),
    ({"coverage": 0.7, "filters": "year != 1"}, "without filters and without a least relevance"),
])  # fmt: skip
def test_m1_what_cannot_be_promised_is_said(
    workspace: Workspace, calibration_run: Calibrating, options: dict[str, object], reason: str
) -> None:
    workspace.keep_calibration("yard", calibration_run.calibration)
    answer = workspace.search("where does the amber lantern stand", 3, **options)  # type: ignore[arg-type]
    assert answer.coverage is None
    assert len(answer.hits) <= 3
    assert any(reason in note for note in answer.degraded)
    assert [decision.value for decision in answer.plan.decisions if decision.what == "coverage"] == ["none"]


def test_m1_nothing_is_promised_where_a_part_of_the_search_fails(
    workspace: Workspace, calibration_run: Calibrating, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.keep_calibration("yard", calibration_run.calibration)
    monkeypatch.setattr(HashingEmbedder, "embed_queries", lambda *_: 1 / 0)
    answer = workspace.search("where does the white ticket stand", coverage=0.7)
    assert answer.hits
    assert answer.coverage is None
    assert "only words were searched" in answer.degraded[0]
    assert "did not work as those of the labelled queries" in answer.degraded[1]


def test_m1_nothing_is_promised_without_labels(workspace: Workspace) -> None:
    answer = workspace.search("the amber lantern", 3, coverage=0.9)
    assert answer.coverage is None
    assert len(answer.hits) == 3
    assert "this dataset has not been calibrated with labels" in answer.degraded[0]


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, "0.9", True, float("nan")])
def test_m1_coverage_is_a_probability(bad: object) -> None:
    with pytest.raises(InputError, match="coverage is a probability above 0 and below 1"):
        SearchRequest.of("x", 5, {"coverage": bad})


chances = st.lists(st.floats(0.001, 1), min_size=1, max_size=12).map(lambda values: sorted(values, reverse=True))
ranked_chances = st.lists(st.tuples(chances, st.one_of(st.none(), st.integers(0, 11))), min_size=1, max_size=40)


@given(ranked_chances, st.floats(0.01, 0.99))
def test_m1_the_labels_themselves_are_covered(pairs: list[tuple[list[float], int | None]], level: float) -> None:
    """Of the questions that it was measured on, at least the share asked for has its answer among the hits."""
    pairs = [(chances, None if rank is None else rank % len(chances)) for chances, rank in pairs]
    coverage = Coverage.measured(pairs, "way")
    counts = [coverage.count(chances, level) for chances, _ in pairs]
    if level > coverage.most:
        assert set(counts) == {None}
        return
    covered_count = sum(
        rank is not None and rank < (count or 0) for (_, rank), count in zip(pairs, counts, strict=True)
    )
    assert covered_count >= level * len(pairs) - 1e-9


@given(chances)
def test_m1_shares_go_from_nothing_to_all(chances: list[float]) -> None:
    cumulative = shares(chances)
    assert cumulative[0] == 0
    assert cumulative[-1] == pytest.approx(1)
    assert cumulative == sorted(cumulative)
    assert len(cumulative) == len(chances) + 1


# ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_m1_hardly_any_question_like_the_labels_is_refused(workspace: Workspace, calibration_run: Calibrating) -> None:
    assert calibration_run.calibration is not None
    minimums = calibration_run.calibration.minimums
    assert set(minimums) == {"both", "vector", "words"}
    assert f"refused below {minimums['both']:.2f} (both)" in calibration_run.reason
    workspace.keep_calibration("yard", calibration_run.calibration)
    queries, _ = labels(160)
    answers = [workspace.search(text) for query, text in queries.items() if int(query) >= 60]
    assert sum(answer.refused is not None for answer in answers) <= 8, "two standard errors of 100 questions above .03"
    assert _minimum_in(answers[0]) == f"{minimums['both']:.2f}"
    assert _minimum_in(workspace.search("who inspects the signal", strategy="bm25")) == f"{minimums['words']:.2f}"


def test_m1_questions_in_another_language_keep_the_minimum(workspace: Workspace, calibration_run: Calibrating) -> None:
    workspace.keep_calibration("yard", calibration_run.calibration)
    assert _minimum_in(workspace.search("где стоит янтарный фонарь")) == f"{MINIMUM:.2f}"


def _minimum_in(answer: RetrievalContext) -> str:
    [span] = [span for span in answer.trace.spans if span.stage == "refuse"]
    match = re.search(r"(0\.\d\d) is needed|< (0\.\d\d)", span.detail)
    assert match is not None, span.detail
    return match[1] or match[2]


@given(st.lists(st.floats(0, 1), max_size=200))
def test_m1_the_labels_themselves_are_hardly_refused(scores: list[float]) -> None:
    minimum = minimum_for(scores)
    assert (minimum is None) == (len(scores) < 33)
    assert sum(chance < (minimum or 0) for chance in scores) <= REFUSED * len(scores)


# ── the record ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.dictionaries(st.text(max_size=5), st.lists(st.floats(0, 1), max_size=5), max_size=3))
def test_m1_the_record_is_read_as_it_was_written(scores: dict[str, list[float]]) -> None:
    calibrations = {
        name: Calibration(
            "x",
            shipped()[:1],
            Coverage(9, tuple(sorted(values)), "way"),
            minimums=dict.fromkeys(("both", "words"), 0.25),
        )
        for name, values in scores.items()
    }
    assert read_calibrations(to_json(calibrations), "here") == calibrations


@pytest.mark.parametrize("bad", [
    "x", "[]", '{"a": 1}', '{"a": {"origin": 1, "relevance": [], "coverage": null}}',
    '{"a": {"origin": "x", "relevance": [1], "coverage": null}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": {"questions": 1, "scores": [2], "way": "x"}}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": {"questions": 0, "scores": [0.5], "way": "x"}}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": {"questions": 2, "scores": [0.5, 0.1], "way": "x"}}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": null, "minimums": {"both": 2}}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": null, "minimums": {"all": 0.5}}}',
    '{"a": {"origin": "x", "relevance": [], "coverage": null, "minimums": 0.5}}',
    "[" * 100_000,
])  # fmt: skip
def test_m1_a_damaged_record_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match=r"here: .*delete it, and fit it again"):
        read_calibrations(bad, "here")


def test_m1_the_calibration_error_is_that_of_its_definition() -> None:
    import numpy as np

    assert ece(np.array([0.2, 0.2, 0.8, 0.8]), np.array([False, False, True, True]), 2) == pytest.approx(0.2)
