"""Relevance: probabilities that mean something, whatever found the hit (R9)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.judge.languages import SCRIPTS, Languages, Script, script_of
from pointsman.retrieval.judge.relevance import (
    _WIDTH,
    LEAST,
    Background,
    Candidates,
    Evidence,
    Form,
    Logistic,
    Relevance,
    for_evidence,
    judge_by,
    shipped,
    unrelated_questions,
)
from pointsman.tools.errors import InputError
from pointsman.workspace.calibration.fitting import Labelled, fit_prepared, prepare

EMBEDDER = next(calibration.embedder for calibration in shipped() if calibration.form == "both") or ""
BACKGROUND = Background(
    EMBEDDER,
    mean=0.80,
    sigma=0.019,
    best={"latin": 0.82, "cyrillic": 0.79, "han": 0.80},
    scripts={"latin": 1.0},
    direction=(20.0, 0.0),
    chance={"latin": 15.0, "cyrillic": 14.0, "han": 14.5},
    subject=5.0,
)


def evidence(best: float = 0.9, words: float = 8.0, count: int = 100, **changes: Any) -> Evidence:
    """One candidate stands out, the others fall off evenly."""
    cosine = np.r_[best, np.linspace(0.80, 0.74, count - 1)]
    bm25 = np.r_[words, np.linspace(5.0, 0.0, count - 1)]
    scores: Any = changes.get("bm25", bm25)
    matched = None if scores is None else 1.5 * scores
    return replace(Evidence("latin", 5, bm25, 14.0, matched, cosine, 18.5, BACKGROUND), **changes)


def judge(seen_evidence: Evidence, indices: list[int] | None = None) -> Any:
    calibration = for_evidence(shipped(), seen_evidence)
    assert calibration is not None
    indices = list(range(10)) if indices is None else indices
    return calibration.judge(seen_evidence, indices)


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("form", "count", "factor"),
    [("words", 50, 1.0), ("both", 50, LEAST / 49), ("both", LEAST, LEAST / (LEAST - 1)), ("both", LEAST + 1, 1.0)],
)
def test_few_candidates_stand_for_a_hundred_where_vectors_are_compared(form: Form, count: int, factor: float) -> None:
    """A list of words ends where no word is held, so its few hits are all there are."""
    candidates = Candidates(evidence(count=count), form)
    competition = np.exp((candidates.scores - candidates.best) / _WIDTH).sum() - 1
    assert candidates.question()["peak"] == pytest.approx(-np.log1p(factor * competition))


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_stands_out_is_relevant_and_what_does_not_is_not() -> None:
    good, bad = judge(evidence(0.93, 11.0)), judge(evidence(0.801, 5.1, nearness=15.0))
    assert good.relevance[0] > 0.7
    assert max(good.relevance[1:]) < good.relevance[0] / 2
    assert max(bad.relevance) <= bad.best < shipped()[0].minimum


@pytest.mark.parametrize("form", ["both", "vector", "words"])
def test_a_hit_is_judged_the_same_whatever_else_is_in_the_list(form: str) -> None:
    changes: dict[str, Any] = {"vector": {"bm25": None, "idf": None, "matched": None}, "words": {"cosine": None}}.get(
        form, {}
    )
    all_evidence = evidence(**changes)
    assert all_evidence.form == form
    judgement = judge(all_evidence, list(range(50)))
    for indices in ([0], [3, 0, 7], [49, 11]):
        partial_judgement = judge(all_evidence, indices)
        assert partial_judgement.relevance == pytest.approx([judgement.relevance[index] for index in indices])
        assert partial_judgement.best == judgement.best == max(judgement.relevance)


@given(st.floats(0.8, 1.0), st.floats(0, 0.1))
def test_a_nearer_best_vector_makes_an_answer_likelier(best: float, increment: float) -> None:
    assert judge(evidence(min(best + increment, 1.0))).best >= judge(evidence(best)).best - 1e-9


def test_twenty_passages_that_answer_alike_are_each_as_relevant_as_one() -> None:
    def with_answers(count: int) -> Evidence:
        cosine = np.r_[np.full(count, 0.88), np.linspace(0.80, 0.74, 150 - count)]
        bm25 = np.r_[np.full(count, 8.0), np.linspace(3.0, 0.0, 150 - count)]
        return evidence(cosine=cosine, bm25=bm25)

    [single] = judge(with_answers(1), [0]).relevance
    relevances = judge(with_answers(20), list(range(20))).relevance
    assert relevances == pytest.approx([relevances[0]] * 20)
    assert relevances[0] > 0.8 * single


@pytest.mark.parametrize(
    ("changes", "form"),
    [
        ({}, "both"),
        ({"idf": None}, "vector"),  # a store that does not count words
        ({"bm25": None}, "vector"),
        ({"cosine": None}, "words"),
        ({"background": None}, None),  # vectors of unknown making: no guess by words, which had no say alone
        ({"nearness": None}, None),
        ({"cosine": None, "bm25": None}, None),
        ({"cosine": None, "idf": None}, None),
    ],
)
def test_each_form_of_evidence_has_its_own_calibration(changes: dict[str, Any], form: str | None) -> None:
    case = evidence(**changes)
    assert case.form == form
    calibration = for_evidence(shipped(), case)
    assert (calibration.form if calibration else None) == form


def test_other_embedders_and_no_candidates_have_no_probability() -> None:
    assert for_evidence(shipped(), evidence(background=replace(BACKGROUND, embedder="another"))) is None
    empty = np.empty(0)
    assert for_evidence(shipped(), evidence(bm25=empty, cosine=empty)) is None


def test_documents_without_a_vector_count_as_the_furthest() -> None:
    with_nan = evidence()
    assert with_nan.cosine is not None
    cosine = with_nan.cosine.copy()
    cosine[5] = np.nan
    furthest = cosine.copy()
    furthest[5] = np.nanmin(cosine)
    assert judge(replace(with_nan, cosine=cosine)).relevance == judge(replace(with_nan, cosine=furthest)).relevance


def test_one_candidate_alone_is_judged() -> None:
    judgement = judge(evidence(0.9, 5.0, count=1), [0])
    assert 0 < judgement.relevance[0] < 1


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_unrelated_questions_are_in_three_scripts() -> None:
    questions = unrelated_questions()
    assert set(questions) == set(SCRIPTS)
    for script, texts in questions.items():
        assert len(texts) == len(set(texts)) == 40
        assert all(script_of(text) == script for text in texts)


def test_background() -> None:
    documents = np.array([[1, 0], [0, 1]], np.float32)
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    background = Background.measured(
        "e", 0.02, documents, vectors[:1], dict.fromkeys(SCRIPTS, vectors), {"latin": [0.1, 0.3, 0.2]}, {"latin": 1.0}
    )
    assert background.best == {"latin": 0.2}
    assert background.mean == pytest.approx(0.0), "a stand-in is not compared with its own passage"
    assert Background.from_json(background.to_json()) == background


def test_a_language_has_no_say_in_where_a_dataset_lies() -> None:
    """Texts are made of a subject (first), a language (second) and noise; Russian documents are about something."""
    chance = np.random.default_rng(0)

    def texts(subject: float, language: float, count: int) -> Any:
        return np.column_stack([np.full(count, subject), np.full(count, language), np.zeros(count)]) + chance.normal(
            0, 0.1, (count, 3)
        )

    languages: dict[Script, float] = {"latin": 0.0, "cyrillic": 3.0, "han": -2.0}
    vectors_by_script: Any = {script: texts(0.0, language, 40) for script, language in languages.items()}
    background = Background.measured(
        "e", 0.02, texts(1.0, 3.0, 200), texts(1.0, 3.0, 30), vectors_by_script, {}, {"cyrillic": 1.0}
    )
    assert background.subject == pytest.approx(10, rel=0.2)
    for script, language in languages.items():
        for subject in (0.0, 0.5, 1.0):
            [question] = texts(subject, language, 1)
            assert background.nearness(question) - background.chance[script] == pytest.approx(10 * subject, abs=3.5)


def test_without_its_language_a_question_keeps_its_subject() -> None:
    """Questions are made of a subject (first two), a language (the next two) and noise (the last)."""
    chance = np.random.default_rng(0)
    languages: dict[Script, tuple[float, float]] = {"latin": (0.1, 0.0), "cyrillic": (0.5, 0.2), "han": (-0.3, 0.6)}

    def questions(subject: tuple[float, float], language: tuple[float, float]) -> Any:
        return np.r_[subject, language, 0.0] + chance.normal(0, 0.01, (40, 5)) * [1, 1, 1, 1, 5]

    language_means = Languages.of({script: questions((0.0, 0.0), language) for script, language in languages.items()})
    neutral = {
        subject: [language_means.neutral(questions(subject, language)).mean(axis=0) for language in languages.values()]
        for subject in [(0.9, 0.1), (0.1, 0.9)]
    }
    for versions in neutral.values():
        assert np.allclose(np.linalg.norm(versions, axis=1), 1, atol=0.05)
        assert np.allclose(versions[0], versions[1], atol=0.03)
        assert np.allclose(versions[0], versions[2], atol=0.03)
    assert neutral[0.9, 0.1][0] @ neutral[0.1, 0.9][0] < 0.5
    assert Languages.of({"latin": questions((0, 0), (0, 0))}).directions == ()


def test_a_background_of_several_languages_is_kept() -> None:
    some = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    neutral = replace(BACKGROUND, best=dict.fromkeys(SCRIPTS, 0.8))
    both_backgrounds = BACKGROUND.beside(neutral, Languages.of({"latin": some, "han": -some}))
    assert both_backgrounds.neutral is not None
    assert both_backgrounds.neutral.lowered == pytest.approx(0.02)
    assert Background.from_json(both_backgrounds.to_json()) == both_backgrounds


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"embedder": 1}', "null"])
def test_what_is_no_background_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not the background"):
        Background.from_json(text)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("calibration", shipped(), ids=lambda calibration: calibration.form)
def test_a_calibration_survives_being_written(calibration: Relevance) -> None:
    assert Relevance.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("form", "smell", "one of both"),
        ("embedder", None, "names its"),
        ("embedder", 3, "names its"),
        ("minimum", 2, "from 0 to 1"),
        ("minimum", True, "from 0 to 1"),
        ("hit", {}, "intercept and slopes"),
        ("hit", {"intercept": 0, "slopes": {"luck": 1}}, "has slopes for matched_share"),
        ("hit", {"intercept": float("nan"), "slopes": dict.fromkeys(shipped()[0].hit.slopes, 1)}, "finite"),
        ("question", 7, "intercept and slopes"),
    ],
)
def test_what_is_no_calibration_is_refused(name: str, value: object, message: str) -> None:
    values = json.loads(shipped()[0].to_json())
    values[name] = value
    with pytest.raises(InputError, match=message):
        Relevance.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "null"])
def test_what_is_no_json_of_a_calibration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="calibration"):
        Relevance.from_json(text)


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def labelled_answer(chance: np.random.Generator, *, has_answer: bool) -> Labelled:
    """An answer stands out by how likely it is one; what is unanswered lies lower."""
    cosine = chance.normal(0.80 if has_answer else 0.77, 0.01, 60)
    bm25 = np.maximum(chance.normal(3, 2, 60), 0)
    if has_answer:
        cosine[0] += 0.06
        bm25[0] += 5
    case = Evidence("latin", 5, bm25, 16.0, 1.5 * bm25, cosine, 18.5 if has_answer else 15.0, BACKGROUND)
    return Labelled(
        case, list(range(10)), [has_answer and index == 0 for index in range(10)], has_answer, complete=True
    )


def fit_relevance(rows: list[Labelled], form: Any, embedder: str | None) -> Any:
    return fit_prepared([item for row in rows if (item := prepare(row, form))], form, embedder)


@pytest.mark.parametrize("form", ["both", "vector", "words"])
def test_a_fit_tells_answers_from_others(form: Any) -> None:
    chance = np.random.default_rng(0)
    rows = [labelled_answer(chance, has_answer=bool(number % 2)) for number in range(200)]
    calibration = fit_relevance(rows[:100], form, None if form == "words" else EMBEDDER)
    view: dict[str, Any] = {"vector": {"bm25": None}, "words": {"cosine": None}}.get(form, {})
    right = 0
    for row in rows[100:]:
        judgement = calibration.judge(replace(row.evidence, **view), row.places)
        right += bool(max(judgement.relevance) == judgement.relevance[0] > 0.5) == row.answered
    assert right >= 70


def test_later_hits_without_a_label_are_unknown_not_wrong() -> None:
    """Three passages answer each question, and the first two are labelled in half of the questions, the third never."""
    chance = np.random.default_rng(1)

    def labelled_question(number: int, *, complete: bool) -> Labelled:
        cosine, bm25 = chance.normal(0.78, 0.008, 60), np.maximum(chance.normal(2, 1, 60), 0)
        cosine[:3], bm25[:3] = cosine[:3] + 0.06, bm25[:3] + 6
        case = Evidence("latin", 5, bm25, 16.0, 1.5 * bm25, cosine, 18.5, BACKGROUND)
        labels = [index < 3 if complete else index < 1 + number % 2 for index in range(10)]
        return Labelled(case, list(range(10)), labels, complete=complete)

    without_answer = [labelled_answer(chance, has_answer=False) for _ in range(40)]
    sparse, complete = ([labelled_question(number, complete=kind) for number in range(60)] for kind in (False, True))
    third = {}
    for name, rows in {
        "sparse": sparse,
        "complete": complete,
        "wrong": [replace(row, complete=True) for row in sparse],
    }.items():
        judgement = fit_relevance([*rows, *without_answer], "both", EMBEDDER).judge(complete[0].evidence, [2])
        assert judgement is not None
        third[name] = judgement.relevance[0]
    assert third["wrong"] < 0.6 < third["sparse"]
    assert third["complete"] > 0.8


def test_few_labels_are_refused() -> None:
    chance = np.random.default_rng(0)
    rows = [labelled_answer(chance, has_answer=True) for _ in range(30)]
    with pytest.raises(InputError, match="20 unanswered"):
        fit_relevance(rows, "both", EMBEDDER)
    with pytest.raises(InputError, match="20 answered"):
        fit_relevance([], "both", EMBEDDER)


def test_words_have_no_say_on_the_hits_of_a_question_in_another_language() -> None:
    """M1: what words two languages have in common tells little of a hit, and their absence nothing."""
    hits = {}
    for script in ("latin", "cyrillic"):
        for words in (7.0, 9.0):
            judgement = judge_by(shipped(), evidence(0.85, words, script=script), [3, 4])
            assert judgement is not None
            assert judgement[1].form == "both"
            hits[script, words] = judgement[0].relevance
    assert hits["latin", 7.0] != hits["latin", 9.0]
    assert hits["cyrillic", 7.0] == hits["cyrillic", 9.0]


def test_without_a_calibration_of_vectors_words_are_better_than_nothing() -> None:
    calibration = shipped()[0]
    case = evidence(script="cyrillic")
    assert judge_by([calibration], case, [0]) == (calibration.judge(case, [0]), calibration)
    assert judge_by([], case, [0]) is None


def test_a_correction_keeps_the_order_and_counts_what_is_below_the_best() -> None:
    [calibration] = [each for each in shipped() if each.form == "both"]
    usual, corrected = (
        np.array(replace(calibration, correction=correction).judge(evidence(), list(range(10))).relevance)
        for correction in (None, Logistic(0.5, {"below_best": -1.0}))
    )
    logits, new_logits = (np.log(relevance / (1 - relevance)) for relevance in (usual, corrected))
    best = logits.max()
    assert np.ptp(logits) > 1
    assert new_logits == pytest.approx(logits + 0.5 - (best - logits))
    assert (usual.argsort() == corrected.argsort()).all()


def test_calibrations_of_earlier_versions_have_no_correction() -> None:
    calibration = shipped()[0]
    values = json.loads(calibration.to_json())
    assert Relevance.of(values) == calibration != replace(calibration, correction=None)
    del values["correction"]
    assert Relevance.of(values) == replace(calibration, correction=None)
    with pytest.raises(InputError, match="correction of a calibration has slopes for below_best"):
        Relevance.of({**values, "correction": {"intercept": 1, "slopes": {}}})
