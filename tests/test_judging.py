"""Relevance of real searches, from whatever strategy and over however many datasets (M1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import Dataset, Document, InputError, RetrievalContext, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.refine.rerank import BaseReranker
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run import judging
from pointsman.retrieval.run.judging import NOTHING, Evaluation, Judgements
from pointsman.retrieval.run.reading import BACKGROUND_NOTE
from pointsman.retrieval.stages import lists_to_hits
from pointsman.values.types import Hit, Query

RAILS = {
    "switch": "A railway switch guides trains from one track to another.",
    "signal": "A signal lamp shows red when the line is not clear.",
    "guard": "The guard blows a whistle before the train departs.",
    "tea": "Green tea is brewed below boiling point.",
    "ticket": "Tickets are sold at the counter and on the train.",
}
OFFICE = {
    "password": "To reset your password open the login page and choose 'Forgot password'.",
    "vacation": "Every employee has 28 vacation days per year; ask your manager two weeks ahead.",
    "timeout": "Error E1234: the connection to the broker timed out. Raise the timeout in settings.toml.",
    "refund": "Goods can be returned within 30 days for a full refund.",
}
QUESTIONS_WITH_ANSWER = [
    ("what guides a train to another track?", "switch"),
    ("which lamp tells that the line is not clear?", "signal"),
    ("how do I reset my password?", "password"),
    ("как сбросить пароль", "password"),
    ("怎么重置密码", "password"),
]
QUESTIONS_WITHOUT_ANSWER = [
    "recipe for borscht",
    "who won the world cup in 1998",
    "кто выиграл чемпионат мира в 1998 году",
    "红烧肉的做法",
]
STRATEGIES = ["auto", "hybrid", "rrf", "z_score", "vector", "decomposition", "multi_query"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Workspace(tmp_path_factory.mktemp("judging")) as workspace:
        for name, texts in (("rails", RAILS), ("office", OFFICE)):
            workspace.dataset(name).add([Document(id_, text) for id_, text in texts.items()])
        yield workspace


TRAINS = [
    "Шлагбаум на переезде закрывается за минуту до прохода поезда.",
    "Билет можно вернуть в кассе не позднее чем за два часа до отправления.",
    "Проводник раздаёт постельное бельё в начале поездки.",
    "Стрелка переводит поезд с одного пути на другой.",
    "В вагоне-ресторане обед подают с двенадцати до трёх.",
    "Багаж тяжелее тридцати килограммов сдают в багажный вагон.",
]
HOUSE = [
    "The kettle in the office kitchen switches itself off.",
    "Invoices are paid on the last Friday of the month.",
    "The meeting room is booked through the calendar.",
    "Holiday requests need two weeks of notice.",
    "A refund for a returned purchase takes five working days.",
    "The library closes for a week in August.",
]


@pytest.fixture(scope="module")
def mixed_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Workspace(tmp_path_factory.mktemp("mixed")) as workspace:
        for name, texts in (("trains", TRAINS), ("house", HOUSE)):
            workspace.dataset(name).add([Document(str(n), text) for n, text in enumerate(texts)])
        yield workspace


class TestAcrossLanguages:
    """Documents in the language of a question must not hide answers in another one."""

    QUESTION = "When does the barrier close?"

    def test_an_answer_in_another_language_is_first(
        self, mixed_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = mixed_workspace.search(self.QUESTION, 3, refuse=False)
        assert (answer.hits[0].dataset, answer.hits[0].id) == ("trains", "0")
        assert "cosines across languages are raised: trains +0.0" in answer.plan.reason
        shares = [sum(step.normalised or 0 for step in hit.provenance) for hit in answer]
        assert shares == pytest.approx([hit.score for hit in answer])
        monkeypatch.setattr(judging, "RAISED", 0.0)
        answer = mixed_workspace.search(self.QUESTION, 3, refuse=False)
        assert answer.hits[0].dataset == "house"
        assert "languages" not in answer.plan.reason

    def test_many_questions_and_their_variants_too(self, mixed_workspace: Workspace) -> None:
        texts = [self.QUESTION, "When is lunch served?"]
        answers = mixed_workspace.search_many(texts, 3, refuse=False)
        assert [(answer.hits[0].dataset, answer.hits[0].id) for answer in answers] == [
            ("trains", "0"),
            ("trains", "4"),
        ]
        compound = mixed_workspace.search(" ".join(texts), 4, strategy="decomposition", refuse=False)
        assert {"0", "4"} == {hit.id for hit in compound.hits[:2] if hit.dataset == "trains"}

    def test_a_single_dataset_is_as_before(self, mixed_workspace: Workspace) -> None:
        assert "languages" not in mixed_workspace.search(self.QUESTION, 3, datasets="trains", refuse=False).plan.reason

    def test_an_empty_dataset_and_other_embedders_have_no_say(self, mixed_workspace: Workspace, tmp_path: Path) -> None:
        answer_before = mixed_workspace.search(self.QUESTION, 3, refuse=False)
        mixed_workspace.dataset("nothing").make()
        answer_after = mixed_workspace.search(self.QUESTION, 3, refuse=False)
        mixed_workspace.drop("nothing")
        assert [(hit.id, hit.score) for hit in answer_after] == [(hit.id, hit.score) for hit in answer_before]
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            for name, texts in (("trains", TRAINS), ("house", HOUSE)):
                workspace.dataset(name).add([Document(str(n), text) for n, text in enumerate(texts)])
            assert "languages" not in workspace.search(self.QUESTION, 3, refuse=False).plan.reason


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    minutes = "Chair: Walburga Stenzel. Mr Okonkwo asks for a second tap. Release 4.1.3 of the plan is approved. "
    licences = [f"Permission {n} is granted, free of charge, 3.1.{n}, to any person." for n in range(8)]
    with Workspace(tmp_path_factory.mktemp("office")) as workspace:
        texts = [minutes + "The fee for a plot stays at forty euros. " * 8, *licences, "王芳负责纸箱。", *HOUSE]
        workspace.dataset("office").add([Document(str(n), text) for n, text in enumerate(texts)])
        workspace.dataset("trains").add([Document(str(n), text) for n, text in enumerate(TRAINS)])
        yield workspace


class TestSingleWords:
    """Whoever asks with a name or a code gets what holds it, however near other passages are to it."""

    @pytest.mark.parametrize(
        ("question", "id_"),
        [("4.1.3", "0"), (" okonkwo? ", "0"), ("王芳", "9"), ("Stenzel", "0")],
    )
    @pytest.mark.parametrize("datasets", ["office", None])
    def test_what_holds_the_word_is_first(
        self, office: Workspace, question: str, id_: str, datasets: str | None
    ) -> None:
        answer = office.search(question, 3, datasets=datasets)
        assert (answer.hits[0].dataset, answer.hits[0].id) == ("office", id_)
        assert "holders" in [statement.code for statement in answer.reasons]
        shares = [sum(step.normalised or 0 for step in hit.provenance) for hit in answer]
        assert shares == pytest.approx([hit.score for hit in answer])

    def test_vectors_alone_would_put_another_passage_first(
        self, office: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lists_to_hits, "holders_of_word", lambda *_, **__: [])
        monkeypatch.setattr("pointsman.retrieval.search.designations", lambda _: ())
        assert office.search("4.1.3", 3, datasets="office").hits[0].id != "0"

    @pytest.mark.parametrize("question", ["helicopter", "okonkwo tap", "does Okonkwo ask"])
    def test_a_word_that_is_missing_and_longer_questions_are_ranked_by_the_sum(
        self, office: Workspace, question: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = office.search(question, 3, datasets="office", refuse=False)
        assert "holds the word" not in answer.plan.reason
        monkeypatch.setattr(lists_to_hits, "holders_of_word", lambda *_, **__: [])
        plain_answer = office.search(question, 3, datasets="office", refuse=False)
        assert [(hit.id, hit.score) for hit in answer] == [(hit.id, hit.score) for hit in plain_answer]

    def test_other_strategies_keep_their_order(self, office: Workspace) -> None:
        assert "holds the word" not in office.search("4.1.3", 3, strategy="rrf", refuse=False).plan.reason
        assert office.search("4.1.3", 3, strategy="hybrid").hits[0].id == "0"


NOTES = [
    *HOUSE,
    "The lift is serviced in March and in October.",
    "Parcels are left with the caretaker on the ground floor.",
    "Bicycles stand in the cellar, not in the corridor.",
    "The heating is bled once a year before the winter.",
    "Rubbish is collected on Tuesdays, paper every second Thursday.",
    "The alarm is tested on the first Monday of a month.",
    "Окна моют весной и осенью, стремянка стоит в кладовой.",
    "张师傅每周三来修剪草坪，费用每次八十元。",
]
"""In English, but for the last but one in Russian and the last in Chinese."""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Workspace(tmp_path_factory.mktemp("notes")) as made:
        made.dataset("notes").add([Document(str(n), text) for n, text in enumerate(NOTES)])
        yield made


class TestDocumentsInSeveralLanguages:
    """Within one dataset, too, the language of a question does not decide which document is nearest, nor how near."""

    @pytest.mark.parametrize(
        ("question", "id_"),
        [
            ("where is the ladder for cleaning windows", "12"),
            ("who cuts the grass", "13"),
            ("谁来修剪草坪", "13"),
            ("когда проверяют сигнализацию", "11"),
            ("when is the alarm tested", "11"),
        ],
    )
    def test_an_answer_in_any_of_them_is_first_and_not_refused(self, notes: Workspace, question: str, id_: str) -> None:
        answer = notes.search(question, 3)
        assert answer.refused is None
        assert answer.hits[0].id == id_

    @pytest.mark.parametrize("question", ["红烧肉怎么做", "哪种手机最好", "кто выиграл чемпионат мира по хоккею"])
    def test_being_the_only_document_in_the_questions_language_is_no_answer(
        self, notes: Workspace, question: str
    ) -> None:
        assert notes.search(question, 3).refused is not None

    def test_vectors_from_somewhere_else_are_searched_so_from_the_first_question_on(
        self, notes: Workspace, tmp_path: Path
    ) -> None:
        documents = [Document(str(n), text) for n, text in enumerate(NOTES)]
        with Workspace(tmp_path) as workspace:
            imported = workspace.dataset("notes")
            imported.add(documents, vectors=imported.embedder.embed_documents(NOTES))
            for _ in range(2):
                answer = workspace.search("who cuts the grass", 3)
                assert answer.hits[0].id == "13"
                assert answer.confidence == pytest.approx(notes.search("who cuts the grass", 3).confidence, abs=0.02)

    def test_beside_documents_in_one_language_it_loses_nothing(self, tmp_path: Path) -> None:
        with Workspace(tmp_path) as workspace:
            for name, texts in (("notes", NOTES), ("trains", list(RAILS.values()))):
                workspace.dataset(name).add([Document(str(n), text) for n, text in enumerate(texts)])
            question = "when do they test the alarm?"
            answer = workspace.search(question, 3)
            assert (answer.hits[0].dataset, answer.hits[0].id) == ("notes", "11")
            key, background = workspace.dataset("notes").remembered_background or ("", None)
            assert background is not None
            assert background.neutral is not None
            lowered = replace(background, neutral=replace(background.neutral, lowered=0.05))
            workspace.dataset("notes").remembered_background = key, lowered
            assert "are raised: notes +0.050" in workspace.search(question, 3).plan.reason


def chances(answer: RetrievalContext) -> dict[str, float]:
    assert all(hit.relevance is not None for hit in answer)
    return {hit.id: hit.relevance or 0.0 for hit in answer}


@pytest.mark.parametrize(("text", "id_"), QUESTIONS_WITH_ANSWER)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_m1_an_answer_is_probable_and_the_rest_is_not(workspace: Workspace, text: str, id_: str, strategy: Any) -> None:
    answer = workspace.search(text, 4, strategy=strategy)
    assert answer.hits[0].id == id_
    chances_by_id = chances(answer)
    assert chances_by_id[id_] > 0.5
    assert max(chance for name, chance in chances_by_id.items() if name != id_) < 0.5
    assert answer.confidence == max(chances_by_id.values())


@pytest.mark.parametrize("text", QUESTIONS_WITHOUT_ANSWER)
@pytest.mark.parametrize("datasets", ["rails", "office", None])
def test_r4_what_is_not_there_is_refused_and_the_near_misses_are_told(
    workspace: Workspace, text: str, datasets: Any
) -> None:
    answer = workspace.search(text, 3, datasets=datasets)
    refused = answer.refused
    assert refused is not None
    assert not answer.hits
    assert [statement.code for statement in refused.reasons] == ["improbable"]
    assert refused.nearest is not None
    assert refused.nearest.id in refused.reason
    assert [hit.key for hit in refused.near_misses] == [
        hit.key for hit in workspace.search(text, 3, datasets=datasets, refuse=False)
    ]
    assert refused.score is not None
    assert refused.threshold is not None
    assert refused.score < refused.threshold
    assert answer.confidence is not None
    assert answer.confidence < 0.5


def test_prompt_of_a_refused_answer_gives_the_nearest_and_says_so(workspace: Workspace) -> None:
    answer = workspace.search(QUESTIONS_WITHOUT_ANSWER[0], 2)
    assert answer.refused is not None
    first = answer.refused.near_misses[0].text
    prompt = answer.to_prompt()
    assert prompt.startswith(f"{answer.heading}\n\n[1]")
    assert first in prompt
    assert answer.verify(f'"{first}" [1]').claims[0].status == "exact"


@pytest.mark.parametrize(("text", "id_"), QUESTIONS_WITH_ANSWER)
def test_m1_a_pair_has_one_probability_whatever_is_searched(workspace: Workspace, text: str, id_: str) -> None:
    dataset = "rails" if id_ in RAILS else "office"
    relevances = [
        chances(workspace.search(text, 1, strategy=strategy, datasets=datasets))[id_]
        for strategy in ("auto", "hybrid", "rrf", "z_score", "multi_query")
        for datasets in ([dataset], None)
    ]
    assert max(relevances) - min(relevances) < 0.05


@pytest.mark.parametrize("strategy", ["auto", "vector"])
def test_m1_a_passage_does_not_compete_with_its_copies(workspace: Workspace, tmp_path: Path, strategy: Any) -> None:
    question = "what guides a train to another track?"
    first_answer = workspace.search(question, 1, strategy=strategy, datasets="rails")
    with Workspace(tmp_path) as made:
        copies = {f"switch {number}": RAILS["switch"] for number in range(7)}
        made.dataset("rails").add([Document(id_, text) for id_, text in {**RAILS, **copies}.items()])
        answer = made.search(question, 8, strategy=strategy)
    assert {hit.text for hit in answer} == {RAILS["switch"]}
    assert first_answer.hits[0].relevance is not None
    assert first_answer.confidence is not None
    for relevance in chances(answer).values():
        assert relevance == pytest.approx(first_answer.hits[0].relevance, abs=0.05)
    assert answer.confidence == pytest.approx(first_answer.confidence, abs=0.05), (
        "eight copies answer no more than one does"
    )


@pytest.mark.parametrize(
    ("text", "id_"), [("кто ведёт кружок", "club"), ("кто шьёт костюмы", "club"), ("谁预订酒店", "trip")]
)
def test_words_count_in_the_few_documents_that_are_in_the_language_of_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, id_: str
) -> None:
    few = {
        "club": "Кружок словесности ведёт Людмила Ершова. Костюмы шьёт мама Ани.",
        "trip": "合唱团十月十二日去里加。大家乘坐早上七点四十分的航班，酒店由王敏预订，双人间，含早餐。",
    }
    english = {f"{key}{part}": f"{sentence} Part {part}." for key, sentence in RAILS.items() for part in range(8)}
    with Workspace(tmp_path) as workspace:
        workspace.dataset("notes").add([Document(key, sentence) for key, sentence in (few | english).items()])

        def relevance() -> float:
            answer = workspace.search(text, min_relevance=0)
            return next(hit.relevance for hit in answer.hits if hit.id == id_ and hit.relevance is not None)

        with_words = relevance()
        monkeypatch.setattr(judging, "has_own_words", lambda *_: False)
        assert with_words > relevance()


@pytest.mark.parametrize("text", ["кто шьёт костюмы для Bosch", "谁缝制Bosch的服装"])
def test_a_name_that_languages_share_is_no_word_of_the_question_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    english = {f"{key}{part}": f"{sentence} Part {part}." for key, sentence in RAILS.items() for part in range(8)}
    with Workspace(tmp_path) as workspace:
        workspace.dataset("notes").add([Document(key, sentence) for key, sentence in english.items()])
        workspace.dataset("notes").add([Document("bosch", "Bosch makes the signal lamps and the motors of points.")])

        def relevance() -> float:
            answer = workspace.search(text, 20, min_relevance=0)
            return next(hit.relevance for hit in answer.hits if hit.id == "bosch" and hit.relevance is not None)

        without_words = relevance()
        monkeypatch.setattr(judging, "has_own_words", lambda *_: True)
        assert without_words < relevance(), "a name that any language has says nothing of the answer"


def test_m1_of_many_questions_each_is_judged(workspace: Workspace) -> None:
    texts = [text for text, _ in QUESTIONS_WITH_ANSWER] + QUESTIONS_WITHOUT_ANSWER
    for text, answer in zip(texts, workspace.search_many(texts, 3), strict=True):
        single = workspace.search(text, 3)
        assert chances(answer) == pytest.approx(chances(single), abs=1e-6)
        assert answer.confidence == pytest.approx(single.confidence, abs=1e-6)
        assert (answer.refused is None) == (single.refused is None)


# ── cutting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_m1_min_relevance_cuts(workspace: Workspace) -> None:
    text = QUESTIONS_WITH_ANSWER[0][0]
    full_answer = workspace.search(text, 5)
    answer = workspace.search(text, 5, min_relevance=0.5)
    assert [hit.id for hit in answer] == ["switch"]
    assert answer.explain("guard").steps
    assert chances(workspace.search(text, 5, min_relevance=0)) == chances(full_answer)
    empty_answer = workspace.search(text, 5, min_relevance=1.0, refuse=False)
    assert not empty_answer.hits
    assert empty_answer.refused is not None
    assert [hit.key for hit in empty_answer.refused.near_misses] == [hit.key for hit in full_answer]
    assert empty_answer.refused.threshold == 1.0


@pytest.mark.parametrize("bad", [-0.1, 1.1, "0.5", True, float("nan"), [0.5]])
def test_m1_min_relevance_is_a_probability(bad: Any) -> None:
    with pytest.raises(InputError, match="min_relevance is a probability from 0 to 1"):
        SearchRequest.of("x", 5, {"min_relevance": bad})


# ── where nothing is calibrated ──────────────────────────────────────────────────────────────────────────────────────


def test_m1_without_a_calibration_nothing_is_made_up(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        rails = workspace.dataset("rails")
        rails.add([Document(id_, text) for id_, text in RAILS.items()])
        answer = workspace.search("railway switch", 3, min_relevance=0.9)
        assert {hit.relevance for hit in answer} == {None}
        assert answer.confidence is None
        assert any("min_relevance: 3 hits have no relevance and are kept" in note for note in answer.degraded)
        assert BACKGROUND_NOTE not in rails.store.statistics().notes


def test_m1_a_question_without_a_word_is_not_judged(workspace: Workspace) -> None:
    answer = workspace.search("???", 3, refuse=False)
    assert {hit.relevance for hit in answer} == {None}
    assert answer.confidence is None


def test_m1_words_alone_are_judged_by_words(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.dataset("rails", indexing_technique="keyword").add([Document(i, t) for i, t in RAILS.items()])
        answer = workspace.search("what guides trains to another track?", 3)
        assert chances(answer)["switch"] > 0.5


# ── the background ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_m1_the_background_is_measured_with_the_documents_and_kept(tmp_path: Path) -> None:
    text = QUESTIONS_WITH_ANSWER[0][0]
    with Workspace(tmp_path) as workspace:
        workspace.dataset("rails").add([Document(id_, text) for id_, text in RAILS.items()])
        note = json.loads(workspace.dataset("rails").store.statistics().notes[BACKGROUND_NOTE])
        assert note["embedder"] == workspace.dataset("rails").embedder.name
        chances_before = chances(workspace.search(text, 3))
    with Workspace(tmp_path) as workspace:
        assert chances(workspace.search(text, 3)) == pytest.approx(chances_before)


def test_m1_vectors_from_somewhere_else_are_measured_on_the_first_search(tmp_path: Path) -> None:
    documents = [Document(id_, text) for id_, text in RAILS.items()]
    with Workspace(tmp_path) as workspace:
        rails = workspace.dataset("rails")
        rails.add(documents, vectors=rails.embedder.embed_documents([document.text for document in documents]))
        assert not rails.store.statistics().notes.get(BACKGROUND_NOTE)
        assert chances(workspace.search(QUESTIONS_WITH_ANSWER[0][0], 3))["switch"] > 0.5


def test_m1_what_an_earlier_version_measured_is_measured_again(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        rails = workspace.dataset("rails")
        rails.add([Document(id_, text) for id_, text in RAILS.items()])
        rails.store.annotate(**{BACKGROUND_NOTE: "", "background": '{"embedder": "e", "centroid": [0.1]}'})
    with Workspace(tmp_path) as workspace:
        assert chances(workspace.search(QUESTIONS_WITH_ANSWER[0][0], 3))["switch"] > 0.5


# ── what later stages do ─────────────────────────────────────────────────────────────────────────────────────────────


class Backwards(BaseReranker):
    """The worst first."""

    def rerank(self, query: str | Query, documents: Any, top_n: int | None = 4) -> list[Document]:
        return list(reversed(documents))[:top_n]


def test_order_does_not_change_relevance(workspace: Workspace) -> None:
    backwards = workspace.search(QUESTIONS_WITH_ANSWER[0][0], 5, datasets="rails", rerank=Backwards())
    assert backwards.hits[-1].id == "switch"
    assert chances(backwards) == chances(
        workspace.search(QUESTIONS_WITH_ANSWER[0][0], 5, datasets="rails", rerank=False)
    )


@pytest.mark.parametrize("text", [QUESTIONS_WITH_ANSWER[0][0], QUESTIONS_WITHOUT_ANSWER[0]])
def test_hit_has_one_relevance_for_any_number_of_hits_and_any_company(workspace: Workspace, text: str) -> None:
    relevances: dict[object, set[float]] = {}
    for strategy in ("auto", "hybrid", "rrf", "z_score"):
        for k in (1, 2, 5, 50):
            for datasets in (["rails"], ["rails", "office"]):
                answer = workspace.search(text, k, strategy=strategy, datasets=datasets, refuse=False)
                for hit in answer:
                    assert hit.relevance is not None
                    relevances.setdefault(hit.key, set()).add(round(hit.relevance, 6))
    assert len(relevances) >= 5
    assert all(len(levels) == 1 for levels in relevances.values())


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8))
def test_confidence_is_the_highest_relevance(values: list[float | None]) -> None:
    hits = [Hit(Document(str(n), "x"), 0.0, "a", relevance=value) for n, value in enumerate(values)]
    assert NOTHING.of(hits) == tuple(hits)
    judgements = Judgements(
        {"a": Evaluation(0.5, 0.1)}, {hit.key: hit.relevance for hit in hits if hit.relevance is not None}
    )
    assert [hit.relevance for hit in judgements.of(hits)] == values
    levels = [value for value in values if value is not None]
    assert judgements.confidence(hits) == (max(levels) if levels else None if hits else 0.0)


@given(
    st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.data(),
)
def test_more_datasets_never_refuse_what_one_with_a_first_hit_answers(
    datasets: dict[str, tuple[float, float]], data: st.DataObject
) -> None:
    judgements = Judgements({name: Evaluation(*pair) for name, pair in datasets.items()}, {})
    names = data.draw(st.lists(st.sampled_from([*datasets, "not judged"]), max_size=8))
    best = judgements.best_evaluation([Hit(Document("1", "x"), 0.0, name) for name in names])
    judged_pairs = [datasets[name] for name in names if name in datasets]
    assert (best is None) == (not judged_pairs)
    is_answered = any(chance >= minimum for chance, minimum in judged_pairs)
    assert (best is not None and best.best >= best.minimum) == is_answered


# ── the wire ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", [QUESTIONS_WITH_ANSWER[0][0], QUESTIONS_WITHOUT_ANSWER[0]])
def test_m1_it_survives_the_wire(workspace: Workspace, text: str) -> None:
    answer = workspace.search(text, 3)
    form = json.loads(json.dumps(answer.to_dict()))
    copy = RetrievalContext.from_dict(form)
    assert copy.hits == answer.hits
    assert copy.refused == answer.refused
    assert copy.confidence == answer.confidence
    if form["hits"]:
        incomplete = {**form, "hits": [{k: v for k, v in hit.items() if k != "relevance"} for hit in form["hits"]]}
        with pytest.raises(InputError, match="relevance"):
            RetrievalContext.from_dict(incomplete)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_dataset_of_few_passages_answers_its_own_question_and_refuses_others(count: int) -> None:
    documents = [
        Document("hotel", "A night may cost 120 euros at most.", {"title": "Travel › Hotels"}),
        Document("train", "Book second class.", {"title": "Travel › Trains"}),
        Document("leave", "Leave is 28 days a year.", {"title": "Leave"}),
        Document("password", "The password is changed every 90 days.", {"title": "IT › Passwords"}),
        Document("tea", "Green tea is best brewed below boiling point.", {"title": "Kitchen"}),
        Document("bill", "Invoices are paid within 30 days.", {"title": "Accounts"}),
    ]
    with Dataset("few") as dataset:
        dataset.add(documents[:count])
        answer = dataset.search("how much may a hotel cost?")
        assert answer.hits[0].id == "hotel"
        assert answer.confidence is not None
        assert answer.confidence > 0.5
        for question in ("what is the capital of France?", "who won the world cup?"):
            assert dataset.search(question).refused is not None
